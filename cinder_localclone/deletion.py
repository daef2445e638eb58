# SPDX-License-Identifier: Apache-2.0
"""Deleting a volume, wherever its move is."""

from cinder import exception

from cinder_localclone.moves import checks
from cinder_localclone.moves import removal
from cinder_localclone.moves import source
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone.state import Event
from cinder_localclone.state import Phase


def delete(node: nodes.Node, context: ports.Context,
           volume: ports.Volume) -> None:
    """Remove all of a volume at its home; its source, if any, follows.

    What is gone already is done.

    :param context: the admin context in which peers are called
    :raises VolumeIsBusy: if something uses it, or it is between two nodes;
        its owner may try again
    """
    with node.lock(volume.id):
        source.abandon_interrupted(node, context, volume.id)
        move = node.records.move_of(volume.id)
        if move and move.phase is Phase.STARTING:
            raise exception.VolumeIsBusy(volume_name=volume.name)
        # After Cinder's own migration the LV bears another volume's
        # name, and that one's handle.
        handles = sorted({volume.id} | node.stack.survey().volumes_above(
            node.stack.group, volume.name))
        for volume_id in handles:
            removal.stop_serving(node, volume_id, None)
            if checks.users(node, volume_id):
                raise exception.VolumeIsBusy(volume_name=volume.name)
        if move is None or not move.committed:
            if move:
                node.exports.withdraw_source(move)
            for volume_id in handles:
                node.stack.remove_handle(volume_id)
            removal.remove_volume_lv(node, volume.name, volume.size)
            return
        removal.tear_down(node, move)
        if move.phase is not Phase.RELEASING:
            move = node.records.advance(move, Event.VOLUME_DELETED)
    node.peers.converge_soon(context, move.source, volume.id)
