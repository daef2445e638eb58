# SPDX-License-Identifier: Apache-2.0
"""The move of a volume, as TaskFlow flows.

At the source: check, record the intent, offer the source, have the peer
prepare, commit. Nothing is touched before the checks; commit is the last
step that can fail; a failure before it records that the move has failed, and
both sides take down what they have (:mod:`cinder_localclone.reconcile` does
the same after a crash).

At the destination: build the stack over the offered source. The same flow
builds it the first time and rebuilds it after a power cut; only the first
time may it create anything.
"""

import contextlib
import dataclasses

from oslo_log import log as logging
import taskflow.engines
from taskflow.patterns import linear_flow
from taskflow import task

from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import state

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Node:
    """What the work on this node needs.

    :param host: this service's host, without pool
    :param lock: ``lock(name)``, a context manager; raises Busy
    :param is_at: ``is_at(connector, host)``: whether a connector belongs to
        the node of a service host
    :param clear: overwrites an LV's data before it is removed, where thick
        volumes would leak it: ``clear(lv_name, size_gib)``
    """

    host: str
    records: object
    stack: object
    exports: object
    sessions: object
    peers: object
    geometry: state.Geometry
    lock: object
    is_at: object
    clear: object


def run(flow, **store):
    """Run a flow; the error of a step that failed is raised as itself."""
    engine = taskflow.engines.load(flow, store=store, engine='serial')
    engine.run()
    return engine.storage.fetch_all()


def check_free_space(host: str, free: reports.FreeSpace, size_gib: int,
                     geometry: state.Geometry) -> None:
    """:raises NoFreeSpace: if a volume and its metadata do not fit"""
    size = size_gib << 30
    lack = free.lacks(size, geometry.metadata_bytes(size))
    if lack:
        raise exceptions.NoFreeSpace(host=host, size=size_gib, reason=lack)


class _Step(task.Task):
    """One step of a flow, on this node.

    :param name: for a step that a flow takes twice
    """

    def __init__(self, node, name=None):
        super().__init__(name)
        self._node = node


# -- at the source


class CheckFreeSpace(_Step):
    """The peer is able and has room; nothing has been touched yet."""

    default_provides = 'destination'

    def execute(self, context, volume, peer):
        found = self._node.peers.describe(context, peer)
        if found['problems']:
            raise exceptions.NotReady(
                host=peer, reason='; '.join(found['problems']))
        check_free_space(
            peer, reports.FreeSpace(**found['room']), volume.size,
            self._node.geometry)
        return found


class EnsureHandle(_Step):
    """The source's handle is there to be served."""

    def execute(self, volume):
        self._node.stack.ensure_handle_on_lv(
            volume.id, volume.name, volume.size << 30)


class CheckClosed(_Step):
    """Nothing at the source has the handle open: the fence of a move."""

    def execute(self, volume):
        check_closed(self._node, volume.id)


class Flush(_Step):
    """What was written at the source outlives the source's power.

    A guest that flushes at the destination reaches only that node's disk.
    """

    def execute(self, volume):
        self._node.stack.flush_handle(volume.id)


class Record(_Step):
    """Record the intent; undone by recording that the move has failed."""

    default_provides = 'move'

    def __init__(self, node, event, new_credentials):
        super().__init__(node)
        self._event = event
        self._new_credentials = new_credentials

    def execute(self, volume, destination):
        return self._node.records.begin(
            volume, destination['host'], self._event, self._node.geometry,
            self._node.exports.source_location, self._new_credentials(),
            destination['initiator'])

    def revert(self, context, result, **_kwargs):
        if isinstance(result, state.Move):
            try:
                abandon(self._node, context, result)
            except Exception:  # why the move has failed must be heard
                LOG.exception('The next look settles the move of volume '
                              '%s.', result.volume_id)


class Offer(_Step):
    """Serve the source to the destination's initiator, read-only."""

    def execute(self, move):
        self._node.exports.offer_source(move)


class Prepare(_Step):
    """The peer builds its stack."""

    def execute(self, context, move):
        self._node.peers.prepare(context, move.destination,
                                 move.shadow_id, move.token.nonce)


class Commit(_Step):
    """Swap the identities: from here on the volume is at its new home."""

    default_provides = 'committed'

    def execute(self, move):
        try:
            return self._node.records.commit(move)
        except Exception:
            found = self._committed(move)
            if found is None:
                raise
            return found

    def _committed(self, move):
        """The move if only the answer to the commit was lost."""
        with contextlib.suppress(Exception):
            found = self._node.records.get_move(move.shadow_id)
            if (found and found.committed
                    and found.token.nonce == move.token.nonce):
                return found


