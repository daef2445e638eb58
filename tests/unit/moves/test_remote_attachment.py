# SPDX-License-Identifier: Apache-2.0
"""The parts of pass-through: sessions, the handle's body, attachments."""

import copy
import datetime
from unittest import mock

import ddt
import fixtures
from oslo_utils import timeutils

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi as iscsi_names
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.moves import remote_attachment
from cinder_localclone.storage import iscsi_initiator
from tests.helpers import attach_case
from tests.helpers import remote_case
from tests.helpers.remote_case import A
from tests.helpers.remote_case import GIB
from tests.helpers.remote_case import IQN
from tests.helpers.remote_case import Passed
from tests.helpers.remote_case import PROPERTIES
from tests.helpers.remote_case import V1
from tests.helpers import remote_guest_case
from tests.helpers import sessions_case
from tests.helpers import specs
from tests.helpers import storage_case
from tests import world as worlds
from tests.world import iscsi


@ddt.ddt
class SessionsTest(sessions_case.Case):

    def setUp(self):
        super().setUp()
        self.called.iscsiadm.recorded.return_value = []

    def attach(self, size=GIB, in_use=False, **other):
        return self.sessions.attach_remote(
            V1, size, dict(PROPERTIES, **other), in_use)

    def test_by_whom(self):
        """A service that has started since then does not know it."""
        def may(user):
            return self.sessions.may_be_attached_by(V1, user)
        self.assertTrue(may('user'))
        self.attach()
        self.assertTrue(may('user'))
        self.assertFalse(may('another'))
        self.attach(auth_username='another')
        self.assertFalse(may('user'))
        self.sessions.end_remote(V1)
        self.assertTrue(may('user'))

    def test_by_whom_while_no_session_ends(self):
        """What was not begun does not count; what has not ended does."""
        error = exceptions.CommandTimeout(command='iscsiadm', seconds=30)
        self.attach()
        self.disks(*[{IQN: ['/dev/sdb']}] * 9)
        self.called.iscsiadm.end_session.side_effect = error
        for act in (lambda: self.attach(auth_username='another'),
                    lambda: self.sessions.end_remote(V1)):
            self.assertRaises(exceptions.CommandTimeout, act)
            self.assertEqual([True, False], [
                self.sessions.may_be_attached_by(V1, user)
                for user in ('user', 'another')])

    def test_names(self):
        self.assertNotEqual(iscsi_names.remote_iqn('iqn.x:', V1, 'iqn.b'), IQN)
        self.assertTrue(iscsi_names.is_iqn(IQN))
        self.assertEqual(V1, iscsi_names.volume_of_remote_iqn(IQN))
        self.assertEqual(V1, iscsi_names.volume_of_attachment_iqn(IQN, 'b@l'))
        self.assertIsNone(iscsi_names.volume_of_attachment_iqn(IQN, 'a@m'))
        for prefix in ('iqn.x:', 'iqn.y:'):  # whatever it was called
            named = iscsi_names.attachment_iqn(prefix, V1, 'iqn.b', 'old@l')
            self.assertTrue(iscsi_names.is_remote_to(named, V1, 'iqn.b'))
            self.assertEqual(V1,
                             iscsi_names.volume_of_attachment_iqn(named, A))
            for home in (A, 'old@l'):
                self.assertIs(home == 'old@l',
                              iscsi_names.is_attached_from(named, home))
        self.assertFalse(iscsi_names.is_remote_to(IQN, V1, 'iqn.c'))
        self.assertFalse(iscsi_names.is_remote_to(
            IQN, sessions_case.SHADOW, 'iqn.b'))
        for other in (iscsi_names.remote_iqn('iqn.x:', V1, 'i'),
                      iscsi_names.move_iqn('iqn.x:', V1)):
            self.assertIsNone(iscsi_names.volume_of_attachment_iqn(other, A))
        self.assertNotEqual(
            iscsi_names.attachment_iqn('iqn.x:', V1, 'iqn.b', 'c@l'), IQN)

    def test_logged_in_with_values_of_their_own_kinds(self):
        self.assertEqual('/dev/sda', self.attach())
        self.assertEqual(['connect', 'record_target', 'login', 'identity',
                          'identity', 'set_recovery_timeout', 'bring_back'],
                         self.names())
        self.called.iscsiadm.record_target.assert_called_once_with(
            IQN, sessions_case.PORTAL, 'CHAP user secret', 30)

    def test_a_disk_that_is_there_is_not_logged_in_to(self):
        """iscsid brings it back; whoever uses it has it all the time."""
        self.disks(*[{IQN: ['/dev/sdb']}] * 9)
        for down in (False, True):
            self.called.iscsiadm.is_down.return_value = down
            self.assertEqual('/dev/sdb', self.attach(in_use=True))
        self.called.iscsiadm.is_down.return_value = False
        self.assertEqual('/dev/sdb', self.attach())
        self.called.iscsiadm.login.assert_not_called()
        self.called.iscsiadm.end_session.assert_not_called()

    def test_one_that_cannot_come_back_is_logged_out_first(self):
        """Its home serves the volume anew; nobody uses what there was."""
        self.attach()
        self.disks(*[{IQN: ['/dev/sdb']}] * 9)
        self.called.iscsiadm.is_down.return_value = False
        self.assertEqual('/dev/sdb', self.attach(
            in_use=True, auth_password='another'))
        self.called.iscsiadm.end_session.assert_not_called()
        self.assertEqual('/dev/sda', self.attach(auth_password='another'))
        self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)
        self.called.iscsiadm.is_down.return_value = True
        self.assertEqual('/dev/sda', self.attach(auth_password='another'))
        self.assertEqual(2, self.called.iscsiadm.end_session.call_count)

    def test_what_has_just_begun(self):
        self.assertFalse(self.sessions.was_just_attached(V1))
        self.attach()
        self.assertTrue(self.sessions.was_just_attached(V1))
        self.assertFalse(self.sessions.was_just_attached(sessions_case.SHADOW))
        later = (iscsi_initiator.time.monotonic()
                 + iscsi_initiator.RECORDED + 1)
        with mock.patch.object(iscsi_initiator.time, 'monotonic',
                               lambda: later):
            self.assertFalse(self.sessions.was_just_attached(V1))
        self.sessions.end_remote(V1)
        self.assertFalse(self.sessions.was_just_attached(V1))

    def test_one_whose_home_has_left_its_portal_is_ended_in_use(self):
        """What waits for it would only wait until its time limit."""
        self.called.iscsiadm.known_portal.return_value = '192.0.2.99:3260'
        self.called.iscsiadm.is_down.return_value = True
        self.disks(*[{IQN: ['/dev/sdb']}] * 9)
        self.assertEqual('/dev/sda', self.attach(in_use=True))
        self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)

    def test_one_whose_home_is_away_is_left(self):
        self.disks({IQN: ['/dev/sdb']})
        self.called.iscsiadm.is_down.return_value = True
        self.portal_is_silent()
        self.assertRaises(exceptions.SourceUnreachable, self.attach)
        self.called.iscsiadm.end_session.assert_not_called()

    def test_it_may_be_longer_than_its_row_says(self):
        self.called.block.identity.return_value = 2 * GIB, V1
        self.assertEqual('/dev/sda', self.attach())

    def test_extended_at_its_home(self):
        self.called.iscsiadm.rescan.side_effect = lambda *_all: (
            self.called.block.identity.configure_mock(
                return_value=(2 * GIB, V1)))
        self.assertEqual('/dev/sda', self.attach(2 * GIB))
        self.called.iscsiadm.rescan.assert_called_once_with(
            '/dev/sda', iscsi_initiator.SCAN_TIMEOUT)

    @ddt.data(*sessions_case.Case.UNKNOWN)
    def test_disk_that_has_just_appeared(self, identity):
        """It is waited for, and not scanned again beneath the kernel."""
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'IDENTITY_TIMEOUT', 10))
        self.called.block.identity.side_effect = [
            identity] * 3 + [(GIB, V1)] * 2
        self.assertEqual('/dev/sda', self.attach())
        self.called.iscsiadm.rescan.assert_not_called()

    @ddt.data((GIB - 512, V1), (GIB, sessions_case.SHADOW))
    def test_another_disk(self, identity):
        self.called.block.identity.return_value = identity
        self.assertRaises(exceptions.WrongSource, self.attach)

    def test_a_home_that_does_not_answer(self):
        self.portal_is_silent()
        self.assertRaises(exceptions.SourceUnreachable, self.attach)
        self.called.iscsiadm.login.assert_not_called()

    def test_what_is_there(self):
        self.disks({IQN: ['/dev/sda'], sessions_case.IQN: ['/dev/sdb']})
        self.assertEqual({V1: '/dev/sda'}, self.sessions.remotes())
        self.disks({IQN: []})
        self.assertEqual({V1: ''}, self.sessions.remotes())

    def test_ended_with_all_that_is_known_of_it(self):
        for found, recorded in (({IQN: ['/dev/sda']}, []), ({}, [IQN])):
            self.disks({**found, sessions_case.IQN: ['/dev/sdb']})
            self.called.iscsiadm.recorded.return_value = [
                *recorded, sessions_case.IQN]
            self.called.iscsiadm.end_session.reset_mock()
            self.assertTrue(self.sessions.end_remote(V1))
            self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)
        self.called.iscsiadm.recorded.return_value = []
        self.assertFalse(self.sessions.end_remote(V1))

    def test_who_does_not_answer(self):
        """The source, or a home by which the volume is passed through."""
        other = iscsi_names.attachment_iqn('iqn.x:', sessions_case.SHADOW,
                                           'i', A)
        for down, away in (((), False), ((sessions_case.IQN,), True),
                           ((IQN,), True), ((other,), False)):
            self.disks({IQN: ['/dev/sda'], sessions_case.IQN: ['/dev/sdb'],
                        other: ['/dev/sdc']})
            self.called.iscsiadm.is_down.side_effect = down.__contains__
            self.assertIs(away, self.sessions.is_down(sessions_case.MOVE))

    def test_ended_only_if_its_home_does_not_answer(self):
        """Else what was written there may still be on its way."""
        for down in (False, True):
            self.disks(*[{IQN: ['/dev/sda']}] * 2)
            self.called.iscsiadm.is_down.return_value = down
            self.assertIs(down, self.sessions.end_remote_if_down(V1))
            self.assertIs(down, self.called.iscsiadm.end_session.called)
        self.called.iscsiadm.is_down.assert_called_with(IQN)

    def test_at_boot(self):
        self.called.iscsiadm.recorded.return_value = [IQN, sessions_case.IQN]
        self.assertEqual({V1: IQN}, self.sessions.recorded_remotes())
        self.called.iscsiadm.known_portal.return_value = sessions_case.PORTAL
        self.disks({}, {IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda',
                         self.sessions.remote_from_records(V1, IQN))
        self.called.iscsiadm.login.assert_called_once_with(IQN, 30)
        # A guest waits for a home that is away, and gets no error.
        self.assertIn(sessions_case.SET_TIMEOUT, self.called.mock_calls)
        self.disks({IQN: ['/dev/sda']})
        self.called.block.identity.return_value = GIB, 'x'
        self.assertRaises(exceptions.WrongSource,
                          self.sessions.remote_from_records, V1, IQN)


@ddt.ddt
class StackTest(storage_case.Case):

    H = names.handle(V1)

    def setUp(self):
        super().setUp()
        self.ran.block.number.return_value = '8:16'
        self.ran.block.size.return_value = GIB

    def handle(self, below, **more):
        return storage_case.device(
            self.H, '253:7', '0 2097152 linear %s 0' % below, **more)

    def put(self):
        return self.handles.ensure_handle_on_disk(V1, '/dev/sdb')

    def test_new(self):
        self.devices()
        self.assertTrue(self.put())
        self.assertIn(mock.call.dmsetup.create(
            self.H, names.device_uuid(self.H), '0 2097152 linear 8:16 0',
            30, False, ('8:16', V1)), self.ran.mock_calls)

    def test_there(self):
        self.devices(self.handle('8:16'))
        self.assertFalse(self.put())
        self.ran.dmsetup.swap_table.assert_not_called()

    def test_from_another_backing_or_longer(self):
        for handle, size in ((self.handle('253:5'), GIB),
                             (self.handle('8:0'), GIB),
                             (self.handle('8:16', suspended=True), GIB),
                             (self.handle('8:16'), 2 * GIB)):
            self.devices(handle)
            self.ran.block.size.return_value = size
            self.ran.dmsetup.swap_table.reset_mock()
            self.assertTrue(self.put())
            self.ran.dmsetup.swap_table.assert_called_once_with(
                self.H, '0 %d linear 8:16 0' % (size // 512), 30,
                ('8:16', V1))

    def test_longer_than_the_disk(self):
        """Whoever has it open keeps the length; it is not cut off."""
        for opened, sectors in ((1, 4194304), (0, 2097152)):
            self.devices(storage_case.device(
                self.H, '253:7', '0 4194304 linear 253:5 0', opened=opened))
            self.put()
            self.ran.dmsetup.swap_table.assert_called_with(
                self.H, '0 %d linear 8:16 0' % sectors, 30, ('8:16', V1))

    def test_no_disk(self):
        self.devices(self.handle('8:16'))
        self.ran.block.number.return_value = ''
        self.assertRaises(exceptions.WrongDevice, self.put)

    def test_onto_the_clone(self):
        clone = names.clone_path(storage_case.SHADOW)
        for opened, length, table in (
                (1, GIB, '0 2097152 linear %s 0' % clone),
                # Nobody has seen what it had more.
                (0, 2 * GIB, '0 2097152 linear %s 0' % clone),
                (1, 2 * GIB, '0 2097152 linear %s 0\n2097152 2097152 linear '
                 '/dev/g/volume-%s 2097152' % (clone, storage_case.SHADOW))):
            self.devices(storage_case.device(
                self.H, '253:7', '0 %d linear 8:16 0' % (length // 512),
                opened=opened), self.reads('8:16'))
            self.handles.switch_to_clone(storage_case.MOVE, '/dev/sdc')
            self.ran.dmsetup.swap_flushed.assert_called_with(
                self.H, table, '/dev/sdc', 30)

    def reads(self, source):
        """A clone, and which disk it reads."""
        return storage_case.device(
            names.clone(storage_case.SHADOW), '253:6',
            '0 1 clone 253:4 253:5 ' + source)

    def test_flushed(self):
        self.devices(self.reads('8:16'))
        self.clones.flush_disk(storage_case.MOVE, '/dev/sdc')
        self.ran.block.flush.assert_called_once_with('/dev/sdc', 30)

    @ddt.data('8:32', None)
    def test_never_another_disk(self, source):
        """What the clone reads was verified; a name may be another's."""
        handle = self.handle('8:16', opened=1)
        self.devices(handle, *[self.reads(source)] if source else [])
        for act in (self.clones.flush_disk, self.handles.switch_to_clone):
            self.assertRaises(exceptions.WrongDevice, act, storage_case.MOVE,
                              '/dev/sdc')
        self.ran.block.flush.assert_not_called()
        self.ran.dmsetup.swap_flushed.assert_not_called()

    def test_handle_that_has_gone(self):
        self.devices(self.reads('8:16'))
        self.assertRaises(
            exceptions.MissingData, self.handles.switch_to_clone,
            storage_case.MOVE, '/dev/sdc')
        self.ran.dmsetup.swap_flushed.assert_not_called()

    def test_on_record_that_the_clone_may_be_written(self):
        meta = names.metadata_lv(storage_case.SHADOW)
        for tags, expected in (((names.DEFERRED,), True),
                               ((names.SWAPPING,), True), ((), False)):
            self.lvs(storage_case.lv(meta, tags=frozenset(tags)))
            self.assertIs(expected, self.clones.begin_swap(storage_case.MOVE))
        self.lvs()
        self.assertFalse(self.clones.begin_swap(storage_case.MOVE))
        self.assertRan(
            mock.call.lvm.retag('fast', meta, [names.SWAPPING],
                                [names.DEFERRED], 30))

    def test_on_record_that_it_was_swapped(self):
        self.clones.end_swap(storage_case.MOVE)
        self.assertRan(mock.call.lvm.remove_tag(
            'fast', names.metadata_lv(storage_case.SHADOW), names.SWAPPING,
            30))

    def test_marked_away(self):
        self.lvm.mark('volume-' + V1, names.AWAY)
        self.assertRan(
            mock.call.lvm.add_tag('g', 'volume-' + V1, names.AWAY, 30))


@ddt.ddt
class EndsTest(Passed):

    def is_ended(self):
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.remotes, self.b.devices])

    def shelve(self, **since):
        """Detached while its node was away; shelved for weeks since.

        All that while it has an attachment without a connector.
        """
        self.b.opened.clear()
        self.b.dead = True
        self.disconnect(self.a, self.connector)
        self.attach('reserved', None)
        self.b.dead = False
        reserved, = self.volume.volume_attachment
        vars(reserved).update(since)

    def test_shelved(self):
        self.shelve(created_at=timeutils.utcnow() - datetime.timedelta(
            seconds=remote_attachment.ATTACHING + 60), updated_at=None)
        self.world.reconcile()
        self.assertNotEqual({}, self.b.remotes)  # it may have just begun
        self.b.node.sessions._inner.begun.clear()
        self.world.reconcile()
        self.is_ended()

    def test_shelved_while_another_has_just_connected(self):
        old = timeutils.utcnow() - datetime.timedelta(days=9)
        self.shelve(created_at=old, updated_at=None)
        other = attach_case.attachment('x')
        vars(other).update(
            connection_info={'driver_volume_type': 'iscsi'},
            created_at=timeutils.utcnow(), updated_at=None)
        self.volume.volume_attachment.append(other)
        self.b.node.sessions._inner.begun.clear()
        self.world.reconcile()
        self.is_ended()

    @ddt.data(None, {})
    def test_host_recorded_before_its_connection(self, connection_info):
        """Cinder's manager records the connector, later its API the rest."""
        self.b.opened.clear()
        self.attached.attach_status = 'attaching'
        self.attached.connection_info = connection_info
        self.world.reconcile()
        self.assertNotEqual({}, self.b.remotes)
        self.assertIn(self.handle, self.b.devices)

    def test_attached_a_moment_ago(self):
        """Nobody knows yet where."""
        old = timeutils.utcnow() - datetime.timedelta(days=9)
        self.shelve(created_at=old, updated_at=timeutils.utcnow())
        self.b.node.sessions._inner.begun.clear()
        self.world.reconcile()
        self.assertNotEqual({}, self.b.remotes)

    def test_attached_a_moment_ago_where_the_clock_is_wrong(self):
        """The service starts again before Cinder records the host."""
        now = timeutils.utcnow()
        self.world.database_time = lambda: now
        self.shelve(created_at=now, updated_at=None)
        self.b.node.sessions._inner.begun.clear()
        with mock.patch.object(
                timeutils, 'utcnow', lambda *_args: now + datetime.timedelta(
                    seconds=remote_attachment.ATTACHING)):
            self.world.reconcile()
        self.assertNotEqual({}, self.b.remotes)

    def test_it_is_the_same_volume(self):
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_detached(self):
        self.b.opened.clear()
        self.disconnect(self.a, self.connector)
        self.is_ended()

    def test_another_host_is_detached(self):
        """One without the backend, late."""
        self.b.opened.clear()
        self.disconnect(self.a, attach_case.ELSEWHERE)
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.assertEqual({self.volume.id}, self.b.remote_handles())

    def test_detached_there_before_it_is_not_exported_any_more(self):
        """What is written at a late close still reaches its home."""
        self.b.opened.clear()
        left, withdraw = [], iscsi.SimExports.withdraw_volume

        def withdrawn(own, *what):
            left.append(self.b.remote_handles())
            return withdraw(own, *what)
        with mock.patch.object(iscsi.SimExports, 'withdraw_volume', withdrawn):
            self.disconnect(self.a, self.connector)
        self.assertEqual([set()], left)

    def test_asked_for_again_in_vain(self):
        """Whoever has it keeps it: only the second request fails."""
        def fails(*_args):
            raise exceptions.PeerUnreachable(
                host='b@l', method='begin_remote', seconds=1)
        self.a.node.peers.begin_remote = fails
        self.assertRaises(exceptions.PeerUnreachable, self.connect,
                          self.connector)
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_detached_by_force_the_nodes_look_clears_up(self):
        self.b.opened.clear()
        self.disconnect(self.a, None)
        self.assertEqual(set(), self.a.remote)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.world.settle()
        self.is_ended()

    def test_detached_while_the_node_is_down(self):
        """Nothing is written from there any more."""
        self.b.dead = True
        self.disconnect(self.a, self.connector)
        self.assertEqual(set(), self.a.remote)

    def test_detached_while_it_is_still_open(self):
        """The export goes; the handle, once it is closed."""
        self.disconnect(self.a, self.connector)
        self.assertEqual(set(), self.a.remote)
        self.assertIn(self.handle, self.b.devices)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.world.reconcile()
        self.assertIn(self.handle, self.b.devices)
        self.b.opened.clear()
        self.world.settle()
        self.is_ended()

    def test_both_ends_come_back_after_a_power_cut(self):
        for node in (self.a, self.b):
            node.stop(power=True)
        self.world.recover()
        self.b.opened.add(self.handle)
        self.b.write(self.volume.id, 0, 'again')
        self.assertEqual('again', self.a.read(self.volume.id, 0))

    def test_extended(self):
        self.assertEqual(A, worlds.extend(self.a, self.volume, 2))
        self.assertEqual({'below': 'disk of ' + self.volume.id,
                          'regions': 8}, self.b.devices[self.handle])
        self.b.write(self.volume.id, 7, 'end')
        self.assertEqual('end', self.a.read(self.volume.id, 7))

    def test_what_is_left_of_it_is_marked(self):
        self.b.disk.create('volume-old', self.volume.id, [worlds.EMPTY] * 4)
        with self.b.lock(self.volume.id):
            remote_attachment.begin(self.b.node, self.volume.id,
                                    self.attached.connection_info)
        self.assertIn(names.AWAY, self.b.disk.tags['volume-old'])

    def test_not_at_its_home(self):
        for node, volume_id in ((self.a, self.volume.id), (self.b, V1)):
            with node.lock(volume_id):
                self.assertRaises(
                    exceptions.StaleMove, remote_attachment.begin, node.node,
                    volume_id, self.attached.connection_info)

    def test_not_what_is_open_on_another_backing(self):
        self.b.disk.lvs['x'] = []
        self.b.devices[self.handle] = {'below': 'x'}
        with self.b.lock(self.volume.id):
            self.assertRaises(
                exceptions.SourceBusy, remote_attachment.begin, self.b.node,
                self.volume.id, self.attached.connection_info)
        self.assertEqual({'below': 'x'}, self.b.devices[self.handle])

    def test_not_what_an_ended_connection_has_open(self):
        """An evacuated guest may still run here, and would go on writing."""
        self.volume.volume_attachment = []
        before = self.b.devices[self.handle]
        with self.b.lock(self.volume.id):
            self.assertRaises(
                exceptions.SourceBusy, remote_attachment.begin, self.b.node,
                self.volume.id, self.attached.connection_info)
        self.assertEqual(before, self.b.devices[self.handle])

    def test_request_to_end_an_earlier_one_comes_late(self):
        """Whoever sent it has given up, and the volume is attached anew."""
        def end(user):
            self.a.node.peers.end_remote_attachments(
                self.b.host, self.volume.id, user)
        before = self.attached.connection_info
        self.b.opened.clear()
        with self.b.lock(self.volume.id):
            remote_attachment.begin(
                self.b.node, self.volume.id,
                self.a.node.exports.export_volume(
                    self.volume.id, 'iqn.b', 'CHAP new secret'))
        end(before['auth_username'])
        self.assertEqual({self.volume.id}, self.b.remote_handles())
        end('new')
        self.assertEqual(set(), self.b.remote_handles())
        end('new')  # a repeated one finds nothing

    def test_session_of_whoever_has_it_open_is_not_ended(self):
        """Though the home should name another secret by now."""
        told = dict(self.attached.connection_info, auth_username='new')
        with self.b.lock(self.volume.id):
            remote_attachment.begin(self.b.node, self.volume.id, told)
        self.assertEqual({self.volume.id}, self.b.remote_handles())
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))
        self.b.opened.clear()  # nobody's: it logs in anew, in vain here
        with self.b.lock(self.volume.id):
            self.assertRaises(exceptions.LoginFailed, remote_attachment.begin,
                              self.b.node, self.volume.id,
                              dict(told, auth_username='newer'))

    def test_sessions_with_earlier_homes_end(self):
        with mock.patch.object(iscsi.SimSessions, 'end_other_remotes',
                               autospec=True) as end:
            with self.b.lock(self.volume.id):
                remote_attachment.begin(self.b.node, self.volume.id,
                                        self.attached.connection_info)
        end.assert_called_once_with(
            mock.ANY, self.volume.id,
            self.attached.connection_info['target_iqn'])

    def test_earlier_leftovers_go_first(self):
        """A move to this node that failed; it could not clear up then."""
        self.b.opened.clear()
        self.b.stop(power=True)
        self.b.dead = False
        move = self.a.node.moves.begin(
            self.volume, 'b@l#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.b.disk.create(
            move.destination_lv, self.volume.id, [worlds.EMPTY] * 4)
        self.a.node.moves.advance(move, Event.FAILED)
        with self.b.lock(self.volume.id):
            remote_attachment.begin(self.b.node, self.volume.id,
                                    self.attached.connection_info)
        self.assertNotIn(move.destination_lv, self.b.lvs)
        self.assertEqual({}, self.world.move_records)
        self.assertEqual({self.volume.id}, self.b.remote_handles())

    def test_given_up_although_its_home_is_gone(self):
        """What waits for that home keeps the handle open, until it fails."""
        self.a.gone = True
        self.a.stop(power=True)
        self.volume.volume_attachment = []
        remote_attachment.sweep(self.b.node)
        self.assertEqual({}, self.b.remotes)
        self.b.opened.clear()  # what waited has failed
        remote_attachment.sweep(self.b.node)
        self.assertEqual({}, self.b.devices)

    def test_one_that_fails_does_not_stop_the_others(self):
        self.a.remote.clear()
        self.b.remotes.clear()
        self.b.remotes[V1] = A
        logged = self.useFixture(fixtures.FakeLogger())
        self.assertFalse(remote_attachment.sweep(self.b.node))
        self.assertNotIn(V1, self.b.remotes)
        self.assertIn(self.volume.id, logged.output)

    def test_what_fails_is_tried_again_soon(self):
        """A home is back later than the node of the guest."""
        self.b.stop(power=True)
        self.b.dead = False
        self.a.dead = True
        self.b.reconciler.reconcile_node()
        self.assertEqual({}, self.b.remotes)
        self.a.dead = False
        self.b.reconciler.reconcile_moves()
        self.assertEqual({self.volume.id: A}, self.b.remotes)
        with mock.patch.object(remote_attachment, 'sweep') as sweep:
            self.b.reconciler.reconcile_moves()
        sweep.assert_not_called()

    def test_what_nobody_could_look_at_is_looked_at_soon(self):
        """Whoever has the lock may fail at it."""
        self.b.stop(power=True)
        self.b.dead = False
        with self.b.lock(self.volume.id):
            self.b.reconciler.reconcile_node()
        self.assertEqual({}, self.b.remotes)
        self.b.reconciler.reconcile_moves()
        self.assertEqual({self.volume.id: A}, self.b.remotes)

    def test_a_secret_is_not_shown(self):
        connection = volume_attachments.connection_of(self.attached)
        self.assertTrue(connection.is_remote)
        self.assertNotIn(self.attached.connection_info['auth_password'],
                         repr(connection))


