# SPDX-License-Identifier: Apache-2.0
"""``.. move-states::``: the state machine, drawn from its own table."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from cinder_localclone import state


def rst() -> list[str]:
    """The transitions as a graph and as a table, in reStructuredText."""
    graph = ['.. graphviz::', '', '   digraph move {',
             '     node [shape=box, style=rounded, fontname="sans-serif"];',
             '     edge [fontname="sans-serif", fontsize=10];']
    table = ['.. list-table::', '   :header-rows: 1', '',
             '   * - phase', '     - event', '     - identities',
             '     - next phase']
    for (phase, event, committed), after in state.TRANSITIONS.items():
        graph.append('     "%s" -> "%s" [label="%s"%s];' % (
            phase.value, after.value, event.value,
            '' if committed else ', style=dashed'))
        table += ['   * - ``%s``' % phase.value, '     - ' + event.value,
                  '     - ' + ('swapped' if committed else 'as before'),
                  '     - ``%s``' % after.value]
    return [*graph, '   }', '', *table, '']


class MoveStates(Directive):
    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(rst(), source='state.TRANSITIONS'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('move-states', MoveStates)
    return {'parallel_read_safe': True}
