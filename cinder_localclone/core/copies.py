# SPDX-License-Identifier: Apache-2.0
"""Copies: their queue, their progress and their pace, as values. Pure.

Every node computes the queue from the same rows in the same order, so all
nodes get the same result without asking each other. A volume waiting in the
queue can be used as any other volume during its copy. :mod:`.moves.pace`
computes the speed of a copy.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import enum

from oslo_utils import units

from cinder_localclone.core import state


class Pace(str, enum.Enum):
    """The speed of a copy beside the I/O of the guest."""

    #: Slowly while the guest does I/O, else quickly.
    YIELD = 'yield'
    #: At full speed always.
    FULL = 'full'
    #: At the lowest speed until the guest has been idle for longer.
    SPARE = 'spare'


class Speed(str, enum.Enum):
    """The speed of a copy at a moment, and its reason."""

    FULL = 'full'
    YIELDING = 'yielding'
    FLOOR = 'floor'
    LIMITED = 'limited'


_IN_WORDS: dict[str, str] = {
    Speed.FULL: 'full speed', Speed.YIELDING: 'yielding to the guest',
    Speed.FLOOR: 'at the floor', Speed.LIMITED: 'limited'}


def speed_in_words(speed: str) -> str:
    """Return a speed for an operator; an unknown speed unchanged."""
    return _IN_WORDS.get(speed, speed)


@dataclasses.dataclass(frozen=True)
class Settings:
    """An operator's settings for the copies to a node.

    :param limit: bytes a second of all copies together; 0: none
    """

    pace: Pace = Pace.YIELD
    limit: int = 0

    def of(self, extra_spec: str) -> Pace:
        """Return the pace of a volume.

        :param extra_spec: pace in its type; '' or an unknown word: the pace of
            the node
        """
        word = extra_spec.strip()
        return Pace(word) if word in tuple(Pace) else self.pace


@dataclasses.dataclass(frozen=True)
class Step:
    """The hydration settings for the kernel; see :class:`.state.Geometry`."""

    threshold: int
    batch: int


#: The kernel copies no further region.
STANDSTILL = Step(0, 1)


@dataclasses.dataclass(frozen=True)
class Seen:
    """The counters of the kernel at a moment.

    :param ios: completed reads and writes of the handle
    :param in_flight: reads and writes of the handle not completed yet
    :param copied: bytes written to the LV by the copy, not by the guest. A
        difference of two counters, inexact by the I/O in flight between them
    """

    ios: int
    in_flight: int
    copied: int


def parse_seen(handle: str, lv: str) -> Seen:
    """Read the statistics of two disks (Documentation/block/stat.rst).

    Every write of the guest reaches the LV. The other writes to the LV are the
    copy.

    :param handle: statistics of the handle
    :param lv: statistics of the LV
    :raises ValueError: if a text is in another format
    """
    above, below = ([int(word) for word in text.split()]
                    for text in (handle, lv))
    if min(len(above), len(below)) < 11:
        raise ValueError('not the statistics of a disk')
    return Seen(above[0] + above[4], above[8],
                (below[6] - above[6]) * state.SECTOR)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A committed move with, possibly, data left to copy.

    :param attached: whether an instance has the volume
    :param awaited: whether a snapshot or a clone waits for the copy's end
    :param stalled: seconds since the epoch when the running copy was last seen
        to make no progress; 0: never, or it has made progress since
    :param began: when the move began, seconds since the epoch
    :param pace: pace in the volume's type; see :mod:`.pace`
    :param migrating: whether two nodes have the volume attached during a live
        migration of its instance
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
    """Maximum numbers of running copies; 0 or less: no limit.

    :param into: to one node
    :param out_of: from one node
    """

    into: int = 2
    out_of: int = 2


def position_in_words(position: int) -> str:
    """Return the state of a waiting copy for an operator."""
    suffix = 'th' if position % 100 in (11, 12, 13) else {
        1: 'st', 2: 'nd', 3: 'rd'}.get(position % 10, 'th')
    return 'waiting in the queue (%d%s)' % (position, suffix)


@dataclasses.dataclass(frozen=True)
class Position:
    """A copy's position in the queue.

    :param number: 0 if the copy runs; else its number among the waiting copies
        with a node in common
    """

    entry: Entry
    number: int

    @property
    def runs(self) -> bool:
        """Whether the copy may run now."""
        return not self.number


def positions(entries: Iterable[Entry], limits: Limits,
              dead: Collection[str]) -> dict[str, Position]:
    """Return the queue positions of all copies of a backend, by move id.

    The first copy within the limits runs, then the next. A waiting copy does
    not block copies between other nodes.

    A stalled copy comes after all copies in progress, and a copy with a dead
    node comes last. Either may still continue, but keeps no other copy from
    running.

    :param dead: service hosts with a volume service that is down
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
    """The progress of a copy.

    :param percent: of the regions, 0 to 100
    :param rate: bytes a second over the last samples; None before two samples
    :param seconds_left: None without a rate
    :param pause: seconds until the next try; see
        :class:`.moves.hydration.Brake`
    :param position: in the queue; see :func:`positions`. 0: it does not wait
    :param pace: the :class:`Speed` at this moment; '' if the copy must not run
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
