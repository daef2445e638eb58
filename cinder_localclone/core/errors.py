# SPDX-License-Identifier: Apache-2.0
"""Errors of the operator's command."""

import re

#: The error of LVM for a missing volume group.
_NO_GROUP = re.compile(r'Volume group "([^"]+)" not found')


class CommandError(Exception):
    """An error to end the command with; its text is for the operator."""


def in_words(exc: Exception) -> str:
    """Return an error in one line, without SQL, traceback or links."""
    text = str(exc).strip() or type(exc).__name__
    group = _NO_GROUP.search(text)
    if group:  # the text begins with LVM's long command line
        return ('There is no volume group %s on this node. Create it '
                '(vgcreate), or correct volume_group and '
                'localclone_metadata_volume_group in cinder.conf.' % group[1])
    if type(exc).__module__.startswith('oslo_db.'):
        # These errors quote the statement and link to SQLAlchemy's site.
        return ('Cinder\'s database can\'t be used: %s. Check the database '
                'server, and [database] connection in cinder.conf.'
                % text.splitlines()[0].partition(' (Background on')[0])
    if isinstance(exc, FileNotFoundError) and exc.filename and (
            '/' not in str(exc.filename)):  # a command
        return '%s is not installed' % exc.filename
    if isinstance(exc, ModuleNotFoundError):
        return ('The Python package %s is not installed in the environment of '
                'this command. Install it beside Cinder.' % exc.name)
    if isinstance(exc, UnicodeError):
        return ('%s. The encoding of this terminal is too narrow: set '
                'LC_ALL=C.UTF-8.' % text)
    return text
