# SPDX-License-Identifier: Apache-2.0
"""Volumes encrypted by Nova: their header, and images written to them.

A volume encrypted by Nova begins with a LUKS1 header, which QEMU reads. Nova
would write it at the first attach. The driver writes it at the creation, so
Nova never finds a volume without a header. The driver writes a header nowhere
else: an unreadable header may still be intact.
"""

from collections.abc import Mapping
from typing import Any

from cinder import context as cinder_context
from cinder.db import api as db
from cinder.volume import volume_types
from os_brick import encryptors
from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.node import Node
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types as core_types
from cinder_localclone.encryption import policy

LOG = logging.getLogger(__name__)


def why_not(metadata: Mapping[str, Any]) -> str:
    """Return why Nova's encryption of a volume is not supported, or ''.

    For any provider other than LUKS1, read by QEMU, Nova creates a device of
    its own, with a name and a formatting outside the driver's control.

    :param metadata: the encryption of the volume, as Cinder reports it
    """
    provider = metadata.get('provider')
    known = encryptors.LEGACY_PROVIDER_CLASS_TO_FORMAT_MAP
    if known.get(provider, provider) != encryptors.LUKS:
        return 'its provider is "%s", not "luks"' % provider
    location = metadata.get('control_location')
    if str(location).lower() != 'front-end':
        return 'its control location is "%s", not "front-end"' % location
    if not metadata.get('cipher') or not metadata.get('key_size'):
        return 'it names no cipher, or no key size'
    return ''


def is_encrypted(volume: Volume) -> bool:
    """Return whether a volume has a key, or an encrypted type."""
    return bool(volume.encryption_key_id or volume_types.is_encrypted(
        cinder_context.get_admin_context(), volume.volume_type_id))


def wanted(node: Node, volume: Volume) -> core_types.HeaderForNova | None:
    """Return the header of a volume about to be created, by its type.

    :returns: None if Nova does not encrypt it
    :raises EncryptionUnsupported: if the type's encryption is not supported
    :raises NotReady: if this node can't keep Nova from formatting the volume
    """
    if not is_encrypted(volume):
        return None
    metadata = db.volume_encryption_metadata_get(
        cinder_context.get_admin_context(), volume.id)
    reason = why_not(metadata)
    if not reason and policy.wanted(node, volume):
        reason = 'its type also asks for encryption by this driver'
    if reason:
        raise exceptions.EncryptionUnsupported(
            volume=volume.id, reason=reason)
    if not node.handles.can_guard():
        raise exceptions.NotReady(
            host=node.host, reason='its kernel has no dm-flakey '
            '(CONFIG_DM_FLAKEY), or the module is missing')
    return core_types.HeaderForNova(
        metadata['cipher'], int(metadata['key_size']))


def check_alike(volume: Volume, image: Any, what: str) -> None:
    """Check that volume and source are both encrypted by Nova, or neither.

    The type of the volume decides, not its key: Cinder's temporary clone of a
    volume in use, for a backup of the raw data, has no key.

    :param image: the source: a snapshot or another volume
    :param what: the source, in words
    :raises ForeignImage: if they differ
    """
    if is_encrypted(volume) != bool(image.encryption_key_id):
        raise exceptions.ForeignImage(
            image=what, reason='it is%s encrypted' % (
                '' if image.encryption_key_id else ' not'))


def check_copy(node: Node, copy: Volume, volume_id: str) -> None:
    """Check that a copy by Cinder does not change a volume's encryption.

    Cinder copies bit by bit. Between two types with different encryption it
    would use os-brick's encryptors at both ends: they format a volume they
    can't read, and no header guard protects it.

    :param copy: the row of the copy's destination
    :param volume_id: the copied volume
    :raises EncryptionChange: if the encryption would change
    """
    volume = node.volumes.volume(volume_id)
    if volume is None:
        return
    encrypted = is_encrypted(copy)
    if is_encrypted(volume) != encrypted or (
            encrypted and volume_types.volume_types_encryption_changed(
                cinder_context.get_admin_context(), volume.volume_type_id,
                copy.volume_type_id)):
        raise encryption_exceptions.EncryptionChange(volume=volume_id)
