# SPDX-License-Identifier: Apache-2.0
"""Extra specs: each is understood or an error, never ignored."""

import ddt
import testtools

from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import pins
from cinder_localclone.core import volume_types
from cinder_localclone.core.volume_types import KeyFormat
from tests.helpers import luks_headers

REFERENCE = '0f1e2d3c-0000-4000-8000-000000000001'
PIN = pins.Pin('aes-xts-plain64', 512, 4096, '', 16 << 20, 'ab')


def parse(**specs):
    return volume_types.parse(dict(
        {'volume_backend_name': 'l', 'capabilities:x': 'y'},
        **{'localclone:' + name: value for name, value in specs.items()}))


def luks2(**specs):
    return parse(encryption='luks2', **specs)


@ddt.ddt
class ParseTest(testtools.TestCase):

    def test_a_type_says_nothing_of_it(self):
        self.assertIsNone(parse())

    def test_the_defaults(self):
        self.assertEqual(volume_types.Encryption(
            cipher='aes-xts-plain64', key_bits=512, sector_size=512,
            integrity='none', discards=False, zeroed=False, shared_key='',
            key_format=KeyFormat.HEX), luks2())
        self.assertEqual(volume_types.Encryption(), luks2())

    def test_all_of_it(self):
        self.assertEqual(volume_types.Encryption(
            cipher='twofish-xts-plain64', key_bits=256, sector_size=4096,
            discards=True, zeroed=True, shared_key=REFERENCE,
            key_format=KeyFormat.RAW),
            luks2(cipher='twofish-xts-plain64', key_size='256',
                  sector_size='4096', discards='<is> True', zeroed='TRUE',
                  key='type:' + REFERENCE, key_format='raw', moves='live',
                  integrity='none'))

    def test_the_pace_of_copies_has_nothing_to_do_with_it(self):
        for value in ('yield', 'full', 'spare', ' spare '):
            specs = {'localclone:pace': value}
            self.assertIsNone(volume_types.parse(specs, new=True))
            self.assertEqual(
                volume_types.Encryption(), volume_types.parse(
                    {**specs, 'localclone:encryption': 'luks2'}, new=True))

    @ddt.data('', 'slow', 'FULL', 'full speed')
    def test_a_pace_that_there_is_none_of(self, value):
        specs = {'localclone:pace': value}
        error = self.assertRaises(
            volume_types.InvalidPace, volume_types.parse, specs,
            new=True)
        self.assertIn('localclone:pace=%s is not possible; choose yield or '
                      'full or spare' % value, str(error))
        # Of a volume that is there nothing depends on it.
        self.assertEqual(
            volume_types.Encryption(), volume_types.parse(
                {**specs, 'localclone:encryption': 'luks2'}))

    @ddt.data(
        ({'encrypton': 'luks2'}, 'localclone:encrypton'),
        ({'encryption': 'luks2', 'cypher': 'x'}, 'localclone:cypher'),
        ({'encryption': 'luks2', 'key-size': '512'}, 'localclone:key-size'),
        ({'cipher': 'aes-xts-plain64'}, 'localclone:cipher has no effect'),
        ({'moves': 'cold'}, 'localclone:moves has no effect'))
    @ddt.unpack
    def test_a_misspelt_word_never_means_not_encrypted(self, specs, said):
        error = self.assertRaises(
            volume_types.InvalidType, parse, **specs)
        self.assertIn(said, str(error))

    @ddt.data('luks', 'luks1', 'LUKS2', 'plain', 'true', '')
    def test_there_is_luks2_alone(self, how):
        error = self.assertRaises(
            volume_types.InvalidType, parse, encryption=how)
        self.assertIn('choose luks2', str(error))

    @ddt.data(
        ('cipher', 'aes-ecb'), ('cipher', 'aes-xts-plain'),
        ('cipher', 'aes-cbc-essiv:sha256'), ('cipher', 'cipher_null-ecb'),
        ('key_size', '128'), ('key_size', '0x200'), ('key_size', ''),
        ('sector_size', '8192'), ('sector_size', '4 KiB'),
        ('integrity', 'hmac-sha1'), ('integrity', 'aead'),
        ('discards', 'maybe'), ('zeroed', 'no zeros'),
        ('key_format', 'base64'), ('moves', 'never'),
        ('key', 'shared'), ('key', REFERENCE))
    @ddt.unpack
    def test_a_value_that_is_not_possible(self, name, value):
        error = self.assertRaises(
            volume_types.InvalidType, luks2, **{name: value})
        self.assertIn('localclone:%s=%s is not possible; choose ' % (
            name, value), str(error))

    @ddt.data('type', 'type:', 'type: x', 'type:a b', 'type:a"b', 'type:a,b',
              'type:-x', 'type:' + 'x' * 201)
    def test_a_reference_that_no_record_takes(self, key):
        error = self.assertRaises(
            volume_types.InvalidType, luks2, key=key)
        self.assertIn('does not name a secret', str(error))

    def test_references_of_the_key_managers(self):
        for reference in (REFERENCE, REFERENCE.replace('-', ''), 'a/b:c=d'):
            self.assertTrue(volume_types.is_reference(reference))
            self.assertEqual(reference, luks2(
                key='type:' + reference).shared_key)
        self.assertFalse(volume_types.is_reference(''))
        self.assertFalse(volume_types.is_reference(REFERENCE + '\n'))

    @ddt.data(*volume_types.CIPHERS)
    def test_each_cipher_has_defaults_that_go_with_it(self, name):
        cipher = volume_types.CIPHERS[name]
        moves = 'live' if 'none' in cipher.integrity else 'cold'
        found = luks2(cipher=name, moves=moves)
        self.assertEqual(cipher.key_bits[-1], found.key_bits)
        self.assertEqual(cipher.integrity[0], found.integrity)
        self.assertEqual(moves == 'cold', found.authenticated)

    def test_sizes_are_those_of_the_cipher(self):
        self.assertEqual(256, luks2(key_size='256').key_bits)
        self.assertRaises(
            volume_types.InvalidType, luks2, moves='cold',
            cipher='aegis128-random', key_size='256')


