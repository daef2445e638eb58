# SPDX-License-Identifier: Apache-2.0
"""Nodes whose names are not those that Nova has for them."""

import fixtures

from cinder_localclone.core.state import Phase
from cinder_localclone.service import directory
from tests.helpers import attach_case
from tests import world as worlds

A, B = 'a@l', 'b@l'


class KnownByAddressTest(attach_case.Base):
    """Nova's name of a node is another one: it is known by its address.

    As the installation guide allows. Another node's service was restarted
    since, and knows none of the addresses.
    """

    ON_A = {'host': 'compute-1', 'ip': '192.0.2.1', 'initiator': 'iqn.a'}
    ON_B = {'host': 'compute-2', 'ip': '192.0.2.2', 'initiator': 'iqn.b'}
    ADDRESSES = {A: '192.0.2.1', B: '192.0.2.2'}

    def setUp(self):
        super().setUp()
        describe = type(self.a.node.peers).describe
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.peers.SimPeers.describe',
            lambda this, host: dict(
                describe(this, host),
                addresses=[self.ADDRESSES[host]])))
        for node in (self.a, self.b):
            self.restart(node)

    def attach_remotely(self):
        """The volume is used on B, and is pinned to A."""
        connector = self.ON_B
        self.volume.group_id = 'g'
        found = self.connect(connector)
        self.attach('in-use', 'b')
        only, = self.volume.volume_attachment
        only.connector = connector
        only.connection_info = dict(found['data'], driver_volume_type='local')
        self.b.opened.add(self.handle)

    def restart(self, node):
        """What assembly.assemble makes of it."""
        known = directory.Directory(
            node.host, node.node.services, node.node.peers)
        known.know(node.host, [self.ADDRESSES[node.host]])
        object.__setattr__(node.node, 'is_at', known.is_at)
        node.connections._find = known.find

    def sweep(self):
        self.a.exported.clear()
        for _look in range(20):
            self.world.reconcile()
            self.b.hydrate()

    def test_it_follows_its_instance(self):
        self.attach_remotely()
        self.volume.group_id = None
        self.restart(self.a)
        self.sweep()
        self.assertIs(self.b, self.world.home(self.volume))

    def test_a_lost_detach_is_noticed(self):
        self.attach('in-use', 'a', None)
        self.volume.volume_attachment[0].connector = self.ON_A
        self.a.opened.add(self.handle)
        self.connect(self.ON_B)
        self.volume.volume_attachment[1].connector = self.ON_B
        self.a.opened.discard(self.handle)
        self.b.opened.add(self.handle)
        # The detach was lost, with A's service, which is back.
        self.volume.volume_attachment.pop(0)
        self.restart(self.a)
        self.sweep()
        move = self.move()
        self.assertIsNot(Phase.STARTING, move and move.phase)

    def test_what_is_extended_is_longer_where_it_is_used(self):
        self.attach_remotely()
        self.restart(self.a)
        worlds.extend(self.a, self.volume, 2)
        self.assertEqual(8, self.b.devices[self.handle].get('regions', 4))
