# SPDX-License-Identifier: Apache-2.0
"""The completion of a re-encryption killed in its last step. Pure.

When all data is re-encrypted, cryptsetup removes the key slots of the old key,
each by a separate write. Then it writes the end of the re-encryption, which
takes as long as wiping the resilience data (``reencrypt_teardown_ok`` in its
lib/luks2/luks2_reencrypt.c, 2.6 to 2.8). If it is killed in between, no key
opens the header: the header names two volume keys, and cryptsetup demands
both. It has no command to repair this.

Only cryptsetup's last write is missing; this module builds it. The format is
defined in the LUKS2 On-Disk Format Specification.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import hashlib
import json
import struct
import typing

from cinder_localclone.core.formats import luks_binary

#: Bytes of the binary header; the JSON area is next.
BINARY = 4096
#: Bytes of random data in each copy, renewed by each write.
SALT = 64
_SEQUENCE, _SALT = slice(16, 24), slice(104, 104 + SALT)
_OFFSET = slice(256, 264)
#: The requirement in a header during a re-encryption; flags of segments.
MARK = 'online-reencrypt'
OLD, FINAL = 'backup-previous', 'backup-final'

_Json: typing.TypeAlias = dict[str, typing.Any]


def lacks_only_last_step(metadata: Mapping[str, typing.Any]) -> bool:
    """Return whether all data is re-encrypted, without the last step.

    :param metadata: the JSON of a header
    """
    segments = metadata['segments']
    data = [number for number, each in segments.items()
            if not flags(each)]
    final = [number for number, each in segments.items()
             if flags(each) == [FINAL]]
    old = [number for number, each in segments.items()
           if flags(each) == [OLD]]
    # No other segments: no part in progress, no moved data.
    if not len(data) == len(final) == len(old) == 1 or len(segments) != 3:
        return False
    return bool(
        segments[data[0]] == _without(segments[final[0]], 'flags')
        and _digest(metadata, data[0]) == _digest(metadata, final[0])
        != _digest(metadata, old[0]))


def text(head: bytes) -> str:
    """Return the JSON of the newest undamaged copy of a header.

    :param head: as in :func:`end`
    :raises ValueError: if both copies are damaged
    """
    begin, size, _sequence = _newest(head)
    return head[begin + BINARY:begin + size].split(b'\0')[0].decode()


def _newest(head: bytes) -> tuple[int, int, int]:
    found = luks_binary.newest(head)
    if found is None:
        raise ValueError('both copies are damaged')
    return found


def end(head: bytes, salts: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return the new content of both copies of a header.

    An earlier attempt may have written only the first of them. Then the other
    copy, still without the last step, is returned again.

    :param head: the beginning of a device with at least both copies
    :param salts: a new salt for each copy, :data:`SALT` bytes
    :returns: (offset in bytes, content) of each copy; the copy read by this
        function comes last, so that a valid copy exists at each moment. Empty
        if both copies have the last step already
    :raises ValueError: if more than the last step is missing
    """
    begin, size, sequence = _newest(head)
    try:
        metadata = json.loads(text(head))
        if not _is_over(metadata):
            _end(metadata)
        elif not luks_binary.problems(head):
            return []
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError('it can\'t be parsed: %s %s' % (
            type(exc).__name__, exc))
    body = json.dumps(metadata, separators=(',', ':'),
                      ensure_ascii=False).encode()
    space = size - BINARY
    if len(body) >= space:
        raise ValueError('%d bytes do not fit into %d' % (len(body), space))
    binary = head[begin:begin + BINARY]
    found = [(at, _copy(binary, magic, at, sequence + 1, salt,
                        body.ljust(space, b'\0')))
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
    """Return whether a header has no requirement and no old segments."""
    return not (
        metadata['config'].get('requirements', {}).get('mandatory')
        or any(flags(each) for each in metadata['segments'].values()))


def _end(metadata: _Json) -> None:
    """Change the JSON of a header to the state after the last step.

    :raises ValueError: if more than the last step is missing
    """
    marks = metadata['config']['requirements']['mandatory']
    if not (len(marks) == 1 and marks[0].startswith(MARK)):
        raise ValueError('it has the requirements %s' % ', '.join(marks))
    if not lacks_only_last_step(metadata):
        raise ValueError('not all data is re-encrypted')
    slots, segments = metadata['keyslots'], metadata['segments']
    how = [number for number, each in slots.items()
           if each['type'] == 'reencrypt']
    if len(how) != 1 or slots[how[0]]['mode'] != 'reencrypt':
        raise ValueError('it has no parameters of a re-encryption')
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
    """Return the id of the digest of a segment's key."""
    found, = (number for number, each in metadata['digests'].items()
              if segment in each['segments'])
    return str(found)


def flags(segment: Mapping[str, typing.Any]) -> list[str]:
    """Return the flags of a segment."""
    return list(segment.get('flags', ()))


def _without(found: Mapping[str, typing.Any], name: str
             ) -> dict[str, typing.Any]:
    return {key: value for key, value in found.items() if key != name}
