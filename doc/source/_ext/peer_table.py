# SPDX-License-Identifier: Apache-2.0
"""The methods that nodes call on each other, from the code."""

import re
from typing import Any

import list_table


def errors(method: Any) -> list[str]:
    """Return the names of the errors that come back, by the docstring.

    :param method: of ``rpc.METHODS``
    """
    from cinder_localclone.core import encryption_exceptions
    from cinder_localclone.core import exceptions
    documented = re.findall(r':raises (\w+):', method.function.__doc__ or '')
    return list(dict.fromkeys(
        name if hasattr(exceptions, name)
        or hasattr(encryption_exceptions, name) else 'LocalCloneError'
        for name in documented))


def rst(methods: Any) -> list[str]:
    """Return a row for each method, in reStructuredText.

    :param methods: as ``rpc.METHODS``
    """
    rows = [('method', 'arguments', 'sent as', 'time limit', 'acts on',
             'function', 'errors')]
    for name, method in sorted(methods.items()):
        work = 'work' if method.times == 1 else '%d × work' % method.times
        rows.append((
            '``%s``' % name, ', '.join(method.signature.parameters) or '–',
            'call, cast' if method.casts else 'call',
            '%d s' % method.seconds(0) if method.prompt else work,
            method.where, method.origin.removeprefix('cinder_localclone.'),
            ', '.join(errors(method)) or '–'))
    return list_table.rst(rows, widths='14 16 8 8 14 22 18')
