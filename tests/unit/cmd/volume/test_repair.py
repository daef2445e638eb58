# SPDX-License-Identifier: Apache-2.0
"""``volume repair`` and ``volume unlock``: calls and exit codes."""

import json
from unittest import mock

import fixtures

from cinder_localclone.cmd.volume import repair
from cinder_localclone.cmd.volume import unlock
from cinder_localclone.core import boot_plan
from tests.helpers.command_case import CommandCase
from tests.helpers import inventory_rows
from tests.helpers.inventory_rows import V1
from tests.helpers.inventory_rows import V2


class RepairTest(CommandCase):

    def test_dry_run_changes_nothing(self):
        self.backend.volume.return_value = inventory_rows.row(V1, 'a@l'), None
        self.backend.ask.return_value = {}, ''
        for different, wanted in (([], 0), (['no handle'], 1)):
            with mock.patch.object(repair.inspection, 'differences',
                                   return_value=different):
                code, out, _err = self.run_command(
                    'volume', 'repair', '--dry-run', V1, '--json')
            self.assertEqual(
                (wanted, ['differs: ' + each for each in different]),
                (code, [row['What'] for row in json.loads(out)]))
        self.assertEqual([mock.call('a@l', 'inspect', V1)] * 2,
                         self.backend.ask.mock_calls)
        self.backend.call.assert_not_called()


class UnlockTest(CommandCase):

    def test_exit_code(self):
        self.useFixture(fixtures.MockPatchObject(
            unlock.backends, 'act_as_root'))
        opened = self.useFixture(fixtures.MockPatchObject(
            unlock.backends, 'open_wanted')).mock
        for problems, wanted in (((), 0), (('',), 0), (('', 'oh'), 1)):
            opened.return_value = [boot_plan.Outcome(V1, 'lv', 's', each)
                                   for each in problems]
            code, _out, _err = self.run_command('volume', 'unlock', V1, V2)
            self.assertEqual(wanted, code)
        opened.assert_called_with(self.backend, [V1, V2])
