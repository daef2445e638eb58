# SPDX-License-Identifier: Apache-2.0
"""What moves, how far it is, what stands where; and settling it by hand."""

import time

from cliff import lister
from rich import console
from rich import progress as bars

from cinder_localclone.cmd import backend as backends
from cinder_localclone import exceptions
from cinder_localclone import inspection
from cinder_localclone import repair
from cinder_localclone.state import Phase

COLUMNS = ('Volume', 'From', 'To', 'Phase', 'Size GiB', 'Percent',
           'MiB/s', 'Seconds left', 'Remark')


def follow(backend) -> list[dict]:
    """One dictionary for each move, as it is at this moment."""
    return [_row(backend, each) for each in backend.records.moves()]


def _row(backend, move):
    row = dict(zip(COLUMNS, (
        move.volume_id, move.source, move.destination,
        move.phase.value, move.size_gib)))
    row.update({'Percent': None, 'MiB/s': None, 'Seconds left': None,
                'Remark': '' if move.committed else 'being prepared'})
    if not move.committed or not move.destination:
        return row
    if move.phase in (Phase.COMPLETING, Phase.RELEASING):
        row['Percent'] = 100.0
        return row
    found, problem = backend.ask(
        move.destination, 'inspect', move.volume_id)
    clone = (found or {}).get('clone')
    if not clone:
        row['Remark'] = problem or 'there is no clone'
        return row
    row['Percent'] = round(
        100.0 * clone['hydrated'] / max(1, clone['regions']), 1)
    seen = found['progress']
    if seen and seen['rate']:
        row['MiB/s'] = round(seen['rate'] / (1 << 20), 1)
        row['Seconds left'] = round(seen['seconds_left'])
    if move.phase is Phase.STARTING:
        row['Remark'] = 'copying waits for the source to be detached'
    elif clone['mode'] != 'rw':
        row['Remark'] = 'the clone is in mode ' + clone['mode']
    elif seen and seen.get('pause'):  # older services do not say
        row['Remark'] = 'copying fails; see the log of the destination'
    return row


class Moves(lister.Lister):
    """List the volumes that move: from where, how far, how fast."""

    def get_parser(self, name):
        parser = super().get_parser(name)
        parser.add_argument('--watch', action='store_true',
                            help='show progress bars until nothing moves')
        parser.add_argument('--seconds', type=float, metavar='N',
                            help='watch for at most N seconds')
        return parser

    def take_action(self, args):
        backend = self.app.backend()
        if args.watch:
            self._watch(backend, args.seconds)
        rows = follow(backend)
        return COLUMNS, [tuple(row.values()) for row in rows]

    @staticmethod
    def _watch(backend, seconds):
        deadline = time.monotonic() + seconds if seconds else None
        with bars.Progress(
                bars.TextColumn('{task.description}'), bars.BarColumn(),
                bars.TaskProgressColumn(),
                bars.TextColumn('{task.fields[rest]}'),
                console=console.Console(stderr=True)) as shown:
            tasks = {}
            while deadline is None or time.monotonic() < deadline:
                rows = follow(backend)
                for row in rows:
                    key = row['Volume']
                    if key not in tasks:
                        tasks[key] = shown.add_task('%s %s > %s' % (
                            key, row['From'], row['To']), total=100, rest='')
                    rate = row['MiB/s']
                    shown.update(
                        tasks[key], completed=row['Percent'] or 0,
                        rest='%s  %s' % (row['Phase'], row['Remark'] or (
                            '%s MiB/s  %s s left' % (
                                rate, row['Seconds left']) if rate else '')))
                for key in set(tasks) - {row['Volume'] for row in rows}:
                    shown.update(tasks[key], completed=100, rest='done')
                if not rows:
                    return
                time.sleep(1)


class _OfVolume(lister.Lister):
    """Base of the commands about one volume."""

    def get_parser(self, name):
        parser = super().get_parser(name)
        parser.add_argument('volume', metavar='VOLUME', help='its id')
        return parser


class Show(_OfVolume):
    """Show a volume: its records, what stands on each node, differences.

    Exits with 1 if a node differs from the records or does not answer.
    """

    def take_action(self, args):
        backend = self.app.backend()
        volume, move = backend.volume(args.volume)
        rows = [('record', *pair) for pair in _records(volume, move)]
        clean = True
        for host in backend.nodes():
            found, problem = backend.ask(host, 'inspect', args.volume)
            wrong = [problem] if found is None else inspection.differences(
                found, move, backends.home_of(volume),
                backends.lv_of(volume))
            rows += [(host, *pair) for pair in _standing(found)]
            rows += [(host, 'DIFFERENCE', each) for each in wrong]
            clean = clean and not wrong
        self.app.exit_code = int(not clean)
        return ('Where', 'What', 'Value'), rows


