# SPDX-License-Identifier: Apache-2.0
"""Moves of volumes with holes: the destination equals the source."""

import itertools
from unittest import mock

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.moves import destination
from cinder_localclone.moves import holes
from cinder_localclone.moves import source
from tests.helpers.holes import A
from tests.helpers.holes import B
from tests.helpers.holes import begin
from tests.helpers.holes import HOLES
from tests.helpers import move_case
from tests.helpers import move_steps_case
from tests.helpers import storage_parts
from tests import world as worlds

ZERO = worlds.ZERO


@ddt.ddt
class StopTest(move_case.Base):
    """With a stop at every moment; then converge."""

    begin = begin

    def scenario(self, stop_at, faults, back):
        """:param back: move a volume that has moved before back"""
        world, volume, expected = self.begin(faults=faults)
        if back:
            self.run_move(world, volume, expected)
        world.moment, world.stop_at = 0, stop_at
        self.run_move(world, volume, expected, A if back else B)
        self.check(world, volume, expected)
        return world

    @ddt.data(*itertools.product(move_case.ONE, (False, True)))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, back):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, back),
            turn=move_case.ONE.index(faults))

    @ddt.data(*move_case.ALIKE)
    def test_stop_at_every_two_moments(self, faults):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, False), 2, nth=3)

    def writing(self, stop_at, faults):
        """A guest has written just before, another comes after the map."""
        world, volume, expected = self.begin(faults=faults)
        a = world.nodes[A]
        a.write(volume.id, 0, 'before', flushed=False)
        export = a.node.exports._inner.export_source

        def writes(move):
            a.node.exports._inner.export_source = export
            export(move)
            if not a.dead:
                a.write(volume.id, 3, 'after')
                expected[3] = 'after'
        a.node.exports._inner.export_source = writes
        expected[0] = 'before'
        world.moment, world.stop_at = 0, stop_at
        try:
            a.move(volume, B)
        except worlds.Stopped:
            if 'cut' in faults[0] and a.lvs[volume.name][0] != 'before':
                expected[0] = ZERO  # it was never flushed
        except exceptions.LocalCloneError:
            pass  # told so, or the peer has stopped
        else:
            self.fail('what was written is lost')
        world.settle()
        self.run_move(world, volume, expected)
        self.check(world, volume, expected)
        return world

    @ddt.data(*move_case.ONE)
    def test_written_meanwhile_with_a_stop_at_every_moment(self, faults):
        self.stop_everywhere(lambda stops: self.writing(stops, faults),
                             turn=move_case.ONE.index(faults))


