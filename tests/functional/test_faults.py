# SPDX-License-Identifier: Apache-2.0
"""The part of the fault matrix that matters most; ``make faults`` has all."""

import atexit
import os
import threading

import testtools

from lab.core import observe
from lab.core import process
from lab.faults import cells
from lab.faults import environment as environments
from lab.faults import injectors
from lab.faults import whole_operation
from lab import lab as labs
from lab.scenarios import disk as disks
from tests.functional import base


class FaultTest(testtools.TestCase):
    """Has a lab of its own, whose services can be stopped at a step."""

    lab_name = 'faults'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lab = labs.Lab('faults%d' % os.getpid())
        atexit.register(base.take_down, cls.lab)
        cls.environment = environments.Environment(cls.lab, base._say)
        try:
            cls.environment.up()
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
        kind = (whole_operation.WholeOperation
                if batch[0].step == whole_operation.WHOLE else cells.Batch)
        found = kind(self.environment, batch, pool)
        verdicts = found.run()
        found.clean()
        for disk in sum(pool.values(), []):
            disk.remove()
        self.assertEqual([], ['%s: %s %s' % (v.cell, v.reason, v.log)
                              for v in verdicts if not v.ok])

    def test_power_cut_of_both_at_length(self):
        self.assert_holds(
            'cut both',
            ('move', 'destination read_head handle'),
            ('move', 'source commit'),
            ('completion',
             'destination advance: all regions local and flushed'),
            ('completion', 'destination remove metadata'),
            ('live-move rolled back', 'destination roll_back'))

    def test_destination_killed_at_length(self):
        self.assert_holds(
            'kill destination',
            ('move', 'destination create_thick metadata'),
            ('live-move', 'destination create clone'),
            ('completion', 'destination swap_table handle'),
            ('completion', 'destination end_session export'))

    def test_source_loses_power_at_length(self):
        self.assert_holds(
            'cut source',
            ('live-move', 'source commit'),
            ('move', 'destination enable_hydration'),
            ('completion', 'source remove source'))

    def test_database_away_during_completion_at_length(self):
        self.assert_holds(
            'database restarted during completion',
            ('move', whole_operation.WHOLE))

    def test_wrong_source_before_the_commit_at_length(self):
        """Another disk under the export's name, before anyone logs in."""
        source, destination = self.environment.nodes.values()
        disk = disks.Disk(self.lab, self.environment.create(source, 1)[0])
        disk.fill(source)
        connector = disk.instance.connector(destination)
        mib = disk.mib
        for size, serial, reason in (
                (mib, 'new', 'serial number'),
                (mib * 2, 'same', 'bytes instead of')):
            injectors.make_stranger(source, size)
            self.environment.arm(disk, source, 'export export')
            attachment = disk.instance.reserve(disk.volume)
            answers = []
            asking = threading.Thread(target=lambda: answers.append(
                disk.instance.connect(attachment, connector)))
            asking.start()
            process.wait_for(
                'the export', lambda: self.environment.reached(disk), 60)
            injectors.export_stranger(source, serial)
            self.environment.release(disk)
            asking.join(90)
            self.assertGreaterEqual(answers[0].status_code, 400)
            self.assertRegex(answers[0].text, (
                'is not the expected disk.*: .*' + reason))
            self.assertIn('was given the wrong disk for this volume',
                          base.told(self.lab, disk.volume))
            disk.instance.nova.delete('/attachments/' + attachment)
            process.wait_for(
                'the move to go',
                lambda: not observe.move_records(self.lab), 60)
            injectors.remove_stranger(source)
            self.assertEqual([], observe.leftovers(source, None))
            self.assertEqual([], observe.leftovers(destination, disk.volume))
            self.assertEqual(source.name, disk.home())
            disk.verify(source)
        disk.remove()
        self.environment.forget_steps(disk)

    def test_volume_group_full_at_length(self):
        self.assert_holds('volume group full', ('move', whole_operation.WHOLE))
