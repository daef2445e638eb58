# SPDX-License-Identifier: Apache-2.0
"""Rows of snapshots in Cinder's database."""

from collections.abc import Iterable

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core import volume_types
from cinder_localclone.db import base


class Snapshots(records.Snapshots):

    def snapshot(self, snapshot_id: str) -> volume_rows.Snapshot | None:
        return self.snapshots([snapshot_id]).get(snapshot_id)

    def snapshots(self, ids: Iterable[str]) -> dict[str, volume_rows.Snapshot]:
        with base.reader() as session:
            rows = session.query(base.models.Snapshot).filter(
                base.models.Snapshot.id.in_(list(ids))).all()
            return {row.id: _to_snapshot(row) for row in rows}

    def snapshots_of(self, volume_id: str) -> list[volume_rows.Snapshot]:
        with base.reader() as session:
            rows = session.query(base.models.Snapshot).filter_by(
                volume_id=volume_id, deleted=False).all()
            return [_to_snapshot(row) for row in rows]

    @base.retried
    def locate(self, snapshot_id: str, host: str,
               encryption: volume_types.Recorded | None = None) -> None:
        with base.writer() as session:
            changed = session.query(base.models.Snapshot).filter_by(
                id=snapshot_id, deleted=False, status='creating').update(
                    {'provider_location': volume_rows.location(host),
                     'provider_id': base.provider_id(encryption)})
        if not changed:
            raise exceptions.TooLate(what='Snapshot ' + snapshot_id)

    @base.retried
    def relocate_snapshot(self, snapshot_id: str, before: str, host: str
                          ) -> None:
        snapshot = base.models.Snapshot
        with base.writer() as session:
            session.query(snapshot).filter_by(
                id=snapshot_id, deleted=False,
                provider_location=volume_rows.location(before)).update(
                    {'provider_location': volume_rows.location(host)})

    def is_being_read(self, snapshot_id: str) -> bool:
        with base.reader() as session:
            backup = base.models.Backup
            return bool(session.query(backup).filter_by(
                deleted=False, status='creating').filter(
                    (backup.snapshot_id == snapshot_id)
                    | (backup.temp_snapshot_id == snapshot_id)).count())


def _to_snapshot(row: base.Row) -> volume_rows.Snapshot:
    return volume_rows.Snapshot(
        row.id, row.volume_id, row.volume_size, row.status,
        volume_rows.node_of(row.provider_location), bool(row.deleted),
        row.provider_id)
