# SPDX-License-Identifier: Apache-2.0
"""Volume services in containers, under the conditions of kolla."""

import json
import time

from lab.container import container
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base
from tests.functional import reencrypted

#: What the installation page has mounted, for the doctor to look at.
RULES = '/etc/udev/rules.d:/etc/udev/rules.d:ro'
LVM = '/etc/lvm:/etc/lvm'
#: A directory on a mount of the host.
KEYS = '/var/lib/localclone/keys'
#: The rate of the source's link while four containers start, one by one.
SLOW = '4mbit'


class Contained(base.LabTest):
    """Has services of the lab's nodes run in containers, for one test."""

    def contain(self, *nodes, **how):
        """Replace services of nodes by services in containers.

        :param how: see :class:`lab.container.container.Container`
        """
        for node in nodes:
            self.addCleanup(self.free, node, node.container)
            node.service('stop')
            node.container = container.Container(node, **how)
            node.service('start')
        for node in nodes:
            node.wait_service()
        self.lab.wait_for_services()

    def free(self, node, before):
        """Run a node's service as it ran before."""
        if not node.is_on:
            node.power_on()
        node.service('stop')
        node.container = before
        node.service('start')
        node.wait_service()

    def upgrade(self, node):
        """Replace a node's container by one of another image."""
        node.container.upgrade()
        node.wait_service()
        self.lab.wait_for_services()

    def doctor(self, node, code=0):
        """Return what the doctor finds in a container, by check."""
        done = node.operator('doctor', '--json')
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return {each['Check']: each for each in json.loads(done.stdout)}


class ContainersTest(Contained):

    def test_volume_moves_into_a_container(self):
        volume = self.volume(node='node2')
        attached = self.instance.attach(volume, self.n2)
        expected = self.fill(attached)
        attached.detach()
        self.contain(self.n1)
        attached = self.instance.attach(volume, self.n1)
        writer = attached.start_writing()
        observe.wait_moved(self.lab, volume)
        attached.stop_writing(writer)
        self.assertEqual(expected, self.checksum(attached))
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertEqual([], observe.leftovers(self.n1, None))
        self.assertEqual([], observe.volume_lvs(self.n2))
        attached.detach()

    def test_created_attached_and_moved_at_length(self):
        self.contain(self.n1, self.n2)
        found = self.doctor(self.n1)
        self.assertEqual({'OK'}, {each['Verdict'] for each in found.values()},
                         found)
        volume, attached, expected = self.moving_volume()
        writer = attached.start_writing()
        self.assert_moved(volume, attached, expected)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        # And live back again.
        writer = attached.start_writing()
        back = self.instance.attach(volume, self.n1, live=True)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', back.verify(writer.stdout))
        attached.detach('in-use')
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(back))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))
        back.detach()

    def test_replaced_while_a_volume_is_copied_at_length(self):
        self.contain(self.n1, self.n2)
        volume, attached, expected = self.moving_volume()
        self.brake(SLOW)
        writer = attached.start_writing()
        for act in (lambda: self.restart(self.n2, 'kill'),
                    lambda: self.upgrade(self.n2),
                    lambda: self.restart(self.n1),
                    lambda: self.upgrade(self.n1)):
            act()
            self.assertTrue(observe.is_moving(self.lab, volume))
            self.assertTrue(writer.running)
        self.assert_moved(volume, attached, expected)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        attached.detach()

    def test_what_the_doctor_judges_at_length(self):
        """The host's rules and filter, never those of the image."""
        volumes = container.VOLUMES
        self.contain(self.n1)
        rules = '/etc/udev/rules.d/11-localclone.rules'
        self.n1.run('mv %s /run/away' % rules)
        self.addCleanup(self.n1.run, 'mv /run/away %s 2>/dev/null; true'
                        % rules)
        self.n1.run('mv /etc/lvm/lvmlocal.conf /run/lvmlocal')
        self.addCleanup(self.n1.run, 'mv /run/lvmlocal '
                        '/etc/lvm/lvmlocal.conf 2>/dev/null; true')
        found = self.doctor(self.n1)
        self.assertIn('is not installed', found['udev rules']['Details'])
        self.assertIn('on the host', found['udev rules']['Fix'])
        self.assertIn('LVM scans', found['LVM filter']['Details'])
        # What the image brings does not count.
        self.n1.run('mv /run/away %s; mv /run/lvmlocal '
                    '/etc/lvm/lvmlocal.conf' % rules)
        self.n1.container.volumes = [each for each in volumes
                                     if each not in (RULES, LVM)]
        self.restart(self.n1)
        self.n1.container.run('cp', '/var/lib/kolla/venv/lib/udev/rules.d/'
                              '11-localclone.rules', '/etc/udev/rules.d/')
        found = self.doctor(self.n1)
        for check, path in (('udev rules', '/etc/udev/rules.d'),
                            ('LVM filter', '/etc/lvm')):
            self.assertEqual('WARN', found[check]['Verdict'], found)
            self.assertIn('not checked', found[check]['Details'])
            self.assertIn('%s:%s' % (path, path), found[check]['Fix'])
        self.assertEqual('OK', found['container']['Verdict'])

    def test_without_the_hosts_semaphores_at_length(self):
        """LVM waits for udevd on the node, which can't see its semaphore."""
        self.contain(self.n1)
        self.n1.service('stop')
        self.n1.container.ipc_mode = 'private'
        self.restart(self.n1, 'start')
        found = self.doctor(self.n1, 1)
        self.assertEqual('FAIL', found['container']['Verdict'])
        self.assertIn('ipc', found['container']['Fix'])
        observe.take_volumes(self.lab, 'node1')
        self.addCleanup(observe.take_volumes, self.lab)
        answer = self.demo.post('/volumes', json={'volume': {
            'size': 1, 'volume_type': 'localclone'}}).raise_for_status()
        volume = answer.json()['volume']['id']
        process.wait_for('lvcreate to wait', lambda: self.n1.run(
            'pgrep -f "[l]vcreate.*%s"' % volume, check=False).stdout, 60)
        time.sleep(20)
        self.assertTrue(self.n1.run('pgrep -f "[l]vcreate.*%s"' % volume,
                                    check=False).stdout)
        self.n1.service('stop')
        # What it waits for is gone with the namespace of the semaphore.
        self.n1.container.ipc_mode = 'host'
        self.restart(self.n1, 'start')
        instances.wait_status(self.demo, volume, 'error', 60)


