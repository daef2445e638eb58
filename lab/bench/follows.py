# SPDX-License-Identifier: Apache-2.0
"""How long a guest waits while its volume follows it."""

import time

from lab.bench import base
from lab.core import instance as instances
from lab.core import look
from lab.core import process

#: Seconds before and after the commit in which the handle is swapped, and
#: what was never written is left out.
BEFORE, AFTER = 1, 5


class Follows(base.Base):
    """Attached where the volume is being copied from."""

    def follow(self, mib=400):
        """The longest gap of a reader at the swap, beside it at rest."""
        volume = self.prepared(1, mib=mib)
        self.n1.slow_down('100mbit')
        self.instance.attach(volume, self.n2).detach()
        back = self.instance.attach(volume, self.n1)
        reader = self._reader(back.path, 300)
        self.n1.netem()
        process.wait_for(
            'the volume to follow', lambda: instances.home(
                self.lab, volume) == 'node1', 240, every=0.1)
        swapped = time.time()
        look.wait_moved(self.lab, volume)
        time.sleep(AFTER)
        gaps = self._gaps(reader)
        at_rest = self._reader(back.path, BEFORE + AFTER)
        at_rest.wait(30)
        self.add('follow_pause_ms', max(
            gap for when, gap in gaps
            if -BEFORE < when - swapped < AFTER), 'ms', max(
                gap for _when, gap in self._gaps(at_rest)))
        back.detach()
        self.delete(volume)

    def _reader(self, path, seconds):
        return self.n1.popen([
            '/usr/bin/python3', '-S', self.lab.repo / 'lab/guest/disk_io.py',
            'gaps', path, seconds], timeout=seconds + 60)

    def _gaps(self, reader):
        """(when, ms) of all that a reader has told; it is ended."""
        self.n1.run('kill $(pgrep -f "[d]isk_io.py gaps")', check=False)
        reader.wait(20)
        return [tuple(map(float, line.split())) for line in
                reader.stdout.decode().splitlines()]
