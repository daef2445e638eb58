# SPDX-License-Identifier: Apache-2.0
"""The terminal of the operator: its characters, encoding and closed streams.

Names of volumes, hosts of attachments and texts of other nodes may have been
written by an enemy: control characters never reach the terminal.
"""

import codecs
from collections.abc import Iterator
import contextlib
import logging
import os
import sys
import typing

from cinder_localclone.core import errors

#: The exit code for an output whose reader has gone.
PIPE_CLOSED = 141
_STREAMS = (('stdin', os.O_RDONLY, 'r'),
            # A write fails, as for any command with a closed output.
            ('stdout', os.O_RDONLY, 'w'),
            ('stderr', os.O_WRONLY, 'w'))


def printable(text: str, also: str = '') -> str:
    """Return a text without control characters, as a single line. Pure.

    :param also: white space to keep
    """
    if text.isprintable():
        return text
    return ''.join(
        each if each.isprintable() or each in also
        else ' ' if each in '\n\t\r' else '?' for each in text)


class Formatter(logging.Formatter):
    """Formats log messages without control characters, in several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a message."""
        return printable(super().format(record), '\n\t')


class Escapes:
    """Escapes of characters that the encoding of the terminal lacks."""

    NAME = 'localclone_escapes'

    def __init__(self) -> None:
        self._encoding = ''

    def __call__(self, error: UnicodeError) -> tuple[str | bytes, int]:
        """Replace characters, as an error handler of the module codecs."""
        if isinstance(error, UnicodeEncodeError):
            self._encoding = error.encoding
        return codecs.backslashreplace_errors(error)

    @contextlib.contextmanager
    def on(self, stream: typing.TextIO) -> Iterator[None]:
        """Escape characters of a stream, and say so at the end."""
        reconfigure = getattr(stream, 'reconfigure', None)
        if reconfigure is None:  # a test's
            yield
            return
        codecs.register_error(self.NAME, self)
        reconfigure(errors=self.NAME)
        try:
            yield
        finally:
            if self._encoding:
                print('The encoding %s lacks characters of this output; they '
                      'are printed as \\ and numbers. Set LC_ALL=C.UTF-8, '
                      'or pass --json.' % self._encoding, file=sys.stderr)


def open_closed() -> None:
    """Open the closed standard streams.

    Otherwise the next opened file would become standard output.
    """
    for name, flags, mode in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode))


@contextlib.contextmanager
def written() -> Iterator[None]:
    """Write all output within the context.

    :raises BrokenPipeError: if the reader has gone
    :raises CommandError: if the output can't be written for another reason
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as exc:
        # Otherwise Python would write the rest at its end, and fail again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(exc, BrokenPipeError):
            raise
        raise errors.CommandError(
            'The command has ended, but its output can\'t be written: %s.'
            % exc.strerror) from exc
