# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone volume show``: a volume in records and on nodes."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import typing

from cinder_localclone.cmd import base
from cinder_localclone.core import copies
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.service import operator as backends

#: (kind, text, values).
Said = Iterator[tuple[str, str, typing.Any]]


class Show(base.VolumeCommand):
    """Show a volume: its records, its devices on each node, differences.

    The exit code is 1 if a node differs from the records or does not answer.
    """

    example = 'volume show data'

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """Return the rows of the table."""
        backend = self.app.backend()
        volume, move = backend.volume(parsed_args.volume)
        pending = backend.db.moves.pending_cleanups(parsed_args.volume)
        snapshots = backend.db.snapshots.snapshots_of(parsed_args.volume)
        said = [('record', *each)
                for each in _records(volume, move, pending, snapshots)]
        clean = True
        for host in backend.nodes():
            answer, problem = backend.ask(host, 'inspect', parsed_args.volume)
            wrong = [problem] if answer is None else inspection.differences(
                answer, move, backends.home_of(volume),
                backends.lv_of(volume), pending, snapshots)
            said += [(host, *each) for each in _on_node(answer)]
            said += [(host, 'DIFFERENCE', each, None) for each in wrong]
            clean = clean and not wrong
        self.app.exit_code = int(not clean)
        return base.with_fields(
            (('Where', 'What', 'Value'), [row[:3] for row in said]),
            [row[3] for row in said], parsed_args.formatter == 'json')


def _records(volume: objects.Volume | None, move: state.Move | None,
             pending: Iterable[state.Move],
             snapshots: Iterable[rows.Snapshot]
             ) -> Said:
    if volume is not None:
        yield 'status', volume.status, None
        yield 'home', (volume.home if volume.is_misplaced
                       else volume.host), None
        yield 'LV', volume.name, None
        yield 'migration status', volume.migration_status, None
        for each in volume.volume_attachment:
            host = (each.connector or {}).get('host')
            yield 'attachment', '%s: instance %s on %s' % (
                each.attach_status, each.instance_uuid, host), {
                    'status': each.attach_status, 'host': host,
                    'instance': each.instance_uuid}
    if move is not None:
        yield 'move', '%s, %s' % (
            move.display_phase,
            'committed' if move.committed else 'not committed'), {
                'phase': move.display_phase, 'committed': move.committed}
        for what, host, lv in (
                ('from', move.source, move.source_lv),
                ('to', move.destination, move.destination_lv)):
            yield what, '%s, LV %s' % (host, lv), {'host': host, 'lv': lv}
        yield 'record', move.move_id, None
    for each in snapshots:
        yield 'snapshot', '%s: %s, on %s' % (
            each.id, each.status, each.node or 'no node'), {
                'id': each.id, 'status': each.status, 'node': each.node}
    for each in pending:
        yield each.display_phase, 'cleaning up on %s, LV %s' % (
            each.cleanup_node, each.cleanup_lv), {
                'host': each.cleanup_node, 'lv': each.cleanup_lv}


def _on_node(answer: inspection.Report | None) -> Said:
    for lv in answer.get('lvs', ()) if answer else ():
        gib, mib = divmod(lv['size'] >> 20, 1024)
        yield 'LV', '%s, %s%s' % (
            lv['name'], '%d GiB' % gib if gib else '%d MiB' % mib,
            '' if lv['active'] else ', not active'), lv
    if answer and answer['handle']:
        yield 'handle', 'on %s%s, open count %d' % (
            ', '.join(answer['handle']['on']),
            ', attached remotely' if answer['remote'] else '',
            answer['handle']['opened']), answer['handle']
    for top in answer['upper_devices'] if answer else ():
        yield ('header guard' if names.volume_of_guard(top['name']) else
               'crypt device'), '%s, open count %d' % (
            top['name'], top['opened']), top
    if answer and answer['clone']:
        yield 'clone', '%(hydrated)d of %(regions)d regions, mode ' \
            '%(mode)s' % answer['clone'], answer['clone']
    if answer and inspection.position(answer):
        yield 'copy', copies.position_in_words(
            inspection.position(answer)), answer['progress']
    if answer and answer['session']:
        yield 'source disk', answer['session'], None
    if answer and answer['source']:
        yield 'source device', 'open count %d, %s' % (
            answer['source']['opened'], 'exported to its destination'
            if answer['source']['exported'] else 'not exported'), (
                answer['source'])
    if answer and answer['exported']:
        yield 'exported', 'to hosts without the backend', None
