# SPDX-License-Identifier: Apache-2.0
"""What a guest does to a disk, with proof; runs in a node.

``write``: 4 KiB blocks at random places of an area, each with its place, a
sequence number and a checksum, O_DIRECT and O_DSYNC; prints ``place number``
for each block that the disk has acknowledged, ``rate`` a second at most.
``verify``: reads such lines
and finds each block to hold that number or a later one: reports any that is
stale, missing or torn.
``gaps``: reads a block again and again, a millisecond after the last answer;
prints when, and the longest time between two answers, in milliseconds, twice a
second.
``sum``: prints the SHA-256 of an area, read with O_DIRECT. In a node a pipe to
sha256sum takes five to ten times as long.
"""

import hashlib
import mmap
import os
import random
import sys
import time

BLOCK = 4096
MIB = 1 << 20
READ = 4 * MIB  # at once


def block(place, number):
    """The content of a block, by its place and number."""
    body = b'%016d %016d ' % (place, number)
    body += hashlib.sha256(body).hexdigest().encode()
    return (body * (BLOCK // len(body) + 1))[:BLOCK]


def open_disk(path):
    """Open it for direct, synchronous writes."""
    return os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)


def write(path, first, count, seconds, seed, rate):
    """Write blocks until the time is up, print each."""
    disk, memory = open_disk(path), mmap.mmap(-1, BLOCK)
    chance, number = random.Random(seed), 0
    deadline = time.monotonic() + seconds
    worst = 0.0
    while time.monotonic() < deadline:
        place, number = first + chance.randrange(count), number + 1
        memory[:] = block(place, number)
        began = time.monotonic()
        os.pwritev(disk, [memory], place * BLOCK)
        worst = max(worst, time.monotonic() - began)
        print(place, number, flush=True)
        time.sleep(max(0, 1 / rate - (time.monotonic() - began)))
    print('# worst %.3f s' % worst)


def verify(path):
    """Verify the blocks of standard input; the exit code."""
    wanted = {}
    for line in sys.stdin:
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and line.endswith('\n'):
            wanted[int(words[0])] = int(words[1])
    disk, memory = open_disk(path), mmap.mmap(-1, BLOCK)
    bad = []
    for place, number in sorted(wanted.items()):
        os.preadv(disk, [memory], place * BLOCK)
        words_read = memory[:40].split()
        good = len(words_read) > 1 and words_read[1].isdigit() and (
            int(words_read[1]) >= number
            and memory[:] == block(place, int(words_read[1])))
        if not good:
            bad.append('%d: %d written, found %r' % (
                place, number, bytes(memory[:40])))
    print('%d blocks verified, %d bad' % (len(wanted), len(bad)))
    print('\n'.join(bad[:20]))
    return bool(bad) or not wanted


def gaps(path, seconds):
    """Read until the time is up, print the longest gaps."""
    disk, memory = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(
        -1, BLOCK)
    began = last = told = time.monotonic()
    worst = 0.0
    while last < began + seconds:
        os.preadv(disk, [memory], 0)
        now = time.monotonic()
        worst, last = max(worst, now - last), now
        if now > told + 0.5:
            print('%.3f %.1f' % (time.time(), worst * 1000), flush=True)
            told, worst = now, 0.0
        time.sleep(0.001)


def checksum(path, first_mib, mib):
    """Return the SHA-256 of an area, as hexadecimal digits.

    :raises SystemExit: if the disk ends before it
    """
    disk, memory = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(
        -1, READ)
    found, place, end = hashlib.sha256(), first_mib * MIB, (
        first_mib + mib) * MIB
    while place < end:
        count = os.preadv(disk, [memoryview(memory)[:end - place]], place)
        if not count:
            sys.exit('%s ends at %d, before %d' % (path, place, end))
        found.update(memoryview(memory)[:count])
        place += count
    return found.hexdigest()


if __name__ == '__main__':
    if sys.argv[1] == 'sum':
        print(checksum(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    elif sys.argv[1] == 'gaps':
        gaps(sys.argv[2], float(sys.argv[3]))
    elif sys.argv[1] == 'write':
        write(sys.argv[2], *[int(word) for word in sys.argv[3:8]])
    else:
        sys.exit(verify(sys.argv[2]))
