# SPDX-License-Identifier: Apache-2.0
"""LUKS2 headers as cryptsetup 2.6.1 prints them, tokens, options."""

import copy
import dataclasses
import json

import ddt
import testtools

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import header_notes
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.core.volume_types import KeyFormat
from tests.helpers import luks_headers

MIB = 1 << 20
UUID = '11111111-2222-4333-8444-555555555555'
FIRST = luks_header.Token('0f1e2d3c-0000-4000-8000-000000000001',
                          KeyFormat.HEX, keyslots=('0',), number='0')
SECOND = luks_header.Token('0f1e2d3c-0000-4000-8000-000000000002',
                           KeyFormat.RAW, keyslots=('1',), number='1')


def changed(text, change):
    metadata = json.loads(text)
    change(metadata)
    return json.dumps(metadata)


def fingerprint(text, number):
    return luks_header.fingerprint(json.loads(text)['digests'][number])


@ddt.ddt
class HeaderTest(testtools.TestCase):

    def test_a_new_volume(self):
        self.assertEqual(luks_header.Header(
            cipher='aes-xts-plain64', key_bits=512, sector_size=512,
            integrity='', data_offset=16 * MIB, grows=True, keyslots=('0',),
            tokens=(FIRST,), all_keyslots=('0',), all_tokens=('0',),
            digest=fingerprint(luks_headers.PLAIN, '0'),
            slot_ciphers=frozenset(['aes-xts-plain64'])),
            luks_header.parse(luks_headers.PLAIN))

    @ddt.data(('online-reencrypt-v2', ()), ('online-other', ('online-other',)))
    @ddt.unpack
    def test_requirement(self, mark, foreign):
        def change(metadata):
            metadata['config']['requirements'] = {'mandatory': [mark]}
        self.assertEqual(foreign, luks_header.parse(changed(
            luks_headers.PLAIN, change)).foreign_requirements)

    @ddt.data('digest', 'hash', 'iterations', 'salt', 'type')
    def test_digest_of_another_key(self, name):
        """The same value, by another hash, is of another key."""
        digest = json.loads(luks_headers.PLAIN)['digests']['0']
        self.assertIn(name, digest)
        self.assertNotEqual(luks_header.fingerprint(digest),
                            luks_header.fingerprint({**digest, name: 'other'}))
        self.assertEqual(luks_header.fingerprint(digest),
                         luks_header.fingerprint(
                             {**digest, 'keyslots': [], 'segments': []}))

    def test_two_keys(self):
        header = luks_header.parse(luks_headers.ROTATING)
        self.assertEqual(('0', '1'), header.keyslots)
        self.assertEqual((FIRST, SECOND), header.tokens)
        self.assertEqual((FIRST, SECOND),
                         header.tokens_with_role(luks_header.Role.VOLUME))
        self.assertEqual((),
                         header.tokens_with_role(luks_header.Role.RECOVERY))
        self.assertEqual({FIRST.key, SECOND.key}, header.keys())
        self.assertEqual((), header.keyslots_without_token)

    def test_a_token_of_a_slot_that_is_gone_opens_nothing(self):
        def drop(metadata):
            del metadata['keyslots']['0']
            metadata['digests']['0']['keyslots'].remove('0')
        header = luks_header.parse(changed(luks_headers.ROTATING, drop))
        self.assertEqual((SECOND,),
                         header.tokens_with_role(luks_header.Role.VOLUME))
        self.assertEqual((FIRST, SECOND), header.tokens)

    def test_a_slot_that_nobody_has_said_anything_of(self):
        header = luks_header.parse(changed(
            luks_headers.ROTATING, lambda each: each['tokens'].pop('1')))
        self.assertEqual(('1',), header.keyslots_without_token)

    def test_a_slot_that_was_announced(self):
        header = luks_header.parse(changed(
            luks_headers.ROTATING, lambda each: each['tokens']['1'].update(
                keyslots=[], slot='1')))
        self.assertEqual((), header.keyslots_without_token)
        self.assertEqual((FIRST,),
                         header.tokens_with_role(luks_header.Role.VOLUME))

    def test_a_slot_that_opens_no_data(self):
        """As "luksAddKey --unbound" makes it."""
        def unbind(metadata):
            metadata['digests']['0']['keyslots'].remove('1')
            metadata['digests']['9'] = {'keyslots': ['1'], 'segments': []}
        header = luks_header.parse(changed(luks_headers.ROTATING, unbind))
        self.assertEqual(('0',), header.keyslots)
        self.assertEqual(('0', '1'), header.all_keyslots)
        self.assertEqual((FIRST,),
                         header.tokens_with_role(luks_header.Role.VOLUME))

    def test_the_numbers_of_slots_are_numbers(self):
        def many(metadata):
            slots, digest = metadata['keyslots'], metadata['digests']['0']
            for number in ('10', '9'):
                slots[number] = copy.deepcopy(slots['0'])
                digest['keyslots'].append(number)
                metadata['tokens'][number] = dict(
                    metadata['tokens']['0'], keyslots=[number])
        header = luks_header.parse(changed(luks_headers.PLAIN, many))
        numbers = '0', '9', '10'
        self.assertEqual((numbers, numbers, numbers, numbers), (
            header.keyslots, header.all_keyslots, header.all_tokens,
            tuple(each.number for each in header.tokens)))

    def test_the_older_key_comes_first(self):
        header = luks_header.parse(luks_headers.ROTATING)
        self.assertEqual((FIRST, SECOND), dataclasses.replace(
            header,
            tokens=(SECOND, FIRST)).tokens_with_role(luks_header.Role.VOLUME))

    def test_all_slots_are_gone(self):
        """As when a volume is deleted, and that is repeated."""
        def erase(metadata):
            metadata['keyslots'].clear()
            metadata['digests']['0']['keyslots'].clear()
        header = luks_header.parse(changed(luks_headers.PLAIN, erase))
        self.assertEqual((0, ()), (header.key_bits, header.keyslots))

    def test_what_the_data_begins_with_is_its_cipher(self):
        """Whatever the number of that segment is."""
        def split(metadata):
            first = metadata['segments']['0']
            metadata['segments'] = {
                '0': dict(first, offset=str(32 * MIB), encryption='other'),
                '1': dict(first, size=str(16 * MIB))}
            metadata['digests']['0']['segments'] = ['0', '1']
        header = luks_header.parse(changed(luks_headers.PLAIN, split))
        self.assertEqual(('aes-xts-plain64', 16 * MIB),
                         (header.cipher, header.data_offset))

    def test_data_of_which_no_key_is_known(self):
        error = self.assertRaises(ValueError, luks_header.parse, changed(
            luks_headers.PLAIN, lambda each: each['digests']['0'].update(
                segments=['7'])))
        self.assertIn('no key of segment 0', str(error))

    def test_tokens_of_others_are_left_alone(self):
        header = luks_header.parse(changed(
            luks_headers.PLAIN, lambda each: each['tokens'].update(
                {'3': {'type': 'systemd-tpm2', 'keyslots': ['0']}})))
        self.assertEqual((FIRST,), header.tokens)
        self.assertEqual(('0', '3'), header.all_tokens)

    def test_integrity(self):
        header = luks_header.parse(changed(
            luks_headers.PLAIN, lambda each: each['segments']['0'].update(
                integrity={'type': 'hmac(sha256)'})))
        self.assertEqual('hmac(sha256)', header.integrity)

    def test_data_of_a_fixed_size(self):
        header = luks_header.parse(changed(
            luks_headers.PLAIN, lambda each: each['segments']['0'].update(
                size='1048576')))
        self.assertFalse(header.grows)

    @ddt.data(([], ()), (['online-reencrypt-v2'], ()),
              (['online-reencrypt'], ()),
              (['offline-reencrypt', 'online-reencrypt-v3'],
               ('offline-reencrypt',)),
              (['inline-hw-tags'], ('inline-hw-tags',)))
    @ddt.unpack
    def test_requirements(self, mandatory, foreign):
        header = luks_header.parse(changed(
            luks_headers.PLAIN, lambda each: each['config'].update(
                requirements={'mandatory': mandatory})))
        self.assertEqual(tuple(mandatory), header.requirements)
        self.assertEqual(foreign, header.foreign_requirements)

    @ddt.data('', '[]', '{}', 'null', '{"segments": {}}')
    def test_what_is_no_header(self, text):
        self.assertRaises(ValueError, luks_header.parse, text)

    @ddt.data('keyslots', 'segments', 'digests', 'config')
    def test_what_lacks_a_part(self, part):
        self.assertRaises(ValueError, luks_header.parse, changed(
            luks_headers.PLAIN, lambda each: each.pop(part)))

    def test_what_is_not_encrypted(self):
        self.assertRaises(ValueError, luks_header.parse, changed(
            luks_headers.PLAIN, lambda each: each['segments']['0'].update(
                type='linear')))


