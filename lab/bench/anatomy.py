# SPDX-License-Identifier: Apache-2.0
"""Where the time of an attach on the other node goes."""

import collections
import json
import statistics
import time

from lab.bench import base
from lab.bench import floor
from lab.bench import timeline

#: What :mod:`.timeline` notes, by part of an attach.
PARTS = {'iscsi_login': ('iscsi',),
         'lvm': ('lvm', 'thin_pool'),
         'target': ('lio', 'configfs', 'control'),
         'devices': ('devicemapper', 'block', 'links'),
         'database': ('database',),
         'driver': ('driver',)}
_PART_OF = {what: part for part, names in PARTS.items() for what in names}


class Anatomy(base.Base):
    """What both nodes' services do meanwhile."""

    def anatomy(self, rounds=5):
        """Seconds of each part of an attach, beside all of it; medians.

        What two of them do at the same time counts once. ``driver`` is what
        the driver does besides, with its messages between the nodes;
        ``cinder`` is all that happens elsewhere.
        """
        self._write_down(True)
        taken = collections.defaultdict(list)
        for _round in range(rounds):
            volume = self.prepared(1)
            time.sleep(floor.QUIET)
            began = time.time()
            attached = self.instance.attach(volume, self.n2)
            ended = time.time()
            found = timeline.shares(
                self._lines(), began, ended, list(PARTS))
            for part, seconds in found.items():
                taken[part].append(seconds)
            taken['all'].append(ended - began)
            attached.detach()
            self.delete(volume)
        self._write_down(False)
        for part in (*PARTS, None):
            self.add('attach_in_%s' % (part or 'cinder'),
                     statistics.median(taken[part]), 's',
                     statistics.median(taken['all']))

    def _write_down(self, wanted):
        self.lab.settings['timeline'] = wanted
        self.settings({})

    def _lines(self):
        """What has been written down: (begin, end, part)."""
        return [(began, ended, _PART_OF.get(what.partition('.')[0]))
                for node in (self.n1, self.n2)
                for began, ended, what in map(
                    json.loads, node.timeline.read_text().splitlines())]
