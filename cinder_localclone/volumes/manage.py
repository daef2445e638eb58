# SPDX-License-Identifier: Apache-2.0
"""Manage existing LVs as volumes; unmanage volumes.

A refused or failed request leaves LVM as it was. Tags on the LV say which
volume it becomes and which name it had. They are set first and removed last,
so an interrupted request can be undone.
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
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.encryption import devices
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import manageable

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

Reference = Mapping[str, str]


def referred(node: Node, lvs: manageable.LVs, reference: Reference
             ) -> lvm_reports.LogicalVolume:
    """The LV that a reference names.

    :raises CannotManage: if it names none
    """
    lv = find(node, lvs, reference)
    if lv is None:
        raise no_such_lv(node, reference)
    return lv


def find(node: Node, lvs: manageable.LVs, reference: Reference
         ) -> lvm_reports.LogicalVolume | None:
    """The same; None if there is no such LV.

    :raises CannotManage: if it is no reference
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
    """Why a reference names no LV.

    :param elsewhere: the nodes that have one
    :param silent: those of which it is not known
    """
    reason = 'no such LV exists in volume group ' + node.lvm.group
    if elsewhere:
        reason += ', and %s elsewhere: on %s' % (
            'one' if len(elsewhere) == 1 else 'more than one',
            ' and '.join(elsewhere))
    if silent:
        reason += '; not known of ' + ', '.join(silent)
    return exceptions.CannotManage(
        lv=reference.get('source-name', reference.get('source-id')),
        host=node.host, reason=reason)


def known(node: Node, lvs: manageable.LVs) -> dict[str, str]:
    """The names of LVs that belong to volumes, with the ids of these.

    Volumes of other backends in the same volume group are among them.
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
    """All that is, or could be, a volume here, as Cinder lists it."""
    lvs = node.lvm.lvs()
    return manageable.volumes(lvs, node.lvm.group, node.lvm.pool,
                              known(node, lvs))


def get_size(node: Node, volume_id: str, reference: Reference) -> int:
    """The GiB that a volume of an LV will have.

    :raises CannotManage: if the LV can't become one
    """
    lv = _find(node, volume_id, reference)
    return manageable.whole_gib(lv.size)


def _find(node: Node, volume_id: str, reference: Reference
          ) -> lvm_reports.LogicalVolume:
    """The LV that a volume is to be made of, or has been made of."""
    lvs = node.lvm.lvs()
    mine = adopted(lvs, 'volume').get(volume_id)
    if mine:
        return mine
    lv = referred(node, lvs, reference)
    reason = manageable.why_no_volume(lv, node.lvm.pool, known(node, lvs))
    if reason:
        raise exceptions.CannotManage(
            lv=lv.name, host=node.host, reason=reason)
    return lv


def manage(node: Node, volume_id: str, reference: Reference) -> None:
    """Make a volume of an LV. Its handle is made last.

    :raises CannotManage: if the LV can't become one
    :raises TooLate: if nobody waits for it any more
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    with node.lock(volume_id):
        volume = node.volumes.volume(volume_id)
        if (volume is None or volume.status != 'managing'
                or not rows.is_home(volume, node.host)):
            raise exceptions.TooLate(what='Volume ' + volume_id)
        # Two volumes could be made of one LV at the same time.
        with node.allocation_lock():
            lv = _find(node, volume_id, reference)
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
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):  # deleting the volume does it
            give_back(node, 'volume', volume_id)
        raise


