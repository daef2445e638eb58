# SPDX-License-Identifier: Apache-2.0
"""Keys that a node keeps: sealed, and nowhere in plain text."""

import errno
import os
import pathlib
from unittest import mock

import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import header_notes
from cinder_localclone.core import names
from cinder_localclone.service import options
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sealed_keys
from tests.helpers import commands
from tests.helpers import configured
from tests.helpers import cryptsetup_case
from tests.world import dm_kernel

VOLUME = cryptsetup_case.VOLUME
HANDLE, CRYPT = cryptsetup_case.HANDLE, cryptsetup_case.CRYPT
KEY = b'\x00\xffthe key\n'
NAME = '--name=' + header_notes.sealed_key(VOLUME, 'ref')
#: By the descriptor of the file, which nobody else can replace.
DECRYPT = r'^systemd-creds decrypt %s /dev/fd/\d+ -$' % NAME


class SealedTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.root = self.useFixture(fixtures.TempDir()).path
        self.directory = os.path.join(self.root, 'var', 'keys')
        self.file = pathlib.Path(self.directory, VOLUME + '.cred')
        self.useFixture(configured.Configured(
            localclone_key_cache_dir=self.directory))
        self.commands.answer('systemd-creds encrypt', 'sealed text\n')

    def seal(self):
        return sealed_keys.seal(configured.BACKEND, VOLUME, 'ref', KEY, 30)

    def open(self, reference='ref', **more):
        return sealed_keys.open_device(
            HANDLE, CRYPT, configured.BACKEND, reference, 30, **more)

    def test_seal(self):
        for _repeated in range(2):
            self.assertIsNone(self.seal())
        self.assertRan(*['systemd-creds encrypt %s - -' % NAME] * 2)
        self.assertEqual([KEY.hex().encode()] * 2, self.commands.inputs)
        self.assertEqual([self.file], list(self.file.parent.iterdir()))
        self.assertEqual('sealed text\n', self.file.read_text())
        self.assertEqual(0o600, self.file.stat().st_mode & 0o777)
        self.assertEqual(0o700, self.file.parent.stat().st_mode & 0o777)

    def test_outlives_a_power_cut(self):
        order = self.useFixture(cryptsetup_case.Order())
        self.seal()
        sealed_keys.forget(configured.BACKEND, VOLUME)
        name = self.file.name
        self.assertEqual(
            [('fsync', name + '.partial'), ('replace', name),
             ('fsync', 'keys'), ('unlink', name), ('fsync', 'keys')],
            order.done)

    def test_one_that_fails_leaves_what_there_was(self):
        self.seal()
        with mock.patch.object(process, 'run', side_effect=(
                exceptions.CommandFailed(command='c', code=1, stderr='x'))):
            self.assertRaises(exceptions.CommandFailed, self.seal)
        self.assertEqual('sealed text\n', self.file.read_text())

    def test_open(self):
        self.seal()
        del self.commands.ran[:], self.commands.inputs[:]
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        self.assertIsNone(self.open(keep_header=True))
        self.assertRegex(self.commands.ran[0], DECRYPT)
        self.assertRegex(self.commands.ran[1], '^cryptsetup open .*--disable-'
                         'locks %s %s$' % (HANDLE, CRYPT))
        self.assertEqual([None, KEY], self.commands.inputs)

    def test_open_by_two_at_once(self):
        self.seal()
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        self.commands.answer('cryptsetup open', code=5, err=(
            'Device %s already exists.' % CRYPT))
        self.assertIsNone(self.open())

    def test_tpm_that_hangs(self):
        """Then it can't be unsealed here."""
        self.seal()
        self.commands.hang('systemd-creds decrypt')
        self.assertRaises(encryption_exceptions.NotSealed, self.open)

    def test_resize(self):
        self.seal()
        del (self.commands.ran[:], self.commands.inputs[:],
             self.commands.limits[:])
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        self.assertIsNone(
            sealed_keys.resize(CRYPT, configured.BACKEND, 'ref', 30))
        decrypted, resized = self.commands.ran
        self.assertRegex(decrypted, DECRYPT)
        self.assertEqual(
            'cryptsetup resize --batch-mode --key-file - --disable-locks '
            + CRYPT, resized)
        self.assertEqual([None, KEY], self.commands.inputs)

    def test_end_of_a_re_encryption(self):
        """As by the key manager's, and only with its own key."""
        self.seal()
        del self.commands.ran[:], self.commands.inputs[:]
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        cryptsetup_case.complete(self)
        self.assertIsNone(sealed_keys.end_reencryption(
            HANDLE, configured.BACKEND, 'ref', 30))
        self.assertRegex(self.commands.ran[0], DECRYPT)
        self.assertIn('--test-passphrase', self.commands.ran[1])
        self.assertEqual([KEY, b'SKUL', b'LUKS'], [
            self.commands.inputs[1], *(
                each[:4] for each in self.commands.inputs[2:])])

    def test_end_of_what_there_is_no_key_of(self):
        cryptsetup_case.complete(self)
        self.assertRaises(encryption_exceptions.NotSealed,
                          sealed_keys.end_reencryption, HANDLE,
                          configured.BACKEND, 'ref', 30)
        self.assertRaises(
            exceptions.Foreign, sealed_keys.end_reencryption, '/dev/sda',
            configured.BACKEND, 'ref', 30)
        self.assertEqual([], self.commands.ran)

    def test_end_of_what_is_no_handle(self):
        """Nothing is unsealed for that."""
        self.seal()
        del self.commands.ran[:]
        for path in ('/tmp/localclone-' + VOLUME, VOLUME):
            self.assertRaises(
                exceptions.Foreign, sealed_keys.end_reencryption, path,
                configured.BACKEND, 'ref', 30)
        self.assertEqual([], self.commands.ran)

    def test_resize_of_what_there_is_no_key_of(self):
        self.assertRaises(encryption_exceptions.NotSealed, sealed_keys.resize,
                          CRYPT, configured.BACKEND, 'ref', 30)
        for name in ('sda', HANDLE, names.handle(VOLUME), '../' + CRYPT):
            self.assertRaises(exceptions.Foreign, sealed_keys.resize, name,
                              configured.BACKEND, 'ref', 30)
        self.assertEqual([], self.commands.ran)

    def test_what_there_is_no_key_of(self):
        error = self.assertRaises(encryption_exceptions.NotSealed, self.open)
        self.assertIn(VOLUME, str(error))
        self.assertEqual([], self.commands.ran)

    def test_of_another_secret_or_of_another_node(self):
        self.seal()
        self.assertNotEqual(header_notes.sealed_key(VOLUME, 'ref'),
                            header_notes.sealed_key(VOLUME, 'new'))
        self.commands.answer('systemd-creds decrypt', code=1, err='Embedded '
                             'credential name does not match')
        error = self.assertRaises(encryption_exceptions.NotSealed, self.open,
                                  'new')
        self.assertIn('does not match', str(error))

    def test_what_is_no_key_is_not_quoted(self):
        self.seal()
        self.commands.answer('systemd-creds decrypt', 'half a secret')
        error = self.assertRaises(encryption_exceptions.NotSealed, self.open)
        self.assertNotIn('half', str(error) + repr(error.__cause__))

    def test_only_volumes(self):
        self.assertRaises(exceptions.Foreign, sealed_keys.seal,
                          configured.BACKEND, '../x', 'ref', KEY, 30)
        self.assertRaises(exceptions.Foreign, sealed_keys.open_device, HANDLE,
                          CRYPT[:-1] + 'f', configured.BACKEND, 'ref', 30)
        self.assertRaises(ValueError, sealed_keys.seal, configured.BACKEND,
                          VOLUME, 'ref', b'', 30)

    def test_forget(self):
        self.seal()
        for _repeated in range(2):
            self.assertIsNone(sealed_keys.forget(configured.BACKEND, VOLUME))
        self.assertFalse(self.file.exists())

    def test_forget_what_was_cut_off(self):
        self.seal()
        partial = self.file.rename(str(self.file) + '.partial')
        sealed_keys.forget(configured.BACKEND, VOLUME)
        self.assertFalse(partial.exists())

    def test_volumes(self):
        """Those of half a file, too: it may have a key."""
        self.seal()
        other = VOLUME[:-1] + '0'
        for name in (other + '.cred.partial', VOLUME, other, 'x.cred',
                     '.cred', VOLUME + '.cred.old'):
            self.file.with_name(name).touch()
        self.assertEqual(sorted({VOLUME, other}),
                         sealed_keys.volumes(configured.BACKEND))
        self.assertTrue(privsep.default.is_entrypoint(sealed_keys.volumes))

    def test_the_daemon_is_one_that_logs_nothing(self):
        for entry in (sealed_keys.seal, sealed_keys.open_device,
                      sealed_keys.resize, sealed_keys.end_reencryption,
                      sealed_keys.forget):
            self.assertTrue(cryptsetup_keys.context.is_entrypoint(entry))


