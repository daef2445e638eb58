# SPDX-License-Identifier: Apache-2.0
"""Files with keys: where they are, and that nothing else is reached."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import folders
from cinder_localclone.storage.privsep import header_backups
from cinder_localclone.storage.privsep import header_lock
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sealed_keys
from cinder_localclone.storage.privsep import sysfs
from tests.helpers import commands
from tests.helpers import configured
from tests.helpers import cryptsetup_case

VOLUME, LUKS, HANDLE = (cryptsetup_case.VOLUME,
                        cryptsetup_case.LUKS,
                        cryptsetup_case.HANDLE)
KEY, NEW_KEY = cryptsetup_case.KEY, cryptsetup_case.NEW_KEY
Order = cryptsetup_case.Order
BACKEND = configured.BACKEND
NAME = VOLUME + '-1'


@ddt.ddt
class FilesTest(cryptsetup_case.CaseOfFiles):
    """Headers of real cryptsetup."""

    def test_backups(self):
        self.format(self.path)
        files = ['%s-%d' % (VOLUME, number) for number in (1, 2)]
        for file in files:
            header_backups.make(self.path, BACKEND, file, 60)
            header_backups.make(self.path, BACKEND, file, 60)  # in its place
            self.assertEqual(0o100600, (
                self.backups / VOLUME / file).stat().st_mode)
        with open(self.path, 'r+b') as file:
            file.write(bytes(16 << 20))
        self.assertRaises(encryption_exceptions.HeaderDamaged, cryptsetup.dump,
                          self.path, 60)
        for number in (1, 2):
            with self.through_the_cache():
                header_backups.save_beginning(self.path, BACKEND, 16 << 20, 60)
            saved = self.backups / VOLUME / (
                '%s-before-restore-%d' % (VOLUME, number))
            self.assertEqual(16 << 20, saved.stat().st_size)
        self.assertEqual(files, header_backups.listed(BACKEND, VOLUME))
        which = BACKEND, VOLUME, files[1]
        cryptsetup_keys.test_backup(*which, KEY, 60)
        self.assertRaises(encryption_exceptions.WrongKey,
                          cryptsetup_keys.test_backup, *which, NEW_KEY, 60)
        self.assertEqual(('0',), luks_header.parse(
            header_backups.dump(*which, 60)).all_keyslots)
        with self.through_the_cache():
            header_backups.restore(self.path, BACKEND, files[1], (), 60)
        cryptsetup_keys.test(self.path, KEY, 60)
        (self.backups / VOLUME / 'notes').touch()
        for number in (3, 4):
            self.assertEqual('%s-%d' % (VOLUME, number), self.renew())
            self.assertEqual(
                {'%s-%d' % (VOLUME, number), 'notes'}, {
                    path.name for path in (
                        self.backups / VOLUME).iterdir()})
        (self.backups / VOLUME / 'notes').unlink()
        header_backups.make(self.path, BACKEND, files[1], 60)
        for _repeated in range(2):
            header_backups.drop(BACKEND, VOLUME)
            self.assertFalse((self.backups / VOLUME).exists())

    def test_restored_without_a_key_and_the_uuid_of_another(self):
        """The backup stays as it is, and nothing of its copy is left."""
        self.format(self.path)
        for slot in '12':
            cryptsetup_keys.add_key(self.path, KEY, NEW_KEY, slot,
                                    cryptsetup_cli.RANDOM_KEY, 60)
        cryptsetup.set_uuid(self.path, LUKS, 60)
        header_backups.make(self.path, BACKEND, NAME, 60)
        cryptsetup_keys.test_backup(BACKEND, VOLUME, NAME, NEW_KEY, 60, '2')
        self.assertRaises(
            encryption_exceptions.WrongKey, cryptsetup_keys.test_backup,
            BACKEND, VOLUME, NAME, KEY, 60, '2')
        file = self.backups / VOLUME / NAME
        before = file.read_bytes()
        with open(self.path, 'r+b') as volume:
            volume.write(bytes(16 << 20))
        with self.through_the_cache(), \
                mock.patch.object(process, 'run', wraps=process.run) as ran:
            header_backups.restore(self.path, BACKEND, NAME, ('1', '2'), 60)
        # If it is killed, it has ended before anybody goes on.
        self.assertTrue(ran.call_args.kwargs['grace'])
        self.assertIn('conv=nocreat,notrunc,fsync', ran.call_args.args)
        cryptsetup_keys.test(self.path, KEY, 60)
        self.assertRaises(encryption_exceptions.WrongKey, cryptsetup_keys.test,
                          self.path, NEW_KEY, 60)
        self.assertEqual(VOLUME, cryptsetup.luks_uuid(self.path, 60))
        self.assertEqual(before, file.read_bytes())
        self.assertEqual([file], list(file.parent.iterdir()))

    @ddt.data(('--offset', '16384'),
              ('--luks2-keyslots-size', '1m', '--offset', '32768'))
    def test_restored_over_the_header_of_others(self, options):
        """Whoever can write the disk can have written any header to it."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        with open(self.path, 'r+b') as volume:
            volume.write(bytes(16 << 20))
        cryptsetup_keys._run(
            self.path, 'luksFormat', '--batch-mode', '--key-file', '-',
            '--type', 'luks2', '--pbkdf', 'pbkdf2',
            '--pbkdf-force-iterations', '1000', *options, self.path, key=b'x',
            timeout=60)
        with self.through_the_cache():
            header_backups.restore(self.path, BACKEND, NAME, (), 60)
        cryptsetup_keys.test(self.path, KEY, 60)

    def test_no_data_are_written_with_a_header(self):
        """Whatever a backup has at its end."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        with open(self.backups / VOLUME / NAME, 'ab') as file:
            file.write(b'x' * (1 << 20))
        before = pathlib.Path(self.path).read_bytes()[16 << 20:]
        with self.through_the_cache():
            header_backups.restore(self.path, BACKEND, NAME, (), 60)
        self.assertEqual(
            before, pathlib.Path(self.path).read_bytes()[16 << 20:])

    def test_restored_to_nothing_but_what_the_path_names(self):
        """Others may have turned it elsewhere meanwhile."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        with open(self.path, 'r+b') as volume:
            volume.write(bytes(16 << 20))
        before = pathlib.Path(self.path).read_bytes()
        foreign = exceptions.Foreign(what=self.path)
        with mock.patch.object(sysfs, 'check_opened', side_effect=foreign):
            self.assertRaises(exceptions.Foreign, header_backups.restore,
                              self.path, BACKEND, NAME, (), 60)
        self.assertEqual(before, pathlib.Path(self.path).read_bytes())

    def slow(self, seconds):
        """Have dd hang for a while, as in the kernel: no signal ends it."""
        directory = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(directory, 'dd')
        pathlib.Path(path).write_text(
            '#!/bin/sh\ntrap "" TERM\nsleep %s\nexec %s "$@"\n' % (
                seconds, shutil.which('dd')))
        os.chmod(path, 0o755)
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', directory + ':' + os.environ['PATH']))
        self.useFixture(fixtures.MockPatchObject(cryptsetup, 'GRACE', 0.2))

    def test_writer_that_is_left_behind_keeps_the_lock(self):
        """What it writes late, it writes before anybody else writes."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        self.slow(4)
        with self.through_the_cache():
            self.assertRaises(
                exceptions.CommandTimeout, header_backups.restore, self.path,
                BACKEND, NAME, (), 1)
        for act in (self.take, lambda seconds: header_backups.add(
                self.path, BACKEND, seconds)):
            self.assertRaises(encryption_exceptions.HeaderInUse, act, 0.3)
        self.assertEqual([NAME], header_backups.listed(BACKEND, VOLUME))
        self.take(60)

    def take(self, timeout):
        with header_lock.held(self.path, timeout):
            pass

    def test_header_can_be_written_while_its_backup_is(self):
        """The disk of the backups may be slow, and a guest waits."""
        self.format(self.path)
        written = []

        def slow(descriptor):
            self.take(0.3)
            written.append(descriptor)
        with mock.patch.object(os, 'fsync', slow):
            header_backups.make(self.path, BACKEND, NAME, 60)
        self.assertTrue(written)

    def test_slot_that_opens_no_data_counts_for_none(self):
        """An enemy has put in one with another data key, under the secret."""
        self.format(self.path)
        cryptsetup_keys.add_key(self.path, KEY, NEW_KEY, '3',
                                cryptsetup_cli.RANDOM_KEY, 60)
        cryptsetup_keys._run(
            self.path, 'luksAddKey', '--batch-mode', '--unbound', '--key-slot',
            '5', '--key-size', '512', '--pbkdf', 'pbkdf2',
            '--pbkdf-force-iterations', '1000', self.path, '/dev/stdin',
            key=KEY, timeout=60)
        cryptsetup.import_token(self.path, str(luks_header.Token(
            key='k', key_format=volume_types.KeyFormat.RAW,
            keyslots=('3', '5'))), '0', timeout=60)
        header_backups.make(self.path, BACKEND, NAME, 60)
        node = types.SimpleNamespace(crypt=types.SimpleNamespace(
            test_backup=functools.partial(self.prove_slot, BACKEND)),
            keys=types.SimpleNamespace(get=lambda *_which: KEY))
        saved = luks_header.parse(
            header_backups.dump(BACKEND, VOLUME, NAME, 60))
        with mock.patch.object(headers, 'record_of'):
            self.assertRaises(
                encryption_exceptions.WrongKey, operator._opening, node,
                types.SimpleNamespace(id=VOLUME), NAME, saved)

    @staticmethod
    def prove_slot(backend, volume, name, key, slot):
        cryptsetup_keys.test_backup(backend, volume, name, key, 60, slot)

    def test_restored_while_nobody_else_writes_the_header(self):
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        with open(self.path, 'r+b') as volume:
            volume.write(bytes(16 << 20))
        before = pathlib.Path(self.path).read_bytes()
        with header_lock.held(self.path, 60), self.through_the_cache():
            self.assertRaises(
                encryption_exceptions.HeaderInUse, header_backups.restore,
                self.path, BACKEND, NAME, (), 2)
        self.assertEqual(before, pathlib.Path(self.path).read_bytes())

    def test_restored_past_the_cache(self):
        """Else this node would read that header again when the volume is
        back, after another node has changed it.
        """
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        with self.through_the_cache():
            uncached = process.run
        with mock.patch.object(process, 'run', side_effect=uncached) as ran:
            header_backups.restore(self.path, BACKEND, NAME, (), 60)
        self.assertIn('oflag=direct', ran.call_args.args)

    def test_backup_that_is_cut_off(self):
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        os.truncate(self.backups / VOLUME / NAME, 8 << 20)
        before = pathlib.Path(self.path).read_bytes()
        error = self.assertRaises(
            exceptions.CommandFailed, header_backups.restore, self.path,
            BACKEND, NAME, (), 60)
        self.assertIn('is too small', str(error))
        self.assertEqual(before, pathlib.Path(self.path).read_bytes())

    def test_backup_that_is_not_understood(self):
        """Nor is it known then how much of it is a header."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        before = pathlib.Path(self.path).read_bytes()
        with mock.patch.object(luks_header, 'parse',
                               side_effect=ValueError('x')):
            self.assertRaises(
                encryption_exceptions.HeaderDamaged, header_backups.restore,
                self.path, BACKEND, NAME, (), 60)
        self.assertEqual(before, pathlib.Path(self.path).read_bytes())

    @ddt.data('luksKillSlot', 'luksUUID')
    def test_restore_whose_copy_can_not_be_changed(self, step):
        """Nothing is written over the volume's header then."""
        self.format(self.path)
        header_backups.make(self.path, BACKEND, NAME, 60)
        ran = process.run

        def fail(*argv, **more):
            if step in argv:
                raise exceptions.CommandFailed(command=step, code=1, stderr='')
            return ran(*argv, **more)
        with open(self.path, 'r+b') as volume:
            volume.write(bytes(16 << 20))  # it is not the backup's
        before = pathlib.Path(self.path).read_bytes()
        with mock.patch.object(process, 'run', fail):
            self.assertRaises(exceptions.CommandFailed, header_backups.restore,
                              self.path, BACKEND, NAME, ('1',), 60)
        self.assertEqual(before, pathlib.Path(self.path).read_bytes())

    def test_what_a_power_cut_has_left_of_a_backup(self):
        """It has keys as well: it is overwritten, and all others go."""
        self.format(self.path)
        old, part, other = [
            self.of_volume(name % LUKS, text='keys')
            for name in ('%s-9', '%s-10.partial', '%s-4.partial')]
        kept = self.directory / 'kept'
        os.link(part, kept)
        self.renew()
        new, = part.parent.iterdir()
        self.assertEqual(VOLUME + '-10', new.name)
        self.assertEqual(bytes(4), kept.read_bytes())
        cryptsetup_keys.test_backup(BACKEND, VOLUME, new.name, KEY, 60)

    def renew(self):
        name = header_backups.add(self.path, BACKEND, 60)
        header_backups.keep_only(BACKEND, VOLUME, name)
        return name

    def test_one_of_several(self):
        """What takes the place of others is there; else they stay."""
        first, second, third = ['%s-%d' % (LUKS, number)
                                for number in (1, 2, 3)]
        for name in (first, second):
            self.of_volume(name, text='keys')
        self.assertRaises(FileNotFoundError, header_backups.keep_only, BACKEND,
                          VOLUME, third)
        self.assertEqual([first, second],
                         header_backups.listed(BACKEND, VOLUME))
        kept = self.directory / 'kept'
        os.link(self.backups / VOLUME / second, kept)
        header_backups.remove(BACKEND, VOLUME, second)
        self.assertEqual(bytes(4), kept.read_bytes())
        self.assertEqual([first], header_backups.listed(BACKEND, VOLUME))

    def test_names_of_backups(self):
        """By number: the last one is what is restored."""
        for number in (9, 10, 11):
            self.of_volume('%s-%d' % (LUKS, number))
        for name in ('notes', '%s-12.partial' % LUKS):
            self.of_volume(name)
        self.assertEqual(
            ['%s-%d' % (LUKS, number) for number in (9, 10, 11)],
            header_backups.listed(BACKEND, VOLUME))

    def of_volume(self, name, volume=VOLUME, text=''):
        file = self.backups / volume / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_text(text)
        return file

    def test_volumes_that_have_backups(self):
        """Not those of which there is only a part of one, or no directory."""
        self.backups.rmdir()
        self.assertEqual([], header_backups.volumes(BACKEND))
        self.backups.mkdir(mode=0o700)
        other, part, empty, file = ('%s%d' % (VOLUME[:-1], number)
                                    for number in range(4, 8))
        self.of_volume(LUKS + '-1', other)
        self.of_volume(LUKS + '-1')
        self.of_volume(LUKS + '-2.partial')
        self.of_volume(LUKS + '-1.partial', part)
        self.of_volume(LUKS + '-1', 'lost+found')
        (self.backups / empty).mkdir()
        (self.backups / file).touch()
        self.assertEqual([VOLUME, other], header_backups.volumes(BACKEND))

    def test_what_is_removed_is_overwritten_before(self):
        """However small: not only in the memory of this process."""
        file, seen = self.of_volume(LUKS + '-1', text='keys'), []

        def flushed(descriptor):
            if not os.path.isdir('/proc/self/fd/%d' % descriptor):
                seen.append(os.pread(descriptor, 99, 0))
        before = len(os.listdir('/proc/self/fd'))
        with mock.patch.object(os, 'fsync', flushed):
            header_backups.drop(BACKEND, VOLUME)
        self.assertEqual([bytes(4)], seen)
        self.assertFalse(file.exists())
        self.assertEqual(before, len(os.listdir('/proc/self/fd')))

    def test_backups_outlive_a_power_cut(self):
        self.format(self.path)
        directory, first, second = self.backups / VOLUME, *(
            '%s-%d' % (VOLUME, number) for number in (1, 2))
        order = self.useFixture(Order())

        def written(name):
            return [('fsync', name + '.partial'), ('replace', name),
                    ('fsync', VOLUME), ('fsync', self.backups.name)]
        header_backups.make(self.path, BACKEND, first, 60)
        self.assertEqual(0o40700, directory.stat().st_mode)
        self.assertEqual(written(first), order.done)
        del order.done[:]
        self.renew()
        # That of before goes when there is another one.
        self.assertEqual(
            [*written(second), ('fsync', first), ('unlink', first)],
            order.done)
        del order.done[:]
        header_backups.drop(BACKEND, VOLUME)
        self.assertEqual(
            [('fsync', second), ('unlink', second), ('fsync', VOLUME)],
            order.done)

    def test_backup_that_fails_leaves_what_there_was(self):
        self.format(self.path)
        name = self.renew()
        with mock.patch.object(os, 'replace', side_effect=OSError):
            self.assertRaises(OSError, self.renew)
        with open(self.path, 'r+b') as file:
            file.write(bytes(16 << 20))
        self.assertRaises(exceptions.LocalCloneError, header_backups.make,
                          self.path, BACKEND, name, 60)
        self.assertEqual([name], header_backups.listed(BACKEND, VOLUME))
        cryptsetup_keys.test_backup(BACKEND, VOLUME, name, KEY, 60)

    def test_what_is_removed_is_overwritten(self):
        """Who keeps a name of the file has no keys by it."""
        self.format(self.path)
        kept = [self.directory / str(number) for number in (1, 2)]
        for link in kept:
            name = self.renew()
            os.link(self.backups / VOLUME / name, link)
        self.assertEqual(b'LUKS', kept[1].read_bytes()[:4])
        header_backups.drop(BACKEND, VOLUME)
        for link in kept:
            self.assertFalse(link.read_bytes().strip(b'\0'))
            self.assertEqual(16 << 20, link.stat().st_size)

    def test_removal_outlives_a_power_cut(self):
        self.format(self.path)
        name = self.renew()
        order = self.useFixture(Order())
        header_backups.remove(
            BACKEND, VOLUME, name)
        self.assertEqual(
            [('fsync', name), ('unlink', name),
             ('fsync', VOLUME)], order.done)


