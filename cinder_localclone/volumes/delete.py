# SPDX-License-Identifier: Apache-2.0
"""Delete a volume at its home, at rest or during a move."""

from collections.abc import Iterator
import contextlib

import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manageable

#: Seconds for a blocked process to end, after the session to the source of its
#: reads was ended.
CLOSING = 5


class _InUse(exceptions.LocalCloneError):
    """A process, a move or Cinder's own migration uses the volume."""


@rpc.method('delete', rpc.HOME, on_peer={'overwrites': False}, expected=(
    exceptions.CannotDelete, exceptions.HalfDeleted))
def delete(node: Node, volume_id: str, overwrites: bool = True) -> None:
    """Remove a volume at its home, then start its pending cleanups.

    A missing part is no error: an earlier delete may have removed it.

    :param overwrites: whether a thick LV is overwritten and removed before
        this returns. It is False in a call from another node, which can't wait
        for hours: then the LV only gets another name, and
        :func:`.cleanup.wipe_marked` overwrites it later
    :raises StaleMove: if its home is another node
    :raises CannotDelete: if it is in use or in a live move, or the storage
        does not answer in time; its owner may try again
    :raises HalfDeleted: in the same cases, after an earlier delete has begun;
        or if it is unknown where its LV is
    """
    if _at_home(node, volume_id) is None:
        return  # without a wait for the lock
    with _locked(node, volume_id):
        volume = _at_home(node, volume_id)
        if volume is None:
            return
        if manageable.was_not_managed(volume.status, volume.size):
            manage.give_back(node, 'volume', volume_id)
        else:
            source.abandon_interrupted(node, volume_id)
            with _refused_after(node, volume_id, exceptions.CommandTimeout):
                reason, whole = homes.why_not_here(node, volume)
            if reason:
                # An earlier delete may have begun at the other node.
                kind = (exceptions.CannotDelete if whole
                        else exceptions.HalfDeleted)
                raise kind(volume=volume_id, reason=reason)
            _remove(node, volume, overwrites)


def _at_home(node: Node, volume_id: str) -> Volume | None:
    """Return a volume whose home is this node; None if it is gone.

    :raises StaleMove: if its home is another node
    """
    volume = node.volumes.volume(volume_id)
    if volume is not None and volume.home != node.host:
        raise exceptions.StaleMove(volume=volume_id)
    return volume


@contextlib.contextmanager
def _locked(node: Node, volume_id: str) -> Iterator[None]:
    """Hold the locks of a volume, and of other volumes with data on its LV.

    :raises CannotDelete: if other work holds a lock for too long
    """
    with contextlib.ExitStack() as locks:
        with _refused_after(node, volume_id, exceptions.Busy):
            locks.enter_context(node.lock(volume_id))
            volume = node.volumes.volume(volume_id)
            for other in sorted(_others(node, volume) if volume else ()):
                locks.enter_context(node.lock(other))
        yield


@contextlib.contextmanager
def _refused_after(node: Node, volume_id: str,
                   *errors: type[exceptions.LocalCloneError]
                   ) -> Iterator[None]:
    """Convert errors to CannotDelete, so the owner can delete it again.

    For steps before this delete removes anything. An earlier delete may have
    removed a part. Then the volume must not become available, and the errors
    become HalfDeleted. After HalfDeleted, as after any other error, Cinder
    leaves the volume to an administrator.

    :param errors: the classes to convert
    :raises CannotDelete: after such an error, if the volume is complete
    :raises HalfDeleted: after such an error, if an earlier delete has begun
    :raises LocalCloneError: if neither is known
    """
    try:
        yield
    except errors as exc:
        kind = (exceptions.CannotDelete if _is_whole(node, volume_id)
                else exceptions.HalfDeleted)
        raise kind(volume=volume_id, reason=exc) from exc


def _is_whole(node: Node, volume_id: str) -> bool:
    """Return whether no delete has begun to remove the volume here.

    :raises LocalCloneError: if this can't be found out
    """
    volume = node.volumes.volume(volume_id)
    if volume is None or volume.home != node.host:
        return True  # no part of it was here
    return homes.is_whole(node, volume.name)


def _others(node: Node, volume: Volume) -> set[str]:
    """Return the volumes whose move or handle uses a volume's LV.

    Cinder's own migration copies into the row of another volume. Afterwards it
    deletes this row, which then names the old LV.
    """
    move = _committed_move(node, volume)
    others = {move.volume_id} if move else set()
    if volume.is_migrated_by_cinder:
        present = node.handles.survey()
        others |= {volume.handle_id, *present.volumes_above(
            node.lvm.group, volume.name)}
    return others - {volume.id}


def _committed_move(node: Node, volume: Volume) -> state.Move | None:
    """Return the committed move of a volume's data; None if it is over.

    The commit of a move gives the id of the move record to the volume's row,
    as the ``name_id`` of its LV. So the row's move is found by this id, and an
    uncommitted move is not. The move may name another volume: Cinder's own
    migration of an attached volume gives the LV of its copy, and with it the
    move, to the row of another volume. It then deletes this row.
    """
    move = node.moves.get_move(volume.name_id)
    return None if move and move.is_over else move


