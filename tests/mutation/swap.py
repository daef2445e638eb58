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
                self._found[each.__code__.co_filename,
                            _key(each.__code__)].append(each)

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
        functions = self._found[module.__file__, mutant.root]
        code = _code(compile(_with_class_cell(mutant), module.__file__,
                             'exec'), mutant.root)
        if not functions or code is None:
            raise LookupError('there is no function %s' % mutant.where)
        for function in functions:
            function.__code__ = code


def _key(code):
    return code.co_qualname, code.co_firstlineno


def _code(within, key):
    for each in within.co_consts:
        if isinstance(each, types.CodeType):
            found = each if _key(each) == key else _code(each, key)
            if found:
                return found
    return None


def _with_class_cell(mutant):
    """The mutant's tree; what used ``super()`` has the cell of its class.

    Code can be exchanged only for code with the same free variables.
    """
    tree = ast.parse(mutant.text)
    if 'super(' in mutant.source.raw.decode():
        for function in ast.walk(tree):
            if _used_super(function, mutant):
                function.body += ast.parse('if False: __class__').body
        ast.fix_missing_locations(tree)
    return tree


def _used_super(function, mutant):
    if not isinstance(function, ast.FunctionDef) or (
            function.name != mutant.root[0].rpartition('.')[2]):
        return False
    return any(
        isinstance(each, ast.Name) and each.id == 'super'
        for original in ast.walk(mutant.source.tree)
        if isinstance(original, ast.FunctionDef)
        and original.lineno == function.lineno
        for each in ast.walk(original))


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
