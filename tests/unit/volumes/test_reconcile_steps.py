# SPDX-License-Identifier: Apache-2.0
"""What a look at a volume that moves does, in which order, and when not.

Others have it meanwhile, from the destination of its move or its source.
"""

import contextlib
import copy
from unittest import mock

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import state
from cinder_localclone.encryption import devices as upper_devices
from cinder_localclone.moves import copying
from cinder_localclone.moves import destination
from cinder_localclone.moves import hydration
from cinder_localclone.moves import source
from tests.helpers import deferred_case
from tests.helpers import reconcile_moves_case
from tests import world as worlds
from tests.world import disks
from tests.world import iscsi
from tests.world import records
from tests.world import stack

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C


def no_export():
    return mock.patch.object(iscsi.SimExports, 'export_again',
                             side_effect=OSError('no such address'))


class Case(deferred_case.Case):
    """The guest is on C, and has its volume through B, to which it is still
    copied.
    """

    def setUp(self):
        super().setUp()
        self.guest = deferred_case.Guest()
        self.guest.detach(B)
        self.guest.attach(C)
        self.home = self.guest.nodes[B]
        self.exported = {(self.guest.id, 'iqn.c')}

    def move(self):
        return self.home.node.moves.move_of(self.guest.id)

    def reconcile(self):
        self.home.reconciler.reconcile(self.guest.id)

    def copied(self):
        self.reconcile()
        self.home.hydrate()


