# SPDX-License-Identifier: Apache-2.0
"""Manage existing LVs as volumes; unmanage volumes.

To adopt an LV is to tag it with its volume and its former name, to rename it,
and to extend it to whole GiB. After a refused or failed request the LV has its
former name and data, but it may be longer. The tags are set first and removed
last, so an interrupted request can be undone.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import math
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import manageable

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

Reference = Mapping[str, str]


def lv_of_reference(node: Node, lvs: manageable.LVs, reference: Reference
                    ) -> lvm_reports.LogicalVolume:
    """Return the LV of a reference.

    :raises CannotManage: if the LV does not exist, or the reference is invalid
    """
    lv = find(node, lvs, reference)
    if lv is None:
        raise no_such_lv(node, reference)
    return lv


def find(node: Node, lvs: manageable.LVs, reference: Reference
         ) -> lvm_reports.LogicalVolume | None:
    """Return the LV of a reference; None if it does not exist.

    :raises CannotManage: if the reference is invalid
    """
    try:
        return manageable.find(lvs, node.lvm.group, reference)
    except KeyError:
        raise exceptions.CannotManage(
            lv=dict(reference), host=node.host, reason='the reference must '
            'have source-name, the name of an LV, or source-id, its UUID')


def no_such_lv(node: Node, reference: Reference,
               elsewhere: Sequence[str] = (), silent: Sequence[str] = ()
               ) -> exceptions.CannotManage:
    """Return an error with the reason why a reference names no LV.

    :param elsewhere: the other nodes with an LV of this reference
    :param silent: the nodes that have not answered
    """
    reason = 'the LV does not exist in volume group ' + node.lvm.group
    if elsewhere:
        reason += ', but on %s: %s' % (
            'another node' if len(elsewhere) == 1 else 'several nodes',
            ' and '.join(elsewhere))
    if silent:
        reason += '; no answer from ' + ', '.join(silent)
    return exceptions.CannotManage(
        lv=reference.get('source-name', reference.get('source-id')),
        host=node.host, reason=reason)


def known(node: Node, lvs: manageable.LVs) -> dict[str, str]:
    """Return the ids of Cinder's volumes by the names of their LVs.

    Also volumes of other backends in the same volume group: LVs without a tag
    of this driver, named after a volume in Cinder's database.
    """
    here = {volume.name: volume.id
            for volume in node.volumes.volumes_of(node.host)
            if volume.status not in statuses.BEING_MANAGED}
    for name, lv in lvs.items():
        volume_id = manageable.id_in(name)
        if (volume_id and name not in here and not names.own_tags(lv.tags)
                and name == CONF.volume_name_template % volume_id
                and node.volumes.volume(volume_id)):
            here[name] = volume_id
    return here


def listed(node: Node) -> list[manageable.Entry]:
    """List this node's volumes and its manageable LVs, for Cinder."""
    lvs = node.lvm.lvs()
    return manageable.volumes(lvs, node.lvm.group, node.lvm.pool,
                              known(node, lvs))


def get_size(node: Node, volume_id: str, reference: Reference) -> int:
    """Return the size of a volume made of an LV, in GiB, rounded up.

    :raises CannotManage: if the LV can't become a volume
    """
    lv = _find_adoptable(node, volume_id, reference)
    return manageable.whole_gib(lv.size)


def _find_adoptable(node: Node, volume_id: str, reference: Reference
                    ) -> lvm_reports.LogicalVolume:
    """Return an LV that can become the volume, or was adopted for it.

    :raises CannotManage: if the LV can't become a volume
    """
    lvs = node.lvm.lvs()
    mine = adopted(lvs, 'volume').get(volume_id)
    if mine:
        return mine
    lv = lv_of_reference(node, lvs, reference)
    reason = manageable.why_no_volume(lv, node.lvm.pool, known(node, lvs))
    if reason:
        raise exceptions.CannotManage(
            lv=lv.name, host=node.host, reason=reason)
    return lv


def manage(node: Node, volume_id: str, reference: Reference) -> None:
    """Adopt an LV as a volume, and create the handle of the volume.

    :raises CannotManage: if the LV can't become a volume
    :raises TooLate: if Cinder no longer waits for the volume
    :raises LocalCloneError: if LVM fails. The LV has its former name and data
    """
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if (volume is None or volume.status != 'managing'
                or volume.home != node.host):
            raise exceptions.TooLate(what='Volume ' + volume_id)
        # Without this lock, two volumes could adopt the same LV.
        with node.allocation_lock():
            lv = _find_adoptable(node, volume_id, reference)
            size = manageable.whole_bytes(lv.size)
            with _undone_if_it_fails(node, volume_id):
                adopt(node, lv, volume.name, size, volume=volume_id)
        with _undone_if_it_fails(node, volume_id):
            show(node, volume.name, size)
            node.handles.ensure_handle_on_lv(volume_id, volume.name, size)
    LOG.info('Logical volume %(lv)s is managed as volume %(volume)s.',
             {'lv': lv.name, 'volume': volume_id})


@contextlib.contextmanager
def _undone_if_it_fails(node: Node, volume_id: str) -> Any:
    """Give the LV back after an error."""
    try:
        yield
    except Exception:
        # If the LV can't be given back now, the deletion of the volume in
        # Cinder gives it back.
        with contextlib.suppress(Exception):
            give_back(node, 'volume', volume_id)
        raise


