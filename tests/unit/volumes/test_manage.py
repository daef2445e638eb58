# SPDX-License-Identifier: Apache-2.0
"""Managing and unmanaging with a stop at every moment; then converge."""

import math
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.core import statuses
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manageable
from cinder_localclone.volumes import uncommitted
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import move_case
from tests.helpers import snapshot_case
from tests.helpers import specs
from tests import world as worlds
from tests.world import disks

A, B = 'a@l', 'b@l'
ONE, TWO = move_case.ONE, move_case.TWO
FAILURES = (exceptions.LocalCloneError, worlds.Stopped)
DATA = {'source-name': 'data'}


class Base(snapshot_case.Base):

    def begin(self, **how):
        """A world with an LV of somebody else on A, and what that has."""
        world = worlds.World(**how)
        world.pool = 'pool'
        return world, world.foreign(A)

    @staticmethod
    def manage(world, volume, reference=DATA):
        """What Cinder has the node do that the operator has named.

        :raises Exception: what the driver does
        """
        node = world.home(volume).node
        try:
            size = manage.get_size(node, volume.id, reference)
            manage.manage(node, volume.id, reference)
        except FAILURES:
            volume.status = 'error_managing'
            raise
        volume.size, volume.status = size, 'available'

    @staticmethod
    def managing(world, host=A):
        return world.row(host, size=0, status='managing')

    @staticmethod
    def end(world, volume, act, status):
        """Cinder has a node end it, again if that has died."""
        for _attempt in range(4):
            volume.status = status
            try:
                act(world.home(volume).node, volume)
            except FAILURES:
                world.recover()
            else:
                break
        else:
            raise AssertionError('never ended')
        world.destroy(volume)

    def unmanage(self, world, volume):
        self.end(world, volume, lambda node, each:
                 callers.unmanage(node, each.id), 'unmanaging')

    def assert_foreign(self, world, name, content, others=0):
        """An LV is nobody's, and nothing is on it."""
        node = world.nodes[A]
        self.assertEqual(content, node.lvs[name])
        self.assertEqual(frozenset(), node.disk.tags.get(name, frozenset()))
        self.assertEqual(others, len(node.devices))
        self.assertEqual({}, world.nodes[B].lvs)


@ddt.ddt
class StopTest(Base):

    def scenario(self, stop_at, faults):
        """An LV is managed, written to, unmanaged, and managed again."""
        world, expected = self.begin(faults=faults)
        world.stop_at = stop_at
        name = 'data'
        for _attempt in range(4):
            volume = self.managing(world)
            try:
                self.manage(world, volume)
                break
            except FAILURES:
                world.recover()
                self.end(world, volume, callers.delete,
                         'error_managing_deleting')
                world.recover()
                self.assert_foreign(world, name, expected)
        else:
            raise AssertionError('never managed')
        world.recover()
        world.home(volume).write(volume.id, 1, 'new')
        expected[1] = 'new'
        world.settle()
        self.check(world, volume, expected)
        name = volume.name
        self.unmanage(world, volume)
        world.settle()
        self.assert_foreign(world, name, expected)
        again = self.managing(world)
        while again.status == 'managing':
            try:
                lv = world.home(again).sim_lvm.lvs()[name]
                self.manage(world, again, {'source-id': lv.uuid})
            except FAILURES:
                world.recover()
                self.end(world, again, callers.delete,
                         'error_managing_deleting')
                again = self.managing(world)
        world.settle()
        self.check(world, again, expected)
        return world

    @ddt.data(*ONE)
    def test_stop_at_every_moment(self, faults):
        self.stop_everywhere(lambda stops: self.scenario(stops, faults),
                             turn=ONE.index(faults))

    @ddt.data(*TWO)
    def test_stop_at_every_two_moments(self, faults):
        self.stop_everywhere(lambda stops: self.scenario(stops, faults), 2)

    def moved(self, stop_at, faults):
        """A volume that was managed moves, and is unmanaged there."""
        world, expected = self.begin(faults=faults)
        volume = self.managing(world)
        self.manage(world, volume)
        world.stop_at, world.moment = stop_at, 0
        self.run_move(world, volume, expected)
        self.unmanage(world, volume)
        world.settle()
        self.assertEqual({}, world.nodes[A].lvs)
        self.assertEqual({volume.name: expected}, world.nodes[B].lvs)
        self.assertEqual([{}, {}], [
            node.devices for node in world.nodes.values()])
        return world

    @ddt.data(*ONE)
    def test_stop_at_every_moment_after_a_move(self, faults):
        self.stop_everywhere(lambda stops: self.moved(stops, faults),
                             turn=ONE.index(faults))


