# SPDX-License-Identifier: Apache-2.0
"""Volumes that Nova encrypts: how they begin, and images written to them.

Such a volume begins with a LUKS1 header, which QEMU reads. Nova would make
it at the first attach; the driver does at creation, so that Nova never finds
a volume without one. That is the only place: a header that can't be read may
be there all the same.
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
from cinder_localclone.core import objects
from cinder_localclone.core import volume_types as core_types
from cinder_localclone.encryption import policy

LOG = logging.getLogger(__name__)


def why_not(metadata: Mapping[str, Any]) -> str:
    """Why what Cinder says of a volume's encryption can't be; '' if it can.

    Of anything but LUKS1 by QEMU Nova makes a device of its own, whose name
    and formatting nobody can keep in bounds.
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


def is_encrypted(volume: objects.Volume) -> bool:
    """Whether a volume has a key, or is of a type that gives it one."""
    return bool(volume.encryption_key_id or volume_types.is_encrypted(
        cinder_context.get_admin_context(), volume.volume_type_id))


def wanted(node: Node, volume: objects.Volume
           ) -> core_types.HeaderForNova | None:
    """The header of a volume that is to be created, by its type.

    :returns: None if Nova is not to encrypt it
    :raises EncryptionUnsupported: if it can't be as the type says
    :raises NotReady: if this node can't keep Nova from formatting it
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


def check_alike(volume: objects.Volume, image: Any, what: str) -> None:
    """What a volume is made of is encrypted by Nova if the volume is.

    It is by its type: what Cinder clones for a backup of what is in use, to
    read it as it is, has no key.

    :param image: a snapshot, or another volume
    :raises ForeignImage: if not
    """
    if is_encrypted(volume) != bool(image.encryption_key_id):
        raise exceptions.ForeignImage(
            image=what, reason='it is%s encrypted' % (
                '' if image.encryption_key_id else ' not'))


def check_copy(node: Node, copy: objects.Volume, volume_id: str) -> None:
    """Cinder copies a volume bit by bit: its encryption can't change.

    Between two types that are encrypted, each in its way, Cinder would go
    through os-brick's encryptors, at both ends: those format what they can't
    read, and nothing guards what Cinder reads.

    :param copy: the row that is copied into
    :raises EncryptionChange: if it would
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
