# SPDX-License-Identifier: Apache-2.0
"""Moves that are over but for a clean-up pin nothing, whoever is gone."""

import contextlib
import dataclasses
from unittest import mock

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import cleanup
from cinder_localclone.volumes import operations
from tests.helpers import callers
from tests.helpers.ended_move_case import A
from tests.helpers.ended_move_case import B
from tests.helpers.ended_move_case import Base
from tests.helpers.ended_move_case import C
from tests.helpers import storage_parts
from tests import world as worlds
from tests.world import records
from tests.world import stack


class PendingCleanupsTest(Base):

    def test_what_they_are(self):
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        self.assertIsNone(self.move(world, volume))
        failed, = self.pending(world, volume)
        self.assertEqual((B, 'volume-' + failed.move_id), (
            failed.cleanup_node, failed.cleanup_lv))
        self.complete(world, volume, A, C)
        failed, drained = self.pending(world, volume)
        self.assertEqual((B, False), (
            failed.cleanup_node, failed.committed))
        self.assertEqual((A, True, 'volume-' + volume.id), (
            drained.cleanup_node, drained.committed, drained.cleanup_lv))
        self.assertEqual(C, failed.source)  # where the volume is by now

    def test_what_is_not_over_is_not_taken_down(self):
        world, volume, expected = self.begin()
        world.nodes[A].move(volume, B)
        self.assertRaises(
            exceptions.InvalidTransition, cleanup.take_down,
            world.nodes[A].node, self.move(world, volume))
        world.settle()
        self.check(world, volume, expected)

    def test_attach_while_the_first_destination_is_gone(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        self.attach(world, volume, C)
        self.write(world, volume, expected, 1, 'new')
        world.settle()
        self.verify(world, volume, expected)
        # All that is left waits for the node that is gone.
        left, = self.pending(world, volume)
        self.assertEqual(B, left.cleanup_node)
        self.assertEqual({}, world.nodes[A].lvs)
        self.bring_back(world)
        self.check(world, volume, expected)

    def test_live_while_the_first_destination_is_gone(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        handle = names.handle(volume.id)
        world.nodes[A].opened.add(handle)
        self.attach(world, volume, C, live=True)
        world.nodes[A].opened.discard(handle)
        self.write(world, volume, expected, 1, 'new')
        world.settle()
        self.assertIsNone(self.move(world, volume))
        self.bring_back(world)
        self.check(world, volume, expected)

    def test_live_onwards_while_the_source_is_gone(self):
        world, volume, expected = self.begin()
        self.complete(world, volume)
        self.assertIs(Phase.RELEASING, self.pending(world, volume)[0].phase)
        handle = names.handle(volume.id)
        world.nodes[B].opened.add(handle)
        self.attach(world, volume, C, live=True)
        world.nodes[B].opened.discard(handle)
        self.write(world, volume, expected, 1, 'new')
        world.settle()
        self.assertEqual(['volume-' + volume.id], list(world.nodes[A].lvs))
        self.assertEqual({}, world.nodes[B].lvs)
        self.verify(world, volume, expected)
        self.bring_back(world)
        self.check(world, volume, expected)

    def test_cold_onwards_while_the_source_is_gone(self):
        world, volume, expected = self.begin()
        self.complete(world, volume)
        self.attach(world, volume, C)
        self.write(world, volume, expected, 1, 'new')
        self.bring_back(world)
        self.check(world, volume, expected)

    def test_at_home_beside_leftovers(self):
        """The node comes back while its volume's clean-up waits for another.

        It must not wait for periodic checks of moves: the guest is first.
        """
        world, volume, expected = self.begin()
        self.complete(world, volume)
        home = world.nodes[B]
        home.stop(power=True)
        home.dead = False
        home.reconciler.reconcile_node(moves=False)
        self.verify(world, volume, expected)

    def test_back_to_the_node_whose_clean_up_is_due(self):
        world, volume, expected = self.begin()
        world.nodes[A].move(volume, B)
        world.nodes[B].reconciler.reconcile(volume.id)
        world.nodes[B].hydrate()
        world.nodes[B].reconciler.reconcile(volume.id)
        old = 'volume-' + volume.id
        self.assertIn(old, world.nodes[A].lvs)
        self.write(world, volume, expected, 1, 'new')
        world.nodes[B].move(volume, A)
        self.assertNotIn(old, world.nodes[A].lvs)
        self.verify(world, volume, expected)
        self.assertEqual([], self.pending(world, volume))
        world.settle()
        self.check(world, volume, expected)

    def test_again_to_the_node_whose_clean_up_is_due(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        world.nodes[B].gone = world.nodes[B].dead = False
        first, = self.pending(world, volume)
        world.nodes[A].move(volume, B)
        self.assertNotIn(first.destination_lv, world.nodes[B].lvs)
        self.assertEqual([], self.pending(world, volume))
        self.write(world, volume, expected, 1, 'new')
        world.settle()
        self.check(world, volume, expected)

    def test_prepare_fails_if_the_clean_up_does(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        b = world.nodes[B]
        b.gone = b.dead = False
        with self.failing(b, 'remove_lv'):
            self.assertRaises(exceptions.CommandFailed,
                              world.nodes[A].move, volume, B)
        self.assertEqual(A, world.home(volume).host)
        world.settle()
        self.check(world, volume, expected)

    @staticmethod
    @contextlib.contextmanager
    def failing(node, name):
        owner = storage_parts.of(node.node, name)._inner
        call = getattr(owner, name)

        def fails(*_args):
            raise exceptions.CommandFailed(command=name, code=5, stderr='')
        setattr(owner, name, fails)
        yield
        setattr(owner, name, call)

    def test_one_that_fails_does_not_stop_the_rest(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        b = world.nodes[B]
        b.gone = b.dead = False
        moves = world.nodes[A].node.moves
        moves.advance(moves.begin(
            volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i'), Event.FAILED)
        world.pool = 'pool'
        first, _second = self.pending(world, volume)
        remove_lv = b.node.lvm._inner.remove_lv

        def fails(name):
            if name == first.destination_lv:
                raise exceptions.CommandFailed(
                    command='lvremove', code=5, stderr='')
            return remove_lv(name)
        b.node.lvm._inner.remove_lv = fails
        self.assertRaises(exceptions.CommandFailed, b.reconciler.reconcile,
                          volume.id)
        self.assertEqual([first], self.pending(world, volume))
        b.node.lvm._inner.remove_lv = remove_lv
        world.settle()
        self.check(world, volume, expected)

    def test_a_handle_of_something_else_stays(self):
        """Not one that the survey shows to be this move's."""
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        b = world.nodes[B]
        b.gone = b.dead = False
        b.lvs['volume-other'] = ['other'] * 4
        world.pool = 'pool'
        failed, = self.pending(world, volume)
        with b.lock(volume.id):
            b.sim_handles.ensure_handle_on_lv(
                volume.id, 'volume-other', worlds.GIB)
            cleanup.take_down(b.node, failed)
        self.assertEqual({'below': 'volume-other'},
                         b.devices[names.handle(volume.id)])
        self.assertEqual(['volume-other'], list(b.lvs))

    def test_deleted_beside_leftovers(self):
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        self.complete(world, volume, A, C)
        volume.status = 'deleting'
        callers.delete(world.nodes[C].node, volume)
        del world.volumes[volume.id]
        self.assertEqual(2, len(world.move_records))
        self.bring_back(world)
        self.assert_nothing_left(world)

    def test_deleted_at_the_source_of_a_move_that_failed(self):
        """The export of the failed move has the handle open."""
        world, volume, _expected = self.begin()
        self.fail_to_prepare(world, volume)
        self.assertEqual(1, len(world.nodes[A].exports))
        volume.status = 'deleting'
        callers.delete(world.nodes[A].node, volume)
        del world.volumes[volume.id]
        self.bring_back(world)
        self.assert_nothing_left(world)

    def assert_nothing_left(self, world):
        self.assertEqual({}, world.move_records)
        for node in world.nodes.values():
            self.assertEqual([{}] * 4, [node.lvs, node.devices, node.exports,
                                        node.sessions])

    def test_what_is_being_deleted_is_not_restored(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        volume.status = 'deleting'
        callers.delete(world.nodes[B].node, volume)
        world.nodes[B].reconciler.reconcile(volume.id)
        self.assertEqual({}, world.nodes[B].devices)

    def test_operator_has_them_cleaned_up(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        world.nodes[B].gone = world.nodes[B].dead = False
        world.pool = 'pool'
        operations.abort(world.nodes[B].reconciler, volume.id)
        self.assertEqual({}, world.nodes[B].lvs)
        operations.abort(world.nodes[A].reconciler, volume.id) if (
            self.pending(world, volume)) else world.settle()
        self.check(world, volume, expected)


@ddt.ddt
class StopTest(Base):
    """A stop at each moment of the second move, beside remains."""

    def second(self, stops, faults, first, target, live, back_at_once):
        """The second move, and what the first left once its node is back.

        :param first: how the first move ends: 'failed' or 'complete'
        :param back_at_once: the node that was gone comes back first
        """
        world, volume, expected = self.begin(faults=faults)
        if first == 'failed':
            self.fail_to_prepare(world, volume)
        else:
            self.complete(world, volume)
        if back_at_once:
            for node in world.nodes.values():
                node.gone = node.dead = False
        world.moment, world.stop_at = 0, stops
        handle = names.handle(volume.id)
        source = world.home(volume)
        if live:
            source.opened.add(handle)
        self.attach(world, volume, target, live)
        source.opened.discard(handle)
        self.write(world, volume, expected, 2, 'new')
        world.settle()
        world.settle()
        self.verify(world, volume, expected)
        self.bring_back(world)
        self.check(world, volume, expected)
        return world

    ONWARDS = (
        ('failed', C, False, False), ('failed', C, True, False),
        ('complete', C, False, False), ('complete', C, True, False))
    #: To the node that comes back, with its clean-up still due.
    BACK = (
        ('failed', B, False, True), ('failed', B, True, True),
        ('complete', A, False, True), ('complete', A, True, True))
    #: It comes back while the second move goes elsewhere.
    BESIDE = (('failed', C, False, True), ('complete', C, False, True))

    @ddt.data(
        *((('cut',), *case) for case in (*ONWARDS, *BACK, *BESIDE)),
        *((('kill',), *case) for case in BACK),
        *((('cut both',), *case) for case in BESIDE))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, first, target, live, back):
        self.stop_everywhere(lambda stops: self.second(
            stops, faults, first, target, live, back))


class StrayMetadataTest(Base):
    """LVM created the metadata LV of a move late: that was given up."""

    SHADOW = '00000000-0000-4000-8000-000000000009'
    STRAY = names.metadata_lv(SHADOW)

    def setUp(self):
        super().setUp()
        self.world, self.volume, self.expected = self.begin()
        self.node = self.world.nodes[A]
        self.create(self.node)

    def create(self, node):
        node.disk.create(self.STRAY, self.volume.id, {'local': set()})

    def check(self, left, node=None):
        (node or self.node).reconciler.reconcile_node()
        self.assertEqual(left, self.STRAY in (node or self.node).lvs)

    def test_removed_at_home(self):
        self.check(False)
        self.verify(self.world, self.volume, self.expected)

    def test_removed_elsewhere(self):
        self.create(self.world.nodes[B])
        self.check(False, self.world.nodes[B])

    def test_left_beside_a_destination_lv(self):
        """Regions may be at a source: only the metadata LV knows which."""
        self.node.disk.create(
            'volume-' + self.SHADOW, self.volume.id, ['x'] * 4)
        self.check(True)

    def test_left_while_it_is_used(self):
        """By what an operator has built by hand, say."""
        found = self.node.sim_handles.survey()
        self.assertEqual([self.SHADOW], [*found.stray_metadata()])
        used = dataclasses.replace(found, lvs={
            name: dataclasses.replace(lv, opened=True)
            for name, lv in found.lvs.items()})
        self.assertEqual({}, used.stray_metadata())

    def test_left_while_its_volume_is_worked_on(self):
        with self.node.lock(self.volume.id):
            self.check(True)
        self.check(False)

    def test_left_without_a_volume_in_its_tags(self):
        self.node.disk.tags[self.STRAY] = frozenset()
        self.check(True)

    def test_left_of_a_move_that_began_meanwhile(self):
        """The look has read the moves before."""
        with mock.patch.object(records.SimMoves, 'is_move', autospec=True,
                               return_value=True):
            self.check(True)

    def test_one_that_fails_stops_nothing(self):
        with mock.patch.object(
                stack.SimLvm, 'remove_lv', autospec=True,
                side_effect=RuntimeError('no daemon')):
            self.check(True)
        self.check(False)


class RecordedTest(Base):
    """The simulated records are as the real ones."""

    def test_begin_beside_what_is_not_over(self):
        world, volume, _expected = self.begin()
        node = world.nodes[A].node

        def begin(host):
            return node.moves.begin(
                volume, host + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
                lambda record: record, 'CHAP u s', 'i')
        first = begin(B)
        self.assertRaises(exceptions.StaleMove, begin, C)
        node.moves.advance(first, Event.FAILED)
        second = begin(C)
        self.assertEqual(second, node.moves.move_of(volume.id))
        self.assertEqual([first.move_id], [
            each.move_id for each in node.moves.pending_cleanups(volume.id)])
