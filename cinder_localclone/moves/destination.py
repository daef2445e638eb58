# SPDX-License-Identifier: Apache-2.0
"""A move at its destination: build the stack over the source, or go back.

The same flow builds the stack the first time and rebuilds it after a power
cut; only the first time may it create anything. When everything is local, the
handle is cut over to the LV, and the clone is removed.
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
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.encryption import devices
from cinder_localclone.moves import checks
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import flow

LOG = logging.getLogger(__name__)


class Allocate(flow.Step):
    """LV and metadata LV: created the first time, else they must exist.

    Says whether the volume's LV reads as zeros: it is thin, nothing was ever
    written to it, and its pool zeroes the rest of a block of which a part is
    written.
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
            # The metadata LV goes first: it marks the volume as arriving.
            self._node.clones.create_metadata(move, lvs)
            created = self._node.lvm.create_lv(
                move.destination_lv, move.size_bytes, move.volume_id,
                covered=True,  # by the clone
                extra_bytes=move.extra_bytes, lvs=lvs)
            if move.extra_bytes:
                # A key may have gone since backups of its header were made
                # here, when this node was its home before.
                self._node.crypt.mark(move.destination_lv, names.OUTDATED)
            # None is created in a pool that does not zero.
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
    """Log in to the source and verify that it is that source."""

    default_provides = 'disk'

    def execute(self, move: state.Move) -> str:
        disk = self._node.sessions.attach(move)
        if not move.committed:  # afterwards there is no way back
            checks.check_block(self._node.host, self._node.lvm.own_block(),
                               self._node.lvm.logical_block(disk))
        return disk


class Clone(flow.Step):
    """The clone over LV, metadata LV and the source's disk.

    The source's holes are left out only where the LV has them, too.
    """

    def execute(self, move: state.Move, disk: str, blank: bool,
                holes: thin_map.Holes) -> None:
        self._node.clones.ensure_clone(move, disk, holes if blank else ())


class Handle(flow.Step):
    """The constant path; and proof that it can be read.

    A guest that uses the volume through its source goes on doing so until
    the move is committed; what it gets then is proven before.
    """

    def execute(self, move: state.Move, disk: str) -> None:
        if move.is_deferred and not move.committed:
            self._node.clones.read_clone(move.move_id)
        elif _put_on_clone(self._node, move, disk):
            self._node.handles.read_head(move.volume_id)


def _put_on_clone(node: Node, move: state.Move, source: str) -> bool:
    """The handle is on the clone; of a volume that follows, from now on.

    :param source: path of the source's disk; '' if it can't be reached
    :returns: whether it had to be put there
    :raises SourceUnreachable: if what is at the source should be flushed
        first, and that does not answer
    """
    if not (move.is_deferred and node.clones.begin_swap(move)):
        return node.handles.ensure_handle_on_clone(move)
    if (source and node.sessions.is_away(move)
            and not _can_do_without_home(node, move)):
        raise exceptions.SourceUnreachable(
            portal=move.location, reason='data that this node wrote can\'t be '
            'flushed')
    changed = node.handles.survey().is_handle_foreign(move.volume_id)
    if changed:
        _check_writable(node, move)
        if not source:  # what waits for its home fails: it is given up
            node.sessions.end_remote(move.volume_id)
        node.handles.switch_to_clone(move, source)
    else:
        # Nobody has used it since: this node was rebooted.
        if source:
            node.clones.flush_disk(move, source)
        changed = node.handles.ensure_handle_on_clone(move)
    if _is_noted(node, move):
        cleanup.end_after_swap(node, move.volume_id)
        node.clones.end_swap(move)
    return changed


def _is_noted(node: Node, move: state.Move) -> bool:
    """Note on the LV what a boot needs to open an encrypted volume.

    :returns: whether that is done; until then a boot needs the initiator's
        record of what is passed through, so that has to stay, but the copy
        goes on
    """
    try:
        if move.extra_bytes:
            devices.note_moved(
                node, move.volume_id, move.destination_lv)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The LV of volume %(volume)s could not be tagged with the '
                    'data that a boot needs to open it; the copy continues, '
                    'will retry: %(error)s',
                    {'volume': move.volume_id, 'error': exc})
        return False
    return True


def _check_writable(node: Node, move: state.Move) -> int:
    """A clone works.

    :returns: how many of its regions were local, by this same status: a
        clone that fails afterwards reports none
    :raises CloneFailed: if a guest would get errors of it
    """
    status = node.clones.clone_status(move.move_id)
    if status.mode != 'rw':
        raise exceptions.CloneFailed(volume=move.volume_id, host=node.host,
                                     mode=status.mode)
    return status.hydrated


def _can_do_without_home(node: Node, move: state.Move) -> bool:
    """Whether the home of before is away, and nobody here needs it.

    It serves the volume no more once that is detached; then nothing is in
    flight.
    """
    if devices.users(node, move.volume_id):
        return False
    node.sessions.end_remote(move.volume_id)
    return not node.sessions.is_away(move)


def build(node: Node, move: state.Move, create: bool,
          holes: thin_map.Holes = ()) -> str:
    """Build the destination's stack, and leave hydration as it is.

    :param create: whether LVs may be created. Never after commit:
        new ones would be empty, and what the guest wrote would be lost.
    :param holes: of the source; none unless it was closed when they were
        looked for
    :returns: path of the source's disk
    :raises MissingData: if an LV that may not be created is gone
    :raises LocalCloneError: if the source or a command fails
    """
    disk: str = flow.run(linear_flow.Flow('build').add(
        Allocate(node, create), AttachSource(node), Clone(node),
        Handle(node)), move=move, holes=holes)['disk']
    return disk


