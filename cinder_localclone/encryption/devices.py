# SPDX-License-Identifier: Apache-2.0
"""Upper devices: crypt devices and header guards; re-encryption beside them.

A volume that Nova encrypts has a header guard (:mod:`.dm_tables`) and a path
that leads to it. Cinder writes the header, so Cinder gets the handle. A volume
that the driver encrypts has a crypt device. Any other volume has no upper
device.

The upper device exists before a user gets its path, and as long as an
attachment says that the volume is used here. It is closed where the volume is
unused before another node may open it. So "the volume is unused" is
:func:`users`, and a fence is :func:`ensure_closed`.

Only the node that gives the path out decrypts the volume and asks for its key.

Nobody writes a header, nor moves, copies or closes a volume, while it is being
re-encrypted, unless that is paused before. It goes on by itself when it may
again: see :mod:`.reencrypt`.
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

#: Seconds after which an attachment that was ended, and is still there,
#: counts as one again.
ENDING = 60


def path(volume: objects.Volume) -> str:
    """Where whoever uses a volume finds it, on every node the same."""
    volume_id = rows.handle_id(volume)
    if rows.recorded(volume):
        return names.crypt_path(volume_id)
    return names.link(volume_id) if rows.is_encrypted_by_nova(
        volume) else names.handle_path(volume_id)


def has_one(volume: objects.Volume) -> bool:
    """Whether a volume has a top where it is used."""
    return bool(rows.is_encrypted_by_nova(volume) or rows.recorded(volume))


def exported_path(node: Node, volume: objects.Volume) -> str:
    """What other nodes are to be served of a volume here; it is there."""
    volume_id = rows.handle_id(volume)
    if not has_one(volume):
        return names.handle_path(volume_id)
    node.handles.ensure_export_device(volume_id)
    return names.export_device_path(volume_id)


def users(node: Node, volume_id: str) -> int:
    """How many on this node use a volume.

    All iSCSI initiators that it is served to count as one. The destination
    of a move is none of them: it reads the source device. Nor is a top that
    nobody has open.
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
    """Nothing uses a volume on this node, and its top is gone.

    A re-encryption is paused before, so that it is no such use.
    Whoever still has its path finds nothing there. What an attachment names
    is opened again by the node's look, if whatever is to be done now fails.

    :raises SourceBusy: if anything uses it; its top is left alone then
    """
    present = _devices_of(node, volume_id)
    if present.crypt(volume_id):
        stop_reencryption(node, volume_id)
        present = _devices_of(node, volume_id)
    count = _users(node, present, volume_id)
    if not count and present.upper_devices(volume_id):
        # Only now: an idle one keeps the handle open.
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
    """Whether an attachment says that this node uses a volume.

    Not one that has just been ended.
    """
    since = time.monotonic() - ENDING
    return any(each.connector and node.is_at(each.connector, node.host)
               and node.detached.get(each.id, since) <= since
               for each in volume.volume_attachment)


def note_detached(node: Node, volume: objects.Volume) -> None:
    """The attachments of a volume on this node are being ended."""
    now = time.monotonic()
    for each in [each for each, when in list(node.detached.items())
                 if when < now - ENDING]:
        node.detached.pop(each, None)
    node.detached.update({
        each.id: now for each in volume.volume_attachment
        if each.connector and node.is_at(each.connector, node.host)})


