# SPDX-License-Identifier: Apache-2.0
"""``.. command-help:: NAME``, and ``.. command-overview::``.

The usage, the description and the arguments of a sub-command, and the table of
all sub-commands. Without a name: the options of the program.
"""

import pathlib
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

ROOT = pathlib.Path(__file__).parents[3]


class _Parsed(Directive):

    def lines(self, table):
        raise NotImplementedError

    def run(self):
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
        import command_table
        container = nodes.container()
        self.state.nested_parse(
            StringList(self.lines(command_table), source='command_table'),
            self.content_offset, container)
        return [container]


class CommandHelp(_Parsed):
    optional_arguments = 1
    final_argument_whitespace = True

    def lines(self, table):
        return table.rst(*self.arguments or [''])


class CommandOverview(_Parsed):

    def lines(self, table):
        return table.overview()


def setup(app):
    app.add_directive('command-help', CommandHelp)
    app.add_directive('command-overview', CommandOverview)
    return {'parallel_read_safe': True}
