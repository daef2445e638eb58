# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone restore``: this node's volumes, before Nova starts."""

from cliff import lister

from cinder_localclone import restore


class Restore(lister.Lister):
    """Restore the handles of all volumes of this node, from local facts.

    Neither the database nor a peer is asked, but for a volume that is still
    being copied: its source is needed. Run by root at boot, before
    nova-compute. Exits with 1 if a volume had to be left to the volume
    service.
    """

    def take_action(self, args):
        backend = self.app.backend()
        backend.act_as_root()
        outcome = restore.restore(backend.stack(), backend.imports())
        self.app.exit_code = int(any(problem for _local, problem in outcome))
        return ('Volume', 'LV', 'State', 'Problem'), [
            (local.volume_id, local.lv, 'left' if problem else (
                'on its clone' if local.move else 'local'), problem)
            for local, problem in outcome]
