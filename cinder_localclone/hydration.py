# SPDX-License-Identifier: Apache-2.0
"""Progress and pace of a background copy. Pure: time is an argument."""

import collections
import dataclasses

from cinder_localclone.dm import tables
from cinder_localclone import state

#: Samples over which the rate is taken.
WINDOW = 12


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a copy is.

    :param percent: of the regions, 0 to 100
    :param rate: bytes a second over the last samples; None before two
    :param seconds_left: None while there is no rate
    """

    percent: float
    rate: float | None
    seconds_left: float | None

    def __str__(self) -> str:
        if not self.rate:
            return '%.1f %%' % self.percent
        return '%.1f %%, %.0f MiB/s, %.0f s left' % (
            self.percent, self.rate / (1 << 20), self.seconds_left)


class Meter:
    """Turns status lines into progress."""

    def __init__(self):
        self._samples = collections.deque(maxlen=WINDOW)

    def update(self, status: tables.CloneStatus, now: float) -> Progress:
        """:param now: a monotonic time in seconds"""
        self._samples.append((now, status.hydrated))
        region = status.region_sectors * state.SECTOR
        began, first = self._samples[0]
        rate = left = None
        if now > began and status.hydrated > first:
            rate = (status.hydrated - first) * region / (now - began)
            left = (status.regions - status.hydrated) * region / rate
        percent = 100.0 * status.hydrated / max(1, status.regions)
        return Progress(percent, rate, left)


class Waker:
    """Wakes copies that guests' I/O has put to sleep.

    The kernel starts copying regions only while no guest I/O is in flight.
    If there is some when the last region under way is done, it looks again
    up to a second later (COMMIT_PERIOD in drivers/md/dm-clone-target.c), and
    a guest that does nothing but a few synchronous writes slows the copy to a
    twentieth. A message makes it look at once.

    :param send: ``send({shadow id: threshold})`` sends it to clones; returns
        the ids of those that are gone
    """

    def __init__(self, send):
        self._send = send
        self._thresholds: dict[str, int] = {}

    def watch(self, shadow_id: str, threshold: int, finished: bool) -> None:
        """What a look at a clone that is being copied has shown."""
        if finished:
            self._thresholds.pop(shadow_id, None)
        else:
            self._thresholds[shadow_id] = threshold

    def wake(self) -> bool:
        """:returns: whether there was anything to wake"""
        if self._thresholds:
            for shadow_id in self._send(dict(self._thresholds)):
                self._thresholds.pop(shadow_id, None)
        return bool(self._thresholds)
