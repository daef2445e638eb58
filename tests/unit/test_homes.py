# SPDX-License-Identifier: Apache-2.0
"""Cinder has written a home that it had read before a move."""

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import homes
from tests.unit import test_connections

A, B, ON_B = test_connections.A, test_connections.B, test_connections.ON_B


@ddt.ddt
class HomesTest(test_connections.Base):

    def setUp(self):
        super().setUp()
        self.a.write(self.volume.id, 1, 'old')

    def is_at(self, host):
        self.assertEqual((host + '#p', self.world.service_of(host)), (
            self.volume.host, self.volume.service_uuid))

    def rolled_back(self):
        """A live move goes back while the volume's type is changed."""
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.handle)
        self.serve(ON_B)
        self.attach('in-use', 'a')
        self.unserve(self.b, ON_B)
        self.is_at(A)
        self.volume.host = B + '#p'

    def committed(self):
        """A move is committed meanwhile."""
        self.serve(ON_B)
        self.b.write(self.volume.id, 2, 'new')
        self.is_at(B)
        self.volume.host = A + '#p'

    def test_rolled_back(self):
        self.rolled_back()
        self.world.reconcile()
        self.is_at(A)
        self.assertEqual('old', self.a.read(self.volume.id, 1))

    def test_committed(self):
        self.committed()
        self.world.settle()
        self.is_at(B)
        self.assertIsNone(self.move())
        for region, value in ((1, 'old'), (2, 'new')):
            self.assertEqual(value, self.b.read(self.volume.id, region))
        self.assertEqual({}, dict(self.a.lvs))

    def test_before_the_node_looks(self):
        """Each node that is asked for one volume corrects it."""
        self.committed()
        self.b.reconciler.converge(self.volume.id)
        self.is_at(B)

    @ddt.data('rolled_back', 'committed')
    def test_deleted_before(self, how):
        """The node that the row names has nothing of it."""
        getattr(self, how)()
        self.attach('deleting')
        self.a.opened.clear()
        wrong = self.world.nodes[self.volume.host[:3]]
        right = self.a if wrong is self.b else self.b
        lvs = set(right.lvs)
        error = self.assertRaises(
            exceptions.CannotDelete, delete.delete, wrong.node, None,
            self.volume)
        self.assertIn(right.host, str(error))
        self.assertEqual(lvs, set(right.lvs))
        right.reconciler.converge(self.volume.id)
        delete.delete(right.node, None, self.volume)
        self.assertNotIn(self.volume.name, right.lvs)

    def test_deleted_while_another_node_does_not_answer(self):
        self.committed()
        self.attach('deleting')
        self.useFixture(fixtures.MockPatchObject(
            type(self.a.node.peers), 'inspect', autospec=True,
            side_effect=exceptions.PeerUnreachable(
                host=B, method='inspect', seconds=8)))
        self.assertRaises(exceptions.HalfDeleted, delete.delete, self.a.node,
                          None, self.volume)

    def test_deleted_again(self):
        self.attach('deleting')
        for _again in range(2):
            delete.delete(self.a.node, None, self.volume)
        self.assertEqual({}, dict(self.a.lvs))

    def test_an_lv_of_that_name_on_both(self):
        """A disk was copied: the row says which of them counts."""
        self.b.disk.lvs[self.volume.name] = list(self.a.lvs[self.volume.name])
        self.b.disk.tags[self.volume.name] = self.a.disk.tags[
            self.volume.name]
        self.world.reconcile()
        self.is_at(A)

    def test_the_other_node_does_not_answer(self):
        self.committed()
        self.a.dead = True
        self.assertRaises(exceptions.PeerUnreachable, homes.correct,
                          self.b.node, None, self.volume)
        self.assertEqual(A + '#p', self.volume.host)

    @ddt.data({'status': 'error'}, {'status': 'creating'},
              {'migration_status': 'migrating'}, {'host': 'c@other#p'})
    def test_left_alone(self, values):
        self.committed()
        for name, value in values.items():
            setattr(self.volume, name, value)
        before = self.volume.host
        self.b.reconciler.converge(self.volume.id)
        self.assertEqual(before, self.volume.host)

    def test_uncommitted(self):
        """Cinder has not taken the LV: a creation decides what it is."""
        self.committed()
        with self.b.node.lock(self.volume.id):
            self.b.node.stack.mark_newborn(self.volume.name)
        homes.correct(self.b.node, None, self.volume)
        self.assertEqual(A + '#p', self.volume.host)

    def test_deleted_though_a_creation_has_failed_elsewhere(self):
        """The other node removes what it has made in vain."""
        self.b.disk.lvs[self.volume.name] = list(self.a.lvs[self.volume.name])
        self.b.disk.tags[self.volume.name] = frozenset((
            *self.a.disk.tags[self.volume.name], *names.newborn(B)))
        self.attach('deleting')
        for _again in range(2):
            delete.delete(self.a.node, None, self.volume)
        self.assertEqual({}, dict(self.a.lvs))

    def test_moved_meanwhile(self):
        self.committed()
        volume = self.b.node.records.volume(self.volume.id)
        self.volume.host = B + '#p'
        self.assertEqual(B + '#p', homes.correct(
            self.b.node, None, volume).host)
        self.assertIs(state.Phase.MIGRATING, self.move().phase)
