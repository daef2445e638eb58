# SPDX-License-Identifier: Apache-2.0
"""Requests to the kernel's device-mapper and its answers. Pure.

Source: include/uapi/linux/dm-ioctl.h, drivers/md/dm-ioctl.c. Offsets in an
answer are used only within the answer.
"""

from collections.abc import Iterator
import dataclasses
import re
import struct
import typing

#: struct dm_ioctl: version[3], data_size, data_start, target_count,
#: open_count, flags, event_nr, padding, dev, name, uuid, data.
_HEADER = struct.Struct('=3I7IQ128s129s7x')
#: struct dm_name_list: dev, next; then a name.
_NAME = struct.Struct('=QI')
#: struct dm_target_spec: sector_start, length, status, next, target_type; a
#: text comes next.
_TARGET = struct.Struct('=QQiI16s')
#: _IOWR(0xfd, number, struct dm_ioctl)
LIST_DEVICES, TABLE_STATUS, TARGET_MSG = (
    3 << 30 | _HEADER.size << 16 | 0xfd << 8 | number
    for number in (2, 12, 14))
#: Flags: suspended; return the table, not the status; the answer did not fit;
#: no commit before the answer; UUIDs with the names.
_SUSPENDED, TABLE, _FULL, NOFLUSH, UUIDS = (
    1 << bit for bit in (1, 4, 8, 11, 14))
#: After a name, aligned: event_nr and flags (a UUID is next; there is no
#: UUID). Kernels before 5.13 have neither flag.
_EVENT = struct.Struct('=II')
_HAS_UUID, _HAS_NO_UUID = 1, 2
_LONGEST = 127
#: Another program may have given a device a name outside UTF-8.
_ERRORS = 'surrogateescape'
#: An algorithm and its key in a table of dm-integrity.
_KEYED = re.compile(
    r'\b((?:internal_hash|journal_crypt|journal_mac):[^: ]*:)([^ ]+)')


class Malformed(ValueError):
    """An answer that can't be parsed."""


def request(size: int, name: str = '', number: str = '', flags: int = 0,
            data: bytes = b'') -> bytearray:
    """Return a request, with space for the answer.

    :param size: least size in bytes
    :param name: of a device
    :param number: ``major:minor`` of a device, instead of its name
    :raises ValueError: if the name is too long
    """
    named = name.encode(errors=_ERRORS)
    if len(named) > _LONGEST:
        raise ValueError('the name is too long: %s' % name)
    size = max(size, _HEADER.size + len(data))
    return bytearray((_HEADER.pack(
        4, 0, 0, size, _HEADER.size, 0, 0, flags, 0, 0,
        _device(number), named, b'') + data).ljust(size, b'\0'))


def message(name: str, text: str) -> bytearray:
    """Return a request of DM_TARGET_MSG: a message to a device's only target.
    """
    return request(0, name, data=bytes(8) + text.encode() + b'\0')


def _device(number: str) -> int:
    """Encode a device number, as huge_encode_dev in include/linux/kdev_t.h."""
    if not number:
        return 0
    major, minor = map(int, number.split(':'))
    return minor & 0xff | major << 8 | (minor & ~0xff) << 12


@dataclasses.dataclass(frozen=True)
class Status:
    """A device, with its table or its status.

    :param number: ``major:minor``
    :param opened: open count
    :param lines: a line for each target, as dmsetup prints it
    """

    name: str
    uuid: str
    number: str
    opened: int
    suspended: bool
    lines: str


def is_full(answer: bytearray) -> bool:
    """Return whether an answer did not fit into its buffer."""
    return bool(_HEADER.unpack_from(answer)[7] & _FULL)


def parse_names(answer: bytearray) -> dict[str, str | None]:
    """Return the names of all devices in an answer to DM_LIST_DEVICES.

    :returns: UUID by name; None if the kernel does not report it
    :raises Malformed: if the answer can't be parsed
    """
    data, at = _data(answer), 0
    names: dict[str, str | None] = {}
    while len(data) > at:  # empty without any device
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
    """Return the UUID after a name; the answer may end before it."""
    at = -(-at // 8) * 8
    if at + _EVENT.size > len(data):
        return None
    _event, flags = _EVENT.unpack_from(data, at)
    if flags & _HAS_UUID:
        return _text(data, at + _EVENT.size)
    return '' if flags & _HAS_NO_UUID else None


def parse_status(answer: bytearray) -> Status:
    """Return the device in an answer to DM_TABLE_STATUS.

    :raises Malformed: if the answer can't be parsed
    """
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
        at = at_next  # relative to the data, unlike in the name list


def _without_key(target: str, text: str) -> str:
    """Return a target's arguments with zeros for a key, as dmsetup does.

    A reference to the kernel's keyring is kept.
    """
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
        raise Malformed('unterminated text at %d' % at)
    return data[at:end].decode(errors=_ERRORS)
