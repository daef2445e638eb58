# SPDX-License-Identifier: Apache-2.0
"""When a clone is built, left as it is, loaded anew, or refused."""

import dataclasses
import itertools
import logging
import pathlib
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import storage_case
from tests.helpers.storage_case import device
from tests.helpers.storage_case import META
from tests.helpers.storage_case import MOVE
from tests.helpers.storage_case import SHADOW
from tests.helpers.storage_case import V1

TABLE = ('0 2097152 clone /dev/fast/%s /dev/g/volume-%s 8:0 128 2 '
         'no_hydration no_discard_passdown' % (META, SHADOW))
CLONE = names.clone(SHADOW)
DISCARDS = mock.call.block.disable_discards('/dev/mapper/' + CLONE)
CREATED = [mock.call.dmsetup.create(
    CLONE, 'LOCALCLONE-' + CLONE, TABLE, 30, False, ('8:0', V1)), DISCARDS]
#: Above what stands for a source that is away.
ALONE = [mock.call.dmsetup.create(
    CLONE, 'LOCALCLONE-' + CLONE, TABLE, 30), DISCARDS]
HOLES = [[0, 3], [8, 16376]]
LEFT_OUT = mock.call.block.discard(
    '/dev/mapper/' + CLONE, [(0, 3 << 16), (8 << 16, 16376 << 16)], 1 << 36,
    10, 30)


def replaced(in_use=False):
    return [mock.call.dmsetup.replace_suspended(
        CLONE, TABLE, 30, in_use, ('8:0', V1)), DISCARDS]


