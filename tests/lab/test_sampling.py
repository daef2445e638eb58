# SPDX-License-Identifier: Apache-2.0
import ddt
import fixtures
import testtools

from tests.helpers import sampling


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.set(sampling.ALL, None)
        self.set(sampling.SEED, 'one')

    def set(self, name, value):
        self.useFixture(fixtures.EnvironmentVariable(name, value))


@ddt.ddt
class PositionTest(Case):

    @ddt.data(1, 2, 3, 30, 31, 32)
    def test_variants_share_all_moments(self, length):
        shares = [sampling.turn(length, number)
                  for number in range(sampling.TURNS)]
        self.assertEqual(list(range(1, length + 1)),
                         sorted(sum(map(list, shares), [])))

    def test_variant_that_comes_round_again(self):
        self.assertEqual(sampling.turn(30, 0), sampling.turn(30, 3))

    def test_all_moments(self):
        self.assertEqual(range(1, 31), sampling.turn(30, None))
        self.set(sampling.ALL, '1')
        self.assertEqual(range(1, 31), sampling.turn(30, 2))


class PairsTest(Case):

    def chosen(self, name='test', length=50, longer=(20, 5)):
        """The pairs of a way that a stop makes longer.

        :param longer: by so much in its first half, in its second half
        """
        ran = []

        def run(stops):
            ran.append(stops)
            if not stops:
                return length
            return length + longer[stops[0] > length // 2]
        sampling.pairs(name, run)
        self.assertEqual((), ran.pop(0))
        return ran

    def test_come_back_with_the_seed(self):
        self.assertEqual(self.chosen(), self.chosen())

    def test_are_others_for_each_test_and_seed(self):
        before = self.chosen()
        self.assertNotEqual(before, self.chosen('test2'))
        self.set(sampling.SEED, 'two')
        self.assertNotEqual(before, self.chosen())

    def test_as_many_stop_twice(self):
        ran = self.chosen()
        self.assertEqual(sampling.PAIRS, sum(
            second <= 50 + (20 if first <= 25 else 5)
            for first, second in ran))
        self.assertTrue(all(0 < first < second for first, second in ran))
        # Also in the part that is there only after a stop.
        self.assertGreater(max(second for _first, second in ran), 50)

    def test_of_a_way_with_one_moment(self):
        self.assertEqual({(1, 2)}, set(self.chosen(length=1, longer=(0, 0))))

    def test_seed_is_the_commit(self):
        self.set(sampling.SEED, None)
        self.assertRegex(sampling.seed(), '^([0-9a-f]{12}|archive)$')
