# SPDX-License-Identifier: Apache-2.0
"""Notes, marks, records and keys that were lost, or are old, at a look."""

import contextlib
import dataclasses
from unittest import mock

import ddt

from cinder_localclone.core import boot_plan
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source as at_source
from tests.helpers import attach_case
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.helpers import storage_parts
from tests import world as worlds
from tests.world import crypt
from tests.world import stack

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C


def opened_by_a_boot(here):
    return [each.volume_id for each in boot_plan.to_unlock(
        survey.Survey(here.sim_lvm.lvs(), {}), upkeep.noted_of(
            here.node.crypt, here.node.sessions.recorded_remotes()))]


class RecordTest(deferred_case.Case):
    """Power fails at the end of a copy; the old home is away, too.

    The first look of the service has no handle yet.
    """

    def cut(self, guest, at):
        """Power fails on A at a call of its storage, and on B afterwards.

        :param at: its name
        """
        here, before = guest.nodes[A], guest.nodes[B]
        real, records = getattr(storage_parts.simulated(at), at), {}

        def last(this, *args):
            if at == 'switch_to_clone':  # after it
                real(this, *args)
            records.update(here.remotes)
        self.cut_while_deferred(guest, at, last)
        here.remotes.update(records)  # iscsiadm's records outlive it
        before.stop(power=True)
        before.gone = True
        return here

    def sweep(self, guest, here):
        here.reconciler.reconcile_node(moves=False)
        here.reconciler.reconcile_node()
        self.assertNotIn(guest.handle, here.devices)

    def test_record_stays_until_the_lv_is_marked(self):
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here = self.cut(guest, 'switch_to_clone')
        self.assertNotIn(names.OPENED, here.disk.tags[guest.volume.name])
        self.assertEqual([guest.id], opened_by_a_boot(here))
        self.sweep(guest, here)
        self.assertEqual([guest.id], opened_by_a_boot(here))

    def test_record_stays_until_the_swap(self):
        """Of any volume: committed, not swapped; a boot passes it through."""
        guest = deferred_case.Guest()
        here = self.cut(guest, 'begin_swap')

        def restored_by_a_boot():
            own = {local.volume_id for local in boot_plan.plan(
                survey.Survey(here.sim_lvm.lvs(), {})) if not local.reason}
            return own | set(here.node.sessions.recorded_remotes())
        self.assertEqual({guest.id}, restored_by_a_boot())
        self.sweep(guest, here)
        self.assertEqual({guest.id}, restored_by_a_boot())


