# SPDX-License-Identifier: Apache-2.0
"""What is known of the cells: kept in a file, shown, summed up."""

import collections
import json
import os
import pathlib
import threading
import time

from lab.core import report
from lab.faults import cells
from lab.faults import plan
from lab.faults import whole_operation


def _json_by_line(kept):
    """A line for each part of a list, so that changes can be read."""
    return '{%s}\n' % ',\n'.join('%s: %s' % (
        json.dumps(name), '[\n%s]' % ',\n'.join(map(json.dumps, value))
        if isinstance(value, list) else json.dumps(value))
        for name, value in kept.items())


def _kept(verdict):
    """A verdict as the file has it, without its cell."""
    return {'ok': verdict.ok, 'seconds': round(verdict.seconds, 1),
            'run': verdict.run,
            **({} if verdict.lost is None else {'lost': verdict.lost}),
            **({} if verdict.ok else {
                'reason': verdict.reason, 'log': verdict.log,
                'reached': verdict.reached})}


class Results:
    """Steps, verdicts, and the runs that they are from.

    :param path: of the file (JSON), which is what the documentation has its
        table from; what it says already is not run again
    """

    def __init__(self, path=None):
        self.path = pathlib.Path(path) if path else None
        self.runs = []
        self.steps = {}
        #: The newest verdict of each cell; and those before it, oldest first.
        self.verdicts = {}
        self.before = collections.defaultdict(list)
        self._lock = threading.Lock()
        self._began = None
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            self.runs, self.steps = kept['runs'], kept['steps']
            for each in kept['cells']:
                cell = cells.Cell(*each.pop('cell'))
                self.before[cell] = [cells.Verdict(cell, **earlier)
                                     for earlier in each.pop('before', ())]
                self.verdicts[cell] = cells.Verdict(cell, **each)

    def begin(self, **facts):
        """What follows is of one more run.

        :param facts: commit, kernel, labs
        """
        self._began = time.monotonic()
        self.runs.append(dict(facts, seconds=0, began=time.strftime(
            '%Y-%m-%d %H:%M', time.gmtime())))

    def holds(self, cell):
        """Whether a cell is known to hold."""
        return cell in self.verdicts and self.verdicts[cell].ok

    def add_steps(self, name, steps):
        """Keep the steps of an operation."""
        with self._lock:
            self.steps[name] = steps
            self._save()

    def add(self, verdicts):
        """Keep verdicts of this run, and those that they follow."""
        with self._lock:
            for verdict in verdicts:
                verdict.run = len(self.runs) - 1
                if verdict.cell in self.verdicts:
                    self.before[verdict.cell].append(
                        self.verdicts[verdict.cell])
                self.verdicts[verdict.cell] = verdict
            self._save()

    def _save(self):
        self.runs[-1]['seconds'] = round(time.monotonic() - self._began)
        if self.path:
            fresh = self.path.with_suffix('.new')
            fresh.write_text(_json_by_line(dict(
                self.summary(), steps=self.steps, cells=[
                    {'cell': [v.cell.operation, v.cell.step, v.cell.fault],
                     **_kept(v), **({'before': list(map(
                         _kept, self.before[v.cell]))}
                         if self.before.get(v.cell) else {})}
                    for v in self.verdicts.values()], runs=self.runs)))
            os.replace(fresh, self.path)

    # -- showing

    @property
    def failed(self):
        """The verdicts of the cells that do not hold."""
        return [v for v in self.verdicts.values()
                if v.reached and not v.ok]

    @property
    def unreached(self):
        """The verdicts of the cells whose steps did not occur."""
        return [v for v in self.verdicts.values() if not v.reached]

    def failures_before(self, cell):
        """The verdicts by which a cell failed that holds now."""
        return [v for v in self.before.get(cell, ())
                if v.reached and not v.ok] if self.holds(cell) else []

    @property
    def held_later(self):
        """The cells that hold now, and failed before."""
        return [cell for cell in self.verdicts if self.failures_before(cell)]

    def summary(self):
        """All of it in short: the table of the documentation.

        A row is operation, fault, how many cells there are, have run and
        hold, the seconds that they took, how many were not reached, and how
        many of those that hold have failed before. Runs without any verdict
        are not named.
        """
        rows = collections.OrderedDict()
        for cell in plan.all_cells(self.steps):
            row = rows.setdefault((cell.operation, cell.fault), [0] * 6)
            row[0] += 1
            verdict = self.verdicts.get(cell)
            if verdict:
                row[1] += 1
                row[2] += verdict.ok
                row[3] += verdict.seconds
                row[4] += not verdict.reached
                row[5] += bool(self.failures_before(cell))
        used = {verdict.run for cell in self.verdicts
                for verdict in (self.verdicts[cell],
                                *self.before.get(cell, ()))}
        return {'named': sorted(used),
                'rows': [[*names, *counts[:3], round(counts[3]), *counts[4:]]
                         for names, counts in rows.items()]}

    def _word(self, cell):
        verdict = self.verdicts.get(cell)
        failed = len(self.failures_before(cell))
        return '.' if verdict is None else verdict.word + (
            ', %d FAIL' % failed if failed else '')

    def table(self):
        """The matrix: a row for each step, a column for each fault."""
        every = plan.all_cells(self.steps)
        lines = []
        for name, taken in plan.sections(self.steps).items():
            faults = cells.faults_of(name)
            lines += ['', report.table((name, *faults), [
                ('%3d %s' % (number, step), *(
                    self._word(cell) if cell in every else ''
                    for cell in (cells.Cell(name, step, fault)
                                 for fault in faults)))
                for number, step in enumerate(taken)])]
        lines += ['', report.table(('across the whole', ''), [
            ('    %s, %s' % (operation, name), self._word(cells.Cell(
                operation, whole_operation.WHOLE, name)))
            for name, operation in whole_operation.names()])]
        for verdict in self.failed:
            lines.append(report.entry('FAIL %s' % verdict.cell,
                                      [verdict.reason], verdict.log))
        for cell in self.held_later:
            lines.append(report.entry('FAILED BEFORE, holds now: %s' % cell, [
                'commit %s: %s' % (self.runs[v.run]['commit'], v.reason)
                for v in self.failures_before(cell)]))
        count = sum(cell in self.verdicts for cell in every)
        lines += ['', '%d cells: %d hold (%d of them failed before), %d fail, '
                  '%d not reached; %d not run' % (
                      count, sum(map(self.holds, every)),
                      len(self.held_later), len(self.failed),
                      len(self.unreached), len(every) - count)]
        return '\n'.join(lines)
