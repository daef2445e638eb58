# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten is copied again before the source goes."""

import contextlib
import dataclasses
import io
import logging
import os
import pathlib
import struct
import sys
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.dm import clone_metadata
from cinder_localclone import exceptions
from cinder_localclone import handles
from cinder_localclone.moves import refilling
from cinder_localclone import names
from cinder_localclone import peer
from cinder_localclone.privileged import block
from cinder_localclone.privileged import devicemapper
from cinder_localclone.privileged import process
from cinder_localclone.privileged import refill
from cinder_localclone.privileged import sysfs
from cinder_localclone.privileged import thin_pool
from cinder_localclone.privileged import while_suspended
from cinder_localclone import sparse_errors
from cinder_localclone import stack as stacks
from cinder_localclone.state import Phase
from cinder_localclone import thin_map
from tests.unit import commands
from tests.unit import test_clone_metadata
from tests.unit import test_move
from tests.unit import test_move_steps
from tests.unit import test_sparse
from tests.unit import test_stack
from tests.unit import world as worlds
from tests.unit.world import disks

A, B = test_move.A, test_move.B
#: A hole at the source, as well.
HOLE = 3


class Begun(test_move_steps.Base):
    """A volume is being copied to B."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.world, self.volume, self.expected = test_sparse.begin(
            self, (HOLE,))
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.a.move(self.volume, B)
        self.b.reconciler.converge(self.volume.id)

    def lose(self, *regions):
        """The pool has forgotten them, and the clone does not know."""
        for region in regions:
            self.b.lvs[self.volume.name][region] = disks.EMPTY

    def phase(self):
        return next((move.phase for move in self.world.shadows.values()),
                    None)

    def converge(self):
        self.b.reconciler.converge(self.volume.id)

    def settled(self):
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def failing(self, room, name, error):
        return mock.patch.object(getattr(self.b.node, room), name,
                                 side_effect=error)


@ddt.ddt
class RefillingTest(Begun):
    """All of it was copied; the move has not ended."""

    def setUp(self):
        super().setUp()
        self.b.hydrate(flushed=True)

    def test_nothing_lost(self):
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=()) as again:
            self.converge()
        again.assert_not_called()
        self.settled()
        self.assertEqual('', self.log.output)

    @ddt.data([0], [0, 1, 2])
    def test_lost(self, regions):
        self.lose(*regions)
        self.assertNotEqual(self.expected, [
            self.b.read(self.volume.id, region)
            for region in range(worlds.REGIONS)])
        self.converge()
        self.settled()
        self.assertIn('[localclone-205]', self.log.output)
        self.assertIn('lost %d KiB' % (64 * len(regions)), self.log.output)
        self.assertIn('. %d KiB were copied' % (64 * len(regions)),
                      self.log.output)

    def test_what_is_cut_short_is_told(self):
        """A guest has read zeros, whatever comes then."""
        self.lose(0, 1)
        inner = worlds.SimStack.refill

        def late(stack, move, disk, missing, factor):
            yield from inner(stack, move, disk, [[0, 1]], factor)
            raise exceptions.CommandTimeout(command='dd', seconds=30)
        with mock.patch.object(worlds.SimStack, 'refill', late):
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        self.assertIn('lost 128 KiB', self.log.output)
        self.assertIn('. 64 KiB were copied', self.log.output)
        self.converge()
        self.settled()

    def test_outlives_a_power_cut(self):
        """What is copied again is stable before the source may go."""
        self.lose(1)
        self.converge()
        self.b.stop(power=True)
        self.settled()

    def test_what_was_written_since_stays(self):
        self.lose(0, 1)
        unmapped = worlds.SimStack.unmapped

        def after(stack, *args):
            found = unmapped(stack, *args)
            if self.b.lvs[self.volume.name][1] == disks.EMPTY:
                self.b.write(self.volume.id, 1, 'newer')
            return found
        with mock.patch.object(worlds.SimStack, 'unmapped', after):
            self.converge()
        self.expected[1] = 'newer'
        self.settled()
        self.assertIn('lost 128 KiB', self.log.output)
        self.assertIn('. 64 KiB were copied', self.log.output)

    @ddt.data(('stack', 'refill', exceptions.CommandTimeout(
        command='dd', seconds=30)),
        ('sessions', 'attach', exceptions.SourceUnreachable(
            portal='p', reason='r')))
    @ddt.unpack
    def test_source_stays_until_it_is_copied(self, room, name, error):
        self.lose(2)
        with self.failing(room, name, error):
            self.assertRaises(type(error), self.converge)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(self.volume.name.replace(
            self.volume.name_id, self.volume.id), self.a.lvs)
        self.converge()
        self.settled()

    def test_what_may_be_there_in_part(self):
        """The map does not tell any more: the source stays."""
        self.lose(1)
        with mock.patch.object(
                worlds.SimStack, 'refill', side_effect=sparse_errors.InPart(
                    device='d', reason='r')):
            self.assertRaises(sparse_errors.InPart, self.converge)
        self.b.lvs[self.volume.name][1] = 'a part'
        self.assertRaises(sparse_errors.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    @ddt.data((), [[[1, 1]]])
    def test_lost_again(self, written):
        """The pool is broken still: nobody goes round in circles."""
        self.lose(1)
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=written) as again:
            self.assertRaises(sparse_errors.NotAllCopied, self.converge)
        again.assert_called_once()
        self.assertIs(Phase.MIGRATING, self.phase())

    NOT_SEEN = (
        ('stack', exceptions.CommandFailed(
            command='thin_dump', code=1, stderr='')),
        ('stack', FileNotFoundError('thin_dump')),
        ('stack', thin_map.OddMap('odd')),
        ('peers', exceptions.PeerUnreachable(
            host=A, method='holes', seconds=30, reason='')),
        ('peers', peer.PeerTooOld('holes')))

    def not_seen(self, room, error):
        return self.failing(
            room, 'holes' if room == 'peers' else 'unmapped', error)

    def test_source_whose_service_is_down(self):
        """It is not even asked: that would take too long each time."""
        self.lose(1)
        self.waiting().return_value = 5
        with mock.patch.object(type(self.b.node.records._inner), 'services',
                               return_value={A: False, B: True}), \
                mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.converge()
        asked.assert_not_called()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_source_whose_node_was_forgotten(self):
        """Nobody waits for that one; but it is told."""
        self.lose(1)
        self.waiting().return_value = 5
        with mock.patch.object(type(self.b.node.records._inner), 'services',
                               return_value={B: True}), \
                mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.converge()
        asked.assert_not_called()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-207]', self.log.output)
        self.assertIn('was forgotten', self.log.output)
        self.assertNotIn('[localclone-206]', self.log.output)

    def waiting(self):
        """Clock of a comparison that waits for a minute."""
        self.comparison = self.b.reconciler._comparison
        self.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=60)
        return self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic')).mock

    @ddt.data(*NOT_SEEN)
    @ddt.unpack
    def test_what_cannot_be_seen_now(self, room, error):
        """Nothing is given up for that; nor does it block other copies."""
        self.lose(1)
        clock = self.waiting()
        with self.not_seen(room, error), mock.patch.object(
                self.b.reconciler.copying, 'hindered') as hindered:
            for clock.return_value in (5, 64):
                self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertEqual(2, hindered.call_count)
        self.assertEqual(1, self.log.output.count('[localclone-206]'))
        self.converge()
        self.settled()
        self.assertEqual({}, self.comparison._unseen)

    @ddt.data(*NOT_SEEN)
    @ddt.unpack
    def test_what_cannot_be_seen_for_too_long(self, room, error):
        """The source may be lost; what is here can be used as it is."""
        clock = self.waiting()
        with self.not_seen(room, error):
            for clock.return_value in (5, 65):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual({}, self.comparison._unseen)
        self.assertIn('[localclone-207]', self.log.output)

    def test_pool_that_fails_still(self):
        """Then the very thing has happened: the source stays."""
        clock = self.waiting()
        self.b.pool_fails = True
        for clock.return_value in (5, 65, 1e6):
            self.assertRaises(sparse_errors.PoolFails, self.converge)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.b.pool_fails = False
        self.lose(0)
        self.converge()
        self.settled()

    def test_pool_that_fails_ends_another_wait(self):
        clock = self.waiting()
        with self.not_seen('peers', self.NOT_SEEN[-1][1]):
            clock.return_value = 5
            self.converge()
            self.b.pool_fails = True
            self.assertRaises(sparse_errors.PoolFails, self.converge)
            self.b.pool_fails = False
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_is_a_mistake_in_the_driver(self):
        """It says nothing of the source."""
        clock = self.waiting()
        with self.not_seen('peers', KeyError()):
            for clock.return_value in (5, 65):
                self.assertRaises(KeyError, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_wait_that_is_longer_than_an_hour(self):
        clock = self.waiting()
        self.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=7200)
        with self.not_seen('peers', self.NOT_SEEN[-1][1]):
            for clock.return_value in (5, 1805, 3605, 5405, 7204):
                self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 7205
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_pool_of_the_source_that_fails(self):
        """It may never be repaired."""
        clock = self.waiting()
        with self.not_seen('peers', sparse_errors.PoolFails(
                pool='p', host=A, mode='ro')):
            for clock.return_value in (5, 65):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    @ddt.data('deleting', 'error_deleting')
    def test_volume_that_is_being_deleted(self, status):
        """Nothing is compared, or ended, of what goes."""
        self.volume.status = status
        with mock.patch.object(self.b.reconciler._comparison,
                               'is_whole') as compared, mock.patch.object(
                self.b.reconciler.copying, 'hindered') as hindered:
            self.converge()
        compared.assert_not_called()
        hindered.assert_called_once()  # others need not wait for it
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_could_not_be_seen_long_ago(self):
        """That it was so then is no reason to give up now."""
        clock = self.waiting()
        error = self.NOT_SEEN[-1][1]
        with self.not_seen('peers', error):
            for clock.return_value in (5, 5000, 5050):
                self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 5060
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_nobody_is_asked_if_all_is_there(self):
        self.b.lvs[self.volume.name][HOLE] = 'written'
        with mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.converge()
        asked.assert_not_called()

    def test_a_move_that_was_recorded_as_complete(self):
        """Then it was compared: the source may be gone by now."""
        with mock.patch.object(
                self.b.reconciler._comparison, 'is_whole') as compared, \
                self.failing('stack', 'flush_lv', exceptions.CommandFailed(
                    command='c', code=1, stderr='')):
            self.assertRaises(exceptions.CommandFailed, self.converge)
            self.assertIs(Phase.COMPLETING, self.phase())
            self.assertRaises(exceptions.CommandFailed, self.converge)
        compared.assert_called_once_with(mock.ANY)


@ddt.ddt
class ResumedTest(Begun):
    """The copy goes on, in a service that was started just now."""

    def setUp(self):
        super().setUp()
        # All but one region.
        self.a.unreadable = True
        self.b.hydrate()
        body, shadow = self.b.lvs[self.volume.name], self.phase_of()
        for region in (0, 1):
            body[region] = self.expected[region]
            self.b.disk.make_local(names.metadata_lv(shadow), region)
        self.b.disk.flush(self.volume.name, names.metadata_lv(shadow))
        self.a.unreadable = False
        self.b.devices[names.clone(shadow)]['hydrating'] = False  # as at boot
        self.lose(1)
        self.restart()

    def phase_of(self):
        shadow_id, = self.world.shadows
        return shadow_id

    def restart(self):
        self.b.stop(power=False)
        self.b.dead = False
        self.b.reconciler.converge_node(moves=False)

    def read(self):
        return [self.b.read(self.volume.id, region)
                for region in range(worlds.REGIONS)]

    def look(self):
        self.b.reconciler.converge_moves()

    def test_at_the_first_look(self):
        """Not when it starts: its peer may start as well."""
        self.assertNotEqual(self.expected, self.read())
        self.look()
        self.assertEqual(self.expected, self.read())
        self.assertIn('lost 64 KiB', self.log.output)
        self.assertEqual({0, 1, HOLE}, self.b.lvs[names.metadata_lv(
            self.phase_of())]['local'])

    def test_once(self):
        self.look()
        with mock.patch.object(worlds.SimStack, 'unmapped') as looked:
            self.look()
        looked.assert_not_called()

    def test_not_of_copies_that_this_service_has_begun(self):
        self.b.reconciler._comparison._interrupted = set()
        with mock.patch.object(worlds.SimStack, 'recorded_as_local') as asked:
            self.look()
        asked.assert_not_called()

    def test_not_of_copies_that_begin_later(self):
        self.look()
        self.lose(0)
        self.b.reconciler.converge_node()
        self.assertNotEqual(self.expected, self.read())

    def test_source_that_starts_as_well(self):
        """What is copied beside it would hide what was lost."""
        comparison = self.b.reconciler._comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))), \
                mock.patch.object(self.b.reconciler.copying,
                                  'hindered') as hindered:
            self.look()
            hindered.assert_called_once()  # others need not wait for it
            self.assertNotEqual(self.expected, self.read())
            self.assertFalse(self.b.devices[names.clone(
                self.phase_of())]['hydrating'])
        self.look()
        self.assertEqual(self.expected, self.read())
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])

    def test_source_that_does_not_start(self):
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))):
            self.look()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])

    @ddt.data(clone_metadata.OddMetadata('odd'),
              exceptions.CommandTimeout(command='dd', seconds=30),
              FileNotFoundError('thin_dump'),
              exceptions.Busy(what='the pool', host=B, seconds=30))
    def test_what_it_does_not_understand(self, error):
        """It waits as well; then it is looked for at the end."""
        comparison = self.b.reconciler._comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        clock = self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic')).mock
        self.b.devices[names.clone(self.phase_of())]['hydrating'] = True
        with mock.patch.object(worlds.SimStack, 'recorded_as_local',
                               side_effect=error):
            for clock.return_value, goes_on in ((5, False), (65, True)):
                self.look()
                self.assertEqual(goes_on, self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.assertNotEqual(self.expected, self.read())
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def not_refilled(self):
        return mock.patch.object(
            worlds.SimStack, 'refill', side_effect=sparse_errors.NotRefilled(
                volume='v', host=B, source=A, reason='bad sector'))

    def test_what_cannot_be_copied_now(self):
        comparison = self.b.reconciler._comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with self.not_refilled():
            for _look in range(3):
                self.look()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.look()
        self.assertEqual(self.expected, self.read())
        self.assertNotIn(names.LACKING, self.b.disk.tags.get(
            self.volume.name, ()))

    def test_what_can_be_copied_later(self):
        """A guest that writes all the time holds up no copy."""
        comparison = self.b.reconciler._comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(
                worlds.SimStack, 'refill',
                side_effect=sparse_errors.RefilledLater(
                    volume='v', host=B, source=A, reason='r')):
            self.look()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        self.assertNotIn('[localclone-206]', self.log.output)
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_what_cannot_be_copied_for_too_long(self):
        """All the rest is; and then the source stays."""
        with self.not_refilled():
            self.look()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        for _look in range(2):
            error = self.assertRaises(
                sparse_errors.Lacking, self.b.reconciler.converge,
                self.volume.id)
        self.assertIn('lvchange --deltag localclone.lacking', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())
        # Its operator accepts it.
        self.b.disk.tags[self.volume.name] -= {names.LACKING}
        self.b.reconciler.converge(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_wait_that_is_over(self):
        """The next one has its own time."""
        comparison = self.b.reconciler._comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))):
            self.look()
        self.assertEqual([self.phase_of()], list(comparison._unseen))
        self.look()
        self.assertEqual({}, comparison._unseen)


class BlocksTest(test_move_steps.Base):
    """Regions that are larger than what the pool maps."""

    def test_part_of_a_region(self):
        move = mock.Mock(**{'geometry.region_sectors': 512})
        node = mock.Mock()
        node.stack.unmapped.side_effect = (
            [[1, 2], [9, 3]], [[1, 2], [9, 3]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.stack.refill.return_value = iter([[[1, 2]]])
        node.stack.recorded_as_local.return_value = [[0, 1], [2, 1]]
        comparison = refilling.Comparison(node, 'context')
        comparison.expect([move])
        self.assertTrue(comparison.resume(move))
        node.stack.recorded_as_local.assert_called_once_with(
            move, [[0, 1], [2, 1]])
        # Regions 2 and 3 are holes of the source.
        node.stack.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 2]], 4)
        node.stack.unmapped.assert_called_with(move, 4)
        node.stack.set_hydration.assert_called_once_with(
            move.shadow_id, False)
        # What it maps meanwhile would hide what was lost.
        done = [call[0] for call in node.stack.mock_calls]
        self.assertLess(done.index('set_hydration'), done.index('refill'))
        self.assertEqual(3, done.count('unmapped'))

    def test_regions_that_are_smaller(self):
        move = mock.Mock(**{'geometry.region_sectors': 8})
        node = mock.Mock()
        node.stack.lvs.return_value = {}
        node.stack.unmapped.side_effect = ([[1, 2]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.stack.refill.return_value = iter([])
        self.assertTrue(
            refilling.Comparison(node, 'context').is_whole(move))
        node.stack.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 1]], 1)


@ddt.ddt
class StopTest(test_move.Base):
    """With a stop at every moment; then converge."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimNode, 'COMPARE_WAIT', 3600))

    def scenario(self, stop_at, faults):
        world, volume, expected = test_sparse.begin(
            self, (HOLE,), faults=faults)
        world.nodes[A].move(volume, B)
        b = world.nodes[B]
        b.reconciler.converge(volume.id)
        b.hydrate(flushed=True)
        b.lvs[volume.name][0] = b.lvs[volume.name][2] = disks.EMPTY
        world.moment, world.stop_at = 0, stop_at
        world.settle()
        self.check(world, volume, expected)
        return world

    @ddt.data(*test_move.ONE)
    def test_stop_at_every_moment(self, faults):
        self.stop_everywhere(lambda stops: self.scenario(stops, faults))


