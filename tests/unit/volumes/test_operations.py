# SPDX-License-Identifier: Apache-2.0
"""What an operator asks for one move, and when that is refused."""

from unittest import mock

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Event
from cinder_localclone.volumes import operations
from tests.helpers import locked
from tests.helpers import reconcile_case
from tests import world as worlds

A, B = reconcile_case.A, reconcile_case.B
OPERATIONS = (operations.abort, operations.go_forward,
              operations.open_without_source)


@ddt.ddt
class OperationsTest(reconcile_case.Base):

    def begin(self, event=Event.MOVE_BEGUN):
        return self.a.node.moves.begin(
            self.volume, B + '#p', event, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')

    def release(self):
        """A move that is over but for the source's clean-up."""
        self.a.move(self.volume, B)
        self.b.hydrate()
        move = self.move()
        for event in (Event.HYDRATED, Event.DRAINED):
            move = self.a.node.moves.advance(move, event)
        self.b.sessions.clear()
        return move

    def begin_live(self):
        """The guest is at the source still; nothing has it open there."""
        self.a.move(self.volume, B, live=True)

    def begin_cold(self):
        self.a.move(self.volume, B)

    def check_refused(self, operation, node):
        before = repr(self.world.snapshot())
        self.assertRaises(exceptions.NotPossible, operation, node.reconciler,
                          self.volume_id)
        self.assertEqual(before, repr(self.world.snapshot()))

    @ddt.data((begin, operations.abort, 'b'),
              (begin_live, operations.abort, 'a'),
              (begin_live, operations.go_forward, 'b'),
              (begin_cold, operations.open_without_source, 'a'))
    @ddt.unpack
    def test_on_the_wrong_node_nothing_is_done(self, begin, operation, node):
        begin(self)
        self.check_refused(operation, getattr(self, node))

    def test_resume_cleans_up(self):
        move = self.release()
        operations.go_forward(self.a.reconciler, self.volume_id)
        self.assertEqual({}, self.world.move_records)
        self.assertNotIn(move.source_lv, self.a.lvs)

    def test_resume_gives_up_what_is_not_committed(self):
        """No node is at work on it: the lock of the volume is free."""
        self.begin(Event.LIVE_MOVE_BEGUN)
        operations.go_forward(self.a.reconciler, self.volume_id)
        self.assertEqual({}, self.world.move_records)
        self.assertIs(self.a, self.world.home(self.volume))

    @ddt.data(begin, begin_live, release)
    def test_what_is_not_copied_needs_no_opening(self, begin):
        begin(self)
        self.check_refused(operations.open_without_source, self.b)

    @ddt.data(exceptions.LoginFailed(portal='p', reason='r'),
              exceptions.SourceUnreachable(portal='p', reason='r'))
    def test_opening_without_a_source(self, error):
        self.begin_cold()
        self.b.devices.clear()
        with mock.patch.object(worlds.SimSessions, 'attach',
                               side_effect=error):
            operations.open_without_source(self.b.reconciler, self.volume_id)
        self.assertIn(self.handle, self.b.devices)

    def test_opening_without_a_source_creates_no_lv(self):
        self.begin_cold()
        self.b.devices.clear()
        self.b.lvs.clear()
        self.assertRaises(
            exceptions.MissingData, operations.open_without_source,
            self.b.reconciler, self.volume_id)
        self.assertEqual(({}, {}), (self.b.lvs, self.b.devices))

    @ddt.data((begin, operations.abort, 'a'),
              (begin_live, operations.abort, 'b'),
              (release, operations.abort, 'a'),
              (begin_live, operations.go_forward, 'a'),
              (begin_cold, operations.open_without_source, 'b'))
    @ddt.unpack
    def test_the_volume_is_locked(self, begin, operation, node):
        begin(self)
        node = getattr(self, node)
        reconciler = node.reconciler
        reconciler.node = locked.node(node, self.volume_id)
        if operation == operations.open_without_source:
            error = self.assertRaises(exceptions.NotPossible, operation,
                                      reconciler, self.volume_id)
            # A step of its move may have been taken.
            self.assertNotIn('Nothing was changed', str(error))
        else:
            operation(reconciler, self.volume_id)
        self.assertEqual(set(), node.held)
