# SPDX-License-Identifier: Apache-2.0
"""What a move's source serves, and who has the handle's name meanwhile."""

from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import revert
from cinder_localclone.volumes import uncommitted
from tests.helpers import callers
from tests.helpers import move_steps_case
from tests.helpers import reconcile_case
from tests.helpers import specs
from tests import world as worlds
from tests.world import images

A, B, C = move_steps_case.A, move_steps_case.B, move_steps_case.C
FAILED = exceptions.CommandFailed(command='dmsetup', code=1, stderr='busy')


class HandleTest(move_steps_case.Base):
    """The source has the handle as long as the volume may be used there."""

    def at_source(self):
        return self.handle in self.a.devices

    def test_gone_with_the_commit(self):
        move = self.a.move(self.volume, B)
        self.assertEqual(
            {names.source(move.move_id): {'below': move.source_lv}},
            self.a.devices)
        for node in (self.b, self.a):
            node.reconciler.reconcile(self.volume.id)
        self.assertFalse(self.at_source())
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_restored_by_a_boot_it_goes_again(self):
        """The boot knows LVs, not moves."""
        move = self.a.move(self.volume, B)
        self.a.stop(power=True)
        self.a.dead = False
        with self.a.lock(self.volume.id):
            self.a.sim_handles.ensure_handle_on_lv(
                self.volume.id, move.source_lv, worlds.GIB)
        with mock.patch.object(source, 'LOG') as log:
            self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual([], log.mock_calls)
        self.assertEqual([names.source(move.move_id)],
                         list(self.a.devices))
        self.assertIn(move.move_id, self.a.exports)

    def test_it_stays_while_it_is_open(self):
        """Nobody may open it by now; who does keeps it, and is told of."""
        self.first(self.a.node.moves._inner, 'commit',
                   lambda: self.a.opened.add(self.handle))
        with mock.patch.object(source, 'LOG') as log:
            self.a.move(self.volume, B)
            self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual([self.handle] * 2, [
            call.args[1]['device'] for call in log.warning.call_args_list])
        self.assertTrue(self.at_source())
        self.a.opened.clear()
        self.a.reconciler.reconcile(self.volume.id)
        self.assertFalse(self.at_source())

    def test_a_move_does_not_fail_with_it(self):
        with mock.patch.object(worlds.SimHandles, 'remove_handle',
                               side_effect=FAILED):
            committed = self.a.move(self.volume, B)
            self.a.reconciler.reconcile(self.volume.id)
        self.assertTrue(committed.committed)
        self.assertTrue(self.at_source())
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_one_on_something_else_is_left_alone(self):
        """It has come back: what it is on is not the source."""
        self.a.move(self.volume, B)
        self.a.devices[self.handle] = {'below': 'an imported disk'}
        with mock.patch.object(source, 'LOG') as log:
            self.a.reconciler.reconcile(self.volume.id)
            self.a.opened.add(self.handle)
            self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual([], log.mock_calls)
        self.assertTrue(self.at_source())

    def test_in_a_live_move_it_goes_once_the_guest_has_left(self):
        move = self.started()
        self.a.reconciler.reconcile(self.volume.id)
        self.assertTrue(self.at_source())
        self.a.opened.clear()
        self.locked(self.a, source.begin_hydration, move)
        self.assertFalse(self.at_source())
        self.assertIs(Phase.MIGRATING, self.recorded().phase)

    def test_a_live_move_that_goes_back_finds_it(self):
        self.started()
        self.b.reconciler.reconcile(self.volume.id)
        self.a.reconciler.reconcile(self.volume.id)
        self.assertTrue(self.at_source())
        self.a.write(self.volume.id, 1, 'new')
        self.expected[1] = 'new'
        # The guest, which has never left, still has it open.
        self.volume.volume_attachment = [
            images.attachment(connector={'host': 'a'}, instance_uuid='vm',
                              connection_info=None, mountpoint=None)]
        self.world.settle()
        self.assertIn(self.handle, self.a.opened)
        self.check(self.world, self.volume, self.expected)

    def test_released_after_a_reboot(self):
        """Nothing has made the handle again; what was written is flushed."""
        move = self.started()
        self.a.stop(power=True)
        self.a.dead = False
        self.locked(self.a, source.begin_hydration, move)
        self.assertIs(Phase.MIGRATING, self.recorded().phase)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_a_failed_move_leaves_it(self):
        self.a.unreadable = True
        self.assertRaises(exceptions.CommandFailed, self.a.move,
                          self.volume, B)
        self.assertEqual({self.handle: {'below': self.volume.name}},
                         self.a.devices)


