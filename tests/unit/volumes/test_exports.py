# SPDX-License-Identifier: Apache-2.0
"""What guests elsewhere have through a node at rest waits for nothing else."""

import contextlib
import dataclasses
import logging
from unittest import mock

import fixtures

from cinder_localclone.core import attachments
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import exports
from cinder_localclone.volumes import migrate
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.helpers import exports_case
from tests.helpers.exports_case import A
from tests.helpers.exports_case import B
from tests.helpers.exports_case import Base
from tests import world as worlds
from tests.world import crypt
from tests.world import disks
from tests.world import iscsi
from tests.world import peers
from tests.world import stack


class SettleTest(Base):

    def setUp(self):
        super().setUp()
        self.exporting = self.a.reconciler.exporting

    def two(self):
        """Two hosts have it: its guest is about to go from one to the other.
        """
        self.exported('in-use')
        first, = self.volume.volume_attachment
        self.exported('in-use', initiator='iqn.y')
        self.volume.volume_attachment.insert(0, first)
        self.assertEqual(['iqn.x', 'iqn.y'], [
            each.iqn for each in attachments.connections(self.volume)])

    def test_one_that_fails_stops_no_other(self):
        self.two()
        export, failed = iscsi.SimExports.export_again, KeyError('odd')

        def fail(this, volume_id, initiator, *more):
            if initiator == 'iqn.x':
                raise failed
            export(this, volume_id, initiator, *more)
        with mock.patch.object(iscsi.SimExports, 'export_again', fail):
            with self.a.lock(self.volume_id):
                self.assertIs(failed, self.assertRaises(
                    KeyError, self.exporting.reconcile, self.volume, None))
        self.assertEqual({(self.volume_id, 'iqn.y')}, self.a.remote)

    def test_one_that_can_not_be_withdrawn_stops_no_other(self):
        self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
        self.exported('in-use')
        with mock.patch.object(
                iscsi.SimExports, 'withdraw_unnamed',
                side_effect=exceptions.TargetHangs(target='t', since='s')):
            self.reconcile()
        self.assertIn((self.volume_id, 'iqn.x'), self.a.remote)

    def test_tried_again_by_the_next_look_at_moves(self):
        """A guest waits for it: not only a sweep tries."""
        self.fail_once()
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.a.reconciler.reconcile_moves()
        self.assertEqual(set(), self.a.remote)
        self.a.reconciler.reconcile_moves()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)
        with mock.patch.object(exports.Exporting, '_export') as connect:
            self.a.reconciler.reconcile_moves()
        connect.assert_not_called()

    def test_trouble_of_all_is_met_once_in_a_look(self):
        """And another one is tried each time."""
        self.exported('in-use')
        other = self.world.create_volume(A)
        other.status = 'in-use'
        other.volume_attachment = self.volume.volume_attachment
        tried = []

        def fail(_this, volume_id, *_more):
            tried.append(volume_id)
            raise exceptions.TargetHangs(target='t', since='s')
        with mock.patch.object(iscsi.SimExports, 'export_again', fail):
            self.reconcile()
            del tried[:]
            for count in 1, 2:
                self.a.reconciler.reconcile_moves()
                self.assertEqual(count, len(tried))
        self.assertEqual({self.volume_id, other.id}, set(tried))
        self.a.reconciler.reconcile_moves()
        self.assertEqual({(self.volume_id, 'iqn.x'), (other.id, 'iqn.x')},
                         self.a.remote)

    def test_one_that_is_gone_is_tried_no_more(self):
        self.fail_once()
        del self.world.volumes[self.volume_id]
        for _look in range(2):
            with mock.patch.object(events, 'say') as say:
                self.a.reconciler.reconcile_moves()
            say.assert_not_called()
        self.assertEqual({}, self.exporting._failed)

    def test_strays_of_other_volumes_are_not_waited_for(self):
        self.exported('in-use')
        seen = []
        with mock.patch.object(cleanup, 'withdraw_strays', lambda
                               *_which: (seen.append(set(self.a.remote)))):
            self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)

    def test_the_bus_is_not_waited_for(self):
        """Other nodes are prompted to clean up after that."""
        self.exported('in-use')
        left, seen = mock.Mock(cleanup_node=B, volume_id=self.volume_id), []
        with mock.patch.object(
                self.a.node.moves._inner, 'pending_cleanups',
                lambda _volume_id: [left]), mock.patch.object(
                    peers.SimPeers, 'reconcile_soon', lambda *_which: (
                        seen.append(set(self.a.remote)))):
            self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)


