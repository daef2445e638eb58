# SPDX-License-Identifier: Apache-2.0
"""Builders and parsers, against output captured from real nodes."""

import dataclasses

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.moves import hydration
from cinder_localclone.moves import source_export
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import iscsiadm
from tests.helpers.captured import BUSY

# Linux 6.1.176, dmsetup 1.02.185
FRESH = ('0 2097152 clone 8 6/1024 128 0/16384 0 2 no_hydration '
         'no_discard_passdown 4 hydration_threshold 32 '
         'hydration_batch_size 8 rw')
DONE = BUSY.replace('3800/16384 32', '16384/16384 0')
VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
SHADOW = '51e30e7e-5c89-49f1-ab06-345647e00115'
DEVICES = [
    dm_ioctl.Status('localclone-' + VOLUME, 'LOCALCLONE-localclone-' + VOLUME,
                    '253:7', 1, False, '0 2097152 linear 253:6 0'),
    dm_ioctl.Status(
        'localclone-clone-' + SHADOW, 'LOCALCLONE-localclone-clone-' + SHADOW,
        '253:6', 1, True, '0 2097152 clone 253:4 253:5 8:0 128 2 '
        'no_hydration no_discard_passdown 4 hydration_threshold 32 '
        'hydration_batch_size 8'),
    dm_ioctl.Status('cinder--volumes-volume', 'LVM-6ahSeYfolA67', '253:5', 1,
                    False, '0 2097152 thin 253:2 1')]
LVS = '''{"report": [{"lv": [
{"vg_name":"cinder-volumes", "lv_name":"cinder-volumes-pool", \
"lv_size":"5368709120", "lv_attr":"twi-a-tz--", "lv_tags":"", \
"data_percent":"2.63", "lv_kernel_major":"253", "lv_kernel_minor":"2", \
"metadata_percent":"12.50", "zero":"zero", "lv_uuid":"Abc1-2", \
"pool_lv":"", "origin":"", "lv_metadata_size":"8388608", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"},
{"vg_name":"cinder-volumes", "lv_name":"localclone-meta-%s", \
"lv_size":"4194304", "lv_attr":"-wi-------", \
"lv_tags":"localclone,localclone.follows", "data_percent":"", \
"lv_kernel_major":"-1", "lv_kernel_minor":"-1", "zero":"", \
"lv_uuid":"Def3-4", "pool_lv":"", "origin":"", \
"metadata_percent":"", "lv_metadata_size":"", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"},
{"vg_name":"cinder-volumes", "lv_name":"volume-%s", \
"lv_size":"1073741824", "lv_attr":"Vwi-aotz--", "lv_tags":"localclone", \
"data_percent":"50.00", "lv_kernel_major":"253", "lv_kernel_minor":"5", \
"zero":"zero", "lv_uuid":"Ghi5-6", "pool_lv":"cinder-volumes-pool", \
"origin":"base", "metadata_percent":"", "lv_metadata_size":"", \
"vg_size":"10737418240", "vg_free":"4194304", "vg_seqno":"7", \
"vg_missing_pv_count":"0"}]}]}''' % (
    SHADOW, SHADOW)


