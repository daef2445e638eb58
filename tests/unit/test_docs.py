# SPDX-License-Identifier: Apache-2.0
"""The page of the operator's command has every command, and runs each."""

import pathlib
import re
import sys

import testtools

from cinder_localclone.cmd import main

DOC = pathlib.Path(__file__).parents[2] / 'doc/source'
sys.path.insert(0, str(DOC / '_ext'))
import sample_backend  # noqa: E402


class CommandPageTest(testtools.TestCase):

    page = (DOC / 'cli/index.rst').read_text()

    def test_every_command_has_an_example_that_runs(self):
        examples = re.findall(r'^\.\. command-output:: (.*)$', self.page,
                              re.MULTILINE)
        self.assertEqual(set(main.COMMANDS),
                         {words.split()[0] for words in examples})
        for words in examples:
            printed, code = sample_backend.run(words.split())
            self.assertIn(code, (0, 1), printed)
            self.assertTrue(printed.count('\n') > 1, printed)

    def test_every_command_has_a_section(self):
        for name in main.COMMANDS:
            self.assertIn('\n%s\n%s\n' % (name, '=' * len(name)), self.page)
