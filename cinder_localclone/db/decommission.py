# SPDX-License-Identifier: Apache-2.0
"""Rows in Cinder's database of a drained or lost node."""

from cinder.common import constants
from cinder import exception as cinder_exception
from cinder import objects

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core.volume import Volume
from cinder_localclone.db import base


class Decommission(records.Decommission):

    def snapshots_on(self, host: str) -> dict[str, str]:
        with base.reader() as session:
            return {row.id: row.volume_id for row in session.query(
                base.models.Snapshot).filter_by(
                    deleted=False,
                    provider_location=volume_rows.location(host))}

    @base.retried
    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        snapshot = base.models.Snapshot
        with base.writer() as session:
            session.query(snapshot).filter_by(
                id=snapshot_id, deleted=False,
                provider_location=volume_rows.location(host)).filter(
                    snapshot.status != 'deleting').update(
                        {'status': 'error'}, synchronize_session=False)

    @base.retried
    def give_up(self, volume: Volume, new_home: str) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume.id, lock=True)
            if (row is None or row.host != volume.host
                    or row.name_id != volume.name_id
                    or move_record.is_move_record(row)
                    or _is_begun(session, row)):
                raise exceptions.StaleMove(volume=volume.id)
            base.set_home(session, row, new_home)
            row.status = 'error'
            record = base.records(session).filter_by(id=row.name_id).first()
            if record is not None:
                move_record.note_home(record, names.service_host(new_home))

    @base.retried
    def forget_service(self, host: str) -> bool:
        try:
            objects.Service.get_by_args(
                base.admin(), host, constants.VOLUME_BINARY).destroy()
        except cinder_exception.ServiceNotFound:
            return False
        return True


def _is_begun(session: base.Session, row: base.Row) -> bool:
    """Return whether a volume has an uncommitted move from its home."""
    return any(not (move.is_over or move.committed)
               for move in base.moves_of(session, row))
