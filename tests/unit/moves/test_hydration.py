# SPDX-License-Identifier: Apache-2.0
"""How far a hydration is, by the status of its clone."""

import dataclasses

import ddt
import testtools

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.moves import hydration
from tests.helpers.captured import BUSY

# Linux 6.1.176, dmsetup 1.02.185
FRESH = ('0 2097152 clone 8 6/1024 128 0/16384 0 2 no_hydration '
         'no_discard_passdown 4 hydration_threshold 32 '
         'hydration_batch_size 8 rw')


@ddt.ddt
class HydrationTest(testtools.TestCase):

    def test_rate_and_time_left(self):
        meter = hydration.Meter()
        status = dm_tables.parse_clone_status(FRESH)
        first = meter.update(status, 100.0)
        self.assertIsNone(first.rate)
        busy = dm_tables.parse_clone_status(BUSY.replace('3800', '4096'))
        found = meter.update(busy, 104.0)
        self.assertEqual(25.0, found.percent)
        self.assertEqual(64 << 20, found.rate)
        self.assertEqual(12.0, found.seconds_left)
        self.assertIn('64 MiB/s', str(found))

    def test_what_is_local_at_once_was_not_copied(self):
        """Holes are, before the first look."""
        meter = hydration.Meter()
        status = dataclasses.replace(
            dm_tables.parse_clone_status(FRESH), regions=1000, hydrated=900)
        first = meter.update(status, 100.0)
        self.assertEqual((90.0, '90.0 %'), (first.percent, str(first)))
        found = meter.update(dataclasses.replace(status, hydrated=950), 101)
        self.assertEqual((50 << 16, 1), (found.rate, found.seconds_left))
        self.assertEqual('100.0 %', str(hydration.Meter().update(
            dataclasses.replace(status, hydrated=1000), 100.0)))

    @ddt.named_data(
        ('in_vain', (7, 0, 0, 0), (7, 90, 5, 0), (7, 900, 10, 5),
         (7, 900, 14, 1), (7, 900, 15, 0), (7, 901, 16, 0), (7, 950, 20, 10),
         (7, 950, 30, 0), (7, 999, 35, 20), (7, 999, 55, 0), (7, 1999, 60, 40),
         (7, 1999, 100, 0), (7, 2999, 105, 60), (7, 2999, 165, 0),
         (7, 3999, 170, 60)),
        ('mended_disk', (7, 0, 0, 0), (7, 90, 10, 5), (7, 90, 15, 0),
         (8, 99, 16, 0), (8, 199, 25, 0), (8, 299, 26, 5)),
        ('silent_source', (7, 5, 0, 0), (7, 5, 10, 0), (7, 5, 999, 0),
         (7, 6, 1000, 0), (8, 7, 1010, 0)),
        ('slow', (7, 5, 0, 0), (8, 6, 10, 0), (9, 7, 20, 0)))
    def test_pauses(self, *sweeps):
        """Looks: regions local, reads completed, time, seconds to rest."""
        brake = hydration.Brake()
        status = dm_tables.parse_clone_status(BUSY)
        for hydrated, reads, now, pause in sweeps:
            self.assertEqual(pause, brake.seconds_to_pause(
                dataclasses.replace(status, hydrated=hydrated), reads, now),
                now)

    def test_a_guest_that_leaves_no_room_is_no_failure(self):
        # It reads the source without end; the kernel copies nothing then.
        brake = hydration.Brake()
        starved = dataclasses.replace(
            dm_tables.parse_clone_status(BUSY), hydrating=0)
        for now in range(0, 100, 5):
            self.assertEqual(0, brake.seconds_to_pause(starved, now, now))

    def test_a_failed_clone_is_not_paused(self):
        brake = hydration.Brake()
        failed = dm_tables.parse_clone_status('0 2097152 clone Fail')
        for now in range(0, 100, 5):
            self.assertEqual(0, brake.seconds_to_pause(failed, now, now))


class StallTest(testtools.TestCase):

    def test_verdicts(self):
        stall, end = hydration.Stall(), hydration.STALLED
        for now, hydrated, verdict in (
                (0, 7, None), (end - 1, 7, None), (end, 7, True),
                (end + 5, 7, None), (2 * end - 1, 7, None),
                (2 * end, 7, True), (2 * end + 6, 8, False),
                (2 * end + 7, 8, None), (3 * end + 5, None, None),
                (3 * end + 6, None, True), (3 * end + 7, 9, False)):
            self.assertEqual(verdict, stall.is_stalled(hydrated, now), now)

    def test_what_was_never_seen(self):
        stall = hydration.Stall()
        self.assertIsNone(stall.is_stalled(None, 5))
        self.assertTrue(stall.is_stalled(None, 5 + hydration.STALLED))
        self.assertIsNone(hydration.Stall().is_stalled(0, 1))
