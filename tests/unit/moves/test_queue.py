# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be copied: the rule, and what the nodes do about it."""

import collections
import errno
import itertools
import random
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import copies as copies_module
from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import copying
from cinder_localclone.moves import hydration
from cinder_localclone.moves import queue
from cinder_localclone.service import options
from cinder_localclone.volumes import exports
from tests import world as worlds

A, B, C, D = 'a@l', 'b@l', 'c@l', 'd@l'
NONE = copies_module.Limits(0, 0)


def entry(name, source=A, destination=B, **more):
    return copies_module.Entry(
        name, 'volume ' + name, source, destination, **more)


def running(entries, limits=NONE, dead=()):
    return ''.join(sorted(key for key, turn in queue.turns(
        entries, limits, dead).items() if turn.runs))


@ddt.ddt
class OrderTest(testtools.TestCase):

    LIMITS = copies_module.Limits(1, 0)

    @ddt.named_data(
        ('age', entry('b', began=1), entry('a', began=2)),
        ('attached', entry('b', began=2, attached=True),
         entry('a', began=1)),
        ('awaited', entry('b', awaited=True),
         entry('a', attached=True)),
        ('awaited and attached', entry('b', awaited=True, attached=True),
         entry('a', awaited=True)),
        ('id', entry('a'), entry('b')),
        ('stalled', entry('b', began=1),
         entry('a', awaited=True, attached=True, stalled=1)),
        ('stalled before', entry('b', stalled=1),
         entry('a', awaited=True, attached=True, stalled=2)),
        ('stalled or dead', entry('b', stalled=1),
         entry('a', C, awaited=True)),
        ('dead source', entry('b', began=1),
         entry('a', C, awaited=True, attached=True)))
    def test_which_of_two_comes_first(self, first, second):
        for both in itertools.permutations((first, second)):
            turns = queue.turns(both, self.LIMITS, {C})
            self.assertEqual((0, 1), (
                turns[first.shadow_id].place, turns[second.shadow_id].place))
            self.assertEqual((True, False), (
                turns[first.shadow_id].runs, turns[second.shadow_id].runs))
            self.assertIs(second, turns[second.shadow_id].entry)

    def test_a_dead_destination_copies_nothing_either(self):
        self.assertEqual('b', running([entry('a', A, C), entry('b', A, B)],
                                      copies_module.Limits(0, 1), {C}))

    def test_nothing_is_waited_for_where_all_are_dead(self):
        """Their kernels may serve; and there is nobody to make room for."""
        entries = [entry(name, began=n) for n, name in enumerate('cba')]
        self.assertEqual(
            'bc', running(entries, copies_module.Limits(), {A, B}))

    @ddt.data((copies_module.Limits(), 'abef'),
              (copies_module.Limits(1, 1), 'ae'),
              (copies_module.Limits(0, 2), 'abef'),
              (copies_module.Limits(2, 0), 'abef'),
              (NONE, 'abcdef'), (copies_module.Limits(-1, -2), 'abcdef'),
              (copies_module.Limits(99, 99), 'abcdef'))
    @ddt.unpack
    def test_limits(self, limits, expected):
        """Who waits for nodes holds nobody up who does not need these."""
        entries = [entry(name, began=1) for name in 'abcd'] + [
            entry(name, C, D, began=2) for name in 'ef']
        self.assertEqual(expected, running(entries, limits))

    def test_nobody(self):
        self.assertEqual({}, queue.turns([], copies_module.Limits(), {A}))

    @ddt.data(copies_module.Limits(1, 2), copies_module.Limits(2, 1))
    def test_either_end_is_enough(self, limits):
        one_source = [entry('a', A, B), entry('b', A, C), entry('c', A, D)]
        one_end = [entry('a', A, D), entry('b', B, D), entry('c', C, D)]
        self.assertEqual(limits.out_of, len(running(one_source, limits)))
        self.assertEqual(limits.into, len(running(one_end, limits)))

    def test_places(self):
        """Among those that wait for the same nodes."""
        entries = [*(entry(name, A, B) for name in 'abc'),
                   *(entry(name, C, D) for name in 'defg')]
        found = queue.turns(entries, copies_module.Limits(1, 1), ())
        self.assertEqual([0, 1, 2, 0, 1, 2, 3],
                         [found[name].place for name in 'abcdefg'])

    @ddt.data((1, '1st'), (2, '2nd'), (3, '3rd'), (4, '4th'), (11, '11th'),
              (12, '12th'), (13, '13th'), (21, '21st'), (112, '112th'))
    @ddt.unpack
    def test_in_words(self, place, word):
        self.assertEqual('waiting for its turn (%s)' % word,
                         copies_module.position_in_words(place))

    def test_options(self):
        conf = mock.Mock(localclone_max_copies_in=1,
                         localclone_max_copies_out=2)
        self.assertEqual(copies_module.Limits(1, 2), options.limits(conf))
        defaults = {each.dest: each.default for each
                    in options.localclone_opts}
        self.assertEqual(copies_module.Limits(),
                         options.limits(mock.Mock(**defaults)))


