# SPDX-License-Identifier: Apache-2.0
"""A volume that is attached to two nodes, or elsewhere."""


import fixtures
from oslo_utils import uuidutils
import testtools

from cinder_localclone.core import names
from tests import world as worlds
from tests.world import images

A, B = 'a@l', 'b@l'
ON_A, ON_B = {'host': 'a'}, {'host': 'b'}
ELSEWHERE = {'host': 'x', 'initiator': 'iqn.x'}


def attachment(host, instance='vm'):
    return images.attachment(
        id=uuidutils.generate_uuid(), instance_uuid=instance,
        connection_info={}, mountpoint=None,
        attach_status='attached' if host else 'reserved',
        connector={'host': host} if host else None)


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.volume = self.world.create_volume(A)
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.handle = names.handle(self.volume.id)
        self.attach('reserved', None)
        # Closing is not waited for.
        self.sleep = self.useFixture(
            fixtures.MockPatch('tenacity.nap.time.sleep')).mock
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.volumes.connect.CLOSING', -1))

    def attach(self, status, *hosts):
        self.volume.status = status
        self.volume.volume_attachment = [attachment(host) for host in hosts]

    def connect(self, connector, node=None):
        return (node or self.a).connect(self.volume, connector)

    def disconnect(self, node, connector):
        node.disconnect(self.volume, connector)

    def move(self):
        return self.a.node.moves.move_of(self.volume.id)

    def is_local(self, properties):
        self.assertEqual({
            'driver_volume_type': 'local', 'data': {
                'device_path': '/dev/mapper/' + self.handle,
                'discard': True}}, properties)
