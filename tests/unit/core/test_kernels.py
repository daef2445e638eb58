# SPDX-License-Identifier: Apache-2.0
"""The table of stock kernels."""

import ddt
import testtools

from cinder_localclone.core import kernels


def of(name, version, **more):
    return {'ID': name, 'VERSION_ID': version, **more}


@ddt.ddt
class KernelsTest(testtools.TestCase):

    @ddt.data(
        (of('debian', '12'), '6.1.0-57-amd64', 'Debian 12'),
        (of('debian', '12'), '6.1.0-57-cloud-amd64', 'Debian 12'),
        (of('debian', '12'), '6.1.0-57-rt-amd64', 'Debian 12'),
        (of('debian', '12'), '6.12.95+deb12-amd64', 'Debian 12, Linux 6.12'),
        (of('debian', '13'), '6.12.118+deb13-amd64', 'Debian 13'),
        (of('debian', '13'), '6.12.118+deb13-cloud-amd64', 'Debian 13'),
        (of('debian', '13'), '7.3.4+deb13-amd64',
         'Debian 13, trixie-backports'),
        ({'ID': 'debian', 'VERSION_CODENAME': 'forky'}, '7.2.12+deb14-amd64',
         'Debian forky'),
        (of('ubuntu', '22.04'), '5.15.0-143-generic', 'Ubuntu 22.04'),
        (of('ubuntu', '24.04'), '6.8.0-60-generic', 'Ubuntu 24.04'),
        (of('ubuntu', '26.04'), '7.0.0-31-generic', 'Ubuntu 26.04'),
        (of('rocky', '9.6'), '5.14.0-570.44.1.el9_6.x86_64',
         'Rocky Linux 9'),
        (of('rocky', '9.2'), '5.14.0-284.30.1.el9_2.92ciq_lts.3.1.x86_64',
         'Rocky Linux 9'),
        (of('almalinux', '9.6'), '5.14.0-570.44.1.el9_6.x86_64+rt',
         'RHEL 9, AlmaLinux 9, CentOS Stream 9'),
        (of('almalinux', '9.6'), '5.14.0-570.44.1.el9_6.x86_64',
         'RHEL 9, AlmaLinux 9, CentOS Stream 9'),
        (of('centos', '10'), '6.12.0-211.53.1.el10_2.x86_64',
         'RHEL 10, Rocky Linux 10, AlmaLinux 10, CentOS Stream 10'),
        (of('rocky', '10.1'), '6.12.0-211.53.1.el10_2.x86_64',
         'RHEL 10, Rocky Linux 10, AlmaLinux 10, CentOS Stream 10'),
        ({'ID': 'opensuse-tumbleweed', 'VERSION_ID': '20261101'},
         '6.19.11-1-default', 'openSUSE Tumbleweed'),
        (of('sles', '15.7'), '6.4.0-150700.53-default',
         'SLES 15 and 16, openSUSE Leap'),
        (of('debian', '12'), '6.8.12-43-pve', 'Proxmox VE 8'),
        (of('debian', '13'), '7.0.14-14-pve', 'Proxmox VE 9'))
    @ddt.unpack
    def test_find(self, os_release, release, name):
        self.assertEqual(name, kernels.find(os_release, release).name)

    def test_container(self):
        """The image's distribution is not the host's."""
        self.assertEqual('Debian 13', kernels.find(
            of('rocky', '10'), '6.12.118+deb13-amd64').name)

    @ddt.data((of('debian', '12'), '6.18.44'), (of('ubuntu', '24.04'), ''),
              ({}, '6.18.44-custom'),
              (of('ubuntu', '22.04'), '6.1.0-1036-oem'),
              (of('rocky', '9.6'), '6.1.158-1.el9.elrepo.x86_64'),
              (of('rocky', '9.6'), '6.17.8-1.el9.elrepo.x86_64'),
              (of('ol', '9.6'), '5.15.0-310.184.5.2.el9uek.x86_64'),
              (of('ol', '10.0'), '6.12.0-103.40.4.3.el10uek.x86_64'))
    @ddt.unpack
    def test_other_kernel(self, os_release, release):
        self.assertIsNone(kernels.find(os_release, release))
        cause, command = kernels.remedy(os_release, release)
        self.assertEqual('the kernel lacks this target', cause)
        self.assertIn('CONFIG_DM_CLONE', command)

    def test_version_is_compared_as_a_whole(self):
        row = kernels.find(of('ubuntu', '22.04'), '5.15.0-143-generic')
        self.assertTrue(row.is_of(of('ubuntu', '22.04')))
        self.assertTrue(row.is_of(of('ubuntu', '22.04.5')))
        self.assertFalse(row.is_of(of('ubuntu', '22.041')))
        self.assertFalse(row.is_of(of('debian', '22.04')))

    def test_release_without_a_version(self):
        row = kernels.find({}, '7.2.12+deb14-amd64')
        self.assertTrue(row.is_of({'ID': 'debian',
                                   'VERSION_CODENAME': 'forky'}))
        self.assertFalse(row.is_of({'ID': 'debian'}))

    @ddt.data(
        (of('debian', '12'), '6.1.0-57-amd64',
         'the kernel of Debian 12 is built without this target',
         'apt install ./cinder-localclone-dkms_*_all.deb'),
        (of('rocky', '9'), '5.14.0-570.el9.x86_64',
         'the kernel of Rocky Linux 9 is built without this target',
         'dnf install ./cinder-localclone-dkms-*.noarch.rpm'),
        (of('centos', '10'), '6.12.0-211.el10.x86_64',
         'the kernel lacks this target',
         'dnf install ./cinder-localclone-dkms-*.noarch.rpm'),
        (of('ubuntu', '24.04'), '6.8.0-60-kvm',
         'the kernel of Ubuntu 24.04 has this target as a module; it can\'t '
         'be loaded', 'apt install linux-image-generic'),
        (of('debian', '13'), '7.0.14-14-pve',
         'the kernel of Proxmox VE 9 has this target as a module; it can\'t '
         'be loaded', 'modprobe dm-clone'))
    @ddt.unpack
    def test_remedy(self, os_release, release, cause, command):
        self.assertEqual((cause, command),
                         kernels.remedy(os_release, release))

    def test_every_known_fact_has_its_source(self):
        for each in kernels.KERNELS:
            known = {each.clone, each.ebs, each.integrity,
                     each.lio} != {kernels.UNKNOWN}
            self.assertEqual(
                [known] * 3, [bool(each.kernel), bool(each.source),
                              bool(each.date)], each.name)
            self.assertTrue(known or each.remark, each.name)
            self.assertTrue(each.command, each.name)

    def test_the_package_is_for_kernels_without_the_driver(self):
        for each in kernels.KERNELS:
            self.assertEqual(kernels.DKMS in each.command, each.clone is (
                kernels.NO) or 'EL' in each.name, each.name)
            self.assertEqual(bool(each.package),
                             each.clone is kernels.YES
                             or 'SLES' in each.name, each.name)
