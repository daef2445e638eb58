# SPDX-License-Identifier: Apache-2.0
"""Which copies run now, and which wait for their turn. Pure.

Every node computes this for itself, from the same rows in the same order, so
all have the same answer and nobody has to be asked. A volume that waits can be
used as any other that is not all copied yet.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses

from cinder_localclone.core import copies


@dataclasses.dataclass(frozen=True)
class Turn:
    """Where a copy is in the queue.

    :param place: 0 if it runs; else its place among those that wait for the
        same nodes
    """

    entry: copies.Entry
    place: int

    @property
    def runs(self) -> bool:
        """Whether it is its turn."""
        return not self.place


def turns(entries: Iterable[copies.Entry], limits: copies.Limits,
          dead: Collection[str]) -> dict[str, Turn]:
    """The turns of all copies of a backend, by their shadows' ids.

    The first one that the limits leave room for runs, then the next. One that
    has to wait for its nodes holds nobody up who waits for others.

    What is stalled comes after all that is not, in turns; what needs a node
    that is dead comes last. Either may well go on, but keeps out nothing else.

    :param dead: service hosts whose volume service is down
    """
    into, out_of = collections.Counter[str](), collections.Counter[str]()
    waiting: list[copies.Entry] = []
    found: dict[str, Turn] = {}
    for entry in sorted(entries, key=lambda each: _order(each, dead)):
        if (_has_room(into[entry.destination], limits.into)
                and _has_room(out_of[entry.source], limits.out_of)):
            into[entry.destination] += 1
            out_of[entry.source] += 1
            found[entry.shadow_id] = Turn(entry, 0)
        else:
            waiting.append(entry)
            found[entry.shadow_id] = Turn(entry, sum(
                bool(each.ends & entry.ends) for each in waiting))
    return found


def _order(entry: copies.Entry, dead: Collection[str]) -> tuple[object, ...]:
    return (any(host in dead for host in entry.ends), entry.stalled,
            not entry.awaited, not entry.attached, entry.began,
            entry.shadow_id)


def _has_room(count: int, limit: int) -> bool:
    return limit <= 0 or count < limit
