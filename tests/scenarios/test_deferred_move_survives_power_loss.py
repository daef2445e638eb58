# SPDX-License-Identifier: Apache-2.0
"""Volumes are passed through, and follow, with a stop at every moment."""

import itertools
from unittest import mock

import ddt

from cinder_localclone.core.state import Phase
from cinder_localclone.moves import source
from tests.helpers import callers
from tests.helpers.deferred_case import B
from tests.helpers.deferred_case import C
from tests.helpers.deferred_case import Case
from tests.helpers.deferred_case import Guest
from tests.helpers.deferred_case import WAYS
from tests.helpers import move_case
from tests import world as worlds
from tests.world import records


@ddt.ddt
class DeferredMoveTest(Case):

    def run_with(self, way, stops, faults, signal=True, holes=()):
        guest = Guest(stops, faults, signal, holes)
        host = getattr(self, way)(guest)
        guest.check_at(host, self)
        return guest.world

    @ddt.data(*WAYS)
    def test_undisturbed(self, way):
        self.run_with(way, (), ('cut',))

    def run_encrypted(self, way, stops, faults, signal=True):
        """Nova formats what it attaches, each time."""
        guest = Guest(stops, faults, signal, encryption_key_id='key')
        host = getattr(self, way)(guest)
        guest.check_at(host, self)
        self.assertEqual(worlds.HEADER, guest.expected[0])
        return guest.world

    @ddt.data(*itertools.product(WAYS, (True, False)))
    @ddt.unpack
    def test_encrypted(self, way, signal):
        self.run_encrypted(way, (), ('cut',), signal)

    def deletion(self, stops, faults):
        """Detached, perhaps without a word, and deleted while it moves."""
        guest = Guest((), faults, False, encryption_key_id='key')
        guest.world.moment, guest.world.stop_at = 0, stops
        guest.detach(B)
        guest.volume.status = 'deleting'
        for _attempt in range(3):
            try:
                callers.delete(guest.world.home(guest.volume).node,
                               guest.volume)
            except worlds.Stopped:
                guest.world.recover()
            else:
                break
        del guest.world.volumes[guest.id]
        guest.world.settle()
        for node in guest.nodes.values():
            self.assertEqual([{}] * 3, [node.lvs, node.devices, node.links])
        return guest.world

    @ddt.data(*move_case.ONE)
    def test_encrypted_is_deleted_with_a_stop_at_every_moment(self, faults):
        self.stop_everywhere(lambda stops: self.deletion(stops, faults),
                             turn=move_case.ONE.index(faults))

    @ddt.data(*itertools.product(WAYS, move_case.ONE))
    @ddt.unpack
    def test_encrypted_with_a_stop_at_every_moment(self, way, faults):
        self.stop_everywhere(
            lambda stops: self.run_encrypted(way, stops, faults),
            turn=move_case.ONE.index(faults))

    @ddt.data(*itertools.product(
        WAYS, move_case.ONE, (True, False)))
    @ddt.unpack
    def test_stop_at_every_moment(self, way, faults, signal):
        self.stop_everywhere(
            lambda stops: self.run_with(way, stops, faults, signal),
            turn=move_case.ONE.index(faults) + signal)

    @ddt.data(*itertools.product(('third', 'returned'), move_case.TWO))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, way, faults):
        self.stop_everywhere(
            lambda stops: self.run_with(way, stops, faults), 2, nth=29)

    @ddt.data(*itertools.product(('third', 'live', 'back'), move_case.ONE))
    @ddt.unpack
    def test_of_a_thin_volume(self, way, faults):
        """The guest fills some of its holes before, and some meanwhile."""
        self.stop_everywhere(lambda stops: self.run_with(
            way, stops, faults, holes=(0, 2, 3)),
            turn=move_case.ONE.index(faults))

    def test_holes_are_left_out(self):
        guest = Guest(holes=(0, 2, 3))
        guest.detach(B)
        guest.attach(C)
        guest.live_on()
        done = [name for _host, name, _subject in guest.world.done]
        self.assertIn('leave_out', done[done.index('switch_to_clone'):])
        guest.check_at(C, self)

    def test_attached_remotely_then_moved(self):
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        self.assertEqual({guest.id: B}, guest.nodes[C].remotes)
        self.assertIs(guest.nodes[B], guest.world.home(guest.volume))
        guest.live_on()
        self.assertIs(guest.nodes[C], guest.world.home(guest.volume))
        self.assertIn('switch_to_clone', guest.world.effects(C))

    def test_exported_again_before_a_move_is_given_up(self):
        """Its home was rebooted: the guest waits, and a peer may not answer.

        At once it follows again, and is not at rest for long.
        """
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        self.cut_at(home, records.SimMoves, 'commit')
        exported = []
        with mock.patch.object(source, 'abandon', lambda *_which: (
                exported.append(set(home.remote)))):
            home.reconciler.reconcile(guest.id)
        self.assertEqual([{(guest.id, 'iqn.c')}], exported)
        guest.live_on()
        guest.check_at(C, self)

    def test_no_hydration_before_the_handle_is_on_the_clone(self):
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        guest.live_on()
        done = guest.world.effects(C)
        start = [n for n, (_host, name, _subject) in enumerate(
            guest.world.done) if name == 'switch_to_clone']
        on = [n for n, (host, name, _subject) in enumerate(guest.world.done)
              if (host, name) == (C, 'set_hydration')]
        self.assertEqual(1, len(start), done)
        self.assertLess(start[0], on[0])

    def test_why_it_does_not_follow(self):
        for lack in ('room', 'dead', 'group', 'detaching'):
            guest = Guest()
            guest.detach(B)
            guest.attach(C)
            there = guest.nodes[C]
            if lack == 'room':
                there.free = 1000
            elif lack == 'dead':
                there.dead = there.gone = True
            elif lack == 'group':
                guest.volume.group_id = 'g'
            else:
                guest.volume.status = 'detaching'
            for _round in range(6):
                guest.world.reconcile()
                guest.nodes[B].hydrate()
            self.assertIs(guest.nodes[B], guest.world.home(guest.volume),
                          lack)
            self.assertEqual({}, guest.world.move_records, lack)
            guest.read()

    def test_another_user_of_the_home_holds_it_back(self):
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        guest.nodes[B].opened.add(guest.handle)
        guest.live_on(6)
        self.assertIs(guest.nodes[B], guest.world.home(guest.volume))
        self.assertEqual({}, guest.world.move_records)

    def test_what_writes_meanwhile_is_not_left_behind(self):
        """The fence is looked at again, right before the commit."""
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        prepare = home.node.peers.prepare

        def meanwhile(*args):
            prepare(*args)
            home.opened.add(guest.handle)
        home.node.peers.prepare = meanwhile
        guest.live_on(6)
        self.assertIs(home, guest.world.home(guest.volume))

    def test_a_follow_waits_for_the_swap(self):
        """The home goes on serving while the destination's service is down."""
        guest = Guest()
        guest.detach(B)
        guest.attach(C)
        there = guest.nodes[C]
        reconcile = there.reconciler.reconcile_node
        there.reconciler.reconcile_node = lambda: None
        guest.live_on(6)
        move = there.node.moves.move_of(guest.id)
        self.assertTrue(move.committed and move.is_deferred)
        self.assertIs(Phase.MIGRATING, move.phase)
        self.assertEqual({guest.id: B}, there.remotes)
        there.reconciler.reconcile_node = reconcile
        guest.live_on()
        guest.check_at(C, self)
