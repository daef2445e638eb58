# SPDX-License-Identifier: Apache-2.0
"""Measures an attach, compared to the same steps by bare scripts."""

import statistics
import time

from lab.bench import base
from lab.core import instance as instances
from lab.core import observe
from lab.core import process

#: Seconds until nodes have nothing left to do for a request.
QUIET = 10
_TARGET = 'iqn.2026-11.org.example:floor'
#: At the source: flush, read the map, export by a separate device.
_SOURCE = '''
set -e
lv=/dev/cinder-volumes/floor
sync -d $lv
pool=/dev/mapper/cinder--volumes-cinder--volumes--pool
dmsetup message $pool-tpool 0 reserve_metadata_snap
thin_dump -m -f xml ${pool}_tmeta >/dev/null
dmsetup message $pool-tpool 0 release_metadata_snap
dmsetup create floor --table "0 $(blockdev --getsz $lv) linear $lv 0"
''' + base.EXPORT
#: At the destination: LVs, log-in, clone, handle, a first read.
_DESTINATION = '''
set -e
lvcreate -q -y -W n -Z n -L 4m -n floor-meta cinder-volumes
dd if=/dev/zero of=/dev/cinder-volumes/floor-meta bs=1M count=4 oflag=direct \
    status=none
lvcreate -q -y -V 1g -T cinder-volumes/cinder-volumes-pool -n floor
sync -d /dev/cinder-volumes/floor-meta
on="-m node -T %(target)s -p %(address)s:3260"
iscsiadm $on -o new
iscsiadm $on -o update -n node.conn[0].timeo.noop_out_interval -v 5
iscsiadm $on --login
disk=/dev/disk/by-path/ip-%(address)s:3260-iscsi-%(target)s-lun-0
until [ -e $disk ]; do sleep 0.02; done
lv=/dev/cinder-volumes/floor
size=$(blockdev --getsz $lv)
dmsetup create floor-clone --table "0 $size clone \
    /dev/cinder-volumes/floor-meta $lv $disk 128 1 no_hydration"
dmsetup create floor --table "0 $size linear /dev/mapper/floor-clone 0"
dd if=/dev/mapper/floor of=/dev/null bs=4k count=1 iflag=direct status=none
'''
_GONE_THERE = '''
dmsetup remove --retry floor
dmsetup remove --retry floor-clone
iscsiadm -m node -T %(target)s --logout
iscsiadm -m node -T %(target)s -o delete
lvremove -q -f cinder-volumes/floor cinder-volumes/floor-meta
'''
_GONE_HERE = base.UNEXPORT + '''
dmsetup remove --retry floor
lvremove -q -f cinder-volumes/floor
'''


class Floor(base.Base):
    """The cost of the steps which each driver needs."""

    def over_floor(self, rounds=5):
        """Measure the attach and the scripts, in turn; take the medians.

        The figures are the seconds, and the number of processes and threads
        started on the nodes. Each measurement begins on quiet nodes.
        """
        ours, bare = [], []
        volumes = [self.prepared(1) for _round in range(rounds)]
        for volume in volumes:
            time.sleep(QUIET)
            ours.append(self._counted(
                lambda volume=volume: self.instance.attach(volume, self.n2)))
            ours[-1][0].detach()
            self.demo.delete('/volumes/' + volume).raise_for_status()
            process.wait_for('the volume to go', lambda volume=volume: (
                self.demo.request('GET', '/volumes/' + volume
                                  ).status_code == 404), 120)
            time.sleep(QUIET)
            bare.append(self._bare())
        observe.wait_deleted(self.lab, 120)
        for name, unit, place in (('attach_over_floor', 's', 1),
                                  ('processes_over_floor', 'started', 2)):
            self.add(name, statistics.median(each[place] for each in ours),
                     unit, statistics.median(each[place] for each in bare))

    def _counted(self, call):
        """Return (result of the call, seconds, processes and threads)."""
        before, began = self._forks(), time.monotonic()
        result = call()
        seconds = time.monotonic() - began
        return result, seconds, self._forks() - before

    def _forks(self):
        return sum(base.started(node) for node in (self.n1, self.n2))

    def _bare(self):
        names = {'target': _TARGET, 'address': self.n1.address,
                 'device': '/dev/mapper/floor'}
        self.n1.run('lvcreate -q -y -V 1g -T cinder-volumes/'
                    'cinder-volumes-pool -n floor')
        try:
            return self._counted(lambda: (
                self.n1.run(_SOURCE % names),
                self.n2.run(_DESTINATION % names),
                observe.sql(self.lab, 'BEGIN; UPDATE volumes SET updated_at = '
                            'NOW() WHERE deleted = 0; COMMIT')))
        finally:
            self.n2.run(_GONE_THERE % names, check=False)
            self.n1.run(_GONE_HERE % names, check=False)


