# SPDX-License-Identifier: Apache-2.0
"""Snapshots with a stop at every moment, on any node; then converge."""

import dataclasses
import itertools
from unittest import mock

import ddt
import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import rpc
from cinder_localclone.core.state import Event
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import snapshots
from tests.helpers import callers
from tests.helpers import move_case
from tests.helpers.snapshot_case import A
from tests.helpers.snapshot_case import B
from tests.helpers.snapshot_case import Base
from tests import world as worlds

ONE, TWO = move_case.ONE, move_case.TWO
AT_A, AT_ANOTHER = {'host': 'a'}, {'host': 'x', 'initiator': 'iqn.x'}


@ddt.ddt
class StopTest(Base):

    def scenario(self, stop_at, faults, stale):
        """A snapshot is taken, its volume moves, it is deleted.

        :param stale: whether Cinder asks nodes that are not the home
        """
        world, volume, expected = self.begin(faults=faults)
        world.stop_at = stop_at
        snapshot = None
        for _attempt in range(4):
            try:
                snapshot = self.take(world, volume, B if stale else A)
                break
            except (exceptions.LocalCloneError, worlds.Stopped):
                world.recover()
                for failed in list(world.snapshots):
                    self.drop(world, failed, A)
        before = list(expected)
        self.assertEqual(before, self.content(world, snapshot))
        # It writes another value in B, and comes back.
        self.run_move(world, volume, expected, B)
        self.assertEqual(before, self.content(world, snapshot))
        self.run_move(world, volume, expected, A)
        self.assertEqual(before, self.content(world, snapshot))
        self.drop(world, snapshot, B if stale else A)
        world.settle()
        world.settle()
        self.check_all(world)
        return world

    @ddt.data(*itertools.product(ONE, (False, True)))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, stale):
        self.stop_everywhere(
            lambda stops: self.scenario(stops, faults, stale),
            turn=ONE.index(faults))

    def short(self, stop_at, faults, stale):
        """The same without the moves."""
        world, volume, expected = self.begin(faults=faults)
        world.stop_at = stop_at
        for _attempt in range(4):
            try:
                snapshot = self.take(world, volume, B if stale else A)
                break
            except (exceptions.LocalCloneError, worlds.Stopped):
                world.recover()
                for failed in list(world.snapshots):
                    self.drop(world, failed, A)
        self.assertEqual(expected, self.content(world, snapshot))
        self.drop(world, snapshot, B if stale else A)
        world.settle()
        world.settle()
        self.check(world, volume, expected)
        self.check_all(world)
        return world

    @ddt.data(*itertools.product(TWO, (False, True)))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, faults, stale):
        self.stop_everywhere(
            lambda stops: self.short(stops, faults, stale), 2)

    def test_deleted_with_its_volume(self):
        """A cascade, after the volume has moved away."""
        for down in (False, True):
            world, volume, expected = self.begin()
            snapshot = self.take(world, volume)
            self.run_move(world, volume, expected)
            if down:
                world.nodes[A].gone = True
                world.nodes[A].stop(power=True)
            self.drop(world, snapshot, B)
            volume.status = 'deleting'
            callers.delete(world.nodes[B].node, volume)
            world.destroy(volume)
            self.assertEqual({}, world.nodes[B].lvs)
            self.assertEqual(down, bool(world.nodes[A].lvs))
            world.nodes[A].gone = False
            world.settle()
            self.check_all(world)

    def test_volume_is_deleted_before_its_snapshots_are_gone(self):
        world, volume, _expected = self.begin()
        snapshot = self.take(world, volume)
        with world.nodes[A].lock(snapshot):  # busy: the look removes it
            self.drop(world, snapshot, A)
        volume.status = 'deleting'
        callers.delete(world.nodes[A].node, volume)
        world.destroy(volume)
        self.assertEqual([names.snapshot_lv(snapshot)],
                         list(world.nodes[A].lvs))
        world.settle()
        self.check_all(world)