@ddt.ddt
class SparseTest(move_steps_case.Base):

    def begin(self, holes=HOLES, **how):
        return begin(self, holes, hosts=(A, B, 'c@l'), **how)

    def moved(self):
        """The volume is all at B; what was read of its source."""
        self.a.move(self.volume, B)
        before = self.b.reads
        self.world.settle()
        self.check(self.world, self.volume, self.expected)
        return self.b.reads - before

    def clone(self):
        move_id, = self.world.move_records
        return self.b.node.clones.clone_status(move_id)

    def test_order(self):
        """Closed, flushed, mapped; and looked at again before the commit."""
        prepared = move_steps_case.PREPARED
        with self.does(a=['ensure_handle_on_lv', 'flush_handle', 'holes',
                          'begin', 'ensure_source', 'export_source',
                          'flush_handle', 'commit', 'reconcile_soon',
                          'mark', 'remove_handle'], b=prepared):
            self.a.move(self.volume, B)
        self.assertEqual((3, 4), (self.clone().hydrated,
                                  self.clone().regions))

    def test_only_what_was_written_is_copied(self):
        self.assertEqual(1, self.moved())
        self.assertEqual(3, self.b.lvs[self.volume.name].count(ZERO))

    def test_nothing_was_written(self):
        self.world, self.volume, self.expected = self.begin(range(4))
        self.a, self.b, _c = self.world.nodes.values()
        self.assertEqual(0, self.moved())

    def test_all_was_written(self):
        self.world, self.volume, self.expected = self.begin(())
        self.a, self.b, _c = self.world.nodes.values()
        with self.does(a=['ensure_handle_on_lv', 'flush_handle', 'holes',
                          'begin', 'ensure_source', 'export_source', 'commit',
                          'reconcile_soon', 'mark', 'remove_handle'],
                       b=move_steps_case.PREPARED):
            self.a.move(self.volume, B)
        self.assertEqual(0, self.clone().hydrated)

    def test_thin_again_at_the_next_move(self):
        self.assertEqual(1, self.moved())
        self.b.write(self.volume.id, 2, 'new')
        self.expected[2] = 'new'
        before = self.a.reads
        self.b.move(self.volume, A)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)
        self.assertEqual(2, self.a.reads - before)

    def test_what_an_extension_has_added_is_a_hole(self):
        with self.a.lock(self.volume.id):
            self.a.node.lvm.extend_lv(self.volume.name, 2 * worlds.GIB)
            self.a.node.lvm.show_lv(self.volume.name, 2 * worlds.GIB)
        self.volume.size = 2
        self.a.move(self.volume, B)
        self.assertEqual((7, 8), (self.clone().hydrated,
                                  self.clone().regions))
        self.world.settle()
        self.verify(self.world, self.volume, self.expected + [ZERO] * 4)

    def test_written_and_not_flushed_before(self):
        self.a.write(self.volume.id, 0, 'cached', flushed=False)
        self.expected[0] = 'cached'
        self.assertEqual(2, self.moved())

    def test_open(self):
        """What a guest may still write is not mapped."""
        self.a.opened.add(self.handle)
        with self.does(a=['ensure_handle_on_lv']):
            self.assertRaises(exceptions.SourceBusy, self.a.move,
                              self.volume, B)

    def test_written_after_the_map(self):
        """By somebody who has closed it again: only what he wrote tells."""
        def writes():
            self.a.write(self.volume.id, 0, 'late', flushed=False)
        self.first(self.a.node.exports._inner, 'export_source', writes)
        error = self.assertRaises(exceptions.SourceWritten, self.a.move,
                                  self.volume, B)
        self.assertIn(A, str(error))
        self.expected[0] = 'late'
        self.check(self.world, self.volume, self.expected)
        self.assertEqual(2, self.moved())

    def test_written_after_the_map_was_read(self):
        """What was written is counted before: this is in a hole."""
        self.assertIn(2, HOLES)
        mapping = worlds.SimLvm.holes

        def late(this, *args, **kwargs):
            found = mapping(this, *args, **kwargs)
            self.a.write(self.volume.id, 2, 'late', flushed=False)
            return found
        with mock.patch.object(worlds.SimLvm, 'holes', late):
            self.assertRaises(exceptions.SourceWritten, self.a.move,
                              self.volume, B)
        self.expected[2] = 'late'
        self.check(self.world, self.volume, self.expected)
        self.assertEqual(2, self.moved())

    def test_opened_after_the_map(self):
        self.first(self.a.node.exports._inner, 'export_source',
                   lambda: self.a.opened.add(self.handle))
        self.assertRaises(exceptions.SourceBusy, self.a.move, self.volume, B)

    def test_pool_that_cannot_be_asked(self):
        self.a.odd_pool = True
        self.assertEqual(4, self.moved())

    @ddt.data(exceptions.CommandTimeout(command='c', seconds=1),
              FileNotFoundError(2, 'No such file', 'thin_dump'))
    def test_pool_that_does_not_answer(self, error):
        def fails(*_all, **_how):
            raise error
        self.a.node.lvm._inner.holes = fails
        self.assertEqual(4, self.moved())

    def test_thick_peer(self):
        self.world.pool = None
        start = len(self.world.done)
        self.a.move(self.volume, B)
        self.assertNotIn('holes', self.world.effects(A, start))
        self.assertEqual(0, self.clone().hydrated)

    def prepare(self, move):
        self.called(self.b, destination.prepare, move.move_id,
                    move.token.nonce, [[0, 1], [2, 2]])

    def test_into_a_pool_that_does_not_zero(self):
        """What is written to a part of a block shows old data beside it."""
        self.b.zeroes = False
        move = self.begun()
        self.assertRaises(exceptions.PoolDoesNotZero, self.prepare, move)
        self.assertNotIn(move.destination_lv, self.b.lvs)

    def test_into_a_thick_lv(self):
        self.world.pool = None
        self.prepare(self.begun())
        self.assertEqual(0, self.clone().hydrated)

    def test_into_an_lv_that_was_there(self):
        """Whatever it has, it is not known to be nothing."""
        move = self.begun()
        with self.b.lock(self.volume.id), self.b.lock('free-space'):
            self.b.node.clones.create_metadata(move, {})
            self.b.node.lvm.create_lv(
                move.destination_lv, move.size_bytes, self.volume.id)
        self.b.lvs[move.destination_lv][0] = 'old'
        self.prepare(move)
        self.assertEqual(0, self.clone().hydrated)
        self.assertEqual(ZERO, self.b.read(self.volume.id, 0))

    def test_prepared_twice(self):
        move = self.begun()
        self.prepare(move)
        self.assertEqual(3, self.clone().hydrated)
        self.b.stop(power=True)  # before any of that was committed
        self.b.dead = False
        with self.b.lock(self.volume.id):
            for name in self.b.lvs:
                self.b.node.lvm.activate(name)
        self.prepare(move)
        self.assertEqual(0, self.clone().hydrated)

    def test_begun_by_a_live_move(self):
        move = self.begun(Event.LIVE_MOVE_BEGUN)
        self.called(self.b, destination.prepare, move.move_id,
                    move.token.nonce)
        self.assertEqual(0, destination.written_regions(self.b.node, move))
        self.assertIn(names.handle(self.volume.id), self.b.devices)


