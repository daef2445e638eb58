# SPDX-License-Identifier: Apache-2.0
"""Volumes that are reverted to a snapshot, with a stop at every moment."""

import datetime
import itertools
import types
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.user_messages import Action
from cinder_localclone.driver import snapshots
from cinder_localclone.service import messages
from cinder_localclone.volumes import interrupted
from cinder_localclone.volumes import revert
from tests.helpers import callers
from tests.helpers import move_case
from tests.helpers import revert_case
from tests.helpers.revert_case import A
from tests.helpers.revert_case import B
from tests.helpers.revert_case import Base
from tests.helpers import storage_parts
from tests import world as worlds
from tests.world import disks
from tests.world import images
from tests.world import stack

ONE, TWO = move_case.ONE, move_case.TWO
FAILURES = (exceptions.LocalCloneError, worlds.Stopped)


@ddt.ddt
class StopTest(Base):

    def scenario(self, stops, faults, home, asked):
        world, volume, snapshot, old, written = self.prepared(home, faults)
        world.moment, world.stop_at = 0, stops
        for _attempt in range(4):
            try:
                self.revert(world, volume, snapshot, asked)
            except FAILURES:
                world.recover()
                world.settle()
                # Reverted, or as it was: nothing in between.
                self.assertIn(self.all_of(world, volume), (old, written))
                self.check_all(world)
            else:
                break
        else:
            raise AssertionError('never reverted')
        world.recover()
        self.assertEqual(old, self.all_of(world, volume))
        world.settle()
        self.assertEqual(A, world.home(volume).host)
        world.nodes[A].write(volume.id, 2, 'else')
        self.assertEqual(old, self.content(world, snapshot))
        self.check_all(world)
        return world

    @ddt.data(*itertools.product(ONE, ((A, A), (B, B), (B, A))))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, where):
        self.stop_everywhere(lambda stops: self.scenario(
            stops, faults, *where), turn=ONE.index(faults))

    def dies(self, stops, faults):
        """Nobody resets the status but the service that starts again."""
        world, volume, snapshot, old, written = self.prepared(A, faults)
        world.moment, world.stop_at = 0, stops
        volume.status = 'reverting'
        try:
            callers.revert(world.nodes[A].reconciler, volume.id, snapshot)
        except worlds.Stopped:
            world.settle()
            node = world.nodes[A].node
            interrupted.end_dead(node, datetime.datetime.max)
            self.assertEqual('available', volume.status)
        world.settle()
        self.assertIn(self.all_of(world, volume), (old, written))
        volume.status = 'available'
        world.settle()
        self.check_all(world)
        return world

    @ddt.data(*ONE)
    def test_its_status_when_its_service_has_died(self, faults):
        self.stop_everywhere(lambda stops: self.dies(stops, faults),
                             turn=ONE.index(faults))

    @ddt.data(*itertools.product(TWO, ((A, A), (B, B))))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, faults, where):
        self.stop_everywhere(lambda stops: self.scenario(
            stops, faults, *where), 2)


