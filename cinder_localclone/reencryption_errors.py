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

    message = _('Volume %(volume)s has other keys than that of its secret '
                '(key slots %(slots)s), such as recovery keys. No '
                're-encryption keeps them. Nothing was changed. With '
                '--drop-other-keys they are dropped; add recovery keys again '
                'afterwards.')


class NoRoomToReencrypt(exceptions.LocalCloneError):
    """A thin volume that would become full, in a pool that has no room."""

    message = _('Volume %(volume)s can\'t be re-encrypted on %(host)s: all '
                'of it is written anew, for which up to %(needed)d MiB are '
                'needed; %(free)d MiB are free in the thin pool. Nothing was '
                'changed.')


class Reencrypting(exceptions.LocalCloneError):
    """What can't be done to a volume that is being re-encrypted."""

    message = _('Volume %(volume)s can\'t be %(what)s before its '
                're-encryption has ended, whether that runs or is paused. '
                'Nothing was changed. See "cinder-localclone encryption '
                'resume".')
    user_message = 'REENCRYPTING'


class StillReencrypting(exceptions.SourceBusy):
    """A re-encryption that has not paused in time."""

    message = _('The re-encryption of volume %(volume)s on %(host)s was '
                'asked to pause, and has not done so within %(seconds)d s. '
                'It goes on; nothing else was changed.')


class Interrupted(exceptions.SourceBusy):
    """A re-encryption that was killed under a running guest."""

    message = _('What re-encrypted volume %(volume)s on %(host)s was killed, '
                'and an instance still has the volume open. Nothing was '
                'changed. Stop that instance, or detach the volume: then it '
                'is recovered, and goes on.')
