# SPDX-License-Identifier: Apache-2.0
"""What storage runs, and in which order, where the order matters."""

import dataclasses
import json
import math
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.storage import logical_volumes
from tests.helpers.storage_case import Case
from tests.helpers.storage_case import device
from tests.helpers.storage_case import FAILED
from tests.helpers.storage_case import GIB
from tests.helpers.storage_case import lv
from tests.helpers.storage_case import META
from tests.helpers.storage_case import MOVE
from tests.helpers.storage_case import SHADOW
from tests.helpers.storage_case import SNAPSHOT
from tests.helpers.storage_case import V1


@ddt.ddt
class VolumeTest(Case):

    def setUp(self):
        super().setUp()
        self.lvs(lv('g-pool', zeroes=True))

    def test_marks(self):
        self.lvm.mark('v', names.LACKING)
        self.lvm.unmark('v', names.LACKING)
        self.assertRan(mock.call.lvm.add_tag('g', 'v', names.LACKING, 30),
                       mock.call.lvm.remove_tag('g', 'v', names.LACKING, 30))

    def test_created_lv_outlives_a_power_cut(self):
        self.assertTrue(self.lvm.create_lv('volume-x', 1 << 30, V1))
        self.assertEqual(['create_thin'], self.called())
        self.assertEqual(['localclone.volume=' + V1],
                         self.ran.lvm.create_thin.call_args.args[4])

    @ddt.data('pool', None)
    def test_lv_that_is_longer_than_its_volume(self, pool):
        if not pool:
            self.thick(lv('v', '253:5'))
        self.lvm.create_lv('v', GIB + 512, V1, True, 512)
        create = (self.ran.lvm.create_thin if pool
                  else self.ran.lvm.create_thick)
        self.assertEqual(['localclone.volume=' + V1, 'localclone.extra=512'],
                         create.call_args.args[-2][:2])

    @ddt.data('pool', None)
    def test_uncommitted(self, pool):
        if not pool:
            self.thick(lv('v', '253:5'))
        self.lvm.create_lv('v', GIB, V1, True, uncommitted=True)
        create = (self.ran.lvm.create_thin if pool
                  else self.ran.lvm.create_thick)
        tags = create.call_args.args[-2]
        self.assertLessEqual(set(names.uncommitted('b@l')), set(tags))

    def test_uncommitted_again(self):
        self.lvm.mark_uncommitted('v')
        self.assertRan(mock.call.lvm.retag(
            'g', 'v', names.uncommitted('a@l'), [], 30))
        # It is its backend's, whatever the node is called.
        self.assertEqual(2, len({tuple(names.uncommitted(host))
                                 for host in ('a@l', 'b@l', 'b@m')}))

    def test_pool_by_what_was_just_listed(self):
        listed = self.lvm.lvs()
        self.lvm.lvs = lambda: self.fail('asked again')
        self.assertTrue(self.lvm.create_lv('v', GIB, V1, lvs=listed))
        for lvs in ({}, {'g-pool': lv('g-pool')}):
            self.assertRaises(exceptions.PoolDoesNotZero,
                              self.lvm.create_lv, 'v', GIB, V1, lvs=lvs)

    def test_thick_lv_that_is_written_before_it_is_read(self):
        tags = ['localclone.volume=' + V1, names.shown(GIB)]
        self.thick(lv('v', '253:5', tags=tags))
        self.assertTrue(self.lvm.create_lv('v', GIB, V1, True))
        # Nothing was zeroed, so there is nothing to flush.
        self.assertEqual(
            ['create_thick', 'number', 'remove_tag'], self.called())
        self.assertEqual(tags, self.ran.lvm.create_thick.call_args.args[3])

    def test_what_extents_add_to_a_thick_lv(self):
        """Nobody writes it before it is read: whoever extends it shows it.

        By a later request, too, if the first one did not come so far.
        """
        for created in (True, False):
            self.ran.reset_mock()
            self.ran.lvm.create_thick.return_value = created
            self.thick(lv('v', '253:5', tags=[names.shown(GIB)],
                          size=GIB + (8 << 20)))
            self.assertTrue(self.lvm.create_lv('v', GIB, V1, True))
            self.assertEqual([('g', 'v', GIB, 8 << 20)], self.zeroed())
            self.ran.lvm.remove_tag.assert_called_once_with(
                'g', 'v', names.shown(GIB), 30)

    def striped(self, *free, stripes=2):
        """Thick volumes, on disks with so much free."""
        self.make(None, stripes)
        self.ran.lvm.free_of_disks.return_value = list(free)

    def test_thick_lv_is_striped(self):
        self.striped(GIB, GIB)
        self.thick(lv('v', '253:5'))
        self.assertTrue(self.lvm.create_lv('v', GIB, V1, True))
        self.assertEqual(
            {'stripes': 2}, self.ran.lvm.create_thick.call_args.kwargs)
        self.clones.create_metadata(MOVE, {})
        self.assertNotIn('stripes',
                         self.ran.lvm.create_thick.call_args.kwargs)

    @ddt.data(
        # extents, stripes, size, whether LVM adds a GiB or more
        (4 * GIB, 1, GIB, True), (4 * GIB, 1, 4 * GIB, False),
        (4 * GIB, 1, 9 * GIB, True), (1 * GIB, 1, 3 * GIB, False),
        (512 << 20, 4, GIB, True), (512 << 20, 4, 2 * GIB, False),
        (4 << 20, 1, GIB, False), (4 << 20, 2, GIB + (16 << 20), False))
    @ddt.unpack
    def test_large_extents(self, extent, stripes, size, rounds):
        """What LVM adds is nobody's, and is no reason to refuse a move."""
        self.striped(*[99 * GIB] * stripes, stripes=stripes)
        self.ran.lvm.extent_size.return_value = extent
        piece = extent * stripes
        whole = -(-size // piece) * piece
        tags = [names.given(size)] * rounds
        self.thick(lv('v', '253:5', size=whole, tags=tags))
        for _time in range(2):
            self.lvm.create_lv('v', size, V1, covered=True)
        self.assertEqual(rounds, names.given(size) in (
            self.ran.lvm.create_thick.call_args.args[3]))
        self.ran.lvm.extent_size.assert_called_once_with('g', 30)
        self.without_devices()
        self.ran.block.size.return_value = whole
        self.ran.block.lv_number.return_value = '253:5'
        self.assertLess(self.handles.shown_bytes(V1, 'v', size) - size, GIB)

    def without_devices(self):
        self.handles.devices = lambda _only: {}

    def test_large_extents_of_a_thin_pool(self):
        self.lvs(lv('g-pool', zeroes=True))
        self.lvm._extent = 4 * GIB
        self.lvm.create_lv('v', GIB, V1)
        self.assertIn(names.given(GIB),
                      self.ran.lvm.create_thin.call_args.args[4])

    def test_fewer_disks_than_stripes(self):
        self.striped(9 * GIB)
        error = self.assertRaises(
            exceptions.TooFewDisks, self.lvm.create_lv, 'v', GIB, V1)
        self.assertIn('on 1 disks', str(error))
        self.ran.lvm.create_thick.assert_not_called()

    def test_thin_lvs_are_striped_by_their_pool(self):
        self.make('g-pool', 2)
        self.lvs(lv('g-pool', zeroes=True))
        self.lvm.create_lv('v', GIB, V1)
        self.ran.lvm.free_of_disks.assert_not_called()
        self.assertEqual({}, self.ran.lvm.create_thin.call_args.kwargs)

    def test_room_for_striped_ones(self):
        """What only one disk has is none."""
        self.striped(9 * GIB, 2 * GIB)
        self.ran.lvm.free.return_value = json.dumps({'report': [{'vg': [
            {'vg_name': 'g', 'vg_size': str(20 * GIB),
             'vg_free': str(11 * GIB), 'vg_missing_pv_count': '0'},
            {'vg_name': 'fast', 'vg_size': str(GIB), 'vg_free': '7',
             'vg_missing_pv_count': '0'}]}]})
        found = self.lvm.free_space()
        self.assertEqual((4 * GIB, 7), (found.volumes, found.metadata))
        self.assertEqual(4 * GIB, self.lvm.space({})[1].free)

    def test_thick_lv_is_zeroed(self):
        """From its first moment on its tag says that nobody may see it."""
        self.thick(lv('v', '253:5', tags=[names.shown(0)], size=GIB))
        self.assertTrue(self.lvm.create_lv('v', GIB, V1))
        self.assertEqual(
            ['create_thick', 'number', *['zero'] * 4, 'flush', 'remove_tag'],
            self.called())
        self.assertEqual(['localclone.volume=' + V1, names.shown(0)],
                         self.ran.lvm.create_thick.call_args.args[3])
        self.assertEqual([('g', 'v', start, GIB // 4) for start in range(
            0, GIB, GIB // 4)], self.zeroed())
        self.ran.lvm.remove_tag.assert_called_with(
            'g', 'v', names.shown(0), 30)

    def test_thick_lv_is_zeroed_to_its_end(self):
        """By a later request, of one that did not come so far."""
        self.thick(lv('v', '253:5', tags=[names.shown(0)], size=GIB))
        self.ran.lvm.create_thick.return_value = False
        self.assertTrue(self.lvm.create_lv('v', GIB, V1))
        self.assertEqual(4, len(self.zeroed()))

    def test_thick_lv_that_has_data_is_left(self):
        self.thick(lv('v', '253:5', size=GIB))
        self.ran.lvm.create_thick.return_value = False
        self.assertFalse(self.lvm.create_lv('v', GIB, V1))
        self.assertEqual([], self.zeroed())
        self.ran.lvm.remove_tag.assert_not_called()

    @ddt.data(('', ['create_thin', 'activate']), ('253:5', ['create_thin']))
    @ddt.unpack
    def test_lv_that_is_there_is_left(self, number, done):
        """It is active: after a power cut it may not have been."""
        self.lvs(lv('g-pool', zeroes=True), lv('volume-x', number))
        self.ran.lvm.create_thin.return_value = False
        self.assertFalse(self.lvm.create_lv('volume-x', 1 << 30, V1))
        self.assertEqual(done, self.called())

    @ddt.data([lv('g-pool')], [])
    def test_a_pool_that_does_not_zero_gives_no_volume(self, present):
        self.lvs(*present)
        error = self.assertRaises(exceptions.PoolDoesNotZero,
                                  self.lvm.create_lv, 'volume-x', GIB, V1)
        self.assertIn('lvchange -Zy g/g-pool', str(error))
        self.assertEqual([], self.called())

    @ddt.data(('', ['activate', 'number']), ('253:5', ['number']))
    @ddt.unpack
    def test_device_of_an_lv(self, before, called):
        present = iter([lv('v', before), lv('v', '253:5')])
        self.lvm.lvs = lambda: {'v': next(present)}
        self.ran.block.number.return_value = '253:5'
        self.assertEqual('/dev/g/v', self.lvm.device_of('v'))
        self.assertEqual(called, self.called())

    @ddt.data(('v', '253:5', ''), ('v', '253:5', '253:6'), ('v', '', ''),
              ('w', '253:5', '253:5'))
    @ddt.unpack
    def test_path_that_is_not_the_lv(self, name, number, found):
        self.lvs(lv('v', number))
        self.ran.block.number.return_value = found
        error = self.assertRaises(exceptions.WrongDevice,
                                  self.lvm.device_of, name)
        self.assertIn('/dev/g/' + name, str(error))

    @ddt.data((META, 'fast'), ('volume-x', 'g'))
    @ddt.unpack
    def test_removed_lv_does_not_come_back(self, name, group):
        self.assertTrue(self.lvm.remove_lv(name))
        self.assertEqual([
            mock.call.lvm.remove(group, name, 30)], self.ran.mock_calls)

    def test_lv_that_is_gone_is_removed(self):
        self.ran.lvm.remove.return_value = False
        self.assertFalse(self.lvm.remove_lv('volume-x'))
        self.assertEqual(['remove'], self.called())

    def test_new_metadata_is_zeroed(self):
        self.assertTrue(self.clones.create_metadata(MOVE, {}))
        self.assertEqual(['create_thick', 'zero_head'],
                         self.called())
        self.assertEqual({
            'volume': V1, 'geometry': '128:32:8', 'copied': '1',
            'source': 'iqn.2026-11.org.example:x'}, names.facts(
                self.ran.lvm.create_thick.call_args.args[3]))

    def test_metadata_of_a_backing_that_is_longer_than_its_volume(self):
        self.clones.create_metadata(dataclasses.replace(
            MOVE, extra_bytes=512), {})
        facts = names.facts(self.ran.lvm.create_thick.call_args.args[3])
        self.assertEqual(('1', '512'), (facts['copied'], facts['extra']))

    @ddt.data(
        (state.Phase.MIGRATING, state.Asked.ATTACH, set()),
        (state.Phase.STARTING, state.Asked.ATTACH, {names.UNMAPPED}),
        (state.Phase.MIGRATING, state.Asked.DEFERRED,
         {names.DEFERRED, names.UNMAPPED}))
    @ddt.unpack
    def test_metadata_of_what_a_guest_uses_at_its_source(
            self, phase, asked_by, expected):
        """A boot must not give out what is not the volume yet."""
        self.clones.create_metadata(dataclasses.replace(
            MOVE, token=dataclasses.replace(MOVE.token, phase=phase),
            asked_by=asked_by), {})
        tags = self.ran.lvm.create_thick.call_args.args[3]
        self.assertEqual(expected, {
            names.DEFERRED, names.UNMAPPED}.intersection(tags))

    @ddt.data(('fast', True), ('g', False))
    @ddt.unpack
    def test_size_and_place_of_metadata(self, group, flush):
        """The volume's LV comes after it, and flushes its own group."""
        self.lvm.metadata_group = group
        self.clones.create_metadata(MOVE, {})
        where, name, size, _tags, _limit = (
            self.ran.lvm.create_thick.call_args.args)
        self.assertEqual((group, META, 4 << 20), (where, name, size))
        self.assertEqual({'flush': flush},
                         self.ran.lvm.create_thick.call_args.kwargs)
        self.ran.block.zero_head.assert_called_once_with(group, META, 30)

    def test_metadata_that_could_not_be_zeroed(self):
        self.ran.block.zero_head.side_effect = FAILED
        self.assertRaises(exceptions.CommandFailed,
                          self.clones.create_metadata, MOVE, {})

    @ddt.data(('', ['activate'], True), ('253:4', [], False))
    @ddt.unpack
    def test_metadata_that_may_be_in_use_is_never_zeroed(
            self, number, called, did):
        """The volume's LV is created after that."""
        self.assertEqual(did, self.clones.create_metadata(MOVE, {
            each.name: each for each in (
                lv(META, number, 'fast', 4 << 20), lv(MOVE.destination_lv))}))
        self.assertEqual(called, self.called())

    def test_metadata_that_nothing_can_have_used_is_zeroed(self):
        """That may have failed; what was on the disk would be believed."""
        self.ran.lvm.create_thick.return_value = False
        self.lvs(lv(META, '', 'fast', 4 << 20))
        self.assertTrue(self.clones.create_metadata(MOVE, self.lvm.lvs()))
        self.assertEqual(['create_thick', 'activate', 'zero_head'],
                         self.called())

    def test_metadata_that_has_gone_is_not_made_again(self):
        """Its LV would say that it is zeroed, before it is."""
        self.assertRaises(
            exceptions.MissingData, self.clones.create_metadata, MOVE,
            {MOVE.destination_lv: lv(MOVE.destination_lv)})
        self.assertEqual([], self.called())

    def test_thin_lv_is_extended(self):
        self.lvs(lv('v', size=GIB, thin=True))
        self.assertTrue(self.lvm.extend_lv('v', 2 * GIB))
        self.assertEqual([
            mock.call.lvm.retag('g', 'v', [names.given(GIB)], [], 30),
            mock.call.lvm.extend('g', 'v', 2 * GIB, 30)],
            self.ran.mock_calls)

    def test_thin_lv_is_shown(self):
        self.lvs(lv('v', size=2 * GIB, tags=[names.given(GIB)], thin=True))
        self.lvm.show_lv('v', 2 * GIB)
        self.assertEqual([
            mock.call.lvm.retag('g', 'v', [], [names.given(GIB)], 30)],
            self.ran.mock_calls)

    @ddt.data((2 * GIB, [names.given(GIB)], [names.given(2 * GIB)]),
              (2 * GIB, [names.given(2 * GIB)], []),
              (2 * GIB, [], [names.given(2 * GIB)]))
    @ddt.unpack
    def test_lv_of_a_longer_extension_that_has_failed(
            self, size, tags, added):
        """Users see what the row says; no later move takes it for longer."""
        self.lvs(lv('v', size=4 * GIB, tags=tags, thin=True))
        self.lvm.show_lv('v', size)
        self.assertEqual([mock.call.lvm.retag(
            'g', 'v', added, [tag for tag in tags if added], 30)] * bool(
                added), self.ran.mock_calls)

    @ddt.data([], [names.given(GIB)])
    def test_what_is_not_zeroed_is_never_shown(self, tags):
        self.lvs(lv('v', size=2 * GIB, tags=[names.shown(GIB), *tags]))
        self.assertRaises(exceptions.NotPossible, self.lvm.show_lv, 'v',
                          2 * GIB)
        self.assertEqual([], self.ran.mock_calls)

    @ddt.data((None, None, 0), (GIB, None, GIB), (None, 3 * GIB, 3 * GIB),
              (2 * GIB, 3 * GIB, 3 * GIB), (3 * GIB, 2 * GIB, 3 * GIB))
    @ddt.unpack
    def test_how_much_users_may_have_seen(self, handle, of_lv, seen):
        self.lvs(*[lv('v', size=4 * GIB, tags=[names.given(of_lv)])
                   for _once in [0] if of_lv])
        self.handles.devices = lambda _only: {names.handle(V1): device(
            names.handle(V1), '253:7', '0 %d linear 253:6 0' % (
                handle // 512))} if handle else {}
        self.assertEqual(seen, self.handles.shown_bytes(V1, 'v', GIB))

    @ddt.data((3 * GIB // 2, 0, GIB), (3 * GIB // 2, 2 * GIB, 2 * GIB),
              (2 * GIB, 0, 3 * GIB))
    @ddt.unpack
    def test_lvm_is_asked_only_of_a_longer_lv(self, size, handle, seen):
        self.without_lvm('v', '253:5')
        if size >= 2 * GIB:
            self.lvs(lv('v', '253:5', size=3 * GIB))
        self.ran.block.size.return_value = size
        self.handles.devices = lambda _only: {names.handle(V1): device(
            names.handle(V1), '253:7', '0 %d linear 253:6 0' % (
                handle // 512))} if handle else {}
        self.assertEqual(seen, self.handles.shown_bytes(V1, 'v', GIB))

    def test_lv_that_is_long_enough_and_has_to_be_zeroed(self):
        """As the copy of a longer one: a boot shows no more meanwhile."""
        self.lvs(lv('v', size=3 * GIB, tags=[names.shown(GIB)], thin=True))
        self.assertFalse(self.lvm.extend_lv('v', 2 * GIB))
        self.assertEqual([
            mock.call.lvm.retag('g', 'v', [names.given(GIB)], [], 30)],
            self.ran.mock_calls)

    @ddt.data(GIB, 2 * GIB)
    def test_lv_that_is_long_enough_is_left(self, size):
        self.lvs(lv('v', size=2 * GIB))
        self.assertFalse(self.lvm.extend_lv('v', size))
        self.assertEqual([], self.ran.mock_calls)

    def thick(self, *states):
        """One state of the LV after the other, as LVM shows it."""
        self.lvm.pool = None
        shown = iter(states)
        current = [next(shown)]

        def change(*_args):
            current[0] = next(shown)
        self.ran.lvm.extend.side_effect = change
        self.lvm.lvs = lambda: {'v': current[0]}
        self.ran.block.number.return_value = '253:5'

    def zeroed(self):
        return [call.args[:4] for call in self.ran.lvm.zero.mock_calls]

    def test_thick_lv_is_extended(self):
        """In one change of its tags: never longer without them."""
        self.thick(lv('v', '253:5', size=GIB),
                   lv('v', '253:5', size=2 * GIB))
        self.assertTrue(self.lvm.extend_lv('v', 2 * GIB))
        self.assertEqual([
            mock.call.lvm.retag('g', 'v', [names.given(GIB),
                                           names.shown(GIB)], [], 30),
            mock.call.lvm.extend('g', 'v', 2 * GIB, 30)],
            self.ran.mock_calls)

    def test_thick_lv_of_a_backend_that_is_thin_by_now(self):
        self.thick(lv('v', '253:5', size=GIB),
                   lv('v', '253:5', size=2 * GIB))
        self.lvm.pool = 'g-pool'
        self.assertTrue(self.lvm.extend_lv('v', 2 * GIB))
        self.assertIn(names.shown(GIB),
                      self.ran.lvm.retag.mock_calls[0].args[2])

    def test_thick_lv_is_zeroed_part_by_part(self):
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]))
        start, ends = self.lvm.zero_part('v'), []
        while start and len(ends) < 9:
            ends.append(start)
            start = self.lvm.zero_part('v', start)
        self.assertEqual([GIB + n * GIB // 4 for n in range(1, 5)], ends)
        self.assertEqual(['number', 'zero'] * 4 + [
            'number', 'flush', 'remove_tag'], [
                each for each in self.called() if each != 'lv_number'])
        self.assertEqual([('g', 'v', start, GIB // 4) for start in range(
            GIB, 2 * GIB, GIB // 4)], self.zeroed())
        self.ran.lvm.remove_tag.assert_called_once_with(
            'g', 'v', names.shown(GIB), 30)

    @ddt.data('shown=x', 'given=x')
    def test_lv_whose_tags_are_no_numbers_is_left_alone(self, tag):
        """It is neither zeroed, nor shown, nor extended."""
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=['localclone.' + tag]))
        calls = [lambda: self.lvm.extend_lv('v', 3 * GIB)]
        if tag == 'shown=x':
            calls += [lambda: self.lvm.zero_part('v'),
                      lambda: self.lvm.show_lv('v', GIB)]
        for call in calls:
            self.assertRaises(exceptions.UnreadableTag, call)
        self.assertEqual(set(), {*self.called()} & {
            'zero', 'retag', 'extend', 'remove_tag'})

    def test_lv_is_looked_at_once_for_many_parts(self):
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]))
        self.assertEqual(0, self.lvm.zero_part('v', seconds=math.inf))
        self.assertEqual(
            ['number', *['zero'] * 4, 'flush', 'remove_tag'],
            [each for each in self.called() if each != 'lv_number'])
        self.assertEqual([('g', 'v', start, GIB // 4) for start in range(
            GIB, 2 * GIB, GIB // 4)], self.zeroed())

    def test_zeroing_ends_after_the_time_that_it_may_take(self):
        """With the part that was begun then."""
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]))
        with mock.patch.object(logical_volumes.time, 'monotonic',
                               side_effect=[7, 8.9, 9]):
            end = self.lvm.zero_part('v', seconds=2)
        self.assertEqual(GIB + GIB // 2, end)
        self.assertEqual(2, len(self.zeroed()))

    def test_where_zeroing_has_ended_is_noted_once_it_is_stable(self):
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]))
        self.lvm.note_zeroed('v', 5 * GIB // 4)
        self.ran.assert_has_calls([
            mock.call.block.flush('/dev/g/v', 30),
            mock.call.lvm.retag('g', 'v', [names.shown(5 * GIB // 4)],
                                [names.shown(GIB)], 30)])

    def test_nothing_is_noted_beyond_an_lv(self):
        self.thick(lv('v', '253:5', size=2 * GIB, tags=[names.shown(GIB)]))
        self.lvm.note_zeroed('v', 3 * GIB)
        self.ran.lvm.retag.assert_called_once_with(
            'g', 'v', [names.shown(2 * GIB)], [names.shown(GIB)], 30)

    @ddt.data(([], 5 * GIB // 4), ([], 3 * GIB),
              ([names.shown(3 * GIB // 2)], 5 * GIB // 4),
              # Without its tag nothing more would be zeroed.
              ([names.shown(5 * GIB // 4)], 5 * GIB // 4))
    @ddt.unpack
    def test_nothing_is_noted_of_what_is_known(self, tags, end):
        self.thick(lv('v', '253:5', size=2 * GIB, tags=tags))
        self.lvm.note_zeroed('v', end)
        self.assertNotIn('retag', self.called())

    def test_interrupted_extension_that_goes_further(self):
        """All from where the LV ended at first, whatever was zeroed."""
        self.thick(lv('v', '253:5', size=2 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]),
                   lv('v', '253:5', size=3 * GIB,
                      tags=[names.shown(GIB), names.given(GIB)]))
        self.assertTrue(self.lvm.extend_lv('v', 3 * GIB))
        self.assertNotIn('retag', self.called())
        self.assertEqual(5 * GIB // 4, self.lvm.zero_part('v'))

    def test_nothing_is_zeroed_that_users_may_have_written(self):
        self.lvs(lv('v', '253:5', size=2 * GIB, tags=[names.given(GIB)]))
        self.ran.block.number.return_value = '253:5'
        self.assertEqual(0, self.lvm.zero_part('v'))
        self.assertNotIn('zero', self.called())

    @ddt.data(('v', '', True), ('v', '253:5', False), ('w', '', False))
    @ddt.unpack
    def test_activate(self, name, number, did):
        self.lvs(lv('v', number))
        self.assertIs(did, self.lvm.activate(name))
        self.assertRan(*[mock.call.lvm.activate('g', 'v', 30)] * did)


@ddt.ddt
class SnapshotTest(Case):

    def setUp(self):
        super().setUp()
        self.lvs(lv('g-pool', zeroes=True),
                 lv('volume-x', '253:5', thin=True))

    def test_holes(self):
        with mock.patch.object(logical_volumes, 'thin_pool') as pool:
            pool.LIMIT = 10
            self.assertIs(pool.largest_holes.return_value, self.lvm.holes(
                'volume-' + V1, GIB, MOVE.geometry))
            pool.largest_holes.assert_called_once_with(
                'g', 'volume-' + V1, GIB, 1 << 16, 10)
            pool.release_metadata_snapshot.return_value = True
            self.assertTrue(self.lvm.release_map())
            pool.release_metadata_snapshot.assert_called_once_with(
                'g', 'g-pool', 30)
            self.lvm.pool = None
            self.assertFalse(self.lvm.release_map())
            pool.release_metadata_snapshot.assert_called_once()

    @ddt.data((True, 'g-pool', True, True), (False, '', True, False),
              (True, 'g-pool', False, False), (True, 'other', True, False),
              (False, 'g-pool', True, False))  # of VDO, say
    @ddt.unpack
    def test_new_lv_that_reads_as_zeros(self, thin, pool, zeroes, truth):
        self.lvs(lvm_reports.LogicalVolume('g', 'v', GIB, '', frozenset(),
                                           thin=thin, pool=pool),
                 lvm_reports.LogicalVolume('g', 'g-pool', GIB, '', frozenset(),
                                           zeroes=zeroes))
        self.assertIs(truth, self.lvm.reads_zeros('v'))
        self.assertFalse(self.lvm.reads_zeros('none'))

    def test_written(self):
        self.ran.block.written_sectors.return_value = 8
        self.assertEqual(8, self.handles.written(V1))
        self.assertEqual([
            mock.call.dmsetup.ensure_devnode(names.handle(V1)),
            mock.call.block.written_sectors(names.handle_path(V1))],
            self.ran.mock_calls)

    def test_snapshot(self):
        self.lvm.create_snapshot(SNAPSHOT, 'volume-x', V1)
        self.assertRan(
            mock.call.lvm.create_snapshot(
                'g', 'volume-x', '_snapshot-' + SNAPSHOT, False,
                ['localclone.snapshot=' + SNAPSHOT,
                 'localclone.of=' + V1, names.node_tag('b@l')], 30))

    @ddt.data((GIB, []), (2 * GIB, ['extend']))
    @ddt.unpack
    def test_copy(self, size, more):
        self.lvs(lv('g-pool', zeroes=True), lv('_snapshot-y', size=GIB),
                 lv('volume-x', size=size, thin=True))
        self.lvm.create_copy('volume-x', '_snapshot-y', GIB, size, V1)
        self.assertEqual(['create_snapshot', *more],
                         self.called())
        self.assertEqual(
            mock.call('g', '_snapshot-y', 'volume-x', True,
                      ['localclone.volume=' + V1, *names.uncommitted('b@l')],
                      30),
            self.ran.lvm.create_snapshot.call_args)
        if more:
            self.ran.lvm.extend.assert_called_once_with(
                'g', 'volume-x', 2 * GIB, 30)

    def test_copy_that_is_longer_than_its_volume(self):
        self.lvm.create_copy('volume-x', '_snapshot-y', GIB + 512,
                             GIB + 512, V1, 512)
        self.assertEqual(
            ['localclone.volume=' + V1, 'localclone.extra=512',
             *names.uncommitted('b@l')],
            self.ran.lvm.create_snapshot.call_args.args[4])

    @ddt.data((GIB, ['retag']), (2 * GIB, ['number', *['zero'] * 4, 'flush',
                                           'remove_tag']),
              (3 * GIB, ['number', *['zero'] * 4, 'flush', 'remove_tag',
                         'extend']))
    @ddt.unpack
    def test_copy_of_an_lv_that_is_longer_than_its_volume(self, size, more):
        """Extending it has failed; nobody sees what was written there."""
        mark = names.shown(GIB)
        self.lvs(lv('g-pool', zeroes=True), lv('volume-y', size=2 * GIB),
                 lv('volume-x', '253:5', size=2 * GIB, tags=[mark],
                    thin=True))
        if size > 2 * GIB:  # it is listed when it has been zeroed
            self.useFixture(fixtures.MockPatchObject(self.lvm, 'show_lv'))
        self.ran.block.number.return_value = '253:5'
        self.lvm.create_copy('volume-x', 'volume-y', GIB, size, V1)
        self.assertEqual(['create_snapshot', *more],
                         self.called())
        # From its first moment on, wherever that stops.
        self.assertIn(mark, self.ran.lvm.create_snapshot.call_args.args[4])
        self.assertEqual(
            [GIB + n * GIB // 4 for n in range(4)] if size > GIB else [],
            [call.args[2] for call in self.ran.lvm.zero.mock_calls])

    @ddt.data(GIB, 2 * GIB)
    def test_copy_that_is_shorter(self, size):
        """Extended one day, it has zeros there, not what its image has."""
        mark = names.shown(size)
        self.lvs(lv('g-pool', zeroes=True), lv('volume-y', size=3 * GIB),
                 lv('volume-x', size=3 * GIB, tags=[mark], thin=True))
        self.lvm.create_copy('volume-x', 'volume-y', 3 * GIB, size, V1)
        self.assertIn(mark, self.ran.lvm.create_snapshot.call_args.args[4])
        self.assertEqual(['create_snapshot', 'retag'], self.called())
        self.ran.lvm.retag.assert_called_once_with(
            'g', 'volume-x', [names.given(size)], [], 30)

    def test_copy_with_extents_of_several_gib(self):
        """What LVM adds is nobody's, and no reason to refuse a move."""
        self.lvs(lv('g-pool', zeroes=True), lv('volume-y', size=4 * GIB),
                 lv('volume-x', size=8 * GIB, thin=True))
        self.lvm.create_copy('volume-x', 'volume-y', 4 * GIB, 5 * GIB, V1)
        self.assertEqual(['create_snapshot', 'extend', 'retag'],
                         self.called())
        self.ran.lvm.retag.assert_called_once_with(
            'g', 'volume-x', [names.given(5 * GIB)], [], 30)

    def test_copy_that_would_show_what_others_have_deleted(self):
        self.lvs(lv('g-pool'))
        self.assertRaises(exceptions.PoolDoesNotZero, self.lvm.create_copy,
                          'volume-x', '_snapshot-y', GIB, GIB, V1)
        self.assertRan()

    @ddt.data(('data', ['retag', 'rename']),
              ('volume-x', ['retag']))
    @ddt.unpack
    def test_adopt(self, name, called):
        self.lvm.adopt(name, 'volume-x', ['a', 'b'])
        self.assertEqual(called, self.called())
        self.ran.lvm.retag.assert_called_once_with(
            'g', name, ['a', 'b'], [], 30)
        if 'rename' in called:
            self.ran.lvm.rename.assert_called_once_with(
                'g', 'data', 'volume-x', 30)
        self.lvs(lv('g-pool'))
        self.assertRaises(exceptions.PoolDoesNotZero, self.lvm.adopt, name,
                          'volume-x', ['a'])

    @ddt.data((('volume-x',), 'data', 'data'), (('volume-x',), 'volume-x', ''),
              (('volume-x', 'data'), 'data', ''))
    @ddt.unpack
    def test_disown(self, present, new, renamed):
        tags = ['x', 'localclone.shown=7', 'localclone.volume=v', 'y=z',
                *names.uncommitted('b@l')]
        self.lvs(*(lv(name, tags=tags) for name in present))
        self.assertTrue(self.lvm.disown('volume-x', new))
        self.assertEqual([*(['rename'] if renamed else []), 'retag'],
                         self.called())
        self.ran.lvm.retag.assert_called_once_with(
            'g', renamed or 'volume-x', [],
            sorted([*names.uncommitted('b@l'), 'localclone.volume=v']), 30)

    @ddt.data((GIB, GIB, True), (2 * GIB, GIB, False))
    @ddt.unpack
    def test_disown_after_an_extension_that_failed(self, size, shown, goes):
        """All is zeroed: what its owner extends it by is none of ours."""
        self.lvs(lv('volume-x', size=size, tags=[
            'localclone.volume=v', names.given(GIB), names.shown(shown)]))
        self.assertTrue(self.lvm.disown('volume-x', 'volume-x'))
        self.assertEqual(goes, names.shown(shown)
                         in self.ran.lvm.retag.call_args.args[3])

    @ddt.data(['localclone.shown=x'],
              [names.shown(GIB), names.shown(2 * GIB)])
    def test_disown_what_has_tags_that_can_not_be_read(self, tags):
        """They stay: what is managed with them later is refused."""
        self.lvs(lv('volume-x', size=GIB, tags=['localclone.volume=v', *tags]))
        self.assertTrue(self.lvm.disown('volume-x', 'volume-x'))
        self.ran.lvm.retag.assert_called_once_with(
            'g', 'volume-x', [], ['localclone.volume=v'], 30)

    def test_nothing_to_disown(self):
        self.lvs(lv('data', tags=['x']))
        for name in ('data', 'gone'):
            self.assertFalse(self.lvm.disown(name, 'new'))
        self.assertRan()

    def test_one_that_has_gone_is_no_error_of_python(self):
        self.lvs()
        for act in (lambda: self.lvm.show_lv('v', GIB),
                    lambda: self.lvm.note_zeroed('v', GIB),
                    lambda: self.lvm.protect('v')):
            self.assertRaises(exceptions.MissingData, act)
        self.assertNotIn('retag', self.called())

    def test_protect(self):
        for readonly, first in ((False, ['protect']), (True, [])):
            self.ran.reset_mock()
            self.lvs(lv('s', readonly=readonly))
            self.lvm.protect('s')
            self.assertEqual([*first, 'skip_activation', 'deactivate'],
                             self.called())

    def test_one_that_did_not_end_well_is_not_taken_for_it(self):
        self.ran.lvm.create_snapshot.side_effect = [False, True]
        self.lvm.create_snapshot(SNAPSHOT, 'volume-x', V1)
        self.assertEqual(
            ['create_snapshot', 'remove', 'create_snapshot'],
            self.called())
        self.ran.lvm.remove.assert_called_once_with(
            'g', '_snapshot-' + SNAPSHOT, 30)

    @ddt.data((True, ['create_snapshot', 'resume']),
              (False, ['create_snapshot']))
    @ddt.unpack
    def test_the_origin_is_not_left_suspended(self, suspended, called):
        self.lvs(lv('volume-x', '253:5', suspended=suspended))
        for broken in (None, FAILED):
            self.ran.reset_mock()
            self.ran.lvm.create_snapshot.side_effect = FAILED
            self.ran.lvm.resume.side_effect = broken
            self.assertRaises(
                exceptions.CommandFailed, self.lvm.create_snapshot,
                SNAPSHOT, 'volume-x', V1)
            self.assertEqual(called, self.called())
        if suspended:
            self.ran.lvm.resume.assert_called_with('253:5', 30)

    @ddt.data((lv('volume-x', '253:5', suspended=True), True),
              (lv('volume-x', '253:5'), False),
              (lv('volume-y', '253:5', suspended=True), False),
              (lv('volume-x', suspended=True), False))
    @ddt.unpack
    def test_resume(self, present, did):
        self.lvs(present)
        self.assertIs(did, self.lvm.resume('volume-x'))
        self.assertRan(*[mock.call.lvm.resume('253:5', 30)] * did)

    def test_accept_and_deactivate(self):
        self.lvm.accept('volume-x')
        self.lvm.deactivate('_snapshot-y')
        self.assertRan(
            mock.call.lvm.retag('g', 'volume-x', [],
                                names.uncommitted('b@l'), 30),
            mock.call.lvm.deactivate('g', '_snapshot-y', 30))

    @ddt.data(('', ['activate', 'create']), ('253:5', ['create']))
    @ddt.unpack
    def test_handle(self, number, called):
        name = names.handle(SNAPSHOT)
        self.devices()
        self.lvs(lv('_snapshot-' + SNAPSHOT, number))
        self.assertTrue(self.handles.ensure_handle_on_snapshot(SNAPSHOT, GIB))
        self.assertEqual(called, self.called())
        self.ran.dmsetup.create.assert_called_once_with(
            name, 'LOCALCLONE-' + name, '0 2097152 linear '
            '/dev/g/_snapshot-%s 0' % SNAPSHOT, 30, readonly=True)
        self.ran.dmsetup.ensure_devnode.assert_called_once_with(name)

    def test_handle_that_is_there(self):
        self.lvs(lv('_snapshot-' + SNAPSHOT, '253:5'))
        self.devices(device(names.handle(SNAPSHOT), '253:7',
                            '0 1 linear 253:5 0'))
        self.assertFalse(self.handles.ensure_handle_on_snapshot(SNAPSHOT, GIB))
        self.assertRan()

    def test_handle_that_is_there_by_the_kernel(self):
        self.without_lvm('_snapshot-' + SNAPSHOT, '253:5')
        self.devices(device(names.handle(SNAPSHOT), '253:7',
                            '0 1 linear 253:5 0'))
        self.assertFalse(self.handles.ensure_handle_on_snapshot(SNAPSHOT, GIB))
        self.assertRan()

    def test_handle_of_a_snapshot_that_is_gone(self):
        self.lvs()
        self.devices()
        self.assertRaises(
            exceptions.MissingData, self.handles.ensure_handle_on_snapshot,
            SNAPSHOT, GIB)
        self.assertRan()


@ddt.ddt
class SourceTest(Case):
    """What the source of a move serves."""

    NAME = names.source(SHADOW)

    @ddt.data(('', ['activate', 'create']), ('253:5', ['create']))
    @ddt.unpack
    def test_of_what_is_copied_and_only_to_be_read(self, number, called):
        """The LV may be longer."""
        self.devices(device(names.handle(V1), '253:7',
                            '0 4194304 linear 253:5 0'))
        self.lvs(lv(MOVE.source_lv, number, size=2 * GIB))
        self.assertTrue(self.handles.ensure_source(MOVE))
        self.assertEqual(called, self.called())
        self.ran.dmsetup.create.assert_called_once_with(
            self.NAME, 'LOCALCLONE-' + self.NAME,
            '0 2097152 linear /dev/g/%s 0' % MOVE.source_lv, 30,
            readonly=True)
        self.ran.dmsetup.ensure_devnode.assert_called_once_with(self.NAME)

    @ddt.data(True, False)
    def test_there_already(self, mended):
        self.lvs(lv(MOVE.source_lv, '253:5'))
        self.devices(device(self.NAME, '253:8', '0 2097152 linear 253:5 0'))
        self.ran.dmsetup.ensure_devnode.return_value = mended
        self.assertIs(mended, self.handles.ensure_source(MOVE))
        self.assertRan()

    @ddt.data('', '0 2097152 linear 253:6 0')
    def test_made_anew_if_it_is_on_nothing_or_another(self, table):
        self.lvs(lv(MOVE.source_lv, '253:5'))
        self.devices(device(self.NAME, '253:8', table))
        self.assertTrue(self.handles.ensure_source(MOVE))
        self.assertEqual(['remove', 'create'], self.called())

    @ddt.data(None, '', '0 2097152 linear 253:6 0')
    def test_of_an_lv_that_the_kernel_has(self, table):
        """Then nobody waits for LVM."""
        self.devices(*[] if table is None else [
            device(self.NAME, '253:8', table)])
        self.without_lvm(MOVE.source_lv, '253:5')
        self.assertTrue(self.handles.ensure_source(MOVE))
        self.assertEqual(['remove'] * (table is not None) + ['create'],
                         self.called())

    def test_never_of_an_lv_that_is_gone(self):
        self.lvs()
        self.devices()
        error = self.assertRaises(
            exceptions.MissingData, self.handles.ensure_source, MOVE)
        self.assertIn(V1, str(error))
        self.assertRan()

    @ddt.data(True, False)
    def test_removed(self, did):
        self.ran.dmsetup.remove.return_value = did
        self.assertIs(did, self.handles.remove_source(SHADOW))
        self.assertRan(mock.call.dmsetup.remove(self.NAME, 30))


@ddt.ddt
class HandleTest(Case):

    def test_handle_on_its_clone_is_left(self):
        self.devices(
            device(
                names.handle(V1), '253:7', '0 2097152 linear 253:6 0'),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertFalse(self.handles.ensure_handle_on_clone(MOVE))
        self.assertRan()

    @ddt.data((True, 'swap_table'), (False, 'create'))
    @ddt.unpack
    def test_handle_is_put_on_its_clone(self, there, called):
        found = [device(names.clone(SHADOW), '253:6', '0 1 clone a b c')]
        if there:
            found.append(device(
                names.handle(V1), '253:7', '0 2097152 linear 253:5 0'))
        self.devices(*found)
        self.lvs(lv('volume-' + SHADOW, '253:4', size=3 * GIB // 2))
        self.ran.block.size.return_value = 3 * GIB // 2
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))
        self.assertEqual(called, self.called()[-1])

    def test_handle_on_a_clone_without_the_link_of_its_lv(self):
        """udev may be late; the clone needs no link."""
        self.devices(device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.lvs(lv('volume-' + SHADOW, '253:4'))
        self.ran.block.lv_number.side_effect = None
        self.ran.block.lv_number.return_value = ''
        self.ran.block.size.side_effect = FileNotFoundError
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))

    def test_handle_on_a_clone_of_what_is_longer_than_its_row(self):
        """LVM is asked what users have seen of it."""
        self.devices(device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.lvs(lv('volume-' + SHADOW, '253:5', size=3 * GIB, tags=[
            names.given(2 * GIB)]))
        self.ran.block.size.return_value = 3 * GIB
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))
        _name, _uuid, table, *_rest = (
            self.ran.dmsetup.create.call_args.args)
        self.assertEqual('2097152 2097152', ' '.join(
            table.splitlines()[1].split()[:2]))

    def test_handle_on_an_lv_that_is_not_active(self):
        self.devices()
        self.lvs(lv('v'))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertEqual(['activate', 'create'], self.called())

    def test_handle_on_an_lv_that_is_longer_than_its_row(self):
        """It has what users have seen, and no more."""
        self.devices()
        self.lvs(lv('v', '253:5', size=4 * GIB - 1,
                    tags=[names.given(3 * GIB)]))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        _name, _uuid, table, *_rest = (
            self.ran.dmsetup.create.call_args.args)
        self.assertEqual('0 6291456 linear', ' '.join(table.split()[:3]))

    def test_handle_on_an_lv_that_was_just_listed(self):
        """A boot that listed all LVs for each would take the square."""
        self.devices()
        self.without_lvm('v', '')
        self.assertTrue(self.handles.ensure_handle_on_lv(
            V1, 'v', GIB, {'v': lv('v')}))
        self.assertEqual(['activate', 'create'], self.called())

    def test_handle_that_is_not_to_be_swapped(self):
        """It has come since nobody had seen one, with no lock held."""
        self.lvs(lv('v', '253:5'))
        self.devices(
            device(names.handle(V1), '253:7', '0 2097152 linear 8:16 0'),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.ran.block.number.return_value = '8:32'
        self.ran.block.size.return_value = GIB
        for ensure, what in (
                (self.handles.ensure_handle_on_lv, (V1, 'v', GIB)),
                (self.handles.ensure_handle_on_clone, (MOVE,)),
                (self.handles.ensure_handle_on_disk, (V1, 'p'))):
            error = self.assertRaises(
                exceptions.NotPossible, ensure, *what, swaps=False)
            self.assertIn('another process created its handle', str(error))
        self.assertEqual({'number', 'size'}, {*self.called()})

    def test_handle_that_need_not_be_swapped(self):
        self.lvs(lv('v', '253:5'))
        self.devices()
        self.assertTrue(self.handles.ensure_handle_on_lv(
            V1, 'v', GIB, swaps=False))
        self.assertEqual(['create'], self.called())

    @ddt.data((0, False), (GIB - 1, False), (GIB, True))
    @ddt.unpack
    def test_what_was_not_zeroed_is_not_shown(self, shown, done):
        self.devices()
        self.lvm.pool = None
        self.lvs(lv('v', '253:5', tags=[names.shown(shown)], size=2 * GIB))
        if done:
            self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
            return
        error = self.assertRaises(
            exceptions.NotPossible, self.handles.ensure_handle_on_lv, V1, 'v',
            GIB)
        self.assertIn('not zeroed', str(error))
        self.assertRan()

    def test_missing_lv_is_not_made_anew(self):
        self.devices()
        self.lvs()
        error = self.assertRaises(
            exceptions.MissingData, self.handles.ensure_handle_on_lv, V1, 'v',
            GIB)
        self.assertRan()
        # Peers log it, too: "this node" would be wrong there.
        self.assertIn('missing on b@l', str(error))

    def test_handle_on_its_lv_is_left(self):
        self.lvs(lv('v', '253:5'))
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:5 0'))
        self.assertFalse(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertRan()

    def test_handle_that_is_right_by_the_kernel(self):
        """Nobody waits for LVM then; any other handle is looked at."""
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:5 0'))
        self.without_lvm('v', '253:5')
        self.assertFalse(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertFalse(self.lvm.activate('v'))
        self.assertRan()
        self.lvs(lv('v', '253:6'))
        for number, size in (('253:6', GIB), ('', GIB), ('253:5', 2 * GIB)):
            self.ran.block.lv_number.side_effect = lambda *_lv: number
            self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', size))

    def test_handle_is_swapped_over_to_its_lv(self):
        self.lvs(lv('v', '253:5'))
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:6 0'))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertRan(mock.call.dmsetup.swap_table(
            names.handle(V1), '0 2097152 linear /dev/g/v 0', 30))

    @ddt.data(('v', {'suspended': True}), ('w', {}))
    @ddt.unpack
    def test_handle_that_does_not_serve_is_swapped(self, on, state_):
        self.lvs(lv('v', '253:5'), lv('w', '253:9'))
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:5 0',
            **state_))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, on, GIB))
        self.assertEqual(['swap_table'], self.called())

    def test_suspended_handle_on_its_clone_is_swapped(self):
        self.devices(
            device(
                names.handle(V1), '253:7', '0 2097152 linear 253:6 0',
                suspended=True),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))
        self.assertEqual(['swap_table'], self.called())

    def test_handle_that_is_too_short_is_lengthened(self):
        self.lvs(lv('v', '253:5'))
        self.devices(device(names.handle(V1), '253:7',
                            '0 2097152 linear 253:5 0'))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', 2 * GIB))
        self.assertRan(mock.call.dmsetup.swap_table(
            names.handle(V1), '0 4194304 linear /dev/g/v 0', 30))

    @ddt.data((1, GIB, 4194304), (0, 2 * GIB, 4194304), (0, GIB, 2097152),
              (0, 2 * GIB - 512, 2097152))
    @ddt.unpack
    def test_handle_keeps_its_length_on_an_lv(self, opened, held, sectors):
        """A guest has seen the new size; the row may not have it yet.

        What is left closed of a failed extension elsewhere fits the LV.
        """
        self.lvs(dataclasses.replace(lv('v', '253:5'), size=held))
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:6 0\n'
            '2097152 2097152 linear 253:5 2097152', opened=opened))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertRan(mock.call.dmsetup.swap_table(
            names.handle(V1), '0 %d linear /dev/g/v 0' % sectors, 30))

    def test_closed_handle_shows_no_more_than_is_zeroed(self):
        """Behind that is what others have deleted, however long the LV is."""
        self.lvs(lv('v', '253:5', size=2 * GIB,
                    tags=(names.shown(2 * GIB - 512),)))
        self.devices(device(
            names.handle(V1), '253:7', '0 4194304 linear 253:6 0'))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.assertRan(mock.call.dmsetup.swap_table(
            names.handle(V1), '0 2097152 linear /dev/g/v 0', 30))

    @ddt.data((0, 1), (1, 2))
    @ddt.unpack
    def test_handle_keeps_its_length_on_a_clone(self, opened, tables_):
        """Unless it is closed: then it may be longer than the new LV."""
        self.devices(
            device(names.handle(V1), '253:7', '0 4194304 linear 8:16 0',
                   opened=opened),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))
        swap, = [call for call in self.ran.mock_calls
                 if call[0] == 'dmsetup.swap_table']
        self.assertEqual(tables_, len(swap.args[1].splitlines()))

    @ddt.data('0 2097152 linear 253:6 0', '0 4194304 linear 253:5 0')
    def test_extended_while_it_is_copied(self, before):
        """The clone keeps its length; what is new is on the LV."""
        self.devices(device(names.handle(V1), '253:7', before),
                     device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertTrue(self.handles.ensure_handle_on_clone(
            dataclasses.replace(MOVE, volume_gib=2)))
        self.assertRan(mock.call.dmsetup.swap_table(
            names.handle(V1),
            '0 2097152 linear /dev/mapper/%s 0\n'
            '2097152 2097152 linear /dev/g/%s 2097152' % (
                names.clone(SHADOW), MOVE.destination_lv), 30))

    @ddt.data(1, 2)
    def test_extended_handle_on_its_clone_is_left(self, recorded):
        """Also if the row does not say yet that it was extended."""
        self.devices(
            device(
                names.handle(V1), '253:7', '0 2097152 linear 253:6 0\n'
                '2097152 2097152 linear 253:5 2097152'),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertFalse(self.handles.ensure_handle_on_clone(
            dataclasses.replace(MOVE, volume_gib=recorded)))
        self.assertRan()

    def test_new_handle(self):
        self.devices()
        self.lvs(lv('v', '253:5'))
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        name = names.handle(V1)
        self.assertRan(mock.call.dmsetup.create(
            name, 'LOCALCLONE-' + name, '0 2097152 linear /dev/g/v 0', 30))

    @ddt.data(True, False)
    def test_removed(self, there):
        self.devices()
        self.ran.dmsetup.remove.return_value = there
        self.assertIs(there, self.handles.remove_handle(V1))
        self.assertIs(there, self.clones.remove_clone(SHADOW))
        self.assertEqual([
            mock.call.links.remove(V1),
            mock.call.block.number(names.export_device_path(V1)),
            mock.call.dmsetup.remove(names.handle(V1), 30),
            mock.call.dmsetup.remove(names.clone(SHADOW), 30),
            mock.call.dmsetup.remove(names.absent_source(SHADOW), 30)],
            self.ran.mock_calls)

    def test_path_that_leads_elsewhere_is_mended(self):
        """A handle that is right is of no use if nothing leads to it."""
        self.lvs(lv('v', '253:5'))
        self.devices(device(
            names.handle(V1), '253:7', '0 2097152 linear 253:5 0'))
        repair = self.ran.dmsetup.ensure_devnode
        repair.return_value = True
        self.assertTrue(self.handles.ensure_handle_on_lv(V1, 'v', GIB))
        self.devices(
            device(
                names.handle(V1), '253:7', '0 2097152 linear 253:6 0'),
            device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))
        self.assertTrue(self.handles.ensure_handle_on_clone(MOVE))
        self.assertEqual([mock.call(names.handle(V1))] * 2, repair.mock_calls)
        self.assertRan()

    @ddt.data('read_head', 'flush_handle')
    def test_nothing_else_is_read_or_flushed(self, what):
        self.devices()
        getattr(self.handles, what)(V1)
        self.assertEqual('dmsetup.ensure_devnode',
                         self.ran.mock_calls[0][0])
        self.ran.block.reset_mock()
        self.ran.dmsetup.ensure_devnode.side_effect = (
            exceptions.WrongDevice(path='p', found='nothing'))
        self.assertRaises(exceptions.WrongDevice,
                          getattr(self.handles, what), V1)
        self.assertEqual([], self.ran.block.mock_calls)

    @ddt.data(True, False)
    def test_path_of_a_handle_that_was_just_made(self, there):
        self.lvs(lv('v', '253:5'))
        self.devices(*[device(names.handle(V1), '253:7',
                              '0 2097152 linear 253:6 0')] * there)
        self.handles.ensure_handle_on_lv(V1, 'v', GIB)
        self.assertEqual('dmsetup.ensure_devnode',
                         self.ran.mock_calls[-1][0])

    def test_data(self):
        self.devices()
        self.handles.read_head(V1)
        self.handles.flush_handle(V1)
        self.lvm.flush_lv('v')
        path = '/dev/mapper/' + names.handle(V1)
        self.assertRan(
            mock.call.block.read_head(path, 1 << 20, 30),
            mock.call.block.flush(path, 30),
            mock.call.block.flush('/dev/g/v', 30))


@ddt.ddt
class SpaceTest(Case):

    def groups(self, **free):
        self.ran.lvm.free.return_value = json.dumps({'report': [{'vg': [
            {'vg_name': name, 'vg_size': '100', 'vg_free': str(size),
             'vg_missing_pv_count': '0'}
            for name, size in free.items()]}]})

    def test_thin(self):
        self.groups(g=20, fast=7)
        self.lvs(lv('g-pool', '253:1', size=40, allocated=10),
                 lv('volume-' + V1, size=8, thin=True, allocated=3))
        self.assertEqual(lvm_reports.FreeSpace(30, 7, False),
                         self.lvm.free_space())
        self.ran.lvm.free.assert_called_once_with(['fast', 'g'], 30)
        self.ran.lvm.volumes.reset_mock()
        listed = {'g-pool': lv('g-pool', size=9, allocated=4)}
        self.assertEqual(5, self.lvm.free_space(listed).volumes)
        self.ran.lvm.volumes.assert_not_called()

    def test_what_is_on_its_way_here_counts(self):
        self.groups(g=20, fast=7)
        self.lvs(lv('g-pool', '253:1', size=40, allocated=10),
                 lv('volume-' + SHADOW, size=8, thin=True, allocated=3),
                 lv(META, group='fast', size=1))
        self.assertEqual(25, self.lvm.free_space().volumes)

    @ddt.data((0, 3), (1, 2), (3, 0), (5, 0), (1, 2, 'vol_%s.disk'))
    @ddt.unpack
    def test_what_is_not_copied_is_not_on_its_way(
            self, allocated, unfilled, template='volume-%s'):
        """By what the volume was extended since the move began, in GiB."""
        found = lvm_reports.bytes_to_write({each.name: each for each in (
            lv(template % SHADOW, size=5 * GIB, thin=True,
               allocated=allocated * GIB),
            lv('volume-' + V1, size=8 * GIB, thin=True),
            lv(META, tags=names.tags(copied=3)))})
        self.assertEqual(unfilled * GIB, found)

    def test_thick_volumes_on_their_way_have_their_room(self):
        self.assertEqual(0, lvm_reports.bytes_to_write({each.name: each
                                                        for each in (
                                                            lv('volume-'
                                                               + SHADOW,
                                                               size=8),
                                                            lv(META,
                                                               tags=()))}))

    @ddt.data(('fast', 7, False), ('g', 20, True))
    @ddt.unpack
    def test_thick(self, group, metadata, shared):
        self.groups(g=20, fast=7)
        self.lvm.pool, self.lvm.metadata_group = None, group
        self.assertEqual(lvm_reports.FreeSpace(20, metadata, shared),
                         self.lvm.free_space())

    @ddt.data(('g-pool', (40, 30, 16, 2)), (None, (100, 20, 8, 1)))
    @ddt.unpack
    def test_capacity(self, pool, expected):
        self.lvm.pool = pool
        self.groups(g=20)
        thin = [lv('g-pool', '253:1', size=40, allocated=10)]
        thin += [lv(name, size=8, thin=True) for name in ('v1', 'v2')]
        thick = [lv('v3', size=8)]
        self.assertEqual(expected, self.capacity(
            lv('m', group='fast', size=4), *(thin if pool else thick)))

    def capacity(self, *present):
        self.groups(g=20, fast=7)
        free, capacity = self.lvm.space(
            {each.name: each for each in present})
        self.ran.lvm.free.assert_called_once_with(['fast', 'g'], 30)
        self.ran.lvm.free.reset_mock()
        self.assertEqual(7, free.metadata)
        if capacity.free:
            self.assertEqual(free.volumes, capacity.free)
        return (capacity.total, capacity.free, capacity.provisioned,
                capacity.volumes)

    def test_room_as_it_was_listed_with_the_lvs(self):
        """Of a group without any LV nothing is listed."""
        listed = {'g-pool': lv('g-pool', size=8 * GIB, group_size=20,
                               group_free=9),
                  META: lv(META, group='fast', group_size=8, group_free=7)}
        self.assertEqual(lvm_reports.FreeSpace(8 * GIB, 7, False),
                         self.lvm.free_space(listed))
        self.assertEqual(7, self.lvm.space(listed)[0].metadata)
        self.ran.lvm.free.assert_not_called()
        del listed[META]
        self.groups(g=20, fast=6)
        self.assertEqual(6, self.lvm.free_space(listed).metadata)

    @ddt.data((10, 24), (35, 0))
    @ddt.unpack
    def test_capacity_without_what_is_on_its_way(self, allocated, free):
        """The scheduler does not give the same room away again."""
        self.assertEqual((40, free, 16, 2), self.capacity(
            lv('g-pool', size=40, allocated=allocated),
            lv('volume-' + SHADOW, size=8, thin=True, allocated=2),
            lv('v', size=8, thin=True), lv(META, group='fast', size=1)))

    @ddt.data((960, 0), (0, 80))
    @ddt.unpack
    def test_capacity_of_a_full_pool(self, allocated, metadata):
        self.assertEqual((1000, 0, 8, 1), self.capacity(
            lv('g-pool', size=1000, allocated=allocated, metadata_size=100,
               metadata_used=metadata), lv('v', size=8, thin=True)))

    def test_full_pool_takes_nothing_in(self):
        self.groups(g=20, fast=7)
        for used, free in ((949, 51), (950, 0)):
            self.lvs(lv('g-pool', size=1000, allocated=used))
            self.assertEqual(lvm_reports.FreeSpace(free, 7, False),
                             self.lvm.free_space())

    def test_pool_transactions(self):
        """One that differs only once was an LVM command at work."""
        for answers in ([(7, 7)], [(8, 7), (8, 8)], [(8, 7), (8, 7)]):
            self.ran.lvm.transactions.reset_mock()
            self.ran.lvm.transactions.side_effect = answers
            self.assertEqual(answers[-1],
                             self.lvm.pool_transactions('g-pool'))
            self.assertEqual([mock.call('g', 'g-pool', 30)] * len(answers),
                             self.ran.lvm.transactions.mock_calls)

    def test_pool_usage(self):
        self.lvs(lv('v', size=9, thin=True, allocated=9),
                 lv('g-pool', size=1000, allocated=842, metadata_size=20 << 20,
                    metadata_used=5 << 20))
        self.assertEqual(lvm_reports.Usage(84.2, 25, 80),
                         self.lvm.pool_usage())
        self.assertEqual(lvm_reports.Usage(50, 0, 75), self.lvm.pool_usage(
            {'g-pool': lv('g-pool', size=2, allocated=1)}))
        self.lvm.pool = None
        self.assertEqual(lvm_reports.Usage(), self.lvm.pool_usage())


class SurveyTest(Case):

    def test_only_the_drivers_own_devices(self):
        self.ran.lvm.volumes.return_value = '{"report": [{"lv": []}]}'
        handle = names.handle(V1)
        self.ran.dmsetup.survey.return_value = [
            [handle, 'LOCALCLONE-' + handle, '253:7', 1, False,
             '0 1 linear 253:5 0'],
            ['luks-x', 'CRYPT-LUKS2-x-luks-x', '253:5', 1, False,
             '0 1 crypt x 0 0 8:0 0'],
            ['gone', 'LOCALCLONE-gone', '253:8', 0, False, '']]
        present = self.handles.survey()
        self.assertEqual({}, present.lvs)
        self.assertEqual({
            handle: device(handle, '253:7', '0 1 linear 253:5 0', 1),
            'gone': dm_tables.Device('gone', 'LOCALCLONE-gone', '253:8', 0,
                                     False)}, present.devices)
        self.ran.dmsetup.survey.assert_called_once_with(30, None)
        self.handles.devices(('x', 'y'))
        self.ran.dmsetup.survey.assert_called_with(30, ['x', 'y'])

    def test_host_name_by_default(self):
        with mock.patch.object(logical_volumes.socket, 'gethostname',
                               return_value='node1'):
            self.assertEqual('node1', logical_volumes.Lvm(
                'g', None, 'g', 30).host)
