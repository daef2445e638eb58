# SPDX-License-Identifier: Apache-2.0
"""A server under test: what is done to it in parts, and what must hold."""

import re
import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.guest import console as guest_console
from lab.nova import compute
from lab.scenarios import checks

#: Where the guest's image has nothing and the guest writes nothing, in MiB.
MARKED = 30
MARK = 'marked'
#: Seconds for a copy to end.
COPY_TIMEOUT = 420
#: Seconds. Nova asks five times for what Cinder answers after a minute.
EVACUATION_TIMEOUT = 600


class ServerUnderTest:
    """A server with two local volumes, its root among them.

    :param report: where steps and checks go
    """

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        #: A :class:`lab.nova.server.Server`, once it was booted.
        self.server = None
        self.root = self.data = None
        self.volumes = []
        #: Where it was when its guest's writes were last asked for.
        self.node_before = None

    # -- parts of operations

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
        """Nova must refuse it, and move nothing."""
        began = time.monotonic()
        self.server.act('evacuate', {'host': there.name}).raise_for_status()
        self.server.wait_status('ERROR', EVACUATION_TIMEOUT)
        shown = self.server.show()
        self.step('evacuation refused', time.monotonic() - began, where='')
        self.report.check(
            'Nova says so; volumes and server stay at ' + node.name,
            shown['OS-EXT-SRV-ATTR:host'] == node.name
            and self.homes() == {node.name}
            and not observe.move_records(self.lab),
            shown.get('fault', {}).get('message', ''))

    def repaired(self, before):
        """What an operator does: reset the state, reboot; shelve, unshelve.

        Nova has let go of the volumes in Cinder, where they are reserved:
        only a new attachment makes that right.
        """
        self.server.reset_state()
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
        """Tell Nova that the compute service of a node is down, or not."""
        nova = self.lab.client('nova')
        service = next(
            each['id'] for each in nova.get('/os-services').json()['services']
            if each['binary'] == compute.NAME and each['host'] == node.name)
        nova.put('/os-services/%s' % service,
                 {'forced_down': down}).raise_for_status()

    def mark(self):
        """Write where neither image nor guest write."""
        self.server.node.run(
            'printf %s | dd of=%s bs=1M seek=%d conv=notrunc,fsync '
            'iflag=fullblock status=none' % (
                MARK, self.path(self.root), MARKED))

    def marked(self):
        """Whether what :meth:`mark` wrote is there."""
        return self.server.node.run(
            'dd if=%s bs=1M skip=%d count=1 iflag=direct status=none '
            '| head -c %d' % (self.path(self.root), MARKED, len(MARK))
        ).stdout == MARK

    # -- what is so

    @staticmethod
    def path(volume):
        """Of a volume, on the node that has it attached."""
        return '/dev/mapper/localclone-' + volume

    def written(self):
        """What the guest has written up to now, and where it is."""
        self.server.wait_writing(*self.volumes)
        self.node_before = self.server.node
        return self.server.written()

    def elsewhere(self):
        """The node on which the server is not."""
        here = self.server.node
        return next(node for node in self.lab.nodes.values()
                    if node is not here)

    def homes(self):
        """The nodes that have the data of the volumes."""
        return {instances.home(self.lab, volume) for volume in self.volumes}

    def statuses(self):
        """The statuses of the volumes."""
        return {self.lab.cinder().get('/volumes/' + volume).json()[
            'volume']['status'] for volume in self.volumes}

    def handles(self, node):
        """The volumes that have a handle on a node."""
        return sorted(re.findall(
            r'(?m)^localclone-([0-9a-f]{8}-[-0-9a-f]{27})\s',
            node.run('dmsetup ls').stdout))

    def sessions(self, node):
        """The iSCSI sessions of a node."""
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
        """Report a step; where: by default, the node of the server."""
        self.report.step(what, seconds, (
            'on ' + self.server.node.name) if where is None else where)

    def proven(self, what, before):
        """All is found, written on and local; nothing is left."""
        began = time.monotonic()
        self.server.wait_found(before)
        for volume in self.volumes:
            process.wait_for(
                'the copy of %s to end' % volume,
                lambda v=volume: v not in dict(observe.move_records(self.lab)),
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
        """Nothing may be left but these attachments."""
        problems = checks.settled_with(self.lab, list(attachments))
        self.report.check('nothing is left', not problems,
                          '; '.join(problems)[:600])
