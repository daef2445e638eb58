# SPDX-License-Identifier: Apache-2.0
"""A move at its destination: build the clone over the source, or roll back.

The same flow builds the stack at first and rebuilds it after a power cut. It
creates LVs only at first. When all regions are local, the handle is cut over
to the LV, and the clone is removed.
"""

import time

from oslo_log import log as logging
from taskflow.patterns import linear_flow

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.moves import checks
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import flow

LOG = logging.getLogger(__name__)


class Allocate(flow.Step):
    """Create the LV and the metadata LV; later only activate them.

    Provides whether the volume's LV reads as zeros: it is thin, it was never
    written, and its pool zeroes the rest of a partly written block.
    """

    default_provides = 'blank'

    def __init__(self, node: Node, create: bool):
        super().__init__(node)
        self._create = create

    def execute(self, move: state.Move) -> bool:
        if self._create:
            return self._allocate(move)
        self._activate(move)
        return False

    def _allocate(self, move: state.Move) -> bool:
        with self._node.allocation_lock():
            lvs = self._node.listing.recent(time.monotonic())
            if move.destination_lv not in lvs:
                checks.check_space(self._node, move, lvs)
            # The metadata LV is first: it marks the volume as incomplete.
            self._node.clones.create_metadata(move, lvs)
            created = self._node.lvm.create_lv(
                move.destination_lv, move.size_bytes, move.volume_id,
                covered=True,  # by the clone
                extra_bytes=move.extra_bytes, lvs=lvs)
            if move.extra_bytes:
                # A key may have been removed since this node, as an earlier
                # home, made backups of its header.
                self._node.lvm.mark(move.destination_lv, names.OUTDATED)
            # No LV is created in a pool without zeroing.
            return created and self._node.lvm.pool is not None

    def _activate(self, move: state.Move) -> None:
        lvm = self._node.lvm
        for what, name in (
                ('The logical volume', move.destination_lv),
                ('The move metadata', names.metadata_lv(move.move_id))):
            if not lvm.number_of(name) and name not in lvm.lvs():
                raise exceptions.MissingData(
                    what=what, volume=move.volume_id,
                    host=self._node.host)
            lvm.activate(name)


class AttachSource(flow.Step):
    """Log in to the source, and verify its identity."""

    default_provides = 'disk'

    def execute(self, move: state.Move) -> str:
        disk = self._node.sessions.attach(move)
        if not move.committed:  # afterwards it can't be rolled back
            checks.check_block(self._node.host, self._node.lvm.own_block(),
                               self._node.lvm.logical_block(disk))
        return disk


class Clone(flow.Step):
    """Make the clone over the LV, the metadata LV and the source's disk.

    The source's holes are only left out if the LV has them, too.
    """

    def execute(self, move: state.Move, disk: str, blank: bool,
                holes: thin_map.Holes) -> None:
        self._node.clones.ensure_clone(move, disk, holes if blank else ())


class Handle(flow.Step):
    """Put the handle on the clone, and prove that it can be read.

    In a deferred move the guest uses the volume through its source until the
    commit. Before the commit this only reads the clone itself.
    """

    def execute(self, move: state.Move, disk: str) -> None:
        if move.is_deferred and not move.committed:
            self._node.clones.read_clone(move.move_id)
        elif _put_on_clone(self._node, move, disk):
            self._node.handles.read_head(move.volume_id)


def _put_on_clone(node: Node, move: state.Move, source: str) -> bool:
    """Put the handle on the clone; in a deferred move only from the commit on.

    :param source: path of the source's disk; '' if it is unreachable
    :returns: whether the handle was changed
    :raises SourceUnreachable: if writes at the source can't be flushed,
        because it does not answer
    """
    if not (move.is_deferred and node.clones.begin_swap(move)):
        return node.handles.ensure_handle_on_clone(move)
    if (source and node.sessions.is_down(move)
            and not _end_unused_attachment(node, move)):
        raise exceptions.SourceUnreachable(
            portal=move.location, reason='writes of this node can\'t be '
            'flushed')
    changed = node.handles.survey().is_handle_foreign(move.volume_id)
    if changed:
        _check_writable(node, move)
        if not source:  # I/O that waits for the lost home fails
            node.sessions.end_remote(move.volume_id)
        node.handles.switch_to_clone(move, source)
    else:
        # After a reboot of this node, nothing has used the volume since.
        if source:
            node.clones.flush_disk(move, source)
        changed = node.handles.ensure_handle_on_clone(move)
    if _tag_for_boot(node, move):
        cleanup.end_after_swap(node, move.volume_id)
        node.clones.end_swap(move)
    return changed


