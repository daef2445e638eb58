# SPDX-License-Identifier: Apache-2.0
"""What a boot needs is on the LV, or noted: never neither, and never wrong."""

import contextlib
import copy
import dataclasses
import types
from unittest import mock

import ddt

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from tests.helpers import attach_case
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.helpers import remote_guest_case
from tests.world import crypt
from tests.world import disks
from tests.world import records
from tests.world import stack

OTHER = '00000009-0000-4000-8000-000000000000'


class SettleTest(encrypted_attach_case.Case):
    """A volume at home at A was passed through there before."""

    def setUp(self):
        super().setUp()
        self.noted = self.volume.id, self.key
        self.facts = {*names.tags(luks=self.volume.id, key=self.key)}
        self.a.disk.remotes = {self.volume.id: self.noted}

    def forget_on_lv(self):
        self.a.disk.tags[self.volume.name] -= {names.OPENED, *self.facts}
        self.a.disk.remotes = {self.volume.id: self.noted}

    def sweep(self):
        self.assertTrue(remote_attachment.sweep(self.a.node))
        self.assertEqual({}, self.a.disk.remotes)

    def test_idle(self):
        """No boot opens what nobody uses."""
        self.attach('available')
        with mock.patch.object(stack.SimLvm, 'mark') as mark:
            self.sweep()
        mark.assert_not_called()

    def test_open_and_not_wanted(self):
        """A guest that its attachment doesn't name any more runs yet."""
        self.connect(attach_case.ON_A)
        self.forget_on_lv()
        self.attach('available')
        self.assertIn(self.crypt, self.a.devices)
        self.sweep()
        self.assertLessEqual({names.OPENED, *self.facts}, set(self.tags()))

    def test_about_to_be_attached(self):
        self.sweep()
        self.assertLessEqual({names.OPENED, *self.facts}, set(self.tags()))

    def test_wanted(self):
        """All of it: by the mark alone no boot finds the secret."""
        self.attach('in-use', 'a')
        self.sweep()
        self.assertLessEqual({names.OPENED, *self.facts}, set(self.tags()))

    def test_lv_says_so_already(self):
        """By a secret that is newer than what was noted."""
        self.attach('in-use', 'a')
        self.a.disk.tags[self.volume.name] |= {
            names.OPENED, *names.tags(key='new', luks=self.volume.id)}
        before = set(self.tags())
        self.sweep()
        self.assertEqual(before, set(self.tags()))

    def test_header_that_its_lv_names_already(self):
        """What was noted elsewhere before is older."""
        self.attach('in-use', 'a')
        own = {*names.tags(luks='own')}
        self.a.disk.tags[self.volume.name] -= self.facts
        self.a.disk.tags[self.volume.name] |= own
        self.a.disk.remotes = {self.volume.id: self.noted}
        self.sweep()
        self.assertEqual(own, {tag for tag in self.tags()
                               if tag.startswith('localclone.luks=')})

    def test_opened_at_home(self):
        """Then its LV says it all: the note goes at once, and once."""
        self.connect(attach_case.ON_A)
        self.assertEqual({}, self.a.disk.remotes)
        with mock.patch.object(crypt.SimCrypt, 'forget_remote') as forget:
            self.connect(attach_case.ON_A)
        forget.assert_not_called()

    def test_no_lv(self):
        """Its volume group may be away for now."""
        self.attach('available')
        handle = dm_tables.Device(self.handle, 'u', '253:9', 0, False,
                                  '0 1 linear 253:8 0')
        with mock.patch.object(stack.SimLvm, 'lvs', return_value={}), (
                mock.patch.object(stack.SimHandles, 'devices',
                                  return_value={self.handle: handle})):
            remote_attachment.sweep(self.a.node)
        self.assertEqual({self.volume.id: self.noted}, self.a.disk.remotes)

    def test_another_lv_of_it(self):
        """What an earlier move has left is not what a boot opens."""
        self.attach('in-use', 'a')
        self.a.disk.tags[self.volume.name] |= {names.OPENED, *self.facts}
        self.a.disk.create('a-volume-of-before', self.volume.id, ['x'] * 4)
        disk = self.a.disk
        for each in (disk.lvs, disk.tags):  # LVM shows it first
            each[self.volume.name] = each.pop(self.volume.name)
        self.sweep()
        self.assertNotIn(names.OPENED, self.a.disk.tags['a-volume-of-before'])

    def test_mark_is_last(self):
        """What is marked goes before what is noted; it must be right then."""
        with self.a.lock(self.volume.id), mock.patch.object(
                crypt.SimCrypt, 'note', side_effect=exceptions.CommandTimeout(
                    command='lvchange', seconds=1)):
            self.assertRaises(
                exceptions.CommandTimeout, boot_notes.note_moved,
                self.a.node, self.volume.id, self.volume.name)
        self.assertNotIn(names.OPENED, self.tags())


