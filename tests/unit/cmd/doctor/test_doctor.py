# SPDX-License-Identifier: Apache-2.0
"""The doctor makes all its checks, whatever is missing."""

import os
import time
import types
from unittest import mock

import ddt
import fixtures
from oslo_db import exception as db_exception
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import container
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd.doctor import encryption
from cinder_localclone.cmd.doctor import stuck
from cinder_localclone.core import boot_plan
from cinder_localclone.core import copies
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.db import inventory
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import upkeep
from cinder_localclone.service import operator as backend
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import container as isolation
from cinder_localclone.storage.privsep import folders
from tests.world import images

A, B = 'a@l', 'b@l'
_isdir = os.path.isdir
GIB = 1 << 30


class RemedyTest(testtools.TestCase):

    def remedy(self, name, error, user=0):
        def check():
            raise error
        with mock.patch.object(doctor.os, 'geteuid', lambda: user):
            found, = doctor.examine(name, check)
        self.assertEqual(checks.FAIL, found.verdict)
        return found.fix, found.details

    def test_package_of_a_database(self):
        """The server may be up: to start it is no remedy."""
        fix, details = self.remedy(
            'database', ModuleNotFoundError(name='pymysql'))
        self.assertEqual(checks.SEE_DETAILS, fix)
        self.assertIn('The Python package pymysql is not installed', details)
        self.assertIn('start the database', self.remedy(
            'database', OSError('refused'))[0])

    def test_device_mapper(self):
        for user, fix in ((0, 'modprobe dm-mod'),
                          (7, 'modprobe dm-mod; run doctor as root')):
            self.assertEqual(fix, self.remedy(
                'kernel: device-mapper', OSError('no'), user)[0])


