# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``: which volumes, whose homes, exit codes."""

import dataclasses
import io
import json
import os
import sys
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.encryption import keys
from cinder_localclone.cmd.encryption import status
from cinder_localclone.core import errors
from cinder_localclone.encryption import operator
from cinder_localclone.service import operator as backend
from tests.helpers.documentation import sample

DRIVER = {sample.ENCRYPTED, sample.REENCRYPTED}


@ddt.ddt
class CommandsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(sys, 'stderr', io.StringIO()))

    def run_json(self, *words):
        printed, code = sample.run([*words, '--format', 'json'])
        return json.loads(printed.partition('\n')[2]), code

    def test_list(self):
        rows, code = self.run_json('encryption', 'list')
        self.assertEqual(0, code)
        self.assertEqual(
            [(sample.ENCRYPTED, 'driver', 512, '0, 1', 'slot 1'),
             (sample.BY_NOVA, 'Nova', 256, '', ''),
             (sample.REENCRYPTED, 'driver', 512, '0, 1', 'no')],
            [(row['Volume'], row['Encrypted by'], row['Key bits'],
              row['Key slots'], row['Recovery key']) for row in rows])
        self.assertIn('is incomplete', rows[2]['Remarks'])

    def test_show(self):
        rows, code = self.run_json('encryption', 'show', sample.BY_NOVA)
        self.assertEqual(0, code)
        self.assertEqual(
            ('Nova', 256), tuple(row['Value'] for row in rows
                                 if row['Field'] in (
                                     'Encrypted by', 'Key bits')))
        rows, _code = self.run_json('encryption', 'show', sample.ENCRYPTED)
        self.assertEqual('aes-xts-plain64', rows[-1]['Fields']['cipher'])

    @ddt.data('list', 'check')
    def test_row_that_is_not_understood(self, name):
        """Its home says so; all others are shown."""
        first, *others = sample.VOLUMES_OF[sample.NODE1]
        with mock.patch.dict(sample.VOLUMES_OF, {sample.NODE1: [
                dataclasses.replace(first, provider_id='lc9:what'), *others]}):
            rows, _code = self.run_json('encryption', name)
        self.assertLessEqual(DRIVER, {row['Volume'] for row in rows})

    def test_re_encryption(self):
        found = {'done': 1 << 30, 'total': 4 << 30, 'status': 'running',
                 'cipher': 'c'}
        self.assertEqual('25.0 % running, to c',
                         status.reencryption(found))
        self.assertEqual('', status.reencryption(
            dict(found, status='none')))

    def test_unknown_keys(self):
        answer = dict(sample._status(sample.ENCRYPTED), unknown_keys=['3'],
                      shares_key=True)
        self.assertEqual(
            ['open', 'shares the secret of its source',
             'unknown key in slot 3'], list(status.remarks(answer)))

    @ddt.data('key rotate', 'header save')
    def test_all_and_one(self, name):
        rows, code = self.run_json('encryption', *name.split(), '--all')
        self.assertEqual((DRIVER, 0), ({row['Volume'] for row in rows}, code))
        rows, _code = self.run_json('encryption', *name.split(),
                                    sample.ENCRYPTED)
        self.assertEqual([sample.ENCRYPTED], [row['Volume'] for row in rows])
        for words in ((), ('--all', sample.ENCRYPTED)):
            self.assertEqual(2, sample.run(
                ['encryption', *name.split(), *words])[1])

    def test_type(self):
        inventory = sample._Backend.db.inventory
        types = zip((sample.NODE1, sample.NODE2), ('t2', 't1'))
        with mock.patch.object(inventory, 'type_id', lambda name: 't1',
                               create=True), mock.patch.dict(
                sample.VOLUMES_OF, {host: [dataclasses.replace(
                    sample.VOLUMES_OF[host][0], volume_type_id=type_id)]
                    for host, type_id in types}):
            rows, _code = self.run_json(
                'encryption', 'key', 'rotate', '--type', 'secret')
        self.assertEqual([sample.REENCRYPTED], [
            row['Volume'] for row in rows])

    def test_one_that_is_refused_does_not_stop_the_others(self):
        def ask(own, host, method, volume_id):
            return (None, 'no') if volume_id == sample.ENCRYPTED else (
                None, '')
        with mock.patch.object(sample._Backend, 'ask', ask):
            rows, code = self.run_json('encryption', 'key', 'rotate', '--all')
        self.assertEqual((['no', 'has a new key'], 1), (
            [row['Result'] for row in rows], code))

    def test_node_that_is_down_is_not_asked(self):
        with mock.patch.object(sample._Backend, 'nodes', lambda own: {
                sample.NODE1: False, sample.NODE2: True}):
            for words in (['list'], ['key', 'rotate', '--all'], ['check']):
                rows, code = self.run_json('encryption', *words)
                self.assertEqual(1, code)
                self.assertIn('its service is down', str(rows[0]))

    def test_plain_volume(self):
        with mock.patch.object(sample._Backend, 'ask') as ask:
            _printed, code = sample.run(
                ['encryption', 'key', 'rotate', 'data'])
        self.assertEqual(1, code)
        ask.assert_not_called()

    def test_check(self):
        rows, code = self.run_json('encryption', 'check', sample.ENCRYPTED)
        self.assertEqual(1, code)
        self.assertEqual({'ok', 'there is none'},
                         {row['Result'] for row in rows})


