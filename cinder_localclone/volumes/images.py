# SPDX-License-Identifier: Apache-2.0
"""Write images to volumes encrypted by Nova."""

from collections.abc import Callable

from cinder import exception
from oslo_concurrency import processutils

from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import objects
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import devices
from cinder_localclone.volumes import reconcile

#: Messages of qemu-img for a device smaller than the image.
TOO_SMALL = ('No space left', 'smaller than')


def copy_image(reconciler: reconcile.Reconciler, context: objects.Context,
               volume: Volume, image_id: str,
               fetch: Callable[[str], None]) -> None:
    """Write an unencrypted image to an encrypted volume.

    Cinder's own way is not safe: os-brick's encryptor would take a device of
    this driver for its own by its name, and would format an unreadable volume.

    :param context: of the request
    :param fetch: ``fetch(path)`` writes the image to a device
    :raises ImageTooBig: if the header leaves too little space for the image
    :raises LocalCloneError: if the volume can't be opened; nothing is written
        then
    """
    node = reconciler.node
    key = node.keys.owners_key(context, volume.encryption_key_id)
    with node.lock(volume.id):
        nodes.volume_at_home(node, volume.id)
        reconciler.reconcile_present(volume.id)
        devices.ensure_closed(node, volume.id)
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
            node.handles.close_upper(volume.id)
            node.handles.flush_handle(volume.id)