class OpenTest(encrypted_attach_case.Case):

    def test_header_that_was_not_noted(self):
        """The secret alone is not enough: a boot looks which header it is."""
        self.a.disk.tags[self.volume.name] |= {*names.tags(key=self.key)}
        self.a.disk.tags[self.volume.name] -= {
            *names.tags(luks=self.volume.id)}
        self.connect(attach_case.ON_A)
        self.assertEqual(self.volume.id, names.facts(self.tags())['luks'])

    def test_not_fresh_any_more(self):
        """Whoever has it open may write to it."""
        self.connect(attach_case.ON_A)
        self.a.disk.tags[self.volume.name] |= {names.FRESH}
        self.connect(attach_case.ON_A)
        self.assertNotIn(names.FRESH, self.tags())

    def test_lv_that_it_is_asked_for(self):
        """A live move's: its row names the LV of its home yet."""
        self.connect(attach_case.ON_A)
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        row = copy.copy(self.volume)
        row.name = 'where-it-comes-from'
        with self.a.lock(self.volume.id):
            devices.ensure_open(self.a.node, row, self.volume.name)
        self.assertIn(names.OPENED, self.tags())

    def test_handle_on_nothing(self):
        """It is not passed through: a boot would wait for its session."""
        self.connect(attach_case.ON_A)
        there = self.a.sim_handles.devices()
        nothing = {**there, self.handle: dm_tables.Device(
            self.handle, 'u', '253:9', 0, False, '0 1 error')}
        with mock.patch.object(
                stack.SimHandles, 'devices', return_value=nothing), (
                self.a.lock(self.volume.id)):
            devices.open(self.a.node, self.volume)
        self.assertEqual({}, self.a.disk.remotes)

    def test_uuid_of_what_is_passed_through(self):
        """It is that of the header, not the volume's id."""
        self.world.headers[self.volume.id].uuid = 'another'
        self.attach_remotely()
        self.assertEqual({self.volume.id: ('another', self.key)},
                         self.b.disk.remotes)

    def test_noted_once(self):
        """No look reads the header, nor asks LVM for a change, in vain."""
        self.attach_remotely()
        with mock.patch.object(crypt.SimCrypt, 'note_remote') as note:
            self.assertTrue(remote_attachment.sweep(self.b.node))
        note.assert_not_called()


class DeferredMovedTest(deferred_case.Case):

    def test_opened_before_the_swap(self):
        """What is noted on the LV is of no use to a boot until then."""
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here, before = (guest.nodes[each]
                        for each in (deferred_case.A, deferred_case.B))
        guest.detach(deferred_case.B)
        guest.attach(deferred_case.A)
        for _look in range(8):
            before.reconciler.reconcile_node()
            if guest.world.home(guest.volume) is here:
                break
            here.reconciler.reconcile_node()
            before.hydrate()
        self.assertIn(guest.id, here.remote_handles())
        lv, noted = guest.volume.name, dict(here.disk.remotes)
        self.assertIn(guest.id, noted)
        here.disk.remotes = {}
        del here.devices[names.crypt(guest.id)]
        with here.lock(guest.id):
            devices.open(here.node, guest.volume, lv)
        self.assertEqual(noted, here.disk.remotes)
        self.assertNotIn(names.OPENED, here.disk.tags[lv])


