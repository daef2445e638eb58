# SPDX-License-Identifier: Apache-2.0
"""Rotation of a volume's key; a key of its own for a local clone.

The steps are those of :mod:`.rotation_plan`. Header and row show which steps
are done, so an interrupted rotation continues when it is requested again. At
each moment a secret that the header names opens the volume, and so does the
secret that the row names.

A local clone has the header of its image, with all keys. Before a user gets
the clone, its keys and LUKS UUID are replaced: a user who can open one of the
two volumes, or has its header backups, can't open the other. The data's key
stays until the clone is re-encrypted. An interrupted creation is removed with
its secret, which has the name of the clone.

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
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import rotation_plan

LOG = logging.getLogger(__name__)

Do = rotation_plan.Do


@rpc.method('encryption_rotate', rpc.HOME, times=2, local={'recovery': None},
            expected=(encryption_exceptions.KeyNotChanged,
                      encryption_exceptions.NotAtRest))
def rotate(node: Node, volume_id: str,
           recovery: Callable[[luks_header.Header], bytes] | None = None
           ) -> list[str]:
    """Give a volume another key; who has it open keeps it open.

    What an earlier call has left undone comes first. If that has brought
    another key already, it was this that was asked for.

    :param recovery: which opens it by a recovery key, if its secret is lost
    :returns: what the old key still opens, in words
    :raises NotAtRest: if anybody else may have its header open
    :raises KeyNotChanged: if its key can't be replaced
    :raises LocalCloneError: if a step failed: to be asked for again
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
        remarks += left_behind(node)
    LOG.info('The key of volume %s was changed.', volume_id)
    return remarks


def left_behind(node: Node) -> list[str]:
    """Return remarks on what is left where backups and keys were kept before.

    See :meth:`.crypt.Crypt.former_directories`.
    """
    return ['%s, a former directory of this node, may have the old key, or '
            'header backups that it opens: remove them there' % path
            for path in node.crypt.former_directories()]


def encrypted_snapshots(node: Node, volume_id: str
                        ) -> Iterator[tuple[str, volume_types.Recorded]]:
    """Yield the snapshots of a volume that have a header, of their own time.

    :returns: ids, with what their rows say
    """
    for snapshot in node.snapshots.snapshots_of(volume_id):
        recorded = rows.recorded(snapshot)
        if recorded:
            yield snapshot.id, recorded


def is_pending(header: luks_header.Header, recorded: str) -> bool:
    """Whether a change of a volume's key is not complete.

    :param recorded: reference of the secret that the volume's row names
    """
    try:
        return rotation_plan.next_step(header, recorded) is not None
    except rotation_plan.CannotRotate:
        return False


@contextlib.contextmanager
def in_words(volume_id: str) -> Iterator[None]:
    """What the planner says comes as an error of the driver's.

    :raises KeyNotChanged: if it says no
    """
    try:
        yield
    except rotation_plan.CannotRotate as exc:
        raise encryption_exceptions.KeyNotChanged(volume=volume_id, reason=exc)


