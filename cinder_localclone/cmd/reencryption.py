# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone reencryption``: start, pause and resume."""

import argparse
import time
import typing

from oslo_utils import units

from cinder_localclone.cmd import base
from cinder_localclone.cmd import terminal
from cinder_localclone.core import errors
from cinder_localclone.service import operator as backends

COLUMNS = ('Volume', 'Node', 'Re-encryption', 'Percent', 'MiB/s',
           'Seconds left', 'Cipher', 'Key bits')
#: Statuses in which --wait waits.
GOES_ON = ('running', 'waiting', 'interrupted')
#: The rate is averaged over this number of seconds.
WINDOW = 10


class Rate:
    """The rate of a re-encryption, measured by repeated samples.

    :param clock: returns seconds
    """

    def __init__(self, clock: typing.Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: list[tuple[float, int]] = []

    def update(self, done: int) -> float:
        """Return the current rate in bytes a second; 0 if unknown."""
        now = self._clock()
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # another re-encryption has begun
        self._seen.append((now, done))
        while now - self._seen[0][0] > WINDOW and len(self._seen) > 2:
            del self._seen[0]
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since else 0.0


def percent(answer: dict[str, typing.Any]) -> float:
    """Return the re-encrypted percentage of a volume."""
    done: float = 100.0 * answer['done'] / max(1, answer['total'])
    return done


def row(volume_id: str, host: str, answer: dict[str, typing.Any]
        ) -> tuple[typing.Any, ...]:
    """Return a row of the table."""
    under_way = answer['status'] != 'none'
    rate, left = answer['rate'], answer['seconds_left']
    return (
        volume_id, host, answer['status'],
        round(percent(answer), 1) if under_way else None,
        round(rate / units.Mi, 1) if rate else None,
        None if left is None else round(left), answer['cipher'],
        answer['key_bits'])


class Bar:
    """The progress bar of a volume, on standard error."""

    def __init__(self, volume_id: str):
        from rich import console
        from rich import progress
        self._shown = progress.Progress(
            progress.TextColumn('{task.description}', markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn('{task.fields[rest]}', markup=False),
            console=console.Console(stderr=True))
        self._task = self._shown.add_task(volume_id, total=100, rest='')
        self._rate = Rate()

    def __enter__(self) -> 'Bar':
        self._shown.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._shown.stop()

    def show(self, answer: dict[str, typing.Any]) -> None:
        """Show a node's answer."""
        if answer['status'] == 'none':
            self._shown.update(self._task, completed=100, rest='done')
            return
        rest, rate = answer['status'], self._rate.update(answer['done'])
        if rate:
            rest += '  %.1f MiB/s  %d s left' % (
                rate / units.Mi, (answer['total'] - answer['done']) / rate)
        self._shown.update(self._task, completed=percent(answer), rest=rest)

    def say(self, text: str) -> None:
        """Show a text beside the bar."""
        self._shown.update(self._task, rest=terminal.printable(text))


class _Command(base.VolumeCommand):
    """Base of the commands that call the home of a volume."""

    method = ''

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend, volume_id = self.app.backend(), parsed_args.volume
        host = home(backend, volume_id)
        answer = backend.call(host, self.method, volume_id,
                              *self.arguments(parsed_args))
        if getattr(parsed_args, 'wait', False):
            host, answer = self.wait(backend, volume_id, host, answer)
        return COLUMNS, [row(volume_id, host, answer)]

    def arguments(self, parsed_args: argparse.Namespace
                  ) -> tuple[typing.Any, ...]:
        """Return the further arguments of the call."""
        return ()

    def wait(self, backend: backends.Backend, volume_id: str, host: str,
             answer: dict[str, typing.Any]
             ) -> tuple[str, dict[str, typing.Any]]:
        """Wait for the end of a re-encryption, on each home of the volume."""
        with Bar(volume_id) as bar:
            bar.show(answer)
            while answer['status'] in GOES_ON:
                time.sleep(2)
                host = home(backend, volume_id)
                found, problem = backend.ask(
                    host, 'encryption_progress', volume_id)
                if found:
                    answer = found
                    bar.show(answer)
                else:
                    bar.say(problem)
        self.app.exit_code = int(answer['status'] != 'none')
        return host, answer


def home(backend: backends.Backend, volume_id: str) -> str:
    """Return the service host of a volume.

    :raises CommandError: if the volume is not on this backend
    """
    volume, _move = backend.volume(volume_id)
    host = backends.home_of(volume)
    if host not in backend.nodes():
        raise errors.CommandError('Volume %s is not on a node of the backend '
                                  '%s.' % (volume_id, backend.name))
    return host


class Start(_Command):
    """Give a volume in use a new data key or another cipher.

    A process on the volume's node reads and writes the whole volume. It
    continues when the volume service or this command ends. A thin volume is
    allocated completely. All keys except the key of the volume's secret are
    lost. Existing snapshots keep the old data key. Run the command again to
    wait for a running re-encryption; the exit code is then 1 if it does not
    continue.
    """

    example = 'reencryption start data --wait'
    changes = 'the header and all data of the volume'
    method = 'encryption_reencrypt'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the parameters of the re-encryption."""
        from cinder_localclone.core.formats import cryptsetup_cli
        from cinder_localclone.core import volume_types
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--cipher', default='', metavar='CIPHER', help='new cipher: %s; '
            'default: the current cipher' % ', '.join(
                name for name, each in volume_types.CIPHERS.items()
                if 'none' in each.integrity))
        parser.add_argument(
            '--key-size', type=base.number(64, 4096, int), default=0,
            metavar='BITS',
            help='bits of the new key; default: the current size, or the '
            'largest of the new cipher')
        parser.add_argument(
            '--resilience', default='',
            choices=cryptsetup_cli.RESILIENCES,
            help='protection against a power cut: checksums of the part at '
            'work (the default, and faster), or a journal with a second write '
            'of all data')
        parser.add_argument(
            '--zone', type=base.number(1, 64, int), default=0, metavar='MIB',
            help='MiB re-encrypted at a time, 1 to 64; default: %d. A guest '
            'with I/O in this part waits; a smaller part means shorter waits '
            'and a slower re-encryption. Takes effect when the process starts '
            'again on this node: pause and resume' % cryptsetup_cli.ZONE)
        parser.add_argument(
            '--drop-other-keys', action='store_true',
            help='re-encrypt a volume with recovery keys too; these keys are '
            'lost')
        parser.add_argument('--wait', action='store_true',
                            help='show a progress bar until the re-encryption '
                            'ends, on each home of the volume')
        return parser

    def arguments(self, parsed_args: argparse.Namespace
                  ) -> tuple[typing.Any, ...]:
        """Return the parameters of the re-encryption."""
        return (parsed_args.cipher, parsed_args.key_size,
                parsed_args.resilience, parsed_args.drop_other_keys,
                parsed_args.zone)


class Pause(_Command):
    """Pause a re-encryption until "reencryption resume".

    If the volume moves, the re-encryption continues on its new home.
    """

    example = 'reencryption pause data'
    changes = 'the re-encryption'
    method = 'encryption_pause'


class Resume(_Command):
    """Resume a paused re-encryption."""

    example = 'reencryption resume data'
    changes = 'the re-encryption'
    method = 'encryption_resume'


class Run(base.VolumeCommand):
    """Become the process that re-encrypts a volume, for the service."""

    takes_names = False

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return nothing, or do not return: the process becomes cryptsetup."""
        backend = self.app.backend()
        backends.act_as_root(backend.settings)
        backends.reencrypt(backend, parsed_args.volume)
        return (), []
