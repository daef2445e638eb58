# SPDX-License-Identifier: Apache-2.0
"""Deleting a volume, wherever it lives by now and wherever its move is."""

from collections.abc import Iterator
import contextlib

import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manageable

#: Seconds for what has waited for a source to end when its session has.
CLOSING = 5


class _InUse(exceptions.LocalCloneError):
    """Somebody is at work with a volume."""


@rpc.method('delete', rpc.HOME, local={'overwrites': False}, expected=(
    exceptions.CannotDelete, exceptions.HalfDeleted))
def delete(node: Node, volume_id: str, overwrites: bool = True) -> None:
    """Remove all of a volume at its home; its source, if any, follows.

    What is gone already is done.

    :param overwrites: whether a thick LV is overwritten and removed before
        this returns. Else it is only taken from its volume, for a caller
        that does not wait for hours: see :func:`.cleanup.wipe_marked`
    :raises StaleMove: if its home is another node
    :raises CannotDelete: if something uses it, or it is between two nodes,
        or the storage does not answer in time; its owner may try again
    :raises HalfDeleted: the same, of what an earlier delete has begun with
    """
    if _at_home(node, volume_id) is None:
        return  # what has a lock here need not be waited for
    with _locked(node, volume_id):
        volume = _at_home(node, volume_id)
        if volume is None:
            return
        if manageable.was_not_managed(volume.status, volume.size):
            manage.give_back(node, 'volume', volume_id)
        else:
            source.abandon_interrupted(node, volume_id)
            with _to_be_tried_again(node, volume_id,
                                    exceptions.CommandTimeout):
                reason = homes.why_not_here(node, volume)
            if reason:
                raise exceptions.CannotDelete(
                    volume=volume_id, reason=reason)
            _remove(node, volume, overwrites)


def _at_home(node: Node, volume_id: str) -> objects.Volume | None:
    """Return a volume whose home is this node; None if it is gone.

    :raises StaleMove: if its home is another node
    """
    volume = node.volumes.volume(volume_id)
    if volume is not None and not rows.is_home(volume, node.host):
        raise exceptions.StaleMove(volume=volume_id)
    return volume


@contextlib.contextmanager
def _locked(node: Node, volume_id: str) -> Iterator[None]:
    """Hold the locks of a volume, and of others whose data its LV has.

    :raises CannotDelete: if other work on it takes too long
    """
    with contextlib.ExitStack() as locks:
        with _to_be_tried_again(node, volume_id, exceptions.Busy):
            locks.enter_context(node.lock(volume_id))
            volume = node.volumes.volume(volume_id)
            for other in sorted(_others(node, volume) if volume else ()):
                locks.enter_context(node.lock(other))
        yield


@contextlib.contextmanager
def _to_be_tried_again(node: Node, volume_id: str,
                       *errors: type[exceptions.LocalCloneError]
                       ) -> Iterator[None]:
    """Nothing is removed yet: if this fails, its owner may try again.

    After any other error Cinder leaves that to an administrator. So it does
    if an earlier delete has come further: what is gone is not available.

    :raises CannotDelete: after one of these errors
    :raises HalfDeleted: the same, if something is gone
    :raises LocalCloneError: if that can't be seen
    """
    try:
        yield
    except errors as exc:
        kind = (exceptions.CannotDelete if _is_whole(node, volume_id)
                else exceptions.HalfDeleted)
        raise kind(volume=volume_id, reason=exc) from exc


def _is_whole(node: Node, volume_id: str) -> bool:
    """Whether no delete has begun to remove what this node has of a volume.

    :raises LocalCloneError: if that can't be seen
    """
    volume = node.volumes.volume(volume_id)
    if volume is None or not rows.is_home(volume, node.host):
        return True  # nothing that was here
    lv = node.lvm.lvs().get(volume.name)
    return lv is not None and names.DELETING not in lv.tags


