# SPDX-License-Identifier: Apache-2.0
"""Runs the cells, situation by situation; volumes side by side."""

import time
import traceback

from lab.core import process
from lab.core.process import in_parallel
from lab.operations import environment as environments
from lab.operations import plan
from lab.operations import results as result
from lab.operations import situations
from lab.scenarios import disk as disks
from lab.scenarios.once import OPERATIONS
from lab.scenarios import requests

#: Volumes that something is asked of, and new ones, at a time: the nodes are
#: small.
TOGETHER, AT_ONCE = 5, 8
#: Seconds for the owner to be told, and for nothing to be left of a request
#: that was refused.
TOLD, UNDONE = 15, 40


def in_words(error):
    """An error for who reads the table."""
    return str(error)[:1500] if isinstance(error, (
        str, process.LabError, requests.Refused, requests.TakesTooLong)) else (
            ''.join(traceback.format_exception(error))[-1500:])


class Trial:
    """One cell on its volume."""

    def __init__(self, environment, place, cell, expected):
        self.environment = environment
        self.place = place
        self.cell = cell
        self.expected = expected
        self.operation = OPERATIONS[cell.operation](
            place, expected)
        self.verdict = ''
        self.reason = ''
        self.seconds = 0
        self._cleaned = False

    def fail(self, error):
        """Something of it is wrong; the first that is counts."""
        self.reason = self.reason or in_words(error)

    def ask(self):
        """While the situation lasts."""
        self._timed(self._ask)

    def _timed(self, act):
        began = time.monotonic()
        try:
            act()
        except Exception as exc:
            self.fail(exc)
        self.seconds += time.monotonic() - began

    def _ask(self):
        self.place.check()
        volume = self.place.disk.volume
        self.operation.prepare()
        told = self.environment.told()
        before = self.expected.is_refused and (
            self.environment.footprint(volume))
        try:
            self.verdict = self.operation.ask()
        except requests.Refused:
            self.verdict = self._refused(told, volume)
            self.clean()  # it might be in the way of others
            if self.verdict != self.expected.verdict:
                raise
        except requests.TakesTooLong as exc:
            self.verdict = 'waits'
            if self.expected.word != 'waits':
                raise process.LabError(str(exc))
        if before:
            self._check_untouched(before, volume)
        if self.verdict == 'waits':
            self.place.check()

    def _refused(self, told, volume):
        """'refused', with what the owner was told."""
        deadline = time.monotonic() + (TOLD if self.expected.code else 0)
        while True:
            codes = self.environment.codes(told, volume)
            if codes or time.monotonic() > deadline:
                return ' '.join(['refused', *codes])
            time.sleep(1)

    def _check_untouched(self, before, volume):
        deadline = time.monotonic() + UNDONE
        while True:
            changed = environments.changes(
                before, self.environment.footprint(volume))
            if not changed:
                return
            if time.monotonic() > deadline:
                raise process.LabError('not as before: ' + changed)
            time.sleep(1)

    def finish(self):
        """When the situation is over: what has waited."""
        if self.verdict == 'waits' and not self.reason:
            self._timed(self.operation.finish)

    def clean(self):
        """Take away what it has made, once."""
        if not self._cleaned:
            self._cleaned = True
            self._timed(self.operation.clean)

    def found(self, log):
        """What it has shown."""
        found = result.judged(self.cell, self.expected, self.verdict,
                              self.reason)
        found.seconds = round(self.seconds, 1)
        found.log = log if found.reason else []
        return found


