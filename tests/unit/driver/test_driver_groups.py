# SPDX-License-Identifier: Apache-2.0
"""Groups, by Cinder's own code over the driver's methods."""

import contextlib
import types
from unittest import mock

from cinder import exception
from cinder.volume import manager
import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core.volume import Volume
from cinder_localclone.driver import driver
from cinder_localclone.service import messages
from tests.helpers import driver_case

GROUP = types.SimpleNamespace(id='g', status='deleting')


@ddt.ddt
class GroupDriverTest(driver_case.Case):

    def setUp(self):
        super().setUp()
        self.births, self.snapshots = (
            self.useFixture(fixtures.MockPatch(
                'cinder_localclone.driver.snapshots.' + room)).mock
            for room in ('clone', 'snapshots'))
        self.deletion = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.driver.driver.delete')).mock
        self.useFixture(fixtures.MockPatchObject(messages, 'api'))
        self.useFixture(fixtures.MockPatch(
            'cinder_localclone.driver.front_end.volume_types.is_encrypted',
            return_value=False))
        self.snapshots.create.return_value = 'lc1:' + driver_case.HOST
        # What runs Cinder's code, with the driver beneath.
        self.cinder = mock.Mock(
            driver=self.driver, driver_delete_volume=self.driver.delete_volume,
            driver_delete_snapshot=self.driver.delete_snapshot)

    def calls(self):
        yield lambda: self.driver.create_group('c', GROUP)
        yield lambda: self.driver.create_group_snapshot('c', GROUP, [])
        yield lambda: self.driver.create_group_from_src('c', GROUP, [])

    @ddt.data((False, NotImplementedError), (True, driver.NotConsistent))
    @ddt.unpack
    def test_what_is_left_to_cinder(self, consistent, error):
        kind = self.useFixture(fixtures.MockPatch(
            'cinder.volume.volume_utils.is_group_a_cg_snapshot_type',
            return_value=consistent)).mock
        for call in self.calls():
            self.assertRaises(error, call)
            kind.assert_called_once_with(GROUP)
            kind.reset_mock()
        # Neither has the driver better ways for the rest.
        for name in ('update_group', 'delete_group_snapshot'):
            self.assertRaises(NotImplementedError,
                              getattr(self.driver, name), 'c', GROUP, [])

    def test_refusal_is_one_that_cinder_expects(self):
        self.assertTrue(issubclass(driver.NotConsistent,
                                   exception.CinderException))
        self.assertIn('The type of group g has', str(
            driver.NotConsistent(group='g')))

    def create_snapshot(self):
        return manager.VolumeManager._create_group_snapshot_generic(
            self.cinder, 'c', GROUP,
            [driver_case.snapshot(), driver_case.snapshot()])

    def test_group_snapshot(self):
        taken = {'id': 's', 'status': 'available',
                 'provider_location': 'lc1:' + driver_case.HOST}
        self.assertEqual(({'status': 'available'}, [taken, taken]),
                         self.create_snapshot())
        self.snapshots.create.side_effect = [
            'lc1:' + driver_case.HOST, driver_case.FULL]
        self.assertEqual(({'status': 'error'}, [taken, {
            'id': 's', 'status': 'error'}]), self.create_snapshot())

    def test_group_snapshot_is_deleted(self):
        self.assertEqual(
            ({'status': 'deleting'}, [{'id': 's', 'status': 'deleted'}]),
            manager.VolumeManager._delete_group_snapshot_generic(
                self.cinder, 'c', GROUP, [driver_case.snapshot()]))
        self.assertEqual(1, self.snapshots.delete.call_count)

    def test_group_of_a_snapshot_or_another_group(self):
        for how, source, birth in (
                ('snapshots', driver_case.snapshot(),
                 self.births.from_snapshot),
                ('source_vols', driver_case.volume(id='w'),
                 self.births.from_volume)):
            volume = driver_case.volume(
                snapshot_id='s', source_volid='w', use_quota=True)

            def create():
                return manager.VolumeManager._create_group_from_src_generic(
                    self.cinder, 'c', GROUP, [volume], **{how: [source]})
            self.assertEqual(
                ({'status': 'available'},
                 [{'id': 'v', 'status': 'available'}]), create())
            birth.side_effect = driver_case.FULL
            self.assertEqual(({'status': 'error'}, [
                {'id': 'v', 'status': 'error'}]), create())

    def delete(self, *errors):
        """By Cinder's own manager, volumes a, b, ...

        :param errors: what the delete of each raises, or None
        :returns: the statuses of the rows in the end; the group's is at ''
        """
        volumes = [driver_case.volume(
            id=volume_id, attach_status='detached', destroy=mock.Mock())
            for volume_id, _error in zip('abc', errors)]
        self.deletion.delete.side_effect = errors
        self.node.volumes.volume.side_effect = {
            each.id: Volume.of(each) for each in volumes}.get
        group = mock.MagicMock(id='g', status='deleting', host='a@l')
        found = {}

        def keep(_context, updates):
            found.update((each['id'], each['status']) for each in updates)
        self.driver.set_initialized()
        cinder = mock.MagicMock(driver=self.driver)
        cinder.db.volumes_update.side_effect = keep
        with mock.patch.object(manager.objects.VolumeList,
                               'get_all_by_generic_group',
                               return_value=volumes), mock.patch.multiple(
                manager, QUOTAS=mock.DEFAULT, GROUP_QUOTAS=mock.DEFAULT):
            with contextlib.suppress(exception.VolumeDriverException):
                manager.VolumeManager.delete_group(
                    cinder, mock.MagicMock(), group)
        for volume in volumes:
            if volume.destroy.called:
                del found[volume.id]
        if not group.destroy.called:
            found[''] = group.status
        return found

    def test_group_is_deleted(self):
        self.assertEqual({}, self.delete(None, None))
        self.assertEqual({}, self.delete())
        self.assertEqual(
            [mock.call(self.node, volume_id) for volume_id in 'ab'],
            self.deletion.delete.call_args_list)

    def test_group_with_a_volume_that_cannot_be_deleted_now(self):
        """Its row stays, and the group's: its data is still there."""
        busy = exceptions.CannotDelete(volume='b', reason='r')
        self.assertEqual({
            'a': 'error_deleting', 'b': 'available', 'c': 'error_deleting',
            '': 'error'}, self.delete(None, busy, None))
        self.assertEqual({'a': 'available', '': 'error'}, self.delete(busy))

    def test_group_with_a_volume_that_cannot_be_deleted(self):
        self.assertEqual({'a': 'error_deleting', 'b': 'error_deleting',
                          '': 'error'},
                         self.delete(None, driver_case.FULL))

    def test_what_the_scheduler_is_told(self):
        self.node.lvm.pool = 'pool'
        pool, = self.driver.get_volume_stats(refresh=True)['pools']
        self.assertIs(False, pool['consistent_group_snapshot_enabled'])
