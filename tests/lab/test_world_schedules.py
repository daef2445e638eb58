# SPDX-License-Identifier: Apache-2.0
"""The scheduler of the simulated world, and a few of its schedules."""

import collections
import os
import random
import subprocess
import sys
import types
from unittest import mock

import ddt
from oslo_db import exception as db_exc
from oslo_utils import timeutils
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import names
from cinder_localclone.encryption import devices
from tests.helpers import complaints
from tests.simulation import planted
from tests.world import crypt
from tests.world import disks
from tests.world import drawing
from tests.world import encrypted
from tests.world import instances
from tests.world import scheduler
from tests.world import schedules
from tests.world import seeded
from tests.world import shrinking
from tests.world import troubles
from tests.world import workload

#: The seeds that are always run.
SEEDS = range(40)
#: What a run has said, in another process.
TELL = '''
import hashlib, logging
from tests.lab import test_world_schedules
logging.disable(logging.CRITICAL)
print(test_world_schedules.digest(range(6)))
'''
#: A fault that few schedules are needed to find.
FAULT = 'recorded before done: end of a move'
#: One of each kind that the first seeds find.
QUICK = ('lock dropped: extension',
         'wait removed: deleted volume still open',
         'recorded before done: the source may go',
         'wait removed: remote attachment still open')


def run(seed, encrypts=False):
    """:returns: the schedule of a seed, with its choices; what has happened"""
    schedule = drawing.draw(seed, encrypts)
    return schedule, schedules.run(
        schedule, scheduler.Choices(seed, schedule.how))


def find(fault, most):
    """:returns: the seed that finds a planted fault, and the error"""
    with planted.planted(*planted.FAULTS[fault]):
        for seed in range(most):
            try:
                run(seed)
            except schedules.Broken as exc:
                return seed, exc
    raise AssertionError('not found: ' + fault)


def digest(seeds):
    """What runs of some seeds have come to, as one text."""
    with schedules.fast():
        return str([run(seed)[1] for seed in seeds])


class Plain:
    """Nobody interrupts, nothing fails."""

    @staticmethod
    def priority(_key):
        return 0

    @staticmethod
    def next(_key, current, others, _hot=False):
        return current or others()[0]

    @staticmethod
    def jumps(_key):
        return False

    @staticmethod
    def slow(_key, hot):
        return 3 if hot else None


class SchedulerTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.scheduler = scheduler.Scheduler(Plain())
        self.addCleanup(self.scheduler.close)
        self.said = []

    def spawn(self, name, act, **how):
        return self.scheduler.spawn(name, act, **how)

    def hold(self, seconds, wait):
        with self.scheduler.lock('a', 'v', wait):
            self.said.append((self.scheduler.current.name,
                              self.scheduler.now))
            self.scheduler.sleep(seconds)

    def test_lock_waits(self):
        self.spawn('one', lambda: self.hold(5, 20))
        self.spawn('two', lambda: self.hold(1, 20))
        self.scheduler.run()
        self.assertEqual([('one', 0), ('two', 5)], self.said)

    def test_lock_waits_for_so_long(self):
        self.spawn('one', lambda: self.hold(30, 20))
        two = self.spawn('two', lambda: self.hold(1, 20))
        self.scheduler.run()
        self.assertEqual([('one', 0)], self.said)
        self.assertIsInstance(two.error, exceptions.Busy)

    def test_lock_of_a_process_that_is_gone(self):
        alive = [True]
        self.spawn('one', lambda: self.hold(30, 20), alive=lambda: alive[0])
        self.spawn('two', lambda: self.hold(1, 20), after=1)

        def kill():
            alive[0] = False
            self.scheduler.drop_locks('a')
        self.spawn('killer', kill, after=2)
        self.scheduler.run()
        self.assertEqual([('one', 0), ('two', 2)], self.said)

    def test_gone_handles_nothing(self):
        alive, handled = [True], []

        def act():
            try:
                self.scheduler.sleep(10)
            except Exception:
                handled.append('an error')
        actor = self.spawn('one', act, alive=lambda: alive[0])
        self.spawn('killer', lambda: alive.__setitem__(0, False), after=1)
        self.scheduler.run()
        self.assertEqual([], handled)
        self.assertIsInstance(actor.error, scheduler.Gone)

    def test_time_passes_when_all_wait(self):
        self.spawn('one', lambda: self.scheduler.sleep(7))
        self.spawn('two', lambda: self.scheduler.sleep(3))
        self.scheduler.run()
        self.assertEqual(7, self.scheduler.now)

    def test_waiting_for_ever(self):
        self.spawn('one', lambda: self.scheduler.wait())
        self.assertRaises(scheduler.Endless, self.scheduler.run)

    def test_run_ends_though_somebody_is_parked(self):
        ready = []
        self.spawn('one', lambda: (
            self.scheduler.wait(ready=lambda: ready, parked=True),
            self.said.append('goes on')))
        self.scheduler.run()
        self.assertEqual([], self.said)
        self.spawn('two', lambda: ready.append(True))
        self.scheduler.run()
        self.assertEqual(['goes on'], self.said)

    def test_begins_after_so_many_steps_of_others(self):
        def act():
            for _step in range(3):
                self.scheduler.turn()
            self.scheduler.sleep(1)
            self.said.append('one')
        self.spawn('one', act)
        self.spawn('two', lambda: self.said.append(self.scheduler.now),
                   after=9, steps=3)
        self.scheduler.run()
        self.assertEqual([0, 'one'], self.said)

    def test_slow(self):
        def act():
            for hot in (False, True):
                self.scheduler.dawdle(hot)
                self.said.append(self.scheduler.now)
        self.spawn('one', act)
        self.spawn('two', lambda: self.said.append('two'))
        self.scheduler.run()
        self.assertEqual([0, 'two', 3], self.said)

    def test_nobody_is_slow_at_the_end(self):
        self.scheduler.quiet = True
        self.spawn('one', lambda: self.scheduler.dawdle(True))
        self.scheduler.run()
        self.assertEqual(0, self.scheduler.now)

    def test_no_end(self):
        def act():
            while True:
                self.scheduler.turn()
        self.spawn('one', act)
        self.assertRaises(scheduler.Endless, self.scheduler.run)

    def test_lock_that_is_not_given_back(self):
        lock = self.scheduler.lock('a', 'v', 1)

        def act():
            lock.__enter__()
        self.spawn('one', act)
        error = self.assertRaises(AssertionError, self.scheduler.run)
        self.assertIn('holds', str(error))


@ddt.ddt
class DiskTest(testtools.TestCase):
    """What a power cut leaves of regions written 'new' over 'old'."""

    def cut(self, seed, flushed=False, data_of=None):
        disk = seeded.Disk()
        disk.lvs = {'lv': ['old'] * 4, 'metadata': {'local': set()}}
        for region in range(4):
            disk.write('lv', region, 'new')
            disk.make_local('metadata', region)
        if flushed:
            disk.flush('lv')
        disk.power_cut(None if seed is None else random.Random(seed),
                       data_of or {})
        return disk.lvs['lv'], disk.lvs['metadata']['local']

    def test_all(self):
        self.assertEqual((['old'] * 4, set()), self.cut(None))

    def test_any_part(self):
        found = {tuple(self.cut(seed)[0]) for seed in range(300)}
        for region in range(4):
            self.assertEqual({'old', 'new', 'torn new'},
                             {each[region] for each in found})
        self.assertIn(('old', 'new', 'old', 'new'), found)

    def test_flushed(self):
        for seed in range(50):
            self.assertEqual(['new'] * 4, self.cut(seed, flushed=True)[0])

    def test_no_region_is_local_without_its_data(self):
        seen = set()
        for seed in range(200):
            lv, local = self.cut(seed, data_of={'metadata': 'lv'})
            seen.add(len(local))
            for region in local:
                self.assertEqual('new', lv[region])
        self.assertEqual({0, 1, 2, 3, 4}, seen)


