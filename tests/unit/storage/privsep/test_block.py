# SPDX-License-Identifier: Apache-2.0
"""What is done to block devices; sysfs, as far as a directory can be it."""

import fcntl
import os
import pathlib
import struct
import threading
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
CLONE_PATH = '/dev/mapper/localclone-clone-' + VOLUME


class CommandsTest(commands.Case):

    def test_head_is_read_from_the_disk(self):
        block.read_head('/dev/x', 1 << 20, 30)
        self.assertRan('dd if=/dev/x of=/dev/null iflag=direct bs=1048576 '
                       'count=1 status=none')

    def test_other_lengths(self):
        block.read_head('/dev/x', 4096, 30)
        block.read_head('/dev/x', 4 << 20, 30)
        self.assertRan(
            'dd if=/dev/x of=/dev/null iflag=direct bs=4096 count=1 '
            'status=none',
            'dd if=/dev/x of=/dev/null iflag=direct bs=1048576 count=4 '
            'status=none')

    def test_head_that_cannot_be_read(self):
        self.commands.answer('dd', code=1, err='Input/output error')
        self.assertRaises(exceptions.CommandFailed, block.read_head,
                          '/dev/x', 1 << 20, 30)

    def zero_head(self, number, mapped, name='localclone-meta-' + VOLUME):
        """:param mapped: the device that the LV's path leads to"""
        with mock.patch.object(sysfs, 'number', return_value=number), (
                mock.patch.object(sysfs, 'name_of', return_value=mapped)):
            block.zero_head('g', name, 30)

    METADATA = 'g-localclone--meta--' + VOLUME.replace('-', '--')

    def test_zeros_are_on_the_disk_afterwards(self):
        self.zero_head('253:5', self.METADATA)
        self.assertRan('dd if=/dev/zero of=/dev/g/localclone-meta-%s bs=4096 '
                       'count=1 oflag=direct conv=fsync status=none' % VOLUME)

    def test_only_metadata_is_zeroed(self):
        for name in ('volume-' + VOLUME, 'localclone-' + VOLUME, 'root'):
            self.assertRaises(exceptions.Foreign, self.zero_head, '253:5',
                              'g-' + name.replace('-', '--'), name)
        self.assertRan()

    def test_path_of_metadata_that_leads_elsewhere(self):
        """To another LV, or nowhere: then it would become a file."""
        for number, found in (('253:6', 'g-volume--x'), ('', '')):
            error = self.assertRaises(
                exceptions.WrongDevice, self.zero_head, number, found)
            self.assertIn(found or 'nothing', str(error))
        self.assertRan()

    def test_head_is_zero(self):
        self.commands.answer('dd', '\0' * 4096)
        self.assertTrue(block.head_is_zero('/dev/x', 30))
        self.assertRan('dd if=/dev/x bs=4096 count=1 iflag=direct '
                       'status=none')

    def test_head_is_not_zero(self):
        for byte in 'xX0 \n':
            self.commands.answer('dd', '\0' * 4095 + byte, times=1)
            self.assertFalse(block.head_is_zero('/dev/x', 30), byte)

    def test_where_sysfs_is(self):
        self.assertEqual('/sys/block/sdx/queue/y', sysfs.disk_entry(
            '/dev/sdx', 'queue', 'y'))

    def test_flush(self):
        block.flush('/dev/x', 30)
        self.assertRan('sync /dev/x')


class LvTest(testtools.TestCase):
    """An LV by the kernel: its path leads to the device that LVM named."""

    def number(self, number, name):
        with mock.patch.object(sysfs, 'number', return_value=number) as of:
            with mock.patch.object(sysfs, 'name_of', return_value=name):
                with mock.patch.object(privsep.default, 'client_mode',
                                       False):
                    found = block.lv_number('g-1', 'volume-x')
        of.assert_called_once_with('/dev/g-1/volume-x')
        return found

    def test_active(self):
        self.assertEqual('253:5', self.number('253:5', 'g--1-volume--x'))

    def test_not_active(self):
        self.assertEqual('', self.number('', ''))

    def test_path_that_leads_elsewhere(self):
        for name in ('g--1-volume--y', 'localclone-x', ''):
            self.assertEqual('', self.number('253:5', name))


class DiscardTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = directory / os.path.basename(CLONE_PATH)
        self.path.touch()
        self.ioctl = self.useFixture(fixtures.MockPatchObject(
            block.fcntl, 'ioctl')).mock
        self.useFixture(fixtures.MockPatchObject(
            privsep.default, 'client_mode', False))

    def discard(self, path='', found=None, parts=((0, 10), (20, 8)), most=4,
                seconds=60, timeout=30):
        """:param found: the device that the path leads to; None: the right"""
        with mock.patch.object(sysfs, 'mapped_name', return_value=(
                self.path.name if found is None else found)):
            block.discard(path or str(self.path), parts, most, seconds,
                          timeout)

    def discarded(self):
        return [(call.args[1], *struct.unpack('=QQ', call.args[2]))
                for call in self.ioctl.mock_calls]

    def test_no_call_takes_too_much(self):
        self.discard()
        self.assertEqual([(0x1277, *part) for part in (
            (0, 4), (4, 4), (8, 2), (20, 4), (24, 4))], self.discarded())

    def test_it_ends_in_time(self):
        now = self.useFixture(fixtures.MockPatchObject(
            block.time, 'monotonic', side_effect=[0, 1, 9, 10, 11]))
        block._discard(str(self.path), [(0, 10), (20, 8)], 4, 10)
        self.assertEqual([(0x1277, 0, 4), (0x1277, 4, 4)], self.discarded())
        self.assertEqual(4, now.mock.call_count)

    def test_one_that_takes_none(self):
        self.ioctl.side_effect = OSError(95, 'Operation not supported')
        error = self.assertRaises(exceptions.CommandFailed, self.discard)
        self.assertIn('not supported', str(error))
        self.assertEqual(1, len(self.discarded()))

    def test_nothing_stays_open(self):
        before = os.listdir('/proc/self/fd')
        self.discard()
        self.ioctl.side_effect = OSError(5, 'Input/output error')
        self.assertRaises(exceptions.CommandFailed, self.discard)
        self.assertEqual(before, os.listdir('/proc/self/fd'))

    def test_one_that_hangs(self):
        gone = threading.Event()
        self.addCleanup(gone.set)
        self.ioctl.side_effect = lambda *what: gone.wait(60)
        # One call: what it would do next, it would do to another test's mock.
        error = self.assertRaises(exceptions.CommandTimeout, self.discard,
                                  parts=((0, 4),), timeout=0.1)
        self.assertIn('0.1', str(error))

    def test_opened_for_writing(self):
        """The kernel refuses it otherwise: EBADF."""
        modes = []
        self.ioctl.side_effect = lambda device, *_what: modes.append(
            fcntl.fcntl(device, fcntl.F_GETFL) & os.O_ACCMODE)
        self.discard()
        self.assertEqual({os.O_RDWR}, set(modes))

    def test_path_of_a_clone_that_leads_elsewhere(self):
        for found in ('localclone-' + VOLUME, ''):
            error = self.assertRaises(exceptions.WrongDevice, self.discard,
                                      found=found)
            self.assertIn(found or 'nothing', str(error))
        self.assertEqual([], self.discarded())

    def test_only_a_clone_is_discarded(self):
        for name in ('volume-' + VOLUME, 'localclone-' + VOLUME, 'root'):
            self.assertRaises(exceptions.Foreign, self.discard,
                              '/dev/mapper/' + name)
        self.assertEqual([], self.discarded())


class SysfsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(commands.Commands())
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'ROOT', str(self.root)))
        self.disk = self.root / 'block' / 'sdx'
        for directory in ('queue', 'device'):
            (self.disk / directory).mkdir(parents=True)
        # The driver names devices by links: /dev/mapper/NAME.
        self.path = str(self.root / 'link')
        os.symlink('/dev/sdx', self.path)

    def test_serial_by_number(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(sysfs, 'ROOT', str(root)))
        self.assertEqual('', block.serial('8:16'))
        device = root / 'dev' / 'block' / '8:16' / 'device'
        device.mkdir(parents=True)
        (device / 'vpd_pg80').write_bytes(
            b'\0\x80\0\x24' + VOLUME.encode())
        self.assertEqual(VOLUME, block.serial('8:16'))
        self.assertEqual('', block.serial('8:32'))

    def test_identity(self):
        self.assertEqual((0, ''), block.identity(self.path))
        (self.disk / 'size').write_text('2097152\n')
        self.assertEqual((0, ''), block.identity(self.path))
        (self.disk / 'device' / 'vpd_pg80').write_bytes(
            b'\0\x80\0\x24' + VOLUME.encode())
        self.assertEqual((1 << 30, VOLUME), block.identity(self.path))

    def test_serial_numbers(self):
        """They are padded, and need not be ours."""
        for page, serial in ((b'X-ray  \0\0', 'X-ray'), (b'  1X', '1X'),
                             (b'a\xffb', 'a\ufffdb'), (b'', '')):
            self.assertEqual(serial, block.parse_serial(
                b'\0\x80\0\x24' + page))

    def test_size(self):
        (self.disk / 'size').write_text('8192\n')
        self.assertEqual(4 << 20, block.size(self.path))

    def test_completed_reads(self):
        (self.disk / 'stat').write_text('  4711   3  99 1 2 3 4 5 0 6 7\n')
        self.assertEqual(4711, block.completed_reads(self.path))

    def test_written_sectors(self):
        (self.disk / 'stat').write_text('  4711   3  99 1 2 3 4 5 0 6 7\n')
        (self.disk / 'queue' / 'iostats').write_text('1\n')
        self.assertEqual(4, block.written_sectors(self.path))

    def test_written_sectors_that_are_not_counted(self):
        """Whatever is written, they stay the same."""
        (self.disk / 'stat').write_text('  4711   3  99 1 2 3 4 5 0 6 7\n')
        (self.disk / 'queue' / 'iostats').write_text('0\n')
        self.assertRaises(ValueError, block.written_sectors, self.path)

    def test_names_of_devices(self):
        for number in ('253:4', ''):
            self.assertEqual('', sysfs.name_of(number))
        directory = self.root / 'dev' / 'block' / '253:4' / 'dm'
        directory.mkdir(parents=True)
        (directory / 'name').write_text('g-v-tpool\n')
        self.assertEqual('g-v-tpool', sysfs.name_of('253:4'))

    def test_discards_are_disabled(self):
        limit = self.disk / 'queue' / 'discard_max_bytes'
        limit.write_text('4294966784')
        path = str(self.root / ('localclone-clone-' + VOLUME))
        os.symlink('/dev/sdx', path)
        for found in ('sdx', ''):
            with mock.patch.object(sysfs, 'mapped_name', return_value=found):
                self.assertRaises(exceptions.WrongDevice,
                                  block.disable_discards, path)
        with mock.patch.object(sysfs, 'mapped_name', os.path.basename):
            block.disable_discards(path)
        self.assertEqual('0', limit.read_text())
        limit.write_text('4294966784')
        self.assertRaises(exceptions.Foreign, block.disable_discards,
                          self.path)
        self.assertEqual('4294966784', limit.read_text())

    def test_number(self):
        self.assertEqual('', block.number(str(self.root / 'missing')))
        self.assertEqual('', block.number('/dev/null'))  # no block device
        self.assertEqual('', block.number(str(self.disk)))
        with mock.patch.object(sysfs.os, 'stat') as stat:
            stat.return_value.st_mode = 0o060660
            stat.return_value.st_rdev = os.makedev(253, 7)
            self.assertEqual('253:7', block.number('/dev/x'))

    def test_names_of_mapped_devices(self):
        for number, name in ((7, 'localclone-x'), (8, 'crypt-x')):
            for at in ('block/dm-%d', 'dev/block/253:%d'):
                at = self.root / (at % number) / 'dm'
                at.mkdir(parents=True)
                (at / 'name').write_text(name + '\n')
        self.assertEqual('dm-8', sysfs.mapped_device('crypt-x'))
        self.assertEqual('', sysfs.mapped_device('crypt'))
        for number, name in (('253:8', 'crypt-x'), ('253:9', ''), ('', '')):
            with mock.patch.object(sysfs, 'number', lambda path: number):
                self.assertEqual(name, sysfs.mapped_name('/dev/x'))
