# SPDX-License-Identifier: Apache-2.0
"""Recovery keys: second keys of volumes that the driver encrypts.

One is made on the volume's home and shown to whoever asks for it, once; no
node can show it again. Or it is stored in the key manager. It opens the
volume on the day on which the volume's own secret is lost, until it is
removed, or the volume is encrypted anew.
"""

import base64
import contextlib
import dataclasses
import os
import typing

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.node import Node
from cinder_localclone.core import rows
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import pinning
from cinder_localclone.encryption import rotate as key_change
from cinder_localclone.encryption import rotation_plan

LOG = logging.getLogger(__name__)

#: Bytes of one that is shown, and letters in each group of it.
SHOWN_BYTES, GROUP = 32, 4


@dataclasses.dataclass(frozen=True)
class Added:
    """A recovery key that there is now.

    :param slot: the key slot that it opens
    :param key: what a person types, dashes included; '' if it is stored
    :param secret: reference of its secret; '' if it is shown
    """

    slot: str
    key: str = dataclasses.field(default='', repr=False)
    secret: str = ''


def add(node: Node, volume_id: str, store: bool = False) -> Added:
    """Have another key open a volume here.

    :param store: in the key manager; else whoever asks is the only one to
        have it
    :raises NotAtRest: if anybody else may have its header open
    :raises KeyNotChanged: if its header can't be changed now
    :raises LocalCloneError: if a step failed; no key was shown then
    """
    with node.lock(volume_id):
        work = _Work(node, volume_id)
        work.drop_halves()
        # The volume's own key is proven before anything is written.
        own = work.own_key()
        with key_change.in_words(volume_id):
            token = luks_header.Token(
                key='', key_format=volume_types.KeyFormat.PASSPHRASE,
                role=luks_header.Role.RECOVERY,
                number=rotation_plan.free_token(work.header),
                slot=rotation_plan.free_slot(work.header))
        shown = '' if store else _new()
        key = shown.encode()
        if store:
            token = dataclasses.replace(
                token, key=node.keys.create(volume_id),
                key_format=volume_types.KeyFormat.HEX)
            key = node.keys.get(token.key, token.key_format)
            node.keys.consume(token.key, 'volumes', volume_id)
        work.write(token)
        node.crypt.add_key(volume_id, own, key, token.slot,
                           cryptsetup_cli.RANDOM_KEY)
        if store:
            # The slot may have been made of one wrong answer.
            key = node.keys.get_again(token.key, token.key_format, volume_id)
        node.crypt.test(volume_id, key, token.slot)
        work.write(dataclasses.replace(
            token, keyslots=(token.slot,), slot=''), replace=True)
        try:
            key_change.copy_header(node, work.volume, own)
        except (exceptions.LocalCloneError, OSError) as exc:
            # Whoever asks has to be shown a key that is there by now.
            LOG.warning('The recovery key of volume %(volume)s does not open '
                        'the header that its backup would restore: '
                        '%(error)s', {'volume': volume_id, 'error': exc})
        return Added(token.slot, shown, token.key)


@dataclasses.dataclass(frozen=True)
class Removed:
    """A key that opens its volume no more.

    :param slot: the key slot that it opened
    :param remarks: what it may still open, in words
    """

    slot: str
    remarks: tuple[str, ...] = ()


def remove(node: Node, volume_id: str, slot: str = '') -> Removed:
    """Have a recovery key, or one of which nothing is known, open no more.

    :param slot: the key slot that it opens; '': the only recovery key
    :raises KeyNotChanged: if there is none such, or more than one
    :raises StaleBackup: if it may still open a backup of the header
    :raises LocalCloneError: as :func:`add`
    """
    with node.lock(volume_id):
        work = _Work(node, volume_id)
        work.drop_halves()
        slot = slot or work.only_slot()
        work.check_removable(slot)
        own = work.own_key()
        key_change.outdate_backups(node, work.volume)
        node.crypt.kill_slot(volume_id, slot, own)
        work.look()
        work.drop_halves()  # its token has no slot any more
        try:
            key_change.renew_backup(node, work.volume, own)
        except (exceptions.LocalCloneError, OSError) as exc:
            raise encryption_exceptions.StaleBackup(
                slot=slot, volume=volume_id, reason=exc)
        return Removed(slot, (*(
            'it may still open snapshot %s' % snapshot_id for snapshot_id, _of
            in key_change.encrypted_snapshots(node, volume_id)),
            *key_change.left_behind(node)))


