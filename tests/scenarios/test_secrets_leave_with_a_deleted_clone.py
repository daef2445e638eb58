# SPDX-License-Identifier: Apache-2.0
"""A deleted local clone leaves no secret, whatever was under way.

The manager at B had the clone made at A, the node of its image, and gave up.
The row names B again: a deletion there waits for no lock of A.
"""

from unittest import mock

import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import policy
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate
from cinder_localclone.volumes import create
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted as uncommitted_lvs
from tests.helpers import callers
from tests.helpers.own_key_case import A
from tests.helpers.own_key_case import B
from tests.helpers.own_key_case import Case
from tests.helpers.own_key_case import ReencryptedCase
from tests.world import crypt
from tests.world import encrypted
from tests.world import reencryption as sim


class Given:

    def take_back(self, uncommitted):
        uncommitted.host = B + '#p'
        uncommitted.service_uuid = self.world.service_of(B)

    def delete_at_b(self, uncommitted):
        self.take_back(uncommitted)
        uncommitted.status = 'deleting'
        self.world.going.add(uncommitted.id)
        callers.delete(self.b.node, uncommitted)

    def assert_nothing_left(self, uncommitted):
        uncommitted_lvs.sweep(self.a.node)
        self.assertNotIn(uncommitted.name, self.a.lvs)
        self.assertEqual({(self.old, 'volumes', self.volume.id)},
                         self.world.secrets.consumers)
        self.delete(self.volume)
        self.world.destroy(self.volume)
        self.assertEqual(({}, set()), (
            self.world.secrets.kept, self.world.secrets.consumers))


class OwnSecretTest(Given, Case):

    def deleted_before_its_secret_is_made(self):
        uncommitted = self.row()
        make = crypt.SimKeys.create

        def late(own, *args):
            self.delete_at_b(uncommitted)
            return make(own, *args)
        with mock.patch.object(crypt.SimKeys, 'create', late):
            self.bear(uncommitted)
        self.world.destroy(uncommitted)  # by Cinder's manager at B
        return uncommitted

    def test_deleted_before_it_is_made(self):
        self.assert_nothing_left(self.deleted_before_its_secret_is_made())

    def test_its_lv_is_there_while_its_secret_is_removed(self):
        """An interrupted sweep does the rest the next time."""
        uncommitted = self.deleted_before_its_secret_is_made()
        with mock.patch.object(
                policy, 'forget', side_effect=exceptions.CommandTimeout(
                    command='c', seconds=1)):
            uncommitted_lvs.sweep(self.a.node)
        self.assertIn(uncommitted.name, self.a.lvs)
        self.assert_nothing_left(uncommitted)

    def test_key_manager_is_away(self):
        """The LV is all that tells of the secret: it stays until then."""
        uncommitted = self.deleted_before_its_secret_is_made()
        away = mock.Mock(side_effect=encryption_exceptions.KeyUnavailable(
            reason='away'))
        with mock.patch.multiple(
                crypt.SimKeys, find=away, release=away, remove=away):
            uncommitted_lvs.sweep(self.a.node)
        self.assertIn(uncommitted.name, self.a.lvs)
        self.assert_nothing_left(uncommitted)

    def test_row_of_another_version(self):
        uncommitted = self.deleted_before_its_secret_is_made()
        uncommitted.provider_id = 'lc9' + uncommitted.provider_id[3:]
        self.assert_nothing_left(uncommitted)

    def test_not_deleted(self):
        """The secrets of a volume that is created elsewhere stay."""
        uncommitted = self.born()
        self.take_back(uncommitted)
        kept = dict(self.world.secrets.kept)
        uncommitted_lvs.sweep(self.a.node)
        self.assertNotIn(uncommitted.name, self.a.lvs)
        self.assertEqual(kept, self.world.secrets.kept)


