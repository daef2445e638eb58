# SPDX-License-Identifier: Apache-2.0
"""What is asked of the iSCSI initiator, and what sysfs has of sessions."""

import builtins
import errno
import glob
import json
import os
import pathlib
from unittest import mock

import ddt
import fixtures
from os_brick.initiator.connectors import iscsi as connectors
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import iscsiadm
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands

IQN = ('iqn.2026-11.org.example:localclone-'
       '00000001-0000-4000-8000-000000000000')
OTHER = 'iqn.2026-11.org.example:other'
PORTAL = '192.0.2.11:3260'
AUTH = 'CHAP user s3cret'


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.commands = self.useFixture(commands.Commands())
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'ROOT', str(self.root)))

    def session(self, number, target, *disks):
        """A session on host NUMBER, as sysfs shows it."""
        device = self.root.joinpath(
            'devices', 'platform', 'host%d' % number, 'session%d' % number)
        device.mkdir(parents=True)
        for lun, disk in enumerate(disks):
            at = device.joinpath('target%d:0:0' % number, '%d:0:0:%d' % (
                number, lun))
            (at / 'block' / disk / 'queue').mkdir(parents=True)
            (self.root / 'block').mkdir(exist_ok=True)
            os.symlink(at / 'block' / disk, self.root / 'block' / disk)
            os.symlink(at, at / 'block' / disk / 'device')
        entry = self.root / 'class' / 'iscsi_session' / (
            'session%d' % number)
        entry.mkdir(parents=True)
        os.symlink(device, entry / 'device')
        if target:
            (entry / 'targetname').write_text(target + '\n')
        return entry

    def assertRan(self, *lines):
        self.assertEqual(list(lines), self.commands.ran)
        self.assertEqual([30] * len(lines), self.commands.limits)


class DisksTest(Case):

    def disks(self):
        return json.loads(iscsiadm.disks())

    def test_no_session_ever(self):
        self.assertEqual({}, self.disks())

    def test_by_target(self):
        self.session(2, IQN, 'sda')
        self.session(3, OTHER, 'sdb', 'sdc')
        found = self.disks()
        self.assertEqual(['/dev/sda'], found[IQN])
        self.assertEqual(['/dev/sdb', '/dev/sdc'], sorted(found[OTHER]))

    def test_of_one_target(self):
        """Nothing is looked for beneath the sessions of others."""
        self.session(2, IQN, 'sda')
        self.session(3, OTHER, 'sdb', 'sdc')
        with mock.patch.object(iscsiadm.glob, 'glob', wraps=glob.glob) as look:
            self.assertEqual({IQN: ['/dev/sda']},
                             json.loads(iscsiadm.disks(IQN)))
        look.assert_called_once()
        self.assertEqual({}, json.loads(iscsiadm.disks(IQN + 'x')))

    def test_session_without_a_disk(self):
        self.session(2, IQN)
        self.assertEqual({IQN: []}, self.disks())

    def test_session_that_has_just_ended(self):
        self.session(2, None)
        self.session(3, OTHER, 'sdb')
        self.assertEqual({OTHER: ['/dev/sdb']}, self.disks())


class DownTest(Case):

    def test_states(self):
        self.assertFalse(iscsiadm.is_down(IQN))
        (self.session(3, OTHER) / 'state').write_text('FAILED\n')
        state = self.session(2, IQN, 'sda') / 'state'
        self.assertFalse(iscsiadm.is_down(IQN))  # it has just ended
        for text, down in (('LOGGED_IN\n', False), ('FAILED\n', True),
                           ('FREE\n', True)):
            state.write_text(text)
            self.assertIs(down, iscsiadm.is_down(IQN))


class RescanTest(Case):

    def test_asked_for_its_size_again(self):
        self.session(2, IQN, 'sda')
        iscsiadm.rescan('/dev/sda', 5)
        self.assertEqual(
            ['tee %s/block/sda/device/rescan' % self.root],
            self.commands.ran)
        self.assertEqual([5], self.commands.limits)


