# SPDX-License-Identifier: Apache-2.0
"""The space for the tags of an authenticated volume. Pure.

Below the crypt device of an authenticated volume is a dm-integrity device. It
keeps a tag of each sector beside the data, and writes them to a journal first.
Its layout is defined in the kernel's drivers/md/dm-integrity.c
(calculate_journal_section_size, initialize_superblock,
get_provided_data_sectors), the length of a tag in cryptsetup's
INTEGRITY_tag_size. A volume must have exactly its GiB. So the backing device
is longer by the layout's overhead, rounded up to whole MiB; the surplus lies
before the data.

All lengths are in 512-byte sectors, unless they are named as bytes.
"""

import dataclasses

from oslo_utils import units

from cinder_localclone.core import state
from cinder_localclone.core import volume_types

_MIB = units.Mi // state.SECTOR
#: Alignment of the data: blocks of 4096 bytes (cryptsetup).
_ALIGNED = 8
_SUPERBLOCK = 8
#: Greatest length of a journal, and its greatest part of the device.
_LONGEST_JOURNAL, _JOURNAL_SHIFT = 131072, 7
#: A section of the journal begins with sectors of entries; bytes for entries
#: in each of these sectors.
_ENTRY_SECTORS, _ENTRY_ROOM = 8, 504
#: Sectors of data between two areas of tags; padding of such an area.
_INTERLEAVE_SHIFT, _PADDING = 15, 4096
#: Bytes of a sector's authentication tag.
_MACS = {'hmac-sha256': 32, 'hmac-sha512': 64, 'aead': 16, 'poly1305': 16}
#: Bytes of a sector's random nonce.
_NONCES = {'aes-gcm-random': 12, 'aegis128-random': 16, 'chacha20-random': 12}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a volume on its backing device.

    :param extra_bytes: by how much the backing device is longer than the
        volume
    :param offset_bytes: length of the part before data and tags, with the
        header
    """

    extra_bytes: int
    offset_bytes: int


def layout(encryption: volume_types.Encryption, size_bytes: int
           ) -> Layout:
    """Return the layout for a volume of an exact size.

    :param size_bytes: whole MiB
    """
    if not encryption.authenticated:
        return Layout(volume_types.HEADER_BYTES,
                      volume_types.HEADER_BYTES)
    tag, block = _tag_bytes(encryption), _block(encryption)
    header = volume_types.HEADER_BYTES // state.SECTOR
    size = size_bytes // state.SECTOR
    # The length of the journal grows with the device.
    body = header + size
    while True:
        needed = header + _needed(size, tag, block, body)
        if needed <= body:
            break
        body = -(-needed // _MIB) * _MIB
    offset = header + (body - needed) // _ALIGNED * _ALIGNED
    return Layout((body - size) * state.SECTOR, offset * state.SECTOR)


def provided_sectors(encryption: volume_types.Encryption, body: int,
                     offset: int
                     ) -> int:
    """Return the data sectors provided by dm-integrity, as in the kernel.

    :param body: sectors of the whole device
    :param offset: the first sector of dm-integrity
    """
    tag, block = _tag_bytes(encryption), _block(encryption)
    found = 0
    for bit in reversed(range(3, body.bit_length())):
        more = found | 1 << bit
        if offset + _needed(more, tag, block, body) <= body:
            found = more
    return found


def _tag_bytes(encryption: volume_types.Encryption) -> int:
    return _MACS[encryption.integrity] + _NONCES.get(encryption.cipher, 0)


def _block(encryption: volume_types.Encryption) -> int:
    return encryption.sector_size // state.SECTOR


def _needed(size: int, tag: int, block: int, body: int) -> int:
    """Return the sectors needed for data, with its tags and the journal.

    :param size: sectors of the data
    :param tag: bytes of a tag
    :param block: sectors with a common tag
    :param body: sectors of the whole device
    """
    entry = -(-(8 + 8 * block + tag) // 8) * 8
    entries = _ENTRY_ROOM // entry * _ENTRY_SECTORS
    section = entries * block + _ENTRY_SECTORS
    sections = max(1, min(_LONGEST_JOURNAL, body >> _JOURNAL_SHIFT) // section)
    tags_bytes = tag * ((1 << _INTERLEAVE_SHIFT) // block)
    tags = -(-tags_bytes // _PADDING) * _PADDING // state.SECTOR
    last = size - 1
    area = last >> _INTERLEAVE_SHIFT
    # The data of an area comes after its tags.
    return _SUPERBLOCK + section * sections + (area + 1) * tags + last + 1
