# SPDX-License-Identifier: Apache-2.0
"""LUKS2 headers, the driver's tokens in them, and the formats of keys. Pure.

``cryptsetup luksDump --dump-json-metadata`` prints a header. The header is the
truth about cipher and keys, and about a re-encryption: it has two ciphers
until that is complete.

A token (cryptsetup-token(8)) names the secret in the key manager whose key
opens the volume. It travels with the volume, and never contains a key.

cryptsetup reads a key on standard input as it is (``--key-file -``): a line
feed is a byte like any other.
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

#: A part of the header, as JSON has it.
Part: typing.TypeAlias = Mapping[str, typing.Any]

_RUNNING = 'in-reencryption'
_BACKUP = 'backup-'
#: Hexadecimal digits of a fingerprint: 96 bits.
_FINGERPRINT = 24

#: ("luks2-..." is reserved for cryptsetup's own.)
TOKEN_TYPE = 'localclone'

#: Bytes of a new secret: more than any cipher's key has.
NEW_KEY_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Reencryption:
    """A re-encryption that has begun and is not complete.

    :param done: bytes that are encrypted anew
    :param resilience: how it outlives a power cut: "checksum", "journal";
        "none" does not
    :param interrupted: whether a part of the volume is between both: it is
        running, or was killed and has to be recovered by opening the volume,
        which writes to it, with or without locks. Most of the time one that
        runs is not: the header does not tell whether it does
    :param cipher: the new one
    :param key_bits: of the new key
    :param complete: whether all is encrypted anew: only its end is missing.
        It is about to write that, or was killed; then no key may open it
    :param digest: :func:`fingerprint` of the digest of the new key
    """

    done: int
    resilience: str
    interrupted: bool
    cipher: str
    key_bits: int
    complete: bool = False
    digest: str = ''


class Role(str, enum.Enum):
    """What a key is for."""

    #: Whoever attaches the volume opens it with this.
    VOLUME = 'volume'
    #: For the day on which that one is lost.
    RECOVERY = 'recovery'


@dataclasses.dataclass(frozen=True)
class Token:
    """One of the driver's tokens.

    :param key: reference of the secret; '' of a recovery key that only a
        person has
    :param shared: whether other volumes have the same secret
    :param keyslots: ids of what it opens; cryptsetup adds those that a
        re-encryption makes
    :param number: its own id in the header; None before it is there
    :param slot: which slot its key is about to get: written down first, so
        that a slot which is found later is known; '' once it has that
    :param replaces: reference of the secret that its own takes the place of
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
        """As ``cryptsetup token import`` reads it."""
        return json.dumps({'type': TOKEN_TYPE, 'keyslots': list(self.keyslots),
                           'key': self.key, 'format': self.key_format.value,
                           'shared': self.shared, 'role': self.role.value,
                           'slot': self.slot, 'replaces': self.replaces})