@ddt.ddt
class PropertyTest(testtools.TestCase):
    """What holds whatever the entries, the limits and the dead are."""

    def entries(self, chance, hosts):
        return [entry('%02d' % n, *chance.sample(hosts, 2),
                      attached=chance.random() < 0.3,
                      awaited=chance.random() < 0.3,
                      stalled=max(0, chance.randrange(-9, 4)),
                      began=chance.randrange(5))
                for n in range(chance.randrange(25))]

    @ddt.data(*range(60))
    def test_random(self, seed):
        chance = random.Random(seed)
        hosts = [A, B, C, D][:chance.randrange(2, 5)]
        entries = self.entries(chance, hosts)
        limits = copies_module.Limits(
            *(chance.randrange(4) for _each in range(2)))
        dead = set(chance.sample(hosts, chance.randrange(2)))
        alive = {each.shadow_id for each in entries if not each.ends & dead}
        rounds = 0
        while entries:
            turns = queue.turns(entries, limits, dead)
            for _node in hosts:  # each reads the rows in its own order
                chance.shuffle(entries)
                self.assertEqual(turns, queue.turns(entries, limits, dead))
            runs = [turn.entry for turn in turns.values() if turn.runs]
            self.assert_within(limits, runs)
            self.assert_none_runs_less(limits, turns, dead)
            ends = {each.shadow_id for each in runs
                    if each.shadow_id in alive}
            if not ends:
                break
            entries = [each for each in entries
                       if each.shadow_id not in ends]
            rounds += 1
        self.assertEqual(set(), alive & {
            each.shadow_id for each in entries}, 'some never end')
        self.assertLessEqual(rounds, 25)

    def assert_within(self, limits, runs):
        for count, limit in (
                *((n, limits.into) for n in collections.Counter(
                    each.destination for each in runs).values()),
                *((n, limits.out_of) for n in collections.Counter(
                    each.source for each in runs).values())):
            self.assertTrue(limit == 0 or count <= limit)

    def assert_none_runs_less(self, limits, turns, dead):
        """The dead take nothing from the others; nobody waits for nothing."""
        live = [turn.entry for turn in turns.values()
                if not turn.entry.ends & dead]
        alone = queue.turns(live, limits, dead)
        self.assertEqual(
            {key for key, turn in alone.items() if turn.runs},
            {each.shadow_id for each in live if turns[each.shadow_id].runs})
        runs = [turn.entry for turn in turns.values() if turn.runs]
        for turn in turns.values():
            if not turn.runs:
                with testtools.ExpectedException(AssertionError):
                    self.assert_within(limits, [*runs, turn.entry])


