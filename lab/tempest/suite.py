# SPDX-License-Identifier: Apache-2.0
"""Runs Tempest's tests; results as they come."""

import os
import shutil
import signal
import subprocess

from lab.core import process
from lab.tempest import results


#: Seconds for one test: the slowest boots and moves several servers.
TIMEOUT = 1200


class Suite:
    """A directory in which Tempest of a venv runs.

    :param lab: in whose namespace
    """

    def __init__(self, lab, venv, directory):
        self.lab = lab
        self.venv = venv
        self.directory = directory

    def configure(self, text) -> None:
        """Write tempest.conf and what stestr asks for."""
        shutil.rmtree(self.directory, ignore_errors=True)
        (self.directory / 'etc').mkdir(parents=True)
        (self.directory / 'etc/tempest.conf').write_text(text)
        # Discovery starts here; plugins have an entry point.
        packages = next(self.venv.glob('lib/python3*/site-packages/tempest'))
        (self.directory / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=%s/test_discover\ntop_dir=%s\n'
            # Tests of a class share what it has made: one worker runs them.
            'group_regex=([^\\.]*\\.)*\n' % (packages, packages))
        self._stestr('init').wait(60)

    def tests(self) -> dict:
        """All tests of all suites: {name: id}"""
        listed = self._stestr('list', stdout=subprocess.PIPE, text=True)
        printed = listed.communicate(timeout=300)[0]
        if listed.returncode:
            raise process.LabError('Tempest has no tests:\n' + printed)
        ids = [line for line in printed.splitlines()
               if results.suite(results.name(line))]
        return {results.name(each): each for each in ids}

    def run(self, ids, workers, tell) -> None:
        """Run tests.

        :param workers: how many at a time
        :param tell: called with each outcome
        """
        import subunit
        import testtools
        chosen = self.directory / 'tests'
        chosen.write_text(''.join(each + '\n' for each in ids))
        running = self._stestr(
            'run', '--subunit', '--concurrency', str(workers), '--load-list',
            str(chosen), stdout=subprocess.PIPE)

        def heard(test):
            began, ended = test['timestamps']
            if test['status'] != 'exists':
                tell(results.outcome(
                    test['id'], test['status'],
                    (ended - began).total_seconds() if began and ended else 0,
                    {title: content.as_text()
                     for title, content in test['details'].items()
                     if title.startswith(('reason', 'traceback'))}))
        stream = testtools.StreamToDict(heard)
        stream.startTestRun()
        try:
            subunit.ByteStreamToStreamResult(
                running.stdout, non_subunit_name='stdout').run(stream)
            stream.stopTestRun()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGTERM)
            running.wait(60)

    def _stestr(self, *words, **streams):
        return subprocess.Popen(
            [str(self.venv / 'bin/stestr'), *words], cwd=self.directory,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env=dict(os.environ, PYTHONPATH='', PYTHONWARNINGS='ignore',
                     PATH='%s/bin:%s' % (self.venv, os.environ['PATH']),
                     OS_TEST_TIMEOUT=str(TIMEOUT)),
            preexec_fn=lambda: process.enter_namespace(self.lab.namespace),
            **streams)
