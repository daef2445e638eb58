# SPDX-License-Identifier: Apache-2.0
"""Typed interfaces of what encrypts volumes; see :mod:`.storage`."""

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
    """Headers, and what decrypts; see :mod:`.cryptsetup`."""

    def header(self, volume_id: str, mend: bool = False) -> luks_header.Header:
        """What the header of a volume says."""

    def uuid(self, volume_id: str) -> str:
        """The LUKS UUID of a volume."""

    def set_uuid(self, volume_id: str, uuid: str) -> None:
        """Give a volume another LUKS UUID."""

    def damaged_copies(self, volume_id: str) -> list[str]:
        """What is wrong with the copies of a volume's header, in words."""

    def format(self, volume_id: str, wanted: cryptsetup_cli.NewHeader,
               key: bytes) -> None:
        """Make the header of a volume whose LV was created just now."""

    def format_luks1(self, volume_id: str, cipher: str, key_bits: int,
                     key: bytes) -> None:
        """Make the header of a volume that Nova encrypts, in the same way."""

    def write_token(self, volume_id: str, number: str, token: str,
                    replace: bool = False) -> None:
        """Write a token into a header."""

    def remove_token(self, volume_id: str, number: str) -> None:
        """Remove a token from a header."""

    def add_key(self, volume_id: str, key: bytes, new_key: bytes, slot: str,
                derivation: cryptsetup_cli.Derivation) -> None:
        """Have another key open a volume."""

    def kill_slot(self, volume_id: str, slot: str, key: bytes) -> None:
        """Drop a key slot, which is not the last."""

    def test(self, volume_id: str, key: bytes, slot: str | None = None
             ) -> None:
        """Prove that a key opens a volume."""

    def erase(self, volume_id: str) -> None:
        """No key opens a volume any more."""

    def back_up(self, volume_id: str, what: str = '1') -> None:
        """Copy a volume's header to where backups of headers are."""

    def renew_backup(self, volume_id: str, header: luks_header.Header,
                     key: bytes) -> None:
        """The same; older copies go once this one is seen to be right."""

    def backup_names(self, volume_id: str) -> list[str]:
        """The backups of a volume's header, the oldest first."""

    def backed_up(self, volume_id: str, name: str) -> luks_header.Header:
        """What a backup of a volume's header says."""

    def test_backup(self, volume_id: str, name: str, key: bytes,
                    slot: str | None = None) -> None:
        """Prove that a key opens what a backup was made of."""

    def save(self, volume_id: str) -> None:
        """Copy what a volume has instead of its header into a file."""

    def restore(self, volume_id: str, name: str, drop: Sequence[str]
                ) -> None:
        """Write a backup over a volume's header, without some key slots."""

    def keeps_backups(self) -> bool:
        """Whether this node keeps backups of headers at all."""

    def place_of_backups(self) -> tuple[int, int] | None:
        """Device and inode of the directory that they are in."""

    def backed_up_volumes(self) -> list[str]:
        """The ids of the volumes of whose headers this node has backups."""

    def drop_backups(self, volume_id: str) -> None:
        """Remove all of them."""

    def check_reencrypts(self, volume_id: str) -> None:
        """Check that this node's cryptsetup can re-encrypt a volume."""

    def begin_reencryption(self, volume_id: str, slot: str,
                           wanted: cryptsetup_cli.Reencryption, key: bytes
                           ) -> None:
        """Write into a header that its volume is to be encrypted anew."""

    def end_reencryption(self, volume_id: str, key: bytes) -> None:
        """Write into a header that its re-encryption, complete, is over."""

    def test_ended(self, volume_id: str, key: bytes) -> None:
        """Prove that a key would open a volume then."""

    def end_reencryption_sealed(self, volume_id: str, recorded: str) -> None:
        """The same, with the key that is kept of the volume."""

    def open(self, volume_id: str, key: bytes, keep_header: bool = False,
             discards: bool = False, readonly: bool = False) -> None:
        """Have a volume decrypted."""

    def opened(self, volume_id: str) -> dm_tables.Device | None:
        """Return the device that decrypts a volume, as the kernel has it."""

    def drop_half(self, volume_id: str) -> None:
        """Remove what is left of an authenticated volume, not open."""

    def size(self, volume_id: str) -> int:
        """The bytes that a volume has which is decrypted."""

    def seal(self, volume_id: str, recorded: str, key: bytes) -> None:
        """Keep the key of a volume on this node, sealed."""

    def open_sealed(self, volume_id: str, recorded: str,
                    keep_header: bool = False, discards: bool = False,
                    readonly: bool = False) -> None:
        """Have a volume decrypted with the key that is kept of it."""

    def forget_sealed(self, volume_id: str) -> None:
        """Keep it no more."""

    def sealed_volumes(self) -> set[str]:
        """The ids of the volumes whose keys this node keeps."""

    def close(self, volume_id: str) -> bool:
        """Have it decrypted no more."""

    def resize(self, volume_id: str, key: bytes) -> None:
        """What decrypts a volume is as long as its handle lets it be."""

    def resize_sealed(self, volume_id: str, recorded: str) -> None:
        """The same, with the key that is kept of the volume."""

    def zero(self, lv: str, volume_id: str, slow: bool = False) -> None:
        """Write zeros all over a volume that nobody was given yet."""

    def note(self, lv: str, outdated: Iterable[str] = (), **facts: str
             ) -> None:
        """Tags that say what is true of a volume's header."""

    def passed(self, lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None
               ) -> dict[str, tuple[str, str]]:
        """What is noted of the headers of volumes passed through here."""

    def note_passed(self, volume_id: str, luks: str, key: str) -> None:
        """Note it."""

    def forget_passed(self, volume_id: str) -> None:
        """Note it no more."""

    def note_directories(self) -> list[str]:
        """Note where this node keeps what opens volumes."""

    def former_directories(self) -> list[str]:
        """Return where this node has kept that before."""

    def mark(self, lv: str, tag: str) -> None:
        """Tag an LV."""

    def unmark(self, lv: str, tag: str) -> None:
        """Take a tag off an LV."""


class Runner(typing.Protocol):
    """What re-encrypts volumes; see :mod:`.cryptsetup`."""

    def obstacle(self) -> str:
        """Say why nothing can be re-encrypted on this node; '' if it can."""

    def start(self, volume_id: str) -> None:
        """Have a volume re-encrypted; its header says how."""

    def end(self) -> None:
        """Have all pause that may be killed when the service has ended."""

    def stop(self, volume_id: str) -> bool:
        """Have that pause; whether it has, within a limited time."""

    def is_running(self, volume_id: str) -> bool:
        """Whether a volume is being re-encrypted, or is about to be."""

    def progress(self, volume_id: str) -> cryptsetup_cli.Progress | None:
        """What was said last of how far it is."""
