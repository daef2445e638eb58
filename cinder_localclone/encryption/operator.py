# SPDX-License-Identifier: Apache-2.0
"""What an operator does by hand: recovery keys, headers, leftovers.

A recovery key is a second key of a volume that the driver encrypts. One is
made on the volume's home and shown to whoever asks for it, once; no node can
show it again. Or it is stored in the key manager. It opens the volume on the
day on which the volume's own secret is lost, until it is removed, or the
volume is encrypted anew.

A header is restored from a backup, on the volume's home.

The deletion of a volume removes its secret and its header backups. If the key
manager did not answer, or the backup was on another node, the operator's
command finds them by their names.
"""

import base64
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import typing

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import rows
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import rotation_plan
from cinder_localclone.encryption import upkeep

LOG = logging.getLogger(__name__)

#: Bytes of one that is shown, and letters in each group of it.
SHOWN_BYTES, GROUP = 32, 4
#: What may be left of a volume.
SECRET, BACKUP = 'secret', 'header backup'


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


def add_recovery_key(node: Node, volume_id: str, store: bool = False) -> Added:
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
        with rotate.in_words(volume_id):
            token = luks_header.Token(
                key='', key_format=volume_types.KeyFormat.PASSPHRASE,
                role=luks_header.Role.RECOVERY,
                number=rotation_plan.free_token(work.header),
                slot=rotation_plan.free_slot(work.header))
        shown = '' if store else _new_recovery_key()
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
            rotate.copy_header(node, work.volume, own)
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


def remove_recovery_key(node: Node, volume_id: str, slot: str = '') -> Removed:
    """Have a recovery key, or one of which nothing is known, open no more.

    :param slot: the key slot that it opens; '': the only recovery key
    :raises KeyNotChanged: if there is none such, or more than one
    :raises StaleBackup: if it may still open a backup of the header
    :raises LocalCloneError: as :func:`add_recovery_key`
    """
    with node.lock(volume_id):
        work = _Work(node, volume_id)
        work.drop_halves()
        slot = slot or work.only_slot()
        work.check_removable(slot)
        own = work.own_key()
        rotate.outdate_backups(node, work.volume)
        node.crypt.kill_slot(volume_id, slot, own)
        work.sweep()
        work.drop_halves()  # its token has no slot any more
        try:
            rotate.renew_backup(node, work.volume, own)
        except (exceptions.LocalCloneError, OSError) as exc:
            raise encryption_exceptions.StaleBackup(
                slot=slot, volume=volume_id, reason=exc)
        return Removed(slot, (*(
            'it may still open snapshot %s' % snapshot_id for snapshot_id, _of
            in rotate.encrypted_snapshots(node, volume_id)),
            *rotate.left_behind(node)))


def rotate_by_recovery_key(node: Node, volume_id: str, typed: str = ''
                           ) -> list[str]:
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
    return rotate.rotate(node, volume_id, proven)


class _Work:
    """The header of a volume at rest, whose lock is held."""

    def __init__(self, node: Node, volume_id: str):
        self.node = node
        self.volume_id = volume_id
        self.volume = at_rest.volume(node, volume_id)
        self.header: luks_header.Header = at_rest.to_change(
            node, self.volume)

    def sweep(self) -> None:
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
        self.sweep()

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


def _new_recovery_key() -> str:
    """A new key, as a person types it."""
    return as_shown(base64.b32encode(
        os.urandom(SHOWN_BYTES)).decode().rstrip('='))


def as_shown(typed: str) -> str:
    """A key as it was shown, whatever somebody has made of its groups."""
    text = ''.join(each for each in typed.upper() if each.isalnum())
    return '-'.join(text[begin:begin + GROUP]
                    for begin in range(0, len(text), GROUP))


class Records(typing.Protocol):
    """What the database knows; see :mod:`.secrets`."""

    def secrets_of_all(self) -> set[str]:
        """References that any row names, whatever its backend."""

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Ids of those that are there, and of those that were deleted."""


class Keys(typing.Protocol):
    """The key manager; see :mod:`.key_manager`."""

    def of_volumes(self) -> list[tuple[str, str]]:
        """References of secrets, each with the id of its volume."""

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """A volume uses a secret no more."""

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret."""


@dataclasses.dataclass(frozen=True)
class Left:
    """Something whose volume is gone.

    :param kind: a secret, or the backups of a header
    :param name: the reference of the secret; '' of backups
    :param known: whether this database knows that the volume was deleted. Of
        one that it does not know, another cloud may know more
    """

    kind: str
    name: str
    volume_id: str
    known: bool


