# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be copied: what the nodes do about it."""

import errno
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import copying
from cinder_localclone.moves import hydration
from cinder_localclone.volumes import exports
from tests import world as worlds

A, B, C, D = 'a@l', 'b@l', 'c@l', 'd@l'
NONE = copies.Limits(0, 0)


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self, hosts=(A, B), limits=None):
        self.world = worlds.World(hosts=hosts)
        for node in self.world.nodes.values():
            object.__setattr__(node.node, 'limits', limits
                               or copies.Limits())
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]

    def moving(self, count, source=A, destination=B):
        volumes = [self.world.create_volume(source) for _each in range(count)]
        for volume in volumes:
            self.world.nodes[source].move(volume, destination)
        return volumes

    def copying(self):
        """The volumes that the kernels copy at this moment."""
        return [move.volume_id for move in self.world.move_records.values()
                for node in self.world.nodes.values()
                if node.devices.get(names.clone(move.move_id), {}).get(
                    'hydrating')]

    def sweep(self, *nodes):
        for node in nodes or self.world.nodes.values():
            node.reconciler.reconcile_moves()

    def check(self, volumes, host=B):
        self.world.settle()
        node = self.world.nodes[host]
        for volume in volumes:
            self.assertEqual(
                ['%s%d' % (volume.id[:4], n) for n in range(worlds.REGIONS)],
                [node.read(volume.id, n) for n in range(worlds.REGIONS)])
        self.assertEqual({}, self.world.move_records)


