# SPDX-License-Identifier: Apache-2.0
"""All volumes and moves, for the command and the metrics.

How many queries that takes does not depend on how many rows there are.
"""

from collections.abc import Collection
import dataclasses
import datetime
import json

from cinder.common import constants
from cinder import context as cinder_context
from cinder.db import api as db
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_types

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects as core_objects
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core import state
from cinder_localclone.db import interrupted
from cinder_localclone.db import moves as records
from cinder_localclone.db import queue
from cinder_localclone.db import secrets


@dataclasses.dataclass(frozen=True)
class Service:
    """A volume service.

    :param zone: its availability zone
    """

    up: bool
    disabled: bool
    zone: str


@dataclasses.dataclass(frozen=True)
class Row:
    """A volume, as far as its row alone tells.

    The names are those of Cinder's own; :mod:`.rows` takes it.

    :param display_name: what its owner calls it
    :param lv: the name of its LV
    :param hosts: where it is attached, by the connectors; '' for an
        attachment that is not connected
    """

    id: str
    display_name: str
    lv: str
    name_id: str
    host: str
    size: int
    status: str
    attach_status: str
    migration_status: str | None
    provider_id: str | None
    encryption_key_id: str | None
    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Under:
    """A move that is under way, or over but for a clean-up.

    :param began: when it did, seconds since the epoch
    """

    move: state.Move
    began: float


class MetricRecords(queue.QueueRecords):
    """The records, read many at a time."""

    def all_moves(self, backend: str) -> tuple[list[Under], int]:
        """The moves between nodes of a backend.

        :returns: them, and how many records of moves can't be read
        """
        found, unreadable = [], 0
        model = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            shadows = [row for row in self._shadow_query(session)
                       if names.backend_of(row.host) == backend]
            volumes = {row.id: row for row in session.query(model).filter_by(
                deleted=False).filter(model.id.in_(
                    {move_record.volume_of(row) for row in shadows}))}
            for row in shadows:
                try:
                    move = records._to_move(
                        row, volumes.get(move_record.volume_of(row)))
                    found.append(Under(move, _seconds(row.created_at)))
                except exceptions.InvalidToken:
                    unreadable += 1  # records.moves logs which
        return found, unreadable

    def all_volumes(self, backend: str, host: str | None = None
                    ) -> list[Row]:
        """The visible volumes of a backend.

        :param host: only those whose home is this service host
        """
        model = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            rows = [row for row in session.query(model).filter_by(
                deleted=False).filter(model.host.like(
                    _escaped(host) + '#%' if host else
                    '%%@%s#%%' % _escaped(backend), escape='/'))
                if names.backend_of(row.host) == backend
                and host in (None, names.service_host(row.host))
                and not move_record.is_shadow(row)]
            hosts = self._attached_to(session, [row.id for row in rows])
            return [Row(
                row.id, row.display_name or '', row.name, row.name_id,
                row.host, row.size or 0, row.status or '',
                row.attach_status or '', row.migration_status,
                row.provider_id, row.encryption_key_id,
                tuple(hosts.get(row.id, ()))) for row in rows]

    @staticmethod
    def _attached_to(session: records.Session, ids: Collection[str]
                     ) -> dict[str, list[str]]:
        model = records.models.VolumeAttachment
        found: dict[str, list[str]] = {}
        for row in session.query(model).filter_by(deleted=False).filter(
                model.volume_id.in_(ids)) if ids else ():
            found.setdefault(row.volume_id, []).append(
                json.loads(row.connector or '{}').get('host') or '')
        return found

    def available_snapshots(self, host: str) -> list[volume_rows.Snapshot]:
        """The snapshots on a node that can be used."""
        model = records.models.Snapshot
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return [volume_rows.Snapshot(
                row.id, row.volume_id, row.volume_size or 0, row.status,
                host) for row in session.query(model).filter_by(
                    deleted=False, status='available',
                    provider_location=volume_rows.location(host))]

    def ids_named(self, name: str, backend: str) -> list[str]:
        """The volumes of a backend that their owners call so.

        Letter by letter: a database may take "Data" for "data".
        """
        model = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return sorted(
                row.id for row in session.query(model).filter_by(
                    deleted=False, display_name=name)
                if row.display_name == name
                and names.backend_of(row.host) == backend
                and not move_record.is_shadow(row))


