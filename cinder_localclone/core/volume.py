# SPDX-License-Identifier: Apache-2.0
"""A volume of Cinder as one read-only value. Pure.

A value describes the volume at the moment when its row was read, and never
changes. So an operation reads the volume under the volume's lock, passes the
value on, and reads the volume again after each wait and each change of the
row. Only :mod:`cinder_localclone.db` writes rows; a write compares the row
with the value of its caller.
"""

import dataclasses
import datetime
from typing import Any
from typing import Self

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types


class Encrypted:
    """The encryption recorded in the row of a volume or snapshot."""

    id: str
    provider_id: str | None

    @property
    def encryption(self) -> volume_types.Recorded | None:
        """The recorded encryption; None without encryption.

        :raises NotPossible: if the row can't be understood. Then no operation
            on the volume is allowed
        """
        try:
            return volume_types.Recorded.parse(self.provider_id)
        except ValueError as exc:
            raise exceptions.NotPossible(volume=self.id, reason='%s.' % exc)

    @property
    def is_authenticated(self) -> bool:
        """Whether only one node may have the volume open at a time.

        :raises NotPossible: as :attr:`encryption`
        """
        encryption = self.encryption
        return bool(encryption and encryption.authenticated)

    @property
    def extra_bytes(self) -> int:
        """The bytes of a backing device beyond the volume's size.

        :raises NotPossible: as :attr:`encryption`
        """
        encryption = self.encryption
        return encryption.header_bytes if encryption else 0


