# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``: what is done on the volume's home.

A key that is shown must not travel, and a header is restored by whoever can
see the node. So these are no calls to a service: they do it themselves, with
the same locks.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import getpass
import os
import sys
import typing

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base
from cinder_localclone.cmd.encryption import status
from cinder_localclone.cmd import errors

if typing.TYPE_CHECKING:
    import cinder_localclone.core.node

_FILES = 'file://'
#: Characters that a recovery key has at most, whatever is around it.
_LONGEST = 4096


class AtHome(status.Command):
    """Base of what may be run by root on the home of the volume."""

    def here(self, volume_id: str) -> 'cinder_localclone.core.node.Node':
        """The rooms of this node, which is the home of a volume.

        :raises CommandError: if it is not
        """
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        home = self.home(self.one(backend, volume_id))
        if home != backend.host:
            raise errors.CommandError(
                'The home of volume %s is %s: run it there. Nothing was '
                'changed.' % (volume_id, home))
        return node(backend)


class Here(AtHome):
    """Base of what is run there only."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the volume's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', metavar='VOLUME', help='its id or name')
        return parser


class Rotate(AtHome, status.Rotate):
    __doc__ = status.Rotate.__doc__

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with where a recovery key is."""
        parser = super().get_parser(prog_name)
        instead = parser.add_mutually_exclusive_group()
        instead.add_argument(
            '--recovery-key-file', metavar='FILE',
            help='file with a recovery key of the volume, whose secret is '
            'lost; -: standard input')
        instead.add_argument(
            '--stored-recovery-key', action='store_true',
            help='use the recovery key that the key manager has')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        file = parsed_args.recovery_key_file
        if not (file or parsed_args.stored_recovery_key):
            return super().take_action(parsed_args)
        from cinder_localclone.encryption import recovery_keys
        volume_id = parsed_args.volume
        if not volume_id:
            raise errors.CommandError(
                'A recovery key belongs to one volume: name the volume.')
        key = _read(file) if file else ''
        here = self.here(volume_id)
        remarks = recovery_keys.rotate(here, volume_id, key)
        return self.columns, [(volume_id, self.app.backend().host,
                               self.said(remarks))]


def _read(file: str) -> str:
    """A recovery key that somebody has kept; a terminal does not show it."""
    if file == '-' and sys.stdin.isatty():
        return getpass.getpass('Recovery key: ')
    try:
        with contextlib.nullcontext(sys.stdin) if file == '-' else open(
                file) as opened:
            text = opened.read(_LONGEST).strip()
    except (OSError, ValueError) as exc:
        raise errors.CommandError('%s can\'t be read: %s' % (
            file, getattr(exc, 'strerror', None) or 'the file contains no '
            'text'))
    if not text:
        raise errors.CommandError('There is no recovery key in %s.' % file)
    return text


class Add(Here):
    """Add a recovery key to a volume that the driver encrypts.

    It opens the volume if its secret is lost. It is shown here, once, and
    kept nowhere; with --store the key manager has it instead. Run it as root
    on the home of the volume.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with --store."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--store', action='store_true',
            help='keep it in the key manager, and do not show it')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The one row of the table."""
        from cinder_localclone.encryption import recovery_keys
        added = recovery_keys.add(
            self.here(parsed_args.volume), parsed_args.volume,
            parsed_args.store)
        return ('Volume', 'Key slot', 'Recovery key'), [
            (parsed_args.volume, added.slot,
             added.key or 'secret %s' % added.secret)]


class Remove(Here):
    """Remove a recovery key from a volume that the driver encrypts.

    Run it as root on the home of the volume.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with --slot."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--slot', metavar='N', default='',
            help='its key slot, as "encryption status" shows it; default: '
                 'that of the only recovery key')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The one row of the table."""
        from cinder_localclone.encryption import recovery_keys
        removed = recovery_keys.remove(
            self.here(parsed_args.volume), parsed_args.volume,
            parsed_args.slot)
        return ('Volume', 'Key slot', 'Result'), [
            (parsed_args.volume, removed.slot,
             '; '.join(('removed', *removed.remarks)))]


class HeaderRestore(Here):
    """Restore the header of a volume that the driver encrypts.

    Of a volume that is detached, from a backup in
    localclone_header_backup_dir: only one of the same LUKS UUID and of the
    same data, which the volume's secret opens. What was there is kept beside
    it. If it is interrupted, run it again. Run it as root on the home of the
    volume.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the file."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'file', metavar='FILE', nargs='?', default='',
            help='the name of the backup; default: the last one')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The one row of the table."""
        from cinder_localclone.encryption import headers
        restored = headers.restore(
            self.here(parsed_args.volume), parsed_args.volume,
            os.path.basename(parsed_args.file))
        return ('Volume', 'Backup', 'Result'), [
            (parsed_args.volume, restored.backup,
             '; '.join(('restored', *restored.remarks)))]


# -- the rooms of the service, in this process

def node(backend: backends.Backend) -> 'cinder_localclone.core.node.Node':
    """The rooms of a backend on this node, as its service has them."""
    backend.connect()
    from cinder import coordination
    from cinder.volume import configuration
    from cinder.volume import driver
    from cinder.volume.drivers import lvm
    from oslo_config import cfg

    from cinder_localclone.service import assembly
    from cinder_localclone.service import options
    conf = configuration.Configuration(
        driver.volume_opts + lvm.volume_opts + options.localclone_opts,
        config_group=backend.name)
    found = assembly.assemble(
        conf, backend.host, backend.name, backend.lvm().pool).node
    owner = owner_of_locks(cfg.CONF.coordination.backend_url)
    with acting_as(owner):
        coordination.COORDINATOR.start()
    return dataclasses.replace(found, lock=_as_owner(found.lock, owner))


def owner_of_locks(url: str) -> tuple[int, int] | None:
    """Whose the files of locks are, if locks are files.

    :param url: where Cinder coordinates its services
    :returns: user and group
    """
    if not url.startswith(_FILES):
        return None
    found = os.stat(url.removeprefix(_FILES))
    return found.st_uid, found.st_gid


@contextlib.contextmanager
def acting_as(owner: tuple[int, int] | None) -> Iterator[None]:
    """Files that are made meanwhile are another user's.

    A lock's file that is root's would lock out the volume service for good.
    """
    if owner is None or owner == (0, 0):
        yield
        return
    user, group = owner
    os.setegid(group)
    try:
        os.seteuid(user)
        try:
            yield
        finally:
            os.seteuid(0)
    finally:
        os.setegid(0)


Lock = Callable[[str], contextlib.AbstractContextManager[None]]


def _as_owner(lock: Lock, owner: tuple[int, int] | None) -> Lock:
    @contextlib.contextmanager
    def locked(name: str) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with acting_as(owner):
                held.enter_context(lock(name))
            yield
    return locked