class RevertTest(Base):

    def refused(self, world, volume, snapshot, error, asked=A):
        """It is as it was, and available."""
        before = repr([(node.disk.lvs, node.devices)
                       for node in world.nodes.values()])
        self.assertRaises(error, self.revert, world, volume, snapshot, asked)
        self.assertEqual('available', volume.status)
        self.assertEqual(before, repr([(node.disk.lvs, node.devices)
                                       for node in world.nodes.values()]))

    def test_to_what_is_longer(self):
        """A snapshot of an LV that was managed may be."""
        world, volume, _expected = self.begin()
        node = world.nodes[A]
        worlds.extend(node, volume, 2)
        volume.size = 2
        snapshot = self.take(world, volume)
        short = world.create_volume(A)
        world.set_snapshot(snapshot, volume_id=short.id)
        error = self.assertRaises(exceptions.ForeignImage, self.revert, world,
                                  short, snapshot)
        self.assertIn('has 2 GiB, and the volume would have 1', str(error))

    def test_what_it_was_is_removed_at_once(self):
        for home in (A, B):
            world, volume, snapshot, _old, _written = self.prepared(home)
            before = volume.name
            self.revert(world, volume, snapshot, home)
            self.assertNotIn(before, world.nodes[home].lvs)
            self.assertNotEqual(before, volume.name)

    def test_in_use(self):
        world, volume, snapshot, _old, _written = self.prepared()
        world.nodes[A].opened.add(names.handle(volume.id))
        self.refused(world, volume, snapshot, exceptions.SourceBusy)

    def test_node_of_the_snapshot_is_down(self):
        world, volume, snapshot, _old, _written = self.prepared(B)
        world.nodes[A].dead = world.nodes[A].gone = True
        self.refused(world, volume, snapshot, exceptions.PeerUnreachable, B)

    def test_while_it_is_copied(self):
        world, volume, expected = self.begin()
        snapshot = self.take(world, volume)
        world.nodes[A].move(volume, B)
        self.refused(world, volume, snapshot, exceptions.BeingCopied, B)
        world.settle()
        self.assertEqual(expected, self.all_of(world, volume))

    def test_snapshot_that_is_gone(self):
        world, volume, snapshot, _old, _written = self.prepared()
        self.drop(world, snapshot, A)
        self.refused(world, volume, snapshot, exceptions.MissingData)

    def test_snapshot_can_not_go_meanwhile(self):
        world, volume, snapshot, _old, _written = self.prepared()
        create_copy = stack.SimLvm.create_copy
        held = []

        def create(*args, **kwargs):
            held.append(set(world.nodes[A].held))
            return create_copy(*args, **kwargs)
        with mock.patch.object(stack.SimLvm, 'create_copy', create):
            self.revert(world, volume, snapshot)
        self.assertEqual([{volume.id, snapshot}], held)

    def test_pool_that_is_full(self):
        world, volume, snapshot, _old, _written = self.prepared()
        world.nodes[A].usage = (95.0, 1.0)
        self.refused(world, volume, snapshot, exceptions.PoolFull)

    def test_late_request(self):
        """Whoever asked for it has given it up, and the volume is used."""
        world, volume, snapshot, _old, _written = self.prepared(B)
        before = repr(world.snapshot())
        self.assertRaises(exceptions.TooLate, revert.create_backing,
                          world.nodes[A].node, volume.id, snapshot, 'new')
        self.assertRaises(exceptions.TooLate, revert.revert,
                          world.nodes[B].reconciler, volume.id, snapshot)
        self.assertEqual(before, repr(world.snapshot()))

    def test_row_that_has_changed(self):
        """The change of the row is what decides."""
        world, volume, snapshot, _old, written = self.prepared()
        rows = world.nodes[A].node.volumes._inner
        with mock.patch.object(
                type(rows), 'replace_backing',
                side_effect=exceptions.StaleMove(volume=volume.id)):
            self.assertRaises(exceptions.StaleMove, self.revert, world,
                              volume, snapshot)
        world.settle()
        self.assertEqual(written, self.all_of(world, volume))
        self.check_all(world)

    def test_row_that_is_read_before_it_changes(self):
        """As the real one: whoever replaces a body says which."""
        for changes in ({'host': B + '#p'}, {'name_id': 'other'}):
            world, volume, snapshot, _old, written = self.prepared()
            lvm = world.nodes[A].node.lvm._inner
            create_copy, before = lvm.create_copy, dict(vars(volume))

            def late(*args, create_copy=create_copy, volume=volume,
                     changes=changes):
                create_copy(*args)
                vars(volume).update(changes)
            lvm.create_copy = late
            volume.status = 'reverting'
            self.assertRaises(exceptions.StaleMove, revert.revert,
                              world.nodes[A].reconciler, volume.id, snapshot)
            vars(volume).update(before)
            world.settle()
            self.assertEqual(written, self.all_of(world, volume))
            self.check_all(world)

    def test_answer_that_is_lost(self):
        """The row is changed, but who has asked for it gets an error."""
        world, volume, snapshot, old, _written = self.prepared()
        rows = type(world.nodes[A].node.volumes._inner)
        replace = rows.replace_backing

        def lose_answer(*args):
            replace(*args)
            raise ConnectionError()
        with mock.patch.object(rows, 'replace_backing', lose_answer):
            self.revert(world, volume, snapshot)
        self.assertEqual(old, self.all_of(world, volume))
        world.settle()
        self.check_all(world)

    def test_failure_after_the_row_has_changed(self):
        """It is reverted: Cinder would leave it in error."""
        for method in ('ensure_handle_on_lv', 'remove_lv'):
            world, volume, snapshot, old, _written = self.prepared()
            before = volume.name
            work = getattr(storage_parts.simulated(method), method)

            def fail(*args, work=work, volume=volume, before=before):
                if volume.name != before:
                    raise exceptions.CommandTimeout(command='x', seconds=1)
                return work(*args)
            with mock.patch.object(
                    storage_parts.simulated(method), method, fail):
                self.revert(world, volume, snapshot)
            world.settle()
            self.assertEqual(old, self.all_of(world, volume))
            self.assertNotIn(before, world.nodes[A].lvs)
            self.check_all(world)

    def test_handle_that_is_longer(self):
        """An extension has failed after it had lengthened LV and handle."""
        world, volume, snapshot, old, written = self.prepared()
        node = world.nodes[A].node
        with node.lock(volume.id):
            with node.allocation_lock():
                node.lvm.extend_lv(volume.name, 2 * disks.GIB)
        with node.lock(volume.id):
            node.lvm.show_lv(volume.name, 2 * disks.GIB)
            node.handles.ensure_handle_on_lv(volume.id, volume.name,
                                             2 * disks.GIB)
        self.assertRaises(exceptions.LongerThanRecorded, self.revert, world,
                          volume, snapshot)
        self.assertEqual(written, self.all_of(world, volume))
        world.settle()
        self.check_all(world)