def rebuild(node: Node, move: state.Move) -> str:
    """The same after the commit, at each look.

    :returns: path of the source's disk; '' if that can't be reached, and is
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
    """Put the handle on a clone without its source, if all of it is local.

    Then the source is not needed any more. Otherwise nobody gets to read the
    clone. :func:`build` has been tried, so the LVs are active.

    :returns: whether all is local
    """
    node.clones.ensure_clone_alone(move)
    if not node.clones.clone_status(move.move_id).finished:
        return False
    if _put_on_clone(node, move, ''):
        node.handles.read_head(move.volume_id)
    return True


def open_alone(node: Node, move: state.Move) -> None:
    """The handle, on a clone of which some may not be readable.

    As for :func:`open_if_complete`, the LVs are active.
    """
    node.clones.ensure_clone_alone(move)
    _put_on_clone(node, move, '')


@rpc.method('prepare', rpc.DESTINATION, gives_way=True)
def prepare(node: Node, move_id: str, nonce: str,
            holes: thin_map.Holes = ()) -> None:
    """Do the destination's part of a move, which its source asks for.

    What earlier moves of the volume have left here goes first.

    :param nonce: of the move's token, which tells two moves apart
    :param holes: of the source
    :raises StaleMove: if the record is not, or no longer, that of the
        caller: a late or repeated request builds nothing
    :raises LocalCloneError: if the stack could not be built
    """
    move = node.moves.get_move(move_id)
    with node.lock(move.volume_id if move else move_id):
        _prepare(node, move_id, nonce, holes)


def _prepare(node: Node, move_id: str, nonce: str, holes: thin_map.Holes
             ) -> None:
    """The same for a caller that holds the lock."""
    move = node.moves.get_move(move_id)
    if (move is None or move.token.nonce != nonce
            or move.committed or move.destination != node.host):
        raise exceptions.StaleMove(
            volume=move.volume_id if move else 'of move record ' + move_id)
    for earlier in cleanup.here(node, move.volume_id):
        if earlier.move_id == move_id:  # given up, maybe since it was read
            raise exceptions.StaleMove(volume=move.volume_id)
        cleanup.take_down(node, earlier)
    _check_handle(node, move)
    build(node, move, create=True, holes=holes)
    _open_upper(node, move)


def _open_upper(node: Node, move: state.Move) -> None:
    """What Nova is about to open is there before the move is committed.

    A volume that follows its instance is in use here, by its top. Any other
    that nobody attaches needs none.
    """
    volume = node.volumes.volume(move.volume_id)
    if (move.asked_by is state.Asked.ATTACH and volume is not None
            and (volume.status in statuses.USED_BY_NOVA
                 or rows.recorded(volume))):
        devices.open(node, volume, move.destination_lv)


def _check_handle(node: Node, move: state.Move) -> None:
    """What others still write to here never becomes the volume.

    Cinder's own migration to here may have been given up by its service,
    while whatever it has begun still has the handle open. A guest that the
    volume follows has it open on the source.

    :raises SourceBusy: if the handle is open on anything else
    :raises NotPossible: if it is longer than what is to be copied
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
                volume=move.volume_id, reason='its device on the node that '
                'uses it is larger than its row says: an extension has '
                'failed. Extend it again.')
        return
    if handle and handle.opened and not (
            clone and handle.uses()[:1] == (clone.number,)):
        devices.ensure_closed(node, move.volume_id)


def roll_back_live(node: Node, move: state.Move) -> None:
    """The live migration was given up.

    The volume is at its source again, where the guest never left it, and
    nothing is left here.

    :raises SourceBusy: if something has the handle open here
    :raises DestinationWritten: if anything was written here
    :raises CloneFailed: if that is unknown
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
    """How many regions were written at the destination of a live move.

    Nothing hydrates yet, so a region that is local was written.

    :raises CloneFailed: if the kernel cannot tell any more
    """
    clone = names.clone(move.move_id)
    if clone not in node.handles.devices([clone]):
        build(node, move, create=False)
    return _check_writable(node, move)


class MarkHydrated(flow.Step):
    """Everything is local: flushed, and said so in the record."""

    default_provides = 'completing'

    def execute(self, move: state.Move) -> state.Move:
        if move.phase is state.Phase.COMPLETING:
            return move
        self._node.handles.flush_handle(move.volume_id)
        return self._node.moves.advance(move, state.Event.HYDRATED)


class CutOver(flow.Step):
    """The handle maps to the LV again; the clone is used by nothing."""

    def execute(self, completing: state.Move) -> None:
        self._node.handles.ensure_handle_on_lv(
            completing.volume_id, completing.destination_lv,
            completing.volume_bytes)
        self._node.lvm.flush_lv(completing.destination_lv)


class RemoveClone(flow.Step):
    """Clone, session and metadata go; then the source may."""

    def execute(self, completing: state.Move) -> None:
        self._node.clones.remove_clone(completing.move_id)
        self._node.sessions.detach(completing)
        self._node.lvm.remove_lv(names.metadata_lv(completing.move_id))
        self._node.moves.advance(completing, state.Event.DRAINED)


def complete(node: Node, move: state.Move) -> None:
    """At the destination: finish a hydrated move."""
    flow.run(linear_flow.Flow('complete').add(
        MarkHydrated(node), CutOver(node), RemoveClone(node)), move=move)


def roll_back_if_dropped(node: Node, move: state.Move,
                         volume: objects.Volume) -> None:
    """At the destination: the migration was dropped without a call."""
    users = devices.users(node, move.volume_id)
    written = written_regions(node, move)
    if checks.may_go_back(checks.holders_of(node, move, volume), users,
                          bool(written)):
        events.say(events.LIVE_GIVEN_UP, volume=move.volume_id)
        roll_back_live(node, move)
