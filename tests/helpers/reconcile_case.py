# SPDX-License-Identifier: Apache-2.0
"""A volume at rest, and its move, to be reconciled."""


import testtools

from cinder_localclone.core import names
from tests import world as worlds
from tests.world import images

A, B = 'a@l', 'b@l'


class Base(testtools.TestCase):

    hosts: tuple[str, ...] = (A, B)

    def setUp(self):
        super().setUp()
        self.world = worlds.World(hosts=self.hosts)
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.create_volume(A)
        self.volume_id = self.volume.id
        self.handle = names.handle(self.volume_id)

    def reconcile(self, node=None):
        (node or self.a).reconciler.reconcile_node()

    def move(self):
        return self.a.node.moves.move_of(self.volume_id)

    def exported(self, status, initiator='iqn.x', **more):
        """Cinder has a volume attached to a host over iSCSI."""
        self.volume.status = status
        self.volume.volume_attachment = [images.attachment(
            instance_uuid=None,
            connector={'host': 'x', 'initiator': initiator},
            connection_info=dict({
                'driver_volume_type': 'iscsi', 'target_iqn': initiator,
                'target_portal': 'portal of ' + A},
                **more))]
