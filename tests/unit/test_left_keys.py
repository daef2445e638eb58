# SPDX-License-Identifier: Apache-2.0
"""Keys and handles of volumes that have left a node, or come back to it."""

import dataclasses
from unittest import mock

from cinder_localclone import crypt_tops
from cinder_localclone.dm import tables
from cinder_localclone import exceptions
from cinder_localclone.moves import removal
from cinder_localclone.moves import source
from cinder_localclone import names
from tests.unit import test_connections
from tests.unit import test_encrypted_guests
from tests.unit.world import crypt
from tests.unit.world import stack


class KeysTest(test_encrypted_guests.Case):

    def before(self, left):
        """A move that had come, or gone, before."""
        return dataclasses.replace(
            left, shadow_id='00000009-0000-4000-8000-000000000000',
            source_lv='volume-of-before', destination_lv='volume-of-before')

    def test_tear_down(self):
        """An earlier move to here failed; the volume has come since."""
        left = self.a.move(self.volume, test_connections.B)
        self.b.disk.sealed = {self.volume.id: 'x'}
        before = self.before(left)
        with self.b.lock(self.volume.id), self.b.lock(before.shadow_id):
            removal.tear_down(self.b.node, before)
        self.assertIn(self.handle, self.b.devices)
        self.assertEqual({self.volume.id: 'x'}, self.b.disk.sealed)

    def test_tear_down_of_what_is_not_here(self):
        left = self.a.move(self.volume, test_connections.B)
        self.a.disk.sealed = {self.volume.id: 'x'}
        before = self.before(left)
        with self.a.lock(self.volume.id), self.a.lock(before.shadow_id):
            removal.tear_down(self.a.node, before)
        self.assertEqual({}, self.a.disk.sealed)

    def test_remove_source(self):
        """What it has left before is marked yet; it has come back since."""
        self.a.move(self.volume, test_connections.B)
        self.world.settle()
        left = self.b.move(self.volume, test_connections.A)
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.disk.create('volume-of-before', self.volume.id, ['x'] * 4)
        self.a.disk.tags['volume-of-before'] |= {names.OPENED}
        with self.a.lock(self.volume.id):
            removal.remove_source(self.a.node, self.before(left))
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_left_without_mark(self):
        """It is passed through here, say: the key is not of what is left."""
        lv = self.volume.name
        with mock.patch.object(source, 'drop_handle'):
            left = self.a.move(self.volume, test_connections.B)
        self.a.devices.pop(self.handle)
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.assertNotIn(names.OPENED, self.a.disk.tags[lv])
        with self.a.lock(self.volume.id):
            crypt_tops.forget_left(self.a.node, self.volume.id, left.source_lv)
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_passed_is_forgotten_first(self):
        self.volume.group_id, self.b.disk.sealed = 'g', {}
        self.serve(dict(test_connections.ON_B, initiator='iqn.x'))
        self.assertIn(self.volume.id, self.b.disk.passed)
        with self.b.lock(self.volume.id), mock.patch.object(
                crypt.SimCrypt, 'forget_sealed',
                side_effect=exceptions.CommandTimeout(
                    command='x', seconds=1)):
            self.assertRaises(
                exceptions.CommandTimeout, crypt_tops.forget, self.b.node,
                self.b.node.stack.survey(), self.volume.id)
        self.assertEqual({}, self.b.disk.passed)


class LeftTest(test_encrypted_guests.Case):

    def left(self):
        with mock.patch.object(source, 'drop_handle'):
            return self.a.move(self.volume, test_connections.B)

    def drop_without_lv(self, move):
        with mock.patch.object(
                stack.SimStack, 'number_of', return_value=''), (
                mock.patch.object(stack.SimStack, 'lvs', return_value={})), (
                self.a.lock(self.volume.id)):
            source.drop_handle(self.a.node, move)

    def test_nothing_is_left_of_an_error(self):
        """A handle on nothing at all is no handle on what has gone."""
        move = self.left()
        nothing = tables.Device(
            self.handle, 'u', '253:9', 0, False, '0 1 error')
        with mock.patch.object(stack.SimStack, 'devices', return_value={
                self.handle: nothing}):
            self.drop_without_lv(move)
        self.assertIn(self.handle, self.a.devices)

    def test_nothing_is_left(self):
        """Its LV has gone; a handle on anything else is not that of it."""
        move = self.left()
        self.drop_without_lv(move)
        self.assertIn(self.handle, self.a.devices)

    def test_it_has_come_back(self):
        """The move of before is looked at once more."""
        first = self.left()
        self.world.settle()
        self.b.move(self.volume, test_connections.A)
        self.assertIn(self.handle, self.a.devices)
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.disk.create(first.source_lv, self.volume.id, ['x'] * 4)
        self.a.disk.tags[first.source_lv] |= {names.OPENED}
        with self.a.lock(self.volume.id):
            source.drop_handle(self.a.node, first)
        self.assertIn(self.handle, self.a.devices)
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_in_use(self):
        move = self.left()
        self.a.disk.tags[move.source_lv] |= {names.OPENED}
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.opened.add(self.handle)
        with mock.patch.object(source.LOG, 'warning') as said:
            with self.a.lock(self.volume.id):
                source.drop_handle(self.a.node, move)
        self.assertIn('something has it open', said.call_args.args[0])
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_with_an_idle_top(self):
        """What decrypts it goes with it; nobody has that open."""
        move = self.left()
        self.a.devices[self.crypt] = {'below': self.handle}
        with self.a.lock(self.volume.id):
            source.drop_handle(self.a.node, move)
        self.assertNotIn(self.handle, self.a.devices)
