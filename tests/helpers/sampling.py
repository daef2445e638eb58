# SPDX-License-Identifier: Apache-2.0
"""How much of an exhaustive test is run, and which part of it."""

from collections.abc import Callable
import functools
import os
import pathlib
import random

from lab.core import source

#: Of the environment, if not empty: run everything.
ALL = 'LOCALCLONE_TEST_ALL'
#: Of the environment: any text; the same text chooses the same pairs.
SEED = 'LOCALCLONE_TEST_SEED'
#: Variants that share the moments of a way.
TURNS = 3
#: Pairs of moments that a test runs, of some thousands.
PAIRS = 40


def everything() -> bool:
    """Return whether all moments and all pairs are asked for."""
    return bool(os.environ.get(ALL))


@functools.cache
def _commit():
    return source.commit_of(
        pathlib.Path(__file__).parents[2]).rstrip('+') or 'archive'


def seed() -> str:
    """Return the seed: of the environment, else the commit.

    The commit is not known in an unpacked archive: that has one seed.
    """
    return os.environ.get(SEED) or _commit()


def choice(name: str) -> random.Random:
    """Return the generator of a test: by the seed and the test's name."""
    return random.Random('%s %s' % (seed(), name))


def turn(length: int, number: int | None) -> range:
    """Return the moments of a way that one of its variants stops at.

    :param length: how many moments the way has; they count from 1
    :param number: of the variant; None: it has no others
    """
    if number is None or everything():
        return range(1, length + 1)
    return range(1 + number % TURNS, length + 1, TURNS)


def pairs(name: str, run: Callable[[tuple[int, ...]], int]) -> None:
    """Run a scenario with a stop at two moments, for some pairs of them.

    :param name: of the test
    :param run: takes the moments, returns how many the whole way had
    """
    chosen, length = choice(name), run(())
    longest = length
    for _pair in range(PAIRS):
        first = chosen.randint(1, length)
        second = chosen.randint(first + 1, max(longest, first + 1))
        reached = run((first, second))
        if first < reached < second:  # the way ended before
            second = chosen.randint(first + 1, reached)
            reached = run((first, second))
        longest = max(longest, reached)
