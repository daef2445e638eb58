# SPDX-License-Identifier: Apache-2.0
"""What guests elsewhere have of volumes that move waits for nothing else."""

import contextlib
import copy
from unittest import mock

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import copying
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from tests.helpers import deferred_case
from tests.helpers.deferred_case import A
from tests.helpers.deferred_case import B
from tests.helpers.deferred_case import C
from tests.helpers.deferred_case import Deferred
from tests.helpers.deferred_case import unreachable
from tests.helpers import reconcile_case
from tests.helpers import storage_parts
from tests import world as worlds
from tests.world import crypt
from tests.world import iscsi
from tests.world import records
from tests.world import stack


class OrderTest(reconcile_case.Base):
    """A node that is the source of a move, and the destination of another."""

    def setUp(self):
        super().setUp()
        self.a.move(self.volume, B)
        self.arriving = self.world.create_volume(B)
        while self.arriving.id > self.volume_id:  # it is the first in order
            self.arriving = self.world.create_volume(B)
        self.b.move(self.arriving, A)
        self.a.stop(power=True)
        self.a.dead = False
        self.assertEqual({}, self.a.exports)
        self.move_id = self.a.node.moves.move_of(
            self.volume_id).move_id

    def test_before_a_source_that_does_not_answer(self):
        seen = []

        def rebuild(*_which):
            seen.append(set(self.a.exports))
            raise exceptions.SourceUnreachable(portal='p', reason='r')
        with mock.patch.object(destination, 'rebuild', rebuild):
            self.a.reconciler.reconcile_moves()
        self.assertIn(self.move_id, seen[0])

    def test_when_the_service_starts(self):
        """Not only by the first look, after all that is at rest."""
        self.a.reconciler.reconcile_node(moves=False)
        self.assertIn(self.move_id, self.a.exports)
        self.assertNotIn(self.handle, self.a.devices)  # it is elsewhere

    def test_start_waits_for_no_move(self):
        """Nor does the look at handles of volumes that are elsewhere."""
        handle = names.handle(self.volume_id)
        with self.a.lock(self.volume_id):
            self.a.node.handles.ensure_handle_on_lv(
                self.volume_id, 'volume-' + self.volume_id, worlds.GIB)
        self.assertIn(handle, self.a.devices)
        with mock.patch.object(self.a.reconciler, 'reconcile_locked') as each:
            self.a.reconciler.reconcile_node(moves=False)
        each.assert_not_called()

    def test_one_that_fails_stops_no_other(self):
        with mock.patch.object(stack.SimHandles, 'ensure_source',
                               side_effect=exceptions.MissingData(
                                   what='LV', volume='v', host='h')):
            self.a.reconciler.reconcile_node(moves=False)
        self.assertEqual({}, self.a.exports)
        self.a.reconciler.reconcile_node(moves=False)
        self.assertIn(self.move_id, self.a.exports)

    def test_export_that_failed_is_tried_first(self):
        """Before what the sources of other volumes wait for."""
        with mock.patch.object(iscsi.SimExports, 'export_source',
                               side_effect=OSError('no such address')):
            self.a.reconciler.reconcile_node(moves=False)
        self.assertEqual({}, self.a.exports)
        with mock.patch.object(self.a.reconciler, '_reconcile_moves'):
            self.a.reconciler.reconcile_moves()
        self.assertIn(self.move_id, self.a.exports)

    def test_source_that_needs_nothing_now(self):
        with mock.patch.object(copying.Copies, 'only_waits',
                               return_value=True), mock.patch.object(
                self.a.reconciler, 'reconcile_locked') as reconcile:
            self.a.reconciler.reconcile_moves()
        reconcile.assert_not_called()

    def test_each_once_and_what_waits_for_peers_last(self):
        """To give a move up waits for its destination."""
        begun = self.world.create_volume(A)
        while begun.id > self.volume_id:
            begun = self.world.create_volume(A)
        self.a.node.moves.begin(
            begun, B + '#p', state.Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        with mock.patch.object(self.a.reconciler, 'reconcile_locked') as each:
            self.a.reconciler.reconcile_moves()
        first, *others = [call.args[0] for call in each.call_args_list]
        self.assertEqual(self.volume_id, first)
        self.assertEqual(sorted([self.arriving.id, begun.id]), others)

    def test_exports_can_not_be_listed(self):
        self.world.create_volume(A)
        with mock.patch.object(iscsi.SimExports, 'remote',
                               side_effect=OSError('configfs')):
            self.assertRaises(OSError, self.a.reconciler.reconcile_node,
                              moves=False)
        self.assertIn(self.move_id, self.a.exports)


class ArrivedTest(deferred_case.Case):
    """A copy has come to its end, and the power of its home fails."""

    def stop_at(self, name):
        """The guest is on C, and has its volume through B."""
        guest = deferred_case.Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        self.cut_at(home, storage_parts.simulated(name), name)
        self.assertEqual(set(), home.remote)
        return guest, home

    def test_exported_before_it_is_deferred(self):
        for name in 'remove_clone', 'flush_lv':
            guest, home = self.stop_at(name)
            seen = []
            with mock.patch.object(
                    remote_attachment.DeferredMoves, 'begin',
                    lambda *_which, home=home, seen=seen: seen.append(
                        set(home.remote))):
                home.reconciler.reconcile(guest.id)
            self.assertEqual([{(guest.id, 'iqn.c')}], seen)
            guest.live_on()
            guest.check_at(C, self)

    def test_exported_whatever_keeps_it_from_its_end(self):
        guest, home = self.stop_at('remove_clone')
        with mock.patch.object(
                stack.SimClones, 'remove_clone',
                side_effect=exceptions.CommandFailed(
                    command='dmsetup', code=1, stderr='busy')):
            self.assertRaises(exceptions.CommandFailed,
                              home.reconciler.reconcile, guest.id)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_when_the_service_starts(self):
        guest, home = self.stop_at('remove_clone')
        home.reconciler.reconcile_node(moves=False)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)
        self.assertIsNotNone(home.node.moves.move_of(guest.id))

    def test_ended_before_its_key_is_asked_for(self):
        """That opens it, and copies nothing."""
        guest, home = self.stop_at('remove_clone')
        seen = []
        with mock.patch.object(devices, 'reconcile', lambda *_which: (
                seen.append(home.node.moves.move_of(guest.id)))):
            home.reconciler.reconcile(guest.id)
        self.assertEqual([None], seen)

    def test_opened_whatever_keeps_it_from_its_end(self):
        for more in {'provider_id': crypt.recorded('k')}, {
                'encryption_key_id': 'key'}:
            guest = deferred_case.Guest(**more)
            home = guest.nodes[B]
            self.cut_at(home, stack.SimClones, 'remove_clone')
            guest.node = None
            with mock.patch.object(
                    stack.SimClones, 'remove_clone',
                    side_effect=exceptions.CommandFailed(
                        command='dmsetup', code=1, stderr='busy')):
                home.reconciler.reconcile_node()
            self.assertIsNotNone(home.node.moves.move_of(guest.id))
            self.assertIn(guest.top, home.devices)
            self.assertEqual(guest.encrypted, guest.id in home.links)

    def test_deleted_halfway(self):
        """What that has taken down is not handed out again."""
        guest, home = self.stop_at('remove_clone')
        guest.node = None
        guest.volume.status = 'error_deleting'
        home.reconciler.reconcile_node(moves=False)
        self.assertEqual(({}, set()), (home.devices, home.remote))

    def test_its_address_was_changed(self):
        """What is connected stays so: also if all is not at rest yet."""
        guest = deferred_case.Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]

        def fail(*_which):
            home.stop(power=False)
            raise worlds.Stopped(home)
        with mock.patch.object(stack.SimClones, 'remove_clone', fail):
            for _look in range(12):
                with contextlib.suppress(worlds.Stopped):
                    home.reconciler.reconcile_node()
                    home.hydrate()
                if home.dead:
                    break
        home.dead = False
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)
        home.node.exports._inner.portal = 'another portal'
        home.reconciler.reconcile(guest.id)
        self.assertIsNone(home.node.moves.move_of(guest.id))
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_exported_and_its_source_is_away(self):
        """All is local, and waits to be compared."""
        with mock.patch.object(worlds.SimNode, 'COMPARE_WAIT', 3600):
            guest = deferred_case.Guest(holes=(0, 2, 3))
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        home.reconciler.reconcile(guest.id)
        home.hydrate(flushed=True)
        guest.nodes[A].stop(power=True)
        guest.nodes[A].gone = True
        guest.node = None
        home.stop(power=True)
        home.dead = False
        home.reconciler.reconcile(guest.id)
        self.assertIsNotNone(home.node.moves.move_of(guest.id))
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)