@ddt.ddt
class KeptTest(encrypted_attach_case.Case):
    """Keys stay for each of the reasons alone."""

    def setUp(self):
        super().setUp()
        self.kept = self.a.disk.sealed = {self.volume.id: 'x'}

    def use(self, how):
        if how == 'marked':
            self.a.disk.tags[self.volume.name] |= {names.OPENED}
        elif how == 'noted':
            self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        else:
            self.a.devices[self.crypt] = {'below': self.handle}

    def sweep(self):
        upkeep.sweep_sealed_keys(self.a.node)
        return {*self.kept}

    @ddt.data('marked', 'noted', 'open')
    def test_in_use(self, how):
        """Whatever its row says; and nobody is asked what it says."""
        self.attach('available')
        self.use(how)
        with mock.patch.object(records.SimVolumes, 'volume') as asked:
            self.assertEqual({self.volume.id}, self.sweep())
        asked.assert_not_called()

    @ddt.data('marked', 'noted', 'open')
    def test_in_use_meanwhile(self, how):
        """Before its lock was had; by a boot, or another cloud's service."""
        self.attach('available')
        real = self.a.node.try_lock

        def late(volume_id):
            self.use(how)
            return real(volume_id)
        self.a.node = types.SimpleNamespace(
            **{each: getattr(self.a.node, each) for each in (
                'crypt', 'lvm', 'handles', 'moves', 'volumes', 'host')},
            try_lock=late)
        self.assertEqual({self.volume.id}, self.sweep())

    def test_about_to_be_attached(self):
        self.attach('reserved', None)
        self.assertEqual({self.volume.id}, self.sweep())

    def test_one_that_somebody_works_on(self):
        """It does not stop the others, and is nothing to speak of."""
        first = '00000000-0000-4000-8000-000000000000'
        self.kept.update({first: 'y', OTHER: 'z'})
        self.attach('available')
        with self.a.lock(first), mock.patch.object(events, 'say') as said:
            self.assertEqual({first}, self.sweep())
        said.assert_not_called()

    def test_noted_by_another_service(self):
        """Two may have one volume group, which has the notes."""
        self.volume.host = 'c@other'
        self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        self.assertTrue(remote_attachment.sweep(self.a.node))
        self.assertEqual({self.volume.id: ('luks', self.key)},
                         self.a.disk.remotes)


