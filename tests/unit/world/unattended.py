# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for, beside what Cinder and its users ask for.

Cinder's API takes a volume by its status, in one transaction, and sends the
request to the home that it has read with it; whoever is there gets it, now or
when the service has started again.
"""

import types

from cinder import exception

from cinder_localclone import deletion
from cinder_localclone import exceptions
from cinder_localclone import migration
from cinder_localclone import rows
from cinder_localclone import state
from tests.unit.world import effects
from tests.unit.world import nodes
from tests.unit.world import records

#: What Cinder's API makes of a volume that is available; and a snapshot,
#: for which it only looks.
REQUESTS = {'attach': 'reserved', 'delete': 'deleting',
            'extend': 'extending', 'snapshot': 'available'}


class Rows(records.SimRecords):
    """The database with the status of volumes."""

    def begin(self, volume, *args, asked_by=state.Asked.ATTACH):
        args, asked_by = args[:6], args[6] if args[6:] else asked_by
        row = self.world.volumes[volume.id]
        by_cinder = row.migration_status not in (None, 'success', 'error')
        if not rows.may_move(row, asked_by, by_cinder):
            raise exceptions.StaleMove(volume=volume.id)
        move = super().begin(volume, *(*args, asked_by))
        holds = self.world.holds[move.shadow_id] = types.SimpleNamespace(
            previous_status=None)
        rows.hold(row, holds, asked_by)
        return move

    def advance(self, move, event):
        after = super().advance(move, event)
        rows.give_back(self.world.volumes.get(move.volume_id),
                       self.world.holds[move.shadow_id])
        return after

    def commit(self, move):
        volume = self.world.volumes[move.volume_id]
        holds = self.world.holds[move.shadow_id]
        if rows.has_lost_hold(volume, holds):
            raise exceptions.StaleMove(volume=volume.id)
        after = super().commit(move)
        rows.give_back(volume, holds)
        return after

    def finish(self, move, event):
        volume = self.world.volumes.get(move.volume_id)
        before = volume and volume.migration_status
        super().finish(move, event)
        if before == 'migrating':
            volume.migration_status = before

    def end_interrupted(self, host):
        """As migration_records does when a service starts."""
        for volume in self.world.volumes.values():
            if volume.migration_status != 'migrating':
                continue
            moves = [move for move in self._all()
                     if move.volume_id == volume.id]
            if any(move.committed and move.source == host for move in moves):
                volume.migration_status = 'success'
            elif volume.host.partition('#')[0] == host:
                volume.migration_status = 'error'
            else:
                continue
            if volume.status in rows.MIGRATED and not any(
                    self.world.holds[move.shadow_id].previous_status
                    for move in moves):
                volume.status = rows.FREE


class Manager:
    """What Cinder's manager records of a migration."""

    def begin(self, volume):
        volume.migration_status = 'migrating'

    def succeed(self, volume, update):
        volume.host = update['host']
        volume.migration_status = 'success'

    def fail(self, volume):
        volume.migration_status = 'error'


class World(nodes.World):
    """One volume; and a request for it.

    :param request: which of :data:`REQUESTS`
    """

    def __init__(self, *args, request=None, **kwargs):
        self.holds = {}
        self.request = request
        #: The number of its moment; 0: it is not made.
        self.request_at = 0
        #: Where the request was sent; None if it was refused, or not made.
        self.sent_to = None
        super().__init__(*args, **kwargs)

    def create_volume(self, host, holes=(), **more):
        volume = super().create_volume(host, holes, **more)
        volume.attach_status = 'detached'
        return volume

    def tick(self, node, what):
        before = self.moment
        try:
            super().tick(node, what)
        finally:
            if before < self.request_at <= self.moment:
                self.ask()

    def ask(self):
        """Cinder's API, at this moment."""
        volume, = self.volumes.values()
        if volume.status == rows.FREE:
            volume.status = REQUESTS[self.request]
            self.sent_to = volume.host.partition('#')[0]

    def serve(self):
        """Whoever the request was sent to; its service is there (again).

        For an attach or a snapshot it looks itself where the home is.
        """
        volume, = self.volumes.values()
        node, home = self.nodes[self.sent_to], self.home(volume)
        if self.request in ('delete', 'extend'):
            # Cinder's manager would do nothing, or would fail.
            self.insist(node is home, 'sent to the old home')
        if self.request == 'delete':
            try:
                deletion.delete(node.node, None, volume)
            except exception.VolumeIsBusy:
                self.insist(False, 'nobody uses it')
            del self.volumes[volume.id]
        elif self.request == 'extend':
            volume.status = rows.FREE
        elif self.request == 'attach':
            volume.volume_attachment = [types.SimpleNamespace(
                id='of ' + volume.id, instance_uuid='vm', connector=None,
                connection_info=None)]
            home.connections.serve(
                None, volume.id, {'host': 'b', 'initiator': 'i'})
            volume.status = 'in-use'

    def migrate(self, volume, host):
        """Cinder's manager, at the home."""
        home = self.home(volume)
        manager = effects.acting(home, Manager())
        manager.begin(volume)
        try:
            _moved, update = migration.migrate(home.node, None, volume.id, {
                'host': host + '#p', 'capabilities': {
                    'location_info': migration.DRIVER + host}})
        except exceptions.LocalCloneError:
            manager.fail(volume)
        else:
            manager.succeed(volume, update)

    def reconcile(self):
        for node in self.nodes.values():
            if node.dead and not node.gone:
                Rows(node).end_interrupted(node.host)
        super().reconcile()