class ReencryptionTest(testtools.TestCase):

    def test_none(self):
        self.assertIsNone(luks_header.parse(
            luks_headers.ROTATING).reencryption)

    def test_begun(self):
        header = luks_header.parse(luks_headers.STARTED)
        self.assertEqual(luks_header.Reencryption(
            done=0, resilience='journal', interrupted=False,
            cipher='aes-xts-plain64', key_bits=256,
            digest=fingerprint(luks_headers.STARTED, '1')),
            header.reencryption)
        self.assertEqual(512, header.key_bits)
        self.assertEqual(('0', '1'), header.keyslots)
        self.assertEqual(('online-reencrypt-v2',), header.requirements)

    def test_the_token_names_both_slots(self):
        """cryptsetup has added the new one: one key opens both."""
        token, = luks_header.parse(luks_headers.STARTED).tokens
        self.assertEqual({'0', '1'}, set(token.keyslots))

    def test_running_or_killed(self):
        header = luks_header.parse(luks_headers.KILLED)
        self.assertEqual(luks_header.Reencryption(
            done=480 * MIB, resilience='checksum', interrupted=True,
            cipher='aes-xts-plain64', key_bits=512,
            digest=fingerprint(luks_headers.KILLED, '1')),
            header.reencryption)
        self.assertEqual(16 * MIB, header.data_offset)
        self.assertEqual(('0', '1'), header.keyslots)

    def test_paused(self):
        header = luks_header.parse(luks_headers.PAUSED)
        self.assertEqual(luks_header.Reencryption(
            done=832 * MIB, resilience='checksum', interrupted=False,
            cipher='aes-xts-plain64', key_bits=512,
            digest=fingerprint(luks_headers.PAUSED, '1')),
            header.reencryption)
        self.assertEqual(512, header.key_bits)
        self.assertEqual(16 * MIB, header.data_offset)

    def test_cipher_while_there_are_two(self):
        """That of before, though what is first has the other by now."""
        def fix(metadata):
            for each in metadata['segments'].values():
                if each.get('flags') == ['backup-previous']:
                    each['encryption'] = 'serpent-xts-plain64'
        for text in (luks_headers.KILLED, luks_headers.PAUSED):
            header = luks_header.parse(changed(text, fix))
            self.assertEqual('serpent-xts-plain64', header.cipher)
            self.assertEqual('aes-xts-plain64', header.reencryption.cipher)

    def test_it_keeps_its_size_until_it_is_complete(self):
        """From the first byte that is encrypted anew."""
        self.assertTrue(luks_header.parse(luks_headers.STARTED).grows)
        for text in (luks_headers.KILLED, luks_headers.PAUSED):
            self.assertFalse(luks_header.parse(text).grows)

    def test_what_both_were_is_no_data(self):
        """The header keeps a copy of either segment, of data of any size."""
        def fix(metadata):
            for each in metadata['segments'].values():
                if each['size'] == 'dynamic':
                    each['size'] = str(16 * MIB)
        header = luks_header.parse(changed(luks_headers.PAUSED, fix))
        self.assertEqual(832 * MIB, header.reencryption.done)

    def test_all_is_done_but_the_end(self):
        def complete(metadata):
            del metadata['segments']['1']
            metadata['segments']['0']['size'] = 'dynamic'
        header = luks_header.parse(changed(luks_headers.PAUSED, complete))
        self.assertEqual((0, False, True), (
            header.reencryption.done, header.reencryption.interrupted,
            header.reencryption.complete))
        self.assertTrue(header.grows)

    def test_without_what_says_how(self):
        error = self.assertRaises(ValueError, luks_header.parse, changed(
            luks_headers.STARTED, lambda each: each['keyslots'].pop('2')))
        self.assertIn('no parameters of its re-encryption', str(error))

    def test_a_key_of_the_old_data_only_is_seen(self):
        """Such as a recovery key: it opens nothing once this is complete."""
        def add(metadata):
            metadata['keyslots']['5'] = metadata['keyslots']['1']
            metadata['digests']['0']['keyslots'].append('5')
        header = luks_header.parse(changed(luks_headers.STARTED, add))
        self.assertEqual(('5',), header.keyslots_without_token)