class UnsettledTest(deferred_case.Case):
    """A guest's volume followed while its LV could not be marked."""

    def setUp(self):
        super().setUp()
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here, real = guest.nodes[A], stack.SimLvm.mark
        self.before = here.sim_handles.survey()
        guest.attach(A)
        guest.detach(B)

        def fail(this, lv, tag):
            if this.node is here and tag == names.OPENED:
                raise exceptions.CommandTimeout(command='lvchange', seconds=1)
            real(this, lv, tag)
        with mock.patch.object(stack.SimLvm, 'mark', fail):
            guest.live_on()
            guest.world.settle()
        guest.revive()
        self.assertIs(here, guest.world.home(guest.volume))
        self.assertIn(guest.id, here.disk.remotes)
        self.guest, self.here = guest, here

    def keys(self):
        return {tag for tag in self.here.disk.tags[self.guest.volume.name]
                if tag.startswith('localclone.key=')}

    def test_key_is_changed(self):
        """A boot asks for the secret that the row names."""
        old, lv = self.keys(), self.guest.volume.name
        tags = self.here.disk.tags
        luks = {tag for tag in tags[lv] if tag.startswith('localclone.luks=')}
        tags[lv] = tags[lv] - luks  # nor could that be noted
        rotate.rotate(self.here.node, self.guest.id)
        self.assertLessEqual(luks, tags[lv])
        self.assertNotEqual(old, self.keys())
        self.assertEqual(1, len(self.keys()))
        known = upkeep.known(
            survey.Survey(self.here.sim_lvm.lvs(), {}), upkeep.noted_of(
                self.here.node.crypt,
                self.here.node.sessions.recorded_remotes()))
        self.assertEqual(self.guest.volume.encryption.key,
                         known[self.guest.id][1])
        self.here.reconciler.reconcile_moves()  # settles what was noted
        self.assertEqual({}, self.here.disk.remotes)
        self.assertEqual(1, len(self.keys()))

    def test_look_that_began_before_it_was_noted(self):
        remote_attachment.sweep(self.here.node, self.before)
        self.assertEqual([self.guest.id], opened_by_a_boot(self.here))

    def test_what_nobody_noted_is_not_marked(self):
        """It has a record yet, is closed, and about to be attached."""
        lv, here = self.guest.volume.name, self.here
        remote_attachment.sweep(here.node)
        here.remotes[self.guest.id] = B
        here.disk.tags[lv] -= {names.OPENED}
        self.guest.volume.status = 'reserved'
        self.guest.volume.volume_attachment = [attach_case.attachment(
            None)]
        with mock.patch.object(stack.SimLvm, 'mark') as mark:
            remote_attachment.sweep(here.node)
        mark.assert_not_called()
        self.assertNotIn(self.guest.id, here.remotes)

    def test_key_was_changed_meanwhile(self):
        """The look does not note the secret of before."""
        volume = self.guest.volume
        old, key = self.keys(), volume.encryption.key
        volume.provider_id = volume.provider_id.replace(key, key[::-1])
        self.assertNotEqual(key, volume.encryption.key)
        self.here.reconciler.reconcile_moves()
        self.assertEqual({}, self.here.disk.remotes)
        self.assertEqual(1, len(self.keys()))
        self.assertNotEqual(old, self.keys())

    def test_header_that_can_t_be_read(self):
        """The guest goes on; what was noted says which header it is."""
        lv = self.guest.volume.name
        tags = self.here.disk.tags
        luks = {tag for tag in tags[lv] if tag.startswith('localclone.luks=')}
        tags[lv] = tags[lv] - luks
        with mock.patch.object(
                crypt.SimCrypt, 'uuid',
                side_effect=exceptions.CommandFailed(
                    command='cryptsetup', code=1, stderr='')):
            self.assertTrue(remote_attachment.sweep(self.here.node))
        self.assertEqual({}, self.here.remotes)
        self.assertLessEqual(luks, tags[lv])


class LostMarkTest(encrypted_attach_case.Case):

    def test_rotated_while_it_is_open(self):
        """Its mark is made again; the key that is kept is not."""
        self.a.disk.sealed = {}
        found = self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.volume.volume_attachment[0].connection_info = dict(
            found['data'], driver_volume_type='local')
        self.assertIn(self.volume.id, self.a.disk.sealed)
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        rotate.rotate(self.a.node, self.volume.id)
        self.a.reconciler.reconcile_node()
        self.assertIn(names.OPENED, self.tags())
        self.assertIn(self.crypt, self.a.devices)
        self.assertIn(self.volume.id, self.a.disk.sealed)


