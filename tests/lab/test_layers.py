# SPDX-License-Identifier: Apache-2.0
"""Layers: what import-linter can't say of them (see pyproject.toml)."""

import ast

import testtools

from tests.helpers.tree import modules
from tests.helpers.tree import PACKAGE
from tests.helpers.tree import ROOT

#: What core imports of the standard library: nothing of it reads or writes.
HARMLESS = {'collections', 'contextlib', 'dataclasses', 'datetime', 'enum',
            'functools', 'hashlib', 'heapq', 'json', 'operator', 're',
            'struct', 'types', 'typing', 'xml'}
#: Nothing but numbers.
CONSTANTS = 'oslo_utils.units'
#: What else single modules of core import, and why.
MORE = {
    'core.encryption_exceptions': {'cinder'},  # the base of errors; texts
    'core.events': {'oslo_log', 'threading'},  # the log is where events go
    'core.exceptions': {'cinder'},
    'core.interfaces.records': {'abc'},
    'core.iscsi': {'cinder', 'ipaddress'},  # credentials as Cinder makes them
    'core.outcomes': {'cinder'},
    'core.rpc': {'inspect'},  # signatures
    'core.user_messages': {'cinder'},  # the texts, as Cinder has its own
}
#: Lines of a module, at most: about 800, and what its docstrings need.
LIMIT = 820


def imports(path):
    """Full names of all that a module imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ('%s.%s' % (node.module, alias.name)
                        for alias in node.names)


class LayersTest(testtools.TestCase):

    def test_core_imports_nothing_that_acts(self):
        found = {}
        for name, path in modules(PACKAGE):
            if name.partition('.')[0] == 'core':
                foreign = {each.partition('.')[0] for each in imports(path)
                           if each != CONSTANTS} - HARMLESS - {PACKAGE}
                if foreign:
                    found[name] = foreign
        self.assertEqual(MORE, found)

    def test_no_module_is_too_large(self):
        self.assertEqual([], [
            str(path) for top in (PACKAGE, 'lab')
            for _name, path in modules(top)
            if len(path.read_text().splitlines()) > LIMIT])


class LabTest(testtools.TestCase):
    """``lab``, as its README lists it."""

    #: What its suites use, each with what it may import.
    shared = {'core': set(), 'guest': {'core'}, 'container': {'core'},
              'keys': {'core'}, 'nova': {'core', 'guest'},
              'lab': {'core', 'guest', 'container', 'keys', 'nova'},
              'command': {'core', 'lab'}, 'scenarios': {'core', 'keys'},
              'shares': set()}

    def test_suites_share_what_is_made_for_that(self):
        strays = set()
        for name, path in modules('lab'):
            package = name.partition('.')[0]
            allowed = self.shared.get(package, set(self.shared)) | {package}
            for each in imports(path):
                top, _dot, rest = each.partition('.')
                other = rest.partition('.')[0]
                if top == 'lab' and other and other not in allowed and (
                        other != 'Lab'):
                    strays.add((name, other))
        self.assertEqual(set(), strays)


def is_test(name):
    """Whether a module of the repository has tests, by its name."""
    return name.startswith('tests.') and (
        name.rpartition('.')[2].startswith('test_'))


class TestsTest(testtools.TestCase):
    """The tree of the tests."""

    def test_no_module_of_tests_imports_another(self):
        """What they share is in tests/helpers, or tests/world."""
        known = {'tests.' + name for name, _path in modules('tests')}
        found = {
            (name, other) for name, path in modules('tests')
            for each in imports(path) for other in (
                each, each.rpartition('.')[0])
            if is_test(other) and other in known}
        self.assertEqual(set(), found)

    def test_unit_tests_mirror_the_package(self):
        """test_MODULE or test_MODULE_SUBJECT, in the module's package.

        Of a package as a whole, its own name stands for the module.
        """
        strays = []
        for path in (ROOT / 'tests/unit').rglob('test_*.py'):
            package = path.parent.relative_to(ROOT / 'tests/unit')
            known = {package.name, *(
                each.stem for each in (ROOT / PACKAGE / package).glob('*.py'))}
            if not any((path.stem + '_').startswith('test_%s_' % each)
                       for each in known):
                strays.append(str(path))
        self.assertEqual([], strays)
