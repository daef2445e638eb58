# SPDX-License-Identifier: Apache-2.0
"""Base classes of the sub-commands: names of volumes, errors and tables."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import inspect
import re
import typing

from cliff import lister
from oslo_config import cfg

from cinder_localclone.cmd import terminal
from cinder_localclone.core import errors
from cinder_localclone.core import state


if typing.TYPE_CHECKING:
    import cinder_localclone.cmd.main
    import cinder_localclone.service.operator

#: The place of an option, as oslo.config writes it.
_LOCATION = re.compile(r"from LocationInfo\(location=.*?, detail='(.*?)'\)")
#: Columns and rows of a table.
Table = tuple[Sequence[str], list[tuple[typing.Any, ...]]]


def in_words(exc: Exception) -> str:
    """Return an error in words, with the remedy for a wrong cinder.conf."""
    text = errors.in_words(exc)
    if isinstance(exc, cfg.ConfigFilesNotFoundError):
        return '%s does not exist. Correct --config-file.' % ', '.join(
            exc.config_files)
    if isinstance(exc, cfg.Error):
        return '%s. Correct cinder.conf, or pass --config-file.' % (
            _LOCATION.sub(r'in \1', text).rstrip('.'))
    if type(exc).__module__ == 'sqlalchemy.exc':
        # The text may have the URL with its password.
        return ('Cinder\'s database can\'t be used: the URL is not valid, or '
                'its driver is not installed. Correct [database] connection '
                'in cinder.conf.')
    if isinstance(exc, OSError) and exc.strerror and (
            '/' in str(exc.filename)):
        return '%s: %s' % (exc.filename, exc.strerror)
    return text


def _names_to_ids(find: Callable[[str], str], parsed_args: argparse.Namespace
                  ) -> None:
    """Replace the names of volumes in parsed arguments by their IDs, in place.

    An empty VOLUME, such as an unset shell variable, is looked up too and
    refused. Only a missing VOLUME means all volumes.

    :param find: ``find(name or ID)`` returns the ID
    """
    one = getattr(parsed_args, 'volume', None)
    if one is not None:
        parsed_args.volume = find(one)
    several = getattr(parsed_args, 'volumes', None)
    if several:
        parsed_args.volumes = [find(each) for each in several]


class Words:
    """Mix-in of all sub-commands: errors in words, names instead of IDs.

    A sub-command with other output than a table, such as metrics, combines it
    with cliff's own class. All others derive from :class:`Command`.
    """

    app: 'cinder_localclone.cmd.main.LocalClone'
    #: Whether VOLUME may be a name, which requires the database.
    takes_names = True
    #: A command line without the name of the program, for --help.
    example = ''
    #: What the sub-command changes, for --help.
    changes = 'nothing'

    def get_description(self) -> str:
        """Return the docstring, and what the sub-command changes."""
        return '%s\n\nChanges: %s.' % (
            inspect.getdoc(type(self)), self.changes)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser; --y is not --yes."""
        parser: argparse.ArgumentParser = super().get_parser(  # type: ignore
            prog_name)
        parser.allow_abbrev = False
        return parser

    def get_epilog(self) -> str:
        """Return the example.

        cliff's own method searches all installed packages for the package of
        the sub-command, to print its name.
        """
        return self.example and 'Example: cinder-localclone ' + self.example

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the sub-command, and convert any error to a sentence.

        --json applies here, and names of volumes are replaced by their IDs.

        :raises CommandError: for any error. With --debug the error itself is
            raised
        """
        if self.app.options.json:
            parsed_args.formatter = 'json'
        try:
            if self.takes_names:
                _names_to_ids(self.app.volume_id, parsed_args)
            code: int = super().run(parsed_args)  # type: ignore[misc]
            return code
        except BrokenPipeError:
            raise
        except Exception as exc:
            if self.app.options.debug:
                raise
            raise errors.CommandError(in_words(exc)) from exc


class Command(Words, lister.Lister):
    """Base of most sub-commands: print a table, or a list as JSON."""

    #: Printed instead of an empty table.
    nothing = 'There is nothing to show.'

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[tuple[typing.Any, ...]]) -> int:
        """Print the table, or :attr:`nothing` for an empty table.

        Only JSON has the texts as they are: it escapes control characters.

        :raises CommandError: if the output can't be written
        """
        rows = list(data)
        if parsed_args.formatter != 'json':
            rows = [tuple(terminal.printable(each) if isinstance(each, str)
                          else each for each in row) for row in rows]
        if not rows and parsed_args.formatter == 'table':
            print(self.nothing, file=self.app.stderr)
            return 0
        with terminal.written():
            code: int = super().produce_output(parsed_args, column_names, rows)
        return code


def with_fields(table: Table, fields: Sequence[typing.Any], wanted: bool
                ) -> Table:
    """Return a table with an additional column "Fields" for JSON. Pure.

    :param fields: for each row, the values of its texts for a program, such as
        sizes in bytes; None for a row without any
    :param wanted: whether the output is JSON; otherwise the table is unchanged
    """
    columns, rows = table
    if not wanted:
        return table
    return (*columns, 'Fields'), [
        (*row, each) for row, each in zip(rows, fields, strict=True)]


def number(least: float, most: float, kind: type = float
           ) -> Callable[[str], typing.Any]:
    """Return a type of argparse: a number within limits.

    :param kind: float or int
    """
    def parse(text: str) -> typing.Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:  # NaN is refused too
            raise argparse.ArgumentTypeError(
                '%s is not a%s number from %.6g to %.6g' % (
                    text, ' whole' * (kind is int), least, most))
        return value
    return parse


#: A time limit, and an interval: any number of seconds up to a year.
seconds = number(0, 366 * 86400)


def node(backend: 'cinder_localclone.service.operator.Backend', text: str
         ) -> str:
    """Return a node by its service host or its host name.

    :raises CommandError: if there is no such node
    """
    hosts = list(backend.nodes())
    found = [host for host in hosts
             if text in (host, host.partition('@')[0])]
    if len(found) != 1:
        raise errors.CommandError(
            '%s is not a node of the backend. Its nodes: %s.' % (
                text, ', '.join(hosts) or 'none'))
    return found[0]


def with_node(parser: argparse.ArgumentParser, all_nodes: bool = False
              ) -> argparse.ArgumentParser:
    """Return a parser with an argument for :func:`node`.

    :param all_nodes: whether the argument may be missing, for all nodes
    """
    parser.add_argument(
        'node', metavar='NODE', nargs='?' if all_nodes else None,
        help='host name or volume service (host@backend) of the node' + (
            '; default: all nodes' * all_nodes))
    return parser


def with_service(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return a parser with the argument of a node by its service host only."""
    parser.add_argument(
        'node', metavar='NODE',
        help='volume service of the node (host@backend), as listed by '
        '"node list"')
    return parser


class VolumeCommand(Command):
    """Base of the sub-commands for a volume."""

    #: The volumes without VOLUME, for --help; '' if VOLUME is required.
    without_volume = ''

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the volume."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            'volume', metavar='VOLUME',
            nargs='?' if self.without_volume else None,
            help='ID%s of the volume%s' % (
                ' or name' * self.takes_names,
                self.without_volume and '; default: ' + self.without_volume))
        return parser


def move_of(backend: 'cinder_localclone.service.operator.Backend',
            volume_id: str) -> state.Move:
    """Return the move of a volume that a command is to change.

    :raises CommandError: if the volume is not moving
    """
    move: state.Move | None = backend.volume(volume_id)[1]
    if move is None:
        raise errors.CommandError(
            'Volume %s is not moving. Nothing was changed.' % volume_id)
    return move
