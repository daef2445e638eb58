# SPDX-License-Identifier: Apache-2.0
"""``.. privileged-calls:: default``: what a daemon can be asked for."""

import pathlib

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import privileged_table

PACKAGE = (pathlib.Path(__file__).parents[3] / 'cinder_localclone'
           / 'storage/privsep')


class PrivilegedCalls(Directive):
    required_arguments = 1

    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(privileged_table.rst(PACKAGE, self.arguments[0]),
                       source='privileged_table'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('privileged-calls', PrivilegedCalls)
    return {'parallel_read_safe': True}
