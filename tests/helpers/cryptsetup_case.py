# SPDX-License-Identifier: Apache-2.0
"""The real cryptsetup, on headers in files."""

import contextlib
import os
import pathlib
from unittest import mock

from eventlet import patcher
import fixtures
import testtools

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import volume_types
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import memory
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import reencrypt_process
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import configured
from tests.helpers import luks_headers
from tests.helpers import needs

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
LUKS = '11111111-2222-4333-8444-555555555555'
HANDLE = '/dev/mapper/localclone-' + VOLUME
CRYPT = 'localclone-crypt-' + VOLUME
KEY, NEW_KEY = b'the key', b'the other key'


def complete(test):
    """A header of which only the end of its re-encryption is missing."""
    metadata = luks_headers.complete()
    for module, name, value in (
            (header_lock, 'held', lambda *_which: contextlib.nullcontext(
                header_lock.Held(7, 8))),
            (sysfs, 'check_opened', lambda *_which: None),
            (reencrypt_process, 'processes', lambda _volume_id: []),
            (cryptsetup, 'beginning', lambda *_which: bytearray(
                luks_headers.head(metadata)))):
        test.useFixture(fixtures.MockPatchObject(module, name, value))


class Order(fixtures.Fixture):
    """``done``: what is flushed, renamed and removed, by name, in order."""

    def _setUp(self):
        self.done = []
        for name, of in (
                ('fsync', lambda number: os.readlink(
                    '/proc/self/fd/%d' % number)),
                ('replace', lambda _old, new: new), ('unlink', str)):
            self.useFixture(fixtures.MockPatchObject(
                os, name, self._noting(name, of, getattr(os, name))))

    def _noting(self, name, of, act):
        def noting(*target, **where):
            what = name, pathlib.Path(of(*target)).name
            act(*target, **where)
            self.done.append(what)
        return noting


class CaseOfFiles(testtools.TestCase):
    """The real cryptsetup; what it works on are files."""

    def setUp(self):
        super().setUp()
        needs.programs(self, 'cryptsetup')
        for module, name, value in (
                (privsep.default, 'client_mode', False),
                (cryptsetup_keys.context, 'client_mode', False),
                (memory, 'protect', lambda: None),
                (process, 'subprocess', patcher.original('subprocess')),
                (cryptsetup, 'BETWEEN', 0),
                (sysfs, 'check_opened', lambda *_which: None),
                (cryptsetup, 'require_handle', lambda path: VOLUME)):
            self.useFixture(fixtures.MockPatchObject(module, name, value))
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.image('image')
        self.backups = self.directory / 'backups'
        self.backups.mkdir(mode=0o700)
        self.useFixture(configured.Configured(
            localclone_header_backup_dir=self.backups))

    def image(self, name):
        path = self.directory / name
        with open(path, 'wb') as file:
            file.truncate(20 << 20)
        return str(path)

    @contextlib.contextmanager
    def through_the_cache(self):
        """Not every file system of a test can do without."""
        with contextlib.ExitStack() as patches:
            for name in ('run', 'stream'):
                found = getattr(process, name)
                patches.enter_context(mock.patch.object(
                    process, name, lambda *words, found=found, **kwargs:
                    found(*[word for word in words if word not in (
                        'iflag=direct', 'oflag=direct')], **kwargs)))
            yield

    def damaged(self):
        with self.through_the_cache():
            return cryptsetup.damaged_copies(self.path, 60)

    def format(self, path, key=KEY):
        with self.through_the_cache():
            cryptsetup_keys.format_luks2(path, cryptsetup_cli.new_header(
                volume_types.Encryption(), LUKS), key, 60)

    def header(self):
        return luks_header.parse(cryptsetup.dump(self.path, 60))

    def add_token(self, number, slot):
        cryptsetup.import_token(self.path, str(luks_header.Token(
            key='ref-' + number, key_format=volume_types.KeyFormat.RAW,
            keyslots=(slot,))), number, timeout=60)
