# SPDX-License-Identifier: Apache-2.0
"""What a move that is over has left on a node: take it down.

That needs this node alone and stops nobody else, so the volume may be at
rest elsewhere, or moving again, by then: to this node too.
"""

from cinder_localclone.moves import offering
from cinder_localclone.moves import removal
from cinder_localclone import node as nodes
from cinder_localclone import state


def here(node: nodes.Node, volume_id: str) -> list[state.Move]:
    """The remains of a volume's moves that this node has to take down."""
    return [move for move in node.records.remains_of(volume_id)
            if move.cleanup_node == node.host]


def take_down(node: nodes.Node, move: state.Move) -> None:
    """Remove what a move has left here; it ends with that.

    :raises InvalidTransition: if it is not over
    """
    event = (state.Event.SOURCE_REMOVED if move.committed
             else state.Event.DESTINATION_REMOVED)
    move.token.after(event, move.committed)
    if move.committed:
        # Its own, and those of moves that failed before.
        offering.withdraw_above(node, move.source_lv)
        removal.remove_source(node, move)
    else:
        removal.tear_down(node, move)
    node.records.finish(move, event)
