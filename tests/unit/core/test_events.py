# SPDX-License-Identifier: Apache-2.0
"""The lines of the log that stay, and what is told of moves."""

import ast
import collections
import json
import pathlib
import re
from unittest import mock

import fixtures
from oslo_log import formatters
import testtools

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone.service import assembly
from cinder_localclone.service import messages
from cinder_localclone.service import notifications
from tests.helpers import specs
from tests import world as worlds

PACKAGE = pathlib.Path(__file__).parents[3] / 'cinder_localclone'
A, B = 'a@l', 'b@l'
#: Ids keep their meaning: who reads logs by them is not asked.
FROZEN = {
    101: ('move_begun', 'info'), 102: ('move_committed', 'info'),
    103: ('move_completed', 'info'), 104: ('move_rolled_back', 'warning'),
    105: ('source_removed', 'info'), 106: ('destination_removed', 'info'),
    107: ('move_not_rolled_back', 'error'),
    108: ('destination_left', 'warning'),
    109: ('live_migration_given_up', 'info'),
    110: ('source_detached', 'info'), 111: ('deferred_move_begun', 'info'),
    112: ('deferred_move_failed', 'warning'), 201: ('copying', 'info'),
    202: ('clone_failed', 'error'), 203: ('copying_fails', 'error'),
    204: ('stalled', 'warning'), 205: ('copied_again', 'error'),
    206: ('not_compared', 'warning'), 207: ('uncompared', 'error'),
    208: ('accepted', 'warning'),
    301: ('requested', 'info'),
    302: ('not_done', 'warning'), 303: ('exports_differ', 'error'),
    304: ('not_passed', 'error'), 305: ('exported_again', 'info'),
    401: ('not_ready', 'error'), 402: ('outage', 'error'),
    403: ('not_reconciled', 'error'), 404: ('periodic_work_failed', 'error'),
    405: ('ended_for_a_dead_service', 'warning'),
    406: ('delete_sent_again', 'warning'),
    407: ('home_corrected', 'warning'),
    407: ('home_corrected', 'warning'),
    501: ('reencryption_begun', 'info'),
    502: ('reencryption_goes_on', 'info'),
    503: ('reencryption_ended', 'info'),
    504: ('reencryption_stopped', 'error'), 505: ('not_open', 'error'),
    506: ('reencryption_not_begun', 'error'),
}


def facts(event):
    """The names of the facts in a line."""
    return set(re.findall(r'%\((\w+)\)', event.text))


def said():
    """Each ``events.say(events.NAME, fact=...)`` in the package.

    And each ``events.failed``, which has the error as well; also those that a
    ``functools.partial`` is to call.
    """
    for path in PACKAGE.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            what, *arguments = map(ast.unparse, (node.func, *node.args))
            if what == 'functools.partial':
                what, *arguments = arguments
            facts = {each.arg for each in node.keywords} - {'exc_info'}
            if what == 'events.say':
                yield arguments[0], facts
            elif what == 'events.failed':
                yield arguments[0], facts | {'error'}


class EventsTest(testtools.TestCase):

    def test_ids_keep_their_meaning(self):
        self.assertEqual(FROZEN, {
            each.number: (each.name, each.level)
            for each in events.all_events()})

    def test_names_are_those_of_one_line_each(self):
        names = [each.name for each in events.all_events()]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(len(FROZEN), len(names))

    def test_each_is_said_with_its_facts(self):
        found = collections.defaultdict(list)
        for name, given in said():
            found[name].append(given)
        # notifications.py says what it finds in a table.
        self.assertEqual({'volume', 'source', 'destination', 'asked_by',
                          'record'}, *found.pop('LINES[milestone]'))
        for name, event in vars(events).items():
            if not isinstance(event, events.Event):
                continue
            if event in notifications.LINES.values():
                self.assertEqual({'volume', 'source', 'destination',
                                  'asked_by', 'record'}, facts(event))
                continue
            calls = found.pop('events.' + name, [])
            self.assertTrue(calls, name)
            for given in calls:
                self.assertEqual(facts(event), given, name)
        self.assertEqual({}, dict(found))

    def test_a_line(self):
        log = self.useFixture(fixtures.FakeLogger())
        before = events.counts()['events'].get('stalled', 0)
        events.say(events.STALLED, volume='v', source=A, seconds=60)
        self.assertIn('[localclone-204] The copy of volume v from',
                      log.output)
        self.assertEqual(before + 1, events.counts()['events']['stalled'])

    def test_what_writes_json_has_the_facts(self):
        written = self.useFixture(fixtures.FakeLogger(
            format='-', formatter=formatters.JSONFormatter))
        events.say(events.STALLED, volume='v', source=ValueError('x'),
                   seconds=60)
        self.assertEqual(
            {'id': 'localclone-204', 'name': 'stalled', 'volume': 'v',
             'source': 'x', 'seconds': 60},
            json.loads(written.output)['extra']['localclone'])

    def test_no_fact_is_called_as_what_is_beside_it(self):
        written = self.useFixture(fixtures.FakeLogger(
            format='-', formatter=formatters.JSONFormatter))
        events.say(events.NOT_DONE, what='volume', uuid='v', cause='c',
                   error='e')
        told = json.loads(written.output)['extra']['localclone']
        self.assertEqual(('localclone-302', 'not_done', 'v'), (
            told['id'], told['name'], told['uuid']))
        for event in events.all_events():
            self.assertEqual(set(), facts(event) & {
                'id', 'name', 'event', 'exc_info'}, event.name)

    def test_what_an_owner_is_told_is_counted_by_its_cause(self):
        error = exceptions.NoFreeSpace('no')
        before = events.counts()['refusals'].get('no_free_space', 0)
        with mock.patch.object(messages.api, 'API'):
            messages.tell_member(None, 'v', error, Action.ATTACH)
        self.assertEqual(before + 1,
                         events.counts()['refusals']['no_free_space'])

    def test_texts_end(self):
        for event in events.all_events():
            self.assertTrue(event.text.endswith(('.', ')s')), event.text)
            self.assertEqual('localclone-%d' % event.number, event.id)


