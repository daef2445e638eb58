# SPDX-License-Identifier: Apache-2.0
"""Extend a volume at its home, also while it is copied there.

The LV is extended first. A tag on the LV records its length as users have seen
it (:func:`.names.given`). The tag is removed once the extension is zeroed and
all nodes answer; then the handle grows. The extension is only on the LV and
needs no copy, because the source never had it. The clone itself keeps its
length, and the handle maps to the LV alone again once all regions are local.
"""

from collections.abc import Callable
import dataclasses
import time

from oslo_utils import units

from cinder_localclone.core import attachments
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source
from cinder_localclone.volumes import reconcile

#: Seconds for which a volume's lock is held while its LV is zeroed, and the
#: pause afterwards in seconds. A waiting caller tries the lock ten times a
#: second, and would never get it without this pause.
HELD, BETWEEN = 2.0, 0.15
#: Seconds for which an extension in progress waits for a lock before it fails:
#: other work may hold the lock for longer than a request waits.
PATIENCE = 600


def extend(reconciler: reconcile.Reconciler, volume_id: str, size_gib: int
           ) -> str:
    """Extend a volume, if this node is its home.

    A failed extension can be repeated: completed steps are skipped. Until then
    the volume can neither move nor be copied if its users may have seen the
    new length; see :func:`.node.check_length`.

    Zeroing a thick LV takes as long as writing the whole extension. Meanwhile
    the volume's lock is released every few seconds.

    :param size_gib: its new size in GiB
    :returns: service host of its home; if this is another node, nothing was
        done
    :raises KeepsSize: if it is authenticated
    :raises VolumeIsMoving: if a live migration has it on two nodes
    :raises NoSpaceToExtend: if it is thick, and the volume group is full; or
        if the thin pool is full
    :raises MissingData: if it has no LV
    :raises NotPossible: if the caller has given up, also while the LV is
        zeroed; if an administrator has reset its status; if its row has a
        larger size already; or if Cinder's own migration copies it
    :raises LongerThanRecorded: if its users may have seen a larger size
        already
    :raises Busy: if other work holds its lock: at first for the time limit of
        any request, later for :data:`PATIENCE`
    :raises LocalCloneError: if a node that uses it over iSCSI does not answer
    """
    node = reconciler.node
    node.asked[volume_id] = time.monotonic()
    with node.lock(volume_id):
        volume, start = _begin(reconciler, volume_id, size_gib)
    home = volume.home

    def go_on() -> bool:
        nonlocal start
        node.asked[volume_id] = time.monotonic()
        with node.lock(volume_id):
            # Read again, because the lock was released.
            found = _wanted(node, volume)
            rest = node.lvm.zero_part(found.name, start, HELD)
            if rest:
                start = rest
                return False
            _check(reconciler, found, size_gib)
            _show(reconciler, found, size_gib)
        return True
    if start:
        _repeat(node, volume, go_on)
    return home


# Three times the time: the home calls the nodes that use the volume over iSCSI
# twice, before and after its own part.
@rpc.method('extend', rpc.HOME, times=3)
def extend_part(reconciler: reconcile.Reconciler, volume_id: str,
                size_gib: int) -> bool:
    """Do a part of an extension; the calling node repeats this until the end.

    A call between nodes has a time limit, and zeroing can exceed it. The LV's
    tag records the start of the next part, also after a power cut.

    :returns: whether the volume is extended
    :raises StaleMove: if this node is not its home
    :raises LocalCloneError: as :func:`extend`
    """
    node = reconciler.node
    node.asked[volume_id] = time.monotonic()
    with node.lock(volume_id):
        volume, start = _begin(reconciler, volume_id, size_gib)
        if volume.home != node.host:
            raise exceptions.StaleMove(volume=volume_id)
        if start:
            node.lvm.note_zeroed(volume.name, start)
    return not start


def extend_at(reconciler: reconcile.Reconciler, home: str, volume_id: str,
              size_gib: int) -> None:
    """Have a volume's home, another node, extend it.

    :raises LocalCloneError: as :func:`extend`; or if the home does not answer
    """
    node = reconciler.node
    volume = node.volumes.volume(volume_id)
    if volume is None:
        raise exceptions.StaleMove(volume=volume_id)
    _repeat(node, volume, lambda: rpc.call_at(
        home, extend_part, reconciler, volume_id, size_gib))


def _begin(reconciler: reconcile.Reconciler, volume_id: str, size_gib: int
           ) -> tuple[Volume, int]:
    """Extend the LV of a volume, and zero its first part; the lock is held.

    :returns: the volume, and the offset in bytes from which to go on zeroing.
        0: zeroing is complete, and users have the new length; or this node is
        not its home, and nothing was done
    """
    node = reconciler.node
    source.abandon_interrupted(node, volume_id)
    volume = node.volumes.volume(volume_id)
    if volume is None:
        raise exceptions.StaleMove(volume=volume_id)
    if volume.home != node.host:
        return volume, 0
    if volume.status not in statuses.EXTENDED:
        raise exceptions.NotPossible(
            volume=volume_id, reason='its status is "%s": the request to '
            'extend it to %d GiB was given up. Extend it again.' % (
                volume.status, size_gib))
    if size_gib < volume.size:  # its users would lose data
        raise exceptions.NotPossible(
            volume=volume_id, reason='it already has %d GiB: the request to '
            'extend it to %d GiB came too late.' % (volume.size, size_gib))
    _check(reconciler, volume, size_gib)
    _extend_elsewhere(reconciler, volume, volume.size)  # do they answer?
    _extend_lv(node, volume, volume.backing_bytes(size_gib))
    start = node.lvm.zero_part(volume.name, 0, HELD)
    if not start:
        _show(reconciler, volume, size_gib)
    return volume, start


