# SPDX-License-Identifier: Apache-2.0
"""The driver's interface: complete by Cinder's own rules, and its flow."""

from unittest import mock

from cinder import exception
from cinder.interface import volume_driver
from cinder.message import message_field
from cinder.volume import configuration
from cinder.volume import manager
import ddt
import fixtures
from oslo_config import cfg
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import move_record
from cinder_localclone.core import state
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.driver import driver
from cinder_localclone.driver import stats
from cinder_localclone.moves import source
from cinder_localclone.service import messages
from cinder_localclone.service import options
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import create as create_module
from tests.helpers import driver_case
from tests.helpers.driver_case import Case
from tests.helpers.driver_case import HOST
from tests.helpers.driver_case import recorded
from tests.helpers.driver_case import volume
from tests.helpers import storage_parts


@ddt.ddt
class DriverTest(Case):

    def test_cinders_interface_is_complete(self):
        self.assertTrue(issubclass(driver.LocalCloneDriver,
                                   volume_driver.VolumeDriverCore))

    def extended(self, home):
        return mock.patch.object(driver.extend, 'extend',
                                 return_value=home)

    def test_extended_here(self):
        with self.extended(HOST) as extend:
            self.driver.extend_volume(volume(), 2)
        extend.assert_called_once_with(self.reconciler, 'v', 2)
        self.node.peers.extend.assert_not_called()

    def test_extended_at_its_home(self):
        with self.extended('n2@l'):
            self.driver.extend_volume(volume(), 2)
        self.node.volumes.volume.assert_called_once_with('v')
        self.node.peers.extend.assert_called_once_with(
            'n2@l', 'v', 2)

    @ddt.data((exceptions.NoSpaceToExtend(volume='v', host='h', reason='r'),
               'NO_SPACE_TO_EXTEND'),
              (exceptions.VolumeIsMoving(volume='v', what='x', phase='y'),
               'MOVE_BUSY'), (KeyError('x'), 'NOT_EXTENDED'))
    @ddt.unpack
    def test_owner_is_told_that_it_was_not_extended(self, error, key):
        self.node.peers.extend.side_effect = error
        with self.extended('n2@l'), mock.patch.object(
                messages, 'api') as api:
            self.assertRaises(type(error), self.driver.extend_volume,
                              volume(), 2)
        told = api.API().create.call_args
        self.assertEqual(user_messages.MESSAGES[key].detail(Action.EXTEND),
                         told.kwargs['detail'])
        self.assertEqual(message_field.Action.EXTEND_VOLUME, told.args[1])

    @ddt.data(True, False)
    def test_online_extend(self, wanted):
        self.driver.configuration.localclone_enable_online_extend = wanted
        self.addCleanup(setattr, self.driver.configuration,
                        'localclone_enable_online_extend', False)
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertIs(wanted, pool['online_extend_support'])

    def test_a_refused_backup_drops_no_attachment(self):
        self.directory.find.side_effect = exceptions.Busy(
            what='v', host=HOST, seconds=1)
        drop = self.node.attachments.drop_attachment
        # As it was when Cinder asked: it may be extended by now.
        self.node.volumes.volume.return_value = recorded(
            status='extending', volume_attachment=[
                mock.Mock(id='new', connector=None)])
        for status, calls in (('backing-up', 0), ('in-use', 1)):
            with mock.patch.object(messages, 'api'):
                self.assertRaises(
                    exceptions.Busy, self.driver.initialize_connection,
                    volume(status=status),
                    {'host': 'n1', 'mountpoint': '/dev/vdb'})
            self.assertEqual(calls, drop.call_count)

    @ddt.data((None, None), (None, 'g'), ('migrating', None))
    @ddt.unpack
    def test_what_keeps_a_volume_where_it_is(self, migration, group):
        found = self.driver.service.connections._request(
            recorded(migration_status=migration, group_id=group),
            {'host': 'n2'}, 'n2@l')
        self.assertEqual(bool(migration or group), bool(found.pinned))

    def test_stats(self):
        self.node.lvm.space.return_value = None, lvm_reports.Capacity(
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
        self.assertEqual(
            ['devices', 'lvs', 'space', 'check_groups', 'check_disks'],
            [call[0] for call in storage_parts.calls(self.node)])
        self.assertEqual(self.driver.service.block,
                         pool['localclone_sector_size'])

    def test_connector_without_a_name_is_invalid(self):
        self.assertRaises(exception.InvalidConnectorException,
                          self.driver.validate_connector, {})
        self.driver.validate_connector({'ip': '192.0.2.1'})

    def test_local_path_is_the_handle(self):
        self.assertEqual('/dev/mapper/localclone-v',
                         self.driver.local_path(volume()))

    def test_connection_at_home(self):
        self.node.volumes.volume.return_value = recorded()
        self.directory.find.return_value = HOST
        found = self.driver.initialize_connection(volume(), {'host': 'n1'})
        self.assertEqual('local', found['driver_volume_type'])
        self.assertEqual('/dev/mapper/localclone-v',
                         found['data']['device_path'])

    def test_stale_home_hands_the_call_on(self):
        self.node.volumes.volume.return_value = recorded(host='n2@l#p')
        found = self.driver.initialize_connection(
            self.asked(), {'host': 'n1'})
        call = self.node.peers.initialize_connection
        call.assert_called_once_with(
            'n2@l', 'v', {'host': 'n1'}, {'one': None})
        self.assertEqual(call.return_value, found)
        self.driver.terminate_connection(self.asked(), {'host': 'n1'})
        self.node.peers.terminate_connection.assert_called_once_with(
            'n2@l', 'v', {'host': 'n1'}, {'one': None})

    def live(self):
        self.node.volumes.volume.return_value = recorded(host='n2@l#p')
        self.node.moves.move_of.return_value = state.Move(
            'v', 's', state.Token(state.Phase.STARTING, 'n',
                                  state.Geometry(128, 32, 8)),
            True, 'n3@l', 'n2@l', 'a', 'b', 1)
        self.node.is_at.side_effect = (
            lambda connector, host: host.startswith(connector['host']))

    @ddt.data(('n3', 'n3@l'), ('n2', 'n2@l'))
    @ddt.unpack
    def test_who_is_left_during_a_live_migration_acts(self, left, asked):
        self.live()
        self.driver.terminate_connection(volume(), {'host': left})
        self.node.peers.terminate_connection.assert_called_once_with(
            asked, 'v', {'host': left}, {})

    def test_a_source_that_cannot_be_told_is_no_error(self):
        self.live()
        self.node.peers.terminate_connection.side_effect = (
            exceptions.PeerUnreachable(host='n3@l', method='m', seconds=1))
        self.driver.terminate_connection(volume(), {'host': 'n3'})
        self.assertRaises(
            exceptions.PeerUnreachable, self.driver.terminate_connection,
            volume(), {'host': 'n2'})

    def test_a_volume_that_is_gone(self):
        self.node.volumes.volume.return_value = None
        self.assertRaises(
            exception.VolumeNotFound, self.driver.initialize_connection,
            volume(), {'host': 'n1'})
        for connector in ({'host': 'n1'}, None):
            self.driver.terminate_connection(volume(), connector)
        self.assertEqual([], self.node.exports.mock_calls)
        self.assertEqual([], self.node.peers.mock_calls)

    def test_a_volume_that_follows_its_instance_as_it_is_asked_for(self):
        self.node.volumes.volume.side_effect = [
            recorded(host='n1@l#p'), recorded(host='n2@l#p')]
        self.directory.find.side_effect = exceptions.StaleMove(volume='v')
        found = self.driver.initialize_connection(
            self.asked(), {'host': 'n3'})
        self.assertIs(
            self.node.peers.initialize_connection.return_value, found)
        self.node.peers.initialize_connection.assert_called_once_with(
            'n2@l', 'v', {'host': 'n3'}, {'one': None})

    def test_attachments_are_those_of_the_request(self):
        """Another may have been made since."""
        self.node.volumes.volume.return_value = recorded(
            host='n2@l#p', volume_attachment=[
                mock.Mock(id='two', connector=None)])
        self.driver.initialize_connection(self.asked(), {'host': 'n3'})
        self.driver.terminate_connection(self.asked(), {'host': 'n3'})
        for call in (self.node.peers.initialize_connection,
                     self.node.peers.terminate_connection):
            self.assertEqual({'one': None}, call.call_args.args[-1])

    def test_a_volume_that_stays_is_not_asked_for_again(self):
        self.node.volumes.volume.return_value = recorded(host='n1@l#p')
        self.directory.find.side_effect = exceptions.StaleMove(volume='v')
        with mock.patch.object(messages, 'api'):
            self.assertRaises(
                exceptions.StaleMove, self.driver.initialize_connection,
                volume(), {'host': 'n3'})
        self.directory.find.assert_called_once()

    @ddt.data(KeyError('x'), exception.CinderException('y'))
    def test_what_nobody_expected_reaches_the_owner_too(self, error):
        self.node.volumes.volume.return_value = self.reserved('own')
        self.directory.find.side_effect = error
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(
                type(error), self.driver.initialize_connection, volume(),
                {'host': 'n2', 'mountpoint': '/dev/vdb'})
        self.assertEqual(user_messages.FAILED.detail(Action.ATTACH),
                         api.API().create.call_args.kwargs['detail'])
        self.node.attachments.drop_attachment.assert_called_once_with(
            'v', 'own')

    def test_attachment_that_was_sent_stays(self):
        """Nova knows of it."""
        self.node.volumes.volume.return_value = self.reserved('one')
        self.directory.find.side_effect = KeyError('x')
        with mock.patch.object(messages, 'api'):
            self.assertRaises(KeyError, self.driver.initialize_connection,
                              self.asked(), {'host': 'n2'})
        self.node.attachments.drop_attachment.assert_not_called()

    def test_stats_tell_whether_volumes_can_move_here(self):
        service = self.driver.service

        def told():
            pool, = self.driver.get_volume_stats(refresh=True)['pools']
            return (pool['localclone_destination'],
                    pool['localclone_problems'])
        self.assertEqual((True, ''), told())
        service.problems = ['its kernel has no dm-clone', 'no initiator']
        self.assertEqual(
            (False, 'its kernel has no dm-clone; no initiator'), told())
        service.problems = []
        self.node.handles.devices.side_effect = ValueError('no vgs')
        self.assertEqual((False, 'no vgs'), told())

    def test_an_operators_goodness_comes_first(self):
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual(stats.GOODNESS, pool['goodness_function'])
        self.assertIsNone(pool['filter_function'])
        self.driver.configuration.goodness_function = '7'
        self.addCleanup(setattr, self.driver.configuration,
                        'goodness_function', None)
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual('7', pool['goodness_function'])

    @ddt.data('devices', 'lvs', 'space')
    def test_stats_of_a_node_that_can_serve_nothing(self, lacking):
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual('up', pool['backend_state'])
        sweep = getattr(
            self.node.handles if lacking == 'devices' else self.node.lvm,
            lacking)
        sweep.side_effect = exceptions.CommandFailed(
            command='vgs', code=5, stderr='gone')
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual(('down', 0, 0), (
            pool['backend_state'], pool['total_capacity_gb'],
            pool['free_capacity_gb']))
        sweep.side_effect = None
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertEqual('up', pool['backend_state'])

    def test_a_new_volume_that_the_driver_encrypts(self):
        wanted = volume_types.Encryption()
        self.node.volumes.wanted_encryption.return_value = wanted
        with mock.patch.object(create_module, 'create_encrypted') as create:
            self.driver.create_volume(volume())
        create.assert_called_once_with(self.node, mock.ANY, wanted)
        self.node.lvm.create_lv.assert_not_called()

    @ddt.data((volume_types.InvalidType,
               encryption_exceptions.InvalidEncryptionType, 'ENCRYPTION_TYPE'),
              (volume_types.InvalidPace,
               encryption_exceptions.InvalidPaceType, 'PACE_TYPE'))
    @ddt.unpack
    def test_types_of_which_no_volume_can_be(self, found, error, told):
        self.node.volumes.wanted_encryption.side_effect = found('no')
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(error, self.driver.create_volume, volume())
        self.assertEqual(user_messages.MESSAGES[told].detail(Action.CREATE),
                         api.API().create.call_args.kwargs['detail'])
        self.node.lvm.create_lv.assert_not_called()

    def test_owner_is_told_why_a_plain_volume_is_not_created(self):
        """Cinder says only that its driver has failed."""
        new = volume(status='creating')
        self.node.volumes.volume.return_value = recorded(status='creating')
        self.node.lvm.create_lv.side_effect = exceptions.NoArchive(
            host='h', directory='d', free=0)
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(exceptions.NoArchive,
                              self.driver.create_volume, new)
        self.assertEqual(
            user_messages.STORAGE_FAULT.detail(Action.CREATE),
            api.API().create.call_args.kwargs['detail'])

    @ddt.data(
        (encryption_exceptions.EncryptionChange(volume='v'),
         'ENCRYPTION_CHANGE'),
        (encryption_exceptions.InvalidPaceType(volume='v', reason='r'),
         'PACE_TYPE'),
        (exceptions.Busy(what='w', host='h', seconds=1), 'BUSY'),
        (KeyError('x'), 'NOT_RETYPED'))
    @ddt.unpack
    def test_owner_is_told_why_a_type_cannot_be_changed(self, error, key):
        with mock.patch.object(messages, 'api') as api, mock.patch.object(
                driver.migrate, 'retype', side_effect=error):
            self.assertRaises(
                type(error), self.driver.retype,
                'context', volume(), mock.Mock(extra_specs={}), {}, {})
        self.assertEqual(
            user_messages.MESSAGES[key].detail(Action.RETYPE),
            api.API().create.call_args.kwargs['detail'])

    def test_a_new_volume(self):
        self.node.volumes.volume.return_value = recorded(status='creating')
        self.node.lvm.create_lv.return_value = True
        self.driver.create_volume(volume(status='creating'))
        self.assertEqual(
            [mock.call.create_lv('volume-v', 1 << 30, 'v', extra_bytes=0,
                                 uncommitted=True),
             mock.call.ensure_handle_on_lv('v', 'volume-v', 1 << 30)],
            [call for call in storage_parts.calls(self.node)
             if call != mock.call.lvs()])

    def test_a_record_is_prepared(self):
        record = volume(migration_status='target:x',
                        replication_driver_data='lc1:migrating:n:1:2:3')
        self.node.moves.get_move.return_value = None
        self.assertRaises(exceptions.StaleMove, self.driver.create_volume,
                          record)
        with mock.patch.object(driver, 'destination') as destination:
            move = self.node.moves.get_move.return_value = mock.Mock()
            self.driver.create_volume(record)
        destination.prepare.assert_called_once_with(
            self.node, 'v', move.token.nonce)

    def test_delete(self):
        self.node.volumes.volume.return_value = recorded()
        with mock.patch.object(driver, 'delete') as deletion:
            self.driver.delete_volume(volume())
        deletion.delete.assert_called_once_with(
            self.node, 'v')

    def test_the_owner_is_told_why_it_is_not_deleted(self):
        self.node.volumes.volume.return_value = recorded()
        for error, key in (
                (exceptions.CannotDelete(volume='v', reason='r'),
                 'NOT_DELETED'),
                (exceptions.HalfDeleted(volume='v', reason='r'),
                 'HALF_DELETED'),
                # What they say themselves is true of other work.
                (exceptions.CommandTimeout(command='c', seconds=1),
                 'DELETE_FAILED'),
                (exceptions.CommandFailed(command='c', code=1, stderr=''),
                 'DELETE_FAILED')):
            with mock.patch.object(driver, 'delete') as deletion, \
                    mock.patch.object(messages.api, 'API') as api:
                deletion.delete.side_effect = error
                self.assertRaises(type(error), self.driver.delete_volume,
                                  volume())
            api.return_value.create.assert_called_once_with(
                'context', Action.DELETE.value.cinder,
                resource_type='VOLUME', resource_uuid='v',
                detail=user_messages.MESSAGES[key].detail(Action.DELETE))

    def test_delete_when_it_could_not_be_created(self):
        """Cinder has taken the host off the row, and asked another one."""
        failed = volume(host=None, status='creating')
        with mock.patch.object(driver, 'delete') as deletion, \
                mock.patch.object(driver, 'create') as creation:
            self.driver.delete_volume(failed)
        deletion.delete.assert_not_called()
        creation.give_up.assert_called_once_with(
            self.node, Volume.of(failed))

    def test_exports_belong_to_connections(self):
        self.driver.create_export(None, volume(), {})
        self.driver.ensure_export(None, volume())
        self.driver.remove_export(None, volume())
        self.assertEqual([], self.node.mock_calls)

    def test_options_are_known_to_cinder(self):
        names = {each.name for each in self.driver.get_driver_options()}
        self.assertIn('localclone_region_size_kib', names)
        self.assertIn('volume_group', names)

    def test_owner_is_told_the_cause(self):
        self.node.volumes.volume.return_value = recorded()
        self.directory.find.side_effect = (
            exceptions.PeerUnreachable(host='n2', method='m', seconds=1))
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(
                exceptions.PeerUnreachable,
                self.driver.initialize_connection, volume(), {'host': 'n2'})
        told = api.API().create.call_args
        self.assertEqual('v', told.kwargs['resource_uuid'])
        self.assertEqual(user_messages.PEER_UNREACHABLE.detail(Action.ATTACH),
                         told.kwargs['detail'])

    def test_forced_detach_ends_all_connections(self):
        self.node.volumes.volume.return_value = recorded()
        self.driver.terminate_connection(volume(), None)
        self.node.exports.withdraw_volume.assert_called_once_with('v', None)

    def test_record_is_never_deleted_by_itself(self):
        record = volume(migration_status='target:x',
                        replication_driver_data='lc1:migrating:n:1:2:3')
        self.assertTrue(move_record.is_move_record(record))
        self.assertRaises(exceptions.NotPossible, self.driver.delete_volume,
                          record)
        self.assertEqual([], storage_parts.calls(self.node))

    def test_abandoned_move_is_settled_before_anything_else(self):
        token = state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8))
        moving = state.Move('v', 's', token, False, HOST, 'n2@l', 'a',
                            'b', 1)
        self.node.moves.move_of.return_value = moving
        self.node.moves.advance.return_value = moving
        source.abandon_interrupted(self.node, 'v')
        self.node.moves.advance.assert_called_once_with(
            moving, state.Event.FAILED)
        self.node.peers.reconcile.assert_called_once_with('n2@l', 'v')


class StartTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP), host=HOST)
        self.open_group = self.patch('service.assembly.brick_lvm.LVM')
        self.open_group.return_value.vg_thin_pool = 'pool'
        self.targets = self.patch('service.assembly.dmsetup.targets')
        self.targets.return_value = 'clone v1.0.0'
        self.patch('storage.iscsi_initiator.Sessions.'
                   'initiator').return_value = 'iqn.x'
        self.patch('storage.logical_volumes.Lvm.release_map')
        self.patch(
            'storage.cryptsetup.Cryptsetup.note_directories').return_value = []
        self.patch('storage.logical_volumes.Lvm.own_block').return_value = 512
        self.lvs = self.patch('storage.logical_volumes.Lvm.lvs')
        self.lvs.return_value = {
            'pool': lvm_reports.LogicalVolume(
                'g', 'pool', 1 << 30, '', frozenset(), zeroes=True)}
        self.reconcile = self.patch(
            'volumes.reconcile.Reconciler.reconcile_node')
        self.correct = self.patch('db.volumes.Volumes.correct_services')
        self.end = self.patch(
            'db.interrupted.Interrupted.end_interrupted')
        self.server = self.patch('service.rpc.rpc.get_server')
        self.loops = self.patch(
            'service.assembly.loopingcall.DynamicLoopingCall')

    def patch(self, name):
        return self.useFixture(fixtures.MockPatch(
            'cinder_localclone.' + name)).mock

    def test_what_runs_is_not_started_twice(self):
        for _time in range(4):
            self.driver.check_for_setup_error()
        self.assertEqual(1, self.open_group.call_count)
        self.assertEqual(1, self.server.call_count)
        self.server.return_value.start.assert_called_once_with()
        self.assertEqual(5, self.loops.call_count)
        # Later it would be what Cinder's manager is at work on.
        self.end.assert_called_once_with(HOST)
        # Peers may be asked only once it serves them itself.
        self.assertEqual([mock.call(moves=False)] * 4,
                         self.reconcile.mock_calls)

    def test_services_are_corrected_before_migrations_end(self):
        """By its service, another node might still copy a volume."""
        began = mock.Mock()
        began.attach_mock(self.correct, 'correct')
        began.attach_mock(self.end, 'end')
        self.driver.check_for_setup_error()
        self.assertEqual([mock.call.correct(HOST, self.lvs.return_value),
                          mock.call.end(HOST)], began.mock_calls)

    def test_without_a_volume_group_nothing_starts(self):
        group = self.open_group.return_value
        self.open_group.side_effect = [
            exception.VolumeGroupNotFound(vg_name='g'), group]
        self.assertRaises(exception.VolumeBackendAPIException,
                          self.driver.check_for_setup_error)
        self.server.assert_not_called()
        self.driver.check_for_setup_error()  # it was created
        self.assertEqual(1, self.server.call_count)

    def test_a_volume_service_that_fails_to_start_tries_again(self):
        self.reconcile.side_effect = [exceptions.CommandFailed(
            command='dmsetup', code=1, stderr='x'), None]
        self.assertRaises(exceptions.CommandFailed,
                          self.driver.check_for_setup_error)
        self.server.assert_not_called()
        self.driver.check_for_setup_error()
        self.assertEqual((1, 1), (self.server.call_count,
                                  self.open_group.call_count))

    def test_a_problem_is_not_fatal(self):
        self.targets.return_value = 'linear v1.4.0'
        self.driver.check_for_setup_error()
        self.assertEqual(1, len(self.driver.service.problems))
        self.assertEqual(1, self.server.call_count)
        self.targets.return_value = 'clone v1.0.0'
        self.driver.check_for_setup_error()
        self.assertEqual([], self.driver.service.problems)


