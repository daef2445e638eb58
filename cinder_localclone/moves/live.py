# SPDX-License-Identifier: Apache-2.0
"""Live moves whose detach call was lost: what their attachments say."""

import dataclasses

from cinder_localclone.core import events
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import state
from cinder_localclone.encryption import devices
from cinder_localclone.moves import destination
from cinder_localclone.moves import source


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


def _holders(node: Node, move: state.Move, volume: objects.Volume
             ) -> Holders:
    connectors = [attachment.connector
                  for attachment in volume.volume_attachment]
    at = [node.is_at(connector, move.destination)
          for connector in connectors if connector]
    return Holders(
        source=not all(at), destination=any(at), pending=not all(connectors))


def release_if_detached(node: Node, context: objects.Context,
                        move: state.Move, volume: objects.Volume) -> None:
    """At the source: it was detached, and no call has said so."""
    users = devices.users(node, move.volume_id)
    if may_go_forward(_holders(node, move, volume), users):
        events.say(events.SOURCE_LEFT, volume=move.volume_id,
                   host=move.destination)
        source.source_released(node, context, move)


def roll_back_if_dropped(node: Node, context: objects.Context,
                         move: state.Move, volume: objects.Volume) -> None:
    """At the destination: the migration was dropped without a call."""
    users = devices.users(node, move.volume_id)
    written = destination.written_regions(node, move)
    if may_go_back(_holders(node, move, volume), users,
                   bool(written)):
        events.say(events.LIVE_GIVEN_UP, volume=move.volume_id)
        destination.roll_back_live(node, context, move)


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
