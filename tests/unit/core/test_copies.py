# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be copied."""

import collections
import itertools
import random
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import copies
from cinder_localclone.service import options

A, B, C, D = 'a@l', 'b@l', 'c@l', 'd@l'
NONE = copies.Limits(0, 0)


def entry(name, source=A, destination=B, **more):
    return copies.Entry(
        name, 'volume ' + name, source, destination, **more)


def running(entries, limits=NONE, dead=()):
    return ''.join(sorted(key for key, position in copies.positions(
        entries, limits, dead).items() if position.may_run))


@ddt.ddt
class OrderTest(testtools.TestCase):

    LIMITS = copies.Limits(1, 0)

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
            positions = copies.positions(both, self.LIMITS, {C})
            self.assertEqual((0, 1), (
                positions[first.move_id].number,
                positions[second.move_id].number))
            self.assertEqual((True, False), (
                positions[first.move_id].may_run,
                positions[second.move_id].may_run))
            self.assertIs(second, positions[second.move_id].entry)

    def test_a_dead_destination_copies_nothing_either(self):
        self.assertEqual('b', running([entry('a', A, C), entry('b', A, B)],
                                      copies.Limits(0, 1), {C}))

    def test_nothing_is_waited_for_where_all_are_dead(self):
        """Their kernels may serve; and there is nobody to make room for."""
        entries = [entry(name, began=n) for n, name in enumerate('cba')]
        self.assertEqual(
            'bc', running(entries, copies.Limits(), {A, B}))

    @ddt.data((copies.Limits(), 'abef'),
              (copies.Limits(1, 1), 'ae'),
              (copies.Limits(0, 2), 'abef'),
              (copies.Limits(2, 0), 'abef'),
              (NONE, 'abcdef'), (copies.Limits(-1, -2), 'abcdef'),
              (copies.Limits(99, 99), 'abcdef'))
    @ddt.unpack
    def test_limits(self, limits, expected):
        """Who waits for nodes holds nobody up who does not need these."""
        entries = [entry(name, began=1) for name in 'abcd'] + [
            entry(name, C, D, began=2) for name in 'ef']
        self.assertEqual(expected, running(entries, limits))

    def test_nobody(self):
        self.assertEqual({}, copies.positions([], copies.Limits(), {A}))

    @ddt.data(copies.Limits(1, 2), copies.Limits(2, 1))
    def test_either_end_is_enough(self, limits):
        one_source = [entry('a', A, B), entry('b', A, C), entry('c', A, D)]
        one_end = [entry('a', A, D), entry('b', B, D), entry('c', C, D)]
        self.assertEqual(limits.out_of, len(running(one_source, limits)))
        self.assertEqual(limits.into, len(running(one_end, limits)))

    def test_places(self):
        """Among those that wait for the same nodes."""
        entries = [*(entry(name, A, B) for name in 'abc'),
                   *(entry(name, C, D) for name in 'defg')]
        found = copies.positions(entries, copies.Limits(1, 1), ())
        self.assertEqual([0, 1, 2, 0, 1, 2, 3],
                         [found[name].number for name in 'abcdefg'])

    @ddt.data((1, '1st'), (2, '2nd'), (3, '3rd'), (4, '4th'), (11, '11th'),
              (12, '12th'), (13, '13th'), (21, '21st'), (112, '112th'))
    @ddt.unpack
    def test_in_words(self, position, word):
        self.assertEqual('waiting in the queue (%s)' % word,
                         copies.position_in_words(position))

    def test_options(self):
        conf = mock.Mock(localclone_max_copies_in=1,
                         localclone_max_copies_out=2)
        self.assertEqual(copies.Limits(1, 2), options.limits(conf))
        defaults = {each.dest: each.default for each
                    in options.localclone_opts}
        self.assertEqual(copies.Limits(),
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
        limits = copies.Limits(
            *(chance.randrange(4) for _each in range(2)))
        dead = set(chance.sample(hosts, chance.randrange(2)))
        alive = {each.move_id for each in entries if not each.hosts & dead}
        rounds = 0
        while entries:
            positions = copies.positions(entries, limits, dead)
            for _node in hosts:  # each reads the rows in its own order
                chance.shuffle(entries)
                self.assertEqual(positions,
                                 copies.positions(entries, limits, dead))
            runs = [position.entry for position in positions.values()
                    if position.may_run]
            self.assert_within(limits, runs)
            self.assert_none_runs_less(limits, positions, dead)
            ends = {each.move_id for each in runs
                    if each.move_id in alive}
            if not ends:
                break
            entries = [each for each in entries
                       if each.move_id not in ends]
            rounds += 1
        self.assertEqual(set(), alive & {
            each.move_id for each in entries}, 'some never end')
        self.assertLessEqual(rounds, 25)

    def assert_within(self, limits, runs):
        for count, limit in (
                *((n, limits.into) for n in collections.Counter(
                    each.destination for each in runs).values()),
                *((n, limits.out_of) for n in collections.Counter(
                    each.source for each in runs).values())):
            self.assertTrue(limit == 0 or count <= limit)

    def assert_none_runs_less(self, limits, positions, dead):
        """The dead take nothing from the others; nobody waits for nothing."""
        live = [position.entry for position in positions.values()
                if not position.entry.hosts & dead]
        alone = copies.positions(live, limits, dead)
        self.assertEqual(
            {key for key, position in alone.items() if position.may_run},
            {each.move_id for each in live if positions[each.move_id].may_run})
        runs = [position.entry for position in positions.values()
                if position.may_run]
        for position in positions.values():
            if not position.may_run:
                with testtools.ExpectedException(AssertionError):
                    self.assert_within(limits, [*runs, position.entry])
