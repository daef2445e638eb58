# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone-status upgrade check``: doctor for deployment tools."""

import contextlib
import io
import json
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd import status

CONF = '[DEFAULT]\nenabled_backends = lc\n[lc]\n'


@ddt.ddt
class StatusTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = self.useFixture(fixtures.TempDir()).join('cinder.conf')
        with open(self.conf, 'w') as file:
            file.write(CONF)

    def run_check(self, *words, found=(), **more):
        with mock.patch.object(doctor, 'findings', **(
                more or {'return_value': list(found)})) as asked, (
                contextlib.redirect_stdout(io.StringIO())) as shown:
            code = status.main(
                ['--config-file', self.conf, *words[:2], 'upgrade', 'check',
                 *words[2:]])
        self.find_backend, = asked.call_args.args
        return code, shown.getvalue()

    @ddt.data(((checks.OK,), 0), ((checks.OK, checks.WARN), 1),
              ((checks.FAIL, checks.WARN, checks.OK), 2), ((), 0))
    @ddt.unpack
    def test_exit_code_is_that_of_the_worst(self, verdicts, wanted):
        code, _text = self.run_check(found=[
            checks.Finding('it', verdict) for verdict in verdicts])
        self.assertEqual(wanted, code)

    def test_each_finding_is_a_row(self):
        found = [checks.Finding('LVM', checks.OK, 'filtered'),
                 checks.Finding('udev rules', checks.FAIL, 'missing', 'copy')]
        _code, text = self.run_check(
            '--backend', 'lc', '--json', found=found)
        self.assertEqual(
            [{'check': 'LVM', 'result': 0, 'details': 'filtered'},
             {'check': 'udev rules', 'result': 2,
              'details': 'missing Fix: copy'}],
            json.loads(text)['checks'])

    def test_text_of_an_enemy(self):
        """An LV's tag, or the answer of a node, may have anything."""
        _code, text = self.run_check(found=[checks.Finding(
            'LV a\x1b[2J', checks.WARN, 'b\x1b[2J', 'c\u202e')])
        self.assertIn('LV a?[2J', text)
        self.assertIn('b?[2J', text)
        for each in '\x1b\u202e':
            self.assertNotIn(each, text)

    def test_backend_and_files_of_the_command_line(self):
        with mock.patch.object(status.backends, 'Backend') as made, (
                mock.patch.object(status.backends, 'Settings')) as read:
            self.run_check('--backend', 'lc')
            self.find_backend()
        read.assert_called_once_with([self.conf])
        made.assert_called_once_with(read.return_value, 'lc')

    def test_unexpected_error(self):
        code, text = self.run_check(side_effect=KeyError('odd'))
        self.assertEqual(255, code)
        self.assertIn('odd', text)
