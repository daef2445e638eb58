# SPDX-License-Identifier: Apache-2.0
"""The demo: a volume moves to the node of its instance, and back."""

import sys
import time

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe


class Demo:
    """One run of the demo.

    :param size: of the volume, in GiB
    """

    def __init__(self, lab, size, report):
        self.lab = lab
        self.size = size
        self.report = report
        self.n1, self.n2 = lab.nodes['node1'], lab.nodes['node2']

    def run(self):
        """Run all steps."""
        volume = self.create()
        instance = instances.Instance(self.lab, brick=True)
        for node in (self.n1, self.n2):
            instance.connector(node)
        attached = self.attach(instance, volume, self.n1)
        sums = self.fill(attached)
        attached.detach()
        attached = self.follow(instance, volume, self.n1, self.n2, sums)
        attached.detach()
        attached = self.follow(instance, volume, self.n2, self.n1, sums)
        attached.detach()
        instances.delete_volumes(self.lab.cinder('demo'), volume, timeout=60)
        self.report.check('deleted, no LV left on either node', True)

    def create(self):
        """Create the volume as its owner does; return its id."""
        words = ('volume', 'create', '--type', 'localclone', '--size',
                 str(self.size), '-f', 'value', '-c', 'id', 'demo')
        self.report.say('$ openstack ' + ' '.join(words))
        began = time.monotonic()
        observe.take_volumes(self.lab, 'node1')
        try:
            volume = self.lab.openstack(*words, user='demo').stdout.strip()
            self.report.say(volume)
            instances.wait_status(self.lab.cinder('demo'), volume,
                                  'available')
        finally:
            observe.take_volumes(self.lab)
        home = instances.home(self.lab, volume)
        self.report.step('openstack volume create: %d GiB' % self.size,
                         time.monotonic() - began, 'home: ' + home)
        return volume

    def attach(self, instance, volume, node):
        """The API call, then os-brick on the node."""
        attached = instance.attach(volume, node)
        self.report.step('attached on ' + node.name, attached.seconds,
                         'os-brick on the node: %.1f s more'
                         % attached.brick_seconds)
        good = attached.path == '/dev/mapper/localclone-' + volume
        self.report.check('a local device, at the same path on every node',
                          good, '' if good else attached.path)
        return attached

    def fill(self, attached):
        """Write files to the volume; return their checksums.

        Most of the volume is written before: a move does not copy holes.
        """
        began = time.monotonic()
        instances.occupy(attached.node, attached.path, self.size * 768)
        self.report.step('3/4 of the volume written',
                         time.monotonic() - began)
        began = time.monotonic()
        out = attached.node.run(
            'set -e; mkfs.ext4 -q -E lazy_itable_init=1,nodiscard %s 128M; '
            'mkdir -p /tmp/m; mount %s /tmp/m; '
            'for i in 1 2 3; do head -c 20M /dev/urandom >/tmp/m/f$i; done; '
            'sync; cd /tmp/m; sha256sum f1 f2 f3; cd /; umount /tmp/m'
            % (attached.path, attached.path), timeout=180).stdout
        self.report.step('file system with 3 files, 60 MiB',
                         time.monotonic() - began)
        return out

    def read_back(self, node, path):
        """Return the checksums of the files, as a node reads them."""
        return node.run(
            'set -e; mkdir -p /tmp/m; mount %s /tmp/m; cd /tmp/m; '
            'sha256sum f1 f2 f3; cd /; umount /tmp/m' % path,
            timeout=180).stdout

    def follow(self, instance, volume, old, new, sums):
        """Attach on another node, watch the copy, and check the data.

        :param sums: the checksums of the files
        """
        attached = self.attach(instance, volume, new)
        began = time.monotonic()
        good = self.read_back(new, attached.path) == sums
        progress = observe.clone_progress(new)
        self.report.check(
            'files right on %s before all is copied' % new.name,
            good and progress and progress[0] < progress[1],
            '%d of %d regions local' % progress[:2] if progress else
            'copied already: use a larger SIZE')
        writer = attached.start_writing()
        rate = self.report.watch_copies(new, 120 + 60 * self.size)
        observe.wait_moved(self.lab, volume)
        self.report.step('copied and cut over', time.monotonic() - began,
                         rate + ', under synchronous writes')
        time.sleep(2)
        self.report.check('the guest still writes after the cut-over',
                          writer.running)
        attached.stop_writing(writer)
        verdict = attached.verify(writer.stdout)
        self.report.check('every acknowledged write is there',
                          verdict.endswith(' 0 bad'), verdict)
        self.report.check('files right on %s, all local' % new.name,
                          self.read_back(new, attached.path) == sums)
        rest = (observe.leftovers(old, volume)
                + observe.leftovers(new, None) + observe.volume_lvs(old)
                + observe.move_records(self.lab))
        self.report.check('source gone on %s: LV, export, session, move record'
                          % old.name, not rest, rest or '')
        self.report.check('home is %s' % new.name, instances.home(
            self.lab, volume) == new.name)
        return attached


def main():
    """Run the command; return its exit code."""
    command = commands.Command(
        'demo', 'lab.demos.move', 'A volume follows its instance',
        'Bring up two real nodes, move a volume with data from one to the '
        'other and back, prove every step.', lab_name='demo')
    command.add_size('volume')
    return command.main(lambda lab, options, report: Demo(
        lab, options.size, report).run())


if __name__ == '__main__':
    sys.exit(main())