@dataclasses.dataclass(frozen=True)
class Row(Encrypted):
    """A volume without its attachments.

    The fields have the names of Cinder's columns and properties.

    :param name: the name of the LV
    :param name_id: the id in the name of the LV
    :param host: the home with the pool; '' or None without a home
    :param size: GiB
    :param provider_id: see :attr:`encryption`
    :param updated_at: the time of the last change of the row (UTC)
    """

    id: str
    name: str
    name_id: str
    host: str
    size: int
    status: str
    attach_status: str
    migration_status: str | None
    provider_id: str | None
    encryption_key_id: str | None
    volume_type_id: str | None
    group_id: str | None
    source_volid: str | None
    use_quota: bool
    availability_zone: str | None
    replication_driver_data: str | None
    updated_at: datetime.datetime | None
    project_id: str | None
    user_id: str | None
    display_name: str | None

    @classmethod
    def of(cls, row: Any) -> Self:
        """Return the value of a row, or of Cinder's object of a volume."""
        return cls(**columns(row))

    @property
    def home(self) -> str:
        """The service host of the home; '' without a home."""
        return names.service_host(self.host)

    @property
    def visible_id(self) -> str | None:
        """The volume that Cinder's own migration copies to this one.

        None if this is not the destination of such a copy.
        """
        return move_record.target_of(self)

    @property
    def handle_id(self) -> str:
        """The id in the name of the handle above the volume's LV.

        During Cinder's own migration it is the id of the migrated volume. A
        process with the destination open, such as Nova's for an attached
        volume, then keeps the right path afterwards.
        """
        return self.visible_id or self.id

    @property
    def is_encrypted_by_nova(self) -> bool:
        """Whether Nova encrypts the volume.

        Nova does so if the volume has a key, whatever its type is by now.
        """
        return bool(self.encryption_key_id)

    @property
    def is_migrated_by_cinder(self) -> bool:
        """Whether the volume is either end of Cinder's own migration."""
        return (self.migration_status not in statuses.NO_MIGRATION
                and not move_record.is_move_record(self))

    def backing_bytes(self, size_gib: int | None = None) -> int:
        """Return the length of the volume's backing device in bytes.

        :param size_gib: size of the volume; by default the present size
        :raises NotPossible: as :attr:`encryption`
        """
        return state.backing_bytes(
            self.size if size_gib is None else size_gib, self.extra_bytes)

    # -- may it move?

    @property
    def why_pinned(self) -> str | None:
        """Why the volume must stay on its node; None if it may leave."""
        if self.group_id:
            return 'it belongs to a group'
        if self.is_migrated_by_cinder:
            return 'Cinder is migrating it to another backend'
        return None

    def may_move(self, asked_by: state.Asked) -> bool:
        """Return whether other work on the volume allows a move to begin."""
        if asked_by is state.Asked.ATTACH:
            return not self.is_migrated_by_cinder
        if asked_by is state.Asked.DEFERRED:
            return not self.is_migrated_by_cinder and self.status == 'in-use'
        if self.attach_status == 'attached':
            return False
        if asked_by is state.Asked.MIGRATION:
            return (self.migration_status == 'migrating'
                    and self.status in statuses.MIGRATED)
        return not self.is_migrated_by_cinder and self.status == statuses.FREE

    def why_it_stays(self, asked_by: state.Asked) -> str:
        """Return why a volume not attached can't be moved; '' if it can."""
        if self.group_id:
            return 'it belongs to a group, whose volumes stay together.'
        if self.may_move(asked_by):
            return self._why_unknown()
        if self.is_migrated_by_cinder and asked_by is not (
                state.Asked.MIGRATION):
            return 'Cinder is migrating it.'
        return 'its status is "%s".' % self.status

    def _why_unknown(self) -> str:
        try:
            self.encryption
        except exceptions.NotPossible:
            return 'its encryption is unknown to this driver.'
        return ''

    def after_death(self, lv_bytes: int | None) -> str | None:
        """Return the status of a volume whose service died at work on it.

        :param lv_bytes: readable bytes of its LV at its home; None without an
            LV
        :returns: the status; None if it can't be known
        :raises NotPossible: as :attr:`encryption`
        """
        usable = 'in-use' if self.attach_status == 'attached' else (
            statuses.FREE)
        if self.status == 'retyping' and not self.is_migrated_by_cinder:
            return usable
        if self.status == 'reverting' and lv_bytes:
            # Before or after the change of its row: the row names one LV.
            return statuses.FREE
        if self.status == 'extending' and lv_bytes:
            size_gib = lv_bytes - self.extra_bytes >> 30
            if size_gib > self.size:
                return 'error_extending'  # the status of Cinder's manager
            return usable if size_gib == self.size else None
        return None


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An attachment of a volume.

    The fields have the names of Cinder's columns.

    :param instance_uuid: None for a host outside Nova
    :param connector: of the host, as os-brick describes it; None before the
        attachment is connected
    :param connection_info: the connection, with the CHAP secret of an export;
        None before the attachment is connected
    """

    id: str
    instance_uuid: str | None
    attach_status: str
    mountpoint: str | None
    created_at: datetime.datetime
    connector: dict[str, Any] | None
    connection_info: dict[str, Any] | None = dataclasses.field(repr=False)

    @classmethod
    def of(cls, attachment: Any) -> Self:
        """Return the value of Cinder's object of an attachment."""
        return cls(**{name: getattr(attachment, name)
                      for name in cls.__dataclass_fields__})


@dataclasses.dataclass(frozen=True)
class Volume(Row):
    """A volume with its attachments.

    :param home_by_move: service host of the home, if its row names another by
        mistake; by the record of the move that has made its LV
    """

    volume_attachment: tuple[Attachment, ...]
    home_by_move: str | None = None

    @property
    def home(self) -> str:
        """The service host of the home; '' without a home."""
        return self.home_by_move or super().home

    @property
    def is_misplaced(self) -> bool:
        """Whether its row names another home, as its move tells."""
        return self.home_by_move is not None

    @classmethod
    def of(cls, volume: Any) -> Self:
        """Return the value of Cinder's object of a volume."""
        return cls(**columns(volume), volume_attachment=tuple(
            Attachment.of(each) for each in volume.volume_attachment))


#: The columns, and the properties of Cinder's classes, in a value.
COLUMNS = tuple(each.name for each in dataclasses.fields(Row))


def columns(row: Any) -> dict[str, Any]:
    """Return the fields of :class:`Row`, from a row or an object of Cinder."""
    return {name: getattr(row, name) for name in COLUMNS}
