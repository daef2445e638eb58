# SPDX-License-Identifier: Apache-2.0
"""Brings a lab up, measures, prints."""

import argparse
import json
import os
import sys
import time

import lab as labs
from lab import bench as package
from lab.bench import attach
from lab.bench import births
from lab.bench import copies
from lab.bench import encrypted
from lab.bench import follows
from lab.core import process
from lab.core import source


class Bench(encrypted.Encrypted, copies.Copies, attach.Attach, births.Births,
            follows.Follows):
    """All figures."""


def main():
    """Bring a lab up, measure, print; the exit code."""
    parser = argparse.ArgumentParser(prog='python3 -m lab.bench',
                                     description=package.__doc__)
    parser.add_argument('--json', metavar='FILE',
                        help='also write the figures as JSON')
    parser.add_argument('--name', default='bench', help='name of the lab')
    parser.add_argument('--only-encrypted', action='store_true',
                        help='only what encryption costs')
    parser.add_argument('--only-pace', action='store_true',
                        help='only copies beside a guest, at each pace')
    options = parser.parse_args()
    lab = labs.Lab(options.name)
    try:
        if lab.directory.exists():
            lab.down()
        lab.up(disks='plain', disk_gib=40, keys=True)
        try:
            began = time.time()
            rows = run(lab, options.only_encrypted, options.only_pace)
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


def run(lab, only_encrypted=False, only_pace=False):
    """All figures of a lab that is up."""
    if only_encrypted or only_pace:
        bench = Bench(lab)
        if only_encrypted:
            bench.encrypted()
        if only_pace:
            bench.beside_a_guest()
        return bench.rows
    for node in lab.nodes.values():
        lab.write_service_config(node, 'stock')
        node.service('start', 'stock')
    lab.wait_for_services('stock')
    bench = Bench(lab)
    bench.memory()
    for node in lab.nodes.values():  # its polling would disturb the rest
        node.service('stop', 'stock')
    bench.at_rest()
    bench.hydration()
    bench.beside_a_guest()
    bench.sparse()
    bench.follow()
    bench.beside_moves()
    for node in lab.nodes.values():
        node.service('start', 'stock')
    time.sleep(20)
    bench.attach((1, 4, 16))
    bench.births(1, 16)
    bench.encrypted()
    return bench.rows


if __name__ == '__main__':
    sys.exit(main())
