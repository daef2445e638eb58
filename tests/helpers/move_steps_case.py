# SPDX-License-Identifier: Apache-2.0
"""A move, step by step."""

import contextlib

from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from tests.helpers import ended_move_case
from tests import world as worlds

A, B, C = ended_move_case.A, ended_move_case.B, ended_move_case.C
PREPARED = ['create_metadata', 'create_lv', 'attach', 'ensure_clone',
            'ensure_handle_on_clone', 'read_head']


class Base(ended_move_case.Base):

    def setUp(self):
        super().setUp()
        self.new_world()

    def new_world(self):
        self.world, self.volume, self.expected = self.begin()
        self.a, self.b, self.c = self.world.nodes.values()
        self.handle = names.handle(self.volume.id)

    def begun(self, event=Event.MOVE_BEGUN):
        """A move from A to B that was recorded and is offered, no more."""
        node = self.a.node
        with self.a.lock(self.volume.id):
            move = node.moves.begin(
                self.volume, B + '#p', event, worlds.GEOMETRY,
                lambda record: record, 'CHAP u s', 'i')
            node.handles.ensure_source(move)
            node.exports.export_source(move)
        return move

    def started(self):
        """A live move whose guest is still at its source."""
        self.a.opened.add(self.handle)
        return self.a.move(self.volume, B, live=True)

    def recorded(self):
        move, = self.world.move_records.values()
        return move

    def locked(self, node, act, *args):
        with node.lock(self.volume.id):
            return act(node.node, *args)

    @staticmethod
    def called(node, act, *args):
        """As by a peer: it takes the lock itself."""
        return act(node.node, *args)

    @contextlib.contextmanager
    def does(self, **expected):
        """What is done meanwhile, by the first letter of a node's host."""
        start = len(self.world.done)
        yield
        self.assertEqual(
            {'a': [], 'b': [], 'c': [], **expected},
            {host[0]: self.world.effects(host, start)
             for host in self.world.nodes})

    @staticmethod
    def first(room, name, act):
        """Something happens once, just before a method does its work."""
        call = getattr(room, name)

        def acting(*args):
            setattr(room, name, call)
            act()
            return call(*args)
        setattr(room, name, acting)
