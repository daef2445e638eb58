# SPDX-License-Identifier: Apache-2.0
"""``make install-page``: the page's steps on a node, a volume that moves."""

import pathlib
import shlex
import shutil
import sys
import time

from lab import command as commands
from lab.core import bare_node
from lab.core import config
from lab.core import install
from lab.core import instance as instances
from lab.core import node
from lab.core import process
from lab.demos import round_trip
from lab.install_page import page

#: What pip builds the package with, as pyproject.toml has it.
BUILT_WITH = ('pbr>=6.1.1', 'setuptools>=64,<81')
STARTED = 'start cinder-volume.service'
CINDER_CONF = '/etc/cinder/cinder.conf'
API_CONF = 'cinder.conf of cinder-api'
#: Where the node has the checkout.
CHECKOUT = '/run/checkout'
#: A node's own commands import the lab's repository.
COMMAND = 'cd %s && env -u PYTHONPATH %s bash -c %s'


def fill(directory):
    """The wheels of BUILT_WITH."""
    process.run('/usr/bin/python3', '-m', 'venv', str(directory / 'venv'),
                timeout=120)
    process.run(str(directory / 'venv/bin/pip'), 'download', '-q',
                '--disable-pip-version-check', '-d', str(directory / 'wheels'),
                *BUILT_WITH, timeout=600)
    shutil.rmtree(directory / 'venv')


class Reader:
    """Does what the page says, on node1 of a lab."""

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.node, self.peer = lab.nodes['node1'], lab.nodes['node2']
        self.started = 0
        # Nodes see the lab's directory, not all of the machine's.
        self.top = lab.directory / 'install-page'
        self.values = {'/dev/nvme0n1p3': '/dev/vda',
                       '<storage address of this node>': self.node.address}

    def run(self):
        """All steps, and what comes of them."""
        self.prepare()
        for step in page.steps(page.PATH.read_text()):
            began = time.monotonic()
            if isinstance(step, page.File):
                what = self.write(step)
            elif step.prompt == page.ROOT:
                what = self.command(step.line)
            else:
                what = self.administrator(step.line)
            self.report.step(what, time.monotonic() - began)
        self.is_right()
        volume = instances.create_volume(
            self.lab.cinder('demo'), 1, node=self.node.name)
        round_trip.show(self.lab, self.report, volume, self.node, self.peer)
        self.restores(volume)
        print('\nNot so: the node has no network, so apt finds its packages '
              'there and pip\nwhat it builds with in a directory; systemd '
              'runs on no node, a stand-in starts\nwhat units name.')

    def prepare(self):
        """What whoever deploys OpenStack has done."""
        wheels = install.template('wheels', repr(BUILT_WITH).encode(), fill,
                                  print) / 'wheels'
        shutil.copytree(self.lab.repo, self.top, ignore=shutil.ignore_patterns(
            '__pycache__', '.stestr', '*.egg-info'))
        shutil.copy(install.HERE / 'constraints.txt',
                    self.top / 'upper-constraints.txt')
        bare_node.make(self.node)
        self.node.run(['bash', self.lab.repo / 'lab/install_page/node.sh',
                       self.lab.venv, self.top, wheels, CHECKOUT],
                      timeout=300)
        # With rootwrap, as it is without the lab's own helpers.
        self.put(CINDER_CONF, config.cinder_before_driver(
            self.node.name, self.node.address, self.lab.venv,
            rootwrap='/etc/cinder/rootwrap.conf'))
        # The lab has a type of this name already.
        admin = self.lab.cinder()
        for each in admin.get('/types').json()['volume_types']:
            if each['name'] == 'localclone':
                admin.put('/types/' + each['id'], json={'volume_type': {
                    'name': 'of-the-lab'}}).raise_for_status()

    # -- steps

    def command(self, line):
        """What root types on the node."""
        line = page.filled_in(line, self.values)
        done = self.node.run(COMMAND % (
            CHECKOUT, ' '.join((
                'DEST=/opt/cinder', 'VENV=/opt/cinder',
                'LOGS=%s' % self.lab.logs, 'DEBIAN_FRONTEND=noninteractive')),
            shlex.quote(line)), timeout=600, check=False)
        if done.returncode:
            raise process.LabError('# %s: exit code %d\n%s' % (
                line, done.returncode, (done.stdout + done.stderr)[-3000:]))
        self.said = done.stdout
        if line.endswith(STARTED):
            self.wait_service()
        return '# ' + line

    def administrator(self, line):
        """What an administrator of the cloud types."""
        words = shlex.split(page.filled_in(line, self.values))
        if words[0] != 'openstack':
            raise process.LabError('not the openstack command: ' + line)
        self.lab.openstack(*words[1:])
        return '$ ' + line

    def write(self, step):
        """A file on the node, or lines of the API's."""
        text = page.filled_in(step.text, self.values)
        if step.name == API_CONF:
            has = config.cinder_control(self.lab.venv, pathlib.Path('/'))
            lacks = [line for line in text.splitlines() if line not in has]
            self.report.check('the lab\'s API is configured so', not lacks,
                              lacks)
        else:
            if step.name == CINDER_CONF:
                text = page.merged(
                    self.node.run(['cat', CINDER_CONF]).stdout, text)
            self.put(step.name, text)
        return step.name

    def put(self, path, text):
        """Write a file on the node."""
        self.node.run('mkdir -p %s && cat >%s' % (
            pathlib.PurePath(path).parent, path), stdin=text.encode())

    # -- what comes of them

    def wait_service(self):
        """Wait until the service that was just started takes requests."""
        self.started += 1
        log = self.lab.logs / 'node1.cinder-volume.service.log'
        process.wait_for(
            'the service', lambda: log.exists() and log.read_text(
                errors='replace').count(node.READY) >= self.started,
            node.SERVICE_TIMEOUT, log, every=1)
        self.lab.wait_for_services(nodes=['node1'])

    def is_right(self):
        """Doctor has nothing against the node."""
        self.command('/opt/cinder/bin/cinder-localclone doctor')
        wrong = [line for line in self.said.splitlines()
                 if 'FAIL' in line or 'WARN' in line]
        self.report.check('doctor finds nothing wrong',
                          self.said and not wrong, wrong)

    def restores(self, volume):
        """The unit gives a volume its handle again."""
        path = '/dev/mapper/localclone-' + volume
        attached = instances.Instance(self.lab).attach(volume, self.node)
        self.command('systemctl stop cinder-volume.service')
        self.node.run('dmsetup remove %s' % path.rpartition('/')[2])
        self.command('systemctl start cinder-localclone-restore.service')
        self.report.check('the unit restores a handle', not self.node.run(
            'test -b ' + path, check=False).returncode)
        self.command('systemctl ' + STARTED)
        attached.detach()


def main():
    """The command; its exit code."""
    command = commands.Command(
        'install-page', 'lab.install_page', 'The installation page',
        'Do on a node what the installation page says, word for word, and '
        'move a volume from it to another node and back.',
        lab_name='install-page')
    return command.main(
        lambda lab, _options, report: Reader(lab, report).run())


if __name__ == '__main__':
    sys.exit(main())