@ddt.ddt
class DrawingTest(testtools.TestCase):

    def choices(self, **how):
        how = {**scheduler.Choices.draw(random.Random(1)), 'faults': 0,
               'hot_faults': 0, 'first': 0, 'slow': 0, 'hot_slow': 0,
               'calm': 0, **how}
        return scheduler.Choices(1, how)

    def faults(self, choices, *hot):
        return [choices.fault((n,), troubles.STOPS, each)
                for n, each in enumerate(hot)]

    def test_all_kinds_are_drawn_and_known(self):
        found = {each.kind for seed in range(600)
                 for each in drawing.draw(seed, seed % 2).events}
        self.assertLessEqual({
            kind for row in (*drawing.WORK, *drawing.BEGINNINGS)
            for kind in row} | set(encrypted.KINDS) | set(
                encrypted.FORGES), found)
        for kind in found:
            self.assertTrue(hasattr(
                workload.Cloud, '_' + kind.replace(' ', '_')), kind)

    def test_some_do_little_and_some_mix_all(self):
        found = [{each.kind for each in drawing.draw(seed).events}
                 for seed in range(300)]
        self.assertLessEqual(min(map(len, found)), 2)
        self.assertGreaterEqual(max(map(len, found)), 12)

    def test_nobody_forges_where_a_header_is_copied(self):
        for seed in range(300):
            kinds = {each.kind for each in drawing.draw(seed, True).events}
            self.assertFalse('forge' in kinds and kinds & encrypted.COPIES,
                             seed)

    def test_only_what_was_drawn_fails(self):
        choices = self.choices(troubles=['kill'], first=1)
        self.assertEqual(['kill'], [each[0] for each in self.faults(
            choices, 'commit')])
        self.assertIsNone(choices.fault(('x',), troubles.DATABASE, 'commit'))
        self.assertIsNone(self.faults(self.choices(first=1), 'commit')[0])

    def test_calm_at_first(self):
        choices = self.choices(troubles=['kill'], first=1, calm=2)
        self.assertEqual([False, False, True], [
            bool(each) for each in self.faults(choices, *'abc')])

    def test_the_first_of_a_kind_fails_most(self):
        count = collections.Counter()
        choices = self.choices(troubles=['kill'], first=.5)
        for _each in range(400):
            choices._met.clear()
            for number, found in enumerate(self.faults(
                    choices, *['commit'] * 4)):
                count[number] += found is not None
        self.assertGreater(count[0], 1.4 * count[1])
        self.assertGreater(count[1], 1.4 * count[3])

    def test_slow(self):
        choices = self.choices(hot_slow=1)
        self.assertIsNone(choices.slow(('a',), False))
        seconds = choices.slow(('a',), True)
        self.assertEqual(
            seconds, scheduler.Recorded(choices.taken).slow(('a',), True))

    def test_moments_that_count_are_preempted_more_often(self):
        choices = self.choices(pct=False, preempt=0, hot_preempt=1)
        one, two = mock.Mock(), mock.Mock()
        for hot, found in ((False, one), (True, two)):
            self.assertIs(found, choices.next(
                ('a',), one, lambda: [two], hot))


class DataTest(testtools.TestCase):
    """What a guest may read."""

    def setUp(self):
        super().setUp()
        self.data = workload.Data([['old']])

    def wrong(self, value):
        return bool(self.data.read(0, value))

    def test_last_write(self):
        self.data.write(0, 'new')
        self.assertTrue(self.wrong('old'))
        self.assertFalse(self.wrong('new'))

    def test_not_flushed(self):
        for value in ('old', 'new', 'torn new'):
            self.data = workload.Data([['old']])
            self.data.write(0, 'new')
            self.data.power_lost()
            self.assertFalse(self.wrong(value))
            self.assertEqual(value != 'old', self.wrong('old'))

    def test_flushed(self):
        self.data.write(0, 'new')
        self.data.flush()
        self.data.power_lost()
        self.assertTrue(self.wrong('old'))
        self.assertTrue(self.wrong('torn new'))

    def test_flush_after_a_loss_makes_nothing_sure(self):
        self.data.write(0, 'new')
        self.data.power_lost()
        self.data.flush()
        self.assertFalse(self.wrong('old'))
        self.assertTrue(self.wrong('new'))

    def test_one_of_two_captures_that_are_alike_ends(self):
        """Of two snapshots at once, the one that was asked for last fails."""
        first, last = self.data.capture(), self.data.capture()
        self.data.end_capture(last)
        self.data.write(0, 'new')
        self.assertEqual(([['old', 'new']], [['old']]), (first, last))

    def test_never_written(self):
        data = workload.Data([[disks.ZERO]])
        self.assertEqual('', data.read(0, disks.EMPTY))


