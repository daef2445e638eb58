# SPDX-License-Identifier: Apache-2.0
"""Keys and handles of volumes that have left a node, or come back to it."""

import dataclasses
from unittest import mock

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from tests.helpers import attach_case
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.world import crypt
from tests.world import stack


class KeysTest(encrypted_attach_case.Case):

    def before(self, left):
        """A move that had come, or gone, before."""
        return dataclasses.replace(
            left, move_id='00000009-0000-4000-8000-000000000000',
            source_lv='volume-of-before', destination_lv='volume-of-before')

    def test_tear_down(self):
        """An earlier move to here failed; the volume has come since."""
        left = self.a.move(self.volume, attach_case.B)
        self.b.disk.sealed = {self.volume.id: 'x'}
        before = self.before(left)
        with self.b.lock(self.volume.id), self.b.lock(before.move_id):
            cleanup.tear_down(self.b.node, before)
        self.assertIn(self.handle, self.b.devices)
        self.assertEqual({self.volume.id: 'x'}, self.b.disk.sealed)

    def test_tear_down_of_what_is_not_here(self):
        left = self.a.move(self.volume, attach_case.B)
        self.a.disk.sealed = {self.volume.id: 'x'}
        before = self.before(left)
        with self.a.lock(self.volume.id), self.a.lock(before.move_id):
            cleanup.tear_down(self.a.node, before)
        self.assertEqual({}, self.a.disk.sealed)

    def test_remove_source(self):
        """What it has left before is marked yet; it has come back since."""
        self.a.move(self.volume, attach_case.B)
        self.world.settle()
        left = self.b.move(self.volume, attach_case.A)
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.disk.create('volume-of-before', self.volume.id, ['x'] * 4)
        self.a.disk.tags['volume-of-before'] |= {names.OPENED}
        with self.a.lock(self.volume.id):
            cleanup.remove_source(self.a.node, self.before(left))
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_left_where_it_is_passed_through(self):
        """The key is not of what is left."""
        lv = self.volume.name
        with mock.patch.object(source, 'drop_handle'):
            left = self.a.move(self.volume, attach_case.B)
        self.a.devices.pop(self.handle)
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        for marked in (False, True):
            if marked:
                self.a.disk.tags[lv] |= {names.OPENED}
            with self.a.lock(self.volume.id):
                boot_notes.forget_left(
                    self.a.node, self.volume.id, left.source_lv)
            self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)
            self.assertNotIn(names.OPENED, self.a.disk.tags[lv])

    def test_left_beside_another_that_is_passed_through(self):
        with mock.patch.object(source, 'drop_handle'):
            left = self.a.move(self.volume, attach_case.B)
        self.a.devices.pop(self.handle)
        self.a.disk.remotes = {'another': ('luks', 'key')}
        for lv in (left.source_lv, 'gone'):
            self.a.disk.sealed = {self.volume.id: 'x'}
            with self.a.lock(self.volume.id):
                boot_notes.forget_left(self.a.node, self.volume.id, lv)
            self.assertEqual({}, self.a.disk.sealed)

    def test_detached_beside_another_that_is_open(self):
        """A boot opens the other one still."""
        other = self.world.create_volume(
            attach_case.A, provider_id=crypt.recorded('k2'))
        self.a.disk.tags[other.name] |= {names.OPENED}
        self.connect(attach_case.ON_A)
        self.disconnect(self.a, attach_case.ON_A)
        self.assertNotIn(names.OPENED, self.tags())
        self.assertIn(names.OPENED, self.a.disk.tags[other.name])

    def test_passed_is_forgotten_first(self):
        self.volume.group_id, self.b.disk.sealed = 'g', {}
        self.connect(dict(attach_case.ON_B, initiator='iqn.x'))
        self.assertIn(self.volume.id, self.b.disk.remotes)
        with self.b.lock(self.volume.id), mock.patch.object(
                crypt.SimCrypt, 'forget_sealed',
                side_effect=exceptions.CommandTimeout(
                    command='x', seconds=1)):
            self.assertRaises(
                exceptions.CommandTimeout, boot_notes.forget, self.b.node,
                self.b.node.handles.survey(), self.volume.id)
        self.assertEqual({}, self.b.disk.remotes)