def rotate(node: Node, volume_id: str, typed: str = '') -> list[str]:
    """Give a volume whose secret is lost another one, by a recovery key.

    That stays. If the secret is not lost, the volume gets another one, too.

    :param typed: the recovery key, as a person types it; '': one that is
        stored in the key manager
    :returns: as :func:`.rotate.rotate`
    :raises KeyNotChanged: if that is none of the volume's
    :raises LocalCloneError: as :func:`.rotate.rotate`
    """
    def proven(header: luks_header.Header) -> bytes:
        for token in header.opened_by(luks_header.Role.RECOVERY):
            if bool(token.key) is bool(typed):
                continue
            key = as_shown(typed).encode() if typed else node.keys.get(
                token.key, token.key_format, volume_id)
            for slot in token.keyslots if key else ():
                with contextlib.suppress(encryption_exceptions.WrongKey):
                    node.crypt.test(volume_id, key, slot)
                    return key
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='the given key is none of its recovery '
            'keys'
            if typed else 'the key manager has no recovery key of the volume')
    return key_change.rotate(node, volume_id, proven)


class _Work:
    """The header of a volume at rest, whose lock is held."""

    def __init__(self, node: Node, volume_id: str):
        self.node = node
        self.volume_id = volume_id
        self.volume = at_rest.volume(node, volume_id)
        self.header: luks_header.Header = at_rest.to_change(
            node, self.volume)

    def look(self) -> None:
        self.header = self.node.crypt.header(self.volume_id)

    def own_key(self) -> bytes:
        """What opens the volume."""
        return activate.key_of(
            self.node.crypt, self.node.keys, self.volume_id, self.header,
            pinning.of_row(rows.recorded(self.volume)))

    def write(self, token: luks_header.Token, replace: bool = False) -> None:
        self.node.crypt.write_token(
            self.volume_id, token.number or '', str(token), replace)

    def drop_halves(self) -> None:
        """What an addition has left that did not come to its end.

        Nobody was shown its key. A slot that it may have made stays: it
        may as well be somebody's own.
        """
        for token in self.header.tokens:
            if token.role is luks_header.Role.RECOVERY and not (
                    set(token.keyslots) & set(self.header.all_keyslots)):
                if token.key:
                    self._drop_secret(token.key)
                self.node.crypt.remove_token(
                    self.volume_id, token.number or '')
        self.look()

    def _drop_secret(self, key: str) -> None:
        with contextlib.suppress(encryption_exceptions.KeyRefused):
            self.node.keys.release(key, 'volumes', self.volume_id)
        # Only the header says that it is the volume's.
        if key in self.node.secrets.secrets_in_use():
            return
        # If not now, then when the volume's own key is replaced.
        with contextlib.suppress(encryption_exceptions.KeyRefused):
            self.node.keys.remove(key, self.volume_id)

    def only_slot(self) -> str:
        found = [slot for token in self.header.opened_by(
            luks_header.Role.RECOVERY) for slot in token.keyslots]
        if len(found) != 1:
            self.refuse('it has no recovery key' if not found else
                        'it has more than one recovery key; choose one of the '
                        'slots %s' % ', '.join(found))
        return found[0]

    def check_removable(self, slot: str) -> None:
        if slot not in self.header.all_keyslots:
            self.refuse('it has no key slot %s' % slot)
        if any(slot in (*token.keyslots, token.slot)
               for token in self.header.tokens
               if token.role is luks_header.Role.VOLUME):
            self.refuse('key slot %s has the key of its secret; '
                        '"cinder-localclone encryption rotate" replaces that '
                        'key' % slot)

    def refuse(self, reason: str) -> typing.NoReturn:
        raise encryption_exceptions.KeyNotChanged(
            volume=self.volume_id, reason=reason)


def _new() -> str:
    """A new key, as a person types it."""
    return as_shown(base64.b32encode(
        os.urandom(SHOWN_BYTES)).decode().rstrip('='))


def as_shown(typed: str) -> str:
    """A key as it was shown, whatever somebody has made of its groups."""
    text = ''.join(each for each in typed.upper() if each.isalnum())
    return '-'.join(text[begin:begin + GROUP]
                    for begin in range(0, len(text), GROUP))
