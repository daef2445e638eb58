# SPDX-License-Identifier: Apache-2.0
"""Upper devices: crypt devices and header guards; re-encryption beside them.

A volume that Nova encrypts has a header guard (:mod:`.dm_tables`) and a link
to it. Cinder writes the header, so Cinder gets the handle. A volume that the
driver encrypts has a crypt device. Any other volume has no upper device.

The upper device is created before its path is returned. It stays while an
attachment names this node. It is closed when the volume is unused, before
another node may open the volume. :func:`users` tells whether a volume is
unused, and :func:`ensure_closed` is the fence.

Only a node that exports or attaches the decrypted volume requests its key.

A header is not written, and a volume is not moved, copied or closed, during a
re-encryption. The re-encryption is paused first and continues by itself: see
:mod:`.reencrypt`.
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
from cinder_localclone.core.formats import lvm_reports
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
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate

LOG = logging.getLogger(__name__)

#: Seconds after which an attachment that still exists counts again, although
#: its end was announced.
ENDING = 60


def path(volume: objects.Volume) -> str:
    """Return the path of a volume for its user, the same on every node."""
    volume_id = rows.handle_id(volume)
    if rows.recorded(volume):
        return names.crypt_path(volume_id)
    return names.link(volume_id) if rows.is_encrypted_by_nova(
        volume) else names.handle_path(volume_id)


def has_one(volume: objects.Volume) -> bool:
    """Return whether a volume has an upper device where it is used."""
    return bool(rows.is_encrypted_by_nova(volume) or rows.recorded(volume))


def exported_path(node: Node, volume: objects.Volume) -> str:
    """Return the path to export to other nodes.

    The volume's handle exists on this node. If the volume has an upper device,
    a second device above the handle is created for the export: the kernel does
    not open the handle for both.
    """
    volume_id = rows.handle_id(volume)
    if not has_one(volume):
        return names.handle_path(volume_id)
    node.handles.ensure_export_device(volume_id)
    return names.export_device_path(volume_id)


def users(node: Node, volume_id: str) -> int:
    """Return the number of users of a volume on this node.

    All iSCSI initiators of an export count as one user. The destination of a
    move is no user, because it reads the source device. An upper device that
    is not open is no user.
    """
    return _users(node, _devices_of(node, volume_id), volume_id)


def _devices_of(node: Node, volume_id: str) -> survey.Survey:
    """A survey of one volume, without LVM."""
    return survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))


def _users(node: Node, present: survey.Survey, volume_id: str) -> int:
    count = present.users(volume_id)
    return count - bool(count and node.exports.opens_in_vain(volume_id))


def ensure_closed(node: Node, volume_id: str) -> None:
    """Close the upper device of a volume that is unused on this node.

    A re-encryption is paused first, so it does not count as a user. The path
    of the volume leads nowhere afterwards. If the caller fails, the next sweep
    opens the volume again for its attachments.

    :raises SourceBusy: if the volume is used; its upper device is unchanged
    """
    present = _devices_of(node, volume_id)
    if present.crypt(volume_id):
        stop_reencryption(node, volume_id)
        present = _devices_of(node, volume_id)
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


def is_used_here(node: Node, volume: objects.Volume) -> bool:
    """Return whether an attachment says that this node uses a volume.

    An attachment does not count for :data:`ENDING` seconds after its end.
    """
    since = time.monotonic() - ENDING
    return any(each.connector and node.is_at(each.connector, node.host)
               and node.detached.get(each.id, since) <= since
               for each in volume.volume_attachment)


def note_detached(node: Node, volume: objects.Volume) -> None:
    """Note that the attachments of a volume on this node are ending."""
    now = time.monotonic()
    for each in [each for each, when in list(node.detached.items())
                 if when < now - ENDING]:
        node.detached.pop(each, None)
    node.detached.update({
        each.id: now for each in volume.volume_attachment
        if each.connector and node.is_at(each.connector, node.host)})


def open(node: Node, volume: objects.Volume, lv: str = '') -> None:
    """Open a volume for its user; its handle exists.

    :param volume: its current row
    :param lv: the LV of the volume on this node; '' if it is remotely attached
    :raises HeaderDamaged: if the volume does not begin with the header that
        Nova reads. Nova would format such a volume, so it does not get the
        path
    :raises SourceBusy: if the header guard is in use, and Cinder has to write
        the header
    :raises LocalCloneError: if the header can't be read, or the key is missing
    """
    if rows.recorded(volume):
        ensure_open(node, volume, lv)
        return
    if not rows.is_encrypted_by_nova(volume):
        return
    volume_id = rows.handle_id(volume)
    if (volume.status in statuses.USED_BY_NOVA
            or is_used_here(node, volume)):
        open_for_guest(node, volume_id, lv)
    else:
        _open_for_cinder(node, volume)


def _open_for_cinder(node: Node, volume: objects.Volume) -> None:
    """Open a volume that Nova encrypts, for a copy by Cinder.

    Remove the header guard if Cinder writes the volume: the guard would
    discard writes to the header.
    """
    volume_id = rows.handle_id(volume)
    if node.handles.survey().guard(volume_id):
        if volume.status in statuses.WRITTEN_BY_CINDER:
            ensure_unopened(node, volume_id)
        elif not close_if_idle(node, volume_id):
            return  # a header can be read through it
    node.handles.ensure_link(volume_id, names.handle(volume_id))


def open_for_guest(node: Node, volume_id: str, lv: str = '') -> None:
    """Open a volume that Nova encrypts, for a guest."""
    present = node.handles.survey()
    header = present.header_guarded(volume_id)
    if not header:
        # Without a guard of the handle's full length, read the length of the
        # header from the volume.
        header = node.handles.header_sectors(volume_id)
    found = present.lvs.get(lv)
    if found and names.guarded(found.tags) != header:
        node.lvm.mark(lv, names.guard_tag(header))
    if node.handles.ensure_guard(volume_id, header):
        node.handles.read_guarded(volume_id, header)
    node.handles.ensure_link(volume_id, names.guard(volume_id))


def grow(node: Node, volume: objects.Volume) -> None:
    """Extend the upper device of a volume to the new length of its handle.

    A volume without an upper device is unchanged.

    :param volume: its row
    """
    volume_id = volume.id
    present = _devices_of(node, volume_id)
    guard = present.guard(volume_id)
    if guard and not present.header_guarded(volume_id):
        node.handles.ensure_guard(volume_id, guard.segments[0].sectors)
    recorded = rows.recorded(volume)
    if recorded and is_short(present, volume_id):
        activate.grow(node.crypt, node.keys, volume_id,
                      pinning.of_row(recorded))


def close_if_idle(node: Node, volume_id: str) -> bool:
    """Close the upper device of a volume for good, unless it is in use.

    A running re-encryption is paused first. It opens the volume itself when it
    continues. A boot does not open the volume again.

    :returns: whether the upper device is gone
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
    forget(node, present, volume_id)
    return True


