# SPDX-License-Identifier: Apache-2.0
"""What needs nothing is not touched; what does is seen to at once."""

import contextlib
import dataclasses
import types
from unittest import mock

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import source
from cinder_localclone.volumes import quick_check
from tests.helpers import reconcile_case
from tests.helpers import specs

A, B = reconcile_case.A, reconcile_case.B


class Case(reconcile_case.Base):

    def setUp(self):
        super().setUp()
        self.a.move(self.volume, B)
        self.move_id = self.move().move_id
        self.source = names.source(self.move_id)

    def exported(self):
        return quick_check.exported_on(
            self.a.node, self.a.node.moves.moves_of(A))

    def sweep(self):
        """What the source does at a look: the methods that have an effect."""
        before = len(self.world.done)
        self.a.reconciler.reconcile_moves()
        self.assertEqual([], self.world.wrongs)
        return self.world.effects(A, before)


@ddt.ddt
class ExportedTest(Case):

    def test_all_is_there(self):
        """Nobody's lock is taken, and no row of a volume is read."""
        self.assertEqual({self.volume_id}, self.exported())
        rows = type(self.a.node.volumes._inner)
        with mock.patch.object(self.a.reconciler, 'reconcile_locked') as (
                reconcile), mock.patch.object(rows, 'volume') as volume:
            self.assertEqual([], self.sweep())
        reconcile.assert_not_called()
        volume.assert_not_called()

    @ddt.data(
        lambda test: test.a.exports.clear(),
        lambda test: (test.a.exports.clear(), test.a.devices.clear()),
        # Others have a handle of it, or what it was served by.
        lambda test: test.a.devices.update({
            test.handle: {'below': test.move().source_lv}}),
        lambda test: test.a.remote.add((test.volume_id, 'iqn.x')))
    def test_what_is_not_as_it_should_be_is_mended_at_this_look(self, spoil):
        self.volume.status = 'available'
        before = repr(self.world.snapshot()[0])
        spoil(self)
        self.assertNotEqual(before, repr(self.world.snapshot()[0]))
        self.assertEqual(set(), self.exported())
        self.sweep()
        self.assertEqual(before, repr(self.world.snapshot()[0]))
        self.assertEqual({self.volume_id}, self.exported())

    def test_after_a_power_cut(self):
        self.a.stop(power=True)
        self.a.dead = False
        self.assertEqual(set(), self.exported())
        self.sweep()
        self.assertEqual({self.volume_id}, self.exported())

    @ddt.data({'suspended': True}, {'table': '0 8 error'}, {'table': ''},
              {'table': '0 8 linear 253:5 0'})
    def test_a_source_device_that_is_not_usable(self, wrong):
        device = self.a.sim_handles.devices()[self.source]
        handles = specs.port('handles')
        handles.devices.return_value = {
            self.source: dataclasses.replace(device, **wrong)}
        node = types.SimpleNamespace(host=A, handles=handles,
                                     exports=self.a.node.exports)
        moves = self.a.node.moves.moves_of(A)
        self.assertEqual(set(), quick_check.exported_on(node, moves))
        handles.devices.return_value = {self.source: device}
        self.assertEqual({self.volume_id},
                         quick_check.exported_on(node, moves))

    def test_what_is_over_is_taken_down(self):
        self.b.reconciler.reconcile_node()
        self.b.hydrate()
        self.b.reconciler.reconcile_node()
        self.assertIs(Phase.RELEASING, self.world.move_records[
            self.move_id].phase)
        self.assertEqual(set(), self.exported())
        self.sweep()
        self.assertEqual({}, self.world.move_records)

    def test_completing(self):
        self.a.node.moves.advance(self.move(), Event.HYDRATED)
        self.assertEqual({self.volume_id}, self.exported())

    def test_one_that_has_left_something_before(self):
        """Remains and a move of one volume: what is left is taken down."""
        found = self.a.node.moves.moves_of(A)
        self.assertEqual(set(),
                         quick_check.exported_on(self.a.node, found * 2))

    def test_at_its_destination(self):
        self.assertEqual(set(), quick_check.exported_on(
            self.b.node, self.b.node.moves.moves_of(B)))

    @ddt.data('devices', 'remote', 'is_source_exported_as_recorded')
    def test_what_cannot_be_looked_at_is_seen_to(self, what):
        room = self.a.node.handles if what == 'devices' else (
            self.a.node.exports)
        for error in (exceptions.CommandTimeout(command='x', seconds=1),
                      OSError('x')):
            with mock.patch.object(type(room._inner), what,
                                   side_effect=error):
                self.assertEqual(set(), self.exported())

    def test_the_look_at_all_of_the_node_trusts_no_glance(self):
        with contextlib.ExitStack() as patches:
            sweep, reconcile = (
                patches.enter_context(mock.patch.object(*what)) for what in (
                    (quick_check, 'exported_on'),
                    (self.a.reconciler, 'reconcile_locked')))
            self.a.reconciler.reconcile_node()
        sweep.assert_not_called()
        reconcile.assert_called_once_with(self.volume_id)


class OthersTest(reconcile_case.Base):
    """The database is to be asked of these, or they have yet to go on."""

    def exported(self):
        return quick_check.exported_on(
            self.a.node, self.a.node.moves.moves_of(A))

    def test_live(self):
        self.a.move(self.volume, B, live=True)
        self.assertEqual(set(), self.exported())

    def test_not_committed(self):
        with self.a.lock(self.volume_id), mock.patch.object(
                type(self.a.node.moves._inner), 'commit',
                side_effect=exceptions.StaleMove(volume='x')), (
                    mock.patch.object(source, 'abandon')):
            self.assertRaises(
                exceptions.StaleMove, source.move_volume, self.a.node,
                self.volume, B)
        self.assertFalse(self.move().committed)
        self.assertEqual(set(), self.exported())

    def test_of_what_is_deferred(self):
        """Its home may have to serve it still."""
        self.a.move(self.volume, B)
        moves = [types.SimpleNamespace(
            volume_id=each.volume_id, move_id=each.move_id, source=A,
            committed=True, phase=each.phase, keeps_handle=False,
            is_deferred=True, size_bytes=each.size_bytes,
            location=each.location, initiator=each.initiator,
            auth=each.auth)
            for each in self.a.node.moves.moves_of(A)]
        self.assertEqual(set(), quick_check.exported_on(self.a.node, moves))
        moves[0].is_deferred = False
        self.assertEqual({self.volume_id},
                         quick_check.exported_on(self.a.node, moves))
