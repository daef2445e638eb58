# SPDX-License-Identifier: Apache-2.0
"""Sealed keys, and notes of what is passed through, that have stayed."""

import logging
import types
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import remote_attachment
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.world import crypt
from tests.world import records
from tests.world import stack

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C
OTHER = '00000009-0000-4000-8000-000000000000'


class NoteTest(deferred_case.Case):
    """A volume has followed to A; what was noted there has stayed."""

    def setUp(self):
        super().setUp()
        guest = self.guest = deferred_case.Guest(
            provider_id=encrypted_attach_case.RECORDED)
        guest.attach(A)
        guest.detach(B)
        self.here = guest.nodes[A]
        self.assertIn(guest.id, self.here.disk.remotes)
        real = crypt.SimCrypt.forget_remote

        def fail(this, volume_id):
            if this.node is self.here:
                raise exceptions.CommandTimeout(command='vgchange', seconds=1)
            real(this, volume_id)
        with mock.patch.object(crypt.SimCrypt, 'forget_remote', fail):
            guest.live_on()
            guest.world.settle()
        guest.revive()
        self.assertIs(self.here, guest.world.home(guest.volume))
        self.assertIn(guest.id, self.here.disk.remotes)

    def delete(self, node):
        self.guest.volume.status = 'deleting'
        self.guest.world.going.add(self.guest.id)
        callers.delete(node.node, self.guest.volume)
        del self.guest.world.volumes[self.guest.id]
        self.guest.world.settle()
        self.assertEqual({}, node.lvs)

    def assertNothingKept(self):
        self.assertEqual([{}, {}], [self.here.disk.remotes,
                                    self.here.disk.sealed])

    def test_a_later_look(self):
        self.guest.live_on()
        self.assertEqual({}, self.here.disk.remotes)
        self.assertIn(self.guest.id, self.here.disk.sealed)

    def test_the_lv_does_not_say_so_yet(self):
        """Without either, a boot would leave the guest locked."""
        lv = self.guest.volume.name
        self.here.disk.tags[lv] -= {names.OPENED}
        with mock.patch.object(
                stack.SimLvm, 'mark', side_effect=exceptions.CommandTimeout(
                    command='lvchange', seconds=1)):
            self.assertFalse(remote_attachment.sweep(self.here.node))
        self.assertIn(self.guest.id, self.here.disk.remotes)
        self.assertTrue(remote_attachment.sweep(self.here.node))
        self.assertIn(names.OPENED, self.here.disk.tags[lv])
        self.assertEqual({}, self.here.disk.remotes)

    def leave_for(self, host):
        """Live; as Nova does it."""
        guest = self.guest
        guest.attach(host)
        move = self.here.node.moves.move_of(guest.id)
        leaving = guest.volume.volume_attachment[0].connector
        self.assertTrue(self.here.connections.leaves_source(move, leaving))
        self.here.disconnect(guest.volume, leaving)
        del guest.volume.volume_attachment[0]
        guest.live_on()
        guest.world.settle()
        self.assertIs(guest.nodes[host], guest.world.home(guest.volume))
        self.assertEqual({}, self.here.lvs)

    def test_live_migrated_away(self):
        self.leave_for(C)
        self.assertNothingKept()

    def test_live_migrated_away_and_deleted(self):
        self.leave_for(C)
        self.guest.detach(C)
        self.delete(self.guest.nodes[C])
        self.assertNothingKept()

    def test_evacuated(self):
        """The detach call was lost."""
        self.guest.signal = False
        self.guest.detach(A)
        self.guest.attach(C)
        self.guest.live_on()
        self.guest.world.settle()
        self.assertNothingKept()

    def test_deleted_before_a_look(self):
        """The detach call was lost."""
        self.guest.signal = False
        self.guest.detach(A)
        self.delete(self.here)
        self.assertNothingKept()


