# SPDX-License-Identifier: Apache-2.0
"""A move at its source: begin it, roll it back, let hydration begin.

Check, record the intent, export the source, have the peer prepare, commit.
Nothing is touched before the checks; commit is the last step that can fail. If
an earlier step fails, the failure is recorded, and both ends remove
everything, as after a crash.

The export keeps the source device open, and the device keeps the LV in use. So
they are made in this order and removed in reverse order, before the LV.
"""

import dataclasses
import typing

from oslo_log import log as logging
from taskflow.patterns import linear_flow

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.moves import checks
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.moves import flow

LOG = logging.getLogger(__name__)


class CheckFreeSpace(flow.Step):
    """Check that the peer is ready and has free space; change nothing."""

    default_provides = 'destination'

    def execute(self, volume: Volume, peer: str) -> dict[str, typing.Any]:
        description = rpc.call_at(peer, peers.describe, self._node)
        if description['problems']:
            raise exceptions.NotReady(
                host=peer, reason='; '.join(description['problems']))
        checks.check_free_space(
            peer, lvm_reports.FreeSpace(**description['free_space']),
            volume.backing_bytes(), self._node.geometry)
        return description


class EnsureHandle(flow.Step):
    """Ensure the source's handle, which shows whether the volume is open."""

    def execute(self, volume: Volume) -> None:
        nodes.check_length(self._node, volume)
        self._node.handles.ensure_handle_on_lv(
            volume.id, volume.name, volume.backing_bytes())


class CheckBlock(flow.Step):
    """Check that the volume keeps its logical block size."""

    def execute(self, volume: Volume, peer: str,
                destination: dict[str, typing.Any]) -> None:
        checks.check_block(
            peer, destination['block'], self._node.lvm.logical_block(
                names.handle_path(volume.id)))


class PauseReencryption(flow.Step):
    """Pause a re-encryption: no header changes until the move ends."""

    def execute(self, volume: Volume) -> None:
        devices.end_interrupted_reencryption(self._node, volume)


class CheckClosed(flow.Step):
    """Check that the handle at the source is closed: the fence of a move."""

    def execute(self, volume: Volume) -> None:
        devices.ensure_closed(self._node, volume.id)
        if volume.is_authenticated:
            # A boot that opened it again would write to the source of the
            # copy.
            boot_notes.forget(
                self._node, self._node.handles.survey(), volume.id)


class Flush(flow.Step):
    """Flush the volume, so its writes survive a power loss at the source.

    A guest that flushes at the destination reaches only the destination's
    disk.
    """

    def execute(self, volume: Volume) -> None:
        self._node.handles.flush_handle(volume.id)


class MapHoles(flow.Step):
    """Read the source's holes, which need no copy.

    The volume is closed and flushed. Without a map everything is copied: a
    move never fails for lack of a map.
    """

    default_provides = ('holes', 'written')

    def execute(self, volume: Volume,
                destination: dict[str, typing.Any]
                ) -> tuple[thin_map.Holes, int]:
        if not destination['sparse']:
            return [], 0
        try:
            written = self._node.handles.written(volume.id)
            return self._node.lvm.holes(
                volume.name, volume.backing_bytes(),
                self._node.geometry), written
        except (exceptions.LocalCloneError, OSError, ValueError) as exc:
            LOG.warning('Holes of volume %(volume)s are copied, too: '
                        '%(error)s',
                        {'volume': volume.id, 'error': exc})
            return [], 0


class CheckUnwritten(flow.Step):
    """Check that the holes are still holes: nothing was written meanwhile.

    :raises SourceWritten: if the volume was written
    """

    def execute(self, volume: Volume, holes: thin_map.Holes,
                written: int) -> None:
        if not holes:
            return
        self._node.handles.flush_handle(volume.id)
        if self._node.handles.written(volume.id) != written:
            raise exceptions.SourceWritten(
                volume=volume.id, host=self._node.host)


