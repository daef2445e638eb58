# SPDX-License-Identifier: Apache-2.0
"""What has outlived its volume is found; nothing else is removed."""

import io
from unittest import mock

from castellan.common.objects import passphrase
from cinder.tests.unit import utils
import fixtures
import testtools

from cinder_localclone.cmd.encryption import leftovers as encryption_care
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.db import inventory
from cinder_localclone.encryption import operator
from cinder_localclone.service import key_manager
from cinder_localclone.service import operator as backends
from tests.helpers import records_case
from tests.helpers import specs
from tests.world import fake_key_manager

GONE, HERE, FAR, OTHER = (
    '%s-cd3d-4029-88f4-3c64da986803' % (each * 8) for each in 'abcd')
SECRET, BACKUP = operator.SECRET, operator.BACKUP


class RecordsTest(records_case.Base):

    def test_of_which_volumes_there_are_rows(self):
        known = self.inventory
        here, gone = (utils.create_volume(self.context, host=host)
                      for host in ('a@l#l', 'a@other#l'))
        gone.destroy()
        ids = {here.id, gone.id, FAR}
        self.assertEqual(({here.id}, {gone.id}), known.volumes_known(ids))
        with mock.patch.object(inventory, '_AT_ONCE', 1):
            self.assertEqual(({here.id}, {gone.id}),
                             known.volumes_known(ids))
        self.assertEqual((set(), set()), known.volumes_known(set()))

    def test_secrets_of_whatever_backend(self):
        for number, host in enumerate(('a@l#l', 'a@other#l', None)):
            volume = utils.create_volume(self.context, host=host)
            self.secrets.record(volume.id, volume_types.Recorded(
                16 << 20, 'k%d' % number))
        record = utils.create_volume(
            self.context, host='a@l#l', migration_status='target:' + FAR)
        self.secrets.record(
            record.id, volume_types.Recorded(16 << 20, 'k3'))
        utils.create_snapshot(
            self.context, volume.id,
            provider_id=str(volume_types.Recorded(16 << 20, 'k4')))
        self.assertEqual({'k0', 'k1', 'k2', 'k3', 'k4'},
                         self.inventory.secrets_of_all())


class KeysTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.manager = fake_key_manager.Manager()
        self.useFixture(fixtures.MockPatchObject(
            key_manager.key_manager, 'API', return_value=self.manager))
        self.useFixture(fixtures.MockPatchObject(
            key_manager.castellan_utils, 'credential_factory'))
        self.keys = key_manager.Keys(key_manager.KEY_MANAGER)

    def test_only_what_is_named_after_volumes(self):
        mine = sorted((self.keys.create(each), each) for each in (GONE, HERE))
        self.manager.kept['nameless'] = passphrase.Passphrase(b'p')
        self.manager.kept['other'] = passphrase.Passphrase(
            b'p', name='backup of ' + names.secret(FAR))
        self.assertEqual(mine, sorted(self.keys.of_volumes()))

    def test_all_pages_of_barbicans(self):
        """It lists ten unless it is told, and a hundred at most."""
        kept = [mock.Mock(secret_ref='http://b/v1/secrets/k%d' % number)
                for number in range(250)]
        for each in kept:
            each.name = names.secret(GONE)
        client = mock.Mock()
        client.secrets.list.side_effect = lambda limit, offset: (
            kept[offset:offset + limit])
        self.manager._get_barbican_client = lambda whose: client
        self.assertEqual([('k%d' % number, GONE) for number in range(250)],
                         self.keys.of_volumes())
        self.assertEqual(3, client.secrets.list.call_count)
        kept *= 20
        self.assertEqual(2000, len(self.keys.of_volumes()))


class ShredTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.keys = mock.create_autospec(key_manager.Keys, instance=True)
        self.crypt = specs.port('crypt')
        self.owners = mock.create_autospec(
            inventory.Inventory, instance=True)
        self.keys.of_volumes.return_value = [
            ('k-gone', GONE), ('k-here', HERE), ('k-far', FAR),
            ('k-snapshot', GONE)]
        self.crypt.backed_up_volumes.return_value = [GONE, HERE]
        self.owners.volumes_known.return_value = {HERE}, {GONE}
        self.owners.secrets_of_all.return_value = {'k-here', 'k-snapshot'}
        self.keys.consumers.return_value = []
        self.app = mock.Mock(exit_code=0, stderr=io.StringIO())
        self.app.options.json = False
        backend = self.app.backend.return_value
        backend.keys.return_value = self.keys
        backend.crypt.return_value = self.crypt
        backend.db.inventory = self.owners
        self.useFixture(fixtures.MockPatchObject(backends, 'act_as_root'))
        self.stdin = self.useFixture(fixtures.MockPatchObject(
            encryption_care.sys, 'stdin')).mock
        self.stdin.isatty.return_value = False

    def run_command(self, *words):
        command = encryption_care.Remove(self.app, None)
        _columns, rows = command.take_action(
            command.get_parser('x').parse_args(words))
        return {(what, volume): state for what, volume, _name, state in rows}

    def removed(self):
        return ([call.args[0] for call in self.keys.remove.mock_calls],
                [call.args[0] for call in self.crypt.drop_backups.mock_calls])

    def test_it_only_tells(self):
        found = self.run_command()
        self.assertEqual({
            (SECRET, GONE): 'would be removed',
            (BACKUP, GONE): 'would be removed', (SECRET, FAR):
                'stays: its volume is unknown; see --unknown'}, found)
        self.assertEqual((([], []), 1), (self.removed(), self.app.exit_code))

    def test_yes(self):
        found = self.run_command('--yes')
        self.assertEqual(['removed', 'stays: its volume is unknown; see '
                          '--unknown', 'removed'], list(found.values()))
        self.assertEqual((['k-gone'], [GONE]), self.removed())
        # Barbican keeps what somebody uses.
        self.assertEqual(
            [mock.call.of_volumes(), mock.call.consumers('k-gone'),
             mock.call.release('k-gone', 'volumes', GONE),
             mock.call.remove('k-gone', GONE)], self.keys.mock_calls)
        self.assertEqual(0, self.app.exit_code)

    def test_consumers(self):
        """A volume that exists, or is unknown, stays a consumer."""
        self.keys.consumers.return_value = [
            ('volumes', OTHER), ('volumes', HERE), ('volumes', FAR),
            ('snapshots', 's')]
        self.owners.volumes_known.side_effect = lambda ids: (
            ids & {HERE}, ids & {GONE, OTHER})
        self.run_command('--yes')
        self.assertEqual(
            [mock.call('k-gone', 'volumes', GONE),
             mock.call('k-gone', 'volumes', OTHER)],
            self.keys.release.mock_calls)

    def test_unknown_consumer_too(self):
        """"cinder-manage db purge" has removed the row of the consumer."""
        self.keys.consumers.return_value = [
            ('volumes', OTHER), ('volumes', HERE), ('snapshots', 's')]
        self.owners.volumes_known.side_effect = lambda ids: (
            ids & {HERE}, ids & {GONE})
        self.run_command('--yes', '--unknown')
        self.assertEqual({GONE, OTHER, FAR}, {
            call.args[2] for call in self.keys.release.mock_calls})

    def test_unknown_too(self):
        self.run_command('--yes', '--unknown')
        self.assertEqual((['k-gone', 'k-far'], [GONE]), self.removed())

    def test_it_asks(self):
        self.stdin.isatty.return_value = True
        for answer, removed in (('no\n', False), ('\n', False), ('', False),
                                ('yes\n', True)):
            self.stdin.readline.return_value = answer
            self.run_command()
            self.assertEqual(removed, self.keys.remove.called, answer)
            self.assertEqual(int(not removed), self.app.exit_code)
        self.assertIn('secret of volume %s k-gone' % GONE,
                      self.app.stderr.getvalue())
        self.assertNotIn(FAR, self.app.stderr.getvalue())

    def test_json_asks_nobody(self):
        self.stdin.isatty.return_value = True
        self.run_command('-f', 'json')
        self.stdin.readline.assert_not_called()
        self.assertEqual(([], []), self.removed())

    def test_name_of_an_enemy_before_the_question(self):
        """Any member of the project can name a secret."""
        self.stdin.isatty.return_value = True
        self.stdin.readline.return_value = 'no\n'
        self.keys.of_volumes.return_value = [('k\x1b[2J\nsecret of x', GONE)]
        self.run_command()
        self.assertIn('k?[2J secret of x\n', self.app.stderr.getvalue())

    def test_one_that_fails_stops_no_other(self):
        self.keys.remove.side_effect = encryption_exceptions.KeyRefused(
            key='k-gone', reason='it has consumers')
        found = self.run_command('--yes')
        self.assertIn('it has consumers', found[SECRET, GONE])
        self.assertEqual('removed', found[BACKUP, GONE])
        self.assertEqual(1, self.app.exit_code)

    def test_nothing_is_left(self):
        self.keys.of_volumes.return_value = [('k-here', HERE)]
        self.crypt.backed_up_volumes.return_value = [HERE]
        self.assertEqual({}, self.run_command())
        self.assertEqual(0, self.app.exit_code)

    def test_the_database_is_asked_last(self):
        """What a volume needs it has a row for before."""
        order = mock.Mock()
        for name, each in (('list', self.keys.of_volumes),
                           ('rows', self.owners.volumes_known),
                           ('used', self.owners.secrets_of_all)):
            order.attach_mock(each, name)
        self.run_command()
        self.assertEqual(['list', 'rows', 'used'],
                         [call[0] for call in order.mock_calls])
