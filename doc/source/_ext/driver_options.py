# SPDX-License-Identifier: Apache-2.0
"""``.. driver-options:: placement``: the options, from the code.

Without a word, those of the driver; with it, those of Nova's scheduler.

oslo.config's ``show-options`` finds nothing, and says so quietly, where the
package is not installed.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from cinder_localclone.nova import options as placement_opts
from cinder_localclone.service import options as opts


def _options(what: str):
    if what == 'placement':
        return placement_opts.placement_opts
    return [option for _group, options in opts.list_opts()
            for option in options]


def rst(what: str = '') -> list[str]:
    """The options in reStructuredText.

    :param what: of which part; '': the driver
    """
    lines = []
    for option in _options(what):
        lines += ['.. oslo.config:option:: ' + option.dest, '',
                  '   :Type: ' + option.type.type_name,
                  '   :Default: ``%s``' % option.default]
        for bound in ('min', 'max'):
            limit = getattr(option.type, bound, None)
            if limit is not None:
                lines.append('   :%s: %s' % (bound.capitalize(), limit))
        if getattr(option.type, 'choices', None):
            lines.append('   :Choices: ' + ', '.join(
                str(each) for each in option.type.choices))
        lines += ['', '   ' + ' '.join(option.help.split()), '']
    return lines


class DriverOptions(Directive):
    optional_arguments = 1

    def run(self):
        container = nodes.container()
        self.state.nested_parse(
            StringList(rst(*self.arguments), source='opts.list_opts'),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('driver-options', DriverOptions)
    return {'parallel_read_safe': True}