class DestinationTest(Case):

    def setUp(self):
        super().setUp()
        self.guest.volume.group_id = 'g'  # it does not follow yet

    def test_ended_whatever_its_exports_lack(self):
        self.cut_at(self.home, stack.SimClones, 'remove_clone')
        with no_export():
            self.reconcile()
        self.assertIsNone(self.move())

    def test_copied_whatever_its_exports_lack(self):
        self.home.remote.clear()
        with no_export():
            self.copied()
            self.reconcile()
        self.assertIn('set_hydration', self.guest.world.effects(B))

    def test_exported_before_it_is_opened(self):
        """A key manager may take its time."""
        for disk in True, False:
            self.home.remote.clear()
            seen = []
            with mock.patch.object(upper_devices, 'reconcile',
                                   lambda *_which: (
                    seen.append(set(self.home.remote)))), \
                    mock.patch.object(
                        destination, 'rebuild', return_value='disk' * disk), \
                    mock.patch.object(copying.Copies, 'drive',
                                      return_value=False), \
                    mock.patch.object(destination, 'complete'):
                with self.home.lock(self.guest.id):
                    self.home.reconciler._is_copied(
                        self.move(), self.guest.volume)
            self.assertEqual([self.exported], seen)

    def test_nothing_before_the_source_has_decided(self):
        """It may be at work here, by its calls."""
        world = self.guest.world
        volume, before = world.create_volume(A), world.nodes[A]

        def fail(*_which):
            before.stop(power=False)
            raise worlds.Stopped(before)
        with mock.patch.object(records.SimMoves, 'commit', fail):
            with contextlib.suppress(worlds.Stopped):
                before.move(volume, B)
        move = self.home.node.moves.move_of(volume.id)
        self.assertFalse(move.committed)
        self.assertIn(move.move_id, self.home.sessions)
        devices, start = copy.deepcopy(self.home.devices), len(world.done)
        self.home.reconciler.reconcile(volume.id)
        self.assertEqual([], world.effects(B, start))
        self.assertIn(move.move_id, self.home.sessions)
        self.assertEqual(devices, self.home.devices)

    def test_what_is_being_deleted_does_not_end(self):
        """Nor does it hold any other up."""
        self.copied()
        self.guest.volume.status = 'deleting'
        move = self.move()
        with mock.patch.object(copying.Copies,
                               'note_failed_check') as hindered:
            self.reconcile()
        hindered.assert_called_once()
        self.assertEqual(move, self.move())

    def test_nothing_is_here_of_what_was_forgotten(self):
        self.home.stop(power=True)
        self.home.dead = False
        self.home.lvs.clear()
        self.guest.volume.status = 'error'
        self.reconcile()
        self.assertEqual({}, self.home.devices)

    def test_detached_while_it_comes_to_its_end(self):
        """What Cinder's detach has withdrawn is not offered again."""
        def complete(*which, complete=destination.complete):
            complete(*which)
            self.guest.volume.volume_attachment = []
            self.home.remote.clear()
        self.copied()
        with mock.patch.object(destination, 'complete', complete):
            self.reconcile()
        self.assertIsNone(self.move())
        self.assertEqual(set(), self.home.remote)

    def test_handle_stays_on_the_clone_until_it_is_compared(self):
        """What was lost of it is at the source alone."""
        self.copied()
        with mock.patch.object(self.home.reconciler.comparison, 'ensure_whole',
                               return_value=False), mock.patch.object(
                copying.Copies, 'note_failed_check') as hindered:
            self.reconcile()
        hindered.assert_called_once()
        self.assertIs(state.Phase.MIGRATING, self.move().phase)
        self.assertIn('clone', self.home.devices[self.guest.handle]['below'])
        self.reconcile()
        self.assertIsNone(self.move())

    def test_one_that_fails_holds_no_other_copy_up(self):
        for room, name in ((destination, 'rebuild'),
                           (destination, 'complete')):
            with mock.patch.object(room, name, side_effect=KeyError), \
                    mock.patch.object(
                        copying.Copies, 'note_failed_check') as hindered:
                self.assertRaises(KeyError, self.reconcile)
            hindered.assert_called_once()
            self.home.hydrate()

    def test_one_that_was_not_compared_holds_no_other_up(self):
        """What was lost is to be copied again before all else is."""
        with mock.patch.object(self.home.reconciler.comparison, 'resume',
                               return_value=False), mock.patch.object(
                copying.Copies, 'note_failed_check') as hindered, \
                mock.patch.object(hydration.Copy, 'update') as driven:
            self.reconcile()
        hindered.assert_called_once()
        driven.assert_not_called()

    def test_opened_in_its_end_only_if_all_is_here(self):
        """Before that it was opened just now, by the same look."""
        self.copied()
        with mock.patch.object(
                destination, 'complete', side_effect=KeyError), \
                mock.patch.object(upper_devices, 'reconcile') as reconcile:
            self.assertRaises(KeyError, self.reconcile)
        reconcile.assert_called_once()

    def test_deleted_while_its_source_was_waited_for(self):
        def rebuild(*_which):
            del self.guest.world.volumes[self.guest.id]
            return ''
        move = self.move()
        with mock.patch.object(destination, 'rebuild', rebuild), \
                mock.patch.object(destination, 'complete',
                                  autospec=True) as complete, \
                mock.patch.object(copying.Copies, 'note_failed_check',
                                  autospec=True) as hindered:
            with self.home.lock(self.guest.id):
                self.assertFalse(self.home.reconciler._as_destination(
                    move, self.guest.volume))
        complete.assert_not_called()
        # Its queue position is another copy's.
        hindered.assert_called_once_with(mock.ANY, move)

    def test_exported_though_it_can_not_be_rebuilt(self):
        """If its handle is on the clone, and only then; it is opened too."""
        for on_clone in False, True:
            self.home.remote.clear()
            seen = []
            with mock.patch.object(
                    destination, 'rebuild', side_effect=KeyError), \
                    mock.patch.object(
                        survey.Survey, 'is_handle_on_clone',
                        return_value=on_clone), mock.patch.object(
                            upper_devices, 'reconcile', lambda *_which: (
                                seen.append(set(self.home.remote)))):
                self.assertRaises(KeyError, self.reconcile)
            self.assertEqual([self.exported if on_clone else set()], seen)

    def test_handle_on_something_else_is_not_exported(self):
        """What is not on the LV yet is at the source."""
        self.reconcile()
        self.home.remote.clear()
        self.home.devices[self.guest.handle] = {
            'below': self.move().destination_lv}
        self.home.reconciler.exporting.sweep([self.guest.id])
        self.assertEqual(set(), self.home.remote)

    def test_tried_once_in_a_look(self):
        self.reconcile()
        self.home.remote.clear()
        with no_export() as export:
            self.home.reconciler.reconcile_node(moves=False)
        export.assert_called_once()

    def test_neither_without_a_handle(self):
        del self.home.devices[self.guest.handle]
        with mock.patch.object(destination, 'rebuild', side_effect=KeyError), \
                mock.patch.object(upper_devices, 'reconcile') as reconcile:
            self.assertRaises(KeyError, self.reconcile)
        reconcile.assert_not_called()

    def test_nor_if_it_is_gone(self):
        def rebuild(*_which):
            del self.guest.world.volumes[self.guest.id]
            raise KeyError
        with mock.patch.object(destination, 'rebuild', rebuild):
            self.assertRaises(KeyError, self.reconcile)

    def test_trouble_beside_a_source_that_is_away(self):
        """Whoever asks is told of the source."""
        self.home.remote.clear()
        with deferred_case.unreachable(), no_export():
            self.assertRaises(exceptions.SourceUnreachable, self.reconcile)

    def test_a_look_at_what_is_local_withdraws_nothing(self):
        """What an initiator reads there may be at a source that is away."""
        self.reconcile()
        self.home.node.exports.export_volume(self.guest.id, 'iqn.z', 'auth')
        self.home.exported.clear()
        self.home.reconciler.exporting.sweep([self.guest.id])
        self.assertEqual({*self.exported, (self.guest.id, 'iqn.z')},
                         self.home.remote)