@dataclasses.dataclass(frozen=True)
class Header:
    """A LUKS2 header.

    :param cipher: that of the data, before a re-encryption that has begun
        and has not come to all of it
    :param key_bits: of the key of the data, before the same
    :param data_offset: bytes before the data
    :param integrity: as the kernel calls it; '' if there is none
    :param grows: whether the data takes all that is behind the header; not
        so from when a part of it is encrypted anew until all of it is
    :param keyslots: ids of those that open the data, or a part of it
    :param tokens: the driver's own
    :param requirements: what whoever opens it has to know
    :param all_keyslots: ids of all that there are, whatever they open
    :param all_tokens: ids of all that there are, whoever's they are
    :param digest: :func:`fingerprint` of the digest of the key of the data,
        by which one header is known to be of the same data as another
    :param slot_ciphers: by which the key slots keep the keys
    :param odd: why no cryptsetup of this driver has written it; '' if
        nothing says so
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
        """The pin of the data as it is; in a re-encryption, as it was."""
        return pins.Pin(self.cipher, self.key_bits, self.sector_size,
                        self.integrity, self.data_offset, self.digest)

    @property
    def becoming(self) -> pins.Pin | None:
        """The pin of the data once a re-encryption has ended."""
        found = self.reencryption
        return None if found is None else dataclasses.replace(
            self.pin, cipher=found.cipher, key_bits=found.key_bits,
            digest=found.digest)

    @property
    def foreign_requirements(self) -> tuple[str, ...]:
        """Those that this driver does not know: hands off.

        A re-encryption is known, if it is one of a volume in use.
        """
        return tuple(each for each in self.requirements
                     if not each.startswith(luks_ending.MARK))

    def opened_by(self, role: Role) -> tuple[Token, ...]:
        """The tokens of keys that open it, those of older slots first."""
        usable = set(self.keyslots)
        return tuple(sorted(
            (each for each in self.tokens
             if each.role is role and usable.intersection(each.keyslots)),
            key=lambda token: int(token.number or 0)))

    def keys(self) -> frozenset[str]:
        """References of all secrets that it names."""
        return frozenset(each.key for each in self.tokens if each.key)

    @property
    def keyslots_without_token(self) -> tuple[str, ...]:
        """Slots that open it, and of which nobody knows whose they are."""
        known = {slot for each in self.tokens
                 for slot in (*each.keyslots, each.slot)}
        return tuple(slot for slot in self.keyslots if slot not in known)


def parse(text: str) -> Header:
    """Read what cryptsetup has printed.

    :raises ValueError: if it is nothing that this driver can work with
    """
    try:
        metadata = json.loads(text)
        if not isinstance(metadata, dict):
            raise ValueError('it is no JSON object')
        return _parse(metadata)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError('the LUKS2 header can\'t be understood: %s %s' % (
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
    # Until all is encrypted anew, what is there has both ciphers.
    old = _flagged(segments, luks_ending.OLD)
    new = _flagged(segments, luks_ending.FINAL)
    complete = bool(new) and luks_ending.is_complete(metadata)
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
    """Return a short text that no digest of another key has.

    All of the digest counts: how it is derived, too.
    """
    return hashlib.sha256(json.dumps(
        {name: each for name, each in digest.items()
         if name not in ('keyslots', 'segments')},
        sort_keys=True).encode()).hexdigest()[:_FINGERPRINT]


def _odd(metadata: Part, data: Mapping[str, Part], known: Iterable[str]
         ) -> str:
    """Say why some part of the data is not as the header says of all.

    :param data: the segments of the data
    :param known: ids of the segments that say how the data is encrypted, or
        was, or is going to be
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
            return 'segment %s is encrypted in another way' % number
        if int(each['iv_tweak']) * state.SECTOR != _offset(each) - begin:
            return 'segment %s counts its sectors in another way' % number
    if len(data) > 1 and not _flagged(segments, luks_ending.FINAL):
        return 'its data has %d parts' % len(data)
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
        raise ValueError('the LUKS2 header does not say how it is '
                         're-encrypted')
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
    """The digest of the key that a segment is encrypted with."""
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
    """One token of a header; None if it is not one of the driver's.

    :raises ValueError: if it is, and can't be read
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
    """Check the length of a secret that the driver has stored itself.

    :raises ValueError: if a part of it is missing, or if it is another one
    """
    length = NEW_KEY_BYTES
    if key_format is KeyFormat.PASSPHRASE:
        length *= 2  # hexadecimal digits
    if len(secret) != length:
        raise ValueError('it has %d bytes, but the driver has stored %d' % (
            len(secret), length))


def opening_key(secret: bytes, key_format: KeyFormat) -> bytes:
    """The key by the bytes of a secret.

    :raises ValueError: if it is empty: that would open what anybody can open
    """
    if not secret:
        raise ValueError('the secret is empty')
    return secret.hex().encode() if key_format is KeyFormat.HEX else secret
