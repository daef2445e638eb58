# SPDX-License-Identifier: Apache-2.0
"""The list of operations and situations, and how it is run and shown."""

import pathlib
import sys
import tempfile
import types

import ddt
import testtools

from cinder_localclone.core import user_messages
from lab.core import process
from lab.operations import environment
from lab.operations import plan
from lab.operations import results
from lab.operations import situations
from lab.operations import stale
from lab.operations import table
from lab.scenarios import disk
from lab.scenarios.once import OPERATIONS
from lab.scenarios import payload

DOC = pathlib.Path(__file__).parents[2] / 'doc/source'
sys.path.insert(0, str(DOC / '_ext'))
import messages_table  # noqa: E402
import operations_table  # noqa: E402

SMALL = '''
# Comments are left out.
[situations]
at rest | resting | It rests.
hydrating | copied | It is copied.
[operations]
attach | works | refused LC07 x
delete | n/a x | waits
clone | works | works
[notes]
x | Why not.
'''
KINDS = {name: types.SimpleNamespace(in_use=False, snapshot=False,
                                     alone=name == 'attach')
         for name in ('attach', 'delete', 'clone')}


def small():
    return table.parse(SMALL)


@ddt.ddt
class TableTest(testtools.TestCase):

    def test_is_parsed(self):
        parsed = small()
        self.assertEqual(('attach', 'delete', 'clone'), parsed.operations)
        cell = table.Cell('attach', 'hydrating')
        self.assertEqual(table.Expected('refused', 'LC07', 'x'),
                         parsed.expected[cell])
        self.assertEqual('refused LC07', parsed.expected[cell].verdict)

    def test_what_is_not_applicable_is_not_run(self):
        self.assertNotIn('delete / at rest', map(str, small().cells()))
        self.assertEqual(5, len(small().cells()))

    def test_cells_are_chosen_by_a_regular_expression(self):
        self.assertEqual(['delete / hydrating', 'clone / hydrating'],
                         [str(cell) for cell in small().cells(
                             '^(delete|clone) / hyd')])

    @ddt.data(
        ('works | refused LC07 x', 'works'),  # too few
        ('n/a x | waits', 'n/a | waits'),  # no reason
        ('n/a x', 'n/a y'),  # no such note
        ('| works', '| perhaps'),
        ('| works', '| works LC07'),
        ('clone |', 'attach |'),  # twice
        ('x | Why not.', 'x | Why not.\ny | Unused.'))
    @ddt.unpack
    def test_what_makes_no_sense_is_no_table(self, old, new):
        self.assertIn(old, SMALL)
        self.assertRaises(ValueError, table.parse, SMALL.replace(old, new))


class ListTest(testtools.TestCase):
    """``table.txt``, and the code that runs it."""

    table = table.read()

    def test_every_operation_can_be_run(self):
        self.assertEqual(set(self.table.operations),
                         set(OPERATIONS))

    def test_every_situation_can_be_brought_about(self):
        names = {each.name for each in self.table.situations}
        self.assertEqual(names, set(situations.SITUATIONS))
        self.assertEqual(sorted(names), sorted(
            name for names in plan.ROUNDS for name in names))

    def test_every_code_is_one_that_owners_are_told(self):
        codes = {each.code for each in self.table.expected.values()}
        self.assertLessEqual(codes - {''}, {
            each.code for each in user_messages.MESSAGES.values()})

    def test_every_cell_is_in_one_chain(self):
        cells = self.table.cells()
        self.assertEqual(sorted(map(str, cells)), sorted(
            str(cell) for chosen in plan.rounds(cells)
            for chain in plan.chains(chosen, self.table.expected,
                                     OPERATIONS)
            for cell in chain.cells))

    def test_all_of_it_is_documented(self):
        text = '\n'.join(operations_table.rst(self.table, {
            each.code: messages_table.problem(each) for each in
            user_messages.MESSAGES.values()}))
        for name in (*self.table.operations, *self.table.notes.values()):
            self.assertIn(name, text)
        self.assertIn('``LC07``: The volume is being moved', text)
        self.assertEqual(
            {each.word for each in self.table.expected.values()},
            set(operations_table.WORDS))


