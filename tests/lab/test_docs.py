# SPDX-License-Identifier: Apache-2.0
"""The pages that code makes: the command, the states, monitoring."""

import importlib
import pathlib
import re
import shlex
from unittest import mock

import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd import main
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import events
from cinder_localclone.core import rpc
from cinder_localclone.core import state
from cinder_localclone.service import endpoint  # noqa: F401, has all methods
from cinder_localclone.service import notifications
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup_keys
from lab import manual
from tests.helpers.documentation import DOC
from tests.helpers.documentation import sample as sample_backend
from tests.helpers import entry_points

import command_table  # noqa: E402
import monitoring_tables  # noqa: E402
import peer_table  # noqa: E402
import privileged_table  # noqa: E402
import state_table  # noqa: E402


class CommandPageTest(testtools.TestCase):

    page = (DOC / 'reference/command.rst').read_text()

    def test_every_command_has_an_example_that_runs(self):
        examples = self.directives('command-output')
        self.assertEqual(set(main.COMMANDS), {
            name for words in examples for name in main.COMMANDS
            if (words + ' ').startswith(name + ' ')})
        for words in examples:
            printed, code = sample_backend.run(shlex.split(words))
            self.assertIn(code, (0, 1), printed)
            self.assertTrue(printed.count('\n') > 1, printed)

    def test_samples_fit_on_the_page(self):
        # Lines of metrics are not wrapped.
        for words in self.directives('command-output'):
            if words != 'metrics':
                printed, _code = sample_backend.run(shlex.split(words))
                self.assertLessEqual(max(map(len, printed.splitlines())),
                                     sample_backend.COLUMNS, words)

    def directives(self, name):
        """Return the arguments of a directive's uses on the page."""
        return re.findall(r'^\.\. %s:: (.*)$' % name, self.page, re.MULTILINE)

    def test_exit_code_of_repair(self):
        self.assertEqual(1, sample_backend.run(
            ['volume', 'repair', '--dry-run', 'data'])[1])
        self.assertEqual(0, sample_backend.run(
            ['volume', 'repair', 'data'])[1])

    def test_the_sample_of_doctor_has_all_checks(self):
        # An error in the code of a check is a finding, too.
        printed, _code = sample_backend.run(['doctor'])
        self.assertNotIn(checks.SEE_DETAILS, printed)
        self.assertEqual(1, printed.count(checks.FAIL), printed)
        self.assertEqual(1, printed.count(checks.WARN), printed)

    def test_help_is_of_the_command(self):
        for words in (['volume', 'show', '--help'],
                      ['help', 'volume', 'show']):
            printed, code = sample_backend.run(words)
            self.assertIn('its devices on each node', printed)
            self.assertIn('Example: cinder-localclone volume show data',
                          printed)
            self.assertFalse(code)

    def test_every_command_has_a_section_with_its_help(self):
        for name in main.COMMANDS:
            self.assertIn('\n%s\n%s\n\n.. command-help:: %s\n' % (
                name, '=' * len(name), name), self.page)
        self.assertIn('.. command-help::\n', self.page)
        self.assertIn('.. command-overview::\n', self.page)

    def test_sections_have_the_order_of_the_overview(self):
        listed = re.findall(r'\* - `(.*)`_', '\n'.join(
            command_table.overview()))
        self.assertEqual(sorted(main.COMMANDS), sorted(listed))
        self.assertEqual(listed, self.directives('command-help'))

    def test_help_has_every_argument(self):
        app = main.LocalClone()
        for name in main.COMMANDS:
            text = '\n'.join(command_table.rst(name))
            parser, kind = manual.parser(app, name)
            self.assertIn(command_table.literal(
                manual.paragraphs(kind.__doc__)[0]), text)
            for action in manual.own_actions(parser):
                self.assertIn(' '.join(action.option_strings)
                              or action.metavar, text, name)
                self.assertEqual(
                    action.help not in command_table.KNOWN,
                    command_table.sentence(action.help) in text, name)

    def test_an_option_is_explained_only_by_its_parser(self):
        self.assertEqual([], re.findall(
            r'^``-[^`]*``$', self.page, re.MULTILINE))

    def test_texts_of_the_command_as_they_are_typed(self):
        self.assertEqual(
            'As `node list`_ or ``node``: ``--to``, ``/etc/x.conf``. A-b.',
            command_table.sentence(
                'as "node list" or "node": --to, /etc/x.conf. A-b'))

    def test_only_these_change_nothing(self):
        rows = re.findall(r'\* - `(.*)`_\n     - .*\n     - (.*)\n', '\n'.join(
            command_table.overview()))
        self.assertEqual(len(main.COMMANDS), len(rows))
        for name, changes in rows:
            self.assertEqual(
                name.split()[-1] in (
                    'list', 'show', 'check', 'doctor', 'metrics', 'report'),
                changes.startswith('nothing'), name)