@rpc.method('unmanage', rpc.HOME, expected=(exceptions.CannotUnmanage,))
def unmanage(node: Node, volume_id: str) -> None:
    """Stop managing a volume; its LV stays.

    :raises StaleMove: if its home is another node
    :raises CannotUnmanage: if it can't be unmanaged now
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, volume_id)
        volume = node.volumes.volume(volume_id)
        if volume is None:
            return
        if volume.home != node.host:
            raise exceptions.StaleMove(volume=volume_id)
        if manageable.was_not_managed(volume.status, volume.size):
            give_back(node, 'volume', volume_id)
        else:
            _release_lv(node, volume)


def _release_lv(node: Node, volume: Volume) -> None:
    """Remove a volume's devices, and leave its LV to other tools.

    :raises CannotUnmanage: if the volume is in use, moving or incomplete
    """
    reason, _whole = homes.why_not_here(node, volume)
    if reason:
        raise exceptions.CannotUnmanage(volume=volume.id, reason=reason)
    _check_free(node, volume)
    cleanup.end_exports(node, volume.id, None)
    if devices.users(node, volume.id):
        raise exceptions.CannotUnmanage(
            volume=volume.id, reason='it is open on %s' % node.host)
    # Finished moves may have left source devices on the LV: it would be open.
    cleanup.withdraw_above(node, volume.name)
    node.handles.remove_handle(volume.id)
    # The LV keeps its name, so a repeated call finds it.
    node.lvm.disown(volume.name, volume.name)
    LOG.info('Volume %(volume)s is not managed any more; its data is in '
             'logical volume %(lv)s.',
             {'volume': volume.id, 'lv': volume.name})


def _check_free(node: Node, volume: Volume) -> None:
    """Check that a volume's LV is complete, and only this volume uses it.

    After a move, or Cinder's own migration, the LV's name has another id
    (``name_id``) than the volume. A move record with this id, possibly of
    another volume, may still use the LV.

    :raises CannotUnmanage: if a move or a pending cleanup uses the LV; if a
        copy into the LV, or its zeroing, is incomplete; or if another volume
        is on it
    """
    moves = [node.moves.move_of(volume.id),
             node.moves.get_move(volume.name_id),
             *node.moves.pending_cleanups(volume.id)]
    waiting = next((move for move in moves if move), None)
    present = node.handles.survey()
    lv = present.lvs.get(volume.name)
    if waiting and waiting.is_over:
        reason = '%s has a pending cleanup of a move' % (
            waiting.cleanup_node)
    elif waiting:
        reason = 'it is being moved (%s)' % waiting.display_phase
    elif present.metadata(volume.name_id):
        reason = 'a copy of it was not completed'
    elif lv and lv.zeroed < lv.size:
        # A tag records the zeroed length. If the LV is managed again later,
        # the driver would zero the rest, with data written meanwhile.
        reason = ('its LV is not zeroed completely, because an extension of '
                  'the volume or of its source has failed; extend the volume '
                  'first')
    else:
        others = present.volumes_above(
            node.lvm.group, volume.name) - {volume.id}
        if not others:
            return
        reason = 'volume %s uses the same data' % sorted(others)[0]
    raise exceptions.CannotUnmanage(volume=volume.id, reason=reason)


def adopted(lvs: Mapping[str, lvm_reports.LogicalVolume], kind: str
            ) -> dict[str, lvm_reports.LogicalVolume]:
    """Return the LVs adopted for volumes, or for snapshots, by owner's id.

    LVs created by the driver are not included: they have no former name.

    :param kind: 'volume' or 'snapshot'
    """
    facts = ((names.facts(lv.tags), lv) for lv in lvs.values())
    return {each[kind]: lv for each, lv in facts
            if kind in each and names.WAS in each}


def adopt(node: Node, lv: lvm_reports.LogicalVolume, own_name: str,
          size_bytes: int, **facts: str) -> None:
    """Tag, rename and extend an LV, to make it the driver's own.

    Completes an interrupted adoption. The caller holds the allocation lock.
    The extension is neither zeroed nor visible to users yet: see :func:`show`.

    :param size_bytes: minimum length in bytes
    :param facts: for the tags that name its owner; see :func:`.names.tags`
    """
    was = names.facts(lv.tags).get(names.WAS, lv.name)
    node.lvm.adopt(lv.name, own_name, names.tags(**facts, was=was))
    node.lvm.extend_lv(own_name, size_bytes)


def show(node: Node, name: str, size_bytes: int) -> None:
    """Zero the extension of an adopted LV, and let users see it.

    The extension is shorter than a GiB, so zeroing takes no long time.

    :param size_bytes: length of the volume, visible to users afterwards
    """
    node.lvm.zero_part(name, seconds=math.inf)
    node.lvm.show_lv(name, size_bytes)


def give_back(node: Node, kind: str, owner: str) -> bool:
    """Return an adopted LV to its former name, with its data.

    The caller holds the lock of the volume, or of the snapshot.

    :returns: False if there is no adopted LV
    :raises CommandFailed: if its extension can't be zeroed: it stays adopted
    """
    lv = adopted(node.lvm.lvs(), kind).get(owner)
    if lv is None:
        return False
    node.handles.remove_handle(owner)
    if lv.zeroed < lv.size:
        # A tag records the zeroed length. If the LV is managed again later,
        # the driver would zero the rest, with data written meanwhile.
        node.lvm.zero_part(lv.name, seconds=math.inf)
    return node.lvm.disown(lv.name, names.facts(lv.tags)[names.WAS])
