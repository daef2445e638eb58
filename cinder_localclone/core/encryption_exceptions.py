# SPDX-License-Identifier: Apache-2.0
"""The errors of encrypted volumes.

None of them is a reason to format anything: what can't be read may be read
again, when its disk, or its source, is back.
"""

from cinder.i18n import _

from cinder_localclone.core import exceptions
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core.outcomes import owner_reads


class InvalidEncryptionType(exceptions.LocalCloneError):
    """A volume type that asks for an encryption there is none of."""

    problem = _('Volume %(volume)s can\'t be encrypted as its type says: '
                '%(reason)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Correct the extra specs, or the encryption, of the type.')
    user_message = owner_reads('ENCRYPTION_TYPE', 'LC32', _(
        'The volume type asks for an encryption that this storage does not '
        'have; an administrator has to correct the type.'))


class InvalidPaceType(exceptions.LocalCloneError):
    """A volume type that asks for a pace of copies there is none of."""

    problem = _('Volume %(volume)s can\'t be of its type: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Correct the extra spec of the type.')
    user_message = owner_reads('PACE_TYPE', 'LC43', _(
        'The volume type asks for a pace of copies that this storage does not '
        'have; an administrator has to correct the type.'))


class KeyUnreadable(exceptions.LocalCloneError):
    """An owner's secret that can't be read by what the owner has sent."""

    problem = _('Secret %(key)s could not be read with the token of this '
                'request: %(reason)s.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('KEY_UNREADABLE', 'LC33', _(
        'The key of the volume could not be read with the rights of this '
        'request.'))


class EncryptionChange(exceptions.LocalCloneError):
    """A retype or migration that would encrypt a volume, or decrypt it."""

    problem = _('The encryption of volume %(volume)s can\'t be changed by a '
                'retype, or by a migration to another backend.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create a volume of the new type, and copy the data in an '
               'instance that has both volumes.')
    user_message = owner_reads('ENCRYPTION_CHANGE', 'LC34', _(
        'The encryption of a volume cannot be changed in place; copy it to a '
        'new volume.'))


class NotThere(exceptions.Refused):
    """A host that could only be served what nobody there can read."""

    user_message = owner_reads('ENCRYPTED_REMOTE', 'LC35', _(
        'An encrypted volume can only be used on hosts that have this '
        'storage.'))


class KeyUnavailable(exceptions.LocalCloneError):
    """The key manager does not answer. Trying again may help."""

    problem = _('The key manager did not answer: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when it is back.')
    user_message = owner_reads('KEY_UNAVAILABLE', 'LC36', _(
        'The key manager does not answer; the volume is unchanged. Try again '
        'later.'))


class KeyRefused(exceptions.LocalCloneError):
    """The key manager has no such secret, or none for this service."""

    problem = _('Secret %(key)s of the key manager can\'t be used: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Check that the secret exists, and that the user of '
               'localclone_key_auth may read it.')


class NotSealed(exceptions.LocalCloneError):
    """A key that is not kept on this node, or can't be unsealed here."""

    problem = _('The sealed key %(path)s could not be used: %(reason)s.')


class WrongKey(exceptions.LocalCloneError):
    """A key that opens nothing."""

    problem = _('The key does not open %(path)s.')
    outcome = Outcome.NOT_WRITTEN


class HeaderDamaged(exceptions.LocalCloneError):
    """A header that can't be read, or not be understood."""

    problem = _('The encryption header of %(path)s can\'t be used: '
                '%(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('If the header is damaged, and the disk and the source of the '
               'volume can be read, restore a backup of the header '
               '("cinder-localclone encryption header-restore").')
    user_message = owner_reads('HEADER_DAMAGED', 'LC37', _(
        'The encryption header of the volume cannot be used; nothing was '
        'written to it. An administrator has to examine it.'))


class ForeignHeader(HeaderDamaged):
    """A header that is not the one that the volume is known to have."""

    problem = _('The encryption header of %(path)s is not the one that was '
                'recorded for its volume: %(reason)s. The key manager was not '
                'asked.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Find out which program has written the header before you '
               'restore a backup.')


