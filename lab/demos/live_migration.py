# SPDX-License-Identifier: Apache-2.0
"""The demo of live migration: Nova migrates a server which writes."""

import sys
import time

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.nova import server as servers

#: A rate, as tc(8) has it, slow enough to abort a live migration.
SLOW = '15mbit'


class LiveMigration:
    """One run of the demo.

    :param size: of the data volume, in GiB
    """

    def __init__(self, lab, size, report):
        self.lab = lab
        self.size = size
        self.report = report

    def run(self):
        """Run all steps."""
        self.boot()
        first, second = self.server.node, self.server.other_node
        self.abort(first, second)
        self.migrate(first, second)
        self.back(second, first)
        self.settle(first, second)
        self.delete()

    # -- steps

    def boot(self):
        """Boot a server from a volume, and attach a second volume."""
        began = time.monotonic()
        root = servers.boot_volume(self.lab)
        home = instances.home(self.lab, root)
        self.report.step('boot volume of 1 GiB from the image',
                         time.monotonic() - began, 'home: ' + home)
        began = time.monotonic()
        data = instances.create_volume(self.lab.cinder(), self.size,
                                       node=home)
        self.report.step('data volume of %d GiB' % self.size,
                         time.monotonic() - began, 'home: ' + home)
        began = time.monotonic()
        self.server = servers.Server.boot(self.lab, root, home)
        self.report.step('server ACTIVE', time.monotonic() - began,
                         'on %s, from the volume' % home)
        self.report.step('data volume attached', self.server.attach(data))
        began = time.monotonic()
        self.prove('the guest writes to both volumes', began,
                   self.server.wait_verified)

    def abort(self, source, target):
        """Abort a live migration; nothing of it may be left."""
        began = time.monotonic()
        source.slow_down(SLOW)
        try:
            number = len(self.server.migrations()) + 1
            self.server.live_migrate(target).raise_for_status()
            record = self.server.wait_migration(number, 'running')
            self.report.check(
                'both volumes are on both nodes while the guest moves',
                len(observe.move_records(self.lab)) == 2)
            status = self.server.abort(record)
        finally:
            source.netem()
        self.report.step('live migration to %s aborted' % target.name,
                         time.monotonic() - began,
                         'Nova calls it ' + status)
        began = time.monotonic()
        self.report.check(
            'nothing left of it: LV, clone, export, session, move record',
            *self.gone(target, source))
        status = self.server.show()['status']
        if status == 'ERROR':
            self.server.reset_state()
        self.prove('the guest never noticed', began,
                   self.server.wait_writing,
                   'Nova said %s: state reset' % status
                   if status == 'ERROR' else '')
        self.report.check(
            'server and volumes are still on ' + source.name,
            {self.server.node.name} == {source.name}
            == self.server.homes())

    def migrate(self, source, target):
        """Live-migrate; the copies of the volumes go on afterwards."""
        seconds, downtime, parts = self.server.migrate_observed(target)
        self.arrived = time.monotonic()
        self.report.step(
            'live migration to ' + target.name, seconds,
            'the guest stood still for ' + (
                'an unknown time' if downtime is None
                else '%.2f s' % downtime))
        for what, part in parts:
            self.report.step('  of it until QEMU said ' + what, part)
        self.report.check('server is on ' + target.name,
                          self.server.node is target)

    def back(self, source, target):
        """Migrate back at once, while the volumes are still copied."""
        before = self.copying(source)
        self.migrate(source, target)
        self.report.check(
            'back on %s while the copy still ran' % target.name, bool(before),
            before or 'copied already: use a larger SIZE')
        self.prove('the guest reads and writes through %s' % source.name,
                   time.monotonic(), self.server.wait_writing)

    def copying(self, node):
        """Return the progress of the copies in words; '' without copies."""
        return ', '.join('%d of %d regions local' % progress[:2]
                         for progress in observe.clones(node).values())

    def settle(self, here, there):
        """Wait until both volumes are local, and verify their blocks."""
        self.server.wait_homes(300 + 120 * self.size)
        rates = self.report.watch_copies(here, 300 + 120 * self.size)
        self.server.wait_moved(600)
        self.report.step('copied and cut over, from the arrival on',
                         time.monotonic() - self.arrived,
                         rates + ', both together, with the guest writing')
        self.report.check(
            'source gone on %s: LV, export, session, move record' % there.name,
            *self.gone(there, here))
        self.report.check('homes are ' + here.name,
                          self.server.homes() == {here.name})
        self.prove('every block read back, none wrong', time.monotonic(),
                   self.server.wait_verified)

    def delete(self):
        """Delete server and volumes; nothing may be left."""
        began = time.monotonic()
        root, data = self.server.volumes
        self.server.detach(data)
        self.server.delete()
        instances.delete_volumes(self.lab.cinder(), root, data)
        self.report.step('detached, server and volumes deleted',
                         time.monotonic() - began)
        self.report.check('no LV left on either node', True)

    # -- checks

    def gone(self, empty, other):
        """Wait until nothing is left of the moves of the volumes.

        :param empty: the node without the volumes
        :param other: the node of the server
        :returns: whether nothing is left; the leftovers in words
        """
        def rest():
            return (observe.volume_lvs(empty) + observe.leftovers(other, None)
                    + [left for volume in self.server.volumes
                       for left in observe.leftovers(empty, volume)]
                    + observe.move_records(self.lab))
        try:
            process.wait_for('all to go', lambda: not rest(), 60, every=1)
        except process.LabError:
            pass
        left = rest()
        return not left, left or ''

    def prove(self, what, began, wait, detail=''):
        """Check the blocks which the guest has read.

        :param began: the time from which seconds are counted
        :param wait: a method of the server; it returns the console
        """
        console = wait()
        blocks = [console.of(volume) for volume in self.server.volumes]
        self.report.check(
            what, console.clean, console.bad[:3] or detail
            or '%d + %d blocks, %d + %d reads, 0 wrong (%.0f s)' % (
                blocks[0]['blocks'], blocks[1]['blocks'],
                blocks[0]['reads'], blocks[1]['reads'],
                time.monotonic() - began))


def main():
    """Run the command; return its exit code."""
    command = commands.Command(
        'live-migration', 'lab.demos.live_migration',
        'A volume follows its instance',
        'Bring up two real nodes with Nova, live-migrate a server with two '
        'volumes while it writes, there and back, abort once, prove every '
        'block.', lab_name='live', nova=True)
    command.add_size('data volume')
    return command.main(lambda lab, options, report: LiveMigration(
        lab, options.size, report).run())


if __name__ == '__main__':
    sys.exit(main())
