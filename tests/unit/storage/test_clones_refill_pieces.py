# SPDX-License-Identifier: Apache-2.0
"""Clones of which ranges are written again."""

import dataclasses
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import thin_pool
from tests.helpers import clone_metadata
from tests.helpers import commands
from tests.helpers import storage_case


class ClonesTest(testtools.TestCase):

    #: It was extended since: the clone is as long as before.
    MOVE = dataclasses.replace(storage_case.MOVE, volume_gib=2)

    def setUp(self):
        super().setUp()
        lvm = logical_volumes.Lvm('g', 'g-pool', 'fast', 30, host='b@l')
        self.handles = handles.Handles(lvm)
        self.clones = clones.Clones(lvm, self.handles)
        self.block = self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'block_size', return_value=1 << 17)).mock
        self.called = self.useFixture(fixtures.MockPatchObject(
            refill, 'refill')).mock
        self.forgotten = self.useFixture(fixtures.MockPatchObject(
            refill, 'forget_read')).mock
        top = mock.Mock()
        top.name = 'top'
        self.useFixture(fixtures.MockPatchObject(
            handles.Handles, '_survey_of', return_value=mock.Mock(**{
                'upper_devices.return_value': [top]})))
        clone = names.clone(self.MOVE.move_id)
        self.useFixture(fixtures.MockPatchObject(
            handles.Handles, 'devices', return_value={clone: dm_tables.Device(
                clone, 'u', '253:6', 1, False,
                '0 1 clone 253:4 253:5 8:0')}))
        self.number = self.useFixture(fixtures.MockPatchObject(
            handles.block, 'number', return_value='8:0')).mock
        # The first one last.
        self.useFixture(fixtures.MockPatchObject(
            clones.random, 'shuffle', lambda pieces: pieces.reverse()))
        self.written = []

    def refill(self, missing):
        """Blocks of half a region, of which the pool maps four at once."""
        for part in self.clones.refill(
                self.MOVE, '/dev/sda', missing, 2):
            self.written.extend(part)

    def asked(self):
        what = (names.handle(self.MOVE.volume_id), 'g',
                self.MOVE.destination_lv, ('/dev/sda', '8:0'),
                self.MOVE.size_bytes, 1 << 17)
        return [call.args[6:8] for call in self.called.mock_calls
                if call == mock.call(*what, *call.args[6:8], 30)]

    def test_piece_by_piece(self):
        """What the pool maps at once is copied as a whole."""
        self.called.side_effect = (
            (1, [[0, 1]]), (1, [[1, 1]]), (1, []), (1, [[9, 1]]))
        self.refill([[3, 6], [37, 1]])
        self.assertEqual([(0, 3), (1, 2), (2, 1), (9, 1)], self.asked())
        # Of which these were missing.
        self.assertEqual([[3, 1], [4, 4], [37, 1]], self.written)
        self.block.assert_called_once_with(
            'g', self.MOVE.destination_lv, 30)

    def test_never_from_another_disk(self):
        self.number.return_value = '8:16'
        self.assertRaises(exceptions.WrongDevice, self.refill, [[3, 6]])
        self.called.assert_not_called()

    def test_not_all_at_once(self):
        self.called.side_effect = lambda *args: (args[7], [])
        with mock.patch.object(refill, 'AT_ONCE', 2 << 17):
            self.refill([[0, 20]])
        with mock.patch.object(refill, 'AT_ONCE', 1):
            self.refill([[0, 8]])
        self.assertEqual([(0, 2), (2, 2), (4, 1), (0, 1), (1, 1)],
                         self.asked())

    def test_by_chance(self):
        """What is slow each time does not keep the rest from its turn."""
        self.called.side_effect = lambda *args: (args[7], [])
        with mock.patch.object(clones.random, 'shuffle') as shuffled:
            self.refill([[0, 4], [36, 1]])
        shuffled.assert_called_once_with([])
        self.assertEqual([(9, 1), (0, 1)], self.asked())

    def test_nothing_was_come_to(self):
        """As the guest's I/O took its time to end."""
        self.called.side_effect = ((0, []), (3, [[0, 1]]))
        self.refill([[0, 12]])
        self.assertEqual([(0, 3), (0, 3)], self.asked())

    def test_what_takes_too_long(self):
        """The guest may have the volume, and it goes on at the next look."""
        self.called.return_value = 1, [[0, 1]]
        with mock.patch.object(clones.time, 'monotonic',
                               side_effect=(0, 1, 30, 31)):
            error = self.assertRaises(exceptions.TakesLong, self.refill,
                                      [[0, 20]])
        self.assertIn('longer than 30 s', str(error))
        self.assertEqual(2, self.called.call_count)

    def test_what_cannot_be_read(self):
        """All the rest is copied before that is said, or tried again."""
        bad = exceptions.SourceUnread(disk='d', first=0, reason='sector')
        self.called.side_effect = (
            bad, (1, [[9, 1]]), (1, [[2, 1]]), bad, (1, [[0, 1]]))
        error = self.assertRaises(exceptions.SourceUnread, self.refill,
                                  [[0, 12], [36, 1]])
        self.assertIn('sector', str(error))
        self.assertEqual([(0, 3), (9, 1), (2, 1), (1, 1), (0, 1)],
                         self.asked())
        self.assertEqual([[36, 1], [8, 4], [0, 4]], self.written)

    def test_what_cannot_be_read_for_long(self):
        """The disk is named, not the time that it takes."""
        self.called.side_effect = exceptions.SourceUnread(
            disk='d', first=0, reason='sector')
        with mock.patch.object(clones.time, 'monotonic',
                               side_effect=(0, 1, 31)):
            error = self.assertRaises(exceptions.SourceUnread, self.refill,
                                      [[0, 12], [36, 1]])
        self.assertIn('sector', str(error))

    def test_what_can_be_read_piece_by_piece(self):
        """All of it was copied."""
        bad = exceptions.SourceUnread(disk='d', first=0, reason='slow')
        self.called.side_effect = (
            bad, (1, [[2, 1]]), (1, [[1, 1]]), (1, [[0, 1]]))
        self.refill([[0, 12]])
        self.assertEqual([[8, 4], [4, 4], [0, 4]], self.written)

    def test_read_is_forgotten(self):
        """Also above what stands above the handle."""
        self.handles.forget_read(self.MOVE.volume_id)
        self.forgotten.assert_called_once_with(
            [names.handle(self.MOVE.volume_id), 'top'], 30)

    def test_what_is_not_mapped(self):
        move = self.MOVE
        with mock.patch.object(thin_pool, 'all_holes') as called:
            self.assertIs(called.return_value,
                          self.clones.unmapped_blocks(move, 4))
        called.assert_called_once_with(
            'g', move.destination_lv, move.size_bytes, 1 << 14, 30)

    def test_whether_its_pool_fails(self):
        with mock.patch.object(thin_pool, 'check_metadata_writable') as called:
            self.clones.check_pool(self.MOVE)
        called.assert_called_once_with('g', self.MOVE.destination_lv, 30)

    def test_what_is_on_record(self):
        metadata = clone_metadata.Writer(
            self.MOVE.geometry.regions(self.MOVE.size_bytes), {1, 2, 5}
        ).metadata()

        def stream(take, *argv, timeout):
            self.assertEqual('if=' + names.lv_path(
                'fast', names.metadata_lv(self.MOVE.move_id)),
                argv[1])
            self.assertIn('iflag=direct', argv)
            for at in range(0, len(metadata), 5000):
                take(metadata[at:at + 5000])
        self.useFixture(commands.Commands())
        with mock.patch.object(process, 'stream', stream):
            self.assertEqual([[1, 2], [5, 1]],
                             self.clones.recorded_as_local(self.MOVE))
