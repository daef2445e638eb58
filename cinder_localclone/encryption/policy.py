# SPDX-License-Identifier: Apache-2.0
"""The beginning and the end of encrypted volumes.

A header is written once for a volume, to an LV created by the same call. The
driver formats nothing else: a header may be temporarily unreadable.
"""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import dataclasses

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import rows
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types

LOG = logging.getLogger(__name__)
#: Attempts to erase the key slots of a deleted volume.
TRIES = 3


def wanted(node: Node, volume: Volume) -> volume_types.Encryption | None:
    """Return the encryption of a new volume by its type.

    :raises InvalidEncryptionType: if the type asks for an impossible
        encryption
    :raises InvalidPaceType: if the type has an invalid pace of copies
    """
    try:
        found = node.volumes.wanted_encryption(volume, new=True)
    except volume_types.InvalidType as exc:
        raise invalid(volume, exc)
    if found and found.authenticated and not node.authenticates:
        raise encryption_exceptions.InvalidEncryptionType(
            volume=volume.id, reason='%sintegrity is experimental, and '
            'localclone_enable_integrity is not set on %s' % (
                volume_types.PREFIX, node.host))
    return found


def invalid(volume: Volume, why: volume_types.InvalidType
            ) -> exceptions.LocalCloneError:
    """Return the error for an invalid volume type."""
    kind = (encryption_exceptions.InvalidPaceType
            if isinstance(why, volume_types.InvalidPace)
            else encryption_exceptions.InvalidEncryptionType)
    return kind(volume=volume.id, reason=why)


def give_back(node: Node, volume: Volume) -> None:
    """Remove the secret of a volume after a failed creation.

    Cinder may create the volume on another node, or the owner may delete the
    row without any call of a driver. Nothing is removed if another service has
    taken the row since: it reads the row when it begins.
    """
    try:
        row = node.volumes.volume(volume.id)
        recorded = (row or volume).encryption
        if recorded is None or row and row.host != volume.host:
            return
        if row is None:
            forget(node, [volume.id], recorded.key, key_of_type(node, volume))
            return
        node.volumes.set_encryption(
            row, dataclasses.replace(
                recorded, key='', pin=None, becoming=None))
        _drop_here(node, volume.id)
        # The volume may exist on another node by now, with another secret or
        # with the secret of its type. So only the secret of this row is
        # removed.
        if recorded.key in ('', key_of_type(node, row)):
            return
        _attempt(volume.id, 'consumer entry', node.keys.release,
                 recorded.key, 'volumes', volume.id)
        if recorded.key not in node.secrets.secrets_in_use([volume.id]):
            node.keys.remove(recorded.key)
    except Exception as exc:  # must not hide the first error
        LOG.error('Volume %(volume)s could not be created, and its secret '
                  'could not be removed from the key manager. The driver '
                  'tries again when the volume is created or deleted; if it '
                  'was deleted, run "cinder-localclone encryption leftover '
                  'remove": %(error)s', {'volume': volume.id, 'error': exc})


def release_of_image(node: Node, volume: Volume) -> None:
    """Release the secret of an image after a failed creation of its clone.

    The volume may be created on another node by now with another secret, or
    even deleted there. That node does not know that this node has registered
    the volume as a consumer.

    :param volume: its row, with the secret of its image
    """
    recorded = volume.encryption
    if recorded is None:
        return
    row = node.volumes.volume(volume.id)
    if row is None or row.host != volume.host and recorded.key not in (
            (row.encryption or recorded).key, key_of_type(node, row)):
        _attempt(volume.id, 'consumer entry', node.keys.release,
                 recorded.key, 'volumes', volume.id)


def check_not_fresh(node: Node, volume: Volume, host: str | None) -> None:
    """Check whether a restore may leave out zeros.

    A restore leaves out zeros in new volumes. Unwritten ranges of an encrypted
    volume read as noise.

    :raises WouldReadNoise: if it may not
    """
    # Cinder writes a volume during its creation only to restore a backup.
    if volume.status not in statuses.RESTORED or volume.encryption is None:
        return
    lv = node.lvm.lvs().get(volume.name)
    if lv and names.FRESH in lv.tags:
        raise encryption_exceptions.WouldReadNoise(
            volume=volume.id, host=host, reason='its unwritten ranges do not '
            'read as zeros, and a restore leaves zeros out. Restore to a '
            'volume of another type, or of a type with %szeroed=true.'
            % volume_types.PREFIX)


def check_retype(node: Node, volume: Volume,
                 extra_specs: dict[str, str]) -> None:
    """Check that a retype changes nothing in the header.

    :param extra_specs: of the new type
    :raises EncryptionChange: if the header would change
    :raises InvalidEncryptionType: if the new type is invalid
    :raises InvalidPaceType: if the new type has an invalid pace of copies
    """
    try:
        after = volume_types.parse(extra_specs, new=True)
    except volume_types.InvalidType as exc:
        raise invalid(volume, exc)
    try:
        before = node.volumes.wanted_encryption(volume)
    except volume_types.InvalidType:
        before = None  # its type was changed since
    recorded = volume.encryption
    if bool(recorded) is not bool(after) or bool(after) and (
            before is None or _lasting(before) != _lasting(after)):
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_copy(node: Node, volume: Volume, copy: Volume) -> None:
    """Refuse Cinder's own migration of, or to, an encrypted volume.

    Cinder tries its own migration after a refused retype, and copies plain
    text between the hosts.

    :param copy: the row of the copy
    :raises EncryptionChange: if this driver encrypts either volume
    """
    if volume.encryption or wanted(node, copy):
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_copied_away(volume: Volume) -> None:
    """Refuse a copy of an encrypted volume to another backend.

    Cinder would read the decrypted volume and write plain text.

    :raises EncryptionChange: if this driver encrypts the volume
    """
    if volume.encryption:
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_connected(node: Node, volume: Volume) -> None:
    """Check a volume that Cinder itself is copying to another backend.

    A retype, or a forced migration, does not ask the driver first.

    :raises EncryptionChange: as for :func:`check_copied_away`
    :raises LongerThanRecorded: as for :func:`.node.check_length`
    """
    if volume.is_migrated_by_cinder and not any(
            each.instance_uuid for each in volume.volume_attachment):
        check_copied_away(volume)
        if not volume.visible_id:
            nodes.check_length(node, volume)


