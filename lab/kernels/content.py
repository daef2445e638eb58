# SPDX-License-Identifier: Apache-2.0
"""The content that a clone must have. Pure.

``init.sh`` writes the same patterns to the same regions.
"""

import dataclasses
import hashlib
import random

REGION = 64 << 10
BLOCK = 4096
REGIONS = 1024
SIZE = REGION * REGIONS
#: The first regions of each kind of write, and how many there are.
EARLY = range(8, 16)  # before the copy begins, whole regions
PARTIAL = range(24, 32)  # the third block of each
DISCARDED = range(40, 48)  # any content
REWRITTEN = range(48, 56)  # discarded, then written
MEANWHILE = range(600, 616)  # while it is copied
UNFLUSHED = range(700, 764)  # at the power cut: a block is old or new
AGAIN = range(800, 808)  # while it is copied after the power cut
LATE = range(900, 904)  # after the cut-over


def pattern(word: str, length: int) -> bytes:
    """What ``yes WORD | head -c LENGTH`` prints."""
    line = word.encode() + b'\n'
    return (line * (length // len(line) + 1))[:length]


def source(seed: int) -> bytes:
    """The content of the source."""
    return random.Random(seed).randbytes(SIZE)


def digest(data: bytes) -> str:
    """As sha256sum(1) prints it."""
    return hashlib.sha256(data).hexdigest()


@dataclasses.dataclass
class Difference:
    """A block that is not as it must be."""

    region: int
    block: int
    why: str

    def __str__(self):
        return 'region %d, block %d: %s' % (
            self.region, self.block, self.why)


def expected(before: bytes) -> bytes:
    """The content after all writes, but for the exempt regions.

    :param before: the content of the source
    """
    data = bytearray(before)
    for kind, regions in (
            ('early', EARLY), ('rewritten', REWRITTEN),
            ('meanwhile', MEANWHILE), ('again', AGAIN), ('late', LATE)):
        for region in regions:
            start = region * REGION
            data[start:start + REGION] = pattern(
                '%s-%d' % (kind, region), REGION)
    for region in PARTIAL:
        start = region * REGION + 2 * BLOCK
        data[start:start + BLOCK] = pattern('partial-%d' % region, BLOCK)
    return bytes(data)


def differences(before: bytes, found: bytes) -> list[Difference]:
    """Compare a destination with what it must contain.

    :param before: the content of the source
    :param found: the content of the destination
    """
    if len(found) < SIZE:
        return [Difference(len(found) // REGION, 0, 'the disk ends here')]
    wanted, wrong = expected(before), []
    for region in range(REGIONS):
        if region in DISCARDED:
            continue
        start = region * REGION
        if found[start:start + REGION] == wanted[start:start + REGION]:
            continue
        new = pattern('unflushed-%d' % region, REGION)
        for block in range(REGION // BLOCK):
            at, end = block * BLOCK, (block + 1) * BLOCK
            have = found[start + at:start + end]
            if have == wanted[start + at:start + end]:
                continue
            if region in UNFLUSHED and have == new[at:end]:
                continue
            wrong.append(Difference(
                region, block, 'the source\'s content, not what was written'
                if have == before[start + at:start + end] else 'zeroes'
                if not any(have) else 'other content'))
    return wrong
