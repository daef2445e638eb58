# SPDX-License-Identifier: Apache-2.0
"""The processes that run schedules."""

import io
import multiprocessing
import os
import re
import signal
import time
from unittest import mock

import ddt
import testtools

from cinder_localclone.moves import cleanup
from tests.helpers import elsewhere
from tests.simulation import __main__ as simulation
from tests.simulation import planted
from tests.simulation import workers
from tests.world import schedules

FOREVER = 10 ** 9
#: A fault that few schedules are needed to find.
FAULT = 'recorded before done: end of a move'


class TestCase(testtools.TestCase):

    def setUp(self):
        super().setUp()
        elsewhere.skip(self, __name__)


@ddt.ddt
class CrewTest(TestCase):

    def setUp(self):
        super().setUp()
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)
        self.addCleanup(os.close, self.writer)
        self.now = self.worked = 0
        self.enterContext(mock.patch.object(workers, 'time', mock.Mock(
            spec_set=time, monotonic=lambda: self.now, process_time=lambda: 0,
            clock_gettime=lambda _clock: self.worked)))

    def run_crew(self, act, first=0, most=40, count=2,
                 progress=lambda: None):
        """Time stands still unless the progress says otherwise.

        :returns: the failure; the crew
        """
        crew = workers.Crew(self.noted(act), count)
        failure = crew.run(first, most, 50, progress)
        self.assertEqual([], multiprocessing.active_children())
        return failure, crew

    def noted(self, act):
        def noting(seed):
            os.write(self.writer, b'%6d' % seed)
            return act(seed)
        return noting

    def seeds(self):
        """Those that were begun."""
        os.set_blocking(self.reader, False)
        found = os.read(self.reader, 1 << 16)
        return sorted(int(found[n:n + 6]) for n in range(0, len(found), 6))

    @ddt.data(1, 2, 5)
    def test_each_seed_is_run_once(self, count):
        failure, crew = self.run_crew(lambda seed: '', 100, 50, count)
        self.assertIsNone(failure)
        self.assertEqual(list(range(100, 150)), self.seeds())
        self.assertEqual((50, 150), (crew.count, crew.below))

    def test_fewer_seeds_than_processes(self):
        _failure, crew = self.run_crew(lambda seed: '', 7, 1, 4)
        self.assertEqual([7], self.seeds())
        self.assertEqual(8, crew.below)

    @ddt.data(1, 2, 3)
    def test_lowest_seed_that_fails(self, count):
        """Though a higher one fails long before."""
        def act(seed):
            if seed == 5:
                time.sleep(.2)
            return 'wrong' if seed in (5, 9, 17, 30) else ''
        failure, _crew = self.run_crew(act, count=count)
        self.assertEqual(workers.Failure(5, 'wrong'), failure)
        self.assertNotIn(39, self.seeds())

    def test_process_that_dies(self):
        def act(seed):
            if seed == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return ''
        failure, _crew = self.run_crew(act)
        self.assertEqual((3, False), (failure.seed, failure.ended))
        self.assertIn('SIGKILL', failure.what)

    def test_process_that_ends(self):
        failure, _crew = self.run_crew(
            lambda seed: os._exit(7) if seed == 3 else '')
        self.assertEqual((3, False), (failure.seed, failure.ended))
        self.assertIn('exit code 7', failure.what)

    @ddt.data((workers.PATIENCE, 0),
              (0, workers.PATIENCE * workers.STARVED))
    @ddt.unpack
    def test_schedule_that_hangs(self, worked, waited):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)

        def act(seed):
            if seed == 6:
                os.dup2(writer, 2)  # where it was is told there
                os.write(2, b'begun')
                time.sleep(FOREVER)
            return ''
        done = []

        def progress():
            done.append(1)
            if len(done) == 6:
                os.read(reader, 5)
                self.worked += worked
                self.now += waited
        with mock.patch.object(workers, 'EVERY', .05):
            failure, _crew = self.run_crew(act, count=1, progress=progress)
        self.assertEqual((6, False), (failure.seed, failure.ended))
        self.assertIn('in act', os.read(reader, 1 << 16).decode())

    def test_others_keep_its_process_waiting(self):
        def progress():
            self.now += workers.PATIENCE * 2
        with mock.patch.object(workers, 'EVERY', .01):
            failure, _crew = self.run_crew(
                lambda seed: time.sleep(.1) or '', most=2, count=1,
                progress=progress)
        self.assertIsNone(failure)

    def test_time_limit(self):
        done = []

        def progress():
            done.append(1)
            self.now = 50 * (len(done) >= 20)
        failure, crew = self.run_crew(
            lambda seed: '', most=10 ** 6, progress=progress)
        self.assertIsNone(failure)
        self.assertEqual(list(range(crew.count)), self.seeds())
        self.assertGreaterEqual(crew.count, 20)
        self.assertEqual(crew.count, crew.below)

    @ddt.data(*workers.SIGNALS)
    def test_signal(self, number):
        def act(seed):
            if seed == 4:
                os.kill(os.getppid(), number)
            return time.sleep(.01) or ''
        before = signal.getsignal(number)
        error = self.assertRaises(workers.Interrupted, self.run_crew, act,
                                  most=10 ** 6)
        self.assertEqual(number, error.number)
        self.assertEqual([], multiprocessing.active_children())
        self.assertEqual(before, signal.getsignal(number))


