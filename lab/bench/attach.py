# SPDX-License-Identifier: Apache-2.0
"""Measures an attach, alone and during moves of other volumes."""

from concurrent import futures
import functools
import statistics
import time

from lab.bench import base
from lab.core import instance as instances
from lab.core import observe
from lab.core import process

#: Seconds between two attaches which must not affect each other.
APART = 20


class Attach(base.Base):
    """Attaches on the node without the volume."""

    def attach(self, sizes):
        """Attach on the other node, compared to a stock migration.

        :param sizes: of the volumes, GiB
        """
        taken = {size: [] for size in sizes}
        for _round in range(base.ROUNDS):
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
                     self.generic(size))
        self.add('attach_%dGiB_over_%dGiB' % (sizes[-1], sizes[0]),
                 taken[sizes[-1]], 's', taken[sizes[0]])

    @functools.cache
    def generic(self, size):
        """Return the seconds of Cinder's generic migration and an attach."""
        volume = self.prepared(size, 'stock')
        admin = self.lab.cinder()
        began = time.monotonic()
        admin.post('/volumes/%s/action' % volume, json={
            'os-migrate_volume': {'host': 'node2@stock#stock'},
        }).raise_for_status()

        def ended():
            row = instances.row(self.lab, volume)
            if row['migration_status'] == 'error':
                raise process.LabError('the stock migration failed')
            return row['migration_status'] == 'success'
        process.wait_for('the stock migration', ended, 1800, every=1)
        migrated = time.monotonic() - began
        attached, seconds = self.attach_and_read(volume)
        attached.detach()
        self.delete(volume)
        return migrated + seconds

    def beside_moves(self, count=20, mib=768):
        """Measure an attach during moves, compared to an attach at rest.

        The attaches are APART: copies give way less to an attach which
        follows another at once. The memory of the service is measured, too.

        :param count: of moving volumes
        :param mib: of data in each
        """
        unrelated = [self.prepared(1) for _round in range(2 * base.ROUNDS)]
        moving = self.clones(count, mib)
        at_rest = self.attaches(unrelated[:base.ROUNDS])
        memory = self.used(self.n2)
        with futures.ThreadPoolExecutor(4) as pool:
            attached = list(pool.map(
                lambda volume: self.instance.attach(volume, self.n2),
                moving))
        beside = self.attaches(unrelated[base.ROUNDS:], APART)
        self.add('attach_beside_%d_moves' % count, beside, 's', at_rest)
        self.add('service_memory_beside_moves', self.used(self.n2), 'MiB',
                 memory)
        left = {volume for volume, _token in observe.move_records(self.lab)}
        if len(left.intersection(moving)) < count // 2:
            raise process.LabError('the moves had ended too early: %d of %d '
                                   'were left' % (len(left), count))
        for each in attached:
            observe.wait_moved(self.lab, each.volume_id, 900)
            each.detach()
        instances.delete_volumes(self.demo, *moving, *unrelated, timeout=300)

    def clones(self, count, mib):
        """Create clones of one volume on node1; return their ids.

        :param mib: of data in each
        """
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

    def attaches(self, volumes, apart=0):
        """Return the seconds from the request to the first correct read.

        :param apart: seconds before each attach
        """
        taken = []
        for volume in volumes:
            time.sleep(apart)
            attached, seconds = self.attach_and_read(volume)
            taken.append(seconds)
            attached.detach()
        return statistics.median(taken)
