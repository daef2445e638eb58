# SPDX-License-Identifier: Apache-2.0
"""The metadata of a dm-clone device, as the kernel writes it."""

import random
import struct

BLOCK = 4096
#: Of an array block, and of a node of the tree, as the kernel has it.
WORDS, ENTRIES = 509, 252
MAGIC = 0x8af27f64


class Writer:
    """Metadata with these regions local, on blocks in any order."""

    def __init__(self, regions, local, entries=ENTRIES, seed=1):
        self.blocks = {}
        self._numbers = list(range(1, 2000))
        random.Random(seed).shuffle(self._numbers)
        words = [0] * -(-regions // 64)
        for region in local:
            words[region // 64] |= 1 << region % 64
        level = []
        for place, at in enumerate(range(0, len(words), WORDS)):
            part = words[at:at + WORDS]
            number = self._numbers.pop()
            self.blocks[number] = struct.pack(
                '<IIIIQ', 0, WORDS, len(part), 8, number) + struct.pack(
                    '<%dQ' % len(part), *part)
            level.append((place, number))
        flags = 2
        while flags == 2 or len(level) > 1:
            level = [self._node(flags, level[at:at + entries])
                     for at in range(0, len(level), entries)]
            flags = 1
        (_key, self.root), = level
        self.blocks[0] = struct.pack(
            '<IIQ16sQI128sQQQ', 0, 0, 0, b'', MAGIC, 1, b'', 128,
            regions * 128, self.root)

    def _node(self, flags, entries):
        number, most = self._numbers.pop(), ENTRIES
        keys = [key for key, _value in entries]
        self.blocks[number] = struct.pack(
            '<IIQIIII', 0, flags, number, len(keys), most, 8, 0) + b''.join(
                struct.pack('<%dQ' % most, *each, *[0] * (most - len(keys)))
                for each in (keys, [value for _key, value in entries]))
        return keys[0], number

    def metadata(self):
        found = bytearray((max(self.blocks) + 1) * BLOCK)
        for number, block in self.blocks.items():
            found[number * BLOCK:number * BLOCK + len(block)] = block
        return bytes(found)


def regions(found):
    return [region for start, count in found
            for region in range(start, start + count)]
