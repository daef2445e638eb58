# SPDX-License-Identifier: Apache-2.0
"""``.. lvm-tags::``: what a node keeps in tags of LVM."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import lvm_tags_table


class LvmTags(Directive):
    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(lvm_tags_table.rst(), source='lvm_tags.TABLE'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('lvm-tags', LvmTags)
    return {'parallel_read_safe': True}
