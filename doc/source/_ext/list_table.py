# SPDX-License-Identifier: Apache-2.0
"""Tables in reStructuredText, which the pages of this folder have made."""

from collections.abc import Iterable


def rst(rows: Iterable[Iterable[str]], title: str = '', widths: str = '',
        stub: bool = False) -> list[str]:
    """A table whose first row is its header.

    :param widths: of its columns, in words of docutils
    :param stub: whether the first column is a header, too
    """
    lines = ['.. list-table:: ' + title if title else '.. list-table::',
             '   :header-rows: 1']
    if stub:
        lines.append('   :stub-columns: 1')
    if widths:
        lines.append('   :widths: ' + widths)
    lines.append('')
    for row in rows:
        lines += ['   %s - %s' % ('*' if not index else ' ', cell)
                  for index, cell in enumerate(row)]
    return [*lines, '']
