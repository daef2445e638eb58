# SPDX-License-Identifier: Apache-2.0
"""The contracts of encryption on a node: headers, crypt devices and keys.

The real classes subclass :class:`Crypt` and :class:`Runner`. A method of an
implementation has a docstring only for what is special there.
"""

from collections.abc import Iterable, Mapping, Sequence
import typing

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import objects
from cinder_localclone.core import volume_types

#: Seconds for a re-encryption to pause. The caller waits for the pause and has
#: to answer its peer within localclone_peer_timeout.
STOPPING = 20


class Keys(typing.Protocol):
    """The secrets of volumes in the key manager.

    Implemented by :class:`cinder_localclone.service.key_manager.Keys`. A
    reference is the URL or id by which the key manager knows a secret. Each
    method except :meth:`owners_key` raises KeyUnavailable if the key manager
    does not answer in time, and KeyRefused if it denies the request.
    """

    def create(self, volume_id: str, key_format: volume_types.KeyFormat =
               volume_types.KeyFormat.HEX) -> str:
        """Store a new random secret, named after a volume.

        :returns: the reference of the secret
        :raises KeyUnavailable: if there is no answer. The key manager may have
            stored the secret; then :meth:`find` lists it
        :raises KeyRefused: if the key manager does not store the secret, or
            its reference can't be recorded
        """

    def get(self, key: str, key_format: volume_types.KeyFormat,
            volume_id: str = '', or_shared: bool = False) -> bytes:
        """Return the bytes of the key of a volume.

        :param key: the reference of the secret
        :param key_format: how the secret holds the key
        :param volume_id: the volume after which the secret must be named; ''
            if a row names the secret, which may belong to a volume type
        :param or_shared: accept also a secret named after no volume, or a
            secret shared by the volume and its source
        :raises KeyRefused: if the secret does not exist, can't be read by this
            service, or has another name
        """

    def get_again(self, key: str, key_format: volume_types.KeyFormat,
                  volume_id: str = '') -> bytes:
        """Log in again, and return the bytes of the key of a volume.

        This proves that the key manager has a secret, before the driver
        removes another secret of the volume. An answer from the first login
        would not be an independent proof.

        :param key: as in :meth:`get`
        :param key_format: as in :meth:`get`
        :param volume_id: as in :meth:`get`
        :raises KeyRefused: as :meth:`get`
        """

    def check_shared(self, key: str) -> None:
        """Check that all volumes of a type may share a secret.

        :raises KeyRefused: if the secret is named after a volume, and is
            deleted with this volume
        """

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret; a missing secret is no error.

        A secret named after no volume is left alone: volumes of a type share
        it. The caller has checked the rows: none names the secret.

        :param key: the reference of the secret
        :param volume_id: the volume after which the secret must be named; ''
            if a row named the secret
        :raises KeyRefused: if the secret is in use, or is named after another
            volume
        """

    def owner_of(self, key: str) -> str:
        """Return the volume after which a secret is named.

        :returns: '' if it is named after none, or is missing
        """

    def consumers(self, key: str) -> list[tuple[str, str]]:
        """Return the consumers of a secret, as pairs of kind and ID."""

    def find(self, volume_id: str) -> list[str]:
        """Return the references of the secrets named after a volume.

        Secrets without a row are included.
        """

    def consume(self, key: str, kind: str, resource_id: str) -> None:
        """Register a consumer of a secret; other users then can't delete it.

        Nothing is done if the key manager does not record consumers.

        :param kind: 'volumes' or 'snapshots'
        :param resource_id: the id of the volume or snapshot
        """

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """Remove a consumer of a secret; a missing secret is no error.

        :param kind: as in :meth:`consume`
        :param resource_id: as in :meth:`consume`
        """

    def owners_key(self, context: objects.Context, key: str | None) -> bytes:
        """Return the key of a volume that Nova encrypts, as Nova reads it.

        :param context: the request of the owner, with its token
        :param key: the id of the secret
        :raises KeyUnavailable: if the key manager does not answer
        :raises KeyUnreadable: if the owner may not read the secret
        """


class Crypt(typing.Protocol):
    """LUKS headers, crypt devices, header backups and sealed keys.

    Implemented by :class:`.cryptsetup.Cryptsetup`. The volume must have its
    handle on this node before a method reads or writes its header. Each method
    may raise CommandFailed, CommandTimeout, and the errors of
    :mod:`.encryption_exceptions`.
    """

    # -- headers

    def header(self, volume_id: str,
               repair: bool = False) -> luks_header.Header:
        """Read the header of a volume.

        :param repair: repair a damaged copy of the header from the other copy.
            Allowed only if no other node can have the volume open
        :raises HeaderDamaged: if the header can't be read or parsed
        """

    def uuid(self, volume_id: str) -> str:
        """Return the LUKS UUID of a volume."""

    def set_uuid(self, volume_id: str, uuid: str) -> None:
        """Write another LUKS UUID into the header of a volume."""

    def damaged_copies(self, volume_id: str) -> list[str]:
        """Return a text for each damaged copy of a volume's header."""

    def format(self, volume_id: str, wanted: cryptsetup_cli.NewHeader,
               key: bytes) -> None:
        """Write a LUKS2 header to a volume whose LV was just created.

        :param wanted: the parameters of the header
        :param key: the key of the first key slot
        :raises NotBlank: if the LV already has data
        """

    def format_luks1(self, volume_id: str, cipher: str, key_bits: int,
                     key: bytes) -> None:
        """Write a LUKS1 header to a new volume, to be encrypted by Nova.

        :param cipher: as cryptsetup names it, such as ``aes-xts-plain64``
        :param key_bits: the length of the volume key
        :param key: the key of the first key slot
        :raises NotBlank: if the LV already has data
        """

    def write_token(self, volume_id: str, number: str, token: str,
                    replace: bool = False) -> None:
        """Write a token into a header.

        :param number: the number of the token
        :param token: its JSON text
        :param replace: overwrite a token with the same number
        """

    def remove_token(self, volume_id: str, number: str) -> None:
        """Remove a token from a header.

        :param number: the number of the token
        """

    def add_key(self, volume_id: str, key: bytes, new_key: bytes, slot: str,
                derivation: cryptsetup_cli.Derivation) -> None:
        """Add a key to a volume.

        :param key: a key of the volume
        :param new_key: the key to add
        :param slot: an empty key slot
        :param derivation: the cost of each guess of the new key
        :raises WrongKey: if ``key`` does not open the volume
        """

    def kill_slot(self, volume_id: str, slot: str, key: bytes) -> None:
        """Empty a key slot.

        :param slot: the number of the key slot
        :param key: the key of another slot, which stays
        :raises LastKey: if no other slot with a key of the driver opens the
            volume
        """

    def test(self, volume_id: str, key: bytes, slot: str | None = None
             ) -> None:
        """Check that a key opens a volume.

        :param slot: the key slot that the key must open; None: any slot
        :raises WrongKey: if the key does not open it
        """

    def erase(self, volume_id: str) -> None:
        """Empty all key slots of a volume; no key opens the volume any more.
        """

    # -- backups of headers

    def back_up(self, volume_id: str, what: str = '1') -> None:
        """Copy a volume's header to the directory of header backups.

        A failure is only logged: a volume works without a backup. Nothing is
        done if this node keeps no backups.

        :param what: part of the file name, to tell several backups apart
        """

    def renew_backup(self, volume_id: str, header: luks_header.Header,
                     key: bytes) -> None:
        """Back up a volume's header again, and remove the older backups.

        Older backups can be opened by removed keys, or describe the data
        before a re-encryption. An attacker who can write to the disk may
        change the header at any moment, and its key slots without a trace. So
        the new copy is compared and tested before the older backups are
        removed; after an error they are kept. Nothing is done if this node
        keeps no backups.

        :param header: the expected content of the header
        :param key: the key that opens the header; b'' to skip the test, if the
            older copies are useless in any case
        :raises ForeignHeader: if the header has other content
        :raises WrongKey: if the key does not open the copy
        :raises NoBackup: if the copy can't be written
        """

    def backup_names(self, volume_id: str) -> list[str]:
        """Return the names of a volume's header backups, oldest first."""

    def backed_up(self, volume_id: str, name: str) -> luks_header.Header:
        """Read the header in a backup.

        :param name: as in :meth:`backup_names`
        :raises HeaderDamaged: if the header can't be read or parsed
        """

    def test_backup(self, volume_id: str, name: str, key: bytes,
                    slot: str | None = None) -> None:
        """Check that a key opens the header in a backup.

        :param name: as in :meth:`backup_names`
        :param slot: the key slot that the key must open; None: any slot
        :raises WrongKey: if the key does not open it
        """

    def save(self, volume_id: str) -> None:
        """Copy the beginning of a volume, header or not, into a file.

        The file is as long as a header and lies beside the header backups.

        :raises NoBackup: if the file can't be written
        """

    def restore(self, volume_id: str, name: str, drop: Sequence[str]
                ) -> None:
        """Write a backup over a volume's header.

        The LUKS UUID of the restored header is the volume's id, not the UUID
        in the backup.

        :param name: as in :meth:`backup_names`
        :param drop: numbers of key slots to empty before the header is written
        """

    def keeps_backups(self) -> bool:
        """Return whether this node keeps header backups."""

    def backup_space(self) -> tuple[int, int] | None:
        """Return device and inode of the directory of header backups.

        They change when a disk is mounted on the directory, or unmounted.

        :returns: None if the directory does not exist
        """

    def backed_up_volumes(self) -> list[str]:
        """Return the ids of the volumes with header backups on this node."""

    def drop_backups(self, volume_id: str) -> None:
        """Remove all header backups of a volume from this node."""

    # -- re-encryption

    def check_reencrypts(self, volume_id: str) -> None:
        """Check that this node's cryptsetup can re-encrypt a volume.

        :raises CannotReencrypt: if it is too old
        """

    def begin_reencryption(self, volume_id: str, slot: str,
                           wanted: cryptsetup_cli.Reencryption, key: bytes
                           ) -> None:
        """Begin the re-encryption of an open volume, in its header only.

        :param slot: the key slot of ``key``; the end of the re-encryption
            removes all other slots
        :param wanted: the new cipher and volume key
        :param key: a key of the volume
        """

    def end_reencryption(self, volume_id: str, key: bytes) -> None:
        """Write the end of a completed re-encryption into the header.

        :param key: the key that must open the volume afterwards
        :raises HeaderInUse: if another process writes to the header
        :raises WrongKey: if the key would not open the volume afterwards
        :raises NotEnded: if more than this last step is missing
        """

    def test_ended(self, volume_id: str, key: bytes) -> None:
        """Check that a key will open a volume after :meth:`end_reencryption`.

        :raises WrongKey: if it will not
        :raises NotEnded: as :meth:`end_reencryption`
        """

    def end_reencryption_sealed(self, volume_id: str, recorded: str) -> None:
        """Do the same as :meth:`end_reencryption`, with the sealed key.

        :param recorded: the reference of the volume's secret
        :raises NotSealed: as :meth:`open_sealed`
        """

    # -- the crypt device

    def open(self, volume_id: str, key: bytes, keep_header: bool = False,
             discards: bool = False, readonly: bool = False) -> None:
        """Create the crypt device of a volume.

        :param keep_header: write nothing to the header, not even a repair
        :param discards: let discards of the guest reach the disk
        :param readonly: create a read-only device
        :raises WrongKey: if the key does not open the volume
        :raises HeaderDamaged: if the header can't be read
        """

    def opened(self, volume_id: str) -> dm_tables.Device | None:
        """Return the crypt device of a volume, as the kernel lists it.

        :returns: None if the volume is not open
        """

    def remove_stray_integrity(self, volume_id: str) -> None:
        """Remove the integrity device of a volume that is not open.

        An interrupted :meth:`open` of an authenticated volume leaves it. A
        device in use is left alone.
        """

    def size(self, volume_id: str) -> int:
        """Return the size of a volume's crypt device in bytes."""

    def close(self, volume_id: str) -> bool:
        """Remove the crypt device of a volume.

        :returns: whether it existed
        :raises CommandFailed: if the device is in use
        """

    def resize(self, volume_id: str, key: bytes) -> None:
        """Grow the crypt device of a volume to the length of its handle.

        :param key: a key of the volume
        """

    def zero(self, lv: str, volume_id: str, slow: bool = False) -> None:
        """Write zeros to the whole crypt device of an uncommitted volume.

        :param lv: the name of the volume's LV
        :param slow: write in smaller steps: each sector of an authenticated
            volume is written twice, with its tag
        """

    # -- keys that this node keeps

    def seal(self, volume_id: str, recorded: str, key: bytes) -> None:
        """Store the key of a volume on this node, sealed.

        A failure is only logged: the key manager has the key. If this node
        keeps no keys (localclone_key_cache), a stored key is removed.

        :param recorded: the reference of the volume's secret
        """

    def open_sealed(self, volume_id: str, recorded: str,
                    keep_header: bool = False, discards: bool = False,
                    readonly: bool = False) -> None:
        """Create the crypt device of a volume with the sealed key.

        :param recorded: the reference of the volume's secret
        :param keep_header: as in :meth:`open`
        :param discards: as in :meth:`open`
        :param readonly: as in :meth:`open`
        :raises NotSealed: if no usable key is stored on this node
        :raises WrongKey: if the key does not open the volume
        """

    def resize_sealed(self, volume_id: str, recorded: str) -> None:
        """Do the same as :meth:`resize`, with the sealed key.

        :param recorded: the reference of the volume's secret
        :raises NotSealed: as :meth:`open_sealed`
        :raises WrongKey: if the key does not open the volume
        """

    def forget_sealed(self, volume_id: str) -> None:
        """Remove the sealed key of a volume from this node.

        A key in the former directory is removed as well.

        :raises CommandFailed: if the file can't be removed
        """

    def sealed_volumes(self) -> set[str]:
        """Return the ids of the volumes with a sealed key on this node.

        If this node keeps no keys now, the former directory is read.

        :raises CommandFailed: if the directory can't be read
        """

    # -- notes on the volume group

    def remotes(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                | None = None
                ) -> dict[str, tuple[str, str]]:
        """Return the notes about headers of remotely attached volumes.

        :param lvs: a recent list of the LVs. LVM is asked for the tags only if
            the volume group has changed since the last call
        :returns: (LUKS UUID, reference of the secret) by volume id
        """

    def note_remote(self, volume_id: str, luks: str, key: str) -> None:
        """Tag the volume group with a remotely attached volume's header.

        The volume has no LV on this node to hold the tag.

        :param luks: the LUKS UUID
        :param key: the reference of the secret
        """

    def forget_remote(self, volume_id: str) -> None:
        """Remove the tag of :meth:`note_remote`."""

    def note_directories(self) -> list[str]:
        """Tag the volume group with the directories of backups and keys.

        :returns: as :meth:`former_directories`
        """

    def former_directories(self) -> list[str]:
        """Return this node's earlier directories of header backups or keys.

        Files there are no longer updated: removed keys still open the backups.
        Directories that do not exist any more are left out.
        """

    # -- notes on an LV

    def note(self, lv: str, outdated: Iterable[str] = (), **facts: str
             ) -> None:
        """Tag an LV with facts about its volume's header.

        :param outdated: the tags to remove
        :param facts: value of each fact by its name
        """


class Runner(typing.Protocol):
    """Processes that re-encrypt volumes, at most one for each volume.

    Implemented by :class:`.cryptsetup.Runner`.
    """

    def obstacle(self) -> str:
        """Return the reason why this node can't re-encrypt volumes, or ''."""

    def start(self, volume_id: str) -> None:
        """Start or continue a re-encryption; the header holds its parameters.

        Nothing is done after :meth:`end`: the next start of the service
        continues the re-encryption.

        :raises CannotReencrypt: if the process would be killed with the
            service
        """

    def end(self) -> None:
        """Pause all processes that may be killed when the service has ended.
        """

    def stop(self, volume_id: str) -> bool:
        """Pause the re-encryption of a volume.

        :returns: whether it paused within :data:`STOPPING` seconds
        """

    def is_running(self, volume_id: str) -> bool:
        """Return whether a re-encryption is running or starting."""

    def progress(self, volume_id: str) -> cryptsetup_cli.Progress | None:
        """Return the last progress report of a re-encryption; None if none."""
