# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: snapshots, clones, images and backups."""

from collections.abc import Iterator
import contextlib
import typing

from cinder import exception
from cinder.image import image_utils

from cinder_localclone.core import exceptions
from cinder_localclone.core import objects
from cinder_localclone.core import rpc
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core.volume import Volume
from cinder_localclone.db import backups
from cinder_localclone.driver import front_end
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import images
from cinder_localclone.volumes import revert
from cinder_localclone.volumes import snapshots


class ImageDriver:
    """The methods of the driver for snapshots, clones, images and backups."""

    configuration: assembly.Configuration
    service: assembly.Service

    # -- volumes

    def create_volume_from_snapshot(self, volume: objects.Volume,
                                    snapshot: objects.Snapshot) -> None:
        """Create a volume on the node with the snapshot, without a copy.

        See :func:`.clone.from_snapshot`.

        :raises NotCreated: if it can't be created; the owner is told why
        """
        with no_second_try(), messages.telling_of(Action.CLONE, volume):
            new = Volume.of(volume)
            # Only for its errors. The header is part of the snapshot.
            front_end.wanted(self.service.node, new)
            front_end.check_alike(new, snapshot, 'snapshot ' + snapshot.id)
            clone.from_snapshot(self.service.node, volume.id, snapshot.id)

    def create_cloned_volume(self, volume: objects.Volume,
                             src_vref: objects.Volume) -> None:
        """Create a volume at the home of its source, without a copy.

        See :func:`.clone.from_volume`.

        :raises NotCreated: if it can't be created; the owner is told why
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(no_second_try())
            if volume.source_volid == src_vref.id:
                # Otherwise the source is a cached image; Cinder can still
                # download it.
                stack.enter_context(messages.telling_of(Action.CLONE, volume))
            # Only for its errors. The header is part of the source.
            new = Volume.of(volume)
            front_end.wanted(self.service.node, new)
            front_end.check_alike(new, src_vref, 'volume ' + src_vref.id)
            clone.from_volume(
                self.service.reconciler, volume.id, src_vref.id,
                self.configuration.localclone_snapshot_timeout)

    # -- images

    def copy_image_to_volume(
            self, context: objects.Context, volume: objects.Volume,
            image_service: typing.Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Write an image to a volume.

        The image's zeros are written only to a volume encrypted by the driver:
        its unwritten ranges read as noise.
        """
        recorded = self.service.node.volumes.volume(volume.id)
        noise = recorded is not None and recorded.encryption
        super().copy_image_to_volume(  # type: ignore[misc]
            context, volume, image_service, image_id,
            disable_sparse=disable_sparse or bool(noise))

    # -- volumes encrypted by Nova

    def copy_image_to_encrypted_volume(
            self, context: objects.Context, volume: objects.Volume,
            image_service: typing.Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Write an image to a volume encrypted by Nova.

        See :func:`.images.copy_image`.
        """
        def fetch(path: str) -> None:
            image_utils.fetch_to_raw(
                context, image_service, image_id, path,
                self.configuration.volume_dd_blocksize, size=volume.size,
                disable_sparse=disable_sparse)
        with messages.telling_of(Action.IMAGE, volume):
            images.copy_image(self.service.reconciler, context,
                              Volume.of(volume), image_id, fetch)

    def _attach_volume(self, context: objects.Context, volume: objects.Volume,
                       properties: objects.Connector, remote: bool = False
                       ) -> typing.Any:
        """Connect a volume to this node, for reads and writes by Cinder.

        Cinder would change the key of a new encrypted volume, and would format
        a volume with a header that it can't read. So this connection is
        refused.

        :raises RekeyNotSupported: for a new volume with a key; Cinder accepts
            this
        """
        if volume.status == 'creating' and volume.encryption_key_id:
            raise exception.RekeyNotSupported()
        return super()._attach_volume(  # type: ignore[misc]
            context, volume, properties, remote)

    # -- snapshots

    def create_snapshot(self, snapshot: objects.Snapshot
                        ) -> dict[str, typing.Any]:
        """Take a snapshot at the volume's home; see :mod:`.snapshots`.

        :raises LocalCloneError: if it can't be taken; the owner is told why
        """
        try:
            return {'provider_location': snapshots.create(
                self.service.reconciler, snapshot.id, snapshot.volume_id,
                self.configuration.localclone_snapshot_timeout)}
        except Exception as exc:
            messages.tell_member(
                snapshot._context, snapshot.id, exc, Action.SNAPSHOT)
            raise

    def delete_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Remove a snapshot, at once or when its node can; never an error."""
        snapshots.delete(self.service.node, snapshot.id)

    def snapshot_revert_use_temp_snapshot(self) -> bool:
        """Return False: a revert does not write to the volume's LV."""
        return False

    def revert_to_snapshot(self, context: objects.Context,
                           volume: objects.Volume, snapshot: objects.Snapshot
                           ) -> None:
        """Revert a volume to a snapshot; see :mod:`.revert`.

        :raises NotReverted: if it can't be reverted; the owner is told why,
            and the volume is available as before
        """
        recorded = None
        try:
            recorded = self.service.node.volumes.volume(volume.id)
            if recorded is None:
                raise exceptions.TooLate(what='Volume ' + volume.id)
            rpc.call_at_home(revert.revert, self.service.reconciler, recorded,
                             snapshot.id)
        except Exception as exc:
            messages.tell_member(context, volume.id, exc, Action.REVERT)
            # Cinder would set a volume that is still "reverting" to error. The
            # volume in the call may have moved since.
            self.service.node.volumes.keep(
                volume.id, (recorded or volume).name_id)
            raise exceptions.NotReverted(volume=volume.id, reason=exc)

    def initialize_connection_snapshot(
            self, snapshot: objects.Snapshot, connector: objects.Connector,
            **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Connect a snapshot to a host, read-only (for a backup).

        The node with the snapshot exports it, unless it is the host itself.
        """
        node = self.service.node
        return rpc.call_at(snapshots.with_node(node, snapshot.id).node,
                           snapshots.connect, node, snapshot.id, connector)

    def terminate_connection_snapshot(self, snapshot: objects.Snapshot,
                                      connector: objects.Connector | None,
                                      **kwargs: typing.Any) -> None:
        """End the connection of a snapshot to a host.

        :param connector: None: all hosts
        """
        snapshots.disconnect(self.service.node, snapshot.id, connector)

    def create_export_snapshot(self, context: objects.Context,
                               snapshot: objects.Snapshot,
                               connector: objects.Connector) -> None:
        """Do nothing; see :meth:`initialize_connection_snapshot`."""

    def remove_export_snapshot(self, context: objects.Context,
                               snapshot: objects.Snapshot) -> None:
        """Do nothing; see :meth:`terminate_connection_snapshot`."""

    # -- backups

    def get_backup_device(self, context: objects.Context,
                          backup: objects.Backup) -> tuple[typing.Any, bool]:
        """Return the volume or snapshot to back up, as Cinder's drivers do.

        :raises LocalCloneError: if there is none; the backup fails, and its
            owner is told why
        """
        try:
            found: tuple[typing.Any, bool] = (
                super().get_backup_device(  # type: ignore[misc]
                    context, backup))
            return found
        except Exception as exc:
            messages.tell_member(context, backup.id, exc, Action.BACKUP)
            backups.end(backup, exc)
            raise


@contextlib.contextmanager
def no_second_try() -> Iterator[None]:
    """Convert any error, so that Cinder's scheduler tries no other node.

    Another node would fail as well.

    :raises NotCreated: after any error
    """
    try:
        yield
    except Exception as exc:
        raise exceptions.NotCreated(str(exc)) from exc
