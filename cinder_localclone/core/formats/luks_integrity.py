# SPDX-License-Identifier: Apache-2.0
"""How much room the tags of an authenticated volume take. Pure.

Below what decrypts such a volume is another device, of dm-integrity: that
keeps a tag of each sector beside the data, in a journal first. How it lays
that out is in the kernel's drivers/md/dm-integrity.c (calculate_journal_\
section_size, initialize_superblock, get_provided_data_sectors), and how long
tags are in cryptsetup's INTEGRITY_tag_size. A volume is to have its GiB
exactly. So the body is so much longer that just these are left of it: what
whole MiB would give beyond that is before the data.

All lengths are in 512-byte sectors, unless they say bytes.
"""

import dataclasses

from oslo_utils import units

from cinder_localclone.core import state
from cinder_localclone.core import volume_types

_MIB = units.Mi // state.SECTOR
#: Where data may begin: at whole blocks of 4096 bytes (cryptsetup).
_ALIGNED = 8
_SUPERBLOCK = 8
#: Of a journal: at most so much, or such a part of the device.
_LONGEST_JOURNAL, _JOURNAL_SHIFT = 131072, 7
#: In a journal: a section begins with so many sectors of entries, of which
#: each sector has room for so many bytes.
_ENTRY_SECTORS, _ENTRY_ROOM = 8, 504
#: After so many sectors of data their tags follow; those are padded.
_INTERLEAVE_SHIFT, _PADDING = 15, 4096
#: Bytes that authenticate a sector.
_MACS = {'hmac-sha256': 32, 'hmac-sha512': 64, 'aead': 16, 'poly1305': 16}
#: Bytes of what a sector is encrypted with besides, if that is random.
_NONCES = {'aes-gcm-random': 12, 'aegis128-random': 16, 'chacha20-random': 12}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where everything of a volume is.

    :param extra_bytes: by how much its body is longer than the volume
    :param offset_bytes: what comes before data and tags, the header first
    """

    extra_bytes: int
    offset_bytes: int


def layout(encryption: volume_types.Encryption, size_bytes: int
           ) -> Layout:
    """How a volume is laid out that has exactly so many bytes.

    :param size_bytes: whole MiB
    """
    if not encryption.authenticated:
        return Layout(volume_types.HEADER_BYTES,
                      volume_types.HEADER_BYTES)
    tag, block = _tag_bytes(encryption), _block(encryption)
    header = volume_types.HEADER_BYTES // state.SECTOR
    size = size_bytes // state.SECTOR
    # A longer device has a longer journal.
    body = header + size
    while True:
        needed = header + _needed(size, tag, block, body)
        if needed <= body:
            break
        body = -(-needed // _MIB) * _MIB
    offset = header + (body - needed) // _ALIGNED * _ALIGNED
    return Layout((body - size) * state.SECTOR, offset * state.SECTOR)


def provided(encryption: volume_types.Encryption, body: int, offset: int
             ) -> int:
    """How many sectors dm-integrity provides, as the kernel finds it.

    :param body: all sectors of the device
    :param offset: from which on they are dm-integrity's
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
    """What so many sectors take, with their tags and the journal.

    :param tag: bytes of one
    :param block: sectors that have one tag
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
    # The data of an area come after its tags.
    return _SUPERBLOCK + section * sections + (area + 1) * tags + last + 1
