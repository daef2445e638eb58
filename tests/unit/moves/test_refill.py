# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten is copied again before the source goes."""

import contextlib
import dataclasses
import io
import itertools
import logging
import os
import pathlib
import struct
import sys
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_clone_metadata
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import refill as refilling
from cinder_localclone.storage import clone as stacks
from cinder_localclone.storage import handles
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import refill
from cinder_localclone.storage.privsep import sysfs
from cinder_localclone.storage.privsep import thin_pool
from cinder_localclone.storage.privsep import while_suspended
from cinder_localclone.volumes import reconcile
from tests.helpers import clone_metadata
from tests.helpers import commands
from tests.helpers import holes
from tests.helpers import move_case
from tests.helpers import move_steps_case
from tests.helpers import specs
from tests.helpers import storage_case
from tests.helpers.writer import Writer
from tests.unit import callers
from tests import world as worlds
from tests.world import disks

A, B = move_case.A, move_case.B
#: A hole at the source, as well.
HOLE = 3


TIMEOUT = exceptions.CommandTimeout(command='lvchange', seconds=30)
AWAY = exceptions.PeerUnreachable(
    host=A, method='holes', seconds=30, reason='')


def unread(reason):
    return exceptions.SourceUnread(disk='d', first=0, reason=reason)


def cut_short():
    """A refill that comes to one region only."""
    inner = worlds.SimStack.refill

    def refill(stack, move, disk, missing, factor):
        yield from inner(stack, move, disk, [[missing[0][0], 1]], factor)
        raise exceptions.TakesLong(seconds=30)
    return mock.patch.object(worlds.SimStack, 'refill', refill)


