# SPDX-License-Identifier: Apache-2.0
"""Sessions with the sources of moves: made, verified, ended."""

import dataclasses
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.moves import remote_attachment
from cinder_localclone.storage import iscsi_initiator
from tests.helpers import sessions_case
from tests.helpers.sessions_case import Case
from tests.helpers.sessions_case import GIB
from tests.helpers.sessions_case import IQN
from tests.helpers.sessions_case import MOVE
from tests.helpers.sessions_case import PORTAL
from tests.helpers.sessions_case import SET_TIMEOUT
from tests.helpers.sessions_case import V1
from tests import world as worlds


class Clock:

    now = 100.0

    def stand_still(self, seconds):
        self.now += seconds
        raise TimeoutError('timed out')


@ddt.ddt
class AttachTest(Case):

    def attach(self):
        return self.sessions.attach(MOVE)

    def test_recorded_before_it_is_logged_in(self):
        self.assertEqual('/dev/sda', self.attach())
        self.assertEqual(['connect', 'record_target', 'login',
                          'identity', 'set_recovery_timeout', 'bring_back'],
                         self.names())
        self.called.connect.assert_called_once_with(
            ('192.0.2.11', 3260), iscsi_initiator.PORTAL_TIMEOUT)
        self.called.iscsiadm.record_target.assert_called_once_with(
            IQN, PORTAL, 'CHAP user secret', 30)
        self.called.iscsiadm.login.assert_called_once_with(IQN, 30)
        self.called.block.identity.assert_called_once_with('/dev/sda')
        self.assertIn(SET_TIMEOUT, self.called.mock_calls)

    @ddt.data(('[2001:db8::1]', '2001:db8::1'), ('X', 'X'))
    @ddt.unpack
    def test_other_addresses(self, told, host):
        self.sessions.attach(dataclasses.replace(
            MOVE, location='%s:3260,1 %s 0' % (told, IQN)))
        self.assertEqual((host, 3260), self.called.connect.call_args.args[0])
        self.called.connect.return_value.close.assert_called_once_with()

    def test_session_that_exists_is_used_and_verified(self):
        self.disks({IQN: ['/dev/sda'], 'iqn.other': ['/dev/sdb']})
        self.assertEqual('/dev/sda', self.attach())
        self.assertEqual(['identity', 'set_recovery_timeout', 'bring_back'],
                         self.names())
        self.assertIn(SET_TIMEOUT, self.called.mock_calls)

    def moved_away(self, down):
        """The source is at another portal than the session is with."""
        self.disks(*[{IQN: ['/dev/sdb']}] * 9)
        self.called.iscsiadm.known_portal.return_value = '192.0.2.99:3260'
        self.called.iscsiadm.is_down.return_value = down

    def test_a_session_with_where_the_source_was_is_ended(self):
        self.moved_away(down=True)
        self.assertEqual('/dev/sda', self.attach())
        self.assertEqual(['is_down', 'connect', 'end_session', 'connect',
                          'record_target', 'login', 'identity',
                          'set_recovery_timeout', 'bring_back'],
                         self.names())
        self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)
        self.called.iscsiadm.record_target.assert_called_once_with(
            IQN, PORTAL, 'CHAP user secret', 30)
        # Nobody asks again where it is.
        self.called.iscsiadm.known_portal.reset_mock()
        self.disks({IQN: ['/dev/sda']})
        self.attach()
        self.called.iscsiadm.known_portal.assert_not_called()

    def test_but_not_while_it_works(self):
        self.moved_away(down=False)
        self.assertEqual('/dev/sdb', self.attach())
        self.called.iscsiadm.end_session.assert_not_called()

    def test_nor_while_nobody_answers_where_the_source_is(self):
        self.moved_away(down=True)
        self.portal_is_silent()
        self.assertRaises(exceptions.SourceUnreachable, self.attach)
        self.called.iscsiadm.end_session.assert_not_called()

    def test_nor_without_a_record_of_where_it_was(self):
        self.moved_away(down=True)
        self.called.iscsiadm.known_portal.return_value = ''
        self.assertEqual('/dev/sdb', self.attach())
        self.called.iscsiadm.end_session.assert_not_called()

    def test_session_without_a_disk_is_none(self):
        self.disks({IQN: []})
        self.attach()
        self.assertIn('login', self.names())

    def test_silent_portal(self):
        self.portal_is_silent()
        error = self.assertRaises(exceptions.SourceUnreachable, self.attach)
        self.assertIn('timed out', str(error))
        self.assertIn(PORTAL, str(error))
        self.assertEqual(['connect'], self.names())

    def test_silent_portal_is_not_waited_for_again_at_once(self):
        clock = self.clock()
        self.called.connect.side_effect = lambda *_to: clock.stand_still(4)
        for remotes, waited in ((0, 1), (2, 1), (1.9, 1), (0.1, 2), (4, 3)):
            clock.now += remotes
            error = self.assertRaises(
                exceptions.SourceUnreachable, self.attach)
            self.assertIn('timed out', str(error))
            self.assertEqual(waited, self.called.connect.call_count, remotes)
        # Another one is asked.
        self.called.connect.side_effect = None
        self.sessions.attach(dataclasses.replace(
            MOVE, location='192.0.2.12:3260,1 %s 0' % IQN))

    def test_portal_that_refuses_at_once_is_asked_each_time(self):
        self.clock()
        self.called.connect.side_effect = ConnectionRefusedError('refused')
        self.assertRaises(exceptions.SourceUnreachable, self.attach)
        self.called.connect.side_effect = None
        self.attach()

    def clock(self):
        clock = Clock()
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator.time, 'monotonic', lambda: clock.now))
        return clock

    def test_login_that_fails(self):
        self.called.iscsiadm.login.side_effect = exceptions.CommandFailed(
            command='iscsiadm', code=24, stderr='authorization')
        error = self.assertRaises(exceptions.LoginFailed, self.attach)
        for part in (IQN, PORTAL, 'authorization'):
            self.assertIn(part, str(error))
        self.assertEqual(2, self.called.iscsiadm.login.call_count)
        self.assertNotIn('identity', self.names())

    def test_login_that_fails_once(self):
        self.called.iscsiadm.login.side_effect = [
            exceptions.CommandFailed(command='c', code=8, stderr=''), None]
        self.disks({}, {IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda', self.attach())

    def test_login_that_hangs(self):
        self.called.iscsiadm.login.side_effect = exceptions.CommandTimeout(
            command='iscsiadm', seconds=30)
        self.assertRaises(exceptions.CommandTimeout, self.attach)
        self.called.iscsiadm.login.assert_called_once_with(IQN, 30)

    def test_disk_that_never_appears(self):
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'DISK_TIMEOUT', 0.05))
        self.called.iscsiadm.login.side_effect = None
        self.assertRaises(exceptions.LoginFailed, self.attach)
        self.assertNotIn('identity', self.names())

    @ddt.data(*Case.WRONG)
    def test_another_disk_is_logged_out(self, identity):
        self.called.block.identity.return_value = identity
        error = self.assertRaises(exceptions.WrongSource, self.attach)
        self.assertIn('/dev/sda', str(error))
        self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)
        self.assertNotIn('set_recovery_timeout', self.names())

    @ddt.data(*Case.WRONG)
    def test_session_under_a_clone_is_not_logged_out(self, identity):
        """A guest is above it, and sysfs may be read at an odd moment."""
        self.called.block.identity.return_value = identity
        self.disks({IQN: ['/dev/sda']})
        self.assertRaises(exceptions.WrongSource, self.attach)
        self.assertEqual(['identity'], self.names())

    @ddt.data(*Case.UNKNOWN)
    def test_disk_that_has_just_appeared(self, identity):
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'IDENTITY_TIMEOUT', 10))
        self.called.block.identity.side_effect = [identity] * 3 + [(GIB, V1)]
        self.assertEqual('/dev/sda', self.attach())

    @ddt.data(*Case.UNKNOWN)
    def test_what_is_not_known_yet_is_not_wrong(self, identity):
        self.called.block.identity.return_value = identity
        for there in ({}, {IQN: ['/dev/sda']}):
            self.disks(there)
            self.assertRaises(exceptions.LoginFailed, self.attach)
        self.called.iscsiadm.end_session.assert_not_called()
        self.called.block.identity.return_value = GIB, V1
        self.disks({IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda', self.attach())

    @ddt.data(True, False)
    def test_disk_that_is_offline_is_brought_back(self, was):
        self.called.iscsiadm.bring_back.return_value = was
        with mock.patch.object(iscsi_initiator, 'LOG') as log:
            self.disks({IQN: ['/dev/sda']})
            self.attach()
        self.called.iscsiadm.bring_back.assert_called_once_with(
            '/dev/sda', iscsi_initiator.SCAN_TIMEOUT)
        self.assertEqual(was, log.warning.called)


@ddt.ddt
class LoginFromRecordsTest(Case):

    looks_up = True
    """At boot: neither the database nor its secrets are there."""

    def setUp(self):
        super().setUp()
        self.called.iscsiadm.known_portal.return_value = PORTAL
        self.called.iscsiadm.login.side_effect = None
        self.move = dataclasses.replace(
            MOVE, location='local %s 0' % IQN, auth=None)

    def login(self):
        return self.sessions.login_from_records(self.move)

    def test_disk_is_looked_for_often(self):
        self.disks({}, {}, {'iqn': []}, {IQN: ['/dev/sda']})
        self.login()
        self.assertIn(mock.call(0.05), self.wait.mock_calls)

    def test_disk_that_takes_its_time(self):
        self.disks({}, {}, {IQN: []}, {IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda', self.login())
        self.assertEqual(['known_portal', 'connect', 'login', 'identity',
                          'set_recovery_timeout', 'bring_back'],
                         self.names())
        self.called.iscsiadm.known_portal.assert_called_once_with(IQN, 30)
        self.called.iscsiadm.login.assert_called_once_with(IQN, 30)
        self.assertIn(SET_TIMEOUT, self.called.mock_calls)
        self.wait.assert_called_with(0.2)

    def test_disk_is_there_once_it_is_logged_in(self):
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'DISK_TIMEOUT', 0.05))
        self.called.iscsiadm.login.side_effect = lambda *_all: self.disks(
            {IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda', self.login())

    def test_session_that_exists(self):
        self.disks({IQN: ['/dev/sda']})
        self.assertEqual('/dev/sda', self.login())
        self.assertEqual(['identity', 'set_recovery_timeout', 'bring_back'],
                         self.names())

    def test_unknown_source(self):
        self.called.iscsiadm.known_portal.return_value = ''
        error = self.assertRaises(exceptions.NotPossible, self.login)
        self.assertIn(IQN, str(error))
        self.assertEqual(['known_portal'], self.names())

    def test_silent_portal(self):
        self.portal_is_silent()
        self.assertRaises(exceptions.SourceUnreachable, self.login)
        self.assertEqual(['known_portal', 'connect'], self.names())

    def test_disk_that_never_appears(self):
        self.useFixture(fixtures.MockPatchObject(
            iscsi_initiator, 'DISK_TIMEOUT', 0.05))
        error = self.assertRaises(exceptions.LoginFailed, self.login)
        self.assertIn('no disk appeared', str(error))
        self.assertNotIn('identity', self.names())

    @ddt.data(*Case.WRONG)
    def test_another_disk(self, identity):
        self.called.block.identity.return_value = identity
        for disks in (({},) * 2 + ({IQN: ['/dev/sda']},),
                      ({IQN: ['/dev/sda']},)):
            self.disks(*disks)
            self.assertRaises(exceptions.WrongSource, self.login)
        self.assertNotIn('set_recovery_timeout', self.names())


class OthersTest(Case):

    def test_disk(self):
        self.disks({IQN: ['/dev/sda']}, {'iqn.other': ['/dev/sdb']},
                   {IQN: []})
        self.assertEqual(['/dev/sda', None, None], [
            self.sessions.disk(MOVE) for _time in range(3)])

    def test_detach(self):
        self.sessions.detach(MOVE)
        self.assertEqual([mock.call.iscsiadm.end_session(IQN, 30)],
                         self.called.mock_calls)

    def test_end_if_down(self):
        for down in (True, False):
            self.called.iscsiadm.is_down.return_value = down
            self.assertIs(down, self.sessions.end_if_down(MOVE))
        self.called.iscsiadm.is_down.assert_called_with(IQN)
        self.called.iscsiadm.end_session.assert_called_once_with(IQN, 30)

    def test_initiator(self):
        self.called.iscsiadm.initiator_name.return_value = 'iqn.this'
        self.assertEqual('iqn.this', self.sessions.initiator())


class RecordLeftTest(sessions_case.Case):

    def test_of_a_volume_that_was_detached_meanwhile(self):
        """Each boot tries to log in to what is not served to this node.

        1. A volume is passed through on C; that node dies. Its instance is
           evacuated: the volume is detached, C does not answer, its home
           withdraws the export.
        2. C boots. The records of its initiator, which outlive that, still
           have the target; nobody lets it in any more, so there is neither
           a session nor a handle.
        3. :func:`.remote_attachment.sweep` sees what attachments name,
        sessions, and
           handles, but no records.

        So it stays for good, with its secret: each boot of C tries that
        login (:func:`.boot._passed`), waits for homes that are down, and
        reports a volume that was not restored. The same after a login that
        failed as the volume was attached.

        By design: a record without a session is something that is passed
        through as well, and ends as a session does.
        """
        world = worlds.World(hosts=('a@l', 'b@l'))
        volume = world.create_volume('a@l')
        node = world.nodes['b@l'].node
        object.__setattr__(node, 'sessions', self.sessions)
        iqn = iscsi.attachment_iqn('iqn.x:', volume.id, 'iqn.b', 'a@l')
        self.called.iscsiadm.recorded.return_value = [iqn]
        self.called.iscsiadm.is_down.return_value = False
        self.assertTrue(remote_attachment.sweep(node))
        self.called.iscsiadm.end_session.assert_called_once_with(iqn, 30)
