# SPDX-License-Identifier: Apache-2.0
"""The errors of re-encryption; see :mod:`.encryption_errors`."""

from cinder.i18n import _

from cinder_localclone import exceptions


class CannotReencrypt(exceptions.LocalCloneError):
    """A volume that can't be re-encrypted, as it is or as was asked for."""

    message = _('Volume %(volume)s can\'t be re-encrypted: %(reason)s. '
                'Nothing was changed.')


class OtherKeys(exceptions.LocalCloneError):
    """Keys that would be lost: only that of the service is taken over."""

    message = _('Volume %(volume)s has other keys than its secret (key slots '
                '%(slots)s), such as recovery keys. A re-encryption does not '
                'keep these keys. Nothing was changed. Run the command with '
                '--drop-other-keys to remove them, and add recovery keys '
                'again afterwards.')


class NoRoomToReencrypt(exceptions.LocalCloneError):
    """A thin volume that would become full, in a pool that has no room."""

    message = _('Volume %(volume)s can\'t be re-encrypted on %(host)s: a '
                're-encryption writes the whole volume and needs up to '
                '%(needed)d MiB; %(free)d MiB are free in the thin pool. '
                'Nothing was changed. Extend the thin pool.')


class Reencrypting(exceptions.LocalCloneError):
    """What can't be done to a volume that is being re-encrypted."""

    message = _('Volume %(volume)s can\'t be %(what)s until its re-encryption '
                'has ended. Nothing was changed. If the re-encryption is '
                'paused, run "cinder-localclone encryption resume".')
    user_message = 'REENCRYPTING'


class StillReencrypting(exceptions.SourceBusy):
    """A re-encryption that has not paused in time."""

    message = _('The re-encryption of volume %(volume)s on %(host)s did not '
                'pause within %(seconds)d s. The re-encryption continues; '
                'nothing else was changed. Try again later.')


class Interrupted(exceptions.SourceBusy):
    """A re-encryption that was killed under a running guest."""

    message = _('The process that re-encrypted volume %(volume)s on %(host)s '
                'was killed, and an instance still has the volume open. '
                'Nothing was changed. Stop the instance, or detach the '
                'volume: the driver then recovers the volume and continues '
                'its re-encryption.')
