# SPDX-License-Identifier: Apache-2.0
"""The kernel's calls while a guest waits, and their order."""

import errno
import io
import os
import pathlib
import signal
import struct
import subprocess
import sys
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import while_suspended
from tests.helpers import commands
from tests.helpers import writer

VOLUME, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
HANDLE, CLONE = names.handle(VOLUME), names.clone(SHADOW)
TABLE = '0 2097152 clone /dev/g/m /dev/g/v 8:0 128 1 no_hydration 0'
SUSPEND, LOAD, CLEAR, STATUS, MESSAGE, DISCARD = (
    0xc138fd06, 0xc138fd09, 0xc138fd0a, 0xc138fd0c, 0xc138fd0e, 0x1277)
GUEST_WAITS = [('clear', HANDLE), ('suspend', HANDLE), ('clear', CLONE),
               ('suspend', CLONE), ('status', CLONE), ('load', CLONE),
               ('resume', CLONE)]
GUEST_GOES_ON = ['refused', ('resume', HANDLE), 'guest goes on']


class Kernel:
    """Understands the calls; says what was done, and when."""

    def __init__(self):
        self.done, self.now, self.takes = [], 0.0, 0.0
        self.fails = {}
        #: Of the clone: the table for its next resume; that which it has.
        self.loaded = self.table = None
        self.status = '0 2097152 clone 8 1/9 128 0/9 0 1 no_hydration 0 rw'

    def ioctl(self, _device, request, data):
        if request == DISCARD:
            what = 'discard', struct.unpack('=QQ', data)
        else:
            message = data[312:]
            (*version, size, start, targets, opened, flags, event, padding,
             number, name, uuid) = struct.unpack(
                 '=3I7IQ128s129s7x', data[:312])
            assert (size, start) == (len(data), 312), (size, start)
            assert version == [4, 0, 0] and not any((
                opened, event, padding, number, uuid.rstrip(b'\0')))
            name = name.rstrip(b'\0').decode()
            does = {LOAD: 'load', CLEAR: 'clear', STATUS: 'status',
                    SUSPEND: 'suspend' if flags else 'resume',
                    MESSAGE: 'message'}[request]
            what = does, name
            assert flags == (0x402 if does == 'suspend' else 0)
            assert bool(targets) == (does == 'load')
            if does == 'message':
                # struct dm_target_msg: sector, message.
                assert message[:8] == bytes(8) and message[-1] == 0, message
                what = (*what, message[8:-1].decode())
            if does == 'clear':
                self.loaded = None
            elif does == 'resume' and self.loaded:
                self.table, self.loaded = self.loaded, None
            elif does == 'status':
                assert len(data) > 1024
                text = self.status.split(' ', 3)[3].encode() + b'\0 rw'
                data[312:312 + 40 + len(text)] = bytes(40) + text
            elif does == 'load':
                self.loaded = '\n'.join(self.lines(data[312:], targets))
        self.did(what)

    @staticmethod
    def lines(data, targets):
        """The lines of a table that is loaded."""
        for _number in range(targets):
            begin, sectors, status, following, target = struct.unpack(
                '=QQiI16s', data[:40])
            assert not status
            text, data = data[40:following], data[following:]
            assert text.endswith(b'\0') and not following % 8
            yield '%d %d %s %s' % (begin, sectors, target.rstrip(
                b'\0').decode(), text.rstrip(b'\0').decode())
        assert not data

    def did(self, what):
        self.done.append(what)
        self.now += self.takes
        if what in self.fails:
            raise self.fails.pop(what)

    def fsync(self, disk):
        self.did(('flush', disk))


