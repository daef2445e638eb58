# SPDX-License-Identifier: Apache-2.0
"""Which rows of Cinder's database name a secret, and of which volume.

As long as one does, its secret is in use: it is the key of that volume, or
of a snapshot, whose header is of its own time.
"""

from collections.abc import Collection
from collections.abc import Iterable

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import volume_types
from cinder_localclone.db import moves

#: Ids in one query.
_AT_ONCE = 200


class SecretRecords(moves.Records):
    """The records, with the encryption of volumes and snapshots."""

    @moves.retried
    def record(self, volume_id: str, recorded: volume_types.Recorded,
               before: volume_types.Recorded | None = None) -> None:
        """Write down by which secret a volume is encrypted from now on.

        :param before: what its row has said
        :raises TooLate: if that is gone, or says something else: another
            node makes the volume, with a secret of its own
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            changed = session.query(moves.models.Volume).filter_by(
                id=volume_id, deleted=False,
                provider_id=str(before) if before else None).update(
                    {'provider_id': str(recorded)})
        if not changed:
            raise exceptions.TooLate(what='Volume ' + volume_id)

    @moves.retried
    def record_snapshot(self, snapshot_id: str,
                        recorded: volume_types.Recorded) -> None:
        """The same of a snapshot.

        :raises TooLate: if it has no row any more
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            changed = session.query(moves.models.Snapshot).filter_by(
                id=snapshot_id, deleted=False).update(
                    {'provider_id': str(recorded)})
        if not changed:
            raise exceptions.TooLate(what='Snapshot ' + snapshot_id)

    def secrets_in_use(self, without: Iterable[str] = (), host: str = ''
                       ) -> set[str]:
        """References of all secrets that a row names.

        Whatever its backend: Cinder's own migration copies the column, so a
        row that is about to go may name the secret of a volume elsewhere.

        :param without: ids of volumes that are about to go. What records
            the move of a volume names nothing by itself, and may outlive it
        :param host: a service host of the only backend that is looked at
        """
        gone = set(without)
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            volumes = [
                (row.host, row.provider_id)
                for row in self._encrypted(session, moves.models.Volume)
                if row.id not in gone and not rows.visible_id(row)]
            snapshots = [
                (rows.node_of(row.provider_location), row.provider_id)
                for row in self._encrypted(session, moves.models.Snapshot)]
        return {volume_types.key_in(text)
                for where, text in volumes + snapshots
                if not host or names.same_backend(where or '', host)}

    def is_encryption_offered(self) -> bool:
        """Whether there is a type of volumes that this driver encrypts."""
        specs = moves.models.VolumeTypeExtraSpecs
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            return session.query(specs).filter_by(
                deleted=False, key=volume_types.PREFIX + 'encryption'
            ).first() is not None

    def secrets_of_all(self) -> set[str]:
        """References that any row names, of whatever backend.

        What is about to be deleted must be nobody's, also if a volume was
        migrated to another backend, or its node was renamed.
        """
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            return {volume_types.key_in(row.provider_id)
                    for model in (moves.models.Volume,
                                  moves.models.Snapshot)
                    for row in self._encrypted(session, model)}

    def volumes_known(self, volume_ids: Collection[str]
                      ) -> tuple[set[str], set[str]]:
        """Which of some volumes are there, and which were deleted.

        A row stays, as a deleted one, until an operator purges the database.
        """
        volume, ids = moves.models.Volume, sorted(volume_ids)
        there: set[str] = set()
        gone: set[str] = set()
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            for first in range(0, len(ids), _AT_ONCE):
                for row in session.query(volume.id, volume.deleted).filter(
                        volume.id.in_(ids[first:first + _AT_ONCE])):
                    (gone if row.deleted else there).add(row.id)
        return there, gone

    @staticmethod
    def _encrypted(session: moves.Session, model: objects.Volume
                   ) -> list[moves.Row]:
        # Whatever the version: what is not understood is in use.
        found: list[moves.Row] = session.query(model).filter_by(
            deleted=False).filter(model.provider_id.like(
                volume_types.LIKE)).all()
        return found