class PeerMethodsTest(testtools.TestCase):

    def test_every_method_has_its_row(self):
        lines = peer_table.rst(rpc.METHODS)
        self.assertEqual(sorted(rpc.METHODS), [
            re.fullmatch(r'   \* - ``(\w+)``', line)[1]
            for line in lines if line.startswith('   * - ``')])

    def test_row(self):
        text = '\n'.join(peer_table.rst(
            {name: rpc.METHODS[name] for name in ('reconcile', 'revert')}))
        self.assertIn(
            '''   * - ``reconcile``
     - volume_id
     - call, cast
     - 8 s
     - any node
     - volumes.reconcile.Reconciler.reconcile
     - Busy, LocalCloneError
''', text)
        self.assertIn(
            '''   * - ``revert``
     - volume_id, snapshot_id
     - call
     - 2 × work
     - the home of the volume
     - volumes.revert.revert
     - StaleMove, SourceBusy, MissingData, ForeignImage, LocalCloneError
''', text)

    def test_errors(self):
        self.assertEqual(  # OddMap is no error of the driver's own
            ['StaleMove', 'LocalCloneError'],
            peer_table.errors(rpc.METHODS['holes']))
        for method in rpc.METHODS.values():
            self.assertLessEqual(
                {each.__name__ for each in method.expected},
                set(peer_table.errors(method)), method.name)


class SecurityPageTest(testtools.TestCase):

    def test_every_privileged_entry_point_says_what_it_allows(self):
        package = pathlib.Path(privsep.__file__).parent
        found = list(privileged_table.entry_points(package))
        self.assertEqual(
            {(module, name) for module in entry_points.ENTRY_POINTS
             for name in entry_points.entry_points(module)},
            {(module, name) for _daemon, module, name, _allows in found})
        self.assertEqual([], [each for each in found if not each[-1]])
        for daemon, context in (('default', privsep.default),
                                ('secrets', cryptsetup_keys.context)):
            self.assertIn('.. privileged-calls:: %s\n' % daemon, (
                DOC / 'reference/security.rst').read_text())
            rows = '\n'.join(privileged_table.rst(package, daemon))
            for _daemon, module, name, allows in found:
                self.assertEqual(
                    context.is_entrypoint(getattr(importlib.import_module(
                        'cinder_localclone.storage.privsep.' + module), name)),
                    '   * - ``%s.%s``\n     - %s\n' % (
                        module, name, allows) in rows + '\n')


class MonitoringPageTest(testtools.TestCase):

    page = (DOC / 'reference/metrics.rst').read_text()

    def test_all_that_there_is_is_listed(self):
        for lines, wanted in (
                (monitoring_tables.metrics(), [
                    '``%s``' % name for name in figures.METRICS]),
                (monitoring_tables.log_lines(), [
                    '``%s``' % each.id for each in events.all_events()])):
            for each in wanted:
                self.assertEqual(1, '\n'.join(lines).count(each), each)
        self.assertIn('PoolFull', '\n'.join(monitoring_tables.alerts()))

    def test_every_collector_is_explained(self):
        for source in sources.Watch(None, 1, 1)._sources:
            self.assertIn('* - ``%s``' % source.name, self.page)

    def test_every_notification_is_listed(self):
        for milestone in state.Milestone:
            self.assertIn('* - ``%s``' % notifications.event_type(milestone),
                          self.page)

    def test_what_a_notification_says_is_listed(self):
        token = state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8))
        for key in notifications.payload(state.Move(
                'v', 's', token, True, 'a@l', 'b@l', 'x', 'y', 1),
                mock.Mock()):
            self.assertIn('``%s``' % key, self.page)


class StatesPageTest(testtools.TestCase):

    def test_without_graphviz_the_table_says_the_same(self):
        drawn, not_drawn = state_table.rst(True), state_table.rst(False)
        self.assertIn('.. graphviz::', drawn)
        self.assertNotIn('.. graphviz::', not_drawn)
        self.assertIn('without graphviz', not_drawn[0])
        for lines in (drawn, not_drawn):
            self.assertIn('   * - ``starting``', lines)
