# SPDX-License-Identifier: Apache-2.0
"""What the package imports is what its requirements name."""

import ast
import pathlib
import re
import sys

import testtools

ROOT = pathlib.Path(__file__).parents[2]


class RequirementsTest(testtools.TestCase):

    def imported(self):
        """Top-level names, those of imports within functions too."""
        for path in (ROOT / 'cinder_localclone').rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (each.name for each in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.module

    def test_they_are_the_same(self):
        imported = {name.partition('.')[0] for name in self.imported()}
        required = {re.sub('[-.]', '_', name) for name in re.findall(
            r'^([\w.-]+)>=', (ROOT / 'requirements.txt').read_text(),
            re.MULTILINE)}
        self.assertEqual(
            required,
            imported - sys.stdlib_module_names - {
                'cinder_localclone',
                # What the filter loads runs where Nova is, which brings both.
                'nova', 'cinderclient'})
