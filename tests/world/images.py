# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes in the simulated world."""

import dataclasses
import datetime
import itertools
import types
import typing
import uuid

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types

#: What a snapshot has that LVM has not taken yet: that of a later moment.
LATE = 'late'


#: The clock of the database: it never stands still.
_CLOCK = itertools.count(1)
_EPOCH = datetime.datetime(2000, 1, 1)


def now():
    """Return the time by the clock of the database."""
    return _EPOCH + datetime.timedelta(microseconds=next(_CLOCK))


class Row(types.SimpleNamespace):
    """A volume's row, which says when it was written last."""

    def __setattr__(self, name, value):
        self.__dict__.update({name: value, 'updated_at': now()})


def _text(encryption):
    return str(encryption) if encryption else None


def _pool(host):
    return host.partition('#')[2]


class WorldImages:
    """What Cinder does for snapshots and newborn volumes."""

    volumes: dict
    deleted: dict
    snapshots: dict
    zones: dict
    nodes: dict
    forgotten: set

    def row(self, host, size=1, **more):
        """A volume that Cinder is about to have created by a node."""
        volume_id = str(uuid.uuid4())
        volume = Row(**dict({
            'id': volume_id, 'host': host + '#p', 'size': size,
            'status': 'creating', 'migration_status': None, 'group_id': None,
            'replication_driver_data': None, 'volume_attachment': [],
            'name_id': volume_id, 'name': 'volume-' + volume_id,
            'availability_zone': self.zone_of(host), 'source_volid': None,
            'previous_status': None,
            'service_uuid': self.service_of(host), 'updated_at': None,
            'use_quota': True, 'attach_status': 'detached',
            'provider_id': None, 'extra_specs': {},
            'encryption_key_id': None}, **more))
        self.volumes[volume_id] = volume
        return volume

    def snapshot_row(self, volume):
        """A snapshot that Cinder is about to have taken."""
        snapshot = rows.Snapshot(
            str(uuid.uuid4()), volume.id, volume.size, 'creating', '')
        self.snapshots[snapshot.id] = snapshot
        return snapshot.id

    def set_snapshot(self, snapshot_id, **changes):
        self.snapshots[snapshot_id] = dataclasses.replace(
            self.snapshots[snapshot_id], **changes)

    def destroy(self, volume):
        """Cinder marks a row as deleted."""
        self.deleted[volume.id] = self.volumes.pop(volume.id)

    def zone_of(self, host):
        return self.zones.get(host.partition('#')[0], 'zone')

    @staticmethod
    def service_of(host):
        """Return the UUID of the volume service of a host."""
        return 'service of ' + host.partition('#')[0]

    def has_service(self, host):
        """Return whether a host has a volume service, alive or not."""
        return host in self.nodes and host not in self.forgotten


