# SPDX-License-Identifier: Apache-2.0
"""LVs that Cinder has not taken yet."""

import testtools

from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import create
from cinder_localclone.volumes import uncommitted
from tests.helpers import callers
from tests import world as worlds

A, B, C, R = 'a@l', 'b@l', 'c@l', 'a.example.org@l'


class Case(testtools.TestCase):

    hosts: tuple[str, ...] = (A, B, C)

    def setUp(self):
        super().setUp()
        self.world = worlds.World(hosts=self.hosts)
        self.world.pool = 'pool'
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.row(A, status='creating')

    def create(self, host=A, volume=None):
        create.create(self.world.nodes[host].node,
                      (volume or self.volume).id)

    def taken(self):
        """A user has it, with data; the tag is there yet."""
        self.create()
        self.volume.status = 'available'
        self.a.write(self.volume.id, 0, 'data')

    def sweep(self):
        """As the service does it, each after a look at the node."""
        uncommitted.sweep(self.a.node, self.a.node.handles.survey())
        cleanup.wipe_marked(self.a.node, self.a.node.handles.survey())

    def assert_data(self):
        self.assertIn(self.volume.name, self.a.lvs)
        self.assertEqual('data', self.a.lvs[self.volume.name][0])

    def forget(self, host):
        """It never comes back, says the operator."""
        node = self.world.nodes[host]
        node.gone = node.dead = True
        callers.take(callers.plan_to_forget(self.world, host, C))