def open(node: Node, volume: objects.Volume, lv: str = '') -> None:
    """What a volume's path leads to is there; its handle is already.

    :param volume: its row, as it is now
    :param lv: the LV that the node has of it; '' if it passes it through
    :raises HeaderDamaged: if it does not begin with the header that Nova
        would look for: Nova is not asked then, which would format it
    :raises SourceBusy: if something has the guard open beyond which Cinder
        is to write
    :raises LocalCloneError: if the header can't be read, or there is no key
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
    """Cinder reads or writes all of a volume that Nova encrypts.

    What it writes to the header would not get through a guard that is left.
    """
    volume_id = rows.handle_id(volume)
    if node.handles.survey().guard(volume_id):
        if volume.status in statuses.WRITTEN_BY_CINDER:
            ensure_unopened(node, volume_id)
        elif not close_if_idle(node, volume_id):
            return  # a header can be read through it
    node.handles.ensure_link(volume_id, names.handle(volume_id))


def open_for_guest(node: Node, volume_id: str, lv: str = '') -> None:
    """The same for a volume that Nova encrypts, and is about to use."""
    present = node.handles.survey()
    header = present.header_guarded(volume_id)
    if not header:
        # One that is too short keeps what it is known to have.
        header = node.handles.header_sectors(volume_id)
    found = present.lvs.get(lv)
    if found and names.guarded(found.tags) != header:
        node.lvm.mark(lv, names.guard_tag(header))
    if node.handles.ensure_guard(volume_id, header):
        node.handles.read_guarded(volume_id, header)
    node.handles.ensure_link(volume_id, names.guard(volume_id))


def grow(node: Node, volume: objects.Volume) -> None:
    """A volume's handle is longer; so is its top, if there is one.

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
    """Close the top of a volume, for good, unless something uses that.

    A re-encryption is paused before; it opens a volume that it goes on with.

    :returns: whether there is none afterwards
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
    """The same as an error, for whoever waits for a late close.

    :raises SourceBusy: if something uses it
    """
    if not close_if_idle(node, volume_id):
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=users(node, volume_id),
            device=names.guard(volume_id))


def is_wanted(node: Node, volume: objects.Volume) -> bool | None:
    """Whether the top of a volume that has one is to be here.

    Its attachments say so.

    :returns: None if they do not: somebody is about to attach it, with an
        attachment already or not, or it is Cinder itself that has it
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
    """Whether the top of a volume here is not as its attachments say.

    :param present: what there is on this node
    :param links: where its paths lead
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
    """The top of a volume is as its attachments say; its handle is here.

    What fails is logged, and stops nothing else: least of all the copy that
    may mend it.

    :param lv: as :func:`open`
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
    except Exception as exc:  # a command that is missing, a full /dev, too
        events.failed(events.NOT_OPEN, exc, volume=volume.id)


