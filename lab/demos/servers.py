# SPDX-License-Identifier: Apache-2.0
"""The demo of Nova's operations on a server with local volumes.

Each operation begins and ends with a running server. Its guest writes to two
volumes, its root volume among them. After each operation the guest must have
found all its blocks, and nodes and database must have no leftovers.
"""

import re
import sys
import time

from lab import command as commands
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.guest import console as guest_console
from lab.guest import image as guest_image
from lab.nova import compute
from lab.nova import server as servers
from lab.scenarios import checks

#: The last version of the API whose rebuild keeps the root volume.
KEEPS_ROOT = '2.92'


class Operations:
    """The operations on one server, in their order.

    :param report: a :class:`lab.core.report.Report` of steps and checks
    """

    names = ('attach', 'reboot', 'rebuild', 'shelve', 'cold_migrate',
             'revert', 'revert_early', 'resize', 'power_cut',
             'power_cut_copying', 'evacuate_running', 'evacuate', 'delete')

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        #: A :class:`lab.nova.server.Server`, once it is booted.
        self.server = None

    def run(self, wanted):
        """Run the wanted operations.

        :param wanted: returns whether an operation is wanted, by its name
        """
        servers.clear(self.lab)
        self.boot()
        for name in self.names:
            if wanted(name):
                getattr(self, name)()

    # -- operations

    def boot(self):
        """Boot a server from a volume, and attach a second volume."""
        began = time.monotonic()
        root = servers.boot_volume(self.lab)
        node = instances.home(self.lab, root)
        other = next(name for name in self.lab.nodes if name != node)
        # Not on the server's node: its first attach moves the volume.
        data = instances.create_volume(self.lab.cinder(), 1, node=other)
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
        data = self.server.volumes[1]
        serial = guest_console.serial(data)
        before = {serial: self.server.written()[serial]}
        self.step('detach it', self.server.detach(data))
        self.step('attach it again', self.server.attach(data))
        self.proven('all of it is found again', before)

    def reboot(self):
        """Reboot the server (hard)."""
        self.keeps(('hard reboot', self.server.reboot))

    def rebuild(self):
        """Rebuild twice: keep the root volume, then write the image again."""
        self.server.mark()
        before = self.server.written()
        self.step('rebuild, API %s' % KEEPS_ROOT,
                  self.server.rebuild(KEEPS_ROOT))
        self.report.check('the root volume is as it was',
                          self.server.is_marked())
        self.proven('the guest finds all it had written', before)
        before = self.server.written()
        self.step('rebuild, API 2.93', self.server.rebuild())
        self.report.check('the root volume was imaged anew',
                          not self.server.is_marked())
        self.proven('the image is written, the rest is untouched', before)

    def shelve(self):
        """Shelve; unshelve on the same node, then on the other."""
        here, there = self.server.node, self.server.other_node
        for node, where in ((here, 'the same node'),
                            (there, 'the other node')):
            before = self.server.written()
            self.step('shelve and offload', self.server.shelve(), where='')
            self.report.check(
                'the volumes stay where they are, reserved',
                self.server.homes() == {here.name}
                and self.server.statuses() == {'reserved'})
            self.step('unshelve on ' + where, self.server.unshelve(node))
            self.proven('the guest finds all it had written', before)

    def cold_migrate(self):
        """Confirm a cold migration."""
        there = self.server.other_node
        self.keeps(('cold migration',
                    lambda: self.server.cold_migrate(there)),
                   ('confirm', self.server.confirm))

    def revert(self):
        """Revert a cold migration after the copies: they go back."""
        there = self.server.other_node
        self._there_and_back('cold migration',
                             lambda: self.server.cold_migrate(there))

    def _there_and_back(self, what, go):
        """Run an operation which moves the server, and revert it."""
        here = self.server.node
        self.keeps((what, go))
        self.keeps(('revert', self.server.revert))
        self.report.check('the server is back', self.server.node is here)

    def revert_early(self):
        """Revert during the copies: remote attachments until the next attach.
        """
        before, here = self.server.written(), self.server.node
        there = self.server.other_node
        here.slow_down('100mbit')  # or the copies end too soon
        try:
            self.step('cold migration', self.server.cold_migrate(there))
            console = self.server.wait_found(before)
            before = self.server.written()
            copying = observe.clones(there)
            self.step('revert while %d are copied' % len(copying),
                      self.server.revert())
        finally:
            here.netem()
        console = self.server.wait_found(before)
        self.server.wait_writing()
        self.report.check(
            'back, the volumes served over iSCSI by ' + there.name,
            self.server.node is here and self.server.homes() == {there.name}
            and len(observe.sessions(here)) >= 2, console.bad[:3] or '')
        self.server.wait_moved()
        self.report.check('their copies end meanwhile',
                          self.server.wait_writing().clean)
        began = time.monotonic()
        there.power_cut()
        there.power_on()
        there.service('start')
        console = self.server.wait_writing()
        self.step('power cut of ' + there.name, time.monotonic() - began,
                  'until the guest on %s writes on' % here.name)
        self.report.check('the guest only waited', console.clean,
                          console.bad[:3] or '')
        self.start(there)
        before = self.server.written()
        self.server.shelve()
        self.step('shelve, unshelve on the same node',
                  self.server.unshelve(here))
        self.proven('the volumes have come home', before)

    def resize(self):
        """Revert a resize, then confirm a resize."""
        def resize():
            return self.server.resize(guest_image.LARGER)
        self._there_and_back('resize', resize)
        self.keeps(('resize', resize), ('confirm', self.server.confirm))

    def power_cut(self):
        """Cut the node's power; the handles are there before Nova starts."""
        node, before = self.server.node, self.server.written()
        node.power_cut()
        self.power_back(node, before)

    def power_cut_copying(self):
        """Cut the power of a node while volumes are copied to it."""
        node, source = self.server.other_node, self.server.node
        self.server.shelve()
        source.slow_down('80mbit')
        try:
            self.step('unshelve on the other node',
                      self.server.unshelve(node))
            before = self.server.written()
            copying = observe.clones(node)
            self.report.check('both volumes are being copied',
                              len(copying) == 2, copying)
            node.power_cut()
        finally:
            source.netem()
        self.power_back(node, before)

    def evacuate_running(self):
        """Evacuate a running guest: Nova must never start a second one."""
        node, there = self.server.node, self.server.other_node
        before = self.server.written()
        compute.service(node, 'kill')
        compute.force_down(node, True)
        self.refused_evacuation(node, there)
        self.report.check(
            'the guest never noticed',
            self.server.wait_writing_offline(node, before).clean)
        compute.force_down(node, False)
        self.start(node)
        self.repaired(before)

    def evacuate(self):
        """Evacuate from a node without power; its volumes are down, too."""
        node, there = self.server.node, self.server.other_node
        before = self.server.written()
        node.power_cut()
        compute.force_down(node, True)
        self.refused_evacuation(node, there)
        node.power_on()
        node.operator('node', 'restore')
        compute.force_down(node, False)
        self.start(node)
        self.server.reset_state()
        self.step('hard reboot', self.server.reboot())
        self.proven('nothing is lost', before)

    def delete(self):
        """Delete server and volumes; nothing may be left."""
        began = time.monotonic()
        self.server.delete()
        self.step('server deleted, its volumes available',
                  time.monotonic() - began, where='')
        self.settled([])
        instances.delete_volumes(self.lab.cinder(), *self.server.volumes)
        self.report.check('volumes deleted, no LV left on either node', True)

    # -- parts of operations

    def power_back(self, node, before):
        """Boot a node as the start-up unit does, then its services.

        :param before: the blocks written before the power cut
        """
        node.power_on()
        self.report.check('after a power cut no handle is there',
                          not observe.handles(node))
        began = time.monotonic()
        done = node.operator('node', 'restore')
        self.step('cinder-localclone node restore', time.monotonic() - began)
        self.report.check(
            'the handles are there, before any service',
            not done.returncode
            and observe.handles(node) == sorted(self.server.volumes),
            done.stderr[-300:])
        began = time.monotonic()
        self.start(node)
        self.server.wait_found(before)
        self.step('services, and the server by itself',
                  time.monotonic() - began)
        before.update(self.server.written())
        self.step('hard reboot', self.server.reboot())
        self.proven('every acknowledged write is there', before)

    def refused_evacuation(self, node, there):
        """Check that Nova refuses an evacuation and moves nothing."""
        seconds = self.server.evacuate(there)
        shown = self.server.show()
        self.step('evacuation refused', seconds, where='')
        self.report.check(
            'Nova says so; volumes and server stay at ' + node.name,
            shown['OS-EXT-SRV-ATTR:host'] == node.name
            and self.server.homes() == {node.name}
            and not observe.move_records(self.lab),
            shown.get('fault', {}).get('message', ''))

    def repaired(self, before):
        """Repair the server as an operator does: reset its state, reboot.

        Nova has released the volumes in Cinder, where they are reserved: only
        a new attachment, by shelving and unshelving, makes them in use.
        """
        self.server.reset_state()
        self.step('hard reboot', self.server.reboot())
        self.server.wait_found(before)
        before = self.server.written()
        here = self.server.node
        self.server.shelve()
        self.step('shelve, unshelve', self.server.unshelve(here))
        self.proven('nothing is lost', before)

    def start(self, node):
        """Start the stopped services of a node, and wait for them."""
        last = compute.reported(node)
        if not node.serves:
            node.service('start')
        compute.service(node, 'start')
        # Nova shows nova-compute as up for a while after its end.
        process.wait_for('%s of %s' % (compute.NAME, node.name),
                         lambda: compute.reported(node) != last, 240)
        self.lab.wait_for_services()
        compute.wait(self.lab)

    # -- checks

    def step(self, what, seconds, where=None):
        """Report a step.

        :param where: None: the node of the server
        """
        self.report.step(what, seconds, (
            'on ' + self.server.node.name) if where is None else where)

    def keeps(self, *steps):
        """Run steps, and check that the guest finds all its blocks.

        :param steps: (title, call) of each; the call returns its seconds
        """
        before = self.server.written()
        for what, call in steps:
            self.step(what, call())
        self.proven('the guest finds all it had written', before)

    def proven(self, what, before):
        """Check that all blocks are there, and the volumes local.

        :param before: the blocks written before the operation
        """
        began = time.monotonic()
        self.server.wait_found(before)
        self.server.wait_no_move()
        copied = time.monotonic() - began
        console = self.server.wait_verified()
        self.report.check(
            what, console.clean, console.bad[:3]
            or '%s numbers, all local %.0f s after' % (
                ' + '.join('%d' % disk['seq']
                           for disk in console.disks.values()), copied))
        self.settled(self.server.attachments().values())
        self.report.check(
            'the volumes are where the server is, in use',
            self.server.homes() == {self.server.node.name}
            and self.server.statuses() == {'in-use'})

    def settled(self, attachments):
        """Check that nothing is left but these attachments."""
        problems = checks.settled_with(self.lab, list(attachments))
        self.report.check('nothing is left', not problems,
                          '; '.join(problems)[:600])


def main():
    """Run the command; return its exit code."""
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
