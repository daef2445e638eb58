# SPDX-License-Identifier: Apache-2.0
"""A move at its source: released, given up, committed without an answer."""

import contextlib
import dataclasses
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import source
from cinder_localclone.volumes import operations
from tests.helpers import move_steps_case
from tests.helpers import specs
from tests import world as worlds

A, B = move_steps_case.A, move_steps_case.B


class SourceTest(move_steps_case.Base):

    def test_moves_after_a_reboot(self):
        """Nothing has made its handle yet."""
        self.a.stop(power=True)
        self.a.dead = False
        self.a.move(self.volume, B)
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def test_open_source_is_not_released(self):
        move = self.started()
        del self.world.told[:]
        with self.does():
            self.assertRaises(exceptions.SourceBusy, self.locked, self.a,
                              source.begin_hydration, move)
        self.assertEqual([], self.world.told)

    def test_what_was_written_is_durable_once_it_is_released(self):
        """The guest's flushes reach the destination alone from then on."""
        def scenario(stops):
            self.new_world()
            move = self.started()
            self.a.write(self.volume.id, 1, 'late', flushed=False)
            self.a.opened.clear()
            self.world.moment, self.world.stop_at = 0, stops
            with contextlib.suppress(worlds.Stopped):
                self.locked(self.a, source.begin_hydration, move)
            self.a.stop(power=True)
            if self.recorded().phase is Phase.MIGRATING:
                self.assertEqual('late', self.a.lvs[move.source_lv][1])
            return self.world
        self.stop_everywhere(scenario)

    def test_remote_host_leaves_it(self):
        """Its own node has no session with it that might be down."""
        self.a.node.exports.export_volume(self.volume.id, 'iqn.x', '')
        self.started()
        self.a.opened.clear()
        with self.does():
            self.locked(self.a, cleanup.end_exports, self.volume.id,
                        'iqn.x')
        self.assertEqual(set(), self.a.remote)

    def test_interrupted(self):
        self.begun()
        self.locked(self.a, source.abandon_interrupted, self.volume.id)
        self.check(self.world, self.volume, self.expected)

    def test_not_interrupted(self):
        """Another node's; one that is committed; none."""
        def nothing(node):
            with self.does():
                self.locked(node, source.abandon_interrupted,
                            self.volume.id)
        nothing(self.a)
        move = self.begun()
        nothing(self.b)
        self.locked(self.a, lambda node: node.moves.commit(move))
        nothing(self.a)

    def test_given_up_while_its_destination_is_gone(self):
        move = self.begun()
        self.lose(self.b)
        operations.abort(self.a.reconciler, self.volume.id)
        self.assertIsNone(self.move(self.world, self.volume))
        self.assertIn(move.move_id, self.a.exports)
        self.bring_back(self.world)
        self.check(self.world, self.volume, self.expected)


@ddt.ddt
class RunTest(testtools.TestCase):

    @ddt.data((False, False, True), (True, False, False),
              (False, True, False))
    @ddt.unpack
    def test_handle_that_a_guest_uses_stays(self, live, deferred, goes):
        """Here, or through its export: a boot makes it again."""
        node, volume = specs.node(host=A), mock.Mock(id='v')
        committed = mock.Mock(keeps_handle=live, is_deferred=deferred)
        with mock.patch.object(source.flow, 'run', return_value={
                'committed': committed}), mock.patch.object(
                    source, 'drop_handle') as drop:
            self.assertIs(committed, source.run(
                node, volume, B, mock.Mock()))
        self.assertEqual([mock.call(node, committed)] * goes,
                         drop.mock_calls)
        node.peers.reconcile_soon.assert_called_once_with(B, 'v')


class CommitTest(move_steps_case.Base):
    """The database commits or does not; the answer is lost."""

    def commits(self, swap, found):
        """Move; the answer to the commit is lost.

        :param swap: whether the identities are swapped
        :param found: what is found of the move then; raises if that fails
        """
        rows = self.a.node.moves._inner
        commit, get_move = rows.commit, rows.get_move

        def lost(move):
            if swap:
                commit(move)
            rows.get_move = lambda move_id: found(get_move(move_id))
            raise IOError('no answer to the commit')
        rows.commit = lost
        try:
            return self.a.move(self.volume, B)
        finally:
            rows.commit, rows.get_move = commit, get_move

    def fails(self, swap, found):
        error = self.assertRaises(IOError, self.commits, swap, found)
        self.assertIn('to the commit', str(error))
        self.world.settle()
        self.assertEqual(B if swap else A, self.world.home(self.volume).host)
        self.check(self.world, self.volume, self.expected)

    def test_committed(self):
        committed = self.commits(True, lambda move: move)
        self.assertEqual(self.recorded(), committed)
        self.assertEqual([(A, B, self.volume.id)], self.world.told)

    def test_not_committed(self):
        self.fails(False, lambda move: move)

    def test_another_move_is_committed(self):
        self.fails(True, lambda move: dataclasses.replace(
            move, token=dataclasses.replace(move.token, nonce='another')))

    def test_no_move_is_found(self):
        self.fails(True, lambda move: None)

    def test_the_database_is_down(self):
        def down(move):
            raise exceptions.StaleMove(volume='?')
        self.fails(True, down)