def find_left(records: Records, keys: Keys | None,
              backups: Iterable[str] = ()) -> list[Left]:
    """All that is left.

    The database is asked last: what a volume needs it has a row for before.

    :param keys: None: secrets are not looked for
    :param backups: ids of the volumes of whose headers this node has any
    """
    listed = [(SECRET, key, volume_id) for key, volume_id in (
        keys.of_volumes() if keys else ())]
    listed += [(BACKUP, '', volume_id) for volume_id in sorted(backups)]
    if not listed:
        return []
    there, deleted = records.volumes_known(
        {volume_id for _kind, _name, volume_id in listed})
    in_use = records.secrets_of_all()
    return [Left(kind, name, volume_id, volume_id in deleted)
            for kind, name, volume_id in listed
            if volume_id not in there and name not in in_use - {''}]


def remove_left(keys: Keys, crypt: crypt_interfaces.Crypt, left: Left) -> None:
    """Remove one of them.

    :raises LocalCloneError: if that fails; another run may succeed
    """
    if left.kind == SECRET:
        keys.release(left.name, 'volumes', left.volume_id)
        keys.remove(left.name, left.volume_id)
    else:
        crypt.drop_backups(left.volume_id)


@dataclasses.dataclass(frozen=True)
class Restored:
    """A header that was restored.

    :param backup: the name of the backup
    :param remarks: what has changed with it, in words
    """

    backup: str
    remarks: tuple[str, ...] = ()


def restore_header(node: Node, volume_id: str, backup: str = '') -> Restored:
    """Write a backup over the header of a volume that nobody uses.

    A backup of a header with other keys of the data would make noise of
    them: it is refused, and so is one that nothing opens. Its LUKS UUID says
    nothing: the pin and the key say whose header it is, and the one that is
    written has the volume's id as its UUID. What was there is kept beside the
    backups. A key that was removed does not come back, but for that of the
    volume's secret, if the backup has no other: if keys have been removed
    since, what is written has no slots but those of the secret.

    :param backup: its name; '': the last one
    :raises NotAtRest: if anybody else may have the header open
    :raises SourceBusy: if something here has the volume open
    :raises KeyNotChanged: if this backup is not to be restored
    :raises LocalCloneError: if a step failed: to be repeated
    """
    with node.lock(volume_id):
        volume = at_rest.volume(node, volume_id)
        if volume.volume_attachment or volume.status not in statuses.DETACHED:
            _refuse(volume_id, 'it is attached, or its status is not '
                    '"available"')
        backups = node.crypt.backup_names(volume_id)
        backup = backup or (backups[-1] if backups else '')
        if backup not in backups:
            _refuse(volume_id, 'there is no such backup on %s' % node.host)
        saved = node.crypt.backed_up(volume_id, backup)
        _check_same(volume, saved)
        token, key = _opening(node, volume, backup, saved)
        before = headers.record_of(volume).key
        lv = node.lvm.lvs().get(volume.name)
        # A key that was changed since says so, too.
        is_older = token.key != before or rotate.is_outdated(lv)
        slots = [slot for slot in saved.all_keyslots
                 if slot not in token.keyslots] if is_older else []
        devices.ensure_closed(node, volume_id)
        node.crypt.save(volume_id)
        former = sorted(names.with_fact(lv.tags, 'luks') - {
            *names.tags(luks=volume_id)}) if lv else []
        if former:  # else it opens with neither header if this is cut short
            node.crypt.note(volume.name, former, key=before)
        node.crypt.restore(volume_id, backup, slots)
        node.crypt.test(volume_id, key)
        if is_older and lv:
            # Whoever repeats this has to know it once the row has the secret
            # of the backup. Before, what was not written is not outdated.
            rotate.outdate_backups(node, volume)
        _record(node, volume, token.key)
        return Restored(backup, tuple(_remarks(
            node, volume, token.key if token.key != before else '', slots,
            key if is_older else b'')))


