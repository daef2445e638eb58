# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node show``: a node in the records and by its answer."""

import argparse

from cinder_localclone.cmd import base
from cinder_localclone.cmd.node import listing


class Show(base.Command):
    """Show a node: its row of "node list", its volumes and its devices.

    The exit code is 1 if the node is down, does not answer or can't receive
    volumes.
    """

    example = 'node show node1'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the node."""
        return base.with_node(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return a row for each value."""
        backend = self.app.backend()
        host = base.node(backend, parsed_args.node)
        (row, fields, answer), = listing.nodes(backend, host)
        self.app.exit_code = int(not fields['ready'])
        said = dict(zip(listing.COLUMNS, row))
        if answer:
            said['Free metadata MiB'] = answer['free_space']['metadata'] >> 20
            said['To be wiped MiB'] = (answer['to_wipe'] or 0) >> 20
            said['Sector bytes'] = answer['block']
            said['iSCSI initiator'] = answer['initiator']
        return ('Field', 'Value'), [
            *said.items(), *(('Volume', '%s: %s' % (each.id, each.status))
                             for each in backend.db.volumes.volumes_of(host))]
