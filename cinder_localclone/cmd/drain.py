# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone drain``: empty a node before its maintenance."""

import argparse
import time
import typing

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base
from cinder_localclone.cmd import moves
from cinder_localclone.lvm import reports
from cinder_localclone import opts
from cinder_localclone import state

if typing.TYPE_CHECKING:
    from cinder_localclone import draining

COLUMNS = ('Volume', 'What', 'Why')
DISABLE = ('openstack volume service set --disable --disable-reason '
           'maintenance %s cinder-volume')


class Draining:
    """One run of the command.

    :param to: service host that all volumes go to; None: each to the node
        with most room
    :param at_once: copies from the node at one time, at most
    """

    def __init__(self, backend: backends.Backend, host: str, to: str | None,
                 at_once: int):
        from cinder_localclone import draining
        self._rooms = draining
        self._backend = backend
        self._host = host
        self._to = to
        self._at_once = at_once
        #: Why a volume did not depart, by its id.
        self.failed: dict[str, str] = {}

    def targets(self) -> 'dict[str, draining.Target]':
        """The nodes that can take volumes now."""
        found = {}
        for host, up in self._backend.nodes().items():
            service = self._backend.records.service(host)
            if host == self._host or not (
                    up and service and not service.disabled):
                continue
            answer, _problem = self._backend.ask(host, 'describe')
            if answer and not answer['problems']:
                found[host] = self._rooms.Target(
                    host, reports.FreeSpace(**answer['room']), service.zone)
        return found

    def plan(self) -> list[tuple]:
        """Where each volume would go."""
        targets = self.targets()
        coming = self._rooms.arriving(self._backend.records.moves())
        planned = []
        for volume in self._rooms.departing(
                self._backend.records, self._host):
            host = self._choose(volume, targets, coming)
            if host:
                coming[host] = coming.get(host, 0) + (volume.size << 30)
                planned.append((volume.id, 'departs', 'to %s.' % host))
            else:
                self.failed[volume.id] = self._no_room()
        return planned

    def _choose(self, volume, targets, coming):
        return self._rooms.choose(
            volume, opts.geometry(self._backend.conf), targets, self._to,
            coming)

    def _no_room(self):
        if self._to:
            return '%s has no room for it, or is not ready.' % self._to
        return ('no node that is up, enabled and ready has room for it in '
                'its availability zone; --to chooses one in any.')

    def run(self, bars: moves.Bars, seconds: float) -> None:
        """Have the volumes depart, and wait for the copies.

        :param seconds: for at most as long
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            under_way = self._under_way()
            if len(under_way) < self._at_once and self._depart_one(
                    bars, bool(under_way)):
                continue
            bars.show(moves.progress(self._backend, over=False,
                                     source=self._host))
            if not under_way and not self._waiting():
                return
            time.sleep(1)

    def _under_way(self):
        """The copies, but for what waits for a live migration."""
        return [move for move in self._backend.records.moves_of(self._host)
                if move.source == self._host and not move.is_over
                and move.phase is not state.Phase.STARTING]

    def _waiting(self):
        """Whether something goes on, or can be tried, without anybody."""
        return any(held.what in self._rooms.PASSING
                   for held in self._rooms.holders(
                       self._backend.records, self._host))

    def _depart_one(self, bars, others):
        """Have the next volume depart; whether anything was tried.

        :param others: whether copies are under way, which make room
        """
        todo = [volume for volume in self._rooms.departing(
            self._backend.records, self._host)
            if volume.id not in self.failed]
        if not todo:
            return False
        targets = self.targets()
        coming = self._rooms.arriving(self._backend.records.moves())
        for volume in todo:
            host = self._choose(volume, targets, coming)
            if host:
                self._depart(bars, volume.id, host)
                return True
        if not others:
            for volume in todo:
                self.failed[volume.id] = self._no_room()
        return False

    def _depart(self, bars, volume_id, host):
        _answer, problem = self._backend.ask(
            self._host, 'depart', volume_id, host)
        if problem:
            self.failed[volume_id] = problem
        bars.say('%s %s' % (volume_id, problem or 'departs to %s' % host))

    def left(self) -> list[tuple]:
        """What holds the node back now."""
        rooms, records = self._rooms, self._backend.records
        return [(held.volume_id, held.what, held.why)
                for held in rooms.holders(records, self._host)] + [
            (volume.id, 'failed' if volume.id in self.failed
             else 'not departed', self.failed.get(volume.id, (
                 'there was no time; run it again.')))
            for volume in rooms.departing(records, self._host)]


class Drain(base.Command):
    """Have all volumes that nobody has attached leave a node.

    Refused unless the node's volume service is disabled. What was begun is
    in Cinder's database: interrupt it, or run it again, at any time. The
    exit code is 1 as long as something holds the node back.
    """

    nothing = 'Nothing holds the node back.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the node and where its volumes may go."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'node', metavar='NODE',
            help='its volume service, as "doctor" lists it: host@backend')
        parser.add_argument(
            '--to', metavar='NODE', help='where all volumes go; default: '
            'each to the node with most room in its availability zone')
        parser.add_argument(
            '--dry-run', action='store_true',
            help='only say what would depart, and what holds the node back')
        parser.add_argument(
            '--at-once', type=int, default=2, metavar='N',
            help='copies from the node at one time, at most; default: 2')
        parser.add_argument(
            '--seconds', type=float, default=86400, metavar='N',
            help='wait for at most N seconds; default: a day')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        self._check(backend, parsed_args)
        work = Draining(backend, parsed_args.node, parsed_args.to,
                        max(1, parsed_args.at_once))
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
                raise base.CommandError(
                    '%s is no node of the backend %s; "cinder-localclone '
                    'doctor" lists them. Nothing was changed.' % (
                        each, backend.name))
        if not _is_disabled(backend, host):
            raise base.CommandError(
                'The volume service %s is not disabled: new volumes would '
                'be put there. Nothing was changed. Run "%s" first.' % (
                    host, DISABLE % host))
        if not nodes[host]:
            raise base.CommandError(
                'The volume service %s is down, so nothing can depart. Start '
                'it; if it will never come back, see "cinder-localclone '
                'forget". Nothing was changed.' % host)
        if to and (to == host or not nodes[to] or _is_disabled(backend, to)):
            raise base.CommandError(
                '%s can take no volumes: it is %s. Nothing was changed.' % (
                    to, 'the node that is drained' if to == host
                    else 'disabled' if nodes[to] else 'down'))


def _is_disabled(backend, host):
    service = backend.records.service(host)
    return bool(service and service.disabled)
