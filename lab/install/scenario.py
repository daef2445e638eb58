# SPDX-License-Identifier: Apache-2.0
"""A node without the driver is made ready in one of several ways."""

import time

from lab.core import config
from lab.core import instance as instances
from lab.core import node as nodes
from lab.core import observe
from lab.core import process


class Installation:
    """One way to make node1 of a lab ready; node2 is the lab's own.

    :param options: of the command
    :param report: a :class:`lab.core.report.Report`
    """

    #: Of the command, and of what it prints.
    name = title = ''
    #: The disks of the node that become blank, and the groups on them.
    disks = {'/dev/vda': 'cinder-volumes'}
    #: The log of the service that is installed, among those of the lab.
    log = ''
    #: Doctor's warnings that count as wrong have one of these words.
    warnings: tuple[str, ...] = ('',)
    #: What is not run here, or otherwise than by a user: (what, why).
    not_run: tuple[tuple[str, str], ...] = ()

    def __init__(self, lab, options, report):
        self.lab = lab
        self.options = options
        self.report = report
        self.node, self.peer = lab.nodes['node1'], lab.nodes['node2']
        self.started = self._ready()

    @staticmethod
    def add_arguments(parser):
        """Declare the options of this way."""

    def run(self):
        """Make the node ready, move a volume from it and back."""
        self.make_bare()
        self.install()
        self.is_ready()
        volume = self.create(self.node)
        self.there_and_back(volume)
        self.go_on(volume)
        print('\nNot run, or otherwise:')
        for what, why in self.not_run:
            print('  %-45s %s' % (what, why))

    # -- what each way has of its own

    def install(self):
        """Do what this way does, until the volume service runs."""
        raise NotImplementedError()

    def doctor(self):
        """What ``cinder-localclone doctor`` prints on the node."""
        raise NotImplementedError()

    def go_on(self, volume):
        """Check what else this way promises.

        :param volume: one that has moved away and is at home again
        """

    # -- the node

    def make_bare(self):
        """End the node's service; nothing of the driver is left there."""
        self.node.service('stop')
        for disk, group in self.disks.items():
            self.node.run(
                'set -e; vgremove -q -ff -y %s; pvremove -q -y %s; '
                'wipefs -q -a %s' % (group, disk, disk))
        self.node.run('set -e; rm -f /etc/lvm/lvmlocal.conf '
                      '/etc/udev/rules.d/11-localclone.rules; '
                      'udevadm control --reload; '
                      'mkdir -p /etc/cinder/rootwrap.d /etc/modules-load.d')

    def configure_cinder(self, path, **how):
        """Write Cinder's configuration, in which no backend is.

        :param how: see :func:`lab.core.config.cinder_before_driver`
        """
        self.put(path, config.cinder_before_driver(
            self.node.name, self.node.address, self.lab.venv, **how))

    def put(self, path, text):
        """Write a file on the node."""
        self.node.run('mkdir -p $(dirname %s) && cat >%s' % (path, path),
                      stdin=text.encode())

    def _ready(self):
        """How often the log says that the service takes requests."""
        path = self.lab.logs / self.log
        return path.read_text(errors='replace').count(
            nodes.READY) if path.exists() else 0

    def wait_service(self):
        """Wait until the service that was just started takes requests."""
        self.started += 1
        process.wait_for(
            'the service of node1', lambda: self._ready() >= self.started,
            nodes.SERVICE_TIMEOUT, self.lab.logs / self.log, every=1)
        self.lab.wait_for_services(nodes=['node1'])

    # -- what must hold

    def is_ready(self):
        """Check that doctor finds nothing wrong."""
        told = self.doctor()
        wrong = [line for line in told.splitlines()
                 if 'FAIL' in line or ('WARN' in line and any(
                     word in line for word in self.warnings))]
        self.report.check('doctor finds nothing wrong', told and not wrong,
                          '; '.join(wrong))

    def create(self, node):
        """Create a volume of 1 GiB on a node; its id."""
        return instances.create_volume(
            self.lab.cinder('demo'), 1, node=node.name)

    def there_and_back(self, volume):
        """Check that the guest's writes are right on each node, in turn."""
        instance = instances.Instance(self.lab)
        attached = instance.attach(volume, self.node)
        writer = attached.start_writing(seconds=10)
        writer.wait(60)
        attached.detach()
        for each in (self.peer, self.node):
            began = time.monotonic()
            attached = instance.attach(volume, each)
            verdict = attached.verify(writer.stdout)
            self.report.check('right on ' + each.name,
                              verdict.endswith(' 0 bad'), verdict)
            observe.wait_moved(self.lab, volume)
            self.report.step('moved to ' + each.name,
                             time.monotonic() - began)
            attached.detach()
