# SPDX-License-Identifier: Apache-2.0
"""The pages that code makes: the command, the states."""

import pathlib
import re
import sys

import testtools

from cinder_localclone.cmd import main

DOC = pathlib.Path(__file__).parents[2] / 'doc/source'
sys.path.insert(0, str(DOC / '_ext'))
import sample_backend  # noqa: E402
import state_table  # noqa: E402


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

    def test_exit_code_of_repair(self):
        self.assertEqual(1, sample_backend.run(
            ['repair', '--dry-run', 'MOVING'])[1])
        self.assertEqual(0, sample_backend.run(['repair', 'MOVING'])[1])

    def test_help_is_of_the_command(self):
        for words in (['show', '--help'], ['help', 'show']):
            printed, code = sample_backend.run(words)
            self.assertIn('what each node has of it', printed)
            self.assertFalse(code)

    def test_every_command_has_a_section(self):
        for name in main.COMMANDS:
            self.assertIn('\n%s\n%s\n' % (name, '=' * len(name)), self.page)


class StatesPageTest(testtools.TestCase):

    def test_without_graphviz_the_table_says_the_same(self):
        drawn, not_drawn = state_table.rst(True), state_table.rst(False)
        self.assertIn('.. graphviz::', drawn)
        self.assertNotIn('.. graphviz::', not_drawn)
        self.assertIn('without graphviz', not_drawn[0])
        for lines in (drawn, not_drawn):
            self.assertIn('   * - ``starting``', lines)
