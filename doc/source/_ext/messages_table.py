# SPDX-License-Identifier: Apache-2.0
"""The messages to members of projects, as reStructuredText, from the code."""

from typing import Any

import list_table

#: The words of any request, where a text has the words of one request.
ANY = {'volume': 'the volume', 'made': 'the volume, snapshot or backup',
       'again': '*Repeat the request*',
       'elsewhere': '*Choose another host*'}


def problem(message: Any) -> str:
    """Return the problem in a message, for any request.

    :param message: a ``user_messages.UserMessage``
    """
    text: str = message.problem % ANY
    return text[:1].upper() + text[1:]


def requests(actions: Any, messages: Any) -> list[str]:
    """Return a row for each request.

    :param actions: as ``user_messages.Action``
    :param messages: the module ``user_messages``
    """
    rows = [('Letter', 'Request', 'Text of Cinder', 'Repeat the request',
             'Choose another host', 'Any other cause')]
    for action in actions:
        facts = action.value
        rows.append((
            '``%s``' % facts.letter, action.name.lower(),
            '%s (``%s``)' % (facts.cinder[1], facts.cinder[0]),
            facts.again, facts.elsewhere or '–',
            '``%s``' % messages.DEFAULTS[action].code))
    return list_table.rst(rows, widths='7 11 20 34 18 10')


def codes(actions: Any, messages: Any) -> list[str]:
    """Return a row for each message, sorted by code.

    :param actions: as ``user_messages.Action``
    :param messages: the module ``user_messages``
    """
    rows = [('Code', 'The member reads', 'The member does',
             'The operator does')]
    for message in sorted(messages.MESSAGES.values(),
                          key=lambda each: each.code):
        letters = ' '.join(action.value.letter for action in actions
                           if action in message.actions)
        rows.append(('``%s`` ``%s`` (%s)' % (
            message.code, message.key.lower(), letters),
            problem(message), message.member % ANY, message.operator))
    return list_table.rst(rows, widths='19 27 27 27')
