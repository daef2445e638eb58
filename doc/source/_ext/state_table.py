# SPDX-License-Identifier: Apache-2.0
"""The state machine as reStructuredText, from its own table."""

import list_table

from cinder_localclone.core import state

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
    rows = [('phase', 'event', 'identities', 'next phase')]
    for (phase, event, committed), after in state.TRANSITIONS.items():
        graph.append('     "%s" -> "%s" [label="%s"%s];' % (
            phase.value, after.value, event.value,
            '' if committed else ', style=dashed'))
        rows.append(('``%s``' % phase.value, event.value,
                     'swapped' if committed else 'as before',
                     '``%s``' % after.value))
    return [*([*graph, '   }'] if draw else NO_DRAWING), '',
            *list_table.rst(rows)]
