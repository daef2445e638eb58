# SPDX-License-Identifier: Apache-2.0
"""Converging what is at rest, and an operator's operations."""

from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import operations
from tests.helpers.reconcile_case import A
from tests.helpers.reconcile_case import B
from tests.helpers.reconcile_case import Base
from tests import world as worlds


class AtRestTest(Base):

    def test_a_handle_that_is_lost(self):
        self.a.devices.clear()
        self.reconcile()
        self.assertIn(self.handle, self.a.devices)

    def test_an_export_that_is_lost(self):
        self.exported('in-use')
        self.reconcile()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)

    def test_local_connections_are_not_exported(self):
        self.exported('in-use', driver_volume_type='local')
        self.reconcile()
        self.exported('in-use', initiator=None)
        self.reconcile()
        self.assertEqual(set(), self.a.remote)

    def test_what_nothing_uses_is_exported_no_longer(self):
        self.a.node.exports.export_volume(self.volume_id, 'iqn.x', 'auth')
        for status, exported in (('in-use', 1), ('reserved', 1),
                                 ('available', 0)):
            self.volume.status = status
            self.reconcile()
            self.assertEqual(exported, len(self.a.remote), status)

    def test_what_cinder_migrates_stays_exported(self):
        self.a.node.exports.export_volume(self.volume_id, 'iqn.x', 'auth')
        self.volume.migration_status = 'migrating'
        self.reconcile()
        self.assertEqual(1, len(self.a.remote))

    def test_a_stray_handle_goes_unless_it_is_open(self):
        left, self.volume.name = self.volume.name, 'volume-elsewhere'
        self.volume.host = B + '#p'
        self.a.opened.add(self.handle)
        with mock.patch.object(events, 'LOG') as log:
            self.reconcile()
        self.assertEqual([], log.mock_calls)
        self.assertIn(self.handle, self.a.devices)
        self.a.opened.clear()
        self.reconcile()
        self.assertEqual({}, self.a.devices)
        self.assertIn(left, self.a.lvs)

    def test_handle_of_a_volume_that_is_gone(self):
        del self.world.volumes[self.volume_id]
        for _time in range(2):  # there is one, there is none
            self.a.reconciler.reconcile(self.volume_id)
            self.assertEqual({}, self.a.devices)

    def test_volume_that_is_gone_before_it_is_attached(self):
        del self.world.volumes[self.volume_id]
        with self.a.node.lock(self.volume_id):
            self.assertRaises(
                exceptions.StaleMove, self.a.reconciler.reconcile_present,
                self.volume_id)
        self.assertEqual({}, self.a.devices)

    def test_only_its_home_lets_a_volume_follow(self):
        for node, times in ((self.b, 0), (self.a, 1)):
            with mock.patch.object(
                    remote_attachment.DeferredMoves, 'begin') as followed:
                node.reconciler.reconcile(self.volume_id)
            self.assertEqual(times, followed.call_count)

    def test_only_its_home_prompts_others_to_clean_up(self):
        """Else two nodes with something left would do so for ever."""
        for node, times in ((self.b, 0), (self.a, 1)):
            with mock.patch.object(
                    node.reconciler, '_prompt_clean_up') as prompted:
                node.reconciler.reconcile(self.volume_id)
            self.assertEqual(times, prompted.call_count)

    def test_handle_on_a_strangers_disk_stays(self):
        """It is that of another backend on this node."""
        self.volume.host = B + '#p'
        self.a.devices[self.handle] = {'below': 'an LV of another group'}
        self.a.reconciler.reconcile(self.volume_id)
        self.assertIn(self.handle, self.a.devices)

    def test_open_handle_is_not_even_tried(self):
        self.volume.host = B + '#p'
        self.a.opened.add(self.handle)
        self.a.reconciler.reconcile(self.volume_id)
        self.assertIn(self.handle, self.a.devices)

    def test_a_handle_is_as_long_as_its_volume(self):
        with mock.patch.object(worlds.SimHandles, 'ensure_handle_on_lv') as (
                ensure):
            self.a.reconciler.reconcile(self.volume_id)
        ensure.assert_called_once_with(
            self.volume_id, self.volume.name, 1 << 30, mock.ANY)

    def test_what_is_being_created_or_deleted_is_left_alone(self):
        self.a.devices.clear()
        for self.volume.status in ('creating', 'deleting', 'error_deleting'):
            self.reconcile()
            self.assertEqual({}, self.a.devices)
        for self.volume.status in ('deleting', 'error_deleting'):
            self.a.reconciler.reconcile(self.volume_id)  # a peer asks for it
            self.assertEqual({}, self.a.devices)

    def test_one_that_fails_does_not_stop_the_others(self):
        other = self.world.create_volume(A)
        self.a.devices.clear()
        del self.a.lvs[self.volume.name]
        with mock.patch.object(events, 'LOG') as log:
            self.reconcile()
        self.assertEqual([names.handle(other.id)], list(self.a.devices))
        told = log.error.call_args
        self.assertEqual(self.volume_id, told.args[1]['volume'])
        self.assertFalse(told.kwargs['exc_info'])  # it says it all

    def test_what_nobody_expected_has_its_traceback(self):
        self.a.devices.clear()
        with mock.patch.object(events, 'LOG') as log, mock.patch.object(
                self.a.reconciler, 'reconcile_locked',
                side_effect=KeyError('x')):
            self.reconcile()
        self.assertTrue(log.error.call_args.kwargs['exc_info'])

    def test_what_is_at_work_is_left_to_that(self):
        self.a.devices.clear()
        with self.a.lock(self.volume_id), mock.patch.object(
                events, 'LOG') as log:
            self.reconcile()
            self.assertRaises(exceptions.Busy, self.a.reconciler.reconcile,
                              self.volume_id)
        self.assertEqual([], log.mock_calls)
        self.assertEqual({}, self.a.devices)

    def test_moves_alone(self):
        self.a.devices.clear()
        self.a.reconciler.reconcile_moves()
        self.assertEqual({}, self.a.devices)
        self.reconcile()
        self.a.move(self.volume, B)
        self.b.devices.clear()
        self.b.reconciler.reconcile_moves()
        self.assertIn(self.handle, self.b.devices)

    def test_a_start_waits_for_no_peer(self):
        self.a.move(self.volume, B)
        self.b.devices.clear()
        for node in (self.a, self.b):  # the source still has its handle
            with mock.patch.object(
                    node.reconciler, 'reconcile_locked') as reconcile:
                node.reconciler.reconcile_node(moves=False)
            reconcile.assert_not_called()
        self.reconcile(self.b)
        self.assertIn(self.handle, self.b.devices)

    def test_what_is_local_comes_first(self):
        """The target, and then a peer, may hang; guests wait for volumes."""
        moving = self.world.create_volume(A)
        self.a.move(moving, B)
        stray = self.world.create_volume(A)
        stray.host = B + '#p'
        self.a.exports['a move that is over'] = stray.id
        over = names.source('00000000-0000-4000-8000-000000000001')
        self.a.devices[over] = {'below': stray.name}
        stray.name = 'volume-elsewhere'
        del self.a.devices[self.handle]
        order = []
        reconcile = self.a.reconciler.reconcile_locked
        withdraw_strays = worlds.SimExports.withdraw_strays

        def reconciling(volume_id):
            order.append(volume_id)
            reconcile(volume_id)

        def withdrawing(exports, wanted):
            order.append(self.handle in self.a.devices)
            withdraw_strays(exports, wanted)
        self.useFixture(fixtures.MockPatchObject(
            self.a.reconciler, 'reconcile_locked', reconciling))
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimExports, 'withdraw_strays', withdrawing))
        self.reconcile()
        # Once with that volume, once for all.
        self.assertEqual([self.volume_id, True, True, stray.id, moving.id],
                         order[:5])
        self.assertNotIn(names.handle(stray.id), self.a.devices)
        self.assertNotIn(over, self.a.devices)

    def test_trouble_with_an_export_stops_nothing_else(self):
        self.exported('in-use')
        self.a.devices.clear()
        self.a.exports['a move that is over'] = 'another volume'
        with mock.patch.object(events, 'LOG') as log, mock.patch.object(
                worlds.SimExports, 'export_again',
                side_effect=exceptions.TargetTimeout(seconds=20)):
            self.a.reconciler.reconcile(self.volume_id)
        self.assertIn(self.handle, self.a.devices)
        self.assertEqual({}, self.a.exports)
        log.error.assert_called_once()


