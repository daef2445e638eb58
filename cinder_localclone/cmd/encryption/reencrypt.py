# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption reencrypt``, ``pause``, ``resume``."""

import argparse
import time
import typing

from oslo_utils import units

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base
from cinder_localclone.cmd import errors

COLUMNS = ('Volume', 'Node', 'Re-encryption', 'Percent', 'MiB/s',
           'Seconds left', 'Cipher', 'Key bits')
#: States in which there is something to wait for.
GOES_ON = ('running', 'waiting', 'interrupted')
#: Over how many seconds the rate that is shown is that of.
WINDOW = 10


class Rate:
    """How fast something is, by what is done now and then.

    :param clock: seconds
    """

    def __init__(self, clock: typing.Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: list[tuple[float, int]] = []

    def of(self, done: int) -> float:
        """Bytes a second of late; 0 if that is not known yet."""
        now = self._clock()
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # another one has begun
        self._seen.append((now, done))
        while now - self._seen[0][0] > WINDOW and len(self._seen) > 2:
            del self._seen[0]
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since else 0.0


def percent(answer: dict[str, typing.Any]) -> float:
    """How much of a volume is encrypted anew."""
    return 100.0 * answer['done'] / max(1, answer['total'])


def row(volume_id: str, host: str, answer: dict[str, typing.Any]) -> tuple:
    """A row of the table."""
    under_way = answer['status'] != 'none'
    rate, left = answer['rate'], answer['seconds_left']
    return (
        volume_id, host, answer['status'],
        round(percent(answer), 1) if under_way else None,
        round(rate / units.Mi, 1) if rate else None,
        None if left is None else round(left), answer['cipher'],
        answer['key_bits'])


class Bar:
    """The progress of one volume, on standard error."""

    def __init__(self, volume_id: str):
        from rich import console
        from rich import progress
        self._shown = progress.Progress(
            progress.TextColumn('{task.description}'), progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn('{task.fields[rest]}'),
            console=console.Console(stderr=True))
        self._task = self._shown.add_task(volume_id, total=100, rest='')
        self._rate = Rate()

    def __enter__(self) -> 'Bar':
        self._shown.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._shown.stop()

    def show(self, answer: dict[str, typing.Any]) -> None:
        """What a node has answered."""
        if answer['status'] == 'none':
            self._shown.update(self._task, completed=100, rest='done')
            return
        rest, rate = answer['status'], self._rate.of(answer['done'])
        if rate:
            rest += '  %.1f MiB/s  %d s left' % (
                rate / units.Mi, (answer['total'] - answer['done']) / rate)
        self._shown.update(self._task, completed=percent(answer), rest=rest)

    def say(self, text: str) -> None:
        """Something else than progress."""
        self._shown.update(self._task, rest=text)


class _Command(base.VolumeCommand):
    """What the home of a volume is asked."""

    method = ''

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend, volume_id = self.app.backend(), parsed_args.volume
        host = home(backend, volume_id)
        answer = backend.call(host, self.method, volume_id,
                              *self.arguments(parsed_args))
        if getattr(parsed_args, 'wait', False):
            host, answer = self.wait(backend, volume_id, host, answer)
        return COLUMNS, [row(volume_id, host, answer)]

    def arguments(self, parsed_args: argparse.Namespace) -> tuple:
        """What it is asked besides."""
        return ()

    def wait(self, backend: backends.Backend, volume_id: str, host: str,
             answer: dict[str, typing.Any]
             ) -> tuple[str, dict[str, typing.Any]]:
        """Until there is nothing to wait for, wherever the volume goes."""
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
    """The service host of a volume.

    :raises CommandError: if it is none of this backend's
    """
    volume, _move = backend.volume(volume_id)
    host = backends.home_of(volume)
    if host not in backend.nodes():
        raise errors.CommandError('Volume %s is not on a node of the backend '
                                  '%s.' % (volume_id, backend.name))
    return host


class Reencrypt(_Command):
    """Give a volume another data key, or another cipher, while it is used.

    All of it is read and written anew on its node, by a process that goes on
    when the volume service, or this command, ends. A thin volume becomes
    full. Keys but that of its secret are lost. Its old snapshots keep the old
    data key. Run it again to wait for one that has begun; then it exits
    with 1 if that does not go on.
    """

    method = 'encryption_reencrypt'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with what it is to be encrypted with."""
        from cinder_localclone.core.formats import cryptsetup_cli
        from cinder_localclone.core import volume_types
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--cipher', default='', metavar='CIPHER', help='one of %s; '
            'default: the one that it has' % ', '.join(
                name for name, each in volume_types.CIPHERS.items()
                if 'none' in each.integrity))
        parser.add_argument(
            '--key-size', type=int, default=0, metavar='BITS',
            help='default: the present size, or the largest of the new cipher')
        parser.add_argument(
            '--resilience', default='',
            choices=cryptsetup_cli.RESILIENCES,
            help='how the re-encryption survives a power cut: by checksums '
            'of the part at work (the default, and faster), or by a journal '
            'that writes everything twice')
        parser.add_argument(
            '--zone', type=int, default=0, metavar='MIB',
            help='MiB that are re-encrypted at a time, 1 to 64; default: %d. '
            'A guest that reads or writes there waits. Applies from the next '
            'start of the process, on this node' % cryptsetup_cli.ZONE)
        parser.add_argument(
            '--drop-other-keys', action='store_true',
            help='also if the volume has recovery keys, which are lost')
        parser.add_argument('--wait', action='store_true',
                            help='show a progress bar until it has ended')
        return parser

    def arguments(self, parsed_args: argparse.Namespace) -> tuple:
        """How it is to be encrypted."""
        return (parsed_args.cipher, parsed_args.key_size,
                parsed_args.resilience, parsed_args.drop_other_keys,
                parsed_args.zone)


class Pause(_Command):
    """Have a re-encryption wait until "encryption resume".

    A volume that moves meanwhile goes on at its new home.
    """

    method = 'encryption_pause'


class Resume(_Command):
    """Have a re-encryption go on that was paused."""

    method = 'encryption_resume'


class Run(base.VolumeCommand):
    """Be what re-encrypts a volume. The volume service runs it."""

    #: Not listed.
    deprecated = True
    takes_names = False

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Nothing, or no return: this process is cryptsetup then."""
        from cinder_localclone.core.formats import cryptsetup_cli
        from cinder_localclone.core import names
        from cinder_localclone.encryption import activate
        from cinder_localclone.encryption import pinning
        from cinder_localclone.encryption import unlock
        from cinder_localclone.storage.privsep import reencrypt_process
        backend, volume_id = self.app.backend(), parsed_args.volume
        backends.act_as_root(backend.settings)
        crypt = backend.crypt()
        header = crypt.header(volume_id)
        if header.reencryption is None:
            raise errors.CommandError(
                'Volume %s is not being re-encrypted.' % volume_id)
        present = backend.handles().survey()
        luks, secret = unlock.noted_on_body(present, volume_id)
        zone = unlock.facts_on_body(present, volume_id).get(names.ZONE, '')
        # The service has compared the header with the row, and noted the
        # secret, just before it started this.
        key = activate.key_of(
            crypt, backend.keys(), volume_id, header,
            pinning.Expected(secret, by_row=False), luks)
        reencrypt_process.become_cryptsetup(
            volume_id, key, header.reencryption.resilience,
            cryptsetup_cli.zone(zone))