class MessagesTest(testtools.TestCase):
    """How often, and in which order, casts arrive at a peer."""

    def arrivals(self, *fates, starts_at=None):
        choices = scheduler.Recorded({
            ('sender', number): None for number in range(40)})
        self.world = seeded.World(choices, instances.HOSTS[:2], None)
        left, found = list(fates), []
        choices.fate = lambda _key, _fates, _often: left.pop(0)
        self.world._answer = lambda _other, _name, arguments: found.append(
            (arguments['n'], self.world.scheduler.now))

        def send():
            for number in range(len(fates)):
                self.world.cast(None, 'b@l', 'x', {'n': number})
        self.world.scheduler.spawn('sender', send)
        if starts_at:
            node = self.world.nodes['b@l']
            self.world.scheduler.spawn(
                'starts', lambda: setattr(node, 'life', object()) or setattr(
                    node, 'begun', node.life), after=starts_at)
        self.addCleanup(self.world.scheduler.close)
        self.world.scheduler.run()
        return found

    def test_in_order(self):
        self.assertEqual([(0, 0), (1, 0)], self.arrivals(None, None))

    def test_what_was_sent_later_overtakes_it(self):
        self.assertEqual([(1, 0), (0, 5)],
                         self.arrivals(('slow', 5, 900), None))

    def test_once_more_much_later(self):
        """A process drops what it has seen; the next one has not."""
        self.assertEqual([(0, 0)], self.arrivals(('twice', 400, 900)))
        many = self.arrivals(('twice', 400, 900), *[None] * 16)
        self.assertIn((0, 400), many)
        few = self.arrivals(('twice', 400, 900), *[None] * 15)
        self.assertNotIn((0, 400), few)
        self.assertEqual([(0, 0), (0, 400)], self.arrivals(
            ('twice', 400, 900), starts_at=90))

    def test_lost(self):
        self.assertEqual([], self.arrivals(('request lost',)))


class ZeroingTest(testtools.TestCase):

    def test_takes_more_than_one_step(self):
        world = seeded.World(scheduler.Recorded({}), instances.HOSTS[:1], None)
        self.addCleanup(world.scheduler.close)
        node, = world.nodes.values()
        node.disk.create('v', 'v', ['data'])
        node.disk.extend('v', 2 * disks.GIB, thick=True)
        self.assertTrue(node.sim_lvm._inner.zero_part('v', 0, 2))
        self.assertIn(disks.DELETED, node.lvs['v'])