class Sweeps(base.Base):
    """The sweep over all volumes of a node, with nothing to do."""

    def sweeps(self, few=10, many=1000):
        """Measure the processor time of a sweep, in seconds.

        The volumes stay, so that this is the last use of a lab.
        """
        first = instances.create_volume(self.demo, 1, node='node1')
        taken, started = [], []
        for count in (few, many):
            self.n1.service('stop')  # or it makes handles now
            self._multiply(first, count)
            swept, without = self._taken(10), self._taken(3600)
            taken.append(swept[0] - without[0])
            started.append(swept[1] - without[1])
        # The pause begins at the end of a sweep: longer sweeps are fewer. Each
        # sweep starts the same number of processes and threads.
        sweeps = 10 * started[1] / started[0]
        print('%.1f sweeps of %d volumes, %d and %d processes and threads' % (
            sweeps, many, *started), flush=True)
        self.add('sweep_%d_volumes' % many, taken[1] / sweeps, 's',
                 taken[0] / 10)

    def _taken(self, interval, seconds=100):
        """Return the consumption of the service.

        :param interval: seconds between two sweeps
        :param seconds: to measure
        :returns: seconds of processor time; processes and threads started on
            the node
        """
        self.settings({'localclone_reconcile_interval': interval})
        time.sleep(30)  # its work after a start
        before = self._processor(), base.started(self.n1)
        time.sleep(seconds)
        after = self._processor(), base.started(self.n1)
        return after[0] - before[0], after[1] - before[1]

    def _multiply(self, volume, count):
        """Add rows and thin LVs until the node has a number of volumes."""
        columns = [row[0] for row in observe.sql(
            self.lab, "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = 'cinder' AND table_name = 'volumes'")]
        others = ', '.join('`%s`' % each for each in columns if each != 'id')
        have = int(observe.sql(self.lab, 'SELECT COUNT(*) FROM volumes WHERE '
                               'deleted = 0')[0][0])
        observe.sql(self.lab,
                    "INSERT INTO volumes (id, %s) WITH RECURSIVE n(i) "
                    "AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
                    "SELECT UUID(), %s FROM volumes, n WHERE id = '%s'" % (
                        others, count - have, others, volume))
        ids = [row[0] for row in observe.sql(
            self.lab, 'SELECT id FROM volumes WHERE deleted = 0')]
        tags = self.n1.run(  # a boot skips uncommitted LVs
            'lvs --noheadings -o lv_tags cinder-volumes/volume-' + volume
        ).stdout.strip().replace('localclone.uncommitted', '').split(',')
        # By one process without backups of the metadata.
        self.n1.run('have=$(lvs --noheadings -o lv_name cinder-volumes); '
                    'for each in %s; do case $have in *volume-$each*) ;; '
                    '*) echo lvcreate -q -y -A n --noudevsync --config '
                    'backup/archive=0 -V 1g -T cinder-volumes/'
                    'cinder-volumes-pool -n volume-$each %s ;; '
                    'esac; done | lvm >/dev/null' % (
                        ' '.join(ids), ' '.join(
                            '--addtag ' + tag.replace(volume, '$each')
                            for tag in tags if tag)),
                    timeout=3000)
        self.n1.operator('node', 'restore', timeout=900)

    def _processor(self):
        """Return the processor seconds of the service and its helpers."""
        return int(self.n1.run(
            'for p in $(pgrep -g $(cat /run/cinder-localclone.pid)); do cut '
            '-d " " -f 14-17 /proc/$p/stat; done | tr " " "\\n" | '
            "awk '{s += $1} END {print s}'").stdout) / 100
