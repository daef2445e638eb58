# SPDX-License-Identifier: Apache-2.0
"""For how long what LVM has shown is believed."""

import contextlib
import dataclasses
import time

import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.moves import destination
from tests.helpers import move_steps_case
from tests import world as worlds


class ListingTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.asked, self.meanwhile = 0, None
        self.listing = nodes.Listing(self.lvs)

    def lvs(self):
        self.asked += 1
        shown = {'lv-%d' % self.asked: None}
        if self.meanwhile:
            self.meanwhile()
        return shown

    def test_a_moment_later(self):
        self.assertEqual(['lv-1'], list(self.listing.ask(10)))
        self.assertEqual(['lv-1'], list(self.listing.recent(11.9)))

    def test_later(self):
        self.listing.ask(10)
        self.assertEqual(['lv-2'], list(self.listing.recent(12)))

    def test_nobody_has_asked(self):
        self.assertEqual(['lv-1'], list(self.listing.recent(10)))

    def test_none_is_an_answer_too(self):
        empty = nodes.Listing(lambda: self.lvs() and {})
        empty.ask(10)
        self.assertEqual({}, empty.recent(10))
        self.assertEqual(1, self.asked)

    def test_once_somebody_has_taken_room(self):
        self.listing.ask(10)
        self.listing.spend()
        self.assertEqual(['lv-2'], list(self.listing.recent(10)))

    def test_somebody_takes_room_while_lvm_answers(self):
        """It may have shown what there was before."""
        self.meanwhile = self.listing.spend
        self.listing.ask(10)
        self.meanwhile = None
        self.assertEqual(['lv-2'], list(self.listing.recent(10)))
        self.assertEqual(['lv-2'], list(self.listing.recent(10)))

    def test_who_asks_is_always_answered_anew(self):
        self.listing.ask(10)
        self.assertEqual(['lv-2'], list(self.listing.ask(10)))


class NodeTest(testtools.TestCase):

    def test_room_that_was_taken_since(self):
        """Two volumes for which there was room arrive, one after the other."""
        node = worlds.World().nodes['b@l']
        shown = node.node.listing.ask(10)
        with node.node.allocation_lock():
            self.assertIs(shown, node.node.listing.recent(10))
            node.disk.create('volume-x', 'x', [''])
        with node.node.allocation_lock():
            self.assertIn('volume-x', node.node.listing.recent(10))

    def test_what_could_not_be_taken(self):
        """LVM may do it yet."""
        node = worlds.World().nodes['b@l'].node
        shown = node.listing.ask(10)
        with contextlib.suppress(KeyError), node.allocation_lock():
            raise KeyError
        self.assertIsNot(shown, node.listing.recent(10))

    def test_who_comes_next_asks_anew(self):
        """He may have waited for the lock."""
        @contextlib.contextmanager
        def lock(_name):
            yield
            found.append(node.listing.recent(10))
        found = []
        node = dataclasses.replace(
            worlds.World().nodes['b@l'].node, lock=lock)
        shown = node.listing.ask(10)
        with node.allocation_lock():
            pass
        self.assertIsNot(shown, found[0])


class ArrivalTest(move_steps_case.Base):

    def test_prepared_again(self):
        """What was written here since stays what counts."""
        move = self.begun()
        prepare = destination.prepare, move.move_id, move.token.nonce
        self.called(self.b, *prepare)
        local = self.b.lvs[names.metadata_lv(move.move_id)]['local']
        local.add(1)
        self.called(self.b, *prepare)
        self.assertEqual({1}, self.b.lvs[
            names.metadata_lv(move.move_id)]['local'])

    def test_what_was_shown_long_ago(self):
        self.world.pool = 'pool'
        self.b.free = 3 * worlds.GIB // 2
        move = self.begun()
        self.b.disk.create('volume-there', 'y', ['empty'] * 4)
        self.b.node.listing.ask(time.monotonic() - 9)
        other = '00000009-0000-4000-8000-000000000000'
        self.b.disk.create(names.metadata_lv(other), 'x', {'local': set()})
        self.b.disk.create('volume-' + other, 'x', ['empty'] * 4)
        self.assertRaises(exceptions.NoFreeSpace, self.called, self.b,
                          destination.prepare, move.move_id,
                          move.token.nonce)
