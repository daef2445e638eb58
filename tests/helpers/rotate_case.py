# SPDX-License-Identifier: Apache-2.0
"""A volume whose key is replaced, in the simulated world."""

from cinder_localclone.core import names
from cinder_localclone.encryption import rotate
from tests.helpers import encrypted_case
from tests.world import crypt

A, B = encrypted_case.A, encrypted_case.B


class Case(encrypted_case.Case):
    """A volume that the driver encrypts, at rest at A."""

    def of(self, world, **specs):
        self.world = world
        self.a, self.b = world.nodes[A], world.nodes[B]
        self.addCleanup(setattr, world, 'secrets', crypt.SimSecrets())
        self.volume = self.row(**specs)
        self.create(self.volume)
        self.volume.status = 'in-use'
        self.old = self.key()
        return self.volume

    def secret_of_another(self, in_use):
        """The key of another volume's secret, whose use nobody keeps.

        :param in_use: whether a row names it; otherwise it is as that of a
            volume of another cloud
        """
        other = self.row()
        self.create(other)
        self.world.secrets.consumers.clear()
        theirs = other.encryption.key
        if not in_use:
            other.provider_id = None
        return theirs

    def key(self):
        return self.volume.encryption.key

    def rotate(self):
        rotate.rotate(self.a.node, self.volume.id)

    @property
    def header(self):
        return self.world.headers[self.volume.id]

    def is_marked(self):
        """Whether backups of the header may have a key that has gone."""
        return names.OUTDATED in self.a.disk.tags[self.volume.name]

    def assert_opens(self):
        """What the row names opens it; so may others of the header."""
        recorded = self.key()
        self.assertIn(self.world.secrets.kept[recorded][1],
                      self.header.slots.values())
        self.assertIn(recorded, {
            token.key for token in self.header.tokens.values()})

    def assert_changed(self, old=None):
        """There is another key, and nothing is left of the old one."""
        self.assertNotEqual(old or self.old, self.key())
        self.assert_settled()
        self.assertEqual([], [
            name for name in self.a.disk.tags[self.volume.name]
            if (old or self.old) in name])

    def assert_settled(self):
        key, = self.world.secrets.kept
        self.assertEqual(self.key(), key)
        self.assertEqual({(key, 'volumes', self.volume.id)},
                         self.world.secrets.consumers)
        token, = self.header.tokens.values()
        self.assertEqual((key, ''), (token.key, token.slot))
        self.assertEqual(dict.fromkeys(
            token.keyslots, self.world.secrets.kept[key][1]),
            self.header.slots)
        self.assertEqual(key, names.facts(
            self.a.disk.tags[self.volume.name])['key'])
        self.assertEqual([], self.world.wrongs)