class FailedTest(Base):
    """What could not be offered is tried again, by each look at moves."""

    def check_tried_again(self):
        self.a.reconciler.reconcile_moves()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)

    def test_though_another_had_its_lock(self):
        """Who makes a snapshot of it, say, offers nothing."""
        self.fail_once()
        with self.a.try_lock(self.volume_id):
            self.a.reconciler.reconcile_moves()
        self.check_tried_again()

    def test_though_something_before_it_failed(self):
        self.fail_once()
        with self.no_device():
            self.a.reconciler.reconcile_moves()
        self.check_tried_again()

    def test_that_never_came_to_its_export(self):
        self.exported('in-use')
        self.cut()
        with self.no_device():
            self.a.reconciler.reconcile_node(moves=False)
        self.check_tried_again()

    def test_another_has_its_lock(self):
        """That is no trouble, and may be over later in the same look."""
        self.exported('in-use')
        with self.a.try_lock(self.volume_id), mock.patch.object(
                events, 'say') as say:
            self.assertEqual(
                set(), self.a.reconciler.exporting.sweep([self.volume_id]))
        say.assert_not_called()
        self.check_tried_again()

    def test_nothing_is_asked_of_what_nobody_else_has(self):
        """LVM may hang."""
        with mock.patch.object(stack.SimHandles, 'survey',
                               side_effect=OSError('lvs')):
            self.assertEqual(
                set(), self.a.reconciler.exporting.sweep([self.volume_id]))

    def test_first(self):
        """Before what waits for a source that is away."""
        self.fail_once()
        arriving = self.world.create_volume(B)
        self.b.move(arriving, A)
        seen = []

        def rebuild(*_which):
            seen.append(set(self.a.remote))
            raise exceptions.SourceUnreachable(portal='p', reason='r')
        with mock.patch.object(destination, 'rebuild', rebuild):
            self.a.reconciler.reconcile_moves()
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)

    def test_though_its_status_was_reset(self):
        self.exported('error')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.reconcile()
        self.check_tried_again()

    def test_once_in_a_look_at_the_node(self):
        self.exported('in-use')
        for error in (exceptions.TargetTimeout(seconds=20),
                      exceptions.NotPossible(volume='v', reason='odd size')):
            with mock.patch.object(iscsi.SimExports, 'export_again',
                                   side_effect=error) as export:
                self.a.reconciler.reconcile_node(moves=False)
            export.assert_called_once()

    def test_what_exports_nobody_goes_nevertheless(self):
        self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
        self.a.exported.clear()  # long ago
        self.exported('in-use')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            for _look in range(2):
                self.a.reconciler.reconcile_node(moves=False)
        self.assertEqual(set(), self.a.remote)

    def test_what_does_not_pass_holds_nothing_up(self):
        """LVs that are gone for good: the looks at the whole node tell."""
        lost = [self.world.create_volume(A) for _count in range(3)]
        self.exported('in-use')
        for each in lost:
            each.status = 'in-use'
            each.volume_attachment = self.volume.volume_attachment
        self.cut()
        for each in lost:
            del self.a.lvs[each.name]
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.a.reconciler.reconcile_node(moves=False)
        with mock.patch.object(events, 'say') as say:
            self.check_tried_again()
        say.assert_called_once_with(
            events.EXPORTED_AGAIN, volume=self.volume_id, initiator='iqn.x')

    def test_what_an_operator_has_to_mend_is_tried_no_more(self):
        self.exported('in-use')
        with mock.patch.object(
                stack.SimHandles, 'ensure_handle_on_lv', side_effect=(
                    exceptions.NotPossible(volume='v', reason='odd size'))):
            self.a.reconciler.exporting.sweep([self.volume_id])
        self.a.reconciler.reconcile_moves()
        self.assertEqual(set(), self.a.remote)

    def test_each_failure_is_told(self):
        self.exported('in-use')
        first, = self.volume.volume_attachment
        self.exported('in-use', initiator='iqn.y')
        self.volume.volume_attachment.insert(0, first)

        def fail(_this, _volume_id, initiator, *_more):
            raise OSError('trouble of ' + initiator)
        logged = self.useFixture(fixtures.FakeLogger())
        with mock.patch.object(iscsi.SimExports, 'export_again', fail):
            self.a.reconciler.exporting.sweep([self.volume_id])
        for initiator in 'iqn.x', 'iqn.y':
            self.assertIn('trouble of ' + initiator, logged.output)

    def test_others_though_one_is_at_work(self):
        self.fail_once()
        other = self.world.create_volume(A)
        other.status = 'in-use'
        other.volume_attachment = self.volume.volume_attachment
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.reconcile()
        for busy, free in (self.volume_id, other.id), (
                other.id, self.volume_id):
            self.a.remote.clear()
            self.a.reconciler.exporting._failed.update(
                {self.volume_id: None, other.id: None})
            with self.a.try_lock(busy):
                self.a.reconciler.reconcile_moves()
            self.assertEqual({(free, 'iqn.x')}, self.a.remote)

    @staticmethod
    def no_device():
        return mock.patch.object(
            stack.SimHandles, 'ensure_handle_on_lv', side_effect=(
                exceptions.CommandTimeout(command='dmsetup', seconds=30)))


