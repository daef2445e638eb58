# SPDX-License-Identifier: Apache-2.0
"""The part of the fault matrix that matters most; ``make faults`` has all."""

from lab.faults import cells
from lab.faults import cross
from lab.faults import ground as grounds
from tests.functional import base


class FaultTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.ground = grounds.Ground(self.lab, base._say)
        if not self.lab.settings.get('stepping'):
            self.lab.settings['stepping'] = 1
            for node in (self.n1, self.n2):
                self.restart(node)
        self.addCleanup(self.remove_bystanders)
        self.ground.up()
        self.pool = {name: [] for name in self.lab.nodes}

    def remove_bystanders(self):
        for disk in self.ground.bystanders:
            disk.remove()

    def assert_holds(self, operation, fault, *steps):
        """One fault at some steps of an operation, a volume for each."""
        wanted = [cells.Cell(operation, step, fault) for step in steps]
        if steps == (cross.WHOLE,):
            found = cross.Cross(self.ground, wanted, self.pool)
        else:
            found = cells.Batch(self.ground, wanted, self.pool)
        self.addCleanup(self.remove_pool)
        verdicts = found.run()
        found.clean()
        self.assertEqual([], ['%s: %s %s' % (v.cell, v.reason, v.log)
                              for v in verdicts if not v.ok])

    def remove_pool(self):
        for disk in sum(self.pool.values(), []):
            disk.remove()

    def test_power_cut_of_both_around_the_commit(self):
        self.assert_holds('move', 'cut both', 'destination read_head handle',
                          'source commit')

    def test_power_cut_of_both_in_completion(self):
        self.assert_holds(
            'completion', 'cut both',
            'destination advance: all regions local and flushed',
            'destination remove metadata')

    def test_destination_killed_between_cut_over_and_release(self):
        self.assert_holds(
            'completion', 'kill destination', 'destination swap_table handle',
            'destination end_session export')

    def test_source_loses_power_while_both_are_attached(self):
        self.assert_holds('live-move', 'cut source', 'source commit')

    def test_database_away_during_completion(self):
        self.assert_holds(
            'move', 'database restarted during completion', cross.WHOLE)

    def test_volume_group_full(self):
        self.assert_holds('move', 'volume group full', cross.WHOLE)
