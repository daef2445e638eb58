# SPDX-License-Identifier: Apache-2.0
"""The driver's interface: snapshots, and volumes made of an image."""

from unittest import mock

from cinder import exception
from cinder.message import message_field
from cinder.volume.flows.manager import create_volume
import ddt
import fixtures
from taskflow.types import failure

from cinder_localclone.core import exceptions
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.driver import driver
from cinder_localclone.service import messages
from tests.helpers import driver_case
from tests.helpers.driver_case import FULL
from tests.helpers.driver_case import snapshot


@ddt.ddt
class ImageDriverTest(driver_case.Case):

    def setUp(self):
        super().setUp()
        self.births, self.snapshots = (
            self.useFixture(fixtures.MockPatch(
                'cinder_localclone.driver.snapshots.' + room)).mock
            for room in ('clone', 'snapshots'))
        self.told = self.useFixture(fixtures.MockPatchObject(
            messages, 'api')).mock.API().create
        self.useFixture(fixtures.MockPatch(
            'cinder_localclone.driver.front_end.volume_types.is_encrypted',
            return_value=False))

    def test_snapshot(self):
        self.snapshots.create.return_value = 'lc1:n2@l'
        self.assertEqual({'provider_location': 'lc1:n2@l'},
                         self.driver.create_snapshot(snapshot()))
        self.snapshots.create.assert_called_once_with(
            self.reconciler, 's', 'v', 300)
        self.driver.delete_snapshot(snapshot())
        self.snapshots.delete.assert_called_once_with(self.node, 's')

    def test_owner_is_told_why_there_is_no_snapshot(self):
        self.snapshots.create.side_effect = FULL
        self.assertRaises(exceptions.PoolFull, self.driver.create_snapshot,
                          snapshot())
        self.told.assert_called_once_with(
            'context', message_field.Action.SNAPSHOT_CREATE,
            resource_type=message_field.Resource.VOLUME_SNAPSHOT,
            resource_uuid='s',
            detail=user_messages.MESSAGES['POOL_FULL'].detail(
                Action.SNAPSHOT))

    def test_backup_is_told_the_cause_of_its_clone(self):
        """Cinder makes a clone of a volume in use, to read from it."""
        try:
            raise exceptions.NotCreated(str(FULL)) from FULL
        except exceptions.NotCreated as error:
            for action, key in ((Action.BACKUP, 'POOL_FULL'),
                                (Action.ATTACH, 'FAILED')):
                self.assertEqual(
                    key, messages.message_about(error, action).key)

    @ddt.data(None, FULL)
    def test_backup_that_cannot_begin(self, error):
        """Cinder's volume manager would tell nobody."""
        backup = mock.Mock(id='b')
        end = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.driver.snapshots.backups.end')).mock
        base = self.useFixture(fixtures.MockPatch(
            'cinder.volume.driver.VolumeDriver.get_backup_device',
            return_value=('device', True), side_effect=error)).mock
        if error:
            self.assertIs(error, self.assertRaises(
                exceptions.PoolFull, self.driver.get_backup_device,
                'context', backup))
            end.assert_called_once_with(backup, error)
            self.told.assert_called_once_with(
                'context', message_field.Action.BACKUP_CREATE,
                resource_type=message_field.Resource.VOLUME_BACKUP,
                resource_uuid='b',
                detail=user_messages.MESSAGES['POOL_FULL'].detail(
                    Action.BACKUP))
        else:
            self.assertEqual(('device', True), self.driver.get_backup_device(
                'context', backup))
            end.assert_not_called()
        base.assert_called_once_with('context', backup)

    def test_connections_of_snapshots(self):
        connector = {'host': 'n1'}
        self.snapshots.with_node.return_value.node = driver_case.HOST
        self.assertEqual(
            self.snapshots.connect.return_value,
            self.driver.initialize_connection_snapshot(
                snapshot(), connector))
        self.snapshots.connect.assert_called_once_with(
            self.node, 's', connector)
        self.driver.terminate_connection_snapshot(
            snapshot(), connector, force=True)
        self.snapshots.disconnect.assert_called_once_with(
            self.node, 's', connector)
        # What they return Cinder would write over the snapshot's node.
        self.assertIsNone(self.driver.create_export_snapshot(
            None, snapshot(), connector))
        self.assertIsNone(self.driver.remove_export_snapshot(
            None, snapshot()))

    def from_snapshot(self):
        self.driver.create_volume_from_snapshot(
            driver_case.volume(source_volid=None), snapshot())

    def clone(self, of='src'):
        self.driver.create_cloned_volume(
            driver_case.volume(source_volid='src'),
            driver_case.volume(id=of))

    def test_clones(self):
        self.from_snapshot()
        self.births.from_snapshot.assert_called_once_with(
            self.node, 'v', 's')
        self.clone()
        self.births.from_volume.assert_called_once_with(
            self.reconciler, 'v', 'src', 300)

    @ddt.data('from_snapshot', 'clone')
    def test_a_clone_that_fails_is_not_tried_elsewhere(self, birth):
        self.births.from_snapshot.side_effect = (
            self.births.from_volume.side_effect) = FULL
        error = self.assertRaises(exceptions.NotCreated,
                                  getattr(self, birth))
        self.assertEqual(str(FULL), str(error))
        task = create_volume.OnFailureRescheduleTask(
            None, None, None, None, True)
        self.assertTrue(failure.Failure.from_exception(error).check(
            *task.no_reschedule_types))
        self.assertEqual(user_messages.MESSAGES['POOL_FULL'].detail(
            Action.CLONE), self.told.call_args.kwargs['detail'])
        self.assertEqual('v', self.told.call_args.kwargs['resource_uuid'])

    def test_an_image_that_is_downloaded_instead_is_no_news(self):
        self.births.from_volume.side_effect = FULL
        error = self.assertRaises(exceptions.NotCreated, self.clone,
                                  'cached')
        self.assertIsInstance(error, exception.CinderException)
        self.told.assert_not_called()

    @ddt.data('from_snapshot', 'clone')
    def test_encrypted_types(self, birth):
        with mock.patch('cinder_localclone.driver.front_end.is_encrypted',
                        return_value=True), mock.patch(
                'cinder_localclone.driver.front_end.db.'
                'volume_encryption_metadata_get',
                return_value={'provider': 'luks2'}):
            self.assertRaises(exceptions.NotCreated, getattr(self, birth))
        self.assertEqual(user_messages.MESSAGES['ENCRYPTED'].detail(
            Action.CLONE), self.told.call_args.kwargs['detail'])
        self.assertEqual([], self.births.mock_calls)

    def test_unexpected_errors_are_not_said_to_be_of_a_connection(self):
        self.births.from_snapshot.side_effect = KeyError('x')
        self.assertRaises(exceptions.NotCreated, self.from_snapshot)
        self.assertEqual(user_messages.MESSAGES['CREATE_FAILED'].detail(
            Action.CLONE), self.told.call_args.kwargs['detail'])

    def test_cached_images_are_used_wherever_they_are(self):
        stats = self.driver.get_volume_stats(refresh=True)
        self.assertIs(True, stats['clone_across_pools'])
        self.node.lvm.pool = None
        stats = self.driver.get_volume_stats(refresh=True)
        self.assertIs(False, stats['clone_across_pools'])


@ddt.ddt
class ImageToVolumeTest(driver_case.Case):

    @ddt.data((None, False, False), (None, True, True),
              ('lc2:luks2:16777216:live:::k', False, True),
              ('lc2:luks2:16777216:live:::k', True, True))
    @ddt.unpack
    def test_zeros_are_written_where_they_are_none_yet(
            self, provider_id, asked, disabled):
        # Cinder's own object is older than the volume's row.
        self.node.volumes.volume.return_value = driver_case.recorded(
            provider_id=provider_id)
        with mock.patch.object(driver.driver.VolumeDriver,
                               '_copy_image_data_to_volume') as copy:
            self.driver.copy_image_to_volume(
                'context', driver_case.volume(), 'service', 'image',
                disable_sparse=asked)
        copy.assert_called_once_with(
            'context', mock.ANY, 'service', 'image', encrypted=False,
            disable_sparse=disabled)