class LostNoteTest(encrypted_attach_case.Case):

    def test_key_stays_while_the_home_is_away(self):
        """An older backup of LVM's metadata was restored; B has booted.

        Its guest is on B: once its home serves it again, it is opened by the
        key that is kept, if the key manager is away then.
        """
        self.b.disk.sealed = {}
        self.attach_remotely()
        self.assertIn(self.volume.id, self.b.disk.remotes)
        self.assertIn(self.volume.id, self.b.disk.sealed)
        is_remote = dict(self.b.remotes)
        self.b.stop(power=True)
        self.b.remotes.update(is_remote)
        self.b.dead = False
        self.b.disk.remotes = {}
        self.a.dead = True
        self.b.reconciler.reconcile_node()
        self.a.dead = False
        self.assertIn(self.volume.id, self.b.disk.sealed)

    def kept_of_another_backend(self, status, **attachment):
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.attach(status, *['a'] * (status == 'in-use'))
        for each in self.volume.volume_attachment:
            vars(each).update({
                'connection_info': {'driver_volume_type': 'iscsi'},
                **attachment})
        self.volume.host = 'c@other'
        upkeep.sweep_sealed_keys(self.a.node)
        return bool(self.a.disk.sealed)

    def test_key_of_what_has_left_the_backend(self):
        """It could not be removed at the detach; retyped before a look."""
        self.assertFalse(self.kept_of_another_backend('available'))
        self.assertFalse(self.kept_of_another_backend(
            'in-use', connector=attach_case.ON_B))

    def test_key_of_what_another_service_of_this_node_has(self):
        self.assertTrue(self.kept_of_another_backend('in-use'))
        self.assertTrue(self.kept_of_another_backend(
            'in-use', connector=None))
        self.assertFalse(self.kept_of_another_backend(
            'in-use', connection_info=None, connector={'host': 'b'}))


class StaleNoteTest(UnsettledTest):
    """It was noted when LVs were listed; settled and detached since."""

    def test_settled_since_it_was_listed(self):
        here, guest = self.here, self.guest
        listed = here.sim_handles.survey()      # reconcile_node: noted yet
        here.reconciler.reconcile_moves()      # other loop: settled
        self.assertEqual({}, here.disk.remotes)
        guest.detach(A)                       # closed
        self.assertNotIn(names.crypt(guest.id), here.devices)
        self.assertNotIn(names.OPENED, here.disk.tags[guest.volume.name])
        guest.volume.status = 'reserved'      # about to be attached
        guest.volume.volume_attachment = [guest.attachment()]
        with mock.patch.object(stack.SimLvm, 'mark') as mark:
            remote_attachment.sweep(here.node, listed)
        mark.assert_not_called()


class RecordGoesTest(UnsettledTest):
    """The initiator's record stays until the note is settled."""

    def power_fails(self):
        here = self.here
        here.disk.tags[self.guest.volume.name] -= {names.OPENED}
        records = {self.guest.id: B}
        here.stop(power=True)
        here.dead, self.guest.node = False, None
        here.remotes.update(records)
        self.assertEqual([self.guest.id],
                         opened_by_a_boot(here))

    def test_handle_appears_in_between(self):
        """A boot, which takes no locks, restores it beside the service."""
        self.power_fails()
        here, volume = self.here, self.guest.volume
        real = boot_notes.correct_note

        def settle(*args, **more):
            settled = real(*args, **more)
            here.sim_handles.ensure_handle_on_lv(
                volume.id, volume.name, volume.backing_bytes(),
                swaps=False)
            return settled
        with mock.patch.object(boot_notes, 'correct_note', settle):
            remote_attachment.sweep(here.node)
        self.assertEqual([self.guest.id],
                         opened_by_a_boot(here))

    def test_group_that_is_away_for_now(self):
        here, guest = self.here, self.guest
        here.disk.tags[guest.volume.name] -= {names.OPENED}
        here.remotes[guest.id] = B
        handle = dm_tables.Device(guest.handle, 'u', '253:9', 0, False,
                                  '0 1 linear 253:8 0')
        with mock.patch.object(stack.SimLvm, 'lvs', return_value={}), (
                mock.patch.object(stack.SimHandles, 'devices',
                                  return_value={guest.handle: handle})):
            remote_attachment.sweep(here.node)
        self.assertEqual([guest.id],
                         opened_by_a_boot(here))


