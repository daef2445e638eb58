# SPDX-License-Identifier: Apache-2.0
"""``.. metric-table::``, ``alert-table`` and ``event-table``."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import monitoring_tables


def _directive(rst) -> type:
    class Made(Directive):
        def run(self):
            container = nodes.container()
            self.state.nested_parse(StringList(rst(), source=rst.__name__),
                                    self.content_offset, container)
            return [container]
    return Made


def setup(app):
    for name, rst in (('metric-table', monitoring_tables.metrics),
                      ('alert-table', monitoring_tables.alerts),
                      ('event-table', monitoring_tables.log_lines)):
        app.add_directive(name, _directive(rst))
    return {'parallel_read_safe': True}