class OpenedOtherwise(ForeignHeader):
    """A crypt device that is not what the checked header says."""

    problem = _('The volume of %(path)s is open, but not as its header says: '
                '%(reason)s. Someone may have changed the header after the '
                'driver checked it. The driver gives the volume to no '
                'instance.')
    remedy = _('Shut off an instance that uses it, detach the volume, and '
               'find out who can write to its disk.')


class NotRecovered(HeaderDamaged):
    """A re-encryption that has not ended, where nobody may put it in order.

    What must not be done comes first: not everything shows all of a text.
    """

    problem = _('Do not restore a backup of the header of %(path)s: an older '
                'header would make the data unreadable. The re-encryption was '
                'interrupted: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('The home of the volume recovers it by itself.')
    user_message = owner_reads('REENCRYPTING', 'LC41', _(
        'The volume is being re-encrypted; try again when that has ended.'))


class NotEnded(HeaderDamaged):
    """A re-encryption that was killed in its very end, which can't be made."""

    problem = _('Do not restore an old backup over the header of %(path)s: '
                'the data would become unreadable. All data is re-encrypted, '
                'but the header can\'t be completed: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Keep the volume as it is until its header has been repaired '
               'by hand.')


class HeaderInUse(exceptions.LocalCloneError):
    """A header that other processes have locked, or re-encrypt."""

    problem = _('The encryption header of %(path)s is in use: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Try again later. If this error remains, check which '
               'cryptsetup processes run on this node.')
    user_message = NotRecovered.user_message


class NotBlank(exceptions.LocalCloneError):
    """A device that was to be formatted, and that has data already."""

    problem = _('%(path)s is not blank, so it was not formatted: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    user_message = exceptions.NotCreated.user_message


class LastKey(exceptions.LocalCloneError):
    """A key that is not removed, because no other would be left."""

    problem = _('Key slot %(slot)s of %(path)s is the last one whose key the '
                'key manager has. It was not removed.')


class KeyNotChanged(exceptions.LocalCloneError):
    """A key, or a header, that is not to be changed now, or not so."""

    problem = _('The encryption of volume %(volume)s was not changed: '
                '%(reason)s.')


class NoBackup(exceptions.LocalCloneError):
    """Backups of a header that could not be written, or not be removed."""

    problem = _('The backups of the encryption header of volume %(volume)s in '
                '%(directory)s can\'t be changed: %(reason)s.')
    remedy = _('Check that localclone_header_backup_dir is there and can be '
               'written to.')


class StaleBackup(exceptions.LocalCloneError):
    """Backups that may have a key that the header has no more."""

    problem = _('Key slot %(slot)s of volume %(volume)s is empty now, but '
                'backups of the header may still contain its key. The volume '
                'service replaces the backups as soon as it can. The backups '
                'could not be replaced now: %(reason)s')


class MovesCold(exceptions.Refused):
    """A live migration of what two nodes can't have open at one time."""

    user_message = owner_reads('MOVES_COLD', 'LC38', _(
        'A volume of this type moves only while it is detached.'))


class KeepsSize(exceptions.LocalCloneError):
    """An authenticated volume, whose tags are laid out for its size."""

    problem = _('Volume %(volume)s is authenticated and can\'t be extended.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create a larger volume, and copy the data in an instance that '
               'has both volumes.')
    user_message = owner_reads('KEEPS_SIZE', 'LC42', _(
        'A volume of this type cannot be extended; copy the data to a larger '
        'volume.'))


class OddSize(exceptions.LocalCloneError):
    """What was created is not as large as it is to be."""

    problem = _('Volume %(volume)s was not created: it would have %(found)s '
                'bytes instead of %(wanted)s. cryptsetup or the kernel lays '
                'out authenticated volumes differently than this version of '
                'the driver expects.')


class NotAtRest(exceptions.LocalCloneError):
    """A header that is not to be written before a move has ended."""

    problem = _('The encryption of volume %(volume)s can\'t be changed while '
                'the volume is being moved or migrated, or while another node '
                'uses it over iSCSI.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again afterwards.')
    user_message = owner_reads('NOT_AT_REST', 'LC39', _(
        'The volume is being moved, or another host uses it over the network; '
        'try again afterwards.'))


class WouldReadNoise(exceptions.Refused):
    """A restore that would leave zeros out, which read as noise."""

    user_message = owner_reads('FRESH_ENCRYPTED', 'LC40', _(
        'A backup cannot be restored to a volume of this type that was never '
        'attached; attach it once, or choose another type.'))


#: What cryptsetup says of what has no header, or none that can be read, with
#: the exit code that it has for everything it does not like.
_NO_HEADER = 'is not a valid LUKS'
#: Of one of LUKS1, where one of LUKS2 is looked for.
_NOT_LUKS2 = 'Dump operation is not supported'
#: Of a header whose slots are empty.
_NO_SLOT = 'No usable keyslot'


def of_cryptsetup(failed: exceptions.CommandFailed, path: str
                  ) -> exceptions.LocalCloneError:
    """What a failure of cryptsetup(8) means.

    Its exit codes: 1 wrong parameters, 2 no permission (bad passphrase),
    3 out of memory, 4 wrong device, 5 device already exists or is busy.

    :param path: of what it was to work on
    :returns: the same failure if it says nothing more precise
    """
    code, text = failed.kwargs.get('code'), str(failed)
    if code == 2 or (code == 1 and _NO_SLOT in text):
        return WrongKey(path=path)
    if code == 1 and _NO_HEADER in text:
        return HeaderDamaged(path=path, reason='cryptsetup finds no header')
    if code == 1 and _NOT_LUKS2 in text:
        return HeaderDamaged(path=path, reason='it is no LUKS2 header')
    return failed


class CannotReencrypt(exceptions.LocalCloneError):
    """A volume that can't be re-encrypted, as it is or as was asked for."""

    problem = _('Volume %(volume)s can\'t be re-encrypted: %(reason)s.')
    outcome = Outcome.UNCHANGED


class OtherKeys(exceptions.LocalCloneError):
    """Keys that would be lost: only that of the service is taken over."""

    problem = _('Volume %(volume)s has other keys than its secret (key slots '
                '%(slots)s), such as recovery keys. A re-encryption does not '
                'keep these keys.')
    outcome = Outcome.UNCHANGED
    remedy = _('Run the command with --drop-other-keys to remove them, and '
               'add recovery keys again afterwards.')


class NoSpaceToReencrypt(exceptions.LocalCloneError):
    """A thin volume that would become full, in a pool that has no room."""

    problem = _('Volume %(volume)s can\'t be re-encrypted on %(host)s: a '
                're-encryption writes the whole volume and needs up to '
                '%(needed)d MiB; %(free)d MiB are free in the thin pool.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend the thin pool.')


class Reencrypting(exceptions.LocalCloneError):
    """What can't be done to a volume that is being re-encrypted."""

    problem = _('Volume %(volume)s can\'t be %(what)s until its re-encryption '
                'has ended.')
    outcome = Outcome.UNCHANGED
    remedy = _('If the re-encryption is paused, run "cinder-localclone '
               'encryption resume".')
    user_message = NotRecovered.user_message


class StillReencrypting(exceptions.SourceBusy):
    """A re-encryption that has not paused in time."""

    problem = _('The re-encryption of volume %(volume)s on %(host)s did not '
                'pause within %(seconds)d s. The re-encryption continues; '
                'nothing else was changed.')
    remedy = _('Try again later.')


class Interrupted(exceptions.SourceBusy):
    """A re-encryption that was killed under a running guest."""

    problem = _('The process that re-encrypted volume %(volume)s on %(host)s '
                'was killed, and an instance still has the volume open.')
    outcome = Outcome.UNCHANGED
    remedy = _('Stop the instance, or detach the volume: the driver then '
               'recovers the volume and continues its re-encryption.')
