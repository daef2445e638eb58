# SPDX-License-Identifier: Apache-2.0
"""Headers that somebody else has written, and what is believed of them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_binary
from cinder_localclone.core.formats import luks_ending
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import pinning
from cinder_localclone.core import pins
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import upkeep
from cinder_localclone.storage.privsep import cryptsetup_keys
from tests.helpers import luks_headers
from tests.helpers import own_key_case
from tests.helpers import real_headers_case
from tests.world import crypt


def parsed(text, change=None):
    metadata = json.loads(text)
    if change:
        change(metadata)
    return luks_header.parse(json.dumps(metadata))


def rewritten(path, change):
    """Both copies of a header, as somebody writes them who has the disk."""
    head = pathlib.Path(path).read_bytes()
    begin, size, sequence = luks_binary.newest(head)
    metadata = json.loads(luks_ending.text(head))
    change(metadata)
    body = json.dumps(metadata, separators=(',', ':')).encode().ljust(
        size - luks_ending.BINARY, b'\0')
    with open(path, 'r+b') as file:
        for at, magic in ((0, luks_binary.FIRST), (size, luks_binary.SECOND)):
            file.seek(at)
            file.write(luks_ending._copy(
                head[begin:begin + luks_ending.BINARY], magic, at, sequence
                + 1, os.urandom(64), body))


def segment(**what):
    """A change of how the data is encrypted."""
    return lambda metadata: metadata['segments']['0'].update(what)


@ddt.ddt
class PinTest(testtools.TestCase):

    PIN = parsed(luks_headers.PLAIN).pin

    def test_text(self):
        for pin in (self.PIN, dataclasses.replace(
                self.PIN, integrity='hmac(sha256)', digest='')):
            self.assertEqual(pin, pins.parse(str(pin)))
        self.assertIsNone(pins.parse(''))
        for text in ('a', 'a/b/c/d/e/f', str(self.PIN) + '/1'):
            self.assertRaises(ValueError, pins.parse, text)

    @ddt.data(*(each.name for each in dataclasses.fields(pins.Pin)))
    def test_difference(self, name):
        other = dataclasses.replace(self.PIN, **{name: 7})
        self.assertEqual('', self.PIN.difference(self.PIN))
        self.assertIn('%s is 7 instead of' % name.replace('_', ' '),
                      self.PIN.difference(other))

    @ddt.data({'hash': 'sha512'}, {'iterations': 1}, {'salt': 'x'},
              {'digest': 'x'}, {'type': 'x'})
    def test_all_of_a_digest_counts(self, change):
        header = parsed(luks_headers.PLAIN, lambda metadata: metadata[
            'digests']['0'].update(change))
        self.assertNotEqual(self.PIN.digest, header.pin.digest)

    def test_slots_do_not_count(self):
        """They are others after each change of the volume's secret."""
        self.assertEqual(self.PIN, parsed(luks_headers.ROTATING).pin)

    def test_of_a_re_encryption(self):
        header = parsed(luks_headers.STARTED)
        self.assertEqual(self.PIN, header.pin)
        self.assertEqual(dataclasses.replace(
            self.PIN, key_bits=256, digest=header.reencryption.digest),
            header.becoming)
        self.assertNotEqual(header.pin.digest, header.becoming.digest)