class StartTest(Base):
    """The service starts: what others have is there before anything else."""

    def start(self, room, name):
        """What is offered when that is called for another volume."""
        seen = []
        with mock.patch.object(room, name, lambda *_which: (
                seen.append(set(self.a.remote)))):
            self.a.reconciler.reconcile_node(moves=False)
        self.assertEqual({(self.volume_id, 'iqn.x')}, seen[0])

    def another(self, **more):
        """One that is looked at first."""
        found = self.world.create_volume(A, **more)
        self.world.volumes = dict(reversed(list(self.world.volumes.items())))
        self.exported('in-use')
        self.cut()
        return found

    def test_the_key_of_another_is_not_waited_for(self):
        self.another(provider_id=crypt.recorded('k'))
        self.start(devices, 'reconcile')

    def test_the_bus_is_not_waited_for_by_another(self):
        other = self.another()
        left = mock.Mock(cleanup_node=B, volume_id=other.id)
        with mock.patch.object(
                self.a.node.moves._inner, 'pending_cleanups',
                lambda volume_id: [left] * (volume_id == other.id)):
            self.start(peers.SimPeers, 'reconcile_soon')

    def test_its_own_key_is_not_waited_for(self):
        self.exported('in-use')
        seen = []
        with mock.patch.object(devices, 'reconcile', lambda *_which: (
                seen.append(set(self.a.remote)))):
            self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)

    def test_what_is_left_alone(self):
        """Whoever creates, deletes or takes it over has it in hand."""
        lvs = dict(self.a.lvs)
        for status in 'creating', 'deleting', 'managing', 'error':
            self.exported(status)
            self.cut()
            if status == 'error':
                self.a.lvs.clear()  # its node was forgotten
            self.a.reconciler.exporting.sweep([self.volume_id])
            self.assertEqual(({}, set()), (self.a.devices, self.a.remote))
        self.a.lvs.update(lvs)
        self.a.reconciler.exporting.sweep([self.volume_id])
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)

    def test_a_record_is_missing(self):
        """Some of it may be at a source: nobody is given the rest."""
        self.exported('in-use')
        self.cut()
        self.a.lvs['localclone-meta-' + self.volume.name_id] = []
        self.a.reconciler.reconcile_node(moves=False)
        self.assertEqual(({}, set()), (self.a.devices, self.a.remote))


class GivenUpCopyTest(encrypted_attach_case.Case):
    """Cinder's copy of a volume was given up here; its row is still there."""

    def test_volume_is_passed_through(self):
        copy = self.world.row(A, status='available',
                              migration_status='target:' + self.volume.id)
        self.world.volumes[copy.id] = copy
        self.volume.group_id = 'g'
        export = iscsi.SimExports.export_volume

        def look_then_export(this, *args, **how):
            # Another thread: it has the lock of the copy alone.
            self.a.reconciler.exporting.try_to_reconcile(copy, None)
            return export(this, *args, **how)
        with mock.patch.object(iscsi.SimExports, 'export_volume',
                               look_then_export):
            self.connect(dict(attach_case.ON_B, initiator='iqn.b'))
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)