class RefusedTest(Base):

    def setUp(self):
        super().setUp()
        self.world, self.content = self.begin()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]

    def refused(self, reference=DATA, act=manage.get_size):
        """:returns: why; nothing was done"""
        volume, done = self.managing(self.world), len(self.world.done)
        error = self.assertRaises(exceptions.CannotManage, act, self.a.node,
                                  volume.id, reference)
        self.assertEqual(done, len(self.world.done))
        del self.world.volumes[volume.id]
        return str(error)

    def test_what_is_no_reference(self):
        for act in (manage.get_size, manage.manage):
            for reference in ({}, {'name': 'data'}):
                self.assertIn('must have', self.refused(reference, act))
            for reference in ({'source-name': 'no'}, {'source-id': 'data'}):
                self.assertIn('does not exist', self.refused(reference, act))

    def test_what_is_somebodys(self):
        volume = self.world.create_volume(A)
        lv = {'source-name': volume.name}
        self.assertIn(manageable.MANAGED, self.refused(lv))
        self.a.move(volume, B)
        # Its source, which is still to be copied.
        self.assertIn('has data of volume ' + volume.id, self.refused(lv))

    def test_a_volume_of_another_backend(self):
        other = self.world.row('x@y', status='available')
        self.world.foreign(A, other.name)
        self.assertIn(manageable.MANAGED,
                      self.refused({'source-name': other.name}))
        # One that is gone is nobody's.
        self.world.destroy(other)
        volume = self.managing(self.world)
        self.manage(self.world, volume, {'source-name': other.name})

    def test_the_other_kind(self):
        self.world.pool = None
        self.a.sim_lvm.lvs()
        volume = self.managing(self.world)
        self.manage(self.world, volume)
        self.world.pool = 'pool'
        self.world.foreign(A, 'more')
        self.a.disk.readonly.add('more')
        self.assertIn('read-only', self.refused({'source-name': 'more'}))

    def test_nobody_waits_for_it(self):
        for changes in ({'status': 'error_managing'}, {'host': B + '#p'}):
            volume = self.managing(self.world)
            vars(volume).update(changes)
            self.assertRaises(exceptions.TooLate, manage.manage,
                              self.a.node, volume.id, DATA)
            self.world.destroy(volume)
        self.assertRaises(exceptions.TooLate, manage.manage, self.a.node,
                          names.UUID, DATA)
        self.assertEqual([], self.world.done)

    def test_asked_again(self):
        volume = self.managing(self.world)
        for _time in range(2):
            self.assertEqual(1, manage.get_size(self.a.node, volume.id,
                                                DATA))
            manage.manage(self.a.node, volume.id, DATA)
        self.assertEqual({volume.name: self.content}, self.a.lvs)
        # Only the name that it had first.
        self.assertEqual(
            frozenset(names.tags(volume=volume.id, was='data')),
            self.a.disk.tags[volume.name])
        self.assertIn('has data of volume', self.refused(
            {'source-name': volume.name}))

    def test_a_look_leaves_what_is_being_managed(self):
        volume = self.managing(self.world)
        manage.manage(self.a.node, volume.id, DATA)
        before = repr(self.world.snapshot())
        self.world.settle()
        for status in sorted(statuses.CHANGING_OWNER):
            volume.status = status
            self.world.settle()
        self.assertEqual(before, repr(self.world.snapshot()))

    def test_a_look_does_not_miss_what_could_not_be_managed(self):
        volume = self.managing(self.world)
        for status in sorted(statuses.CHANGING_OWNER):
            volume.status = status
            self.a.reconciler.reconcile(volume.id)
            self.world.settle()
        self.assertEqual({'withdraw_strays'},
                         {what for _host, what, _subject in self.world.done})

    def test_deleting_what_cinder_did_not_take_keeps_it(self):
        for status, size in (('error_managing_deleting', 1), ('deleting', 0)):
            volume = self.managing(self.world)
            manage.manage(self.a.node, volume.id, DATA)
            volume.size = size  # or failed when it was accounted for
            self.end(self.world, volume, callers.delete, status)
            self.world.settle()
            self.assert_foreign(self.world, 'data', self.content)

    def test_deleting_what_cinder_has_taken(self):
        volume = self.managing(self.world)
        self.manage(self.world, volume)
        self.end(self.world, volume, callers.delete, 'deleting')
        self.assertEqual({}, self.a.lvs)

    def test_a_fraction_of_a_gib(self):
        self.a.lvs['data'] += [worlds.EMPTY, worlds.EMPTY]
        volume = self.managing(self.world)
        self.manage(self.world, volume)
        self.assertEqual(2, volume.size)
        self.assertEqual([
            *self.content, worlds.EMPTY, worlds.EMPTY, worlds.ZERO,
            worlds.ZERO], self.a.lvs[volume.name])
        self.assertEqual(8, self.a.devices[names.handle(volume.id)][
            'regions'])

    def test_its_name_was_taken_meanwhile(self):
        volume = self.managing(self.world)
        manage.manage(self.a.node, volume.id, DATA)
        self.world.foreign(A)
        self.end(self.world, volume, callers.delete,
                 'error_managing_deleting')
        self.assert_foreign(self.world, volume.name, self.content)
        self.assert_foreign(self.world, 'data', self.content)


