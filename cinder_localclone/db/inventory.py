# SPDX-License-Identifier: Apache-2.0
"""What is watched in Cinder's database: many rows at once.

How many queries that takes does not depend on how many rows there are.
"""

from collections.abc import Collection
import dataclasses
import datetime
import json

from cinder_localclone import exceptions
from cinder_localclone import images
from cinder_localclone import names
from cinder_localclone import queue_records
from cinder_localclone import records
from cinder_localclone import state


@dataclasses.dataclass(frozen=True)
class Under:
    """A move that is under way, or over but for a clean-up.

    :param began: when it did, seconds since the epoch
    """

    move: state.Move
    began: float


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


class MetricRecords(queue_records.QueueRecords):
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
                    {_volume_of(row) for row in shadows}))}
            for row in shadows:
                try:
                    found.append(Under(
                        records._to_move(row, volumes.get(_volume_of(row))),
                        _seconds(row.created_at)))
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
                and not records.is_shadow(row)]
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

    def available_snapshots(self, host: str) -> list[images.Snapshot]:
        """The snapshots on a node that can be used."""
        model = records.models.Snapshot
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return [images.Snapshot(
                row.id, row.volume_id, row.volume_size or 0, row.status,
                host) for row in session.query(model).filter_by(
                    deleted=False, status='available',
                    provider_location=images.location(host))]

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
                and not records.is_shadow(row))


def _volume_of(shadow: records.Row) -> str:
    volume_id: str = shadow.migration_status.partition(':')[2]
    return volume_id


def _escaped(text: str) -> str:
    for special in '/%_':
        text = text.replace(special, '/' + special)
    return text


def _seconds(moment: datetime.datetime) -> float:
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp()
