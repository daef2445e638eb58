# SPDX-License-Identifier: Apache-2.0
"""Managing and unmanaging snapshots, stopped at every moment."""

import itertools
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manage_snapshots
from cinder_localclone.volumes import manageable
from cinder_localclone.volumes import snapshots
from tests.helpers import move_case
from tests.helpers import snapshot_case
from tests import world as worlds
from tests.world import crypt

A, B = 'a@l', 'b@l'
FAILURES = (exceptions.LocalCloneError, worlds.Stopped)
DATA = {'source-name': 'data'}


class Base(snapshot_case.Base):

    @staticmethod
    def manage(world, volume, reference=DATA):
        """Cinder has the home of a volume manage a snapshot of it; its id.

        :raises Exception: what the driver does; the row is in error then
        """
        snapshot = world.snapshot_row(volume)
        node = world.home(volume).node
        try:
            size = manage_snapshots.get_size(node, snapshot, reference)
            location = manage_snapshots.manage(node, snapshot, reference)
        except FAILURES:
            world.set_snapshot(snapshot, status='error')
            raise
        world.set_snapshot(snapshot, status='available', size_gib=size,
                           node=rows.node_of(location))
        return snapshot

    @staticmethod
    def unmanage(world, snapshot, host=A):
        """Cinder has a node do it, again if it has died."""
        for _attempt in range(4):
            world.set_snapshot(snapshot, status='unmanaging')
            try:
                manage_snapshots.unmanage(
                    world.nodes[host].node, snapshot)
            except FAILURES:
                world.recover()
            else:
                break
        else:
            raise AssertionError('never unmanaged')
        world.set_snapshot(snapshot, deleted=True)

    def assert_foreign(self, world, name, content, readonly=False):
        node = world.nodes[A]
        self.assertEqual(content, node.lvs[name])
        self.assertEqual(frozenset(), node.disk.tags.get(name, frozenset()))
        self.assertEqual(readonly, name in node.disk.readonly)


@ddt.ddt
class StopTest(Base):

    def manage_at_last(self, world, volume, content):
        """Until it is done; what fails leaves the LV as it was."""
        for _attempt in range(4):
            try:
                return self.manage(world, volume)
            except FAILURES:
                world.recover()
                for failed in list(world.snapshots):
                    self.drop(world, failed, world.home(volume).host)
                world.settle()
                self.assertEqual(content, world.nodes[A].lvs['data'])
        raise AssertionError('never managed')

    def scenario(self, stop_at, faults, left_behind):
        """An LV becomes a snapshot of a volume that moves, and none again.

        :param left_behind: whether the volume has left it behind by then
        """
        world, volume, expected = self.begin(faults=faults)
        content = world.foreign(A)
        if left_behind:
            world.nodes[A].move(volume, B)
            world.settle()
        world.stop_at = stop_at
        snapshot = self.manage_at_last(world, volume, content)
        self.assertEqual(A, world.snapshots[snapshot].node)
        if not left_behind:
            self.run_move(world, volume, expected)
        self.assertEqual(content, self.content(world, snapshot))
        # Its volume's home is asked, and asks the node that has it.
        self.unmanage(world, snapshot, B)
        world.settle()
        world.settle()
        self.assert_foreign(world, names.snapshot_lv(snapshot), content, True)
        del world.nodes[A].lvs[names.snapshot_lv(snapshot)]
        self.check(world, volume, expected)
        return world

    @ddt.data(*itertools.product(move_case.ONE, (False, True)))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, left_behind):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, left_behind),
            turn=move_case.ONE.index(faults))


