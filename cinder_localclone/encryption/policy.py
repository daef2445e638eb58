# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts: how they begin, and how they end.

A header is made once in a volume's life, of an LV that the same call has
created. Nothing else here or anywhere formats anything: what looks as if it
had no header may have one that can't be read at the moment.
"""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import dataclasses

from oslo_log import log as logging

from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone.luks import integrity
from cinder_localclone.luks import options
from cinder_localclone.luks import tokens
from cinder_localclone import manage_errors
from cinder_localclone.moves import checks
from cinder_localclone import names
from cinder_localclone import newborns
from cinder_localclone import node as nodes
from cinder_localclone import pinning
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import state

LOG = logging.getLogger(__name__)

#: The only slot, and the only token, of a new header.
FIRST = '0'
#: How often its key slots are emptied, if that fails, when a volume goes.
TRIES = 3


def wanted(node: nodes.Node, volume: ports.Volume
           ) -> encryption_types.Encryption | None:
    """How a new volume is to be encrypted by this driver, by its type.

    :raises InvalidEncryptionType: if it can't be
    :raises InvalidPaceType: if the type says nonsense of its copies
    """
    try:
        found = node.snapshots.wanted_encryption(volume, new=True)
    except encryption_types.InvalidType as exc:
        raise invalid(volume, exc)
    if found and found.authenticated and not node.authenticates:
        raise encryption_errors.InvalidEncryptionType(
            volume=volume.id, reason='%sintegrity is experimental, and '
            'localclone_authenticated is not set on %s' % (
                encryption_types.PREFIX, node.host))
    return found


def invalid(volume: ports.Volume, why: encryption_types.InvalidType
            ) -> exceptions.LocalCloneError:
    """The error of a type of which no volume can be."""
    kind = (encryption_errors.InvalidPaceType
            if isinstance(why, encryption_types.InvalidPace)
            else encryption_errors.InvalidEncryptionType)
    return kind(volume=volume.id, reason=why)


# -- create

def create(node: nodes.Node, volume: ports.Volume,
           encryption: encryption_types.Encryption) -> None:
    """Create an encrypted volume: secret, LV, handle, header.

    The secret is on record before there is anything that it opens, and a
    repeated call uses it.

    :raises TooLate: if it is not to be created here (any more)
    :raises AlreadyThere: as :func:`.newborns.being_created`
    :raises KeyUnavailable: if the key manager does not answer; there is no
        LV then, and the secret, if there is one, is on record
    :raises LocalCloneError: if something else fails; nothing is left then
    """
    with node.lock(volume.id):
        volume = newborns.being_created(node, volume.id)
        try:
            volume = _with_secret(node, volume, encryption)
            # As the key manager gives it back: that opens it again, then.
            key = node.keys.get(_recorded(volume).key, encryption.key_format)
            if encryption.authenticated:
                _check_room(node, volume)
            _create_lv(node, volume)
            _create_header(node, volume, encryption, key)
            volume = _with_pin(node, volume, encryption)
            if encryption.zeroed:
                _zero(node, volume, key)
        except encryption_errors.KeyUnavailable:
            newborns.remove_failed(node, volume)
            raise
        except Exception:
            newborns.remove_failed(node, volume)
            give_back(node, volume)
            raise


def give_back(node: nodes.Node, volume: ports.Volume) -> None:
    """The secret of what was not created goes: Cinder may try another node,
    or its owner may delete the row without any.

    Unless somebody creates it by now, who reads the row when he begins.
    """
    try:
        row = node.records.volume(volume.id)
        recorded = rows.recorded(row or volume)
        if recorded is None or row and row.host != volume.host:
            return
        if row is None:
            forget(node, [volume.id], recorded, key_of_type(node, volume))
            return
        node.snapshots.set_encryption(
            row, dataclasses.replace(
                recorded, key='', pin=None, becoming=None))
        _drop_here(node, volume.id)
        # By now it may be created elsewhere, with another secret, or with the
        # same one if that is its type's: so only its own goes, which the row
        # has named.
        if recorded.key in ('', key_of_type(node, row)):
            return
        _attempt(volume.id, 'use of its secret', node.keys.release,
                 recorded.key, 'volumes', volume.id)
        if recorded.key not in node.secrets.secrets_in_use([volume.id]):
            node.keys.remove(recorded.key)
    except Exception as exc:  # must not hide why it was not created
        LOG.error('The secret of volume %(volume)s, which could not be '
                  'created, stays in the key manager until the volume is '
                  'created or deleted: '
                  '%(error)s', {'volume': volume.id, 'error': exc})


def _recorded(volume: ports.Volume) -> encryption_types.Recorded:
    found = rows.recorded(volume)
    if found is None:
        raise exceptions.TooLate(what='Volume ' + volume.id)
    return found


def _with_secret(node: nodes.Node, volume: ports.Volume,
                 encryption: encryption_types.Encryption) -> ports.Volume:
    """The row says how much longer the body is, and names the secret."""
    if encryption.shared_key:
        node.keys.check_shared(encryption.shared_key)
    recorded = encryption_types.Recorded(
        _layout(volume, encryption).extra_bytes, encryption.shared_key,
        not encryption.authenticated)
    before = rows.recorded(volume)
    if before and before.key and not encryption.shared_key:
        if before.key in node.secrets.secrets_in_use([volume.id]):
            # That of an image, which could not be cloned.
            node.keys.release(before.key, 'volumes', volume.id)
        else:  # of a call that was not answered, or on another node
            recorded = dataclasses.replace(recorded, key=before.key)
    volume = node.snapshots.set_encryption(volume, recorded)
    if not recorded.key:
        recorded = dataclasses.replace(recorded, key=node.keys.create(
            volume.id, encryption.key_format))
        volume = node.snapshots.set_encryption(volume, recorded)
    node.keys.consume(recorded.key, 'volumes', volume.id)
    return volume


def _layout(volume: ports.Volume, encryption: encryption_types.Encryption
            ) -> integrity.Layout:
    return integrity.layout(encryption, state.body_bytes(volume.size))


def _check_room(node: nodes.Node, volume: ports.Volume) -> None:
    """All of an authenticated volume is written, also of a thin one.

    :raises NoFreeSpace: if there is no room for that
    """
    lack = node.stack.free_space().lacks(rows.body_bytes(volume), 0)
    if lack:
        raise exceptions.NoFreeSpace(
            host=node.host, size=volume.size, reason=lack)


def _create_header(node: nodes.Node, volume: ports.Volume,
                   encryption: encryption_types.Encryption, key: bytes
                   ) -> None:
    """The only place where one is made."""
    node.stack.ensure_handle_on_lv(
        volume.id, volume.name, rows.body_bytes(volume))
    node.crypt.format(
        volume.id, options.new_header(
            encryption, volume.id,
            _layout(volume, encryption).offset_bytes), key)
    node.crypt.write_token(volume.id, FIRST, str(tokens.Token(
        key=_recorded(volume).key, key_format=encryption.key_format,
        shared=bool(encryption.shared_key), keyslots=(FIRST,))))
    node.crypt.note(volume.name, luks=volume.id)
    node.crypt.back_up(volume.id)
    node.crypt.test(volume.id, key)


def _with_pin(node: nodes.Node, volume: ports.Volume,
              encryption: encryption_types.Encryption) -> ports.Volume:
    """Have the row pin the header that was made just now.

    :raises ForeignHeader: if that is not as it was asked for
    """
    header = node.crypt.header(volume.id)
    recorded = dataclasses.replace(_recorded(volume), pin=pinning.pin(
        encryption, _layout(volume, encryption).offset_bytes, header.digest))
    pinning.check(volume.id, header, pinning.of_row(recorded))
    return node.snapshots.set_encryption(volume, recorded)


def _create_lv(node: nodes.Node, volume: ports.Volume) -> None:
    newborns.make(node, volume)
    node.crypt.note(volume.name, key=_recorded(volume).key)
    node.crypt.mark(volume.name, names.FRESH)


def _zero(node: nodes.Node, volume: ports.Volume, key: bytes) -> None:
    """All of a new volume reads as zeros, not as noise."""
    node.crypt.open(volume.id, key)
    try:
        found, size = node.crypt.size(volume.id), state.body_bytes(
            volume.size)
        if found != size:
            raise encryption_errors.OddSize(
                volume=volume.id, found=found, wanted=size)
        node.crypt.zero(volume.name, volume.id,
                        slow=rows.is_authenticated(volume))
    finally:
        node.crypt.close(volume.id)
    node.crypt.unmark(volume.name, names.FRESH)


# -- what is fresh reads as noise

def check_not_fresh(node: nodes.Node, volume: ports.Volume,
                    host: str | None) -> None:
    """Who leaves out zeros, because a volume is new, would restore noise.

    :raises WouldReadNoise: if it is
    """
    # Of what is being created only a backup that becomes a volume is written.
    if (volume.status not in ('creating', 'restoring-backup')
            or rows.recorded(volume) is None):
        return
    lv = node.stack.lvs().get(volume.name)
    if lv and names.FRESH in lv.tags:
        raise encryption_errors.WouldReadNoise(
            volume=volume.id, host=host, reason='ranges of it that were never '
            'written do not read as zeros, and a restore leaves zeros out. '
            'Restore to a volume of another type, or of a type with '
            '%szeroed=true.'
            % encryption_types.PREFIX)


# -- retype

def check_retype(node: nodes.Node, volume: ports.Volume,
                 extra_specs: dict[str, str]) -> None:
    """A retype changes nothing that is in a header.

    :param extra_specs: of the new type
    :raises EncryptionChange: if it would
    :raises InvalidEncryptionType: if no volume can be of the new type
    :raises InvalidPaceType: the same, for its pace
    """
    try:
        after = encryption_types.parse(extra_specs, new=True)
    except encryption_types.InvalidType as exc:
        raise invalid(volume, exc)
    try:
        before = node.snapshots.wanted_encryption(volume)
    except encryption_types.InvalidType:
        before = None  # its type was changed since
    recorded = rows.recorded(volume)
    if bool(recorded) is not bool(after) or bool(after) and (
            before is None or _lasting(before) != _lasting(after)):
        raise encryption_errors.EncryptionChange(volume=volume.id)


def check_copy(node: nodes.Node, volume: ports.Volume, copy: ports.Volume
               ) -> None:
    """Cinder's own migration neither encrypts a volume nor decrypts it.

    After a retype that was refused it tries that. What it copies is not
    encrypted on its way.

    :param copy: the row that is copied into
    :raises EncryptionChange: if one of them is encrypted by this driver
    """
    if rows.recorded(volume) or wanted(node, copy):
        raise encryption_errors.EncryptionChange(volume=volume.id)


def check_copied_away(volume: ports.Volume) -> None:
    """Cinder does not copy to another backend what this driver encrypts.

    It would read the volume decrypted, and write plain text.

    :raises EncryptionChange: if this driver encrypts the volume
    """
    if rows.recorded(volume):
        raise encryption_errors.EncryptionChange(volume=volume.id)


def check_connected(node: nodes.Node, volume: ports.Volume) -> None:
    """Check that Cinder, if it copies a volume away, copies all of it.

    A retype, or a migration that is forced, does not ask the driver first.

    :raises EncryptionChange: as :func:`check_copied_away`
    :raises LongerThanRecorded: as :func:`.checks.check_length`
    """
    if records.is_migrated_by_cinder(volume) and not any(
            each.instance_uuid for each in volume.volume_attachment):
        check_copied_away(volume)
        if not rows.visible_id(volume):
            checks.check_length(node, volume)


def _lasting(encryption: encryption_types.Encryption | None
             ) -> encryption_types.Encryption | None:
    """What of a type holds for the life of a volume."""
    return encryption and dataclasses.replace(
        encryption, discards=False, zeroed=False)


# -- manage

def check_managed(node: nodes.Node, volume: ports.Volume, lv: str) -> None:
    """An LV of somebody else has no header that the driver knows.

    :param lv: the one that is to be managed
    :raises CannotManage: if the type of its volume asks for one
    """
    if wanted(node, volume):
        raise manage_errors.CannotManage(
            lv=lv, host=node.host, reason='volumes of its type are encrypted '
            'by this driver')


def check_unmanaged(volume: ports.Volume | None) -> None:
    """Whoever was left an encrypted LV could not read it.

    :raises CannotUnmanage: if it is
    """
    if volume is not None and rows.recorded(volume):
        raise manage_errors.CannotUnmanage(
            volume=volume.id, reason='it is encrypted by this driver')


# -- delete

def erase(node: nodes.Node, volume_id: str, tries: int = TRIES) -> None:
    """Empty the key slots of what this node has of a volume.

    Headers elsewhere keep theirs: that of an LV which a move has left until
    its node removes it, backups at former homes, snapshots. Nobody opens
    those without the secret, which goes after this, or a recovery key.

    What fails is only logged.

    :param volume_id: whose handle it is; it is here
    """
    for left in reversed(range(tries)):
        try:
            node.crypt.erase(volume_id)
            return
        except encryption_errors.HeaderDamaged:
            return  # it was not created to its end; or nobody opens it
        except (exceptions.LocalCloneError, OSError) as exc:
            if not left:
                LOG.error('The key slots of volume %(volume)s could not be '
                          'emptied: %(error)s', {
                              'volume': volume_id, 'error': exc})


def forget(node: nodes.Node, volume_ids: Iterable[str],
           recorded: encryption_types.Recorded, of_type: str) -> None:
    """A volume is gone, and so is its secret, unless something else has it.

    Nothing of it stays on this node, either.

    Each step is taken whatever becomes of the others: the key manager may
    delete a secret and not list any.

    :param volume_ids: whose it was: after Cinder's own migration it is
        deleted by another row
    :param recorded: what its row says
    :param of_type: :func:`key_of_type`, which a create that failed has used
    """
    ids = sorted(volume_ids)
    for volume_id in ids:
        _drop_here(node, volume_id)
        for key in sorted({recorded.key, of_type} - {''}):
            _attempt(volume_id, 'use of its secret', node.keys.release, key,
                     'volumes', volume_id)
    in_use = node.secrets.secrets_in_use(ids) | {''}
    if recorded.key not in in_use:
        _attempt(ids[0], 'secret', node.keys.remove, recorded.key)
    for volume_id in ids:
        _attempt(volume_id, 'secret', _drop_others, node, volume_id,
                 in_use | {recorded.key})


def key_of_type(node: nodes.Node, volume: ports.Volume) -> str:
    """The secret that all volumes of its type have; '': each has its own."""
    with contextlib.suppress(encryption_types.InvalidType):
        asked = node.snapshots.wanted_encryption(volume)
        return asked.shared_key if asked else ''
    return ''  # its type was changed since


def _attempt(volume_id: str, what: str, act: Callable[..., None],
             *args: object) -> None:
    try:
        act(*args)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.error('Volume %(volume)s is not there, but the %(what)s could not '
                  'be removed. In the key manager that is called "%(name)s": '
                  '%(error)s', {
                      'volume': volume_id, 'what': what,
                      'name': names.secret(volume_id), 'error': exc})


def _drop_here(node: nodes.Node, volume_id: str) -> None:
    """What this node itself keeps of an encrypted volume."""
    _attempt(volume_id, 'backups of its header', node.crypt.drop_backups,
             volume_id)
    _attempt(volume_id, 'sealed key', node.crypt.forget_sealed, volume_id)


def _drop_others(node: nodes.Node, volume_id: str, keep: set[str]) -> None:
    """Those that a call has left which did not live to record them.

    And that of a snapshot which has gone since the volume's was replaced.
    """
    for key in node.keys.find(volume_id):
        if key not in keep:
            with contextlib.suppress(encryption_errors.KeyRefused):
                node.keys.release(key, 'volumes', volume_id)
            node.keys.remove(key)
