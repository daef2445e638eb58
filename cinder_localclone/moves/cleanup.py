# SPDX-License-Identifier: Apache-2.0
"""Removal of what an ended move, or a volume, has on a node: exports and LVs.

That needs this node alone and stops nobody else, so the volume may be at
rest elsewhere, or moving again, by then: to this node too.
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


def here(node: Node, volume_id: str) -> list[state.Move]:
    """The remains of a volume's moves that this node has to take down."""
    return [move for move in node.moves.pending_cleanups(volume_id)
            if move.cleanup_node == node.host]


def take_down(node: Node, move: state.Move) -> None:
    """Remove what a move has left here; it ends with that.

    :raises InvalidTransition: if it is not over
    """
    event = (state.Event.SOURCE_REMOVED if move.committed
             else state.Event.DESTINATION_REMOVED)
    move.token.after(event, move.committed)
    if move.committed:
        # Its own, and those of moves that failed before.
        withdraw_above(node, move.source_lv)
        remove_source(node, move)
    else:
        tear_down(node, move)
    node.moves.finish(move, event)


def end_exports(node: Node, volume_id: str, initiator: str | None
                ) -> None:
    """Stop serving a volume to one initiator, or (None) to all.

    The kernel's target waits for what an initiator still reads. On a clone
    whose source does not answer, that takes as long as the source does: so
    the session goes first, and what waits for it fails.
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
    """Remove the destination's stack of a move, and the LV.

    The session goes first: a read that waits for a source which has been
    withdrawn would keep the handle open for ever.
    """
    node.sessions.detach(move)
    remove_stack(node, move)


def remove_stack(node: Node, move: state.Move) -> None:
    """The same, of a move whose session has ended."""
    gone = remove_handle(node, move, move.destination_lv)
    node.clones.remove_clone(move.move_id)
    # The metadata LV goes last: without it the LV would count as complete.
    discard_lv(node, move.destination_lv)
    node.lvm.remove_lv(names.metadata_lv(move.move_id))
    if gone and move.extra_bytes:  # it is encrypted
        devices.forget_unless_remote(node, move.volume_id)


def remove_source(node: Node, move: state.Move) -> None:
    """Remove the source of a move that has ended; the volume is elsewhere."""
    gone = remove_handle(node, move, move.source_lv)
    if gone and move.extra_bytes:  # it is encrypted
        devices.forget_left(node, move.volume_id, move.source_lv)
    discard_lv(node, move.source_lv)


def remove_handle(node: Node, move: state.Move, lv: str) -> bool:
    """Remove the volume's handle if it is on what a move has here.

    One that is on anything else is that of a later move, or of the volume
    at rest.

    :param lv: the LV that the move has here
    :returns: whether there is none any more
    """
    present = node.handles.survey()
    own = {backing.number for backing in (
        present.clone(move.move_id), present.lvs.get(lv)) if backing}
    handle = present.handle(move.volume_id)
    if handle and not own.issuperset(handle.uses()):
        return False
    if handle:
        # Whoever the volume followed was served until then.
        node.exports.withdraw_unnamed(
            move.volume_id, node.exports.remote().get(move.volume_id, set()),
            at_once=True)
        node.handles.remove_handle(move.volume_id)
    return True


def discard_lv(node: Node, name: str) -> None:
    """Remove an LV that is needed no more; one that is gone is done.

    A thick one has to be overwritten first, which can take hours. Its volume
    may come here meanwhile, and others wait for this node: so all that is done
    now is to take it from its volume. It has another name then.
    """
    lv = node.lvm.lvs().get(name)
    if lv and not _has_data(lv):
        node.lvm.remove_lv(name)
    elif lv and not node.lvm.disown(
            name, names.to_wipe(node.host, uuid.uuid4().hex[-12:])):
        remove_volume_lv(node, name)  # it has no tags


def remove_stray_metadata(node: Node, seen: survey.Survey,
                          moves: Collection[str]) -> None:
    """Remove the metadata LVs that belong to no move and to no volume.

    An ``lvcreate`` that outlived its time limit may have created one after
    its move was given up. A failure is logged; the next check tries again.

    :param seen: what the check of this node has found
    :param moves: the moves of this node, by shadow id; any other is looked
        up in the database
    """
    for move_id, lv in seen.stray_metadata().items():
        volume_id = names.facts(lv.tags).get('volume')
        if volume_id is None or move_id in moves:
            continue
        # A destination holds this lock for as long as it prepares.
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
    """Overwrite and remove what :func:`discard_lv` has left, one by one.

    Nobody else knows these LVs: that takes no lock.

    :param seen: what the last check of the node has found; if none of them
        is there, nothing is done. None: not known
    """
    if seen and not _to_wipe(node, seen.lvs):
        return
    for lv in _to_wipe(node, node.lvm.lvs()):
        try:
            _take_off_its_tags(node, lv)
            if not lv.opened:  # else doctor says so
                remove_volume_lv(node, lv.name)
        except exceptions.Busy:
            pass
        except Exception as exc:
            LOG.error('LV %(lv)s, which belongs to no volume any more, '
                      'could not be overwritten and removed, will retry: '
                      '%(error)s', {'lv': lv.name, 'error': exc})


def _to_wipe(node: Node, lvs: Mapping[str, lvm_reports.LogicalVolume]
             ) -> list[lvm_reports.LogicalVolume]:
    return [lv for lv in lvs.values() if lv.group == node.lvm.group
            and names.is_to_wipe(lv.name, node.host)]


def _take_off_its_tags(node: Node, lv: lvm_reports.LogicalVolume) -> None:
    """They go before it is overwritten: a boot would believe them.

    Whoever has given it its name does that, unless he did not live to.

    :raises Busy: if he still does, as it seems
    """
    volume_id = names.facts(lv.tags).get('volume')
    if volume_id:
        with node.try_lock(volume_id):
            node.lvm.disown(lv.name, lv.name)


def remove_volume_lv(node: Node, name: str) -> None:
    """Overwrite a thick LV, and remove it; one that is gone is done.

    A thin pool zeroes blocks before it hands them out again.
    """
    lv = node.lvm.lvs().get(name)
    if lv:
        if _has_data(lv):
            node.clear(name, lv.size)
        node.lvm.remove_lv(name)


def _has_data(lv: lvm_reports.LogicalVolume) -> bool:
    """Whether an LV has to be overwritten before it goes.

    As long as nothing of a thick one may be seen, nobody has written to it.
    """
    try:
        return not lv.thin and lv.shown > 0
    except exceptions.UnreadableTag:
        return True


def withdraw_source(node: Node, move_id: str) -> None:
    """Offer the source of a move no more; what is gone is done."""
    node.exports.withdraw_source(move_id)
    node.handles.remove_source(move_id)


def withdraw_above(node: Node, lv: str) -> None:
    """The same for all moves whose source an LV is, or has been.

    For a caller that knows that nothing reads it as a source any more: moves
    that failed, and those that are over, may have left theirs.
    """
    for move_id in node.handles.survey().sources_above(lv):
        withdraw_source(node, move_id)


def withdraw_strays(node: Node, present: survey.Survey,
                    moves: Collection[str] = ()) -> None:
    """Offer nothing of moves that are over.

    What fails is logged, and stops nothing else.

    :param present: what there is on this node
    :param moves: those that there were a moment ago, by shadow id: one that
        has ended since is left to the next look. Any other is asked for
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
            # Else its export could not be withdrawn now.
            if device and not device.opened:
                node.handles.remove_source(move_id)
    except exceptions.LocalCloneError as exc:
        LOG.error('Source devices of ended moves could not be removed; the '
                  'next periodic check tries again: %s', exc)


def end_after_swap(node: Node, volume_id: str) -> None:
    """The handle is on what this node has of the volume: log out.

    The home of before may stop serving it once the attachment says so. As
    long as there is no handle, a boot needs that, and the initiator's record.
    """
    present = node.handles.survey()
    if present.handle(volume_id) and not present.is_handle_foreign(volume_id):
        node.attachments.end_remote_attachments(volume_id, node.host)
        node.sessions.end_remote(volume_id)
