# SPDX-License-Identifier: Apache-2.0
"""What Nova does to a server, around local volumes; each with proof.

Every operation begins and ends with a server that runs on one node and
writes to two volumes, its root among them. The guest says that it found all
it had written; nodes and database are searched for what must not be left.
"""

import re
import sys
import time

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.demos import server_under_test
from lab.guest import console as guest_console
from lab.guest import image as guest_image
from lab.nova import compute
from lab.nova import server as servers

#: Before it, a rebuild leaves the root volume as it is.
KEEPS_ROOT = '2.92'


class Operations(server_under_test.ServerUnderTest):
    """The operations, in the order in which they are run."""

    names = ('attach', 'reboot', 'rebuild', 'shelve', 'cold_migrate',
             'revert', 'revert_early', 'resize', 'power_cut',
             'power_cut_copying', 'evacuate_running', 'evacuate', 'delete')

    def run(self, wanted):
        """All operations that are wanted.

        :param wanted: whether one is, by its name
        """
        self.sweep()
        self.boot()
        for name in self.names:
            if wanted(name):
                getattr(self, name)()

    def sweep(self):
        """Delete what an interrupted run has left in a lab that was kept."""
        nova, cinder = self.lab.client('nova'), self.lab.cinder()
        for each in nova.get('/servers').json()['servers']:
            servers.Server(self.lab, each['id']).delete()
        for each in cinder.get('/attachments').json()['attachments']:
            cinder.delete('/attachments/' + each['id']).raise_for_status()
        for each in cinder.get('/volumes/detail').json()['volumes']:
            if each['status'] != 'deleting':
                instances.wait_status(cinder, each['id'], 'available', 90)
                cinder.delete('/volumes/' + each['id']).raise_for_status()
        process.wait_for('old volumes to go', lambda: not cinder.get(
            '/volumes').json()['volumes'], 90)

    # -- operations

    def boot(self):
        """A server from a volume, with a second volume."""
        began = time.monotonic()
        root = servers.boot_volume(self.lab)
        node = instances.home(self.lab, root)
        other = next(name for name in self.lab.nodes if name != node)
        # Not where the server will be: its first attach moves it.
        data = instances.create_volume(self.lab.cinder(), 1, node=other)
        self.root, self.data = root, data
        self.volumes = [root, data]
        self.report.step('two volumes of 1 GiB, one from the image',
                         time.monotonic() - began)
        began = time.monotonic()
        self.server = servers.Server.boot(self.lab, root, node)
        self.step('boot from volume', time.monotonic() - began)
        self.step('attach a second volume, from the other node',
                  self.server.attach(data))
        self.proven('the guest writes to both', {})

    def attach(self):
        """Detach the second volume and attach it again."""
        serial = guest_console.serial(self.data)
        before = {serial: self.written()[serial]}
        self.step('detach it', self.server.detach(self.data))
        self.step('attach it again', self.server.attach(self.data))
        self.proven('all of it is found again', before)

    def reboot(self):
        """A hard reboot."""
        before = self.written()
        self.step('hard reboot', self.server.reboot())
        self.proven('the guest finds all it had written', before)

    def rebuild(self):
        """Rebuild: with the root as it is, and with the image anew."""
        self.mark()
        before = self.written()
        self.step('rebuild, API %s' % KEEPS_ROOT,
                  self.server.rebuild(KEEPS_ROOT))
        self.report.check('the root volume is as it was', self.marked())
        self.proven('the guest finds all it had written', before)
        before = self.written()
        self.step('rebuild, API 2.93', self.server.rebuild())
        self.report.check('the root volume was imaged anew',
                          not self.marked())
        self.proven('the image is written, the rest is untouched', before)

    def shelve(self):
        """Shelve; unshelve on the same node, then on the other."""
        here, there = self.server.node, self.elsewhere()
        for node, where in ((here, 'the same node'),
                            (there, 'the other node')):
            before = self.written()
            self.step('shelve and offload', self.server.shelve(), where='')
            self.report.check(
                'the volumes stay where they are, reserved',
                self.homes() == {self.node_before.name}
                and self.statuses() == {'reserved'})
            self.step('unshelve on ' + where, self.server.unshelve(node))
            self.proven('the guest finds all it had written', before)

    def cold_migrate(self):
        """A cold migration that is confirmed."""
        before, there = self.written(), self.elsewhere()
        self.step('cold migration', self.server.cold_migrate(there))
        self.step('confirm', self.server.confirm())
        self.proven('the guest finds all it had written', before)

    def revert(self):
        """Back when the copies have ended: they are copied back."""
        before, here = self.written(), self.server.node
        self.step('cold migration',
                  self.server.cold_migrate(self.elsewhere()))
        self.proven('the guest finds all it had written', before)
        before = self.written()
        self.step('revert', self.server.revert())
        self.report.check('the server is back', self.server.node is here)
        self.proven('the guest finds all it had written', before)

    def revert_early(self):
        """Back while the copies run: served over iSCSI till the next attach.
        """
        before, here = self.written(), self.server.node
        there = self.elsewhere()
        here.slow_down('100mbit')  # or the copies end too soon
        try:
            self.step('cold migration', self.server.cold_migrate(there))
            console = self.server.wait_found(before)
            before = self.written()
            copying = observe.clones(there)
            self.step('revert while %d are copied' % len(copying),
                      self.server.revert())
        finally:
            here.netem()
        console = self.server.wait_found(before)
        self.server.wait_writing(*self.volumes)
        self.report.check(
            'back, the volumes served over iSCSI by ' + there.name,
            self.server.node is here and self.homes() == {there.name}
            and len(self.sessions(here)) >= 2, console.bad[:3] or '')
        for volume in self.volumes:
            observe.wait_moved(self.lab, volume,
                               server_under_test.COPY_TIMEOUT)
        self.report.check('their copies end meanwhile',
                          self.server.wait_writing(*self.volumes).clean)
        began = time.monotonic()
        there.power_cut()
        there.power_on()
        there.service('start')
        console = self.server.wait_writing(*self.volumes)
        self.step('power cut of ' + there.name, time.monotonic() - began,
                  'until the guest on %s writes on' % here.name)
        self.report.check('the guest only waited', console.clean,
                          console.bad[:3] or '')
        self.start(there)
        before = self.written()
        self.server.shelve()
        self.step('shelve, unshelve on the same node',
                  self.server.unshelve(here))
        self.proven('the volumes have come home', before)

    def resize(self):
        """A resize that is reverted, then one that is confirmed."""
        before, here = self.written(), self.server.node
        self.step('resize', self.server.resize(guest_image.LARGER))
        self.proven('the guest finds all it had written', before)
        before = self.written()
        self.step('revert', self.server.revert())
        self.report.check('the server is back', self.server.node is here)
        self.proven('the guest finds all it had written', before)
        before = self.written()
        self.step('resize', self.server.resize(guest_image.LARGER))
        self.step('confirm', self.server.confirm())
        self.proven('the guest finds all it had written', before)

    def power_cut(self):
        """The node loses power; everything is there before Nova starts."""
        node, before = self.server.node, self.written()
        node.power_cut()
        self.power_back(node, before)

    def power_cut_copying(self):
        """The same, to a node to which the volumes are being copied."""
        node, source = self.elsewhere(), self.server.node
        self.server.shelve()
        source.slow_down('80mbit')
        try:
            self.step('unshelve on the other node',
                      self.server.unshelve(node))
            before = self.written()
            copying = observe.clones(node)
            self.report.check('both volumes are being copied',
                              len(copying) == 2, copying)
            node.power_cut()
        finally:
            source.netem()
        self.power_back(node, before)

    def evacuate_running(self):
        """The compute service is lost, the guest is not: never two."""
        node, there = self.server.node, self.elsewhere()
        before = self.written()
        compute.service(node, 'kill')
        self.force_down(node, True)
        self.refused_evacuation(node, there)
        self.report.check(
            'the guest never noticed',
            self.wait_console(node, before).clean)
        self.force_down(node, False)
        self.start(node)
        self.repaired(before)

    def evacuate(self):
        """The node is down, and the volumes with it."""
        node, there = self.server.node, self.elsewhere()
        before = self.written()
        node.power_cut()
        self.force_down(node, True)
        self.refused_evacuation(node, there)
        node.power_on()
        self.restore(node)
        self.force_down(node, False)
        self.start(node)
        self.server.reset_state()
        self.step('hard reboot', self.server.reboot())
        self.proven('nothing is lost', before)

    def delete(self):
        """Delete server and volumes; nothing stays."""
        began = time.monotonic()
        self.server.delete()
        for volume in self.volumes:
            instances.wait_status(self.lab.cinder(), volume, 'available', 90)
        self.step('server deleted, its volumes available',
                  time.monotonic() - began, where='')
        self.settled([])
        for volume in self.volumes:
            self.lab.cinder().delete(
                '/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)
        self.report.check('volumes deleted, no LV left on either node', True)


def main():
    """The command; its exit code."""
    command = commands.Command(
        'servers', 'lab.demos.servers', 'Servers on local volumes',
        'Bring up two real nodes with Nova and let it do to a server with '
        'two local volumes all it can; prove each time that nothing is lost '
        'and nothing left.', lab_name='servers', nova=True)
    command.parser.add_argument(
        '--only', default='', metavar='REGEX',
        help='only operations like it: ' + ', '.join(Operations.names))
    return command.main(lambda lab, options, report: Operations(
        lab, report).run(re.compile(options.only).search))


if __name__ == '__main__':
    sys.exit(main())
