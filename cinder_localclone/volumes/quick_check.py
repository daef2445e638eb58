# SPDX-License-Identifier: Apache-2.0
"""Quick checks: find the volumes of a node that need no work.

A sweep runs every few seconds, and nearly always nothing has changed. So the
devices of the node are listed only once, and no volume's lock is taken. The
result may be outdated, so it only decides which volumes are skipped. A volume
with a difference is checked again, with its lock, before any work.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core import expected
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume

LOG = logging.getLogger(__name__)


def is_being_deleted(volume: Volume,
                     survey: Callable[[], surveys.Survey]) -> bool:
    """Return whether a volume at home here is being deleted, or is gone.

    A volume in error may have nothing left on any node, after its node was
    forgotten.

    :param survey: returns the devices and LVs of this node; seldom called
    """
    return (volume.status in statuses.BEING_DELETED
            or volume.status == 'error' and not survey().has(
                volume.id, volume.name))


def is_left_alone(volume: Volume,
                  survey: Callable[[], surveys.Survey]) -> bool:
    """Return whether a sweep skips a volume at rest.

    It skips a volume that is created, deleted, managed or unmanaged.
    """
    return (volume.status in statuses.BEING_CREATED | statuses.CHANGING_OWNER
            or is_being_deleted(volume, survey))


def lacks_handle(present: surveys.Survey, volume: Volume) -> bool:
    """Return whether a volume at rest here has no handle on its whole LV."""
    try:
        return not expected.is_as(
            expected.at_rest(volume.name), present, volume.id,
            volume.backing_bytes())
    except exceptions.NotPossible:
        return True  # making the handle reports the reason


def exported_on(node: Node, moves: Collection[state.Move]) -> set[str]:
    """Return the volumes copied from here whose exports need no work.

    The destination reads their source, and no host uses them here any more.
    The database is not asked for each: moves in need of its answer are left
    out.

    :param moves: all moves from and to this node, as recorded now
    """
    count = collections.Counter(move.volume_id for move in moves)
    found = [move for move in moves
             if move.source == node.host and move.committed
             and move.phase in state.READS_SOURCE
             and not (move.keeps_handle or move.is_deferred)
             and count[move.volume_id] == 1]
    try:
        devices = node.handles.devices(
            [names.source(move.move_id) for move in found]
            + [names.handle(move.volume_id) for move in found]
        ) if found else {}
        remote = node.exports.remote() if devices else {}
    except Exception as exc:  # whatever the error: all volumes are checked
        LOG.warning('The quick check of the copies from this node has '
                    'failed; all of them are checked: %s', exc)
        return set()
    return {move.volume_id for move in found
            if _is_source(devices.get(names.source(move.move_id)), move)
            and names.handle(move.volume_id) not in devices
            and move.volume_id not in remote and _is_exported(node, move)}


def _is_source(device: dm_tables.Device | None, move: state.Move
               ) -> bool:
    """Return whether a device is the move's source.

    The open device keeps its LV, so the LV is still the same.
    """
    return bool(device and device.target == 'linear' and not device.suspended
                and device.sectors * state.SECTOR == move.size_bytes)


def _is_exported(node: Node, move: state.Move) -> bool:
    try:
        return node.exports.is_source_exported_as_recorded(move)
    except Exception:  # making the export reports the error
        return False
