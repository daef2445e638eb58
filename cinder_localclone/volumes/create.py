# SPDX-License-Identifier: Apache-2.0
"""Create volumes: plain, encrypted by the driver, or encrypted by Nova."""

import dataclasses

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import luks_integrity
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import pinning
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.encryption import policy
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)

#: The first key slot, and the first token, of a new header.
FIRST = '0'


def create(node: Node, volume_id: str) -> None:
    """Create the LV of a volume, and its handle.

    :raises TooLate: if the volume is no longer being created here
    :raises AlreadyThere: as :func:`.uncommitted.being_created`
    :raises LocalCloneError: if something else fails; everything is removed
    """
    with node.lock(volume_id):
        row = uncommitted.being_created(node, volume_id)
        try:
            uncommitted.make(node, row)
            node.handles.ensure_handle_on_lv(row.id, row.name,
                                             row.backing_bytes())
        except Exception:
            uncommitted.remove_failed(node, row)
            raise


def give_up(node: Node, volume: Volume) -> None:
    """Remove the rest of a volume whose creation has failed here.

    Cinder calls delete for it when it has returned the volume to its scheduler
    (``OnFailureRescheduleTask`` in
    cinder/volume/flows/manager/create_volume.py). By then the volume may exist
    already, here or on another node, complete and with a tenant's data: a
    complete volume is not touched. If this fails, this node's sweep tries
    again.

    :param volume: as Cinder has it, without a host
    """
    try:
        with node.lock(volume.id):
            uncommitted.remove_unwanted(node, volume.id, volume.name)
            policy.give_back(node, volume)
    except Exception as exc:  # Cinder would only log it
        LOG.warning('Volume %(volume)s was not created, and its LV or its '
                    'secret could not be removed, will retry: %(error)s',
                    {'volume': volume.id, 'error': exc})


def create_encrypted(node: Node, volume_id: str,
                     encryption: encryption_types.Encryption) -> None:
    """Create an encrypted volume: secret, LV, handle, header.

    The secret is recorded before anything is encrypted with it, and a repeated
    call uses it again.

    :raises TooLate: if the volume is no longer being created here
    :raises AlreadyThere: as :func:`.uncommitted.being_created`
    :raises KeyUnavailable: if the key manager does not answer; then there is
        no LV, and the secret, if it exists, is recorded
    :raises LocalCloneError: if something else fails; everything is removed
    """
    with node.lock(volume_id):
        volume = uncommitted.being_created(node, volume_id)
        try:
            volume = _with_secret(node, volume, encryption)
            # Use the key as the key manager returns it, because later opens
            # get it in the same form.
            key = node.keys.get(_recorded(volume).key, encryption.key_format)
            if encryption.authenticated:
                _check_space(node, volume)
            _create_lv(node, volume)
            _create_header(node, volume, encryption, key)
            volume = _with_pin(node, volume, encryption)
            if encryption.zeroed:
                _zero(node, volume, key)
        except encryption_exceptions.KeyUnavailable:
            uncommitted.remove_failed(node, volume)
            raise
        except Exception:
            uncommitted.remove_failed(node, volume)
            policy.give_back(node, volume)
            raise


def _recorded(volume: Volume) -> encryption_types.Recorded:
    found = volume.encryption
    if found is None:
        raise exceptions.TooLate(what='Volume ' + volume.id)
    return found


def _with_secret(node: Node, volume: Volume,
                 encryption: encryption_types.Encryption) -> Volume:
    """Record the secret of a volume and the extra length of its LV."""
    if encryption.shared_key:
        node.keys.check_shared(encryption.shared_key)
    recorded = encryption_types.Recorded(
        _layout(volume, encryption).extra_bytes, encryption.shared_key,
        not encryption.authenticated)
    before = volume.encryption
    if before and before.key and not encryption.shared_key:
        if before.key in node.secrets.secrets_in_use([volume.id]):
            # the secret of an image; the volume could not be cloned
            node.keys.release(before.key, 'volumes', volume.id)
        else:  # of an unanswered call, or of a call on another node
            recorded = dataclasses.replace(recorded, key=before.key)
    volume = node.volumes.set_encryption(volume, recorded)
    if not recorded.key:
        recorded = dataclasses.replace(recorded, key=node.keys.create(
            volume.id, encryption.key_format))
        volume = node.volumes.set_encryption(volume, recorded)
    node.keys.consume(recorded.key, 'volumes', volume.id)
    return volume


