# SPDX-License-Identifier: Apache-2.0
"""The tree of the repository, with the first line of each docstring."""

import ast
from collections.abc import Iterable
from collections.abc import Iterator
import pathlib
import re
import textwrap
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = 'cinder_localclone'
#: Characters of a line.
WIDTH = 79


def layers() -> list[str]:
    """Return the packages, from the top layer to the bottom one."""
    linter = tomllib.loads((ROOT / 'pyproject.toml').read_text())[
        'tool']['importlinter']
    return [name.strip() for layer in linter['contracts'][0]['layers']
            for name in layer.split('|')]


def first_line(package: pathlib.Path) -> str:
    """Return the first line of a package's docstring; '' without one."""
    docstring = ast.get_docstring(ast.parse(
        (package / '__init__.py').read_text()))
    return (docstring or '').partition('\n')[0].replace('``', '')


def children(package: pathlib.Path) -> list[pathlib.Path]:
    """Return the packages of a package.

    The packages of the driver are in the order of the layers, all others in
    the order of their names.
    """
    order = layers() if package.name == PACKAGE else []

    def position(path: pathlib.Path) -> tuple[int, str]:
        return (order.index(path.name) if path.name in order
                else len(order), path.name)
    return sorted((path.parent for path in package.glob('*/__init__.py')),
                  key=position)


def tree(folder: str, depth: int, text: str = '') -> Iterator[tuple[str, str]]:
    """Yield an indented name and a line of text for each folder.

    :param folder: relative to the repository
    :param depth: levels of packages below it
    :param text: its own line, if it is no package
    """
    yield folder + '/', text or first_line(ROOT / folder)
    yield from _below(ROOT / folder, depth, 1)


def _below(package: pathlib.Path, depth: int, level: int
           ) -> Iterator[tuple[str, str]]:
    if level > depth:
        return
    for path in children(package):
        yield '  ' * level + path.name + '/', first_line(path)
        yield from _below(path, depth, level + 1)


def rst(entries: Iterable[str]) -> list[str]:
    """Return the tree as a literal block in reStructuredText.

    :param entries: folders, each with the levels of packages to show (0 to
        2), and with a text if it is no package: ``lab 1``, ``etc 0 Text.``
    """
    rows = []
    for entry in entries:
        found = re.fullmatch(r'(\S+) (\d)(?: (.+))?', entry)
        if found is None:
            raise ValueError('no entry of a package tree: ' + entry)
        rows += tree(found[1], int(found[2]), found[3] or '')
    column = max(len(name) for name, _text in rows) + 2
    lines = ['.. code-block:: text', '']
    for name, text in rows:
        lines += textwrap.wrap(
            text, WIDTH, initial_indent='   %s' % name.ljust(column),
            subsequent_indent='   ' + ' ' * column) or ['   ' + name]
    return [*lines, '']