def _others(node: Node, volume: objects.Volume) -> set[str]:
    """Whose move, or handle, is what the row of a volume names.

    Cinder's own migration copies into the row of another volume, and then
    has that row's LV deleted which had the volume before.
    """
    move = _move(node, volume)
    others = {move.volume_id} if move else set()
    if rows.is_migrated_by_cinder(volume):
        present = node.handles.survey()
        others |= {rows.handle_id(volume), *present.volumes_above(
            node.lvm.group, volume.name)}
    return others - {volume.id}


def _move(node: Node, volume: objects.Volume) -> state.Move | None:
    """The committed move that has a volume's data, if it is not over.

    Cinder's own migration of an attached volume gives what it has copied,
    and with it the move, to the row of another volume, which it then
    deletes.
    """
    move = node.moves.get_move(volume.name_id)
    return None if move and move.is_over else move


def _is_closed(node: Node, volume_id: str, move: state.Move | None
               ) -> bool:
    """Whether nothing uses a volume that is attached nowhere.

    A process that reads from a source which does not answer can't end, even
    if it is killed. What waits fails when the session ends.
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


def _has_lv(node: Node, volume_id: str, lv: str) -> bool:
    """Whether the row of a volume says that an LV of this node is its own.

    So do two rows if Cinder's manager does not live to end a migration that
    has given a volume its new LV.
    """
    volume = node.volumes.volume(volume_id)
    return bool(volume is not None and volume.name == lv
                and rows.is_home(volume, node.host))


def _remove(node: Node, volume: objects.Volume, overwrites: bool) -> None:
    move = _move(node, volume)
    pending = node.moves.pending_cleanups(
        move.volume_id if move else volume.id)
    recorded = rows.recorded(volume)
    with _to_be_tried_again(node, volume.id, exceptions.CommandTimeout,
                            _InUse):
        # After Cinder's own migration the LV bears another volume's
        # name, and that one's handle.
        handles = sorted({volume.id} | node.handles.survey().volumes_above(
            node.lvm.group, volume.name))
        _close(node, volume, move, handles)
        _mark(node, volume)
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
        policy.forget(node, handles, recorded,
                      policy.key_of_type(node, volume))
    for each in pending:
        rpc.cast(each.cleanup_node, peers.reconcile, node, each.volume_id)


def _mark(node: Node, volume: objects.Volume) -> None:
    """What goes from now on is not called available any more."""
    lv = node.lvm.lvs().get(volume.name)
    if lv and names.DELETING not in lv.tags:
        node.lvm.mark(lv.name, names.DELETING)


def _close(node: Node, volume: objects.Volume, move: state.Move | None,
           handles: list[str]) -> None:
    """All that a delete does before it removes anything.

    What it ends comes back with the next attachment, or look.

    :param handles: whose may be above the LV
    """
    if move and move.phase is Phase.STARTING:
        raise _InUse(reason='it is being moved to %s.' % node.host)
    if any(_has_lv(node, other, volume.name) for other in handles
           if other != volume.id):
        raise _InUse(reason='Cinder\'s migration of it has not ended.')
    recorded = rows.recorded(volume)
    for volume_id in handles:
        cleanup.end_exports(node, volume_id, None)
        if recorded:
            # What does not end is found to use it.
            with contextlib.suppress(exceptions.SourceBusy):
                devices.stop_reencryption(node, volume_id)
        if not _is_closed(node, volume_id, move):
            raise _InUse(reason='something on %s has it open.' % node.host)
    if move is None:
        # Moves that failed may have left source devices above it.
        cleanup.withdraw_above(node, volume.name)
    elif recorded:
        # Reading from a source that does not answer would take too long.
        node.sessions.end_if_down(move)
    else:  # a link that has too much to carry may keep it waiting
        node.sessions.detach(move)


def _erase(node: Node, handles: list[str], move: state.Move | None
           ) -> None:
    """No key opens what this node has of an encrypted volume.

    :param handles: whose may be above it
    """
    present = node.handles.survey()
    for volume_id in filter(present.handle, handles):
        policy.erase(node, volume_id, 1 if move else policy.TRIES)
