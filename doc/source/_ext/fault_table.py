# SPDX-License-Identifier: Apache-2.0
"""The fault matrix as reStructuredText, from what ``make faults`` kept."""

import collections
from collections.abc import Iterable
from typing import Any

import list_table

#: Operation, fault; cells, run, hold, seconds, not reached, hold now and have
#: failed before.
Row = tuple[str, str, int, int, int, int, int, int]


def _verdict(cells: int, run: int, hold: int, unreached: int,
             before: int) -> str:
    words = []
    if run > hold + unreached:
        words.append('%d **fail**' % (run - hold - unreached))
    if unreached:
        words.append('%d not reached' % unreached)
    if cells > run:
        words.append('%d not run' % (cells - run))
    if not words:
        words.append('holds' if cells == 1 else 'all hold')
    if before:
        words.append('%d failed before' % before)
    return ', '.join(words)


def _of_run(run: dict[str, Any]) -> str:
    return ('Commit ``%s``, nodes with Linux %s, %s, begun %s UTC, %d '
            'minutes.' % (run['commit'], run['kernel'],
                          'one lab' if run['labs'] == 1 else
                          '%d labs side by side' % run['labs'],
                          run['began'], round(run['seconds'] / 60)))


def rst(summary: dict[str, Any]) -> list[str]:
    """What was run, when and where; then a row for operation and fault.

    :param summary: as ``lab.faults.results.Results`` keeps it
    """
    rows: list[Row] = summary['rows']
    totals = [sum(row[column] for row in rows) for column in (2, 3, 4, 7, 6)]
    lines = ['%d cells; %d run, %d hold, of which %d have failed before; %d '
             'not reached: their step did not occur.' % tuple(totals), '']
    for number in summary['named']:
        lines += [_of_run(summary['runs'][number]), '']
    return lines + list_table.rst([
        ('Operation', 'Fault', 'Cells', 'Verdict', 'Seconds a cell'),
        *((operation, fault, str(cells),
           _verdict(cells, run, hold, unreached, before),
           '%.0f' % (seconds / run) if run else '')
          for operation, faults in _by_operation(rows).items()
          for (_operation, fault, cells, run, hold, seconds, unreached,
               before) in faults)], widths='20 45 8 15 12')


def _by_operation(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_operation: dict[str, list[Row]] = collections.OrderedDict()
    for row in rows:
        by_operation.setdefault(row[0], []).append(row)
    return by_operation