@rpc.method('unmanage', rpc.HOME, expected=(exceptions.CannotUnmanage,))
def unmanage(node: Node, volume_id: str) -> None:
    """Leave the LV of a volume to whoever wants it.

    :raises StaleMove: if its home is another node
    :raises CannotUnmanage: if it can't be left now
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, volume_id)
        volume = node.volumes.volume(volume_id)
        if volume is None:
            return
        if not rows.is_home(volume, node.host):
            raise exceptions.StaleMove(volume=volume_id)
        if manageable.was_not_managed(volume.status, volume.size):
            give_back(node, 'volume', volume_id)
        else:
            _leave(node, volume)


def _leave(node: Node, volume: objects.Volume) -> None:
    reason = homes.why_not_here(node, volume)
    if reason:
        raise exceptions.CannotUnmanage(volume=volume.id, reason=reason)
    _check_free(node, volume)
    cleanup.end_exports(node, volume.id, None)
    if devices.users(node, volume.id):
        raise exceptions.CannotUnmanage(
            volume=volume.id, reason='it is open on %s' % node.host)
    # Moves that are over may have left source devices above it.
    cleanup.withdraw_above(node, volume.name)
    node.handles.remove_handle(volume.id)
    # Its name stays: whoever asks again finds it.
    node.lvm.disown(volume.name, volume.name)
    LOG.info('Volume %(volume)s is not managed any more; its data is in '
             'logical volume %(lv)s.',
             {'volume': volume.id, 'lv': volume.name})


def _check_free(node: Node, volume: objects.Volume) -> None:
    """No move, nor what is left of one, has any of a volume.

    After Cinder's own migration it may be another volume's move.

    :raises CannotUnmanage: if one has
    """
    moves = [node.moves.move_of(volume.id),
             node.moves.get_move(volume.name_id),
             *node.moves.pending_cleanups(volume.id)]
    waiting = next((move for move in moves if move), None)
    present = node.handles.survey()
    lv = present.lvs.get(volume.name)
    if waiting and waiting.is_over:
        reason = '%s has still to clean up after a move' % (
            waiting.cleanup_node)
    elif waiting:
        reason = 'it is being moved (%s)' % waiting.display_phase
    elif present.metadata(volume.name_id):
        reason = 'a copy of it was not completed'
    elif lv and lv.zeroed < lv.size:
        # Managed again later, it would be zeroed from there on, whatever was
        # written to it meanwhile.
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
    """The LVs that were adopted for volumes, or snapshots, by their ids.

    :param kind: 'volume' or 'snapshot'
    """
    facts = ((names.facts(lv.tags), lv) for lv in lvs.values())
    return {each[kind]: lv for each, lv in facts
            if kind in each and names.WAS in each}


def adopt(node: Node, lv: lvm_reports.LogicalVolume, own_name: str,
          size_bytes: int, **facts: str) -> None:
    """Make an LV one of the driver's, with so many bytes at least.

    One that was not adopted to the end is, then. For a caller that holds the
    lock of free space. The LV is not zeroed yet where it was extended: see
    :func:`show`.

    :param facts: whose it is; see :func:`.names.tags`
    """
    was = names.facts(lv.tags).get(names.WAS, lv.name)
    node.lvm.adopt(lv.name, own_name, names.tags(**facts, was=was))
    node.lvm.extend_lv(own_name, size_bytes)


def show(node: Node, name: str, size_bytes: int) -> None:
    """Zero what an adopted LV was extended by, less than a GiB, and show it.

    :param size_bytes: of the volume
    """
    node.lvm.zero_part(name, seconds=math.inf)
    node.lvm.show_lv(name, size_bytes)


def give_back(node: Node, kind: str, owner: str) -> bool:
    """Leave what was adopted under the name that it had, with its data.

    For a caller that holds the lock of the volume, or snapshot.

    :returns: False if there is none
    :raises CommandFailed: if what it was extended by can't be zeroed: it
        stays adopted
    """
    lv = adopted(node.lvm.lvs(), kind).get(owner)
    if lv is None:
        return False
    node.handles.remove_handle(owner)
    if lv.zeroed < lv.size:
        # Managed again, it would be zeroed from where it had ended before,
        # its owner's data included.
        node.lvm.zero_part(lv.name, seconds=math.inf)
    return node.lvm.disown(lv.name, names.facts(lv.tags)[names.WAS])
