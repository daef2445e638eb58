# SPDX-License-Identifier: Apache-2.0
"""Take snapshots at the volume's home; they stay on this node for good.

A snapshot is a thin LV. It outlives the volume's LV, so a volume with
snapshots moves like any other volume. The node of a snapshot is recorded
before the snapshot is made, and never derived from the volume's present home.
"""

from collections.abc import Callable
import functools
import typing
from typing import Any

from oslo_log import log as logging
import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core.state import Phase
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.moves import source
from cinder_localclone.volumes import manage

LOG = logging.getLogger(__name__)

#: Seconds between two checks of a volume that is still being copied.
EVERY = 2


# -- conditions for a snapshot

def when_copied(seconds: float, attempt: Callable[[], Any]) -> Any:
    """Call a function that needs the complete volume, once it is copied.

    No lock is held during the wait.

    :param attempt: raises BeingCopied until the volume is complete, and
        StaleMove if its home has changed
    :param seconds: time limit of the wait
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            (exceptions.BeingCopied, exceptions.StaleMove)),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(EVERY), reraise=True)(attempt)


def check_copied(node: Node, volume: Volume,
                 progress: Callable[[str], object] = lambda _record: None
                 ) -> None:
    """Check that a volume is complete at its home, by the records.

    :param progress: ``progress(move_id)``: progress of a copy to this node, if
        it is known
    :raises BeingCopied: if it is still being copied
    :raises VolumeIsMoving: if a live migration may yet roll it back
    """
    move = node.moves.move_of(volume.id)
    if move is None or not move.committed:
        return  # its home rolls back an uncommitted move
    if move.phase is Phase.STARTING:
        raise exceptions.VolumeIsMoving(
            volume=volume.id, what='captured (for a snapshot or a clone)',
            phase=move.display_phase)
    raise exceptions.BeingCopied(
        volume=volume.id, host=move.destination,
        progress=progress(move.move_id) or move.display_phase)


def check_pool(node: Node) -> None:
    """Check that this node can take snapshots, and make local clones.

    :raises NeedsThin: if its volumes are thick
    :raises PoolFull: if its thin pool is full
    """
    if not node.lvm.pool:
        raise exceptions.NeedsThin(host=node.host)
    usage = node.lvm.pool_usage()
    if usage.is_full:
        raise exceptions.PoolFull(
            pool='%s/%s' % (node.lvm.group, node.lvm.pool),
            host=node.host, usage=usage)


def at_home(node: Node, volume_id: str, progress: Callable[[str], object]
            ) -> Volume:
    """Return a volume with all of its data flushed to its LV here.

    The caller holds the volume's lock.

    :raises StaleMove: if this node is not its home
    :raises BeingCopied: if it is still being copied
    :raises VolumeIsMoving: if a live migration may yet roll it back
    :raises MissingData: if its move record is lost
    :raises LongerThanRecorded: if its LV is longer than recorded: the snapshot
        would lack the rest
    """
    source.abandon_interrupted(node, volume_id)
    volume = nodes.volume_at_home(node, volume_id)
    check_copied(node, volume, progress)
    if node.handles.survey().metadata(volume.name_id):
        # Some of it may still be at an unknown source.
        raise exceptions.MissingData(
            what='The move record', volume=volume_id, host=node.host)
    nodes.check_length(node, volume)
    node.handles.ensure_handle_on_lv(volume_id, volume.name,
                                     volume.backing_bytes())
    devices.end_interrupted_reencryption(node, volume)
    # Data in this node's page cache is not on the LV.
    node.handles.flush_handle(volume_id)
    return volume


# -- create and delete

class Reconciler(typing.Protocol):
    """The part of :class:`.reconcile.Reconciler` for a snapshot."""

    node: Node

    def progress(self, move_id: str) -> object:
        """Return the progress of a copy to this node, if it is known."""


def create(reconciler: Reconciler, snapshot_id: str, volume_id: str,
           seconds: float) -> str:
    """Take a snapshot of a volume at its home, on any node.

    :param seconds: time limit of the wait for a copy to end
    :returns: the location for the snapshot's row
    :raises LocalCloneError: if the snapshot could not be taken
    """
    node = reconciler.node

    def attempt() -> str:
        volume = node.volumes.volume(volume_id)
        if volume is None:
            raise exceptions.TooLate(what='Snapshot ' + snapshot_id)
        check_copied(node, volume, reconciler.progress)
        home = volume.home
        rpc.call_at(home, take, reconciler, snapshot_id)
        return rows.location(home)
    location: str = when_copied(seconds, attempt)
    return location


@rpc.method('create_snapshot', rpc.HOME, expected=(exceptions.BeingCopied,))
def take(reconciler: Reconciler, snapshot_id: str) -> None:
    """Take a snapshot of a volume whose home is this node.

    :raises BeingCopied: if the volume is still being copied
    :raises StaleMove: if its home is another node
    :raises TooLate: if Cinder no longer waits for the snapshot
    :raises NotPossible: if the volume was extended since Cinder's request
    :raises LocalCloneError: as :func:`at_home`, and if LVM fails
    """
    node = reconciler.node
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None:
        raise exceptions.TooLate(what='Snapshot ' + snapshot_id)
    with node.lock(snapshot.volume_id), devices.reencryption_paused(
            node, snapshot.volume_id):
        volume = at_home(node, snapshot.volume_id, reconciler.progress)
        if volume.size != snapshot.size_gib:
            # A volume made of it would lack the rest.
            raise exceptions.NotPossible(
                volume=volume.id, reason='it was extended to %d GiB after '
                'snapshot %s of %d GiB was requested. Take another snapshot.'
                % (volume.size, snapshot.id, snapshot.size_gib))
        check_pool(node)
        with node.lock(snapshot_id):
            node.snapshots.locate(snapshot_id, node.host, volume.encryption)
            node.lvm.create_snapshot(snapshot_id, volume.name, volume.id)


def delete(node: Node, snapshot_id: str) -> None:
    """Remove a snapshot: now, or once its node can remove it.

    Never an error, because its volume may be deleted with it. :func:`sweep` of
    its node removes it later.
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    try:
        rpc.call_at(snapshot.node, remove, node, snapshot_id)
    except exceptions.LocalCloneError as exc:
        LOG.warning('Snapshot %(snapshot)s is deleted, but %(host)s could not '
                    'remove its data now and tries again later: '
                    '%(error)s', {'snapshot': snapshot_id,
                                  'host': snapshot.node, 'error': exc})