class SourceInUseTest(deferred_case.Case):
    """The volume of a guest on A follows from B to A; A stops halfway."""

    def follow_to(self, power):
        guest = deferred_case.Guest()
        guest.detach(B)
        guest.attach(A)
        here, before = guest.nodes[A], guest.nodes[B]

        def stop(*_which):
            here.stop(power=power)
            raise worlds.Stopped(here)
        with mock.patch.object(stack.SimHandles, 'switch_to_clone', stop):
            for _look in range(12):
                with contextlib.suppress(worlds.Stopped):
                    before.reconciler.reconcile_node()
                    here.reconciler.reconcile_node()
                    before.hydrate()
                if here.dead:
                    break
        self.assertTrue(here.dead)
        self.assertIs(here, guest.world.home(guest.volume))
        here.dead = False
        return guest

    def test_handle_stays_though_its_export_fails(self):
        """Until that can be made, nothing has the handle open."""
        guest = self.follow_to(power=False)
        before = guest.nodes[B]
        before.stop(power=True)
        before.dead = False
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            before.reconciler.reconcile(guest.id)
        self.assertEqual(set(), before.remote)
        self.assertIn(guest.handle, before.devices)

    def test_extended_before_its_handle_is_swapped(self):
        """What the guest has written is flushed at its source first."""
        guest = self.follow_to(power=False)
        here = guest.nodes[A]
        move = here.node.moves.move_of(guest.id)
        del guest.world.done[:]
        worlds.extend(here, guest.volume, 2)
        done = [each for _host, each, _what in guest.world.done]
        self.assertLess(done.index('switch_to_clone'),
                        done.index('show_lv'))
        self.assertTrue({names.DEFERRED, names.SWAPPING}.isdisjoint(
            here.disk.tags[names.metadata_lv(move.move_id)]))


