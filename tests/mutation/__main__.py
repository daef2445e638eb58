# SPDX-License-Identifier: Apache-2.0
"""``make mutations``: change the data path, see whether a test notices."""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

from lab.core import install
from lab.core import process
from tests import mutation
from tests.mutation import mutants as all_mutants
from tests.mutation import runs

KILLED, TIMED_OUT, SURVIVED, EQUIVALENT = (
    'killed', 'timed out', 'survived', 'equivalent')
AT_ONCE = 2
#: Tests that take minutes; and those of this, which looks at other functions.
LEFT_OUT = ('_at_every_two', '.test_mutation.')
DIFF_LINES = 12


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python3 -m tests.mutation', description='Changes the data path '
        'in one place at a time and shows what no unit test notices.')
    top.add_argument('--list', action='store_true',
                     help='show the mutants, run none')
    top.add_argument('--only', metavar='REGEX', default='',
                     help='mutants whose ids are like it')
    top.add_argument('--sample', type=int, default=1, metavar='N',
                     help='only every Nth, chosen by their ids')
    top.add_argument('--resume', metavar='FILE', help='keep verdicts here '
                     '(JSON); what was killed is not run again, nor is a '
                     'survivor as long as code and tests are the same')
    top.add_argument('--score', type=float, metavar='PERCENT',
                     help='exit with 1 if less is killed')
    return top


def read():
    """All mutants there are, and the texts of the whole package by path."""
    package = mutation.ROOT / mutation.PACKAGE
    texts = {str(path.relative_to(package)): path.read_text()
             for path in sorted(package.rglob('*.py'))}
    return [mutant for path in mutation.modules()
            for mutant in all_mutants.mutants(
                path, texts[path], words=path.startswith('storage/privsep/'))
            ], texts


def wanted(mutants, options):
    """Those that were asked for; the same ones each time."""
    return [each for each in mutants if re.search(options.only, each.id)
            and not _number(each.id) % options.sample]


def _number(identity):
    return int(hashlib.sha256(identity.encode()).hexdigest()[:12], 16)


def show(mutant):
    """A mutant as it is read."""
    lines = mutant.diff
    print('%s\n  %s/%s:%d' % (
        mutant.id, mutation.PACKAGE, mutant.path, mutant.line))
    for line in lines[:DIFF_LINES]:
        print('    ' + line)
    if len(lines) > DIFF_LINES:
        print('    ... %d more lines' % (len(lines) - DIFF_LINES))


class Verdicts:
    """What became of each mutant; kept in a file if there is one.

    :param path: of the file, or None
    :param sources: a digest of code and tests
    """

    def __init__(self, path, sources):
        self.path = path and pathlib.Path(path)
        self._sources = sources
        self._kept = {}
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            self._kept = {
                key: verdict for key, verdict in kept['verdicts'].items()
                if kept['sources'] == sources or verdict != SURVIVED}

    def get(self, mutant):
        return self._kept.get(mutant.id)

    def put(self, mutant, verdict):
        self._kept[mutant.id] = verdict
        if self.path:
            new = self.path.with_name(self.path.name + '.new')
            new.write_text(json.dumps(
                {'sources': self._sources, 'verdicts': self._kept},
                indent=1, sort_keys=True) + '\n')
            new.replace(self.path)


def sources():
    """A digest of all that a verdict depends on."""
    digest = hashlib.sha256()
    for directory in (mutation.PACKAGE, 'tests'):
        for path in sorted((mutation.ROOT / directory).rglob('*.py')):
            digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


class Run:
    """Runs mutants, two at once.

    :param mutants: that were asked for
    :param texts: of the package, by path
    :param verdicts: what is known; what is found is added
    """

    def __init__(self, mutants, texts, verdicts):
        self.mutants = mutants
        self.verdicts = verdicts
        self._forks = runs.Forks()
        self._uses = all_mutants.references(texts)
        self._began = time.monotonic()
        self._functions = None
        self.broken = []

    def say(self, text):
        print('%7.1f s  %s' % (time.monotonic() - self._began, text),
              flush=True)

    def run(self):
        """Run all that has no verdict.

        :raises RuntimeError: if a test fails without any mutant
        """
        todo = [each for each in self.mutants
                if not self.verdicts.get(each)]
        self.say('%d mutants, %d of them to be run' % (
            len(self.mutants), len(todo)))
        if not todo:
            return
        try:
            tests, self._functions = runs.load(LEFT_OUT)
            self.say('%d tests (without *%s*)' % (
                len(tests), '*, *'.join(LEFT_OUT)))
            reach = self._look(tests)
            self._run(todo, tests, reach)
        finally:
            with process.uninterrupted():
                self._forks.end()

    def _look(self, tests):
        reach = runs.Reach()
        package = str(mutation.ROOT / mutation.PACKAGE) + os.sep

        def look():
            reach.record(tests, package)
            return reach

        def measure():
            reach.measure(tests)
            return reach
        reach = self._forks.result(look)
        self.say('known what each test executes')
        reach = self._forks.result(measure)
        self.say('all pass, in %.0f s of one processor' % sum(
            reach.seconds.values()))
        return reach

    def _places(self, mutant):
        """Where a mutant is executed: (file, first line, last line)."""
        found = [(mutant.path, *mutant.lines)] if mutant.root else [
            place for name in mutant.where.split(',')
            for place in self._uses.get(name, ())]
        return [(str(mutation.ROOT / mutation.PACKAGE / path), first, last)
                for path, first, last in found]

    def _run(self, todo, tests, reach):
        waiting, told = list(reversed(todo)), time.monotonic()
        while waiting or len(self._forks):
            while waiting and len(self._forks) < AT_ONCE:
                self._start(waiting.pop(), tests, reach)
            if len(self._forks):
                self._judge(*self._forks.ended())
            if time.monotonic() > told + 30:
                told = time.monotonic()
                self.say('%d of %d' % (
                    len(todo) - len(waiting) - len(self._forks), len(todo)))

    def _start(self, mutant, tests, reach):
        names = reach.of(self._places(mutant))
        if names:
            self._forks.start(
                lambda: runs.check(mutant, self._functions,
                                   [tests[name] for name in names]),
                sum(reach.seconds[name] for name in names), mutant)
        else:
            self._judge(mutant, runs.PASSED)  # no test comes there

    def _judge(self, mutant, code):
        if code == runs.BROKEN:
            self.broken.append(mutant)
            return
        verdict = {None: TIMED_OUT, runs.FAILED: KILLED}.get(code, SURVIVED)
        self.verdicts.put(mutant, verdict)
        if verdict == SURVIVED:
            self.say('survived: %s' % mutant.id)


