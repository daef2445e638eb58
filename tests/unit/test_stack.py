# SPDX-License-Identifier: Apache-2.0
"""What the stack runs, and in which order, where the order matters."""

import dataclasses
from unittest import mock

import ddt
import testtools

from cinder_localclone.dm import tables
from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import stack
from cinder_localclone import state
from cinder_localclone import survey

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
MOVE = state.Move(
    V1, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8)), False, 'a@l', 'b@l',
    'volume-' + V1, 'volume-' + SHADOW, 1,
    location='192.0.2.1:3260,1 iqn.2026-11.org.example:x 0')
META = names.metadata_lv(SHADOW)


@ddt.ddt
class StackTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.ran = mock.Mock()
        for room in ('lvm', 'block', 'devicemapper'):
            patched = mock.patch.object(stack, room, getattr(self.ran, room))
            patched.start()
            self.addCleanup(patched.stop)
        self.stack = stack.Stack('g', 'g-pool', 'fast', 30)

    def lvs(self, *found):
        self.stack.lvs = lambda: {each.name: each for each in found}

    def called(self):
        return [call[0].partition('.')[2] for call in self.ran.mock_calls]

    def test_created_lv_outlives_a_power_cut(self):
        self.assertTrue(self.stack.create_lv('volume-x', 1 << 30, V1))
        self.assertEqual(['create_thin', 'flush_pvs'], self.called())
        self.assertEqual(['localclone.volume=' + V1],
                         self.ran.lvm.create_thin.call_args.args[4])
        self.ran.lvm.flush_pvs.assert_called_once_with(['fast', 'g'], 30)

    def test_lv_that_is_there_is_left(self):
        self.ran.lvm.create_thin.return_value = False
        self.assertFalse(self.stack.create_lv('volume-x', 1 << 30, V1))
        self.assertEqual(['create_thin'], self.called())

    @ddt.data((META, 'fast'), ('volume-x', 'g'))
    @ddt.unpack
    def test_removed_lv_does_not_come_back(self, name, group):
        self.assertTrue(self.stack.remove_lv(name))
        self.assertEqual([
            mock.call.lvm.remove(group, name, 30),
            mock.call.lvm.flush_pvs([group], 30)], self.ran.mock_calls)

    def test_lv_that_is_gone_is_removed(self):
        self.ran.lvm.remove.return_value = False
        self.assertFalse(self.stack.remove_lv('volume-x'))
        self.assertEqual(['remove'], self.called())

    def test_new_metadata_is_zeroed_and_then_marked(self):
        self.assertTrue(self.stack.create_metadata(MOVE))
        self.assertEqual(['create_thick', 'zero_head', 'add_tag'],
                         self.called())
        self.assertEqual({
            'volume': V1, 'geometry': '128:32:8',
            'source': 'iqn.2026-11.org.example:x'}, names.facts(
                self.ran.lvm.create_thick.call_args.args[3]))

    def metadata(self, number, *tags):
        self.ran.lvm.create_thick.return_value = False
        self.lvs(reports.LogicalVolume(
            'fast', META, 4 << 20, number, frozenset(tags)))

    @ddt.data(('', ['create_thick', 'activate'], True),
              ('253:4', ['create_thick'], False))
    @ddt.unpack
    def test_metadata_that_is_marked_is_never_zeroed(
            self, number, called, did):
        self.metadata(number, names.METADATA_READY)
        self.assertEqual(did, self.stack.create_metadata(MOVE))
        self.assertEqual(called, self.called())

    def test_metadata_that_was_not_marked_is_zeroed(self):
        self.metadata('253:4', *names.tags(volume=V1))
        self.assertTrue(self.stack.create_metadata(MOVE))
        self.assertEqual(['create_thick', 'zero_head', 'add_tag'],
                         self.called())

    def devices(self, *found):
        self.stack.devices = lambda: {each.name: each for each in found}

    def device(self, name, number, table):
        return tables.Device(name, names.device_uuid(name), number, 0, False,
                             table)

    def test_handle_on_its_clone_is_left(self):
        self.devices(
            self.device(names.handle(V1), '253:7', '0 1 linear 253:6 0'),
            self.device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertFalse(self.stack.ensure_handle_on_clone(
            V1, SHADOW, 1 << 30))
        self.assertEqual([], self.ran.mock_calls)

    @ddt.data((True, 'swap_table'), (False, 'create'))
    @ddt.unpack
    def test_handle_is_put_on_its_clone(self, there, called):
        found = [self.device(names.clone(SHADOW), '253:6', '0 1 clone a b c')]
        if there:
            found.append(self.device(
                names.handle(V1), '253:7', '0 1 linear 253:5 0'))
        self.devices(*found)
        self.assertTrue(self.stack.ensure_handle_on_clone(
            V1, SHADOW, 1 << 30))
        self.assertEqual([called], self.called())

    def test_handle_on_an_lv_that_is_not_active(self):
        self.devices()
        self.lvs(reports.LogicalVolume('g', 'v', 1 << 30, '', frozenset()))
        self.assertTrue(self.stack.ensure_handle_on_lv(V1, 'v', 1 << 30))
        self.assertEqual(['activate', 'create'], self.called())

    def test_missing_lv_is_not_made_anew(self):
        self.devices()
        self.lvs()
        self.assertRaises(
            exceptions.MissingData, self.stack.ensure_handle_on_lv, V1, 'v',
            1 << 30)
        self.assertEqual([], self.ran.mock_calls)

    def clone_with(self, metadata_bytes, blank=True, committed=False):
        self.devices()
        self.ran.block.size.return_value = metadata_bytes
        self.ran.block.head_is_zero.return_value = blank
        self.ran.block.number.return_value = '8:0'
        return self.stack.ensure_clone(
            dataclasses.replace(MOVE, committed=committed), '/dev/sda')

    @ddt.data((True, False), (False, True))
    @ddt.unpack
    def test_metadata_is_blank_only_before_the_commit(self, blank, committed):
        self.assertTrue(self.clone_with(4 << 20, blank, committed))
        self.assertIn('create', self.called())

    def test_no_clone_on_metadata_that_has_become_blank(self):
        # The kernel would take the source for all that there is.
        self.assertRaises(exceptions.MetadataLost, self.clone_with, 4 << 20,
                          committed=True)
        self.assertNotIn('create', self.called())

    def test_a_clone_that_stands_refuses_discards(self):
        # Whoever built it may have been killed before it came to that.
        self.devices(self.device(names.clone(SHADOW), '253:6',
                                 '0 1 clone 253:4 253:5 8:0'))
        self.ran.block.number.return_value = '8:0'
        self.ran.devicemapper.status.return_value = (
            '0 8 clone 8 6/1024 128 0/16384 0 0 0 rw')
        self.assertFalse(self.stack.ensure_clone(MOVE, '/dev/sda'))
        self.ran.block.disable_discards.assert_called_once_with(
            names.clone_path(SHADOW))

    def test_handles_of_another_backend_are_not_ours(self):
        lvs = {name: reports.LogicalVolume(group, name, 1, number, frozenset())
               for group, name, number in (
                   ('g', 'a', '253:1'), ('g', 'b', '253:2'),
                   ('other', 'c', '253:3'))}
        v1, v2, v3, v4 = ('%08d-0000-4000-8000-000000000000' % n
                          for n in range(1, 5))
        found = survey.Survey(lvs, {each.name: each for each in (
            self.device(names.clone(SHADOW), '253:6',
                        '0 1 clone 253:9 253:2 8:0'),
            self.device(names.handle(v1), '253:10', '0 1 linear 253:1 0'),
            self.device(names.handle(v2), '253:11', '0 1 linear 253:6 0'),
            self.device(names.handle(v3), '253:12', '0 1 linear 253:3 0'),
            self.device(names.handle(v4), '253:13', '0 1 linear 253:7 0'))})
        self.assertEqual({v1, v2}, found.volumes_above('g'))
        self.assertEqual({v1}, found.volumes_above('g', 'a'))

    @ddt.data(('g-pool', (40, 30, 16, 2)), (None, (100, 20, 8, 1)))
    @ddt.unpack
    def test_capacity(self, pool, expected):
        self.stack.pool = pool
        self.ran.lvm.free.return_value = (
            '{"report": [{"vg": [{"vg_name": "g", "vg_size": "100",'
            ' "vg_free": "20"}]}]}')
        thin = [reports.LogicalVolume('g', 'g-pool', 40, '253:1', frozenset(),
                                      allocated=10)]
        thin += [reports.LogicalVolume('g', name, 8, '', frozenset(),
                                       thin=True) for name in ('v1', 'v2')]
        thick = [reports.LogicalVolume('g', 'v3', 8, '', frozenset())]
        self.lvs(reports.LogicalVolume('fast', 'm', 4, '', frozenset()),
                 *(thin if pool else thick))
        found = self.stack.capacity()
        self.assertEqual(expected, (found.total, found.free,
                                    found.provisioned, found.volumes))

    def test_clone_on_metadata_of_its_size(self):
        self.assertTrue(self.clone_with(4 << 20))
        self.ran.block.size.assert_called_once_with(
            names.lv_path('fast', META))
        self.assertIn('create', self.called())

    def test_no_clone_on_metadata_that_is_too_small(self):
        # A clone whose metadata runs full panics the kernel.
        self.assertRaises(exceptions.MetadataTooSmall, self.clone_with,
                          (4 << 20) - 4096)
        self.assertNotIn('create', self.called())
