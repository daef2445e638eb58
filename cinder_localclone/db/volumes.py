# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes in Cinder's database.

Which node has a snapshot is in its row's ``provider_location``, and nowhere
else: its volume may be at another home by then. Where a newborn volume is to
be is in its row before anything of it is made.
"""

from collections.abc import Container
from collections.abc import Iterable

from cinder.volume import volume_types
from cinder.volume import volume_utils
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.db import moves


class SnapshotRecords(moves.Records):
    """The records, with snapshots and newborn volumes."""

    # -- snapshots

    def snapshot(self, snapshot_id: str) -> volume_rows.Snapshot | None:
        """A snapshot, also one that was deleted; None if it has no row."""
        return self.snapshots([snapshot_id]).get(snapshot_id)

    def snapshots(self, ids: Iterable[str]) -> dict[str, volume_rows.Snapshot]:
        """Those of some snapshots that have a row, by id."""
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            rows = session.query(moves.models.Snapshot).filter(
                moves.models.Snapshot.id.in_(list(ids))).all()
            return {row.id: _to_snapshot(row) for row in rows}

    def snapshots_of(self, volume_id: str) -> list[volume_rows.Snapshot]:
        """The snapshots of a volume that are not deleted."""
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            rows = session.query(moves.models.Snapshot).filter_by(
                volume_id=volume_id, deleted=False).all()
            return [_to_snapshot(row) for row in rows]

    @moves.retried
    def locate(self, snapshot_id: str, host: str,
               encryption: encryption_types.Recorded | None = None) -> None:
        """Record which node is about to make a snapshot, and of what.

        :param host: its service host
        :param encryption: of the volume at this moment
        :raises TooLate: if it is not being created (any more)
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            changed = session.query(moves.models.Snapshot).filter_by(
                id=snapshot_id, deleted=False, status='creating').update(
                    {'provider_location': volume_rows.location(host),
                     'provider_id': _text(encryption)})
        if not changed:
            raise exceptions.TooLate(what='Snapshot ' + snapshot_id)

    @moves.retried
    def relocate_snapshot(self, snapshot_id: str, before: str, host: str
                          ) -> None:
        """Record that the node that has a snapshot has another host.

        :param before: the service host that its row names, else nothing is
            done
        """
        snapshot = moves.models.Snapshot
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            session.query(snapshot).filter_by(
                id=snapshot_id, deleted=False,
                provider_location=volume_rows.location(before)).update(
                    {'provider_location': volume_rows.location(host)})

    def is_being_read(self, snapshot_id: str) -> bool:
        """Whether a backup is being made of a snapshot.

        Cinder knows of no other connections of snapshots.
        """
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            backup = moves.models.Backup
            return bool(session.query(backup).filter_by(
                deleted=False, status='creating').filter(
                    (backup.snapshot_id == snapshot_id)
                    | (backup.temp_snapshot_id == snapshot_id)).count())

    # -- newborn volumes

    @moves.retried
    def place(self, volume_id: str, old: str, new: str) -> None:
        """Give a volume that is being created another home, if it has none.

        :param old: the home with its pool that it must still have
        :param new: the one that it gets
        :raises TooLate: if it is not being created (any more), or is not
            there
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            row = self._row(session, volume_id, lock=True)
            if (row is None or row.status != 'creating' or row.host != old
                    or self._is_moving(session, row)):
                raise exceptions.TooLate(what='Volume ' + volume_id)
            self._give_home(session, row, new)

    @staticmethod
    def wanted_encryption(volume: objects.Volume, new: bool = False
                          ) -> encryption_types.Encryption | None:
        """How a volume is to be encrypted by this driver, by its type.

        :param new: it is to be created; see :func:`.volume_types.parse`
        :raises InvalidType: if it can't be
        """
        if not volume.volume_type_id:
            return None
        return encryption_types.parse(
            volume_types.get_volume_type_extra_specs(volume.volume_type_id),
            new)

    @moves.retried
    def set_encryption(self, volume: objects.Volume,
                       encryption: encryption_types.Recorded | None
                       ) -> objects.Volume:
        """Record how a volume that is being created is encrypted.

        :param volume: as it was read
        :returns: the volume as it is then
        :raises TooLate: if it is not being created (any more); or if another
            node is to create it by now, or has recorded it meanwhile
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            row = self._row(session, volume.id, lock=True)
            if (row is None or row.status not in statuses.BEING_CREATED
                    or (row.host, row.provider_id) != (
                        volume.host, volume.provider_id)):
                raise exceptions.TooLate(what='Volume ' + volume.id)
            row.provider_id = _text(encryption)
        return self.volume(volume.id)

    @staticmethod
    def lv_name(name_id: str) -> str:
        """The name of an LV of a volume."""
        name: str = moves.CONF.volume_name_template % name_id
        return name

    @moves.retried
    def replace_body(self, volume: objects.Volume, new: str, host: str,
                     encryption: encryption_types.Recorded | None = None
                     ) -> objects.Volume:
        """A volume that is being reverted gets another LV, and home.

        :param volume: as it is now
        :param new: the id in the LV's name
        :param host: service host of the node that has the LV
        :param encryption: of what that has
        :returns: the volume as it is then
        :raises StaleMove: if the row is not as the volume says
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            row = self._row(session, volume.id, lock=True)
            if (row is None or row.status != 'reverting'
                    or (row.host, row.name_id) != (
                        volume.host, volume.name_id)
                    or _was_changed(row, volume)
                    or self._is_moving(session, row)):
                raise exceptions.StaleMove(volume=volume.id)
            row._name_id = new
            if volume_rows.recorded(row) != encryption:
                row.provider_id = _text(encryption)
            if not volume_rows.is_home(row, host):
                self._give_home(session, row, _with_pool(row, host))
        return self.volume(volume.id)

    def misplaced(self, host: str) -> list[str]:
        """Return the volumes of a service whose rows name another host.

        Not those that are being created: Cinder's manager notes the service
        that was asked, wherever the volume is then.

        :param host: its service host
        """
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            service = self._service_row(session, host)
            if service is None:
                return []
            # The database leaves out the node's own, which may be thousands.
            model = moves.models.Volume
            found = session.query(model).filter_by(
                deleted=False, service_uuid=service.uuid).filter(
                    ~model.host.startswith(host + '#', autoescape=True))
            return [row.id for row in found if _is_misplaced(row, host)]

    @moves.retried
    def correct_home(self, volume: objects.Volume, host: str) -> bool:
        """Have a volume's row name the host of the service that it names.

        :param volume: as it was read
        :param host: service host of that service
        :returns: whether the row was as it was read; else nothing is changed
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            row = self._row(session, volume.id, lock=True)
            service = self._service_row(session, host)
            if (row is None or service is None or (row.host, row.name_id) != (
                    volume.host, volume.name_id)
                    or row.service_uuid != service.uuid
                    or not _is_misplaced(row, host)):
                return False
            self._give_home(session, row, _with_pool(row, host))
            return True

    def service_of(self, volume_id: str) -> str | None:
        """Return the service host of the service that a volume's row names.

        :returns: None if there is no such service, or the volume is gone
        """
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            row = self._row(session, volume_id)
            service = row and session.query(moves.models.Service).filter_by(
                uuid=row.service_uuid, deleted=False).first()
            return service and service.host

    @moves.retried
    def keep(self, volume_id: str, name_id: str) -> None:
        """A volume that was not reverted is available again.

        :param name_id: of its LV, if it was not
        """
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            row = self._row(session, volume_id, lock=True)
            if row and (row.status, row.name_id) == ('reverting', name_id):
                row.status = 'available'

    def _is_moving(self, session: moves.Session, row: moves.Row) -> bool:
        return any(not moves._to_move(shadow, row).is_over
                   for shadow in self._shadows(session, row.id))

    def newborn(self, volume_id: str) -> volume_rows.Newborn | None:
        """What has become of a newborn volume; None if it has no row."""
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            row = session.query(moves.models.Volume).filter_by(
                id=volume_id).first()
            return row and volume_rows.Newborn(
                row.status, names.service_host(row.host), row.name,
                bool(row.deleted))

    def zone_of(self, host: str) -> str | None:
        """The availability zone of a service host, with or without pool."""
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            service = self._service_row(session, host)
            return service and service.availability_zone

    @moves.retried
    def correct_services(self, host: str, lvs: Container[str]) -> None:
        """The volumes of a service host say that they are that service's.

        Cinder's manager notes the service that was asked to create one,
        wherever it is then.

        :param lvs: names of the LVs there; a volume without its LV is left
            alone, since the service that its row names may have it
        """
        volume = moves.models.Volume
        with moves.main_context_manager.reader.using(
                moves._admin()) as session:
            service = self._service_row(session, host)
            if service is None:
                return
            uuid = service.uuid
            wrong = [row.id for row in session.query(volume).filter_by(
                deleted=False).filter(
                    volume.host.startswith(host + '#', autoescape=True),
                    volume.status != 'creating',
                    volume.service_uuid != uuid).all()
                if volume_rows.is_home(row, host) and row.name in lvs]
        if not wrong:
            return
        with moves.main_context_manager.writer.using(
                moves._admin()) as session:
            # One that has moved since is another service's.
            for volume_id in sorted(wrong):
                session.query(volume).filter(
                    volume.id == volume_id,
                    volume.host.startswith(host + '#', autoescape=True)
                ).update({'service_uuid': uuid}, synchronize_session=False)


