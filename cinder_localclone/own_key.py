# SPDX-License-Identifier: Apache-2.0
"""A key, and a LUKS UUID, of its own for what is made of an image.

What a volume is made of brings its header along, with all its keys. As long
as nobody was given the new volume, those go: who may open one of the two,
or gets hold of its backups, has nothing of the other. The key of the data
stays the same until it is encrypted anew.

Whenever that is cut off, the volume is one that is being created: it is
removed, and its secret with it, by its name if by nothing else.
"""

import dataclasses

from oslo_log import log as logging

from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
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
    if header.reencryption:
        # It goes on, and its keys can't be changed before it has ended.
        _share(node, volume.id, recorded.key)
        return
    settled = pinning.settled(recorded, header)
    if settled != recorded:
        # That of the image has ended, and it is not recorded there yet.
        volume = node.snapshots.set_encryption(volume, settled)
    wanted = (node.snapshots.wanted_encryption(volume)
              or encryption_types.Encryption())
    change = key_change.Change(node, volume)
    current = _strip(change)
    node.crypt.set_uuid(volume.id, volume.id)
    if current.key == wanted.shared_key:
        _share(node, volume.id, current.key)
        key_change.replace_backups(node, volume.id)
    else:
        change.derivation = options.key_derivation(wanted)
        key = wanted.shared_key or node.keys.create(
            volume.id, wanted.key_format)
        change.shared |= {wanted.shared_key}
        change.announce(_token(change, current, key, wanted))
        change.go_on()
    change.note_key()
    node.crypt.note(volume.name, luks=volume.id)


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
    current = next((each for each in header.opened_by(tokens.Role.VOLUME)
                    if each.key == change.recorded.key), None)
    if current is None:
        raise encryption_errors.KeyNotChanged(
            volume=volume_id, reason='its header has no key of the secret '
            'that its row names')
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
