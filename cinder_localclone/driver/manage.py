# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: what is managed already, or no more."""

from collections.abc import Iterator
import contextlib
import typing

from cinder.message import message_field
from cinder.volume import volume_utils

from cinder_localclone.core import exceptions
from cinder_localclone.core import objects
from cinder_localclone.core import outcomes
from cinder_localclone.core import rpc
from cinder_localclone.encryption import policy
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manage_snapshots

#: How an operator names an LV: source-name or source-id.
Reference: typing.TypeAlias = typing.Any
Page: typing.TypeAlias = typing.Any


class ManageDriver:
    """What the driver is besides :mod:`.driver`: a part of it."""

    service: assembly.Service

    # -- volumes

    def manage_existing_get_size(self, volume: objects.Volume,
                                 existing_ref: Reference) -> int:
        """The GiB that a volume of an LV will have.

        :raises CannotManage: if the LV can't become one; its owner is told
        """
        with _telling(volume, message_field.Action.CREATE_VOLUME_FROM_BACKEND,
                      exceptions.CannotManage.user_message):
            self._check_managed(volume, existing_ref)
            return manage.get_size(self.service.node, volume.id,
                                   _as_mapping(existing_ref))

    def manage_existing(self, volume: objects.Volume, existing_ref: Reference
                        ) -> dict[str, str]:
        """Make a volume of an LV of this node. See :mod:`.manage`.

        :returns: its home with the pool, which an operator need not name
        :raises LocalCloneError: if that can't be; its owner is told
        """
        with _telling(volume, message_field.Action.CREATE_VOLUME_FROM_BACKEND,
                      exceptions.CannotManage.user_message):
            self._check_managed(volume, existing_ref)
            manage.manage(self.service.node, volume.id,
                          _as_mapping(existing_ref))
        return {'host': volume_utils.append_host(
            self.service.node.host, self.service.backend_name)}

    def _check_managed(self, volume: objects.Volume, existing_ref: Reference
                       ) -> None:
        policy.check_managed(
            self.service.node, volume,
            ' '.join(map(str, _as_mapping(existing_ref).values())))

    def unmanage(self, volume: objects.Volume) -> None:
        """Leave a volume's LV, at its home, to whoever wants it.

        :raises CannotUnmanage: if it can't be left now; its owner is told
        """
        with _telling(volume, message_field.Action.UNMANAGE_VOLUME,
                      exceptions.CannotUnmanage.user_message):
            recorded = self.service.node.volumes.volume(volume.id)
            policy.check_unmanaged(recorded)
            if recorded is not None:  # else it is gone
                rpc.at_home(manage.unmanage, self.service.node, recorded)

    def get_manageable_volumes(
            self, cinder_volumes: object, marker: Page, limit: Page,
            offset: Page, sort_keys: Page, sort_dirs: Page) -> Page:
        """All that is, or could be, a volume on this node."""
        return volume_utils.paginate_entries_list(
            manage.listed(self.service.node), marker, limit, offset,
            sort_keys, sort_dirs)

    # -- snapshots

    def manage_existing_snapshot_get_size(
            self, snapshot: objects.Snapshot, existing_ref: Reference) -> int:
        """The GiB that a snapshot of an LV will have.

        :raises CannotManage: if the LV can't become one
        """
        return manage_snapshots.get_size(
            self.service.node, snapshot.id, _as_mapping(existing_ref))

    def manage_existing_snapshot(self, snapshot: objects.Snapshot,
                                 existing_ref: Reference) -> dict[str, str]:
        """Make a snapshot of an LV, at the home of its volume or elsewhere.

        :raises LocalCloneError: if that can't be
        """
        return {'provider_location': manage_snapshots.manage(
            self.service.node, snapshot.id, _as_mapping(existing_ref))}

    def unmanage_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Leave a snapshot's LV, where it is, to whoever wants it.

        :raises SnapshotInUse: if it is being read
        """
        manage_snapshots.unmanage(self.service.node, snapshot.id)

    def get_manageable_snapshots(
            self, cinder_snapshots: object, marker: Page, limit: Page,
            offset: Page, sort_keys: Page, sort_dirs: Page) -> Page:
        """All that is, or could be, a snapshot on this node.

        Cinder's own list has those whose volume is here by now.
        """
        return volume_utils.paginate_entries_list(
            manage_snapshots.listed(self.service.node), marker, limit,
            offset, sort_keys, sort_dirs)


def _as_mapping(reference: Reference) -> manage.Reference:
    """The API takes a mere name, too."""
    return reference if isinstance(reference, dict) else {
        'source-name': str(reference)}


@contextlib.contextmanager
def _telling(volume: objects.Volume, action: tuple[str, str],
             otherwise: outcomes.UserMessage
             ) -> Iterator[None]:
    """Tell a volume's owner why something was not done."""
    try:
        yield
    except Exception as exc:
        messages.tell_owner(volume._context, volume.id, exc, action,
                            otherwise=otherwise)
        raise
