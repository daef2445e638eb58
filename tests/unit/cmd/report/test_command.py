# SPDX-License-Identifier: Apache-2.0
"""The archive of a report: whole, private, and without a secret."""

import errno
import os
import stat
import tarfile
from unittest import mock

import fixtures
from sqlalchemy import exc

from cinder_localclone.cmd.report import command
from cinder_localclone.cmd.report import parts
from cinder_localclone.cmd.report import redaction
from tests.helpers.command_case import CommandCase

#: Secrets that stand in the configuration, by where they are.
PLANTED = ('BusPassword', 'Bus2Password', 'DbP@ss/word', 'SanPassword',
           'ChapPassword', 'KeystonePassword', 'FixedKey00', 'OtherBackend')
#: Secrets that no configuration has.
LOGGED = ('ChapOfExport', 'PasswordOfDict', '00ff00ff00ff',
          '-'.join(['Q2JW'] * 13))
CONFIGURATION = '''
[DEFAULT]
enabled_backends = localclone
log_file = %s/volume.log
transport_url = rabbit://c:BusPassword@h1,c:Bus2Password@h2:5672/
san_password = SanPassword
# a comment with SanPassword
[database]
connection = mysql+pymysql://c:DbP@ss/word@h/cinder
[keystone_authtoken]
password = KeystonePassword
[key_manager]
fixed_key = FixedKey00
[localclone]
volume_driver = cinder_localclone.driver.LocalCloneDriver
volume_group = group-of-volumes
chap_password = ChapPassword
[other]
san_password = OtherBackend
'''


