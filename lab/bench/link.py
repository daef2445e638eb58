# SPDX-License-Identifier: Apache-2.0
"""What it costs that IPsec protects iSCSI between the nodes."""

import collections
import statistics

from lab.bench import attach
from lab.bench import copies
from lab.core import link
from lab.core import observe

#: How the link is: with AES, whose instructions the nodes' kernel lacks, and
#: with a cipher for such processors.
CLEAR = 'clear'
WAYS = {CLEAR: None, 'aes': link.AES, 'chacha': link.CHACHA}
#: MiB with data: a copy takes seconds.
MIB = 384


class Link(copies.Copies, attach.Attach):
    """An attach and a copy, beside the same in clear text."""

    def link(self):
        """Attach and copy in clear text and in ESP, in turns."""
        large, small = self.prepared(1, mib=MIB), self.prepared(1)
        taken = collections.defaultdict(list)
        for _round in range(3):
            for way, esp in WAYS.items():
                if esp:
                    link.protect(self.lab, esp)
                taken['first_attach', way].append(self._attach(small))
                attached, seconds = self.attach_and_read(large)
                taken['attach', way].append(seconds)
                taken['copy', way].append(self.rate())
                observe.wait_moved(self.lab, large)
                attached.detach()
                link.unprotect(self.lab)
                self._back(large)
                self._back(small)
        for what, unit in (('copy', 'MiB/s'), ('attach', 's'),
                           ('first_attach', 's')):
            median = {way: statistics.median(taken[what, way])
                      for way in WAYS}
            for way in WAYS:
                if way != CLEAR:
                    self.add('link_%s_%s' % (what, way), median[way], unit,
                             median[CLEAR])
        for volume in (large, small):
            self.demo.delete('/volumes/' + volume).raise_for_status()

    def _attach(self, volume):
        """Seconds of an attach; the volume has moved afterwards."""
        attached, seconds = self.attach_and_read(volume)
        observe.wait_moved(self.lab, volume)
        attached.detach()
        return seconds

    def _back(self, volume):
        attached = self.instance.attach(volume, self.n1)
        observe.wait_moved(self.lab, volume)
        attached.detach()
