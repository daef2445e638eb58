# SPDX-License-Identifier: Apache-2.0
"""A node is emptied: what departs, where to, and what holds it back."""

import contextlib
import io
import json
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd.move import listing as moves
from cinder_localclone.cmd.node import drain
from cinder_localclone.cmd.node import drain_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.service import options
from cinder_localclone.volumes import migrate
from tests.helpers import ended_move_case
from tests.helpers import inventory_rows
from tests.helpers import move_case
from tests import world as worlds
from tests.world import images
from tests.world import records
from tests.world import unattended

A, B, C = ended_move_case.A, ended_move_case.B, ended_move_case.C
GIB = 1 << 30


class Decommission(records.SimDecommission):

    def snapshots_on(self, host):
        return self.world.snapshots if host == A else {}


class Base(move_case.Base):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'tests.world.records.SimDecommission', Decommission))
        self.world = unattended.World(hosts=(A, B, C))
        self.world.snapshots = {}
        self.world.services = {
            host: types.SimpleNamespace(up=True, disabled=host == A,
                                        zone='nova') for host in (A, B, C)}
        self.backend = mock.MagicMock()
        self.backend.name = 'l'
        self.backend.conf = types.SimpleNamespace(**{
            each.dest: each.default for each in options.localclone_opts})
        self.backend.db = types.SimpleNamespace(
            **vars(records.database(self.world.nodes[A])),
            inventory=types.SimpleNamespace(service=self.world.services.get))
        self.backend.nodes.side_effect = lambda: {
            host: found.up for host, found in self.world.services.items()}
        self.backend.ask.side_effect = self.ask
        self.useFixture(fixtures.MockPatchObject(
            main.LocalClone, 'backend', return_value=self.backend))
        self.useFixture(fixtures.MockPatchObject(
            drain.time, 'sleep', self.sleep))
        #: What departed, in its order; the most that was copied at once.
        self.departed = []
        self.most = 0
        self.slept = 0

    def sleep(self, _seconds):
        self.slept += 1
        assert self.slept < 100, 'it waits for ever'
        self.world.reconcile()
        for node in self.world.nodes.values():
            node.hydrate()

    def ask(self, host, method, *arguments):
        node = self.world.nodes[host]
        try:
            if method == 'describe':
                asked_by = next(each for each in self.world.nodes.values()
                                if not each.gone)
                return asked_by.node.peers.describe(host), ''
            if method == 'move_away':
                volume_id, peer = arguments
                migrate.move_away(node.node, volume_id, peer,
                                  Asked.DRAIN)
                self.departed.append((volume_id, peer))
            self.most = max(self.most, sum(
                not move.is_over
                for move in self.backend.db.moves.readable_moves()))
        except exceptions.LocalCloneError as exc:
            return None, str(exc)
        return None, ''

    def volumes(self, count=1, host=A, **values):
        made = []
        for _each in range(count):
            volume = self.world.create_volume(host)
            volume.availability_zone = 'nova'
            volume.__dict__.update(values)
            made.append(volume)
        return made if count > 1 else made[0]

    def drain(self, *words, code=0, json_=True):
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            found = main.main([*(['--json'] if json_ else []), 'node',
                               'drain', A, *words])
        self.assertEqual(code, found, out.getvalue() + err.getvalue())
        self.said = err.getvalue()
        return [(row['Volume'], row['What'], row['Why'])
                for row in json.loads(out.getvalue() or '[]')]


