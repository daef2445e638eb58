# SPDX-License-Identifier: Apache-2.0
"""How fast a copy is, and what of it is spared."""

import re
import statistics
import time

from lab.bench import base
from lab.core import observe


class Copies(base.Base):
    """Copies to the other node, and back."""

    def hydration(self, size=2):
        """The copy alone, beside plain iSCSI, the same with the writes that a
        copy takes, and the kernel's defaults.
        """
        volume = self.prepared(size, mib=size << 10)
        raw, written, ours = [], [], []
        for _round in range(base.ROUNDS):
            raw.append(self._raw(volume))
            written.append(self._raw(volume, size))
            attached = self.instance.attach(volume, self.n2)
            ours.append(self.rate())
            observe.wait_moved(self.lab, volume)
            attached.detach()
            attached = self.instance.attach(volume, self.n1)
            observe.wait_moved(self.lab, volume)
            attached.detach()
        ours = statistics.median(ours)
        self.add('hydration_over_raw_iscsi', ours, 'MiB/s',
                 statistics.median(raw))
        self.add('hydration_over_dd', ours, 'MiB/s',
                 statistics.median(written))
        self.settings({'localclone_region_size_kib': 4})
        attached = self.instance.attach(volume, self.n2)
        self._leave_to_the_kernel()
        self.add('hydration_over_kernel_defaults', ours, 'MiB/s',
                 self.rate(seconds=20))
        self.n2.service('start')
        self.n2.wait_service()
        attached.detach()
        self.delete(volume)
        self.settings({})

    def _leave_to_the_kernel(self):
        """Have the only copy go as dm-clone does it by default.

        The volume service would set its own pace again: it is stopped.
        """
        self.n2.service('stop')
        clone, = observe.clones(self.n2)
        for message in ('hydration_threshold 1', 'hydration_batch_size 1',
                        'enable_hydration'):
            self.n2.run('dmsetup message %s 0 %s' % (clone, message))

    def _raw(self, volume, written=0):
        """MiB a second of a sequential read by a host that has no disks of
        the backend.

        :param written: GiB of a new LV that it is written to meanwhile
        """
        attached = self.instance.attach(volume, self.n2, dict(
            self.instance.connector(self.n2), host='elsewhere',
            ip='192.0.2.99'))
        read = 'dd if=%s bs=2M iflag=direct ' % attached.path
        if written:
            self.n2.run('lvcreate -q -y -V %dg -T cinder-volumes/'
                        'cinder-volumes-pool -n bench-copy' % written)
            out = self.n2.run(
                read + 'status=none | dd of=/dev/cinder-volumes/bench-copy '
                'bs=2M iflag=fullblock oflag=direct 2>&1; '
                'lvremove -q -f cinder-volumes/bench-copy >&2',
                timeout=300).stdout
        else:
            out = self.n2.run(read + 'of=/dev/null 2>&1', timeout=300).stdout
        attached.detach()
        words = re.search(r'(\d+) bytes.*, ([\d.]+) s', out)
        return int(words.group(1)) / float(words.group(2)) / (1 << 20)

    def rate(self, seconds=300):
        """MiB a second that the clone copies, once it has begun."""
        samples, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            progress = observe.clone_progress(self.n2)
            if progress is None or progress[0] == progress[1]:
                break
            if progress[0]:
                samples.append((time.monotonic(), progress[0] * progress[2]))
            time.sleep(0.3)
        return base.per_second(samples) / (1 << 20)

    def sparse(self, size=16):
        """A move with a tenth written, beside one of a full volume.

        The short one is the median of several.
        """
        tenth, sent = map(statistics.median, zip(*(
            self.whole_move(size, (size << 10) // 10)
            for _round in range(base.ROUNDS))))
        full, all_sent = self.whole_move(size, size << 10)
        self.add('sparse_move_10_percent', tenth, 's', full)
        self.add('sparse_move_10_percent_on_wire', sent, 'MiB', all_sent)

    def whole_move(self, size, mib):
        """Seconds until a move has ended; MiBs that came over iSCSI."""
        volume = self.prepared(size, mib=mib)
        began = time.monotonic()
        attached, _seconds = self.attach_and_read(volume)
        sectors = 0
        while observe.move_records(self.lab):
            # The disk goes when all is local, some moments before the row.
            sectors = max(sectors, observe.source_sectors(self.n2))
            time.sleep(0.1)
        seconds = time.monotonic() - began
        attached.detach()
        self.delete(volume)
        return seconds, sectors * 512 / (1 << 20)
