# SPDX-License-Identifier: Apache-2.0
"""Refills, stopped at any moment."""

import ddt
import fixtures

from cinder_localclone.core import names
from tests.helpers import holes
from tests.helpers import move_case
from tests import world as worlds
from tests.world import disks

A, B = move_case.A, move_case.B
#: A hole at the source, as well.
HOLE = 3


@ddt.ddt
class StopTest(move_case.Base):
    """With a stop at every moment; then converge."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimNode, 'COMPARE_WAIT', 3600))

    def scenario(self, stop_at, faults):
        world, volume, expected = holes.begin(
            self, (HOLE,), faults=faults)
        world.nodes[A].move(volume, B)
        b = world.nodes[B]
        b.reconciler.reconcile(volume.id)
        b.hydrate(flushed=True)
        b.lvs[volume.name][0] = b.lvs[volume.name][2] = disks.EMPTY
        world.moment, world.stop_at = 0, stop_at
        world.settle()
        if world.move_records:  # nobody knows whether something was hidden
            self.marked += 1
            self.assertIn(names.LACKING, b.disk.tags[volume.name])
            for region, value in enumerate(expected):
                self.assertEqual(value, b.read(volume.id, region))
            b.disk.tags[volume.name] |= {names.ACCEPTED}
            world.settle()
        self.check(world, volume, expected)
        return world

    @ddt.data(*move_case.ONE)
    def test_stop_at_every_moment(self, faults):
        self.marked = 0
        self.stop_everywhere(lambda stops: self.scenario(stops, faults))
        # Only what was stopped while it was copied again.
        self.assertIn(self.marked, range(1, 9))
