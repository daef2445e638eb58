# SPDX-License-Identifier: Apache-2.0
"""The errors of encrypted volumes.

None of them is a reason to format a device: a header may be readable again
when the disk or the source is back.
"""

from cinder.i18n import _

from cinder_localclone.core import exceptions
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core import user_messages


class InvalidEncryptionType(exceptions.LocalCloneError):
    """A volume type with an unknown encryption."""

    problem = _('Volume %(volume)s can\'t be encrypted as its type says: '
                '%(reason)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Correct the extra specs, or the encryption, of the type.')
    member_reads = (user_messages.ENCRYPTION_TYPE,)


class InvalidPaceType(exceptions.LocalCloneError):
    """A volume type with an unknown pace of copies."""

    problem = _('Volume %(volume)s can\'t have its type: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Correct the extra spec of the type.')
    member_reads = (user_messages.PACE_TYPE,)


class KeyUnreadable(exceptions.LocalCloneError):
    """An owner's secret not readable with the token of the request."""

    problem = _('Secret %(key)s could not be read with the token of this '
                'request: %(reason)s.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.KEY_UNREADABLE,)


class EncryptionChange(exceptions.LocalCloneError):
    """A retype or migration to encrypt or decrypt a volume."""

    problem = _('The encryption of volume %(volume)s can\'t be changed by a '
                'retype, or by a migration to another backend.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create a volume of the new type, and copy the data in an '
               'instance that has both volumes.')
    member_reads = (user_messages.ENCRYPTION_CHANGE,)


class NotThere(exceptions.Refused):
    """A host without the backend could only read the ciphertext."""

    member_reads = (user_messages.ENCRYPTED_REMOTE,)


class KeyUnavailable(exceptions.LocalCloneError):
    """The key manager does not answer. A later try may succeed."""

    problem = _('The key manager did not answer: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when it is back.')
    member_reads = (user_messages.KEY_UNAVAILABLE,)


class KeyRefused(exceptions.LocalCloneError):
    """The secret does not exist, or this service may not read it."""

    problem = _('Secret %(key)s of the key manager can\'t be used: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('The secret must exist, and the user of localclone_key_auth '
               'must be allowed to read it.')
    member_reads = (user_messages.KEY_UNUSABLE,)


class LoginRefused(KeyRefused):
    """Credentials missing in cinder.conf, or refused by the key manager."""

    problem = _('The key manager does not accept this service: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Correct [key_manager], [barbican] and localclone_key_auth in '
               'cinder.conf.')
    member_reads = (user_messages.KEY_UNUSABLE,)


class NotSealed(exceptions.LocalCloneError):
    """A sealed key missing on this node, or impossible to unseal here."""

    problem = _('The sealed key %(path)s could not be used: %(reason)s.')
    member_reads = (user_messages.KEY_UNUSABLE,)


class WrongKey(exceptions.LocalCloneError):
    """A key without a matching key slot."""

    problem = _('The key does not open %(path)s.')
    outcome = Outcome.NOT_WRITTEN
    member_reads = (user_messages.KEY_UNUSABLE,)


class HeaderDamaged(exceptions.LocalCloneError):
    """An unreadable header."""

    problem = _('The encryption header of %(path)s can\'t be used: '
                '%(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('If the header is damaged, and the disk and the source of the '
               'volume can be read, restore a backup of the header '
               '("cinder-localclone encryption header restore").')
    member_reads = (user_messages.HEADER_DAMAGED,)


class ForeignHeader(HeaderDamaged):
    """A header other than the recorded header of the volume."""

    problem = _('The encryption header of %(path)s is not the header recorded '
                'for its volume: %(reason)s. The key manager was not asked.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Find out which program has written the header before you '
               'restore a backup.')
    member_reads = (user_messages.ENCRYPTION_CHECK,)


class OpenedOtherwise(ForeignHeader):
    """A crypt device with another table than its checked header describes."""

    problem = _('The crypt device of %(path)s does not match its header: '
                '%(reason)s. The header may have been changed after the '
                'driver checked it. The driver gives the volume to no '
                'instance.')
    remedy = _('Shut off the instance, detach the volume, and find out which '
               'programs can write to its disk.')
    member_reads = (user_messages.ENCRYPTION_CHECK,)


class NotRecovered(HeaderDamaged):
    """An unfinished re-encryption on a node without the right to recover it.

    The text begins with the warning: some programs show only its beginning.
    """

    problem = _('Do not restore a backup of the header of %(path)s: an older '
                'header would make the data unreadable. The re-encryption was '
                'interrupted: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('The home of the volume recovers it by itself.')
    member_reads = (user_messages.REENCRYPTING,)


class NotEnded(HeaderDamaged):
    """A re-encryption killed at its very end, and beyond recovery."""

    problem = _('Do not restore an old backup over the header of %(path)s: '
                'the data would become unreadable. All data is re-encrypted, '
                'but the header can\'t be completed: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Keep the volume as it is until its header has been repaired '
               'by hand.')
    member_reads = (user_messages.HEADER_DAMAGED,)


class HeaderInUse(exceptions.LocalCloneError):
    """A header locked or being re-encrypted by another process."""

    problem = _('The encryption header of %(path)s is in use: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN
    remedy = _('Try again later. If this error remains, check which '
               'cryptsetup processes run on this node.')
    member_reads = (user_messages.BUSY,)


class NotBlank(exceptions.LocalCloneError):
    """A device to format with data on it already."""

    problem = _('%(path)s is not blank, so it was not formatted: %(reason)s.')
    outcome = Outcome.NOT_WRITTEN


class LastKey(exceptions.LocalCloneError):
    """A key kept because no other usable key would be left."""

    problem = _('Key slot %(slot)s of %(path)s was not removed: the key '
                'manager has the key of no other key slot.')


class KeyNotChanged(exceptions.LocalCloneError):
    """A change of a key or header refused, or failed."""

    problem = _('The encryption of volume %(volume)s was not changed: '
                '%(reason)s.')


class NoBackup(exceptions.LocalCloneError):
    """Header backups impossible to write or remove."""

    problem = _('The backups of the encryption header of volume %(volume)s in '
                '%(directory)s can\'t be changed: %(reason)s.')
    remedy = _('The directory localclone_header_backup_dir must exist and be '
               'writable.')


class StaleBackup(exceptions.LocalCloneError):
    """Header backups with, possibly, a removed key."""

    problem = _('Key slot %(slot)s of volume %(volume)s is empty now, but '
                'backups of the header may still contain its key. The volume '
                'service replaces the backups as soon as it can. The backups '
                'could not be replaced now: %(reason)s')


class MovesCold(exceptions.Refused):
    """A live migration of a volume for only one node at a time."""

    member_reads = (user_messages.MOVES_COLD,)


class KeepsSize(exceptions.LocalCloneError):
    """An extension of an authenticated volume: its tag area is fixed."""

    problem = _('Volume %(volume)s is authenticated and can\'t be extended.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create a larger volume, and copy the data in an instance that '
               'has both volumes.')
    member_reads = (user_messages.KEEPS_SIZE,)


class OddSize(exceptions.LocalCloneError):
    """A new volume with another size than expected."""

    problem = _('Volume %(volume)s was not created: it would have %(found)s '
                'bytes instead of %(wanted)s. cryptsetup or the kernel lays '
                'out authenticated volumes differently than this version of '
                'the driver expects.')


class NotAtRest(exceptions.LocalCloneError):
    """A change of a header during a move."""

    problem = _('The encryption of volume %(volume)s can\'t be changed while '
                'the volume is being moved or migrated, or while another node '
                'uses it over iSCSI.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again afterwards.')


class WouldReadNoise(exceptions.Refused):
    """A restore that skips zeros, on a volume with noise in its gaps."""

    member_reads = (user_messages.FRESH_ENCRYPTED,)


#: cryptsetup's message about a device without a readable header. Its exit code
#: is that of all wrong parameters.
_NO_HEADER = 'is not a valid LUKS'
#: Its message about a LUKS1 header where it expects LUKS2.
_NOT_LUKS2 = 'Dump operation is not supported'
#: Its message about a header without a used key slot.
_NO_SLOT = 'No usable keyslot'


def error_of_cryptsetup(failed: exceptions.CommandFailed, path: str
                        ) -> exceptions.LocalCloneError:
    """Return the error for a failure of cryptsetup(8).

    Its exit codes: 1 wrong parameters, 2 no permission (bad passphrase), 3 out
    of memory, 4 wrong device, 5 device already exists or is busy.

    :param path: of the device
    :returns: the given failure if there is no more precise error
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
    """A re-encryption impossible for the volume, or as requested."""

    problem = _('Volume %(volume)s can\'t be re-encrypted: %(reason)s.')
    outcome = Outcome.UNCHANGED


class OtherKeys(exceptions.LocalCloneError):
    """Keys lost by a re-encryption: it keeps only the service's key."""

    problem = _('Volume %(volume)s has more keys than its secret (key slots '
                '%(slots)s), for example recovery keys. A re-encryption does '
                'not keep these keys.')
    outcome = Outcome.UNCHANGED
    remedy = _('Run the command with --drop-other-keys to remove them, and '
               'add recovery keys again afterwards.')


class NoSpaceToReencrypt(exceptions.LocalCloneError):
    """A thin pool too full for the re-encryption of a volume."""

    problem = _('Volume %(volume)s can\'t be re-encrypted on %(host)s: a '
                're-encryption writes the whole volume and needs up to '
                '%(needed)d MiB; %(free)d MiB are free in the thin pool.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend the thin pool.')


class Reencrypting(exceptions.LocalCloneError):
    """An operation refused during a re-encryption."""

    problem = _('Volume %(volume)s can\'t be %(what)s until its re-encryption '
                'has ended.')
    outcome = Outcome.UNCHANGED
    remedy = _('If the re-encryption is paused, run "cinder-localclone '
               'reencryption resume".')
    member_reads = (user_messages.REENCRYPTING,)


class StillReencrypting(exceptions.SourceBusy):
    """A re-encryption still running after the wait for its pause."""

    problem = _('The re-encryption of volume %(volume)s on %(host)s did not '
                'pause within %(seconds)d s. The re-encryption continues; '
                'nothing else was changed.')
    remedy = _('Try again later.')
    member_reads = (user_messages.REENCRYPTING,)


class Interrupted(exceptions.SourceBusy):
    """A re-encryption killed under a running guest."""

    problem = _('The re-encryption of volume %(volume)s on %(host)s was '
                'killed, and an instance still has the volume open.')
    outcome = Outcome.UNCHANGED
    remedy = _('Stop the instance, or detach the volume: the driver then '
               'recovers the volume and continues its re-encryption.')
    member_reads = (user_messages.REENCRYPTION_STOPPED,)
