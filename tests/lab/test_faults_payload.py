# SPDX-License-Identifier: Apache-2.0
"""Known data on volumes of the fault matrix, and what is wrong with them."""

import contextlib
import io
import json
import os
import pathlib

import ddt
import fixtures
import testtools

from lab.guest import disk_io
from lab.scenarios import payload

MIB = payload.MIB
#: Filled as a whole, its second MiB again; a guest writes in the third.
FILLS = [[0, 3, 'all'], [1, 1, 'again']]
AREA, PLACE = 2, 2 * 256 + 5


@ddt.ddt
class VerifyTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'disk')
        self.path.write_bytes(bytes(4 * MIB))
        # Files of a temporary directory may not know it.
        self.useFixture(fixtures.MockPatchObject(os, 'O_DIRECT', 0))
        for first, count, seed in FILLS:
            payload.fill(str(self.path), first, count, seed)

    def write(self, place, data):
        with open(self.path, 'r+b') as disk:
            disk.seek(place * disk_io.BLOCK)
            disk.write(data)

    def bad(self, acknowledged=None):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            payload.verify(str(self.path), {
                'mib': 4, 'fills': FILLS, 'areas': [[AREA, 1]],
                'acknowledged': acknowledged or {}})
        return json.loads(printed.getvalue())['bad']

    def test_as_it_was_filled(self):
        self.assertEqual([], self.bad())

    def test_region_that_was_never_copied(self):
        """A pool that zeroes shows zeros there."""
        self.write(16, bytes(16 * disk_io.BLOCK))
        bad, = self.bad()
        self.assertIn('MiB 0: not as it was filled, 64 KiB', bad)

    def test_zeros_where_a_guest_could_write(self):
        self.write(PLACE, bytes(disk_io.BLOCK))
        bad, = self.bad()
        self.assertIn('block %d: never written' % PLACE, bad)

    @ddt.data((7, {PLACE: 7}, 0), (8, {PLACE: 7}, 0), (7, {}, 0),
              (6, {PLACE: 7}, 1), (None, {PLACE: 7}, 1))
    @ddt.unpack
    def test_guest_wrote_into_what_was_filled(self, there, acknowledged,
                                              wrong):
        if there is not None:
            self.write(PLACE, disk_io.block(PLACE, there))
        self.assertEqual(wrong, len(self.bad(acknowledged)))

    def test_data_where_nothing_was_written(self):
        self.write(3 * 256, b'x' * disk_io.BLOCK)
        self.assertEqual(1, len(self.bad()))
