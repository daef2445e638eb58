# SPDX-License-Identifier: Apache-2.0
"""Each way to serve a volume, and to end that, in the simulated world."""

import dataclasses
from unittest import mock

import ddt

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.core.user_messages import Action
from cinder_localclone.encryption import devices
from cinder_localclone.service import messages
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import decision
from tests.helpers.attach_case import A
from tests.helpers.attach_case import attachment
from tests.helpers.attach_case import B
from tests.helpers.attach_case import Base
from tests.helpers.attach_case import ELSEWHERE
from tests.helpers.attach_case import ON_A
from tests.helpers.attach_case import ON_B
from tests.helpers import callers
from tests import world as worlds
from tests.world import stack as worlds_stack


@ddt.ddt
class ConnectTest(Base):

    def test_local(self):
        del self.a.devices[self.handle]
        self.is_local(self.connect(ON_A))
        self.assertIn(self.handle, self.a.devices)
        self.assertIsNone(self.move())

    def test_move(self):
        self.is_local(self.connect(ON_B))
        self.assertIs(self.b, self.world.home(self.volume))
        self.assertIs(Phase.MIGRATING, self.move().phase)
        self.is_local(self.connect(ON_B, self.b))

    def boot(self):
        """What a boot of A would give out."""
        self.a.stop(power=True)
        self.a.dead = False
        return [local.volume_id for local in boot_plan.plan(
            self.a.sim_handles.survey()) if not local.reason]

    def test_a_boot_gives_out_nothing_that_is_copied_elsewhere(self):
        """A writable handle would be on what another node's clone reads."""
        self.assertEqual([self.volume.id], self.boot())
        self.connect(ON_B)
        self.assertIs(Phase.MIGRATING, self.move().phase)
        self.assertNotIn(self.handle, self.a.devices)  # the fence
        self.assertEqual([], self.boot())
        self.a.reconciler.reconcile_node()
        self.assertNotIn(self.handle, self.a.devices)

    def test_nor_what_a_live_move_has_left(self):
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.handle)
        self.connect(ON_B)
        self.volume.volume_attachment[1].connector = ON_B
        self.a.opened.clear()
        self.assertEqual([self.volume.id], self.boot())  # it may go back
        self.a.reconciler.reconcile_node()
        self.disconnect(self.a, ON_A)
        self.assertIs(Phase.MIGRATING, self.move().phase)
        self.assertEqual([], self.boot())

    def test_move_that_is_asked_for_again(self):
        """Its attachment has the connector already."""
        self.attach('attaching', 'b')
        self.is_local(self.connect(ON_B))
        self.assertIs(self.b, self.world.home(self.volume))

    def test_move_to_a_node_that_is_not_ready(self):
        self.b.problems = ['its kernel has no dm-clone']
        self.assertRaises(exceptions.NotReady, self.connect, ON_B)
        self.assertIs(self.a, self.world.home(self.volume))
        self.assertIsNone(self.move())

    def test_live_move(self):
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.handle)
        self.is_local(self.connect(ON_B))
        self.assertIs(self.b, self.world.home(self.volume))
        self.assertIs(Phase.STARTING, self.move().phase)

    def is_over_iscsi(self, data):
        self.assertEqual({
            'target_iqn': 'iqn.x', 'target_portal': 'portal of ' + A,
            'auth_method': 'CHAP', 'auth_username': mock.ANY,
            'auth_password': mock.ANY, 'discard': True}, data)
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)
        self.assertIs(self.a, self.world.home(self.volume))

    def test_remote(self):
        del self.a.devices[self.handle]
        properties = self.connect(ELSEWHERE)
        self.assertEqual('iscsi', properties['driver_volume_type'])
        self.is_over_iscsi(properties['data'])

    @ddt.data('extending', 'error_extending', 'awaiting-transfer')
    def test_late(self, status):
        """Whoever has asked has given up; no attachment is left."""
        self.attach(status)
        self.connect(ELSEWHERE)
        self.a.reconciler.reconcile_node()
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)
        self.a.exported.clear()  # ten minutes later
        self.a.reconciler.reconcile_node()
        self.assertEqual(set(), self.a.remote)

    @ddt.data(('deleting', 'deleted'), ('error_deleting', 'deleted'),
              ('unmanaging', 'unmanaged'), ('error_unmanaging', 'unmanaged'))
    @ddt.unpack
    def test_late_when_the_volume_goes(self, status, done):
        """Nova has given its attachment up while the request waited.

        An export, or a move, would keep the LV in use.
        """
        asked = volume_attachments.as_sent(self.volume)
        self.attach(status)
        for connector in (ON_A, ON_B, ELSEWHERE):
            error = self.assertRaises(
                exceptions.Refused, self.a.connections.connect, self.volume.id,
                connector, asked)
            self.assertIn('it is being ' + done, str(error))
        self.assertEqual([set(), None], [self.a.remote, self.move()])

    def test_passed_through(self):
        del self.a.devices[self.handle]
        self.volume.group_id = 'g'
        properties = self.connect(dict(ON_B, initiator='iqn.x'))
        self.assertEqual('local', properties['driver_volume_type'])
        self.assertEqual('/dev/mapper/' + self.handle,
                         properties['data'].pop('device_path'))
        self.is_over_iscsi(properties['data'])
        self.assertEqual({'below': 'disk of ' + self.volume.id},
                         self.b.devices[self.handle])

    def test_passed_through_again(self):
        """With the same secret: a session lives on, and may come back."""
        self.volume.group_id = 'g'
        connector = dict(ON_B, initiator='iqn.x')
        first = self.connect(connector)
        self.attach('in-use', 'b')
        self.volume.volume_attachment[0].connector = connector
        self.volume.volume_attachment[0].connection_info = dict(
            first['data'], driver_volume_type='local')
        self.assertEqual(first, self.connect(connector))

    def test_passed_through_to_a_node_that_can_not(self):
        """Nothing is left that is served to it."""
        self.volume.group_id = 'g'
        self.b.disk.lvs['x'] = []
        self.b.opened.add(self.handle)
        self.b.devices[self.handle] = {'below': 'x'}
        self.assertRaises(exceptions.SourceBusy, self.connect,
                          dict(ON_B, initiator='iqn.x'))
        self.assertEqual([set(), set()], [self.a.remote, self.a.exported])

    def test_an_earlier_try_does_not_hold_it_up(self):
        """Its answer was lost; an attach that follows is a move."""
        self.volume.group_id = 'g'
        connector = dict(ON_B, initiator='iqn.x')
        self.connect(connector)
        self.volume.group_id = None
        self.is_local(self.connect(connector))
        self.assertIs(self.b, self.world.home(self.volume))
        self.world.settle()
        self.assertEqual([set(), {}], [self.a.remote, self.b.remotes])

    @ddt.data(None, 'g')
    def test_an_answer_that_fails_changes_nothing(self, group):
        """It is built of the database's rows, before anything else."""
        self.volume.group_id = group
        with mock.patch.object(
                connect.Connections, '_local_connection', autospec=True,
                side_effect=RuntimeError('no database')):
            self.assertRaises(RuntimeError, self.connect,
                              dict(ON_B, initiator='iqn.b'))
        self.assertIs(self.a, self.world.home(self.volume))
        self.assertIsNone(self.move())
        self.assertEqual((set(), {}), (self.a.remote, self.b.devices))

    def test_a_move_outlives_the_end_of_its_source_handle(self):
        """It is committed; the daemon of privsep may have died since."""
        with mock.patch.object(
                worlds_stack.SimHandles, 'remove_handle', autospec=True,
                side_effect=RuntimeError('no daemon')):
            self.is_local(self.connect(ON_B))
        self.assertIs(self.b, self.world.home(self.volume))
        self.world.settle()
        self.assertNotIn(self.handle, self.a.devices)

    def test_refused_without_an_initiator(self):
        error = self.assertRaises(exceptions.Refused, self.connect,
                                  {'host': 'x'})
        self.assertEqual('REFUSED', messages.message_about(
            error, Action.ATTACH).key)
        self.assertIn('to x', str(error))

    def test_refused_while_another_instance_has_it(self):
        self.volume.volume_attachment = [
            attachment('a', 'other'), attachment(None)]
        error = self.assertRaises(exceptions.Refused, self.connect, ON_B)
        self.assertEqual('ATTACHED_ELSEWHERE', messages.message_about(
            error, Action.ATTACH).key)

    def test_refused_while_a_live_migration_begins(self):
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.handle)
        self.connect(ON_B)
        self.attach('in-use', None)
        error = self.assertRaises(exceptions.Refused, self.connect, ON_A,
                                  self.b)
        self.assertEqual('MOVE_BUSY', messages.message_about(
            error, Action.ATTACH).key)

    def test_where_it_does_not_live(self):
        self.assertRaises(exceptions.StaleMove, self.connect, ON_B, self.b)
        del self.world.volumes[self.volume.id]
        self.assertRaises(exceptions.StaleMove, self.connect, ON_A)

    def test_a_node_that_is_down(self):
        self.b.dead = True
        self.assertRaises(exceptions.PeerUnreachable, self.connect, ON_B)
        self.assertIsNone(self.move())

    @ddt.data((ON_A, A), (ON_B, B))
    @ddt.unpack
    def test_after_a_move_that_was_interrupted(self, connector, home):
        interrupted = self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.is_local(self.connect(connector))
        self.assertNotIn(interrupted.move_id, self.world.move_records)
        self.assertEqual(home, self.world.home(self.volume).host)

    def test_deleted_while_a_peer_was_waited_for(self):
        with mock.patch.object(
                connect.source, 'abandon_interrupted',
                lambda *_all: self.world.volumes.clear()):
            self.assertRaises(exceptions.StaleMove, self.connect, ON_A)

    def test_deleted_once_its_row_was_read(self):
        """Cinder lets it be attached if a retype's end hides the delete."""
        volume_at_home = connect.node.volume_at_home

        def read(*args):
            found = volume_at_home(*args)
            del self.world.volumes[self.volume.id]
            return found
        with mock.patch.object(connect.node, 'volume_at_home', read):
            self.assertRaises(exceptions.StaleMove, self.connect, ON_A)

    def test_while_other_work_takes_too_long(self):
        with self.a.lock(self.volume.id):
            self.assertRaises(exceptions.Busy, self.connect, ON_A)
            self.assertRaises(exceptions.Busy, self.disconnect, self.a, None)


