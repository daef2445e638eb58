# SPDX-License-Identifier: Apache-2.0
"""The end of a re-encryption that was cut short in its very end. Pure.

When all is encrypted anew, cryptsetup removes the slots of the old key, each
by a write of its own; then it writes that the re-encryption is over, and that
takes as long as wiping what has kept it safe (``reencrypt_teardown_ok`` in
its lib/luks2/luks2_reencrypt.c, 2.6 to 2.8). Whoever is killed in between
leaves a header that no key opens: it says that there are two keys, and
cryptsetup wants both. It has nothing that would help.

All that is missing is what it would have written last. The format is that of
the LUKS2 On-Disk Format Specification.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import hashlib
import json
import struct
import typing

from cinder_localclone.core.formats import luks_binary

#: Bytes of the binary header; JSON follows.
BINARY = 4096
#: Bytes of random data in each copy, another one each time.
SALT = 64
_SEQUENCE, _SALT = slice(16, 24), slice(104, 104 + SALT)
_OFFSET = slice(256, 264)
#: What a header asks for as long as it is not over; flags of segments.
MARK = 'online-reencrypt'
OLD, FINAL = 'backup-previous', 'backup-final'

_Json: typing.TypeAlias = dict[str, typing.Any]


def is_complete(metadata: Mapping[str, typing.Any]) -> bool:
    """Whether all data is encrypted anew though it is not over.

    :param metadata: what a header says
    """
    segments = metadata['segments']
    data = [number for number, each in segments.items()
            if not flags(each)]
    final = [number for number, each in segments.items()
             if flags(each) == [FINAL]]
    old = [number for number, each in segments.items()
           if flags(each) == [OLD]]
    # Nothing else: no part that is in between, nothing that is moved.
    if not len(data) == len(final) == len(old) == 1 or len(segments) != 3:
        return False
    return bool(
        segments[data[0]] == _without(segments[final[0]], 'flags')
        and _digest(metadata, data[0]) == _digest(metadata, final[0])
        != _digest(metadata, old[0]))


def text(head: bytes) -> str:
    """What the newest whole copy of a header says.

    :raises ValueError: if there is none
    """
    begin, size, _sequence = _newest(head)
    return head[begin + BINARY:begin + size].split(b'\0')[0].decode()


def _newest(head: bytes) -> tuple[int, int, int]:
    found = luks_binary.newest(head)
    if found is None:
        raise ValueError('it has no whole copy')
    return found


def end(head: bytes, salts: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """What both copies of a header are to become.

    Whoever was to write that may have come to one of them only: then the
    other, which says that it is not over, is still to be written.

    :param head: what a device begins with, at least both copies
    :param salts: a new one for each, of :data:`SALT` bytes
    :returns: where, in bytes, and what; the first of them first, as the
        other is the one that all this was read from; nothing if it is over,
        and both say so
    :raises ValueError: if it is not only the end that is missing
    """
    begin, size, sequence = _newest(head)
    try:
        metadata = json.loads(text(head))
        if not _is_over(metadata):
            _end(metadata)
        elif not luks_binary.problems(head):
            return []
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError('it can\'t be understood: %s %s' % (
            type(exc).__name__, exc))
    body = json.dumps(metadata, separators=(',', ':'),
                      ensure_ascii=False).encode()
    room = size - BINARY
    if len(body) >= room:
        raise ValueError('%d bytes in room for %d' % (len(body), room))
    binary = head[begin:begin + BINARY]
    found = [(at, _copy(binary, magic, at, sequence + 1, salt,
                        body.ljust(room, b'\0')))
             for (at, magic), salt in zip(
                 ((0, luks_binary.FIRST), (size, luks_binary.SECOND)), salts,
                 strict=True)]
    return sorted(found, key=lambda each: each[0] == begin)


def _copy(binary: bytes, magic: bytes, at: int, sequence: int, salt: bytes,
          body: bytes) -> bytes:
    made = bytearray(binary + body)
    made[:len(magic)] = magic
    made[_SEQUENCE] = struct.pack('>Q', sequence)
    made[_SALT] = salt
    made[_OFFSET] = struct.pack('>Q', at)
    made[luks_binary.CHECKSUM] = bytes(64)
    algorithm = luks_binary.algorithm(made)
    made[luks_binary.CHECKSUM] = hashlib.new(
        algorithm, made).digest().ljust(64, b'\0')
    return bytes(made)


def _is_over(metadata: _Json) -> bool:
    """Whether it asks for nothing, and has nothing of before."""
    return not (
        metadata['config'].get('requirements', {}).get('mandatory')
        or any(flags(each) for each in metadata['segments'].values()))


def _end(metadata: _Json) -> None:
    """Have a header say that it is over."""
    marks = metadata['config']['requirements']['mandatory']
    if not (len(marks) == 1 and marks[0].startswith(MARK)):
        raise ValueError('it asks for %s' % ', '.join(marks))
    if not is_complete(metadata):
        raise ValueError('not all is encrypted anew')
    slots, segments = metadata['keyslots'], metadata['segments']
    how = [number for number, each in slots.items()
           if each['type'] == 'reencrypt']
    if len(how) != 1 or slots[how[0]]['mode'] != 'reencrypt':
        raise ValueError('it does not say how it is re-encrypted')
    gone = {*how, *metadata['digests'][_digest(metadata, next(
        number for number, each in segments.items()
        if OLD in flags(each)))]['keyslots']}
    data = _kept(segments, lambda each: not flags(each))
    metadata['segments'] = data
    metadata['keyslots'] = {number: each for number, each in slots.items()
                            if number not in gone}
    digests, tokens = metadata['digests'], metadata['tokens']
    for each in digests.values():
        each['segments'] = [one for one in each['segments'] if one in data]
    for each in (*digests.values(), *tokens.values()):
        each['keyslots'] = [one for one in each['keyslots']
                            if one not in gone]
    metadata['digests'] = _kept(digests, lambda each: bool(
        each['segments'] or each['keyslots']))
    del metadata['config']['requirements']


def _kept(found: _Json, which: Callable[[_Json], bool]) -> _Json:
    return {number: each for number, each in found.items() if which(each)}


def _digest(metadata: Mapping[str, typing.Any], segment: str) -> str:
    """The id of the digest of a segment's key."""
    found, = (number for number, each in metadata['digests'].items()
              if segment in each['segments'])
    return str(found)


def flags(segment: Mapping[str, typing.Any]) -> list[str]:
    """Those of a segment."""
    return list(segment.get('flags', ()))


def _without(found: Mapping[str, typing.Any], name: str
             ) -> dict[str, typing.Any]:
    return {key: value for key, value in found.items() if key != name}
