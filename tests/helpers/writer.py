# SPDX-License-Identifier: Apache-2.0
"""A guest that writes while ranges are refilled."""

import struct


class Writer:
    """The metadata of a pool, as the kernel writes them.

    :param devices: what is mapped of each, by its number
    :param most: keys of a node
    """

    def __init__(self, devices, most=3):
        self.blocks, self._most = [b'', b''], most
        roots = [(number, self.tree([(block, block << 24 | 5)
                                     for block in sorted(mapped)]))
                 for number, mapped in sorted(devices.items())]
        root = self.tree(roots)
        self.blocks[0] = self._superblock(0, 1, 0)
        self.blocks[1] = self._superblock(1, 0, root)

    def _superblock(self, number, held, root):
        return struct.pack('<IIQ16sQIIQQ128s128sQ', 0, 0, number, b'',
                           27022010, 2, 0, 1, held, b'', b'', root)

    def tree(self, pairs, flags=2):
        nodes = []
        for at in range(0, max(1, len(pairs)), self._most):
            part = pairs[at:at + self._most]
            self.blocks.append(struct.pack(
                '<IIQIIII', 0, flags, len(self.blocks), len(part),
                self._most, 8, 0) + struct.pack(
                    '<%dQ' % self._most, *([key for key, _value in part]
                                           + [0] * self._most)[:self._most])
                + struct.pack('<%dQ' % len(part), *(
                    value for _key, value in part)))
            nodes.append((part[0][0] if part else 0, len(self.blocks) - 1))
        return nodes[0][1] if len(nodes) == 1 else self.tree(nodes, 1)

    def write(self, path):
        path.write_bytes(b''.join(
            each + bytes(4096 - len(each)) for each in self.blocks))