class DeferredTest(deferred_case.Case):

    def test_note_stays_until_the_swap(self):
        """A boot restores what is passed through as long as that."""
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here, before = guest.nodes[A], guest.nodes[B]
        guest.detach(B)
        guest.attach(A)
        for _look in range(8):
            before.reconciler.reconcile_node()
            if guest.world.home(guest.volume) is here:
                break
            here.reconciler.reconcile_node()
            before.hydrate()
        self.assertIs(here, guest.world.home(guest.volume))
        before.exports.clear()  # the source of the move, not offered again yet
        here.reconciler.reconcile_node()
        self.assertIn(guest.id, here.remote_handles())
        noted = upkeep.noted_of(
            here.node.crypt, here.node.sessions.recorded_remotes())
        self.assertEqual([guest.id], [each.volume_id for each in (
            boot_plan.to_unlock(
                survey.Survey(here.sim_lvm.lvs(), {}), noted))])
        # A boot has restored its handle, and not opened it; or neither.
        for name in (names.crypt(guest.id), guest.handle):
            here.devices.pop(name)
            remote_attachment.sweep(here.node)
            self.assertNotIn(name, here.devices)
            self.assertIn(guest.id, here.disk.remotes)


class SwappedTest(deferred_case.Case):
    """Power fails at the end of a swap; the key manager is away then."""

    def setUp(self):
        super().setUp()
        guest = self.guest = deferred_case.Guest(
            provider_id=encrypted_attach_case.RECORDED)
        here = self.here = guest.nodes[A]
        real = stack.SimClones.end_swap

        def end_swap(this, move):
            real(this, move)
            self.move = move
            self.recorded = here.node.sessions.recorded_remotes()
        self.cut_while_deferred(guest, 'end_swap', end_swap)
        guest.world.secrets.state = crypt.AWAY
        self.assertIn(guest.id, here.disk.sealed)

    def restore(self):
        here = self.here
        with here.lock(self.guest.id), here.lock(self.move.move_id):
            for lv in (self.move.destination_lv,
                       names.metadata_lv(self.move.move_id)):
                here.sim_lvm.activate(lv)
            here.sim_clones.ensure_clone(
                self.move, here.node.sessions.attach(self.move), ())
            here.sim_handles.ensure_handle_on_clone(self.move)

    def test_a_boot_opens_it(self):
        self.restore()
        noted = upkeep.noted_of(self.here.node.crypt, self.recorded)
        self.assertEqual([self.guest.id], [each.volume_id for each in (
            boot_plan.to_unlock(self.here.sim_handles.survey(), noted))])
        # By what its LV says alone.
        self.assertEqual(
            self.here.disk.remotes,
            upkeep.known(self.here.sim_handles.survey(), {}))

    def test_the_service_opens_it(self):
        """Whatever its start has made of what is kept."""
        self.restore()
        self.here.disk.tags[self.move.destination_lv] -= {names.OPENED}
        self.here.reconciler.reconcile_node(moves=False)
        self.here.reconciler.reconcile_node()
        self.assertIn(names.crypt(self.guest.id), self.here.devices)


@ddt.ddt
class MarkTest(deferred_case.Case):

    @ddt.data('mark', 'note')
    def test_is_deferred_while_lvm_fails(self, what):
        """A later look writes down what a boot needs."""
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        guest.attach(A)
        guest.detach(B)
        storage = {'mark': stack.SimLvm, 'note': crypt.SimCrypt}[what]
        here, real = guest.nodes[A], getattr(storage, what)

        def fail(this, *args, **more):
            # Without that one nothing follows.
            if this.node is here and names.OUTDATED not in args:
                raise exceptions.CommandTimeout(command='lvchange', seconds=1)
            real(this, *args, **more)

        def opened_by_a_boot():
            return [each.volume_id for each in boot_plan.to_unlock(
                survey.Survey(here.sim_lvm.lvs(), {}), upkeep.noted_of(
                    here.node.crypt, here.node.sessions.recorded_remotes()))]
        with mock.patch.object(storage, what, fail):
            guest.live_on()
            guest.world.settle()
        guest.revive()
        # The copy has ended all the same; by the record of before.
        self.assertIs(here, guest.world.home(guest.volume))
        self.assertEqual({}, guest.world.move_records)
        self.assertEqual([guest.id], opened_by_a_boot())
        guest.live_on()
        self.assertIn(names.OPENED, here.disk.tags[guest.volume.name])
        self.assertEqual([{}, {}], [here.disk.remotes, here.remotes])
        self.assertEqual([guest.id], opened_by_a_boot())

    def test_at_rest(self):
        """It is open, and no boot would open it."""
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        guest.world.settle()
        guest.revive()
        here = guest.world.home(guest.volume)
        here.disk.tags[guest.volume.name] -= {names.OPENED}
        here.reconciler.reconcile_node()
        self.assertIn(names.OPENED, here.disk.tags[guest.volume.name])


