# SPDX-License-Identifier: Apache-2.0
"""A machine for the package that builds dm-clone: a directory."""

import pathlib
import signal
import subprocess

import fixtures
import testtools

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / 'packaging/dkms'
KERNEL = '6.1.0-57-amd64'


class Root(testtools.TestCase):
    """A machine that is a directory; its commands are scripts."""

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('bin', 'build', 'usr/src', 'var/lib/dpkg', 'etc/default',
                     'etc/dkms', 'var/cache/cinder-localclone-dkms'):
            (self.path / name).mkdir(parents=True)
        (self.path / 'var/lib/dpkg/status').touch()
        self.headers(KERNEL, '6.1.192')

    def headers(self, kernel, version):
        """The headers of a kernel, of an upstream version."""
        build = self.path / 'lib/modules' / kernel / 'build'
        path = build / 'include/generated/uapi/linux/version.h'
        path.parent.mkdir(parents=True)
        major, minor, patch = map(int, version.split('.'))
        path.write_text(
            '#define LINUX_VERSION_CODE %d\n#define KERNEL_VERSION(a,b,c) x\n'
            % ((major << 16) + (minor << 8) + min(patch, 255)))
        (build / 'Makefile').touch()

    def command(self, name, script):
        """A command; what it was called with goes to the file "calls"."""
        path = self.path / 'bin' / name
        path.write_text('#!/bin/sh\necho "%s $*" >>%s/calls\n%s\n' % (
            name, self.path, script))
        path.chmod(0o755)

    @property
    def calls(self):
        path = self.path / 'calls'
        return path.read_text().splitlines() if path.exists() else []

    def run_script(self, *words, **environment):
        """Its exit code, and what it printed."""
        done = subprocess.run(
            ['sh', *words], cwd=self.path / 'build', stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60,
            # Another test may have this process ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
            env={'PATH': '%s:/usr/sbin:/usr/bin:/sbin:/bin' % (
                self.path / 'bin'), 'LOCALCLONE_ROOT': str(self.path),
                **environment})
        return done.returncode, done.stdout
