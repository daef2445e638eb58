# SPDX-License-Identifier: Apache-2.0
"""The regions recorded as local in the metadata of dm-clone. Pure.

No existing program reads them. The format is defined in the kernel's
drivers/md: dm-clone-metadata.c for the superblock, persistent-data/dm-bitset.c
for the bits, stored as an array of words (dm-array.c) in a B-tree
(dm-btree.c). The metadata of a clone in use is as old as its last commit.
"""

from collections.abc import Sequence
import struct
import typing

#: Pairs of first region and count, ascending.
Regions: typing.TypeAlias = Sequence[Sequence[int]]

BLOCK = 4096
#: struct superblock_disk: csum, flags, blocknr, uuid, magic, version,
#: metadata_space_map_root, region_size, target_size, bitset_root.
_SUPERBLOCK = struct.Struct('<IIQ16sQI128sQQQ')
_MAGIC = 0x8af27f64
#: struct node_header: csum, flags, blocknr, nr_entries, max_entries,
#: value_size, padding; then keys, then values.
_NODE = struct.Struct('<IIQIIII')
_INTERNAL, _LEAF = 1, 2
#: struct array_block: csum, max_entries, nr_entries, value_size, blocknr;
#: then values.
_ARRAY = struct.Struct('<IIIIQ')
#: The greatest depth of the tree: 64 bits in each of 509 words of a block, 252
#: blocks a level.
_DEPTH = 6


class OddMetadata(ValueError):
    """Metadata that can't be parsed reliably."""


def local_regions(metadata: bytes, regions: int) -> Regions:
    """Return the regions recorded as local.

    :param metadata: the whole content of the metadata device
    :param regions: the number of regions
    :raises OddMetadata: if the metadata can't be parsed
    """
    try:
        fields = _SUPERBLOCK.unpack_from(metadata)
        if fields[4] != _MAGIC or fields[5] != 1:
            raise OddMetadata('magic %#x, version %d' % fields[4:6])
        blocks: dict[int, tuple[int, ...]] = {}
        _walk(metadata, fields[9], blocks, _DEPTH)
    except (struct.error, OverflowError) as exc:
        raise OddMetadata(str(exc))
    if sorted(blocks) != list(range(len(blocks))):
        raise OddMetadata('%d array blocks' % len(blocks))
    words = [word for _key, block in sorted(blocks.items()) for word in block]
    if regions > 64 * len(words):
        raise OddMetadata('%d words' % len(words))
    found: list[list[int]] = []
    for first in range(0, regions, 64):
        word, count = words[first // 64], min(64, regions - first)
        if not ~word & (1 << count) - 1:  # most words are all ones, or 0
            _add(found, first, count)
        elif word:
            for region in range(first, first + count):
                if word >> region % 64 & 1:
                    _add(found, region, 1)
    return found


def _add(found: list[list[int]], region: int, count: int) -> None:
    if found and sum(found[-1]) == region:
        found[-1][1] += count
    else:
        found.append([region, count])


def _walk(metadata: bytes, block: int, blocks: dict[int, tuple[int, ...]],
          depth: int) -> None:
    """Collect the words of all blocks of the array, by block index."""
    at = block * BLOCK
    _csum, flags, number, entries, most, size, _padding = _NODE.unpack_from(
        metadata, at)
    if (number != block or not depth or entries > most or size != 8
            or flags not in (_INTERNAL, _LEAF)):
        raise OddMetadata('node %d' % block)
    keys = struct.unpack_from('<%dQ' % entries, metadata, at + _NODE.size)
    values = struct.unpack_from('<%dQ' % entries, metadata,
                                at + _NODE.size + 8 * most)
    for key, value in zip(keys, values):
        if flags == _INTERNAL:
            _walk(metadata, value, blocks, depth - 1)
        else:
            blocks[key] = _words(metadata, value)


def _words(metadata: bytes, block: int) -> tuple[int, ...]:
    at = block * BLOCK
    _csum, most, entries, size, number = _ARRAY.unpack_from(metadata, at)
    if number != block or entries > most or size != 8:
        raise OddMetadata('array block %d' % block)
    return struct.unpack_from('<%dQ' % entries, metadata, at + _ARRAY.size)
