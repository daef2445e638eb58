# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts, in the simulated world."""

import testtools

from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import policy
from cinder_localclone.volumes import create
from tests.helpers import callers
from tests import world as worlds
from tests.world import disks

A, B = 'a@l', 'b@l'
HEADER = volume_types.HEADER_BYTES
TYPE = {'localclone:encryption': 'luks2'}


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]

    def row(self, **specs):
        return self.world.row(A, extra_specs=dict(TYPE, **{
            'localclone:' + name: value for name, value in specs.items()}))

    def create(self, volume):
        node = self.a.node
        create.create_encrypted(node, volume.id,
                                policy.wanted(node, volume))

    def delete(self, volume):
        volume.status = 'deleting'
        self.world.going.add(volume.id)
        callers.delete(self.a.node, volume)

    def assertWhole(self, volume):
        """It opens with the secret that its row, header and LV name."""
        recorded = volume.encryption
        header = self.world.headers[volume.id]
        self.assertEqual(HEADER, recorded.header_bytes)
        self.assertEqual(
            [(recorded.key, ('0',))],
            [(each.key, each.keyslots) for each in header.tokens.values()])
        self.assertEqual({'0': self.world.secrets.kept[recorded.key][1]},
                         header.slots)
        tags = names.facts(self.a.disk.tags[volume.name])
        self.assertEqual((recorded.key, volume.id, str(HEADER)), (
            tags['key'], tags['luks'], tags['extra']))
        self.assertEqual(disks.GIB + HEADER, self.a.disk.size(volume.name))
        self.assertEqual(disks.GIB + HEADER, disks.size(
            self.a.devices[names.handle(volume.id)]))

    def assertNothingLeft(self):
        for node in (self.a, self.b):
            self.assertEqual([{}, {}], [node.lvs, node.devices])
        self.assertEqual([{}, set(), {}, {}], [
            self.world.secrets.kept, self.world.secrets.consumers,
            self.world.headers, self.world.backups])