class HandlesTest(testtools.TestCase):

    #: It was extended since: the clone is as long as before.
    MOVE = dataclasses.replace(test_stack.MOVE, volume_gib=2)

    def setUp(self):
        super().setUp()
        self.stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        self.block = self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'block', return_value=1 << 17)).mock
        self.called = self.useFixture(fixtures.MockPatchObject(
            refill, 'refill')).mock
        self.written = []

    def refill(self, missing):
        """Blocks of half a region, of which the pool maps four at once."""
        for part in self.stack.refill(
                self.MOVE, '/dev/sda', missing, 2):
            self.written.extend(part)

    def asked(self):
        what = (names.handle(self.MOVE.volume_id), 'g',
                self.MOVE.destination_lv, '/dev/sda',
                self.MOVE.size_bytes, 1 << 17)
        return [call.args[6:8] for call in self.called.mock_calls
                if call == mock.call(*what, *call.args[6:8], 30)]

    def test_piece_by_piece(self):
        """What the pool maps at once is copied as a whole."""
        self.called.side_effect = (
            (1, [[0, 1]]), (0, []), (1, [[1, 1]]), (1, []), (1, [[9, 1]]))
        self.refill([[3, 6], [37, 1]])
        self.assertEqual([(0, 3), (1, 2), (1, 2), (2, 1), (9, 1)],
                         self.asked())
        # Of which these were missing.
        self.assertEqual([[3, 1], [4, 4], [37, 1]], self.written)
        self.block.assert_called_once_with(
            'g', self.MOVE.destination_lv, 30)

    def test_guest_that_writes_all_the_time(self):
        self.called.return_value = 0, []
        error = self.assertRaises(sparse_errors.NotRefilled, self.refill,
                                  [[3, 6]])
        self.assertIn('the guest writes', str(error))
        # What is copied beside it would hide it.
        self.assertNotIsInstance(error, sparse_errors.RefilledLater)
        self.block.return_value = 1 << 16
        self.called.reset_mock()
        self.assertRaises(sparse_errors.RefilledLater, self.refill, [[3, 6]])
        self.assertEqual(handles.TRIES, self.called.call_count)

    def test_many_pieces(self):
        """A guest that writes now and then holds up nothing."""
        many = 3 * handles.TRIES
        self.called.side_effect = [
            each for number in range(many)
            for each in ((0, []), (1, [[number, 1]]))]
        self.refill([[0, 4 * many]])
        self.assertEqual(many, len(self.written))

    def test_slow_disk(self):
        """It is not the guest, if something is written each time."""
        many = 2 * handles.TRIES
        self.called.side_effect = [
            *((0, [[number, 1]]) for number in range(many)), (many, [])]
        self.refill([[0, 4 * many]])
        self.assertEqual(many, len(self.written))

    def test_what_takes_too_long(self):
        """The guest may have the volume, and it goes on at the next look."""
        self.called.return_value = 1, [[0, 1]]
        with mock.patch.object(handles.time, 'monotonic',
                               side_effect=(0, 1, 30, 31)):
            error = self.assertRaises(sparse_errors.NotRefilled, self.refill,
                                      [[0, 20]])
        self.assertIn('longer than 30 s', str(error))
        self.assertEqual(2, self.called.call_count)

    def test_what_cannot_be_read(self):
        """All the rest is copied before that is said."""
        bad = sparse_errors.SourceUnread(disk='d', first=0, reason='sector')
        self.called.side_effect = (
            bad, (1, [[0, 1]]), bad, (1, [[2, 1]]), (1, [[9, 1]]))
        error = self.assertRaises(sparse_errors.NotRefilled, self.refill,
                                  [[0, 12], [36, 1]])
        self.assertIn('sector', str(error))
        self.assertEqual([(0, 3), (0, 1), (1, 1), (2, 1), (9, 1)],
                         self.asked())
        self.assertEqual([[0, 4], [8, 4], [36, 1]], self.written)

    def test_what_is_not_mapped(self):
        move = self.MOVE
        with mock.patch.object(thin_pool, 'unmapped') as called:
            self.assertIs(called.return_value, self.stack.unmapped(move, 4))
        called.assert_called_once_with(
            'g', move.destination_lv, move.size_bytes, 1 << 14, 30)

    def test_what_is_on_record(self):
        metadata = test_clone_metadata.Writer(256, {1, 2, 5}).metadata()

        def stream(take, *argv, timeout):
            self.assertEqual('if=' + names.lv_path(
                'fast', names.metadata_lv(self.MOVE.shadow_id)),
                argv[1])
            self.assertIn('iflag=direct', argv)
            for at in range(0, len(metadata), 5000):
                take(metadata[at:at + 5000])
        self.useFixture(commands.Commands())
        with mock.patch.object(process, 'stream', stream):
            self.assertEqual([[2, 1], [5, 1]], self.stack.recorded_as_local(
                self.MOVE, [[2, 10]]))