TOKEN = state.Token(state.Phase.MIGRATING, 'n', state.Geometry(128, 32, 8))
MOVE = state.Move('v', 's', TOKEN, True, A, B, 'volume-v', 'volume-s', 3)


class CountedTest(testtools.TestCase):
    """What a service says when it is asked for its figures."""

    def test_figures(self):
        world = worlds.World()
        volume = world.create_volume(A)
        world.nodes[A].move(volume, B)
        world.reconcile()
        found = assembly.Service.figures(mock.Mock(
            reconciler=world.nodes[B].reconciler))
        self.assertEqual(
            {each.name for each in events.all_events()},
            set(found['events']))
        self.assertEqual({key.lower() for key in user_messages.MESSAGES},
                         set(found['refusals']))
        move_id, = world.move_records
        self.assertEqual({move_id}, set(found['copies']))
        self.assertIn('rate', found['copies'][move_id])
        self.assertEqual(found, json.loads(json.dumps(found)))


class NoticesTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.notifier = self.useFixture(fixtures.MockPatchObject(
            notifications.rpc, 'get_notifier')).mock
        self.volumes = specs.port('volumes')
        self.log = self.useFixture(fixtures.FakeLogger())
        self.notices = notifications.Notices(A, self.volumes)

    def test_each_milestone(self):
        for milestone, event_type in (
                (state.Milestone.BEGUN, 'volume.move.begin'),
                (state.Milestone.COMMITTED, 'volume.move.commit'),
                (state.Milestone.COMPLETED, 'volume.move.complete'),
                (state.Milestone.ROLLED_BACK, 'volume.move.roll_back')):
            self.notices.tell(milestone, MOVE)
            self.notifier.assert_called_with('volume', A)
            self.notifier().prepare.assert_called_with(
                retry=notifications.RESENDS)
            context, what, payload = (
                self.notifier().prepare().info.call_args.args)
            self.assertTrue(context.is_admin)
            self.assertEqual(event_type, what)
            self.assertEqual(('v', 's', A, B), tuple(
                payload[key] for key in (
                    'volume_id', 'move_id', 'source_host',
                    'destination_host')))
            self.assertIn(notifications.LINES[milestone].id, self.log.output)

    def test_nothing_of_a_connection_is_told(self):
        volume = mock.Mock(host=A + '#p', provider_auth='CHAP u secret')
        said = notifications.payload(MOVE, volume)
        self.assertNotIn('secret', str(said))
        for secret in ('auth', 'connect', 'attachment', 'key'):
            self.assertFalse([key for key in said if secret in key], secret)
        self.assertEqual(volume.host, said['host'])

    def test_of_a_volume_that_is_gone(self):
        self.assertEqual(3, notifications.payload(MOVE, None)['size'])

    def test_what_is_not_to_be_told_costs_no_query(self):
        self.notifier.return_value = ''  # Cinder's DO_NOTHING
        self.notices.tell(state.Milestone.BEGUN, MOVE)
        self.volumes.volume.assert_not_called()
        self.assertIn('localclone-101', self.log.output)

    def test_a_move_does_not_depend_on_it(self):
        for self.notifier.side_effect in (AssertionError('no bus'), OSError):
            self.notices.tell(state.Milestone.COMMITTED, MOVE)
        self.assertIn('No notification was sent', self.log.output)


class MilestonesTest(testtools.TestCase):
    """What the work on a move tells, in its order."""

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.told = []
        for node in self.world.nodes.values():
            object.__setattr__(
                node.node, 'tell', lambda milestone, move, host=node.host:
                self.told.append((host, milestone.value, move.committed)))
        self.volume = self.world.create_volume(A)
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]

    def test_of_a_move(self):
        self.a.move(self.volume, B)
        self.assertEqual([(A, 'begin', False), (A, 'commit', True)],
                         self.told)
        self.world.settle()
        self.assertEqual([(B, 'complete', True)], self.told[2:])

    def test_of_one_that_fails(self):
        with mock.patch.object(source.Prepare, 'execute', autospec=True,
                               side_effect=OSError):
            self.assertRaises(OSError, self.a.move, self.volume, B)
        self.assertEqual([(A, 'begin', False), (A, 'roll_back', False)],
                         self.told)

    def test_of_a_live_one_that_is_given_up(self):
        self.a.opened.add('localclone-' + self.volume.id)
        self.a.move(self.volume, B, live=True)
        del self.told[:]
        move = self.b.node.moves.move_of(self.volume.id)
        with self.b.lock(self.volume.id):
            destination.roll_back_live(self.b.node, move)
        self.assertEqual([(B, 'roll_back', False)], self.told)