class StallTest(testtools.TestCase):

    def test_verdicts(self):
        stall, end = hydration.Stall(), hydration.STALLED
        for now, hydrated, verdict in (
                (0, 7, None), (end - 1, 7, None), (end, 7, True),
                (end + 5, 7, None), (2 * end - 1, 7, None),
                (2 * end, 7, True), (2 * end + 6, 8, False),
                (2 * end + 7, 8, None), (3 * end + 5, None, None),
                (3 * end + 6, None, True), (3 * end + 7, 9, False)):
            self.assertEqual(verdict, stall.check(hydrated, now), now)

    def test_what_was_never_seen(self):
        stall = hydration.Stall()
        self.assertIsNone(stall.check(None, 5))
        self.assertTrue(stall.check(None, 5 + hydration.STALLED))
        self.assertIsNone(hydration.Stall().check(0, 1))


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self, hosts=(A, B), limits=None):
        self.world = worlds.World(hosts=hosts)
        for node in self.world.nodes.values():
            object.__setattr__(node.node, 'limits', limits
                               or copies_module.Limits())
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]

    def moving(self, count, source=A, destination=B):
        volumes = [self.world.create_volume(source) for _each in range(count)]
        for volume in volumes:
            self.world.nodes[source].move(volume, destination)
        return volumes

    def copying(self):
        """The volumes that the kernels copy at this moment."""
        return [move.volume_id for move in self.world.shadows.values()
                for node in self.world.nodes.values()
                if node.devices.get(names.clone(move.shadow_id), {}).get(
                    'hydrating')]

    def look(self, *nodes):
        for node in nodes or self.world.nodes.values():
            node.reconciler.converge_moves()

    def check(self, volumes, host=B):
        self.world.settle()
        node = self.world.nodes[host]
        for volume in volumes:
            self.assertEqual(
                ['%s%d' % (volume.id[:4], n) for n in range(worlds.REGIONS)],
                [node.read(volume.id, n) for n in range(worlds.REGIONS)])
        self.assertEqual({}, self.world.shadows)


