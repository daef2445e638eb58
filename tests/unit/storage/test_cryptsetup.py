# SPDX-License-Identifier: Apache-2.0
"""What is asked of cryptsetup and LVM for a volume, by its id."""

import contextlib
import os
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import header_notes
from cinder_localclone.core import volume_types
from cinder_localclone.storage import cryptsetup
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import cryptsetup as privileged_crypt
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import header_backups
from cinder_localclone.storage.privsep import lvm
from tests.helpers import commands
from tests.helpers import configured
from tests.helpers import luks_headers

LUKS = '00000000-0000-4000-8000-00000000000a'
VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
HANDLE = '/dev/mapper/localclone-' + VOLUME
CRYPT = 'localclone-crypt-' + VOLUME
DUMP = luks_headers.PLAIN
#: Of other data.
CHANGED = DUMP.replace('aes-xts-plain64', 'aes-cbc-essiv')


@ddt.ddt
class CryptsetupTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.room = cryptsetup.Cryptsetup('g', 30)

    def test_header(self):
        self.commands.answer('cryptsetup', luks_headers.PLAIN)
        self.assertEqual('aes-xts-plain64', self.room.header(VOLUME).cipher)
        self.room.header(VOLUME, repair=True)
        dump = 'cryptsetup luksDump --dump-json-metadata %s' + HANDLE
        self.assertRan(dump % '--disable-locks ', dump % '')

    def test_directories_of_before(self):
        """Whoever configures others is told of those, until they are gone."""
        old, now = (self.useFixture(fixtures.TempDir()).path
                    for _each in range(2))
        gone = old + '/gone'

        def noted(*paths, backend='b'):
            return ['localclone.keeps-%s=%s' % (backend, each)
                    for each in paths]
        tags = [*noted(old, gone), *noted('/other', backend='c')]
        self.commands.answer('vgs --noheadings -o vg_seqno,vg_tags',
                             '  7 %s\n' % ','.join(tags), times=2)
        room = cryptsetup.Cryptsetup('g', 30, now, backend='b')
        self.assertEqual([old], room.former_directories())
        self.assertEqual([], self._changes())
        self.assertEqual([old], room.note_directories())
        self.assertEqual(['vgchange --addtag %s --deltag %s g' % (
            *noted(now), *noted(gone))], self._changes())
        tags[:] = noted(old, now)
        self.commands.answer('vgs --noheadings -o vg_seqno,vg_tags',
                             '  8 %s\n' % ','.join(tags))
        self.assertEqual([old], room.note_directories())
        self.assertEqual(1, len(self._changes()))
        self.assertEqual([], cryptsetup.Cryptsetup(
            'g', 30, now, old, backend='b').former_directories())

    def test_directory_that_no_tag_can_have(self):
        self.assertEqual(
            set(), header_notes.directory_tags('b', ['', '/a b', '/a,b']))

    def test_version_that_re_encrypts(self):
        for text, fits in (('cryptsetup 2.6.1 flags: UDEV', True),
                           ('cryptsetup 2.5.0', True),
                           ('cryptsetup 2.4.3', False),
                           ('cryptsetup 2.10.0', True), ('what?', False)):
            self.commands.answer('cryptsetup --version', text, times=1)
            if fits:
                self.room.check_reencrypts(VOLUME)
                continue
            error = self.assertRaises(
                encryption_exceptions.CannotReencrypt,
                self.room.check_reencrypts, VOLUME)
            self.assertIn('2.5.0', str(error))
            self.assertIn(VOLUME, str(error))

    def test_what_is_noted_of_what_is_passed_through(self):
        other = VOLUME.replace('b', 'a')
        tags = ['mine', header_notes.remote_tag(VOLUME, 'u', 'a:b'),
                header_notes.remote_tag(other, 'v', 'k')]
        self.commands.answer('vgs --noheadings -o vg_seqno,vg_tags',
                             '  7 %s\n' % ','.join(tags))
        self.assertEqual({VOLUME: ('u', 'a:b'), other: ('v', 'k')},
                         self.room.remotes())
        self.room.note_remote(VOLUME, 'u', 'a:b')
        self.assertEqual([], self._changes())
        self.room.note_remote(VOLUME, 'u', 'new')
        self.room.forget_remote(VOLUME)
        self.assertEqual([
            'vgchange --addtag localclone.remote-%s=u:new --deltag %s g' % (
                VOLUME, tags[1]), 'vgchange --deltag %s g' % tags[1]],
            self._changes())

    def test_what_is_noted_is_asked_again_once_the_group_was_changed(self):
        def listed(changes, group='g'):
            return {'v': lvm_reports.LogicalVolume(
                group, 'v', 1, '', frozenset(), group_changes=changes)}

        def noted(changes, *args):
            answer = '  %d %s\n' % (
                changes, header_notes.remote_tag(VOLUME, 'u', 'k%d' % changes))
            commands = self.useFixture(fixtures.MockPatchObject(
                lvm.process, 'run', return_value=answer)).mock
            found = self.room.remotes(*args)
            return found[VOLUME][1], commands.call_count

        self.assertEqual(('k7', 1), noted(7, listed(7)))
        self.assertEqual(('k7', 0), noted(8, listed(7)))
        self.assertEqual(('k8', 1), noted(8, listed(8)))
        self.assertEqual(('k8', 0), noted(8, listed(8)))
        # Older than what is known; without a listing; without any LV of it.
        self.assertEqual(('k9', 1), noted(9, listed(7)))
        self.assertEqual(('k9', 1), noted(9))
        self.assertEqual(('k9', 1), noted(9, {}))
        self.assertEqual(('k9', 1), noted(9, listed(9, 'other')))

    def test_what_is_noted_while_another_thread_asks(self):
        """Its answer is older, but is kept later."""
        new = (8, [header_notes.remote_tag(VOLUME, 'u', 'k')])

        class Room(cryptsetup.Cryptsetup):
            def __setattr__(self, name, value):
                super().__setattr__(name, (7, ['']) if value is new else value)

        with mock.patch.object(lvm, 'group_tags', return_value=new):
            self.assertEqual({VOLUME: ('u', 'k')}, Room('g', 30).remotes())

    def _changes(self):
        return [line for line in self.commands.ran
                if line.startswith('vgchange')]

    def test_header_that_is_not_understood(self):
        for answer in ('', '{}', '{"segments": 7}', '[]'):
            self.commands.answer('cryptsetup', answer, times=1)
            error = self.assertRaises(encryption_exceptions.HeaderDamaged,
                                      self.room.header, VOLUME)
            self.assertIn(HANDLE, str(error))

    def test_end_of_a_re_encryption(self):
        with mock.patch.object(cryptsetup_keys, 'end_reencryption') as ended:
            self.room.end_reencryption(VOLUME, b'key')
        ended.assert_called_once_with(HANDLE, b'key', 30)
        with mock.patch.object(cryptsetup_keys, 'test_ended') as tested:
            self.room.test_ended(VOLUME, b'key')
        tested.assert_called_once_with(HANDLE, b'key', 30)

    def renew(self, volume=VOLUME):
        self.room.renew_backup(volume, luks_header.parse(DUMP), b'key')

    @ddt.data((DUMP, None, True), (CHANGED, None, False),
              ('{', None, False),
              (DUMP, encryption_exceptions.WrongKey(path='p'), False))
    @ddt.unpack
    def test_what_takes_the_place_of_older_backups(self, copied, error, kept):
        """The copy itself is looked at: the disk may be an enemy's."""
        self.room.backups, self.room.backend = '/b', 'lc'
        with mock.patch.object(cryptsetup, 'header_backups',
                               autospec=True) as called, \
                mock.patch.object(cryptsetup_keys, 'test_backup',
                                  side_effect=error):
            called.add.return_value = 'new'
            called.dump.return_value = copied
            if kept:
                self.renew()
            else:
                self.assertRaises(
                    (encryption_exceptions.HeaderDamaged,
                     encryption_exceptions.WrongKey), self.renew)
            self.assertEqual(
                [mock.call('lc', VOLUME, 'new')] * kept,
                called.keep_only.mock_calls)
            self.assertEqual(
                [mock.call('lc', VOLUME, 'new')] * (not kept),
                called.remove.mock_calls)

    def test_backup_that_is_of_no_use_and_stays(self):
        """Why it is of none is what is said."""
        self.room.backups = '/b'
        with mock.patch.object(cryptsetup, 'header_backups',
                               autospec=True) as called:
            called.dump.return_value = CHANGED
            called.remove.side_effect = OSError
            self.assertRaises(encryption_exceptions.ForeignHeader, self.renew)
            called.keep_only.assert_not_called()

    def test_backup_that_can_not_be_written(self):
        self.room.backups = '/nonexistent/backups'
        self.room.backend = configured.BACKEND
        self.useFixture(configured.Configured(
            localclone_header_backup_dir=self.room.backups))
        for make in (self.renew, self.room.save):
            error = self.assertRaises(encryption_exceptions.NoBackup, make,
                                      VOLUME)
            self.assertIn("in /nonexistent/backups can't be changed: "
                          '[Errno 2] No such file', str(error))

    def test_backup_that_there_is_no_room_for(self):
        self.room.backups = '/b'
        full = OSError(28, 'No space left on device')
        for name, make in (
                ('add', self.renew), ('save_beginning', self.room.save)):
            with mock.patch.object(header_backups, name, side_effect=full):
                error = self.assertRaises(encryption_exceptions.NoBackup, make,
                                          VOLUME)
            self.assertIn('volume %s in /b ' % VOLUME, str(error))
            self.assertIn('No space left', str(error))

    def test_volume_is_created_without_a_backup(self):
        self.room.backups = '/b'
        for error in (OSError(28, 'No space left on device'),
                      exceptions.CommandTimeout(command='c', seconds=30)):
            with mock.patch.object(header_backups, 'make',
                                   side_effect=error) as made:
                self.room.back_up(VOLUME)
            made.assert_called_once()

    @mock.patch.object(cryptsetup, 'header_backups')
    def test_no_place_for_backups(self, called):
        self.room.back_up(VOLUME)
        self.renew()
        self.room.drop_backups(VOLUME)
        self.assertEqual((False, [], []), (
            self.room.keeps_backups(), self.room.backed_up_volumes(),
            self.room.backup_names(VOLUME)))
        self.assertEqual([], called.mock_calls)

    @mock.patch.object(cryptsetup, 'header_backups')
    def test_place_of_backups(self, called):
        self.room = cryptsetup.Cryptsetup('g', 30, '/b', backend='lc')
        self.assertTrue(self.room.keeps_backups())
        called.dump.return_value = DUMP
        self.room.renew_backup(VOLUME, luks_header.parse(DUMP), b'')
        self.room.save(VOLUME)
        self.room.restore(VOLUME, 'x', ['1'])
        self.assertIs(called.listed.return_value,
                      self.room.backup_names(VOLUME))
        self.assertIs(called.volumes.return_value,
                      self.room.backed_up_volumes())
        self.assertEqual([
            mock.call.add(HANDLE, 'lc', 30),
            mock.call.dump('lc', VOLUME, called.add.return_value, 30),
            mock.call.keep_only('lc', VOLUME, called.add.return_value),
            mock.call.save_beginning(HANDLE, 'lc', 16 << 20, 30),
            mock.call.restore(HANDLE, 'lc', 'x', ['1'], 30),
            mock.call.listed('lc', VOLUME),
            mock.call.volumes('lc')], called.mock_calls)

    def test_what_a_backup_says(self):
        """Not what the volume says: that may be lost, or be another."""
        self.room.backups, self.room.backend = '/b', 'lc'
        path = '/b/%s/x' % VOLUME
        with mock.patch.object(
                header_backups, 'dump') as dump, mock.patch.object(
                    cryptsetup_keys, 'test_backup') as tested:
            dump.return_value = luks_headers.PLAIN
            header = self.room.backed_up(VOLUME, 'x')
            self.room.test_backup(VOLUME, 'x', b'k')
            dump.return_value = '[]'
            error = self.assertRaises(encryption_exceptions.HeaderDamaged,
                                      self.room.backed_up, VOLUME, 'x')
        self.assertEqual('aes-xts-plain64', header.cipher)
        self.assertIn(path, str(error))
        which = 'lc', VOLUME, 'x'
        dump.assert_called_with(*which, 30)
        tested.assert_called_once_with(*which, b'k', 30, None)

    def test_where_backups_are_at_the_moment(self):
        place = self.useFixture(fixtures.TempDir()).path
        self.room.backups = place
        found = os.stat(place)
        self.assertEqual((found.st_dev, found.st_ino),
                         self.room.backup_space())
        for nowhere in ('', place + '/x'):
            self.room.backups = nowhere
            self.assertIsNone(self.room.backup_space())

    def test_by_handle_and_name(self):
        self.commands.answer('dd', '\0' * (1 << 20))
        self.room.format(VOLUME, cryptsetup_cli.new_header(
            volume_types.Encryption(), VOLUME), b'k')
        self.room.write_token(VOLUME, '0', '{}')
        self.room.write_token(VOLUME, '0', '{}', replace=True)
        self.room.test(VOLUME, b'k', '3')
        self.room.erase(VOLUME)
        self.room.open(VOLUME, b'k', keep_header=True)
        self.room.resize(VOLUME, b'k')
        self.assertTrue(self.room.close(VOLUME))
        token = ('cryptsetup token import --json-file - --token-id 0 %s' +
                 HANDLE)
        key = ' --batch-mode --key-file - '
        self.assertEqual([
            'cryptsetup luksFormat' + key + ' '.join(cryptsetup_cli.new_header(
                volume_types.Encryption(), VOLUME).words()) + ' ' + HANDLE,
            token % '', token % '--token-replace ',
            'cryptsetup open' + key + '--test-passphrase --type luks '
            '--disable-locks --key-slot 3 ' + HANDLE,
            'cryptsetup erase --batch-mode ' + HANDLE,
            'cryptsetup open' + key + '--type luks --perf-no_read_workqueue '
            '--perf-no_write_workqueue --disable-locks ' + HANDLE + ' ' +
            CRYPT, 'cryptsetup resize' + key + '--disable-locks ' + CRYPT,
            'cryptsetup close --disable-locks ' + CRYPT,
        ], self.commands.ran[1:])

    def test_tags(self):
        self.room.note('v', key='k', luks='u')
        self.room.mark('v', 'localclone.opened')
        self.room.unmark('v', 'localclone.opened')
        self.assertEqual([
            'lvchange --addtag localclone.key=k --addtag localclone.luks=u '
            'g/v', 'lvchange --addtag localclone.opened g/v',
            'lvchange --deltag localclone.opened g/v'], [
                line for line in self.commands.ran
                if line.startswith('lvchange')])

    def test_zeros_in_parts(self):
        self.useFixture(fixtures.MockPatchObject(
            block, 'size', return_value=(1 << 28) + 4096))
        self.useFixture(fixtures.MockPatchObject(
            lvm.process, 'locked',
            lambda *_what: contextlib.nullcontext(0)))
        self.commands.answer(
            'lvs', 'localclone.fresh,localclone.volume=' + VOLUME)
        self.room.zero('v', VOLUME)
        self.assertEqual([
            'blkdiscard --force --zeroout --offset %d --length %d '
            '/dev/mapper/%s' % (start, length, CRYPT)
            for start, length in ((0, 1 << 28), (1 << 28, 4096))], [
                line for line in self.commands.ran
                if line.startswith('blkdiscard')])
        del self.commands.ran[:]
        self.room.zero('v', VOLUME, slow=True)
        self.assertEqual(5, sum(line.startswith('blkdiscard')
                                for line in self.commands.ran))

    def test_erase_mends_the_path_before(self):
        """Others may have turned it to another device."""
        with mock.patch.object(
                privileged_crypt, 'erase') as erase, mock.patch.object(
                    dmsetup, 'ensure_devnode') as repair:
            order = mock.Mock()
            order.attach_mock(repair, 'repair')
            order.attach_mock(erase, 'erase')
            self.room.erase(VOLUME)
        self.assertEqual([mock.call.repair('localclone-' + VOLUME),
                          mock.call.erase(HANDLE, 30)], order.mock_calls)

    def test_backups(self):
        made, dropped = (self.useFixture(fixtures.MockPatchObject(
            header_backups, name)).mock for name in ('make', 'drop'))
        self.room.back_up(VOLUME)
        self.room.drop_backups(VOLUME)
        made.assert_not_called()  # there is nowhere to put them
        dropped.assert_not_called()
        self.room.backups, self.room.backend = '/b', 'lc'
        self.room.back_up(VOLUME)
        made.assert_called_once_with(HANDLE, 'lc', VOLUME + '-1', 30)
        made.side_effect = OSError('no space left')
        self.room.back_up(VOLUME)  # the volume works without
        self.room.drop_backups(VOLUME)
        dropped.assert_called_once_with('lc', VOLUME)


