# SPDX-License-Identifier: Apache-2.0
"""Ranges are written again while a device is suspended."""

import contextlib
import io
import os
import pathlib
import struct
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.storage.privsep import while_suspended
from tests.helpers.writer import Writer

REGION = 1 << 16


@ddt.ddt
class ScriptTest(testtools.TestCase):
    """What is done while the guest waits."""

    DATA = bytes(range(1, 17)) * (REGION // 16 - 1) + bytes(range(17, 33))

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.lv = self.root / 'lv'
        self.lv.write_bytes(bytes(4 * REGION))
        self.done = []
        self.handle, self.pool = mock.Mock(), mock.Mock()
        self.handle.suspended = self.suspended
        self.pool.message = self.reserve
        self.mapped = set()

    def reserve(self, text):
        """What is mapped is seen now."""
        self.assertEqual(b'reserve_metadata_snap', text)
        self.done.append('reserve')
        Writer({7: self.mapped}).write(self.root / 'metadata')

    @contextlib.contextmanager
    def suspended(self):
        self.done.append('suspend')
        try:
            yield
        finally:
            self.done.append('resume')

    def refill(self, number=7):
        (self.root / 'metadata').touch()
        opened = [os.open(self.root / name, os.O_RDWR)
                  for name in ('metadata', 'lv')]
        for each in opened:
            self.addCleanup(os.close, each)
        return while_suspended.refill(
            self.handle, self.pool, opened[0], number, opened[1], REGION,
            [(REGION, REGION), (3 * REGION, 4096)],
            io.BytesIO(self.DATA + b'b' * 4096))

    BOTH = [REGION, 3 * REGION]

    def test_all_of_it_is_stable_before_the_guest_goes_on(self):
        with mock.patch.object(os, 'fsync', lambda _device: (
                self.done.append(self.lv.read_bytes().count(b'b')))):
            self.assertEqual((2, self.BOTH), self.refill())
        self.assertEqual(['suspend', 'reserve', 4096, 'resume'], self.done)
        self.assertEqual(
            bytes(REGION) + self.DATA + bytes(REGION) + b'b' * 4096
            + bytes(REGION - 4096), self.lv.read_bytes())

    def test_no_block_is_begun_late(self):
        """But one that was begun is written to its end."""
        write, clock = os.pwritev, iter((10, 11, 12.1))

        def slow(device, memories, first):
            return write(device, [memories[0][:4096]], first)
        with mock.patch.object(while_suspended.time, 'monotonic',
                               lambda: next(clock)), \
                mock.patch.object(os, 'pwritev', slow):
            self.assertEqual((1, self.BOTH[:1]), self.refill())
        self.assertEqual(bytes(REGION) + self.DATA + bytes(2 * REGION),
                         self.lv.read_bytes())
        self.assertEqual(['suspend', 'reserve', 'resume'], self.done)

    @ddt.data(({1}, BOTH[1:]), ({3}, BOTH[:1]), ({1, 2, 3}, []),
              ({0, 2, 4}, BOTH))
    @ddt.unpack
    def test_others_have_written(self, mapped, written):
        self.mapped = mapped
        self.assertEqual((2, written), self.refill())
        data = self.lv.read_bytes()
        self.assertEqual(written, [first for first in self.BOTH
                                   if any(data[first:first + 4096])])

    def test_it_cannot_be_seen_what_is_mapped(self):
        """Then nothing is written."""
        self.assertRaises(ValueError, self.refill, 8)
        self.pool.message = mock.Mock(side_effect=OSError(22, 'no'))
        self.assertRaises(OSError, self.refill)
        self.assertEqual(bytes(4 * REGION), self.lv.read_bytes())
        self.assertEqual(['suspend', 'reserve', 'resume', 'suspend',
                          'resume'], self.done)

    def discarded(self, device, request, argument):
        self.assertEqual(0x1277, request)  # BLKDISCARD of linux/fs.h
        self.done.append(struct.unpack('=QQ', argument))

    @ddt.data(('pwritev', 1), ('pwritev', 2), ('fsync', 1))
    @ddt.unpack
    def test_nothing_is_there_in_part(self, name, number):
        """What has begun is taken back: else it would count as whole."""
        inner, calls = getattr(os, name), []

        def fails(*args):
            calls.append(args)
            if len(calls) == number:
                raise OSError(5, 'no')
            return inner(*args)
        with mock.patch.object(os, name, fails), mock.patch.object(
                while_suspended.fcntl, 'ioctl', self.discarded):
            error = self.assertRaises(OSError, self.refill)
        self.assertEqual('[Errno 5] no', str(error))
        parts = [(REGION, REGION), (3 * REGION, 4096)]
        # The last one first.
        self.assertEqual(['suspend', 'reserve', *(
            parts if name == 'fsync' else parts[:number])[::-1], 'resume'],
            self.done)

    def test_snapshot_that_another_program_has_released(self):
        """What is read then may be of another device."""
        write = os.pwritev

        def other(device, memories, first):
            done = write(device, memories, first)
            writer = Writer({7: {3}})
            writer.blocks[0] = writer._superblock(0, 0, 0)
            writer.blocks[2] = Writer({9: {100}}).blocks[2]
            writer.write(self.root / 'metadata')
            return done
        self.mapped = {3}
        with mock.patch.object(os, 'pwritev', other), mock.patch.object(
                while_suspended.fcntl, 'ioctl', self.discarded):
            self.assertRaises(ValueError, self.refill)
        self.assertEqual(bytes(4096),
                         self.lv.read_bytes()[3 * REGION:][:4096])
        self.assertEqual([(REGION, REGION)], self.done[2:-1])

    def test_map_that_breaks_midway(self):
        with mock.patch.object(while_suspended.Mapping, 'is_mapped',
                               side_effect=(
                                       False,
                                       ValueError('odd'))), mock.patch.object(
                                       while_suspended.fcntl, 'ioctl',
                                       self.discarded):
            self.assertRaises(ValueError, self.refill)
        self.assertEqual(['suspend', 'reserve', (REGION, REGION), 'resume'],
                         self.done)

    def test_what_others_have_written_is_not_taken_back(self):
        self.mapped = {1}
        with mock.patch.object(os, 'fsync', side_effect=OSError(5, 'no')), \
                mock.patch.object(while_suspended.fcntl, 'ioctl',
                                  self.discarded):
            self.assertRaises(OSError, self.refill)
        self.assertEqual([(3 * REGION, 4096)], self.done[2:-1])

    def test_the_guest_goes_on_whatever_fails(self):
        """Also if something can't be taken back."""
        with mock.patch.object(os, 'pwritev', side_effect=OSError(5, 'no')), \
                mock.patch.object(while_suspended.fcntl, 'ioctl',
                                  side_effect=OSError(95, 'no discards')):
            error = self.assertRaises(OSError, self.refill)
        self.assertEqual('[Errno 5] no', str(error))
        self.assertEqual(['suspend', 'reserve', 'resume'], self.done)
