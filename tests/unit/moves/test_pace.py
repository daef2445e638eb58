# SPDX-License-Identifier: Apache-2.0
"""How fast copies go: on traces of what the kernel counts, in the world."""

import contextlib
import dataclasses
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import copies as copies_module
from cinder_localclone.core.copies import Pace
from cinder_localclone.core.copies import Speed
from cinder_localclone.core.copies import Step
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import policy
from cinder_localclone.moves import copying as wake
from cinder_localclone.moves import hydration
from cinder_localclone.moves import pace
from cinder_localclone.moves.pace import GiveWay
from cinder_localclone.service import assembly
from cinder_localclone.volumes import reconcile
from tests.helpers import callers
from tests.helpers import specs
from tests import world as worlds
from tests.world import images

A, B = 'a@l', 'b@l'
MIB = 1 << 20
TICK = 0.05
GEOMETRY, MANY = state.Geometry(128, 32, 8), state.Geometry(128, 512, 32)
FULL, SLOW = Step(32, 8), Step(1, 1)
#: Seconds between two prompts where none comes during a test.
SELDOM = 10000
#: MiB a second that a kernel copies by threshold (facts of the lab: one
#: processor, regions of 64 KiB). IDLE: no guest. BUSY: a guest that hardly
#: leaves a gap, worse than any that was measured.
IDLE = {0: 0, 1: 34, 2: 43, 4: 60, 8: 73, 16: 86, 32: 117}
BUSY = {0: 0, 1: 0.2, 2: 0.5, 4: 2, 8: 6, 16: 12, 32: 25}


def stat(reads=0, writes=0, written=0, in_flight=0):
    """A line of /sys/dev/block/*/stat, with the 17 fields of 5.5 and later."""
    return '%8d %8d %8d %8d %8d %8d %8d %8d %8d %8d %8d%s\n' % (
        reads, 0, reads * 8, reads // 2, writes, 0, written, writes, in_flight,
        writes, writes, ' %8d' % 0 * 6)


def seen(ios=0, copied=0, in_flight=0):
    return copies_module.Seen(ios, in_flight, copied)


def trace():
    """What a guest does whose volume is copied: (second, both lines).

    Made by hand, in the form of what the prototype of the laws reads 20
    times a second: from 1 s to 4 s 25 synchronous writes of 4 KiB a second
    (a write and a flush each), at 7 s one read, from 9 s on one write that
    hangs. Beside that 43 MiB/s are copied.
    """
    writes = reads = 0
    for tick in range(220):
        second = tick / 20
        if 1 <= second < 4 and not tick % 4:  # 5 times a second: 5 writes
            writes += 10
        reads += second == 7
        guest = writes // 2 * 8
        copied = int(43 * MIB * second) // 512
        yield second, stat(reads, writes, guest, int(second >= 9)), stat(
            0, 0, guest + copied)


def run(law, how, lines=None):
    """The steps that a law takes: [(from which second, step, speed)]."""
    found = []
    for second, handle, lv in lines or trace():
        law.take(copies_module.parse_seen(handle, lv), second)
        step = law.step(how, second)
        if not found or found[-1][1:] != step:
            found.append((second, *step))
    return found


class Case(testtools.TestCase):

    def set(self, floor=None, prompt=None):
        """Have constants of the driver be others during a test."""
        for module, name, value in ((pace, 'FLOOR', floor),
                                    (wake, 'PROMPT', prompt)):
            if value is not None:
                self.useFixture(fixtures.MockPatchObject(module, name, value))


class LadderTest(testtools.TestCase):

    def steps(self, *geometry):
        return [(step.threshold, step.batch) for step in pace.ladder(
            state.Geometry(*geometry))]

    def test_of_the_default(self):
        self.assertEqual(
            [(1, 1), (2, 1), (4, 4), (8, 8), (16, 8), (32, 8), (64, 16),
             (128, 32), (256, 32), (512, 32)], self.steps(128, 512, 32))
        self.assertEqual([(1, 1), (2, 1), (4, 4), (8, 8), (16, 8), (32, 8)],
                         self.steps(128, 32, 8))

    def test_of_small_regions(self):
        self.assertEqual(
            [(16, 16), (32, 16), (64, 64), (128, 128), (256, 256)],
            self.steps(8, 256, 256))

    def test_of_large_regions(self):
        self.assertEqual([(1, 1), (2, 2), (4, 2)], self.steps(512, 4, 2))
        self.assertEqual([(1, 1), (2, 1), (3, 4)], self.steps(2048, 3, 4))

    def test_never_more_than_the_operator_has_set(self):
        self.assertEqual([(1, 1)], self.steps(128, 1, 1))
        self.assertEqual([(1, 1)], self.steps(8, 1, 1))
        self.assertEqual([(1, 1), (2, 1)], self.steps(128, 2, 1))
        for region in (8, 32, 128, 512, 2048):
            for threshold, batch in ((1, 1), (32, 8), (7, 256), (4096, 3)):
                steps = self.steps(region, threshold, batch)
                self.assertEqual((threshold, batch), steps[-1])
                self.assertEqual(sorted(steps), steps)
                self.assertLessEqual(max(each for _, each in steps), batch)


