# SPDX-License-Identifier: Apache-2.0
"""What cryptsetup is told, and what it does to headers in files."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_ending
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import volume_types
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import reencrypt_process
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands
from tests.helpers import configured
from tests.helpers.cryptsetup_case import CaseOfFiles
from tests.helpers.cryptsetup_case import complete
from tests.helpers.cryptsetup_case import CRYPT
from tests.helpers.cryptsetup_case import HANDLE
from tests.helpers.cryptsetup_case import KEY
from tests.helpers.cryptsetup_case import LUKS
from tests.helpers.cryptsetup_case import NEW_KEY
from tests.helpers.cryptsetup_case import VOLUME
from tests.helpers import luks_headers

#: How each entry point that gets a key is called. What is added is asked for.
WITH_KEY = {
    'begin_reencryption': (
        HANDLE, CRYPT, '0', cryptsetup_cli.Reencryption(
            'aes-xts-plain64', 512, 'checksum', cryptsetup_cli.RANDOM_KEY),
        KEY, 30),
    'end_reencryption': (HANDLE, KEY, 30),
    'add_key': (HANDLE, KEY, NEW_KEY, '1', cryptsetup_cli.PASSPHRASE, 30),
    'format_luks1': (HANDLE, 'aes-xts-plain64', 256, KEY, 30),
    'format_luks2': (HANDLE, cryptsetup_cli.new_header(
        volume_types.Encryption(), LUKS), KEY, 30),
    'kill_slot': (HANDLE, '1', KEY, 30),
    'open_device': (HANDLE, CRYPT, KEY, 30),
    'resize': (CRYPT, KEY, 30),
    'test': (HANDLE, KEY, 30),
    'test_backup': (configured.BACKEND, VOLUME, LUKS + '-1', KEY, 30),
    'test_ended': (HANDLE, KEY, 30),
}
#: The same of those without a key that change something.
CHANGES = {
    'close': (CRYPT, 30),
    'erase': (HANDLE, 30),
    'import_token': (HANDLE, '{}'),
    'remove_token': (HANDLE, '0', 30),
    'set_uuid': (HANDLE, LUKS, 30),
}
FAST = '--pbkdf pbkdf2 --pbkdf-force-iterations 1000'
BLANK = '\0' * (1 << 20)


def keep_backup(test):
    """There is a backup of the header."""
    directory = pathlib.Path(test.useFixture(fixtures.TempDir()).path)
    test.useFixture(configured.Configured(
        localclone_header_backup_dir=directory))
    (directory / VOLUME).mkdir(mode=0o700)
    (directory / VOLUME / (LUKS + '-1')).touch()


def entry_points(module, context):
    return {name for name, value in vars(module).items()
            if context.is_entrypoint(value)}


@ddt.ddt
class KeysStayHiddenTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.commands.answer('dd', BLANK)
        self.commands.answer('cryptsetup luksDump', luks_headers.ROTATING)
        keep_backup(self)

    def test_every_entry_point_is_looked_at(self):
        self.assertEqual(set(WITH_KEY), entry_points(
            cryptsetup_keys, cryptsetup_keys.context))

    @ddt.data(*WITH_KEY)
    def test_no_key_but_on_standard_input(self, name):
        if name.endswith(('end_reencryption', '_ended')):
            complete(self)
        read = {}

        def follow(*argv, pass_fds=(), **_more):
            for descriptor in pass_fds if argv[0] != 'dd' else ():
                read[descriptor] = os.read(descriptor, 9999)
            return ran(*argv, pass_fds=pass_fds, **_more)
        ran = process.run
        self.useFixture(fixtures.MockPatchObject(process, 'run', follow))
        self.assertIsNone(getattr(cryptsetup_keys, name)(*WITH_KEY[name]))
        lines = ' '.join(self.commands.ran)
        for key in (KEY, NEW_KEY):
            for form in (key.decode(), key.hex()):
                self.assertNotIn(form, lines)
        self.assertEqual(KEY, [
            each for each in self.commands.inputs
            if not (each or b'').startswith((b'LUKS', b'SKUL'))][-1])
        self.assertEqual([NEW_KEY] * (name == 'add_key'), [
            each for each in read.values() if each])
        for descriptor in read:
            self.assertRaises(OSError, os.fstat, descriptor)

    @ddt.data(*WITH_KEY)
    def test_no_key_in_an_error(self, name):
        if name.endswith(('end_reencryption', '_ended')):
            complete(self)
        self.useFixture(fixtures.MockPatchObject(cryptsetup, 'BETWEEN', 0))
        for code, text in ((1, 'is not a valid LUKS device'), (2, ''),
                           (4, 'access denied'), (5, 'busy')):
            self.commands._answers.clear()
            self.commands.answer('dd', BLANK)
            self.commands.answer('cryptsetup luksDump', luks_headers.ROTATING)
            self.commands.answer('cryptsetup', code=code, err=text)
            error = self.assertRaises(
                exceptions.LocalCloneError, getattr(cryptsetup_keys, name),
                *WITH_KEY[name])
            self.assertNotIn(KEY.decode(), repr(error) + str(error))
            # What comes out of the daemon is made of its text alone.
            self.assertEqual(str(error), str(type(error)(*error.args)))

    @ddt.data(*WITH_KEY)
    def test_what_is_empty_is_no_key(self, name):
        if name.endswith(('end_reencryption', '_ended')):
            complete(self)
        self.assertRaises(ValueError, getattr(cryptsetup_keys, name), *[
            b'' if each in (KEY, NEW_KEY) else each
            for each in WITH_KEY[name]])
        self.assertFalse([line for line in self.commands.ran if not
                          line.startswith(('dd', 'cryptsetup luksDump'))])

    @ddt.data(b'', 4097 * b'x')
    def test_what_does_not_go_into_a_pipe_is_no_new_key(self, new_key):
        self.assertRaises(ValueError, cryptsetup_keys.add_key, HANDLE, KEY,
                          new_key, '1', cryptsetup_cli.RANDOM_KEY, 30)
        self.assertRan()
        for length in (1, 4096):
            cryptsetup_keys.add_key(HANDLE, KEY, length * b'x', '1',
                                    cryptsetup_cli.RANDOM_KEY, 30)

    def test_no_options_of_the_callers(self):
        """A slot of one byte of a file, and the test of a key, read it."""
        evil = '--new-keyfile=/etc/shadow'
        for error, name, *given in (
                (ValueError, cryptsetup_keys.add_key, HANDLE, KEY, NEW_KEY,
                 '1', evil, 30),
                (exceptions.Foreign, cryptsetup_keys.add_key, HANDLE, KEY,
                 NEW_KEY, evil, cryptsetup_cli.RANDOM_KEY, 30),
                (exceptions.Foreign, cryptsetup_keys.kill_slot, HANDLE, evil,
                 KEY, 30),
                (exceptions.Foreign, cryptsetup_keys.test, evil, KEY, 30),
                (exceptions.Foreign, cryptsetup_keys.test, '/etc/shadow', KEY,
                 30), (exceptions.Foreign, cryptsetup_keys.test, HANDLE, KEY,
                       30, evil),
                (exceptions.Foreign, cryptsetup.dump, evil, 30),
                (exceptions.Foreign, cryptsetup.luks_uuid, '/dev/sda', 30),
                (exceptions.Foreign, cryptsetup.payload_sectors, evil, 30),
                (exceptions.Foreign, cryptsetup.remove_token, HANDLE, evil,
                 30), (exceptions.Foreign, cryptsetup.import_token, HANDLE,
                       '{}', evil),
                (exceptions.Foreign, cryptsetup.set_uuid, HANDLE, evil, 30)):
            self.assertRaises(error, name, *given)
        self.assertRan()

    def test_header_that_can_not_be_understood(self):
        """No slot of it is dropped."""
        self.commands._answers.clear()
        self.commands.answer('cryptsetup luksDump', '{}')
        self.assertRaises(encryption_exceptions.HeaderDamaged,
                          cryptsetup_keys.kill_slot, *WITH_KEY['kill_slot'])
        self.assertEqual(1, len(self.commands.ran))

    def test_the_daemon_is_one_that_logs_nothing(self):
        context = cryptsetup_keys.context
        self.assertIsNot(privsep.default, context)
        # In a process of its own: fixtures forget what options default to.
        logs, others, refuses = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', 'import logging\n'
             'from cinder_localclone.storage import privsep\n'
             'from cinder_localclone.storage.privsep import cryptsetup_keys\n'
             'name = cryptsetup_keys.context.conf.logger_name\n'
             'print(name, privsep.default.conf.logger_name,'
             ' logging.getLogger(name).isEnabledFor(logging.ERROR))'],
            check=True, capture_output=True, text=True,
            timeout=120).stdout.split()
        self.assertNotEqual(others, logs)
        self.assertEqual('False', refuses)
        # It is found again by its name in the other process.
        self.assertIs(context, getattr(
            cryptsetup_keys, context.pypath.rpartition('.')[2]))

    def test_no_entry_point_without_a_key_takes_one(self):
        for name in entry_points(cryptsetup, privsep.default):
            function = getattr(cryptsetup, name)
            self.assertNotIn('key', function.args[0].__annotations__)
            self.assertNotIn(bytes, function.args[0].__annotations__.values())


@ddt.ddt
class OwnNamesTest(commands.Case):

    @ddt.data(*CHANGES)
    def test_changes(self, name):
        self._refused(getattr(cryptsetup, name), CHANGES[name])

    @ddt.data(*WITH_KEY)
    def test_with_a_key(self, name):
        if name != 'test_backup':
            self._refused(getattr(cryptsetup_keys, name), WITH_KEY[name])
        self.assertRan()

    def _refused(self, function, arguments):
        _name, *rest = arguments
        for name in ('/dev/sda', '/tmp/localclone-' + VOLUME,
                     HANDLE + '1', 'localclone-' + VOLUME, 'root',
                     '/dev/mapper/' + CRYPT, 'crypt-' + VOLUME):
            self.assertRaises(exceptions.Foreign, function, name, *rest)
        self.assertRan()

    def test_a_volume_gets_no_other_ones_device(self):
        self.assertRaises(
            exceptions.Foreign, cryptsetup_keys.open_device, HANDLE,
            'localclone-crypt-' + VOLUME.replace('b', 'c'), KEY, 30)
        self.assertRan()

    def test_looking_may_mend_what_is_the_drivers(self):
        for look in (lambda path: cryptsetup.dump(path, 30, True),
                     lambda path: cryptsetup.damaged_copies(path, 30)):
            self.assertRaises(exceptions.Foreign, look, '/dev/sda')
        self.assertRan()

    @ddt.data(*CHANGES, *WITH_KEY)
    def test_path_that_leads_to_another_volume(self, name):
        """Its header would be written, or erased."""
        call, given = (getattr(cryptsetup, name), CHANGES[name]) if (
            name in CHANGES) else (
                getattr(cryptsetup_keys, name), WITH_KEY[name])
        if HANDLE not in given:
            return
        with mock.patch.object(sysfs, 'mapped_name', return_value=HANDLE[
                :-1] + 'f'):
            self.assertRaises(exceptions.WrongDevice, call, *given)
        self.assertRan()


@ddt.ddt
class LinesTest(commands.Case):
    """The lines as they are, with cryptsetup 2.6.1."""

    def test_looking_takes_no_locks(self):
        for function in (cryptsetup.dump, cryptsetup.luks_uuid):
            function(HANDLE, 30)
        self.commands.answer('cryptsetup', 'Payload offset:\t4096\n')
        self.assertEqual(4096, cryptsetup.payload_sectors(HANDLE, 30))
        for line in self.commands.ran:
            self.assertIn('--disable-locks', line)

    @ddt.data((cryptsetup.dump, 3, True), (cryptsetup.luks_uuid, 3, True),
              (cryptsetup.dump, 4, False), (cryptsetup.luks_uuid, 4, False))
    @ddt.unpack
    def test_looking_beside_a_writer(self, function, times, found):
        """It may meet that at both copies."""
        sleep = self.useFixture(fixtures.MockPatch(
            'tenacity.nap.time.sleep')).mock
        self.commands.answer('cryptsetup', '', 1, 'Device %s is not a valid '
                             'LUKS device.' % HANDLE, times=times)
        if found:
            function(HANDLE, 30)
        else:
            self.assertRaises(encryption_exceptions.HeaderDamaged, function,
                              HANDLE, 30)
        self.assertEqual(4, len(self.commands.ran))
        self.assertEqual([mock.call(cryptsetup.BETWEEN)] * 3, sleep.mock_calls)

    def header(self, **roles):
        """A header with key slots 0 and 1.

        :param roles: the slots of its tokens, by role
        """
        token = luks_header.Token('k', volume_types.KeyFormat.HEX)
        found = dataclasses.replace(
            luks_header.parse(luks_headers.PLAIN), keyslots=('0', '1'),
            all_keyslots=('0', '1'), tokens=tuple(dataclasses.replace(
                token, role=luks_header.Role[role], keyslots=slots, number=str(
                    number)) for number, (role, slots) in enumerate(
                        roles.items())))
        self.useFixture(fixtures.MockPatchObject(
            cryptsetup_keys, '_header', return_value=found))

    def test_slot_that_only_a_token_has(self):
        """It is no other key of the volume."""
        self.header(VOLUME=('0', '7'))
        self.assertRaises(encryption_exceptions.LastKey,
                          cryptsetup_keys.kill_slot, HANDLE, '0', KEY, 30)
        self.assertRan()

    def test_key_of_the_slot_that_goes(self):
        """It is no proof of another one that stays."""
        self.header(VOLUME=('0',), RECOVERY=('1',))
        for slot, code in (('0', 2), ('1', 0)):
            self.commands.answer(
                'cryptsetup open --batch-mode --key-file - --test-passphrase '
                '--type luks --disable-locks --key-slot %s ' % slot,
                code=code, err='No key available with this passphrase.')
        self.assertRaises(encryption_exceptions.WrongKey,
                          cryptsetup_keys.kill_slot, HANDLE, '1', KEY, 30)
        self.assertEqual([], [line for line in self.commands.ran
                              if 'luksKillSlot' in line])

    def test_looking_where_nobody_writes(self):
        with mock.patch('tenacity.nap.time.sleep') as slept:
            cryptsetup.dump(HANDLE, 30)
        slept.assert_not_called()

    def test_trying_a_key_beside_a_writer(self):
        self.useFixture(fixtures.MockPatchObject(cryptsetup, 'BETWEEN', 0))
        self.commands.answer('cryptsetup', '', 1, 'Device %s is not a valid '
                             'LUKS device.' % HANDLE, times=3)
        cryptsetup_keys.test(HANDLE, KEY, 30)
        self.assertEqual([KEY] * 4, self.commands.inputs)

    @ddt.data((3, []), (4, ['damaged']))
    @ddt.unpack
    def test_comparing_copies_beside_a_writer(self, times, found):
        """One that is damaged stays so."""
        self.useFixture(fixtures.MockPatchObject(cryptsetup, 'BETWEEN', 0))
        seen = [['damaged']] * times + [[]]
        done = mock.Mock()
        with mock.patch.object(process, 'stream', done.read), \
                mock.patch('tenacity.nap.time.sleep', done.sleep), \
                mock.patch.object(cryptsetup.luks_binary, 'problems',
                                  side_effect=seen):
            self.assertEqual(found, cryptsetup.damaged_copies(HANDLE, 30))
        self.assertEqual(['read'] + 3 * ['sleep', 'read'],
                         [call[0] for call in done.mock_calls])

    def test_mending(self):
        cryptsetup.dump(HANDLE, 30, True)
        self.assertRan('cryptsetup luksDump --dump-json-metadata ' + HANDLE)
        self.assertTrue(self.commands.graces[-1])  # it may write

    def test_opening(self):
        cryptsetup_keys.open_device(HANDLE, CRYPT, KEY, 30)
        cryptsetup_keys.open_device(HANDLE, CRYPT, KEY, 30, readonly=True,
                                    keep_header=True, discards=True)
        line = ('cryptsetup open --batch-mode --key-file - --type luks '
                '--perf-no_read_workqueue --perf-no_write_workqueue%s ' +
                HANDLE + ' ' + CRYPT)
        self.assertRan(line % '', line % (
            ' --readonly --allow-discards --disable-locks'))

    @ddt.data(
        ('begin_reencryption', 'reencrypt {} --init-only --key-slot 0 '
         '--active-name {crypt} --cipher aes-xts-plain64 --key-size 512 '
         '--resilience checksum ' + FAST + ' {handle}'),
        ('add_key', 'luksAddKey {} --new-key-slot 1 --new-keyfile /dev/fd/'
         '{fd} --pbkdf argon2id --pbkdf-memory 262144 {handle}'),
        ('format_luks1', 'luksFormat {} --type luks1 --cipher '
         'aes-xts-plain64 --key-size 256 --pbkdf-force-iterations 1000 '
         '{handle}'),
        ('format_luks2', 'luksFormat {} --type luks2 --uuid ' + LUKS + ' '
         '--offset 32768 --cipher aes-xts-plain64 --key-size 512 '
         '--sector-size 512 '
         '--key-slot 0 ' + FAST + ' {handle}'),
        ('kill_slot', 'luksKillSlot {} {handle} 1'),
        ('resize', 'resize {} --disable-locks {crypt}'),
        ('test', 'open {} --test-passphrase --type luks --disable-locks '
         '{handle}'))
    @ddt.unpack
    def test_whole_lines_with_a_key(self, name, line):
        """Of a word that is missing cryptsetup may do more than is wanted."""
        self.commands.answer('dd', BLANK)
        self.commands.answer('cryptsetup luksDump', luks_headers.ROTATING)
        with mock.patch.object(cryptsetup_keys, '_pipe', lambda _key: (
                contextlib.nullcontext(7))):
            getattr(cryptsetup_keys, name)(*WITH_KEY[name])
        self.assertEqual('cryptsetup ' + line.format(
            '--batch-mode --key-file -', crypt=CRYPT, handle=HANDLE, fd=7),
            self.commands.ran[-1])

    def test_end_of_a_re_encryption(self):
        """Proven first; then one copy after the other, each for good."""
        complete(self)
        cryptsetup_keys.end_reencryption(HANDLE, KEY, 30)
        line = ('dd of=%s bs=16384 count=1 seek=%d iflag=fullblock '
                'oflag=direct conv=nocreat,notrunc,fsync status=none')
        proof, *lines = self.commands.ran
        self.assertIn('open --batch-mode --key-file - --test-passphrase',
                      proof)
        self.assertNotIn(HANDLE, proof)
        self.assertEqual([line % ('/dev/fd/7', number)
                          for number in (1, 0)], lines)
        key, second, first = self.commands.inputs
        self.assertEqual((KEY, b'SKUL', b'LUKS'), (
            key, second[:4], first[:4]))
        salts = {each[104:168] for each in (first, second)}
        self.assertEqual(2, len(salts - {bytes(64)}))

    def test_key_that_is_tried_while_somebody_writes(self):
        """It is seen again before anybody is told that it can't be ended."""
        complete(self)
        self.useFixture(fixtures.MockPatchObject(cryptsetup, 'BETWEEN', 0))
        broken = dict(code=1, err='Device x is not a valid LUKS device.')
        self.commands.answer('cryptsetup open', times=1, **broken)
        cryptsetup_keys.test_ended(HANDLE, KEY, 30)
        self.commands.answer('cryptsetup open', **broken)
        self.assertRaises(encryption_exceptions.NotEnded,
                          cryptsetup_keys.test_ended, HANDLE, KEY, 30)
        self.assertEqual(2 + cryptsetup.LOOKS, len(self.commands.ran))

    def test_end_is_looked_at_and_written_under_one_lock(self):
        """Of what others write in between, nothing is written over."""
        complete(self)
        self.commands.answer('dd', '')
        done = []

        @contextlib.contextmanager
        def held(*which):
            self.assertEqual((HANDLE, 30), which)
            done.append('locked')
            yield header_lock.Held(7, 8)
            done.append('left')
        self.useFixture(fixtures.MockPatchObject(header_lock, 'held', held))
        for module, name in (
                (sysfs, 'check_opened'), (reencrypt_process, 'processes'),
                (cryptsetup, 'beginning'), (cryptsetup_keys, '_prove'),
                (process, 'run')):
            def noting(*words, act=getattr(module, name), name=name, **more):
                done.append(name)
                return act(*words, **more)
            self.useFixture(fixtures.MockPatchObject(module, name, noting))
        cryptsetup_keys.end_reencryption(HANDLE, KEY, 30)
        self.assertEqual(
            ['locked', 'check_opened', 'processes', 'beginning', 'beginning',
             '_prove', 'run', 'run', 'run', 'left'], done)
        self.assertEqual([30] * 3, self.commands.limits)

    def test_end_that_is_not_all_that_is_missing(self):
        """No backup is to be restored, in no case."""
        complete(self)
        self.commands.answer('cryptsetup open', code=1, err='is not a valid '
                             'LUKS device')
        error = self.assertRaises(encryption_exceptions.NotEnded,
                                  cryptsetup_keys.end_reencryption, HANDLE,
                                  KEY, 30)
        self.assertIn('can\'t read the completed header', str(error))
        with mock.patch.object(luks_ending, 'end',
                               side_effect=ValueError('odd')):
            error = self.assertRaises(
                encryption_exceptions.NotEnded,
                cryptsetup_keys.end_reencryption, HANDLE, KEY, 30)
        self.assertIn('odd', str(error))
        self.assertEqual(1, len(self.commands.ran))

    def test_end_that_the_key_would_not_open(self):
        complete(self)
        self.commands.answer('cryptsetup open', code=2)
        self.assertRaises(encryption_exceptions.WrongKey,
                          cryptsetup_keys.end_reencryption, HANDLE, KEY, 30)
        self.assertEqual(1, len(self.commands.ran))

    def test_opened_by_two_at_once(self):
        """A boot and the volume service: the second finds it open."""
        self.commands.answer('cryptsetup open', code=5, times=1, err=(
            'Device %s already exists.' % CRYPT))
        cryptsetup_keys.open_device(HANDLE, CRYPT, KEY, 30)
        for answer in (dict(code=5, err='Device x already exists.'),
                       dict(code=4, err='Device %s already exists.' % CRYPT)):
            self.commands.answer('cryptsetup open', times=1, **answer)
            self.assertRaises(
                exceptions.CommandFailed, cryptsetup_keys.open_device, HANDLE,
                CRYPT, KEY, 30)

    def test_what_is_open_changes_and_its_header_does_not(self):
        """Another node may have it open as well."""
        cryptsetup_keys.resize(CRYPT, KEY, 30)
        cryptsetup.close(CRYPT, 30)
        for line in self.commands.ran:
            self.assertIn('--disable-locks', line)

    def test_what_is_killed_has_ended_before(self):
        """Nobody is to write the header after its caller has gone on."""
        keep_backup(self)
        complete(self)
        for name in WITH_KEY:
            self.commands.answer('dd', BLANK)
            self.commands.answer('cryptsetup luksDump',
                                 luks_headers.ROTATING)
            getattr(cryptsetup_keys, name)(*WITH_KEY[name])
            self.assertTrue(self.commands.graces[-1], name)
        for name in set(CHANGES) - {'close'}:
            getattr(cryptsetup, name)(*CHANGES[name])
            self.assertTrue(self.commands.graces[-1], name)

    @ddt.data(('is not a valid LUKS device.', 1,
               encryption_exceptions.HeaderDamaged),
              ('No key available with this passphrase.', 2,
               encryption_exceptions.WrongKey),
              ('No usable keyslot is available.', 1,
               encryption_exceptions.WrongKey),
              ('Out of memory.', 3, exceptions.CommandFailed),
              ('does not exist or access denied.', 4,
               exceptions.CommandFailed),
              ('Device already exists.', 5, exceptions.CommandFailed))
    @ddt.unpack
    def test_what_an_exit_code_means(self, text, code, error):
        self.commands.answer('cryptsetup', code=code, err=text)
        self.assertRaises(
            error, cryptsetup_keys.open_device, HANDLE, CRYPT, KEY, 30)
        self.assertRaises(error, cryptsetup_keys.test, HANDLE, KEY, 30)

    def test_luks1_that_does_not_say_where_its_data_begins(self):
        self.commands.answer('cryptsetup', 'Version:\t1\n')
        self.assertRaises(encryption_exceptions.HeaderDamaged,
                          cryptsetup.payload_sectors, HANDLE, 30)

    def test_closing(self):
        # Without, it would mend a header that it is not to write.
        self.commands.answer('cryptsetup close --disable-locks', code=4,
                             times=1, err='Device %s is not active.' % CRYPT)
        self.assertFalse(cryptsetup.close(CRYPT, 30))
        self.assertTrue(cryptsetup.close(CRYPT, 30))
        self.commands.answer('cryptsetup close', code=5,
                             err='Device %s is still in use.' % CRYPT)
        self.assertRaises(
            exceptions.CommandFailed, cryptsetup.close, CRYPT, 30)

    @ddt.data(dict(out='\0' * 99), dict(out='X' * (1 << 20)),
              dict(out='\0' * ((1 << 20) - 4) + 'LUKS'),
              dict(code=1, err='Input/output error'))
    def test_only_what_is_blank_is_formatted(self, answer):
        self.commands.answer('dd', **answer)
        for name in ('format_luks1', 'format_luks2'):
            self.assertRaises(exceptions.LocalCloneError, getattr(
                cryptsetup_keys, name), *WITH_KEY[name])
        self.assertFalse([line for line in self.commands.ran
                          if 'luksFormat' in line])


