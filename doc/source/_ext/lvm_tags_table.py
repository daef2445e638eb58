# SPDX-License-Identifier: Apache-2.0
"""All LVM tags, who sets and who clears each, from the code's own table."""

import list_table

from cinder_localclone.core import lvm_tags


def rst() -> list[str]:
    """A row for each tag, in reStructuredText."""
    return list_table.rst([('tag', 'on', 'while it is there', 'set by',
                            'cleared by'), *(
        ('``%s``%s' % (each.text, each.value and ' (%s)' % each.value),
         each.on.value, each.meaning, _modules(each.set_by),
         _modules(each.cleared_by) or 'goes with the LV')
        for each in lvm_tags.TABLE)], widths='20 12 36 16 16')


def _modules(names: tuple[str, ...]) -> str:
    return ', '.join(each if each == lvm_tags.OPERATOR else '``%s``' % each
                     for each in names)