def _wait_until_closed(node: Node, volume_id: str, move: state.Move | None
                       ) -> bool:
    """Return whether all uses of a volume here have ended, in a short time.

    The caller has withdrawn its exports. A process can't end, even if it is
    killed, while it reads from a source that does not answer. So such a
    session is ended here, and the read fails. The process then has
    :data:`CLOSING` seconds to end.

    :param move: the move with such a source; None: there is no wait
    """
    if not devices.users(node, volume_id):
        return True
    return bool(move and node.sessions.end_if_down(move)) and not (
        tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            stop=tenacity.stop_after_delay(CLOSING),
            wait=tenacity.wait_fixed(0.5),
            retry_error_callback=lambda _state: True)(
                devices.users, node, volume_id))


def _row_names_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Return whether the row of a volume at home here names an LV.

    The LV itself is not looked up, unlike in :func:`.homes.has_lv`. Two rows
    may name an LV, if Cinder's manager stops after its migration has given a
    volume its new LV.

    :param lv: name of the LV
    """
    volume = node.volumes.volume(volume_id)
    return bool(volume is not None and volume.name == lv
                and volume.home == node.host)


def _remove(node: Node, volume: Volume, overwrites: bool) -> None:
    """Close a volume, mark its LV, and remove its parts.

    :raises CannotDelete: if it can't be closed now
    :raises HalfDeleted: if it can't be closed and an earlier delete has begun,
        or if the removal of a part fails
    """
    move = _committed_move(node, volume)
    pending = node.moves.pending_cleanups(
        move.volume_id if move else volume.id)
    recorded = volume.encryption
    with _refused_after(node, volume.id, exceptions.CommandTimeout,
                        _InUse):
        # After Cinder's own migration, the LV and its handle have the name of
        # another volume.
        handles = sorted({volume.id} | node.handles.survey().volumes_above(
            node.lvm.group, volume.name))
        _close(node, volume, move, handles)
        _mark_deleting(node, volume)
    try:
        if recorded:
            _erase(node, handles, move)
        if move is None:
            for volume_id in handles:
                node.handles.remove_handle(volume_id)
            remove = (cleanup.remove_volume_lv if overwrites
                      else cleanup.discard_lv)
            remove(node, volume.name)
        else:
            if recorded:  # its header may have been at the source
                node.sessions.detach(move)
            cleanup.remove_stack(node, move)
            pending.append(node.moves.advance(move, Event.VOLUME_DELETED))
    except exceptions.LocalCloneError as exc:
        raise exceptions.HalfDeleted(
            volume=volume.id, reason=exc) from exc
    if recorded:
        policy.forget(node, handles, recorded.key,
                      policy.key_of_type(node, volume))
    for each in pending:
        rpc.cast(each.cleanup_node, peers.reconcile, node, each.volume_id)


def _mark_deleting(node: Node, volume: Volume) -> None:
    """Record in a tag of the LV that the removal begins.

    From now on, no failed delete makes the volume available again.
    """
    lv = node.lvm.lvs().get(volume.name)
    if lv and names.DELETING not in lv.tags:
        node.lvm.mark(lv.name, names.DELETING)


def _close(node: Node, volume: Volume, move: state.Move | None,
           handles: list[str]) -> None:
    """End every use of a volume that can be ended, before the removal.

    If the delete fails, the next attachment, or the node's sweep, restores the
    exports, the session to the source and the re-encryption.

    :param move: the move with the data of the volume
    :param handles: the volumes whose handles may be above the LV
    :raises _InUse: if another use is left
    """
    if move and move.phase is Phase.STARTING:
        raise _InUse(reason='it is being moved to %s.' % node.host)
    if any(_row_names_lv(node, other, volume.name) for other in handles
           if other != volume.id):
        raise _InUse(reason='Cinder\'s migration of it has not ended.')
    recorded = volume.encryption
    for volume_id in handles:
        cleanup.end_exports(node, volume_id, None)
        if recorded:
            # If it does not end, the check below finds the volume in use.
            with contextlib.suppress(exceptions.SourceBusy):
                devices.stop_reencryption(node, volume_id)
        if not _wait_until_closed(node, volume_id, move):
            raise _InUse(reason='it is open on %s.' % node.host)
    if move is None:
        # Failed moves may have left source devices above it.
        cleanup.withdraw_above(node, volume.name)
    elif recorded:
        # The header may be at the source: only a session without an answer is
        # ended, because a read would take too long.
        node.sessions.end_if_down(move)
    else:  # the removal would wait for reads over an overloaded link
        node.sessions.detach(move)


def _erase(node: Node, handles: list[str], move: state.Move | None
           ) -> None:
    """Erase the keys of an encrypted volume from its header on this node.

    :param handles: the volumes whose handles may be above the LV
    """
    present = node.handles.survey()
    for volume_id in filter(present.handle, handles):
        policy.erase(node, volume_id, 1 if move else policy.TRIES)
