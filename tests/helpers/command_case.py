# SPDX-License-Identifier: Apache-2.0
"""The operator's command, run in this process."""

import contextlib
import io
from unittest import mock

import fixtures
import testtools

from cinder_localclone.cmd import main


class Application(main.LocalClone):
    """The command, on a backend that a test makes."""

    made = None

    def backend(self):
        """The made one."""
        return self.made


class CommandCase(testtools.TestCase):
    """Base of tests that run the command on a made backend."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        for name in main.TALKATIVE:
            self.useFixture(fixtures.FakeLogger(name))
        self.backend = Application.made = mock.MagicMock()
        self.backend.records.moves.return_value = []
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
