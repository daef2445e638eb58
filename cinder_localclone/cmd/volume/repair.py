# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone volume repair``: take the next safe steps."""

import argparse
from collections.abc import Iterable

from cinder_localclone.cmd import base
from cinder_localclone.core import errors
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.service import operator as backends


class Repair(base.VolumeCommand):
    """Take the next safe steps for a volume, or for all volumes.

    The volume services take the same steps periodically, so the command is
    safe at any time. Nodes whose service is down are listed, but not asked.
    The exit code is 1 if a step is blocked or, with --dry-run, if a difference
    is found.
    """

    example = 'volume repair --dry-run data'
    changes = 'records and devices, as the services do'
    nothing = 'There is nothing to do.'
    without_volume = 'all volumes'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with --dry-run and --without-source, too."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('--dry-run', action='store_true',
                            help='only show differences from the records')
        parser.add_argument(
            '--without-source', action='store_true',
            help='after the loss of the source during the copy, and a restart '
            'of the home: create the handle, to save the local regions; all '
            'other reads fail. Refused while the source answers. If the '
            'source returns, the copy continues')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        one, dry_run = parsed_args.volume, parsed_args.dry_run
        if parsed_args.without_source:
            return ('Volume', 'Where', 'What'), [
                self._without_source(backend, one, dry_run)]
        alive = {} if one else backend.nodes()
        rows, clean = [], True
        for volume_id in [one] if one else self._all(backend, alive):
            volume, move = backend.volume(volume_id)
            pending = backend.db.moves.pending_cleanups(volume_id)
            for host in backends.hosts_of(volume, move, pending):
                if one or alive.get(host):
                    said, complete = self._on_node(
                        backend, host, volume_id, volume, move, pending,
                        dry_run)
                else:
                    said, complete = ['not asked: its service is down'], False
                rows += [(volume_id, host, text) for text in said]
                clean = clean and complete
        self.app.exit_code = int(not clean)
        return ('Volume', 'Where', 'What'), rows

    @staticmethod
    def _without_source(backend: backends.Backend, volume_id: str | None,
                        dry_run: bool) -> tuple[str, str, str]:
        """Make the local data of a volume readable on its destination."""
        if not volume_id or dry_run:
            raise errors.CommandError(
                '--without-source needs a volume, and can\'t be combined with '
                '--dry-run. Nothing was changed.')
        move = base.move_of(backend, volume_id)
        backend.call(move.destination, 'open_without_source', volume_id)
        return (volume_id, move.destination, 'local data can be read; reads '
                'of the rest fail')

    @staticmethod
    def _all(backend: backends.Backend, hosts: Iterable[str]
             ) -> list[str]:
        # Pending cleanups of deleted volumes are found by their move records.
        volumes = {each.volume_id for each in backend.db.moves.readable_moves()
                   if names.same_backend(each.source, backend.host)}
        for host in hosts:
            volumes |= {each.id for each in
                        backend.db.volumes.volumes_of(host)}
        return sorted(volumes)

    @staticmethod
    def _on_node(backend: backends.Backend, host: str, volume_id: str,
                 volume: Volume | None, move: state.Move | None,
                 pending: list[state.Move], dry_run: bool
                 ) -> tuple[list[str], bool]:
        """Return the steps or differences of a node, and if it is clean."""
        answer, problem = backend.ask(
            host, 'inspect' if dry_run else 'repair', volume_id)
        if answer is None:
            return [problem], False
        if not dry_run:
            return answer, not any(
                text.startswith(inspection.IN_THE_WAY) for text in answer)
        wrong = inspection.differences(
            answer, move, backends.home_of(volume), backends.lv_of(volume),
            pending)
        return ['differs: ' + each for each in wrong], not wrong
