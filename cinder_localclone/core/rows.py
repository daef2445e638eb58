# SPDX-License-Identifier: Apache-2.0
"""Volumes and snapshots, as Cinder's rows describe them. Pure."""

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
    """Whether a node is the home of a volume.

    :param host: service host of the node
    """
    return names.service_host(row.host) == host


def recorded(row: Row) -> volume_types.Recorded | None:
    """How a volume is encrypted by this driver; None if it is not.

    :raises NotPossible: if the row can't be understood: nothing may be done
        with the volume
    """
    try:
        return volume_types.Recorded.parse(row.provider_id)
    except ValueError as exc:
        raise exceptions.NotPossible(volume=row.id, reason='%s.' % exc)


def is_authenticated(row: Row) -> bool:
    """Whether only one node may have a volume open at one time.

    :raises NotPossible: as :func:`recorded`
    """
    encryption = recorded(row)
    return bool(encryption and encryption.authenticated)


def extra_bytes(row: Row) -> int:
    """By how much the body of a volume is longer than the volume.

    :raises NotPossible: as :func:`recorded`
    """
    encryption = recorded(row)
    return encryption.header_bytes if encryption else 0


def backing_bytes(row: Row, size_gib: int | None = None) -> int:
    """How long the body of a volume is.

    :param size_gib: of the volume, if not as the row says
    :raises NotPossible: as :func:`recorded`
    """
    return state.backing_bytes(row.size if size_gib is None else size_gib,
                               extra_bytes(row))


def may_move(row: Row, asked_by: state.Asked, by_cinder: bool) -> bool:
    """Whether a move may begin, as far as other work on the volume goes.

    :param by_cinder: whether Cinder's own migration or retype has it
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
    """Why a volume that nobody has attached can't be moved; '' if it can."""
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


def after_death(row: Row, lv_bytes: int | None, by_cinder: bool
                ) -> str | None:
    """How the work on a volume has ended whose service died.

    :param lv_bytes: how much may be seen of its LV at its home; None if that
        has none
    :param by_cinder: whether Cinder's own migration or retype copies it
    :returns: its status; None if it can't be known
    :raises NotPossible: as :func:`recorded`
    """
    usable = 'in-use' if row.attach_status == 'attached' else statuses.FREE
    if row.status == 'retyping' and not by_cinder:
        return usable
    if row.status == 'reverting' and lv_bytes:
        # By the change of its row or not: it names one body.
        return statuses.FREE
    if row.status == 'extending' and lv_bytes:
        size_gib = lv_bytes - extra_bytes(row) >> 30
        if size_gib > row.size:
            return 'error_extending'  # what Cinder's manager would have said
        return usable if size_gib == row.size else None
    return None


def is_encrypted_by_nova(row: Row) -> bool:
    """Whether Nova takes a volume for one that it has to encrypt.

    It does if the volume has a key, whatever its type says by now.
    """
    return bool(row.encryption_key_id)


def visible_id(row: Row) -> str | None:
    """The volume that Cinder's own migration copies into another row.

    None if the row is not that of such a copy.
    """
    return move_record.target_of(row)


def handle_id(row: Row) -> str:
    """Whose handle is above a volume's LV.

    That of the volume that it is to be, if Cinder copies another one into
    it: who opens it during the copy, as Nova does with what is attached, has
    the right path afterwards.
    """
    return visible_id(row) or str(row.id)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot as the database tells it.

    It stays on the node where it was taken, wherever its volume goes.

    :param size_gib: the volume's size when it was taken
    :param node: service host of the node that has it; '' before anything of
        it was made, or if it is none of this driver's
    :param deleted: whether its row is only kept for the books
    :param provider_id: what its row says of the volume's encryption then
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
        """How long the volume's body was then, in bytes.

        :raises NotPossible: as :func:`.rows.recorded`
        """
        return state.backing_bytes(self.size_gib, extra_bytes(self))

    @property
    def is_to_wipe(self) -> bool:
        """Whether nobody wants it any more, beyond doubt."""
        return self.deleted or self.status == 'deleting'


@dataclasses.dataclass(frozen=True)
class Uncommitted:
    """What the database says of a volume whose LV nobody was given yet.

    :param home: its service host
    :param lv: the name of its LV there
    :param deleted: whether its row is only kept for the books
    """

    status: str
    home: str
    lv: str
    deleted: bool = False


def location(host: str) -> str:
    """How a snapshot's row says which node has it (provider_location)."""
    return '%s:%s' % (_VERSION, host)


def node_of(location: str | None) -> str:
    """The node in a provider_location; '' if there is none."""
    version, _colon, host = (location or '').partition(':')
    return host if version == _VERSION else ''


def is_migrated_by_cinder(volume: core_objects.Volume) -> bool:
    """Whether Cinder's own migration has a volume, as either end."""
    return (volume.migration_status not in statuses.NO_MIGRATION
            and not move_record.is_move_record(volume))


def why_pinned(volume: core_objects.Volume) -> str | None:
    """Why a volume must stay where it is, if it must."""
    if volume.group_id:
        return 'it belongs to a group'
    if is_migrated_by_cinder(volume):
        return 'Cinder is migrating it to another backend'
    return None
