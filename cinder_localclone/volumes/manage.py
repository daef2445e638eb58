# SPDX-License-Identifier: Apache-2.0
"""Volumes of LVs that are there already, and LVs of volumes no more.

What is refused, or fails, leaves LVM as it was. See :mod:`.adoption`.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone import adoption
from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import manage_errors
from cinder_localclone import manageable
from cinder_localclone.moves import offering
from cinder_localclone.moves import removal
from cinder_localclone.moves import source
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import rows
from cinder_localclone import tops

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

Reference = Mapping[str, str]


# -- what there is

def referred(node: nodes.Node, lvs: manageable.LVs, reference: Reference
             ) -> reports.LogicalVolume:
    """The LV that a reference names.

    :raises CannotManage: if it names none
    """
    lv = find(node, lvs, reference)
    if lv is None:
        raise no_such_lv(node, reference)
    return lv


def find(node: nodes.Node, lvs: manageable.LVs, reference: Reference
         ) -> reports.LogicalVolume | None:
    """The same; None if there is no such LV.

    :raises CannotManage: if it is no reference
    """
    try:
        return manageable.find(lvs, node.stack.group, reference)
    except KeyError:
        raise manage_errors.CannotManage(
            lv=dict(reference), host=node.host, reason='the reference must '
            'have source-name, the name of an LV, or source-id, its UUID')


def no_such_lv(node: nodes.Node, reference: Reference,
               elsewhere: Sequence[str] = (), silent: Sequence[str] = ()
               ) -> manage_errors.CannotManage:
    """Why a reference names no LV.

    :param elsewhere: the nodes that have one
    :param silent: those of which it is not known
    """
    reason = 'no such LV exists in volume group ' + node.stack.group
    if elsewhere:
        reason += ', and %s elsewhere: on %s' % (
            'one' if len(elsewhere) == 1 else 'more than one',
            ' and '.join(elsewhere))
    if silent:
        reason += '; not known of ' + ', '.join(silent)
    return manage_errors.CannotManage(
        lv=reference.get('source-name', reference.get('source-id')),
        host=node.host, reason=reason)


def known(node: nodes.Node, lvs: manageable.LVs) -> dict[str, str]:
    """The names of LVs that belong to volumes, with the ids of these.

    Volumes of other backends in the same volume group are among them.
    """
    here = {volume.name: volume.id
            for volume in node.records.volumes_of(node.host)
            if volume.status not in manageable.UNSETTLED
            or volume.status in ('unmanaging', 'error_unmanaging')}
    for name, lv in lvs.items():
        volume_id = manageable.id_in(name)
        if (volume_id and name not in here and not names.own_tags(lv.tags)
                and name == CONF.volume_name_template % volume_id
                and node.records.volume(volume_id)):
            here[name] = volume_id
    return here


def listed(node: nodes.Node) -> list[manageable.Entry]:
    """All that is, or could be, a volume here, as Cinder lists it."""
    lvs = node.stack.lvs()
    return manageable.volumes(lvs, node.stack.group, node.stack.pool,
                              known(node, lvs))


# -- manage

def get_size(node: nodes.Node, volume_id: str, reference: Reference) -> int:
    """The GiB that a volume of an LV will have.

    :raises CannotManage: if the LV can't become one
    """
    lv = _find(node, volume_id, reference)
    return manageable.whole_gib(lv.size)


def _find(node: nodes.Node, volume_id: str, reference: Reference
          ) -> reports.LogicalVolume:
    """The LV that a volume is to be made of, or has been made of."""
    lvs = node.stack.lvs()
    mine = adoption.adopted(lvs, 'volume').get(volume_id)
    if mine:
        return mine
    lv = referred(node, lvs, reference)
    reason = manageable.why_no_volume(lv, node.stack.pool, known(node, lvs))
    if reason:
        raise manage_errors.CannotManage(
            lv=lv.name, host=node.host, reason=reason)
    return lv


def manage(node: nodes.Node, volume_id: str, reference: Reference) -> None:
    """Make a volume of an LV. Its handle is made last.

    :raises CannotManage: if the LV can't become one
    :raises TooLate: if nobody waits for it any more
    :raises LocalCloneError: if LVM fails; the LV is as it was
    """
    with node.lock(volume_id):
        volume = node.records.volume(volume_id)
        if (volume is None or volume.status != 'managing'
                or not rows.is_home(volume, node.host)):
            raise exceptions.TooLate(what='Volume ' + volume_id)
        # Two volumes could be made of one LV at the same time.
        with node.allocation_lock():
            lv = _find(node, volume_id, reference)
            size = manageable.whole_bytes(lv.size)
            with _undone_if_it_fails(node, volume_id):
                adoption.adopt(node, lv, volume.name, size, volume=volume_id)
        with _undone_if_it_fails(node, volume_id):
            adoption.show(node, volume.name, size)
            node.stack.ensure_handle_on_lv(volume_id, volume.name, size)
    LOG.info('Logical volume %(lv)s is managed as volume %(volume)s.',
             {'lv': lv.name, 'volume': volume_id})


@contextlib.contextmanager
def _undone_if_it_fails(node: nodes.Node, volume_id: str) -> Any:
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):  # deleting the volume does it
            adoption.give_back(node, 'volume', volume_id)
        raise


# -- unmanage

def unmanage(node: nodes.Node, context: ports.Context, volume_id: str
             ) -> None:
    """Leave the LV of a volume to whoever wants it, wherever its home is.

    :param context: the admin context in which peers are called
    :raises CannotUnmanage: if it can't be left now
    :raises LocalCloneError: if its home could not do it
    """
    home = unmanage_here(node, context, volume_id)
    if home != node.host:
        node.peers.unmanage(context, home, volume_id)


def unmanage_here(node: nodes.Node, context: ports.Context, volume_id: str
                  ) -> str:
    """The same, if this node is the volume's home.

    :returns: its home; unless that is this node, nothing was done
    :raises CannotUnmanage: if it can't be left now
    """
    with node.lock(volume_id):
        source.abandon_interrupted(node, context, volume_id)
        volume = node.records.volume(volume_id)
        if volume is None:
            return node.host
        home = names.service_host(volume.host)
        if home == node.host and manageable.was_not_managed(
                volume.status, volume.size):
            adoption.give_back(node, 'volume', volume_id)
        elif home == node.host:
            _leave(node, volume)
        return home


def _leave(node: nodes.Node, volume: ports.Volume) -> None:
    _check_free(node, volume)
    removal.stop_serving(node, volume.id, None)
    if tops.users(node, volume.id):
        raise manage_errors.CannotUnmanage(
            volume=volume.id, reason='it is open on %s' % node.host)
    # Moves that are over may have left source devices above it.
    offering.withdraw_above(node, volume.name)
    node.stack.remove_handle(volume.id)
    # Its name stays: whoever asks again finds it.
    node.stack.disown(volume.name, volume.name)
    LOG.info('Volume %(volume)s is not managed any more; its data is in '
             'logical volume %(lv)s.',
             {'volume': volume.id, 'lv': volume.name})


def _check_free(node: nodes.Node, volume: ports.Volume) -> None:
    """No move, nor what is left of one, has any of a volume.

    After Cinder's own migration it may be another volume's move.

    :raises CannotUnmanage: if one has
    """
    moves = [node.records.move_of(volume.id),
             node.records.get_move(volume.name_id),
             *node.records.remains_of(volume.id)]
    waiting = next((move for move in moves if move), None)
    present = node.stack.survey()
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
            node.stack.group, volume.name) - {volume.id}
        if not others:
            return
        reason = 'volume %s uses the same data' % sorted(others)[0]
    raise manage_errors.CannotUnmanage(volume=volume.id, reason=reason)
