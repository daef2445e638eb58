# SPDX-License-Identifier: Apache-2.0
"""What is asked of LVM."""

import inspect
import os
from unittest import mock

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.service import options
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands
from tests.helpers import configured
from tests.helpers import entry_points

JSON = '--reportformat json --units b --nosuffix '
OWN = 'volume-bc5cfce0-cd3d-4029-88f4-3c64da986803'
EXISTS = '  Logical Volume "v" already exists in volume group "g"'
REQUIRE = configuration.require_groups
#: All that changes a group's metadata, of group g.
CHANGES = (
    lambda: lvm.create_thin('g', 'p', 'v', 1 << 30, ['a', 'b=c'], 30),
    lambda: lvm.create_thick('g', 'v', 4 << 20, ['a'], 30),
    lambda: lvm.create_snapshot('g', 'v', '_s', True, ['a', 'b=c'], 30),
    lambda: lvm.extend('g', 'v', 1, 30),
    lambda: lvm.add_tag('g', 'v', 't', 30),
    lambda: lvm.remove_tag('g', 'v', 't', 30),
    lambda: lvm.retag('g', 'v', ['t'], [], 30),
    lambda: lvm.retag_group('g', ['t'], ['u'], 30),
    lambda: lvm.rename('g', 'v', 'w', 30),
    lambda: lvm.protect('g', 'v', 30),
    lambda: lvm.skip_activation('g', 'v', 30),
    lambda: lvm.remove('g', OWN, 30))


class OwnTest(commands.Case):
    """A caller changes nothing but LVs of the driver's own groups."""

    def test_another_group(self):
        calls = [(name, list(inspect.signature(function).parameters))
                 for name, function in entry_points.entry_points(
                     'lvm').items()]
        self.useFixture(configured.Configured({'other': {
            'volume_group': 'stock', 'volume_driver': 'cinder.lvm'}},
            volume_driver=options.DRIVER, volume_group='g'))
        with mock.patch.object(configuration, 'require_groups', REQUIRE):
            for name, parameters in calls:
                if parameters[0] not in ('group', 'groups'):
                    continue
                for group in ('stock', '--config', '@tag', 'g/v'):
                    given = [[group] if each == 'groups' else group if (
                        each == 'group') else 30 for each in parameters]
                    error = self.assertRaises(exceptions.ForeignGroup,
                                              getattr(lvm, name), *given)
                    self.assertIn('helper_command', str(error))
        self.assertRan()

    def test_names_that_are_options(self):
        for call in (lambda: lvm.rename('g', '--all', 'w', 30),
                     lambda: lvm.rename('g', 'v', '-f', 30),
                     lambda: lvm.create_thick('g', '-Zy', 1, [], 30),
                     lambda: lvm.protect('g', 'v/../w', 30)):
            self.assertRaises(exceptions.Foreign, call)
        self.assertRan()

    def test_removes_nothing_that_nobody_has_named_by_an_id(self):
        for name in ('root', 'home-2', 'localclone-pool'):
            self.assertRaises(exceptions.Foreign, lvm.remove, 'g', name, 30)
        self.assertRan()

    def test_resumes_its_own(self):
        with mock.patch.object(lower, 'is_own_lv', return_value=False):
            self.assertRaises(exceptions.Foreign, lvm.resume, '253:1', 30)
        self.assertRan()

    def test_zeroes_what_its_path_leads_to(self):
        self.commands.answer('lvs', 'localclone.fresh,localclone.volume='
                             + OWN[7:])
        with mock.patch.object(sysfs, 'mapped_name', return_value='x'):
            self.assertRaises(
                exceptions.WrongDevice, lvm.zero_decrypted, 'g', 'v',
                'localclone-crypt-' + OWN[7:], 0, 4096, 30)
        self.assertEqual(1, len(self.commands.ran))


