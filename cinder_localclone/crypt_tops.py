# SPDX-License-Identifier: Apache-2.0
"""The tops of volumes that the driver encrypts: what decrypts them.

See :mod:`.tops`, which these are a part of. The node that gives out the path
has the volume decrypted; nobody else asks for its key.
"""

import contextlib


from cinder_localclone import decrypting
from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone import images
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import rows
from cinder_localclone import state
from cinder_localclone import survey as surveys


def ensure_open(node: nodes.Node, volume: ports.Volume, lv: str) -> None:
    """A volume is decrypted here, all of it; its handle is here already.

    :param volume: its row, as it is now
    :param lv: the LV that the node has of it; '' if it passes it through
    :raises KeyUnavailable: if the key manager does not answer
    :raises OpenedOtherwise: if it is open in another way than its row allows
    :raises LocalCloneError: if it can't be opened
    """
    volume_id = rows.handle_id(volume)
    present = node.stack.survey()
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
        decrypting.open_volume(
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
    elif foreign and volume_id not in node.crypt.passed():
        note_opened(node, None, volume_id, key)
    _note_used(node, present, lv)
    if is_short(present, volume_id):
        decrypting.grow(node.crypt, node.keys, volume_id, expected)


def _check_alone(node: nodes.Node, volume: ports.Volume) -> None:
    """Nobody but this node may have an authenticated volume open now.

    To open one writes to it: so it is at home here, or is about to be.

    :raises MovesCold: if it is not
    """
    move = node.records.move_of(volume.id)
    starting = move is not None and move.phase is state.Phase.STARTING
    if starting or node.host not in (
            names.service_host(volume.host),
            move.destination if move else None):
        raise encryption_errors.MovesCold(
            volume=volume.id, host=node.host, reason='it is authenticated, '
            'and only its home may have it open.')


def check_readable(node: nodes.Node, snapshot: images.Snapshot,
                   connector: ports.Connector, local: bool) -> None:
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
        raise encryption_errors.NotThere(
            **where, reason='an encrypted snapshot can only be read on its '
            'own node, %s.' % node.host)


def note_opened(node: nodes.Node, lv: reports.LogicalVolume | None,
                volume_id: str, key: str, luks: str = '') -> None:
    """A boot opens a volume again: by this secret, if it has this header.

    :param lv: the LV that the node has of it; None if it passes it through
    :param luks: as of :func:`note_key`; of an LV only
    """
    if lv is None:
        node.crypt.note_passed(volume_id, node.crypt.uuid(volume_id), key)
        return
    note_key(node, lv, volume_id, key, luks)
    if names.OPENED not in lv.tags:
        node.crypt.mark(lv.name, names.OPENED)
        node.crypt.forget_passed(volume_id)  # it may have followed to here


def note_followed(node: nodes.Node, volume_id: str, lv: str) -> None:
    """Note on the LV of a volume that has followed what was noted of it here.

    The note itself stays until :func:`settle_note`.
    """
    noted = node.crypt.passed().get(volume_id)
    if noted:
        luks, key = noted
        node.crypt.note(lv, key=key, luks=luks)
        node.crypt.mark(lv, names.OPENED)


def settle_note(node: nodes.Node, volume: ports.Volume, wanted: bool | None,
                luks: str) -> bool:
    """Forget what was noted of a volume while it was passed through here.

    It has followed since, and its LV says the same, or nobody uses it.

    :param wanted: as of :func:`differs`
    :param luks: the UUID of its header, as it was noted
    """
    present = node.stack.survey()
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
        node.crypt.forget_passed(volume.id)
    return True


def note_key(node: nodes.Node, lv: reports.LogicalVolume, volume_id: str,
             key: str, luks: str = '') -> None:
    """The LV says which secret opens it, to those without the volume's row.

    :param luks: the UUID of its header; '' if that has to be asked for
    """
    name_secret(node, lv, key, luks=names.facts(lv.tags).get('luks')
                or luks or node.crypt.uuid(volume_id))


def name_secret(node: nodes.Node, lv: reports.LogicalVolume, key: str,
                **more: str) -> None:
    """The tags of a volume's LV name a secret, and no other.

    :param key: its reference
    :param more: what else they say of the header
    """
    wanted = names.tags(key=key, **more)
    facts = tuple(tag.partition('=')[0] + '=' for tag in wanted)
    outdated = sorted(tag for tag in lv.tags if tag.startswith(facts)
                      and tag not in wanted)
    if outdated or not lv.tags >= set(wanted):
        node.crypt.note(lv.name, outdated, key=key, **more)


def note_used(node: nodes.Node, volume: ports.Volume) -> None:
    """Somebody may write to a volume that another node opens.

    :param volume: its row; its home is here
    """
    if rows.recorded(volume):
        _note_used(node, node.stack.survey(), volume.name)


def _note_used(node: nodes.Node, present: surveys.Survey, lv: str) -> None:
    found = present.lvs.get(lv)
    if found and names.FRESH in found.tags:
        node.crypt.unmark(lv, names.FRESH)


def _is_at_rest(node: nodes.Node, volume: ports.Volume) -> bool:
    """Whether nobody else may have the header open, and it is all here."""
    return (rows.is_home(volume, node.host)
            and node.records.move_of(volume.id) is None)


def mend(node: nodes.Node, volume: ports.Volume) -> None:
    """A header is whole before two nodes have it open: neither may mend it.

    :raises HeaderDamaged: if it can't be read; nothing moves then
    """
    if rows.recorded(volume) and _is_at_rest(node, volume):
        node.stack.ensure_handle_on_lv(
            volume.id, volume.name, rows.body_bytes(volume))
        node.crypt.header(rows.handle_id(volume), mend=True)


def takes_discards(node: nodes.Node, volume: ports.Volume) -> bool:
    """Whether discards of the guest are passed down to the disk.

    Not if the properties of the type are not valid any more.
    """
    if rows.is_authenticated(volume):
        return False
    with contextlib.suppress(encryption_types.InvalidType):
        encryption = node.snapshots.wanted_encryption(volume)
        return bool(encryption and encryption.discards)
    return False


def is_short(present: surveys.Survey, volume_id: str) -> bool:
    """Whether a volume is decrypted, but not all of it.

    While it is re-encrypted, cryptsetup has other devices in between. An
    authenticated one never grows.
    """
    handle, crypt = present.handle(volume_id), present.crypt(volume_id)
    header = encryption_types.HEADER_BYTES // state.SECTOR
    return bool(handle and crypt and crypt.target == 'crypt'
                and not present.integrity(volume_id)
                and crypt.sectors + header < handle.sectors)


def forget(node: nodes.Node, present: surveys.Survey, volume_id: str
           ) -> None:
    """A boot does not open a volume again."""
    node.crypt.forget_passed(volume_id)  # also where it has followed to here
    node.crypt.forget_sealed(volume_id)
    # Last: what is marked is looked at again.
    for lv in present.lvs.values():
        if (names.OPENED in lv.tags
                and names.facts(lv.tags).get('volume') == volume_id):
            node.crypt.unmark(lv.name, names.OPENED)


def forget_left(node: nodes.Node, volume_id: str, lv: str) -> None:
    """A boot does not open what a volume has left, if it would.

    The key goes whatever the mark says: the boot may have kept it after this
    was done before.
    """
    forget_unless_passed(node, volume_id)
    found = node.stack.lvs().get(lv)
    if found and names.OPENED in found.tags:
        node.crypt.unmark(lv, names.OPENED)


def forget_unless_passed(node: nodes.Node, volume_id: str) -> None:
    """The key that is kept goes, if the volume is not passed through here.

    By that key a boot opens it, even if the boot has made no handle yet.
    """
    if volume_id not in node.crypt.passed():
        node.crypt.forget_sealed(volume_id)


def differs(present: surveys.Survey, volume: ports.Volume,
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
        present.tops(volume_id) or lv and names.OPENED in lv.tags)
