# SPDX-License-Identifier: Apache-2.0
"""Discards parts of a device, in a process of its own; see :mod:`.block`.

Run by its path, without anything of the driver: it has to start at once.
Standard input has a part a line: first byte, bytes. It ends early, without
an error, when its time is up.
"""

import fcntl
import os
import struct
import sys
import time

#: BLKDISCARD of include/uapi/linux/fs.h, _IO(0x12, 119): two 64-bit numbers.
_BLKDISCARD = 0x1277


def discard(path, parts, at_once, seconds):
    """Discard parts of a device.

    :param parts: lines of text
    :param at_once: most bytes of one call, so that none takes long
    :param seconds: after which no more are begun
    """
    deadline = time.monotonic() + seconds
    device = os.open(path, os.O_RDWR)
    for line in parts:
        start, length = map(int, line.split())
        for begin in range(start, start + length, at_once):
            if time.monotonic() >= deadline:
                return
            fcntl.ioctl(device, _BLKDISCARD, struct.pack(
                '=QQ', begin, min(at_once, start + length - begin)))


if __name__ == '__main__':
    discard(sys.argv[1], sys.stdin, int(sys.argv[2]), float(sys.argv[3]))
