# SPDX-License-Identifier: Apache-2.0
"""What a report has in it, and where that comes from."""

import datetime
import os
from unittest import mock

import fixtures
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd.report import parts
from cinder_localclone.cmd.report import redaction
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.service import options
from cinder_localclone.storage import prerequisites


class PartsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.sources = parts.Sources([], '', 20, 6)
        self.useFixture(fixtures.MockPatchObject(
            parts, 'USUAL', (os.path.join(self.directory, 'etc'),)))

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def test_known_options(self):
        known = parts.known_options()
        for name, secret in (
                ('transport_url', True), ('connection', True),
                ('chap_password', True), ('enabled_backends', False),
                ('volume_driver', False), ('target_ip_address', False),
                ('rpc_response_timeout', False)):
            self.assertEqual((name, secret), (name, known.get(name)))
        for option in options.localclone_opts:
            self.assertEqual(bool(option.secret), known[option.dest])

    def test_option_of_two_sections(self):
        """One that is a secret somewhere is never shown."""
        a, b = mock.Mock(dest='x', secret=False, deprecated_opts=[]), (
            mock.Mock(dest='x', secret=True, deprecated_opts=[]))
        for found in ([a, b], [b, a]):
            with mock.patch.object(parts, '_definitions', lambda: found):
                self.assertEqual({'x': True}, parts.known_options())

    def test_sub_commands_are_real(self):
        self.assertLessEqual(set(parts.COMMANDS), set(main.COMMANDS))

    def test_keys_are_never_asked_for(self):
        for argv in parts.OUTPUTS.values():
            self.assertNotIn('--showkeys', argv)
        self.assertEqual(('dmsetup', 'table'),
                         parts.OUTPUTS['device-mapper/table.txt'])

    def test_command(self):
        self.assertEqual('out\nerr\n', self.sources.command(
            'sh', '-c', 'echo out; echo err >&2'))
        error = self.assertRaises(
            errors.CommandError, self.sources.command,
            'sh', '-c', 'echo a; echo b >&2; exit 21')
        self.assertEqual('exit code 21: a b', str(error))
        self.assertIn('not found', str(self.assertRaises(
            errors.CommandError, self.sources.command, '/none/such')))

    def test_command_that_hangs(self):
        sources = parts.Sources([], '', 0.2, 6)
        with mock.patch.object(
                prerequisites.process, 'run', autospec=True,
                side_effect=exceptions.CommandTimeout(
                    command='sleep', seconds=0.2)) as run:
            error = self.assertRaises(
                errors.CommandError, sources.command, 'sleep', '30')
        self.assertEqual('"sleep 30" did not end within 0.2 s.', str(error))
        self.assertEqual(0.2, run.call_args.kwargs['timeout'])

    def test_command_that_prints_too_much(self):
        """Only the end is kept, from the beginning of a line."""
        self.useFixture(fixtures.MockPatchObject(parts, 'LOG_BYTES', 100))
        text = self.sources.command('seq', '1', '100000')
        self.assertLess(len(text), 100)
        self.assertEqual(
            [str(each) for each in range(int(text.split()[0]), 100001)],
            text.splitlines())
        self.assertEqual(6, len(text.splitlines()[0]) + 1)
        self.assertEqual('a\n', self.sources.command('echo', 'a'))

    def test_sub_command(self):
        sources = parts.Sources(['/etc/x.conf'], 'lc', 20, 6)
        with mock.patch.object(parts.Sources, 'run', autospec=True,
                               return_value=('[]\n', 1)) as run:
            self.assertEqual('[]\n', parts._own(sources, 'node list'))
        self.assertIn('-P', run.call_args.args)  # not of the directory
        self.assertEqual(
            ['--config-file', '/etc/x.conf', '--backend', 'lc', '--json',
             'node', 'list'], list(run.call_args.args[7:]))
        with mock.patch.object(parts.Sources, 'run', autospec=True,
                               return_value=('no\n such  table\n', 1)):
            self.assertEqual('no such table', str(self.assertRaises(
                errors.CommandError, parts._own, sources, 'node list')))

    def test_sub_command_with_a_warning_of_a_library(self):
        said = 'warning: [x]\n[\n  {"a": "[b]"}\n]\nmore\n'
        with mock.patch.object(parts.Sources, 'run', autospec=True,
                               return_value=(said, 0)):
            self.assertEqual('[\n  {"a": "[b]"}\n]\n',
                             parts._own(self.sources, 'node list'))
        with mock.patch.object(parts.Sources, 'run', autospec=True,
                               return_value=('no ' * 9999, 1)):
            error = self.assertRaises(errors.CommandError, parts._own,
                                      self.sources, 'node list')
        self.assertLess(len(str(error)), 600)

    def test_files_with_secrets(self):
        """Also of a file that the service reads, and the command does not."""
        for name in 'etc/cinder.conf.d', 'etc/conf.d':
            os.makedirs(os.path.join(self.directory, name))
        own, others = self.file('own.conf', ''), [
            self.file('etc/' + name, '') for name in (
                'cinder-volume.conf', 'cinder.conf.d/a.conf',
                'conf.d/b.conf')]
        self.file('etc/policy.yaml', '')
        self.assertEqual([own, *others], parts.files_with_secrets([own]))
        self.assertEqual([own, *others],
                         parts.files_with_secrets([own, others[0]]))

    def test_configuration_that_can_not_be_read(self):
        """No log without the secrets to remove from it."""
        with mock.patch.object(os, 'listdir', side_effect=PermissionError):
            hidden, = parts.files_with_secrets([])
        self.assertEqual(self.directory + '/etc', hidden)
        os.mkfifo(os.path.join(self.directory, 'pipe'))
        found = parts.options([self.file('a', 'b = c'), '/none/such',
                               self.directory, self.directory + '/pipe'])
        self.assertEqual(
            (['c'], [self.directory, self.directory + '/pipe']),
            ([each.value for each in found[0]], found[1]))
        with mock.patch.object(os, 'open', side_effect=PermissionError):
            self.assertEqual(([], ['/a']), parts.options(['/a']))
        path = self.file('volume.log', '2999-01-01 00:00:00 x\n')
        for read in (parts._log, parts._journal):
            error = self.assertRaises(
                errors.CommandError, read, parts.Sources(
                    [], '', 20, 6, path, ['/etc/x']))
            self.assertIn('because /etc/x can\'t be read', str(error))

    def test_configuration_is_read_in_the_encoding_of_logs(self):
        path = self.file('x', '')
        with open(path, 'wb') as file:
            file.write('a = größe'.encode())
        with mock.patch('locale.getpreferredencoding',
                        return_value='ascii'), mock.patch(
                'builtins.open', side_effect=AssertionError):
            self.assertEqual('größe', parts.options([path])[0][0].value)

    def test_versions(self):
        text = parts._versions(self.sources)
        for begin in ('cinder-localclone ', 'Python ', 'kernel ', 'cinder ',
                      'os-brick '):
            self.assertIn('\n' + begin, '\n' + text)
        with mock.patch.object(parts.Sources, 'run', autospec=True,
                               return_value=('sh: lvm: not found', 127)):
            self.assertIn('$ lvm version\nexit code 127: sh: lvm: not found',
                          parts._versions(self.sources))

    def test_configuration(self):
        path = self.file('cinder.conf', '''
[DEFAULT]
enabled_backends = lc
[lc]
volume_group = vg
[other]
volume_group = theirs
''')
        known = {'enabled_backends': False, 'volume_group': False}
        self.assertEqual(
            '[DEFAULT]\nenabled_backends = lc\n[lc]\nvolume_group = vg\n',
            parts._configuration(parts.Sources([path], 'lc', 1, 1), known))
        self.assertRaises(errors.CommandError, parts._configuration,
                          self.sources, known)
        self.assertRaises(FileNotFoundError, parts._configuration,
                          parts.Sources(['/none'], 'lc', 1, 1), known)

    def test_last_hours(self):
        text = '\n'.join((
            '2026-01-02 09:59:59.1 old', ' its traceback',
            '2026-01-02 10:00:00.0 new', ' its traceback',
            '2026-01-02T10:00:01 newer'))
        self.assertEqual(
            text[text.index('2026-01-02 10'):] + '\n', parts.since(
                text, datetime.datetime(2026, 1, 2, 10, 0, 0, 5)))

    def test_log(self):
        now = datetime.datetime.now()
        path = self.file('volume.log', ''.join(
            '%s line %d\n' % (now - datetime.timedelta(hours=hours), hours)
            for hours in (9, 7, 5, 1)))
        text = parts._log(parts.Sources([], '', 1, 6, path))
        self.assertEqual(['5', '1'], [
            line[-1] for line in text.splitlines()])
        names = [each.name for each in parts.parts(
            parts.Sources([], '', 1, 6, path), {})]
        self.assertEqual('log/volume.log', names[-1])
        self.assertEqual(len(names), len(set(names)))

    def test_log_that_is_no_file(self):
        """Cinder's user can put a link to a file of root in its place."""
        path = os.path.join(self.directory, 'volume.log')
        secret = self.file('shadow', '2999-01-01 00:00:00 x\n')
        sources = parts.Sources([], '', 1, 6, path)
        for make, said in (
                (lambda: os.symlink(secret, path), 'is a symbolic link'),
                (lambda: os.mkfifo(path), 'is no regular file'),
                (lambda: os.mkdir(path), 'is no regular file')):
            make()
            error = self.assertRaises(errors.CommandError, parts._log, sources)
            self.assertEqual('%s %s.' % (path, said), str(error))
            if not os.path.isdir(path):
                os.unlink(path)

    def test_end_of_a_long_log(self):
        self.useFixture(fixtures.MockPatchObject(parts, 'LOG_BYTES', 100))
        path = self.file('volume.log', ''.join(
            '2999-01-01 00:00:00 line %d\n' % each for each in range(99)))
        text = parts._log(parts.Sources([], '', 1, 6, path))
        self.assertEqual(['96', '97', '98'], [
            line.split()[-1] for line in text.splitlines()])

    def test_log_file(self):
        def option(name, value):
            return redaction.Option('DEFAULT', name, value)
        self.assertEqual('/var/log/x/y.log', parts.log_file(
            [option('log-dir', '/var/log/x'), option('log_file', 'y.log')]))
        self.assertEqual('', parts.log_file(
            [option('log_dir', self.directory)]))
        path = self.file('cinder-volume.log', '')
        self.assertEqual(path, parts.log_file(
            [option('log_dir', self.directory)]))

    def test_journal_is_of_the_services(self):
        with mock.patch.object(parts.Sources, 'command', autospec=True,
                               return_value='a\ndevice-mapper: x\nb\n'
                               ) as command:
            parts._journal(self.sources)
            self.assertEqual('device-mapper: x\n',
                             parts._kernel(self.sources))
        argv = command.call_args_list[0].args[1:]
        self.assertIn('-21600s', argv)
        self.assertEqual(len(parts.UNITS), argv.count('--unit'))
