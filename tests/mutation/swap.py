# SPDX-License-Identifier: Apache-2.0
"""One mutant brought into a running interpreter.

The function keeps its identity and gets other code: so whoever holds it, a
decorator, privsep or a test, calls the mutant.
"""

import ast
import collections
import gc
import importlib
import os
import sys
import types

from tests.mutation import mutants as all_mutants


class Functions:
    """All functions of a package that there are now.

    :param package: that the paths of mutants are in; all that may be
        mutated must be imported
    """

    def __init__(self, package):
        self._package = package
        directory = os.path.dirname(
            importlib.import_module(package).__file__) + os.sep
        self._found = collections.defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType) and (
                    each.__code__.co_filename.startswith(directory)):
                self._found[each.__code__.co_filename].append(each)

    def bring_in(self, mutant):
        """Make this interpreter run a mutant.

        :raises LookupError: if there is no such function
        :raises SyntaxError: if the edit is none
        """
        module = importlib.import_module('.'.join(
            (self._package, *mutant.path.removesuffix('.py').split('/'))
        ).removesuffix('.__init__'))
        if not mutant.root:
            _set_constant(mutant, module, self._package)
            return
        name, first, last = mutant.root
        # Those within it, too: a decorator has left its own behind.
        functions = [
            (each.__code__.co_qualname, each)
            for each in self._found[module.__file__]
            if first <= each.__code__.co_firstlineno <= last
            and '<lambda>' not in each.__code__.co_qualname]
        tree = ast.parse(mutant.text)
        _keep_free_variables(tree, '', {
            within: each.__code__.co_freevars for within, each in functions})
        (code,) = [each for each in _codes(compile(
            ast.fix_missing_locations(tree), module.__file__, 'exec'))
            if (each.co_qualname, each.co_firstlineno) == (name, first)]
        codes = {each.co_qualname: each for each in (code, *_codes(code))}
        if name not in dict(functions):
            raise LookupError('there is no function %s' % mutant.where)
        for within, each in functions:
            each.__code__ = codes[within]


def _codes(within):
    for each in within.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


def _keep_free_variables(node, prefix, names):
    """Code can be exchanged only for code with the same free variables.

    ``__class__`` is one, where ``super()`` is called.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _keep_free_variables(child, prefix + child.name + '.', names)
        elif isinstance(child, ast.FunctionDef):
            name = prefix + child.name
            _keep_free_variables(child, name + '.<locals>.', names)
            child.body += ast.parse(''.join(
                'if False: %s\n' % each for each in names.get(name, ()))).body
        else:
            _keep_free_variables(child, prefix, names)


def _set_constant(mutant, module, package):
    tree = ast.parse(mutant.text)
    names = mutant.where.split(',')
    (statement,) = [each for each in tree.body
                    if all_mutants.targets(each) == names]
    values = dict(vars(module))
    exec(compile(ast.Module([statement], []), module.__file__, 'exec'),
         values)
    holders = [each for name, each in list(sys.modules.items())
               if name.split('.')[0] == package.split('.')[0]]
    for name in names:
        old = getattr(module, name)
        for holder in holders:
            if vars(holder).get(name) is old:  # imported by its name, too
                setattr(holder, name, values[name])
