# SPDX-License-Identifier: Apache-2.0
"""What the commands of the lab print: steps, checks, tables, failures.

:func:`table` lays out the rows of any table, :func:`entry` prints one finding
with what explains it: text only, for every command. :class:`Report` notes the
steps and checks of one run as they happen and prints them once more at the
end; its colours and progress bars are those of rich, which the venv of the
lab has.
"""

import contextlib
import dataclasses
import textwrap
import time

from lab.core import observe

OK, FAILED, NOT_RUN = 'ok', 'FAILED', 'not run'
_COLOURS = {'': 'default', OK: 'green', FAILED: 'red', NOT_RUN: 'yellow'}
#: Letters of a line, and of the detail of a step or check.
WIDTH, LETTERS = 120, 600


def table(heading, rows, right=(), width=0) -> str:
    """Lay out rows in columns.

    :param heading: the titles of the columns
    :param rows: of texts, one for each column
    :param right: the titles of the columns that are aligned at the right
    :param width: letters of a line: the last column is wrapped there; 0: never
    """
    return '\n'.join(_lines(heading, rows, right, width))


def _lines(heading, rows, right=(), width=0):
    """The heading and each row of a table, the wrapped ones of several lines.
    """
    rows = [[str(word) for word in row] for row in (heading, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    for row in rows:
        *words, last = row
        parts = textwrap.wrap(last, max(width - before, 20)) if width else (
            last.splitlines())
        first, *more = parts or ['']
        line = '  '.join(
            word.rjust(size) if title in right else word.ljust(size)
            for title, word, size in zip(heading, (*words, first), widths))
        yield '\n'.join(each.rstrip() for each in (
            line, *(' ' * before + each for each in more)))


def entry(title, reasons=(), log=()) -> str:
    """A finding: an empty line, its title, the reasons and lines of a log."""
    return '\n'.join(['', title, *('    ' + each for each in reasons),
                      *('    | ' + line for line in log)])


@dataclasses.dataclass
class Row:
    """A step or a check.

    :param part: of the run, if it has parts
    :param seconds: that the step took; None: it is a check
    :param verdict: OK, FAILED or NOT_RUN; '': nothing was checked
    :param detail: what was measured, or why it has failed
    """

    part: str
    what: str
    seconds: float | None = None
    verdict: str = ''
    detail: str = ''

    @property
    def words(self):
        """Its cells, as text."""
        return (self.part, self.what,
                '' if self.seconds is None else '%.1f' % self.seconds,
                self.verdict, self.detail[:LETTERS])


class Failed(Exception):
    """A step has failed, which is noted already; later ones have no base."""


class Report:
    """The steps of one run with their seconds, its checks with verdicts.

    :param console: of rich
    """

    def __init__(self, console, title):
        self.console = console
        self.title = title
        #: The part of the run that rows are noted for.
        self.part = ''
        self.rows = []

    # -- what happens

    def step(self, what, seconds, detail=''):
        """Note that something was done."""
        self._add(Row(self.part, what, seconds, '', str(detail)))

    def check(self, what, good, detail=''):
        """Note that something holds, or not."""
        self._add(Row(self.part, what, None, OK if good else FAILED,
                      str(detail or '')))

    @contextlib.contextmanager
    def doing(self, what):
        """Note a step that holds unless something is raised in it.

        :returns: its Row, whose detail can be set
        :raises Failed: instead of what was raised
        """
        row = Row(self.part, what, verdict=OK)
        self.say(what + ' ...', 'bold')
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
        """Note steps that were not run."""
        for what in steps:
            self._add(Row(self.part, what, verdict=NOT_RUN))

    def _add(self, row):
        self.rows.append(row)
        _part, what, seconds, verdict, detail = row.words
        self.say('  '.join(filter(None, (
            '%-7s' % verdict, what, seconds and seconds + ' s', detail))),
            _COLOURS[verdict])

    def say(self, text, style=None):
        """Print a line, whatever it has in brackets."""
        self.console.print(text, style=style, markup=False, highlight=False)

    def watch_copies(self, node, seconds):
        """Show the progress until nothing is copied to a node any more.

        :param seconds: to wait at most
        :returns: how fast that was, in words
        """
        from rich import progress as bars
        began = last = time.monotonic()
        tasks, copied = {}, {}
        with bars.Progress(
                bars.TextColumn('        copying to ' + node.name),
                bars.BarColumn(), bars.TaskProgressColumn(),
                bars.TransferSpeedColumn(), bars.TimeRemainingColumn(),
                console=self.console) as bar:
            while time.monotonic() - began < seconds:
                clones = observe.clones(node)
                if not clones:
                    break
                for name, (hydrated, regions, size) in clones.items():
                    if name not in tasks:
                        tasks[name] = bar.add_task(name)
                        copied[name] = [hydrated * size, 0]
                    copied[name][1] = hydrated * size
                    bar.update(tasks[name], completed=hydrated * size,
                               total=regions * size)
                last = time.monotonic()
                time.sleep(1)
        if not copied:
            return 'copied before it could be watched'
        moved = sum(end - start for start, end in copied.values())
        return '%.0f MiB/s' % (moved / 2**20 / max(1, last - began))

    # -- what has happened

    @property
    def failed(self):
        """How many steps and checks failed, or could not be run."""
        return sum(row.verdict in (FAILED, NOT_RUN) for row in self.rows)

    def show(self):
        """Print all steps and checks once more, as a table."""
        first = 0 if any(row.part for row in self.rows) else 1
        heading = ('part', 'step or check', 's', 'verdict', 'detail')[first:]
        lines = _lines(heading, [row.words[first:] for row in self.rows],
                       ('s',), WIDTH)
        self.say('\n%s\n%s' % (self.title, '=' * len(self.title)), 'bold')
        for line, row in zip(lines, (None, *self.rows)):
            self.say(line, _COLOURS[row.verdict] if row else 'bold')
