# SPDX-License-Identifier: Apache-2.0
"""The manual page and the completion of the command, from its own parsers.

``python3 -m lab.manual`` writes both into the checkout; the wheel has them. It
needs an environment with the package, such as that of the unit tests.
"""

import contextlib
import io
import pathlib

from cinder_localclone.cmd import completion as completion_module
from cinder_localclone.cmd import main

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / 'etc/man/cinder-localclone.1'
COMPLETION = ROOT / 'etc/bash-completion/cinder-localclone'
#: Option groups of cliff, which are the same for all sub-commands.
FORMATTERS = 'formatter'
TITLE = '.TH CINDER-LOCALCLONE 1 "" "cinder-localclone" "User Commands"'
EXIT_CODES = (
    ('0', 'success'),
    ('1', 'refused, failed, or a problem was found'),
    ('2', 'wrong command line'),
    ('130', 'interrupted by ctrl-C'),
    ('141', 'the reader of the output has closed the pipe'))


def escaped(text):
    """Return a text for roff."""
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return '\\&' + text if text.startswith(('.', "'")) else text


def parser(app, name):
    """Return the parser of a sub-command."""
    kind, _name, _rest = app.command_manager.find_command(name.split())
    return kind(app, None).get_parser('%s %s' % (app.NAME, name)), kind


def own_actions(found):
    """Yield the options and arguments of a parser, without cliff's own."""
    for group in found._action_groups:
        if FORMATTERS in (group.title or '').lower():
            continue
        for action in group._group_actions:
            if '--help' not in action.option_strings:
                yield action


def described(action):
    """Return the lines of an option or an argument."""
    words = action.metavar or (action.dest or '').upper()
    if action.option_strings:
        values = '' if action.nargs == 0 else ' \\fI%s\\fR' % escaped(
            '{%s}' % ','.join(action.choices) if action.choices else words)
        head = ', '.join('\\fB%s\\fR%s' % (escaped(each), values)
                         for each in action.option_strings)
    else:
        head = '\\fI%s\\fR' % escaped(words)
    return ['.TP', head, escaped((action.help or '') % vars(action)
                                 if '%' in (action.help or '')
                                 else action.help or '')]


def paragraphs(docstring):
    """Return the paragraphs of a docstring, each as a line."""
    return [' '.join(each.split()) for each in docstring.split('\n\n')]


def page():
    """Return the manual page."""
    app = main.LocalClone()
    lines = [
        '.\\" Made by lab/manual.py', TITLE, '.SH NAME',
        'cinder\\-localclone \\- node\\-local Cinder volumes that follow '
        'their instances', '.SH SYNOPSIS',
        '\\fBcinder\\-localclone\\fR [\\fIOPTIONS\\fR] \\fINOUN VERB\\fR ...',
        '.SH DESCRIPTION', escaped(app.__doc__),
        'It reads Cinder\'s configuration, and runs on any node of the '
        'backend.', '.SH OPTIONS']
    for action in completion_module.options_of(app.parser):
        lines += described(action)
    lines.append('.SH COMMANDS')
    for name in sorted([*main.COMMANDS, 'complete']):
        found, kind = parser(app, name)
        lines += ['.SS ' + escaped(name)]
        for text in paragraphs(found.description):
            lines += ['.PP', escaped(text)]
        for action in own_actions(found):
            lines += described(action)
        lines += ['.PP', 'Example:', '.RS', escaped(
            '%s %s' % (app.NAME, kind.example)), '.RE']
    lines += ['.SH OUTPUT', '\\fB\\-f\\fR, \\fB\\-c\\fR and '
              '\\fB\\-\\-max\\-width\\fR choose the format and the columns, '
              'as in openstack(1).', '.SH EXIT STATUS']
    for code, meaning in EXIT_CODES:
        lines += ['.TP', code, escaped(meaning)]
    lines += ['.SH FILES', '/etc/cinder/cinder.conf', '.SH SEE ALSO',
              'openstack(1), dmsetup(8), lvs(8), cryptsetup(8)']
    return '\n'.join(lines) + '\n'


def completion():
    """Return the completion for bash."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main.main(['complete'])
    return printed.getvalue()


def write():
    """Write both files."""
    for path, text in ((PAGE, page()), (COMPLETION, completion())):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == '__main__':
    write()
