# SPDX-License-Identifier: Apache-2.0
"""What the kernel's device-mapper takes and answers, as bytes. Pure.

include/uapi/linux/dm-ioctl.h, drivers/md/dm-ioctl.c. What an answer says of
its own sizes is believed only within the answer.
"""

from collections.abc import Iterator
import dataclasses
import re
import struct
import typing

#: struct dm_ioctl: version[3], data_size, data_start, target_count,
#: open_count, flags, event_nr, padding, dev, name, uuid, data.
_HEADER = struct.Struct('=3I7IQ128s129s7x')
#: struct dm_name_list: dev, next; a name follows.
_NAME = struct.Struct('=QI')
#: struct dm_target_spec: sector_start, length, status, next, target_type; a
#: text follows.
_TARGET = struct.Struct('=QQiI16s')
#: _IOWR(0xfd, number, struct dm_ioctl)
LIST_DEVICES, TABLE_STATUS, TARGET_MSG = (
    3 << 30 | _HEADER.size << 16 | 0xfd << 8 | number
    for number in (2, 12, 14))
#: Flags: what is suspended; the table instead of the status; the answer needs
#: more room; asking commits nothing; names come with UUIDs.
_SUSPENDED, TABLE, _FULL, NOFLUSH, UUIDS = (
    1 << bit for bit in (1, 4, 8, 11, 14))
#: What follows a name, aligned: event_nr, flags; whether a UUID follows, or
#: there is none. Kernels before 5.13 don't say.
_EVENT = struct.Struct('=II')
_HAS_UUID, _HAS_NO_UUID = 1, 2
_LONGEST = 127
#: Others may have given a device a name that is no text.
_ERRORS = 'surrogateescape'
#: What a table of dm-integrity says of an algorithm, and its key.
_KEYED = re.compile(
    r'\b((?:internal_hash|journal_crypt|journal_mac):[^: ]*:)([^ ]+)')


class Malformed(ValueError):
    """An answer that is none."""


def request(size: int, name: str = '', number: str = '', flags: int = 0,
            data: bytes = b'') -> bytearray:
    """What is asked for, with room for the answer.

    :param size: bytes of that, at least
    :param name: of a device; or
    :param number: its ``major:minor``
    :raises ValueError: if no device can have that name
    """
    named = name.encode(errors=_ERRORS)
    if len(named) > _LONGEST:
        raise ValueError('too long a name: %s' % name)
    size = max(size, _HEADER.size + len(data))
    return bytearray((_HEADER.pack(
        4, 0, 0, size, _HEADER.size, 0, 0, flags, 0, 0,
        _device(number), named, b'') + data).ljust(size, b'\0'))


def message(name: str, text: str) -> bytearray:
    """What DM_TARGET_MSG takes: a message to a device's only target."""
    return request(0, name, data=bytes(8) + text.encode() + b'\0')


def _device(number: str) -> int:
    """As huge_encode_dev of include/linux/kdev_t.h has it."""
    if not number:
        return 0
    major, minor = map(int, number.split(':'))
    return minor & 0xff | major << 8 | (minor & ~0xff) << 12


@dataclasses.dataclass(frozen=True)
class Status:
    """A device, with its table or its status.

    :param number: ``major:minor``
    :param lines: a line for each target, as dmsetup prints it
    """

    name: str
    uuid: str
    number: str
    opened: int
    suspended: bool
    lines: str


def is_full(answer: bytearray) -> bool:
    """Whether an answer needs more room."""
    return bool(_HEADER.unpack_from(answer)[7] & _FULL)


def parse_names(answer: bytearray) -> dict[str, str | None]:
    """The names of all devices, from what DM_LIST_DEVICES answers.

    :returns: each with its UUID, None where the kernel does not say
    """
    data, at = _data(answer), 0
    names: dict[str, str | None] = {}
    while len(data) > at:  # without any device there may be none
        device, step = _unpack(_NAME, data, at)
        if not device:
            break
        name = _text(data, at + _NAME.size)
        names[name] = _uuid(data, at + _NAME.size + len(
            name.encode(errors=_ERRORS)) + 1)
        if not step:
            break
        at += step
    return names


def _uuid(data: bytes, at: int) -> str | None:
    """What follows a name; it may end with that."""
    at = -(-at // 8) * 8
    if at + _EVENT.size > len(data):
        return None
    _event, flags = _EVENT.unpack_from(data, at)
    if flags & _HAS_UUID:
        return _text(data, at + _EVENT.size)
    return '' if flags & _HAS_NO_UUID else None


def parse_status(answer: bytearray) -> Status:
    """A device, from what DM_TABLE_STATUS answers."""
    found = _HEADER.unpack_from(answer)
    count, opened, flags, device = found[5], found[6], found[7], found[10]
    return Status(
        _text(found[11] + b'\0', 0), _text(found[12] + b'\0', 0),
        '%d:%d' % (device >> 8 & 0xfff, device & 0xff | device >> 12 & ~0xff),
        opened,
        bool(flags & _SUSPENDED),
        '\n'.join(_lines(_data(answer), count)))


def _lines(data: bytes, count: int) -> Iterator[str]:
    at = 0
    for _target in range(count):
        start, sectors, _status, at_next, kind = _unpack(_TARGET, data, at)
        target = _text(kind + b'\0', 0)
        yield ('%d %d %s %s' % (start, sectors, target, _without_key(
            target, _text(data, at + _TARGET.size)))).rstrip()
        at = at_next  # from the beginning, unlike that of a name


def _without_key(target: str, text: str) -> str:
    """As dmsetup shows it: a key that is not in the keyring stays there."""
    if target == 'integrity':
        return _KEYED.sub(lambda found: found[1] + '0' * len(found[2]), text)
    words = text.split(' ')
    if target == 'crypt' and len(words) > 1 and words[1][:1] != ':':
        words[1] = '0' * len(words[1])
    return ' '.join(words)


def _data(answer: bytearray) -> bytes:
    size, start = _HEADER.unpack_from(answer)[3:5]
    return bytes(answer[start:min(size, len(answer))])


def _unpack(what: struct.Struct, data: bytes, at: int
            ) -> tuple[typing.Any, ...]:
    try:
        return what.unpack_from(data, at)
    except struct.error as exc:
        raise Malformed('%s at %d of %d' % (exc, at, len(data)))


def _text(data: bytes, at: int) -> str:
    end = data.find(b'\0', at)
    if end < 0:
        raise Malformed('a text without an end at %d' % at)
    return data[at:end].decode(errors=_ERRORS)
