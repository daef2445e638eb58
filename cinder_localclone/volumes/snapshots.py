# SPDX-License-Identifier: Apache-2.0
"""Snapshots: taken at the volume's home, and staying there for good.

A snapshot is a thin LV. It outlives the volume's LV, so a volume that has
some moves as any other. Which node has it is recorded before it is made;
nothing is ever derived from where the volume is by now.
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
from cinder_localclone.encryption import devices
from cinder_localclone.moves import source
from cinder_localclone.volumes import manage

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a volume that is still being copied.
EVERY = 2


# -- what a volume must be for one

def when_copied(seconds: float, attempt: Callable[[], Any]) -> Any:
    """Do what needs all of a volume at its home; wait while it is copied.

    No lock is held meanwhile.

    :param attempt: raises BeingCopied as long as it is not all there;
        StaleMove if the volume went elsewhere meanwhile
    :param seconds: to wait, at most
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            (exceptions.BeingCopied, exceptions.StaleMove)),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(EVERY), reraise=True)(attempt)


def check_copied(node: Node, volume: objects.Volume,
                 progress: Callable[[str], object] = lambda _record: None
                 ) -> None:
    """All of a volume is at its home, by the records.

    :param progress: ``progress(move_id)``: how far a copy to this node is,
        if that is known
    :raises BeingCopied: if it will be
    :raises VolumeIsMoving: if a live migration may yet give it back
    """
    move = node.moves.move_of(volume.id)
    if move is None or not move.committed:
        return  # its home gives up what it has not committed
    if move.phase is Phase.STARTING:
        raise exceptions.VolumeIsMoving(
            volume=volume.id, what='captured (for a snapshot or a clone)',
            phase=move.display_phase)
    raise exceptions.BeingCopied(
        volume=volume.id, host=move.destination,
        progress=progress(move.move_id) or move.display_phase)


def check_pool(node: Node) -> None:
    """This node can take snapshots, and copies of them.

    :raises NeedsThin: if its volumes are thick
    :raises PoolFull: if it takes no more
    """
    if not node.lvm.pool:
        raise exceptions.NeedsThin(host=node.host)
    usage = node.lvm.pool_usage()
    if usage.is_full:
        raise exceptions.PoolFull(
            pool='%s/%s' % (node.lvm.group, node.lvm.pool),
            host=node.host, usage=usage)


def at_home(node: Node, volume_id: str, progress: Callable[[str], object]
            ) -> objects.Volume:
    """A volume whose LV, here, has all that was written to it.

    For a caller that holds the volume's lock.

    :raises StaleMove: if this node is not its home (any more)
    :raises BeingCopied: if it will be
    :raises VolumeIsMoving: if a live migration may yet give it back
    :raises LongerThanRecorded: if some of it would be left out
    """
    source.abandon_interrupted(node, volume_id)
    volume = nodes.volume_at_home(node, volume_id)
    check_copied(node, volume, progress)
    if node.handles.survey().metadata(volume.name_id):
        # Some of it may still be at a source that nothing names.
        raise exceptions.MissingData(
            what='The move record', volume=volume_id, host=node.host)
    nodes.check_length(node, volume)
    node.handles.ensure_handle_on_lv(volume_id, volume.name,
                                     rows.backing_bytes(volume))
    devices.settle_reencryption(node, volume)
    # What only this node's page cache has is not in the LV.
    node.handles.flush_handle(volume_id)
    return volume


# -- creating and deleting

class Reconciler(typing.Protocol):
    """What :class:`.reconcile.Reconciler` is to a snapshot."""

    node: Node

    def progress(self, move_id: str) -> object:
        """Return how far a copy to this node is, if that is known."""


def create(reconciler: Reconciler, snapshot_id: str, volume_id: str,
           seconds: float) -> str:
    """Take a snapshot of a volume, wherever that is.

    :param seconds: to wait for a copy to end, at most
    :returns: what its row says of where it is
    :raises LocalCloneError: if it could not be taken
    """
    node = reconciler.node

    def attempt() -> str:
        volume = node.volumes.volume(volume_id)
        if volume is None:
            raise exceptions.TooLate(what='Snapshot ' + snapshot_id)
        check_copied(node, volume, reconciler.progress)
        home = names.service_host(volume.host)
        rpc.at(home, take, reconciler, snapshot_id)
        return rows.location(home)
    location: str = when_copied(seconds, attempt)
    return location


