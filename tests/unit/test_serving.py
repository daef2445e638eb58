# SPDX-License-Identifier: Apache-2.0
"""What guests elsewhere have through a node waits for nothing else there."""

from unittest import mock

from cinder_localclone import encryption_errors
from cinder_localclone import events
from cinder_localclone import exceptions
from cinder_localclone.moves import destination
from cinder_localclone.moves import follow
from cinder_localclone.moves import offering
from cinder_localclone import served
from cinder_localclone import serving
from cinder_localclone import tops
from tests.unit import test_follow
from tests.unit import test_reconcile
from tests.unit import world as worlds
from tests.unit.world import iscsi
from tests.unit.world import peers
from tests.unit.world import stack

A, B, C = test_follow.A, test_follow.B, test_follow.C


class OrderTest(test_reconcile.Base):
    """A node that is the source of a move, and the destination of another."""

    def setUp(self):
        super().setUp()
        self.a.move(self.volume, B)
        self.arriving = self.world.create_volume(B)
        while self.arriving.id > self.volume_id:  # it is the first in order
            self.arriving = self.world.create_volume(B)
        self.b.move(self.arriving, A)
        self.a.stop(power=True)
        self.a.dead = False
        self.assertEqual({}, self.a.exports)
        self.shadow_id = self.a.node.records.move_of(
            self.volume_id).shadow_id

    def test_before_a_source_that_does_not_answer(self):
        seen = []

        def rebuild(*_which):
            seen.append(set(self.a.exports))
            raise exceptions.SourceUnreachable(portal='p', reason='r')
        with mock.patch.object(destination, 'rebuild', rebuild):
            self.a.reconciler.converge_moves()
        self.assertIn(self.shadow_id, seen[0])

    def test_when_the_service_starts(self):
        """Not only by the first look, after all that is at rest."""
        self.a.reconciler.converge_node(moves=False)
        self.assertIn(self.shadow_id, self.a.exports)

    def test_one_that_fails_stops_no_other(self):
        with mock.patch.object(stack.SimStack, 'ensure_source',
                               side_effect=exceptions.MissingData(
                                   what='LV', volume='v', host='h')):
            self.a.reconciler.converge_node(moves=False)
        self.assertEqual({}, self.a.exports)
        self.a.reconciler.converge_node(moves=False)
        self.assertIn(self.shadow_id, self.a.exports)


class ArrivedTest(test_follow.Case):
    """A copy has come to its end, and the power of its home fails."""

    def stop_at(self, name):
        """The guest is on C, and has its volume through B."""
        guest = test_follow.Guest()
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        self.cut_at(home, stack.SimStack, name)
        self.assertEqual(set(), home.remote)
        return guest, home

    def test_served_before_it_follows(self):
        for name in 'remove_clone', 'flush_lv':
            guest, home = self.stop_at(name)
            seen = []
            with mock.patch.object(
                    follow.Followers, 'follow',
                    lambda *_which, home=home, seen=seen: seen.append(
                        set(home.remote))):
                home.reconciler.converge(guest.id)
            self.assertEqual([{(guest.id, 'iqn.c')}], seen)
            guest.live_on()
            guest.check_at(C, self)

    def test_served_whatever_keeps_it_from_its_end(self):
        guest, home = self.stop_at('remove_clone')
        with mock.patch.object(
                stack.SimStack, 'remove_clone',
                side_effect=exceptions.CommandFailed(
                    command='dmsetup', code=1, stderr='busy')):
            self.assertRaises(exceptions.CommandFailed,
                              home.reconciler.converge, guest.id)
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_ended_without_its_key(self):
        """That opens it, and copies nothing."""
        guest, home = self.stop_at('remove_clone')
        with mock.patch.object(tops, 'converge', side_effect=(
                encryption_errors.KeyUnavailable(reason='away'))):
            self.assertRaises(encryption_errors.KeyUnavailable,
                              home.reconciler.converge, guest.id)
        self.assertIsNone(home.node.records.move_of(guest.id))
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)

    def test_served_and_its_source_is_away(self):
        """All is local, and waits to be compared."""
        with mock.patch.object(worlds.SimNode, 'COMPARE_WAIT', 3600):
            guest = test_follow.Guest(holes=(0, 2, 3))
        guest.detach(B)
        guest.attach(C)
        home = guest.nodes[B]
        home.reconciler.converge(guest.id)
        home.hydrate(flushed=True)
        guest.nodes[A].stop(power=True)
        guest.nodes[A].gone = True
        guest.node = None
        home.stop(power=True)
        home.dead = False
        home.reconciler.converge(guest.id)
        self.assertIsNotNone(home.node.records.move_of(guest.id))
        self.assertEqual({(guest.id, 'iqn.c')}, home.remote)


