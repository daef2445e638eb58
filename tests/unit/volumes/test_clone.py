# SPDX-License-Identifier: Apache-2.0
"""Volumes made of an image, with a stop at every moment; then converge."""

import itertools
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import uncommitted
from tests.helpers.local_clone_case import Base
from tests.helpers.local_clone_case import FAILURES
from tests.helpers.local_clone_case import ZEROS
from tests.helpers import move_case
from tests import world as worlds

A, B, C = 'a@l', 'b@l', 'c@l'
ONE, TWO = move_case.ONE, move_case.TWO


@ddt.ddt
class StopTest(Base):

    def scenario(self, stop_at, faults, kind, asked, size, zones=()):
        """A volume is born of an image on A; after a failure another is.

        :param kind: of which: a volume's clone, a snapshot
        :param asked: the node that Cinder has chosen
        """
        world, source, expected = self.begin(faults=faults)
        world.zones.update(zones)
        image = source.id if kind == 'clone' else self.take(world, source)
        world.moment, world.stop_at = 0, stop_at
        for _attempt in range(4):
            volume = world.row(asked, size, source_volid=source.id)
            try:
                self.bear(world, volume, image)
                break
            except FAILURES:
                world.recover()
                volume.status = 'error'
                self.delete(world, volume)
        else:
            raise AssertionError('never born')
        volume.status = 'available'
        world.recover()
        self.assertEqual(asked if zones else A, world.home(volume).host)
        self.assert_born(world, volume, expected)
        # They are two: what is written to one is not in the other.
        world.home(volume).write(volume.id, 1, 'new')
        world.nodes[A].write(source.id, 2, 'else')
        world.settle()
        world.settle()
        self.assertEqual('else', world.nodes[A].read(source.id, 2))
        expected[1] = 'new'
        self.assert_born(world, volume, expected)
        self.check_all(world)
        return world

    @ddt.data(*itertools.product(ONE, ('clone', 'snapshot'), (A, B), (2,)))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, kind, asked, size):
        self.stop_everywhere(lambda stops: self.scenario(
            stops, faults, kind, asked, size), turn=ONE.index(faults))

    @ddt.data(*itertools.product(ONE, ('clone', 'snapshot')))
    @ddt.unpack
    def test_stop_on_the_way_to_another_zone(self, faults, kind):
        self.stop_everywhere(lambda stops: self.scenario(
            stops, faults, kind, B, 1, {A: 'here', B: 'there'}),
            turn=ONE.index(faults))

    @ddt.data(*itertools.product(TWO, ('clone', 'snapshot'), (A, B), (2,)))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, faults, kind, asked, size):
        self.stop_everywhere(lambda stops: self.scenario(
            stops, faults, kind, asked, size), 2)

    def download(self, stop_at, faults):
        """An image that Cinder has cached on A; else it is downloaded."""
        world, cached, expected = self.begin(faults=faults)
        world.moment, world.stop_at = 0, stop_at
        volume = world.row(B)
        try:
            self.bear(world, volume, cached.id)
        except exceptions.LocalCloneError:
            try:
                self._create(world, volume)
                expected = ['downloaded'] * worlds.REGIONS
            except FAILURES:
                volume.status = 'error'
        except worlds.Stopped:
            volume.status = 'error'
        if volume.status == 'creating':
            volume.status = 'available'
        world.recover()
        if volume.status == 'error':
            self.delete(world, volume)
        else:
            self.assert_born(world, volume, expected)
        world.settle()
        world.settle()
        self.check_all(world)
        return world

    @staticmethod
    def _create(world, volume):
        node = world.nodes[B]
        if volume.host != B + '#p':
            raise exceptions.StaleMove(volume=volume.id)
        with node.node.allocation_lock(), node.lock(volume.id):
            node.disk.create(volume.name, volume.id,
                             ['downloaded'] * worlds.REGIONS)
            node.node.handles.ensure_handle_on_lv(
                volume.id, volume.name, worlds.GIB)

    @ddt.data(*ONE)
    def test_cached_image_with_a_stop_at_every_moment(self, faults):
        self.stop_everywhere(lambda stops: self.download(stops, faults),
                             turn=ONE.index(faults))

    @ddt.data(*TWO)
    def test_cached_image_with_a_stop_at_every_two(self, faults):
        self.stop_everywhere(lambda stops: self.download(stops, faults), 2)