def ensure_unopened(node: Node, volume_id: str) -> None:
    """Close the upper device of a volume for good, or raise an error.

    The caller waits for the last user to close the volume.

    :raises SourceBusy: if the upper device is in use
    """
    if not close_if_idle(node, volume_id):
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=users(node, volume_id),
            device=names.guard(volume_id))


def is_wanted(node: Node, volume: objects.Volume) -> bool | None:
    """Return whether a volume needs its upper device on this node.

    :returns: None if the attachments do not say: an attach is beginning, or
        Cinder itself has the volume open
    """
    if is_used_here(node, volume):
        return True
    if (volume.status not in statuses.UNUSED_WITHOUT_ATTACHMENT
            or rows.is_migrated_by_cinder(volume)
            or any(not each.connector
                   for each in volume.volume_attachment)):
        return None
    return False


def differs(node: Node, volume: objects.Volume, present: survey.Survey,
            links: Mapping[str, str]) -> bool:
    """Return whether the upper device differs from the attachments.

    :param present: the survey of this node
    :param links: the targets of the links on this node, by volume
    """
    if rows.recorded(volume):
        return crypt_differs(present, volume, is_wanted(node, volume))
    if not rows.is_encrypted_by_nova(volume):
        return False
    volume_id = rows.handle_id(volume)
    wanted = is_wanted(node, volume)
    if wanted:
        return not present.header_guarded(
            volume_id) or links.get(volume_id) != names.guard(volume_id)
    lv = present.lvs.get(volume.name)
    return wanted is False and bool(
        volume_id in links or present.upper_devices(volume_id)
        or lv and names.guarded(lv.tags))


