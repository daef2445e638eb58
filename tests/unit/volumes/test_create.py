# SPDX-License-Identifier: Apache-2.0
"""Volumes are created whole or not at all, once or again."""

from unittest import mock

import ddt
import testtools

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.volumes import create
from cinder_localclone.volumes import uncommitted
from tests import world as worlds
from tests.world import crypt
from tests.world import records
from tests.world import stack

A, B = 'a@l', 'b@l'
FULL = exceptions.CommandFailed(command='dmsetup', code=1, stderr='full')


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.world.pool = 'pool'
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.row(A, status='creating')

    def create(self, host=A):
        create.create(self.world.nodes[host].node, self.volume.id)

    def goes_to_b(self):
        """Its creation on A has failed, and Cinder has it from B."""
        self.volume.host = B + '#p'
        self.create(B)
        self.volume.status = 'available'

    def assert_there(self, host=A):
        node = self.world.nodes[host]
        self.assertIn(self.volume.name, node.lvs)
        self.assertIn(names.handle(self.volume.id), node.devices)

    def assert_nothing(self, host=A):
        node = self.world.nodes[host]
        self.assertNotIn(self.volume.name, node.lvs)
        self.assertNotIn(names.handle(self.volume.id), node.devices)


class CreateTest(Case):

    def test_created(self):
        self.create()
        self.assert_there()

    def test_nothing_is_left_of_what_fails(self):
        with mock.patch.object(stack.SimHandles, 'ensure_handle_on_lv',
                               side_effect=FULL):
            self.assertRaises(exceptions.CommandFailed, self.create)
        self.assert_nothing()

    def test_nothing_is_left_whatever_fails(self):
        with mock.patch.object(stack.SimHandles, 'ensure_handle_on_lv',
                               side_effect=OSError):
            self.assertRaises(OSError, self.create)
        self.assert_nothing()

    def test_what_can_not_be_removed_does_not_hide_why(self):
        with mock.patch.object(stack.SimHandles, 'ensure_handle_on_lv',
                               side_effect=FULL), mock.patch.object(
                stack.SimHandles, 'remove_handle', side_effect=OSError):
            self.assertRaises(exceptions.CommandFailed, self.create)

    def test_what_an_earlier_call_has_made_stays(self):
        """As an image: Cinder may be about to give it away."""
        self.create()
        self.a.lvs[self.volume.name][0] = 'an image'
        self.assertRaises(exceptions.AlreadyThere, self.create)
        self.assertIn('an image', self.a.lvs[self.volume.name])
        self.assert_there()

    def test_as_long_as_its_row_says(self):
        """As by a try on a node of a type that was encrypted then."""
        self.volume.provider_id = crypt.recorded('secret')
        self.create()
        self.assertEqual(
            worlds.GIB + volume_types.HEADER_BYTES,
            self.a.disk.size(self.volume.name))
        self.assertEqual(
            str(volume_types.HEADER_BYTES), names.facts(
                self.a.disk.tags[self.volume.name])['extra'])

    def test_handle_as_long_as_its_row_says(self):
        """The row may change while the lock is waited for."""
        lock = worlds.SimNode.lock

        def waited(node, name):
            self.volume.size = 2
            return lock(node, name)
        with mock.patch.object(worlds.SimNode, 'lock', waited):
            self.create()
        self.assertEqual(2 * worlds.GIB, self.a.disk.size(self.volume.name))
        self.assertEqual(
            self.a.disk.size(self.volume.name),
            self.a.sim_handles.survey().handle(
                self.volume.id).sectors * state.SECTOR)

    def test_what_is_given_out_is_not(self):
        self.create()
        content = self.a.lvs[self.volume.name]
        self.volume.status = 'available'
        self.assertRaises(exceptions.TooLate, self.create)
        self.assertIs(content, self.a.lvs[self.volume.name])
        self.assert_there()

    def test_what_may_have_been_given_out_is_not(self):
        """As by a version that did not say so of its LVs."""
        self.create()
        tags = self.a.disk.tags
        tags[self.volume.name] -= {names.UNCOMMITTED}
        self.a.write(self.volume.id, 0, 'data')
        self.assertRaises(exceptions.AlreadyThere, self.create)
        self.assertIn('data', self.a.lvs[self.volume.name])

    def test_an_image_that_could_not_be_extended(self):
        """Cinder leaves the status as it is: see test_created_again."""
        self.volume.status = 'downloading'
        self.create()
        self.assert_there()

    def test_nobody_was_given_it_yet(self):
        """Until Cinder has taken it: no boot gives it out."""
        self.create()
        for status in ('creating', 'downloading', 'available'):
            self.volume.status = status
            self.a.reconciler.reconcile_node()
            self.assertEqual(
                status != 'available',
                names.UNCOMMITTED in self.a.disk.tags[self.volume.name])

    def test_not_where_it_is_not_to_be(self):
        self.volume.status = 'creating'
        self.assertRaises(exceptions.TooLate, self.create, B)
        self.assert_nothing(B)


