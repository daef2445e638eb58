# SPDX-License-Identifier: Apache-2.0
"""The two copies of a LUKS2 header on the disk. Pure.

If a copy is damaged, cryptsetup uses the other copy without a message, and
repairs the damaged copy if the device is writable. So damage must be detected
in the bytes.
"""

import dataclasses
import hashlib
import struct

from oslo_utils import units

#: Number of bytes to read from the beginning of a device. They include both
#: copies of any header formatted by this driver.
READ_BYTES = units.Mi
#: Magic, version, size, sequence number of a copy.
_BEGIN = struct.Struct('>6sHQQ')
#: Bytes in a copy with its checksum's algorithm, its UUID and its checksum.
_ALGORITHM, _UUID = slice(72, 104), slice(168, 208)
CHECKSUM = slice(448, 512)
#: Magics of the first copy and of the second copy.
FIRST, SECOND = b'LUKS\xba\xbe', b'SKUL\xba\xbe'
#: Possible offsets of the second copy, equal to the size of a copy.
_SIZES = tuple(1 << bits for bits in range(14, 20))


@dataclasses.dataclass(frozen=True)
class Copy:
    """An undamaged copy.

    :param size: bytes
    :param sequence: it grows with every change
    """

    size: int
    sequence: int
    uuid: str


def newest(data: bytes) -> tuple[int, int, int] | None:
    """Return the place of the newest undamaged copy of a header.

    cryptsetup uses this copy. If both have the same sequence number, it is the
    first copy.

    :param data: as in :func:`problems`
    :returns: offset, size (bytes), sequence number; None if both are damaged
    """
    first, second = _both(data)
    found = [(copy.sequence, -begin, copy.size) for begin, copy in (
        (0, first), (second.size if second else 0, second)) if copy]
    if not found:
        return None
    sequence, before, size = max(found)
    return -before, size, sequence


def problems(data: bytes) -> list[str]:
    """Return the faults of the copies of a header, in words.

    The two copies are compared by size, sequence number and UUID only: their
    salts and checksums differ in any case.

    :param data: the first :data:`READ_BYTES` of a device
    :returns: an empty list if both copies are undamaged and agree
    """
    first, second = _both(data)
    found = ['the %s copy of its header is damaged' % which
             for which, copy in (('first', first), ('second', second))
             if copy is None]
    if first and second and first != second:
        found.append('the copies of its header differ')
    return found


def _both(data: bytes) -> tuple[Copy | None, Copy | None]:
    """Return the first and the second copy; None for a damaged copy."""
    first = _copy(data, 0, FIRST)
    return first, next(filter(None, (
        _copy(data, size, SECOND)
        for size in ((first.size,) if first else _SIZES))), None)


def _copy(data: bytes, begin: int, magic: bytes) -> Copy | None:
    """Return the copy at an offset, if it is undamaged."""
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
    """Return the hash algorithm of a copy's checksum, such as "sha256"."""
    return _text(copy[_ALGORITHM])


def _text(data: bytes | bytearray) -> str:
    return bytes(data).rstrip(b'\0').decode('ascii', 'replace')
