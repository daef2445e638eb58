# SPDX-License-Identifier: Apache-2.0
"""Migrations of Cinder's that did not outlive their volume service.

Cinder's manager records the end of a migration. If its service dies first,
nobody does, nor when it starts again: the volume would keep the migration
status ``migrating``, and the status that it has meanwhile, so that it could
be neither deleted nor moved nor, in some of these, attached.
"""

from cinder import context as cinder_context

from cinder_localclone import exceptions
from cinder_localclone import records
from cinder_localclone import rows
from cinder_localclone import state


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
                row.status in rows.MIGRATED
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
        if row.status in rows.MIGRATED and not any(
                shadow.previous_status for shadow in shadows):
            # It may have been detached since: what it was does not count.
            row.status = rows.FREE
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
            migration_status=records._target(row.id)).count()
        return any(
            move.source == host and move.asked_by is state.Asked.MIGRATION
            and (_migrates(move) or ends == len(committed))
            for move in committed)


def _migrates(move: state.Move) -> bool:
    """Until such a one has ended no other migration of its volume gets far."""
    return (move.asked_by is state.Asked.MIGRATION and move.committed
            and not move.is_over)
