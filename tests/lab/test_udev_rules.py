# SPDX-License-Identifier: Apache-2.0
"""udev leaves alone each device below and above a guest's data."""

import fnmatch
import pathlib
import re

import ddt
import testtools

from cinder_localclone.core import names

GROUP = 'cinder-volumes'
ID = '0a1b2c3d-0000-4000-8000-000000000001'
RULES = pathlib.Path(__file__).parents[2] / (
    'etc/udev/rules.d/11-localclone.rules')
#: What keeps blkid, and programs such as mdadm, away.
FLAGS = ('DM_UDEV_DISABLE_DISK_RULES_FLAG}="1"',
         'DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"')


@ddt.ddt
class DeviceTest(testtools.TestCase):

    def is_left_alone(self, **attributes):
        """Whether a rule for these attributes of a device sets the flags."""
        for line in RULES.read_text().splitlines():
            wanted = dict(re.findall(r'ATTR{dm/(\w+)}=="([^"]*)"', line))
            if wanted and all(flag in line for flag in FLAGS) and all(
                    any(fnmatch.fnmatchcase(attributes[key], each)
                        for each in value.split('|'))
                    for key, value in wanted.items()):
                return True
        return False

    @ddt.data('volume-' + ID, names.snapshot_lv(ID), names.metadata_lv(ID),
              names.to_wipe('h@l', '0123456789ab'))
    def test_lv(self, lv):
        """A guest has written a RAID's superblock to its volume.

        An array made of its LV keeps the LV open: it is never overwritten and
        removed, and its handle can't be made.
        """
        self.assertTrue(self.is_left_alone(
            name=names.mapped_name(GROUP, lv), uuid='LVM-' + 64 * 'x'))

    @ddt.data('root', GROUP + '-pool', 'volume')
    def test_lv_of_another_owner(self, lv):
        self.assertFalse(self.is_left_alone(
            name=names.mapped_name(GROUP, lv), uuid='LVM-' + 64 * 'x'))

    @ddt.data(*(make(ID) for make in (
        names.handle, names.clone, names.source, names.absent_source,
        names.guard, names.export_device)))
    def test_own_device(self, name):
        self.assertTrue(names.is_device(name))
        self.assertTrue(self.is_left_alone(
            name=name, uuid=names.device_uuid(name)))

    @ddt.data((names.crypt, 'CRYPT-LUKS2-%s-%s'),
              (names.integrity, 'CRYPT-INTEGRITY-%s-%s'),
              (names.integrity, 'CRYPT-SUBDEV-%s-%s'))
    @ddt.unpack
    def test_device_of_cryptsetup(self, make, uuid):
        self.assertTrue(self.is_left_alone(
            name=make(ID), uuid=uuid % (32 * '0', make(ID))))