@rpc.method('delete_snapshot', rpc.SNAPSHOT, prompt=True, expected=(
    exceptions.Busy,))
def remove(node: Node, snapshot_id: str) -> None:
    """Remove a snapshot of this node.

    :raises Busy: if other work holds its lock for too long
    :raises LocalCloneError: if LVM fails; the node tries again later
    """
    with node.lock(snapshot_id):
        _remove(node, snapshot_id)


def _remove(node: Node, snapshot_id: str) -> None:
    node.exports.withdraw_volume(snapshot_id, None)
    node.handles.remove_handle(snapshot_id)
    node.lvm.remove_lv(names.snapshot_lv(snapshot_id))


# -- read

def with_node(node: Node, snapshot_id: str) -> rows.Snapshot:
    """Return a snapshot with a node.

    :raises MissingData: if no node has it
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or snapshot.is_to_wipe or not snapshot.node:
        raise exceptions.MissingData(
            what='Snapshot ' + snapshot_id, host='all nodes',
            volume=snapshot.volume_id if snapshot else '?')
    return snapshot


def on_this_node(node: Node, snapshot_id: str) -> rows.Snapshot:
    """Return a snapshot of this node; the caller holds its lock.

    :raises MissingData: if this node does not have it, or it is deleted
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if (snapshot is None or snapshot.is_to_wipe
            or snapshot.node != node.host
            or snapshot.lv not in node.lvm.lvs()):
        raise exceptions.MissingData(
            what='Snapshot ' + snapshot_id, host=node.host,
            volume=snapshot.volume_id if snapshot else '?')
    return snapshot


