# SPDX-License-Identifier: Apache-2.0
"""Where the time of an attach goes, as the bench reckons it."""

from oslotest import base

from lab.bench import timeline

ORDER = ['lvm', 'database', 'driver']


class SharesTest(base.BaseTestCase):
    """Intervals of services, as parts of one request."""

    def shares(self, *lines, began=0, ended=10):
        """All parts that took any time."""
        found = timeline.shares(lines, began, ended, ORDER)
        self.assertEqual({*ORDER, None}, set(found))
        self.assertAlmostEqual(ended - began, sum(found.values()))
        return {what: seconds for what, seconds in found.items() if seconds}

    def test_nothing_known(self):
        """All of it happened elsewhere."""
        self.assertEqual({None: 10}, self.shares())
        self.assertEqual({None: 10}, self.shares((1, 3, 'another')))

    def test_nested(self):
        """What is done within a request counts as what it is."""
        self.assertEqual(
            {'driver': 3, 'lvm': 2, 'database': 1, None: 4},
            self.shares((2, 8, 'driver'), (3, 5, 'lvm'), (6, 7, 'database')))

    def test_at_once(self):
        """Of two things at once the first in the order counts."""
        self.assertEqual(
            {'lvm': 3, 'database': 2, None: 5},
            self.shares((1, 4, 'database'), (2, 5, 'lvm'),
                        (3, 4, 'lvm'), (6, 7, 'database')))

    def test_longer_than_the_request(self):
        """What was before and what is after does not count."""
        self.assertEqual(
            {'lvm': 1, None: 1},
            self.shares((0, 6, 'lvm'), (7, 9, 'driver'), (1, 2, 'lvm'),
                        began=5, ended=7))
