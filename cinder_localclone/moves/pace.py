# SPDX-License-Identifier: Apache-2.0
"""How fast copies go beside the guests of a node. Pure: time is an argument.

What a guest notices of a copy is how many regions are in flight when its own
I/O comes: each of its flushes, and each first touch, waits behind them.
So a copy takes steps between one region at a time and all that its geometry
allows. :class:`Law` chooses one by what the guest does, :class:`Budget` keeps
all copies of a node together within a rate. Neither starts what is held back:
a step is two numbers that the kernel looks at only while it may copy.
"""

from collections.abc import Mapping
import enum

from oslo_utils import units

from cinder_localclone.core import copies
from cinder_localclone.core import state

#: Bytes a second that a copy makes, if disks and network allow, beside a guest
#: that is never idle, so that it ends: 100 GiB in three hours. A lower rate
#: helps no guest: a synchronous write is slow if anything was copied since the
#: one before, be it at 10 or at 60 MiB/s (measured; doc/source/admin/costs).
FLOOR = 10 * units.Mi
#: Seconds over which a rate is compared with the floor; how far beyond the
#: floor it has to be for a step back.
JUDGED, BEYOND = 2.0, 1.5
#: Seconds' worth of its share that a copy may save up.
HELD = 1.0
#: Seconds for which a copy in debt waits at most; after a minute it would
#: count as stalled.
LONGEST_WAIT = 20.0
#: Seconds for which copies stop at most, in a row, for those who wait for
#: something of a node.
STOPPED = 10.0
#: Seconds of that allowance that come back for each in which they don't stop.
REGAINED = 0.5
#: Seconds for which they go on giving way after the last one waited: to its
#: next step, or a first read.
AFTERWARDS = 3.0
#: Sectors of a unit in which steps are measured.
_UNIT = 128


#: Seconds that a guest rests before its copy goes quickly; and those after
#: which it has gone, as it seems.
RESTED = {copies.Pace.YIELD: 0.6, copies.Pace.FULL: 0.0,
          copies.Pace.SPARE: 5.0}
GONE = {copies.Pace.YIELD: 5.0, copies.Pace.SPARE: 30.0}
#: How many units are in flight while the guest rests, and when it has gone, or
#: never came. What it does next waits for all of them. While it works it is
#: one: the first step.
_RESTING, _ALONE = 32, 128


class GiveWay(enum.Enum):
    """Whether a copy gives way to those who wait for something of its node."""

    NO = 'no'
    #: As to a guest that works.
    SLOWING = 'slowing'
    STOPPING = 'stopping'