class OutcomeTest(TestCase):

    def setUp(self):
        super().setUp()
        self.enterContext(schedules.fast())
        self.said = self.enterContext(mock.patch(
            'sys.stdout', new_callable=io.StringIO))

    def run_planted(self, count):
        with planted.planted(*planted.FAULTS[FAULT]):
            return workers.Crew(simulation.outcome, count).run(
                0, 40, FOREVER + time.monotonic())

    def test_is_the_same_with_more_processes(self):
        failure = self.run_planted(1)
        self.assertTrue(failure.ended)
        self.assertEqual(failure, self.run_planted(3))

    def test_is_shortened_and_told(self):
        failure = self.run_planted(2)
        with planted.planted(*planted.FAULTS[FAULT]):
            simulation.fail(failure)
        told = self.said.getvalue()
        for part in ('SEED=%d fails: %s' % (failure.seed, failure.what),
                     'shortened from', 'what happened:', 'schedule:\n{'):
            self.assertIn(part, told)

    def test_that_depends_on_more_than_the_seed(self):
        simulation.fail(workers.Failure(0, 'wrong'))
        self.assertIn('it does not when it is run again',
                      self.said.getvalue())

    def test_of_encrypted_volumes(self):
        with mock.patch.object(schedules, 'run', autospec=True) as run:
            for encrypts in (False, True):
                simulation.outcome(0, encrypts)
        self.assertEqual([False, True], [
            each.args[0].encrypted for each in run.call_args_list])

    def test_of_planted_faults_in_encrypted_volumes(self):
        def run(schedule, _choices):
            if schedule.encrypted and schedule.seed == 7:
                raise schedules.Broken('it is', [])
        with mock.patch.object(schedules, 'run', autospec=True,
                               side_effect=run):
            for more, code in (['--encrypted'], 0), ([], 1):
                self.assertEqual(code, simulation.find_planted(
                    simulation.parser().parse_args(
                        ['--planted', FAULT, '--schedules', '9', *more]), 2))
        self.assertEqual(
            ['found by schedule 8: it is', '0 not found', 'not found in 9',
             '1 not found'],
            [re.sub(r' in \d+ s', '', each.removeprefix(FAULT)).strip()
             for each in self.said.getvalue().splitlines()])

    def test_planted_fault_is_gone_afterwards(self):
        before = cleanup.take_down
        count, failure = planted.find(
            FAULT, lambda _seed: 'it is there' if (
                cleanup.take_down is not before) else '', 2, 3, 5, FOREVER)
        self.assertEqual((1, 'it is there'), (count, failure.what))
        self.assertIs(before, cleanup.take_down)

    def test_of_a_process_that_died_is_not_run_again(self):
        with mock.patch.object(schedules, 'run', autospec=True) as run:
            simulation.fail(workers.Failure(0, 'it died', False))
        run.assert_not_called()
        self.assertIn('SEED=0 fails: it died', self.said.getvalue())

    def test_does_not_depend_on_what_ran_before(self):
        def runs(seeds):
            return {seed: str(simulation._run(seed)) for seed in seeds}
        self.assertEqual(runs(range(12)), runs(reversed(range(12))))

    def test_exit_code_and_progress(self):
        self.assertEqual(0, simulation.run(
            3, 5, time.monotonic() + FOREVER, 2))
        self.assertIn('5 schedules (all seeds from 3 to 7)',
                      self.said.getvalue())