class ManyTest(Base):

    def test_twenty_at_once(self):
        volumes = self.moving(20)
        ids, most = [each.id for each in volumes], 0
        for _round in range(40):
            self.sweep()
            copying = self.copying()
            # In the order in which they began, whatever their ids are.
            self.assertEqual(ids[:2], sorted(copying, key=ids.index))
            for volume_id in ids:  # all of them are usable meanwhile
                self.b.read(volume_id, 3)
            most = max(most, len(copying))
            self.b.hydrate()
            ids = [each for each in ids if each not in copying]
            if not ids:
                break
        self.assertEqual(2, most)
        self.sweep()
        self.check(volumes)

    def test_the_next_begin_when_the_first_end(self):
        """In the same look, though its volume's turn in it was before."""
        self.begin(limits=copies.Limits(1, 1))
        volumes = self.moving(3)
        # A look takes the volumes by their ids; these began the other way.
        began = sorted(self.world.move_records.values(),
                       key=lambda move: move.volume_id, reverse=True)
        self.world.move_records = {move.move_id: move for move in began}
        for move in began:
            self.sweep(self.b)
            self.assertEqual([move.volume_id], self.copying())
            self.b.hydrate()
        self.check(volumes)

    def test_other_nodes_are_told_who_is_next(self):
        self.begin((A, B, C), copies.Limits(0, 1))
        first, = self.moving(1)
        second, = self.moving(1, destination=C)
        self.sweep()
        self.assertEqual([first.id], self.copying())
        self.b.hydrate()
        del self.world.told[:]
        self.sweep(self.b)
        self.assertIn((B, C, second.id), self.world.told)
        self.assertEqual([], self.copying())
        self.world.nodes[C].reconciler.reconcile(second.id)
        self.assertEqual([second.id], self.copying())
        self.check([first])
        self.check([second], C)

    def test_other_threads_use_turns_up(self):
        """All copies of a node are left out of a look.

        1. The service runs native threads, as Cinder 29 can have it. A look
           goes through the turns of all copies: at its begin, and when a
           copy has ended.
        2. Meanwhile a peer has a volume converged, which uses up its turn:
           the dictionary changes its size, and the look ends.

        By design: others get to see the turns when that is done.
        """
        first, second = self.moving(2)
        own = self.b.reconciler.copying

        def others(_turn):
            for volume in (first, second):
                own._position(volume.name_id)
            return True
        own.ended('x')
        with mock.patch.object(copies.Position, 'may_run', property(others)):
            with own.round(self.world.move_records.values()):
                self.assertEqual([], own.take_next())

    def test_nobody_is_told_of_those_that_run_already(self):
        self.begin((A, B, C))
        self.moving(1)
        self.moving(1, destination=C)
        self.sweep()
        self.b.hydrate()
        del self.world.told[:]
        self.sweep(self.b)
        self.assertEqual({A}, {to for _from, to, _id in self.world.told})

    def test_the_database_is_asked_once_a_look(self):
        self.moving(7)
        with mock.patch.object(
                worlds.SimQueue, 'copies', autospec=True,
                side_effect=worlds.SimQueue.copies) as copies:
            self.sweep(self.b)
            self.assertEqual(1, copies.call_count)
            self.sweep(self.a)  # it has nothing to copy
            self.assertEqual(1, copies.call_count)
            self.b.hydrate()
            self.sweep(self.b)  # once more for those that come next
            self.assertEqual(3, copies.call_count)

    def test_a_turn_of_an_earlier_look_is_not_used(self):
        self.begin(limits=copies.Limits(1, 1))
        one, two = self.moving(2)
        with self.b.lock(two.id):  # it is at work when the node looks
            self.sweep(self.b)
        self.assertEqual([one.id], self.copying())
        self.b.hydrate()
        self.b.reconciler.reconcile(one.id)
        self.b.reconciler.reconcile(two.id)
        self.assertEqual([two.id], self.copying())

    def test_a_turn_is_used_once(self):
        """A look may take minutes; what is asked for meanwhile sees more."""
        self.begin(limits=copies.Limits(1, 1))
        one, two = self.moving(2)
        reconciler = self.b.reconciler
        with reconciler.copying.round(self.b.node.moves.moves_of(B)):
            reconciler.reconcile(one.id)
            reconciler.reconcile(two.id)
            self.assertEqual([one.id], self.copying())
            self.world.snapshot_row(two)
            reconciler.reconcile(one.id)
            reconciler.reconcile(two.id)
            self.assertEqual([two.id], self.copying())

    def test_what_is_not_in_the_queue_is_not_copied(self):
        """Its row was changed a moment ago."""
        self.moving(1)
        with mock.patch.object(worlds.SimQueue, 'copies', return_value=[]):
            self.sweep()
            self.assertEqual([], self.copying())
        self.sweep()
        self.assertEqual(1, len(self.copying()))

    def test_a_service_that_restarts_goes_on(self):
        volumes = self.moving(5)
        self.sweep()
        before = self.copying()
        self.b.stop(power=True)
        self.world.recover()
        self.assertEqual(before, self.copying())
        self.check(volumes)

    def test_no_limits(self):
        self.begin(limits=NONE)
        volumes = self.moving(20)
        self.sweep()
        self.assertEqual(20, len(self.copying()))
        self.check(volumes)


