# SPDX-License-Identifier: Apache-2.0
"""LVs that nobody was given yet: those of volumes that are being created.

Each is tagged as newborn from the moment that it is there, until Cinder has
taken its volume. Until then no boot gives it out, whoever creates it again
makes it anew, and if its volume is created elsewhere, or not at all, the look
of its node removes it.
"""

from oslo_log import log as logging

from cinder_localclone import exceptions
from cinder_localclone import lvm_errors
from cinder_localclone.moves import checks
from cinder_localclone.moves import removal
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import rows
from cinder_localclone import survey as surveys

LOG = logging.getLogger(__name__)

#: Statuses of a row that don't say whether its volume was taken.
UNDECIDED = (*rows.BEING_CREATED, 'reverting', 'error')
#: In these an LV that the row does not name may have somebody's data: a
#: reversal has not ended, or the volume's node was given up.
UNCLEAR = ('reverting', 'error')


# -- making one

def being_created(node: nodes.Node, volume_id: str) -> ports.Volume:
    """The row of a volume that is to be created here; its lock is held.

    Whoever asks may have an older one than an earlier call has left.

    :raises TooLate: if it is not (any more)
    :raises AlreadyThere: if there is an LV that somebody may have been given
    """
    row = node.records.volume(volume_id)
    if (row is None or not checks.is_home(node, row)
            or row.status not in rows.BEING_CREATED):
        raise exceptions.TooLate(what='Volume ' + volume_id)
    lv = node.stack.lvs().get(row.name)
    if lv and names.NEWBORN not in lv.tags:
        raise lvm_errors.AlreadyThere(
            volume=volume_id, lv=lv.name, host=node.host)
    return row


def make(node: nodes.Node, volume: ports.Volume) -> None:
    """Make the LV of a volume that is being created.

    One that an earlier call has left is made anew, whatever it has.

    :param volume: as :func:`being_created` has found it
    """
    lvs = node.stack.lvs()
    if volume.name in lvs:
        removal.remove_at_rest(node, volume)
    node.stack.create_lv(
        volume.name, rows.body_bytes(volume), volume.id, newborn=True,
        extra_bytes=rows.extra_bytes(volume), lvs=lvs)


def remove_failed(node: nodes.Node, volume: ports.Volume) -> None:
    """Remove what there is of a volume that could not be created.

    Whatever becomes of that: it must not hide why there is no volume.

    :param volume: as :func:`being_created` has found it
    """
    try:
        removal.remove_at_rest(node, volume)
    except Exception as exc:
        LOG.error('LV %(lv)s of volume %(volume)s, which could not be '
                  'created, could not be removed. That is tried again when '
                  'the volume is there, or deleted: %(error)s', {
                      'lv': volume.name, 'volume': volume.id, 'error': exc})


def remove(node: nodes.Node, volume_id: str, lv: str) -> None:
    """Remove what nobody was given, unless a move has it after all.

    One that has failed may offer it yet: that ends first.
    """
    if node.records.move_of(volume_id) is None and not any(
            move.cleanup_lv == lv and move.cleanup_node == node.host
            for move in node.records.remains_of(volume_id)):
        present = node.stack.survey()
        if present.sources_above(lv):
            return
        handle, body = present.handle(volume_id), present.lvs.get(lv)
        if handle and body and body.number in handle.uses():
            if present.users(volume_id):
                return
            node.crypt.close(volume_id)
            node.stack.remove_handle(volume_id)
        removal.remove_volume_lv(node, lv)


# -- what Cinder has taken

def accept(node: nodes.Node, volume: ports.Volume, present: surveys.Survey
           ) -> None:
    """A volume at its home is not newborn any more when it is connected.

    :mod:`.restore` leaves alone what is.

    :param present: what there is on this node
    """
    lv = present.lvs.get(volume.name)
    if (lv and names.NEWBORN in lv.tags
            and volume.status not in (*UNDECIDED, 'deleting')):
        try:
            node.stack.accept(lv.name)
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s counts as newborn until the next '
                        'periodic check: %(error)s',
                        {'volume': volume.id, 'error': exc})


# -- the node's look

def look(node: nodes.Node, present: surveys.Survey) -> None:
    """Remove what was not created to its end; accept all others.

    Only an LV that is tagged as newborn, and whose row says that the volume
    is elsewhere, or was deleted.

    :param present: what there is on this node
    """
    for volume_id, lv in present.newborns(node.stack.group):
        try:
            with node.try_lock(volume_id):
                settle(node, volume_id, lv.name)
        except exceptions.Busy:
            pass
        except exceptions.LocalCloneError as exc:
            LOG.error('What there is of volume %(volume)s, which was not '
                      'created, could not be removed, will retry: %(error)s',
                      {'volume': volume_id, 'error': exc})
    node.snapshots.correct_services(node.host)


def settle(node: nodes.Node, volume_id: str, lv: str) -> None:
    """Decide of one newborn, whose lock is held.

    What is being created elsewhere is not made of it. A volume that has no
    home was given to nobody.
    """
    recorded = node.snapshots.newborn(volume_id)
    found = node.stack.lvs().get(lv)
    if recorded is None or not (found and names.NEWBORN in found.tags):
        return  # it may be all that is left of somebody's data
    untaken = recorded.status in (*UNDECIDED, 'deleting')
    if recorded.deleted or untaken and not recorded.home:
        remove(node, volume_id, lv)
    elif (recorded.home, recorded.lv) != (node.host, lv):
        if recorded.status not in UNCLEAR:
            remove(node, volume_id, lv)
    elif not untaken:
        node.stack.accept(lv)