@ddt.ddt
class FoldersTest(testtools.TestCase):
    """Only what root has made is opened."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.directory = self.root / 'keys'
        self.directory.mkdir(mode=0o700)
        self.configure(self.directory)

    def configure(self, path, **sections):
        self.useFixture(configured.Configured(
            sections, localclone_key_cache_dir=path))

    def opened(self, backend=BACKEND, **more):
        return folders.configured(backend, configuration.SEALED_KEYS, **more)

    def refused(self, text):
        error = self.assertRaises(OSError, self.opened().__enter__)
        self.assertIn(text, str(error))

    def test_used_by_its_descriptor(self):
        with self.opened() as folder:
            self.directory.rename(self.root / 'moved')
            with folder.file('x', 'xb') as file:
                file.write(b'x')
            folder.rename('x', 'y')
            self.assertEqual(['y'], folder.names())
        self.assertEqual(0o100600, (self.root / 'moved' / 'y').stat().st_mode)

    def test_nothing_stays_open(self):
        before = len(os.listdir('/proc/self/fd'))
        with self.opened() as folder:
            with folders.inside(folder, 'a', make=True):
                pass
        self.configure(self.root / 'none' / 'keys')
        self.assertRaises(FileNotFoundError, self.opened().__enter__)
        self.assertEqual(before, len(os.listdir('/proc/self/fd')))

    def test_link(self):
        (self.root / 'link').symlink_to(self.directory)
        for path in (self.root / 'link', self.root / 'link' / 'deeper'):
            self.configure(path)
            self.refused('a link, or not a directory')

    @ddt.data(0o770, 0o702, 0o1777)
    def test_writable_by_others(self, mode):
        self.directory.chmod(mode)
        self.refused('writable by users other than root')

    def test_below_what_is_writable_by_others(self):
        """They would put another directory of root's in its place."""
        (self.directory / 'deeper').mkdir(mode=0o700)
        self.configure(self.directory / 'deeper')
        self.directory.chmod(0o777)
        self.refused('writable by users other than root')
        self.directory.chmod(0o1777)  # as /tmp: nobody renames root's
        with self.opened() as folder:
            self.assertEqual([], folder.names())

    def test_of_another_user(self):
        found = os.fstat

        def fstat(descriptor):
            seen = found(descriptor)
            return mock.Mock(st_mode=seen.st_mode, st_uid=1) if (
                os.path.samestat(seen, self.directory.stat())) else seen
        with mock.patch.object(os, 'fstat', fstat):
            self.refused('not owned by root')

    def test_problem(self):
        """What doctor tells."""
        self.assertEqual('', folders.problem(str(self.directory)))
        self.assertEqual('', folders.problem(str(self.root / 'none')))
        self.directory.chmod(0o770)
        self.assertEqual('%s is writable by users other than root'
                         % self.directory,
                         folders.problem(str(self.directory)))

    @ddt.data('keys', '/x/../keys')
    def test_path_that_can_not_be(self, path):
        self.configure(path)
        self.assertRaises(exceptions.Foreign, self.opened().__enter__)

    def test_not_configured(self):
        """The daemon may have been started with other files."""
        self.useFixture(configured.Configured())
        error = self.assertRaises(OSError, folders.configured(
            BACKEND, configuration.HEADER_BACKUPS).__enter__)
        self.assertIn('helper_command', str(error))

    def test_file_that_is_a_link_or_no_file(self):
        (self.directory / 'link').symlink_to('/etc/passwd')
        os.mkfifo(self.directory / 'pipe')
        with self.opened() as folder:
            for name in ('link', 'pipe'):
                self.assertRaises(OSError, folder.file, name, 'rb')

    def test_two_backends_of_one_node(self):
        """Each section has its own, or what all share."""
        self.configure(self.root / 'own', second={
            'localclone_key_cache_dir': self.root / 'second'},
            backend_defaults={
                'localclone_key_cache_dir': self.root / 'shared'}, third={})
        for backend, expected in (
                (BACKEND, 'own'), ('second', 'second'), ('third', 'shared'),
                ('none', 'shared')):
            self.assertEqual(str(self.root / expected), (
                configuration.directory(backend, configuration.SEALED_KEYS)))
        self.configure(self.root / 'own')
        self.assertEqual('/var/lib/localclone/keys', configuration.directory(
            'second', configuration.SEALED_KEYS))
        self.assertEqual('', configuration.directory(
            BACKEND, configuration.HEADER_BACKUPS))


