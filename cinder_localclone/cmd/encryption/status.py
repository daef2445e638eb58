# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``: calls to the homes of volumes."""

import argparse
from collections.abc import Iterator
import typing

from cinder_localclone.cmd import base
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core.volume import Volume
from cinder_localclone.service import operator as backends


class Command(base.Command):
    """Base of the group: volumes are queried on their homes."""

    nothing = 'There are no encrypted volumes.'
    #: Whether the command also accepts volumes encrypted by Nova.
    by_nova = False

    @staticmethod
    def home(volume: Volume) -> str:
        """Return the service host of a volume's home."""
        return backends.home_of(volume) or ''

    def encrypted_volume(self, backend: backends.Backend, volume_id: str
                         ) -> Volume:
        """Return the row of an encrypted volume.

        :raises CommandError: if there is no such volume
        """
        volume: Volume | None = backend.volume(volume_id)[0]
        if volume is None or not self.is_encrypted(volume):
            raise errors.CommandError('Volume %s is not encrypted%s.' % (
                volume_id, '' if self.by_nova else ' by this driver'))
        return volume

    def is_encrypted(self, volume: Volume) -> bool:
        """Return whether the command accepts a volume."""
        return self.is_by_driver(volume) or (
            self.by_nova and volume.is_encrypted_by_nova)

    @staticmethod
    def is_by_driver(volume: Volume) -> bool:
        """Return whether the driver encrypts a volume.

        Unreadable rows count: the volume's home reports the error.
        """
        try:
            return bool(volume.encryption)
        except exceptions.NotPossible:
            return True

    def all(self, backend: backends.Backend) -> list[Volume]:
        """Return the rows of all encrypted volumes of the backend."""
        return [volume for host in backend.nodes()
                for volume in backend.db.volumes.volumes_of(host)
                if self.is_encrypted(volume)]

    def ask(self, backend: backends.Backend, alive: dict[str, bool],
            volume: Volume, method: str) -> tuple[typing.Any, str]:
        """Call a volume's home; return (answer, '') or (None, error)."""
        host = self.home(volume)
        if not alive.get(host):
            return None, 'not asked: its service is down'
        return backend.ask(host, 'encryption_' + method, volume.id)


class OfVolumes(Command):
    """Base of commands for a volume, a volume type, or all volumes."""

    method = ''
    columns = 'Volume', 'Host', 'Result'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the choice of volumes."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument('volume', metavar='VOLUME', nargs='?',
                           help='ID or name of the volume')
        which.add_argument('--type', metavar='TYPE',
                           help='all volumes of a type, by its name or ID')
        which.add_argument('--all', action='store_true',
                           help='all volumes encrypted by the driver')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table; an error stops one volume only."""
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
            return [self.encrypted_volume(backend, parsed_args.volume)]
        if parsed_args.all:
            return self.all(backend)
        type_id = backend.db.inventory.type_id(parsed_args.type)
        return [volume for volume in self.all(backend)
                if volume.volume_type_id == type_id]

    def said(self, answer: typing.Any) -> str:
        """Return the text for a successful call."""
        raise NotImplementedError


class Rotate(OfVolumes):
    """Rotate the keys of volumes encrypted by the driver.

    Open volumes stay open, and data is not re-encrypted. A new secret is
    stored and proven to open the volume; then the old secret is deleted. If
    the command fails or is interrupted, run it again: at every moment one of
    the two secrets opens the volume. Moving and remotely attached volumes are
    refused. If the secret of a volume is lost, use a recovery key, and run the
    command as root on the volume's home. The exit code is 1 if a volume
    failed.
    """

    example = 'encryption key rotate --type encrypted'
    changes = 'headers, their backups, secrets'
    method = 'rotate'

    def said(self, answer: typing.Any) -> str:
        """Return the text for a volume with a new key."""
        return '; '.join(('has a new key', *(answer or ())))


class HeaderSave(OfVolumes):
    """Back up the headers of volumes encrypted by the driver.

    The backups are written to localclone_header_backup_dir on each volume's
    home. A backup must match Cinder's row, and the volume's secret must open
    it; then older backups there are removed. The exit code is 1 if a volume
    failed.
    """

    example = 'encryption header save data'
    changes = 'header backups'

    method = 'header_backup'

    def said(self, answer: typing.Any) -> str:
        """Return the text for a volume with a new backup."""
        return 'saved as %s' % answer


class _Status(Command):
    """Base of list and show."""

    by_nova = True
    COLUMNS = ('Volume', 'Host', 'Encrypted by', 'Cipher', 'Key bits',
               'Key slots', 'Recovery key', 'Re-encryption', 'Remarks')

    def rows(self, backend: backends.Backend, volumes: list[Volume]
             ) -> list[tuple[typing.Any, ...]]:
        """Return a row for each volume, followed by the home's answer."""
        alive = backend.nodes()
        return [(volume.id, self.home(volume),
                 *self._status(backend, alive, volume)) for volume in volumes]

    def _status(self, backend: backends.Backend, alive: dict[str, bool],
                volume: Volume) -> tuple[typing.Any, ...]:
        """Return the other values of a row, and the answer of the home."""
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


class List(_Status):
    """List the encrypted volumes, with their ciphers and key slots.

    The exit code is 1 if the home of a volume does not answer, or can't read
    its header.
    """

    example = 'encryption list'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        found = self.rows(backend, self.all(backend))
        return base.with_fields(
            (self.COLUMNS, [row[:-1] for row in found]),
            [row[-1] for row in found], parsed_args.formatter == 'json')


class Show(base.VolumeCommand, _Status):
    """Show the encryption and the key slots of a volume.

    The exit code is 1 if the home of the volume does not answer, or can't read
    its header.
    """

    example = 'encryption show data'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return a row for each value."""
        backend = self.app.backend()
        volume = self.encrypted_volume(backend, parsed_args.volume)
        row, = self.rows(backend, [volume])
        return base.with_fields(
            (('Field', 'Value'), list(zip(self.COLUMNS, row))),
            [None] * (len(self.COLUMNS) - 1) + [row[-1]],
            parsed_args.formatter == 'json')


def slots(found: list[str]) -> str:
    """Return a text for key slots; '' for none."""
    return 'slot %s' % ', '.join(found) if found else ''


def reencryption(found: dict[str, typing.Any]) -> str:
    """Return a text for the progress of a re-encryption; '' for none."""
    if found['status'] == 'none':
        return ''
    return '%.1f %% %s, to %s' % (
        100 * found['done'] / found['total'], found['status'],
        found['cipher'])


def remarks(answer: dict[str, typing.Any]) -> Iterator[str]:
    """Yield further remarks on a header."""
    if answer['open']:
        yield 'open'
    if answer['changing']:
        yield ('a key rotation is incomplete: run "cinder-localclone '
               'encryption key rotate" again')
    if answer['shares_key']:
        yield 'shares the secret of its source'
    if answer['unknown_keys']:
        yield 'unknown key in %s' % slots(answer['unknown_keys'])


class Check(base.VolumeCommand, Command):
    """Check whether a volume can be opened, and its header restored.

    The command tests the volume's secret, both copies of the header, the tags
    of its LV, and the last backup of its header. Nothing is written. The exit
    code is 1 if a problem is found.
    """

    example = 'encryption check data'
    without_volume = 'all volumes encrypted by the driver'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        alive, found = backend.nodes(), []
        volumes = [self.encrypted_volume(backend, parsed_args.volume)] if (
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