class OperatorRecords(interrupted.MigrationRecords,
                      MetricRecords,
                      secrets.SecretRecords,
                      interrupted.StatusRecords):
    """The records; and what is needed to drain a node, or to forget it."""

    def service(self, host: str) -> Service | None:
        """A volume service; None if there is none."""
        try:
            found = objects.Service.get_by_args(
                cinder_context.get_admin_context(), host,
                constants.VOLUME_BINARY)
        except cinder_exception.ServiceNotFound:
            return None
        return Service(bool(found.is_up), bool(found.disabled),
                       found.availability_zone)

    @staticmethod
    def encrypted_by_nova(volume_id: str) -> tuple[str, int]:
        """How Nova encrypts a volume, by its type: cipher, key bits."""
        found = db.volume_encryption_metadata_get(
            cinder_context.get_admin_context(), volume_id)
        return found.get('cipher') or '', found.get('key_size') or 0

    @staticmethod
    def type_id(name: str) -> str:
        """The id of a volume type, by that or by its name.

        :raises CinderException: if there is none
        """
        context = cinder_context.get_admin_context()
        found: str = volume_types.get_by_name_or_id(context, name)['id']
        return found

    def snapshots_on(self, host: str) -> dict[str, str]:
        """The snapshots on a node, wherever their volumes are.

        :returns: for each snapshot the volume that it is of
        """
        with records.main_context_manager.reader.using(
                cinder_context.get_admin_context()) as session:
            return {row.id: row.volume_id for row in session.query(
                records.models.Snapshot).filter_by(
                    deleted=False,
                    provider_location=volume_rows.location(host))}

    @records.retried
    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        """A snapshot that is lost with its node is in error from then on.

        Its owner can delete it, unless that has begun.
        """
        snapshot = records.models.Snapshot
        with records.main_context_manager.writer.using(
                cinder_context.get_admin_context()) as session:
            session.query(snapshot).filter_by(
                id=snapshot_id, deleted=False,
                provider_location=volume_rows.location(host)).filter(
                    snapshot.status != 'deleting').update(
                        {'status': 'error'}, synchronize_session=False)

    @records.retried
    def give_up(self, volume: core_objects.Volume, heir: str) -> None:
        """A volume whose data is lost with its node gets another home.

        Its status is "error" from then on; its owner can delete it there.
        Attachments are left to Nova.

        :param heir: the new home with its pool
        :raises StaleMove: if the volume is not where it was read any more
        """
        with records.main_context_manager.writer.using(
                cinder_context.get_admin_context()) as session:
            row = self._row(session, volume.id, lock=True)
            if (row is None or row.host != volume.host
                    or row.name_id != volume.name_id
                    or self._is_begun(session, row)):
                raise exceptions.StaleMove(volume=volume.id)
            self._give_home(session, row, heir)
            row.status = 'error'

    def _is_begun(self, session: records.Session, row: records.Row) -> bool:
        """Whether a move's source would be lost with the volume's home."""
        moves = [records._to_move(shadow, row)
                 for shadow in self._shadows(session, row.id)]
        return any(not (move.is_over or move.committed) for move in moves)

    @records.retried
    def forget_service(self, host: str) -> bool:
        """A volume service is not expected any more, until it starts again.

        As ``cinder-manage service remove`` does.

        :returns: whether there was one
        """
        try:
            objects.Service.get_by_args(
                cinder_context.get_admin_context(), host,
                constants.VOLUME_BINARY).destroy()
        except cinder_exception.ServiceNotFound:
            return False
        return True


def _escaped(text: str) -> str:
    for special in '/%_':
        text = text.replace(special, '/' + special)
    return text


def _seconds(moment: datetime.datetime) -> float:
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp()
