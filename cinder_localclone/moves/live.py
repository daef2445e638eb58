# SPDX-License-Identifier: Apache-2.0
"""Live moves whose detach call was lost: what their attachments say."""


from cinder_localclone import decision
from cinder_localclone import events
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import state
from cinder_localclone import tops


def _holders(node: nodes.Node, move: state.Move, volume: ports.Volume
             ) -> decision.Holders:
    connectors = [attachment.connector
                  for attachment in volume.volume_attachment]
    at = [node.is_at(connector, move.destination)
          for connector in connectors if connector]
    return decision.Holders(
        source=not all(at), destination=any(at), pending=not all(connectors))


def release_if_detached(node: nodes.Node, context: ports.Context,
                        move: state.Move, volume: ports.Volume) -> None:
    """At the source: it was detached, and no call has said so."""
    users = tops.users(node, move.volume_id)
    if decision.may_go_forward(_holders(node, move, volume), users):
        events.say(events.SOURCE_LEFT, volume=move.volume_id,
                   host=move.destination)
        source.source_released(node, context, move)


def roll_back_if_dropped(node: nodes.Node, context: ports.Context,
                         move: state.Move, volume: ports.Volume) -> None:
    """At the destination: the migration was dropped without a call."""
    users = tops.users(node, move.volume_id)
    written = destination.written_regions(node, move)
    if decision.may_go_back(_holders(node, move, volume), users,
                            bool(written)):
        events.say(events.LIVE_GIVEN_UP, volume=move.volume_id)
        destination.roll_back_live(node, context, move)
