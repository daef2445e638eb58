# SPDX-License-Identifier: Apache-2.0
"""``.. peer-methods::``: the calls between nodes."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import peer_table


class PeerMethods(Directive):
    def run(self):
        from cinder import objects
        objects.register_all()
        from cinder_localclone.core import rpc
        from cinder_localclone.service import endpoint  # noqa: F401, methods
        container = nodes.container()
        self.state.nested_parse(
            StringList(peer_table.rst(rpc.METHODS), source='rpc.METHODS'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('peer-methods', PeerMethods)
    return {'parallel_read_safe': True}
