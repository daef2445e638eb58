# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes in the simulated world."""

import dataclasses
import datetime
import itertools
import types
import typing
import uuid

from cinder_localclone.core import rows

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


class SimSnapshotExports:
    """What is served of snapshots."""

    node: typing.Any

    def note_exported(self, snapshot_id):
        self.node.lent.add(snapshot_id)

    def was_exported(self, snapshot_id):
        return snapshot_id in self.node.lent
