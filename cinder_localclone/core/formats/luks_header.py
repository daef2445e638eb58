# SPDX-License-Identifier: Apache-2.0
"""LUKS2 headers, the driver's tokens in them, and the formats of keys. Pure.

``cryptsetup luksDump --dump-json-metadata`` prints a header. The header is the
authority for cipher, keys and the state of a re-encryption: it has two ciphers
until the re-encryption is complete.

A token (cryptsetup-token(8)) names a secret in the key manager; the secret
holds the key of the volume. It travels with the volume, and never contains a
key.

cryptsetup reads a key from standard input without changes (``--key-file -``):
a line feed is a byte like any other.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum
import hashlib
import json
import typing

from cinder_localclone.core.formats import luks_ending
from cinder_localclone.core import pins
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.core.volume_types import KeyFormat

#: A part of the header's JSON.
Part: typing.TypeAlias = Mapping[str, typing.Any]

_RUNNING = 'in-reencryption'
_BACKUP = 'backup-'
#: Hexadecimal digits of a fingerprint: 96 bits.
_FINGERPRINT = 24

#: Type of the driver's tokens ("luks2-..." is reserved for cryptsetup).
TOKEN_TYPE = 'localclone'

#: Bytes of a new secret: longer than the key of any cipher.
NEW_KEY_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Reencryption:
    """A re-encryption in progress.

    :param done: re-encrypted bytes
    :param resilience: how it survives a power cut: "checksum", "journal"; it
        does not with "none"
    :param interrupted: whether a part of the volume is in transition between
        both keys: the process is running, or was killed. Then opening the
        volume recovers it, with writes to the volume, with or without locks. A
        running process has no part in transition most of the time, so the
        header does not show whether it runs
    :param cipher: the new cipher
    :param key_bits: length of the new volume key
    :param complete: whether all data is re-encrypted, and only the last step
        is missing. cryptsetup is about to write it, or was killed; then
        possibly no key opens the header
    :param digest: :func:`fingerprint` of the digest of the new volume key
    """

    done: int
    resilience: str
    interrupted: bool
    cipher: str
    key_bits: int
    complete: bool = False
    digest: str = ''


class Role(str, enum.Enum):
    """The purpose of a key."""

    #: Opens the volume when it is attached.
    VOLUME = 'volume'
    #: Opens the volume if its main key is lost.
    RECOVERY = 'recovery'


@dataclasses.dataclass(frozen=True)
class Token:
    """A token of the driver.

    :param key: reference of the secret; '' for a recovery key kept by a person
    :param shared: whether other volumes have the same secret
    :param keyslots: ids of the key slots opened by the key; cryptsetup adds
        the key slots of a re-encryption
    :param number: id of the token in the header; None before it is written
    :param slot: the key slot about to receive the key, recorded before the key
        is added, so that the owner of the slot is known; '' afterwards
    :param replaces: reference of the secret replaced by this one
    """

    key: str
    key_format: volume_types.KeyFormat
    shared: bool = False
    role: Role = Role.VOLUME
    keyslots: tuple[str, ...] = ()
    number: str | None = None
    slot: str = ''
    replaces: str = ''

    def __str__(self) -> str:
        """Return the JSON for ``cryptsetup token import``."""
        return json.dumps({'type': TOKEN_TYPE, 'keyslots': list(self.keyslots),
                           'key': self.key, 'format': self.key_format.value,
                           'shared': self.shared, 'role': self.role.value,
                           'slot': self.slot, 'replaces': self.replaces})


@dataclasses.dataclass(frozen=True)
class Header:
    """A LUKS2 header.

    :param cipher: of the data; in a re-encryption the old cipher
    :param key_bits: length of the data's volume key; in a re-encryption of the
        old key
    :param sector_size: bytes
    :param data_offset: bytes before the data
    :param integrity: as the kernel names it; '' if there is none
    :param grows: whether the data extends to the end of the device; not so
        while a re-encryption has covered a part of it
    :param keyslots: ids of the key slots of the data, or of a part of it
    :param tokens: the driver's tokens
    :param requirements: features needed to open the header
    :param all_keyslots: ids of all key slots, whatever their purpose
    :param all_tokens: ids of all tokens, of any owner
    :param digest: :func:`fingerprint` of the digest of the data's volume key.
        Headers of the same data have the same fingerprint
    :param slot_ciphers: ciphers of the key slots
    :param odd: why the driver's cryptsetup can't have written the header; ''
        if there is no sign of this
    """

    cipher: str
    key_bits: int
    sector_size: int
    integrity: str
    data_offset: int
    grows: bool
    keyslots: tuple[str, ...]
    tokens: tuple[Token, ...]
    requirements: tuple[str, ...] = ()
    reencryption: Reencryption | None = None
    all_keyslots: tuple[str, ...] = ()
    all_tokens: tuple[str, ...] = ()
    digest: str = ''
    slot_ciphers: frozenset[str] = frozenset()
    odd: str = ''

    @property
    def pin(self) -> pins.Pin:
        """The pin of the data; in a re-encryption, the old pin."""
        return pins.Pin(self.cipher, self.key_bits, self.sector_size,
                        self.integrity, self.data_offset, self.digest)

    @property
    def becoming(self) -> pins.Pin | None:
        """The pin of the data after the present re-encryption, or None."""
        found = self.reencryption
        return None if found is None else dataclasses.replace(
            self.pin, cipher=found.cipher, key_bits=found.key_bits,
            digest=found.digest)

    @property
    def foreign_requirements(self) -> tuple[str, ...]:
        """Requirements unknown to this driver; such a volume is left alone.

        The requirement of a re-encryption of an open volume is known.
        """
        return tuple(each for each in self.requirements
                     if not each.startswith(luks_ending.MARK))

    def tokens_with_role(self, role: Role) -> tuple[Token, ...]:
        """Return the tokens of working keys with a role, older tokens first.
        """
        usable = set(self.keyslots)
        return tuple(sorted(
            (each for each in self.tokens
             if each.role is role and usable.intersection(each.keyslots)),
            key=lambda token: int(token.number or 0)))

    def keys(self) -> frozenset[str]:
        """Return the references of all secrets in the tokens."""
        return frozenset(each.key for each in self.tokens if each.key)

    @property
    def keyslots_without_token(self) -> tuple[str, ...]:
        """Key slots of the data with no token, so of unknown owners."""
        known = {slot for each in self.tokens
                 for slot in (*each.keyslots, each.slot)}
        return tuple(slot for slot in self.keyslots if slot not in known)


def parse(text: str) -> Header:
    """Parse a header printed by cryptsetup.

    :raises ValueError: if the driver can't work with the header
    """
    try:
        metadata = json.loads(text)
        if not isinstance(metadata, dict):
            raise ValueError('it is not a JSON object')
        return _parse(metadata)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError('the LUKS2 header can\'t be parsed: %s %s' % (
            type(exc).__name__, exc))


def _parse(metadata: Part) -> Header:
    segments: Mapping[str, Part] = metadata['segments']
    slots: Mapping[str, Part] = metadata['keyslots']
    backups = [number for number, each in segments.items() if any(
        flag.startswith(_BACKUP) for flag in luks_ending.flags(each))]
    data = {number: each for number, each in segments.items()
            if number not in backups}
    if not data or any(each['type'] != 'crypt' for each in data.values()):
        raise ValueError('the LUKS2 header has no encrypted data')
    # Data in transition has both ciphers until the end of a re-encryption.
    old = _flagged(segments, luks_ending.OLD)
    new = _flagged(segments, luks_ending.FINAL)
    complete = bool(new) and luks_ending.lacks_only_last_step(metadata)
    first = (None if complete else old) or min(
        data, key=lambda each: _offset(data[each]))
    main = segments[first]
    of_main = _digest(metadata, first)['keyslots']
    keyslots = sorted({slot for each in (old, new, first) if each for slot in
                       _digest(metadata, each)['keyslots']}, key=int)
    return Header(
        cipher=main['encryption'], key_bits=_key_bits(slots, of_main),
        sector_size=int(main['sector_size']),
        integrity=main.get('integrity', {}).get('type', ''),
        data_offset=min(_offset(each) for each in data.values()),
        grows=any(each['size'] == 'dynamic' for each in data.values()),
        keyslots=tuple(keyslots),
        tokens=tuple(_tokens(metadata.get('tokens', {}))),
        requirements=tuple(metadata['config'].get(
            'requirements', {}).get('mandatory', ())),
        reencryption=_reencryption(
            metadata, slots, data, new, complete) if new else None,
        all_keyslots=tuple(sorted(slots, key=int)),
        all_tokens=tuple(sorted(metadata.get('tokens', {}), key=int)),
        digest=fingerprint(_digest(metadata, first)),
        slot_ciphers=frozenset(
            str(each['area']['encryption']) for each in slots.values()
            if each['type'] != 'reencrypt'),
        odd=_odd(metadata, data, [each for each in (
            old, new, first) if each]))


def fingerprint(digest: Part) -> str:
    """Return a short hash of a digest, to identify its key.

    The derivation of the digest is included.
    """
    return hashlib.sha256(json.dumps(
        {name: each for name, each in digest.items()
         if name not in ('keyslots', 'segments')},
        sort_keys=True).encode()).hexdigest()[:_FINGERPRINT]


def _odd(metadata: Part, data: Mapping[str, Part], known: Iterable[str]
         ) -> str:
    """Return why the segments disagree with the header; '' if they agree.

    :param data: the segments of the data, by id
    :param known: ids of the segments with the present, the old, and the new
        encryption
    """
    segments, digests = metadata['segments'], metadata['digests']
    hows = [_how(segments[each]) for each in known]
    keys = {number for number, each in digests.items()
            if set(known).intersection(each['segments'])}
    begin = min(_offset(each) for each in data.values())
    for number, each in segments.items():
        named = {key for key, digest in digests.items()
                 if number in digest['segments']}
        running = _RUNNING in luks_ending.flags(each)
        if not named <= keys or len(named) != (len(keys) if running else 1):
            return 'segment %s has other keys' % number
        if _how(each) not in hows:
            return ('segment %s has another cipher, sector size or '
                    'integrity' % number)
        if int(each['iv_tweak']) * state.SECTOR != _offset(each) - begin:
            return 'segment %s numbers its sectors differently' % number
    if len(data) > 1 and not _flagged(segments, luks_ending.FINAL):
        return 'its data has %d segments' % len(data)
    return ''


def _how(segment: Part) -> tuple[str, int, str]:
    return (segment['encryption'], int(segment['sector_size']),
            segment.get('integrity', {}).get('type', ''))


def _reencryption(metadata: Part, slots: Mapping[str, Part],
                  data: Mapping[str, Part], new: str, complete: bool
                  ) -> Reencryption:
    final = _digest(metadata, new)
    area = next((each['area'] for each in slots.values()
                 if each['type'] == 'reencrypt'), None)
    if area is None:
        raise ValueError('the LUKS2 header has no parameters of its '
                         're-encryption')
    running = [each for each in data.values()
               if _RUNNING in luks_ending.flags(each)]
    return Reencryption(
        done=sum(int(each['size']) for number, each in data.items()
                 if number in final['segments'] and each not in running
                 and each['size'] != 'dynamic'),
        resilience=area['type'], interrupted=bool(running),
        cipher=metadata['segments'][new]['encryption'],
        key_bits=_key_bits(slots, final['keyslots']), complete=complete,
        digest=fingerprint(final))


def _key_bits(slots: Mapping[str, Part], of: Iterable[str]) -> int:
    return max((8 * int(slots[slot]['key_size']) for slot in of), default=0)


def _tokens(found: Mapping[str, Part]) -> Iterable[Token]:
    for number in sorted(found, key=int):
        token = parse_token(number, found[number])
        if token:
            yield token


def _digest(metadata: Part, segment: str) -> Part:
    """Return the digest of a segment's volume key.

    :raises ValueError: if the segment has none
    """
    for digest in metadata['digests'].values():
        if segment in digest['segments']:
            found: Part = digest
            return found
    raise ValueError('the LUKS2 header has no key of segment %s' % segment)


def _flagged(segments: Mapping[str, Part], flag: str) -> str | None:
    return next((number for number, each in segments.items()
                 if flag in luks_ending.flags(each)), None)


def _offset(segment: Part) -> int:
    return int(segment['offset'])


def parse_token(number: str, token: Mapping[str, typing.Any]) -> Token | None:
    """Return a token of a header; None for a token of another program.

    :raises ValueError: if it is a token of the driver and can't be parsed
    """
    if token.get('type') != TOKEN_TYPE:
        return None
    try:
        return Token(
            key=str(token['key']),
            key_format=volume_types.KeyFormat(token['format']),
            shared=bool(token['shared']), role=Role(token['role']),
            keyslots=tuple(map(str, token['keyslots'])), number=number,
            slot=str(token.get('slot', '')),
            replaces=str(token.get('replaces', '')))
    except (KeyError, TypeError) as exc:
        raise ValueError('token %s of the header lacks %s' % (number, exc))


def check_own_key(secret: bytes, key_format: KeyFormat) -> None:
    """Check the length of a secret stored by the driver.

    :raises ValueError: if the length is wrong: the secret is cut off, or has
        been replaced
    """
    length = NEW_KEY_BYTES
    if key_format is KeyFormat.PASSPHRASE:
        length *= 2  # hexadecimal digits
    if len(secret) != length:
        raise ValueError('it has %d bytes; the driver stored %d' % (
            len(secret), length))


def opening_key(secret: bytes, key_format: KeyFormat) -> bytes:
    """Return the key in the bytes of a secret.

    :raises ValueError: if the secret is empty: an empty key protects nothing
    """
    if not secret:
        raise ValueError('the secret is empty')
    return secret.hex().encode() if key_format is KeyFormat.HEX else secret
