# SPDX-License-Identifier: Apache-2.0
"""Report the state of a volume on this node.

:mod:`.inspection` finds the faults in the reports.
"""

import dataclasses
import typing

from cinder_localclone.core import copies
from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc


class Reconciler(typing.Protocol):
    """The part of :class:`.reconcile.Reconciler` for an inspection."""

    node: Node

    def progress(self, move_id: str) -> copies.Progress | None:
        """Return the last measured progress of a copy to this node."""


@rpc.method('inspect', prompt=True)
def inspect(reconciler: Reconciler, volume_id: str) -> inspection.Report:
    """Report everything about a volume on this node."""
    node = reconciler.node
    move = node.moves.move_of(volume_id)
    volume = node.volumes.volume(volume_id)
    handle_id = volume.handle_id if volume else volume_id
    present = node.handles.survey()
    wanted = {names.metadata_lv(move.move_id), move.source_lv,
              move.destination_lv} if move else set()
    wanted |= {lv.name for lv in present.lvs.values()
               if names.facts(lv.tags).get('of') == volume_id}
    if volume is not None:
        wanted.add(volume.name)
    for left in node.moves.pending_cleanups(volume_id):
        wanted |= inspection.lvs_of_pending_cleanups(left, node.host)
    report: inspection.Report = {
        'host': node.host, 'clone': None, 'session': None, 'progress': None,
        'handle': inspection.handle(present, handle_id),
        'lvs': [{'name': lv.name, 'uuid': lv.uuid, 'size': lv.size,
                 'active': bool(lv.number), 'tags': sorted(lv.tags)}
                for name, lv in sorted(present.lvs.items())
                if name in wanted],
        'exported': node.exports.is_exported(handle_id), 'source': None,
        'remote': (handle_id in node.sessions.remotes()
                   and present.is_handle_foreign(handle_id)),
        'upper_devices': [{'name': top.name, 'opened': top.opened}
                          for top in present.upper_devices(handle_id)],
        'header_backup': volume_id in node.crypt.backed_up_volumes(),
    }
    device = present.source(move.move_id) if move else None
    if move and device:
        report['source'] = {
            'opened': device.opened,
            'exported': node.exports.is_source_exported(move.move_id)}
    if move and present.clone(move.move_id):
        report['clone'] = dataclasses.asdict(
            node.clones.clone_status(move.move_id))
        report['session'] = node.sessions.disk(move)
        measured = reconciler.progress(move.move_id)
        report['progress'] = (dataclasses.asdict(measured) if measured
                              else None)
    return report
