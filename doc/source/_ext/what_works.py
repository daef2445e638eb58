# SPDX-License-Identifier: Apache-2.0
"""``.. what-works::``: the list that ``make operations`` proves."""

import pathlib
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import messages_table
import operations_table

ROOT = pathlib.Path(__file__).resolve().parents[3]


class WhatWorks(Directive):

    def run(self):
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
        from cinder_localclone.core import user_messages
        from lab.operations import table
        self.state.document.settings.env.note_dependency(str(table.PATH))
        container = nodes.container()
        self.state.nested_parse(
            StringList(operations_table.rst(table.read(), {
                each.code: messages_table.problem(each) for each in
                user_messages.MESSAGES.values()}), source=str(table.PATH)),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('what-works', WhatWorks)
    return {'parallel_read_safe': True}
