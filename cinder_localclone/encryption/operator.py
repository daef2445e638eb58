# SPDX-License-Identifier: Apache-2.0
"""Recovery keys, restored headers and leftovers, for the operator.

A recovery key is a second key of an encrypted volume. It is created on the
volume's home. It is either shown once, or stored in the key manager; no node
can show it again. It opens the volume if the volume's own secret is lost. It
is valid until it is removed, or the volume is re-encrypted.

A header is restored from a backup on the volume's home.

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
from cinder_localclone.core import pinning
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import rotation_plan
from cinder_localclone.encryption import upkeep

LOG = logging.getLogger(__name__)

#: Bytes of a recovery key that is shown, and characters in each group.
SHOWN_BYTES, GROUP = 32, 4
#: The kinds of leftovers.
SECRET, BACKUP = 'secret', 'header backup'


@dataclasses.dataclass(frozen=True)
class Added:
    """A new recovery key.

    :param slot: its key slot
    :param key: the key to type, with dashes; '' if it is stored
    :param secret: the reference of its secret; '' if it is shown
    """

    slot: str
    key: str = dataclasses.field(default='', repr=False)
    secret: str = ''


def add_recovery_key(node: Node, volume_id: str, store: bool = False) -> Added:
    """Add a recovery key to a volume on this node.

    :param store: store the key in the key manager; otherwise the caller has
        the only copy
    :raises NotAtRest: if another node may have the header open
    :raises KeyNotChanged: if the header can't be changed now
    :raises LocalCloneError: if a step failed; no key was shown
    """
    with node.lock(volume_id):
        work = _Work(node, volume_id)
        work.drop_halves()
        # Test the volume's own key before the first write.
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
            # The key of the slot may come from a single wrong answer.
            key = node.keys.get_again(token.key, token.key_format, volume_id)
        node.crypt.test(volume_id, key, token.slot)
        work.write(dataclasses.replace(
            token, keyslots=(token.slot,), slot=''), replace=True)
        try:
            rotate.copy_header(node, work.volume, own)
        except (exceptions.LocalCloneError, OSError) as exc:
            # The key exists now, so it must be shown.
            LOG.warning('The header backup of volume %(volume)s was not '
                        'replaced, and lacks the new recovery key: '
                        '%(error)s', {'volume': volume_id, 'error': exc})
        return Added(token.slot, shown, token.key)


@dataclasses.dataclass(frozen=True)
class Removed:
    """A key that no longer opens its volume.

    :param slot: its former key slot
    :param remarks: sentences about data it may still open
    """

    slot: str
    remarks: tuple[str, ...] = ()


def remove_recovery_key(node: Node, volume_id: str, slot: str = '') -> Removed:
    """Remove a recovery key, or an unknown key, of a volume.

    :param slot: its key slot; '' for the only recovery key
    :raises KeyNotChanged: if there is no such key, or ``slot`` is needed
    :raises StaleBackup: if the key may still open a header backup
    :raises LocalCloneError: as for :func:`add_recovery_key`
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
            *rotate.directory_remarks(node)))


def rotate_by_recovery_key(node: Node, volume_id: str, typed: str = ''
                           ) -> list[str]:
    """Give a volume with a lost secret a new secret, by a recovery key.

    The recovery key stays. The volume gets a new secret even if the old secret
    is not lost.

    :param typed: the typed recovery key; '' for a recovery key in the key
        manager
    :returns: as :func:`.rotate.rotate`
    :raises KeyNotChanged: if the volume has no such recovery key
    :raises LocalCloneError: as for :func:`.rotate.rotate`
    """
    def proven(header: luks_header.Header) -> bytes:
        for token in header.tokens_with_role(luks_header.Role.RECOVERY):
            if bool(token.key) is bool(typed):
                continue
            key = as_shown(typed).encode() if typed else node.keys.get(
                token.key, token.key_format, volume_id)
            for slot in token.keyslots if key else ():
                with contextlib.suppress(encryption_exceptions.WrongKey):
                    node.crypt.test(volume_id, key, slot)
                    return key
        raise encryption_exceptions.KeyNotChanged(
            volume=volume_id, reason='the given key is not a recovery key of '
            'the volume'
            if typed else 'the key manager has no recovery key of the volume')
    return rotate.rotate(node, volume_id, proven)