class ManyTest(Base):

    def test_twenty_at_once(self):
        volumes = self.moving(20)
        ids, most = [each.id for each in volumes], 0
        for _round in range(40):
            self.look()
            copying = self.copying()
            # In the order in which they began, whatever their ids are.
            self.assertEqual(ids[:2], sorted(copying, key=ids.index))
            for volume_id in ids:  # all of them are usable meanwhile
                self.b.read(volume_id, 3)
            most = max(most, len(copying))
            self.b.hydrate()
            ids = [each for each in ids if each not in copying]
            if not ids:
                break
        self.assertEqual(2, most)
        self.look()
        self.check(volumes)

    def test_the_next_begin_when_the_first_end(self):
        """In the same look, though its volume's turn in it was before."""
        self.begin(limits=copies_module.Limits(1, 1))
        volumes = self.moving(3)
        # A look takes the volumes by their ids; these began the other way.
        began = sorted(self.world.shadows.values(),
                       key=lambda move: move.volume_id, reverse=True)
        self.world.shadows = {move.shadow_id: move for move in began}
        for move in began:
            self.look(self.b)
            self.assertEqual([move.volume_id], self.copying())
            self.b.hydrate()
        self.check(volumes)

    def test_other_nodes_are_told_who_is_next(self):
        self.begin((A, B, C), copies_module.Limits(0, 1))
        first, = self.moving(1)
        second, = self.moving(1, destination=C)
        self.look()
        self.assertEqual([first.id], self.copying())
        self.b.hydrate()
        del self.world.told[:]
        self.look(self.b)
        self.assertIn((B, C, second.id), self.world.told)
        self.assertEqual([], self.copying())
        self.world.nodes[C].reconciler.converge(second.id)
        self.assertEqual([second.id], self.copying())
        self.check([first])
        self.check([second], C)

    def test_other_threads_use_turns_up(self):
        """All copies of a node are left out of a look.

        1. The service runs native threads, as Cinder 29 can have it. A look
           goes through the turns of all copies: at its begin, and when a
           copy has ended.
        2. Meanwhile a peer has a volume converged, which uses up its turn:
           the dictionary changes its size, and the look ends.

        By design: others get to see the turns when that is done.
        """
        first, second = self.moving(2)
        copies = self.b.reconciler.copying

        def others(_turn):
            for volume in (first, second):
                copies._turn(volume.name_id)
            return True
        copies.ended('x')
        with mock.patch.object(queue.Turn, 'runs', property(others)):
            with copies.look(self.world.shadows.values()):
                self.assertEqual([], copies.next())

    def test_nobody_is_told_of_those_that_run_already(self):
        self.begin((A, B, C))
        self.moving(1)
        self.moving(1, destination=C)
        self.look()
        self.b.hydrate()
        del self.world.told[:]
        self.look(self.b)
        self.assertEqual({A}, {to for _from, to, _id in self.world.told})

    def test_the_database_is_asked_once_a_look(self):
        self.moving(7)
        with mock.patch.object(
                worlds.SimRecords, 'copies', autospec=True,
                side_effect=worlds.SimRecords.copies) as copies:
            self.look(self.b)
            self.assertEqual(1, copies.call_count)
            self.look(self.a)  # it has nothing to copy
            self.assertEqual(1, copies.call_count)
            self.b.hydrate()
            self.look(self.b)  # once more for those that come next
            self.assertEqual(3, copies.call_count)

    def test_a_turn_of_an_earlier_look_is_not_used(self):
        self.begin(limits=copies_module.Limits(1, 1))
        one, two = self.moving(2)
        with self.b.lock(two.id):  # it is at work when the node looks
            self.look(self.b)
        self.assertEqual([one.id], self.copying())
        self.b.hydrate()
        self.b.reconciler.converge(one.id)
        self.b.reconciler.converge(two.id)
        self.assertEqual([two.id], self.copying())

    def test_a_turn_is_used_once(self):
        """A look may take minutes; what is asked for meanwhile sees more."""
        self.begin(limits=copies_module.Limits(1, 1))
        one, two = self.moving(2)
        reconciler = self.b.reconciler
        with reconciler.copying.look(self.b.node.records.moves_of(B)):
            reconciler.converge(one.id)
            reconciler.converge(two.id)
            self.assertEqual([one.id], self.copying())
            self.world.snapshot_row(two)
            reconciler.converge(one.id)
            reconciler.converge(two.id)
            self.assertEqual([two.id], self.copying())

    def test_what_is_not_in_the_queue_is_not_copied(self):
        """Its row was changed a moment ago."""
        self.moving(1)
        with mock.patch.object(worlds.SimRecords, 'copies', return_value=[]):
            self.look()
            self.assertEqual([], self.copying())
        self.look()
        self.assertEqual(1, len(self.copying()))

    def test_a_service_that_restarts_goes_on(self):
        volumes = self.moving(5)
        self.look()
        before = self.copying()
        self.b.stop(power=True)
        self.world.recover()
        self.assertEqual(before, self.copying())
        self.check(volumes)

    def test_no_limits(self):
        self.begin(limits=NONE)
        volumes = self.moving(20)
        self.look()
        self.assertEqual(20, len(self.copying()))
        self.check(volumes)