def _remarks(node: Node, volume: objects.Volume, former: str,
             slots: list[str], key: bytes) -> Iterator[str]:
    """Say what has changed with a header that is restored.

    :param former: a secret that opens the volume again; '' if none does
    :param slots: key slots of the backup that the volume does not have
    :param key: what the volume is opened by, if the backup is to be replaced
    """
    if former:
        yield ('secret %s, which was replaced, opens it again: run '
               '"cinder-localclone encryption rotate"' % former)
    if slots:
        yield ('key slots %s of the backup were not restored, because their '
               'keys may have been removed since: add recovery keys again'
               % ', '.join(slots))
    if key:
        try:
            rotate.renew_backup(node, volume, key)
        except exceptions.LocalCloneError as exc:
            yield ('the backup could not be replaced by one of the header '
                   'as it is now; the volume service tries that again: %s'
                   % exc)


def _check_same(volume: objects.Volume, saved: luks_header.Header) -> None:
    """A backup is of the data that a volume has now.

    :raises KeyNotChanged: if it is not
    """
    if saved.reencryption:
        _refuse(volume.id, 'the backup was made while the volume was being '
                're-encrypted')
    recorded = headers.record_of(volume)
    # As long as its new key is not pinned, nothing is encrypted with that. A
    # header that has the new key alone is of after the end.
    if (recorded.becoming and recorded.becoming.digest
            and saved.pin != recorded.becoming):
        _refuse(volume.id, 'the volume was being re-encrypted: an older '
                'header can\'t decrypt re-encrypted data')
    problem = pinning.why_not(saved, pinning.of_row(recorded))
    if problem:
        _refuse(volume.id, 'the backup is not of the header that is recorded '
                'for the volume, but of other data: %s' % problem)


def _opening(node: Node, volume: objects.Volume, backup: str,
             saved: luks_header.Header) -> tuple[luks_header.Token, bytes]:
    """The token of a backup whose secret opens it, proven; and the key.

    :raises LocalCloneError: if none does
    """
    error: exceptions.LocalCloneError | None = None
    for token in sorted(saved.opened_by(luks_header.Role.VOLUME), key=lambda
                        token: token.key != headers.record_of(
                            volume).key):
        try:
            key = node.keys.get(
                token.key, token.key_format,
                '' if token.key == headers.record_of(volume).key
                else volume.id)
            # The others may have to go; anybody can have named some.
            opened = tuple(_opened(node, volume.id, backup, key, [
                slot for slot in token.keyslots if slot in saved.keyslots]))
            if opened:
                return dataclasses.replace(token, keyslots=opened), key
            error = encryption_exceptions.WrongKey(path=backup)
        except encryption_exceptions.KeyRefused as exc:
            error = exc
    raise error or encryption_exceptions.KeyNotChanged(
        volume=volume.id, reason='the backup names no secret')


def _opened(node: Node, volume_id: str, backup: str, key: bytes,
            slots: Iterable[str]) -> Iterator[str]:
    """Yield those slots that a key opens in a backup.

    :param slots: of the data's key: cryptsetup says of others, too, that a
        key opens them
    """
    for slot in slots:
        with contextlib.suppress(encryption_exceptions.WrongKey):
            node.crypt.test_backup(volume_id, backup, key, slot)
            yield slot


def _record(node: Node, volume: objects.Volume, key: str) -> None:
    """The row and the tags name the secret whose key opens the header."""
    recorded = headers.record_of(volume)
    if recorded.key != key:
        node.keys.consume(key, 'volumes', volume.id)
        node.secrets.record(volume.id, dataclasses.replace(
            recorded, key=key), recorded)
    lv = node.lvm.lvs().get(volume.name)
    if lv:
        devices.name_secret(node, lv, key, luks=volume.id)


def _refuse(volume_id: str, reason: str) -> typing.NoReturn:
    raise encryption_exceptions.KeyNotChanged(volume=volume_id, reason=reason)


def key_to_reencrypt(crypt: crypt_interfaces.Crypt,
                     keys: crypt_interfaces.Keys, present: survey.Survey,
                     volume_id: str, header: luks_header.Header
                     ) -> tuple[bytes, str]:
    """Return the key by which a process re-encrypts a volume, and its zone.

    The service has compared the header with the row, and noted the secret,
    just before it started the process.

    :param present: what there is on this node
    :returns: the key; MiB that are re-encrypted at a time, as noted ('': not)
    :raises LocalCloneError: as :func:`.activate.key_of`
    """
    facts = upkeep.facts_on_lv(present, volume_id)
    key = activate.key_of(
        crypt, keys, volume_id, header,
        pinning.Expected(facts.get('key', ''), by_row=False),
        facts.get('luks', ''))
    return key, facts.get(names.ZONE, '')
