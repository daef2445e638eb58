# SPDX-License-Identifier: Apache-2.0
"""A line for each step: what it was, its seconds, how it went."""

import contextlib
import dataclasses
import time

from lab.demos import show

OK, FAILED, NOT_RUN = 'ok', 'FAILED', 'not run'
_COLOURS = {OK: 'green', FAILED: 'red', NOT_RUN: 'yellow'}
#: Letters of a detail that are shown.
_LETTERS = 600


@dataclasses.dataclass
class Row:
    """One step.

    :param part: the chapter that it is in
    :param detail: what was measured, or why it has failed
    """

    part: str
    what: str
    seconds: float | None = None
    verdict: str = OK
    detail: str = ''

    @property
    def words(self):
        """Its cells, as text."""
        return (self.part, self.what,
                '' if self.seconds is None else '%.1f' % self.seconds,
                self.verdict, self.detail)


class Failed(Exception):
    """A step has failed, which is noted already: no later one has a base."""


class Steps(show.Report):
    """Steps, each with a verdict."""

    def __init__(self, console, title):
        super().__init__(console, title)
        self.part = ''

    @contextlib.contextmanager
    def doing(self, what):
        """A step: what is raised in it is its verdict.

        :returns: its Row, whose detail can be set
        :raises Failed: instead of what was raised
        """
        row = Row(self.part, what)
        self.console.print('[bold]%s[/] ...' % what)
        began = time.monotonic()
        try:
            yield row
        except Exception as exc:
            row.verdict = FAILED
            row.detail = '%s: %s' % (type(exc).__name__, exc)
            raise Failed() from exc
        except BaseException:
            row.verdict, row.detail = FAILED, 'interrupted'
            raise
        finally:
            row.seconds = time.monotonic() - began
            self._add(row)

    def leave_out(self, *steps):
        """Steps that nothing can be said of."""
        for what in steps:
            self.console.print('[bold]%s[/]' % what)
            self._add(Row(self.part, what, verdict=NOT_RUN))

    def step(self, what, seconds, detail=''):
        """Something was done."""
        self._add(Row(self.part, what, seconds, detail=detail))

    def check(self, what, good, detail=''):
        """Something holds, or not."""
        self._add(Row(self.part, what, None, OK if good else FAILED,
                      str(detail)))

    def _add(self, row):
        from rich import markup
        self.rows.append(row)
        self.console.print('  [%s]%s[/] %s%s' % (
            _COLOURS[row.verdict], row.verdict,
            '' if row.seconds is None else '%.1f s ' % row.seconds,
            markup.escape(row.detail[:_LETTERS])))

    @property
    def failed(self):
        """How many steps failed, or could not be run."""
        return sum(row.verdict != OK for row in self.rows)

    def table(self):
        """Print all steps once more, as a table."""
        from rich import markup
        from rich.table import Table
        table = Table(title=self.title)
        for column in ('encrypted', 'step', 's', 'verdict', 'detail'):
            table.add_column(
                column, justify='right' if column == 's' else 'left')
        for row in self.rows:
            part, what, seconds, verdict, detail = row.words
            table.add_row(part, what, seconds, '[%s]%s[/]' % (
                _COLOURS[verdict], verdict), markup.escape(detail[:_LETTERS]))
        self.console.print(table)