class GivenUpTest(Case):
    """Power failed before the volume was to follow."""

    def setUp(self):
        super().setUp()
        self.cut_at(self.home, records.SimMoves, 'commit')
        self.assertEqual(set(), self.home.remote)

    def test_whatever_its_exports_lack(self):
        with mock.patch.object(source, 'abandon') as abandon, no_export():
            self.reconcile()
        abandon.assert_called_once()

    def test_exported_before_it_is_opened(self):
        """A key manager may take its time."""
        seen = []
        with mock.patch.object(upper_devices, 'reconcile', lambda *_which: (
                seen.append(set(self.home.remote)))), mock.patch.object(
                    source, 'abandon'):
            self.reconcile()
        self.assertEqual([self.exported], seen)

    def test_nothing_more_is_exported_of_it(self):
        with mock.patch.object(source, 'abandon'):
            self.reconcile()
        self.assertEqual({}, self.home.exports)

    def test_what_was_just_exported_stays(self):
        """Who asked for it has yet to say so."""
        with mock.patch.object(source, 'abandon'):
            self.reconcile()
            self.home.node.exports.export_volume(self.guest.id, 'iqn.z', '')
            self.reconcile()
        self.assertEqual({*self.exported, (self.guest.id, 'iqn.z')},
                         self.home.remote)


class LiveTest(reconcile_moves_case.Base):
    """A live move, after a power cut at its source."""

    def setUp(self):
        super().setUp()
        self.live()
        self.a.stop(power=True)
        self.a.dead = False

    def test_its_guest_gets_its_handle(self):
        self.reconcile(self.a)
        self.assertIn(self.handle, self.a.devices)

    def test_row_that_is_gone(self):
        """Whoever deletes it has not come to its end."""
        del self.world.volumes[self.volume_id]
        self.reconcile(self.a)
        self.assertEqual([self.volume_id], list(self.a.exports.values()))
        self.assertIn(self.handle, self.a.devices)

    def test_opened_on_the_lv_that_is_here(self):
        with mock.patch.object(upper_devices, 'reconcile') as reconcile:
            self.reconcile(self.a)
        reconcile.assert_called_once_with(
            self.a.node, mock.ANY, self.move().source_lv)

    def test_what_was_just_exported_stays(self):
        """Its guest is still here."""
        self.reconcile(self.a)
        self.a.node.exports.export_volume(self.volume_id, 'iqn.z', '')
        self.reconcile(self.a)
        self.assertEqual({(self.volume_id, 'iqn.z')}, self.a.remote)


class DroppedTest(reconcile_moves_case.Base):

    def test_not_if_it_comes_after_all(self):
        """Nova asks anew while the destination waits for the source."""
        self.live()
        self.attach(A)

        def rebuild(*which, rebuild=destination.rebuild):
            self.attach(A, B)
            return rebuild(*which)
        with mock.patch.object(destination, 'rebuild', rebuild):
            self.reconcile(self.b)
        self.assertIs(self.b, self.world.home(self.volume))
        self.attach(A)
        self.reconcile(self.b)
        self.assertIs(self.a, self.world.home(self.volume))


