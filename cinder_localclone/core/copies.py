# SPDX-License-Identifier: Apache-2.0
"""Copies: their queue, their progress and their pace, as values. Pure.

Every node computes the queue for itself, from the same rows in the same order,
so all have the same answer and no node asks another one. A volume that waits
can be used as any other that is not all copied yet. :mod:`.moves.pace` says
how fast a copy may go.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import enum

from oslo_utils import units

from cinder_localclone.core import state


class Pace(str, enum.Enum):
    """How a copy goes beside its guest."""

    #: Slowly while the guest works, else quickly.
    YIELD = 'yield'
    #: At full speed, whatever the guest does.
    FULL = 'full'
    #: As slowly as can be until the guest has rested for longer.
    SPARE = 'spare'


class Speed(str, enum.Enum):
    """How fast a copy may go at a moment, and why."""

    FULL = 'full'
    YIELDING = 'yielding'
    FLOOR = 'floor'
    LIMITED = 'limited'


_IN_WORDS: dict[str, str] = {
    Speed.FULL: 'full speed', Speed.YIELDING: 'yielding to the guest',
    Speed.FLOOR: 'at the floor', Speed.LIMITED: 'limited'}


def speed_in_words(speed: str) -> str:
    """What an operator reads; of a speed unknown here, its own word."""
    return _IN_WORDS.get(speed, speed)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What an operator has set for the copies to a node.

    :param limit: bytes a second of all copies together; 0: none
    """

    pace: Pace = Pace.YIELD
    limit: int = 0

    def of(self, extra_spec: str) -> Pace:
        """The pace of a volume.

        :param extra_spec: what its type says; '' or nonsense: nothing
        """
        word = extra_spec.strip()
        return Pace(word) if word in tuple(Pace) else self.pace


@dataclasses.dataclass(frozen=True)
class Step:
    """What the kernel is told; see :class:`.state.Geometry`."""

    threshold: int
    batch: int


#: Nothing new is copied.
STANDSTILL = Step(0, 1)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the kernel has counted so far.

    :param ios: reads and writes that the handle has completed
    :param in_flight: those that it has not
    :param copied: bytes that were written to the LV, but not by the guest;
        a difference of two counters, off by what one of them has yet to count
    """

    ios: int
    in_flight: int
    copied: int


def parse_seen(handle: str, lv: str) -> Seen:
    """Read what Documentation/block/stat.rst describes of both devices.

    All that a guest writes reaches the LV; what is written to that besides
    was copied.

    :raises ValueError: if it is something else
    """
    above, below = ([int(word) for word in text.split()]
                    for text in (handle, lv))
    if min(len(above), len(below)) < 11:
        raise ValueError('not the statistics of a disk')
    return Seen(above[0] + above[4], above[8],
                (below[6] - above[6]) * state.SECTOR)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A committed move that may have something left to copy.

    :param attached: whether an instance has the volume
    :param awaited: whether a snapshot or a clone waits for the copy's end
    :param stalled: when it was last seen that nothing of it is copied in
        its turn; seconds. 0: it was not, or has made progress since
    :param began: when the move did; seconds
    :param pace: what the volume's type says of it; see :mod:`.pace`
    :param migrating: whether two nodes have it attached: Nova live-migrates
        its instance
    """

    move_id: str
    volume_id: str
    source: str
    destination: str
    attached: bool = False
    awaited: bool = False
    stalled: float = 0
    began: float = 0
    pace: str = ''
    migrating: bool = False

    @property
    def ends(self) -> frozenset[str]:
        """The service hosts of both nodes."""
        return frozenset((self.source, self.destination))


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many copies run at one time; 0 or less: as many as there are.

    :param into: to one node
    :param out_of: from one node
    """

    into: int = 2
    out_of: int = 2


def position_in_words(position: int) -> str:
    """What an operator reads of a copy that waits."""
    suffix = 'th' if position % 100 in (11, 12, 13) else {
        1: 'st', 2: 'nd', 3: 'rd'}.get(position % 10, 'th')
    return 'waiting for its turn (%d%s)' % (position, suffix)


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a copy is in the queue.

    :param number: 0 if it runs; else its number among those that wait for the
        same nodes
    """

    entry: Entry
    number: int

    @property
    def runs(self) -> bool:
        """Whether it is its turn."""
        return not self.number


def positions(entries: Iterable[Entry], limits: Limits,
              dead: Collection[str]) -> dict[str, Position]:
    """The turns of all copies of a backend, by their shadows' ids.

    The first one that the limits leave room for runs, then the next. One that
    has to wait for its nodes holds nobody up who waits for others.

    What is stalled comes after all that is not, in turns; what needs a node
    that is dead comes last. Either may well go on, but keeps out nothing else.

    :param dead: service hosts whose volume service is down
    """
    into, out_of = collections.Counter[str](), collections.Counter[str]()
    waiting: list[Entry] = []
    found: dict[str, Position] = {}
    for entry in sorted(entries, key=lambda each: _order(each, dead)):
        if (_has_slot(into[entry.destination], limits.into)
                and _has_slot(out_of[entry.source], limits.out_of)):
            into[entry.destination] += 1
            out_of[entry.source] += 1
            found[entry.move_id] = Position(entry, 0)
        else:
            waiting.append(entry)
            found[entry.move_id] = Position(entry, sum(
                bool(each.ends & entry.ends) for each in waiting))
    return found


def _order(entry: Entry, dead: Collection[str]) -> tuple[object, ...]:
    return (any(host in dead for host in entry.ends), entry.stalled,
            not entry.awaited, not entry.attached, entry.began,
            entry.move_id)


def _has_slot(count: int, limit: int) -> bool:
    return limit <= 0 or count < limit


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a copy is.

    :param percent: of the regions, 0 to 100
    :param rate: bytes a second over the last samples; None before two
    :param seconds_left: None while there is no rate
    :param pause: seconds for which it is not tried again; see
        :class:`.moves.hydration.Brake`
    :param position: that of one which waits for its turn; see
        :func:`positions`
    :param pace: how fast it may go at this moment, a
        :class:`Speed`; '' if it may not
    """

    percent: float
    rate: float | None
    seconds_left: float | None
    pause: float = 0
    position: int = 0
    pace: str = ''

    def __str__(self) -> str:
        if self.position:
            return '%.1f %%, %s' % (
                self.percent, position_in_words(self.position))
        if self.pause:
            return '%.1f %%, tried again in %.0f s' % (
                self.percent, self.pause)
        if not self.rate or self.seconds_left is None:
            return '%.1f %%' % self.percent
        return '%.1f %%, %.0f MiB/s, %.0f s left' % (
            self.percent, self.rate / units.Mi, self.seconds_left)
