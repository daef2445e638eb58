# SPDX-License-Identifier: Apache-2.0
"""Volumes that are reverted to a snapshot."""

from cinder_localclone.core import exceptions
from tests.helpers import callers
from tests.helpers import snapshot_case
from tests import world as worlds

A, B = 'a@l', 'b@l'


class Base(snapshot_case.Base):

    def prepared(self, home=A, faults=('cut',)):
        """A volume that was written to since its snapshot was taken on A."""
        world, volume, expected = self.begin(faults=faults)
        snapshot = self.take(world, volume)
        world.nodes[A].write(volume.id, 1, 'new')
        if home != A:
            world.nodes[A].move(volume, home)
            world.settle()
        written = list(expected)
        written[1] = 'new'
        self.assertEqual(written, self.all_of(world, volume))
        return world, volume, snapshot, expected, written

    @staticmethod
    def all_of(world, volume):
        home = world.home(volume)
        return [home.read(volume.id, n) for n in range(worlds.REGIONS)]

    @staticmethod
    def revert(world, volume, snapshot, asked=A):
        """What Cinder and the driver do; who resets a status, too."""
        volume.status, before = 'reverting', volume.name_id
        node = world.nodes[asked]
        try:
            callers.revert(node.reconciler, volume.id, snapshot)
        except exceptions.LocalCloneError:
            node.node.volumes.keep(volume.id, before)
            raise
        finally:
            if volume.status == 'reverting':
                volume.status = 'available'