def reconcile(node: Node, volume: objects.Volume, lv: str = '') -> None:
    """Open or close the upper device of a volume by its attachments.

    The handle exists on this node. An error is logged and not raised: the copy
    of the volume must continue, because it may remove the cause.

    :param lv: as for :func:`open`
    """
    try:
        if not has_one(volume):
            return
        wanted = is_wanted(node, volume)
        if wanted:
            open(node, volume, lv)
        elif wanted is False and not (
                rows.recorded(volume)
                and node.runner.is_running(rows.handle_id(volume))):
            close_if_idle(node, rows.handle_id(volume))
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
                functools.partial(_tell_of_link, volume_id))


def _remove_link(node: Node, volume_id: str) -> None:
    if not node.handles.survey().handle(volume_id):
        node.handles.remove_link(volume_id)


def _tell_of_link(volume_id: str, error: Exception) -> None:
    LOG.warning('The path of volume %(volume)s, which is not on this node, '
                'could not be removed, will retry: %(error)s',
                {'volume': volume_id, 'error': error},
                exc_info=exceptions.is_unexpected(error))


def ensure_open(node: Node, volume: objects.Volume, lv: str) -> None:
    """Create the crypt device of a volume, or extend it to the full length.

    The handle of the volume exists on this node.

    :param volume: its current row
    :param lv: the LV of the volume on this node; '' if it is remotely attached
    :raises KeyUnavailable: if the key manager does not answer
    :raises OpenedOtherwise: if the crypt device does not match the row
    :raises LocalCloneError: if the volume can't be opened
    """
    volume_id = rows.handle_id(volume)
    present = node.handles.survey()
    recorded = rows.recorded(volume)
    key = recorded.key if recorded else ''
    # A volume in a deferred move is remotely attached until its handle is
    # reloaded.
    foreign = present.is_handle_foreign(volume_id)
    found = None if foreign else present.lvs.get(lv)
    if rows.is_authenticated(volume):
        _check_alone(node, volume)
    expected = pinning.of_row(recorded)
    if not present.crypt(volume_id):
        _note_used(node, present, lv)
        activate.open_volume(
            node.crypt, node.keys, volume_id, expected,
            keep_header=not _is_at_rest(node, volume),
            discards=takes_discards(node, volume),
            luks=names.facts(found.tags).get('luks', '') if found else '',
            proven=lambda: note_opened(node, found, volume_id, key))
        return
    # A boot has opened it without the row, or failed to close it.
    pinning.check_opened(volume_id, expected.pin, expected.becoming,
                         present.crypt(volume_id))
    if found:  # it may have moved here since
        note_opened(node, found, volume_id, key)
    elif foreign and volume_id not in node.crypt.remotes():
        note_opened(node, None, volume_id, key)
    _note_used(node, present, lv)
    if is_short(present, volume_id):
        activate.grow(node.crypt, node.keys, volume_id, expected)


def _check_alone(node: Node, volume: objects.Volume) -> None:
    """Check that this node alone may open an authenticated volume.

    Opening an authenticated volume writes to it, so only its home opens it, or
    the destination of its move.

    :raises MovesCold: if this node may not open the volume
    """
    move = node.moves.move_of(volume.id)
    starting = move is not None and move.phase is state.Phase.STARTING
    if starting or node.host not in (
            names.service_host(volume.host),
            move.destination if move else None):
        raise encryption_exceptions.MovesCold(
            volume=volume.id, host=node.host, reason='it is authenticated, '
            'and only its home may have it open.')


