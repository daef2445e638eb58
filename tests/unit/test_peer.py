# SPDX-License-Identifier: Apache-2.0
"""Which node a connector belongs to; calls and errors that cross the bus."""

import inspect
import sys
import threading
from unittest import mock

from cinder import exception
from cinder import rpc

import ddt
from oslo_config import cfg
import oslo_messaging as messaging
from oslo_messaging._drivers import common as drivers
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import node
from cinder_localclone.service import directory
from cinder_localclone.service import handlers
from cinder_localclone.service import messages
from cinder_localclone.service import rpc as peer
from tests import specs

SERVICES = {'n1@l': True, 'n2@l': True, 'n3.example.org@l': True,
            'n4.rack1@l': True,
            'down@l': False, 'other@lvm': True}


@ddt.ddt
class DirectoryTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        records = specs.port('records')
        self.client = specs.port('peers')
        records.services.return_value = dict(SERVICES)
        self.directory = directory.Directory('n1@l', records, self.client)
        self.directory.know('n1@l', ['192.0.2.1'])
        self.client.describe.side_effect = self.describe

    @staticmethod
    def describe(context, host):
        if host == 'n2@l':
            return {'addresses': ['192.0.2.2']}
        raise exceptions.PeerUnreachable(host=host, method='m', seconds=1)

    @ddt.data(({'host': 'n1'}, 'n1@l'), ({'host': 'n2'}, 'n2@l'),
              ({'host': 'n2.example.org'}, 'n2@l'),
              ({'host': 'n3'}, 'n3.example.org@l'),
              ({'host': 'n4.rack1'}, 'n4.rack1@l'),
              ({'host': 'n4.rack2'}, None), ({'host': 'n4'}, 'n4.rack1@l'),
              ({'host': 'other'}, None), ({'host': 'nowhere'}, None),
              ({'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'),
              ({'host': 'alias', 'ip': '192.0.2.1'}, 'n1@l'),
              ({'host': 'alias', 'ip': '192.0.2.9'}, None),
              ({'ip': '192.0.2.2'}, 'n2@l'))
    @ddt.unpack
    def test_find(self, connector, host):
        self.assertEqual(host, self.directory.find(None, connector))

    def test_known_by_address_after_a_restart(self):
        self.assertTrue(self.directory.is_at(
            {'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'))
        self.assertFalse(self.directory.is_at(
            {'host': 'alias', 'ip': '192.0.2.2'}, 'n1@l'))
        asked = self.client.describe.call_count
        self.directory.is_at({'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l')
        self.assertEqual(asked, self.client.describe.call_count)

    def test_node_that_a_connector_names(self):
        for host in SERVICES:
            self.assertIs(host == 'n2@l',
                          self.directory.is_at({'host': 'n2'}, host))

    def test_address_that_two_nodes_claim(self):
        """Whoever was heard last has it; but nobody takes this node's."""
        address, own = ({'host': 'alias', 'ip': '192.0.2.%d' % number}
                        for number in (2, 1))
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.directory.know('n4.rack1@l', ['192.0.2.1', '192.0.2.2'])
        self.assertFalse(self.directory.is_at(address, 'n2@l'))
        self.assertTrue(self.directory.is_at(address, 'n4.rack1@l'))
        for _again in range(2):
            self.assertTrue(self.directory.is_at(own, 'n1@l'))
            self.directory.know('n1@l', ['192.0.2.1'])

    def test_two_answers_at_one_time(self):
        """Neither is lost, also where services have threads of the system."""
        reading, go_on = threading.Event(), threading.Event()

        class Slow(dict):
            def items(self):
                found = list(super().items())
                reading.set()
                go_on.wait(10)
                return found
        self.directory._addresses = Slow(self.directory._addresses)
        first, second = (threading.Thread(
            target=self.directory.know, args=(host, [address]), daemon=True)
            for host, address in (('n2@l', '192.0.2.2'),
                                  ('n4.rack1@l', '192.0.2.4')))
        first.start()
        reading.wait(10)
        self.directory._addresses = dict(self.directory._addresses)
        second.start()
        second.join(0.2)
        go_on.set()
        for each in (first, second):
            each.join(10)
        self.assertEqual({'n1@l', 'n2@l', 'n4.rack1@l'},
                         set(self.directory._addresses))

    def test_whoever_looks_while_an_answer_is_noted(self):
        """A node has its address all the time."""
        connector, seen = {'host': 'alias', 'ip': '192.0.2.2'}, []

        class Watched(directory.Directory):
            def __setattr__(self, name, value):
                super().__setattr__(name, value)
                if name == '_addresses' and 'n2@l' in value:
                    seen.append(self.is_at(connector, 'n2@l'))
        self.assertTrue(self.directory.is_at(connector, 'n2@l'))
        self.directory.__class__ = Watched
        self.directory.know('n2@l', ['192.0.2.2', '192.0.2.5'])
        self.assertEqual([True], seen)

    def test_no_address_is_believed_for_ever(self):
        """It was n2's, and is n3's now."""
        moved = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertEqual('n2@l', self.directory.find(None, moved))
        self.client.describe.side_effect = lambda context, host: {
            'addresses': ['192.0.2.2'] if host.startswith('n3') else []}
        later = directory.time.monotonic() + directory.BELIEVED + 1
        with mock.patch.object(directory.time, 'monotonic', lambda: later):
            self.assertEqual('n3.example.org@l',
                             self.directory.find(None, moved))
            self.assertFalse(self.directory.is_at(moved, 'n2@l'))
        self.directory.know('n2@l', ['192.0.2.2', '192.0.2.1'])
        self.assertFalse(self.directory.is_at(moved, 'n3.example.org@l'))
        self.assertTrue(self.directory.is_at({'ip': '192.0.2.1'}, 'n1@l'))

    def test_addresses_in_any_form(self):
        self.client.describe.side_effect = lambda context, host: {
            'addresses': ['FD00:0db8::0011'] if host == 'n2@l' else []}
        self.assertTrue(self.directory.is_at(
            {'host': 'alias', 'ip': 'fd00:db8::11'}, 'n2@l'))

    def test_node_that_is_down_is_not_taken_for_a_stranger(self):
        self.assertRaises(exceptions.PeerUnreachable, self.directory.find,
                          None, {'host': 'down'})

    def test_hosts_are_asked_for_once_in_a_look(self):
        asked = []

        def is_at(connector, host):
            asked.append((connector, host))
            return connector.get('host') == 'a' or bool(connector.get('ip'))
        remembered = node.remembered(is_at)
        connectors = [{'host': 'a', 'initiator': 'x'}, {'host': 'b'},
                      {'host': 'b', 'ip': '192.0.2.1'}]
        for _each in range(2):
            self.assertEqual([True, False, True], [
                remembered(each, 'a@l') for each in connectors])
        self.assertEqual(3, len(asked))
        self.assertTrue(remembered(connectors[0], 'b@l'))
        self.assertEqual(4, len(asked))

    def test_silent_nodes_are_waited_for_at_one_time(self):
        """The lock of a volume may be held meanwhile."""
        others = {host for host, alive in SERVICES.items()
                  if alive and host.endswith('@l') and host != 'n1@l'}
        self.assertLess(1, len(others))
        together, asked = threading.Barrier(len(others)), []

        def describe(context, host):
            asked.append(host)
            together.wait(5)
            raise exceptions.PeerUnreachable(host=host, method='m', seconds=8)
        self.client.describe.side_effect = describe
        for _again in range(2):
            self.assertFalse(self.directory.is_at(
                {'host': 'alias', 'ip': '192.0.2.2'}, 'n2@l'))
        self.assertEqual(sorted(others), sorted(asked))

    def test_node_that_is_known_by_address_goes_down(self):
        """What it has attached is its own all the same."""
        address = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.directory._records.services.return_value = {
            **SERVICES, 'n2@l': False}
        self.assertTrue(self.directory.is_at(address, 'n2@l'))
        self.assertIsNone(self.directory.find(None, address))

    def test_silent_node_is_asked_again_soon(self):
        """What it said last counts until then; others are left alone."""
        address = {'host': 'alias', 'ip': '192.0.2.2'}
        self.assertEqual('n2@l', self.directory.find(None, address))
        now = directory.time.monotonic() + directory.BELIEVED + 1
        for host, addresses in (('n3.example.org@l', ['192.0.2.3']),
                                ('n4.rack1@l', ['192.0.2.4'])):
            self.directory.know(host, addresses)

        def describe(context, host):
            if host == 'n2@l':
                raise exceptions.PeerUnreachable(
                    host=host, method='m', seconds=1)
            return {'addresses': ['192.0.2.%s' % host[1]]}
        self.client.describe.side_effect = describe
        for after, asked in (
                (0, ['n2@l', 'n3.example.org@l', 'n4.rack1@l']),
                (directory.PAUSE - 1, []), (directory.PAUSE + 1, ['n2@l']),
                (directory.BELIEVED - 1, ['n2@l'])):
            self.client.describe.reset_mock()
            with mock.patch.object(directory.time, 'monotonic',
                                   lambda after=after: now + after):
                self.assertEqual('n2@l', self.directory.find(None, address))
            self.assertEqual(asked, sorted(
                call.args[1] for call in self.client.describe.mock_calls))

    def test_addresses_are_asked_for_once(self):
        for _again in range(2):
            self.directory.find(None, {'ip': '192.0.2.2'})
        asked = [c.args[1] for c in self.client.describe.call_args_list]
        self.assertEqual(1, asked.count('n2@l'))


@ddt.ddt
class ClientTest(testtools.TestCase):

    def test_home_that_extends_may_wait_for_others(self):
        """It asks those that use the volume over iSCSI: as long as that.

        Once before its own part, and once after it.
        """
        limits = {name: peer.METHODS[name].limit(40)
                  for name in ('begin_passing', 'extend')}
        self.assertGreaterEqual(limits['extend'],
                                2 * limits['begin_passing'] + 40)

    def call(self, error):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().call.side_effect = error
        client.prepare(None, 'n2@l', 's', 'n')

    def test_silence_is_named(self):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  messaging.MessagingTimeout())
        self.assertIn('n2@l', str(error))

    def test_own_errors_arrive_as_themselves(self):
        error = self.assertRaises(
            exceptions.NoFreeSpace, self.call,
            messaging.RemoteError('NoFreeSpace', 'n2 has no room'))
        self.assertEqual('n2 has no room', str(error))

    def test_other_errors_keep_their_text(self):
        error = self.assertRaises(
            exceptions.LocalCloneError, self.call,
            messaging.RemoteError('KeyError', 'x is missing'))
        self.assertIn('x is missing', str(error))

    def test_a_bus_that_is_away_is_named(self):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  messaging.MessageDeliveryFailure())
        self.assertIn('n2@l', str(error))

    @ddt.data(('describe', '1.0'), ('converge_soon', '1.0'),
              ('inspect', '1.1'), ('abort', '1.1'), ('delete', '1.2'))
    @ddt.unpack
    def test_asks_no_more_than_the_method_needs(self, method, version):
        # A peer of an older version refuses a newer one.
        client = peer.Client(40)
        client._client = mock.Mock()
        more = () if method == 'describe' else ('v',)
        getattr(client, method)(None, 'n2@l', *more)
        asked = client._client.prepare.call_args.kwargs
        self.assertEqual(version, asked['version'])
        # Else it would be sent until the bus is back.
        self.assertIs(peer.RESENDS, asked['retry'])

    def test_lost_message_is_no_error(self):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().cast.side_effect = (
            messaging.MessageDeliveryFailure())
        client.converge_soon(None, 'n2@l', 'v')


def protocol(kind=peers.OperatorPeers):
    """The methods of a Protocol: signatures by name."""
    return {name: inspect.signature(method)
            for each in kind.__mro__ for name, method in vars(each).items()
            if each.__module__ == peers.__name__ and name[0] != '_'}


class TableTest(testtools.TestCase):
    """Interface, table and handlers are one; mypy can't see that."""

    def test_every_method_is_in_the_table(self):
        self.assertEqual(set(protocol()), set(peer.METHODS))

    def test_every_method_has_its_handler(self):
        for name, method in peer.METHODS.items():
            answer = inspect.signature(
                getattr(handlers.Handlers, method.name))
            self.assertEqual(
                [each for each in protocol()[name].parameters
                 if each != 'host'], list(answer.parameters), name)

    def test_what_is_on_the_bus_stays(self):
        """Nodes of other versions send and await just this."""
        self.assertEqual({
            'describe': ('1.0', ()),
            'prepare': ('1.0', ('shadow_id', 'nonce')),
            'begin_passing': (
                '1.6', ('volume_id', 'properties', 'attachments')),
            'encryption_pause': ('1.6', ('volume_id',)),
            'encryption_progress': ('1.6', ('volume_id',)),
            'encryption_reencrypt': ('1.6', (
                'volume_id', 'cipher', 'key_bits', 'resilience',
                'drops_keys', 'zone')),
            'encryption_resume': ('1.6', ('volume_id',)),
            'end_passing': ('1.6', ('volume_id', 'user')),
            'prepare_sparse': ('1.6', ('shadow_id', 'nonce', 'holes')),
            'holes': ('1.6', ('shadow_id', 'nonce')),
            'converge': ('1.0', ('volume_id',)),
            'initialize_connection': (
                '1.0', ('volume_id', 'connector', 'attachments')),
            'serve_snapshot': ('1.4', ('snapshot_id', 'connector')),
            'unserve_snapshot': ('1.4', ('snapshot_id', 'connector')),
            'terminate_connection': (
                '1.0', ('volume_id', 'connector', 'attachments')),
            'create_from_snapshot': (
                '1.4', ('volume_id', 'snapshot_id', 'destination')),
            'create_from_volume': (
                '1.4', ('volume_id', 'source_id', 'destination')),
            'create_snapshot': ('1.4', ('snapshot_id',)),
            'delete': ('1.2', ('volume_id',)),
            'delete_snapshot': ('1.4', ('snapshot_id',)),
            'unmanage': ('1.4', ('volume_id',)),
            'manageable_snapshot': ('1.7', ('snapshot_id', 'reference')),
            'manage_snapshot': ('1.7', ('snapshot_id', 'reference')),
            'unmanage_snapshot': ('1.4', ('snapshot_id',)),
            'extend': ('1.3', ('volume_id', 'size_gib')),
            'revert': ('1.5', ('volume_id', 'snapshot_id')),
            'create_body': ('1.5', ('volume_id', 'snapshot_id', 'new')),
            'troubles': ('1.3', ()),
            'depart': ('1.3', ('volume_id', 'destination')),
            'inspect': ('1.1', ('volume_id',)),
            'figures': ('1.6', ()),
            'repair': ('1.1', ('volume_id',)),
            'abort': ('1.1', ('volume_id',)),
            'resume': ('1.1', ('volume_id',)),
            'open_without_source': ('1.2', ('volume_id',)),
            'encryption_status': ('1.6', ('volume_id',)),
            'encryption_rotate': ('1.6', ('volume_id',)),
            'encryption_header_backup': ('1.6', ('volume_id',)),
            'encryption_verify': ('1.6', ('volume_id',)),
        }, {method.name: (method.since, tuple(
            protocol()[name].parameters)[3:])
            for name, method in peer.METHODS.items()})
        self.assertEqual(('cinder-localclone', 'localclone'),
                         (peer.TOPIC, peer.NAMESPACE))


@ddt.ddt
class BusTest(testtools.TestCase):
    """Client and endpoint on oslo.messaging's bus in memory."""

    def setUp(self):
        super().setUp()
        transport = messaging.get_rpc_transport(
            cfg.CONF, url='fake:/',
            allowed_remote_exmods=rpc.get_allowed_exmods())
        self.handlers = mock.Mock(spec=handlers.Handlers)

        def get_server(target, endpoints):
            return messaging.get_rpc_server(
                transport, messaging.Target(
                    exchange='cinder', topic=target.topic,
                    server=target.server), endpoints, executor='threading')

        def get_client(target):
            return messaging.get_rpc_client(transport, messaging.Target(
                exchange='cinder', topic=target.topic,
                namespace=target.namespace, version=target.version))
        with mock.patch.object(rpc, 'get_server', get_server):
            server = peer.start_server('n2@l', self.handlers)
        self.addCleanup(server.stop)
        patched = mock.patch.object(rpc, 'get_client', get_client)
        patched.start()
        self.addCleanup(patched.stop)
        self.client = peer.client(5)

    @ddt.data('describe', 'prepare', 'prepare_sparse', 'holes', 'converge',
              'initialize_connection',
              'terminate_connection', 'delete', 'troubles', 'inspect',
              'repair', 'abort', 'unmanage', 'unmanage_snapshot',
              'manageable_snapshot', 'manage_snapshot',
              'resume', 'open_without_source', 'encryption_status',
              'encryption_rotate', 'encryption_header_backup',
              'encryption_verify')
    def test_a_call_arrives(self, name):
        arguments = {
            key: key + '!' for key in
            tuple(protocol()[name].parameters)[3:]}
        handler = getattr(self.handlers, name)
        handler.return_value = {'answer': name}
        self.assertEqual({'answer': name}, getattr(self.client, name)(
            {}, 'n2@l', *arguments.values()))
        handler.assert_called_once_with({}, **arguments)

    def test_a_busy_node_is_no_news_to_itself(self):
        self.handlers.converge.side_effect = exceptions.Busy(
            what='Volume v', host='n2@l', seconds=1)
        self.assertRaises(messaging.ExpectedException,
                          peer.Endpoint(self.handlers).converge, {}, 'v')

    def test_arguments_are_checked_before_they_are_sent(self):
        self.assertRaises(TypeError, self.client.prepare, {}, 'n2@l', 's')
        self.assertRaises(AttributeError, getattr, self.client, 'destroy')

    def test_a_forwarded_busy_volume_is_that(self):
        """So Cinder's manager makes it available again."""
        self.assertTrue(issubclass(exceptions.CannotDelete,
                                   exception.VolumeIsBusy))

    @ddt.data(*(kind for kind in vars(exceptions).values()
                if isinstance(kind, type)
                and issubclass(kind, exceptions.LocalCloneError)))
    def test_the_owner_is_told_the_same_of_a_forwarded_error(self, kind):
        """As oslo.messaging serialises it, and Cinder lets it pass."""
        raised = kind('what has happened')
        try:
            raise raised
        except exceptions.LocalCloneError:
            sent = drivers.serialize_remote_exception(sys.exc_info())
        received = drivers.deserialize_remote_exception(
            sent, rpc.get_allowed_exmods())
        self.assertIsInstance(received, messaging.RemoteError)
        error = peer._as_own(received)
        self.assertIs(kind, type(error))
        self.assertEqual(str(raised), str(error))
        with mock.patch.object(messages, 'api') as api:
            messages.tell_owner(None, 'v', error)
        self.assertEqual(messages.DETAILS[raised.user_message],
                         api.API().create.call_args.kwargs['detail'])