@ddt.ddt
class UnderGuestTest(move_steps_case.Base):
    """Of a source that was written until it was left."""

    def begin(self, **how):
        return begin(self, hosts=(A, B, 'c@l'), **how)

    def released(self):
        """A live move whose guest has left the source just now."""
        self.started()
        self.a.opened.clear()
        self.locked(self.a, source.begin_hydration, self.recorded())

    def begun_to_copy(self):
        self.b.reconciler.reconcile(self.volume.id)
        return self.b.node.clones.clone_status(self.recorded().move_id)

    def completed(self):
        """All of it is at B; what was read of its source since it began."""
        before = self.b.reads
        self.world.settle()
        self.check(self.world, self.volume, self.expected)
        return self.b.reads - before

    def test_only_what_was_written_is_copied(self):
        self.released()
        status = self.begun_to_copy()
        self.assertEqual((3, True), (status.hydrated, status.enabled))
        self.assertEqual(1, self.completed())
        self.assertEqual(3, self.b.lvs[self.volume.name].count(ZERO))

    def test_order(self):
        self.released()
        with self.does(a=['holes'], b=[
                'activate volume', 'activate metadata', 'attach',
                'ensure_clone', 'ensure_handle_on_clone',
                'note_holes_searched',
                'holes', 'leave_out', 'set_hydration']):
            self.b.reconciler.reconcile(self.volume.id)

    def test_nothing_is_left_out_before_the_source_was_left(self):
        self.started()
        self.assertEqual(0, self.begun_to_copy().hydrated)
        self.a.write(self.volume.id, 0, 'late')
        self.assertEqual('late', self.b.read(self.volume.id, 0))
        self.assertEqual(0, destination.written_regions(
            self.b.node, self.recorded()))
        self.a.opened.clear()
        self.locked(self.a, source.begin_hydration, self.recorded())
        self.assertEqual(2, self.begun_to_copy().hydrated)
        self.expected[0] = 'late'
        self.assertEqual(2, self.completed())

    def test_what_was_written_there_stays(self):
        """In what the source has as a hole, before and after the map."""
        self.released()
        self.b.write(self.volume.id, 0, 'before')
        self.first(self.b.node.clones._inner, 'leave_out',
                   lambda: self.b.write(self.volume.id, 2, 'after'))
        self.assertEqual(3, self.begun_to_copy().hydrated)
        self.expected[0], self.expected[2] = 'before', 'after'
        self.assertEqual(1, self.completed())

    def test_once(self):
        """What goes on to be copied is left alone."""
        self.released()
        self.begun_to_copy()
        self.b.node.clones._inner.set_hydration(
            self.recorded().move_id, False)
        with self.does(b=['activate volume', 'activate metadata', 'attach',
                          'ensure_clone', 'ensure_handle_on_clone',
                          'set_hydration']):
            self.b.reconciler.reconcile(self.volume.id)

    def test_not_of_a_move_of_which_it_was_done(self):
        self.a.move(self.volume, B)
        with self.does(b=['activate volume', 'activate metadata', 'attach',
                          'ensure_clone', 'ensure_handle_on_clone',
                          'set_hydration']):
            self.b.reconciler.reconcile(self.volume.id)

    @ddt.data('thick', 'not zeroing', 'source down', 'source too old',
              'odd pool', 'thin_dump missing')
    def test_all_is_copied(self, why):
        self.released()
        lvm = self.b.node.lvm._inner
        if why == 'thick':
            self.world.pool = None
        elif why == 'not zeroing':
            self.b.zeroes = False
        elif why == 'source down':
            self.a.node.services.alive_by_host()  # it is one of them
            self.b.node.services.alive_by_host = lambda: {B: True}
        elif why == 'source too old':
            self.b.node.peers.holes = self.fails(
                exceptions.OtherVersion(host=A))
        elif why == 'odd pool':
            self.a.odd_pool = True
        else:
            lvm.holes = self.fails(FileNotFoundError(2, 'no thin_dump'))
        status = self.begun_to_copy()
        self.assertEqual((0, True), (status.hydrated, status.enabled))
        self.assertEqual(4, self.completed())

    @staticmethod
    def fails(error):
        def call(*_all):
            raise error
        return call

    def test_nothing_is_copied_under_a_discard_that_hangs(self):
        self.released()
        self.b.node.clones._inner.leave_out = self.fails(
            exceptions.CommandTimeout(command='c', seconds=30))
        self.assertRaises(exceptions.CommandTimeout, self.begun_to_copy)
        move = self.recorded()
        self.assertFalse(
            self.b.node.clones.clone_status(move.move_id).enabled)

    @ddt.data('at the source', 'here', 'tag')
    def test_all_is_copied_if_it_takes_too_long(self, what):
        """Only a discard that hangs keeps a copy from its beginning."""
        late = self.fails(exceptions.CommandTimeout(command='c', seconds=9))
        if what == 'at the source':
            self.b.node.peers.holes = late
        else:
            name = 'holes' if what == 'here' else 'note_holes_searched'
            setattr(storage_parts.of(self.b.node, name)._inner, name, late)
        self.released()
        status = self.begun_to_copy()
        self.assertEqual((0, True), (status.hydrated, status.enabled))
        self.assertEqual(4, self.completed())

    def test_a_clone_that_has_failed_is_left_alone(self):
        """It is not loaded anew under a guest: see Clones.ensure_clone."""
        self.released()
        self.b.clones = 'ro'
        with self.does(b=['activate volume', 'activate metadata', 'attach',
                          'ensure_clone', 'ensure_handle_on_clone',
                          'set_hydration']):
            self.begun_to_copy()
        self.b.clones = 'rw'
        self.b.node.clones._inner.set_hydration(
            self.recorded().move_id, False)
        self.assertEqual(3, self.begun_to_copy().hydrated)
        self.assertEqual(1, self.completed())

    @ddt.data('nonce', 'uncommitted', 'starting', 'destination', 'gone')
    def test_asked_for_what_is_not_left(self, wrong):
        if wrong == 'uncommitted':
            self.begun()
        elif wrong == 'starting':
            self.started()
        else:
            self.released()
        move = self.recorded()
        there = self.b if wrong == 'destination' else self.a
        nonce = 'x' if wrong == 'nonce' else move.token.nonce
        record = 'x' if wrong == 'gone' else move.move_id
        self.assertRaises(exceptions.StaleMove, holes.source_holes, there.node,
                          record, nonce)
