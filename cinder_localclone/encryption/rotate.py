# SPDX-License-Identifier: Apache-2.0
"""Replacing the key of a volume that the driver encrypts.

In the order of :mod:`.luks.rotation`: every step is found done, or not, in
the header and in the volume's row, so a change that was cut off goes on when
it is asked for again. At every moment a secret that the header names opens
the volume, and so does the one that the row names.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import typing

from oslo_log import log as logging

from cinder_localclone import crypt_tops
from cinder_localclone import decrypting
from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone import headers_at_rest
from cinder_localclone.luks import headers
from cinder_localclone.luks import options
from cinder_localclone.luks import rotation
from cinder_localclone.luks import tokens
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import node as nodes
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import rows

LOG = logging.getLogger(__name__)

Do = rotation.Do


def rotate(node: nodes.Node, volume_id: str,
           recovery: Callable[[headers.Header], bytes] | None = None
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
        change = Change(node, headers_at_rest.volume(node, volume_id))
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


def left_behind(node: nodes.Node) -> list[str]:
    """Return remarks on what is left where backups and keys were kept before.

    See :meth:`.crypt_ports.Crypt.former_directories`.
    """
    return ['%s, a former directory of this node, may have the old key, or '
            'header backups that it opens: remove them there' % path
            for path in node.crypt.former_directories()]


def encrypted_snapshots(node: nodes.Node, volume_id: str
                        ) -> Iterator[tuple[str, encryption_types.Recorded]]:
    """Yield the snapshots of a volume that have a header, of their own time.

    :returns: ids, with what their rows say
    """
    for snapshot in node.snapshots.snapshots_of(volume_id):
        recorded = rows.recorded(snapshot)
        if recorded:
            yield snapshot.id, recorded


def is_pending(header: headers.Header, recorded: str) -> bool:
    """Whether a change of a volume's key is not complete.

    :param recorded: reference of the secret that the volume's row names
    """
    try:
        return rotation.next_step(header, recorded) is not None
    except rotation.CannotRotate:
        return False


@contextlib.contextmanager
def in_words(volume_id: str) -> Iterator[None]:
    """What the planner says comes as an error of the driver's.

    :raises KeyNotChanged: if it says no
    """
    try:
        yield
    except rotation.CannotRotate as exc:
        raise encryption_errors.KeyNotChanged(volume=volume_id, reason=exc)


class Change:
    """The change of one volume's key, of which there may be a part already.

    The volume's lock is held, and nobody else has its header open.

    :param volume: its row
    :raises KeyNotChanged: if its header may not be written
    """

    def __init__(self, node: nodes.Node, volume: ports.Volume):
        found = rows.recorded(volume)
        if found is None:
            raise encryption_errors.KeyNotChanged(
                volume=volume.id, reason='this driver does not encrypt it')
        self.node = node
        self.volume = volume
        self.recorded: encryption_types.Recorded = found
        self.header = headers_at_rest.to_change(node, volume)
        #: How long whoever guesses the new key has to work for each guess.
        self.derivation = options.RANDOM_KEY
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
                      else encryption_types.KeyFormat.HEX)
        with in_words(self.volume.id):
            token = rotation.announce(
                self.header, self.recorded.key, '', key_format)
        if current:
            self.node.crypt.test(self.volume.id, self._opening(current))
        self.announce(dataclasses.replace(
            token, key=self.node.keys.create(self.volume.id, key_format)))

    def announce(self, token: tokens.Token) -> None:
        """Write down whose slot is about to be made."""
        self.node.crypt.write_token(
            self.volume.id, token.number or '', str(token))
        self.look()

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
            tokens.Role.VOLUME) if token.key == self.recorded.key), None)
        former = next((token for token in self.header.opened_by(
            tokens.Role.VOLUME) if current is not None
            and token.key == current.replaces), None)
        if current and former and not self._opens(current) and (
                self._opens(former)):
            LOG.error('Secret %(key)s of volume %(volume)s is lost: the '
                      'volume uses its previous secret again.', {
                          'key': current.key, 'volume': self.volume.id})
            self._record(former, current)

    def _opens(self, token: tokens.Token) -> bool:
        try:
            self.node.crypt.test(self.volume.id, self.key(token))
        except (encryption_errors.KeyRefused, encryption_errors.WrongKey):
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
                step = rotation.next_step(
                    self.header, self.recorded.key, failed is not None)
            if step is None:
                break
            try:
                self._take(step)
            except (encryption_errors.KeyRefused,
                    encryption_errors.WrongKey) as exc:
                if step.do in (Do.DROP_SLOTS, Do.DROP_TOKEN):
                    raise
                LOG.error('The new key of volume %(volume)s can\'t be used. '
                          'The volume keeps its old key: %(error)s', {
                              'volume': self.volume.id, 'error': exc})
                failed = exc
            self.look()
        if failed:
            raise failed

    def key(self, token: tokens.Token) -> bytes:
        """What a token's secret opens, from the key manager."""
        if token.key not in self._keys:
            self._keys[token.key] = self.node.keys.get(
                token.key, token.key_format, self._named_after(token))
        return self._keys[token.key]

    def _named_after(self, token: tokens.Token) -> str:
        return '' if token.key in self.shared else self.volume.id

    def _prove(self, token: tokens.Token) -> bytes:
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

    def _opening(self, token: tokens.Token) -> bytes:
        """What a token's secret opens; if that is lost, the recovery key."""
        return self.recovery if self._is_lost(token) else self.key(token)

    def _is_lost(self, token: tokens.Token) -> bool:
        """Whether a recovery key has to open what a token's secret did."""
        return bool(self.recovery) and not self._opens(token)

    # -- steps

    def _take(self, step: rotation.Step) -> None:
        act = {Do.ADD_SLOT: self._add_slot, Do.ASSIGN: self._assign,
               Do.RECORD: self._record, Do.DROP_SLOTS: self._drop_slots,
               Do.DROP_TOKEN: self._drop_token}[step.do]
        act(step.token, step.by)

    def _add_slot(self, token: tokens.Token, by: tokens.Token) -> None:
        self.node.crypt.add_key(
            self.volume.id, self._opening(by), self.key(token), token.slot,
            self.derivation)

    def _assign(self, token: tokens.Token, by: tokens.Token) -> None:
        try:
            self.node.crypt.test(self.volume.id, self.key(token), token.slot)
            token = dataclasses.replace(
                token, keyslots=(token.slot,), slot='')
        except encryption_errors.WrongKey:
            # It is somebody else's, since the moment of the announcement.
            with in_words(self.volume.id):
                token = rotation.announce_again(self.header, token)
        self._rewrite(token)

    def _record(self, token: tokens.Token, by: tokens.Token) -> None:
        volume_id = self.volume.id
        self._prove(token)
        self.node.keys.consume(token.key, 'volumes', volume_id)
        self._record_as(key=token.key)

    def _record_as(self, **changed: typing.Any) -> None:
        """Change what the volume's row says."""
        recorded = dataclasses.replace(self.recorded, **changed)
        self.node.secrets.record(self.volume.id, recorded, self.recorded)
        self.recorded = recorded

    def _drop_slots(self, token: tokens.Token, by: tokens.Token) -> None:
        stays = self.recovery if self._is_lost(by) else self._prove(by)
        outdate_backups(self.node, self.volume)
        for slot in rotation.slots_of(self.header, token):
            self.node.crypt.kill_slot(self.volume.id, slot, stays)

    def _drop_token(self, token: tokens.Token, by: tokens.Token) -> None:
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

    def _keep(self, token: tokens.Token) -> None:
        """What a node keeps of a key is that of the volume's row."""
        present = self.node.stack.survey()
        lv = present.lvs.get(self.volume.name)
        opened = lv is not None and names.OPENED in lv.tags
        if lv and not opened and present.crypt(self.volume.id):
            # Else a boot goes by an older note, which names another secret.
            crypt_tops.note_opened(self.node, lv, self.volume.id,
                                   self.recorded.key)
            opened = True
        keeps = opened and not self._is_lost(token)
        # It may be all that there is of a key: first there is another.
        key = self.key(token) if keeps else b''
        self.node.crypt.forget_sealed(self.volume.id)
        if keeps:
            self.node.crypt.seal(self.volume.id, self.recorded.key, key)

    def look(self) -> None:
        """See what the header says by now."""
        self.header = self.node.crypt.header(self.volume.id)

    def _rewrite(self, token: tokens.Token) -> None:
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
        with contextlib.suppress(encryption_errors.KeyRefused):
            self.node.keys.release(key, 'volumes', self.volume.id)

    def _remove_secret(self, key: str) -> None:
        self._release(key)
        try:
            self.node.keys.remove(key, self.volume.id)
        except encryption_errors.KeyRefused as exc:
            LOG.warning('Secret %(key)s of volume %(volume)s does not open '
                        'the volume any more, but could not be deleted: '
                        '%(error)s', {
                            'key': key, 'volume': self.volume.id,
                            'error': exc})