class BootTest(encrypted_attach_case.Case):
    """A boot opens volumes without their locks, beside the service."""

    def setUp(self):
        super().setUp()
        for node in self.world.nodes.values():
            node.disk.sealed = {}

    def unlock(self, node, meanwhile):
        """A boot opens the volume; what is done before it keeps the key."""
        node.devices.pop(self.crypt)
        node.disk.sealed.clear()
        seal = crypt.SimCrypt.seal

        def late(this, *what):
            if this.node is node:
                meanwhile()
            seal(this, *what)
        with mock.patch.object(crypt.SimCrypt, 'seal', late):
            outcome, = upkeep.unlock(
                node.sim_lvm, node.sim_handles, dict(node.disk.remotes),
                crypt.SimCrypt(node), crypt.SimKeys(node), 9)
        self.assertEqual((upkeep.OPENED, ''),
                         (outcome.state, outcome.problem))
        self.assertIn(self.volume.id, node.disk.sealed)
        self.world.settle()
        self.assertEqual({}, node.disk.sealed)

    def test_passed_through_no_more(self):
        self.volume.group_id = 'g'
        connector = dict(attach_case.ON_B, initiator='iqn.x')
        self.connect(connector)

        def detach():
            self.disconnect(self.a, connector)
            with self.b.node.lock(self.volume.id):
                remote_attachment.end(self.b.node, self.volume.id)
            self.assertNotIn(self.handle, self.b.devices)
            self.attach('available')
        self.unlock(self.b, detach)

    def test_detached_at_home(self):
        self.connect(attach_case.ON_A)

        def detach():
            self.disconnect(self.a, attach_case.ON_A)
            self.attach('available')
        self.unlock(self.a, detach)
        self.assertNotIn(names.OPENED, self.tags())

    def test_left(self):
        """From the beginning to the end of a cold move."""
        self.connect(attach_case.ON_A)

        def leave():
            self.attach('available')
            self.a.move(self.volume, attach_case.B)
            self.world.settle()
        self.unlock(self.a, leave)
        self.assertEqual({}, self.a.lvs)


