# SPDX-License-Identifier: Apache-2.0
"""The mutation tester, on sources of a few lines."""

import importlib
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest
from unittest import mock

import ddt
import fixtures
import testtools
import yaml

from cinder_localclone.storage import privsep
from tests import mutation
from tests.mutation import __main__ as command
from tests.mutation import mutants
from tests.mutation import runs
from tests.mutation import swap

# (operator, body of a function, what becomes of it)
CHANGES = (
    ('drop-call', 'a(1)', ['pass']),
    ('drop-call', 'LOG.info("said")', []),
    ('drop-call', 'x = a()', []),
    ('drop-store', 'a.b = 1', ['pass']),
    ('drop-store', 'del a[b]', ['pass']),
    ('drop-store', 'a = 1', []),
    ('drop-with', 'with lock(1):\n    a', ['if True:\n    a']),
    ('drop-with', 'with one, two() as x:\n    a',
     ['with two() as x:\n    a']),
    ('drop-with', 'with one() as x, two():\n    a',
     ['with one() as x:\n    a']),
    ('drop-with', 'with (one() if a else\n      two()):\n    b',
     ['if True:\n    b']),
    ('drop-raise', 'raise Error(why="a" + b)', ['pass']),
    ('drop-raise', 'try:\n    a\nexcept E:\n    raise',
     ['try:\n    a\nexcept E:\n    pass']),
    ('drop-handler', 'try:\n    a\nexcept E:\n    b\n    c',
     ['try:\n    a\nexcept E:\n    raise']),
    ('drop-handler', 'try:\n    a\nexcept E:\n    raise', []),
    ('change-return', 'return a(b)', ['return None']),
    ('change-return', 'return not a', []),
    ('change-return', 'return a and b', ['return not (a and b)']),
    ('change-return', 'return any(a)', ['return not (any(a))']),
    ('change-return', 'return None', []),
    ('reorder', 'a(1)\n# why\nb(2)', ['b(2)\n# why\na(1)']),
    ('reorder', 'a(1)\nreturn b(2)',
     ['early = b(2)\na(1)\nreturn early']),
    ('reorder', 'x = a()\nb(x)', []),
    ('reorder', 'x = a()\nb(y)', ['b(y)\nx = a()']),
    ('reorder', 'x = a()\ny = b()', []),
    ('reorder', 'if a(1):\n    raise b()\nc(2)',
     ['c(2)\nif a(1):\n    raise b()']),
    ('reorder', 'a(1)\nLOG.info("said")', []),
    ('negate', 'if a:\n    b', ['if not (a):\n    b']),
    ('negate', 'if a == b:\n    c', []),
    ('negate', 'x = a if b < c else d', ['x = a if not (b < c) else d']),
    ('negate-filter', 'x = [a for a in b if a.c]',
     ['x = [a for a in b if not (a.c)]']),
    ('drop-not', 'x = not a', ['x = (a)']),
    ('compare', 'x = a == b', ['x = a != b']),
    ('compare', 'x = a <= b < c', ['x = a < b < c', 'x = a <= b <= c']),
    ('compare', 'x = a is not b', ['x = a is b']),
    ('compare', 'x = (a or b) in c', ['x = (a or b) not in c']),
    ('and-or', 'x = a and (b or\n c)', [
        'x = a or (b or\n c)', 'x = a and (b and\n c)']),
    ('drop-condition', 'x = a and b and (c)', [
        'x = b and (c)', 'x = ((a) and (c))', 'x = ((a) and (b))']),
    ('constant', 'x = True, 7, "of", "", 0.2, None', [
        'x = False, 7, "of", "", 0.2, None',
        'x = True, 8, "of", "", 0.2, None',
        "x = True, 7, 'XXof', \"\", 0.2, None"]),
    ('constant', 'x = "It is a sentence."', []),
    ('drop-keyword', 'a(b, c=1, **d)', ['a(b, **d)']),
    ('drop-keyword', 'a(\n    b=1)', ['a(\n    )']),
    ('drop-step', 'flow.add(a(1), b(2))', ['flow.add(b(2))',
                                           'flow.add(a(1))']),
    ('swap-steps', 'flow.add(a(1), b(2))', ['flow.add(b(2), a(1))']),
    ('drop-link', 'x = a(1).b(2)', ['x = a(1)']),
    ('drop-refinement', 'a = a.b(1)', ['pass']),
    ('drop-refinement', 'a = c.b(1)', []),
    ('drop-element', 'x = (a, b)', ['x = (b,)', 'x = (a,)']),
    ('drop-element', 'x = [a, b]', ['x = [b]', 'x = [a]']),
    ('drop-element', 'a, b = c', []),
    ('drop-pair', 'x = {a: 1, b: 2}', ['x = {b: 2}', 'x = {a: 1}']),
)