@ddt.ddt
class CinderTest(testtools.TestCase):
    """What Cinder's manager writes, and by which clock a service goes."""

    def setUp(self):
        super().setUp()
        self.cloud = workload.Cloud(
            drawing.Schedule(1, {}, 2, 1, None, [], skews=(7, 0)),
            scheduler.Recorded({}))
        self.addCleanup(self.cloud.scheduler.close)

    def save(self, *fault):
        row = types.SimpleNamespace(status='creating')
        self.cloud.world.fault = lambda _faults, _hot: fault
        actor = self.cloud.scheduler.spawn(
            'manager', lambda: self.cloud.save(row, status='available'))
        self.cloud.scheduler.run()
        return row.status, actor.error is None

    def test_write(self):
        self.assertEqual(('available', True), self.save())
        self.assertEqual(('creating', False), self.save('lost'))
        self.assertEqual(('available', False),
                         self.save('lost after the commit'))

    def test_database_that_is_away(self):
        """From a lost connection on, for some of a node's requests."""
        node, other = self.cloud.nodes()
        volume, = self.cloud.world.volumes.values()
        self.cloud.world.fault = lambda *_how: (
            'connection lost', 1)

        def ask():
            for call in (lambda: node.node.queue.note_stalled(None, True),
                         lambda: node.node.volumes.volume(volume.id)):
                self.assertRaises(db_exc.DBConnectionError, call)
            self.assertIsNotNone(other.node.volumes.volume(volume.id))
            self.assertIsNotNone(node.node.volumes.volume(volume.id))
        actor = self.cloud.scheduler.spawn('service', ask)
        self.cloud.scheduler.run()
        self.assertIsNone(actor.error)

    @ddt.data(False, True)
    def test_end_of_a_retype_is_written_over_a_deletion(self, dies):
        """It goes all the same; if the service dies, a tenant asks again."""
        volume, = self.cloud.world.volumes.values()
        node = self.cloud.home(volume)
        inner = node.sim_lvm._inner
        remove = inner.remove_lv

        def remove_lv(name):
            volume.status = 'available'
            remove(name)
            if dies:
                self.cloud.world.stop(node, 'kill', 2, 0)
                raise scheduler.Gone()
        with mock.patch.object(inner, 'remove_lv', remove_lv):
            self.cloud.scheduler.spawn(
                'tenant', lambda: self.cloud.ask_delete(volume))
            self.cloud.scheduler.run()
        self.assertEqual(dies, volume.id in self.cloud.world.volumes)
        schedules.end(self.cloud)
        self.assertEqual({}, self.cloud.world.volumes)

    def test_each_node_has_its_clock(self):
        said = []
        for node in self.cloud.nodes():
            self.cloud.scheduler.spawn(
                node.host, lambda: said.append(timeutils.utcnow()),
                self.cloud.world.alive(node))
        later = scheduler.Later()
        later.scheduler = self.cloud.scheduler
        with scheduler.patched(later, 1):
            self.cloud.scheduler.run()
        self.assertEqual([scheduler.moment(scheduler.EPOCH + skew)
                          for skew in (7, 0)], said)


@ddt.ddt
class EncryptedTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = workload.Cloud(
            drawing.Schedule(1, {}, 2, 1, 'pool', [], encrypted=True),
            scheduler.Recorded({}))
        self.addCleanup(self.cloud.scheduler.close)
        self.addCleanup(complaints.take)
        self.world = self.cloud.world
        self.volume, = self.world.volumes.values()
        self.node = self.cloud.home(self.volume)

    def open(self):
        with self.node.lock(self.volume.id):
            devices.open(self.node.node, self.volume, self.volume.name)

    def test_opens(self):
        self.open()
        self.assertIn(names.crypt(self.volume.id), self.node.devices)
        self.assertEqual('', encrypted.check(self.world))

    def test_secret_that_is_lost(self):
        self.world.secrets.kept.clear()
        self.assertIn('is not opened by', self.world.wrong())

    def test_header_that_is_forged_is_not_used(self):
        header = self.world.headers[self.volume.id]
        self.cloud.scheduler.spawn('enemy', lambda: self.cloud._forge(0, 1))
        actor = self.cloud.scheduler.spawn('attach', self.open, after=5)
        self.cloud.scheduler.run()
        self.assertIsInstance(actor.error, encryption_exceptions.ForeignHeader)
        self.assertIs(header, self.world.headers[self.volume.id])
        self.open()

    def test_header_that_is_forged_twice(self):
        header = self.world.headers[self.volume.id]
        for b in (1, 2):
            self.cloud.scheduler.spawn(
                'enemy', lambda b=b: self.cloud._forge(0, b))
        self.cloud.scheduler.run()
        self.assertIs(header, self.world.headers[self.volume.id])

    def test_use_of_a_header_that_is_forged(self):
        self.world.headers[self.volume.id].digest = crypt.FORGED
        self.assertRaises(AssertionError, self.node.node.crypt._inner.open,
                          self.volume.id, b'')

    def test_left(self):
        self.assertEqual(3, len(list(encrypted.left(self.world))))

    def test_clean_up_of_secrets(self):
        encrypted.clean_up(self.world)
        self.assertEqual(1, len(self.world.secrets.kept))
        self.world.destroy(self.volume)
        encrypted.clean_up(self.world)
        self.assertEqual([], list(encrypted.left(self.world)))

    def test_backup_that_could_not_be_removed(self):
        """The operator cleans up: nobody else looks for it."""
        self.world.fault = lambda faults, _hot: (
            ('daemon dies before',) if faults is troubles.LOCAL else None)
        self.cloud.scheduler.spawn('service', lambda: self.assertRaises(
            OSError, self.node.node.crypt.drop_backups, self.volume.id))
        self.cloud.scheduler.run()
        self.assertTrue(self.world.secrets.missed)

    @ddt.data(('error', True), ('creating', True), ('available', False),
              ('in-use', False))
    @ddt.unpack
    def test_lv_that_nobody_was_given_may_go(self, status, may):
        """Its status is an error if the service that was asked has died."""
        self.volume.status = status
        self.node.devices.clear()
        self.node.sim_lvm._inner.mark_uncommitted(self.volume.name)
        with self.node.lock(self.volume.id):
            remove = self.node.sim_lvm._inner.remove_lv
            if may:
                remove(self.volume.name)
            else:
                self.assertRaises(AssertionError, remove, self.volume.name)

    def test_guest_has_what_is_encrypted(self):
        self.assertFalse(self.cloud.is_there(self.volume, self.node))
        self.open()
        self.assertTrue(self.cloud.is_there(self.volume, self.node))
        self.cloud._start_guest(self.volume, self.node.host)
        self.assertEqual({names.crypt(self.volume.id)}, self.node.opened)
        self.cloud.close_all(self.volume.id, self.node.host)
        self.assertEqual(set(), self.node.opened)