class Record(flow.Step):
    """Record the move; reverted by recording its failure."""

    default_provides = 'move'

    def __init__(self, node: Node, event: state.Event,
                 asked_by: state.Asked):
        super().__init__(node)
        self._event = event
        self._asked_by = asked_by

    def execute(self, volume: Volume,
                destination: dict[str, typing.Any]) -> state.Move:
        move = self._node.moves.begin(
            volume, destination['host'], self._event, self._node.geometry,
            self._node.exports.source_location, iscsi.new_credentials(),
            destination['initiator'], self._asked_by)
        self._node.tell(state.Milestone.BEGUN, move)
        return move

    def revert(self, result: typing.Any, **_kwargs: typing.Any) -> None:
        if isinstance(result, state.Move):
            try:
                abandon(self._node, result)
            except Exception:  # a failure here must not hide the first error
                events.say(events.NOT_ROLLED_BACK, exc_info=True,
                           volume=result.volume_id)


class Export(flow.Step):
    """Export the source to the destination's initiator, read-only."""

    def execute(self, move: state.Move) -> None:
        self._node.handles.ensure_source(move)
        self._node.exports.export_source(move)


class Prepare(flow.Step):
    """Have the peer build its stack."""

    def execute(self, move: state.Move, holes: thin_map.Holes) -> None:
        rpc.call_at(move.destination, destination.prepare, self._node,
                    move.move_id, move.token.nonce, holes)


class Commit(flow.Step):
    """Swap the identities: from now on the volume is at its new home."""

    default_provides = 'committed'

    def execute(self, move: state.Move) -> state.Move:
        try:
            committed = self._node.moves.commit(move)
        except Exception:
            found = self._committed(move)
            if found is None:
                raise
            committed = found
        self._node.tell(state.Milestone.COMMITTED, committed)
        return committed

    def _committed(self, move: state.Move) -> state.Move | None:
        """Return the committed move if only the answer was lost."""
        try:
            recorded = self._node.moves.get_move(move.move_id)
        except Exception:  # a failure here must not hide the first error
            return None
        if (recorded and recorded.committed
                and recorded.token.nonce == move.token.nonce):
            return recorded
        return None


def move_volume(node: Node, volume: Volume, peer: str,
                live: bool = False,
                asked_by: state.Asked = state.Asked.ATTACH) -> state.Move:
    """Move a volume to a peer.

    :param peer: service host of the destination
    :param live: for a live migration: the source stays in use until
        :func:`begin_hydration`. Otherwise nothing may use the volume
    :param asked_by: the origin of the request for the move
    :returns: the committed move; the destination takes the next step
    :raises LocalCloneError: if a step failed; the move is rolled back
    """
    event = (state.Event.LIVE_MOVE_BEGUN if live
             else state.Event.MOVE_BEGUN)
    steps = linear_flow.Flow('move').add(
        CheckFreeSpace(node), EnsureHandle(node), CheckBlock(node),
        PauseReencryption(node))
    if not live:
        steps.add(CheckClosed(node), Flush(node), MapHoles(node))
    steps.add(Record(node, event, asked_by), Export(node), Prepare(node))
    if not live:
        steps.add(CheckClosed(node, 'still closed'), CheckUnwritten(node))
    # The guest goes on writing: see :mod:`.holes`.
    no_holes: dict[str, typing.Any] = {'holes': ()} if live else {}
    return run(node, volume, peer, steps.add(Commit(node)),
               **no_holes)


def run(node: Node, volume: Volume,
        peer: str, steps: linear_flow.Flow, **given: typing.Any
        ) -> state.Move:
    """Take the steps of a move up to its commit; see :func:`move_volume`.

    :param given: further arguments of the steps
    """
    committed: state.Move = flow.run(
        steps, volume=volume, peer=peer, **given)['committed']
    rpc.cast(peer, peers.reconcile, node, volume.id)
    if not (committed.keeps_handle or committed.is_deferred):
        drop_handle(node, committed)
    return committed


