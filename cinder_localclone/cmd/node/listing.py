# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node list``: the nodes, with their free space."""

import argparse
from collections.abc import Iterator
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import copies
from cinder_localclone.service import operator as backends
from cinder_localclone.service import options

COLUMNS = ('Node', 'Service', 'Zone', 'Volumes', 'GiB', 'Free GiB',
           'Copies in', 'Copies out', 'Waiting', 'Moves', 'Remark')
#: A node's description of itself.
Answer: typing.TypeAlias = dict[str, typing.Any]


class List(base.Command):
    """List the nodes of the backend: volumes, free space and moves.

    The exit code is 1 if a node is down, does not answer or can't receive
    volumes.
    """

    example = 'node list'
    nothing = 'The backend has no nodes: start cinder-volume on a node.'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        found = list(nodes(self.app.backend()))
        self.app.exit_code = int(not all(
            fields['ready'] for _row, fields, _answer in found))
        return base.with_fields(
            (COLUMNS, [row for row, _fields, _answer in found]),
            [fields for _row, fields, _answer in found],
            parsed_args.formatter == 'json')


def nodes(backend: backends.Backend, only: str | None = None
          ) -> Iterator[tuple[
              tuple[typing.Any, ...], dict[str, typing.Any], Answer | None]]:
    """Yield the row of each node, its fields for a program, and its answer.

    :param only: the service host of a single node
    """
    alive, db = backend.nodes(), backend.db
    volumes = db.inventory.all_volumes(backend.name)
    moves, _unreadable = db.inventory.all_moves(backend.name)
    entries = db.queue.copies(backend.host)
    positions = copies.positions(entries, options.limits(backend.conf), {
        host for each in entries for host in each.hosts
        if not alive.get(host)}).values()
    for host, up in alive.items():
        if only not in (None, host):
            continue
        own = [row for row in volumes if row.home == host]
        answer, remark = _ask(backend, host, up)
        free = answer and answer['free_space']
        service = db.inventory.service(host)
        into = [each for each in positions if each.entry.destination == host]
        out_of = [each for each in positions if each.entry.source == host]
        told = sum(sources.reporting_node(each.move) == host for each in moves)
        if service and service.disabled:
            remark = '; '.join(filter(None, (
                'disabled: gets no new volumes', remark)))
        yield (
            host, 'up' if up else 'down', service and service.zone,
            len(own), sum(row.size for row in own),
            free and free['volumes'] >> 30,
            sum(each.may_run for each in into),
            sum(each.may_run for each in out_of),
            sum(not each.may_run for each in into), told, remark), {
                'ready': answer is not None and not answer['problems'],
                'up': up,
                'disabled': bool(service and service.disabled),
                'free_bytes': free and free['volumes'],
                'free_metadata_bytes': free and free['metadata']}, answer


def _ask(backend: backends.Backend, host: str, up: bool
         ) -> tuple[Answer | None, str]:
    """Return a node's answer, if it gives one, and its remark."""
    if not up:
        return None, 'its service is down'
    answer: Answer | None
    answer, problem = backend.ask(host, 'describe')
    return answer, (
        problem if answer is None else '; '.join(answer['problems']))