SOURCE = '''
import functools

LIMIT = 3
TABLE = frozenset((1, 2))


def decorated(function):
    @functools.wraps(function)
    def wrapped(*args):
        return function(*args)
    return wrapped


class Base:

    def __init__(self):
        self.base = 'base'


class Thing(Base):
    """A docstring."""

    def __init__(self):
        super().__init__()
        self.own = 'own'

    @property
    def double(self):
        return 2 * LIMIT

    @property
    def half(self):
        return self._half

    @half.setter
    def half(self, value):
        self._half = value

    @staticmethod
    def outer(number: int = 5) -> int:
        """Another."""
        def inner(more):
            return number + 1 if more else number
        return inner(True)


@decorated
def plain(word):
    return word in TABLE
'''


def found(code, operator=''):
    """The mutants of a module, of one operator."""
    return [each for each in mutants.mutants('thing.py', code)
            if operator in ('', each.operator)]


@ddt.ddt
class OperatorsTest(testtools.TestCase):

    @ddt.data(*CHANGES)
    @ddt.unpack
    def test_changes(self, operator, body, expected):
        def function(text):
            return 'def f():\n' + textwrap.indent(text, '    ')
        self.assertEqual(
            [function(text) for text in expected],
            [each.text for each in found(function(body), operator)])

    def test_words_of_commands(self):
        code = 'def f():\n    x = "No such device"\n'
        self.assertEqual([], found(code))
        self.assertEqual(1, len(list(mutants.mutants('f', code, words=True))))

    def test_what_is_not_changed(self):
        code = ('@a(b=1)\ndef f(c: "d" = 1, *, e=True) -> "g":\n'
                '    """Says something."""\n'
                '    h: "i" = typing.cast(j["k"], l)\n'
                '    LOG.info("said", {"j": k()})\n'
                '    return f"{l} m"\n')
        self.assertEqual(['change-return'],
                         [each.operator for each in found(code)])

    def test_a_decorator_but_for_what_it_leaves_behind(self):
        code = ('def a(b):\n    x()\n    def c(d):\n        y()\n'
                '    return c\n\n@a\ndef e():\n    z()\n')
        self.assertEqual(['-        y()', '-    z()'],
                         [each.diff[0] for each in found(code)])

    def test_constants_of_a_module(self):
        code = ('A = 1\n_B, C = 2, 3\nd = 4\nE = make(5)\nF: int = 6\n'
                'G = H = 7\n')
        self.assertEqual([], found(code, 'drop-element'))
        self.assertEqual(
            [('A', 'A = 2'), ('_B,C', '_B, C = 3, 3'),
             ('_B,C', '_B, C = 2, 4'), ('F', 'F: int = 7'),
             ('G,H', 'G = H = 8')],
            [(each.where, each.diff[-1][1:])
             for each in found(code, 'constant')])


class IdentityTest(testtools.TestCase):

    def test_the_same_after_edits_elsewhere(self):
        before = {each.id: each.diff for each in found(SOURCE)}
        after = found('# more\n' + SOURCE.replace(
            'class Base', 'def other():\n    return some()\n\nclass Base'
        ).replace("self.own = 'own'", "self.own = 'own'\n        call()"))
        self.assertEqual(len(before), len(set(before)))
        self.assertEqual(set(), set(before) - {each.id for each in after})

    def test_another_if_its_line_changes(self):
        before = {each.id for each in found(SOURCE) if 'plain' in each.id}
        after = {each.id for each in found(
            SOURCE.replace('word in TABLE', 'word in  TABLE'))}
        self.assertTrue(before)
        self.assertEqual(set(), before & after)

    def test_lines_that_are_alike_are_numbered(self):
        first, second = found('def f():\n    a()\n    b\n    a()\n',
                              'drop-call')
        self.assertEqual(first.id + '.2', second.id)

    def test_where_it_is(self):
        (each,) = found(SOURCE, 'drop-call')
        self.assertEqual('thing.py:Thing.__init__:drop-call',
                         each.id.rpartition(':')[0])
        self.assertEqual(['-        super().__init__()', '+        pass'],
                         each.diff)
        self.assertEqual(SOURCE.splitlines()[each.line - 1].strip(),
                         'super().__init__()')
        self.assertEqual((each.line, each.line), each.lines)

    def test_only_heads_of_statements_count_as_executed(self):
        code = 'def f():\n    if (a and\n            b):\n        c()\n'
        self.assertEqual({(2, 3)}, {each.lines for each in found(
            code, 'drop-condition')})
        self.assertEqual([(4, 4)], [each.lines for each in found(
            code, 'drop-call')])

    def test_where_a_constant_is_used(self):
        uses = mutants.references({
            'a.py': 'A = 1\n\ndef f():\n    if (\n            A):\n'
                    '        g\n    b.A\n'})
        self.assertEqual([('a.py', 4, 5), ('a.py', 7, 7)],
                         sorted(uses['A'])[-2:])