def ladder(geometry: state.Geometry) -> tuple[copies.Step, ...]:
    """The steps of a copy, from the slowest to all that it is made for."""
    own = copies.Step(geometry.threshold, geometry.batch)
    found: list[copies.Step] = []
    units = 1
    while True:
        threshold = _regions(units, geometry)
        if threshold >= own.threshold:
            return (*found, own)
        # A guest's request waits behind each of these, so they must not be
        # large; with few of them in flight the copy itself waits.
        batch = _regions(1 if units <= 2 else min(units, max(8, units // 4)),
                         geometry)
        step = copies.Step(threshold, min(batch, own.batch))
        if step not in found:
            found.append(step)
        units *= 2


def _regions(units: int, geometry: state.Geometry) -> int:
    return max(1, units * _UNIT // geometry.region_sectors)


class Law:
    """The pace of one copy, from look to look at the same devices."""

    def __init__(self, geometry: state.Geometry):
        self.steps = ladder(geometry)
        self._resting = self._place(_RESTING, geometry)
        self._alone = self._place(_ALONE, geometry)
        self._seen: copies.Seen | None = None
        #: Whether it could be compared with what was seen before; since when.
        self._compared = False
        self._began = 0.0
        #: The most bytes that were ever seen to be copied: what a guest has
        #: under way makes them come and go.
        self._most = 0
        #: When the guest was last seen to work.
        self._worked: float | None = None
        #: When the copy last went slowly, for the guest or for others.
        self._yielded: float | None = None
        #: When the copy was last compared with the floor, and the bytes that
        #: it had copied by then.
        self._judged: tuple[float, int] | None = None
        self._copied = 0
        #: Steps taken for the sake of the floor.
        self._raised = 0

    def _place(self, units: int, geometry: state.Geometry) -> int:
        """The place of the last step with so many, or the first one."""
        return max(place for place, step in enumerate(self.steps)
                   if not place or step.threshold <= _regions(
                       units, geometry))

    def take(self, seen: copies.Seen | None, now: float) -> int:
        """Take in what a look has shown.

        :param seen: None if it could not be seen
        :returns: bytes copied since the last one
        """
        before, self._seen = self._seen, seen
        self._compared = not (before is None or seen is None)
        if not self._compared:
            self._began = now
        if seen is None:
            return 0
        if seen.in_flight or before and seen.ios != before.ios:
            self._worked = now
        if before is None or seen.ios < before.ios:  # another handle
            self._most = seen.copied
        copied = max(0, seen.copied - self._most)
        self._most += copied
        self._copied += copied
        return copied

    def step(self, pace: copies.Pace, now: float, room: float | None = None,
             give_way: GiveWay = GiveWay.NO) -> tuple[copies.Step,
                                                      copies.Speed]:
        """How it goes on.

        What can't be seen, or not compared yet, is copied as beside a guest
        that rests.

        :param room: how much of its share of the budget is left, at most 1;
            0 or less: nothing; None: there is no budget
        :param give_way: whether to others than its guest, too
        """
        if give_way is GiveWay.STOPPING and pace is not copies.Pace.FULL:
            self._yielded, self._judged = now, None
            return copies.STANDSTILL, copies.Speed.YIELDING
        top = allowed = len(self.steps) - 1
        if room is not None:
            top = self._resting  # more would be beyond a limit at once
            # As many steps as there is room for.
            allowed = min(top, int(room * (top + 1))) if room > 0 else -1
        wanted, speed = min(
            top, self._unhindered(pace, now)), copies.Speed.FULL
        if (give_way is not GiveWay.NO and pace is not copies.Pace.FULL
                or self._is_beside(pace, now)):
            self._yielded = now
            self._judge(now)
            wanted = self._raised
            speed = (copies.Speed.FLOOR if self._raised
                     else copies.Speed.YIELDING)
        elif self._yielded is None or now - self._yielded >= JUDGED:
            # A shorter rest belongs to what is compared with the floor.
            self._judged, self._raised = None, 0
        if allowed < wanted:
            wanted, speed = allowed, copies.Speed.LIMITED
            self._judged = None  # it is the budget that holds it back
        return (copies.STANDSTILL if wanted < 0 else self.steps[wanted]), speed

    def _unhindered(self, pace: copies.Pace, now: float) -> int:
        """The step of a copy that nothing holds back."""
        if pace is copies.Pace.FULL:
            return len(self.steps) - 1
        if not self._compared:
            return self._resting
        since = self._began if self._worked is None else self._worked
        never_came = self._worked is None and pace is not copies.Pace.SPARE
        return (self._alone if never_came or now - since >= GONE[pace]
                else self._resting)

    def _is_beside(self, pace: copies.Pace, now: float) -> bool:
        """Whether a guest is at work that it is to yield to."""
        return (self._seen is not None and self._worked is not None
                and now - self._worked < RESTED[pace])

    def _judge(self, now: float) -> None:
        """A step up while the rate is beneath the floor, down beyond it.

        Not beyond what there is beside a guest that rests: what can't be
        copied faster would only stand in this one's way.
        """
        if self._judged is None:
            self._judged = now, self._copied
            return
        began, before = self._judged
        if now - began < JUDGED:
            return
        rate = (self._copied - before) / (now - began)
        if rate < FLOOR:
            self._raised = min(self._resting, self._raised + 1)
        elif rate >= BEYOND * FLOOR and self._raised:
            self._raised -= 1
        self._judged = now, self._copied


class Courtesy:
    """How the copies of a node give way to those who wait for it.

    What helps them most is that nothing is copied: they need the same
    processors, disks and network. So copies stop for a while; to who takes
    longer, and to one after the other, they give way as to a guest.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        self._looked: float | None = None
        self._way = GiveWay.NO
        #: Seconds that are left to stop; whether they are being regained.
        self._left = STOPPED
        self._spent = False

    def take(self, waiting: bool, now: float) -> GiveWay:
        """How they give way from now on.

        :param waiting: whether somebody has waited since the last look
        """
        elapsed = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if self._way is GiveWay.STOPPING:
            self._left -= elapsed
            self._spent = self._left <= 0
        else:
            self._left = min(STOPPED, self._left + REGAINED * elapsed)
            self._spent = self._spent and self._left < STOPPED
        if waiting:
            self._until = now + AFTERWARDS
        if self._until is None or now >= self._until:
            self._way = GiveWay.NO
        else:
            self._way = (GiveWay.SLOWING if self._spent
                         else GiveWay.STOPPING)
        return self._way


class Budget:
    """What all copies to a node may copy together, in fair shares.

    What one has no use for, because it yields to its guest, the others get.

    :param limit: bytes a second; 0: as many as they can
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._rooms: dict[str, float] = {}
        self._since: float | None = None

    def spend(self, copied: Mapping[str, int], now: float
              ) -> dict[str, float]:
        """Account for what was copied since the last look.

        :param copied: bytes, by copy; of all that there are
        :returns: how much of its share each has left: 1, all of a second; 0
            or less: nothing. Of none if there is no limit
        """
        since, self._since = self._since, now
        if not self._limit or not copied:
            return {}
        share = self._limit * HELD / len(copied)
        debt = self._limit * LONGEST_WAIT / len(copied)
        self._rooms = {key: max(-debt, self._rooms.get(key, 0.0) - spent)
                       for key, spent in copied.items()}
        elapsed = 0.0 if since is None else min(HELD, now - since)
        self._share_out(self._limit * elapsed, share)
        return {key: room / share for key, room in self._rooms.items()}

    def _share_out(self, left: float, share: float) -> None:
        """:param share: what each can have at most"""
        wanting = list(self._rooms)
        while left >= 1 and wanting:
            part, left = left / len(wanting), 0.0
            for key in wanting:
                room = min(share, self._rooms[key] + part)
                left += self._rooms[key] + part - room
                self._rooms[key] = room
            wanting = [key for key in wanting if self._rooms[key] < share]