@ddt.ddt
class SweepTest(encrypted_attach_case.Case):

    def setUp(self):
        super().setUp()
        self.kept = self.a.disk.sealed = {self.volume.id: 'x', OTHER: 'y'}

    def sweep(self):
        upkeep.sweep_sealed_keys(self.a.node)
        return {*self.kept}

    def test_in_use(self):
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.assertEqual({self.volume.id}, self.sweep())

    def test_passed_through(self):
        self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        self.assertEqual({self.volume.id}, self.sweep())

    def test_not_in_use(self):
        self.attach('available')
        self.assertEqual(set(), self.sweep())

    def test_of_another_service(self):
        """Its keys may be in the same directory."""
        self.volume.host = 'a@other'
        self.assertEqual({self.volume.id}, self.sweep())

    @ddt.data(('a', True), (None, True), ('x', False))
    @ddt.unpack
    def test_attached_by_another_service(self, host, kept):
        self.attach('in-use', host)
        self.volume.host = 'a@other'
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.assertEqual(kept, self.volume.id in self.sweep())
        self.assertEqual('', log.output)

    def test_home_that_was_written_late(self):
        """The move tells that this node may have to open the volume."""
        self.a.move(self.volume, attach_case.B)
        self.attach('in-use', 'b')
        self.volume.host = attach_case.A + '#p'
        self.assertTrue(upkeep._may_have_to_be_opened(
            self.b.node, self.b.node.volumes.volume(self.volume.id)))

    def test_noted_by_another_service(self):
        """Two may have one volume group, which has the notes."""
        self.volume.host = 'c@other'
        noted = {self.volume.id: ('luks', self.key)}
        self.a.disk.remotes = dict(noted)
        self.assertTrue(remote_attachment.sweep(self.a.node))
        self.assertEqual(noted, self.a.disk.remotes)

    def test_open(self):
        """Whoever has it open, a service of another cloud, too."""
        self.a.devices[names.crypt(OTHER)] = {'below': self.handle}
        self.attach('available')
        self.assertEqual({OTHER}, self.sweep())

    def test_passed_through_and_not_noted_any_more(self):
        """An older backup of LVM's metadata was restored."""
        self.attach_remotely()
        noted = dict(self.b.disk.remotes)
        self.assertIn(self.volume.id, noted)
        self.b.disk.remotes = {}
        self.b.disk.sealed = {self.volume.id: 'x'}
        self.b.reconciler.reconcile_node()
        self.assertEqual(noted, self.b.disk.remotes)
        self.assertIn(self.volume.id, self.b.disk.sealed)

    def test_given_out_no_more(self):
        self.volume.host = B
        self.a.disk.tags[self.volume.name] |= {names.OPENED, names.AWAY}
        self.assertEqual([], boot_plan.to_unlock(self.a.sim_handles.survey()))
        self.assertEqual(set(), self.sweep())

    def test_in_use_and_locked(self):
        """It could not be opened yet."""
        found = self.connect(attach_case.ON_A)
        self.attach('in-use', dict(found['data'], driver_volume_type='local'))
        self.volume.volume_attachment[0].connector = attach_case.ON_A
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        self.a.devices.pop(self.crypt)
        self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        self.assertTrue(remote_attachment.sweep(self.a.node))
        self.assertEqual({}, self.a.disk.remotes)
        self.assertIn(names.OPENED, self.tags())
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        self.assertEqual({self.volume.id}, self.sweep())

    def test_directory_that_can_t_be_read(self):
        """It stops neither the service nor what it copies."""
        with mock.patch.object(
                crypt.SimCrypt, 'sealed_volumes',
                side_effect=exceptions.CommandFailed(
                    command='list', code=5, stderr='I/O error')):
            with mock.patch.object(upkeep.LOG, 'error') as said:
                self.a.reconciler.reconcile_node()
        said.assert_called_once()

    def test_somebody_is_at_work_on_it(self):
        with self.a.lock(self.volume.id):
            self.assertEqual({self.volume.id}, self.sweep())

    def test_opened_meanwhile(self):
        """Before its lock was had; its row does not say so yet."""
        self.attach('available')
        real = self.a.node.try_lock

        def late(volume_id):
            self.a.disk.tags[self.volume.name] |= {names.OPENED}
            return real(volume_id)
        self.a.node = types.SimpleNamespace(
            **{each: getattr(self.a.node, each) for each in (
                'crypt', 'lvm', 'handles', 'moves', 'volumes', 'host')},
            try_lock=late)
        self.assertEqual({self.volume.id}, self.sweep())

    def test_one_that_fails(self):
        """It does not stop the others."""
        real = records.SimVolumes.volume

        def volume(this, volume_id):
            if volume_id == self.volume.id:
                raise KeyError('database')
            return real(this, volume_id)
        with mock.patch.object(records.SimVolumes, 'volume', volume):
            self.assertEqual({self.volume.id}, self.sweep())