class RefillerTest(testtools.TestCase):
    """All of it, as it is called by its path."""

    def test_three_parts(self):
        kernel, opened = Kernel(), []
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        lv, metadata = root / 'lv', root / 'metadata'
        lv.write_bytes(bytes(65536))
        writer.Writer({7: {4}, 8: {1}}).write(metadata)
        opens = os.open

        def fake_open(path, flags):
            opened.append((path, flags))
            return opens(path, flags & ~os.O_DIRECT)
        parts = {8192: b'a' * 8192, 32768: b'b' * 8192, 57344: b'c' * 4096}
        text = ' '.join('%d %d' % (first, len(data))
                        for first, data in parts.items()).encode()
        printed = io.StringIO()
        for where, name, what in (
                (while_suspended.fcntl, 'ioctl', kernel.ioctl),
                (os, 'open', fake_open), (os, 'fsync', kernel.fsync),
                (sys, 'stdin', mock.Mock(buffer=io.BytesIO(
                    text + b'\n' + b''.join(parts.values())))),
                (sys, 'stdout', printed),
                (signal, 'signal', mock.Mock())):
            self.useFixture(fixtures.MockPatchObject(where, name, what))
        with mock.patch('builtins.open', mock.mock_open()):
            while_suspended.main('refill', HANDLE, 'pool', str(metadata), '7',
                                 str(lv), '8192')
        self.assertEqual('3 8192 57344\n', printed.getvalue())
        self.assertEqual([(str(metadata), os.O_RDONLY | os.O_DIRECT),
                          (str(lv), os.O_RDWR | os.O_DIRECT)], opened)
        self.assertEqual('flush', kernel.done.pop(3)[0])
        self.assertEqual([
            ('clear', HANDLE), ('suspend', HANDLE),
            ('message', 'pool', 'reserve_metadata_snap'), ('resume', HANDLE)],
            kernel.done)
        written = bytearray(65536)
        for first in (8192, 57344):
            data = parts[first]
            written[first:first + len(data)] = data
        self.assertEqual(bytes(written), lv.read_bytes())


class SuspendedTest(testtools.TestCase):

    def test_resumed_whatever_ends_it(self):
        kernel, handle = Kernel(), while_suspended.Device(None, 'handle')

        def ended():
            with handle.suspended():
                raise KeyboardInterrupt
        with mock.patch.object(while_suspended.fcntl, 'ioctl', kernel.ioctl):
            self.assertRaises(KeyboardInterrupt, ended)
        self.assertEqual(('resume', 'handle'), kernel.done[-1])


class DiscarderTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.kernel = kernel = Kernel()
        self.queue = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'discard_max_bytes'
        for module, name, acting in (
                (while_suspended.fcntl, 'ioctl', kernel.ioctl),
                (while_suspended.time, 'monotonic', lambda: kernel.now),
                (while_suspended.time, 'sleep', lambda seconds:
                 kernel.done.append('guest goes on'))):
            self.useFixture(fixtures.MockPatchObject(
                module, name, side_effect=acting))
        resume = while_suspended.Device.resume

        def noted(device):
            if device._name == HANDLE:
                kernel.done.append(
                    'refused' if self.queue.read_text() == '0' else 'taken')
            resume(device)
        self.useFixture(fixtures.MockPatchObject(
            while_suspended.Device, 'resume', noted))
        self.queue.write_text('big')

    def run_it(self, todo, seconds=10):
        while_suspended.discard(
            *(while_suspended.Device(None, name) for name in (HANDLE, CLONE)),
            TABLE, None, self.queue, todo, seconds)

    def test_under_a_guest(self):
        """Refused again before anything goes on."""
        self.run_it([(65536, 8), (0, 4)])
        self.assertEqual([
            *GUEST_WAITS, ('discard', (0, 4)), ('discard', (65536, 8)),
            *GUEST_GOES_ON], self.kernel.done)
        self.assertEqual(TABLE, self.kernel.table)

    def test_the_guest_is_not_held_up_for_long(self):
        self.kernel.takes = 0.6 * while_suspended.AT_ONCE
        self.run_it([(3, 1), (2, 1), (1, 1)])
        self.assertEqual([
            *GUEST_WAITS, ('discard', (1, 1)), ('discard', (2, 1)),
            *GUEST_GOES_ON, *GUEST_WAITS, ('discard', (3, 1)),
            *GUEST_GOES_ON], self.kernel.done)

    def test_it_ends_in_time(self):
        self.kernel.takes = 1
        todo = [(3, 1), (2, 1), (1, 1)]
        self.run_it(todo, 10)
        self.assertEqual([(3, 1)], todo)

    def test_a_table_that_is_refused_when_it_is_resumed(self):
        self.kernel.fails = {('resume', CLONE): OSError(errno.EINVAL, '')}
        self.assertRaises(OSError, self.run_it, [(1, 1)])
        self.assertEqual(
            [*GUEST_WAITS, ('clear', CLONE), ('resume', CLONE)],
            self.kernel.done[:9])
        self.assertEqual(('resume', HANDLE), self.kernel.done[-1])

    def test_whatever_fails(self):
        """The guest goes on, and discards are refused if they were taken."""
        for at in (('suspend', HANDLE), ('suspend', CLONE), ('status', CLONE),
                   ('load', CLONE), ('discard', (1, 1))):
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

    def test_a_clone_that_has_failed(self):
        """What it could not record would vanish under the guest, unsaid."""
        for mode in ('ro', 'Fail', ''):
            del self.kernel.done[:]
            self.kernel.status = '0 8 clone 8 1/9 128 0/9 0 0 0 ' + mode
            self.assertRaises(ValueError, self.run_it, [(1, 1)])
            self.assertEqual([*GUEST_WAITS[:5], ('resume', CLONE), 'taken',
                              ('resume', HANDLE)], self.kernel.done)
            self.assertIsNone(self.kernel.table)

    def test_a_table_that_was_given_up(self):
        """Whatever fails then, no resume takes it: it knows less."""
        for at, failed in ((None, ' ro'), (('suspend', CLONE), ' rw')):
            self.kernel.loaded = 'from before'
            self.kernel.status = '0 8 clone 8 1/9 128 0/9 0 0 0' + failed
            self.kernel.fails = {at: TimeoutError}
            self.assertRaises((ValueError, TimeoutError), self.run_it,
                              [(1, 1)])
            self.assertIsNone(self.kernel.table)

    def test_what_cannot_be_cleared_is_not_suspended(self):
        for at, done in ((('clear', HANDLE), []),
                         (('clear', CLONE), GUEST_WAITS[:2])):
            del self.kernel.done[:]
            self.kernel.fails = {at: OSError(errno.EIO, 'as asked')}
            self.assertRaises(OSError, self.run_it, [(1, 1)])
            self.assertEqual([*done, at, *([
                'taken', ('resume', HANDLE)] if done else [])],
                self.kernel.done)

    def test_a_table_that_comes_late(self):
        """Others may have resumed the clone: what is local is more by now."""
        self.kernel.fails = {('load', CLONE): TimeoutError}
        with mock.patch.object(while_suspended, '_limit') as limit:
            self.assertRaises(TimeoutError, self.run_it, [(1, 1)])
            self.assertEqual([mock.call(while_suspended.ENDING)] * 3,
                             limit.call_args_list)
        self.assertEqual([('load', CLONE), ('clear', CLONE),
                          ('resume', CLONE)], self.kernel.done[5:8])
        self.assertIsNone(self.kernel.table)

    def test_asked_to_end_when_the_guest_is_about_to_go_on(self):
        """As all of a service is, when it is stopped."""
        resume = while_suspended.Device.resume

        def asked(device):
            os.kill(os.getpid(), signal.SIGTERM)
            resume(device)
        self.useFixture(fixtures.MockPatchObject(
            while_suspended.Device, 'resume', asked))
        self.addCleanup(signal.signal, signal.SIGTERM,
                        signal.getsignal(signal.SIGTERM))
        self.useFixture(fixtures.MockPatchObject(
            while_suspended.sys, 'stdin', io.StringIO('1 1\n5 1\n')))
        self.useFixture(fixtures.MockPatchObject(
            while_suspended.os, 'open', return_value=None))
        opened = []

        def opens(path, *how, **more):
            if path == str(self.queue):
                return open(path, *how)
            opened.append((path, *how, more))
            return io.BytesIO()
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.while_suspended.open', opens))
        while_suspended.main('discard', HANDLE, CLONE, TABLE, '/dev/x',
                             str(self.queue), '4096', '10')
        self.assertEqual([
            *GUEST_WAITS, ('discard', (1, 1)), ('discard', (5, 1)),
            *GUEST_GOES_ON], self.kernel.done)
        self.assertEqual([('/dev/mapper/control', 'r+b', {'buffering': 0})],
                         opened)

    def test_what_does_not_end(self):
        with while_suspended._limit(60):
            pass
        with mock.patch.object(while_suspended, 'signal') as kernel:
            with while_suspended._limit(2):
                self.assertRaises(
                    TimeoutError, kernel.signal.call_args.args[1], 14, None)
        self.assertEqual(
            [mock.call.signal(kernel.SIGALRM, mock.ANY), mock.call.alarm(2),
             mock.call.alarm(0)], kernel.mock_calls)

    def test_a_limit_of_its_own(self):
        limit = self.useFixture(fixtures.MockPatchObject(
            while_suspended, '_limit')).mock
        with while_suspended.Device(None, HANDLE).suspended(7):
            limit.assert_called_once_with(7)

    def test_pieces(self):
        self.assertEqual(
            [(0, 4), (4, 4), (8, 2), (20, 4)],
            list(while_suspended.pieces(io.StringIO('0 10\n20 4\n'), 4)))

    def test_as_a_program(self):
        """It starts without the driver, and fails where nothing is one."""
        for what, said in (
                (('discard', HANDLE, CLONE, TABLE, '/dev/null',
                  str(self.queue), '4096', '0'), b'/dev/mapper/control'),
                (('swap', HANDLE, '', '5'), b'/dev/mapper/control')):
            done = subprocess.run(
                [sys.executable, '-I', '-S', while_suspended.__file__, *what],
                input=b'0 4096\n', capture_output=True, timeout=60)
            self.assertIn(said, done.stderr)
            self.assertNotEqual(0, done.returncode)

    def test_numbers(self):
        """As the driver's other room has them."""
        self.assertEqual(dm_ioctl.TARGET_MSG - 8, while_suspended._SUSPEND)
        self.assertEqual(SUSPEND, while_suspended._SUSPEND)
        self.assertEqual(LOAD, while_suspended._LOAD)
        self.assertEqual(CLEAR, while_suspended._CLEAR)
        self.assertEqual(STATUS, while_suspended._STATUS)