@ddt.ddt
class LawTest(Case):
    """One copy, on the trace; its kernel copies what it likes."""

    def setUp(self):
        super().setUp()
        self.law = pace.Law(GEOMETRY)

    def law_without_floor(self):
        self.set(floor=0)
        return pace.Law(MANY)

    def test_yields_while_the_guest_works_and_a_moment_after(self):
        found = run(self.law, Pace.YIELD)
        self.assertEqual([
            (0, FULL, Speed.FULL), (1.0, SLOW, Speed.YIELDING),
            (4.4, FULL, Speed.FULL), (7.0, SLOW, Speed.YIELDING),
            (7.65, FULL, Speed.FULL), (9.0, SLOW, Speed.YIELDING)], found)

    def test_spares_it_for_longer(self):
        self.assertEqual([
            (0, FULL, Speed.FULL), (1.0, SLOW, Speed.YIELDING)],
            run(self.law, Pace.SPARE))
        quiet = [(second, stat(9), stat(written=int(second * 99999)))
                 for second in (11, 15.9, 16.1)]
        self.assertEqual([(11, SLOW), (16.1, FULL)], [
            each[:2] for each in run(self.law, Pace.SPARE, quiet)])

    def test_full_speed_whatever_the_guest_does(self):
        self.assertEqual([(0, FULL, Speed.FULL)], run(self.law, Pace.FULL))

    @ddt.data((Pace.YIELD, 0.6, 5), (Pace.SPARE, 5, 30))
    @ddt.unpack
    def test_the_longer_it_rests_the_more(self, how, resting, gone):
        """What a guest does next waits for all that is under way."""
        law, found = self.law_without_floor(), []
        for now, ios in ((0, 0), (2, 1), (1.99 + resting, 1),
                         (2.01 + resting, 1), (1.99 + gone, 1),
                         (2.01 + gone, 1), (3 + gone, 2)):
            law.take(seen(ios), now)
            found.append(law.step(how, now)[0].threshold)
        self.assertEqual([32, 1, 1, 32, 32, 128, 1], found)
        law.take(None, 4 + gone)  # and maybe there is one
        self.assertEqual(32, law.step(how, 4 + gone)[0].threshold)
        for now in (5 + gone, 6 + 2 * gone):
            law.take(seen(2), now)
        self.assertEqual(128, law.step(how, now)[0].threshold)
        law.take(None, now + 1)
        self.assertEqual(32, law.step(how, now + 1)[0].threshold)

    def test_a_guest_that_never_came(self):
        law = self.law_without_floor()
        for now, threshold in ((0, 32), (0.05, 128), (9, 128)):
            law.take(seen(3), now)
            self.assertEqual(threshold, law.step(Pace.YIELD, now)[0].threshold)

    def test_all_that_is_set_whatever_the_guest_does(self):
        law = pace.Law(MANY)
        law.take(seen(in_flight=1), 0)
        self.assertEqual((Step(512, 32), Speed.FULL), law.step(Pace.FULL, 0))

    @ddt.data(Pace.YIELD, Pace.SPARE)
    def test_a_floor_that_is_out_of_reach(self, how):
        """A guest that waits for seconds.

        1. A link has less than the floor for a copy.
        2. Step by step all that is set was on its way, which made nothing
           quicker: each first touch waited for 32 MiB.

        By design: for the floor's sake as much as beside a guest that rests.
        """
        law = pace.Law(MANY)
        for now in range(60):
            law.take(seen(now), now)
            step = law.step(how, now)
        self.assertEqual((FULL, Speed.FLOOR), step)

    def test_a_copy_that_goes_on_beside_a_guest_that_rests(self):
        """A service has started: it knows of no rest before."""
        law = self.law_without_floor()
        for now, threshold in ((1000, 32), (1000.05, 32), (1029.9, 32),
                               (1030, 128)):
            law.take(seen(1000), now)
            self.assertEqual(threshold, law.step(Pace.SPARE, now)[0].threshold)

    @ddt.data(*Pace)
    def test_a_limit_is_not_gone_beyond_at_once(self, how):
        law = pace.Law(MANY)
        law.take(seen(), 0)
        law.take(seen(), 1)
        self.assertEqual((Step(32, 8), Speed.FULL), law.step(how, 1, 1.0))
        self.assertEqual((Step(8, 8), Speed.LIMITED), law.step(how, 1, 0.5))

    def test_gives_way_to_others(self):
        found = [self.law.step(how, now, give_way=way) for how, now, way in (
            (Pace.YIELD, 1, GiveWay.SLOWING), (Pace.SPARE, 2, GiveWay.SLOWING),
            (Pace.FULL, 2.5, GiveWay.SLOWING), (Pace.YIELD, 3, GiveWay.NO),
            (Pace.YIELD, 4, GiveWay.STOPPING),
            (Pace.SPARE, 5, GiveWay.STOPPING),
            (Pace.FULL, 6, GiveWay.STOPPING))]
        self.assertEqual(
            [(SLOW, Speed.YIELDING), (SLOW, Speed.YIELDING),
             (FULL, Speed.FULL), (FULL, Speed.FULL),
             (copies_module.STANDSTILL, Speed.YIELDING),
             (copies_module.STANDSTILL, Speed.YIELDING), (FULL, Speed.FULL)],
            found)

    def test_who_never_ends_is_given_way_to_down_to_the_floor(self):
        idle = [(second, stat(), stat(written=0)) for second in range(11)]
        for second, above, below in idle:
            self.law.take(copies_module.parse_seen(above, below), second)
            last = self.law.step(Pace.YIELD, second,
                                 give_way=GiveWay.SLOWING)
        self.assertEqual((FULL, Speed.FLOOR), last)

    def test_one_after_the_other_is_given_way_to(self):
        """A floor that is none.

        1. Twenty instances are started. Each attach takes nearly two
           seconds, and the next one follows a moment later.
        2. With each of these moments the comparison with the floor began
           anew, and never came to its end.

        By design: so it is beside a guest that rests for moments.
        """
        copied = 0.0
        for tick in range(1200):
            now, waits = tick * TICK, tick % 40 < 39
            self.law.take(seen(0, int(copied)), now)
            step, _speed = self.law.step(
                Pace.YIELD, now, give_way=GiveWay.SLOWING if waits
                else GiveWay.NO)
            copied += (BUSY if waits else IDLE)[step.threshold] * MIB * TICK
        self.assertLess(10, copied / 60 / MIB)
        self.assertEqual((FULL, Speed.FULL),
                         self.law.step(Pace.YIELD, now + 3))
        self.assertEqual((SLOW, Speed.YIELDING), self.law.step(
            Pace.YIELD, now + 3.1, give_way=GiveWay.SLOWING))

    def test_what_was_stopped_is_not_what_is_too_slow(self):
        """One whose floor was made before does not go faster afterwards."""
        self.law.take(seen(), 0)
        self.law.step(Pace.YIELD, 0, give_way=GiveWay.SLOWING)
        for now in range(1, 10):
            self.law.step(Pace.YIELD, now, give_way=GiveWay.STOPPING)
        self.assertEqual((SLOW, Speed.YIELDING), self.law.step(
            Pace.YIELD, 10, give_way=GiveWay.SLOWING))

    def test_the_floor_is_kept_to_after_a_stop(self):
        """What it was too slow beside goes on, and so does its copy."""
        for now in range(11):
            self.law.take(seen(), now)
            self.law.step(Pace.YIELD, now, give_way=GiveWay.SLOWING)
        for now in range(11, 18):
            self.law.step(Pace.YIELD, now, give_way=GiveWay.STOPPING)
        self.law.step(Pace.YIELD, 18)
        self.assertEqual((FULL, Speed.FLOOR), self.law.step(
            Pace.YIELD, 18.5, give_way=GiveWay.SLOWING))

    def test_without_a_guest(self):
        idle = [(second, stat(), stat(written=second * 200000))
                for second in range(10)]
        for how in Pace:
            self.assertEqual([(0, FULL, Speed.FULL)],
                             run(self.law, how, idle))

    def test_a_guest_that_is_at_it_from_the_first_look_on(self):
        self.assertEqual([(0, SLOW, Speed.YIELDING)], run(
            self.law, Pace.YIELD, [(0, stat(5, in_flight=1), stat())]))

    def copy(self, rate, seconds, room=1.0, start=0.0):
        """A guest that never rests; how the copy goes, every half second.

        :param rate: MiB a second by threshold
        """
        found, copied, step, now = [], 0.0, None, start
        while now < start + seconds:
            self.law.take(seen(int(now * 100), int(copied)), now)
            step, speed = self.law.step(Pace.YIELD, now, room)
            if round(now * 20) % 10 == 0:
                found.append((step.threshold, speed))
            copied += rate[step.threshold] * MIB * TICK
            now = round(now + TICK, 2)
        return found, copied / seconds / MIB

    def test_beneath_the_floor_it_takes_a_step_after_the_other(self):
        self.copy(BUSY, 0.2)
        found, rate = self.copy(BUSY, 60, start=0.2)
        thresholds = [each[0] for each in found]
        self.assertEqual([1, 2, 4, 8, 16], sorted(set(thresholds)))
        self.assertEqual(sorted(thresholds), thresholds)
        self.assertIn((1, Speed.YIELDING), found)
        self.assertEqual((16, Speed.FLOOR), found[-1])
        self.assertLess(10, rate)
        # The guest leaves more gaps: there is no need to hurry any more.
        found, _rate = self.copy({key: 3 * value + 20 for key, value
                                  in BUSY.items()}, 20, start=60.2)
        self.assertEqual((1, Speed.YIELDING), found[-1])
        # A step after the other, and none beyond the slowest.
        self.assertEqual([4, 2, 1], list(dict.fromkeys(
            each[0] for each in found))[-3:])

    def test_a_floor_that_cannot_be_reached(self):
        self.copy(BUSY, 0.2)
        found, _rate = self.copy(dict.fromkeys(BUSY, 1), 60, start=0.2)
        self.assertEqual((32, Speed.FLOOR), found[-1])

    def test_a_limit_beneath_the_floor(self):
        """It comes first; and it is not answered by a jump afterwards."""
        self.copy(BUSY, 0.2)
        found, _rate = self.copy(BUSY, 60, 0.1, start=0.2)
        self.assertEqual({(1, Speed.LIMITED)}, set(found[5:]))
        self.assertEqual((2, Speed.FLOOR), self.copy(
            BUSY, 1, start=60.2)[0][-1])

    def test_a_guest_that_rests_for_moments(self):
        """A floor that is none.

        1. A guest works for 1.3 s and rests for 0.7 s, again and again. Its
           copy goes at full speed for 0.1 s of these two seconds.
        2. With each rest the comparison with the floor began anew, and never
           came to its end.

        By design: a rest that is shorter than what is compared belongs to it.
        """
        self.set(floor=40 * MIB)
        law, copied, ios, speeds = pace.Law(GEOMETRY), 0.0, 0, set()
        for tick in range(1200):
            now, works = tick * TICK, tick % 40 < 26
            ios += works
            law.take(seen(ios, int(copied)), now)
            step, speed = law.step(Pace.YIELD, now)
            speeds.add((works, speed))
            copied += (BUSY if works else IDLE)[step.threshold] * MIB * TICK
        self.assertLess(40, copied / 60 / MIB)
        self.assertIn((True, Speed.FLOOR), speeds)
        # After a longer one nothing counts that was before.
        for seconds, works in ((0, 1), (2.7, 0), (2.8, 1)):
            ios += works
            law.take(seen(ios, int(copied)), now + seconds)
            step = law.step(Pace.YIELD, now + seconds)
        self.assertEqual((SLOW, Speed.YIELDING), step)

    def test_another_pace_while_it_is_at_the_floor(self):
        """Full speed beside a guest, for good.

        1. Beside a guest that leaves no gap a copy at the pace "spare" has
           taken all steps for the sake of the floor. Its type is given the
           pace "yield", whose slowest step is another.
        2. There are not as many steps above that: it counted as limited,
           which is never compared with the floor.
        """
        now, copied = 0.0, 0.0
        for how, rate, last in ((Pace.SPARE, 1, (FULL, Speed.FLOOR)),
                                (Pace.YIELD, 100, (SLOW, Speed.YIELDING))):
            for _look in range(600):
                now += TICK
                self.law.take(seen(int(now * 100), int(copied)), now)
                copied += rate * MIB * TICK
                step = self.law.step(how, now)
            self.assertEqual(last, step)

    @ddt.data((1.0, FULL, Speed.FULL), (0.99, Step(32, 8), Speed.FULL),
              (0.5, Step(8, 8), Speed.LIMITED), (0.01, SLOW, Speed.LIMITED),
              (0.16, SLOW, Speed.LIMITED), (0.17, Step(2, 1), Speed.LIMITED),
              (0.0, copies_module.STANDSTILL, Speed.LIMITED),
              (-3.0, copies_module.STANDSTILL, Speed.LIMITED))
    @ddt.unpack
    def test_as_many_steps_as_there_is_room(self, room, step, speed):
        self.law.take(seen(), 0)
        self.assertEqual((step, speed), self.law.step(Pace.YIELD, 0, room))

    def test_what_cannot_be_seen(self):
        """For a moment, or for good: it is copied as if nobody was there."""
        run(self.law, Pace.YIELD)
        self.assertEqual(0, self.law.take(None, 11))
        self.assertEqual((FULL, Speed.FULL), self.law.step(Pace.YIELD, 11))
        self.assertEqual(0, self.law.take(seen(9), 12))
        self.law.take(seen(10), 12.1)
        self.assertEqual(SLOW, self.law.step(Pace.YIELD, 12.1)[0])

    def test_what_was_copied(self):
        """All of the LV's writes that the handle has not seen; never less."""
        taken = [
            self.law.take(copies_module.parse_seen(
                stat(0, 0, above), stat(0, 0, below)), 0) for above, below
            in ((100, 1100), (100, 1300), (150, 1346), (150, 1350),
                (150, 1354))]
        # A guest's write may be counted below first, or above: it is none.
        self.assertEqual([0, 200 * 512, 0, 0, 4 * 512], taken)

    def test_a_handle_that_was_made_again(self):
        """It has counted nothing: what it was compared with is over."""
        taken = [self.law.take(seen(ios, copied), 0) for ios, copied in (
            (7, 900), (8, 950), (2, 100), (3, 130))]
        self.assertEqual([0, 50, 0, 30], taken)

    def test_a_guest_of_a_handle_that_was_made_again(self):
        self.law.take(seen(8), 0)
        self.law.take(seen(2), TICK)
        self.assertEqual(SLOW, self.law.step(Pace.YIELD, TICK)[0])

    @ddt.data('', 'x', '1 2 3', stat()[:60])
    def test_what_is_no_statistics(self, text):
        self.assertRaises(ValueError, copies_module.parse_seen, text, stat())
        self.assertRaises(ValueError, copies_module.parse_seen, stat(), text)

    def test_before_there_were_discards_and_flushes(self):
        old = ' 5 0 40 1 7 0 64 9 2 5 9'
        self.assertEqual(copies_module.Seen(12, 2, 0),
                         copies_module.parse_seen(old, old))