class ForgetTest(encrypted_attach_case.Case):

    def test_mark_goes_last(self):
        """By it a later look finds what could not be forgotten."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        for fails in ('forget_sealed', 'forget_remote'):
            with self.a.lock(self.volume.id), mock.patch.object(
                    crypt.SimCrypt, fails,
                    side_effect=exceptions.CommandTimeout(
                        command='x', seconds=1)):
                self.assertRaises(
                    exceptions.CommandTimeout, boot_notes.forget,
                    self.a.node, self.a.node.handles.survey(), self.volume.id)
            self.assertIn(names.OPENED, self.tags())

    def test_all_that_are_marked(self):
        """And nothing is asked of LVM for those that are not."""
        disk = self.a.disk
        for name in ('before', 'after'):
            disk.create(name, self.volume.id, ['x'] * 4)
        for name in (self.volume.name, 'after'):
            disk.tags[name] |= {names.OPENED}
        with self.a.lock(self.volume.id), mock.patch.object(
                stack.SimLvm, 'unmark') as unmark:
            boot_notes.forget(self.a.node, self.a.node.handles.survey(),
                              self.volume.id)
        self.assertEqual({self.volume.name, 'after'}, {
            each.args[0] for each in unmark.call_args_list})

    def test_lv_that_is_named_after_a_move(self):
        self.a.move(self.volume, attach_case.B)
        self.world.settle()
        self.assertNotEqual('volume-' + self.volume.id, self.volume.name)
        self.connect(attach_case.ON_B, self.b)
        self.assertIn(names.OPENED, self.tags(self.b))
        self.disconnect(self.b, attach_case.ON_B)
        self.assertNotIn(names.OPENED, self.tags(self.b))


@ddt.ddt
class EndTest(encrypted_attach_case.Case):

    def test_handle_on_its_own_lv(self):
        """It is not passed through; what a boot needs is not of that."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        self.a.disk.remotes = {self.volume.id: ('luks', self.key)}
        kept = dict(self.a.disk.sealed)
        self.assertIn(self.volume.id, kept)
        with self.a.lock(self.volume.id):
            remote_attachment.end(self.a.node, self.volume.id)
        self.assertLessEqual({self.handle, self.crypt}, set(self.a.devices))
        self.assertEqual(kept, self.a.disk.sealed)
        self.assertIn(self.volume.id, self.a.disk.remotes)

    @ddt.data({'connection_info': None}, {'connector': None},
              {'connection_info': None, 'connector': None})
    def test_being_attached(self, lacks):
        """Its attachment does not say so yet; a look waits for that."""
        self.attach_remotely('reserved')
        attachment, = self.volume.volume_attachment
        for name, value in lacks.items():
            setattr(attachment, name, value)
        noted = dict(self.b.disk.remotes)
        self.assertTrue(remote_attachment.sweep(self.b.node))
        self.assertLessEqual({self.handle, self.crypt}, set(self.b.devices))
        self.assertEqual([noted, {self.volume.id}],
                         [self.b.disk.remotes, set(self.b.remotes)])

    def test_records_that_can_t_be_read(self):
        """They do not stop a look."""
        self.b.remotes[self.volume.id] = attach_case.A
        self.attach('available')
        with mock.patch.object(
                type(self.b.node.sessions._inner), 'recorded_remotes',
                side_effect=exceptions.CommandFailed(
                    command='iscsiadm', code=6, stderr='x')), (
                mock.patch.object(remote_attachment.LOG, 'error')) as said:
            remote_attachment.sweep(self.b.node)
        said.assert_called_once()
        self.assertEqual({}, self.b.remotes)

    def test_session_without_a_record(self):
        self.b.remotes[self.volume.id] = attach_case.A
        self.attach('available')
        with mock.patch.object(type(self.b.node.sessions._inner),
                               'recorded_remotes', return_value={}):
            remote_attachment.sweep(self.b.node)
        self.assertEqual({}, self.b.remotes)


class SwapTest(deferred_case.Case):

    def follow(self, fails=None, error=None, **more):
        guest = deferred_case.Guest(**more)
        guest.attach(deferred_case.A)
        guest.detach(deferred_case.B)
        here = guest.nodes[deferred_case.A]
        storage = stack.SimLvm if fails == 'mark' else crypt.SimCrypt
        real = getattr(storage, fails) if fails else None

        def fail(this, *args, **facts):
            # Without that one nothing follows.
            if this.node is here and names.OUTDATED not in args:
                raise error
            return real(this, *args, **facts)
        with mock.patch.object(storage, fails, fail) if (
                fails) else contextlib.nullcontext(), (
                mock.patch.object(stack.SimHandles, 'read_head')) as read:
            guest.live_on()
            guest.world.settle()
        guest.revive()
        self.assertIs(here, guest.world.home(guest.volume))
        self.assertEqual({}, guest.world.move_records)
        return guest, here, read

    def test_lvm_fails_whatever_way(self):
        """Not only by a time limit; and what it was put on is read."""
        guest, here, read = self.follow(
            'mark', exceptions.CommandFailed(
                command='lvchange', code=5, stderr='x'),
            provider_id=encrypted_attach_case.RECORDED)
        self.assertIn(guest.id, here.disk.remotes)
        read.assert_any_call(guest.id)

    def test_of_a_plain_volume_nothing_is_noted(self):
        """So nothing that is wrong with notes is any matter of it."""
        with mock.patch.object(boot_notes, 'note_moved') as note:
            _guest, here, _read = self.follow()
        note.assert_not_called()
        self.assertEqual({}, here.remotes)


