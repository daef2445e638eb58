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
from cinder_localclone import names
from cinder_localclone import stack
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
    imports: object
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


def check_room(host: str, room: stack.Room, size_gib: int,
               geometry: state.Geometry) -> None:
    """:raises NoRoom: if a volume and its metadata do not fit"""
    size = size_gib << 30
    lack = room.lacks(size, geometry.metadata_bytes(size))
    if lack:
        raise exceptions.NoRoom(host=host, size=size_gib, reason=lack)


class _Step(task.Task):
    """One step of a flow, on this node.

    :param name: for a step that a flow takes twice
    """

    def __init__(self, node, name=None):
        super().__init__(name)
        self._node = node


# -- at the source


class CheckRoom(_Step):
    """The peer is able and has room; nothing has been touched yet."""

    default_provides = 'destination'

    def execute(self, context, volume, peer):
        found = self._node.peers.describe(context, peer)
        if found['problems']:
            raise exceptions.NotReady(
                host=peer, reason='; '.join(found['problems']))
        check_room(peer, stack.Room(**found['room']), volume.size,
                   self._node.geometry)
        return found


class Stand(_Step):
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

    default_provides = 'transfer'

    def __init__(self, node, event, new_credentials):
        super().__init__(node)
        self._event = event
        self._new_credentials = new_credentials

    def execute(self, volume, destination):
        return self._node.records.begin(
            volume, destination['host'], self._event, self._node.geometry,
            self._node.exports.transfer_location, self._new_credentials(),
            destination['initiator'])

    def revert(self, context, result, **_kwargs):
        if isinstance(result, state.Transfer):
            try:
                abandon(self._node, context, result)
            except Exception:  # why the move has failed must be heard
                LOG.exception('The next look settles the transfer of volume '
                              '%s.', result.volume_id)


class Offer(_Step):
    """Serve the source to the destination's initiator, read-only."""

    def execute(self, transfer):
        self._node.exports.offer_source(transfer)


class Prepare(_Step):
    """The peer builds its stack."""

    def execute(self, context, transfer):
        self._node.peers.prepare(context, transfer.destination,
                                 transfer.shadow_id, transfer.token.nonce)


class Commit(_Step):
    """Swap the identities: from here on the volume is at its new home."""

    default_provides = 'committed'

    def execute(self, transfer):
        try:
            return self._node.records.commit(transfer)
        except Exception:
            found = self._committed(transfer)
            if found is None:
                raise
            return found

    def _committed(self, transfer):
        """The transfer if only the answer to the commit was lost."""
        with contextlib.suppress(Exception):
            found = self._node.records.transfer(transfer.shadow_id)
            if (found and found.committed
                    and found.token.nonce == transfer.token.nonce):
                return found