class _Work:
    """The header of a volume at rest; its lock is held."""

    def __init__(self, node: Node, volume_id: str):
        self.node = node
        self.volume_id = volume_id
        self.volume = at_rest.volume(node, volume_id)
        self.header: luks_header.Header = at_rest.to_change(
            node, self.volume)

    def sweep(self) -> None:
        self.header = self.node.crypt.header(self.volume_id)

    def own_key(self) -> bytes:
        """Return the volume's own key."""
        return activate.key_of(
            self.node.crypt, self.node.keys, self.volume_id, self.header,
            pinning.recorded_in_row(self.volume.encryption))

    def write(self, token: luks_header.Token, replace: bool = False) -> None:
        self.node.crypt.write_token(
            self.volume_id, token.number or '', str(token), replace)

    def drop_halves(self) -> None:
        """Remove the tokens of incomplete additions.

        Their keys were never shown. A slot without a token stays, because it
        may hold an operator's own key.
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
        # Only the header connects the secret with this volume.
        if key in self.node.secrets.secrets_in_use():
            return
        # The next key rotation of the volume tries again.
        with contextlib.suppress(encryption_exceptions.KeyRefused):
            self.node.keys.remove(key, self.volume_id)

    def only_slot(self) -> str:
        found = [slot for token in self.header.tokens_with_role(
            luks_header.Role.RECOVERY) for slot in token.keyslots]
        if len(found) != 1:
            self.refuse('it has no recovery key' if not found else
                        'it has several recovery keys; choose a slot: '
                        '%s' % ', '.join(found))
        return found[0]

    def check_removable(self, slot: str) -> None:
        if slot not in self.header.all_keyslots:
            self.refuse('it has no key slot %s' % slot)
        if any(slot in (*token.keyslots, token.slot)
               for token in self.header.tokens
               if token.role is luks_header.Role.VOLUME):
            self.refuse('key slot %s has the key of its secret; to replace '
                        'this key, run "cinder-localclone encryption key '
                        'rotate"' % slot)

    def refuse(self, reason: str) -> typing.NoReturn:
        raise encryption_exceptions.KeyNotChanged(
            volume=self.volume_id, reason=reason)


def _new_recovery_key() -> str:
    """Return a new recovery key in groups with dashes."""
    return as_shown(base64.b32encode(
        os.urandom(SHOWN_BYTES)).decode().rstrip('='))


def as_shown(typed: str) -> str:
    """Return a typed recovery key in the form in which it was shown."""
    text = ''.join(each for each in typed.upper() if each.isalnum())
    return '-'.join(text[begin:begin + GROUP]
                    for begin in range(0, len(text), GROUP))


class Records(typing.Protocol):
    """Queries of Cinder's database; see :mod:`.secrets`."""

    def secrets_of_all(self) -> set[str]:
        """Return the references in all rows of all backends."""

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Return the IDs of existing volumes and of deleted volumes."""


class Keys(typing.Protocol):
    """The key manager; see :mod:`.key_manager`."""

    def of_volumes(self) -> list[tuple[str, str]]:
        """Return the references of secrets, with their volume IDs."""

    def consumers(self, key: str) -> list[tuple[str, str]]:
        """Return the kinds and IDs of the consumers of a secret."""

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """Remove a volume from the consumers of a secret."""

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret."""


@dataclasses.dataclass(frozen=True)
class Left:
    """A leftover of a volume without a row.

    :param kind: :data:`SECRET` or :data:`BACKUP`
    :param name: the reference of the secret; '' for header backups
    :param known: whether this database has the row of the deleted volume. An
        unknown volume may belong to another cloud
    """

    kind: str
    name: str
    volume_id: str
    known: bool


