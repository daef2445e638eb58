# SPDX-License-Identifier: Apache-2.0
"""Volumes that have all of their space from the beginning."""

from lab.core import look
from tests.functional import base


class ThickTest(base.LabTest):
    """Has a lab of its own: a volume group is of thin volumes or of thick.

    There, all options of this driver are as they are by default; other labs'
    copy faster.
    """

    lab_name = 'thick'
    options = {'lvm_type': 'default'}

    @classmethod
    def tearDownClass(cls):
        base.end_lab(cls.lab_name)
        super().tearDownClass()

    def placed(self, node):
        """Each LV of a node's group: its type and where on the disk it is."""
        return node.run('lvs --noheadings -o segtype,devices '
                        'cinder-volumes').stdout.split()

    def raw(self, node, place, mib=96):
        """The checksum of what the disk itself has at a place."""
        disk, extent = place.rstrip(')').split('(')
        start, size = node.run(
            'pvs --noheadings --units m --nosuffix '
            '-o pe_start,vg_extent_size ' + disk).stdout.split()
        return node.run(
            'dd if=%s bs=1M skip=%d count=%d iflag=direct status=none '
            '| sha256sum' % (
                disk, float(start) + int(extent) * float(size), mib)).stdout

    def zeros(self, mib=96):
        return self.n1.run('head -c %dM /dev/zero | sha256sum' % mib).stdout

    def test_a_new_volume_has_nothing_of_others(self):
        """Whatever was there, and whoever has left it."""
        self.n1.run('lvcreate --yes -q -l 100%FREE -n other cinder-volumes '
                    '&& dd if=/dev/urandom of=/dev/cinder-volumes/other '
                    'bs=1M count=1200 oflag=direct status=none; '
                    'lvremove --force -q cinder-volumes/other', timeout=300)
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(
            attached.node.run('head -c 1G /dev/zero | sha256sum',
                              timeout=120).stdout,
            self.checksum(attached, 1024))
        self.assertNotIn('localclone.shown', self.n1.run(
            'lvs --noheadings -o lv_tags cinder-volumes').stdout)
        attached.detach()

    def test_moves_and_leaves_nothing_to_read(self):
        self.assertNotIn('localclone_', repr(self.lab.settings['options']))
        volume, attached, expected = self.moving_volume()
        segtype, place = self.placed(self.n1)
        self.assertEqual('linear', segtype)
        self.assertEqual(expected, self.checksum(attached))
        # What the source has there, through another eye than LVM's.
        self.assertEqual(expected, self.raw(self.n1, place))
        self.assert_moved(volume, attached, expected)
        self.assertEqual(['linear'], self.placed(self.n2)[::2])
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
        look.wait_deleted(self.lab, 150)
        self.assertEqual([], self.placed(self.n2))
        self.assertEqual(self.zeros(), self.raw(self.n2, place))
