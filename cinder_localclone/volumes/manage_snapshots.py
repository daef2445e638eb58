# SPDX-License-Identifier: Apache-2.0
"""Manage existing LVs as snapshots; unmanage snapshots.

As :mod:`.manage`, but on any node: a snapshot stays on its node when its
volume moves, and its LV stays there when it is unmanaged. Cinder records the
node of a snapshot when the snapshot is managed. If a snapshot without a node
is deleted, its LV is given back, not removed.
"""

import contextlib

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.volumes import manage as adoption
from cinder_localclone.volumes import manageable

LOG = logging.getLogger(__name__)


def known(node: Node, lvs: manageable.LVs) -> dict[str, str]:
    """Return the ids of snapshots by the names of their LVs.

    The snapshots' rows name the node: their volumes may be elsewhere. Includes
    the snapshots of other backends in the same volume group; they have no
    tags.
    """
    ids = {manageable.id_in(name): lv for name, lv in lvs.items()
           if manageable.is_snapshot(lv)}
    return {ids[key].name: key for key, snapshot in
            node.snapshots.snapshots(ids).items()
            if ids[key].name == snapshot.lv and not snapshot.deleted
            and (snapshot.node == node.host or not names.own_tags(
                ids[key].tags))}


def listed(node: Node) -> list[manageable.Entry]:
    """List this node's snapshots, and its manageable LVs, for Cinder."""
    lvs = node.lvm.lvs()
    return manageable.snapshots(lvs, node.lvm.group, node.lvm.pool,
                                known(node, lvs))


# -- manage

def get_size(node: Node, snapshot_id: str, reference: adoption.Reference
             ) -> int:
    """Return the size in GiB of a snapshot made of an LV.

    :raises CannotManage: if the LV can't become a snapshot
    """
    _host, size = _whereabouts(node, snapshot_id, reference)
    return size


@rpc.method('manageable_snapshot', prompt=True, expected=(
    exceptions.CannotManage, exceptions.TooLate))
def find_size(node: Node, snapshot_id: str, reference: adoption.Reference
              ) -> int | None:
    """Return the size in GiB of a snapshot made of this node's LV.

    :returns: None if this node does not have the LV
    :raises CannotManage: if the LV can't become a snapshot
    :raises TooLate: if Cinder no longer waits for the snapshot
    """
    lv = _find(node, _row(node, snapshot_id), reference)
    return manageable.whole_gib(lv.size) if lv else None


def _whereabouts(node: Node, snapshot_id: str,
                 reference: adoption.Reference) -> tuple[str, int]:
    """Return the node with an LV, and its size in GiB.

    If the volume's home has the LV, no other node is asked.

    :raises CannotManage: if no node, or more than one, has the LV, or a node
        does not answer
    """
    size = find_size(node, snapshot_id, reference)
    if size is not None:
        return node.host, size
    found, silent = [], []
    for host, alive in sorted(node.other_nodes().items()):
        if not alive:
            silent.append(host)
            continue
        try:
            size = rpc.call_at(host, find_size, node, snapshot_id, reference)
        except (exceptions.CannotManage, exceptions.TooLate):
            raise
        except exceptions.LocalCloneError as exc:
            LOG.warning('%(host)s could not be asked for logical volume '
                        '%(lv)s: %(error)s', {
                            'host': host, 'error': exc,
                            'lv': ' '.join(map(str, reference.values()))})
            silent.append(host)
        else:
            if size is not None:
                found.append((host, size))
    if len(found) == 1 and not silent:
        return found[0]
    raise adoption.no_such_lv(
        node, reference, [host for host, _size in found], silent)


def _row(node: Node, snapshot_id: str) -> rows.Snapshot:
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or snapshot.status != 'creating' or snapshot.deleted:
        raise exceptions.TooLate(what='Snapshot ' + snapshot_id)
    return snapshot


