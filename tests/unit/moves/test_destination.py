# SPDX-License-Identifier: Apache-2.0
"""What each part of a move does, in which order, and what it refuses."""

from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import copies
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone.volumes import operations
from tests.helpers.move_steps_case import A
from tests.helpers.move_steps_case import B
from tests.helpers.move_steps_case import Base
from tests.helpers.move_steps_case import PREPARED
from tests.helpers import specs
from tests.helpers import storage_parts
from tests import world as worlds

TORN_DOWN = ['detach', 'remove_handle', 'remove_clone', 'disown',
             'remove_lv metadata']


class OrderTest(Base):

    def test_move(self):
        with self.does(a=['ensure_handle_on_lv', 'flush_handle', 'begin',
                          'ensure_source', 'export_source', 'commit',
                          'reconcile_soon', 'mark', 'remove_handle'],
                       b=PREPARED):
            committed = self.a.move(self.volume, B)
        self.assertEqual(self.recorded(), committed)
        self.assertTrue(committed.committed)
        self.assertEqual([(A, B, self.volume.id)], self.world.told)

    def test_live_move(self):
        with self.does(a=['ensure_handle_on_lv', 'begin', 'ensure_source',
                          'export_source', 'commit', 'reconcile_soon'],
                       b=PREPARED):
            self.started()
        self.assertEqual([(A, B, self.volume.id)], self.world.told)

    def test_source_released(self):
        move = self.started()
        self.a.opened.clear()
        del self.world.told[:]
        with self.does(a=['ensure_handle_on_lv', 'flush_handle', 'advance',
                          'reconcile_soon', 'mark', 'remove_handle']):
            self.locked(self.a, source.begin_hydration, move)
        self.assertEqual([(A, B, self.volume.id)], self.world.told)

    def test_complete(self):
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)
        self.b.hydrate()
        with self.does(b=['activate volume', 'activate metadata', 'attach',
                          'ensure_clone', 'ensure_handle_on_clone',
                          'unmapped_blocks',
                          'flush_handle', 'advance', 'ensure_handle_on_lv',
                          'flush_lv volume', 'remove_clone', 'detach',
                          'remove_lv metadata', 'advance', 'reconcile_soon',
                          'ensure_handle_on_lv', 'withdraw_strays']):
            self.b.reconciler.reconcile(self.volume.id)
        self.assertIs(Phase.RELEASING, self.recorded().phase)

    def test_complete_what_was_said_to_be_hydrated(self):
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)
        self.b.hydrate(flushed=True)
        self.b.node.moves.advance(self.recorded(), Event.HYDRATED)
        with self.does(b=[*['ensure_handle_on_lv'] * 2, 'flush_lv volume',
                          'remove_clone', 'detach', 'remove_lv metadata',
                          'advance', 'reconcile_soon', 'ensure_handle_on_lv',
                          'withdraw_strays']):
            self.b.reconciler.reconcile(self.volume.id)

    def test_prepare_where_an_earlier_move_has_failed(self):
        self.fail_to_prepare(self.world, self.volume)
        self.b.gone = self.b.dead = False
        move = self.begun()
        with self.does(b=['detach', *TORN_DOWN[2:], 'finish', *PREPARED]):
            self.called(self.b, destination.prepare, move.move_id,
                        move.token.nonce)

    def test_source_that_is_removed(self):
        self.complete(self.world, self.volume)
        self.a.gone = self.a.dead = False
        with self.does(a=['disown', 'finish']):
            self.a.reconciler.reconcile(self.volume.id)

    def test_source_that_was_not_rebooted_is_removed(self):
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)
        self.b.hydrate()
        self.b.reconciler.reconcile(self.volume.id)
        with self.does(a=['withdraw_source', 'remove_source', 'disown',
                          'finish']):
            self.a.reconciler.reconcile(self.volume.id)

    def test_move_that_fails(self):
        self.a.unreadable = True
        with self.does(
                a=['ensure_handle_on_lv', 'flush_handle', 'begin',
                   'ensure_source', 'export_source', 'advance',
                   'withdraw_source', 'remove_source'],
                b=[*PREPARED[:-1], *TORN_DOWN, 'finish', 'reconcile_soon']):
            self.assertRaises(exceptions.CommandFailed,
                              self.a.move, self.volume, B)

    def test_live_move_that_is_rolled_back(self):
        move = self.started()
        del self.world.told[:]
        with self.does(b=['roll_back', *TORN_DOWN, 'finish',
                          'reconcile_soon']):
            self.locked(self.b, destination.roll_back_live, move)
        self.assertEqual([(B, A, self.volume.id)], self.world.told)


