# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: labs share a queue, verdicts are kept and summed up."""

import json
import pathlib
import sys
import tempfile
import types

import ddt
import testtools

from lab.faults import cells
from lab.faults import matrix
from lab.faults import plan
from lab.faults import results

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
        self.assertEqual(['abc', 'def'], [
            run['commit'] for run in again.summary()['runs']])
        again.add([cells.Verdict(AT_STEP, True)])
        self.assertEqual(['def'], [
            run['commit'] for run in again.summary()['runs']])

    def test_summary(self):
        kept = self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        kept.write_summary(self.path)
        summary = json.loads(self.path.read_text())
        rows = summary['rows']
        self.assertIn(['move', 'kill source', 2, 1, 1, 12], rows)
        self.assertIn(['move', 'volume group full', 1, 1, 0, 30], rows)
        self.assertEqual(len(plan.all_cells(STEPS)),
                         sum(row[2] for row in rows))

    def test_table_says_what_fails(self):
        kept = self.kept((AT_STEP, True, 12.5), (WHOLE, False, 30))
        table = kept.table()
        self.assertIn('FAIL %s' % WHOLE, table)
        self.assertIn('2 cells: 1 hold, 1 fail; %d not run' % (
            len(plan.all_cells(STEPS)) - 2), table)


@ddt.ddt
class PageTest(testtools.TestCase):

    @ddt.data(([1, 1, 1, 30], 'holds', '30'),
              ([4, 4, 4, 40], 'all hold', '10'),
              ([4, 3, 1, 33], '2 **fail**, 1 not run', '11'),
              ([4, 0, 0, 0], '4 not run', ''))
    @ddt.unpack
    def test_verdict(self, counts, verdict, seconds):
        lines = fault_table.rst({'runs': [dict(
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

    def test_each_batch_is_run_once(self):
        kept, run = self.kept(), []
        kept.begin(**FACTS)

        def note(batch):
            run.append(batch[0])
            return [cells.Verdict(cell, True) for cell in batch]
        planned = plan.batches(plan.all_cells(STEPS), 8)
        self.benches(kept, note).run(planned)
        self.assertEqual(len(planned), len(run))
        self.assertEqual(set(plan.all_cells(STEPS)), set(kept.verdicts))

    def test_lab_that_fails_leaves_the_rest_to_the_other(self):
        kept, failed = self.kept(), []
        kept.begin(**FACTS)

        def fail_once(batch):
            if not failed:
                failed.extend(batch)
                raise ValueError('broken')
            return [cells.Verdict(cell, True) for cell in batch]
        planned = plan.batches(plan.all_cells(STEPS), 8)
        self.assertRaises(ValueError, self.benches(kept, fail_once).run,
                          planned)
        self.assertEqual(set(plan.all_cells(STEPS)) - set(failed),
                         set(kept.verdicts))
