# SPDX-License-Identifier: Apache-2.0
"""What must be true on a node before a move goes on."""

from collections.abc import Mapping

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state


def check_arrived(node: Node, volume: objects.Volume,
                  present: survey.Survey) -> None:
    """Nothing is left of a move to here whose record is gone.

    Of such a volume regions may still be at a source that nothing names.

    :param present: what there is on this node
    :raises MissingData: if there is
    """
    if present.metadata(volume.name_id):
        raise exceptions.MissingData(
            what='The move record', volume=volume.id, host=node.host)


def check_in_time(volume: objects.Volume, host: str | None,
                  connector: objects.Connector | None,
                  attachments: objects.Attachments) -> None:
    """A request to connect a volume is not older than its attachment.

    :param host: where it is to be connected
    :param connector: that host's; None if all attachments may be meant
    :param attachments: those that there were when it was made
    :raises Refused: if it is
    """
    if volume_attachments.is_late_to_connect(volume, connector, attachments):
        raise exceptions.Refused(
            volume=volume.id, host=host, reason='the request came late: its '
            'attachment does not exist any more, and the volume has another '
            'one.')


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


def why_pinned(volume: objects.Volume) -> str | None:
    """Why a volume must stay where it is, if it must."""
    if volume.group_id:
        return 'it belongs to a group'
    if rows.is_migrated_by_cinder(volume):
        return 'Cinder is migrating it to another backend'
    return None


def check_room(node: Node, move: state.Move,
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


def unnamed_exports(node: Node, volume: objects.Volume,
                    move: state.Move | None) -> set[str]:
    """The iSCSI names of a volume's exports that no attachment names.

    :param move: the volume's move, if one is under way
    """
    return volume_attachments.unnamed(
        volume, move, nodes.as_told(node),
        node.exports.remote().get(rows.handle_id(volume), set()))