class PackageTest(testtools.TestCase):
    """With a package of a module and one that uses it."""

    def setUp(self):
        super().setUp()
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        package = path / 'mutated'
        package.mkdir()
        (package / '__init__.py').touch()
        (package / 'thing.py').write_text(SOURCE)
        (package / 'user.py').write_text(
            'from mutated.thing import LIMIT\n')
        self.useFixture(fixtures.MonkeyPatch(
            'sys.path', [str(path), *sys.path]))
        self.thing = importlib.import_module('mutated.thing')
        self.user = importlib.import_module('mutated.user')
        for name in ('mutated', 'mutated.thing', 'mutated.user'):
            self.addCleanup(sys.modules.pop, name)


class SwapTest(PackageTest):

    def bring_in(self, operator, where):
        (mutant,) = [each for each in found(SOURCE, operator)
                     if each.where == where]
        swap.Functions('mutated').bring_in(mutant)

    def test_decorated_function(self):
        before = self.thing.plain
        self.bring_in('compare', 'plain')
        self.assertTrue(before(7))
        self.assertIs(before, self.thing.plain)

    def test_what_a_decorator_has_left_behind(self):
        before = self.thing.plain
        self.bring_in('change-return', 'decorated.wrapped')
        self.assertIsNone(before(1))

    def test_one_of_two_functions_of_a_name(self):
        thing = self.thing.Thing()
        self.bring_in('drop-store', 'Thing.half')
        thing.half = 7
        self.assertEqual((2 * 3, 'own'), (thing.double, thing.own))
        self.assertRaises(AttributeError, getattr, thing, 'half')

    def test_method_that_uses_super(self):
        self.bring_in('drop-call', 'Thing.__init__')
        self.assertEqual({'own': 'own'}, vars(self.thing.Thing()))

    def test_property_and_constant(self):
        self.bring_in('constant', 'LIMIT')
        self.assertEqual((8, 4), (self.thing.Thing().double,
                                  self.user.LIMIT))

    def test_nested_function(self):
        self.assertEqual(6, self.thing.Thing.outer())
        self.bring_in('negate', 'Thing.outer.inner')
        self.assertEqual(5, self.thing.Thing.outer())

    def test_function_that_is_not_there(self):
        (mutant,) = found('def none():\n    a()\n', 'drop-call')
        self.assertRaises(LookupError,
                          swap.Functions('mutated').bring_in, mutant)

    def test_privileged_entry_point(self):
        from cinder_localclone.storage.privsep import block
        path = 'storage/privsep/block.py'
        text = pathlib.Path(block.__file__).read_text()
        mutant = next(
            each for each in mutants.mutants(path, text, words=True)
            if each.where == 'flush' and each.operator == 'constant')
        original = block.flush.args[0].__code__
        self.addCleanup(setattr, block.flush.args[0], '__code__', original)
        swap.Functions(mutation.PACKAGE).bring_in(mutant)
        with mock.patch.object(privsep.default, 'client_mode', False), \
                mock.patch.object(block.process, 'run') as run:
            block.flush('/dev/x', 5)
        run.assert_called_once_with('XXsync', '/dev/x', timeout=5)


class ReachTest(PackageTest):

    def test_who_executes_what(self):
        def case(act, succeeds=True):
            return unittest.FunctionTestCase(
                lambda: (act(), self.assertTrue(succeeds)))
        reach = runs.Reach()
        file = self.thing.__file__
        line = SOURCE.splitlines().index("        self.own = 'own'") + 1
        before = sys.gettrace()
        reach.record({'b': case(self.thing.Thing), 'a': case(
            self.thing.Thing), 'c': case(self.thing.Base)},
            os.path.dirname(file))
        self.assertIs(before, sys.gettrace())
        self.assertEqual(['a', 'b'], reach.of([(file, line, line)]))
        self.assertEqual(['a', 'b', 'c'], reach.of([(file, 1, line)]))
        self.assertEqual([], reach.of([(file, 1, 3)]))
        reach.seconds.update(a=0.26, b=0.04, c=0.01)
        self.assertEqual(['b', 'c', 'a'], reach.ordered('abc'))
        self.assertRaises(RuntimeError, reach.measure,
                          {'a': case(list, succeeds=False)})