@ddt.ddt
class HeldBackTest(testtools.TestCase):
    """I/O of a guest, and of the driver, on a device that is suspended."""

    def setUp(self):
        super().setUp()
        self.cloud = workload.Cloud(
            drawing.Schedule(1, {}, 2, 1, 'pool', []),
            scheduler.Recorded({}))
        self.addCleanup(self.cloud.scheduler.close)
        self.volume, = self.cloud.world.volumes.values()
        self.node = self.cloud.home(self.volume)
        self.handle = names.handle(self.volume.id)
        self.cloud.guests[self.volume.id] = self.node.host

    def write(self, region=0):
        self.cloud.scheduler.spawn('guest', lambda: self.cloud.operate(
            self.volume.id, mock.Mock(choice=lambda _all: 'write',
                                      randrange=lambda _count: region)))
        self.cloud.scheduler.run()
        return self.node.lvs[self.volume.name][0]

    def test_guest_waits(self):
        self.node.suspended.add(self.handle)
        self.assertNotEqual('w1', self.write())
        self.assertEqual({self.volume.id: 1}, self.cloud.waiting)
        self.node.suspended.clear()
        self.cloud.scheduler.run()
        self.assertEqual('w1', self.node.lvs[self.volume.name][0])
        self.assertFalse(self.cloud.waiting[self.volume.id])

    def test_it_is_gone_with_its_node(self):
        self.node.suspended.add(self.handle)
        before = self.write()
        self.node.stop(power=True)
        self.cloud.scheduler.run()
        self.assertEqual(before, self.node.lvs[self.volume.name][0])
        self.assertFalse(self.cloud.waiting[self.volume.id])

    def test_it_goes_with_an_lv(self):
        self.node.disk.create('_snapshot-x', 'x', ['old'])
        self.node.suspended.add('_snapshot-x')
        self.node.sim_lvm._inner.remove_lv('_snapshot-x')
        self.assertFalse(self.node.suspended)

    def test_process_that_waits_ends_once_its_io_has_failed(self):
        """Though Nova has killed it: nothing can be cleared up before."""
        self.cloud._start_guest(self.volume, self.node.host)
        self.cloud.waiting[self.volume.id] = 1
        self.cloud.scheduler.spawn('nova', lambda: self.cloud._close(
            self.volume.id, self.node.host))
        self.cloud.scheduler.run()
        self.assertIn(self.handle, self.node.opened)
        self.cloud.waiting[self.volume.id] = 0
        self.cloud.scheduler.run()
        self.assertNotIn(self.handle, self.node.opened)

    def test_command_gives_up(self):
        self.node.suspended.add(self.handle)

        def act():
            with self.node.lock(self.volume.id):
                self.node.node.handles.read_head(self.volume.id)
        actor = self.cloud.scheduler.spawn('service', act)
        self.cloud.scheduler.run()
        self.assertIsInstance(actor.error, exceptions.CommandTimeout)
        self.assertEqual(seeded.COMMAND, self.cloud.scheduler.now)

    def test_service_that_is_killed_leaves_it_suspended(self):
        def act():
            with self.node.held_back(self.handle):
                raise scheduler.Gone()
        self.cloud.scheduler.spawn('service', act)
        self.cloud.scheduler.run()
        self.assertEqual({self.handle}, self.node.suspended)
        self.node.start_service()
        self.node.reconciler.reconcile_node()
        self.assertEqual(set(), self.node.suspended)

    @ddt.data(('fails', [], 0), ('waits', [], seeded.NO_SPACE_WAIT),
              ('waits', ['w1'], 9))
    @ddt.unpack
    def test_pool_that_is_full(self, how, written, seconds):
        self.cloud.world.no_space = how
        self.node.usage = 100.0, 10.0
        if written:
            self.cloud.scheduler.spawn('operator', lambda: setattr(
                self.node, 'usage', (0.0, 0.0)), after=seconds)
        # Nothing was ever written to the third region.
        self.write(3)
        self.assertEqual(written or [disks.ZERO],
                         self.node.lvs[self.volume.name][3:])
        self.assertEqual(seconds, self.cloud.scheduler.now)

    def test_pool_that_is_full_takes_what_needs_no_room(self):
        self.node.usage = 100.0, 10.0
        self.assertEqual('w1', self.write())

    def test_lv_that_is_not_active_has_no_map(self):
        self.node.disk.inactive.add(self.volume.name)
        self.assertRaises(
            thin_map.OddMap, self.node.sim_lvm._inner.holes,
            self.volume.name, disks.GIB, None)

    @ddt.data(('pool', True), (None, False))
    @ddt.unpack
    def test_map_of_what_is_copied_is_flushed_by_a_pool_alone(self, pool,
                                                              flushed):
        self.cloud.world.pool = pool
        before, lv = self.node.lvs[self.volume.name][0], self.volume.name
        self.node.disk.write(lv, 0, 'new')
        self.node.sim_clones._inner.unmapped_blocks(types.SimpleNamespace(
            destination_lv=lv, size_bytes=disks.GIB), 1)
        self.assertEqual('new' if flushed else before,
                         self.node.disk.flushed(lv)[0])

    def test_guest_that_runs_from_the_beginning(self):
        self.cloud.schedule.running = True
        self.cloud.start()
        self.assertEqual({self.volume.id: self.node.host}, self.cloud.guests)
        self.assertIs(self.volume, self.cloud._attached(0, 1))
        self.cloud.scheduler.run()
        self.assertEqual([], self.cloud.world.wrongs)

    def attach(self):
        self.volume.volume_attachment = [types.SimpleNamespace(
            attach_status='attached',
            connector=self.cloud.connector(self.node.host))]

    @ddt.data(*seeded.NO_SPACE)
    def test_pool_that_is_full_may_disturb_a_guest(self, how):
        self.attach()
        self.cloud.world.no_space = how
        self.node.usage = 100.0, 10.0
        self.write(3)
        self.assertEqual([], self.cloud.world.wrongs)

    @ddt.data(IOError('lost'), seeded.Waits('it', lambda: True))
    def test_nothing_else_may(self, error):
        self.attach()
        with mock.patch.object(self.node, 'write', autospec=True,
                               side_effect=error):
            self.assertRaises(AssertionError, self.write)
        wrong, = complaints.take()
        self.assertIn('a guest loses its volume', wrong)

    def test_nova_ends_a_live_migration_once(self):
        """Two that have waited for the I/O of its guest: one goes on."""
        told = [types.SimpleNamespace(
            attach_status='attached', left=False,
            connector=self.cloud.connector(host))
            for host in instances.HOSTS[:2]]
        self.volume.volume_attachment = told
        self.volume.status = 'in-use'
        self.cloud.waiting[self.volume.id] = 1
        ended = []
        with mock.patch.object(
                self.cloud, '_disconnect', autospec=True,
                side_effect=lambda _volume, which, *_asks: (
                    ended.append(which), self.cloud.scheduler.wait(5))):
            for _each in range(2):
                self.cloud.scheduler.spawn(
                    'nova', lambda: self.cloud._finish(0, 4))
            self.cloud.scheduler.spawn(
                'kernel', lambda: self.cloud.waiting.clear(), after=3)
            self.cloud.scheduler.run()
        self.assertEqual(2, len(ended))

    @ddt.data((True, OSError), (False, AssertionError))
    @ddt.unpack
    def test_source_that_has_gone_is_not_exported(self, is_over, error):
        """It is an error if its move has ended since; else it is wrong."""
        move = types.SimpleNamespace(move_id='s', is_over=is_over)
        self.cloud.world.move_records['s'] = move
        self.assertRaises(error, self.node.sim_exports._insist_device,
                          'localclone-source-s')
        complaints.take()

    def test_evacuated_instance_is_started_once(self):
        """Whoever asks for its start meanwhile starts no second one."""
        cloud, (here, there) = self.cloud, instances.HOSTS[:2]
        told = types.SimpleNamespace(
            attach_status='attached', left=False, instance_uuid='vm',
            connector=cloud.connector(here))
        self.volume.volume_attachment = [told]
        self.volume.status = 'in-use'
        cloud.guests[self.volume.id] = here
        started = []

        def connect(volume, host, new, _asked):
            new.attach_status = 'attached'
            new.connector = cloud.connector(host)
            volume.volume_attachment = [new]
            return True

        def start(volume, host):
            started.append(host)
            cloud.guests[volume.id] = host
        with mock.patch.object(
                cloud, '_connect', autospec=True, side_effect=connect), (
                    mock.patch.object(cloud, '_disconnect', autospec=True)), (
                    mock.patch.object(cloud, '_start_guest', autospec=True,
                                      side_effect=start)):
            cloud.scheduler.spawn('nova', lambda: cloud._evacuate(0, 0))
            cloud.scheduler.spawn('user', lambda: (
                cloud.guests.pop(self.volume.id, None),
                cloud.resume(self.volume)), after=0.5)
            cloud.scheduler.run()
        self.assertEqual([there], started)

    def test_what_waits_for_ever_is_wrong(self):
        self.cloud.waiting[self.volume.id] = 1
        self.assertRaises(AssertionError, schedules._check_guests,
                          self.cloud)


