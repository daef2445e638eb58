# SPDX-License-Identifier: Apache-2.0
"""LVM is asked once for a volume that arrives, not twice.

Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Callable
from collections.abc import Mapping

from cinder_localclone.lvm import reports

#: Seconds for which what LVM has shown is believed.
FRESH = 2.0

_Volumes = Mapping[str, reports.LogicalVolume]


class Listing:
    """The LVs of a node, kept from the check for free space to the allocation.

    Allocations hold the lock of free space and end what is kept
    (:meth:`spend`): an answer that LVM gave before one, or during it, is never
    used after it.

    :param lvs: asks LVM
    """

    def __init__(self, lvs: Callable[[], _Volumes]):
        self._lvs = lvs
        #: How often something was taken; how often it was when LVM was asked,
        #: when that was, and what it has shown.
        self._taken = 0
        self._last: tuple[int, float, _Volumes] | None = None

    def ask(self, now: float) -> _Volumes:
        """All LVs, as they are now."""
        taken = self._taken
        lvs = self._lvs()
        self._last = taken, now, lvs
        return lvs

    def recent(self, now: float) -> _Volumes:
        """The same, or as they were moments ago.

        For a caller that holds the lock of free space.
        """
        last = self._last
        if last and last[0] == self._taken and now - last[1] < FRESH:
            return last[2]
        return self.ask(now)

    def spend(self) -> None:
        """Free space may have been taken: what is kept is no longer valid."""
        self._taken += 1
