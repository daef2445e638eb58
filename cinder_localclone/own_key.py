# SPDX-License-Identifier: Apache-2.0
"""A key, and a LUKS UUID, of its own for what is made of an image.

What a volume is made of brings its header along, with all its keys. As long
as nobody was given the new volume, those go: who may open one of the two,
or gets hold of its backups, has nothing of the other. The key of the data
stays the same until it is encrypted anew.

Whenever that is cut off, the volume is one that is being created: it is
removed, and its secret with it, by its name if by nothing else.

The keys of a clone that is in mid re-encryption can't be changed. It shares
the secret of its image, which its row says, until its re-encryption has ended.
"""

import dataclasses

from oslo_log import log as logging

from cinder_localclone import crypt_tops
from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone import headers_at_rest
from cinder_localclone import key_change
from cinder_localclone.luks import options
from cinder_localclone.luks import rotation
from cinder_localclone.luks import tokens
from cinder_localclone import node as nodes
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import rows

LOG = logging.getLogger(__name__)


def give(node: nodes.Node, volume: ports.Volume) -> None:
    """Give a newborn volume what nobody else has; its handle is here.

    For a caller that holds its lock.

    :param volume: its row, which names the secret of its image
    :raises LocalCloneError: if that fails; it is not to be given out then
    """
    recorded = rows.recorded(volume)
    if recorded is None:
        return
    header = node.crypt.header(volume.id)
    pinning.check(volume.id, header, pinning.of_row(recorded))
    wanted = _wanted(node, volume)
    if header.reencryption:
        # It goes on, and its keys can't be changed before it has ended.
        _set(node, volume, dataclasses.replace(
            recorded, shares_key=recorded.key != wanted.shared_key))
        _share(node, volume.id, recorded.key)
        return
    # The image's may have ended, and that is not recorded there yet.
    volume = _set(node, volume, dataclasses.replace(
        pinning.settled(recorded, header), shares_key=False))
    change = key_change.Change(node, volume)
    current = _strip(change)
    node.crypt.set_uuid(volume.id, volume.id)
    if current.key == wanted.shared_key:
        _share(node, volume.id, current.key)
        key_change.replace_backups(node, volume, change.key(current))
    else:
        _replace(change, current, wanted)
    change.note_key()
    node.crypt.note(volume.name, luks=volume.id)


def give_late(node: nodes.Node, volume_id: str) -> None:
    """Give a clone its own key at the end of its re-encryption.

    A guest that has the clone open keeps it open; then the LUKS UUID stays.
    A call that was cut off is finished by the next one. For a caller that
    holds the volume's lock.

    :raises NotAtRest: if anybody else may have its header open
    :raises KeyNotChanged: if it is being re-encrypted
    :raises LocalCloneError: if a step failed; the clone shares the secret of
        its image as before
    """
    volume = headers_at_rest.volume(node, volume_id)
    change = key_change.Change(node, volume)
    wanted = _wanted(node, volume)
    change.derivation = options.key_derivation(wanted)
    change.shared |= {wanted.shared_key}
    _give_uuid(node, volume)
    change.go_on()
    if change.recorded.shares_key:
        if change.recorded.key == wanted.shared_key:
            node.secrets.record(volume_id, dataclasses.replace(
                change.recorded, shares_key=False), change.recorded)
            return
        current = _current(change)
        node.crypt.test(volume_id, change.key(current))
        _replace(change, current, wanted)
    change.note_key()
    change.drop_unknown_secrets()
    LOG.info('Volume %s has its own key now.', volume_id)


def _give_uuid(node: nodes.Node, volume: ports.Volume) -> None:
    """Give a volume's header its own LUKS UUID, unless it is in use.

    That of a clone is its image's at first. A call that was cut off is
    finished by the next one.
    """
    if node.crypt.uuid(volume.id) != volume.id:
        if volume.volume_attachment:
            return
        present = node.stack.survey()
        if present.crypt(volume.id):
            if present.users(volume.id):
                return
            node.stack.close_top(volume.id)
        node.crypt.set_uuid(volume.id, volume.id)
    lv = node.stack.lvs().get(volume.name)
    recorded = rows.recorded(volume)
    if lv and recorded:
        crypt_tops.name_secret(node, lv, recorded.key, luks=volume.id)


def _wanted(node: nodes.Node, volume: ports.Volume
            ) -> encryption_types.Encryption:
    """:raises KeyRefused: if its type has the secret of a volume"""
    wanted = (node.snapshots.wanted_encryption(volume)
              or encryption_types.Encryption())
    if wanted.shared_key:
        node.keys.check_shared(wanted.shared_key)
    return wanted


def _set(node: nodes.Node, volume: ports.Volume,
         recorded: encryption_types.Recorded) -> ports.Volume:
    """Change the row of a volume that is being created."""
    if recorded == rows.recorded(volume):
        return volume
    return node.snapshots.set_encryption(volume, recorded)


def _replace(change: key_change.Change, current: tokens.Token,
             wanted: encryption_types.Encryption) -> None:
    """Replace the key of the image by another one.

    :param current: the token of the image's secret
    """
    change.derivation = options.key_derivation(wanted)
    key = wanted.shared_key or change.node.keys.create(
        change.volume.id, wanted.key_format)
    change.shared |= {wanted.shared_key}
    change.announce(_token(change, current, key, wanted))
    change.go_on()


def _current(change: key_change.Change) -> tokens.Token:
    """Return the token of the secret that the row names.

    :raises KeyNotChanged: if the header has none
    """
    for token in change.header.opened_by(tokens.Role.VOLUME):
        if token.key == change.recorded.key:
            return token
    raise encryption_errors.KeyNotChanged(
        volume=change.volume.id, reason='its header has no key of the secret '
        'that its row names')


def _share(node: nodes.Node, volume_id: str, key: str) -> None:
    """The key manager knows that a volume has a secret of others, too."""
    try:
        node.keys.consume(key, 'volumes', volume_id)
    except exceptions.LocalCloneError as exc:
        LOG.warning('Nothing but the database keeps secret %(key)s of volume '
                    '%(volume)s from being deleted: %(error)s', {
                        'key': key, 'volume': volume_id, 'error': exc})


def _strip(change: key_change.Change) -> tokens.Token:
    """Nothing but the secret that the row names opens a newborn.

    Of secrets that other tokens name nothing is known here: a change of the
    key of what the volume was made of may be under way.

    :returns: its token
    """
    header, volume_id = change.header, change.volume.id
    current = _current(change)
    for slot in header.all_keyslots:
        if slot not in current.keyslots:
            change.node.crypt.kill_slot(volume_id, slot, change.key(current))
    for number in header.all_tokens:
        if number != current.number:
            change.node.crypt.remove_token(volume_id, number)
    alone = dataclasses.replace(current, slot='', replaces='')
    if alone != current:
        change.node.crypt.write_token(
            volume_id, current.number or '', str(alone), replace=True)
    change.look()
    return alone


def _token(change: key_change.Change, current: tokens.Token, key: str,
           wanted: encryption_types.Encryption) -> tokens.Token:
    """The announcement of a newborn's own key."""
    return tokens.Token(
        key=key, key_format=wanted.key_format,
        shared=bool(wanted.shared_key),
        number=rotation.free_token(change.header),
        slot=rotation.free_slot(change.header), replaces=current.key)
