# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes in the simulated world."""

import copy
import dataclasses
import datetime
import itertools
import types
import typing
import uuid

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
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


class SimSnapshotStack:
    """What the stack does for snapshots and newborn volumes."""

    node: typing.Any
    _insist_body: typing.Any
    _insist_unused: typing.Any
    _check_there: typing.Any
    activate: typing.Any
    _handle: typing.Any
    _forget_header: typing.Any

    @property
    def pool(self):
        return self.node.world.pool

    def pool_usage(self, lvs=None):
        return lvm_reports.Usage(*self.node.usage)

    def create_snapshot(self, snapshot_id, origin, volume_id):
        self._check_there(origin)
        name = names.snapshot_lv(snapshot_id)
        self._take(origin, name, [
            *names.tags(snapshot=snapshot_id, of=volume_id),
            names.on(self.node.host)])
        self.node.disk.inactive.add(name)
        self.node.disk.readonly.add(name)

    def create_copy(self, name, image, image_bytes, size_bytes, volume_id,
                    extra_bytes=0):
        self._insist_body(volume_id, size_bytes, extra_bytes)
        copied = min(image_bytes, size_bytes)
        longer = self.node.disk.size(image) > copied
        self._take(image, name, [
            *names.volume_tags(volume_id, extra_bytes),
            *names.newborn(self.node.host),
            *[names.shown(copied)] * longer])
        self.node.world.tick(self.node, 'after lvcreate')
        if size_bytes > image_bytes:
            self.node.disk.zero(name)
            self.node.disk.extend(name, size_bytes)
        self.node.disk.show(name, size_bytes)

    def _take(self, origin, name, tags):
        """LVM takes a snapshot in two steps: it may die in between."""
        disk = self.node.disk
        self._insist_unused(name)
        disk.remove(name)
        content = disk.flushed(origin)
        disk.lvs[name] = [LATE] * len(content)
        disk.cut(name, disk.size(origin))
        disk.tags[name] = frozenset(tags)
        with self.node.held_back(origin):
            self.node.world.tick(self.node, 'half of lvcreate')
            disk.lvs[name][:] = content
        self._copy_header(origin, name)

    def _copy_header(self, origin, name):
        """It comes with the rest; of the volume, or of the LV it gets."""
        facts = names.facts(self.node.disk.tags.get(origin, ()))
        headers = self.node.world.headers
        found = headers.get(facts.get('volume') or facts.get('snapshot'))
        if found:
            headers[name[-36:]] = copy.deepcopy(dataclasses.replace(
                found, uuid=found.uuid or facts.get('volume', '')))

    def mark_newborn(self, name):
        self._check_there(name)
        tags = self.node.disk.tags
        tags[name] = tags[name] | set(names.newborn(self.node.host))

    def accept(self, name):
        self._check_there(name)
        tags = self.node.disk.tags
        tags[name] = tags[name] - set(names.newborn(self.node.host))

    def adopt(self, name, own_name, tags):
        disk = self.node.disk
        self._check_there(name)
        disk.tags[name] = disk.tags.get(name, frozenset()) | set(tags)
        self.node.world.tick(self.node, 'after lvchange')
        if name != own_name:
            self._insist_unused(name)
            if own_name in disk.lvs:
                raise exceptions.CommandFailed(
                    command='lvrename', code=5, stderr='already exists')
            disk.rename(name, own_name)

    def disown(self, name, new_name):
        disk = self.node.disk
        facts = names.facts(disk.tags.get(name, ()))
        if not facts:
            return False
        if names.is_doomed(new_name) and name != new_name:
            self._insist_unused(name)
            self._forget_header(name)
        self.node.world.insist(
            facts.get('volume', facts.get('snapshot')) in self.node.held,
            'disown without the lock of its owner')
        if new_name not in disk.lvs:
            disk.rename(name, new_name)
            name = new_name
        self.node.world.tick(self.node, 'after lvrename')
        disk.tags[name] -= set(names.own_tags(disk.tags[name]))
        if int(facts.get('shown', 0)) >= disk.size(name):
            disk._fact(name, 'shown', None)
        return True

    def protect(self, name):
        self.node.lvs[name]  # as LVM: it has to be there
        self._insist_unused(name)
        self.node.disk.readonly.add(name)
        self.node.disk.inactive.add(name)

    def resume(self, name):
        found = name in self.node.suspended
        self.node.suspended.discard(name)
        return found

    def deactivate(self, name):
        self._check_there(name)
        self._insist_unused(name)
        self.node.disk.inactive.add(name)

    def ensure_handle_on_snapshot(self, snapshot_id, size):
        lv = names.snapshot_lv(snapshot_id)
        self.activate(lv)
        return self._handle(snapshot_id, lv, lv, size)


class SimSnapshotExports:
    """What is served of snapshots."""

    node: typing.Any

    def note_offered(self, snapshot_id):
        self.node.lent.add(snapshot_id)

    def was_offered(self, snapshot_id):
        return snapshot_id in self.node.lent