class NotesTest(testtools.TestCase):

    def test_what_is_passed_through(self):
        """By tags of that kind alone, and of volumes alone."""
        self.assertEqual(
            {UUID: ('luks', 'key:1')}, header_notes.parse_remote_tags(
                [header_notes.remote_tag(UUID, 'luks', 'key:1'),
                 UUID.replace('1', '2') + '=luks:key',
                 header_notes.remote_tag('no-volume', 'luks', 'key'),
                 'other']))


@ddt.ddt
class TokenTest(testtools.TestCase):

    @ddt.data(FIRST, SECOND, luks_header.Token(
        '', KeyFormat.PASSPHRASE, shared=True, role=luks_header.Role.RECOVERY,
        keyslots=('2', '7'), number='3'), luks_header.Token(
            SECOND.key, KeyFormat.RAW, number='1', slot='4',
            replaces=FIRST.key))
    def test_what_is_written_is_read(self, token):
        self.assertEqual(token, luks_header.parse_token(
            token.number, json.loads(str(token))))

    def test_it_is_one_of_luks2(self):
        self.assertEqual(
            {'type': 'localclone', 'keyslots': ['0'], 'key': FIRST.key,
             'format': 'hex', 'shared': False, 'role': 'volume', 'slot': '',
             'replaces': ''}, json.loads(str(FIRST)))

    def test_that_of_another(self):
        self.assertIsNone(luks_header.parse_token('0', {
            'type': 'luks2-keyring', 'keyslots': []}))

    @ddt.data('key', 'format', 'shared', 'role', 'keyslots')
    def test_one_that_is_not_complete(self, part):
        token = json.loads(str(FIRST))
        del token[part]
        error = self.assertRaises(
            ValueError, luks_header.parse_token, '4', token)
        self.assertIn('token 4', str(error))

    @ddt.data({'format': 'rot13'}, {'role': 'x'}, {'keyslots': None})
    def test_one_that_says_what_is_unknown(self, part):
        self.assertRaises(ValueError, luks_header.parse_token, '4', dict(
            json.loads(str(FIRST)), **part))


