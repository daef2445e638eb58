# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``cinder-localclone``."""

import logging
import sys

from cliff import app
from cliff import commandmanager

from cinder_localclone.cmd import backend
from cinder_localclone.cmd import doctor
from cinder_localclone.cmd import moves
from cinder_localclone.cmd import restoring

COMMANDS = {
    'abort': moves.Abort,
    'doctor': doctor.Doctor,
    'repair': moves.Repair,
    'restore': restoring.Restore,
    'resume': moves.Resume,
    'show': moves.Show,
    'moves': moves.Moves,
}


class LocalClone(app.App):
    """Look at node-local volumes that move, and settle what is stuck."""

    def __init__(self):
        manager = commandmanager.CommandManager('cinder_localclone.cmd')
        for name, kind in COMMANDS.items():
            manager.add_command(name, kind)
        super().__init__(description=self.__doc__, version='0.1.0',
                         command_manager=manager, deferred_help=True)
        self.exit_code = 0

    def build_option_parser(self, description, version):
        parser = super().build_option_parser(description, version)
        parser.add_argument(
            '--config-file', action='append', metavar='PATH',
            help='Cinder\'s configuration; default: /etc/cinder/cinder.conf')
        parser.add_argument(
            '--backend', metavar='SECTION',
            help='section of the backend; default: the only one there is')
        return parser

    def initialize_app(self, argv):
        backend.load(self.options.config_file)
        for noisy in ('stevedore', 'oslo', 'oslo_db', 'os_brick', 'amqp',
                      'taskflow'):
            logging.getLogger(noisy).setLevel(logging.WARNING)

    def interact(self):
        """Without a sub-command: say what there is."""
        self.parser.print_help()
        return 2

    def backend(self):
        """The backend that the command line names."""
        return backend.Backend(self.options.backend)

    def run_subcommand(self, argv):
        return super().run_subcommand(argv) or self.exit_code


def main(argv=None):
    arguments = sys.argv[1:] if argv is None else list(argv)
    # cliff's own way to ask for JSON is -f json, behind the sub-command.
    if '--json' in arguments:
        arguments.remove('--json')
        arguments += ['-f', 'json']
    return LocalClone().run(arguments)


if __name__ == '__main__':
    sys.exit(main())
