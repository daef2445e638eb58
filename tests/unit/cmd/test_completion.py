# SPDX-License-Identifier: Apache-2.0
"""The completion of the command, in a real bash."""

import contextlib
import io
import os
import shutil
import subprocess

import ddt
import fixtures
import testtools

from cinder_localclone.cmd import main


@ddt.ddt
class CompletionTest(testtools.TestCase):

    script = ''

    def setUp(self):
        super().setUp()
        if not shutil.which('bash'):
            self.skipTest('there is no bash')
        if not self.script:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(0, main.main(['complete']))
            type(self).script = printed.getvalue()
        self.directory = self.useFixture(fixtures.TempDir()).path
        for name in ('a.conf', 'b'):
            open(os.path.join(self.directory, name), 'w').close()

    def complete(self, line):
        """Return the words offered at the end of a line."""
        words = ['cinder-localclone', *line.split(' ')]
        done = subprocess.run(
            ['bash', '--norc', '-uc', self.script + '''
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_cinder_localclone
printf "%s\\n" "${COMPREPLY[@]}"
''', 'bash', *words], cwd=self.directory, capture_output=True, text=True,
            timeout=30)
        self.assertEqual('', done.stderr)
        return sorted(done.stdout.split())

    @ddt.data(
        ('', 'complete doctor encryption help metrics move node reencryption '
         'report volume'), ('no', 'node'), ('help mo', 'move'),
        ('move ', 'abort complete list show'),
        ('encryption recovery key ', 'add remove'),
        ('--json move ', 'abort complete list show'),
        ('--backend move node l', 'list'),
        ('--config-file = /a/b move l', 'list'),
        ('--config-file ', 'a.conf b'), ('--config-file = a', 'a.conf'),
        ('report --output a', 'a.conf'),
        ('volume show ', ''), ('volume show data ', ''),
        ('volume list -f ', 'csv json table value yaml'),
        ('reencryption start --resilience j', 'journal'),
        ('reencryption start --wait ', ''),
        ('reencryption start --wait --dr', '--drop-other-keys'),
        ('node unlock --seconds 5 --se', '--seconds'),
        ('node unlock --seconds ', ''),
        ('node forget n --y', '--yes'), ('--ba', '--backend'),
        ('volume show --js', '--json'), ('volume list --node ', ''),
        ('move list x:y --wat', '--watch'))
    @ddt.unpack
    def test_words(self, line, offered):
        self.assertEqual(offered, ' '.join(self.complete(line)))

    def test_hidden_command(self):
        self.assertNotIn('run', self.complete('reencryption '))
