# SPDX-License-Identifier: Apache-2.0
"""``make ansible``: what the role makes of a node, a table."""

import json
import pathlib
import re
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

HERE = pathlib.Path(__file__).parent
CONSTRAINTS = HERE / 'constraints.txt'
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


class Ansible:
    """One run; node1 is made ready, node2 is the lab's own."""

    def __init__(self, lab, report):
        self.lab = lab
        self.report = report
        self.node, self.peer = lab.nodes['node1'], lab.nodes['node2']

    def run(self):
        """All steps."""
        self.venv = install.template('ansible', CONSTRAINTS.read_bytes(),
                                     fill, print)
        bare_node.make(self.node)
        self.node.run('cat >' + CONF, stdin=config.cinder_before_driver(
            self.node.name, self.node.address, self.lab.venv,
            helpers_of=CONF).encode())
        for again in (False, True):
            changed = self.play()
            self.report.check(
                'a second run changes nothing' if again else
                'the role changes the node', bool(changed) != again,
                '%d tasks changed something' % changed)
        self.report.check('thin pool', GROUP + '-pool' in self.node.run(
            'lvs --noheadings -o lv_name ' + GROUP).stdout.split())
        self.start()
        self.doctor()
        self.move()
        print('\nNot run: apt, pip (the node has no network), systemd (it '
              'runs on no node).')

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

    def start(self):
        """The volume service, with what the role has configured."""
        ready = self.node.service_log().count(node.READY)
        self.node.daemon('start', 'cinder-localclone', 'cinder-volume', CONF)
        process.wait_for(
            'the service of node1',
            lambda: self.node.service_log().count(node.READY) > ready,
            node.SERVICE_TIMEOUT, every=1)
        self.lab.wait_for_services(nodes=['node1'])

    def doctor(self):
        """What the operator's command says of the node."""
        told = self.node.run(
            [self.lab.python, '-W', 'ignore', '-m',
             'cinder_localclone.cmd.main', '--config-file', CONF, 'doctor'],
            timeout=120, check=False).stdout
        wrong = [line for line in told.splitlines()
                 if 'FAIL' in line or ('WARN' in line and (
                     'LVM' in line or 'udev' in line))]
        self.report.check('doctor finds nothing wrong', told and not wrong,
                          wrong)

    def move(self):
        """A volume moves away, and home again."""
        volume = instances.create_volume(
            self.lab.cinder('demo'), 1, node=self.node.name)
        round_trip.show(self.lab, self.report, volume, self.node, self.peer)


def main():
    """The command; its exit code."""
    command = commands.Command(
        'ansible', 'lab.ansible', 'The Ansible role',
        'Make a node of a lab ready by the Ansible role, and move a volume '
        'from it to another node and back.', lab_name='ansible')
    return command.main(
        lambda lab, _options, report: Ansible(lab, report).run())


if __name__ == '__main__':
    sys.exit(main())
