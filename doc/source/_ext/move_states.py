# SPDX-License-Identifier: Apache-2.0
"""``.. move-states::``: the state machine, drawn from its own table."""

import shutil

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import state_table


class MoveStates(Directive):
    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(state_table.rst(bool(shutil.which('dot'))),
                       source='state.TRANSITIONS'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('move-states', MoveStates)
    return {'parallel_read_safe': True}
