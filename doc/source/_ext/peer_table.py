# SPDX-License-Identifier: Apache-2.0
"""Which version of the calls between nodes brought what, from the code."""

from typing import Any

import list_table


def rst(methods: Any, version: str) -> list[str]:
    """A row for each version, in reStructuredText.

    :param methods: as ``rpc.METHODS``
    :param version: the newest, ``rpc.VERSION``
    """
    rows = [('since', 'calls')]
    for since in sorted({each.since for each in methods.values()} | {version}):
        calls = sorted({each.name for each in methods.values()
                        if each.since == since})
        rows.append((since, ', '.join('``%s``' % name for name in calls)))
    return list_table.rst(rows, widths='12 88')