class AdoptionTest(testtools.TestCase):

    def test_lv_that_the_driver_has_made(self):
        """It is no other's: it never gets a name of before."""
        self.assertEqual({}, manage.adopted({'volume-x': mock.Mock(
            tags=names.tags(volume='x'))}, 'volume'))

    def test_what_it_was_extended_by_is_zeroed_first(self):
        """All of it, however long that takes."""
        node = specs.node()
        manage.show(node, 'v', 5)
        self.assertEqual([mock.call.zero_part('v', seconds=math.inf),
                          mock.call.show_lv('v', 5)], node.lvm.mock_calls)


class GivenBackTest(Base):
    """A thick LV was extended to whole GiB before managing it failed."""

    def fail(self, failures):
        """Managing fails when it is zeroed; so does zeroing, so often."""
        world, _content = self.begin()
        world.pool = None
        node = world.nodes[A]
        node.lvs['data'] += ['data4', 'data5']  # 1.5 GiB
        volume, zero = self.managing(world), worlds.SimLvm.zero_part

        def zeroed(*args, **kwargs):
            failing.append(args)
            if len(failing) <= failures:
                raise exceptions.CommandTimeout(command='c', seconds=1)
            return zero(*args, **kwargs)
        failing = []
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part', zeroed))
        self.assertRaises(exceptions.CommandTimeout, self.manage, world,
                          volume)
        return world, volume

    def test_zeroed_to_its_end_before_it_is_given_back(self):
        """Managed again, it has what was written to it meanwhile."""
        world, _volume = self.fail(1)
        node = world.nodes[A]
        self.assertEqual(['data4', 'data5', 'zero', 'zero'],
                         node.lvs['data'][-4:])
        node.lvs['data'][-1] = 'theirs'
        again = self.managing(world)
        self.manage(world, again)
        self.assertEqual('theirs', node.lvs[again.name][-1])

    def test_kept_as_long_as_it_can_not_be_zeroed(self):
        world, volume = self.fail(2)
        node = world.nodes[A]
        self.assertNotIn('data', node.lvs)
        with node.lock(volume.id):
            self.assertTrue(manage.give_back(
                node.node, 'volume', volume.id))
        self.assertEqual('zero', node.lvs['data'][-1])

    def test_lv_that_needs_no_zeroing(self):
        """It could not be activated, which is why managing it failed."""
        world, _content = self.begin()
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.stack.SimLvm.zero_part',
            mock.Mock(side_effect=exceptions.WrongDevice(
                path='p', found='nothing'))))
        self.assertRaises(exceptions.WrongDevice, self.manage, world,
                          self.managing(world))
        self.assertIn('data', world.nodes[A].lvs)


