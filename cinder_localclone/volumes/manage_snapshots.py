# SPDX-License-Identifier: Apache-2.0
"""Snapshots of LVs that are there already, and LVs of snapshots no more.

As :mod:`.manage`, but on any node: a snapshot stays where it was when its
volume leaves, and so does its LV when it is not managed any more. Cinder
records which node has a snapshot when that is managed; one without a node is
given back, not removed, when it is deleted.
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
    """The names of LVs that belong to snapshots, with the ids of these.

    By what the snapshots' rows say of where they are: their volumes may be
    elsewhere. Snapshots of other backends in the same volume group, which
    have no tags, are among them.
    """
    ids = {manageable.id_in(name): lv for name, lv in lvs.items()
           if manageable.is_snapshot(lv)}
    return {ids[key].name: key for key, snapshot in
            node.snapshots.snapshots(ids).items()
            if ids[key].name == snapshot.lv and not snapshot.deleted
            and (snapshot.node == node.host or not names.own_tags(
                ids[key].tags))}


def listed(node: Node) -> list[manageable.Entry]:
    """All that is, or could be, a snapshot here, as Cinder lists it."""
    lvs = node.lvm.lvs()
    return manageable.snapshots(lvs, node.lvm.group, node.lvm.pool,
                                known(node, lvs))


# -- manage

def get_size(node: Node, snapshot_id: str, reference: adoption.Reference
             ) -> int:
    """The GiB that a snapshot of an LV will have.

    :raises CannotManage: if the LV can't become one
    """
    _host, size = _whereabouts(node, snapshot_id, reference)
    return size


@rpc.method('manageable_snapshot', prompt=True, expected=(
    exceptions.CannotManage, exceptions.TooLate))
def find_size(node: Node, snapshot_id: str, reference: adoption.Reference
              ) -> int | None:
    """Return the GiB of a snapshot of an LV of a node; None if it has none.

    :raises CannotManage: if the LV can't become one
    :raises TooLate: if nobody waits for it any more
    """
    lv = _find(node, _row(node, snapshot_id), reference)
    return manageable.whole_gib(lv.size) if lv else None


def _whereabouts(node: Node, snapshot_id: str,
                 reference: adoption.Reference) -> tuple[str, int]:
    """The node with an LV, and its size in GiB.

    The home of its volume comes first, and decides if it has one.
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
            size = rpc.at(host, find_size, node, snapshot_id, reference)
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
    """The LV that a snapshot is to be, or is already; None if it isn't here.

    :raises CannotManage: if it can't be
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
    if volume is not None and rows.recorded(volume):
        reason = 'its volume is encrypted by this driver'
    if reason:
        raise exceptions.CannotManage(
            lv=lv.name, host=node.host, reason=reason)
    return lv


def manage(node: Node, snapshot_id: str, reference: adoption.Reference
           ) -> str:
    """Make a snapshot of an LV: from here on it can only be read.

    :returns: what its row is to say of where it is
    :raises CannotManage: if the LV can't become one
    :raises TooLate: if nobody waits for it any more
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    snapshot = _row(node, snapshot_id)
    volume = node.volumes.volume(snapshot.volume_id)
    if (volume is None
            or not rows.is_home(volume, node.host)):
        raise exceptions.StaleMove(volume=snapshot.volume_id)
    host, _size = _whereabouts(node, snapshot_id, reference)
    return rpc.at(host, adopt, node, snapshot_id, reference)


@rpc.method('manage_snapshot', rpc.SNAPSHOT, expected=(
    exceptions.CannotManage, exceptions.TooLate))
def adopt(node: Node, snapshot_id: str, reference: adoption.Reference) -> str:
    """Make a snapshot of an LV of a node.

    :returns: what its row is to say of where it is
    :raises CannotManage: if the LV can't become one
    :raises TooLate: if nobody waits for it any more
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    with node.lock(snapshot_id):
        with node.allocation_lock():
            snapshot = _row(node, snapshot_id)  # that may have taken long
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
                with contextlib.suppress(Exception):  # the look does it
                    adoption.give_back(node, 'snapshot', snapshot_id)
                raise
    LOG.info('Logical volume %(lv)s is managed as snapshot %(snapshot)s.',
             {'lv': lv.name, 'snapshot': snapshot_id})
    return rows.location(node.host)


# -- unmanage

def unmanage(node: Node, snapshot_id: str) -> None:
    """Leave the LV of a snapshot to whoever wants it, on the node with it.

    :raises SnapshotInUse: if it is being read
    :raises CannotUnmanage: if it is encrypted by this driver
    :raises LocalCloneError: if the node that has it could not do it
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    if snapshot is None or not snapshot.node:
        return
    if rows.recorded(snapshot):
        # Its secret goes with its volume.
        raise exceptions.CannotUnmanage(
            volume=snapshot.volume_id, reason='it is encrypted by this '
            'driver, and so are its snapshots')
    rpc.at(snapshot.node, disown, node, snapshot_id)


@rpc.method('unmanage_snapshot', rpc.SNAPSHOT, expected=(
    exceptions.SnapshotInUse,))
def disown(node: Node, snapshot_id: str) -> None:
    """Leave the LV of a snapshot that a node has to whoever wants it.

    :raises SnapshotInUse: if it is being read
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
