# SPDX-License-Identifier: Apache-2.0
"""``make encryption``: bring a lab up, tell the story, show the table."""

import re
import sys

from lab import command as commands
from lab.core import node
from lab.encryption import story


def main():
    """The command; its exit code."""
    command = commands.Command(
        'encryption', 'lab.encryption', 'Encryption at rest',
        'Bring up two real nodes with Nova and Barbican and show what '
        'encrypted volumes promise: those that Nova encrypts, then those '
        'that the driver does.', lab_name='encryption',
        nova=True, keys=True,
        options={'localclone_header_backup_dir': node.HEADERS})
    command.parser.add_argument(
        '--only', default='', metavar='REGEX', help='only: ' + ', '.join(
            each.name for each in story.WAYS))
    return command.main(lambda lab, options, report: story.run(
        lab, report, re.compile(options.only).search))


if __name__ == '__main__':
    sys.exit(main())
