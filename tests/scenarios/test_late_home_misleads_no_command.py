# SPDX-License-Identifier: Apache-2.0
"""doctor and node forget, while a row names a former home."""

import contextlib
import io
import json
from unittest import mock

import fixtures

from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd import main
from cinder_localclone.cmd.node import forget
from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Phase
from tests.helpers import callers
from tests.helpers import late_home_case as stage
from tests.helpers import revert_case
from tests import world as worlds

A, B, C, NEW = stage.A, stage.B, stage.C, stage.NEW


class Base(stage.Base):

    def unknown(self, host):
        """The LVs that doctor tells to remove."""
        node = self.world.nodes[host]
        backend = mock.Mock(host=host)
        backend.db = node.make_database()
        backend.lvm.return_value = node.node.lvm
        return [*doctor._unknown_lvs(backend)]

    def command(self, host, *words):
        backend = mock.MagicMock(host=C)
        backend.name = 'l'
        backend.db = self.world.nodes[C].make_database()
        up = {each: not node.dead
              for each, node in self.world.nodes.items()
              if each not in self.world.forgotten}
        up[host] = False
        backend.db.services.alive_by_host = lambda: up
        backend.nodes.return_value = up
        backend.ask.return_value = {'host': C + '#p'}, ''
        asked = callers.has_lv(self.world)
        backend.call.side_effect = lambda node, _method, volume_id, _lv: (
            asked(self.world.nodes[C].node.volumes.volume(volume_id), node))
        self.useFixture(fixtures.MockPatchObject(
            main.LocalClone, 'backend', return_value=backend))
        services = self.useFixture(fixtures.MockPatchObject(
            worlds.SimDecommission, 'forget_service', return_value=True)).mock
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            code = main.main(['--json', 'node', 'forget', host, *words])
        return code, services.called, (
            json.loads(out.getvalue()) if out.getvalue() else err.getvalue())


class DoctorTest(Base):
    """The only copy is not told to be removed: a row names it."""

    def test_late_home_then_new_name(self):
        self.finish()
        self.rename()
        self.new.reconciler.reconcile_node()
        self.assertEqual([], self.unknown(NEW))

    def test_late_home_while_a_cleanup_is_pending(self):
        self.copy_all()
        self.rename()
        self.new.reconciler.reconcile_node()
        self.a.gone = False
        self.world.settle()
        self.assertEqual([], self.unknown(NEW))

    def test_removed_service_that_is_started_again(self):
        """No node has got another name."""
        self.finish()
        self.write_late()
        self.b.reconciler.reconcile_node()
        self.assertEqual([], self.unknown(B))


