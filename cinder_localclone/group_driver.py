# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: groups.

All that Cinder does for a group of volumes it does with each of them, unless
a driver can do better; that is enough but where a group's type wants more.
"""

import typing

from cinder.i18n import _
from cinder.volume import volume_utils

from cinder_localclone import exceptions

#: A group of volumes, or a snapshot of one.
Group: typing.TypeAlias = typing.Any


class NotConsistent(exceptions.LocalCloneError):
    """A group whose volumes' snapshots would have to be of one moment."""

    message = _('Group %(group)s is of a type with '
                'consistent_group_snapshot_enabled, and this backend takes '
                'the snapshots of a group\'s volumes one after the other. '
                'Nothing was changed. Choose a group type without it.')


class GroupDriver:
    """What the driver is besides :mod:`.driver`: a part of it."""

    def create_group(self, context: object, group: Group) -> typing.NoReturn:
        """Leave it to Cinder.

        :raises NotImplementedError: so that it does
        :raises NotConsistent: if its snapshots are to be of one moment
        """
        _leave_to_cinder(group)

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