class CourtesyTest(testtools.TestCase):
    """How copies give way to those who wait for something of their node."""

    def ways(self, waits, seconds):
        """When it changes to what."""
        courtesy, found = pace.Courtesy(), []
        for tick in range(int(seconds / TICK)):
            now = 5 + tick * TICK
            way = courtesy.take(waits(tick * TICK), now)
            if not found or found[-1][1] is not way:
                found.append((round(tick * TICK), way))
        return found

    def test_nobody(self):
        self.assertEqual([(0, GiveWay.NO)], self.ways(lambda _now: False, 90))

    def test_one(self):
        """And what he does first with what he has waited for."""
        self.assertEqual([(0, GiveWay.NO), (1, GiveWay.STOPPING),
                          (7, GiveWay.NO)],
                         self.ways(lambda now: 1 <= now < 4, 30))

    def test_one_who_takes_long(self):
        """What is spent is regained wholly first: it does not come and go."""
        self.assertEqual([(0, GiveWay.STOPPING), (10, GiveWay.SLOWING),
                          (30, GiveWay.STOPPING), (40, GiveWay.SLOWING)],
                         self.ways(lambda _now: True, 59))

    def test_one_who_takes_long_after_an_hour_without_any(self):
        """No more is regained than what there is to be spent."""
        self.assertEqual([(0, GiveWay.NO), (3600, GiveWay.STOPPING),
                          (3610, GiveWay.SLOWING)],
                         self.ways(lambda now: now >= 3600, 3625))

    def test_one_after_the_other(self):
        """Two thirds of the time are left to the copies, as by the floor."""
        self.assertEqual([(0, GiveWay.STOPPING), (10, GiveWay.SLOWING),
                          (30, GiveWay.STOPPING), (40, GiveWay.SLOWING)],
                         self.ways(lambda now: now % 3 < 1.5, 59))

    def test_one_now_and_then(self):
        found = self.ways(lambda now: now % 20 < 3, 200)
        self.assertEqual([(start, way) for second in range(0, 200, 20)
                          for start, way in ((second, GiveWay.STOPPING),
                                             (second + 6, GiveWay.NO))],
                         found)

    def test_what_is_left_exports_the_next_one(self):
        self.assertEqual([
            (0, GiveWay.STOPPING), (8, GiveWay.NO), (10, GiveWay.STOPPING),
            (13, GiveWay.SLOWING), (16, GiveWay.NO)],
            self.ways(lambda now: now < 5 or 10 <= now < 13, 20))