@ddt.ddt
class InitiatorNameTest(Case):
    """As os-brick reads it for whoever connects volumes on this node."""

    @ddt.data(
        ('## made by iscsi-iname\nInitiatorName=iqn.this \n', 'iqn.this'),
        ('#InitiatorName=iqn.old\nInitiatorName=iqn.a=b\n'
         'InitiatorName=iqn.other\n', 'iqn.a=b'),
        ('InitiatorName = iqn.a\n InitiatorName=iqn.b\n', ''),
        ('InitiatorAlias=x\n', ''), ('', ''), (b'\xff\xfe', ''))
    @ddt.unpack
    def test_found(self, text, name):
        file = self.root / 'initiatorname.iscsi'
        self.useFixture(fixtures.MockPatchObject(
            iscsiadm, '_INITIATOR_NAME', str(file)))
        self.assertEqual('', iscsiadm.initiator_name())
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.assertEqual(name, iscsiadm.initiator_name())

    def test_in_the_file_that_os_brick_reads(self):
        read = mock.Mock(return_value=('InitiatorName=iqn.this\n', ''))
        self.assertEqual('iqn.this', connectors.ISCSIConnector(
            'sudo', execute=read).get_initiator())
        self.assertEqual(('cat', iscsiadm._INITIATOR_NAME),
                         read.call_args.args)

    def test_that_can_not_be_read(self):
        self.useFixture(fixtures.MockPatchObject(
            iscsiadm, '_INITIATOR_NAME', str(self.root)))
        self.assertEqual('', iscsiadm.initiator_name())


@ddt.ddt
class BringBackTest(Case):

    def state(self, text):
        self.session(2, IQN, 'sda')
        self.path = self.root / 'block' / 'sda' / 'device' / 'state'
        self.path.write_text(text + '\n')

    def bring_back(self):
        return iscsiadm.bring_back('/dev/sda', 30)

    def kernel(self):
        """The kernel takes the word, and then scans the disk."""
        run = self.commands._run

        def run_(*argv, **more):
            self.path.write_text('running\n')
            run(*argv, **more)
        self.useFixture(
            fixtures.MockPatchObject(iscsiadm.process, 'run', run_))

    def assertAsked(self):
        self.assertRan('tee %s/block/sda/device/state' % self.root)
        # Without the end of line the kernel refuses it (seen on 7.2).
        self.assertEqual([b'running\n'], self.commands.inputs)

    def test_offline(self):
        self.state('offline')
        self.kernel()
        self.assertTrue(self.bring_back())
        self.assertAsked()
        self.assertFalse(self.bring_back())

    def test_scan_that_takes_long(self):
        self.state('offline')
        self.commands.hang('tee')
        self.kernel()
        self.assertTrue(self.bring_back())

    @ddt.data('running', 'blocked', 'transport-offline', 'deleted')
    def test_other_states_are_left(self, text):
        self.state(text)
        self.assertFalse(self.bring_back())
        self.assertRan()

    def test_disk_that_has_gone(self):
        self.assertFalse(self.bring_back())
        self.assertRan()

    def test_refused(self):
        self.state('offline')
        self.commands.answer('tee', code=1, err='Invalid argument')
        self.assertFalse(self.bring_back())
        self.assertAsked()


class RecoveryTimeoutTest(Case):

    def test_of_its_session(self):
        limits = [self.session(number, target, disk) / 'recovery_tmo'
                  for number, target, disk in ((2, IQN, 'sda'),
                                               (3, OTHER, 'sdb'))]
        for limit in limits:
            limit.write_text('120')
        iscsiadm.set_recovery_timeout('/dev/sda', 86400)
        self.assertEqual(['86400', '120'],
                         [limit.read_text() for limit in limits])

    def test_other_disks_have_none(self):
        (self.root / 'devices' / 'virtio0').mkdir(parents=True)
        (self.root / 'block' / 'vda').mkdir(parents=True)
        os.symlink(self.root / 'devices' / 'virtio0',
                   self.root / 'block' / 'vda' / 'device')
        iscsiadm.set_recovery_timeout('/dev/vda', 86400)

    def refused(self, code):
        self.session(2, IQN, 'sda')
        with mock.patch.object(builtins, 'open',
                               side_effect=OSError(code, 'refused')):
            iscsiadm.set_recovery_timeout('/dev/sda', 86400)

    def test_session_that_is_down(self):
        self.refused(errno.EBUSY)

    def test_other_errors_stay(self):
        self.assertRaises(OSError, self.refused, errno.EACCES)


