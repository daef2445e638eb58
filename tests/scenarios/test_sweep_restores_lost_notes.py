# SPDX-License-Identifier: Apache-2.0
"""Notes, marks, records and keys that were lost, or are old, at a look."""

from unittest import mock

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.encryption import leftovers
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import unlock
from cinder_localclone.moves import remote_attachment
from tests.helpers import attach_case
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.world import crypt
from tests.world import stack

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C


def opened_by_a_boot(here):
    return [each.volume_id for each in unlock.plan(
        survey.Survey(here.sim_stack.lvs(), {}), unlock.noted_of(
            here.node.crypt, here.node.sessions.recorded_passes()))]


class RecordTest(deferred_case.Case):
    """Power fails at the end of a copy; the old home is away, too.

    The first look of the service has no handle yet.
    """

    def cut(self, guest, at):
        """Power fails on A at a call of its stack, and on B afterwards.

        :param at: its name
        """
        here, before = guest.nodes[A], guest.nodes[B]
        real, records = getattr(stack.SimStack, at), {}

        def last(this, *args):
            if at == 'follow_onto_clone':  # after it
                real(this, *args)
            records.update(here.passed)
        self.cut_while_it_follows(guest, at, last)
        here.passed.update(records)  # iscsiadm's records outlive it
        before.stop(power=True)
        before.gone = True
        return here

    def look(self, guest, here):
        here.reconciler.converge_node(moves=False)
        here.reconciler.converge_node()
        self.assertNotIn(guest.handle, here.devices)

    def test_record_stays_until_the_lv_is_marked(self):
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here = self.cut(guest, 'follow_onto_clone')
        self.assertNotIn(names.OPENED, here.disk.tags[guest.volume.name])
        self.assertEqual([guest.id], opened_by_a_boot(here))
        self.look(guest, here)
        self.assertEqual([guest.id], opened_by_a_boot(here))

    def test_record_stays_until_the_swap(self):
        """Of any volume: committed, not swapped; a boot passes it through."""
        guest = deferred_case.Guest()
        here = self.cut(guest, 'begin_swap')

        def restored_by_a_boot():
            own = {local.volume_id for local in boot_plan.plan(
                survey.Survey(here.sim_stack.lvs(), {})) if not local.reason}
            return own | set(here.node.sessions.recorded_passes())
        self.assertEqual({guest.id}, restored_by_a_boot())
        self.look(guest, here)
        self.assertEqual({guest.id}, restored_by_a_boot())


class UnsettledTest(deferred_case.Case):
    """A guest's volume followed while its LV could not be marked."""

    def setUp(self):
        super().setUp()
        guest = deferred_case.Guest(provider_id=encrypted_attach_case.RECORDED)
        here, real = guest.nodes[A], crypt.SimCrypt.mark
        self.before = here.sim_stack.survey()
        guest.attach(A)
        guest.detach(B)

        def fail(this, lv, tag):
            if this.node is here and tag == names.OPENED:
                raise exceptions.CommandTimeout(command='lvchange', seconds=1)
            real(this, lv, tag)
        with mock.patch.object(crypt.SimCrypt, 'mark', fail):
            guest.live_on()
            guest.world.settle()
        guest.revive()
        self.assertIs(here, guest.world.home(guest.volume))
        self.assertIn(guest.id, here.disk.passed)
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
        known = unlock.known(
            survey.Survey(self.here.sim_stack.lvs(), {}), unlock.noted_of(
                self.here.node.crypt,
                self.here.node.sessions.recorded_passes()))
        self.assertEqual(rows.recorded(self.guest.volume).key,
                         known[self.guest.id][1])
        self.here.reconciler.converge_moves()  # settles what was noted
        self.assertEqual({}, self.here.disk.passed)
        self.assertEqual(1, len(self.keys()))

    def test_look_that_began_before_it_was_noted(self):
        remote_attachment.look(self.here.node, self.before)
        self.assertEqual([self.guest.id], opened_by_a_boot(self.here))

    def test_what_nobody_noted_is_not_marked(self):
        """It has a record yet, is closed, and about to be attached."""
        lv, here = self.guest.volume.name, self.here
        remote_attachment.look(here.node)
        here.passed[self.guest.id] = B
        here.disk.tags[lv] -= {names.OPENED}
        self.guest.volume.status = 'reserved'
        self.guest.volume.volume_attachment = [attach_case.attachment(
            None)]
        with mock.patch.object(crypt.SimCrypt, 'mark') as mark:
            remote_attachment.look(here.node)
        mark.assert_not_called()
        self.assertNotIn(self.guest.id, here.passed)

    def test_key_was_changed_meanwhile(self):
        """The look does not note the secret of before."""
        volume = self.guest.volume
        old, key = self.keys(), rows.recorded(volume).key
        volume.provider_id = volume.provider_id.replace(key, key[::-1])
        self.assertNotEqual(key, rows.recorded(volume).key)
        self.here.reconciler.converge_moves()
        self.assertEqual({}, self.here.disk.passed)
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
            self.assertTrue(remote_attachment.look(self.here.node))
        self.assertEqual({}, self.here.passed)
        self.assertLessEqual(luks, tags[lv])


class LostMarkTest(encrypted_attach_case.Case):

    def test_rotated_while_it_is_open(self):
        """Its mark is made again; the key that is kept is not."""
        self.a.disk.sealed = {}
        found = self.serve(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.volume.volume_attachment[0].connection_info = dict(
            found['data'], driver_volume_type='local')
        self.assertIn(self.volume.id, self.a.disk.sealed)
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        rotate.rotate(self.a.node, self.volume.id)
        self.a.reconciler.converge_node()
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
        self.pass_through()
        self.assertIn(self.volume.id, self.b.disk.passed)
        self.assertIn(self.volume.id, self.b.disk.sealed)
        passes = dict(self.b.passed)
        self.b.stop(power=True)
        self.b.passed.update(passes)
        self.b.dead = False
        self.b.disk.passed = {}
        self.a.dead = True
        self.b.reconciler.converge_node()
        self.a.dead = False
        self.assertIn(self.volume.id, self.b.disk.sealed)

    def kept_of_another_backend(self, status, **attachment):
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.attach(status, *['a'] * (status == 'in-use'))
        for each in self.volume.volume_attachment:
            vars(each).update({'connection_info': {}, **attachment})
        self.volume.host = 'c@other'
        leftovers.sweep_sealed_keys(self.a.node)
        return bool(self.a.disk.sealed)

    def test_key_of_what_has_left_the_backend(self):
        """It could not be removed at the detach; retyped before a look."""
        self.assertFalse(self.kept_of_another_backend('available'))
        self.assertFalse(self.kept_of_another_backend(
            'in-use', connector=attach_case.ON_B))

    def test_key_of_what_another_service_of_this_node_has(self):
        self.assertTrue(self.kept_of_another_backend('in-use'))
        for lacks in ({'connector': None}, {'connection_info': None,
                                            'connector': {'host': 'b'}}):
            self.assertTrue(self.kept_of_another_backend('in-use', **lacks))