def sweep(node: Node, present: survey.Survey,
          links: Mapping[str, str]) -> None:
    """Remove the paths of volumes that are not here.

    :param present: what there was on this node, before
    :param links: where its paths lead
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
    """A volume is decrypted here, all of it; its handle is here already.

    :param volume: its row, as it is now
    :param lv: the LV that the node has of it; '' if it passes it through
    :raises KeyUnavailable: if the key manager does not answer
    :raises OpenedOtherwise: if it is open in another way than its row allows
    :raises LocalCloneError: if it can't be opened
    """
    volume_id = rows.handle_id(volume)
    present = node.handles.survey()
    recorded = rows.recorded(volume)
    key = recorded.key if recorded else ''
    # What follows to here is passed through until its handle is swapped.
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
    # A boot has opened it without the row, or could not close it again.
    pinning.check_opened(volume_id, expected.pin, expected.becoming,
                         present.crypt(volume_id))
    if found:  # it may have followed to here
        note_opened(node, found, volume_id, key)
    elif foreign and volume_id not in node.crypt.remotes():
        note_opened(node, None, volume_id, key)
    _note_used(node, present, lv)
    if is_short(present, volume_id):
        activate.grow(node.crypt, node.keys, volume_id, expected)


def _check_alone(node: Node, volume: objects.Volume) -> None:
    """Nobody but this node may have an authenticated volume open now.

    To open one writes to it: so it is at home here, or is about to be.

    :raises MovesCold: if it is not
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
    """A snapshot that is encrypted can be given to whoever asks for it.

    :param local: whether that is on this node
    :raises Refused: if it can't
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
    """Decrypt a snapshot for a reader on this node; nothing is written.

    :raises LocalCloneError: as :func:`.activate.open_volume`
    """
    activate.open_volume(
        node.crypt, node.keys, snapshot.id,
        pinning.of_row(rows.recorded(snapshot)), keep_header=True,
        readonly=True)


def note_opened(node: Node, lv: lvm_reports.LogicalVolume | None,
                volume_id: str, key: str, luks: str = '') -> None:
    """A boot opens a volume again: by this secret, if it has this header.

    :param lv: the LV that the node has of it; None if it passes it through
    :param luks: as of :func:`note_key`; of an LV only
    """
    if lv is None:
        node.crypt.note_remote(volume_id, node.crypt.uuid(volume_id), key)
        return
    note_key(node, lv, volume_id, key, luks)
    if names.OPENED not in lv.tags:
        node.crypt.mark(lv.name, names.OPENED)
        node.crypt.forget_remote(volume_id)  # it may have followed to here


def note_moved(node: Node, volume_id: str, lv: str) -> None:
    """Note on the LV of a volume that has followed what was noted of it here.

    The note itself stays until :func:`correct_note`.
    """
    noted = node.crypt.remotes().get(volume_id)
    if noted:
        luks, key = noted
        node.crypt.note(lv, key=key, luks=luks)
        node.crypt.mark(lv, names.OPENED)


def correct_note(node: Node, volume: objects.Volume, wanted: bool | None,
                 luks: str) -> bool:
    """Forget what was noted of a volume while it was passed through here.

    It has followed since, and its LV says the same, or nobody uses it.

    :param wanted: as of :func:`differs`
    :param luks: the UUID of its header, as it was noted
    """
    present = node.handles.survey()
    lv = present.lvs.get(volume.name)
    if (lv is None or not present.handle(volume.id)
            or present.is_handle_foreign(volume.id)):
        return False
    idle = wanted is False and not present.crypt(volume.id)
    recorded = rows.recorded(volume)
    if not idle and recorded and names.OPENED not in lv.tags:
        # Its key may have been changed since it was noted.
        note_opened(node, lv, volume.id, recorded.key, luks)
    else:
        node.crypt.forget_remote(volume.id)
    return True


def note_key(node: Node, lv: lvm_reports.LogicalVolume, volume_id: str,
             key: str, luks: str = '') -> None:
    """The LV says which secret opens it, to those without the volume's row.

    :param luks: the UUID of its header; '' if that has to be asked for
    """
    name_secret(node, lv, key, luks=names.facts(lv.tags).get('luks')
                or luks or node.crypt.uuid(volume_id))


def name_secret(node: Node, lv: lvm_reports.LogicalVolume, key: str,
                luks: str | None = None) -> None:
    """The tags of a volume's LV name a secret, and no other.

    :param key: its reference
    :param luks: the UUID of the header; None: what they say of it stays
    """
    facts = {'key': key} if luks is None else {'key': key, 'luks': luks}
    wanted = names.tags(**facts)
    named = names.with_fact(lv.tags, 'key') | (
        set() if luks is None else names.with_fact(lv.tags, 'luks'))
    outdated = sorted(named.difference(wanted))
    if outdated or not lv.tags >= set(wanted):
        node.crypt.note(lv.name, outdated, **facts)


def note_used(node: Node, volume: objects.Volume) -> None:
    """Somebody may write to a volume that another node opens.

    :param volume: its row; its home is here
    """
    if rows.recorded(volume):
        _note_used(node, node.handles.survey(), volume.name)


def _note_used(node: Node, present: survey.Survey, lv: str) -> None:
    found = present.lvs.get(lv)
    if found and names.FRESH in found.tags:
        node.crypt.unmark(lv, names.FRESH)


def _is_at_rest(node: Node, volume: objects.Volume) -> bool:
    """Whether nobody else may have the header open, and it is all here."""
    return (rows.is_home(volume, node.host)
            and node.moves.move_of(volume.id) is None)


def mend(node: Node, volume: objects.Volume) -> None:
    """A header is whole before two nodes have it open: neither may mend it.

    :raises HeaderDamaged: if it can't be read; nothing moves then
    """
    if rows.recorded(volume) and _is_at_rest(node, volume):
        node.handles.ensure_handle_on_lv(
            volume.id, volume.name, rows.backing_bytes(volume))
        node.crypt.header(rows.handle_id(volume), mend=True)


def forget(node: Node, present: survey.Survey, volume_id: str
           ) -> None:
    """A boot does not open a volume again."""
    node.crypt.forget_remote(volume_id)  # also where it has followed to here
    node.crypt.forget_sealed(volume_id)
    # Last: what is marked is looked at again.
    for lv in present.lvs.values():
        if (names.OPENED in lv.tags
                and names.facts(lv.tags).get('volume') == volume_id):
            node.crypt.unmark(lv.name, names.OPENED)


def forget_left(node: Node, volume_id: str, lv: str) -> None:
    """A boot does not open what a volume has left, if it would.

    The key goes whatever the mark says: the boot may have kept it after this
    was done before.
    """
    forget_unless_remote(node, volume_id)
    found = node.lvm.lvs().get(lv)
    if found and names.OPENED in found.tags:
        node.crypt.unmark(lv, names.OPENED)


def forget_unless_remote(node: Node, volume_id: str) -> None:
    """The key that is kept goes, if the volume is not passed through here.

    By that key a boot opens it, even if the boot has made no handle yet.
    """
    if volume_id not in node.crypt.remotes():
        node.crypt.forget_sealed(volume_id)


def crypt_differs(present: survey.Survey, volume: objects.Volume,
                  wanted: bool | None) -> bool:
    """Whether a volume is not open as it should be.

    :param present: what there is on this node
    :param wanted: whether it is to be open; None: as it is
    """
    volume_id = rows.handle_id(volume)
    lv = present.lvs.get(volume.name)
    if wanted:
        return bool(not present.crypt(volume_id)
                    or is_short(present, volume_id)
                    or lv and names.OPENED not in lv.tags)
    return wanted is False and bool(
        present.upper_devices(volume_id) or lv and names.OPENED in lv.tags)


# -- re-encryption, as whatever must not happen beside it sees it


def stop_reencryption(node: Node, volume_id: str) -> None:
    """Nothing re-encrypts a volume on this node.

    :raises StillReencrypting: if what does is not done with it in time
    """
    if node.runner.is_running(volume_id) and not node.runner.stop(volume_id):
        raise encryption_exceptions.StillReencrypting(
            volume=volume_id, host=node.host,
            seconds=crypt_interfaces.STOPPING)


def settle_reencryption(node: Node, volume: objects.Volume) -> None:
    """The same, and its header says what its data is.

    What was interrupted is recovered here, at its home: anywhere else that
    would write to what another node has, too. For a caller that holds the
    volume's lock; its handle is here.

    :raises StillReencrypting: if it can't be paused
    :raises Interrupted: if it was killed, and a guest keeps the volume open
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
        # Who opens it says so. It may be read, and is recovered, elsewhere.
        LOG.warning('It is unknown whether volume %(volume)s was being '
                    're-encrypted: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return
    if is_interrupted(node, volume_id, header):
        recover(node, volume)


@contextlib.contextmanager
def reencryption_paused(node: Node, volume_id: str) -> Iterator[None]:
    """A re-encryption that is paused within goes on right afterwards.

    Else snapshots, which owners can take at any rate, would hold it up until
    the next check of the node each time. For a caller that holds the volume's
    lock, and neither moves nor closes the volume within.
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
    """What ran a moment ago runs again, unless an operator has paused it."""
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
    """Whether what re-encrypted a volume did not end in order.

    It does not run. Most of the time only devices that are left tell.
    """
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    crypt = present.crypt(volume_id)
    found = header.reencryption
    return bool(found and (found.interrupted or found.complete)
                or crypt and crypt.target != 'crypt')


def recover(node: Node, volume: objects.Volume) -> None:
    """Open a volume anew, which puts together what was left of it.

    If only the end of its header is missing that is written, open or not.

    :raises Interrupted: if it is open, and in use: nobody can put together
        what is beneath a guest
    :raises ForeignHeader: if its header is not that of its row; nothing is
        closed or written then
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
            return  # nothing but its header had to be mended
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
    """A volume is not being re-encrypted, nor is that paused.

    :param what: is to be done to it, such as "extended"
    :raises Reencrypting: if it is
    """
    volume_id = rows.handle_id(volume)
    handle = names.handle(volume_id)
    if rows.recorded(volume) and handle in node.handles.devices([handle]):
        # One that can't be read keeps nobody from having more room.
        with contextlib.suppress(encryption_exceptions.HeaderDamaged):
            header = node.crypt.header(volume_id)
            if header.reencryption or is_interrupted(node, volume_id, header):
                raise encryption_exceptions.Reencrypting(
                    volume=volume.id, what=what)


def takes_discards(node: Node, volume: objects.Volume) -> bool:
    """Whether discards of the guest are passed down to the disk.

    Not if the properties of the type are not valid any more.
    """
    if rows.is_authenticated(volume):
        return False
    with contextlib.suppress(volume_types.InvalidType):
        encryption = node.volumes.wanted_encryption(volume)
        return bool(encryption and encryption.discards)
    return False


def is_short(present: survey.Survey, volume_id: str) -> bool:
    """Whether a volume is decrypted, but not all of it.

    While it is re-encrypted, cryptsetup has other devices in between. An
    authenticated one never grows.
    """
    handle, crypt = present.handle(volume_id), present.crypt(volume_id)
    header = volume_types.HEADER_BYTES // state.SECTOR
    return bool(handle and crypt and crypt.target == 'crypt'
                and not present.integrity(volume_id)
                and crypt.sectors + header < handle.sectors)


def outdate_backups_of(node: Node, lv: str) -> None:
    """Note that backups of headers do not show the one that an LV has now.

    Also where no backups are kept now: there may be some of before, in a
    directory that is configured again one day.
    """
    node.crypt.mark(lv, names.OUTDATED)
