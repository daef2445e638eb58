# SPDX-License-Identifier: Apache-2.0
"""How each test is run: its time limit, its log, complaints about it."""

import collections
import contextlib
import errno
import logging
import os
import signal

import greenlet
import testtools
from testtools import content

from tests.helpers import complaints

#: Of the environment: seconds for one test. Without it there is no limit.
LIMIT = 'OS_TEST_TIMEOUT'
#: Seconds after which a test is interrupted again that caught the error.
AGAIN = 5


class TimeOver(Exception):
    """A test runs for longer than its limit."""


class Log(logging.Handler):
    """Keeps what was logged last; it is formatted only if a test fails."""

    def __init__(self):
        super().__init__()
        self.records: collections.deque[logging.LogRecord] = (
            collections.deque(maxlen=300))
        self.setFormatter(logging.Formatter(
            '%(levelname)s %(name)s: %(message)s'))

    def emit(self, record):
        self.records.append(record)

    def text(self):
        """Return what was logged, as text."""
        return '\n'.join(map(self.format, self.records))


LOG = Log()


class Run(testtools.RunTest):
    """Runs one test."""

    def run(self, result=None):
        complaints.take()
        LOG.records.clear()
        self.case.addCleanup(self._check_complaints)  # after all others
        self.case.addOnException(self._add_log)
        try:
            with self._limited():
                return super().run(result)
        finally:
            LOG.records.clear()  # they refer to what the test has made

    @staticmethod
    def _check_complaints():
        found = complaints.take()
        if found:
            raise AssertionError('complaints: ' + '; '.join(found))

    def _add_log(self, exc_info):
        if LOG.records and not issubclass(
                exc_info[0], testtools.TestCase.skipException):
            text = LOG.text()
            self.case.addDetail('log', content.text_content(text))

    @contextlib.contextmanager
    def _limited(self):
        seconds = float(os.environ.get(LIMIT) or 0)
        if not seconds:
            yield
            return

        testing = greenlet.getcurrent()

        def expired(_number, _frame):
            text = 'it runs for longer than %g s (%s)' % (seconds, LIMIT)
            complaints.note(text)
            if greenlet.getcurrent() is not testing:
                # The test waits in eventlet's hub, which would die of it.
                testing.throw(TimeOver(text))
                raise InterruptedError(errno.EINTR, text)  # look again
            raise TimeOver(text)

        def failed(_exc_info):
            # What cleans up has as long.
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        self.case.addOnException(failed)
        try:
            before = signal.signal(signal.SIGALRM, expired)
        except ValueError:  # another thread runs the test
            yield
            return
        outer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        try:
            yield
        finally:
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *outer)


def install(log=False):
    """Have all tests of this process run so.

    :param log: show what a test has logged only if it fails
    """
    testtools.TestCase.run_tests_with = Run
    if log:
        logging.getLogger().handlers[:] = [LOG]
        logging.getLogger('cinder_localclone').setLevel(logging.DEBUG)
