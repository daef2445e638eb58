# SPDX-License-Identifier: Apache-2.0
"""Which kernel the lab's nodes run; none is booted here."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from unittest import mock

import fixtures
import testtools

from lab.core import install
from lab.core import kernel
from lab.core import process

SAID = '''Checking that seccomp filters can be installed...%s
Linux version 7.2.7
loop: module loaded
lab: this kernel works: 7.2.7
reboot: Power down
'''


class ChooseTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable(
            'LOCALCLONE_LAB_CACHE', str(self.cache)))
        self.useFixture(fixtures.EnvironmentVariable(kernel.CHOICE))
        #: Releases whose kernels cannot be had, or do not work.
        self.missing, self.broken = set(), set()
        self.taken, self.probed, self.told = [], [], []
        for name in ('_take_out', '_probe'):
            self.useFixture(fixtures.MockPatchObject(
                kernel, name, getattr(self, name)))
        self.useFixture(fixtures.MockPatchObject(
            process, 'run', mock.Mock(return_value='6.1.176\n')))

    def _take_out(self, path, release):
        self.taken.append(release)
        (path / 'work').mkdir()
        (path / 'linux.uml').write_text(release)
        if release in self.missing:
            raise process.LabError('apt-get failed:\nno %s' % release)

    def _probe(self, path):
        release = (path / 'linux.uml').read_text()
        self.probed.append(release)
        if release in self.broken:
            raise process.LabError('it does not work here\nKernel panic')
        return {'release': 'of ' + release, 'seccomp': True}

    def choose(self):
        return kernel.choose(self.told.append)

    def assert_taken_out(self, release, found):
        path = pathlib.Path(found['binary']).parent
        self.assertEqual(self.cache, path.parent)
        self.assertEqual(release, (path / 'linux.uml').read_text())
        self.assertEqual(
            {'binary': '%s/linux.uml' % path, 'modules': '%s/modules' % path,
             'release': 'of ' + release, 'seccomp': True}, found)

    def assert_own(self, found):
        self.assertEqual(
            {'binary': '/usr/bin/linux.uml', 'release': '6.1.176',
             'modules': '/usr/lib/uml/modules', 'seccomp': False}, found)

    def test_the_best(self):
        self.assert_taken_out('forky', self.choose())
        self.assertEqual(['forky'], self.taken)

    def test_is_taken_out_and_tried_once(self):
        self.assertEqual(self.choose(), self.choose())
        self.assertEqual((['forky'], ['forky']), (self.taken, self.probed))

    def test_one_that_fails_its_probe_is_skipped(self):
        self.broken = {'forky'}
        self.assert_taken_out('trixie', self.choose())
        self.assertEqual(['forky', 'trixie'], self.probed)
        told, = [text for text in self.told if 'is not used' in text]
        self.assertIn('the kernel of Debian forky is not used: it does not '
                      'work here (more in %s' % self.cache, told)
        self.assertNotIn('\n', told)

    def test_one_that_cannot_be_had_is_skipped(self):
        self.missing = {'forky'}
        self.assert_taken_out('trixie', self.choose())
        self.assertEqual(['trixie'], self.probed)

    def test_nothing_works_or_is_to_be_had(self):
        self.missing, self.broken = {'forky'}, {'trixie'}
        self.assert_own(self.choose())
        self.assertIn("nodes run Debian 12's own kernel, which is slower",
                      self.told)

    def test_that_none_works_is_found_out_once_a_day(self):
        self.missing, self.broken = {'forky'}, {'trixie'}
        self.assert_own(self.choose())
        self.assert_own(self.choose())
        self.assertEqual(['forky', 'trixie'], self.taken)
        # All that stays of them says why.
        reports = list(self.cache.glob('kernel-*/*'))
        self.assertEqual({'report.json', 'complete'},
                         {path.name for path in reports})
        text = ' '.join(path.read_text() for path in reports)
        self.assertIn('no forky', text)
        self.assertIn('Kernel panic', text)
        yesterday = time.time() - kernel.FORGET - 60
        for path in reports:
            os.utime(path, (yesterday, yesterday))
        self.missing = self.broken = set()
        self.assert_taken_out('forky', self.choose())

    def test_one_that_works_is_not_tried_again(self):
        self.choose()
        for path in self.cache.glob('kernel-*/*'):
            os.utime(path, (0, 0))
        self.assert_taken_out('forky', self.choose())
        self.assertEqual(['forky'], self.taken)

    def test_a_probe_that_was_interrupted_says_nothing(self):
        with mock.patch.object(kernel, '_probe',
                               side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, self.choose)
        self.assert_taken_out('forky', self.choose())

    def test_no_room_for_a_cache(self):
        with mock.patch.object(install, 'template', side_effect=OSError(
                28, 'No space left on device')):
            self.assert_own(self.choose())

    def test_own_is_asked_for(self):
        with fixtures.EnvironmentVariable(kernel.CHOICE, 'own'):
            self.assert_own(self.choose())
        self.assertEqual(([], []), (self.taken, self.told))

    def given(self, name):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (path / 'linux.uml').write_text(name)
        self.useFixture(fixtures.EnvironmentVariable(kernel.CHOICE,
                                                     str(path)))
        return path

    def test_another_is_asked_for(self):
        path = self.given('mine')
        found = self.choose()
        self.assertEqual(found, self.choose())
        self.assertEqual(
            {'binary': '%s/linux.uml' % path, 'modules': '%s/modules' % path,
             'release': 'of mine', 'seccomp': True}, found)
        self.assertEqual(([], ['mine']), (self.taken, self.probed))
        # Another one at the same place.
        (path / 'linux.uml').write_text('another')
        self.assertEqual('of another', self.choose()['release'])

    def test_what_is_asked_for_and_does_not_work_is_an_error(self):
        self.broken = {'mine'}
        path = self.given('mine')
        error = self.assertRaises(process.LabError, self.choose)
        self.assertIn('LOCALCLONE_LAB_KERNEL=%s: it does not' % path,
                      str(error))
        self.assertEqual('mine', (path / 'linux.uml').read_text())

    def test_what_is_asked_for_and_not_there_is_an_error(self):
        (self.given('mine') / 'linux.uml').unlink()
        self.assertIn('No such file', str(self.assertRaises(
            process.LabError, self.choose)))


class ProbeTest(testtools.TestCase):

    def test_reads_what_the_kernel_said(self):
        self.assertEqual({'release': '7.2.7', 'seccomp': True},
                         kernel.read(SAID % 'OK'))

    def test_without_seccomp(self):
        for said in (SAID % 'missing', SAID.partition('\n')[2]):
            self.assertEqual({'release': '7.2.7', 'seccomp': False},
                             kernel.read(said))

    def test_a_kernel_that_stops_does_not_work(self):
        said = (SAID % 'OK').replace('lab: this kernel works: 7.2.7', 'panic')
        error = self.assertRaises(process.LabError, kernel.read, said)
        self.assertIn('panic', str(error))

    def run_with(self, script, timeout=0.5):
        """Probe a "kernel" that is a script; nothing of it may stay."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        binary = path / 'linux.uml'
        binary.write_text('#!/bin/sh\n%s\n' % script)
        binary.chmod(0o755)
        # What stands for a disk's server and the one before it.
        server = [sys.executable, '-c', 'import pathlib, sys, time\n'
                  'pathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)']
        started = []

        def popen(argv, **kwargs):
            name = {'qemu-storage-daemon': 'server'}.get(str(argv[0]))
            if str(argv[0]) == '/usr/bin/python3':
                name = 'socket'
            if name:
                place = str(argv[-1]).partition('addr.path=')[2].partition(
                    ',')[0] or argv[argv.index('--listen') + 1]
                argv = [*server, str(place)]
            started.append(real(argv, **kwargs))
            return started[-1]
        real = subprocess.Popen
        with mock.patch.object(subprocess, 'Popen', popen), \
                mock.patch.object(tempfile, 'tempdir', str(path)), \
                mock.patch.object(kernel, 'PROBE_TIMEOUT', timeout):
            try:
                return kernel._probe(path)
            finally:
                self.assertEqual(3, len(started))
                for each in started:
                    self.assertIsNotNone(each.returncode)
                    self.assertEqual(set(), process.group(each.pid))
                self.assertEqual(['linux.uml'], os.listdir(path))

    def test_works(self):
        self.assertEqual('7.2.7', self.run_with(
            'echo; echo "lab: this kernel works: 7.2.7"')['release'])

    def test_is_ended_with_all_that_it_started(self):
        began = time.monotonic()
        self.assertRaises(process.LabError, self.run_with,
                          'sleep 50 & sleep 60')
        self.assertLess(time.monotonic() - began, 30)

    def test_one_that_has_left_something_behind(self):
        self.assertRaises(process.LabError, self.run_with, 'sleep 50 &')

    def test_interrupted(self):
        with mock.patch.object(subprocess.Popen, 'wait', autospec=True,
                               side_effect=_interrupted()):
            self.assertRaises(KeyboardInterrupt, self.run_with, 'sleep 60')


def _interrupted(wait=subprocess.Popen.wait):
    """A wait with a limit is interrupted; one without is none of that."""
    def act(popen, timeout=None):
        if timeout:
            raise KeyboardInterrupt
        return wait(popen)
    return act
