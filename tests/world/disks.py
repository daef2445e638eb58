# SPDX-License-Identifier: Apache-2.0
"""The disk of a simulated node: logical volumes, and a volatile cache."""

import itertools

from cinder_localclone.core import names

REGIONS = 4
GIB = 1 << 30
#: Of a region that nothing was written to; of one that was cleared; of what
#: an LV was extended by.
EMPTY, CLEARED, ZERO = 'empty', 'cleared', 'zero'
#: Of what a thick LV was extended by: another's, who has deleted it.
DELETED = 'deleted by others'


def regions(size_bytes):
    """Of a volume or device of some size; the last may be short."""
    return -(-REGIONS * size_bytes // GIB)


def length(device):
    """The regions of a device; one of a GiB does not say it."""
    return device.get('regions', REGIONS)


def size(device):
    """The bytes of a device; those of whole regions do not say it."""
    return device.get('bytes', length(device) * GIB // REGIONS)


def sized(device, size_bytes):
    """A device of some size."""
    count = regions(size_bytes)
    if count != REGIONS:
        device = dict(device, regions=count)
    whole = size_bytes * REGIONS % GIB == 0
    return device if whole else dict(device, bytes=size_bytes)


class Disk:
    """Logical volumes, which outlive a power cut, with a volatile cache.

    What was written and not flushed since is lost in a power cut, all of it.
    LVM flushes what it does itself.
    """

    _serials = itertools.count()

    def __init__(self):
        #: No two disks have an LV in common.
        self.serial = next(self._serials)
        #: By name. The LV of a volume: the values of its regions. The
        #: metadata LV of a move: {'local': the regions that are local}.
        self.lvs = {}
        #: The bytes of an LV whose last region is short.
        self.short = {}
        #: LVM's tags, by name of an LV.
        self.tags = {}
        #: What those of the group say of what is passed through, by id.
        self.remotes = {}
        #: Keys that are kept, by volume id: whose, and what; None: none are.
        self.sealed = None
        #: LVs without a device: a boot may leave them so.
        self.inactive = set()
        #: LVs that nobody can write.
        self.readonly = set()
        #: What only the cache has: LV, region, what the LV itself has.
        self._cached = []

    def create(self, name, volume_id, content, extra=0):
        """An LV, unless it is there already; a new one is active."""
        if name in self.lvs:
            return False
        self.lvs[name] = content
        self.tags[name] = frozenset(names.volume_tags(volume_id, extra))
        return True

    def size(self, name):
        """The bytes of an LV."""
        return self.short.get(name, len(self.lvs[name]) * GIB // REGIONS)

    def cut(self, name, size_bytes):
        """So much of an LV's last region is there."""
        self.short.pop(name, None)
        if size_bytes != self.size(name):
            self.short[name] = size_bytes

    def shown(self, name):
        """How much of an LV its users may see, in bytes."""
        facts = names.facts(self.tags.get(name, ()))
        return min(int(facts.get(each, self.size(name)))
                   for each in ('given', 'shown'))

    def extend(self, name, size_bytes, thick=False):
        """A longer LV, of which no more is shown yet.

        :param thick: what is new is not zeroed yet
        """
        missing = self.announce(name, size_bytes, thick)
        if missing > 0:
            self.lvs[name] += [DELETED if thick else ZERO] * (
                regions(size_bytes) - len(self.lvs[name]))
            self.cut(name, size_bytes)
        return missing > 0

    def announce(self, name, size_bytes, thick=False):
        """Tags say that no more than now is shown of what gets longer.

        :returns: the bytes by which it gets longer
        """
        missing = size_bytes - self.size(name)
        facts = names.facts(self.tags.get(name, ()))
        if missing > 0 or 'shown' in facts:
            self._fact(name, 'given', self.shown(name))
        if missing > 0 and thick:
            self._fact(name, 'shown', facts.get('shown', self.size(name)))
        return missing

    def _fact(self, name, key, value):
        self.tags[name] = frozenset(
            tag for tag in self.tags.get(name, ())
            if not tag.startswith('localclone.%s=' % key)) | (
                set() if value is None else {names.tags(**{key: value})[0]})

    def zero(self, name):
        """All that is not zeroed yet."""
        start = self.zero_part(name)
        while start:
            start = self.zero_part(name, start)

    def zero_part(self, name, start=0):
        """One region; where it ends, in bytes; 0: all is zeroed."""
        shown = names.facts(self.tags.get(name, ())).get('shown')
        if shown is None:
            return 0
        start = max(start, int(shown))
        region = regions(start)
        if region < len(self.lvs[name]):
            self.lvs[name][region] = ZERO
            return (region + 1) * GIB // REGIONS
        self._fact(name, 'shown', None)
        return 0

    def note_zeroed(self, name, end):
        """Zeroing goes on there, if it is not done."""
        if 'shown' in names.facts(self.tags.get(name, ())):
            self._fact(name, 'shown', end)

    def show(self, name, size_bytes):
        longer = self.size(name) - size_bytes >= GIB
        self._fact(name, 'given', size_bytes if longer else None)

    def remove(self, name):
        self.flush(name)
        self.tags.pop(name, None)
        self.short.pop(name, None)
        self.inactive.discard(name)
        self.readonly.discard(name)
        return self.lvs.pop(name, None) is not None

    def rename(self, old, new):
        self.flush(old)
        for kept in (self.lvs, self.tags, self.short):
            if old in kept:
                kept[new] = kept.pop(old)
        for names_of in (self.inactive, self.readonly):
            if old in names_of:
                names_of.remove(old)
                names_of.add(new)

    def holes(self, lv, count):
        """What nothing was ever written to of a thin LV, as runs.

        :param count: of so many regions from its beginning
        """
        runs: list[list[int]] = []
        for region, value in enumerate(self.flushed(lv)[:count]):
            if value in (ZERO, EMPTY):
                if runs and sum(runs[-1]) == region:
                    runs[-1][1] += 1
                else:
                    runs.append([region, 1])
        return runs

    def write(self, lv, region, value):
        self._cached.append((lv, region, self.lvs[lv][region]))
        self.lvs[lv][region] = value

    def make_local(self, metadata, region):
        local = self.lvs[metadata]['local']
        if region not in local:
            self._cached.append((metadata, region, None))
            local.add(region)

    def flush(self, *lvs):
        self._cached = [each for each in self._cached if each[0] not in lvs]

    def flushed(self, lv):
        """What an LV has without the cache."""
        regions = list(self.lvs[lv])
        for each, region, before in reversed(self._cached):
            if each == lv:
                regions[region] = before
        return regions

    def committed(self, metadata):
        """What a clone has on record as local."""
        return self.lvs[metadata]['local'] - {
            region for each, region, before in self._cached
            if each == metadata and before is None}

    def lose_power(self):
        """The cache is lost; nothing is active until it is activated."""
        for lv, region, before in reversed(self._cached):
            if before is None:
                self.lvs[lv]['local'].discard(region)
            else:
                self.lvs[lv][region] = before
        self._cached.clear()
        self.inactive = set(self.lvs)
