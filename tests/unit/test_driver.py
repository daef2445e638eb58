# SPDX-License-Identifier: Apache-2.0
"""The driver's interface: complete by Cinder's own rules, and its flow."""

import types
from unittest import mock

from cinder import exception
from cinder.interface import volume_driver
from cinder.volume import configuration
import ddt
from oslo_config import cfg
import testtools

from cinder_localclone import assembly
from cinder_localclone import connections
from cinder_localclone import driver
from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import messages
from cinder_localclone.moves import source
from cinder_localclone import opts
from cinder_localclone import records
from cinder_localclone import state

HOST = 'n1@l'


def volume(**more):
    values = dict(id='v', name='volume-v', name_id='v', size=1,
                  host=HOST + '#p', status='reserved', group_id=None,
                  migration_status=None, replication_driver_data=None,
                  volume_attachment=[], _context='context')
    values.update(more)
    return types.SimpleNamespace(**values)


@ddt.ddt
class DriverTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP), host=HOST)
        self.node = mock.MagicMock(host=HOST)
        self.node.records.move_of.return_value = None
        self.directory = mock.MagicMock()
        self.reconciler = mock.MagicMock(node=self.node)
        self.driver.service = assembly.Service(
            backend_name='p', node=self.node, stack=self.node.stack,
            reconciler=self.reconciler,
            connections=connections.Connections(
                self.reconciler, self.directory), addresses=['192.0.2.1'])

    def test_cinders_interface_is_complete(self):
        self.assertTrue(issubclass(driver.LocalCloneDriver,
                                   volume_driver.VolumeDriverCore))

    def test_a_snapshot_is_not_implemented_but_can_be_deleted(self):
        self.assertRaises(NotImplementedError, self.driver.create_snapshot,
                          volume())
        self.driver.delete_snapshot(volume())
        self.assertEqual([], self.node.mock_calls)

    def test_extend_is_not_implemented(self):
        self.assertRaises(NotImplementedError, self.driver.extend_volume,
                          volume(), 2)

    def test_only_whole_volumes_leave(self):
        self.assertRaises(NotImplementedError, self.driver.unmanage,
                          volume())

    @ddt.data('migrating', 'target:x')
    def test_cinders_own_copy_is_no_way_in(self, status):
        self.assertRaises(NotImplementedError, self.driver.create_volume,
                          volume(migration_status=status))
        self.assertEqual([], self.node.stack.mock_calls)

    def test_migrate_to_a_node_of_this_backend(self):
        self.assertRaises(
            NotImplementedError, self.driver.migrate_volume, None, volume(),
            {'capabilities': {'location_info': 'LocalCloneDriver:n2@l:g'}})

    @ddt.data({}, {'location_info': 'LVMVolumeDriver:n2:g:thin:0'})
    def test_migrate_to_another_backend_is_cinders_copy(self, capabilities):
        self.assertEqual((False, None), self.driver.migrate_volume(
            None, volume(), {'capabilities': capabilities}))

    def test_a_refused_backup_drops_no_attachment(self):
        self.directory.find.side_effect = exceptions.Busy(
            what='v', host=HOST, seconds=1)
        drop = self.node.records.drop_live_attachment
        for status, calls in (('backing-up', 0), ('in-use', 1)):
            self.node.records.volume.return_value = volume(status=status)
            with mock.patch.object(messages, 'api'):
                self.assertRaises(
                    exceptions.Busy, self.driver.initialize_connection,
                    volume(), {'host': 'n1'})
            self.assertEqual(calls, drop.call_count)

    @ddt.data((None, None), (None, 'g'), ('migrating', None))
    @ddt.unpack
    def test_what_keeps_a_volume_where_it_is(self, migration, group):
        found = self.driver.service.connections._request(
            volume(migration_status=migration, group_id=group),
            {'host': 'n2'}, 'n2@l')
        self.assertEqual(bool(migration or group), bool(found.pinned))

    def test_stats(self):
        self.node.stack.pool = 'pool'
        self.node.stack.capacity.return_value = reports.Capacity(
            100 << 30, 60 << 30, 150 << 30, 7)
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual((100, 60, 150, 7), tuple(
            pool[key] for key in ('total_capacity_gb', 'free_capacity_gb',
                                  'provisioned_capacity_gb',
                                  'total_volumes')))
        self.assertEqual((True, False, False, False), tuple(
            pool[key] for key in ('thin_provisioning_support',
                                  'thick_provisioning_support',
                                  'multiattach', 'online_extend_support')))
        self.assertEqual(
            self.driver.configuration.max_over_subscription_ratio,
            pool['max_over_subscription_ratio'])

    def test_connector_without_a_name_is_invalid(self):
        self.assertRaises(exception.InvalidConnectorException,
                          self.driver.validate_connector, {})
        self.driver.validate_connector({'ip': '192.0.2.1'})

    def test_local_path_is_the_handle(self):
        self.assertEqual('/dev/mapper/localclone-v',
                         self.driver.local_path(volume()))

    def test_connection_at_home(self):
        self.node.records.volume.return_value = volume()
        self.directory.find.return_value = HOST
        found = self.driver.initialize_connection(volume(), {'host': 'n1'})
        self.assertEqual('local', found['driver_volume_type'])
        self.assertEqual('/dev/mapper/localclone-v',
                         found['data']['device_path'])

    def test_stale_home_hands_the_call_on(self):
        self.node.records.volume.return_value = volume(host='n2@l#p')
        found = self.driver.initialize_connection(volume(), {'host': 'n1'})
        call = self.node.peers.initialize_connection
        call.assert_called_once_with('context', 'n2@l', 'v', {'host': 'n1'})
        self.assertEqual(call.return_value, found)
        self.driver.terminate_connection(volume(), {'host': 'n1'})
        self.node.peers.terminate_connection.assert_called_once_with(
            'context', 'n2@l', 'v', {'host': 'n1'})

    def test_owner_is_told_the_cause(self):
        self.node.records.volume.return_value = volume()
        self.directory.find.side_effect = (
            exceptions.PeerUnreachable(host='n2', method='m', seconds=1))
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(
                exceptions.PeerUnreachable,
                self.driver.initialize_connection, volume(), {'host': 'n2'})
        told = api.API().create.call_args
        self.assertEqual('v', told.kwargs['resource_uuid'])
        self.assertEqual(messages.DETAILS['PEER_UNREACHABLE'],
                         told.kwargs['detail'])

    def test_forced_detach_ends_all_connections(self):
        self.node.records.volume.return_value = volume()
        self.driver.terminate_connection(volume(), None)
        self.node.exports.withdraw_volume.assert_called_once_with('v', None)

    def test_shadow_is_never_deleted_by_itself(self):
        shadow = volume(migration_status='target:x',
                        replication_driver_data='lc1:migrating:n:1:2:3')
        self.assertTrue(records.is_shadow(shadow))
        self.assertRaises(exceptions.NotPossible, self.driver.delete_volume,
                          shadow)
        self.assertEqual([], self.node.stack.mock_calls)

    def test_abandoned_move_is_settled_before_anything_else(self):
        token = state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8))
        moving = state.Move('v', 's', token, False, HOST, 'n2@l', 'a',
                            'b', 1)
        self.node.records.move_of.return_value = moving
        source.abandon_interrupted(self.node, None, 'v')
        self.node.records.advance.assert_called_once_with(
            moving, state.Event.FAILED)


