# SPDX-License-Identifier: Apache-2.0
"""``make install-page``: a node is made ready as the page says."""

import pathlib
import shlex
import shutil
import time

from lab.core import config
from lab.core import install
from lab.core import instance as instances
from lab.core import process
from lab.install import page_steps
from lab.install import scenario

MACHINE = pathlib.Path(__file__).with_name('page_machine.sh')
#: What pip builds the package with, as pyproject.toml has it.
BUILT_WITH = ('setuptools>=77',)
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


class Page(scenario.Installation):
    """Do on a node what the installation page says, word for word, and move a
    volume from it to another node and back.
    """

    name = 'install-page'
    title = 'The installation page'
    log = 'node1.cinder-volume.service.log'
    not_run = (
        ('apt', 'the node has no network: it finds its packages there'),
        ('what pip builds with', 'is in a directory'),
        ('systemd', 'a stand-in starts what units name'))

    def __init__(self, lab, options, report):
        super().__init__(lab, options, report)
        # Nodes see the lab's directory, not all of the machine's.
        self.top = lab.directory / 'install-page'
        self.values = {'/dev/nvme0n1p3': '/dev/vda',
                       '<storage address of this node>': self.node.address}

    def install(self):
        """Do the steps of the page on a node that has OpenStack."""
        self.deploy_openstack()
        for step in page_steps.steps(page_steps.PATH.read_text()):
            began = time.monotonic()
            if isinstance(step, page_steps.File):
                what = self.write(step)
            elif step.prompt == page_steps.ROOT:
                what = self.command(step.line)
            else:
                what = self.administrator(step.line)
            self.report.step(what, time.monotonic() - began)

    def deploy_openstack(self):
        """Do what whoever deploys OpenStack has done."""
        wheels = install.template('wheels', repr(BUILT_WITH).encode(), fill,
                                  print) / 'wheels'
        shutil.copytree(self.lab.repo, self.top, ignore=shutil.ignore_patterns(
            '__pycache__', '.stestr', '*.egg-info'))
        shutil.copy(install.HERE / 'constraints.txt',
                    self.top / 'upper-constraints.txt')
        self.node.run(['bash', MACHINE, self.lab.venv, self.top, wheels,
                       CHECKOUT], timeout=300)
        # With rootwrap, as it is without the lab's own helpers.
        self.configure_cinder(CINDER_CONF,
                              rootwrap='/etc/cinder/rootwrap.conf')
        # The lab has a type of this name already.
        admin = self.lab.cinder()
        for each in admin.get('/types').json()['volume_types']:
            if each['name'] == 'localclone':
                admin.put('/types/' + each['id'], json={'volume_type': {
                    'name': 'of-the-lab'}}).raise_for_status()

    # -- steps

    def command(self, line):
        """What root types on the node."""
        line = page_steps.filled_in(line, self.values)
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
        words = shlex.split(page_steps.filled_in(line, self.values))
        if words[0] != 'openstack':
            raise process.LabError('not the openstack command: ' + line)
        self.lab.openstack(*words[1:])
        return '$ ' + line

    def write(self, step):
        """A file on the node, or lines of the API's."""
        text = page_steps.filled_in(step.text, self.values)
        if step.name == API_CONF:
            has = config.cinder_control(self.lab.venv, pathlib.Path('/'))
            lacks = [line for line in text.splitlines() if line not in has]
            self.report.check('the lab\'s API is configured so', not lacks,
                              lacks)
        else:
            if step.name == CINDER_CONF:
                text = page_steps.merged(
                    self.node.run(['cat', CINDER_CONF]).stdout, text)
            self.put(step.name, text)
        return step.name

    # -- what comes of them

    def doctor(self):
        self.command('/opt/cinder/bin/cinder-localclone doctor')
        return self.said

    def go_on(self, volume):
        """Check that the unit gives a volume its handle again."""
        path = '/dev/mapper/localclone-' + volume
        attached = instances.Instance(self.lab).attach(volume, self.node)
        self.command('systemctl stop cinder-volume.service')
        self.node.run('dmsetup remove %s' % path.rpartition('/')[2])
        self.command('systemctl start cinder-localclone-restore.service')
        self.report.check('the unit restores a handle', not self.node.run(
            'test -b ' + path, check=False).returncode)
        self.command('systemctl ' + STARTED)
        attached.detach()