class SettleTest(test_reconcile.AtRestTest):

    def setUp(self):
        super().setUp()
        self.serving = self.a.reconciler.serving

    def two(self):
        """Two hosts have it: its guest is about to go from one to the other.
        """
        self.served('in-use')
        first, = self.volume.volume_attachment
        self.served('in-use', initiator='iqn.y')
        self.volume.volume_attachment.insert(0, first)
        self.assertEqual(['iqn.x', 'iqn.y'], [
            each.iqn for each in served.connections(self.volume)])

    def test_one_that_fails_stops_no_other(self):
        self.two()
        offer, failed = iscsi.SimExports.offer_again, KeyError('odd')

        def fail(this, volume_id, initiator, *more):
            if initiator == 'iqn.x':
                raise failed
            offer(this, volume_id, initiator, *more)
        with mock.patch.object(iscsi.SimExports, 'offer_again', fail):
            with self.a.lock(self.volume_id):
                self.assertIs(failed, self.assertRaises(
                    KeyError, self.serving.settle, self.volume, None))
        self.assertEqual({(self.volume_id, 'iqn.y')}, self.a.remote)

    def test_one_that_can_not_be_withdrawn_stops_no_other(self):
        self.a.node.exports.offer_volume(self.volume_id, 'iqn.z', 'auth')
        self.served('in-use')
        with mock.patch.object(
                iscsi.SimExports, 'withdraw_unnamed',
                side_effect=exceptions.TargetHangs(target='t', since='s')):
            self.converge()
        self.assertIn((self.volume_id, 'iqn.x'), self.a.remote)

    def test_tried_again_by_the_next_look_at_moves(self):
        """A guest waits for it: not only every localclone_node_interval."""
        self.served('in-use')
        with mock.patch.object(iscsi.SimExports, 'offer_again',
                               side_effect=OSError('no such address')):
            self.converge()
            self.a.reconciler.converge_moves()
        self.assertEqual(set(), self.a.remote)
        self.a.reconciler.converge_moves()
        self.assertEqual({(self.volume_id, 'iqn.x')}, self.a.remote)
        with mock.patch.object(serving.Serving, 'settle') as settle:
            self.a.reconciler.converge_moves()
        settle.assert_not_called()

    def test_trouble_of_all_is_met_once_in_a_look(self):
        """And another one is tried each time."""
        self.served('in-use')
        other = self.world.create_volume(A)
        other.status = 'in-use'
        other.volume_attachment = self.volume.volume_attachment
        tried = []

        def fail(_this, volume_id, *_more):
            tried.append(volume_id)
            raise exceptions.TargetHangs(target='t', since='s')
        with mock.patch.object(iscsi.SimExports, 'offer_again', fail):
            self.converge()
            del tried[:]
            for count in 1, 2:
                self.a.reconciler.converge_moves()
                self.assertEqual(count, len(tried))
        self.assertEqual({self.volume_id, other.id}, set(tried))
        self.a.reconciler.converge_moves()
        self.assertEqual({(self.volume_id, 'iqn.x'), (other.id, 'iqn.x')},
                         self.a.remote)

    def test_one_that_is_gone_is_tried_no_more(self):
        self.served('in-use')
        with mock.patch.object(iscsi.SimExports, 'offer_again',
                               side_effect=OSError):
            self.converge()
        del self.world.volumes[self.volume_id]
        for _look in range(2):
            with mock.patch.object(events, 'say') as say:
                self.a.reconciler.converge_moves()
            say.assert_not_called()
        self.assertEqual({}, self.serving._unsettled)

    def test_strays_of_other_volumes_are_not_waited_for(self):
        self.served('in-use')
        seen = []
        with mock.patch.object(offering, 'withdraw_strays', lambda *_which: (
                seen.append(set(self.a.remote)))):
            self.a.reconciler.converge(self.volume_id)
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)

    def test_the_bus_is_not_waited_for(self):
        """Other nodes are prompted to clean up after that."""
        self.served('in-use')
        left, seen = mock.Mock(cleanup_node=B, volume_id=self.volume_id), []
        with mock.patch.object(
                self.a.node.records._inner, 'remains_of',
                lambda _volume_id: [left]), mock.patch.object(
                    peers.SimPeers, 'converge_soon', lambda *_which: (
                        seen.append(set(self.a.remote)))):
            self.a.reconciler.converge(self.volume_id)
        self.assertEqual([{(self.volume_id, 'iqn.x')}], seen)
