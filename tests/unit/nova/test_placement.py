# SPDX-License-Identifier: Apache-2.0
"""Servers go where their volumes are; Cinder's scheduler likewise."""

import logging
import pathlib
import subprocess
import sys
import threading
import types
from unittest import mock
import urllib.parse

from cinder.api.v3 import attachments
from cinder import context as cinder_context
from cinder import objects
from cinder.scheduler.evaluator import evaluator
from cinder.scheduler.filters import instance_locality_filter
from cinder.tests.unit.api import fakes
from cinder.tests.unit import utils
from cinderclient import client
import ddt
import fixtures
from keystoneauth1 import exceptions as errors
from oslo_config import cfg
import testtools

from cinder_localclone.driver import stats
from cinder_localclone.nova import block_storage
from cinder_localclone.nova import knowledge
from cinder_localclone.nova import options as opts
from cinder_localclone.nova import placement
from tests.helpers import database

SERVER = '9f0c8d1e-1d5e-4a36-9c0b-6f4ad3b1f2a7'
ROOT = pathlib.Path(__file__).parents[3]
FULL, BROKEN, DOWN, DISABLED, FREE = (
    placement.Node(True, 3.0), placement.Node(True, 50.0, 'no dm-clone'),
    placement.Node(False), placement.Node(True), placement.Node(True, 50.0))
BACKENDS = {'local': placement.Backend({
    'n1': FREE, 'n2': FREE, 'full': FULL, 'broken': BROKEN, 'down': DOWN,
    'disabled': DISABLED}), 'ssd': placement.Backend({'n1': FREE})}


def volume(size=4, home='n1', backend='local', **more):
    return placement.Volume('v%d' % size, size, home, backend, **more)


def outlook(*volumes, **more):
    return placement.Outlook(volumes, BACKENDS, **more)


@ddt.ddt
class OutlookTest(testtools.TestCase):

    @ddt.data(
        ('n1', ''), ('n2', ''), ('n1.domain', ''), ('elsewhere', ''),
        ('disabled', ''), ('full', '4 GiB of volumes, 3.0 GiB free'),
        ('broken', 'no dm-clone'),
        ('down', 'volume service down@local is down'))
    @ddt.unpack
    def test_refusal(self, host, expected):
        self.assertEqual(expected, outlook(volume()).refusal(host))

    @ddt.data('n1', 'n2', 'full', 'broken', 'down', 'elsewhere')
    def test_a_server_without_local_volumes(self, host):
        self.assertEqual('', outlook().refusal(host))
        self.assertEqual(0.0, outlook().weight(host))

    @ddt.data('full', 'broken', 'down')
    def test_the_home_is_never_refused(self, host):
        self.assertEqual('', outlook(volume(home=host)).refusal(host))

    def test_from_a_home_that_is_down(self):
        found = outlook(volume(home='down'), volume(home='gone'))
        for host in ('n1', 'elsewhere'):
            self.assertEqual('volume service down@local is down',
                             found.refusal(host))
        self.assertEqual('', outlook(volume(home='gone')).refusal('n1'))

    def test_only_what_moves_needs_room(self):
        self.assertEqual('', outlook(
            volume(home='full'), volume(3)).refusal('full'))
        self.assertEqual('4 GiB of volumes, 3.0 GiB free', outlook(
            volume(2), volume(2)).refusal('full'))
        self.assertEqual('', outlook(volume(stays=True)).refusal('full'))
        self.assertEqual('', outlook(volume(stays=True)).refusal('broken'))

    def test_encrypted_volumes_are_used_on_nodes_only(self):
        found = outlook(volume(encrypted=True))
        self.assertEqual(
            'volume v4 is encrypted, and the host is not a node of "local"',
            found.refusal('elsewhere'))
        self.assertEqual('', found.refusal('n2'))

    @ddt.data(('n1', 1.0), ('n2', 0.1), ('elsewhere', 0.0), ('full', 0.0),
              ('down', 0.0), ('disabled', 0.0), ('n1.domain', 1.0))
    @ddt.unpack
    def test_weight(self, host, expected):
        self.assertEqual(expected, outlook(volume()).weight(host))

    def test_weight_goes_by_size(self):
        found = outlook(volume(1), volume(3, 'n2'))
        self.assertEqual([0.325, 0.775], [
            round(found.weight(host), 3) for host in ('n1', 'n2')])

    def test_of_two_backends(self):
        found = outlook(volume(), volume(6, backend='ssd'))
        self.assertEqual([1.0, 0.0], [
            found.weight(host) for host in ('n1', 'n2')])

    def test_the_home_counts_where_its_service_is_disabled(self):
        self.assertEqual(
            0.9, outlook(volume(home='disabled')).weight('disabled'))

    def test_names_that_differ(self):
        found = outlook(volume(), names={'compute7': 'n1'})
        self.assertEqual(1.0, found.weight('compute7'))


