# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node check``: ask nodes for their problems."""

import argparse
from collections.abc import Iterator
import dataclasses
import time

from cinder_localclone.cmd import base
from cinder_localclone.cmd.doctor import checks
from cinder_localclone.core import inspection
from cinder_localclone.service import operator as backends


class Check(base.Command):
    """Check a node, or all nodes: readiness, clock, devices of its volumes.

    The volume services answer, so the command runs on any node of the backend.
    "doctor" checks the prerequisites of its own node instead. The exit code is
    1 if there is a FAIL.
    """

    example = 'node check node1'
    nothing = 'The backend has no nodes: start cinder-volume on a node.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the node."""
        return base.with_node(super().get_parser(prog_name), all_nodes=True)

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        alive = backend.nodes()
        hosts = list(alive) if parsed_args.node is None else [
            base.node(backend, parsed_args.node)]
        findings = [each for host in hosts
                    for each in _node(backend, host, alive[host])]
        self.app.exit_code = int(any(each.verdict == checks.FAIL
                                     for each in findings))
        return ('Check', 'Verdict', 'Details', 'Fix'), [
            dataclasses.astuple(each) for each in findings]


def _node(backend: backends.Backend, host: str, alive: bool
          ) -> Iterator[checks.Finding]:
    """Yield the findings of a node; its devices only if it answers."""
    before, answer, problem = time.time(), None, ''
    if alive:
        answer, problem = backend.ask(host, 'describe')
    yield from checks.peer(host, alive, answer, problem, before, time.time())
    if answer is None:
        return
    yield from checks.troubles(host, *backend.ask(host, 'troubles'))
    different, volumes = False, backend.db.volumes.volumes_of(host)
    for volume in volumes:
        for text in _differences(backend, host, volume.id):
            different = True
            yield checks.Finding(
                'volume ' + volume.id, checks.FAIL, text,
                'cinder-localclone volume repair ' + volume.id)
    if not different:
        yield checks.Finding('volumes of ' + host, checks.OK,
                             '%d, as in the records' % len(volumes))


def _differences(backend: backends.Backend, host: str, volume_id: str
                 ) -> list[str]:
    """Return the differences of a volume's devices from the records."""
    volume, move = backend.volume(volume_id)
    answer, problem = backend.ask(host, 'inspect', volume_id)
    if answer is None:
        return [problem]
    return inspection.differences(
        answer, move, backends.home_of(volume), backends.lv_of(volume),
        backend.db.moves.pending_cleanups(volume_id),
        backend.db.snapshots.snapshots_of(volume_id))
