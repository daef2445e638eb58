# SPDX-License-Identifier: Apache-2.0
"""Options and progress reports of cryptsetup(8). Pure.

The privileged daemon receives values and builds the options itself, so no
caller can add an option. No option contains a key.

``cryptsetup --progress-json`` prints a JSON object per line, with numbers as
strings (cryptsetup 2.5 and later). Its reports are for people; the header
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

#: Modes in which a re-encryption survives a power cut ("none" does not).
RESILIENCES = ('checksum', 'journal')
#: The least version of cryptsetup. Re-encryptions need its JSON progress.
#: Before 2.4.3 a forged header makes it decrypt the disk (CVE-2021-4122).
NEEDED = (2, 5, 0)


def version(text: str) -> tuple[str, bool]:
    """Return the version of cryptsetup, and whether it is new enough.

    :param text: the output of ``cryptsetup --version``
    :returns: the version in words, '' if unknown; whether it is new enough
    """
    found = re.search(r'cryptsetup (\d+)\.(\d+)\.(\d+)', text)
    return (found.group(0) if found else '', bool(
        found and tuple(map(int, found.groups())) >= NEEDED))


class Derivation(enum.StrEnum):
    """The cost of each guess of a key."""

    #: A random key can't be guessed, so its derivation can be fast: the volume
    #: opens in a tenth of the time.
    RANDOM_KEY = 'random key'
    #: By default cryptsetup would use up to 1 GiB for each volume, too much
    #: for a node that opens many volumes when it starts.
    PASSPHRASE = 'passphrase'


RANDOM_KEY, PASSPHRASE = Derivation
_DERIVATIONS = {
    RANDOM_KEY: ('--pbkdf', 'pbkdf2', '--pbkdf-force-iterations', '1000'),
    PASSPHRASE: ('--pbkdf', 'argon2id', '--pbkdf-memory', '262144'),
}


def derivation_words(derivation: str) -> tuple[str, ...]:
    """Return the options of a key derivation.

    :raises ValueError: if it is not a value of :class:`Derivation`
    """
    return _DERIVATIONS[Derivation(derivation)]


def key_derivation(encryption: volume_types.Encryption) -> Derivation:
    """Return the key derivation for an encryption."""
    return PASSPHRASE if encryption.key_may_be_weak else RANDOM_KEY


class NewHeader(typing.NamedTuple):
    """The parameters of a new LUKS2 header.

    :param luks_uuid: the UUID that ties the header to its volume
    :param offset: beginning of the data, bytes
    :param key_bits: length of the volume key
    :param sector_size: bytes
    :param derivation: a value of :class:`Derivation`
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

        :raises ValueError: if the driver never uses one of the values
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
            # The device is zeroed later, in parts, each with a time limit. The
            # header gets the same length as without authentication.
            words += [
                '--integrity-no-wipe', '--luks2-metadata-size', '16k',
                '--luks2-keyslots-size',
                str(volume_types.HEADER_BYTES - 32 * units.Ki),
                '--integrity', self.integrity]
        return words


def new_header(encryption: volume_types.Encryption, luks_uuid: str,
               offset_bytes: int = 0) -> NewHeader:
    """Return the parameters of the header of a new volume.

    :param luks_uuid: the UUID that ties the header to its volume
    :param offset_bytes: beginning of the data; 0: right behind the header
    """
    return NewHeader(
        luks_uuid, offset_bytes or volume_types.HEADER_BYTES,
        encryption.cipher, encryption.key_bits, encryption.sector_size,
        encryption.integrity, key_derivation(encryption))


class Reencryption(typing.NamedTuple):
    """The parameters of a re-encryption.

    :param cipher: the new cipher
    :param key_bits: length of the new volume key
    :param resilience: how a run survives a power cut
    :param derivation: of the new key slot, which gets the same key as the old
        slot
    """

    cipher: str
    key_bits: int
    resilience: str
    derivation: str

    def words(self) -> list[str]:
        """Return the options of ``reencrypt --init-only``.

        :raises ValueError: if the driver never uses one of the values
        """
        _check_cipher(self.cipher, self.key_bits)
        _check(self.resilience in RESILIENCES, self.resilience)
        return ['--cipher', self.cipher, '--key-size', str(self.key_bits),
                '--resilience', self.resilience,
                *derivation_words(self.derivation)]


def _check(allowed: object, value: object) -> None:
    """Check a value.

    :raises ValueError: if it is not allowed
    """
    if not allowed:
        raise ValueError('the driver never uses the value %r' % (value,))


def _check_cipher(name: str, key_bits: int, integrity: str = 'none') -> bool:
    """Return whether sectors are authenticated.

    :raises ValueError: if no type of the driver has this encryption
    """
    cipher = volume_types.CIPHERS.get(name)
    _check(cipher, name)
    assert cipher is not None  # for mypy
    _check(key_bits in cipher.key_bits, key_bits)
    _check(integrity == 'none' or integrity in cipher.integrity, integrity)
    return integrity != 'none'


#: MiB re-encrypted at a time, by default. Guests wait to write there, and each
#: part costs writes to the header: parts of 4, 16 and 32 MiB made 20, 75 and
#: 131 MiB/s, with 103, 142 and 198 ms as the 99th percentile of a guest's
#: synchronous writes (see doc/source/decide/figures.rst).
ZONE = 16
#: The range allowed for an operator.
ZONES = range(1, 65)


def zone(value: str) -> int:
    """Return the MiB in an LV's tag, or :data:`ZONE` for an invalid value.

    :param value: '' if there is no tag
    """
    mib = int(value) if value.isdecimal() else ZONE
    return mib if mib in ZONES else ZONE


def resume_options(resilience: str, zone: int) -> list[str]:
    """Return the options of ``reencrypt --resume-only``.

    :param zone: MiB re-encrypted at a time, at most. cryptsetup takes less if
        the header has too little space for the checksums or the copy
    """
    return ['--resilience', resilience, '--hotzone-size', '%dM' % zone]


def open_options(readonly: bool, readonly_header: bool, discards: bool
                 ) -> list[str]:
    """Return the options of ``open``.

    :param readonly: open the device read-only
    :param readonly_header: do not write the header, as in a live move, where
        either node may still become the only home. Otherwise cryptsetup
        repairs a damaged copy from the other copy (even for ``isLuks``),
        unless it may take no locks
    :param discards: let discards reach the disk
    """
    return ['--type', 'luks',
            '--perf-no_read_workqueue', '--perf-no_write_workqueue',
            *['--readonly'] * readonly,
            *['--allow-discards'] * discards,
            *['--disable-locks'] * readonly_header]


@dataclasses.dataclass(frozen=True)
class Progress:
    """A progress report.

    :param done: bytes, with earlier runs
    :param total: bytes
    :param rate: bytes per second of this run
    :param seconds_left: at this rate
    """

    done: int
    total: int
    rate: int
    seconds_left: float

    @property
    def percent(self) -> float:
        """The completed part in percent."""
        return 100 * self.done / self.total if self.total else 100.0


def last_progress(text: str) -> Progress | None:
    """Return the last complete report in an output; None if there is none.

    Other lines are ignored: cryptsetup also prints messages, and its last line
    may be half written.
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
