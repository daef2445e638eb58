# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: snapshots, and volumes made of an image."""

from collections.abc import Iterator
import contextlib
import typing

from cinder import exception
from cinder.image import image_utils
from cinder.message import message_field

from cinder_localclone.core import exceptions
from cinder_localclone.core import objects
from cinder_localclone.core import outcomes
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.db import backups
from cinder_localclone.driver import front_end
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import images
from cinder_localclone.volumes import revert
from cinder_localclone.volumes import snapshots


class ImageDriver:
    """What the driver is besides :mod:`.driver`: a part of it."""

    configuration: assembly.Configuration
    service: assembly.Service

    # -- volumes

    def create_volume_from_snapshot(self, volume: objects.Volume,
                                    snapshot: objects.Snapshot) -> None:
        """A volume on the node that has the snapshot, without a copy.

        See :func:`.clone.from_snapshot`.

        :raises BirthFailed: if that can't be; its owner is told why
        """
        with no_second_try(), telling_of_creation(volume):
            front_end.wanted(self.service.node, volume)
            front_end.check_alike(volume, snapshot,
                                  'snapshot ' + snapshot.id)
            clone.from_snapshot(self.service.node, volume.id, snapshot.id)

    def create_cloned_volume(self, volume: objects.Volume,
                             src_vref: objects.Volume) -> None:
        """A volume at the home of another, without a copy.

        See :func:`.clone.from_volume`.

        :raises BirthFailed: if that can't be; its owner is told why
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(no_second_try())
            if volume.source_volid == src_vref.id:
                # Else it is an image, which Cinder can download as well.
                stack.enter_context(telling_of_creation(volume))
            front_end.wanted(self.service.node, volume)
            front_end.check_alike(volume, src_vref, 'volume ' + src_vref.id)
            clone.from_volume(
                self.service.reconciler, volume.id, src_vref.id,
                self.configuration.localclone_snapshot_timeout)

    # -- images

    def copy_image_to_volume(
            self, context: objects.Context, volume: objects.Volume,
            image_service: typing.Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Write an image to a volume; zeros, too, where they are none yet.

        What was never written to an encrypted volume reads as noise.
        """
        recorded = self.service.node.volumes.volume(volume.id)
        noise = recorded is not None and rows.recorded(recorded)
        super().copy_image_to_volume(  # type: ignore[misc]
            context, volume, image_service, image_id,
            disable_sparse=disable_sparse or bool(noise))

    # -- what Nova encrypts

    def copy_image_to_encrypted_volume(
            self, context: objects.Context, volume: objects.Volume,
            image_service: typing.Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Write an image to a volume that Nova encrypts.

        See :func:`.images.copy_image`.
        """
        def fetch(path: str) -> None:
            image_utils.fetch_to_raw(
                context, image_service, image_id, path,
                self.configuration.volume_dd_blocksize, size=volume.size,
                disable_sparse=disable_sparse)
        with telling_of_creation(volume):
            images.copy_image(self.service.reconciler, context, volume,
                              image_id, fetch)

    def _attach_volume(self, context: objects.Context, volume: objects.Volume,
                       properties: objects.Connector, remote: bool = False
                       ) -> typing.Any:
        """Cinder's own way to a volume; not to give a new one another key.

        Cinder would do that after its creation, through the home's export if
        it can, and formats there what it can't read.

        :raises RekeyNotSupported: for that; Cinder takes it for an answer
        """
        if volume.status == 'creating' and volume.encryption_key_id:
            raise exception.RekeyNotSupported()
        return super()._attach_volume(  # type: ignore[misc]
            context, volume, properties, remote)

    # -- snapshots

    def create_snapshot(self, snapshot: objects.Snapshot
                        ) -> dict[str, typing.Any]:
        """Take a snapshot at the volume's home. See :mod:`.snapshots`.

        :raises LocalCloneError: if it can't be taken; its owner is told why
        """
        try:
            return {'provider_location': snapshots.create(
                self.service.reconciler, snapshot.id, snapshot.volume_id,
                self.configuration.localclone_snapshot_timeout)}
        except Exception as exc:
            messages.tell_owner(
                snapshot._context, snapshot.id, exc,
                message_field.Action.SNAPSHOT_CREATE, outcomes.CREATE_FAILED,
                message_field.Resource.VOLUME_SNAPSHOT)
            raise

    def delete_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Remove a snapshot, now or when its node can; never an error."""
        snapshots.delete(self.service.node, snapshot.id)

    def snapshot_revert_use_temp_snapshot(self) -> bool:
        """Not needed: what is reverted is not written to."""
        return False

    def revert_to_snapshot(self, context: objects.Context,
                           volume: objects.Volume, snapshot: objects.Snapshot
                           ) -> None:
        """Give a volume what a snapshot has. See :mod:`.revert`.

        :raises NotReverted: if that can't be; its owner is told why, and it
            is available as before
        """
        try:
            recorded = self.service.node.volumes.volume(volume.id)
            if recorded is None:
                raise exceptions.TooLate(what='Volume ' + volume.id)
            rpc.at_home(revert.revert, self.service.reconciler, recorded,
                        snapshot.id)
        except Exception as exc:
            messages.tell_owner(context, volume.id, exc, messages.REVERT,
                                exceptions.NotReverted.user_message)
            # Cinder would leave it in error.
            self.service.node.volumes.keep(volume.id, volume.name_id)
            raise exceptions.NotReverted(volume=volume.id, reason=exc)

    def initialize_connection_snapshot(
            self, snapshot: objects.Snapshot, connector: objects.Connector,
            **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Serve a snapshot to a host, to be read (by a backup)."""
        node = self.service.node
        return rpc.at(snapshots.located(node, snapshot.id).node,
                      snapshots.connect, node, snapshot.id, connector)

    def terminate_connection_snapshot(self, snapshot: objects.Snapshot,
                                      connector: objects.Connector | None,
                                      **kwargs: typing.Any) -> None:
        """End that."""
        snapshots.disconnect(self.service.node, snapshot.id, connector)

    def create_export_snapshot(self, context: objects.Context,
                               snapshot: objects.Snapshot,
                               connector: objects.Connector) -> None:
        """Nothing: see initialize_connection_snapshot."""

    def remove_export_snapshot(self, context: objects.Context,
                               snapshot: objects.Snapshot) -> None:
        """Nothing: see terminate_connection_snapshot."""

    # -- backups

    def get_backup_device(self, context: objects.Context,
                          backup: objects.Backup) -> tuple[typing.Any, bool]:
        """What a backup is made of, as Cinder's drivers do it.

        :raises LocalCloneError: if there is none; the backup fails, and its
            owner is told why
        """
        try:
            found: tuple[typing.Any, bool] = (
                super().get_backup_device(  # type: ignore[misc]
                    context, backup))
            return found
        except Exception as exc:
            messages.tell_owner(
                context, backup.id, exc, message_field.Action.BACKUP_CREATE,
                outcomes.CREATE_FAILED, message_field.Resource.VOLUME_BACKUP)
            backups.end(backup, exc)
            raise


@contextlib.contextmanager
def telling_of_creation(volume: objects.Volume) -> Iterator[None]:
    """Tell a volume's owner why it was not created."""
    try:
        yield
    except Exception as exc:
        messages.tell_owner(
            volume._context, volume.id, exc,
            message_field.Action.CREATE_VOLUME_FROM_BACKEND,
            outcomes.CREATE_FAILED)
        raise


@contextlib.contextmanager
def no_second_try() -> Iterator[None]:
    """Another node would meet what this one has met.

    :raises BirthFailed: if anything is raised
    """
    try:
        yield
    except Exception as exc:
        raise exceptions.NotCreated(str(exc)) from exc
