# SPDX-License-Identifier: Apache-2.0
"""Known data on a whole disk, written and verified; runs in a node.

``fill PATH FIRST COUNT SEED``: MiBs that only the seed explains, flushed.
``verify PATH``: reads what there must be as JSON from standard input, and
prints how many blocks there are, what is wrong, and a digest of all bytes:

- ``fills``: [first MiB, MiBs, seed] of what was filled, the newest last
- ``areas``: [first MiB, MiBs] where a guest of :mod:`lab.guest.disk_io`
  wrote
- ``acknowledged``: {place: number} of its blocks that the disk confirmed
- ``only``: the MiBs to be read, if not all

All else must be as it was filled, or zero: anything that is not is another
tenant's. Blocks of an area that were not acknowledged may be there or not, but
not torn.

``watch PATH FIRST COUNT SEED SECONDS``: reads what was filled again and again,
block by block. Prints as JSON how many blocks it found ``right``, could not
read (``failed``) or found ``wrong``, and how many of those that had failed
were right later (``recovered``).
"""

import errno
import hashlib
import json
import mmap
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), 'guest'))
import disk_io  # noqa: E402  (runs without the packages of the lab)

MIB = 1 << 20
WORST = 20


def known(seed, index):
    """The data of one MiB that was filled."""
    return random.Random('%s/%d' % (seed, index)).randbytes(MIB)


def fill(path, first, count, seed):
    """Write known data."""
    disk = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, MIB)
    for index in range(count):
        memory[:] = known(seed, index)
        os.pwritev(disk, [memory], (first + index) * MIB)
    os.fsync(disk)


def watch(path, first, count, seed, seconds):
    """Read known data until the time is up; print how it went."""
    disk, size = os.open(path, os.O_RDONLY | os.O_DIRECT), disk_io.BLOCK
    memory = mmap.mmap(-1, size)
    wanted = b''.join(known(seed, index) for index in range(count))
    counts = dict.fromkeys(('right', 'failed', 'wrong', 'recovered'), 0)
    broken, deadline = set(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        for start in range(0, len(wanted), size):
            try:
                os.preadv(disk, [memory], first * MIB + start)
            except OSError as exc:
                if exc.errno != errno.EIO:
                    raise
                counts['failed'] += 1
                broken.add(start)
                continue
            if memory[:] != wanted[start:start + size]:
                counts['wrong'] += 1
                continue
            counts['right'] += 1
            counts['recovered'] += start in broken
            broken.discard(start)
    print(json.dumps(counts))


def bad_blocks(data, first_place, acknowledged, may_be_written, before):
    """What is wrong with the blocks of one MiB, in words.

    :param before: the bytes of this MiB before any guest wrote
    """
    size = disk_io.BLOCK
    for index in range(MIB // size):
        place, block = first_place + index, data[index * size:][:size]
        number = acknowledged.get(place)
        if number is None and block == before[index * size:][:size]:
            continue
        words = block[:40].split()
        ours = (len(words) > 1 and words[1].isdigit()
                and block == disk_io.block(place, int(words[1])))
        if not ours:
            yield 'block %d: %s, found %r' % (
                place, '%d acknowledged' % number if number is not None
                else 'never written', block[:32])
        elif number is None and not may_be_written:
            yield 'block %d: never written, found %r' % (place, block[:32])
        elif number is not None and int(words[1]) < number:
            yield 'block %d: %d acknowledged, %s found' % (
                place, number, int(words[1]))


def not_as_filled(index, data, expected):
    """Which KiBs of one MiB are not as they were filled, in words."""
    size = disk_io.BLOCK
    found = {start: data[start:start + size]
             for start in range(0, MIB, size)
             if data[start:start + size] != expected[start:start + size]}
    if found:
        yield ('MiB %d: not as it was filled, %d KiB from KiB %d to %d, of '
               'which %d KiB are zeros; begins %r' % (
                   index, len(found) * size >> 10, min(found) >> 10,
                   max(found) + size >> 10,
                   list(found.values()).count(bytes(size)) * size >> 10,
                   found[min(found)][:32]))


def verify(path, wanted):
    """Read the whole disk; print what is wrong."""
    disk = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = os.lseek(disk, 0, os.SEEK_END)
    memory, zeros = mmap.mmap(-1, MIB), bytes(MIB)
    acknowledged = {int(place): number for place, number in
                    wanted['acknowledged'].items()}
    filled = {first + index: (seed, index)
              for first, count, seed in wanted['fills']
              for index in range(count)}
    areas = {first + index for first, count in wanted['areas']
             for index in range(count)}
    bad, digest = [], hashlib.sha256()
    if size != wanted['mib'] * MIB:
        bad.append('%d bytes large' % size)
    for index in wanted.get('only') or range(size // MIB):
        os.preadv(disk, [memory], index * MIB)
        data = memory[:]
        digest.update(data)
        before = known(*filled[index]) if index in filled else zeros
        if index in filled and index not in areas:
            bad += not_as_filled(index, data, before)
        elif data != before:
            bad += bad_blocks(data, index * 256, acknowledged,
                              index in areas, before)
        elif any(place // 256 == index for place in acknowledged):
            bad.append('MiB %d: acknowledged blocks are not there' % index)
    print(json.dumps({'blocks': len(acknowledged), 'count': len(bad),
                      'bad': bad[:WORST], 'digest': digest.hexdigest()}))


if __name__ == '__main__':
    if sys.argv[1] == 'fill':
        fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    elif sys.argv[1] == 'watch':
        watch(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5],
              int(sys.argv[6]))
    else:
        verify(sys.argv[2], json.load(sys.stdin))
