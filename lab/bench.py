# SPDX-License-Identifier: Apache-2.0
"""``make bench``: figures side by side, from one run in one lab.

Never a test: the machine is noisy, so what counts is the ratio of two
figures of the same run.
"""

import argparse
from concurrent import futures
import json
import os
import re
import statistics
import sys
import time

import lab as labs
from lab.core import instance as instances
from lab.core import look
from lab.core import process

ROUNDS = 3
MARK = 'the first block of the volume'

#: Synchronous writes, 25 a second for 10 s.
_GUEST = ('fio --name=x --filename=%s --direct=1 --bs=4k --ioengine=psync '
          '--rw=randwrite --sync=1 --rate_iops=25 --runtime=10 --time_based '
          '--output-format=json')


def _p99(out):
    """Milliseconds that all but one of 100 writes took at most."""
    job = json.loads(out[out.index('{'):])['jobs'][0]
    return job['write']['clat_ns']['percentile']['99.000000'] / 1e6


class Bench:
    """The figures of one lab."""

    def __init__(self, lab):
        self.lab = lab
        self.n1, self.n2 = lab.nodes['node1'], lab.nodes['node2']
        self.demo = lab.cinder('demo')
        self.instance = instances.Instance(lab)
        self.rows = []

    def add(self, name, value, unit, beside=None):
        """Note a figure and show it.

        :param beside: what it is compared with
        """
        row = {'name': name, 'value': round(value, 3), 'unit': unit,
               'beside': None if beside is None else round(beside, 3),
               'ratio': round(value / beside, 3) if beside else None}
        self.rows.append(row)
        print('%-34s %10.3f %-6s beside %-10s ratio %s' % (
            name, row['value'], unit, row['beside'], row['ratio']),
            flush=True)

    # -- attach

    def prepared(self, size, volume_type='localclone', mib=0):
        """A volume on node1 that begins with a known block, detached.

        :param mib: how much of it is written besides
        """
        if volume_type == 'stock':
            volume = self._stock_volume(size)
        else:
            volume = instances.create_volume(
                self.demo, size, volume_type, node='node1')
        attached = self.instance.attach(volume, self.n1)
        if mib:
            instances.occupy(self.n1, attached.path, mib)
        self.n1.run('echo %r | dd of=%s conv=notrunc,fsync status=none' % (
            MARK, attached.path))
        attached.detach()
        return volume

    def _stock_volume(self, size):
        return instances.create_volume(
            self.demo, size, 'stock', timeout=120, node='node1')

    def attach_and_read(self, volume):
        """Seconds from the API call to the first correct read."""
        began = time.monotonic()
        attached = self.instance.attach(volume, self.n2)
        done = self.n2.run('head -c %d %s' % (len(MARK), attached.path))
        seconds = time.monotonic() - began
        if done.stdout != MARK:
            raise process.LabError('wrong data: %r' % done.stdout)
        return attached, seconds

    def attach(self, sizes):
        """Attaches on the other node, beside a stock migration and attach."""
        self.instance.connector(self.n2)
        taken = {size: [] for size in sizes}
        for _round in range(ROUNDS):
            for size in sizes:
                volume = self.prepared(size)
                attached, seconds = self.attach_and_read(volume)
                taken[size].append(seconds)
                attached.detach()
                self.delete(volume)
        taken = {size: statistics.median(each)
                 for size, each in taken.items()}
        for size in sizes:
            self.add('attach_%dGiB' % size, taken[size], 's',
                     self.stock(size))
        self.add('attach_%dGiB_over_%dGiB' % (sizes[-1], sizes[0]),
                 taken[sizes[-1]], 's', taken[sizes[0]])

    def stock(self, size):
        """Cinder's own way: generic migration, then an attach."""
        volume = self.prepared(size, 'stock')
        admin = self.lab.cinder()
        began = time.monotonic()
        admin.post('/volumes/%s/action' % volume, json={
            'os-migrate_volume': {'host': 'node2@stock#stock'},
        }).raise_for_status()

        def ended():
            row = admin.get('/volumes/' + volume).json()['volume']
            if row['migration_status'] == 'error':
                raise process.LabError('the stock migration failed')
            return row['migration_status'] == 'success'
        process.wait_for('the stock migration', ended, 1800, every=1)
        migrated = time.monotonic() - began
        attached, seconds = self.attach_and_read(volume)
        attached.detach()
        self.delete(volume)
        return migrated + seconds

    def delete(self, volume):
        """Delete a volume and wait until nothing of it is left."""
        self.demo.delete('/volumes/' + volume).raise_for_status()
        look.wait_deleted(self.lab, 120)

    # -- hydration

    def hydration(self, size=2):
        """The copy alone, beside plain iSCSI and the kernel's defaults."""
        volume = self.prepared(size)
        attached = self.instance.attach(volume, self.n1)
        self.n1.run('dd if=/dev/urandom of=%s bs=1M oflag=direct '
                    'status=none' % attached.path, timeout=300, check=False)
        attached.detach()
        connector = dict(self.instance.connector(self.n2), host='elsewhere',
                         ip='192.0.2.99')
        attached = self.instance.attach(volume, self.n2, connector)
        out = self.n2.run('dd if=%s of=/dev/null bs=512k iflag=direct 2>&1'
                          % attached.path, timeout=300).stdout
        attached.detach()
        words = re.search(r'(\d+) bytes.*, ([\d.]+) s', out)
        raw = int(words.group(1)) / float(words.group(2)) / (1 << 20)
        attached = self.instance.attach(volume, self.n2)
        ours = self.rate()
        look.wait_moved(self.lab, volume)
        self.add('hydration_over_raw_iscsi', ours, 'MiB/s', raw)
        attached.detach()
        # Back to node1 with the settings that the kernel has by default.
        self.settings({'localclone_region_size': 4,
                       'localclone_hydration_batch': 1,
                       'localclone_hydration_threshold': 1,
                       'localclone_wake_interval': 0})
        attached = self.instance.attach(volume, self.n1)
        slow = self.rate(seconds=20, node=self.n1)
        self.add('hydration_over_kernel_defaults', ours, 'MiB/s', slow)
        attached.detach()
        self.delete(volume)
        self.settings({})

    def beside_a_guest(self, size=2):
        """The copy while a guest writes synchronously, 25 times a second;
        what the copy costs the guest.
        """
        rates, waits = [], []
        for options in ({}, {'localclone_wake_interval': 0}):
            self.settings(options)
            volume = self.prepared(size, mib=size << 10)
            attached = self.instance.attach(volume, self.n2)
            # No longer than the copy: what follows is another matter.
            guest = self.n2.popen(_GUEST % attached.path)
            rates.append(self.rate(seconds=10))
            guest.wait(60)
            waits.append(_p99(guest.stdout.decode()))
            attached.detach()
            self.delete(volume)
        self.add('hydration_beside_guest', rates[0], 'MiB/s', rates[1])
        self.add('guest_write_p99_beside_copy', waits[0], 'ms', waits[1])
        self.settings({})

    def settings(self, options):
        """Restart both services with these options of the driver."""
        self.lab.settings['options'] = options
        for node in (self.n1, self.n2):
            self.lab.write_service_config(node)
            node.service('restart')
            node.wait_service()

    def rate(self, seconds=None, node=None):
        """MiB a second that the clone copies, once it has begun."""
        node, samples = node or self.n2, []
        deadline = time.monotonic() + (seconds or 300)
        while time.monotonic() < deadline:
            progress = look.clone_progress(node)
            if progress is None or progress[0] == progress[1]:
                break
            if progress[0]:
                samples.append((time.monotonic(), progress[0] * progress[2]))
            time.sleep(0.3)
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) / (ended - began) / (1 << 20)

    # -- only what was written

    def sparse(self, size=12):
        """A move with a tenth written, beside one of a full volume."""
        tenth, sent = self.whole_move(size, (size << 10) // 10)
        full, all_sent = self.whole_move(size, size << 10)
        self.add('sparse_move_10_percent', tenth, 's', full)
        self.add('sparse_move_10_percent_on_wire', sent, 'MiB', all_sent)

    def whole_move(self, size, mib):
        """Seconds until a move has ended; MiBs that came over iSCSI."""
        volume = self.prepared(size, mib=mib)
        began = time.monotonic()
        attached, _seconds = self.attach_and_read(volume)
        sectors = 0
        while look.shadows(self.lab):
            # The disk goes when all is local, some moments before the row.
            sectors = max(sectors, look.source_sectors(self.n2))
            time.sleep(0.1)
        seconds = time.monotonic() - began
        attached.detach()
        self.delete(volume)
        return seconds, sectors * 512 / (1 << 20)

    # -- at rest

    def at_rest(self):
        """A complete volume, beside its bare LV."""
        volume = instances.create_volume(self.demo, 1, node='node1')
        attached = self.instance.attach(volume, self.n1)
        self.n1.run('dd if=/dev/zero of=%s bs=1M oflag=direct status=none'
                    % attached.path, timeout=120, check=False)
        plain = '/dev/cinder-volumes/volume-' + volume
        for name, how in (('randread_4k', '--rw=randread'),
                          ('syncwrite_4k', '--rw=randwrite --sync=1')):
            figures = {attached.path: [], plain: []}
            for _round in range(3):
                for path, iops in figures.items():
                    out = self.n1.run(
                        'fio --name=x --filename=%s --direct=1 --bs=4k '
                        '--ioengine=psync %s --runtime=4 --time_based '
                        '--output-format=json' % (path, how), timeout=60)
                    job = json.loads(out.stdout[out.stdout.index('{'):])[
                        'jobs'][0]
                    iops.append(job['read']['iops'] or job['write']['iops'])
            self.add(name + '_handle', statistics.median(
                figures[attached.path]), 'IOPS', statistics.median(
                    figures[plain]))
        attached.detach()
        self.delete(volume)

    def memory(self):
        """The service's memory, beside that of a stock driver."""
        self.add('service_memory', self.used(self.n1), 'MiB',
                 self.used(self.n1, 'stock'))

    @staticmethod
    def used(node, backend='localclone'):
        """MiB that a volume service and its helpers have in memory."""
        return int(node.run(
            "for p in $(pgrep -g $(cat /run/cinder-%s.pid)); do grep VmRSS "
            "/proc/$p/status; done | awk '{s+=$2} END {print s}'" % backend
        ).stdout) / 1024

    # -- many at once

    def beside_moves(self, count=20, mib=512):
        """An attach while other volumes move, beside one at rest; the
        service's memory then.
        """
        unrelated = [self.prepared(1) for _round in range(2 * ROUNDS)]
        moving = self.clones(count, mib)
        at_rest = self.attaches(unrelated[:ROUNDS])
        memory = self.used(self.n2)
        with futures.ThreadPoolExecutor(4) as pool:
            attached = list(pool.map(
                lambda volume: self.instance.attach(volume, self.n2),
                moving))
        beside = self.attaches(unrelated[ROUNDS:])
        self.add('attach_beside_%d_moves' % count, beside, 's', at_rest)
        self.add('service_memory_beside_moves', self.used(self.n2), 'MiB',
                 memory)
        left = {volume for volume, _token in look.shadows(self.lab)}
        if len(left.intersection(moving)) < count // 2:
            raise process.LabError('the moves had ended too early: %d of %d '
                                   'were left' % (len(left), count))
        for each in attached:
            look.wait_moved(self.lab, each.volume_id, 900)
            each.detach()
        for volume in moving + unrelated:
            self.demo.delete('/volumes/' + volume).raise_for_status()
        look.wait_deleted(self.lab, 300)

    def clones(self, count, mib):
        """Volumes on node1 with so much data each, made in a moment."""
        source = self.prepared(1)
        attached = self.instance.attach(source, self.n1)
        self.n1.run('dd if=/dev/urandom of=%s bs=1M count=%d oflag=direct '
                    'status=none' % (attached.path, mib), timeout=300)
        attached.detach()
        made = [self.demo.post('/volumes', json={'volume': {
            'size': 1, 'source_volid': source}}).raise_for_status().json()[
                'volume']['id'] for _each in range(count)]
        for volume in made:
            instances.wait_status(self.demo, volume, 'available', 120)
        self.demo.delete('/volumes/' + source).raise_for_status()
        return made

    def attaches(self, volumes):
        """Seconds from the API call to the first correct read."""
        taken = []
        for volume in volumes:
            attached, seconds = self.attach_and_read(volume)
            taken.append(seconds)
            attached.detach()
        return statistics.median(taken)


def main():
    """Bring a lab up, measure, print; the exit code."""
    parser = argparse.ArgumentParser(prog='python3 -m lab.bench',
                                     description=__doc__)
    parser.add_argument('--json', metavar='FILE',
                        help='also write the figures as JSON')
    parser.add_argument('--name', default='bench', help='name of the lab')
    options = parser.parse_args()
    lab = labs.Lab(options.name)
    try:
        if lab.directory.exists():
            lab.down()
        lab.up(disks='plain', disk_gib=40)
        try:
            rows = run(lab)
        finally:
            lab.down(keep_logs=True)
    except process.LabError as exc:
        print('bench: %s' % exc, file=sys.stderr)
        return 1
    if options.json:
        with open(options.json, 'w') as out:
            json.dump(rows, out, indent=1)
            out.write(os.linesep)
    print('\n%-34s %10s %-6s %10s %7s' % (
        'figure', 'value', 'unit', 'beside', 'ratio'))
    for row in rows:
        print('%-34s %10.3f %-6s %10s %7s' % (
            row['name'], row['value'], row['unit'], row['beside'] or '',
            row['ratio'] or ''))
    return 0


def run(lab):
    """All figures of a lab that is up."""
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
    bench.beside_moves()
    for node in lab.nodes.values():
        node.service('start', 'stock')
    time.sleep(20)
    bench.attach((1, 4, 16))
    return bench.rows


if __name__ == '__main__':
    sys.exit(main())
