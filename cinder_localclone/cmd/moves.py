# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone moves``: which volumes move, and how far they are."""

import argparse
from collections.abc import Callable
import functools
import time

from oslo_utils import units

from cinder_localclone.cmd import base
from cinder_localclone.core import copies
from cinder_localclone.core import inspection
from cinder_localclone.core import state
from cinder_localclone.service import operator as backends

COLUMNS = ('Volume', 'From', 'To', 'Phase', 'Size GiB', 'Percent',
           'MiB/s', 'Seconds left', 'Pace', 'Remark')
#: Phases after which a move that has ended was complete.
COPIED = ('migrating', 'completing')
#: What is said of a node that is not asked.
DOWN = 'not asked: its service is down'


def progress(backend: backends.Backend, over: bool = True,
             source: str | None = None) -> list[dict]:
    """One dictionary for each move, as it is at this moment.

    :param over: those, too, that are over but for a clean-up
    :param source: only those from there
    """
    alive = backend.nodes()

    def ask(host: str, method: str, *arguments: str) -> tuple:
        # A node that is down takes its time to say nothing.
        return (backend.ask(host, method, *arguments)
                if alive.get(host, True) else (None, DOWN))
    obstacles = functools.cache(functools.partial(_obstacles, ask))
    return [_row(ask, each, obstacles) for each in backend.db.moves.readable()
            if (over or not each.is_over) and source in (None, each.source)]


def _row(ask, move, obstacles: Callable[[str], str]):
    row = dict.fromkeys(COLUMNS)
    row.update(zip(COLUMNS, (
        move.volume_id, move.source, move.destination,
        move.display_phase, move.size_gib)))
    row['Remark'] = ''
    if move.is_over:
        row['Remark'] = '; '.join(filter(None, (
            'cleaning up on ' + move.cleanup_node,
            obstacles(move.cleanup_node))))
    if not move.committed or not move.destination:
        return row
    if move.phase in (state.Phase.COMPLETING, state.Phase.RELEASING):
        row['Percent'] = 100.0
        row['Remark'] = row['Remark'] or obstacles(
            move.destination if move.phase is state.Phase.COMPLETING
            else move.source)
        return row
    answer, problem = ask(move.destination, 'inspect', move.volume_id)
    clone = (answer or {}).get('clone')
    if not clone:
        row['Remark'] = problem or 'the destination has no clone'
        return row
    row['Percent'] = round(
        100.0 * clone['hydrated'] / max(1, clone['regions']), 1)
    seen = answer['progress']
    if seen and seen['rate']:
        row['MiB/s'] = round(seen['rate'] / units.Mi, 1)
        row['Seconds left'] = round(seen['seconds_left'])
    if seen and seen['pace']:
        row['Pace'] = copies.speed_in_words(seen['pace'])
    if move.phase is state.Phase.STARTING:
        row['Remark'] = 'copying waits for the source to be detached'
    elif clone['mode'] != 'rw':
        row['Remark'] = 'the clone is in mode ' + clone['mode']
    elif inspection.position(answer):
        row['Remark'] = copies.position_in_words(inspection.position(answer))
    elif seen and seen['pause']:
        row['Remark'] = 'copying fails; see the log of the destination'
    return row


def _obstacles(ask, host):
    """What keeps a node from removing what a move has left there."""
    answer, problem = ask(host, 'describe')
    return '; '.join(answer['problems']) if answer else problem


class Bars:
    """A progress bar for each move, on standard error."""

    def __init__(self) -> None:
        from rich import console
        from rich import progress as bars
        self._shown = bars.Progress(
            bars.TextColumn('{task.description}'), bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TextColumn('{task.fields[rest]}'),
            console=console.Console(stderr=True))
        self._tasks: dict = {}
        #: Whether those that are shown will be copied, as far as one knows.
        self._copied: dict = {}

    def __enter__(self) -> 'Bars':
        self._shown.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._shown.stop()

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._shown.console.print(text, highlight=False, soft_wrap=True)

    def show(self, rows: list[dict]) -> None:
        """What :func:`progress` gives; what is gone from it has ended."""
        for row in rows:
            key = row['Volume'], row['From'], row['To']
            if key not in self._tasks:
                self._tasks[key] = self._shown.add_task(
                    '%s %s > %s' % key, total=100, rest='')
            # What is unknown now is no less than it was.
            known = {} if row['Percent'] is None else {
                'completed': row['Percent']}
            self._shown.update(
                self._tasks[key], rest='%s  %s' % (
                    row['Phase'], _rest(row)), **known)
            self._copied[key] = row['Phase'] in COPIED
        for key in self._copied.keys() - {
                (row['Volume'], row['From'], row['To']) for row in rows}:
            self._shown.update(self._tasks[key], **(
                {'completed': 100, 'rest': 'done'} if self._copied.pop(key)
                else {'rest': 'ended'}))


def watch(backend: backends.Backend, seconds: float | None) -> None:
    """Show progress bars on standard error until nothing moves.

    :param seconds: for at most as long
    """
    deadline = time.monotonic() + seconds if seconds else None
    with Bars() as bars:
        while deadline is None or time.monotonic() < deadline:
            rows = progress(backend, over=False)
            bars.show(rows)
            if not rows:
                return
            time.sleep(1)


def _rest(row):
    if row['Remark'] or not row['MiB/s']:
        return row['Remark']
    return '%s MiB/s  %s s left  %s' % (
        row['MiB/s'], row['Seconds left'], row['Pace'] or '')


class Moves(base.Command):
    """List the volumes that are moving, with their progress."""

    nothing = 'No volume is moving.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with what it takes to watch."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--watch', action='store_true',
                            help='show progress bars until nothing moves')
        parser.add_argument('--seconds', type=float, metavar='N',
                            help='with --watch: for at most N seconds')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        if parsed_args.watch:
            watch(backend, parsed_args.seconds)
        return COLUMNS, [tuple(row.values()) for row in progress(backend)]
