# SPDX-License-Identifier: Apache-2.0
"""Notes on this node for the boot service, which has no database.

A *note* is an LVM tag, or for a remotely attached volume a tag of the volume
group. By these notes, and by the sealed keys, the boot service opens the
volumes that were open when the node went down. :mod:`.lvm_tags` has the table
of the tags; :mod:`.upkeep` reads the notes.

:mod:`.devices` writes a note before it returns the path of a volume, and
removes the note after it has closed the volume for good.
"""

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core.volume import Volume


def note_opened(node: Node, lv: lvm_reports.LogicalVolume | None,
                volume_id: str, key: str, luks: str = '') -> None:
    """Note that a volume is open here, so that a boot opens it again.

    A boot uses the noted secret if the header has the noted UUID.

    :param lv: the LV of the volume on this node; None if it is remotely
        attached
    :param luks: as for :func:`note_key`; ignored without an LV
    """
    if lv is None:
        node.crypt.note_remote(volume_id, node.crypt.uuid(volume_id), key)
        return
    note_key(node, lv, volume_id, key, luks)
    if names.OPENED not in lv.tags:
        node.lvm.mark(lv.name, names.OPENED)
        # A remote attachment may have ended by a move to this node.
        node.crypt.forget_remote(volume_id)


def note_moved(node: Node, volume_id: str, lv: str) -> None:
    """Copy the note of a remotely attached volume to its new LV on this node.

    Called in the deferred move of the volume to this node. The note of the
    remote attachment stays until :func:`correct_note`.
    """
    noted = node.crypt.remotes().get(volume_id)
    if noted:
        luks, key = noted
        node.crypt.note(lv, key=key, luks=luks)
        node.lvm.mark(lv, names.OPENED)


def correct_note(node: Node, volume: Volume, wanted: bool | None,
                 luks: str) -> bool:
    """Remove the note of a remote attachment after the deferred move.

    If the volume is in use and its LV has no note yet, the LV gets it first.
    Nothing is done before the handle is on an LV or clone of this node.

    :param wanted: as for :func:`.devices.crypt_differs`
    :param luks: the UUID of the header in the note
    :returns: whether the note was removed
    """
    present = node.handles.survey()
    lv = present.lvs.get(volume.name)
    if (lv is None or not present.handle(volume.id)
            or present.is_handle_foreign(volume.id)):
        return False
    idle = wanted is False and not present.crypt(volume.id)
    recorded = volume.encryption
    if not idle and recorded and names.OPENED not in lv.tags:
        # The row's key: it may have been changed since the note.
        note_opened(node, lv, volume.id, recorded.key, luks)
    else:
        node.crypt.forget_remote(volume.id)
    return True


def note_key(node: Node, lv: lvm_reports.LogicalVolume, volume_id: str,
             key: str, luks: str = '') -> None:
    """Set the tags of a volume's LV to its secret and the UUID of its header.

    The boot service reads them there, because it has no access to the row. A
    UUID in the tags is kept.

    :param key: the reference of the secret
    :param luks: the UUID of the header; '' to read it from the header
    """
    set_secret_tags(node, lv, key, luks=names.facts(lv.tags).get('luks')
                    or luks or node.crypt.uuid(volume_id))


def set_secret_tags(node: Node, lv: lvm_reports.LogicalVolume, key: str,
                    luks: str | None = None) -> None:
    """Replace all tags of an LV for a secret, and for a header's UUID.

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


def note_used(node: Node, volume: Volume) -> None:
    """Remove the tag "fresh" from the LV of a volume attached remotely.

    The tag says that only the driver has opened the new volume. From now on a
    guest on another node may write to it.

    :param volume: its row; its home is this node
    """
    if volume.encryption:
        unmark_fresh(node, node.handles.survey(), volume.name)


def unmark_fresh(node: Node, present: survey.Survey, lv: str) -> None:
    """Remove the tag "fresh" from an LV, if it has the tag."""
    found = present.lvs.get(lv)
    if found and names.FRESH in found.tags:
        node.lvm.unmark(lv, names.FRESH)


def forget(node: Node, present: survey.Survey, volume_id: str
           ) -> None:
    """Remove the notes and the sealed key by which a boot opens a volume."""
    node.crypt.forget_remote(volume_id)  # may remain after a deferred move
    node.crypt.forget_sealed(volume_id)
    # Last: by this tag a sweep repeats the removal after an interruption.
    for lv in present.lvs.values():
        if (names.OPENED in lv.tags
                and names.facts(lv.tags).get('volume') == volume_id):
            node.lvm.unmark(lv.name, names.OPENED)


def forget_left(node: Node, volume_id: str, lv: str) -> None:
    """Remove the note and the sealed key of a volume that has moved away.

    The sealed key is removed even if the LV has no note, because the boot
    service may have sealed it again after an earlier call.

    :param lv: the former LV of the volume on this node
    """
    forget_unless_remote(node, volume_id)
    found = node.lvm.lvs().get(lv)
    if found and names.OPENED in found.tags:
        node.lvm.unmark(lv, names.OPENED)


def forget_unless_remote(node: Node, volume_id: str) -> None:
    """Remove the sealed key of a volume, unless it is remotely attached here.

    A boot opens a remotely attached volume with this key, even if the handle
    is missing now.
    """
    if volume_id not in node.crypt.remotes():
        node.crypt.forget_sealed(volume_id)
