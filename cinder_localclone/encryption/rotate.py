# SPDX-License-Identifier: Apache-2.0
"""Rotation of a volume's key; a key of its own for a local clone.

The steps are planned by :mod:`.rotation_plan`. Header and row show which steps
are done, so an interrupted rotation continues when it is requested again. At
each moment the secrets in the header and the secret in the row open the
volume.

A local clone has the header of its image, with all keys. Before a user gets
the clone, its keys and LUKS UUID are replaced. A user of one volume, or of its
header backups, can't open the other. The data's key stays until the clone is
re-encrypted. An interrupted creation is removed with its secret, which has the
name of the clone.

The keys of a clone in the middle of a re-encryption can't be changed. Its row
says that it shares the secret of its image, until the re-encryption has ended.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import typing

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import pinning
from cinder_localclone.core import rpc
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import rotation_plan

LOG = logging.getLogger(__name__)

Do = rotation_plan.Do


@rpc.method('encryption_rotate', rpc.HOME, times=2, on_peer={'recovery': None},
            expected=(encryption_exceptions.KeyNotChanged,
                      encryption_exceptions.NotAtRest))
def rotate(node: Node, volume_id: str,
           recovery: Callable[[luks_header.Header], bytes] | None = None
           ) -> list[str]:
    """Replace the key of a volume, which may be open.

    First complete an interrupted rotation. If this has replaced the key, the
    request is done.

    :param recovery: returns a recovery key for a header, if the secret is lost
    :returns: sentences about data that the old key still opens
    :raises NotAtRest: if another node may have the header open
    :raises KeyNotChanged: if the key can't be replaced
    :raises LocalCloneError: if a step failed; the call can be repeated
    """
    with node.lock(volume_id):
        change = Change(node, at_rest.volume(node, volume_id))
        if recovery:
            change.recovery = recovery(change.header)
        change.go_back()
        before = change.recorded.key
        change.go_on()
        if change.recorded.key == before:
            change.begin()
            change.go_on()
        change.drop_unknown_secrets()
        remarks = [
            'secret %s still opens snapshot %s' % (recorded.key, snapshot_id)
            for snapshot_id, recorded in encrypted_snapshots(node, volume_id)
            if recorded.key != change.recorded.key]
        remarks += directory_remarks(node)
    LOG.info('The key of volume %s was changed.', volume_id)
    return remarks


def directory_remarks(node: Node) -> list[str]:
    """Return remarks on former directories of backups and sealed keys.

    See :meth:`.crypt.Crypt.former_directories`.
    """
    return ['%s, a former directory of this node, may have the old key or its '
            'header backups: remove them there' % path
            for path in node.crypt.former_directories()]


def encrypted_snapshots(node: Node, volume_id: str
                        ) -> Iterator[tuple[str, volume_types.Recorded]]:
    """Yield the encrypted snapshots of a volume.

    :returns: IDs, with the encryption in their rows
    """
    for snapshot in node.snapshots.snapshots_of(volume_id):
        recorded = snapshot.encryption
        if recorded:
            yield snapshot.id, recorded


def is_pending(header: luks_header.Header, recorded: str) -> bool:
    """Return whether a key rotation is incomplete.

    :param recorded: the reference of the secret in the volume's row
    """
    try:
        return rotation_plan.next_step(header, recorded) is not None
    except rotation_plan.CannotRotate:
        return False


@contextlib.contextmanager
def in_words(volume_id: str) -> Iterator[None]:
    """Convert errors of the plan to errors of the driver.

    :raises KeyNotChanged: if the plan raises CannotRotate
    """
    try:
        yield
    except rotation_plan.CannotRotate as exc:
        raise encryption_exceptions.KeyNotChanged(volume=volume_id, reason=exc)


class Change:
    """The rotation of one volume's key, perhaps begun by an earlier call.

    The volume's lock is held, and no other node has its header open.

    :param volume: its row
    :raises KeyNotChanged: if the header must not be written
    """

    def __init__(self, node: Node, volume: Volume):
        found = volume.encryption
        if found is None:
            raise encryption_exceptions.KeyNotChanged(
                volume=volume.id, reason='this driver does not encrypt it')
        self.node = node
        self.volume = volume
        self.recorded: volume_types.Recorded = found
        self.header = at_rest.to_change(node, volume)
        #: Key derivation of the new slot: the cost of guessing its key.
        self.derivation = cryptsetup_cli.RANDOM_KEY
        #: Keys from the key manager by reference.
        self._keys: dict[str, bytes] = {}
        #: Secrets named by Cinder's row or the volume type. Their names in the
        #: key manager may differ from the volume's.
        self.shared = {found.key}
        #: A recovery key, in case the secret is lost; b'' for none.
        self.recovery = b''

    def begin(self) -> None:
        """Store a new secret, and announce it in the header.

        :raises KeyNotChanged: if the key can't be replaced now
        :raises LocalCloneError: if neither the old secret nor a recovery key
            opens the volume; nothing is written then
        """
        current = next((each for each in self.header.tokens
                        if each.key == self.recorded.key), None)
        key_format = (current.key_format if current
                      else volume_types.KeyFormat.HEX)
        with in_words(self.volume.id):
            token = rotation_plan.announce(
                self.header, self.recorded.key, '', key_format)
        if current:
            self.node.crypt.test(self.volume.id, self._opening(current))
        self.announce(dataclasses.replace(
            token, key=self.node.keys.create(self.volume.id, key_format)))

    def announce(self, token: luks_header.Token) -> None:
        """Write a token with the slot that the next step makes."""
        self.node.crypt.write_token(
            self.volume.id, token.number or '', str(token))
        self.sweep()

    def drop_unknown_secrets(self) -> None:
        """Remove secrets of the volume that neither header nor row names.

        An interrupted call leaves them, and so does a deleted snapshot. Some
        key managers can't list secrets.
        """
        known = self._in_use() | self.header.keys() | {self.recorded.key}
        try:
            for key in self.node.keys.find(self.volume.id):
                if key not in known:
                    self._remove_secret(key)
        except exceptions.LocalCloneError as exc:
            LOG.warning('Unused secrets of volume %(volume)s may be left in '
                        'the key manager: %(error)s', {
                            'volume': self.volume.id, 'error': exc})

    def go_back(self) -> None:
        """Record the former secret again if the new secret is lost.

        The former secret still opens the volume.
        """
        current = next((token for token in self.header.tokens_with_role(
            luks_header.Role.VOLUME) if token.key == self.recorded.key), None)
        former = next((token for token in self.header.tokens_with_role(
            luks_header.Role.VOLUME) if current is not None
            and token.key == current.replaces), None)
        if current and former and not self._opens(current) and (
                self._opens(former)):
            LOG.error('Secret %(key)s of volume %(volume)s is lost: the '
                      'volume uses its previous secret again.', {
                          'key': current.key, 'volume': self.volume.id})
            self._record(former, current)

    def _opens(self, token: luks_header.Token) -> bool:
        try:
            self.node.crypt.test(self.volume.id, self.key(token))
        except (encryption_exceptions.KeyRefused,
                encryption_exceptions.WrongKey):
            return False
        return True

    def go_on(self) -> None:
        """Take all remaining steps.

        If the new key proves unusable before it is recorded, the old key
        stays.

        :raises LocalCloneError: if a step failed, or the new key is unusable
        """
        failed: Exception | None = None
        while True:
            with in_words(self.volume.id):
                step = rotation_plan.next_step(
                    self.header, self.recorded.key, failed is not None)
            if step is None:
                break
            try:
                self._take(step)
            except (encryption_exceptions.KeyRefused,
                    encryption_exceptions.WrongKey) as exc:
                if step.do in (Do.DROP_SLOTS, Do.DROP_TOKEN):
                    raise
                LOG.error('The new key of volume %(volume)s can\'t be used. '
                          'The volume keeps its old key: %(error)s', {
                              'volume': self.volume.id, 'error': exc})
                failed = exc
            self.sweep()
        if failed:
            raise failed

    def key(self, token: luks_header.Token) -> bytes:
        """Return the key of a token's secret from the key manager."""
        if token.key not in self._keys:
            self._keys[token.key] = self.node.keys.get(
                token.key, token.key_format, self._named_after(token))
        return self._keys[token.key]

    def _named_after(self, token: luks_header.Token) -> str:
        return '' if token.key in self.shared else self.volume.id

    def _prove(self, token: luks_header.Token) -> bytes:
        """Test that a secret opens its slot, before the other key is removed.

        Fetch the secret again over a new login: the slot may have been made
        from a single wrong answer, and this answer opens the slot too.

        :raises KeyUnavailable: if the key manager does not answer
        :raises KeyRefused: if the secret does not exist
        :raises WrongKey: if the secret does not open the volume
        """
        key = self._keys[token.key] = self.node.keys.get_again(
            token.key, token.key_format, self._named_after(token))
        # A secret without a slot opens nothing.
        self.node.crypt.test(self.volume.id, key,
                             next(iter(token.keyslots), None))
        return key

    def _opening(self, token: luks_header.Token) -> bytes:
        """Return the key of a token, or the recovery key if it is lost."""
        return self.recovery if self._is_lost(token) else self.key(token)

    def _is_lost(self, token: luks_header.Token) -> bool:
        """Return whether the recovery key must replace a token's secret."""
        return bool(self.recovery) and not self._opens(token)

    # -- steps

    def _take(self, step: rotation_plan.Step) -> None:
        act = {Do.ADD_SLOT: self._add_slot, Do.ASSIGN: self._assign,
               Do.RECORD: self._record, Do.DROP_SLOTS: self._drop_slots,
               Do.DROP_TOKEN: self._drop_token}[step.do]
        act(step.token, step.by)

    def _add_slot(self, token: luks_header.Token,
                  by: luks_header.Token) -> None:
        self.node.crypt.add_key(
            self.volume.id, self._opening(by), self.key(token), token.slot,
            self.derivation)

    def _assign(self, token: luks_header.Token, by: luks_header.Token) -> None:
        try:
            self.node.crypt.test(self.volume.id, self.key(token), token.slot)
            token = dataclasses.replace(
                token, keyslots=(token.slot,), slot='')
        except encryption_exceptions.WrongKey:
            # Another key took the slot after the announcement.
            with in_words(self.volume.id):
                token = rotation_plan.announce_again(self.header, token)
        self._rewrite(token)

    def _record(self, token: luks_header.Token, by: luks_header.Token) -> None:
        volume_id = self.volume.id
        self._prove(token)
        self.node.keys.consume(token.key, 'volumes', volume_id)
        self._record_as(key=token.key)

    def _record_as(self, **changed: typing.Any) -> None:
        """Change the encryption in the volume's row."""
        recorded = dataclasses.replace(self.recorded, **changed)
        self.node.secrets.record(self.volume.id, recorded, self.recorded)
        self.recorded = recorded

    def _drop_slots(self, token: luks_header.Token,
                    by: luks_header.Token) -> None:
        stays = self.recovery if self._is_lost(by) else self._prove(by)
        outdate_backups(self.node, self.volume)
        for slot in rotation_plan.slots_of(self.header, token):
            self.node.crypt.kill_slot(self.volume.id, slot, stays)

    def _drop_token(self, token: luks_header.Token,
                    by: luks_header.Token) -> None:
        """Complete the rotation, and remove the old token last.

        The token records that this step is incomplete.
        """
        self.note_key()
        self._keep(by)
        outdate_backups(self.node, self.volume)
        stays = self._opening(by)
        replace_backups(self.node, self.volume, stays)
        self._let_go(token.key)
        self.node.crypt.remove_token(self.volume.id, token.number or '')
        back = token.replaces == self.recorded.key
        if self.recorded.shares_key and not back:
            # Last: until then the sweep of the node continues the change.
            self._record_as(shares_key=False)
        try:
            # A restored older backup would bring the token back.
            renew_backup(self.node, self.volume, stays)
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.warning('The last header backup of volume %(volume)s names a '
                        'deleted secret: %(error)s', {
                            'volume': self.volume.id, 'error': exc})

    # -- their parts

    def _keep(self, token: luks_header.Token) -> None:
        """Seal the key of the row's secret, and forget an older sealed key."""
        present = self.node.handles.survey()
        lv = present.lvs.get(self.volume.name)
        opened = lv is not None and names.OPENED in lv.tags
        if lv and not opened and present.crypt(self.volume.id):
            # Replace an older note, or a boot uses another secret.
            boot_notes.note_opened(self.node, lv, self.volume.id,
                                   self.recorded.key)
            opened = True
        keeps = opened and not self._is_lost(token)
        # Fetch the key first: the sealed key may be the last copy.
        key = self.key(token) if keeps else b''
        self.node.crypt.forget_sealed(self.volume.id)
        if keeps:
            self.node.crypt.seal(self.volume.id, self.recorded.key, key)

    def sweep(self) -> None:
        """Read the header again."""
        self.header = self.node.crypt.header(self.volume.id)

    def _rewrite(self, token: luks_header.Token) -> None:
        self.node.crypt.write_token(
            self.volume.id, token.number or '', str(token), replace=True)

    def note_key(self) -> None:
        """Set the recorded secret in the tags of the LV."""
        note_key(self.node, self.volume, self.recorded.key)

    def _in_use(self) -> set[str]:
        return self.node.secrets.secrets_in_use()

    def _let_go(self, key: str) -> None:
        """Release a secret, and remove it if nothing else uses it.

        A secret named by a snapshot's header stays. Only its volume prevents
        the deletion of this secret.
        """
        if any(recorded.key == key for _id, recorded in encrypted_snapshots(
                self.node, self.volume.id)):
            return
        self._release(key)
        if key not in self._in_use():
            self._remove_secret(key)

    def _release(self, key: str) -> None:
        with contextlib.suppress(encryption_exceptions.KeyRefused):
            self.node.keys.release(key, 'volumes', self.volume.id)

    def _remove_secret(self, key: str) -> None:
        self._release(key)
        try:
            self.node.keys.remove(
                key, self._deleted_owner(key) or self.volume.id)
        except encryption_exceptions.KeyRefused as exc:
            LOG.warning('Secret %(key)s of volume %(volume)s does not open '
                        'the volume any more, but could not be deleted: '
                        '%(error)s', {
                            'key': key, 'volume': self.volume.id,
                            'error': exc})

    def _deleted_owner(self, key: str) -> str:
        """Return the deleted volume after which a secret is named, or ''.

        A clone shared the secret of its image, which was deleted meanwhile.
        The secret of another volume stays: a header names it, and an enemy can
        write a header. A volume unknown here may belong to another cloud.
        """
        owner = self.node.keys.owner_of(key)
        known = self.node.volumes.last_known(owner) if owner else None
        return owner if known is not None and known.deleted else ''