@ddt.ddt
class AllowedTest(testtools.TestCase):
    """What is looked at also where no row can be asked."""

    @ddt.data(luks_headers.PLAIN, luks_headers.ROTATING, luks_headers.STARTED,
              luks_headers.KILLED, luks_headers.PAUSED)
    def test_of_cryptsetup(self, text):
        self.assertEqual('', pinning.why_not_ours(parsed(text)))

    @ddt.data(
        ('its cipher is cipher_null-ecb',
         segment(encryption='cipher_null-ecb')),
        ('its cipher is aes-ecb', segment(encryption='aes-ecb')),
        ('its sectors have 8192 bytes', segment(sector_size=8192)),
        ('its integrity is crc32c', segment(integrity={'type': 'crc32c'})),
        ('begins at byte 33554432', segment(offset='33554432')),
        ('numbers its sectors', segment(iv_tweak='8')),
        ('has 128 bits', lambda metadata: metadata['keyslots']['0'].update(
            key_size=16)),
        ('slot is encrypted with cipher_null-ecb', lambda metadata:
         metadata['keyslots']['0']['area'].update(
             encryption='cipher_null-ecb')),
        ('has 2 segments', lambda metadata: (
            metadata['segments'].update({'1': dict(
                metadata['segments']['0'], offset=str(32 << 20),
                iv_tweak='32768')}),
            metadata['digests']['0']['segments'].append('1'))),
        ('another cipher', lambda metadata: (
            metadata['segments'].update({'1': dict(
                metadata['segments']['0'], offset=str(32 << 20),
                iv_tweak='32768', encryption='cipher_null-ecb')}),
            metadata['digests']['0']['segments'].append('1'))),
        ('has other keys', lambda metadata: metadata['digests'].update(
            {'1': dict(metadata['digests']['0'], salt='x')})))
    @ddt.unpack
    def test_of_somebody_else(self, problem, change):
        header = parsed(luks_headers.PLAIN, change)
        self.assertIn(problem, pinning.why_not_ours(header))
        for expected in (pinning.Expected('k', by_row=False),
                         pinning.Expected('k', header.pin)):
            self.assertIn(problem, pinning.why_not(header, expected))

    @ddt.data('0', '1', '2', '4')
    def test_part_of_a_re_encryption(self, number):
        """None of its parts is plain, whatever the others are."""
        def change(metadata):
            metadata['segments'][number]['encryption'] = 'cipher_null-ecb'
        self.assertNotEqual('', pinning.why_not_ours(parsed(
            luks_headers.KILLED, change)))

    @ddt.data({'sector_size': 4096}, {'integrity': {'type': 'crc32c'}})
    def test_part_with_other_sectors(self, change):
        def other(metadata):
            metadata['segments']['2'].update(change)
        self.assertIn('another cipher', pinning.why_not_ours(parsed(
            luks_headers.KILLED, other)))

    @ddt.data({'key_bits': 768},
              {'integrity': 'hmac(sha256)', 'key_bits': 768,
               'data_offset': volume_types.HEADER_BYTES - 512})
    def test_key_or_offset_without_its_integrity(self, change):
        pin = pinning.pin(volume_types.Encryption(),
                          volume_types.HEADER_BYTES, 'd')
        self.assertNotEqual('', pinning._why_not_allowed(
            dataclasses.replace(pin, **change)))

    def test_part_with_a_third_key(self):
        def change(metadata):
            digests = metadata['digests']
            digests['0']['segments'].remove('2')
            digests['7'] = dict(digests['0'], segments=['2'], salt='x')
        self.assertIn('other keys', pinning.why_not_ours(parsed(
            luks_headers.KILLED, change)))

    @ddt.data(*(
        (cipher, bits, how, sector)
        for cipher, each in volume_types.CIPHERS.items()
        for bits in each.key_bits for how in each.integrity
        for sector in volume_types.SECTOR_SIZES))
    @ddt.unpack
    def test_each_that_is_exported(self, cipher, bits, how, sector):
        pin = pinning.pin(volume_types.Encryption(
            cipher, bits, sector, how), volume_types.HEADER_BYTES, 'd')
        self.assertEqual('', pinning._why_not_allowed(pin))
        self.assertEqual(how == 'none', pin.integrity == '')