@rpc.method('connect_snapshot', rpc.SNAPSHOT)
def connect(node: Node, snapshot_id: str, connector: objects.Connector
            ) -> dict[str, Any]:
    """Let a host read a snapshot of this node, locally or over iSCSI.

    :returns: connection properties for os-brick
    :raises MissingData: if this node does not have it
    :raises Refused: if the host has no iSCSI initiator
    """
    with node.lock(snapshot_id):
        snapshot = on_this_node(node, snapshot_id)
        local = node.is_at(connector, node.host)
        if not (local or connector.get('initiator')):
            raise exceptions.Refused(
                volume=snapshot.volume_id, host=connector.get('host'),
                reason='the request names no iSCSI initiator.')
        if snapshot.encryption:
            devices.check_readable(node, snapshot, connector, local)
        node.exports.note_exported(snapshot_id)
        node.handles.ensure_handle_on_snapshot(snapshot_id,
                                               snapshot.size_bytes)
        if local:
            return {'driver_volume_type': 'local',
                    'data': _open(node, snapshot)}
        properties = node.exports.export_volume(
            snapshot_id, connector['initiator'],
            iscsi.new_credentials(), readonly=True)
        return {'driver_volume_type': 'iscsi',
                'data': dict(properties, access_mode='ro')}


def _open(node: Node, snapshot: rows.Snapshot) -> dict[str, Any]:
    """Return the local connection of a snapshot; decrypt it first."""
    if snapshot.encryption is None:
        return {'device_path': names.handle_path(snapshot.id)}
    if not node.handles.survey().crypt(snapshot.id):
        devices.open_snapshot(node, snapshot)
    return {'device_path': names.crypt_path(snapshot.id), 'encrypted': False}