class PriorityTest(Base):

    def setUp(self):
        super().setUp()
        self.begin(limits=copies_module.Limits(1, 1))
        self.one, self.two, self.three = self.moving(3)
        self.look()

    def assert_copying(self, volume):
        self.look()
        self.assertEqual([volume.id], self.copying())

    def test_attached_ones_first(self):
        self.assert_copying(self.one)
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        self.assert_copying(self.three)
        self.three.volume_attachment = []
        self.assert_copying(self.one)

    def test_one_that_a_snapshot_waits_for(self):
        snapshot = self.world.snapshot_row(self.two)
        self.assert_copying(self.two)
        self.world.set_snapshot(snapshot, status='error')
        self.assert_copying(self.one)

    def test_one_that_a_clone_waits_for(self):
        clone = self.world.row(B, source_volid=self.three.id)
        self.assert_copying(self.three)
        clone.status = 'error'
        self.assert_copying(self.one)

    def test_what_waits_is_not_prompted_and_shows_its_place(self):
        for volume, place in ((self.one, 0), (self.two, 1), (self.three, 2)):
            progress = self.b.reconciler.progress(volume.name_id)
            self.assertEqual(place, progress.place)
            self.assertEqual(bool(place), 'its turn' in str(progress))
        waker = self.b.reconciler.copying.waker
        waker._was_ahead = False  # copies have given way to "prepare"
        with mock.patch.object(waker, '_send', return_value=[]) as send:
            waker.wake(0)
        send.assert_called_once_with(
            {self.one.name_id: copies_module.Step(32, 8)})

    def test_a_live_move_is_not_in_the_queue(self):
        live = self.world.create_volume(A)
        self.a.opened.add(names.handle(live.id))
        self.a.move(live, B, live=True)
        live.volume_attachment = [
            mock.Mock(connector={'host': host}, connection_info=None)
            for host in (A, B)]
        self.assert_copying(self.one)
        move = self.a.node.records.move_of(live.id)
        self.assertIs(Phase.STARTING, move.phase)
        self.assertNotIn(move.shadow_id, queue.turns(
            self.a.node.records.copies(A), NONE, ()))

    def test_what_the_guest_has_written_all_of_needs_no_turn(self):
        for region in range(worlds.REGIONS):
            self.b.write(self.three.id, region, 'new')
        with mock.patch.object(worlds.SimPeers, 'converge_soon'):
            self.b.reconciler.converge_node()
        self.assertEqual([self.one.id], self.copying())
        move, = self.b.node.records.remains_of(self.three.id)
        self.assertIs(Phase.RELEASING, move.phase)

    def test_places_are_logged_when_they_change(self):
        with mock.patch.object(events, 'LOG') as log:
            self.look()
        self.assertEqual([self.one.id], [
            each.args[1]['volume'] for each in log.info.call_args_list])
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        with mock.patch.object(events, 'LOG') as log:
            self.b.reconciler.converge_node()
        self.assertEqual(3, log.info.call_count)

    def test_what_waits_is_looked_at_with_the_node_only(self):
        """Its place is what the last look has found."""
        converge = self.b.reconciler.converge_locked
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        with mock.patch.object(self.b.reconciler, 'converge_locked',
                               side_effect=converge) as seen:
            self.look(self.b)
            self.assertEqual(
                {self.one.id, self.three.id},
                {call.args[0] for call in seen.mock_calls})
            self.assertEqual([0, 1, 2], [
                self.b.reconciler.progress(each.name_id).place
                for each in (self.three, self.one, self.two)])
            seen.reset_mock()
            self.b.reconciler.converge_node()
            self.assertEqual(
                {self.one.id, self.two.id, self.three.id},
                {call.args[0] for call in seen.mock_calls})
            self.b.stop(power=True)
            self.b.dead = False
            self.b.reconciler.copying._copies.clear()  # it starts again
            seen.reset_mock()
            self.look(self.b)
            self.assertEqual(3, len(seen.mock_calls))

    def test_database_that_does_not_answer_changes_nothing(self):
        with mock.patch.object(worlds.SimRecords, 'copies',
                               side_effect=ValueError):
            self.assertRaises(ValueError, self.look)
            self.b.reconciler._attempt(self.one.id)
        self.assertEqual([self.one.id], self.copying())


