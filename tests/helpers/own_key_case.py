# SPDX-License-Identifier: Apache-2.0
"""Local clones of encrypted volumes."""

from cinder_localclone.core import names
from cinder_localclone.encryption import reencrypt
from cinder_localclone.volumes import clone
from tests.helpers import rotate_case
from tests.world import reencryption as sim

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


class ReencryptedCase(Case):

    def begun(self, of=VOLUME, **specs):
        """Return a clone in mid re-encryption."""
        lv = self.a.lvs[self.volume.name]
        lv[:] = ['of a guest'] * len(lv)
        reencrypt.start(self.a.node, self.volume.id,
                        reencrypt.Wish())
        uncommitted = self.born(of, **specs)
        uncommitted.status = 'available'
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.assertIsNotNone(self.world.headers[uncommitted.id].under_way)
        return uncommitted

    def ended(self, of=VOLUME, **specs):
        """Return a clone whose re-encryption has just ended."""
        uncommitted = self.begun(of, **specs)
        for volume in (self.volume, uncommitted):
            self.a.reconciler.reconcile_node()
            self.assertIn(volume.id, self.a.reencrypting)
            sim.end(self.a, volume.id)
        return uncommitted