def check_readable(node: Node, snapshot: rows.Snapshot,
                   connector: objects.Connector, local: bool) -> None:
    """Check that an encrypted snapshot can be read by the requesting node.

    :param local: whether the requesting node is this node
    :raises Refused: if the snapshot can't be read there
    """
    where = {'volume': snapshot.volume_id, 'host': connector.get('host')}
    if rows.is_authenticated(snapshot):
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
        pinning.of_row(rows.recorded(snapshot)), keep_header=True,
        readonly=True)


def note_opened(node: Node, lv: lvm_reports.LogicalVolume | None,
                volume_id: str, key: str, luks: str = '') -> None:
    """Note for the boot service that a volume was open here.

    A boot opens the volume with the noted secret if its header has the noted
    UUID.

    :param lv: the LV of the volume on this node; None if it is remotely
        attached
    :param luks: as for :func:`note_key`; ignored without an LV
    """
    if lv is None:
        node.crypt.note_remote(volume_id, node.crypt.uuid(volume_id), key)
        return
    note_key(node, lv, volume_id, key, luks)
    if names.OPENED not in lv.tags:
        node.crypt.mark(lv.name, names.OPENED)
        node.crypt.forget_remote(volume_id)  # it may have moved here since


def note_moved(node: Node, volume_id: str, lv: str) -> None:
    """Copy the note of a remotely attached volume to its LV on this node.

    The deferred move of the volume has reached this node. The first note stays
    until :func:`correct_note`.
    """
    noted = node.crypt.remotes().get(volume_id)
    if noted:
        luks, key = noted
        node.crypt.note(lv, key=key, luks=luks)
        node.crypt.mark(lv, names.OPENED)


def correct_note(node: Node, volume: objects.Volume, wanted: bool | None,
                 luks: str) -> bool:
    """Forget the note of a remote attachment after the deferred move.

    The LV of the volume has the same note, or the volume is unused.

    :param wanted: as for :func:`crypt_differs`
    :param luks: the noted UUID of the header
    :returns: whether the note was outdated
    """
    present = node.handles.survey()
    lv = present.lvs.get(volume.name)
    if (lv is None or not present.handle(volume.id)
            or present.is_handle_foreign(volume.id)):
        return False
    idle = wanted is False and not present.crypt(volume.id)
    recorded = rows.recorded(volume)
    if not idle and recorded and names.OPENED not in lv.tags:
        # The key may have been changed since the note.
        note_opened(node, lv, volume.id, recorded.key, luks)
    else:
        node.crypt.forget_remote(volume.id)
    return True


def note_key(node: Node, lv: lvm_reports.LogicalVolume, volume_id: str,
             key: str, luks: str = '') -> None:
    """Note the secret of a volume in the tags of its LV.

    Services without access to the row, such as the boot service, read it
    there.

    :param luks: the UUID of the header; '' to read it from the header
    """
    name_secret(node, lv, key, luks=names.facts(lv.tags).get('luks')
                or luks or node.crypt.uuid(volume_id))


def name_secret(node: Node, lv: lvm_reports.LogicalVolume, key: str,
                luks: str | None = None) -> None:
    """Set the tags of an LV to exactly one secret.

    :param key: the reference of the secret
    :param luks: the UUID of the header; None leaves its tag unchanged
    """
    facts = {'key': key} if luks is None else {'key': key, 'luks': luks}
    wanted = names.tags(**facts)
    named = names.with_fact(lv.tags, 'key') | (
        set() if luks is None else names.with_fact(lv.tags, 'luks'))
    outdated = sorted(named.difference(wanted))
    if outdated or not lv.tags >= set(wanted):
        node.crypt.note(lv.name, outdated, **facts)


def note_used(node: Node, volume: objects.Volume) -> None:
    """Note that a guest on another node may write to a new volume.

    :param volume: its row; its home is this node
    """
    if rows.recorded(volume):
        _note_used(node, node.handles.survey(), volume.name)


def _note_used(node: Node, present: survey.Survey, lv: str) -> None:
    found = present.lvs.get(lv)
    if found and names.FRESH in found.tags:
        node.crypt.unmark(lv, names.FRESH)


