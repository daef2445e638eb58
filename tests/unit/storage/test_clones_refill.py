# SPDX-License-Identifier: Apache-2.0
"""What of a clone is mapped, local or to be copied again."""

import os
import pathlib
import struct
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.storage.privsep import while_suspended
from tests.helpers.writer import Writer


@ddt.ddt
class MappingTest(testtools.TestCase):
    """What a pool has mapped, by its metadata."""

    DEVICES = {1: set(range(100)), 2: set(), 5: {0, 1, 7, 8, 9, 300, 301},
               9: {4}}

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'metadata'
        self.writer = Writer(self.DEVICES)

    def mapping(self):
        self.writer.write(self.path)
        metadata = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, metadata)
        return while_suspended.Mapping(metadata)

    def test_each_block(self):
        mapping = self.mapping()
        for number, mapped in self.DEVICES.items():
            root = mapping.root_of(number)
            self.assertEqual(mapped, {block for block in range(400)
                                      if mapping.is_mapped(root, block)})

    def test_first_block_of_the_pool(self):
        """Its value is 0 if it is mapped at once."""
        root = self.mapping().root_of(9)
        self.change(root, '<Q', 32 + 8 * 3, 0)
        self.assertTrue(self.mapping().is_mapped(root, 4))

    def test_short_read(self):
        mapping = self.mapping()
        root, read = mapping.root_of(9), os.preadv
        with mock.patch.object(
                os, 'preadv', lambda *args: min(512, read(*args))):
            self.assertRaises(ValueError, mapping.is_mapped, root, 4)

    def test_no_such_device(self):
        mapping = self.mapping()
        for number in (0, 3, 10):
            self.assertRaises(ValueError, mapping.root_of, number)

    def test_no_snapshot(self):
        self.writer.blocks[0] = self.writer._superblock(0, 0, 0)
        error = self.assertRaises(ValueError, self.mapping)
        self.assertIn('no snapshot', str(error))

    def change(self, block, format, at, value):
        data = bytearray(self.writer.blocks[block])
        struct.pack_into(format, data, at, value)
        self.writer.blocks[block] = bytes(data)

    @ddt.data((0, '<Q', 8), (1, '<Q', 8), (0, '<Q', 32), (1, '<Q', 32))
    @ddt.unpack
    def test_no_superblock(self, block, format, at):
        self.change(block, format, at, 77)
        self.assertRaises(ValueError, self.mapping)

    @ddt.data(('<I', 4, 3), ('<I', 4, 0), ('<Q', 8, 77), ('<I', 16, 9),
              ('<I', 24, 16))
    @ddt.unpack
    def test_no_node(self, format, at, value):
        """Nothing is written where it is not known what is mapped."""
        root = self.mapping().root_of(5)
        self.change(root, format, at, value)
        self.assertRaises(ValueError, self.mapping().is_mapped, root, 7)

    def test_end_of_the_metadata(self):
        mapping = self.mapping()
        self.assertRaises(ValueError, mapping.is_mapped,
                          len(self.writer.blocks), 0)

    def test_tree_without_end(self):
        mapping = self.mapping()
        root = mapping.root_of(1)
        self.change(root, '<Q', 32 + 8 * 3, root)
        self.assertRaises(ValueError, self.mapping().is_mapped, root, 0)
