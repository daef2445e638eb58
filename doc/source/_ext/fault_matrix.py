# SPDX-License-Identifier: Apache-2.0
"""``.. fault-matrix:: FILE``: what ``make faults SUMMARY=FILE`` has kept."""

import json
import pathlib

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import fault_table


class FaultMatrix(Directive):
    required_arguments = 1

    def run(self):
        page = self.state.document.settings.env
        name, path = page.relfn2path(self.arguments[0])
        page.note_dependency(name)
        summary = json.loads(pathlib.Path(path).read_text())
        container = nodes.container()
        self.state.nested_parse(
            StringList(fault_table.rst(summary), source=path),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('fault-matrix', FaultMatrix)
    return {'parallel_read_safe': True}