@ddt.ddt
class BirthTest(Base):

    def test_of_a_snapshot_after_its_volume_has_moved(self):
        world, source, expected = self.begin()
        snapshot = self.take(world, source)
        before = list(expected)
        self.run_move(world, source, expected)
        volume = world.row(B)
        self.bear(world, volume, snapshot)
        self.assertEqual(A, world.home(volume).host)
        self.assert_born(world, volume, before)

    def test_of_a_clone(self):
        world, source, expected = self.begin()
        for _generation in range(3):
            volume = world.row(B, source_volid=source.id)
            self.bear(world, volume, source.id)
            volume.status = 'available'
            self.assert_born(world, volume, expected)
            source = volume

    def test_while_it_is_copied(self):
        world, source, _expected = self.begin()
        world.nodes[A].move(source, B)
        volume = world.row(A, source_volid=source.id)
        self.assertRaises(exceptions.BeingCopied, self.bear, world, volume,
                          source.id)
        self.assertEqual(A + '#p', volume.host)

    def test_after_a_copy_whose_home_was_written_late(self):
        """The source of the move has yet to clean up, so the move tells it."""
        world, source, expected = self.begin()
        world.nodes[A].move(source, B)
        for _again in range(2):
            world.nodes[B].hydrate()
            world.nodes[B].reconciler.reconcile(source.id)
        self.assertEqual(
            1, len(world.nodes[B].node.moves.pending_cleanups(source.id)))
        source.host = A + '#p'
        volume = world.row(A, source_volid=source.id)
        self.bear(world, volume, source.id)
        self.assertEqual(B, world.home(volume).host)
        self.assert_born(world, volume, expected)

    def test_it_waits_for_the_copy(self):
        world, source, expected = self.begin()
        world.nodes[A].move(source, B)
        volume = world.row(A, source_volid=source.id)
        sleeps = self.useFixture(fixtures.MockPatch(
            'tenacity.nap.time.sleep',
            side_effect=lambda _seconds: world.settle())).mock
        node = world.nodes[A]
        clone.from_volume(node.reconciler, volume.id, source.id, 300)
        self.assertEqual(1, sleeps.call_count)
        self.assert_born(world, volume, expected)

    def test_a_cached_image_is_not_waited_for(self):
        world, source, _expected = self.begin()
        world.nodes[A].move(source, B)
        sleeps = self.useFixture(fixtures.MockPatch(
            'tenacity.nap.time.sleep')).mock
        node = world.nodes[A]
        volume = world.row(A)
        self.assertRaises(
            exceptions.BeingCopied, clone.from_volume, node.reconciler,
            volume.id, source.id, 300)
        sleeps.assert_not_called()

    @ddt.data((None, True, exceptions.ForeignImage),
              (None, False, None), ('source', True, None))
    @ddt.unpack
    def test_another_zone(self, of, quota, error):
        """Only a cached image is rather downloaded than moved."""
        world, source, expected = self.begin()
        world.zones = {A: 'here', B: 'there'}
        volume = world.row(B, use_quota=quota,
                           source_volid=of and source.id)
        if error:
            self.assertRaises(error, self.bear, world, volume, source.id)
            self.assertEqual([source.name], list(world.nodes[A].lvs))
        else:
            self.bear(world, volume, source.id)
            self.assert_born(world, volume, expected)
        self.assertEqual(('there', B), (volume.availability_zone,
                                        world.home(volume).host))

    @ddt.data('clone', 'snapshot')
    def test_the_image_is_free_while_it_moves_to_another_zone(self, kind):
        """Its node may wait for the other one for a minute."""
        world, source, _expected = self.begin()
        image = source.id if kind == 'clone' else self.take(world, source)
        world.zones = {A: 'here', B: 'there'}
        node, held = world.nodes[A], []
        prepare = node.node.peers.prepare
        node.node.peers.prepare = lambda *args: (
            held.append(set(node.held)), prepare(*args))
        volume = world.row(B, source_volid=source.id)
        self.bear(world, volume, image)
        self.assertEqual([{volume.id}], held)

    @ddt.data('clone', 'snapshot')
    def test_the_image_is_locked_while_it_is_copied(self, kind):
        """Whoever deletes, moves or unmanages it waits until it was."""
        world, source, _expected = self.begin()
        image = source.id if kind == 'clone' else self.take(world, source)
        node, held = world.nodes[A], []
        lvm = node.node.lvm._inner
        create_copy = lvm.create_copy
        lvm.create_copy = lambda *args: (
            held.append(set(node.held)), create_copy(*args))
        volume = world.row(A, source_volid=source.id)
        self.bear(world, volume, image)
        self.assertEqual([{volume.id, image}], held)

    def test_a_move_to_another_zone_that_fails(self):
        world, source, _expected = self.begin()
        world.zones = {A: 'here', B: 'there'}
        world.nodes[B].free = 1000
        volume = world.row(B, source_volid=source.id)
        self.assertRaises(exceptions.NoFreeSpace, self.bear, world, volume,
                          source.id)
        self.assertEqual((B + '#p', 'there'), (volume.host,
                                               volume.availability_zone))
        self.assertEqual([source.name], list(world.nodes[A].lvs))

    @ddt.data('', 'a@other', 'a@lvm')
    def test_foreign_snapshot(self, node):
        world, source, _expected = self.begin()
        snapshot = world.snapshot_row(source)
        world.set_snapshot(snapshot, node=node, status='available')
        volume = world.row(B)
        self.assertRaises(exceptions.ForeignImage, self.bear, world, volume,
                          snapshot)
        self.assertEqual(B + '#p', volume.host)

    @ddt.data(*itertools.product(('clone', 'snapshot'), (1, 2, 3)))
    @ddt.unpack
    def test_image_whose_lv_is_longer_than_its_row(self, kind, size):
        """Extending it has failed, before anybody had seen it longer."""
        world, source, expected = self.begin()
        node = world.nodes[A]
        with node.lock(source.id):
            node.node.lvm.extend_lv(source.name, 2 * worlds.GIB)
        node.lvs[source.name][worlds.REGIONS] = 'beyond its end'
        image = source.id if kind == 'clone' else self.take(world, source)
        volume = world.row(B, size, source_volid=source.id)
        self.bear(world, volume, image)
        volume.status = 'available'
        self.assert_born(world, volume, expected + ZEROS)
        world.settle()
        worlds.extend(node, volume, size + 1)
        volume.size += 1
        self.assert_born(world, volume, expected + ZEROS * 3)

    @ddt.data(1, 2)
    def test_volume_that_was_extended_since_cinder_asked(self, gib):
        """A clone that has the rest below its end would show it one day."""
        world, source, expected = self.begin()
        worlds.extend(world.nodes[A], source, 2 * gib)
        source.size = 2 * gib
        world.nodes[A].write(source.id, worlds.REGIONS, 'new')
        volume = world.row(B, gib, source_volid=source.id)
        error = self.assertRaises(exceptions.ForeignImage, self.bear, world,
                                  volume, source.id)
        self.assertIn('has %d GiB, and the volume would have %d' % (
            2 * gib, gib), str(error))
        self.assertEqual(B + '#p', volume.host)
        self.assertEqual([source.name], list(world.nodes[A].lvs))
        again = world.row(B, 2 * gib, source_volid=source.id)
        self.bear(world, again, source.id)
        again.status = 'available'
        self.assert_born(world, again, expected + ['new'] + ZEROS * 3)

    def test_foreign_volume(self):
        world, source, _expected = self.begin()
        source.host = 'a@lvm#p'
        volume = world.row(B)
        error = self.assertRaises(exceptions.ForeignImage, self.bear, world,
                                  volume, source.id)
        self.assertIn('a@lvm', str(error))
        self.assertEqual(B + '#p', volume.host)

    @ddt.data('snapshot', 'clone')
    def test_node_of_the_image_is_down(self, kind):
        world, source, _expected = self.begin()
        image = source.id if kind == 'clone' else self.take(world, source)
        world.nodes[A].gone = True
        world.nodes[A].stop(power=True)
        volume = world.row(B)
        self.assertRaises(exceptions.PeerUnreachable, self.bear, world,
                          volume, image)
        self.assertEqual(B + '#p', volume.host)
        self.delete(world, volume)

    def test_snapshot_whose_data_is_gone(self):
        world, source, _expected = self.begin()
        snapshot = self.take(world, source)
        for lost in ({'deleted': True}, {'status': 'deleting'}):
            recorded = world.snapshots[snapshot]
            world.set_snapshot(snapshot, **lost)
            volume = world.row(B)
            self.assertRaises(exceptions.MissingData, self.bear, world,
                              volume, snapshot)
            world.snapshots[snapshot] = recorded
        del world.nodes[A].lvs[names.snapshot_lv(snapshot)]
        self.assertRaises(exceptions.MissingData, self.bear, world,
                          world.row(B), snapshot)

    @ddt.data({'status': 'error'}, {'host': C + '#p'})
    def test_a_request_that_is_late_makes_nothing(self, changes):
        world, source, _expected = self.begin()
        volume = world.row(A)
        vars(volume).update(changes)
        node = world.nodes[A]
        self.assertRaises(
            exceptions.TooLate, clone.make_from_volume, node.reconciler,
            volume.id, source.id, '')
        self.assertRaises(
            exceptions.TooLate, clone.make_from_volume, node.reconciler,
            'none', source.id, '')
        self.assertEqual([source.name], list(node.lvs))

    def test_rows_that_are_gone(self):
        world, source, _expected = self.begin()
        node = world.nodes[A]
        self.assertRaises(exceptions.TooLate, clone.from_volume,
                          node.reconciler, 'none', source.id, 0)
        error = self.assertRaises(
            exceptions.TooLate, clone.from_volume, node.reconciler,
            world.row(A).id, 'none', 0)
        self.assertIn('Volume none was changed or deleted', str(error))

    def test_full_pool(self):
        world, source, _expected = self.begin()
        snapshot = self.take(world, source)
        world.nodes[A].usage = (95.0, 0.0)
        for image in (source.id, snapshot):
            self.assertRaises(exceptions.PoolFull, self.bear, world,
                              world.row(B), image)

    def test_a_row_that_cannot_be_given_back(self):
        world, source, _expected = self.begin()
        volume = world.row(B, source_volid=source.id)
        lvm = world.nodes[A].node.lvm._inner

        def fails(*_args):
            volume.status = 'error'  # somebody else has seen to it
            raise exceptions.CommandFailed(command='c', code=5, stderr='s')
        lvm.create_copy = fails
        self.assertRaises(exceptions.CommandFailed, self.bear, world, volume,
                          source.id)
        self.assertEqual(A + '#p', volume.host)
        self.delete(world, volume)
        world.settle()
        self.check_all(world)


