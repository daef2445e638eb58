# SPDX-License-Identifier: Apache-2.0
"""How long a guest waits during a deferred move of its volume."""

import statistics
import time

from lab.bench import base
from lab.core import observe
from lab.core import process

#: Seconds around a swap of the handle: a reader tells twice a second.
AROUND = 0.6


class DeferredMoves(base.Base):
    """Attached where the volume is being copied from."""

    def deferred_move(self, mib=400):
        """Measure the longest gaps of a reader, beside a reader at rest.

        The first is at the swap of the handle, the second until the holes are
        discarded. All are medians.
        """
        rounds = [self._deferred_move(mib) for _round in range(base.ROUNDS)]
        at_swap, later, at_rest = map(statistics.median, zip(*rounds))
        self.add('deferred_move_pause_ms', at_swap, 'ms', at_rest)
        self.add('deferred_move_pause_holes_ms', later, 'ms', at_rest)

    def _deferred_move(self, mib):
        volume = self.prepared(1, mib=mib)
        self.n1.slow_down('100mbit')
        self.instance.attach(volume, self.n2).detach()
        back = self.instance.attach(volume, self.n1)
        reader = self._reader(back.path, 300)
        self.n1.netem()
        process.wait_for('the copy back to begin', lambda: observe.clones(
            self.n1), 240, every=0.05)
        swapped = self._swap(back.path)
        observe.wait_moved(self.lab, volume)
        gaps = self._gaps(reader)
        at_rest = self._reader(back.path, 6)
        at_rest.wait(30)
        at_rest = max(gap for _when, gap in self._gaps(at_rest))
        back.detach()
        self.delete(volume)
        return (max(gap for when, gap in gaps
                    if abs(when - swapped) < AROUND),
                max(gap for when, gap in gaps if when > swapped + AROUND),
                at_rest)

    def _swap(self, path):
        """When the handle is on the clone."""
        def is_on_clone():
            return 'clone' in self.n1.run('dmsetup deps -o devname %s' % path
                                          ).stdout
        process.wait_for('the swap of the handle', is_on_clone, 60, every=0.1)
        return time.time()

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
