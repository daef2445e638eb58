# SPDX-License-Identifier: Apache-2.0
"""The pace of copies beside the guests of a node. Pure: time is an argument.

Each flush of a guest, and each of its first accesses to a region, waits for
the regions in flight. So a copy has steps, from a single region at a time to
the full width of its geometry. :class:`Law` chooses the step by the guest's
I/O. :class:`Budget` keeps all copies of a node within a common rate. Neither
of them starts a paused copy: a step consists of two numbers, which the kernel
reads only while hydration is enabled.
"""

from collections.abc import Mapping
import enum

from oslo_utils import units

from cinder_localclone.core import copies
from cinder_localclone.core import state

#: Bytes per second for a copy beside a guest without any pause, if disks and
#: network allow it, so that the copy ends: 100 GiB in three hours. A lower
#: rate does not help the guest: a synchronous write is slow after any copied
#: region, at 10 as at 60 MiB/s (measured; doc/source/decide/figures).
FLOOR = 10 * units.Mi
#: Seconds over which a rate is compared with the floor; factor of the floor
#: from which the step goes down.
JUDGED, BEYOND = 2.0, 1.5
#: Seconds of its share that a copy may save up.
HELD = 1.0
#: Longest wait of a copy in debt, in seconds; after a minute it would count as
#: stalled.
LONGEST_WAIT = 20.0
#: Longest standstill of copies in a row, in seconds, while callers wait for
#: the node.
STOPPED = 10.0
#: Seconds of standstill regained for each second without a standstill.
REGAINED = 0.5
#: Seconds for which copies go on giving way after the last caller: for its
#: next step, or its first read.
AFTERWARDS = 3.0
#: Sectors of a unit for the width of steps.
_UNIT = 128


#: Seconds without guest I/O before the copy speeds up; and before the guest
#: counts as gone.
RESTED = {copies.Pace.YIELD: 0.6, copies.Pace.FULL: 0.0,
          copies.Pace.SPARE: 5.0}
GONE = {copies.Pace.YIELD: 5.0, copies.Pace.SPARE: 30.0}
#: Units in flight beside a resting guest, and without a guest. The guest's
#: next I/O waits for all of them. Beside a working guest it is a single unit:
#: the first step.
_RESTING, _ALONE = 32, 128


class GiveWay(enum.Enum):
    """Whether a copy gives way to callers that wait for its node."""

    NO = 'no'
    #: As to a working guest.
    SLOWING = 'slowing'
    STOPPING = 'stopping'


