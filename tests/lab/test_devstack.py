# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, on a machine that is a directory.

Each test runs the phases as stack.sh, unstack.sh and clean.sh do, twice: with
stand-ins for DevStack's functions (``devstack/functions`` beside this file
says what they do), and with the real ones where $DEVSTACK names a checkout.
Commands are links to ``devstack/commands``; nothing outside of the directory
is touched.
"""

import os

import testtools

from cinder_localclone.core import names
from tests.helpers import needs
from tests.lab.devstack import machine

#: A volume, a move of it, and another volume.
VOLUME = '0a1b2c3d-0000-4000-8000-00000000000%d'
ONE, MOVE, OTHER = (VOLUME % number for number in range(3))
#: The LV of a deleted volume, of a thick backend.
TO_WIPE = names.to_wipe('h@localclone', '0123456789ab')
STACK = '''
set -o errexit
source $FUNCTIONS
run_phase override_defaults
libraries
run_phase source
run_phase stack pre-install
configure_cinder
run_phase stack install
init_cinder
run_phase stack post-config
run_phase stack extra
run_phase stack test-config
echo STACKED
'''
UNSTACK = '''
source $FUNCTIONS
set +o errexit
run_phase override_defaults
libraries
load_plugin_settings
run_phase unstack
cleanup_cinder || /bin/true
'''
# It does not read override-defaults.
CLEAN = UNSTACK.replace('run_phase override_defaults\n', '').replace(
    'unstack', 'clean')


class Phases:
    """What each phase does and leaves."""

    functions = None

    def setUp(self):
        super().setUp()
        needs.programs(self, 'bash')
        self.machine = self.useFixture(machine.Machine(self.functions))

    def stack(self, **variables):
        printed, code = self.machine.run(STACK, **variables)
        self.assertEqual(0, code, printed)
        self.assertIn('STACKED', printed)
        return printed

    def unstack(self, **variables):
        return self.machine.run(UNSTACK, **variables)[0]

    def clean(self, **variables):
        return (self.unstack(**variables)
                + self.machine.run(CLEAN, **variables)[0])

    def options(self, section):
        """A section of cinder.conf, or of the stand-ins' notes of it."""
        text = self.machine.read('etc/cinder/cinder.conf')
        if self.functions == 'functions':
            lines = [line.removeprefix(section + ' ')
                     for line in text.splitlines()
                     if line.startswith(section + ' ')]
        else:
            lines = text.partition('[%s]\n' % section)[2].partition(
                '\n[')[0].splitlines()
        return [line for line in lines if ' = ' in line]

    def group(self, name='stack-volumes-localclone', lvs=()):
        """A group that is there already."""
        self.machine.write('lvm/%s.disks' % name, '/dev/vdz\n')
        (self.machine.path / 'lvm' / name).mkdir()
        for each in lvs:
            self.machine.write('lvm/%s/%s' % (name, each), '')

    def device(self, name, *below, uuid='LOCALCLONE-%s'):
        self.machine.write('dm/' + name, '\n'.join((
            uuid % name, *below)) + '\n')

    def volumes(self, group='stack-volumes-localclone'):
        """A volume that moves here, one that is served from here."""
        for lv in ('volume-' + ONE, 'localclone-meta-' + MOVE,
                   'volume-' + OTHER, '_snapshot-' + OTHER, TO_WIPE):
            self.machine.write('lvm/%s/%s' % (group, lv), '')
        clone, handle, source, served = (
            'localclone-clone-' + MOVE, 'localclone-' + ONE,
            'localclone-source-' + OTHER, 'localclone-' + OTHER)
        self.device(clone, '%s/volume-%s' % (group, ONE),
                    '%s/localclone-meta-%s' % (group, MOVE))
        self.device(handle, clone)
        self.device('localclone-crypt-' + ONE, handle,
                    uuid='CRYPT-LUKS2-0123456789abcdef0123456789abcdef-%s')
        self.device(served, '%s/volume-%s' % (group, OTHER))
        self.device(source, served)
        self.imported('localclone-' + MOVE)
        self.export('localclone-' + OTHER, source)
        self.machine.path.joinpath('links').mkdir(exist_ok=True)
        self.machine.path.joinpath('links', ONE).symlink_to('/dev/null')

    def imported(self, name):
        iqn = 'iqn.2010-10.org.openstack:' + name
        for file, text in (
                ('session', 'tcp: [1] 192.0.2.12:3260,1 %s (non-flash)\n'),
                ('node', '192.0.2.12:3260,1 %s\n')):
            self.machine.write(file, self.machine.read(file) + text % iqn)

    def export(self, name, device):
        target = self.machine.path / 'target'
        store = target / 'core/iblock_0' / device
        store.mkdir(parents=True)
        tpg = target / 'iscsi' / ('iqn.2010-10.org.openstack:' + name) / (
            'tpgt_1')
        lun, mapped = tpg / 'lun/lun_0', tpg / 'acls/iqn.peer/lun_0'
        for each in (lun, mapped, tpg / 'np/192.0.2.11:3260'):
            each.mkdir(parents=True)
        (lun / 'store').symlink_to(store)
        (mapped / 'lun').symlink_to(lun)
        (tpg / 'enable').write_text('1')

    def assertNothingLeft(self):
        self.assertEqual({'iscsi/initiatorname.iscsi'}, {
            name for name in self.machine.etc
            if 'localclone' in name or name.startswith('iscsi/')})
        self.assertEqual({}, self.machine.volume_groups)
        for name in ('dm', 'target/iscsi', 'target/core', 'usr/local/bin',
                     'data'):
            # clean.sh itself removes what lib/cinder has made.
            self.assertEqual(set(), set(os.listdir(
                self.machine.path / name)) - {'cinder'}, name)
        for name in ('session', 'node', 'enabled'):
            self.assertEqual('', self.machine.read(name), name)

    # -- stack

    def test_a_node_is_made_ready(self):
        self.stack()
        self.assertEqual({'stack-volumes-localclone': {
            'stack-volumes-localclone-pool'}}, self.machine.volume_groups)
        self.assertEqual([
            'lvm_type = thin',
            'target_ip_address = 192.0.2.11', 'target_port = 3260',
            'target_prefix = iqn.2010-10.org.openstack:',
            'volume_backend_name = localclone', 'volume_clear = zero',
            'volume_driver = cinder_localclone.driver.LocalCloneDriver',
            'volume_group = stack-volumes-localclone'], sorted(
                each for each in self.options('localclone')
                if 'image_volume_cache' not in each))
        self.assertEqual([
            'osapi_volume_extension = cinder.api.contrib.standard_extensions',
            'osapi_volume_extension = cinder_localclone.service.messages.'
            'load'], [each for each in self.options('DEFAULT')
                      if each.startswith('osapi_volume_extension')])
        self.assertIn('cross_az_attach = True',
                      self.machine.read('etc/nova/nova.conf'))
        for source, target in (
                ('udev/rules.d/11-localclone.rules',) * 2,
                ('cinder/rootwrap.d/localclone.filters',) * 2,
                ('systemd/cinder-localclone-restore.service',
                 'systemd/system/cinder-localclone-restore.service'),
                ('systemd/cinder-localclone-unlock.service',
                 'systemd/system/cinder-localclone-unlock.service')):
            self.assertEqual((machine.REPO / 'etc' / source).read_text(),
                             self.machine.read('etc/' + target))
        self.assertEqual([
            'dm-thin-pool', 'iscsi_tcp', 'configfs', 'target_core_mod',
            'target_core_iblock', 'iscsi_target_mod', 'dm-clone'],
            self.machine.read(
                'etc/modules-load.d/cinder-localclone.conf').split())
        log = self.machine.read('log')
        self.assertIn('setup_develop %s\n' % machine.REPO, log)
        self.assertIn('cinder-localclone --backend localclone doctor', log)

    def test_novas_scheduler_is_told_where_volumes_are(self):
        services = 'key,n-cpu,n-sch,c-api,c-vol'
        self.stack(ENABLED_SERVICES=services)
        self.stack(ENABLED_SERVICES=services)
        conf = self.machine.read('etc/nova/nova.conf')
        module = 'cinder_localclone.nova.scheduler'
        there = (machine.REPO / (module.replace('.', '/') + '.py')).exists()
        for line in (
                'available_filters = nova.scheduler.filters.all_filters',
                'available_filters = %s.LocalCloneFilter' % module,
                'weight_classes = nova.scheduler.weights.all_weighers,'
                '%s.LocalCloneWeigher' % module):
            self.assertEqual(there, line + '\n' in conf + '\n', line)
        self.assertEqual(int(there), conf.count(',LocalCloneFilter\n'))
        self.assertIn('HostFilter,LocalCloneFilter\n' * there, conf)

    def test_novas_scheduler_may_do_without(self):
        self.stack(ENABLED_SERVICES='key,n-cpu,n-sch,c-api,c-vol',
                   LOCALCLONE_PLACEMENT='False')
        self.assertNotIn('LocalClone', self.machine.read('etc/nova/nova.conf'))

    def test_the_pool_zeroes_and_leaves_room(self):
        self.stack()
        self.assertIn(
            '\nlvcreate --yes --type thin-pool --zero y --extents 95%FREE '
            '--name stack-volumes-localclone-pool stack-volumes-localclone\n',
            self.machine.read('log'))

    def test_thick_volumes_have_no_pool(self):
        self.stack(LOCALCLONE_LVM_TYPE='default')
        self.assertEqual({'stack-volumes-localclone': set()},
                         self.machine.volume_groups)
        self.assertIn('lvm_type = default', self.options('localclone'))

    def test_the_unit_restores_before_devstacks_services(self):
        self.stack(CINDER_ENABLED_BACKENDS='localclone:a,lvm:b,localclone:c')
        drop_in = self.machine.read(
            'etc/systemd/system/cinder-localclone-restore.service.d/'
            'devstack.conf')
        command = '%s/bin/cinder-localclone' % self.machine.path
        self.assertEqual([
            '[Unit]',
            'After=stack-volumes-a-backing-file.service',
            'After=stack-volumes-c-backing-file.service',
            'Before=devstack@n-cpu.service', 'Before=devstack@c-vol.service',
            '[Service]', 'ExecStart=',
            'ExecStart=-%s --backend a node restore' % command,
            'ExecStart=%s --backend c node restore' % command,
        ], drop_in.splitlines())
        self.assertIn('cinder-localclone-restore.service',
                      self.machine.read('enabled'))
        self.assertNotIn('unlock', self.machine.read('enabled'))

    def test_encrypted_volumes_are_opened_where_they_are_wanted(self):
        self.stack(LOCALCLONE_UNLOCK='True')
        self.assertIn('cinder-localclone-unlock.service',
                      self.machine.read('enabled'))
        drop_in = self.machine.read(
            'etc/systemd/system/cinder-localclone-unlock.service.d/'
            'devstack.conf')
        self.assertNotIn('c-vol', drop_in)
        self.assertIn('ExecStart=-%s/bin/cinder-localclone --backend '
                      'localclone node unlock\n' % self.machine.path, drop_in)

    def test_beside_lvm(self):
        self.stack(CINDER_ENABLED_BACKENDS='lvm:lvmdriver-1,localclone:lc')
        self.assertIn('volume_group = stack-volumes-lc', self.options('lc'))
        self.assertIn('stack-volumes-lc', self.machine.volume_groups)

    def test_lvm_looks_at_nothing_else_before_there_are_volumes(self):
        self.stack(CINDER_ENABLED_BACKENDS='localclone:lc,lvm:lvmdriver-1')
        if self.functions == 'functions':
            log = self.machine.read('log')
            self.assertTrue(log.index('vgcreate')
                            < log.index('set_lvm_filter')
                            < log.index('doctor'))
        else:
            self.assertIn('global_filter = [ "a|loop7|", "a|loop7|", "r|.*|"',
                          self.machine.read('etc/lvm/lvm.conf'))

    def test_disks_that_are_given(self):
        self.stack(LOCALCLONE_DEVICES='/dev/vdb /dev/vdc',
                   LOCALCLONE_VOLUME_GROUP='cinder-volumes')
        self.assertEqual({'cinder-volumes'}, set(self.machine.volume_groups))
        self.assertEqual('/dev/vdb\n/dev/vdc\n',
                         self.machine.read('lvm/cinder-volumes.disks'))

    def test_a_disk_with_something_on_it_is_not_taken(self):
        self.machine.write('signed', '/dev/vdc\n')
        printed, code = self.machine.run(
            STACK, LOCALCLONE_DEVICES='/dev/vdb /dev/vdc')
        self.assertTrue(code)
        self.assertIn('/dev/vdc is not blank', printed)
        self.assertEqual({}, self.machine.volume_groups)

    def test_a_kernel_without_dm_clone(self):
        self.machine.write('no-modules', 'dm-clone\n')
        printed = self.stack()
        self.assertIn('The kernel 6.1.0-test has no dm-clone '
                      '(CONFIG_DM_CLONE). Volumes can be made and used here, '
                      'and can move away; none can move to this node: use a '
                      'kernel with CONFIG_DM_CLONE', printed)
        self.assertNotIn('dm-clone', self.machine.read(
            'etc/modules-load.d/cinder-localclone.conf'))

    def test_a_kernel_without_dm_clone_where_one_is_required(self):
        self.machine.write('no-modules', 'dm-clone\n')
        printed, code = self.machine.run(STACK,
                                         LOCALCLONE_REQUIRE_CLONE='True')
        self.assertTrue(code)
        self.assertIn('The kernel 6.1.0-test has no dm-clone: use a kernel '
                      'with CONFIG_DM_CLONE', printed)

    def test_a_kernel_without_a_target(self):
        self.machine.write('no-modules', 'iscsi_target_mod\n')
        printed, code = self.machine.run(STACK)
        self.assertTrue(code)
        self.assertIn('has no iscsi_target_mod: use one with '
                      'CONFIG_ISCSI_TARGET', printed)

    def test_ubuntu_has_modules_in_a_package_of_its_own(self):
        self.machine.write('no-modules', 'dm-clone\n')
        self.stack(DISTRIBUTOR='Ubuntu')
        self.assertRegex(self.machine.read('log'),
                         r'apt-get .*linux-modules-extra-6\.1\.0-test\n')

    def test_what_does_not_go_together(self):
        for text, variables in (
                ('for one backend', {
                    'CINDER_ENABLED_BACKENDS': 'localclone:a,localclone:b',
                    'LOCALCLONE_DEVICES': '/dev/vdb'}),
                ('CINDER_TARGET_HELPER=lioadm', {
                    'CINDER_TARGET_HELPER': 'tgtadm'}),
                ('thin or default', {'LOCALCLONE_LVM_TYPE': 'thick'})):
            printed, code = self.machine.run(STACK, **variables)
            self.assertTrue(code)
            self.assertIn(text, printed)
            self.assertEqual(set(), {
                name for name in self.machine.etc if 'localclone' in name})

    def test_an_initiator_without_a_name_gets_one(self):
        path = 'etc/iscsi/initiatorname.iscsi'
        self.machine.write(path, '')
        (self.machine.path / path).unlink()
        self.stack()
        self.assertEqual('InitiatorName=iqn.2026-11.org.example:made\n',
                         self.machine.read(path))
        self.clean()
        self.assertEqual('', self.machine.read(path))

    def test_a_controller_without_volumes(self):
        services = 'key,c-api,c-sch'
        self.stack(ENABLED_SERVICES=services)
        self.assertIn(
            'osapi_volume_extension = cinder_localclone.service.messages.load',
            self.options('DEFAULT'))
        self.assertEqual({}, self.machine.volume_groups)
        self.assertNotIn('modprobe', self.machine.read('log'))
        self.clean(ENABLED_SERVICES=services)
        self.assertNothingLeft()

    def test_a_node_without_cinder(self):
        self.stack(ENABLED_SERVICES='key,mysql')
        self.assertNotIn('setup_develop', self.machine.read('log'))
        self.assertNothingLeft()

    # -- again

    def test_stack_again(self):
        self.stack()
        before = (self.machine.etc, self.machine.volume_groups,
                  self.machine.read('data/cinder-localclone/made'))
        self.volumes()
        self.stack()
        self.assertEqual(before, (
            self.machine.etc, self.machine.volume_groups,
            self.machine.read('data/cinder-localclone/made')))
        self.assertEqual(1, self.machine.read('log').count('\nlvcreate '))

    def test_volumes_in_use_end_it(self):
        self.stack()
        self.volumes()
        self.device('guest', 'localclone-' + ONE, uuid='other-%s')
        printed, code = self.machine.run(STACK)
        self.assertTrue(code)
        self.assertIn('there is left:\nlocalclone-' + ONE, printed)

    # -- unstack and clean

    def test_unstack_removes_volumes_and_group(self):
        self.stack()
        self.volumes()
        self.unstack()
        self.assertEqual({}, self.machine.volume_groups)
        for name in ('dm', 'target/iscsi', 'target/core', 'links'):
            self.assertEqual([], os.listdir(self.machine.path / name), name)
        for name in ('session', 'node', 'enabled'):
            self.assertEqual('', self.machine.read(name), name)

    def test_exports_go_before_their_devices_and_sessions_before_clones(self):
        self.stack()
        self.volumes()
        self.unstack()
        log = self.machine.read('log')
        self.assertTrue(
            log.index('rmdir %s/target/core' % self.machine.path)
            < log.index('--logout') < log.index('dmsetup remove')
            < log.index('lvremove'))

    def test_what_cryptsetup_has_below_goes_too(self):
        self.stack()
        self.volumes()
        handle, uuid = 'localclone-' + OTHER, 'CRYPT-SUBDEV-%s-%%s' % (
            '0123456789abcdef' * 2)
        tags = 'localclone-crypt-%s_dif' % OTHER
        self.device(tags, handle, uuid=uuid)
        overlay = 'localclone-crypt-%s-overlay' % OTHER
        self.device(overlay, tags, uuid=uuid)
        self.device('localclone-crypt-' + OTHER, overlay,
                    uuid=uuid.replace('SUBDEV', 'LUKS2'))
        self.device('localclone-crypt-%s-hotzone-forward' % OTHER, tags,
                    uuid=uuid)
        self.unstack()
        self.assertEqual([], os.listdir(self.machine.path / 'dm'))
        self.assertEqual({}, self.machine.volume_groups)

    def test_a_re_encryption_ends_before_its_devices_go(self):
        self.stack()
        self.volumes()
        self.unstack()
        log = self.machine.read('log')
        self.assertLess(
            log.index('systemctl stop localclone-reencrypt-%s.service' % ONE),
            log.index('dmsetup remove'))

    def test_clean_leaves_nothing(self):
        self.stack()
        self.volumes()
        self.clean()
        self.assertNothingLeft()

    def test_clean_goes_by_the_list_alone(self):
        self.stack()
        self.volumes()
        self.machine.run(CLEAN)
        self.assertEqual({}, self.machine.volume_groups)
        self.assertFalse(self.machine.path.joinpath(
            'data/cinder-localclone').exists())

    def test_clean_twice_and_without_stack(self):
        self.clean()
        self.assertNothingLeft()
        self.stack()
        self.clean()
        self.clean()
        self.assertNothingLeft()

    def test_clean_of_a_stack_that_failed(self):
        self.machine.write('signed', '/dev/vdb\n')
        self.machine.run(STACK, LOCALCLONE_DEVICES='/dev/vdb')
        self.clean(LOCALCLONE_DEVICES='/dev/vdb')
        self.assertNothingLeft()
        self.assertEqual('', self.machine.read('blank'))

    def test_disks_are_blank_afterwards(self):
        self.stack(LOCALCLONE_DEVICES='/dev/vdb /dev/vdc')
        self.clean(LOCALCLONE_DEVICES='/dev/vdb /dev/vdc')
        self.assertNothingLeft()
        self.assertEqual({'/dev/vdb', '/dev/vdc'},
                         set(self.machine.read('blank').split()))

    def test_what_was_there_before_stays(self):
        group = 'cinder-volumes'
        lvs = {'mine', 'volume-' + ONE, 'cinder-volumes-pool',
               names.to_wipe('h@other', '0123456789ab')}
        self.group(group, lvs)
        self.device('localclone-' + ONE, '%s/volume-%s' % (group, ONE))
        self.device('mine', group + '/mine', uuid='LVM-%s')
        self.imported('volume-' + OTHER)
        self.machine.write('etc/udev/rules.d/11-localclone.rules', '# mine\n')
        printed = self.stack(LOCALCLONE_VOLUME_GROUP=group)
        self.assertIn('11-localclone.rules is not of this plugin', printed)
        self.assertIn('cinder-volumes is there already', printed)
        for lv in 'volume-' + OTHER, TO_WIPE:
            self.machine.write('lvm/%s/%s' % (group, lv), '')
        self.device('localclone-' + OTHER, '%s/volume-%s' % (group, OTHER))
        self.clean(LOCALCLONE_VOLUME_GROUP=group)
        self.assertEqual({group: lvs}, self.machine.volume_groups)
        self.assertEqual({'localclone-' + ONE, 'mine'},
                         set(os.listdir(self.machine.path / 'dm')))
        self.assertIn('volume-' + OTHER, self.machine.read('session'))
        self.assertEqual('# mine\n', self.machine.read(
            'etc/udev/rules.d/11-localclone.rules'))
        self.assertFalse(self.machine.path.joinpath(
            'data/cinder-localclone').exists())

    def test_a_pool_in_a_group_that_stays(self):
        group = 'cinder-volumes'
        self.group(group, {'mine'})
        self.stack(LOCALCLONE_VOLUME_GROUP=group)
        self.assertIn('cinder-volumes-pool',
                      self.machine.volume_groups[group])
        self.clean(LOCALCLONE_VOLUME_GROUP=group)
        self.assertEqual({group: {'mine'}}, self.machine.volume_groups)

    def test_a_pool_with_somebody_elses_volume_stays(self):
        group = 'cinder-volumes'
        self.group(group)
        self.stack(LOCALCLONE_VOLUME_GROUP=group)
        self.machine.write('lvm/%s/mine' % group, 'cinder-volumes-pool')
        self.clean(LOCALCLONE_VOLUME_GROUP=group)
        self.assertEqual({group: {'mine', 'cinder-volumes-pool'}},
                         self.machine.volume_groups)

    def test_a_volume_in_use_keeps_its_group(self):
        self.stack()
        self.volumes()
        self.device('guest', 'localclone-' + ONE, uuid='other-%s')
        self.assertIn('are still in use', self.unstack())
        self.assertIn('volume-' + ONE, self.machine.volume_groups[
            'stack-volumes-localclone'])
        (self.machine.path / 'dm/guest').unlink()
        self.clean()
        self.assertNothingLeft()


class StandInTest(Phases, testtools.TestCase):

    functions = 'functions'


if machine.CHECKOUT:

    class CheckoutTest(Phases, testtools.TestCase):

        functions = 'checkout'
