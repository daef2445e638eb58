# SPDX-License-Identifier: Apache-2.0
"""The unit tests, run in forks of this process.

The process that forks never runs a test itself. Importing Cinder lets eventlet
patch what it waits with: so that is taken before.
"""

import collections
import ctypes
import gc
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import unittest

from tests import mutation
from tests.mutation import swap

_sleep, _waitpid = time.sleep, os.waitpid
_prctl = ctypes.CDLL(None).prctl
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36

PASSED, FAILED, BROKEN = 0, 1, 2
#: Address space of a child in bytes: what loops must not eat the machine.
MEMORY = 8 << 30
#: A child may take so many times what its tests took, and some seconds.
TIMES, CPU_MORE, MORE = 5, 10, 60


def load(left_out):
    """Import Cinder and all unit tests.

    :param left_out: no test with any of these in its name
    :returns: tests by id; the functions that mutants are brought into
    """
    suite = unittest.TestLoader().discover(
        str(mutation.ROOT / 'tests'), top_level_dir=str(mutation.ROOT))
    found = {test.id(): test for test in _flat(suite)
             if not any(part in test.id() for part in left_out)}
    functions = swap.Functions(mutation.PACKAGE)
    gc.collect()
    gc.freeze()  # what is never looked at is never copied
    return found, functions


def _flat(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _flat(each)
        else:
            yield each


def first_failure(tests):
    """Run tests one after the other.

    :returns: what the first that fails says; None if all pass
    """
    for test in tests:
        result = unittest.TestResult()
        unittest.TestSuite([test]).run(result)
        if not result.wasSuccessful():
            return '\n'.join((test.id(), *(
                text for _test, text in result.errors + result.failures)))
    return None


class Reach:
    """Which tests execute which line, and how long each takes (CPU s)."""

    def __init__(self):
        self.seconds = {}
        self.tests = collections.defaultdict(set)

    def record(self, tests, directory):
        """Run all tests, traced.

        :param directory: of the files whose lines are recorded
        :raises RuntimeError: if a test fails
        """
        files, hits = {}, set()

        def local(frame, event, _argument):
            if event == 'line':
                hits.add((frame.f_code.co_filename, frame.f_lineno))
            return local

        def trace(frame, _event, _argument):
            name = frame.f_code.co_filename
            if name not in files:
                files[name] = name.startswith(directory)
            return local if files[name] else None

        before = sys.gettrace()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            for name, test in sorted(tests.items()):
                hits.clear()
                self.seconds[name] = _seconds(test)
                for line in hits:
                    self.tests[line].add(name)
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def measure(self, tests):
        """Run all tests again, in the order in which mutants get them.

        :raises RuntimeError: if one fails now: it depends on others
        """
        self.seconds = {name: _seconds(tests[name])
                        for name in self.ordered(tests)}

    def ordered(self, names):
        """The quickest first; the same order if they are about as quick."""
        return sorted(names, key=lambda name: (
            round(self.seconds[name], 1), name))

    def of(self, places):
        """The tests that execute any of some places, in order.

        :param places: list of (file, first line, last line)
        """
        return self.ordered(set().union(*(
            self.tests.get((path, line), ())
            for path, first, last in places
            for line in range(first, last + 1))))


def _seconds(test):
    """Run a test; the seconds of CPU that it takes.

    :raises RuntimeError: if it fails
    """
    began = time.process_time()
    failure = first_failure([test])
    if failure:
        raise RuntimeError(failure)
    return time.process_time() - began


class Forks:
    """Children of this process, each ended by its id at the latest.

    What a test has started and left behind becomes a child of this process,
    too, and is ended.
    """

    def __init__(self):
        self._running = {}
        _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def __len__(self):
        return len(self._running)

    def start(self, task, seconds, what=None):
        """Begin to run something in a child; it exits with what it returns.

        :param seconds: of CPU that it should take; limits follow from it
        :param what: comes back with its outcome
        """
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _child(task, TIMES * seconds + CPU_MORE)
        self._running[pid] = (
            what, time.monotonic() + 4 * TIMES * seconds + MORE)

    def ended(self):
        """Wait for the next child to end.

        :returns: what it was started with; its exit code, None if it was
            out of time
        """
        while True:
            pid, status = _waitpid(-1, os.WNOHANG)
            if pid in self._running:
                what, _deadline = self._running.pop(pid)
                self._end_orphans()
                code = os.waitstatus_to_exitcode(status)
                return what, None if code < 0 else code
            for each, (_what, deadline) in self._running.items():
                if time.monotonic() > deadline:
                    os.kill(each, signal.SIGKILL)
            if not pid:
                _sleep(0.01)

    def result(self, task):
        """What something in a child returns.

        :raises RuntimeError: if it fails, with the reason
        """
        with tempfile.TemporaryFile() as file:
            def answer():
                try:
                    pickle.dump((task(), None), file)
                except RuntimeError as exc:
                    pickle.dump((None, str(exc)), file)
                file.flush()
                return PASSED
            self.start(answer, 600)
            _what, code = self.ended()
            file.seek(0)
            value, failure = pickle.load(file) if code == PASSED else (
                None, 'the process that ran the tests has died')
        if failure:
            raise RuntimeError(failure)
        return value

    def end(self):
        """End all that runs."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        for pid in self._running:
            _waitpid(pid, 0)
        self._running.clear()
        self._end_orphans()

    def _end_orphans(self):
        while True:
            orphans = [pid for pid in _children()
                       if pid not in self._running]
            if not orphans:
                return
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                _waitpid(pid, 0)


def _children():
    """The ids of this process's children."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/stat' % pid) as stat:
                parent = int(stat.read().rpartition(') ')[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            yield int(pid)


def _signal_only_own():
    """No signal reaches what this process has not started.

    A mutant of what looks for a process may find any other, and tests may be
    run by root. To it, those others are not there.
    """
    def only_own(send, pid_of=int):
        def wrapped(target, number, *more):
            if number and not _is_own(pid_of(target)):
                raise ProcessLookupError(target)
            return send(target, number, *more)
        return wrapped
    os.kill, os.killpg = only_own(os.kill), only_own(os.killpg)
    signal.pidfd_send_signal = only_own(signal.pidfd_send_signal, _of_pidfd)


def _is_own(pid):
    """Whether a process is of this one's session, or its child.

    The id of one that has ended tells nothing: a group may still have it
    that others have made.
    """
    try:
        with open('/proc/%d/stat' % pid) as stat:
            _state, parent, _group, session = stat.read().rpartition(
                ') ')[2].split()[:4]
    except FileNotFoundError:
        return False
    return str(os.getpid()) in (parent, session)


def _of_pidfd(descriptor):
    with open('/proc/self/fdinfo/%d' % descriptor) as info:
        return next((int(line.split()[1]) for line in info
                     if line.startswith('Pid:')), -1)


def _child(task, seconds):
    """The life of a child: nothing of it is printed but its own errors."""
    code = BROKEN
    try:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # ctrl-C is for the parent, which ends its children
        _signal_only_own()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds),) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        errors = os.dup(2)
        with open(os.devnull, 'r+b', buffering=0) as nothing:
            for number in (0, 1, 2):
                os.dup2(nothing.fileno(), number)
        try:
            code = task()
        except BaseException:
            os.write(errors, traceback.format_exc().encode())
    finally:
        os._exit(code)


def check(mutant, functions, tests):
    """In a child: whether any of these tests notices a mutant."""
    functions.bring_in(mutant)
    try:
        return FAILED if first_failure(tests) else PASSED
    except BaseException:  # it went through the test: noticed
        return FAILED
