# SPDX-License-Identifier: Apache-2.0
"""All volumes, moves and services, for the command and the metrics.

The number of queries does not depend on the number of rows.
"""

from collections.abc import Collection
from collections.abc import Iterator
import dataclasses
import datetime
import json
import typing

from cinder.common import constants
from cinder.db import api as db
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_types
import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core import volume as core_volume
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.db import base
from cinder_localclone.db import clock

#: Phases that should not last. A move in migration shows its progress.
PHASES = (state.Phase.STARTING, state.Phase.COMPLETING)
#: Ids in a query.
_AT_ONCE = 200


@dataclasses.dataclass(frozen=True)
class Service:
    """A volume service.

    :param zone: its availability zone
    """

    up: bool
    disabled: bool
    zone: str


@dataclasses.dataclass(frozen=True)
class Row(core_volume.Row):
    """A volume of an inventory.

    :param hosts: the hosts in the connectors of its attachments; '' for an
        attachment without a connector
    """

    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Under:
    """A move in progress, or over but for its clean-up.

    :param began: its begin, seconds since the epoch
    """

    move: state.Move
    began: float


@dataclasses.dataclass(frozen=True)
class Unended:
    """An object in a status that should not last.

    :param what: volume, snapshot, migration (Cinder's) or move
    :param id: the snapshot's id, otherwise the volume's
    :param host: service host of the volume's home, or of the snapshot's node
    :param seconds: age of the status
    :param attached: whether the volume is attached
    """

    what: str
    id: str
    status: str
    host: str
    seconds: float
    attached: bool = False


class Inventory(records.SecretOwners):
    """Reads of the operator's command and the metrics."""

    # -- read many at a time

    def all_moves(self, backend: str) -> tuple[list[Under], int]:
        """Return the moves between nodes of a backend.

        :returns: the moves, and the number of unreadable move records
        """
        found, unreadable = [], 0
        model = base.models.Volume
        with base.reader() as session:
            move_records = [row for row in base.records(session)
                            if names.backend_of(row.host) == backend]
            volumes = {row.id: row for row in session.query(model).filter_by(
                deleted=False).filter(model.id.in_(
                    {move_record.volume_of(row) for row in move_records}))}
            for row in move_records:
                try:
                    move = base.to_move(
                        row, volumes.get(move_record.volume_of(row)))
                    found.append(Under(move, _seconds(row.created_at)))
                except exceptions.InvalidToken:
                    unreadable += 1  # Moves.readable_moves logs them
        return found, unreadable

    def all_volumes(self, backend: str, host: str | None = None
                    ) -> list[Row]:
        """Return the visible volumes of a backend.

        :param host: only the volumes at home on this service host; None: all
        """
        model = base.models.Volume
        with base.reader() as session:
            rows = [row for row in session.query(model).filter_by(
                deleted=False).filter(model.host.like(
                    _escaped(host) + '#%' if host else
                    '%%@%s#%%' % _escaped(backend), escape='/'))
                if names.backend_of(row.host) == backend
                and host in (None, names.service_host(row.host))
                and not move_record.is_move_record(row)]
            hosts = _attached_to(session, [row.id for row in rows])
            return [dataclasses.replace(
                Row.of(row), size=row.size or 0, status=row.status or '',
                attach_status=row.attach_status or '',
                display_name=row.display_name or '',
                hosts=tuple(hosts.get(row.id, ()))) for row in rows]

    def unended(self, backend: str, seconds: float) -> list[Unended]:
        """Return volumes, snapshots and moves with an old unfinished status.

        :param backend: of all its nodes
        :param seconds: the least age of the status
        """
        with base.reader() as session:
            found = [*_old_volumes(session, seconds),
                     *_old_snapshots(session, seconds),
                     *_old_moves(session, seconds)]
        return [each for each in found
                if names.backend_of(each.host) == backend]

    def available_snapshots(self, host: str) -> list[volume_rows.Snapshot]:
        """Return the available snapshots on a node.

        :param host: service host of the node
        """
        model = base.models.Snapshot
        with base.reader() as session:
            return [volume_rows.Snapshot(
                row.id, row.volume_id, row.volume_size or 0, row.status,
                host) for row in session.query(model).filter_by(
                    deleted=False, status='available',
                    provider_location=volume_rows.location(host))]

    def ids_named(self, name: str, backend: str) -> list[str]:
        """Return the ids of a backend's volumes with a display name.

        The comparison is exact: a database may treat "Data" as "data".
        """
        model = base.models.Volume
        with base.reader() as session:
            return sorted(
                row.id for row in session.query(model).filter_by(
                    deleted=False, display_name=name)
                if row.display_name == name
                and names.backend_of(row.host) == backend
                and not move_record.is_move_record(row))

    # -- services and types

    def service(self, host: str) -> Service | None:
        """Return a volume service; None if it does not exist."""
        try:
            found = objects.Service.get_by_args(
                base.admin(), host, constants.VOLUME_BINARY)
        except cinder_exception.ServiceNotFound:
            return None
        return Service(bool(found.is_up), bool(found.disabled),
                       found.availability_zone)

    def encrypted_by_nova(self, volume_id: str) -> tuple[str, int]:
        """Return Nova's encryption of a volume, from its type.

        :returns: (cipher, key bits)
        """
        found = db.volume_encryption_metadata_get(base.admin(), volume_id)
        return found.get('cipher') or '', found.get('key_size') or 0

    def type_id(self, name: str) -> str:
        """Return the id of a volume type, from its id or name.

        :raises CinderException: if there is no such type
        """
        found: str = volume_types.get_by_name_or_id(base.admin(), name)['id']
        return found

    def is_encryption_available(self) -> bool:
        """Return whether any volume type is encrypted by this driver."""
        specs = base.models.VolumeTypeExtraSpecs
        with base.reader() as session:
            return session.query(specs).filter_by(
                deleted=False, key=encryption_types.PREFIX + 'encryption'
            ).first() is not None

    # -- secrets

    def secrets_of_all(self) -> set[str]:
        with base.reader() as session:
            return {encryption_types.key_in(row.provider_id)
                    for model in (base.models.Volume, base.models.Snapshot)
                    for row in base.encrypted_rows(session, model)}

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        volume, ids = base.models.Volume, sorted(volume_ids)
        there: set[str] = set()
        gone: set[str] = set()
        with base.reader() as session:
            for first in range(0, len(ids), _AT_ONCE):
                for row in session.query(volume.id, volume.deleted).filter(
                        volume.id.in_(ids[first:first + _AT_ONCE])):
                    (gone if row.deleted else there).add(row.id)
        return there, gone


