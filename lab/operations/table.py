# SPDX-License-Identifier: Apache-2.0
"""Operations, situations and what is expected, as ``table.txt`` says. Pure."""

import dataclasses
import pathlib
import re

PATH = pathlib.Path(__file__).with_name('table.txt')
WORDS = ('works', 'waits', 'remote', 'refused', 'n/a')
_EXPECTED = re.compile(r'(%s)(?: (LC\d\d))?(?: ([a-z]))?' % '|'.join(WORDS))


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a cell is to show.

    :param code: of the message to the volume's owner, if it is refused
    :param note: the letter of a note
    """

    word: str
    code: str = ''
    note: str = ''

    @property
    def verdict(self):
        """'works', 'refused LC07' and so on."""
        return ' '.join(filter(None, (self.word, self.code)))

    @property
    def is_run(self):
        """Whether there is anything to try."""
        return self.word != 'n/a'

    @property
    def is_refused(self):
        """Whether nothing may change by it."""
        return self.word == 'refused'


@dataclasses.dataclass(frozen=True)
class Cell:
    """One operation in one situation, by their names."""

    operation: str
    situation: str

    def __str__(self):
        return '%s / %s' % (self.operation, self.situation)


@dataclasses.dataclass(frozen=True)
class Situation:
    """:param title: of a column
    :param explanation: for who reads the documentation
    """

    name: str
    title: str
    explanation: str


@dataclasses.dataclass(frozen=True)
class Table:
    """All of it.

    :param expected: {Cell: Expected}
    :param notes: {letter: text}
    """

    situations: tuple
    operations: tuple
    expected: dict
    notes: dict

    def row(self, operation):
        """The cells of an operation, situation by situation."""
        return [Cell(operation, each.name) for each in self.situations]

    def cells(self, only=''):
        """The cells that there is something to try in, as they are run.

        :param only: a regular expression
        """
        return [cell for cell in (
            Cell(operation, situation.name)
            for situation in self.situations
            for operation in self.operations)
            if self.expected[cell].is_run and re.search(only, str(cell))]


def parse(text):
    """The table that a text describes.

    :raises ValueError: if something in it makes no sense
    """
    parts = _parts(text)
    situations = tuple(Situation(*row) for row in parts['situations'])
    notes = dict(parts['notes'])
    expected = {}
    for name, *words in parts['operations']:
        if len(words) != len(situations):
            raise ValueError('%s: %d verdicts for %d situations' % (
                name, len(words), len(situations)))
        for situation, word in zip(situations, words):
            cell = Cell(name, situation.name)
            if cell in expected:
                raise ValueError('%s is there twice' % cell)
            expected[cell] = _expected(cell, word, notes)
    unused = set(notes) - {each.note for each in expected.values()}
    if unused:
        raise ValueError('nothing has note %s' % ', '.join(sorted(unused)))
    return Table(situations, tuple(row[0] for row in parts['operations']),
                 expected, notes)


def _parts(text):
    """{heading: rows of columns}"""
    parts = {}
    for line in text.splitlines():
        heading = re.fullmatch(r'\[(\w+)\]', line)
        if heading:
            parts[heading[1]] = rows = []
        elif line and not line.startswith('#'):
            rows.append(tuple(each.strip() for each in line.split('|')))
    return parts


def _expected(cell, text, notes):
    found = _EXPECTED.fullmatch(text)
    if not found:
        raise ValueError('%s: "%s" is no verdict' % (cell, text))
    word, code, note = (each or '' for each in found.groups())
    if code and word != 'refused':
        raise ValueError('%s: "%s" has a code' % (cell, text))
    if note and note not in notes:
        raise ValueError('%s: there is no note %s' % (cell, note))
    if word == 'n/a' and not note:
        raise ValueError('%s: not applicable, without a reason' % cell)
    return Expected(word, code, note)


def read():
    """The table of this tree."""
    return parse(PATH.read_text())