def _tag_for_boot(node: Node, move: state.Move) -> bool:
    """Tag the LV with the data that a boot needs to open it, if encrypted.

    :returns: whether it is tagged. Until then a boot needs the initiator's
        record of the remote attachment, which must stay, but the copy goes on
    """
    try:
        if move.extra_bytes:
            boot_notes.note_moved(
                node, move.volume_id, move.destination_lv)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The LV of volume %(volume)s was not tagged for the next '
                    'boot. The copy continues, will retry: %(error)s',
                    {'volume': move.volume_id, 'error': exc})
        return False
    return True


def _check_writable(node: Node, move: state.Move) -> int:
    """Check that a clone works.

    :returns: the number of local regions in the same status, because a clone
        that fails later reports none
    :raises CloneFailed: if a guest would get errors from it
    """
    status = node.clones.clone_status(move.move_id)
    if status.mode != 'rw':
        raise exceptions.CloneFailed(volume=move.volume_id, host=node.host,
                                     mode=status.mode)
    return status.hydrated


def _end_unused_attachment(node: Node, move: state.Move) -> bool:
    """End an unused remote attachment; return whether the source is reachable.

    After a detach the home withdraws its export. No I/O is in flight then.
    """
    if devices.users(node, move.volume_id):
        return False
    node.sessions.end_remote(move.volume_id)
    return not node.sessions.is_down(move)


def build(node: Node, move: state.Move, create: bool,
          holes: thin_map.Holes = ()) -> str:
    """Build the destination's stack; don't change hydration.

    :param create: whether LVs may be created. Never after the commit: new LVs
        would be empty, and the guest's writes would be lost
    :param holes: of the source; empty unless it was closed when they were read
    :returns: path of the source's disk
    :raises MissingData: if an LV is gone, and may not be created
    :raises LocalCloneError: if the source or a command fails
    """
    disk: str = flow.run(linear_flow.Flow('build').add(
        Allocate(node, create), AttachSource(node), Clone(node),
        Handle(node)), move=move, holes=holes)['disk']
    return disk


def rebuild(node: Node, move: state.Move) -> str:
    """Rebuild the stack after the commit, at each sweep.

    :returns: path of the source's disk; '' if the source is unreachable, and
        not needed any more
    """
    try:
        return build(node, move, create=False)
    except (exceptions.SourceUnreachable, exceptions.LoginFailed):
        if move.phase is state.Phase.STARTING or not open_if_complete(
                node, move):
            raise
        return ''


def open_if_complete(node: Node, move: state.Move) -> bool:
    """Make the clone without its source; return whether it is complete.

    If it is complete, the source is not needed any more, and the handle is put
    on the clone. Otherwise the handle is left alone, so no user reads from the
    clone. :func:`build` was tried before, so the LVs are active.
    """
    node.clones.ensure_clone_alone(move)
    if not node.clones.clone_status(move.move_id).finished:
        return False
    if _put_on_clone(node, move, ''):
        node.handles.read_head(move.volume_id)
    return True


def open_alone(node: Node, move: state.Move) -> None:
    """Put the handle on a clone without its source; some of it is unreadable.

    As for :func:`open_if_complete`, the LVs are active.
    """
    node.clones.ensure_clone_alone(move)
    _put_on_clone(node, move, '')


@rpc.method('prepare', rpc.DESTINATION, gives_way=True)
def prepare(node: Node, move_id: str, nonce: str,
            holes: thin_map.Holes = ()) -> None:
    """Do the destination's part of a move, called by its source.

    First removes everything that earlier moves of the volume have left here.

    :param nonce: of the move's token; it differs between two moves
    :param holes: of the source
    :raises StaleMove: if the caller's move is not the recorded move: a late or
        repeated request builds nothing
    :raises LocalCloneError: if the stack could not be built
    """
    move = node.moves.get_move(move_id)
    with node.lock(move.volume_id if move else move_id):
        _prepare(node, move_id, nonce, holes)


def _prepare(node: Node, move_id: str, nonce: str, holes: thin_map.Holes
             ) -> None:
    """Do the same for a caller that holds the lock."""
    move = node.moves.get_move(move_id)
    if (move is None or move.token.nonce != nonce
            or move.committed or move.destination != node.host):
        raise exceptions.StaleMove(
            volume=move.volume_id if move else 'of move record ' + move_id)
    for earlier in cleanup.pending_here(node, move.volume_id):
        if earlier.move_id == move_id:  # rolled back, maybe since the read
            raise exceptions.StaleMove(volume=move.volume_id)
        cleanup.take_down(node, earlier)
    _check_handle(node, move)
    build(node, move, create=True, holes=holes)
    _open_upper(node, move)


