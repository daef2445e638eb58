# SPDX-License-Identifier: Apache-2.0
"""Extending at the home, whoever was asked and whatever the volume does."""

import contextlib
import datetime
import itertools
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import attachments
from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.service import assembly
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import interrupted as unended
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import snapshots
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import move_case
from tests.helpers import sampling
from tests import world as worlds
from tests.world import disks

A, B = 'a@l', 'b@l'
GIB = 1 << 30
#: Of the module; most tests have one part zeroed at a time.
HELD = extend.HELD


@ddt.ddt
class ExtendingTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.create_volume(A)
        self.data = ['%s%d' % (self.volume.id[:4], n) for n in range(4)]
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.volumes.extend.HELD', -1))
        #: Pauses of the zeroing, with the locks held then.
        self.pauses = []
        self.useFixture(fixtures.MonkeyPatch(
            'time.sleep', self.pause))

    def pause(self, seconds):
        self.assertLess(len(self.pauses), 50000, 'it has no end')
        self.pauses.append((seconds, {*self.a.held}))

    def extend(self, node=None, gib=2):
        """What the driver does, and Cinder then."""
        node = node or self.world.home(self.volume)
        before, self.volume.status = self.volume.status, 'extending'
        home = extend.extend(node.reconciler, self.volume.id, gib)
        if home != node.host:
            extend.extend_at(node.reconciler, home, self.volume.id, gib)
        self.volume.size, self.volume.status = gib, before

    def content(self, regions=8):
        home = self.world.home(self.volume)
        return [home.read(self.volume.id, region)
                for region in range(regions)]

    def handle(self, node):
        return node.devices.get(names.handle(self.volume.id))

    def phase(self):
        return [move.phase for move in self.world.move_records.values()]

    def test_failed_where_it_is_used_over_iscsi(self):
        """A node that does not answer is found out before anything grows."""
        self.volume.group_id = 'g'
        self.volume.status = 'in-use'
        self.volume.volume_attachment = [attach_case.attachment('b')]
        for fault in (None, exceptions.PeerUnreachable(
                host=B, method='m', seconds=1)):
            asked = []

            def begin(_this, host, _volume_id, properties, told):
                self.assertEqual(attachments.as_sent(self.volume), told)
                asked.append((properties['size_gib'], self.shown()))
                if fault:
                    raise fault
            self.useFixture(fixtures.MonkeyPatch(
                'tests.world.peers.SimPeers.begin_remote', begin))
            self.useFixture(fixtures.MonkeyPatch(
                'cinder_localclone.core.node.remote_from',
                lambda _node, _volume: [(B, types.SimpleNamespace(
                    properties={}))]))
            if fault:
                self.assertRaises(exceptions.PeerUnreachable, self.extend,
                                  gib=3)
                self.assertEqual([(2, 2 * GIB)], asked)
                self.assertEqual(8, len(self.a.lvs[self.volume.name]))
                self.assertEqual(2 * GIB, self.shown())
            else:
                self.extend()
                self.assertEqual([(1, GIB), (2, 2 * GIB)], asked)

    def shown(self):
        node = self.world.home(self.volume)
        return node.sim_handles.shown_bytes(self.volume.id, self.volume.name,
                                            GIB)

    def test_volume_is_read_again_after_the_zeroing(self):
        """It may take hours: a node of a user may have a new address."""
        asked, old, new = [], attach_case.attachment('b'), (
            attach_case.attachment('b'))
        self.volume.volume_attachment = [old]

        def pause(seconds):
            self.pause(seconds)
            self.volume.volume_attachment = [new]
        self.useFixture(fixtures.MonkeyPatch('time.sleep', pause))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.core.node.remote_from',
            lambda _node, volume: asked.extend(
                each.id for each in volume.volume_attachment) or ()))
        self.extend()
        self.assertEqual([old.id, new.id], asked)

    def test_others_go_on_while_a_thick_one_is_zeroed(self):
        """Neither the lock of free space nor the volume's own is kept.

        A lock that is taken again at once is given to nobody else.
        """
        parts, release = [], self.a.try_lock

        def zeroed(this, name, start=0, _seconds=0):
            parts.append({*this.node.held})
            return disks.Disk.zero_part(this.node.disk, name, start)

        @contextlib.contextmanager
        def locked(name):
            with release(name):
                yield
            if parts:
                between.append((name, self.shown()))
        between = []
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.a.try_lock = locked
        self.extend()
        self.assertEqual([{self.volume.id}] * 5, parts)
        self.assertEqual([(self.volume.id, GIB)] * 4, between[:4])
        # Those who wait for a lock ask for it every 0.1 s.
        self.assertEqual([set()] * 4, [
            held for seconds, held in self.pauses if seconds > 0.1])
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def lock_busy(self, turns, then=None):
        """The volume's lock can't be had in some turns, counted from 0."""
        count, try_lock = itertools.count(), self.a.try_lock

        def locked(name):
            if name == self.volume.id and next(count) in turns:
                if then:
                    self.volume.status = then
                raise exceptions.Busy(what=name, host=A, seconds=20)
            return try_lock(name)
        self.a.try_lock = locked

    def test_lock_that_others_hold_does_not_end_it(self):
        self.lock_busy({1, 3, 4})
        self.extend()
        self.assertEqual(self.data + ['zero'] * 4, self.content())
        self.assertEqual(2 * GIB, self.shown())

    def test_peer_that_is_busy_when_all_is_zeroed(self):
        """What is left is tried again."""
        self.volume.group_id, self.volume.status = 'g', 'in-use'
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.core.node.remote_from',
            lambda _node, _volume: [(B, types.SimpleNamespace(
                properties={}))]))
        busy = exceptions.Busy(what='v', host=B, seconds=20)
        begin = mock.Mock(side_effect=[None, busy, busy, None])
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.peers.SimPeers.begin_remote', begin))
        self.extend()
        self.assertEqual([1, 2, 2, 2], [
            call.args[2]['size_gib'] for call in begin.mock_calls])

    def test_patience_begins_anew_with_each_part(self):
        """A long extension may meet much other work."""
        now = [0.0]

        def zeroed(this, name, start=0, _seconds=0):
            now[0] += 0.9 * extend.PATIENCE
            return disks.Disk.zero_part(this.node.disk, name, start)
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.volumes.extend.time', types.SimpleNamespace(
                monotonic=lambda: now[0], sleep=lambda _seconds: None)))
        self.lock_busy({2, 4})
        self.extend()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_how_long_the_lock_is_held_and_waited_for(self):
        """Requests of others wait for it meanwhile."""
        turns = []

        def zeroed(this, name, start=0, seconds=0):
            turns.append(seconds)
            return disks.Disk.zero_part(this.node.disk, name, start)
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.extend()
        self.assertEqual([extend.HELD] * 5, turns)
        wait = assembly.LOCK_TIMEOUT
        self.assertLess(HELD, wait / 5)
        self.assertLess(10 * wait, extend.PATIENCE)

    def test_lock_that_is_never_given_back(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.volumes.extend.PATIENCE', -1))
        self.lock_busy(range(1, 1000))
        self.assertRaises(exceptions.Busy, self.extend)
        self.assertEqual(GIB, self.shown())

    def test_caller_has_given_up_while_others_have_the_lock(self):
        self.lock_busy(range(1, 1000), 'error_extending')
        self.assertRaises(exceptions.NotPossible, self.extend)
        self.assertEqual(GIB, self.shown())

    def test_volume_that_is_gone_while_others_have_the_lock(self):
        """Nobody waits for it any more."""
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.volumes.extend.PATIENCE', 5))
        self.useFixture(fixtures.MonkeyPatch(
            'time.sleep', lambda _seconds: self.world.volumes.pop(
                self.volume.id, None)))
        self.lock_busy(range(1, 10 ** 9))
        self.volume.status = 'extending'
        self.assertRaises(exceptions.StaleMove, extend.extend,
                          self.a.reconciler, self.volume.id, 2)

    def zeroed_parts(self):
        """Where each part that is zeroed begins, in regions, from now on."""
        found = []

        def zeroed(this, name, start=0, _seconds=0):
            end = disks.Disk.zero_part(this.node.disk, name, start)
            if end:
                found.append(disks.regions(end) - 1)
            return end
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        return found

    @ddt.data((), (2,), (1, 2, 4))
    def test_home_is_asked_until_all_is_zeroed(self, busy):
        """Zeroing takes longer than the home may take to answer.

        Nothing is zeroed twice.
        """
        parts = self.zeroed_parts()
        self.lock_busy(busy)
        self.extend(self.b)
        self.assertEqual([4, 5, 6, 7], parts)
        self.assertEqual(self.data + ['zero'] * 4, self.content())
        self.assertEqual(2 * GIB, self.shown())

    def test_home_says_when_all_is_zeroed(self):
        """Whoever has asked would go on for ever."""
        self.zeroed_parts()
        self.volume.status = 'extending'
        home = callers.Answers(types.SimpleNamespace(
            reconciler=self.a.reconciler, node=self.a.node))
        self.assertEqual([False] * 4 + [True], [
            home.extend(self.volume.id, 2) for _ in range(5)])

    def test_home_loses_power_while_it_is_asked(self):
        parts = self.zeroed_parts()
        self.volume.status = 'extending'
        for _ in range(2):
            self.assertFalse(extend.extend_part(
                self.a.reconciler, self.volume.id, 2))
        self.a.stop(power=True)
        self.world.recover()
        self.assertEqual(GIB, self.shown())
        self.extend(self.b)
        self.assertEqual([4, 5, 6, 7], parts)
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    @ddt.data(*itertools.product((A, B), ((), (1, 2))))
    @ddt.unpack
    def test_home_knows_when_it_was_asked_last(self, asked, busy):
        """It ends the status of what nobody asks for any more.

        Whoever waits for the lock has asked.
        """
        found = []

        def pause(_seconds):
            found.append(self.volume.id in self.a.node.asked)
            self.a.node.asked.clear()
        self.zeroed_parts()
        self.lock_busy(busy)
        self.useFixture(fixtures.MonkeyPatch('time.sleep', pause))
        self.extend(self.world.nodes[asked])
        self.assertLess(2, len(found))
        self.assertEqual([asked == A] + [True] * (len(found) - 1), found)

    def test_home_knows_of_a_request_that_waits_for_the_lock(self):
        self.lock_busy({0})
        self.assertRaises(exceptions.Busy, self.extend)
        self.assertIn(self.volume.id, self.a.node.asked)

    def test_request_that_comes_after_a_later_one(self):
        """Whatever is longer by now is not cut off."""
        for _repeated in range(2):
            self.extend(gib=3)
        with mock.patch.object(worlds.SimLvm, 'extend_lv') as extended:
            for node in (self.a, self.b):
                self.assertRaises(exceptions.NotPossible, self.extend, node,
                                  2)
        extended.assert_not_called()
        self.assertEqual(self.data + ['zero'] * 8, self.content(12))

    def test_asker_has_given_up(self):
        self.zeroed_parts()
        self.lock_busy({2}, 'error_extending')
        self.assertRaises(exceptions.NotPossible, self.extend, self.b)
        self.assertEqual(GIB, self.shown())

    def test_volume_that_is_gone_when_its_home_is_asked(self):
        del self.world.volumes[self.volume.id]
        self.assertRaises(exceptions.StaleMove, extend.extend_at,
                          self.b.reconciler, A, self.volume.id, 2)

    def test_went_elsewhere_while_it_was_zeroed(self):
        """Nothing is shown of an LV that is not the volume any more."""
        def zeroed(this, name, start=0, _seconds=0):
            self.world.volumes[self.volume.id].host = B
            return next(ends)
        ends = iter((1, 1, 0))
        self.volume.status = 'extending'
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.assertRaises(exceptions.StaleMove, extend.extend,
                          self.a.reconciler, self.volume.id, 2)
        self.assertEqual(GIB, self.a.sim_lvm.lvs()[self.volume.name].shown)

    def test_caller_has_given_up_while_it_was_zeroed(self):
        """A node that has handed it on waits for less long than that takes."""
        def zeroed(this, name, start=0, _seconds=0):
            self.world.volumes[self.volume.id].status = 'error_extending'
            return next(ends)
        ends = iter((1, 1, 0))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.assertRaises(exceptions.NotPossible, self.extend)
        self.assertEqual(GIB, self.shown())

    def extended_to_3(self):
        """An extension that has failed after users have seen it."""
        worlds.extend(self.a, self.volume, 3)
        self.a.write(self.volume.id, 10, 'precious')

    def test_extended_to_less_than_users_have_seen(self):
        self.extended_to_3()
        error = self.assertRaises(
            exceptions.LongerThanRecorded, self.extend, gib=2)
        self.assertIn('beyond 2 GiB', str(error))
        self.a.stop(power=True)
        self.world.settle()
        plan, = boot_plan.plan(self.a.sim_handles.survey())
        self.assertEqual(3 * GIB, plan.size)
        self.assertRaises(exceptions.LongerThanRecorded, self.a.move,
                          self.volume, B)
        self.extend(gib=3)
        self.a.move(self.volume, B)
        self.world.settle()
        self.assertEqual('precious', self.content(12)[10])

    def test_late_part_of_an_extension_to_less(self):
        """It comes after a later request, before Cinder writes that down."""
        self.volume.status = 'extending'
        extend.extend(self.a.reconciler, self.volume.id, 3)
        self.assertRaises(
            exceptions.LongerThanRecorded, extend.extend_part,
            self.a.reconciler, self.volume.id, 2)
        self.volume.size, self.volume.status = 3, 'available'
        self.a.stop(power=True)
        self.world.settle()
        self.assertEqual(self.data + ['zero'] * 8, self.content(12))

    def test_to_less_that_another_has_shown_while_it_was_zeroed(self):
        """An administrator has reset its status, and it was asked anew."""
        def zeroed(this, name, start=0, _seconds=0):
            if next(ends):
                return 1
            self.a.disk.zero(name)
            disks.Disk.extend(this.node.disk, name, 3 * GIB)
            disks.Disk.show(this.node.disk, name, 3 * GIB)
            return 0
        ends = iter((1, 0))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.assertRaises(exceptions.LongerThanRecorded, self.extend)
        self.assertEqual(3 * GIB, self.shown())

    @ddt.data('error_extending', 'available', 'in-use')
    def test_caller_has_given_up_before_it_began(self, status):
        """The home stood still; nobody would ever record the new length."""
        self.world.pool = 'pool'
        self.volume.status = status
        error = self.assertRaises(
            exceptions.NotPossible, extend.extend_part, self.a.reconciler,
            self.volume.id, 2)
        self.assertIn('was given up', str(error))
        self.assertEqual(GIB, self.shown())

    @ddt.data(*itertools.product(
        ('starting', 'migrating', 'completing'), ('available', 'in-use')))
    @ddt.unpack
    def test_while_cinder_migrates_it(self, status, before):
        """Its copy in another backend has the old size."""
        if before == 'in-use':
            self.volume.volume_attachment = [
                attach_case.attachment('a')]
        self.volume.migration_status = status
        error = self.assertRaises(exceptions.NotPossible, self.extend)
        self.assertIn('Cinder is migrating it', str(error))
        self.assertEqual(GIB, self.shown())
        self.volume.migration_status = 'success'
        self.extend()

    @ddt.data('creating', 'downloading')
    def test_volume_that_is_being_created(self, status):
        """Of an image that is smaller, say."""
        self.volume.status = status
        extend.extend(self.a.reconciler, self.volume.id, 2)
        self.assertEqual(2 * GIB, self.shown())

    @ddt.data(True, False)
    def test_failed_after_users_have_seen_it(self, live):
        """No move cuts off what they may have written there."""
        worlds.extend(self.a, self.volume, 2)
        # Cinder's manager, or its database, fails after the driver.
        self.volume.status = 'in-use' if live else 'available'
        self.a.write(self.volume.id, 6, 'precious')
        error = self.assertRaises(
            exceptions.LongerThanRecorded, self.a.move, self.volume, B, live)
        self.assertIn('has 2 GiB on a@l and 1 GiB in', str(error))
        self.assertEqual({}, self.world.move_records)
        # Also after a boot, which makes the handle by the LV.
        self.volume.status = 'available'
        self.a.stop(power=True)
        self.world.settle()
        self.assertEqual('precious', self.content()[6])
        self.assertRaises(exceptions.LongerThanRecorded, self.a.move,
                          self.volume, B)
        self.extend()
        self.a.move(self.volume, B)
        self.world.settle()
        self.assertEqual('precious', self.content()[6])

    def test_failed_while_it_is_copied_and_then_a_power_cut(self):
        """A guest elsewhere may have written there; its disk is as long."""
        self.a.move(self.volume, B)
        worlds.extend(self.b, self.volume, 2)
        self.b.write(self.volume.id, 6, 'precious')
        self.b.stop(power=True)
        self.b.dead = False
        self.b.reconciler.reconcile_node()
        self.assertEqual('precious', self.content()[6])

    @ddt.data('snapshot or clone', 'migration', 'retype')
    def test_neither_is_it_copied(self, what):
        self.world.pool = 'pool'
        worlds.extend(self.a, self.volume, 2)
        self.volume.volume_attachment = []
        if what == 'retype':
            # Cinder copies it, and does not ask the driver first.
            self.volume.status = 'retyping'
            self.volume.migration_status = 'migrating'
        call = {
            'retype': lambda: self.a.connect(
                self.volume, {'host': 'a', 'initiator': 'iqn.a'}),
            'snapshot or clone': lambda: snapshots.at_home(
                self.a.node, self.volume.id, lambda _record: None),
            'migration': lambda: migrate.migrate(
                self.a.node, self.volume.id, {
                    'host': 'x@lvm#pool', 'capabilities': {}}),
        }[what]
        self.assertRaises(exceptions.LongerThanRecorded, call)

    def test_failed_before_users_have_seen_it(self):
        """Then it moves as any other."""
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', mock.Mock(
                side_effect=exceptions.CommandTimeout(
                    command='c', seconds=1))))
        self.assertRaises(exceptions.CommandTimeout, self.extend)
        self.volume.size = 1
        self.assertEqual(8, len(self.a.lvs[self.volume.name]))
        self.a.stop(power=True)
        self.world.settle()
        self.assertEqual({'below': self.volume.name}, self.handle(self.a))
        self.a.move(self.volume, B)
        self.world.settle()
        self.assertEqual(self.data, self.content(4))

    def test_at_rest(self):
        self.extend()
        self.assertEqual(self.data + ['zero'] * 4, self.content())
        self.world.settle()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_after_a_power_cut(self):
        self.extend()
        self.a.stop(power=True)
        self.world.settle()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_moved_since_the_row_was_read(self):
        """Cinder asks the node that was the home when it was called."""
        self.a.move(self.volume, B)
        self.extend(self.a)
        self.assertEqual(8, len(self.b.lvs[self.volume.name]))
        self.assertEqual(4, len(self.a.lvs['volume-' + self.volume.id]))

    def test_while_it_is_copied(self):
        self.a.move(self.volume, B)
        self.extend()
        self.assertIn(Phase.MIGRATING, self.phase())
        self.assertEqual(self.data + ['zero'] * 4, self.content())
        self.b.write(self.volume.id, 6, 'new')
        expected = self.data + ['zero', 'zero', 'new', 'zero']
        self.b.hydrate()
        self.assertEqual(expected, self.content())
        self.world.settle()
        self.assertEqual([], self.phase())
        self.assertEqual({'below': self.volume.name, 'regions': 8},
                         self.handle(self.b))
        self.assertEqual(expected, self.content())

    def test_while_it_is_copied_and_then_a_power_cut(self):
        """The clone comes back with the length that it had."""
        self.a.move(self.volume, B)
        self.extend()
        self.b.write(self.volume.id, 6, 'new')
        self.b.stop(power=True)
        self.world.recover()
        self.assertEqual(
            self.data + ['zero', 'zero', 'new', 'zero'], self.content())
        self.world.settle()
        self.assertEqual(8, len(self.b.lvs[self.volume.name]))

    def test_while_the_source_is_away(self):
        """After a reboot there is no clone; the handle follows with it."""
        self.a.move(self.volume, B)
        self.b.stop(power=True)
        self.a.dead = self.a.gone = True
        self.b.dead = False
        self.extend()
        self.assertIsNone(self.handle(self.b))
        self.a.gone = False
        self.world.recover()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_while_the_copy_ends(self):
        self.a.move(self.volume, B)
        self.world.reconcile()
        self.b.hydrate(flushed=True)
        move, = self.world.move_records.values()
        self.b.node.moves.advance(move, Event.HYDRATED)
        self.extend()
        self.assertEqual([Phase.RELEASING], self.phase())
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_not_between_two_nodes(self):
        """During a live migration both have the handle."""
        self.volume.status = 'in-use'
        self.a.move(self.volume, B, live=True)
        error = self.assertRaises(exceptions.VolumeIsMoving, self.extend)
        self.assertIn('extended while', str(error))
        self.assertEqual({4}, {len(self.a.lvs['volume-' + self.volume.id]),
                               len(self.b.lvs[self.volume.name])})

    def test_move_that_was_never_committed_is_given_up(self):
        self.b.gone = self.b.dead = True
        self.assertRaises(exceptions.PeerUnreachable, self.a.move,
                          self.volume, B)
        self.extend()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_move_that_was_interrupted_is_given_up(self):
        """Its service died before the commit; the handle grows here."""
        interrupted = self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        self.extend()
        self.assertNotIn(interrupted.move_id, self.world.move_records)
        self.assertEqual(8, self.handle(self.a)['regions'])

    def test_re_encryption_that_began_while_it_was_zeroed(self):
        """It would not grow with its LV."""
        parts = self.zeroed_parts()

        def check(_node, volume, what):
            if parts:
                raise encryption_exceptions.Reencrypting(
                    volume=volume.id, what=what)
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.encryption.devices.check_not_reencrypted',
            check))
        self.assertRaises(encryption_exceptions.Reencrypting, self.extend)
        self.assertEqual(4, len(parts))
        self.assertEqual(GIB, self.shown())

    def test_caller_has_given_up_when_all_is_zeroed(self):
        parts = self.zeroed_parts()

        def pause(_seconds):
            if len(parts) == 4:  # then only the tag goes, and all is shown
                self.volume.status = 'error_extending'
        self.useFixture(fixtures.MonkeyPatch('time.sleep', pause))
        self.assertRaises(exceptions.NotPossible, self.extend)
        self.assertEqual(4, len(parts))
        self.assertEqual(GIB, self.shown())

    def test_then_it_moves(self):
        self.extend()
        self.a.move(self.volume, B)
        self.world.settle()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_source_that_goes_keeps_its_size(self):
        """A source that is exported never changes."""
        self.a.move(self.volume, B)
        self.extend()
        self.a.stop(power=True)
        self.world.recover()
        move_id, = self.world.move_records
        self.assertEqual({names.source(move_id): {
            'below': 'volume-' + self.volume.id}}, self.a.devices)

    def test_thick_without_room(self):
        lvs = self.a.sim_lvm.lvs

        def thick():
            return {name: types.SimpleNamespace(
                name=name, size=lv.size, number=lv.number, shown=lv.shown,
                thin=False)
                for name, lv in lvs().items()}
        self.a.node.lvm._inner.lvs = thick
        self.a.free = GIB - 1
        error = self.assertRaises(exceptions.NoSpaceToExtend, self.extend)
        self.assertIn('1024 MiB', str(error))
        self.assertEqual(4, len(self.a.lvs[self.volume.name]))
        self.a.free = GIB
        self.extend()

    @ddt.data((95, 0), (0, 90))
    def test_full_pool(self, usage):
        self.world.pool = 'pool'
        self.a.usage = usage
        error = self.assertRaises(exceptions.NoSpaceToExtend, self.extend)
        self.assertIn('treats it as full', str(error))
        self.assertEqual(4, len(self.a.lvs[self.volume.name]))
        # What was extended already only needs its handle.
        self.a.disk.extend(self.volume.name, 2 * GIB)
        self.extend()
        self.assertEqual(self.data + ['zero'] * 4, self.content())

    def test_thin_volume_needs_no_room_yet(self):
        self.world.pool = 'pool'
        self.a.free, self.a.usage = 0, (94.0, 89.0)
        self.extend()

    def test_lv_that_is_gone(self):
        self.a.devices.clear()
        del self.a.lvs[self.volume.name]
        self.assertRaises(exceptions.MissingData, self.extend)

    def test_row_that_is_gone(self):
        del self.world.volumes[self.volume.id]
        self.assertRaises(exceptions.StaleMove, extend.extend,
                          self.a.reconciler, self.volume.id, 2)

    def test_locks(self):
        """One at a time for a volume, and for the room."""
        for name in (self.volume.id, 'free-space'):
            with self.a.lock(name):
                self.assertRaises(exceptions.Busy, self.extend)
        self.assertEqual(4, len(self.a.lvs[self.volume.name]))

    def test_one_hop_only(self):
        """A peer that is not the home either says so."""
        service = types.SimpleNamespace(reconciler=self.b.reconciler,
                                        node=self.b.node)
        self.assertRaises(
            exceptions.StaleMove, callers.Answers(service).extend,
            self.volume.id, 2)

    def test_repeated(self):
        """As an operator does after an error."""
        self.extend()
        self.volume.size = 1
        self.extend()
        self.extend(gib=3)
        self.assertEqual(self.data + ['zero'] * 8, self.content(12))

    @ddt.data('kill', 'cut')
    def test_its_status_when_its_service_has_died(self, fault):
        """As before, or as what has failed: never as what goes on."""
        moment, ends = 0, set()
        while True:
            moment += 1
            world = self.world = worlds.World((), (fault,))
            self.a = world.nodes[A]
            volume = self.volume = world.create_volume(A)
            volume.status = 'extending'
            world.acting = None  # nothing was done before
            world.stop_at = (world.moment + moment,)
            try:
                self.extend(self.a)
            except worlds.Stopped:
                world.settle()
                unended.end_dead(self.a.node, datetime.datetime.max)
            else:
                break
            shown = self.a.sim_lvm.lvs()[volume.name].shown
            self.assertEqual('error_extending' if shown > GIB
                             else 'available', volume.status)
            ends.add(volume.status)
            self.assertEqual(
                ['%s%d' % (volume.id[:4], n) for n in range(4)],
                self.content(4))
        self.assertEqual({'available', 'error_extending'}, ends)

    @ddt.data('kill', 'cut', 'cut both')
    def test_stopped_at_every_moment(self, fault):
        """The size is the old or the new one; the data are there."""
        for moment in sampling.turn(1000, move_case.ONE.index((fault,))):
            world = self.world = worlds.World((), (fault,))
            self.a, self.b = world.nodes[A], world.nodes[B]
            volume = self.volume = world.create_volume(A)
            world.stop_at = (world.moment + moment,)
            self.data = ['%s%d' % (volume.id[:4], n) for n in range(4)]
            try:
                self.a.move(volume, B)
                self.a.check_alive()  # after the commit no error matters
                self.b.write(volume.id, 1, 'mine')
                self.extend()
                self.b.write(volume.id, 7, 'new')
            except (worlds.Stopped, exceptions.LocalCloneError):
                self.assertLessEqual(world.stop_at[0], world.moment)
            world.settle()
            found = self.content(4 * volume.size)
            for region, value in enumerate(found):
                self.assertIn(value, [*self.data[region:region + 1], 'mine',
                                      'new', 'zero'])
            self.assertIn(found[1], (self.data[1], 'mine'))
            if volume.size == 2 and world.moment < world.stop_at[0]:
                self.assertEqual('new', found[7])
                break
            # Extending it anew is always possible.
            self.extend(gib=3)
            self.assertEqual(found[:4], self.content(4))
            self.assertEqual(12, len(self.content(12)))
        else:
            self.fail('it has no end')
