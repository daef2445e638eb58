# SPDX-License-Identifier: Apache-2.0
"""Files of sealed keys: what is cut off, what is not there, what is asked."""

import os
import pathlib
from unittest import mock

import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sealed_keys
from tests.helpers import commands
from tests.helpers import configured
from tests.unit.storage.privsep import test_sealed_keys as test_sealed
from tests.world import dm_kernel

VOLUME, HANDLE, CRYPT = (test_sealed.VOLUME, test_sealed.HANDLE,
                         test_sealed.CRYPT)


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
            configured.BACKEND, VOLUME, 'ref', test_sealed.KEY, 30)

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
        self.commands.answer('systemd-creds decrypt', test_sealed.KEY.hex())
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
