# SPDX-License-Identifier: Apache-2.0
"""``make test``: install, unit tests, schedules, functional tests, a table."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from lab.core import install
from lab.core import process
from lab.core import report
from lab import lab as labs
from lab import shares
import tests
from tests.helpers import sampling
from tests import simulation as simulations

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Seconds for all suites: CI allows 90 minutes, and the report comes before.
#: With everything that there is it is a night's work.
LIMIT, LIMIT_ALL = 85 * 60, 10 * 3600
#: Of the environment: since when the limit counts, as ``date +%s`` says.
BEGAN = 'LOCALCLONE_TEST_BEGAN'
#: Of the environment: seconds for one test; what it is if it is not set, by
#: suite, and if all is asked for.
TEST_LIMIT = 'OS_TEST_TIMEOUT'
TEST_LIMITS = {'unit': 300, 'functional': 900}
TEST_LIMIT_ALL = 3600
GRACE = 90  # seconds for its tests to take their labs down
SLOWEST = 10  # tests that are shown
#: Minutes of schedules: whether the driver encrypts their volumes.
SIMULATED = {False: 1.5, True: 0.5}
#: The module that runs a suite.
RUNNERS = {'unit': ('stestr', 'run'), 'functional': ('lab.functional',)}
#: Functional tests that show the same at more length.
LONG = '_at_length'
#: Why tests were not run to their end.
LATE = 'not done within the time that all tests have together'
#: stestr does not report them.
MISSING = ('tests that were not run: %d. A worker of stestr has ended before '
           'them.')
#: What a lab may need, in MiB; it is little as long as its nodes rest.
LAB_MEMORY = 6144

# What stestr prints of a test that failed, or of "setUpClass (...)": its name
# underlined, then parts with titles, underlined as well.
_NAME = r'(?:\w+ \()?(?:tests|unittest)\.\S+'
_FAILED = re.compile(r'^(%s)\n-{5,}\n(.*?)'
                     r'(?=^%s\n-{5,}\n|^=+\nTotals|\Z)' % (_NAME, _NAME),
                     re.MULTILINE | re.DOTALL)
_CRASHED = re.compile(r'^\t\* (%s)$' % _NAME, re.MULTILINE)
#: Tests keep the state of their nodes under this name.
_NODES = re.compile(r'^Captured nodes:\n~+\n(.*?)(?=^Captured |^=+$|\Z)',
                    re.MULTILINE | re.DOTALL)
_TRACEBACK = re.compile(r'^Captured traceback:\n~+\n(.*?)(?=^Captured |\Z)',
                        re.MULTILINE | re.DOTALL)


def failures(printed):
    """The tests that failed, and why.

    :param printed: all that stestr has printed
    :returns: list of (name, lines: the last calls in the test, and the
        exception)
    """
    found = []
    for name, parts in _FAILED.findall(printed):
        traceback = _TRACEBACK.search(parts)
        lines = [ascii(line.strip()[:200])[1:-1] for line in (
            traceback.group(1) if traceback else parts).splitlines()
            if line.strip()]
        frames = [n for n, line in enumerate(lines)
                  if line.startswith('File "')]
        in_test = [lines[n] for n in frames if '/tests/' in lines[n]][-4:]
        # After the last frame: its code, then the exception.
        reason = lines[frames[-1] + 2:] if frames else lines
        nodes = _NODES.search(parts)
        found.append((name, in_test + reason[:6] + [
            ascii(line.strip())[1:-1] for line in (
                nodes.group(1) if nodes else '').splitlines()
            if line.strip()][:40] or [
            'it was running when all was ended']))
    return found + [(name, ['its process ended before it did'])
                    for name in _CRASHED.findall(printed)]


def end(group):
    """End a suite, workers and labs included; nothing if it has ended.

    :param group: id of its process group
    """
    if not process.group(group):
        return
    os.killpg(group, signal.SIGINT)  # its tests then take their labs down
    try:
        process.wait_for('all to end', lambda: not process.group(group),
                         GRACE)
    except process.LabError:
        print('they go on: killed, and their labs taken down', flush=True)
        left = labs.used_by(process.group(group))
        os.killpg(group, signal.SIGKILL)
        process.wait_for('all to end', lambda: not process.group(group),
                         GRACE)
        for lab in left:
            lab.down(keep_logs=True)


def deadline(everything=False):
    """Return the time of :func:`time.monotonic` at which all tests end.

    :param everything: whether all is run that there is
    :raises ValueError: if the environment has no number
    """
    passed = max(0, time.time() - float(os.environ.get(BEGAN) or time.time()))
    return time.monotonic() + (LIMIT_ALL if everything else LIMIT) - passed


class Watch:
    """Ends a suite when its time is up, or when somebody interrupts.

    :param until: time of :func:`time.monotonic`
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, until):
        self.interrupted = self.late = False
        self._until = until
        self._over = threading.Event()
        self._thread = None

    def __enter__(self):
        self._before = {number: signal.signal(number, self._interrupt)
                        for number in self.SIGNALS}
        return self

    def begin(self, group):
        """:param group: id of the suite's process group"""
        self._thread = threading.Thread(target=self._wait, args=(group,))
        self._thread.start()

    def __exit__(self, *_exc_info):
        self._over.set()
        if self._thread:
            self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, *_args):
        self.interrupted = True
        self._over.set()

    def _wait(self, group):
        if not self._over.wait(max(0, self._until - time.monotonic())):
            self.late = True
            print('\n%s: ended' % LATE, flush=True)
        end(group)


