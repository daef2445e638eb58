# SPDX-License-Identifier: Apache-2.0
"""Closed streams, full disks and control characters of the terminal."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import textwrap

import ddt
import fixtures
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd.move import listing
from cinder_localclone.cmd import reencryption
from cinder_localclone.cmd import terminal
from tests.helpers.command_case import CommandCase
from tests.helpers.command_case import ListingCase
from tests.helpers import driver_case
from tests.helpers import inventory_rows
from tests.helpers import tree

#: Text of an enemy: it clears the screen, sets its title, and adds a line.
EVIL = 'a\x1b[2J\x1b]0;t\x07\x9b1m\u202e[/b]\nVolume x was removed'
SHOWN = 'a?[2J?]0;t??1m?[/b] Volume x was removed'


@ddt.ddt
class PrintableTest(testtools.TestCase):

    @ddt.data(('größe €', 'größe €'), (EVIL, SHOWN), ('', ''),
              ('a\tb\r\nc', 'a b  c'), ('a\x00b\x7f', 'a?b?'))
    @ddt.unpack
    def test_text(self, text, shown):
        self.assertEqual(shown, terminal.printable(text))

    def test_lines_of_a_log(self):
        record = logging.LogRecord('n', 40, 'p', 1, 'a\nb\x1b[2J', (), None)
        self.assertEqual('a\nb?[2J', terminal.Formatter('%(message)s').format(
            record))


class EnemyTest(ListingCase):
    """No text of an enemy changes the terminal."""

    def assert_plain(self, *words):
        for form in ('table', 'csv', 'value'):
            _code, out, err = self.run_command(*words, '-f', form)
            self.assertIn('Volume x was removed', out + err, (form, err))
            for each in '\x1b\x07\x9b\u202e':
                self.assertNotIn(each, out + err, form)
            self.assertFalse([line for line in (out + err).splitlines()
                              if line.startswith('Volume x')], form)

    def test_name_and_host_of_volumes(self):
        self.inventory.all_moves.return_value = [], 0
        for more in ({'display_name': EVIL}, {'hosts': (EVIL,)}):
            self.inventory.all_volumes.return_value = [
                inventory_rows.row(inventory_rows.V1, 'a@l', **more)]
            self.assert_plain('volume', 'list')

    def test_host_of_an_attachment(self):
        """A member of the project chooses it, in the connector."""
        self.backend.volume.return_value = driver_case.volume(
            host='a@l#p'), None
        volume = self.backend.volume.return_value[0]
        volume.is_misplaced = False
        attachment = driver_case.types.SimpleNamespace(
            connector={'host': EVIL}, attach_status='attached',
            instance_uuid='i')
        volume.volume_attachment = [attachment]
        self.backend.nodes.return_value = {}
        self.backend.db.moves.pending_cleanups.return_value = []
        self.backend.db.snapshots.snapshots_of.return_value = []
        self.assert_plain('volume', 'show', inventory_rows.V1)

    def test_answer_of_a_node(self):
        self.backend.ask.return_value = None, EVIL
        self.assert_plain('node', 'list')

    def test_error(self):
        self.backend.db.inventory.all_moves.side_effect = RuntimeError(EVIL)
        self.assertIn('a?[2J', self.run_command('node', 'list')[2])
        self.assertNotIn('\x1b', self.run_command('node', 'list')[2])

    def test_json_has_the_name_itself(self):
        self.inventory.all_moves.return_value = [], 0
        self.inventory.all_volumes.return_value = [inventory_rows.row(
            inventory_rows.V1, 'a@l', display_name=EVIL)]
        row, = self.listed('volume', 'list')
        self.assertEqual(EVIL, row['Name'])
        self.assertNotIn('\x1b', self.run_command('volume', 'list',
                                                  '--json')[1])

    def test_progress_bars(self):
        """Nor does it end the command: "[/b]" is markup of rich."""
        with contextlib.redirect_stderr(io.StringIO()) as err:
            with listing.Bars() as bars:
                bars.say(EVIL)
                bars.show([dict(dict.fromkeys(listing.COLUMNS), **{
                    'Volume': 'v', 'From': EVIL, 'To': 'b', 'Phase': 'p',
                    'Remark': EVIL})], lambda _volume_id: False)
            with reencryption.Bar('v') as bar:
                bar.say(EVIL)
        self.assertIn('[/b]', err.getvalue())
        for each in '\x07\x9b\u202e':
            self.assertNotIn(each, err.getvalue())
        self.assertNotIn('\x1b[2J', err.getvalue())


class AbbreviationTest(CommandCase):

    def test_nothing_is_confirmed_by_a_part_of_a_word(self):
        for words in (['node', 'forget', 'x@l', '--ye'],
                      ['encryption', 'leftover', 'remove', '--y'],
                      ['volume', 'repair', '--without', 'v'],
                      ['move', 'list', '--js']):
            code, _out, err = self.run_command(*words)
            self.assertEqual(2, code, words)
            self.assertIn('unrecognized arguments: ' + words[
                -1 if words[-1] != 'v' else -2], err)


@ddt.ddt
class NumberTest(CommandCase):

    @ddt.data('report --hours nan', 'report --hours -1', 'report --hours 1e9',
              'report --seconds 0', 'report --seconds inf',
              'metrics --seconds -1', 'metrics --seconds nan',
              'metrics --doctor-interval inf', 'move list --seconds -1',
              'node drain a@l --at-once 0', 'node drain a@l --at-once 1.5',
              'node drain a@l --seconds x', 'node unlock --seconds -1',
              'reencryption start v --zone 65',
              'reencryption start v --key-size -1')
    def test_out_of_its_limits(self, line):
        *words, value = line.split()
        code, out, err = self.run_command(*words, value)
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, 'argument %s: %s is not a( whole)? number from '
                         r'\d+ to \d+' % (words[-1], value))

    def test_within(self):
        from cinder_localclone.cmd import base
        self.assertEqual((0, 2.5, 7), (
            base.number(0, 9)('0'), base.number(0, 2.5)('2.5'),
            base.number(0, 9, int)('7')))


class ClosedTest(testtools.TestCase):
    """The command as a process, with streams that take no output."""

    def run_command(self, end, text='[]', words='doctor', encoding='utf-8'):
        code = textwrap.dedent('''
            from cinder_localclone.cmd import main
            import os, sys
            class Command(main.LocalClone):
                def run_subcommand(self, argv):
                    self.stdout.write(%r + '\\n')
                    self.stdin.isatty()
                    print(sorted(map(int, os.listdir('/proc/self/fd')))[:3],
                          file=self.stderr)
                    return 0
            main.LocalClone = Command
            sys.exit(main.main(%r))
        ''') % (text, words.split())
        environment = {key: value for key, value in os.environ.items()
                       if key != 'PYTHONUNBUFFERED'}
        return subprocess.run(
            ['bash', '-c', '"$@" %s; echo code ${PIPESTATUS[0]} >&3' % end,
             'bash', sys.executable, '-W', 'ignore', '-c', code],
            cwd=tree.ROOT, capture_output=True, text=True, timeout=60,
            env=dict(environment, PYTHONIOENCODING=encoding),
            preexec_fn=lambda: os.dup2(1, 3), close_fds=False)

    def check(self, code, error, *args, **more):
        done = self.run_command(*args, **more)
        self.assertEqual('code %d' % code, done.stdout.splitlines()[-1],
                         done.stderr)
        lines = [line for line in done.stderr.splitlines()
                 if line != '[0, 1, 2]']
        self.assertEqual([error] if error else [], lines)
        return done

    def test_reader_that_has_gone(self):
        """Also of an output that is shorter than a buffer, and of --help."""
        gone = '| (exec <&-; sleep 1)'
        for text in ('[]', 'x' * 100000):
            self.check(141, '', gone, text)
        self.check(141, '', gone, words='--version')

    def test_full_disk(self):
        said = 'its output can\'t be written: No space left on device.'
        self.check(1, 'The command has ended, but ' + said, '> /dev/full')
        self.check(1, 'The command has ended, but ' + said, '> /dev/full',
                   words='--version')

    def test_closed_output(self):
        self.check(1, 'The command has ended, but its output can\'t be '
                   'written: Bad file descriptor.', '>&-')

    def test_closed_input_and_errors(self):
        """No opened file becomes a standard stream."""
        done = self.check(0, '', '<&-')
        self.assertIn('[0, 1, 2]', done.stderr)
        self.check(0, '', '2>&-')


class WrittenTest(CommandCase):

    def test_table_on_a_full_disk(self):
        class Full(io.StringIO):
            def write(self, _text):
                raise OSError(28, 'No space left on device')
        full = Full()
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', full))
        err = self.useFixture(fixtures.MonkeyPatch(
            'sys.stderr', io.StringIO())) and sys.stderr
        self.assertEqual(1, main.main(['move', 'list', '--json']))
        self.assertEqual(1, err.getvalue().count('its output can\'t be'))

    def test_log_file_that_can_not_be_written(self):
        self.assertEqual(
            (1, '', '/nonexistent/x can\'t be written: No such file or '
             'directory.\n'), self.run_command(
                '--log-file', '/nonexistent/x', 'move', 'list'))