class PriorityTest(Base):

    def setUp(self):
        super().setUp()
        self.begin(limits=copies.Limits(1, 1))
        self.one, self.two, self.three = self.moving(3)
        self.sweep()

    def assert_copying(self, volume):
        self.sweep()
        self.assertEqual([volume.id], self.copying())

    def test_attached_ones_first(self):
        self.assert_copying(self.one)
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        self.assert_copying(self.three)
        self.three.volume_attachment = []
        self.assert_copying(self.one)

    def test_one_that_a_snapshot_waits_for(self):
        snapshot = self.world.snapshot_row(self.two)
        self.assert_copying(self.two)
        self.world.set_snapshot(snapshot, status='error')
        self.assert_copying(self.one)

    def test_one_that_a_clone_waits_for(self):
        clone = self.world.row(B, source_volid=self.three.id)
        self.assert_copying(self.three)
        clone.status = 'error'
        self.assert_copying(self.one)

    def test_what_waits_is_not_prompted_and_shows_its_place(self):
        for volume, position in (
                (self.one, 0), (self.two, 1), (self.three, 2)):
            progress = self.b.reconciler.progress(volume.name_id)
            self.assertEqual(position, progress.position)
            self.assertEqual(bool(position), 'in the queue' in str(progress))
        waker = self.b.reconciler.copying.waker
        waker._was_ahead = False  # copies have given way to "prepare"
        with mock.patch.object(waker, '_send', return_value=[]) as send:
            waker.wake(0)
        send.assert_called_once_with(
            {self.one.name_id: copies.Step(32, 8)})

    def test_a_live_move_is_not_in_the_queue(self):
        live = self.world.create_volume(A)
        self.a.opened.add(names.handle(live.id))
        self.a.move(live, B, live=True)
        live.volume_attachment = [
            mock.Mock(connector={'host': host}, connection_info=None)
            for host in (A, B)]
        self.assert_copying(self.one)
        move = self.a.node.moves.move_of(live.id)
        self.assertIs(Phase.STARTING, move.phase)
        self.assertNotIn(move.move_id, copies.positions(
            self.a.node.queue.copies(A), NONE, ()))

    def test_what_the_guest_has_written_all_of_needs_no_turn(self):
        for region in range(worlds.REGIONS):
            self.b.write(self.three.id, region, 'new')
        with mock.patch.object(worlds.SimPeers, 'reconcile_soon'):
            self.b.reconciler.reconcile_node()
        self.assertEqual([self.one.id], self.copying())
        move, = self.b.node.moves.pending_cleanups(self.three.id)
        self.assertIs(Phase.RELEASING, move.phase)

    def test_places_are_logged_when_they_change(self):
        with mock.patch.object(events, 'LOG') as log:
            self.sweep()
        self.assertEqual([self.one.id], [
            each.args[1]['volume'] for each in log.info.call_args_list])
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        with mock.patch.object(events, 'LOG') as log:
            self.b.reconciler.reconcile_node()
        self.assertEqual(3, log.info.call_count)

    def test_what_waits_is_looked_at_with_the_node_only(self):
        """Its place is what the last look has found."""
        reconcile = self.b.reconciler.reconcile_locked
        self.three.volume_attachment = [mock.Mock(
            connector={'host': B}, connection_info=None)]
        with mock.patch.object(self.b.reconciler, 'reconcile_locked',
                               side_effect=reconcile) as seen:
            self.sweep(self.b)
            self.assertEqual(
                {self.one.id, self.three.id},
                {call.args[0] for call in seen.mock_calls})
            self.assertEqual([0, 1, 2], [
                self.b.reconciler.progress(each.name_id).position
                for each in (self.three, self.one, self.two)])
            seen.reset_mock()
            self.b.reconciler.reconcile_node()
            self.assertEqual(
                {self.one.id, self.two.id, self.three.id},
                {call.args[0] for call in seen.mock_calls})
            self.b.stop(power=True)
            self.b.dead = False
            self.b.reconciler.copying._copies.clear()  # it starts again
            seen.reset_mock()
            self.sweep(self.b)
            self.assertEqual(3, len(seen.mock_calls))

    def test_database_that_does_not_answer_changes_nothing(self):
        with mock.patch.object(worlds.SimQueue, 'copies',
                               side_effect=ValueError):
            self.assertRaises(ValueError, self.sweep)
            self.b.reconciler._attempt(self.one.id)
        self.assertEqual([self.one.id], self.copying())


