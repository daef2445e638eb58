# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and volumes that are made of an image."""

import functools

from lab.scenarios.once import operation
from lab.scenarios import requests
from lab.scenarios.requests import must
from lab.scenarios import snapshot as snapshots


class Snapshot(operation.Once):
    name = 'snapshot'

    @functools.cached_property
    def request(self):
        return snapshots.Snapshot(self.disk)

    def ask(self):
        self.disk.check_running()
        return super().ask()

    def prove(self):
        self.disk.check_running()
        self.request.verify(self._where())

    def _where(self):
        """The node that has it; the volume may have gone on since."""
        return next(node for node in self.lab.nodes.values()
                    if node.is_on and not node.run(
                        'lvs cinder-volumes/' + self.request.lv,
                        check=False).returncode)

    def clean(self):
        self.request.delete()


class SnapshotInUse(Snapshot):
    name = 'snapshot in use'
    in_use = True


class DeleteSnapshot(operation.Once):
    name = 'delete snapshot'
    snapshot = True
    alone = True

    def ask(self):
        snapshot = self.place.snapshot
        snapshot.ask_to_delete()
        self.wait_gone('/snapshots/' + snapshot.id)
        if snapshot.node.is_on:
            must(snapshot.node.run('lvs cinder-volumes/' + snapshot.lv,
                                   check=False).returncode,
                 'its LV is there')
        return 'works'


class Making(operation.Once):
    """A volume that is made of an image, on the node that has it."""

    def prove(self):
        made, at = self.request.made, self.at()
        made.verify(self.lab.nodes[made.home()])
        must(at is None or made.home() == at.name,
             'it was made on ' + made.home())

    def at(self):
        """The node that has the image; None: it may be any by now."""

    def clean(self):
        self.request.remove()


class FromSnapshot(Making):
    name = 'volume from snapshot'
    snapshot = True
    gib = 1

    @functools.cached_property
    def request(self):
        return snapshots.Uncommitted(self.disk, self.gib, self.place.snapshot)

    def at(self):
        return self.place.snapshot.node


class LargerFromSnapshot(FromSnapshot):
    name = 'larger volume from snapshot'
    gib = 2


class Clone(Making):
    name = 'clone'

    @functools.cached_property
    def request(self):
        return snapshots.Uncommitted(self.disk)

    def ask(self):
        self.disk.check_running()
        return super().ask()


class Revert(operation.Once):
    name = 'revert to snapshot'
    snapshot = True
    alone = True

    @functools.cached_property
    def request(self):
        return requests.Reversion(self.disk, self.place.snapshot)

    def ask(self):
        before = self.environment.told()
        self.request.do(self.seconds)
        if self.environment.codes(before, self.disk.volume):
            raise requests.Refused('it is not reverted')
        self.disk.become(self.place.snapshot.content)
        self.prove()
        return 'works'

    def prove(self):
        at = self.place.snapshot.node
        must(self.disk.home() == at.name, 'it is at ' + self.disk.home())
        self.disk.verify_home()


OPERATIONS = (Snapshot, SnapshotInUse, DeleteSnapshot, FromSnapshot,
              LargerFromSnapshot, Clone, Revert)
