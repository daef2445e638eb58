# SPDX-License-Identifier: Apache-2.0
"""Commands, run for real."""

from concurrent import futures
import fcntl
import logging
import os
import queue
import threading
import time
import traceback
import types
from unittest import mock

from eventlet import patcher
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import process


def shell(script, **kwargs):
    return process.run('sh', '-c', script, **dict({'timeout': 30}, **kwargs))


class ProcessTest(testtools.TestCase):
    """As in the privileged daemon, which eventlet does not patch."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.privsep.process.subprocess',
            patcher.original('subprocess')))


class RunTest(ProcessTest):

    def test_output_and_input(self):
        self.assertEqual('out\n', shell('echo out; echo err >&2'))
        self.assertEqual('given', shell('cat', stdin=b'given'))
        self.assertEqual('', shell('cat'))  # does not wait for input
        self.assertEqual('\ufffd', shell(r'printf "\377"'))

    def test_messages_are_in_english(self):
        with mock.patch.dict(os.environ, LC_ALL='de_DE.UTF-8', KEPT='kept'):
            self.assertEqual('C 1 kept\n', shell(
                'echo $LC_ALL $LVM_SUPPRESS_FD_WARNINGS $KEPT'))

    def test_failure(self):
        error = self.assertRaises(
            exceptions.CommandFailed, shell, 'echo no such thing >&2; exit 5')
        self.assertIn('no such thing', str(error))
        self.assertIn('exit code 5', str(error))
        self.assertIn('sh -c', str(error))

    def test_other_exit_codes_that_are_no_failure(self):
        self.assertEqual('x\n', shell('echo x; exit 21', ok=(0, 21)))
        self.assertRaises(exceptions.CommandFailed, shell, 'exit 15',
                          ok=(0, 21))

    def test_end_of_a_long_message(self):
        error = self.assertRaises(
            exceptions.CommandFailed, shell,
            'yes x | head -n 9999 >&2; echo why >&2; exit 1')
        self.assertIn('why', str(error))
        self.assertLess(len(str(error)), 700)

    def test_no_error_has_a_secret(self):
        for script, limit, kind in (
                ('echo no s3cret >&2; exit 1', 30, exceptions.CommandFailed),
                ('sleep 9 # s3cret', 0.1, exceptions.CommandTimeout)):
            error = self.assertRaises(kind, shell, script, timeout=limit,
                                      secret='s3cret')
            self.assertNotIn('s3cret', str(error))
            self.assertIn('***', str(error))

    def test_nor_has_its_traceback(self):
        """privsep logs that in the daemon, and may in the service."""
        secret = 's%dt' % os.getpid()
        for script, limit, kind in (
                ('echo no %s >&2; exit 1', 30, exceptions.CommandFailed),
                ('sleep 9 # %s', 0.1, exceptions.CommandTimeout)):
            error = self.assertRaises(kind, shell, script % secret,
                                      timeout=limit, secret=secret)
            self.assertNotIn(secret, ''.join(
                traceback.format_exception(error)))

    def test_end_of_a_message_with_half_a_secret(self):
        error = self.assertRaises(
            exceptions.CommandFailed, shell, 'printf s3cret >&2; '
            'yes | head -c 497 >&2; exit 1', secret='s3cret')
        self.assertNotIn('ret', str(error).split(':')[-1])


class TimeLimitTest(ProcessTest):

    def setUp(self):
        super().setUp()
        self.mark = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'mark')

    def test_all_that_the_command_started_is_killed(self):
        pids = os.path.join(self.useFixture(fixtures.TempDir()).path, 'pids')
        error = self.assertRaises(
            exceptions.CommandTimeout, shell,
            'sleep 60 & echo $$ $! > %s; wait; echo > %s' % (
                pids, self.mark), timeout=0.5)
        self.assertFalse(os.path.exists(self.mark), 'it ended by itself')
        self.assertIn('0.5 s', str(error))
        with open(pids) as file:
            for pid in file.read().split():
                self.assertTrue(_ends(int(pid)), pid)

    def test_what_cannot_be_killed_is_left_behind(self):
        hangs = mock.Mock(pid=4711, returncode=None)
        hangs.communicate.side_effect = (
            process.subprocess.TimeoutExpired('dd', 7))
        with mock.patch.object(process.subprocess, 'Popen',
                               return_value=hangs), \
                mock.patch.object(process.os, 'killpg') as kill:
            kill.side_effect = lambda *_all: self.assertEqual(
                1, hangs.communicate.call_count)  # at once
            self.assertRaises(exceptions.CommandTimeout, process.run, 'dd',
                              timeout=7)
        kill.assert_called_once_with(4711, process.signal.SIGKILL)
        self.assertEqual([mock.call(None, timeout=7), mock.call(timeout=1)],
                         hangs.communicate.mock_calls)

    def test_what_may_take_its_time_to_die(self):
        dies = mock.Mock(pid=4711, returncode=-9)
        dies.communicate.side_effect = [
            process.subprocess.TimeoutExpired('dd', 7), (b'', b'')]
        with mock.patch.object(process.subprocess, 'Popen',
                               return_value=dies), \
                mock.patch.object(process.os, 'killpg') as kill:
            self.assertRaises(exceptions.CommandTimeout, process.run, 'dd',
                              timeout=7, dying=30)
        kill.assert_called_once_with(4711, process.signal.SIGKILL)
        self.assertEqual(mock.call(timeout=30),
                         dies.communicate.mock_calls[-1])

    def test_it_has_its_grace_and_no_more(self):
        ends = mock.Mock(pid=4711, returncode=0)
        for grace in (0.3, 5):
            ends.communicate.side_effect = [
                process.subprocess.TimeoutExpired('dd', 7), (b'out', b'')]
            with mock.patch.object(process.subprocess, 'Popen',
                                   return_value=ends), \
                    mock.patch.object(process.os, 'killpg') as kill:
                self.assertEqual('out', process.run(
                    'dd', timeout=7, grace=grace))
            kill.assert_called_once_with(4711, process.signal.SIGTERM)
            self.assertEqual(mock.call(timeout=grace),
                             ends.communicate.mock_calls[-1])

    def test_what_must_not_be_killed_halfway_is_asked_to_end(self):
        self.assertEqual('done\n', shell(
            'trap "" TERM; sleep 1; echo done', timeout=0.3, grace=20))
        error = self.assertRaises(
            exceptions.CommandFailed, shell,
            'trap "" TERM; sleep 1; echo why >&2; exit 5', timeout=0.3,
            grace=20)
        self.assertIn('why', str(error))
        self.assertRaises(exceptions.CommandTimeout, shell, 'sleep 60',
                          timeout=0.3, grace=20)

    def test_what_does_not_end_when_asked_is_left_to_go_on(self):
        self.assertRaises(
            exceptions.CommandTimeout, shell,
            'trap "" TERM; sleep 1; sleep 1; echo >%s' % self.mark,
            timeout=0.1, grace=0.1)
        self.assertFalse(os.path.exists(self.mark))
        for _attempt in range(200):
            if os.path.exists(self.mark):
                return
            time.sleep(0.05)
        self.fail('it was killed')


class StreamTest(ProcessTest):

    def stream(self, script, take=None, timeout=30):
        self.pieces = []
        process.stream(take or self.pieces.append, 'sh', '-c', script,
                       timeout=timeout)
        return b''.join(self.pieces)

    def test_all_of_it_piece_by_piece(self):
        self.assertEqual(b'out\n', self.stream('echo out; echo err >&2'))
        self.assertEqual(b'', self.stream('cat'))  # does not wait for input
        whole = self.stream('yes 0123456 | head -n 500000')
        self.assertEqual(b'0123456\n' * 500000, whole)
        self.assertGreater(len(self.pieces), 10)

    def test_failure(self):
        error = self.assertRaises(
            exceptions.CommandFailed, self.stream,
            'yes x | head -n 99999 >&2; echo half; echo why >&2; exit 5')
        self.assertIn('why', str(error))
        self.assertIn('exit code 5', str(error))
        self.assertLess(len(str(error)), 700)
        self.assertRaises(exceptions.CommandFailed, self.stream,
                          'kill -9 $$')
        error = self.assertRaises(  # not what it was called with
            exceptions.CommandFailed, self.stream,
            'printf %c%c%c b a d >&2; exit 5')
        self.assertIn('bad', str(error))

    def test_time_limit(self):
        mark = os.path.join(self.useFixture(fixtures.TempDir()).path, 'mark')
        for script in ('sleep 60', 'yes', 'echo x; exec >&-; sleep 60'):
            error = self.assertRaises(
                exceptions.CommandTimeout, self.stream,
                '%s && echo > %s' % (script, mark), timeout=0.3)
            self.assertIn('0.3 s', str(error))
            self.assertFalse(os.path.exists(mark), 'it ended by itself')

    def ended(self, script, error, **how):
        """What was started has ended, whatever went wrong."""
        pids = os.path.join(self.useFixture(fixtures.TempDir()).path, 'pids')
        self.assertRaises(error, self.stream, 'sleep 60 & echo $$ $! > %s; '
                          % pids + script, **how)
        with open(pids) as file:
            for pid in file.read().split():
                self.assertTrue(_ends(int(pid)), pid)

    def test_all_that_the_command_started_is_killed(self):
        self.ended('wait', exceptions.CommandTimeout, timeout=2)

    def test_what_is_not_wanted_is_not_waited_for(self):
        def refuse(piece):
            raise ValueError(piece)
        self.ended('echo x; wait', ValueError, take=refuse)

    def test_missing(self):
        self.assertRaises(FileNotFoundError, process.stream, len,
                          '/nowhere/x', timeout=1)


class WithinTest(testtools.TestCase):
    """What takes no process, and may hang as well."""

    def test_answer(self):
        self.assertEqual(7, process.within(30, 'a look', lambda: 7))

    def test_time_limit(self):
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        error = self.assertRaises(
            exceptions.CommandTimeout, process.within, 0.1, 'a look',
            lambda: hangs.wait(60))
        self.assertIn('a look', str(error))

    def test_what_comes_too_late(self):
        """Nobody else has it to close it, say."""
        go_on, undone = threading.Event(), queue.SimpleQueue()

        def late():
            go_on.wait(60)
            return 7
        self.assertRaises(exceptions.CommandTimeout, process.within, 0.1, 'x',
                          late, undone.put)
        go_on.set()
        self.assertEqual(7, undone.get(timeout=9))
        self.assertEqual(8, process.within(9, 'x', lambda: 8, undone.put))
        self.assertTrue(undone.empty())

    def test_what_fails_too_late(self):
        """There is nothing to undo."""
        go_on, ended = threading.Event(), threading.Event()

        def late():
            go_on.wait(60)
            raise OSError
        add = futures.Future.add_done_callback

        def noting(work, act):
            add(work, act)
            add(work, lambda _work: ended.set())
        with mock.patch.object(futures.Future, 'add_done_callback', noting), \
                mock.patch.object(logging.getLogger('concurrent.futures'),
                                  'exception') as said:
            self.assertRaises(exceptions.CommandTimeout, process.within, 0.1,
                              'x', late, self.fail)
            go_on.set()
            self.assertTrue(ended.wait(9))
        said.assert_not_called()

    def test_what_says_that_something_timed_out_has_answered(self):
        """ETIMEDOUT is a TimeoutError, too."""
        def look():
            raise OSError(110, 'Connection timed out')
        error = self.assertRaises(OSError, process.within, 30, 'x', look)
        self.assertEqual(110, error.errno)


class RunUnlessTest(ProcessTest):

    def run_unless(self, done):
        return process.run_unless(
            done, 'sh', '-c', 'echo it is there >&2; exit 5', timeout=9)

    def test_done_before(self):
        self.assertFalse(self.run_unless('is there'))

    def test_failed_for_another_reason(self):
        self.assertRaises(exceptions.CommandFailed, self.run_unless,
                          'is not there')

    def test_done_now(self):
        self.assertTrue(process.run_unless('x', 'true', timeout=9))

    def test_time_limit(self):
        self.assertRaises(exceptions.CommandTimeout, process.run_unless,
                          'x', 'sleep', '60', timeout=0.2)


class LockedTest(ProcessTest):

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir())
        self.path = self.directory.join('device')
        with open(self.path, 'w'):
            pass

    def locked(self, timeout=0):
        return process.locked(self.path, 'Work at it', timeout)

    def assert_free(self):
        with open(self.path) as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_nobody_else_has_it(self):
        """Nor do others have it together."""
        with self.locked() as lock:
            self.assertTrue(os.path.samestat(
                os.stat(self.path), os.fstat(lock)))
            self.assertFalse(os.get_inheritable(lock))
            error = self.assertRaises(exceptions.Busy, self.locked().__enter__)
            with open(self.path) as other:
                self.assertRaises(BlockingIOError, fcntl.flock, other,
                                  fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.assertIn('Work at it', str(error))
        self.assert_free()

    def test_it_goes_with_an_error(self):
        """So does what was opened for one that was not had."""
        opened = len(os.listdir('/proc/self/fd'))
        with testtools.ExpectedException(ValueError):
            with self.locked():
                self.assertRaises(exceptions.Busy, self.locked().__enter__)
                raise ValueError
        self.assert_free()
        self.assertEqual(opened, len(os.listdir('/proc/self/fd')))

    def test_others_are_waited_for_so_long(self):
        now = [100.0]

        def sleep(seconds):
            self.assertGreater(seconds, 0)
            now[0] += seconds
        clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
        with self.locked(), mock.patch('tenacity.time', clock), \
                mock.patch('tenacity.nap.time', clock):
            error = self.assertRaises(exceptions.Busy,
                                      self.locked(2).__enter__)
        self.assertTrue(102 <= now[0] < 102.5, now)
        self.assertIn('2 s', str(error))

    def test_command_keeps_it(self):
        """Its child has it, too, as what hangs has when all else is gone."""
        pipe = self.directory.join('pipe')
        os.mkfifo(pipe)
        with self.locked() as lock:
            process.run('sh', '-c', 'cat %s >/dev/null 2>&1 &' % pipe,
                        timeout=30, pass_fds=(lock,))
        try:
            self.assertRaises(exceptions.Busy, self.locked().__enter__)
        finally:
            open(pipe, 'w').close()  # what reads it ends
        with self.locked(30):
            pass


def _ends(pid):
    """Whether a process ends; a zombie that nobody waits for has."""
    for _attempt in range(100):
        try:
            with open('/proc/%d/stat' % pid) as stat:
                if stat.read().rpartition(')')[2].split()[0] == 'Z':
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False
