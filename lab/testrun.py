# SPDX-License-Identifier: Apache-2.0
"""``make test``: install, unit tests, functional tests, a table."""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

from lab.core import process
from lab import lab as labs

LIMIT = 80 * 60  # seconds for one suite
GRACE = 90  # seconds for its tests to take their labs down

# What stestr prints of a test that failed, or of "setUpClass (...)": its name
# underlined, then parts with titles, underlined as well.
_NAME = r'(?:\w+ \()?(?:tests|unittest)\.\S+'
_FAILED = re.compile(r'^(%s)\n-{5,}\n(.*?)'
                     r'(?=^%s\n-{5,}\n|^=+\nTotals|\Z)' % (_NAME, _NAME),
                     re.MULTILINE | re.DOTALL)
_CRASHED = re.compile(r'^\t\* (%s)$' % _NAME, re.MULTILINE)
_TRACEBACK = re.compile(r'^Captured traceback:\n~+\n(.*?)(?=^Captured |\Z)',
                        re.MULTILINE | re.DOTALL)


def failures(printed):
    """The tests that failed, and why.

    :param printed: all that stestr has printed
    :returns: list of (name, lines: where in the test, and the exception)
    """
    found = []
    for name, parts in _FAILED.findall(printed):
        traceback = _TRACEBACK.search(parts)
        lines = [ascii(line.strip()[:200])[1:-1] for line in (
            traceback.group(1) if traceback else parts).splitlines()
            if line.strip()]
        frames = [n for n, line in enumerate(lines)
                  if line.startswith('File "')]
        in_test = [lines[n] for n in frames if '/tests/' in lines[n]][-1:]
        # After the last frame: its code, then the exception.
        reason = lines[frames[-1] + 2:] if frames else lines
        found.append((name, in_test + reason[:6]))
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


class Watch:
    """Ends a suite when its time is up, or when somebody interrupts."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.interrupted = False
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
        if not self._over.wait(LIMIT):
            print('\nnot done within %d s: ended' % LIMIT, flush=True)
        end(group)


def suite(lab, name, path, *options):
    """Run one suite with stestr; what it printed is shown as it comes.

    :returns: (name, seconds, passed, failed, skipped), what failed
    :raises KeyboardInterrupt: when all of it has been ended
    """
    print('\n== %s tests' % name, flush=True)
    began = time.monotonic()
    counts = {'Passed': 0, 'Failed': 0, 'Skipped': 0}
    printed = []
    with Watch() as watch:
        running = subprocess.Popen(
            [lab.python, '-W', 'ignore', '-m', 'stestr', 'run', *options],
            cwd=lab.repo, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
            # A shell's background jobs ignore it; these must not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env=dict(
                os.environ, OS_TEST_PATH=path, PYTHONDONTWRITEBYTECODE='1',
                PYTHONWARNINGS='ignore',
                PATH='%s/bin:%s' % (lab.venv, os.environ['PATH'])))
        watch.begin(running.pid)
        for line in running.stdout:
            printed.append(line)
            print(line, end='', flush=True)
            found = re.match(r' - (Passed|Failed|Skipped): (\d+)', line)
            if found:
                counts[found.group(1)] = int(found.group(2))
        code = running.wait()
    if watch.interrupted:
        raise KeyboardInterrupt
    failed = counts['Failed'] or int(code != 0)
    return (name, time.monotonic() - began, counts['Passed'], failed,
            counts['Skipped']), failures(''.join(printed))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--unit', action='store_true',
                        help='only the unit tests')
    parser.add_argument('tests', nargs='*', help='only functional tests that '
                        'match these, and no unit tests')
    options = parser.parse_args()
    lab = labs.Lab('install')
    try:
        lab.install(progress=lambda text: print(text, flush=True))
    except process.LabError as exc:
        print('%s' % exc, file=sys.stderr)
        return 1
    try:
        return run(lab, options)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


def run(lab, options):
    """Run what is asked for; the exit code."""
    suites = []
    if options.unit or not options.tests:
        suites.append(suite(lab, 'unit', './tests/unit', '--abbreviate'))
    if not options.unit and not sum(row[3] for row, _failed in suites):
        # One after the other: two labs at once on two cores made a node
        # stand still for minutes.
        suites.append(suite(lab, 'functional', './tests/functional',
                            '--serial', *options.tests))
    rows = [row for row, _failed in suites]
    for _row, failed in suites:
        for name, reason in failed:
            print('\nFAILED %s' % name)
            print('    ' + '\n    '.join(reason))
    print('\n%-12s %8s %8s %8s %8s' % (
        'suite', 'seconds', 'passed', 'failed', 'skipped'))
    for row in rows:
        print('%-12s %8.0f %8d %8d %8d' % row)
    failed = sum(row[3] for row in rows)
    print('\n%d passed, %d failed, %d skipped' % (
        sum(row[2] for row in rows), failed, sum(row[4] for row in rows)))
    return int(bool(failed))


if __name__ == '__main__':
    sys.exit(main())
