# SPDX-License-Identifier: Apache-2.0
"""Labs side by side that run the cells, from one queue."""

import threading
import time

from lab.core import process
from lab.faults import cells
from lab.faults import discovery
from lab.faults import gone
from lab.faults import whole_operation
from lab.scenarios import repeated as operations


class Bench:
    """One lab.

    :param stopping: an Event; once it is set nothing is rebuilt
    """

    def __init__(self, environment, results, stopping):
        self.environment = environment
        self.results = results
        self.stopping = stopping
        self.say = environment.say

    def discover(self, name):
        """Run an operation undisturbed; note its steps."""
        began = time.monotonic()
        try:
            steps = discovery.discover(self.environment, name,
                                       self.environment.pool)
        except process.LabError as exc:
            # No run of hours ends for what may happen once.
            self.say('%s, undisturbed: %s' % (name, str(exc)[:500]))
            self.environment.rebuild()
            steps = discovery.discover(self.environment, name,
                                       self.environment.pool)
        self.results.add_steps(name, steps)
        self.say('%s: %d steps, undisturbed in %.0f s' % (
            name, len(steps), time.monotonic() - began))

    def run(self, batch):
        """Run a batch; its verdicts, which are kept."""
        began = time.monotonic()
        self.say('%s: %d cell%s' % (
            ', '.join(sorted({cell.fault for cell in batch})), len(batch),
            's' * (len(batch) > 1)))
        verdicts = self._run(batch)
        for verdict in verdicts:
            self.say('  %-4s %s%s' % (
                verdict.word, verdict.cell,
                ': ' + verdict.reason[:300] if verdict.reason else ''))
        self.say('  %.0f s' % (time.monotonic() - began))
        self.results.add(verdicts)
        return verdicts

    def _run(self, batch):
        self._ensure_fit()
        kind = cells.Batch
        if batch[0].step == whole_operation.WHOLE:
            kind = whole_operation.WholeOperation
        elif batch[0].fault in cells.GONE:
            kind = gone.Batch
        running = kind(self.environment, batch, self.environment.pool)
        verdicts = running.run()
        try:
            running.clean()
        except (process.LabError, OSError) as exc:
            self.say('  clean-up: %s' % str(exc)[:500])
            if all(verdict.ok or not verdict.reached
                   for verdict in verdicts):
                for verdict in verdicts:
                    verdict.ok, verdict.reached = False, True
                    verdict.reason = 'clean-up: %s' % str(exc)[:1000]
            if self.stopping.is_set():
                raise
            self.environment.rebuild()
        return verdicts

    def _ensure_fit(self):
        """What a cell has broken does not fail the next ones.

        Blocks of the pools are dirty then, so that what is not written shows.
        """
        try:
            process.in_parallel([
                lambda n=node: self.environment.dirty(n)
                for node in self.environment.nodes.values()])
        except (process.LabError, OSError) as exc:
            self.say('  this lab is broken: %s' % str(exc)[:500])
            self.environment.rebuild()


class Matrix:
    """All cells, run by one lab or by several."""

    def __init__(self, environments, results):
        self.results = results
        self.stopping = threading.Event()
        self.benches = [Bench(each, results, self.stopping)
                        for each in environments]

    def discover(self):
        """Note the steps of the operations of which they are not known."""
        # Completion is the second half of a move.
        names = [name for name, kind in operations.OPERATIONS.items()
                 if name not in self.results.steps
                 and kind is not operations.moves.Completion]
        self._share(lambda: names.pop() if names else None, Bench.discover)

    def run(self, work):
        """Run batches of cells, from one :class:`.work.Work`."""
        def run(bench, batch):
            bench.say(work.note(bench.run(batch)))
        self._share(work.take, run)

    def _share(self, take, act):
        """Each lab takes the next job until there are none.

        One that fails takes no more; the others go on.

        :param take: returns a job, or None
        :raises Exception: the first error, when all have ended
        """
        errors = []

        def work(bench):
            try:
                while not self.stopping.is_set():
                    job = take()
                    if job is None:
                        break
                    act(bench, job)
            except Exception as exc:
                bench.say('this lab takes no more: %s' % str(exc)[:500])
                errors.append(exc)
        # Daemons: who interrupts need not wait for them.
        threads = [threading.Thread(target=work, args=(bench,), daemon=True)
                   for bench in self.benches]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            self.stopping.set()
            raise
        if errors:
            raise errors[0]