class SharedSecretTest(Given, ReencryptedCase):
    """The clone of a volume in re-encryption shares its secret."""

    def setUp(self):
        super().setUp()
        reencrypt.start(self.a.node, self.volume.id, reencrypt.Wish())

    def create_at_b(self, uncommitted):
        """The first step of create_encrypted.

        In this world a volume has one header, whatever LVs it has.
        """
        self.take_back(uncommitted)
        create._with_secret(
            self.b.node, self.b.node.volumes.volume(uncommitted.id),
            policy.wanted(self.b.node, uncommitted))

    def bear_with(self, change):
        """Return a clone whose row changes before it is a consumer."""
        uncommitted = self.row()
        share = rotate._share

        def late(node, volume_id, key):
            change(uncommitted)
            share(node, volume_id, key)
        with mock.patch.object(rotate, '_share', late):
            self.assertRaises(exceptions.TooLate, self.bear, uncommitted)
        return uncommitted

    def test_deleted_before_it_is_a_consumer(self):
        def change(uncommitted):
            self.delete_at_b(uncommitted)
            self.world.destroy(uncommitted)
        self.assert_nothing_left(self.bear_with(change))

    def test_created_elsewhere_before_it_is_a_consumer(self):
        uncommitted = self.bear_with(self.create_at_b)
        own = uncommitted.encryption.key
        self.assertNotEqual(self.old, own)
        self.assertEqual({(self.old, 'volumes', self.volume.id),
                          (own, 'volumes', uncommitted.id)},
                         self.world.secrets.consumers)
        uncommitted_lvs.sweep(self.a.node)
        self.delete_at_b(uncommitted)
        self.world.destroy(uncommitted)
        self.assert_nothing_left(uncommitted)

    def test_created_and_deleted_elsewhere_before_it_is_a_consumer(self):
        def change(uncommitted):
            self.create_at_b(uncommitted)
            self.delete_at_b(uncommitted)
            self.world.destroy(uncommitted)
        self.assert_nothing_left(self.bear_with(change))

    def test_created_elsewhere_with_the_same_secret(self):
        """It stays a consumer of a secret that its row names."""
        self.bear_with(self.take_back)
        self.assertEqual(2, len(self.world.secrets.consumers))

    def test_created_elsewhere_with_the_secret_of_its_type(self):
        """The other node may have registered it by now."""
        def change(uncommitted):
            uncommitted.extra_specs = dict(
                uncommitted.extra_specs, **{
                    'localclone:key': 'type:' + self.old})
            self.take_back(uncommitted)
            uncommitted.provider_id = uncommitted.provider_id.replace(
                self.old, 'a new one')
        self.bear_with(change)
        self.assertEqual(2, len(self.world.secrets.consumers))

    def test_operator_removes_a_secret_with_a_consumer_left(self):
        """A node was lost between the consumer and the row."""
        clone = self.row()
        self.world.destroy(clone)
        self.world.secrets.consumers.add((self.old, 'volumes', clone.id))
        self.a.reconciler.reconcile_node()
        sim.end(self.a, self.volume.id)
        self.a.reconciler.reconcile_node()
        self.delete(self.volume)
        self.world.destroy(self.volume)
        self.assertEqual([self.old], list(self.world.secrets.kept))
        encrypted.clean_up(self.world)
        self.assertEqual({}, self.world.secrets.kept)


class SnapshotsTest(ReencryptedCase):

    def test_last_consumer_removes_it(self):
        """Two clones have had snapshots with the secret of their image."""
        image, clones, taken = self.volume, [self.begun(), self.born()], []
        clones[1].status = 'available'
        for self.volume in clones:
            taken.append(self.snapshot())
        for volume in (image, *clones):
            self.a.reconciler.reconcile_node()
            sim.end(self.a, volume.id)
        for _ in range(2):
            self.a.reconciler.reconcile_node()
        for each in clones:
            self.assert_own(each)
        self.delete(image)
        self.world.destroy(image)
        for each in taken:
            snapshots.delete(self.a.node, each)
            self.world.set_snapshot(each, status='deleted', deleted=True)
        log = self.useFixture(fixtures.FakeLogger())
        self.delete(clones[0])
        self.world.destroy(clones[0])
        self.assertEqual(names.secret(image.id),
                         self.world.secrets.kept[self.old][0])
        self.delete(clones[1])
        self.assertEqual({}, self.world.secrets.kept)
        self.assertNotIn('could not be removed', log.output)


class UncommittedTest(Case):
    """A local clone that the manager at B has requested of A.

    After the creation, Cinder's manager writes its own service to the row
    (create_volume in cinder/volume/manager.py), until the next sweep of A.
    """

    def setUp(self):
        super().setUp()
        self.uncommitted = self.born()
        self.uncommitted.status = 'available'
        self.uncommitted.service_uuid = self.world.service_of(B)
        self.assertIn(names.UNCOMMITTED,
                      self.a.disk.tags[self.uncommitted.name])

    def test_deleted_while_the_node_of_its_manager_does_not_answer(self):
        self.uncommitted.status = 'deleting'
        self.world.going.add(self.uncommitted.id)
        self.useFixture(fixtures.MockPatchObject(
            type(self.a.node.peers), 'has_lv', autospec=True,
            side_effect=exceptions.PeerUnreachable(
                host=B, method='has_lv', seconds=8)))
        error = self.assertRaises(exceptions.HalfDeleted, callers.delete,
                                  self.a.node, self.uncommitted)
        self.assertNotIn('not on a@l', str(error))
        self.assertIn('its data may be on b@l: ', str(error))
        self.a.reconciler.reconcile_node()
        callers.delete(self.a.node, self.uncommitted)
        self.assertNotIn(self.uncommitted.name, self.a.lvs)

    def test_unmanaged_while_the_node_of_its_manager_does_not_answer(self):
        """The LV here may be of a creation that failed."""
        plain = self.uncommitted
        plain.provider_id = None
        plain.status = 'unmanaging'
        self.b.dead = True
        error = self.assertRaises(
            exceptions.CannotUnmanage, callers.unmanage, self.a.node,
            plain.id)
        self.assertIn('its data may be on b@l: ', str(error))

    def test_node_of_its_manager_is_forgotten(self):
        """Its home has all of it."""
        self.b.gone = True
        self.b.stop(power=True)
        steps = callers.plan_to_forget(self.world, B, A)
        self.assertEqual([], [(step.what, step.lost) for step in steps])
        callers.take(steps)
        self.assertEqual(('available', A + '#p'), (
            self.uncommitted.status, self.uncommitted.host))