class KeyTest(testtools.TestCase):

    def test_digits_as_nova_and_os_brick_make_them(self):
        self.assertEqual(
            b'00ff0a', luks_header.opening_key(b'\0\xff\n', KeyFormat.HEX))

    def test_what_is_taken_as_it_is(self):
        for each in (KeyFormat.RAW, KeyFormat.PASSPHRASE):
            self.assertEqual(b'ab\n\0c\n',
                             luks_header.opening_key(b'ab\n\0c\n', each))

    def test_nothing_is_no_key(self):
        for each in KeyFormat:
            self.assertRaises(ValueError, luks_header.opening_key, b'', each)


@ddt.ddt
class NameTest(testtools.TestCase):

    NAME = 'localclone-crypt-' + UUID
    MAPPED = 'CRYPT-LUKS2-%s-%s' % (UUID.replace('-', ''), NAME)

    def test_what_decrypts_a_volume(self):
        self.assertEqual(self.NAME, names.crypt(UUID))
        self.assertEqual('/dev/mapper/' + self.NAME, names.crypt_path(UUID))
        for kind in ('LUKS1', 'LUKS2'):
            self.assertEqual(UUID, names.volume_of_crypt(
                self.NAME, self.MAPPED.replace('LUKS2', kind)))
        self.assertEqual('localclone volume ' + UUID, names.secret(UUID))
        self.assertEqual('localclone-reencrypt-%s.service' % UUID,
                         names.reencryption_unit(UUID))

    def test_it_is_no_device_of_another_kind(self):
        self.assertIsNone(names.volume_of_handle(self.NAME))
        self.assertFalse(names.is_device(self.NAME))
        self.assertFalse(names.is_backstore(self.NAME))

    def test_one_that_nova_encrypts(self):
        self.assertEqual(UUID, names.volume_of_crypt(
            self.NAME, self.MAPPED.replace('LUKS2', 'LUKS1')))

    @ddt.data('', 'LOCALCLONE-' + NAME, MAPPED + '-hotzone-forward',
              MAPPED.replace('LUKS2', 'LUKS3'), 'CRYPT-PLAIN-' + NAME)
    def test_a_device_that_another_has_made(self, uuid):
        self.assertIsNone(names.volume_of_crypt(self.NAME, uuid))

    @ddt.data('crypt-' + UUID, 'localclone-' + UUID, NAME + '-hotzone')
    def test_a_device_of_another_name(self, name):
        self.assertIsNone(names.volume_of_crypt(name, self.MAPPED.replace(
            self.NAME, name)))


@ddt.ddt
class ValuesTest(testtools.TestCase):
    """A caller of the privileged daemon chooses among values, no words."""

    @ddt.data(
        {'luks_uuid': '--header'}, {'cipher': 'cipher_null-ecb'},
        {'key_bits': 64}, {'sector_size': 77}, {'offset': -512},
        {'offset': '--header=/etc/x'}, {'integrity': 'aead'},
        {'derivation': '--header=/etc/x'})
    def test_new_header(self, other):
        made = cryptsetup_cli.new_header(volume_types.Encryption(), UUID)
        self.assertRaises(ValueError, made._replace(**other).words)

    @ddt.data(
        {'cipher': 'cipher_null-ecb'}, {'key_bits': 64},
        {'resilience': 'none'}, {'derivation': '--header=/etc/x'})
    def test_reencryption(self, other):
        made = cryptsetup_cli.Reencryption(
            'aes-xts-plain64', 256, 'journal', cryptsetup_cli.PASSPHRASE)
        self.assertEqual([
            '--cipher', 'aes-xts-plain64', '--key-size', '256',
            '--resilience', 'journal', '--pbkdf', 'argon2id',
            '--pbkdf-memory', '262144'], made.words())
        self.assertRaises(ValueError, made._replace(**other).words)
