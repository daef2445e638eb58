# SPDX-License-Identifier: Apache-2.0
"""Remove the exports and LVs of a finished move, or of a volume, on a node.

This needs only this node and waits for no other. So the volume may be at rest
elsewhere by then, or moving again, even to this node.
"""

from collections.abc import Collection
from collections.abc import Mapping
import functools
import uuid

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.encryption import devices

LOG = logging.getLogger(__name__)


def pending_here(node: Node, volume_id: str) -> list[state.Move]:
    """Return the pending cleanups of a volume's moves on this node."""
    return [move for move in node.moves.pending_cleanups(volume_id)
            if move.cleanup_node == node.host]


def take_down(node: Node, move: state.Move) -> None:
    """Do a pending cleanup of this node, which ends the move record.

    :raises InvalidTransition: if the move is not over
    """
    event = (state.Event.SOURCE_REMOVED if move.committed
             else state.Event.DESTINATION_REMOVED)
    move.token.after(event, move.committed)
    if move.committed:
        # Its own source device, and older devices of failed moves.
        withdraw_above(node, move.source_lv)
        remove_source(node, move)
    else:
        tear_down(node, move)
    node.moves.finish(move, event)


def end_exports(node: Node, volume_id: str, initiator: str | None
                ) -> None:
    """Withdraw the exports of a volume to an initiator, or (None) to all.

    The kernel's target waits for the initiator's unfinished reads. On a clone
    whose source does not answer, they last until the source answers. So the
    session to the source is ended first, and the reads fail.
    """
    move = node.moves.move_of(volume_id)
    try:
        if (move and move.destination == node.host
                and node.exports.is_last(volume_id, initiator)
                and devices.users(node, volume_id) == 1):
            node.sessions.end_if_down(move)
    finally:
        node.exports.withdraw_volume(volume_id, initiator)
        node.handles.remove_export_device(volume_id)


def tear_down(node: Node, move: state.Move) -> None:
    """Remove the devices of a move at its destination, and the LV.

    The session is ended first: a read from a withdrawn source would wait, and
    keep the handle open for ever.
    """
    node.sessions.detach(move)
    remove_stack(node, move)


def remove_stack(node: Node, move: state.Move) -> None:
    """Remove the same devices and LV of a move whose session has ended."""
    gone = remove_handle(node, move, move.destination_lv)
    node.clones.remove_clone(move.move_id)
    # The metadata LV is last: without it the LV would count as complete.
    discard_lv(node, move.destination_lv)
    node.lvm.remove_lv(names.metadata_lv(move.move_id))
    if gone and move.extra_bytes:  # it is encrypted
        devices.forget_unless_remote(node, move.volume_id)


def remove_source(node: Node, move: state.Move) -> None:
    """Remove the source of a finished move; its volume is elsewhere."""
    gone = remove_handle(node, move, move.source_lv)
    if gone and move.extra_bytes:  # it is encrypted
        devices.forget_left(node, move.volume_id, move.source_lv)
    discard_lv(node, move.source_lv)


def remove_handle(node: Node, move: state.Move, lv: str) -> bool:
    """Remove the volume's handle, if it is on the LV or clone of a move.

    Any other handle belongs to a later move, or to the volume at rest.

    :param lv: the LV of the move on this node
    :returns: whether this node has no handle of the move any more
    """
    present = node.handles.survey()
    own = {backing.number for backing in (
        present.clone(move.move_id), present.lvs.get(lv)) if backing}
    handle = present.handle(move.volume_id)
    if handle and not own.issuperset(handle.uses()):
        return False
    if handle:
        # After a deferred move, the guest's node had an export until now.
        node.exports.withdraw_unnamed(
            move.volume_id, node.exports.remote().get(move.volume_id, set()),
            at_once=True)
        node.handles.remove_handle(move.volume_id)
    return True


def discard_lv(node: Node, name: str) -> None:
    """Remove an unneeded LV; do nothing if it is gone.

    A thick LV must be overwritten first, which can take hours. Its volume may
    move here meanwhile, and other work waits for this node. So for now the LV
    only gets the name of an LV to be wiped, and loses its tags.
    """
    lv = node.lvm.lvs().get(name)
    if lv and not _has_data(lv):
        node.lvm.remove_lv(name)
    elif lv and not node.lvm.disown(
            name, names.to_wipe(node.host, uuid.uuid4().hex[-12:])):
        remove_volume_lv(node, name)  # it has no tags


def remove_stray_metadata(node: Node, seen: survey.Survey,
                          moves: Collection[str]) -> None:
    """Remove metadata LVs without a move and without a volume.

    An ``lvcreate`` may exceed its time limit and create the LV after its move
    was rolled back. An error is logged; the next check tries again.

    :param seen: result of this node's check
    :param moves: move record ids of this node; any other id is looked up in
        the database
    """
    for move_id, lv in seen.stray_metadata().items():
        volume_id = names.facts(lv.tags).get('volume')
        if volume_id is None or move_id in moves:
            continue
        # A destination holds this lock during its preparation.
        nodes.attempt(
            node, volume_id,
            functools.partial(_remove_metadata, node, move_id, lv.name),
            functools.partial(_tell_of_metadata, lv.name))


