# SPDX-License-Identifier: Apache-2.0
"""The parents that fork for a node's services and operator's commands."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import fixtures
import testtools

from lab.core import preloaded

PROGRAM = '''
import os, pathlib, sys, time
COUNT = 0
def main():
    global COUNT
    COUNT += 1
    what, *words = sys.argv[1:]
    if what == 'say':
        print('said', *words, sys.stdin.read(), COUNT)
        print('to stderr', file=sys.stderr)
    elif what == 'reconfigure':  # looks at the kind of file
        sys.stdout.reconfigure(errors='replace')
        print('done')
    elif what == 'exit':
        sys.exit(int(words[0]))
    elif what == 'text':
        sys.exit('no such volume')
    elif what == 'return':
        return 3
    elif what == 'raise':
        raise ValueError('broken')
    elif what == 'sleep':
        pathlib.Path(words[0]).write_text(str(os.getpid()))
        time.sleep(60)
'''


class PreloadedTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.path / 'program.py').write_text(PROGRAM)
        self.sock = self.path / 'socket'
        self.log = open(self.path / 'log', 'w')
        self.addCleanup(self.log.close)
        self.parent = subprocess.Popen(
            [sys.executable, '-S', preloaded.__file__, 'serve', self.sock,
             'program'], env=dict(os.environ, PYTHONPATH=str(self.path)),
            stdout=self.log)
        self.addCleanup(self.parent.wait)
        self.addCleanup(self.parent.kill)
        self.wait(self.sock.exists)

    def wait(self, check):
        deadline = time.monotonic() + 20
        while not check():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, '-S', preloaded.__file__, 'run', self.sock,
             *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def ask(self, *words, given=''):
        """:returns: exit code, what it printed, and as errors"""
        asking = self.start(*words)
        out, err = asking.communicate(given, timeout=20)
        return asking.returncode, out, err

    def test_has_the_input_and_output_of_who_asks(self):
        for _time in range(2):  # nothing of one is left to the next
            self.assertEqual((0, "said a b's text 1\n", 'to stderr\n'),
                             self.ask('say', 'a', "b's", given='text'))

    def test_output_to_another_kind_of_file(self):
        self.assertEqual((0, 'done\n', ''), self.ask('reconfigure'))

    def test_exit_codes(self):
        self.assertEqual((0, '', ''), self.ask('exit', '0'))
        self.assertEqual((5, '', ''), self.ask('exit', '5'))
        self.assertEqual((3, '', ''), self.ask('return'))
        self.assertEqual((1, '', 'no such volume\n'), self.ask('text'))

    def test_an_exception_is_shown(self):
        code, _out, err = self.ask('raise')
        self.assertEqual(1, code)
        self.assertIn('ValueError: broken', err)
        self.assertEqual(0, self.ask('exit', '0')[0])

    def test_ends_with_who_asks(self):
        pid = self.path / 'pid'
        asking = self.start('sleep', pid)
        self.addCleanup(asking.communicate)
        self.wait(lambda: pid.exists() and pid.read_text())
        asking.send_signal(signal.SIGKILL)
        self.wait(lambda: not os.path.exists('/proc/' + pid.read_text()))

    def test_service(self):
        """It stays when who asked has ended, in a session of its own."""
        noted, pid = self.path / 'noted', self.path / 'pid'
        subprocess.run(
            [sys.executable, '-S', preloaded.__file__, 'start', self.sock,
             pid, 'sleep', noted], check=True, timeout=20)
        number = int(pid.read_text())
        self.addCleanup(os.killpg, number, signal.SIGKILL)
        self.wait(lambda: noted.exists() and noted.read_text())
        self.assertEqual(number, int(noted.read_text()))
        self.assertEqual(number, os.getsid(number))

    def test_waits_for_a_parent_that_still_loads(self):
        late = self.path / 'late'
        asking = subprocess.Popen(
            [sys.executable, '-S', preloaded.__file__, 'run', late, 'exit',
             '7'])
        self.addCleanup(asking.wait)
        os.rename(self.sock, late)
        self.assertEqual(7, asking.wait(20))


class LoadTest(testtools.TestCase):

    def test_the_command_is_loaded_and_nothing_runs(self):
        """In a process of its own: other tests have imported it all."""
        self.assertEqual('1 True', subprocess.check_output(
            [sys.executable, '-W', 'ignore', '-c',
             'import threading\n'
             'from eventlet import patcher\n'
             'from lab.core import preloaded\n'
             'program = preloaded.load(preloaded.COMMAND)\n'
             'assert not patcher.is_monkey_patched("socket")\n'
             'print(threading.active_count(), callable(program.main))'],
            text=True, cwd=pathlib.Path(__file__).parents[2]).strip())

    def test_the_service_is_loaded_as_it_is_elsewhere(self):
        self.assertEqual('1 True', subprocess.check_output(
            [sys.executable, '-W', 'ignore', '-c',
             'from eventlet import patcher\n'
             'from lab.core import preloaded\n'
             'program = preloaded.load(preloaded.SERVICE)\n'
             'print(patcher.original("threading").active_count(),\n'
             '      patcher.is_monkey_patched("socket"))'],
            text=True, cwd=pathlib.Path(__file__).parents[2]).strip())