def outdate_backups(node: Node, volume: Volume) -> None:
    """Note that header backups may soon have a removed key.

    If the caller is interrupted, the sweep of backups (:mod:`.header_backups`)
    replaces them.
    """
    outdate_backups_of(node, volume.name)


def outdate_backups_of(node: Node, lv: str) -> None:
    """Tag an LV: header backups of its volume may soon be outdated.

    In a revert it is the new LV of the volume. The tag is set even if no
    backup directory is configured, because an old directory may be configured
    again.
    """
    node.lvm.mark(lv, names.OUTDATED)


def replace_backups(node: Node, volume: Volume, key: bytes) -> None:
    """Replace the header backups, so none has a removed key.

    :param key: as for :func:`copy_header`
    :raises LocalCloneError: if an old backup remains. Without any backup the
        error is only logged, as in the creation of a volume
    """
    try:
        copy_header(node, volume, key)
    except (exceptions.LocalCloneError, OSError) as exc:
        if node.crypt.backup_names(volume.id):
            raise
        LOG.error('There is no backup of the header of volume %(volume)s: '
                  '%(error)s', {'volume': volume.id, 'error': exc})


def copy_header(node: Node, volume: Volume, key: bytes = b'') -> None:
    """Replace the backups of a volume's header.

    :param key: a key that opens the header; b'' for the recorded secret
    :raises ForeignHeader: if the header differs from the pin; the backups may
        be the only copies of the right header
    :raises WrongKey: if the key does not open the header; the backups stay
    :raises LocalCloneError: if the backups were not replaced
    """
    expected = pinning.recorded_in_row(volume.encryption)
    header = node.crypt.header(volume.id)
    pinning.check(volume.id, header, expected)
    node.crypt.renew_backup(volume.id, header, key or activate.key_of(
        node.crypt, node.keys, volume.id, header, expected))