@ddt.ddt
class TablesTest(testtools.TestCase):

    def test_tables_are_built(self):
        self.assertEqual('0 2048 linear /dev/g/v 0',
                         dm_tables.linear(2048, '/dev/g/v'))
        self.assertEqual(
            '0 2048 clone /m /d 8:0 128 2 no_hydration no_discard_passdown',
            dm_tables.clone(2048, '/m', '/d', '8:0',
                            state.Geometry(128, 32, 8)))

    @ddt.data((FRESH, 0, 0, False, False), (BUSY, 3800, 32, True, False),
              (DONE, 16384, 0, True, True),
              (DONE.replace(' rw', ' ro'), 16384, 0, True, False),
              (DONE.replace('16384 0', '16384 1'), 16384, 1, True, False))
    @ddt.unpack
    def test_clone_status(self, line, hydrated, hydrating, enabled,
                          finished):
        found = dm_tables.parse_clone_status(line)
        self.assertEqual(
            (128, hydrated, 16384, hydrating, enabled, finished),
            (found.region_sectors, found.hydrated, found.regions,
             found.hydrating, found.enabled, found.finished))
        self.assertEqual((6, 1024),
                         (found.metadata_used, found.metadata_total))

    @ddt.data('Fail', 'Error')
    def test_failed_clone_is_not_finished(self, mode):
        """All it says; "Error" if it can't read its metadata just then."""
        found = dm_tables.parse_clone_status('0 2097152 clone ' + mode)
        self.assertEqual(mode, found.mode)
        self.assertFalse(found.finished)

    @ddt.data('', '0 8 linear 253:1 0')
    def test_other_status_is_refused(self, line):
        self.assertRaises(ValueError, dm_tables.parse_clone_status, line)

    def test_what_the_kernel_shows(self):
        found = dm_tables.own_devices(DEVICES, names.device_uuid(''))
        self.assertEqual({names.handle(VOLUME), names.clone(SHADOW)},
                         set(found))
        handle = found[names.handle(VOLUME)]
        self.assertEqual(('253:7', 1, False, ('253:6',)), (
            handle.number, handle.opened, handle.suspended, handle.uses()))
        clone = found[names.clone(SHADOW)]
        self.assertTrue(clone.suspended)
        self.assertEqual(('253:4', '253:5', '8:0'), clone.uses())
        self.assertEqual(2097152, clone.sectors)

    def test_segments(self):
        self.assertEqual(79691776, dm_tables.Device(
            'd', 'u', '253:1', 1, False, '0 10485760 linear 254:0 18432\n'
            '10485760 69206016 linear 254:0 10651648').sectors)


class DiskTest(testtools.TestCase):
    """What sysfs and iscsiadm (2.1.8) say of a source's disk."""

    IQN = 'iqn.2026-11.org.example:localclone-'

    def test_serial(self):
        page = b'\0\x80\0\x24' + VOLUME.encode()
        self.assertEqual(VOLUME, block.parse_serial(page))
        self.assertEqual('', block.parse_serial(b'\0\x80\0\0'))

    def test_session(self):
        self.assertEqual('session3', iscsiadm.parse_session(
            '/sys/devices/platform/host2/session3/target2:0:0/2:0:0:0'))
        self.assertIsNone(iscsiadm.parse_session(
            '/sys/devices/virtio0/host0/target0:0:0/0:0:0:0'))

    def test_portal(self):
        records = ('192.0.2.11:3260,1 %s%s\n[2001:db8::1]:3260,1 %s%s\n' % (
            self.IQN, VOLUME, self.IQN, SHADOW))
        self.assertEqual('192.0.2.11:3260', iscsiadm.parse_portal(
            records, self.IQN + VOLUME))
        self.assertEqual('[2001:db8::1]:3260', iscsiadm.parse_portal(
            records, self.IQN + SHADOW))
        self.assertEqual('', iscsiadm.parse_portal(records, self.IQN + 'x'))
        self.assertEqual([self.IQN + VOLUME, self.IQN + SHADOW],
                         iscsiadm.parse_targets(records))
        self.assertEqual([], iscsiadm.parse_targets(''))


