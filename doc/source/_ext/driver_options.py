# SPDX-License-Identifier: Apache-2.0
"""``.. driver-options::``: the options, from the code.

oslo.config's ``show-options`` finds nothing, and says so quietly, where the
package is not installed.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from cinder_localclone import opts


def rst() -> list[str]:
    lines = []
    for _group, options in opts.list_opts():
        for option in options:
            lines += ['.. oslo.config:option:: ' + option.dest, '',
                      '   :Type: ' + option.type.type_name,
                      '   :Default: ``%s``' % option.default]
            for what in ('min', 'max'):
                limit = getattr(option.type, what, None)
                if limit is not None:
                    lines.append('   :%s: %s' % (what.capitalize(), limit))
            if getattr(option.type, 'choices', None):
                lines.append('   :Choices: ' + ', '.join(
                    str(each) for each in option.type.choices))
            lines += ['', '   ' + ' '.join(option.help.split()), '']
    return lines


class DriverOptions(Directive):
    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(rst(), source='opts.list_opts'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('driver-options', DriverOptions)
    return {'parallel_read_safe': True}
