# SPDX-License-Identifier: Apache-2.0
"""Volumes at rest, with headers that this node may write."""

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import pinning
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume


def volume(node: Node, volume_id: str) -> Volume:
    """Return a volume at rest on its home, and ensure its handle.

    No other node has its header open. The caller holds the volume's lock.

    :raises StaleMove: if this node is not the volume's home
    :raises NotAtRest: if the volume is moving, or remotely attached
    :raises KeyNotChanged: if the driver does not encrypt the volume, or its
        status forbids a change
    """
    found = nodes.volume_at_home(node, volume_id)
    if found.encryption is None:
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='this driver does not encrypt it')
    if found.status in statuses.HEADER_CHANGES:
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='its status is "%s"' % found.status)
    if (node.moves.move_of(volume_id)
            or found.is_migrated_by_cinder
            or node.handles.survey().metadata(found.name_id)
            or volume_id in node.exports.remote()
            or any(nodes.remote_from(node, found))):
        raise encryption_exceptions.NotAtRest(volume=volume_id)
    node.handles.ensure_handle_on_lv(volume_id, found.name,
                                     found.backing_bytes())
    return found


def to_change(node: Node, volume: Volume) -> luks_header.Header:
    """Return the header of a volume at rest, with both copies repaired.

    :param volume: its row
    :raises ForeignHeader: if the header differs from the pin in the row
    :raises KeyNotChanged: if the volume is being re-encrypted
    :raises HeaderDamaged: if the header can't be read
    """
    volume_id = volume.id
    header = node.crypt.header(volume_id, repair=True)
    if header.reencryption:
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='it is being re-encrypted')
    pinning.check(volume_id, header,
                  pinning.recorded_in_row(volume.encryption))
    return header
