# SPDX-License-Identifier: Apache-2.0
"""The reference of ``cinder-localclone``, from the command's own parsers.

So each text stands once: in the parser, where --help, the manual page and this
page find it.
"""

import argparse
import re

import list_table

from cinder_localclone.cmd import completion
from cinder_localclone.cmd import main
from lab import manual

#: Width of a line with the usage.
WIDTH = 90
#: The first words of the sub-commands, as the page has them; then the others.
NOUNS = ('node', 'volume', 'move', 'encryption', 'reencryption')
#: Verbs before the others of their noun.
VERBS = ('list', 'show', 'check', 'start')
#: Helps of arguments that the page explains once, for all sub-commands.
KNOWN = {'ID or name of the volume',
         'host name or volume service (host@backend) of the node'}
#: Words in a text of the command that the page prints as they are typed.
TYPED = re.compile(
    r'"(?P<quoted>[^"]+)"'
    r'|(?<![\w-])(?P<plain>--[a-z][a-z-]+|localclone-[\w<>.-]*\w'
    r'|[a-z]+(?:_[a-z]+)+|cinder\.conf|/etc/[\w/.]+\w|\.prom|MANIFEST'
    r'|FAIL)(?![\w-])')


def literal(text: str) -> str:
    """Return a text of the command in reStructuredText.

    A quoted sub-command refers to its section; any other quoted words, and
    names and options, are literals.
    """
    def typed(found: re.Match[str]) -> str:
        words = found['quoted'] or found['plain']
        return ('`%s`_' if words in main.COMMANDS else '``%s``') % words
    return TYPED.sub(typed, text)


def sentence(text: str) -> str:
    """Return a text of the command as a sentence."""
    text = literal(text)
    return text[:1].upper() + text[1:] + '.' * (not text.endswith('.'))


def usage(name: str) -> str:
    """Return the usage of a sub-command, without cliff's own options."""
    parser, _kind = manual.parser(main.LocalClone(), name)
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(None, list(manual.own_actions(parser)),
                        parser._mutually_exclusive_groups, prefix='')
    return formatter.format_help().rstrip()


def _head(action: argparse.Action) -> str:
    words = action.metavar or action.dest.upper()
    if not action.option_strings:
        return words
    value = '' if action.nargs == 0 else (
        ' ' + ('{%s}' % ','.join(action.choices) if action.choices else words))
    return action.option_strings[-1] + value


def arguments(name: str) -> list[tuple[str, str]]:
    """Return the arguments of a sub-command, or with '' of the program."""
    app = main.LocalClone()
    if not name:
        return [(_head(action), sentence(action.help))
                for action in completion.options_of(app.parser)
                if '--help' not in action.option_strings]
    parser, _kind = manual.parser(app, name)
    return [(_head(action), sentence(action.help))
            for action in manual.own_actions(parser)
            if action.help not in KNOWN]


def rst(name: str) -> list[str]:
    """Return the reference of a sub-command, or with '' of the program."""
    lines = []
    if name:
        parser, _kind = manual.parser(main.LocalClone(), name)
        first, *more, _changes = manual.paragraphs(parser.description)
        if any(manual.own_actions(parser)):
            lines += ['.. code-block:: none', '', *(
                '   ' + line for line in usage(name).splitlines()), '']
        for text in (first, *more):
            lines += [literal(text), '']
    rows = [('``%s``' % head, text) for head, text in arguments(name)]
    if rows:
        lines += list_table.rst([('Argument', 'Meaning'), *rows],
                                widths='30 70')
    return lines


def overview() -> list[str]:
    """Return a row for each sub-command: its summary, and what it changes."""
    rows = []
    for name in sorted(main.COMMANDS, key=lambda name: (
            *(name.split()[0] != noun for noun in NOUNS),
            *(name.split()[1:] != [verb] for verb in VERBS), name)):
        parser, _kind = manual.parser(main.LocalClone(), name)
        first, *_more, changes = manual.paragraphs(parser.description)
        rows.append(('`%s`_' % name, literal(first),
                     literal(changes.removeprefix('Changes: ')[:-1])))
    return list_table.rst([('Command', 'Function', 'Changes'), *rows],
                          widths='28 47 25')
