# SPDX-License-Identifier: Apache-2.0
"""Extending a volume while it is copied to its home.

The home is the destination of the move; the source still has what is copied.
"""

from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios import operation as base
from lab.scenarios import snapshot as snapshots

#: GiB.
BEFORE, AFTER = 1, 2


class Extend(base.Operation):
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

    def run(self):
        self._ask()
        self._wait()

    def _ask(self):
        self.disk.cinder.post(
            '/volumes/%s/action' % self.disk.volume,
            json={'os-extend': {'new_size': AFTER}}).raise_for_status()

    def _wait(self):
        row = snapshots.wait_available(
            self.disk.cinder, 'volume', self.disk.volume)
        if row['size'] != AFTER:
            raise process.LabError('it was not extended: %s' % (
                snapshots.told(self.disk.cinder, self.disk.volume)))

    def forget_failure(self):
        self.join()
        self.error = None

    def _ensure(self):
        """:raises LabError: if it is not as large yet"""
        row = snapshots.row_of(self.disk.cinder, 'volume', self.disk.volume)
        if row['status'] == 'extending':
            raise process.LabError('it is still being extended')
        if row['status'] != 'available':  # as its administrator would
            self.environment.lab.cinder().post(
                '/volumes/%s/action' % self.disk.volume,
                json={'os-reset_status': {'status': 'available'}},
            ).raise_for_status()
        if row['size'] != AFTER:
            with self.environment.asking:
                self._ask()
                self._wait()

    def _settle_extension(self):
        disks.until('the extension of %s' % self.disk.volume, self._ensure)
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
        if not snapshots.is_moving(self.environment.lab, self.disk.volume):
            raise process.LabError('the copy has ended before')

    def run(self):
        self.environment.let_copy(self.disk)

    def is_over(self):
        return not snapshots.is_moving(self.environment.lab,
                                       self.disk.volume)

    def settle(self, lost_power):
        self.join()
        self.environment.let_copy(self.disk)
        if self.disk.runs_on is None:
            self._run_again(self.destination)
        self._wait_moved()
        self._at_goal()
        self._prove(self.destination)
