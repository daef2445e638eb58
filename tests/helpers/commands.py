# SPDX-License-Identifier: Apache-2.0
"""Privileged commands that are recorded instead of run."""

import functools
import os
import shlex

import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import dm_control
from cinder_localclone.storage.privsep import lower
from cinder_localclone.storage.privsep import memory
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs


class Commands(fixtures.Fixture):
    """Entry points run in this process; what they run is written down.

    ``ran`` has the command lines, and looks that take no command ("ioctl
    ..."); ``limits`` their time limits (seconds), ``graces`` what they get
    besides, ``dying`` what they get when they were killed,
    ``inputs`` what they read, ``secrets`` what no error may have.
    """

    def _setUp(self):
        self.ran, self.limits, self.inputs, self.graces = [], [], [], []
        self.secrets, self.dying = [], []
        self._answers = []
        for context in (privsep.default, cryptsetup_keys.context):
            self.useFixture(fixtures.MockPatchObject(
                context, 'client_mode', False))
        # Not the memory of all tests.
        self.useFixture(fixtures.MockPatchObject(memory, 'protect'))
        self.useFixture(fixtures.MockPatchObject(process, 'run', self._run))
        # Of whatever is named here, all is the driver's own.
        for module, name in ((configuration, 'require_groups'),
                             (lower, 'require')):
            self.useFixture(fixtures.MockPatchObject(
                module, name, autospec=True))
        self.useFixture(fixtures.MockPatchObject(
            lower, 'is_own_lv', lambda _number: True))
        self.useFixture(fixtures.MockPatchObject(
            sysfs, 'mapped_name', functools.partial(
                self._mapped_name, sysfs.mapped_name)))
        for name in ('status', 'table'):
            self.useFixture(fixtures.MockPatchObject(
                dm_control, name, functools.partial(self._ioctl, name)))

    @staticmethod
    def _mapped_name(mapped_name, path):
        """Handles, and what is above them, are where their paths lead."""
        directory, name = os.path.split(path)
        return name if directory == '/dev/mapper' and (
            names.volume_of_handle(name) or names.is_crypt(name)
        ) else mapped_name(path)

    def answer(self, begin, out='', code=0, err='', times=None):
        """How commands end whose line begins like this.

        :param times: for how many of them; None: for all
        """
        self._answers.append([begin, out, code, err, times])

    def hang(self, begin):
        """Commands whose line begins like this reach their time limit."""
        self._answers.append([begin, '', None, '', None])

    def _run(self, *argv, timeout, ok=(0,), stdin=None, grace=0,
             dying=1, secret='', pass_fds=()):
        line = shlex.join(argv)
        self.ran.append(line)
        self.limits.append(timeout)
        self.inputs.append(stdin)
        self.graces.append(grace)
        self.dying.append(dying)
        self.secrets.append(secret)
        out, code, err = self._answer(line)
        if code is None:
            raise exceptions.CommandTimeout(command=line, seconds=timeout)
        if code not in ok:
            raise exceptions.CommandFailed(command=line, code=code,
                                           stderr=err)
        return out

    def _ioctl(self, name, device, timeout):
        return self._run('ioctl', name, device, timeout=timeout)

    def _answer(self, line):
        for answer in self._answers:
            begin, out, code, err, times = answer
            if line.startswith(begin) and times != 0:
                if times:
                    answer[4] -= 1
                return out, code, err
        return '', 0, ''


class Case(testtools.TestCase):
    """Base of tests of what is run, with a time limit of 30 seconds."""

    def setUp(self):
        super().setUp()
        self.commands = self.useFixture(Commands())

    def assertRan(self, *lines):
        self.assertEqual(list(lines), self.commands.ran)
        self.assertEqual([30] * len(lines), self.commands.limits)
