# SPDX-License-Identifier: Apache-2.0
"""Tables of what a long run has kept in a file.

``.. fault-matrix:: FILE``: of ``make faults RESUME=FILE``.
``.. bench-table:: FILE``: of ``make bench JSON=FILE``.
"""

import json
import pathlib

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import bench_table
import fault_table


class _Kept(Directive):
    required_arguments = 1

    def run(self):
        page = self.state.document.settings.env
        name, path = page.relfn2path(self.arguments[0])
        page.note_dependency(name)
        kept = json.loads(pathlib.Path(path).read_text())
        container = nodes.container()
        self.state.nested_parse(
            StringList(self.rst(kept), source=path), self.content_offset,
            container)
        return [container]


class FaultMatrix(_Kept):
    rst = staticmethod(fault_table.rst)


class BenchTable(_Kept):
    rst = staticmethod(bench_table.rst)


def setup(app):
    app.add_directive('fault-matrix', FaultMatrix)
    app.add_directive('bench-table', BenchTable)
    return {'parallel_read_safe': True}
