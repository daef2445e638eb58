# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: labs share a queue, verdicts are kept and summed up."""

import collections
import json
import pathlib
import sys
import tempfile
import types
from unittest import mock

import ddt
import fixtures
import testtools

from lab.core import node as nodes
from lab.core import observe
from lab.core import process
from lab.faults import __main__ as faults
from lab.faults import answers
from lab.faults import cells
from lab.faults import discovery
from lab.faults import environment as environment_module
from lab.faults import matrix
from lab.faults import plan
from lab.faults import reach
from lab.faults import results
from lab.faults import work
from lab import lab as labs

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / 'doc/source/_ext'))
import fault_table  # noqa: E402

STEPS = {'move': ['source begin', 'destination enable_hydration',
                  'destination flush handle']}
AT_STEP = cells.Cell('move', 'source begin', 'kill source')
WHOLE = cells.Cell('move', 'whole', 'volume group full')
FACTS = {'commit': 'abc', 'kernel': '7.2', 'labs': 2}


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, 'kept.json')

    def kept(self, *verdicts):
        """Results of one run, read back from the file."""
        written = results.Results(self.path)
        written.begin(**FACTS)
        written.add_steps('move', STEPS['move'])
        written.add([cells.Verdict(cell, ok, seconds=seconds)
                     for cell, ok, seconds in verdicts])
        return results.Results(self.path)


class ResultsTest(Base):

    def test_are_kept(self):
        kept = self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        self.assertEqual(STEPS, kept.steps)
        self.assertTrue(kept.holds(AT_STEP))
        self.assertFalse(kept.holds(WHOLE))
        self.assertEqual(12.5, kept.verdicts[AT_STEP].seconds)
        self.assertEqual([WHOLE], [v.cell for v in kept.failed])
        self.assertEqual(FACTS, {
            key: kept.runs[0][key] for key in FACTS})

    def test_each_run_that_counts_is_named(self):
        again = self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        again.begin(**dict(FACTS, commit='def'))
        again.add([cells.Verdict(WHOLE, True)])
        self.assertEqual([0, 1], again.summary()['named'])
        self.assertEqual(['abc', 'def'], [
            run['commit'] for run in results.Results(self.path).runs])

    def test_summary(self):
        self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        summary = json.loads(self.path.read_text())
        rows = summary['rows']
        self.assertIn('2 run, 1 hold', fault_table.rst(summary)[0])
        self.assertIn(['move', 'kill source', 2, 1, 1, 12, 0, 0], rows)
        self.assertIn(['move', 'volume group full', 1, 1, 0, 30, 0, 0], rows)
        self.assertEqual(len(plan.all_cells(STEPS)),
                         sum(row[2] for row in rows))

    def test_table_says_what_fails(self):
        kept = self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        table = kept.table()
        self.assertIn('FAIL %s' % WHOLE, table)
        self.assertIn('2 cells: 1 hold (0 of them failed before), 1 fail, 0 '
                      'not reached; %d not run' % (
                          len(plan.all_cells(STEPS)) - 2), table)

    def test_cell_that_failed_and_holds_later(self):
        kept = self.kept((AT_STEP, True, 12.5))
        for number, verdict in enumerate((
                cells.Verdict(WHOLE, False, 'lost a write', ['a line']),
                cells.Verdict(WHOLE, False, reached=False),
                cells.Verdict(WHOLE, True, seconds=30, lost=4096))):
            kept.begin(**dict(FACTS, commit='run%d' % number))
            kept.add([verdict])
            kept = results.Results(self.path)
        self.assertEqual([WHOLE], kept.held_later)
        self.assertEqual(4096, kept.verdicts[WHOLE].lost)
        self.assertEqual([('lost a write', 1, True), ('', 2, False)], [
            (v.reason, v.run, v.reached) for v in kept.before[WHOLE]])
        self.assertEqual([0, 1, 2, 3], kept.summary()['named'])
        self.assertIn(['move', 'volume group full', 1, 1, 1, 30, 0, 1],
                      kept.summary()['rows'])
        self.assertIn('1 of them failed before', kept.table())
        self.assertIn('    commit run0: lost a write', kept.table())
        self.assertIn('ok, 1 FAIL', kept.table())
        self.assertEqual([], kept.failed)

    def test_cell_that_held_and_fails_is_a_failure(self):
        kept = self.kept((WHOLE, True, 30))
        kept.begin(**FACTS)
        kept.add([cells.Verdict(WHOLE, False, 'lost a write')])
        self.assertEqual([], kept.held_later)
        self.assertEqual([WHOLE], [v.cell for v in kept.failed])

    def test_not_reached_is_neither(self):
        kept = self.kept((WHOLE, True, 30))
        kept.begin(**FACTS)
        kept.add([cells.Verdict(AT_STEP, False, reached=False, seconds=9)])
        kept = results.Results(self.path)
        self.assertFalse(kept.holds(AT_STEP))
        self.assertEqual([], kept.failed)
        self.assertEqual([AT_STEP], [v.cell for v in kept.unreached])
        self.assertIn(['move', 'kill source', 2, 1, 0, 9, 1, 0],
                      kept.summary()['rows'])
        self.assertIn('0 fail, 1 not reached', kept.table())
        self.assertIn('not reached', kept.table().splitlines()[2])