def users(node: Node, volume_id: str) -> int:
    """How many on this node use a volume's handle, its copying aside.

    An iSCSI initiator that is no destination of a transfer counts.
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


def move(node: Node, context, volume, peer: str, new_credentials,
         live: bool = False) -> state.Transfer:
    """Move a volume to a peer.

    :param live: for a live migration: the source is in use and stays so
        until :func:`let_go`; without it, nothing may use the volume
    :returns: the committed transfer; what follows is the destination's step
    """
    event = (state.Event.LIVE_MOVE_BEGUN if live
             else state.Event.MOVE_BEGUN)
    flow = linear_flow.Flow('move').add(CheckRoom(node), Stand(node))
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


def abandon(node: Node, context, transfer: state.Transfer) -> None:
    """Give up a transfer that is not committed.

    The source is itself again at once; the destination takes down what it
    has, now if it answers, else when it looks the next time. Only then the
    export goes: a destination that is late with its login to a target that
    is gone would wait for minutes, and all other logins of its node with it.
    """
    failed = node.records.advance(transfer, state.Event.FAILED)
    try:
        node.peers.converge(context, failed.destination, failed.volume_id)
        if not node.records.is_transfer(failed.shadow_id):
            node.exports.withdraw_source(failed)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The destination %(host)s will take down its part of '
                    'the failed transfer of volume %(volume)s later: '
                    '%(error)s', {'host': failed.destination,
                                  'volume': failed.volume_id, 'error': exc})


def let_go(node: Node, context, transfer: state.Transfer) -> None:
    """At the source: the guest has left, hydration may begin.

    Whether it has is seen here, at the source, so the source records it.

    :raises SourceBusy: if something still uses the volume here: it might
        write what the destination has already copied
    """
    check_closed(node, transfer.volume_id)
    node.stack.flush_handle(transfer.volume_id)
    node.records.advance(transfer, state.Event.SOURCE_DETACHED)
    node.peers.converge_soon(context, transfer.destination,
                             transfer.volume_id)


# -- at the destination


class Allocate(_Step):
    """LV and metadata LV: created the first time, else they must exist."""

    def __init__(self, node, create):
        super().__init__(node)
        self._create = create

    def execute(self, transfer):
        if self._create:
            self._allocate(transfer)
        else:
            self._find(transfer)

    def _allocate(self, transfer):
        with self._node.lock('room'):
            if transfer.destination_lv not in self._node.stack.lvs():
                check_room(self._node.host, self._node.stack.room(),
                           transfer.size_gib, transfer.geometry)
            # The metadata LV goes first: it marks the volume as arriving.
            self._node.stack.create_metadata(transfer)
            self._node.stack.create_lv(
                transfer.destination_lv, transfer.size_bytes,
                transfer.volume_id)

    def _find(self, transfer):
        found = self._node.stack.lvs()
        for what, lv in (
                ('The logical volume', found.get(transfer.destination_lv)),
                ('The transfer metadata', found.get(
                    names.metadata_lv(transfer.shadow_id)))):
            if lv is None:
                raise exceptions.MissingData(
                    what=what, volume=transfer.volume_id,
                    host=self._node.host)
            self._node.stack.activate(lv.name)


class AttachSource(_Step):
    """Log in to the source and verify that it is that source."""

    default_provides = 'disk'

    def execute(self, transfer):
        return self._node.imports.attach(transfer)


class Clone(_Step):
    def execute(self, transfer, disk):
        self._node.stack.ensure_clone(transfer, disk)


class Handle(_Step):
    """The constant path; and proof that it can be read."""

    def execute(self, transfer):
        if self._node.stack.ensure_handle_on_clone(
                transfer.volume_id, transfer.shadow_id, transfer.size_bytes):
            self._node.stack.read_head(transfer.volume_id)


def build(node: Node, transfer: state.Transfer, create: bool) -> str:
    """Build the destination's stack, hydration as it is.

    :param create: whether LVs may be created. Never after commit: made anew
        they would be empty, and what the guest wrote forgotten.
    :returns: path of the source's disk
    """
    return run(linear_flow.Flow('build').add(
        Allocate(node, create), AttachSource(node), Clone(node),
        Handle(node)), transfer=transfer)['disk']


def prepare(node: Node, shadow_id: str, nonce: str) -> None:
    """The destination's part of a move, asked for by the source.

    :raises StaleTransfer: if the record is not, or no longer, that of the
        caller: a late or repeated request builds nothing
    """
    transfer = node.records.transfer(shadow_id)
    if (transfer is None or transfer.token.nonce != nonce
            or transfer.committed or transfer.destination != node.host
            or transfer.phase not in (state.Phase.STARTING,
                                      state.Phase.MIGRATING)):
        raise exceptions.StaleTransfer(
            volume=transfer.volume_id if transfer else 'of ' + shadow_id)
    build(node, transfer, create=True)


def give_back(node: Node, context, transfer: state.Transfer) -> None:
    """At the destination: the live migration was given up.

    The volume is at its source again, where the guest never left it, and
    nothing is left here.

    :raises SourceBusy: if something has the handle open here
    :raises DestinationWritten: if anything was written here
    :raises CloneFailed: if that cannot be told
    """
    check_closed(node, transfer.volume_id)
    written = written_regions(node, transfer)
    if written:
        raise exceptions.DestinationWritten(
            volume=transfer.volume_id, host=node.host, regions=written)
    undo(node, node.records.roll_back(transfer))
    node.peers.converge_soon(context, transfer.source, transfer.volume_id)


def written_regions(node: Node, transfer: state.Transfer) -> int:
    """How many regions were written at the destination of a live move.

    Nothing hydrates yet, so a region that is local was written.

    :raises CloneFailed: if the kernel cannot tell any more
    """
    if transfer.shadow_id not in (
            names.shadow_of_clone(name) for name in node.stack.devices()):
        build(node, transfer, create=False)
    status = node.stack.clone_status(transfer.shadow_id)
    if status.mode != 'rw':
        raise exceptions.CloneFailed(volume=transfer.volume_id,
                                     host=node.host, mode=status.mode)
    return status.hydrated


def undo(node: Node, transfer: state.Transfer) -> None:
    """End a transfer that is rolling back, at its destination.

    :raises InvalidTransition: if the volume lives here
    """
    transfer.token.after(state.Event.DESTINATION_REMOVED, transfer.committed)
    take_down(node, transfer)
    node.records.finish(transfer, state.Event.DESTINATION_REMOVED)


def take_down(node: Node, transfer: state.Transfer) -> None:
    """Remove the destination's stack of a transfer, and the LV.

    The session goes first: a read that waits for a source which has been
    withdrawn would keep the handle open for ever.
    """
    node.imports.detach(transfer)
    node.stack.remove_handle(transfer.volume_id)
    node.stack.remove_clone(transfer.shadow_id)
    node.stack.remove_lv(names.metadata_lv(transfer.shadow_id))
    remove_volume_lv(node, transfer.destination_lv, transfer.size_gib)


def remove_volume_lv(node: Node, lv: str, size_gib: int) -> None:
    """Remove the LV of a volume; one that is gone is done."""
    if lv in node.stack.lvs():
        node.clear(lv, size_gib)
        node.stack.remove_lv(lv)


# -- completion


class Land(_Step):
    """Everything is local: flushed, and said so in the record."""

    default_provides = 'completing'

    def execute(self, transfer):
        if transfer.phase is state.Phase.COMPLETING:
            return transfer
        self._node.stack.flush_handle(transfer.volume_id)
        return self._node.records.advance(transfer, state.Event.HYDRATED)


class CutOver(_Step):
    """The handle maps to the LV again; the clone is used by nothing."""

    def execute(self, completing):
        self._node.stack.ensure_handle_on_lv(
            completing.volume_id, completing.destination_lv,
            completing.size_bytes)
        self._node.stack.flush_lv(completing.destination_lv)


class LetGo(_Step):
    """Clone, session and metadata go; then the source may."""

    default_provides = 'releasing'

    def execute(self, completing):
        self._node.stack.remove_clone(completing.shadow_id)
        self._node.imports.detach(completing)
        self._node.stack.remove_lv(names.metadata_lv(completing.shadow_id))
        return self._node.records.advance(completing, state.Event.DRAINED)


def complete(node: Node, transfer: state.Transfer) -> state.Transfer:
    """Finish a hydrated transfer at its destination."""
    return run(linear_flow.Flow('complete').add(
        Land(node), CutOver(node), LetGo(node)),
        transfer=transfer)['releasing']


def release(node: Node, transfer: state.Transfer) -> None:
    """Remove the drained source; the transfer ends here."""
    node.exports.withdraw_source(transfer)
    node.stack.remove_handle(transfer.volume_id)
    remove_volume_lv(node, transfer.source_lv, transfer.size_gib)
    node.records.finish(transfer, state.Event.SOURCE_REMOVED)
