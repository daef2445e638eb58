# SPDX-License-Identifier: Apache-2.0
"""Measures volumes made from a snapshot on another node."""

import statistics
import time

from lab.bench import attach
from lab.bench import base
from lab.core import instance as instances


class LocalClones(attach.Attach):
    """Seconds until the snapshot's data can be read on the other node."""

    def local_clones(self, small, large, mib=256):
        """Measure a large and a small volume with the same data.

        The large volume is compared with Cinder's generic migration, too.

        :param small: GiB
        :param large: GiB
        :param mib: of data
        """
        taken = {small: [], large: []}
        for _round in range(base.ROUNDS):
            for size, seconds in taken.items():
                seconds.append(self._local_clone(size, mib))
        seconds = {size: statistics.median(each)
                   for size, each in taken.items()}
        self.add('local_clone_%dGiB_over_%dGiB' % (large, small),
                 seconds[large], 's', seconds[small])
        self.add('local_clone_%dGiB' % large, seconds[large], 's',
                 self.generic(large))

    def _local_clone(self, size, mib):
        volume = self.prepared(size, mib=mib)
        snapshot = instances.create_snapshot(self.demo, volume)
        began = time.monotonic()
        made = instances.create_volume(self.demo, size, None,
                                       snapshot_id=snapshot)
        attached, _seconds = self.attach_and_read(made)
        seconds = time.monotonic() - began
        attached.detach()
        self.demo.delete('/volumes/' + made).raise_for_status()
        instances.delete_snapshot(self.demo, snapshot)
        self.delete(volume)
        return seconds
