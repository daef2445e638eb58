# SPDX-License-Identifier: Apache-2.0
"""The manual page and the completion in the wheel are those of the command."""

import re
import tomllib

import testtools

from cinder_localclone.cmd import main
from lab import manual

#: Words that any sub-command has, by cliff's version.
COMPLETE = ('complete', 'help')


def completed(text):
    """Return the words after each noun, and the options of each command."""
    return {name: set(words.split()) for name, words in re.findall(
        r"^    '([\w ]*)'\) (?:next|options)='(.*)'", text, re.MULTILINE)}


class ManualTest(testtools.TestCase):

    def test_page_is_that_of_the_command(self):
        """Else run "python3 -m lab.manual"."""
        self.assertEqual(manual.page(), manual.PAGE.read_text())

    def test_page_has_each_command_with_its_example(self):
        text = manual.PAGE.read_text()
        names = sorted([*main.COMMANDS, 'complete'])
        self.assertEqual(names, re.findall(r'^\.SS (.*)$', text, re.M))
        self.assertEqual(len(names), text.count('\nExample:\n'))
        self.assertNotIn('reencryption run', text)
        self.assertIn('\\fB\\-\\-without\\-source\\fR', text)

    def test_completion_is_that_of_the_command(self):
        """Else run "python3 -m lab.manual". Options of cliff may differ."""
        kept = completed(manual.COMPLETION.read_text())
        made = completed(manual.completion())
        self.assertEqual(set(made), set(kept))
        app = main.LocalClone()
        for name in main.COMMANDS:
            found, _kind = manual.parser(app, name)
            own = {each for action in manual.own_actions(found)
                   for each in action.option_strings}
            self.assertLessEqual(own, made[name], name)
            self.assertLessEqual(own, kept[name], name)
        self.assertEqual(made['encryption'], kept['encryption'])
        self.assertEqual({'key'}, kept['encryption recovery'])
        self.assertNotIn('reencryption run', kept)

    def test_page_has_each_option_of_all_commands(self):
        text = manual.PAGE.read_text().replace('\\-', '-')
        for action in main.LocalClone().parser._actions:
            for word in action.option_strings:
                self.assertIn('\\fB%s\\fR' % word, text)
            self.assertTrue(action.help)

    def test_wheel_has_both(self):
        files = tomllib.loads((manual.ROOT / 'pyproject.toml').read_text())[
            'tool']['setuptools']['data-files']
        for directory, path in (
                ('share/man/man1', manual.PAGE),
                ('share/bash-completion/completions', manual.COMPLETION)):
            self.assertEqual([str(path.relative_to(manual.ROOT))],
                             files[directory])
            self.assertTrue(path.read_text())