class CheckRemoteOnlyTest(attach_case.Base):

    def test_attachments_are_of_the_present_row(self):
        """The value of the flow is from before the calls of the peer."""
        before, now = (mock.Mock(id=V1, iqn=iqn) for iqn in ('old', 'new'))
        node = specs.node()
        node.volumes.volume.return_value = now
        node.exports.remote.return_value = {V1: {'new'}}
        for name, value in (
                ('destination_of', lambda _node, _volume: 'b@l'),
                ('devices.close_if_idle', lambda _node, _volume_id: True),
                ('survey.Survey.users', lambda _this, _volume_id: 1),
                ('volume_attachments.connections', lambda each: [each])):
            self.useFixture(fixtures.MonkeyPatch(
                'cinder_localclone.moves.remote_attachment.' + name, value))
        step = remote_attachment.CheckRemoteOnly(node)
        step.execute(before, 'b@l')
        node.exports.remote.return_value = {V1: {'old'}}
        self.assertRaises(exceptions.SourceBusy, step.execute, before, 'b@l')


class GivenBackTest(attach_case.Base):
    """A live move to B, which may come back to the LV that is at A."""

    def test_handle_stays_on_the_lv(self):
        """Whatever an attachment still says of a pass-through of before."""
        self.attach('in-use', 'a', None)
        self.connect({'host': 'b', 'initiator': 'iqn.b'})
        self.assertIs(state.Phase.STARTING, self.move().phase)
        before, _after = self.volume.volume_attachment
        before.connector = {'host': 'a', 'initiator': 'iqn.a'}
        before.connection_info = dict(
            driver_volume_type='local', target_iqn='iqn.a',
            target_portal=self.b.node.exports.portal, auth_method='CHAP',
            auth_username='user', auth_password='secret')
        self.b.remote.add((self.volume.id, 'iqn.a'))
        remote_attachment.sweep(self.a.node)
        self.assertEqual({'below': self.move().source_lv},
                         self.a.devices[self.handle])
        self.assertEqual({}, self.a.remotes)