class ForksTest(testtools.TestCase):

    SCRIPT = '''
import os, pathlib, signal, subprocess, sys, time
from tests.mutation import runs

# Of others: a group whose leader has ended.
foreign = subprocess.Popen(['sh', '-c', 'sleep 600 &'], start_new_session=True,
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
foreign.wait()

def leaves_behind():
    subprocess.Popen(['sleep', '600'], start_new_session=True)
    return runs.FAILED

def signals():
    ended = []
    for session in (False, True):
        own = subprocess.Popen(['sleep', '600'], start_new_session=session)
        own.terminate()
        ended.append(own.wait())
    for send, target in ((os.kill, os.getppid()), (os.kill, -1),
                         (os.killpg, os.getpgid(os.getppid())),
                         (os.killpg, foreign.pid),
                         (signal.pidfd_send_signal,
                          os.pidfd_open(os.getppid()))):
        try:
            send(target, signal.SIGCONT)
        except ProcessLookupError:
            ended.append('refused')
    return ended != [-15, -15] + 5 * ['refused']

forks = runs.Forks()
for task in (lambda: runs.PASSED, leaves_behind, signals, lambda: 1 / 0):
    forks.start(task, 1, task.__name__)
    print(forks.ended())
print(forks.result(lambda: {'any': 'value'}))
runs.MORE = runs.TIMES = 0
forks.start(lambda: time.sleep(600), 1, 'sleeps')
print(forks.ended())
forks.start(lambda: time.sleep(600), 1)
forks.end()
print(list(runs._children()))
os.killpg(foreign.pid, signal.SIGKILL)
'''

    def test_life_of_children(self):
        done = subprocess.run(
            [sys.executable, '-c', self.SCRIPT], cwd=mutation.ROOT,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE='1'), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(
            ["('<lambda>', 0)", "('leaves_behind', 1)", "('signals', 0)",
             "('<lambda>', 2)", "{'any': 'value'}", "('sleeps', None)",
             '[]'],
            done.stdout.splitlines(), done.stderr)
        self.assertIn('ZeroDivisionError', done.stderr)


class CommandTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.mutants = found(SOURCE)
        self.file = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'verdicts.json'

    def test_a_sample_is_the_same_each_time(self):
        options = command.parser().parse_args(['--sample', '3'])
        some = command.wanted(self.mutants, options)
        self.assertTrue(0 < len(some) < len(self.mutants))
        self.assertEqual(some, command.wanted(self.mutants[::-1], options)[
            ::-1])

    def test_what_is_kept(self):
        one, two, three = self.mutants[:3]
        verdicts = command.Verdicts(str(self.file), 'sources')
        verdicts.put(one, command.KILLED)
        verdicts.put(two, command.SURVIVED)
        for sources, expected in (
                ('sources', [command.KILLED, command.SURVIVED, None]),
                ('others', [command.KILLED, None, None])):
            again = command.Verdicts(str(self.file), sources)
            self.assertEqual(expected, [
                again.get(each) for each in (one, two, three)])

    def test_list_of_equivalent_ones(self):
        one, two, three = self.mutants[:3]
        verdicts = command.Verdicts(None, '')
        verdicts.put(one, command.KILLED)
        verdicts.put(two, command.SURVIVED)
        known = {one.id: 'why', two.id: 'why', three.id: 'why', 'x:y': 'why'}
        wrong = list(command.errors(self.mutants, verdicts, known, []))
        self.assertEqual(2, len(wrong))
        self.assertIn(one.id, wrong[0])
        self.assertIn('x:y', wrong[1])
        # Of four, one is killed, one equivalent, one survives, one unknown.
        verdicts.put(three, command.SURVIVED)
        with mock.patch('builtins.print'):
            self.assertEqual(50, command.report(
                self.mutants[:3], verdicts, {two.id: 'why'}))

    def test_that_of_the_data_path(self):
        known = yaml.safe_load(mutation.EQUIVALENT.read_text()) or {}
        there = {each.id for each in command.read()[0]}
        self.assertEqual(set(), set(known) - there)
        for identity, reason in known.items():
            self.assertTrue(reason, identity)
