# SPDX-License-Identifier: Apache-2.0
"""Options and progress reports of cryptsetup(8). Pure.

The privileged daemon takes values and makes the options itself, so no caller
can add an option. No option contains a key.

``cryptsetup --progress-json`` prints one JSON object a line, with numbers as
strings (cryptsetup 2.5 and later). The report is for people; the header
records the progress.
"""

import dataclasses
import enum
import json
import re
import typing

from oslo_utils import units

from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import volume_types

#: By these a re-encryption outlives a power cut. ("none" does not.)
RESILIENCES = ('checksum', 'journal')
#: Of cryptsetup: its progress as JSON, without which no re-encryption goes on.
#: Earlier than 2.4.3 a forged header has it decrypt the disk (CVE-2021-4122).
NEEDED = (2, 5, 0)


def version(text: str) -> tuple[str, bool]:
    """Return the version of cryptsetup, and whether it is new enough.

    :param text: what ``cryptsetup --version`` printed
    :returns: the version in words; '' if it is not known
    """
    found = re.search(r'cryptsetup (\d+)\.(\d+)\.(\d+)', text)
    return (found.group(0) if found else '', bool(
        found and tuple(map(int, found.groups())) >= NEEDED))


class Derivation(enum.StrEnum):
    """How long each guess of a key takes."""

    #: A random key can't be guessed, so nobody has to wait for it: opening
    #: takes a tenth of the time.
    RANDOM_KEY = 'random key'
    #: cryptsetup would take up to 1 GiB for one volume, and so would a node
    #: that opens many when it starts.
    PASSPHRASE = 'passphrase'


RANDOM_KEY, PASSPHRASE = Derivation
_DERIVATIONS = {
    RANDOM_KEY: ('--pbkdf', 'pbkdf2', '--pbkdf-force-iterations', '1000'),
    PASSPHRASE: ('--pbkdf', 'argon2id', '--pbkdf-memory', '262144'),
}


def derivation_words(derivation: str) -> tuple[str, ...]:
    """Return the options of a key derivation.

    :raises ValueError: if it is none of :class:`Derivation`
    """
    return _DERIVATIONS[Derivation(derivation)]


def key_derivation(encryption: volume_types.Encryption) -> Derivation:
    """How long whoever guesses a key has to work for each guess."""
    return PASSPHRASE if encryption.key_may_be_weak else RANDOM_KEY


