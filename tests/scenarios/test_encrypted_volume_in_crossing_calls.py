# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes where rows, nodes and calls cross each other."""

from unittest import mock

from cinder_localclone.core import exceptions
from cinder_localclone.volumes import operations
from cinder_localclone.volumes import snapshots
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.helpers import encrypted_case
from tests.helpers import own_key_case
from tests.world import crypt

A = encrypted_case.A


class MigratedTest(encrypted_case.Case):

    def test_row_that_a_migration_has_left(self):
        """Cinder is to copy an encrypted volume of another backend, and
        gives the new row what the old one says. It dies, or the copy is
        refused; the row is reset, and deleted.
        """
        volume = self.row()
        self.create(volume)
        volume.host, volume.status = 'a@other#p', 'in-use'
        left = self.world.row(A, provider_id=volume.provider_id)
        self.world.secrets.consumers.clear()  # as Vault, which keeps none
        self.delete(left)
        self.assertIn(volume.encryption.key, self.world.secrets.kept)
        self.assertEqual([], self.world.wrongs)


class LateBirthTest(own_key_case.Case):

    def test_row_that_another_node_has_filled_meanwhile(self):
        """A cached image is cloned on another node. The key manager is slow
        there, so whoever has asked gives up, and downloads the image: the
        volume has a header, and a secret, on its own node by then.
        """
        uncommitted, create = self.row(), crypt.SimKeys.create

        def late(keys, *args):
            uncommitted.provider_id = recorded
            return create(keys, *args)
        recorded = crypt.recorded('of the other')
        with mock.patch.object(crypt.SimKeys, 'create', late):
            self.assertRaises(exceptions.TooLate, self.bear, uncommitted)
        self.assertEqual(recorded, uncommitted.provider_id)
        self.assertNotIn(uncommitted.name, self.a.lvs)

    def test_image_that_took_too_long_to_copy(self):
        """The same while the image is being copied to be at home."""
        uncommitted, at_home = self.row(), snapshots.at_home

        def late(*args):
            uncommitted.provider_id = recorded
            return at_home(*args)
        recorded = crypt.recorded('of the other')
        with mock.patch.object(snapshots, 'at_home', late):
            self.assertRaises(exceptions.TooLate, self.bear, uncommitted)
        self.assertEqual(recorded, uncommitted.provider_id)


class WithoutSourceTest(encrypted_attach_case.Case):

    def setUp(self):
        """It is used on B, its header is local there; then A is lost for
        good, and B loses its power.
        """
        super().setUp()
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'b')
        self.b.write(self.volume.id, 0, 'header')
        self.a.gone = True
        for node in (self.a, self.b):
            node.stop(power=True)
        self.world.reconcile()
        self.assertNotIn(self.handle, self.b.devices)

    def open(self):
        operations.open_without_source(self.b.reconciler, self.volume.id)

    def test_what_is_local_has_its_path(self):
        """An operator has what is local given out."""
        self.open()
        self.assertIn(self.crypt, self.b.devices)

    def test_without_a_key_manager(self):
        """The look makes up for it."""
        self.world.secrets.state = crypt.AWAY
        self.open()
        self.assertNotIn(self.crypt, self.b.devices)
        self.world.secrets.state = ''
        self.b.reconciler.reconcile_node()
        self.assertIn(self.crypt, self.b.devices)