def _attached_to(session: base.Session, ids: Collection[str]
                 ) -> dict[str, list[str]]:
    model = base.models.VolumeAttachment
    found: dict[str, list[str]] = {}
    for row in session.query(model).filter_by(deleted=False).filter(
            model.volume_id.in_(ids)) if ids else ():
        found.setdefault(row.volume_id, []).append(
            json.loads(row.connector or '{}').get('host') or '')
    return found


def _old_volumes(session: base.Session, seconds: float
                 ) -> Iterator[Unended]:
    volume = base.models.Volume
    for row in _old(session, volume, seconds).filter(
            sqlalchemy.or_(volume.status.in_(statuses.LOST_WITH_SERVICE),
                           volume.migration_status.in_(
                               statuses.MIGRATION_SHORT_STEPS))):
        migrated = row.migration_status in statuses.MIGRATION_SHORT_STEPS
        if migrated or not core_volume.Row.of(row).is_migrated_by_cinder:
            yield Unended(
                'migration' if migrated else 'volume', row.id,
                row.migration_status if migrated else row.status,
                names.service_host(row.host), clock.age(session, row),
                row.attach_status == 'attached')


def _old_snapshots(session: base.Session, seconds: float
                   ) -> Iterator[Unended]:
    snapshot = base.models.Snapshot
    for row in _old(session, snapshot, seconds).filter_by(
            status='restoring'):
        yield Unended('snapshot', row.id, row.status,
                      volume_rows.node_of(row.provider_location),
                      clock.age(session, row))


def _old_moves(session: base.Session, seconds: float
               ) -> Iterator[Unended]:
    volume = base.models.Volume
    for row in _old(session, volume, seconds).filter(
            *move_record.conditions(volume, *PHASES)):
        yield Unended('move', move_record.volume_of(row),
                      move_record.phase_word(row),
                      names.service_host(row.host),
                      clock.age(session, row))


def _old(session: base.Session, model: base.Model, seconds: float
         ) -> typing.Any:
    """Return a query for the rows without a change for some time.

    :param seconds: the least age of the last change
    """
    return session.query(model).filter_by(deleted=False).filter(
        sqlalchemy.func.coalesce(model.updated_at, model.created_at)
        < clock.ago(session, seconds))


def _escaped(text: str) -> str:
    for special in '/%_':
        text = text.replace(special, '/' + special)
    return text


def _seconds(moment: datetime.datetime) -> float:
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp()
