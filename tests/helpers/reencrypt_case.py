# SPDX-License-Identifier: Apache-2.0
"""A volume that is re-encrypted, in the simulated world."""

from cinder_localclone.core import names
from cinder_localclone.core import pinning
from cinder_localclone.encryption import reencrypt
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.world import reencryption as sim


class Case(encrypted_attach_case.Case):
    """A volume at rest at A, which the driver has encrypted."""

    def setUp(self):
        super().setUp()
        self.attach('available')
        self.node = self.a.node

    @property
    def header(self):
        return self.world.headers[self.volume.id]

    def expected(self):
        return pinning.recorded_in_row(self.volume.encryption)

    def use(self, node=None, host='a'):
        """A guest has it."""
        self.connect(getattr(attach_case, 'ON_' + host.upper()))
        self.attach('in-use', host)
        (node or self.a).opened.add(self.crypt)

    def start(self, **wish):
        return reencrypt.start(self.node, self.volume.id,
                               reencrypt.Wish(**wish))

    def state(self, node=None):
        node = (node or self.a).node
        return reencrypt.state(
            node, node.volumes.volume(self.volume.id))

    def sweep(self, node=None):
        (node or self.a).reconciler.reconcile_node()

    def end(self, node=None):
        sim.end(node or self.a, self.volume.id)

    def assertWhole(self, node=None):
        """Nothing is left of it, and the row's secret opens the volume."""
        key = self.world.secrets.kept[self.volume.encryption.key][1]
        self.assertEqual([key], list(self.header.slots.values()))
        token, = self.header.tokens.values()
        self.assertEqual(tuple(self.header.slots), token.keyslots)
        self.assertIsNone(self.header.under_way)
        found = self.world.volumes[self.volume.id].encryption
        self.assertEqual((self.header.digest, None),
                         (found.pin.digest, found.becoming))
        self.assertEqual(set(), {names.REENCRYPTED, names.PAUSED}
                         & set(self.tags(node)))
        self.assertNotIn(names.ZONE, names.facts(self.tags(node)))
        self.assertEqual(1, len(self.world.backups[self.volume.id]))
        self.assertEqual([], self.world.wrongs)
