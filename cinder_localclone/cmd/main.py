# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``cinder-localclone``."""

import argparse
from importlib import metadata
import logging
import sys
import typing

from cliff import app
from cliff import commandmanager
from cliff import help as cliff_help

from cinder_localclone.core import names
from cinder_localclone.core import version

if typing.TYPE_CHECKING:
    import cinder_localclone.service.operator

#: Exit codes besides 0 and 1.
USAGE, INTERRUPTED = 2, 130
#: The class of each sub-command. It is imported when the sub-command runs, or
#: when --help lists all of them.
COMMANDS = {
    'abort': 'repair:Abort',
    'doctor': 'doctor.doctor:Doctor',
    'drain': 'drain:Drain',
    'encryption add-recovery-key': 'encryption.keys:Add',
    'encryption header-backup': 'encryption.status:HeaderBackup',
    'encryption header-restore': 'encryption.keys:HeaderRestore',
    'encryption pause': 'encryption.reencrypt:Pause',
    'encryption reencrypt': 'encryption.reencrypt:Reencrypt',
    'encryption remove-recovery-key': 'encryption.keys:Remove',
    'encryption resume': 'encryption.reencrypt:Resume',
    'encryption rotate': 'encryption.keys:Rotate',
    'encryption shred': 'encryption.leftovers:Shred',
    'encryption status': 'encryption.status:Status',
    'encryption unlock': 'boot:OpenWanted',
    'encryption verify': 'encryption.status:Verify',
    'forget': 'forget:Forget',
    'metrics': 'metrics.command:Metrics',
    'moves': 'moves:Moves',
    'nodes': 'nodes:Nodes',
    'repair': 'repair:Repair',
    'restore': 'boot:Restore',
    'resume': 'repair:Resume',
    'show': 'show:Show',
    'unlock': 'boot:Unlock',
    'volumes': 'volumes:Volumes',
}
#: Sub-commands run only by the volume service, in a process of their own.
#: Their class hides them from --help: cliff lists no deprecated commands.
HIDDEN = {'encryption run': 'encryption.reencrypt:Run'}
#: Loggers silent without --verbose: the command prints the errors that their
#: libraries log.
TALKATIVE = ('amqp', 'cinder', 'kombu', 'os_brick', 'oslo', 'oslo_db',
             'oslo_messaging', 'oslo_privsep', 'oslo_service', 'sqlalchemy',
             'stevedore', 'taskflow')


class LocalClone(app.App):
    """Show volumes and their moves, and repair interrupted moves."""

    NAME = 'cinder-localclone'
    LOG = logging.getLogger(NAME)

    def __init__(self):
        manager = commandmanager.CommandManager(None)
        for name, where in {**COMMANDS, **HIDDEN}.items():
            manager.commands[name] = metadata.EntryPoint(
                name, 'cinder_localclone.cmd.' + where, 'cinder_localclone')
        super().__init__(
            description=self.__doc__, version=version.VERSION,
            command_manager=manager, deferred_help=True)
        self.exit_code = 0

    def build_option_parser(
            self, description: str | None, version: str | None,
            argparse_kwargs: dict | None = None) -> argparse.ArgumentParser:
        """Return the parser with the options of all sub-commands."""
        parser = super().build_option_parser(
            description, version, dict(argparse_kwargs or {},
                                       prog=self.NAME))
        parser.add_argument(
            '--config-file', action='append', metavar='PATH',
            help='Cinder\'s configuration; default: /etc/cinder/cinder.conf')
        parser.add_argument(
            '--backend', metavar='SECTION',
            help='section of the backend; default: the only section of this '
            'driver')
        parser.add_argument(
            '--json', action='store_true',
            help='print a JSON list instead of a table')
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
        root.addHandler(logging.StreamHandler(self.stderr))
        if self.options.log_file:
            file = logging.FileHandler(self.options.log_file)
            file.setFormatter(logging.Formatter(self.LOG_FILE_MESSAGE_FORMAT))
            root.addHandler(file)

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
            self.parser.error('"%s" is not a command; --help lists them'
                              % argv[0])
        return super().run_subcommand(argv) or self.exit_code


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        return LocalClone().run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == '__main__':
    sys.exit(main())