class FailingTest(Base):
    """Copies that make no progress hold nobody up."""

    def setUp(self):
        super().setUp()
        self.begin((A, B, C), copies_module.Limits(1, 1))
        self.now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock

    def test_a_dead_source_takes_no_slot(self):
        lost, = self.moving(1, source=C)
        other, = self.moving(1)
        self.look()
        self.assertEqual([lost.id], self.copying())
        self.world.nodes[C].stop(power=True)
        self.look(self.a, self.b)
        self.assertEqual([other.id], self.copying())
        self.b.hydrate()
        self.look(self.a, self.b)
        self.look(self.a, self.b)
        self.assertIsNone(self.a.node.records.move_of(other.id))
        self.check([lost, other])  # it is back

    def test_a_source_that_gives_errors(self):
        lost, = self.moving(1, source=C)
        other, = self.moving(1)
        self.world.nodes[C].unreadable = True
        for self.now.return_value in range(0, hydration.STALLED + 5, 5):
            self.assertEqual([], list(self.world.stalled))
            self.look()
            self.b.hydrate()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.look()
        self.assertEqual([other.id], self.copying())
        # Nor while it waits, whatever its guest writes.
        self.b.write(lost.id, 0, 'new')
        self.look()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.world.nodes[C].unreadable = False
        self.b.hydrate()
        for _time in range(4):
            self.look()
        self.assertEqual([lost.id], self.copying())
        self.b.hydrate()
        self.world.settle()
        self.assertEqual({}, self.world.shadows)

    def test_progress_makes_it_as_good_as_others(self):
        lost, other = *self.moving(1, source=C), *self.moving(1)
        self.b.node.records.note_stalled(
            self.b.node.records.move_of(lost.id), True)
        self.look()
        self.assertEqual([other.id], self.copying())
        self.b.hydrate()
        self.look()  # one look for its end, one to see where the next is
        self.look()
        self.assertEqual([lost.id], self.copying())
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.b.write(lost.id, 0, 'new')
        self.look()
        self.assertEqual([], list(self.world.stalled))

    def test_a_source_that_cannot_be_reached(self):
        lost, other = *self.moving(1, source=C), *self.moving(1)
        attach = worlds.SimSessions.attach

        def attaching(sessions, move):
            if move.source == C:
                raise exceptions.SourceUnreachable(portal='p', reason='r')
            return attach(sessions, move)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimSessions, 'attach', attaching))
        with mock.patch.object(events, 'LOG') as log:
            for self.now.return_value in (0, hydration.STALLED - 1):
                self.look()
                self.assertEqual([], list(self.world.stalled))
            log.warning.assert_not_called()
            self.now.return_value += 1
            self.look()
            self.look()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        log.warning.assert_called_once()
        self.assertEqual([other.id], self.copying())

    def test_those_that_are_stuck_take_turns(self):
        lost = self.moving(3, source=C)
        self.world.nodes[C].unreadable = True
        tried = []
        for self.now.return_value in range(0, 7 * hydration.STALLED, 20):
            self.look()
            tried += [each for each in self.copying()
                      if each not in tried[-1:]]
            self.b.hydrate()
        ids = [each.id for each in lost]
        # Each has a minute, and the time until the look that ends it.
        self.assertEqual([*ids, *ids], tried)

    def test_an_operator_reads_of_it_once(self):
        self.moving(1, source=C)
        with mock.patch.object(events, 'LOG') as log:
            for self.now.return_value in range(0, 9 * hydration.STALLED, 20):
                self.look()
        log.warning.assert_called_once()


