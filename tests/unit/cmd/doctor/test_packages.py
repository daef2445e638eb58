# SPDX-License-Identifier: Apache-2.0
"""The doctor's check of packages."""

from unittest import mock

import ddt
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd.doctor import encryption
from cinder_localclone.cmd.doctor import packages


@ddt.ddt
class PackagesTest(testtools.TestCase):

    @ddt.data(({'ID': 'debian'}, packages.DEB),
              ({'ID': 'linuxmint', 'ID_LIKE': 'ubuntu debian'}, packages.DEB),
              ({'ID': 'rocky', 'ID_LIKE': 'rhel centos fedora'},
               packages.RPM), ({'ID': 'fedora'}, packages.RPM),
              ({'ID': 'opensuse-leap', 'ID_LIKE': 'suse opensuse'},
               packages.SUSE),
              ({'ID': 'sles'}, packages.SUSE), ({'ID': 'gentoo'}, ''),
              ({}, ''))
    @ddt.unpack
    def test_family(self, fields, how):
        self.assertEqual(how, packages.family(fields))

    def test_host_that_does_not_say_what_it_is(self):
        with mock.patch.object(doctor.platform, 'freedesktop_os_release',
                               side_effect=OSError('no os-release')):
            self.assertEqual('', packages.family(doctor._os_release()))

    def test_commands(self):
        for how, said in (
                (packages.DEB, 'apt install open-iscsi '
                               'thin-provisioning-tools'),
                (packages.RPM, 'dnf install device-mapper-persistent-data '
                               'iscsi-initiator-utils'),
                (packages.SUSE, 'zypper install open-iscsi '
                                'thin-provisioning-tools')):
            found, = checks.commands(lambda name: name not in (
                'thin_check', 'thin_dump', 'iscsiadm') or None, how)
            self.assertEqual(said, found.fix)
        found, = checks.commands(lambda name: None)
        for each in ('apt install', 'dnf install', 'zypper install'):
            self.assertIn(each, found.fix)

    def test_every_command_has_its_package(self):
        self.assertLessEqual(set(checks.COMMANDS), set(packages.PACKAGES))

    def test_others(self):
        self.assertIn('com.redhat', checks.initiator(
            '', packages.RPM)[0].fix)
        self.assertIn('org.debian', checks.initiator('')[0].fix)
        self.assertIn('dnf install cryptsetup', encryption.version(
            '', packages.RPM)[0].fix)
