# SPDX-License-Identifier: Apache-2.0
"""The contracts of what encrypts volumes on a node.

As in :mod:`.interfaces.storage`: the real and the simulated classes subclass
them.
"""

from collections.abc import Iterable, Mapping, Sequence
import typing

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import objects
from cinder_localclone.core import volume_types

#: Seconds that a re-encryption gets to pause: those who wait for that have an
#: answer to give before localclone_peer_timeout.
STOPPING = 20


class Keys(typing.Protocol):
    """The key manager; see :mod:`cinder_localclone.service.key_manager`."""

    def create(self, volume_id: str, key_format: volume_types.KeyFormat =
               volume_types.KeyFormat.HEX) -> str:
        """Store a new secret; its reference."""

    def get(self, key: str, key_format: volume_types.KeyFormat,
            volume_id: str = '', or_shared: bool = False) -> bytes:
        """Return the bytes that open a volume."""

    def get_again(self, key: str, key_format: volume_types.KeyFormat,
                  volume_id: str = '') -> bytes:
        """Return the same over a new login."""

    def check_shared(self, key: str) -> None:
        """Check that a secret may be that of all volumes of a type."""

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret that no row names."""

    def find(self, volume_id: str) -> list[str]:
        """The secrets that are named after a volume."""

    def consume(self, key: str, kind: str, resource_id: str) -> None:
        """Keep others from deleting a secret."""

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """Undo that."""

    def owners_key(self, context: objects.Context, key: str) -> bytes:
        """What opens a volume that Nova encrypts."""


class Crypt(typing.Protocol):
    """LUKS headers, crypt devices, backups of headers and kept keys.

    Implemented by :class:`.cryptsetup.Cryptsetup`. A volume has its handle on
    this node wherever a method reads or writes its header. Each method may
    raise CommandFailed, CommandTimeout, and the errors of
    :mod:`.encryption_exceptions`.
    """

    # -- headers

    def header(self, volume_id: str, mend: bool = False) -> luks_header.Header:
        """Return what the header of a volume says.

        :param mend: repair a damaged copy by the other: only where no other
            node may have it open
        :raises HeaderDamaged: if it can't be read, or not be understood
        """

    def uuid(self, volume_id: str) -> str:
        """Return the LUKS UUID of a volume."""

    def set_uuid(self, volume_id: str, uuid: str) -> None:
        """Give a volume another LUKS UUID."""

    def damaged_copies(self, volume_id: str) -> list[str]:
        """Return the faults of the copies of a volume's header, in words."""

    def format(self, volume_id: str, wanted: cryptsetup_cli.NewHeader,
               key: bytes) -> None:
        """Make the header of a volume whose LV was created just now.

        :raises NotBlank: if it was not
        """

    def format_luks1(self, volume_id: str, cipher: str, key_bits: int,
                     key: bytes) -> None:
        """Make the header of a volume that Nova encrypts, in the same way.

        :raises NotBlank: if its LV was not created just now
        """

    def write_token(self, volume_id: str, number: str, token: str,
                    replace: bool = False) -> None:
        """Write a token into a header."""

    def remove_token(self, volume_id: str, number: str) -> None:
        """Remove a token from a header."""

    def add_key(self, volume_id: str, key: bytes, new_key: bytes, slot: str,
                derivation: cryptsetup_cli.Derivation) -> None:
        """Let another key open a volume.

        :param key: one that opens it
        :param slot: a free one
        :param derivation: how long each guess of the new key takes
        :raises WrongKey: if ``key`` does not open it
        """

    def kill_slot(self, volume_id: str, slot: str, key: bytes) -> None:
        """Drop a key slot.

        :param key: of another slot, which stays
        :raises LastKey: if no other slot of the driver's opens the volume
        """

    def test(self, volume_id: str, key: bytes, slot: str | None = None
             ) -> None:
        """Prove that a key opens a volume.

        :param slot: the slot that it has to open; None: any
        :raises WrongKey: if it does not
        """

    def erase(self, volume_id: str) -> None:
        """Empty all key slots of a volume: no key opens it any more."""

    # -- backups of headers

    def back_up(self, volume_id: str, what: str = '1') -> None:
        """Copy a volume's header to the directory of header backups.

        A failure is only logged: a volume without a backup works as well.

        :param what: part of its name, beside others of the same volume
        """

    def renew_backup(self, volume_id: str, header: luks_header.Header,
                     key: bytes) -> None:
        """Copy a volume's header; remove the older copies once it is proven.

        The older ones would be opened by keys that open the volume no more,
        or show what it was before it was re-encrypted as noise. But an enemy
        who can write to the disk may change the header at any moment, and
        its key slots without a trace: the new copy itself is checked.

        :param header: what the volume's header must say
        :param key: the key that opens it; b'' if older copies are of no use
            in any case
        :raises ForeignHeader: if it says something else
        :raises WrongKey: if the key does not open it
        :raises LocalCloneError: if no copy was made. The older ones stay, as
            after the other errors
        """

    def backup_names(self, volume_id: str) -> list[str]:
        """Return the backups of a volume's header, the oldest first."""

    def backed_up(self, volume_id: str, name: str) -> luks_header.Header:
        """Return what a backup of a volume's header says.

        :raises HeaderDamaged: if it can't be read, or not be understood
        """

    def test_backup(self, volume_id: str, name: str, key: bytes,
                    slot: str | None = None) -> None:
        """Prove that a key opens the header in a backup.

        :param slot: the slot that it has to open; None: any
        :raises WrongKey: if it does not
        """

    def save(self, volume_id: str) -> None:
        """Copy the beginning of a volume, header or not, into a file.

        :raises NoBackup: if it can't be written
        """

    def restore(self, volume_id: str, name: str, drop: Sequence[str]
                ) -> None:
        """Write a backup over a volume's header.

        :param drop: key slots of the backup that the header must not have.
            Its LUKS UUID is the volume's id, whatever the backup's is
        """

    def keeps_backups(self) -> bool:
        """Return whether this node keeps backups of headers at all."""

    def backup_space(self) -> tuple[int, int] | None:
        """Return device and inode of the directory of header backups.

        It is another one when a disk is mounted there, or not any more.

        :returns: None if there is no such directory
        """

    def backed_up_volumes(self) -> list[str]:
        """Return the ids of the volumes that have header backups here."""

    def drop_backups(self, volume_id: str) -> None:
        """Remove all header backups of a volume from this node."""

    # -- re-encryption

    def check_reencrypts(self, volume_id: str) -> None:
        """Check that this node's cryptsetup can re-encrypt a volume.

        :raises CannotReencrypt: if it can't
        """

    def begin_reencryption(self, volume_id: str, slot: str,
                           wanted: cryptsetup_cli.Reencryption, key: bytes
                           ) -> None:
        """Begin the re-encryption of an open volume, in its header only.

        :param slot: the slot that its key opens; the others go in the end
        """

    def end_reencryption(self, volume_id: str, key: bytes) -> None:
        """Write into a header that its re-encryption, complete, is over.

        :raises HeaderInUse: if others write to it
        :raises WrongKey: if the key would not open it then
        :raises NotEnded: if more than that is missing
        """

    def test_ended(self, volume_id: str, key: bytes) -> None:
        """Prove that a key would open a volume then.

        :raises WrongKey: if it would not
        :raises NotEnded: as :meth:`end_reencryption`
        """

    def end_reencryption_sealed(self, volume_id: str, recorded: str) -> None:
        """Do as :meth:`end_reencryption`, with the key that is kept.

        :raises NotSealed: as :meth:`open_sealed`
        """

    # -- the crypt device

    def open(self, volume_id: str, key: bytes, keep_header: bool = False,
             discards: bool = False, readonly: bool = False) -> None:
        """Make the crypt device of a volume.

        :param keep_header: write nothing to its header, not even to repair it
        :param discards: whether the disk may know what was deleted
        :raises WrongKey: if the key does not open it
        :raises HeaderDamaged: if its header can't be read
        """

    def opened(self, volume_id: str) -> dm_tables.Device | None:
        """Return the crypt device of a volume, as the kernel has it.

        :returns: None if the volume is not open
        """

    def drop_half(self, volume_id: str) -> None:
        """Remove leftovers of an authenticated volume that is not open."""

    def size(self, volume_id: str) -> int:
        """Return how long the crypt device of a volume is, in bytes."""

    def close(self, volume_id: str) -> bool:
        """Remove the crypt device of a volume.

        :returns: False if there was none
        :raises CommandFailed: if something has it open
        """

    def resize(self, volume_id: str, key: bytes) -> None:
        """Make the crypt device of a volume as long as its handle allows."""

    def zero(self, lv: str, volume_id: str, slow: bool = False) -> None:
        """Write zeros all over the crypt device of an uncommitted volume.

        :param slow: whether all is written twice, with a tag for each sector
        """

    # -- keys that this node keeps

    def seal(self, volume_id: str, recorded: str, key: bytes) -> None:
        """Keep the key of a volume on this node, sealed, if it keeps any.

        A failure is only logged: the key manager has the key.

        :param recorded: reference of its secret
        """

    def open_sealed(self, volume_id: str, recorded: str,
                    keep_header: bool = False, discards: bool = False,
                    readonly: bool = False) -> None:
        """Make the crypt device of a volume with the key that is kept.

        :param recorded: reference of its secret; the others as :meth:`open`
        :raises NotSealed: if there is no key that could be used
        :raises WrongKey: if it does not open the volume
        """

    def resize_sealed(self, volume_id: str, recorded: str) -> None:
        """Do as :meth:`resize`, with the key that is kept of the volume.

        :raises NotSealed: as :meth:`open_sealed`; WrongKey, too
        """

    def forget_sealed(self, volume_id: str) -> None:
        """Remove the key that is kept of a volume, now or formerly.

        :raises CommandFailed: if it can't be removed
        """

    def sealed_volumes(self) -> set[str]:
        """Return the ids of the volumes whose keys this node keeps or kept.

        :raises CommandFailed: if the directory can't be read
        """

    # -- notes on the volume group

    def remotes(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                | None = None
                ) -> dict[str, tuple[str, str]]:
        """Return the notes on headers of volumes that are attached remotely.

        :param lvs: as they were listed not long ago: LVM is not asked again
            if the group was then as when it was last asked
        :returns: their UUIDs, and references of the secrets, by volume id
        """

    def note_remote(self, volume_id: str, luks: str, key: str) -> None:
        """Note the header of a volume on the volume group: it has no LV here.

        :param luks: its UUID
        :param key: reference of its secret
        """

    def forget_remote(self, volume_id: str) -> None:
        """Remove that note."""

    def note_directories(self) -> list[str]:
        """Note on the volume group where this node keeps backups and keys.

        :returns: as :meth:`former_directories`
        """

    def former_directories(self) -> list[str]:
        """Return where this node has kept backups of headers, or keys, before.

        Nothing there follows what becomes of the volumes: keys that were
        removed since still open the backups. A directory that does not exist
        any more is left out.
        """

    # -- notes on an LV

    def note(self, lv: str, outdated: Iterable[str] = (), **facts: str
             ) -> None:
        """Tag an LV with facts of its volume's header.

        :param outdated: tags to take off
        :param facts: their values, by name
        """

    def mark(self, lv: str, tag: str) -> None:
        """Tag an LV."""

    def unmark(self, lv: str, tag: str) -> None:
        """Take a tag off an LV."""


class Runner(typing.Protocol):
    """Processes that re-encrypt volumes; see :class:`.cryptsetup.Runner`."""

    def obstacle(self) -> str:
        """Return why nothing can be re-encrypted on this node; '' if it can.
        """

    def start(self, volume_id: str) -> None:
        """Start the re-encryption of a volume; its header says how.

        Not while the service ends: its next start goes on.

        :raises CannotReencrypt: if the end of the service would kill it
        """

    def end(self) -> None:
        """Pause all processes that may be killed when the service has ended.
        """

    def stop(self, volume_id: str) -> bool:
        """Pause the re-encryption of a volume.

        :returns: whether it has paused within :data:`STOPPING` seconds
        """

    def is_running(self, volume_id: str) -> bool:
        """Return whether a volume is being re-encrypted, or about to be."""

    def progress(self, volume_id: str) -> cryptsetup_cli.Progress | None:
        """Return the last report of how far a re-encryption is."""
