# SPDX-License-Identifier: Apache-2.0
"""A volume of a snapshot that is on another node."""

import statistics
import time

from lab.bench import attach
from lab.bench import base
from lab.core import instance as instances
from lab.core import process


class LocalClones(attach.Attach):
    """Until what the snapshot has can be read on the other node."""

    def local_clones(self, small, large, mib=256):
        """The same for a large volume and a small one, with as much data;
        and beside Cinder's own way to the other node.
        """
        taken = {small: [], large: []}
        for _round in range(base.ROUNDS):
            for size, seconds in taken.items():
                seconds.append(self._local_clone(size, mib))
        seconds = {size: statistics.median(each)
                   for size, each in taken.items()}
        self.add('birth_%dGiB_over_%dGiB' % (large, small), seconds[large],
                 's', seconds[small])
        self.add('birth_%dGiB' % large, seconds[large], 's',
                 self.generic(large))

    def _local_clone(self, size, mib):
        volume = self.prepared(size, mib=mib)
        snapshot = self._snapshot(volume)
        began = time.monotonic()
        answer = self.demo.post('/volumes', json={'volume': {
            'size': size, 'snapshot_id': snapshot}})
        made = answer.raise_for_status().json()['volume']['id']
        instances.wait_status(self.demo, made, 'available')
        attached, _seconds = self.attach_and_read(made)
        seconds = time.monotonic() - began
        attached.detach()
        self.demo.delete('/volumes/' + made).raise_for_status()
        self.demo.delete('/snapshots/' + snapshot).raise_for_status()
        process.wait_for('the snapshot to go', lambda: not self.demo.get(
            '/snapshots').json()['snapshots'], 60)
        self.delete(volume)
        return seconds

    def _snapshot(self, volume):
        snapshot = self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot'][
                'id']
        process.wait_for('the snapshot', lambda: self.demo.get(
            '/snapshots/' + snapshot).json()['snapshot'][
                'status'] == 'available', 60, every=0.5)
        return snapshot