class Begun(move_steps_case.Base):
    """A volume is being copied to B."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            name='cinder_localclone', level=logging.WARNING))
        self.world, self.volume, self.expected = holes.begin(
            self, (HOLE,))
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.a.move(self.volume, B)
        self.b.reconciler.converge(self.volume.id)

    def lose(self, *regions):
        """The pool has forgotten them, and the clone does not know."""
        for region in regions:
            self.b.lvs[self.volume.name][region] = disks.EMPTY

    def tag(self, tag):
        """As an earlier service has done, or an operator."""
        tags = self.b.disk.tags
        tags[self.volume.name] = tags.get(
            self.volume.name, frozenset()) | {tag}

    def phase(self):
        return next((move.phase for move in self.world.shadows.values()),
                    None)

    def converge(self):
        self.b.reconciler.converge(self.volume.id)

    def restart(self):
        self.b.stop(power=False)
        self.b.dead = False
        self.b.reconciler.converge_node(moves=False)

    def settled(self):
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def failing(self, room, name, error):
        return mock.patch.object(getattr(self.b.node, room), name,
                                 side_effect=error)

    def not_seen_again(self, error, looks=1):
        """What is copied again can't be seen just then."""
        inner, seen = worlds.SimStack.unmapped, []

        def some(stack, *args):
            seen.append(True)
            if len(seen) > looks:
                raise error
            return inner(stack, *args)
        return mock.patch.object(worlds.SimStack, 'unmapped', some)

    def hide(self, region):
        """A guest writes to a part of it."""
        self.b.lvs[self.volume.name][region] = 'hidden'

    def lacking(self):
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])


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
            self.assertRaises(exceptions.NotRefilled, self.converge)
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

    def written_since(self):
        """A guest writes to the one just before it could be copied."""
        self.lose(0, 1)
        inner = worlds.SimStack.unmapped

        def after(stack, *args):
            found = inner(stack, *args)
            if self.b.lvs[self.volume.name][1] == disks.EMPTY:
                self.b.write(self.volume.id, 1, 'newer')
                self.expected[1] = 'newer'
            return found
        with mock.patch.object(worlds.SimStack, 'unmapped', after):
            self.assertRaises(exceptions.Lacking, self.converge)

    def test_what_was_written_since_stays(self):
        """Of what else there was in the block nobody knows: so the source."""
        self.written_since()
        self.assertIn('lost 128 KiB', self.log.output)
        self.assertIn('. 64 KiB were copied', self.log.output)
        for _look in range(2):
            error = self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIn('lvchange --addtag localclone.accepted ', str(error))
        self.assertTrue(str(error).endswith('/' + self.volume.name), error)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        # Its operator accepts it.
        self.tag(names.ACCEPTED)
        self.settled()

    def test_what_an_earlier_service_knew(self):
        """It may have been hidden since."""
        self.written_since()
        self.restart()
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_mark_goes_when_all_was_copied(self):
        """However many looks that takes."""
        self.lose(0, 1, 2)
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.converge)
            self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
            self.assertRaises(exceptions.NotRefilled, self.converge)
        # What can't be seen hides nothing.
        with self.failing('peers', 'holes', AWAY):
            self.assertRaises(exceptions.Lacking, self.converge)
        self.converge()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_mark_that_cannot_be_taken_off(self):
        self.lose(1)
        with self.failing('stack', 'unmark', exceptions.CommandTimeout(
                command='lvchange', seconds=30)):
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.converge()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_mark_comes_first(self):
        """Before anything is written that may be there in part."""
        self.lose(1)
        with self.failing('stack', 'mark', exceptions.CommandTimeout(
                command='lvchange', seconds=30)), mock.patch.object(
                worlds.SimStack, 'refill') as again:
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        again.assert_not_called()
        self.converge()
        self.settled()

    def test_known_to_be_lost(self):
        """Then nobody gives up: its source may come back."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('sessions', 'attach', exceptions.SourceUnreachable(
                portal='p', reason='r')):
            # Its node dies between two questions.
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.assertIn('[localclone-205]', self.log.output)
        with self.failing('peers', 'holes', self.NOT_SEEN[-1][1]):
            self.converge()
            for clock.return_value in (80, 1e6):
                with contextlib.suppress(exceptions.Lacking):
                    self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertNotIn('[localclone-207]', self.log.output)
        self.converge()
        self.settled()

    def test_known_to_an_earlier_service(self):
        """The mark says it."""
        clock = self.waiting()
        self.tag(names.LACKING)
        clock.return_value = 10
        with self.failing('peers', 'holes', AWAY):
            self.converge()
            clock.return_value = 80
            error = self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_known_to_be_lost_with_its_source(self):
        """Nobody waits for a node that was forgotten."""
        self.tag(names.LACKING)
        with mock.patch.object(type(self.b.node.records._inner), 'services',
                               return_value={B: True}):
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-207]', self.log.output)

    def test_known_to_be_lost_of_one_without_holes(self):
        """The same: nothing of it is asked for, whatever its own map says."""
        self.b.lvs[self.volume.name][HOLE] = 'written'
        self.tag(names.LACKING)
        with mock.patch.object(type(self.b.node.records._inner), 'services',
                               return_value={B: True}), self.failing(
                'stack', 'unmapped', FileNotFoundError('thin_dump')):
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted(self):
        """What can be copied is, until nothing more can."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        inner = worlds.SimStack.refill

        def bad(stack, move, disk, missing, factor):
            yield from inner(stack, move, disk, thin_map.common(
                missing, [[0, 1]]), factor)
            raise unread('bad sector')
        clock = self.waiting()
        with mock.patch.object(worlds.SimStack, 'refill', bad):
            for clock.return_value in (5, 60):
                self.assertRaises(exceptions.NotRefilled, self.converge)
            self.assertEqual(self.expected[0], self.b.read(self.volume.id, 0))
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)
        self.assertNotIn('[localclone-207]', self.log.output)
        self.assertIn('[localclone-206]', self.log.output)
        self.assertIn('bad sector', self.log.output)
        self.assertIn('unless a loss is known', self.log.output)

    def test_accepted_and_all_is_copied(self):
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        self.converge()
        self.settled()
        self.assertNotIn('[localclone-208]', self.log.output)

    @ddt.data(FileNotFoundError('python'), thin_map.OddMap('odd'))
    def test_accepted_whatever_fails(self, error):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with self.failing('stack', 'refill', error):
            for clock.return_value in (5, 64):
                self.assertRaises(exceptions.NotRefilled, self.converge)
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted_though_the_mark_stays(self):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with self.failing('stack', 'unmark', FileNotFoundError('lvchange')):
            clock.return_value = 5
            self.assertRaises(FileNotFoundError, self.converge)
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        # Nothing is missing.
        self.assertNotIn('[localclone-208]', self.log.output)

    def test_accepted_and_lost_again(self):
        """What can be copied is, but nobody goes round for ever."""
        self.lose(1)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[[[1, 1]]]):
            for clock.return_value in (5, 35, 64):
                self.assertRaises(exceptions.NotAllCopied, self.converge)
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)

    def test_accepted_and_lost_once_more(self):
        self.lose(1)
        self.tag(names.ACCEPTED)
        self.waiting().return_value = 5
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[[[1, 1]]]):
            self.assertRaises(exceptions.NotAllCopied, self.converge)
        self.settled()

    @ddt.data(*itertools.product(('converge', 'converge_moves'),
                                 (True, False)))
    @ddt.unpack
    def test_source_that_answers_late(self, look, holes):
        """Others wait for the lock less long than that may take.

        :param holes: whether it has any
        """
        self.lose(1)
        if not holes:
            self.expected[HOLE] = 'new'
            self.b.write(self.volume.id, HOLE, 'new')
        clock, held = self.waiting(), []
        inner = self.b.node.peers.holes

        def ask(*args):
            held.append({*self.b.held})
            if clock.return_value < 20:
                raise AWAY
            return inner(*args) if holes else []
        act = {'converge': self.converge,
               'converge_moves': self.b.reconciler.converge_moves}[look]
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            for clock.return_value in (5, 10, 15):
                act()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 20
            act()
        self.assertEqual([{self.volume.id}] + [set()] * 3, held)
        self.settled()
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_source_whose_answer_is_no_answer(self):
        """Other volumes are looked at nevertheless."""
        self.lose(1)
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        with self.failing('peers', 'holes', KeyError('strange')):
            self.b.reconciler.converge_moves()
        self.assertIn('strange', self.log.output)
        self.settled()

    def test_source_that_fails_when_its_move_has_ended(self):
        """Another thread had its answer meanwhile; it is asked no more."""
        self.lose(1)
        clock, asked = self.waiting(), []
        inner = self.b.node.peers.holes

        def ask(*args):
            asked.append(args)
            if len(asked) == 2:
                self.converge()
            if len(asked) < 3:
                raise AWAY
            return inner(*args)
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            for clock.return_value in (5, 10, 15):
                self.converge()
        self.assertEqual(3, len(asked))
        self.settled()
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_source_that_is_down_is_not_asked_ahead(self):
        """Nor is one that is not needed any more."""
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY) as asked:
            clock.return_value = 5
            self.converge()
            self.a.dead = True
            self.converge()
            self.assertEqual(1, asked.call_count)
            clock.return_value = 70
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual({}, self.b.reconciler.comparison._silent)

    def test_answer_counts_once(self):
        """Whoever looks without asking ahead asks then."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (5, 10):
                self.converge()
        with self.b.lock(self.volume.id):
            self.b.reconciler.converge_locked(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())
        self.settled()

    def test_answer_that_is_not_needed_any_more(self):
        """It ends without: its own pool can't be looked at."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            clock.return_value = 5
            self.converge()
            clock.return_value = 70
            with self.failing('stack', 'unmapped', TIMEOUT):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_accepted_while_the_source_is_away(self):
        """It is waited for, as for others."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        self.tag(names.LACKING)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (5, 60):
                self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 65
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)

    def test_accepted_and_something_fails_now_and_then(self):
        """What can be copied still is."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        self.waiting().return_value = 5
        busy = exceptions.Busy(what='pool', host=B, seconds=10)
        for name in ('unmapped', 'refill'):
            with self.failing('stack', name, busy), contextlib.suppress(
                    exceptions.NotRefilled):
                self.converge()
            self.assertIs(Phase.MIGRATING, self.phase())
        self.converge()
        self.settled()

    def test_pool_that_fails_is_not_hidden(self):
        """Not by what fails after it."""
        self.lose(0)
        self.tag(names.ACCEPTED)
        with self.failing('stack', 'refill', exceptions.PoolFails(
                pool='p', host=B, mode='ro')), self.failing(
                'stack', 'forget_read', TIMEOUT):
            for _look in range(3):
                self.assertRaises(exceptions.PoolFails, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    @ddt.data(
        ('sessions', 'attach', exceptions.SourceUnreachable(
            portal='p', reason='EIO')),
        ('stack', 'refill', exceptions.CommandFailed(
            command='python', code=1, stderr='EIO')),
        ('stack', 'refill', FileNotFoundError('EIO')),
        ('stack', 'forget_read', exceptions.CommandFailed(
            command='blockdev', code=1, stderr='EIO')))
    @ddt.unpack
    def test_way_out_is_told(self, room, name, error):
        """Whatever fails each time."""
        self.lose(0)
        with self.failing(room, name, error):
            for _look in range(3):
                found = self.assertRaises(exceptions.NotRefilled,
                                          self.converge)
        self.assertIn('EIO', str(found))
        self.assertIn('lvchange --addtag localclone.accepted', str(found))
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_fails_is_told_whatever_fails_then(self):
        self.lose(0)
        with self.failing('stack', 'refill', exceptions.CommandFailed(
                command='python', code=1, stderr='EIO')), self.failing(
                'stack', 'forget_read', OSError('then')):
            error = self.assertRaises(exceptions.NotRefilled,
                                      self.converge)
        self.assertIn('EIO', str(error))

    def test_lost_again_and_not_seen(self):
        """It was lost once: nobody takes the clone at its word."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
            self.lose(1)  # the pool is broken still
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_lost_again_and_seen_later(self):
        """It is copied once more."""
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.lose(1)
        self.converge()
        self.settled()

    def test_copied_again_and_seen_later(self):
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with mock.patch.object(worlds.SimStack, 'refill') as again:
            self.converge()
        again.assert_not_called()
        self.assertEqual({}, self.b.reconciler.comparison.memory.copied)
        self.settled()

    @ddt.data(TIMEOUT, FileNotFoundError('thin_dump'), thin_map.OddMap('odd'))
    def test_read_is_forgotten_whatever_fails(self, error):
        self.lose(1)
        with self.not_seen_again(error), mock.patch.object(
                worlds.SimStack, 'forget_read') as forgotten:
            self.assertRaises(exceptions.NotRefilled, self.converge)
        forgotten.assert_called_once_with(self.volume.id)

    def test_read_is_forgotten_before_it_is_given_up(self):
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with self.failing('peers', 'holes', AWAY), mock.patch.object(
                worlds.SimStack, 'forget_read') as forgotten:
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.converge()
        self.assertTrue(forgotten.called
                        or self.phase() is Phase.MIGRATING)
        self.settled()

    def test_accepted_and_goes_on_after_a_wait(self):
        """What goes on is waited for."""
        self.lose(0, 1, 2)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        clock.return_value = 65
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.settled()

    def test_copied_again_and_its_source_is_away(self):
        """It is there, as the map here says: nobody has to accept that."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 69):
                self.converge()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 70
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_all_pieces_are_told(self):
        self.lose(0, 1)
        inner = worlds.SimStack.refill

        def pieces(stack, move, disk, missing, factor):
            for region in (0, 1):
                yield from inner(stack, move, disk, [[region, 1]], factor)
        with mock.patch.object(worlds.SimStack, 'refill', pieces):
            self.converge()
        self.assertIn('. 128 KiB were copied', self.log.output)
        self.settled()

    def test_cut_short_and_lost_again(self):
        """What was cut short is looked at before it can be hidden."""
        self.lose(0, 1)

        def late(stack, *args):
            yield [[0, 1]]  # the pool is broken still
            raise exceptions.TakesLong(seconds=30)
        with mock.patch.object(worlds.SimStack, 'refill', late):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.b.lvs[self.volume.name][0] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_cut_short_on_a_pool_that_fails(self):
        """That is what is said, and nobody accepts it."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)

        def late(stack, *args):
            yield [[0, 1]]
            self.b.pool_fails = True
            raise exceptions.TakesLong(seconds=30)
        with mock.patch.object(worlds.SimStack, 'refill', late):
            self.assertRaises(exceptions.PoolFails, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_seen_to_be_lost_again_while_its_source_is_away(self):
        """The map here has said so, whoever hides it then."""
        self.lose(1)
        self.waiting().return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.lose(1)  # the pool is broken still
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_seen_to_be_lost_again_and_not_copied_then(self):
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.lose(1)
        with self.failing('stack', 'refill', unread('bad sector')):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_accepted_while_away_and_read_is_forgotten(self):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with self.failing('peers', 'holes', AWAY), mock.patch.object(
                worlds.SimStack, 'forget_read') as forgotten:
            for clock.return_value in (10, 80):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertTrue(forgotten.called)

    def test_read_of_what_is_there_in_part_is_forgotten(self):
        self.lose(0)

        def in_part(stack, *args):
            self.b.lvs[self.volume.name][0] = 'a part'
            raise exceptions.CommandTimeout(command='python', seconds=10)
            yield
        with mock.patch.object(worlds.SimStack, 'refill', in_part), \
                self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with mock.patch.object(worlds.SimStack, 'forget_read') as forgotten:
            self.assertRaises(exceptions.Lacking, self.converge)
        self.assertTrue(forgotten.called)

    def test_all_was_copied_though_the_mark_is_there(self):
        """Nothing is known to be lost: nobody waits for ever."""
        self.lose(1)
        with self.failing('stack', 'unmark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (5, 65):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted_on_a_pool_that_fails(self):
        """That says nothing of what is written now."""
        self.tag(names.ACCEPTED)
        self.b.pool_fails = True
        for _look in range(3):
            self.assertRaises(exceptions.PoolFails, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def again(self):
        """In a service that was started again."""
        self.restart()
        with contextlib.suppress(exceptions.Lacking):
            self.converge()

    def test_mark_that_failed_is_tried_again(self):
        """Also when nothing is missing any more."""
        self.lose(1)
        with self.failing('stack', 'mark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        self.b.lvs[self.volume.name][1] = 'a part'
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.again()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_marked_once(self):
        self.lose(1)
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimStack, 'mark') as marked:
            self.assertRaises(exceptions.Lacking, self.converge)
        marked.assert_not_called()

    def test_lv_that_lvm_does_not_list(self):
        """Nobody knows whether it is marked."""
        self.tag(names.LACKING)
        inner = worlds.SimStack.lvs

        def without(stack):
            found = inner(stack)
            found.pop(self.volume.name, None)
            return found
        with mock.patch.object(worlds.SimStack, 'lvs', without):
            self.assertRaises(exceptions.MissingData, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_read_is_forgotten_before_it_ends(self):
        """Whatever fails, it is tried again."""
        self.lose(1)
        with self.failing('stack', 'forget_read', TIMEOUT):
            for _look in range(2):
                self.assertRaises(exceptions.NotRefilled, self.converge)
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        with mock.patch.object(worlds.SimStack, 'forget_read') as forgotten:
            self.converge()
        forgotten.assert_called_once_with(self.volume.id)
        self.settled()

    def test_read_is_forgotten_if_not_all_is_copied(self):
        self.lose(1)
        with mock.patch.object(
                worlds.SimStack, 'refill', side_effect=unread('r')), \
                mock.patch.object(worlds.SimStack, 'forget_read') as forgotten:
            self.assertRaises(exceptions.NotRefilled, self.converge)
        forgotten.assert_called_once_with(self.volume.id)

    def test_mark_of_an_earlier_service_is_of_all(self):
        """What it copied, or not, nobody knows."""
        self.tag(names.LACKING)
        self.lose(0)
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_mark_alone(self):
        """Nothing is copied for it, and it is there."""
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimStack, 'refill') as again, \
                mock.patch.object(worlds.SimStack, 'mark') as marked:
            self.assertRaises(exceptions.Lacking, self.converge)
        again.assert_not_called()
        marked.assert_not_called()

    def test_wait_of_what_is_marked_is_told(self):
        self.tag(names.LACKING)
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        self.assertIn('[localclone-206]', self.log.output)

    def test_lost_again_and_hidden(self):
        self.lose(1)
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[[[1, 1]]]):
            self.assertRaises(exceptions.NotAllCopied, self.converge)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_lost_again_and_nothing_forgets_what_was_read(self):
        """What the map has shown stays."""
        self.lose(1)
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[[[1, 1]]]), \
                self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotAllCopied, self.converge)
        self.hide(1)
        self.lacking()

    def missing_while_its_source_is_away(self):
        self.lose(1)
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.converge()

    def test_seen_to_be_missing_while_its_source_is_away(self):
        self.missing_while_its_source_is_away()
        self.hide(1)
        self.lacking()

    def test_seen_to_be_missing_and_nobody_tells_who_runs(self):
        self.lose(1)
        with mock.patch.object(self.b.node.records, 'services',
                               side_effect=RuntimeError('the database')):
            self.assertRaises(RuntimeError, self.converge)
        self.hide(1)
        self.lacking()

    def test_hole_that_is_written_to_while_its_source_is_away(self):
        """The source has never had that."""
        self.missing_while_its_source_is_away()
        self.b.write(self.volume.id, HOLE, 'new')
        self.expected[HOLE] = 'new'
        self.converge()
        self.settled()

    def test_read_is_forgotten_after_an_earlier_service(self):
        """It was killed before it could."""
        self.lose(1)
        with self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.restart()
        with mock.patch.object(
                self.b.node.records, 'services', return_value={}), \
                mock.patch.object(
                    worlds.SimStack, 'forget_read') as forgotten:
            self.converge()
        forgotten.assert_called_once_with(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    @ddt.data((), (TIMEOUT,))
    def test_mark_goes_when_all_is_there_though_its_source_is_away(self, odd):
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with self.failing('peers', 'holes', AWAY):
            with self.failing('stack', 'unmark', TIMEOUT) if odd else (
                    contextlib.nullcontext()):
                self.converge()
            clock.return_value = 6
            self.converge()
            self.assertNotIn(names.LACKING,
                             self.b.disk.tags[self.volume.name])
        self.restart()
        self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_lost_again_and_nobody_tells_who_runs(self):
        """Whatever fails after that."""
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.lose(1)
        inner, asked = self.b.node.records.services, []

        def second():
            asked.append(True)
            if len(asked) > 1:
                raise RuntimeError('the database')
            return inner()
        with mock.patch.object(self.b.node.records, 'services', second):
            self.assertRaises(RuntimeError, self.converge)
        self.hide(1)
        self.lacking()

    def test_read_is_forgotten_or_it_does_not_end(self):
        """Also while its source is away."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('stack', 'forget_read', TIMEOUT):
            for clock.return_value in (5, 6):
                self.assertRaises(exceptions.NotRefilled, self.converge)
            with self.failing('peers', 'holes', AWAY):
                for clock.return_value in (70, 140, 210):
                    error = self.assertRaises(exceptions.NotRefilled,
                                              self.converge)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (220, 290):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual(set(), self.comparison.memory.read)

    def test_read_is_forgotten_though_its_source_is_forgotten(self):
        self.lose(1)
        with self.failing('stack', 'refill', TIMEOUT), \
                self.failing('stack', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        with mock.patch.object(
                self.b.node.records, 'services', return_value={}), \
                mock.patch.object(
                    worlds.SimStack, 'forget_read') as forgotten:
            self.converge()
        forgotten.assert_called_once_with(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_read_is_forgotten_once(self):
        """It is not flushed at each look while its operator sleeps."""
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimStack, 'forget_read') as forgotten:
            for _look in range(3):
                self.lacking()
        forgotten.assert_called_once_with(self.volume.id)

    def test_accepted_and_all_is_there_but_not_compared(self):
        """That is said, and nothing else."""
        self.lose(1)
        self.tag(names.ACCEPTED)
        with self.not_seen_again(TIMEOUT):
            clock = self.waiting()
            clock.return_value = 5
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=0)
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-207]', self.log.output)
        self.assertNotIn('[localclone-208]', self.log.output)

    def test_known_without_a_mark(self):
        """Whatever keeps it from being marked, it is not given up."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('stack', 'mark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.converge)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.converge()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_wait_that_is_over(self):
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.converge()
        self.assertNotEqual({}, self.comparison.memory.unseen)
        self.converge()
        self.assertEqual({}, self.comparison.memory.unseen)

    def repaired(self):
        return callers.Answers(mock.Mock(
            node=self.b.node, reconciler=self.b.reconciler)).repair(
                self.volume.id)

    def test_repaired_by_an_operator(self):
        """What he copies the service knows."""
        self.lose(0, 1)
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.converge)
        self.repaired()
        self.settled()

    @ddt.data(('stack', 'refill', exceptions.Busy(
        what='pool', host=B, seconds=30)),
        ('sessions', 'attach', exceptions.SourceUnreachable(
            portal='p', reason='r')))
    @ddt.unpack
    def test_source_stays_until_it_is_copied(self, room, name, error):
        self.lose(2)
        with self.failing(room, name, error):
            self.assertRaises(exceptions.NotRefilled, self.converge)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(self.volume.name.replace(
            self.volume.name_id, self.volume.id), self.a.lvs)
        self.converge()
        self.settled()

    def test_what_may_be_there_in_part(self):
        """The map does not tell any more: the source stays."""
        self.lose(0, 1, 2)

        def in_part(stack, *args):
            self.b.lvs[self.volume.name][0] = 'a part'
            raise exceptions.CommandTimeout(command='python', seconds=10)
            yield
        with mock.patch.object(worlds.SimStack, 'refill', in_part):
            self.assertRaises(exceptions.NotRefilled, self.converge)
        # All others are copied.
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.converge)
        self.assertEqual(['a part', *self.expected[1:3]], [
            self.b.read(self.volume.id, region) for region in range(3)])
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_power_cut_in_a_block(self):
        self.lose(1)

        def cut(*args):
            # A part of it is there, and another volume is flushed.
            self.b.lvs[self.volume.name][1] = 'a part'
            self.b.disk.flush(self.volume.name)
            self.b.stop(power=True)
            raise worlds.Stopped()
            yield
        with mock.patch.object(worlds.SimStack, 'refill', cut):
            self.assertRaises(worlds.Stopped, self.converge)
        self.b.dead = False
        self.b.reconciler.converge_node(moves=False)
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.converge)
        self.assertIs(Phase.MIGRATING, self.phase())

    @ddt.data((), [[[1, 1]]])
    def test_lost_again(self, written):
        """The pool is broken still: nobody goes round in circles."""
        self.lose(1)
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=written) as again:
            self.assertRaises(exceptions.NotAllCopied, self.converge)
        again.assert_called_once()
        self.assertIs(Phase.MIGRATING, self.phase())

    NOT_SEEN = (
        ('stack', exceptions.CommandFailed(
            command='thin_dump', code=1, stderr='')),
        ('stack', FileNotFoundError('thin_dump')),
        ('stack', thin_map.OddMap('odd')),
        ('peers', exceptions.PeerUnreachable(
            host=A, method='holes', seconds=30, reason='')),
        ('peers', exceptions.OtherVersion(host='a@l')))

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
        self.comparison = self.b.reconciler.comparison
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
        self.assertEqual({}, self.comparison.memory.unseen)

    @ddt.data(*NOT_SEEN)
    @ddt.unpack
    def test_what_cannot_be_seen_for_too_long(self, room, error):
        """The source may be lost; what is here can be used as it is."""
        clock = self.waiting()
        with self.not_seen(room, error):
            for clock.return_value in (5, 65):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual({}, self.comparison.memory.unseen)
        self.assertIn('[localclone-207]', self.log.output)

    def test_pool_that_fails_still(self):
        """Then the very thing has happened: the source stays."""
        clock = self.waiting()
        self.b.pool_fails = True
        for clock.return_value in (5, 65, 1e6):
            self.assertRaises(exceptions.PoolFails, self.converge)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.b.pool_fails = False
        self.lose(0)
        self.converge()
        self.settled()

    @ddt.data(('stack', TIMEOUT), ('peers', exceptions.PoolFails(
        pool='p', mode='ro', host=A)))
    @ddt.unpack
    def test_pool_that_fails_and_something_else(self, room, error):
        clock = self.waiting()
        with self.not_seen(room, error):
            clock.return_value = 5
            self.converge()
            self.assertIs(Phase.MIGRATING, self.phase())
            with mock.patch.object(worlds.SimStack, 'check_pool',
                                   side_effect=exceptions.PoolFails(
                                       pool='q', mode='ro', host=B)):
                clock.return_value = 65
                said = self.assertRaises(
                    exceptions.PoolFails, self.converge)
            self.assertIn('pool q', str(said))
            with self.failing('stack', 'forget_read', TIMEOUT), \
                    mock.patch.object(worlds.SimStack, 'check_pool',
                                      side_effect=said), \
                    mock.patch.object(worlds.SimStack, 'unmark') as unmarked:
                self.comparison.memory.read.add(next(iter(
                    self.world.shadows)))
                self.comparison.memory.known[next(iter(
                    self.world.shadows))] = ()
                self.assertIs(said, self.assertRaises(
                    exceptions.PoolFails, self.converge))
            unmarked.assert_not_called()
            self.comparison.memory.read.clear()
            self.comparison.memory.known.clear()
            self.converge()
            self.assertIs(Phase.MIGRATING, self.phase())

    def test_pool_that_fails_ends_another_wait(self):
        clock = self.waiting()
        with self.not_seen('peers', self.NOT_SEEN[-1][1]):
            clock.return_value = 5
            self.converge()
            self.b.pool_fails = True
            self.assertRaises(exceptions.PoolFails, self.converge)
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
        with self.not_seen('peers', exceptions.PoolFails(
                pool='p', host=A, mode='ro')):
            for clock.return_value in (5, 65):
                self.converge()
        self.assertIs(Phase.RELEASING, self.phase())

    @ddt.data('deleting', 'error_deleting')
    def test_volume_that_is_being_deleted(self, status):
        """Nothing is compared, or ended, of what goes."""
        self.volume.status = status
        with mock.patch.object(self.b.reconciler.comparison,
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
                self.b.reconciler.comparison, 'is_whole') as compared, \
                self.failing('stack', 'flush_lv', exceptions.CommandFailed(
                    command='c', code=1, stderr='')):
            self.assertRaises(exceptions.CommandFailed, self.converge)
            self.assertIs(Phase.COMPLETING, self.phase())
            self.assertRaises(exceptions.CommandFailed, self.converge)
        compared.assert_called_once_with(mock.ANY)

    def test_source_of_an_earlier_move_is_not_asked_ahead(self):
        """The volume moves again."""
        comparison = self.b.reconciler.comparison
        earlier = dataclasses.replace(
            self.b.node.records.move_of(self.volume.id), shadow_id='earlier')
        comparison._silent[self.volume.id] = earlier
        with mock.patch.object(self.b.node.peers, 'holes') as asked:
            comparison.ask_ahead(self.volume.id)
        asked.assert_not_called()
        self.assertEqual(({}, {}), (comparison._silent, comparison._answers))

    def test_source_that_answers_when_its_move_has_ended(self):
        self.lose(1)
        clock, asked = self.waiting(), []
        inner = self.b.node.peers.holes

        def ask(*args):
            asked.append(args)
            if len(asked) == 1:
                raise AWAY
            answer = inner(*args)
            if len(asked) == 2:
                self.converge()
            return answer
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            for clock.return_value in (5, 10, 15):
                self.converge()
        self.settled()
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_source_that_answers_when_the_volume_moves_again(self):
        """Nobody would ever ask for that answer."""
        comparison = self.b.reconciler.comparison
        move = self.b.node.records.move_of(self.volume.id)
        later = dataclasses.replace(move, shadow_id='later')

        def ask(*_args):
            comparison._silent[self.volume.id] = later
            return []
        comparison._silent[self.volume.id] = move
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            comparison.ask_ahead(self.volume.id)
        self.assertEqual(({self.volume.id: later}, {}), (
            comparison._silent, comparison._answers))


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
        self.b.reconciler.comparison.memory.interrupted = set()
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
        comparison = self.b.reconciler.comparison
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
        with self.failing('peers', 'holes', AWAY) as asked:
            for _look in range(2):
                self.look()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        asked.assert_called_once()  # until all is copied

    @ddt.data(dm_clone_metadata.OddMetadata('odd'),
              exceptions.CommandTimeout(command='dd', seconds=30),
              FileNotFoundError('thin_dump'),
              exceptions.Busy(what='the pool', host=B, seconds=30))
    def test_what_it_does_not_understand(self, error):
        """It waits as well; then it is looked for at the end."""
        comparison = self.b.reconciler.comparison
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
            worlds.SimStack, 'refill', side_effect=unread('bad sector'))

    def test_what_cannot_be_copied_now(self):
        comparison = self.b.reconciler.comparison
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

    def copied_and_not_seen(self):
        with self.not_seen_again(TIMEOUT):
            self.look()
        self.assertEqual({self.phase_of(): [[1, 1]]},
                         self.b.reconciler.comparison.memory.copied)

    def end(self):
        self.b.hydrate(flushed=True)
        self.lacking()

    def test_suspected_after_it_was_copied(self):
        """It was seen to be missing, whoever hides it then."""
        self.interrupted()
        self.copied_and_not_seen()
        self.lose(1)  # the pool is broken still
        with self.failing('peers', 'holes', AWAY):
            self.look()
        self.hide(1)
        self.look()
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.end()

    def test_suspected_and_its_source_stays_away(self):
        """It was known to be lost before."""
        clock = self.clock()
        self.copied_and_not_seen()
        self.lose(1)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                self.look()
            self.hide(1)
            self.b.hydrate(flushed=True)
            for clock.return_value in (90, 160, 230):
                with contextlib.suppress(exceptions.Lacking):
                    self.converge()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_hidden_between_two_looks(self):
        self.interrupted()
        self.copied_and_not_seen()
        self.lose(1)
        inner = worlds.SimStack.unmapped

        def then(stack, *args):
            found = inner(stack, *args)
            self.hide(1)
            return found
        with mock.patch.object(worlds.SimStack, 'unmapped', then):
            self.look()
        self.end()

    def test_local_before_it_looks(self):
        """What a guest has written, and the pool lost, meanwhile."""
        self.interrupted()
        inner = worlds.SimStack.recorded_as_local

        def then(stack, move):
            found = inner(stack, move)
            self.lose(0)
            return found
        with mock.patch.object(worlds.SimStack, 'recorded_as_local', then):
            self.look()
        self.assertEqual(self.expected, self.read())

    def test_pool_that_fails_for_long(self):
        """What is copied then would hide what was lost, and is lost itself."""
        clock = self.clock()
        self.b.pool_fails = True
        for clock.return_value in (5, 70, 1e6):
            self.look()
            self.assertFalse(self.hydrates())
        self.assertIn('reboot the node', self.log.output)
        self.healed()

    def healed(self):
        """An operator has extended the pool's metadata LV."""
        self.b.pool_fails = False
        self.look()
        self.assertEqual(self.expected, self.read())
        self.assertTrue(self.hydrates())
        self.assertNotIn(names.LACKING, self.b.disk.tags.get(
            self.volume.name, ()))

    @ddt.data(('recorded_as_local', ValueError('odd')),
              ('recorded_as_local', TIMEOUT), ('set_hydration', TIMEOUT),
              ('unmapped', exceptions.CommandFailed(
                  command='dmsetup', code=1, stderr='')),
              ('mark', TIMEOUT), ('refill', TIMEOUT))
    @ddt.unpack
    def test_pool_that_fails_and_something_else(self, name, error):
        """Whatever is the first thing to fail: that is no wait."""
        clock = self.clock()
        inner = worlds.SimStack.unmapped

        def mapped(stack, *args):
            found = inner(stack, *args)
            self.b.pool_fails = True  # from now on
            return found
        self.b.pool_fails = name not in ('mark', 'refill')
        for clock.return_value in (5, 70, 1e6):
            with self.failing('stack', name, error), (
                    contextlib.nullcontext() if self.b.pool_fails else
                    mock.patch.object(worlds.SimStack, 'unmapped', mapped)):
                self.look()
            self.assertFalse(self.hydrates())
            if name in ('mark', 'refill'):
                self.b.pool_fails = False
        self.healed()

    def test_pool_that_fails_when_its_source_is_back(self):
        """A wait for something else that is over does not count."""
        clock = self.clock()
        with self.failing('peers', 'holes', AWAY):
            self.look()  # at 5
        clock.return_value = 70

        def fails(stack, *args):
            self.b.pool_fails = True
            raise exceptions.PoolFails(pool='p', mode='ro', host=B)
            yield
        with mock.patch.object(worlds.SimStack, 'refill', fails):
            self.look()
        self.assertFalse(self.hydrates())
        self.healed()

    @ddt.data(TIMEOUT, exceptions.WrongDevice(path='p', found='8:0'),
              OSError(5, 'error'))
    def test_pool_that_does_not_say_whether_it_fails(self, error):
        """That is a wait as any other."""
        clock = self.clock()
        with self.failing('stack', 'check_pool', error), \
                self.failing('peers', 'holes', AWAY):
            for clock.return_value, goes_on in ((5, False), (70, True)):
                self.look()
                self.assertEqual(goes_on, self.hydrates())

    def test_pool_of_its_source_that_fails_for_long(self):
        """That is as if it were away."""
        clock = self.clock()
        with self.failing('peers', 'holes', exceptions.PoolFails(
                pool='p', host=A, mode='ro')):
            for clock.return_value, goes_on in ((5, False), (70, True)):
                self.look()
                self.assertEqual(goes_on, self.hydrates())

    def test_pool_that_fails_after_its_source_was_away(self):
        """What is waited for begins anew."""
        clock = self.clock()
        with self.failing('peers', 'holes', AWAY):
            self.look()  # at 5
        clock.return_value = 60
        self.b.pool_fails = True
        self.look()
        self.b.pool_fails = False
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value, goes_on in ((70, False), (140, True)):
                self.look()
                self.assertEqual(goes_on, self.hydrates())

    def test_never_seen(self):
        """What goes on without a look could hide it."""
        clock = self.clock()
        self.copied_and_not_seen()
        self.lose(1)
        with self.not_seen_again(TIMEOUT, looks=0):
            for clock.return_value in (10, 80):
                self.look()
        self.assertTrue(self.hydrates())
        self.hide(1)
        self.end()

    def test_what_goes_on_after_a_wait(self):
        """It is waited for; nothing is copied beside it."""
        clock = self.clock()
        self.lose(0)
        with self.failing('peers', 'holes', AWAY):
            self.look()  # at 5
        clock.return_value = 65
        with cut_short():
            self.look()
        self.assertFalse(self.hydrates())
        self.look()
        self.assertEqual(self.expected, self.read())

    def test_what_is_hidden_is_not_copied_again(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.look()
        self.b.lvs[self.volume.name][1] = 'hidden'
        with mock.patch.object(worlds.SimStack, 'refill') as again:
            self.look()
        again.assert_not_called()
        self.assertNotIn('[localclone-205]', self.log.output)

    def test_what_takes_long(self):
        """As long as it goes on it is waited for."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=40)
        clock = self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic')).mock
        self.lose(0)
        with cut_short():
            for clock.return_value in (5, 50):
                self.look()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.look()
        self.assertEqual(self.expected, self.read())

    def test_what_was_written_since(self):
        """It holds up no copy; but then the source stays."""
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[()]), mock.patch.object(
                worlds.SimStack, 'recorded_as_local',
                return_value=[[1, 1]]), mock.patch.object(
                worlds.SimStack, 'unmapped', side_effect=([[1, 1]], [])):
            self.look()
        self.assertTrue(self.b.devices[names.clone(
            self.phase_of())]['hydrating'])
        self.assertNotIn('[localclone-206]', self.log.output)
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.converge, self.volume.id)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_an_earlier_service_has_marked(self):
        """All that is missing is copied; something may be hidden."""
        self.tag(names.LACKING)
        self.look()
        self.assertEqual(self.expected, self.read())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.b.hydrate(flushed=True)
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.converge, self.volume.id)

    def interrupted(self):
        self.b.reconciler.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=60)

    def hydrates(self):
        return self.b.devices[names.clone(self.phase_of())]['hydrating']

    def clock(self):
        self.interrupted()
        return self.useFixture(fixtures.MockPatchObject(
            refilling.time, 'monotonic', return_value=5)).mock

    def test_what_lacks_something_is_not_looked_at_again(self):
        """Until all is copied."""
        self.tag(names.LACKING)
        self.look()
        with mock.patch.object(worlds.SimStack, 'unmapped') as looked:
            self.look()
        looked.assert_not_called()

    def test_wait_that_is_over_with_nothing_lost(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.look()
        self.b.lvs[self.volume.name][1] = self.expected[1]
        self.look()
        self.assertEqual({}, self.b.reconciler.comparison.memory.unseen)

    def test_what_was_copied_again_is_known_no_more(self):
        """It does not keep the source of what is whole."""
        clock = self.clock()
        self.look()
        self.b.hydrate(flushed=True)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                self.b.reconciler.converge(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_what_cannot_be_copied_does_not_wait_for_ever(self):
        clock = self.clock()
        with self.not_refilled():
            for clock.return_value, goes_on in ((5, False), (65, True)):
                self.look()
                self.assertEqual(goes_on, self.hydrates())

    def test_lost_again(self):
        """Nothing goes on that would hide it."""
        self.clock()
        with mock.patch.object(worlds.SimStack, 'refill',
                               return_value=[[[1, 1]]]):
            self.look()
        self.assertFalse(self.hydrates())
        self.look()
        self.assertEqual(self.expected, self.read())

    def test_repair_lets_nothing_go_on(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.look()
            self.assertFalse(self.hydrates())
            reconcile.Reconciler.repair(mock.Mock(
                node=self.b.reconciler.comparison._node,
                comparison=self.b.reconciler.comparison), self.volume.id)
        self.assertFalse(self.hydrates())

    def test_mark_that_cannot_be_taken_off_yet(self):
        """It does not outlive what it is for."""
        self.interrupted()
        with self.failing('stack', 'unmark', TIMEOUT):
            self.look()
        self.assertEqual(self.expected, self.read())
        self.look()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_what_could_not_be_asked_for(self):
        """It is asked for in the end, though it is hidden by then."""
        with self.failing('peers', 'holes', AWAY):
            self.look()  # it waits for no time at all
        self.b.hydrate(flushed=True)
        self.b.lvs[self.volume.name][1] = 'hidden'
        for _look in range(2):
            self.assertRaises(exceptions.Lacking,
                              self.b.reconciler.converge, self.volume.id)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_was_hidden_before_it_could_be_asked_for(self):
        self.interrupted()
        with self.failing('peers', 'holes', AWAY):
            self.look()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.look()
        self.assertTrue(self.hydrates())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.b.hydrate(flushed=True)
        self.assertRaises(exceptions.Lacking,
                          self.b.reconciler.converge, self.volume.id)

    def test_what_was_copied_is_suspected_no_more(self):
        """One half when the copy goes on, the other in the end."""
        self.lose(0)
        with cut_short():
            self.look()
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_tags_that_cannot_be_read(self):
        """What is suspected until then is not forgotten."""
        self.interrupted()
        with mock.patch.object(refilling.Comparison, '_tags',
                               side_effect=TIMEOUT):
            self.look()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.look()
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_what_was_not_lost(self):
        """A hole of the source is no loss, whoever writes to it."""
        self.b.lvs[self.volume.name][1] = self.expected[1]
        with self.failing('peers', 'holes', AWAY):
            self.look()
        self.b.hydrate(flushed=True)
        self.b.write(self.volume.id, HOLE, 'new')
        self.expected[HOLE] = 'new'
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_nothing_is_copied_while_it_looks(self):
        self.b.devices[names.clone(self.phase_of())]['hydrating'] = True
        seen, inner = [], worlds.SimStack.unmapped

        def looked(stack, *args):
            seen.append(self.hydrates())
            return inner(stack, *args)
        with mock.patch.object(worlds.SimStack, 'unmapped', looked):
            self.look()
        self.assertEqual({False}, set(seen))
        self.assertTrue(self.hydrates())

    def test_mark_that_failed_is_tried_again(self):
        self.interrupted()
        with self.failing('stack', 'mark', TIMEOUT):
            self.look()
        self.b.lvs[self.volume.name][1] = 'a part'
        self.look()
        self.assertTrue(self.hydrates())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_mark_that_fails(self):
        """Nothing goes on that would hide what was lost."""
        error = exceptions.CommandTimeout(command='lvchange', seconds=30)
        with self.failing('stack', 'mark', error):
            for _look in range(2):
                self.look()
                self.assertFalse(self.b.devices[names.clone(
                    self.phase_of())]['hydrating'])
        self.look()
        self.assertEqual(self.expected, self.read())

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
                exceptions.Lacking, self.b.reconciler.converge,
                self.volume.id)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())
        # Its operator accepts it.
        self.tag(names.ACCEPTED)
        self.b.reconciler.converge(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_what_could_not_be_copied_until_the_end(self):
        """Nothing has hidden it."""
        with self.not_refilled():
            self.look()
        self.b.hydrate(flushed=True)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])

    def test_wait_that_is_over(self):
        """The next one has its own time."""
        comparison = self.b.reconciler.comparison
        comparison._node = dataclasses.replace(self.b.node, compare_wait=60)
        with mock.patch.object(self.b.node.peers, 'holes', side_effect=(
                exceptions.PeerUnreachable(
                    host=A, method='holes', seconds=30, reason=''))):
            self.look()
        self.assertEqual([self.phase_of()], list(comparison.memory.unseen))
        self.look()
        self.assertEqual({}, comparison.memory.unseen)


class BlocksTest(move_steps_case.Base):
    """Regions that are larger than what the pool maps."""

    def test_part_of_a_region(self):
        move = mock.Mock(shadow_id='s', **{
            'geometry.region_sectors': 512, 'token.nonce': 'n'})
        node = specs.node()
        node.stack.lvs.return_value = {move.destination_lv: mock.Mock(
            tags=frozenset())}
        node.stack.unmapped.side_effect = ([[1, 2], [9, 3], [16, 3]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.stack.refill.return_value = iter([[[1, 2]]])
        node.stack.recorded_as_local.return_value = [[0, 1], [2, 1]]
        comparison = refilling.Comparison(node)
        comparison.expect([move])
        self.assertTrue(comparison.resume(move))
        node.stack.recorded_as_local.assert_called_once_with(move)
        # Regions 2 and 3 are holes of the source.
        node.stack.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 2]], 4)
        node.stack.unmapped.assert_called_with(move, 4)
        node.stack.set_hydration.assert_called_once_with(
            move.shadow_id, False)
        # What it maps meanwhile would hide what was lost.
        done = [call[0] for call in node.stack.mock_calls]
        self.assertEqual(
            ['set_hydration', 'recorded_as_local', 'unmapped'],
            [name for name in done if name in (
                'set_hydration', 'recorded_as_local', 'unmapped')][:3])

    def test_mark_is_of_all_blocks(self):
        move = mock.Mock(destination_lv='v', shadow_id='s', **{
            'token.nonce': 'n',
            'geometry.region_sectors': 512,
            'geometry.regions.return_value': 2})
        node = specs.node()
        node.stack.lvs.return_value = {'v': mock.Mock(tags={names.LACKING})}
        node.stack.group = 'g'
        node.records.services.return_value = {move.source: True}
        node.stack.unmapped.side_effect = ([[0, 2]], [])
        node.peers.holes.return_value = []
        node.stack.refill.return_value = iter([[[0, 2]]])
        self.assertRaises(exceptions.Lacking,
                          refilling.Comparison(node).is_whole, move)

    def test_what_is_told(self):
        for sectors, kib in ((8, 8), (512, 128)):
            self.assertEqual(kib, refilling._kib([[3, 2]], mock.Mock(
                **{'geometry.region_sectors': sectors})))

    def test_regions_that_are_smaller(self):
        move = mock.Mock(shadow_id='s', **{
            'geometry.region_sectors': 8, 'token.nonce': 'n'})
        node = specs.node()
        node.stack.lvs.return_value = {move.destination_lv: mock.Mock(
            tags=frozenset())}
        node.stack.unmapped.side_effect = ([[1, 2]], [])
        node.peers.holes.return_value = [[2, 2]]
        node.stack.refill.return_value = iter([[[1, 1]]])
        self.assertTrue(
            refilling.Comparison(node).is_whole(move))
        node.stack.refill.assert_called_once_with(
            move, node.sessions.attach.return_value, [[1, 1]], 1)


@ddt.ddt
class StopTest(move_case.Base):
    """With a stop at every moment; then converge."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimNode, 'COMPARE_WAIT', 3600))

    def scenario(self, stop_at, faults):
        world, volume, expected = holes.begin(
            self, (HOLE,), faults=faults)
        world.nodes[A].move(volume, B)
        b = world.nodes[B]
        b.reconciler.converge(volume.id)
        b.hydrate(flushed=True)
        b.lvs[volume.name][0] = b.lvs[volume.name][2] = disks.EMPTY
        world.moment, world.stop_at = 0, stop_at
        world.settle()
        if world.shadows:  # nobody knows whether something was hidden
            self.marked += 1
            self.assertIn(names.LACKING, b.disk.tags[volume.name])
            for region, value in enumerate(expected):
                self.assertEqual(value, b.read(volume.id, region))
            b.disk.tags[volume.name] |= {names.ACCEPTED}
            world.settle()
        self.check(world, volume, expected)
        return world

    @ddt.data(*move_case.ONE)
    def test_stop_at_every_moment(self, faults):
        self.marked = 0
        self.stop_everywhere(lambda stops: self.scenario(stops, faults))
        # Only what was stopped while it was copied again.
        self.assertIn(self.marked, range(1, 9))


class HandlesTest(testtools.TestCase):

    #: It was extended since: the clone is as long as before.
    MOVE = dataclasses.replace(storage_case.MOVE, volume_gib=2)

    def setUp(self):
        super().setUp()
        self.stack = stacks.Stack('g', 'g-pool', 'fast', 30, host='b@l')
        self.block = self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'block', return_value=1 << 17)).mock
        self.called = self.useFixture(fixtures.MockPatchObject(
            refill, 'refill')).mock
        self.forgotten = self.useFixture(fixtures.MockPatchObject(
            refill, 'forget_read')).mock
        top = mock.Mock()
        top.name = 'top'
        self.useFixture(fixtures.MockPatchObject(
            stacks.Stack, '_survey_of', return_value=mock.Mock(**{
                'tops.return_value': [top]})))
        clone = names.clone(self.MOVE.shadow_id)
        self.useFixture(fixtures.MockPatchObject(
            stacks.Stack, 'devices', return_value={clone: dm_tables.Device(
                clone, 'u', '253:6', 1, False,
                '0 1 clone 253:4 253:5 8:0')}))
        self.number = self.useFixture(fixtures.MockPatchObject(
            handles.block, 'number', return_value='8:0')).mock
        # The first one last.
        self.useFixture(fixtures.MockPatchObject(
            handles.random, 'shuffle', lambda pieces: pieces.reverse()))
        self.written = []

    def refill(self, missing):
        """Blocks of half a region, of which the pool maps four at once."""
        for part in self.stack.refill(
                self.MOVE, '/dev/sda', missing, 2):
            self.written.extend(part)

    def asked(self):
        what = (names.handle(self.MOVE.volume_id), 'g',
                self.MOVE.destination_lv, ('/dev/sda', '8:0'),
                self.MOVE.size_bytes, 1 << 17)
        return [call.args[6:8] for call in self.called.mock_calls
                if call == mock.call(*what, *call.args[6:8], 30)]

    def test_piece_by_piece(self):
        """What the pool maps at once is copied as a whole."""
        self.called.side_effect = (
            (1, [[0, 1]]), (1, [[1, 1]]), (1, []), (1, [[9, 1]]))
        self.refill([[3, 6], [37, 1]])
        self.assertEqual([(0, 3), (1, 2), (2, 1), (9, 1)], self.asked())
        # Of which these were missing.
        self.assertEqual([[3, 1], [4, 4], [37, 1]], self.written)
        self.block.assert_called_once_with(
            'g', self.MOVE.destination_lv, 30)

    def test_never_from_another_disk(self):
        self.number.return_value = '8:16'
        self.assertRaises(exceptions.WrongDevice, self.refill, [[3, 6]])
        self.called.assert_not_called()

    def test_not_all_at_once(self):
        self.called.side_effect = lambda *args: (args[7], [])
        with mock.patch.object(refill, 'AT_ONCE', 2 << 17):
            self.refill([[0, 20]])
        with mock.patch.object(refill, 'AT_ONCE', 1):
            self.refill([[0, 8]])
        self.assertEqual([(0, 2), (2, 2), (4, 1), (0, 1), (1, 1)],
                         self.asked())

    def test_by_chance(self):
        """What is slow each time does not keep the rest from its turn."""
        self.called.side_effect = lambda *args: (args[7], [])
        with mock.patch.object(handles.random, 'shuffle') as shuffled:
            self.refill([[0, 4], [36, 1]])
        shuffled.assert_called_once_with([])
        self.assertEqual([(9, 1), (0, 1)], self.asked())

    def test_nothing_was_come_to(self):
        """As the guest's I/O took its time to end."""
        self.called.side_effect = ((0, []), (3, [[0, 1]]))
        self.refill([[0, 12]])
        self.assertEqual([(0, 3), (0, 3)], self.asked())

    def test_what_takes_too_long(self):
        """The guest may have the volume, and it goes on at the next look."""
        self.called.return_value = 1, [[0, 1]]
        with mock.patch.object(handles.time, 'monotonic',
                               side_effect=(0, 1, 30, 31)):
            error = self.assertRaises(exceptions.TakesLong, self.refill,
                                      [[0, 20]])
        self.assertIn('longer than 30 s', str(error))
        self.assertEqual(2, self.called.call_count)

    def test_what_cannot_be_read(self):
        """All the rest is copied before that is said, or tried again."""
        bad = exceptions.SourceUnread(disk='d', first=0, reason='sector')
        self.called.side_effect = (
            bad, (1, [[9, 1]]), (1, [[2, 1]]), bad, (1, [[0, 1]]))
        error = self.assertRaises(exceptions.SourceUnread, self.refill,
                                  [[0, 12], [36, 1]])
        self.assertIn('sector', str(error))
        self.assertEqual([(0, 3), (9, 1), (2, 1), (1, 1), (0, 1)],
                         self.asked())
        self.assertEqual([[36, 1], [8, 4], [0, 4]], self.written)

    def test_what_cannot_be_read_for_long(self):
        """The disk is named, not the time that it takes."""
        self.called.side_effect = exceptions.SourceUnread(
            disk='d', first=0, reason='sector')
        with mock.patch.object(handles.time, 'monotonic',
                               side_effect=(0, 1, 31)):
            error = self.assertRaises(exceptions.SourceUnread, self.refill,
                                      [[0, 12], [36, 1]])
        self.assertIn('sector', str(error))

    def test_what_can_be_read_piece_by_piece(self):
        """All of it was copied."""
        bad = exceptions.SourceUnread(disk='d', first=0, reason='slow')
        self.called.side_effect = (
            bad, (1, [[2, 1]]), (1, [[1, 1]]), (1, [[0, 1]]))
        self.refill([[0, 12]])
        self.assertEqual([[8, 4], [4, 4], [0, 4]], self.written)

    def test_read_is_forgotten(self):
        """Also above what stands above the handle."""
        self.stack.forget_read(self.MOVE.volume_id)
        self.forgotten.assert_called_once_with(
            [names.handle(self.MOVE.volume_id), 'top'], 30)

    def test_what_is_not_mapped(self):
        move = self.MOVE
        with mock.patch.object(thin_pool, 'unmapped') as called:
            self.assertIs(called.return_value, self.stack.unmapped(move, 4))
        called.assert_called_once_with(
            'g', move.destination_lv, move.size_bytes, 1 << 14, 30)

    def test_whether_its_pool_fails(self):
        with mock.patch.object(thin_pool, 'check') as called:
            self.stack.check_pool(self.MOVE)
        called.assert_called_once_with('g', self.MOVE.destination_lv, 30)

    def test_what_is_on_record(self):
        metadata = clone_metadata.Writer(
            self.MOVE.geometry.regions(self.MOVE.size_bytes), {1, 2, 5}
        ).metadata()

        def stream(take, *argv, timeout):
            self.assertEqual('if=' + names.lv_path(
                'fast', names.metadata_lv(self.MOVE.shadow_id)),
                argv[1])
            self.assertIn('iflag=direct', argv)
            for at in range(0, len(metadata), 5000):
                take(metadata[at:at + 5000])
        self.useFixture(commands.Commands())
        with mock.patch.object(process, 'stream', stream):
            self.assertEqual([[1, 2], [5, 1]],
                             self.stack.recorded_as_local(self.MOVE))


