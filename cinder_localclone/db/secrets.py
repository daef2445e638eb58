# SPDX-License-Identifier: Apache-2.0
"""Secrets named by rows of Cinder's database."""

from collections.abc import Iterable

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core import volume_types
from cinder_localclone.db import base


class Secrets(records.Secrets):

    def secrets_in_use(self, without: Iterable[str] = (), host: str = ''
                       ) -> set[str]:
        gone = set(without)
        with base.reader() as session:
            volumes = [
                (row.host, row.provider_id)
                for row in base.encrypted_rows(session, base.models.Volume)
                if row.id not in gone and move_record.target_of(row) is None]
            snapshots = [
                (rows.node_of(row.provider_location), row.provider_id)
                for row in base.encrypted_rows(session, base.models.Snapshot)]
        return {volume_types.key_in(text)
                for where, text in volumes + snapshots
                if not host or names.same_backend(where or '', host)}

    def secrets_of_deleted_snapshots(self, volume_id: str) -> set[str]:
        snapshot = base.models.Snapshot
        with base.reader() as session:
            return {volume_types.key_in(row.provider_id)
                    for row in session.query(snapshot).filter_by(
                        volume_id=volume_id, deleted=True).filter(
                            snapshot.provider_id.like(volume_types.LIKE))}

    @base.retried
    def record(self, volume_id: str, recorded: volume_types.Recorded,
               before: volume_types.Recorded | None = None) -> None:
        with base.writer() as session:
            changed = session.query(base.models.Volume).filter_by(
                id=volume_id, deleted=False,
                provider_id=str(before) if before else None).update(
                    {'provider_id': str(recorded)})
        if not changed:
            raise exceptions.TooLate(what='Volume ' + volume_id)
