# SPDX-License-Identifier: Apache-2.0
"""What comes first, by steps that are recorded; and what is left out."""

import dataclasses
from unittest import mock

import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core import pinning
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import hydration
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted
from tests.helpers import callers
from tests.helpers import captured
from tests.helpers import rotate_case
from tests.helpers import specs
from tests.helpers import storage_parts
from tests.helpers import uncommitted_case
from tests.world import crypt


class OrderTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.node = specs.node()
        self.steps = []

    def step(self, module, name, result=None, error=None):
        def act(*_args, **_words):
            self.steps.append(name)
            if error:
                raise error
            return result
        patched = mock.patch.object(module, name, act)
        patched.start()
        self.addCleanup(patched.stop)

    def test_note_stays_until_what_was_passed_through_is_closed(self):
        """Else a boot leaves the guest that has it open without it."""
        self.step(devices, 'ensure_closed', error=exceptions.SourceBusy(
            volume='v', host='h'))
        self.assertRaises(exceptions.SourceBusy, remote_attachment.end,
                          self.node, 'v')
        self.node.crypt.forget_remote.assert_not_called()
        self.node.crypt.forget_sealed.assert_not_called()

    def test_lv_is_given_away_last(self):
        """Nobody is to find it as long as the handle is above it."""
        for module, name in ((manage, '_check_free'),
                             (cleanup, 'end_exports'), (devices, 'users'),
                             (cleanup, 'withdraw_above')):
            self.step(module, name)
        for name in ('remove_handle', 'disown'):
            self.step(storage_parts.of(self.node, name), name)
        manage._release_lv(self.node, mock.MagicMock())
        self.assertEqual(
            ['_check_free', 'end_exports', 'users', 'withdraw_above',
             'remove_handle', 'disown'], self.steps)

    def test_interrupted_re_encryption_is_recovered_before_it_is_open(self):
        self.node.runner.is_running.return_value = False
        self.step(devices, 'is_interrupted', True)
        self.step(devices, 'recover')
        self.step(reencrypt, '_reserve_space')
        self.step(reencrypt, '_pin_new_key', mock.MagicMock())
        self.step(reencrypt, '_ensure_open')
        self.step(reencrypt, '_recorded', mock.Mock(key='k'))
        self.step(boot_notes, 'note_key')
        self.step(self.node.runner, 'start')
        reencrypt._go_on(self.node, mock.MagicMock())
        self.assertEqual(
            ['is_interrupted', 'recover', '_pin_new_key', '_reserve_space',
             '_ensure_open', '_recorded',
             'note_key', 'start'], self.steps)

    def copy(self):
        for module, name in ((migrate, '_check_handle'),
                             (cleanup, 'take_down'), (self.node.lvm,
                                                      'create_lv')):
            self.step(module, name)
        self.step(migrate, '_migrated', mock.Mock(volume_attachment=[]))
        self.step(cleanup, 'pending_here', ['left'])
        migrate.create_copy(self.node, mock.MagicMock(
            provider_id=None, handle_id='v'))

    def test_copy_that_is_refused_removes_nothing(self):
        self.step(policy, 'check_copy',
                  error=encryption_exceptions.EncryptionChange(volume='v'))
        self.assertRaises(encryption_exceptions.EncryptionChange, self.copy)
        self.assertEqual(['_migrated', 'check_copy'], self.steps)

    def test_copy_where_a_move_has_left_something(self):
        """Its handle may be what is left."""
        self.step(policy, 'check_copy')
        self.copy()
        self.assertEqual(
            ['_migrated', 'check_copy', 'pending_here', 'take_down',
             '_check_handle',
             'create_lv'], self.steps)

    def test_volume_with_the_secret_of_its_type_that_was_not_created(self):
        """What this node has of it goes; the secret stays."""
        self.step(policy, '_drop_here')
        self.step(policy, 'key_of_type', 'shared')
        row = mock.MagicMock(
            host='h', encryption=volume_types.Recorded(1, 'shared'))
        self.node.volumes.volume.return_value = row
        policy.give_back(self.node, row)
        self.assertEqual(['_drop_here', 'key_of_type'],
                         self.steps[-2:])
        self.node.keys.release.assert_not_called()
        self.node.keys.remove.assert_not_called()

    def test_secret_is_noted_when_the_header_has_it(self):
        change = mock.Mock(shared=set())
        self.node.crypt.header.return_value.reencryption = False
        self.step(pinning, 'check')
        self.step(pinning, 'after_reencryption', volume_types.Recorded(1, 'k'))
        self.step(rotate, '_strip', mock.Mock(key='k'))
        self.step(rotate, '_token')
        self.step(rotate, 'Change', change)
        self.node.volumes.wanted_encryption.return_value = None
        rotate.give_own_key(self.node, mock.MagicMock(
            encryption=volume_types.Recorded(1, 'k')))
        self.assertEqual(['node.keys.create', 'announce', 'go_on',
                          'note_key'], [
            name for name, *_what in change.method_calls])

    def test_nothing_was_adopted(self):
        self.node.lvm.lvs.return_value = {}
        self.assertIs(False, manage.give_back(self.node, 'volume', 'v'))

    def test_peers_are_answered(self):
        service = mock.Mock(node=specs.node())
        asked = callers.Answers(service)
        with mock.patch.object(snapshots, '_put_away') as put_away:
            asked.disconnect_snapshot('s', {'host': 'h'})
        put_away.assert_called_once_with(service.node, 's')
        with mock.patch.object(reencrypt, 'pause',
                               return_value='paused') as pause, (
                mock.patch.object(reencrypt, 'as_dict',
                                  lambda found: {'found': found})):
            self.assertEqual({'found': 'paused'},
                             asked.encryption_pause('v'))
        pause.assert_called_once_with(service.node, 'v')

    def test_copy_whose_clone_has_failed_begins_anew(self):
        """What was noted before the clone failed is no measure after it."""
        brake = hydration.Brake()
        status = dm_tables.parse_clone_status(captured.BUSY)
        pauses = [brake.seconds_to_pause(dataclasses.replace(status,
                                                             mode=mode),
                                         reads, now)
                  for mode, reads, now in (
                      ('rw', 0, 0), ('rw', 90, 9), ('ro', 180, 18),
                      ('rw', 270, 22))]
        self.assertEqual([0, 0, 0, 0], pauses)