def _remove_metadata(node: Node, move_id: str, lv: str) -> None:
    if (move_id in node.handles.survey().stray_metadata()
            and not node.moves.is_move(move_id)):
        node.lvm.remove_lv(lv)


def _tell_of_metadata(lv: str, error: Exception) -> None:
    LOG.error('Metadata LV %(lv)s belongs to no move and could not be '
              'removed; the next periodic check tries again: %(error)s',
              {'lv': lv, 'error': error},
              exc_info=exceptions.is_unexpected(error))


def wipe_marked(node: Node, seen: survey.Survey | None = None
                ) -> None:
    """Overwrite and remove the LVs to be wiped, in sequence.

    No other work knows these LVs, so this takes no lock.

    :param seen: result of the last check of the node; without any LV to be
        wiped in it, nothing is done. None: not known
    """
    if seen and not _to_wipe(node, seen.lvs):
        return
    for lv in _to_wipe(node, node.lvm.lvs()):
        try:
            _take_off_its_tags(node, lv)
            if not lv.opened:  # else the doctor command reports it
                remove_volume_lv(node, lv.name)
        except exceptions.Busy:
            pass
        except Exception as exc:
            LOG.error('LV %(lv)s belongs to no volume any more, but could '
                      'not be overwritten and removed, will retry: %(error)s',
                      {'lv': lv.name, 'error': exc})


def _to_wipe(node: Node, lvs: Mapping[str, lvm_reports.LogicalVolume]
             ) -> list[lvm_reports.LogicalVolume]:
    return [lv for lv in lvs.values() if lv.group == node.lvm.group
            and names.is_to_wipe(lv.name, node.host)]


def _take_off_its_tags(node: Node, lv: lvm_reports.LogicalVolume) -> None:
    """Remove the tags of an LV to be wiped, because a boot would believe them.

    :func:`discard_lv` does this itself, unless it was interrupted.

    :raises Busy: if it may still be running
    """
    volume_id = names.facts(lv.tags).get('volume')
    if volume_id:
        with node.try_lock(volume_id):
            node.lvm.disown(lv.name, lv.name)


def remove_volume_lv(node: Node, name: str) -> None:
    """Overwrite a thick LV, and remove it; do nothing if it is gone.

    A thin LV needs no overwriting: its pool zeroes a block before it maps it
    again.
    """
    lv = node.lvm.lvs().get(name)
    if lv:
        if _has_data(lv):
            node.clear(name, lv.size)
        node.lvm.remove_lv(name)


def _has_data(lv: lvm_reports.LogicalVolume) -> bool:
    """Return whether an LV must be overwritten before its removal.

    A thick LV without a visible part was never written.
    """
    try:
        return not lv.thin and lv.shown > 0
    except exceptions.UnreadableTag:
        return True


def withdraw_source(node: Node, move_id: str) -> None:
    """Withdraw the source of a move, if it is still exported."""
    node.exports.withdraw_source(move_id)
    node.handles.remove_source(move_id)


def withdraw_above(node: Node, lv: str) -> None:
    """Withdraw the sources of all moves from an LV.

    The caller knows that no destination reads from the LV any more. Failed and
    finished moves may have left source devices.
    """
    for move_id in node.handles.survey().sources_above(lv):
        withdraw_source(node, move_id)


def withdraw_strays(node: Node, present: survey.Survey,
                    moves: Collection[str] = ()) -> None:
    """Withdraw the sources of finished moves.

    An error is logged, and stops nothing else.

    :param present: the devices and LVs of this node
    :param moves: move record ids listed a moment ago: if a move has ended
        since then, the next sweep withdraws it. Any other id is looked up
    """
    def is_move(move_id: str) -> bool:
        return move_id in moves or node.moves.is_move(move_id)
    node.exports.withdraw_strays(is_move)
    strays = [move_id for move_id in present.sources()
              if not is_move(move_id)]
    try:
        found = node.handles.devices() if strays else {}
        for move_id in strays:
            device = found.get(names.source(move_id))
            # Otherwise its export could not be withdrawn now.
            if device and not device.opened:
                node.handles.remove_source(move_id)
    except exceptions.LocalCloneError as exc:
        LOG.error('Source devices of ended moves could not be removed; the '
                  'next periodic check tries again: %s', exc)


def end_after_swap(node: Node, volume_id: str) -> None:
    """Log out from the former home, once the handle is on local data.

    The former home may withdraw its export once the attachment is updated.
    Until there is a handle, a boot needs the attachment and the initiator's
    record.
    """
    present = node.handles.survey()
    if present.handle(volume_id) and not present.is_handle_foreign(volume_id):
        node.attachments.end_remote_attachments(volume_id, node.host)
        node.sessions.end_remote(volume_id)