@ddt.ddt
class ReportTest(testtools.TestCase):

    def test_volumes(self):
        found = lvm_reports.parse_volumes(LVS)
        volume = found['volume-' + SHADOW]
        self.assertEqual(('253:5', True, 1 << 29), (
            volume.number, volume.thin, volume.allocated))
        self.assertEqual(
            ('Ghi5-6', 'cinder-volumes-pool', 'base', False, False, True), (
                volume.uuid, volume.pool, volume.origin, volume.plain,
                volume.readonly, volume.opened))
        metadata = found[names.metadata_lv(SHADOW)]
        self.assertEqual(('', True, False), (
            metadata.pool, metadata.plain, metadata.opened))
        for attr, readonly in (('Vri-a-tz--', True), ('VRi-a-tz--', True),
                               ('Vwi-a-tz--', False)):
            self.assertEqual(readonly, lvm_reports.parse_volumes(LVS.replace(
                'Vwi-aotz--', attr))['volume-' + SHADOW].readonly)
        self.assertEqual('', metadata.number)
        self.assertIn('localclone.follows', metadata.tags)
        self.assertTrue(found['cinder-volumes-pool'].zeroes)
        self.assertFalse(found['cinder-volumes-pool'].thin)
        self.assertEqual((8 << 20, 1 << 20), (
            found['cinder-volumes-pool'].metadata_size,
            found['cinder-volumes-pool'].metadata_used))
        self.assertEqual((0, 0), (volume.metadata_size, volume.metadata_used))
        self.assertFalse(metadata.zeroes)
        self.assertFalse(lvm_reports.parse_volumes(LVS.replace(
            '"zero":"zero"', '"zero":""'))['cinder-volumes-pool'].zeroes)

    @ddt.data(['shown=x'], ['shown='], ['shown=-1'], ['shown=1.5'],
              ['shown=1', 'shown=2'], ['shown=\u0663'], ['shown=1_0'])
    def test_tag_that_is_no_number(self, found):
        """It is never taken for a length: neither is another beside it."""
        for fact, of in (('shown', 'zeroed'), ('given', 'given'),
                         ('extra', 'extra'), ('given', 'shown')):
            lv = lvm_reports.LogicalVolume('g', 'v', 5, '', frozenset(
                'localclone.' + tag.replace('shown', fact) for tag in found))
            error = self.assertRaises(exceptions.UnreadableTag,
                                      getattr, lv, of)
            self.assertIn('LV v ', str(error))

    def test_nothing_beyond_an_lv_is_shown(self):
        for facts in ({'shown': 6}, {'given': 6}, {'shown': 6, 'given': 7}):
            self.assertEqual(5, lvm_reports.LogicalVolume(
                'g', 'v', 5, '', frozenset(names.tags(**facts))).shown)

    def test_tag_of_another_name(self):
        lv = lvm_reports.LogicalVolume('g', 'v', 5, '', frozenset(
            {'localclone.given2=x', 'localclone.given=4'}))
        self.assertEqual(4, lv.given)

    @ddt.data('copied=x', 'extra=x', 'copied=9')
    def test_tag_that_is_no_number_and_free_space(self, tag):
        """Then, or if it says more, the copy may fill all of its LV."""
        move = names.metadata_lv(SHADOW)
        lvs = {name: lvm_reports.LogicalVolume(
            'g', name, 5 << 30, '', frozenset(tags), thin=thin)
            for name, tags, thin in (
                ('volume-' + SHADOW, (), True),
                (move, {'localclone.copied=1', 'localclone.' + tag}
                 if tag.startswith('extra') else {'localclone.' + tag},
                 False))}
        self.assertEqual(5 << 30, lvm_reports.unfilled(lvs))

    def test_groups_of_volumes(self):
        self.assertEqual(
            {'cinder-volumes': lvm_reports.Group(10 << 30, 4 << 20)},
            lvm_reports.groups(lvm_reports.parse_volumes(LVS).values()))

    def test_usage(self):
        found = lvm_reports.parse_volumes(LVS)
        self.assertEqual(lvm_reports.Usage(2.63, 12.5, 75.0),
                         lvm_reports.pool_usage(found, 'cinder-volumes-pool'))
        for none in ('another', None, ''):
            usage = lvm_reports.pool_usage(found, none)
            self.assertEqual(lvm_reports.Usage(), usage)
            self.assertFalse(usage.is_full)

    @ddt.data((94.99, 0, False), (95, 0, True), (0, 79.99, False),
              (0, 80, True), (100, 100, True), (0, 0, False))
    @ddt.unpack
    def test_full(self, data, metadata, full):
        usage = lvm_reports.Usage(data, metadata, 80.0)
        self.assertEqual(full, usage.is_full)
        self.assertIn('%.0f %% of its data' % data, str(usage))
        self.assertIn('from 95 and 80 %', str(usage))

    @ddt.data((0, 75), (2, 75), (4, 75), (16, 75), (20, 80), (32, 87.5),
              (40, 90), (64, 90), (16384, 90))
    @ddt.unpack
    def test_metadata_limit(self, mib, percent):
        self.assertEqual(percent, lvm_reports.metadata_limit(mib << 20))

    def test_free(self):
        self.assertEqual(
            {'g': lvm_reports.Group(size=85895159808, free=37559992320,
                                    lacks=1)},
            lvm_reports.parse_groups(
                '{"report": [{"vg": [{"vg_name":"g", '
                '"vg_size":"85895159808", "vg_free":"37559992320", '
                '"vg_missing_pv_count":"1"}]}]}'))

    def test_free_for_stripes(self):
        for free, stripes, expected in (
                ([], 2, 0), ([5], 2, 0), ([5], 1, 5), ([5, 3], 1, 8),
                ([5, 5], 2, 10), ([9, 2], 2, 4), ([9, 2, 2], 2, 8),
                ([9, 9, 2], 2, 20), ([9, 9, 2], 3, 6), ([3, 3, 3], 2, 8),
                ([0, 7, 7], 3, 0), ([8, 8, 8, 8], 3, 30)):
            self.assertEqual(expected, lvm_reports.free_for_stripes(
                free, stripes), (free, stripes))

    def test_free_space(self):
        free = lvm_reports.FreeSpace(volumes=100, metadata=10, shared=False)
        self.assertEqual('', free.lacks(100, 10))
        self.assertIn('volumes', free.lacks(101, 10))
        self.assertIn('metadata', free.lacks(100, 11))
        shared = lvm_reports.FreeSpace(volumes=100, metadata=100, shared=True)
        self.assertEqual('', shared.lacks(90, 10))
        self.assertIn('volumes and metadata', shared.lacks(95, 10))