class SwapTest(testtools.TestCase):

    TABLES = ('0 8 linear 253:1 0', '0 8 linear 253:1 0\n8 16 linear 253:2 8')
    DONE = [('clear', HANDLE), ('suspend', HANDLE), ('flush', 5),
            ('load', HANDLE), ('resume', HANDLE)]

    def setUp(self):
        super().setUp()
        self.kernel = kernel = Kernel()
        for module, name, acting in (
                (while_suspended.fcntl, 'ioctl', kernel.ioctl),
                (while_suspended.os, 'fsync', kernel.fsync)):
            self.useFixture(fixtures.MockPatchObject(
                module, name, side_effect=acting))

    def swap(self, table=TABLES[0], disk=5):
        while_suspended.swap(while_suspended.Device(None, HANDLE), table,
                             disk, 5)

    def test_flushed_while_nothing_can_be_written(self):
        for table in self.TABLES:
            del self.kernel.done[:]
            self.swap(table)
            self.assertEqual(self.DONE, self.kernel.done)
            self.assertEqual(table, self.kernel.table)

    def test_without_a_disk_to_flush(self):
        self.swap(disk=None)
        self.assertEqual([*self.DONE[:2], *self.DONE[3:]], self.kernel.done)

    def test_whatever_fails_it_goes_on_as_it_was(self):
        for number, at in enumerate(self.DONE[1:4], 2):
            del self.kernel.done[:]
            self.kernel.fails = {at: OSError(errno.EIO, 'as asked')}
            self.assertRaises(OSError, self.swap)
            self.assertEqual([*self.DONE[:number], self.DONE[-1]],
                             self.kernel.done)

    def test_back_on_the_old_table(self):
        self.kernel.fails = {self.DONE[-1]: OSError(errno.EINVAL, '')}
        self.assertRaises(OSError, self.swap)
        self.assertEqual([*self.DONE, ('clear', HANDLE), self.DONE[-1]],
                         self.kernel.done)

    def test_as_a_program(self):
        """Its table is on standard input, its disk a path."""
        opened = mock.mock_open()
        disk = self.useFixture(fixtures.TempDir()).join('disk')
        open(disk, 'w').close()
        with mock.patch('builtins.open', opened), mock.patch.object(
                while_suspended.sys, 'stdin', io.StringIO(self.TABLES[1])):
            while_suspended.main('swap', HANDLE, disk, '5')
        opened.assert_called_once_with('/dev/mapper/control', 'r+b',
                                       buffering=0)
        self.assertEqual(['clear', 'suspend', 'flush', 'load', 'resume'],
                         [each[0] for each in self.kernel.done])
        self.assertEqual(self.TABLES[1], self.kernel.table)
        with mock.patch('builtins.open', opened), mock.patch.object(
                while_suspended.sys, 'stdin', io.StringIO(self.TABLES[0])):
            while_suspended.main('swap', HANDLE, '', '5')
        self.assertEqual('load', self.kernel.done[-2][0])
        self.assertEqual('suspend', self.kernel.done[-3][0])