def renew_backup(node: Node, volume: Volume, key: bytes = b'') -> None:
    """Replace the backups of a volume's header, and remove the mark.

    :param key: as for :func:`copy_header`
    :raises LocalCloneError: as for :func:`copy_header`
    """
    if not node.crypt.keeps_backups():
        return
    copy_header(node, volume, key)
    if is_outdated(node.lvm.lvs().get(volume.name)):
        node.lvm.unmark(volume.name, names.OUTDATED)


def is_outdated(lv: lvm_reports.LogicalVolume | None) -> bool:
    """Return whether header backups may have removed keys.

    :param lv: the LV of the volume
    """
    return lv is not None and names.OUTDATED in lv.tags


def note_key(node: Node, volume: Volume, key: str) -> None:
    """Set the tags of a volume's LV to exactly this secret.

    :param key: the reference of the secret
    """
    lv = node.lvm.lvs().get(volume.name)
    if lv is not None:
        boot_notes.set_secret_tags(node, lv, key)


def give_own_key(node: Node, volume: Volume) -> None:
    """Give a new local clone its own key; its handle exists.

    The caller holds the volume's lock.

    :param volume: its row, with the secret of its image
    :raises LocalCloneError: if a step failed; the volume must not be used then
    """
    recorded = volume.encryption
    if recorded is None:
        return
    header = node.crypt.header(volume.id)
    pinning.check(volume.id, header, pinning.recorded_in_row(recorded))
    wanted = _wanted(node, volume)
    if header.reencryption:
        # The re-encryption continues, and keys can't change before its end.
        # The consumer first: if the row is gone, it is released again.
        _share(node, volume.id, recorded.key)
        node.volumes.set_encryption(volume, dataclasses.replace(
            recorded, shares_key=recorded.key != wanted.shared_key))
        return
    # The image's re-encryption may have ended unrecorded.
    now = dataclasses.replace(
        pinning.after_reencryption(recorded, header), shares_key=False)
    if now != recorded:
        volume = node.volumes.set_encryption(volume, now)
    change = Change(node, volume)
    current = _strip(change)
    node.crypt.set_uuid(volume.id, volume.id)
    if current.key == wanted.shared_key:
        _share(node, volume.id, current.key)
        replace_backups(node, volume, change.key(current))
    else:
        _replace(change, current, wanted)
    change.note_key()
    node.crypt.note(volume.name, luks=volume.id)


