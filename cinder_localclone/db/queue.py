# SPDX-License-Identifier: Apache-2.0
"""The queue of copies in Cinder's database.

Only the stall of a copy is recorded, in the move record, since only the
destination knows it. Other rows show who waits for the end of a copy: a
snapshot in creation, or a volume in creation from the copied volume.
"""

from collections.abc import Collection
import datetime

from oslo_utils import timeutils

from cinder_localclone.core import copies
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.db import base


class Queue(records.Queue):

    def copies(self, host: str) -> list[copies.Entry]:
        model = base.models.Volume
        with base.reader() as session:
            move_records = {move_record.volume_of(row): row
                            for row in session.query(model).filter_by(
                deleted=False).filter(*move_record.conditions(
                    model, state.Phase.MIGRATING))
                if move_record.is_committed(row)
                and names.same_backend(
                names.service_host(row.host), host)}
            if not move_records:
                return []
            volumes = session.query(model).filter_by(deleted=False).filter(
                model.id.in_(move_records)).all()
            attached = self._attached(session, move_records)
            awaited = self._awaited(session, move_records)
            paces = self._paces(session, {row.volume_type_id
                                          for row in volumes})
            return [copies.Entry(
                move_id=move_records[row.id].id, volume_id=row.id,
                source=names.service_host(move_records[row.id].host),
                destination=move_record.home_of(
                    move_records[row.id], row),
                attached=row.id in attached,
                migrating=len(attached.get(row.id, ())) > 1,
                awaited=row.id in awaited,
                stalled=move_record.stalled_since(move_records[row.id]),
                began=move_records[row.id].created_at.replace(
                    tzinfo=datetime.timezone.utc).timestamp(),
                pace=paces.get(row.volume_type_id, ''),
            ) for row in volumes]

    @staticmethod
    def _attached(session: base.Session, ids: Collection[str]
                  ) -> dict[str, set[str | None]]:
        """Return the hosts of instances with an attachment, by volume id."""
        model = base.models.VolumeAttachment
        found: dict[str, set[str | None]] = {}
        for volume_id, host in session.query(
                model.volume_id, model.attached_host).filter_by(
                    deleted=False).filter(model.volume_id.in_(ids),
                                          model.instance_uuid.is_not(None)):
            found.setdefault(volume_id, set()).add(host)
        return found

    @staticmethod
    def _awaited(session: base.Session, ids: Collection[str]) -> set[str]:
        columns = (base.models.Snapshot.volume_id,
                   base.models.Volume.source_volid)
        return {row[0] for column in columns
                for row in session.query(column).filter_by(
                    deleted=False, status='creating').filter(
                        column.in_(ids))}

    @staticmethod
    def _paces(session: base.Session, types: Collection[str]
               ) -> dict[str, str]:
        model = base.models.VolumeTypeExtraSpecs
        return {row.volume_type_id: row.value or '' for row in session.query(
            model.volume_type_id, model.value).filter_by(
                deleted=False, key=volume_types.PREFIX + 'pace').filter(
                    model.volume_type_id.in_(types))}

    @base.retried
    def note_stalled(self, move: state.Move, stalled: bool) -> None:
        with base.writer() as session:
            record = base.unchanged_row(
                move, base.volume_row(session, move.move_id, lock=True))
            move_record.note_stalled(
                record, timeutils.utcnow_ts() if stalled else None)
