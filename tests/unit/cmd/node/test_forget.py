# SPDX-License-Identifier: Apache-2.0
"""A node that never comes back is forgotten: volumes, moves, clean-ups."""

import contextlib
import io
import json
import logging
from unittest import mock

import ddt
import fixtures
from oslo_config import cfg

from cinder_localclone.cmd import main
from cinder_localclone.cmd.node import forget
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from tests.helpers import callers
from tests.helpers import ended_move_case
from tests.helpers import snapshot_case
from tests import world as worlds
from tests.world import records

A, B, C = ended_move_case.A, ended_move_case.B, ended_move_case.C


@ddt.ddt
class ForgettingTest(ended_move_case.Base):

    def plan(self, world, host, percent=None):
        """What is said of the node: the only step."""
        return forget.plan(world.nodes[C].make_database(), host,
                           C + '#p', lambda move: percent,
                           callers.has_lv(world))

    def forget(self, world, host):
        self.lose(world.nodes[host])
        steps = self.plan(world, host)
        callers.take(steps)
        return steps

    def check_forgotten(self, world, host):
        """Nothing in the records names the node; it is not missed."""
        self.assertEqual([], self.plan(world, host))
        world.settle()

    def test_nothing_names_it(self):
        world, _volume, _expected = self.begin()
        self.assertEqual([], self.plan(world, B))

    def test_volumes_of_a_node_of_a_similar_name(self):
        """The command compares the home of each volume once more."""
        world, _volume, _expected = self.begin()
        with mock.patch.object(records.SimVolumes, 'volumes_of',
                               lambda _own, _host: [*world.volumes.values()]):
            self.assertEqual([], self.plan(world, B))

    def test_leftovers(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        self.complete(world, volume, A, C)
        for host in (A, B):
            step, = self.forget(world, host)
            self.assertEqual(forget.NOTHING, step.lost)
            self.check_forgotten(world, host)
        self.assertEqual({}, world.move_records)
        self.verify(world, volume, expected)
        self.assertEqual('success', volume.migration_status)
        # What they had is theirs: it is not removed once they are back.
        for node in world.nodes.values():
            node.gone = node.dead = False
        world.settle()
        self.assertIn('volume-' + volume.id, world.nodes[A].lvs)
        self.assertEqual({}, world.nodes[A].devices)
        self.verify(world, volume, expected)

    def test_destination_that_is_not_committed(self):
        world, volume, expected = self.begin()
        world.nodes[A].node.moves.begin(
            volume, B + '#p', Event.MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')
        step, = self.forget(world, B)
        self.assertEqual(
            ('uncommitted move to it', forget.NOTHING),
            (step.what, step.lost))
        self.check_forgotten(world, B)
        self.check(world, volume, expected)

    def test_source_that_is_not_committed(self):
        """The volume is lost; the destination cleans up by itself."""
        world, volume, _expected = self.begin()
        prepare = worlds.SimMoves.commit

        def dies(rows, move):
            self.lose(world.nodes[A])
            raise worlds.Stopped(world.nodes[A])
        with mock.patch.object(worlds.SimMoves, 'commit', dies):
            self.assertRaises(worlds.Stopped, world.nodes[A].move, volume, B)
        self.assertIs(prepare, worlds.SimMoves.commit)
        self.assertEqual([
            ('uncommitted move from it', 'see the row of the volume'),
            ('home of the volume (available)', 'the whole volume')], [
                (step.what, step.lost) for step in self.forget(world, A)])
        self.check_forgotten(world, A)
        self.assertEqual(({}, {}), (world.nodes[B].lvs, world.move_records))
        self.check_lost(world, volume)

    def check_lost(self, world, volume):
        """It can be deleted where it has been put."""
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))
        volume.status = 'deleting'
        callers.delete(world.nodes[C].node, volume)
        del world.volumes[volume.id]
        world.settle()
        self.assertEqual({}, world.move_records)
        for node in world.nodes.values():
            if not node.gone:
                self.assertEqual([{}] * 4, [
                    node.lvs, node.devices, node.exports, node.sessions])

    def test_home(self):
        world, volume, _expected = self.begin()
        step, = self.forget(world, A)
        self.assertEqual('the whole volume', step.lost)
        self.check_forgotten(world, A)
        self.check_lost(world, volume)

    def test_home_that_a_volume_had_come_to(self):
        """Its source is kept until the volume is deleted, and goes then."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        step, = self.forget(world, B)
        self.assertIn('volume-%s on %s' % (volume.id, A), step.lost)
        self.check_forgotten(world, B)
        self.assertIn('volume-' + volume.id, world.nodes[A].lvs)
        self.check_lost(world, volume)

    def test_home_whose_source_has_yet_to_clean_up(self):
        """The LV there is about to go: nothing of it is promised."""
        world, volume, _expected = self.begin()
        self.complete(world, volume)
        self.lose(world.nodes[B])
        step, = self.plan(world, B)
        self.assertEqual('the whole volume', step.lost)

    def misplaced(self):
        """A retype has written the home that the volume had before."""
        world, volume, expected = self.begin()
        world.nodes[A].move(volume, B)
        world.settle()
        world.settle()
        self.assertEqual({}, world.move_records)
        volume.host = A + '#p'
        return world, volume, expected

    def test_row_that_names_it_by_mistake(self):
        world, volume, expected = self.misplaced()
        step, = self.forget(world, A)
        self.assertEqual((forget.NOTHING, 'at ' + B), (step.lost, step.then))
        self.assertEqual((B + '#p', 'available'),
                         (volume.host, volume.status))
        self.check_forgotten(world, A)
        self.verify(world, volume, expected)

    def test_row_that_names_it_by_mistake_and_changes(self):
        world, volume, _expected = self.misplaced()
        step, = self.plan(world, A)
        volume.name_id = volume.id[::-1]
        self.assertRaises(exceptions.StaleMove, step.act)
        self.assertEqual(A + '#p', volume.host)

    def test_home_that_does_not_answer(self):
        """Its disk may have the volume: it is not given up."""
        world, volume, _expected = self.misplaced()
        world.nodes[B].dead = True
        step, = self.plan(world, A)
        self.assertEqual('unknown: %s may have the volume' % B, step.lost)
        error = self.assertRaises(errors.CommandError, step.act)
        self.assertIn('%s may have the volume. Nothing was changed.' % B,
                      str(error))
        self.assertEqual((A + '#p', 'available'),
                         (volume.host, volume.status))

    def of_mistaken_rows(self, *homes):
        """Return a world, and volumes at homes; each row names A, lost."""
        world, volume, _expected = self.begin()
        del world.volumes[volume.id]
        volumes = [world.create_volume(home) for home in homes]
        for each in volumes:
            each.host = A + '#p'
        self.lose(world.nodes[A])
        return world, volumes

    def test_home_of_many_volumes_that_does_not_answer(self):
        """It is asked once, and no volume is given up."""
        world, volumes = self.of_mistaken_rows(B, B, B)
        world.nodes[B].dead = True
        steps = self.plan(world, A)
        self.assertEqual(
            ['unknown: %s may have the volume' % B] * 3,
            [step.lost for step in steps])
        for step in steps:
            self.assertRaises(errors.CommandError, step.act)
        self.assertEqual([(A + '#p', 'available')] * 3,
                         [(each.host, each.status) for each in volumes])

    def test_home_that_does_not_answer_beside_one_that_does(self):
        """The home that answers keeps its volumes."""
        world, volumes = self.of_mistaken_rows(B, C, B, C)
        world.nodes[B].dead = True
        steps = {step.volume_id: step.then for step in self.plan(world, A)}
        self.assertEqual(['not changed', 'at ' + C] * 2,
                         [steps[each.id] for each in volumes])

    def test_home_that_fails_to_tell_of_one_volume(self):
        """It answers: it is asked about the next volume, too."""
        world, volumes = self.of_mistaken_rows(B, B)
        ask = callers.has_lv(world)

        def fails_first(volume, node):
            if volume.id == volumes[0].id:
                raise exceptions.CommandFailed(
                    command='lvs', code=5, stderr='busy')
            return ask(volume, node)
        steps = {step.volume_id: step.then for step in forget.plan(
            world.nodes[C].make_database(), A, C + '#p', lambda _move: None,
            fails_first)}
        self.assertEqual(['not changed', 'at ' + B],
                         [steps[each.id] for each in volumes])

    def test_source_whose_row_names_it_by_mistake(self):
        """What is not copied yet is lost, although the home is not."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        volume.host = A + '#p'
        self.lose(world.nodes[A])
        of_move, of_home = self.plan(world, A, 25.0)
        self.assertEqual(('source of a move', 'data not yet copied (75.0 %)'),
                         (of_move.what, of_move.lost))
        self.assertIn(B, of_move.then)
        of_home.act()
        self.assertEqual(B + '#p', volume.host)
        of_move, = self.plan(world, A, 25.0)
        self.assertIsNone(of_move.act)

    @ddt.data(False, True)
    def test_source_whose_service_a_row_names_by_mistake_too(self, dead):
        """The move tells the home, whether that answers or not."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        volume.host, volume.service_uuid = A + '#p', world.service_of(A)
        self.lose(world.nodes[A])
        world.nodes[B].dead = dead
        _of_move, of_home = self.plan(world, A)
        self.assertEqual((forget.NOTHING, 'at ' + B),
                         (of_home.lost, of_home.then))
        of_home.act()
        self.assertEqual((B + '#p', world.service_of(B)),
                         (volume.host, volume.service_uuid))

    @ddt.data(False, True)
    def test_source_that_a_volume_was_given_up_to(self, live):
        """Both ends of the move are this node then."""
        world, volume, _expected = self.begin()
        if live:
            self.begin_live(world, volume, B)
            with world.nodes[A].lock(volume.id):
                world.nodes[A].node.moves.commit(self.move(world, volume))
        else:
            world.nodes[A].move(volume, B)
        rows = world.nodes[A].make_database()
        rows.decommission.give_up(rows.volumes.volume(volume.id), A + '#p')
        self.lose(world.nodes[A])
        step, = self.plan(world, A)
        self.assertEqual('home of the volume (error)', step.what)
        step.act()
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))

    def test_former_home_that_a_row_names_during_a_live_migration(self):
        """The guest is at the home: its move does not go back."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        world.settle()
        world.settle()
        world.nodes[B].opened.add(names.handle(volume.id))
        self.attach(world, volume, C, live=True)
        self.assertEqual(C, world.home(volume).host)
        volume.host = A + '#p'
        self.lose(world.nodes[A])
        step, = self.plan(world, A)
        self.assertEqual('at ' + C, step.then)
        step.act()
        self.assertEqual(C + '#p', volume.host)
        self.assertIs(Phase.STARTING, self.move(world, volume).phase)

    def lost_home(self):
        """A retype has written a home that does not have the volume."""
        world, volume, expected = self.misplaced()
        self.lose(world.nodes[B])
        return world, volume, expected

    def test_home_whose_volume_names_another_node(self):
        """Nothing else tells that the volume is lost."""
        world, volume, _expected = self.lost_home()
        step, = self.plan(world, B)
        self.assertEqual(
            ('home of the volume (available)', 'the whole volume'),
            (step.what, step.lost))
        step.act()
        self.check_forgotten(world, B)
        self.check_lost(world, volume)

    def test_home_of_a_copy_whose_volume_names_another_node(self):
        """A guest was at the home alone: the move does not go back."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        volume.host = C + '#p'
        self.lose(world.nodes[B])
        step, = self.plan(world, B)
        self.assertIn('writes since its move began; the LV volume-%s on %s'
                      % (volume.id, A), step.lost)
        step.act()
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))

    def test_home_by_its_move_whose_source_does_not_answer(self):
        """The node that the row names by mistake need not be asked."""
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        volume.host = A + '#p'
        self.lose(world.nodes[B])
        world.nodes[A].dead = True
        step, = self.plan(world, B)
        self.assertIn('writes since its move began', step.lost)
        step.act()
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))

    def begin_live(self, world, volume, host):
        """A live move is recorded, no more."""
        world.nodes[A].node.moves.begin(
            volume, host + '#p', Event.LIVE_MOVE_BEGUN, worlds.GEOMETRY,
            lambda record: record, 'CHAP u s', 'i')

    def test_uncommitted_move_from_a_home_that_no_row_names(self):
        world, volume, _expected = self.begin()
        self.begin_live(world, volume, C)
        volume.host = B + '#p'
        self.lose(world.nodes[A])
        of_move, of_home = self.plan(world, A)
        self.assertEqual(('uncommitted move from it', 'the whole volume'),
                         (of_move.what, of_home.lost))
        callers.take([of_move, of_home])
        self.assertEqual('error', volume.status)
        world.settle()
        self.assertEqual({}, world.move_records)

    def test_uncommitted_move_whose_row_names_the_destination(self):
        """It is rolled back once: a second time fails."""
        world, volume, _expected = self.begin()
        self.begin_live(world, volume, C)
        volume.host = C + '#p'
        self.lose(world.nodes[A])
        steps = self.plan(world, A)
        self.assertEqual(
            ['uncommitted move from it', 'home of the volume (available)'],
            [step.what for step in steps])
        callers.take(steps)
        self.check_forgotten(world, A)
        self.check_lost(world, volume)

    def test_uncommitted_move_to_the_node_that_a_row_names(self):
        world, volume, _expected = self.begin()
        self.begin_live(world, volume, B)
        volume.host = B + '#p'
        self.lose(world.nodes[B])
        of_move, of_home = self.plan(world, B)
        self.assertEqual(('uncommitted move to it', forget.NOTHING),
                         (of_move.what, of_move.lost))
        self.assertEqual('at ' + A, of_home.then)

    def test_row_deleted_since_it_was_listed(self):
        world, volume, _expected = self.lost_home()
        with mock.patch.object(records.SimVolumes, 'volume',
                               return_value=None):
            self.assertEqual([], self.plan(world, B))

    def test_node_that_a_row_names_with_its_volume(self):
        """Only the service in the row is wrong."""
        world, volume, _expected = self.begin()
        volume.service_uuid = world.service_of(B)
        self.lose(world.nodes[B])
        self.assertEqual([], self.plan(world, B))

    def test_node_that_a_row_names_and_does_not_answer(self):
        """Two lost nodes: one has to be forgotten first."""
        world, volume, _expected = self.lost_home()
        self.lose(world.nodes[A])
        step, = self.plan(world, B)
        self.assertIsNone(step.act)
        self.assertIn('home of the volume (available), unless it is at ' + A,
                      step.what)
        self.assertIn('unknown: ', step.lost)
        self.assertEqual(A + '#p', volume.host)
        of_home, = self.plan(world, A)
        error = self.assertRaises(errors.CommandError, of_home.act)
        self.assertIn('forget it first', str(error))
        volume.service_uuid = None  # the service of B is forgotten
        step, = self.plan(world, A)
        step.act()
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))

    def test_destination_of_a_live_migration_that_no_row_names(self):
        world, volume, expected, _handle = self.live()
        volume.host = A + '#p'
        self.lose(world.nodes[B])
        step, = self.plan(world, B)
        self.assertIn('writes on the lost node', step.lost)
        step.act()
        self.assertEqual((A + '#p', {}), (volume.host, world.move_records))
        self.check_forgotten(world, B)
        self.verify(world, volume, expected)

    def test_service_without_the_volume(self):
        """Nobody has it but the lost node."""
        world, volume, _expected = self.begin()
        volume.service_uuid = world.service_of(B)
        step, = self.forget(world, A)
        self.assertEqual('the whole volume', step.lost)
        self.assertEqual((C + '#p', 'error'), (volume.host, volume.status))

    @ddt.data(False, True)
    def test_new_home_has_no_trouble_with_what_is_lost(self, copied):
        """Its owner has to delete it; no look can do anything about it."""
        world, volume, _expected = self.begin()
        if copied:
            world.nodes[A].move(volume, B)
        self.forget(world, B if copied else A)
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        world.settle()
        world.nodes[C].reconciler.reconcile_moves()
        self.assertEqual('', log.output)
        # What there is of it is not left alone.
        volume.status = 'available'
        world.nodes[C].reconciler.reconcile_node()
        self.assertIn(volume.id, log.output)
        volume.status = 'error'
        self.check_lost(world, volume)

    def test_source_of_a_copy(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        world.nodes[B].write(volume.id, 1, 'new')
        self.lose(world.nodes[A])
        step, = self.plan(world, A, 25.0)
        self.assertIn('75.0 %', step.lost)
        step, = self.plan(world, A)
        self.assertIn('unknown', step.lost)
        self.assertIsNone(step.act)
        step, = self.plan(world, A, 100.0)
        self.assertEqual(forget.NOTHING, step.lost)
        self.assertEqual('new', world.nodes[B].read(volume.id, 1))
        world.nodes[C].node.moves.advance(
            self.move(world, volume), Event.HYDRATED)
        step, = self.plan(world, A)
        self.assertEqual(forget.NOTHING, step.lost)
        # Deleted, it leaves a clean-up that nobody will do.
        volume.status = 'deleting'
        callers.delete(world.nodes[B].node, volume)
        del world.volumes[volume.id]
        self.forget(world, A)
        self.check_forgotten(world, A)
        self.assertEqual({}, world.move_records)

    def live(self):
        world, volume, expected = self.begin()
        handle = names.handle(volume.id)
        world.nodes[A].opened.add(handle)
        self.attach(world, volume, B, live=True)
        self.assertIs(Phase.STARTING, self.move(world, volume).phase)
        return world, volume, expected, handle

    def test_destination_of_a_live_migration(self):
        world, volume, expected, handle = self.live()
        step, = self.forget(world, B)
        self.assertIn('writes on the lost node', step.lost)
        self.assertEqual(A, world.home(volume).host)
        self.check_forgotten(world, B)
        self.write(world, volume, expected, 1, 'new')
        self.attach(world, volume, C, live=True)
        world.nodes[A].opened.discard(handle)
        world.settle()
        self.verify(world, volume, expected)

    def test_source_of_a_live_migration(self):
        world, volume, expected, _handle = self.live()
        self.forget(world, A)
        self.assertIs(Phase.MIGRATING, self.move(world, volume).phase)
        self.assertEqual(B, world.home(volume).host)

    def test_snapshots(self):
        """They stay where they were taken, wherever their volume went."""
        world, volume, expected = self.begin()
        world.pool = 'pool'
        kept, to_wipe = (snapshot_case.Base.take(world, volume)
                         for _each in range(2))
        world.nodes[A].move(volume, B)
        world.settle()
        world.settle()
        world.set_snapshot(to_wipe, status='deleting')
        step, = self.forget(world, A)
        self.assertEqual((volume.id, 'the whole snapshot'),
                         (step.volume_id, step.lost))
        self.assertIn(kept, step.what)
        self.assertEqual(['error', 'deleting'], [
            world.snapshots[each].status for each in (kept, to_wipe)])
        self.check_forgotten(world, A)
        self.verify(world, volume, expected)
        # Deleting it is all that its owner can do.
        snapshot_case.Base.drop(world, kept, B)

    def test_what_has_changed_meanwhile(self):
        world, volume, expected = self.begin()
        self.fail_to_prepare(world, volume)
        step, = self.plan(world, B)
        self.bring_back(world)
        self.assertRaises(exceptions.StaleMove, step.act)
        self.check(world, volume, expected)

    def test_new_home_is_the_source(self):
        world, volume, _expected = self.begin()
        world.nodes[A].move(volume, B)
        self.lose(world.nodes[B])
        callers.take(callers.plan_to_forget(world, B, A))
        world.settle()
        self.assertIn('volume-' + volume.id, world.nodes[A].lvs)
        volume.status = 'deleting'
        callers.delete(world.nodes[A].node, volume)
        del world.volumes[volume.id]
        world.settle()
        self.assertEqual(({}, {}, {}), (
            world.move_records, world.nodes[A].lvs, world.nodes[A].devices))


class CommandTest(ended_move_case.Base):

    def setUp(self):
        super().setUp()
        self.world, self.volume, self.expected = self.begin()
        self.backend = mock.MagicMock(host=C)
        self.backend.db = self.world.nodes[C].make_database()
        self.backend.name = 'l'
        self.up = {A: True, B: False, C: True}
        self.backend.db.services.alive_by_host = lambda: self.up
        self.backend.nodes.return_value = self.up
        self.backend.ask.return_value = {'host': C + '#p'}, ''
        self.useFixture(fixtures.MockPatchObject(
            main.LocalClone, 'backend', return_value=self.backend))
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimInterrupted, 'end_interrupted', return_value={}))
        self.services = self.useFixture(fixtures.MockPatchObject(
            worlds.SimDecommission, 'forget_service', return_value=True)).mock

    def run_command(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            code = main.main(['--json', 'node', 'forget', *words])
        return code, (json.loads(out.getvalue()) if out.getvalue()
                      else err.getvalue())

    def test_service_is_kept_while_a_volume_is_unknown(self):
        """Only the service in the row tells of the loss.

        The row names a former home; a node without any part is silent.
        """
        self.complete(self.world, self.volume)
        self.bring_back(self.world)
        self.assertEqual({}, self.world.move_records)
        self.volume.host, self.volume.status = A + '#p', 'available'
        self.lose(self.world.nodes[B])

        def has_lv(host, _method, *_args):
            if host == C:
                raise exceptions.PeerUnreachable(
                    host=host, method='has_lv', seconds=8)
            return False
        self.backend.call.side_effect = has_lv
        code, _told = self.run_command(B, '--yes')
        self.assertTrue(code == 1 and not self.services.called
                        or self.volume.status == 'error',
                        (code, self.volume.host, self.volume.status))

    def test_first_it_says_what_is_lost(self):
        self.fail_to_prepare(self.world, self.volume)
        before = dict(self.world.move_records)
        code, rows = self.run_command(B)
        self.assertEqual((1, [self.volume.id, '']), (
            code, [row['Volume'] for row in rows]))
        self.assertEqual('nothing', rows[0]['Lost'])
        self.assertEqual(before, self.world.move_records)
        self.services.assert_not_called()

    def test_then_it_does_so(self):
        self.fail_to_prepare(self.world, self.volume)
        code, rows = self.run_command(B, '--yes')
        self.assertEqual((0, {}), (code, self.world.move_records))
        self.services.assert_called_once_with(B)
        self.backend.ask.assert_any_call(C, 'describe')
        self.assertEqual(['the cleanup is cancelled',
                          'the volume service is forgotten'],
                         [row['What'] for row in rows])
        self.services.return_value = False
        self.assertEqual((0, []), self.run_command(B, '--yes'))

    def test_one_that_fails_keeps_the_service(self):
        other = self.world.create_volume(B)
        self.fail_to_prepare(self.world, self.volume)
        with mock.patch.object(
                worlds.SimMoves, 'finish',
                side_effect=exceptions.StaleMove(volume='v')):
            code, rows = self.run_command(B, '--yes')
        self.assertEqual((1, 2, C + '#p'), (code, len(rows), other.host))
        self.assertIn('failed: ', rows[0]['What'])
        self.services.assert_not_called()

    def test_configuration_that_makes_a_step_fail(self):
        self.fail_to_prepare(self.world, self.volume)
        with mock.patch.object(worlds.SimMoves, 'finish',
                               side_effect=cfg.NoSuchOptError('x')):
            _code, rows = self.run_command(B, '--yes')
        self.assertIn('Correct cinder.conf', rows[0]['What'])

    def test_node_that_may_have_a_volume_is_asked(self):
        self.volume.host = B + '#p'
        self.backend.call.return_value = True
        code, _rows = self.run_command(B, '--yes')
        self.backend.call.assert_called_once_with(
            A, 'has_lv', self.volume.id, self.volume.name)
        self.assertEqual((0, A + '#p'), (code, self.volume.host))

    def test_refused(self):
        for host, words in ((A, 'is up'), ('d@l', 'has no volumes'),):
            code, said = self.run_command(host, '--yes')
            self.assertEqual(1, code)
            self.assertIn(words, said)
        self.backend.nodes.return_value[C] = False
        self.assertIn('this node', self.run_command(C, '--yes')[1])
        self.backend.ask.return_value = None, 'did not answer'
        self.assertIn('did not answer', self.run_command(B, '--yes')[1])
        self.assertEqual(A, self.world.home(self.volume).host)
        self.services.assert_not_called()

    def test_of_another_backend(self):
        code, said = self.run_command('d@other', '--yes')
        self.assertEqual(1, code)
        self.assertIn('d@other is not a node of the backend l', said)
        self.services.assert_not_called()

    def test_migration_of_cinder_that_has_ended(self):
        worlds.SimInterrupted.end_interrupted.return_value = {'v': 'error'}
        _code, rows = self.run_command(B, '--yes')
        self.assertEqual(
            {'Volume': 'v', 'What': 'Cinder\'s own migration has ended: '
             'error'}, rows[0])

    def test_of_another_backend_that_is_up(self):
        other = self.world.create_volume(B)
        other.host = 'ctrl@lvm#p'
        self.backend.db.services.alive_by_host = lambda: {
            A: True, C: True, 'ctrl@lvm': True}
        code, _said = self.run_command('ctrl@lvm', '--yes')
        self.assertEqual(('ctrl@lvm#p', 1), (other.host, code))
