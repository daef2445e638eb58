# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node restore`` and ``unlock``, before Nova starts."""

import argparse
from collections.abc import Iterable

from cinder_localclone.cmd import base
from cinder_localclone.core import boot_plan
from cinder_localclone.core import errors
from cinder_localclone.core import names
from cinder_localclone.service import operator as backends

#: Seconds to wait for the key manager before Nova starts guests. The key
#: manager may be starting too, and a boot must end without it.
WAIT = 120
COLUMNS = ('Volume', 'LV', 'State', 'Problem')


class Restore(base.Command):
    """Restore the handles of this node's volumes, without the database.

    Use only LVM tags and the records of the iSCSI initiator, neither the
    database nor the message bus. A volume needs its source only while it is
    being copied. Existing handles are left alone, so the command is safe at
    any time. Run it as root at boot, before nova-compute. The exit code is 1
    if a volume was left to the volume service.
    """

    example = 'node restore'
    changes = 'this node\'s devices and iSCSI sessions'
    nothing = 'This node has no volumes to restore.'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
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
    """Open the encrypted volumes in use before this node went down.

    Use LVM tags, the headers of the volumes and the key manager, neither the
    database nor the message bus. A volume is opened only with the secret in
    its tags, and only if its header is the recorded header. Run the command as
    root at boot, after "node restore" and before nova-compute. Volumes that
    can't be opened are left to the volume service. The exit code is 1 if no
    volume could be opened.
    """

    example = 'node unlock --seconds 300'
    changes = 'this node\'s devices'
    nothing = 'This node had no encrypted volumes open.'
    takes_names = False  # it does not use the database

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the volume and the time limit."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('volume', nargs='?', metavar='VOLUME',
                            help='ID of the only volume to open; default: all')
        parser.add_argument(
            '--seconds', type=base.seconds, default=WAIT, metavar='N',
            help='wait for the key manager for at most N seconds; '
            'default: %d' % WAIT)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        wanted = parsed_args.volume
        if wanted is not None and not names.is_id(wanted):
            raise errors.CommandError(
                '"%s" is not the ID of a volume. The command does not use the '
                'database, so it knows no names.' % wanted)
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        outcome = backends.unlock(backend, parsed_args.seconds, wanted)
        if wanted and not outcome:
            raise errors.CommandError(
                'Volume %s was not open on this node, or is not encrypted by '
                'the driver. Nothing was changed.' % wanted)
        locked = [each for each in outcome if each.problem]
        self.app.exit_code = int(
            len(locked) == len(outcome) and bool(locked))
        return table(outcome)


def table(outcome: Iterable[boot_plan.Outcome]) -> base.Table:
    """Return a row for each volume."""
    return COLUMNS, [(each.volume_id, each.lv, each.state, each.problem)
                     for each in outcome]