class LeftTest(encrypted_attach_case.Case):

    def left(self):
        with mock.patch.object(source, 'drop_handle'):
            return self.a.move(self.volume, attach_case.B)

    def drop_without_lv(self, move):
        with mock.patch.object(
                stack.SimLvm, 'number_of', return_value=''), (
                mock.patch.object(stack.SimLvm, 'lvs', return_value={})), (
                self.a.lock(self.volume.id)):
            source.drop_handle(self.a.node, move)

    def test_nothing_is_left_of_an_error(self):
        """A handle on nothing at all is no handle on what has gone."""
        move = self.left()
        nothing = dm_tables.Device(
            self.handle, 'u', '253:9', 0, False, '0 1 error')
        with mock.patch.object(stack.SimHandles, 'devices', return_value={
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
        self.b.move(self.volume, attach_case.A)
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
        self.assertIn('a process has it open', said.call_args.args[0])
        self.assertEqual({self.volume.id: 'x'}, self.a.disk.sealed)

    def test_with_an_idle_upper(self):
        """What decrypts it goes with it; nobody has that open."""
        move = self.left()
        self.a.devices[self.crypt] = {'below': self.handle}
        with self.a.lock(self.volume.id):
            source.drop_handle(self.a.node, move)
        self.assertNotIn(self.handle, self.a.devices)


class PlainTest(attach_case.Base):

    def test_no_key_is_looked_for(self):
        """What is wrong with those is no matter of an unencrypted volume."""
        with mock.patch.object(
                crypt.SimCrypt, 'forget_sealed', side_effect=KeyError('x')):
            self.a.move(self.volume, attach_case.B)
            self.world.settle()
        self.assertNotIn(self.volume.name, self.a.lvs)


class BootTest(encrypted_attach_case.Case):
    """A boot opens volumes without their locks, beside the service."""

    def test_it_has_left(self):
        """The boot keeps the key after the service has forgotten it."""
        lv = self.volume.name
        self.a.disk.sealed = {}
        self.a.disk.tags[lv] |= {names.OPENED, *names.tags(
            key=self.key, luks=self.volume.id)}
        with mock.patch.object(source, 'drop_handle'):  # A lost its power
            self.a.move(self.volume, attach_case.B)
        seal = crypt.SimCrypt.seal

        def late(this, *what):
            self.a.reconciler.reconcile(self.volume.id)
            self.assertNotIn(self.handle, self.a.devices)
            seal(this, *what)
        with mock.patch.object(crypt.SimCrypt, 'seal', late):
            outcome, = upkeep.unlock(
                self.a.sim_lvm, self.a.sim_handles, {}, crypt.SimCrypt(self.a),
                crypt.SimKeys(self.a), 9)
        self.assertEqual((upkeep.OPENED, ''),
                         (outcome.state, outcome.problem))
        self.assertIn(self.volume.id, self.a.disk.sealed)
        self.world.settle()
        self.assertNotIn(lv, self.a.lvs)
        self.assertEqual({}, self.a.disk.sealed)

    def test_tear_down_where_it_is_passed_through(self):
        """An earlier move to here failed; a boot has made no handle."""
        self.volume.group_id, self.b.disk.sealed = 'g', {}
        self.connect(dict(attach_case.ON_B, initiator='iqn.x'))
        kept = dict(self.b.disk.sealed)
        self.assertIn(self.volume.id, kept)
        self.b.devices.clear()
        failed = state.Move(
            volume_id=self.volume.id,
            move_id='00000009-0000-4000-8000-000000000000',
            token=state.Token(state.Phase.ROLLING_BACK, '', state.Geometry(
                128, 512, 32)), committed=False, source=attach_case.A,
            destination=attach_case.B, source_lv=self.volume.name,
            destination_lv='volume-of-before', size_gib=1, volume_gib=1,
            extra_bytes=16 << 20, location='1.2.3.4:3260,1 iqn.x 0')
        with self.b.lock(self.volume.id), self.b.lock(failed.move_id):
            cleanup.tear_down(self.b.node, failed)
        self.assertEqual(kept, self.b.disk.sealed)


class BackTest(deferred_case.Case):
    """A guest that leaves a node, and comes back to it."""

    def setUp(self):
        super().setUp()
        self.guest = deferred_case.Guest(
            provider_id=encrypted_attach_case.RECORDED)
        self.guest.world.settle()
        self.guest.revive()
        self.timeout = exceptions.CommandTimeout(command='x', seconds=1)

    def test_old_mark_where_it_is_passed_through(self):
        """The guest is opened by a boot, whatever was left before."""
        guest = self.guest
        old, new = guest.nodes[deferred_case.B], guest.nodes[deferred_case.A]
        lv, old.disk.sealed = guest.volume.name, {}
        guest.attach(deferred_case.A)  # live, from B
        with mock.patch.object(stack.SimLvm, 'unmark',
                               side_effect=self.timeout):
            guest.detach(deferred_case.B)
            old.reconciler.reconcile_node()
        self.assertIn(names.OPENED, old.disk.tags[lv])
        guest.attach(deferred_case.B)  # back, passed through
        self.assertIn(guest.id, old.disk.remotes)
        self.assertIn(guest.id, old.disk.sealed)
        guest.detach(deferred_case.A)
        encrypted_attach_case.boot_of_old_home(self, guest, old, new)
        self.assertIn(guest.id, old.disk.sealed)

    def test_note_that_was_left(self):
        """What has followed to here is not opened once it is closed."""
        guest, here = self.guest, self.guest.nodes[deferred_case.B]
        self.assertIn(names.OPENED, here.disk.tags[guest.volume.name])
        here.disk.remotes = {guest.id: ('luks', 'key')}
        guest.detach(deferred_case.B)
        self.assertNotIn(names.crypt(guest.id), here.devices)
        self.assertEqual({}, here.disk.remotes)
