# SPDX-License-Identifier: Apache-2.0
"""Nodes whose disks have sectors of 4,096 bytes."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base

#: Shows all of the first disk but its first MiB, with other sectors.
DISK = '/dev/loop7'
SMALL, LARGE = 512, 4096


class SectorsTest(base.LabTest):

    def setUp(self):
        self.changed = []
        super().setUp()

    def mend(self):
        super().mend()
        for node in self.changed:
            self.change_disk(node, DISK, '/dev/vda', after='losetup -d '
                             + DISK)
        if self.changed:
            self.restart_with(self.options)

    def change_disk(self, node, old, new, after):
        """Have another disk in a node's volume group, which is empty."""
        node.service('stop')
        node.run('set -e; vgremove -q -ff --yes cinder-volumes; '
                 'pvremove -q --yes %s; udevadm settle --timeout=10; %s; '
                 'vgcreate -q --yes cinder-volumes %s' % (old, after, new))

    def enlarge_sectors(self, *nodes):
        """Have nodes' groups on disks with large sectors from now on."""
        for node in nodes:
            self.changed.append(node)
            self.change_disk(
                node, '/dev/vda', DISK, after='losetup --sector-size 4096 '
                '--direct-io=on --offset 1M %s /dev/vda' % DISK)
        # A node looks after volumes that are to follow this often.
        self.restart_with(dict(self.options, localclone_reconcile_interval=5))

    def sectors(self, attached):
        """The logical block size of what an instance has, in bytes."""
        return int(attached.node.run('blockdev --getss ' + attached.path
                                     ).stdout)

    def test_a_volume_keeps_its_own(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(SMALL, self.sectors(attached))
        expected = self.fill(attached)
        attached.detach()
        self.enlarge_sectors(self.n2)

        text, told = self.refused(volume)
        self.assertIn('its disks have sectors of 4096 bytes, the volume has '
                      'sectors of 512 bytes', text)
        self.assertIn('cannot take it at present', told)
        self.assert_untouched(volume)
        done = self.n1.operator('doctor')
        self.assertEqual(1, done.returncode)
        self.assertIn('512 bytes: node1@localclone; 4096 bytes: '
                      'node2@localclone', done.stdout)

        # Over iSCSI it can be used there, as it is; it does not follow.
        self.put_in_group(volume)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(SMALL, self.sectors(attached))
        writer = attached.start_writing()
        seen = len(self.n1.service_log())
        self.take_out_of_group(volume)
        process.wait_for(
            'the refusal', lambda: 'could not be moved to the node of its '
            'instance, node2@localclone' in self.n1.service_log()[seen:], 60)
        self.assertIn('its disks have sectors of 4096 bytes',
                      self.n1.service_log()[seen:])
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(attached))
        self.assertEqual(SMALL, self.sectors(attached))
        self.assertEqual([], observe.move_records(self.lab))
        self.assertEqual('node1', instances.home(self.lab, volume))
        attached.detach()

        # What is created there is used there, and can't leave.
        other = self.volume(node='node2')
        attached = self.instance.attach(other, self.n2)
        self.assertEqual(LARGE, self.sectors(attached))
        expected = self.fill(attached)
        attached.detach()
        text, _told = self.refused(other, self.n1)
        self.assertIn('its disks have sectors of 512 bytes, the volume has '
                      'sectors of 4096 bytes', text)
        attached = self.instance.attach(other, self.n2)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def test_moves_between_large_ones_at_length(self):
        self.enlarge_sectors(self.n1, self.n2)
        volume, attached, expected = self.moving_volume()
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.assertEqual(LARGE, self.sectors(attached))
        self.assertEqual(expected, self.checksum(attached))
        self.assert_moved(volume, attached, expected)
        self.assertEqual(LARGE, self.sectors(attached))
        self.assertNotIn('sectors of disks', self.n1.operator(
            'doctor').stdout)
        attached.detach()
