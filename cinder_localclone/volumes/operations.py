# SPDX-License-Identifier: Apache-2.0
"""An operator's requests for a move: roll it back, or take it forward."""

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.encryption import devices
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone.volumes import reconcile


@rpc.method('abort')
def abort(reconciler: reconcile.Reconciler, volume_id: str) -> None:
    """Roll a move back, if no data is lost by this.

    Call it at the source before the commit, at the destination afterwards.

    :raises NotPossible: if the move can't be rolled back, or not from here
    :raises SourceBusy: if the volume is open at the destination
    :raises DestinationWritten: if it was written there
    :raises CloneFailed: if this is unknown
    """
    node = reconciler.node
    with node.lock(volume_id):
        move = _move(reconciler, volume_id)
        if move is None:
            reconciler.reconcile_locked(volume_id)
        elif not move.committed:
            _check_here(reconciler, move, move.source)
            source.abandon(node, move)
        elif move.phase is Phase.STARTING:
            _check_here(reconciler, move, move.destination)
            destination.roll_back_live(node, move)
        else:
            raise exceptions.NotPossible(
                volume=volume_id, reason='its home is %s already, with all '
                'later writes: its move can only go forward (it is '
                '%s).' % (move.destination, move.display_phase))


@rpc.method('resume', rpc.SOURCE)
def go_forward(reconciler: reconcile.Reconciler, volume_id: str) -> None:
    """Take the next step of a move, even against an attachment.

    A live move goes forward without a detach from its source if the kernel of
    the source shows the volume closed. Call it at the source.

    :raises NotPossible: if there is no move, or this is the wrong node
    :raises SourceBusy: if the source is still in use
    """
    node = reconciler.node
    with node.lock(volume_id):
        move = _move(reconciler, volume_id)
        if move and move.committed and move.phase is Phase.STARTING:
            _check_here(reconciler, move, move.source)
            source.begin_hydration(node, move)
        else:
            reconciler.reconcile_locked(volume_id)


@rpc.method('open_without_source', rpc.DESTINATION)
def open_without_source(reconciler: reconcile.Reconciler,
                        volume_id: str) -> None:
    """Open the local part of a copy without its unreachable source.

    Reads of other regions fail. Once the source can be reached, the clone gets
    it back and the copy goes on.

    :raises NotPossible: if the volume is not being copied, or to another node,
        or its source can be reached
    :raises MissingData: if an LV is gone
    """
    node = reconciler.node
    with node.lock(volume_id):
        move = _move(reconciler, volume_id)
        if not (move and move.committed and move.phase is Phase.MIGRATING):
            raise exceptions.NotPossible(
                volume=volume_id, reason='it is not being copied.')
        _check_here(reconciler, move, move.destination)
        try:
            destination.build(node, move, create=False)
        except (exceptions.SourceUnreachable, exceptions.LoginFailed):
            destination.open_alone(node, move)
            volume = node.volumes.volume(volume_id)
            if volume is not None:
                devices.reconcile(node, volume, volume.name)
        else:
            raise exceptions.NotPossible(
                'Volume %s: its source can be reached. The volume was opened '
                'with its source.' % volume_id)


def _move(reconciler: reconcile.Reconciler, volume_id: str
          ) -> state.Move | None:
    """Return the move; None if only a pending cleanup is left.

    :raises NotPossible: if there is neither
    """
    moves = reconciler.node.moves
    move = moves.move_of(volume_id)
    if move is None and not moves.pending_cleanups(volume_id):
        raise exceptions.NotPossible(volume=volume_id,
                                     reason='it has no move.')
    return move


def _check_here(reconciler: reconcile.Reconciler, move: state.Move,
                host: str) -> None:
    if host != reconciler.node.host:
        raise exceptions.NotPossible(
            volume=move.volume_id,
            reason='run the command on %s.' % host)