class FailingTest(Base):
    """Copies that make no progress hold nobody up."""

    def setUp(self):
        super().setUp()
        self.begin((A, B, C), copies.Limits(1, 1))
        self.now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock

    def test_a_dead_source_takes_no_slot(self):
        lost, = self.moving(1, source=C)
        other, = self.moving(1)
        self.sweep()
        self.assertEqual([lost.id], self.copying())
        self.world.nodes[C].stop(power=True)
        self.sweep(self.a, self.b)
        self.assertEqual([other.id], self.copying())
        self.b.hydrate()
        self.sweep(self.a, self.b)
        self.sweep(self.a, self.b)
        self.assertIsNone(self.a.node.moves.move_of(other.id))
        self.check([lost, other])  # it is back

    def test_a_source_that_gives_errors(self):
        lost, = self.moving(1, source=C)
        other, = self.moving(1)
        self.world.nodes[C].unreadable = True
        for self.now.return_value in range(0, hydration.STALLED + 5, 5):
            self.assertEqual([], list(self.world.stalled))
            self.sweep()
            self.b.hydrate()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.sweep()
        self.assertEqual([other.id], self.copying())
        # Nor while it waits, whatever its guest writes.
        self.b.write(lost.id, 0, 'new')
        self.sweep()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.world.nodes[C].unreadable = False
        self.b.hydrate()
        for _time in range(4):
            self.sweep()
        self.assertEqual([lost.id], self.copying())
        self.b.hydrate()
        self.world.settle()
        self.assertEqual({}, self.world.move_records)

    def test_progress_makes_it_as_good_as_others(self):
        lost, other = *self.moving(1, source=C), *self.moving(1)
        self.b.node.queue.note_stalled(
            self.b.node.moves.move_of(lost.id), True)
        self.sweep()
        self.assertEqual([other.id], self.copying())
        self.b.hydrate()
        self.sweep()  # one look for its end, one to see where the next is
        self.sweep()
        self.assertEqual([lost.id], self.copying())
        self.assertEqual([lost.name_id], list(self.world.stalled))
        self.b.write(lost.id, 0, 'new')
        self.sweep()
        self.assertEqual([], list(self.world.stalled))

    def test_a_source_that_cannot_be_reached(self):
        lost, other = *self.moving(1, source=C), *self.moving(1)
        attach = worlds.SimSessions.attach

        def attaching(sessions, move):
            if move.source == C:
                raise exceptions.SourceUnreachable(portal='p', reason='r')
            return attach(sessions, move)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimSessions, 'attach', attaching))
        with mock.patch.object(events, 'LOG') as log:
            for self.now.return_value in (0, hydration.STALLED - 1):
                self.sweep()
                self.assertEqual([], list(self.world.stalled))
            log.warning.assert_not_called()
            self.now.return_value += 1
            self.sweep()
            self.sweep()
        self.assertEqual([lost.name_id], list(self.world.stalled))
        log.warning.assert_called_once()
        self.assertEqual([other.id], self.copying())

    def test_those_that_are_stuck_take_turns(self):
        lost = self.moving(3, source=C)
        self.world.nodes[C].unreadable = True
        tried = []
        for self.now.return_value in range(0, 7 * hydration.STALLED, 20):
            self.sweep()
            tried += [each for each in self.copying()
                      if each not in tried[-1:]]
            self.b.hydrate()
        ids = [each.id for each in lost]
        # Each has a minute, and the time until the look that ends it.
        self.assertEqual([*ids, *ids], tried)

    def test_an_operator_reads_of_it_once(self):
        self.moving(1, source=C)
        with mock.patch.object(events, 'LOG') as log:
            for self.now.return_value in range(0, 9 * hydration.STALLED, 20):
                self.sweep()
        log.warning.assert_called_once()


