# SPDX-License-Identifier: Apache-2.0
"""Run functional tests; print and keep the results as stestr does."""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import unittest

from stestr.commands import load
import subunit
import yaml

from lab.core import process
from lab.functional import queue
from lab.functional import worker
from lab import lab as labs

REPO = pathlib.Path(__file__).resolve().parents[2]
TESTS = REPO / 'tests/functional'
#: How many seconds a test of each class takes, about.
SECONDS = TESTS / 'seconds.yaml'


def find():
    """All functional tests: {class: its ids}.

    :raises LabError: names what can't be imported
    """
    loader, found = unittest.TestLoader(), collections.defaultdict(list)

    def walk(suite):
        for each in suite:
            if isinstance(each, unittest.TestSuite):
                walk(each)
            else:
                found[type(each)].append(each.id())
    walk(loader.discover(str(TESTS), top_level_dir=str(REPO)))
    if loader.errors:
        raise process.LabError('\n'.join(loader.errors))
    return found


def jobs(found, seconds, only=(), exclude=None):
    """What is to be run.

    :param found: as :func:`find` returns it
    :param seconds: of a test of each class, by its name
    :param only: regular expressions, one of which an id has to match
    :param exclude: what it must not match; None: it may match any
    """
    chosen = []
    for each, ids in found.items():
        tests = tuple(
            test for test in ids
            if (not only or any(re.search(one, test) for one in only))
            and not (exclude and re.search(exclude, test)))
        name = '%s.%s' % (each.__module__.rpartition('.')[2], each.__name__)
        if tests:
            chosen.append(queue.Job(
                name, each.lab_name,
                len(tests) * seconds.get(name, queue.UNKNOWN), tests))
    return chosen


class Workers:
    """Processes that share a queue.

    :param left: a :class:`lab.functional.queue.Queue`
    """

    #: How often a class is begun again whose process has died.
    AGAIN = 1
    PROGRAM = [sys.executable, '-W', 'ignore', '-m', 'lab.functional.worker']

    def __init__(self, left, count):
        self.left = left
        self.labs = [None] * count
        self._lock = threading.RLock()
        self._stopped = False
        #: How often the process of a class has died.
        self.died = collections.Counter()

    def start(self):
        """:returns: a stream of subunit for each worker, that ends with it"""
        streams = []
        for number in range(len(self.labs)):
            reader, writer = os.pipe()
            streams.append(os.fdopen(reader, 'rb', 0))
            threading.Thread(target=self._work, args=(number, writer)).start()
        return streams

    def stop(self):
        """Begin no more classes."""
        with self._lock:
            self.left.left.clear()
            self._stopped = True

    def _work(self, number, writer):
        try:
            while self._process(number, writer):
                pass
        finally:
            os.close(writer)

    def _take(self, number):
        with self._lock:
            others = [lab for other, lab in enumerate(self.labs)
                      if other != number]
            job = self.left.take(self.labs[number], others)
            self.labs[number] = job and job.lab
        return job

    def _process(self, number, writer):
        """Run jobs in one process.

        :returns: whether there may be more, for another process
        """
        job = self._take(number)
        if job is None:
            return False
        ours, its = socket.socketpair()
        running = subprocess.Popen(
            [*self.PROGRAM, str(its.fileno()), str(writer)], cwd=REPO,
            stdin=subprocess.DEVNULL, pass_fds=[its.fileno(), writer])
        its.close()
        with ours, ours.makefile('rw') as control:
            while job:
                control.write(json.dumps(
                    {'lab': job.lab, 'tests': job.tests}) + '\n')
                control.flush()
                if not control.readline():
                    break
                job = self._take(number)
        running.wait()
        if job:
            self._note_death(job, running, writer)
        return bool(job)

    def _note_death(self, job, running, writer):
        """A process has ended before its job: the next one tries again."""
        print('the process of %s has ended (%d)' % (
            job.name, running.returncode), flush=True)
        with self._lock:
            self.died[job.name] += 1
            if running.returncode in (worker.INTERRUPTED, -signal.SIGINT):
                self.left.left.clear()
                return
            again = (self.died[job.name] <= self.AGAIN
                     and not self._stopped)
            if again:
                self.left.put_back(job)
        if not again:
            with os.fdopen(os.dup(writer), 'wb', 0) as stream:
                report = subunit.StreamResultToBytes(stream)
                for test in job.tests:
                    report.status(test, 'fail', file_name='traceback',
                                  file_bytes=b'its process has ended',
                                  mime_type='text/plain;charset=utf8')
        take_down_labs_of(running.pid)


def take_down_labs_of(pid):
    """Take the labs down that a process has left when it died."""
    for path in labs.STATE.iterdir():
        if re.fullmatch(r'\D+%d' % pid, path.name):
            labs.Lab(path.name).down(keep_logs=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--workers', type=int, default=1)
    parser.add_argument('--exclude', metavar='REGEX')
    parser.add_argument('only', nargs='*', metavar='REGEX')
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        chosen = jobs(find(), yaml.safe_load(SECONDS.read_text()),
                      options.only, options.exclude)
    except process.LabError as exc:
        print(exc, file=sys.stderr)
        return 1
    if not chosen:
        print('no functional test matches', file=sys.stderr)
        return 1
    workers = Workers(queue.Queue(chosen), options.workers)
    try:
        code = load.load(force_init=True, pretty_out=True, in_streams=[
            ('subunit', stream) for stream in workers.start()])
    finally:
        workers.stop()
    return code or int(bool(workers.died))


if __name__ == '__main__':
    sys.exit(main())