def equivalents():
    """The mutants that nothing can notice: id and reason."""
    import yaml  # not in the Python that installs
    return yaml.safe_load(mutation.EQUIVALENT.read_text()) or {}


def report(mutants, verdicts, known):
    """Show what has been found.

    :param known: ids of equivalent ones
    :returns: per cent killed of those that are not equivalent
    """
    survivors = [each for each in mutants
                 if verdicts.get(each) == SURVIVED and each.id not in known]
    if survivors:
        print('\nNo test notices:\n')
    for each in survivors:
        show(each)
    rows = collections.defaultdict(collections.Counter)
    rows['all'].clear()
    for each in mutants:
        verdict = verdicts.get(each)
        if verdict == SURVIVED and each.id in known:
            verdict = EQUIVALENT
        for row in (each.path, 'all'):
            rows[row][verdict] += 1
    columns = (KILLED, TIMED_OUT, SURVIVED, EQUIVALENT)
    print('\n%-26s %8s %8s %9s %8s %10s %6s' % (
        'module', 'mutants', *columns, 'score'))
    total = rows.pop('all')
    for path, row in (*rows.items(), ('all', total)):
        print('%-26s %8d %8d %9d %8d %10d %5.1f%%' % (
            path, sum(row.values()), *[row[each] for each in columns],
            _score(row)))
    return _score(total)


def _score(row):
    able = row[KILLED] + row[TIMED_OUT] + row[SURVIVED]
    return 100 * (row[KILLED] + row[TIMED_OUT]) / able if able else 100


def errors(mutants, verdicts, known, broken):
    """What is wrong with the list of equivalent ones, and with mutants.

    :param mutants: all there are
    """
    by_id = {each.id: each for each in mutants}
    for identity in known:
        if identity not in by_id:
            yield '%s: there is no such mutant (any more): %s' % (
                mutation.EQUIVALENT.name, identity)
        elif verdicts.get(by_id[identity]) in (KILLED, TIMED_OUT):
            yield '%s: a test notices it: %s' % (
                mutation.EQUIVALENT.name, identity)
    for each in broken:
        yield 'could not be run: %s' % each.id


def main(argv=None):
    """Run or show what is asked for; the exit code."""
    options = parser().parse_args(argv)
    mutants, texts = read()
    chosen = wanted(mutants, options)
    if options.list:
        for each in chosen:
            show(each)
        print('%d of %d mutants' % (len(chosen), len(mutants)))
        return 0
    known = equivalents()
    verdicts = Verdicts(options.resume, sources())
    run = Run(chosen, texts, verdicts)
    with tempfile.TemporaryDirectory(prefix='mutation-') as directory:
        tempfile.tempdir = directory  # what killed tests leave goes, too
        try:
            run.run()
        except RuntimeError as exc:
            print('This fails without any mutant:\n%s' % exc,
                  file=sys.stderr)
            return 1
        finally:
            tempfile.tempdir = None
    score = report([each for each in chosen if verdicts.get(each)], verdicts,
                   known)
    wrong = list(errors(mutants, verdicts, known, run.broken))
    if options.score is not None and score < options.score:
        wrong.append('%.1f %% are killed, not %g %%' % (score, options.score))
    for text in wrong:
        print(text, file=sys.stderr)
    return int(bool(wrong))


def go_on_in_venv():
    """With OpenStack; it is made if there is none."""
    venv = install.unit_venv(print)
    if pathlib.Path(sys.prefix) != venv:
        python = str(venv / 'bin/python')
        os.execve(python, [python, '-W', 'ignore', '-m', 'tests.mutation',
                           *sys.argv[1:]], dict(
            os.environ, PYTHONDONTWRITEBYTECODE='1', PYTHONHASHSEED='0',
            PYTHONWARNINGS='ignore',
            PATH='%s/bin:%s' % (venv, os.environ['PATH'])))


if __name__ == '__main__':
    # A shell's background jobs ignore it; this must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if '--list' not in sys.argv:
            go_on_in_venv()
        sys.exit(main())
    except process.LabError as exc:
        sys.exit('%s' % exc)
    except KeyboardInterrupt:
        sys.exit('interrupted')