@rpc.method('create_snapshot', rpc.HOME, expected=(exceptions.BeingCopied,))
def take(reconciler: Reconciler, snapshot_id: str) -> None:
    """Take a snapshot of a volume whose home is this node.

    :raises BeingCopied: if not all of the volume is here yet
    :raises StaleMove: if its home is another node
    :raises TooLate: if nobody waits for it any more
    :raises NotPossible: if the volume was extended since Cinder asked
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
            # What is made of it would lack the rest.
            raise exceptions.NotPossible(
                volume=volume.id, reason='it was extended to %d GiB after '
                'snapshot %s of %d GiB was requested. Take another snapshot.'
                % (volume.size, snapshot.id, snapshot.size_gib))
        check_pool(node)
        with node.lock(snapshot_id):
            node.snapshots.locate(
                snapshot_id, node.host, rows.recorded(volume))
            node.lvm.create_snapshot(snapshot_id, volume.name, volume.id)


def delete(node: Node, snapshot_id: str) -> None:
    """Remove a snapshot: now, or when the node that has it can.

    Never an error: its volume may have to go with it. What is not removed
    now :func:`sweep` removes there.

    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    try:
        rpc.at(snapshot.node, remove, node, snapshot_id)
    except exceptions.LocalCloneError as exc:
        LOG.warning('Snapshot %(snapshot)s is deleted, but %(host)s could not '
                    'remove its data now and tries again later: '
                    '%(error)s', {'snapshot': snapshot_id,
                                  'host': snapshot.node, 'error': exc})


@rpc.method('delete_snapshot', rpc.SNAPSHOT, prompt=True, expected=(
    exceptions.Busy,))
def remove(node: Node, snapshot_id: str) -> None:
    """Remove what a node has of a snapshot.

    :raises Busy: if other work on it takes too long
    :raises LocalCloneError: if LVM fails; the node tries again later
    """
    with node.lock(snapshot_id):
        _remove(node, snapshot_id)


def _remove(node: Node, snapshot_id: str) -> None:
    node.exports.withdraw_volume(snapshot_id, None)
    node.handles.remove_handle(snapshot_id)
    node.lvm.remove_lv(names.snapshot_lv(snapshot_id))


# -- reading one

def located(node: Node, snapshot_id: str) -> rows.Snapshot:
    """A snapshot that a node has.

    :raises MissingData: if none has it
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or snapshot.is_to_wipe or not snapshot.node:
        raise exceptions.MissingData(
            what='Snapshot ' + snapshot_id, host='all nodes',
            volume=snapshot.volume_id if snapshot else '?')
    return snapshot


def present(node: Node, snapshot_id: str) -> rows.Snapshot:
    """A snapshot that this node has, for a caller that holds its lock.

    :raises MissingData: if it does not, or nobody wants it any more
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if (snapshot is None or snapshot.is_to_wipe
            or snapshot.node != node.host
            or snapshot.lv not in node.lvm.lvs()):
        raise exceptions.MissingData(
            what='Snapshot ' + snapshot_id, host=node.host,
            volume=snapshot.volume_id if snapshot else '?')
    return snapshot


@rpc.method('serve_snapshot', rpc.SNAPSHOT)
def connect(node: Node, snapshot_id: str, connector: objects.Connector
            ) -> dict[str, Any]:
    """Let a host read a snapshot of this node: locally, or over iSCSI.

    :returns: connection properties for os-brick
    :raises MissingData: if it is not here
    :raises Refused: if the host has no way to it
    """
    with node.lock(snapshot_id):
        snapshot = present(node, snapshot_id)
        local = node.is_at(connector, node.host)
        if not (local or connector.get('initiator')):
            raise exceptions.Refused(
                volume=snapshot.volume_id, host=connector.get('host'),
                reason='the request names no iSCSI initiator.')
        if rows.recorded(snapshot):
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
    """What a reader on this node gets of a snapshot."""
    if rows.recorded(snapshot) is None:
        return {'device_path': names.handle_path(snapshot.id)}
    if not node.handles.survey().crypt(snapshot.id):
        devices.open_snapshot(node, snapshot)
    return {'device_path': names.crypt_path(snapshot.id), 'encrypted': False}


