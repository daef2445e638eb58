# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone restore`` and ``unlock``, before Nova starts."""

import argparse

from cinder_localclone.cmd import base
from cinder_localclone.service import operator as backends

#: Seconds that a boot waits for the key manager before Nova starts guests: it
#: may be on its way up as well, and a boot without it must still end.
WAIT = 120
COLUMNS = ('Volume', 'LV', 'State', 'Problem')


class Restore(base.Command):
    """Restore the handles of this node's volumes, without the database.

    From LVM's tags and the iSCSI initiator's records alone; only a volume
    that is still being copied needs its source. Run by root at boot, before
    nova-compute. Exits with 1 if a volume was left to the volume service.
    """

    nothing = 'This node has no volumes to restore.'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        from cinder_localclone.service import restore
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = restore.restore(
            backend.lvm(), backend.handles(), backend.clones(),
            backend.sessions())
        self.app.exit_code = int(any(problem for _local, problem in outcome))
        return ('Volume', 'LV', 'State', 'Problem'), [
            (local.volume_id, local.lv, 'left' if problem else (
                'on its clone' if local.move else
                'attached remotely' if local.remote else 'local'), problem)
            for local, problem in outcome]


class Unlock(base.Command):
    """Open the encrypted volumes that were in use when this node went down.

    From LVM's tags, the volumes' headers and the key manager, without the
    database: only by the secret that the tags name, and with the header that
    they know. Run by root at boot, after "restore" and before nova-compute.
    What can't be opened is left to the volume service; exits with 1 if
    nothing of several volumes could be opened.
    """

    nothing = 'This node had no encrypted volumes open.'
    takes_names = False  # it asks no database

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """What the command line may have."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', nargs='?', metavar='VOLUME',
                            help='the only volume to open; default: all')
        parser.add_argument(
            '--wait', type=int, metavar='SECONDS', default=WAIT,
            help='how long to wait for the key manager; default: %d' % WAIT)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = backends.unlock(
            backend, parsed_args.wait, parsed_args.volume)
        locked = [each for each in outcome if each.problem]
        self.app.exit_code = int(
            len(locked) == len(outcome) and bool(locked))
        return _table(outcome)


class OpenWanted(base.Command):
    """Open the encrypted volumes that are in use on this node, and locked.

    Those that the driver encrypts. What is in use, its attachments say. The
    volume service does the same every localclone_reconcile_interval; this
    does it now, and says what keeps a volume locked. Run it as root on the
    node where the volumes are used. Exits with 1 if one is not open in the
    end.
    """

    nothing = 'No encrypted volume is in use on this node.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """What the command line may have."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volumes', nargs='*', metavar='VOLUME',
                            help='id or name of a volume to open; default: '
                                 'all')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = backends.open_wanted(backend, parsed_args.volumes)
        self.app.exit_code = int(any(each.problem for each in outcome))
        return _table(outcome)


def _table(outcome) -> base.Table:
    return COLUMNS, [(each.volume_id, each.lv, each.state, each.problem)
                     for each in outcome]
