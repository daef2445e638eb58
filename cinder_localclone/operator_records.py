# SPDX-License-Identifier: Apache-2.0
"""What the operator's command does in Cinder's database besides."""

import dataclasses

from cinder.common import constants
from cinder import context as cinder_context
from cinder.db import api as db
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_types

from cinder_localclone import exceptions
from cinder_localclone import images
from cinder_localclone import metric_records
from cinder_localclone import migration_records
from cinder_localclone import ports
from cinder_localclone import records
from cinder_localclone import secret_records
from cinder_localclone import status_records


@dataclasses.dataclass(frozen=True)
class Service:
    """A volume service.

    :param zone: its availability zone
    """

    up: bool
    disabled: bool
    zone: str


class OperatorRecords(migration_records.MigrationRecords,
                      metric_records.MetricRecords,
                      secret_records.SecretRecords,
                      status_records.StatusRecords):
    """The records; and what is needed to drain a node, or to forget it."""

    def service(self, host: str) -> Service | None:
        """A volume service; None if there is none."""
        try:
            found = objects.Service.get_by_args(
                cinder_context.get_admin_context(), host,
                constants.VOLUME_BINARY)
        except cinder_exception.ServiceNotFound:
            return None
        return Service(bool(found.is_up), bool(found.disabled),
                       found.availability_zone)

    @staticmethod
    def encrypted_by_nova(volume_id: str) -> tuple[str, int]:
        """How Nova encrypts a volume, by its type: cipher, key bits."""
        found = db.volume_encryption_metadata_get(
            cinder_context.get_admin_context(), volume_id)
        return found.get('cipher') or '', found.get('key_size') or 0

    @staticmethod
    def type_id(name: str) -> str:
        """The id of a volume type, by that or by its name.

        :raises CinderException: if there is none
        """
        context = cinder_context.get_admin_context()
        found: str = volume_types.get_by_name_or_id(context, name)['id']
        return found

    def snapshots_on(self, host: str) -> dict[str, str]:
        """The snapshots on a node, wherever their volumes are.

        :returns: for each snapshot the volume that it is of
        """
        with records.main_context_manager.reader.using(
                cinder_context.get_admin_context()) as session:
            return {row.id: row.volume_id for row in session.query(
                records.models.Snapshot).filter_by(
                    deleted=False,
                    provider_location=images.location(host))}

    @records.retried
    def give_up_snapshot(self, snapshot_id: str, host: str) -> None:
        """A snapshot that is lost with its node is in error from then on.

        Its owner can delete it, unless that has begun.
        """
        snapshot = records.models.Snapshot
        with records.main_context_manager.writer.using(
                cinder_context.get_admin_context()) as session:
            session.query(snapshot).filter_by(
                id=snapshot_id, deleted=False,
                provider_location=images.location(host)).filter(
                    snapshot.status != 'deleting').update(
                        {'status': 'error'}, synchronize_session=False)

    @records.retried
    def give_up(self, volume: ports.Volume, heir: str) -> None:
        """A volume whose data is lost with its node gets another home.

        Its status is "error" from then on; its owner can delete it there.
        Attachments are left to Nova.

        :param heir: the new home with its pool
        :raises StaleMove: if the volume is not where it was read any more
        """
        with records.main_context_manager.writer.using(
                cinder_context.get_admin_context()) as session:
            row = self._row(session, volume.id, lock=True)
            if (row is None or row.host != volume.host
                    or row.name_id != volume.name_id
                    or self._is_begun(session, row)):
                raise exceptions.StaleMove(volume=volume.id)
            service = self._service_row(session, heir)
            row.host, row.cluster_name = heir, None
            row.status = 'error'
            if service:
                row.service_uuid = service.uuid
                row.availability_zone = service.availability_zone

    def _is_begun(self, session: records.Session, row: records.Row) -> bool:
        """Whether a move's source would be lost with the volume's home."""
        moves = [records._to_move(shadow, row)
                 for shadow in self._shadows(session, row.id)]
        return any(not (move.is_over or move.committed) for move in moves)

    @records.retried
    def forget_service(self, host: str) -> bool:
        """A volume service is not expected any more, until it starts again.

        As ``cinder-manage service remove`` does.

        :returns: whether there was one
        """
        try:
            objects.Service.get_by_args(
                cinder_context.get_admin_context(), host,
                constants.VOLUME_BINARY).destroy()
        except cinder_exception.ServiceNotFound:
            return False
        return True
