# SPDX-License-Identifier: Apache-2.0
"""Figures as reStructuredText, from what ``make bench JSON=FILE`` wrote."""

import math
from typing import Any

import list_table

_READS, _WRITES = '4 KiB random reads', '4 KiB synchronous random writes'
_ALONE, _NO_COPY = 'copying, no guest at work', 'a copy of 1 MiB/s'
_WAITS = {'write': 'a write to what is local',
          'first_write': 'a first write to what is not',
          'read': 'a read of what is local',
          'remote_read': 'a read of what is not'}
#: Of a guest on the node to which its volume is copied.
_BESIDE_A_GUEST = {
    'hydration_beside_guest': (
        'copying beside 50 synchronous writes a second', _ALONE),
    'hydration_beside_busy_guest': (
        'copying beside 8 reads and writes at a time', _ALONE),
    'hydration_beside_deep_guest': (
        'copying beside 32 reads and writes at a time', _ALONE),
    **{'guest_%s_%s_beside_copy' % (what, which): (
        '%s, %sth percentile' % (words, which[1:]), _NO_COPY)
       for what, words in _WAITS.items()
       for which in ('p95', 'p99')},
    'busy_guest_iops': ('8 reads and writes (70 to 30) at a time', _NO_COPY),
    'busy_guest_p99': ('these, 99th percentile', _NO_COPY)}

#: Chapter: figure: what it is, what it is compared with.
CHAPTERS: dict[str, dict[str, tuple[str, str]]] = {
    'A volume at rest': {
        'randread_4k_handle': (_READS, 'the LV beneath'),
        'syncwrite_4k_handle': (_WRITES, 'the LV beneath'),
        'service_memory': ('memory of the volume service',
                           "the stock LVM driver's"),
        'service_memory_beside_moves': (
            'memory of the volume service while 20 volumes move',
            'before they do'),
        'look_1000_volumes': (
            'processor time of a periodic check of a node with 1000 volumes',
            'with ten')},
    'An attach on the other node': {
        **{'attach_%dGiB' % size: (
            '%d GiB, from the API call to the first correct read' % size,
            "the stock driver's migration, then an attach")
           for size in (1, 4, 16)},
        'attach_16GiB_over_1GiB': ('16 GiB', '1 GiB'),
        'attach_over_floor': (
            'an attach until the caller has the path',
            'the same steps of LVM, device-mapper and iSCSI by bare scripts'),
        'processes_over_floor': (
            'processes and threads that the two nodes start meanwhile',
            'for the scripts'),
        'attach_beside_20_moves': ('while 20 volumes move', 'while none does'),
        'birth_16GiB': (
            'a volume of 16 GiB from a snapshot that is on the other node, '
            'until its first correct read',
            "the stock driver's migration, then an attach"),
        'birth_16GiB_over_1GiB': ('the same', 'one of 1 GiB with as much '
                                  'data')},
    'Parts of an attach on the other node': {
        'attach_in_' + part: (what, 'all of it') for part, what in {
            'lvm': 'LVM, and what of the source was never written',
            'devices': 'device-mapper, flushes, a first read',
            'iscsi_login': 'the log-in to the source',
            'target': 'the iSCSI target',
            'database': 'the database',
            'driver': 'the driver itself, and its messages to the other node',
            'cinder': "Cinder's API and services, and the message bus"
        }.items()},
    'A copy alone': {
        'hydration_over_raw_iscsi': (
            'copying', 'a sequential read of the same device over iSCSI'),
        'hydration_over_dd': (
            'copying', 'two processes of dd, one reading over iSCSI, the '
            'other writing what it reads to a new LV'),
        'hydration_over_kernel_defaults': (
            'copying', "dm-clone's default settings"),
        'sparse_move_10_percent': (
            'a whole move of a volume of 16 GiB of which a tenth was '
            'written',
            'of one that was written whole'),
        'sparse_move_10_percent_on_wire': ('the same, what is transferred',
                                           'the same')},
    'A copy beside a guest': {
        **{name + suffix: (what + mark, beside)
           for suffix, mark in (
               ('', ''), ('_at_full_speed', ', ``localclone_pace = full``'))
           for name, (what, beside) in _BESIDE_A_GUEST.items()},
        'guest_write_p99_over_plain': (
            'a write to what is local, 99th percentile',
            'the same guest, and no copy ever'),
        'guest_first_write_p99_over_plain': (
            'a first write to what is not, 99th percentile',
            'the same guest, and no copy ever'),
        'writes_lost_over_a_whole_move': (
            'synchronous writes, one after the other, that a copy has kept a '
            'guest from until its end, at the pace ``full``',
            'a copy with 32 regions in flight, 8 in a request'),
        'writes_lost_yielding': (
            'the same at the pace ``yield``', 'the same'),
        'writes_lost_yielding_over_full': (
            'synchronous writes, one after the other, that a copy at the pace '
            '``yield`` has kept a guest from until its end',
            'a copy at the pace ``full``'),
        'follow_pause_ms': (
            'longest gap of a guest that reads once a millisecond when its '
            'volume begins to follow it', 'of the same reader at rest'),
        'follow_pause_holes_ms': (
            'and afterwards, when what was never written is left out',
            'of the same reader at rest')},
    'A live migration with two volumes': {
        'live_migration_' + figure: (what, 'volumes of the stock driver')
        for figure, what in {
            'downtime': 'the guest stands still',
            'seconds': 'all of it, as Nova has it',
            'downtime_back_at_once': 'at once back: the guest stands still',
            'seconds_back_at_once': 'at once back: all of it'}.items()},
    'Back to a home that has kept its data (bare scripts)': {
        'return_of_what_changed': (
            'copying what has changed, a 64th of a volume',
            'copying all of it'),
        'return_of_what_changed_on_wire': ('the same, what is transferred',
                                           'the same')},
    'IPsec between the nodes': {
        'link_%s_%s' % (figure, cipher): (
            '%s, %s' % (what, words), 'clear text')
        for cipher, words in (('aes', 'AES-256-GCM'),
                              ('chacha', 'ChaCha20-Poly1305'))
        for figure, what in (
            ('copy', 'copying'),
            ('attach', 'an attach on the other node'),
            ('first_attach', 'the first attach after the start of '
             'strongSwan'))},
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
            'a write of such a guest, 99th percentile', 'the same at rest')},
}


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ''
    return '%.0f' % value if value >= 100 else '%.3g' % value


def rst(kept: dict[str, dict[str, Any]]) -> list[str]:
    """A table of figures for each chapter; where and when the chapters of
    the bench were measured.

    :param kept: as ``lab.bench`` writes it
    :raises KeyError: for a figure that nobody has described
    """
    rows = {row['name']: row for run in kept.values() for row in run['rows']}
    told = {name for names in CHAPTERS.values() for name in names}
    if rows.keys() - told:
        raise KeyError(sorted(rows.keys() - told))
    lines = []
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
    return lines + list_table.rst([
        ('``ONLY=``', 'commit', 'Linux of the nodes', 'begun (UTC)',
         'minutes'),
        *((name, '``%s``' % run['commit'], run['kernel'], run['began'],
           '%d' % math.ceil(run['seconds'] / 60))
          for name, run in kept.items())],
        'Chapters of the bench', '20 20 20 25 15')
