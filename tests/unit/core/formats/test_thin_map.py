# SPDX-License-Identifier: Apache-2.0
"""Holes in what thin_dump prints: never one where anything is mapped."""

import random
from unittest import mock

import ddt
import testtools

from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import state
from tests.helpers.thin_dump import GIB
from tests.helpers.thin_dump import KIB
from tests.helpers.thin_dump import text


def read(printed, size=GIB, region=64 * KIB, device=7, piece=100):
    dump = thin_map.Dump(device, size, region)
    printed = printed.encode()
    for start in range(0, len(printed), piece):
        dump.feed(printed[start:start + piece])
    return dump.largest_holes()


@ddt.ddt
class DumpTest(testtools.TestCase):

    def all_of(self, most, *ranges):
        dump = thin_map.Dump(7, GIB, 64 * KIB, most)
        dump.feed(text(*ranges).encode())
        return dump.all_holes()

    def test_all_holes(self):
        self.assertEqual(
            [[2, 1], [5, 16379]], self.all_of(3, (0, 2), (3, 2)))
        self.assertEqual([[0, 16384]], self.all_of(2))
        # In their order, not by size.
        self.assertEqual(
            [[0, 5], [6, 1], [8, 3], [12, 16372]],
            self.all_of(5, (5, 1), (7, 1), (11, 1)))

    def test_one_that_is_left_out_may_be_what_is_looked_for(self):
        self.assertRaises(thin_map.OddMap, self.all_of, 2, (0, 2), (3, 2),
                          (6, 1))

    def test_never_written(self):
        self.assertEqual([[0, 16384]], read(text()))

    def test_written_all_over(self):
        self.assertEqual([], read(text((0, 16384))))

    def test_between_what_is_mapped(self):
        self.assertEqual(
            [[1, 3], [14, 86], [101, 16283]],
            read(text((0, 1), (4, 10), (100, 1))))

    def test_what_is_split_is_no_hole(self):
        self.assertEqual([[12, 16372]], read(text((0, 4), (4, 1), (5, 7))))

    @ddt.data(
        # A region of several blocks is one only if none of them is mapped.
        (64, 256, [(5, 1)], [[0, 1], [2, 4094]]),
        (64, 256, [(0, 1), (8, 1)], [[1, 1], [3, 4093]]),
        # Blocks that are larger than regions.
        (256, 64, [(1, 1)], [[0, 4], [8, 16376]]),
        # Of which neither is a multiple of the other.
        (192, 64, [(1, 1)], [[0, 3], [6, 16378]]),
        (192, 256, [(1, 1)], [[2, 4094]]),
        (64, 1024, [(15, 1), (17, 1)], [[2, 1022]]))
    @ddt.unpack
    def test_blocks_and_regions(self, block, region, mapped, holes):
        self.assertEqual(holes, read(
            text(*mapped, block=block * KIB), region=region * KIB))

    def test_blocks_beyond_the_volume(self):
        """LVM rounds LVs up; the last block may end beyond the volume."""
        self.assertEqual([[0, 16384]], read(text((16384, 4))))
        self.assertEqual([[0, 16380]], read(text((16380, 8))))
        self.assertEqual([], read(text((0, 20000))))
        self.assertEqual([[0, 5461]], read(
            text((5461, 1), block=192 * KIB), region=192 * KIB))
        self.assertEqual([[0, 5461]], read(text(), region=192 * KIB))

    def test_against_what_is_written_block_by_block(self):
        for seed in range(30):
            chance = random.Random(seed)
            block, region = (chance.choice((4, 8, 12, 64)) * KIB
                             for _each in range(2))
            size = 2 << 20
            blocks = size // block + chance.randrange(3)
            written = sorted(chance.sample(range(blocks), blocks // 9))
            data = bytearray(size)
            for each in written:
                data[each * block:(each + 1) * block] = b'x' * max(
                    0, min(block, size - each * block))
            free = {each for each in range(size // region)
                    if not any(data[each * region:(each + 1) * region])}
            holes = read(text(*((each, 1) for each in written), block=block),
                         size, region)
            self.assertEqual(free, {
                start + n for start, count in holes for n in range(count)})
            self.assertEqual(len(free), sum(count for _s, count in holes))

    @ddt.data(
        ('another device', text((0, 1)).replace('dev_id="7"', 'dev_id="8"')),
        ('no device', text().partition('  <device')[0] + '</superblock>'),
        ('two devices', text((0, 1)).replace(
            '</superblock>', '<device dev_id="7" mapped_blocks="0"/>'
            '</superblock>')),
        ('two devices, the second of which fits', text((0, 1)).replace(
            '</superblock>', '<device dev_id="7" mapped_blocks="1"/>'
            '</superblock>')),
        ('two superblocks', text((0, 1)).replace(
            '  <device', '<superblock data_block_size="8"/>  <device')),
        ('another kind of file', text((0, 1)).replace('superblock', 'map')),
        ('another kind of device', text((0, 1)).replace('device', 'pool')),
        ('a mapping of no device', text(mapped=1).replace(
            '  <device', '<single_mapping origin_block="0"/>  <device')),
        ('a mapping is missing', text((0, 1), mapped=2)),
        ('one too many', text((0, 1), (1, 1), mapped=1)),
        ('descending', text((5, 1), (4, 1))),
        ('overlapping', text((5, 3), (7, 1))),
        ('nothing in it', text((5, 0), (7, 1))),
        ('no end', text((0, 1)).replace('</superblock>', '')),
        ('nothing', ''),
        ('no map', 'no current metadata snap\n'),
        ('no blocks', text().replace('data_block_size', 'size')),
        ('no superblock', text().partition('\n')[2].replace(
            '</superblock>\n', '')),
        ('a block of 0', text((0, 1), block=0)),
        ('no number', text((0, 1)).replace('block="0"', 'block="x"')),
        ('no count', text((0, 1)).replace('mapped_blocks', 'blocks')),
        # Newer tools may share mappings between devices.
        ('shared', text((0, 1)).replace('<single', '<ref name="1"/><single')),
        ('defined', text((0, 1)).replace(
            '  <device', '<def name="1"></def><device')))
    @ddt.unpack
    def test_odd(self, _what, printed):
        self.assertRaises(thin_map.OddMap, read, printed)

    def test_what_the_parser_tells_late(self):
        """It may keep back some of what it was given (Expat 2.6)."""
        dump = thin_map.Dump(7, GIB, 64 * KIB)
        parser, late = dump._parser, []

        def parse(piece, final):
            late.append(piece)
            if final:
                parser.Parse(b''.join(late), True)
        dump._parser = mock.Mock(Parse=parse)
        dump.feed(text((0, 1)).encode())
        self.assertEqual([[1, 16383]], dump.largest_holes())

    @ddt.data(*range(0, 300, 7))
    def test_cut_anywhere(self, end):
        whole = text((1, 1), (5, 2))
        self.assertRaises(thin_map.OddMap, read, whole[:-20 - end])

    def test_largest(self):
        with mock.patch.object(thin_map, 'MOST', 2):
            self.assertEqual([[11, 9], [31, 16353]], read(
                text((0, 1), (5, 1), (10, 1), (20, 1), (25, 1), (30, 1))))

    def test_regions_in_all(self):
        with mock.patch.object(thin_map, 'MOST_REGIONS', 16360):
            self.assertEqual([[11, 7], [31, 16353]], read(
                text((0, 1), (5, 1), (10, 1), (20, 1), (25, 1), (30, 1))))
        with mock.patch.object(thin_map, 'MOST_REGIONS', 10):
            self.assertEqual([[1, 10]], read(text((0, 1), (16383, 1))))

    def test_of_a_large_volume(self):
        holes = read(text(), size=1 << 45)
        self.assertEqual([[0, thin_map.MOST_REGIONS]], holes)

    def test_one_that_is_scattered_takes_no_more_than_a_bounded_room(self):
        written = 3 * thin_map.MOST
        holes = read(text(*((2 * n, 1) for n in range(written)), block=4096),
                     size=8192 * written, region=4096, piece=1 << 20)
        self.assertEqual(thin_map.MOST, len(holes))
        self.assertEqual({1}, {count for _start, count in holes})


@ddt.ddt
class InBytesTest(testtools.TestCase):

    GEOMETRY = state.Geometry(128, 32, 8)

    def test_holes(self):
        self.assertEqual(
            [(0, 64 * KIB), (2 << 16, GIB - (2 << 16))],
            thin_map.in_bytes([[0, 1], [2, 16382]], self.GEOMETRY, GIB))
        self.assertEqual([], thin_map.in_bytes([], self.GEOMETRY, GIB))

    @ddt.data([[0, 16385]], [[16384, 1]], [[-1, 2]], [[4, 0]], [[4, -1]],
              [[4, 4], [7, 1]], [[4, 4], [2, 1]])
    def test_others(self, holes):
        self.assertRaises(thin_map.OddMap, thin_map.in_bytes, holes,
                          self.GEOMETRY, GIB)

    def test_too_many(self):
        most = [[2 * n, 1] for n in range(thin_map.MOST)]
        self.assertEqual(thin_map.MOST, len(thin_map.in_bytes(
            most, self.GEOMETRY, 1 << 40)))
        self.assertRaises(
            thin_map.OddMap, thin_map.in_bytes,
            [*most, [2 * thin_map.MOST, 1]], self.GEOMETRY, 1 << 40)


@ddt.ddt
class CommonTest(testtools.TestCase):

    @ddt.data(([], [[0, 9]], []), ([[0, 9]], [], []),
              ([[0, 9]], [[0, 9]], [[0, 9]]),
              ([[2, 3]], [[0, 9]], [[2, 3]]),
              ([[0, 9]], [[2, 3]], [[2, 3]]),
              ([[0, 4], [6, 4]], [[2, 6]], [[2, 2], [6, 2]]),
              ([[0, 2]], [[2, 2]], []),
              ([[0, 10]], [[1, 1], [3, 1], [9, 5]], [[1, 1], [3, 1], [9, 1]]))
    @ddt.unpack
    def test_holes_of_both(self, one, other, expected):
        self.assertEqual(expected, thin_map.intersection(one, other))
        self.assertEqual(expected, thin_map.intersection(other, one))

    @ddt.data(([], [], []),
              ([[0, 4]], [], [[0, 4]]),
              ([[0, 4]], [[0, 4]], []),
              ([[2, 4]], [[0, 9]], []),
              ([[0, 4]], [[1, 2]], [[0, 1], [3, 1]]),
              ([[0, 2], [4, 2]], [[1, 4]], [[0, 1], [5, 1]]),
              ([[5, 2]], [[0, 2], [9, 1]], [[5, 2]]))
    @ddt.unpack
    def test_holes_of_the_first_alone(self, one, other, expected):
        self.assertEqual(expected, thin_map.difference(one, other))

    @ddt.data(([], []), ([[0, 1]], [[0, 1]]), ([[3, 1]], [[0, 1]]),
              ([[3, 2]], [[0, 2]]), ([[4, 4], [9, 1]], [[1, 2]]),
              ([[1, 1], [13, 9]], [[0, 1], [3, 3]]))
    @ddt.unpack
    def test_regions_of_four_that_have_any(self, holes, expected):
        self.assertEqual(expected, thin_map.in_larger_regions(holes, 4))

    @ddt.data(([], [], []), ([[0, 4]], [], [[0, 4]]),
              ([[0, 4]], [[0, 4]], [[0, 4]]), ([[2, 2]], [[4, 1]], [[2, 3]]),
              ([[2, 2]], [[0, 9]], [[0, 9]]),
              ([[0, 1]], [[5, 1]], [[0, 1], [5, 1]]),
              ([[0, 3], [9, 1]], [[2, 4], [7, 2]], [[0, 6], [7, 3]]))
    @ddt.unpack
    def test_holes_of_any(self, one, other, expected):
        self.assertEqual(expected, thin_map.union(one, other))
        self.assertEqual(expected, thin_map.union(other, one))

    def test_pieces(self):
        self.assertEqual([(0, 2), (2, 2), (4, 1), (9, 1)],
                         thin_map.pieces([[0, 5], [9, 1]], 2))

    def test_in_fourths(self):
        self.assertEqual([[0, 4], [12, 8]],
                         thin_map.in_smaller_regions([[0, 1], [3, 2]], 4))

    def test_as_sets_of_regions(self):
        numbers = random.Random(5)

        def some():
            return sorted(numbers.sample(range(60), numbers.randrange(60)))

        def runs(regions):
            return [[region, 1] for region in regions]
        for _time in range(200):
            one, other = some(), some()
            merged = []
            for region in one:  # neighbours as one hole
                if merged and sum(merged[-1]) == region:
                    merged[-1][1] += 1
                else:
                    merged.append([region, 1])
            found = thin_map.intersection(merged, runs(other))
            self.assertEqual(sorted(set(one) & set(other)), [
                region for start, count in found
                for region in range(start, start + count)])
            found = thin_map.difference(merged, runs(other))
            self.assertEqual(sorted(set(one) - set(other)), [
                region for start, count in found
                for region in range(start, start + count)])
