# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody attaches for, beside what Cinder and its users ask for.

Cinder's API takes a volume by its status, in one transaction, and sends the
request to the home that it has read with it; whoever is there gets it, now or
when the service has started again.
"""


from cinder import exception

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc
from cinder_localclone.core import statuses
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import migrate
from tests.world import effects
from tests.world import images
from tests.world import nodes
from tests.world import records

#: What Cinder's API makes of a volume that is available; and a snapshot,
#: for which it only looks.
REQUESTS = {'attach': 'reserved', 'delete': 'deleting',
            'extend': 'extending', 'snapshot': 'available'}


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
        if volume.status == statuses.FREE:
            volume.status = REQUESTS[self.request]
            self.sent_to = volume.host.partition('#')[0]

    def connect(self):
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
                rpc.call_at_home(delete.delete, node.node, volume)
            except exception.VolumeIsBusy:
                self.insist(False, 'nobody uses it')
            del self.volumes[volume.id]
        elif self.request == 'extend':
            volume.status = statuses.FREE
        elif self.request == 'attach':
            volume.volume_attachment = [images.attachment(
                id='of ' + volume.id, instance_uuid='vm', connector=None,
                connection_info=None)]
            home.connect(
                volume, {'host': 'b', 'initiator': 'i'})
            volume.status = 'in-use'

    def migrate(self, volume, host):
        """Cinder's manager, at the home."""
        home = self.home(volume)
        manager = effects.acting(home, Manager())
        manager.begin(volume)
        try:
            _moved, update = migrate.migrate(home.node, volume.id, {
                'host': host + '#p', 'capabilities': {
                    'location_info': migrate.DRIVER + host}})
        except exceptions.LocalCloneError:
            manager.fail(volume)
        else:
            manager.succeed(volume, update)

    def reconcile(self):
        for node in self.nodes.values():
            if node.dead and not node.gone:
                records.SimInterrupted(node).end_interrupted(node.host)
        super().reconcile()
