# SPDX-License-Identifier: Apache-2.0
"""What commands of the lab print."""

import io

from rich import console
import testtools

from lab.core import process
from lab.core import report


class TableTest(testtools.TestCase):

    def test_columns_are_as_wide_as_their_words(self):
        self.assertEqual(
            'name    s  what\n'
            'a      12\n'
            'third   3  a detail', report.table(
                ('name', 's', 'what'),
                [('a', 12, ''), ('third', 3, 'a detail')], right=('s',)))

    def test_the_last_column_is_wrapped(self):
        lines = report.table(('x', 'y'), [('a', 'word ' * 8)],
                             width=25).splitlines()
        self.assertEqual(['x  y', 'a  word word word word', '   word word '
                          'word word'], lines)

    def test_lines_of_the_last_column_stay_below_it(self):
        self.assertEqual('x  y\na  one\n   two',
                         report.table(('x', 'y'), [('a', 'one\ntwo')]))

    def test_without_rows(self):
        self.assertEqual('x  y', report.table(('x', 'y'), []))


class EntryTest(testtools.TestCase):

    def test_reasons_and_log(self):
        self.assertEqual('\nFAIL a\n    no\n    | one\n    | two',
                         report.entry('FAIL a', ['no'], ['one', 'two']))


class ReportTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.out = io.StringIO()
        self.report = report.Report(console.Console(
            file=self.out, width=120), 'Encryption at rest')
        self.report.part = 'by Nova'

    def test_a_step_that_holds(self):
        with self.report.doing('cold migration') as row:
            row.detail = '12 MiB [link]'
        row, = self.report.rows
        self.assertEqual(('by Nova', 'cold migration', '0.0', 'ok',
                          '12 MiB [link]'), row.words)
        self.assertEqual(0, self.report.failed)
        self.report.show()
        self.assertEqual(1, self.out.getvalue().count('Encryption at rest'))
        self.assertEqual(3, self.out.getvalue().count('cold migration'))
        self.assertEqual(2, self.out.getvalue().count('12 MiB [link]'))

    def test_a_step_that_fails(self):
        def fail():
            with self.report.doing('hard reboot'):
                raise process.LabError('the header is another one')
        self.assertRaises(report.Failed, fail)
        self.report.leave_out('cold migration')
        self.assertEqual(2, self.report.failed)
        self.assertEqual(['FAILED', 'not run'],
                         [row.verdict for row in self.report.rows])
        self.assertIn('the header is another one', self.report.rows[0].detail)
        self.assertEqual('', self.report.rows[1].words[2])

    def test_interrupted(self):
        def interrupt():
            with self.report.doing('hard reboot'):
                raise KeyboardInterrupt
        self.assertRaises(KeyboardInterrupt, interrupt)
        self.assertEqual(1, self.report.failed)

    def test_steps_and_checks(self):
        self.report.step('lab up', 12.34, 'two nodes')
        self.report.check('all of it ran to its end', True)
        self.assertEqual(0, self.report.failed)
        self.report.check('all of it ran to its end', False, KeyError('x'))
        self.assertEqual(1, self.report.failed)
        self.assertEqual('12.3', self.report.rows[0].words[2])

    def test_parts_are_shown_if_there_are_any(self):
        for part, heading in (('', 'step or check'), ('by Nova', 'part')):
            self.report.part, self.report.rows = part, []
            self.report.step('lab up', 1)
            self.report.show()
            self.assertTrue(self.out.getvalue().splitlines()[-2].startswith(
                heading))