class CryptsetupTest(commands.Case):

    def setUp(self):
        super().setUp()
        directory = self.useFixture(fixtures.TempDir()).path
        self.room = cryptsetup.Cryptsetup(
            'g', 30, '', directory, '', configured.BACKEND)
        self.useFixture(configured.Configured(
            localclone_key_cache_dir=directory))
        self.file = pathlib.Path(directory, VOLUME + '.cred')

    def test_kept_and_used(self):
        self.commands.answer('systemd-creds encrypt', 'x')
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        self.room.seal(VOLUME, 'ref', KEY)
        self.room.open_sealed(VOLUME, 'ref', True, False, False)
        self.assertEqual(KEY, self.commands.inputs[-1])
        self.room.resize_sealed(VOLUME, 'ref')
        self.assertEqual(KEY, self.commands.inputs[-1])
        self.assertIn('resize', self.commands.ran[-1])
        cryptsetup_case.complete(self)
        self.room.end_reencryption_sealed(VOLUME, 'ref')
        self.assertIn('seek=0', self.commands.ran[-1])
        self.assertEqual(3, len([each for each in self.commands.ran if (
            each.startswith('systemd-creds decrypt ' + NAME))]))
        self.assertEqual({30}, set(self.commands.limits))
        self.assertEqual({VOLUME}, self.room.sealed_volumes())
        self.room.forget_sealed(VOLUME)
        self.assertFalse(self.file.exists())
        self.room.forget_sealed(VOLUME)
        self.assertEqual(set(), self.room.sealed_volumes())

    def test_that_can_t_be_listed(self):
        with mock.patch.object(sealed_keys, 'volumes', side_effect=OSError(
                errno.EIO, 'Input/output error')):
            error = self.assertRaises(exceptions.CommandFailed,
                                      self.room.sealed_volumes)
        self.assertIn('Input/output', str(error))

    def test_that_can_t_be_forgotten(self):
        with mock.patch.object(sealed_keys, 'forget', side_effect=OSError(
                errno.EROFS, 'Read-only file system')):
            error = self.assertRaises(exceptions.CommandFailed,
                                      self.room.forget_sealed, VOLUME)
        self.assertIn('Read-only', str(error))

    def test_none_are_kept(self):
        room = cryptsetup.Cryptsetup('g', 30)
        room.seal(VOLUME, 'ref', KEY)
        self.assertRaises(encryption_exceptions.NotSealed, room.open_sealed,
                          VOLUME, 'ref')
        self.assertRaises(encryption_exceptions.NotSealed, room.resize_sealed,
                          VOLUME, 'ref')
        self.assertRaises(encryption_exceptions.NotSealed,
                          room.end_reencryption_sealed, VOLUME, 'ref')
        room.forget_sealed(VOLUME)
        self.assertEqual(set(), room.sealed_volumes())
        self.assertEqual([], self.commands.ran)

    def test_kept_no_more(self):
        """An operator has a node keep keys, and then none: those that there
        are go as their volumes are opened, or closed.
        """
        self.commands.answer('systemd-creds encrypt', 'x')
        room = cryptsetup.Cryptsetup(
            'g', 30, '', '', self.room.sealed, configured.BACKEND)
        for end in (lambda: room.seal(VOLUME, 'ref', KEY),
                    lambda: room.forget_sealed(VOLUME)):
            self.room.seal(VOLUME, 'ref', KEY)
            self.assertTrue(self.file.exists())
            self.assertEqual({VOLUME}, room.sealed_volumes())
            end()
            self.assertFalse(self.file.exists())
        self.assertRaises(encryption_exceptions.NotSealed, room.open_sealed,
                          VOLUME, 'ref')
        self.file.parent.rmdir()
        with mock.patch.object(sealed_keys, 'forget') as forget:
            room.forget_sealed(VOLUME)
        forget.assert_not_called()

    def test_without_systemd_creds(self):
        with mock.patch.object(process, 'run', side_effect=FileNotFoundError(
                2, 'No such file', 'systemd-creds')), \
                mock.patch.object(cryptsetup.LOG, 'warning') as said:
            self.room.seal(VOLUME, 'ref', KEY)
        self.assertIn('systemd 250', str(said.call_args))
        self.assertNotIn(KEY.hex(), str(said.call_args))
        self.assertFalse(self.file.exists())

    def test_option(self):
        conf = mock.Mock(localclone_key_cache='none',
                         localclone_key_cache_dir='/keys')
        self.assertEqual('', options.sealed_keys(conf))
        conf.localclone_key_cache = 'systemd-creds'
        self.assertEqual('/keys', options.sealed_keys(conf))


class FilesTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.root = self.useFixture(fixtures.TempDir()).path
        self.directory = os.path.join(self.root, 'keys')
        self.file = pathlib.Path(self.directory, VOLUME + '.cred')
        self.useFixture(configured.Configured(
            localclone_key_cache_dir=self.directory))
        self.commands.answer('systemd-creds encrypt', 'sealed text\n')

    def seal(self):
        sealed_keys.seal(
            configured.BACKEND, VOLUME, 'ref', KEY, 30)

    def test_forget_where_nothing_was_ever_kept(self):
        """Else no volume is closed until the first key is kept."""
        self.assertIsNone(sealed_keys.forget(configured.BACKEND, VOLUME))
        self.assertFalse(os.path.exists(self.directory))

    def test_seal_after_one_was_cut_off(self):
        self.seal()
        self.file.rename(str(self.file) + '.partial')
        self.seal()
        self.assertEqual([self.file], list(self.file.parent.iterdir()))
        self.assertEqual('sealed text\n', self.file.read_text())

    def test_all_of_it_is_on_disk_before_it_replaces_what_there_was(self):
        sizes = []

        def fsync(descriptor):
            sizes.append(os.fstat(descriptor).st_size)
        with mock.patch.object(os, 'fsync', fsync):
            self.seal()
        self.assertEqual(len('sealed text\n'), sizes[0])

    def test_opens_handles_only(self):
        self.seal()
        del self.commands.ran[:]
        for path in ('/dev/sda', '/dev/mapper/' + VOLUME, '/tmp/' + VOLUME,
                     HANDLE.replace('/dev/mapper/', '/dev/mapper/../')):
            self.assertRaises(
                exceptions.Foreign, sealed_keys.open_device, path, CRYPT,
                configured.BACKEND, 'ref', 30)
        self.assertEqual([], self.commands.ran)

    def test_opens_it_as_asked(self):
        self.seal()
        self.commands.answer('systemd-creds decrypt', KEY.hex())
        for wanted in ({}, {'readonly': True}, {'discards': True}):
            sealed_keys.open_device(
                HANDLE, CRYPT, configured.BACKEND, 'ref', 30, **wanted)
            self.assertEqual(
                {**dict.fromkeys(('readonly', 'discards'), False), **wanted},
                {'readonly': '--readonly' in self.commands.ran[-1],
                 'discards': '--allow-discards' in self.commands.ran[-1]})

    def test_what_is_no_key_is_in_no_traceback(self):
        self.seal()
        self.commands.answer('systemd-creds decrypt', 'half a secret')
        error = self.assertRaises(
            encryption_exceptions.NotSealed, sealed_keys.resize, CRYPT,
            configured.BACKEND, 'ref', 30)
        self.assertTrue(error.__suppress_context__)

    def test_in_order(self):
        self.seal()
        found = sorted(VOLUME[:-1] + each for each in '0123456789abcdef')
        for each in reversed(found):
            self.file.with_name(each + '.cred').touch()
        self.assertEqual(found, sealed_keys.volumes(configured.BACKEND))

    def test_without_systemd_creds(self):
        """It was removed since: the key manager is asked instead."""
        self.seal()
        with mock.patch.object(process, 'run', side_effect=FileNotFoundError(
                2, 'No such file', 'systemd-creds')):
            self.assertRaises(
                encryption_exceptions.NotSealed, sealed_keys.resize, CRYPT,
                configured.BACKEND, 'ref', 30)

    def test_resizes_what_decrypts_only(self):
        self.seal()
        del self.commands.ran[:]
        self.assertRaises(exceptions.Foreign, sealed_keys.resize, VOLUME,
                          configured.BACKEND, 'ref', 30)
        self.assertEqual([], self.commands.ran)


class SurveyTest(commands.Case):

    def test_all_of_cryptsetup(self):
        """What has the tags of an authenticated volume, and what cryptsetup
        has beneath while it re-encrypts.
        """
        kernel = self.useFixture(dm_kernel.Kernel())
        names_ = [names.crypt(VOLUME), names.integrity(VOLUME),
                  names.crypt(VOLUME) + '-overlay']
        for number, (name, kind) in enumerate(zip(
                names_, ('LUKS2', 'INTEGRITY', 'SUBDEV'))):
            kernel.add(name, '253:%d' % number, '0 8 error',
                       uuid='CRYPT-%s-%s-%s' % (kind, 32 * 'a', name))
        self.assertEqual(names_, [
            each[0] for each in dmsetup.survey(30)])
