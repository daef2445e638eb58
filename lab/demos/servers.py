# SPDX-License-Identifier: Apache-2.0
"""What Nova does to a server, around local volumes; each with proof.

Every operation begins and ends with a server that runs on one node and
writes to two volumes, its root among them. The guest says that it found all
it had written; a look at nodes and database says that nothing is left.
"""

import re
import sys
import time

from lab.core import instance as instances
from lab.core import look
from lab.core import process
from lab.demos import show
from lab.faults import checks
from lab.faults import environment as environments
from lab.guest import console as guest_console
from lab.guest import image as guest_image
from lab.nova import compute
from lab.nova import server as servers

#: Before it, a rebuild leaves the root volume as it is.
KEEPS_ROOT = '2.92'
#: Where the guest's image has nothing and the guest writes nothing, in MiB.
MARKED = 30
MARK = 'marked'
COPY_TIMEOUT = 420
#: Nova asks five times for what Cinder answers after a minute.
EVACUATION_TIMEOUT = 600


class Operations:
    """The operations, in the order in which they are run."""

    names = ('attach', 'reboot', 'rebuild', 'shelve', 'cold_migrate',
             'revert', 'revert_early', 'resize', 'power_cut',
             'power_cut_copying', 'evacuate_running', 'evacuate', 'delete')

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.environment = environments.Environment(lab)

    def run(self, wanted):
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
        began = time.monotonic()
        root = servers.boot_volume(self.lab)
        node = instances.home(self.lab, root)
        self.other = next(name for name in self.lab.nodes if name != node)
        # Not where the server will be: its first attach moves it.
        data = instances.create_volume(self.lab.cinder(), 1, node=self.other)
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
        serial = guest_console.serial(self.data)
        before = {serial: self.written()[serial]}
        self.step('detach it', self.server.detach(self.data))
        self.step('attach it again', self.server.attach(self.data))
        self.proven('all of it is found again', before)

    def reboot(self):
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
        here.netem('rate', '100mbit')  # or the copies end too soon
        try:
            self.step('cold migration', self.server.cold_migrate(there))
            found = self.server.wait_found(before)
            before = self.written()
            copying = look.clones(there)
            self.step('revert while %d are copied' % len(copying),
                      self.server.revert())
        finally:
            here.netem()
        found = self.server.wait_found(before)
        self.server.wait_writing(*self.volumes)
        self.report.check(
            'back, the volumes served over iSCSI by ' + there.name,
            self.server.node is here and self.homes() == {there.name}
            and len(self.sessions(here)) >= 2, found.bad[:3] or '')
        for volume in self.volumes:
            look.wait_moved(self.lab, volume, COPY_TIMEOUT)
        self.report.check('their copies end meanwhile',
                          self.server.wait_writing(*self.volumes).clean)
        began = time.monotonic()
        there.power_cut()
        there.power_on()
        there.service('start')
        found = self.server.wait_writing(*self.volumes)
        self.step('power cut of ' + there.name, time.monotonic() - began,
                  'until the guest on %s writes on' % here.name)
        self.report.check('the guest only waited', found.clean,
                          found.bad[:3] or '')
        self.start(there)
        before = self.written()
        self.server.shelve()
        self.step('shelve, unshelve on the same node',
                  self.server.unshelve(here))
        self.proven('the volumes have come home', before)

    def resize(self):
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
        source.netem('rate', '80mbit')
        try:
            self.step('unshelve on the other node',
                      self.server.unshelve(node))
            before = self.written()
            copying = look.clones(node)
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
        self.server.mend()
        self.step('hard reboot', self.server.reboot())
        self.proven('nothing is lost', before)

    def delete(self):
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
        look.wait_deleted(self.lab)
        self.report.check('volumes deleted, no LV left on either node', True)

    # -- parts of them

    def power_back(self, node, before):
        """A node comes up as a real one: first the unit, then services."""
        node.power_on()
        self.report.check('after a power cut no handle is there',
                          not self.handles(node))
        began = time.monotonic()
        done = self.restore(node)
        self.step('cinder-localclone restore', time.monotonic() - began)
        self.report.check(
            'the handles are there, before any service',
            not done.returncode
            and self.handles(node) == sorted(self.volumes),
            done.stderr[-300:])
        began = time.monotonic()
        self.start(node)
        self.server.wait_found(before)
        self.step('services, and the server by itself',
                  time.monotonic() - began)
        before.update(self.written())
        self.step('hard reboot', self.server.reboot())
        self.proven('every acknowledged write is there', before)

    def refused_evacuation(self, node, there):
        began = time.monotonic()
        self.server.act('evacuate', {'host': there.name}).raise_for_status()
        self.server.wait_status('ERROR', EVACUATION_TIMEOUT)
        shown = self.server.show()
        self.step('evacuation refused', time.monotonic() - began, where='')
        self.report.check(
            'Nova says so; volumes and server stay at ' + node.name,
            shown['OS-EXT-SRV-ATTR:host'] == node.name
            and self.homes() == {node.name}
            and not look.shadows(self.lab),
            shown.get('fault', {}).get('message', ''))

    def repaired(self, before):
        """What an operator does: reset the state, reboot; shelve, unshelve.

        Nova has let go of the volumes in Cinder, where they are reserved:
        only a new attachment makes that right.
        """
        self.server.mend()
        self.step('hard reboot', self.server.reboot())
        self.server.wait_found(before)
        before = self.written()
        here = self.server.node
        self.server.shelve()
        self.step('shelve, unshelve', self.server.unshelve(here))
        self.proven('nothing is lost', before)

    def restore(self, node):
        """What the start-up unit runs; how it ended."""
        return node.operator('restore')

    def start(self, node):
        """Start what does not run yet; wait until all are seen to be up."""
        last = compute.reported(node)
        if not node.serves:
            node.service('start')
        compute.service(node, 'start')
        # Nova calls it up for a while yet, though it was dead in between.
        process.wait_for('%s of %s' % (compute.NAME, node.name),
                         lambda: compute.reported(node) != last, 240)
        self.lab.wait_for_services()
        compute.wait(self.lab)

    def force_down(self, node, down):
        nova = self.lab.client('nova')
        service = next(
            each['id'] for each in nova.get('/os-services').json()['services']
            if each['binary'] == compute.NAME and each['host'] == node.name)
        nova.put('/os-services/%s' % service,
                 {'forced_down': down}).raise_for_status()

    def mark(self):
        self.server.node.run(
            'printf %s | dd of=%s bs=1M seek=%d conv=notrunc,fsync '
            'iflag=fullblock status=none' % (
                MARK, self.path(self.root), MARKED))

    def marked(self):
        return self.server.node.run(
            'dd if=%s bs=1M skip=%d count=1 iflag=direct status=none '
            '| head -c %d' % (self.path(self.root), MARKED, len(MARK))
        ).stdout == MARK

    # -- what is so

    @staticmethod
    def path(volume):
        return '/dev/mapper/localclone-' + volume

    def written(self):
        """What the guest has written up to now, and where it is."""
        self.server.wait_writing(*self.volumes)
        self.node_before = self.server.node
        return self.server.written()

    def elsewhere(self):
        here = self.server.node
        return next(node for node in self.lab.nodes.values()
                    if node is not here)

    def homes(self):
        return {instances.home(self.lab, volume) for volume in self.volumes}

    def statuses(self):
        return {self.lab.cinder().get('/volumes/' + volume).json()[
            'volume']['status'] for volume in self.volumes}

    def handles(self, node):
        return sorted(re.findall(
            r'(?m)^localclone-([0-9a-f]{8}-[-0-9a-f]{27})\s',
            node.run('dmsetup ls').stdout))

    def sessions(self, node):
        return node.run('iscsiadm -m session', check=False
                        ).stdout.splitlines()

    def wait_console(self, node, before):
        """The guest's word where Nova can't be asked; when it writes on."""
        path = '/run/nova/instances/%s/console.log' % self.server.id

        def look_again():
            console = guest_console.Console(
                node.run('tail -c 100000 ' + path).stdout)
            return console if all(
                console.disks.get(serial, {'seq': 0})['seq'] > seq
                for serial, seq in before.items()) else None
        return process.wait_for('the guest to write on', look_again, 120,
                                every=1)

    def step(self, what, seconds, where=None):
        self.report.step(what, seconds, (
            'on ' + self.server.node.name) if where is None else where)

    def proven(self, what, before):
        """All is found, written on and local; nothing is left."""
        began = time.monotonic()
        self.server.wait_found(before)
        for volume in self.volumes:
            process.wait_for(
                'the copy of %s to end' % volume,
                lambda v=volume: v not in dict(look.shadows(self.lab)),
                COPY_TIMEOUT, every=1)
        copied = time.monotonic() - began
        console = self.server.wait_verified(*self.volumes)
        self.report.check(
            what, console.clean, console.bad[:3]
            or '%s numbers, all local %.0f s after' % (
                ' + '.join('%d' % disk['seq']
                           for disk in console.disks.values()), copied))
        self.settled(self.server.attachments().values())
        self.report.check(
            'the volumes are where the server is, in use',
            self.homes() == {self.server.node.name}
            and self.statuses() == {'in-use'})

    def settled(self, attachments):
        found = checks.settled_with(self.environment, list(attachments))
        self.report.check('nothing is left', not found,
                          '; '.join(found)[:600])


def main():
    command = show.Show(
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
