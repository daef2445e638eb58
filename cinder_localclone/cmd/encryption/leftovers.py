# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption shred``: what has outlived its volume."""

import argparse
import os
import sys

from cinder_localclone.cmd import base
from cinder_localclone.core import errors
from cinder_localclone.service import operator as backends

COLUMNS = ('What', 'Volume', 'Name', 'State')


class Shred(base.Command):
    """Remove secrets, and backups of headers, of volumes that are gone.

    Secrets of all volumes; backups that this node has. First says what it
    would remove, and asks; with --yes it does not ask. Without an answer
    nothing is removed, and the exit code is 1. Exits with 1, too, if
    something could not be removed.
    """

    nothing = 'No secrets or header backups are left of deleted volumes.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with --yes and --unknown."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--yes', action='store_true',
                            help='remove them without asking')
        parser.add_argument(
            '--unknown', action='store_true',
            help='also those of volumes that Cinder\'s database has never '
            'known, or has purged: if another cloud keeps secrets in the same '
            'project, they may belong to that cloud')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        from cinder_localclone.encryption import operator
        backend = self.app.backend()
        if not os.geteuid():
            backends.act_as_root(backend.settings)
        keys, crypt = backend.keys(), backend.crypt()
        found = operator.find_left(
            backend.db.inventory, keys, crypt.backed_up_volumes())
        goes = [each for each in found if each.known or parsed_args.unknown]
        states = {each: 'stays: its volume is not known; see --unknown'
                  for each in found if each not in goes}
        agreed = parsed_args.yes or not goes or self._ask(goes)
        for each in goes:
            states[each] = 'would be removed' if not agreed else (
                self._removed(operator.remove_left, keys, crypt, each))
        self.app.exit_code = int(not agreed or any(
            state.startswith('failed') for state in states.values()))
        return COLUMNS, [(each.kind, each.volume_id, each.name, states[each])
                         for each in found]

    def _ask(self, goes):
        """Whether somebody who can be asked says yes."""
        if self.app.options.json or not sys.stdin.isatty():
            return False
        for each in goes:
            print('%s of volume %s %s' % (
                each.kind, each.volume_id, each.name), file=self.app.stderr)
        print('Copies of these volumes can only be read afterwards with a key '
              'that was saved elsewhere. Remove? (yes/no) ', end='',
              file=self.app.stderr, flush=True)
        return sys.stdin.readline().strip() == 'yes'

    @staticmethod
    def _removed(remove, *arguments):
        """What became of one; one that fails does not stop the others."""
        try:
            remove(*arguments)
        except Exception as exc:
            return 'failed: ' + errors.in_words(exc)
        return 'removed'