def outdate_backups(node: nodes.Node, volume: ports.Volume) -> None:
    """Note that a key is about to go, which backups of the header may have.

    Whatever becomes of whoever does that, this node's look at backups
    (:mod:`.header_backups`) replaces them.
    """
    outdate_backups_of(node, volume.name)


def outdate_backups_of(node: nodes.Node, lv: str) -> None:
    """The same, of an LV that is about to become a volume's.

    Also where no backups are kept now: there may be some of before, in a
    directory that is configured again one day.
    """
    node.crypt.mark(lv, names.OUTDATED)


def replace_backups(node: nodes.Node, volume: ports.Volume, key: bytes
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


def copy_header(node: nodes.Node, volume: ports.Volume, key: bytes = b''
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
    node.crypt.renew_backup(volume.id, header, key or decrypting.key_of(
        node.crypt, node.keys, volume.id, header, expected))


def renew_backup(node: nodes.Node, volume: ports.Volume, key: bytes = b''
                 ) -> None:
    """Replace backups of a volume's header, and note that it is done.

    :param key: as of :func:`copy_header`
    :raises LocalCloneError: as :func:`copy_header`
    """
    if not node.crypt.keeps_backups():
        return
    copy_header(node, volume, key)
    if is_outdated(node.stack.lvs().get(volume.name)):
        node.crypt.unmark(volume.name, names.OUTDATED)


def is_outdated(lv: reports.LogicalVolume | None) -> bool:
    """Whether backups of a volume's header may have keys that have gone.

    :param lv: of the volume
    """
    return lv is not None and names.OUTDATED in lv.tags


def note_key(node: nodes.Node, volume: ports.Volume, key: str) -> None:
    """The tags of a volume's LV name a secret, and no other.

    :param key: its reference
    """
    lv = node.stack.lvs().get(volume.name)
    if lv is not None:
        crypt_tops.name_secret(node, lv, key)