@ddt.ddt
class IntegrityTest(testtools.TestCase):
    """What would lose data has to be accepted, or is refused."""

    @ddt.data(('aes-gcm-random', 'aead'), ('aes-xts-plain64', 'hmac-sha256'),
              ('chacha20-random', 'poly1305'))
    @ddt.unpack
    def test_it_moves_cold_and_its_type_says_so(self, cipher, integrity):
        for moves in ({}, {'moves': 'live'}):
            error = self.assertRaises(
                volume_types.InvalidType, luks2, cipher=cipher,
                integrity=integrity, **moves)
            self.assertIn('a live migration would lose data', str(error))
        found = luks2(cipher=cipher, integrity=integrity, moves='cold')
        self.assertTrue(found.authenticated)
        self.assertTrue(found.zeroed, 'else it can\'t be read')
        self.assertEqual(integrity, found.integrity)

    def test_an_aead_cipher_is_no_use_without(self):
        self.assertRaises(
            volume_types.InvalidType, luks2, cipher='aes-gcm-random',
            integrity='none', moves='cold')

    def test_only_with_it(self):
        error = self.assertRaises(
            volume_types.InvalidType, luks2, moves='cold')
        self.assertIn('only for types with localclone:integrity', str(error))

    def test_no_discards(self):
        error = self.assertRaises(
            volume_types.InvalidType, luks2, moves='cold',
            integrity='hmac-sha512', discards='true')
        self.assertIn('localclone:discards=true', str(error))


@ddt.ddt
class WeakKeyTest(testtools.TestCase):

    @ddt.data(('volume', 'passphrase', False),
              ('type:' + REFERENCE, 'hex', False),
              ('type:' + REFERENCE, 'raw', False),
              ('type:' + REFERENCE, 'passphrase', True))
    @ddt.unpack
    def test_what_somebody_has_chosen_may_be(self, key, key_format, weak):
        self.assertEqual(weak, luks2(
            key=key, key_format=key_format).key_may_be_weak)


@ddt.ddt
class RecordedTest(testtools.TestCase):

    @ddt.data(('lc2:luks2:16777216:live:::' + REFERENCE,
               (16 << 20, REFERENCE, True)),
              ('lc2:luks2:33554432:cold:aes-xts-plain64/768/512/hmac(sha256)/'
               '65528/ab::a:b/c', (32 << 20, 'a:b/c', False, pins.Pin(
                   'aes-xts-plain64', 768, 512, 'hmac(sha256)', 65528 * 512,
                   'ab'))),
              ('lc2:luks2:16777216:live:aes-xts-plain64/512/4096//32768/ab:'
               'serpent-xts-plain64/256/:k', (16 << 20, 'k', True, PIN, pins.
                                              Pin('serpent-xts-plain64', 256,
                                                  4096, '', 16 << 20, ''))),
              ('lc2:luks2:16777216:live+s:aes-xts-plain64/512/4096//32768/ab:'
               ':k', (16 << 20, 'k', True, PIN, None, True)))
    @ddt.unpack
    def test_what_is_written_is_read(self, text, recorded):
        recorded = volume_types.Recorded(*recorded)
        self.assertEqual(text, str(recorded))
        self.assertEqual(recorded, volume_types.Recorded.parse(text))

    @ddt.data(None, '', 'eui.0123', '512 4096', REFERENCE, 'lc', 'lcd:1',
              'volume:lc2:luks2')
    def test_of_what_is_not_encrypted(self, text):
        self.assertIsNone(volume_types.Recorded.parse(text))

    @ddt.data('lc1:luks2:16777216:live:k', 'lc3:luks2:16777216:live:::k',
              'lc2:luks3:16777216:live:::k', 'lc2:luks2::live:::k',
              'lc2:luks2:16777216:often:::k', 'lc2:luks2:16777216:live::',
              'lc2:luks2:16777216:+s:::k',
              'lc2:', 'lc20:luks2:1:live:::k', 'lc2:luks2:1:live:a/1::k',
              'lc2:luks2:1:live::a/1/:k')
    def test_what_is_not_understood_is_not_taken_for_plain(self, text):
        error = self.assertRaises(
            ValueError, volume_types.Recorded.parse, text)
        self.assertIn(text, str(error))

    def test_the_longest_one_fits_its_column(self):
        longest = max(volume_types.CIPHERS, key=len)
        digest = luks_header.parse(luks_headers.PLAIN).digest
        pin = pins.Pin(longest, 256, 4096, '', 16 << 20, digest)
        for header_bytes, pin, becoming in (
                (16 << 20, pin, pin), (1 << 40, pins.Pin(
                    'camellia-xts-plain64', 1024, 4096, 'hmac(sha512)',
                    1 << 40, digest), None)):
            key = 'x' * 96
            self.assertTrue(volume_types.is_reference(key))
            self.assertFalse(volume_types.is_reference(key + 'x'))
            self.assertLessEqual(len(str(volume_types.Recorded(
                header_bytes, key, becoming is not None, pin, becoming,
                becoming is not None))), 255)
