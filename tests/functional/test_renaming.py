# SPDX-License-Identifier: Apache-2.0
"""A node gets another name or address as the page of that name says."""

import pathlib
import re
import shlex

from testtools import matchers

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.install import page_steps as page
from tests.functional import base

PAGE = pathlib.Path(page.PATH).parents[1] / 'operate/renaming.rst'
#: Storage addresses of node1 beside that at which it is managed.
OLD, NEW = '192.0.2.31', '192.0.2.41'
RENAMED = 'node9'
PREFIX, NEW_PREFIX = 'iqn.2026-11.org.example:', 'iqn.2026-11.org.renamed:'


class RenamingTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.conf = self.n1.directory / 'localclone.conf'
        before = self.conf.read_text()
        self.name = self.n1.name
        self.addCleanup(self.n1.run, 'for a in %s %s; do ip address del '
                        '$a/24 dev vec0; done' % (OLD, NEW), check=False)
        self.addCleanup(self.restart, self.n1)
        self.addCleanup(self.conf.write_text, before)
        self.addCleanup(self.call_as_before)
        self.n1.run('ip address add %s/24 dev vec0' % OLD)
        self.write('target_ip_address = %s\n' % OLD)
        self.conf.write_text(self.conf.read_text().replace(
            'target_ip_address', 'localclone_reconcile_interval = 5\n'
            'target_ip_address'))
        self.restart(self.n1)
        self.lab.wait_for_services()

    def call_as_before(self):
        if self.name != self.n1.name:
            self.rename(self.n1.name)

    # -- what the page says

    def steps(self, title):
        return page.literal_steps(PAGE.read_text(), title)

    def follow(self, steps, **values):
        """Do what a reader does.

        :param values: what stands for OLD and NEW here
        :returns: what the last command has printed
        """
        said = ''
        for step in steps:
            text = getattr(step, 'line', None) or step.text
            for example, value in dict(
                    values, eth1='vec0', POOL='localclone').items():
                text = re.sub(r'\b%s\b' % example, value, text)
            text = text.replace(PREFIX, NEW_PREFIX)
            if isinstance(step, page.File):
                self.write(text)
            else:
                said = self.command(shlex.split(text), text)
        return said

    def write(self, text):
        """Set options in the configuration of node1's service."""
        for option, value in re.findall(r'(?m)^(\w+) = (.*)$', text):
            conf, count = re.subn(
                r'(?m)^%s = .*$' % option, '%s = %s' % (option, value),
                self.conf.read_text())
            self.assertEqual(1, count, option)
            self.conf.write_text(conf)

    def command(self, words, line):
        """Run a command on node1, or as the administrator of the cloud."""
        if words[0] == 'systemctl':
            self.assertEqual('cinder-volume.service', words[2])
            self.n1.service(words[1])
            if words[1] != 'stop':
                self.n1.wait_service()
            return ''
        if words[0] == 'openstack':
            return self.lab.openstack(*words[1:]).stdout
        if words[0] == 'cinder-localclone':
            done = self.n1.operator(*words[1:])
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            return done.stdout
        if words[0] == 'cinder-manage':
            return self.n1.run([
                self.lab.venv / 'bin/cinder-manage', '--config-file',
                self.conf, *words[1:]], timeout=120).stdout
        return self.n1.run(line, check=words[0] != 'ls').stdout

    def rename(self, name):
        """Give node1's service another host name."""
        self.follow(self.steps('Another host name'), OLD=self.name, NEW=name)
        self.name = name
        self.lab.wait_for_services(nodes=[name, 'node2'])

    def session(self):
        """Address and iSCSI name of what node2 is logged in to."""
        line, = self.n2.run('iscsiadm -m session').stdout.splitlines()
        return line.split()[2].partition(':')[0], line.split()[3]

    def test_while_a_volume_is_attached_elsewhere_at_length(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        snapshot = self.demo.post('/snapshots', json={'snapshot': {
            'volume_id': volume}}).raise_for_status().json()['snapshot']['id']
        self.addCleanup(self.remove_snapshot, snapshot)
        self.put_in_group(volume)
        attached = self.instance.attach(volume, self.n2)
        at_first = self.session()
        self.assertEqual(OLD, at_first[0])
        writer = attached.start_writing()

        self.follow(self.steps('Another prefix of iSCSI names'))
        *change, look_at, remove = self.steps('Another storage address')[:5]
        self.follow(change, OLD=OLD, NEW=NEW)
        self.rename(RENAMED)
        self.assertIn(OLD, self.follow([look_at], OLD=OLD))
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(attached))
        self.assertEqual(at_first, self.session())
        self.take_out_of_group(volume)  # Cinder can't show it in this one
        attached.detach()
        self.put_in_group(volume)
        process.wait_for('the old address to be unused', lambda: (
            self.follow([look_at], OLD=OLD) == ''), 60)
        self.follow([remove], OLD=OLD)

        # What is new has the new prefix and address.
        attached = self.instance.attach(volume, self.n2)
        address, iqn = self.session()
        self.assertEqual(NEW, address)
        self.assertThat(iqn, matchers.StartsWith(NEW_PREFIX))
        self.assertEqual(expected, self.checksum(attached))
        self.take_out_of_group(volume)
        attached.detach()
        attached = self.instance.attach(volume, self.n2)
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()

        # The snapshot has stayed, and is known.
        copy = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'snapshot_id': snapshot}}
        ).raise_for_status().json()['volume']['id']
        instances.wait_status(self.demo, copy, 'available', 120)
        self.assertEqual(RENAMED, instances.home(self.lab, copy))
        connector = dict(self.instance.connector(self.n1), host=RENAMED)
        attached = self.instance.attach(copy, self.n1, connector)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def remove_snapshot(self, snapshot):
        self.demo.delete('/snapshots/' + snapshot)
        process.wait_for('the snapshot to go', lambda: not observe.sql(
            self.lab, 'SELECT id FROM snapshots WHERE deleted = 0'), 60)
