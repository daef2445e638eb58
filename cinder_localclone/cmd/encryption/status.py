# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``: what the homes of volumes are asked."""

import argparse
from collections.abc import Iterator
import typing

from cinder_localclone.cmd import base
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import rows
from cinder_localclone.service import operator as backends

Volume = typing.Any


class Command(base.Command):
    """Base of the group: volumes are asked for at their homes."""

    nothing = 'There are no encrypted volumes.'
    #: Whether it is also for volumes that Nova encrypts.
    by_nova = False

    @staticmethod
    def home(volume: Volume) -> str:
        """The service host of a volume's home."""
        return backends.home_of(volume) or ''

    def one(self, backend: backends.Backend, volume_id: str) -> Volume:
        """The row of a volume that is encrypted.

        :raises CommandError: if there is none such
        """
        volume, _move = backend.volume(volume_id)
        if volume is None or not self.is_encrypted(volume):
            raise errors.CommandError('Volume %s is not encrypted%s.' % (
                volume_id, '' if self.by_nova else ' by this driver'))
        return volume

    def is_encrypted(self, volume: Volume) -> bool:
        """Whether a volume is one that the command is for."""
        return self.is_by_driver(volume) or (
            self.by_nova and rows.is_encrypted_by_nova(volume))

    @staticmethod
    def is_by_driver(volume: Volume) -> bool:
        """Whether the driver encrypts it; of a row that is not understood
        the volume's home says why not.
        """
        try:
            return bool(rows.recorded(volume))
        except exceptions.NotPossible:
            return True

    def all(self, backend: backends.Backend) -> list[Volume]:
        """The rows of all encrypted volumes of the backend."""
        return [volume for host in backend.nodes()
                for volume in backend.db.volumes.volumes_of(host)
                if self.is_encrypted(volume)]

    def ask(self, backend: backends.Backend, alive: dict[str, bool],
            volume: Volume, method: str) -> tuple[typing.Any, str]:
        """What a volume's home answers; or None, and why it does not."""
        host = self.home(volume)
        if not alive.get(host):
            return None, 'not asked: its service is down'
        return backend.ask(host, 'encryption_' + method, volume.id)


class OfVolumes(Command):
    """Base of what is done with one volume, with those of a type, or all."""

    method = ''
    columns = 'Volume', 'Host', 'Result'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with which volumes."""
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument('volume', metavar='VOLUME', nargs='?',
                           help='its id or name')
        which.add_argument('--type', metavar='TYPE',
                           help='all volumes of a type, by its name or id')
        which.add_argument('--all', action='store_true',
                           help='all volumes that the driver encrypts')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table; one that fails does not stop the others."""
        backend = self.app.backend()
        alive, found = backend.nodes(), []
        for volume in self._chosen(backend, parsed_args):
            answer, problem = self.ask(backend, alive, volume, self.method)
            found.append((volume.id, self.home(volume),
                          problem or self.said(answer)))
            self.app.exit_code |= int(bool(problem))
        return self.columns, found

    def _chosen(self, backend: backends.Backend,
                parsed_args: argparse.Namespace) -> list[Volume]:
        if parsed_args.volume:
            return [self.one(backend, parsed_args.volume)]
        if parsed_args.all:
            return self.all(backend)
        type_id = backend.db.inventory.type_id(parsed_args.type)
        return [volume for volume in self.all(backend)
                if volume.volume_type_id == type_id]

    def said(self, answer: typing.Any) -> str:
        """What is said of one for which it was done."""
        raise NotImplementedError


class Rotate(OfVolumes):
    """Give volumes that the driver encrypts another key.

    Who has one open keeps it open; nothing is encrypted anew. A new secret is
    stored, and the old one deleted. If it fails, or is interrupted, run it
    again. Volumes that are moving, or passed through, are refused. If the
    secret of a volume was lost, a recovery key takes its place: run it as
    root on the volume's home then.
    """

    method = 'rotate'

    def said(self, answer: typing.Any) -> str:
        """What is said of a volume whose key was replaced."""
        return '; '.join(('has another key', *(answer or ())))


