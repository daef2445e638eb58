# SPDX-License-Identifier: Apache-2.0
"""Statuses in Cinder's database that nobody ends any more.

Cinder's manager records how an extension, a retype or a revert has ended. If
its service dies first, nobody does, nor when it starts again; and what was
sent to a node that is not the volume's home is refused there without a word.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import datetime

import sqlalchemy

from cinder_localclone import images
from cinder_localclone import names
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import state

#: Of Cinder's own migrations, before and after the copy.
MIGRATION = ('starting', 'completing')
#: Of moves; what is copied shows its progress.
PHASES = (state.Phase.STARTING, state.Phase.COMPLETING)


@dataclasses.dataclass(frozen=True)
class Unended:
    """Something that is in a status that should not last.

    :param what: volume, snapshot, migration (Cinder's) or move
    :param id: the snapshot's, else the volume's
    :param host: service host of its home; of a snapshot its node
    :param seconds: for how long
    :param attached: whether the volume is
    """

    what: str
    id: str
    status: str
    host: str
    seconds: float
    attached: bool = False


class StatusRecords(records.Records):
    """The records; and what is in such a status."""

    @staticmethod
    def now() -> datetime.datetime:
        """Return the time (UTC) by the clock of the database."""
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return _now(session)

    def older(self, host: str, moment: datetime.datetime,
              statuses: Collection[str] = rows.MORTAL) -> list[str]:
        """The volumes at a service host that somebody was at work on.

        :param moment: since before then
        :param statuses: at which work
        """
        volume = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return [row.id for row in self._at(session, host).filter(
                volume.status.in_(statuses), volume.updated_at < moment)]

    @records.retried
    def end_dead(self, volume_id: str, host: str, sizes: Mapping[str, int]
                 ) -> str | None:
        """End what a service was at work on when it died.

        Only where the volume's LV, and which it is, shows how that ended.

        :param host: service host of its home
        :param sizes: how much may be seen of each of its LVs (bytes)
        :returns: the volume's status now; None if it is as it was
        """
        with records.main_context_manager.writer.using(
                records._admin()) as session:
            row = self._row(session, volume_id, lock=True)
            if row is None or not rows.is_home(row, host):
                return None
            before, after = row.status, rows.after_death(
                row, sizes.get(row.name), records.is_migrated_by_cinder(row))
            if after:
                row.status = after
            if after and before == 'reverting':
                snapshot = records.models.Snapshot
                for found, in session.query(snapshot.id).filter_by(
                        volume_id=volume_id, deleted=False,
                        status='restoring').all():
                    session.query(snapshot).filter_by(
                        id=found, status='restoring').update(
                            {'status': 'available'})
            return after

    def unended(self, backend: str, seconds: float) -> list[Unended]:
        """What is in such a status for long.

        :param backend: of all its nodes
        :param seconds: for longer than that
        """
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            found = [*self._volumes(session, seconds),
                     *self._snapshots(session, seconds),
                     *self._moves(session, seconds)]
        return [each for each in found
                if names.backend_of(each.host) == backend]

    def _volumes(self, session, seconds):
        volume = records.models.Volume
        for row in self._old(session, volume, seconds).filter(
                sqlalchemy.or_(volume.status.in_(rows.MORTAL),
                               volume.migration_status.in_(MIGRATION))):
            migrated = row.migration_status in MIGRATION
            if migrated or not records.is_migrated_by_cinder(row):
                yield Unended(
                    'migration' if migrated else 'volume', row.id,
                    row.migration_status if migrated else row.status,
                    names.service_host(row.host), _age(session, row),
                    row.attach_status == 'attached')

    def _snapshots(self, session, seconds):
        snapshot = records.models.Snapshot
        for row in self._old(session, snapshot, seconds).filter_by(
                status='restoring'):
            yield Unended('snapshot', row.id, row.status,
                          images.node_of(row.provider_location),
                          _age(session, row))

    def _moves(self, session, seconds):
        data = records.models.Volume.replication_driver_data
        for row in self._old(session, records.models.Volume, seconds).filter(
                records.models.Volume.migration_status.like('target:%'),
                sqlalchemy.or_(*(data.like('%s:%s:%%' % (
                    state.TOKEN_VERSION, phase.value)) for phase in PHASES))):
            yield Unended('move', row.migration_status.partition(':')[2],
                          row.replication_driver_data.split(':')[1],
                          names.service_host(row.host), _age(session, row))

    def lost_deletes(self, host: str, seconds: float) -> list[ports.Volume]:
        """The volumes of a service host that nobody is about to delete.

        Cinder notes which service is at work on one: another one than its
        home's has refused it, or does not come to it.

        :param seconds: for how long, at least
        """
        worker = records.models.Worker
        volume = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            service = self._service_row(session, host)
            if service is None:
                return []
            lost = [row.id for row in self._at(session, host).filter(
                volume.status == 'deleting').join(
                    worker, worker.resource_id == volume.id).filter(
                        worker.resource_type == 'Volume',
                        worker.status == 'deleting',
                        sqlalchemy.or_(worker.service_id.is_(None),
                                       worker.service_id != service.id),
                        worker.updated_at < _ago(session, seconds))]
        found = [self.volume(volume_id) for volume_id in lost]
        return [each for each in found if each is not None]

    @staticmethod
    def _at(session, host):
        """The rows of volumes at a service host, whatever its pool."""
        volume = records.models.Volume
        exactly = sqlalchemy.func.substr(
            volume.host, 1, len(host) + 1) == host + '#'
        return session.query(volume).filter_by(deleted=False).filter(exactly)

    @staticmethod
    def _old(session, model, seconds):
        return session.query(model).filter_by(deleted=False).filter(
            sqlalchemy.func.coalesce(model.updated_at, model.created_at)
            < _ago(session, seconds))


def _now(session: records.Session) -> datetime.datetime:
    # That of MySQL in the session's time zone, SQLite's in UTC.
    clocks = {'mysql': sqlalchemy.func.utc_timestamp(
        type_=sqlalchemy.DateTime), 'postgresql': sqlalchemy.func.timezone(
            'UTC', sqlalchemy.func.now(), type_=sqlalchemy.DateTime)}
    found: datetime.datetime = session.query(clocks.get(
        session.get_bind().dialect.name,
        sqlalchemy.func.current_timestamp())).scalar()
    return found


def _ago(session: records.Session, seconds: float) -> datetime.datetime:
    return _now(session) - datetime.timedelta(seconds=seconds)


def _age(session: records.Session, row: records.Row) -> float:
    since = row.updated_at or row.created_at
    return float((_now(session) - since).total_seconds())