def _records(volume, move):
    if volume is not None:
        yield 'status', volume.status
        yield 'home', volume.host
        yield 'LV', volume.name
        yield 'migration status', volume.migration_status
        for each in volume.volume_attachment:
            yield 'attachment', '%s: instance %s on %s' % (
                each.attach_status, each.instance_uuid,
                (each.connector or {}).get('host'))
    if move is not None:
        yield 'move', '%s, %s' % (
            move.phase.value,
            'committed' if move.committed else 'not committed')
        yield 'from', '%s, LV %s' % (move.source, move.source_lv)
        yield 'to', '%s, LV %s' % (move.destination,
                                   move.destination_lv)
        yield 'shadow', move.shadow_id


def _standing(found):
    for lv in (found or {}).get('lvs', ()):
        gib, mib = divmod(lv['size'] >> 20, 1024)
        yield 'LV', '%s, %s%s' % (
            lv['name'], '%d GiB' % gib if gib else '%d MiB' % mib,
            '' if lv['active'] else ', not active')
    if found and found['handle']:
        yield 'handle', 'on %s, open %d times' % (
            ', '.join(found['handle']['on']), found['handle']['opened'])
    if found and found['clone']:
        yield 'clone', '%(hydrated)d of %(regions)d regions, mode ' \
            '%(mode)s' % found['clone']
    if found and found['session']:
        yield 'source disk', found['session']
    if found and found['served'][0]:
        yield 'exported', 'to %s' % (
            'others' if found['served'][1] else 'its destination')


class Repair(lister.Lister):
    """Take the next safe steps for a volume, or for all; say what was done.

    The same code as the services' own periodic look. Exits with 1 if
    something is in the way or, with --dry-run, differs.
    """

    def get_parser(self, name):
        parser = super().get_parser(name)
        parser.add_argument('volume', metavar='VOLUME', nargs='?',
                            help='its id; default: all volumes')
        parser.add_argument('--dry-run', action='store_true',
                            help='only say what differs from the records')
        return parser

    def take_action(self, args):
        backend = self.app.backend()
        volumes = [args.volume] if args.volume else self._all(backend)
        alive = backend.nodes()
        rows, clean = [], True
        for volume_id in volumes:
            volume, move = backend.volume(volume_id)
            hosts = {move.destination, move.source} if move else (
                {backends.home_of(volume)})
            for host in sorted(hosts - {None}):
                if not (args.volume or alive.get(host)):
                    found, fine = ['its service is down: not asked'], False
                else:
                    found, fine = self._one(backend, host, volume_id, volume,
                                            move, args.dry_run)
                rows += [(volume_id, host, text) for text in found]
                clean = clean and fine
        self.app.exit_code = int(not clean)
        return ('Volume', 'Where', 'What'), rows

    @staticmethod
    def _all(backend):
        volumes = {each.volume_id for each in backend.records.moves()}
        for host in backend.nodes():
            volumes |= {each.id for each in backend.records.volumes_of(host)}
        return sorted(volumes)

    @staticmethod
    def _one(backend, host, volume_id, volume, move, dry_run):
        """What was done, or differs, on one node; and whether that is all."""
        method = 'inspect' if dry_run else 'repair'
        found, problem = backend.ask(host, method, volume_id)
        if found is None:
            return [problem], False
        if not dry_run:
            return found, not any(
                text.startswith(repair.IN_THE_WAY) for text in found)
        wrong = inspection.differences(found, move,
                                       backends.home_of(volume),
                                       backends.lv_of(volume))
        return ['differs: ' + each for each in wrong], not wrong


class _Settle(_OfVolume):
    """Base of the commands that settle one move."""

    def take_action(self, args):
        backend = self.app.backend()
        _volume, move = backend.volume(args.volume)
        if move is None:
            raise exceptions.NotPossible(volume=args.volume,
                                         reason='it has no move.')
        host = self.where(move)
        getattr(backend.peers, self.method)(
            backend.context, host, args.volume)
        return ('Volume', 'Where', 'What'), [
            (args.volume, host, self.done)]


class Abort(_Settle):
    """Roll a move back, as far as that loses nothing.

    One that is not committed, or a live migration whose guest never left:
    refused if the destination has the volume open or was written to.
    """

    method = 'abort'
    done = 'the volume is at its source; the rest is being removed.'

    @staticmethod
    def where(move):
        return (move.destination if move.committed
                else move.source)


class Resume(_Settle):
    """Let a move go on that an attachment holds back.

    After a live migration whose detach of the source was lost: refused
    while anything has the volume open on the source.
    """

    method = 'resume'
    done = 'it goes on.'

    @staticmethod
    def where(move):
        return (move.source if move.phase is Phase.STARTING
                else move.destination)
