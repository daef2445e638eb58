# SPDX-License-Identifier: Apache-2.0
"""Reads the console of the guest; see guest.c."""

import re

from lab.core import process

_PAIR = re.compile(r'(\w+)=(\S+)')


class Console:
    """A console log since the last boot of the guest.

    ``disks``: the last report of each attached disk, by serial (the first 20
    characters of the volume's id). ``gone``: the last report of each removed
    disk. ``found``: the blocks found on each disk when it was attached.
    ``copies``: the blocks of another disk, found on a copy of it. ``bad``:
    all lines of the log about wrong blocks.
    """

    def __init__(self, text):
        self.disks, self.gone, self.found, self.bad = {}, {}, {}, []
        self.copies = {}
        for line in text.splitlines():
            words = line.split()
            facts = dict(_PAIR.findall(line))
            if line.startswith('guest is up'):
                self.disks, self.gone, self.found = {}, {}, {}
                self.copies = {}
            if line.startswith('BAD '):
                self.bad.append(line)
            if len(words) < 3 or 'serial' not in facts:
                continue
            kind, serial = words[0], facts.pop('serial')
            facts = {key: float(value) for key, value in facts.items()
                     if re.fullmatch(r'[\d.]+', value)}
            if kind == 'guest' and 'worst_ms' in facts:
                self.disks[serial] = facts
            elif kind == 'found':
                self.found[serial] = facts
            elif kind == 'copy':
                self.copies[serial] = facts
            elif kind == 'gone':
                self.gone[serial] = facts
                self.disks.pop(serial, None)

    def of(self, volume_id):
        """Return the last report on a volume; None before the first."""
        return self.disks.get(serial(volume_id))

    @property
    def clean(self):
        """Whether each block read was right."""
        return not self.bad and all(
            not disk['bad'] and not disk['errors']
            for disk in self.disks.values())

    def check(self):
        """Return the console.

        :raises LabError: if a block read was wrong
        """
        if not self.clean:
            raise process.LabError('wrong data: %s' % self.bad[:3])
        return self


def serial(volume_id) -> str:
    """Return the serial of a volume's disk: virtio takes 20 characters."""
    return volume_id[:20]