class WithoutRoomTest(Base):
    """A thick LV gets its tags, and then can't be extended."""

    def setUp(self):
        super().setUp()
        self.world, _content = self.begin()
        self.world.pool = None
        self.node = self.world.nodes[A]
        self.node.lvs['data'] += ['data4', 'data5']  # 1.5 GiB

    def full(self):
        """The volume group has no room."""
        real = disks.Disk.extend

        def extend(disk, name, size, thick=False):
            if disk.announce(name, size, thick) > 0:
                raise exceptions.CommandFailed(
                    command='lvextend', code=5, stderr='no free space')
            return real(disk, name, size, thick)
        return mock.patch.object(disks.Disk, 'extend', extend)

    def test_its_owner_extends_it_and_it_is_managed_again(self):
        """What he has written meanwhile is not zeroed."""
        with self.full():
            self.assertRaises(exceptions.CommandFailed, self.manage,
                              self.world, self.managing(self.world))
        self.assertFalse(self.node.disk.tags.get('data'))
        self.node.lvs['data'] += ['theirs6', 'theirs7']
        again = self.managing(self.world)
        self.manage(self.world, again)
        self.assertEqual(['theirs6', 'theirs7'],
                         self.node.lvs[again.name][-2:])

    def test_unmanaged_since(self):
        """It was a volume, which could not be extended."""
        self.node.lvs['data'] += ['data6', 'data7']
        volume = self.managing(self.world)
        self.manage(self.world, volume)
        with self.full(), self.node.lock(volume.id):
            self.assertRaises(
                exceptions.CommandFailed, self.node.sim_lvm.extend_lv,
                volume.name, 3 << 30)
        volume.status = 'unmanaging'
        callers.unmanage(self.node.node, volume.id)
        self.node.lvs[volume.name] += ['theirs'] * disks.REGIONS
        self.world.destroy(volume)
        again = self.managing(self.world)
        self.manage(self.world, again, {'source-name': volume.name})
        self.assertEqual('theirs', self.node.lvs[again.name][-1])