class AwayTest(deferred_case.Case):
    """The source is away of a volume that has arrived at B, and is on C."""

    def arrive(self, **more):
        guest = deferred_case.Guest(**more)
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        home.reconciler.reconcile(guest.id)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)
        return guest, home

    def test_what_the_boot_has_restored_is_exported_first(self):
        guest, home = self.arrive()
        home.remote.clear()
        home.backing.clear()
        home.reconciler.reconcile_node(moves=False)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_what_the_boot_could_not_restore_is_not_exported(self):
        """What is not here yet is at the source."""
        guest, home = self.arrive()
        home.stop(power=True)
        home.dead = False
        home.reconciler.reconcile_node(moves=False)
        self.assertEqual(set(), home.remote)

    def test_one_that_fails_is_reconciled_once_in_a_look(self):
        _guest, home = self.arrive()
        home.remote.clear()
        count = []
        with unreachable(act=lambda: count.append(1)):
            with mock.patch.object(iscsi.SimExports, 'export_again',
                                   side_effect=OSError('no such address')):
                home.reconciler.reconcile_moves()
        self.assertEqual([1], count)

    def test_nothing_is_withdrawn_under_who_waits_for_it(self):
        """The kernel's target would wait as well, and hold all others up."""
        guest, home = self.arrive(signal=False)
        guest.nodes[A].stop(power=True)
        guest.nodes[A].gone = True
        guest.node = None  # its detach is lost
        guest.volume.volume_attachment.clear()
        guest.volume.status = 'available'
        with mock.patch.object(iscsi.SimExports, 'withdraw_unnamed') as (
                withdraw):
            home.reconciler.reconcile_moves()
        withdraw.assert_not_called()
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_detached_while_it_was_waited_for(self):
        # Cinder gave up waiting for the lock; its API deletes the row.
        for answers in False, True:
            guest, home = self.arrive()
            home.remote.clear()
            read, reads = home.node.volumes._inner.volume, []
            stale = copy.copy(guest.volume)
            stale.volume_attachment = list(stale.volume_attachment)

            def volume(volume_id, read=read, reads=reads, stale=stale):
                reads.append(volume_id)
                return stale if len(reads) == 1 else read(volume_id)

            def rebuild(*which, guest=guest, answers=answers,
                        rebuild=destination.rebuild):
                guest.volume.volume_attachment = []
                guest.volume.status = 'available'
                if answers:
                    return rebuild(*which)
                raise exceptions.SourceUnreachable(portal='p', reason='r')
            with mock.patch.object(home.node.volumes._inner, 'volume', volume):
                with mock.patch.object(destination, 'rebuild', rebuild):
                    with contextlib.suppress(exceptions.SourceUnreachable):
                        home.reconciler.reconcile(guest.id)
            self.assertEqual(set(), home.remote)


