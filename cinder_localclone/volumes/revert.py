# SPDX-License-Identifier: Apache-2.0
"""Reverting a volume to a snapshot: it gets another body.

Nothing is written to the volume's LV. Another is made of the snapshot, on
the node that has it; then one change of the volume's row says that this LV is
the volume's, and that node its home. Before that change the volume is what it
was, after it what the snapshot is. Both LVs are tagged newborn meanwhile, so
whichever the row does not name is removed: now, or by the look of its node.

The data is compared with nothing: Cinder itself would copy a snapshot over a
thin volume and leave out the zeros (volume/manager.py).
"""

import uuid

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)


# Another node may have to make the LV.
@rpc.method('revert', rpc.HOME, times=2)
def revert(reconciler: reconcile.Reconciler, volume_id: str,
           snapshot_id: str) -> None:
    """Revert a volume that nobody uses, and whose home is this node.

    :raises StaleMove: if its home is another node
    :raises SourceBusy: if something has it open
    :raises MissingData: if there is no such snapshot
    :raises ForeignImage: if only one of the two is encrypted, or the
        snapshot is longer
    :raises LocalCloneError: as :func:`.snapshots.at_home`, or if a step
        before the change of the row failed
    """
    node = reconciler.node
    with node.lock(volume_id):
        volume = snapshots.at_home(node, volume_id, reconciler.progress)
        _check_reverting(volume)
        devices.ensure_closed(node, volume_id)
        snapshot = snapshots.located(node, snapshot_id)
        host, encryption = snapshot.node, _encryption(volume, snapshot)
        new, old = str(uuid.uuid4()), volume.name
        if host == node.host:
            _make(node, volume, snapshot_id, new)
        else:
            rpc.at(host, create_backing, node, volume_id, snapshot_id, new)
        node.lvm.mark_uncommitted(old)
        # Moves that failed may have left source devices above it.
        cleanup.withdraw_above(node, old)
        # An extension that failed may have left the handle longer than what
        # is new. It never gets shorter, so it is made anew.
        node.handles.remove_handle(volume_id)
        reverted = _commit(node, volume, new, host, encryption)
        try:
            if host == node.host:
                node.handles.ensure_handle_on_lv(volume_id, reverted.name,
                                                 rows.backing_bytes(reverted))
            uncommitted.remove(node, volume_id, old)
            _tell_of_keys(volume, reverted, snapshot_id)
        except Exception:  # it is reverted; Cinder must not hear otherwise
            LOG.exception('Volume %s was reverted; the next periodic check '
                          'completes the clean-up.', volume_id)
    if host != node.host:
        rpc.cast(host, peers.reconcile, node, volume_id)


def _tell_of_keys(volume: objects.Volume, reverted: objects.Volume,
                  snapshot_id: str) -> None:
    """Say that keys which were removed since open a volume again.

    :param volume: as it was
    :param reverted: the same, with the header of its snapshot
    """
    before, after = rows.recorded(volume), rows.recorded(reverted)
    if before is None or after is None:
        return
    LOG.warning(
        'Volume %(volume)s has the key slots of snapshot %(snapshot)s again: '
        'recovery keys that were removed since open it, and %(secret)s. See '
        '"cinder-localclone encryption status".', {
            'volume': volume.id, 'snapshot': snapshot_id, 'secret': (
                'so does secret %s, which was replaced: run '
                '"cinder-localclone encryption '
                'rotate"' % after.key if after.key != before.key
                else 'its secret is the same')})


def _encryption(volume: objects.Volume, snapshot: rows.Snapshot
                ) -> volume_types.Recorded | None:
    """How a volume is encrypted once it is reverted.

    As it was when the snapshot was taken: the header is of that time, too.
    """
    encryption = rows.recorded(snapshot)
    clone.check_size('snapshot ' + snapshot.id, snapshot.size_gib, volume)
    clone.check_alike('snapshot ' + snapshot.id, encryption,
                      rows.recorded(volume))
    return encryption


def _commit(node: Node, volume: objects.Volume, new: str, host: str,
            encryption: volume_types.Recorded | None) -> objects.Volume:
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
    """Make the LV that a volume reverts to, on the node of the snapshot.

    :param new: the id in the LV's name
    :raises TooLate: if the volume is not being reverted any more
    :raises SourceBusy: if something here has its handle open: that would be
        on the new LV then
    """
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if volume is None:
            raise exceptions.TooLate(what='Volume ' + volume_id)
        _check_reverting(volume)
        devices.ensure_closed(node, volume_id)
        _make(node, volume, snapshot_id, new)


def _check_reverting(volume: objects.Volume) -> None:
    if volume.status != 'reverting':
        raise exceptions.TooLate(what='Volume ' + volume.id)


def _make(node: Node, volume: objects.Volume, snapshot_id: str, new: str
          ) -> None:
    snapshots.check_pool(node)
    with node.lock(snapshot_id):
        image = snapshots.present(node, snapshot_id)
        extra = rows.extra_bytes(image)
        lv = node.volumes.lv_name(new)
        node.lvm.create_copy(
            lv, image.lv, image.size_bytes,
            state.backing_bytes(volume.size, extra), volume.id, extra)
        if rows.recorded(image):
            # Backups are of the header before; the look makes another.
            devices.outdate_backups_of(node, lv)