class RecoveryKeyTest(rotate_case.Case):

    def test_change_that_is_undone_when_the_secret_is_lost(self):
        """Opened by a recovery key, which is not what a node keeps."""
        self.of(self.world)
        self.header.slots['7'] = b'recovery'
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.a.disk.sealed = {self.volume.id: (self.old, b'K')}
        del self.world.secrets.kept[self.old]
        with mock.patch.object(
                crypt.SimCrypt, 'add_key',
                side_effect=encryption_exceptions.WrongKey(volume='v')), (
                    mock.patch.object(crypt.SimCrypt, 'seal')) as seal:
            self.assertRaises(
                encryption_exceptions.WrongKey, rotate.rotate, self.a.node,
                self.volume.id, lambda header: b'recovery')
        seal.assert_not_called()
        self.assertEqual([self.old], [
            token.key for token in self.header.tokens.values()])
        self.assertEqual(self.old, self.key())


class UncommittedTest(uncommitted_case.Case):

    def test_whose_row_is_gone_altogether(self):
        """Cinder has purged its database: nothing says whose it is."""
        volume = self.world.row('a@l', status='creating')
        self.create(volume=volume)
        gone = mock.Mock(wraps=self.a.node.volumes)
        gone.last_known.return_value = None
        with mock.patch.object(uncommitted, 'LOG') as log:
            uncommitted.sweep(dataclasses.replace(
                self.a.node, volumes=gone))
        self.assertEqual([], log.method_calls)
        self.assertIn(volume.name, self.a.lvs)