@ddt.ddt
class PageTest(testtools.TestCase):

    @ddt.data(([1, 1, 1, 30, 0, 0], 'holds', '30'),
              ([1, 1, 1, 30, 0, 1], 'holds, 1 failed before', '30'),
              ([4, 4, 4, 40, 0, 0], 'all hold', '10'),
              ([4, 4, 4, 40, 0, 2], 'all hold, 2 failed before', '10'),
              ([4, 3, 1, 33, 0, 0], '2 **fail**, 1 not run', '11'),
              ([4, 3, 1, 33, 1, 1], '1 **fail**, 1 not reached, 1 not run, '
               '1 failed before', '11'),
              ([4, 0, 0, 0, 0, 0], '4 not run', ''))
    @ddt.unpack
    def test_verdict(self, counts, verdict, seconds):
        lines = fault_table.rst({'named': [0], 'runs': [dict(
            FACTS, began='2026-11-22 10:00', seconds=7230)],
            'rows': [['move', 'kill source', *counts]]})
        self.assertIn('Commit ``abc``, nodes with Linux 7.2, 2 labs side by '
                      'side, begun 2026-11-22 10:00 UTC, 120 minutes.', lines)
        self.assertEqual(['   * - move', '     - kill source',
                          '     - %d' % counts[0], '     - ' + verdict,
                          '     - ' + seconds], lines[-6:-1])


class QueueTest(Base):

    def benches(self, results_, run):
        environments = [types.SimpleNamespace(
            nodes={'node1': None}, say=lambda text: None)
            for _lab in range(2)]
        shared = matrix.Matrix(environments, results_)
        for bench in shared.benches:
            bench._run = run
        return shared

    def test_each_cell_is_run_once(self):
        kept, run = self.kept(), []
        kept.begin(**FACTS)

        def note(batch):
            run.extend(batch)
            return [cells.Verdict(cell, True) for cell in batch]
        every = plan.all_cells(STEPS)
        self.benches(kept, note).run(work.Work(every, 8))
        self.assertEqual(len(every), len(run))
        self.assertEqual(set(every), set(kept.verdicts))

    def test_lab_that_fails_leaves_the_rest_to_the_other(self):
        kept, failed = self.kept(), []
        kept.begin(**FACTS)

        def fail_once(batch):
            if not failed:
                failed.extend(batch)
                raise ValueError('broken')
            return [cells.Verdict(cell, True) for cell in batch]
        every = plan.all_cells(STEPS)
        self.assertRaises(ValueError, self.benches(kept, fail_once).run,
                          work.Work(every, 8))
        self.assertEqual(set(every) - set(failed), set(kept.verdicts))

    def test_what_is_not_reached_is_tried_once_more(self):
        kept, run = self.kept(), []
        kept.begin(**FACTS)

        def miss(batch):
            run.extend(batch)
            return [cells.Verdict(cell, cell != AT_STEP,
                                  reached=cell != AT_STEP) for cell in batch]
        every = plan.all_cells(STEPS)
        self.benches(kept, miss).run(work.Work(every, 8))
        self.assertEqual(len(every) + 1, len(run))
        self.assertEqual(AT_STEP, run[-1])
        self.assertEqual([AT_STEP], [v.cell for v in kept.unreached])

    def test_no_batch_begins_when_the_time_is_over(self):
        clock = self.useFixture(fixtures.MockPatch(
            'time.monotonic', return_value=100)).mock
        left = work.Work([AT_STEP, WHOLE], 8, seconds=60)
        clock.return_value = 159
        self.assertIsNotNone(left.take())
        clock.return_value = 160
        self.assertIsNone(left.take())

    def test_line_counts_what_will_be_tried_again_later(self):
        left = work.Work([AT_STEP, WHOLE], 8)
        missed = cells.Verdict(AT_STEP, False, reached=False)
        self.assertIn('0 of 2 cells', left.note([missed]))
        self.assertIn('1 of 2 cells', left.note([cells.Verdict(WHOLE, True)]))
        self.assertIn('2 of 2 cells', left.note([missed]))