class DaemonTest(testtools.TestCase):

    def test_reads_what_privsep_has_read(self):
        """In a process that is started as privsep-helper is."""
        found = self.useFixture(configured.Configured(
            localclone_header_backup_dir='/b'))
        seen = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', """
from oslo_config import cfg
import sys
cfg.CONF(args=sys.argv[1:], project='privsep')
from cinder_localclone.storage import privsep as privileged
from cinder_localclone.storage.privsep import configuration
print(configuration.files(), configuration.has('lc'),
      configuration.directory('lc', configuration.HEADER_BACKUPS))""",
             '--config-file', found.path], check=True, capture_output=True,
            text=True, timeout=120).stdout
        self.assertEqual("['%s'] True /b\n" % found.path, seen)


class LinksTest(commands.Case):
    """For a user of Cinder's who was taken over, or a mistake."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.backups = self.root / 'backups'
        self.backups.mkdir(mode=0o700)
        self.useFixture(configured.Configured(
            localclone_header_backup_dir=self.backups,
            localclone_key_cache_dir=self.backups))

    def test_a_backup_that_is_a_link(self):
        """Whatever it leads to would be overwritten, or be read."""
        victim = self.root / 'record'
        victim.write_text('root:*:')
        of_volume = self.backups / VOLUME
        of_volume.mkdir(mode=0o700)
        (of_volume / NAME).symlink_to(victim)
        (of_volume / (LUKS + '-9.partial')).symlink_to(victim)
        for name, *given in (
                (header_backups.drop, BACKEND, VOLUME),
                (header_backups.make, HANDLE, BACKEND, LUKS + '-9', 30),
                (header_backups.restore, HANDLE, BACKEND, NAME, (), 30),
                (header_backups.dump, BACKEND, VOLUME, NAME, 30),
                (cryptsetup_keys.test_backup, BACKEND, VOLUME, NAME, KEY, 30)):
            self.assertRaises(OSError, name, *given)
        self.assertEqual('root:*:', victim.read_text())
        self.assertRan()

    def test_a_folder_that_is_a_link(self):
        """The bytes of a guest would be a file of root's anywhere."""
        target = self.root / 'cron.d'
        target.mkdir(mode=0o700)
        (self.backups / VOLUME).symlink_to(target)

        def write(*argv, **_more):
            path = next(each[3:] for each in argv if each.startswith('of='))
            pathlib.Path(path).write_bytes(b'* * * * * root id\n')
        with mock.patch.object(process, 'run', write):
            self.assertRaises(OSError, header_backups.save_beginning, HANDLE,
                              BACKEND, 1 << 20, 30)
        self.assertEqual([], list(target.iterdir()))

    def test_sealed_key_that_is_a_link(self):
        (self.backups / (VOLUME + '.cred')).symlink_to('/etc/passwd')
        self.assertRaises(encryption_exceptions.NotSealed, sealed_keys.resize,
                          'localclone-crypt-' + VOLUME, BACKEND, 'ref', 30)
        self.assertRan()

    def test_names(self):
        for name in ('x', '../' + NAME, NAME + '/x', LUKS):
            for call, *given in (
                    (header_backups.make, HANDLE, BACKEND, name, 30),
                    (header_backups.restore, HANDLE, BACKEND, name, (), 30),
                    (header_backups.dump, BACKEND, VOLUME, name, 30),
                    (header_backups.keep_only, BACKEND, VOLUME, name),
                    (header_backups.remove, BACKEND, VOLUME, name),
                    (cryptsetup_keys.test_backup, BACKEND, VOLUME, name, KEY,
                     30)):
                self.assertRaises(exceptions.Foreign, call, *given)
        for call in (header_backups.drop, header_backups.listed):
            self.assertRaises(exceptions.Foreign, call, BACKEND, '..')
        for slot in ('--help', '', '-1'):
            self.assertRaises(exceptions.Foreign, header_backups.restore,
                              HANDLE, BACKEND, NAME, [slot], 30)
        for path in ('/dev/sda', '/tmp/localclone-' + VOLUME):
            for call, *given in ((header_backups.make, NAME, 30),
                                 (header_backups.restore, NAME, (), 30),
                                 (header_backups.add, 30),
                                 (header_backups.save_beginning, 1, 30)):
                self.assertRaises(exceptions.Foreign, call, path, BACKEND,
                                  *given)
        self.assertRan()
