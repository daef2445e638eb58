# SPDX-License-Identifier: Apache-2.0
"""Statuses that stay behind when a volume service dies.

Cinder's manager records the end of a migration, an extension, a retype or a
revert. If its service dies first, the status stays, also after the next start
of the service. A volume with such a status can be neither deleted nor moved,
and with some statuses not attached. A request that was sent to another node
than the home is refused there without a message.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import datetime

from cinder import context as cinder_context
import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.db import clock
from cinder_localclone.db import moves as records

#: Of moves; what is copied shows its progress.
PHASES = (state.Phase.STARTING, state.Phase.COMPLETING)


class MigrationRecords(records.Records):
    """The records; and what is needed to end such migrations."""

    def end_interrupted(self, host: str) -> dict[str, str]:
        """End the migrations that a service was at work on when it died.

        One whose move is committed has succeeded. Any other has failed: the
        volume is where it was. What is attached is left alone: Nova copies
        it, and reports to whichever service runs then.

        :param host: service host; it serves nobody yet, or never again
        :returns: how each of these has ended, by volume id
        """
        volume = records.models.Volume
        with records.main_context_manager.reader.using(
                cinder_context.get_admin_context()) as session:
            found = [row.id for row in session.query(volume.id).filter_by(
                deleted=False, migration_status='migrating')]
        # One at a time, by its id: the status has no index, and InnoDB would
        # lock each live volume of the cloud.
        ended = {volume_id: self._end_one(volume_id, host)
                 for volume_id in sorted(found)}
        return {volume_id: status for volume_id, status in ended.items()
                if status}

    @records.retried
    def _end_one(self, volume_id: str, host: str) -> str | None:
        """How the migration of a volume has ended; None if it has not."""
        with records.main_context_manager.writer.using(
                cinder_context.get_admin_context()) as session:
            row = self._row(session, volume_id, lock=True)
            if (row is None or row.migration_status != 'migrating'
                    or not self._end(session, row, host)):
                return None
            status: str = row.migration_status
            return status

    def _end(self, session: records.Session, row: records.Row, host: str
             ) -> bool:
        """Whether it was at work on this one, which is ended then."""
        if row.attach_status == 'attached' and (
                row.status in statuses.MIGRATED
                or row.previous_status == 'in-use'):
            # Nova copies what is in use: free, another server would get it;
            # ended, it would be extended while its copy is not.
            return False
        shadows = list(self._shadows(session, row.id))
        try:
            moves = [records._to_move(shadow, row) for shadow in shadows]
        except exceptions.InvalidToken:
            return False  # its volume is left alone
        if self._has_committed(session, row, moves, host):
            row.migration_status = 'success'
        elif (rows.is_home(row, host) and row.attach_status != 'attached'
                and not any(map(_migrates, moves))):
            row.migration_status = 'error'
        else:
            return False
        if row.status in statuses.MIGRATED and not any(
                map(move_record.holds, shadows)):
            # It may have been detached since: what it was does not count.
            row.status = statuses.FREE
        return True

    @staticmethod
    def _has_committed(session: records.Session, row: records.Row,
                       moves: list[state.Move], host: str) -> bool:
        """Whether a service has committed the move, by which it migrated.

        A node that was down still has what an earlier move has left there.
        By now the volume may be migrated by its new home's service.
        """
        committed = [move for move in moves if move.committed]
        ends = session.query(records.models.Volume).filter_by(
            deleted=False,
            migration_status=move_record.target(row.id)).count()
        return any(
            move.source == host and move.asked_by is state.Asked.MIGRATION
            and (_migrates(move) or ends == len(committed))
            for move in committed)


def _migrates(move: state.Move) -> bool:
    """Until such a one has ended no other migration of its volume gets far."""
    return (move.asked_by is state.Asked.MIGRATION and move.committed
            and not move.is_over)


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
            return clock.now(session)

    def older(self, host: str, moment: datetime.datetime,
              of: Collection[str] = statuses.LOST_WITH_SERVICE) -> list[str]:
        """The volumes at a service host that somebody was at work on.

        :param moment: since before then
        :param of: the statuses of that work
        """
        volume = records.models.Volume
        with records.main_context_manager.reader.using(
                records._admin()) as session:
            return [row.id for row in self._at(session, host).filter(
                volume.status.in_(of), volume.updated_at < moment)]

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
                row, sizes.get(row.name), rows.is_migrated_by_cinder(row))
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
                sqlalchemy.or_(volume.status.in_(statuses.LOST_WITH_SERVICE),
                               volume.migration_status.in_(
                                   statuses.MIGRATION_SHORT_STEPS))):
            migrated = row.migration_status in statuses.MIGRATION_SHORT_STEPS
            if migrated or not rows.is_migrated_by_cinder(row):
                yield Unended(
                    'migration' if migrated else 'volume', row.id,
                    row.migration_status if migrated else row.status,
                    names.service_host(row.host), clock.age(session, row),
                    row.attach_status == 'attached')

    def _snapshots(self, session, seconds):
        snapshot = records.models.Snapshot
        for row in self._old(session, snapshot, seconds).filter_by(
                status='restoring'):
            yield Unended('snapshot', row.id, row.status,
                          rows.node_of(row.provider_location),
                          clock.age(session, row))

    def _moves(self, session, seconds):
        volume = records.models.Volume
        for row in self._old(session, volume, seconds).filter(
                *move_record.are(volume, *PHASES)):
            yield Unended('move', move_record.volume_of(row),
                          move_record.phase_word(row),
                          names.service_host(row.host),
                          clock.age(session, row))

    def lost_deletes(self, host: str, seconds: float) -> list[objects.Volume]:
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
                        worker.updated_at < clock.ago(session, seconds))]
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
            < clock.ago(session, seconds))