def _stestr(venv, path, *words):
    """What :mod:`subprocess` is called with to run stestr."""
    return _module(venv, path, 'stestr', *words)


def _module(venv, path, *words):
    """The same, to run another module."""
    return {
        'args': [venv / 'bin/python', '-W', 'ignore', '-m', *words],
        'cwd': ROOT, 'text': True, 'env': dict(
            os.environ, OS_TEST_PATH=path, PYTHONDONTWRITEBYTECODE='1',
            PYTHONWARNINGS='ignore',
            PATH='%s/bin:%s' % (venv, os.environ['PATH']))}


def limit(name, everything):
    """Return the seconds that one test of a suite may take, as text.

    :param everything: whether exhaustive tests run all that there is
    """
    return os.environ.get(TEST_LIMIT) or str(
        TEST_LIMIT_ALL if everything else TEST_LIMITS[name])


def _listed(venv, path):
    """How many tests a suite has."""
    return len(re.findall(r'(?m)^tests\.', subprocess.run(
        **_stestr(venv, path, 'list'), stdout=subprocess.PIPE).stdout))


def slowest(printed):
    """The slowest tests of a suite.

    :param printed: what ``stestr slowest`` prints
    :returns: list of (seconds, name)
    """
    return [(float(seconds), name) for name, seconds in re.findall(
        r'(?m)^(%s)\s+(\d+\.\d+)$' % _NAME, printed)]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A suite that was run.

    :param text: all that it has printed
    :param late: whether it was ended because its time was over
    """

    seconds: float
    text: str
    code: int
    late: bool


def watched(name, call, until):
    """Run a suite; what it prints is shown as it comes.

    :param call: what :mod:`subprocess` is called with
    :param until: time of :func:`time.monotonic` at which it is ended
    :returns: an :class:`Ended`; None: there was no time for it
    :raises KeyboardInterrupt: when all of it has been ended
    """
    print('\n== %s' % name, flush=True)
    began = time.monotonic()
    if until < began:
        return None
    printed = []

    def show(lines):
        for line in lines:
            printed.append(line)
            print(line, end='', flush=True)
    with Watch(until) as watch:
        running = subprocess.Popen(
            **call, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
            # A shell's background jobs ignore it; these must not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        watch.begin(running.pid)
        # Whatever a test has left behind may keep its end open.
        reader = threading.Thread(
            target=show, args=(running.stdout,), daemon=True)
        reader.start()
        code = running.wait()
        reader.join(GRACE)
    if watch.interrupted:
        raise KeyboardInterrupt
    return Ended(time.monotonic() - began, ''.join(printed), code, watch.late)


def suite(venv, name, path, until, *options, everything=False):
    """Run one suite of tests.

    :param until: time of :func:`time.monotonic` at which it is ended
    :param everything: whether exhaustive tests run all that there is
    :returns: (name, seconds, passed, failed, skipped), what failed, the
        slowest
    :raises KeyboardInterrupt: when all of it has been ended
    """
    call = _module(venv, path, *RUNNERS[name], *options)
    call['env'][TEST_LIMIT] = limit(name, everything)
    ended = watched('%s tests' % name, call, until)
    if ended is None:
        return (name, 0, 0, 1, 0), [('%s tests' % name, [LATE])], []
    text = ended.text
    if ended.late:  # it has printed no result; the tests' own are kept
        text = subprocess.run(**_stestr(venv, path, 'last'),
                              stdout=subprocess.PIPE).stdout
    counts = {'Passed': 0, 'Failed': 0, 'Skipped': 0, **{
        word: int(number) for word, number in re.findall(
            r'(?m)^ - (Passed|Failed|Skipped): (\d+)', text)}}
    failed = failures(text)
    if ended.late:
        failed.insert(0, ('%s tests' % name, [LATE]))
    elif name == 'unit':
        missing = _listed(venv, path) - (
            counts['Passed'] + counts['Skipped']
            + max(counts['Failed'], len(failed)))  # without crashed ones
        if missing > 0:
            failed.insert(0, ('%s tests' % name, [MISSING % missing]))
    return (name, ended.seconds, counts['Passed'],
            counts['Failed'] or int(bool(ended.code or failed)),
            counts['Skipped']
            ), failed, slowest(
                subprocess.run(**_stestr(venv, path, 'slowest'),
                               stdout=subprocess.PIPE).stdout)


@contextlib.contextmanager
def shared_out():
    """Share the unit tests out to as many workers as there are processors.

    :returns: words for stestr; none if it does better by itself
    """
    if sampling.everything():  # others take longest then
        yield ()
        return
    seconds = {module: float(number) for module, number in re.findall(
        r'(?m)^([\w.]+): (\d+)$', (tests.HERE / 'seconds.yaml').read_text())}
    shared = shares.shares(tests.modules(), seconds, os.cpu_count() or 1)
    if not shared:
        yield ()
        return
    with tempfile.NamedTemporaryFile('w', suffix='.yaml') as workers_file:
        json.dump([{'worker': [regex]} for regex in shares.regexes(shared)],
                  workers_file)
        workers_file.flush()
        yield '--worker-file', workers_file.name


def simulation(venv, until, encrypts):
    """Run schedules of the simulated world, of seeds that are new.

    Each commit has its own, so that a run can be repeated.

    :param until: time of :func:`time.monotonic` at which it is ended
    :param encrypts: whether the driver encrypts all volumes
    :returns: as :func:`suite`, of schedules; the first seed, as text
    :raises KeyboardInterrupt: when all of it has been ended
    """
    title = 'encrypted simulation' if encrypts else 'simulation'
    first = sampling.choice(title).randrange(10 ** 9)
    call = _module(venv, '', 'tests.simulation', '--seed', str(first),
                   '--minutes', '%g' % SIMULATED[encrypts],
                   *(['--encrypted'] if encrypts else []))
    call['env'][simulations.HERE] = '1'
    ended = watched(title, call, until)
    if ended is None:
        return ((title, 0, 0, 1, 0), [(title, [LATE])], []), ''
    seed = re.search(r'(?m)^SEED=(\d+)$', ended.text)
    counts = re.findall(r'(?m)^(\d+) schedules \(', ended.text)
    failed = []
    if ended.code or ended.late or not counts:
        found = re.search(r'(?ms)^(SEED=\d+) fails: (.*?)(?=^what happened:|'
                          r'\Z)', ended.text)
        name, lines = found.groups() if found else (
            title, LATE if ended.late else
            '\n'.join(ended.text.splitlines()[-20:]))
        failed = [(name, lines.splitlines())]
    return ((title, ended.seconds, max(
        0, int((counts or ['0'])[-1]) - len(failed)), len(failed), 0),
        failed, []), seed.group(1) if seed else ''


def workers(kernel, processors, memory):
    """How many functional tests may run at a time, each in its own lab.

    On a kernel that needs ptrace, the second of two labs makes a node stand
    still for minutes.

    :param kernel: of the nodes, as :func:`lab.kernel.choose` says
    :param memory: MiB that are free
    """
    return 2 if (kernel['seccomp'] and processors > 1
                 and memory > 2 * LAB_MEMORY) else 1


def versions(venv):
    """What the tests run with, in words."""
    return subprocess.run([venv / 'bin/python', '-c', (
        'import importlib.metadata as found, platform; print("Cinder %s, '
        'Python %s" % (found.version("cinder"), platform.python_version()))'
    )], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def free_memory():
    """MiB that processes may still take."""
    found = re.search(r'(?m)^MemAvailable: +(\d+) kB$', pathlib.Path(
        '/proc/meminfo').read_text())
    return int(found.group(1)) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--unit', action='store_true',
                        help='only the unit tests, without those that stop '
                        'at two moments')
    parser.add_argument('--all', action='store_true',
                        help='all that the exhaustive unit tests can try; '
                        'without --unit also the longest functional ones')
    parser.add_argument('--workers', type=int, choices=(1, 2, 3),
                        help='functional tests at a time, each in a lab of '
                        'its own (default: what this machine can bear)')
    parser.add_argument('tests', nargs='*', help='only functional tests that '
                        'match these, and no unit tests')
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    until = deadline(options.all)
    lab, unit = labs.Lab('install'), None

    def say(text):
        print(text, flush=True)
    try:
        if options.unit or not options.tests:
            unit = install.unit_venv(say)
        if not options.unit:
            lab.install(progress=say)
    except process.LabError as exc:
        print('%s' % exc, file=sys.stderr)
        return 1
    try:
        return run(lab, unit, options, until)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


def run(lab, unit, options, until):
    """Run what is asked for; the exit code.

    :param lab: installed, unless only unit tests are asked for
    :param unit: the venv of the unit tests; None: they are not asked for
    :param until: time of :func:`time.monotonic` at which all is ended
    """
    suites, told = [], [versions(unit or lab.venv)]
    if unit:
        if options.all:
            os.environ[sampling.ALL] = '1'
        # One for all workers; the commit may become another one meanwhile.
        os.environ[sampling.SEED] = sampling.seed()
        with shared_out() as words:
            suites.append(suite(
                unit, 'unit', './tests', until, '--abbreviate', *words,
                everything=options.all))
        if not sampling.everything():
            told.append('%d pairs of moments in each unit test that stops at '
                        'two, the same with %s=%s; all: make unit ALL=1' % (
                            sampling.PAIRS, sampling.SEED, sampling.seed()))
        if not options.unit:
            for encrypts in SIMULATED:
                found, seed = simulation(unit, until, encrypts)
                suites.append(found)
                if seed:
                    told.append('schedules of the simulated world, the same '
                                'with make simulate %sSEED=%s SCHEDULES=%d' % (
                                    'ENCRYPTED=1 ' if encrypts else '', seed,
                                    sum(found[0][2:4])))
    if not options.unit and not any(row[3] for row, *_rest in suites):
        kernel = lab.settings['kernel']
        at_once = options.workers or workers(kernel, os.cpu_count(),
                                             free_memory())
        told.append('nodes run Linux %s (%s)%s; workers, each with a lab: '
                    '%d' % (kernel['release'],
                            'seccomp' if kernel['seccomp'] else 'ptrace',
                            ', services native threads' if lab.settings[
                                'native_threads'] else '', at_once))
        print('\n' + told[-1])
        short = not (options.all or options.tests)
        if short:
            told.append('without the longest functional tests: make test '
                        'ALL=1')
        suites.append(suite(
            lab.venv, 'functional', './tests/functional', until,
            '--workers', str(at_once),
            *(('--exclude', LONG) if short else ()),
            *options.tests, everything=options.all))
    for _row, failed, _slowest in suites:
        for name, reason in failed:
            print(report.entry('FAILED %s' % name, reason))
    show(suites, told)
    return int(any(row[3] for row, *_rest in suites))


def show(suites, told):
    """What is to be read at the end.

    :param suites: as :func:`suite` returns them
    :param told: more lines
    """
    slowest = sorted((each for *_rest, slow in suites for each in slow),
                     reverse=True)[:SLOWEST]
    print('\n' + report.table(('seconds', 'slowest tests'), [
        ('%.1f' % seconds, name) for seconds, name in slowest], ('seconds',)))
    print('\n' + '\n'.join(told))
    numbers = ('seconds', 'passed', 'failed', 'skipped')
    print('\n' + report.table(('suite', *numbers), [
        (name, '%.0f' % seconds, *counts)
        for (name, seconds, *counts), *_rest in suites], numbers))
    print('\n%d passed, %d failed, %d skipped' % tuple(
        sum(row[column] for row, *_rest in suites) for column in (2, 3, 4)))


if __name__ == '__main__':
    sys.exit(main())
