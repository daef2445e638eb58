# SPDX-License-Identifier: Apache-2.0
"""The kernel's calls around discards under a guest, and their order."""

import errno
import io
import pathlib
import struct
import subprocess
import sys
from unittest import mock

import fixtures
import testtools

from cinder_localclone.dm import tables
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import hole_discarder
from tests.unit import commands

VOLUME, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
HANDLE, CLONE = names.handle(VOLUME), names.clone(SHADOW)
TABLE = '0 2097152 clone /dev/g/m /dev/g/v 8:0 128 1 no_hydration 0'
SUSPEND, LOAD, DISCARD = 0xc138fd06, 0xc138fd09, 0x1277
GUEST_WAITS = [('suspend', HANDLE), ('suspend', CLONE), ('load', CLONE),
               ('resume', CLONE)]


class Kernel:
    """Understands the calls; says what was done, and when."""

    def __init__(self):
        self.done, self.now, self.takes = [], 0.0, 0.0
        self.fails = {}

    def ioctl(self, _device, request, data):
        if request == DISCARD:
            what = 'discard', struct.unpack('=QQ', data)
        else:
            (_major, _minor, _patch, size, start, targets, _open, flags,
             _event, _padding, _number, name, _uuid) = struct.unpack(
                 '=3I7IQ128s129s7x', data[:312])
            assert (size, start) == (len(data), 312), (size, start)
            name = name.rstrip(b'\0').decode()
            what = ('load' if request == LOAD else
                    {0: 'resume', 0x402: 'suspend'}[flags], name)
            if request == LOAD:
                assert (targets, flags) == (1, 0)
                begin, sectors, _status, following, target = struct.unpack(
                    '=QQiI16s', data[312:352])
                self.loaded = '%d %d %s %s' % (
                    begin, sectors, target.rstrip(b'\0').decode(),
                    data[352:].rstrip(b'\0').decode())
                assert following == len(data) - 312 and not len(data) % 8
        self.done.append(what)
        self.now += self.takes
        if what in self.fails:
            raise self.fails.pop(what)


class DiscarderTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.kernel = kernel = Kernel()
        self.queue = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'discard_max_bytes'
        for module, name, acting in (
                (hole_discarder.fcntl, 'ioctl', kernel.ioctl),
                (hole_discarder.time, 'monotonic', lambda: kernel.now),
                (hole_discarder.time, 'sleep', lambda seconds:
                 kernel.done.append('guest goes on'))):
            self.useFixture(fixtures.MockPatchObject(
                module, name, side_effect=acting))
        resume = hole_discarder.Device.resume

        def noted(device):
            if device._name == HANDLE:
                kernel.done.append(
                    'refused' if self.queue.read_text() == '0' else 'taken')
            resume(device)
        self.useFixture(fixtures.MockPatchObject(
            hole_discarder.Device, 'resume', noted))
        self.queue.write_text('big')

    def run_it(self, todo, seconds=10):
        hole_discarder.discard(
            *(hole_discarder.Device(None, name) for name in (HANDLE, CLONE)),
            TABLE, None, self.queue, todo, seconds)

    def test_under_a_guest(self):
        """Refused again before anything goes on."""
        self.run_it([(65536, 8), (0, 4)])
        self.assertEqual([
            *GUEST_WAITS, ('discard', (0, 4)), ('discard', (65536, 8)),
            'refused', ('resume', HANDLE), 'guest goes on'],
            self.kernel.done)
        self.assertEqual(TABLE, self.kernel.loaded)

    def test_the_guest_is_not_held_up_for_long(self):
        self.kernel.takes = 0.6 * hole_discarder.AT_ONCE
        self.run_it([(3, 1), (2, 1), (1, 1)])
        once = ['refused', ('resume', HANDLE), 'guest goes on']
        self.assertEqual([
            *GUEST_WAITS, ('discard', (1, 1)), ('discard', (2, 1)), *once,
            *GUEST_WAITS, ('discard', (3, 1)), *once], self.kernel.done)

    def test_it_ends_in_time(self):
        self.kernel.takes = 1
        todo = [(3, 1), (2, 1), (1, 1)]
        self.run_it(todo, 7)
        self.assertEqual([(3, 1)], todo)

    def test_whatever_fails(self):
        """The guest goes on, and discards are refused if they were taken."""
        for at in (('suspend', HANDLE), ('suspend', CLONE), ('load', CLONE),
                   ('discard', (1, 1))):
            del self.kernel.done[:]
            self.queue.write_text('big')
            self.kernel.fails = {at: OSError(errno.EIO, 'as asked')}
            self.assertRaises(OSError, self.run_it, [(1, 1)])
            self.assertEqual(('resume', HANDLE), self.kernel.done[-1])
            self.assertEqual(at != ('suspend', HANDLE),
                             ('resume', CLONE) in self.kernel.done)
            self.assertEqual(
                'refused' if at[0] == 'discard' else 'taken',
                self.kernel.done[-2])

    def test_what_does_not_end(self):
        with hole_discarder._limit(60):
            pass
        with mock.patch.object(hole_discarder.signal, 'alarm') as alarm:
            with mock.patch.object(hole_discarder.signal, 'signal') as on:
                with hole_discarder._limit(2):
                    self.assertRaises(TimeoutError, on.call_args.args[1],
                                      14, None)
        self.assertEqual([mock.call(2), mock.call(0)], alarm.mock_calls)

    def test_pieces(self):
        self.assertEqual(
            [(0, 4), (4, 4), (8, 2), (20, 4)],
            list(hole_discarder.pieces(io.StringIO('0 10\n20 4\n'), 4)))

    def test_as_a_program(self):
        """It starts without the driver, and fails where nothing is one."""
        done = subprocess.run(
            [sys.executable, '-I', '-S', hole_discarder.__file__, HANDLE,
             CLONE, TABLE, '/dev/null', str(self.queue), '4096', '0'],
            input=b'0 4096\n', capture_output=True, timeout=60)
        self.assertIn(b'/dev/mapper/control', done.stderr)
        self.assertNotEqual(0, done.returncode)

    def test_numbers(self):
        """As the driver's other room has them."""
        self.assertEqual(tables.MESSAGE_IOCTL - 8, hole_discarder._SUSPEND)
        self.assertEqual(SUSPEND, hole_discarder._SUSPEND)
        self.assertEqual(LOAD, hole_discarder._LOAD)


class BeneathTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.queue = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'discard_max_bytes'
        self.queue.write_text('big')
        self.useFixture(fixtures.MockPatchObject(
            devicemapper.sysfs, 'of_disk', return_value=str(self.queue)))

    def discard(self, handle=HANDLE, clone=CLONE):
        devicemapper.discard_beneath(
            handle, clone, TABLE, [(0, 4096), (65536, 8192)], 1 << 20, 10,
            30)

    def test_discard(self):
        self.discard()
        self.assertRan("%s -I -S %s %s %s '%s' /dev/mapper/%s %s 1048576 10"
                       % (sys.executable, hole_discarder.__file__, HANDLE,
                          CLONE, TABLE, CLONE, self.queue))
        self.assertEqual([b'0 4096\n65536 8192\n'], self.commands.inputs)
        self.assertEqual([5], self.commands.graces)
        self.assertEqual('big', self.queue.read_text())

    def test_what_a_killed_one_has_left_is_ended(self):
        """In this order: the clone has nothing on its way any more then."""
        self.commands.hang(sys.executable)
        self.commands.answer('dmsetup info', 'L-sw\n')
        self.assertRaises(exceptions.CommandTimeout, self.discard)
        self.assertEqual([
            'dmsetup info -c --noheadings -o attr ' + HANDLE,
            'dmsetup suspend ' + CLONE, 'dmsetup resume ' + CLONE,
            'dmsetup resume ' + HANDLE], self.commands.ran[1:])
        self.assertEqual('0', self.queue.read_text())

    def test_one_that_fails_has_ended_all(self):
        """Suspending the clone could take long: its source may be slow."""
        self.commands.answer(sys.executable, code=1, err='TimeoutError')
        self.commands.answer('dmsetup info', 'L--w\n')
        self.assertRaises(exceptions.CommandFailed, self.discard)
        self.assertEqual(2, len(self.commands.ran))

    def test_a_guest_waits_for_a_clone_that_hangs(self):
        """What is on its way there would be lost."""
        self.commands.hang(sys.executable)
        self.commands.answer('dmsetup info', 'L-sw\n')
        self.commands.hang('dmsetup suspend')
        self.assertRaises(exceptions.CommandTimeout, self.discard)
        self.assertNotIn('dmsetup resume ' + HANDLE, self.commands.ran)

    def test_of_the_drivers_own_alone(self):
        self.assertRaises(exceptions.Foreign, self.discard, 'root')
        self.assertRaises(exceptions.Foreign, self.discard, HANDLE, HANDLE)
        self.assertRan()