class ForgetTest(Base):

    def renamed(self):
        """A late home, then a new name, while a cleanup is pending."""
        self.copy_all()
        self.rename()
        self.assertIn(self.volume.name, self.new.lvs)

    def test_source_twice(self):
        """The command says what to do, and says it again."""
        self.renamed()
        self.lose(self.a)
        for _time in range(2):
            code, forgotten, told = self.command(A, '--yes')
            self.assertEqual((1, False), (code, forgotten), told)

    def test_old_name_after_the_cleanup(self):
        """The living node with the LV is asked."""
        self.renamed()
        self.a.gone = False
        self.world.settle()
        self.world.settle()
        self.assertEqual({}, self.world.move_records)
        self.assertEqual(B + '#p', self.volume.host)
        _code, _forgotten, told = self.command(B, '--yes')
        self.assertEqual('available', self.volume.status, told)

    def test_home_during_a_migration_by_cinder(self):
        """The end of the migration must not hide the loss."""
        self.copy()
        self.volume.host = A + '#p'
        self.volume.migration_status = 'migrating'
        self.lose(self.b)
        code, forgotten, told = self.command(B, '--yes')
        self.assertTrue(
            self.volume.status == 'error' or code == 1 and not forgotten,
            (self.volume.host, self.home(), self.volume.status, told))

    def migrating(self):
        self.copy()
        self.volume.host = A + '#p'
        self.volume.migration_status = 'migrating'

    def test_loss_is_shown_before_the_end_of_a_migration(self):
        """--yes ends the migration, and gives up the volume."""
        self.migrating()
        self.lose(self.b)
        _code, _forgotten, told = self.command(B)
        self.assertIn(
            (self.volume.id, 'the whole volume',
             'in status "error", ' + forget.MIGRATED),
            [(row['Volume'], row['Lost'], row['Then']) for row in told])
        self.assertEqual('migrating', self.volume.migration_status)

    def test_home_during_a_migration_that_may_go_on(self):
        """The other home may be copying, so the migration does not end."""
        self.migrating()
        self.world.row('x@other', migration_status='target:' + self.volume.id)
        self.lose(self.b)
        code, forgotten, told = self.command(B, '--yes')
        self.assertEqual('migrating', self.volume.migration_status)
        self.assertEqual((1, False), (code, forgotten), told)
        self.assertIn('migrating the volume on ' + A, str(told))

    def test_former_home_during_a_migration_that_may_go_on(self):
        """The row names the lost node; the home lives. See what to do."""
        self.migrating()
        self.world.row('x@other', migration_status='target:' + self.volume.id)
        self.lose(self.a)
        for _time in range(2):
            code, forgotten, told = self.command(A, '--yes')
            self.assertEqual((1, False), (code, forgotten), told)
            self.assertEqual('migrating', self.volume.migration_status)
        self.assertIn('migrating the volume on ' + B, str(told))
        _code, _forgotten, told = self.command(A)
        self.assertIn('own migration has ended', str(told))
        self.assertIn((self.volume.id, forget.NOTHING),
                      [(row['Volume'], row['Lost']) for row in told])
        self.volume.migration_status = None
        self.assertEqual((0, True), self.command(A, '--yes')[:2])
        self.assertEqual(B + '#p', self.volume.host)

    def test_silent_node_is_asked_once(self):
        """Each call without an answer lasts eight seconds.

        cinder-manage has removed the service of the lost node.
        """
        for _volume in range(3):
            self.world.create_volume(B)
        self.lose(self.b)
        self.world.forgotten.add(B)
        asked = []

        def has_lv(_world):
            def ask(volume, node):
                asked.append(node)
                raise exceptions.PeerUnreachable(
                    host=node, method='has_lv', seconds=8)
            return ask
        self.plan(B, has_lv)
        self.assertEqual(sorted(set(asked)), sorted(asked))

    def test_migration_of_a_volume_of_a_renamed_node(self):
        """It is not lost: the node with the LV is asked first."""
        self.migrating()
        self.update_host()
        self.start()
        step, = self.plan(B)
        self.assertEqual(forget.NOTHING, step.lost)
        failed, = self.take([step])
        self.assertIn('%s has the LV' % NEW, str(failed))

    def test_migration_of_a_row_that_is_right(self):
        """Its loss is told once."""
        self.copy()
        self.volume.migration_status = 'migrating'
        self.lose(self.b)
        step, = self.plan(B)
        self.assertIn('writes since its move began', step.lost)

    def test_guest_that_goes_back_during_a_migration(self):
        self.a.opened.add('localclone-' + self.volume.id)
        self.attach(self.world, self.volume, B, live=True)
        self.assertIs(Phase.STARTING, self.move().phase)
        self.volume.host = A + '#p'
        self.volume.migration_status = 'migrating'
        self.lose(self.b)
        self.assertEqual(['destination of a live migration'],
                         [step.what for step in self.plan(B)])

    def test_migration_by_a_home_of_which_only_the_service_tells(self):
        """The record of its move has ended."""
        self.finish()
        self.volume.host = A + '#p'
        self.volume.migration_status = 'migrating'
        self.lose(self.b)
        code, forgotten, told = self.command(B, '--yes')
        self.assertEqual((1, False), (code, forgotten), told)


class RevertedTest(revert_case.Base):
    """A revert changes the home, too; the new LV is uncommitted at first."""

    def late(self):
        world, volume, snapshot, expected, _written = self.prepared(home=B)
        self.revert(world, volume, snapshot)
        self.assertEqual(A + '#p', volume.host)
        self.assertEqual('available', volume.status)
        volume.host = B + '#p'  # by a retype that began there
        return world, volume, expected

    def test_home_is_corrected(self):
        world, volume, expected = self.late()
        for _time in range(3):
            world.settle()
        self.assertEqual(A + '#p', volume.host)
        self.assertEqual(expected, self.all_of(world, volume))

    def test_lost_former_home(self):
        """The volume is on a living node."""
        world, volume, expected = self.late()
        world.settle()
        world.nodes[B].gone = True
        world.nodes[B].stop(power=True)
        callers.take(callers.plan_to_forget(world, B, A))
        self.assertEqual((A + '#p', 'available'), (
            volume.host, volume.status))
        self.assertEqual(expected, self.all_of(world, volume))
