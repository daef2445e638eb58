# SPDX-License-Identifier: Apache-2.0
"""``make devstack``, ``make ansible``, ``make install-page``."""

import sys

from lab import command as commands
from lab.install import ansible
from lab.install import devstack
from lab.install import page

INSTALLERS = {each.name: each for each in (
    devstack.DevStack, ansible.Ansible, page.Page)}


def main():
    """The command; its exit code."""
    if sys.argv[1:2] and sys.argv[1] in INSTALLERS:
        kind = INSTALLERS[sys.argv.pop(1)]
    else:
        print('usage: python3 -m lab.install %s ...' % '|'.join(INSTALLERS),
              file=sys.stderr)
        return 2
    command = commands.Command(
        kind.name, 'lab.install', kind.title, kind.__doc__,
        lab_name=kind.name, words=(kind.name,))
    kind.add_arguments(command.parser)
    return command.main(lambda lab, options, report: kind(
        lab, options, report).run())


if __name__ == '__main__':
    sys.exit(main())
