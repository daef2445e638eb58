# SPDX-License-Identifier: Apache-2.0
"""What Cinder's own code makes of a create that fails."""

from unittest import mock

from cinder import context
from cinder import objects
from cinder.scheduler import driver as scheduler
from cinder.tests.unit import utils
from cinder.volume.flows.manager import create_volume

from cinder_localclone.core import exceptions
from cinder_localclone.core import statuses
from tests.helpers import database

GIB = 1 << 30


class CreatedAgainTest(database.TestCase):

    def test_status_of_an_image_whose_extension_failed(self):
        admin = context.get_admin_context()
        volume = utils.create_volume(
            admin, host='a@l#p', status='creating', size=5)
        driver, manager, api = mock.Mock(), mock.Mock(), mock.Mock()
        driver.create_volume.return_value = None
        driver.extend_volume.side_effect = exceptions.NoSpaceToExtend(
            volume=volume.id, host='a@l', reason='full')
        task = create_volume.CreateVolumeFromSpecTask(
            manager, mock.MagicMock(), driver, mock.MagicMock())
        for name, value in (
                ('image_utils.check_available_space', None),
                ('image_utils.TemporaryImages.fetch', mock.MagicMock()),
                ('image_utils.qemu_img_info', mock.Mock(virtual_size=GIB)),
                ('image_utils.check_virtual_size', 1),
                ('volume_utils.copy_image_to_volume', None),
                ('cinder_context.get_internal_tenant_context', admin)):
            self.patch('cinder.volume.flows.manager.create_volume.' + name,
                       return_value=value)
        self.override_config('verify_glance_signatures', 'disabled')
        self.patch('cinder.volume.flows.manager.create_volume.'
                   'CreateVolumeFromSpecTask._create_from_image_cache',
                   return_value=(None, False))
        failure = mock.MagicMock(exc_info=(None,))
        failure.check.side_effect = lambda *kinds: isinstance(
            raised, kinds)
        raised = self.assertRaises(
            exceptions.NoSpaceToExtend,
            task._create_from_image_cache_or_download, admin, volume, 'l',
            'i', {'id': 'i', 'size': GIB}, mock.Mock(), update_cache=True)
        api.create_volume.__name__ = 'create_volume'
        again = create_volume.OnFailureRescheduleTask(
            admin, None, manager, api, True)
        self.assertTrue(again.revert(
            admin, None, {'x': failure}, volume, request_spec={},
            filter_properties={}))
        self.assertTrue(api.create_volume.called)
        deleted, = manager.driver_delete_volume.call_args.args
        self.assertIsNone(deleted.host)
        scheduler.volume_update_db(admin, volume.id, 'b@l#p', None, 'z',
                                   volume=volume)
        row = objects.Volume.get_by_id(admin, volume.id)
        self.assertEqual('b@l#p', row.host)
        self.assertIn(row.status, statuses.BEING_CREATED)

    def test_too_late_takes_no_home_off_a_row(self):
        """Somebody may have been given the volume since."""
        admin = context.get_admin_context()
        volume = utils.create_volume(
            admin, host='a@l#p', status='available', size=5)
        manager, api = mock.Mock(), mock.Mock()
        api.create_volume.__name__ = 'create_volume'
        raised = exceptions.TooLate(what='x')
        failure = mock.MagicMock(exc_info=(None,))
        failure.check.side_effect = lambda *kinds: isinstance(raised, kinds)
        create_volume.OnFailureRescheduleTask(
            admin, None, manager, api, True).revert(
                admin, None, {'x': failure}, volume, request_spec={},
                filter_properties={})
        self.assertEqual('a@l#p', objects.Volume.get_by_id(
            admin, volume.id).host)