@ddt.ddt
class PinnedTest(testtools.TestCase):
    """What is compared with a row."""

    def of(self, text, **more):
        header = parsed(text)
        return header, pinning.Expected('k', **dict(
            {'pin': header.pin, 'becoming': header.becoming}, **more))

    @ddt.data(luks_headers.PLAIN, luks_headers.STARTED, luks_headers.KILLED,
              luks_headers.PAUSED)
    def test_as_its_row_says(self, text):
        self.assertEqual('', pinning.why_not(*self.of(text)))

    def test_row_without_a_pin(self):
        self.assertIn('records no header', pinning.why_not(
            *self.of(luks_headers.PLAIN, pin=None)))

    @ddt.data(*(each.name for each in dataclasses.fields(pins.Pin)))
    def test_anything_else(self, name):
        header, expected = self.of(luks_headers.PLAIN)
        self.assertNotEqual('', pinning.why_not(header, dataclasses.replace(
            expected, pin=dataclasses.replace(expected.pin, **{name: 7}))))

    def test_re_encryption_that_no_row_knows(self):
        self.assertIn('row does not say so', pinning.why_not(
            *self.of(luks_headers.STARTED, becoming=None)))

    def test_before_and_after_a_re_encryption(self):
        """Its header may say so before its row does; but no third one."""
        running, expected = self.of(luks_headers.PAUSED)
        for pin in (running.pin, running.becoming):
            header = dataclasses.replace(
                parsed(luks_headers.PLAIN), digest=pin.digest)
            self.assertEqual('', pinning.why_not(header, expected))
        self.assertIn('digest', pinning.why_not(dataclasses.replace(
            header, digest='another'), expected))

    def test_key_that_is_not_pinned_yet(self):
        """Nothing is encrypted with that."""
        for text, problem in ((luks_headers.STARTED, ''),
                              (luks_headers.PAUSED, 'digest')):
            header, expected = self.of(text)
            announced = dataclasses.replace(expected, becoming=(
                dataclasses.replace(expected.becoming, digest='')))
            self.assertEqual(not problem, pinning.is_begun(
                header, announced))
            self.assertIn(problem, pinning.why_not(header, announced))
            other = dataclasses.replace(announced, becoming=(
                dataclasses.replace(announced.becoming, key_bits=128)))
            self.assertFalse(pinning.is_begun(header, other))
            self.assertIn('key bits', pinning.why_not(header, other))

    @ddt.data({'done': 1}, {'complete': True}, {'interrupted': True})
    def test_key_that_has_encrypted_something(self, how):
        header, expected = self.of(luks_headers.STARTED)
        announced = dataclasses.replace(expected, becoming=(
            dataclasses.replace(expected.becoming, digest='')))
        self.assertTrue(pinning.is_begun(header, announced))
        self.assertFalse(pinning.is_begun(dataclasses.replace(
            header, reencryption=dataclasses.replace(
                header.reencryption, **how)), announced))
        self.assertFalse(pinning.is_begun(header, dataclasses.replace(
            announced, pin=dataclasses.replace(
                announced.pin, digest='another'))))

    def test_settled(self):
        header, _expected = self.of(luks_headers.PLAIN)
        before = volume_types.Recorded(
            1, 'k', pin=header.pin, becoming=header.pin)
        self.assertEqual(
            volume_types.Recorded(1, 'k', pin=header.pin),
            pinning.after_reencryption(before, header))


class Real(real_headers_case.RealCase):

    def opened(self, volume, by_row=True):
        """The secrets that a volume is opened with."""
        opened, recorded = [], volume.encryption
        expected = pinning.recorded_in_row(recorded)
        if not by_row:
            expected = upkeep._expected(recorded.key)
        with mock.patch.object(cryptsetup_keys, 'open_device', lambda *args:
                               opened.append(args[2])):
            with contextlib.suppress(exceptions.LocalCloneError):
                activate.open_volume(
                    self.node.crypt, self.node.keys, volume.id, expected,
                    luks=volume.id)
        return opened


@ddt.ddt
class RealHeaderTest(Real):
    """One word of a header is another, and its checksum."""

    def rewrite(self, change, volume=None):
        rewritten(names.handle_path((volume or self.volume).id), change)

    def test_as_it_was(self):
        self.rewrite(lambda metadata: None)
        for by_row in (True, False):
            self.assertEqual([self.secret(self.key())],
                             self.opened(self.volume, by_row))

    @ddt.data(True, False)
    def test_data_in_plain_text(self, by_row):
        """The guest would write plain text, to the disk and to the link."""
        self.rewrite(segment(encryption='cipher_null-ecb'))
        self.node.crypt.uuid(self.volume.id)  # cryptsetup takes it
        self.assertEqual([], self.opened(self.volume, by_row))

    def test_another_sector_size(self):
        self.rewrite(segment(sector_size=4096))
        self.assertEqual([], self.opened(self.volume))

    def test_nothing_else_is_done_with_it(self):
        self.rewrite(segment(sector_size=4096))
        before = dict(self.world.secrets.kept)
        for act in (rotate.rotate, operator.add_recovery_key,
                    operator.remove_recovery_key):
            self.assertRaises(encryption_exceptions.ForeignHeader, act,
                              self.node, self.volume.id)
        self.assertEqual(before, self.world.secrets.kept)

    def test_verified(self):
        self.rewrite(segment(encryption='cipher_null-ecb'))
        with self.through_the_cache():
            found = {each['what']: each['problem'] for each in
                     headers.verify(self.node, self.volume.id)}
        self.assertIn('cipher_null', found['pin of the header'])
        self.assertNotIn('key', found)  # none is used on it

    def test_restored(self):
        """What somebody has written goes."""
        self.rewrite(segment(encryption='cipher_null-ecb'))
        with self.through_the_cache():
            operator.restore_header(self.node, self.volume.id)
        self.assert_sound()