def give_own_key_late(node: Node, volume_id: str) -> None:
    """Give a clone its own key at the end of its re-encryption.

    If a guest has the clone open, it stays open, and its LUKS UUID stays too.
    The next call completes an interrupted call. The caller holds the volume's
    lock.

    :raises NotAtRest: if another node may have the header open
    :raises KeyNotChanged: if the clone is being re-encrypted
    :raises LocalCloneError: if a step failed; the clone still shares the
        secret of its image
    """
    volume = at_rest.volume(node, volume_id)
    change = Change(node, volume)
    wanted = _wanted(node, volume)
    change.derivation = cryptsetup_cli.key_derivation(wanted)
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


def _give_uuid(node: Node, volume: Volume) -> None:
    """Give a clone its own LUKS UUID, unless it is in use.

    A clone begins with the UUID of its image. The next call completes an
    interrupted call.
    """
    if node.crypt.uuid(volume.id) != volume.id:
        if volume.volume_attachment:
            return
        present = node.handles.survey()
        if present.crypt(volume.id):
            if present.users(volume.id):
                return
            node.handles.close_upper(volume.id)
        node.crypt.set_uuid(volume.id, volume.id)
    lv = node.lvm.lvs().get(volume.name)
    recorded = volume.encryption
    if lv and recorded:
        boot_notes.set_secret_tags(node, lv, recorded.key, luks=volume.id)


