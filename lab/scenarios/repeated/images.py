# SPDX-License-Identifier: Apache-2.0
"""Snapshots, volumes that are made of images, and going back to a snapshot.

The source is the node on which the image is. The destination is the home of
the volume that the snapshot is of, and so the node that Cinder asks; a volume
in use, and what is made of that, need one node alone.
"""

import functools

from lab.core import process
from lab.scenarios.repeated import operation
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots

#: Seconds until a node has looked at all that it has, twice, while twenty
#: other volumes move.
LOOKED_AT = 300


class OfVolumeInUse(operation.Repeated):
    """Something is made of a volume while its guest writes."""

    faults = operation.ONE_END
    full = False

    def prepare(self):
        self._attach(self.source)
        self._begin_writing(self.source)

    def _writes_on(self):
        """What the volume gets afterwards only the volume has."""
        if self.disk.runs_on is None:
            self._run_again(self.source)
        self.disk.check_running()
        self.disk.fill(self.source, count=2)


class WithSnapshot(operation.Repeated):
    """It has to do with a snapshot of the volume."""

    def __init__(self, *args):
        super().__init__(*args)
        self.snapshot = snapshots.Snapshot(self.disk)

    @property
    def ids(self):
        return super().ids + [self.snapshot.id or self.disk.volume]


class TakeSnapshot(operation.Requested, WithSnapshot, OfVolumeInUse):
    """A snapshot of a volume in use, until it is deleted."""

    name = 'snapshot'

    @property
    def request(self):
        return self.snapshot

    def forget_failure(self):
        super().forget_failure()
        self.snapshot.delete()

    def settle(self, lost_power):
        self.join()
        self._ensure()
        self._at_goal()
        self.snapshot.verify(self.source)
        self._writes_on()
        self.snapshot.verify(self.source)
        self._prove(self.source)
        self.snapshot.delete()


class Clone(operation.Making, OfVolumeInUse):
    """A volume that is made of one in use."""

    name = 'clone'

    @functools.cached_property
    def request(self):
        return snapshots.Uncommitted(self.disk)

    def settle(self, lost_power):
        self.join()
        uncommitted = self._settle_uncommitted()
        self._writes_on()
        uncommitted.verify(self.source)
        self._prove(self.source)
        self.tidy()

    def _settle_uncommitted(self):
        """There is one, where the image is, with what that has."""
        self._ensure()
        uncommitted = self.uncommitted
        if uncommitted.home() != self.source.name:
            raise process.LabError('%s was made on %s, not on %s' % (
                uncommitted.volume, uncommitted.home(), self.source.name))
        process.wait_for(
            '%s to be taken' % uncommitted.volume,
            lambda: snapshots.taken(self.source, uncommitted.volume),
            LOOKED_AT,
            every=1)
        self._at_goal()
        process.wait_for('the handle of %s' % uncommitted.volume,
                         lambda: uncommitted.has_path(self.source),
                         requests.ANSWERED, every=1)
        uncommitted.verify(self.source)
        return uncommitted


class OfSnapshotElsewhere(WithSnapshot):
    """A volume that has moved since its snapshot was taken."""

    full = False
    asks_source = True

    def prepare(self):
        disk, node = self.disk, self.destination
        self._ask_in_turn('the snapshot', self.snapshot.ensure)
        disk.fill(self.source, count=4)
        self._attach(node)
        self._begin_writing(node)
        self._wait_moved()
        disk.stop()
        disk.detach(node)

    def _prove_images(self):
        """Snapshot and volume are what they were."""
        self.snapshot.verify(self.source)
        self.disk.verify(self.environment.nodes[self.disk.home()])


class DeleteSnapshot(OfSnapshotElsewhere):
    """The snapshot is deleted, the volume stays."""

    name = 'delete a snapshot elsewhere'

    def run(self):
        self.snapshot.ask_to_delete()
        self.snapshot.wait_deleted()

    def settle(self, lost_power):
        self.join()
        self.snapshot.delete()
        process.wait_for(
            '%s to go' % self.snapshot.lv, lambda: self.snapshot.lv not in
            self.source.run('lvs --noheadings -o lv_name cinder-volumes'
                            ).stdout.split(), LOOKED_AT, every=1)
        self._at_goal()
        self.disk.verify(self.destination)


class FromSnapshot(OfSnapshotElsewhere, Clone):
    """A larger volume that is made of a snapshot on another node."""

    name = 'volume from a snapshot elsewhere'
    faults = operation.BOTH_ENDS

    @functools.cached_property
    def request(self):
        return snapshots.Uncommitted(self.disk, 2, self.snapshot)

    def settle(self, lost_power):
        self.join()
        self._settle_uncommitted()
        self._prove_images()
        self.tidy()
        self.snapshot.delete()


class Revert(OfSnapshotElsewhere):
    """The volume goes back to its snapshot, and to where that is."""

    name = 'revert across nodes'
    keeps_source = False

    @functools.cached_property
    def request(self):
        return requests.Reversion(self.disk, self.snapshot)

    def run(self):
        self.request.do()
        self._check_home()

    def _check_home(self):
        """:raises LabError: if it was not reverted"""
        if self.disk.home() != self.source.name:
            raise process.LabError('it was not reverted: %s' % (
                requests.told(self.disk.cinder, self.disk.volume)))

    def settle(self, lost_power):
        self.join()
        requests.until('the revert of %s' % self.disk.volume,
                       self._go_back)
        disk, node = self.disk, self.source
        self._wait_path(node)
        process.wait_for('%s to be taken' % disk.volume,
                         lambda: snapshots.taken(node, disk.volume), LOOKED_AT,
                         every=1)
        self._at_goal()
        disk.become(self.snapshot.content)
        self._prove_images()
        # A guest writes to the volume, and to nothing else.
        self._attach(node)
        self._begin_writing(node)
        self._prove(node)
        self.snapshot.verify(node)
        self.snapshot.delete()

    def _go_back(self):
        """All of it is what it was, or all is the snapshot's.

        :raises LabError: if it is not the snapshot's yet
        """
        status = self.disk.row()['status']
        requests.must(status == 'available', 'it is ' + status)
        if self.disk.home() == self.source.name:
            return
        self._wait_path(self.destination, 60)
        self.disk.verify(self.destination)
        with self.environment.asking:
            self.run()