@ddt.ddt
class DoctorTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.targets = self.patch(
            'storage.privsep.dmsetup.targets',
            return_value='clone v1\nthin-pool v1\n')
        self.run = self.patch(
            'storage.privsep.process.run',
            return_value='use_devicesfile=1\ncryptsetup 2.6.1 flags: UDEV')
        self.free = self.patch('storage.privsep.lvm.free')
        self.hanging = self.patch('storage.privsep.lio_configfs.hanging',
                                  return_value=[])
        self.listening = self.patch(
            'storage.prerequisites.programs_listening', return_value=[])
        self.root = self.patch('service.operator.act_as_root')
        self.rules = self.patch('cmd.doctor.checks.rules', return_value=[])
        self.isolation = self.patch(
            'storage.privsep.container.isolation',
            return_value=isolation.Isolation(frozenset(), False, {}))
        self.useFixture(fixtures.MockPatchObject(
            doctor.shutil, 'which', side_effect='/sbin/'.__add__))
        self.useFixture(fixtures.MockPatchObject(
            doctor.os.path, 'isdir', return_value=True))
        self.user = self.useFixture(fixtures.MockPatchObject(
            doctor.os, 'geteuid', return_value=0)).mock
        self.backend = mock.MagicMock(host=A, conf=types.SimpleNamespace(
            check=mock.Mock(), **{each.dest: each.default
                                  for each in backend.SECTION_OPTS}))
        self.backend.name = 'l'
        self.backend.conf.localclone_thick_stripes = 1
        self.backend.settings.rpc_timeout = 60
        self.backend.settings.sections.return_value = {'l': None}
        self.backend.nodes.return_value = {A: True, B: True}
        self.backend.sessions().initiator.return_value = 'iqn.x:y'
        self.backend.crypt().former_directories.return_value = []
        self.answers = {'describe': ({'problems': [], 'block': 512,
                                      'initiator': ''}, ''),
                        'troubles': ([], '')}

        def ask(host, method):
            answer, problem = self.answers.get((host, method)) or (
                self.answers[method])
            if method == 'describe' and answer:
                answer = dict(answer, time=time.time())
            return answer, problem
        self.backend.ask.side_effect = ask
        self.lvm = mock.create_autospec(
            logical_volumes.Lvm, instance=True, group='g', metadata_group='g',
            pool='g-pool', timeout=30)
        self.backend.lvm.return_value = self.lvm
        self.handles = mock.create_autospec(handles.Handles, instance=True)
        self.backend.handles.return_value = self.handles
        self.lvm.lvs.return_value = {'g-pool': lvm_reports.LogicalVolume(
            'g', 'g-pool', GIB, '', frozenset(), zeroes=True)}
        self.lvm.pool_transactions.return_value = 7, 7
        self.handles.survey.return_value = survey.Survey({}, {})
        self.patch('storage.privsep.lvm.physical_volumes', return_value=[])
        self.backend.db.inventory.unended.return_value = []
        self.backend.db.secrets.secrets_in_use.return_value = set()
        self.backend.db.inventory.is_encryption_available.return_value = False
        self.lvm.free_space.return_value = lvm_reports.FreeSpace(
            GIB, GIB, False)
        self.app = mock.Mock(exit_code=0)
        self.app.backend.return_value = self.backend

    def patch(self, name, **more):
        return self.useFixture(fixtures.MockPatch(
            'cinder_localclone.' + name, **more)).mock

    def rows(self):
        """All lines but those that are OK, by check."""
        columns, rows = doctor.Doctor(self.app, None).take_action(None)
        self.assertEqual(('Check', 'Verdict', 'Details', 'Fix'), columns)
        self.names = [row[0] for row in rows]
        self.assertEqual(len(set(self.names)), len(rows))
        wrong = {row[0]: row for row in rows if row[1] != checks.OK}
        for row in wrong.values():
            self.assertTrue(row[2] and row[3], row)
        self.assertEqual(int(any(row[1] == checks.FAIL for row in rows)),
                         self.app.exit_code)
        return wrong

    def test_healthy(self):
        self.assertEqual({}, self.rows())
        self.assertEqual('cinder.conf', self.names[0])
        self.root.assert_called_once_with(self.backend.settings)
        self.backend.nodes.assert_called_once_with()

    def test_in_a_container(self):
        """What is not mounted belongs to the image, and is not judged."""
        mounts = dict.fromkeys((*container.NEEDED, '/etc/lvm',
                                '/etc/udev/rules.d', '/var/lib/keys'), 'ext4')
        mounts['/dev'] = 'devtmpfs'
        mounts[os.path.realpath('/lib/modules')] = 'ext4'
        self.isolation.return_value = isolation.Isolation(
            frozenset(), True, mounts)
        self.assertEqual({}, self.rows())
        self.assertIn('container', self.names)
        for each in '/etc/lvm', '/etc/udev/rules.d':
            del mounts[each]
        self.rules.return_value = [checks.Finding(
            'udev rules', checks.WARN, 'x', 'y')]
        self.backend.conf.localclone_header_backup_dir = '/var/lib/headers'
        self.backend.conf.localclone_key_cache = 'systemd-creds'
        self.backend.conf.localclone_key_cache_dir = '/var/lib/keys'
        wrong = self.rows()
        self.assertLessEqual({
            'udev rules', 'LVM filter', 'localclone_header_backup_dir',
            'sealed keys'}, set(wrong))
        for check in 'udev rules', 'LVM filter':
            self.assertIn('not checked', wrong[check][2])
        self.assertNotIn('localclone_key_cache_dir', wrong)
        self.rules.assert_called_with(['/run/udev/rules.d'])
        self.isolation.return_value = isolation.Isolation(
            frozenset({'ipc'}), True, mounts)
        self.assertEqual(checks.FAIL, self.rows()['container'][1])

    def test_container_or_host(self):
        """Neither is assumed where /proc hides process 1."""
        self.isolation.return_value = isolation.Isolation(
            frozenset(), None, {})
        self.assertEqual({'container'}, set(self.rows()))
        self.assertEqual(0, self.app.exit_code)
        for own, root, reported in ((('pid',), None, True),
                                    ((), True, True), ((), False, False)):
            self.isolation.return_value = isolation.Isolation(
                frozenset(own), root, {})
            self.assertEqual(reported, 'container' in self.rows())
            self.assertEqual(int(reported), self.app.exit_code)

    def test_kernel_without_dm_clone(self):
        self.targets.return_value = 'thin-pool v1\n'
        self.useFixture(fixtures.MockPatchObject(
            doctor.platform, 'freedesktop_os_release',
            return_value={'ID': 'debian', 'VERSION_ID': '12'}))
        self.useFixture(fixtures.MockPatchObject(
            doctor.platform, 'release', return_value='6.1.0-57-amd64'))
        wrong = self.rows()
        self.assertEqual(['kernel: dm-clone'], list(wrong))
        self.assertEqual('apt install ./cinder-localclone-dkms_*_all.deb',
                         wrong['kernel: dm-clone'][3])

    def test_encrypted_volumes(self):
        self.backend.db.secrets.secrets_in_use.return_value = {'k'}
        self.assertEqual({'header backups'}, set(self.rows()))
        self.assertIn('key manager', self.names)
        self.backend.keys().check.side_effect = (
            encryption_exceptions.KeyUnavailable(reason='no route'))
        self.backend.conf.localclone_header_backup_dir = '/'
        wrong = self.rows()
        self.assertEqual({'key manager'}, set(wrong))
        self.assertIn('no route', wrong['key manager'][2])

    def test_project_of_the_secrets(self):
        """Whoever has a role in it reads them."""
        self.backend.db.secrets.secrets_in_use.return_value = {'k'}
        for project, warned in (('service', True), ('services', True),
                                ('volume-keys', False), ('', False)):
            self.backend.keys().project.return_value = project
            self.assertEqual(warned, 'project of the secrets' in self.rows())
        self.assertIn('secrets without volume', self.names)

    def test_directory_that_the_service_refuses(self):
        self.backend.db.secrets.secrets_in_use.return_value = {'k'}
        self.backend.conf.localclone_header_backup_dir = '/'
        with mock.patch.object(folders, 'problem', return_value='x is a link'):
            row = self.rows()['header backups']
        self.assertIn('x is a link, so no backups are made in /', row[2])

    def test_directory_of_header_backups(self):
        for path, verdict in (('/', checks.OK), ('/nowhere', checks.WARN),
                              (None, checks.WARN)):
            with mock.patch.object(os.path, 'isdir', '/'.__eq__):
                found, = encryption.header_backups(path)
            self.assertEqual(verdict, found.verdict)

    def test_header_backups_on_the_disk_of_the_volumes(self):
        for disks, verdict in (({'sda'}, checks.WARN), ({'sdb'}, checks.OK),
                               (set(), checks.OK)):
            with mock.patch.object(os.path, 'isdir', '/'.__eq__):
                found, = encryption.header_backups(
                    '/', disks, lambda number: {'sda', 'sdc'})
            self.assertEqual((verdict, verdict == checks.WARN), (
                found.verdict, 'sda' in found.details))

    def test_disks_below(self):
        """A partition is on its disk, an LV on those of its group."""
        root = self.useFixture(fixtures.TempDir()).path
        devices = os.path.join(root, 'devices')
        os.makedirs(os.path.join(root, 'dev/block'))
        for number, path in (('8:0', 'sda'), ('8:1', 'sda/sda1'),
                             ('9:0', 'md0'), ('253:0', 'dm-0')):
            where = os.path.join(devices, path)
            os.makedirs(os.path.join(where, 'slaves'))
            os.symlink(where, os.path.join(root, 'dev/block', number))
            with open(os.path.join(where, 'dev'), 'w') as file:
                file.write(number + '\n')
        open(os.path.join(devices, 'sda/sda1/partition'), 'w').close()
        for upper, lower in (('dm-0', 'md0'), ('md0', 'sda/sda1')):
            os.symlink(os.path.join(devices, lower), os.path.join(
                devices, upper, 'slaves', os.path.basename(lower)))
        self.useFixture(fixtures.MockPatchObject(
            os.path, 'isdir', _isdir))
        for number in ('8:0', '8:1', '9:0', '253:0'):
            self.assertEqual({'sda'}, encryption.disks_below(
                number, root), number)
        self.assertEqual(set(), encryption.disks_below('0:5', root))

    def test_former_directories(self):
        self.assertEqual([], encryption.former_directories([]))
        found, = encryption.former_directories(['/a', '/b'])
        self.assertEqual(checks.WARN, found.verdict)
        self.assertIn('/a, /b', found.details)

    def test_key_cache(self):
        for which, tpm, verdict in ((True, True, checks.OK),
                                    (True, False, checks.WARN),
                                    (False, True, checks.WARN)):
            found, = encryption.key_cache(
                '/keys', lambda name: which and '/bin/' + name, lambda: tpm)
            self.assertEqual((verdict, verdict != checks.OK), (
                found.verdict, bool(found.fix)))
        self.assertEqual([], encryption.key_cache('', None, None))
        self.backend.conf.localclone_key_cache = 'systemd-creds'
        self.rows()
        self.assertIn('key cache', self.names)

    def test_locked_volumes(self):
        with mock.patch.object(upkeep, 'locked', return_value=[
                boot_plan.Outcome('v%d' % number, '', 'locked', 'no key')
                for number in range(7)]):
            row = self.rows()['locked volumes']
        self.assertEqual(checks.FAIL, row[1])
        self.assertIn('v0: no key', row[2])
        self.assertIn('and 2 more', row[2])
        self.assertNotIn('v5', row[2])

    def test_locked_volume_that_lacks_the_end_of_a_re_encryption(self):
        """What must not be done comes first; the reason is there, too."""
        volume = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
        for kind, end in ((encryption_exceptions.NotRecovered, 'by itself.'),
                          (encryption_exceptions.NotEnded, 'is missing. No')):
            found, = encryption.locked_volumes([boot_plan.Outcome(
                volume, 'lv', upkeep.LOCKED, str(kind(
                    path=names.handle_path(volume),
                    reason='only its last step is missing')))])
            self.assertIn(volume + ': Do not restore', found.details)
            self.assertIn(end, found.details)

    @ddt.data(({'k'}, False), (set(), True))
    @ddt.unpack
    def test_secrets_without_volume(self, used, exported):
        """Also if no encrypted volume is left."""
        self.backend.db.secrets.secrets_in_use.return_value = used
        inventory = self.backend.db.inventory
        inventory.is_encryption_available.return_value = exported
        self.backend.keys().of_volumes.return_value = [('key', 'gone')]
        self.backend.db.inventory.volumes_known.return_value = set(), {'gone'}
        self.backend.db.inventory.secrets_of_all.return_value = set()
        row = self.rows()['secrets without volume']
        self.assertEqual(checks.WARN, row[1])
        self.assertIn('key (volume gone)', row[2])
        self.assertIn('leftover remove', row[3])
        self.backend.db.inventory.secrets_of_all.return_value = {'key'}
        self.assertNotIn('secrets without volume', self.rows())
        # Nobody is asked twice who did not answer.
        self.backend.keys().check.side_effect = (
            encryption_exceptions.KeyUnavailable(reason='no route'))
        self.rows()
        self.assertNotIn('secrets without volume', self.names)

    def test_what_is_left_is_told_with_bounds(self):
        found, = encryption.leftover_secrets([
            operator.Left(operator.SECRET, 'k%d' % number, 'v', True)
            for number in range(200)])
        self.assertIn('and 195 more', found.details)
        self.assertLess(len(found.details), 300)

    def test_version_of_cryptsetup(self):
        for text, verdict in (
                ('cryptsetup 2.6.1 flags: UDEV BLKID', checks.OK),
                ('cryptsetup 2.5.0', checks.OK), ('3.0', checks.WARN),
                ('cryptsetup 2.4.3', checks.WARN),
                ('cryptsetup 3.0.0', checks.OK), ('', checks.WARN),
                ('cryptsetup 2.3.7', checks.WARN)):
            found, = encryption.version(text)
            self.assertEqual((verdict, not found.fix), (
                found.verdict, verdict == checks.OK), text)

    def test_kernel_that_cannot_encrypt(self):
        found, = encryption.modules('dm_crypt'.__eq__)
        self.assertEqual(checks.WARN, found.verdict)
        self.assertIn('CONFIG_DM_FLAKEY', found.fix)
        self.assertNotIn('dm_crypt', found.details)
        for authenticates in (False, True):
            found, = encryption.modules(
                lambda name: name != 'dm_integrity', authenticates)
            self.assertEqual(
                'CONFIG_DM_INTEGRITY' if authenticates else '',
                found.fix.rpartition(' ')[2])

    def test_copies(self):
        def entry(number, **more):
            return copies.Entry(
                's%d' % number, 'v', A, B, began=number, **more)
        self.backend.db.queue.copies.return_value = [
            entry(n) for n in range(5)]
        self.assertEqual({}, self.rows())
        self.backend.db.queue.copies.assert_called_with(A)
        self.assertIn('copies', self.names)
        self.backend.db.queue.copies.return_value = [
            entry(1, stalled=5.0), entry(2)]
        self.assertEqual('2 run, 1 make no progress',
                         self.rows()['copies'][2])
        self.backend.db.queue.copies.side_effect = ValueError('no database')
        self.assertIn('no database', self.rows()['copies'][2])

    def test_copies_are_counted(self):
        nodes = {A: True, B: True}
        self.backend.db.queue.copies.return_value = [
            copies.Entry('s%d' % n, 'v', A, B) for n in range(5)]
        found, = doctor._copies(self.backend, nodes)
        self.assertEqual('2 run, 3 wait in the queue', found.details)
        self.backend.conf.localclone_max_copies_in = 1
        found, = doctor._copies(self.backend, nodes)
        self.assertEqual('1 run, 4 wait in the queue', found.details)
        self.backend.db.queue.copies.return_value.append(
            copies.Entry('r', 'v', 'c@l', B, attached=True))
        found, = doctor._copies(self.backend, nodes)  # there is no c
        self.assertEqual('1 run, 5 wait in the queue', found.details)

    def test_without_a_configuration(self):
        self.app.backend.side_effect = errors.CommandError('no backend')
        wrong = self.rows()
        self.assertEqual({'cinder.conf', 'storage, peers'}, set(wrong))
        self.assertEqual(checks.FAIL, wrong['cinder.conf'][1])
        for check in ('commands', 'kernel: dm-clone', 'iSCSI target',
                      'LVM filter'):
            self.assertIn(check, self.names)

    def test_value_that_cannot_be(self):
        self.backend.conf.check.side_effect = ValueError('not a number')
        self.assertIn('not a number', self.rows()['cinder.conf'][2])

    def test_each_check_by_itself(self):
        """One that can't be made hides none of the others."""
        failed = exceptions.CommandFailed(command='c', code=1, stderr='oh\nno')
        self.targets.side_effect = failed
        self.backend.sessions().initiator.side_effect = failed
        self.run.side_effect = FileNotFoundError(2, 'no', 'lvmconfig')
        self.lvm.lvs.side_effect = failed
        wrong = self.rows()
        self.assertEqual(
            {'kernel: device-mapper', 'iSCSI initiator', 'LVM filter',
             'cryptsetup', 'storage'}, set(wrong))
        self.assertEqual('lvmconfig is not installed', wrong['LVM filter'][2])
        for _check, _verdict, details, _fix in wrong.values():
            self.assertNotIn('\n', details)

    def test_modules(self):
        doctor.os.path.isdir.side_effect = lambda path: (
            path != '/sys/module/iscsi_tcp')
        self.run.side_effect = lambda program, *_words, timeout: (
            self.run.return_value)
        self.assertEqual({}, self.rows())

        def run(program, *words, timeout):
            if program == 'modprobe':
                raise exceptions.CommandFailed(
                    command='modprobe', code=1, stderr='')
            return self.run.return_value
        self.run.side_effect = run
        self.assertEqual({'kernel: iSCSI initiator'}, set(self.rows()))

    def test_database_that_is_down_is_said_once(self):
        self.backend.nodes.side_effect = db_exception.DBConnectionError(
            Exception('refused'))
        wrong = self.rows()
        self.assertEqual({'database'}, set(wrong))
        self.assertIn('refused', wrong['database'][2])
        self.backend.nodes.assert_called_once_with()
        self.backend.ask.assert_not_called()

    def test_peers(self):
        self.answers[A, 'describe'] = {
            'problems': ['no name'], 'block': 0, 'initiator': ''}, ''
        self.answers[B, 'describe'] = None, 'did not answer'
        wrong = self.rows()
        self.assertEqual(('no name', 'did not answer'),
                         (wrong[A][2], wrong[B][2]))
        self.backend.nodes.return_value = {A: True, B: False}
        self.assertEqual('the service is down', self.rows()[B][2])
        self.backend.nodes.return_value = {B: True}
        self.backend.ask.side_effect = RuntimeError('bus')
        self.assertEqual({'this node', 'peers', B}, set(self.rows()))

    def test_storage(self):
        self.lvm.metadata_group = 'fast'
        self.free.side_effect = lambda groups, timeout: None
        self.lvm.free_space.return_value = lvm_reports.FreeSpace(
            GIB, 5 << 20, False)
        self.assertEqual(checks.WARN,
                         self.rows()['space for move metadata'][1])
        self.assertIn('volume group fast', self.names)
        self.lvm.free_space.return_value = lvm_reports.FreeSpace(
            GIB, 0, False)
        self.assertEqual(checks.FAIL,
                         self.rows()['space for move metadata'][1])
        self.lvm.lvs.return_value = {}
        self.assertEqual({'thin pool'}, set(self.rows()))
        self.free.side_effect = exceptions.CommandFailed(
            command='vgs', code=5, stderr='not found')
        self.assertEqual({'volume group g', 'volume group fast'},
                         set(self.rows()))

    def test_pool_that_lvm_and_the_kernel_disagree_on(self):
        self.lvm.pool_transactions.return_value = 7, None  # not active
        self.assertEqual({}, self.rows())
        self.lvm.pool_transactions.return_value = 17, 16
        name = 'thin pool transactions'
        found = self.rows()
        self.assertEqual([name], list(found))
        self.assertIn('LVM is at 17, the kernel at 16', found[name][2])
        self.assertIn('dmsetup message g-g--pool-tpool 0', found[name][3])
        self.lvm.pool_transactions.side_effect = (
            exceptions.CommandTimeout(command='lvs', seconds=1))
        self.assertEqual([name], list(self.rows()))

    def test_stripes(self):
        free = self.patch('storage.privsep.lvm.free_of_disks',
                          return_value=[1])
        self.assertNotIn('stripes', self.rows())
        self.backend.conf.localclone_thick_stripes = 2
        self.assertIn('has no effect', self.rows()['stripes'][2])
        free.assert_not_called()
        self.lvm.pool = None
        found = self.rows()['stripes']
        self.assertEqual(checks.FAIL, found[1])
        self.assertIn('g is on 1 disks', found[2])
        free.return_value = [1, 0]
        self.assertNotIn('stripes', self.rows())
        self.assertIn('stripes', self.names)

    def test_wiped(self):
        first, second = (names.to_wipe('a@l', str(number) * 12)
                         for number in (1, 2))
        self.lvm.lvs.return_value.update(
            {name: lvm_reports.LogicalVolume(
                'g', name, 2 * GIB, '9:9', frozenset(), opened=name == first)
             for name in (first, second)})
        self.assertEqual(checks.WARN, self.rows()['LV ' + first][1])
        self.assertIn('LVs to be wiped', self.names)
        found, held = stuck.to_wipe(self.lvm.lvs(), ['other', 'l'])
        self.assertEqual(checks.OK, found.verdict)
        self.assertIn('2, 4 GiB', found.details)
        self.assertIn('open', held.details)

    def test_wiped_of_a_backend_that_is_no_more(self):
        """Its section was renamed: no service overwrites it."""
        name = names.to_wipe('a@renamed', '1' * 12)
        self.lvm.lvs.return_value[name] = lvm_reports.LogicalVolume(
            'g', name, 2 * GIB, '9:9', frozenset())
        found = self.rows()['LV ' + name]
        self.assertEqual(checks.WARN, found[1])
        self.assertIn('lvremove g/' + name, found[3])

    def test_suspended(self):
        self.lvm.lvs.return_value['volume-x'] = lvm_reports.LogicalVolume(
            'g', 'volume-x', GIB, '9:9', frozenset(), suspended=True)
        found = self.rows()
        self.assertEqual(['LV volume-x'], list(found))
        self.assertIn('dmsetup resume g-volume--x', found['LV volume-x'][3])

    def test_statuses_that_nobody_ends(self):
        self.backend.db.inventory.unended.return_value = [
            inventory.Unended(what, 'v-%d' % number, status, A, 3601,
                              attached)
            for number, (what, status, attached) in enumerate((
                ('volume', 'extending', True), ('volume', 'reverting', False),
                ('snapshot', 'restoring', False),
                ('migration', 'completing', False),
                ('move', 'starting', False), ('move', 'completing', False)))]
        found = self.rows()
        self.assertEqual(6, len(found))
        for name, details, fix in (
                ('volume v-0', 'extending for 60 min, at ' + A,
                 'volume set --state in-use v-0'),
                ('volume v-1', 'reverting', 'set --state available v-1'),
                ('snapshot v-2', 'restoring',
                 'snapshot set --state available v-2'),
                ('migration v-3', 'completing',
                 'reset-state --reset-migration-status v-3'),
                ('move v-4', 'starting', 'cinder-localclone move abort v-4'),
                ('move v-5', 'completing',
                 'cinder-localclone volume repair v-5')):
            self.assertIn(details, found[name][2])
            self.assertIn(fix, found[name][3])
        self.backend.db.inventory.unended.assert_called_with(
            'l', stuck.PATIENCE)

    def test_thick(self):
        self.lvm.pool = None
        self.assertEqual({}, self.rows())
        self.assertNotIn('thin pool data', self.names)

    def test_nodes_with_one_iscsi_name(self):
        """They were installed from one image."""
        def answer(name):
            return {'problems': [], 'block': 512, 'initiator': name}, ''
        for name, wrong in (('iqn.b', set()), ('iqn.a', {'iSCSI name iqn.a'})):
            self.answers[A, 'describe'] = answer('iqn.a')
            self.answers[B, 'describe'] = answer(name)
            self.assertEqual(wrong, set(self.rows()))
        self.backend.nodes.return_value = {B: True, A: True}
        _check, verdict, details, _fix = self.rows()['iSCSI name iqn.a']
        self.assertEqual(checks.FAIL, verdict)
        self.assertIn('%s, %s' % (A, B), details)

    def test_nodes_whose_disks_have_other_sectors(self):
        """One without disks says so itself."""
        def answer(block):
            return {'problems': [], 'block': block, 'initiator': ''}, ''
        self.backend.nodes.return_value = {B: True, A: True, 'c@l': True}
        self.answers['c@l', 'describe'] = answer(512)
        self.answers[A, 'describe'] = answer(4096)
        for block, wrong in ((512, '512 bytes: %s, c@l; 4096 bytes: %s' % (
                B, A)), (0, '512 bytes: c@l; 4096 bytes: ' + A)):
            self.answers[B, 'describe'] = answer(block)
            (_check, verdict, details, _fix), = self.rows().values()
            self.assertEqual((checks.FAIL, wrong + '; no volume can move '
                              'between them'), (verdict, details))
        self.answers[A, 'describe'] = answer(512)
        self.assertEqual({}, self.rows())

    def test_no_initiator_no_configfs(self):
        self.backend.sessions().initiator.return_value = ''
        doctor.os.path.isdir.side_effect = lambda path: (
            path != '/sys/kernel/config')
        self.assertEqual({'iSCSI initiator', 'iSCSI target'},
                         set(self.rows()))

    def test_moves_that_need_a_node_that_is_gone(self):
        def move(phase, committed, source, destination):
            return state.Move(
                'v', 's', state.Token(phase, 'n', None), committed, source,
                destination, 'x', 'y', 1)
        self.backend.db.moves.readable_moves.return_value = [
            move(Phase.ROLLING_BACK, False, A, 'c@l'),
            move(Phase.RELEASING, True, 'c@l', 'd@l'),
            move(Phase.MIGRATING, True, 'c@l', A),
            move(Phase.RELEASING, True, A, 'c@l'),
            move(Phase.MIGRATING, True, 'e@other', 'f@other')]
        wrong = self.rows()
        self.assertEqual({'moves and c@l'}, set(wrong))
        self.assertEqual(('2 to be cleaned up there, 1 under way'),
                         wrong['moves and c@l'][2])
        self.assertIn('forget c@l', wrong['moves and c@l'][3])

    def test_volumes_that_no_record_names(self):
        self.lvm.lvs.return_value.update({
            name: lvm_reports.LogicalVolume(
                'g', name, GIB, '', frozenset(names.tags(volume=volume)))
            for name, volume in (
                ('home', 'v1'), ('from', 'v2'), ('to', 'v3'), ('lost', 'v4'),
                ('unreadable', 'v5'))})
        db = self.backend.db
        db.volumes.volumes_of.side_effect = {
            A: [types.SimpleNamespace(name='home')]}.get
        move = state.Move('v2', 's', state.Token(
            Phase.MIGRATING, 'n', None), True, A, B, 'from', 'to', 1)
        db.moves.moves_of.side_effect = {A: [move]}.get

        def move_of(volume_id):
            if volume_id == 'v5':
                raise exceptions.InvalidToken(token='t', reason='r')
        db.moves.move_of.side_effect = move_of
        self.assertEqual({'LV lost'}, set(self.rows()))

    def test_target_that_hangs(self):
        self.hanging.return_value = ['iqn.x:y']
        wrong = self.rows()
        self.assertEqual(['iSCSI target'], list(wrong))
        self.assertIn('hangs in the kernel: iqn.x:y', str(wrong))
        self.hanging.side_effect = exceptions.CommandFailed(
            command='cat', code=1, stderr='no')
        self.assertEqual(['iSCSI target'], list(self.rows()))

    def test_another_target_at_the_port(self):
        self.useFixture(fixtures.MockPatchObject(
            doctor, '_target_port', return_value=3261))
        self.listening.side_effect = {3261: ['tgtd']}.get
        wrong = self.rows()
        self.assertEqual(['iSCSI target'], list(wrong))
        self.assertEqual((checks.FAIL, 'TCP port 3261 is taken by tgtd'),
                         wrong['iSCSI target'][1:3])

    def test_target_of_a_peer_that_hangs(self):
        name = 'troubles of ' + B
        for answer, verdict, details in (
                ((['its target hangs'], ''), checks.FAIL, 'its target hangs'),
                ((None, 'it is too old'), checks.WARN, 'it is too old')):
            self.answers[B, 'troubles'] = answer
            rows = self.rows()
            self.assertEqual([name], list(rows))
            self.assertEqual((verdict, details), rows[name][1:3])

    def test_as_another_user(self):
        self.user.return_value = 1000
        self.assertEqual({}, self.rows())
        self.root.assert_not_called()
        self.assertTrue(self.backend.load_cinder.called)


