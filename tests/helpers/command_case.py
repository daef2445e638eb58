# SPDX-License-Identifier: Apache-2.0
"""The operator's command, run in this process."""

import contextlib
import io
import json
import types
from unittest import mock

import fixtures
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.core import copies
from cinder_localclone.db import inventory
from tests.helpers import inventory_rows


class Application(main.LocalClone):
    """The command, on a backend that a test makes."""

    made = None

    def backend(self):
        """The made one."""
        return self.made


class CommandCase(testtools.TestCase):
    """ListingCase of tests that run the command on a made backend."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        for name in main.TALKATIVE:
            self.useFixture(fixtures.FakeLogger(name))
        self.backend = Application.made = mock.MagicMock()
        self.backend.db.moves.readable_moves.return_value = []
        self.backend.find.side_effect = str  # as if each had its id's name
        self.useFixture(fixtures.MockPatchObject(
            main, 'LocalClone', Application))

    def run_command(self, *words):
        """Its exit code, what it printed, and its errors."""
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                code = main.main(words)
            except SystemExit as exc:
                code = exc.code
        return code, out.getvalue(), err.getvalue()


A, B, C = inventory_rows.A, inventory_rows.B, inventory_rows.C
V1, V2, V3 = inventory_rows.V1, inventory_rows.V2, inventory_rows.V3


class ListingCase(CommandCase):

    def setUp(self):
        super().setUp()
        self.backend.name, self.backend.host = 'l', A
        self.backend.nodes.return_value = {A: True, B: True}
        self.backend.conf = types.SimpleNamespace(
            localclone_max_copies_in=1, localclone_max_copies_out=2)
        self.db = self.backend.db
        self.inventory = self.db.inventory
        self.inventory.all_volumes.return_value = [
            inventory_rows.row(V1, A, display_name='one', hosts=('a', '')),
            inventory_rows.row(V2, B, encryption_key_id='k')]
        self.inventory.all_moves.return_value = [inventory.Under(
            inventory_rows.moving(V2), 0.0)], 0
        self.db.queue.copies.return_value = [
            copies.Entry('s%d' % n, V2, A, B, began=n) for n in range(3)]
        self.inventory.service.return_value = mock.Mock(
            disabled=False, zone='z')
        self.backend.ask.return_value = {
            'free_space': {'volumes': 5 << 30, 'metadata': 1 << 30,
                           'shared': False}, 'problems': []}, ''

    def listed(self, *words, code=0):
        found, out, err = self.run_command(*words, '--json')
        self.assertEqual(code, found, err)
        return json.loads(out)