def users(node: Node, volume_id: str) -> int:
    """How many on this node use a volume's handle, its copying aside.

    An iSCSI initiator that is no destination of a move counts.
    """
    handle = node.stack.devices().get(names.handle(volume_id))
    served, to_others = node.exports.serving(volume_id)
    opened = handle.opened if handle else 0
    return opened - bool(served and opened) + bool(to_others)


def check_closed(node: Node, volume_id: str) -> None:
    """:raises SourceBusy: if anything uses the handle on this node"""
    count = users(node, volume_id)
    if count:
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=count,
            device=names.handle(volume_id))


def move_volume(node: Node, context, volume, peer: str, new_credentials,
                live: bool = False) -> state.Move:
    """Move a volume to a peer.

    :param live: for a live migration: the source is in use and stays so
        until :func:`source_released`; without it, nothing may use the volume
    :returns: the committed move; what follows is the destination's step
    """
    event = (state.Event.LIVE_MOVE_BEGUN if live
             else state.Event.MOVE_BEGUN)
    flow = linear_flow.Flow('move').add(
        CheckFreeSpace(node), EnsureHandle(node))
    if not live:
        flow.add(CheckClosed(node), Flush(node))
    flow.add(Record(node, event, new_credentials), Offer(node),
             Prepare(node))
    if not live:
        flow.add(CheckClosed(node, 'still closed'))
    flow.add(Commit(node))
    committed = run(flow, context=context, volume=volume,
                    peer=peer)['committed']
    node.peers.converge_soon(context, peer, volume.id)
    return committed


def abandon(node: Node, context, move: state.Move) -> None:
    """Give up a move that is not committed.

    The source is itself again at once; the destination takes down what it
    has, now if it answers, else when it looks the next time. Only then the
    export goes: a destination that is late with its login to a target that
    is gone would wait for minutes, and all other logins of its node with it.
    """
    failed = node.records.advance(move, state.Event.FAILED)
    try:
        node.peers.converge(context, failed.destination, failed.volume_id)
        if not node.records.is_move(failed.shadow_id):
            node.exports.withdraw_source(failed)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The destination %(host)s will take down its part of '
                    'the failed move of volume %(volume)s later: '
                    '%(error)s', {'host': failed.destination,
                                  'volume': failed.volume_id, 'error': exc})


def source_released(node: Node, context, move: state.Move) -> None:
    """At the source: the guest has left, hydration may begin.

    Whether it has is seen here, at the source, so the source records it.

    :raises SourceBusy: if something still uses the volume here: it might
        write what the destination has already copied
    """
    check_closed(node, move.volume_id)
    node.stack.flush_handle(move.volume_id)
    node.records.advance(move, state.Event.SOURCE_DETACHED)
    node.peers.converge_soon(context, move.destination,
                             move.volume_id)


# -- at the destination


class Allocate(_Step):
    """LV and metadata LV: created the first time, else they must exist."""

    def __init__(self, node, create):
        super().__init__(node)
        self._create = create

    def execute(self, move):
        if self._create:
            self._allocate(move)
        else:
            self._find(move)

    def _allocate(self, move):
        with self._node.lock('free-space'):
            if move.destination_lv not in self._node.stack.lvs():
                check_free_space(
                    self._node.host, self._node.stack.free_space(),
                    move.size_gib, move.geometry)
            # The metadata LV goes first: it marks the volume as arriving.
            self._node.stack.create_metadata(move)
            self._node.stack.create_lv(
                move.destination_lv, move.size_bytes,
                move.volume_id)

    def _find(self, move):
        found = self._node.stack.lvs()
        for what, lv in (
                ('The logical volume', found.get(move.destination_lv)),
                ('The move metadata', found.get(
                    names.metadata_lv(move.shadow_id)))):
            if lv is None:
                raise exceptions.MissingData(
                    what=what, volume=move.volume_id,
                    host=self._node.host)
            self._node.stack.activate(lv.name)


class AttachSource(_Step):
    """Log in to the source and verify that it is that source."""

    default_provides = 'disk'

    def execute(self, move):
        return self._node.sessions.attach(move)


class Clone(_Step):
    def execute(self, move, disk):
        self._node.stack.ensure_clone(move, disk)


class Handle(_Step):
    """The constant path; and proof that it can be read."""

    def execute(self, move):
        if self._node.stack.ensure_handle_on_clone(
                move.volume_id, move.shadow_id, move.size_bytes):
            self._node.stack.read_head(move.volume_id)


def build(node: Node, move: state.Move, create: bool) -> str:
    """Build the destination's stack, hydration as it is.

    :param create: whether LVs may be created. Never after commit: made anew
        they would be empty, and what the guest wrote forgotten.
    :returns: path of the source's disk
    """
    return run(linear_flow.Flow('build').add(
        Allocate(node, create), AttachSource(node), Clone(node),
        Handle(node)), move=move)['disk']


