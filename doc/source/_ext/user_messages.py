# SPDX-License-Identifier: Apache-2.0
"""``.. user-messages:: requests``, or ``codes``: what members read."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
import messages_table

_TABLES = {'requests': messages_table.requests, 'codes': messages_table.codes}


class UserMessages(Directive):

    required_arguments = 1

    def run(self):
        from cinder_localclone.core import user_messages
        which = directives.choice(self.arguments[0], tuple(_TABLES))
        container = nodes.container()
        self.state.nested_parse(
            StringList(_TABLES[which](user_messages.Action, user_messages),
                       source='user_messages.MESSAGES'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('user-messages', UserMessages)
    return {'parallel_read_safe': True}