@ddt.ddt
class DriverTest(testtools.TestCase):
    """After NotImplementedError or AttributeError Cinder itself would copy.

    It would leave out the zeros, and so what was written since stays.
    """

    @ddt.data(NotImplementedError, AttributeError, ValueError,
              exceptions.StaleMove(volume='v'))
    def test_whatever_fails(self, error):
        driver = snapshots.ImageDriver()
        driver.service = mock.MagicMock()
        row = types.SimpleNamespace(id='v', name_id='before a move')
        driver.service.node.volumes.volume.return_value = (
            types.SimpleNamespace(id='v', name_id='n', home='a@l'))
        with mock.patch.object(revert, 'revert', side_effect=error), (
                mock.patch.object(messages, 'api')) as api:
            self.assertRaises(exceptions.NotReverted,
                              driver.revert_to_snapshot, None, row,
                              types.SimpleNamespace(id='s'))
        driver.service.node.volumes.keep.assert_called_once_with('v', 'n')
        self.assertEqual(Action.REVERT.value.cinder,
                         api.API().create.call_args.args[1])

    def test_no_other_snapshot_is_taken_first(self):
        self.assertFalse(
            snapshots.ImageDriver().snapshot_revert_use_temp_snapshot())


class RevertedOntoOpenTest(revert_case.Base):

    def test_a_guest_that_was_detached_by_force(self):
        """It would write into what the volume was reverted to.

        1. A snapshot was taken on A; the volume's home is B. It was passed
           through to a guest on A (it was copied to B, or in a group).
        2. An administrator detaches it by force. That guest goes on to run,
           and has the handle on A open; its writes fail.
        3. The volume, which is available, is reverted to the snapshot. That
           is checked at B to be closed, not at A, where it will be: A's next
           look swaps the open handle onto the volume's new LV.

        Then a guest that has the volume no more writes into it, beside
        whoever attaches it next. The same with a handle that has stayed on A
        because something had opened it as the volume left
        (:func:`.source.drop_handle`).

        By design: the node that makes the body that a volume reverts to
        checks that nothing has the handle open there, as the destination of
        a move does (:func:`.destination._check_handle`).
        """
        world, volume, snapshot, _old, written = self.prepared(B)
        a, b = world.nodes[A], world.nodes[B]
        handle = names.handle(volume.id)
        connector = {'host': 'a', 'initiator': 'iqn.a'}
        attached = images.attachment(
            id='one', instance_uuid='vm', connection_info=None,
            mountpoint=None, attach_status='reserved', connector=None)
        volume.group_id, volume.status = 'g', 'reserved'
        volume.volume_attachment = [attached]
        b.connect(volume, connector)
        a.opened.add(handle)
        b.disconnect(volume, None)
        volume.volume_attachment, volume.status = [], 'available'
        world.reconcile()
        self.assertIn(handle, a.devices)
        self.assertRaises(
            exceptions.SourceBusy, self.revert, world, volume, snapshot, B)
        world.reconcile()
        self.assertNotEqual(volume.name, a.devices[handle]['below'])
        self.assertEqual(written, self.all_of(world, volume))
