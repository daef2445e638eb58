# SPDX-License-Identifier: Apache-2.0
"""Figures of a run of the bench, as the documentation shows them."""

import json
import pathlib
import sys

import testtools

from lab.bench import __main__ as bench

DOC = pathlib.Path(__file__).parents[2] / 'doc/source'
sys.path.insert(0, str(DOC / '_ext'))
import bench_table  # noqa: E402

RUN = {'commit': 'abc', 'kernel': '7.2', 'began': '2026-11-22 10:00',
       'seconds': 2401}


def row(name, value=12.3456, beside=10.0, ratio=1.235):
    return {'name': name, 'value': value, 'unit': 's', 'beside': beside,
            'ratio': ratio}


class BenchTableTest(testtools.TestCase):

    def test_rows_by_chapter(self):
        lines = bench_table.rst({
            'encrypted': dict(RUN, rows=[
                row('attach_encrypted', 1234.5, None, None)]),
            'at_rest': dict(RUN, rows=[row('randread_4k_handle')])})
        self.assertEqual([
            '.. list-table:: A volume at rest',
            '.. list-table:: Encryption by the driver',
            '.. list-table:: Chapters of the bench'],
            [line for line in lines if line.startswith('..')])
        first = lines.index('   * - 4 KiB random reads')
        self.assertEqual(['     - 12.3 s', '     - the LV alone',
                          '     - 10', '     - 1.24'],
                         lines[first + 1:first + 5])
        last = lines.index('   * - attach at home')
        self.assertEqual('     - 1234 s', lines[last + 1])
        self.assertEqual(['     - ', '     - '], lines[last + 3:last + 5])
        measured = lines.index('   * - at_rest')
        self.assertEqual(['     - ``abc``', '     - 7.2',
                          '     - 2026-11-22 10:00', '     - 41'],
                         lines[measured + 1:measured + 5])

    def test_a_figure_without_a_text(self):
        self.assertIn('new_one', str(self.assertRaises(
            KeyError, bench_table.rst,
            {'at_rest': dict(RUN, rows=[row('new_one')])})))

    def test_the_kept_runs(self):
        for path in (DOC / 'decide').glob('bench*.json'):
            kept = json.loads(path.read_text())
            self.assertTrue(bench_table.rst(kept))
            self.assertEqual([], sorted(kept.keys() - bench.CHAPTERS.keys()))
