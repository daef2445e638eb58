# SPDX-License-Identifier: Apache-2.0
"""What keeps labs apart and ends them, without a lab."""

import argparse
import functools
import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import ddt
import fixtures
import testtools

from lab.core import capture
from lab.core import claim
from lab.core import install
from lab.core import process
from lab.core import quick_start
from lab.faults import __main__ as faults
from lab import lab as labs
from lab import testrun
from tests.helpers import sampling
from tests import simulation

CLAIMS = '''
from lab.core import capture
from lab.core import claim
import pathlib, signal, sys, time
if sys.argv[2] == 'stubborn':
    signal.signal(signal.SIGINT, signal.SIG_IGN)
held = claim.Claim(pathlib.Path(sys.argv[1]))
held.take()
try:
    print('taken', flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1] + '.tidy').touch()
'''

PRINTED = '''
{0} tests.functional.test_move.A.test_b [1.003838s] ... FAILED

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "/x/tests/functional/test_move.py", line 14, in test_b
    self.assertEqual(1, 2)

    testtools.matchers._impl.MismatchError: 1 != 2

  lab 7: beside it, of the other worker
==============================
Failed 2 tests - output below:
==============================

setUpClass (tests.functional.test_faults.C)
-------------------------------------------

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "/x/tests/functional/test_faults.py", line 6, in setUpClass
    raise ValueError('lab did not come up')

    ValueError: lab did not come up


tests.functional.test_move.A.test_b
-----------------------------------

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "/x/tests/functional/test_move.py", line 14, in test_b
    self.assert_one(2)

      File "/x/tests/functional/base.py", line 8, in assert_one
    self.assertEqual(1, 2)

      File "/y/testtools/testcase.py", line 704, in assertThat
    raise mismatch_error

    testtools.matchers._impl.MismatchError: 1 != 2


Captured nodes:
~~~~~~~~~~~~~~~
    node1, 12:00:00
    localclone-v -> ../dm-1



======
Totals
======
Ran: 5 tests in 9.0637 sec.

The following tests exited without returning a status
and likely segfaulted or crashed Python:

\t* tests.functional.test_operator.D.test_a
'''


class FailuresTest(testtools.TestCase):

    def test_each_is_told_once_with_its_reason(self):
        self.assertEqual([
            ('setUpClass (tests.functional.test_faults.C)', [
                'File "/x/tests/functional/test_faults.py", line 6, in '
                'setUpClass', 'ValueError: lab did not come up']),
            ('tests.functional.test_move.A.test_b', [
                'File "/x/tests/functional/test_move.py", line 14, in '
                'test_b', 'File "/x/tests/functional/base.py", line 8, in '
                'assert_one',
                'testtools.matchers._impl.MismatchError: 1 != 2',
                'node1, 12:00:00', 'localclone-v -> ../dm-1']),
            ('tests.functional.test_operator.D.test_a', [
                'its process ended before it did'])],
            testrun.failures(PRINTED))


SLOWEST = '''
Test id                                                    Runtime (s)
---------------------------------------------------------  -----------
tests.unit.test_move.MoveTest.test_stop_6____cut____True_    11.689
tests.functional.test_move.A.test_b                         101.006
'''


class SlowestTest(testtools.TestCase):

    def test_are_read(self):
        self.assertEqual([
            (11.689, 'tests.unit.test_move.MoveTest.test_stop_6____cut____'
             'True_'),
            (101.006, 'tests.functional.test_move.A.test_b')],
            testrun.slowest(SLOWEST))
        self.assertEqual([], testrun.slowest(''))

    def test_ten_of_both_suites_are_shown(self):
        suites = [
            (('unit', 60.4, 500, 0, 1), [], [
                (number, 'unit%d' % number) for number in range(8)]),
            (('functional', 1000, 33, 1, 0), [], [
                (number + 0.5, 'functional%d' % number)
                for number in range(8)])]
        with mock.patch('sys.stdout', new_callable=io.StringIO) as said:
            testrun.show(suites, ['nodes run Linux 7.2.7'])
        lines = said.getvalue().splitlines()
        self.assertEqual(
            ['    7.5  functional7', '    7.0  unit7'], lines[2:4])
        self.assertEqual('    3.0  unit3', lines[11])
        self.assertEqual('533 passed, 1 failed, 1 skipped', lines[-1])
        self.assertIn('nodes run Linux 7.2.7', lines)