class ReportTest(CommandCase):

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.conf = self.file('cinder.conf', CONFIGURATION % self.directory)
        self.output = os.path.join(self.directory, 'report.tar.gz')
        self.answers = {}
        self.usual = os.path.join(self.directory, 'etc')
        os.mkdir(self.usual)
        self.useFixture(fixtures.MockPatchObject(
            parts, 'USUAL', (self.usual,)))
        self.useFixture(fixtures.MockPatchObject(
            parts.Sources, 'run', autospec=True, side_effect=self.run_part))

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def run_part(self, _sources, *argv):
        for words, answer in self.answers.items():
            if words in ' '.join(argv):
                if isinstance(answer, Exception):
                    raise answer
                return answer, 0
        if '--json' in argv:
            return '[{"Details": "%s"}]' % ' '.join(PLANTED), 1
        return '%s said %s CHAP u ChapOfExport\n' % (argv[0], '\n'.join(
            PLANTED)), 0

    def report(self, *words, code=0):
        found, out, err = self.run_command(
            '--config-file', self.conf, 'report', '--output', self.output,
            *words)
        self.assertEqual(code, found, err)
        return out, err

    def archived(self):
        """Return the texts of the archive, by their names."""
        with tarfile.open(self.output) as archive:
            self.assertEqual({0o600}, {
                each.mode for each in archive.getmembers()})
            self.directories = {each.name.partition('/')[0]
                                for each in archive.getmembers()}
            return {each.name.partition('/')[2]: archive.extractfile(
                each).read().decode() for each in archive.getmembers()}

    def test_no_secret_is_in_it(self):
        self.answers['dmsetup table'] = (
            'v: 0 8 crypt aes 00ff00ff00ff 0 253:1 0\n')
        self.file('volume.log', '2999-01-01 00:00:00 %s %s {\'auth_password\':'
                  ' \'PasswordOfDict\'} mysql://c:DbP@ss/word@h\n' % (
                      PLANTED, LOGGED[-1]))
        out, err = self.report()
        found = self.archived()
        self.assertIn('volume.log', '\n'.join(found))
        for secret in (*PLANTED, *LOGGED):
            for name, text in found.items():
                self.assertNotIn(secret, text, name)
            self.assertNotIn(secret, out + err)
        with open(self.conf, 'rb') as conf, open(self.output, 'rb') as file:
            self.assertIn(b'BusPassword', conf.read())
            self.assertNotIn(b'BusPassword', file.read())
        self.assertIn('volume_group = group-of-volumes',
                      found['cinder.conf'])
        self.assertIn('***@h2:5672/', found['cinder.conf'])
        self.assertNotIn('[other]', found['cinder.conf'])
        self.assertIn('253:1', found['device-mapper/table.txt'])

    def test_secrets_of_other_files(self):
        """They are removed from the log, though no part shows the files."""
        self.file('etc/cinder-volume.conf',
                  '[nova]\npassword = "NovaPassword"\n')
        self.answers['journalctl'] = 'NovaPassword'
        self.report()
        for name, text in self.archived().items():
            self.assertNotIn('NovaPassword', text, name)

    def test_secrets_of_a_broken_configuration(self):
        """The reason for the report may be a fault in cinder.conf itself."""
        path = self.file('etc/cinder.conf',
                         CONFIGURATION % self.directory + '[broken\n')
        self.file('volume.log', '2999-01-01 00:00:00 %s\n' % (PLANTED,))
        self.useFixture(fixtures.MockPatchObject(
            command.backends, 'USUAL', path))
        self.useFixture(fixtures.MockPatchObject(
            command.backends, 'Settings', side_effect=ValueError))
        code, _out, err = self.run_command('report', '--output', self.output)
        self.assertEqual(0, code, err)
        found = self.archived()
        self.assertIn('log/volume.log', found)
        self.assertIn('enabled_backends = localclone', found['cinder.conf'])
        for secret in PLANTED:
            for name, text in found.items():
                self.assertNotIn(secret, text, name)

    def test_secrets_of_a_configuration_directory(self):
        os.mkdir(self.directory + '/conf.d')
        self.file('conf.d/a.conf', '[nova]\npassword = InDirectory\n')
        settings = mock.Mock()
        settings.conf.config_file = [self.conf]
        settings.conf.config_dir = [self.directory + '/conf.d']
        self.useFixture(fixtures.MockPatchObject(
            command.backends, 'Settings', return_value=settings))
        self.answers['journalctl'] = 'InDirectory'
        self.report()
        found = self.archived()
        self.assertNotIn('InDirectory', found['log/journal.txt'])
        self.assertIn('[nova]\npassword = ***', found['cinder.conf'])

    def test_no_log_without_the_secrets_to_remove(self):
        os.mkfifo(os.path.join(self.usual, 'a.conf'))
        self.file('volume.log', '2999-01-01 00:00:00 a\n')
        self.report()
        found = self.archived()
        for name in ('log/journal.txt', 'log/volume.log'):
            self.assertNotIn(name, found)
            self.assertIn(name + ', 0 bytes: failed: The secrets in this log',
                          found['MANIFEST'])

    def test_disk_that_is_full(self):
        for number in (errno.ENOSPC, errno.EDQUOT):
            with mock.patch.object(command, '_add', side_effect=OSError(
                    number, os.strerror(number))):
                _out, err = self.report(code=1)
            self.assertEqual(
                '%s can\'t be written: %s. Nothing was kept. Pass --output '
                'with a path on another disk.\n' % (
                    self.output, os.strerror(number)), err)
            self.assertFalse(os.path.exists(self.output))

    def test_parts_and_manifest(self):
        out, err = self.report()
        found = self.archived()
        wanted = {each.name for each in parts.parts(
            parts.Sources([], '', 1, 1), {})}
        # The log file does not exist.
        self.assertEqual(wanted | {'MANIFEST'}, set(found))
        self.assertEqual(1, len(self.directories))
        self.assertIn('Written: ' + self.output, err)
        for name in wanted:
            self.assertIn('\n%s, %d bytes: ok' % (
                name, len(found[name].encode())), found['MANIFEST'])
            self.assertIn(name, out)
        self.assertIn('log/volume.log, 0 bytes: failed: ',
                      found['MANIFEST'])

    def test_part_that_fails_does_not_stop_the_rest(self):
        self.answers['lvs'] = RuntimeError('hangs with SanPassword')
        self.report()
        found = self.archived()
        self.assertNotIn('lvm/lvs.txt', found)
        self.assertIn('lvm/lvs.txt, 0 bytes: failed: hangs with ***',
                      found['MANIFEST'])
        self.assertIn('lvm/vgs.txt', found)
        self.assertIn('log/journal.txt', found)

    def test_only_its_owner_reads_it(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.report()
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.output).st_mode))

    def test_file_that_is_there_is_kept(self):
        self.file('report.tar.gz', 'kept')
        _out, err = self.report(code=1)
        self.assertIn('File exists. Pass --output', err)
        with open(self.output) as file:
            self.assertEqual('kept', file.read())
        os.unlink(self.output)
        os.symlink(self.conf, self.output)
        self.report(code=1)
        with open(self.conf) as file:
            self.assertIn('[DEFAULT]', file.read())

    def test_nothing_is_left_of_one_that_was_interrupted(self):
        with mock.patch.object(command, 'manifest',
                               side_effect=KeyboardInterrupt):
            self.report(code=130)
        self.assertFalse(os.path.exists(self.output))

    def test_usual_name(self):
        self.useFixture(fixtures.MockPatch('os.getcwd',
                                           return_value=self.directory))
        with mock.patch('socket.gethostname', return_value='a/b.c'):
            code, _out, err = self.run_command(
                '--config-file', self.conf, 'report')
        self.assertEqual(0, code)
        self.assertRegex(err, 'localclone-report-a_b.c-[0-9T]+.tar.gz')
        name, = [each for each in os.listdir(self.directory)
                 if each.endswith('.gz')]
        self.assertTrue(name.startswith('localclone-report-a_b.c-'))

    def test_without_a_configuration(self):
        self.conf = os.path.join(self.directory, 'none')
        self.report()
        found = self.archived()
        self.assertNotIn('cinder.conf', found)
        self.assertIn('cinder.conf, 0 bytes: failed: ', found['MANIFEST'])
        self.assertIn('versions.txt', found)

    def test_limits(self):
        with mock.patch.object(parts, 'parts', return_value=[]) as made:
            self.report('--hours', '24', '--seconds', '5')
        sources = made.call_args.args[0]
        self.assertEqual((5, 24, [self.conf], 'localclone'), (
            sources.seconds, sources.hours, sources.files, sources.backend))

    def test_part_that_fails(self):
        file = self.useFixture(fixtures.TempDir()).join('x')
        with open(file, 'wb') as opened:
            rows = command.write(opened, 'd', [
                parts.Part('a', mock.Mock(side_effect=exc.ArgumentError(
                    'Could not parse SQLAlchemy URL from string '
                    '\'c:Secret@db/x\'')))], redaction.Redaction())
        self.assertIn('Correct [database] connection', rows[0][2])
        self.assertNotIn('Secret', rows[0][2])

    def test_texts_of_any_encoding(self):
        file = self.useFixture(fixtures.TempDir()).join('x')
        with open(file, 'wb') as opened:
            rows = command.write(opened, 'd', [
                parts.Part('a', lambda: 'ö \udcc3')], redaction.Redaction())
        self.assertIn('ok', rows[0][2])
