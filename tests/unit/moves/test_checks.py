# SPDX-License-Identifier: Apache-2.0
import itertools

import ddt
import testtools

from cinder_localclone.moves import checks


@ddt.ddt
class StandingTest(testtools.TestCase):

    @ddt.data(*itertools.product((False, True), repeat=5))
    @ddt.unpack
    def test_at_most_one_way(self, source, destination, pending, used,
                             written):
        standing = checks.Holders(source, destination, pending)
        forward = checks.has_left_source(standing, int(used))
        back = checks.was_given_up(standing, int(used), written)
        self.assertEqual(not source and not used, forward)
        self.assertEqual(
            (source, destination, pending, used, written)
            == (True, False, False, False, False), back)
        self.assertFalse(forward and back)