class SettleAtRestTest(exports_case.Base):

    def setUp(self):
        super().setUp()
        self.exporting = self.a.reconciler.exporting

    def test_of_two_that_fail_the_first_is_told(self):
        self.exported('in-use', initiator='iqn.y')
        last, = self.volume.volume_attachment
        self.exported('in-use')
        self.volume.volume_attachment.append(last)
        failed = {'iqn.x': KeyError('x'), 'iqn.y': KeyError('y')}

        def fail(_this, _volume_id, initiator, *_more):
            raise failed[initiator]
        with mock.patch.object(iscsi.SimExports, 'export_again', fail):
            with self.a.lock(self.volume_id):
                self.assertIs(failed['iqn.x'], self.assertRaises(
                    KeyError, self.exporting.reconcile, self.volume, None))

    def test_one_that_fails_keeps_none_that_exports_nobody(self):
        self.exported('in-use')
        for reconcile in (self.exporting.reconcile,
                          self.exporting.try_to_reconcile):
            self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
            self.a.exported.clear()  # a while ago
            with mock.patch.object(iscsi.SimExports, 'export_again',
                                   side_effect=OSError('no such address')):
                with self.a.lock(self.volume_id), (
                        contextlib.suppress(OSError)):
                    reconcile(self.volume, None)
            self.assertEqual(set(), self.a.remote)

    def test_what_was_exported_a_moment_ago_stays_at_a_source(self):
        """But for that of what has followed its instance."""
        with self.a.lock(self.volume_id):
            move = self.a.node.moves.begin(
                self.volume, B + '#p', state.Event.MOVE_BEGUN,
                worlds.GEOMETRY, str, 'CHAP u s', 'i')
        self.volume.status = 'attaching'
        for asked_by, committed, expected in (
                (state.Asked.ATTACH, True, {(self.volume_id, 'iqn.z')}),
                (state.Asked.DEFERRED, False, {(self.volume_id, 'iqn.z')}),
                (state.Asked.DEFERRED, True, set())):
            self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
            with self.a.lock(self.volume_id):
                self.exporting.try_to_withdraw(
                    self.volume, dataclasses.replace(
                        move, asked_by=asked_by, committed=committed))
            self.assertEqual(expected, self.a.remote)

    def test_what_an_ended_export_has_left_goes(self):
        """The service was killed before it had removed the device."""
        with self.a.lock(self.volume_id):
            self.a.sim_handles.ensure_export_device(self.volume_id)
        self.a.reconciler.reconcile_node()
        self.assertNotIn(names.export_device(self.volume_id), self.a.devices)

    def test_none_that_exports_nobody_is_waited_for(self):
        """Its initiator may be away, and the target waits for that."""
        self.exported('in-use')
        for reconcile in (self.exporting.reconcile,
                          self.exporting.try_to_reconcile):
            self.a.remote.clear()
            self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
            seen = []
            with mock.patch.object(
                    iscsi.SimExports, 'withdraw_unnamed', lambda *_which,
                    seen=seen, **_how: seen.append(set(self.a.remote))), (
                        self.a.lock(self.volume_id)):
                reconcile(self.volume, None)
            self.assertIn((self.volume_id, 'iqn.x'), seen[0])

    def test_withdrawn_or_not_all_else_is_done(self):
        self.a.node.exports.export_volume(self.volume_id, 'iqn.z', 'auth')
        self.a.devices.pop(names.handle(self.volume_id))
        with mock.patch.object(
                iscsi.SimExports, 'withdraw_unnamed',
                side_effect=OSError('configfs')), mock.patch.object(
                devices, 'reconcile') as reconcile:
            self.a.reconciler.reconcile(self.volume_id)
        reconcile.assert_called_once()

    def test_what_fails_as_a_peer_asks_is_tried_again(self):
        self.exported('in-use')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.a.reconciler.reconcile(self.volume_id)
        self.a.reconciler.reconcile_moves()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)

    def test_what_fails_as_a_live_migration_asks_is_tried_again(self):
        """It is refused, but a guest elsewhere waits for its export."""
        self.exported('in-use')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')), (
                self.a.lock(self.volume_id)):
            self.assertRaises(OSError, self.exporting.reconcile, self.volume,
                              None)
        self.assertEqual(set(), self.a.remote)
        self.a.reconciler.reconcile_moves()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)
        self.assertEqual({}, self.exporting._failed)

    def test_what_lasts_is_not_tried_again_for_that(self):
        self.exported('in-use')
        lasting = exceptions.NotPossible(volume='v', reason='no')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=lasting), (
                self.a.lock(self.volume_id)):
            self.assertRaises(exceptions.NotPossible, self.exporting.reconcile,
                              self.volume, None)
        self.assertEqual({}, self.exporting._failed)

    def test_settled_by_a_request(self):
        self.exported('in-use')
        self.exporting._failed[self.volume_id] = OSError('before')
        with self.a.lock(self.volume_id):
            self.exporting.reconcile(self.volume, None)
        self.assertEqual({}, self.exporting._failed)

    def test_second_failure_names_the_volume(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        with contextlib.suppress(OSError):
            exports._do_all(self.volume_id, [mock.Mock(
                side_effect=OSError(each)) for each in ('first', 'second')])
        self.assertIn(self.volume_id, log.output)
        self.assertIn('second', log.output)

    def test_at_a_glance(self):
        """The target is asked for no more than is needed."""
        asked = mock.Mock(return_value={'iqn.x'})
        seen = self.a.sim_handles.survey()
        self.assertFalse(self.exporting.differ(
            self.volume, set(), asked, seen))
        asked.assert_not_called()
        self.exported('in-use')
        self.assertTrue(self.exporting.differ(
            self.volume, {'iqn.x'}, asked, seen))
        asked.return_value = {'iqn.y'}
        for remote, differs in (({'iqn.x'}, False), (set(), True),
                                ({'iqn.x', 'iqn.z'}, True)):
            self.assertIs(differs, self.exporting.differ(
                self.volume, remote, asked, seen))

    def test_device_of_an_export_at_a_glance(self):
        """One that has an export is not what an ended one has left."""
        with self.a.lock(self.volume_id):
            self.a.sim_handles.ensure_export_device(self.volume_id)
        for exported in (False, True):
            if exported:
                self.a.opened.add(names.export_device(self.volume_id))
            self.assertIs(not exported, self.exporting.differ(
                self.volume, set(), set, self.a.sim_handles.survey()))

    def test_what_is_exported_again_is_told(self):
        """Once: what is served already is no news."""
        self.exported('in-use')
        for again in True, False:
            with mock.patch.object(iscsi.SimExports, 'export_again',
                                   return_value=again), \
                    mock.patch.object(events, 'say') as say:
                self.a.reconciler.reconcile(self.volume_id)
            self.assertEqual([mock.call(
                events.EXPORTED_AGAIN, volume=self.volume_id,
                initiator='iqn.x')] * again, say.mock_calls)

    def test_settled_by_another_look(self):
        self.fail_once()
        self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)
        self.assertEqual({}, self.exporting._failed)

    def test_trouble_of_one_is_not_that_of_all(self):
        self.exported('in-use')
        other = self.world.create_volume(A)
        other.status = 'in-use'
        other.volume_attachment = self.volume.volume_attachment
        export, tried = iscsi.SimExports.export_again, []

        def fail(this, volume_id, *more):
            tried.append(volume_id)
            if volume_id == self.volume_id:
                raise error
            export(this, volume_id, *more)
        for error, both in (
                (OSError('no such address'), True),
                (exceptions.TargetTimeout(seconds=20), False),
                (exceptions.CommandTimeout(command='x', seconds=1), False)):
            del tried[:]
            self.exporting._failed.clear()
            self.exporting._failed.update(
                {self.volume_id: None, other.id: None})
            with mock.patch.object(iscsi.SimExports, 'export_again', fail):
                self.exporting.try_again()
            self.assertEqual([self.volume_id] + [other.id] * both, tried)

    def test_what_exports_nobody_keeps_no_device(self):
        self.volume = self.world.create_volume(
            A, provider_id=crypt.recorded('k'))
        self.exported('in-use')
        self.a.reconciler.reconcile(self.volume.id)
        self.assertIn(names.export_device(self.volume.id), self.a.devices)
        self.volume.status = 'available'
        self.volume.volume_attachment = []
        self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual(set(), self.a.remote)
        self.assertNotIn(names.export_device(self.volume.id), self.a.devices)

    def test_strays_of_other_volumes_that_stay(self):
        with mock.patch.object(cleanup, 'withdraw_strays',
                               side_effect=OSError('configfs')), \
                mock.patch.object(events, 'say') as say:
            self.a.reconciler.reconcile(self.volume_id)
        self.assertEqual([events.EXPORTS_DIFFER],
                         [each.args[0] for each in say.mock_calls])

    def test_live_move_beside_trouble_with_exports(self):
        """It is not begun: whoever asks for it is told."""
        self.exported('in-use')
        with mock.patch.object(
                iscsi.SimExports, 'export_again',
                side_effect=OSError('no such address')), (
                    self.a.lock(self.volume_id)):
            self.assertRaises(OSError, self.a.connections._check_exports,
                              self.volume, {'host': 'x'})

    def test_nothing_is_deferred_when_the_service_starts(self):
        """Nor is anything looked at because of that."""
        deferred_moves = remote_attachment.DeferredMoves
        with mock.patch.object(deferred_moves, 'begin') as followed, \
                mock.patch.object(deferred_moves, 'are_due',
                                  return_value=True):
            with mock.patch.object(
                    self.a.reconciler, 'reconcile_locked') as reconcile:
                self.a.reconciler.reconcile_node(moves=False)
            reconcile.assert_not_called()
            self.a.devices.clear()
            self.a.reconciler.reconcile_node(moves=False)
            followed.assert_not_called()
            self.reconcile()
            followed.assert_called_once()

    def test_what_is_left_of_a_move_is_none(self):
        self.a.node.moves.advance(self.a.node.moves.begin(
            self.volume, B + '#p', state.Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i'), state.Event.FAILED)
        self.cut()
        self.a.reconciler.reconcile_node(moves=False)
        self.assertIn(self.handle, self.a.devices)

    def test_what_was_exported_first_is_not_looked_at_again(self):
        """What there is is listed after that."""
        self.exported('in-use')
        self.cut()
        with mock.patch.object(
                self.a.reconciler, 'reconcile_locked') as reconcile:
            self.a.reconciler.reconcile_node(moves=False)
        reconcile.assert_not_called()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)
        with mock.patch.object(type(self.exporting), '_export') as connect:
            self.a.reconciler.reconcile_node(moves=False)
        connect.assert_not_called()  # nor is LVM asked for each

    def test_below_what_opens_it_nothing_is_exported(self):
        """Its device is the handle's; two would have that open."""
        self.volume = self.world.create_volume(
            A, provider_id=crypt.recorded('k'))
        self.exported('in-use')
        for export in (self.a.reconciler.exporting.sweep,
                       lambda ids: self.a.reconciler.reconcile(*ids)):
            self.cut()
            export([self.volume.id])
            self.assertEqual(
                {self.volume.id: names.export_device(self.volume.id)},
                self.a.backing)
            # With its header.
            self.assertEqual(self.volume.backing_bytes(), disks.size(
                self.a.devices[names.handle(self.volume.id)]))


class CopyTest(exports_case.Base):
    """Cinder copies another volume into one here, under that one's handle."""

    def setUp(self):
        super().setUp()
        self.other = self.world.create_volume(B)
        self.volume.migration_status = 'target:' + self.other.id
        self.exported('in-use')
        self.cut()

    def test_not_by_what_has_its_own_lock_alone(self):
        """Its handle, and so its export, are the other one's."""
        self.a.disk.inactive.clear()
        self.a.devices[names.handle(self.other.id)] = {
            'below': self.volume.name}
        before = dict(self.a.devices)
        self.a.reconciler.exporting.sweep([self.volume_id])
        self.assertEqual((before, set()), (self.a.devices, self.a.remote))

    def reconciled(self):
        self.a.disk.inactive.clear()
        self.a.devices[names.handle(self.other.id)] = {
            'below': self.volume.name}
        with mock.patch.object(migrate, 'reconcile_copy'), (
                self.a.try_lock(self.other.id)):
            self.a.reconciler.reconcile(self.volume_id)

    def test_by_a_look_at_it(self):
        self.reconciled()
        self.assertEqual({(self.other.id, 'iqn.x')}, self.a.remote)

    def test_trouble_with_its_exports(self):
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.reconciled()
        self.assertIn(self.volume_id, self.a.reconciler.exporting._failed)

    def test_a_record_is_missing(self):
        self.a.lvs['localclone-meta-' + self.volume.name_id] = []
        self.assertRaises(exceptions.MissingData, self.reconciled)
        self.assertEqual(set(), self.a.remote)