def prepare(node: Node, shadow_id: str, nonce: str) -> None:
    """The destination's part of a move, asked for by the source.

    :raises StaleMove: if the record is not, or no longer, that of the
        caller: a late or repeated request builds nothing
    """
    move = node.records.get_move(shadow_id)
    if (move is None or move.token.nonce != nonce
            or move.committed or move.destination != node.host
            or move.phase not in (state.Phase.STARTING,
                                  state.Phase.MIGRATING)):
        raise exceptions.StaleMove(
            volume=move.volume_id if move else 'of ' + shadow_id)
    build(node, move, create=True)


def roll_back_live(node: Node, context, move: state.Move) -> None:
    """At the destination: the live migration was given up.

    The volume is at its source again, where the guest never left it, and
    nothing is left here.

    :raises SourceBusy: if something has the handle open here
    :raises DestinationWritten: if anything was written here
    :raises CloneFailed: if that cannot be told
    """
    check_closed(node, move.volume_id)
    written = written_regions(node, move)
    if written:
        raise exceptions.DestinationWritten(
            volume=move.volume_id, host=node.host, regions=written)
    undo(node, node.records.roll_back(move))
    node.peers.converge_soon(context, move.source, move.volume_id)


def written_regions(node: Node, move: state.Move) -> int:
    """How many regions were written at the destination of a live move.

    Nothing hydrates yet, so a region that is local was written.

    :raises CloneFailed: if the kernel cannot tell any more
    """
    if move.shadow_id not in (
            names.shadow_of_clone(name) for name in node.stack.devices()):
        build(node, move, create=False)
    status = node.stack.clone_status(move.shadow_id)
    if status.mode != 'rw':
        raise exceptions.CloneFailed(volume=move.volume_id,
                                     host=node.host, mode=status.mode)
    return status.hydrated


def undo(node: Node, move: state.Move) -> None:
    """End a move that is rolling back, at its destination.

    :raises InvalidTransition: if the volume lives here
    """
    move.token.after(state.Event.DESTINATION_REMOVED, move.committed)
    tear_down(node, move)
    node.records.finish(move, state.Event.DESTINATION_REMOVED)


def tear_down(node: Node, move: state.Move) -> None:
    """Remove the destination's stack of a move, and the LV.

    The session goes first: a read that waits for a source which has been
    withdrawn would keep the handle open for ever.
    """
    node.sessions.detach(move)
    node.stack.remove_handle(move.volume_id)
    node.stack.remove_clone(move.shadow_id)
    node.stack.remove_lv(names.metadata_lv(move.shadow_id))
    remove_volume_lv(node, move.destination_lv, move.size_gib)


def remove_volume_lv(node: Node, lv: str, size_gib: int) -> None:
    """Remove the LV of a volume; one that is gone is done."""
    if lv in node.stack.lvs():
        node.clear(lv, size_gib)
        node.stack.remove_lv(lv)


# -- completion


class MarkHydrated(_Step):
    """Everything is local: flushed, and said so in the record."""

    default_provides = 'completing'

    def execute(self, move):
        if move.phase is state.Phase.COMPLETING:
            return move
        self._node.stack.flush_handle(move.volume_id)
        return self._node.records.advance(move, state.Event.HYDRATED)


class CutOver(_Step):
    """The handle maps to the LV again; the clone is used by nothing."""

    def execute(self, completing):
        self._node.stack.ensure_handle_on_lv(
            completing.volume_id, completing.destination_lv,
            completing.size_bytes)
        self._node.stack.flush_lv(completing.destination_lv)


class RemoveClone(_Step):
    """Clone, session and metadata go; then the source may."""

    default_provides = 'releasing'

    def execute(self, completing):
        self._node.stack.remove_clone(completing.shadow_id)
        self._node.sessions.detach(completing)
        self._node.stack.remove_lv(names.metadata_lv(completing.shadow_id))
        return self._node.records.advance(completing, state.Event.DRAINED)


def complete(node: Node, move: state.Move) -> state.Move:
    """Finish a hydrated move at its destination."""
    return run(linear_flow.Flow('complete').add(
        MarkHydrated(node), CutOver(node), RemoveClone(node)),
        move=move)['releasing']


def release(node: Node, move: state.Move) -> None:
    """Remove the drained source; the move ends here."""
    node.exports.withdraw_source(move)
    node.stack.remove_handle(move.volume_id)
    remove_volume_lv(node, move.source_lv, move.size_gib)
    node.records.finish(move, state.Event.SOURCE_REMOVED)
