# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone show``: one volume, by the records and by its nodes."""

import argparse
from collections.abc import Iterator

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base
from cinder_localclone import inspection
from cinder_localclone import queue

Pairs = Iterator[tuple[str, str]]


class Show(base.VolumeCommand):
    """Show a volume: its records, what each node has of it, differences.

    Exits with 1 if a node differs from the records or does not answer.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend = self.app.backend()
        volume, move = backend.volume(parsed_args.volume)
        remains = backend.records.remains_of(parsed_args.volume)
        snapshots = backend.records.snapshots_of(parsed_args.volume)
        rows = [('record', *pair)
                for pair in _records(volume, move, remains, snapshots)]
        clean = True
        for host in backend.nodes():
            answer, problem = backend.ask(host, 'inspect', parsed_args.volume)
            wrong = [problem] if answer is None else inspection.differences(
                answer, move, backends.home_of(volume),
                backends.lv_of(volume), remains, snapshots)
            rows += [(host, *pair) for pair in _on_node(answer)]
            rows += [(host, 'DIFFERENCE', each) for each in wrong]
            clean = clean and not wrong
        self.app.exit_code = int(not clean)
        return ('Where', 'What', 'Value'), rows


def _records(volume, move, remains, snapshots) -> Pairs:
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
            move.display_phase,
            'committed' if move.committed else 'not committed')
        yield 'from', '%s, LV %s' % (move.source, move.source_lv)
        yield 'to', '%s, LV %s' % (move.destination, move.destination_lv)
        yield 'shadow', move.shadow_id
    for each in snapshots:
        yield 'snapshot', '%s: %s, on %s' % (
            each.id, each.status, each.node or 'no node')
    for each in remains:
        yield each.display_phase, 'cleaning up on %s, LV %s' % (
            each.cleanup_node, each.cleanup_lv)


def _on_node(answer) -> Pairs:
    for lv in (answer or {}).get('lvs', ()):
        gib, mib = divmod(lv['size'] >> 20, 1024)
        yield 'LV', '%s, %s%s' % (
            lv['name'], '%d GiB' % gib if gib else '%d MiB' % mib,
            '' if lv['active'] else ', not active')
    if answer and answer['handle']:
        yield 'handle', 'on %s, open count %d' % (
            ', '.join(answer['handle']['on']), answer['handle']['opened'])
    if answer and answer['clone']:
        yield 'clone', '%(hydrated)d of %(regions)d regions, mode ' \
            '%(mode)s' % answer['clone']
    if answer and inspection.place(answer):
        yield 'copy', queue.in_words(inspection.place(answer))
    if answer and answer['session']:
        yield 'source disk', answer['session']
    if answer and answer['source']:
        yield 'source device', 'open count %d, %s' % (
            answer['source']['opened'], 'exported to its destination'
            if answer['source']['exported'] else 'not exported')
    if answer and answer['served']:
        yield 'exported', 'to hosts without the backend'
