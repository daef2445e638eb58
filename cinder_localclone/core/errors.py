# SPDX-License-Identifier: Apache-2.0
"""Errors of the operator's command."""


class CommandError(Exception):
    """An error to end the command with; its text is for the operator."""


def in_words(exc: Exception) -> str:
    """Return an error in one line, without SQL, traceback or links."""
    text = str(exc).strip() or type(exc).__name__
    if type(exc).__module__.startswith('oslo_db.'):
        # These errors quote the statement and link to SQLAlchemy's site.
        return ('Cinder\'s database can\'t be used: %s. Check the database '
                'server, and [database] connection in cinder.conf.'
                % text.splitlines()[0].partition(' (Background on')[0])
    if isinstance(exc, FileNotFoundError) and exc.filename and (
            '/' not in str(exc.filename)):  # a command
        return '%s is not installed' % exc.filename
    return text
