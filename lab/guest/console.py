# SPDX-License-Identifier: Apache-2.0
"""What the guest says on its console; see guest.c. Pure."""

import re

_PAIR = re.compile(r'(\w+)=(\S+)')


class Console:
    """A console log, read: what was said since the last boot.

    ``disks``: the last report of each disk that is there, by serial (the
    first 20 characters of the volume's id). ``gone``: the last word on each
    disk that was taken out. ``found``: what each disk held when it came.
    ``bad``: lines about wrong blocks, since ever.
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
        """The last report on a volume; None before the first."""
        return self.disks.get(serial(volume_id))

    @property
    def clean(self):
        """Whether no block was ever wrong."""
        return not self.bad and all(
            not disk['bad'] and not disk['errors']
            for disk in self.disks.values())


def serial(volume_id) -> str:
    """What a guest sees of a volume's id: a virtio disk has 20 bytes."""
    return volume_id[:20]