class NewHeader(typing.NamedTuple):
    """What a LUKS2 header is made with.

    :param luks_uuid: by which a header knows its volume
    :param offset: bytes; where its data begin
    """

    luks_uuid: str
    offset: int
    cipher: str
    key_bits: int
    sector_size: int
    integrity: str
    derivation: str

    def words(self) -> list[str]:
        """Return the options of ``luksFormat``.

        :raises ValueError: if a value is none that the driver uses
        """
        authenticated = _check_cipher(
            self.cipher, self.key_bits, self.integrity)
        _check(names.is_id(self.luks_uuid), self.luks_uuid)
        _check(self.sector_size in volume_types.SECTOR_SIZES,
               self.sector_size)
        _check(isinstance(self.offset, int) and self.offset >= 0,
               self.offset)
        words = [
            '--type', 'luks2', '--uuid', self.luks_uuid,
            '--offset', str(self.offset // state.SECTOR),
            '--cipher', self.cipher, '--key-size', str(self.key_bits),
            '--sector-size', str(self.sector_size),
            '--key-slot', '0', *derivation_words(self.derivation)]
        if authenticated:
            # It is zeroed later, in parts, each with a time limit. A header
            # is as long as others are, whatever comes after it.
            words += [
                '--integrity-no-wipe', '--luks2-metadata-size', '16k',
                '--luks2-keyslots-size',
                str(volume_types.HEADER_BYTES - 32 * units.Ki),
                '--integrity', self.integrity]
        return words


def new_header(encryption: volume_types.Encryption, luks_uuid: str,
               offset_bytes: int = 0) -> NewHeader:
    """Return what the header of a new volume is made with.

    :param luks_uuid: by which a header knows its volume
    :param offset_bytes: where its data begin; 0: just behind the header
    """
    return NewHeader(
        luks_uuid, offset_bytes or volume_types.HEADER_BYTES,
        encryption.cipher, encryption.key_bits, encryption.sector_size,
        encryption.integrity, key_derivation(encryption))


class Reencryption(typing.NamedTuple):
    """What is to become of a volume that is encrypted anew.

    :param resilience: how a run outlives a power cut
    :param derivation: of its new slot, whose key is that of the old one
    """

    cipher: str
    key_bits: int
    resilience: str
    derivation: str

    def words(self) -> list[str]:
        """Return the options of ``reencrypt --init-only``.

        :raises ValueError: if a value is none that the driver uses
        """
        _check_cipher(self.cipher, self.key_bits)
        _check(self.resilience in RESILIENCES, self.resilience)
        return ['--cipher', self.cipher, '--key-size', str(self.key_bits),
                '--resilience', self.resilience,
                *derivation_words(self.derivation)]


def _check(allowed: object, value: object) -> None:
    """:raises ValueError: unless it is"""
    if not allowed:
        raise ValueError('%r is no value that the driver uses' % (value,))


def _check_cipher(name: str, key_bits: int, integrity: str = 'none') -> bool:
    """Return whether sectors are authenticated.

    :raises ValueError: if no type of the driver's is encrypted so
    """
    cipher = volume_types.CIPHERS.get(name)
    _check(cipher, name)
    assert cipher is not None  # for mypy
    _check(key_bits in cipher.key_bits, key_bits)
    _check(integrity == 'none' or integrity in cipher.integrity, integrity)
    return integrity != 'none'


#: MiB that are re-encrypted at a time unless an operator chooses otherwise.
#: Guests that write there wait, and each part costs writes to the header:
#: parts of 4, 16 and 32 MiB made 20, 75 and 131 MiB/s, with 103, 142 and
#: 198 ms as the 99th percentile of a guest's synchronous writes (see
#: doc/source/admin/costs.rst).
ZONE = 16
#: The range that an operator may choose from.
ZONES = range(1, 65)


def zone(value: str) -> int:
    """Return the MiB that an LV's tag names, or :data:`ZONE` for nonsense.

    :param value: '' if there is no such tag
    """
    mib = int(value) if value.isdecimal() else ZONE
    return mib if mib in ZONES else ZONE


def going_on(resilience: str, zone: int) -> list[str]:
    """Return the options of ``reencrypt --resume-only``.

    :param zone: MiB that are re-encrypted at a time, at most: less if the
        header has no room for their checksums, or for a copy of them
    """
    return ['--resilience', resilience, '--hotzone-size', '%dM' % zone]


def opening(readonly: bool, readonly_header: bool, discards: bool
            ) -> list[str]:
    """Options of ``open``.

    :param readonly: whether nothing is to be written through it
    :param readonly_header: whether the header must not be written, as in a
        live move that both nodes may yet have to themselves. Else cryptsetup
        mends one of its two copies by the other (it does so even for
        ``isLuks``), unless it may take no locks.
    :param discards: whether the disk may know what was deleted
    """
    return ['--type', 'luks',
            '--perf-no_read_workqueue', '--perf-no_write_workqueue',
            *['--readonly'] * readonly,
            *['--allow-discards'] * discards,
            *['--disable-locks'] * readonly_header]


@dataclasses.dataclass(frozen=True)
class Progress:
    """The last that was said.

    :param done: bytes, before this run, too
    :param total: bytes
    :param rate: bytes a second, of this run
    :param seconds_left: at this rate
    """

    done: int
    total: int
    rate: int
    seconds_left: float

    @property
    def percent(self) -> float:
        """How much is done."""
        return 100 * self.done / self.total if self.total else 100.0


def last_progress(text: str) -> Progress | None:
    """The last line of it that is complete; None if there is none.

    What else is said is left out: cryptsetup also prints words, and its last
    line may be half written.
    """
    for line in reversed(text.splitlines()):
        progress = _parse(line)
        if progress:
            return progress
    return None


def _parse(line: str) -> Progress | None:
    try:
        said = json.loads(line)
        return Progress(
            done=int(said['device_bytes']), total=int(said['device_size']),
            rate=int(said['speed']), seconds_left=int(said['eta_ms']) / 1000)
    except (KeyError, TypeError, ValueError):
        return None