class OfferedTest(move_steps_case.Base):

    def test_as_much_as_is_copied(self):
        """An extension that failed has left the LV longer."""
        with self.a.lock(self.volume.id):
            self.a.disk.extend(self.volume.name, 2 * worlds.GIB)
        move = self.a.move(self.volume, B)
        device = self.a.node.handles.devices()[names.source(move.move_id)]
        self.assertEqual(move.size_bytes, device.sectors * 512)

    def test_there_again_after_a_reboot(self):
        """And before the target: it may hang."""
        move = self.a.move(self.volume, B)
        self.a.stop(power=True)
        self.a.dead = False
        with mock.patch.object(worlds.SimExports, 'export_source',
                               side_effect=exceptions.TargetTimeout(
                                   seconds=20)):
            self.a.reconciler.reconcile(self.volume.id)
        self.assertIn(names.source(move.move_id), self.a.devices)
        with self.does(a=['ensure_source', 'export_source']):
            self.a.reconciler.reconcile(self.volume.id)

    def test_a_source_without_its_lv_is_told_of(self):
        move = self.a.move(self.volume, B)
        self.a.stop(power=True)
        self.a.dead = False
        self.a.disk.remove(move.source_lv)
        self.assertRaises(exceptions.MissingData,
                          self.a.reconciler.reconcile, self.volume.id)
        self.assertEqual({}, self.a.exports)

    def test_it_goes_before_its_lv(self):
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)
        self.b.hydrate()
        self.b.reconciler.reconcile(self.volume.id)
        with mock.patch.object(worlds.SimExports, 'withdraw_source',
                               side_effect=exceptions.TargetTimeout(
                                   seconds=20)):
            self.assertRaises(exceptions.TargetTimeout,
                              self.a.reconciler.reconcile, self.volume.id)
        self.assertEqual(1, len(self.a.lvs))
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_one_of_an_earlier_move_goes_with_the_lv(self):
        """That failed, and its destination is gone."""
        self.world.pool = 'pool'
        self.fail_to_prepare(self.world, self.volume)
        failed, = self.pending(self.world, self.volume)
        self.assertIn(names.source(failed.move_id), self.a.devices)
        self.a.move(self.volume, C)
        self.assertEqual(2, len(self.a.exports))
        self.c.reconciler.reconcile(self.volume.id)
        self.c.hydrate()
        self.c.reconciler.reconcile(self.volume.id)
        self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual([{}] * 3, [
            self.a.lvs, self.a.devices, self.a.exports])
        self.bring_back(self.world)
        self.check(self.world, self.volume, self.expected)

    def left(self):
        """A move that failed has left it; B will not clean up."""
        self.fail_to_prepare(self.world, self.volume)
        failed, = self.pending(self.world, self.volume)
        return failed

    def assert_withdrawn(self):
        self.assertEqual({}, self.a.exports)
        self.assertEqual([], [name for name in self.a.devices
                              if names.move_of_source(name)])

    def test_a_revert_takes_it_away(self):
        """Else the old LV could not be removed."""
        self.world.pool = 'pool'
        self.left()
        self.volume.status = 'reverting'
        old = self.volume.name
        snapshot_id = self.world.snapshot_row(self.volume)
        self.world.set_snapshot(snapshot_id, node=A)
        with mock.patch.object(
                revert, '_make', lambda node, volume, image, new:
                self.a.disk.create('volume-' + new, volume.id,
                                   ['old'] * worlds.REGIONS)):
            revert.revert(self.a.reconciler, self.volume.id, snapshot_id)
        self.assertNotIn(old, self.a.lvs)
        self.assert_withdrawn()

    def test_what_cannot_be_deleted_now_can_be_read(self):
        """The target hangs: the volume stays as it is."""
        self.left()
        self.volume.status = 'deleting'
        with mock.patch.object(worlds.SimExports, 'withdraw_source',
                               side_effect=exceptions.TargetTimeout(
                                   seconds=20)):
            self.assertRaises(exceptions.CannotDelete, callers.delete,
                              self.a.node, self.volume)
        self.assertEqual(self.expected, [
            self.a.read(self.volume.id, region)
            for region in range(worlds.REGIONS)])

    def test_who_leaves_the_driver_leaves_it_behind(self):
        failed = self.left()
        del self.world.move_records[failed.move_id]
        self.volume.status = 'unmanaging'
        manage.unmanage(self.a.node, self.volume.id)
        self.assert_withdrawn()
        self.assertEqual({}, self.a.devices)

    def test_what_was_not_created_stays_as_long_as_it_is_exported(self):
        """Its destination may be about to log in."""
        self.world.pool = 'pool'
        self.left()
        with self.a.lock(self.volume.id):
            self.volume.status = 'creating'
            self.a.node.lvm.mark_uncommitted(self.volume.name)
            for exported in (True, False):
                with mock.patch.object(
                        self.a.node.moves._inner, 'pending_cleanups',
                        return_value=[]):
                    uncommitted.remove(self.a.node, self.volume.id,
                                       self.volume.name)
                self.assertIs(exported, self.volume.name in self.a.lvs)
                self.assertIs(exported, self.handle in self.a.devices)
                cleanup.withdraw_above(self.a.node, self.volume.name)

    def test_given_up_while_its_destination_takes_its_time(self):
        """It goes on by itself, and may be about to log in."""
        move = self.begun()
        with mock.patch.object(worlds.SimPeers, 'reconcile'):
            self.locked(self.a, source.abandon, move)
        self.assertIn(move.move_id, self.a.exports)
        self.assertIn(names.source(move.move_id), self.a.devices)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)