class SourceTest(Deferred):
    """A source has its handle for one guest, its source device for another.
    """

    def test_no_source_device(self):
        guest, home, _move = self.follow()
        self.cut(home)
        with self.failing('ensure_source'):
            home.reconciler.reconcile_node(moves=False)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_no_handle(self):
        _guest, home, move = self.follow()
        self.cut(home)
        with self.failing('ensure_handle_on_lv'):
            home.reconciler.reconcile_node(moves=False)
        self.assertIn(move.move_id, home.exports)

    def test_not_committed_and_another_had_its_lock(self):
        """By the next look, before what waits for another source."""
        guest = deferred_case.Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        self.cut_at(home, records.SimMoves, 'commit')
        other = guest.world.create_volume(A)
        while other.id > guest.id:  # it is the first in order
            other = guest.world.create_volume(A)
        guest.nodes[A].move(other, B)
        with home.try_lock(guest.id):
            home.reconciler.reconcile_node(moves=False)
        seen = []
        with unreachable(act=lambda: seen.append(set(home.remote))):
            home.reconciler.reconcile_moves()
        self.assertEqual({(guest.id, 'iqn.c')}, seen[0])

    def test_lvm_hangs(self):
        """Nothing of this is LVM's."""
        guest, home, move = self.follow()
        home.exports.clear()  # the target was restarted
        home.remote.clear()
        home.backing.clear()
        with self.failing('survey'):
            home.reconciler.reconcile_moves()
        self.assertEqual(({move.move_id}, {(guest.id, 'iqn.c')}),
                         (set(home.exports), home.remote))

    def test_handle_on_something_else_is_not_exported(self):
        """If it can't be put where it belongs."""
        guest, home, _move = self.follow()
        self.cut(home)
        home.devices[guest.handle] = {
            'below': guest.world.create_volume(B).name}
        with self.failing('ensure_handle_on_lv'):
            home.reconciler.reconcile_node(moves=False)
        self.assertEqual(set(), home.remote)

    def come_back(self):
        """The guest is at B again, and has the volume from C.

        C can't note what a boot needs: so its attachment names the export of
        B, which was rebooted and can't make it.
        """
        guest, home, move = self.follow(provider_id=crypt.recorded('k'))
        there = guest.nodes[C]
        note = mock.patch.object(crypt.SimCrypt, 'note', side_effect=(
            exceptions.CommandFailed(
                command='lvchange', code=5, stderr='no room')))
        note.start()
        self.addCleanup(note.stop)
        there.reconciler.reconcile_node()
        self.assertIn('clone', there.devices[guest.handle]['below'])
        guest.write()
        self.cut(home)
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            home.reconciler.reconcile_node(moves=False)
        self.assertEqual(set(), home.remote)
        guest.attach(B)  # live migration
        guest.write()
        return guest, home, move

    def test_a_guest_that_has_come_back(self):
        """It never gets this node's LV again."""
        guest, home, _move = self.come_back()
        for sweep in (home.reconciler.reconcile_moves,
                      home.reconciler.reconcile_node):
            sweep()
            self.assertEqual('disk of ' + guest.id,
                             home.devices[guest.handle]['below'])
            self.assertEqual(set(), home.remote)
            guest.read()

    def test_nor_before_that_is_recorded(self):
        """Cinder writes down how it is connected only afterwards."""
        guest, home, _move = self.come_back()
        told = guest.volume.volume_attachment[-1]
        self.assertEqual('b', told.connector['host'])
        told.connection_info = None
        home.reconciler.reconcile_moves()
        self.assertEqual('disk of ' + guest.id,
                         home.devices[guest.handle]['below'])
        self.assertEqual(set(), home.remote)

    def test_nor_after_a_power_cut(self):
        """A boot that does not reach C leaves it without a handle."""
        guest, home, move = self.come_back()
        guest.node = None
        self.cut(home)
        self.assertIn(names.AWAY, home.disk.tags[move.source_lv])
        home.reconciler.reconcile_node(moves=False)
        self.assertEqual('disk of ' + guest.id,
                         home.devices[guest.handle]['below'])