class RealSecretTest(Real):
    """Whoever can write to a disk, and has a volume of his own."""

    def tampered(self):
        """His volume begins with all that another tenant's has, but for its
        UUID, and for what tokens say of secrets.
        """
        mine = self.create()
        path = names.handle_path(mine.id)
        shutil.copy(names.handle_path(self.volume.id), path)
        with self.through_the_cache():
            self.node.crypt.set_uuid(mine.id, mine.id)

        def change(metadata):
            theirs = metadata['tokens']['0']
            metadata['tokens'] = {
                '0': dict(theirs, key=self.key(mine), keyslots=[]),
                '1': dict(theirs, replaces=self.key(mine))}
        rewritten(path, change)
        return mine

    def test_secret_of_another_tenant(self):
        """With the other tenant's data."""
        mine = self.tampered()
        for by_row in (True, False):
            self.assertEqual([], self.opened(mine, by_row))

    def test_tags_of_a_boot(self):
        """They are on the same disk: they name the other tenant's secret."""
        mine = self.tampered()

        def change(metadata):
            metadata['tokens'] = {'1': metadata['tokens']['1']}
        rewritten(names.handle_path(mine.id), change)
        mine.provider_id = str(dataclasses.replace(
            mine.encryption, key=self.key()))
        self.assertEqual([], self.opened(mine, by_row=False))
        # A secret that is named after no volume is that of a type.
        kept = self.world.secrets.kept
        kept[self.key()] = 'of a type', self.secret(self.key())
        self.assertEqual([self.secret(self.key())],
                         self.opened(mine, by_row=False))

    def test_names_alone(self):
        """The pin fits: the other secret is not used all the same."""
        mine = self.tampered()
        mine.provider_id = str(dataclasses.replace(
            mine.encryption, pin=self.volume.encryption.pin))
        self.assertEqual([], self.opened(mine))
        self.assertRaises(exceptions.LocalCloneError, rotate.rotate,
                          self.node, mine.id)
        self.assertNotEqual(self.key(), self.key(mine))

    def test_secret_that_is_in_the_place_of_its_own(self):
        """While that is changed: it is named after the volume."""
        secret = self.secret(self.key())
        other = self.node.keys.create(self.volume.id)
        self.world.secrets.kept[other] = (
            names.secret(self.volume.id), secret)

        def change(metadata):
            own = metadata['tokens']['0']
            metadata['tokens'] = {
                '0': dict(own, keyslots=[]),
                '1': dict(own, key=other, replaces=own['key'])}
        rewritten(names.handle_path(self.volume.id), change)
        for by_row in (True, False):
            self.assertEqual([secret], self.opened(self.volume, by_row))

    def test_secret_of_a_type_in_the_place_of_its_own(self):
        """Only a row, or a tag at a boot, makes that the volume's."""
        secret = self.secret(self.key())
        self.world.secrets.kept['of a type'] = 'for all', secret

        def change(metadata):
            own = metadata['tokens']['0']
            metadata['tokens'] = {
                '0': dict(own, keyslots=[]),
                '1': dict(own, key='of a type', replaces=own['key'])}
        rewritten(names.handle_path(self.volume.id), change)
        for by_row in (True, False):
            self.assertEqual([], self.opened(self.volume, by_row))

    def test_secret_that_its_header_does_not_connect_with_its_own(self):
        """It is the volume's by its name, and nobody has announced it."""
        other = self.node.keys.create(self.volume.id)

        def change(metadata):
            own = metadata['tokens']['0']
            metadata['tokens'] = {
                '0': dict(own, keyslots=[]), '1': dict(own, key=other)}
        rewritten(names.handle_path(self.volume.id), change)
        get = self.node.keys.get
        with mock.patch.object(self.node.keys, 'get',
                               side_effect=get) as asked:
            self.assertEqual([], self.opened(self.volume))
        asked.assert_not_called()

    def test_row_that_names_none(self):
        """As of what could not be created; no token is its own then."""
        def change(metadata):
            metadata['tokens']['0']['key'] = ''
        rewritten(names.handle_path(self.volume.id), change)
        self.volume.provider_id = str(dataclasses.replace(
            self.volume.encryption, key=''))
        with mock.patch.object(self.node.keys, 'get',
                               return_value=b'k') as asked:
            self.assertEqual([], self.opened(self.volume))
        asked.assert_not_called()

    def test_header_of_a_later_version(self):
        with mock.patch.object(self.node.crypt, 'header') as header:
            header.return_value = dataclasses.replace(
                parsed(luks_headers.PLAIN), requirements=('later',),
                tokens=(), digest=self.volume.encryption.pin.digest)
            error = self.assertRaises(
                encryption_exceptions.HeaderDamaged, activate.open_volume,
                self.node.crypt, self.node.keys, self.volume.id,
                pinning.recorded_in_row(self.volume.encryption))
        self.assertIn('later', str(error))


