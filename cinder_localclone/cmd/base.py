# SPDX-License-Identifier: Apache-2.0
"""What all sub-commands have in common."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence

from cliff import lister

#: Columns and rows of a table.
Table = tuple[Sequence[str], list[tuple]]


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
    if isinstance(exc, FileNotFoundError) and exc.filename:
        return '%s is not installed' % exc.filename
    return text


class Command(lister.Lister):
    """Base of the sub-commands: each prints a table, or a list as JSON."""

    #: Said instead of a table without rows.
    nothing = 'There is nothing to show.'

    def get_epilog(self) -> str:
        """None. (cliff's names the package, which it looks for in all.)"""
        return ''

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run it as cliff does; errors come in words.

        :raises CommandError: for any error, unless tracebacks were asked for
        """
        if self.app.options.json:
            parsed_args.formatter = 'json'
        try:
            return super().run(parsed_args)
        except BrokenPipeError:
            raise
        except Exception as exc:
            if self.app.options.debug:
                raise
            raise CommandError(in_words(exc)) from exc

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[tuple]) -> int:
        """Print the table; say so if there is nothing in it."""
        rows = list(data)
        if not rows and parsed_args.formatter == 'table':
            print(self.nothing, file=self.app.stderr)
            return 0
        return super().produce_output(parsed_args, column_names, rows)


class VolumeCommand(Command):
    """Base of the sub-commands about one volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the volume's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', metavar='VOLUME', help='its id')
        return parser