class DeadEndTest(Base):

    def setUp(self):
        super().setUp()
        self.begin((A, B, C), copies.Limits(1, 1))
        self.now = self.useFixture(fixtures.MockPatchObject(
            copying.timeutils, 'now', return_value=0)).mock

    def sweeps(self):
        """For some minutes; the kernels copy."""
        for self.now.return_value in range(0, 5 * hydration.STALLED, 20):
            self.sweep(self.a, self.b)
            self.b.hydrate()

    def is_moved(self, volume):
        self.assertNotIn(volume.id, [
            move.volume_id for move in self.world.move_records.values()])

    def test_metadata_that_are_lost(self):
        """All other copies to a node, and from the source, wait for ever.

        1. Of a copy to B the metadata LV, or the LV, is gone (a disk was
           replaced), or blank (MetadataLost), or its source is another disk
           (WrongSource). Each look says so, and an operator has to decide.
        2. It keeps its turn: only a source that can't be reached, and a copy
           that stands still, are noted as stalled
           (:meth:`.reconcile.Reconciler._as_destination`). With the default
           limits two such copies are enough.

        Volumes that move to B, or from A, are never copied, nor snapshots
        taken of them.

        By design: whatever keeps a destination from building its stack keeps
        its copy from making progress, and is noted the same way.
        """
        lost, = self.moving(1)
        self.sweep()
        self.b.stop(power=True)
        self.b.dead = False
        for lv in (lost.name, names.metadata_lv(lost.name_id)):
            self.b.disk.remove(lv)
        other, = self.moving(1)
        self.sweeps()
        self.is_moved(other)

    def test_an_error_that_nobody_foresaw(self):
        """The same with an error that is none of the driver's own.

        What its stack needs is not in sysfs, or under /dev (FileNotFoundError
        of :func:`.block.size`, say, when udev has made no link), look after
        look: whatever was not raised as LocalCloneError was not noted.
        """
        lost, = self.moving(1)
        self.sweep()
        self.failing(lost, FileNotFoundError('/sys/block/x/size'))
        other, = self.moving(1)
        self.sweeps()
        self.is_moved(other)

    def failing(self, lost, error):
        """The source of one volume can't be attached."""
        attach = worlds.SimSessions.attach

        def attaching(sessions, move):
            if move.volume_id == lost.id:
                raise error
            return attach(sessions, move)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimSessions, 'attach', attaching))

    def test_metadata_that_are_lost_while_the_source_is_away(self):
        """The same if a copy could not end without its source either.

        Whether it could was asked where the first error was dealt with: what
        failed then was never noted.
        """
        lost, = self.moving(1)
        self.sweep()
        self.failing(lost, exceptions.SourceUnreachable(
            portal='p', reason='r'))
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimClones, 'ensure_clone_alone',
            side_effect=exceptions.MetadataLost(device='d', volume=lost.id)))
        other, = self.moving(1)
        self.sweeps()
        self.is_moved(other)

    def test_a_copy_that_can_not_be_ended(self):
        """The same when all is local.

        1. All of a volume is copied. That can't be made stable, look after
           look: a disk refuses to flush, or the path of what decrypts the
           volume is gone.
        2. It is in the queue until that is on record, and keeps its turn:
           of what is all copied no stall was ever noted.
        """
        lost, = self.moving(1)
        flush = worlds.SimHandles.flush_handle

        def flushing(stack, volume_id):
            if volume_id == lost.id:
                raise exceptions.CommandFailed(
                    command='sync', code=1, stderr='Input/output error')
            flush(stack, volume_id)
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimHandles, 'flush_handle', flushing))
        other, = self.moving(1)
        self.sweeps()
        self.is_moved(other)

    def test_trouble_with_the_target(self):
        """It stops no copy, whoever says so.

        1. A volume arrives that a host has over iSCSI, and what is exported
           has to be changed.
        2. rtslib is missing, or what it writes to configfs is refused
           (OSError): all but LocalCloneError ended the look at the volume
           before its copy was begun, or could be completed.
        """
        self.useFixture(fixtures.MockPatchObject(
            exports.Exporting, 'reconcile',
            side_effect=OSError(errno.EINVAL, 'configfs')))
        volume, = self.moving(1)
        self.sweeps()
        self.is_moved(volume)

    def test_volume_that_was_given_up(self):
        """The node that inherits what is lost takes no copies any more.

        1. A volume is copied from A to C, and C is lost: an operator has C
           forgotten on B. The volume is in error, with B for its home; the
           record of its move stays, until its owner deletes it.
        2. B has nothing of it, and its look returns at once
           (:meth:`.reconcile.Reconciler._as_destination`), but in the queue
           it is a copy from A to B whose turn it is: two of them are enough.

        Until the owners delete all of them, no volume is copied to B, nor
        from A, the node to which users come for what they have left.

        By design: as above, it is noted as stalled.
        """
        lost, = self.moving(1, destination=C)
        self.world.nodes[C].stop(power=True)
        self.world.nodes[C].gone = True
        self.b.make_database().decommission.give_up(lost, B + '#p')
        other, = self.moving(1)
        self.sweeps()
        self.is_moved(other)