@ddt.ddt
class TwoAttachmentsTest(remote_case.Passed):

    def check_kept(self, initiator):
        self.assertEqual({(self.volume.id, initiator)}, self.a.remote)

    def test_the_guest_keeps_what_is_passed_through(self):
        """Its disk is gone for ten minutes, and longer than its time limits.

        One instance may have several attachments of one host:

        - a live migration to B fails so that Nova leaves the attachment of B
          (the compute service died), and the next one succeeds; in the end
          an operator deletes the one that is not used;
        - ``nova-manage volume_attachment refresh`` of an instance that is
          shut off makes a new one, and then deletes the first.

        Cinder calls terminate_connection with the host's connector, before
        it deletes the attachment. The home then withdraws the export under
        the guest, has B end its side (which B refuses if the guest runs), and
        offers it to nobody for the next ten minutes
        (:meth:`.iscsi_target.Exports.export_again`), though an attachment
        names it.

        By design: as other drivers do, nothing is ended for a host that
        another attachment has connected.
        """
        other = copy.copy(self.attached)
        self.volume.volume_attachment.append(other)
        self.disconnect(self.a, self.connector)
        self.check_kept('iqn.b')
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_shut_off(self):
        """As above: its instance can't be started afterwards."""
        self.b.opened.clear()
        self.volume.volume_attachment.append(copy.copy(self.attached))
        self.disconnect(self.a, self.connector)
        self.assertIn(self.handle, self.b.devices)
        self.check_kept('iqn.b')

    def test_another_node_with_the_same_iscsi_name(self):
        """It keeps the export: its guest uses it. B is another node."""
        self.b.opened.clear()
        other = copy.copy(self.attached)
        other.connector = dict(self.connector, host='c')
        self.volume.volume_attachment.append(other)
        self.disconnect(self.a, self.connector)
        self.check_kept('iqn.b')
        self.assertEqual([{}, {}], [self.b.remotes, self.b.devices])

    def test_a_node_with_another_iscsi_name_since(self):
        """It is the node that it was, and has the volume still."""
        self.b.opened.clear()
        other = copy.copy(self.attached)
        other.connector = dict(self.connector, initiator='iqn.new')
        self.volume.volume_attachment.append(other)
        self.disconnect(self.a, other.connector)
        self.assertIn(self.handle, self.b.devices)
        self.assertIn(self.volume.id, self.b.remotes)

    def attach_elsewhere(self):
        """A host without the backend has it, and nobody else."""
        self.volume.volume_attachment = [
            attach_case.attachment(None)]
        self.b.opened.clear()
        self.disconnect(self.a, self.connector)
        properties = self.connect(attach_case.ELSEWHERE)
        attached, = self.volume.volume_attachment
        attached.connector = attach_case.ELSEWHERE
        attached.connection_info = dict(
            properties['data'], driver_volume_type='iscsi')
        return properties

    def test_on_a_host_without_the_backend(self):
        """The same over plain iSCSI."""
        self.attach_elsewhere()
        attached, = self.volume.volume_attachment
        self.volume.volume_attachment.append(copy.copy(attached))
        self.disconnect(self.a, attach_case.ELSEWHERE)
        self.check_kept('iqn.x')

    def test_one_export_has_one_secret(self):
        """Else each look serves it by the one, then by the other.

        The guest's session ends each time, and comes back only if the last
        one is its own.
        """
        first = self.attach_elsewhere()
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        self.assertEqual(first, self.connect(attach_case.ELSEWHERE))
        other = dict(attach_case.ELSEWHERE, initiator='iqn.y')
        self.assertNotEqual(first['data']['auth_password'],
                            self.connect(other)['data']['auth_password'])

    def test_the_last_one_ends_it(self):
        self.b.opened.clear()
        self.volume.volume_attachment.append(copy.copy(self.attached))
        self.disconnect(self.a, self.connector)
        self.volume.volume_attachment.pop()
        self.disconnect(self.a, self.connector)
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.remotes, self.b.devices])