class Change:
    """The change of one volume's key, of which there may be a part already.

    The volume's lock is held, and nobody else has its header open.

    :param volume: its row
    :raises KeyNotChanged: if its header may not be written
    """

    def __init__(self, node: Node, volume: objects.Volume):
        found = rows.recorded(volume)
        if found is None:
            raise encryption_exceptions.KeyNotChanged(
                volume=volume.id, reason='this driver does not encrypt it')
        self.node = node
        self.volume = volume
        self.recorded: volume_types.Recorded = found
        self.header = at_rest.to_change(node, volume)
        #: How long whoever guesses the new key has to work for each guess.
        self.derivation = cryptsetup_cli.RANDOM_KEY
        #: What opens it, as the key manager gives it, by reference.
        self._keys: dict[str, bytes] = {}
        #: Secrets that are used though the key manager does not name them
        #: after the volume: Cinder's row, or the volume's type, names them.
        self.shared = {found.key}
        #: What opens it, too, if that is lost; b'' for nothing.
        self.recovery = b''

    def begin(self) -> None:
        """A new secret is stored, and announced.

        :raises KeyNotChanged: if it can't be now
        :raises LocalCloneError: if neither the old one nor a recovery key
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
        """Write down whose slot is about to be made."""
        self.node.crypt.write_token(
            self.volume.id, token.number or '', str(token))
        self.sweep()

    def drop_unknown_secrets(self) -> None:
        """Those of the volume's name that neither header nor row names.

        A call has left them that did not live to announce them, or a
        snapshot that has gone since. Not every key manager lists secrets.
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
        """What was recorded is lost, and what it replaces is not yet.

        The former is recorded again then: it goes on opening the volume.
        """
        current = next((token for token in self.header.opened_by(
            luks_header.Role.VOLUME) if token.key == self.recorded.key), None)
        former = next((token for token in self.header.opened_by(
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
        """Take all steps that are left.

        If the new key turns out to be no good before it is recorded, the old
        one stays.

        :raises LocalCloneError: if a step failed, or there was no way but
            back
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
        """What a token's secret opens, from the key manager."""
        if token.key not in self._keys:
            self._keys[token.key] = self.node.keys.get(
                token.key, token.key_format, self._named_after(token))
        return self._keys[token.key]

    def _named_after(self, token: luks_header.Token) -> str:
        return '' if token.key in self.shared else self.volume.id

    def _prove(self, token: luks_header.Token) -> bytes:
        """Prove that a secret opens its slot, before another one goes.

        The key manager is asked for it over a new login: the slot may have
        been made of one wrong answer, which opens it as well.

        :raises KeyUnavailable: if there is no answer
        :raises KeyRefused: if there is no such secret
        :raises WrongKey: if it does not open the volume
        """
        key = self._keys[token.key] = self.node.keys.get_again(
            token.key, token.key_format, self._named_after(token))
        # Without a slot it opens nothing.
        self.node.crypt.test(self.volume.id, key,
                             next(iter(token.keyslots), None))
        return key

    def _opening(self, token: luks_header.Token) -> bytes:
        """What a token's secret opens; if that is lost, the recovery key."""
        return self.recovery if self._is_lost(token) else self.key(token)

    def _is_lost(self, token: luks_header.Token) -> bool:
        """Whether a recovery key has to open what a token's secret did."""
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
            # It is somebody else's, since the moment of the announcement.
            with in_words(self.volume.id):
                token = rotation_plan.announce_again(self.header, token)
        self._rewrite(token)

    def _record(self, token: luks_header.Token, by: luks_header.Token) -> None:
        volume_id = self.volume.id
        self._prove(token)
        self.node.keys.consume(token.key, 'volumes', volume_id)
        self._record_as(key=token.key)

    def _record_as(self, **changed: typing.Any) -> None:
        """Change what the volume's row says."""
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
        """The token is the trace of what is left to do until that is done."""
        self.note_key()
        self._keep(by)
        outdate_backups(self.node, self.volume)
        stays = self._opening(by)
        replace_backups(self.node, self.volume, stays)
        self._let_go(token.key)
        self.node.crypt.remove_token(self.volume.id, token.number or '')
        back = token.replaces == self.recorded.key
        if self.recorded.shares_key and not back:
            # Last: until then the node's check goes on with the change.
            self._record_as(shares_key=False)
        try:
            # Else whoever restores it would have that trace again.
            renew_backup(self.node, self.volume, stays)
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.warning('The last header backup of volume %(volume)s names a '
                        'secret that does not exist any more: %(error)s', {
                            'volume': self.volume.id, 'error': exc})

    # -- their parts

    def _keep(self, token: luks_header.Token) -> None:
        """What a node keeps of a key is that of the volume's row."""
        present = self.node.handles.survey()
        lv = present.lvs.get(self.volume.name)
        opened = lv is not None and names.OPENED in lv.tags
        if lv and not opened and present.crypt(self.volume.id):
            # Else a boot goes by an older note, which names another secret.
            devices.note_opened(self.node, lv, self.volume.id,
                                self.recorded.key)
            opened = True
        keeps = opened and not self._is_lost(token)
        # It may be all that there is of a key: first there is another.
        key = self.key(token) if keeps else b''
        self.node.crypt.forget_sealed(self.volume.id)
        if keeps:
            self.node.crypt.seal(self.volume.id, self.recorded.key, key)

    def sweep(self) -> None:
        """See what the header says by now."""
        self.header = self.node.crypt.header(self.volume.id)

    def _rewrite(self, token: luks_header.Token) -> None:
        self.node.crypt.write_token(
            self.volume.id, token.number or '', str(token), replace=True)

    def note_key(self) -> None:
        """The LV's tags name the secret that the row names."""
        note_key(self.node, self.volume, self.recorded.key)

    def _in_use(self) -> set[str]:
        return self.node.secrets.secrets_in_use()

    def _let_go(self, key: str) -> None:
        """The volume uses a secret no more; nor does anything else, perhaps.

        A snapshot's header is of its own time, and nobody but its volume
        keeps its secret from being deleted.
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
            self.node.keys.remove(key, self.volume.id)
        except encryption_exceptions.KeyRefused as exc:
            LOG.warning('Secret %(key)s of volume %(volume)s does not open '
                        'the volume any more, but could not be deleted: '
                        '%(error)s', {
                            'key': key, 'volume': self.volume.id,
                            'error': exc})


def outdate_backups(node: Node, volume: objects.Volume) -> None:
    """Note that a key is about to go, which backups of the header may have.

    Whatever becomes of whoever does that, this node's look at backups
    (:mod:`.header_backups`) replaces them.
    """
    devices.outdate_backups_of(node, volume.name)


def replace_backups(node: Node, volume: objects.Volume, key: bytes
                    ) -> None:
    """No backup that can be seen has keys that the header has not.

    :param key: as of :func:`copy_header`
    :raises LocalCloneError: if one may have. Where there is none, and none
        can be made, that is only logged, as when a volume is created
    """
    try:
        copy_header(node, volume, key)
    except (exceptions.LocalCloneError, OSError) as exc:
        if node.crypt.backup_names(volume.id):
            raise
        LOG.error('There is no backup of the header of volume %(volume)s: '
                  '%(error)s', {'volume': volume.id, 'error': exc})


def copy_header(node: Node, volume: objects.Volume, key: bytes = b''
                ) -> None:
    """Replace backups of a volume's header.

    :param key: what opens it; b'': what its row, and the key manager, say
    :raises ForeignHeader: if its header is not the one that its row has
        pinned: the backups may be all that is left of that one
    :raises WrongKey: if the key does not open it: likewise
    :raises LocalCloneError: if it is not done
    """
    expected = pinning.of_row(rows.recorded(volume))
    header = node.crypt.header(volume.id)
    pinning.check(volume.id, header, expected)
    node.crypt.renew_backup(volume.id, header, key or activate.key_of(
        node.crypt, node.keys, volume.id, header, expected))


def renew_backup(node: Node, volume: objects.Volume, key: bytes = b''
                 ) -> None:
    """Replace backups of a volume's header, and note that it is done.

    :param key: as of :func:`copy_header`
    :raises LocalCloneError: as :func:`copy_header`
    """
    if not node.crypt.keeps_backups():
        return
    copy_header(node, volume, key)
    if is_outdated(node.lvm.lvs().get(volume.name)):
        node.crypt.unmark(volume.name, names.OUTDATED)


def is_outdated(lv: lvm_reports.LogicalVolume | None) -> bool:
    """Whether backups of a volume's header may have keys that have gone.

    :param lv: of the volume
    """
    return lv is not None and names.OUTDATED in lv.tags


def note_key(node: Node, volume: objects.Volume, key: str) -> None:
    """The tags of a volume's LV name a secret, and no other.

    :param key: its reference
    """
    lv = node.lvm.lvs().get(volume.name)
    if lv is not None:
        devices.name_secret(node, lv, key)


def give_own_key(node: Node, volume: objects.Volume) -> None:
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

    A guest that has the clone open keeps it open; then the LUKS UUID stays.
    A call that was cut off is finished by the next one. For a caller that
    holds the volume's lock.

    :raises NotAtRest: if anybody else may have its header open
    :raises KeyNotChanged: if it is being re-encrypted
    :raises LocalCloneError: if a step failed; the clone shares the secret of
        its image as before
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


def _give_uuid(node: Node, volume: objects.Volume) -> None:
    """Give a volume's header its own LUKS UUID, unless it is in use.

    That of a clone is its image's at first. A call that was cut off is
    finished by the next one.
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
    recorded = rows.recorded(volume)
    if lv and recorded:
        devices.name_secret(node, lv, recorded.key, luks=volume.id)


def _wanted(node: Node, volume: objects.Volume
            ) -> volume_types.Encryption:
    """:raises KeyRefused: if its type has the secret of a volume"""
    wanted = (node.volumes.wanted_encryption(volume)
              or volume_types.Encryption())
    if wanted.shared_key:
        node.keys.check_shared(wanted.shared_key)
    return wanted


def _set(node: Node, volume: objects.Volume,
         recorded: volume_types.Recorded) -> objects.Volume:
    """Change the row of a volume that is being created."""
    if recorded == rows.recorded(volume):
        return volume
    return node.volumes.set_encryption(volume, recorded)


def _replace(change: Change, current: luks_header.Token,
             wanted: volume_types.Encryption) -> None:
    """Replace the key of the image by another one.

    :param current: the token of the image's secret
    """
    change.derivation = cryptsetup_cli.key_derivation(wanted)
    key = wanted.shared_key or change.node.keys.create(
        change.volume.id, wanted.key_format)
    change.shared |= {wanted.shared_key}
    change.announce(_token(change, current, key, wanted))
    change.go_on()


def _current(change: Change) -> luks_header.Token:
    """Return the token of the secret that the row names.

    :raises KeyNotChanged: if the header has none
    """
    for token in change.header.opened_by(luks_header.Role.VOLUME):
        if token.key == change.recorded.key:
            return token
    raise encryption_exceptions.KeyNotChanged(
        volume=change.volume.id, reason='its header has no key of the secret '
        'that its row names')


def _share(node: Node, volume_id: str, key: str) -> None:
    """The key manager knows that a volume has a secret of others, too."""
    try:
        node.keys.consume(key, 'volumes', volume_id)
    except exceptions.LocalCloneError as exc:
        LOG.warning('Nothing but the database keeps secret %(key)s of volume '
                    '%(volume)s from being deleted: %(error)s', {
                        'key': key, 'volume': volume_id, 'error': exc})


def _strip(change: Change) -> luks_header.Token:
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
    change.sweep()
    return alone


def _token(change: Change, current: luks_header.Token, key: str,
           wanted: volume_types.Encryption) -> luks_header.Token:
    """The announcement of a newborn's own key."""
    return luks_header.Token(
        key=key, key_format=wanted.key_format,
        shared=bool(wanted.shared_key),
        number=rotation_plan.free_token(change.header),
        slot=rotation_plan.free_slot(change.header), replaces=current.key)
