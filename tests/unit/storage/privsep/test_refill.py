# SPDX-License-Identifier: Apache-2.0
"""Ranges of a thin LV are written again, by the privileged daemon."""

import contextlib
import pathlib
import sys
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool
from cinder_localclone.storage.privsep import while_suspended
from tests.helpers import commands

SCRIPT = '%s -I -S %s' % (sys.executable, while_suspended.__file__)
REGION = 1 << 16
HANDLE = names.handle('00000001-0000-4000-8000-000000000000')


@ddt.ddt
class RefillTest(commands.Case):
    """On files instead of disks."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.disk, self.lv = self.root / 'sda', self.root / 'lv'
        self.disk.write_bytes(b''.join(
            bytes([number]) * REGION for number in range(1, 9)))
        self.lv.write_bytes(bytes(8 * REGION))
        self.useFixture(fixtures.MockPatchObject(
            names, 'lv_path', return_value=str(self.lv)))
        self.mapped = self.useFixture(fixtures.MockPatchObject(
            sysfs, 'mapped_name',
            return_value=names.mapped_name('g', 'v'))).mock
        self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'locked_for_writing', self.to_be_written))
        self.useFixture(fixtures.MockPatchObject(
            process, 'stream', self.stream))
        self.useFixture(fixtures.MockPatchObject(
            block, 'size', lambda path: self.lv.stat().st_size
            if path == str(self.lv) else None))
        self.commands.answer(SCRIPT, '2 %d\n' % (4 * REGION))

    @contextlib.contextmanager
    def to_be_written(self, *args):
        self.assertEqual(('g', 'v', self.blocks, 30), args)
        self.commands.ran.append('reserve')
        try:
            yield thin_pool.Thin('pool', '/dev/metadata', 7)
        finally:
            self.commands.ran.append('release')

    def stream(self, take, *argv, timeout):
        self.assertEqual(30, timeout)
        words = dict(word.split('=') for word in argv[1:])
        self.assertEqual('direct,fullblock,skip_bytes,count_bytes',
                         words['iflag'])
        self.commands.ran.append('read')
        first = int(words['skip'])
        take(pathlib.Path(words['if']).read_bytes()[
            first:first + int(words['count'])])

    def refill(self, start, count, size=8 * REGION):
        self.blocks = count
        return refill.refill(HANDLE, 'g', 'v', (str(self.disk), self.number),
                             size, REGION, start, count, 30)

    #: A file has none.
    number = ''

    def test_another_disk_by_now(self):
        self.number = '8:16'
        self.assertRaises(exceptions.WrongDevice, self.refill, 3, 2)
        self.assertEqual([], self.commands.ran)

    def written(self):
        """What was to be written: by region, with its first byte."""
        data, = [each for each in self.commands.inputs if each]
        line, _newline, rest = data.partition(b'\n')
        numbers = [int(word) for word in line.split()]
        found = {}
        for first, length in zip(numbers[::2], numbers[1::2]):
            part, rest = rest[:length], rest[length:]
            for at in range(0, length, REGION):
                found[(first + at) // REGION] = part[at]
        self.assertEqual(b'', rest)
        return found

    def test_what_is_missing(self):
        """It is read before the guest waits."""
        self.assertEqual((2, [[4, 1]]), self.refill(3, 2))
        self.assertEqual(['read', 'reserve', '%s refill %s pool /dev/metadata '
                          '7 %s %d' % (SCRIPT, HANDLE, self.lv, REGION),
                          'release'], self.commands.ran)
        self.assertEqual(10, self.commands.limits[0])  # the guest waits
        # Not for what comes late.
        self.assertEqual(30, self.commands.dying[0])
        self.assertEqual({3: 4, 4: 5}, self.written())

    def test_nothing_is_missing_any_more(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, '6\n')
        self.assertEqual((6, []), self.refill(1, 6))

    def test_end_of_the_clone(self):
        """Beyond it nothing may appear that others have deleted."""
        self.refill(6, 2, 8 * REGION - 4096)
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d %d %d' % (6 * REGION, REGION, 7 * REGION,
                                           REGION), line)
        self.assertEqual(b'\7' * REGION + b'\x08' * (REGION - 4096)
                         + bytes(4096), data)

    def test_end_of_the_lv(self):
        self.lv.write_bytes(bytes(8 * REGION - 8192))
        self.refill(7, 1, 8 * REGION - 12288)
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d' % (7 * REGION, REGION - 8192), line)
        self.assertEqual(b'\x08' * (REGION - 12288) + bytes(4096), data)

    def test_source_that_ends(self):
        self.disk.write_bytes(bytes(REGION))
        error = self.assertRaises(exceptions.SourceUnread, self.refill, 0,
                                  2)
        self.assertIn('65536 bytes instead of 131072', str(error))
        self.assertEqual(['read'], self.commands.ran)

    @ddt.data(exceptions.CommandFailed(
        command='dd', code=1, stderr='Input/output error'),
        exceptions.CommandTimeout(command='dd', seconds=30))
    def test_source_that_cannot_be_read(self, error):
        process.stream = mock.Mock(side_effect=error)
        found = self.assertRaises(exceptions.SourceUnread, self.refill, 1,
                                  2)
        self.assertIn('at byte 65536: ', str(found))
        self.assertIn(str(error), str(found))
        self.assertEqual([], self.commands.ran)

    def test_what_cannot_be_written(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=1, err='OSError: no')
        error = self.assertRaises(exceptions.CommandFailed, self.refill, 0, 1)
        self.assertIn('OSError: no', str(error))
        self.assertEqual('release', self.commands.ran[-1])

    def test_read_is_forgotten(self):
        refill.forget_read([HANDLE, 'top'], 30)
        self.assertEqual(['blockdev --flushbufs /dev/mapper/' + name
                          for name in (HANDLE, 'top')], self.commands.ran)

    def test_another_device(self):
        self.mapped.return_value = 'other'
        self.assertRaises(exceptions.WrongDevice, self.refill, 0, 1)
        self.assertEqual([], self.commands.ran)

    def test_other_names(self):
        self.assertRaises(exceptions.Foreign, refill.refill, 'root', 'g',
                          'v', ('d', ''), 1, 1, 0, 1, 30)
        self.assertEqual([], self.commands.ran)

    def test_one_that_somebody_else_has_killed(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=-9)
        self.commands.answer('dmsetup info', 'Lsw')
        self.assertRaises(exceptions.CommandFailed, self.refill, 0, 1)
        self.assertEqual(['dmsetup clear ' + HANDLE, 'dmsetup resume '
                          + HANDLE, 'release'], self.commands.ran[-3:])

    def test_read_that_cannot_be_forgotten(self):
        self.commands.answer('blockdev', code=1)
        self.assertRaises(exceptions.CommandFailed, refill.forget_read,
                          [HANDLE], 30)

    def test_how_long_the_guest_waits(self):
        """It ends by itself before it is killed."""
        self.assertLess(while_suspended.ENDING + while_suspended.WRITING,
                        2 * dmsetup.SUSPENDED)
        self.assertEqual(4 << 20, refill.AT_ONCE)

    @ddt.data('Lsw', 'L')
    def test_one_that_was_killed_leaves_nothing_suspended(self, attributes):
        self.commands._answers.clear()
        self.commands.hang(SCRIPT)
        self.commands.answer('dmsetup info', attributes)
        self.assertRaises(exceptions.CommandTimeout, self.refill, 0, 1)
        self.assertEqual(
            ['dmsetup clear ' + HANDLE, 'dmsetup resume ' + HANDLE, 'release'
             ] if 's' in attributes else ['release'], self.commands.ran[4:])