class LvmTest(commands.Case):

    def assertRan(self, *lines):
        """These were run; what flushes a group's disks is not looked at."""
        self.commands.ran[:] = [
            line for line in self.commands.ran if not line.startswith(
                'vgs --noheadings -o pv_name')]
        self.assertEqual(list(lines), self.commands.ran)
        self.assertEqual({30}, set(self.commands.limits))

    def test_reports(self):
        self.commands.answer('lvs', 'lvs report')
        self.commands.answer('vgs', 'vgs report')
        self.assertEqual('lvs report', lvm.volumes(['g', 'h'], 30))
        self.assertEqual('vgs report', lvm.free(['g'], 30))
        self.assertRan(
            'lvs ' + JSON + '-o vg_name,lv_name,lv_size,lv_attr,lv_tags,'
            'data_percent,metadata_percent,lv_kernel_major,lv_kernel_minor,'
            'zero,lv_uuid,pool_lv,origin,lv_metadata_size,vg_size,vg_free,'
            'vg_seqno,vg_missing_pv_count '
            'g h',
            'vgs ' + JSON + '-o vg_name,vg_size,vg_free,vg_missing_pv_count '
            'g')

    def test_transactions(self):
        pool = '0 8388608 thin-pool 16 345/4096 20/65536 - rw discard_passdown'
        self.commands.answer('lvs', '   17\n')
        self.commands.answer('dmsetup', pool, times=1)
        self.assertEqual((17, 16), lvm.transactions('g-1', 'g-1-pool', 30))
        self.assertRan('lvs --noheadings -o transaction_id g-1/g-1-pool',
                       'dmsetup status g--1-g--1--pool-tpool')
        self.commands.answer('dmsetup', '0 8388608 thin-pool Fail', times=1)
        self.assertEqual((17, None), lvm.transactions('g', 'p', 30))
        self.commands.answer('dmsetup', code=1, err='No such device')
        self.assertEqual((17, None), lvm.transactions('g', 'p', 30))

    def thin(self):
        return lvm.create_thin('g', 'p', 'v', 1 << 30, ['a', 'b=c'], 30)

    def thick(self):
        return lvm.create_thick('g', 'v', 4 << 20, ['a'], 30)

    def test_create(self):
        self.assertTrue(self.thin())
        self.assertTrue(self.thick())
        self.assertRan(
            'lvcreate --yes --wipesignatures n -V 1073741824b -T g/p -n v '
            '--addtag a --addtag b=c',
            'lvcreate --yes --wipesignatures n --zero n -L 4194304b -n v '
            '--addtag a g')

    def test_striped(self):
        self.assertTrue(lvm.create_thick('g', 'v', 4 << 20, ['a'], 30, 3))
        self.assertRan(
            'lvcreate --yes --wipesignatures n --zero n --type striped '
            '--stripes 3 --stripesize 64k -L 4194304b -n v --addtag a g')

    def test_extent_size(self):
        self.commands.answer('vgs', '  4194304\n')
        self.assertEqual(4 << 20, lvm.extent_size('g', 30))
        self.assertRan('vgs --noheadings --units b --nosuffix -o '
                       'vg_extent_size g')

    def test_free_of_disks(self):
        self.commands.answer('vgs', '  /dev/sda 4194304\n  [unknown] 8\n'
                             '  /dev/sdb 0\n')
        self.assertEqual([4 << 20, 0], lvm.free_of_disks('g', 30))
        self.assertEqual(['vgs --noheadings --units b --nosuffix -o pv_name,'
                          'pv_free g'], self.commands.ran)

    def test_what_exists_is_left(self):
        self.commands.answer('lvcreate', code=5, err=EXISTS)
        self.assertFalse(self.thin())
        self.assertFalse(self.thick())

    def test_no_space(self):
        self.commands.answer('lvcreate', code=5, err='insufficient space')
        self.assertRaises(exceptions.CommandFailed, self.thin)
        self.assertRaises(exceptions.CommandFailed, self.thick)

    def test_each_change_outlives_a_power_cut(self):
        """Each disk of its group is flushed after it."""
        self.commands.answer('vgs', '  /dev/sda \n [unknown]\n  /dev/sdb\n')
        for change in CHANGES:
            del self.commands.ran[:]
            change()
            self.assertEqual(['vgs --noheadings -o pv_name g',
                              'sync /dev/sda /dev/sdb'],
                             self.commands.ran[1:])

    def test_what_the_next_change_flushes(self):
        self.commands.answer('lvcreate', times=1)
        self.commands.answer('lvcreate', code=5, err=EXISTS)
        for created in (True, False):
            self.assertEqual(created, lvm.create_thick(
                'g', 'v', 4 << 20, [], 30, flush=False))
        self.assertEqual(['lvcreate', 'lvcreate'], [
            line.split()[0] for line in self.commands.ran])

    def test_so_does_what_was_changed_before(self):
        """By a service that was killed before it came to flushing it."""
        self.commands.answer('vgs', '  /dev/sda\n')
        self.commands.answer('lv', code=5, err=EXISTS)
        self.assertFalse(CHANGES[0]())
        self.assertEqual('sync /dev/sda', self.commands.ran[-1])

    def test_disks_that_are_gone_are_not_flushed(self):
        self.commands.answer('vgs', ' [unknown]\n')
        CHANGES[0]()
        self.assertEqual(2, len(self.commands.ran))

    def test_activate_and_tag(self):
        lvm.activate('g', 'v', 30)
        lvm.deactivate('g', 'v', 30)
        lvm.add_tag('g', 'v', 'localclone.away', 30)
        lvm.remove_tag('g', 'v', 'localclone.uncommitted', 30)
        self.assertRan('lvchange -ay -K g/v', "lvchange -an --config "
                       "'activation { retry_deactivation = 1 }' g/v",
                       'lvchange --addtag localclone.away g/v',
                       'lvchange --deltag localclone.uncommitted g/v')

    def snapshot(self, writable):
        return lvm.create_snapshot('g', 'v', '_s', writable, ['a', 'b=c'], 30)

    def test_snapshot(self):
        for writable in (False, True):
            self.assertTrue(self.snapshot(writable))
        begin = 'lvcreate --yes --snapshot --permission '
        end = '-n _s --addtag a --addtag b=c g/v'
        # No size: with one it would be no thin snapshot.
        self.assertRan(begin + 'r --setactivationskip y ' + end,
                       begin + 'rw --setactivationskip n ' + end)
        self.commands.answer('lvcreate', code=5, err=EXISTS)
        self.assertFalse(self.snapshot(True))

    def test_extend_and_resume(self):
        lvm.extend('g', 'v', 2 << 30, 30)
        lvm.resume('253:5', 30)
        self.assertRan('lvextend -L 2147483648b g/v',
                       'dmsetup resume -j 253 -m 5')

    def test_what_changes_anything_is_never_killed(self):
        for change in (*CHANGES, lambda: lvm.activate('g', 'v', 30),
                       lambda: lvm.deactivate('g', 'v', 30)):
            del self.commands.graces[:]
            change()
            self.assertEqual(60, self.commands.graces[0])

    def test_adoption(self):
        lvm.retag('g', 'v', ['a=b', 'c'], [], 30)
        lvm.retag('g', 'v', [], ['a=b', 'c'], 30)
        lvm.retag_group('g', ['a=b'], ['c'], 30)
        lvm.rename('g', 'v', 'w', 30)
        lvm.protect('g', 'v', 30)
        lvm.skip_activation('g', 'v', 30)
        self.assertRan('lvchange --addtag a=b --addtag c g/v',
                       'lvchange --deltag a=b --deltag c g/v',
                       'vgchange --addtag a=b --deltag c g',
                       'lvrename g v w', 'lvchange --permission r g/v',
                       'lvchange --setactivationskip y g/v')

    def test_tags_of_a_group(self):
        self.commands.answer('vgs', '  12 a=b,c\n')
        self.assertEqual((12, ['a=b', 'c']), lvm.group_tags('g', 30))
        self.assertRan('vgs --noheadings -o vg_seqno,vg_tags g')

    def test_group_without_tags(self):
        self.commands.answer('vgs', '  12  \n')
        self.assertEqual((12, ['']), lvm.group_tags('g', 30))

    def zero(self, start):
        lvm.zero('g', 'v', start, 4096, 30)

    def on_file(self):
        """The LV is a file; the path of that."""
        path = self.useFixture(fixtures.TempDir()).join('lv')
        with open(path, 'w'):
            pass
        self.useFixture(fixtures.MockPatchObject(
            lvm.names, 'lv_path', autospec=True, return_value=path))
        return path

    def test_what_nobody_has_seen_is_zeroed(self):
        self.on_file()
        self.commands.answer('lvs', '  localclone.volume=x,'
                             'localclone.shown=8192\n')
        self.zero(8192)
        self.assertRan('lvs --noheadings -o lv_tags g/v',
                       'blkdiscard --force --zeroout --offset 8192 '
                       '--length 4096 ' + names.lv_path('g', 'v'))

    def test_command_that_hangs_keeps_others_from_zeroing(self):
        """It may go on once a guest has written there."""
        path, run, left = self.on_file(), lvm.process.run, []

        def hang(*argv, **how):
            if argv[0] == 'blkdiscard':
                left.extend(map(os.dup, how['pass_fds']))
                raise exceptions.CommandTimeout(command='c', seconds=30)
            return run(*argv, **how)
        self.useFixture(fixtures.MockPatchObject(lvm, 'FORKED', 0))
        crypt = 'localclone-crypt-11111111-2222-4333-8444-555555555555'
        zeroes = {
            'localclone.shown=0': lambda: lvm.zero('g', 'v', 0, 4096, 30),
            'localclone.fresh,localclone.volume=' + crypt[-36:]:
                lambda: lvm.zero_decrypted('g', 'v', crypt, 0, 4096, 30)}
        self.useFixture(fixtures.MockPatchObject(
            lvm.sysfs, 'check_mapped', autospec=True))
        for tags, zero in zeroes.items():
            self.commands.answer('lvs', '  %s\n' % tags, times=4)
            with mock.patch.object(lvm.process, 'run', autospec=True,
                                   side_effect=hang):
                self.assertRaises(exceptions.CommandTimeout, zero)
                self.assertTrue(os.path.samestat(
                    os.stat(path), os.fstat(left[0])))
                self.assertRaises(exceptions.Busy, zero)
            self.assertRaises(exceptions.Busy, zero)
            os.close(left.pop())  # as the command ends
            self.assertEqual([], left)
            zero()

    def test_another_command_that_is_about_to_run(self):
        """It is forked in between, and has the lock until it runs."""
        self.commands.answer('lvs', '  localclone.shown=0\n')
        with lvm.process.locked(self.on_file(), 'w', 0) as lock:
            forked = os.dup(lock)
        with mock.patch.object(lvm.process.time, 'sleep', autospec=True,
                               side_effect=lambda _s: os.close(forked)):
            lvm.zero('g', 'v', 0, 4096, 30)

    def test_nothing_else_is_zeroed(self):
        for tags in ('localclone.shown=8193', 'localclone.volume=x', '',
                     'localclone.shown=x', 'localclone.shown=-1'):
            self.commands.answer('lvs', '  %s\n' % tags, times=1)
            self.assertRaises(exceptions.Foreign, self.zero, 8192)

    def test_what_is_decrypted_is_zeroed_before_anybody_has_it(self):
        volume_id = '11111111-2222-4333-8444-555555555555'
        crypt = 'localclone-crypt-' + volume_id
        self.on_file()
        self.commands.answer('lvs', '  localclone.volume=%s,%s\n' % (
            volume_id, 'localclone.fresh'), times=1)
        lvm.zero_decrypted('g', 'v', crypt, 0, 4096, 30)
        self.assertRan('lvs --noheadings -o lv_tags g/v',
                       'blkdiscard --force --zeroout --offset 0 --length 4096 '
                       '/dev/mapper/' + crypt)
        for tags in ('', 'localclone.volume=%s' % volume_id,
                     'localclone.fresh', 'localclone.fresh,'
                     'localclone.volume=%s' % volume_id.replace('1', '2')):
            self.commands.answer('lvs', '  %s\n' % tags, times=1)
            self.assertRaises(exceptions.Foreign, lvm.zero_decrypted, 'g',
                              'v', crypt, 0, 4096, 30)

    def test_remove(self):
        self.assertTrue(lvm.remove('g', OWN, 30))
        self.assertRan("lvremove --force --config 'activation { "
                       "retry_deactivation = 1 }' g/" + OWN)

    def test_what_is_gone_is_removed(self):
        self.commands.answer('lvremove', code=5, err='  Failed to find '
                             'logical volume "g/v"')
        self.assertFalse(lvm.remove('g', OWN, 30))

    def test_what_is_in_use_is_not_removed(self):
        self.commands.answer('lvremove', code=5, err='contains a filesystem '
                             'in use')
        self.assertRaises(exceptions.CommandFailed, lvm.remove, 'g', OWN, 30)