def disconnect(node: Node, snapshot_id: str,
               connector: objects.Connector | None) -> None:
    """End connections of a snapshot; :func:`sweep` removes the rest.

    :param connector: None: all connections
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    try:
        rpc.call_at(snapshot.node, end_connections, node, snapshot_id,
                    connector)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The connection of snapshot %(snapshot)s could not be '
                    'ended now; %(host)s tries again: %(error)s',
                    {'snapshot': snapshot_id, 'host': snapshot.node,
                     'error': exc})


@rpc.method('disconnect_snapshot', rpc.SNAPSHOT)
def end_connections(node: Node, snapshot_id: str,
                    connector: objects.Connector | None) -> None:
    """End connections of a snapshot of this node.

    :param connector: None: all connections
    """
    with node.lock(snapshot_id):
        initiator = connector['initiator'] if (
            connector and 'initiator' in connector) else None
        if initiator or connector is None:
            node.exports.withdraw_volume(snapshot_id, initiator)
        _put_away(node, snapshot_id)


def _put_away(node: Node, snapshot_id: str) -> None:
    """Remove the handle of an unread snapshot, and deactivate its LV."""
    found = node.handles.survey()
    if found.handle(snapshot_id) and not found.users(snapshot_id):
        node.handles.remove_handle(snapshot_id)
        node.lvm.deactivate(names.snapshot_lv(snapshot_id))


# -- the node's sweep

def sweep(node: Node, present: survey.Survey) -> None:
    """Remove deleted snapshots, and end connections without a reader.

    Only on positive evidence: an LV without any row may be the last copy of a
    tenant's data.

    :param present: the devices and LVs of this node
    """
    _resume_suspended(node, present)
    here = present.snapshots(node.lvm.group)
    found = {*here, *manage.adopted(present.lvs, 'snapshot')}
    recorded = node.snapshots.snapshots(found) if found else {}
    for snapshot_id in found:
        snapshot = recorded.get(snapshot_id)
        try:
            if snapshot and snapshot.is_to_wipe:
                _wipe_marked(node, snapshot_id)
                continue
            if snapshot and snapshot_id in here:
                _recognize(node, snapshot, here[snapshot_id])
            if present.handle(snapshot_id):
                _end_if_unread(node, snapshot_id)
        except exceptions.Busy:
            pass
        except exceptions.LocalCloneError as exc:
            LOG.error('Snapshot %(snapshot)s could not be cleaned up, will '
                      'retry: %(error)s',
                      {'snapshot': snapshot_id, 'error': exc})


def _recognize(node: Node, snapshot: rows.Snapshot,
               lv: lvm_reports.LogicalVolume) -> None:
    """Let a snapshot's row name this node, if the node was renamed.

    The LV's tags and the row then name the same host, the former name of this
    node. A failed request may have left an LV here before the snapshot was
    taken elsewhere; its tags differ.

    :param lv: with its tags
    """
    here, said = names.node_tag(node.host), names.with_fact(lv.tags, 'on')
    if snapshot.node == node.host:
        if here not in said:
            return  # it is unknown whether the row means this LV
        for tag in sorted(said - {here}):
            with node.try_lock(snapshot.id):
                node.lvm.unmark(lv.name, tag)
    elif (snapshot.node and names.node_tag(snapshot.node) in said
          and names.same_backend(snapshot.node, node.host)
          # A host with a running service is another node, whatever its disks
          # say.
          and not node.services.alive_by_host().get(snapshot.node)):
        with node.try_lock(snapshot.id):
            # First, because this tag identifies the LV after another renaming.
            if here not in said:
                node.lvm.mark(lv.name, here)
            node.snapshots.relocate_snapshot(
                snapshot.id, snapshot.node, node.host)
        LOG.info('Snapshot %(snapshot)s is recorded on %(host)s now: the '
                 'former name of this node was %(before)s.',
                 {'snapshot': snapshot.id, 'host': node.host,
                  'before': snapshot.node})


def _resume_suspended(node: Node, present: survey.Survey) -> None:
    """Resume LVs left suspended by an LVM command that was killed.

    LVM suspends the origin while it takes a snapshot.
    """
    for lv in present.lvs.values():
        facts = names.facts(lv.tags)
        owner = facts.get('volume') or facts.get('snapshot')
        if lv.suspended and lv.group == node.lvm.group and owner:
            # Under the lock, because LVM takes no snapshot then.
            nodes.attempt(node, owner, functools.partial(_resume, node, lv),
                          functools.partial(_tell_of_resume, lv))


def _resume(node: Node, lv: lvm_reports.LogicalVolume) -> None:
    if node.lvm.resume(lv.name):
        LOG.error('LV %s was left suspended by an interrupted LVM command; it '
                  'was resumed.', lv.name)


def _tell_of_resume(lv: lvm_reports.LogicalVolume, error: Exception) -> None:
    LOG.error('LV %(lv)s is suspended and could not be resumed, will retry: '
              '%(error)s', {'lv': lv.name, 'error': error},
              exc_info=exceptions.is_unexpected(error))


def _wipe_marked(node: Node, snapshot_id: str) -> None:
    with node.try_lock(snapshot_id):
        snapshot = node.snapshots.snapshot(snapshot_id)
        if snapshot is None or not snapshot.is_to_wipe:
            return
        if not snapshot.node:  # managing it has failed
            manage.give_back(node, 'snapshot', snapshot_id)
        # Not if it was unmanaged since the sweep began.
        elif snapshot_id in node.handles.survey().snapshots(node.lvm.group):
            _remove(node, snapshot_id)
            LOG.info('Deleted snapshot %s was removed from this node.',
                     snapshot_id)


def _end_if_unread(node: Node, snapshot_id: str) -> None:
    """End the connections of a snapshot whose reader has gone.

    A snapshot exported a moment ago is left alone.
    """
    with node.try_lock(snapshot_id):
        if not (node.snapshots.is_being_read(snapshot_id)
                or node.exports.was_exported(snapshot_id)):
            node.exports.withdraw_volume(snapshot_id, None)
            _put_away(node, snapshot_id)