class UnknownTest(testtools.TestCase):
    """An LV of this node, b@l, whose volume's row names another host."""

    def check(self, found, lv, row, service):
        backend = mock.Mock(host='b@l')
        backend.lvm().lvs.return_value = {
            lv: lvm_reports.LogicalVolume(
                'g', lv, 1 << 30, '9:9', frozenset(names.tags(volume='v')))}
        backend.db.volumes.volumes_of.return_value = []
        backend.db.volumes.volumes_with_wrong_host.return_value = []
        backend.db.volumes.service_of.side_effect = {'v': service}.get
        backend.db.moves.moves_of.return_value = []
        backend.db.moves.move_of.return_value = None
        backend.db.volumes.volume.side_effect = {'v': row}.get
        self.assertEqual(found, [*doctor._unknown_lvs(backend)])

    def test_lv_of_a_volume_whose_row_names_a_former_home(self):
        """Cinder has written the home too late; the LV is the only copy."""
        lv = 'volume-record'
        row = images.volume('v', 'a@l', name_id='record', name=lv,
                            status='available')
        for each, found in ((row, []), (None, [lv]),
                            (images.volume('v', 'a@l'), [lv])):
            self.check(found, lv, each, 'b@l')

    def test_node_that_was_forgotten_and_is_back(self):
        """Its volume was given up; the row names its LV, at another node."""
        row = images.volume('v', 'c@l', status='error')
        self.check([row.name], row.name, row, 'c@l')

    def test_home_that_is_corrected_meanwhile(self):
        """The list of the node's volumes was read before."""
        row = images.volume('v', 'b@l', status='available')
        self.check([], row.name, row, 'b@l')

    def test_copied_disk(self):
        """The volume is at home elsewhere, also by its service."""
        row = images.volume('v', 'c@l', status='available')
        self.check([row.name], row.name, row, 'c@l')
