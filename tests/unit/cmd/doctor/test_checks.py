# SPDX-License-Identifier: Apache-2.0
"""The doctor's checks of a node."""

import dataclasses
import os
import pathlib
import sys
import types

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.service import options
from tests.helpers.node_rows import lv


@ddt.ddt
class ChecksTest(testtools.TestCase):

    def only(self, findings, verdict):
        return [each for each in findings if each.verdict == verdict]

    def test_commands(self):
        self.assertEqual([], self.only(checks.commands(
            lambda name: '/x/' + name), checks.FAIL))
        found, = checks.commands(
            lambda name: None if name in ('lvs', 'dmsetup') else 'x',
            packages.DEB)
        self.assertEqual('apt install dmsetup lvm2', found.fix)

    def test_targets(self):
        text = 'thin-pool        v1.22.0\nclone            v1.0.0\n'
        self.assertEqual(2, len(self.only(checks.targets(text), checks.OK)))
        found, = self.only(checks.targets('thin-pool v1\n'), checks.FAIL)
        self.assertIn('CONFIG_DM_CLONE', found.fix)
        found, = self.only(checks.targets('clone v1\n'), checks.FAIL)
        self.assertEqual('modprobe dm-thin-pool', found.fix)

    @ddt.data(
        ('debian', '12', '6.1.0-57-amd64', 'apt install ./cinder-localclone-'
         'dkms_*_all.deb'),
        ('rocky', '10.1', '6.12.0-211.el10.x86_64',
         'dnf install ./cinder-localclone-dkms-*.noarch.rpm'),
        ('ubuntu', '24.04', '6.8.0-60-generic',
         'apt install linux-image-generic'),
        ('sles', '16.0', '6.12.0-160000.5-default',
         'zypper install kernel-default'),
        ('debian', '13', '7.0.14-14-pve', 'modprobe dm-clone'))
    @ddt.unpack
    def test_dm_clone_on_each_distribution(self, name, version, kernel, fix):
        found, = self.only(checks.targets(
            'thin-pool v1\n', {'ID': name, 'VERSION_ID': version}, kernel),
            checks.FAIL)
        self.assertEqual('kernel: dm-clone', found.check)
        self.assertEqual(fix, found.fix)
        self.assertIn('no volume can move to this node', found.details)

    def test_iscsi_target_in_a_package_of_its_own(self):
        ubuntu = {'ID': 'ubuntu', 'VERSION_ID': '24.04'}
        for missing, fix in (
                ('iscsi_target_mod',
                 'apt install linux-modules-extra-$(uname -r)'),
                ('target_core_mod', 'modprobe -a target_core_mod;')):
            found, = self.only(checks.modules(
                lambda name: name != missing, ubuntu, '6.8.0-60-generic'),
                checks.FAIL)
            self.assertEqual(fix, found.fix[:len(fix)])

    def test_modules(self):
        self.assertEqual([checks.OK] * 2, [
            each.verdict for each in checks.modules(lambda name: True)])
        found, = self.only(checks.modules(
            lambda name: name != 'target_core_iblock'), checks.FAIL)
        self.assertEqual('kernel: iSCSI target', found.check)
        self.assertIn('modprobe -a target_core_iblock;', found.fix)
        self.assertIn('CONFIG_TCM_IBLOCK', found.fix)
        self.assertNotIn('CONFIG_ISCSI_TARGET', found.fix)
        found, = self.only(checks.modules(
            lambda name: name != 'iscsi_tcp'), checks.FAIL)
        self.assertEqual('kernel: iSCSI initiator', found.check)

    def rule_directories(self, *texts):
        """Directories of udev rules; None: without the driver's."""
        found = []
        for text in texts:
            found.append(self.useFixture(fixtures.TempDir()).path)
            if text is not None:
                with open(os.path.join(found[-1], checks.RULES), 'w') as file:
                    file.write(text)
        return found

    OURS = (pathlib.Path(__file__).parents[4] / 'etc/udev/rules.d'
            / checks.RULES).read_text()

    @ddt.data(((None, OURS), checks.OK, ''), ((OURS, 'old'), checks.OK, ''),
              ((None, None), checks.WARN, 'is not installed'),
              (('old: LOCALCLONE-*', OURS), checks.WARN, 'another version'))
    @ddt.unpack
    def test_rules(self, texts, verdict, words):
        directories = self.rule_directories(*texts)
        found, = checks.rules(directories)
        self.assertEqual(verdict, found.verdict)
        self.assertIn(words, found.details)
        self.assertEqual(verdict == checks.OK, not found.fix)
        if words:
            self.assertIn('cp %s/lib/udev/rules.d/11-localclone.rules '
                          '/etc/udev/rules.d/;' % sys.prefix, found.fix)

    @ddt.data('LOCALCLONE-*', '*localclone-????????-', '*remote-',
              'CRYPT-SUBDEV-*', '*-volume--', '*-_snapshot--',
              '*-localclone--meta--', '*-localclone--wipe--')
    def test_rules_without_a_device(self, device):
        """An older version has had no rule for it."""
        self.assertIn(device, self.OURS)
        found, = checks.rules(self.rule_directories(
            self.OURS.replace(device, 'x')))
        self.assertEqual(checks.WARN, found.verdict)

    def test_rules_that_are_masked(self):
        masked, ours = self.rule_directories(None, self.OURS)
        os.symlink('/dev/null', os.path.join(masked, checks.RULES))
        found, = checks.rules([masked, ours])
        self.assertEqual(checks.WARN, found.verdict)

    @ddt.data(
        ('use_devicesfile=1\nglobal_filter=["a|.*|"]', []),
        ('global_filter=["a|.*|"]\nfilter=["a|.*|"]',
         ['volumes', 'imported disks']),
        ('filter=["a|^/dev/vd[ab]$|","r|.*|"]\nglobal_filter=["a|.*|"]', []),
        ('use_devicesfile=0\nglobal_filter=["a|^/dev/sd|","r|.*|"]',
         ['imported disks']),
        # Whatever else the disk is called: the link is a name that counts.
        ('global_filter=["r|^/dev/disk/by-id/scsi-localclone-|"]',
         ['volumes']),
        ('global_filter="r|^/dev/mapper/localclone-|"', ['imported disks']),
        (r'global_filter=["r|/dev/mapper/.*|","r/\/dev\/sd.*/"]', []),
        # What is accepted first is not rejected afterwards.
        ('global_filter=["a|.*|","r|.*|"]', ['volumes', 'imported disks']))
    @ddt.unpack
    def test_lvm_filter(self, text, seen):
        found, = checks.lvm_filter(text)
        self.assertEqual(checks.WARN if seen else checks.OK, found.verdict)
        self.assertEqual(bool(seen), 'global_filter' in found.fix)
        for what in checks.GUESTS:
            self.assertEqual(what in seen, what in found.details, found)

    def groups(self, broken, message):
        def look(group):
            if group == broken:
                raise exceptions.CommandFailed(
                    command='vgs', code=5, stderr=message)
        return checks.groups({
            'volume_group': 'cinder-volumes',
            'localclone_metadata_volume_group': 'fast'}, look)

    @ddt.data(('fast', 'localclone_metadata_volume_group'),
              ('cinder-volumes', 'volume_group'))
    @ddt.unpack
    def test_missing_group_is_the_one_to_make(self, group, option):
        found, = self.only(self.groups(
            group, 'Volume group "%s" not found' % group), checks.FAIL)
        self.assertEqual('vgcreate %s /dev/DISK, or correct %s' % (
            group, option), found.fix)

    def test_group_that_is_there_is_not_to_be_made(self):
        found, = self.only(self.groups(
            'fast', 'cannot read /dev/sdb'), checks.FAIL)
        self.assertNotIn('vgcreate', found.fix)
        self.assertEqual([], self.only(self.groups(None, ''), checks.FAIL))

    @ddt.data((True, 10, 10, []), (False, 10, 10, ['thin pool zeroes']),
              (True, 85, 10, ['thin pool data']),
              (True, 95, 10, ['thin pool data']),
              (True, 10, 79, []), (True, 10, 85, ['thin pool metadata']))
    @ddt.unpack
    def test_pool(self, zeroes, data, meta, wrong):
        found = self.pool(data, meta, 64, zeroes)
        self.assertEqual(wrong, [each.check for each in found
                                 if each.verdict != checks.OK])

    @staticmethod
    def pool(data, metadata, metadata_mib, zeroes=True):
        return checks.pool('g', 'p', {'p': dataclasses.replace(
            lv('p'), size=100, zeroes=zeroes, allocated=data,
            metadata_size=metadata_mib << 20,
            metadata_used=metadata * (metadata_mib << 20) // 100)})

    @ddt.data((94, 0, 64, checks.WARN), (95, 0, 64, checks.FAIL),
              (0, 89, 64, checks.WARN), (0, 91, 64, checks.FAIL),
              # LVM reserves more of a small one.
              (0, 64, 4, checks.OK), (0, 66, 4, checks.WARN),
              (0, 76, 4, checks.FAIL))
    @ddt.unpack
    def test_pool_that_takes_nothing_new(self, data, metadata, mib, verdict):
        self.assertEqual(verdict, max(
            (each.verdict for each in self.pool(data, metadata, mib)),
            key=[checks.OK, checks.WARN, checks.FAIL].index))

    def conf(self, **more):
        return types.SimpleNamespace(**dict({
            'localclone_peer_timeout': 40,
            'localclone_region_size_kib': 64}, **more))

    def test_limits(self):
        self.assertEqual(checks.OK, checks.limits(self.conf(), 60)[0].verdict)
        self.assertIn('gives up first', checks.limits(
            self.conf(localclone_peer_timeout=60), 60)[0].details)
        self.assertIn('power of two', checks.limits(
            self.conf(localclone_region_size_kib=65), 60)[0].details)

    @ddt.data((64, 512, 32), (1024, 32, 2), (4, 8192, 512))
    @ddt.unpack
    def test_as_many_regions_as_so_many_bytes_are(self, kib, threshold,
                                                  batch):
        self.assertEqual(
            state.Geometry(2 * kib, threshold, batch), options.geometry(
                self.conf(localclone_region_size_kib=kib)))

    @ddt.data((100, checks.OK), (104, checks.WARN), (95, checks.WARN))
    @ddt.unpack
    def test_clock(self, theirs, verdict):
        found, = checks.clock('h', theirs, 99.5, 100.5)
        self.assertEqual(verdict, found.verdict)
