# SPDX-License-Identifier: Apache-2.0
"""What a volume and the service cost while nothing moves."""

import json
import statistics

from lab.bench import base
from lab.core import instance as instances


class AtRest(base.Base):
    """A complete volume; the service."""

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
