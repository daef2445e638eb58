# SPDX-License-Identifier: Apache-2.0
"""``make ansible``: the Ansible role makes a node ready."""

import json
import pathlib
import re
import time

from lab.core import install
from lab.core import process
from lab.install import scenario

CONSTRAINTS = pathlib.Path(__file__).with_name('ansible_constraints.txt')
GROUP = 'ansible-volumes'
CONF = '/etc/cinder/cinder.conf'
#: What the role gets: pip and systemd are not on the node.
VARIABLES = {
    'ansible_connection': 'local', 'ansible_become': False,
    'localclone_group': GROUP, 'localclone_devices': ['/dev/vda'],
    'localclone_lvm_devices': ['/dev/vda'],
    'localclone_install_packages': False, 'localclone_enable_units': False,
}


def fill(venv):
    """Ansible from PyPI, for the nodes as well."""
    process.run('/usr/bin/python3', '-m', 'venv', str(venv), timeout=120)
    process.run(str(venv / 'bin/pip'), 'install', '-q',
                '--disable-pip-version-check', '-c', str(CONSTRAINTS),
                'ansible-core', timeout=600)


class Ansible(scenario.Installation):
    """Make a node of a lab ready by the Ansible role, and move a volume from
    it to another node and back.
    """

    name = 'ansible'
    title = 'The Ansible role'
    log = 'node1.cinder-localclone.log'
    warnings = ('LVM', 'udev')
    not_run = (('apt, pip', 'the node has no network'),
               ('systemd', 'it runs on no node'))

    def install(self):
        """Run the role twice, start what it has configured."""
        self.venv = install.template('ansible', CONSTRAINTS.read_bytes(),
                                     fill, print)
        self.configure_cinder(CONF, helpers_of=CONF)
        for again in (False, True):
            changed = self.play()
            self.report.check(
                'a second run changes nothing' if again else
                'the role changes the node', bool(changed) != again,
                '%d tasks changed something' % changed)
        self.report.check('thin pool', GROUP + '-pool' in self.node.run(
            'lvs --noheadings -o lv_name ' + GROUP).stdout.split())
        self.node.daemon('start', 'cinder-localclone', 'cinder-volume', CONF)
        self.wait_service()

    def play(self):
        """Run the playbook in the node; how many tasks changed something."""
        variables = dict(VARIABLES,
                         localclone_storage_address=self.node.address)
        hosts = self.lab.directory / 'hosts'
        hosts.write_text('[hypervisors]\nnode1\n')
        began = time.monotonic()
        done = self.node.run(
            ['env', 'ANSIBLE_NOCOLOR=1', 'ANSIBLE_LOCAL_TEMP=/tmp/ansible',
             'ANSIBLE_REMOTE_TEMP=/tmp/ansible', 'LC_ALL=C.UTF-8',
             self.venv / 'bin/ansible-playbook', '-i', hosts,
             self.lab.repo / 'ansible/localclone.yml', '-e',
             json.dumps(variables)], timeout=600, check=False)
        self.report.step('ansible-playbook', time.monotonic() - began)
        counted = re.search(r'changed=(\d+) .*failed=(\d+)', done.stdout)
        if done.returncode or not counted:
            raise process.LabError(done.stdout[-2000:] + done.stderr[-500:])
        return int(counted.group(1))

    def doctor(self):
        return self.node.run(
            [self.lab.python, '-W', 'ignore', '-m',
             'cinder_localclone.cmd.main', '--config-file', CONF, 'doctor'],
            timeout=120, check=False).stdout
