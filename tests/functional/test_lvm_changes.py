# SPDX-License-Identifier: Apache-2.0
"""A node whose LVM refuses every change."""

import json

from lab.core import observe
from lab.core import process
from tests.functional import base

#: A second disk of the volume group, in memory.
DISK, IMAGE = '/dev/loop7', '/run/second-disk'
ARCHIVE = '/etc/lvm/archive'


class ChangesTest(base.LabTest):

    def setUp(self):
        super().setUp()
        self.addCleanup(self.make_whole)
        self.home = self.volume()
        attached = self.instance.attach(self.home, self.n1)
        self.expected = self.fill(attached)
        attached.detach()
        self.elsewhere = self.volume(node='node2')
        # Cinder asks once a minute for what a backend has.
        conf = self.n1.directory / 'localclone.conf'
        text = conf.read_text()
        self.addCleanup(self.restart, self.n1)
        self.addCleanup(conf.write_text, text)
        conf.write_text(text.replace(
            '[DEFAULT]\n',
            '[DEFAULT]\nbackend_stats_polling_interval = 3\n'))
        self.restart(self.n1)
        self.wait_pool('up')

    def make_whole(self):
        """Remove what a test that failed has left."""
        self.n1.run(
            'umount %(archive)s 2>/dev/null; '
            'vgreduce -q --removemissing cinder-volumes; '
            'losetup -d %(disk)s 2>/dev/null; rm -f %(image)s' % {
                'archive': ARCHIVE, 'disk': DISK, 'image': IMAGE})

    def wait_pool(self, state):
        """Wait until the scheduler knows the state of node1's pool."""
        def known():
            pools = self.lab.cinder().get(
                '/scheduler-stats/get_pools?detail=true').json()['pools']
            return [each['capabilities']['backend_state'] for each in pools
                    if each['name'].startswith('node1@')] == [state]
        process.wait_for('the pool to be ' + state, known, 60, every=1)

    def doctor(self):
        """What doctor says of changes of the group; '' if nothing."""
        return '\n'.join(
            each['Details'] + ': ' + each['Fix'] for each in json.loads(
                self.n1.operator('doctor', '--json').stdout)
            if each['Check'] == 'changes of cinder-volumes')

    def assert_takes_nothing(self, why, remedy):
        """LVM refuses; no volume comes; volumes at home can be used."""
        self.assertNotEqual(0, self.n1.run('lvcreate -q -L 4M -n new '
                                           'cinder-volumes', check=False
                                           ).returncode)
        self.wait_pool('down')
        self.assertIn(remedy, self.doctor())
        text, told = self.refused(self.elsewhere, self.n1)
        self.assertIn(why, text)
        self.assertIn('cannot take it at present', told)
        self.demo.delete('/volumes/' + self.created_in_vain(
            'node1')).raise_for_status()
        self.assertEqual(['volume-' + self.home], observe.volume_lvs(self.n1))
        attached = self.instance.attach(self.home, self.n1)
        self.assertEqual(self.expected, self.checksum(attached))
        attached.detach()

    def assert_whole(self):
        """The node takes volumes again."""
        self.wait_pool('up')
        self.assertEqual('', self.doctor())
        self.volume()

    def test_group_without_a_disk_at_length(self):
        self.n1.run('truncate -s 64M %(image)s && losetup %(disk)s %(image)s '
                    '&& vgextend -q cinder-volumes %(disk)s && '
                    'losetup -d %(disk)s' % {'disk': DISK, 'image': IMAGE})
        self.assert_takes_nothing(
            'cinder-volumes on node1@localclone lacks 1 of its disks',
            'vgreduce --removemissing cinder-volumes')
        self.n1.run('vgreduce -q --removemissing cinder-volumes')
        self.assert_whole()
        attached = self.instance.attach(self.elsewhere, self.n1)
        observe.wait_moved(self.lab, self.elsewhere)
        attached.detach()

    def test_archive_without_room_at_length(self):
        self.n1.run('mkdir -p %(archive)s && '
                    'mount -t tmpfs -o size=64k tmpfs %(archive)s && '
                    '! dd if=/dev/zero of=%(archive)s/full bs=4k 2>/dev/null'
                    % {'archive': ARCHIVE})
        self.assert_takes_nothing(
            '%s has 0 KiB of free space' % ARCHIVE,
            '%s has 0 KiB free: remove old files there' % ARCHIVE)
        self.n1.run('umount ' + ARCHIVE)
        self.assert_whole()
