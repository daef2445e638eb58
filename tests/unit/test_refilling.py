# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten is copied again before the source goes."""

import contextlib
import dataclasses
import io
import logging
import os
import pathlib
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
                               return_value=0) as again:
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

    def test_lost_again(self):
        """The pool is broken still: nobody goes round in circles."""
        self.lose(1)
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=0) as again:
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
        """Nobody waits for that one."""
        self.waiting().return_value = 5
        with mock.patch.object(type(self.b.node.records._inner), 'services',
                               return_value={B: True}), \
                mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.converge()
        asked.assert_not_called()
        self.assertIs(Phase.RELEASING, self.phase())

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
                    host=A, method='holes', seconds=30, reason=''))):
            self.look()
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

    def test_what_it_does_not_understand_waits_for_the_end(self):
        for error in (clone_metadata.OddMetadata('odd'),
                      exceptions.CommandTimeout(command='dd', seconds=30)):
            self.b.reconciler._comparison._interrupted = {self.phase_of()}
            with mock.patch.object(worlds.SimStack, 'recorded_as_local',
                                   side_effect=error):
                self.look()
        self.look()
        self.assertNotEqual(self.expected, self.read())
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)


class BlocksTest(test_move_steps.Base):
    """Regions that are larger than what the pool maps."""

    def test_part_of_a_region(self):
        move = mock.Mock(**{'geometry.region_sectors': 512})
        node = mock.Mock()
        node.stack.unmapped.side_effect = (
            [[1, 2], [9, 3]], [[1, 2], [9, 3]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.stack.refill.return_value = 1 << 17
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

    def test_piece_by_piece(self):
        """As much as one call deals with."""
        stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        move = test_stack.MOVE
        with mock.patch.object(refill, 'refill', side_effect=(
                [4, 10], [0, 0], [2, 20], [1, 0])) as called:
            self.assertEqual(30, stack.refill(
                move, '/dev/sda', [[3, 6], [20, 1]], 2))
        what = (names.handle(move.volume_id), 'g', move.destination_lv,
                '/dev/sda', move.size_bytes, 1 << 15)
        self.assertEqual(
            [mock.call(*what, start, count, 30)
             for start, count in ((3, 6), (7, 2), (7, 2), (20, 1))],
            called.mock_calls)

    def test_guest_that_writes_all_the_time(self):
        stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        with mock.patch.object(refill, 'refill',
                               return_value=[0, 0]) as called:
            self.assertRaises(exceptions.Busy, stack.refill,
                              test_stack.MOVE, '/dev/sda', [[3, 6]], 1)
        self.assertEqual(handles.TRIES, called.call_count)

    def test_what_takes_too_long(self):
        """The guest may have the volume, and it goes on at the next look."""
        stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        with mock.patch.object(refill, 'refill', return_value=[1, 1]) as (
                called), mock.patch.object(
                    handles.time, 'monotonic', side_effect=(0, 1, 30, 31)):
            self.assertRaises(exceptions.Busy, stack.refill,
                              test_stack.MOVE, '/dev/sda', [[3, 6]], 1)
        self.assertEqual(2, called.call_count)

    def test_what_is_not_mapped(self):
        stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        move = test_stack.MOVE
        with mock.patch.object(thin_pool, 'unmapped') as called:
            self.assertIs(called.return_value, stack.unmapped(move, 4))
        called.assert_called_once_with(
            'g', move.destination_lv, move.size_bytes, 1 << 14, 30)

    def test_what_is_on_record(self):
        stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        metadata = test_clone_metadata.Writer(256, {1, 2, 5}).metadata()

        def stream(take, *argv, timeout):
            self.assertEqual('if=' + names.lv_path(
                'fast', names.metadata_lv(test_stack.MOVE.shadow_id)),
                argv[1])
            self.assertIn('iflag=direct', argv)
            for at in range(0, len(metadata), 5000):
                take(metadata[at:at + 5000])
        self.useFixture(commands.Commands())
        with mock.patch.object(process, 'stream', stream):
            self.assertEqual([[2, 1], [5, 1]], stack.recorded_as_local(
                test_stack.MOVE, [[2, 10]]))


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
        self.commands.answer(SCRIPT, '256 True\n')

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
        self.assertEqual([2, 2 * REGION], self.refill(3, 2))
        self.assertEqual(['read', 'map'], self.commands.ran[:2])
        self.assertTrue(self.commands.ran[2].endswith(
            '%s %s 128' % (self.RAN, self.lv)), self.commands.ran)
        self.assertEqual(10, self.commands.limits[0])  # the guest waits
        self.assertEqual([FORGET], self.commands.ran[3:])
        self.assertEqual({3: 4, 4: 5}, self.written())
        self.look.assert_called_once_with('g', 'v', 8 * REGION, REGION, 30)

    def test_what_was_written_before(self):
        self.here = [[0, 2], [3, 1], [6, 1]]
        self.assertEqual([6, 3 * REGION], self.refill(1, 6))
        self.assertEqual({1: 2, 3: 4, 6: 7}, self.written())

    def test_nothing_is_missing_any_more(self):
        self.here = []
        self.assertEqual([6, 0], self.refill(1, 6))
        self.assertEqual(['read', 'map', FORGET], self.commands.ran)

    def test_what_was_written_meanwhile(self):
        """It is seen once more what is missing."""
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, '192 False\n')
        self.assertEqual([0, 0], self.refill(1, 1))

    def test_short_end(self):
        self.assertEqual([1, REGION], self.refill(
            7, 1, 8 * REGION - 4096))
        data = self.commands.inputs[0]
        self.assertEqual(b'%d %d' % (7 * REGION, REGION),
                         data.partition(b'\n')[0])

    def test_not_all_at_once(self):
        with mock.patch.object(refill, 'AT_ONCE', 2 * REGION):
            self.assertEqual(2, self.refill(0, 8)[0])
        with mock.patch.object(refill, 'AT_ONCE', 1):
            self.assertEqual(1, self.refill(2, 6)[0])

    def test_source_that_ends(self):
        self.disk.write_bytes(bytes(REGION))
        self.assertRaises(exceptions.CommandFailed, self.refill, 0, 2)
        self.assertEqual(['read'], self.commands.ran)

    def test_another_device(self):
        self.mapped.return_value = 'other'
        self.assertRaises(exceptions.WrongDevice, self.refill, 0, 1)
        self.assertEqual([], self.commands.ran)

    def test_other_names(self):
        self.assertRaises(exceptions.Foreign, refill.refill, 'root', 'g',
                          'v', 'd', 1, 1, 0, 1, 30)
        self.assertEqual([], self.commands.ran)

    @ddt.data('Lsw', 'L')
    def test_one_that_was_killed_leaves_nothing_suspended(self, attributes):
        self.commands._answers.clear()
        self.commands.hang(SCRIPT)
        self.commands.answer('dmsetup info', attributes)
        self.assertRaises(exceptions.CommandTimeout, self.refill, 0, 1)
        self.assertEqual(
            ['dmsetup clear ' + HANDLE, 'dmsetup resume ' + HANDLE]
            if 's' in attributes else [], self.commands.ran[4:])


class ScriptTest(testtools.TestCase):
    """What is done while the guest waits."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.lv = self.root / 'lv'
        self.lv.write_bytes(bytes(4 * REGION))
        self.done = []
        self.handle, self.thin = mock.Mock(), mock.Mock()
        self.handle.suspended = self.suspended
        self.thin.mapped.side_effect = [128, 256]

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
            io.BytesIO(b'a' * REGION + b'b' * 4096))

    def test_all_of_it_is_stable_before_the_guest_goes_on(self):
        with mock.patch.object(os, 'fsync', lambda _device: (
                self.done.append(self.lv.read_bytes().count(b'b')))):
            self.assertEqual((256, True), self.refill())
        self.assertEqual(['suspend', 4096, 'resume'], self.done)
        self.assertEqual(
            bytes(REGION) + b'a' * REGION + bytes(REGION) + b'b' * 4096
            + bytes(REGION - 4096), self.lv.read_bytes())

    def test_no_write_is_begun_late(self):
        """Whoever waits for this may resume the handle soon."""
        with mock.patch.object(while_suspended.time, 'monotonic',
                               side_effect=(10, 11, 12.1)):
            self.assertEqual((256, False), self.refill())
        self.assertEqual(0, self.lv.read_bytes().count(b'b'))
        self.assertEqual(['suspend', 'resume'], self.done)

    def test_others_have_written(self):
        for sectors in (0, 127, 129):
            self.thin.mapped.side_effect = [128, 128]
            self.assertEqual((128, False), self.refill(sectors))
        self.assertEqual(bytes(4 * REGION), self.lv.read_bytes())

    def test_the_guest_goes_on_whatever_fails(self):
        with mock.patch.object(os, 'pwritev', side_effect=OSError(5, 'no')):
            self.assertRaises(OSError, self.refill)
        self.assertEqual(['suspend', 'resume'], self.done)

    def test_how_much_is_mapped(self):
        device = while_suspended.Device(None, 'x')
        with mock.patch.object(device, '_status',
                               return_value='98304 98303'):
            self.assertEqual(98304, device.mapped())
