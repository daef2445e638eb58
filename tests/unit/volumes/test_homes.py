# SPDX-License-Identifier: Apache-2.0
"""Cinder has written a home that it had read before a move."""

from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.volumes import homes
from tests.helpers import attach_case
from tests.helpers import callers
from tests import world as worlds
from tests.world import records

A, B, ON_B = attach_case.A, attach_case.B, attach_case.ON_B


@ddt.ddt
class HomesTest(attach_case.Base):

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
        self.connect(ON_B)
        self.attach('in-use', 'a')
        self.disconnect(self.b, ON_B)
        self.is_at(A)
        self.volume.host = B + '#p'

    def committed(self):
        """A move is committed meanwhile."""
        self.connect(ON_B)
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

    def test_live_migration_that_is_given_up(self):
        """The source does not take it for one that has succeeded.

        Its node had no power meanwhile, so no process has the volume open.
        """
        self.attach('in-use', 'a', None)
        self.connect(ON_B)
        self.attach('in-use', 'a', 'b')
        self.volume.host = A + '#p'
        self.disconnect(self.a, ON_B)
        self.attach('in-use', 'a')
        self.world.settle()
        self.is_at(A)
        self.assertIsNone(self.move())
        self.assertIn(self.handle, self.a.devices)
        self.assertEqual('old', self.a.read(self.volume.id, 1))

    def test_before_the_node_looks(self):
        """Each node that is asked for one volume corrects it."""
        self.committed()
        self.b.reconciler.reconcile(self.volume.id)
        self.is_at(B)

    @ddt.data(A, 'x@l')
    def test_whatever_service_was_written_late(self, service):
        """The record of its move tells the home."""
        self.committed()
        self.volume.service_uuid = self.world.service_of(service)
        self.b.reconciler.reconcile(self.volume.id)
        self.is_at(B)

    def test_by_another_node_during_its_move(self):
        """The home in the record may be its former name."""
        self.committed()
        self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual(A + '#p', self.volume.host)

    @ddt.data('committed', 'ended')
    def test_operator_reads_of_it(self, how):
        getattr(self, how)()
        volume = self.b.node.volumes.volume(self.volume.id)
        with mock.patch.object(events, 'say') as said:
            found = homes.correct(self.b.node, volume)
        said.assert_called_once_with(
            events.HOME_CORRECTED, volume=self.volume.id, host=A)
        self.assertEqual((B + '#p', B, False), (
            found.host, found.home, found.is_misplaced))

    def test_handle_that_is_lacking(self):
        self.committed()
        del self.b.devices[self.handle]
        self.b.reconciler.reconcile(self.volume.id)
        self.assertIn(self.handle, self.b.devices)

    def test_deleted_before(self):
        """The node that the row names has nothing of it."""
        self.rolled_back()
        self.attach('deleting')
        self.a.opened.clear()
        wrong = self.world.nodes[self.volume.host[:3]]
        right = self.a if wrong is self.b else self.b
        lvs = set(right.lvs)
        # None of its data was removed: its owner may try again.
        error = self.assertRaises(
            exceptions.CannotDelete, callers.delete, wrong.node, self.volume)
        self.assertIn(right.host, str(error))
        self.assertEqual(lvs, set(right.lvs))
        right.reconciler.reconcile(self.volume.id)
        callers.delete(right.node, self.volume)
        self.assertNotIn(self.volume.name, right.lvs)

    def test_deleted_during_its_move(self):
        """The move tells its home."""
        self.committed()
        self.attach('deleting')
        self.b.opened.clear()
        callers.delete(self.a.node, self.volume)
        self.assertNotIn(self.volume.name, self.b.lvs)

    def ended(self):
        """Only the service tells its home."""
        self.committed()
        self.volume.host = B + '#p'
        self.world.settle()
        self.assertIsNone(self.move())
        self.volume.host = A + '#p'

    def test_ended(self):
        self.ended()
        self.world.settle()
        self.is_at(B)
        self.assertEqual('new', self.b.read(self.volume.id, 2))

    def test_handle_stays(self):
        """The node takes itself for the home at once."""
        self.ended()
        before = self.b.devices.copy()
        self.b.opened.clear()
        self.b.reconciler.reconcile(self.volume.id)
        self.is_at(B)
        self.assertEqual(before, self.b.devices)

    def test_asked_for_an_attach_during_its_move(self):
        """The node that the row names does not take itself for its home."""
        self.committed()
        before = self.a.devices.keys()
        self.attach('in-use', 'b')
        self.assertRaises(exceptions.StaleMove, self.connect, ON_B)
        self.assertEqual(before, self.a.devices.keys())
        self.is_local(self.connect(ON_B, self.b))
        self.assertEqual('new', self.b.read(self.volume.id, 2))

    def ended_without_answer(self, status, error=exceptions.PeerUnreachable(
            host=B, method='has_lv', seconds=8)):
        """The home does not say whether it has the LV."""
        self.ended()
        self.attach(status)
        self.useFixture(fixtures.MockPatchObject(
            type(self.a.node.peers), 'has_lv', autospec=True,
            side_effect=error))

    def test_deleted_while_another_node_lists_no_lvs(self):
        """It answers with an error: the volume may be there."""
        self.ended_without_answer('deleting', exceptions.CommandFailed(
            command='lvs', code=5, stderr='busy'))
        error = self.assertRaises(exceptions.HalfDeleted, callers.delete,
                                  self.a.node, self.volume)
        self.assertIn('its data may be on b@l: "lvs" failed', str(error))
        self.assertIn(self.volume.name, self.b.lvs)

    def test_deleted_while_another_node_does_not_answer(self):
        self.ended_without_answer('deleting')
        # Found by seed 24000181081: an earlier delete may have removed its LV,
        # so the volume must not become available.
        error = self.assertRaises(exceptions.HalfDeleted, callers.delete,
                                  self.a.node, self.volume)
        self.assertIn('its data may be on b@l: The volume service',
                      str(error))
        self.assertIn(self.volume.name, self.b.lvs)

    def test_deleted_in_part_at_its_home_before(self):
        """The volume must not become available, wherever it is asked for."""
        self.ended()
        self.volume.host = B + '#p'
        self.b.opened.clear()
        self.attach('deleting')
        with mock.patch('cinder_localclone.moves.cleanup.remove_volume_lv',
                        side_effect=exceptions.CommandFailed(
                            command='lvremove', code=5, stderr='busy')):
            self.assertRaises(exceptions.HalfDeleted, callers.delete,
                              self.b.node, self.volume)
        self.assertIn(names.DELETING, self.b.disk.tags[self.volume.name])
        self.volume.host = A + '#p'
        self.assertRaises(exceptions.HalfDeleted, callers.delete,
                          self.a.node, self.volume)
        with mock.patch.object(
                type(self.a.node.peers), 'is_whole', autospec=True,
                side_effect=exceptions.PeerUnreachable(
                    host=B, method='is_whole', seconds=8)):
            self.assertRaises(exceptions.HalfDeleted, callers.delete,
                              self.a.node, self.volume)

    def test_deleted_while_the_service_in_its_row_does_not_answer(self):
        """Its LV is at the home that the row names: no other node is asked."""
        self.ended()
        self.volume.host = B + '#p'
        self.volume.service_uuid = self.world.service_of(A)
        self.a.dead = True
        self.attach('deleting')
        self.b.opened.clear()
        callers.delete(self.b.node, self.volume)
        self.assertEqual({}, dict(self.b.lvs))

    @ddt.data((exceptions.CommandFailed(
        command='lvs', code=5, stderr='busy'), exceptions.CommandFailed),
        (exceptions.CommandTimeout(command='lvs', seconds=1),
         exceptions.CannotDelete))
    @ddt.unpack
    def test_deleted_while_this_node_lists_no_lvs(self, fault, kind):
        """Nothing is said of where the data is."""
        self.attach('deleting')
        lvs = worlds.SimLvm.lvs
        with mock.patch.object(worlds.SimLvm, 'lvs', autospec=True) as told:
            told.side_effect = [fault, lvs(self.a.node.lvm)]
            error = self.assertRaises(kind, callers.delete, self.a.node,
                                      self.volume)
        self.assertIn('lvs', str(error))
        self.assertNotIn('is not on', str(error))
        self.assertIn(self.volume.name, self.a.lvs)

    def test_deleted_again(self):
        self.attach('deleting')
        for _again in range(2):
            callers.delete(self.a.node, self.volume)
        self.assertEqual({}, dict(self.a.lvs))

    def copied(self):
        """Another node has a copy of the disk."""
        self.b.disk.lvs[self.volume.name] = list(self.a.lvs[self.volume.name])
        self.b.disk.tags[self.volume.name] = self.a.disk.tags[
            self.volume.name]

    def test_an_lv_of_that_name_on_both(self):
        self.copied()
        self.world.reconcile()
        self.is_at(A)

    @ddt.data('in-use', 'error', 'deleting', 'reverting')
    def test_nobody_is_asked(self, status):
        """The node that the row names may be lost."""
        self.committed()
        self.a.dead, self.volume.status = True, status
        with self.b.lock(self.volume.id):
            homes.correct(self.b.node, self.volume)
        self.is_at(B)

    @ddt.data({'status': 'creating'}, {'status': 'downloading'},
              {'migration_status': 'migrating'}, {'host': 'c@other#p'})
    def test_left_alone(self, values):
        self.committed()
        for name, value in values.items():
            setattr(self.volume, name, value)
        before = self.volume.host
        self.b.reconciler.reconcile(self.volume.id)
        self.assertEqual(before, self.volume.host)

    def test_uncommitted(self):
        """Cinder has not taken the LV: a creation decides what it is."""
        self.rolled_back()
        with self.a.node.lock(self.volume.id):
            self.a.node.lvm.mark_uncommitted(self.volume.name)
        homes.correct(self.a.node, self.volume)
        self.assertEqual(B + '#p', self.volume.host)

    def test_deleted_though_a_creation_has_failed_elsewhere(self):
        """The other node removes what it has made in vain."""
        self.b.disk.lvs[self.volume.name] = list(self.a.lvs[self.volume.name])
        self.b.disk.tags[self.volume.name] = frozenset((
            *self.a.disk.tags[self.volume.name], *names.uncommitted(B)))
        self.attach('deleting')
        for _again in range(2):
            callers.delete(self.a.node, self.volume)
        self.assertEqual({}, dict(self.a.lvs))

    def test_no_other_volume_is_read(self):
        """Each look at a move from here comes here."""
        self.connect(ON_B)
        with mock.patch.object(records.SimVolumes,
                               'volumes_with_wrong_host') as listed:
            self.a.reconciler.reconcile(self.volume.id)
        listed.assert_not_called()
        self.is_at(B)

    def test_home_of_another_service(self):
        """Its row is as it was, and no LV is looked up for it."""
        self.connect(ON_B)
        volume = self.b.node.volumes.volume(self.volume.id)
        with mock.patch.object(worlds.SimLvm, 'lvs') as listed:
            self.assertIs(volume, homes.correct(self.a.node, volume))
        listed.assert_not_called()

    def test_moved_meanwhile(self):
        self.committed()
        volume = self.b.node.volumes.volume(self.volume.id)
        self.volume.host = B + '#p'
        with mock.patch.object(events, 'say') as said:
            homes.correct(self.b.node, volume)
            self.assertFalse(self.b.node.volumes.correct_home(volume, B))
        said.assert_not_called()
        self.is_at(B)
        self.assertIs(state.Phase.MIGRATING, self.move().phase)

    def test_lv_of_another_volume(self):
        self.committed()
        name = self.volume.name
        self.b.disk.tags[name] = frozenset(
            tag.replace(self.volume.id, self.volume.id[::-1])
            for tag in self.b.disk.tags[name])
        homes.correct(self.b.node, self.volume)
        self.assertEqual(A + '#p', self.volume.host)

    def test_by_the_sweep_without_a_handle(self):
        self.committed()
        self.b.opened.clear()
        with self.b.lock(self.volume.id):
            self.b.node.handles.remove_handle(self.volume.id)
        self.b.reconciler.reconcile_node()
        self.is_at(B)

    def test_by_the_sweep_without_a_handle_or_a_move(self):
        self.ended()
        self.b.opened.clear()
        with self.b.lock(self.volume.id):
            self.b.node.handles.remove_handle(self.volume.id)
        self.b.reconciler.reconcile_node()
        self.is_at(B)
        self.assertIn(self.handle, self.b.devices)

    def test_by_the_sweep_at_the_start_of_the_service(self):
        """It leaves moves alone, but no home."""
        self.committed()
        self.b.reconciler.reconcile_node(moves=False)
        self.is_at(B)

    def test_a_copy_while_the_volume_is_deleted(self):
        """No home is taken by a copied disk, whatever its home has left."""
        self.copied()
        self.volume.status = 'error_deleting'
        del self.a.disk.lvs[self.volume.name]
        self.world.reconcile()
        self.is_at(A)

    def test_a_copy_while_the_volume_is_reverted(self):
        self.copied()
        self.volume.status = 'reverting'
        with self.a.lock(self.volume.id):
            self.a.node.lvm.mark_uncommitted(self.volume.name)
        self.world.reconcile()
        self.is_at(A)

    def test_unmanaged_before(self):
        self.ended()
        self.attach('unmanaging')
        error = self.assertRaises(exceptions.CannotUnmanage,
                                  callers.unmanage, self.a.node,
                                  self.volume.id)
        self.assertIn(B, str(error))
        self.assertIn(self.volume.name, self.b.lvs)

    def test_unmanaged_while_another_node_does_not_answer(self):
        self.ended_without_answer('unmanaging')
        error = self.assertRaises(exceptions.CannotUnmanage,
                                  callers.unmanage, self.a.node,
                                  self.volume.id)
        self.assertIn('its data may be on b@l', str(error))
