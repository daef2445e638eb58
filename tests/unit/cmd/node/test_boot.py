# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes are opened at boot, without the database."""

import json
from unittest import mock

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
