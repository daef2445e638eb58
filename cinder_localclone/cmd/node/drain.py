# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node drain``: empty a node before its maintenance."""

import argparse
from collections.abc import Iterator
import functools
import time
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd.move import listing as moves
from cinder_localclone.core import errors
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.service import operator as backends
from cinder_localclone.service import options

if typing.TYPE_CHECKING:
    from cinder_localclone.cmd.node import drain_plan

COLUMNS = ('Volume', 'What', 'Why')
DISABLE = ('openstack volume service set --disable --disable-reason '
           'maintenance %s cinder-volume')
#: Attempts to move a volume to all possible destinations, and seconds between
#: two attempts.
TRIES, PAUSE = 3, 20
#: Seconds for which a copy waits for a node that is down.
DOWN = 600

_Row: typing.TypeAlias = tuple[str, str, str]


class Draining:
    """A run of the command.

    :param to: service host of the destination of all volumes; None for the
        node with most free space
    :param at_once: maximum number of concurrent copies from the node
    """

    def __init__(self, backend: backends.Backend, host: str, to: str | None,
                 at_once: int):
        from cinder_localclone.cmd.node import drain_plan
        self._plans = drain_plan
        self._backend = backend
        self._host = host
        self._to = to
        self._at_once = at_once
        #: Why a volume did not move, by its ID.
        self.failed: dict[str, str] = {}
        #: For volumes to be tried again: the reason, the nodes tried, the
        #: number of attempts, and the time of the next attempt.
        self._reasons: dict[str, str] = {}
        self._tried: dict[str, set[str]] = {}
        self._tries: dict[str, int] = {}
        self._later: dict[str, int] = {}
        #: Seconds since the start; when nodes went down.
        self._now = 0
        self._down: dict[str, int] = {}

    def targets(self) -> 'dict[str, drain_plan.Target]':
        """Return the nodes ready to receive volumes."""
        found = {}
        for host, up in self._backend.nodes().items():
            service = self._backend.db.inventory.service(host)
            if host == self._host or not (
                    up and service and not service.disabled):
                continue
            answer, _problem = self._backend.ask(host, 'describe')
            if answer and not answer['problems']:
                found[host] = self._plans.Target(host, lvm_reports.FreeSpace(
                    **answer['free_space']), service.zone)
        return found

    def plan(self) -> list[_Row]:
        """Return a row for each volume with its destination."""
        targets = self.targets()
        coming = self._plans.bytes_arriving(
            self._backend.db.moves.readable_moves())
        planned = []
        for volume in self._plans.to_move_away(
                self._backend.db, self._host):
            host = self._choose(volume, targets, coming)
            if host:
                coming[host] = coming.get(host, 0) + volume.backing_bytes()
                planned.append((volume.id, 'moves', 'to %s.' % host))
            else:
                self.failed[volume.id] = self._no_space()
        return planned

    def _choose(self, volume: Volume,
                targets: 'dict[str, drain_plan.Target]',
                coming: dict[str, int]) -> str | None:
        return self._plans.choose(
            volume, options.geometry(self._backend.conf), targets, self._to,
            coming)

    def _no_space(self) -> str:
        if self._to:
            return '%s has not enough free space, or is not ready.' % self._to
        return ('no ready and enabled node in its availability zone has '
                'enough free space; to use a node of any zone, pass --to.')

    def run(self, bars: moves.Bars, seconds: float) -> None:
        """Move the volumes away, and wait for the copies.

        :param seconds: the time limit
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look_at_nodes()
            under_way = self._under_way()
            if len(under_way) < self._at_once and self._move_away_one(
                    bars, bool(under_way)):
                continue
            bars.show(moves.progress(self._backend, over=False,
                                     source=self._host),
                      functools.partial(moves.is_deleted, self._backend))
            if not under_way and not self._waiting():
                return
            time.sleep(1)
            self._now += 1

    def _look_at_nodes(self) -> None:
        """Update the times since which nodes are down."""
        self._down = {host: self._down.get(host, self._now)
                      for host, up in self._backend.nodes().items() if not up}

    def _under_way(self) -> list[state.Move]:
        """Return the running copies, without those waiting for a node."""
        if self._host in self._down:
            return []
        return [move for move in self._backend.db.moves.moves_of(self._host)
                if move.source == self._host and not move.is_over
                and move.phase is not state.Phase.STARTING
                and move.destination not in self._down]

    def _waiting(self) -> bool:
        """Return whether copies or retries remain without an operator."""
        db = self._backend.db
        return any(held.what in self._plans.PASSING
                   and not self._is_lost(held.waits_for, self._host)
                   for held in self._holders()) or (
            any(volume.id in self._later for volume in
                self._plans.to_move_away(db, self._host)))

    def _holders(self) -> 'Iterator[drain_plan.Held]':
        return self._plans.all_held(
            self._backend.db, self._host, self._to_wipe()[0])

    def _to_wipe(self) -> tuple[int, str]:
        """Return the bytes of LVs to be wiped, and why they are unknown.

        A node that is down is not asked, because the call would wait for its
        time limit.
        """
        if self._host in self._down:
            return 0, '%s is down.' % self._host
        answer, problem = self._backend.ask(self._host, 'describe')
        to_wipe = answer['to_wipe'] if answer else None
        if to_wipe is None and not problem:  # LVM fails there
            problem = 'its volume service does not know.'
        return to_wipe or 0, problem

    def _is_lost(self, *hosts: str) -> bool:
        """Return whether a node is down for longer than :data:`DOWN`."""
        return any(self._now - self._down.get(host, self._now) >= DOWN
                   for host in hosts)

    def _move_away_one(self, bars: moves.Bars, others: bool) -> bool:
        """Start the next move; return whether a move was tried.

        :param others: whether copies are running, which will free space
        """
        todo = [volume for volume in self._plans.to_move_away(
            self._backend.db, self._host)
            if volume.id not in self.failed
            and self._later.get(volume.id, 0) <= self._now]
        if not todo:
            return False
        targets = self.targets()
        coming = self._plans.bytes_arriving(
            self._backend.db.moves.readable_moves())
        for volume in todo:
            tried = self._tried.get(volume.id, ())
            host = self._choose(volume, {
                host: target for host, target in targets.items()
                if host not in tried}, coming)
            if host:
                self._move_away(bars, volume.id, host)
                return True
            if tried:
                self._postpone(volume.id)
            elif not others:
                self.failed[volume.id] = self._reasons.get(
                    volume.id, self._no_space())
        return False

    def _move_away(self, bars: moves.Bars, volume_id: str, host: str) -> None:
        self._later.pop(volume_id, None)
        _answer, problem = self._backend.ask(
            self._host, 'move_away', volume_id, host)
        if problem:
            self._reasons[volume_id] = problem
            self._tried.setdefault(volume_id, set()).add(host)
        bars.say('%s %s' % (volume_id, problem or 'moves to %s' % host))

    def _postpone(self, volume_id: str) -> None:
        """Try a volume again later, after no node accepted it."""
        tries = self._tries[volume_id] = self._tries.get(volume_id, 0) + 1
        del self._tried[volume_id]
        if tries < TRIES:
            self._later[volume_id] = self._now + PAUSE
        else:
            self.failed[volume_id] = self._reasons[volume_id]

    def left(self) -> list[_Row]:
        """Return a row for everything left on the node."""
        plans, db = self._plans, self._backend.db
        self._look_at_nodes()
        to_wipe, unknown = self._to_wipe()
        found = [(held.volume_id, held.what, self._why_held(held))
                 for held in plans.all_held(db, self._host, to_wipe)] + [
            (volume.id, 'failed' if volume.id in self.failed
             else 'not moved', self._why_not(volume.id))
            for volume in plans.to_move_away(db, self._host)]
        if unknown and not found:
            found.append(('', 'not known', 'LVs may have to be wiped: '
                          + unknown))
        return found

    def _why_held(self, held: 'drain_plan.Held') -> str:
        down = {held.waits_for, self._host} & self._down.keys()
        if held.what not in self._plans.PASSING or not down:
            return held.why
        return ' '.join((held.why, *(
            '%s is down: start it; if it will never come back, see '
            '"cinder-localclone node forget".' % host
            for host in sorted(down))))

    def _why_not(self, volume_id: str) -> str:
        return self.failed.get(volume_id) or ' '.join(filter(None, (
            self._reasons.get(volume_id),
            'the time limit was reached; run the command again.')))


class Drain(base.Command):
    """Move all detached volumes away from a node.

    Disable the volume service of the node first, and migrate its servers. A
    volume has its new home at once, and can be attached during the copy. If a
    node refuses a volume, the command tries other nodes, and tries again
    later. If a node is down, the command waits ten minutes for its copies, and
    continues with others meanwhile. The progress is in Cinder's database: the
    command can be interrupted, or run again on any node, at any time. The exit
    code is 1 while anything remains on the node.
    """

    example = 'node drain node1@localclone --dry-run'
    changes = 'the homes of the volumes'
    nothing = 'The node is empty.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the node and the destination."""
        parser = base.with_service(super().get_parser(prog_name))
        parser.add_argument(
            '--to', metavar='NODE', help='destination of all volumes, in any '
            'availability zone; default: for each volume the node with most '
            'free space in its zone')
        parser.add_argument(
            '--dry-run', action='store_true',
            help='only show the planned moves and the remaining volumes')
        parser.add_argument(
            '--at-once', type=base.number(1, 1000, int), default=2,
            metavar='N',
            help='maximum number of concurrent copies from the node, which '
            'share its disks and its link; default: 2')
        parser.add_argument(
            '--seconds', type=base.seconds, default=86400, metavar='N',
            help='wait for at most N seconds, then list the copies that '
            'continue; default: a day')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        self._check(backend, parsed_args)
        work = Draining(backend, parsed_args.node, parsed_args.to,
                        parsed_args.at_once)
        if parsed_args.dry_run:
            planned = work.plan()
            going = {row[0] for row in planned}
            rows = [row for row in work.left() if row[0] not in going]
            self.app.exit_code = int(bool(rows))
            return COLUMNS, planned + rows
        with moves.Bars() as bars:
            work.run(bars, parsed_args.seconds)
        rows = work.left()
        self.app.exit_code = int(bool(rows))
        return COLUMNS, rows

    @staticmethod
    def _check(backend: backends.Backend, parsed_args: argparse.Namespace
               ) -> None:
        host, to = parsed_args.node, parsed_args.to
        nodes = backend.nodes()
        for each in filter(None, (host, to)):
            if each not in nodes:
                raise errors.CommandError(
                    '%s is not a node of the backend %s; "cinder-localclone '
                    'node list" lists the nodes. Nothing was changed.' % (
                        each, backend.name))
        if not _is_disabled(backend, host):
            raise errors.CommandError(
                'The volume service %s is not disabled: Cinder would place '
                'new volumes there. Nothing was changed. Run "%s" first.' % (
                    host, DISABLE % host))
        if not nodes[host]:
            raise errors.CommandError(
                'The volume service %s is down, so no volume can move away. '
                'Nothing was changed. Start the service; if the node will '
                'never come back, see "cinder-localclone node '
                'forget".' % host)
        if to and (to == host or not nodes[to] or _is_disabled(backend, to)):
            raise errors.CommandError(
                '%s can\'t receive volumes: it is %s. Nothing was changed.' % (
                    to, 'the drained node' if to == host
                    else 'disabled' if nodes[to] else 'down'))


def _is_disabled(backend: backends.Backend, host: str) -> bool:
    service = backend.db.inventory.service(host)
    return bool(service and service.disabled)