@ddt.ddt
class OperationsTest(Base):

    def begin(self):
        return self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')

    def test_abort_before_the_commit(self):
        self.begin()
        self.assertRaises(exceptions.NotPossible, operations.abort,
                          self.b.reconciler, self.volume_id)
        operations.abort(self.a.reconciler, self.volume_id)
        self.assertIsNone(self.move())
        self.assertIs(self.a, self.world.home(self.volume))

    def test_abort_what_is_rolling_back(self):
        self.a.node.moves.advance(self.begin(), Event.FAILED)
        operations.abort(self.b.reconciler, self.volume_id)
        self.assertIsNone(self.move())

    def test_abort_says_why_there_is_no_way_back(self):
        self.a.move(self.volume, B)
        error = self.assertRaises(
            exceptions.NotPossible, operations.abort, self.b.reconciler,
            self.volume_id)
        self.assertIn('its home is b@l already', str(error))
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_resume_takes_the_next_step(self):
        self.a.move(self.volume, B)
        self.b.devices.clear()
        operations.go_forward(self.b.reconciler, self.volume_id)
        self.assertIn(self.handle, self.b.devices)

    @ddt.data(operations.abort, operations.go_forward)
    def test_without_a_move(self, operation):
        self.assertRaises(exceptions.NotPossible, operation,
                          self.a.reconciler, self.volume_id)
