# SPDX-License-Identifier: Apache-2.0
"""Local clones of encrypted volumes."""

from cinder_localclone.core import names
from cinder_localclone.volumes import clone
from tests.helpers import rotate_case

A, B = rotate_case.A, rotate_case.B
VOLUME, SNAPSHOT = 'volume', 'snapshot'


class Case(rotate_case.Case):

    def of(self, world, **specs):
        world.pool = 'pool'
        super().of(world, **specs)
        self.volume.status = 'available'

    def setUp(self):
        super().setUp()
        self.of(self.world)

    def snapshot(self):
        snapshot_id = self.world.snapshot_row(self.volume)
        node = self.a.node
        with node.lock(self.volume.id), node.lock(snapshot_id):
            node.snapshots.locate(snapshot_id, A, self.volume.encryption)
            node.lvm.create_snapshot(snapshot_id, self.volume.name,
                                     self.volume.id)
        self.world.set_snapshot(snapshot_id, status='available')
        return snapshot_id

    def bear(self, uncommitted, snapshot_id=None):
        node = self.a.node
        if snapshot_id:
            clone.from_snapshot(node, uncommitted.id, snapshot_id)
        else:
            clone.from_volume(self.a.reconciler, uncommitted.id,
                              self.volume.id,
                              0)

    def born(self, of=VOLUME, **specs):
        uncommitted = self.row(**specs)
        self.bear(uncommitted, self.snapshot() if of == SNAPSHOT else None)
        return uncommitted

    def assert_own(self, uncommitted, key=None):
        """Its one secret is its own, or that of its type."""
        recorded = uncommitted.encryption.key
        header = self.world.headers[uncommitted.id]
        token, = header.tokens.values()
        self.assertEqual(key or recorded, recorded)
        self.assertEqual((recorded, bool(key)), (token.key, token.shared))
        name, secret = self.world.secrets.kept[recorded]
        self.assertEqual(
            'for all' if key else names.secret(uncommitted.id), name)
        self.assertEqual({slot: secret for slot in token.keyslots},
                         header.slots)
        self.assertEqual(uncommitted.id, header.uuid)
        tags = names.facts(self.a.disk.tags[uncommitted.name])
        self.assertEqual((recorded, uncommitted.id),
                         (tags['key'], tags['luks']))
        self.assertIn((recorded, 'volumes', uncommitted.id),
                      self.world.secrets.consumers)
        self.assertEqual([], self.world.wrongs)