def _wanted(node: Node, volume: Volume) -> volume_types.Encryption:
    """Return the encryption by the volume type.

    :raises KeyRefused: if the type has the secret of a volume
    """
    wanted = (node.volumes.wanted_encryption(volume)
              or volume_types.Encryption())
    if wanted.shared_key:
        node.keys.check_shared(wanted.shared_key)
    return wanted


def _replace(change: Change, current: luks_header.Token,
             wanted: volume_types.Encryption) -> None:
    """Replace the key of the image by the clone's own key.

    :param current: the token of the image's secret
    """
    change.derivation = cryptsetup_cli.key_derivation(wanted)
    key = wanted.shared_key or change.node.keys.create(
        change.volume.id, wanted.key_format)
    change.shared |= {wanted.shared_key}
    change.announce(_token(change, current, key, wanted))
    change.go_on()


def _current(change: Change) -> luks_header.Token:
    """Return the token of the recorded secret.

    :raises KeyNotChanged: if the header has none
    """
    for token in change.header.tokens_with_role(luks_header.Role.VOLUME):
        if token.key == change.recorded.key:
            return token
    raise encryption_exceptions.KeyNotChanged(
        volume=change.volume.id, reason='its header has no key slot of its '
        'recorded secret')


def _share(node: Node, volume_id: str, key: str) -> None:
    """Register a volume as a consumer of a shared secret."""
    try:
        node.keys.consume(key, 'volumes', volume_id)
    except exceptions.LocalCloneError as exc:
        LOG.warning('Only Cinder\'s database protects secret %(key)s of '
                    'volume %(volume)s from deletion: %(error)s', {
                        'key': key, 'volume': volume_id, 'error': exc})


def _strip(change: Change) -> luks_header.Token:
    """Remove all keys of a new clone except the recorded secret's.

    The secrets of other tokens are unknown here: a key rotation of the source
    may be running.

    :returns: the token of the recorded secret
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
    change.sweep()
    return alone


def _token(change: Change, current: luks_header.Token, key: str,
           wanted: volume_types.Encryption) -> luks_header.Token:
    """Return the token that announces the clone's own key."""
    return luks_header.Token(
        key=key, key_format=wanted.key_format,
        shared=bool(wanted.shared_key),
        number=rotation_plan.free_token(change.header),
        slot=rotation_plan.free_slot(change.header), replaces=current.key)
