# SPDX-License-Identifier: Apache-2.0
"""Tables of stock kernels in reStructuredText."""

from collections.abc import Iterable
import typing

import list_table

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
