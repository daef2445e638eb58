# SPDX-License-Identifier: Apache-2.0
"""Bring a lab up, make one node older, and upgrade it in mid-copy."""

import sys
import time

from lab.core import instance as instances
from lab.core import look
from lab.core import process
from lab.core import source
from lab.demos import round_trip
from lab.demos import show

PACKAGE = 'cinder_localclone'
#: At which a GiB takes so long to copy that a service can be replaced.
SLOW = '100mbit'


class Upgrade:
    """One run; node1 has this version, node2 the older one."""

    def __init__(self, lab, reference, report):
        self.lab = lab
        self.reference = reference
        self.report = report
        self.newer, self.older = lab.nodes['node1'], lab.nodes['node2']
        self.demo = lab.cinder('demo')
        self.instance = instances.Instance(lab)

    def run(self):
        """All steps."""
        self.report.step('this version', 0, source.commit_of(self.lab.repo))
        self.step('node2 has the older version', self.make_older)
        volume = self.volume(self.older)
        self.step('moved from the older node to the newer, and back',
                  round_trip.show, self.lab, self.report, volume, self.older,
                  self.newer)
        self.delete(volume)
        for ends in ((self.older, self.newer), (self.newer, self.older)):
            self.step('live migration from %s to %s' % tuple(
                'the older' if each is self.older else 'the newer'
                for each in ends), self.live, *ends)
        self.step('a snapshot of the older node, used on the newer',
                  self.snapshot)
        self.step('upgraded while a volume is copied to it',
                  self.upgraded_while_copying)
        self.make_older()
        self.step('upgraded in a live migration', self.upgraded_while_live)
        self.step('back to the older version, nothing being moved',
                  self.back)
        for node in (self.newer, self.older):
            self.report.check('no device, LV or export is left on '
                              + node.name, not look.volume_lvs(node)
                              and not look.leftovers(node, None))

    def step(self, what, act, *words):
        """Do it; how long it took."""
        began = time.monotonic()
        act(*words)
        self.report.step(what, time.monotonic() - began)

    # -- versions

    def make_older(self):
        """The older package instead of this one, wherever node2 looks."""
        ours = self.lab.repo / PACKAGE
        theirs = self.lab.directory / 'older'
        if not theirs.exists():
            theirs.mkdir()
            process.run('git', '-C', str(self.lab.repo), 'archive', '-o',
                        str(theirs / 'tar'), self.reference, PACKAGE)
            process.run('tar', '-xf', str(theirs / 'tar'), '-C', str(theirs))
        self.replace('mount --bind %s %s' % (theirs / PACKAGE, ours))
        self.report.check(
            'node2 runs the older version', self.version() != (
                ours / 'service/rpc.py').read_text())

    def upgrade(self):
        """This version again."""
        self.replace('umount -l %s' % (self.lab.repo / PACKAGE))
        self.report.check(
            'node2 runs this version', self.version() == (
                self.lab.repo / PACKAGE / 'service/rpc.py').read_text())

    def replace(self, how):
        """Another version on node2, its service started anew."""
        self.older.service('stop')
        self.older.run(how)
        self.older.service('start')
        self.older.wait_service()
        self.lab.wait_for_services()

    def version(self):
        """What node2 knows of calls between nodes."""
        return self.older.run(
            ['cat', self.lab.repo / PACKAGE / 'service/rpc.py']).stdout

    # -- what is done with them

    def volume(self, node, mib=512):
        """A volume at a node, of which a part takes long to copy."""
        volume = instances.create_volume(self.demo, 1, node=node.name)
        attached = self.instance.attach(volume, node)
        instances.occupy(node, attached.path, mib)
        attached.detach()
        return volume

    def delete(self, *volumes):
        """Delete all that there are, and wait until nothing is left."""
        for volume in volumes:
            self.demo.delete('/volumes/' + volume).raise_for_status()
        look.wait_deleted(self.lab, 120)

    def proven(self, what, attached, *writers):
        """All that guests had acknowledged is there."""
        verdict = attached.verify(*(each.stdout for each in writers))
        self.report.check(what, verdict.endswith(' 0 bad'), verdict)

    def live(self, here, there, meanwhile=None):
        """The guest is moved from one node to the other.

        :param meanwhile: done after the connection at the destination
        """
        volume = self.volume(here)
        left = self.instance.attach(volume, here)
        before = left.start_writing()
        entered = self.instance.attach(volume, there, live=True)
        if meanwhile:
            meanwhile()
        left.stop_writing(before)
        self.proven('what the guest wrote is at the destination', entered,
                    before)
        after = entered.start_writing(first_mib=250)
        left.detach('in-use')
        look.wait_moved(self.lab, volume)
        entered.stop_writing(after)
        self.proven('and is there when all is copied', entered, before,
                    after)
        entered.detach()
        self.delete(volume)

    def snapshot(self):
        """It stays behind while its volume goes, and a volume is born."""
        volume = self.volume(self.older)
        attached = self.instance.attach(volume, self.older)
        writer = attached.start_writing(seconds=5)
        writer.wait(60)
        attached.detach()
        snapshot = self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot'][
                'id']
        process.wait_for('the snapshot', lambda: self.demo.get(
            '/snapshots/' + snapshot).json()['snapshot'][
                'status'] == 'available', 60)
        moved = self.instance.attach(volume, self.newer)
        born = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'snapshot_id': snapshot}}).raise_for_status().json()[
                'volume']['id']
        instances.wait_status(self.demo, born, 'available')
        attached = self.instance.attach(born, self.newer)
        self.proven('the volume of the snapshot has it', attached, writer)
        look.wait_moved(self.lab, volume)
        self.proven('so has the volume', moved, writer)
        look.wait_moved(self.lab, born)
        attached.detach()
        moved.detach()
        self.demo.delete('/snapshots/' + snapshot).raise_for_status()
        process.wait_for('the snapshot to go', lambda: not self.demo.get(
            '/snapshots').json()['snapshots'], 60)
        self.delete(volume, born)

    def upgraded_while_copying(self):
        """The older version has begun it, this one ends it."""
        volume = self.volume(self.newer, mib=900)
        self.newer.slow_down(SLOW)
        attached = self.instance.attach(volume, self.older)
        writer = attached.start_writing()
        self.upgrade()
        self.report.check('it was still being copied',
                          look.clone_progress(self.older))
        self.newer.netem()
        look.wait_moved(self.lab, volume)
        attached.stop_writing(writer)
        self.proven('what the guest wrote meanwhile is there', attached,
                    writer)
        attached.detach()
        self.delete(volume)

    def upgraded_while_live(self):
        """While the guest is still at the source."""
        self.live(self.newer, self.older, self.upgrade)

    def back(self):
        """A volume of this version, with the older one."""
        volume = self.volume(self.older)
        attached = self.instance.attach(volume, self.older)
        writer = attached.start_writing(seconds=5)
        writer.wait(60)
        self.make_older()
        self.proven('attached meanwhile', attached, writer)
        attached.detach()
        attached = self.instance.attach(volume, self.newer)
        self.proven('moved to the newer', attached, writer)
        look.wait_moved(self.lab, volume)
        attached.detach()
        self.delete(volume)


def main():
    """The command; its exit code."""
    command = show.Show(
        'upgrade', 'lab.upgrade', 'Two versions side by side',
        'Run an older version on one of two nodes, move volumes both ways, '
        'and upgrade that node meanwhile.', lab_name='upgrade')
    command.parser.add_argument(
        '--from', dest='reference', required=True, metavar='REF',
        help='the older version, as git names it')
    return command.main(lambda lab, options, report: Upgrade(
        lab, options.reference, report).run())


if __name__ == '__main__':
    sys.exit(main())