class DeadEndTest(Base):

    def setUp(self):
        super().setUp()
        self.begin((A, B, C), copies.Limits(1, 1))
        self.now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock

    def looks(self):
        """For some minutes; the kernels copy."""
        for self.now.return_value in range(0, 5 * hydration.STALLED, 20):
            self.look(self.a, self.b)
            self.b.hydrate()

    def is_moved(self, volume):
        self.assertNotIn(volume.id, [
            move.volume_id for move in self.world.shadows.values()])

    def test_metadata_that_are_lost(self):
        """All other copies to a node, and from the source, wait for ever.

        1. Of a copy to B the metadata LV, or the LV, is gone (a disk was
           replaced), or blank (MetadataLost), or its source is another disk
           (WrongSource). Each look says so, and an operator has to decide.
        2. It keeps its turn: only a source that can't be reached, and a copy
           that stands still, are noted as stalled
           (:meth:`.reconcile.Reconciler._as_destination`). With the default
           limits two such copies are enough.

        Volumes that move to B, or from A, are never copied, nor snapshots
        taken of them.

        By design: whatever keeps a destination from building its stack keeps
        its copy from making progress, and is noted the same way.
        """
        lost, = self.moving(1)
        self.look()
        self.b.stop(power=True)
        self.b.dead = False
        for lv in (lost.name, names.metadata_lv(lost.name_id)):
            self.b.disk.remove(lv)
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_an_error_that_nobody_foresaw(self):
        """The same with an error that is none of the driver's own.

        What its stack needs is not in sysfs, or under /dev (FileNotFoundError
        of :func:`.block.size`, say, when udev has made no link), look after
        look: whatever was not raised as LocalCloneError was not noted.
        """
        lost, = self.moving(1)
        self.look()
        self.failing(lost, FileNotFoundError('/sys/block/x/size'))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def failing(self, lost, error):
        """The source of one volume can't be attached."""
        attach = worlds.SimSessions.attach

        def attaching(sessions, move):
            if move.volume_id == lost.id:
                raise error
            return attach(sessions, move)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimSessions, 'attach', attaching))

    def test_metadata_that_are_lost_while_the_source_is_away(self):
        """The same if a copy could not end without its source either.

        Whether it could was asked where the first error was dealt with: what
        failed then was never noted.
        """
        lost, = self.moving(1)
        self.look()
        self.failing(lost, exceptions.SourceUnreachable(
            portal='p', reason='r'))
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimClones, 'ensure_clone_alone',
            side_effect=exceptions.MetadataLost(device='d', volume=lost.id)))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_a_copy_that_can_not_be_ended(self):
        """The same when all is local.

        1. All of a volume is copied. That can't be made stable, look after
           look: a disk refuses to flush, or the path of what decrypts the
           volume is gone.
        2. It is in the queue until that is on record, and keeps its turn:
           of what is all copied no stall was ever noted.
        """
        lost, = self.moving(1)
        flush = worlds.SimHandles.flush_handle

        def flushing(stack, volume_id):
            if volume_id == lost.id:
                raise exceptions.CommandFailed(
                    command='sync', code=1, stderr='Input/output error')
            flush(stack, volume_id)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimHandles, 'flush_handle', flushing))
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)

    def test_trouble_with_the_target(self):
        """It stops no copy, whoever says so.

        1. A volume arrives that a host has over iSCSI, and what is exported
           has to be changed.
        2. rtslib is missing, or what it writes to configfs is refused
           (OSError): all but LocalCloneError ended the look at the volume
           before its copy was begun, or could be completed.
        """
        self.useFixture(fixtures.MockPatchObject(
            exports.Serving, 'settle',
            side_effect=OSError(errno.EINVAL, 'configfs')))
        volume, = self.moving(1)
        self.looks()
        self.is_moved(volume)

    def test_volume_that_was_given_up(self):
        """The node that inherits what is lost takes no copies any more.

        1. A volume is copied from A to C, and C is lost: an operator has C
           forgotten on B. The volume is in error, with B for its home; the
           record of its move stays, until its owner deletes it.
        2. B has nothing of it, and its look returns at once
           (:meth:`.reconcile.Reconciler._as_destination`), but in the queue
           it is a copy from A to B whose turn it is: two of them are enough.

        Until the owners delete all of them, no volume is copied to B, nor
        from A, the node to which users come for what they have left.

        By design: as above, it is noted as stalled.
        """
        lost, = self.moving(1, destination=C)
        self.world.nodes[C].stop(power=True)
        self.world.nodes[C].gone = True
        self.b.node.records._inner.give_up(lost, B + '#p')
        other, = self.moving(1)
        self.looks()
        self.is_moved(other)