def _repeat(node: Node, volume: Volume, part: Callable[[], bool]) -> None:
    """Do the parts of an extension until its end.

    If other work holds the lock, the part is repeated.

    :param volume: its row from the beginning of the extension
    :raises NotPossible: if its status has changed
    :raises Busy: if other work holds the lock for :data:`PATIENCE`
    """
    until = time.monotonic() + PATIENCE
    while True:
        time.sleep(BETWEEN)
        try:
            if part():
                return
            until = time.monotonic() + PATIENCE
        except exceptions.Busy:
            if time.monotonic() >= until:
                raise
        _check_status(volume, node.volumes.volume(volume.id))


def _wanted(node: Node, volume: Volume) -> Volume:
    """Return the present row of a volume whose extension has begun here."""
    found = nodes.volume_at_home(node, volume.id)
    _check_status(volume, found)
    return found


def _check_status(before: Volume, volume: Volume | None) -> None:
    """Check that an extension is still wanted."""
    if volume is None:
        raise exceptions.StaleMove(volume=before.id)
    if volume.status != before.status:
        raise exceptions.NotPossible(
            'Volume %s: its status became "%s" while its LV was zeroed. Its '
            'LV is larger, but its users do not see the new size. Extend it '
            'again.' % (before.id, volume.status))


def _extend_elsewhere(reconciler: reconcile.Reconciler, volume: Volume,
                      size_gib: int) -> None:
    """Extend the volume on the nodes that use it over iSCSI.

    :param size_gib: the home's present size, in GiB, only checks that they
        answer
    """
    for host, connection in nodes.remote_from(reconciler.node, volume):
        rpc.call_at(host, remote_attachment.begin_for_home, reconciler.node,
                    volume.id, dict(connection.properties, size_gib=size_gib),
                    attachments.as_sent(volume))


def _check(reconciler: reconcile.Reconciler, volume: Volume,
           size_gib: int) -> None:
    """Check that a volume can be extended in its present state.

    Its users may have seen, and written, more than its new size, if an earlier
    extension has failed after it had shown them its size.
    """
    node = reconciler.node
    if volume.is_authenticated:
        raise encryption_exceptions.KeepsSize(volume=volume.id)
    if volume.is_migrated_by_cinder:
        raise exceptions.NotPossible(
            volume=volume.id, reason='Cinder is migrating it, and its copy '
            'would lack the new space. Extend it again when the migration has '
            'ended.')
    move = node.moves.move_of(volume.id)
    if move and move.phase is Phase.STARTING:
        raise exceptions.VolumeIsMoving(
            volume=volume.id, what='extended', phase=move.display_phase)
    # During a re-encryption the remaining data would not grow with its LV.
    devices.check_not_reencrypted(node, volume, 'extended')
    nodes.check_length(node, volume, size_gib)


def _show(reconciler: reconcile.Reconciler, volume: Volume,
          size_gib: int) -> None:
    """Show the new length to users: here first, then over iSCSI."""
    node, size = reconciler.node, volume.backing_bytes(size_gib)
    move = node.moves.move_of(volume.id)
    if move and move.phase is Phase.COMPLETING:
        # All is local, and the end of the move needs no other node.
        reconciler.reconcile_present(volume.id)
        move = None
    elif move and move.is_deferred and move.committed:
        # Puts the handle on the clone first. The copy may be complete then.
        reconciler.reconcile_present(volume.id)
        move = node.moves.move_of(volume.id)
    node.lvm.show_lv(volume.name, size)
    if move is None:
        node.handles.ensure_handle_on_lv(volume.id, volume.name, size)
    elif node.handles.survey().clone(move.move_id):
        node.handles.ensure_handle_on_clone(
            dataclasses.replace(move, volume_gib=size_gib))
    # Otherwise it has no handle until its source can be reached.
    devices.grow(node, volume)
    _extend_elsewhere(reconciler, volume, size_gib)


def _extend_lv(node: Node, volume: Volume, size: int) -> None:
    with node.allocation_lock():
        lv = node.lvm.lvs().get(volume.name)
        if lv is None:
            raise exceptions.MissingData(
                what='Logical volume %s' % volume.name, volume=volume.id,
                host=node.host)
        lack = _lack(node, lv, size - lv.size)
        if lack:
            raise exceptions.NoSpaceToExtend(
                volume=volume.id, host=node.host, reason=lack)
        node.lvm.extend_lv(volume.name, size)


def _lack(node: Node, lv: lvm_reports.LogicalVolume, missing: int) -> str:
    """Return the reason why an LV can't grow; '' if it can.

    :param missing: bytes to add
    """
    if lv.thin:
        usage = node.lvm.pool_usage()
        return str(usage) if missing > 0 and usage.is_full else ''
    return ('%d MiB are needed and not free' % (missing // units.Mi)
            if node.lvm.free_space().volumes < missing else '')
