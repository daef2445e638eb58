# SPDX-License-Identifier: Apache-2.0
"""Encrypted volume types, as Cinder's own schema has them."""

from unittest import mock
import uuid
import warnings

from cinder import context
from cinder.db import api as db
from cinder.message import message_field
from cinder.tests.unit import fake_constants as fake
from cinder.tests.unit import utils
from cinder.volume import configuration
from cinder.volume import volume_types
import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.core.volume import Volume
from cinder_localclone.driver import driver
from tests.helpers import database


@ddt.ddt
class EncryptedTypeTest(database.TestCase):

    def setUp(self):
        super().setUp()
        # Cinder's own deprecations, which its fixture shows.
        warnings.simplefilter('ignore', DeprecationWarning)
        self.admin = context.get_admin_context()
        self.owner = context.RequestContext(fake.USER_ID, fake.PROJECT_ID)
        self.driver = driver.LocalCloneDriver(
            configuration=configuration.Configuration(
                [], config_group=configuration.SHARED_CONF_GROUP),
            host='n1@l')
        self.driver.service = mock.MagicMock()
        self.node = self.driver.service.node
        self.node.volumes.wanted_encryption.return_value = None
        self.api = self.patch('cinder_localclone.service.messages.api').API()

    def type(self, encrypted):
        """:param encrypted: the provider, if it is"""
        kind = volume_types.create(self.admin, uuid.uuid4().hex)
        if encrypted:
            db.volume_type_encryption_create(self.admin, kind.id, {
                'control_location': 'front-end', 'provider': encrypted,
                'cipher': 'aes-xts-plain64', 'key_size': 256})
        return kind.id

    def volume(self, encrypted, **more):
        return utils.create_volume(
            self.owner, volume_type_id=self.type(encrypted), size=1, **more)

    def assert_refused(self, volume):
        error = self.assertRaises(exceptions.EncryptionUnsupported,
                                  self.driver.create_volume, volume)
        self.assertIn(volume.id, str(error))
        self.assertFalse(self.node.lvm.create_lv.called)
        self.api.create.assert_called_once_with(
            self.owner, message_field.Action.CREATE_VOLUME_FROM_BACKEND,
            resource_type=message_field.Resource.VOLUME,
            resource_uuid=volume.id,
            detail=user_messages.MESSAGES['ENCRYPTED'].detail(Action.CREATE))

    @ddt.data({}, {'encryption_key_id': fake.ENCRYPTION_KEY_ID},
              {'source_volid': fake.VOLUME2_ID})
    def test_what_qemu_does_not_do_is_refused(self, more):
        self.assert_refused(self.volume('luks2', **more))

    def test_so_is_a_second_encryption(self):
        self.node.volumes.wanted_encryption.return_value = mock.Mock(
            authenticated=False)
        self.assert_refused(self.volume('luks', **self.KEY))

    def test_so_is_a_node_that_could_not_guard_it(self):
        self.node.handles.can_guard.return_value = False
        self.assertRaises(exceptions.NotReady, self.driver.create_volume,
                          self.volume('luks', **self.KEY))
        self.assertFalse(self.node.lvm.create_lv.called)

    KEY = {'encryption_key_id': fake.ENCRYPTION_KEY_ID}

    def test_luks_is_created_with_its_header(self):
        volume = self.volume('luks', **self.KEY)
        volume.host = self.node.host = 'n1@l'
        volume.status = 'creating'
        self.node.volumes.volume.return_value = Volume.of(volume)
        self.node.lvm.lvs.return_value = {}
        self.driver.create_volume(volume)
        self.node.keys.owners_key.assert_called_once_with(
            self.owner, fake.ENCRYPTION_KEY_ID)
        self.node.crypt.format_luks1.assert_called_once_with(
            volume.id, 'aes-xts-plain64', 256,
            self.node.keys.owners_key.return_value)
        self.assertFalse(self.api.create.called)

    @ddt.data('create_volume_from_snapshot', 'create_cloned_volume')
    def test_what_is_made_of_another(self, how):
        image = mock.Mock(id='image', encryption_key_id='k')
        with mock.patch('cinder_localclone.driver.snapshots.clone') as births:
            getattr(self.driver, how)(
                self.volume('luks', **self.KEY), image)
            self.assertEqual(1, len(births.mock_calls))
            for kind, changed in (('luks2', 'k'), ('luks', None)):
                image.encryption_key_id = changed
                self.assertRaises(
                    exceptions.NotCreated, getattr(self.driver, how),
                    self.volume(kind, **self.KEY), image)
            self.assertEqual(1, len(births.mock_calls))
        self.assertFalse(self.node.crypt.format_luks1.called)

    def test_a_key_is_refused_whatever_the_type_says_now(self):
        self.assert_refused(self.volume(
            False, encryption_key_id=fake.ENCRYPTION_KEY_ID))

    def test_other_types_are_not(self):
        volume = self.volume(False)
        volume.host = self.node.host = 'n1@l'
        volume.status = 'creating'
        self.node.volumes.volume.return_value = Volume.of(volume)
        self.node.lvm.lvs.return_value = {}
        self.driver.create_volume(volume)
        self.assertTrue(self.node.lvm.create_lv.called)
        self.assertFalse(self.api.create.called)

    def test_what_exists_moves_as_before(self):
        record = self.volume(
            'luks', migration_status='target:' + fake.VOLUME_ID,
            replication_driver_data=str(state.Token(
                state.Phase.MIGRATING, 'n', state.Geometry(128, 32, 8))))
        with mock.patch.object(driver, 'destination') as destination:
            self.driver.create_volume(record)
        self.assertTrue(destination.prepare.called)