@ddt.ddt
class OptionsTest(testtools.TestCase):

    def geometry(self, **values):
        conf = cfg.ConfigOpts()
        conf.register_opts(opts.localclone_opts)
        conf([])
        for name, value in values.items():
            conf.set_override('localclone_' + name, value)
        return opts.geometry(conf)

    def test_defaults(self):
        found = self.geometry()
        self.assertEqual(128, found.region_sectors)
        self.assertEqual(512, found.region_sectors * found.batch // 2)

    @ddt.data(5, 48, 100)
    def test_region_size_must_be_a_power_of_two(self, kib):
        self.assertRaises(ValueError, self.geometry, region_size=kib)

    def test_every_option_has_help(self):
        for _group, found in opts.list_opts():
            for option in found:
                self.assertTrue(option.help, option.name)


class MessagesTest(testtools.TestCase):

    def test_every_error_has_its_text(self):
        for kind in vars(exceptions).values():
            if isinstance(kind, type) and issubclass(
                    kind, exceptions.LocalCloneError):
                self.assertIn(kind.user_message, messages.DETAILS)

    def test_ids_are_unique_and_fit(self):
        ids = [detail[0] for detail in messages.DETAILS.values()]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue(all(len(each) <= 10 for each in ids))

    def test_cinder_translates_them(self):
        from cinder.message import message_field
        messages.load(None)
        messages.load(None)
        for number, text in messages.DETAILS.values():
            self.assertEqual(text, message_field.translate_detail(number))