@ddt.ddt
class CommandsTest(Case):

    LOGOUT = 'iscsiadm -m node -T %s --logout' % IQN
    DELETE = 'iscsiadm -m node -T %s -o delete' % IQN

    def test_logged_out_and_forgotten(self):
        iscsiadm.end_session(IQN, 30)
        self.assertRan(self.LOGOUT, self.DELETE)

    def test_no_session_and_no_record(self):
        self.commands.answer('iscsiadm', code=21)
        iscsiadm.end_session(IQN, 30)
        self.assertRan(self.LOGOUT, self.DELETE)

    def test_session_that_iscsiadm_does_not_find(self):
        self.session(2, OTHER)
        self.session(17, IQN, 'sda')
        self.commands.answer('iscsiadm -m node', code=21)
        iscsiadm.end_session(IQN, 30)
        self.assertRan(self.LOGOUT, 'iscsiadm -m session -r 17 -u',
                       self.DELETE)

    def test_beside_another_that_changes_the_records(self):
        sleep = self.useFixture(
            fixtures.MockPatch('tenacity.nap.time.sleep')).mock
        self.commands.answer('iscsiadm', code=6, times=1)
        iscsiadm.end_session(IQN, 30)
        self.assertRan(self.LOGOUT, self.LOGOUT, self.DELETE)
        sleep.assert_called_once_with(0.2)
        del self.commands.ran[:]
        self.commands.answer('iscsiadm', code=6)
        self.assertRaises(exceptions.CommandFailed, iscsiadm.end_session, IQN,
                          30)
        self.assertEqual([self.LOGOUT] * 5, self.commands.ran)

    @ddt.data(1, 8, 15)
    def test_logout_that_fails(self, code):
        self.commands.answer('iscsiadm', code=code)
        self.assertRaises(exceptions.CommandFailed, iscsiadm.end_session, IQN,
                          30)
        self.assertRan(self.LOGOUT)

    @ddt.data(OTHER, IQN + 'x', '')
    def test_sessions_of_others(self, iqn):
        for act, more in ((iscsiadm.end_session, ()), (iscsiadm.login, ()),
                          (iscsiadm.record_target, (PORTAL, AUTH))):
            self.assertRaises(exceptions.Foreign, act, iqn, *more, 30)
        self.assertRan()

    @ddt.data('', '192.0.2.11', '../../x:3260', '192.0.2.11/..:3260',
              'host:3260', '192.0.2.11:../x', '::1:x')
    def test_portal_that_is_a_path(self, portal):
        """The initiator's records are files: they are named by the portal."""
        self.assertRaises(exceptions.Foreign, iscsiadm.record_target, IQN,
                          portal, AUTH, 30)
        self.assertRan()

    @ddt.data('[fe80::1]:3260', '192.0.2.11:3261')
    def test_portal(self, portal):
        iscsiadm.record_target(IQN, portal, AUTH, 30)
        self.assertIn(' -p %s ' % portal, self.commands.ran[-1].replace(
            "'", ''))

    def test_known_portal(self):
        self.commands.answer('iscsiadm -m node', '%s,1 %s\n' % (PORTAL, IQN))
        self.assertEqual(PORTAL, iscsiadm.known_portal(IQN, 30))
        self.assertEqual('', iscsiadm.known_portal(OTHER, 30))
        self.assertEqual('iscsiadm -m node', self.commands.ran[0])

    def test_no_records_at_all(self):
        self.commands.answer('iscsiadm', code=21)
        self.assertEqual('', iscsiadm.known_portal(IQN, 30))
        self.assertRan('iscsiadm -m node')

    RECORD = 'iscsiadm -m node -T %s -p %s ' % (IQN, PORTAL)
    COMPLETE = RECORD + (
        '--op update -n node.startup -v manual '
        "-n 'node.conn[0].tcp.window_size' -v 0 "
        '-n node.session.initial_login_retry_max -v 0 '
        '-n node.session.nr_sessions -v 1 '
        "-n 'node.conn[0].startup' -v manual "
        "-n 'node.conn[0].timeo.noop_out_interval' -v 5 "
        "-n 'node.conn[0].timeo.noop_out_timeout' -v 5 "
        '-n node.session.scan -v manual '
        '-n node.session.auth.authmethod -v CHAP '
        '-n node.session.auth.username -v user '
        '-n node.session.auth.password -v s3cret '
        "-n node.session.auth.username_in -v '' "
        "-n node.session.auth.password_in -v ''")

    def test_record(self):
        self.commands.answer('iscsiadm -m node', '%s,1 %s\n' % (
            PORTAL, OTHER))
        iscsiadm.record_target(IQN, PORTAL, AUTH, 30)
        self.assertRan('iscsiadm -m node',
                       self.RECORD + '--interface default --op new',
                       self.COMPLETE)
        self.assertEqual(['', '', 's3cret'], self.commands.secrets)

    def test_a_record_is_never_made_anew(self):
        """It would lose its secret; a power cut may come then."""
        self.commands.answer('iscsiadm -m node', '%s,1 %s\n' % (PORTAL, IQN))
        iscsiadm.record_target(IQN, PORTAL, AUTH, 30)
        self.assertRan('iscsiadm -m node', self.COMPLETE)

    def test_record_at_another_portal_that_has_just_gone(self):
        self.commands.answer('iscsiadm -m node -T %s -p 192.0.2.98:3260'
                             % IQN, code=21)
        self.commands.answer('iscsiadm -m node', '192.0.2.98:3260,1 %s\n' % (
            IQN))
        iscsiadm.record_target(IQN, PORTAL, AUTH, 30)
        self.assertEqual(self.COMPLETE, self.commands.ran[-1])

    def test_records_at_other_portals_go(self):
        """The source has another address; one login is to all records."""
        self.commands.answer('iscsiadm -m node', (
            '192.0.2.98:3260,1 %(iqn)s\n%(portal)s,1 %(other)s\n'
            '192.0.2.99:3260,1 %(iqn)s\n') % {
                'iqn': IQN, 'portal': PORTAL, 'other': OTHER})
        iscsiadm.record_target(IQN, PORTAL, AUTH, 30)
        gone = 'iscsiadm -m node -T %s -p 192.0.2.%d:3260 -o delete'
        self.assertRan('iscsiadm -m node', gone % (IQN, 98), gone % (IQN, 99),
                       self.RECORD + '--interface default --op new',
                       self.COMPLETE)

    @ddt.data(0, 15)
    def test_login_and_scan(self, code):
        self.session(2, OTHER)
        self.session(7, IQN)
        self.commands.answer('iscsiadm', code=code)
        iscsiadm.login(IQN, 30)
        self.assertRan('iscsiadm -m node -T %s --login' % IQN,
                       'tee /sys/class/scsi_host/host7/scan')
        self.assertEqual([None, b'0 0 0'], self.commands.inputs)

    def test_name_that_begins_alike(self):
        self.session(2, IQN + '-0')
        self.session(17, IQN, 'sda')
        self.commands.answer('iscsiadm -m node', code=21)
        iscsiadm.end_session(IQN, 30)
        self.assertEqual(['iscsiadm -m session -r 17 -u'], [
            line for line in self.commands.ran if ' session ' in line])
        del self.commands.ran[:], self.commands._answers[:]
        iscsiadm.login(IQN, 30)
        self.assertEqual(['tee /sys/class/scsi_host/host17/scan'],
                         self.commands.ran[1:])

    def test_login_that_is_refused(self):
        self.commands.answer('iscsiadm', code=24, err='authorization')
        self.assertRaises(exceptions.CommandFailed, iscsiadm.login, IQN, 30)
        self.assertEqual(1, len(self.commands.ran))
