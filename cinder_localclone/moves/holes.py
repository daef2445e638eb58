# SPDX-License-Identifier: Apache-2.0
"""What was never written of a source that a guest has used until it was left.

Of a live move, and of a volume that follows its instance, the source is
written until the handle is on the clone. So its map is taken when it was
left, by the destination, right before the copy begins; see
:class:`.source.MapHoles` for other moves.
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
    """At the destination: what need not be copied is not.

    Tried once. Without a map all is copied.

    :param move: whose handle is on the clone, which does not hydrate
    :raises CommandTimeout: if the kernel hangs; nothing may be copied now
    """
    if not node.clones.is_unmapped(move):
        return
    holes: thin_map.Holes = ()
    with _unless_it_fails(move):
        node.clones.note_mapped(move)
        holes = _in_both(node, move)
    with _unless_it_fails(move, exceptions.CommandTimeout):
        node.clones.leave_out(move, holes)


@contextlib.contextmanager
def _unless_it_fails(move: state.Move, *fatal: type[Exception]
                     ) -> Iterator[None]:
    """Without it all is copied.

    :param fatal: errors with which that may not begin, either
    """
    try:
        yield
    except fatal:
        raise
    except (exceptions.LocalCloneError, OSError, ValueError) as exc:
        LOG.warning('Holes of volume %(volume)s are copied, too: %(error)s',
                    {'volume': move.volume_id, 'error': exc})


def _in_both(node: Node, move: state.Move) -> thin_map.Holes:
    """Where source and destination both read as zeros.

    The destination in so far as nothing was written to the clone there: the
    kernel knows.
    """
    if not (node.lvm.reads_zeros(move.destination_lv)
            and node.services.by_host().get(move.source)):
        return ()
    found = rpc.at(move.source, of_source, node, move.move_id,
                   move.token.nonce)
    return found and thin_map.common(found, node.lvm.holes(
        move.destination_lv, move.size_bytes, move.geometry))


@rpc.method('holes', rpc.SOURCE)
def of_source(node: Node, move_id: str, nonce: str
              ) -> thin_map.Holes:
    """Return what was never written of the source of a move that was left.

    Nothing writes to it any more, so nothing is locked: the destination
    waits, with the volume's lock.

    :raises StaleMove: if the move is none that may be copied
    :raises OddMap: if the pool does not say it clearly
    """
    move = node.moves.get_move(move_id)
    if not (move and move.token.nonce == nonce and move.committed
            and move.source == node.host
            and move.phase is state.Phase.MIGRATING):
        raise exceptions.StaleMove(
            volume=move.volume_id if move else 'of move record ' + move_id)
    return node.lvm.holes(move.source_lv, move.size_bytes, move.geometry,
                          patient=True)
