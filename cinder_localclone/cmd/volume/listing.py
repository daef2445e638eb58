# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone volume list``: the volumes and their nodes."""

import argparse

from oslo_utils import units

from cinder_localclone.cmd import base
from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core.volume import Row

COLUMNS = ('Volume', 'Name', 'Node', 'Status', 'GiB', 'Attached on',
           'Encrypted by', 'Move')


class List(base.Command):
    """List the volumes of the backend, or of a node.

    The command reads only Cinder's database. A moving volume belongs to its
    destination from the commit on.
    """

    example = 'volume list --node node1'
    nothing = 'There are no volumes.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the node."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--node', metavar='NODE',
            help='show only the volumes of this node, by its service '
                 '(host@backend) or its host name')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        only = base.node(backend, parsed_args.node) if (
            parsed_args.node) else None
        moves, _unreadable = backend.db.inventory.all_moves(backend.name)
        moving = {each.move.volume_id: each.move for each in moves
                  if not each.move.is_over}
        rows, fields, as_json = [], [], parsed_args.formatter == 'json'
        for row in sorted(backend.db.inventory.all_volumes(backend.name),
                          key=lambda each: (each.host, each.id)):
            home, move = row.home, moving.get(row.id)
            if only in (None, home):
                rows.append((
                    row.id, row.display_name if as_json
                    else row.display_name or '',
                    home, row.status, row.size,
                    ', '.join(each or '?' for each in row.hosts),
                    encrypted_by(row), _in_words(move, home)))
                fields.append({
                    'lv': row.name, 'attached_on': list(row.hosts),
                    'size_bytes': row.size * units.Gi, 'move': move and {
                        'source': move.source,
                        'destination': move.destination,
                        'phase': move.display_phase,
                        'committed': move.committed}})
        return base.with_fields((COLUMNS, rows), fields, as_json)


def encrypted_by(row: Row) -> str:
    """Return the encrypting service of a volume by its row, or ''."""
    if row.is_encrypted_by_nova:
        return 'Nova'
    try:
        return 'driver' if row.encryption else ''
    except exceptions.NotPossible:
        return 'unknown'


def _in_words(move: state.Move | None, home: str) -> str:
    if move is None:
        return ''
    return '%s, %s' % (
        move.display_phase, 'to ' + move.destination if home == move.source
        else 'from ' + move.source)
