# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: groups.

All that Cinder does for a group of volumes it does with each of them, unless
a driver can do better; that is enough but where a group's type wants more,
and where one of them can't be deleted.
"""

import typing

from cinder import exception
from cinder.i18n import _
from cinder.objects import fields
from cinder import utils
from cinder.volume import volume_utils
from oslo_log import log as logging

from cinder_localclone import exceptions
from cinder_localclone import ports

LOG = logging.getLogger(__name__)

#: A group of volumes, or a snapshot of one.
Group: typing.TypeAlias = typing.Any
#: What Cinder's manager writes to the row of a group, or of a volume.
Update: typing.TypeAlias = dict[str, str]


class NotConsistent(exceptions.LocalCloneError):
    """A group whose volumes' snapshots would have to be of one moment."""

    message = _('Group %(group)s is of a type with '
                'consistent_group_snapshot_enabled, and this backend takes '
                'the snapshots of a group\'s volumes one after the other. '
                'Nothing was changed. Choose a group type without it.')


class GroupDriver:
    """What the driver is besides :mod:`.driver`: a part of it."""

    #: :meth:`.driver.LocalCloneDriver.delete_volume`
    delete_volume: typing.Callable[[ports.Volume], None]

    def create_group(self, context: object, group: Group) -> typing.NoReturn:
        """Leave it to Cinder.

        :raises NotImplementedError: so that it does
        :raises NotConsistent: if its snapshots are to be of one moment
        """
        _leave_to_cinder(group)

    def delete_group(self, context: object, group: Group,
                     volumes: list[ports.Volume]
                     ) -> tuple[Update, list[Update]]:
        """Delete all volumes of a group, and the group if they are gone.

        Not left to Cinder (``_delete_group_generic`` in
        cinder/volume/manager.py): it would remove the rows of those, too,
        that can't be deleted now, and nobody would name their data any more.

        :returns: what to write to the group's row, and to the volumes'. If
            some can't be deleted now, they are available and the group is in
            error: it can be deleted again, and the rows of those that are
            gone stay until then
        """
        found = {volume.id: self._delete_one(volume) for volume in volumes}
        if set(found.values()) <= {'deleted'}:
            status = group.status
        else:
            status = fields.GroupStatus.ERROR
            found = {volume_id: 'error_deleting' if each == 'deleted' else each
                     for volume_id, each in found.items()}
        return {'status': status}, [{'id': volume_id, 'status': each}
                                    for volume_id, each in found.items()]

    def _delete_one(self, volume: ports.Volume) -> str:
        """The status that a volume has then."""
        try:
            self.delete_volume(volume)
            utils.clean_volume_file_locks(volume.id, self)
        except exception.VolumeIsBusy as exc:
            LOG.warning('The group of volume %(volume)s is not deleted: '
                        '%(error)s', {'volume': volume.id, 'error': exc})
            return 'available'
        except Exception:
            LOG.exception('The group of volume %s is not deleted', volume.id)
            return 'error_deleting'
        return 'deleted'

    def create_group_snapshot(self, context: object, group_snapshot: Group,
                              snapshots: object) -> typing.NoReturn:
        """As :meth:`create_group`: its type may have changed since."""
        _leave_to_cinder(group_snapshot)

    def create_group_from_src(
            self, context: object, group: Group, volumes: object,
            group_snapshot: Group = None, snapshots: object = None,
            source_group: Group = None, source_vols: object = None,
    ) -> typing.NoReturn:
        """As :meth:`create_group`."""
        _leave_to_cinder(group)


def _leave_to_cinder(group: Group) -> typing.NoReturn:
    if volume_utils.is_group_a_cg_snapshot_type(group):
        raise NotConsistent(group=group.id)
    raise NotImplementedError()
