# SPDX-License-Identifier: Apache-2.0
"""What thin_dump prints."""

from cinder_localclone.core import state

KIB, GIB = 1 << 10, 1 << 30
#: As thin_dump 0.9.0 prints it.
TEXT = '''\
<superblock uuid="" time="0" transaction="1" flags="0" version="2" \
data_block_size="%d" nr_data_blocks="16384">
  <device dev_id="7" mapped_blocks="%d" transaction="0" creation_time="0" \
snap_time="0">
%s  </device>
</superblock>
'''


def text(*ranges, block=64 * KIB, mapped=None):
    """:param ranges: first block, blocks; a single one is printed so"""
    lines = ''.join(
        '    <single_mapping origin_block="%d" data_block="5" time="0"/>\n'
        % first if count == 1 else
        '    <range_mapping origin_begin="%d" data_begin="5" length="%d" '
        'time="0"/>\n' % (first, count) for first, count in ranges)
    if mapped is None:
        mapped = sum(count for _first, count in ranges)
    return TEXT % (block // state.SECTOR, mapped, lines)
