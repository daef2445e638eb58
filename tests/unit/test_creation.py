# SPDX-License-Identifier: Apache-2.0
"""Volumes are created whole or not at all, once or again."""

from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone import creation
from cinder_localclone import exceptions
from cinder_localclone import names
from tests.unit import world as worlds
from tests.unit.world import effects
from tests.unit.world import stack

A, B = 'a@l', 'b@l'
FULL = exceptions.CommandFailed(command='dmsetup', code=1, stderr='full')


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        # LVM says whether there is room; nothing is taken for granted before.
        self.useFixture(fixtures.MockPatchObject(
            effects, 'ALLOCATING', frozenset(effects.ALLOCATING)
            - {'create_lv'}))
        self.world = worlds.World()
        self.a = self.world.nodes[A]
        self.volume = self.world.row(A, status='creating')

    def create(self, host=A):
        creation.create(self.world.nodes[host].node, self.volume)

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
        with mock.patch.object(stack.SimStack, 'ensure_handle_on_lv',
                               side_effect=FULL):
            self.assertRaises(exceptions.CommandFailed, self.create)
        self.assert_nothing()

    def test_what_can_not_be_removed_does_not_hide_why(self):
        with mock.patch.object(stack.SimStack, 'ensure_handle_on_lv',
                               side_effect=FULL), mock.patch.object(
                stack.SimStack, 'remove_handle', side_effect=OSError):
            self.assertRaises(exceptions.CommandFailed, self.create)

    def test_what_an_earlier_call_has_left_is_made_anew(self):
        """As half of an image that was copied into it."""
        self.create()
        self.a.lvs[self.volume.name][0] = 'half of an image'
        self.create()
        self.assertNotIn('half of an image', self.a.lvs[self.volume.name])
        self.assert_there()

    def test_what_is_given_out_is_not(self):
        self.create()
        content = self.a.lvs[self.volume.name]
        self.volume.status = 'available'
        self.assertRaises(exceptions.TooLate, self.create)
        self.assertIs(content, self.a.lvs[self.volume.name])
        self.assert_there()

    def test_not_where_it_is_not_to_be(self):
        self.volume.status = 'creating'
        self.assertRaises(exceptions.StaleMove, self.create, B)
        self.assert_nothing(B)


@ddt.ddt
class GiveUpTest(Case):
    """After a create that has failed on A, Cinder asks A to delete."""

    def give_up(self):
        creation.give_up(self.a.node, self.volume)

    def leave(self):
        """What a failed create could not remove."""
        self.create()
        self.volume.host = None

    def test_what_is_left_goes(self):
        self.leave()
        self.give_up()
        self.assert_nothing()

    def test_what_is_left_of_a_row_that_is_gone_goes(self):
        self.leave()
        del self.world.volumes[self.volume.id]
        self.give_up()
        self.assert_nothing()

    @ddt.data('creating', 'available', 'in-use')
    def test_what_is_created_here_meanwhile_stays(self, status):
        self.create()
        self.volume.status = status
        self.give_up()
        self.assert_there()

    def test_what_is_created_elsewhere_meanwhile_stays(self):
        """And what is left here goes."""
        self.leave()
        self.volume.host = B + '#p'
        self.create(B)
        self.give_up()
        self.assert_there(B)
        self.assert_nothing()

    def test_what_has_come_back_since_stays(self):
        """Created on B, it may be used through this node already."""
        self.leave()
        self.volume.host, self.volume.status = B + '#p', 'available'
        self.give_up()
        self.assert_there()

    def test_what_is_being_created_here_is_waited_for(self):
        self.leave()
        is_home = creation.checks.is_home

        def look(node, row):
            self.assertIn(row.id, self.a.held)
            return is_home(node, row)
        with mock.patch.object(creation.checks, 'is_home', look):
            self.give_up()
        self.assert_nothing()

    def test_what_can_not_be_removed_is_logged(self):
        self.leave()
        with mock.patch.object(stack.SimStack, 'remove_handle',
                               side_effect=OSError('busy')), \
                mock.patch.object(creation, 'LOG') as log:
            self.give_up()
        self.assertIn('busy', str(log.error.call_args.args[1]['error']))
