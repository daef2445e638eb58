# SPDX-License-Identifier: Apache-2.0
"""Measures the return of a volume to a home with its former data.

A driver could copy only the changed data. This one does not: bare scripts
show the gain.
"""

import re
import statistics
import time

from lab.bench import base
from lab.core import process

_TARGET = 'iqn.2026-11.org.example:returns'
_POOL = 'cinder-volumes/cinder-volumes-pool'
#: Here: the former home. There: a copy of the volume, and a thin snapshot of
#: the complete copy.
_LEAVE = """
set -e
lvcreate -q -y -V %(size)dm -T {pool} -n kept
head -c %(size)dM /dev/urandom | dd of=/dev/cinder-volumes/kept bs=1M \
    iflag=fullblock oflag=direct status=none
""".format(pool=_POOL)
_ARRIVE = """
set -e
lvcreate -q -y -V %(size)dm -T {pool} -n away
dd if=%(disk)s of=/dev/cinder-volumes/away bs=1M iflag=direct oflag=direct \
    status=none
lvcreate -q -y -s -kn -n complete cinder-volumes/away
""".format(pool=_POOL)
#: Later writes of a guest: MiBs far from each other.
_WRITE = """
for place in $(seq 0 %(apart)d $((%(size)d - 1))); do
dd if=/dev/urandom of=/dev/cinder-volumes/away bs=1M count=1 seek=$place \
    oflag=direct conv=notrunc status=none
done
sync -d /dev/cinder-volumes/away
"""
#: The changes which the pool knows, in its chunks (64 KiB).
_CHANGED = """
set -e
id() { lvs --noheadings -o thin_id cinder-volumes/$1 | tr -d ' '; }
pool=/dev/mapper/cinder--volumes-cinder--volumes--pool
dmsetup message $pool-tpool 0 reserve_metadata_snap
thin_delta -m --thin1 $(id complete) --thin2 $(id away) ${pool}_tmeta
dmsetup message $pool-tpool 0 release_metadata_snap
"""
_LOG_IN = """
set -e
on="-m node -T %(target)s -p %(address)s:3260"
iscsiadm $on -o new >/dev/null
iscsiadm $on -o update -n node.conn[0].tcp.window_size -v 0
iscsiadm $on --login >/dev/null
disk=/dev/disk/by-path/ip-%(address)s:3260-iscsi-%(target)s-lun-0
until [ -e $disk ]; do sleep 0.02; done
readlink -f $disk
"""
_LOG_OUT = """
iscsiadm -m node -T %(target)s --logout
iscsiadm -m node -T %(target)s -o delete
"""
_OVER = {
    'fresh': 'lvcreate -q -y -V %(size)dm -T {} -n fresh'.format(_POOL),
    'back': 'lvcreate -q -y -s -kn -n back cinder-volumes/kept'}
#: A clone over an LV, not copying yet.
_CLONE = """
set -e
lvcreate -q -y -W n -Z n -L 4m -n returns-meta cinder-volumes
dd if=/dev/zero of=/dev/cinder-volumes/returns-meta bs=1M count=4 \
    oflag=direct status=none
dmsetup create returns --table "0 $((%(size)d << 11)) clone \
    /dev/cinder-volumes/returns-meta /dev/cinder-volumes/%(over)s %(disk)s \
    128 2 no_hydration no_discard_passdown"
"""
_COPY = """
dmsetup message returns 0 hydration_threshold 8
dmsetup message returns 0 enable_hydration
while :; do
    set -- $(dmsetup status returns | cut -d ' ' -f 7 | tr / ' ')
    [ $1 = $2 ] && break
    dd if=/dev/mapper/returns of=/dev/null bs=4k count=1 iflag=direct \
        status=none  # it wakes the copy
    sleep 0.2
done
sync -d /dev/cinder-volumes/%(over)s
dmsetup remove --retry returns
lvremove -q -f cinder-volumes/returns-meta >/dev/null
"""


