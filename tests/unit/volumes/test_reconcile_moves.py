# SPDX-License-Identifier: Apache-2.0
"""Converging one volume that moves, or that has moved."""

from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import copying
from cinder_localclone.moves import destination
from tests.helpers.reconcile_moves_case import A
from tests.helpers.reconcile_moves_case import B
from tests.helpers.reconcile_moves_case import Base
from tests import world as worlds
from tests.world import images

C = 'c@l'
FAILED = exceptions.CommandFailed(command='lvremove', code=5, stderr='')


class PendingCleanupsTest(Base):
    """Who takes down what moves have left, and whom that concerns."""

    def failed(self):
        """A move to B that failed, with B not knowing."""
        moves = self.a.node.moves
        return moves.advance(moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i'), Event.FAILED)

    def test_only_the_home_prompts_others(self):
        self.failed()
        here = self.volume.name
        self.volume.host, self.volume.name = 'c@l#p', 'volume-elsewhere'
        self.reconcile(self.a)
        self.assertEqual([], self.told)
        self.volume.host, self.volume.name = A + '#p', here
        self.reconcile(self.a)
        self.assertEqual([(A, B, self.volume_id)], self.told)

    def test_others_are_prompted_whatever_is_wrong_here(self):
        self.failed()
        self.a.devices.clear()
        del self.a.lvs[self.volume.name]
        self.assertRaises(exceptions.MissingData, self.reconcile, self.a)
        self.assertEqual([(A, B, self.volume_id)], self.told)

    def test_nobody_is_prompted_for_a_volume_that_is_gone(self):
        self.failed()
        del self.world.volumes[self.volume_id]
        self.reconcile(self.a)
        self.assertEqual([], self.told)

    def test_source_of_a_failed_move_may_withdraw_its_export(self):
        self.failed()
        self.reconcile(self.b)
        self.assertEqual({}, self.world.move_records)
        self.assertEqual([(B, A, self.volume_id)], self.told)

    def test_source_is_told_of_the_end_of_what_is_gone(self):
        """It may still export the source."""
        self.failed()
        del self.world.volumes[self.volume_id]
        self.reconcile(self.b)
        self.assertEqual({}, self.world.move_records)
        self.assertEqual([(B, A, self.volume_id)], self.told)

    def test_nobody_waits_for_the_end_of_a_source(self):
        self.world.pool = 'pool'
        self.a.move(self.volume, B)
        self.reconcile(self.b)
        self.b.hydrate()
        self.reconcile(self.b)
        del self.told[:]
        self.reconcile(self.a)
        self.assertEqual(({}, {}), (self.world.move_records, self.a.lvs))
        self.assertEqual([], self.told)

    def test_first_of_two_errors_after_all_else(self):
        for _time in range(2):
            self.failed()
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it'] * 4
        with mock.patch.object(cleanup, 'take_down', side_effect=[
                FAILED, ValueError]):
            self.assertIs(FAILED, self.assertRaises(
                exceptions.CommandFailed, self.reconcile, self.b))
        self.assertIn(self.handle, self.b.devices)
        self.assertEqual([], self.told)

    def test_deleted_while_it_is_cleaned_up(self):
        """That may take minutes: the row is read afterwards."""
        self.failed()
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it'] * 4

        def take_down(*_which):
            self.volume.status = 'deleting'
        with mock.patch.object(cleanup, 'take_down', take_down):
            self.reconcile(self.b)
        self.assertNotIn(self.handle, self.b.devices)

    def test_what_fails_keeps_no_leftovers(self):
        self.failed()
        self.b.lvs['volume-x'] = ['stray'] * 4
        with self.b.lock(self.volume_id):
            self.b.sim_handles.ensure_handle_on_lv(
                self.volume_id, 'volume-x', worlds.GIB)
        with mock.patch.object(worlds.SimHandles, 'remove_handle',
                               side_effect=FAILED):
            self.assertRaises(exceptions.CommandFailed, self.reconcile,
                              self.b)
        self.assertEqual({}, self.world.move_records)


@ddt.ddt
class DestinationTest(Base):

    @ddt.data(True, False)
    def test_what_is_being_deleted_is_not_built_again(self, live):
        self.live() if live else self.a.move(self.volume, B)
        self.b.stop(power=True)
        self.b.dead = False
        self.volume.status = 'deleting'
        self.reconcile(self.b)
        self.assertEqual(({}, {}), (self.b.devices, self.b.sessions))

    def test_nothing_is_copied_while_both_may_write(self):
        """Off before it is asked what the guest has written there."""
        self.live()
        self.clone()['hydrating'] = True
        self.attach(A)

        def written(node, move):
            self.assertFalse(self.clone()['hydrating'])
            return 0
        with mock.patch.object(destination, 'written_regions', written):
            self.reconcile(self.b)
        self.assertIs(self.a, self.world.home(self.volume))

    def test_the_source_learns_that_it_can_go(self):
        self.a.move(self.volume, B)
        move_id = self.move().move_id
        self.reconcile(self.b)
        self.b.hydrate()
        del self.told[:]
        with mock.patch.object(destination, 'complete', side_effect=FAILED):
            self.assertRaises(exceptions.CommandFailed, self.reconcile,
                              self.b)
        self.assertEqual(100, self.b.reconciler.progress(move_id).percent)
        self.assertEqual([], self.told)
        with mock.patch.object(worlds.SimClones, 'wake_hydration') as wake:
            self.assertFalse(self.b.reconciler.copying.waker.wake(0))
        wake.assert_not_called()  # that clone is about to go
        self.reconcile(self.b)
        self.assertIsNone(self.b.reconciler.progress(move_id))
        self.assertEqual([(B, A, self.volume_id)], self.told)

    @ddt.data(exceptions.SourceUnreachable(portal='p', reason='r'),
              exceptions.LoginFailed(iqn='i', portal='p', reason='r'))
    def test_a_copy_that_is_complete_needs_no_source(self, error):
        self.a.move(self.volume, B)
        self.reconcile(self.b)
        with mock.patch.object(worlds.SimSessions, 'attach',
                               side_effect=error):
            self.assertRaises(type(error), self.reconcile, self.b)
            self.b.hydrate()
            self.reconcile(self.b)
        self.assertEqual({'below': self.volume.name},
                         self.b.devices[self.handle])

    def test_an_operator_reads_of_a_clone_that_failed(self):
        self.a.move(self.volume, B)
        for self.b.clones, told in (('rw', 0), ('ro', 1), ('Fail', 1)):
            with mock.patch.object(events, 'LOG') as log:
                self.reconcile(self.b)
            self.assertEqual(told, log.error.call_count)
            self.assertEqual(
                [self.b.clones] * told,
                [each.args[1]['mode'] for each in log.error.call_args_list])

    def test_an_operator_reads_once_of_each_pause(self):
        self.a.move(self.volume, B)
        self.b.broken = True
        now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock
        said = []
        for now.return_value in (0, 5, 10, 12, 15, 20):
            with mock.patch.object(events, 'LOG') as log:
                self.reconcile(self.b)
            self.b.hydrate()
            said += [(now.return_value, each.args[1]['seconds'])
                     for each in log.error.call_args_list]
        self.assertEqual([(10, 5), (20, 10)], said)


@ddt.ddt
class SourceTest(Base):

    def test_copying_goes_on(self):
        self.a.move(self.volume, B)
        self.reconcile(self.a)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_start_of_the_service_takes_no_step_of_a_move(self):
        """A step may wait for a peer."""
        self.live()
        self.attach(B)
        self.a.opened.clear()
        self.a.reconciler.reconcile_node(moves=False)
        self.assertIs(Phase.STARTING, self.move().phase)
        self.a.reconciler.reconcile_node()
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_volume_that_is_gone_in_the_middle_of_a_live_move(self):
        """Its row; its shadow still names this node."""
        self.live()
        move_id = self.move().move_id
        del self.world.volumes[self.volume_id]
        self.reconcile(self.a)
        self.assertIs(Phase.STARTING, self.world.move_records[move_id].phase)

    @ddt.data(B, A)
    def test_move_is_rolled_back_after_its_volume_was_read(self, written):
        """Found by seed 24000160933: the server may start here again.

        :param written: the home in the row; A was written late
        """
        self.live()
        self.attach(A)
        self.volume.host = written + '#p'
        self.a.opened.clear()  # its process was killed
        moves = self.a.node.moves
        move_of = moves.move_of

        def rolled_back(volume_id):
            with mock.patch.object(moves, 'move_of', move_of):
                self.reconcile(self.b)
            return move_of(volume_id)
        with mock.patch.object(moves, 'move_of', rolled_back):
            self.reconcile(self.a)
        self.assertEqual((A + '#p', None), (self.volume.host, self.move()))
        self.assertIn(self.handle, self.a.devices)

    def test_guest_has_left_while_the_target_hangs(self):
        self.live()
        self.attach(B)
        self.a.opened.clear()
        with mock.patch.object(worlds.SimExports, 'export_source',
                               side_effect=exceptions.TargetTimeout(
                                   seconds=20)):
            self.reconcile(self.a)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_exported_though_nobody_knows_whether_the_guest_has_left(self):
        self.live()
        self.a.exports.clear()
        with mock.patch.object(devices, 'users',
                               side_effect=FAILED):
            self.assertRaises(exceptions.CommandFailed, self.reconcile,
                              self.a)
        self.assertEqual([self.volume_id], list(self.a.exports.values()))

    def test_its_copy_is_exported_before_other_hosts(self):
        """After a reboot: it is what both nodes' guests wait for."""
        self.live()
        self.volume.volume_attachment[0] = images.attachment(
            connector={'host': 'x', 'initiator': 'iqn.x'}, mountpoint=None,
            instance_uuid='vm', connection_info={
                'driver_volume_type': 'iscsi', 'target_iqn': 'iqn.x',
                'target_portal': 'portal of ' + A})
        self.a.stop(power=True)
        self.a.dead = False
        del self.world.done[:]
        self.reconcile(self.a)
        self.assertEqual(
            [(A, 'export_source'), (A, 'export_again')],
            [each[:2] for each in self.world.done
             if each[1].startswith('export')])


class RenamedTest(Base):
    """The service of a node gets another ``host`` during a move."""

    hosts = A, B, C

    def setUp(self):
        super().setUp()
        self.a.write(self.volume_id, 1, 'old')
        self.c = self.world.nodes[C]

    def rename(self, node):
        """Give a node's service the name C, as cinder-manage does."""
        for name in ('disk', 'devices', 'sessions', 'exports'):
            setattr(self.c, name, getattr(node, name))
        node.gone = node.dead = True
        self.volume.host = C + '#p'
        self.volume.service_uuid = self.world.service_of(C)

    def move(self):
        return self.c.node.moves.move_of(self.volume_id)

    def test_first_sweep_of_a_destination(self):
        self.a.move(self.volume, B)
        self.rename(self.b)
        before = self.c.devices.keys(), set(self.c.lvs)
        self.c.reconciler.reconcile_node()
        self.assertEqual(before, (self.c.devices.keys(), set(self.c.lvs)))
        self.assertEqual((C, C + '#p'), (
            self.move().destination, self.volume.host))

    def test_copy_is_completed(self):
        self.a.move(self.volume, B)
        self.rename(self.b)
        for _sweep in range(2):
            self.c.reconciler.reconcile_node()
            self.c.hydrate()
        self.world.settle()
        self.assertIsNone(self.move())
        self.assertEqual({}, dict(self.a.lvs))
        self.assertEqual('old', self.c.read(self.volume_id, 1))

    def test_first_sweep_of_a_source(self):
        """It finds the move by the new name, and ends it."""
        self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: 'portal,1 %s 0' % record, 'CHAP u s', 'i')
        self.rename(self.a)
        self.c.reconciler.reconcile_node()
        self.assertIsNone(self.move())
        self.assertEqual([(B, C, self.volume_id)], self.told)
