# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``cinder-localclone``, with the table of its sub-commands.

A sub-command is a noun and a verb, as in ``openstack`` and ``linstor``:

- The noun is singular: ``node``, ``volume``, ``move``, ``encryption`` and
  ``reencryption``. A part of a volume's encryption has a noun of several
  words, such as ``encryption key``.
- The last word is the verb. One verb has one meaning for all nouns: ``list``
  prints a row for each object, ``show`` prints one object, and ``check`` looks
  for problems without any change. Their exit codes tell of problems.
- Only sub-commands about this node as a whole are single words: ``doctor``,
  ``metrics`` and ``report``.

The package of a noun has a module for each verb, or for verbs with the same
reason to change.
"""

import argparse
from collections.abc import Iterator
from importlib import metadata
import logging
import sys
import typing

from cliff import app
from cliff import commandmanager
from cliff import help as cliff_help

from cinder_localclone.cmd import terminal
from cinder_localclone.core import errors
from cinder_localclone.core import names
from cinder_localclone.core import version

if typing.TYPE_CHECKING:
    import cinder_localclone.service.operator

#: Exit codes besides 0 and 1.
USAGE, INTERRUPTED = 2, 130
#: The class of each sub-command. It is imported when the sub-command runs, or
#: when --help lists all of them.
COMMANDS = {
    'doctor': 'doctor.doctor:Doctor',
    'encryption check': 'encryption.status:Check',
    'encryption header restore': 'encryption.keys:HeaderRestore',
    'encryption header save': 'encryption.status:HeaderSave',
    'encryption key rotate': 'encryption.keys:Rotate',
    'encryption leftover remove': 'encryption.leftovers:Remove',
    'encryption list': 'encryption.status:List',
    'encryption recovery key add': 'encryption.keys:Add',
    'encryption recovery key remove': 'encryption.keys:Remove',
    'encryption show': 'encryption.status:Show',
    'metrics': 'metrics.command:Metrics',
    'move abort': 'move.outcome:Abort',
    'move complete': 'move.outcome:Complete',
    'move list': 'move.listing:List',
    'move show': 'move.show:Show',
    'node check': 'node.check:Check',
    'node drain': 'node.drain:Drain',
    'node forget': 'node.forget:Forget',
    'node list': 'node.listing:List',
    'node restore': 'node.boot:Restore',
    'node show': 'node.show:Show',
    'node unlock': 'node.boot:Unlock',
    'reencryption pause': 'reencryption:Pause',
    'reencryption resume': 'reencryption:Resume',
    'reencryption start': 'reencryption:Start',
    'report': 'report.command:Report',
    'volume list': 'volume.listing:List',
    'volume repair': 'volume.repair:Repair',
    'volume show': 'volume.show:Show',
    'volume unlock': 'volume.unlock:Unlock',
}
#: Sub-commands run only by the volume service, in a process of their own.
#: Neither --help nor the completion lists them.
HIDDEN = {'reencryption run': 'reencryption:Run'}
#: The help for the options of cliff.
HELP = {
    '--version': 'show the version of the driver, and exit',
    '--verbose': 'also show the log of the libraries: informational messages; '
    '-vv: all',
    '--quiet': 'do not show warnings of the libraries',
    '--log-file': 'also write the log to the end of this file',
    '--help': 'show this help, or the help for a command, and exit',
    '--debug': 'also show the whole log, and the traceback of an error'}
#: Loggers silent without --verbose: the command prints the errors that their
#: libraries log.
TALKATIVE = ('amqp', 'barbicanclient', 'castellan', 'cinder', 'keystoneauth',
             'kombu', 'os_brick', 'oslo', 'oslo_db', 'oslo_messaging',
             'oslo_privsep', 'oslo_service', 'sqlalchemy', 'stevedore',
             'taskflow')


class Manager(commandmanager.CommandManager):
    """The sub-commands of the tables above."""

    def __init__(self) -> None:
        super().__init__(None)
        for name, where in {**COMMANDS, **HIDDEN}.items():
            self.commands[name] = metadata.EntryPoint(
                name, 'cinder_localclone.cmd.' + where, 'cinder_localclone')

    def __iter__(self) -> Iterator[tuple[str, metadata.EntryPoint]]:
        """Yield the sub-commands for --help and the completion."""
        return ((name, found) for name, found in super().__iter__()
                if name not in HIDDEN)

    def beginning(self, words: list[str]) -> tuple[str, list[str]]:
        """Return the longest noun in a command line, and its next words.

        :returns: the noun, or '' for none; its verbs and further words
        """
        names = [name.split() for name, _found in self]
        for count in range(len(words), 0, -1):
            found = {name[count] for name in names
                     if name[:count] == words[:count] and name[count:]}
            if found:
                return ' '.join(words[:count]), sorted(found)
        return '', []


class LocalClone(app.App):
    """Show volumes and their moves, and repair interrupted moves."""

    NAME = 'cinder-localclone'
    LOG = logging.getLogger(NAME)

    def __init__(self) -> None:
        super().__init__(
            description=self.__doc__, version=version.VERSION,
            command_manager=Manager(), deferred_help=True)
        # In place of cliff's own, which is added above.
        self.command_manager.commands['complete'] = metadata.EntryPoint(
            'complete', 'cinder_localclone.cmd.completion:Complete',
            'cinder_localclone')
        self.exit_code = 0

    def build_option_parser(
            self, description: str | None, version: str | None,
            argparse_kwargs: dict[str, typing.Any] | None = None,
    ) -> argparse.ArgumentParser:
        """Return the parser with the options of all sub-commands."""
        parser: argparse.ArgumentParser = super().build_option_parser(
            description, version, dict(
                argparse_kwargs or {}, prog=self.NAME, allow_abbrev=False))
        for action in parser._actions:
            for word in action.option_strings:
                action.help = HELP.get(word, action.help)
            if action.dest == 'log_file':
                action.metavar = 'PATH'
        parser.add_argument(
            '--config-file', action='append', metavar='PATH',
            help='Cinder\'s configuration; default: /etc/cinder/cinder.conf. '
            'May be repeated')
        parser.add_argument(
            '--backend', metavar='SECTION',
            help='section of the backend; default: the only section of this '
            'driver in enabled_backends')
        parser.add_argument(
            '--json', action='store_true',
            help='print a JSON list of objects instead of a table, with the '
            'columns as keys. "Fields" has values for programs, such as sizes '
            'in bytes')
        return parser

    def configure_logging(self) -> None:
        """Log to standard error, and to --log-file if it is given.

        Each message is logged once.
        """
        verbose = self.options.verbose_level + 2 * self.options.debug
        root = logging.getLogger()
        root.setLevel({0: logging.ERROR, 1: logging.WARNING,
                       2: logging.INFO}.get(verbose, logging.DEBUG))
        for name in TALKATIVE:
            logging.getLogger(name).setLevel(
                logging.CRITICAL if verbose < 2 else logging.NOTSET)
        # The root logger needs a handler: else oslo.log would add its own,
        # and each message would be logged twice.
        for handler in list(root.handlers):
            root.removeHandler(handler)
        handler = logging.StreamHandler(self.stderr)
        handler.setFormatter(terminal.Formatter(self.CONSOLE_MESSAGE_FORMAT))
        root.addHandler(handler)
        if self.options.log_file:
            root.addHandler(self._log_file())

    def _log_file(self) -> logging.Handler:
        """Return the handler of --log-file.

        :raises CommandError: if the file can't be written
        """
        try:
            file = logging.FileHandler(
                self.options.log_file, encoding='utf-8',
                errors='backslashreplace')
        except OSError as exc:
            raise errors.CommandError('%s can\'t be written: %s.' % (
                self.options.log_file, exc.strerror)) from exc
        file.setFormatter(terminal.Formatter(self.LOG_FILE_MESSAGE_FORMAT))
        return file

    def interact(self) -> None:
        """Print --help to standard error, because no sub-command was given.

        cliff would start a shell.

        :raises SystemExit: with code 2, as for any wrong usage
        """
        self.stdout = self.stderr
        try:
            cliff_help.HelpAction([], argparse.SUPPRESS, default=self)(
                self.parser, self.options, None)
        except SystemExit:
            raise SystemExit(USAGE)

    def backend(self) -> 'cinder_localclone.service.operator.Backend':
        """Return the backend chosen by the command line.

        :raises CommandError: if there is none
        """
        from cinder_localclone.service import operator as backend
        return backend.Backend(
            backend.Settings(self.options.config_file), self.options.backend)

    def volume_id(self, text: str) -> str:
        """Return the ID of a volume with a name or an ID.

        :raises CommandError: if no volume has this name, or more than one
        """
        return text if names.is_id(text) else self.backend().find(text)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a sub-command and return its exit code.

        :returns: 1 after an error; else the ``exit_code`` set by the
            sub-command
        :raises SystemExit: with code 2, if the sub-command does not exist or
            its arguments are invalid
        """
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            noun, words = self.command_manager.beginning(argv)
            self.parser.error(
                '"%s" needs one of these words next: %s' % (
                    noun, ', '.join(words)) if noun else
                '"%s" is not a command; --help lists them' % argv[0])
        return super().run_subcommand(argv) or self.exit_code


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    terminal.open_closed()
    try:
        with terminal.Escapes().on(sys.stdout), terminal.written():
            return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return terminal.PIPE_CLOSED
    except errors.CommandError as exc:
        print(exc, file=sys.stderr)
        return 1


def _run(argv: list[str]) -> int:
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        code: int = LocalClone().run(argv)
    except SystemExit as exc:  # of argparse, also after --help
        code = exc.code if isinstance(exc.code, int) else int(bool(exc.code))
    finally:
        root.handlers[:] = before
    return code


if __name__ == '__main__':
    sys.exit(main())
