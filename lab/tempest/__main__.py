# SPDX-License-Identifier: Apache-2.0
"""``make tempest``: the community's tests against a lab, a table."""

import itertools
import re
import sys
import time

from lab import command as commands
from lab.core import process
from lab.core import report as reports
from lab.tempest import cloud
from lab.tempest import kept
from lab.tempest import results
from lab.tempest import service_logs
from lab.tempest import settings
from lab.tempest import skipped
from lab.tempest import suite
from lab.tempest import venv


def chosen(tests, only) -> list:
    """The names that an expression is found in."""
    return [each for each in tests if re.search(only, each)]


class Tempest:
    """One run.

    :param report: a :class:`lab.core.report.Report`
    """

    def __init__(self, lab, options, report):
        self.lab = lab
        self.options = options
        self.report = report
        self.kept = kept.Kept(options.resume)

    def run(self):
        """Prepare, run, show."""
        began = time.monotonic()
        self.reasons = skipped.read(skipped.PATH.read_text())
        # Not with the lab's own files: those are gone with it.
        tempest = suite.Suite(self.lab, venv.path(self._say),
                              self.lab.logs / 'tempest')
        tempest.configure(settings.tempest(
            cloud.prepare(self.lab), tempest.directory,
            len(self.lab.nodes)))
        every = tempest.tests()
        names = chosen(every, self.options.only)
        if not names:
            raise process.LabError('no test has %s' % self.options.only)
        left_out = {each for each in names
                    if skipped.reason(self.reasons, each)}
        before = self.kept.outcomes(
            each for each in names if each not in left_out)
        passed = {each.name for each in before}
        wanted = [each for each in names if each not in left_out | passed]
        self.report.step('configured', time.monotonic() - began,
                         '%d tests, %d of them to be run' % (
                             len(names), len(wanted)))
        began = time.monotonic()
        told = self._told(tempest, [every[each] for each in wanted])
        outcomes = before + results.of_all(wanted, told) + [
            results.Outcome(each, results.SKIPPED, 0,
                            skipped.reason(self.reasons, each))
            for each in sorted(left_out)]
        self.report.step('run', time.monotonic() - began)
        self._show(outcomes, left_out, skipped.unknown(self.reasons, every))

    @staticmethod
    def _say(text):
        print(text, flush=True)

    def _told(self, tempest, ids):
        """The outcomes of tests, each shown when it is known."""
        told, number = [], itertools.count(1)

        def tell(outcome):
            told.append(outcome)
            self.kept.keep(outcome)
            self._say('[%3d/%d] %6.1f s %-7s %s' % (
                next(number), len(ids), outcome.seconds, outcome.status,
                outcome.name))
            if outcome.cause:
                self._say(' ' * 20 + outcome.cause)
            if outcome.status == results.FAILED:
                for line in service_logs.of_nodes(
                        self.lab.logs, time.time(), outcome.seconds):
                    self._say(' ' * 20 + line)
        if ids:
            tempest.run(ids, self.options.workers, tell)
        return told

    def _show(self, outcomes, left_out, unknown):
        unexpected = [each.name for each in outcomes
                      if each.status == results.SKIPPED
                      and each.name not in left_out]
        for status in (results.SKIPPED, results.FAILED):
            for cause, names in results.by_cause(outcomes, status):
                self._say(reports.entry('%s (%d): %s' % (
                    status, len(names), cause), names))
        table = results.rows(outcomes)
        numbers = ('tests', results.PASSED, results.FAILED, results.SKIPPED)
        self._say('\n' + reports.table(('suite', *numbers), table, numbers))
        self.report.check('no test failed', not table[-1][3],
                          '%d failed' % table[-1][3])
        self.report.check('all that was skipped is in skipped.yaml',
                          not unexpected,
                          '%d are not' % len(unexpected))
        self.report.check('all that is in skipped.yaml exists', not unknown,
                          ', '.join(unknown))


def main():
    """The command; its exit code."""
    command = commands.Command(
        'tempest', 'lab.tempest', 'Tempest',
        'Bring up two real nodes with Nova and run Tempest\'s tests of '
        'volumes, live migration and attached volumes.',
        lab_name='tempest', nova=True, keys=True,
        options={'localclone_enable_online_extend': True})
    command.parser.add_argument('--only', default='', metavar='REGEX',
                                help='only tests whose names have it')
    command.parser.add_argument('--resume', metavar='FILE',
                                help='keep here which tests have passed, '
                                'and run only the others')
    command.parser.add_argument('--workers', type=int, default=2,
                                help='tests at a time (default 2)')
    return command.main(lambda lab, options, report: Tempest(
        lab, options, report).run())


if __name__ == '__main__':
    sys.exit(main())