@ddt.ddt
class CreateTest(Base):

    def test_at_another_home(self):
        world, volume, expected = self.begin()
        self.run_move(world, volume, expected)
        snapshot = self.take(world, volume, A)
        self.assertEqual(B, world.snapshots[snapshot].node)
        self.assertEqual(expected, self.content(world, snapshot))

    def test_while_it_is_copied(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        for host in (A, B):
            error = self.assertRaises(exceptions.BeingCopied, self.take,
                                      world, volume, host)
            self.assertIn('still being copied to b@l', str(error))
        world.settle()
        self.take(world, volume)

    def test_of_a_volume_that_was_extended_since_cinder_asked(self):
        """What is made of one shorter than its volume would be cut off."""
        world, volume, _expected = self.begin()
        snapshot, node = world.snapshot_row(volume), world.nodes[A]
        worlds.extend(node, volume, 2)
        volume.size = 2
        error = self.assertRaises(
            exceptions.NotPossible, snapshots.create, node.reconciler,
            snapshot, volume.id, 0)
        self.assertIn('extended to 2 GiB after snapshot %s of 1 GiB' % (
            snapshot), str(error))
        self.assertEqual('', world.snapshots[snapshot].node)
        self.assertEqual([volume.name], list(node.lvs))

    def test_it_waits_for_the_copy(self):
        world, volume, expected = self.begin()
        world.nodes[A].move(volume, B)
        sleeps = self.useFixture(fixtures.MockPatch(
            'tenacity.nap.time.sleep',
            side_effect=lambda _seconds: world.settle())).mock
        snapshot = world.snapshot_row(volume)
        node = world.nodes[A]
        self.assertEqual('lc1:b@l', snapshots.create(
            node.reconciler, snapshot, volume.id, 300))
        sleeps.assert_called_once_with(snapshots.EVERY)
        self.assertEqual(expected, self.content(world, snapshot))

    def test_progress_is_told_where_it_is_known(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        world.nodes[B].broken = True
        world.reconcile()
        world.reconcile()
        error = self.assertRaises(exceptions.BeingCopied, self.take, world,
                                  volume, B)
        self.assertIn('(0.0 %)', str(error))

    def test_between_two_nodes(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B, live=True)
        for host in (A, B):
            self.assertRaises(exceptions.VolumeIsMoving, self.take, world,
                              volume, host)

    def test_a_move_that_was_not_committed_is_given_up(self):
        world, volume, expected = self.begin()
        world.nodes[A].node.moves.begin(
            volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        snapshot = self.take(world, volume)
        self.assertEqual(expected, self.content(world, snapshot))
        self.assertEqual({}, world.move_records)

    @ddt.data((95.0, 0.0), (0.0, 90.0))
    def test_full_pool(self, usage):
        world, volume, _expected = self.begin()
        world.nodes[A].usage = usage
        self.assertRaises(exceptions.PoolFull, self.take, world, volume)
        self.assertEqual([volume.name], list(world.nodes[A].lvs))
        world.nodes[A].usage = (94.9, 89.9)
        self.take(world, volume)

    def test_thick_volume(self):
        world, volume, _expected = self.begin()
        world.pool = None
        self.assertRaises(exceptions.NeedsThin, self.take, world, volume)
        # What was refused can be deleted.
        snapshot, = world.snapshots
        self.drop(world, snapshot, A)
        world.settle()
        self.check_all(world)

    def test_what_is_in_the_page_cache(self):
        world, volume, expected = self.begin()
        world.nodes[A].write(volume.id, 1, 'cached', flushed=False)
        snapshot = self.take(world, volume)
        world.nodes[A].stop(power=True)
        world.settle()
        expected[1] = 'cached'
        self.assertEqual(expected, self.content(world, snapshot))

    @ddt.data({'status': 'error'}, {'deleted': True})
    def test_a_request_that_is_late_makes_nothing(self, changes):
        world, volume, _expected = self.begin()
        snapshot = world.snapshot_row(volume)
        world.set_snapshot(snapshot, **changes)
        self.assertRaises(
            exceptions.TooLate, snapshots.take,
            world.nodes[A].reconciler, snapshot)
        self.assertEqual([volume.name], list(world.nodes[A].lvs))

    def test_a_volume_or_a_row_that_is_gone(self):
        world, volume, _expected = self.begin()
        snapshot = world.snapshot_row(volume)
        node = world.nodes[A]
        del world.volumes[volume.id]
        self.assertRaises(exceptions.TooLate, snapshots.create,
                          node.reconciler, snapshot, volume.id, 0)
        self.assertRaises(exceptions.TooLate, snapshots.take,
                          node.reconciler, 'none')

    def test_a_node_that_is_not_the_home(self):
        world, volume, _expected = self.begin()
        snapshot = world.snapshot_row(volume)
        self.assertRaises(
            exceptions.StaleMove, snapshots.take,
            world.nodes[B].reconciler, snapshot)
        self.assertEqual('', world.snapshots[snapshot].node)

    def test_a_copy_of_which_there_is_no_record(self):
        world, volume, expected = self.begin()
        self.run_move(world, volume, expected)
        node = world.nodes[B]
        node.disk.create(names.metadata_lv(volume.name_id), volume.id,
                         {'local': set()})
        self.assertRaises(exceptions.MissingData, self.take, world, volume)

    def test_of_which_nothing_was_made(self):
        world, volume, _expected = self.begin()
        snapshot = world.snapshot_row(volume)
        done = len(world.done)
        for host in (A, B):
            self.drop(world, snapshot, host)
        self.drop(world, self.take(world, volume), A)
        snapshots.delete(world.nodes[A].node, 'none')
        self.assertLess(done, len(world.done))
        world.settle()
        self.check_all(world)


@ddt.ddt
class SweepTest(Base):

    def setUp(self):
        super().setUp()
        self.world, self.volume, self.expected = self.begin()
        self.snapshot = self.take(self.world, self.volume)
        self.lv = names.snapshot_lv(self.snapshot)
        self.node = self.world.nodes[A]

    @ddt.data({'status': 'available'}, {'status': 'error'},
              {'status': 'creating'}, {'status': 'backing-up'})
    def test_what_somebody_wants_stays(self, changes):
        self.world.set_snapshot(self.snapshot, **changes)
        self.world.settle()
        self.assertIn(self.lv, self.node.lvs)

    @ddt.data({'status': 'deleting'}, {'deleted': True})
    def test_what_nobody_wants_goes(self, changes):
        self.world.set_snapshot(self.snapshot, **changes)
        self.world.settle()
        self.assertNotIn(self.lv, self.node.lvs)

    def rename(self, before, said=None):
        """Node A was called otherwise before; nobody is called so any more.

        :param said: which host the LV's tags name, if not that one
        """
        self.world.set_snapshot(self.snapshot, node=before)
        self.node.disk.tags[self.lv] = frozenset(
            each for each in self.node.disk.tags[self.lv]
            if each != names.node_tag(A)) | {names.node_tag(said or before)}

    def test_a_node_with_another_name_finds_its_own(self):
        self.rename('before@l')
        self.world.reconcile()
        self.assertEqual(A, self.world.snapshots[self.snapshot].node)
        self.assertEqual(self.expected, self.content(
            self.world, self.snapshot))
        self.world.reconcile()
        self.assertEqual({names.node_tag(A)}, {
            tag for tag in self.node.disk.tags[self.lv]
            if 'on=' in tag})
        # A volume is made of it again.
        new = self.world.row(A)
        clone.from_snapshot(self.node.node, new.id, self.snapshot)
        self.assertEqual(self.expected, list(self.node.lvs[new.name]))

    def test_renamed_and_killed_at_any_moment(self):
        for moment in range(1, 4):
            self.rename('before@l')
            self.world.stop_at = (self.world.moment + moment,)
            self.world.faults = ('kill',)
            for _look in range(4):
                self.world.reconcile()
            self.assertEqual(A, self.world.snapshots[self.snapshot].node)
            self.assertEqual({names.node_tag(A)}, {
                tag for tag in self.node.disk.tags[self.lv]
                if 'on=' in tag})

    @ddt.data(
        # the row's node, the LV's
        (B, B),  # that lives, whatever the disks of this one say
        ('before@l', 'another@l'),  # a request has failed here before
        ('before@other', 'before@other'))  # of another backend in the group
    @ddt.unpack
    def test_what_is_none_of_its_own(self, row, tag):
        self.rename(row, tag)
        self.world.reconcile()
        self.assertEqual(row, self.world.snapshots[self.snapshot].node)

    def test_what_has_no_row_stays(self):
        self.world.snapshots.clear()
        self.world.settle()
        self.assertIn(self.lv, self.node.lvs)

    def test_one_that_fails_does_not_stop_others(self):
        other = self.take(self.world, self.volume)
        for each in (self.snapshot, other):
            self.world.set_snapshot(each, deleted=True)
        lvm = self.node.node.lvm._inner
        remove = lvm.remove_lv

        def remove_all_but_one(name):
            if name == self.lv:
                raise exceptions.CommandFailed(command='c', code=5,
                                               stderr='s')
            return remove(name)
        lvm.remove_lv = remove_all_but_one
        self.world.reconcile()
        self.assertEqual([self.volume.name, self.lv], list(self.node.lvs))
        lvm.remove_lv = remove
        self.world.settle()
        self.check_all(self.world)

    def connect(self, connector=AT_ANOTHER, host=A):
        node = self.world.nodes[host].node
        return rpc.call_at(snapshots.with_node(node, self.snapshot).node,
                           snapshots.connect, node, self.snapshot, connector)

    def disconnect(self, connector=AT_ANOTHER, host=A):
        snapshots.disconnect(self.world.nodes[host].node, self.snapshot,
                             connector)

    @ddt.data(A, B)
    def test_exported_where_it_is(self, host):
        found = self.connect(AT_A, host)
        self.assertEqual({
            'driver_volume_type': 'local',
            'data': {'device_path': names.handle_path(self.snapshot)}}, found)
        self.assertEqual(self.expected, [
            self.node.read(self.snapshot, n) for n in range(worlds.REGIONS)])
        self.disconnect(AT_A, host)
        self.assertNotIn(names.handle(self.snapshot), self.node.devices)
        self.assertIn(self.lv, self.node.disk.inactive)

    @ddt.data(A, B)
    def test_exported_elsewhere(self, host):
        found = self.connect(host=host)
        self.assertEqual('iscsi', found['driver_volume_type'])
        self.assertEqual('ro', found['data']['access_mode'])
        self.assertEqual({(self.snapshot, 'iqn.x')}, self.node.remote)
        self.disconnect(host=host)
        self.check_all(self.world)

    def test_a_host_without_a_way_to_it(self):
        self.assertRaises(exceptions.Refused, self.connect, {'host': 'x'})

    def test_two_readers(self):
        self.connect()
        self.connect({'host': 'y', 'initiator': 'iqn.y'})
        self.disconnect()
        self.assertEqual({(self.snapshot, 'iqn.y')}, self.node.remote)
        self.disconnect({'host': 'y'})  # who can't have had it by iSCSI
        self.assertIn(names.handle(self.snapshot), self.node.devices)
        self.disconnect(None)
        self.check_all(self.world)

    def test_what_is_being_read_stays(self):
        self.connect()
        self.world.reconcile()
        self.node.lent.clear()
        self.world.read.add(self.snapshot)
        self.world.reconcile()
        self.assertEqual({(self.snapshot, 'iqn.x')}, self.node.remote)
        self.world.read.clear()
        self.world.reconcile()
        self.check_all(self.world)

    def test_a_local_reader_that_has_not_opened_it(self):
        self.connect(AT_A)
        self.world.reconcile()
        self.assertIn(names.handle(self.snapshot), self.node.devices)
        self.node.lent.clear()
        self.node.opened.add(names.handle(self.snapshot))
        self.world.reconcile()
        self.assertIn(names.handle(self.snapshot), self.node.devices)
        self.node.opened.clear()
        self.world.reconcile()
        self.check_all(self.world)

    def test_a_node_that_is_down(self):
        self.node.gone = True
        self.node.stop(power=True)
        self.assertRaises(exceptions.PeerUnreachable, self.connect, host=B)
        self.disconnect(host=B)  # it ends by itself
        self.drop(self.world, self.snapshot, B)
        self.node.gone = False
        self.world.settle()
        self.check_all(self.world)

    @ddt.data({'deleted': True}, {'status': 'deleting'}, {'node': ''})
    def test_none_that_is_not_there_is_exported(self, changes):
        self.world.set_snapshot(self.snapshot, **changes)
        self.assertRaises(exceptions.MissingData, self.connect)
        self.assertRaises(
            exceptions.MissingData, snapshots.connect, self.node.node,
            self.snapshot, AT_A)
        self.assertEqual({}, {name: 0 for name in self.node.devices
                              if self.snapshot in name})

    def test_exported_only_where_it_is_recorded(self):
        self.assertRaises(
            exceptions.MissingData, snapshots.connect,
            self.world.nodes[B].node, self.snapshot, AT_A)

    @ddt.data('available', 'error_deleting')
    def test_kept_if_its_status_was_reset_during_the_look(self, status):
        """The look has listed it as deleted; the row says otherwise now."""
        self.world.set_snapshot(self.snapshot, status='deleting')
        recorded = self.node.node.snapshots._inner
        listed = recorded.snapshots

        def reset(snapshot_ids):
            found = listed(snapshot_ids)
            self.world.set_snapshot(self.snapshot, status=status)
            return found
        present = self.node.node.handles.survey()
        with mock.patch.object(recorded, 'snapshots', reset):
            snapshots.sweep(self.node.node, present)
        self.assertIn(self.lv, self.node.lvs)
        self.world.set_snapshot(self.snapshot, status='deleting')
        snapshots.sweep(self.node.node, present)
        self.assertNotIn(self.lv, self.node.lvs)

    def test_none_is_left_suspended(self):
        lvm = self.node.node.lvm._inner
        resume = self.useFixture(fixtures.MockPatchObject(
            lvm, 'resume', return_value=True)).mock
        lvs = lvm.lvs

        def suspended():
            return {name: dataclasses.replace(lv, suspended=True)
                    for name, lv in lvs().items()}
        self.useFixture(fixtures.MockPatchObject(lvm, 'lvs', suspended))
        with self.node.lock(self.volume.id):  # while one is taken
            snapshots.sweep(self.node.node, self.node.sim_handles.survey())
        resume.assert_called_once_with(self.lv)
        snapshots.sweep(self.node.node, self.node.sim_handles.survey())
        resume.assert_called_with(self.lv)
        self.assertIn(self.volume.name, [
            call.args[0] for call in resume.mock_calls])
