# SPDX-License-Identifier: Apache-2.0
"""What must be true on a node before a move goes on."""

from collections.abc import Mapping
import dataclasses

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import state


def check_free_space(host: str, free: lvm_reports.FreeSpace, size_bytes: int,
                     geometry: state.Geometry) -> None:
    """A volume and its move metadata fit.

    :param host: whose free space it is
    :param size_bytes: of the volume's body
    :raises NoFreeSpace: if they do not
    """
    lack = free.lacks(size_bytes, geometry.metadata_bytes(size_bytes))
    if lack:
        raise exceptions.NoFreeSpace(
            host=host, size=size_bytes >> 30, reason=lack)


def check_block(host: str, own: int, of_volume: int) -> None:
    """A node's disks have the logical block size of a volume.

    What is on a volume is laid out for it: partition tables and the sectors
    of file systems. A user that has the volume open writes in blocks of it,
    which larger ones refuse. A move to smaller ones would succeed, but the
    volume could never return.

    :param own: of the node's disks, in bytes
    :param of_volume: of the volume where it is, in bytes
    :raises NotReady: if they differ
    """
    if own != of_volume:
        raise exceptions.NotReady(
            host=host, reason='its disks have sectors of %d bytes, the '
            'volume has sectors of %d bytes' % (own, of_volume))


def check_space(node: Node, move: state.Move,
                lvs: Mapping[str, lvm_reports.LogicalVolume]) -> None:
    """A volume that is about to arrive fits on this node, as it is now.

    For a caller that holds the lock of free space, until it is taken.

    :param lvs: all that there are
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
    """Who holds a volume whose live move is in phase ``starting``.

    The attachments are what Cinder says; whether a handle is open is what a
    kernel says, which only its own node can tell.

    :param source: an attachment is connected to another host than the
        destination
    :param destination: an attachment is connected to the destination
    :param pending: an attachment is not connected to any host (yet)
    """

    source: bool
    destination: bool
    pending: bool


def holders_of(node: Node, move: state.Move, volume: objects.Volume
               ) -> Holders:
    """Return who holds a volume, as its attachments say."""
    connectors = [attachment.connector
                  for attachment in volume.volume_attachment]
    at = [node.is_at(connector, move.destination)
          for connector in connectors if connector]
    return Holders(
        source=not all(at), destination=any(at), pending=not all(connectors))


def may_go_forward(holders: Holders, source_users: int) -> bool:
    """Whether the guest has left the source, so that hydration may begin.

    A source attachment that survives means "unsafe", whatever else is true;
    without one, it is the kernel that has the last word.

    :param source_users: how many have the volume open at the source
    """
    return not holders.source and not source_users


def may_go_back(holders: Holders, destination_users: int,
                written: bool) -> bool:
    """Whether a live migration was given up without a call that says so.

    :param destination_users: how many have the handle open there
    :param written: whether anything was written at the destination
    """
    return (holders.source and not holders.destination
            and not holders.pending and not destination_users
            and not written)