class BudgetTest(testtools.TestCase):

    def spend(self, budget, demands, seconds=60):
        """MiB a second that each copies, by what it could."""
        copied, total = dict.fromkeys(demands, 0), dict.fromkeys(demands, 0)
        for tick in range(int(seconds / TICK)):
            rooms = budget.spend(copied, tick * TICK)
            copied = {key: int(demand * MIB * TICK) if rooms[key] > 0 else 0
                      for key, demand in demands.items()}
            for key, each in copied.items():
                total[key] += each
        return [total[key] / seconds / MIB for key in demands]

    def assert_near(self, wanted, found):
        for each, other in zip(wanted, found, strict=True):
            self.assertAlmostEqual(each, other, delta=0.06 * max(wanted))

    def test_none(self):
        budget = pace.Budget(0)
        self.assertEqual({}, budget.spend({'a': 1 << 40}, 5))
        self.assertEqual({}, budget.spend({}, 6))

    def test_one(self):
        self.assert_near([20], self.spend(pace.Budget(20 * MIB), {'a': 117}))

    def test_fair(self):
        self.assert_near([10, 10], self.spend(
            pace.Budget(20 * MIB), {'a': 117, 'b': 60}))

    def test_what_one_has_no_use_for_the_others_get(self):
        self.assert_near([2, 9, 9], self.spend(
            pace.Budget(20 * MIB), {'a': 2, 'b': 117, 'c': 30}))

    def test_more_than_all_can_do(self):
        self.assert_near([43, 10], self.spend(
            pace.Budget(200 * MIB), {'a': 43, 'b': 10}))

    def test_those_that_come_and_go(self):
        budget = pace.Budget(20 * MIB)
        self.spend(budget, {'a': 117}, 5)
        self.assert_near([10, 10], self.spend(
            budget, {'a': 117, 'b': 117}))
        self.assertEqual({'b'}, set(budget.spend({'b': 0}, 99)))

    def test_nothing_is_saved_up_for_long(self):
        budget = pace.Budget(20 * MIB)
        budget.spend({'a': 0}, 0)
        for now in (1, 50, 10000):
            self.assertEqual({'a': 1.0}, budget.spend({'a': 0}, now))
        # A look that comes late finds no hours to make up for.
        self.assertEqual({'a': 0.0}, budget.spend({'a': 40 * MIB}, 99999))

    def test_no_copy_waits_for_a_minute(self):
        """Whatever its guest has had copied meanwhile."""
        budget = pace.Budget(MIB)
        budget.spend({'a': 0, 'b': 0}, 0)
        budget.spend({'a': 1 << 40, 'b': 0}, 1)
        now = 1
        while budget.spend({'a': 0, 'b': 0}, now)['a'] <= 0:
            now += 1
        self.assertLess(now, 30)

    def test_no_copy_of_many_waits_for_a_minute(self):
        budget = pace.Budget(MIB)
        budget.spend(dict.fromkeys('abcd', 1 << 40), 0)
        now, rooms = 0, {'a': 0}
        while min(rooms.values()) <= 0:
            now += 1
            rooms = budget.spend(dict.fromkeys('abcd', 0), now)
        self.assertTrue(15 < now < 30, now)

    def test_each_saves_up_its_share(self):
        budget = pace.Budget(20 * MIB)
        for now in (0, 9, 99):
            rooms = budget.spend({'a': 0, 'b': 0}, now)
        self.assertEqual({'a': 1.0, 'b': 1.0}, rooms)
        self.assertEqual({'a': 0.0, 'b': 1.0}, budget.spend(
            {'a': 10 * MIB, 'b': 0}, 99))