@ddt.ddt
class DrainTest(Base):

    def test_all_depart(self):
        volumes = self.volumes(5)
        self.assertEqual([], self.drain())
        self.assertEqual({volume.id for volume in volumes},
                         {volume_id for volume_id, _peer in self.departed})
        self.assertEqual(({}, {}), (
            self.world.nodes[A].lvs, self.world.move_records))
        self.assertEqual(2, self.most)
        for volume in volumes:
            self.assertEqual('available', volume.status)
        self.assertIn('moves to', self.said)
        self.assertIn('done', self.said)

    def test_volumes_of_a_node_of_a_similar_name(self):
        """The command compares the home of each volume once more."""
        world = self.world
        own, other = world.create_volume(A), world.create_volume(B)
        with mock.patch.object(records.SimVolumes, 'volumes_of',
                               lambda _own, _host: [own, other]):
            self.assertEqual(
                [own], drain_plan.at_home(self.backend.db, A))

    def test_in_words(self):
        self.drain(json_=False)
        self.assertIn('The node is empty', self.said)

    def test_many_at_once(self):
        self.volumes(5)
        self.drain('--at-once', '4')
        self.assertEqual(4, self.most)

    def test_to_the_node_with_most_room(self):
        self.world.nodes[B].free = 5 * GIB
        self.world.nodes[C].free = 7 * GIB
        self.volumes(3)
        self.drain('--at-once', '3')
        # What is on its way counts.
        self.assertEqual([C, C, B], [peer for _id, peer in self.departed])

    def test_to_one(self):
        self.volumes(2, availability_zone='elsewhere')
        self.drain('--to', B)
        self.assertEqual([B, B], [peer for _id, peer in self.departed])

    def test_not_to_another_zone(self):
        volume = self.volumes(availability_zone='elsewhere')
        (volume_id, what, why), = self.drain(code=1)
        self.assertEqual((volume.id, 'failed'), (volume_id, what))
        self.assertIn('--to', why)
        self.assertEqual([], self.departed)

    def test_not_to_what_can_not(self):
        self.world.services[B].disabled = True
        self.world.nodes[C].problems = ['no dm-clone']
        self.volumes()
        (_id, what, _why), = self.drain(code=1)
        self.assertEqual(('failed', []), (what, self.departed))
        self.world.nodes[C].problems = []
        self.world.services[C].up = False
        self.drain(code=1)
        self.drain('--to', B, code=1)
        self.assertIn('it is disabled', self.said)

    def test_room_that_a_copy_makes_is_waited_for(self):
        """What is being copied counts until it is complete."""
        self.world.services[C].disabled = True
        self.world.nodes[B].free = int(2.5 * GIB)
        self.volumes(3)
        self.drain('--at-once', '5')
        self.assertEqual(2, self.most)

    def test_one_that_fails_stops_no_other(self):
        volumes = self.volumes(3)
        self.world.nodes[A].opened.add('localclone-' + volumes[1].id)
        (volume_id, what, why), = self.drain(code=1)
        self.assertEqual((volumes[1].id, 'failed'), (volume_id, what))
        self.assertIn('still open', why)
        self.assertEqual(2, len(self.departed))
        self.world.nodes[A].opened.clear()
        self.assertEqual([], self.drain())

    def cannot_come_to(self, host, times=1000):
        """The destination takes it by its own word, and then does not."""
        sessions = self.world.nodes[host].node.sessions._inner
        attach, tried = sessions.attach, []

        def fails(move):
            if move.move_id not in tried:
                tried.append(move.move_id)
            if len(tried) <= times:
                raise exceptions.SourceUnreachable(portal='p', reason='r')
            return attach(move)
        sessions.attach = fails
        return tried

    def test_another_destination(self):
        self.world.nodes[B].free = 200 * GIB
        tried = self.cannot_come_to(B)
        volume = self.volumes()
        self.assertEqual([], self.drain())
        self.assertEqual((1, [(volume.id, C)]),
                         (len(tried), self.departed))
        self.assertIn('accepts no connection', self.said)

    def test_tried_again_later(self):
        """Not in a row: what keeps it from that may pass."""
        tried = self.cannot_come_to(B, 1)
        volume = self.volumes()
        self.assertEqual([], self.drain('--to', B))
        self.assertEqual((2, [(volume.id, B)]),
                         (len(tried), self.departed))
        self.assertLessEqual(drain.PAUSE, self.slept)

    def test_given_up_after_some_tries(self):
        tried = [self.cannot_come_to(host) for host in (B, C)]
        self.volumes()
        (_id, what, why), = self.drain(code=1)
        self.assertEqual(('failed', True), (what, 'no connection' in why))
        self.assertEqual([drain.TRIES] * 2, [len(each) for each in tried])

    def test_what_is_deleted_meanwhile_is_not_tried_again(self):
        volume = self.volumes()
        self.cannot_come_to(B)
        sleep = drain.time.sleep

        def delete(seconds):
            self.world.volumes.pop(volume.id, None)
            sleep(seconds)
        self.useFixture(fixtures.MockPatchObject(drain.time, 'sleep', delete))
        self.assertEqual([], self.drain('--to', B))
        self.assertGreater(drain.PAUSE, self.slept)

    def die(self, host):
        self.world.nodes[host].gone = True
        self.world.nodes[host].stop(power=True)
        self.world.services[host].up = False

    def test_destination_that_dies(self):
        """Its copy is not waited for without end, nor does it hold others."""
        self.useFixture(fixtures.MockPatchObject(drain, 'DOWN', 30))
        stuck = self.volumes()
        migrate.move_away(self.world.nodes[A].node, stuck.id, B,
                          Asked.DRAIN)
        self.die(B)
        others = self.volumes(3)
        (volume_id, what, why), = self.drain('--at-once', '1', code=1)
        self.assertEqual((stuck.id, 'copied from it'), (volume_id, what))
        self.assertIn('%s is down' % B, why)
        self.assertEqual({(volume.id, C) for volume in others},
                         set(self.departed))
        self.assertLess(29, self.slept)

    def test_node_that_dies_itself(self):
        self.useFixture(fixtures.MockPatchObject(drain, 'DOWN', 30))
        volume = self.volumes()
        migrate.move_away(self.world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)
        sleep = drain.time.sleep
        self.useFixture(fixtures.MockPatchObject(
            drain.time, 'sleep', lambda seconds: (
                self.slept or self.die(A), sleep(seconds))))
        (volume_id, what, why), = self.drain(code=1)
        self.assertEqual((volume.id, 'copied from it'), (volume_id, what))
        self.assertIn('%s is down' % A, why)

    def test_destination_that_comes_back(self):
        self.useFixture(fixtures.MockPatchObject(drain, 'DOWN', 30))
        volume = self.volumes()
        migrate.move_away(self.world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)
        self.die(B)
        sleep = drain.time.sleep

        def come_back(seconds):
            if self.slept == 20:
                self.world.nodes[B].gone = False
                self.world.services[B].up = True
            sleep(seconds)
        self.useFixture(fixtures.MockPatchObject(
            drain.time, 'sleep', come_back))
        self.assertEqual([], self.drain())

    def test_nothing_departs_twice(self):
        """Run again, it goes on where it was."""
        volume = self.volumes()
        migrate.move_away(self.world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)
        self.assertEqual([], self.drain())
        self.assertEqual([], self.departed)
        self.assertEqual({}, self.world.nodes[A].lvs)

    def test_what_a_killed_service_has_begun(self):
        volume = self.volumes()
        self.backend.db.moves.begin(
            volume, B + '#p', state.Event.MOVE_BEGUN,
            worlds.GEOMETRY, lambda record: record, 'CHAP u s', 'i',
            asked_by=Asked.DRAIN)
        self.assertEqual([], self.drain())

    def test_no_time(self):
        volumes = self.volumes(2)
        self.assertEqual(
            {(volume.id, 'not moved') for volume in volumes},
            {row[:2] for row in self.drain('--seconds', '0', code=1)})
        self.assertEqual([], self.departed)

    def test_copies_under_way(self):
        volume = self.volumes()
        migrate.move_away(self.world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)
        (volume_id, what, why), = self.drain('--seconds', '0', code=1)
        self.assertEqual((volume.id, 'copied from it'), (volume_id, what))
        self.assertIn('to %s (migrating)' % B, why)

    def holds(self, what, words, **values):
        volume = self.volumes(**values)
        (volume_id, found, why), = self.drain(code=1)
        self.assertEqual((volume.id, what), (volume_id, found))
        self.assertIn(words, why)
        self.assertEqual([], self.departed)

    def test_attached(self):
        self.holds('attached', 'instance vm on a', volume_attachment=[
            images.attachment(instance_uuid='vm', connector={
                'host': 'a'})], status='in-use')

    @ddt.data(
        ('grouped', 'group', dict(group_id='g')),
        ('not available', '"error"', dict(status='error')),
        ('not available', 'Cinder is migrating it',
         dict(migration_status='migrating')))
    @ddt.unpack
    def test_what_stays(self, what, words, values):
        self.holds(what, words, **values)

    def test_snapshots(self):
        self.world.snapshots = {'snap': 'gone-on'}
        (volume_id, what, why), = self.drain(code=1)
        self.assertEqual(('gone-on', 'snapshot'), (volume_id, what))
        self.assertIn('snap ', why)

    def test_what_arrives_departs_then(self):
        volume = self.volumes(host=B)
        migrate.move_away(self.world.nodes[B].node, volume.id, A,
                          Asked.DRAIN)
        (_id, what, _why), = self.drain('--seconds', '0', code=1)
        self.assertEqual('copied to it', what)
        self.assertEqual([], self.drain('--to', C))
        self.assertEqual(C, self.world.home(volume).host)

    def test_live_migrations_are_not_waited_for(self):
        """Nor do they keep others from being copied."""
        volumes = self.volumes(3)
        for volume in volumes[:2]:
            handle = 'localclone-' + volume.id
            self.world.nodes[A].opened.add(handle)
            self.world.nodes[A].move(volume, B, live=True)
            volume.volume_attachment = [
                ended_move_case.attachment(host) for host in 'ab']
        held = self.drain(code=1)
        self.assertEqual({(volume.id, 'live migration')
                          for volume in volumes[:2]},
                         {row[:2] for row in held})
        self.assertEqual([volumes[2].id],
                         [volume_id for volume_id, _peer in self.departed])

    def test_what_is_about_to_come(self):
        volume = self.volumes(host=B)
        self.backend.db.moves.begin(
            volume, A + '#p', state.Event.MOVE_BEGUN,
            worlds.GEOMETRY, lambda record: record, 'CHAP u s', 'i')
        found, = drain_plan.all_held(self.backend.db, A, 0)
        self.assertEqual('moving to it', found.what)

    def overwriting(self, ends):
        """What is overwritten of the node, or is not."""
        def clear(name, size):
            if self.slept < ends:
                raise OSError('a bad sector, say')
            self.world.nodes[A].sim_lvm.clear(name, size)
        object.__setattr__(self.world.nodes[A].node, 'clear', clear)
        self.world.pool = None

    def test_waits_until_what_has_left_is_overwritten(self):
        self.volumes(2)
        self.overwriting(60)
        self.assertEqual([], self.drain())
        self.assertEqual({}, self.world.nodes[A].lvs)
        self.assertLess(59, self.slept)

    @ddt.data(((None, 'no answer'), 'no answer'),
              (({'to_wipe': None}, ''), 'its volume service does not know.'),
              (({}, ''), 'its volume service does not know.'))
    @ddt.unpack
    def test_nobody_knows_what_is_to_be_overwritten(self, answer, why):
        self.volumes()
        ask = self.ask

        def silent(host, method, *arguments):
            if (host, method) == (A, 'describe'):
                return answer
            return ask(host, method, *arguments)
        self.backend.ask.side_effect = silent
        self.assertEqual(
            [('', 'not known', 'LVs may have to be wiped: '
              + why)], self.drain(code=1))

    def test_node_that_is_down_is_not_asked(self):
        """Each time that would take as long as an answer may."""
        self.useFixture(fixtures.MockPatchObject(drain, 'DOWN', 30))
        volume = self.volumes()
        migrate.move_away(self.world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)
        self.die(A)
        work = drain.Draining(self.backend, A, None, 1)
        self.backend.ask.reset_mock()
        with contextlib.redirect_stderr(io.StringIO()), moves.Bars() as bars:
            work.run(bars, 1000)
        self.assertIn('%s is down' % A, work.left()[0][2])
        self.assertEqual([], [call for call in self.backend.ask.mock_calls
                              if call.args[:2] == (A, 'describe')])

    def test_what_is_not_overwritten_in_time(self):
        self.volumes()
        self.overwriting(1000)
        with mock.patch.object(drain.time, 'monotonic',
                               lambda: float(self.slept)):
            (volume, what, why), = self.drain('--seconds', '50', code=1)
        self.assertEqual(('', 'to be wiped'), (volume, what))
        self.assertIn('1.0 GiB', why)

    def test_dry_run(self):
        going, staying = self.volumes(2)
        staying.group_id = 'g'
        self.world.nodes[C].free = 200 * GIB
        self.assertEqual(
            [(going.id, 'moves', 'to %s.' % C)],
            self.drain('--dry-run', code=1)[:1])
        staying.group_id = None
        self.drain('--dry-run')
        self.assertEqual([], self.departed)

    def test_dry_run_without_room(self):
        self.volumes(availability_zone='elsewhere')
        (_id, what, _why), = self.drain('--dry-run', code=1)
        self.assertEqual('failed', what)

    def test_dry_run_names_no_node_with_problems(self):
        self.world.services[B].disabled = True
        self.world.nodes[C].problems = ['no dm-clone']
        self.volumes()
        (_id, what, _why), = self.drain('--dry-run', code=1)
        self.assertEqual('failed', what)

    @ddt.data(True, False)
    def test_what_counts_as_a_copy_from_it(self, over):
        """Neither a move that is over, nor a copy to it, takes a turn."""
        other = self.volumes(host=A if over else B)
        if over:
            moves = self.backend.db.moves
            moves.begin(
                other, C + '#p', state.Event.MOVE_BEGUN,
                worlds.GEOMETRY, lambda record: record, 'CHAP u s', 'i',
                asked_by=Asked.DRAIN)
            move, = moves.readable_moves()
            moves.advance(move, state.Event.FAILED)
        else:
            migrate.move_away(self.world.nodes[B].node, other.id, A,
                              Asked.DRAIN)
        self.volumes()
        waited = mock.Mock(side_effect=InterruptedError)
        self.useFixture(fixtures.MockPatchObject(drain.time, 'sleep', waited))
        work = drain.Draining(self.backend, A, B if over else C, 1)
        self.assertRaises(InterruptedError, work.run, mock.Mock(), 60)
        self.assertNotEqual([], self.departed)

    @ddt.data(
        (dict(disabled=False), (), 'is not disabled'),
        (dict(up=False), (), 'is down'),
        (dict(), ('--to', A), 'the drained node'),
        (dict(), ('--to', 'z@l'), 'is not a node'))
    @ddt.unpack
    def test_refused(self, values, words, text):
        self.world.services[A].__dict__.update(values)
        self.volumes()
        self.drain(*words, code=1)
        self.assertIn(text, self.said)
        self.assertEqual([], self.departed)


class BarsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.bars = moves.Bars()

    def show(self, *rows):
        self.bars.show([dict(zip(moves.COLUMNS, (
            'v', A, to, phase, 1, percent, None, None, None, '')))
            for to, phase, percent in rows], lambda _volume_id: False)

    def shown(self):
        return [(task.description, task.completed,
                 task.fields['rest'].split(' ')[0])
                for task in self.bars._shown.tasks]

    def test_destination_that_does_not_answer_has_lost_nothing(self):
        self.show((B, 'migrating', 60.0))
        self.show((B, 'migrating', None))
        self.assertEqual([('v %s > %s' % (A, B), 60.0, 'migrating')],
                         self.shown())

    def test_only_what_was_copied_is_done(self):
        self.show((B, 'preparing', None))
        self.show((C, 'migrating', 10.0))
        self.show()
        self.assertEqual([('v %s > %s' % (A, B), 0, 'ended'),
                          ('v %s > %s' % (A, C), 100, 'done')], self.shown())


class ChoiceTest(testtools.TestCase):

    def test_room_counts_what_is_on_its_way(self):
        def room(gib):
            return lvm_reports.FreeSpace(gib * GIB, GIB, False)
        targets = {host: drain_plan.Target(host, room(gib), 'nova')
                   for host, gib in ((B, 9), (C, 8))}

        def choose(size, **more):
            return drain_plan.choose(
                inventory_rows.row(
                    inventory_rows.V1, size=size, availability_zone='nova',
                    provider_id=more.get('provider_id')),
                worlds.GEOMETRY, targets, more.get('to'),
                more.get('arriving', {}))
        self.assertEqual(B, choose(1))
        self.assertEqual(C, choose(1, arriving={B: 2 * GIB}))
        self.assertEqual(B, choose(7, arriving={B: GIB, C: 2 * GIB}))
        self.assertEqual('', choose(9, to=C))
        self.assertEqual('', choose(10))
        # One that is encrypted has a header besides.
        self.assertEqual('', choose(9, provider_id='lc2:luks2:1:live:::key'))