SCRIPT = '%s -I -S %s' % (sys.executable, while_suspended.__file__)
REGION = 1 << 16
HANDLE = names.handle('00000001-0000-4000-8000-000000000000')
FORGET = 'blockdev --flushbufs /dev/mapper/' + HANDLE


@ddt.ddt
class RefillTest(commands.Case):
    """On files instead of disks."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.disk, self.lv = self.root / 'sda', self.root / 'lv'
        self.disk.write_bytes(b''.join(
            bytes([number]) * REGION for number in range(1, 9)))
        self.lv.write_bytes(bytes(8 * REGION))
        self.useFixture(fixtures.MockPatchObject(
            names, 'lv_path', return_value=str(self.lv)))
        self.mapped = self.useFixture(fixtures.MockPatchObject(
            sysfs, 'mapped_name', return_value=names.mapped('g', 'v'))).mock
        self.look = self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'look', side_effect=self.map)).mock
        self.here = [[0, 8]]
        self.useFixture(fixtures.MockPatchObject(
            process, 'stream', self.stream))
        self.useFixture(fixtures.MockPatchObject(
            block, 'size', lambda path: self.lv.stat().st_size
            if path == str(self.lv) else None))
        self.answer(8)

    def answer(self, most):
        """How many blocks of those that are given are written."""
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, '%d\n' % most)
        run = self.commands._run

        def counted(*argv, stdin=None, **kwargs):
            out = run(*argv, stdin=stdin, **kwargs)
            count = len(stdin.partition(b'\n')[0].split()) // 2 if stdin else 0
            return '%d\n' % min(count, most) if stdin else out
        process.run = counted

    def map(self, *args):
        self.commands.ran.append('map')
        return 128, self.here

    def stream(self, take, *argv, timeout):
        self.assertEqual(30, timeout)
        words = dict(word.split('=') for word in argv[1:])
        self.assertEqual('direct,fullblock,skip_bytes,count_bytes',
                         words['iflag'])
        self.commands.ran.append('read')
        first = int(words['skip'])
        take(pathlib.Path(words['if']).read_bytes()[
            first:first + int(words['count'])])

    def refill(self, start, count, size=8 * REGION):
        return refill.refill(HANDLE, 'g', 'v', str(self.disk), size, REGION,
                             start, count, 30)

    def written(self):
        """What was to be written: by region, with its first byte."""
        data, = [each for each in self.commands.inputs if each]
        line, _newline, rest = data.partition(b'\n')
        numbers = [int(word) for word in line.split()]
        found = {}
        for first, length in zip(numbers[::2], numbers[1::2]):
            part, rest = rest[:length], rest[length:]
            for at in range(0, length, REGION):
                found[(first + at) // REGION] = part[at]
        self.assertEqual(b'', rest)
        return found

    RAN = 'refill %s %s' % (HANDLE, names.mapped('g', 'v'))

    def test_what_is_missing(self):
        """Read, and seen to be missing, before the guest waits."""
        self.assertEqual((2, [[3, 1], [4, 1]]), self.refill(3, 2))
        self.assertEqual(['read', 'map'], self.commands.ran[:2])
        self.assertTrue(self.commands.ran[2].endswith(
            '%s %s 128' % (self.RAN, self.lv)), self.commands.ran)
        self.assertEqual(10, self.commands.limits[0])  # the guest waits
        # Not for what comes late.
        self.assertEqual(30, self.commands.dying[0])
        self.assertEqual([FORGET], self.commands.ran[3:])
        self.assertEqual({3: 4, 4: 5}, self.written())
        self.look.assert_called_once_with('g', 'v', 8 * REGION, REGION, 30)

    def test_what_was_written_before(self):
        self.here = [[0, 2], [3, 1], [6, 1]]
        self.assertEqual((6, [[1, 1], [3, 1], [6, 1]]), self.refill(1, 6))
        self.assertEqual({1: 2, 3: 4, 6: 7}, self.written())

    def test_nothing_is_missing_any_more(self):
        self.here = []
        self.assertEqual((6, []), self.refill(1, 6))
        self.assertEqual(['read', 'map', FORGET], self.commands.ran)

    def test_what_was_written_meanwhile(self):
        """It is seen once more what is missing."""
        self.answer(0)
        self.assertEqual((0, []), self.refill(1, 1))

    def test_what_takes_too_long(self):
        """What is written is not written again."""
        self.answer(2)
        self.assertEqual((0, [[1, 1], [2, 1]]), self.refill(1, 3))
        self.assertEqual({1: 2, 2: 3, 3: 4}, self.written())

    def test_end_of_the_clone(self):
        """Beyond it nothing may appear that others have deleted."""
        self.assertEqual((2, [[6, 1], [7, 1]]), self.refill(
            6, 2, 8 * REGION - 4096))
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d %d %d' % (6 * REGION, REGION, 7 * REGION,
                                           REGION), line)
        self.assertEqual(b'\7' * REGION + b'\x08' * (REGION - 4096)
                         + bytes(4096), data)
        # All of its last block.
        self.look.assert_called_once_with('g', 'v', 8 * REGION, REGION, 30)

    def test_end_of_the_lv(self):
        self.lv.write_bytes(bytes(8 * REGION - 8192))
        self.assertEqual((1, [[7, 1]]), self.refill(
            7, 1, 8 * REGION - 12288))
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d' % (7 * REGION, REGION - 8192), line)
        self.assertEqual(b'\x08' * (REGION - 12288) + bytes(4096), data)

    def test_not_all_at_once(self):
        with mock.patch.object(refill, 'AT_ONCE', 2 * REGION):
            self.assertEqual(2, self.refill(0, 8)[0])
        with mock.patch.object(refill, 'AT_ONCE', 1):
            self.assertEqual(1, self.refill(2, 6)[0])

    def test_source_that_ends(self):
        self.disk.write_bytes(bytes(REGION))
        error = self.assertRaises(sparse_errors.SourceUnread, self.refill, 0,
                                  2)
        self.assertIn('65536 bytes instead of 131072', str(error))
        self.assertEqual(['read'], self.commands.ran)

    def test_source_that_cannot_be_read(self):
        process.stream = mock.Mock(side_effect=exceptions.CommandFailed(
            command='dd', code=1, stderr='Input/output error'))
        error = self.assertRaises(sparse_errors.SourceUnread, self.refill, 1,
                                  2)
        self.assertIn('at byte 65536: ', str(error))
        self.assertIn('Input/output error', str(error))
        self.assertEqual([], self.commands.ran)

    def test_what_was_read_is_forgotten_whatever_fails(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=1, err='OSError: no')
        self.commands.answer('blockdev', code=1)
        error = self.assertRaises(exceptions.CommandFailed, self.refill, 0, 1)
        self.assertIn('OSError: no', str(error))
        self.assertEqual(FORGET, self.commands.ran[-1])

    def test_what_may_be_there_in_part(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=1, err='OSError: [Errno 5] '
                             + while_suspended.IN_PART)
        self.assertRaises(sparse_errors.InPart, self.refill, 0, 1)

    def test_another_device(self):
        self.mapped.return_value = 'other'
        self.assertRaises(exceptions.WrongDevice, self.refill, 0, 1)
        self.assertEqual([], self.commands.ran)

    def test_other_names(self):
        self.assertRaises(exceptions.Foreign, refill.refill, 'root', 'g',
                          'v', 'd', 1, 1, 0, 1, 30)
        self.assertEqual([], self.commands.ran)

    @ddt.data(('Lsw', 'thin 128 127', False), ('L', '', False),
              ('Lsw', 'thin 256 255', True), ('Lsw', 'Fail', True),
              ('Lsw', None, True))
    @ddt.unpack
    def test_one_that_was_killed_leaves_nothing_suspended(
            self, attributes, status, in_part):
        self.commands._answers.clear()
        self.commands.hang(SCRIPT)
        self.commands.answer('dmsetup info', attributes)
        look = 'ioctl status ' + names.mapped('g', 'v')
        if status is None:
            self.commands.hang(look)
        self.commands.answer(look, '0 2097152 %s\n' % status)
        self.assertRaises(
            sparse_errors.InPart if in_part else exceptions.CommandTimeout,
            self.refill, 0, 1)
        self.assertEqual(
            [look, 'dmsetup clear ' + HANDLE, 'dmsetup resume ' + HANDLE,
             FORGET] if 's' in attributes else [FORGET],
            self.commands.ran[4:])


class Pool:
    """A thin LV, of blocks of 64 KiB, and how many of them go together."""

    def __init__(self, together):
        self.together, self.data, self.mapped = together, [0] * 384, set()

    def look(self, _group, _lv, _size, unit, _timeout):
        blocks = unit // REGION
        found = [unit for unit in range(len(self.data) // blocks)
                 if not any(each // self.together in self.mapped for each in
                            range(unit * blocks, (unit + 1) * blocks))]
        return len(self.mapped), [[unit, 1] for unit in found]

    def write(self, _handle, _lv, _path, _sectors, parts, data, _timeout):
        for first, length in parts:
            for number in range(first // REGION, (first + length) // REGION):
                self.mapped.add(number // self.together)
                self.data[number], data = data[0], data[REGION:]
        return len(parts)


@ddt.ddt
class PoolTest(commands.Case):
    """Whatever a pool maps at once: the first write maps all of it."""

    @ddt.data((1, [[0, 3], [5, 1], [9, 1]]),
              (16, [[5, 1], [9, 1]]),  # larger than the source's
              (128, [[0, 128]]),  # more than is written at once
              (3, [[0, 96]]))  # no power of two
    @ddt.unpack
    def test_all_is_copied_again(self, together, missing):
        pool, move = Pool(together), test_stack.MOVE
        for where, name, what in (
                (thin_pool, 'look', pool.look),
                (thin_pool, 'unmapped', lambda *args: pool.look(*args)[1]),
                (thin_pool, 'block', lambda *args: together * REGION),
                (devicemapper, 'write_beneath', pool.write),
                (block, 'size', lambda path: 384 * REGION),
                (stacks.Stack, 'lvs', lambda stack: {}),
                (sysfs, 'mapped_name', lambda path: names.mapped(
                    'g', move.destination_lv)),
                (process, 'stream', self.stream)):
            self.useFixture(fixtures.MockPatchObject(where, name, what))
        node = mock.Mock(compare_wait=60, stack=stacks.Stack(
            'g', 'g-pool', 'fast', 30, host='b@l'))
        node.records.services.return_value = {move.source: True}
        node.sessions.attach.return_value = '/dev/sda'
        has = {number for start, count in missing
               for number in range(start, start + count)}
        node.peers.holes.return_value = [
            [number, 1] for number in range(384) if number not in has]
        self.assertTrue(refilling.Comparison(node, 'context').is_whole(move))
        self.assertEqual([], [number for number in has if pool.data[number]
                              != 1 + number % 250])

    def stream(self, take, *argv, timeout):
        words = dict(word.split('=') for word in argv[1:])
        first = int(words['skip']) // REGION
        take(b''.join(bytes([1 + number % 250]) * REGION for number in range(
            first, first + int(words['count']) // REGION)))


@ddt.ddt
class ScriptTest(testtools.TestCase):
    """What is done while the guest waits."""

    DATA = bytes(range(1, 17)) * (REGION // 16 - 1) + bytes(range(17, 33))

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.lv = self.root / 'lv'
        self.lv.write_bytes(bytes(4 * REGION))
        self.done = []
        self.handle, self.thin = mock.Mock(), mock.Mock()
        self.handle.suspended = self.suspended
        self.sectors = [128]
        self.thin.mapped.side_effect = self.mapped

    def mapped(self):
        self.done.append('mapped')
        return self.sectors.pop(0)

    @contextlib.contextmanager
    def suspended(self):
        self.done.append('suspend')
        try:
            yield
        finally:
            self.done.append('resume')

    def refill(self, sectors=128):
        device = os.open(self.lv, os.O_RDWR)
        self.addCleanup(os.close, device)
        return while_suspended.refill(
            self.handle, self.thin, device, sectors,
            [(REGION, REGION), (3 * REGION, 4096)],
            io.BytesIO(self.DATA + b'b' * 4096))

    def test_all_of_it_is_stable_before_the_guest_goes_on(self):
        with mock.patch.object(os, 'fsync', lambda _device: (
                self.done.append(self.lv.read_bytes().count(b'b')))):
            self.assertEqual(2, self.refill())
        self.assertEqual(['suspend', 'mapped', 4096, 'resume'], self.done)
        self.assertEqual(
            bytes(REGION) + self.DATA + bytes(REGION) + b'b' * 4096
            + bytes(REGION - 4096), self.lv.read_bytes())

    def test_no_block_is_begun_late(self):
        """But one that was begun is written to its end."""
        write, clock = os.pwritev, iter((10, 11, 12.1))

        def slow(device, memories, first):
            return write(device, [memories[0][:4096]], first)
        with mock.patch.object(while_suspended.time, 'monotonic',
                               lambda: next(clock)), \
                mock.patch.object(os, 'pwritev', slow):
            self.assertEqual(1, self.refill())
        self.assertEqual(bytes(REGION) + self.DATA + bytes(2 * REGION),
                         self.lv.read_bytes())
        self.assertEqual(['suspend', 'mapped', 'resume'], self.done)

    def test_others_have_written(self):
        for sectors in (0, 127, 129):
            self.sectors = [128]
            self.assertEqual(0, self.refill(sectors))
        self.assertEqual(bytes(4 * REGION), self.lv.read_bytes())

    def discarded(self, device, request, argument):
        self.assertEqual(0x1277, request)  # BLKDISCARD of linux/fs.h
        self.done.append(struct.unpack('=QQ', argument))

    @ddt.data(('pwritev', 1), ('pwritev', 2), ('fsync', 1))
    @ddt.unpack
    def test_nothing_is_there_in_part(self, name, number):
        """What has begun is taken back: else it would count as whole."""
        inner, calls = getattr(os, name), []

        def fails(*args):
            calls.append(args)
            if len(calls) == number:
                raise OSError(5, 'no')
            return inner(*args)
        with mock.patch.object(os, name, fails), mock.patch.object(
                while_suspended.fcntl, 'ioctl', self.discarded):
            self.sectors = [128, 128]
            error = self.assertRaises(OSError, self.refill)
        self.assertEqual('[Errno 5] no', str(error))
        parts = [(REGION, REGION), (3 * REGION, 4096)]
        # The last one first.
        self.assertEqual(['suspend', 'mapped', *(
            parts if name == 'fsync' else parts[:number])[::-1], 'mapped',
            'resume'], self.done)

    def test_the_guest_goes_on_whatever_fails(self):
        """Also if something can't be taken back: that is said."""
        for left in (128, 256):
            self.done.clear()
            self.sectors = [128, left]
            with mock.patch.object(os, 'pwritev',
                                   side_effect=OSError(5, 'no')):
                error = self.assertRaises(OSError, self.refill)
            self.assertEqual(left != 128,
                             while_suspended.IN_PART in str(error))
            self.assertEqual(['suspend', 'mapped', 'mapped', 'resume'],
                             self.done)

    def test_how_much_is_mapped(self):
        device = while_suspended.Device(None, 'x')
        with mock.patch.object(device, '_status',
                               return_value='98304 98303'):
            self.assertEqual(98304, device.mapped())
