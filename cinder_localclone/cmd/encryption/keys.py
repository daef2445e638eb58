# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``: sub-commands on the volume's home.

A shown key must not cross the network, and a header is restored with access to
the node. So the commands do not call a service. They act themselves, with the
same locks.
"""

import argparse
import contextlib
import getpass
import os
import sys
import typing

from cinder_localclone.cmd import base
from cinder_localclone.cmd.encryption import status
from cinder_localclone.core import errors
from cinder_localclone.service import operator as backends

if typing.TYPE_CHECKING:
    import cinder_localclone.core.node


#: The maximum number of characters read for a recovery key.
_LONGEST = 4096


class AtHome(status.Command):
    """Base of commands that root may run on the volume's home."""

    def node_at_home(self, volume_id: str
                     ) -> 'cinder_localclone.core.node.Node':
        """Return this node, which must be the home of the volume.

        :raises CommandError: if it is not
        """
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        home = self.home(self.encrypted_volume(backend, volume_id))
        if home != backend.host:
            raise errors.CommandError(
                'The home of volume %s is %s: run the command there. Nothing '
                'was changed.' % (volume_id, home))
        return backends.node(backend)


class Here(base.VolumeCommand, AtHome):
    """Base of commands that run only on the volume's home."""


class Rotate(AtHome, status.Rotate):
    __doc__ = status.Rotate.__doc__

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the source of a recovery key."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        instead = parser.add_mutually_exclusive_group()
        instead.add_argument(
            '--recovery-key-file', metavar='FILE',
            help='file with a recovery key, or "-" for standard input; for a '
            'volume with a lost secret')
        instead.add_argument(
            '--stored-recovery-key', action='store_true',
            help='use the recovery key in the key manager')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        file = parsed_args.recovery_key_file
        if not (file or parsed_args.stored_recovery_key):
            return super().take_action(parsed_args)
        from cinder_localclone.encryption import operator
        volume_id = parsed_args.volume
        if not volume_id:
            raise errors.CommandError(
                'A recovery key belongs to a single volume: pass the volume.')
        key = _read(file) if file else ''
        here = self.node_at_home(volume_id)
        remarks = operator.rotate_by_recovery_key(here, volume_id, key)
        return self.columns, [(volume_id, self.app.backend().host,
                               self.said(remarks))]


def _backup(directory: str | None, file: str) -> str:
    """Return the name of a backup.

    :param directory: the directory of the backups
    :param file: a name, or a path in this directory
    :raises CommandError: for another path: a backup with the same name in the
        directory may have other contents
    """
    where, name = os.path.split(file)
    if where and os.path.realpath(where) != os.path.realpath(
            directory or os.curdir):
        raise errors.CommandError(
            '%s is not in localclone_header_backup_dir (%s). Nothing was '
            'changed. Copy the backup there, and pass its name.' % (
                file, directory or 'not set'))
    return name


def _read(file: str) -> str:
    """Return a recovery key from a file, or from a terminal without echo."""
    if file == '-' and sys.stdin.isatty():
        with contextlib.suppress(EOFError):
            return getpass.getpass('Recovery key: ') or _no_key(file)
        return _no_key(file)
    try:
        with contextlib.nullcontext(sys.stdin) if file == '-' else open(
                file) as opened:
            text = opened.read(_LONGEST).strip()
    except (OSError, ValueError) as exc:
        raise errors.CommandError('%s can\'t be read: %s' % (
            file, getattr(exc, 'strerror', None) or 'the file contains no '
            'text'))
    return text or _no_key(file)


def _no_key(file: str) -> typing.NoReturn:
    raise errors.CommandError('There is no recovery key in %s.' % (
        'standard input' if file == '-' else file))


class Add(Here):
    """Add a recovery key to a volume encrypted by the driver.

    The recovery key opens the volume if the volume's secret is lost. It is
    shown once and not stored: write it down. With --store the key manager
    keeps it, as a separate secret, and it is not shown. A re-encryption drops
    the key. Run the command as root on the home of the volume.
    """

    example = 'encryption recovery key add --store data'
    changes = 'the header, its backup, secrets'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with --store."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--store', action='store_true',
            help='store the key in the key manager, and do not show it')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the row of the table."""
        from cinder_localclone.encryption import operator
        added = operator.add_recovery_key(
            self.node_at_home(parsed_args.volume), parsed_args.volume,
            parsed_args.store)
        return ('Volume', 'Key slot', 'Recovery key'), [
            (parsed_args.volume, added.slot,
             added.key or 'secret %s' % added.secret)]


class Remove(Here):
    """Remove a recovery key from a volume encrypted by the driver.

    The secret of the key is deleted, if it has one. Snapshots keep their key
    slots, and a revert brings them back: the result names snapshots that the
    key may still open. Run the command as root on the home of the volume.
    """

    example = 'encryption recovery key remove --slot 1 data'
    changes = 'the header, its backup, secrets'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with --slot."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--slot', metavar='N', default='',
            help='key slot, as shown by "encryption show", also of an '
                 'unknown key; default: the slot of the only recovery key')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the row of the table."""
        from cinder_localclone.encryption import operator
        removed = operator.remove_recovery_key(
            self.node_at_home(parsed_args.volume), parsed_args.volume,
            parsed_args.slot)
        return ('Volume', 'Key slot', 'Result'), [
            (parsed_args.volume, removed.slot,
             '; '.join(('removed', *removed.remarks)))]


class HeaderRestore(Here):
    """Restore the header of a volume encrypted by the driver.

    The volume must be detached. The backup is a file in
    localclone_header_backup_dir. It must belong to the data in Cinder's row,
    and the volume's secret must open it. The replaced header is saved beside
    it. If the command is interrupted, run it again. Run it as root on the home
    of the volume.
    """

    example = 'encryption header restore data'
    changes = 'the header of the volume'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the file."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            'file', metavar='FILE', nargs='?', default='',
            help='name of the backup; default: the last backup')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the row of the table."""
        from cinder_localclone.encryption import operator
        backend = self.app.backend()
        restored = operator.restore_header(
            self.node_at_home(parsed_args.volume), parsed_args.volume,
            _backup(backend.conf.localclone_header_backup_dir,
                    parsed_args.file))
        return ('Volume', 'Backup', 'Result'), [
            (parsed_args.volume, restored.backup,
             '; '.join(('restored', *restored.remarks)))]
