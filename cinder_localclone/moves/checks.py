# SPDX-License-Identifier: Apache-2.0
"""Conditions on a node before a move goes on."""

from collections.abc import Mapping
import dataclasses

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import state


def check_free_space(host: str, free: lvm_reports.FreeSpace, size_bytes: int,
                     geometry: state.Geometry) -> None:
    """Check that a volume and its move metadata fit.

    :param host: service host of the node with this free space
    :param size_bytes: of the volume's LV
    :raises NoFreeSpace: if they do not fit
    """
    lack = free.lacks(size_bytes, geometry.metadata_bytes(size_bytes))
    if lack:
        raise exceptions.NoFreeSpace(
            host=host, size=size_bytes >> 30, reason=lack)


def check_block(host: str, own: int, of_volume: int) -> None:
    """Check that a node's disks have the logical block size of a volume.

    The data of a volume depends on it: partition tables and the sectors of
    file systems. A user of the open volume writes in blocks of this size,
    which larger blocks refuse. A move to smaller blocks would succeed, but the
    volume could never return.

    :param own: of the node's disks, in bytes
    :param of_volume: of the volume at its home, in bytes
    :raises NotReady: if they differ
    """
    if own != of_volume:
        raise exceptions.NotReady(
            host=host, reason='its disks have sectors of %d bytes, the '
            'volume has sectors of %d bytes' % (own, of_volume))


def check_space(node: Node, move: state.Move,
                lvs: Mapping[str, lvm_reports.LogicalVolume]) -> None:
    """Check that a volume about to move to this node fits now.

    The caller holds the allocation lock until the LVs are created.

    :param lvs: all LVs of this node
    :raises NoFreeSpace: if it does not fit
    """
    usage = node.lvm.pool_usage(lvs)
    if usage.is_full:
        raise exceptions.NoFreeSpace(
            host=node.host, size=move.size_gib, reason=str(usage))
    check_free_space(node.host, node.lvm.free_space(lvs), move.size_bytes,
                     move.geometry)


@dataclasses.dataclass(frozen=True)
class Holders:
    """The holders of a volume whose live move is in phase ``starting``.

    Cinder's attachments show who may use the volume. Only the kernel of a node
    shows whether its handle is open.

    :param source: whether an attachment is connected to another host than the
        destination
    :param destination: whether an attachment is connected to the destination
    :param pending: whether an attachment is not connected to any host (yet)
    """

    source: bool
    destination: bool
    pending: bool


def holders_of(node: Node, move: state.Move, volume: objects.Volume
               ) -> Holders:
    """Return the holders of a volume by its attachments."""
    connectors = [attachment.connector
                  for attachment in volume.volume_attachment]
    at = [node.is_at(connector, move.destination)
          for connector in connectors if connector]
    return Holders(
        source=not all(at), destination=any(at), pending=not all(connectors))


def may_go_forward(holders: Holders, source_users: int) -> bool:
    """Return whether the guest has left the source, so hydration may begin.

    With an attachment at the source this is unsafe, whatever else is true.
    Without it, the kernel has the last word.

    :param source_users: open count of the volume at the source
    """
    return not holders.source and not source_users


def may_go_back(holders: Holders, destination_users: int,
                written: bool) -> bool:
    """Return whether a live migration has ended at the source, without a call.

    :param destination_users: open count of the handle at the destination
    :param written: whether anything was written at the destination
    """
    return (holders.source and not holders.destination
            and not holders.pending and not destination_users
            and not written)
