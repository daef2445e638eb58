# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes in the simulated world."""

import dataclasses
import datetime
import itertools
import types
import typing
import uuid

from cinder_localclone.core import rows
from cinder_localclone.core import volume as core_volume

#: What a snapshot has that LVM has not taken yet: that of a later moment.
LATE = 'late'


#: The clock of the database: it never stands still.
_CLOCK = itertools.count(1)
_EPOCH = datetime.datetime(2000, 1, 1)


def now():
    """Return the time by the clock of the database."""
    return _EPOCH + datetime.timedelta(microseconds=next(_CLOCK))


class Row(types.SimpleNamespace):
    """A volume's row, which says when it was written last.

    Beside its columns it has what the value has that is made of it now.
    """

    def __setattr__(self, name, value):
        self.__dict__.update({name: value, 'updated_at': now()})

    def __getattr__(self, name):
        if name in core_volume.COLUMNS or not hasattr(
                core_volume.Volume, name):
            raise AttributeError(name)
        kind = (core_volume.Row if hasattr(core_volume.Row, name)
                else core_volume.Volume)
        return getattr(kind.of(self), name)


def volume(volume_id, home, **columns):
    """Return the row of a volume that is about to be created by a node."""
    return Row(**{
        'id': volume_id, 'name_id': volume_id, 'name': 'volume-' + volume_id,
        'host': home + '#p', 'size': 1, 'status': 'creating',
        'attach_status': 'detached', 'volume_attachment': [],
        'migration_status': None, 'previous_status': None,
        'replication_driver_data': None, 'provider_id': None,
        'encryption_key_id': None, 'volume_type_id': None, 'extra_specs': {},
        'group_id': None, 'source_volid': None, 'use_quota': True,
        'availability_zone': 'zone', 'service_uuid': None, 'updated_at': None,
        'project_id': 'project', 'user_id': 'user', 'display_name': '',
        **columns})


def attachment(**columns):
    """Return the row of an attachment, of a server unless the columns differ.
    """
    return types.SimpleNamespace(**{
        'id': str(uuid.uuid4()), 'instance_uuid': None,
        'attach_status': 'attached', 'mountpoint': None, 'connector': None,
        'connection_info': None, 'created_at': now(), 'updated_at': None,
        **columns})


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
        found = volume(str(uuid.uuid4()), host, **dict({
            'size': size, 'availability_zone': self.zone_of(host),
            'service_uuid': self.service_of(host)}, **more))
        self.volumes[found.id] = found
        return found

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
