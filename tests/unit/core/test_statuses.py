# SPDX-License-Identifier: Apache-2.0
"""Cinder's statuses: one module has all sets of them."""

import ast
import pathlib

from cinder.objects import fields
import testtools

from cinder_localclone.core import statuses

ROOT = pathlib.Path(statuses.__file__).parents[1]
#: Statuses of volumes that Cinder uses beside those of its own list.
UNLISTED = {'reverting', 'error_managing_deleting', 'unmanaging',
            'error_unmanaging'}
OF_VOLUMES = {*fields.VolumeStatus.ALL, *UNLISTED}
OF_MIGRATIONS = {*fields.VolumeMigrationStatus.ALL, None, ''}


def collections_in(path):
    """Line and members of each tuple, list, set or dict of constants."""
    for node in ast.walk(ast.parse(path.read_text())):
        members = node.keys if isinstance(node, ast.Dict) else getattr(
            node, 'elts', ())
        found = {each.value for each in members
                 if isinstance(each, ast.Constant)}
        others = [each for each in members if isinstance(each, ast.Starred)]
        if found and len(members) > 1 and (
                len(found) + len(others) == len(members)):
            yield node.lineno, found


class StatusesTest(testtools.TestCase):

    def test_no_other_module_has_a_set_of_them(self):
        self.assertEqual([], [
            '%s:%d' % (path.relative_to(ROOT), line)
            for path in sorted(ROOT.rglob('*.py'))
            if path != pathlib.Path(statuses.__file__)
            for line, found in collections_in(path) if found <= OF_VOLUMES])

    def test_cinder_has_each_of_them(self):
        """What is misspelt would never be found in a row."""
        for name, members in vars(statuses).items():
            if isinstance(members, frozenset):
                known = (OF_MIGRATIONS if 'MIGRATION' in name else
                         {*fields.SnapshotStatus.ALL}
                         if 'SNAPSHOT' in name else OF_VOLUMES)
                self.assertLessEqual(members, known, name)
