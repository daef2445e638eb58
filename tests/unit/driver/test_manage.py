# SPDX-License-Identifier: Apache-2.0
"""The driver's interface: managing, unmanaging, lists."""

from cinder import exception
from cinder.message import message_field
from cinder import objects
import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core import volume_types
from cinder_localclone.service import messages
from tests.helpers import driver_case

NOT = exceptions.CannotManage(lv='x', host='h', reason='it is open')
ID = '%08d-0000-4000-8000-000000000000' % 1


def entry(name, size=1, **more):
    return {'reference': {'source-name': name}, 'size': size, **more}


@ddt.ddt
class ManageDriverTest(driver_case.Case):

    def setUp(self):
        super().setUp()
        self.volumes, self.snapshots = (
            self.useFixture(fixtures.MockPatch(
                'cinder_localclone.driver.manage.' + room)).mock
            for room in ('manage', 'manage_snapshots'))
        self.told = self.useFixture(fixtures.MockPatchObject(
            messages, 'api')).mock.API().create
        self.node.volumes.volume.return_value = driver_case.recorded()

    def assertTold(self, action, key):
        self.told.assert_called_once_with(
            'context', action.value.cinder,
            resource_type=message_field.Resource.VOLUME,
            resource_uuid='v',
            detail=user_messages.MESSAGES[key].detail(action))
        self.told.reset_mock()

    def test_volumes(self):
        reference = {'source-id': 'u'}
        self.volumes.get_size.return_value = 3
        self.assertEqual(3, self.driver.manage_existing_get_size(
            driver_case.volume(), reference))
        self.assertEqual({'host': driver_case.HOST + '#p'},
                         self.driver.manage_existing(
                             driver_case.volume(), reference))
        for call in (self.volumes.get_size, self.volumes.manage):
            call.assert_called_once_with(self.node, 'v', reference)
        self.driver.unmanage(driver_case.volume())
        self.volumes.unmanage.assert_called_once_with(self.node, 'v')
        self.told.assert_not_called()

    @ddt.data((NOT, 'NOT_MANAGED'), (KeyError('x'), 'MANAGE_FAILED'),
              (exceptions.MissingData(what='x', volume='v', host='h'),
               'MANAGE_FAILED'))
    @ddt.unpack
    def test_who_wanted_to_manage_it_is_told(self, error, key):
        self.volumes.get_size.side_effect = error
        self.volumes.manage.side_effect = error
        for call in (self.driver.manage_existing_get_size,
                     self.driver.manage_existing):
            self.assertRaises(type(error), call, driver_case.volume(), {})
            self.assertTold(Action.MANAGE, key)

    @ddt.data(
        (exceptions.CannotUnmanage(volume='v', reason='r'),
         'NOT_UNMANAGED'),
        (exceptions.CommandFailed(command='c', code=5, stderr=''),
         'UNMANAGE_FAILED'),
        (exceptions.HomeUnreachable(host='h', method='unmanage', seconds=1),
         'HOME_UNREACHABLE'))
    @ddt.unpack
    def test_who_wanted_to_unmanage_it_is_told(self, error, key):
        self.volumes.unmanage.side_effect = error
        self.assertRaises(type(error), self.driver.unmanage,
                          driver_case.volume())
        self.assertTold(Action.UNMANAGE, key)

    def test_what_the_driver_encrypts_stays_managed(self):
        recorded = volume_types.Recorded(16 << 20, 'k')
        self.node.volumes.volume.return_value = driver_case.recorded(
            provider_id=str(recorded))
        self.assertRaises(exceptions.CannotUnmanage, self.driver.unmanage,
                          driver_case.volume())
        self.assertTold(Action.UNMANAGE, 'NOT_UNMANAGED')
        self.volumes.unmanage.assert_not_called()

    def test_nothing_is_managed_that_would_have_to_be_encrypted(self):
        self.node.volumes.wanted_encryption.return_value = (
            volume_types.Encryption())
        for call in (self.driver.manage_existing_get_size,
                     self.driver.manage_existing):
            self.assertRaises(exceptions.CannotManage, call,
                              driver_case.volume(), {'source-name': 'x'})
            self.assertTold(Action.MANAGE, 'NOT_MANAGED')
        self.volumes.manage.assert_not_called()

    def test_what_cinders_manager_makes_of_refusals(self):
        self.assertIsInstance(NOT, exception.ManageExistingInvalidReference)
        self.assertIn('x on h can\'t be managed: it is open', str(NOT))
        self.assertIsInstance(
            exceptions.CannotUnmanage(volume='v', reason='r'),
            exception.VolumeIsBusy)
        self.assertIsInstance(exceptions.SnapshotInUse(snapshot='s'),
                              exception.SnapshotIsBusy)

    def test_snapshots(self):
        snapshot = driver_case.snapshot()
        self.snapshots.get_size.return_value = 3
        self.snapshots.manage.return_value = 'lc1:h'
        # The API takes a mere name, too; Cinder calls by keyword.
        self.assertEqual(3, self.driver.manage_existing_snapshot_get_size(
            snapshot=snapshot, existing_ref='data'))
        self.assertEqual(
            {'provider_location': 'lc1:h'},
            self.driver.manage_existing_snapshot(
                snapshot=snapshot, existing_ref='data'))
        for call in (self.snapshots.get_size, self.snapshots.manage):
            call.assert_called_once_with(self.node, 's',
                                         {'source-name': 'data'})
        self.driver.unmanage_snapshot(snapshot)
        self.snapshots.unmanage.assert_called_once_with(self.node, 's')

    @ddt.data(('volumes', objects.ManageableVolumeList),
              ('snapshots', objects.ManageableSnapshotList))
    @ddt.unpack
    def test_lists(self, kind, objects_of_it):
        listed = getattr(self, kind).listed
        listed.return_value = [entry(name, size) for name, size in (
            ('b', 2), ('a', 3), ('c', 1))]
        get = getattr(self.driver, 'get_manageable_' + kind)

        def page(*args):
            return [each['reference']['source-name'] for each in get(*args)]
        self.assertEqual(['a', 'b', 'c'], page(
            [], None, 10, 0, ['reference'], ['asc']))
        self.assertEqual(['a', 'b'], page(
            [], None, 2, 0, ['size'], ['desc']))
        self.assertEqual(['c'], page(
            [], {'source-name': 'b'}, 2, 0, ['reference'], ['asc']))
        self.assertEqual(['b'], page([], None, 1, 1, ['size'], ['asc']))
        listed.assert_called_with(self.node)
        # What Cinder's manager makes of an entry.
        listed.return_value = [entry(
            'a', cinder_id=ID, safe_to_manage=False, reason_not_safe='r',
            extra_info={'source-id': 'u'},
            source_reference={'source-name': None})]
        found, = objects_of_it.from_primitives(
            None, get([], None, 1, 0, ['size'], ['asc']))
        self.assertEqual(({'source-name': 'a'}, {'source-id': 'u'}), (
            found.reference, found.extra_info))
