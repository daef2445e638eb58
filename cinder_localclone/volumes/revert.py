# SPDX-License-Identifier: Apache-2.0
"""Revert a volume to a snapshot: the volume gets another LV.

Nothing is written to the volume's LV. The snapshot's node makes another LV
from the snapshot. A single change of the volume's row then names this LV as
the volume's, and this node as its home. Before the change the volume has its
own data, afterwards the data of the snapshot. Meanwhile both LVs are tagged
uncommitted. So the LV not named by the row is removed: now, or by the sweep of
its node.

The data is not compared. Cinder itself would copy a snapshot over a thin
volume and leave out the zeros (volume/manager.py).
"""

import uuid

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core.node import Node
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)


# Twice the time: another node may have to make the LV.
@rpc.method('revert', rpc.HOME, times=2)
def revert(reconciler: reconcile.Reconciler, volume_id: str,
           snapshot_id: str) -> None:
    """Revert an unused volume whose home is this node.

    :raises StaleMove: if its home is another node
    :raises SourceBusy: if a process has it open
    :raises MissingData: if the snapshot does not exist
    :raises ForeignImage: if only the volume or only the snapshot is encrypted,
        or the snapshot is larger
    :raises LocalCloneError: as :func:`.snapshots.at_home`, or if a step before
        the change of the row failed
    """
    node = reconciler.node
    with node.lock(volume_id):
        volume = snapshots.at_home(node, volume_id, reconciler.progress)
        _check_reverting(volume)
        devices.ensure_closed(node, volume_id)
        snapshot = snapshots.with_node(node, snapshot_id)
        host, encryption = snapshot.node, _encryption(volume, snapshot)
        new, old = str(uuid.uuid4()), volume.name
        if host == node.host:
            _make(node, volume, snapshot_id, new)
        else:
            rpc.call_at(host, create_backing, node, volume_id, snapshot_id,
                        new)
        node.lvm.mark_uncommitted(old)
        # Failed moves may have left source devices above it.
        cleanup.withdraw_above(node, old)
        # A failed extension may have left the handle longer than the new LV. A
        # handle never shrinks, so it is removed and made again.
        node.handles.remove_handle(volume_id)
        reverted = _commit(node, volume, new, host, encryption)
        try:
            if host == node.host:
                node.handles.ensure_handle_on_lv(volume_id, reverted.name,
                                                 reverted.backing_bytes())
            uncommitted.remove(node, volume_id, old)
            _tell_of_keys(volume, reverted, snapshot_id)
        except Exception:  # it is reverted; Cinder must not see an error
            LOG.exception('Volume %s was reverted; the next periodic check '
                          'completes the clean-up.', volume_id)
    if host != node.host:
        rpc.cast(host, peers.reconcile, node, volume_id)


def _tell_of_keys(volume: Volume, reverted: Volume, snapshot_id: str) -> None:
    """Warn about removed or replaced keys that open the volume again.

    :param volume: before the revert
    :param reverted: after the revert, with the header of its snapshot
    """
    before, after = volume.encryption, reverted.encryption
    if before is None or after is None:
        return
    LOG.warning(
        'Volume %(volume)s has the key slots of snapshot %(snapshot)s again. '
        'Recovery keys removed since then open it, and %(secret)s. See '
        '"cinder-localclone encryption show".', {
            'volume': volume.id, 'snapshot': snapshot_id, 'secret': (
                'so does secret %s, which was replaced: run '
                '"cinder-localclone encryption key '
                'rotate"' % after.key if after.key != before.key
                else 'its secret is the same')})


def _encryption(volume: Volume, snapshot: rows.Snapshot
                ) -> volume_types.Recorded | None:
    """Return the encryption of a volume after its revert.

    It is the encryption from the time of the snapshot, as the header is.

    :raises ForeignImage: if the volume can't have it
    """
    encryption = snapshot.encryption
    clone.check_size('snapshot ' + snapshot.id, snapshot.size_gib, volume)
    clone.check_alike('snapshot ' + snapshot.id, encryption, volume.encryption)
    return encryption


def _commit(node: Node, volume: Volume, new: str, host: str,
            encryption: volume_types.Recorded | None) -> Volume:
    try:
        return node.volumes.replace_backing(volume, new, host, encryption)
    except Exception:
        recorded = node.volumes.volume(volume.id)
        if recorded is None or recorded.name_id != new:
            raise
        return recorded  # only the answer was lost


@rpc.method('create_backing', rpc.SNAPSHOT)
def create_backing(node: Node, volume_id: str, snapshot_id: str, new: str
                   ) -> None:
    """Make the new LV of a volume, on the node of the snapshot.

    :param new: the id in the LV's name
    :raises TooLate: if the volume is not being reverted any more
    :raises SourceBusy: if a process here has its handle open: it would use the
        new LV
    """
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if volume is None:
            raise exceptions.TooLate(what='Volume ' + volume_id)
        _check_reverting(volume)
        devices.ensure_closed(node, volume_id)
        _make(node, volume, snapshot_id, new)


def _check_reverting(volume: Volume) -> None:
    if volume.status != 'reverting':
        raise exceptions.TooLate(what='Volume ' + volume.id)


def _make(node: Node, volume: Volume, snapshot_id: str, new: str) -> None:
    snapshots.check_pool(node)
    with node.lock(snapshot_id):
        image = snapshots.on_this_node(node, snapshot_id)
        extra = image.extra_bytes
        lv = node.volumes.lv_name(new)
        node.lvm.create_copy(
            lv, image.lv, image.size_bytes,
            state.backing_bytes(volume.size, extra), volume.id, extra)
        if image.encryption:
            # The backups have the former header; the sweep makes a new backup.
            rotate.outdate_backups_of(node, lv)