@ddt.ddt
class SnapshotTest(Base):

    def setUp(self):
        super().setUp()
        self.world, self.volume, _expected = self.begin()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.data = self.world.foreign(A)

    def row(self):
        return self.world.snapshot_row(self.volume)

    def refused(self, reference, error=exceptions.CannotManage):
        snapshot, done = self.row(), len(self.world.done)
        for act in (manage_snapshots.get_size, manage_snapshots.manage):
            raised = self.assertRaises(error, act, self.a.node,
                                       snapshot, reference)
        self.assertEqual(done, len(self.world.done))
        return str(raised)

    def test_what_is_made_of_it(self):
        snapshot = self.manage(self.world, self.volume)
        name = names.snapshot_lv(snapshot)
        self.assertEqual({'snapshot': snapshot, 'of': self.volume.id,
                          'on': names.node_digest(A), 'was': 'data'},
                         names.facts(self.a.disk.tags[name]))
        self.assertIn(name, self.a.disk.readonly & self.a.disk.inactive)
        self.assertEqual('lc1:' + A, rows.location(
            self.world.snapshots[snapshot].node))
        self.drop(self.world, snapshot, A)
        self.assertNotIn(name, self.a.lvs)

    def test_refused(self):
        self.assertIn('must have', self.refused({}))
        self.assertIn('does not exist', self.refused({'source-name': 'x'}))
        self.assertIn(manageable.MANAGED, self.refused(
            {'source-name': self.volume.name}))
        taken = names.snapshot_lv(self.take(self.world, self.volume))
        self.assertIn(manageable.MANAGED, self.refused(
            {'source-name': taken}))
        self.world.pool = None
        self.assertIn('not a thin', self.refused(DATA))

    def test_nobody_waits_for_it(self):
        snapshot = self.row()
        for changes in ({'status': 'error'}, {'deleted': True}):
            self.world.set_snapshot(snapshot, status='creating')
            self.world.set_snapshot(snapshot, **changes)
            for act in (manage_snapshots.get_size, manage_snapshots.manage):
                self.assertRaises(exceptions.TooLate, act, self.a.node,
                                  snapshot, DATA)
        self.assertRaises(exceptions.TooLate, manage_snapshots.manage,
                          self.a.node, 'none', DATA)

    def test_its_volume_went_elsewhere(self):
        self.volume.host = B + '#p'
        self.assertRaises(exceptions.StaleMove, manage_snapshots.manage,
                          self.a.node, self.row(), DATA)

    def away(self):
        """The volume has left the LV behind."""
        self.a.move(self.volume, B)
        self.world.settle()

    def test_lv_that_its_volume_has_left_behind(self):
        """As a snapshot that is not managed any more is."""
        taken = self.take(self.world, self.volume)
        self.away()
        content = self.content(self.world, taken)
        self.unmanage(self.world, taken, B)
        snapshot = self.manage(self.world, self.volume, {
            'source-name': names.snapshot_lv(taken)})
        self.assertEqual(A, self.world.snapshots[snapshot].node)
        self.assertEqual(content, self.content(self.world, snapshot))
        self.drop(self.world, snapshot, B)
        self.assertNotIn(names.snapshot_lv(snapshot), self.a.lvs)

    def test_home_of_its_volume_comes_first(self):
        self.away()
        self.world.foreign(B)
        snapshot = self.manage(self.world, self.volume)
        self.assertEqual(B, self.world.snapshots[snapshot].node)
        self.assertIn('data', self.a.lvs)

    def refused_at_b(self, error=exceptions.CannotManage):
        snapshot, done = self.row(), len(self.world.done)
        for act in (manage_snapshots.get_size, manage_snapshots.manage):
            raised = self.assertRaises(error, act, self.b.node,
                                       snapshot, DATA)
        self.assertEqual(done, len(self.world.done))
        return str(raised)

    def test_of_another_backend(self):
        self.away()
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.services, 'alive_by_host', return_value={
                B: True, 'a@m': True}))
        asked = self.useFixture(fixtures.MockPatchObject(
            self.b.node.peers, 'manageable_snapshot', return_value=1)).mock
        self.assertNotIn('elsewhere', self.refused_at_b())
        asked.assert_not_called()

    def test_not_elsewhere_if_it_is_open_there(self):
        self.away()
        with mock.patch.object(manageable, '_why_not_now',
                               return_value='it is open'):
            self.assertIn('data on %s can\'t be managed: it is open' % A,
                          self.refused_at_b())

    @ddt.data('dead', 'silent')
    def test_node_that_may_have_it_is_away(self, how):
        self.away()
        self.a.dead = how == 'dead'
        asked = self.useFixture(fixtures.MockPatchObject(
            self.b.node.peers, 'manageable_snapshot',
            side_effect=exceptions.PeerUnreachable(
                host=A, method='m', seconds=1))).mock
        self.assertIn('the LV does not exist in volume group g; no answer '
                      'from ' + A, self.refused_at_b())
        # One that is known to be down is not waited for.
        self.assertEqual(how == 'silent', asked.called)

    def test_it_has_gone_since_it_was_found(self):
        """Nothing was adopted, so nothing is given back."""
        snapshot = self.world.snapshot_row(self.volume)
        with mock.patch.object(manage, 'give_back') as given_back:
            error = self.assertRaises(
                exceptions.CannotManage, manage_snapshots.adopt,
                self.a.node, snapshot, {'source-name': 'gone'})
        self.assertIn('the LV does not exist in volume group g', str(error))
        given_back.assert_not_called()

    def test_nobody_waits_for_it_elsewhere(self):
        self.away()
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.peers, 'manageable_snapshot',
            side_effect=exceptions.TooLate(what='it')))
        self.refused_at_b(exceptions.TooLate)

    def test_one_elsewhere_and_one_that_does_not_answer(self):
        """The guide: refused if a node that may have one is silent."""
        self.away()
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.services, 'alive_by_host', return_value={
                A: True, B: True, 'c@l': False}))
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.peers, 'manageable_snapshot', return_value=1))
        self.assertIn('but on another node: a@l; no answer from c@l',
                      self.refused_at_b())

    def test_more_than_one_elsewhere(self):
        self.away()
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.services, 'alive_by_host', return_value={
                A: True, B: True, 'c@l': True, 'a@m': True}))
        self.useFixture(fixtures.MockPatchObject(
            self.b.node.peers, 'manageable_snapshot', return_value=1))
        self.assertIn('but on several nodes: a@l and c@l',
                      self.refused_at_b())

    def test_asked_again(self):
        snapshot = self.row()
        for _time in range(2):
            manage_snapshots.manage(self.a.node, snapshot, DATA)
        self.assertEqual(self.data,
                         self.a.lvs[names.snapshot_lv(snapshot)])

    def test_encrypted_by_this_driver(self):
        """Its secret goes with its volume."""
        snapshot = self.manage(self.world, self.volume)
        self.world.foreign(A)
        self.volume.provider_id = crypt.recorded('secret')
        self.assertIn('encrypted by this driver', self.refused(DATA))
        self.world.set_snapshot(
            snapshot, provider_id=crypt.recorded('secret'))
        tags = self.a.disk.tags[names.snapshot_lv(snapshot)]
        for node in (self.a, self.b):
            self.assertRaises(
                exceptions.CannotUnmanage, manage_snapshots.unmanage,
                node.node, snapshot)
        self.assertEqual(tags, self.a.disk.tags[names.snapshot_lv(snapshot)])

    def test_not_while_it_is_read(self):
        snapshot = self.manage(self.world, self.volume)
        self.world.read.add(snapshot)
        self.assertRaises(exceptions.SnapshotInUse, manage_snapshots.unmanage,
                          self.b.node, snapshot)
        snapshots.connect(self.a.node, snapshot, {'host': 'a'})
        self.world.read.clear()
        self.a.opened.add(names.handle(snapshot))
        self.assertRaises(exceptions.SnapshotInUse, manage_snapshots.unmanage,
                          self.a.node, snapshot)
        self.a.opened.clear()
        self.unmanage(self.world, snapshot)
        self.assertNotIn(names.handle(snapshot), self.a.devices)

    def test_its_node_is_down(self):
        snapshot = self.manage(self.world, self.volume)
        self.a.dead = True
        self.assertRaises(exceptions.PeerUnreachable,
                          manage_snapshots.unmanage, self.b.node, snapshot)

    def test_none_was_ever_made(self):
        done = len(self.world.done)
        manage_snapshots.unmanage(self.a.node, self.row())
        manage_snapshots.unmanage(self.a.node, 'gone')
        self.assertEqual(done, len(self.world.done))

    def test_a_look_that_began_before(self):
        """It has the tags yet; the row is deleted by then."""
        snapshot = self.manage(self.world, self.volume)
        present = self.a.sim_handles.survey()
        self.unmanage(self.world, snapshot)
        snapshots.sweep(self.a.node, present)
        self.assert_foreign(self.world, names.snapshot_lv(snapshot),
                            self.data, True)

    def listed(self):
        return {entry['reference']['source-name']: entry['cinder_id']
                for entry in manage_snapshots.listed(self.a.node)}

    def test_list(self):
        taken = self.take(self.world, self.volume)
        # It stays there, wherever its volume goes.
        self.a.move(self.volume, B)
        self.world.settle()
        gone, unknown, other = self.row(), 'x', self.row()
        self.world.set_snapshot(gone, deleted=True)
        for each in (gone, unknown, other):
            self.world.foreign(A, names.snapshot_lv(each))
        self.assertEqual({
            names.snapshot_lv(taken): taken,
            names.snapshot_lv(other): other,  # of another backend
            names.snapshot_lv(gone): None, names.snapshot_lv(unknown): None,
        }, self.listed())
        self.assertEqual([], manage_snapshots.listed(self.b.node))
