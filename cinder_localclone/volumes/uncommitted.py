# SPDX-License-Identifier: Apache-2.0
"""Uncommitted LVs: the LVs of volumes that Cinder has not taken yet.

An LV is tagged uncommitted from its creation until Cinder has taken its
volume. Until then no boot gives it out. A second request to create the volume
is refused: it may be a repeated message, while Cinder is about to use the LV
of the first request. If the volume is created elsewhere, or not at all, a
sweep removes the LV. It never does so for lack of a row: it needs proof,
either that no user can have the volume, or that the volume's data is on
another node.
"""

from collections.abc import Callable
from collections.abc import Iterable

from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import policy
from cinder_localclone.moves import cleanup

LOG = logging.getLogger(__name__)


# -- create

def being_created(node: Node, volume_id: str) -> Volume:
    """Return the row of a volume to be created here; its lock is held.

    The caller's own row may be older than the work of an earlier call.

    :raises TooLate: if the volume is no longer being created here
    :raises AlreadyThere: if its LV exists
    """
    row = node.volumes.volume(volume_id)
    if (row is None or row.home != node.host
            or row.status not in statuses.BEING_CREATED):
        raise exceptions.TooLate(what='Volume ' + volume_id)
    if row.name in node.lvm.lvs():
        raise exceptions.AlreadyThere(
            volume=volume_id, lv=row.name, host=node.host)
    return row


def make(node: Node, volume: Volume) -> None:
    """Create the uncommitted LV of a volume.

    :param volume: as :func:`being_created` has returned it
    """
    node.lvm.create_lv(
        volume.name, volume.backing_bytes(), volume.id, uncommitted=True,
        extra_bytes=volume.extra_bytes)


def remove_failed(node: Node, volume: Volume) -> None:
    """Remove everything of a volume whose creation has failed.

    Errors are only logged, because they must not hide the first error.

    :param volume: as :func:`being_created` has returned it
    """
    try:
        node.handles.remove_handle(volume.id)
        cleanup.discard_lv(node, volume.name)
    except Exception as exc:
        LOG.error('Volume %(volume)s was not created, and its LV %(lv)s could '
                  'not be removed. The driver tries again when the volume is '
                  'created or deleted: %(error)s', {
                      'lv': volume.name, 'volume': volume.id, 'error': exc})


# -- accept

def accept(node: Node, volume: Volume, present: survey.Survey) -> None:
    """Accept the uncommitted LV of a connected volume at its home.

    :mod:`.restore` leaves uncommitted LVs alone.

    :param present: the devices and LVs of this node
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
    """Accept all uncommitted LVs whose volumes Cinder has taken.

    :param present: the devices and LVs of this node
    """
    def accept_one(volume_id: str, lv: lvm_reports.LogicalVolume) -> None:
        with node.try_lock(volume_id):
            if nodes.is_taken(
                    node, _recorded(node, volume_id, lv.name), lv.name):
                node.lvm.accept(lv.name)
    _each(present.uncommitted_lvs(node.lvm.group), accept_one,
          'could not be accepted')


def _each(uncommitted_lvs: Iterable[tuple[str, lvm_reports.LogicalVolume]],
          act: Callable[[str, lvm_reports.LogicalVolume], None], what: str
          ) -> None:
    """Act on uncommitted LVs; log an error, and go on with the others.

    An LV without a row may be the last copy of a tenant's data.

    :param act: ``act(volume_id, lv)``
    :param what: text of the log message for an error
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
    """Return the facts of a volume's row, if its LV is still uncommitted."""
    found = node.lvm.lvs().get(lv)
    if found is None or names.UNCOMMITTED not in found.tags:
        return None
    return node.volumes.last_known(volume_id)


# -- remove

def sweep(node: Node, seen: survey.Survey | None = None) -> None:
    """Remove uncommitted LVs that are incomplete, or not needed any more.

    Runs in a loop of its own, because it waits for other nodes: for each node
    once, and without a lock.

    :param seen: result of the last check of the node; without any uncommitted
        LV in it, nothing is done. None: not known
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
    # Without listing devices, because there may be a thousand.
    _each(survey.Survey(node.lvm.lvs(), {}).uncommitted_lvs(node.lvm.group),
          remove_left, 'could not be removed')


def remove_unwanted(node: Node, volume_id: str, lv: str) -> None:
    """Remove an uncommitted LV that no user can have; its lock is held."""
    recorded = _recorded(node, volume_id, lv)
    if recorded and _is_unwanted(node, recorded):
        remove(node, volume_id, lv)


def _is_own(node: Node, lv: lvm_reports.LogicalVolume) -> bool:
    """Return whether this backend created an LV, still uncommitted."""
    return lv.tags.issuperset(names.uncommitted(node.host))


def _is_unwanted(node: Node, recorded: rows.Uncommitted) -> bool:
    """Return whether no user has or will get an uncommitted LV.

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
    """Return whether the volume's row names another LV, and it exists.

    False if the volume's home is this very node under a former name.

    :raises PeerUnreachable: if the volume's home does not answer
    """
    if not recorded.home or recorded.status in statuses.MAYBE_UNCOMMITTED:
        return False  # for example during a revert
    if recorded.home == node.host:
        return recorded.lv != lv.name and recorded.lv in node.lvm.lvs()
    return names.same_backend(recorded.home, node.host) and rpc.call_at(
        recorded.home, uuid_of, node, recorded.lv) not in ('', lv.uuid)


@rpc.method('uuid_of', rpc.HOME, prompt=True)
def uuid_of(node: Node, lv: str) -> str:
    """Return LVM's UUID of an LV of this node; '' if it does not exist."""
    found = node.lvm.lvs().get(lv)
    return found.uuid if found else ''


def remove(node: Node, volume_id: str, lv: str) -> None:
    """Remove an uncommitted LV; the lock of its volume is held.

    The LV stays while the volume moves, because the move may need it under any
    name of this node. It stays while a failed move may still export it.

    If the volume was deleted, its secrets go first. The deletion was on
    another node, and may have looked for them before this node made one. The
    LV stays while the key manager is away: nothing else tells of them.
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
    recorded = node.volumes.last_known(volume_id)
    if (recorded and recorded.deleted
            and volume_types.is_own(recorded.provider_id)):
        node.keys.find(volume_id)  # an error of the next call is only logged
        policy.forget(
            node, [volume_id], volume_types.key_in(str(recorded.provider_id)),
            policy.key_of_type(node, recorded))
    cleanup.discard_lv(node, lv)