LOOK = 'dmsetup info -c --noheadings -o attr '
ENDED = ['dmsetup suspend ' + CLONE, 'dmsetup clear ' + CLONE,
         'dmsetup resume ' + CLONE, 'dmsetup resume ' + HANDLE]


class BeneathTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.queue = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'discard_max_bytes'
        self.queue.write_text('big')
        self.of_disk = self.useFixture(fixtures.MockPatchObject(
            dmsetup.sysfs, 'disk_entry', return_value=str(self.queue))).mock
        self.mapped = self.useFixture(fixtures.MockPatchObject(
            dmsetup.sysfs, 'mapped_name', return_value=CLONE)).mock

    def discard(self, handle=HANDLE, clone=CLONE):
        dmsetup.discard_beneath(
            handle, clone, TABLE, [(0, 4096), (65536, 8192)], 1 << 20, 10,
            30)

    def test_discard(self):
        self.discard()
        self.assertRan(
            "%s -I -S %s discard %s %s '%s' /dev/mapper/%s %s 1048576 10" % (
                sys.executable, while_suspended.__file__, HANDLE, CLONE,
                TABLE, CLONE, self.queue))
        self.assertEqual([b'0 4096\n65536 8192\n'], self.commands.inputs)
        self.assertEqual([5], self.commands.graces)
        self.assertEqual('big', self.queue.read_text())
        self.of_disk.assert_called_once_with(
            '/dev/mapper/' + CLONE, 'queue', 'discard_max_bytes')

    def test_what_a_killed_one_has_left_is_ended(self):
        """In this order: the clone has nothing on its way any more then."""
        self.commands.hang(sys.executable)
        self.commands.answer('dmsetup info', 'L-sw\n')
        taken, answer = [], self.commands._answer

        def noted(line):
            taken.append(self.queue.read_text())
            return answer(line)
        self.commands._answer = noted
        self.assertRaises(exceptions.CommandTimeout, self.discard)
        self.assertEqual([LOOK + HANDLE, *ENDED], self.commands.ran[1:])
        # A table that is loaded takes discards again.
        self.assertEqual([*['big'] * 5, '0'], taken)

    def test_what_a_refused_table_has_left_is_ended(self):
        """The handle is resumed then, but the clone below it is not."""
        self.commands.answer(sys.executable, code=1, err='OSError')
        self.commands.answer(LOOK + HANDLE, 'L--w\n')
        self.commands.answer(LOOK + CLONE, 'L-sw\n')
        self.assertRaises(exceptions.CommandFailed, self.discard)
        self.assertEqual([LOOK + HANDLE, LOOK + CLONE, *ENDED],
                         self.commands.ran[1:])

    def test_one_that_fails_has_ended_all(self):
        """Suspending the clone could take long: its source may be slow."""
        self.commands.answer(sys.executable, code=1, err='TimeoutError')
        self.commands.answer('dmsetup info', 'L--w\n')
        self.assertRaises(exceptions.CommandFailed, self.discard)
        self.assertEqual([LOOK + HANDLE, LOOK + CLONE],
                         self.commands.ran[1:])

    def test_path_of_the_clone_that_leads_elsewhere(self):
        """What is discarded there would be lost."""
        for other in (HANDLE, ''):
            self.mapped.return_value = other
            self.assertRaises(exceptions.WrongDevice, self.discard)
        self.mapped.assert_called_with('/dev/mapper/' + CLONE)
        self.assertRan()

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