@ddt.ddt
class HereTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(sys, 'stderr', io.StringIO()))

    @ddt.data('recovery key add', 'recovery key remove', 'header restore')
    def test_only_on_the_home(self, name):
        words = ['encryption', *name.split()]
        _printed, code = sample.run([*words, sample.REENCRYPTED])
        self.assertEqual(1, code)
        _printed, code = sample.run([*words, sample.ENCRYPTED])
        self.assertEqual(0, code)

    @ddt.data(keys.Add, keys.Remove, keys.HeaderRestore)
    def test_only_by_root(self, kind):
        command = kind(mock.MagicMock(), None)
        with mock.patch.object(backend.os, 'geteuid', lambda: 1000):
            error = self.assertRaises(
                errors.CommandError, command.node_at_home, sample.ENCRYPTED)
        self.assertIn('needs root', str(error))

    def test_locks_are_the_services_own(self):
        """Files of root's would lock it out."""
        directory = self.useFixture(fixtures.TempDir()).path
        found = backend.owner_of_locks('file://' + directory)
        self.assertEqual((os.getuid(), os.getgid()), found)
        self.assertIsNone(backend.owner_of_locks('etcd3+http://host'))
        done = []
        with mock.patch.multiple(
                keys.os, seteuid=lambda each: done.append(('u', each)),
                setegid=lambda each: done.append(('g', each))):
            with backend.acting_as((7, 8)):
                done.append('made')
            with backend.acting_as(None), backend.acting_as((0, 0)):
                done.append('made')
        self.assertEqual([('g', 8), ('u', 7), 'made', ('u', 0), ('g', 0),
                          'made'], done)


class BackupTest(testtools.TestCase):

    def test_path(self):
        """The backup with this name in the directory is another one."""
        directory = self.useFixture(fixtures.TempDir()).path
        link = directory + '-link'
        os.symlink(directory, link)
        self.addCleanup(os.unlink, link)
        for file in ('', 'v-1', directory + '/v-1', link + '/v-1'):
            self.assertEqual(os.path.basename(file),
                             keys._backup(directory, file))
        for file in ('/tmp/v-1', './v-1', '../v-1', directory + '/x/v-1'):
            error = self.assertRaises(
                errors.CommandError, keys._backup, directory, file)
            self.assertIn('%s is not in localclone_header_backup_dir (%s). '
                          'Nothing was changed.' % (file, directory),
                          str(error))
        self.assertIn('(not set)', str(self.assertRaises(
            errors.CommandError, keys._backup, None, '/tmp/v-1')))

    def test_nothing_is_restored(self):
        self.useFixture(fixtures.MockPatchObject(sys, 'stderr', io.StringIO()))
        with mock.patch.object(keys.AtHome, 'node_at_home'), (
                mock.patch.object(operator, 'restore_header')) as restore:
            _printed, code = sample.run([
                'encryption', 'header', 'restore', sample.ENCRYPTED,
                '/elsewhere/v-1'])
        self.assertEqual(1, code)
        restore.assert_not_called()


class TypedTest(testtools.TestCase):

    def test_no_key_typed(self):
        """ctrl-D, and an empty line."""
        typed = mock.Mock(spec=sys.stdin)
        typed.isatty.return_value = True
        self.useFixture(fixtures.MockPatchObject(keys.sys, 'stdin', typed))
        for how in ({'side_effect': EOFError}, {'return_value': ''}):
            with mock.patch.object(keys.getpass, 'getpass', autospec=True,
                                   **how):
                error = self.assertRaises(errors.CommandError, keys._read, '-')
            self.assertEqual('There is no recovery key in standard input.',
                             str(error))

    def test_terminal_does_not_show_a_recovery_key(self):
        typed = mock.Mock(spec=sys.stdin)
        typed.isatty.return_value = True
        self.useFixture(fixtures.MockPatchObject(
            keys.sys, 'stdin', typed))
        with mock.patch.object(keys.getpass, 'getpass', autospec=True,
                               return_value='unseen'):
            self.assertEqual('unseen', keys._read('-'))
        typed.read.assert_not_called()
