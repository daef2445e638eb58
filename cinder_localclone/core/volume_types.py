# SPDX-License-Identifier: Apache-2.0
"""The extra specs of a volume type about encryption. Pure.

========================== ======================= =====================
spec                       values                  default
========================== ======================= =====================
localclone:encryption      luks2                   not encrypted
localclone:cipher          see :data:`CIPHERS`     aes-xts-plain64
localclone:key_size        bits, by cipher         the cipher's largest
localclone:sector_size     512, 1024, 2048, 4096   512
localclone:integrity       by cipher               none
localclone:moves           live, cold              live
localclone:discards        true, false             false
localclone:zeroed          true, false             false
localclone:key             volume, type:REFERENCE  volume
localclone:key_format      hex, raw, passphrase    hex
========================== ======================= =====================

Any other extra spec with the prefix is an error: a misspelt word would
otherwise give its owner a volume without encryption. Only ``localclone:pace``
has nothing to do with encryption; see :mod:`.pace`.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum
import re

from oslo_utils import units

from cinder_localclone.core import copies
from cinder_localclone.core import pins

PREFIX = 'localclone:'
LUKS2 = 'luks2'
#: Bytes before the data: both headers, and the area of their key slots.
HEADER_BYTES = 16 * units.Mi
SECTOR_SIZES = (512, 1024, 2048, 4096)
#: The form of a reference. A row has 255 characters, of which the pins take up
#: to 160. An LVM tag has the reference, too.
_REFERENCE = re.compile(r'[A-Za-z0-9][A-Za-z0-9_+.\-/=!:#&]{0,95}')
_BOOLEANS = {'true': True, 'yes': True, '1': True, '<is> true': True,
             'false': False, 'no': False, '0': False, '<is> false': False}
_NONE = 'none'
MOVES = ('live', 'cold')
#: The extra specs with an effect only beside ``encryption``.
_OF_ENCRYPTION = frozenset((
    'cipher', 'key_size', 'sector_size', 'integrity', 'moves', 'discards',
    'zeroed', 'key', 'key_format'))
#: All extra specs, without prefix.
NAMES = _OF_ENCRYPTION | {'encryption', 'pace'}
#: Suffix of the word for moves if a volume shares a secret.
_SHARES = '+s'
_VERSION = 'lc2'
#: Colons before the reference in a row's text. The reference may have more.
_FIELDS = 6
_OWN = re.compile(r'lc\d+:')
#: The SQL pattern for rows of this driver.
LIKE = 'lc%:%'
_HMACS = ('hmac-sha256', 'hmac-sha512')


class InvalidType(ValueError):
    """Extra specs impossible for a volume; the text has the reason."""


class InvalidPace(InvalidType):
    """An unknown pace in the extra specs."""


class KeyFormat(str, enum.Enum):
    """The way from a secret to a passphrase."""

    #: The bytes as hexadecimal digits, as in Nova and os-brick.
    HEX = 'hex'
    #: The bytes unchanged.
    RAW = 'raw'
    #: A text chosen by a person.
    PASSPHRASE = 'passphrase'


@dataclasses.dataclass(frozen=True)
class Cipher:
    """The choices for a cipher.

    :param key_bits: sizes of its key, the default last
    :param integrity: its authentication algorithms, the default first
    """

    key_bits: tuple[int, ...]
    integrity: tuple[str, ...] = (_NONE,)


#: All supported ciphers. Modes that reveal equal data (ecb), that allow
#: changes of single bits (cbc), or that repeat beyond 2 TiB (plain) are left
#: out.
CIPHERS = {
    'aes-xts-plain64': Cipher((256, 512), (_NONE, *_HMACS)),
    'serpent-xts-plain64': Cipher((256, 512), (_NONE, *_HMACS)),
    'twofish-xts-plain64': Cipher((256, 512), (_NONE, *_HMACS)),
    'camellia-xts-plain64': Cipher((256, 512), (_NONE, *_HMACS)),
    # For processors without instructions for AES.
    'xchacha12,aes-adiantum-plain64': Cipher((256,)),
    'xchacha20,aes-adiantum-plain64': Cipher((256,)),
    # These require authentication.
    'aes-gcm-random': Cipher((128, 256), ('aead',)),
    'aegis128-random': Cipher((128,), ('aead',)),
    'chacha20-random': Cipher((256,), ('poly1305',)),
}
_DEFAULT_CIPHER = 'aes-xts-plain64'


@dataclasses.dataclass(frozen=True)
class Encryption:
    """The encryption of a type's volumes.

    :param integrity: authentication algorithm of its sectors; 'none' without
    :param discards: whether the disk learns the ranges discarded by the guest
    :param zeroed: whether unwritten ranges read as zeros, because a new volume
        is written in full; otherwise they read as noise. Cinder skips zeros
        when it restores a backup to a new volume
    :param shared_key: reference of the secret shared by all volumes of the
        type; '' if each volume has its own
    """

    cipher: str = _DEFAULT_CIPHER
    key_bits: int = 512
    sector_size: int = 512
    integrity: str = _NONE
    discards: bool = False
    zeroed: bool = False
    shared_key: str = ''
    key_format: KeyFormat = KeyFormat.HEX

    @property
    def authenticated(self) -> bool:
        """Whether a read of a manipulated sector fails.

        The tags of its sectors are on the disk beside them, and two nodes
        can't have them open at a time. Therefore an authenticated volume moves
        cold only, and keeps its size and its key.
        """
        return self.integrity != _NONE

    @property
    def key_may_be_weak(self) -> bool:
        """Whether a person may have chosen the passphrase.

        Then each guess has to take time. A random key can't be guessed.
        """
        return bool(self.shared_key) and (
            self.key_format is KeyFormat.PASSPHRASE)


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The encryption recorded in the row of a volume or a snapshot.

    It stays true when the type is changed, and is readable while the node with
    the header is down.

    :param header_bytes: bytes of its LV beyond the volume's size
    :param key: reference of its secret. The secret is in use as long as a row
        names it
    :param moves_live: whether two nodes may have it open at a time
    :param pin: the pin of its header; None before it is formatted
    :param becoming: the pin of its header after a re-encryption, from before
        the begin until the end is recorded
    :param shares_key: whether the secret belongs to the volume's source, until
        a re-encryption has given the volume its own
    """

    header_bytes: int
    key: str
    moves_live: bool = True
    pin: pins.Pin | None = None
    becoming: pins.Pin | None = None
    shares_key: bool = False

    @property
    def authenticated(self) -> bool:
        """The same as :attr:`Encryption.authenticated`."""
        return not self.moves_live

    def __str__(self) -> str:
        return ':'.join((
            _VERSION, LUKS2, str(self.header_bytes),
            MOVES[not self.moves_live] + _SHARES * self.shares_key,
            str(self.pin or ''), self._becoming(), self.key))

    def _becoming(self) -> str:
        """Return the second pin without the parts common to both."""
        found = self.becoming
        return '%s/%d/%s' % (
            found.cipher, found.key_bits, found.digest) if found else ''

    @classmethod
    def parse(cls, text: str | None) -> 'Recorded | None':
        """Return the encryption in a row's text; None if not encrypted.

        A text of another driver counts as none: Cinder's own migration copies
        it from the row of one backend to the row of another.

        :raises ValueError: if the text is not understood. Then no operation on
            the volume is allowed
        """
        if not is_own(text):
            return None
        try:
            (version, how, header_bytes, moves, pin, becoming, key
             ) = str(text).split(':', _FIELDS)
            shares_key = moves.endswith(_SHARES)
            moves = moves.removesuffix(_SHARES)
            if (version, how) != (_VERSION, LUKS2) or moves not in MOVES:
                raise ValueError
            pinned = pins.parse(pin)
            return cls(int(header_bytes), key, moves == 'live', pinned,
                       _announced(pinned, becoming), shares_key)
        except ValueError:
            raise ValueError('the encryption in the volume\'s row is unknown '
                             'to the driver ("%s")' % text) from None