@ddt.ddt
class UsersTest(testtools.TestCase):
    """Who uses a handle, as its kernel tells."""

    @ddt.data((None, False, 0), (0, False, 0), (1, False, 1), (2, False, 2),
              (None, True, 0), (0, True, 0), (1, True, 0), (2, True, 1))
    @ddt.unpack
    def test_backstore_that_exports_nobody_is_none(
            self, opened, in_vain, expected):
        node = specs.node(host=A)
        handle = names.handle('v')
        node.handles.devices.return_value = {} if opened is None else {
            handle: dm_tables.Device(handle, '', '253:1', opened, False)}
        node.exports.has_open_unexported.side_effect = {'v': in_vain}.get
        self.assertEqual(expected, devices.users(node, 'v'))
        if expected:
            error = self.assertRaises(exceptions.SourceBusy,
                                      devices.ensure_closed, node, 'v')
            self.assertIn(handle, str(error))
        else:
            devices.ensure_closed(node, 'v')


@ddt.ddt
class StrayTest(reconcile_case.Base):
    """The source device of a move that is over, and of which nobody knows."""

    def setUp(self):
        super().setUp()
        self.a.move(self.volume, B)
        move = self.move()
        del self.world.move_records[move.move_id]
        self.volume.host, self.volume.name = A + '#p', move.source_lv
        self.volume.name_id = move.source_lv[-36:]
        self.move_id = move.move_id
        self.device = names.source(move.move_id)
        self.b.sessions.clear()

    def test_it_goes_at_the_look_of_its_node(self):
        self.reconcile()
        self.assertEqual({}, self.a.exports)
        self.assertEqual([self.handle], list(self.a.devices))

    def test_it_goes_with_the_look_at_its_volume(self):
        self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual([self.handle], list(self.a.devices))

    def test_that_of_a_move_stays(self):
        other = self.world.create_volume(A)
        self.a.move(other, B)
        move_id, = self.world.move_records
        self.reconcile()
        self.assertEqual({names.source(move_id), self.handle},
                         set(self.a.devices))

    def test_one_that_is_exported_is_not_even_tried(self):
        with mock.patch.object(worlds.SimExports, 'withdraw_strays'), (
                mock.patch.object(cleanup, 'LOG')) as log:
            self.reconcile()
        self.assertIn(self.device, self.a.devices)
        self.assertEqual([], log.mock_calls)

    def test_what_fails_stops_nothing(self):
        with mock.patch.object(worlds.SimHandles, 'remove_source',
                               side_effect=FAILED), (
                mock.patch.object(cleanup, 'LOG')) as log:
            self.reconcile()
        self.assertIn(self.handle, self.a.devices)
        self.assertIs(FAILED, log.error.call_args.args[-1])

    def test_gone_meanwhile(self):
        present = self.a.node.handles.survey()
        del self.a.devices[self.device]
        self.a.exports.clear()
        cleanup.withdraw_strays(self.a.node, present)
        self.assertEqual({}, self.a.devices)

    @ddt.data(Event.MOVE_BEGUN, Event.LIVE_MOVE_BEGUN)
    def test_what_begins_meanwhile_is_none(self, event):
        """Its record comes before its device."""
        self.reconcile()
        with self.a.lock(self.volume_id):
            move = self.a.node.moves.begin(
                self.volume, B + '#p', event, worlds.GEOMETRY,
                lambda record: record, 'CHAP u s', 'i')
            self.a.node.handles.ensure_source(move)
        cleanup.withdraw_strays(self.a.node, self.a.node.handles.survey())
        self.assertIn(names.source(move.move_id), self.a.devices)
