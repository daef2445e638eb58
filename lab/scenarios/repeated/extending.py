# SPDX-License-Identifier: Apache-2.0
"""Extending a volume while it is copied to its home.

The home is the destination of the move; the source still has what is copied.
"""

import functools

from lab.core import process
from lab.scenarios.repeated import operation
from lab.scenarios import requests

#: GiB.
BEFORE, AFTER = 1, 2


class Extend(operation.Requested):
    """Extended while nobody has it attached and it is being copied."""

    name = 'extend during hydration'
    full = False

    def prepare(self):
        disk, node = self.disk, self.destination
        self.environment.hold_copy(disk)
        self._attach(node)
        self._begin_writing(node)
        disk.stop()
        disk.detach(node)

    @functools.cached_property
    def request(self):
        return requests.Extension(self.disk, AFTER)

    def _settle_extension(self):
        self._ensure()
        self.disk.grow(AFTER)

    def settle(self, lost_power):
        self.join()
        self._settle_extension()
        self._at_goal()
        self._use()
        self.environment.let_copy(self.disk)
        self._wait_moved()
        self._prove(self.destination)

    def _use(self):
        """A guest writes to it, on both sides of where it ended."""
        disk, node = self.disk, self.destination
        before = disk.mib * BEFORE // AFTER
        self._attach(node)
        disk.fill(node, before - 1, 2)
        self._begin_writing(node)


class CompletionOfExtended(Extend):
    """From when all is local of a volume that was extended meanwhile."""

    name = 'completion of what was extended'

    def prepare(self):
        super().prepare()
        self._settle_extension()
        self._use()
        if not self.disk.is_moving():
            raise process.LabError('the copy has ended before')

    def run(self):
        self.environment.let_copy(self.disk)

    def is_over(self):
        return not self.disk.is_moving()

    def settle(self, lost_power):
        self.join()
        self.environment.let_copy(self.disk)
        if self.disk.runs_on is None:
            self._run_again(self.destination)
        self._wait_moved()
        self._at_goal()
        self._prove(self.destination)