class FilesTest(CaseOfFiles):

    def test_a_header_from_its_beginning_to_its_end(self):
        self.assertRaises(encryption_exceptions.HeaderDamaged, cryptsetup.dump,
                          self.path, 60)
        self.format(self.path)
        self.assertEqual(LUKS, cryptsetup.luks_uuid(self.path, 60))
        self.assertRaises(
            encryption_exceptions.NotBlank, self.format, self.path)
        cryptsetup_keys.test(self.path, KEY, 60)
        cryptsetup_keys.test(self.path, KEY, 60, '0')
        self.assertRaises(encryption_exceptions.WrongKey, cryptsetup_keys.test,
                          self.path, KEY + b'\n', 60)
        found = self.header()
        self.assertEqual(('aes-xts-plain64', 512, 16 << 20), (
            found.cipher, found.key_bits, found.data_offset))
        cryptsetup.erase(self.path, 60)
        self.assertRaises(encryption_exceptions.WrongKey, cryptsetup_keys.test,
                          self.path, KEY, 60)

    def test_slots(self):
        self.format(self.path)
        self.add_token('0', '0')
        self.assertRaises(encryption_exceptions.LastKey,
                          cryptsetup_keys.kill_slot, self.path, '0', KEY, 60)
        cryptsetup_keys.add_key(self.path, KEY, NEW_KEY, '3',
                                cryptsetup_cli.RANDOM_KEY, 60)
        # Somebody's own, for all that is known.
        self.assertRaises(
            encryption_exceptions.LastKey, cryptsetup_keys.kill_slot,
            self.path, '0', NEW_KEY, 60)
        self.add_token('1', '3')
        cryptsetup_keys.test(self.path, NEW_KEY, 60, '3')
        # The key of the slot that is to go opens none that stays.
        self.assertRaises(encryption_exceptions.WrongKey,
                          cryptsetup_keys.kill_slot, self.path, '0', KEY, 60)
        self.assertEqual(('0', '3'), self.header().keyslots)
        cryptsetup_keys.kill_slot(self.path, '0', NEW_KEY, 60)
        self.assertEqual(('3',), self.header().keyslots)
        self.assertRaises(encryption_exceptions.WrongKey, cryptsetup_keys.test,
                          self.path, KEY, 60)
        cryptsetup.remove_token(self.path, '0', 60)
        self.assertEqual(('1',), self.header().all_tokens)
        self.assertRaises(
            encryption_exceptions.LastKey, cryptsetup_keys.kill_slot,
            self.path, '3', NEW_KEY, 60)
        cryptsetup_keys.test(self.path, NEW_KEY, 60)

    def test_slot_that_a_recovery_key_drops(self):
        """Never the last one of the volume's own."""
        self.format(self.path)
        self.add_token('0', '0')
        for slot, key in (('1', NEW_KEY), ('2', b'recovery')):
            cryptsetup_keys.add_key(self.path, KEY, key, slot,
                                    cryptsetup_cli.RANDOM_KEY, 60)
        self.add_token('1', '1')
        cryptsetup.import_token(self.path, str(luks_header.Token(
            key='', key_format=volume_types.KeyFormat.PASSPHRASE,
            role=luks_header.Role.RECOVERY, keyslots=('2',))), '2', timeout=60)
        cryptsetup_keys.add_key(self.path, KEY, b'by hand', '5',
                                cryptsetup_cli.RANDOM_KEY, 60)
        # That cryptsetup would do with.
        for key in (b'any other', b'by hand'):
            self.assertRaises(
                encryption_exceptions.WrongKey, cryptsetup_keys.kill_slot,
                self.path, '1', key, 60)
        self.assertEqual(('0', '1', '2', '5'), self.header().keyslots)
        cryptsetup.run(self.path, 'luksKillSlot', '--batch-mode', self.path,
                       '5', timeout=60)
        cryptsetup_keys.kill_slot(self.path, '1', b'recovery', 60)
        self.assertEqual(('0', '2'), self.header().keyslots)
        self.assertRaises(encryption_exceptions.LastKey,
                          cryptsetup_keys.kill_slot, self.path, '0',
                          b'recovery', 60)
        cryptsetup_keys.kill_slot(self.path, '2', KEY, 60)
        self.assertEqual(('0',), self.header().keyslots)

    def test_tokens_and_uuid(self):
        self.format(self.path)
        self.add_token('0', '0')
        self.assertRaises(exceptions.CommandFailed, self.add_token, '0', '0')
        cryptsetup.import_token(self.path, str(luks_header.Token(
            key='other', key_format=volume_types.KeyFormat.HEX)), '0',
            True, 60)
        self.assertEqual({'other'}, self.header().keys())
        cryptsetup.set_uuid(self.path, VOLUME, 60)
        self.assertEqual(VOLUME, cryptsetup.luks_uuid(self.path, 60))

    def test_looking_does_not_mend_a_header(self):
        self.format(self.path)
        with open(self.path, 'r+b') as file:
            file.write(bytes(4096))
        damaged = pathlib.Path(self.path).read_bytes()
        cryptsetup.dump(self.path, 60)
        cryptsetup.luks_uuid(self.path, 60)
        cryptsetup_keys.test(self.path, KEY, 60)
        self.assertTrue(damaged == pathlib.Path(self.path).read_bytes())
        cryptsetup.dump(self.path, 60, True)
        self.assertFalse(damaged == pathlib.Path(self.path).read_bytes())

    def test_copies(self):
        self.assertEqual(['the first copy of its header is damaged',
                          'the second copy of its header is damaged'],
                         self.damaged())
        self.format(self.path)
        self.add_token('0', '0')
        whole = pathlib.Path(self.path).read_bytes()
        self.assertEqual([], self.damaged())
        for begin, which in ((0, 'first'), (1 << 14, 'second')):
            for offset in (0, 8, 17, 168, 450, 5000):
                damaged = bytearray(whole)
                damaged[begin + offset] ^= 255
                pathlib.Path(self.path).write_bytes(damaged)
                self.assertEqual(
                    ['the %s copy of its header is damaged' % which],
                    self.damaged(), offset)
        cryptsetup.remove_token(self.path, '0', 60)
        self.assertEqual([], self.damaged())
        later = pathlib.Path(self.path).read_bytes()
        pathlib.Path(self.path).write_bytes(
            whole[:1 << 14] + later[1 << 14:])
        self.assertEqual(['the copies of its header differ'],
                         self.damaged())

    def test_luks1(self):
        self.assertRaises(encryption_exceptions.HeaderDamaged,
                          cryptsetup.payload_sectors, self.path, 60)
        subprocess.run(
            ['cryptsetup', 'luksFormat', '--batch-mode', '--type', 'luks1',
             '--key-size', '256', '--pbkdf-force-iterations', '1000',
             '--key-file', '-', self.path], input=KEY, check=True)
        self.assertEqual(4096, cryptsetup.payload_sectors(self.path, 60))
        cryptsetup_keys.test(self.path, KEY, 60)
