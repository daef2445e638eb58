# SPDX-License-Identifier: Apache-2.0
"""What of a node needs nothing, as far as a glance tells.

A look comes every few seconds, and nearly always all is as it was. So what
the node has is asked for once for all, and no volume's lock is waited for.
By then it may be otherwise: a glance only ever says that nothing is to be
done now. Whatever seems to differ is looked at anew, with its volume's lock,
by whoever is to act.
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
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses

LOG = logging.getLogger(__name__)


def is_being_deleted(volume: objects.Volume,
                     survey: Callable[[], surveys.Survey]) -> bool:
    """Whether a volume that is at home here goes, or has gone.

    Of one in error nobody may have anything any more: its node was forgotten.

    :param survey: what there is on this node; it is seldom asked for
    """
    return (volume.status in statuses.BEING_DELETED
            or volume.status == 'error' and not survey().has(
                volume.id, volume.name))


def is_left_alone(volume: objects.Volume,
                  survey: Callable[[], surveys.Survey]) -> bool:
    """The same of one at rest; or whether it is created, or taken over."""
    return (volume.status in statuses.BEING_CREATED | statuses.CHANGING_OWNER
            or is_being_deleted(volume, survey))


def lacks_handle(present: surveys.Survey, volume: objects.Volume) -> bool:
    """Whether a volume at rest here has no handle on all of its LV."""
    try:
        return not expected.is_as(
            expected.at_rest(volume.name), present, volume.id,
            rows.backing_bytes(volume))
    except exceptions.NotPossible:
        return True  # whoever goes to make it reports why that can't be


def exported_on(node: Node, moves: Collection[state.Move]) -> set[str]:
    """The volumes that are copied from here, for which all is there.

    Their source is what the destination reads, and nobody has them here any
    more. The database is not asked for each: what would need its answer is
    none of these.

    :param moves: all those from and to this node, as they are recorded now
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
    except Exception as exc:  # whatever it is: all is looked at then
        LOG.warning('The copies from this node could not be read together: '
                    '%s', exc)
        return set()
    return {move.volume_id for move in found
            if _is_source(devices.get(names.source(move.move_id)), move)
            and names.handle(move.volume_id) not in devices
            and move.volume_id not in remote and _is_exported(node, move)}


def _is_source(device: dm_tables.Device | None, move: state.Move
               ) -> bool:
    """Whether there is one; it has its LV open, which so stays the same."""
    return bool(device and device.target == 'linear' and not device.suspended
                and device.sectors * state.SECTOR == move.size_bytes)


def _is_exported(node: Node, move: state.Move) -> bool:
    try:
        return node.exports.is_source_exported_as_recorded(move)
    except Exception:  # who goes to offer it says what is the matter
        return False