def _announced(pin: pins.Pin | None, text: str) -> pins.Pin | None:
    if not text:
        return None
    if pin is None:
        raise ValueError
    cipher, key_bits, digest = text.split('/')
    return dataclasses.replace(
        pin, cipher=cipher, key_bits=int(key_bits), digest=digest)


def is_own(text: str | None) -> bool:
    """Return whether a row's text is this driver's, of whatever version."""
    return bool(_OWN.match(text or ''))


def key_in(text: str) -> str:
    """Return the reference in a row's text, also of another version."""
    return text.split(':', _FIELDS)[-1]


def in_words(encryption: Encryption | Recorded | None) -> str:
    """Return the property that a new volume must share with its source.

    The data is taken over unchanged, header and all.
    """
    if encryption is None:
        return 'not encrypted by this driver'
    return ('encrypted and authenticated' if encryption.authenticated
            else 'encrypted, not authenticated')


def parse(extra_specs: Mapping[str, str], new: bool = False
          ) -> Encryption | None:
    """Return the encryption of a type's volumes by this driver; None without.

    :param new: whether a new volume of this type is created. Then all extra
        specs are checked; for an existing volume only the encryption counts
    :raises InvalidType: if the extra specs are not valid
    """
    specs = {name.removeprefix(PREFIX): str(value).strip()
             for name, value in extra_specs.items()
             if name.startswith(PREFIX)}
    wanted_pace = specs.pop('pace', None)
    if new and wanted_pace is not None:
        _check_pace(wanted_pace)
    how = specs.pop('encryption', None)
    unknown = sorted(set(specs) - _OF_ENCRYPTION)
    if unknown:
        raise InvalidType('there is no extra spec %s' % ', '.join(
            PREFIX + name for name in unknown))
    if how is None:
        if specs:
            raise InvalidType(
                '%s has no effect without %sencryption=luks2' % (', '.join(
                    PREFIX + name for name in sorted(specs)), PREFIX))
        return None
    if how != LUKS2:
        raise _not_one_of('encryption', how, [LUKS2])
    return _parse(specs)