def _lasting(encryption: volume_types.Encryption | None
             ) -> volume_types.Encryption | None:
    """Return the properties that hold for the life of a volume."""
    return encryption and dataclasses.replace(
        encryption, discards=False, zeroed=False)


def check_managed(node: Node, volume: Volume, lv: str) -> None:
    """Refuse to manage an LV as a volume of an encrypted type.

    A foreign LV has no header of this driver.

    :param lv: the LV to manage
    :raises CannotManage: if the type asks for encryption
    """
    if wanted(node, volume):
        raise exceptions.CannotManage(
            lv=lv, host=node.host, reason='volumes of its type are encrypted '
            'by this driver')


def check_unmanaged(volume: Volume | None) -> None:
    """Refuse to unmanage an encrypted volume.

    Its new owner could not read the LV.

    :raises CannotUnmanage: if this driver encrypts the volume
    """
    if volume is not None and volume.encryption:
        raise exceptions.CannotUnmanage(
            volume=volume.id, reason='it is encrypted by this driver')


def erase(node: Node, volume_id: str, tries: int = TRIES) -> None:
    """Erase the key slots of a volume on this node.

    Other headers keep their key slots: the source LV of a move until its node
    removes it, backups on former homes, and snapshots. Only the secret, which
    is removed afterwards, or a recovery key opens them.

    An error is only logged.

    :param volume_id: the ID of the handle, which exists on this node
    """
    for left in reversed(range(tries)):
        try:
            node.crypt.erase(volume_id)
            return
        except encryption_exceptions.HeaderDamaged:
            return  # creation was incomplete, or no key opens it
        except (exceptions.LocalCloneError, OSError) as exc:
            if not left:
                LOG.error('The key slots of volume %(volume)s could not be '
                          'emptied: %(error)s', {
                              'volume': volume_id, 'error': exc})


def forget(node: Node, volume_ids: Iterable[str], key: str,
           of_type: str = '') -> None:
    """Remove the secret of a deleted volume if nothing else uses it.

    Header backups and sealed keys on this node are removed too. An error in
    one step does not stop the others: a key manager may delete a secret but
    fail to list secrets.

    :param volume_ids: the IDs of the volume: two after Cinder's own migration
    :param key: the reference of the secret in its row
    :param of_type: :func:`key_of_type`, used by an incomplete creation
    """
    ids = sorted(volume_ids)
    # A snapshot, taken before its volume got another key, may have kept a
    # secret with the name of another volume.
    known = {key}.union(*map(
        node.secrets.secrets_of_deleted_snapshots, ids))
    for volume_id in ids:
        _drop_here(node, volume_id)
        for each in sorted((known | {of_type}) - {''}):
            _attempt(volume_id, 'consumer entry', node.keys.release, each,
                     'volumes', volume_id)
    in_use = node.secrets.secrets_in_use(ids) | {''}
    for each in sorted(known - in_use):
        _attempt(ids[0], 'secret', _remove_unused, node, each, ids)
    for volume_id in ids:
        _attempt(volume_id, 'secret', _drop_others, node, volume_id,
                 in_use | known)


def _remove_unused(node: Node, key: str, ids: list[str]) -> None:
    """Remove a secret that no row names.

    A secret with the name of another volume may have a consumer left, whose
    deleted snapshots had it. The last consumer removes it.

    :param ids: the IDs of the deleted volume
    """
    try:
        node.keys.remove(key)
    except encryption_exceptions.KeyRefused as exc:
        if node.keys.owner_of(key) in ids:
            raise
        LOG.debug('Secret %(key)s of deleted volume %(volume)s stays: '
                  '%(error)s', {'key': key, 'volume': ids[0], 'error': exc})


def key_of_type(node: Node, volume: Volume | rows.Uncommitted) -> str:
    """Return the secret of all volumes of a type; '' if each has its own."""
    with contextlib.suppress(volume_types.InvalidType):
        asked = node.volumes.wanted_encryption(volume)
        return asked.shared_key if asked else ''
    return ''  # its type was changed since


def _attempt(volume_id: str, what: str, act: Callable[..., None],
             *args: object) -> None:
    try:
        act(*args)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.error('Volume %(volume)s does not exist any more, but its '
                  '%(what)s could not be removed. Its secrets in the key '
                  'manager have the name "%(name)s": %(error)s', {
                      'volume': volume_id, 'what': what,
                      'name': names.secret(volume_id), 'error': exc})


def _drop_here(node: Node, volume_id: str) -> None:
    """Remove the header backups and the sealed key on this node."""
    _attempt(volume_id, 'header backups', node.crypt.drop_backups,
             volume_id)
    _attempt(volume_id, 'sealed key', node.crypt.forget_sealed, volume_id)


def _drop_others(node: Node, volume_id: str, keep: set[str]) -> None:
    """Remove secrets with the volume's name that no row names.

    An interrupted call leaves them, and so does a snapshot deleted after a key
    rotation.
    """
    for key in node.keys.find(volume_id):
        if key not in keep:
            with contextlib.suppress(encryption_exceptions.KeyRefused):
                node.keys.release(key, 'volumes', volume_id)
            node.keys.remove(key)