class EncryptedTest(reencrypted.Base, Contained):
    """Re-encryptions, and a boot of the node."""

    #: In place of the host's systemd, whose sockets are in /run.
    SYSTEMD = container.HERE / 'systemd_stand_in.sh'

    def with_systemd(self):
        """Have a stand-in for systemd run on the first node."""
        self.addCleanup(self.n1.run, 'bash %s end' % self.SYSTEMD)
        self.n1.run('setsid bash %s begin >/run/systemd.log 2>&1 </dev/null &'
                    ' until [ -p /run/systemd/stand-in ]; do sleep 0.1; done'
                    % self.SYSTEMD)

    def refused(self):
        """Return why a re-encryption is not started."""
        done = self.n1.operator('reencryption', 'start', self.volume_id)
        self.assertEqual(1, done.returncode, done.stdout)
        return done.stderr

    def test_re_encrypted_in_a_container_at_length(self):
        self.contain(self.n1)
        self.assertIn('its own PID namespace', self.refused())
        self.n1.service('stop')
        self.n1.container.pid_mode = 'host'
        self.restart(self.n1, 'start')
        self.assertIn('without systemd-run', self.refused())
        self.assertFalse(self.under_way())
        self.n1.service('stop')
        self.with_systemd()
        self.n1.container.systemd = True
        self.restart(self.n1, 'start')
        writer = self.attached.start_writing()
        for act in (lambda: self.restart(self.n1, 'kill'),
                    lambda: self.upgrade(self.n1)):
            if not self.under_way():
                self.start()
            before = self.done()
            act()
            self.assertTrue(self.runs(self.n1) or not self.under_way())
            self.assertGreater(self.done(), before)
        self.wait_end(self.n1)
        self.assertTrue(writer.running)
        self.attached.stop_writing(writer)
        self.assert_data(self.attached, writer)
        self.attached.detach()

    def test_keys_outlive_the_container_at_length(self):
        """Sealed in one container, they are opened in the next one."""
        self.set_options(localclone_key_cache='systemd-creds',
                         localclone_key_cache_dir=KEYS)
        # It wants the node's own key on a disk.
        self.n1.run(
            'lvcreate -q -y -T -V 32m -n systemd cinder-volumes/'
            'cinder-volumes-pool && mkfs.ext4 -q /dev/cinder-volumes/systemd '
            '&& mkdir -p /var/lib/systemd && '
            'mount /dev/cinder-volumes/systemd /var/lib/systemd')
        self.addCleanup(self.n1.run, 'umount /var/lib/systemd && '
                        'lvremove -q -f cinder-volumes/systemd')
        self.contain(self.n1, systemd=True)
        self.attached.detach()
        attached = self.instance.attach(self.volume_id, self.n1)
        self.assertIn(self.volume_id, self.n1.run('ls ' + KEYS).stdout)
        found = self.doctor(self.n1)
        self.assertNotIn('sealed keys', found)
        self.assertNotIn('localclone_key_cache_dir', found)
        self.upgrade(self.n1)
        self.key_manager(False)
        self.n1.run('cryptsetup close --disable-locks localclone-crypt-'
                    + self.volume_id)
        process.wait_for('the volume to be opened', lambda: self.is_open(
            self.n1, self.volume_id), 90, every=1)
        self.assert_data(attached)
        self.key_manager(True)
        attached.detach()
        self.assertNotIn(self.volume_id, self.n1.run('ls ' + KEYS).stdout)

    def test_boot_before_nova_at_length(self):
        """The host's units run both commands through the image."""
        plain = self.volume()
        other = self.instance.attach(plain, self.n1)
        expected = self.fill(other)
        self.contain(self.n1)
        self.n1.power_cut()
        self.n1.power_on()
        for path in other.path, self.attached.path:
            self.assertTrue(self.n1.run('test -b ' + path,
                                        check=False).returncode)
        for command in 'restore', 'unlock':
            done = self.n1.operator('node', command)
            self.assertEqual(0, done.returncode, done.stderr)
        self.assertFalse(self.n1.container.runs)
        self.assertEqual(expected, self.checksum(other))
        self.assert_data(self.attached)
        self.restart(self.n1, 'start')
        self.assertEqual(expected, self.checksum(other))
        self.assert_data(self.attached)
        other.detach()
        self.attached.detach()
