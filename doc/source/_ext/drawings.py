# SPDX-License-Identifier: Apache-2.0
"""``.. package-tree::`` and ``.. drawing:: FILE.dot``.

The content of ``package-tree`` lists folders, see
:func:`.package_tree.rst`. The content of ``drawing`` says in characters what
the graph in FILE shows: a page that is built without graphviz has it instead.
"""

import shutil

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
import package_tree


class PackageTree(Directive):
    has_content = True

    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(package_tree.rst(self.content), source='docstrings'),
            self.content_offset, container)
        return [container]


class Drawing(Directive):
    has_content = True
    required_arguments = 1
    option_spec = {'alt': directives.unchanged_required}

    def run(self):
        if shutil.which('dot'):
            lines = ['.. graphviz:: ' + self.arguments[0]]
            if 'alt' in self.options:
                lines.append('   :alt: ' + self.options['alt'])
        else:
            lines = ['.. code-block:: text', '',
                     *('   ' + line for line in self.content)]
        container = nodes.container()
        self.state.nested_parse(
            StringList([*lines, ''], source=self.arguments[0]),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('package-tree', PackageTree)
    app.add_directive('drawing', Drawing)
    return {'parallel_read_safe': True}