SCRIPT = '%s -I -S %s' % (sys.executable, while_suspended.__file__)
REGION = 1 << 16
HANDLE = names.handle('00000001-0000-4000-8000-000000000000')


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
        self.useFixture(fixtures.MockPatchObject(
            thin_pool, 'to_be_written', self.to_be_written))
        self.useFixture(fixtures.MockPatchObject(
            process, 'stream', self.stream))
        self.useFixture(fixtures.MockPatchObject(
            block, 'size', lambda path: self.lv.stat().st_size
            if path == str(self.lv) else None))
        self.commands.answer(SCRIPT, '2 %d\n' % (4 * REGION))

    @contextlib.contextmanager
    def to_be_written(self, *args):
        self.assertEqual(('g', 'v', self.blocks, 30), args)
        self.commands.ran.append('reserve')
        try:
            yield thin_pool.Thin('pool', '/dev/metadata', 7)
        finally:
            self.commands.ran.append('release')

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
        self.blocks = count
        return refill.refill(HANDLE, 'g', 'v', (str(self.disk), self.number),
                             size, REGION, start, count, 30)

    #: A file has none.
    number = ''

    def test_another_disk_by_now(self):
        self.number = '8:16'
        self.assertRaises(exceptions.WrongDevice, self.refill, 3, 2)
        self.assertEqual([], self.commands.ran)

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

    def test_what_is_missing(self):
        """It is read before the guest waits."""
        self.assertEqual((2, [[4, 1]]), self.refill(3, 2))
        self.assertEqual(['read', 'reserve', '%s refill %s pool /dev/metadata '
                          '7 %s %d' % (SCRIPT, HANDLE, self.lv, REGION),
                          'release'], self.commands.ran)
        self.assertEqual(10, self.commands.limits[0])  # the guest waits
        # Not for what comes late.
        self.assertEqual(30, self.commands.dying[0])
        self.assertEqual({3: 4, 4: 5}, self.written())

    def test_nothing_is_missing_any_more(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, '6\n')
        self.assertEqual((6, []), self.refill(1, 6))

    def test_end_of_the_clone(self):
        """Beyond it nothing may appear that others have deleted."""
        self.refill(6, 2, 8 * REGION - 4096)
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d %d %d' % (6 * REGION, REGION, 7 * REGION,
                                           REGION), line)
        self.assertEqual(b'\7' * REGION + b'\x08' * (REGION - 4096)
                         + bytes(4096), data)

    def test_end_of_the_lv(self):
        self.lv.write_bytes(bytes(8 * REGION - 8192))
        self.refill(7, 1, 8 * REGION - 12288)
        line, _newline, data = self.commands.inputs[0].partition(b'\n')
        self.assertEqual(b'%d %d' % (7 * REGION, REGION - 8192), line)
        self.assertEqual(b'\x08' * (REGION - 12288) + bytes(4096), data)

    def test_source_that_ends(self):
        self.disk.write_bytes(bytes(REGION))
        error = self.assertRaises(exceptions.SourceUnread, self.refill, 0,
                                  2)
        self.assertIn('65536 bytes instead of 131072', str(error))
        self.assertEqual(['read'], self.commands.ran)

    @ddt.data(exceptions.CommandFailed(
        command='dd', code=1, stderr='Input/output error'),
        exceptions.CommandTimeout(command='dd', seconds=30))
    def test_source_that_cannot_be_read(self, error):
        process.stream = mock.Mock(side_effect=error)
        found = self.assertRaises(exceptions.SourceUnread, self.refill, 1,
                                  2)
        self.assertIn('at byte 65536: ', str(found))
        self.assertIn(str(error), str(found))
        self.assertEqual([], self.commands.ran)

    def test_what_cannot_be_written(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=1, err='OSError: no')
        error = self.assertRaises(exceptions.CommandFailed, self.refill, 0, 1)
        self.assertIn('OSError: no', str(error))
        self.assertEqual('release', self.commands.ran[-1])

    def test_read_is_forgotten(self):
        refill.forget_read([HANDLE, 'top'], 30)
        self.assertEqual(['blockdev --flushbufs /dev/mapper/' + name
                          for name in (HANDLE, 'top')], self.commands.ran)

    def test_another_device(self):
        self.mapped.return_value = 'other'
        self.assertRaises(exceptions.WrongDevice, self.refill, 0, 1)
        self.assertEqual([], self.commands.ran)

    def test_other_names(self):
        self.assertRaises(exceptions.Foreign, refill.refill, 'root', 'g',
                          'v', ('d', ''), 1, 1, 0, 1, 30)
        self.assertEqual([], self.commands.ran)

    def test_one_that_somebody_else_has_killed(self):
        self.commands._answers.clear()
        self.commands.answer(SCRIPT, code=-9)
        self.commands.answer('dmsetup info', 'Lsw')
        self.assertRaises(exceptions.CommandFailed, self.refill, 0, 1)
        self.assertEqual(['dmsetup clear ' + HANDLE, 'dmsetup resume '
                          + HANDLE, 'release'], self.commands.ran[-3:])

    def test_read_that_cannot_be_forgotten(self):
        self.commands.answer('blockdev', code=1)
        self.assertRaises(exceptions.CommandFailed, refill.forget_read,
                          [HANDLE], 30)

    def test_how_long_the_guest_waits(self):
        """It ends by itself before it is killed."""
        self.assertLess(while_suspended.ENDING + while_suspended.WRITING,
                        2 * dmsetup.SUSPENDED)
        self.assertEqual(4 << 20, refill.AT_ONCE)

    @ddt.data('Lsw', 'L')
    def test_one_that_was_killed_leaves_nothing_suspended(self, attributes):
        self.commands._answers.clear()
        self.commands.hang(SCRIPT)
        self.commands.answer('dmsetup info', attributes)
        self.assertRaises(exceptions.CommandTimeout, self.refill, 0, 1)
        self.assertEqual(
            ['dmsetup clear ' + HANDLE, 'dmsetup resume ' + HANDLE, 'release'
             ] if 's' in attributes else ['release'], self.commands.ran[4:])


