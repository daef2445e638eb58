# SPDX-License-Identifier: Apache-2.0
"""A whole move on a stock kernel: the content, byte by byte.

Two nodes of a lab run the kernel that ``LOCALCLONE_LAB_KERNEL`` names, with
dm-clone built by the package. A volume moves to the second node: its digest
there must be the source's, and the one that this machine computes. It moves
back while a guest writes: each block must be the guest's or the one before.
"""

import hashlib
import sys
import time

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.scenarios import disk as disks
from lab.scenarios import payload

#: A quarter of the volume is written: the rest are holes.
LAYOUT = disks.Layout(16, 32, 1)
#: Seconds of the guest on the source, and during the copy.
WRITES = 10
#: What a kernel says of its own faults.
FAULTS = ('kernel BUG at', 'Oops', 'WARNING: CPU', 'device-mapper: clone')


def expected(content: dict) -> str:
    """Return the digest of a volume without a guest's writes.

    :param content: see :meth:`lab.scenarios.disk.Disk.content`
    """
    filled = {first + index: (seed, index)
              for first, count, seed in content['fills']
              for index in range(count)}
    found = hashlib.sha256()
    for mib in range(content['mib']):
        found.update(payload.known(*filled[mib]) if mib in filled
                     else bytes(payload.MIB))
    return found.hexdigest()


class Move:
    """One run."""

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.n1, self.n2 = lab.nodes['node1'], lab.nodes['node2']

    def run(self):
        """Move a volume to the other node and back.

        :raises LabError: if the lab has no stock kernel, or a byte differs
        """
        if 'initrd' not in self.lab.settings.get('kernel', ()):
            raise process.LabError(
                'no stock kernel: make kernels EXPORT=DIR, then '
                'LOCALCLONE_LAB_KERNEL=DIR/VERSION')
        for node in (self.n1, self.n2):
            self.check_kernel(node)
        volume = instances.create_volume(
            self.lab.cinder('demo'), 1, node='node1', timeout=120)
        disk = disks.Disk(self.lab, volume, layout=LAYOUT)
        self.there(disk)
        self.back(disk)
        disk.remove()
        for node in (self.n1, self.n2):
            faults = self.faults(node)
            self.report.check('%s: its kernel reports no fault' % node.name,
                              not faults, faults)

    def check_kernel(self, node):
        """Check the kernel of a node, and where its dm-clone comes from."""
        release = node.run('uname -r').stdout.strip()
        self.report.check('%s: %s' % (node.name, release), release
                          == self.lab.settings['kernel']['release'],
                          self.lab.settings['kernel']['release'])
        file, taint = node.run(
            'modprobe dm-clone; modinfo -F filename dm-clone; '
            'echo "x$(cat /sys/module/dm_clone/taint)"').stdout.split()
        # The kernel marks a module that was not built with it.
        self.report.check('%s: the loaded dm-clone is the package\'s'
                          % node.name, '/updates/dkms/' in file
                          and 'O' in taint, '%s, %s' % (file, taint[1:]))

    def there(self, disk):
        """Move without writes: one digest at three places."""
        disk.attach(self.n1)
        began = time.monotonic()
        disk.fill(self.n1)
        self.report.step('%d MiB written' % disk.occupied,
                         time.monotonic() - began)
        wanted = expected(disk.content())
        self.same('source, on node1', disk.verify(self.n1)['digest'], wanted)
        disk.detach(self.n1)
        self.copied(disk, self.n1, self.n2)
        self.same('destination, on node2, all local',
                  disk.verify(self.n2)['digest'], wanted)
        # By a handle that was created again.
        disk.detach(self.n2)
        disk.attach(self.n2)
        self.same('the same after a detach and an attach',
                  disk.verify(self.n2)['digest'], wanted)

    def back(self, disk):
        """Move while a guest writes; compare each byte."""
        disk.start(self.n2)
        time.sleep(WRITES)
        disk.stop()
        disk.detach(self.n2)
        self.copied(disk, self.n2, self.n1, writes=True)
        found = disk.verify(self.n1)
        self.report.check('destination, on node1, all local: each byte',
                          found['blocks'] > 0, '%d blocks of the guest, '
                          'SHA-256 %s' % (found['blocks'],
                                          found['digest'][:16]))
        disk.detach(self.n1)

    def copied(self, disk, old, new, writes=False):
        """Attach on another node, and wait until the volume lives there.

        :param writes: let a guest write during the copy
        """
        began = time.monotonic()
        disk.attach(new)
        progress = observe.clone_progress(new)
        self.report.check(
            '%s to %s: the copy is under way' % (old.name, new.name),
            progress and progress[0] < progress[1],
            '%d of %d regions local' % progress[:2] if progress else 'ended')
        if writes:
            disk.start(new)
        observe.wait_moved(self.lab, disk.volume, 600)
        self.report.step('%s to %s: copied and cut over' % (
            old.name, new.name), time.monotonic() - began)
        if writes:
            disk.check_running()
            disk.stop()
        rest = (observe.leftovers(old, disk.volume)
                + observe.leftovers(new, None) + observe.volume_lvs(old)
                + observe.move_records(self.lab))
        self.report.check('%s: nothing is left' % old.name, not rest,
                          rest or '')
        self.report.check('home is ' + new.name, disk.home() == new.name)

    def same(self, what, found, wanted):
        """Check a digest of the whole volume."""
        self.report.check('content of the %s' % what, found == wanted,
                          'SHA-256 %s' % found[:16] if found == wanted
                          else '%s, not %s' % (found, wanted))

    @staticmethod
    def faults(node):
        """Return what the kernel of a node has said of its own faults."""
        return [line for line in node.run('dmesg').stdout.splitlines()
                if any(each in line for each in FAULTS)][:5]


def main():
    """Run the command; return its exit code."""
    return commands.Command(
        'kernels, move', 'lab.kernels.move', 'A whole move on a stock kernel',
        'Bring up two nodes on the stock kernel that LOCALCLONE_LAB_KERNEL '
        'names, move a volume to the other node and back, and compare its '
        'whole content.', lab_name='kernels').main(
            lambda lab, _options, report: Move(lab, report).run())


if __name__ == '__main__':
    sys.exit(main())
