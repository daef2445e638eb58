# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption leftover remove``: of deleted volumes."""

import argparse
from collections.abc import Callable
import os
import sys
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd import terminal
from cinder_localclone.service import operator as backends

if typing.TYPE_CHECKING:
    from cinder_localclone.encryption import operator

COLUMNS = ('What', 'Volume', 'Name', 'State')


class Remove(base.Command):
    """Remove secrets and header backups of deleted volumes.

    The deletion of a volume removes both, unless the key manager is down or a
    former home has a backup. The command finds the secrets of all volumes, and
    the header backups on this node: run it on each node with backups. It lists
    them and asks for confirmation, unless --yes is given. A secret is removed
    only if no row of Cinder's database names it, and the database knows the
    deletion of its volume. The exit code is 1 without confirmation, or if an
    item could not be removed.
    """

    example = 'encryption leftover remove'
    changes = 'secrets and header backups, after confirmation'
    nothing = 'No secrets or header backups of deleted volumes are left.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with --yes and --unknown."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('--yes', action='store_true',
                            help='remove without confirmation')
        parser.add_argument(
            '--unknown', action='store_true',
            help='also remove secrets and header backups of volumes, or with '
            'consumers, unknown to Cinder\'s database: another cloud\'s, with '
            'secrets in the same project, or removed by "cinder-manage db '
            'purge"')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        from cinder_localclone.encryption import operator
        backend = self.app.backend()
        if not os.geteuid():
            backends.act_as_root(backend.settings)
        keys, crypt = backend.keys(), backend.crypt()
        found = operator.find_left(
            backend.db.inventory, keys, crypt.backed_up_volumes())
        goes = [each for each in found if each.known or parsed_args.unknown]
        states = {each: 'stays: its volume is unknown; see --unknown'
                  for each in found if each not in goes}
        agreed = parsed_args.yes or not goes or self._ask(
            goes, parsed_args.formatter)
        if not agreed:
            print('Nothing was removed. To remove the items, pass --yes.',
                  file=self.app.stderr)
        for each in goes:
            states[each] = 'would be removed' if not agreed else (
                self._removed(operator.remove_left, backend.db.inventory,
                              keys, crypt, each, parsed_args.unknown))
        self.app.exit_code = int(not agreed or any(
            state.startswith('failed') for state in states.values()))
        return COLUMNS, [(each.kind, each.volume_id, each.name, states[each])
                         for each in found]

    def _ask(self, goes: 'list[operator.Left]', formatter: str) -> bool:
        """Return whether the operator confirms the removal.

        A program is not asked.
        """
        if formatter != 'table' or not sys.stdin.isatty():
            return False
        for each in goes:
            print(terminal.printable('%s of volume %s %s' % (
                each.kind, each.volume_id, each.name)), file=self.app.stderr)
        print('Afterwards, copies of these volumes can only be read with a '
              'key saved elsewhere. Remove? (yes/no) ', end='',
              file=self.app.stderr, flush=True)
        return sys.stdin.readline().strip() == 'yes'

    @staticmethod
    def _removed(remove: Callable[..., None], *arguments: typing.Any
                 ) -> str:
        """Remove an item and return the result; an error stops it alone."""
        try:
            remove(*arguments)
        except Exception as exc:
            return 'failed: ' + base.in_words(exc)
        return 'removed'