class WakerTest(Case):

    def setUp(self):
        super().setUp()
        self.sent, self.gone, self.asked = [], [], []
        self.seen = {}

    def waker(self, floor=None, prompt=None, **settings):
        self.set(floor, prompt)

        def send(steps):
            self.sent.append(dict(steps))
            return self.gone

        def sweep(counters):
            self.asked.append(dict(counters))
            return {name: each for name, each in self.seen.items()
                    if name in counters}
        return wake.Waker(sweep, send, copies_module.Settings(**settings))

    def test_while_they_last(self):
        waker = self.waker()
        self.assertFalse(waker.wake(0))
        waker.watch('a', GEOMETRY)
        waker.watch('b', state.Geometry(128, 1, 1))
        self.assertTrue(waker.wake(1))
        waker.forget('a')
        waker.forget('a')
        waker.wake(2)
        self.gone.append('b')
        self.assertFalse(waker.wake(3))
        self.assertFalse(waker.wake(4))
        self.assertEqual([{'a': FULL, 'b': SLOW}, {'b': SLOW},
                          {'b': SLOW}], self.sent)
        self.assertEqual('', waker.speed('b'))

    def test_each_at_its_pace(self):
        waker = self.waker()
        for name, spec in (('a', ''), ('b', 'full'), ('c', 'spare'),
                           ('d', 'nonsense')):
            waker.watch(name, GEOMETRY, spec, ('253:1', '253:2'))
        self.seen = {name: seen(in_flight=1) for name in 'acd'}
        waker.wake(0)
        self.assertEqual([{'a': SLOW, 'b': FULL, 'c': SLOW, 'd': SLOW}],
                         self.sent)
        self.assertEqual(['yielding', 'full', 'yielding', ''],
                         [waker.speed(name) for name in 'abcx'])
        # Nobody needs to know what b's guest does.
        self.assertEqual([dict.fromkeys('acd', ('253:1', '253:2'))],
                         self.asked)

    def test_a_guest_that_is_live_migrated(self):
        """It stands still for a moment, which is no time to hurry."""
        waker = self.waker(floor=0, prompt=SELDOM)
        for name, spec, migrating in (
                ('a', '', True), ('b', 'full', True), ('c', 'spare', True),
                ('d', '', False)):
            waker.watch(name, GEOMETRY, spec, ('', ''), migrating)
        self.seen = {name: seen() for name in 'acd'}
        waker.wake(0)
        self.assertEqual({'a': SLOW, 'b': FULL, 'c': SLOW, 'd': FULL},
                         self.sent[-1])
        with waker.give_way():
            waker.wake(1)
        self.assertEqual(copies_module.STANDSTILL, self.sent[-1]['a'])
        waker.wake(2)
        waker.watch('a', GEOMETRY)  # it has arrived
        waker.wake(6)
        self.assertEqual(FULL, self.sent[-1]['a'])

    def test_copies_give_way_until_all_who_wait_are_exported(self):
        waker = self.waker()
        waker.watch('a', GEOMETRY)
        with waker.give_way():
            waker.wake(0)
            try:
                with waker.give_way():
                    raise ZeroDivisionError
            except ZeroDivisionError:
                waker.wake(1)
            waker.wake(12)
        waker.wake(13)
        waker.wake(16.1)
        self.assertEqual([copies_module.STANDSTILL, SLOW, SLOW, FULL],
                         [each['a'] for each in self.sent])

    def test_copies_give_way_to_who_was_there_for_less_than_a_look(self):
        waker = self.waker()
        waker.watch('a', GEOMETRY)
        waker.wake(0)
        with waker.give_way():
            pass
        for now in (1, 3.9, 4.1):
            waker.wake(now)
        self.assertEqual([FULL, copies_module.STANDSTILL, FULL],
                         [each['a'] for each in self.sent])

    def test_what_could_not_be_told_is_told_again(self):
        """Be it to stand still, or to go on."""
        waker = self.waker(prompt=SELDOM)
        send = waker._send

        def fail(steps):
            raise exceptions.CommandTimeout(command='c', seconds=30)
        waker.watch('a', GEOMETRY)
        with waker.give_way():
            for now, call in enumerate((fail, send)):
                waker._send = call
                with contextlib.suppress(exceptions.CommandTimeout):
                    waker.wake(now)
        waker.wake(2)
        self.assertTrue(waker.stands_still('a'))
        waker._send = fail
        self.assertRaises(exceptions.CommandTimeout, waker.wake, 6)
        self.assertFalse(waker.stands_still('a'))
        waker._send = send
        waker.wake(7)
        self.assertEqual([copies_module.STANDSTILL, FULL],
                         [each['a'] for each in self.sent])

    def test_what_is_not_watched_is_not_known_to_stand_still(self):
        self.assertFalse(self.waker().stands_still('a'))

    def test_what_stands_still_ends_at_no_known_time(self):
        """No look at the moves is made for it."""
        node = specs.node(pacing=copies_module.Settings())
        node.clones.read_counters.return_value = {}
        node.clones.wake_hydration.return_value = []
        copies = wake.Copies(node)
        copies._copies['s'] = copy = hydration.Copy()
        copy.progress = copies_module.Progress(99.9, 300 << 20, 0.3)
        copies.waker.watch('s', GEOMETRY)
        copies.waker.wake(0)
        self.assertEqual(0.3, copies.soonest_end())
        with copies.waker.give_way():
            copies.waker.wake(1)
            self.assertIsNone(copies.soonest_end())
        for now in (2, 6):
            copies.waker.wake(now)
        self.assertEqual(0.3, copies.soonest_end())
        copy.progress = dataclasses.replace(copy.progress, pause=5)
        self.assertIsNone(copies.soonest_end())

    def test_another_check_changes_no_more_than_it_has_to(self):
        """The clone may be another by then, and is told again."""
        waker = self.waker(prompt=SELDOM)
        waker.watch('a', GEOMETRY)
        self.seen = {'a': seen(in_flight=1)}
        waker.wake(0)
        waker.watch('a', GEOMETRY)
        self.assertEqual('yielding', waker.speed('a'))
        self.seen = {'a': seen()}
        waker.wake(0.1)  # its guest worked a moment ago
        self.assertEqual([{'a': SLOW}] * 2, self.sent)

    def test_prompts(self):
        waker = self.waker(prompt=1)
        waker.watch('a', GEOMETRY)
        for tick in range(21):
            waker.wake(tick / 10)
        self.assertEqual(3, len(self.sent))
        self.seen = {'a': seen(in_flight=1)}
        waker.wake(2.1)  # what is new is not waited with
        self.assertEqual(SLOW, self.sent[-1]['a'])
        self.assertEqual(4, len(self.sent))

    def test_no_budget(self):
        """Without a limit none holds back a copy that is alone."""
        waker = self.waker()
        waker.watch('a', MANY)
        self.seen = {'a': seen()}
        waker.wake(0)
        waker.wake(1)
        self.assertEqual(128, self.sent[-1]['a'].threshold)

    def test_all_of_a_budget(self):
        """What is copied at full speed counts, too."""
        waker = self.waker(limit=20 * MIB, pace=Pace.FULL)
        for name in 'ab':
            waker.watch(name, GEOMETRY, counters=(name, name))
        copied = {'a': 0.0, 'b': 0.0}
        for tick in range(1200):
            self.seen = {name: seen(copied=int(copied[name]))
                         for name in 'ab'}
            waker.wake(tick * TICK)
            for name, step in self.sent[-1].items():
                copied[name] += IDLE[step.threshold] * MIB * TICK / 2
        for name in 'ab':
            self.assertAlmostEqual(10, copied[name] / 60 / MIB, delta=1)
        self.assertEqual('limited', waker.speed('a'))

    def test_what_a_guest_has_under_way_is_not_copied(self):
        """At each look there is some that only one device has counted."""
        waker = self.waker(limit=5 * MIB)
        waker.watch('a', GEOMETRY)
        for tick in range(1200):
            self.seen = {'a': seen(tick, MIB * (tick % 2))}
            waker.wake(tick * TICK)
        self.assertEqual(({'a': FULL}, 'floor'),
                         (self.sent[-1], waker.speed('a')))

    def test_other_devices_are_not_compared_with_those_before(self):
        waker = self.waker(limit=MIB, pace=Pace.FULL)
        for now, counters, copied in ((0, ('1', '2'), 1 << 40),
                                      (1, ('3', '2'), 1 << 50),
                                      (2, ('4', '2'), 0),
                                      (3, ('4', '2'), 8 * MIB)):
            waker.watch('a', GEOMETRY, counters=counters)
            self.seen = {'a': seen(9, copied)}
            waker.wake(now)
        self.assertEqual(
            [copies_module.STANDSTILL, FULL, FULL, copies_module.STANDSTILL],
            [each['a'] for each in self.sent])