class Pool:
    """A thin LV, of blocks of 64 KiB, and how many of them go together."""

    def __init__(self, together):
        self.together, self.data, self.mapped = together, [0] * 384, set()

    def unmapped(self, _group, _lv, _size, unit, _timeout):
        self._check(unit)
        return [[number, 1] for number in range(len(self.data))
                if number // self.together not in self.mapped]

    def _check(self, unit):
        assert unit == REGION, unit

    @contextlib.contextmanager
    def to_be_written(self, *_args):
        yield thin_pool.Thin('pool', '/dev/metadata', 7)

    def write(self, _handle, _thin, _path, block, parts, data, _timeout):
        assert block == self.together * REGION, block
        written = []
        for first, length in parts:
            piece, data = data[:length], data[length:]
            if first // block in self.mapped:
                continue
            written.append(first)
            self.mapped.add(first // block)
            for number in range(length // REGION):
                self.data[first // REGION + number] = piece[number * REGION]
        return len(parts), written


@ddt.ddt
class PoolTest(commands.Case):
    """Whatever a pool maps at once: the first write maps all of it."""

    @ddt.data((1, [[0, 3], [5, 1], [9, 1]]),
              (16, [[5, 1], [9, 1]]),  # larger than the source's
              (128, [[0, 128]]),  # more than is written at once
              (3, [[0, 96]]))  # no power of two
    @ddt.unpack
    def test_all_is_copied_again(self, together, missing):
        pool, move = Pool(together), storage_case.MOVE
        clone = names.clone(move.shadow_id)
        for where, name, what in (
                (thin_pool, 'to_be_written', pool.to_be_written),
                (thin_pool, 'unmapped', pool.unmapped),
                (thin_pool, 'block', lambda *args: together * REGION),
                (dmsetup, 'write_beneath', pool.write),
                (block, 'size', lambda path: 384 * REGION),
                (stacks.Stack, 'lvs', lambda stack: {
                    move.destination_lv: mock.Mock(tags=frozenset())}),
                (stacks.Stack, 'devices', lambda stack, only: {
                    clone: dm_tables.Device(clone, 'u', '253:6', 1, False,
                                            '0 1 clone 253:4 253:5 8:0')}),
                (sysfs, 'number', lambda path: '8:0'),
                (stacks.Stack, 'mark', lambda *args: None),
                (stacks.Stack, 'unmark', lambda *args: None),
                (refill, 'forget_read', lambda *args: None),
                (sysfs, 'mapped_name', lambda path: names.mapped(
                    'g', move.destination_lv)),
                (process, 'stream', self.stream)):
            self.useFixture(fixtures.MockPatchObject(where, name, what))
        node = specs.node(host='b@l', compare_wait=60, stack=stacks.Stack(
            'g', 'g-pool', 'fast', 30, host='b@l'))
        node.records.services.return_value = {move.source: True}
        node.sessions.attach.return_value = '/dev/sda'
        has = {number for start, count in missing
               for number in range(start, start + count)}
        node.peers.holes.return_value = [
            [number, 1] for number in range(384) if number not in has]
        self.assertTrue(refilling.Comparison(node).is_whole(move))
        self.assertEqual([], [number for number in has if pool.data[number]
                              != 1 + number % 250])

    def stream(self, take, *argv, timeout):
        words = dict(word.split('=') for word in argv[1:])
        first = int(words['skip']) // REGION
        take(b''.join(bytes([1 + number % 250]) * REGION for number in range(
            first, first + int(words['count']) // REGION)))


@ddt.ddt
class MappingTest(testtools.TestCase):
    """What a pool has mapped, by its metadata."""

    DEVICES = {1: set(range(100)), 2: set(), 5: {0, 1, 7, 8, 9, 300, 301},
               9: {4}}

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'metadata'
        self.writer = Writer(self.DEVICES)

    def mapping(self):
        self.writer.write(self.path)
        metadata = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, metadata)
        return while_suspended.Mapping(metadata)

    def test_each_block(self):
        mapping = self.mapping()
        for number, mapped in self.DEVICES.items():
            root = mapping.of(number)
            self.assertEqual(mapped, {block for block in range(400)
                                      if mapping.has(root, block)})

    def test_first_block_of_the_pool(self):
        """Its value is 0 if it is mapped at once."""
        root = self.mapping().of(9)
        self.change(root, '<Q', 32 + 8 * 3, 0)
        self.assertTrue(self.mapping().has(root, 4))

    def test_short_read(self):
        mapping = self.mapping()
        root, read = mapping.of(9), os.preadv
        with mock.patch.object(
                os, 'preadv', lambda *args: min(512, read(*args))):
            self.assertRaises(ValueError, mapping.has, root, 4)

    def test_no_such_device(self):
        mapping = self.mapping()
        for number in (0, 3, 10):
            self.assertRaises(ValueError, mapping.of, number)

    def test_no_snapshot(self):
        self.writer.blocks[0] = self.writer._superblock(0, 0, 0)
        error = self.assertRaises(ValueError, self.mapping)
        self.assertIn('no snapshot', str(error))

    def change(self, block, format, at, value):
        data = bytearray(self.writer.blocks[block])
        struct.pack_into(format, data, at, value)
        self.writer.blocks[block] = bytes(data)

    @ddt.data((0, '<Q', 8), (1, '<Q', 8), (0, '<Q', 32), (1, '<Q', 32))
    @ddt.unpack
    def test_no_superblock(self, block, format, at):
        self.change(block, format, at, 77)
        self.assertRaises(ValueError, self.mapping)

    @ddt.data(('<I', 4, 3), ('<I', 4, 0), ('<Q', 8, 77), ('<I', 16, 9),
              ('<I', 24, 16))
    @ddt.unpack
    def test_no_node(self, format, at, value):
        """Nothing is written where it is not known what is mapped."""
        root = self.mapping().of(5)
        self.change(root, format, at, value)
        self.assertRaises(ValueError, self.mapping().has, root, 7)

    def test_end_of_the_metadata(self):
        mapping = self.mapping()
        self.assertRaises(ValueError, mapping.has, len(self.writer.blocks), 0)

    def test_tree_without_end(self):
        mapping = self.mapping()
        root = mapping.of(1)
        self.change(root, '<Q', 32 + 8 * 3, root)
        self.assertRaises(ValueError, self.mapping().has, root, 0)


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
        self.handle, self.pool = mock.Mock(), mock.Mock()
        self.handle.suspended = self.suspended
        self.pool.message = self.reserve
        self.mapped = set()

    def reserve(self, text):
        """What is mapped is seen now."""
        self.assertEqual(b'reserve_metadata_snap', text)
        self.done.append('reserve')
        Writer({7: self.mapped}).write(self.root / 'metadata')

    @contextlib.contextmanager
    def suspended(self):
        self.done.append('suspend')
        try:
            yield
        finally:
            self.done.append('resume')

    def refill(self, number=7):
        (self.root / 'metadata').touch()
        opened = [os.open(self.root / name, os.O_RDWR)
                  for name in ('metadata', 'lv')]
        for each in opened:
            self.addCleanup(os.close, each)
        return while_suspended.refill(
            self.handle, self.pool, opened[0], number, opened[1], REGION,
            [(REGION, REGION), (3 * REGION, 4096)],
            io.BytesIO(self.DATA + b'b' * 4096))

    BOTH = [REGION, 3 * REGION]

    def test_all_of_it_is_stable_before_the_guest_goes_on(self):
        with mock.patch.object(os, 'fsync', lambda _device: (
                self.done.append(self.lv.read_bytes().count(b'b')))):
            self.assertEqual((2, self.BOTH), self.refill())
        self.assertEqual(['suspend', 'reserve', 4096, 'resume'], self.done)
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
            self.assertEqual((1, self.BOTH[:1]), self.refill())
        self.assertEqual(bytes(REGION) + self.DATA + bytes(2 * REGION),
                         self.lv.read_bytes())
        self.assertEqual(['suspend', 'reserve', 'resume'], self.done)

    @ddt.data(({1}, BOTH[1:]), ({3}, BOTH[:1]), ({1, 2, 3}, []),
              ({0, 2, 4}, BOTH))
    @ddt.unpack
    def test_others_have_written(self, mapped, written):
        self.mapped = mapped
        self.assertEqual((2, written), self.refill())
        data = self.lv.read_bytes()
        self.assertEqual(written, [first for first in self.BOTH
                                   if any(data[first:first + 4096])])

    def test_it_cannot_be_seen_what_is_mapped(self):
        """Then nothing is written."""
        self.assertRaises(ValueError, self.refill, 8)
        self.pool.message = mock.Mock(side_effect=OSError(22, 'no'))
        self.assertRaises(OSError, self.refill)
        self.assertEqual(bytes(4 * REGION), self.lv.read_bytes())
        self.assertEqual(['suspend', 'reserve', 'resume', 'suspend',
                          'resume'], self.done)

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
            error = self.assertRaises(OSError, self.refill)
        self.assertEqual('[Errno 5] no', str(error))
        parts = [(REGION, REGION), (3 * REGION, 4096)]
        # The last one first.
        self.assertEqual(['suspend', 'reserve', *(
            parts if name == 'fsync' else parts[:number])[::-1], 'resume'],
            self.done)

    def test_snapshot_that_another_program_has_released(self):
        """What is read then may be of another device."""
        write = os.pwritev

        def other(device, memories, first):
            done = write(device, memories, first)
            writer = Writer({7: {3}})
            writer.blocks[0] = writer._superblock(0, 0, 0)
            writer.blocks[2] = Writer({9: {100}}).blocks[2]
            writer.write(self.root / 'metadata')
            return done
        self.mapped = {3}
        with mock.patch.object(os, 'pwritev', other), mock.patch.object(
                while_suspended.fcntl, 'ioctl', self.discarded):
            self.assertRaises(ValueError, self.refill)
        self.assertEqual(bytes(4096),
                         self.lv.read_bytes()[3 * REGION:][:4096])
        self.assertEqual([(REGION, REGION)], self.done[2:-1])

    def test_map_that_breaks_midway(self):
        with mock.patch.object(while_suspended.Mapping, 'has', side_effect=(
                False, ValueError('odd'))), mock.patch.object(
                while_suspended.fcntl, 'ioctl', self.discarded):
            self.assertRaises(ValueError, self.refill)
        self.assertEqual(['suspend', 'reserve', (REGION, REGION), 'resume'],
                         self.done)

    def test_what_others_have_written_is_not_taken_back(self):
        self.mapped = {1}
        with mock.patch.object(os, 'fsync', side_effect=OSError(5, 'no')), \
                mock.patch.object(while_suspended.fcntl, 'ioctl',
                                  self.discarded):
            self.assertRaises(OSError, self.refill)
        self.assertEqual([(3 * REGION, 4096)], self.done[2:-1])

    def test_the_guest_goes_on_whatever_fails(self):
        """Also if something can't be taken back."""
        with mock.patch.object(os, 'pwritev', side_effect=OSError(5, 'no')), \
                mock.patch.object(while_suspended.fcntl, 'ioctl',
                                  side_effect=OSError(95, 'no discards')):
            error = self.assertRaises(OSError, self.refill)
        self.assertEqual('[Errno 5] no', str(error))
        self.assertEqual(['suspend', 'reserve', 'resume'], self.done)
