# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: manage and unmanage existing LVs."""

import typing

from cinder.volume import volume_utils

from cinder_localclone.core import objects
from cinder_localclone.core import rpc
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core.volume import Volume
from cinder_localclone.encryption import policy
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manage_snapshots

#: The operator's name for an LV: source-name or source-id.
Reference: typing.TypeAlias = typing.Any
Page: typing.TypeAlias = typing.Any


class ManageDriver:
    """The methods of the driver to manage existing LVs."""

    service: assembly.Service

    # -- volumes

    def manage_existing_get_size(self, volume: objects.Volume,
                                 existing_ref: Reference) -> int:
        """Return the size of a volume from an existing LV in GiB.

        :raises CannotManage: if the LV can't become a volume; the owner is
            told
        """
        with messages.telling_of(Action.MANAGE, volume):
            self._check_managed(volume, existing_ref)
            return manage.get_size(self.service.node, volume.id,
                                   _as_mapping(existing_ref))

    def manage_existing(self, volume: objects.Volume, existing_ref: Reference
                        ) -> dict[str, str]:
        """Manage an LV of this node as a volume; see :mod:`.manage`.

        :returns: its home with the pool; an operator need not name the pool
        :raises LocalCloneError: if the LV can't be managed; the owner is told
        """
        with messages.telling_of(Action.MANAGE, volume):
            self._check_managed(volume, existing_ref)
            manage.manage(self.service.node, volume.id,
                          _as_mapping(existing_ref))
        return {'host': volume_utils.append_host(
            self.service.node.host, self.service.backend_name)}

    def _check_managed(self, volume: objects.Volume, existing_ref: Reference
                       ) -> None:
        policy.check_managed(
            self.service.node, Volume.of(volume),
            ' '.join(map(str, _as_mapping(existing_ref).values())))

    def unmanage(self, volume: objects.Volume) -> None:
        """Leave a volume's LV, at its home, to other tools.

        :raises CannotUnmanage: if this is not possible now; the owner is told
        """
        with messages.telling_of(Action.UNMANAGE, volume):
            recorded = self.service.node.volumes.volume(volume.id)
            policy.check_unmanaged(recorded)
            if recorded is not None:  # otherwise it is gone
                rpc.call_at_home(manage.unmanage, self.service.node, recorded)

    def get_manageable_volumes(
            self, cinder_volumes: object, marker: Page, limit: Page,
            offset: Page, sort_keys: Page, sort_dirs: Page) -> Page:
        """Return the volumes, and the manageable LVs, of this node."""
        return volume_utils.paginate_entries_list(
            manage.listed(self.service.node), marker, limit, offset,
            sort_keys, sort_dirs)

    # -- snapshots

    def manage_existing_snapshot_get_size(
            self, snapshot: objects.Snapshot, existing_ref: Reference) -> int:
        """Return the size of a snapshot from an existing LV in GiB.

        :raises CannotManage: if the LV can't become a snapshot
        """
        return manage_snapshots.get_size(
            self.service.node, snapshot.id, _as_mapping(existing_ref))

    def manage_existing_snapshot(self, snapshot: objects.Snapshot,
                                 existing_ref: Reference) -> dict[str, str]:
        """Manage an LV as a snapshot, at the home of its volume or elsewhere.

        :raises LocalCloneError: if the LV can't be managed
        """
        return {'provider_location': manage_snapshots.manage(
            self.service.node, snapshot.id, _as_mapping(existing_ref))}

    def unmanage_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Leave a snapshot's LV, on its node, to other tools.

        :raises SnapshotInUse: if a host is reading the snapshot
        """
        manage_snapshots.unmanage(self.service.node, snapshot.id)

    def get_manageable_snapshots(
            self, cinder_snapshots: object, marker: Page, limit: Page,
            offset: Page, sort_keys: Page, sort_dirs: Page) -> Page:
        """Return the snapshots, and the manageable LVs, of this node.

        Cinder's own list has the snapshots of volumes at home on this node.
        """
        return volume_utils.paginate_entries_list(
            manage_snapshots.listed(self.service.node), marker, limit,
            offset, sort_keys, sort_dirs)


def _as_mapping(reference: Reference) -> manage.Reference:
    """Return a reference as a mapping; the API also accepts a plain name."""
    return reference if isinstance(reference, dict) else {
        'source-name': str(reference)}
