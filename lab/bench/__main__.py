# SPDX-License-Identifier: Apache-2.0
"""Brings a lab up, measures, prints."""

import argparse
import json
import os
import re
import signal
import sys
import time
import traceback

import lab as labs
from lab import bench as package
from lab.bench import anatomy
from lab.bench import attach
from lab.bench import base
from lab.bench import copies
from lab.bench import deferred_moves
from lab.bench import encrypted
from lab.bench import floor
from lab.bench import guests
from lab.bench import link
from lab.bench import live
from lab.bench import local_clones
from lab.bench import returns
from lab.core import extras
from lab.core import process
from lab.core import report
from lab.core import source


#: Of the project: 20 volumes move at a time, some do not.
QUOTAS = {'volumes': 40, 'snapshots': 40, 'gigabytes': 2000}


class Bench(link.Link, encrypted.Encrypted, copies.Copies,
            local_clones.LocalClones, attach.Attach,
            deferred_moves.DeferredMoves, guests.Guests, floor.Floor,
            floor.Sweeps, anatomy.Anatomy, returns.Returns, live.Live):
    """All figures."""


#: Settings of labs. Where a guest's flushes count the disks of the nodes are
#: in memory, and nothing is flushed but by the nodes themselves: a file that
#: grows on this machine's disk would take far longer than a disk of its own.
#: They are small: a thin pool takes ever new blocks until it comes to its end,
#: and gives none back to the machine.
LABS = {'plain': {'disks': 'plain', 'disk_gib': 40},
        'memory': {'disks': 'memory', 'disk_gib': 8},
        'nova': {'disks': 'plain', 'disk_gib': 40, 'nova': True}}
#: By name: how they are measured; whether the stock driver's services run;
#: the lab.
CHAPTERS = {
    'memory': (Bench.memory, True, 'plain'),
    'at_rest': (Bench.at_rest, False, 'plain'),
    'hydration': (Bench.hydration, False, 'plain'),
    'sparse': (Bench.sparse, False, 'plain'),
    'moves': (Bench.beside_moves, False, 'plain'),
    'attach': (lambda bench: bench.attach((1, 4, 16)), True, 'plain'),
    'floor': (Bench.over_floor, False, 'plain'),
    'anatomy': (Bench.anatomy, False, 'plain'),
    'local clones': (lambda bench: bench.local_clones(1, 16), True, 'plain'),
    'encrypted': (Bench.encrypted, False, 'plain'),
    'returns': (Bench.returns, False, 'plain'),
    'link': (Bench.link, False, 'plain'),
    'sweeps': (Bench.sweeps, False, 'plain'),  # the last of its lab
    'guest': (Bench.beside_a_guest, False, 'memory'),
    'lost': (Bench.writes_lost, False, 'memory'),
    'deferred': (Bench.deferred_move, False, 'memory'),
    'live': (Bench.live_migration, True, 'nova')}


def main():
    """Bring a lab up, measure, print; the exit code."""
    parser = argparse.ArgumentParser(prog='python3 -m lab.bench',
                                     description=package.__doc__)
    parser.add_argument('--json', metavar='FILE',
                        help='also keep the figures there; those of '
                             'chapters that are not measured now stay')
    parser.add_argument('--name', default='bench', help='name of the lab')
    parser.add_argument('--only', metavar='REGEX', default='.',
                        help='chapters like it, of ' + ', '.join(CHAPTERS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = labs.Lab(options.name)
    names = [name for name in CHAPTERS if re.search(options.only, name)]
    kept, rows, failed = {}, [], []
    if options.json and os.path.exists(options.json):
        with open(options.json) as known:
            kept = json.load(known)
    bench = None
    try:
        for name in names:
            kind = CHAPTERS[name][-1]
            if bench is None or bench.kind != kind:
                bench = started(lab, kind)
            try:
                kept[name] = chapter(bench, name)
            except Exception:  # the others are of use without it
                traceback.print_exc()
                failed.append(name)
                bench = None  # what it has left would be in others' way
                continue
            rows += kept[name]['rows']
            if options.json:
                write(kept, options.json)
    except process.LabError as exc:
        print('bench: %s' % exc, file=sys.stderr)
        return 1
    finally:
        if lab.directory.exists():
            lab.down(keep_logs=True)
    print('\n' + report.table(base.FIGURE, map(base.words, rows),
                              ('value', 'beside', 'ratio')))
    if failed:
        print('bench: not measured: ' + ', '.join(failed), file=sys.stderr)
    return 1 if failed or not names else 0


def started(lab, kind):
    """The bench of a lab that was just brought up.

    :param kind: one of LABS
    """
    if lab.directory.exists():
        lab.down(keep_logs=True)
    lab.up(keys=True, **LABS[kind])
    bench = Bench(lab)
    bench.kind = kind
    extras.raise_quotas(lab, 'demo', **QUOTAS)
    for node in (bench.n1, bench.n2):
        bench.instance.connector(node)  # once: it takes seconds
    return bench


def chapter(bench, name):
    """Measure a chapter; its figures, and of what, when and how long."""
    lab, (measure, has_stock) = bench.lab, CHAPTERS[name][:2]
    began, before = time.time(), len(bench.rows)
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
    return {'commit': source.commit_of(lab.repo),
            'kernel': lab.settings['kernel']['release'],
            'processors': lab.settings['processors'],
            'began': time.strftime('%Y-%m-%d %H:%M', time.gmtime(began)),
            'seconds': round(time.time() - began),
            'disks': lab.settings['disks'],
            'rows': bench.rows[before:]}


def write(kept, path):
    """What is known of all chapters."""
    with open(path, 'w') as out:
        json.dump({name: kept[name] for name in CHAPTERS if name in kept},
                  out, indent=1)
        out.write(os.linesep)


if __name__ == '__main__':
    sys.exit(main())
