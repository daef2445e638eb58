# SPDX-License-Identifier: Apache-2.0
"""Figures as reStructuredText, from what ``make bench JSON=FILE`` wrote."""

from typing import Any

import list_table

_READS, _WRITES = '4 KiB random reads', '4 KiB synchronous random writes'
_GUEST = 'a guest that writes 4 KiB synchronously 25 times a second'

#: Chapter: figure: what it is, what it is compared with.
CHAPTERS: dict[str, dict[str, tuple[str, str]]] = {
    'A volume at rest': {
        'randread_4k_handle': (_READS, 'the LV beneath'),
        'syncwrite_4k_handle': (_WRITES, 'the LV beneath'),
        'service_memory': ('memory of the volume service',
                           "the stock LVM driver's"),
        'service_memory_beside_moves': (
            'memory of the volume service while 20 volumes move',
            'before they do')},
    'An attach on the other node': {
        **{'attach_%dGiB' % size: (
            '%d GiB, from the API call to the first correct read' % size,
            "the stock driver's migration, then an attach")
           for size in (1, 4, 16)},
        'attach_16GiB_over_1GiB': ('16 GiB', '1 GiB'),
        'attach_beside_20_moves': ('while 20 volumes move', 'while none does'),
        'birth_16GiB': (
            'a volume of 16 GiB from a snapshot that is on the other node, '
            'until its first correct read',
            "the stock driver's migration, then an attach"),
        'birth_16GiB_over_1GiB': ('the same', 'one of 1 GiB with as much '
                                  'data')},
    'A copy alone': {
        'hydration_over_raw_iscsi': (
            'copying', 'a sequential read of the same device over iSCSI'),
        'hydration_over_kernel_defaults': (
            'copying', "dm-clone's default settings"),
        'sparse_move_10_percent': (
            'a whole move of a volume of which a tenth was written',
            'of one that was written whole'),
        'sparse_move_10_percent_on_wire': ('the same, what is transferred',
                                           'the same')},
    'A copy beside a guest': {
        'hydration_beside_guest': (
            'copying beside %s' % _GUEST, "the kernel's own pace"),
        'hydration_beside_guest_at_full_speed': (
            'the same with ``localclone_pace = full``',
            "the kernel's own pace"),
        'guest_write_p95_beside_copy': (
            'how long all but 5 of 100 of its writes take at most',
            'the same while nothing is copied'),
        'guest_write_p99_beside_copy': (
            'all but one of 100',
            'the same while nothing is copied'),
        'guest_write_p95_beside_copy_at_full_speed': (
            'all but 5 with ``localclone_pace = full``',
            'the same while nothing is copied'),
        'guest_write_p99_beside_copy_at_full_speed': (
            'all but one with ``localclone_pace = full``',
            'the same while nothing is copied'),
        'follow_pause_ms': (
            'longest gap of a guest\'s reader, once a millisecond, when its '
            'volume follows it', 'of the same reader at rest')},
    'Encryption by the driver': {
        'randread_4k_encrypted': (
            _READS, 'the same cipher put on an LV by hand'),
        'randread_4k_encrypted_over_plain': (
            _READS, 'a volume that is not encrypted'),
        'syncwrite_4k_encrypted': (
            _WRITES, 'the same cipher put on an LV by hand'),
        'syncwrite_4k_encrypted_over_plain': (
            _WRITES, 'a volume that is not encrypted'),
        'attach_encrypted': ('an attach where the volume is',
                             'of one that is not encrypted'),
        'reencryption': ('re-encryption', 'cryptsetup alone'),
        'guest_write_p99_while_reencrypting': (
            'how long all but one of 100 of the writes of such a guest take '
            'at most', 'the same at rest')},
}


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ''
    return '%.0f' % value if value >= 100 else '%.3g' % value


def rst(run: dict[str, Any]) -> list[str]:
    """Where and when it was measured; a table for each chapter.

    :param run: as ``lab.bench`` writes it
    :raises KeyError: for a figure that nobody has described
    """
    rows = {row['name']: row for row in run['rows']}
    told = {name for names in CHAPTERS.values() for name in names}
    if rows.keys() - told:
        raise KeyError(sorted(rows.keys() - told))
    lines = ['Commit ``%s``, nodes with Linux %s, begun %s UTC, %d minutes.'
             % (run['commit'], run['kernel'], run['began'],
                round(run['seconds'] / 60)), '']
    for title, names in CHAPTERS.items():
        found = [(*texts, rows[name]) for name, texts in names.items()
                 if name in rows]
        if found:
            lines += list_table.rst([
                ('figure', 'value', 'compared with', 'value', 'ratio'),
                *((what, '%s %s' % (_number(row['value']), row['unit']),
                   beside, _number(row['beside']), _number(row['ratio']))
                  for what, beside, row in found)],
                title, '36 12 32 12 8')
    return lines