@ddt.ddt
class PlanTest(testtools.TestCase):
    """Which cells share a fault."""

    steps = {'move': [*sorted(cells.BEFORE_ANSWER),
                      'destination enable_hydration', 'source finish']}

    @ddt.data('kill source', 'cut both', 'source gone')
    def test_each_way_has_what_a_node_can_have(self, fault):
        ends = cells.struck_ends(fault)
        every = [cell for cell in plan.all_cells(self.steps)
                 if cell.step != 'whole'
                 and len(cells.struck_ends(cell.fault)) == len(ends)
                 and (cell.fault in cells.GONE) == (fault in cells.GONE)]
        environment = types.SimpleNamespace(
            nodes={'node1': 'one', 'node2': 'two'})
        planned = plan.batches(every, 16)
        self.assertEqual(sorted(map(str, every)), sorted(
            str(cell) for batch in planned for cell in batch))
        for each in planned:
            batch = cells.Batch(environment, each, {})
            for way in (('one', 'two'), ('two', 'one')):
                sorts = [cells.sort_of(cell) for cell, its in zip(
                    each, batch.ways) if its == way]
                self.assertThat(sorts.count('alone'),
                                testtools.matchers.LessThan(2))
                self.assertThat(len(sorts) - sorts.count('others'),
                                testtools.matchers.LessThan(6))
            self.assertThat(len(each), testtools.matchers.LessThan(17))

    @ddt.data(('kill source', 0), ('kill destination', 1),
              ('source gone', 0), ('destination gone', 1))
    @ddt.unpack
    def test_first_node_is_struck(self, fault, end):
        environment = types.SimpleNamespace(
            nodes={'node1': 'one', 'node2': 'two'})
        batch = cells.Batch(environment, [
            cells.Cell('move', 'source begin', fault)], {})
        self.assertEqual('one', batch.ways[0][end])
        self.assertEqual(['one'], batch.struck)

    def test_steps_of_another_operation_meet_one_fault_each(self):
        shared = self.steps['move'][:-2]
        planned = plan.all_cells(dict(self.steps, **{'move back': [
            *shared, 'source its own']}))
        met = collections.defaultdict(list)
        for cell in planned:
            if cell.operation == 'move back':
                met[cell.step].append(cell.fault)
        self.assertEqual([*shared, 'source its own'], sorted(
            met, key=[*shared, 'source its own'].index))
        self.assertEqual(list(cells.FAULTS), met.pop('source its own'))
        self.assertEqual({1}, set(map(len, met.values())))
        for fault in cells.FAULTS:
            self.assertIn([fault], met.values())

    def test_kinds_of_faults_are_not_mixed(self):
        for batch in plan.batches(plan.all_cells(self.steps), 16):
            self.assertIn({cell.fault for cell in batch}, (
                {'kill source', 'kill destination'},
                {'cut source', 'cut destination'}, {'cut both'},
                {'source gone', 'destination gone'},
                *[{cell.fault} for cell in batch if cell.step == 'whole']))


class FaultHappensTest(testtools.TestCase):
    """A fault that did not happen is no proof."""

    def setUp(self):
        super().setUp()
        self.said, self.nodes = [], [
            mock.create_autospec(nodes.Node, instance=True)
            for _node in range(2)]
        for number, node in enumerate(self.nodes, 1):
            node.name, node.serves = 'node%d' % number, False
        self.environment = environment_module.Environment(
            mock.create_autospec(labs.Lab, instance=True,
                                 directory=pathlib.Path('/nowhere')),
            self.said.append)

    def test_killed(self):
        self.environment.kill(self.nodes)
        for node in self.nodes:
            node.service.assert_called_once_with('kill')

    def test_service_that_lives_on(self):
        self.nodes[1].serves = True
        failed = self.assertRaises(
            process.LabError, self.environment.kill, self.nodes)
        self.assertIn('a service runs on node2', str(failed))

    def test_what_a_power_cut_lost_is_told(self):
        self.nodes[0].power_cut.return_value = 5 << 10
        self.nodes[1].power_cut.return_value = 0
        self.assertEqual(5 << 10, self.environment.power_cut(self.nodes))
        self.assertIn('node1: 5 KiB', self.said[0])
        self.assertIn('node2: 0 KiB', self.said[1])


