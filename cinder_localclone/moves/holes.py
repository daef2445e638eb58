# SPDX-License-Identifier: Apache-2.0
"""Holes of a source, read after the switch to the destination.

In a live move and in a deferred move, the guest writes to the source until the
handle is on the clone. So the destination asks for the source's map only after
this switch, right before the copy begins. In any other move the source itself
reads its map before the commit: see :class:`.source.MapHoles`.

:mod:`.refill` asks for the source's map in every move, to compare the copy.
"""

from collections.abc import Iterator
import contextlib

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state

LOG = logging.getLogger(__name__)


def leave_out(node: Node, move: state.Move) -> None:
    """Leave the source's holes out of the copy, at the destination.

    Does nothing without the tag "unmapped" of the move. The tag is removed
    before the attempt, so there is no second attempt. Without a map everything
    is copied.

    :param move: its handle is on the clone, which does not hydrate yet
    :raises CommandTimeout: if the kernel hangs; then nothing may be copied
    """
    if not node.clones.needs_hole_search(move):
        return
    holes: thin_map.Holes = ()
    with _logging_errors(move):
        node.clones.note_holes_searched(move)
        holes = _common_holes(node, move)
    with _logging_errors(move, exceptions.CommandTimeout):
        node.clones.leave_out(move, holes)


@contextlib.contextmanager
def _logging_errors(move: state.Move, *fatal: type[Exception]
                    ) -> Iterator[None]:
    """Log an error and raise nothing: everything is copied then.

    :param fatal: errors to raise, because no copy may begin after them
    """
    try:
        yield
    except fatal:
        raise
    except (exceptions.LocalCloneError, OSError, ValueError) as exc:
        LOG.warning('Holes of volume %(volume)s are copied, too: %(error)s',
                    {'volume': move.volume_id, 'error': exc})


def _common_holes(node: Node, move: state.Move) -> thin_map.Holes:
    """Return the ranges that read as zeros on source and destination.

    The guest may write to the clone meanwhile. Ranges written so far are
    mapped at the destination, so they are no holes. The clone leaves ranges
    written later alone.
    """
    if not (node.lvm.reads_zeros(move.destination_lv)
            and node.services.alive_by_host().get(move.source)):
        return ()
    found = rpc.call_at(move.source, source_holes, node, move.move_id,
                        move.token.nonce)
    return found and thin_map.intersection(found, node.lvm.holes(
        move.destination_lv, move.size_bytes, move.geometry))


@rpc.method('holes', rpc.SOURCE)
def source_holes(node: Node, move_id: str, nonce: str
                 ) -> thin_map.Holes:
    """Return the holes of a move's source after the switch.

    Nothing writes to the source any more, so no lock is taken here. The
    destination does not always hold the volume's lock, either.

    :raises StaleMove: if the move does not copy from this node
    :raises OddMap: if the pool's map is unclear
    """
    move = node.moves.get_move(move_id)
    if not (move and move.token.nonce == nonce and move.committed
            and move.source == node.host
            and move.phase is state.Phase.MIGRATING):
        raise exceptions.StaleMove(
            volume=move.volume_id if move else 'of move record ' + move_id)
    return node.lvm.holes(move.source_lv, move.size_bytes, move.geometry,
                          patient=True)
