# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone restore``: this node's volumes, before Nova starts."""

import argparse

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base


class Restore(base.Command):
    """Restore the handles of this node's volumes, without the database.

    From LVM's tags and the iSCSI initiator's records alone; only a volume
    that is still being copied needs its source. Run by root at boot, before
    nova-compute. Exits with 1 if a volume was left to the volume service.
    """

    nothing = 'This node has no volumes to restore.'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        from cinder_localclone import restore
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = restore.restore(backend.stack(), backend.sessions())
        self.app.exit_code = int(any(problem for _local, problem in outcome))
        return ('Volume', 'LV', 'State', 'Problem'), [
            (local.volume_id, local.lv, 'left' if problem else (
                'on its clone' if local.move else
                'attached remotely' if local.passed else 'local'), problem)
            for local, problem in outcome]
