# SPDX-License-Identifier: Apache-2.0
"""Deleting at the home, whoever was asked: what two nodes do in turn."""

import contextlib
import dataclasses
import types
from unittest import mock

from cinder import exception
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import delete
from tests.helpers import callers
from tests.helpers import locked
from tests.helpers import storage_parts
from tests import world as worlds

A, B = 'a@l', 'b@l'


class DeletionTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.create_volume(A)
        # Cinder's manager has read its row before.
        self.stale = types.SimpleNamespace(**vars(self.volume))
        self.world.pool = 'pool'

    def record(self):
        found, = self.world.move_records.values()
        return found

    def delete(self, node=None):
        self.volume.status = 'deleting'
        callers.delete((node or self.a).node, self.stale)

    def test_at_rest(self):
        self.delete()
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_moved_since_the_row_was_read(self):
        self.a.move(self.volume, B)
        self.delete()
        self.assertIs(Phase.RELEASING, self.record().phase)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])
        # The source is the source's to remove, under its own name.
        self.assertEqual([self.stale.name], list(self.a.lvs))

    def test_what_was_not_managed_has_left_meanwhile(self):
        """What has its name here is nobody's to give back."""
        locked = self.a.node.lock

        @contextlib.contextmanager
        def lock(name):
            self.a.move(self.volume, B)
            self.volume.status = 'error_managing_deleting'
            with locked(name):
                yield
        with mock.patch.object(delete.manage, 'give_back') as given:
            self.assertRaises(
                exceptions.StaleMove, delete.delete, dataclasses.replace(
                    self.a.node, lock=lock), self.volume.id)
        given.assert_not_called()

    def test_moved_while_the_delete_waited_for_the_lock(self):
        locked = self.a.node.lock

        @contextlib.contextmanager
        def lock(name):
            if self.volume.host.startswith(A):
                self.a.move(self.volume, B)
            with locked(name):
                yield
        self.volume.status = 'deleting'
        callers.delete(dataclasses.replace(self.a.node, lock=lock), self.stale)
        self.assertIs(Phase.RELEASING, self.record().phase)
        self.assertEqual({}, self.b.lvs)

    def test_busy_at_its_new_home(self):
        self.a.move(self.volume, B)
        self.b.opened.add('localclone-' + self.volume.id)
        self.assertRaises(exception.VolumeIsBusy, self.delete)
        self.assertIs(Phase.MIGRATING, self.record().phase)

    def without_lock(self, node, volume_id=None):
        """The node, on which other work has the lock of a volume."""
        locked = node.node.lock

        def lock(name):
            if name == (volume_id or self.volume.id):
                raise exceptions.Busy(what=name, host=A, seconds=20)
            return locked(name)
        return types.SimpleNamespace(
            node=dataclasses.replace(node.node, lock=lock))

    def test_locked_for_too_long(self):
        """By a look that waits for its source, say; not for ever."""
        before = repr(self.world.snapshot())
        error = self.assertRaises(exceptions.CannotDelete, self.delete,
                                  self.without_lock(self.a))
        self.assertIsInstance(error, exception.VolumeIsBusy)
        self.volume.status = 'available'
        self.assertEqual(before, repr(self.world.snapshot()))

    def test_locked_where_it_has_been(self):
        """Who only asks its home needs no lock of his own."""
        self.a.move(self.volume, B)
        self.delete(self.without_lock(self.a))
        self.assertIs(Phase.RELEASING, self.record().phase)

    def test_it_leaves_while_the_delete_waits_for_the_lock(self):
        """Nothing of it is here any more, and nothing was removed."""
        def lock(name):
            self.a.move(self.volume, B)
            self.a.lvs.clear()
            raise exceptions.Busy(what=name, host=A, seconds=20)
        self.assertRaises(
            exceptions.CannotDelete, self.delete, types.SimpleNamespace(
                node=dataclasses.replace(self.a.node, lock=lock)))

    def test_what_was_begun_with_is_not_called_available(self):
        """An administrator has it deleted again, after an error."""
        for move in (False, True):
            if move:
                self.a.move(self.volume, B)
            home = self.world.home(self.volume)
            lv = self.volume.name
            self.assertIn(lv, home.lvs)
            kept = home.lvs.pop(lv)
            self.assertRaises(exceptions.HalfDeleted, self.delete,
                              self.without_lock(home))
            home.opened.add(names.handle(self.volume.id))
            self.assertRaises(exceptions.HalfDeleted, self.delete, home)
            home.opened.clear()
            home.lvs[lv] = kept

    def test_what_cannot_be_looked_at(self):
        """It is not known whether all of it is there."""
        hangs = exceptions.CommandTimeout(command='lvs', seconds=30)
        with mock.patch.object(worlds.SimLvm, 'lvs', side_effect=hangs):
            self.assertRaises(exceptions.CommandTimeout, self.delete,
                              self.without_lock(self.a))
        error = exceptions.CommandFailed(command='vgs', code=5, stderr='')
        for room, name in ((self.a.node.moves, 'get_move'),
                           (self.a.node.handles, 'survey')):
            with mock.patch.object(room, name, side_effect=error):
                self.assertRaises(exceptions.CommandFailed, self.delete)
        self.assertIn(self.stale.name, self.a.lvs)

    def hanging(self, what):
        return mock.patch.object(
            self.b.node.sessions, what, side_effect=(
                exceptions.CommandTimeout(command='c', seconds=30)))

    def test_session_that_does_not_end_in_time(self):
        self.a.move(self.volume, B)
        before = repr(self.world.snapshot())
        with self.hanging('detach'):
            self.assertRaises(exception.VolumeIsBusy, self.delete)
        # Something reads from it, or is served over iSCSI.
        self.b.opened.add(names.handle(self.volume.id))
        with self.hanging('end_if_down'):
            self.assertRaises(exception.VolumeIsBusy, self.delete)
        self.b.opened.clear()
        self.volume.status = 'available'
        self.assertEqual(before, repr(self.world.snapshot()))
        self.delete()
        self.assertIs(Phase.RELEASING, self.record().phase)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])

    def test_session_that_cannot_be_ended(self):
        """To ask again would not help: that is an administrator's."""
        self.a.move(self.volume, B)
        with mock.patch.object(
                self.b.node.sessions, 'detach', side_effect=(
                    exceptions.CommandFailed(
                        command='iscsiadm', code=20, stderr=''))):
            self.assertRaises(exceptions.CommandFailed, self.delete)
        self.assertIs(Phase.MIGRATING, self.record().phase)

    def test_stack_that_does_not_go_in_time(self):
        """Some of it may be gone: its owner is not told that it is there."""
        self.a.move(self.volume, B)
        for effect in ('remove_handle', 'remove_clone', 'remove_lv'):
            with mock.patch.object(
                    storage_parts.simulated(effect), effect, side_effect=(
                        exceptions.CommandTimeout(command='c', seconds=30))):
                self.assertRaises(exceptions.HalfDeleted, self.delete)
            self.assertIs(Phase.MIGRATING, self.record().phase)
        self.delete()
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])

    def test_at_rest_that_does_not_go_in_time(self):
        hangs = exceptions.CommandTimeout(command='c', seconds=30)
        for effect in ('remove_handle', 'remove_lv'):
            with mock.patch.object(storage_parts.simulated(effect), effect,
                                   side_effect=hangs):
                self.assertRaises(exceptions.HalfDeleted, self.delete)
                self.assertRaises(exceptions.HalfDeleted, self.delete,
                                  self.without_lock(self.a))
        self.delete()
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_thick_one_that_is_handed_on(self):
        """Who asks waits less long than overwriting takes."""
        self.world.pool = None
        self.a.move(self.volume, B)
        self.world.settle()
        name = self.volume.name
        self.delete()
        left, = self.b.lvs
        self.assertNotEqual(name, left)
        self.assertTrue(names.is_to_wipe(left, B))
        self.assertEqual({}, self.b.devices)
        cleanup.wipe_marked(self.b.node)
        self.assertEqual({}, self.b.lvs)

    def test_thick_one_that_is_being_overwritten(self):
        """Another delete, of its group for one, comes meanwhile."""
        self.world.pool = None
        fails = exceptions.CommandFailed(command='dd', code=1, stderr='')
        node = dataclasses.replace(
            self.a.node, clear=mock.Mock(side_effect=fails))
        self.assertRaises(exceptions.HalfDeleted, self.delete,
                          types.SimpleNamespace(node=node))
        self.assertRaises(exceptions.HalfDeleted, self.delete,
                          self.without_lock(self.a))
        self.delete()
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_mark_that_is_not_made_in_time(self):
        """Nothing is removed before."""
        hangs = exceptions.CommandTimeout(command='lvchange', seconds=30)
        with mock.patch.object(worlds.SimLvm, 'mark', side_effect=hangs):
            self.assertRaises(exceptions.CannotDelete, self.delete)
        self.assertIn(self.stale.name, self.a.lvs)

    def test_what_does_not_end_with_its_session(self):
        self.a.move(self.volume, B)
        self.b.opened.add(names.handle(self.volume.id))
        self.b.node.sessions.end_if_down = lambda _move: True
        with mock.patch.object(delete, 'CLOSING', 0):
            self.assertRaises(exceptions.CannotDelete, self.delete)
        self.assertNotIn(names.DELETING,
                         self.b.disk.tags.get(self.volume.name, ()))

    def test_half_deleted_is_not_busy(self):
        """Cinder's manager takes what is busy for available again."""
        self.assertFalse(issubclass(exceptions.HalfDeleted,
                                    exception.VolumeIsBusy))

    def test_what_waits_for_a_source_that_is_gone(self):
        """A process that nothing can kill keeps the handle open."""
        self.a.move(self.volume, B)
        handle = 'localclone-' + self.volume.id
        self.b.opened.add(handle)

        def fails(_move):
            self.b.opened.discard(handle)
            return True
        self.b.node.sessions.end_if_down = fails
        self.delete()
        self.assertIs(Phase.RELEASING, self.record().phase)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])

    def test_its_new_home_is_down(self):
        self.a.move(self.volume, B)
        self.b.dead = True
        self.assertRaises(exceptions.PeerUnreachable, self.delete)
        self.assertIn(self.stale.name, self.a.lvs)

    def test_a_live_move_is_neither_here_nor_there(self):
        self.a.move(self.volume, B, live=True)
        before = repr(self.world.snapshot())
        self.assertRaises(exception.VolumeIsBusy, self.delete, self.b)
        self.assertEqual(before, repr(self.world.snapshot()))

    def test_a_move_that_was_interrupted(self):
        """It is given up first, and its export of the volume goes."""
        with self.a.lock(self.volume.id):
            move = self.a.node.moves.begin(
                self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
                lambda record: record, 'CHAP u s', 'i')
            self.a.node.handles.ensure_source(move)
            self.a.node.exports.export_source(move)
        self.b.dead = True
        self.delete()
        self.assertIs(Phase.ROLLING_BACK, self.record().phase)
        self.assertEqual([{}, {}, {}], [
            self.a.lvs, self.a.devices, self.a.exports])

    def test_the_volume_is_locked(self):
        """From before its row is read again until it is gone."""
        self.volume.status = 'deleting'
        callers.delete(locked.node(self.a, self.volume.id, ('volume',)),
                       self.stale)
        self.assertEqual([{}, {}, set()], [
            self.a.lvs, self.a.devices, self.a.held])

    def test_gone_already(self):
        del self.world.volumes[self.volume.id]
        self.delete()

    def test_a_peer_does_not_hand_it_on_again(self):
        self.a.move(self.volume, B)
        service = types.SimpleNamespace(
            node=self.a.node, reconciler=self.a.reconciler)
        self.assertRaises(
            exceptions.StaleMove, callers.Answers(service).delete,
            self.volume.id)
        service.node = self.b.node
        self.volume.status = 'deleting'
        callers.Answers(service).delete(self.volume.id)
        self.assertIs(Phase.RELEASING, self.record().phase)