def _find(node: Node, snapshot: rows.Snapshot,
          reference: adoption.Reference) -> lvm_reports.LogicalVolume | None:
    """Return the LV that a snapshot will be made of, or is already made of.

    :returns: None if this node does not have the LV
    :raises CannotManage: if the LV can't become a snapshot
    """
    lvs = node.lvm.lvs()
    mine = adoption.adopted(lvs, 'snapshot').get(snapshot.id)
    if mine:
        return mine
    lv = adoption.find(node, lvs, reference)
    if lv is None:
        return None
    volume = node.volumes.volume(snapshot.volume_id)
    reason = manageable.why_no_snapshot(
        lv, node.lvm.pool, {*known(node, lvs), *adoption.known(node, lvs)},
        lvs, snapshot.volume_id)
    if volume is not None and volume.encryption:
        reason = 'its volume is encrypted by this driver'
    if reason:
        raise exceptions.CannotManage(
            lv=lv.name, host=node.host, reason=reason)
    return lv


def manage(node: Node, snapshot_id: str, reference: adoption.Reference
           ) -> str:
    """Make a snapshot of an LV: from now on the LV is read-only.

    :returns: the location for the snapshot's row
    :raises CannotManage: if the LV can't become a snapshot
    :raises TooLate: if Cinder no longer waits for the snapshot
    :raises StaleMove: if this node is not the home of its volume
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    snapshot = _row(node, snapshot_id)
    volume = node.volumes.volume(snapshot.volume_id)
    if volume is None or volume.home != node.host:
        raise exceptions.StaleMove(volume=snapshot.volume_id)
    host, _size = _whereabouts(node, snapshot_id, reference)
    return rpc.call_at(host, adopt, node, snapshot_id, reference)


@rpc.method('manage_snapshot', rpc.SNAPSHOT, expected=(
    exceptions.CannotManage, exceptions.TooLate))
def adopt(node: Node, snapshot_id: str, reference: adoption.Reference) -> str:
    """Make a snapshot of this node's LV.

    :returns: the location for the snapshot's row
    :raises CannotManage: if the LV can't become a snapshot
    :raises TooLate: if Cinder no longer waits for the snapshot
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    with node.lock(snapshot_id):
        with node.allocation_lock():
            snapshot = _row(node, snapshot_id)  # the locks may have taken long
            lv = _find(node, snapshot, reference)
            if lv is None:
                raise adoption.no_such_lv(node, reference)
            try:
                size = manageable.whole_bytes(lv.size)
                adoption.adopt(
                    node, lv, snapshot.lv, size, snapshot=snapshot_id,
                    of=snapshot.volume_id, on=names.node_digest(node.host))
                adoption.show(node, snapshot.lv, size)
                node.lvm.protect(snapshot.lv)
            except Exception:
                with contextlib.suppress(Exception):  # else the sweep does it
                    adoption.give_back(node, 'snapshot', snapshot_id)
                raise
    LOG.info('Logical volume %(lv)s is managed as snapshot %(snapshot)s.',
             {'lv': lv.name, 'snapshot': snapshot_id})
    return rows.location(node.host)


# -- unmanage

def unmanage(node: Node, snapshot_id: str) -> None:
    """Stop managing a snapshot; its LV stays on its node.

    :raises SnapshotInUse: if the snapshot is being read
    :raises CannotUnmanage: if it is encrypted by this driver
    :raises LocalCloneError: if its node could not unmanage it
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    if snapshot.encryption:
        # Its secret is deleted with its volume.
        raise exceptions.CannotUnmanage(
            volume=snapshot.volume_id, reason='it is encrypted by this '
            'driver, and so are its snapshots')
    rpc.call_at(snapshot.node, disown, node, snapshot_id)


@rpc.method('unmanage_snapshot', rpc.SNAPSHOT, expected=(
    exceptions.SnapshotInUse,))
def disown(node: Node, snapshot_id: str) -> None:
    """Stop managing a snapshot of this node; its LV stays.

    :raises SnapshotInUse: if the snapshot is being read
    """
    with node.lock(snapshot_id):
        if (node.snapshots.is_being_read(snapshot_id)
                or node.handles.survey().users(snapshot_id)):
            raise exceptions.SnapshotInUse(snapshot=snapshot_id)
        node.handles.remove_handle(snapshot_id)
        lv = names.snapshot_lv(snapshot_id)
        node.lvm.disown(lv, lv)
    LOG.info('Snapshot %(snapshot)s is not managed any more; its data is in '
             'logical volume %(lv)s.', {'snapshot': snapshot_id, 'lv': lv})