class UnserveTest(Base):

    def remote(self):
        for connector in (ELSEWHERE, dict(ELSEWHERE, initiator='iqn.y')):
            self.connect(connector)

    def live(self):
        """A live migration: the guest still runs on the source."""
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.handle)
        self.connect(ON_B)
        self.attach('in-use', 'a', 'b')

    def test_local_leaves_nothing_to_end(self):
        self.connect(ON_A)
        before = repr(self.world.snapshot())
        self.disconnect(self.a, ON_A)
        self.assertEqual(before, repr(self.world.snapshot()))

    def test_committed_move_goes_on(self):
        self.connect(ON_B)
        self.disconnect(self.b, ON_B)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_remote_ends_one_connection(self):
        self.remote()
        self.disconnect(self.a, ELSEWHERE)
        self.assertEqual({(self.volume.id, 'iqn.y')}, self.a.remote)

    def test_what_a_host_has_by_another_attachment_it_keeps(self):
        """Also if it had another name when the first one was made."""
        renamed = dict(ELSEWHERE, host='y')
        self.connect(ELSEWHERE)
        for second in (ELSEWHERE, renamed):
            self.attach('in-use', 'x', 'x')
            for each, connector in zip(self.volume.volume_attachment,
                                       (ELSEWHERE, second)):
                each.connector = connector
            for connector in (ELSEWHERE, second):
                self.disconnect(self.a, connector)
                self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)
        del self.volume.volume_attachment[0]
        self.disconnect(self.a, renamed)
        self.assertEqual(set(), self.a.remote)

    def test_connectors_of_one_host(self):
        """By its iSCSI name; by its own where neither has one."""
        for one, other, same in (
                ({'host': 'x', 'initiator': 'i'},
                 {'host': 'y', 'initiator': 'i'}, True),
                ({'host': 'x', 'initiator': 'i'},
                 {'host': 'x', 'initiator': 'j'}, False),
                ({'host': 'x', 'initiator': 'i'}, {'host': 'x'}, False),
                ({'host': 'x'}, {'host': 'x'}, True),
                ({'host': 'x'}, {'host': 'y'}, False)):
            for pair in ((one, other), (other, one)):
                self.assertIs(same, connect._is_same_host(*pair), pair)

    def test_forced_detach_ends_all(self):
        self.remote()
        self.disconnect(self.a, None)
        self.assertEqual(set(), self.a.remote)

    def test_detach_with_an_encryption_of_another_version(self):
        """Otherwise Cinder keeps the attachment, whose export has ended."""
        for connector in (ON_A, None):
            self.attach('in-use', 'a')
            self.volume.provider_id = 'lc9:other'
            with mock.patch.object(devices, 'close_for_good') as closed:
                self.disconnect(self.a, connector)
            closed.assert_called_once_with(self.a.node, self.volume.id)

    def test_detach_of_what_is_gone(self):
        """Cinder has deleted its row before the request came."""
        self.remote()
        del self.world.volumes[self.volume.id]
        for connector, left in ((ELSEWHERE, {(self.volume.id, 'iqn.y')}),
                                (None, set())):
            self.disconnect(self.a, connector)
            self.assertEqual(left, self.a.remote)

    def test_roll_back_between_nodes_with_one_iscsi_name(self):
        """Both were installed from one image: they are two nodes still."""
        self.live()
        for each, connector in zip(self.volume.volume_attachment,
                                   (ON_A, ON_B)):
            each.connector = dict(connector, initiator='iqn.same')
        self.disconnect(self.b, dict(ON_B, initiator='iqn.same'))
        self.assertIsNone(self.move())

    def test_roll_back_waits_for_the_last_attachment_there(self):
        """As a live migration leaves it that its service has not survived.

        One that is only reserved is nobody's.
        """
        self.live()
        live = self.move()
        self.volume.volume_attachment += [attachment('b'), attachment(None)]
        self.disconnect(self.b, ON_B)
        self.assertEqual(live, self.move())
        del self.volume.volume_attachment[2]
        self.disconnect(self.b, ON_B)
        self.assertIsNone(self.move())

    def test_forced_detach_decides_nothing_about_a_live_move(self):
        self.live()
        for node in (self.a, self.b):
            self.disconnect(node, None)
        self.assertIs(Phase.STARTING, self.move().phase)

    def test_source_is_left(self):
        self.live()
        self.a.opened.clear()
        self.disconnect(self.a, ON_A)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_source_is_closed_a_moment_later(self):
        self.live()
        connect.CLOSING = 10
        self.sleep.side_effect = lambda seconds: self.a.opened.clear()
        self.disconnect(self.a, ON_A)
        self.sleep.assert_called_once_with(0.5)
        self.assertIs(Phase.MIGRATING, self.move().phase)

    def test_source_that_stays_open_is_no_error(self):
        self.live()
        self.disconnect(self.a, ON_A)
        self.assertIs(Phase.STARTING, self.move().phase)

    def test_detach_outlives_what_fails_at_the_source(self):
        """Whatever it is; the next look goes on."""
        self.live()
        self.a.opened.clear()
        with mock.patch.object(
                connect.source, 'begin_hydration', autospec=True,
                side_effect=RuntimeError('no database')):
            self.disconnect(self.a, ON_A)
        self.attach('in-use', 'b')
        self.world.settle()
        self.assertIsNone(self.move())

    def test_who_does_not_have_to_act_does_nothing(self):
        self.live()
        self.a.opened.clear()
        self.disconnect(self.b, ON_A)  # the source has to
        self.disconnect(self.a, ON_B)  # the destination has to
        self.assertIs(Phase.STARTING, self.move().phase)

    def test_destination_is_left(self):
        self.live()
        self.disconnect(self.b, ON_B)
        self.assertIs(self.a, self.world.home(self.volume))
        self.assertIsNone(self.move())
        self.assertEqual({}, self.b.devices)

    def test_destination_that_stays_open_is_an_error(self):
        self.live()
        self.b.opened.add(self.handle)
        self.assertRaises(exceptions.SourceBusy, self.disconnect, self.b, ON_B)
        self.assertIs(self.b, self.world.home(self.volume))

    def test_a_clone_that_failed_is_not_waited_for(self):
        self.live()
        connect.CLOSING = 10
        self.b.clones = 'ro'
        self.assertRaises(exceptions.CloneFailed, self.disconnect, self.b,
                          ON_B)
        self.sleep.assert_not_called()

    def test_who_leaves_a_source(self):
        """Only during a live migration: both nodes have the volume."""
        self.live()
        move, leaves = self.move(), self.a.connections.leaves_source
        self.assertTrue(leaves(move, ON_A))
        for other, connector in (
                (move, ON_B), (move, None), (None, ON_A),
                (dataclasses.replace(move, committed=False), ON_A),
                (dataclasses.replace(move, token=move.token.after(
                    Event.SOURCE_DETACHED, True)), ON_A)):
            self.assertFalse(leaves(other, connector))

    def test_exported_from_a_source_that_is_down(self):
        """What is read waits for it, and the end of the export for that."""
        self.a.move(self.volume, B)
        self.b.node.exports.export_volume(self.volume.id, 'iqn.x', 'auth')
        self.disconnect(self.b, {'host': 'x', 'initiator': 'iqn.y'})
        self.assertEqual(1, len(self.b.sessions))
        move_id = self.move().move_id
        self.a.stop(power=True)
        for connector in ({'host': 'x', 'initiator': 'iqn.x'}, None):
            self.b.remote.add((self.volume.id, 'iqn.x'))
            self.b.sessions[move_id] = True
            self.disconnect(self.b, connector)
            self.assertEqual((set(), {}), (self.b.remote, self.b.sessions))
        self.b.sessions[move_id] = True
        self.disconnect(self.b, None)  # nothing to withdraw
        self.assertEqual(1, len(self.b.sessions))
        self.world.recover()
        self.assertEqual(1, len(self.b.sessions))

    def test_others_that_wait_for_a_source_get_no_error(self):
        """What is not copied is read here, too: that source may come back."""
        self.a.move(self.volume, B)
        self.b.node.exports.export_volume(self.volume.id, 'iqn.x', 'auth')
        self.b.opened.add(self.handle)
        self.a.stop(power=True)
        self.assertRaises(exceptions.TargetTimeout, self.disconnect, self.b,
                          {'host': 'x', 'initiator': 'iqn.x'})
        self.assertEqual(1, len(self.b.sessions))

    def test_deleted_while_an_attach_waits(self):
        """Of what goes nothing is made; then nothing is offered."""
        self.a.move(self.volume, B)
        self.b.stop(power=True)
        self.b.dead = False

        def decide(request):
            self.volume.status = 'deleting'
            return decided(request)
        decided = decision.decide
        with mock.patch.object(decision, 'decide', decide):
            error = self.assertRaises(
                exceptions.NotPossible, self.connect,
                {'host': 'a', 'initiator': 'iqn.a'}, self.b)
        self.assertIn('is being deleted', str(error))
        self.assertEqual((set(), {}), (self.b.remote, self.b.devices))

    def test_deleted_while_its_source_is_down(self):
        self.a.move(self.volume, B)
        self.b.node.exports.export_volume(self.volume.id, 'iqn.x', 'auth')
        self.a.stop(power=True)
        self.volume.status = 'deleting'
        callers.delete(self.b.node, self.volume)
        self.assertEqual((set(), {}, {}), (
            self.b.remote, self.b.sessions, self.b.devices))