@ddt.ddt
class WorkersTest(testtools.TestCase):

    @ddt.data((True, 2, 16000, 2), (True, 4, 16000, 2), (True, 1, 16000, 1),
              (True, 2, 8000, 1), (False, 4, 64000, 1))
    @ddt.unpack
    def test_how_many(self, seccomp, processors, memory, wanted):
        self.assertEqual(wanted, testrun.workers(
            {'seccomp': seccomp, 'release': '7'}, processors, memory))

    def test_memory_is_read(self):
        self.assertGreater(testrun.free_memory(), 100)


HANGS = '''
import testtools
import time
class Case(testtools.TestCase):
    def test_a(self):
        pass
    def test_b(self):
        open("reached", "w").close()
        time.sleep(300)
'''


LEAVES = '''
import testtools
class Case(testtools.TestCase):
    def test_a(self):
        pass
    def test_b(self):
        %s
    def test_c(self):
        pass
'''


class BudgetTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.repo = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.repo / 'tests').mkdir()
        (self.repo / 'tests/__init__.py').touch()
        (self.repo / 'tests/test_it.py').write_text(HANGS)
        (self.repo / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=${OS_TEST_PATH}\ntop_dir=./\n')
        self.said = self.useFixture(fixtures.MockPatch(
            'sys.stdout', new_callable=io.StringIO)).mock

    def run_suite(self, until):
        with mock.patch.object(testrun, 'ROOT', self.repo):
            return testrun.suite(
                pathlib.Path(sys.prefix), 'unit', './tests', until,
                '--serial')

    def test_is_over_while_a_test_runs(self):
        """It says which; what ended before counts."""
        reached = self.repo / 'reached'

        class Over(threading.Event):
            def wait(self, seconds=None):
                process.wait_for('the test', reached.exists, 60)
                return False

        class Watch(testrun.Watch):
            def __init__(self, until):
                super().__init__(until)
                self._over = Over()
        with mock.patch.object(testrun, 'Watch', Watch):
            row, failed, _slowest = self.run_suite(time.monotonic() + 3600)
        self.assertEqual(('unit', 1, 1, 0), (row[0], *row[2:]))
        self.assertEqual([
            ('unit tests', [testrun.LATE]),
            ('tests.test_it.Case.test_b',
             ['it was running when all was ended'])], failed)
        self.assertIn(testrun.LATE, self.said.getvalue())

    def run_with(self, statement):
        (self.repo / 'tests/test_it.py').write_text(LEAVES % statement)
        return self.run_suite(time.monotonic() + 3600)

    def test_counts_tests_that_a_worker_left_out(self):
        for statement in 'raise SystemExit(0)', '__import__("os")._exit(0)':
            row, failed, _slowest = self.run_with(statement)
            self.assertEqual((1, 1), row[2:4])
            self.assertEqual([('unit tests', [testrun.MISSING % 1]),
                              'tests.test_it.Case.test_b'],
                             [failed[0], failed[1][0]])

    def test_has_run_all(self):
        row, failed, _slowest = self.run_with('self.skipTest("once")')
        self.assertEqual((2, 0, 1), row[2:])
        self.assertEqual([], failed)

    def test_is_over_before(self):
        row, failed, slowest = self.run_suite(time.monotonic() - 1)
        self.assertEqual(('unit', 0, 0, 1, 0), row)
        self.assertEqual([('unit tests', [testrun.LATE])], failed)
        self.assertEqual([], slowest)
        self.assertFalse((self.repo / '.stestr').exists())

    def test_counts_from_the_begin_of_all(self):
        self.useFixture(fixtures.EnvironmentVariable(
            testrun.BEGAN, '1000'))
        with mock.patch.object(testrun.time, 'time', return_value=1600), \
                mock.patch.object(testrun.time, 'monotonic',
                                  return_value=50):
            self.assertEqual(50 + 85 * 60 - 600, testrun.deadline())
            self.assertEqual(50 + 36000 - 600, testrun.deadline(True))
            os.environ[testrun.BEGAN] = ''
            self.assertEqual(50 + 85 * 60, testrun.deadline())

    def test_limit_of_one_test(self):
        self.useFixture(fixtures.EnvironmentVariable(
            testrun.TEST_LIMIT, None))
        self.assertEqual(['300', '900', '3600'], [
            testrun.limit('unit', False), testrun.limit('functional', False),
            testrun.limit('unit', True)])
        os.environ[testrun.TEST_LIMIT] = '7'
        self.assertEqual('7', testrun.limit('unit', True))


#: What a run of schedules prints, and how it ends.
SCHEDULES = '''
import sys
print("SEED=41")
print("10 schedules (all seeds from 41 to 50) in 10 s: 1 a second, 1 a second")
print("%%d schedules (all seeds from 41 to 52) in 12 s: 1 a second, 1" %% %d)
%s
'''
FAILS = '''
print("SEED=52 fails: volume 1a2b on a@l: region 3")
print("shortened from 9 events and 7 choices to 2 and 1: region 1")
print("events:\\n  0.0 s  #1 cut 0 0")
print("what happened:\\n  a lot\\nschedule:\\n{}")
sys.exit(1)
'''


class SimulationTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.repo = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.repo / 'tests').mkdir()
        (self.repo / 'tests/__init__.py').touch()
        self.useFixture(fixtures.MockPatchObject(
            testrun, 'ROOT', self.repo))
        self.said = self.useFixture(fixtures.MockPatch(
            'sys.stdout', new_callable=io.StringIO)).mock

    def simulate(self, program, seconds=3600, encrypts=False):
        (self.repo / 'tests/simulation.py').write_text(program)
        return testrun.simulation(
            pathlib.Path(sys.prefix), time.monotonic() + seconds, encrypts)

    def test_none_fails(self):
        (row, failed, slowest), seed = self.simulate(SCHEDULES % (12, ''))
        self.assertEqual(('simulation', 12, 0, 0), (row[0], *row[2:]))
        self.assertEqual(([], [], '41'), (failed, slowest, seed))
        self.assertIn('SEED=41', self.said.getvalue())

    def test_is_asked_for_two_minutes_in_the_venv_it_is_in(self):
        for encrypts, title, words in (
                (False, 'simulation', "'1.5'"),
                (True, 'encrypted simulation', "'0.5', '--encrypted'")):
            (_row, failed, _slowest), _seed = self.simulate(
                'import os, sys\nprint(sys.argv[1:], os.environ["%s"])\n' % (
                    simulation.HERE), encrypts=encrypts)
            self.assertEqual([
                (title, ["['--seed', '%d', '--minutes', %s] 1" % (
                    sampling.choice(title).randrange(10 ** 9), words)])],
                failed)

    def test_one_fails(self):
        """It is told shortened; what happened in it stands above."""
        (row, failed, _slowest), seed = self.simulate(
            SCHEDULES % (12, FAILS))
        self.assertEqual((11, 1, 0), row[2:])
        self.assertEqual('41', seed)
        self.assertEqual([('SEED=52', [
            'volume 1a2b on a@l: region 3',
            'shortened from 9 events and 7 choices to 2 and 1: region 1',
            'events:', '  0.0 s  #1 cut 0 0'])], failed)
        self.assertIn('what happened:\n  a lot', self.said.getvalue())

    def test_ends_with_an_error(self):
        (row, failed, _slowest), seed = self.simulate('raise ValueError(7)')
        self.assertEqual((0, 1, 0), row[2:])
        (name, lines), = failed
        self.assertEqual(('simulation', ''), (name, seed))
        self.assertIn('ValueError: 7', lines)

    def test_is_over_before(self):
        (row, failed, _slowest), _seed = self.simulate('', seconds=-1)
        self.assertEqual((0, 0, 1, 0), row[1:])
        self.assertEqual([('simulation', [testrun.LATE])], failed)

    @mock.patch.object(testrun, 'simulation', autospec=True)
    @mock.patch.object(testrun, 'suite', autospec=True)
    @mock.patch.object(testrun, 'versions', return_value='v', autospec=True)
    def test_fails_the_run(self, _versions, suite, simulated):
        """Nothing that takes longer is begun then."""
        suite.return_value = ('unit', 1, 5, 0, 0), [], []
        simulated.side_effect = lambda _unit, _until, encrypts: (
            (('encrypted simulation', 1, 3, 1, 0), [
                ('SEED=52', ['region 3'])], []), '41') if encrypts else (
            (('simulation', 2, 7, 0, 0), [], []), '40')
        options = argparse.Namespace(
            unit=False, all=False, tests=[], workers=None)
        self.assertEqual(1, testrun.run(None, pathlib.Path('v'), options, 0))
        suite.assert_called_once()
        said = self.said.getvalue()
        for part in ('FAILED SEED=52\n    region 3', 'make simulate '
                     'ENCRYPTED=1 SEED=41 SCHEDULES=4',
                     'make simulate SEED=40 SCHEDULES=7\n'):
            self.assertIn(part, said)

    @mock.patch.object(testrun, 'simulation', autospec=True)
    @mock.patch.object(testrun, 'suite', autospec=True)
    @mock.patch.object(testrun, 'versions', return_value='v', autospec=True)
    def test_is_no_part_of_the_unit_tests(self, _versions, suite, simulated):
        suite.return_value = ('unit', 1, 5, 0, 0), [], []
        options = argparse.Namespace(
            unit=True, all=False, tests=[], workers=None)
        self.assertEqual(0, testrun.run(None, pathlib.Path('v'), options, 0))
        simulated.assert_not_called()


class LabOfAnotherProcessTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        state = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(labs, 'STATE', state))
        self.path = state / 'demo.user'

    def other(self, manner=''):
        """A process, in a group of its own, that has claimed lab "demo"."""
        found = subprocess.Popen(
            [sys.executable, '-c', CLAIMS, self.path, manner],
            stdout=subprocess.PIPE, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(found.stdout.close)
        self.addCleanup(found.wait)
        self.addCleanup(found.kill)
        self.assertEqual(b'taken\n', found.stdout.readline())
        return found

    @mock.patch.object(labs.Lab, 'install', mock.Mock())
    @mock.patch.object(labs.Lab, '_up', mock.Mock())
    def test_is_neither_taken_down_nor_brought_up(self):
        other = self.other()
        lab = labs.Lab('demo')
        for act in (lab.down, lab.up):
            error = self.assertRaises(process.LabError, act)
            self.assertIn('lab "demo" is in use by process %d' % other.pid,
                          str(error))
        self.assertEqual(['demo'], [
            each.name for each in labs.used_by({other.pid})])

    def test_may_be_taken_once_that_has_ended(self):
        other = self.other()
        other.kill()
        other.wait()
        found = claim.Claim(self.path)
        self.assertIsNone(found.holder)
        found.take()
        self.assertEqual(os.getpid(), claim.Claim(self.path).holder)
        found.drop()
        self.assertEqual([], list(self.path.parent.iterdir()))

    @mock.patch.object(labs.Lab, 'down')
    def test_suite_ends_and_tidies_up_itself(self, down):
        other = self.other()
        testrun.end(other.pid)
        self.assertEqual(0, other.wait())
        self.assertTrue(pathlib.Path('%s.tidy' % self.path).exists())
        down.assert_not_called()

    @mock.patch.object(testrun, 'GRACE', 1)
    @mock.patch.object(labs.Lab, 'down', autospec=True)
    def test_suite_that_does_not_end_is_killed_and_its_lab_ended(self, down):
        other = self.other('stubborn')
        with mock.patch('builtins.print'):
            testrun.end(other.pid)
        self.assertEqual(-signal.SIGKILL, other.wait())
        self.assertEqual(['demo'], [
            call.args[0].name for call in down.call_args_list])


@ddt.ddt
class VenvTest(testtools.TestCase):
    """Another release of Cinder, or Python, has a venv of its own."""

    def setUp(self):
        super().setUp()
        cache = self.useFixture(fixtures.TempDir()).path
        for name, value in (('LOCALCLONE_LAB_CACHE', cache),
                            (install.CINDER, None), (install.PYTHON, None)):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.ran = []
        self.patch(process, 'run', self.run_command)
        self.patch(install.shutil, 'which',
                   lambda name: name == 'python3.13')

    def run_command(self, *words, **_more):
        self.ran.append(words)
        if 'venv' in words:
            pathlib.Path(words[-1]).mkdir()

    def venv(self, cinder=None, python=None, additions=()):
        with (fixtures.EnvironmentVariable(install.CINDER, cinder),
              fixtures.EnvironmentVariable(install.PYTHON, python)):
            return install.venv(mock.Mock(), additions)

    def held(self, path):
        lines = (path / 'constraints.txt').read_text().splitlines()
        return dict(line.split('==') for line in lines if '==' in line)

    def test_each_has_its_own(self):
        paths = [self.venv(*how) for how in (
            (None,), ('28',), ('27',), (None, 'python3.13'),
            ('28', 'python3.13'))]
        self.assertEqual(5, len(set(paths)))
        self.assertEqual(paths[0], self.venv('29'))
        self.assertEqual(
            ['/usr/bin/python3'] * 3 + ['python3.13'] * 2,
            [words[0] for words in self.ran if 'venv' in words])

    @ddt.data('27', '28')
    def test_release(self, release):
        ours, other = (self.held(self.venv(each)) for each in (None, release))
        self.assertEqual(release, other['cinder'].partition('.')[0])
        lines = (install.HERE / ('constraints_cinder%s.txt' % release)
                 ).read_text().splitlines()
        instead = dict(line.split('==') for line in lines if '==' in line)
        self.assertEqual(dict(ours, **instead), other)
        # No line is in vain.
        self.assertEqual({}, dict(instead.items() & ours.items()))

    def test_additions_are_held_to_both(self):
        path = self.venv('28', additions=['keys'])
        held = self.held(path)
        self.assertEqual('28', held['cinder'].partition('.')[0])
        self.assertIn('barbican', held)
        self.assertEqual(
            [('-c', str(path / 'constraints.txt'), 'barbican')],
            [words[-3:] for words in self.ran if 'barbican' in words])

    def test_release_that_is_not_known(self):
        error = self.assertRaises(process.LabError, self.venv, '26')
        self.assertIn('constraints_cinder26.txt', str(error))
        self.assertEqual([], self.ran)

    def test_python_that_is_not_here(self):
        error = self.assertRaises(process.LabError, self.venv, None, 'python9')
        self.assertIn('python9', str(error))
        self.assertEqual([], self.ran)


@ddt.ddt
class QuickStartTest(testtools.TestCase):
    """A function before exec(2) is left out if it does nothing of its own."""

    @ddt.data((functools.partial(print, None), None), (None, None),
              (print, print),
              (functools.partial(print, len), mock.ANY))
    @ddt.unpack
    def test_function_before_exec(self, given, passed):
        with mock.patch.object(subprocess.Popen, '__init__',
                               return_value=None) as init:
            quick_start.Popen.__init__(mock.Mock(spec=quick_start.Popen), [
                'true'], preexec_fn=given, shell=False)
        self.assertEqual(
            {'preexec_fn': passed and given, 'shell': False},
            init.call_args.kwargs)

    def test_processes_are_started_so(self):
        from oslo_concurrency import processutils
        self.patch(processutils, 'subprocess', subprocess)
        quick_start.install()
        self.assertIs(quick_start.Popen, processutils.subprocess.Popen)
        self.assertEqual(('so\n', ''), processutils.execute('echo', 'so'))


@ddt.ddt
class RoomForLabsTest(testtools.TestCase):

    @ddt.data((2, 24, 3), (2, 8, 2), (1, 2, 1), (16, 64, 4))
    @ddt.unpack
    def test_by_processors_and_memory(self, processors, gib, labs_there):
        self.patch(os, 'sched_getaffinity', lambda _pid: range(processors))
        self.patch(os, 'sysconf', {
            'SC_PHYS_PAGES': gib << 18, 'SC_PAGE_SIZE': 4096}.__getitem__)
        self.assertEqual(labs_there, faults.room_for())


@ddt.ddt
class CaptureTest(testtools.TestCase):

    def packet(self, sport, dport, kind=b'\x08\x00', protocol=6, words=5):
        header = bytearray(4 * words)
        header[0], header[9] = 0x40 | words, protocol
        return (bytes(12) + kind + bytes(header)
                + sport.to_bytes(2, 'big') + dport.to_bytes(2, 'big'))

    @ddt.data({'sport': 3260, 'dport': 40000}, {'sport': 40000,
                                                'dport': 3260},
              {'sport': 3260, 'dport': 40000, 'words': 8})
    def test_of_the_port(self, how):
        self.assertTrue(capture.is_of_port(self.packet(**how), 3260))

    @ddt.data({}, {'protocol': 17}, {'kind': b'\x08\x06'})
    def test_of_another(self, how):
        port = 3260 if how else 49152
        self.assertFalse(capture.is_of_port(
            self.packet(port, 40000, **how), 3260))
        self.assertFalse(capture.is_of_port(b'short', 3260))
