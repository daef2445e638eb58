# SPDX-License-Identifier: Apache-2.0
"""Rows of volumes in Cinder's database: home, LV and encryption.

The row of a new volume names its home before the LV is created.
"""

from collections.abc import Container

from cinder import exception
from cinder import objects
from cinder.volume import volume_types
from oslo_utils import timeutils
import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import records
from cinder_localclone.core import move_record
from cinder_localclone.core import names
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core import statuses
from cinder_localclone.core.volume import Row
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.db import base


class Volumes(records.Volumes):

    # -- reading

    def volume(self, volume_id: str) -> Volume | None:
        return base.volume(volume_id)

    def volumes_of(self, host: str) -> list[Volume]:
        # Cinder's match is wider: "_", "%", the case, a pool.
        found = objects.VolumeList.get_all_by_host(base.admin(), host)
        return [volume for volume in map(Volume.of, found)
                if volume.home == host
                and not move_record.is_move_record(volume)]

    def last_known(self, volume_id: str) -> volume_rows.Uncommitted | None:
        with base.reader() as session:
            row = session.query(base.models.Volume).filter_by(
                id=volume_id).first()
            return row and volume_rows.Uncommitted(
                row.id, row.status, names.service_host(row.host), row.name,
                bool(row.deleted), row.provider_id, row.volume_type_id)

    def lv_name(self, name_id: str) -> str:
        name: str = base.CONF.volume_name_template % name_id
        return name

    # -- volumes in creation or revert

    @base.retried
    def set_home(self, volume_id: str, old: str, new: str) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume_id, lock=True)
            if (row is None or row.status != 'creating' or row.host != old
                    or base.is_moving(session, row)):
                raise exceptions.TooLate(what='Volume ' + volume_id)
            base.set_home(session, row, new)

    def wanted_encryption(
            self, volume: Volume | volume_rows.Uncommitted, new: bool = False
    ) -> encryption_types.Encryption | None:
        if not volume.volume_type_id:
            return None
        try:
            specs = volume_types.get_volume_type_extra_specs(
                volume.volume_type_id)
        except exception.VolumeTypeNotFound as exc:
            # Cinder lets the type of deleted volumes be deleted.
            raise encryption_types.InvalidType(str(exc)) from exc
        return encryption_types.parse(specs, new)

    def set_encryption(self, volume: Volume,
                       encryption: encryption_types.Recorded | None
                       ) -> Volume:
        self._set_encryption(volume, encryption)
        found = base.volume(volume.id)
        if found is None:
            raise exceptions.TooLate(what='Volume ' + volume.id)
        return found

    @staticmethod
    @base.retried
    def _set_encryption(volume: Volume,
                        encryption: encryption_types.Recorded | None) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume.id, lock=True)
            if (row is None or row.status not in statuses.BEING_CREATED
                    or (row.host, row.provider_id) != (
                        volume.host, volume.provider_id)):
                raise exceptions.TooLate(what='Volume ' + volume.id)
            row.provider_id = base.provider_id(encryption)

    def replace_backing(self, volume: Volume, new: str, host: str,
                        encryption: encryption_types.Recorded | None = None
                        ) -> Volume:
        self._replace_backing(volume, new, host, encryption)
        found = base.volume(volume.id)
        if found is None:
            raise exceptions.StaleMove(volume=volume.id)
        return found

    @staticmethod
    @base.retried
    def _replace_backing(volume: Volume, new: str, host: str,
                         encryption: encryption_types.Recorded | None) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume.id, lock=True)
            if (row is None or row.status != 'reverting'
                    or (row.host, row.name_id) != (
                        volume.host, volume.name_id)
                    or _was_changed(row, volume)
                    or base.is_moving(session, row)):
                raise exceptions.StaleMove(volume=volume.id)
            row._name_id = new
            if Row.of(row).encryption != encryption:
                row.provider_id = base.provider_id(encryption)
            if names.service_host(row.host) != host:
                base.set_home(session, row, base.with_pool(row, host))

    @base.retried
    def keep(self, volume_id: str, name_id: str) -> None:
        with base.writer() as session:
            row = base.volume_row(session, volume_id, lock=True)
            if row and (row.status, row.name_id) == ('reverting', name_id):
                row.status = 'available'

    # -- rows with a wrong host or service

    def volumes_with_wrong_host(self, host: str, migrating: bool = False
                                ) -> list[str]:
        with base.reader() as session:
            model = base.models.Volume
            moved = [record.id for record in base.records(session)
                     if move_record.home_of(record, None) == host]
            found = session.query(model).filter_by(deleted=False).filter(
                model._name_id.in_(moved)).all()
            service = base.service_row(session, host)
            if service is not None:
                # The query excludes the node's own volumes: there may be
                # thousands.
                found += session.query(model).filter_by(
                    deleted=False, service_uuid=service.uuid).filter(
                        ~base.has_home(host))
            return sorted({row.id for row in found
                           if base.is_misplaced(session, row, host,
                                                migrating)})

    @base.retried
    def correct_home(self, volume: Volume, host: str) -> bool:
        with base.writer() as session:
            row = base.volume_row(session, volume.id, lock=True)
            if (row is None or row.name_id != volume.name_id
                    or not base.is_misplaced(session, row, host)):
                return False
            base.set_home(session, row, base.with_pool(row, host))
            return True

    def service_of(self, volume_id: str) -> str | None:
        with base.reader() as session:
            row = base.volume_row(session, volume_id)
            service = row and base.service_of(session, row)
            return service and service.host

    @base.retried
    def correct_services(self, host: str, lvs: Container[str]) -> None:
        volume = base.models.Volume
        with base.reader() as session:
            service = base.service_row(session, host)
            if service is None:
                return
            uuid = service.uuid
            wrong = [row.id for row in session.query(volume).filter_by(
                deleted=False).filter(
                    base.has_home(host), volume.status != 'creating',
                    sqlalchemy.or_(volume.service_uuid != uuid,
                                   volume.service_uuid.is_(None)))
                if row.name in lvs]
        if not wrong:
            return
        with base.writer() as session:
            # A volume that has moved since belongs to another service.
            for volume_id in sorted(wrong):
                session.query(volume).filter(
                    volume.id == volume_id, base.has_home(host)
                ).update({'service_uuid': uuid}, synchronize_session=False)


def _was_changed(row: base.Row, volume: Volume) -> bool:
    """Return whether a row was written since it was read.

    After a revert is given up, a second revert may begin. It may already have
    removed the LV of the first.
    """
    before = volume.updated_at and timeutils.normalize_time(volume.updated_at)
    return bool(row.updated_at != before)