def _is_at_rest(node: Node, volume: objects.Volume) -> bool:
    """Return whether a volume is at rest on this node, its home."""
    return (rows.is_home(volume, node.host)
            and node.moves.move_of(volume.id) is None)


def repair_header(node: Node, volume: objects.Volume) -> None:
    """Repair both copies of a header before a move of the volume.

    During the move two nodes have the header open, and neither may write it.

    :raises HeaderDamaged: if the header can't be read; the volume does not
        move
    """
    if rows.recorded(volume) and _is_at_rest(node, volume):
        node.handles.ensure_handle_on_lv(
            volume.id, volume.name, rows.backing_bytes(volume))
        node.crypt.header(rows.handle_id(volume), repair=True)


def forget(node: Node, present: survey.Survey, volume_id: str
           ) -> None:
    """Remove the notes by which a boot opens a volume on this node."""
    node.crypt.forget_remote(volume_id)  # may remain after a deferred move
    node.crypt.forget_sealed(volume_id)
    # Last: a marked LV is swept again after an interruption.
    for lv in present.lvs.values():
        if (names.OPENED in lv.tags
                and names.facts(lv.tags).get('volume') == volume_id):
            node.crypt.unmark(lv.name, names.OPENED)


def forget_left(node: Node, volume_id: str, lv: str) -> None:
    """Remove the notes by which a boot opens a volume that has moved away.

    The sealed key goes even without the mark, because the boot service may
    have sealed it again after an earlier call.
    """
    forget_unless_remote(node, volume_id)
    found = node.lvm.lvs().get(lv)
    if found and names.OPENED in found.tags:
        node.crypt.unmark(lv, names.OPENED)


def forget_unless_remote(node: Node, volume_id: str) -> None:
    """Remove the sealed key of a volume without a remote attachment here.

    A boot opens a remotely attached volume with it, even if its handle is
    missing.
    """
    if volume_id not in node.crypt.remotes():
        node.crypt.forget_sealed(volume_id)


def crypt_differs(present: survey.Survey, volume: objects.Volume,
                  wanted: bool | None) -> bool:
    """Return whether the crypt device differs from the wanted state.

    :param present: the survey of this node
    :param wanted: whether the volume must be open; None for either
    """
    volume_id = rows.handle_id(volume)
    lv = present.lvs.get(volume.name)
    if wanted:
        return bool(not present.crypt(volume_id)
                    or is_short(present, volume_id)
                    or lv and names.OPENED not in lv.tags)
    return wanted is False and bool(
        present.upper_devices(volume_id) or lv and names.OPENED in lv.tags)


# -- pausing a re-encryption for other operations


def stop_reencryption(node: Node, volume_id: str) -> None:
    """Stop the re-encryption of a volume on this node.

    :raises StillReencrypting: if it does not stop in time
    """
    if node.runner.is_running(volume_id) and not node.runner.stop(volume_id):
        raise encryption_exceptions.StillReencrypting(
            volume=volume_id, host=node.host,
            seconds=crypt_interfaces.STOPPING)