class SourceTest(deferred_case.Deferred):
    """From B to C, where the guest is; B still has the handle."""

    def setUp(self):
        super().setUp()
        self.guest, self.home, self.begun = self.follow()
        self.exported = {(self.guest.id, 'iqn.c')}
        self.assertEqual(self.exported, self.home.remote)

    def reconcile(self):
        self.home.reconciler.reconcile(self.guest.id)

    def test_it_keeps_its_handle_while_others_have_it(self):
        self.reconcile()
        self.assertIn(self.guest.handle, self.home.devices)
        self.guest.volume.volume_attachment.clear()
        self.guest.volume.status = 'available'
        self.reconcile()
        self.assertEqual(set(), self.home.remote)
        self.assertNotIn(self.guest.handle, self.home.devices)

    def test_lvm_hangs_in_a_look_at_all(self):
        """As the service starts, or later."""
        for moves in False, True:
            self.home.exports.clear()
            self.home.remote.clear()
            with self.failing('survey'):
                self.assertRaises(
                    exceptions.CommandFailed,
                    self.home.reconciler.reconcile_node, moves)
            self.assertEqual(self.exported, self.home.remote)
            self.assertEqual([self.begun.move_id], [*self.home.exports])

    def test_and_while_they_can_not_have_it_yet(self):
        self.cut(self.home)
        with no_export():
            self.reconcile()
        self.assertIn(self.guest.handle, self.home.devices)

    def test_handle_on_something_else_is_put_right(self):
        self.cut(self.home)
        self.home.devices[self.guest.handle] = {
            'below': self.guest.world.create_volume(B).name}
        self.home.reconciler.exporting.sweep([self.guest.id])
        self.assertEqual(self.begun.source_lv, self.home.devices[
            self.guest.handle]['below'])
        self.assertEqual(self.exported, self.home.remote)

    def test_source_that_can_not_be_made_is_told(self):
        with self.failing('ensure_source'):
            self.assertRaises(exceptions.CommandFailed, self.reconcile)

    def test_nothing_is_opened_above_what_is_not_the_volume(self):
        with mock.patch.object(upper_devices, 'reconcile') as reconcile:
            self.reconcile()
        reconcile.assert_not_called()

    def test_handle_is_as_long_as_what_is_copied(self):
        """Its home is extended meanwhile, and this LV is not."""
        self.guest.volume.size = 2
        self.cut(self.home)
        self.reconcile()
        self.assertEqual(worlds.GIB, disks.size(
            self.home.devices[self.guest.handle]))

    def test_what_it_does_not_serve_any_more_ends_at_once(self):
        """It would be read there, and what is written is elsewhere."""
        there = self.guest.nodes[C]
        there.reconciler.reconcile(self.guest.id)  # its handle is there
        for node in self.home, there:
            node.node.exports.export_volume(self.guest.id, 'iqn.z', 'auth')
            node.reconciler.reconcile(self.guest.id)
        self.assertNotIn((self.guest.id, 'iqn.z'), self.home.remote)
        self.assertIn((self.guest.id, 'iqn.z'), there.remote)

    def test_none_that_exports_nobody_is_waited_for(self):
        self.home.remote.clear()
        self.home.node.exports.export_volume(self.guest.id, 'iqn.z', 'auth')
        seen = []
        with mock.patch.object(
                iscsi.SimExports, 'withdraw_unnamed', lambda *_which, **_how:
                seen.append(set(self.home.remote))):
            self.reconcile()
        self.assertEqual([{*self.exported, (self.guest.id, 'iqn.z')}], seen)

    def test_each_export_that_failed_is_tried_again(self):
        for name in 'export_source', 'export_again':
            self.home.remote.clear()
            self.home.exports.clear()
            with mock.patch.object(iscsi.SimExports, name,
                                   side_effect=OSError('no such address')):
                self.reconcile()
            self.home.reconciler.exporting.try_again()
            self.assertEqual(self.exported, self.home.remote)
            self.assertEqual([self.begun.move_id], [*self.home.exports])

    def test_settled_by_another_look(self):
        self.home.remote.clear()
        with no_export():
            self.reconcile()
        self.reconcile()
        self.assertEqual({}, self.home.reconciler.exporting._failed)
