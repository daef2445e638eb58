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

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types

LOG = logging.getLogger(__name__)
#: How often its key slots are emptied, if that fails, when a volume goes.
TRIES = 3


def wanted(node: Node, volume: objects.Volume
           ) -> volume_types.Encryption | None:
    """How a new volume is to be encrypted by this driver, by its type.

    :raises InvalidEncryptionType: if it can't be
    :raises InvalidPaceType: if the type says nonsense of its copies
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


def invalid(volume: objects.Volume, why: volume_types.InvalidType
            ) -> exceptions.LocalCloneError:
    """The error of a type of which no volume can be."""
    kind = (encryption_exceptions.InvalidPaceType
            if isinstance(why, volume_types.InvalidPace)
            else encryption_exceptions.InvalidEncryptionType)
    return kind(volume=volume.id, reason=why)


def give_back(node: Node, volume: objects.Volume) -> None:
    """The secret of what was not created goes: Cinder may try another node,
    or its owner may delete the row without any.

    Unless somebody creates it by now, who reads the row when he begins.
    """
    try:
        row = node.volumes.volume(volume.id)
        recorded = rows.recorded(row or volume)
        if recorded is None or row and row.host != volume.host:
            return
        if row is None:
            forget(node, [volume.id], recorded, key_of_type(node, volume))
            return
        node.volumes.set_encryption(
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


def check_not_fresh(node: Node, volume: objects.Volume,
                    host: str | None) -> None:
    """Who leaves out zeros, because a volume is new, would restore noise.

    :raises WouldReadNoise: if it is
    """
    # Of what is being created only a backup that becomes a volume is written.
    if (volume.status not in statuses.RESTORED
            or rows.recorded(volume) is None):
        return
    lv = node.lvm.lvs().get(volume.name)
    if lv and names.FRESH in lv.tags:
        raise encryption_exceptions.WouldReadNoise(
            volume=volume.id, host=host, reason='ranges of it that were never '
            'written do not read as zeros, and a restore leaves zeros out. '
            'Restore to a volume of another type, or of a type with '
            '%szeroed=true.'
            % volume_types.PREFIX)


def check_retype(node: Node, volume: objects.Volume,
                 extra_specs: dict[str, str]) -> None:
    """A retype changes nothing that is in a header.

    :param extra_specs: of the new type
    :raises EncryptionChange: if it would
    :raises InvalidEncryptionType: if no volume can be of the new type
    :raises InvalidPaceType: the same, for its pace
    """
    try:
        after = volume_types.parse(extra_specs, new=True)
    except volume_types.InvalidType as exc:
        raise invalid(volume, exc)
    try:
        before = node.volumes.wanted_encryption(volume)
    except volume_types.InvalidType:
        before = None  # its type was changed since
    recorded = rows.recorded(volume)
    if bool(recorded) is not bool(after) or bool(after) and (
            before is None or _lasting(before) != _lasting(after)):
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_copy(node: Node, volume: objects.Volume, copy: objects.Volume
               ) -> None:
    """Cinder's own migration neither encrypts a volume nor decrypts it.

    After a retype that was refused it tries that. What it copies is not
    encrypted on its way.

    :param copy: the row that is copied into
    :raises EncryptionChange: if one of them is encrypted by this driver
    """
    if rows.recorded(volume) or wanted(node, copy):
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_copied_away(volume: objects.Volume) -> None:
    """Cinder does not copy to another backend what this driver encrypts.

    It would read the volume decrypted, and write plain text.

    :raises EncryptionChange: if this driver encrypts the volume
    """
    if rows.recorded(volume):
        raise encryption_exceptions.EncryptionChange(volume=volume.id)


def check_connected(node: Node, volume: objects.Volume) -> None:
    """Check that Cinder, if it copies a volume away, copies all of it.

    A retype, or a migration that is forced, does not ask the driver first.

    :raises EncryptionChange: as :func:`check_copied_away`
    :raises LongerThanRecorded: as :func:`.node.check_length`
    """
    if rows.is_migrated_by_cinder(volume) and not any(
            each.instance_uuid for each in volume.volume_attachment):
        check_copied_away(volume)
        if not rows.visible_id(volume):
            nodes.check_length(node, volume)


def _lasting(encryption: volume_types.Encryption | None
             ) -> volume_types.Encryption | None:
    """What of a type holds for the life of a volume."""
    return encryption and dataclasses.replace(
        encryption, discards=False, zeroed=False)


def check_managed(node: Node, volume: objects.Volume, lv: str) -> None:
    """An LV of somebody else has no header that the driver knows.

    :param lv: the one that is to be managed
    :raises CannotManage: if the type of its volume asks for one
    """
    if wanted(node, volume):
        raise exceptions.CannotManage(
            lv=lv, host=node.host, reason='volumes of its type are encrypted '
            'by this driver')


def check_unmanaged(volume: objects.Volume | None) -> None:
    """Whoever was left an encrypted LV could not read it.

    :raises CannotUnmanage: if it is
    """
    if volume is not None and rows.recorded(volume):
        raise exceptions.CannotUnmanage(
            volume=volume.id, reason='it is encrypted by this driver')


def erase(node: Node, volume_id: str, tries: int = TRIES) -> None:
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
        except encryption_exceptions.HeaderDamaged:
            return  # it was not created to its end; or nobody opens it
        except (exceptions.LocalCloneError, OSError) as exc:
            if not left:
                LOG.error('The key slots of volume %(volume)s could not be '
                          'emptied: %(error)s', {
                              'volume': volume_id, 'error': exc})


def forget(node: Node, volume_ids: Iterable[str],
           recorded: volume_types.Recorded, of_type: str) -> None:
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


def key_of_type(node: Node, volume: objects.Volume) -> str:
    """The secret that all volumes of its type have; '': each has its own."""
    with contextlib.suppress(volume_types.InvalidType):
        asked = node.volumes.wanted_encryption(volume)
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


def _drop_here(node: Node, volume_id: str) -> None:
    """What this node itself keeps of an encrypted volume."""
    _attempt(volume_id, 'backups of its header', node.crypt.drop_backups,
             volume_id)
    _attempt(volume_id, 'sealed key', node.crypt.forget_sealed, volume_id)


def _drop_others(node: Node, volume_id: str, keep: set[str]) -> None:
    """Those that a call has left which did not live to record them.

    And that of a snapshot which has gone since the volume's was replaced.
    """
    for key in node.keys.find(volume_id):
        if key not in keep:
            with contextlib.suppress(encryption_exceptions.KeyRefused):
                node.keys.release(key, 'volumes', volume_id)
            node.keys.remove(key)