def equal_ranges(delta, size):
    """Return the unchanged ranges: [(first byte, bytes)].

    :param delta: the XML which thin_delta(8) prints of two devices
    :param size: of the volume, bytes
    """
    block = 512 * int(re.search(r'data_block_size="(\d+)"', delta).group(1))
    return [(begin * block, min(length * block, size - begin * block))
            for kind, begin, length in (
                (kind, int(begin), int(length)) for kind, begin, length in
                re.findall(r'<(\w+) begin="(\d+)" length="(\d+)"', delta))
            if kind == 'same']


class Returns(base.Base):
    """The return to a home with former data, compared to a whole copy."""

    def returns(self, size=1024, apart=64):
        """Measure the seconds, and the MiB on the wire.

        :param size: of the volume, MiB, all written
        :param apart: MiB from one later write to the next
        """
        values = {'target': _TARGET, 'size': size, 'apart': apart}
        here, there = self.n1, self.n2
        try:
            here.run(_LEAVE % values, timeout=300)
            here.run(base.EXPORT % dict(
                values, device='/dev/cinder-volumes/kept',
                address=here.address))
            disk = self._log_in(there, here)
            there.run(_ARRIVE % dict(values, disk=disk), timeout=300)
            there.run(_LOG_OUT % values)
            here.run(base.UNEXPORT % values)
            there.run(_WRITE % values, timeout=300)
            there.run(base.EXPORT % dict(
                values, device='/dev/cinder-volumes/away',
                address=there.address))
            whole, changed = [[
                self._copied(here, there, dict(values, over=over))
                for _round in range(base.ROUNDS)]
                for over in ('fresh', 'back')]
        finally:
            for node, script in ((here, _LOG_OUT), (there, _LOG_OUT),
                                 (here, base.UNEXPORT),
                                 (there, base.UNEXPORT)):
                node.run(script % values, check=False)
            for node in (here, there):
                node.run('lvremove -q -f $(for each in kept fresh back away '
                         'complete; do echo cinder-volumes/$each; done)',
                         check=False)
        for name, unit, place in (('return_of_what_changed', 's', 0),
                                  ('return_of_what_changed_on_wire', 'MiB',
                                   1)):
            ours, others = [statistics.median(each[place] for each in side)
                            for side in (changed, whole)]
            self.add(name, ours, unit, others)

    @staticmethod
    def _log_in(node, portal):
        return node.run(_LOG_IN % {
            'target': _TARGET, 'address': portal.address}).stdout.strip()

    def _copied(self, here, there, values):
        """Copy the volume; return (seconds with the log-in, MiB read).

        :param values: ``over`` is the destination: 'fresh', an LV without
            data, or 'back', an LV with the former data
        :raises LabError: if the copy differs
        """
        here.run('lvremove -q -f cinder-volumes/' + values['over'],
                 check=False)
        here.run(_OVER[values['over']] % values)
        began, delta = time.monotonic(), ''
        if values['over'] == 'back':
            delta = there.run(_CHANGED).stdout
        disk = self._log_in(here, there)
        values = dict(values, disk=disk)
        here.run(_CLONE % values)
        for first, count in equal_ranges(delta, values['size'] << 20):
            here.run(['blkdiscard', '--offset', str(first), '--length',
                      str(count), '/dev/mapper/returns'])
        before = self._sectors(here, disk)
        here.run(_COPY % values, timeout=900)
        seconds = time.monotonic() - began
        read = self._sectors(here, disk) - before
        here.run(_LOG_OUT % values)
        sums = [node.run('sha256sum </dev/cinder-volumes/' + name,
                         timeout=300).stdout for node, name in (
                             (here, values['over']), (there, 'away'))]
        if sums[0] != sums[1]:
            raise process.LabError('the copy over "%s" differs from what was '
                                   'away' % values['over'])
        return seconds, read * 512 / (1 << 20)

    @staticmethod
    def _sectors(node, disk):
        return int(node.run("awk '{print $3}' /sys/block/%s/stat" % (
            disk.rpartition('/')[2])).stdout)
