# SPDX-License-Identifier: Apache-2.0
"""LVs that nobody was given yet: those of volumes that are being created.

Each is tagged as newborn from the moment that it is there, until Cinder has
taken its volume. Until then no boot gives it out. Whoever creates it again is
refused: that may be a repeated request, and Cinder may be about to give away
what the first has made. If its volume is created elsewhere, or not at all, a
sweep removes it: never because a row says nothing of it, only because nobody
can have been given it, or because the volume is seen where it is now.
"""

from collections.abc import Callable
from collections.abc import Iterable

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.moves import cleanup

LOG = logging.getLogger(__name__)


# -- making one

def being_created(node: Node, volume_id: str) -> objects.Volume:
    """The row of a volume that is to be created here; its lock is held.

    Whoever asks may have an older one than an earlier call has left.

    :raises TooLate: if it is not (any more)
    :raises AlreadyThere: if its LV is there
    """
    row = node.volumes.volume(volume_id)
    if (row is None or not rows.is_home(row, node.host)
            or row.status not in statuses.BEING_CREATED):
        raise exceptions.TooLate(what='Volume ' + volume_id)
    if row.name in node.lvm.lvs():
        raise exceptions.AlreadyThere(
            volume=volume_id, lv=row.name, host=node.host)
    return row


def make(node: Node, volume: objects.Volume) -> None:
    """Make the LV of a volume that is being created.

    :param volume: as :func:`being_created` has found it
    """
    node.lvm.create_lv(
        volume.name, rows.backing_bytes(volume), volume.id, uncommitted=True,
        extra_bytes=rows.extra_bytes(volume))


def remove_failed(node: Node, volume: objects.Volume) -> None:
    """Remove what there is of a volume that could not be created.

    Whatever becomes of that: it must not hide why there is no volume.

    :param volume: as :func:`being_created` has found it
    """
    try:
        node.handles.remove_handle(volume.id)
        cleanup.discard_lv(node, volume.name)
    except Exception as exc:
        LOG.error('LV %(lv)s of volume %(volume)s, which could not be '
                  'created, could not be removed. The driver tries again when '
                  'the volume is created or deleted: %(error)s', {
                      'lv': volume.name, 'volume': volume.id, 'error': exc})


# -- what Cinder has taken

def accept(node: Node, volume: objects.Volume, present: survey.Survey
           ) -> None:
    """A volume at its home is not newborn any more when it is connected.

    :mod:`.restore` leaves alone what is.

    :param present: what there is on this node
    """
    lv = present.lvs.get(volume.name)
    if (lv and names.UNCOMMITTED in lv.tags
            and volume.status not in statuses.NOT_GIVEN_OUT):
        try:
            node.lvm.accept(lv.name)
        except exceptions.LocalCloneError as exc:
            LOG.warning('Volume %(volume)s stays uncommitted until the next '
                        'periodic check: %(error)s',
                        {'volume': volume.id, 'error': exc})


def accept_all(node: Node, present: survey.Survey) -> None:
    """Accept all that Cinder has taken.

    :param present: what there is on this node
    """
    def accept_one(volume_id: str, lv: lvm_reports.LogicalVolume) -> None:
        with node.try_lock(volume_id):
            recorded = _recorded(node, volume_id, lv.name)
            if (recorded and not recorded.deleted
                    and (recorded.home, recorded.lv) == (node.host, lv.name)
                    and recorded.status not in statuses.NOT_GIVEN_OUT):
                node.lvm.accept(lv.name)
    _each(present.uncommitted_lvs(node.lvm.group), accept_one,
          'could not be accepted')


def _each(uncommitted_lvs: Iterable[tuple[str, lvm_reports.LogicalVolume]],
          act: Callable[[str, lvm_reports.LogicalVolume], None], what: str
          ) -> None:
    """One that fails does not stop the others.

    One without a row may be all that is left of somebody's data.

    :param act: ``act(volume_id, lv)``
    :param what: what could not be done, if it raises
    """
    for volume_id, lv in uncommitted_lvs:
        try:
            act(volume_id, lv)
        except exceptions.Busy:
            pass
        except Exception as exc:
            LOG.error('Uncommitted LV %(lv)s of volume %(volume)s %(what)s, '
                      'will retry: %(error)s', {
                          'lv': lv.name, 'volume': volume_id, 'what': what,
                          'error': exc})