class NamesTest(testtools.TestCase):

    def test_there_and_back(self):
        self.assertEqual(VOLUME, names.volume_of_handle(
            names.handle(VOLUME)))
        self.assertIsNone(names.volume_of_handle(names.clone(SHADOW)))
        self.assertEqual(SHADOW, names.shadow_of_clone(names.clone(SHADOW)))
        source = names.source(SHADOW)
        self.assertEqual(SHADOW, names.shadow_of_source(source))
        self.assertEqual('/dev/mapper/' + source, names.source_path(SHADOW))
        self.assertIsNone(names.shadow_of_source(names.clone(SHADOW)))
        self.assertIsNone(names.volume_of_handle(source))
        self.assertEqual(SHADOW, names.shadow_of_metadata(
            names.metadata_lv(SHADOW)))
        iqn = iscsi.move_iqn('iqn.x:', SHADOW)
        self.assertEqual(SHADOW, iscsi.shadow_of_move_iqn(iqn))
        remote = iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.host')
        self.assertEqual(VOLUME, iscsi.volume_of_remote_iqn(
            remote))
        self.assertIsNone(iscsi.shadow_of_move_iqn(remote))
        self.assertNotEqual(remote, iscsi.remote_iqn(
            'iqn.x:', VOLUME, 'iqn.other'))

    def test_what_is_the_drivers_own(self):
        every = (names.handle(VOLUME), names.source(SHADOW),
                 names.clone(SHADOW), names.absent_source(SHADOW))
        strange = ('localclone-source-x', 'localclone-other-' + SHADOW,
                   'x' + names.source(SHADOW), names.source(SHADOW) + 'x')
        self.assertEqual([True] * 4 + [False] * 4, [
            names.is_device(each) for each in every + strange])
        self.assertEqual([True] * 2 + [False] * 6, [
            names.is_backstore(each) for each in every + strange])

    def test_locks_of_two_nodes_differ(self):
        self.assertNotEqual(names.lock('a', VOLUME), names.lock('b', VOLUME))