def device(*lines):
    """What the kernel says of a volume that is decrypted."""
    return dm_tables.Device('d', '', '253:9', 0, False, '\n'.join(lines))


@ddt.ddt
class OpenedTest(testtools.TestCase):
    """What cryptsetup has opened is what was checked."""

    KEY = ':64:logon:cryptsetup:x-d0'
    TABLE = '0 2064384 crypt %s %s %d 253:7 %d'

    def why_not(self, *lines, **more):
        return pinning.why_not_opened(dataclasses.replace(
            parsed(luks_headers.PLAIN).pin, **more), None,
            device(*lines) if lines else None)

    def table(self, cipher='aes-xts-plain64', key=KEY, iv=0, offset=32768):
        return self.TABLE % (cipher, key, iv, offset)

    @ddt.data(KEY, '0' * 128)
    def test_as_checked(self, key):
        for more in ('', ' 2 no_read_workqueue no_write_workqueue'):
            self.assertEqual('', self.why_not(self.table(key=key) + more))
        self.assertEqual('', self.why_not(
            self.table() + ' 2 allow_discards sector_size:4096',
            sector_size=4096))

    @ddt.data({'cipher': 'cipher_null-ecb', 'key': '-'},
              {'cipher': 'cipher_null-ecb'}, {'key': ':32:logon:x'},
              {'key': '0' * 64}, {'key': '-'}, {'iv': 8}, {'offset': 0})
    def test_otherwise(self, more):
        self.assertNotEqual('', self.why_not(self.table(**more)))

    @ddt.data('0 2064384 linear 253:7 32768', '0 8 crypt',
              '0 8 crypt aes-xts-plain64 :64:logon:x 0 253:7', '0 8 error')
    def test_without_a_cipher(self, table):
        problem = 'of type ' + table.split()[2]
        self.assertIn(problem, self.why_not(table))
        self.assertIn(problem, self.why_not(self.table(), table))
        self.assertIn('of type flakey', self.why_not(
            self.table().replace(' crypt ', ' flakey ')))

    def test_other_sectors(self):
        self.assertIn('4096', self.why_not(
            self.table() + ' 1 sector_size:4096'))
        self.assertIn('512 bytes', self.why_not(
            self.table(), sector_size=4096))

    def test_elsewhere_on_the_disk(self):
        self.assertIn(
            'the disk from sector 40968 on as sector 16 of the volume; the '
            'header says from 40960 on as 8192', self.why_not(
                '8192 8 crypt aes-xts-plain64 %s 16 253:7 40968' % self.KEY))

    def test_not_there(self):
        self.assertNotEqual('', self.why_not())
        self.assertNotEqual('', self.why_not(''))

    def test_header_without_data(self):
        """Whatever has its name, no header says so."""
        becoming = parsed(luks_headers.PAUSED).becoming
        for line in (self.table(), '0 2064384 linear 253:11 0'):
            self.assertNotEqual('', pinning.why_not_opened(
                None, becoming, device(line)))

    def test_in_a_re_encryption(self):
        """The first part is encrypted anew, or a process is at work."""
        header = parsed(luks_headers.PAUSED)
        header = dataclasses.replace(header, reencryption=dataclasses.replace(
            header.reencryption, key_bits=256))
        new, old = ('0 8192 crypt aes-xts-plain64 :32:logon:x 0 253:7 32768',
                    '8192 2056192 crypt aes-xts-plain64 :64:logon:y 8192 '
                    '253:7 40960')
        running = '0 2064384 linear 253:11 0'
        for lines in ((new, old), (old,), (running,)):
            self.assertEqual('', pinning.why_not_opened(
                header.pin, header.becoming, device(*lines)))
        for lines in ((new,), (new, old), (running,)):
            self.assertNotEqual('', self.why_not(*lines))
        self.assertNotEqual('', pinning.why_not_opened(
            header.pin, header.becoming, device(new, old.replace(
                'aes-xts-plain64', 'cipher_null-ecb'))))

    @ddt.data(
        ('aes-gcm-random', 256, 'aead', 'gcm(aes)-random'),
        ('aegis128-random', 128, 'aead', 'aegis128-random'),
        ('chacha20-random', 256, 'poly1305',
         'rfc7539(chacha20,poly1305)-random'),
        ('aes-xts-plain64', 768, 'hmac(sha256)',
         'authenc(hmac(sha256),xts(aes))-plain64'))
    @ddt.unpack
    def test_authenticated(self, cipher, key_bits, integrity, name):
        """The kernel has other names for these ciphers."""
        pinned = {'cipher': cipher, 'key_bits': key_bits,
                  'integrity': integrity}
        table = '0 8 crypt capi:%s :%d:logon:x 0 253:9 0' % (
            name, key_bits // 8)
        tags = ' 1 integrity:28:aead'
        self.assertEqual('', self.why_not(table + tags, **pinned))
        for other in (
                table, table + ' 1 allow_discards',
                table + ' 1 integrity:28:none',
                table.replace(name, 'cipher_null-ecb') + tags,
                table.replace(name, 'ecb(aes)-null') + tags,
                table.replace(name, 'authenc(hmac(sha256),cbc(aes))-null')
                + tags,
                table.replace(':%d:' % (key_bits // 8), ':8:') + tags,
                table.replace(' 0 253:9', ' 8 253:9') + tags,
                table[:-1] + '8' + tags,
                table + ' 2 integrity:28:aead sector_size:4096'):
            self.assertNotEqual('', self.why_not(other, **pinned), other)


@ddt.ddt
class ChangedInBetweenTest(own_key_case.Case):
    """A network answers otherwise once the header was checked."""

    def setUp(self):
        super().setUp()
        self.node, sim = self.a.node, crypt.SimCrypt.open

        def otherwise(own, *args):
            self.header.cipher = 'cipher_null-ecb'
            try:
                sim(own, *args)
            finally:
                self.header.cipher = crypt.PIN.cipher
        self.patch(crypt.SimCrypt, 'open', otherwise)

    @ddt.data('', crypt.AWAY)
    def test_closed_again(self, key_manager):
        self.a.disk.sealed = {}
        recorded = self.volume.encryption
        self.a.disk.sealed[self.volume.id] = kept = (
            recorded.key, self.world.secrets.kept[recorded.key][1])
        self.world.secrets.state = key_manager
        with self.node.lock(self.volume.id):
            error = self.assertRaises(
                encryption_exceptions.ForeignHeader, activate.open_volume,
                self.node.crypt, self.node.keys, self.volume.id,
                pinning.recorded_in_row(recorded))
        self.assertIn('cipher_null', str(error))
        # It was, and it may stay open.
        self.assertNotIn('manager was not asked', str(error))
        self.assertNotIn(names.crypt(self.volume.id), self.a.devices)
        self.assertEqual({self.volume.id: kept}, self.a.disk.sealed)

    def test_that_can_not_be_closed(self):
        """Whoever asks for it next is not given its path, either."""
        failed = exceptions.CommandFailed(command='c', code=5, stderr='busy')
        with self.node.lock(self.volume.id):
            with mock.patch.object(crypt.SimCrypt, 'close',
                                   side_effect=failed):
                self.assertRaises(
                    exceptions.CommandFailed, devices.ensure_open,
                    self.node, self.volume, self.volume.name)
            self.assertIn(names.crypt(self.volume.id), self.a.devices)
            self.assertRaises(
                encryption_exceptions.ForeignHeader, devices.ensure_open,
                self.node, self.volume, self.volume.name)

    def test_extended(self):
        self.header.cipher = 'cipher_null-ecb'
        with mock.patch.object(crypt.SimKeys, 'get') as asked:
            self.assertRaises(
                encryption_exceptions.ForeignHeader, activate.grow,
                self.node.crypt, self.node.keys, self.volume.id,
                pinning.recorded_in_row(self.volume.encryption))
        asked.assert_not_called()


@ddt.ddt
class ExtendedTest(own_key_case.Case):
    """What cryptsetup reads when a volume grows was not checked before."""

    @ddt.data('', crypt.AWAY)
    def test_while_it_is_extended(self, key_manager):
        recorded, resize = self.volume.encryption, crypt.SimCrypt.resize
        name = names.crypt(self.volume.id)
        with self.a.node.lock(self.volume.id):
            activate.open_volume(
                self.a.node.crypt, self.a.node.keys, self.volume.id,
                pinning.recorded_in_row(recorded))
            self.a.disk.sealed = {self.volume.id: (
                recorded.key, self.world.secrets.kept[recorded.key][1])}
            self.world.secrets.state = key_manager

            def otherwise(own, *args):
                resize(own, *args)
                self.a.devices[name]['how'] = 'cipher_null-ecb', 64, 512
                # It may say so by now: it was checked before.
                self.header.cipher = 'cipher_null-ecb'
            with mock.patch.object(crypt.SimCrypt, 'resize', autospec=True,
                                   side_effect=otherwise):
                error = self.assertRaises(
                    encryption_exceptions.ForeignHeader, activate.grow,
                    self.a.node.crypt, self.a.node.keys, self.volume.id,
                    pinning.recorded_in_row(recorded))
        self.assertIn('cipher_null', str(error))
        # A guest may have it open.
        self.assertIn(name, self.a.devices)

    def test_key_that_nobody_has(self):
        """It is not said to be longer than it is."""
        expected = pinning.recorded_in_row(self.volume.encryption)
        with self.a.node.lock(self.volume.id):
            activate.open_volume(self.a.node.crypt, self.a.node.keys,
                                 self.volume.id, expected)
            self.world.secrets.state = crypt.AWAY
            self.assertRaises(
                encryption_exceptions.KeyUnavailable, activate.grow,
                self.a.node.crypt, self.a.node.keys, self.volume.id,
                expected)


class BackupTest(own_key_case.Case):
    """No backup is made of what is not the volume's header."""

    def setUp(self):
        super().setUp()
        self.backups = header_backups.Sweep(self.a.node)

    def test_first_backup(self):
        self.world.backups.clear()
        self.header.digest = 'of somebody else'
        self.backups.sweep()
        self.assertEqual({}, self.world.backups)
        self.header.digest = crypt.PIN.digest
        self.backups.sweep()
        self.assertEqual(['1'], self.world.backups[self.volume.id])

    def test_header_is_not_read_where_no_backups_are_kept(self):
        """What asks for a backup has done all that it has to do."""
        self.header.digest = 'of somebody else'
        with mock.patch.object(crypt.SimCrypt, 'keeps_backups',
                               autospec=True, return_value=False):
            rotate.renew_backup(self.a.node, self.volume)

    def test_later_backup(self):
        before = repr(self.world.copies)
        self.header.digest = 'of somebody else'
        self.backups.sweep()
        self.assertEqual(before, repr(self.world.copies))
