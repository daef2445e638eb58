# SPDX-License-Identifier: Apache-2.0
"""What each privileged entry point allows a caller, from the code.

The paragraph "Allows:" of its docstring. The source is read, not imported.
"""

import ast
from collections.abc import Iterator
import inspect
import pathlib

import list_table

_WORD = 'Allows: '
#: Decorators, by daemon; where they are called without their module, that of
#: the module itself.
DEFAULT, SECRETS = 'default', 'secrets'


def entry_points(package: pathlib.Path
                 ) -> Iterator[tuple[str, str, str, str]]:
    """Daemon, module, name, and what it allows; '' if it does not say.

    :param package: the directory of the modules
    """
    for path in sorted(package.glob('*.py')):
        for function in ast.parse(path.read_text()).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            by = {ast.unparse(each) for each in function.decorator_list}
            daemon = (DEFAULT if 'privsep.entrypoint' in by else SECRETS if by
                      & {'cryptsetup_keys.entrypoint', 'entrypoint'} else '')
            if daemon:
                yield daemon, path.stem, function.name, _allows(function)


def _allows(function: ast.FunctionDef) -> str:
    text = inspect.cleandoc(ast.get_docstring(function) or '')
    return next((' '.join(part.split())[len(_WORD):]
                 for part in text.split('\n\n') if part.startswith(_WORD)),
                '')


def rst(package: pathlib.Path, daemon: str) -> list[str]:
    """A row for each of a daemon, in reStructuredText."""
    return list_table.rst([('entry point', 'what a caller may do'), *(
        ('``%s.%s``' % (module, name), allows)
        for which, module, name, allows in entry_points(package)
        if which == daemon)], widths='30 70')