@ddt.ddt
class CloneTest(storage_case.Case):
    """A clone is left while it is right, and never loaded over a live one."""

    RW = '0 8 clone 8 6/1024 128 0/16384 0 0 0 rw'
    FAILED = '0 8 clone Fail'

    def setUp(self):
        super().setUp()
        self.ran.block.number.return_value = '8:0'
        self.ran.block.size.return_value = 4 << 20
        self.ran.block.head_is_zero.return_value = False
        self.ran.dmsetup.status.return_value = self.RW
        self.devices()

    def clone(self, source='8:0', opened=0, **more):
        self.devices(
            device(names.handle(V1), '253:7', '0 1 linear 253:6 0', opened),
            device(CLONE, '253:6',
                   '0 1 clone 253:4 253:5 ' + source, **more))

    def ensure(self, committed=True, **more):
        return self.clones.ensure_clone(
            dataclasses.replace(MOVE, committed=committed), '/dev/sda',
            **more)

    def changes(self):
        return [call for call in self.ran.mock_calls if call[0].partition(
            '.')[2] not in ('number', 'size', 'head_is_zero', 'status')]

    def test_new(self):
        self.assertTrue(self.ensure())
        self.assertEqual(CREATED, self.changes())
        self.ran.block.number.assert_called_once_with('/dev/sda')

    def test_holes(self):
        """Once discards are refused, that is so for good."""
        self.assertTrue(self.ensure(holes=HOLES))
        self.assertEqual([CREATED[0], LEFT_OUT, DISCARDS],
                         self.changes())

    @ddt.data({}, {'source': '8:16'})
    def test_holes_of_a_clone_that_is_there(self, how):
        """Something may be written, or be on its way, in what was one."""
        self.clone(**how)
        self.ensure(holes=HOLES)
        self.assertNotIn(LEFT_OUT, self.changes())
        self.assertEqual(DISCARDS, self.changes()[-1])

    def test_holes_that_cannot_be_discarded(self):
        self.ran.block.discard.side_effect = storage_case.FAILED
        self.assertTrue(self.ensure(holes=HOLES))
        self.assertEqual([CREATED[0], LEFT_OUT, DISCARDS],
                         self.changes())

    def test_holes_that_are_none(self):
        self.assertTrue(self.ensure(holes=[[0, 16385]]))
        self.assertEqual(CREATED, self.changes())

    def test_holes_whose_discard_hangs(self):
        """Nobody gets what it may do later."""
        self.ran.block.discard.side_effect = exceptions.CommandTimeout(
            command='c', seconds=30)
        self.assertRaises(exceptions.CommandTimeout, self.ensure,
                          holes=HOLES)

    def test_holes_where_time_limits_are_short(self):
        self.clones.timeout = 5
        self.ensure(holes=HOLES)
        self.assertEqual((2.5, 5), self.ran.block.discard.call_args.args[3:])

    @ddt.data(0, 1)
    def test_one_that_is_right_is_left(self, opened):
        # Whoever built it may have been killed before it refused discards.
        self.clone(opened=opened)
        self.assertFalse(self.ensure())
        self.assertEqual([DISCARDS], self.changes())

    @ddt.data(0, 1)
    def test_disk_under_another_number(self, opened):
        self.clone(source='8:16', opened=opened)
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(bool(opened)), self.changes())

    def test_whose_handle_was_left_suspended(self):
        """What was done beneath it is over once the clone was suspended."""
        self.devices(
            device(names.handle(V1), '253:7', '0 1 linear 253:6 0', 1, True),
            device(CLONE, '253:6', '0 1 clone 253:4 253:5 8:0'))
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(True), self.changes())

    def leave_out(self, holes):
        self.clone(opened=1)
        self.clones.leave_out(MOVE, holes)

    def test_holes_under_a_guest(self):
        """Loaded anew is what the kernel has: no path leads elsewhere."""
        self.leave_out(HOLES)
        self.assertRan(mock.call.dmsetup.discard_beneath(
            names.handle(V1), CLONE, '0 1 clone 253:4 253:5 8:0',
            [(0, 3 << 16), (8 << 16, 16376 << 16)], 1 << 36, 10, 30))

    def test_holes_under_a_guest_where_time_limits_are_short(self):
        self.clones.timeout = 5
        self.leave_out(HOLES)
        self.assertEqual((2.5, 5), self.ran.dmsetup.discard_beneath
                         .call_args.args[5:])

    def test_holes_of_a_clone_that_has_gone(self):
        self.devices()
        self.assertRaises(exceptions.MissingData, self.clones.leave_out,
                          MOVE, HOLES)
        self.assertRan()

    def test_no_holes_under_a_guest(self):
        self.leave_out([])
        self.assertRan()

    def test_what_are_no_holes_under_a_guest(self):
        self.assertRaises(thin_map.OddMap, self.leave_out, [[0, 16385]])
        self.assertRan()

    def test_whether_it_was_looked_for_them(self):
        for tags, expected in (((names.UNMAPPED,), True), ((), False)):
            self.lvs(storage_case.lv(META, tags=tags))
            self.assertIs(expected, self.clones.needs_hole_search(MOVE))
        self.lvs()
        self.assertFalse(self.clones.needs_hole_search(MOVE))
        self.clones.note_holes_searched(MOVE)
        self.assertRan(mock.call.lvm.remove_tag(
            'fast', META, names.UNMAPPED, 30))

    @ddt.data(0, 1)
    def test_disk_without_a_number(self, opened):
        """It has gone, or could not be looked at: nothing is reloaded."""
        self.clone(opened=opened)
        self.ran.block.number.return_value = ''
        error = self.assertRaises(exceptions.WrongDevice, self.ensure)
        self.assertIn('/dev/sda', str(error))
        self.devices()
        self.assertRaises(exceptions.WrongDevice, self.ensure)
        self.assertEqual([], self.changes())

    @ddt.data(0, 1)
    def test_one_that_was_left_suspended(self, opened):
        self.clone(opened=opened)
        handle, clone = self.handles.devices().values()
        self.devices(handle, dataclasses.replace(clone, suspended=True))
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(bool(opened)), self.changes())

    @ddt.data('', '0 1 error ')
    def test_one_without_its_table(self, table):
        self.ran.dmsetup.status.return_value = table  # as the kernel
        self.devices(
            device(names.handle(V1), '253:7', '0 1 linear 253:6 0', 1),
            device(CLONE, '253:6', table))
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(), self.changes())

    @ddt.data('8:0', '8:16')
    def test_failed_one_that_a_guest_uses_is_left(self, source):
        # What it wrote, but could not record, would vanish under it.
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.ran.dmsetup.status.return_value = self.FAILED
        self.clone(source, opened=1)
        self.assertFalse(self.ensure())
        self.assertEqual([DISCARDS], self.changes())
        self.assertEqual('', log.output)  # it can still be seen

    @ddt.data(*itertools.product((('Fail', FAILED), ('ro', RW[:-2] + 'ro')),
                                 ('8:0', '8:16')))
    @ddt.unpack
    def test_failed_one_that_nothing_uses_is_loaded_anew(self, failed,
                                                         source):
        """And that is said: afterwards its mode no longer tells."""
        mode, self.ran.dmsetup.status.return_value = failed
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.clone(source)
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(), self.changes())
        self.assertIn('[localclone-202] The clone of volume %s is in mode '
                      '"%s":' % (V1, mode), log.output)

    @ddt.data(('8:0', 0), ('8:0', 1), ('8:16', 0), ('8:16', 1))
    @ddt.unpack
    def test_nothing_is_said_of_one_that_works(self, source, opened):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.clone(source, opened=opened)
        self.ensure()
        self.assertEqual('', log.output)

    def test_nothing_is_said_of_one_that_is_not_loaded_anew(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.ran.block.head_is_zero.return_value = True
        self.ran.dmsetup.status.return_value = self.FAILED
        self.clone()
        self.assertRaises(exceptions.MetadataLost, self.ensure)
        self.assertEqual('', log.output)

    def test_how_it_was_is_seen_before_it_is_loaded_anew(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        status = self.ran.dmsetup.status
        status.return_value = self.FAILED

        def works(*_args):
            status.return_value = self.RW
        self.ran.dmsetup.replace_suspended.side_effect = works
        self.clone('8:16')
        self.assertTrue(self.ensure())
        self.assertIn('[localclone-202]', log.output)

    @ddt.data(storage_case.FAILED,
              exceptions.CommandTimeout(command='c', seconds=30))
    def test_how_it_was_need_not_be_known_to_load_it_anew(self, error):
        self.ran.dmsetup.status.side_effect = error
        self.clone('8:16')
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(), self.changes())

    def test_failed_one_without_a_handle(self):
        self.ran.dmsetup.status.return_value = self.FAILED
        self.devices(device(CLONE, '253:6', '0 1 clone a b 8:0'))
        self.assertTrue(self.ensure())
        self.assertEqual(replaced(), self.changes())

    ABSENT = 'localclone-absent-' + SHADOW

    @ddt.data(True, False)
    def test_without_its_source(self, left):
        """Over a device that fails each read of what is not local."""
        if left:
            self.devices(device(self.ABSENT, '253:9', '0 1 error '))
        self.assertTrue(self.clones.ensure_clone_alone(MOVE))
        self.assertEqual(([] if left else [mock.call.dmsetup.create(
            self.ABSENT, 'LOCALCLONE-' + self.ABSENT, '0 2097152 error', 30)])
            + ALONE, self.changes())
        self.ran.block.number.assert_called_once_with(
            '/dev/mapper/' + self.ABSENT)

    def test_without_its_source_and_what_stands_for_that_half_made(self):
        """Else the kernel refuses the clone, as long as the node is up."""
        self.devices(device(self.ABSENT, '253:9', ''))
        self.assertTrue(self.clones.ensure_clone_alone(MOVE))
        self.assertEqual([mock.call.dmsetup.swap_table(
            self.ABSENT, '0 2097152 error', 30)] + ALONE, self.changes())

    def test_without_its_source_one_that_is_there_is_left(self):
        self.clone(source='8:16')
        self.assertFalse(self.clones.ensure_clone_alone(MOVE))
        self.assertEqual([DISCARDS], self.changes())

    def test_without_its_source_the_metadata_counts(self):
        self.ran.block.head_is_zero.return_value = True
        self.assertRaises(
            exceptions.MetadataLost, self.clones.ensure_clone_alone,
            dataclasses.replace(MOVE, committed=True))

    def test_size_of_metadata(self):
        self.ensure()
        self.ran.block.size.assert_called_once_with('/dev/fast/' + META)

    @ddt.data(True, False)
    def test_no_clone_on_metadata_that_is_too_small(self, there):
        # A clone whose metadata runs full panics the kernel.
        if there:
            self.clone(source='8:16')
        self.ran.block.size.return_value = (4 << 20) - 4096
        error = self.assertRaises(exceptions.MetadataTooSmall, self.ensure)
        self.assertIn(str((4 << 20) - 4096), str(error))
        self.assertEqual([], self.changes())

    def test_metadata_of_a_large_volume(self):
        """As much as its regions need, and not what any needs at least."""
        large = dataclasses.replace(MOVE, size_gib=2048)
        needed = MOVE.geometry.metadata_bytes(2048 << 30)
        self.assertLess(4 << 20, needed)
        self.ran.block.size.return_value = needed - 4096
        self.assertRaises(exceptions.MetadataTooSmall,
                          self.clones.ensure_clone, large, '/dev/sda')
        self.ran.block.size.return_value = needed
        self.assertTrue(self.clones.ensure_clone(large, '/dev/sda'))
        self.clones.create_metadata(large, {})
        self.assertEqual(needed, self.ran.lvm.create_thick.call_args.args[2])

    @ddt.data(True, False)
    def test_no_clone_on_metadata_that_has_become_blank(self, there):
        # The kernel would take the source for all that there is.
        if there:
            self.clone(source='8:16')
        self.ran.block.head_is_zero.return_value = True
        self.assertRaises(exceptions.MetadataLost, self.ensure)
        self.ran.block.head_is_zero.assert_called_once_with(
            '/dev/fast/' + META, 30)
        self.assertEqual([], self.changes())

    def test_metadata_is_blank_before_the_commit(self):
        self.ran.block.head_is_zero.return_value = True
        self.assertTrue(self.ensure(committed=False))
        self.assertEqual(CREATED, self.changes())

    def test_status(self):
        status = self.clones.clone_status(SHADOW)
        self.assertEqual((0, 16384, 'rw'), (
            status.hydrated, status.regions, status.mode))
        self.ran.dmsetup.status.assert_called_once_with(CLONE, 30)

    def test_status_of_all(self):
        self.ran.dmsetup.clone_statuses.return_value = {
            CLONE: self.RW, 'of-somebody-else': self.RW}
        self.assertEqual({SHADOW: self.clones.clone_status(SHADOW)},
                         self.clones.clone_statuses())
        self.ran.dmsetup.clone_statuses.assert_called_once_with(30)

    @ddt.data((RW, True, None), (RW, False, 'disable_hydration'),
              (RW.replace('0 0 0 rw', '0 1 no_hydration 0 rw'), True,
               'enable_hydration'),
              (RW.replace('0 0 0 rw', '0 1 no_hydration 0 rw'), False, None))
    @ddt.unpack
    def test_hydration(self, status, enabled, message):
        self.ran.dmsetup.status.return_value = status
        self.assertIs(message is not None,
                      self.clones.set_hydration(SHADOW, enabled))
        self.assertEqual(
            [mock.call.dmsetup.message(CLONE, message, 30)]
            if message else [], self.changes())

    def test_wake(self):
        self.ran.dmsetup.send.return_value = [names.clone(V1)]
        self.assertEqual([V1], self.clones.wake_hydration(
            {SHADOW: copies.Step(32, 8), V1: copies.Step(2, 1)}))
        # Never "enable_hydration": what is held back stays so.
        self.ran.dmsetup.send.assert_called_once_with([
            (CLONE, 'hydration_batch_size 8'),
            (CLONE, 'hydration_threshold 32'),
            (names.clone(V1), 'hydration_batch_size 1'),
            (names.clone(V1), 'hydration_threshold 2')], 30)

    def sysfs(self, number, stat, iostats='1'):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(sysfs, 'ROOT', str(root)))
        device = root / 'dev' / 'block' / number
        (device / 'queue').mkdir(parents=True)
        (device / 'stat').write_text(stat)
        (device / 'queue' / 'iostats').write_text(iostats + '\n')
        return device

    def test_where_its_io_is_counted(self):
        device = self.sysfs('253:7', '')
        self.ran.block.number.return_value = '253:7'
        self.assertEqual(('253:7', '253:7'), self.clones.device_numbers(MOVE))
        self.assertEqual(
            ['/dev/mapper/localclone-' + V1, '/dev/g/volume-' + SHADOW],
            [call.args[0] for call in self.ran.block.number.mock_calls])
        (device / 'queue' / 'iostats').write_text('0\n')
        self.assertEqual(('', ''), self.clones.device_numbers(MOVE))
        self.ran.block.number.return_value = ''
        self.assertEqual(('', ''), self.clones.device_numbers(MOVE))

    def test_what_is_counted(self):
        device = self.sysfs('253:7', ' 5 0 40 1 7 0 64 9 2 5 9 0 0 0 0 0 0')
        both = {SHADOW: ('253:7', '253:7'), V1: ('253:7', '')}
        self.assertEqual({SHADOW: copies.Seen(12, 2, 0)},
                         self.clones.read_counters(both))
        (device / 'stat').unlink()  # it has gone
        self.assertEqual({}, self.clones.read_counters(both))
        self.assertEqual({}, self.clones.read_counters({SHADOW: ('', '')}))

    def test_completed_reads(self):
        self.ran.block.completed_reads.return_value = 4711
        self.assertEqual(4711, self.clones.completed_reads('/dev/sda'))
        self.ran.block.completed_reads.assert_called_once_with('/dev/sda')

    def alone(self):
        return self.clones.ensure_clone_alone(
            dataclasses.replace(MOVE, committed=True))

    def test_alone_suspended(self):
        self.clone(source='8:16')
        handle, clone = self.handles.devices().values()
        self.devices(handle, dataclasses.replace(clone, suspended=True))
        self.alone()
        self.assertEqual(1, len([c for c in self.ran.mock_calls if
                                 'replace_suspended' in str(c)]))

    def test_alone_without_table(self):
        self.devices(device(names.clone(SHADOW), '253:6', ''))
        self.alone()
        self.assertEqual(1, len([c for c in self.ran.mock_calls if
                                 'replace_suspended' in str(c)]))

    def test_alone_discards(self):
        self.clone(source='8:16')
        self.alone()
        self.assertIn(DISCARDS, self.ran.mock_calls)
