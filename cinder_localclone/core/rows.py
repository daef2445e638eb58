# SPDX-License-Identifier: Apache-2.0
"""Volumes and snapshots, by their rows in Cinder's database. Pure."""

import dataclasses
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects as core_objects
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types

#: A volume of Cinder, or its row.
Row: typing.TypeAlias = typing.Any

_VERSION = 'lc1'


def is_home(row: Row, host: str) -> bool:
    """Return whether a node is the home of a volume.

    :param host: service host of the node
    """
    return names.service_host(row.host) == host


def recorded(row: Row) -> volume_types.Recorded | None:
    """Return the recorded encryption of a volume; None without encryption.

    :raises NotPossible: if the row can't be understood. Then no operation on
        the volume is allowed
    """
    try:
        return volume_types.Recorded.parse(row.provider_id)
    except ValueError as exc:
        raise exceptions.NotPossible(volume=row.id, reason='%s.' % exc)


def is_authenticated(row: Row) -> bool:
    """Return whether only one node may have a volume open at a time.

    :raises NotPossible: as :func:`recorded`
    """
    encryption = recorded(row)
    return bool(encryption and encryption.authenticated)


def extra_bytes(row: Row) -> int:
    """Return the bytes of a backing device beyond the volume's size.

    :raises NotPossible: as :func:`recorded`
    """
    encryption = recorded(row)
    return encryption.header_bytes if encryption else 0


def backing_bytes(row: Row, size_gib: int | None = None) -> int:
    """Return the length of a volume's backing device in bytes.

    :param size_gib: size of the volume; by default the size in its row
    :raises NotPossible: as :func:`recorded`
    """
    return state.backing_bytes(row.size if size_gib is None else size_gib,
                               extra_bytes(row))


def may_move(row: Row, asked_by: state.Asked, by_cinder: bool) -> bool:
    """Return whether other work on the volume allows a move to begin.

    :param by_cinder: whether Cinder's own migration or retype uses the volume
    """
    if asked_by is state.Asked.ATTACH:
        return not by_cinder
    if asked_by is state.Asked.DEFERRED:
        return bool(not by_cinder and row.status == 'in-use')
    if row.attach_status == 'attached':
        return False
    if asked_by is state.Asked.MIGRATION:
        return bool(row.migration_status == 'migrating'
                    and row.status in statuses.MIGRATED)
    return not by_cinder and bool(row.status == statuses.FREE)


def why_it_stays(row: Row, asked_by: state.Asked, by_cinder: bool) -> str:
    """Return why a volume not attached can't be moved; '' if it can."""
    if row.group_id:
        return 'it belongs to a group, whose volumes stay together.'
    if may_move(row, asked_by, by_cinder):
        return _why_unknown(row)
    if by_cinder and asked_by is not state.Asked.MIGRATION:
        return 'Cinder is migrating it.'
    return 'its status is "%s".' % row.status


def _why_unknown(row: Row) -> str:
    try:
        recorded(row)
    except exceptions.NotPossible:
        return 'its encryption is unknown to this driver.'
    return ''


def status_after_death(row: Row, lv_bytes: int | None, by_cinder: bool
                       ) -> str | None:
    """Return the status of a volume whose service died at work on it.

    :param lv_bytes: readable bytes of its LV at its home; None without an LV
    :param by_cinder: whether Cinder's own migration or retype copies the
        volume
    :returns: the status; None if it can't be known
    :raises NotPossible: as :func:`recorded`
    """
    usable = 'in-use' if row.attach_status == 'attached' else statuses.FREE
    if row.status == 'retyping' and not by_cinder:
        return usable
    if row.status == 'reverting' and lv_bytes:
        # Before or after the change of its row: the row names one LV.
        return statuses.FREE
    if row.status == 'extending' and lv_bytes:
        size_gib = lv_bytes - extra_bytes(row) >> 30
        if size_gib > row.size:
            return 'error_extending'  # the status of Cinder's manager
        return usable if size_gib == row.size else None
    return None


def is_encrypted_by_nova(row: Row) -> bool:
    """Return whether Nova encrypts a volume.

    Nova does so if the volume has a key, whatever its type is by now.
    """
    return bool(row.encryption_key_id)


def visible_id(row: Row) -> str | None:
    """Return the volume that Cinder's own migration copies to a row.

    :returns: None if the row is not the destination of such a copy
    """
    return move_record.target_of(row)


def handle_id(row: Row) -> str:
    """Return the id in the name of the handle above a volume's LV.

    During Cinder's own migration it is the id of the migrated volume. A
    process with the destination open, such as Nova's for an attached volume,
    then keeps the right path afterwards.
    """
    return visible_id(row) or str(row.id)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot, by its row.

    It stays on the node where it was taken, wherever its volume moves.

    :param size_gib: the volume's size when it was taken
    :param node: service host of its node; '' before its creation has begun,
        and for a snapshot of another driver
    :param deleted: whether its row is soft-deleted
    :param provider_id: the encryption of the volume when it was taken
    """

    id: str
    volume_id: str
    size_gib: int
    status: str
    node: str
    deleted: bool = False
    provider_id: str | None = None

    @property
    def lv(self) -> str:
        """The name of its LV."""
        return names.snapshot_lv(self.id)

    @property
    def size_bytes(self) -> int:
        """The length of the volume's backing device at that time, in bytes.

        :raises NotPossible: as :func:`.rows.recorded`
        """
        return state.backing_bytes(self.size_gib, extra_bytes(self))

    @property
    def is_to_wipe(self) -> bool:
        """Whether its LV is certainly no longer needed."""
        return self.deleted or self.status == 'deleting'


@dataclasses.dataclass(frozen=True)
class Uncommitted:
    """The row of a volume with an uncommitted LV.

    :param home: its service host
    :param lv: the name of its LV there
    :param deleted: whether its row is soft-deleted
    """

    status: str
    home: str
    lv: str
    deleted: bool = False


def location(host: str) -> str:
    """Return the provider_location of a snapshot on a node."""
    return '%s:%s' % (_VERSION, host)


def node_of(location: str | None) -> str:
    """Return the node in a provider_location; '' if there is none."""
    version, _colon, host = (location or '').partition(':')
    return host if version == _VERSION else ''


def is_migrated_by_cinder(volume: core_objects.Volume) -> bool:
    """Return whether a volume is either end of Cinder's own migration."""
    return (volume.migration_status not in statuses.NO_MIGRATION
            and not move_record.is_move_record(volume))


def why_pinned(volume: core_objects.Volume) -> str | None:
    """Return why a volume must stay on its node; None if it may leave."""
    if volume.group_id:
        return 'it belongs to a group'
    if is_migrated_by_cinder(volume):
        return 'Cinder is migrating it to another backend'
    return None
