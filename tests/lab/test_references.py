# SPDX-License-Identifier: Apache-2.0
"""What docstrings of the package refer to exists."""

import ast
import pathlib
import re

import testtools

import cinder_localclone

ROOT = pathlib.Path(cinder_localclone.__path__[0])
PARAMETER = re.compile(r':param (\w+):')
ROLE = re.compile(r':(mod|func|class|meth|data):`~?([\w.]+)`')


def names_in(text):
    """All that a module defines, at whatever depth."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def parameters(function):
    """The names of a function's parameters."""
    found = function.args
    return {each.arg for each in (
        *found.posonlyargs, *found.args, *found.kwonlyargs, found.vararg,
        found.kwarg) if each}


class ReferencesTest(testtools.TestCase):
    """Without Sphinx, which lets those pass that it can't resolve."""

    def setUp(self):
        super().setUp()
        self.texts = {
            '.' + '.'.join(path.relative_to(ROOT.parent).with_suffix(
                '').parts).removesuffix('.__init__'): path.read_text()
            for path in ROOT.rglob('*.py')}
        self.names = {module: {*names_in(text)}
                      for module, text in self.texts.items()}

    def modules(self, name):
        return [module for module in self.names
                if module.endswith('.' + name)]

    def exists(self, own, kind, name):
        *before, last = name.strip('.').split('.')
        where = self.modules('.'.join((*before, last)))
        if kind == 'mod':
            return bool(where)
        if not before:
            return last in self.names[own]
        # Of a module, of a class in it, or of a class of any module.
        modules = (*self.modules('.'.join(before)),
                   *self.modules('.'.join(before[:-1]) or '?'))
        return any(last in self.names[module] for module in modules) or (
            len(before) == 1 and any({last, *before} <= found
                                     for found in self.names.values()))

    def test_parameters_exist(self):
        """Each is one of the function whose docstring has it."""
        self.assertEqual([], [
            (module, function.name, name)
            for module, text in self.texts.items()
            for function in ast.walk(ast.parse(text))
            if isinstance(function, ast.FunctionDef)
            for name in PARAMETER.findall(ast.get_docstring(function) or '')
            if name not in parameters(function)])

    def test_all_exist(self):
        self.assertEqual([], [
            (module, name) for module, text in self.texts.items()
            for kind, name in ROLE.findall(text)
            if not self.exists(module, kind, name)])