class CheckTest(attach_case.Base):

    def test_what_is_deferred_to_where_it_is_in_use_on_another_backing(self):
        """Only what is passed through may be open here."""
        move = state.Move(
            volume_id=self.volume.id,
            move_id=OTHER, token=state.Token(
                state.Phase.STARTING, '', state.Geometry(128, 512, 32)),
            committed=False, source=attach_case.B,
            destination=attach_case.A, source_lv='x',
            destination_lv=self.volume.name, size_gib=1, volume_gib=1,
            location='1.2.3.4:3260,1 iqn.x 0', asked_by=state.Asked.DEFERRED)
        self.assertTrue(move.is_deferred)
        destination._check_handle(self.a.node, move)
        self.a.opened.add(self.handle)
        self.assertRaises(exceptions.SourceBusy, destination._check_handle,
                          self.a.node, move)


class TargetTest(encrypted_attach_case.Case):
    """The row into which Cinder itself copies a volume."""

    def test_it_is_the_handle_of_what_it_is_to_be(self):
        self.connect(attach_case.ON_A)
        row = copy.copy(self.volume)
        row.id, row.migration_status = OTHER, 'target:' + self.volume.id
        self.assertFalse(devices.crypt_differs(
            self.a.node.handles.survey(), row, True))
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        self.assertTrue(devices.crypt_differs(
            self.a.node.handles.survey(), row, True))
        with self.a.lock(self.volume.id), self.a.lock(OTHER):
            devices.ensure_open(self.a.node, row, self.volume.name)
        self.assertIn(names.OPENED, self.tags())
        self.assertFalse(devices.crypt_differs(
            self.a.node.handles.survey(), row, True))


@ddt.ddt
class DiffersTest(encrypted_attach_case.Case):

    def differs(self, wanted):
        return devices.crypt_differs(
            self.a.node.handles.survey(), self.volume, wanted)

    def test_nothing_is_known_of_it(self):
        """So it stays as it is, open or not."""
        self.assertFalse(self.differs(None))
        self.connect(attach_case.ON_A)
        self.assertFalse(self.differs(None))

    @ddt.data('crypt', 'integrity', 'guard')
    def test_upper_that_nobody_wants(self, kind):
        """Whatever its LV says, and if it is half of one."""
        self.assertFalse(self.differs(False))
        self.a.devices[getattr(names, kind)(self.volume.id)] = {
            'below': self.handle}
        self.assertTrue(self.differs(False))

    def test_marked_and_not_wanted(self):
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.assertTrue(self.differs(False))

    def test_short(self):
        """What was extended while it was open; not by its header alone."""
        self.connect(attach_case.ON_A)
        self.assertFalse(self.differs(True))
        handle = self.a.devices[self.handle]
        self.a.devices[self.handle] = disks.sized(
            handle, disks.size(handle) + disks.GIB)
        self.assertTrue(self.differs(True))
        with self.a.lock(self.volume.id):
            devices.open(self.a.node, self.volume, self.volume.name)
        self.assertEqual(2 * disks.GIB, disks.size(self.a.devices[self.crypt]))
        self.assertFalse(self.differs(True))
        self.a.devices[self.handle] = disks.sized(
            handle, disks.size(handle) + 2 * disks.GIB)
        # While it is re-encrypted, what is between is as long as that.
        self.a.devices[self.crypt]['left'] = True
        self.assertFalse(self.differs(True))


class WritableTest(remote_guest_case.Case):

    def test_onto_no_clone_that_fails(self):
        """A guest would get errors; it goes on over iSCSI instead."""
        self.commit()
        real = stack.SimClones.clone_status

        def status(this, move_id):
            return dataclasses.replace(real(this, move_id), mode='Fail')
        with mock.patch.object(stack.SimClones, 'clone_status', status):
            self.assertRaises(exceptions.CloneFailed,
                              self.there.reconciler.reconcile, self.guest.id)
            self.assertIn(self.guest.id, self.there.remote_handles())
        self.there.reconciler.reconcile(self.guest.id)
        self.assertNotIn(self.guest.id, self.there.remote_handles())
