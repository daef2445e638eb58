# SPDX-License-Identifier: Apache-2.0
"""A volume as one read-only value."""

import copy
import dataclasses

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from tests.world import images

A, V, W = 'a@l', 'v', 'w'


@ddt.ddt
class VolumeTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.attachment = images.attachment(
            id='one', connector={'host': 'a'}, connection_info={
                'auth_password': 'secret'})
        self.row = images.volume(
            V, A, status='in-use', volume_attachment=[self.attachment])

    def test_it_does_not_follow_its_row(self):
        value = Volume.of(self.row)
        before = copy.deepcopy(value)
        self.row.status, self.row.host = 'error', 'b@l#p'
        self.attachment.attach_status = 'error_attaching'
        self.row.volume_attachment.append(images.attachment(id='two'))
        self.assertEqual(before, value)
        self.assertNotEqual(before, Volume.of(self.row))

    def test_it_is_read_only(self):
        value = Volume.of(self.row)
        self.assertRaises(dataclasses.FrozenInstanceError, setattr, value,
                          'host', 'b@l#p')
        self.assertRaises(dataclasses.FrozenInstanceError, setattr,
                          value.volume_attachment[0], 'connector', None)

    def test_a_secret_is_not_shown(self):
        value = Volume.of(self.row)
        self.assertEqual({'auth_password': 'secret'},
                         value.volume_attachment[0].connection_info)
        self.assertNotIn('secret', repr(value))

    @ddt.data('encryption', 'extra_bytes', 'is_authenticated')
    def test_unknown_encryption_is_an_error_where_it_is_asked_for(self, name):
        self.row.provider_id = 'lc9:what'
        value = Volume.of(self.row)
        self.assertRaises(exceptions.NotPossible, getattr, value, name)
        self.assertRaises(exceptions.NotPossible, value.backing_bytes)
        self.assertEqual((A, V, False), (
            value.home, value.handle_id, value.is_migrated_by_cinder))

    @ddt.data((None, None, V), ('migrating', None, V),
              ('target:' + W, W, W))
    @ddt.unpack
    def test_handle_of_a_copy_by_cinder(self, status, visible, handle):
        self.row.migration_status = status
        value = Volume.of(self.row)
        self.assertEqual((visible, handle), (
            value.visible_id, value.handle_id))

    @ddt.data(('a@l#p', 'a@l'), ('a@l', 'a@l'), (None, ''), ('', ''))
    @ddt.unpack
    def test_home(self, host, home):
        self.row.host = host
        self.assertEqual(home, Volume.of(self.row).home)

    @ddt.data((state.Asked.MIGRATION, 'its status is "error".'),
              (state.Asked.DRAIN, 'Cinder is migrating it.'))
    @ddt.unpack
    def test_migration_itself_is_no_reason_to_stay(self, asked_by, reason):
        self.row.migration_status, self.row.status = 'migrating', 'error'
        self.assertEqual(reason, Volume.of(self.row).why_it_stays(asked_by))
