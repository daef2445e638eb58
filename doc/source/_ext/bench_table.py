# SPDX-License-Identifier: Apache-2.0
"""Figures as reStructuredText, from what ``make bench JSON=FILE`` wrote."""

import math
from typing import Any

import list_table

_READS, _WRITES = '4 KiB random reads', '4 KiB synchronous random writes'
_ALONE, _NO_COPY = 'copy without a guest', 'copy of 1 MiB/s'
_WAITS = {'write': 'write to a local region',
          'first_write': 'first write to a region not yet copied',
          'read': 'read of a local region',
          'remote_read': 'read of a region not yet copied'}
#: Of a guest on the node to which its volume is copied.
_BESIDE_A_GUEST = {
    'hydration_beside_guest': (
        'copy beside 50 synchronous writes a second', _ALONE),
    'hydration_beside_busy_guest': (
        'copy beside 8 concurrent reads and writes', _ALONE),
    'hydration_beside_deep_guest': (
        'copy beside 32 concurrent reads and writes', _ALONE),
    **{'guest_%s_%s_beside_copy' % (what, which): (
        '%s, %sth percentile' % (words, which[1:]), _NO_COPY)
       for what, words in _WAITS.items()
       for which in ('p95', 'p99')},
    'busy_guest_iops': ('8 concurrent reads and writes (70 to 30)', _NO_COPY),
    'busy_guest_p99': ('the same, 99th percentile', _NO_COPY)}

#: Chapter: figure: what it is, what it is compared with.
CHAPTERS: dict[str, dict[str, tuple[str, str]]] = {
    'A volume at rest': {
        'randread_4k_handle': (_READS, 'the LV alone'),
        'syncwrite_4k_handle': (_WRITES, 'the LV alone'),
        'service_memory': ('memory of the volume service',
                           "the stock LVM driver's"),
        'service_memory_beside_moves': (
            'memory of the volume service during 20 moves', 'before them'),
        'sweep_1000_volumes': (
            'processor time of a sweep of a node with 1000 volumes',
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
            'processes and threads started on the two nodes',
            'for the scripts'),
        'attach_beside_20_moves': ('during 20 moves', 'without moves'),
        'local_clone_16GiB': (
            'volume of 16 GiB made of a snapshot on the other node, to its '
            'first correct read',
            "the stock driver's migration, then an attach"),
        'local_clone_16GiB_over_1GiB': (
            'the same', 'volume of 1 GiB with the same data')},
    'Parts of an attach on the other node': {
        'attach_in_' + part: (what, 'the whole attach') for part, what in {
            'lvm': 'LVM, and the map of the holes',
            'devices': 'device-mapper, flushes, a first read',
            'iscsi_login': 'login to the source',
            'target': 'iSCSI target',
            'database': 'database',
            'driver': 'the driver itself, and its calls to the other node',
            'cinder': "Cinder's API and services, and the message bus"
        }.items()},
    'A copy alone': {
        'hydration_over_raw_iscsi': (
            'copy', 'sequential read of the same device over iSCSI'),
        'hydration_over_dd': (
            'copy', 'two processes of dd, from the iSCSI disk to a new '
            'LV'),
        'hydration_over_kernel_defaults': (
            'copy', "dm-clone's default settings"),
        'sparse_move_10_percent': (
            'whole move of a volume of 16 GiB, a tenth of it written',
            'all of it written'),
        'sparse_move_10_percent_on_wire': (
            'data transferred in this move', 'all of it written')},
    'A copy beside a guest': {
        **{name + suffix: (what + mark, beside)
           for suffix, mark in (
               ('', ''), ('_at_full_speed', ', ``localclone_pace = full``'))
           for name, (what, beside) in _BESIDE_A_GUEST.items()},
        'guest_write_p99_over_plain': (
            'write to a local region, 99th percentile',
            'the same guest without a copy'),
        'guest_first_write_p99_over_plain': (
            'first write to a region not yet copied, 99th percentile',
            'the same guest without a copy'),
        'writes_lost_over_a_whole_move': (
            'synchronous writes in sequence lost by a guest during a whole '
            'copy, at the pace ``full``',
            'copy with 32 regions in flight, 8 in a request'),
        'writes_lost_yielding': (
            'the same at the pace ``yield``', 'the same'),
        'writes_lost_yielding_over_full': (
            'synchronous writes in sequence lost by a guest during a whole '
            'copy, at the pace ``yield``', 'at the pace ``full``'),
        'deferred_move_pause_ms': (
            'longest gap of a reader (a read each millisecond) when a '
            'deferred move maps its handle to the clone',
            'the same reader at rest'),
        'deferred_move_pause_holes_ms': (
            'the same when the holes are discarded',
            'the same reader at rest')},
    'A live migration with two volumes': {
        'live_migration_' + figure: (what, 'volumes of the stock driver')
        for figure, what in {
            'downtime': 'standstill of the guest',
            'seconds': "the whole migration, by Nova's record",
            'downtime_back_at_once': (
                'a second migration back at once: standstill of the guest'),
            'seconds_back_at_once': 'the whole of this migration'}.items()},
    'Back to a home that has kept its data (bare scripts)': {
        'return_of_what_changed': (
            'copy of the changed data, a 64th of a volume',
            'copy of the whole volume'),
        'return_of_what_changed_on_wire': (
            'data transferred in this copy', 'copy of the whole volume')},
    'IPsec between the nodes': {
        'link_%s_%s' % (figure, cipher): (
            '%s, %s' % (what, words), 'clear text')
        for cipher, words in (('aes', 'AES-256-GCM'),
                              ('chacha', 'ChaCha20-Poly1305'))
        for figure, what in (
            ('copy', 'copy'),
            ('attach', 'attach on the other node'),
            ('first_attach', 'first attach after the start of '
             'strongSwan'))},
    'Encryption by the driver': {
        'randread_4k_encrypted': (
            _READS, 'the same cipher on a plain LV'),
        'randread_4k_encrypted_over_plain': (
            _READS, 'volume without encryption'),
        'syncwrite_4k_encrypted': (
            _WRITES, 'the same cipher on a plain LV'),
        'syncwrite_4k_encrypted_over_plain': (
            _WRITES, 'volume without encryption'),
        'attach_encrypted': ('attach at home', 'volume without encryption'),
        'reencryption': ('re-encryption', 'cryptsetup alone'),
        'guest_write_p99_while_reencrypting': (
            'write of a guest during it, 99th percentile', 'at rest')},
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
    :raises KeyError: for a figure without a description
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