def end_interrupted_reencryption(node: Node, volume: objects.Volume) -> None:
    """Stop a re-encryption, and recover it if it was interrupted.

    Afterwards the header describes the data. Recovery happens only on the
    home, because it writes to the header. The caller holds the volume's lock,
    and the handle exists on this node.

    :raises StillReencrypting: if the re-encryption does not stop in time
    :raises Interrupted: if it was killed, and a guest has the volume open
    :raises LocalCloneError: if it can't be recovered
    """
    recorded = rows.recorded(volume)
    if recorded is None:
        return
    volume_id = rows.handle_id(volume)
    stop_reencryption(node, volume_id)
    try:
        header = node.crypt.header(volume_id)
    except encryption_exceptions.HeaderDamaged as exc:
        # Opening the volume reports this error. The header may be readable
        # later, and recovery happens then.
        LOG.warning('It is unknown whether volume %(volume)s was being '
                    're-encrypted: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return
    if is_interrupted(node, volume_id, header):
        recover(node, volume)


@contextlib.contextmanager
def reencryption_paused(node: Node, volume_id: str) -> Iterator[None]:
    """Continue a re-encryption after a pause within the context.

    Without this, each snapshot would delay it until the next sweep, and owners
    can take snapshots at any rate. The caller holds the volume's lock, and
    neither moves nor closes the volume within the context.
    """
    volume = node.volumes.volume(volume_id)
    ran = bool(volume and rows.recorded(volume)
               and node.runner.is_running(volume_id))
    try:
        yield
    finally:
        if volume and ran:
            _go_on(node, volume)


def _go_on(node: Node, volume: objects.Volume) -> None:
    """Start the re-encryption again, unless an operator has paused it."""
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
    """Return whether a re-encryption was interrupted.

    It does not run now. In most cases only devices left by cryptsetup show it.
    """
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    crypt = present.crypt(volume_id)
    found = header.reencryption
    return bool(found and (found.interrupted or found.complete)
                or crypt and crypt.target != 'crypt')


def recover(node: Node, volume: objects.Volume) -> None:
    """Recover an interrupted re-encryption by opening the volume.

    If only its last step is missing, write it, whether the volume is open or
    not.

    :raises Interrupted: if the volume is in use: recovery can't happen below a
        running guest
    :raises ForeignHeader: if the header differs from the pin in the row;
        nothing is closed or written then
    """
    volume_id, recorded = rows.handle_id(volume), rows.recorded(volume)
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    header = node.crypt.header(volume_id)
    pinning.check(volume_id, header, pinning.of_row(recorded))
    if header.reencryption and header.reencryption.complete:
        activate.end_reencryption(
            node.crypt, node.keys, volume_id, header,
            pinning.of_row(recorded))
        if not is_interrupted(node, volume_id, node.crypt.header(volume_id)):
            return  # only the header was incomplete
    if present.crypt(volume_id):
        if present.users(volume_id):
            raise encryption_exceptions.Interrupted(
                volume=volume_id, host=node.host, count=1,
                device=names.crypt(volume_id))
        node.handles.close_upper(volume_id)
    activate.open_volume(
        node.crypt, node.keys, volume_id, pinning.of_row(recorded),
        discards=takes_discards(node, volume))
    LOG.info('Volume %s was recovered after its re-encryption was '
             'interrupted.',
             volume_id)


def check_not_reencrypted(node: Node, volume: objects.Volume, what: str
                          ) -> None:
    """Refuse an operation during a running or paused re-encryption.

    :param what: a participle for the error, such as "extended"
    :raises Reencrypting: if the volume has a re-encryption
    """
    volume_id = rows.handle_id(volume)
    handle = names.handle(volume_id)
    if rows.recorded(volume) and handle in node.handles.devices([handle]):
        # A damaged header does not prevent an extend.
        with contextlib.suppress(encryption_exceptions.HeaderDamaged):
            header = node.crypt.header(volume_id)
            if header.reencryption or is_interrupted(node, volume_id, header):
                raise encryption_exceptions.Reencrypting(
                    volume=volume.id, what=what)


def takes_discards(node: Node, volume: objects.Volume) -> bool:
    """Return whether discards of the guest reach the disk.

    They do not if the properties of the volume type have become invalid.
    """
    if rows.is_authenticated(volume):
        return False
    with contextlib.suppress(volume_types.InvalidType):
        encryption = node.volumes.wanted_encryption(volume)
        return bool(encryption and encryption.discards)
    return False


def is_short(present: survey.Survey, volume_id: str) -> bool:
    """Return whether a crypt device is shorter than its handle.

    False during a re-encryption, when cryptsetup has other devices in between,
    and for authenticated volumes, which never grow.
    """
    handle, crypt = present.handle(volume_id), present.crypt(volume_id)
    header = volume_types.HEADER_BYTES // state.SECTOR
    return bool(handle and crypt and crypt.target == 'crypt'
                and not present.integrity(volume_id)
                and crypt.sectors + header < handle.sectors)


def outdate_backups_of(node: Node, lv: str) -> None:
    """Mark the header backups of a volume as outdated on its future LV.

    The mark is set even if no backup directory is configured: an old directory
    may be configured again.
    """
    node.crypt.mark(lv, names.OUTDATED)
