# SPDX-License-Identifier: Apache-2.0
"""What stands above a volume's handle where it is used: its top.

Of a volume that Nova encrypts that is a guard (:mod:`.dm.guards`), with a
path that leads to it; Cinder itself, which may write the header, is led to
the handle. Of a volume that the driver encrypts it is what decrypts it
(:mod:`.crypt_tops`), for whomever. Of any other there is none.

The top is there before anybody is given its path, and as long as an
attachment says that the volume is used here. It is closed where nobody uses
the volume before anything else may: so "nothing uses the volume" is
:func:`users`, and a fence is :func:`ensure_closed`.
"""

from collections.abc import Mapping
import time

from oslo_log import log as logging

from cinder_localclone import crypt_tops
from cinder_localclone import decision
from cinder_localclone import decrypting
from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import pausing
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import served
from cinder_localclone import survey as surveys

LOG = logging.getLogger(__name__)

#: Seconds after which an attachment that was ended, and is still there,
#: counts as one again.
ENDING = 60
#: Statuses in which Cinder writes all of a volume, with its header.
WRITTEN = ('downloading', 'restoring-backup')
#: Statuses in which nobody has a volume whom no attachment names. Who is
#: attaching it may have none yet.
SETTLED = served.BY_ATTACHMENT - {'attaching'} | {'error'}


def path(volume: ports.Volume) -> str:
    """Where whoever uses a volume finds it, on every node the same."""
    volume_id = rows.handle_id(volume)
    if rows.recorded(volume):
        return names.crypt_path(volume_id)
    return names.link(volume_id) if rows.is_encrypted_by_nova(
        volume) else names.handle_path(volume_id)


def has_one(volume: ports.Volume) -> bool:
    """Whether a volume has a top where it is used."""
    return bool(rows.is_encrypted_by_nova(volume) or rows.recorded(volume))


def served_path(node: nodes.Node, volume: ports.Volume) -> str:
    """What other nodes are to be served of a volume here; it is there."""
    volume_id = rows.handle_id(volume)
    if not has_one(volume):
        return names.handle_path(volume_id)
    node.stack.ensure_served(volume_id)
    return names.served_path(volume_id)


# -- who uses a volume

def users(node: nodes.Node, volume_id: str) -> int:
    """How many on this node use a volume.

    All iSCSI initiators that it is served to count as one. The destination
    of a move is none of them: it reads the source device. Nor is a top that
    nobody has open.
    """
    return _users(node, _devices_of(node, volume_id), volume_id)


def _devices_of(node: nodes.Node, volume_id: str) -> surveys.Survey:
    """A survey of one volume, without LVM."""
    return surveys.Survey({}, node.stack.devices(
        surveys.names_of(volume_id)))


def _users(node: nodes.Node, present: surveys.Survey, volume_id: str) -> int:
    count = present.users(volume_id)
    return count - bool(count and node.exports.opens_in_vain(volume_id))


def ensure_closed(node: nodes.Node, volume_id: str) -> None:
    """Nothing uses a volume on this node, and its top is gone.

    A re-encryption is paused before, so that it is no such use.
    Whoever still has its path finds nothing there. What an attachment names
    is opened again by the node's look, if whatever is to be done now fails.

    :raises SourceBusy: if anything uses it; its top is left alone then
    """
    present = _devices_of(node, volume_id)
    if present.crypt(volume_id):
        pausing.stop(node, volume_id)
        present = _devices_of(node, volume_id)
    count = _users(node, present, volume_id)
    if not count and present.tops(volume_id):
        # Only now: an idle one keeps the handle open.
        try:
            node.stack.close_top(volume_id)
        except exceptions.CommandFailed:
            if not users(node, volume_id):
                raise
        count = users(node, volume_id)
    if count:
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=count,
            device=names.handle(volume_id))


# -- open and close

def is_used_here(node: nodes.Node, volume: ports.Volume) -> bool:
    """Whether an attachment says that this node uses a volume.

    Not one that has just been ended.
    """
    since = time.monotonic() - ENDING
    return any(each.connector and node.is_at(each.connector, node.host)
               and node.detached.get(each.id, since) <= since
               for each in volume.volume_attachment)


def note_detached(node: nodes.Node, volume: ports.Volume) -> None:
    """The attachments of a volume on this node are being ended."""
    now = time.monotonic()
    for each in [each for each, when in list(node.detached.items())
                 if when < now - ENDING]:
        node.detached.pop(each, None)
    node.detached.update({
        each.id: now for each in volume.volume_attachment
        if each.connector and node.is_at(each.connector, node.host)})


def open(node: nodes.Node, volume: ports.Volume, lv: str = '') -> None:
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
        crypt_tops.ensure_open(node, volume, lv)
        return
    if not rows.is_encrypted_by_nova(volume):
        return
    volume_id = rows.handle_id(volume)
    if (volume.status in decision.NOVA_STATUSES
            or is_used_here(node, volume)):
        open_for_guest(node, volume_id, lv)
    else:
        _open_for_cinder(node, volume)


