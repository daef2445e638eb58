# SPDX-License-Identifier: Apache-2.0
"""Progress of a background copy. Pure: time is an argument."""

import collections
import dataclasses


from cinder_localclone.core import copies
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import state

#: Number of samples for the rate.
WINDOW = 12
#: Seconds without a new local region before a copy counts as stuck: at first,
#: and at each later try.
PATIENCE, PATIENCE_AGAIN = 10, 2
#: Seconds before the next try: at first, and at most; they double.
FIRST_PAUSE, LONGEST_PAUSE = 5, 60
#: Seconds without a new local region before a copy counts as stalled.
STALLED = 60


class Meter:
    """Computes progress from the kernel's status lines."""

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, int]] = (
            collections.deque(maxlen=WINDOW))

    def update(self, status: dm_tables.CloneStatus, now: float
               ) -> copies.Progress:
        """Add a sample, and return the progress.

        :param now: a monotonic time in seconds
        """
        self._samples.append((now, status.hydrated))
        region = status.region_sectors * state.SECTOR
        began, first = self._samples[0]
        rate = left = None
        if now > began and status.hydrated > first:
            rate = (status.hydrated - first) * region / (now - began)
            left = (status.regions - status.hydrated) * region / rate
        percent = 100.0 * status.hydrated / max(1, status.regions)
        return copies.Progress(percent, rate, left)


class Brake:
    """Pauses a copy that repeats failing regions without progress.

    The kernel repeats failed regions at once, without end
    (drivers/md/dm-clone-target.c). This takes processor time and bandwidth
    from all other users of the node. Two cases are different. Reads from a
    silent source wait, and none is completed. A guest may keep the kernel from
    copying: the guest reads the source, but no region is being copied.
    """

    def __init__(self) -> None:
        self._hydrated: int | None = None
        self._reads = 0
        self._copying = False
        self._since = self._until = 0.0
        self._patience = PATIENCE
        self._next_pause: float = FIRST_PAUSE

    def seconds_to_pause(self, status: dm_tables.CloneStatus, reads: int,
                         now: float) -> float:
        """Return the seconds for which the copy must pause; 0: it may run.

        :param reads: completed reads of the source's disk so far
        :param now: a monotonic time in seconds
        :returns: seconds
        """
        if status.hydrated != self._hydrated or status.mode != 'rw':
            self._hydrated = status.hydrated
            self._patience, self._next_pause = PATIENCE, FIRST_PAUSE
            return self._run(reads, now)
        if self._until:
            if now < self._until:
                return self._until - now
            self._patience = PATIENCE_AGAIN
            return self._run(reads, now)
        self._copying = self._copying or bool(status.hydrating)
        if now - self._since < self._patience:
            return 0
        if reads == self._reads or not self._copying:
            return self._run(reads, now)
        pause = self._next_pause
        self._until = now + pause
        self._next_pause = min(2 * pause, LONGEST_PAUSE)
        return pause

    def _run(self, reads: int, now: float) -> float:
        self._reads, self._since, self._until = reads, now, 0.0
        self._copying = False
        return 0


class Stall:
    """Detects a running copy without progress."""

    def __init__(self) -> None:
        self._hydrated: int | None = None
        self._since: float | None = None

    def is_stalled(self, hydrated: int | None, now: float) -> bool | None:
        """Return whether a copy is stalled; None if this is unknown yet.

        Returns True only once in :data:`STALLED` seconds.

        :param hydrated: number of local regions; None if unknown
        :param now: a monotonic time in seconds
        """
        before = self._hydrated
        if hydrated not in (None, before):
            self._hydrated, self._since = hydrated, now
            return None if before is None else False
        if self._since is None:
            self._since = now
        if now - self._since < STALLED:
            return None
        self._since = now
        return True


class Copy:
    """The progress of a copy, from check to check, and its pauses."""

    def __init__(self) -> None:
        self._begin_turn()
        self.progress: copies.Progress | None = None

    def _begin_turn(self) -> None:
        self._meter = Meter()
        self._brake = Brake()
        self.stall = Stall()

    @property
    def position(self) -> int:
        """Its queue position at its last check; 0: it ran, or no check yet."""
        return self.progress.position if self.progress else 0

    def move_up(self, position: int) -> None:
        """Set the new queue position of a waiting copy."""
        if self.progress:
            self.progress = dataclasses.replace(self.progress,
                                                position=position)

    def clear_rate(self) -> None:
        """Clear its rate after a failed check, because its end is unknown."""
        if self.progress:
            self.progress = dataclasses.replace(
                self.progress, rate=None, seconds_left=None)

    def update(self, status: dm_tables.CloneStatus, reads: int,
               now: float, position: int = 0) -> copies.Progress:
        """Add the result of a check, and return the progress.

        :param reads: completed reads of the source's disk so far
        :param now: a monotonic time in seconds
        :param position: its position in the queue; 0: it runs
        """
        # It may have been without checks meanwhile.
        if position or self.position:
            self._begin_turn()
        if position:
            progress = dataclasses.replace(
                Meter().update(status, now), position=position)
        else:
            progress = dataclasses.replace(
                self._meter.update(status, now),
                pause=self._brake.seconds_to_pause(status, reads, now))
        self.progress = progress
        return progress