@ddt.ddt
class OptionsTest(testtools.TestCase):

    def geometry(self, **values):
        conf = cfg.ConfigOpts()
        conf.register_opts(options.localclone_opts)
        conf([])
        for name, value in values.items():
            conf.set_override('localclone_' + name, value)
        return options.geometry(conf)

    def test_defaults(self):
        found = self.geometry()
        self.assertEqual(128, found.region_sectors)
        self.assertEqual(2048, found.region_sectors * found.batch // 2)
        self.assertEqual(32 << 10,
                         found.region_sectors * found.threshold // 2)

    @ddt.data(5, 48, 100)
    def test_region_size_must_be_a_power_of_two(self, kib):
        self.assertRaises(ValueError, self.geometry, region_size_kib=kib)

    def test_every_option_has_help(self):
        for _group, found in options.list_opts():
            for option in found:
                self.assertTrue(option.help, option.name)


class MessagesTest(testtools.TestCase):

    def test_cinder_translates_them(self):
        messages.load(None)
        messages.load(None)
        for number, text in user_messages.details():
            self.assertEqual(text, message_field.translate_detail(number))
        for action in Action:
            number, text = action.value.cinder
            self.assertEqual(text, message_field.translate_action(number))
        for table in (message_field.Detail.ALL, message_field.Action.ALL):
            self.assertEqual(len(table), len({each for each, _ in table}))


@ddt.ddt
class LateTest(Case):
    """Attached anew while a request to detach waited for the lock."""

    ON = {'host': 'n1', 'initiator': 'iqn.n1'}

    def attached(self, *ids):
        return recorded(volume_attachment=[
            mock.Mock(id=each, connector=self.ON) for each in ids])

    @ddt.data(True, False)
    def test_request_is_late_if_another_attachment_is_there(self, late):
        """Attached anew, while the volume's lock was waited for."""
        def enter(*_args):
            self.node.volumes.volume.return_value = self.attached(
                'two' if late else 'one')
        self.node.volumes.volume.return_value = self.attached('one')
        self.node.lock.return_value.__enter__.side_effect = enter
        with mock.patch.object(connect.cleanup,
                               'end_exports') as stopped:
            self.driver.terminate_connection(self.attached('one'), self.ON)
        self.assertEqual(
            [] if late else [mock.call(self.node, 'v', 'iqn.n1')],
            stopped.mock_calls)

    @ddt.data(HOST, 'n2@l')
    def test_home_is_told_what_there_was_when_cinder_asked(self, asked):
        """Also this node, if the volume has followed its instance here."""
        self.node.volumes.volume.side_effect = [
            self.reserved('one', asked)] + [self.reserved('two')] * 3
        self.node.peers.initialize_connection.side_effect = (
            exceptions.StaleMove(volume='v'))
        with mock.patch.object(
                connect.volume_attachments, 'check_in_time',
                side_effect=KeyError()) as checked, mock.patch.object(
                    messages, 'api'):
            self.assertRaises(KeyError, self.driver.initialize_connection,
                              self.asked(), {'host': 'n3'})
        self.assertEqual(('n3', {'host': 'n3'}, {'one': None}),
                         checked.call_args.args[1:])

    def test_attachment_of_another_live_migration_stays(self):
        """It has come while the request that failed was served."""
        def find(*_args):
            self.node.volumes.volume.return_value = self.reserved('two')
            raise KeyError('x')
        self.node.volumes.volume.return_value = self.reserved('one')
        self.directory.find.side_effect = find
        with mock.patch.object(messages, 'api'):
            self.assertRaises(
                KeyError, self.driver.initialize_connection, volume(),
                {'host': 'n2', 'mountpoint': '/dev/vdb'})
        self.node.attachments.drop_attachment.assert_called_once_with(
            'v', 'one')


QOS = {'consumer': 'front-end', 'specs': {'total_iops_sec': '500'}}


@ddt.ddt
class ConnectionOptionsTest(driver_case.Case):

    def setUp(self):
        super().setUp()
        types = self.useFixture(fixtures.MockPatch(
            'cinder.volume.manager.volume_types')).mock
        types.get_volume_type_qos_specs.return_value = {'qos_specs': QOS}
        types.get_volume_type_extra_specs.return_value = {}
        self.volume = driver_case.volume(
            volume_type_id='t', admin_metadata={'readonly': 'True'})
        self.node.volumes.volume.return_value = Volume.of(self.volume)
        self.node.exports.export_volume.return_value = {'target_iqn': 'i'}

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