class SettingsTest(testtools.TestCase):

    def test_the_type_goes_first(self):
        settings = copies_module.Settings(pace=Pace.SPARE)
        self.assertEqual(
            [Pace.SPARE, Pace.FULL, Pace.YIELD, Pace.SPARE, Pace.SPARE],
            [settings.pace_for(spec) for spec in (
                '', ' full ', 'yield', 'spare', 'FULL')])


@ddt.ddt
class WorldTest(Case):
    """Moves from a to b in the simulated world, to their end."""

    #: Seconds between two looks; bytes of a region of the simulated world.
    TICK = 0.1
    REGION = worlds.GIB // worlds.REGIONS

    def begin(self, floor=None, prompt=None, **settings):
        self.set(floor, prompt)
        self.now = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.moves.copying.timeutils.now',
            return_value=0.0)).mock
        self.said = self.useFixture(fixtures.MockPatchObject(
            events, 'say', wraps=events.say)).mock
        self.world = worlds.World()
        self.b = self.world.nodes[B]
        self.b.node = dataclasses.replace(
            self.b.node, pacing=copies_module.Settings(**settings),
            limits=copies_module.Limits(0, 0))
        self.b.reconciler = reconcile.Reconciler(self.b.node)
        self.waker = self.b.reconciler.copying.waker

    def moving(self, **more):
        volume = self.world.create_volume(A, **more)
        self.world.nodes[A].move(volume, B)
        self.waker._was_ahead = False  # the copy has given way to "prepare"
        return volume

    def clone(self, volume):
        return self.b.devices.get(names.clone(volume.name_id))

    def copy(self, clone, rates):
        """The kernel, for a tick; its regions are huge here."""
        step = clone.get('step', FULL)
        if not clone['hydrating']:
            return
        lv, metadata = clone['lv'], clone['metadata']
        local = self.b.lvs[metadata]['local']
        copied = self.b.copied.get(lv, 0) + int(
            rates[step.threshold] * MIB * self.TICK)
        self.b.copied[lv] = copied
        for region in range(worlds.REGIONS):
            if region not in local and copied >= (region + 1) * self.REGION:
                self.b.disk.write(lv, region, self.b._from_source(
                    clone, region))
                self.b.disk.make_local(metadata, region)
                self.b.reads += 1

    def live(self, volumes, rates, seconds, busy=(), sweep=None):
        """The time passes; when each volume was copied.

        :param busy: volumes whose guests never rest
        :param look: is called with the second all along
        """
        ended, start = {}, self.now.return_value
        for tick in range(int(seconds / self.TICK)):
            now = self.now.return_value = start + tick * self.TICK
            for volume in busy:
                handle = names.handle(volume.id)
                self.b.ios[handle] = self.b.ios.get(handle, 0) + 3
            if not tick % 50:  # MOVE_INTERVAL
                for node in self.world.nodes.values():
                    node.reconciler.reconcile_moves()
            self.waker.wake(now)
            for volume in volumes:
                clone = self.clone(volume)
                if clone:
                    self.copy(clone, rates)
                else:
                    ended.setdefault(volume.id, now - start)
            if len(ended) == len(volumes):
                break
            if sweep:
                sweep(now)
        self.assertEqual([], self.world.wrongs)
        return ended

    def assert_never_stopped(self):
        for event in (events.STALLED, events.COPYING_FAILS):
            self.assertNotIn(event, [
                call.args[0] for call in self.said.mock_calls if call.args])
        self.assertEqual({}, self.world.stalled)

    def test_a_move_ends_though_its_guest_never_rests(self):
        self.begin()
        volume = self.moving()
        expected = [self.b.read(volume.id, n) for n in range(worlds.REGIONS)]
        ended = self.live([volume], BUSY, 300, busy=[volume])
        self.assertLess(ended[volume.id], 1024 / 10 + 15)
        self.assert_never_stopped()
        self.world.settle()
        self.assertEqual({}, self.world.move_records)
        self.assertEqual(expected, [
            self.b.read(volume.id, n) for n in range(worlds.REGIONS)])

    def test_without_a_floor_it_would_not(self):
        self.begin(floor=0)
        volume = self.moving()
        self.assertEqual({}, self.live([volume], BUSY, 130, busy=[volume]))
        self.assertEqual(SLOW, self.clone(volume)['step'])

    def test_at_full_speed_without_a_guest(self):
        self.begin()
        volume = self.moving()
        self.assertLess(self.live([volume], IDLE, 60)[volume.id],
                        1024 / 117 + 6)

    def test_the_next_look_is_when_the_first_ends(self):
        self.begin()

        def sweep():
            return assembly.sweep_moves(self.b.reconciler)
        self.assertIsNone(sweep())
        volumes = [self.moving() for _each in range(2)]
        self.live(volumes[:1], IDLE, 7)
        left = sweep()
        self.assertTrue(0 < left < 10, left)
        self.assertEqual(left, min(
            each.seconds_left for each in
            self.b.reconciler.copying.all_progress().values()
            if each.seconds_left is not None))
        self.live(volumes, IDLE, 60)
        self.assertIsNone(sweep())

    def copied_for_a_while(self):
        """One of which is known when it ends."""
        self.begin(prompt=SELDOM)
        volume = self.moving()
        self.live([volume], IDLE, 7)
        self.assertIsNotNone(assembly.sweep_moves(self.b.reconciler))
        return volume

    def test_nobody_knows_when_one_ends_whose_source_is_away(self):
        """A look each second, for as long as the source is away.

        1. A copy is nearly at its end when its source goes down.
        2. What the last look at it had found was kept: the next look, which
           tries to log in, was due when it would have ended. So was the one
           after that.
        """
        volume = self.copied_for_a_while()
        with mock.patch.object(
                worlds.SimSessions, 'attach',
                side_effect=exceptions.SourceUnreachable(
                    portal='p', reason='r')):
            self.assertIsNone(assembly.sweep_moves(self.b.reconciler))
        progress = self.b.reconciler.progress(volume.name_id)
        self.assertNotIn('left', str(progress))
        self.assertLess(0, progress.percent)
        self.now.return_value += 1
        self.assertIsNotNone(assembly.sweep_moves(self.b.reconciler))

    def test_nobody_waits_for_the_end_of_what_was_deleted(self):
        """A look each second, until the service is restarted.

        1. A volume is deleted while it is copied.
        2. Nothing but the end of a copy had it forgotten.
        """
        volume = self.copied_for_a_while()
        volume.status = 'deleting'
        callers.delete(self.b.node, volume)
        self.assertIsNone(assembly.sweep_moves(self.b.reconciler))
        self.assertEqual({}, self.b.reconciler.copying.all_progress())
        self.assertFalse(self.waker.wake(self.now.return_value))

    def test_what_its_type_says_goes_first(self):
        self.begin(floor=1)
        hurried = self.moving(extra_specs={'localclone:pace': 'full'})
        spared = self.moving(extra_specs={'localclone:pace': 'spare'})
        plain = self.moving(extra_specs={'localclone:pace': 'odd'})
        both = [hurried, spared, plain]
        self.live(both, BUSY, 10, busy=both)
        self.assertEqual([FULL, SLOW, SLOW], [
            self.clone(volume)['step'] for volume in both])
        shown = self.b.reconciler.copying.all_progress()
        self.assertEqual(['full', 'yielding', 'yielding'], [
            shown[volume.name_id].pace for volume in both])

    def test_beside_a_guest_that_is_live_migrated(self):
        self.begin(floor=1)
        leaving, resting = both = [self.moving() for _each in range(2)]
        leaving.volume_attachment = [
            images.attachment(connector={'host': host},
                              connection_info=None, mountpoint=None,
                              instance_uuid='vm')
            for host in (A, B)]
        self.live(both, BUSY, 1)
        self.assertEqual([SLOW, FULL], [
            self.clone(volume)['step'] for volume in both])

    def test_within_a_budget_in_equal_shares(self):
        self.begin(limit=20 * MIB)
        volumes = [self.moving() for _each in range(2)]
        self.live(volumes, IDLE, 60)
        found = [self.b.copied[self.clone(volume)['lv']] / 60 / MIB
                 for volume in volumes]
        for rate in found:
            self.assertAlmostEqual(10, rate, delta=1)
        self.assertEqual('limited', self.b.reconciler.progress(
            volumes[0].name_id).pace)
        ended = self.live(volumes, IDLE, 120)
        self.assertEqual(2, len(ended))
        self.assert_never_stopped()

    def test_a_small_budget_is_no_stall(self):
        """Bursts with long pauses; regions of 256 MiB are left aside here."""
        self.begin(limit=MIB)
        volumes = [self.moving() for _each in range(3)]
        before, since, waits = {}, {}, [0]

        def sweep(now):
            for lv, copied in self.b.copied.items():
                if copied != before.get(lv):
                    since[lv] = now
                waits.append(now - since[lv])
            before.update(self.b.copied)
        self.live(volumes, IDLE, 70, sweep=sweep)
        self.assertEqual(3, len(since))
        self.assertLess(5, max(waits))
        self.assertLess(max(waits), 30)

    def test_a_kernel_that_shows_nothing_ends_nothing(self):
        self.begin()
        volume = self.moving()
        self.live([volume], IDLE, 3, busy=[volume])
        self.b.blind = True
        self.assertEqual([volume.id], list(self.live(
            [volume], IDLE, 60, busy=[volume])))
        self.assert_never_stopped()

    def test_what_is_held_back_is_not_started(self):
        """A live migration: the guest still writes at the source."""
        self.begin(pace=Pace.FULL)
        volume = self.world.create_volume(A)
        self.world.nodes[A].opened.add(names.handle(volume.id))
        self.world.nodes[A].move(volume, B, live=True)
        self.live([volume], IDLE, 30)
        clone = self.clone(volume)
        self.assertFalse(clone['hydrating'])
        self.assertNotIn('step', clone)
        self.assertEqual(set(), self.b.lvs[clone['metadata']]['local'])

    @ddt.data('waits', 'pauses')
    def test_what_is_stopped_is_not_prompted(self, why):
        self.begin()
        volume = self.moving()
        self.live([volume], IDLE, 1)
        if why == 'waits':
            self.b.node = dataclasses.replace(
                self.b.node, limits=copies_module.Limits(0, 0))
            entries = self.b.node.queue.copies(B)
            self.useFixture(fixtures.MockPatchObject(
                copies_module, 'positions', return_value={
                    volume.name_id: copies_module.Position(entries[0], 1)}))
        else:
            self.useFixture(fixtures.MockPatch(
                'cinder_localclone.moves.hydration.Brake.seconds_to_pause',
                return_value=5))
        self.b.reconciler.reconcile_moves()
        clone = self.clone(volume)
        self.assertFalse(clone['hydrating'])
        clone.pop('step')
        self.assertFalse(self.waker.wake(99))
        self.assertNotIn('step', clone)
        self.assertEqual('', self.b.reconciler.progress(volume.name_id).pace)

    @ddt.data('it has to make room', 'it has ended alone')
    def test_what_cannot_be_driven_is_not_prompted(self, why):
        self.begin()
        volume = self.moving()
        self.live([volume], IDLE, 1)
        move = self.b.node.moves.move_of(volume.id)
        copying = self.b.reconciler.copying
        if why == 'it has ended alone':
            copying.ended(move.move_id)
        else:
            self.useFixture(fixtures.MockPatchObject(
                copies_module, 'positions', return_value={}))
            with self.b.lock(volume.id):
                copying.note_failed_check(move)
        self.assertFalse(self.waker.wake(99))

    def test_a_type_with_a_pace_that_there_is_none_of(self):
        self.begin()
        specs = {'localclone:pace': 'slow'}
        new = self.world.row(A, extra_specs=specs)
        node = self.world.nodes[A].node
        error = self.assertRaises(encryption_exceptions.InvalidPaceType,
                                  policy.wanted, node, new)
        self.assertIn('localclone:pace=slow is not possible; choose yield or '
                      'full or spare', str(error))
        other = self.world.create_volume(A)
        self.assertRaises(encryption_exceptions.InvalidPaceType,
                          policy.check_retype, node, other, specs)
        policy.check_retype(node, other, {'localclone:pace': 'spare'})
