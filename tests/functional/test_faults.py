# SPDX-License-Identifier: Apache-2.0
"""The part of the fault matrix that matters most; ``make faults`` has all."""

import atexit
import os

import testtools

from lab.faults import cells
from lab.faults import cross
from lab.faults import ground as grounds
from lab import lab as labs
from tests.functional import base


class FaultTest(testtools.TestCase):
    """Has a lab of its own, whose services can be stopped at a step."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lab = labs.Lab('faults%d' % os.getpid())
        atexit.register(base.take_down, cls.lab)
        cls.ground = grounds.Ground(cls.lab, base._say)
        try:
            cls.ground.up()
        except Exception:
            base.note_failure(None)
            raise

    @classmethod
    def tearDownClass(cls):
        base.take_down(cls.lab)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.addOnException(base.note_failure)

    def assert_holds(self, fault, *wanted):
        """One fault while operations, a volume each, are at their steps.

        :param wanted: (operation, step)
        """
        pool = {name: [] for name in self.lab.nodes}
        batch = [cells.Cell(operation, step, fault)
                 for operation, step in wanted]
        kind = cross.Cross if batch[0].step == cross.WHOLE else cells.Batch
        found = kind(self.ground, batch, pool)
        verdicts = found.run()
        found.clean()
        for disk in sum(pool.values(), []):
            disk.remove()
        self.assertEqual([], ['%s: %s %s' % (v.cell, v.reason, v.log)
                              for v in verdicts if not v.ok])

    def test_power_cut_of_both(self):
        self.assert_holds(
            'cut both',
            ('move', 'destination read_head handle'),
            ('move', 'source commit'),
            ('completion',
             'destination advance: all regions local and flushed'),
            ('completion', 'destination remove metadata'),
            ('live-move rolled back', 'destination roll_back'))

    def test_destination_killed(self):
        self.assert_holds(
            'kill destination',
            ('move', 'destination create_thick metadata'),
            ('live-move', 'destination create clone'),
            ('completion', 'destination swap_table handle'),
            ('completion', 'destination end_session export'))

    def test_source_loses_power(self):
        self.assert_holds(
            'cut source',
            ('live-move', 'source commit'),
            ('move', 'destination enable_hydration'),
            ('completion', 'source remove handle'))

    def test_database_away_during_completion(self):
        self.assert_holds(
            'database restarted during completion', ('move', cross.WHOLE))

    def test_volume_group_full(self):
        self.assert_holds('volume group full', ('move', cross.WHOLE))
