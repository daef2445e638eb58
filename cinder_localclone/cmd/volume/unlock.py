# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone volume unlock``: open the locked volumes in use."""

import argparse

from cinder_localclone.cmd import base
from cinder_localclone.cmd.node import boot
from cinder_localclone.service import operator as backends


class Unlock(base.Command):
    """Open the locked volumes in use on this node.

    The command opens volumes encrypted by the driver, with an attachment on
    this node, for example after an outage of the key manager. The volume
    service does the same every localclone_reconcile_interval. The command does
    it now, with the same locks, and shows why a volume stays locked. Unlike
    "node unlock" it uses the database. Run it as root on the node of the
    attachments. The exit code is 1 if a volume stays locked.
    """

    example = 'volume unlock data'
    changes = 'this node\'s devices'
    nothing = 'No encrypted volume is in use on this node.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the volumes."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('volumes', nargs='*', metavar='VOLUME',
                            help='ID or name of a volume to open; default: '
                                 'all')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = backends.open_wanted(backend, parsed_args.volumes)
        self.app.exit_code = int(any(each.problem for each in outcome))
        return boot.table(outcome)
