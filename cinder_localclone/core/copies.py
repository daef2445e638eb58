# SPDX-License-Identifier: Apache-2.0
"""The queue, the progress and the pace of copies, as values. Pure.

A copy is the hydration of a committed move. Every node computes the queue from
the same rows in the same order, so all nodes get the same result without
asking each other. A guest can use a volume while its copy waits in the queue,
as well as during the copy. :mod:`.moves.pace` computes the speed of a copy.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import enum

from oslo_utils import units

from cinder_localclone.core import state


class Pace(str, enum.Enum):
    """The choice of an operator: how a copy regards the I/O of the guest."""

    #: Slow while the guest does I/O, fast once it has rested for a moment.
    YIELD = 'yield'
    #: At full speed always.
    FULL = 'full'
    #: As YIELD, but the guest must have rested for some seconds; see
    #: :data:`.moves.pace.RESTED`.
    SPARE = 'spare'


class Speed(str, enum.Enum):
    """The speed of a running copy at a moment, by its reason."""

    #: Nothing slows the copy: the guest rests, or the pace is FULL.
    FULL = 'full'
    #: As slow as possible, or stopped, for the guest or for waiting callers.
    YIELDING = 'yielding'
    #: Beside a working guest, but faster than YIELDING: otherwise the copy
    #: would not reach its minimum rate, :data:`.moves.pace.FLOOR`.
    FLOOR = 'floor'
    #: Held back by the common limit of all copies to the node.
    LIMITED = 'limited'


_IN_WORDS: dict[str, str] = {
    Speed.FULL: 'full speed', Speed.YIELDING: 'yielding to the guest',
    Speed.FLOOR: 'at the floor', Speed.LIMITED: 'limited'}


def speed_in_words(speed: str) -> str:
    """Return the text of a speed for an operator.

    :param speed: a :class:`Speed`; an unknown speed is returned unchanged
    """
    return _IN_WORDS.get(speed, speed)


@dataclasses.dataclass(frozen=True)
class Settings:
    """An operator's settings for the copies to a node.

    :param pace: the pace of volumes without a pace in their type
    :param limit: bytes a second of all copies together; 0: no limit
    """

    pace: Pace = Pace.YIELD
    limit: int = 0

    def pace_for(self, extra_spec: str) -> Pace:
        """Return the pace of a volume's copy.

        :param extra_spec: pace in its volume type; '' or an unknown word: the
            pace of these settings
        """
        word = extra_spec.strip()
        return Pace(word) if word in tuple(Pace) else self.pace


@dataclasses.dataclass(frozen=True)
class Step:
    """The numbers that set the speed of a clone's hydration in the kernel.

    For both see :class:`.state.Geometry`.
    """

    threshold: int
    batch: int


#: The step with which the kernel copies no further region.
STANDSTILL = Step(0, 1)


@dataclasses.dataclass(frozen=True)
class Seen:
    """The kernel's counts of the I/O of a guest and of its volume's copy.

    :param ios: completed reads and writes of the handle, by the guest
    :param in_flight: reads and writes of the handle not completed yet
    :param copied: bytes written to the LV by the copy. It is the bytes written
        to the LV less the bytes written to the handle, so it is inexact by the
        I/O in flight between the two devices
    """

    ios: int
    in_flight: int
    copied: int


def parse_seen(handle: str, lv: str) -> Seen:
    """Parse the statistics of a handle and of the destination LV below it.

    The format is of Documentation/block/stat.rst. Every write of the guest
    reaches the LV. All other writes to the LV are from the copy.

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
    """A copy in the queue: a committed move in phase "migrating".

    All of its data may be local already.

    :param attached: whether an instance has the volume
    :param awaited: whether a snapshot or a clone waits for the copy's end
    :param stalled: time of the latest report of the running copy's stall, in
        seconds since the epoch; 0: the copy makes progress, or is not known to
        stall
    :param began: when the move began, seconds since the epoch
    :param pace: pace in the volume's type, '' without; see :meth:`Settings.pace_for`
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
    def hosts(self) -> frozenset[str]:
        """The service hosts of source and destination."""
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
    """Return the text "waiting in the queue" for an operator, with a number.

    :param position: number of the waiting copy; see :class:`Position`
    """
    suffix = 'th' if position % 100 in (11, 12, 13) else {
        1: 'st', 2: 'nd', 3: 'rd'}.get(position % 10, 'th')
    return 'waiting in the queue (%d%s)' % (position, suffix)


@dataclasses.dataclass(frozen=True)
class Position:
    """A copy's position in the queue.

    :param number: 0 if the copy may run. Otherwise its number, from 1, among
        the waiting copies from or to either of its nodes
    """

    entry: Entry
    number: int

    @property
    def may_run(self) -> bool:
        """Whether the copy may run now."""
        return not self.number


def positions(entries: Iterable[Entry], limits: Limits,
              dead: Collection[str]) -> dict[str, Position]:
    """Return the queue positions of all copies of a backend, by move id.

    First come copies awaited by a snapshot or a clone, then copies of attached
    volumes, then all others; among these the oldest move is first. In this
    order each copy runs if both its nodes are within their limits. A waiting
    copy does not block copies between other nodes.

    A stalled copy comes after all copies in progress, and a copy with a dead
    node comes last. Both get a free slot, but no slot needed by a copy in
    progress.

    :param entries: in any order
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
                bool(each.hosts & entry.hosts) for each in waiting))
    return found


def _order(entry: Entry, dead: Collection[str]) -> tuple[object, ...]:
    return (any(host in dead for host in entry.hosts), entry.stalled,
            not entry.awaited, not entry.attached, entry.began,
            entry.move_id)


def _has_slot(count: int, limit: int) -> bool:
    return limit <= 0 or count < limit


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a copy.

    :param percent: local regions of all regions, 0 to 100
    :param rate: bytes a second over the last samples; None before two samples
    :param seconds_left: None without a rate
    :param pause: seconds until the next try of a failing copy, 0 without
        failures; see :class:`.moves.hydration.Brake`
    :param position: number in the queue, 0 if the copy does not wait; see
        :class:`Position`
    :param pace: the :class:`Speed` at this moment, not the :class:`Pace`; ''
        if the copy does not run
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
