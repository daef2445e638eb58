# SPDX-License-Identifier: Apache-2.0
"""Nodes that get other names or are lost, and homes that were written late.

``cinder-manage volume update_host`` writes the new name of a node into the
rows, and not into the records of moves.
"""

from unittest import mock

import ddt

from cinder_localclone.cmd.node import forget
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.volumes import migrate
from tests.helpers import callers
from tests.helpers import late_home_case as stage
from tests import world as worlds

A, B, C, D, NEW = (
    stage.A, stage.B, stage.C, stage.D, stage.NEW)


@ddt.ddt
class RenamedTest(stage.Base):
    """B gets another name: doc/source/operate/renaming.rst."""

    def check_at_new(self):
        self.assertEqual((NEW, NEW + '#p'), (self.home(), self.volume.host))
        self.assertEqual('new', self.new.read(self.volume.id, 1))

    def test_home_is_written_late_after_the_new_name(self):
        """The retype of the source's service ends after the rename."""
        self.copy()
        self.update_host()
        self.start()
        self.new.reconciler.reconcile_node()
        # As correct_services of the new service has written it.
        self.volume.service_uuid = self.world.service_of(NEW)
        self.volume.host = A + '#p'
        self.new.reconciler.reconcile_node()
        self.new.hydrate()
        self.world.settle()
        self.world.settle()
        self.check_at_new()

    def test_the_same_while_a_cleanup_is_pending(self):
        self.copy_all()
        self.update_host()
        self.start()
        self.new.reconciler.reconcile_node()
        self.volume.service_uuid = self.world.service_of(NEW)
        self.volume.host = A + '#p'
        self.new.reconciler.reconcile_node()
        self.check_at_new()

    def test_another_machine_with_the_old_name_takes_no_home(self):
        """It has no LV of the volume."""
        self.copy()
        self.rename()
        self.start_another()
        try:
            self.b.reconciler.reconcile_node()
        finally:
            self.assertNotEqual(B, names.service_host(self.volume.host))

    def test_another_machine_with_the_old_name_is_asked(self):
        """A request comes before its first sweep: it takes no home by it."""
        self.copy_all()
        self.volume.status = 'available'
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        self.start_another()
        self.assertRaises(exceptions.LocalCloneError, migrate.move_away,
                          self.b.node, self.volume.id, C, Asked.DRAIN)
        self.assertEqual((A + '#p', None), (self.volume.host, self.move()))

    def test_another_machine_is_asked_during_the_copy(self):
        """The home by the move has its name; the LV is elsewhere."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        self.start_another()
        self.assertRaises(exceptions.StaleMove, nodes.volume_at_home,
                          self.b.node, self.volume.id)

    @ddt.data((False, True), (True, True), (True, False))
    @ddt.unpack
    def test_copy_ends(self, source_first, forgotten):
        self.copy()
        self.update_host(forgotten=forgotten)
        if source_first:
            self.a.reconciler.reconcile_node()
        self.assertEqual(NEW, self.home())
        self.start()
        self.new.reconciler.reconcile_node()
        self.assertEqual((NEW, NEW + '#p'), (self.home(), self.volume.host))
        self.world.settle()
        self.assertIsNone(self.move())
        self.assertEqual('new', self.new.read(self.volume.id, 1))
        self.assertEqual({}, dict(self.a.lvs))

    def test_another_machine_with_the_old_name(self):
        self.copy()
        self.update_host()
        self.start_another()
        self.b.reconciler.reconcile_node()
        self.start()
        self.new.reconciler.reconcile_node()
        self.assertEqual(NEW, names.service_host(self.volume.host))
        self.assertEqual('new', self.new.read(self.volume.id, 1))
        self.assertEqual(NEW, self.move().destination)

    def test_another_machine_while_a_cleanup_is_pending(self):
        self.copy_all()
        self.assertIsNone(self.move())
        self.update_host()
        self.start_another()
        self.b.reconciler.reconcile_node()
        self.start()
        self.a.gone = False
        self.world.settle()
        self.world.settle()
        self.assertEqual(NEW, names.service_host(self.volume.host))
        self.assertEqual('new', self.new.read(self.volume.id, 1))

    def test_old_service_is_started_by_mistake(self):
        self.copy()
        self.update_host()
        self.volume.service_uuid = None  # that of the removed service
        self.b.gone = self.b.dead = False
        self.world.forgotten.discard(B)
        self.b.reconciler.reconcile_node()
        self.b.stop(power=False)
        self.b.gone = self.b.dead = True
        self.world.forgotten.add(B)
        self.start()
        self.new.reconciler.reconcile_node()
        self.world.settle()
        self.assertEqual(NEW, names.service_host(self.volume.host))

    def test_old_name_is_forgotten(self):
        self.copy()
        self.update_host()
        self.start()
        self.forget(B)
        self.assertEqual((NEW + '#p', 'available'),
                         (self.volume.host, self.volume.status))

    def test_old_name_is_forgotten_during_a_live_migration(self):
        handle = names.handle(self.volume.id)
        self.a.opened.add(handle)
        self.attach(self.world, self.volume, B, live=True)
        self.a.opened.discard(handle)
        self.b.write(self.volume.id, 1, 'new')
        self.assertIs(Phase.STARTING, self.move().phase)
        self.update_host()
        self.forget(B)
        self.start()
        self.new.reconciler.reconcile_node()
        self.assertEqual(NEW, names.service_host(self.volume.host))
        self.assertEqual('new', self.new.read(self.volume.id, 1))

    def test_old_name_is_forgotten_after_a_home_was_written_late(self):
        """The node that has the volume is asked; it lives by another name."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        error = self.assertRaises(errors.CommandError, self.forget, B)
        self.assertIn('%s has the LV' % NEW, str(error))
        self.assertEqual('available', self.volume.status)

    def test_new_name_is_forgotten_during_a_live_migration(self):
        """The move names the old name, so the service tells the home.

        The guest may still be at the source: no volume is given up.
        """
        self.a.write(self.volume.id, 2, 'old')
        self.a.opened.add(names.handle(self.volume.id))
        self.attach(self.world, self.volume, B, live=True)
        self.update_host()
        self.start()
        # As its start does; the copy has yet to go on.
        self.new.node.volumes.correct_services(NEW, self.new.node.lvm.lvs())
        self.assertEqual(NEW, self.a.node.volumes.service_of(self.volume.id))
        self.volume.host = A + '#p'
        self.assertIs(Phase.STARTING, self.move().phase)
        self.lose(self.new)
        step, = self.plan(NEW)
        self.assertEqual('back on ' + A, step.then)
        self.assertEqual([], self.take([step]))
        self.world.forgotten.add(NEW)
        self.world.settle()
        self.assertEqual((A + '#p', 'in-use', None), (
            self.volume.host, self.volume.status, self.move()))
        self.assertEqual('old', self.a.read(self.volume.id, 2))

    def test_new_name_is_forgotten(self):
        self.copy()
        self.update_host()
        self.forget(NEW)
        self.assertEqual((C + '#p', 'error', C),
                         (self.volume.host, self.volume.status, self.home()))