class AwayTest(UnsettledTest):
    """Followed, not settled; its live migration is given up."""

    def test_source_of_a_live_move(self):
        here, guest = self.here, self.guest
        lv = guest.volume.name
        guest.attach(C, runs=False)
        move = here.node.moves.move_of(guest.id)
        self.assertIs(state.Phase.STARTING, move.phase)
        self.assertTrue(move.committed)
        here.stop(power=True)
        here.dead, guest.node = False, None
        remote_attachment.sweep(here.node)
        self.assertEqual(guest.nodes[C], guest.world.home(guest.volume))
        guest.detach(C)                       # Nova gives the migration up
        guest.world.settle()
        self.assertIs(here, guest.world.home(guest.volume))
        self.assertEqual(lv, guest.volume.name)
        self.assertIn(guest.id, [
            local.volume_id for local
            in boot_plan.plan(here.sim_handles.survey()) if not local.reason])
        self.assertNotIn(names.AWAY, here.disk.tags[lv])


class NoteKeyTest(encrypted_attach_case.Case):
    """An open volume always says which secret opens it."""

    def test_power_fails_in_note_key(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        # A change of the key was killed when the row named the new one.
        header = self.world.headers[self.volume.id]
        self.volume.provider_id = crypt.recorded('new')
        self.world.secrets.kept['new'] = self.world.secrets.kept[self.key]
        header.tokens['1'] = dataclasses.replace(
            header.tokens['0'], key='new', number='1', replaces=self.key)
        real = stack.SimLvm.unmark

        def unmark(this, lv, tag):
            real(this, lv, tag)
            self.a.stop(power=True)
            raise worlds.Stopped(self.a)
        with mock.patch.object(stack.SimLvm, 'unmark', unmark):
            with contextlib.suppress(worlds.Stopped):
                self.connect(attach_case.ON_A)
        self.a.dead = False
        known = upkeep.known(survey.Survey(
            self.a.sim_lvm.lvs(), {}), {})
        self.assertIn(self.volume.id, known)
        self.assertIn(known[self.volume.id][1], (self.key, 'new'))


class RemoteTest(attach_case.Base):
    """A check that fails leaves open whether all is as it should be."""

    def test_check_that_fails(self):
        self.assertTrue(self.a.reconciler._is_remote)
        with mock.patch.object(
                crypt.SimCrypt, 'remotes',
                side_effect=exceptions.CommandTimeout(
                    command='vgs', seconds=1)):
            self.assertRaises(exceptions.CommandTimeout,
                              self.a.reconciler.reconcile_node)
        with mock.patch.object(remote_attachment, 'sweep',
                               return_value=True) as sweep:
            self.a.reconciler.reconcile_moves()
        sweep.assert_called_once()


class UnknownRowTest(attach_case.Base):
    """A row of a newer version, and nothing was noted of it."""

    def test_row_that_is_not_understood(self):
        self.volume.provider_id = crypt.recorded('k').replace('k', '\n\n')
        self.assertRaises(
            exceptions.NotPossible, getattr, self.volume, 'encryption')
        self.a.remotes[self.volume.id] = B
        remote_attachment.sweep(self.a.node)
        self.assertEqual({}, self.a.remotes)


class NoteTest(encrypted_attach_case.Case):
    """A volume at home at A was passed through there before."""

    def setUp(self):
        super().setUp()
        self.noted = {self.volume.id: (self.volume.id, self.key)}

    def test_mark_is_last(self):
        """By the mark alone no boot finds the secret, and nobody notes it."""
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.disk.tags[self.volume.name] -= {
            names.OPENED, *names.tags(key=self.key)}
        self.a.disk.remotes = dict(self.noted)
        with mock.patch.object(
                crypt.SimCrypt, 'note', side_effect=exceptions.CommandTimeout(
                    command='lvchange', seconds=1)):
            self.assertFalse(remote_attachment.sweep(self.a.node))
        self.assertNotIn(names.OPENED, self.tags())
        self.assertEqual(self.noted, self.a.disk.remotes)

    def test_marked_with_an_older_secret(self):
        """An older backup of LVM's metadata was restored."""
        self.connect(attach_case.ON_A)
        lv = self.volume.name
        old = set(names.tags(key='old'))
        self.a.disk.tags[lv] -= set(names.tags(key=self.key))
        self.a.disk.tags[lv] |= old
        self.assertIn(names.OPENED, self.tags())
        self.connect(attach_case.ON_A)
        self.assertEqual(self.key, names.facts(self.tags())['key'])
        self.assertTrue(old.isdisjoint(self.tags()))

    def test_secret_that_is_the_same_is_not_taken_off(self):
        """LVM may take off last what is added and taken off at once."""
        self.connect(attach_case.ON_A)
        self.a.disk.tags[self.volume.name] -= set(
            names.tags(luks=self.volume.id))
        with mock.patch.object(crypt.SimCrypt, 'note') as note:
            self.connect(attach_case.ON_A)
        note.assert_called_once_with(
            self.volume.name, [], key=self.key, luks=self.volume.id)

    def test_second_secret_is_taken_off(self):
        self.connect(attach_case.ON_A)
        noted = set(self.tags())
        self.a.disk.tags[self.volume.name] |= set(names.tags(key='other'))
        self.connect(attach_case.ON_A)
        self.assertEqual(noted, set(self.tags()))

    def test_what_is_noted_is_not_noted_again(self):
        self.connect(attach_case.ON_A)
        with mock.patch.object(crypt.SimCrypt, 'note') as note:
            self.connect(attach_case.ON_A)
        note.assert_not_called()

    def test_row_that_names_no_secret(self):
        """What was noted before goes all the same; so does the record."""
        self.volume.provider_id = None
        self.attach('in-use', 'a')
        self.a.disk.remotes = dict(self.noted)
        self.a.remotes[self.volume.id] = B
        self.assertTrue(remote_attachment.sweep(self.a.node))
        self.assertEqual([{}, {}], [self.a.disk.remotes, self.a.remotes])
        self.assertNotIn(names.OPENED, self.tags())


@ddt.ddt
class MovingTest(encrypted_attach_case.Case):
    """A guest on B, which the volume is passed through to, after a boot."""

    @ddt.data((A, True, True), (B, False, True), (B, True, False))
    @ddt.unpack
    def test_move_of_the_volume(self, source, keeps_handle, restored):
        """Only what the source of a live move has is left as it is."""
        self.attach_remotely()
        for name in (self.crypt, self.handle):
            del self.b.devices[name]
        move = mock.Mock(source=source, keeps_handle=keeps_handle,
                         is_over=False)
        moves = mock.Mock(wraps=self.b.node.moves)
        moves.move_of.return_value = move
        here = dataclasses.replace(self.b.node, moves=moves)
        with mock.patch.object(remote_attachment, '_withdraw_earlier'), (
                mock.patch.object(at_source, 'export_again')) as export:
            remote_attachment.sweep(here)
        self.assertIs(restored, self.handle in self.b.devices)
        self.assertEqual(source == B and restored, export.called)


class BeingAttachedTest(encrypted_attach_case.Case):

    def test_restored_while_another_attachment_is_made(self):
        """A guest on B waits for nobody who may never come."""
        self.attach_remotely()
        self.volume.volume_attachment.append(attach_case.attachment(None))
        for name in (self.crypt, self.handle):
            del self.b.devices[name]
        self.assertTrue(remote_attachment.sweep(self.b.node))
        self.assertIn(self.handle, self.b.devices)

    def kept_of_another_backend(self, connector):
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.attach('reserved', None)
        vars(self.volume.volume_attachment[0]).update(
            connection_info={}, connector=connector)
        self.volume.host = 'c@other'
        self.a.node = dataclasses.replace(
            self.a.node, is_at=lambda connector, host: (
                connector.get('host') == host.partition('@')[0]))
        with mock.patch.object(events, 'say') as said:
            upkeep.sweep_sealed_keys(self.a.node)
        said.assert_not_called()
        return bool(self.a.disk.sealed)

    def test_key_of_what_does_not_say_where(self):
        """As the directory answers it: not of what is no connector."""
        self.assertTrue(self.kept_of_another_backend(None))
        self.assertTrue(self.kept_of_another_backend({}))
