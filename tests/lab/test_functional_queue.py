# SPDX-License-Identifier: Apache-2.0
"""Which functional tests a worker takes next, and what it does with them."""

import io
import os
import pathlib
import sys

import ddt
import fixtures
import testtools

from lab.core import process
from lab.functional import __main__ as functional
from lab.functional import queue
from lab import lab as labs
from tests.helpers import elsewhere


def job(name, lab, seconds=60):
    return queue.Job(name, lab, seconds, ('tests.functional.%s.test' % name,))


class QueueTest(testtools.TestCase):

    def taken(self, left, lab, *others):
        job_ = left.take(lab, others)
        return job_ and job_.name

    def test_longest_first(self):
        left = queue.Queue([job('a', 'one', 5), job('b', 'one', 50)])
        self.assertEqual(['b', 'a', None], [
            self.taken(left, 'one') for _time in range(3)])

    def test_stays_with_its_lab(self):
        left = queue.Queue([job('a', 'one', 5), job('b', 'two', 50)])
        self.assertEqual(['a', 'b'], [
            self.taken(left, 'one') for _time in range(2)])

    def test_kind_of_lab_with_most_to_do(self):
        left = queue.Queue([job('a', 'one', 50), job('b', 'two', 30),
                            job('c', 'two', 30)])
        self.assertEqual('b', self.taken(left, None))

    def test_kind_that_no_other_has(self):
        left = queue.Queue([job('a', 'one', 500), job('b', 'two', 5)])
        self.assertEqual('b', self.taken(left, 'three', 'one'))

    def test_helps_another_if_that_pays(self):
        left = queue.Queue([job('a', 'one', queue.LAB),
                            job('b', 'one', queue.LAB)])
        self.assertEqual('a', self.taken(left, 'two', 'one'))
        self.assertIsNone(self.taken(left, 'two', 'one'))
        self.assertEqual('b', self.taken(left, 'one', 'two'))

    def test_put_back(self):
        left = queue.Queue([job('a', 'one')])
        again = left.take(None, [])
        self.assertIsNone(left.take(None, []))
        left.put_back(again)
        self.assertEqual(again, left.take(None, []))


class JobsTest(testtools.TestCase):

    class OneTest(testtools.TestCase):
        lab_name = 'one'

    def jobs(self, *only, **exclude):
        name = 'tests.functional.test_one.OneTest.'
        return functional.jobs(
            {self.OneTest: [name + 'test_a', name + 'test_b_at_length']},
            {'test_functional_queue.OneTest': 7}, only, **exclude)

    def test_all(self):
        found, = self.jobs()
        self.assertEqual(('one', 14, 2), (
            found.lab, found.seconds, len(found.tests)))

    def test_chosen(self):
        found, = self.jobs(exclude='_at_length')
        self.assertEqual((7, 1), (found.seconds, len(found.tests)))
        found, = self.jobs('b_at', 'nothing')
        self.assertTrue(found.tests[0].endswith('test_b_at_length'))
        self.assertEqual([], self.jobs('nothing'))

    def test_each_class_has_a_lab(self):
        """Found without any lab, and all of them can be imported."""
        found = functional.find()
        self.assertGreater(sum(map(len, found.values())), 100)
        jobs = functional.jobs(found, {})
        self.assertEqual(len(found), len(jobs))


#: A worker that answers for each class but one, and reports nothing.
WORKER = '''
import json, os, sys
with os.fdopen(int(sys.argv[1]), 'r+b', 0) as asked:
    for line in asked:
        name = json.loads(line)['tests'][0].split('.')[2]
        if name == 'deadly' or (name == 'interrupted'):
            os._exit(130 if name == 'interrupted' else 9)
        print(name, file=open(%r, 'a'))
        asked.write(b'done\\n')
'''


@ddt.ddt
class WorkersTest(testtools.TestCase):
    """Green threads would make the pipes of workers non-blocking."""

    def setUp(self):
        super().setUp()
        elsewhere.skip(self, '%s.WorkersTest' % __name__)
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.ran = self.path / 'ran'
        self.ran.touch()
        self.useFixture(fixtures.MockPatchObject(
            functional.Workers, 'PROGRAM',
            [sys.executable, '-c', WORKER % str(self.ran)]))
        self.useFixture(fixtures.MockPatchObject(
            labs, 'STATE', self.path))
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', io.StringIO()))

    def run_all(self, count, *jobs):
        self.workers = functional.Workers(queue.Queue(jobs), count)
        self.reported = b''
        for stream in self.workers.start():
            with stream:
                self.reported += stream.read()
        return sorted(self.ran.read_text().split())

    @ddt.data(1, 2, 3)
    def test_each_class_is_run_once(self, count):
        names = ['a', 'b', 'c', 'd']
        self.assertEqual(names, self.run_all(count, *[
            job(name, lab, 500) for name, lab in zip(names, 'xyxy')]))

    def test_process_that_dies(self):
        """Its class is tried once more, and the others are run."""
        self.assertEqual(['a', 'b'], self.run_all(
            1, job('deadly', 'x', 70), job('a', 'x'), job('b', 'y')))
        self.assertEqual({'deadly': 2}, self.workers.died)
        self.assertIn(b'tests.functional.deadly.test', self.reported)

    def test_stopped(self):
        """Whoever killed a process, none is begun in its place."""
        left = queue.Queue([job('deadly', 'x', 70), job('a', 'x')])
        take, self.workers = left.take, functional.Workers(left, 1)

        def taken(*words):
            found = take(*words)
            self.workers.stop()
            return found
        self.useFixture(fixtures.MockPatchObject(left, 'take', taken))
        for stream in self.workers.start():
            with stream:
                stream.read()
        self.assertEqual({'deadly': 1}, self.workers.died)
        self.assertEqual('', self.ran.read_text())

    def test_interrupted(self):
        """No other is begun."""
        self.assertEqual([], self.run_all(
            1, job('interrupted', 'x', 70), job('a', 'x'), job('b', 'y')))

    def test_labs_of_a_process_that_died(self):
        gone = []
        self.useFixture(fixtures.MockPatchObject(
            labs.Lab, 'down', lambda lab, keep_logs: gone.append(lab.name)))
        mine, others = 'test%d' % os.getpid(), 'test1%d' % os.getpid()
        for name in (mine, others, mine + '.logs'):
            (self.path / name).mkdir()
        functional.take_down_labs_of(os.getpid())
        self.assertEqual([mine], gone)


class FindTest(testtools.TestCase):

    def test_module_that_cannot_be_imported(self):
        tests = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (tests / 'test_broken.py').write_text('import no_such_module\n')
        self.useFixture(fixtures.MockPatchObject(functional, 'TESTS', tests))
        self.useFixture(fixtures.MockPatchObject(functional, 'REPO', tests))
        failed = self.assertRaises(process.LabError, functional.find)
        self.assertIn('no_such_module', str(failed))
