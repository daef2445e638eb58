# SPDX-License-Identifier: Apache-2.0
"""Whatever names a sub-command of ``cinder-localclone`` names a real one.

All files that git knows are read: pages, messages, units, alerts, roles, the
lab and the tests.
"""

import ast
import contextlib
import io
import re
import subprocess

import testtools

from cinder_localclone.cmd import main
from lab import manual
from tests.helpers.tree import ROOT

#: A mention of the program, with the words after it, in running text.
MENTION = re.compile(
    r'(?P<before>.?)(?<![\w.@-])(?:[^\s"\'`=]*/)?cinder-localclone'
    r'(?=[ \n])(?P<words>(?:[ \n]+(?![|<)])[^\s"`;,()]+)+)')
#: A literal that begins like a sub-command.
LITERAL = re.compile(r'``((?:encryption|reencryption|move|node) [^`]+)``')
NOUNS = {name.partition(' ')[0] for name in main.COMMANDS}
#: First words without a noun: these are in no text any more.
FORMER = {'abort', 'drain', 'forget', 'moves', 'nodes', 'repair', 'restore',
          'resume', 'show', 'unlock', 'volumes'}
#: Of cliff; the authors.
OTHERS = {'complete', 'developers', 'help'}
#: Functions of the lab and the functional tests that run the command: the
#: words that they add, and their arguments before the other words.
CALLERS = {'operator': ('', 0), '_operator': ('', 0),
           'encryption': ('encryption ', 1), 'declined': ('encryption ', 1),
           'reencryption': ('reencryption ', 0)}
#: The same of a single module.
OF_OPERATOR = {'command': ('', 1)}
#: Options of the program, which may also stand behind a sub-command.
ANYWHERE = {'--json', '--debug'}


def files(*suffixes):
    """Yield the text files of the checkout, with their paths."""
    listed = subprocess.run(
        ['git', 'ls-files'], cwd=ROOT, check=True, capture_output=True,
        text=True).stdout.splitlines()
    for path in listed:
        if not suffixes or path.endswith(suffixes):
            with contextlib.suppress(UnicodeDecodeError, FileNotFoundError):
                yield path, (ROOT / path).read_text()


def texts(path, text):
    """Yield the texts in a file: of Python its literals and comments."""
    if not path.endswith('.py'):
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield '\n'.join(re.findall(r'^ *#:? (.*)$', text, re.MULTILINE))


def mentions(text):
    """Yield the words of each mention, and whether it is quoted."""
    for found in MENTION.finditer(text):
        yield found['words'].split(), found['before'] in ('"', '`')


def without_options(words):
    """Return words without the options before the sub-command."""
    words = list(words)
    while words and words[0].startswith('--'):
        takes = words.pop(0) in ('--config-file', '--backend')
        if takes and words:
            words.pop(0)
    return words


def called(node, callers):
    """Return the words of a call of a caller, as far as they are literals."""
    before, first = callers.get(getattr(node.func, 'attr', ''), ('', None))
    words = []
    for each in node.args[first:] if first is not None else ():
        if not isinstance(each, ast.Constant):
            break
        words += str(each.value).split()
    words = without_options(words)
    if not words or len(words) == 1 and words[0] in NOUNS:
        return []  # a caller that adds the words of its own callers
    return (before + ' '.join(words)).split()


class CommandWordsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.app = main.LocalClone()

    def problem(self, words, quoted=True):
        """Return the problem of the words after the program, or ''."""
        words = without_options(words)
        first = words[0].rstrip('.:\\') if words else ''
        if first in FORMER:
            return 'without a noun'
        if first not in NOUNS:
            return 'no command' if quoted and re.match(
                r'[a-z]', first) and first not in OTHERS else ''
        for count in range(len(words), 0, -1):
            name = ' '.join(words[:count]).rstrip('.:\\')
            if name in main.COMMANDS or name in main.HIDDEN:
                return self.misfit(name, words[count:]) if quoted else ''
        # A noun alone may stand for all of its verbs.
        return '' if len(words) == 1 else 'no verb of the noun'

    def misfit(self, name, rest):
        """Return whether the real parser refuses arguments, as a text."""
        parser, _kind = manual.parser(self.app, name)
        words = [re.sub('%.*|{{.*', 'x', word) for word in rest
                 if word not in ('}}', '$labels.volume', *ANYWHERE)]
        for more in ([], ['x']):  # an example may leave out a name
            with contextlib.redirect_stderr(io.StringIO()) as said:
                try:
                    parser.parse_args([*words, *more])
                except SystemExit:
                    continue
                return ''
        return said.getvalue().splitlines()[-1]

    def test_all_texts(self):
        wrong, seen = [], set()
        for path, text in files():
            if path.startswith('tests/lab/test_command_words'):
                continue
            for each in texts(path, text):
                for words, quoted in mentions(each):
                    seen.add(path)
                    problem = self.problem(words, quoted)
                    if problem:
                        wrong.append((path, ' '.join(words[:6]), problem))
        self.assertEqual([], wrong)
        for path in ('doc/source/operate/recovery.rst',
                     'doc/source/operate/drain.rst',
                     'etc/prometheus/localclone.rules.yaml',
                     'etc/systemd/cinder-localclone-restore.service',
                     'cinder_localclone/core/exceptions.py',
                     'cinder_localclone/cmd/doctor/stuck.py',
                     'ansible/roles/cinder_localclone/templates/unit.conf.j2',
                     'lab/operations/table.txt'):
            self.assertIn(path, seen)

    def test_literals_of_pages(self):
        wrong = [
            (path, words) for path, text in files('.rst')
            for words in LITERAL.findall(text)
            if self.problem(words.split())]
        self.assertEqual([], wrong)

    def test_callers_in_lab_and_tests(self):
        wrong, seen = [], 0
        for path, text in files('.py'):
            if not path.startswith(('lab/', 'tests/functional/')):
                continue
            callers = CALLERS | (
                OF_OPERATOR if path.endswith('test_operator.py') else {})
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.Call):
                    continue
                words = called(node, callers)
                if words:
                    seen += 1
                    if not any(' '.join(words[:n]) in main.COMMANDS
                               for n in range(1, len(words) + 1)):
                        wrong.append((path, words))
        self.assertEqual([], wrong)
        self.assertGreater(seen, 90)

    def test_what_it_finds(self):
        for text, problem in (
                ('run "cinder-localclone moves"', 'without a noun'),
                ('cinder-localclone resume VOLUME', 'without a noun'),
                ('cinder-localclone encryption shred', 'no verb'),
                ('``cinder-localclone wipe``', 'no command'),
                ('"cinder-localclone volume show data --quick"',
                 'unrecognized'),
                ('/opt/bin/cinder-localclone --backend x unlock',
                 'without a noun')):
            (words, quoted), = mentions(text)
            self.assertIn(problem, self.problem(words, quoted), text)
        for text in ('"cinder-localclone move complete"',
                     '``cinder-localclone --version``',
                     'cinder-localclone reads cinder.conf',
                     '# cinder-localclone volume repair %(id)s'):
            (words, quoted), = mentions(text)
            self.assertEqual('', self.problem(words, quoted), text)

    def test_every_example_is_of_its_command(self):
        for name, where in main.COMMANDS.items():
            _parser, kind = manual.parser(self.app, name)
            self.assertTrue(
                (kind.example + ' ').startswith(name + ' '), name)
            self.assertEqual('', self.misfit(
                name, kind.example.split()[len(name.split()):]), name)
            self.assertIn('Example: cinder-localclone ' + kind.example,
                          ' '.join(_parser.format_help().split()), where)