class DetachedByForceTest(remote_case.Passed):

    def test_a_process_that_waits_for_what_is_exported_no_more(self):
        """An instance can't be deleted, its process not killed, for a day.

        1. A volume is passed through to a guest on B. It is detached by
           force, or its home is forgotten or lost; or its instance is
           destroyed while the home does not answer.
        2. Its home serves it no more. I/O of the guest that is in flight
           waits for the session, so its process can't end, and keeps the
           handle open.
        3. :func:`.remote_attachment.end` (from each look at B) asks for the
        handle to
           be closed first, so it never logs out, which alone would end
           that.

        By design: as for a source that does not answer
        (:meth:`.iscsi_initiator.Sessions.end_if_down`,
        :func:`.delete._wait_until_closed`) the session of what no attachment
            names goes first if it is down.
        """
        self.useFixture(remote_guest_case.Kernel(
            self.b, self.handle, self.volume.id))
        self.disconnect(self.a, None)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        for _look in range(3):
            self.world.reconcile()
        self.assertEqual([{}, {}], [self.b.remotes, self.b.devices])


class ReopenedTest(remote_case.Passed):

    def test_what_a_guest_has_open_that_lost_the_volume(self):
        """Two guests would write to one volume.

        1. A volume stays at A (here: in a group; as well: it is copied to
           A), and is passed through to a guest on B.
        2. An administrator detaches it by force; that guest goes on to run,
           and has the handle on B open. Its writes fail by now.
        3. Another instance on B attaches the volume. B logs in to A again,
           under the same iSCSI name, and puts the handle, which is open, on
           that disk.

        Then the first guest writes into the volume of the second: so far
        :func:`.remote_attachment.begin` lets through any handle that is open
            on a disk
        of a home. A move to B refuses the same (SourceBusy).

        By design: open is only right where an attachment says that this node
        passes the volume through, as it does for every look and for an
        extension.
        """
        self.disconnect(self.a, None)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.world.reconcile()
        self.assertIn(self.handle, self.b.opened)
        self.assertRaises(IOError, self.b.write, self.volume.id, 1, 'lost')
        self.volume.volume_attachment = [
            attach_case.attachment(None, 'another vm')]
        self.volume.status = 'reserved'
        self.assertRaises(exceptions.SourceBusy, self.connect, self.connector)
        self.assertEqual(set(), self.a.remote)
        self.assertRaises(IOError, self.b.write, self.volume.id, 1, 'mixed')
