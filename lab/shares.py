# SPDX-License-Identifier: Apache-2.0
"""Which modules of unit tests each worker of stestr runs; pure.

stestr knows how long a test takes once it has run it. Before, it shares the
tests out as they come, and one worker ends a minute before the other.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import re

#: Seconds of a module that nobody has timed: of most of them.
UNKNOWN = 0.7


def shares(modules: Iterable[str], seconds: Mapping[str, float],
           workers: int) -> list[list[str]]:
    """Return modules for each worker, which take all workers as long.

    :param modules: their names
    :param seconds: that each of them takes, about
    :returns: lists of names; none if one module takes longer than a worker
        may: stestr, which shares out test by test, does better then
    """
    took = {module: seconds.get(module, UNKNOWN) for module in modules}
    if max(took.values()) * workers > sum(took.values()):
        return []
    found: list[list[str]] = [[] for _worker in range(workers)]
    busy = [0.0] * workers
    for module in sorted(took, key=lambda each: (-took[each], each)):
        least = busy.index(min(busy))
        found[least].append(module)
        busy[least] += took[module]
    return found


def regexes(shared: list[list[str]]) -> list[str]:
    """Return what the ids of each worker's tests match, and no others do.

    The last worker's match whatever the others' do not, so that each test
    belongs to one.

    :param shared: what :func:`shares` has returned
    """
    others = [share for share in shared[:-1] if share]
    known = [module for share in others for module in share]
    return ['^' + _any_of(share) for share in others] + [
        '^(?!%s)' % _any_of(known) if known else '^']


def _any_of(modules):
    # One that can't be imported is a test of the loader's.
    return (r'(?:unittest\.loader\._FailedTest\.)?(?:%s)(?:\.|$)'
            % '|'.join(map(re.escape, modules)))