def _open_for_cinder(node: nodes.Node, volume: ports.Volume) -> None:
    """Cinder reads or writes all of a volume that Nova encrypts.

    What it writes to the header would not get through a guard that is left.
    """
    volume_id = rows.handle_id(volume)
    if node.stack.survey().guard(volume_id):
        if volume.status in WRITTEN:
            ensure_unopened(node, volume_id)
        elif not close_if_idle(node, volume_id):
            return  # a header can be read through it
    node.stack.ensure_link(volume_id, names.handle(volume_id))


def open_for_guest(node: nodes.Node, volume_id: str, lv: str = '') -> None:
    """The same for a volume that Nova encrypts, and is about to use."""
    present = node.stack.survey()
    header = present.header_guarded(volume_id)
    if not header:
        # One that is too short keeps what it is known to have.
        header = node.stack.header_sectors(volume_id)
    found = present.lvs.get(lv)
    if found and names.guarded(found.tags) != header:
        node.stack.note_guarded(lv, header)
    if node.stack.ensure_guard(volume_id, header):
        node.stack.read_guarded(volume_id, header)
    node.stack.ensure_link(volume_id, names.guard(volume_id))


def grow(node: nodes.Node, volume: ports.Volume) -> None:
    """A volume's handle is longer; so is its top, if there is one.

    :param volume: its row
    """
    volume_id = volume.id
    present = _devices_of(node, volume_id)
    guard = present.guard(volume_id)
    if guard and not present.header_guarded(volume_id):
        node.stack.ensure_guard(volume_id, guard.segments[0].sectors)
    recorded = rows.recorded(volume)
    if recorded and crypt_tops.is_short(present, volume_id):
        decrypting.grow(node.crypt, node.keys, volume_id,
                        pinning.of_row(recorded))


def close_if_idle(node: nodes.Node, volume_id: str) -> bool:
    """Close the top of a volume, for good, unless something uses that.

    A re-encryption is paused before; it opens a volume that it goes on with.

    :returns: whether there is none afterwards
    """
    present = node.stack.survey()
    if any(top.opened for top in present.tops(volume_id)):
        return False
    if present.crypt(volume_id):
        try:
            pausing.stop(node, volume_id)
        except exceptions.SourceBusy:
            return False
    for lv in present.lvs.values():
        header = names.guarded(lv.tags)
        if header and names.facts(lv.tags).get('volume') == volume_id:
            node.stack.forget_guarded(lv.name, header)
    node.stack.close_top(volume_id)
    crypt_tops.forget(node, present, volume_id)
    return True


def ensure_unopened(node: nodes.Node, volume_id: str) -> None:
    """The same as an error, for whoever waits for a late close.

    :raises SourceBusy: if something uses it
    """
    if not close_if_idle(node, volume_id):
        raise exceptions.SourceBusy(
            volume=volume_id, host=node.host, count=users(node, volume_id),
            device=names.guard(volume_id))


# -- the look

def is_wanted(node: nodes.Node, volume: ports.Volume) -> bool | None:
    """Whether the top of a volume that has one is to be here.

    Its attachments say so.

    :returns: None if they do not: somebody is about to attach it, with an
        attachment already or not, or it is Cinder itself that has it
    """
    if is_used_here(node, volume):
        return True
    if (volume.status not in SETTLED
            or records.is_migrated_by_cinder(volume)
            or any(not each.connector
                   for each in volume.volume_attachment)):
        return None
    return False


def differs(node: nodes.Node, volume: ports.Volume, present: surveys.Survey,
            links: Mapping[str, str]) -> bool:
    """Whether the top of a volume here is not as its attachments say.

    :param present: what there is on this node
    :param links: where its paths lead
    """
    if rows.recorded(volume):
        return crypt_tops.differs(present, volume, is_wanted(node, volume))
    if not rows.is_encrypted_by_nova(volume):
        return False
    volume_id = rows.handle_id(volume)
    wanted = is_wanted(node, volume)
    if wanted:
        return not present.header_guarded(
            volume_id) or links.get(volume_id) != names.guard(volume_id)
    lv = present.lvs.get(volume.name)
    return wanted is False and bool(
        volume_id in links or present.tops(volume_id)
        or lv and names.guarded(lv.tags))


def converge(node: nodes.Node, volume: ports.Volume, lv: str = '') -> None:
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
        events.say(events.NOT_OPEN, volume=volume.id, error=exc,
                   exc_info=not isinstance(exc, exceptions.LocalCloneError))


def look(node: nodes.Node, present: surveys.Survey,
         links: Mapping[str, str]) -> None:
    """Remove the paths of volumes that are not here.

    :param present: what there was on this node, before
    :param links: where its paths lead
    """
    for volume_id in links:
        if present.handle(volume_id):
            continue
        try:
            with node.try_lock(volume_id):
                if not node.stack.survey().handle(volume_id):
                    node.stack.remove_link(volume_id)
        except exceptions.Busy:
            pass
        except exceptions.LocalCloneError as exc:
            LOG.warning('The path of volume %(volume)s, which is not on this '
                        'node, could not be removed: %(error)s',
                        {'volume': volume_id, 'error': exc})
