# SPDX-License-Identifier: Apache-2.0
"""Local clones on the simulated world, stopped at any moment."""

from cinder_localclone.core import exceptions
from cinder_localclone.volumes import clone
from tests.helpers import callers
from tests.helpers import snapshot_case
from tests import world as worlds

FAILURES = (exceptions.LocalCloneError, worlds.Stopped)
ZEROS = [worlds.ZERO] * worlds.REGIONS


class Base(snapshot_case.Base):

    @staticmethod
    def bear(world, volume, of):
        """What Cinder has the node do that it has chosen.

        :param of: a volume's id, or a snapshot's
        """
        node = world.nodes[volume.host.partition('#')[0]]
        if of in world.snapshots:
            clone.from_snapshot(node.node, volume.id, of)
        else:
            clone.from_volume(node.reconciler, volume.id, of, 0)

    @staticmethod
    def delete(world, volume):
        """Cinder deletes it where its row says that it is, until it is."""
        volume.status = 'deleting'
        for _attempt in range(4):
            try:
                callers.delete(world.home(volume).node, volume)
            except FAILURES:
                world.recover()
            else:
                break
        else:
            raise AssertionError('never deleted')
        world.destroy(volume)

    def assert_born(self, world, volume, expected):
        """It has what its image had, and zeros after that."""
        home = world.home(volume)
        regions = volume.size * worlds.REGIONS
        self.assertEqual(
            (expected + ZEROS)[:regions],
            [home.read(volume.id, n) for n in range(regions)])