class PlanTest(testtools.TestCase):

    def chains(self, *cells):
        return [[str(cell) for cell in chain.cells] for chain in plan.chains(
            [table.Cell(*cell) for cell in cells], small().expected, KINDS)]

    def test_what_is_refused_comes_first_and_shares_a_volume(self):
        self.assertEqual(
            [['attach / hydrating', 'clone / hydrating']],
            self.chains(('clone', 'hydrating'), ('attach', 'hydrating')))

    def test_what_changes_its_volume_has_its_own(self):
        self.assertEqual(
            [['attach / at rest'], ['clone / at rest']],
            self.chains(('attach', 'at rest'), ('clone', 'at rest')))

    def test_what_waits_has_its_own(self):
        self.assertEqual(
            [['delete / hydrating'], ['clone / hydrating']],
            self.chains(('delete', 'hydrating'), ('clone', 'hydrating')))

    def test_a_chain_is_not_too_long(self):
        cells = [table.Cell('clone', 'at rest')] * (plan.LONGEST + 2)
        self.assertEqual([plan.LONGEST, 2], [
            len(chain.cells) for chain in plan.chains(
                cells, small().expected, KINDS)])

    def test_situations_share_what_is_true_of_the_lab(self):
        cells = [table.Cell('x', name) for name in (
            'unreachable', 'at rest', 'snapshot down')]
        self.assertEqual([['at rest'], ['unreachable', 'snapshot down']], [
            [cell.situation for cell in chosen]
            for chosen in plan.rounds(cells)])


class ResultsTest(testtools.TestCase):

    cell = table.Cell('attach', 'hydrating')

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, 'kept.json')

    def kept(self, verdict, reason=''):
        results.Results(small(), self.path).add(results.judged(
            self.cell, small().expected[self.cell], verdict, reason))
        return results.Results(small(), self.path)

    def test_what_holds_is_kept(self):
        kept = self.kept('refused LC07')
        self.assertTrue(kept.holds(self.cell))
        self.assertEqual([], kept.failed([self.cell]))
        self.assertIn('1 cells: 1 hold, 0 fail, 0 not run',
                      kept.text([self.cell]))

    def test_another_verdict_does_not_hold(self):
        kept = self.kept('works')
        self.assertEqual([self.cell], kept.failed([self.cell]))
        self.assertIn('FAIL works', kept.text([self.cell]))
        self.assertIn('it was to be "refused LC07"', kept.text([self.cell]))

    def test_the_right_verdict_with_wrong_data_does_not_hold(self):
        self.assertFalse(self.kept('refused LC07', 'DATA').holds(self.cell))

    def test_what_the_list_says_by_now_counts(self):
        self.kept('refused LC07')
        changed = table.parse(SMALL.replace('LC07', 'LC08'))
        self.assertFalse(results.Results(changed, self.path).holds(
            self.cell))

    def test_what_was_not_asked_for_does_not_count(self):
        other = table.Cell('clone', 'at rest')
        self.assertIn('1 cells: 0 hold, 0 fail, 1 not run',
                      self.kept('works').text([other]))


class StaleTest(testtools.TestCase):

    homes = {'node2@localclone': 'node1@localclone'}

    def test_a_pool_stays(self):
        self.assertEqual('node1@localclone#pool', stale.former(
            'node2@localclone#pool', self.homes))

    def test_others_are_asked_as_ever(self):
        for host in ('node3@localclone#pool', 'node2@stock', None):
            self.assertEqual(host, stale.former(host, self.homes))


class ContentTest(testtools.TestCase):

    content = {'mib': 2048, 'areas': [[200, 1]], 'acknowledged': {},
               'fills': [[0, 2, 'a'], [disk.FRESH, 1, 'b']]}

    def test_what_was_written_and_some_that_was_not(self):
        only = disk.sampled(
            self.content, disk.SAMPLED)['only']
        for mib in (0, 1, disk.FRESH, 200, *disk.SAMPLED.looked_at, 1023, 1024,
                    2047):
            self.assertIn(mib, only)
        self.assertNotIn(2048, only)

    def test_what_is_at_a_source_that_is_down_is_not_read(self):
        self.assertEqual([disk.FRESH, 200], disk.sampled(
            self.content, disk.SAMPLED, local_only=True)['only'])

    def test_a_file_is_compared(self):
        content = dict(self.content, fills=[[0, 1, 'a']])
        with tempfile.NamedTemporaryFile() as made:
            made.write(payload.known('a', 0))
            made.flush()
            disk.check_file(made.name, content)
            made.seek(5)
            made.write(b'x')
            made.flush()
            self.assertRaises(process.LabError, disk.check_file,
                              made.name, content)


class FootprintTest(testtools.TestCase):

    before = {'rows': [['a', 'node1']], 'snapshots': [],
              'nodes': {'node1': ['volume-a'], 'node2': []}}

    def test_the_same(self):
        self.assertEqual('', environment.changes(
            self.before, dict(self.before)))

    def test_an_lv_that_is_left(self):
        after = dict(self.before, nodes={'node1': ['volume-a'],
                                         'node2': ['volume-a']})
        self.assertIn('node2', environment.changes(self.before, after))

    def test_another_home(self):
        self.assertIn('rows', environment.changes(
            self.before, dict(self.before, rows=[['a', 'node2']])))
