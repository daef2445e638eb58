# SPDX-License-Identifier: Apache-2.0
"""The move with a stop at every moment, on either node; then converge."""

import contextlib
import dataclasses
import itertools

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone.volumes import operations
from tests.helpers import callers
from tests.helpers.move_case import A
from tests.helpers.move_case import ALIKE
from tests.helpers.move_case import B
from tests.helpers.move_case import Base
from tests.helpers.move_case import ONE
from tests.helpers.move_case import TWO
from tests import world as worlds


@ddt.ddt
class MoveTest(Base):

    def scenario(self, stop_at, faults, back=False):
        """:param back: move a volume that has moved before back"""
        world, volume, expected = self.begin(faults=faults)
        if back:
            self.run_move(world, volume, expected)
        world.moment, world.stop_at = 0, stop_at
        self.run_move(world, volume, expected, A if back else B)
        self.check(world, volume, expected)
        self.assertEqual('success', volume.migration_status)
        return world

    def test_undisturbed(self):
        world = self.scenario((), ('cut',))
        self.assertGreater(world.moment, 30)

    @ddt.data(*itertools.product(ONE, (False, True)))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, back):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, back),
            engine=faults == ('cut',) and not back,
            turn=ONE.index(faults))

    @ddt.data(*itertools.product(TWO, (False,)),
              *itertools.product(ALIKE, (True,)))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, faults, back):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, back), 2)

    def deletion(self, stop_at, faults, sweeps):
        """Delete a volume that moves, until it is gone.

        :param looks: how far the move is
        """
        world = worlds.World(faults=faults)
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        for _look in range(sweeps):
            world.nodes[B].hydrate()
            world.nodes[B].reconciler.reconcile_node()
        world.moment, world.stop_at = 0, stop_at
        volume.status = 'deleting'
        for _attempt in range(3):
            try:
                callers.delete(world.home(volume).node, volume)
            except worlds.Stopped:
                world.recover()
            else:
                break
        del world.volumes[volume.id]
        world.settle()
        self.assertEqual({}, world.move_records)
        for node in world.nodes.values():
            self.assertEqual([{}] * 4, [node.lvs, node.devices, node.exports,
                                        node.sessions])
        return world

    @ddt.data(*itertools.product(ONE, (0, 1, 2)))
    @ddt.unpack
    def test_deleted_with_a_stop_at_every_moment(self, faults, sweeps):
        self.stop_everywhere(
            lambda stops: self.deletion(stops, faults, sweeps),
            turn=ONE.index(faults))

    @ddt.data(*itertools.product(TWO, (0, 1, 2)))
    @ddt.unpack
    def test_deleted_with_a_stop_at_every_two(self, faults, sweeps):
        self.stop_everywhere(
            lambda stops: self.deletion(stops, faults, sweeps), 2)

    def test_refused_without_free_space(self):
        world, volume, expected = self.begin()
        world.nodes[B].free = 1000
        self.assertRaises(
            exceptions.NoFreeSpace, world.nodes[A].move, volume, B)
        self.check(world, volume, expected)

    def test_refused_by_a_node_that_is_not_ready(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[B].problems = ['its kernel has no dm-clone']
        error = self.assertRaises(
            exceptions.NotReady, world.nodes[A].move, volume, B)
        self.assertIn('no dm-clone', str(error))
        self.assertEqual({}, world.move_records)

    def test_refused_while_the_source_is_open(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].opened.add(names.handle(volume.id))
        self.assertRaises(
            exceptions.SourceBusy, world.nodes[A].move, volume, B)
        self.assertEqual({}, world.move_records)

    def test_copy_that_fails_rests_and_goes_on(self):
        world, volume, expected = self.begin()
        now = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.moves.copying.timeutils.now',
            return_value=0)).mock
        world.nodes[A].move(volume, B)
        node = world.nodes[B]
        node.broken = True
        move_id, = world.move_records
        clone = node.devices[names.clone(move_id)]

        def sweep(seconds):
            now.return_value += seconds
            world.reconcile()
            seen = (clone['hydrating'], node.reconciler.copying.waker.wake(0),
                    node.reconciler.progress(move_id).pause)
            node.hydrate()
            return seen
        self.assertEqual([
            (True, True, 0), (True, True, 0), (False, False, 5),
            (True, True, 0), (False, False, 10)],
            [sweep(5) for _time in range(5)])
        node.broken = False
        self.assertEqual((False, False, 5), sweep(5))
        self.assertEqual((True, True, 0), sweep(5))
        world.settle()
        self.check(world, volume, expected)

    def test_failed_prepare_is_rolled_back(self):
        world, volume, expected = self.begin()
        world.pool = 'pool'
        world.nodes[B].node.sessions._inner.attach = self._wrong_source
        self.assertRaises(
            exceptions.WrongSource, world.nodes[A].move, volume, B)
        self.check(world, volume, expected)

    def test_why_is_told_though_rolling_back_fails(self):
        world, volume, expected = self.begin()
        world.nodes[B].node.sessions._inner.attach = self._wrong_source
        with self.failing_once(world.nodes[A].node.exports._inner,
                               'withdraw_source'):
            self.assertRaises(
                exceptions.WrongSource, world.nodes[A].move, volume, B)
        world.settle()
        self.check(world, volume, expected)

    @staticmethod
    @contextlib.contextmanager
    def failing_once(room, name, done=False):
        """A method fails once, before it has done its work or after."""
        call = getattr(room, name)

        def failing(*args):
            setattr(room, name, call)
            if done:
                call(*args)
            raise IOError('no answer')
        setattr(room, name, failing)
        yield
        assert getattr(room, name) == call

    @contextlib.contextmanager
    def lose_the_answer(self, *others):
        """The database commits the swap, but its answer does not arrive."""
        world, volume, expected = self.begin()
        rows = world.nodes[A].node.moves._inner
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.failing_once(rows, 'commit', done=True))
            for name in others:
                stack.enter_context(self.failing_once(rows, name))
            yield world, volume
        self.assertEqual(B, world.home(volume).host)
        world.settle()
        self.check(world, volume, expected)

    def test_a_lost_answer_to_the_commit_is_asked_for_again(self):
        with self.lose_the_answer() as (world, volume):
            world.nodes[A].move(volume, B)

    def test_a_commit_is_never_rolled_back(self):
        with self.lose_the_answer('get_move') as (world, volume):
            self.assertRaises(IOError, world.nodes[A].move, volume, B)

    def test_the_home_is_never_taken_down(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        moving = next(iter(world.move_records.values()))
        wrong = dataclasses.replace(moving, token=dataclasses.replace(
            moving.token, phase=Phase.ROLLING_BACK))
        self.assertRaises(exceptions.InvalidTransition,
                          cleanup.take_down,
                          world.nodes[B].node, wrong)
        self.assertIn(volume.name, world.nodes[B].lvs)

    def test_what_was_written_before_outlives_the_source(self):
        world, volume, expected = self.begin()
        world.nodes[A].write(volume.id, 1, 'cached', flushed=False)
        expected[1] = 'cached'
        world.nodes[A].move(volume, B)
        world.nodes[A].stop(power=True)
        world.settle()
        self.check(world, volume, expected)

    def test_opened_while_the_peer_prepares(self):
        world, volume, expected = self.begin()
        sessions = world.nodes[B].node.sessions._inner
        attach = sessions.attach

        def opens(moving):
            world.nodes[A].opened.add(names.handle(volume.id))
            return attach(moving)
        sessions.attach = opens
        self.assertRaises(exceptions.SourceBusy, world.nodes[A].move,
                          volume, B)
        world.nodes[A].opened.clear()
        world.settle()
        self.check(world, volume, expected)

    @staticmethod
    def _wrong_source(moving):
        raise exceptions.WrongSource(iqn='i', device='d', reason='serial')

    def test_late_prepare_builds_nothing(self):
        world = worlds.World()
        volume = world.create_volume(A)
        node = world.nodes[A].node
        moving = node.moves.begin(
            volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.assertRaises(
            exceptions.StaleMove, destination.prepare,
            world.nodes[B].node, moving.move_id, 'another nonce')
        with node.lock(volume.id):
            source.abandon(node, moving)
        self.assertRaises(
            exceptions.StaleMove, destination.prepare,
            world.nodes[B].node, moving.move_id, moving.token.nonce)
        self.assertEqual({}, world.nodes[B].lvs)

    def test_second_move_has_one_winner(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        moving = next(iter(world.move_records.values()))
        self.assertRaises(
            exceptions.StaleMove, world.nodes[B].node.moves.begin,
            volume, A + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.assertIs(Phase.MIGRATING, moving.phase)

    def test_lost_metadata_is_never_made_anew(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        moving = next(iter(world.move_records.values()))
        node = world.nodes[B]
        node.write(volume.id, 1, 'new')
        node.stop(power=True)
        node.dead = False
        del node.lvs[names.metadata_lv(moving.move_id)]
        self.assertRaises(exceptions.MissingData, node.reconciler.reconcile,
                          volume.id)
        self.assertEqual('new', node.lvs[volume.name][1])
        self.assertIn(moving.source_lv, world.nodes[A].lvs)

    def rebooted(self, hydrated):
        """The new home is up again, its source is not."""
        world, volume, expected = self.begin()
        world.nodes[A].move(volume, B)
        node = world.nodes[B]
        node.reconciler.reconcile(volume.id)
        node.write(volume.id, 1, 'new')
        expected[1] = 'new'
        if hydrated:
            node.hydrate(flushed=True)
        world.nodes[A].gone = True
        for each in (world.nodes[A], node):
            each.stop(power=True)
        world.reconcile()
        return world, volume, expected, node

    def test_a_copy_that_is_whole_completes_without_its_source(self):
        world, volume, expected, node = self.rebooted(True)
        for region, value in enumerate(expected):
            self.assertEqual(value, node.read(volume.id, region))
        self.assertEqual(Phase.RELEASING,
                         next(iter(world.move_records.values())).phase)
        self.assertEqual([volume.name], list(node.lvs))
        world.nodes[A].gone = False
        world.settle()
        self.check(world, volume, expected)

    def test_a_copy_that_is_not_whole_waits_for_its_source(self):
        world, volume, expected, node = self.rebooted(False)
        self.assertNotIn(names.handle(volume.id), node.devices)
        self.assertRaises(exceptions.SourceUnreachable,
                          node.reconciler.reconcile, volume.id)
        self.assertEqual(Phase.MIGRATING,
                         next(iter(world.move_records.values())).phase)
        world.nodes[A].gone = False
        world.settle()
        self.check(world, volume, expected)

    def test_what_is_local_of_a_copy_whose_source_is_lost(self):
        world, volume, expected, node = self.rebooted(False)
        operations.open_without_source(node.reconciler, volume.id)
        self.assertEqual('new', node.read(volume.id, 1))
        self.assertRaises(IOError, node.read, volume.id, 0)
        node.write(volume.id, 2, 'more')
        expected[2] = 'more'
        world.reconcile()  # it stays as it is
        self.assertEqual('more', node.read(volume.id, 2))
        self.assertFalse(node.devices[names.clone(
            next(iter(world.move_records)))]['hydrating'])
        world.nodes[A].gone = False
        world.settle()
        self.check(world, volume, expected)

    def test_what_needs_no_such_opening(self):
        world, volume, _expected = self.begin()

        def refused(words, host=B):
            error = self.assertRaises(
                exceptions.NotPossible, operations.open_without_source,
                world.nodes[host].reconciler, volume.id)
            self.assertIn(words, str(error))
        refused('no move')
        world.nodes[A].move(volume, B)
        refused('on b@l', A)
        refused('can be reached')
        world.nodes[B].hydrate()
        moving = next(iter(world.move_records.values()))
        world.nodes[B].node.moves.advance(moving, Event.HYDRATED)
        refused('not being copied')

    def test_a_whole_live_move_is_not_completed_before_its_detach(self):
        world, volume, _expected = self.begin()
        world.nodes[A].opened.add(names.handle(volume.id))
        world.nodes[A].move(volume, B, live=True)
        node = world.nodes[B]
        for region in range(worlds.REGIONS):
            node.write(volume.id, region, 'new')
        world.nodes[A].gone = True
        for each in (world.nodes[A], node):
            each.stop(power=True)
        world.reconcile()
        self.assertEqual(Phase.STARTING,
                         next(iter(world.move_records.values())).phase)
        self.assertNotIn(names.handle(volume.id), node.devices)

    def test_lost_record_never_cuts_over(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        world.move_records.clear()
        world.nodes[B].stop(power=True)
        world.nodes[B].dead = False
        self.assertRaises(
            exceptions.MissingData, world.nodes[B].reconciler.reconcile,
            volume.id)
        self.assertNotIn(names.handle(volume.id), world.nodes[B].devices)