def drop_handle(node: Node, move: state.Move) -> None:
    """Remove the handle at the source, once the guest has left it.

    The LV is outdated from now on, and is tagged so: a boot makes no handle on
    it. A handle on another device is left alone. If a process has the handle
    open, it stays until a later sweep. An error is only logged.
    """
    name = names.handle(move.volume_id)
    try:
        if name not in node.handles.devices([name]):
            return  # the usual case in a sweep
        # Without LVM, because the volume's owner waits.
        present = survey.Survey({}, node.handles.devices(
            survey.names_of(move.volume_id)))
        handle = present.handle(move.volume_id)
        backing = node.lvm.number_of(move.source_lv)
        if not backing:  # udev may have lost its path
            lv = node.lvm.lvs().get(move.source_lv)
            backing = lv.number if lv else ''
        if not (handle and backing and {backing}.issuperset(handle.uses())):
            return
        # First, because without a handle later calls return above.
        node.lvm.mark(move.source_lv, names.AWAY)
        if present.users(move.volume_id):
            LOG.warning('%(device)s stays on this node, although its volume '
                        'is on %(host)s: a process has it open. The device '
                        'does not show the current data of the volume.',
                        {'device': name, 'host': move.destination})
        else:
            if move.extra_bytes:
                boot_notes.forget_left(node, move.volume_id, move.source_lv)
            node.handles.remove_handle(move.volume_id)
    except Exception as exc:  # privsep and the message bus raise other types
        LOG.warning('%(device)s could not be removed; the next periodic '
                    'check tries again: %(error)s',
                    {'device': name, 'error': exc},
                    exc_info=exceptions.is_unexpected(exc))


def abandon(node: Node, move: state.Move) -> None:
    """Roll back an uncommitted move.

    The volume is free at once. The destination removes its part, now if it
    answers, otherwise at its next check. Only afterwards is the export
    withdrawn: if the destination is late and logs in to a missing target, it
    waits for minutes, and all other logins of its node wait with it.
    """
    failed = node.moves.advance(move, state.Event.FAILED)
    node.tell(state.Milestone.ROLLED_BACK, failed)
    try:
        rpc.call_at(failed.destination, peers.reconcile, node,
                    failed.volume_id)
        if not node.moves.is_move(failed.move_id):
            cleanup.withdraw_source(node, failed.move_id)
    except exceptions.LocalCloneError as exc:
        events.say(events.DESTINATION_LEFT, volume=failed.volume_id,
                   host=failed.destination, error=exc)


def abandon_interrupted(node: Node, volume_id: str) -> None:
    """Roll back a move that an earlier run of this service did not commit.

    Only this service moves its volumes, under the volume's lock. The caller
    holds this lock, so no other thread works on the move.
    """
    move = node.moves.move_of(volume_id)
    if move and not move.committed and move.source == node.host:
        abandon(node, move)


def begin_hydration(node: Node, move: state.Move) -> None:
    """Let hydration begin, because the guest has left the source.

    The source records this, because only its kernel shows it.

    :raises SourceBusy: if a process still uses the volume here: its writes
        might be missing at the destination
    """
    devices.ensure_closed(node, move.volume_id)
    # A reboot may have removed the handle, and flushing needs it.
    node.handles.ensure_handle_on_lv(
        move.volume_id, move.source_lv, move.size_bytes)
    node.handles.flush_handle(move.volume_id)
    released = node.moves.advance(move, state.Event.SOURCE_DETACHED)
    rpc.cast(move.destination, peers.reconcile, node, move.volume_id)
    drop_handle(node, released)


def export_again(node: Node, move: state.Move) -> None:
    """Export the source of a move again, for example after a reboot.

    :raises LocalCloneError: if it has no device; an error of its export is
        only logged
    """
    node.handles.ensure_source(move)
    with events.failure_logged(
            events.EXPORTS_DIFFER, volume=move.volume_id):
        export(node, move)


def export(node: Node, move: state.Move) -> None:
    """Export the source device of a move at its recorded address.

    If this node does not have the address any more, it uses another and
    records it: the destination logs in there at its next check.

    :raises StaleMove: if the record was changed meanwhile
    """
    location = node.exports.location_for(move)
    node.exports.export_source(dataclasses.replace(move, location=location))
    if location != move.location:
        node.moves.relocate(move, location)


def release_if_detached(node: Node, move: state.Move, volume: Volume) -> None:
    """Let hydration begin after a detach without a call, at the source."""
    users = devices.users(node, move.volume_id)
    if checks.has_left_source(
            checks.holders_of(node, move, volume), users):
        events.say(events.SOURCE_LEFT, volume=move.volume_id,
                   host=move.destination)
        begin_hydration(node, move)
