# SPDX-License-Identifier: Apache-2.0
"""What must be true on a node before a move goes on."""

from collections.abc import Mapping

from cinder.volume import volume_utils

from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import served
from cinder_localclone import state


def is_home(node: nodes.Node, volume: ports.Volume) -> bool:
    """Whether this node is a volume's home."""
    return bool(volume_utils.extract_host(volume.host) == node.host)


def volume_at_home(node: nodes.Node, volume_id: str) -> ports.Volume:
    """A volume whose home is this node.

    :raises StaleMove: if it is not (any more), or the volume is gone
    """
    volume = node.records.volume(volume_id)
    if volume is None or not is_home(node, volume):
        raise exceptions.StaleMove(volume=volume_id)
    return volume


def check_free_space(host: str, free: reports.FreeSpace, size_gib: int,
                     geometry: state.Geometry) -> None:
    """A volume and its move metadata fit.

    :param host: whose free space it is
    :raises NoFreeSpace: if they do not
    """
    size = size_gib << 30
    lack = free.lacks(size, geometry.metadata_bytes(size))
    if lack:
        raise exceptions.NoFreeSpace(host=host, size=size_gib, reason=lack)


def why_pinned(volume: ports.Volume) -> str | None:
    """Why a volume must stay where it is, if it must."""
    if volume.group_id:
        return 'it belongs to a group'
    if records.is_migrated_by_cinder(volume):
        return 'Cinder is migrating it to another backend'
    return None


def check_room(node: nodes.Node, move: state.Move,
               lvs: Mapping[str, reports.LogicalVolume]) -> None:
    """A volume that is about to arrive fits on this node, as it is now.

    For a caller that holds the lock of free space, until it is taken.

    :param lvs: all that there are
    :raises NoFreeSpace: if it does not fit
    """
    usage = node.stack.pool_usage(lvs)
    if usage.is_full:
        raise exceptions.NoFreeSpace(
            host=node.host, size=move.size_gib, reason=str(usage))
    check_free_space(node.host, node.stack.free_space(lvs), move.size_gib,
                     move.geometry)


def unnamed_exports(node: nodes.Node, volume: ports.Volume,
                    move: state.Move | None) -> set[str]:
    """The iSCSI names of a volume's exports that no attachment names.

    :param move: the volume's move, if one is under way
    """
    return served.unnamed(
        volume, move, node.host, node.exports.portal,
        node.exports.remote().get(rows.handle_id(volume), set()))


def users(node: nodes.Node, volume_id: str) -> int:
    """How many on this node use a volume's handle.

    All iSCSI initiators that it is served to count as one. The destination
    of a move is none of them: it reads the source device.
    """
    handle = node.stack.devices().get(names.handle(volume_id))
    opened = handle.opened if handle else 0
    return opened - bool(opened and node.exports.opens_in_vain(volume_id))


def check_closed(node: nodes.Node, volume_id: str) -> None:
    """Nothing uses a volume on this node.

    :raises SourceBusy: if anything has the handle open
    """
    count = users(node, volume_id)
    if count:
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=count,
            device=names.handle(volume_id))
