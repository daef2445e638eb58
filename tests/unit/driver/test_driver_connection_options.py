# SPDX-License-Identifier: Apache-2.0
"""What Cinder adds to a connection: nothing of the driver's is in its way."""

from unittest import mock

from cinder.volume import manager
import ddt
import fixtures

from tests.helpers import driver_case

QOS = {'consumer': 'front-end', 'specs': {'total_iops_sec': '500'}}


@ddt.ddt
class OptionsTest(driver_case.Case):

    def setUp(self):
        super().setUp()
        types = self.useFixture(fixtures.MockPatch(
            'cinder.volume.manager.volume_types')).mock
        types.get_volume_type_qos_specs.return_value = {'qos_specs': QOS}
        types.get_volume_type_extra_specs.return_value = {}
        self.volume = driver_case.volume(
            volume_type_id='t', admin_metadata={'readonly': 'True'})
        self.node.records.volume.return_value = self.volume
        self.node.exports.offer_volume.return_value = {'target_iqn': 'i'}

    def connected(self):
        found = self.driver.initialize_connection(
            self.volume, {'host': 'n1', 'initiator': 'iqn'})
        return manager.VolumeManager._parse_connection_options(
            mock.Mock(driver=self.driver), None, self.volume, found)

    @ddt.data((driver_case.HOST, 'local'), (None, 'iscsi'))
    @ddt.unpack
    def test_qos_and_readonly(self, node, kind):
        self.directory.find.return_value = node
        found = self.connected()
        self.assertEqual(
            (kind, QOS['specs'], 'ro', True),
            (found['driver_volume_type'], found['data']['qos_specs'],
             found['data']['access_mode'], found['data']['discard']))
        self.volume.admin_metadata = {'attached_mode': 'rw'}
        self.assertEqual('rw', self.connected()['data']['access_mode'])

    def test_change_of_owner_is_none_of_its_business(self):
        self.assertIsNone(self.driver.accept_transfer(
            None, self.volume, 'user', 'project'))
        self.assertEqual([], self.node.mock_calls)
