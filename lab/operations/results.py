# SPDX-License-Identifier: Apache-2.0
"""What was found: kept in a file, shown as a table."""

import dataclasses
import json
import os
import pathlib
import threading

from lab.core import report
from lab.operations import table as tables


@dataclasses.dataclass
class Found:
    """What a cell has shown.

    :param verdict: as in the table; '' if it came to none
    :param reason: why it is not right; '' if it is
    """

    cell: tables.Cell
    verdict: str
    reason: str = ''
    seconds: float = 0
    log: list = dataclasses.field(default_factory=list)


def judged(cell, expected, verdict, reason=''):
    """What a cell has shown, compared with what is expected."""
    if not reason and verdict != expected.verdict:
        reason = 'it was to be "%s"' % expected.verdict
    return Found(cell, verdict, reason)


class Results:
    """All that was found, by earlier runs too.

    :param table: a :class:`.table.Table`
    :param path: of a file; what holds according to it is not run again
    """

    def __init__(self, table, path=None):
        self.table = table
        self.path = pathlib.Path(path) if path else None
        self.found = {}
        self.left = []
        self._lock = threading.Lock()
        if self.path and self.path.exists():
            for each in json.loads(self.path.read_text())['cells']:
                cell = tables.Cell(*each.pop('cell'))
                self.found[cell] = Found(cell, **each)

    def holds(self, cell):
        """Whether a cell has shown what is expected of it."""
        found = self.found.get(cell)
        expected = self.table.expected.get(cell)
        return bool(found and expected and not found.reason
                    and found.verdict == expected.verdict)

    def add(self, found):
        """Keep what a cell has shown."""
        with self._lock:
            self.found[found.cell] = found
            if self.path:
                fresh = self.path.with_suffix('.new')
                fresh.write_text(json.dumps({'cells': [
                    dict(dataclasses.asdict(each), cell=[
                        each.cell.operation, each.cell.situation])
                    for each in self.found.values()]}, indent=1))
                os.replace(fresh, self.path)

    def leaves(self, text):
        """Something was left behind, whichever cell it was."""
        self.left.append(text)

    def failed(self, cells):
        """Of some cells, those that have shown anything but what holds."""
        return [cell for cell in cells
                if cell in self.found and not self.holds(cell)]

    # -- showing

    def _word(self, cell):
        expected = self.table.expected[cell]
        if not expected.is_run:
            return 'n/a'
        found = self.found.get(cell)
        if found is None:
            return '.'
        return found.verdict if self.holds(cell) else 'FAIL ' + (
            found.verdict or '?')

    def text(self, cells):
        """The table, what is wrong, and a sum.

        :param cells: that were asked for
        """
        lines = [report.table(
            ('', *(each.title for each in self.table.situations)),
            [(name, *map(self._word, self.table.row(name)))
             for name in self.table.operations])]
        failed = self.failed(cells)
        for cell in failed:
            found = self.found[cell]
            lines.append(report.entry('FAIL %s: %s' % (cell, found.verdict),
                                      [found.reason], found.log))
        lines += ['', *('LEFT ' + text for text in self.left)]
        lines.append('%d cells: %d hold, %d fail, %d not run' % (
            len(cells), sum(map(self.holds, cells)), len(failed),
            sum(cell not in self.found for cell in cells)))
        return '\n'.join(lines)
