# SPDX-License-Identifier: Apache-2.0
"""Upper devices: open and close crypt devices and header guards.

A volume that the driver encrypts has a crypt device above its handle. A volume
that Nova encrypts has a header guard (:mod:`.dm_tables`) above its handle, and
a link in /dev as its path. The link leads to the guard for a guest. It leads
to the handle while Cinder uses the volume, because Cinder writes the header as
well. Any other volume has no upper device.

The upper device is created before the volume's path is returned. It stays
while an attachment names this node. It is closed when the volume is unused,
before another node may open the volume. Two ways to close it differ in the
next boot. :func:`ensure_closed` is the fence of a move. The notes for the boot
service (:mod:`.boot_notes`) stay, so a boot or a sweep may open the device
again. :func:`close_if_idle` and :func:`close_for_good` remove the notes as
well.

Only a node that exports or attaches the decrypted volume requests its key.

A header is not written, and a volume is not moved, copied or closed, during a
re-encryption. The caller pauses the re-encryption first, with the functions at
the end of this module. It continues by itself: see :mod:`.reencrypt`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import time

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import boot_notes

LOG = logging.getLogger(__name__)

#: Seconds after a detach during which the attachment does not count, because
#: Cinder is about to delete it. If it exists after this time, it counts again.
ENDING = 60


def path(volume: Volume) -> str:
    """Return the path by which a guest or Cinder uses a volume.

    It is the same on every node.
    """
    volume_id = volume.handle_id
    if volume.encryption:
        return names.crypt_path(volume_id)
    return names.link(volume_id) if (
        volume.is_encrypted_by_nova) else names.handle_path(volume_id)


def needs_upper_device(volume: Volume) -> bool:
    """Return whether a volume is encrypted, so its users need an upper device.

    The row decides, whether or not the device exists on this node.
    """
    return bool(volume.is_encrypted_by_nova or volume.encryption)


def ensure_exported_path(node: Node, volume: Volume) -> str:
    """Return the path to export to other nodes; create its device if needed.

    The volume's handle exists on this node. The path is the handle's. For a
    volume with an upper device a second device above the handle, the export
    device, is created instead: the kernel does not open the handle for both.
    """
    volume_id = volume.handle_id
    if not needs_upper_device(volume):
        return names.handle_path(volume_id)
    node.handles.ensure_export_device(volume_id)
    return names.export_device_path(volume_id)


def users(node: Node, volume_id: str) -> int:
    """Return the number of times that a volume is open on this node.

    An open counts on the handle, the upper device and the export device; these
    devices themselves do not. All iSCSI initiators of an export count once,
    the destination of a move not at all: it reads the source device.
    """
    return _users(node, _survey_of(node, volume_id), volume_id)


def _survey_of(node: Node, volume_id: str) -> survey.Survey:
    """Return a survey of the devices of one volume, without any LV."""
    return survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))


def _users(node: Node, present: survey.Survey, volume_id: str) -> int:
    """Return the users in a survey, see :func:`users`.

    The iSCSI target may keep the handle open without an export, after a killed
    process. This open does not count.
    """
    count = present.users(volume_id)
    return count - bool(count and node.exports.has_open_unexported(volume_id))


def ensure_closed(node: Node, volume_id: str) -> None:
    """Check that a volume is unused on this node, and close its upper device.

    This is the fence before another node may write to the volume. A
    re-encryption is paused first, so it does not count as a user. The path of
    the volume leads nowhere afterwards. The notes for a boot stay; compare
    :func:`close_for_good`. If the caller fails, the next sweep opens the
    volume again for its attachments.

    :raises SourceBusy: if the volume is used; its upper device is unchanged
    """
    present = _survey_of(node, volume_id)
    if present.crypt(volume_id):
        stop_reencryption(node, volume_id)
        present = _survey_of(node, volume_id)
    count = _users(node, present, volume_id)
    if not count and present.upper_devices(volume_id):
        # Count before this: an idle crypt device keeps the handle open.
        try:
            node.handles.close_upper(volume_id)
        except exceptions.CommandFailed:
            if not users(node, volume_id):
                raise
        count = users(node, volume_id)
    if count:
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=count,
            device=names.handle(volume_id))


def is_used_here(node: Node, volume: Volume) -> bool:
    """Return whether an attachment names this node as a user of a volume.

    An attachment does not count for :data:`ENDING` seconds after
    :func:`note_detached`.
    """
    since = time.monotonic() - ENDING
    return any(each.connector and node.is_at(each.connector, node.host)
               and node.detached.get(each.id, since) <= since
               for each in volume.volume_attachment)


def note_detached(node: Node, volume: Volume) -> None:
    """Remember the attachments of a volume on this node as ended.

    Cinder's request to detach comes before the end of their rows. This is
    remembered in memory only.
    """
    now = time.monotonic()
    for each in [each for each, when in list(node.detached.items())
                 if when < now - ENDING]:
        node.detached.pop(each, None)
    node.detached.update({
        each.id: now for each in volume.volume_attachment
        if each.connector and node.is_at(each.connector, node.host)})


def open(node: Node, volume: Volume, lv: str = '') -> None:
    """Create the upper device of a volume, if it needs any, and its link.

    The handle of the volume exists on this node.

    :param volume: its current row
    :param lv: the LV of the volume on this node; '' if it is remotely attached
    :raises HeaderDamaged: if the volume does not begin with the header that
        Nova reads. Nova would format such a volume, so it does not get the
        path
    :raises SourceBusy: if Cinder is about to write the header, but a process
        has the header guard open
    :raises LocalCloneError: if the header can't be read, or the key is missing
    """
    if volume.encryption:
        ensure_open(node, volume, lv)
        return
    if not volume.is_encrypted_by_nova:
        return
    volume_id = volume.handle_id
    if (volume.status in statuses.USED_BY_NOVA
            or is_used_here(node, volume)):
        open_for_guest(node, volume_id, lv)
    else:
        _open_for_cinder(node, volume)


def _open_for_cinder(node: Node, volume: Volume) -> None:
    """Let Cinder itself use a volume that Nova encrypts: without a guard.

    The guard would discard writes to the header. If the volume is only read,
    a guard in use stays.

    :raises SourceBusy: if Cinder writes the volume, but the guard is in use
    """
    volume_id = volume.handle_id
    if node.handles.survey().guard(volume_id):
        if volume.status in statuses.WRITTEN_BY_CINDER:
            close_for_good(node, volume_id)
        elif not close_if_idle(node, volume_id):
            return  # Cinder reads the volume through the guard
    node.handles.ensure_link(volume_id, names.handle(volume_id))


def open_for_guest(node: Node, volume_id: str, lv: str = '') -> None:
    """Create the header guard of a volume for a guest, and the link to it.

    Nova encrypts the volume. Its LV gets a tag, so a boot makes the guard.

    :param lv: as for :func:`open`
    """
    present = node.handles.survey()
    header = present.guarded_sectors(volume_id)
    if not header:
        # There is no guard yet, or it is shorter than the handle. Its length
        # has to be known from the header, read from the volume.
        header = node.handles.header_sectors(volume_id)
    found = present.lvs.get(lv)
    if found and names.guarded(found.tags) != header:
        node.lvm.mark(lv, names.guard_tag(header))
    if node.handles.ensure_guard(volume_id, header):
        node.handles.read_guarded(volume_id, header)
    node.handles.ensure_link(volume_id, names.guard(volume_id))


def grow(node: Node, volume: Volume) -> None:
    """Extend the upper device of a volume to the new length of its handle.

    Nothing is done without an upper device on this node.

    :param volume: its row
    """
    volume_id = volume.id
    present = _survey_of(node, volume_id)
    guard = present.guard(volume_id)
    if guard and not present.guarded_sectors(volume_id):
        node.handles.ensure_guard(volume_id, guard.segments[0].sectors)
    recorded = volume.encryption
    if recorded and is_short(present, volume_id):
        activate.grow(node.crypt, node.keys, volume_id,
                      pinning.recorded_in_row(recorded))


def close_if_idle(node: Node, volume_id: str) -> bool:
    """Close the upper device of a volume for good, unless it is in use.

    The notes for the boot service and the sealed key are removed as well, so
    a boot does not open the volume again. A running re-encryption is paused
    first. It opens the volume itself when it continues.

    :returns: whether this node has no upper device of the volume any more
    """
    present = node.handles.survey()
    if any(top.opened for top in present.upper_devices(volume_id)):
        return False
    if present.crypt(volume_id):
        try:
            stop_reencryption(node, volume_id)
        except exceptions.SourceBusy:
            return False
    for lv in present.lvs.values():
        header = names.guarded(lv.tags)
        if header and names.facts(lv.tags).get('volume') == volume_id:
            node.lvm.unmark(lv.name, names.guard_tag(header))
    node.handles.close_upper(volume_id)
    boot_notes.forget(node, present, volume_id)
    return True


def close_for_good(node: Node, volume_id: str) -> None:
    """Close the upper device of a volume for good, or raise an error.

    As :func:`close_if_idle`. It does not wait for the last user: the caller
    retries.

    :raises SourceBusy: if the upper device is in use
    """
    if not close_if_idle(node, volume_id):
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=users(node, volume_id),
            device=names.guard(volume_id))


def is_wanted(node: Node, volume: Volume) -> bool | None:
    """Return whether a volume needs its upper device on this node.

    :returns: None if the attachments don't show it: an attach is beginning, or
        Cinder itself has the volume open. The device then stays as it is
    """
    if is_used_here(node, volume):
        return True
    if (volume.status not in statuses.UNUSED_WITHOUT_ATTACHMENT
            or volume.is_migrated_by_cinder
            or any(not each.connector
                   for each in volume.volume_attachment)):
        return None
    return False


def differs(node: Node, volume: Volume, present: survey.Survey,
            links: Mapping[str, str]) -> bool:
    """Return whether :func:`reconcile` has to open or close an upper device.

    :param present: the survey of this node
    :param links: the targets of the links on this node, by volume
    """
    if volume.encryption:
        return crypt_differs(present, volume, is_wanted(node, volume))
    if not volume.is_encrypted_by_nova:
        return False
    volume_id = volume.handle_id
    wanted = is_wanted(node, volume)
    if wanted:
        return not present.guarded_sectors(
            volume_id) or links.get(volume_id) != names.guard(volume_id)
    lv = present.lvs.get(volume.name)
    return wanted is False and bool(
        volume_id in links or present.upper_devices(volume_id)
        or lv and names.guarded(lv.tags))


def reconcile(node: Node, volume: Volume, lv: str = '') -> None:
    """Open or close the upper device of a volume by its attachments.

    The handle exists on this node. An error is logged, not raised: the copy of
    the volume goes on, which may remove the cause.

    :param lv: as for :func:`open`
    """
    try:
        if not needs_upper_device(volume):
            return
        wanted = is_wanted(node, volume)
        if wanted:
            open(node, volume, lv)
        elif wanted is False and not (
                volume.encryption
                and node.runner.is_running(volume.handle_id)):
            close_if_idle(node, volume.handle_id)
    except Exception as exc:  # also a missing command or a full /dev
        events.failed(events.NOT_OPEN, exc, volume=volume.id)


def sweep(node: Node, present: survey.Survey,
          links: Mapping[str, str]) -> None:
    """Remove the links of volumes without a handle on this node.

    :param present: a survey of this node from before the call
    :param links: the targets of the links on this node, by volume
    """
    for volume_id in links:
        if not present.handle(volume_id):
            nodes.attempt(
                node, volume_id,
                functools.partial(_remove_link, node, volume_id),
                functools.partial(_log_kept_link, volume_id))


def _remove_link(node: Node, volume_id: str) -> None:
    if not node.handles.survey().handle(volume_id):
        node.handles.remove_link(volume_id)


def _log_kept_link(volume_id: str, error: Exception) -> None:
    LOG.warning('The path of volume %(volume)s, which is not on this node, '
                'could not be removed, will retry: %(error)s',
                {'volume': volume_id, 'error': error},
                exc_info=exceptions.is_unexpected(error))


def ensure_open(node: Node, volume: Volume, lv: str) -> None:
    """Create the crypt device of a volume, or extend it to the full length.

    An existing crypt device is checked, and noted for the next boot. The
    handle of the volume exists on this node.

    :param volume: its current row
    :param lv: the LV of the volume on this node; '' if it is remotely attached
    :raises KeyUnavailable: if the key manager does not answer
    :raises OpenedOtherwise: if the crypt device does not match the row
    :raises LocalCloneError: if the volume can't be opened
    """
    volume_id = volume.handle_id
    present = node.handles.survey()
    recorded = volume.encryption
    key = recorded.key if recorded else ''
    # A volume in a deferred move is remotely attached until its handle is
    # reloaded.
    foreign = present.is_handle_foreign(volume_id)
    found = None if foreign else present.lvs.get(lv)
    if volume.is_authenticated:
        _check_may_open(node, volume)
    expected = pinning.recorded_in_row(recorded)
    if not present.crypt(volume_id):
        boot_notes.unmark_fresh(node, present, lv)
        activate.open_volume(
            node.crypt, node.keys, volume_id, expected,
            keep_header=not _is_at_rest(node, volume),
            discards=takes_discards(node, volume),
            luks=names.facts(found.tags).get('luks', '') if found else '',
            proven=lambda: boot_notes.note_opened(node, found, volume_id, key))
        return
    # A boot may have opened it without the row, so compare it with the row.
    pinning.check_opened(volume_id, expected.pin, expected.becoming,
                         present.crypt(volume_id))
    if found:  # the volume may have moved here since it was opened
        boot_notes.note_opened(node, found, volume_id, key)
    elif foreign and volume_id not in node.crypt.remotes():
        boot_notes.note_opened(node, None, volume_id, key)
    boot_notes.unmark_fresh(node, present, lv)
    if is_short(present, volume_id):
        activate.grow(node.crypt, node.keys, volume_id, expected)


def _check_may_open(node: Node, volume: Volume) -> None:
    """Check by the rows that this node may open an authenticated volume.

    Opening an authenticated volume writes to it, so only a single node may
    have it open: its home, or the destination of its move. Devices are not
    checked.

    :raises MovesCold: if this node may not open the volume
    """
    move = node.moves.move_of(volume.id)
    starting = move is not None and move.phase is state.Phase.STARTING
    if starting or node.host not in (
            volume.home,
            move.destination if move else None):
        raise encryption_exceptions.MovesCold(
            volume=volume.id, host=node.host, reason='it is authenticated, '
            'and only its home may have it open.')


def check_readable(node: Node, snapshot: rows.Snapshot,
                   connector: objects.Connector, local: bool) -> None:
    """Check that an encrypted snapshot can be read by the requesting node.

    :param snapshot: an encrypted snapshot of this node
    :param connector: of the requesting node
    :param local: whether the requesting node is this node
    :raises Refused: if the snapshot is authenticated
    :raises NotThere: if the requesting node is another node
    """
    where = {'volume': snapshot.volume_id, 'host': connector.get('host')}
    if snapshot.is_authenticated:
        raise exceptions.Refused(
            **where, reason='an authenticated snapshot can\'t be read: '
            'opening it would write to it. Create a volume from the snapshot.')
    if not local:
        raise encryption_exceptions.NotThere(
            **where, reason='an encrypted snapshot can only be read on its '
            'own node, %s.' % node.host)


def open_snapshot(node: Node, snapshot: rows.Snapshot) -> None:
    """Create the read-only crypt device of a snapshot on this node.

    :raises LocalCloneError: as for :func:`.activate.open_volume`
    """
    activate.open_volume(
        node.crypt, node.keys, snapshot.id,
        pinning.recorded_in_row(snapshot.encryption), keep_header=True,
        readonly=True)


def _is_at_rest(node: Node, volume: Volume) -> bool:
    """Return whether this node is the home of a volume that does not move.

    Remote attachments are not considered.
    """
    return volume.home == node.host and node.moves.move_of(volume.id) is None


def repair_header(node: Node, volume: Volume) -> None:
    """Repair the copies of a header before a move of the volume.

    During the move two nodes have the header open, and neither may write it.
    Nothing is done unless the driver encrypts the volume.

    :raises HeaderDamaged: if the header can't be read; the volume does not
        move
    """
    if volume.encryption and _is_at_rest(node, volume):
        node.handles.ensure_handle_on_lv(
            volume.id, volume.name, volume.backing_bytes())
        node.crypt.header(volume.handle_id, repair=True)


def crypt_differs(present: survey.Survey, volume: Volume,
                  wanted: bool | None) -> bool:
    """Return whether a crypt device, or its note, is not as it must be.

    :param present: the survey of this node
    :param wanted: whether the volume must be open; see :func:`is_wanted`. With
        None nothing differs
    """
    volume_id = volume.handle_id
    lv = present.lvs.get(volume.name)
    if wanted:
        return bool(not present.crypt(volume_id)
                    or is_short(present, volume_id)
                    or lv and names.OPENED not in lv.tags)
    return wanted is False and bool(
        present.upper_devices(volume_id) or lv and names.OPENED in lv.tags)


# -- pausing a re-encryption for other operations


def stop_reencryption(node: Node, volume_id: str) -> None:
    """Stop the process that re-encrypts a volume on this node, if it runs.

    Another process can continue the re-encryption later.

    :raises StillReencrypting: if it does not stop in time
    """
    if node.runner.is_running(volume_id) and not node.runner.stop(volume_id):
        raise encryption_exceptions.StillReencrypting(
            volume=volume_id, host=node.host,
            seconds=crypt_interfaces.STOPPING)


def end_interrupted_reencryption(node: Node, volume: Volume) -> None:
    """Stop a re-encryption, and recover it if it was interrupted.

    Afterwards the header describes the data, unless the header can't be read.
    Call this only on the home, because a recovery writes to the header. The
    caller holds the volume's lock, and the handle exists on this node.

    :raises StillReencrypting: if the re-encryption does not stop in time
    :raises Interrupted: if it was killed, and a guest has the volume open
    :raises LocalCloneError: if it can't be recovered
    """
    recorded = volume.encryption
    if recorded is None:
        return
    volume_id = volume.handle_id
    stop_reencryption(node, volume_id)
    try:
        header = node.crypt.header(volume_id)
    except encryption_exceptions.HeaderDamaged as exc:
        # An open of the volume reports this error. If the header can be read
        # later, the recovery happens then.
        LOG.warning('It is unknown whether volume %(volume)s was being '
                    're-encrypted: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return
    if is_interrupted(node, volume_id, header):
        recover(node, volume)


@contextlib.contextmanager
def reencryption_paused(node: Node, volume_id: str) -> Iterator[None]:
    """Start a re-encryption again at the end of the context, if it runs now.

    The caller may pause it within the context. Without this it would wait for
    the next sweep after each snapshot, and owners take snapshots at any rate.
    The caller holds the volume's lock, and neither moves nor closes it.
    """
    volume = node.volumes.volume(volume_id)
    ran = bool(volume and volume.encryption
               and node.runner.is_running(volume_id))
    try:
        yield
    finally:
        if volume and ran:
            _resume_reencryption(node, volume)


def _resume_reencryption(node: Node, volume: Volume) -> None:
    """Start a re-encryption again, unless an operator has paused it.

    An error is only logged: the next sweep tries again.
    """
    volume_id = volume.id
    try:
        lv = node.lvm.lvs().get(volume.name)
        if (lv is None or names.PAUSED in lv.tags
                or node.runner.is_running(volume_id)):
            return
        header = node.crypt.header(volume_id)
        if header.reencryption and not is_interrupted(
                node, volume_id, header):
            node.runner.start(volume_id)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.warning('The re-encryption of volume %(volume)s continues only '
                    'after the next check of this node: %(error)s',
                    {'volume': volume_id, 'error': exc})


def is_interrupted(node: Node, volume_id: str, header: luks_header.Header
                   ) -> bool:
    """Return whether a re-encryption needs :func:`recover`.

    Its process was killed, or only the last write to the header is missing.
    The caller knows that no re-encryption runs now. In most cases the header
    does not show a killed process, but the devices left by cryptsetup do.
    """
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    crypt = present.crypt(volume_id)
    found = header.reencryption
    return bool(found and (found.interrupted or found.complete)
                or crypt and crypt.target != 'crypt')


def recover(node: Node, volume: Volume) -> None:
    """Recover an interrupted re-encryption by opening the volume.

    If only its last write to the header is missing, the header is written,
    whether the volume is open or not. Otherwise the crypt device is closed
    first.

    :raises Interrupted: if the volume is in use: recovery can't happen below a
        running guest
    :raises ForeignHeader: if the header differs from the pin in the row;
        nothing is closed or written then
    """
    volume_id, recorded = volume.handle_id, volume.encryption
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    header = node.crypt.header(volume_id)
    pinning.check(volume_id, header, pinning.recorded_in_row(recorded))
    if header.reencryption and header.reencryption.complete:
        activate.end_reencryption(
            node.crypt, node.keys, volume_id, header,
            pinning.recorded_in_row(recorded))
        if not is_interrupted(node, volume_id, node.crypt.header(volume_id)):
            return  # only the last write was missing
    if present.crypt(volume_id):
        if present.users(volume_id):
            raise encryption_exceptions.Interrupted(
                volume=volume_id, host=node.host, count=1,
                device=names.crypt(volume_id))
        node.handles.close_upper(volume_id)
    activate.open_volume(
        node.crypt, node.keys, volume_id, pinning.recorded_in_row(recorded),
        discards=takes_discards(node, volume))
    LOG.info('Volume %s was recovered after its re-encryption was '
             'interrupted.',
             volume_id)


def check_not_reencrypted(node: Node, volume: Volume, what: str) -> None:
    """Refuse an operation during a running or paused re-encryption.

    :param what: a participle for the error, such as "extended"
    :raises Reencrypting: if the volume has a re-encryption
    """
    volume_id = volume.handle_id
    handle = names.handle(volume_id)
    if volume.encryption and handle in node.handles.devices([handle]):
        # A damaged header does not prevent an extend.
        with contextlib.suppress(encryption_exceptions.HeaderDamaged):
            header = node.crypt.header(volume_id)
            if header.reencryption or is_interrupted(node, volume_id, header):
                raise encryption_exceptions.Reencrypting(
                    volume=volume.id, what=what)


def takes_discards(node: Node, volume: Volume) -> bool:
    """Return whether discards of the guest reach the disk.

    The volume type decides. Discards never reach the disk of an authenticated
    volume, nor by an invalid volume type.
    """
    if volume.is_authenticated:
        return False
    with contextlib.suppress(volume_types.InvalidType):
        encryption = node.volumes.wanted_encryption(volume)
        return bool(encryption and encryption.discards)
    return False


def is_short(present: survey.Survey, volume_id: str) -> bool:
    """Return whether a crypt device is shorter than its handle.

    The result is False during a re-encryption, because cryptsetup has other
    devices in between. It is also False for authenticated volumes, because
    these never grow.
    """
    handle, crypt = present.handle(volume_id), present.crypt(volume_id)
    header = volume_types.HEADER_BYTES // state.SECTOR
    return bool(handle and crypt and crypt.target == 'crypt'
                and not present.integrity(volume_id)
                and crypt.sectors + header < handle.sectors)