class UnmanageTest(Base):

    def setUp(self):
        super().setUp()
        self.world, self.content = self.begin()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.managing(self.world)
        self.manage(self.world, self.volume)
        self.volume.status = 'unmanaging'

    def refused(self, node=None):
        before = repr(self.world.snapshot()), [
            dict(each.disk.tags) for each in self.world.nodes.values()]
        error = self.assertRaises(
            exceptions.CannotUnmanage, callers.unmanage,
            (node or self.a).node, self.volume.id)
        self.assertEqual(before, (repr(self.world.snapshot()), [
            dict(each.disk.tags) for each in self.world.nodes.values()]))
        return str(error)

    def test_open(self):
        self.a.opened.add(names.handle(self.volume.id))
        self.assertIn('it is open on ' + A, self.refused())

    def test_moving(self):
        self.a.move(self.volume, B)
        # Wherever Cinder asks.
        for node in (self.a, self.b):
            self.assertIn('it is being moved (migrating)',
                          self.refused(node))

    def test_another_volumes_move(self):
        """That has its LV, after Cinder's own migration."""
        other = self.world.create_volume(A)
        self.a.move(other, B)
        for column in ('host', 'name', 'name_id'):
            setattr(self.volume, column, getattr(other, column))
        self.assertIn('it is being moved (migrating)', self.refused(self.b))

    def test_a_move_that_was_interrupted(self):
        """Nobody goes on with it: it is given up first."""
        self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: 'l', 'CHAP', 'i')
        callers.unmanage(self.a.node, self.volume.id)
        self.assertIsNone(self.a.node.moves.move_of(self.volume.id))
        left = self.a.node.lvm.lvs()[self.volume.name]
        self.assertEqual([], names.own_tags(left.tags))

    def test_nobody_is_exported_any_more(self):
        self.a.remote.add((self.volume.id, 'iqn.x:y'))
        callers.unmanage(self.a.node, self.volume.id)
        self.assertEqual(set(), self.a.remote)

    def test_leftovers(self):
        self.a.move(self.volume, B)
        self.a.dead = True
        for _look in range(2):
            self.b.reconciler.reconcile(self.volume.id)
            self.b.hydrate(flushed=True)
        self.b.reconciler.reconcile(self.volume.id)
        move, = self.world.move_records.values()
        self.assertIs(Phase.RELEASING, move.phase)
        self.assertIn(A + ' has a pending cleanup', self.refused(self.b))

    def test_leftovers_of_a_move_that_failed(self):
        self.a.node.moves.begin(
            self.volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: 'l', 'CHAP', 'i')
        move, = self.world.move_records.values()
        self.a.node.moves.advance(move, Event.FAILED)
        self.assertIn(B + ' has a pending cleanup', self.refused())

    def test_a_copy_without_its_record(self):
        """That of the LV which it has since Cinder's own migration."""
        self.volume.name_id = self.world.row(A).id
        self.a.disk.create(names.metadata_lv(self.volume.name_id),
                           self.volume.id, {'local': set()})
        self.assertIn('was not completed', self.refused())

    def test_not_zeroed_to_its_end(self):
        """Whoever manages it again would zero what others wrote there."""
        self.a.disk.tags[self.volume.name] |= {names.given(1), names.shown(1)}
        self.assertIn('is not zeroed completely', self.refused())

    def test_zeroed_to_its_end_and_not_shown(self):
        """An extension has failed after that: nothing is zeroed again."""
        self.a.disk.tags[self.volume.name] |= {names.given(1)}
        callers.unmanage(self.a.node, self.volume.id)
        self.assertEqual([], names.own_tags(
            self.a.node.lvm.lvs()[self.volume.name].tags))

    def test_another_volumes_handle(self):
        """Also of the one that had its LV before Cinder's own migration."""
        other = self.world.row(A, status='available')
        self.a.devices[names.handle(other.id)] = {'below': self.volume.name}
        for self.volume.name_id in self.volume.name_id, other.id:
            self.assertIn('volume %s uses' % other.id, self.refused())

    def test_stale_home(self):
        self.a.move(self.volume, B)
        self.world.settle()
        self.world.settle()
        callers.unmanage(self.a.node, self.volume.id)
        self.assertEqual([{}, {}], [self.b.devices, dict.fromkeys(
            tag for tags in self.b.disk.tags.values() for tag in tags)])
        # It is gone by then.
        self.world.destroy(self.volume)
        callers.unmanage(self.a.node, self.volume.id)

    def test_its_home_is_down(self):
        self.a.move(self.volume, B)
        self.world.settle()
        self.b.dead = True
        self.assertRaises(exceptions.PeerUnreachable, callers.unmanage,
                          self.a.node, self.volume.id)

    def test_what_was_cloned_of_a_snapshot(self):
        """A look that began before must not take it for a failed birth."""
        self.a.disk.tags[self.volume.name] |= {names.UNCOMMITTED}
        present = self.a.sim_handles.survey()
        self.unmanage(self.world, self.volume)
        uncommitted.accept_all(self.a.node, present)
        self.assert_foreign(self.world, self.volume.name, self.content)
        self.assertEqual([self.volume.id], [
            volume_id for volume_id, _lv in present.uncommitted_lvs('g')])


class UnmanagedTest(attach_case.Base):
    """The LV was left at its home, and the answer to that was lost."""

    def test_no_handle_is_made_again(self):
        self.volume.volume_attachment = []
        for status in ('unmanaging', 'error_unmanaging'):
            self.volume.status = 'unmanaging'
            manage.unmanage(self.a.node, self.volume.id)
            self.volume.status = status
            self.a.reconciler.reconcile_node()
            self.assertNotIn(self.handle, self.a.devices, status)


@ddt.ddt
class KnownTest(testtools.TestCase):

    @ddt.data('in-use', *sorted(statuses.CHANGING_OWNER))
    def test_lv_of_a_volume_that_has_moved(self, status):
        """Its name has another id than the volume's, and no tag any more."""
        node = specs.node(host='a@l')
        node.volumes.volumes_of.return_value = [types.SimpleNamespace(
            id='v', name='volume-moved', status=status)]
        known = status in ('in-use', 'unmanaging', 'error_unmanaging')
        self.assertEqual({'volume-moved': 'v'} if known else {},
                         manage.known(node, {}))