class TargetTest(testtools.TestCase):

    def test_location_is_read_back(self):
        auth = source_export.new_credentials()
        for address, portal in (('192.0.2.1', '192.0.2.1:3260'),
                                ('2001:db8::1', '[2001:db8::1]:3260')):
            found = iscsi.connection_properties(
                iscsi.location(address, 3260, 'iqn.x:y'), auth)
            self.assertEqual((portal, 'iqn.x:y', 0), (
                found['target_portal'], found['target_iqn'],
                found['target_lun']))
        self.assertNotEqual(auth, source_export.new_credentials())

    def test_target_takes_no_user_for_a_number(self):
        for _time in range(300):
            auth = source_export.new_credentials()
            self.assertNotEqual('0', auth.split(' ')[1][0])


@ddt.ddt
class HydrationTest(testtools.TestCase):

    def test_rate_and_time_left(self):
        meter = hydration.Meter()
        status = dm_tables.parse_clone_status(FRESH)
        first = meter.update(status, 100.0)
        self.assertIsNone(first.rate)
        busy = dm_tables.parse_clone_status(BUSY.replace('3800', '4096'))
        found = meter.update(busy, 104.0)
        self.assertEqual(25.0, found.percent)
        self.assertEqual(64 << 20, found.rate)
        self.assertEqual(12.0, found.seconds_left)
        self.assertIn('64 MiB/s', str(found))

    def test_what_is_local_at_once_was_not_copied(self):
        """Holes are, before the first look."""
        meter = hydration.Meter()
        status = dataclasses.replace(
            dm_tables.parse_clone_status(FRESH), regions=1000, hydrated=900)
        first = meter.update(status, 100.0)
        self.assertEqual((90.0, '90.0 %'), (first.percent, str(first)))
        found = meter.update(dataclasses.replace(status, hydrated=950), 101)
        self.assertEqual((50 << 16, 1), (found.rate, found.seconds_left))
        self.assertEqual('100.0 %', str(hydration.Meter().update(
            dataclasses.replace(status, hydrated=1000), 100.0)))

    @ddt.named_data(
        ('in_vain', (7, 0, 0, 0), (7, 90, 5, 0), (7, 900, 10, 5),
         (7, 900, 14, 1), (7, 900, 15, 0), (7, 901, 16, 0), (7, 950, 20, 10),
         (7, 950, 30, 0), (7, 999, 35, 20), (7, 999, 55, 0), (7, 1999, 60, 40),
         (7, 1999, 100, 0), (7, 2999, 105, 60), (7, 2999, 165, 0),
         (7, 3999, 170, 60)),
        ('mended_disk', (7, 0, 0, 0), (7, 90, 10, 5), (7, 90, 15, 0),
         (8, 99, 16, 0), (8, 199, 25, 0), (8, 299, 26, 5)),
        ('silent_source', (7, 5, 0, 0), (7, 5, 10, 0), (7, 5, 999, 0),
         (7, 6, 1000, 0), (8, 7, 1010, 0)),
        ('slow', (7, 5, 0, 0), (8, 6, 10, 0), (9, 7, 20, 0)))
    def test_pauses(self, *looks):
        """Looks: regions local, reads completed, time, seconds to rest."""
        brake = hydration.Brake()
        status = dm_tables.parse_clone_status(BUSY)
        for hydrated, reads, now, pause in looks:
            self.assertEqual(pause, brake.pause(
                dataclasses.replace(status, hydrated=hydrated), reads, now),
                now)

    def test_a_guest_that_leaves_no_room_is_no_failure(self):
        # It reads the source without end; the kernel copies nothing then.
        brake = hydration.Brake()
        starved = dataclasses.replace(
            dm_tables.parse_clone_status(BUSY), hydrating=0)
        for now in range(0, 100, 5):
            self.assertEqual(0, brake.pause(starved, now, now))

    def test_a_failed_clone_is_not_paused(self):
        brake = hydration.Brake()
        failed = dm_tables.parse_clone_status('0 2097152 clone Fail')
        for now in range(0, 100, 5):
            self.assertEqual(0, brake.pause(failed, now, now))
