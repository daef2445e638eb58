# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes are opened at boot, without the database."""

import json
from unittest import mock

import ddt
import fixtures

from cinder_localclone.cmd.node import boot
from cinder_localclone.core import boot_plan
from tests.helpers.command_case import CommandCase
from tests.helpers.inventory_rows import V1
from tests.helpers.inventory_rows import V2


class UnlockTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(boot.backends, 'act_as_root'))
        self.unlock = self.useFixture(fixtures.MockPatchObject(
            boot.backends, 'unlock', return_value=[])).mock

    def outcome(self, *problems):
        self.unlock.return_value = [
            boot_plan.Outcome(V1, 'lv', 'state', problem)
            for problem in problems]

    def test_exit_code(self):
        for problems, wanted in (
                ((), 0), (('', ''), 0), (('', 'oh'), 0), (('oh', 'oh'), 1)):
            self.outcome(*problems)
            code, out, _err = self.run_command('node', 'unlock', '--json')
            self.assertEqual((wanted, list(problems)), (
                code, [row['Problem'] for row in json.loads(out)]))
        self.assertEqual(mock.call(self.backend, boot.WAIT, None),
                         self.unlock.call_args)
        self.run_command('node', 'unlock', '--seconds', '7.5')
        self.assertEqual(7.5, self.unlock.call_args.args[1])

    def test_name(self):
        """Without the database it would be the name of no volume."""
        code, _out, err = self.run_command('node', 'unlock', 'data')
        self.assertEqual(1, code)
        self.assertIn('"data" is not the ID of a volume.', err)
        self.unlock.assert_not_called()

    def test_volume_that_was_not_open(self):
        code, _out, err = self.run_command('node', 'unlock', V2)
        self.assertEqual(1, code)
        self.assertIn('Volume %s was not open on this node' % V2, err)
        self.outcome('')
        self.assertEqual(0, self.run_command('node', 'unlock', V2)[0])
        self.assertEqual(V2, self.unlock.call_args.args[2])


class RestoreTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(boot.backends, 'act_as_root'))
        self.restore = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.restore.restore')).mock

    def test_exit_code(self):
        local = mock.Mock(volume_id=V1, lv='lv', move=None, remote=None)
        for problems, wanted in (((), 0), (('',), 0), (('', 'oh'), 1)):
            self.restore.return_value = [(local, each) for each in problems]
            code, out, _err = self.run_command('node', 'restore', '--json')
            self.assertEqual(
                (wanted, ['left' if each else 'local' for each in problems]),
                (code, [row['State'] for row in json.loads(out)]))


@ddt.ddt
class RootTest(CommandCase):

    @ddt.data('node restore', 'node unlock', 'volume unlock')
    def test_only_root(self, words):
        done = [self.useFixture(fixtures.MockPatch(each)).mock for each in (
            'cinder_localclone.service.restore.restore',
            'cinder_localclone.service.operator.unlock',
            'cinder_localclone.service.operator.open_wanted')]
        with mock.patch.object(boot.backends.os, 'geteuid', lambda: 1000):
            code, _out, err = self.run_command(*words.split())
        self.assertEqual(1, code)
        self.assertIn('needs root', err)
        for each in done:
            each.assert_not_called()