def _check_pace(value: str) -> None:
    values = [each.value for each in copies.Pace]
    if value not in values:
        raise InvalidPace(str(_not_one_of('pace', value, values)))


def _parse(specs: Mapping[str, str]) -> Encryption:
    name = specs.get('cipher', _DEFAULT_CIPHER)
    cipher = CIPHERS.get(name)
    if cipher is None:
        raise _not_one_of('cipher', name, CIPHERS)
    integrity = _one_of(
        specs, 'integrity', cipher.integrity[0], cipher.integrity)
    key_bits = _one_of(specs, 'key_size', str(cipher.key_bits[-1]),
                       map(str, cipher.key_bits))
    encryption = Encryption(
        cipher=name, key_bits=int(key_bits), integrity=integrity,
        sector_size=int(_one_of(specs, 'sector_size', '512',
                                map(str, SECTOR_SIZES))),
        discards=_boolean(specs, 'discards'),
        zeroed=_boolean(specs, 'zeroed') or integrity != _NONE,
        shared_key=_shared_key(specs.get('key', 'volume')),
        key_format=KeyFormat(_one_of(
            specs, 'key_format', KeyFormat.HEX.value,
            [each.value for each in KeyFormat])))
    _check_moves(encryption, _one_of(specs, 'moves', 'live', MOVES))
    return encryption


def _check_moves(encryption: Encryption, moves: str) -> None:
    """:raises InvalidType: if these volumes would lose data"""
    if encryption.authenticated and moves != 'cold':
        raise InvalidType(
            'with %sintegrity=%s a live migration would lose data: set '
            '%smoves=cold, and volumes of this type move only while they are '
            'detached' % (PREFIX, encryption.integrity, PREFIX))
    if moves == 'cold' and not encryption.authenticated:
        raise InvalidType('%smoves=cold is only for types with %sintegrity'
                          % (PREFIX, PREFIX))
    if encryption.authenticated and encryption.discards:
        raise InvalidType(
            '%sdiscards=true is not possible with %sintegrity: discarded '
            'ranges could not be read any more' % (PREFIX, PREFIX))


def _shared_key(text: str) -> str:
    kind, _colon, reference = text.partition(':')
    if text == 'volume':
        return ''
    if kind != 'type':
        raise _not_one_of('key', text, ['volume', 'type:REFERENCE'])
    if not _REFERENCE.fullmatch(reference):
        raise InvalidType(
            '%skey=%s does not name a secret: the reference after "type:" may '
            'have letters, digits and _+.-/=!:#& only' % (
                PREFIX, text))
    return reference


def is_reference(text: str) -> bool:
    """Return whether a row and a tag can record a secret's reference."""
    return bool(_REFERENCE.fullmatch(text))


def _one_of(specs: Mapping[str, str], name: str, default: str,
            allowed: Iterable[str]) -> str:
    value, values = specs.get(name, default), list(allowed)
    if value not in values:
        raise _not_one_of(name, value, values)
    return value


def _boolean(specs: Mapping[str, str], name: str) -> bool:
    value = specs.get(name, 'false')
    if value.lower() not in _BOOLEANS:
        raise _not_one_of(name, value, ['true', 'false'])
    return _BOOLEANS[value.lower()]


def _not_one_of(name: str, value: str, allowed: Iterable[str]
                ) -> InvalidType:
    return InvalidType('%s%s=%s is not possible; choose %s' % (
        PREFIX, name, value, ' or '.join(allowed)))


@dataclasses.dataclass(frozen=True)
class HeaderForNova:
    """A type's settings of the LUKS header of a volume that Nova encrypts."""

    cipher: str
    key_bits: int
