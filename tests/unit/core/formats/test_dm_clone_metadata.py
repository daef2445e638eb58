# SPDX-License-Identifier: Apache-2.0
"""What a clone has on record, as the kernel writes it."""

import random
import struct

import ddt
import testtools

from cinder_localclone.core.formats import dm_clone_metadata
from tests.helpers.clone_metadata import BLOCK
from tests.helpers.clone_metadata import ENTRIES
from tests.helpers.clone_metadata import regions
from tests.helpers.clone_metadata import WORDS
from tests.helpers.clone_metadata import Writer


@ddt.ddt
class LocalTest(testtools.TestCase):

    @ddt.data((64, ENTRIES), (1024, ENTRIES), (100000, ENTRIES),
              (5 * 64 * WORDS - 7, 2))
    @ddt.unpack
    def test_as_sets(self, count, entries):
        numbers = random.Random(count)
        local = set(numbers.sample(range(count), count // 3))
        metadata = Writer(count, local, entries).metadata()
        self.assertEqual(sorted(local), regions(
            dm_clone_metadata.local_regions(metadata, count)))

    def test_neighbours_are_one(self):
        metadata = Writer(128, {1, 2, 3, 5}).metadata()
        self.assertEqual([[1, 3], [5, 1]],
                         dm_clone_metadata.local_regions(metadata, 128))

    @ddt.data(({*range(256)}, 256, [[0, 256]]),
              ({*range(64, 128), 129}, 256, [[64, 64], [129, 1]]),
              ({*range(60, 130)}, 256, [[60, 70]]),
              ({*range(70)}, 70, [[0, 70]]),
              # What is beyond the last one means nothing.
              ({*range(64, 128)}, 70, [[64, 6]]),
              ({*range(64, 69), *range(70, 128)}, 70, [[64, 5]]))
    @ddt.unpack
    def test_whole_words(self, local, count, found):
        self.assertEqual(found, dm_clone_metadata.local_regions(
            Writer(256, local).metadata(), count))

    def damaged(self, at, data):
        writer = Writer(1024, {1})
        metadata = bytearray(writer.metadata())
        if at == 'node':
            at = writer.root * BLOCK + data[0]
            data = data[1]
        metadata[at:at + len(data)] = data
        return bytes(metadata)

    @ddt.data((32, b'x'), (40, b'\2'), (188, b'\xff\xff'),
              (188, b'\xff' * 8), (188, struct.pack('<Q', 1 << 51)),
              ('node', (4, b'\3')), ('node', (8, b'\xff')),
              ('node', (16, b'\xff\xff')), ('node', (24, b'\4')),
              ('node', (32 + 8 * ENTRIES, b'\xff\xff')))
    @ddt.unpack
    def test_what_is_odd_is_not_believed(self, at, data):
        metadata = self.damaged(at, data)
        self.assertRaises(dm_clone_metadata.OddMetadata,
                          dm_clone_metadata.local_regions, metadata, 1024)

    @ddt.data((0, 3, 4), (1, 2, 3), (0, 1, 3), (0, 2, 3))
    def test_a_block_that_is_missing(self, keys):
        writer = Writer(3 * 64 * WORDS, {1})
        block = bytearray(writer.blocks[writer.root])
        self.assertEqual((0, 1, 2), struct.unpack_from('<QQQ', block, 32))
        struct.pack_into('<QQQ', block, 32, *keys)
        writer.blocks[writer.root] = bytes(block)
        self.assertRaises(
            dm_clone_metadata.OddMetadata, dm_clone_metadata.local_regions,
            writer.metadata(), 2 * 64 * WORDS)

    def test_more_than_it_has(self):
        self.assertRaises(
            dm_clone_metadata.OddMetadata, dm_clone_metadata.local_regions,
            Writer(64, set()).metadata(), 65)

    def test_nothing_at_all(self):
        for metadata in (b'', bytes(BLOCK)):
            self.assertRaises(dm_clone_metadata.OddMetadata,
                              dm_clone_metadata.local_regions, metadata, 0)

    def test_a_tree_in_a_circle(self):
        writer = Writer(5 * 64 * WORDS, {1}, 2)
        block = bytearray(writer.blocks[writer.root])
        struct.pack_into('<Q', block, 32 + 8 * ENTRIES, writer.root)
        writer.blocks[writer.root] = bytes(block)
        self.assertRaises(dm_clone_metadata.OddMetadata,
                          dm_clone_metadata.local_regions, writer.metadata(),
                          1)
