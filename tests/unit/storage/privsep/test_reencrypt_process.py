# SPDX-License-Identifier: Apache-2.0
"""The process that re-encrypts: how it is started, found and stopped."""

import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import time
from unittest import mock
import uuid

import fixtures
import psutil

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import crypt
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage.privsep import container
from cinder_localclone.storage.privsep import reencrypt_process
from tests.helpers import commands
from tests.helpers import configured

# Not those of another process that runs these tests.
VOLUME, OTHER = [str(uuid.uuid4()) for _each in range(2)]
#: Waits for a signal; what follows is only there to be seen.
SLEEPS = [sys.executable, '-c', 'import time; time.sleep(60)']
#: As cryptsetup: it ends when it is done with what it is at work on.
PAUSES = [sys.executable, '-c', '''
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(1)))
print('ready', flush=True)
time.sleep(60)''']
#: What does not end.
STUBBORN = [sys.executable, '-c', '''
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
time.sleep(60)''']


class Case(commands.Case):

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        for name, path in (('DIRECTORY', 'run'), ('SYSTEMD', 'systemd')):
            self.useFixture(fixtures.MockPatchObject(
                reencrypt_process, name, os.path.join(self.directory, path)))
        self.useFixture(fixtures.MockPatchObject(reencrypt_process, 'SEEN', 0))
        self.useFixture(fixtures.MockPatchObject(
            reencrypt_process, 'OWNER', os.getuid()))
        self.useFixture(fixtures.MockPatchObject(
            container, 'FIRST', {'pid': os.stat('/proc/self/ns/pid').st_ino}))
        self.configured = self.useFixture(configured.Configured())
        self.runner = cryptsetup.Runner('lc', 30)

    def own_proc(self):
        """A directory in place of /proc, from now on."""
        directory = pathlib.Path(self.directory, 'proc')
        directory.mkdir(exist_ok=True)
        self.useFixture(fixtures.MockPatchObject(
            psutil, 'PROCFS_PATH', str(directory)))
        psutil.process_iter.cache_clear()  # it keeps where they were found
        self.addCleanup(psutil.process_iter.cache_clear)
        return directory

    def run_as(self, argv, *shown):
        """A process whose command line ends so."""
        process = subprocess.Popen([*argv, *shown], stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if argv is not SLEEPS:
            process.stdout.readline()
        deadline = time.monotonic() + 10
        while not reencrypt_process._argv(psutil.Process(process.pid)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def written(self, kind, text=None):
        path = pathlib.Path(self.directory, 'run',
                            'reencrypt-%s.%s' % (VOLUME, kind))
        if text is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return path


class CommandLineTest(Case):

    def test_is_run(self):
        for argv in (
                reencrypt_process.command(VOLUME, ['/c'], 'lc'),
                reencrypt_process.resume_command(VOLUME, 'checksum', 4),
                ['nice', '-n', '10',
                 *reencrypt_process.resume_command(VOLUME, 'journal', 16)]):
            self.assertTrue(reencrypt_process.is_run(argv, VOLUME), argv)
            self.assertFalse(reencrypt_process.is_run(argv, OTHER))
            self.assertEqual(VOLUME, reencrypt_process.volume_of(argv))
        for argv in ([], ['cryptsetup', 'open', 'localclone-crypt-' + VOLUME],
                     ['cryptsetup', 'reencrypt', VOLUME],
                     ['reencryption', 'run', VOLUME, 'more']):
            self.assertFalse(reencrypt_process.is_run(argv, VOLUME), argv)
            self.assertIsNone(reencrypt_process.volume_of(argv), argv)
        for argv in (['reencryption', 'run', '../x'],
                     ['reencrypt', 'localclone-crypt-x'],
                     ['nice', '-n', '10', 'sleep', VOLUME]):
            self.assertIsNone(reencrypt_process.volume_of(argv), argv)

    def test_what_cryptsetup_is_told(self):
        self.assertEqual(
            'cryptsetup reencrypt --batch-mode --resume-only --active-name '
            'localclone-crypt-{0} --key-file - --resilience journal '
            '--hotzone-size 32M --progress-json --progress-frequency 5 '
            '/dev/mapper/localclone-{0}'.format(VOLUME),
            ' '.join(reencrypt_process.resume_command(VOLUME, 'journal', 32)))


class ProcessTest(Case):
    """Any process can have such a command line."""

    def proc(self, pid, **files):
        """A process as the kernel shows it, and no other."""
        directory = self.own_proc()
        (directory / pid).mkdir(parents=True, exist_ok=True)
        # What psutil tells processes of one id apart by.
        files.setdefault('stat', '%s (x) S 1 %s\n' % (pid, '0 ' * 48))
        for name, text in files.items():
            (directory / pid / name).write_text(text)

    STATUS = 'Name:\tx\nPid:\t7\nUid:\t%s\nGid:\t0\t0\t0\t0\n'
    ROOT = STATUS % '0\t0\t0\t0'
    UNIT = '0::/system.slice/localclone-reencrypt-%s.service\n'
    RUN = '\0'.join(['reencryption', 'run', VOLUME, ''])

    def systemd(self):
        os.mkdir(reencrypt_process.SYSTEMD)
        self.useFixture(fixtures.MockPatchObject(
            reencrypt_process.shutil, 'which', return_value='/x'))
        self.proc('1', stat='1 (systemd) S 0 %s\n' % ('0 ' * 48))

    def found(self):
        return reencrypt_process.processes(VOLUME) == [7] and (
            reencrypt_process.running() == [VOLUME])

    def test_of_root_alone(self):
        """Nor one of somebody who has run a program that is setuid."""
        self.useFixture(
            fixtures.MockPatchObject(reencrypt_process, 'OWNER', 0))
        for uids, owned in (
                ('0\t0\t0\t0', True), ('64055\t64055\t64055\t64055', False),
                ('1000\t0\t0\t0', False), ('0\t1000\t0\t1000', False)):
            self.proc('7', cmdline=self.RUN, status=self.STATUS % uids)
            self.assertEqual(owned, self.found(), uids)
            self.assertEqual(
                owned, bool(reencrypt_process.processes(VOLUME)), uids)
        (self.own_proc() / '7/status').unlink()  # it ends meanwhile
        self.assertEqual([], reencrypt_process.processes(VOLUME))

    def test_of_its_unit_alone(self):
        self.useFixture(
            fixtures.MockPatchObject(reencrypt_process, 'OWNER', 0))
        self.systemd()
        for cgroups, found in (
                (self.UNIT % VOLUME, True),
                ('0::/../../' + (self.UNIT % VOLUME)[4:], True),
                ('4:memory:/\n1:name=systemd:' + (self.UNIT % VOLUME)[3:],
                 True),
                ('0::/machine.slice/qemu.scope/emulator\n', False),
                (self.UNIT % OTHER, False), ('', False),
                ('0::/machine.slice' + (self.UNIT % VOLUME)[16:], False)):
            self.proc('7', cmdline=self.RUN, status=self.ROOT,
                      cgroup=cgroups)
            self.assertEqual(found, self.found(), cgroups)
            self.assertEqual(found, bool(reencrypt_process.running()), cgroups)

    def test_another_process_of_its_id_is_not_told_to_end(self):
        """It has ended between both looks."""
        process = self.run_as(SLEEPS, 'reencryption', 'run', OTHER)
        with mock.patch.object(reencrypt_process.signal,
                               'pidfd_send_signal') as sent:
            reencrypt_process._terminate(process.pid, VOLUME)
            sent.assert_not_called()
            with mock.patch.object(
                    reencrypt_process, 'OWNER', os.getuid() + 1):
                reencrypt_process._terminate(process.pid, OTHER)
            sent.assert_not_called()
            reencrypt_process._terminate(process.pid, OTHER)
            sent.assert_called_once()


class StartTest(Case):

    def test_its_files_are_roots_alone(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        with mock.patch.object(subprocess, 'Popen'):
            self.runner.start(VOLUME)
        self.assertEqual(
            0o700, os.stat(reencrypt_process.DIRECTORY).st_mode & 0o777)

    def test_unit(self):
        with mock.patch.object(reencrypt_process, 'is_by_systemd',
                               return_value=True):
            self.runner.start(VOLUME)
        line, = self.commands.ran
        self.assertTrue(line.startswith(
            'systemd-run --quiet --collect --unit localclone-reencrypt-'
            + VOLUME + '.service '))
        for each in ('SendSIGKILL=no', 'KillSignal=SIGTERM',
                     'OOMScoreAdjust=-1000', 'IOSchedulingClass=idle',
                     'StandardOutput=file:%s' % self.written('json')):
            self.assertIn(' --property=' + each + ' ', line)
        self.assertTrue(line.endswith(
            '-m cinder_localclone.cmd.main --config-file %s --backend lc '
            'reencryption run %s' % (self.configured.path, VOLUME)))

    def test_configuration_is_that_of_the_daemon(self):
        """A class that a configuration names is called by root's process."""
        with mock.patch.object(subprocess, 'Popen') as started:
            self.assertRaises(exceptions.Foreign, reencrypt_process.start,
                              VOLUME, 'lc\n--config-file=/tmp/evil.conf', 30)
        started.assert_not_called()
        self.assertRan()
        self.assertEqual(['volume_id', 'backend', 'timeout'], list(
            inspect.signature(reencrypt_process.start.args[0]).parameters))

    def test_session(self):
        self.written('json', 'of an earlier one')
        with mock.patch.object(subprocess, 'Popen') as started:
            self.runner.start(VOLUME)
        self.assertEqual([], self.commands.ran)
        given = started.call_args.kwargs
        self.assertEqual((True, subprocess.DEVNULL, '/'), (
            given['start_new_session'], given['stdin'], given['cwd']))
        self.assertEqual(
            [str(self.written(kind)) for kind in ('json', 'log')],
            [given[name].name for name in ('stdout', 'stderr')])
        self.assertEqual(
            reencrypt_process.command(VOLUME, [self.configured.path], 'lc'),
            started.call_args.args[0])
        self.assertEqual('', self.written('json').read_text())
        self.assertIsNone(self.runner.progress(VOLUME))

    def test_one_that_runs(self):
        self.run_as(SLEEPS, 'reencryption', 'run', VOLUME)
        with mock.patch.object(subprocess, 'Popen') as started:
            self.runner.start(VOLUME)
        started.assert_not_called()

    def test_is_seen_once_it_was_started(self):
        """Before, whoever is to stop it would find none."""
        later = iter([[], [], [], [1]])
        with mock.patch.object(subprocess, 'Popen'), mock.patch.object(
                reencrypt_process, 'processes', lambda _volume: next(later)), \
                mock.patch.object(reencrypt_process, 'SEEN', 10), \
                mock.patch.object(reencrypt_process.time, 'sleep') as slept:
            self.runner.start(VOLUME)
        self.assertEqual([], list(later))
        self.assertEqual(2, slept.call_count)

    def test_what_is_no_volume(self):
        for act in (self.runner.start, self.runner.stop,
                    self.runner.is_running, self.runner.progress):
            self.assertRaises(exceptions.Foreign, act, '../' + VOLUME)


class ContainerTest(Case):
    """What the end of a container kills leaves a guest's I/O suspended."""

    def contained(self):
        self.useFixture(fixtures.MockPatchObject(
            container, 'FIRST', {'pid': -1}))

    def test_neither_systemd_nor_the_hosts_processes(self):
        self.assertEqual('', self.runner.obstacle())
        self.contained()
        self.assertIn('PID namespace', self.runner.obstacle())
        with mock.patch.object(subprocess, 'Popen') as started:
            error = self.assertRaises(
                encryption_exceptions.CannotReencrypt, self.runner.start,
                VOLUME)
        started.assert_not_called()
        self.assertIn(self.runner.obstacle(), str(error))

    def test_systemd_of_the_host_alone(self):
        """Its sockets are there, and nothing that it starts is seen."""
        self.contained()
        os.mkdir(reencrypt_process.SYSTEMD)
        with mock.patch.object(reencrypt_process.shutil, 'which',
                               return_value='/x'):
            for first, by_systemd in (('dumb-init', False), ('systemd', True)):
                self.with_roots('254:0 / /', first=first)
                self.contained()
                self.assertEqual(
                    by_systemd, reencrypt_process.is_by_systemd())
                self.assertEqual(by_systemd, not self.runner.obstacle())

    def with_roots(self, own, hosts='254:0 / /', first='init'):
        """Roots of this process and of process 1, as mountinfo has them."""
        directory = self.own_proc()
        for pid, root in (('self', own), ('1', hosts)):
            (directory / pid / 'ns').mkdir(parents=True, exist_ok=True)
            (directory / pid / 'ns/pid').touch()
            (directory / pid / 'mountinfo').write_text(
                '20 1 0:3 / /proc rw - proc proc rw\n' + (
                    '21 1 %s rw - x x rw\n' % root if root else ''))
        (directory / '1/stat').write_text(
            '1 (%s) S 0 %s\n' % (first, '0 ' * 48))
        self.useFixture(fixtures.MockPatchObject(
            container, 'FIRST',
            {'pid': (directory / 'self/ns/pid').stat().st_ino}))
        return directory

    def hidden(self, **more):
        """A /proc that shows this process and process 7, but not process 1.
        """
        directory = self.with_roots('254:0 / /', **more)
        shutil.rmtree(directory / '1')
        (directory / '7').mkdir(exist_ok=True)
        (directory / '7/stat').write_text('7 (x) S 1 %s\n' % ('0 ' * 48))
        (directory / '7/cmdline').write_text('x\0')

    def test_processes_of_the_host_without_its_systemd(self):
        """The engine kills what is left of a container."""
        for root in ('0:51 / /', '254:0 /images/7 /', ''):
            self.with_roots(root)
            self.assertIn('without systemd-run', self.runner.obstacle())
            with mock.patch.object(subprocess, 'Popen') as started:
                self.assertRaises(encryption_exceptions.CannotReencrypt,
                                  self.runner.start, VOLUME)
            started.assert_not_called()
        self.with_roots('254:0 / /')  # a node without systemd
        self.assertEqual('', self.runner.obstacle())

    def test_first_process_is_hidden(self):
        """This may be a container: a process is not started on a guess."""
        os.mkdir(reencrypt_process.SYSTEMD)
        for which in None, '/x':
            self.hidden(first='systemd')
            with mock.patch.object(reencrypt_process.shutil, 'which',
                                   return_value=which), \
                    mock.patch.object(subprocess, 'Popen') as started:
                self.assertFalse(reencrypt_process.is_by_systemd())
                self.assertIn('not known', self.runner.obstacle())
                error = self.assertRaises(
                    encryption_exceptions.CannotReencrypt, self.runner.start,
                    VOLUME)
            self.assertIn(self.runner.obstacle(), str(error))
            started.assert_not_called()
        self.assertRan()
        self.contained()  # then the reason is known
        self.assertIn('own PID namespace', self.runner.obstacle())

    def test_systemd_whose_files_are_hidden(self):
        """Its name alone does not tell whether the files are the host's."""
        directory = self.with_roots('254:0 / /', first='systemd')
        os.mkdir(reencrypt_process.SYSTEMD)
        with mock.patch.object(reencrypt_process.shutil, 'which',
                               return_value='/x'):
            self.assertEqual('', self.runner.obstacle())
            (directory / '1/mountinfo').unlink()
            self.assertIn('not known', self.runner.obstacle())

    def test_one_that_may_be_hidden(self):
        """It was started, and /proc was then mounted otherwise."""
        self.hidden()
        for act in self.runner.is_running, self.runner.stop:
            act(VOLUME)
        path = self.written('json', 'x')
        for act in (self.runner.is_running, self.runner.stop,
                    self.runner.start):
            error = self.assertRaises(
                encryption_exceptions.HeaderInUse, act, VOLUME)
            self.assertIn('not known whether it has ended', str(error))
        self.assertTrue(path.exists())
        self.assertFalse(self.runner.is_running(OTHER))
        self.with_roots('254:0 / /')
        self.assertFalse(self.runner.is_running(VOLUME))
        self.assertTrue(self.runner.stop(VOLUME))
        self.assertFalse(path.exists())

    def test_unit_enters_the_files_of_the_container(self):
        for root, entered in (('0:51 / /', True), ('254:0 / /', False)):
            self.with_roots(root)
            with mock.patch.object(reencrypt_process, 'is_by_systemd',
                                   return_value=True):
                self.assertEqual('', self.runner.obstacle())
                self.runner.start(VOLUME)
            line = self.commands.ran.pop()
            self.assertEqual(entered, (
                ' /usr/bin/nsenter --mount=/proc/%d/ns/mnt %s -m cinder' % (
                    os.getpid(), sys.executable)) in line, line)

    def test_all_pause_when_the_service_ends(self):
        ready = [self.run_as(PAUSES, 'reencryption', 'run', each)
                 for each in (VOLUME, OTHER)]
        self.runner.end()
        self.assertEqual([1, 1], [each.wait(5) for each in ready])

    def test_none_begins_while_the_service_ends(self):
        self.runner.end()
        with mock.patch.object(subprocess, 'Popen') as started:
            self.runner.start(VOLUME)
        started.assert_not_called()

    def test_one_that_does_not_pause(self):
        process = self.run_as(STUBBORN, 'reencryption', 'run', VOLUME)
        with mock.patch.object(crypt, 'STOPPING', 0.3), \
                mock.patch.object(cryptsetup.LOG, 'error') as said:
            self.runner.end()
        said.assert_called_once()
        self.assertIsNone(process.poll())

    def test_units_outlive_the_service(self):
        process = self.run_as(SLEEPS, 'reencryption', 'run', VOLUME)
        with mock.patch.object(reencrypt_process, 'is_by_systemd',
                               return_value=True), mock.patch.object(
                                   reencrypt_process, 'is_in_unit',
                                   return_value=True):
            self.assertTrue(self.runner.is_running(VOLUME))
            self.runner.end()
        self.assertIsNone(process.poll())


class StopTest(Case):

    def test_pauses(self):
        process = self.run_as(PAUSES, 'reencrypt',
                              'localclone-crypt-' + VOLUME)
        other = self.run_as(SLEEPS, 'reencryption', 'run', OTHER)
        self.written('json', 'x')
        self.assertTrue(self.runner.is_running(VOLUME))
        self.assertLessEqual({VOLUME, OTHER}, set(reencrypt_process.running()))
        self.assertTrue(self.runner.stop(VOLUME))
        self.assertFalse(self.runner.is_running(VOLUME))
        self.assertNotIn(VOLUME, reencrypt_process.running())
        self.assertEqual(1, process.wait(5))
        self.assertIsNone(other.poll())
        self.assertFalse(self.written('json').exists())

    def test_before_it_is_cryptsetup(self):
        process = self.run_as(SLEEPS, 'reencryption', 'run', VOLUME)
        self.assertTrue(self.runner.stop(VOLUME))
        self.assertEqual(-15, process.wait(5))

    def test_is_never_killed(self):
        process = self.run_as(STUBBORN, 'reencryption', 'run', VOLUME)
        with mock.patch.object(crypt, 'STOPPING', 0.3):
            self.assertFalse(self.runner.stop(VOLUME))
        self.assertIsNone(process.poll())
        self.assertTrue(self.runner.is_running(VOLUME))

    def test_none(self):
        self.assertTrue(self.runner.stop(VOLUME))
        self.assertTrue(reencrypt_process.stop(VOLUME, -1))

    def test_the_daemon_keeps_no_descriptor(self):
        process = self.run_as(SLEEPS, 'reencryption', 'run', VOLUME)
        before = len(os.listdir('/proc/self/fd'))
        reencrypt_process._terminate(process.pid, VOLUME)
        self.assertEqual(before, len(os.listdir('/proc/self/fd')))

    def test_end_of_what_it_says(self):
        """It may begin in the middle of a letter."""
        self.written('json', 'x').write_bytes(
            b'first' + '\xe4'.encode() * 2047 + b'last\xff')
        said = reencrypt_process.progress_output(VOLUME)
        self.assertTrue(said.startswith('\ufffd\xe4'), said[:9])
        self.assertTrue(said.endswith('last\ufffd'), said[-9:])

    def test_what_it_says(self):
        self.assertIsNone(self.runner.progress(VOLUME))
        line = ('{"device":"d","device_bytes":"%d","device_size":"200",'
                '"speed":"10","eta_ms":"1000","time_ms":"1"}\n')
        self.written('json', line % 7 * 100 + line % 100 + '{"device":')
        found = self.runner.progress(VOLUME)
        self.assertEqual((100, 200, 10), (
            found.done, found.total, found.rate))


class BecomeTest(Case):

    def test_key_is_on_standard_input_alone(self):
        """In a process of its own, which becomes a shell script."""
        tools = pathlib.Path(self.directory, 'bin')
        tools.mkdir()
        script = tools / 'cryptsetup'
        script.write_text('#!/bin/sh\necho "$@"; cat; env\n')
        script.chmod(0o755)
        for name, skipped in (('nice', 2), ('ionice', 2)):
            (tools / name).write_text(
                '#!/bin/sh\nshift %d\nexec "$@"\n' % skipped)
            (tools / name).chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', '%s:/usr/bin:/bin' % tools))
        self.useFixture(fixtures.EnvironmentVariable('LC_ALL', 'de_DE'))
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            self.become(writing)
        os.close(writing)
        with open(reading, 'rb') as output:
            said = output.read()
        self.assertEqual(0, os.waitpid(pid, 0)[1], said)
        lines, key, rest = said.partition(b'the\nkey\0')
        self.assertEqual(b'the\nkey\0', key, said)
        self.assertEqual(
            ['/proc/self/oom_score_adj -1000',
             ' '.join(reencrypt_process.resume_command(VOLUME, 'checksum',
                                                       8)[1:])],
            lines.decode().splitlines())
        self.assertNotIn(b'key\0', rest)
        self.assertIn(b'LC_ALL=C\n', rest)

    @staticmethod
    def become(output):
        try:
            for number, descriptor in enumerate((
                    os.open(os.devnull, os.O_RDONLY), output, output)):
                os.dup2(descriptor, number)
            with mock.patch.object(
                    pathlib.Path, 'write_text', autospec=True,
                    side_effect=lambda path, text: os.write(
                        1, b'%s %s\n' % (bytes(path), text.encode()))):
                reencrypt_process.become_cryptsetup(
                    VOLUME, b'the\nkey\0', 'checksum', 8)
        finally:
            os._exit(99)