@ddt.ddt
class RenewedTest(commands.Case):

    def setUp(self):
        super().setUp()
        self.room = cryptsetup.Cryptsetup('g', 30, '/b', backend='lc')
        self.called = self.enterContext(mock.patch.object(
            cryptsetup, 'header_backups', autospec=True))

    def renew(self):
        self.room.renew_backup(VOLUME, luks_header.parse(DUMP), b'')

    def test_only_token_differs(self):
        other = DUMP.replace('0f1e2d3c', '1f1e2d3c')
        self.assertEqual(luks_header.parse(DUMP).pin,
                         luks_header.parse(other).pin)
        self.called.dump.return_value = other
        self.assertRaises(encryption_exceptions.ForeignHeader, self.renew)
        self.called.keep_only.assert_not_called()

    def test_can_not_be_read(self):
        self.called.dump.side_effect = OSError(5, 'Input/output error')
        self.assertRaises(encryption_exceptions.NoBackup, self.renew)
        self.called.remove.assert_called_once_with(
            'lc', VOLUME, self.called.add.return_value)
        self.called.keep_only.assert_not_called()

    @ddt.data(OSError(), exceptions.CommandTimeout(command='c', seconds=1))
    def test_stays(self, error):
        self.called.dump.return_value = CHANGED
        self.called.remove.side_effect = error
        self.assertRaises(encryption_exceptions.ForeignHeader, self.renew)
        self.called.keep_only.assert_not_called()

    def test_older_ones_that_can_not_be_removed(self):
        """They have keys that the header has no more: it is not done."""
        self.called.dump.return_value = DUMP
        self.called.keep_only.side_effect = OSError(5, 'Input/output error')
        self.assertRaises(encryption_exceptions.NoBackup, self.renew)