def find_left(records: Records, keys: Keys | None,
              backups: Iterable[str] = ()) -> list[Left]:
    """Return all leftovers.

    The database is queried last: a row exists before its secret and backups.

    :param keys: None to leave out secrets
    :param backups: IDs of volumes with header backups on this node
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


def remove_left(records: Records, keys: Keys, crypt: crypt_interfaces.Crypt,
                left: Left, unknown: bool = False) -> None:
    """Remove a leftover.

    An interrupted call may have registered a volume as a consumer of a secret,
    and never recorded the secret. A volume that exists removes the secret at
    its own end.

    :param unknown: whether a volume unknown to this database is no reason to
        keep a secret
    :raises LocalCloneError: if it was not removed; another call may succeed
    """
    if left.kind == SECRET:
        consumers = {resource_id for kind, resource_id
                     in keys.consumers(left.name) if kind == 'volumes'}
        there, deleted = records.volumes_known(consumers)
        gone = consumers - there if unknown else deleted
        for volume_id in sorted(gone | {left.volume_id}):
            keys.release(left.name, 'volumes', volume_id)
        keys.remove(left.name, left.volume_id)
    else:
        crypt.drop_backups(left.volume_id)


@dataclasses.dataclass(frozen=True)
class Restored:
    """A restored header.

    :param backup: the name of the backup
    :param remarks: sentences about other changes
    """

    backup: str
    remarks: tuple[str, ...] = ()


def restore_header(node: Node, volume_id: str, backup: str = '') -> Restored:
    """Write a backup over the header of an unused volume.

    A backup with another data key would turn the data into noise, so it is
    refused. A backup without a key in the key manager is refused too. The pin
    and the key identify the header, not its LUKS UUID. The restored header
    gets the volume's ID as its UUID. The old header is saved beside the
    backups. Removed keys do not return: if keys were removed since the backup,
    only the slots of the volume's secret are restored.

    :param backup: the name of the backup; '' for the last backup
    :raises NotAtRest: if another node may have the header open
    :raises SourceBusy: if the volume is open on this node
    :raises KeyNotChanged: if this backup can't be restored
    :raises LocalCloneError: if a step failed; the call can be repeated
    """
    with node.lock(volume_id):
        volume = at_rest.volume(node, volume_id)
        if volume.volume_attachment or volume.status not in statuses.DETACHED:
            _refuse(volume_id, 'it is attached, or its status is not '
                    '"available"')
        backups = node.crypt.backup_names(volume_id)
        backup = backup or (backups[-1] if backups else '')
        if backup not in backups:
            _refuse(volume_id, 'the backup does not exist on %s' % node.host)
        saved = node.crypt.backed_up(volume_id, backup)
        _check_same(volume, saved)
        token, key = _opening(node, volume, backup, saved)
        before = headers.record_of(volume).key
        lv = node.lvm.lvs().get(volume.name)
        # Also outdated if a key was rotated since.
        is_older = token.key != before or rotate.is_outdated(lv)
        slots = [slot for slot in saved.all_keyslots
                 if slot not in token.keyslots] if is_older else []
        devices.ensure_closed(node, volume_id)
        node.crypt.save(volume_id)
        former = sorted(names.with_fact(lv.tags, 'luks') - {
            *names.tags(luks=volume_id)}) if lv else []
        if former:  # without it, an interruption leaves a volume no note opens
            node.crypt.note(volume.name, former, key=before)
        node.crypt.restore(volume_id, backup, slots)
        node.crypt.test(volume_id, key)
        if is_older and lv:
            # A repeated call must know this after the row has the secret of
            # the backup. Before the restore, the backup is not outdated.
            rotate.outdate_backups(node, volume)
        _record(node, volume, token.key)
        return Restored(backup, tuple(_remarks(
            node, volume, token.key if token.key != before else '', slots,
            key if is_older else b'')))


def _remarks(node: Node, volume: Volume, former: str,
             slots: list[str], key: bytes) -> Iterator[str]:
    """Yield sentences about the changes made by a restored header.

    :param former: a replaced secret that opens the volume again; '' for none
    :param slots: key slots of the backup that were not restored
    :param key: the volume's key if the backup must be replaced; b'' if not
    """
    if former:
        yield ('the replaced secret %s opens it again: run "cinder-localclone '
               'encryption key rotate"' % former)
    if slots:
        yield ('key slots %s of the backup were not restored, because their '
               'keys may have been removed since: add recovery keys again'
               % ', '.join(slots))
    if key:
        try:
            rotate.renew_backup(node, volume, key)
        except exceptions.LocalCloneError as exc:
            yield ('the backup was not replaced by a backup of the restored '
                   'header; the volume service tries again: %s'
                   % exc)


def _check_same(volume: Volume, saved: luks_header.Header) -> None:
    """Check that a backup belongs to the current data of a volume.

    :raises KeyNotChanged: if it does not
    """
    if saved.reencryption:
        _refuse(volume.id, 'the backup was made while the volume was being '
                're-encrypted')
    recorded = headers.record_of(volume)
    # Data is not encrypted with a new key before its digest is pinned. A
    # header with the new key alone was written after the end.
    if (recorded.becoming and recorded.becoming.digest
            and saved.pin != recorded.becoming):
        _refuse(volume.id, 'the volume was being re-encrypted: an older '
                'header can\'t decrypt re-encrypted data')
    problem = pinning.why_not(saved, pinning.recorded_in_row(recorded))
    if problem:
        _refuse(volume.id, 'the backup belongs to other data than the '
                'recorded header: %s' % problem)


def _opening(node: Node, volume: Volume, backup: str,
             saved: luks_header.Header) -> tuple[luks_header.Token, bytes]:
    """Return the token of a backup with a tested key, and the key.

    :raises LocalCloneError: if no key opens the backup
    """
    error: exceptions.LocalCloneError | None = None
    for token in sorted(saved.tokens_with_role(luks_header.Role.VOLUME),
                        key=lambda
                        token: token.key != headers.record_of(
                            volume).key):
        try:
            key = node.keys.get(
                token.key, token.key_format,
                '' if token.key == headers.record_of(volume).key
                else volume.id)
            # The other slots may be removed; a user may have forged them.
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
    """Yield the slots of a backup that a key opens.

    :param slots: slots of the data's key: cryptsetup also accepts the key for
        others
    """
    for slot in slots:
        with contextlib.suppress(encryption_exceptions.WrongKey):
            node.crypt.test_backup(volume_id, backup, key, slot)
            yield slot


def _record(node: Node, volume: Volume, key: str) -> None:
    """Set the secret of the restored header in the row and the tags."""
    recorded = headers.record_of(volume)
    if recorded.key != key:
        node.keys.consume(key, 'volumes', volume.id)
        node.secrets.record(volume.id, dataclasses.replace(
            recorded, key=key), recorded)
    lv = node.lvm.lvs().get(volume.name)
    if lv:
        boot_notes.set_secret_tags(node, lv, key, luks=volume.id)


def _refuse(volume_id: str, reason: str) -> typing.NoReturn:
    raise encryption_exceptions.KeyNotChanged(volume=volume_id, reason=reason)


def key_to_reencrypt(crypt: crypt_interfaces.Crypt,
                     keys: crypt_interfaces.Keys, present: survey.Survey,
                     volume_id: str, header: luks_header.Header
                     ) -> tuple[bytes, str]:
    """Return the key with which a process re-encrypts a volume, and its zone.

    The service has compared the header with the row and noted the secret just
    before it started the process.

    :param present: the survey of this node
    :returns: the key, and the noted MiB re-encrypted at a time ('' for none)
    :raises LocalCloneError: as for :func:`.activate.key_of`
    """
    facts = upkeep.facts_on_lv(present, volume_id)
    key = activate.key_of(
        crypt, keys, volume_id, header,
        pinning.Expected(facts.get('key', ''), by_row=False),
        facts.get('luks', ''))
    return key, facts.get(names.ZONE, '')