class SimSnapshotRecords:
    """:class:`cinder_localclone.db.volumes.SnapshotRecords`."""

    world: typing.Any
    volume: typing.Any
    move_of: typing.Any

    def snapshot(self, snapshot_id):
        return self.world.snapshots.get(snapshot_id)

    def snapshots(self, ids):
        return {key: self.world.snapshots[key] for key in ids
                if key in self.world.snapshots}

    def snapshots_of(self, volume_id):
        return [each for each in self.world.snapshots.values()
                if each.volume_id == volume_id and not each.deleted]

    def snapshots_on(self, host):
        return {each.id: each.volume_id
                for each in self.world.snapshots.values()
                if each.node == host and not each.deleted}

    def give_up_snapshot(self, snapshot_id, host):
        snapshot = self.snapshot(snapshot_id)
        if snapshot and not snapshot.is_doomed and snapshot.node == host:
            self.world.set_snapshot(snapshot_id, status='error')

    def locate(self, snapshot_id, host, encryption=None):
        snapshot = self.snapshot(snapshot_id)
        if not snapshot or snapshot.deleted or snapshot.status != 'creating':
            raise exceptions.TooLate(what=snapshot_id)
        self.world.set_snapshot(snapshot_id, node=host,
                                provider_id=_text(encryption))

    def relocate_snapshot(self, snapshot_id, before, host):
        snapshot = self.snapshot(snapshot_id)
        if snapshot and not snapshot.deleted and snapshot.node == before:
            self.world.set_snapshot(snapshot_id, node=host)

    def is_being_read(self, snapshot_id):
        return snapshot_id in self.world.read

    def place(self, volume_id, old, new):
        volume = self.world.volumes.get(volume_id)
        if (volume is None or volume.status != 'creating'
                or volume.host != old or self.move_of(volume_id)):
            raise exceptions.TooLate(what=volume_id)
        volume.host = new
        self._take_service(volume, new)

    def _take_service(self, row, host):
        """A row says which service it is of, if there is one."""
        host = host.partition('#')[0]
        if self.world.has_service(host):
            row.service_uuid = self.world.service_of(host)
            row.availability_zone = self.world.zone_of(host)

    @staticmethod
    def wanted_encryption(volume, new=False):
        return volume_types.parse(volume.extra_specs, new)

    def set_encryption(self, volume, encryption):
        row = self.world.volumes.get(volume.id)
        if (row is None or row.status not in statuses.BEING_CREATED
                or (row.host, row.provider_id) != (
                    volume.host, volume.provider_id)):
            raise exceptions.TooLate(what=volume.id)
        row.provider_id = _text(encryption)
        return self.volume(volume.id)

    @staticmethod
    def lv_name(name_id):
        return 'volume-' + name_id

    def replace_body(self, volume, new, host, encryption=None):
        recorded = self.world.volumes.get(volume.id)
        if (recorded is None or recorded.status != 'reverting'
                or (recorded.host, recorded.name_id) != (
                    volume.host, volume.name_id)
                or recorded.updated_at != volume.updated_at
                or self.move_of(volume.id)):
            raise exceptions.StaleMove(volume=volume.id)
        recorded.name_id, recorded.name = new, self.lv_name(new)
        if new in self.world.headers:
            self.world.headers[volume.id] = self.world.headers.pop(new)
        if recorded.host.partition('#')[0] != host:
            recorded.host = '%s#%s' % (host, _pool(recorded.host))
            self._take_service(recorded, host)
        if rows.recorded(recorded) != encryption:
            recorded.provider_id = _text(encryption)
        return self.volume(volume.id)

    def misplaced(self, host):
        return [row.id for row in self.world.volumes.values()
                if self.world.has_service(host)
                and row.service_uuid == self.world.service_of(host)
                and row.status not in statuses.BEING_CREATED
                and not rows.is_home(row, host)
                and names.same_backend(names.service_host(row.host), host)
                and not rows.is_migrated_by_cinder(row)]

    def correct_home(self, volume, host):
        row = self.world.volumes.get(volume.id)
        if row is None or (row.host, row.name_id) != (
                volume.host, volume.name_id) or (
                volume.id not in self.misplaced(host)):
            return False
        row.host = '%s#%s' % (host, _pool(row.host))
        self._take_service(row, host)
        return True

    def service_of(self, volume_id):
        row = self.world.volumes.get(volume_id)
        return next((
            host for host in self.world.nodes if row is not None
            and self.world.has_service(host)
            and self.world.service_of(host) == row.service_uuid), None)

    def keep(self, volume_id, name_id):
        recorded = self.world.volumes.get(volume_id)
        if recorded and (recorded.status, recorded.name_id) == (
                'reverting', name_id):
            recorded.status = 'available'

    def newborn(self, volume_id):
        gone = self.world.deleted.get(volume_id)
        volume = gone or self.volume(volume_id)
        return volume and rows.Newborn(
            volume.status, (volume.host or '').partition('#')[0], volume.name,
            bool(gone))

    def zone_of(self, host):
        host = host.partition('#')[0]
        return self.world.zone_of(host) if (
            self.world.has_service(host)) else None

    def correct_services(self, host, lvs):
        for row in self.world.volumes.values():
            if (self.world.has_service(host) and row.status != 'creating'
                    and (row.host or '').partition('#')[0] == host
                    and row.name in lvs and row.service_uuid not in (
                        None, self.world.service_of(host))):
                row.service_uuid = self.world.service_of(host)


class SimSnapshotExports:
    """What is served of snapshots."""

    node: typing.Any

    def note_offered(self, snapshot_id):
        self.node.lent.add(snapshot_id)

    def was_offered(self, snapshot_id):
        return snapshot_id in self.node.lent
