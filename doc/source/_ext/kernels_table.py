# SPDX-License-Identifier: Apache-2.0
"""``.. kernels::``: the stock kernels of distributions, and their sources."""

from collections.abc import Iterable
import pathlib
import sys
import typing

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import list_table

ROOT = pathlib.Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

if typing.TYPE_CHECKING:
    from cinder_localclone.core import kernels


def _literal(text: str) -> str:
    return '``%s``' % text if text else ''


def rst(rows: 'Iterable[kernels.Kernel]') -> list[str]:
    """Return the table of kernels, then the table of their sources."""
    rows = list(rows)
    return list_table.rst([
        ('Distribution', 'dm-clone', 'dm-ebs', 'dm-integrity', 'LIO',
         'Package of the module', 'Command'),
        *((each.name, each.clone.value, each.ebs.value, each.integrity.value,
           each.lio.value, each.package, _literal(each.command))
          for each in rows)], widths='19 9 8 10 9 20 25') + list_table.rst([
              ('Distribution', 'Kernel', 'Configuration', 'Date', 'Remark'),
              *((each.name, each.kernel or 'not seen', each.source,
                 each.date, ' '.join(filter(None, (
                     each.remark, each.lio_command and (
                         'The iSCSI target: %s.' % _literal(
                             each.lio_command)))))) for each in rows)],
              widths='17 16 29 13 25')


class Kernels(Directive):

    def run(self):
        from cinder_localclone.core import kernels
        self.state.document.settings.env.note_dependency(kernels.__file__)
        container = nodes.container()
        self.state.nested_parse(
            StringList(rst(kernels.KERNELS), source=kernels.__file__),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('kernels', Kernels)
    return {'parallel_read_safe': True}