@ddt.ddt
class SweepTest(Base):

    def setUp(self):
        super().setUp()
        self.world, self.source, self.expected = self.begin()
        self.volume = self.world.row(A, source_volid=self.source.id)
        self.bear(self.world, self.volume, self.source.id)
        self.node = self.world.nodes[A]

    def tags(self):
        return self.node.disk.tags.get(self.volume.name)

    @ddt.data('available', 'in-use', 'backing-up', 'reserved')
    def test_accepted(self, status):
        self.volume.status = status
        self.assertIn(names.UNCOMMITTED, self.tags())
        self.world.settle()
        self.assertEqual(names.tags(volume=self.volume.id),
                         list(self.tags()))

    @ddt.data('reserved', 'attaching', 'in-use', 'backing-up')
    def test_accepted_before_a_guest_has_it(self, status):
        """A boot restores no newborn; it has to restore what is in use."""
        self.volume.status = status
        self.node.connect(self.volume, {'host': 'a'})
        self.assertNotIn(names.UNCOMMITTED, self.tags())

    @ddt.data('creating', 'error', 'reverting')
    def test_not_accepted_by_a_reconcile(self, status):
        self.volume.status = status
        self.node.reconciler.reconcile(self.volume.id)
        self.assertIn(names.UNCOMMITTED, self.tags())

    def test_attached_though_it_could_not_be_accepted(self):
        self.volume.status = 'reserved'
        self.node.sim_lvm._inner.accept = mock.Mock(
            side_effect=exceptions.CommandTimeout(command='c', seconds=1))
        self.node.connect(self.volume, {'host': 'a'})
        self.assertIn(names.UNCOMMITTED, self.tags())

    @ddt.data('creating', 'error', 'deleting')
    def test_undecided(self, status):
        self.volume.status = status
        self.world.settle()
        self.assertIn(names.UNCOMMITTED, self.tags())

    @ddt.data(('available', True), ('downloading', True), ('error', False),
              ('creating', True), ('reverting', False))
    @ddt.unpack
    def test_it_is_elsewhere(self, status, gone):
        self.volume.host, self.volume.status = B + '#p', status
        self.world.nodes[B].lvs[self.volume.name] = ['it is there']
        uncommitted.sweep(self.node.node)
        self.assertEqual(gone, self.volume.name not in self.node.lvs)

    def test_it_is_deleted(self):
        self.world.destroy(self.volume)
        uncommitted.sweep(self.node.node)
        self.assertNotIn(self.volume.name, self.node.lvs)

    def test_it_has_no_row(self):
        del self.world.volumes[self.volume.id]
        uncommitted.sweep(self.node.node)
        self.assertIn(self.volume.name, self.node.lvs)

    def test_it_has_moved_before_it_was_accepted(self):
        self.volume.status = 'available'
        self.node.move(self.volume, B)
        for gone in (False, True):
            uncommitted.sweep(self.node.node)
            self.assertEqual(
                gone, 'volume-' + self.volume.id not in self.node.lvs)
            self.world.settle()
        self.assert_born(self.world, self.volume, self.expected)

    def test_asked_for_again_it_stays(self):
        """Cinder may be about to give away what the first request made."""
        self.assertIn(names.UNCOMMITTED, self.tags())
        self.node.write(self.volume.id, 0, 'data')
        self.assertRaises(exceptions.AlreadyThere, self.bear, self.world,
                          self.volume, self.source.id)
        self.assertEqual('data', self.node.read(self.volume.id, 0))
        self.assertEqual([], self.world.wrongs)

    def test_what_somebody_may_have_is_not_made_anew(self):
        """Its status was reset, say, and it is asked for again."""
        self.volume.status = 'available'
        self.world.settle()
        self.node.write(self.volume.id, 0, 'data')
        self.volume.status = 'creating'
        self.assertRaises(exceptions.AlreadyThere, self.bear, self.world,
                          self.volume, self.source.id)
        self.assertEqual('data', self.node.read(self.volume.id, 0))

    def test_no_image_is_made_of_another_volume(self):
        """Cinder would change the key of an image itself."""
        with self.node.lock(self.volume.id):
            uncommitted.remove(self.node.node, self.volume.id,
                               self.volume.name)
        self.volume.status = 'downloading'
        self.assertRaises(exceptions.TooLate, self.bear, self.world,
                          self.volume, self.source.id)

    def test_it_was_accepted_only_once(self):
        self.volume.status = 'available'
        present = self.node.sim_handles.survey()
        with self.node.lock(self.volume.id):  # somebody else is at work
            uncommitted.accept_all(self.node.node, present)
        self.assertIn(names.UNCOMMITTED, self.tags())
        uncommitted.accept_all(self.node.node, present)
        del self.node.lvs[self.volume.name]
        uncommitted.accept_all(self.node.node, present)