def ladder(geometry: state.Geometry) -> tuple[copies.Step, ...]:
    """Return the steps of a copy, from the slowest to its full width."""
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
    """The pace of a single copy, from check to check of the same devices."""

    def __init__(self, geometry: state.Geometry):
        self.steps = ladder(geometry)
        self._resting = self._place(_RESTING, geometry)
        self._alone = self._place(_ALONE, geometry)
        self._seen: copies.Seen | None = None
        #: Whether the last check had a predecessor to compare with; since
        #: when.
        self._compared = False
        self._began = 0.0
        #: The highest number of copied bytes so far: guest I/O in flight makes
        #: the number vary.
        self._most = 0
        #: Time of the guest's last I/O.
        self._worked: float | None = None
        #: Time of the last slow step, for the guest or for other callers.
        self._yielded: float | None = None
        #: Time of the last comparison with the floor, and the bytes copied by
        #: then.
        self._judged: tuple[float, int] | None = None
        self._copied = 0
        #: Steps added to reach the floor.
        self._raised = 0

    def _place(self, units: int, geometry: state.Geometry) -> int:
        """Return the index of the last step of at most this width, or 0."""
        return max(place for place, step in enumerate(self.steps)
                   if not place or step.threshold <= _regions(
                       units, geometry))

    def take(self, seen: copies.Seen | None, now: float) -> int:
        """Take in the result of a check.

        :param seen: the kernel's counts; None if unreadable
        :returns: bytes copied since the last check
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

    def step(self, pace: copies.Pace, now: float, unspent: float | None = None,
             give_way: GiveWay = GiveWay.NO) -> tuple[copies.Step,
                                                      copies.Speed]:
        """Return the next step of the copy, and its speed.

        Without counts to compare, the copy runs as beside a resting guest.

        :param unspent: remaining part of its share of the budget, at most 1; 0
            or less: nothing is left; None: there is no budget
        :param give_way: whether to give way to callers other than its guest
        """
        if give_way is GiveWay.STOPPING and pace is not copies.Pace.FULL:
            self._yielded, self._judged = now, None
            return copies.STANDSTILL, copies.Speed.YIELDING
        top = allowed = len(self.steps) - 1
        if unspent is not None:
            top = self._resting  # more would exceed a limit at once
            # As many steps as the budget allows.
            allowed = min(top, int(unspent * (top + 1))) if unspent > 0 else -1
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
            # A shorter rest counts as work in the comparison with the floor.
            self._judged, self._raised = None, 0
        if allowed < wanted:
            wanted, speed = allowed, copies.Speed.LIMITED
            self._judged = None  # the budget is the limit
        return (copies.STANDSTILL if wanted < 0 else self.steps[wanted]), speed

    def _unhindered(self, pace: copies.Pace, now: float) -> int:
        """Return the step of a copy without limits."""
        if pace is copies.Pace.FULL:
            return len(self.steps) - 1
        if not self._compared:
            return self._resting
        since = self._began if self._worked is None else self._worked
        never_came = self._worked is None and pace is not copies.Pace.SPARE
        return (self._alone if never_came or now - since >= GONE[pace]
                else self._resting)

    def _is_beside(self, pace: copies.Pace, now: float) -> bool:
        """Return whether the copy must yield to a working guest."""
        return (self._seen is not None and self._worked is not None
                and now - self._worked < RESTED[pace])

    def _judge(self, now: float) -> None:
        """Go a step up if the rate is below the floor, down if well above.

        Never beyond the step for a resting guest: a copy that can't go faster
        would only delay this guest.
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
    """Decides how the copies of a node give way to waiting callers.

    A complete standstill helps callers most, because they need the same
    processors, disks and network. So copies stop for a while. If a call takes
    longer, or calls come in sequence, copies only slow down as for a guest.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        self._looked: float | None = None
        self._way = GiveWay.NO
        #: Seconds of standstill left; whether they must be regained first.
        self._left = STOPPED
        self._spent = False

    def take(self, waiting: bool, now: float) -> GiveWay:
        """Return how copies give way from now on.

        :param waiting: whether a caller has waited since the last check
        :param now: a monotonic time in seconds
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
    """The common rate of all copies to a node, in fair shares.

    If a copy yields to its guest, the other copies get its share.

    :param limit: bytes per second; 0: no limit
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._unspent: dict[str, float] = {}
        self._since: float | None = None

    def spend(self, copied: Mapping[str, int], now: float
              ) -> dict[str, float]:
        """Account for the bytes copied since the last check.

        :param copied: bytes by copy, for all copies
        :param now: a monotonic time in seconds
        :returns: remaining part of its share, by copy: 1 for a full second; 0
            or less: nothing is left. Empty without a limit
        """
        since, self._since = self._since, now
        if not self._limit or not copied:
            return {}
        share = self._limit * HELD / len(copied)
        debt = self._limit * LONGEST_WAIT / len(copied)
        self._unspent = {key: max(-debt, self._unspent.get(key, 0.0) - spent)
                         for key, spent in copied.items()}
        elapsed = 0.0 if since is None else min(HELD, now - since)
        self._share_out(self._limit * elapsed, share)
        return {key: unspent / share for key, unspent in self._unspent.items()}

    def _share_out(self, left: float, share: float) -> None:
        """Distribute bytes to the copies.

        :param left: bytes to distribute
        :param share: the most that a copy can have, in bytes
        """
        wanting = list(self._unspent)
        while left >= 1 and wanting:
            part, left = left / len(wanting), 0.0
            for key in wanting:
                unspent = min(share, self._unspent[key] + part)
                left += self._unspent[key] + part - unspent
                self._unspent[key] = unspent
            wanting = [key for key in wanting if self._unspent[key] < share]