def _open_upper(node: Node, move: state.Move) -> None:
    """Make the upper devices for Nova before the commit.

    In a deferred move the volume is already in use here, with its upper
    device. Any other volume without an attachment needs no upper device.
    """
    volume = node.volumes.volume(move.volume_id)
    if (move.asked_by is state.Asked.ATTACH and volume is not None
            and (volume.status in statuses.USED_BY_NOVA
                 or volume.encryption)):
        devices.open(node, volume, move.destination_lv)


def _check_handle(node: Node, move: state.Move) -> None:
    """Check that no other user of the handle can write to the moved volume.

    Cinder's own migration to this node may have been abandoned, while its
    process still has the handle open. In a deferred move the guest has the
    handle open on the source.

    :raises SourceBusy: if the handle is open on any other device
    :raises NotPossible: if the handle is longer than the volume to copy
    """
    present = node.handles.survey() if move.is_deferred else survey.Survey(
        {}, node.handles.devices(survey.names_of(
            move.volume_id, move.move_id)))
    handle, clone = present.handle(move.volume_id), present.clone(
        move.move_id)
    if move.is_deferred and present.is_handle_foreign(move.volume_id):
        if handle and handle.opened and (
                handle.sectors * state.SECTOR > move.size_bytes):
            raise exceptions.NotPossible(
                volume=move.volume_id, reason='its device on the node of its '
                'instance is larger than its recorded size: an extension has '
                'failed. Extend it again.')
        return
    if handle and handle.opened and not (
            clone and handle.uses()[:1] == (clone.number,)):
        devices.ensure_closed(node, move.volume_id)


def roll_back_live(node: Node, move: state.Move) -> None:
    """Roll back a live move after its live migration was given up.

    The volume is at its source again, where the guest still runs, and
    everything is removed here.

    :raises SourceBusy: if a process has the handle open here
    :raises DestinationWritten: if anything was written here
    :raises CloneFailed: if this is unknown
    """
    devices.ensure_closed(node, move.volume_id)
    written = written_regions(node, move)
    if written:
        raise exceptions.DestinationWritten(
            volume=move.volume_id, host=node.host, regions=written)
    rolled_back = node.moves.roll_back(move)
    node.tell(state.Milestone.ROLLED_BACK, rolled_back)
    cleanup.take_down(node, rolled_back)
    rpc.cast(move.source, peers.reconcile, node, move.volume_id)


def written_regions(node: Node, move: state.Move) -> int:
    """Return the number of regions written at the destination of a live move.

    Hydration has not begun, so each local region was written.

    :raises CloneFailed: if the kernel can't tell any more
    """
    clone = names.clone(move.move_id)
    if clone not in node.handles.devices([clone]):
        build(node, move, create=False)
    return _check_writable(node, move)


class MarkHydrated(flow.Step):
    """Flush a completely local volume, and record the phase."""

    default_provides = 'completing'

    def execute(self, move: state.Move) -> state.Move:
        if move.phase is state.Phase.COMPLETING:
            return move
        self._node.handles.flush_handle(move.volume_id)
        return self._node.moves.advance(move, state.Event.HYDRATED)


class CutOver(flow.Step):
    """Put the handle on the LV again; then nothing uses the clone."""

    def execute(self, completing: state.Move) -> None:
        self._node.handles.ensure_handle_on_lv(
            completing.volume_id, completing.destination_lv,
            completing.volume_bytes)
        self._node.lvm.flush_lv(completing.destination_lv)


class RemoveClone(flow.Step):
    """Remove clone, session and metadata LV; then the source may go."""

    def execute(self, completing: state.Move) -> None:
        self._node.clones.remove_clone(completing.move_id)
        self._node.sessions.detach(completing)
        self._node.lvm.remove_lv(names.metadata_lv(completing.move_id))
        self._node.moves.advance(completing, state.Event.DRAINED)


def complete(node: Node, move: state.Move) -> None:
    """Complete a hydrated move, at the destination."""
    flow.run(linear_flow.Flow('complete').add(
        MarkHydrated(node), CutOver(node), RemoveClone(node)), move=move)


def roll_back_if_dropped(node: Node, move: state.Move, volume: Volume) -> None:
    """Roll back a live move whose migration was dropped without a call.

    Runs at the destination.
    """
    users = devices.users(node, move.volume_id)
    written = written_regions(node, move)
    if checks.was_given_up(checks.holders_of(node, move, volume), users,
                           bool(written)):
        events.say(events.LIVE_GIVEN_UP, volume=move.volume_id)
        roll_back_live(node, move)
