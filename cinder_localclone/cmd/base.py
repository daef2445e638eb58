# SPDX-License-Identifier: Apache-2.0
"""What all sub-commands have in common."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import typing

from cliff import lister

from cinder_localclone.core import errors


if typing.TYPE_CHECKING:
    import cinder_localclone.cmd.main

#: Columns and rows of a table.
Table = tuple[Sequence[str], list[tuple]]


def _by_id(find: Callable[[str], str], parsed_args: argparse.Namespace
           ) -> None:
    """The volumes that were named are their ids from now on.

    An empty name, of a variable that is not set, does not mean all of them.
    """
    one = getattr(parsed_args, 'volume', None)
    if one is not None:
        parsed_args.volume = find(one)
    several = getattr(parsed_args, 'volumes', None)
    if several:
        parsed_args.volumes = [find(each) for each in several]


class Words:
    """What sub-commands have in common, whatever they print."""

    app: 'cinder_localclone.cmd.main.LocalClone'
    #: Whether VOLUME may be a name: that takes the database.
    takes_names = True

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
            if self.takes_names:
                _by_id(self.app.volume_id, parsed_args)
            return super().run(parsed_args)  # type: ignore[misc]
        except BrokenPipeError:
            raise
        except Exception as exc:
            if self.app.options.debug:
                raise
            raise errors.CommandError(errors.in_words(exc)) from exc


class Command(Words, lister.Lister):
    """Base of most: each prints a table, or a list as JSON."""

    #: Said instead of a table without rows.
    nothing = 'There is nothing to show.'

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[tuple]) -> int:
        """Print the table; say so if there is nothing in it."""
        rows = list(data)
        if not rows and parsed_args.formatter == 'table':
            print(self.nothing, file=self.app.stderr)
            return 0
        return super().produce_output(parsed_args, column_names, rows)


def with_fields(table: Table, fields: Sequence[typing.Any], wanted: bool
                ) -> Table:
    """A table whose rows also have what they say as values. Pure.

    :param fields: for each row: what is shown in words, as JSON has it
    :param wanted: whether it is printed as JSON
    """
    columns, rows = table
    if not wanted:
        return table
    return (*columns, 'Fields'), [
        (*row, each) for row, each in zip(rows, fields, strict=True)]


class VolumeCommand(Command):
    """Base of the sub-commands about one volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the volume's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument('volume', metavar='VOLUME', help='its id%s' % (
            ' or name' * self.takes_names))
        return parser
