# SPDX-License-Identifier: Apache-2.0
"""Conditions for the steps of a move: free space, blocks and users."""

from collections.abc import Mapping
import dataclasses

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume


def check_free_space(host: str, free: lvm_reports.FreeSpace, size_bytes: int,
                     geometry: state.Geometry) -> None:
    """Check that a volume and the metadata of its move fit in the free space.

    The source also checks a destination with this, before the move begins.

    :param host: service host of the node with this free space
    :param size_bytes: length of the volume's LV
    :param geometry: of the clone of the move
    :raises NoFreeSpace: if they do not fit
    """
    lack = free.why_too_small(size_bytes, geometry.metadata_bytes(size_bytes))
    if lack:
        raise exceptions.NoFreeSpace(
            host=host, size=size_bytes >> 30, reason=lack)


def check_block(host: str, own: int, of_volume: int) -> None:
    """Check that a node's disks have the logical block size of a volume.

    The data of a volume depends on this size: partition tables and the sectors
    of file systems. A guest with the volume open writes blocks of this size. A
    disk with larger blocks refuses such writes. A move to a disk with smaller
    blocks would succeed, but the volume could never return.

    :param host: service host of the node
    :param own: logical block size of the node's disks, in bytes
    :param of_volume: logical block size of the volume at its home, in bytes
    :raises NotReady: if they differ
    """
    if own != of_volume:
        raise exceptions.NotReady(
            host=host, reason='its disks have sectors of %d bytes, the '
            'volume has sectors of %d bytes' % (own, of_volume))


def check_space(node: Node, move: state.Move,
                lvs: Mapping[str, lvm_reports.LogicalVolume]) -> None:
    """Check at the destination that a volume fits, before its LVs are created.

    Unlike :func:`check_free_space` this also refuses a full pool. The caller
    holds the allocation lock until the LVs are created.

    :param lvs: all LVs of this node
    :raises NoFreeSpace: if the volume does not fit
    """
    usage = node.lvm.pool_usage(lvs)
    if usage.is_full:
        raise exceptions.NoFreeSpace(
            host=node.host, size=move.size_gib, reason=str(usage))
    check_free_space(node.host, node.lvm.free_space(lvs), move.size_bytes,
                     move.geometry)


@dataclasses.dataclass(frozen=True)
class Holders:
    """The hosts with attachments of a volume in a live move.

    The move is in phase ``starting``: the volume may be attached on both
    nodes. An attachment shows that a host may use the volume. Only the kernel
    of a node shows whether its handle is open.

    :param source: whether an attachment is connected to another host than the
        destination: normally to the source
    :param destination: whether an attachment is connected to the destination
    :param pending: whether an attachment is not connected to any host (yet)
    """

    source: bool
    destination: bool
    pending: bool


def holders_of(node: Node, move: state.Move, volume: Volume) -> Holders:
    """Return the hosts with attachments of a volume in a live move."""
    connectors = [attachment.connector
                  for attachment in volume.volume_attachment]
    at = [node.is_at(connector, move.destination)
          for connector in connectors if connector]
    return Holders(
        source=not all(at), destination=any(at), pending=not all(connectors))


def has_left_source(holders: Holders, source_users: int) -> bool:
    """Return whether the guest of a live move has left the source.

    Then hydration may begin. An attachment at the source forbids it, even if
    the volume is closed there. An open handle at the source forbids it as
    well.

    :param source_users: open count of the volume at the source
    """
    return not holders.source and not source_users


def was_given_up(holders: Holders, destination_users: int,
                 written: bool) -> bool:
    """Return whether a live migration was given up without a detach request.

    The guest has stayed at the source. Nova has deleted the attachment of the
    destination, but no request to detach the volume there has arrived. The
    move may be rolled back.

    :param destination_users: open count of the handle at the destination
    :param written: whether anything was written at the destination
    """
    return (holders.source and not holders.destination
            and not holders.pending and not destination_users
            and not written)