def _is_misplaced(row: moves.Row, host: str) -> bool:
    """Whether a row that names the service of a host names another host.

    While Cinder creates or migrates a volume, it changes both itself.
    """
    return (not volume_rows.is_home(row, host)
            and names.same_backend(names.service_host(row.host), host)
            and row.status not in statuses.BEING_CREATED
            and row.migration_status in statuses.NO_MIGRATION)


def _with_pool(row: moves.Row, host: str) -> str:
    """Return a service host with the pool of a row."""
    found: str = volume_utils.append_host(
        host, volume_utils.extract_host(row.host, 'pool'))
    return found


def _text(encryption: encryption_types.Recorded | None) -> str | None:
    return str(encryption) if encryption else None


def _was_changed(row: moves.Row, volume: objects.Volume) -> bool:
    """Whether a row was written since it was read.

    Whoever asked for a revert may have given it up, and have asked for
    another: what the first has made may be removed by then.
    """
    return bool(row.updated_at and volume.updated_at and row.updated_at
                != timeutils.normalize_time(volume.updated_at))


def _to_snapshot(row: moves.Row) -> volume_rows.Snapshot:
    return volume_rows.Snapshot(
        row.id, row.volume_id, row.volume_size, row.status,
        volume_rows.node_of(row.provider_location), bool(row.deleted),
        row.provider_id)