class ForgetTest(stage.Base):

    def test_old_name_of_the_node_with_the_volume(self):
        """Nothing corrects the row then: the operator is told."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        step, = self.plan(B)
        self.assertEqual(forget.NOTHING, step.lost)
        failed, = self.take([step])
        self.assertIn('%s has the LV %s of' % (NEW, self.volume.name),
                      str(failed))
        self.assertEqual('available', self.volume.status)

    def plan_without_answer(self, silent):
        """A node does not answer."""
        answer = callers.has_lv(self.world)

        def has_lv(volume, host):
            if host == silent:
                raise exceptions.PeerUnreachable(
                    host=host, method='has_lv', seconds=8)
            return answer(volume, host)
        return self.plan(B, lambda world: has_lv)

    def test_another_node_does_not_answer_during_a_move(self):
        """It may be the lost node by a new name: nothing is given up."""
        self.copy()
        self.volume.host = A + '#p'
        self.lose(self.b)
        step, = self.plan_without_answer(D)
        self.assertEqual('unknown: %s may have the volume' % D, step.lost)
        failed, = self.take([step])
        self.assertIn('%s may have the volume. Nothing' % D, str(failed))
        self.assertEqual((A + '#p', 'available'),
                         (self.volume.host, self.volume.status))

    def test_node_of_another_backend_is_not_asked(self):
        """Its service has no such method, or is of another driver."""
        self.make_world(('c1@lvm',))
        self.copy()
        self.volume.host = A + '#p'
        self.lose(self.b)
        self.assertEqual([], self.take(self.plan_without_answer('c1@lvm')))
        self.assertEqual((C + '#p', 'error'),
                         (self.volume.host, self.volume.status))

    def test_service_without_the_lv(self):
        """A creation on another node was written late, too."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        self.volume.service_uuid = self.world.service_of(D)
        self.lose(self.a)
        failed, = self.take(self.plan(A))
        self.assertIn('%s has the LV %s of' % (NEW, self.volume.name),
                      str(failed))
        self.assertEqual(A + '#p', self.volume.host)

    def test_another_node_does_not_answer(self):
        """A loss is told, or the service is kept for another attempt."""
        self.finish()
        self.volume.host = A + '#p'
        self.lose(self.b)
        failed = self.take(self.plan_without_answer(D))
        self.assertTrue(failed or self.volume.status == 'error',
                        'available at %s, without an LV' % self.volume.host)

    def test_copied_disk(self):
        """A copy of the lost node's disk is not the node by a new name."""
        self.finish()
        self.volume.host = A + '#p'
        node = self.world.nodes[D]
        node.disk.lvs[self.volume.name] = list(
            self.b.lvs[self.volume.name])
        node.disk.tags[self.volume.name] = self.b.disk.tags[
            self.volume.name]
        self.lose(self.b)
        failed = self.take(self.plan(B))
        self.assertTrue(failed or self.volume.status == 'error',
                        'available at %s, without an LV' % self.volume.host)

    def test_source_after_the_new_name_of_the_destination(self):
        """The record has the old name, which nobody has."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        self.lose(self.a)
        self.take(self.plan(A))
        self.assertNotEqual(B, names.service_host(self.volume.host))

    def test_the_same_without_a_service_in_the_row(self):
        """The node by its new name is asked before the volume is given up."""
        self.copy()
        self.volume.host = A + '#p'
        self.update_host()
        self.start()
        self.volume.service_uuid = 'that of the removed service'
        self.lose(self.a)
        failed, = self.take(self.plan(A))
        self.assertIn('%s has the LV' % NEW, str(failed))
        self.assertEqual((A + '#p', 'available'),
                         (self.volume.host, self.volume.status))

    def test_migration_that_the_lost_node_was_asked_for(self):
        """Cinder asked the home in the row; nobody else ends it."""
        self.copy()
        self.volume.host = A + '#p'
        self.volume.migration_status = 'migrating'
        self.lose(self.a)
        database = self.world.nodes[C].make_database()
        database.interrupted.end_interrupted(A)
        self.assertEqual([], self.take(self.plan(A)))
        self.assertEqual(B, names.service_host(self.volume.host))


class GivenUpTest(stage.Base):
    """A volume is given up to the source of its move."""

    def give_up(self):
        self.lose(self.b)
        self.forget(B, A)
        self.world.forgotten.add(B)
        self.assertEqual((A + '#p', 'error'),
                         (self.volume.host, self.volume.status))

    def delete(self):
        self.volume.status = 'deleting'
        callers.delete(self.a.node, self.volume)
        del self.world.volumes[self.volume.id]
        self.world.settle()
        self.world.settle()
        self.assertEqual({}, self.world.move_records)
        self.assertEqual({}, dict(self.a.lvs))
        self.assertEqual({}, dict(self.a.devices))

    def test_copied(self):
        self.copy()
        self.give_up()
        self.world.settle()
        self.assertIn('volume-' + self.volume.id, self.a.lvs)
        self.delete()

    def test_copied_and_the_lost_node_is_back(self):
        self.copy()
        self.give_up()
        self.b.gone = self.b.dead = False
        self.world.forgotten.discard(B)
        self.world.settle()
        self.world.settle()
        self.assertEqual(A + '#p', self.volume.host)
        self.assertIn('volume-' + self.volume.id, self.a.lvs)
        self.delete()

    def test_pending(self):
        self.copy_all()
        self.a.gone = False
        self.give_up()
        self.world.settle()
        self.assertEqual(A + '#p', self.volume.host)
        self.delete()

    def test_late(self):
        self.copy()
        self.volume.host = A + '#p'
        self.give_up()
        self.world.settle()
        self.assertEqual(A + '#p', self.volume.host)
        self.delete()

    def test_late_and_pending(self):
        self.copy_all()
        self.a.gone = False
        self.volume.host = A + '#p'
        self.give_up()
        self.world.settle()
        self.assertEqual(A + '#p', self.volume.host)
        self.delete()

    def test_late_during_a_live_migration(self):
        handle = names.handle(self.volume.id)
        self.a.write(self.volume.id, 2, 'old')
        self.a.opened.add(handle)
        self.attach(self.world, self.volume, B, live=True)
        self.b.write(self.volume.id, 1, 'new')
        self.volume.host = A + '#p'
        self.lose(self.b)
        self.assertEqual([], self.take(self.plan(B)))
        self.world.forgotten.add(B)
        self.world.settle()
        self.assertEqual('old', self.a.read(self.volume.id, 2))
        self.assertEqual(A, self.home())
        self.assertNotEqual('error', self.volume.status)


class MovedOnTest(stage.Base):
    """Moves on, and back, while records of earlier moves are left."""

    def test_back_while_the_cleanup_is_pending(self):
        self.copy()
        self.b.hydrate()
        with mock.patch('cinder_localclone.moves.cleanup.take_down',
                        side_effect=exceptions.CommandFailed(
                            command='lvremove', code=5, stderr='busy')):
            self.world.settle()
            self.volume.status = 'available'
            try:
                self.b.move(self.volume, A)
            except exceptions.LocalCloneError:
                pass
        self.volume.status = 'available'
        if self.volume.host != A + '#p':
            self.b.move(self.volume, A)
        for late in (B, C, A):
            self.volume.host = late + '#p'
            self.world.settle()
            self.world.settle()
            self.assertEqual((late, A), (late, self.home()))
        self.assertEqual({}, self.world.move_records)
        self.assertEqual('new', self.a.read(self.volume.id, 1))
        self.assertEqual({}, dict(self.b.lvs))

    def test_on_to_a_third_node_with_late_homes(self):
        for late in (A, B, C, D):
            for write in ('before', 'copied', 'ended'):
                with self.subTest(late=late, write=write):
                    self.check_late(late, write)

    def check_late(self, late, write):
        self.make_world()
        self.copy_all()
        self.volume.status = 'available'
        if write == 'before':
            self.volume.host = late + '#p'
            self.b.reconciler.reconcile(self.volume.id)
        self.b.move(self.volume, C)
        c = self.world.nodes[C]
        if write == 'copied':
            self.volume.host = late + '#p'
        self.a.gone = False
        self.world.settle()
        if write == 'ended':
            self.volume.host = late + '#p'
        self.world.settle()
        self.world.settle()
        self.assertEqual(C + '#p', self.volume.host)
        self.assertEqual({}, self.world.move_records)
        self.assertEqual('new', c.read(self.volume.id, 1))
        for node in (self.a, self.b):
            self.assertEqual({}, dict(node.lvs))


class OtherRowsTest(stage.Base):
    """The LV of a move belongs to another row, or to none."""

    def test_row_that_is_gone_while_its_copy_runs(self):
        self.copy()
        self.world.deleted[self.volume.id] = self.world.volumes.pop(
            self.volume.id)
        for node in (self.a, self.b):
            node.reconciler.reconcile_node()
        self.assertEqual({}, self.b.reconciler.copying._copies)

    def begin_and_delete(self):
        self.a.node.moves.begin(
            self.a.node.volumes.volume(self.volume.id), B + '#p',
            Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: 'portal,1 %s 0' % record, 'CHAP u s', 'i')
        self.world.deleted[self.volume.id] = self.world.volumes.pop(
            self.volume.id)

    def test_row_that_is_gone_before_the_commit(self):
        self.begin_and_delete()
        for node in (self.a, self.b, self.a):
            node.reconciler.reconcile_node()
        self.assertEqual({}, self.world.move_records)

    def test_row_that_is_gone_is_asked_for(self):
        """The end of its move is no error."""
        self.begin_and_delete()
        self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual({}, self.world.move_records)

    def test_row_that_is_gone_before_a_move(self):
        """As expected of a request that is late."""
        self.world.deleted[self.volume.id] = self.world.volumes.pop(
            self.volume.id)
        self.assertRaises(exceptions.StaleMove, migrate.move_away,
                          self.a.node, self.volume.id, C, Asked.DRAIN)
