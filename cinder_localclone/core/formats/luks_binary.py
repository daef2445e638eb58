# SPDX-License-Identifier: Apache-2.0
"""The two copies of a LUKS2 header, as they are on the disk. Pure.

cryptsetup goes on with either of them and does not say so; it writes the
other anew if it may. So whether both are whole has to be seen by their bytes.
"""

import dataclasses
import hashlib
import struct

from oslo_utils import units

#: How much of a device has both, of a header as the driver makes it.
READ_BYTES = units.Mi
#: Magic, version, size, sequence number; checksum's algorithm; UUID.
_BEGIN = struct.Struct('>6sHQQ')
_ALGORITHM, _UUID = slice(72, 104), slice(168, 208)
CHECKSUM = slice(448, 512)
FIRST, SECOND = b'LUKS\xba\xbe', b'SKUL\xba\xbe'
#: Where the second may begin: there are no other sizes.
_SIZES = tuple(1 << bits for bits in range(14, 20))


@dataclasses.dataclass(frozen=True)
class Copy:
    """One that is whole.

    :param sequence: it grows with every change
    """

    size: int
    sequence: int
    uuid: str


def newest(data: bytes) -> tuple[int, int, int] | None:
    """The newest whole copy of a header, which is the one that counts.

    :param data: as of :func:`problems`
    :returns: where it begins, its size, and its sequence number; None if
        there is none
    """
    first, second = _both(data)
    found = [(copy.sequence, -begin, copy.size) for begin, copy in (
        (0, first), (second.size if second else 0, second)) if copy]
    if not found:
        return None
    sequence, before, size = max(found)
    return -before, size, sequence


def problems(data: bytes) -> list[str]:
    """What is wrong with the copies of a header; nothing, if it is whole.

    :param data: what a device begins with, :data:`READ_BYTES` of it
    """
    first, second = _both(data)
    found = ['the %s copy of its header is damaged' % which
             for which, copy in (('first', first), ('second', second))
             if copy is None]
    if first and second and first != second:
        found.append('the copies of its header are of different times')
    return found


def _both(data: bytes) -> tuple[Copy | None, Copy | None]:
    first = _copy(data, 0, FIRST)
    return first, next(filter(None, (
        _copy(data, size, SECOND)
        for size in ((first.size,) if first else _SIZES))), None)


def _copy(data: bytes, begin: int, magic: bytes) -> Copy | None:
    """The copy that begins somewhere, if it is whole."""
    if len(data) < begin + CHECKSUM.stop:
        return None
    found, version, size, sequence = _BEGIN.unpack_from(data, begin)
    if (found, version) != (magic, 2) or size not in _SIZES or (
            begin + size > len(data)):
        return None
    copy = bytearray(data[begin:begin + size])
    expected, how = bytes(copy[CHECKSUM]), algorithm(copy)
    copy[CHECKSUM] = bytes(CHECKSUM.stop - CHECKSUM.start)
    if how not in hashlib.algorithms_available:
        return None
    digest = hashlib.new(how, copy).digest()
    return Copy(size, sequence, _text(copy[_UUID])) if (
        expected.startswith(digest)) else None


def algorithm(copy: bytes | bytearray) -> str:
    """What a copy's checksum is made with."""
    return _text(copy[_ALGORITHM])


def _text(data: bytes | bytearray) -> str:
    return bytes(data).rstrip(b'\0').decode('ascii', 'replace')
