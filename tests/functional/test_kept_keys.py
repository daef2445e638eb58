# SPDX-License-Identifier: Apache-2.0
"""Keys that a node keeps, on real kernels, Barbican and systemd-creds."""

from lab.core import process
from tests.functional import driver_encrypted as encrypted

DISK = 'systemd'
SYSTEMD = '/var/lib/systemd'


class KeptKeysTest(encrypted.DriverTest):

    def setUp(self):
        super().setUp()
        if self.n1.run('command -v systemd-creds', check=False).returncode:
            self.skipTest('the nodes have no systemd-creds')
        self.set_options(localclone_key_cache='systemd-creds',
                         localclone_key_cache_dir='/run/localclone-keys')
        # It wants the node's own key on a disk.
        self.n1.run(
            'lvcreate -q -y -T -V 32m -n %s cinder-volumes/cinder-volumes-pool'
            ' && mkfs.ext4 -q /dev/cinder-volumes/%s && mkdir -p %s && '
            'mount /dev/cinder-volumes/%s %s' % (DISK, DISK, SYSTEMD, DISK,
                                                 SYSTEMD))
        self.addCleanup(self.n1.run, 'umount %s && lvremove -q -f '
                        'cinder-volumes/%s' % (SYSTEMD, DISK))

    def test_extended_without_a_key_manager(self):
        volume = self.encrypted()
        attached = self.instance.attach(volume, self.n1)
        expected = self.mark(attached)
        self.assertIn(volume, self.n1.run('ls /run/localclone-keys').stdout)
        self.key_manager(False)
        self.extend(volume, 2, 'in-use')
        self.assertEqual(2 * encrypted.GIB, self.bytes_of(attached))
        self.write_end(attached, 2)
        self.assertEqual(expected, self.checksum(
            attached, encrypted.MARKED))
        # Closed, it is opened again by the service's look.
        self.n1.run('cryptsetup close --disable-locks localclone-crypt-'
                    + volume)
        process.wait_for('the volume to be opened', lambda: self.is_open(
            self.n1, volume), 60, every=1)
        self.assertEqual(expected, self.checksum(
            attached, encrypted.MARKED))
        self.key_manager(True)
        attached.detach()
        self.assertNotIn(volume, self.n1.run(
            'ls /run/localclone-keys').stdout)
