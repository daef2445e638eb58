# SPDX-License-Identifier: Apache-2.0
"""Builders and parsers, against output captured from real nodes."""

import ddt
import testtools

from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core import state
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


V1 = '00000001-0000-4000-8000-000000000000'
GUARD = dm_tables.Guard('253:7', 4096, 2097152)
TABLE = ('0 4096 flakey 253:7 0 0 1 1 drop_writes\n'
         '4096 2093056 linear 253:7 4096')
CRYPT = '0 2097152 crypt aes-xts-plain64 :64:logon:x 0 253:7 32768'


def device(table, name=names.guard(V1)):
    return dm_tables.Device(name, names.device_uuid(name), '253:9', 0, False,
                            table)


@ddt.ddt
class GuardTest(testtools.TestCase):

    def test_table(self):
        self.assertEqual(TABLE, str(GUARD))
        self.assertEqual(GUARD, dm_tables.parse_guard(device(TABLE)))
        # As dmsetup prints it.
        self.assertEqual(GUARD, dm_tables.parse_guard(device(
            TABLE.replace('drop_writes', 'drop_writes '))))
        self.assertEqual(('253:7', '253:7'), device(TABLE).uses())
        self.assertEqual(2097152, device(TABLE).sectors)

    @ddt.data(
        ('', ''), (TABLE, ''), ('0 0 1 1', '0 1 0 1'),  # always up
        ('0 0 1 1', '0 1 1 1'),  # up every other second
        ('1 drop_writes', '0'), ('drop_writes', 'error_writes'),
        ('flakey', 'linear'),
        ('0 4096 flakey', '8 4096 flakey'),  # its beginning can be written
        ('linear 253:7', 'linear 253:8'),  # the rest of another volume
        ('linear 253:7 4096', 'linear 253:7 0'),  # the rest is the header
        ('linear', 'error'), (TABLE, '0 2097152 linear 253:7 0'))
    @ddt.unpack
    def test_what_is_none(self, old, new):
        table = TABLE.replace(old, new) if old else old
        self.assertIsNone(dm_tables.parse_guard(device(table)))

    def test_names(self):
        self.assertEqual(V1, names.volume_of_guard(names.guard(V1)))
        self.assertTrue(names.is_device(names.guard(V1)))
        for other in (names.handle(V1), names.crypt(V1), names.clone(V1)):
            self.assertIsNone(names.volume_of_guard(other))
        self.assertFalse(names.is_device(names.crypt(V1)))

    def test_the_last_part_of_the_path_is_no_devices_name(self):
        last = names.link(V1).rpartition('/')[2]
        self.assertFalse(names.is_device(last))
        self.assertNotIn(last, (names.handle(V1), names.guard(V1),
                                names.crypt(V1)))


class CryptTest(testtools.TestCase):
    """What decrypts a volume, which cryptsetup has named and numbered."""

    UUID = 'CRYPT-LUKS2-%s-%s' % (32 * 'a', names.crypt(V1))

    def parse(self, name, uuid, table=CRYPT):
        return dm_tables.own_devices([dm_ioctl.Status(
            name, uuid, '253:9', 1, False, table)], names.device_uuid(''))

    def test_it_is_the_drivers_own(self):
        found = self.parse(names.crypt(V1), self.UUID)
        self.assertEqual([names.crypt(V1)], list(found))
        crypt, = found.values()
        self.assertEqual((('253:7',), 1), (crypt.uses(), crypt.opened))

    def test_what_others_have_made_is_not(self):
        for name, uuid in ((names.crypt(V1), 'x'), ('luks-x', self.UUID),
                           (names.crypt(V1), self.UUID + 'x')):
            self.assertEqual({}, self.parse(name, uuid))
