# SPDX-License-Identifier: Apache-2.0
"""What works when, as reStructuredText: from the list of ``make operations``.
"""

from typing import Any

import list_table

#: What a cell says, for who has not read the list.
WORDS = {
    'works': 'It is done while the situation lasts.',
    'remote': 'The volume is connected at once, over the network, from where '
              'it is.',
    'waits': 'It is accepted, and done by itself when the situation is over.',
    'refused': 'Nothing changes. With a code, ``LC07`` for one, it is the '
               'driver that refuses it, and the owner reads why in '
               '``openstack volume message list``. Without, it is Cinder '
               'itself, as with any driver, or the log of the volume service '
               'says why.',
    'n/a': 'It makes no sense, or differs in nothing.',
}


def rst(table: Any, messages: dict[str, str]) -> list[str]:
    """Situations, a row for each operation, notes, and what codes mean.

    :param table: a ``lab.operations.table.Table``
    :param messages: {code: the problem that the owner reads}
    """
    lines = []
    for situation in table.situations:
        lines += ['%s' % situation.title, '   %s' % situation.explanation]
    lines += ['', *list_table.rst([
        ('', *(each.title for each in table.situations)),
        *((operation, *(_verdict(table.expected[cell])
                        for cell in table.row(operation)))
          for operation in table.operations)], stub=True)]
    for word, meaning in WORDS.items():
        lines += [word, '   ' + meaning]
    lines += ['']
    lines += ['* :sup:`%s` %s' % note for note in sorted(
        table.notes.items())]
    lines += ['']
    used = {each.code for each in table.expected.values() if each.code}
    lines += ['* ``%s``: %s' % (code, messages[code])
              for code in sorted(used)]
    return [*lines, '']


def _verdict(expected: Any) -> str:
    note = ' :sup:`%s`' % expected.note if expected.note else ''
    return expected.verdict + note
