# SPDX-License-Identifier: Apache-2.0
"""The contributor's pages: names, layers and the tree, against the code."""

import ast
import functools
import re

import ddt
import testtools

from tests.helpers.documentation import DOC
from tests.helpers import pages
from tests.helpers.tree import PACKAGE
from tests.helpers.tree import ROOT

import package_tree  # noqa: E402

PAGES = sorted((DOC / 'contribute').glob('*.rst'))
#: Packages whose names stand on the pages without the name of their parent.
OWN = {path.parent.name for path in (ROOT / PACKAGE).glob('*/__init__.py')}
TOPS = {*OWN, 'lab', 'tests'}
LITERAL = re.compile(r'``([^`]+)``')
DOTTED = re.compile(r'[a-z_]\w*(\.\w+)+')
#: Nova's own module, and names of files.
OTHERS = re.compile(r'nova\.volume\.cinder|.*\.py')


def dotted_names(text):
    """The names of the code's packages in the literals of a page."""
    for literal in LITERAL.findall(text):
        for name in re.split(r'[\s,;]+', literal):
            if (DOTTED.fullmatch(name) and name.partition('.')[0] in TOPS
                    and not OTHERS.fullmatch(name)):
                yield name


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def defined(tree):
    """The functions, classes and variables of a module or a class."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = getattr(node, 'targets', None) or [node.target]
            for target in targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        yield each.id, node


def exists(name):
    """Whether there is a package, a module, or a name in a module."""
    first, *rest = name.split('.')
    path = ROOT / PACKAGE / first if first in OWN else ROOT / first
    while rest and (path / rest[0]).is_dir():
        path /= rest.pop(0)
    if rest and (path / (rest[0] + '.py')).exists():
        path /= rest.pop(0) + '.py'
    path = path if path.suffix else path / '__init__.py'
    if not path.exists():
        return False
    node = parsed(path)
    for each in rest:
        node = dict(defined(node)).get(each)
        if node is None or not hasattr(node, 'body') and each != rest[-1]:
            return False
    return True


@ddt.ddt
class NamesTest(testtools.TestCase):

    def test_all_exist(self):
        found = [(page.name, name) for page in PAGES
                 for name in dotted_names(page.read_text())]
        self.assertTrue(len(found) > 100, found)
        self.assertEqual([], [each for each in found if not exists(each[1])])

    @ddt.data('moves.source.Nothing', 'moves.nowhere', 'tests.nowhere',
              'moves.source.Record.nothing', 'nowhere.at_all')
    def test_missing_name_is_found(self, name):
        self.assertFalse(exists(name))

    def test_sequences_name_functions(self):
        self.assertEqual(['An attach on another node', 'A periodic sweep'],
                         list(pages.sequences()))
        for names in pages.sequences().values():
            self.assertTrue(len(names) > 10)
            self.assertEqual([], [each for each in names if not exists(each)])


class LayersTest(testtools.TestCase):
    """``layers.dot`` and pyproject.toml have the same layers."""

    def setUp(self):
        super().setUp()
        self.drawn = [
            names for line in (DOC / 'contribute/layers.dot').read_text()
            .splitlines() if '->' in line
            for names in [re.findall(r'\w+', line.partition('[')[0])]]

    def test_every_package_is_drawn(self):
        self.assertEqual({*package_tree.layers(), 'nova'}, OWN)
        self.assertEqual(set(), OWN - {
            name for names in self.drawn for name in names})

    def test_arrows_point_down(self):
        order = package_tree.layers()
        for names in self.drawn:
            known = [order.index(each) for each in names if each in order]
            self.assertEqual(sorted(known), known, names)


class TreeTest(testtools.TestCase):

    def test_every_package_has_its_line(self):
        page = (DOC / 'contribute/index.rst').read_text()
        listed = re.search(r'package-tree::\n\n((?:   .*\n)+)', page)[1]
        entries = [line.strip() for line in listed.splitlines()]
        lines = package_tree.rst(entries)
        for top in (PACKAGE, 'lab', 'tests'):
            for path in (ROOT / top).glob('*/__init__.py'):
                self.assertTrue(
                    any(line.split()[:1] == [path.parent.name + '/']
                        and len(line.split()) > 1 for line in lines),
                    'no docstring: %s' % path)
        self.assertEqual([], [line for line in lines if len(line) > 79])

    def test_an_entry_that_cannot_be_read(self):
        self.assertRaises(ValueError, package_tree.rst, ['etc'])