def pool(host, free=9.5, **more):
    return {'name': host + '#l', 'capabilities': dict(
        {'free_capacity_gb': free}, **more)}


def service(host, state='up'):
    return {'host': host, 'state': state, 'binary': 'cinder-volume'}


def ask(storage, get):
    """Have Cinder's client ask a function.

    :param get: ``get(path, {parameter: values})``; None: there is none
    """
    def request(url, method, headers=None, **_more):
        found = urllib.parse.urlsplit(url)
        answer = get(found.path, urllib.parse.parse_qs(found.query))
        return mock.Mock(
            status_code=404 if answer is None else 200, text='x', headers={},
            json=lambda: answer or {'itemNotFound': {'message': 'no'}})
    storage.__dict__['_client'] = client.Client(
        block_storage.MICROVERSION, session=mock.Mock(request=request),
        connect_retries=0)


class BlockStorageTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf([])
        opts.register(self.conf)
        self.storage = block_storage.BlockStorage(self.conf)

    def answering(self, answers):
        def get(path, parameters):
            self.asked.append((path, parameters))
            return answers[path]
        self.asked = []
        ask(self.storage, get)

    def test_volumes(self):
        self.answering({
            '/attachments': {'attachments': [
                {'volume_id': 'b', 'status': 'attached'},
                {'volume_id': 'b', 'status': 'attaching'},
                {'volume_id': 'a', 'status': 'reserved'},
                {'volume_id': 'c', 'status': 'detached'},
                {'volume_id': 'gone', 'status': 'reserved'}]},
            '/volumes/a': {'volume': {
                'id': 'a', 'size': 1, 'os-vol-host-attr:host': 'n1@l#p',
                'encrypted': True, 'group_id': 'g'}},
            '/volumes/b': {'volume': {
                'id': 'b', 'size': 2, 'os-vol-host-attr:host': None,
                'encrypted': False, 'group_id': None}},
            '/volumes/gone': None})
        self.assertEqual(
            [placement.Volume('a', 1, 'n1', 'l', True, True),
             placement.Volume('b', 2, '', '')],
            list(self.storage.volumes('server', 'p')))
        self.assertEqual(('/attachments', {
            'all_tenants': ['1'], 'instance_id': ['server'],
            'project_id': ['p']}),
            self.asked[0])

    def test_room_that_is_no_number(self):
        found = block_storage.backends(
            [pool('n%d@l' % number, free, localclone_destination=True)
             for number, free in enumerate(('unknown', None, 2))],
            [service('n%d@l' % number) for number in range(3)])
        self.assertEqual([None, None, 2.0], [
            node.free for node in found['l'].nodes.values()])

    def test_no_more_volumes_than_that(self):
        self.assertEqual(
            block_storage.MOST_VOLUMES, len(block_storage.attached(
                {'volume_id': 'v%d' % number, 'status': 'attached'}
                for number in range(100))))

    def test_backends(self):
        self.answering({
            '/scheduler-stats/get_pools': {'pools': [
                pool('n1@l', localclone_destination=True,
                     localclone_problems=''),
                pool('n2@l', localclone_destination=False,
                     localclone_problems='no dm-clone'),
                pool('old@l'), pool('n1@stock')]},
            '/os-services': {'services': [
                service('n1@l'), service('n2@l'), service('old@l'),
                service('off@l', 'down'), service('n1@stock')]}})
        self.assertEqual({'l': placement.Backend({
            'n1': placement.Node(True, 9.5),
            'n2': placement.Node(True, 9.5, 'no dm-clone'),
            'old': placement.Node(True, 9.5),
            'off': placement.Node(False)})}, self.storage.backends())
        self.assertEqual(
            [('/scheduler-stats/get_pools', {'detail': ['True']}),
             ('/os-services', {'binary': ['cinder-volume']})], self.asked)

    def test_without_a_login(self):
        self.conf.register_opt(cfg.StrOpt('auth_type'), opts.CINDER)
        self.conf.register_opt(cfg.StrOpt('auth_section'), opts.CINDER)
        error = self.assertRaises(
            block_storage.NoLogin, self.storage.backends)
        self.assertIn('[localclone_placement] auth_type', str(error))

    def test_options_are_for_the_generator(self):
        (group, options), = opts.list_opts()
        self.assertEqual(opts.GROUP, group)
        names = {each.dest for each in options}
        self.assertLessEqual({'timeout', 'hosts', 'auth_type'}, names)


class KnowledgeTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            knowledge.LOG.logger.name, level=logging.INFO))
        self.now = 100.0
        self.storage = mock.Mock()
        self.storage.backends.return_value = BACKENDS
        self.storage.volumes.return_value = [
            volume(), volume(backend='stock')]
        self.knowledge = knowledge.Knowledge(
            self.storage, knowledge.Limits(0.5, 30, 15), {'a': 'b'},
            lambda: self.now)

    def asked(self):
        return (self.storage.backends.call_count,
                self.storage.volumes.call_count)

    def test_once_for_a_request(self):
        found = self.knowledge.outlook('r1', 's', 'p')
        self.assertEqual(
            placement.Outlook((volume(),), BACKENDS, {'a': 'b'}), found)
        self.assertIs(found, self.knowledge.outlook('r1', 's', 'p'))
        self.assertEqual((1, 1), self.asked())
        self.knowledge.outlook('r1', 'another', 'p')
        self.knowledge.outlook('r2', 's', 'p')
        self.assertEqual((1, 3), self.asked())

    def test_not_for_long(self):
        self.knowledge.outlook('r1', 's', 'p')
        self.now += knowledge.REQUEST_TIME
        self.knowledge.outlook('r1', 's', 'p')
        self.assertEqual((1, 2), self.asked())
        self.now += 5
        self.knowledge.outlook('r2', 's', 'p')
        self.assertEqual((2, 3), self.asked())

    def test_no_more_than_so_many_are_remembered(self):
        for number in range(knowledge.MOST_REQUESTS + 9):
            self.knowledge.outlook('r', str(number), 'p')
        self.assertEqual(knowledge.MOST_REQUESTS,
                         len(self.knowledge._requests))

    def test_no_volumes_are_asked_for_without_a_backend(self):
        self.storage.backends.return_value = {}
        self.assertEqual(
            (), self.knowledge.outlook('r1', 's', 'p').volumes)
        self.assertEqual((1, 0), self.asked())

    def test_cinder_is_away(self):
        self.storage.volumes.side_effect = errors.ConnectFailure('gone')
        self.assertIsNone(self.knowledge.outlook('r1', 's', 'p'))
        self.assertIsNone(self.knowledge.outlook('r1', 's', 'p'))
        self.now += 29
        self.assertIsNone(self.knowledge.outlook('r2', 's', 'p'))
        self.assertEqual((1, 1), self.asked())
        self.now += 2
        self.assertIsNone(self.knowledge.outlook('r3', 's', 'p'))
        self.assertEqual((2, 2), self.asked())
        self.assertEqual(1, self.log.output.count('\n'), self.log.output)
        self.assertIn('gone', self.log.output)
        self.now += 31
        self.storage.volumes.side_effect = None
        self.assertTrue(self.knowledge.outlook('r4', 's', 'p'))
        self.assertIn('answers again', self.log.output)
        self.storage.volumes.side_effect = errors.ConnectFailure('gone')
        self.knowledge.outlook('r5', 's', 'p')
        self.assertEqual(3, self.log.output.count('\n'), self.log.output)

    def test_cinder_hangs(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.storage.volumes.side_effect = lambda *_ids: go_on.wait(60)
        self.assertIsNone(self.knowledge.outlook('r1', 's', 'p'))
        self.assertIn('no answer within 0.5 s', self.log.output)

    def test_a_request_waits_once(self):
        """Nova asks for each of its hosts, however many."""
        never_away = knowledge.Knowledge(
            self.storage, knowledge.Limits(0.5, 0, 15), {}, lambda: self.now)
        self.storage.volumes.side_effect = errors.ConnectFailure('gone')
        for _host in range(3):
            self.assertIsNone(never_away.outlook('r1', 's', 'p'))
        self.assertEqual(1, self.storage.volumes.call_count)
        self.storage.volumes.side_effect = None
        self.assertTrue(never_away.outlook('r2', 's', 'p'))

    def test_a_server_with_many_volumes(self):
        """It is placed by those known in time, and keeps nobody waiting."""
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        told = []

        def slowly(_server, _project):
            for each in (volume(1), volume(2), volume(3), volume(4)):
                if each.size == 3:
                    go_on.wait(60)
                told.append(each.size)
                yield each
        self.storage.volumes.side_effect = slowly
        found = self.knowledge.outlook('r1', 's', 'p')
        self.assertEqual((volume(1), volume(2)), found.volumes)
        self.assertIs(found, self.knowledge.outlook('r1', 's', 'p'))
        self.storage.volumes.side_effect = None
        self.assertTrue(self.knowledge.outlook('r2', 'another', 'p'))
        self.assertEqual('', self.log.output)
        go_on.set()  # who was late goes no further
        for _each in range(knowledge.MOST_ASKING):
            self.assertTrue(self.knowledge._asking.acquire(timeout=30))
        self.assertEqual([1, 2, 3], told)

    def test_not_many_ask_at_a_time(self):
        for _each in range(knowledge.MOST_ASKING):
            self.assertTrue(self.knowledge._asking.acquire(blocking=False))
        self.assertIsNone(self.knowledge.outlook('r1', 's', 'p'))
        self.assertEqual((0, 0), self.asked())
        self.knowledge._asking.release()
        for request in ('r2', 'r3'):  # and each gives its turn back
            self.assertTrue(self.knowledge.outlook(request, 's', 'p'))

    def test_no_thread_to_be_had(self):
        with mock.patch.object(threading.Thread, 'start',
                               side_effect=RuntimeError('too many')):
            for _each in range(knowledge.MOST_ASKING + 1):
                self.assertIsNone(self.knowledge.outlook('r1', 's', 'p'))
                self.now += 31
        self.assertTrue(self.knowledge.outlook('r1', 's', 'p'))


@ddt.ddt
class CinderTest(testtools.TestCase):
    """What Cinder's own scheduler makes of the driver's backends."""

    @ddt.data((100, 40, True, 40), (100, 40, False, 20), (0, 0, False, 0),
              (8, 8, True, 100))
    @ddt.unpack
    def test_goodness(self, total, free, destination, expected):
        self.assertEqual(expected, evaluator.evaluate(
            stats.GOODNESS, capabilities={
                'total_capacity_gb': total, 'free_capacity_gb': free,
                'localclone_destination': destination}))

    def test_instance_locality_filter(self):
        found = instance_locality_filter.InstanceLocalityFilter()
        server = types.SimpleNamespace(**{'OS-EXT-SRV-ATTR:host': 'n1'})
        properties = {'context': None, 'scheduler_hints': {
            'local_to_instance': 'd9b5a2b6-5a3e-4a6e-8b53-0b4de3f1a0b2'}}
        with mock.patch.object(
                instance_locality_filter.nova, 'API') as nova:
            nova().get_server.return_value = server
            self.assertEqual([True, False], [found.backend_passes(
                types.SimpleNamespace(backend_id=host + '@localclone#p'),
                properties) for host in ('n1', 'n2')])


class AttachmentsTest(database.TestCase):
    """What Cinder's API makes of the question for a server's volumes."""

    def test_only_volumes_of_the_project_of_the_server(self):
        admin = cinder_context.get_admin_context()
        for project in ('p', 'a stranger'):
            owned = utils.create_volume(
                admin, project_id=project, display_name=project)
            objects.VolumeAttachment(
                admin, volume_id=owned.id, attach_status='reserved',
                instance_uuid=SERVER).create()
        conf = cfg.ConfigOpts()
        conf([])
        opts.register(conf)
        storage = block_storage.BlockStorage(conf)
        ask(storage, self.get)
        self.assertEqual(['p'], [
            each.id for each in storage.volumes(SERVER, 'p')])

    def get(self, path, parameters):
        """As Cinder answers."""
        if path == '/attachments':
            answer = attachments.AttachmentsController().index(
                fakes.HTTPRequest.blank('/v3/p/attachments?' + (
                    urllib.parse.urlencode(parameters, doseq=True)),
                    version=block_storage.MICROVERSION,
                    use_admin_context=True))
        else:
            row = objects.Volume.get_by_id(
                cinder_context.get_admin_context(), path.split('/')[-1])
            answer = {'volume': {
                'id': row.display_name, 'size': row.size}}
        return answer


class NovaTest(testtools.TestCase):

    def test_in_nova(self):
        """By Nova's own classes: its options and Cinder's do not get along.
        """
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', 'testtools.run',
             'tests.nova.cases'], cwd=ROOT, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertFalse(done.returncode, done.stdout[-5000:])