@ddt.ddt
class NodeTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.lab = mock.create_autospec(labs.Lab, instance=True)
        self.lab.directory = self.lab.logs = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.lab.settings = {'disks': 'volatile', 'native_threads': False}
        self.lab.processes = mock.create_autospec(
            process.Processes, instance=True)
        self.node = nodes.Node(self.lab, 1)
        self.node.directory.mkdir()

    @ddt.data((1, 'nothing to be killed'), (2, 'does not end'))
    @ddt.unpack
    def test_service_that_is_not_killed(self, code, said):
        self.useFixture(fixtures.MockPatchObject(
            self.node, 'run', return_value=nodes.Done(code, '', '')))
        self.assertIn(said, str(self.assertRaises(
            process.LabError, self.node.service, 'kill')))

    def test_power_of_a_node_that_is_off(self):
        self.lab.processes.pid.return_value = None
        self.assertIn('is off already', str(self.assertRaises(
            process.LabError, self.node.power_cut)))

    def cut(self, report):
        path = self.node.directory / 'power-cut.json'
        path.write_text('{"lost_bytes": 1}')  # of the cut before
        self.lab.processes.signal.side_effect = lambda _name, _signal: (
            report and path.write_text(report) and None)
        return self.node.power_cut()

    def test_what_the_cache_lost(self):
        self.assertEqual(7, self.cut('{"kept_bytes": 3, "lost_bytes": 7}'))

    def test_cache_that_does_not_say(self):
        self.assertIn('has not said what it lost', str(self.assertRaises(
            process.LabError, self.cut, '')))


class ExitTest(Base):

    def test_cell_that_is_not_reached(self):
        for verdict, code in ((cells.Verdict(AT_STEP, True), 0),
                              (cells.Verdict(AT_STEP, False), 1),
                              (cells.Verdict(AT_STEP, False, reached=False),
                               1)):
            kept = results.Results()
            kept.begin(**FACTS)
            kept.add([verdict])
            self.assertEqual(code, faults.exit_code(kept))


class StepsTest(testtools.TestCase):

    def test_those_of_all_runs(self):
        self.assertEqual(
            ['source before begin', 'source begin', 'source flush handle',
             'source flush handle (2)'],
            discovery.common([
                ['source begin', 'source flush handle', 'source once',
                 'source flush handle', 'source flush handle'],
                ['source begin', 'source flush handle',
                 'source flush handle']]))

    def test_look_that_comes_by_is_no_beginning(self):
        observe = 'destination attach_remote'
        self.assertEqual(
            ['source before begin', observe, 'source begin'],
            discovery.common([[observe, 'source begin', observe]] * 2))


class WayTest(testtools.TestCase):
    """An operation comes to its step, ends without it, or neither."""

    def setUp(self):
        super().setUp()
        self.move_records, self.seen = [], []
        self.patch(observe, 'move_records', lambda lab: self.move_records)
        self.patch(reach, 'QUIET', 0.2)
        self.patch(reach, 'REACH', 1)
        self.operation = types.SimpleNamespace(
            disk=types.SimpleNamespace(volume='v'), answered=True,
            error=None, start=lambda: None, is_over=lambda: True,
            forget_failure=lambda: setattr(self.operation, 'error', None))
        environment = types.SimpleNamespace(
            lab=None, reached=lambda disk: self.seen, say=lambda text: None,
            step_marks=lambda disk: [])
        self.way = reach.Way(environment, self.operation)

    def test_reached(self):
        self.seen.append(True)
        self.assertTrue(self.way.wait())

    def test_ended_without_it(self):
        self.assertFalse(self.way.wait())

    def test_waits_for_what_goes_on(self):
        self.move_records.append(('v', 'lc1:starting:x'))
        self.assertRaises(process.LabError, self.way.wait)

    def test_waits_for_an_answer(self):
        self.operation.answered = False
        self.assertRaises(process.LabError, self.way.wait)

    def test_refusal_is_told(self):
        self.operation.error = process.LabError('no')
        self.assertRaises(process.LabError, self.way.ask)

    def test_too_late_is_asked_again(self):
        self.operation.error = process.LabError('node1 did not answer')
        self.way.ask()
        self.assertIsNone(self.operation.error)


class AnswersTest(Base):

    def test_died_since(self):
        (self.path.parent / 'node1.died').write_text('100.5')
        died = [answers.died_since(self.path.parent, server, asked)
                for server, asked in (
                    ('node1@localclone', 100), ('node1', 100),
                    ('node1', 101), ('node2', 100), (None, 100))]
        self.assertEqual([True, True, False, False, False], died)

    def wait(self, lost):
        """The waits until there is an answer; none if it is lost first."""
        waits = []

        def get(timeout):
            waits.append(timeout)
            if len(waits) < 4:
                raise TimeoutError()
            return 'answer'
        return answers.in_short(get, TimeoutError, lambda: lost), waits

    def test_answer_is_waited_for(self):
        wait, waits = self.wait(False)
        self.assertEqual('answer', wait(60))
        self.assertEqual([answers.EVERY] * 4, waits)

    def test_nobody_waits_for_the_dead(self):
        wait, waits = self.wait(True)
        self.assertRaises(TimeoutError, wait, 60)
        self.assertEqual(1, len(waits))

    def test_time_is_up(self):
        wait, waits = self.wait(False)
        self.assertRaises(TimeoutError, wait, 0.1)
        self.assertEqual(1, len(waits))
