# SPDX-License-Identifier: Apache-2.0
"""Names and portals of iSCSI targets."""

import testtools

from cinder_localclone.core import iscsi


class TargetTest(testtools.TestCase):

    def test_location_is_read_back(self):
        auth = iscsi.new_credentials()
        for address, portal in (('192.0.2.1', '192.0.2.1:3260'),
                                ('2001:db8::1', '[2001:db8::1]:3260')):
            found = iscsi.connection_properties(
                iscsi.location(address, 3260, 'iqn.x:y'), auth)
            self.assertEqual((portal, 'iqn.x:y', 0), (
                found['target_portal'], found['target_iqn'],
                found['target_lun']))
        self.assertNotEqual(auth, iscsi.new_credentials())

    def test_target_takes_no_user_for_a_number(self):
        for _time in range(300):
            auth = iscsi.new_credentials()
            self.assertNotEqual('0', auth.split(' ')[1][0])