def _layout(volume: Volume, encryption: encryption_types.Encryption
            ) -> luks_integrity.Layout:
    return luks_integrity.layout(encryption, state.backing_bytes(volume.size))


def _check_space(node: Node, volume: Volume) -> None:
    """Check the free space; an authenticated volume is written completely.

    This holds for a thin volume, too.

    :raises NoFreeSpace: if there is too little
    """
    lack = node.lvm.free_space().why_too_small(volume.backing_bytes(), 0)
    if lack:
        raise exceptions.NoFreeSpace(
            host=node.host, size=volume.size, reason=lack)


def _create_header(node: Node, volume: Volume,
                   encryption: encryption_types.Encryption, key: bytes
                   ) -> None:
    """Write a new LUKS header. No other function creates a header."""
    node.handles.ensure_handle_on_lv(
        volume.id, volume.name, volume.backing_bytes())
    node.crypt.format(
        volume.id, cryptsetup_cli.new_header(
            encryption, volume.id,
            _layout(volume, encryption).offset_bytes), key)
    node.crypt.write_token(volume.id, FIRST, str(luks_header.Token(
        key=_recorded(volume).key, key_format=encryption.key_format,
        shared=bool(encryption.shared_key), keyslots=(FIRST,))))
    node.crypt.note(volume.name, luks=volume.id)
    node.crypt.back_up(volume.id)
    node.crypt.test(volume.id, key)


def _with_pin(node: Node, volume: Volume,
              encryption: encryption_types.Encryption) -> Volume:
    """Record the pin of the new header in the volume's row.

    :raises ForeignHeader: if the header is not as requested
    """
    header = node.crypt.header(volume.id)
    recorded = dataclasses.replace(_recorded(volume), pin=pinning.pin(
        encryption, _layout(volume, encryption).offset_bytes, header.digest))
    pinning.check(volume.id, header, pinning.recorded_in_row(recorded))
    return node.volumes.set_encryption(volume, recorded)


def _create_lv(node: Node, volume: Volume) -> None:
    uncommitted.make(node, volume)
    node.crypt.note(volume.name, key=_recorded(volume).key)
    node.lvm.mark(volume.name, names.FRESH)


def _zero(node: Node, volume: Volume, key: bytes) -> None:
    """Zero a new volume through its crypt device; it would read as noise."""
    node.crypt.open(volume.id, key)
    try:
        found, size = node.crypt.size(volume.id), state.backing_bytes(
            volume.size)
        if found != size:
            raise encryption_exceptions.OddSize(
                volume=volume.id, found=found, wanted=size)
        node.crypt.zero(volume.name, volume.id, slow=volume.is_authenticated)
    finally:
        node.crypt.close(volume.id)
    node.lvm.unmark(volume.name, names.FRESH)


def create_for_nova(node: Node, context: objects.Context, volume: Volume,
                    header: encryption_types.HeaderForNova) -> None:
    """Create a volume with its header, for encryption by Nova.

    :param context: of the request
    :raises KeyUnreadable: if this context may not read the key; nothing is
        created
    :raises TooLate: if the volume is no longer being created here
    :raises AlreadyThere: as :func:`.uncommitted.being_created`
    :raises LocalCloneError: if something else fails; everything is removed
    """
    key = node.keys.owners_key(context, volume.encryption_key_id)
    with node.lock(volume.id):
        row = uncommitted.being_created(node, volume.id)
        try:
            uncommitted.make(node, row)
            node.handles.ensure_handle_on_lv(row.id, row.name,
                                             row.backing_bytes())
            node.crypt.format_luks1(
                row.id, header.cipher, header.key_bits, key)
            node.handles.flush_handle(row.id)
        except Exception:
            uncommitted.remove_failed(node, row)
            raise
