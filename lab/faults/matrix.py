# SPDX-License-Identifier: Apache-2.0
"""Rows, columns and verdicts; what is known is kept in a file."""

import json
import os
import pathlib
import time

from lab.core import process
from lab.faults import cells
from lab.faults import operations
from lab.faults import whole_operation

#: So many at once have an answer within the limits of their requests.
ASKING = 5


def sections(steps):
    """The steps of each operation, with completion as one of its own."""
    by_name = {}
    for name, taken in steps.items():
        if name == operations.Move.name:
            cut = next(index for index, step in enumerate(taken)
                       if step == 'destination enable_hydration') + 1
            by_name[name] = taken[:cut]
            by_name[operations.Completion.name] = taken[cut:]
        else:
            by_name[name] = taken
    return by_name


def all_cells(steps):
    """All cells: every step with every fault, then whole operations."""
    at_steps = [cells.Cell(name, step, fault)
                for name, taken in sections(steps).items()
                for fault in cells.FAULTS for step in taken]
    return at_steps + [cells.Cell(operation, whole_operation.WHOLE, name)
                       for name, operation in whole_operation.names()]


def batches(wanted, width):
    """Cells that can run together: those of one fault, as many as can be
    at their steps at once.
    """
    planned, together = [], {}
    for cell in wanted:
        if cell.step == whole_operation.WHOLE:
            planned.append([cell])
        else:
            slow = operations.OPERATIONS[cell.operation].slow
            together.setdefault((cell.fault, slow), []).append(cell)
    for group in together.values():
        alone = [cell for cell in group if cell.step in cells.ALONE]
        asking = [cell for cell in group
                  if cell.step in cells.BEFORE_ANSWER - cells.ALONE]
        others = [cell for cell in group
                  if cell.step not in cells.BEFORE_ANSWER]
        count = max(-(-(len(asking) + len(alone)) // ASKING), len(alone),
                    -(-len(group) // width))
        # Every nth: neighbours differ, so do their moments.
        ordered = alone + asking + others
        planned += [ordered[index::count] for index in range(count)]
    return planned


class Matrix:
    """All cells, their verdicts, and the file that keeps them.

    :param path: of the file; what it says already is not run again
    """

    def __init__(self, environment, path=None, say=print):
        self.environment = environment
        self.path = pathlib.Path(path) if path else None
        self.say = say
        self.steps = {}
        self.verdicts = {}
        self.pool = {}
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            self.steps = kept['steps']
            for each in kept['cells']:
                cell = cells.Cell(*each.pop('cell'))
                self.verdicts[cell] = cells.Verdict(cell, **each)

    def save(self):
        """Keep steps and verdicts in the file, if there is one."""
        if self.path:
            fresh = self.path.with_suffix('.new')
            fresh.write_text(json.dumps({
                'steps': self.steps, 'cells': [
                    {'cell': [v.cell.operation, v.cell.step, v.cell.fault],
                     'ok': v.ok, 'reason': v.reason, 'log': v.log,
                     'seconds': round(v.seconds, 1)}
                    for v in self.verdicts.values()]}, indent=1))
            os.replace(fresh, self.path)

    def empty_pool(self):
        """No volume is there to be used again."""
        self.pool = {name: [] for name in self.environment.nodes}

    def discover(self):
        """Run each operation once, undisturbed; note its steps."""
        for name, kind in operations.OPERATIONS.items():
            if name in self.steps or kind is operations.Completion:
                continue
            began = time.monotonic()
            self.steps[name] = cells.discover(
                self.environment, name, self.pool)
            self.say('%s: %d steps, undisturbed in %.0f s' % (
                name, len(self.steps[name]), time.monotonic() - began))
            self.save()

    def run(self, wanted, width):
        """Run what is wanted and not known to hold."""
        todo = [cell for cell in wanted if not (
            cell in self.verdicts and self.verdicts[cell].ok)]
        planned = batches(todo, width)
        for number, batch in enumerate(planned, 1):
            began = time.monotonic()
            self.say('batch %d of %d: %s, %d cell%s' % (
                number, len(planned), batch[0].fault, len(batch),
                's' * (len(batch) > 1)))
            for verdict in self._run(batch):
                self.verdicts[verdict.cell] = verdict
                self.say('  %-4s %s / %s%s' % (
                    'ok' if verdict.ok else 'FAIL', verdict.cell.operation,
                    verdict.cell.step,
                    '' if verdict.ok else ': ' + verdict.reason[:300]))
            self.say('  %.0f s' % (time.monotonic() - began))
            self.save()

    def _run(self, batch):
        if batch[0].step == whole_operation.WHOLE:
            kind = whole_operation.WholeOperation
        else:
            kind = cells.Batch
        running = kind(self.environment, batch, self.pool)
        verdicts = running.run()
        try:
            running.clean()
        except (process.LabError, OSError) as exc:
            self.say('  clean-up: %s' % str(exc)[:500])
            if all(verdict.ok for verdict in verdicts):
                for verdict in verdicts:
                    verdict.ok = False
                    verdict.reason = 'clean-up: %s' % str(exc)[:1000]
            self.empty_pool()
            self.environment.rebuild()
        return verdicts

    # -- showing

    def _word(self, cell):
        verdict = self.verdicts.get(cell)
        return '.' if verdict is None else 'ok' if verdict.ok else 'FAIL'

    def table(self):
        """The matrix: a row for each step, a column for each fault."""
        lines = []
        by_name = sections(self.steps) if self.steps else {}
        for name, taken in by_name.items():
            lines += ['', '%-42s %s' % (name, ' '.join(
                '%-11s' % fault.replace('destination', 'dest.')
                for fault in cells.FAULTS))]
            for number, step in enumerate(taken):
                lines.append('%3d %-38s %s' % (number, step, ' '.join(
                    '%-11s' % self._word(cells.Cell(name, step, fault))
                    for fault in cells.FAULTS)))
        lines += ['', 'across the whole']
        for name, operation in whole_operation.names():
            lines.append('    %-62s %s' % (
                '%s, %s' % (operation, name),
                self._word(cells.Cell(
                    operation, whole_operation.WHOLE, name))))
        failed = [v for v in self.verdicts.values() if not v.ok]
        for verdict in failed:
            lines += ['', 'FAIL %s' % verdict.cell, '    ' + verdict.reason]
            lines += ['    | ' + line for line in verdict.log]
        count = len(self.verdicts)
        lines += ['', '%d cells: %d hold, %d fail; %d not run' % (
            count, count - len(failed), len(failed),
            len(all_cells(self.steps)) - count)]
        return '\n'.join(lines)