class Round:
    """Cells that share what is true of the whole lab.

    :param say: called with a line of progress
    """

    def __init__(self, environment, table, results, cells):
        self.environment = environment
        self.table = table
        self.results = results
        self.say = environment.say
        self.chains = plan.chains(cells, table.expected,
                                  OPERATIONS)
        self.places = []
        self.trials = {}
        self.marks = environment.log_marks()

    def run(self):
        """Into the situations, ask, out of them, prove, clear up."""
        try:
            for part in (self._create, self._bring_and_ask, self._end,
                         self._settle):
                self._timed(part)
        except Exception as exc:
            self._leaves(in_words(exc))
        self._timed(self._clear)

    def _leaves(self, text):
        self.say('  ' + text[:500])
        self.results.leaves('%s: %s' % (', '.join(sorted({
            chain.situation for chain in self.chains})), text))

    def _timed(self, part):
        began = time.monotonic()
        part()
        self.say('  %s: %.0f s' % (part.__name__.strip('_'),
                                   time.monotonic() - began))

    def _create(self):
        """A volume for each chain, a few at a time."""
        first = self.environment.nodes['node1']
        for begin in range(0, len(self.chains), AT_ONCE):
            chains = self.chains[begin:begin + AT_ONCE]
            for chain, volume in zip(chains, self.environment.create(
                    first, len(chains))):
                kind = situations.SITUATIONS[chain.situation]
                place = kind(self.environment, chain, disks.Disk(
                    self.environment.lab, volume, layout=disks.SAMPLED))
                self.trials[place] = [
                    Trial(self.environment, place, cell,
                          self.table.expected[cell]) for cell in chain.cells]

    def _bring_and_ask(self):
        """Those that wait for a move are first, while nothing is slow."""
        for slow in (False, True):
            places = [place for place in self.trials if place.slow == slow]
            if places:
                places[0].slow_down(self.environment)
                in_parallel([lambda p=place: self._bring(p)
                             for place in places], TOGETHER)
        if any(place.all_at_once for place in self.places):
            situations.together(self.environment, self.places, 'begin')
            self._each(self._ask)

    def _bring(self, place):
        try:
            place.prepare(any(trial.operation.reads
                              for trial in self.trials[place]))
        except Exception as exc:
            for trial in self.trials[place]:
                trial.fail('it could not be brought about: ' + in_words(exc))
                self._tell(trial)
            return
        self.places.append(place)
        if not place.all_at_once:
            self._ask(place)

    def _each(self, act):
        in_parallel([lambda p=place: act(p) for place in self.places],
                    TOGETHER)

    def _ask(self, place):
        for trial in self.trials[place]:
            trial.ask()
            self.say('    %-12s %s (%.0f s)%s' % (
                trial.verdict or '?', trial.cell, trial.seconds,
                ': ' + trial.reason[:200] if trial.reason else ''))

    def _end(self):
        self._each(self._let_go)
        situations.together(self.environment, self.places, 'end')

    def _let_go(self, place):
        if any(trial.verdict == 'waits' for trial in self.trials[place]):
            return  # what has its volume in that status
        try:
            place.let_go()
        except Exception as exc:
            for trial in self.trials[place]:
                trial.fail('afterwards: ' + in_words(exc))

    def _settle(self):
        def settle(place):
            trials = self.trials[place]
            try:
                place.leave()
                for trial in trials:
                    trial.finish()
                if not place.disk.gone:
                    place.disk.settle()
            except Exception as exc:
                for trial in trials:
                    trial.fail('afterwards: ' + in_words(exc))
            for trial in trials:
                trial.clean()
                self._tell(trial)
        self._each(settle)

    def _tell(self, trial):
        found = trial.found(self.environment.log_since(
            self.marks, trial.place.disk.volume))
        self.results.add(found)
        if found.reason:
            self.say('    FAIL %s: %s: %s' % (
                trial.cell, found.verdict, found.reason[:300]))

    def _clear(self):
        self.environment.heal()
        try:
            self.environment.clear()
        except process.LabError as exc:
            self._leaves(str(exc))


def run(environment, table, results, cells):
    """Run some cells.

    :returns: whether all hold
    """
    wanted = [cell for cell in cells if not results.holds(cell)]
    done = 0
    for chosen in plan.rounds(wanted):
        environment.say('%s: %d cells' % (', '.join(sorted(
            {cell.situation for cell in chosen})), len(chosen)))
        Round(environment, table, results, chosen).run()
        done += len(chosen)
        environment.say('%d of %d cells' % (done, len(wanted)))
    return not results.left and all(map(results.holds, cells))