@ddt.ddt
class RefusedTest(Base):

    def refused(self, error, **done):
        with self.does(**done):
            refused = self.assertRaises(
                error, self.a.move, self.volume, B)
        self.assertEqual(({}, []), (self.world.move_records, self.world.told))
        return refused

    def test_open_at_its_source(self):
        self.a.opened.add(self.handle)
        self.refused(exceptions.SourceBusy, a=['ensure_handle_on_lv'])

    def test_peer_without_free_space(self):
        self.b.free = worlds.GIB - 1
        self.assertIn(B, str(self.refused(exceptions.NoFreeSpace)))

    def test_peer_with_just_enough(self):
        self.b.free = worlds.GIB
        self.a.move(self.volume, B)

    def test_peer_that_is_not_ready_has_no_free_space_either(self):
        self.b.free, self.b.problems = 0, ['no target', 'no pool']
        self.assertIn('no target; no pool', str(
            self.refused(exceptions.NotReady)))

    def test_filled_by_another_move_meanwhile(self):
        self.first(self.a.node.exports._inner, 'export_source',
                   lambda: setattr(self.b, 'free', 0))
        start = len(self.world.done)
        self.assertRaises(exceptions.NoFreeSpace, self.a.move, self.volume,
                          B)
        self.assertNotIn('attach', self.world.effects(B, start))
        self.assertNotIn('create_metadata', self.world.effects(B, start))
        self.check(self.world, self.volume, self.expected)

    def test_two_that_arrive_at_once(self):
        """Both were told that there is room, for one."""
        self.world.pool = 'pool'
        self.b.free = 3 * worlds.GIB // 2
        first, other = self.begun(), self.world.create_volume(A)
        self.called(self.b, destination.prepare, first.move_id,
                    first.token.nonce)
        self.volume = other
        second = self.begun()
        start = len(self.world.done)
        prepare = destination.prepare, second.move_id, second.token.nonce
        self.assertRaises(exceptions.NoFreeSpace, self.called, self.b,
                          *prepare)
        self.assertEqual([], self.world.effects(B, start))
        room = self.a.node.peers.describe(B)['free_space']
        self.assertEqual(worlds.GIB // 2, room['volumes'])
        self.b.free += worlds.GIB // 2
        self.called(self.b, *prepare)

    @ddt.data((95, 0), (0, 90))
    def test_full_pool(self, usage):
        """It was not when the source asked."""
        move = self.begun()
        self.b.usage = usage
        start = len(self.world.done)
        self.assertRaises(exceptions.NoFreeSpace, self.called, self.b,
                          destination.prepare, move.move_id,
                          move.token.nonce)
        self.assertEqual([], self.world.effects(B, start))
        self.b.usage = (94, 89)
        self.called(self.b, destination.prepare, move.move_id,
                    move.token.nonce)
        # What is here already needs nothing more.
        self.b.usage = usage
        self.called(self.b, destination.prepare, move.move_id,
                    move.token.nonce)

    def test_full_of_this_very_move(self):
        move = self.begun()
        prepare = destination.prepare, move.move_id, move.token.nonce
        self.called(self.b, *prepare)
        self.b.free = 0
        self.called(self.b, *prepare)
        self.assertIn(self.handle, self.b.devices)

    @ddt.data('no such shadow', 'nonce', 'destination', 'committed', 'phase')
    def test_prepare_that_is_late(self, wrong):
        move, node = self.begun(), self.b
        move_id, nonce = move.move_id, move.token.nonce
        if wrong == 'no such shadow':
            move_id = 'unknown'
        elif wrong == 'nonce':
            nonce = 'another'
        elif wrong == 'destination':
            node = self.c
        elif wrong == 'committed':
            self.locked(self.a, lambda node: node.moves.commit(move))
        else:
            self.a.node.moves.advance(move, Event.FAILED)
        with self.does():
            self.assertRaises(exceptions.StaleMove, self.called, node,
                              destination.prepare, move_id, nonce)

    def test_given_up_while_prepare_looks_at_it(self):
        """The destination was slow: the source waits no longer.

        To end the move and build it nevertheless would leave what no record
        names.
        """
        move, here = self.begun(), cleanup.pending_here

        def given_up(node, volume_id):
            self.a.node.moves.advance(move, Event.FAILED)
            return here(node, volume_id)
        start = len(self.world.done)
        with mock.patch.object(cleanup, 'pending_here', given_up):
            self.assertRaises(exceptions.StaleMove, self.called, self.b,
                              destination.prepare, move.move_id,
                              move.token.nonce)
        self.assertEqual([], self.world.effects(B, start))
        self.b.reconciler.reconcile(self.volume.id)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_handle_that_another_has_open(self):
        """Cinder's own migration has left what writes there."""
        move = self.begun()
        prepare = destination.prepare, move.move_id, move.token.nonce
        self.b.lvs['volume-x'] = ['other'] * worlds.REGIONS
        with self.b.lock(self.volume.id):
            self.b.sim_handles.ensure_handle_on_lv(
                self.volume.id, 'volume-x', worlds.GIB)
        self.b.opened.add(self.handle)
        with self.does():
            self.assertRaises(exceptions.SourceBusy, self.called, self.b,
                              *prepare)
        self.b.opened.clear()
        self.called(self.b, *prepare)
        self.assertIn('clone', self.b.devices[self.handle]['below'])
        self.b.opened.add(self.handle)
        self.called(self.b, *prepare)  # repeated: it is open on the clone

    def test_an_export_of_what_is_gone_is_no_user(self):
        move = self.begun()
        del self.a.devices[self.handle]
        self.assertTrue(self.a.node.exports.is_source_exported(move.move_id))
        self.assertEqual(0, devices.users(self.a.node, self.volume.id))

    def test_take_down_of_what_is_not_over(self):
        move = self.a.move(self.volume, B)
        with self.does():
            self.assertRaises(exceptions.InvalidTransition, self.locked,
                              self.a, cleanup.take_down, move)


class DestinationTest(Base):

    def test_what_cannot_be_read_is_not_given_out(self):
        self.world.pool = 'pool'
        self.a.unreadable = True
        self.assertRaises(exceptions.CommandFailed, self.a.move,
                          self.volume, B)
        self.a.unreadable = False
        self.check(self.world, self.volume, self.expected)

    def copying(self):
        """The destination is up again, some is local; its source is not."""
        self.a.move(self.volume, B)
        self.b.write(self.volume.id, 1, 'new')
        for each in (self.a, self.b):
            each.stop(power=True)
        self.b.dead = False
        return self.recorded()

    def test_opened_without_its_source(self):
        self.copying()
        with self.does(b=['activate volume', 'activate metadata',
                          'ensure_clone_alone', 'ensure_handle_on_clone']):
            operations.open_without_source(
                self.b.reconciler, self.volume.id)
        self.assertEqual('new', self.b.read(self.volume.id, 1))

    def test_nothing_to_open_without_what_tells_what_is_local(self):
        move = self.copying()
        self.b.disk.remove(names.metadata_lv(move.move_id))
        with self.does(b=['activate volume']):
            self.assertRaises(
                exceptions.MissingData, operations.open_without_source,
                self.b.reconciler, self.volume.id)

    def rebooted(self):
        """The destination of a live move was written and is up again."""
        move = self.started()
        self.b.write(self.volume.id, 1, 'new')
        self.b.stop(power=True)
        self.b.dead = False
        return move

    def test_no_way_back_from_what_was_written_before_a_reboot(self):
        self.rebooted()
        self.assertRaises(exceptions.DestinationWritten, operations.abort,
                          self.b.reconciler, self.volume.id)
        self.assertEqual('new', self.b.read(self.volume.id, 1))

    def test_no_way_back_without_what_tells_whether_it_was_written(self):
        move = self.rebooted()
        self.b.disk.remove(names.metadata_lv(move.move_id))
        self.assertRaises(exceptions.MissingData, operations.abort,
                          self.b.reconciler, self.volume.id)
        self.assertEqual([self.volume.name], list(self.b.lvs))
        self.assertEqual(B, self.world.home(self.volume).host)

    def test_written_and_closed_while_it_is_looked_at(self):
        """What nothing has open is written no more: that is looked at first.
        """
        self.started()
        self.b.opened.add(self.handle)

        def last_write():
            self.b.write(self.volume.id, 1, 'new')
            self.b.opened.clear()
        clones = self.b.node.clones._inner
        clone_status = clones.clone_status

        def looked_at(move_id):
            status = clone_status(move_id)
            last_write()
            return status
        clones.clone_status = looked_at
        self.assertRaises(exceptions.SourceBusy, operations.abort,
                          self.b.reconciler, self.volume.id)
        self.assertEqual(B, self.world.home(self.volume).host)


@ddt.ddt
class HomeOfBeforeTest(testtools.TestCase):

    def can_do_without(self, users, away):
        self.node = specs.node()
        self.node.sessions.is_down.return_value = away
        with mock.patch.object(devices, 'users', return_value=users):
            return destination._end_unused_attachment(
                self.node, mock.Mock(volume_id='v'))

    @ddt.data(True, False)
    def test_nobody_uses_it(self, away):
        """Its session is given up; then nothing may be in flight."""
        self.assertEqual(not away, self.can_do_without(0, away))
        self.node.sessions.end_remote.assert_called_once_with('v')

    @ddt.data(True, False)
    def test_somebody_uses_it(self, away):
        self.assertFalse(self.can_do_without(1, away))
        self.node.sessions.end_remote.assert_not_called()


@ddt.ddt
class CompleteAloneTest(testtools.TestCase):

    def is_complete(self, finished, changed=True):
        self.node, self.move = specs.node(), mock.Mock(volume_id='v')
        self.node.clones.clone_status.return_value = mock.Mock(
            spec=copies.Progress, finished=finished)
        with mock.patch.object(destination, '_put_on_clone',
                               return_value=changed) as self.put:
            return destination.open_if_complete(self.node, self.move)

    @ddt.data(True, False)
    def test_all_is_local(self, changed):
        """A body that is new to the handle is proved to be readable."""
        self.assertTrue(self.is_complete(True, changed))
        self.put.assert_called_once_with(self.node, self.move, '')
        self.assertEqual([mock.call('v')] * changed,
                         self.node.handles.read_head.mock_calls)

    def test_not_all_is_local(self):
        """Nobody gets to read the clone."""
        self.assertFalse(self.is_complete(False))
        self.put.assert_not_called()


class AttachSourceTest(testtools.TestCase):

    def attach(self, committed):
        node = specs.node()
        node.sessions.attach.return_value = 'disk'
        node.lvm.own_block.return_value = 512
        node.lvm.logical_block.side_effect = {'disk': 4096}.get
        return destination.AttachSource(node).execute(
            mock.Mock(committed=committed))

    def test_other_blocks(self):
        self.assertIn('4096', str(self.assertRaises(
            exceptions.NotReady, self.attach, False)))

    def test_other_blocks_once_there_is_no_way_back(self):
        self.assertEqual('disk', self.attach(True))


@ddt.ddt
class CheckHandleTest(testtools.TestCase):
    """A volume that is to follow its guest, which has its disk open."""

    def check(self, opened, gib, foreign=True):
        node, move = specs.node(), mock.Mock(
            is_deferred=True, volume_id='v', size_bytes=2 * worlds.GIB)
        present = node.handles.survey.return_value
        present.handle.return_value = mock.Mock(
            opened=opened, sectors=gib * worlds.GIB // 512)
        present.is_handle_foreign.return_value = foreign
        destination._check_handle(node, move)

    def test_longer_than_what_is_copied(self):
        self.assertRaises(exceptions.NotPossible, self.check, 1, 3)

    @ddt.data((1, 2), (0, 3))
    @ddt.unpack
    def test_nothing_is_lost(self, opened, gib):
        self.check(opened, gib)


@ddt.ddt
class SwapTest(testtools.TestCase):

    @ddt.data(True, False)
    def test_nobody_has_used_it_since_a_reboot(self, changed):
        """No handle is on the disk of before; whether there is a new one."""
        node = specs.node()
        node.handles.survey.return_value.is_handle_foreign.return_value = False
        node.handles.ensure_handle_on_clone.return_value = changed
        move = mock.Mock(extra_bytes=0)
        with mock.patch.object(cleanup, 'end_after_swap') as ended:
            self.assertEqual(changed, destination._put_on_clone(
                node, move, ''))
        ended.assert_called_once_with(node, move.volume_id)
        node.clones.end_swap.assert_called_once_with(move)
        node.clones.flush_disk.assert_not_called()


@ddt.ddt
class SwitchTest(testtools.TestCase):
    """A guest has the volume through its home of before."""

    def setUp(self):
        super().setUp()
        self.node = specs.node()
        self.move = mock.Mock(volume_id='v', extra_bytes=1)
        present = self.node.handles.survey.return_value
        present.is_handle_foreign.return_value = True
        self.node.clones.clone_status.return_value = mock.Mock(mode='rw')
        self.node.sessions.is_down.return_value = False
        self.noted = self.useFixture(fixtures.MockPatchObject(
            destination.devices, 'note_moved')).mock
        self.ended = self.useFixture(fixtures.MockPatchObject(
            cleanup, 'end_after_swap')).mock

    def switch(self, source='disk'):
        return destination._put_on_clone(self.node, self.move, source)

    def switched(self):
        return [name for name, *_what in storage_parts.calls(self.node)
                if name in ('switch_to_clone', 'end_swap')]

    def test_its_home_answers(self):
        self.assertTrue(self.switch())
        self.assertEqual(['switch_to_clone', 'end_swap'], self.switched())
        self.ended.assert_called_once_with(self.node, 'v')
        self.node.sessions.end_remote.assert_not_called()

    def test_without_its_home(self):
        """What waits for that fails: nothing else ends the wait."""
        self.node.handles.switch_to_clone.side_effect = lambda *_which: (
            self.node.sessions.end_remote.assert_called_once_with('v'))
        self.assertTrue(self.switch(''))
        self.assertEqual(['switch_to_clone', 'end_swap'], self.switched())

    @ddt.data('ro', 'Fail')
    def test_clone_that_has_failed(self, mode):
        self.node.clones.clone_status.return_value.mode = mode
        self.assertRaises(exceptions.CloneFailed, self.switch)
        self.assertEqual([], self.switched())

    def test_its_home_is_away(self):
        """What this node wrote there may not be durable."""
        self.node.sessions.is_down.return_value = True
        with mock.patch.object(devices, 'users', return_value=1):
            self.assertRaises(exceptions.SourceUnreachable, self.switch)
        self.assertEqual([], self.switched())

    def test_a_boot_can_not_open_it_yet(self):
        """So it finds what it needs where that was before."""
        self.noted.side_effect = exceptions.CommandFailed(
            command='lvchange', code=5, stderr='busy')
        self.assertTrue(self.switch())
        self.assertEqual(['switch_to_clone'], self.switched())
        self.ended.assert_not_called()


@ddt.ddt
class RebuildTest(testtools.TestCase):
    """The source does not answer."""

    def rebuild(self, error, phase, complete):
        move = mock.Mock(phase=phase)
        with mock.patch.object(destination, 'build', side_effect=error), \
                mock.patch.object(destination, 'open_if_complete',
                                  return_value=complete) as self.alone:
            return destination.rebuild(mock.Mock(), move)

    @ddt.data(exceptions.SourceUnreachable(portal='p', reason='r'),
              exceptions.LoginFailed(iqn='i', portal='p', reason='r'))
    def test_not_needed_any_more(self, error):
        self.assertEqual('', self.rebuild(error, Phase.MIGRATING, True))
        self.assertRaises(type(error), self.rebuild, error, Phase.MIGRATING,
                          False)

    def test_while_both_may_write(self):
        """The guest goes on at the source, however much is local here."""
        error = exceptions.SourceUnreachable(portal='p', reason='r')
        self.assertRaises(type(error), self.rebuild, error, Phase.STARTING,
                          True)
        self.alone.assert_not_called()

    def test_other_errors(self):
        """They say nothing of the source."""
        error = exceptions.MissingData(what='w', volume='v', host='h')
        self.assertRaises(type(error), self.rebuild, error, Phase.MIGRATING,
                          True)
        self.alone.assert_not_called()


class OrderAloneTest(testtools.TestCase):

    def test_session_ends_before_it_is_asked_whether_it_is_away(self):
        node = specs.node()
        with mock.patch.object(destination.devices, 'users', return_value=0):
            destination._end_unused_attachment(node, mock.Mock())
        self.assertEqual(['end_remote', 'is_down'], [
            call[0] for call in node.sessions.method_calls])

    def test_clone_is_there_before_it_is_asked_how_far_it_is(self):
        """None is after a reboot."""
        node = specs.node()
        with mock.patch.object(destination, '_put_on_clone'):
            destination.open_if_complete(node, mock.Mock())
        self.assertEqual(['ensure_clone_alone', 'clone_status'], [
            call[0] for call in storage_parts.calls(node)[:2]])

    def test_swap_after_a_reboot(self):
        """Flushed, then put there, then logged out, then ended."""
        node, move = specs.node(), mock.Mock(extra_bytes=0)
        node.handles.survey.return_value.is_handle_foreign.return_value = False
        node.sessions.is_down.return_value = False
        with mock.patch.object(cleanup, 'end_after_swap') as ended:
            node.clones.attach_mock(ended, 'end_after_swap')
            destination._put_on_clone(node, move, 'disk')
        self.assertEqual(
            ['flush_disk', 'ensure_handle_on_clone', 'end_after_swap',
             'end_swap'],
            [name for name, *_what in storage_parts.calls(node) if name in (
                'flush_disk', 'ensure_handle_on_clone', 'end_after_swap',
                'end_swap')])
