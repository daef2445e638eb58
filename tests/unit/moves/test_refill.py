# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has forgotten is copied again before the source goes."""

import contextlib
import dataclasses
import itertools
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import refill as refilling
from tests.helpers import callers
from tests.helpers.refill_case import A
from tests.helpers.refill_case import B
from tests.helpers.refill_case import Begun
from tests.helpers.refill_case import cut_short
from tests.helpers.refill_case import HOLE
from tests.helpers.refill_case import unread
from tests import world as worlds
from tests.world import disks

TIMEOUT = exceptions.CommandTimeout(command='lvchange', seconds=30)
AWAY = exceptions.PeerUnreachable(
    host=A, method='holes', seconds=30, reason='')


@ddt.ddt
class RefillingTest(Begun):
    """All of it was copied; the move has not ended."""

    def setUp(self):
        super().setUp()
        self.b.hydrate(flushed=True)

    def test_nothing_lost(self):
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=()) as again:
            self.reconcile()
        again.assert_not_called()
        self.settled()
        self.assertEqual('', self.log.output)

    @ddt.data([0], [0, 1, 2])
    def test_lost(self, regions):
        self.lose(*regions)
        self.assertNotEqual(self.expected, [
            self.b.read(self.volume.id, region)
            for region in range(worlds.REGIONS)])
        self.reconcile()
        self.settled()
        self.assertIn('[localclone-205]', self.log.output)
        self.assertIn('lost %d KiB' % (64 * len(regions)), self.log.output)
        self.assertIn('. %d KiB were copied' % (64 * len(regions)),
                      self.log.output)

    def test_what_is_cut_short_is_told(self):
        """A guest has read zeros, whatever comes then."""
        self.lose(0, 1)
        inner = worlds.SimClones.refill

        def late(stack, move, disk, missing, factor):
            yield from inner(stack, move, disk, [[0, 1]], factor)
            raise exceptions.CommandTimeout(command='dd', seconds=30)
        with mock.patch.object(worlds.SimClones, 'refill', late):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.assertIn('lost 128 KiB', self.log.output)
        self.assertIn('. 64 KiB were copied', self.log.output)
        self.reconcile()
        self.settled()

    def test_outlives_a_power_cut(self):
        """What is copied again is stable before the source may go."""
        self.lose(1)
        self.reconcile()
        self.b.stop(power=True)
        self.settled()

    def written_since(self):
        """A guest writes to the one just before it could be copied."""
        self.lose(0, 1)
        inner = worlds.SimClones.unmapped_blocks

        def after(stack, *args):
            found = inner(stack, *args)
            if self.b.lvs[self.volume.name][1] == disks.EMPTY:
                self.b.write(self.volume.id, 1, 'newer')
                self.expected[1] = 'newer'
            return found
        with mock.patch.object(worlds.SimClones, 'unmapped_blocks', after):
            self.assertRaises(exceptions.Lacking, self.reconcile)

    def test_what_was_written_since_stays(self):
        """Of what else there was in the block nobody knows: so the source."""
        self.written_since()
        self.assertIn('lost 128 KiB', self.log.output)
        self.assertIn('. 64 KiB were copied', self.log.output)
        for _look in range(2):
            error = self.assertRaises(exceptions.Lacking, self.reconcile)
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
            self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_mark_goes_when_all_was_copied(self):
        """However many looks that takes."""
        self.lose(0, 1, 2)
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
            self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        # What can't be seen hides nothing.
        with self.failing('peers', 'holes', AWAY):
            self.assertRaises(exceptions.Lacking, self.reconcile)
        self.reconcile()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_mark_that_cannot_be_taken_off(self):
        self.lose(1)
        with self.failing('lvm', 'unmark', exceptions.CommandTimeout(
                command='lvchange', seconds=30)):
            self.assertRaises(exceptions.CommandTimeout, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.reconcile()
        self.assertNotIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_mark_comes_first(self):
        """Before anything is written that may be there in part."""
        self.lose(1)
        with self.failing('lvm', 'mark', exceptions.CommandTimeout(
                command='lvchange', seconds=30)), mock.patch.object(
                worlds.SimClones, 'refill') as again:
            self.assertRaises(exceptions.CommandTimeout, self.reconcile)
        again.assert_not_called()
        self.reconcile()
        self.settled()

    def test_known_to_be_lost(self):
        """Then nobody gives up: its source may come back."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('sessions', 'attach', exceptions.SourceUnreachable(
                portal='p', reason='r')):
            # Its node dies between two questions.
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.assertIn('[localclone-205]', self.log.output)
        with self.failing('peers', 'holes', self.NOT_SEEN[-1][1]):
            self.reconcile()
            for clock.return_value in (80, 1e6):
                with contextlib.suppress(exceptions.Lacking):
                    self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertNotIn('[localclone-207]', self.log.output)
        self.reconcile()
        self.settled()

    def test_known_to_an_earlier_service(self):
        """The mark says it."""
        clock = self.waiting()
        self.tag(names.LACKING)
        clock.return_value = 10
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()
            clock.return_value = 80
            error = self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_known_to_be_lost_with_its_source(self):
        """Nobody waits for a node that was forgotten."""
        self.tag(names.LACKING)
        with mock.patch.object(type(self.b.node.services._inner),
                               'alive_by_host',
                               return_value={B: True}):
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-207]', self.log.output)

    def test_known_to_be_lost_of_one_without_holes(self):
        """The same: nothing of it is asked for, whatever its own map says."""
        self.b.lvs[self.volume.name][HOLE] = 'written'
        self.tag(names.LACKING)
        with mock.patch.object(type(self.b.node.services._inner),
                               'alive_by_host',
                               return_value={B: True}), self.failing(
                'clones', 'unmapped_blocks', FileNotFoundError('thin_dump')):
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted(self):
        """What can be copied is, until nothing more can."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        inner = worlds.SimClones.refill

        def bad(stack, move, disk, missing, factor):
            yield from inner(stack, move, disk, thin_map.intersection(
                missing, [[0, 1]]), factor)
            raise unread('bad sector')
        clock = self.waiting()
        with mock.patch.object(worlds.SimClones, 'refill', bad):
            for clock.return_value in (5, 60):
                self.assertRaises(exceptions.NotRefilled, self.reconcile)
            self.assertEqual(self.expected[0], self.b.read(self.volume.id, 0))
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)
        self.assertNotIn('[localclone-207]', self.log.output)
        self.assertIn('[localclone-206]', self.log.output)
        self.assertIn('bad sector', self.log.output)
        self.assertIn('Only a known loss keeps', self.log.output)

    def test_accepted_and_all_is_copied(self):
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        self.reconcile()
        self.settled()
        self.assertNotIn('[localclone-208]', self.log.output)

    @ddt.data(FileNotFoundError('python'), thin_map.OddMap('odd'))
    def test_accepted_whatever_fails(self, error):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with self.failing('clones', 'refill', error):
            for clock.return_value in (5, 64):
                self.assertRaises(exceptions.NotRefilled, self.reconcile)
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted_though_the_mark_stays(self):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with self.failing('lvm', 'unmark', FileNotFoundError('lvchange')):
            clock.return_value = 5
            self.assertRaises(FileNotFoundError, self.reconcile)
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        # Nothing is missing.
        self.assertNotIn('[localclone-208]', self.log.output)

    def test_accepted_and_lost_again(self):
        """What can be copied is, but nobody goes round for ever."""
        self.lose(1)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[[[1, 1]]]):
            for clock.return_value in (5, 35, 64):
                self.assertRaises(exceptions.NotAllCopied, self.reconcile)
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)

    def test_accepted_and_lost_once_more(self):
        self.lose(1)
        self.tag(names.ACCEPTED)
        self.waiting().return_value = 5
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[[[1, 1]]]):
            self.assertRaises(exceptions.NotAllCopied, self.reconcile)
        self.settled()

    @ddt.data(*itertools.product(('reconcile', 'reconcile_moves'),
                                 (True, False)))
    @ddt.unpack
    def test_source_that_answers_late(self, sweep, holes):
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
        act = {'reconcile': self.reconcile,
               'reconcile_moves': self.b.reconciler.reconcile_moves}[sweep]
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
            self.reconcile()
        with self.failing('peers', 'holes', KeyError('strange')):
            self.b.reconciler.reconcile_moves()
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
                self.reconcile()
            if len(asked) < 3:
                raise AWAY
            return inner(*args)
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            for clock.return_value in (5, 10, 15):
                self.reconcile()
        self.assertEqual(3, len(asked))
        self.settled()
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_source_that_is_down_is_not_asked_ahead(self):
        """Nor is one that is not needed any more."""
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY) as asked:
            clock.return_value = 5
            self.reconcile()
            self.a.dead = True
            self.reconcile()
            self.assertEqual(1, asked.call_count)
            clock.return_value = 70
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual({}, self.b.reconciler.comparison._silent)

    def test_answer_counts_once(self):
        """Whoever looks without asking ahead asks then."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (5, 10):
                self.reconcile()
        with self.b.lock(self.volume.id):
            self.b.reconciler.reconcile_locked(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())
        self.settled()

    def test_answer_that_is_not_needed_any_more(self):
        """It ends without: its own pool can't be looked at."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            clock.return_value = 5
            self.reconcile()
            clock.return_value = 70
            with self.failing('clones', 'unmapped_blocks', TIMEOUT):
                self.reconcile()
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
                self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-208]', self.log.output)

    def test_accepted_and_something_fails_now_and_then(self):
        """What can be copied still is."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)
        self.waiting().return_value = 5
        busy = exceptions.Busy(what='pool', host=B, seconds=10)
        for name in ('unmapped_blocks', 'refill'):
            with self.failing('clones', name, busy), contextlib.suppress(
                    exceptions.NotRefilled):
                self.reconcile()
            self.assertIs(Phase.MIGRATING, self.phase())
        self.reconcile()
        self.settled()

    def test_pool_that_fails_is_not_hidden(self):
        """Not by what fails after it."""
        self.lose(0)
        self.tag(names.ACCEPTED)
        with self.failing('clones', 'refill', exceptions.PoolFails(
                pool='p', host=B, mode='ro')), self.failing(
                'handles', 'forget_read', TIMEOUT):
            for _look in range(3):
                self.assertRaises(exceptions.PoolFails, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    @ddt.data(
        ('sessions', 'attach', exceptions.SourceUnreachable(
            portal='p', reason='EIO')),
        ('clones', 'refill', exceptions.CommandFailed(
            command='python', code=1, stderr='EIO')),
        ('clones', 'refill', FileNotFoundError('EIO')),
        ('handles', 'forget_read', exceptions.CommandFailed(
            command='blockdev', code=1, stderr='EIO')))
    @ddt.unpack
    def test_way_out_is_told(self, room, name, error):
        """Whatever fails each time."""
        self.lose(0)
        with self.failing(room, name, error):
            for _look in range(3):
                found = self.assertRaises(exceptions.NotRefilled,
                                          self.reconcile)
        self.assertIn('EIO', str(found))
        self.assertIn('lvchange --addtag localclone.accepted', str(found))
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_fails_is_told_whatever_fails_then(self):
        self.lose(0)
        with self.failing('clones', 'refill', exceptions.CommandFailed(
                command='python', code=1, stderr='EIO')), self.failing(
                'handles', 'forget_read', OSError('then')):
            error = self.assertRaises(exceptions.NotRefilled,
                                      self.reconcile)
        self.assertIn('EIO', str(error))

    def test_lost_again_and_not_seen(self):
        """It was lost once: nobody takes the clone at its word."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
            self.lose(1)  # the pool is broken still
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.settled()

    def test_lost_again_and_seen_later(self):
        """It is copied once more."""
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.lose(1)
        self.reconcile()
        self.settled()

    def test_copied_again_and_seen_later(self):
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with mock.patch.object(worlds.SimClones, 'refill') as again:
            self.reconcile()
        again.assert_not_called()
        self.assertEqual({}, self.b.reconciler.comparison.memory.copied)
        self.settled()

    @ddt.data(TIMEOUT, FileNotFoundError('thin_dump'), thin_map.OddMap('odd'))
    def test_read_is_forgotten_whatever_fails(self, error):
        self.lose(1)
        with self.not_seen_again(error), mock.patch.object(
                worlds.SimHandles, 'forget_read') as forgotten:
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        forgotten.assert_called_once_with(self.volume.id)

    def test_read_is_forgotten_before_it_is_given_up(self):
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with self.failing('peers', 'holes', AWAY), mock.patch.object(
                worlds.SimHandles, 'forget_read') as forgotten:
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.reconcile()
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
            self.reconcile()
        clock.return_value = 65
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.settled()

    def test_copied_again_and_its_source_is_away(self):
        """It is there, as the map here says: nobody has to accept that."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 69):
                self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 70
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_all_pieces_are_told(self):
        self.lose(0, 1)
        inner = worlds.SimClones.refill

        def pieces(stack, move, disk, missing, factor):
            for region in (0, 1):
                yield from inner(stack, move, disk, [[region, 1]], factor)
        with mock.patch.object(worlds.SimClones, 'refill', pieces):
            self.reconcile()
        self.assertIn('. 128 KiB were copied', self.log.output)
        self.settled()

    def test_cut_short_and_lost_again(self):
        """What was cut short is looked at before it can be hidden."""
        self.lose(0, 1)

        def late(stack, *args):
            yield [[0, 1]]  # the pool is broken still
            raise exceptions.TakesLong(seconds=30)
        with mock.patch.object(worlds.SimClones, 'refill', late):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.b.lvs[self.volume.name][0] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_cut_short_on_a_pool_that_fails(self):
        """That is what is said, and nobody accepts it."""
        self.lose(0, 1)
        self.tag(names.ACCEPTED)

        def late(stack, *args):
            yield [[0, 1]]
            self.b.pool_fails = True
            raise exceptions.TakesLong(seconds=30)
        with mock.patch.object(worlds.SimClones, 'refill', late):
            self.assertRaises(exceptions.PoolFails, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_seen_to_be_lost_again_while_its_source_is_away(self):
        """The map here has said so, whoever hides it then."""
        self.lose(1)
        self.waiting().return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.lose(1)  # the pool is broken still
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_seen_to_be_lost_again_and_not_copied_then(self):
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.lose(1)
        with self.failing('clones', 'refill', unread('bad sector')):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_accepted_while_away_and_read_is_forgotten(self):
        self.lose(0)
        self.tag(names.ACCEPTED)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with self.failing('peers', 'holes', AWAY), mock.patch.object(
                worlds.SimHandles, 'forget_read') as forgotten:
            for clock.return_value in (10, 80):
                self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertTrue(forgotten.called)

    def test_read_of_what_is_there_in_part_is_forgotten(self):
        self.lose(0)

        def in_part(stack, *args):
            self.b.lvs[self.volume.name][0] = 'a part'
            raise exceptions.CommandTimeout(command='python', seconds=10)
            yield
        with mock.patch.object(worlds.SimClones, 'refill', in_part), \
                self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with mock.patch.object(worlds.SimHandles, 'forget_read') as forgotten:
            self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertTrue(forgotten.called)

    def test_all_was_copied_though_the_mark_is_there(self):
        """Nothing is known to be lost: nobody waits for ever."""
        self.lose(1)
        with self.failing('lvm', 'unmark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.reconcile)
        clock = self.waiting()
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (5, 65):
                self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_accepted_on_a_pool_that_fails(self):
        """That says nothing of what is written now."""
        self.tag(names.ACCEPTED)
        self.b.pool_fails = True
        for _look in range(3):
            self.assertRaises(exceptions.PoolFails, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def again(self):
        """In a service that was started again."""
        self.restart()
        with contextlib.suppress(exceptions.Lacking):
            self.reconcile()

    def test_mark_that_failed_is_tried_again(self):
        """Also when nothing is missing any more."""
        self.lose(1)
        with self.failing('lvm', 'mark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.reconcile)
        self.b.lvs[self.volume.name][1] = 'a part'
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        self.again()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_marked_once(self):
        self.lose(1)
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimLvm, 'mark') as marked:
            self.assertRaises(exceptions.Lacking, self.reconcile)
        marked.assert_not_called()

    def test_lv_that_lvm_does_not_list(self):
        """Nobody knows whether it is marked."""
        self.tag(names.LACKING)
        inner = worlds.SimLvm.lvs

        def without(stack):
            found = inner(stack)
            found.pop(self.volume.name, None)
            return found
        with mock.patch.object(worlds.SimLvm, 'lvs', without):
            self.assertRaises(exceptions.MissingData, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_read_is_forgotten_before_it_ends(self):
        """Whatever fails, it is tried again."""
        self.lose(1)
        with self.failing('handles', 'forget_read', TIMEOUT):
            for _look in range(2):
                self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])
        with mock.patch.object(worlds.SimHandles, 'forget_read') as forgotten:
            self.reconcile()
        forgotten.assert_called_once_with(self.volume.id)
        self.settled()

    def test_read_is_forgotten_if_not_all_is_copied(self):
        self.lose(1)
        with mock.patch.object(
                worlds.SimClones, 'refill', side_effect=unread('r')), \
                mock.patch.object(worlds.SimHandles,
                                  'forget_read') as forgotten:
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        forgotten.assert_called_once_with(self.volume.id)

    def test_mark_of_an_earlier_service_is_of_all(self):
        """What it copied, or not, nobody knows."""
        self.tag(names.LACKING)
        self.lose(0)
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_mark_alone(self):
        """Nothing is copied for it, and it is there."""
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimClones, 'refill') as again, \
                mock.patch.object(worlds.SimLvm, 'mark') as marked:
            self.assertRaises(exceptions.Lacking, self.reconcile)
        again.assert_not_called()
        marked.assert_not_called()

    def test_wait_of_what_is_marked_is_told(self):
        self.tag(names.LACKING)
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()
        self.assertIn('[localclone-206]', self.log.output)

    def test_lost_again_and_hidden(self):
        self.lose(1)
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[[[1, 1]]]):
            self.assertRaises(exceptions.NotAllCopied, self.reconcile)
        self.b.lvs[self.volume.name][1] = 'hidden'
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_lost_again_and_nothing_forgets_what_was_read(self):
        """What the map has shown stays."""
        self.lose(1)
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=[[[1, 1]]]), \
                self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotAllCopied, self.reconcile)
        self.hide(1)
        self.lacking()

    def missing_while_its_source_is_away(self):
        self.lose(1)
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()

    def test_seen_to_be_missing_while_its_source_is_away(self):
        self.missing_while_its_source_is_away()
        self.hide(1)
        self.lacking()

    def test_seen_to_be_missing_and_nobody_tells_who_runs(self):
        self.lose(1)
        with mock.patch.object(self.b.node.services, 'alive_by_host',
                               side_effect=RuntimeError('the database')):
            self.assertRaises(RuntimeError, self.reconcile)
        self.hide(1)
        self.lacking()

    def test_hole_that_is_written_to_while_its_source_is_away(self):
        """The source has never had that."""
        self.missing_while_its_source_is_away()
        self.b.write(self.volume.id, HOLE, 'new')
        self.expected[HOLE] = 'new'
        self.reconcile()
        self.settled()

    def test_read_is_forgotten_after_an_earlier_service(self):
        """It was killed before it could."""
        self.lose(1)
        with self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.restart()
        with mock.patch.object(
                self.b.node.services, 'alive_by_host', return_value={}), \
                mock.patch.object(
                    worlds.SimHandles, 'forget_read') as forgotten:
            self.reconcile()
        forgotten.assert_called_once_with(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    @ddt.data((), (TIMEOUT,))
    def test_mark_goes_when_all_is_there_though_its_source_is_away(self, odd):
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with self.failing('peers', 'holes', AWAY):
            with self.failing('lvm', 'unmark', TIMEOUT) if odd else (
                    contextlib.nullcontext()):
                self.reconcile()
            clock.return_value = 6
            self.reconcile()
            self.assertNotIn(names.LACKING,
                             self.b.disk.tags[self.volume.name])
        self.restart()
        self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_lost_again_and_nobody_tells_who_runs(self):
        """Whatever fails after that."""
        self.lose(1)
        with self.not_seen_again(TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.lose(1)
        inner, asked = self.b.node.services.alive_by_host, []

        def second():
            asked.append(True)
            if len(asked) > 1:
                raise RuntimeError('the database')
            return inner()
        with mock.patch.object(self.b.node.services, 'alive_by_host', second):
            self.assertRaises(RuntimeError, self.reconcile)
        self.hide(1)
        self.lacking()

    def test_read_is_forgotten_or_it_does_not_end(self):
        """Also while its source is away."""
        self.lose(1)
        clock = self.waiting()
        with self.failing('handles', 'forget_read', TIMEOUT):
            for clock.return_value in (5, 6):
                self.assertRaises(exceptions.NotRefilled, self.reconcile)
            with self.failing('peers', 'holes', AWAY):
                for clock.return_value in (70, 140, 210):
                    error = self.assertRaises(exceptions.NotRefilled,
                                              self.reconcile)
        self.assertIn('lvchange --addtag localclone.accepted', str(error))
        self.assertIs(Phase.MIGRATING, self.phase())
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (220, 290):
                self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual(set(), self.comparison.memory.read)

    def test_read_is_forgotten_though_its_source_is_forgotten(self):
        self.lose(1)
        with self.failing('clones', 'refill', TIMEOUT), \
                self.failing('handles', 'forget_read', TIMEOUT):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        with mock.patch.object(
                self.b.node.services, 'alive_by_host', return_value={}), \
                mock.patch.object(
                    worlds.SimHandles, 'forget_read') as forgotten:
            self.reconcile()
        forgotten.assert_called_once_with(self.volume.id)
        self.assertIs(Phase.RELEASING, self.phase())

    def test_read_is_forgotten_once(self):
        """It is not flushed at each look while its operator sleeps."""
        self.tag(names.LACKING)
        with mock.patch.object(worlds.SimHandles, 'forget_read') as forgotten:
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
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=0)
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertIn('[localclone-207]', self.log.output)
        self.assertNotIn('[localclone-208]', self.log.output)

    def test_known_without_a_mark(self):
        """Whatever keeps it from being marked, it is not given up."""
        self.lose(1)
        clock = self.waiting()
        clock.return_value = 5
        with self.failing('lvm', 'mark', TIMEOUT):
            self.assertRaises(exceptions.CommandTimeout, self.reconcile)
        with self.failing('peers', 'holes', AWAY):
            for clock.return_value in (10, 80):
                with contextlib.suppress(exceptions.Lacking):
                    self.reconcile()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_wait_that_is_over(self):
        self.waiting().return_value = 5
        with self.failing('peers', 'holes', AWAY):
            self.reconcile()
        self.assertNotEqual({}, self.comparison.memory.unseen)
        self.reconcile()
        self.assertEqual({}, self.comparison.memory.unseen)

    def repaired(self):
        return callers.Answers(mock.Mock(
            node=self.b.node, reconciler=self.b.reconciler)).repair(
                self.volume.id)

    def test_repaired_by_an_operator(self):
        """What he copies the service knows."""
        self.lose(0, 1)
        with cut_short():
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        self.repaired()
        self.settled()

    @ddt.data(('clones', 'refill', exceptions.Busy(
        what='pool', host=B, seconds=30)),
        ('sessions', 'attach', exceptions.SourceUnreachable(
            portal='p', reason='r')))
    @ddt.unpack
    def test_source_stays_until_it_is_copied(self, room, name, error):
        self.lose(2)
        with self.failing(room, name, error):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(self.volume.name.replace(
            self.volume.name_id, self.volume.id), self.a.lvs)
        self.reconcile()
        self.settled()

    def test_what_may_be_there_in_part(self):
        """The map does not tell any more: the source stays."""
        self.lose(0, 1, 2)

        def in_part(stack, *args):
            self.b.lvs[self.volume.name][0] = 'a part'
            raise exceptions.CommandTimeout(command='python', seconds=10)
            yield
        with mock.patch.object(worlds.SimClones, 'refill', in_part):
            self.assertRaises(exceptions.NotRefilled, self.reconcile)
        # All others are copied.
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.reconcile)
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
        with mock.patch.object(worlds.SimClones, 'refill', cut):
            self.assertRaises(worlds.Stopped, self.reconcile)
        self.b.dead = False
        self.b.reconciler.reconcile_node(moves=False)
        for _look in range(2):
            self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    @ddt.data((), [[[1, 1]]])
    def test_lost_again(self, written):
        """The pool is broken still: nobody goes round in circles."""
        self.lose(1)
        with mock.patch.object(worlds.SimClones, 'refill',
                               return_value=written) as again:
            self.assertRaises(exceptions.NotAllCopied, self.reconcile)
        again.assert_called_once()
        self.assertIs(Phase.MIGRATING, self.phase())

    NOT_SEEN = (
        ('clones', exceptions.CommandFailed(
            command='thin_dump', code=1, stderr='')),
        ('clones', FileNotFoundError('thin_dump')),
        ('clones', thin_map.OddMap('odd')),
        ('peers', exceptions.PeerUnreachable(
            host=A, method='holes', seconds=30, reason='')),
        ('peers', exceptions.OtherVersion(host='a@l')))

    def not_seen(self, room, error):
        return self.failing(
            room, 'holes' if room == 'peers' else 'unmapped_blocks', error)

    def test_source_whose_service_is_down(self):
        """It is not even asked: that would take too long each time."""
        self.lose(1)
        self.waiting().return_value = 5
        with mock.patch.object(type(self.b.node.services._inner),
                               'alive_by_host',
                               return_value={A: False, B: True}), \
                mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.reconcile()
        asked.assert_not_called()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_source_whose_node_was_forgotten(self):
        """Nobody waits for that one; but it is told."""
        self.lose(1)
        self.waiting().return_value = 5
        with mock.patch.object(type(self.b.node.services._inner),
                               'alive_by_host',
                               return_value={B: True}), \
                mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.reconcile()
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
                self.b.reconciler.copying, 'note_failed_check') as hindered:
            for clock.return_value in (5, 64):
                self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
        self.assertEqual(2, hindered.call_count)
        self.assertEqual(1, self.log.output.count('[localclone-206]'))
        self.reconcile()
        self.settled()
        self.assertEqual({}, self.comparison.memory.unseen)

    @ddt.data(*NOT_SEEN)
    @ddt.unpack
    def test_what_cannot_be_seen_for_too_long(self, room, error):
        """The source may be lost; what is here can be used as it is."""
        clock = self.waiting()
        with self.not_seen(room, error):
            for clock.return_value in (5, 65):
                self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())
        self.assertEqual({}, self.comparison.memory.unseen)
        self.assertIn('[localclone-207]', self.log.output)

    def test_pool_that_fails_still(self):
        """Then the very thing has happened: the source stays."""
        clock = self.waiting()
        self.b.pool_fails = True
        for clock.return_value in (5, 65, 1e6):
            self.assertRaises(exceptions.PoolFails, self.reconcile)
            self.assertIs(Phase.MIGRATING, self.phase())
        self.b.pool_fails = False
        self.lose(0)
        self.reconcile()
        self.settled()

    @ddt.data(('clones', TIMEOUT), ('peers', exceptions.PoolFails(
        pool='p', mode='ro', host=A)))
    @ddt.unpack
    def test_pool_that_fails_and_something_else(self, room, error):
        clock = self.waiting()
        with self.not_seen(room, error):
            clock.return_value = 5
            self.reconcile()
            self.assertIs(Phase.MIGRATING, self.phase())
            with mock.patch.object(worlds.SimClones, 'check_pool',
                                   side_effect=exceptions.PoolFails(
                                       pool='q', mode='ro', host=B)):
                clock.return_value = 65
                said = self.assertRaises(
                    exceptions.PoolFails, self.reconcile)
            self.assertIn('pool q', str(said))
            with self.failing('handles', 'forget_read', TIMEOUT), \
                    mock.patch.object(worlds.SimClones, 'check_pool',
                                      side_effect=said), \
                    mock.patch.object(worlds.SimLvm, 'unmark') as unmarked:
                self.comparison.memory.read.add(next(iter(
                    self.world.move_records)))
                self.comparison.memory.known[next(iter(
                    self.world.move_records))] = ()
                self.assertIs(said, self.assertRaises(
                    exceptions.PoolFails, self.reconcile))
            unmarked.assert_not_called()
            self.comparison.memory.read.clear()
            self.comparison.memory.known.clear()
            self.reconcile()
            self.assertIs(Phase.MIGRATING, self.phase())

    def test_pool_that_fails_ends_another_wait(self):
        clock = self.waiting()
        with self.not_seen('peers', self.NOT_SEEN[-1][1]):
            clock.return_value = 5
            self.reconcile()
            self.b.pool_fails = True
            self.assertRaises(exceptions.PoolFails, self.reconcile)
            self.b.pool_fails = False
            clock.return_value = 65
            self.reconcile()
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_is_a_mistake_in_the_driver(self):
        """It says nothing of the source."""
        clock = self.waiting()
        with self.not_seen('peers', KeyError()):
            for clock.return_value in (5, 65):
                self.assertRaises(KeyError, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_wait_that_is_longer_than_an_hour(self):
        clock = self.waiting()
        self.comparison._node = dataclasses.replace(
            self.b.node, compare_wait=7200)
        with self.not_seen('peers', self.NOT_SEEN[-1][1]):
            for clock.return_value in (5, 1805, 3605, 5405, 7204):
                self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 7205
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_pool_of_the_source_that_fails(self):
        """It may never be repaired."""
        clock = self.waiting()
        with self.not_seen('peers', exceptions.PoolFails(
                pool='p', host=A, mode='ro')):
            for clock.return_value in (5, 65):
                self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    @ddt.data('deleting', 'error_deleting')
    def test_volume_that_is_being_deleted(self, status):
        """Nothing is compared, or ended, of what goes."""
        self.volume.status = status
        with mock.patch.object(self.b.reconciler.comparison,
                               'ensure_whole') as compared, mock.patch.object(
                self.b.reconciler.copying, 'note_failed_check') as hindered:
            self.reconcile()
        compared.assert_not_called()
        hindered.assert_called_once()  # others need not wait for it
        self.assertIs(Phase.MIGRATING, self.phase())

    def test_what_could_not_be_seen_long_ago(self):
        """That it was so then is no reason to give up now."""
        clock = self.waiting()
        error = self.NOT_SEEN[-1][1]
        with self.not_seen('peers', error):
            for clock.return_value in (5, 5000, 5050):
                self.reconcile()
                self.assertIs(Phase.MIGRATING, self.phase())
            clock.return_value = 5060
            self.reconcile()
        self.assertIs(Phase.RELEASING, self.phase())

    def test_nobody_is_asked_if_all_is_there(self):
        self.b.lvs[self.volume.name][HOLE] = 'written'
        with mock.patch.object(self.b.node.peers, 'holes') as asked:
            self.reconcile()
        asked.assert_not_called()

    def test_a_move_that_was_recorded_as_complete(self):
        """Then it was compared: the source may be gone by now."""
        with mock.patch.object(
                self.b.reconciler.comparison, 'ensure_whole') as compared, \
                self.failing('lvm', 'flush_lv', exceptions.CommandFailed(
                    command='c', code=1, stderr='')):
            self.assertRaises(exceptions.CommandFailed, self.reconcile)
            self.assertIs(Phase.COMPLETING, self.phase())
            self.assertRaises(exceptions.CommandFailed, self.reconcile)
        compared.assert_called_once_with(mock.ANY)

    def test_source_of_an_earlier_move_is_not_asked_ahead(self):
        """The volume moves again."""
        comparison = self.b.reconciler.comparison
        earlier = dataclasses.replace(
            self.b.node.moves.move_of(self.volume.id), move_id='earlier')
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
                self.reconcile()
            return answer
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            for clock.return_value in (5, 10, 15):
                self.reconcile()
        self.settled()
        self.assertEqual(({}, {}), (self.b.reconciler.comparison._silent,
                                    self.b.reconciler.comparison._answers))

    def test_source_that_answers_when_the_volume_moves_again(self):
        """Nobody would ever ask for that answer."""
        comparison = self.b.reconciler.comparison
        move = self.b.node.moves.move_of(self.volume.id)
        later = dataclasses.replace(move, move_id='later')

        def ask(*_args):
            comparison._silent[self.volume.id] = later
            return []
        comparison._silent[self.volume.id] = move
        with mock.patch.object(self.b.node.peers, 'holes', ask):
            comparison.ask_ahead(self.volume.id)
        self.assertEqual(({self.volume.id: later}, {}), (
            comparison._silent, comparison._answers))
