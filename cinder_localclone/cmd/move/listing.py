# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone move list``: the moves, with their progress."""

import argparse
from collections.abc import Callable
import functools
import time
import typing

from oslo_utils import units

from cinder_localclone.cmd import base
from cinder_localclone.cmd import terminal
from cinder_localclone.core import copies
from cinder_localclone.core import inspection
from cinder_localclone.core import state
from cinder_localclone.service import operator as backends

COLUMNS = ('Volume', 'From', 'To', 'Phase', 'Size GiB', 'Percent',
           'MiB/s', 'Seconds left', 'Pace', 'Remark')
#: If a move disappears after one of these phases, its copy was completed.
COPIED = ('migrating', 'completing')
#: The remark if the node in question has a dead service.
DOWN = 'not asked: its service is down'

#: A row of the table, by column.
Row: typing.TypeAlias = dict[str, typing.Any]
#: A node's answer, or None and the reason.
Answer: typing.TypeAlias = tuple[typing.Any, str]
Ask: typing.TypeAlias = Callable[..., Answer]
#: Volume, source and destination of a move.
_Key: typing.TypeAlias = tuple[str, str, str]


def progress(backend: backends.Backend, over: bool = True,
             source: str | None = None) -> list[Row]:
    """Return the rows of the table, as a dictionary for each move.

    The destination of each move is asked for its progress.

    :param over: whether to include ended moves with a pending cleanup
    :param source: only moves from this service host
    """
    return [row for _move, row in with_rows(backend, lambda move: (
        over or not move.is_over) and source in (None, move.source))]


def with_rows(backend: backends.Backend,
              wanted: Callable[[state.Move], bool] = lambda move: True
              ) -> list[tuple[state.Move, Row]]:
    """Return moves with their rows.

    :param wanted: whether to ask for a move and return it
    """
    alive = backend.nodes()

    def ask(host: str, method: str, *arguments: str) -> Answer:
        # A call to a node that is down would wait for its time limit.
        return (backend.ask(host, method, *arguments)
                if alive.get(host, True) else (None, DOWN))
    problems_of = functools.cache(functools.partial(_problems_of, ask))
    return [(each, _row(ask, each, problems_of))
            for each in backend.db.moves.readable_moves() if wanted(each)]


def _row(ask: Ask, move: state.Move, problems_of: Callable[[str], str]
         ) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    row.update(zip(COLUMNS, (
        move.volume_id, move.source, move.destination,
        move.display_phase, move.size_gib)))
    row['Remark'] = ''
    if move.is_over:
        row['Remark'] = '; '.join(filter(None, (
            'cleaning up on ' + move.cleanup_node,
            problems_of(move.cleanup_node))))
    if not move.committed:
        return row
    if move.phase in (state.Phase.COMPLETING, state.Phase.RELEASING):
        row['Percent'] = 100.0
        row['Remark'] = row['Remark'] or problems_of(
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


def _problems_of(ask: Ask, host: str) -> str:
    """Return the problems of a node, because a move waits for this node.

    :returns: texts of the node, or the reason why it does not answer; '' for
        none
    """
    answer, problem = ask(host, 'describe')
    return '; '.join(answer['problems']) if answer else problem


class Bars:
    """A progress bar for each move, on standard error."""

    def __init__(self) -> None:
        from rich import console
        from rich import progress as bars
        self._shown = bars.Progress(
            bars.TextColumn('{task.description}', markup=False),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TextColumn('{task.fields[rest]}', markup=False),
            console=console.Console(stderr=True))
        self._tasks: dict[_Key, typing.Any] = {}
        #: By shown move: whether its disappearance means a complete copy.
        self._complete_if_gone: dict[_Key, bool] = {}

    def __enter__(self) -> 'Bars':
        self._shown.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._shown.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._shown.console.print(
            terminal.printable(text), markup=False, highlight=False,
            soft_wrap=True)

    def show(self, rows: list[Row], deleted: Callable[[str], bool]) -> None:
        """Update all bars.

        :param rows: the result of :func:`progress`. A move missing in it, but
            shown before, has ended
        :param deleted: returns whether a volume is deleted. The deletion ends
            the move of a volume, complete or not
        """
        for row in rows:
            key = row['Volume'], row['From'], row['To']
            if key not in self._tasks:
                self._tasks[key] = self._shown.add_task(
                    terminal.printable('%s %s > %s' % key), total=100, rest='')
            # An unknown percentage keeps its last value.
            known = {} if row['Percent'] is None else {
                'completed': row['Percent']}
            self._shown.update(
                self._tasks[key], rest=terminal.printable('%s  %s' % (
                    row['Phase'], _rest(row))), **known)
            self._complete_if_gone[key] = row['Phase'] in COPIED
        for key in self._complete_if_gone.keys() - {
                (row['Volume'], row['From'], row['To']) for row in rows}:
            complete = self._complete_if_gone.pop(key)
            self._shown.update(self._tasks[key], **(
                {'rest': 'ended'} if not complete
                else {'rest': 'ended: the volume is deleted'}
                if deleted(key[0]) else {'completed': 100, 'rest': 'done'}))


def watch(backend: backends.Backend, seconds: float | None) -> None:
    """Show progress bars on standard error until no volume moves.

    :param seconds: the time limit; 0 to show no bars, None for no limit
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    with Bars() as bars:
        while deadline is None or time.monotonic() < deadline:
            rows = progress(backend, over=False)
            bars.show(rows, functools.partial(is_deleted, backend))
            if not rows:
                return
            time.sleep(1)


def is_deleted(backend: backends.Backend, volume_id: str) -> bool:
    """Return whether a volume has no row any more."""
    return backend.db.volumes.volume(volume_id) is None


def _rest(row: Row) -> str:
    """Return the text after a bar: the remark, or else rate and time."""
    remark: str = row['Remark']
    if remark or not row['MiB/s']:
        return remark
    return '%s MiB/s  %s s left  %s' % (
        row['MiB/s'], row['Seconds left'], row['Pace'] or '')


class List(base.Command):
    """List the moves of volumes, with their progress.

    A volume needs both nodes until its move has left the list: check the list
    before you take a node down.
    """

    example = 'move list --watch'
    nothing = 'No volume is moving.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with --watch and --seconds."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('--watch', action='store_true',
                            help='show progress bars until no volume moves')
        parser.add_argument('--seconds', type=base.seconds, metavar='N',
                            help='with --watch: stop after N seconds; 0 shows '
                            'the table at once')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        if parsed_args.watch:
            watch(backend, parsed_args.seconds)
        return COLUMNS, [tuple(row.values()) for row in progress(backend)]
