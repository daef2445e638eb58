# SPDX-License-Identifier: Apache-2.0
"""The base of all measurements."""

import time

from lab.core import instance as instances
from lab.core import process
from lab.core import report

ROUNDS = 3
MARK = 'the first block of the volume'
#: Export %(device)s as %(target)s at %(address)s without the driver.
EXPORT = '''
set -e
core=/sys/kernel/config/target/core/iblock_99/bench
tpg=/sys/kernel/config/target/iscsi/%(target)s/tpgt_1
mkdir -p $core $tpg/np/%(address)s:3260 $tpg/lun/lun_0
echo udev_path=%(device)s >$core/control
echo 1 >$core/enable
ln -s $core $tpg/lun/lun_0/bench
for each in authentication=0 generate_node_acls=1 demo_mode_write_protect=1
do echo ${each#*=} >$tpg/attrib/${each%%=*}; done
echo 1 >$tpg/enable
'''
#: Remove the export.
UNEXPORT = '''
tpg=/sys/kernel/config/target/iscsi/%(target)s/tpgt_1
echo 0 >$tpg/enable
rm -f $tpg/lun/lun_0/bench
rmdir $tpg/lun/lun_0 $tpg/np/* $tpg ${tpg%%/*}
rmdir /sys/kernel/config/target/core/iblock_99/bench
rmdir /sys/kernel/config/target/core/iblock_99
'''


#: The columns of a figure.
FIGURE = ('figure', 'value', 'unit', 'beside', 'ratio')


def words(row):
    """Return the cells of a figure, as text."""
    return (row['name'], *('%.3f' % row[key] if isinstance(
        row[key], float) else str(row[key] or '')
        for key in ('value', 'unit', 'beside', 'ratio')))


def per_second(samples):
    """Return the rate from the first to the last of (seconds, amount)."""
    (began, first), (ended, last) = samples[0], samples[-1]
    return (last - first) / (ended - began)


def started(node):
    """Return the number of processes and threads started since the boot."""
    return int(node.run("awk '/^processes/ {print $2}' /proc/stat").stdout)


class Base:
    """The figures of one lab."""

    def __init__(self, lab):
        self.lab = lab
        self.n1, self.n2 = lab.nodes['node1'], lab.nodes['node2']
        self.demo = lab.cinder('demo')
        self.instance = instances.Instance(lab)
        self.rows = []

    def add(self, name, value, unit, beside=None):
        """Note a figure and show it.

        :param beside: the value to compare it with
        """
        row = {'name': name, 'value': round(value, 3), 'unit': unit,
               'beside': None if beside is None else round(beside, 3),
               'ratio': round(value / beside, 3) if beside else None}
        self.rows.append(row)
        print(report.table(words(row), ()), flush=True)

    def prepared(self, size, volume_type='localclone', mib=0):
        """Create a volume on node1 which begins with MARK; return its id.

        :param size: GiB
        :param mib: MiB to write before
        """
        if volume_type == 'stock':
            volume = self._stock_volume(size)
        else:
            volume = instances.create_volume(
                self.demo, size, volume_type, node='node1')
        attached = self.instance.attach(volume, self.n1)
        if mib:
            instances.occupy(self.n1, attached.path, mib)
        self.n1.run('echo %r | dd of=%s conv=notrunc,fsync status=none' % (
            MARK, attached.path))
        attached.detach()
        return volume

    def _stock_volume(self, size):
        return instances.create_volume(
            self.demo, size, 'stock', timeout=120, node='node1')

    def attach_and_read(self, volume):
        """Attach a volume on node2, and read MARK.

        :returns: the attachment; seconds from the request to the read
        """
        began = time.monotonic()
        attached = self.instance.attach(volume, self.n2)
        done = self.n2.run('head -c %d %s' % (len(MARK), attached.path))
        seconds = time.monotonic() - began
        if done.stdout != MARK:
            raise process.LabError('wrong data: %r' % done.stdout)
        return attached, seconds

    def delete(self, volume):
        """Delete the last volume, and wait until no LV of it is left."""
        instances.delete_volumes(self.demo, volume, timeout=120)

    def settings(self, options):
        """Restart both services with these options of the driver."""
        self.lab.settings['options'] = options
        for node in (self.n1, self.n2):
            self.lab.write_service_config(node)
            node.service('restart')
            node.wait_service()

    @staticmethod
    def used(node, backend='localclone'):
        """Return the memory of a volume service and its helpers, MiB."""
        return int(node.run(
            "for p in $(pgrep -g $(cat /run/cinder-%s.pid)); do grep VmRSS "
            "/proc/$p/status; done | awk '{s+=$2} END {print s}'" % backend
        ).stdout) / 1024
