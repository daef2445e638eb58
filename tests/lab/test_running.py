# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import logging
from unittest import mock

from eventlet import patcher
import fixtures
import testtools

from tests.helpers import complaints
from tests.helpers import running

LOG = logging.getLogger('cinder_localclone.example')
#: Other tests of this process may have made the threads green.
time = patcher.original('time')


class Case(testtools.TestCase):

    def outcome(self, body):
        """Return what a test with this body says if it fails."""
        class Inner(testtools.TestCase):
            def test(inner):
                return body(inner)
        inner = Inner('test')
        found = testtools.TestResult()
        with mock.patch('sys.stdout', new_callable=io.StringIO):
            inner.run(found)
        return '\n'.join(text for _test, text in
                         found.failures + found.errors)


class ComplaintTest(Case):

    def test_fails_a_test_that_swallows_it(self):
        def body(_case):
            with contextlib.suppress(Exception):
                raise complaints.note('region 3 is lost')
        self.assertIn('complaints: region 3 is lost', self.outcome(body))

    def test_of_a_cleanup(self):
        def body(case):
            case.addCleanup(complaints.note, 'region 3 is lost')
        self.assertIn('complaints: region 3 is lost', self.outcome(body))

    def test_that_is_expected(self):
        def body(case):
            complaints.note('region 3 is lost')
            case.assertEqual(['region 3 is lost'], complaints.take())
        self.assertEqual('', self.outcome(body))

    def test_of_the_test_before(self):
        complaints.note('region 3 is lost')
        self.assertEqual('', self.outcome(lambda _case: None))


class LogTest(Case):

    def setUp(self):
        super().setUp()
        running.install(log=True)
        # Other tests of this process may have set logging up anew.
        logging.disable(logging.NOTSET)
        for logger in (LOG, LOG.parent):
            logger.disabled, logger.propagate = False, True

    def test_is_shown_if_the_test_fails(self):
        def body(case):
            LOG.debug('step %d', 1)
            case.fail('wrong')
        self.assertIn('DEBUG cinder_localclone.example: step 1',
                      self.outcome(body))

    def test_is_forgotten(self):
        self.outcome(lambda _case: LOG.warning('step 1'))
        said = self.outcome(lambda case: case.fail())
        self.assertNotIn('step 1', said)

    def test_of_a_skipped_test(self):
        def body(case):
            LOG.warning('step 1')
            case.skipTest('no root')
        self.assertEqual('', self.outcome(body))


class LimitTest(Case):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.EnvironmentVariable(running.LIMIT, '0.5'))
        self.useFixture(fixtures.MockPatchObject(running, 'AGAIN', 0.5))

    def test_test_that_hangs(self):
        said = self.outcome(lambda _case: time.sleep(60))
        self.assertIn('it runs for longer than 0.5 s (OS_TEST_TIMEOUT)',
                      said)
        self.assertIn('time.sleep(60)', said)

    def test_test_that_catches_it(self):
        def body(_case):
            for _time in range(3):
                with contextlib.suppress(Exception):
                    time.sleep(60)
        self.assertIn('complaints: it runs for longer', self.outcome(body))

    def test_cleanup_that_hangs(self):
        def body(case):
            case.addCleanup(time.sleep, 60)
            case.fail('wrong')
        said = self.outcome(body)
        self.assertIn('it runs for longer', said)

    def test_none(self):
        self.useFixture(fixtures.EnvironmentVariable(running.LIMIT, None))
        self.assertEqual('', self.outcome(lambda _case: time.sleep(0.1)))

    def test_outer_limit_is_kept(self):
        self.outcome(lambda _case: None)
        self.useFixture(fixtures.EnvironmentVariable(running.LIMIT, '3600'))

        def body(case):
            self.outcome(lambda _case: None)
            case.assertGreater(
                running.signal.getitimer(running.signal.ITIMER_REAL)[0],
                3500)
        self.assertEqual('', self.outcome(body))