def _recorded(node: Node, volume_id: str, lv: str
              ) -> rows.Uncommitted | None:
    """What the row of a volume says, if its LV is newborn yet."""
    found = node.lvm.lvs().get(lv)
    if found is None or names.UNCOMMITTED not in found.tags:
        return None
    return node.volumes.last_known(volume_id)


# -- what nobody takes

def sweep(node: Node, seen: survey.Survey | None = None) -> None:
    """Remove what was not created to its end, and what is not needed any more.

    In a loop of its own, because it waits for other nodes: for each of them
    once, and without any lock.

    :param seen: what the last check of the node has found; if none of them
        is there, nothing is done. None: not known
    """
    if seen and not seen.uncommitted_lvs(node.lvm.group):
        return
    silent: set[str] = set()

    def remove_left(volume_id: str, lv: lvm_reports.LogicalVolume) -> None:
        recorded = node.volumes.last_known(volume_id)
        if recorded is None or not _is_own(node, lv):
            return
        unwanted = _is_unwanted(node, recorded)
        if not unwanted and recorded.home not in silent:
            try:
                unwanted = _is_seen(node, recorded, lv)
            except exceptions.PeerUnreachable:
                silent.add(recorded.home)
                raise
        if unwanted:
            with node.try_lock(volume_id):
                if _recorded(node, volume_id, lv.name) == recorded:
                    remove(node, volume_id, lv.name)
    # Without devices, of which there may be a thousand.
    _each(survey.Survey(node.lvm.lvs(), {}).uncommitted_lvs(node.lvm.group),
          remove_left, 'could not be removed')


def remove_unwanted(node: Node, volume_id: str, lv: str) -> None:
    """Remove a newborn that nobody can have been given; its lock is held."""
    recorded = _recorded(node, volume_id, lv)
    if recorded and _is_unwanted(node, recorded):
        remove(node, volume_id, lv)


def _is_own(node: Node, lv: lvm_reports.LogicalVolume) -> bool:
    """Whether this backend has made an LV, and nobody was given it."""
    return lv.tags.issuperset(names.uncommitted(node.host))


def _is_unwanted(node: Node, recorded: rows.Uncommitted) -> bool:
    """Whether nobody can have been given a newborn, nor will be.

    A volume without a home is being created again, or not at all.
    """
    if recorded.deleted:
        return True
    if not recorded.home:
        return recorded.status in statuses.NOT_GIVEN_OUT
    return (recorded.status in statuses.BEING_CREATED
            and recorded.home != node.host
            and names.same_backend(recorded.home, node.host))


def _is_seen(node: Node, recorded: rows.Uncommitted,
             lv: lvm_reports.LogicalVolume) -> bool:
    """Whether the LV that a volume's row names is there, and it is another.

    Not so if the volume's home is this very node, by a name that it had
    before.

    :raises PeerUnreachable: if the volume's home does not answer
    """
    if not recorded.home or recorded.status in statuses.MAYBE_UNCOMMITTED:
        return False  # as of a revert that has not ended
    if recorded.home == node.host:
        return recorded.lv != lv.name and recorded.lv in node.lvm.lvs()
    return names.same_backend(recorded.home, node.host) and rpc.at(
        recorded.home, uuid_of, node, recorded.lv) not in ('', lv.uuid)


@rpc.method('uuid_of', rpc.HOME, prompt=True)
def uuid_of(node: Node, lv: str) -> str:
    """Return LVM's own id of an LV of a node; '' if there is none."""
    found = node.lvm.lvs().get(lv)
    return found.uuid if found else ''


def remove(node: Node, volume_id: str, lv: str) -> None:
    """Remove what nobody was given; the lock of its volume is held.

    As long as the volume moves, that may need it, by whatever name of this
    node it knows it; and one that has failed may offer it yet.
    """
    if node.moves.move_of(volume_id) or any(
            each.cleanup_lv == lv
            for each in node.moves.pending_cleanups(volume_id)):
        return
    present = node.handles.survey()
    backing = present.lvs.get(lv)
    if (backing is None or not _is_own(node, backing)
            or present.sources_above(lv)):
        return
    handle = present.handle(volume_id)
    if handle and backing.number in handle.uses():
        if present.users(volume_id):
            return
        node.handles.remove_handle(volume_id)
    cleanup.discard_lv(node, lv)
