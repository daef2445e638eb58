# SPDX-License-Identifier: Apache-2.0
"""Statuses left behind by the death of a volume service.

Cinder's manager records the end of a migration, an extension, a retype or a
revert. If its service dies first, the status stays, also after the next start
of the service. A volume with such a status can be neither deleted nor moved,
and with some statuses not attached. If Cinder sent the request to another node
than the home, the service there refuses it without a message.
"""

from collections.abc import Collection
from collections.abc import Mapping
import datetime
import typing

import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import state
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Row
from cinder_localclone.db import base
from cinder_localclone.db import clock


class Interrupted(records.Interrupted):

    def end_interrupted(self, host: str) -> dict[str, str]:
        volume = base.models.Volume
        with base.reader() as session:
            found = [row.id for row in session.query(volume.id).filter_by(
                deleted=False, migration_status='migrating')]
        # One row at a time, by its id: the status has no index, and InnoDB
        # would lock each live volume of the cloud.
        ended = {volume_id: self._end_one(volume_id, host)
                 for volume_id in sorted(found)}
        return {volume_id: status for volume_id, status in ended.items()
                if status}

    @base.retried
    def _end_one(self, volume_id: str, host: str) -> str | None:
        """End the migration of a volume if the service worked on it.

        :returns: its migration status; None if it was not ended
        """
        with base.writer() as session:
            row = base.volume_row(session, volume_id, lock=True)
            if (row is None or row.migration_status != 'migrating'
                    or not self._end(session, row, host)):
                return None
            status: str = row.migration_status
            return status

    def _end(self, session: base.Session, row: base.Row, host: str
             ) -> bool:
        """End a migration in a row if the service worked on it.

        :returns: whether the row was changed
        """
        if row.attach_status == 'attached' and (
                row.status in statuses.MIGRATED
                or row.previous_status == 'in-use'):
            # Nova copies an attached volume. A free status would let another
            # server attach the volume; an ended migration would let Cinder
            # extend it without its copy.
            return False
        move_records = list(base.records_of(session, row.id))
        try:
            moves = [base.to_move(record, row)
                     for record in move_records]
        except exceptions.InvalidToken:
            return False  # leave the volume alone
        if self._has_committed(session, row, moves, host):
            row.migration_status = 'success'
        elif (host in (names.service_host(row.host),
                       base.home_by_move(session, row))
                and row.attach_status != 'attached'
                and not any(map(_migrates, moves))
                and not self._may_go_on(session, row, host, moves)):
            row.migration_status = 'error'
        else:
            return False
        if row.status in statuses.MIGRATED and not any(
                map(move_record.holds, move_records)):
            # The volume may have been detached since, so the earlier status
            # does not count.
            row.status = statuses.FREE
        return True

    @staticmethod
    def _may_go_on(session: base.Session, row: base.Row, host: str,
                   moves: list[state.Move]) -> bool:
        """Return whether another service may be copying a volume.

        If the row names a former home, either home may have been asked. The
        end of a running copy would replace all writes since this end.
        """
        service = base.service_of(session, row)
        homes = {names.service_host(row.host),
                 base.home_by_move(session, row) or host,
                 service.host if service else host}
        return homes != {host} and _copies(session, row) > len(moves)

    @staticmethod
    def _has_committed(session: base.Session, row: base.Row,
                       moves: list[state.Move], host: str) -> bool:
        """Return whether a service has committed the move of its migration.

        A node that was down still has its part of an earlier move. By now the
        service of the new home may be migrating the volume.
        """
        committed = [move for move in moves if move.committed]
        copies = _copies(session, row)
        return any(
            move.source == host and move.asked_by is state.Asked.MIGRATION
            and (_migrates(move) or copies == len(committed))
            for move in committed)

    def now(self) -> datetime.datetime:
        with base.reader() as session:
            return clock.now(session)

    def volumes_unchanged_since(self, host: str, moment: datetime.datetime,
                                of: Collection[
                                    str] = statuses.LOST_WITH_SERVICE
                                ) -> list[str]:
        volume = base.models.Volume
        with base.reader() as session:
            return [row.id for row in _at(session, host).filter(
                volume.status.in_(of), volume.updated_at < moment)]

    @base.retried
    def end_dead(self, volume_id: str, host: str, sizes: Mapping[str, int]
                 ) -> str | None:
        with base.writer() as session:
            row = base.volume_row(session, volume_id, lock=True)
            if row is None or names.service_host(row.host) != host:
                return None
            before, after = row.status, Row.of(row).after_death(
                sizes.get(row.name))
            if after:
                row.status = after
            if after and before == 'reverting':
                snapshot = base.models.Snapshot
                for found, in session.query(snapshot.id).filter_by(
                        volume_id=volume_id, deleted=False,
                        status='restoring').all():
                    session.query(snapshot).filter_by(
                        id=found, status='restoring').update(
                            {'status': 'available'})
            return after

    def lost_deletes(self, host: str, seconds: float) -> list[objects.Volume]:
        worker = base.models.Worker
        volume = base.models.Volume
        with base.reader() as session:
            service = base.service_row(session, host)
            if service is None:
                return []
            lost = [row.id for row in _at(session, host).filter(
                volume.status == 'deleting').join(
                    worker, worker.resource_id == volume.id).filter(
                        worker.resource_type == 'Volume',
                        worker.status == 'deleting',
                        sqlalchemy.or_(worker.service_id.is_(None),
                                       worker.service_id != service.id),
                        worker.updated_at < clock.ago(session, seconds))]
        found = [base.cinder_volume(volume_id) for volume_id in lost]
        return [each for each in found if each is not None]


def _copies(session: base.Session, row: base.Row) -> int:
    """Count the rows of a migration's copies, with those of moves."""
    found: int = session.query(base.models.Volume).filter_by(
        deleted=False, migration_status=move_record.target(row.id)).count()
    return found


def _at(session: base.Session, host: str) -> typing.Any:
    """Return a query for the volumes at a service host, in any pool."""
    return session.query(base.models.Volume).filter_by(
        deleted=False).filter(base.has_home(host))


def _migrates(move: state.Move) -> bool:
    """Return whether a move carries out a migration by Cinder.

    Until the move is over, no other migration of its volume gets far.
    """
    return (move.asked_by is state.Asked.MIGRATION and move.committed
            and not move.is_over)
