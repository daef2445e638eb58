# SPDX-License-Identifier: Apache-2.0
"""What a volume that returns need not copy, as the bench reads it."""

import testtools

from lab.bench import returns

#: What thin_delta(8) of thin-provisioning-tools 0.9 prints.
DELTA = '''<superblock uuid="" time="3" transaction="4" data_block_size="128" \
nr_data_blocks="81920">
  <diff left="5" right="2">
    <different begin="0" length="16"/>
    <same begin="16" length="1008"/>
    <right_only begin="1024" length="1"/>
    <same begin="1025" length="999"/>
  </diff>
</superblock>
'''
KIB = 1024


class EqualRangesTest(testtools.TestCase):

    def test_blocks_that_both_share(self):
        self.assertEqual(
            [(1024 * KIB, 1008 * 64 * KIB), (1025 * 64 * KIB, 999 * 64 * KIB)],
            returns.equal_ranges(DELTA, 2024 * 64 * KIB))

    def test_not_beyond_the_end(self):
        """The last block of a pool may be larger than what is left."""
        self.assertEqual(
            (1025 * 64 * KIB, 998 * 64 * KIB + 512),
            returns.equal_ranges(DELTA, 2023 * 64 * KIB + 512)[-1])
