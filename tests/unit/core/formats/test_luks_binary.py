# SPDX-License-Identifier: Apache-2.0
"""The two copies of a binary LUKS2 header."""

import hashlib

import testtools

from cinder_localclone.core.formats import luks_binary


class CopiesTest(testtools.TestCase):
    """The bytes of a header; whole ones of cryptsetup are looked at, too."""

    SIZE = 16 << 10

    def copy(self, magic, size=SIZE, version=2, says=None):
        made = bytearray(size)
        luks_binary._BEGIN.pack_into(made, 0, magic, version, says or size, 7)
        made[72:78] = b'sha256'
        made[448:480] = hashlib.sha256(made).digest()
        return bytes(made)

    def pair(self, first=luks_binary.FIRST, second=luks_binary.SECOND, **more):
        return self.copy(first, **more) + self.copy(second, **more)

    def assertDamaged(self, data):
        self.assertEqual(['the first copy of its header is damaged',
                          'the second copy of its header is damaged'],
                         luks_binary.problems(data))

    def test_up_to_the_end_of_what_is_read(self):
        for size in (self.SIZE, luks_binary.READ_BYTES // 2):
            self.assertEqual([], luks_binary.problems(self.pair(size=size)))

    def test_one_in_the_place_of_the_other(self):
        self.assertDamaged(self.pair(luks_binary.SECOND, luks_binary.FIRST))

    def test_second_of_another_size(self):
        """It is one of before."""
        data = self.copy(luks_binary.FIRST) + bytes(self.SIZE) + self.copy(
            luks_binary.SECOND, size=2 * self.SIZE)
        self.assertEqual(['the second copy of its header is damaged'],
                         luks_binary.problems(data))
        self.assertEqual((0, self.SIZE, 7), luks_binary.newest(data))

    def test_checksum_of_another_kind(self):
        data = bytearray(self.pair())
        data[72:78] = b'nohash'
        self.assertEqual(['the first copy of its header is damaged'],
                         luks_binary.problems(bytes(data)))
        self.assertEqual((self.SIZE, self.SIZE, 7),
                         luks_binary.newest(bytes(data)))

    def test_none_is_the_newest(self):
        self.assertIsNone(luks_binary.newest(b''))

    def test_another_version(self):
        self.assertDamaged(self.pair(version=1))

    def test_what_is_no_size(self):
        self.assertDamaged(self.copy(luks_binary.FIRST, size=20000))
        self.assertDamaged(self.pair(size=8 << 10))

    def test_what_is_not_all_there(self):
        for length in (0, 100, 512, self.SIZE - 1):
            self.assertDamaged(self.pair()[:length])