@ddt.ddt
class ScheduleTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.enterContext(schedules.fast())
        self.addCleanup(complaints.take)

    @ddt.data(*SEEDS)
    def test_seed(self, seed):
        run(seed)

    @ddt.data(*SEEDS[:10])
    def test_seed_of_encrypted_volumes(self, seed):
        run(seed, encrypts=True)

    def test_recorded_choices_replay_it(self):
        for seed in range(20):
            schedule, trace = run(seed)
            again = shrinking.load(shrinking.dump(schedule))
            self.assertEqual(trace, schedules.run(again))

    def test_same_seed_in_another_process(self):
        found = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', TELL], check=True,
            env={**os.environ, 'PYTHONHASHSEED': '7'}, text=True,
            stdout=subprocess.PIPE, timeout=120).stdout
        self.assertEqual(digest(range(6)), found.strip())

    @ddt.data(*QUICK)
    def test_planted_fault_is_found(self, fault):
        find(fault, 60)

    def test_planted_fault_is_found_and_shortened(self):
        seed, error = find(FAULT, 20)
        schedule = drawing.draw(seed)
        with planted.planted(*planted.FAULTS[FAULT]):
            self.assertRaises(schedules.Broken, schedules.run, schedule,
                              scheduler.Choices(seed, schedule.how))
            events = len(schedule.events)
            short, last = shrinking.Shrinker(schedule, error).shrink()
            self.assertLess(len(short.events), events)
            self.assertEqual(shrinking.kind(error), shrinking.kind(last))
            self.assertRaises(schedules.Broken, schedules.run, short)
        schedules.run(short)  # it is the fault that breaks it


class PlantedTest(testtools.TestCase):

    def test_all_can_be_planted(self):
        for fault in planted.FAULTS.values():
            with planted.planted(*fault):
                pass

    def test_text_that_is_not_there(self):
        with testtools.ExpectedException(ValueError):
            with planted.planted('core.volume', 'Row.may_move',
                                 'no such text', ''):
                pass
