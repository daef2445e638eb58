# SPDX-License-Identifier: Apache-2.0
"""What a volume and the service cost while nothing moves."""

import statistics

from lab.bench import base
from lab.bench import guests
from lab.core import instance as instances

#: Of fio, by name.
PATTERNS = {'randread_4k': '--rw=randread',
            'syncwrite_4k': '--rw=randwrite --sync=1'}


class AtRest(base.Base):
    """A complete volume; the service."""

    def at_rest(self):
        """A complete volume, beside its bare LV."""
        volume = instances.create_volume(self.demo, 1, node='node1')
        attached = self.instance.attach(volume, self.n1)
        self.n1.run('dd if=/dev/zero of=%s bs=1M oflag=direct status=none'
                    % attached.path, timeout=120, check=False)
        plain = '/dev/cinder-volumes/volume-' + volume
        for name, how in PATTERNS.items():
            handle, bare = self.iops(how, attached.path, plain)
            self.add(name + '_handle', handle, 'IOPS', bare)
        attached.detach()
        self.delete(volume)

    def iops(self, how, *paths, rounds=base.ROUNDS):
        """What a guest alone gets of each path, by turns; medians."""
        figures = {path: [] for path in paths}
        for _round in range(rounds):
            for path, found in figures.items():
                found.append(guests.figures(guests.work(
                    self.n1, path, '--ioengine=psync ' + how, 4))['iops'])
        return [statistics.median(each) for each in figures.values()]

    def memory(self):
        """The service's memory, beside that of a stock driver."""
        self.add('service_memory', self.used(self.n1), 'MiB',
                 self.used(self.n1, 'stock'))
