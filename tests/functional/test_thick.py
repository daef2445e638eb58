# SPDX-License-Identifier: Apache-2.0
"""Volumes that have all of their space from the beginning."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base


class ThickTest(base.LabTest):
    """Has a lab of its own: a volume group is of thin volumes or of thick.

    There, all options of this driver are as they are by default; other labs'
    copy faster.
    """

    lab_name = base.THICK
    options = base.WITH_THICK

    def placed(self, node):
        """Each LV of a node's group: its type and where on the disk it is."""
        return node.run('lvs --noheadings -o segtype,devices '
                        'cinder-volumes').stdout.split()

    def raw(self, node, place, mib=base.CHECKED):
        """The checksum of what the disk itself has at a place."""
        disk, extent = place.rstrip(')').split('(')
        start, size = node.run(
            'pvs --noheadings --units m --nosuffix '
            '-o pe_start,vg_extent_size ' + disk).stdout.split()
        return instances.checksum(
            node, disk, mib,
            first_mib=int(float(start) + int(extent) * float(size)))

    def zeros(self, mib=base.CHECKED):
        return instances.checksum_of_zeros(mib)

    def test_a_new_volume_has_nothing_of_others(self):
        """Whatever was there, and whoever has left it."""
        self.n1.run('lvcreate --yes -q -l 100%FREE -n other cinder-volumes '
                    '&& dd if=/dev/urandom of=/dev/cinder-volumes/other '
                    'bs=1M count=1200 oflag=direct status=none; '
                    'lvremove --force -q cinder-volumes/other', timeout=300)
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(self.zeros(1024), self.checksum(attached, 1024))
        self.assertNotIn('localclone.shown', self.n1.run(
            'lvs --noheadings -o lv_tags cinder-volumes').stdout)
        attached.detach()

    def test_moves_and_leaves_nothing_to_read_at_length(self):
        self.assertNotIn('localclone_', repr(self.lab.settings['options']))
        volume, attached, expected = self.moving_volume()
        segtype, place = self.placed(self.n1)
        self.assertEqual('linear', segtype)
        self.assertEqual(expected, self.checksum(attached))
        # What the source has there, through another eye than LVM's.
        self.assertEqual(expected, self.raw(self.n1, place))
        self.assert_moved(volume, attached, expected)
        self.assertEqual(['linear'], self.placed(self.n2)[::2])
        process.wait_for('the source to be overwritten and removed',
                         lambda: not self.placed(self.n1), 150, every=2)
        self.assertEqual(self.zeros(), self.raw(self.n1, place))

        for pool in self.lab.cinder().get(
                '/scheduler-stats/get_pools?detail=true').json()['pools']:
            capabilities = pool['capabilities']
            self.assertTrue(capabilities['thick_provisioning_support'])
            self.assertFalse(capabilities['thin_provisioning_support'])

        place = self.placed(self.n2)[1]
        attached.detach()
        self.assertEqual(expected, self.raw(self.n2, place))
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab, 150)
        self.assertEqual([], self.placed(self.n2))
        self.assertEqual(self.zeros(), self.raw(self.n2, place))


class StripedTest(base.LabTest):
    """Each node's group has two disks, which are halves of one."""

    lab_name = ThickTest.lab_name
    options = ThickTest.options
    striped = dict(options, localclone_thick_stripes=2,
                   localclone_enable_online_extend=True)

    def setUp(self):
        # These come last, when no volume is there any more.
        self.addCleanup(lambda: self.restart_with(self.options))
        self.addCleanup(self.join_halves)
        super().setUp()

    def join_halves(self):
        for node in self.lab.nodes.values():
            node.run(
                'dmsetup info half-a >/dev/null 2>&1 || exit 0; '
                'vgremove -q --force --yes cinder-volumes && '
                'pvremove -q --yes /dev/mapper/half-a /dev/mapper/half-b && '
                # udev, or a look of the service, may have them open.
                'udevadm settle --timeout=10 && '
                'dmsetup remove --retry half-a && '
                'dmsetup remove --retry half-b && '
                'udevadm settle --timeout=10 && '
                'vgcreate -q cinder-volumes /dev/vda')

    def halve_disk(self, node):
        node.run(
            'vgremove -q --force --yes cinder-volumes && '
            'pvremove -q --yes /dev/vda && '
            'half=$(($(blockdev --getsz /dev/vda) / 2 - 2048)) && '
            'dmsetup create half-a --table "0 $half linear /dev/vda 2048" && '
            'dmsetup create half-b --table '
            '"0 $half linear /dev/vda $((half + 2048))" && '
            'udevadm settle --timeout=10 && vgcreate -q cinder-volumes '
            '/dev/mapper/half-a /dev/mapper/half-b')

    def segments(self, node):
        """Type and stripes of each LV of a volume."""
        return {tuple(row.split()) for row in node.run(
            'lvs --noheadings -o segtype,stripes -S \'lv_name=~"^volume-"\' '
            'cinder-volumes').stdout.splitlines()}

    def halve_disks(self):
        for node in (self.n1, self.n2):
            self.halve_disk(node)
        self.restart_with(self.striped)

    def test_striped(self):
        self.halve_disks()
        attached = self.instance.attach(self.volume(), self.n1)
        self.assertEqual({('striped', '2')}, self.segments(self.n1))
        expected = self.fill(attached)
        self.extend(attached.volume_id, status='in-use')
        self.assertEqual({('striped', '2')}, self.segments(self.n1))
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def test_moves_and_is_checked_at_length(self):
        self.restart_with(self.striped)
        done = self.n1.operator('doctor')
        self.assertEqual(1, done.returncode)
        self.assertIn('localclone_thick_stripes is 2', done.stdout)
        self.halve_disks()
        self.assertIn('2 of 2 disks', self.n1.operator('doctor').stdout)
        volume = self.volume(node='node1')
        self.assertEqual({('striped', '2')}, self.segments(self.n1))
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached, 64)
        self.extend(volume, status='in-use')
        self.assertEqual({('striped', '2')}, self.segments(self.n1))
        attached.detach()
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached, 64))
        self.assertEqual(2 << 30, int(self.n1.run(
            'blockdev --getsize64 ' + attached.path).stdout))
        attached.detach()
        attached = self.instance.attach(volume, self.n2)
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached, 64))
        self.assertEqual({('striped', '2')}, self.segments(self.n2))
        self.assertEqual(set(), self.segments(self.n1))
        attached.detach()