@ddt.ddt
class GiveUpTest(Case):
    """After a create that has failed on A, Cinder asks A to delete."""

    def give_up(self):
        create.give_up(self.a.node, self.volume)

    def leave(self):
        """What a failed create could not remove."""
        self.create()
        self.volume.host = None

    @ddt.data('creating', 'downloading', 'error', 'deleting')
    def test_what_is_left_goes(self, status):
        self.leave()
        self.volume.status = status
        self.give_up()
        self.assert_nothing()

    def test_what_is_left_of_a_row_that_is_gone_goes(self):
        self.leave()
        self.world.destroy(self.volume)
        self.give_up()
        self.assert_nothing()

    @ddt.data('creating', 'downloading', 'available', 'in-use', 'error')
    def test_what_is_created_here_meanwhile_stays(self, status):
        self.create()
        self.volume.status = status
        self.give_up()
        self.assert_there()

    @ddt.data('creating', 'available')
    def test_what_is_created_elsewhere_meanwhile_stays(self, status):
        """And what is left here goes."""
        self.leave()
        self.volume.host = B + '#p'
        self.create(B)
        self.volume.status = status
        self.give_up()
        uncommitted.sweep(self.a.node)
        self.assert_there(B)
        self.assert_nothing()

    def test_what_is_in_use_stays(self):
        self.leave()
        self.volume.host, self.volume.status = B + '#p', 'available'
        self.a.opened.add(names.handle(self.volume.id))
        self.give_up()
        self.assert_there()

    def test_what_was_given_out_stays(self):
        """Whatever took its home away."""
        self.create()
        self.volume.status = 'available'
        self.world.settle()
        self.volume.host, self.volume.status = None, 'creating'
        self.give_up()
        self.assert_there()

    def test_what_is_being_created_here_is_waited_for(self):
        self.leave()
        uncommitted = self.a.node.volumes.last_known

        def sweep(volume_id):
            self.assertIn(volume_id, self.a.held)
            return uncommitted(volume_id)
        with mock.patch.object(records.SimVolumes, 'last_known',
                               side_effect=sweep):
            self.give_up()
        self.assert_nothing()

    def test_what_can_not_be_removed_is_logged_and_tried_again(self):
        self.leave()
        with mock.patch.object(stack.SimHandles, 'remove_handle',
                               side_effect=OSError('busy')), \
                mock.patch.object(create, 'LOG') as log:
            self.give_up()
        self.assertIn('busy', str(log.warning.call_args.args[1]['error']))
        self.assert_there()
        self.goes_to_b()
        self.world.reconcile()
        self.assert_nothing()
        self.assert_there(B)


class KilledTest(Case):
    """A node dies before Cinder has asked it to delete what is left."""

    def setUp(self):
        super().setUp()
        self.create()
        self.a.write(self.volume.id, 0, 'older')
        self.goes_to_b()

    def test_no_boot_gives_it_out(self):
        found, = boot_plan.plan(self.a.sim_handles.survey())
        self.assertEqual(boot_plan.UNCOMMITTED, found.reason)

    def test_it_is_swept_away(self):
        self.world.reconcile()
        self.assert_nothing()
        self.assert_there(B)

    def test_the_volume_comes_there(self):
        """And is restored there, when that boots."""
        self.world.reconcile()
        self.b.write(self.volume.id, 1, 'data')
        self.b.move(self.b.node.volumes.volume(self.volume.id), A)
        self.world.settle()
        self.assertEqual([''], [
            each.reason for each in boot_plan.plan(self.a.sim_handles.survey())
            if each.lv == self.volume.name])


class ThickTest(Case):

    def test_what_goes_is_cleared(self):
        """The next owner of the space could read it."""
        self.world.pool = None
        self.create()
        self.goes_to_b()
        self.world.reconcile()
        self.assertEqual([{}, []], [self.a.lvs, self.world.wrongs])


class EncryptedByNovaTest(Case):

    def setUp(self):
        super().setUp()
        self.world.secrets.kept['key'] = ('an owner\'s', b'61626364')
        self.volume = self.world.row(A, status='creating',
                                     encryption_key_id='key')

    def create(self, host=A):
        create.create_for_nova(
            self.world.nodes[host].node, 'the owner\'s', self.volume,
            volume_types.HeaderForNova('c', 256))

    def test_what_an_earlier_call_has_made_stays(self):
        self.create()
        self.assertRaises(exceptions.AlreadyThere, self.create)
        self.assert_there()

    def test_what_is_left_of_an_image_goes(self):
        self.create()
        self.volume.status = 'downloading'
        self.a.reconciler.reconcile_node()
        self.goes_to_b()
        self.world.reconcile()
        self.assert_nothing()
        self.assert_there(B)