def disconnect(node: Node, snapshot_id: str,
               connector: objects.Connector | None) -> None:
    """End that; what is left of it :func:`sweep` finds.

    :param connector: None: all connections
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    try:
        rpc.at(snapshot.node, end_connections, node, snapshot_id, connector)
    except exceptions.LocalCloneError as exc:
        LOG.warning('The connection of snapshot %(snapshot)s could not be '
                    'ended now; %(host)s tries again: %(error)s',
                    {'snapshot': snapshot_id, 'host': snapshot.node,
                     'error': exc})


@rpc.method('unserve_snapshot', rpc.SNAPSHOT)
def end_connections(node: Node, snapshot_id: str,
                    connector: objects.Connector | None) -> None:
    """Stop serving a snapshot that this node has.

    :param connector: None: all connections
    """
    with node.lock(snapshot_id):
        initiator = connector['initiator'] if (
            connector and 'initiator' in connector) else None
        if initiator or connector is None:
            node.exports.withdraw_volume(snapshot_id, initiator)
        _put_away(node, snapshot_id)


def _put_away(node: Node, snapshot_id: str) -> None:
    """Nobody reads a snapshot: no handle, not active."""
    found = node.handles.survey()
    if found.handle(snapshot_id) and not found.users(snapshot_id):
        node.handles.remove_handle(snapshot_id)
        node.lvm.deactivate(names.snapshot_lv(snapshot_id))


# -- the node's look

def sweep(node: Node, present: survey.Survey) -> None:
    """Remove what nobody wants any more, end what nobody reads.

    Only on positive evidence: an LV of which there is no row at all may be
    all that is left of somebody's data.

    :param present: what there is on this node
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
    """See that a snapshot's row names this node, if its LV is the one meant.

    Its tags and its row name the same host, which was this node's. What a
    request has left that failed here, before the snapshot was taken
    elsewhere, has other tags.

    :param lv: with its tags
    """
    here, said = names.on(node.host), names.with_fact(lv.tags, 'on')
    if snapshot.node == node.host:
        if here not in said:
            return  # nobody knows which one it is
        for tag in sorted(said - {here}):
            with node.try_lock(snapshot.id):
                node.lvm.unmark(lv.name, tag)
    elif (snapshot.node and names.on(snapshot.node) in said
          and names.same_backend(snapshot.node, node.host)
          # One that lives is another node, whatever its disks say.
          and not node.services.by_host().get(snapshot.node)):
        with node.try_lock(snapshot.id):
            # First: by this tag it is found with yet another name.
            if here not in said:
                node.lvm.mark(lv.name, here)
            node.snapshots.relocate_snapshot(
                snapshot.id, snapshot.node, node.host)
        LOG.info('Snapshot %(snapshot)s is recorded on %(host)s: it was on '
                 '%(before)s, which this node was called.',
                 {'snapshot': snapshot.id, 'host': node.host,
                  'before': snapshot.node})


def _resume_suspended(node: Node, present: survey.Survey) -> None:
    """LVM suspends what it takes a snapshot of, and may have been killed."""
    for lv in present.lvs.values():
        facts = names.facts(lv.tags)
        owner = facts.get('volume') or facts.get('snapshot')
        if lv.suspended and lv.group == node.lvm.group and owner:
            # With the lock: nothing takes a snapshot now.
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
        if not snapshot.node:  # managing it did not end well
            manage.give_back(node, 'snapshot', snapshot_id)
        # Not if it was unmanaged since the look began.
        elif snapshot_id in node.handles.survey().snapshots(node.lvm.group):
            _remove(node, snapshot_id)
            LOG.info('Snapshot %s, which is deleted, was removed from this '
                     'node.', snapshot_id)


def _end_if_unread(node: Node, snapshot_id: str) -> None:
    """A reader that ended without a word, or has just been given it."""
    with node.try_lock(snapshot_id):
        if not (node.snapshots.is_being_read(snapshot_id)
                or node.exports.was_exported(snapshot_id)):
            node.exports.withdraw_volume(snapshot_id, None)
            _put_away(node, snapshot_id)