class HeaderBackup(OfVolumes):
    """Copy the headers of volumes that the driver encrypts.

    Into localclone_header_backup_dir of each volume's home. Those that were
    there are removed.
    """

    method = 'header_backup'

    def said(self, answer: typing.Any) -> str:
        """What is said of a volume whose header was copied."""
        return 'copied into %s' % answer


class Status(Command):
    """Show how volumes are encrypted, and by which key slots.

    Exits with 1 if the home of one does not answer, or can't read its header.
    """

    by_nova = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the volume's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', metavar='VOLUME', nargs='?',
                            help='its id or name; default: all encrypted '
                                 'volumes')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        alive = backend.nodes()
        volumes = [self.one(backend, parsed_args.volume)] if (
            parsed_args.volume) else self.all(backend)
        found = [(volume.id, self.home(volume),
                  *self._status(backend, alive, volume))
                 for volume in volumes]
        return base.with_fields(
            (('Volume', 'Host', 'Encrypted by', 'Cipher', 'Key bits',
              'Key slots', 'Recovery key', 'Re-encryption', 'Remarks'),
             [row[:-1] for row in found]), [row[-1] for row in found],
            parsed_args.formatter == 'json')

    def _status(self, backend: backends.Backend, alive: dict[str, bool],
                volume: Volume) -> tuple:
        """The rest of a row, and what was answered."""
        if not self.is_by_driver(volume):
            cipher, bits = backend.db.inventory.encrypted_by_nova(volume.id)
            return 'Nova', cipher, bits, '', '', '', '', None
        answer, problem = self.ask(backend, alive, volume, 'status')
        if answer is None:
            self.app.exit_code = 1
            return 'driver', '', '', '', '', '', problem, None
        return ('driver', answer['cipher'], answer['key_bits'],
                ', '.join(answer['key_slots']),
                slots(answer['recovery_keys']) or 'no',
                reencryption(answer['reencryption']),
                '; '.join(remarks(answer)), answer)


def slots(found: list[str]) -> str:
    """Key slots, in words; '' for none."""
    return 'slot %s' % ', '.join(found) if found else ''


def reencryption(found: dict[str, typing.Any]) -> str:
    """How far a re-encryption is, in words; '' if there is none."""
    if found['status'] == 'none':
        return ''
    return '%.1f %% %s, to %s' % (
        100 * found['done'] / found['total'], found['status'],
        found['cipher'])


def remarks(answer: dict[str, typing.Any]) -> Iterator[str]:
    """What else is to be said of a header."""
    if answer['open']:
        yield 'open'
    if answer['changing']:
        yield ('a change of its key is not complete: run "cinder-localclone '
               'encryption rotate" again')
    if answer['shares_key']:
        yield 'has the secret of its source'
    if answer['unknown_keys']:
        yield 'unknown key in %s' % slots(answer['unknown_keys'])


class Verify(Command):
    """Prove that a volume can be opened, and its header be restored.

    That its secret opens it; that both copies of the header can be read; that
    the tags of its LV, and the last backup of its header, are right. Nothing
    is written. Exits with 1 if anything is wrong.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the volume's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', metavar='VOLUME', nargs='?',
                            help='its id or name; default: all that the '
                                 'driver encrypts')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        alive, found = backend.nodes(), []
        volumes = [self.one(backend, parsed_args.volume)] if (
            parsed_args.volume) else self.all(backend)
        for volume in volumes:
            answer, problem = self.ask(backend, alive, volume, 'verify')
            if answer is None:
                answer = [{'what': 'home', 'problem': problem}]
            found += [(volume.id, self.home(volume), each['what'],
                       each['problem'] or 'ok') for each in answer]
            self.app.exit_code |= int(any(
                each['problem'] for each in answer))
        return ('Volume', 'Host', 'What', 'Result'), found
