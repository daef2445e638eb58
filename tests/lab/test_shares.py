# SPDX-License-Identifier: Apache-2.0
"""How the unit tests are shared out to the workers of stestr."""

import collections
import re
from unittest import mock

import ddt
import fixtures
from stestr import scheduler
import testtools
import yaml

from lab import shares
from lab import testrun
import tests
from tests.helpers import sampling


@ddt.ddt
class SharesTest(testtools.TestCase):

    def test_all_workers_take_as_long(self):
        self.assertEqual([['a', 'd', 'e'], ['b', 'c']], shares.shares(
            'edcba', dict(a=60, b=40, c=30, d=5, e=4), 2))

    def test_one_takes_longer_than_a_worker_may(self):
        self.assertEqual([], shares.shares('abc', dict(a=9, b=4, c=4), 2))

    def test_nobody_knows_how_long(self):
        self.assertEqual([['a', 'c'], ['b', 'd']],
                         shares.shares('abcd', {}, 2))

    @ddt.data(1, 2, 3)
    def test_each_test_is_run_by_one_worker(self, workers):
        """Also that of a module which nobody knew of, or can import."""
        regexes = shares.regexes(shares.shares(
            ['tests.unit.test_a', 'tests.lab.test_a_b', 'tests.unit.b.test_c'],
            {}, workers))
        for test in ('tests.unit.test_a.Case.test_a_b',
                     'tests.lab.test_a_b.Case.test_c',
                     'tests.unit.b.test_c.Case.test_x',
                     'tests.unit.test_d.C.t',
                     'unittest.loader._FailedTest.tests.unit.test_a'):
            self.assertEqual(1, sum(bool(re.search(each, test))
                                    for each in regexes), (test, regexes))

    def test_stestr_reads_it(self):
        """Each test goes to one worker, and those of a module together."""
        modules = tests.modules()
        ids = ['%s.Case.test_%s' % (module, name)
               for module in modules for name in 'ab']
        with mock.patch.object(testrun.os, 'cpu_count', return_value=2), \
                testrun.shared_out() as (_option, path):
            parts = scheduler.generate_worker_partitions(ids, path)
        self.assertEqual(2, len(parts))
        self.assertEqual(sorted(ids), sorted(sum(parts, [])))
        self.assertEqual({2}, set(collections.Counter(
            (number, test.rpartition('.Case.')[0])
            for number, part in enumerate(parts) for test in part).values()))

    def test_stestr_shares_out(self):
        """Where all moments are run, or there are many processors."""
        with mock.patch.object(testrun.os, 'cpu_count', return_value=64), \
                testrun.shared_out() as words:
            self.assertEqual((), words)
        self.useFixture(fixtures.EnvironmentVariable(sampling.ALL, '1'))
        with mock.patch.object(testrun.os, 'cpu_count', return_value=2), \
                testrun.shared_out() as words:
            self.assertEqual((), words)

    def test_seconds_are_of_modules(self):
        seconds = yaml.safe_load((tests.HERE / 'seconds.yaml').read_text())
        self.assertEqual(set(), set(seconds).difference(
            tests.modules()))
