# SPDX-License-Identifier: Apache-2.0
"""Volumes that Nova encrypts: how they begin, and images written to them.

Such a volume begins with a LUKS1 header, which QEMU reads. Nova would make
it at the first attach; the driver does at creation, so that Nova never finds
a volume without one. That is the only place: a header that can't be read may
be there all the same.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from cinder import context as cinder_context
from cinder.db import api as db
from cinder import exception
from cinder.volume import volume_types
from os_brick import encryptors
from oslo_concurrency import processutils
from oslo_log import log as logging

from cinder_localclone import encryption
from cinder_localclone import encryption_errors
from cinder_localclone import exceptions
from cinder_localclone.moves import checks
from cinder_localclone import names
from cinder_localclone import newborns
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import reconcile
from cinder_localclone import rows
from cinder_localclone import tops

LOG = logging.getLogger(__name__)

#: What qemu-img says of a device that takes less than the image has.
TOO_SMALL = ('No space left', 'smaller than')


@dataclasses.dataclass(frozen=True)
class Header:
    """What a volume type says of the header of its volumes."""

    cipher: str
    key_bits: int


# -- what a type asks for

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


def is_encrypted(volume: ports.Volume) -> bool:
    """Whether a volume has a key, or is of a type that gives it one."""
    return bool(volume.encryption_key_id or volume_types.is_encrypted(
        cinder_context.get_admin_context(), volume.volume_type_id))


def wanted(node: nodes.Node, volume: ports.Volume) -> Header | None:
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
    if not reason and encryption.wanted(node, volume):
        reason = 'its type also asks for encryption by this driver'
    if reason:
        raise exceptions.EncryptionUnsupported(
            volume=volume.id, reason=reason)
    if not node.stack.can_guard():
        raise exceptions.NotReady(
            host=node.host, reason='its kernel has no dm-flakey '
            '(CONFIG_DM_FLAKEY), or the module is missing')
    return Header(metadata['cipher'], int(metadata['key_size']))


def check_alike(volume: ports.Volume, image: Any, what: str) -> None:
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


def check_copy(node: nodes.Node, copy: ports.Volume, volume_id: str) -> None:
    """Cinder copies a volume bit by bit: its encryption can't change.

    Between two types that are encrypted, each in its way, Cinder would go
    through os-brick's encryptors, at both ends: those format what they can't
    read, and nothing guards what Cinder reads.

    :param copy: the row that is copied into
    :raises EncryptionChange: if it would
    """
    volume = node.records.volume(volume_id)
    if volume is None:
        return
    encrypted = is_encrypted(copy)
    if is_encrypted(volume) != encrypted or (
            encrypted and volume_types.volume_types_encryption_changed(
                cinder_context.get_admin_context(), volume.volume_type_id,
                copy.volume_type_id)):
        raise encryption_errors.EncryptionChange(volume=volume_id)


# -- create

def create(node: nodes.Node, volume: ports.Volume, header: Header) -> None:
    """Create a volume that Nova encrypts, with its header.

    :param volume: with the context of whoever has asked for it
    :raises KeyUnreadable: if that may not read the key; nothing is created
    :raises TooLate: if it is not to be created here (any more)
    :raises AlreadyThere: as :func:`.newborns.being_created`
    :raises LocalCloneError: if something else fails; nothing is left
    """
    key = node.keys.owners_key(volume._context, volume.encryption_key_id)
    with node.lock(volume.id):
        row = newborns.being_created(node, volume.id)
        try:
            newborns.make(node, row)
            node.stack.ensure_handle_on_lv(row.id, row.name,
                                           rows.body_bytes(row))
            node.crypt.format_luks1(
                row.id, header.cipher, header.key_bits, key)
            node.stack.flush_handle(row.id)
        except Exception:
            newborns.remove_failed(node, row)
            raise


# -- images

def copy_image(reconciler: reconcile.Reconciler, context: ports.Context,
               volume: ports.Volume, image_id: str,
               fetch: Callable[[str], None]) -> None:
    """Write an image that is not encrypted to a volume that is.

    Not as Cinder does: os-brick's encryptor would take the name of a device
    of this driver for its own, and would format what it can't read.

    :param context: of whoever has asked for it
    :param fetch: ``fetch(path)`` writes the image to a device
    :raises ImageTooBig: if the header leaves too little room for it
    :raises LocalCloneError: if the volume can't be opened; nothing is
        written then
    """
    node = reconciler.node
    key = node.keys.owners_key(context, volume.encryption_key_id)
    with node.lock(volume.id):
        checks.volume_at_home(node, volume.id)
        reconciler.converge_present(volume.id)
        tops.ensure_closed(node, volume.id)
        node.crypt.open(volume.id, key)
    try:
        fetch(names.crypt_path(volume.id))
    except processutils.ProcessExecutionError as exc:
        if any(text in str(exc.stderr) for text in TOO_SMALL):
            raise exception.ImageTooBig(
                image_id=image_id, reason='the volume is encrypted, and its '
                'header leaves less space than the size of the volume')
        raise
    finally:
        with node.lock(volume.id):
            node.stack.close_top(volume.id)
            node.stack.flush_handle(volume.id)
