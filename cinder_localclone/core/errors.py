# SPDX-License-Identifier: Apache-2.0
"""Errors of the command, in an operator's words."""


class CommandError(Exception):
    """What keeps a command from its work, in an operator's words."""


def in_words(exc: Exception) -> str:
    """An error in one line: without SQL, stack or links."""
    text = str(exc).strip() or type(exc).__name__
    if type(exc).__module__.startswith('oslo_db.'):
        # One of these quotes the statement and links to SQLAlchemy's site.
        return ('Cinder\'s database can\'t be used: %s. Check that it runs, '
                'and [database] connection in cinder.conf.'
                % text.splitlines()[0].partition(' (Background on')[0])
    if isinstance(exc, FileNotFoundError) and exc.filename and (
            '/' not in str(exc.filename)):  # a command
        return '%s is not installed' % exc.filename
    return text
