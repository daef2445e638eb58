# SPDX-License-Identifier: Apache-2.0
"""Brings a lab up, measures, prints."""

import argparse
import json
import os
import re
import sys
import time

import lab as labs
from lab import bench as package
from lab.bench import attach
from lab.bench import births
from lab.bench import copies
from lab.bench import encrypted
from lab.bench import floor
from lab.bench import follows
from lab.bench import guests
from lab.core import extras
from lab.core import process
from lab.core import source


#: Of the project: 20 volumes move at a time, some do not.
QUOTAS = {'volumes': 40, 'snapshots': 40, 'gigabytes': 2000}


class Bench(encrypted.Encrypted, copies.Copies, attach.Attach, births.Births,
            follows.Follows, guests.Guests, floor.Floor, floor.Looks):
    """All figures."""


#: By name: how they are measured, and whether the stock driver's services run.
CHAPTERS = {
    'memory': (Bench.memory, True), 'at_rest': (Bench.at_rest, False),
    'hydration': (Bench.hydration, False),
    'guest': (Bench.beside_a_guest, False),
    'lost': (Bench.writes_lost, False), 'sparse': (Bench.sparse, False),
    'follow': (Bench.follow, False), 'moves': (Bench.beside_moves, False),
    'attach': (lambda bench: bench.attach((1, 4, 16)), True),
    'floor': (Bench.over_floor, False), 'looks': (Bench.looks, False),
    'births': (lambda bench: bench.births(1, 16), False),
    'encrypted': (Bench.encrypted, False)}


def main():
    """Bring a lab up, measure, print; the exit code."""
    parser = argparse.ArgumentParser(prog='python3 -m lab.bench',
                                     description=package.__doc__)
    parser.add_argument('--json', metavar='FILE',
                        help='also write the figures as JSON')
    parser.add_argument('--name', default='bench', help='name of the lab')
    parser.add_argument('--only', metavar='REGEX', default='.',
                        help='chapters like it, of ' + ', '.join(CHAPTERS))
    options = parser.parse_args()
    lab = labs.Lab(options.name)
    try:
        if lab.directory.exists():
            lab.down()
        lab.up(disks='plain', disk_gib=40, keys=True)
        try:
            began = time.time()
            rows = run(lab, options.only)
            seconds = round(time.time() - began)
        finally:
            lab.down(keep_logs=True)
    except process.LabError as exc:
        print('bench: %s' % exc, file=sys.stderr)
        return 1
    if options.json:
        with open(options.json, 'w') as out:
            json.dump({'commit': source.commit_of(lab.repo),
                       'kernel': lab.settings['kernel']['release'],
                       'began': time.strftime('%Y-%m-%d %H:%M',
                                              time.gmtime(began)),
                       'seconds': seconds,
                       'rows': rows}, out, indent=1)
            out.write(os.linesep)
    print('\n%-34s %10s %-6s %10s %7s' % (
        'figure', 'value', 'unit', 'beside', 'ratio'))
    for row in rows:
        print('%-34s %10.3f %-6s %10s %7s' % (
            row['name'], row['value'], row['unit'], row['beside'] or '',
            row['ratio'] or ''))
    return 0


def run(lab, only='.'):
    """All figures of a lab that is up.

    :param only: a regular expression that finds names of chapters
    """
    bench = Bench(lab)
    extras.raise_quotas(lab, 'demo', **QUOTAS)
    for node in (bench.n1, bench.n2):
        bench.instance.connector(node)  # once: it takes seconds
    for name, (measure, has_stock) in CHAPTERS.items():
        if not re.search(only, name):
            continue
        # Elsewhere its polling would disturb.
        for node in lab.nodes.values() if has_stock else ():
            lab.write_service_config(node, 'stock')
            node.service('start', 'stock')
        if has_stock:
            lab.wait_for_services('stock')
            time.sleep(20)
        measure(bench)
        for node in lab.nodes.values() if has_stock else ():
            node.service('stop', 'stock')
    return bench.rows


if __name__ == '__main__':
    sys.exit(main())
