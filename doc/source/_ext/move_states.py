# SPDX-License-Identifier: Apache-2.0
"""``.. move-states::``: the state machine, drawn from its own table."""

import shutil

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from cinder_localclone import state


#: Stands where graphviz is not installed, instead of the drawing.
NO_DRAWING = ['.. note:: This page was built without graphviz (``dot``): the '
              'drawing is left out, the table below says the same.']


def rst(draw: bool) -> list[str]:
    """The transitions as a graph and as a table, in reStructuredText.

    :param draw: whether to have the graph
    """
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
    return [*([*graph, '   }'] if draw else NO_DRAWING), '', *table, '']


class MoveStates(Directive):
    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(rst(bool(shutil.which('dot'))),
                       source='state.TRANSITIONS'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('move-states', MoveStates)
    return {'parallel_read_safe': True}
