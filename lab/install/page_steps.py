# SPDX-License-Identifier: Apache-2.0
"""What the installation page tells its reader to do. Pure.

Of its section "Steps": a block of commands (``console``), where each begins
with ``#`` if root gives it on the node, with ``$`` if an administrator of the
cloud does; and a block with a caption, which names the file whose lines it
has. Other blocks only show something.
"""

import dataclasses
import itertools
import pathlib
import re
import textwrap

PATH = pathlib.Path(__file__).parents[2] / 'doc/source/install/index.rst'
ROOT, ADMINISTRATOR = '#', '$'
_SECTION = re.compile(r'(?ms)^Steps\n=+\n(.*?)(?=^[^\n]+\n(?:=+|-+)\n)')
_BLOCK = re.compile(
    r'(?m)^( *)\.\. code-block:: (\w+)\n'
    r'(?:\1   :caption: (.*)\n)?\n((?:\1   .*\n|\n)+)')


@dataclasses.dataclass(frozen=True)
class Command:
    """What is typed.

    :ivar prompt: who does: ROOT or ADMINISTRATOR
    """

    prompt: str
    line: str


@dataclasses.dataclass(frozen=True)
class File:
    """What a file has, or is to have besides.

    :ivar name: a path, or a description of one
    """

    name: str
    text: str


def steps(text) -> list:
    """The commands and files of the page, in their order.

    :raises ValueError: if there are none, or a command begins with no prompt
    """
    section = _SECTION.search(text)
    found = []
    for _indent, language, caption, body in _BLOCK.findall(
            section.group(1) if section else ''):
        body = textwrap.dedent(body).strip() + '\n'
        if caption:
            found.append(File(caption, body))
        elif language == 'console':
            found += _commands(body)
    if not found:
        raise ValueError('the page has no steps')
    return found


def _commands(body):
    for line in body.replace('\\\n', '').splitlines():
        prompt, _space, line = line.partition(' ')
        if prompt not in (ROOT, ADMINISTRATOR):
            raise ValueError('no prompt before: ' + line)
        yield Command(prompt, ' '.join(line.split()))


def literal_steps(text, title) -> list:
    """The commands and files of a section's literal blocks, in their order.

    :param text: of a page
    :param title: of the section, which ends before the next one of its level;
        a block without prompts has the lines of a file, which has no name
    :raises ValueError: if there are none
    """
    section = re.search(r'(?ms)^%s\n(=+)\n(.*?)(?=^[^\n]+\n=+\n|\Z)'
                        % re.escape(title), text)
    lines = section.group(2).splitlines() if section else []
    found = []
    for number, line in enumerate(lines):
        if line.endswith('::') and not line.lstrip().startswith('.. '):
            rest = list(itertools.dropwhile(
                lambda each: not each, lines[number + 1:]))
            indent = rest[0][:len(rest[0]) - len(rest[0].lstrip())]
            body = textwrap.dedent('\n'.join(itertools.takewhile(
                lambda each: not each or each.startswith(indent), rest)))
            if body[:2] in (ROOT + ' ', ADMINISTRATOR + ' '):
                found += _commands(body.strip())
            else:
                found.append(File('', body.strip() + '\n'))
    if not found:
        raise ValueError('the section has no steps: ' + title)
    return found


def filled_in(text, values) -> str:
    """A text with what a reader has instead of the page's examples.

    :param values: {example: what it is here}
    :raises ValueError: if something in angle brackets is left
    """
    for example, value in values.items():
        text = text.replace(example, value)
    left = re.search(r'<[a-z][\w ]+>', text)
    if left:
        raise ValueError('nothing is known for ' + left.group())
    return text


def merged(text, more) -> str:
    """An ini file with more lines; what is there stays.

    :param more: sections that there may be already
    """
    for section in re.split(r'(?m)^(?=\[)', more):
        head, _newline, lines = section.strip().partition('\n')
        if not head:
            continue
        if head + '\n' in text:
            text = text.replace(head + '\n', '%s\n%s\n' % (head, lines), 1)
        else:
            text += '\n%s\n' % section.strip()
    return text
