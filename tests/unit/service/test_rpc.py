# SPDX-License-Identifier: Apache-2.0
"""Which node a connector belongs to; calls and errors that cross the bus."""

import dataclasses
import importlib
import json
import pkgutil
import sys
import threading
import time
from unittest import mock

from cinder import context as cinder_context
from cinder import exception
from cinder import rpc
import ddt
from oslo_config import cfg
from oslo_context import context as oslo_context
import oslo_messaging as messaging
from oslo_messaging._drivers import common as drivers
from oslo_messaging._drivers import impl_fake
import testtools

import cinder_localclone
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import rpc as methods
from cinder_localclone.core import state
from cinder_localclone.core.user_messages import Action
from cinder_localclone.service import endpoint
from cinder_localclone.service import messages
from cinder_localclone.service import rpc as peer


@ddt.ddt
class ClientTest(testtools.TestCase):

    METHODS = methods.METHODS

    def test_home_that_extends_may_wait_for_others(self):
        """It asks those that use the volume over iSCSI: as long as that.

        Once before its own part, and once after it.
        """
        limits = {name: self.METHODS[name].seconds(40)
                  for name in ('begin_remote', 'extend')}
        self.assertGreaterEqual(limits['extend'],
                                2 * limits['begin_remote'] + 40)

    @ddt.data(('describe', 8), ('reconcile', 8), ('prepare', 40),
              ('initialize_connection', 80), ('move_away', 80),
              ('extend', 120),
              ('delete', 40), ('delete_snapshot', 8), ('revert', 80),
              ('create_from_snapshot', 80), ('encryption_rotate', 80))
    @ddt.unpack
    def test_time_limit(self, name, seconds):
        client = peer.Client(40)
        client._client = mock.Mock()
        method = self.METHODS[name]
        client.call('n2@l', method, {})
        asked = client._client.prepare.call_args.kwargs
        self.assertEqual(
            # Else it would be sent until the bus is back.
            {'server': 'n2@l', 'retry': peer.RESENDS, 'timeout': seconds},
            asked)

    def call(self, error, name='prepare'):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().call.side_effect = error
        client.call('n2@l', self.METHODS[name], {})

    @ddt.data(messaging.MessagingTimeout(),
              messaging.MessageDeliveryFailure(),
              messaging.ClientSendError('target', ValueError('lost')))
    def test_silence_is_named(self, error):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  error)
        self.assertIn('n2@l did not answer "prepare" within 40', str(error))

    @ddt.data(('delete', exceptions.HomeUnreachable),
              ('create_backing', exceptions.SnapshotUnreachable),
              ('begin_remote', exceptions.UserUnreachable),
              ('prepare', exceptions.PeerUnreachable),
              ('describe', exceptions.PeerUnreachable))
    @ddt.unpack
    def test_owner_is_told_which_node_is_silent(self, name, kind):
        error = self.assertRaises(exceptions.PeerUnreachable, self.call,
                                  messaging.MessagingTimeout(), name)
        self.assertIs(kind, type(error))

    def test_where_messages_go(self):
        """Nodes hear this topic, namespace and version alone."""
        with mock.patch.object(rpc, 'get_client') as made:
            peer.Client(40)._target('n2@l')
        target, = made.call_args.args
        self.assertEqual(
            ('cinder-localclone', 'localclone', '1.0'),
            (target.topic, target.namespace, target.version))
        heard = endpoint.Endpoint.target
        self.assertEqual(('localclone', '1.0'),
                         (heard.namespace, heard.version))

    def test_error_without_class_and_text(self):
        error = self.assertRaises(
            exceptions.LocalCloneError, self.call,
            messaging.RemoteError(None, None))
        self.assertNotIn('None', str(error))

    def test_own_errors_arrive_as_themselves(self):
        error = self.assertRaises(
            exceptions.NoFreeSpace, self.call,
            messaging.RemoteError('NoFreeSpace', 'n2@l has no room'))
        self.assertEqual('n2@l has no room', str(error))

    def test_errors_say_on_which_node(self):
        error = self.assertRaises(
            exceptions.TargetTimeout, self.call, messaging.RemoteError(
                'TargetTimeout', str(exceptions.TargetTimeout(seconds=8))))
        self.assertIn('On n2@l: The iSCSI target of this node', str(error))
        for value in (None, ''):
            error = self.assertRaises(
                exceptions.Busy, self.call,
                messaging.RemoteError('Busy', value))
            self.assertEqual('On n2@l: Busy', str(error))

    @ddt.data('KeyError', 'LOG', 'names', '_', None)
    def test_other_errors_keep_their_text(self, name):
        """Also those that are called as something else of our modules."""
        error = self.assertRaises(
            exceptions.LocalCloneError, self.call,
            messaging.RemoteError(name, 'x is missing'))
        self.assertIs(exceptions.LocalCloneError, type(error))
        self.assertIn('x is missing', str(error))

    def test_lost_message_is_no_error(self):
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().cast.side_effect = (
            messaging.MessageDeliveryFailure())
        client.cast('n2@l', self.METHODS['reconcile'], {'volume_id': 'v'})
        client._client.prepare().cast.assert_called_once()

    @ddt.data(messaging.InvalidTarget('t', None), RuntimeError('no bus'))
    def test_errors_of_the_bus(self, error):
        """A caller expects the driver's own; a cast raises nothing."""
        raised = self.assertRaises(exceptions.LocalCloneError, self.call,
                                   error)
        self.assertIn(str(error), str(raised))
        client = peer.Client(40)
        client._client = mock.Mock()
        client._client.prepare().cast.side_effect = error
        client.cast('n2@l', self.METHODS['reconcile'], {'volume_id': 'v'})
        client._client.prepare().cast.assert_called_once()

    def test_request_is_named_in_the_log_of_both_nodes(self):
        client = peer.Client(40)
        client._client = mock.Mock()
        before = oslo_context.get_current()
        self.addCleanup(
            before.update_store if before else self.forget_context)
        request = cinder_context.RequestContext(
            'user', 'project', is_admin=False)
        request.update_store()
        client.call('n2@l', self.METHODS['describe'], {})
        self.assertIs(request,
                      client._client.prepare().call.call_args.args[0])
        self.forget_context()
        client.call('n2@l', self.METHODS['describe'], {})
        self.assertTrue(
            client._client.prepare().call.call_args.args[0].is_admin)

    @staticmethod
    def forget_context():
        vars(oslo_context._request_store).pop('context', None)


class MethodsTest(testtools.TestCase):
    """What mypy can't see of them."""

    def test_every_method_has_its_function(self):
        for name, method in methods.METHODS.items():
            self.assertTrue(callable(method.function), name)
            self.assertEqual(name, methods.method_of(method.function).name)

    def test_no_module_with_methods_is_missed(self):
        """Whatever declares one, the endpoint imports."""
        before = set(methods.METHODS)
        for found in pkgutil.walk_packages(
                cinder_localclone.__path__, 'cinder_localclone.'):
            if not found.name.startswith('cinder_localclone.nova'):
                importlib.import_module(found.name)
        self.assertEqual(before, set(methods.METHODS))

    def test_endpoint_imports_each_module_with_methods(self):
        with mock.patch.object(
                endpoint.importlib, 'import_module',
                side_effect=importlib.import_module) as imported:
            endpoint._declare()
        self.assertLessEqual(
            {method.function.__module__ for method in methods.METHODS.values()
             if '.service.' not in method.function.__module__},
            {call.args[0] for call in imported.call_args_list})

    def test_every_method_acts_on_what_a_service_has(self):
        for name, method in methods.METHODS.items():
            self.assertIn(method.subject, (
                'node', 'reconciler', 'connections', 'service'), name)

    def test_what_is_on_the_bus(self):
        """Another name or argument: count up the version."""
        self.assertEqual((1, {
            'describe': (),
            'prepare': ('move_id', 'nonce', 'holes'),
            'begin_remote': ('volume_id', 'properties', 'attachments'),
            'encryption_pause': ('volume_id',),
            'encryption_progress': ('volume_id',),
            'encryption_reencrypt': (
                'volume_id', 'cipher', 'key_bits', 'resilience',
                'drops_keys', 'zone'),
            'encryption_resume': ('volume_id',),
            'end_remote_attachments': ('volume_id', 'user'),
            'has_header_backup': ('volume_id',),
            'has_lv': ('volume_id', 'lv'),
            'holes': ('move_id', 'nonce'),
            'reconcile': ('volume_id',),
            'initialize_connection': (
                'volume_id', 'connector', 'attachments'),
            'connect_snapshot': ('snapshot_id', 'connector'),
            'disconnect_snapshot': ('snapshot_id', 'connector'),
            'terminate_connection': (
                'volume_id', 'connector', 'attachments'),
            'create_from_snapshot': (
                'volume_id', 'snapshot_id', 'destination'),
            'create_from_volume': ('volume_id', 'source_id', 'destination'),
            'create_snapshot': ('snapshot_id',),
            'delete': ('volume_id',),
            'delete_snapshot': ('snapshot_id',),
            'unmanage': ('volume_id',),
            'manageable_snapshot': ('snapshot_id', 'reference'),
            'manage_snapshot': ('snapshot_id', 'reference'),
            'unmanage_snapshot': ('snapshot_id',),
            'uuid_of': ('lv',),
            'extend': ('volume_id', 'size_gib'),
            'revert': ('volume_id', 'snapshot_id'),
            'create_backing': ('volume_id', 'snapshot_id', 'new'),
            'troubles': (),
            'move_away': ('volume_id', 'peer'),
            'inspect': ('volume_id',),
            'is_whole': ('lv',),
            'figures': (),
            'repair': ('volume_id',),
            'abort': ('volume_id',),
            'resume': ('volume_id',),
            'open_without_source': ('volume_id',),
            'encryption_status': ('volume_id',),
            'encryption_rotate': ('volume_id',),
            'encryption_header_backup': ('volume_id',),
            'encryption_verify': ('volume_id',),
        }), (peer.VERSION, {
            method.name: tuple(method.signature.parameters)
            for method in methods.METHODS.values()}))
        self.assertEqual(('cinder-localclone', 'localclone'),
                         (peer.TOPIC, peer.NAMESPACE))

    def test_home_is_found_by_the_volume(self):
        """:func:`.rpc.call_at_home` sends its id first."""
        for name in ('initialize_connection', 'delete', 'unmanage',
                     'revert'):
            method = methods.METHODS[name]
            self.assertEqual((methods.HOME, 'volume_id'), (
                method.where, next(iter(method.signature.parameters))))

    def test_errors_of_all_modules_cross_as_themselves(self):
        """But for those that no peer is told of."""
        def kinds(kind):
            yield kind
            for each in kind.__subclasses__():
                yield from kinds(each)
        self.assertLessEqual({
            each.__name__ for each in kinds(exceptions.LocalCloneError)
            if each.__module__.startswith('cinder_localclone.')
            and each.__module__.rpartition('.')[2] not in (
                'exceptions', 'encryption_exceptions')
            and not each.__name__.startswith('_')},  # stays in its module
            {'NotConsistent'})


@ddt.ddt
class BusTest(testtools.TestCase):
    """Client and endpoint on oslo.messaging's bus in memory."""

    def setUp(self):
        super().setUp()
        self.transport = messaging.get_rpc_transport(
            cfg.CONF, url='fake:/',
            allowed_remote_exmods=rpc.get_allowed_exmods())
        self.service = mock.Mock()
        self.service.node.host = 'n2@l'
        self.functions = {}
        for name, method in methods.METHODS.items():
            self.functions[name] = mock.Mock(return_value=None)
            self.enterContext(mock.patch.dict(methods.METHODS, {
                name: dataclasses.replace(
                    method, function=self.functions[name])}))
        self.service.reconciler.copying.waker.give_way = mock.MagicMock()

        self.enterContext(mock.patch.object(
            impl_fake.FakeIncomingMessage, 'reply', self.reply))
        self.enterContext(mock.patch.object(
            impl_fake.FakeExchange, 'deliver_message', self.deliver(
                impl_fake.FakeExchange.deliver_message)))

        def get_client(target):
            return messaging.get_rpc_client(self.transport, messaging.Target(
                exchange='cinder', topic=target.topic,
                namespace=target.namespace, version=target.version))
        self.enterContext(mock.patch.object(rpc, 'get_client', get_client))
        self.start()
        self.client = peer.Client(5)

    @staticmethod
    def reply(message, reply=None, failure=None):
        """As the driver of RabbitMQ has it: all becomes text."""
        if not message._reply_q:
            return
        if failure:
            failure = drivers.deserialize_remote_exception(
                drivers.serialize_remote_exception(failure),
                rpc.get_allowed_exmods())
        message._reply_q.put((json.loads(json.dumps(reply)), failure))

    @staticmethod
    def deliver(inner):
        def deliver(exchange, topic, context, message, **more):
            return inner(exchange, topic, context,
                         json.loads(json.dumps(message)), **more)
        return deliver

    def start(self):
        def get_server(target, endpoints):
            return messaging.get_rpc_server(
                self.transport, messaging.Target(
                    exchange='cinder', topic=target.topic,
                    server=target.server), endpoints, executor='threading')
        with mock.patch.object(rpc, 'get_server', get_server):
            server = endpoint.start_server(self.service)
        self.addCleanup(server.stop)

    def call(self, name, *args, client=None):
        method = methods.METHODS[name]
        return (client or self.client).call(
            'n2@l', method, method.bind(*args))

    @ddt.data(*sorted(methods.METHODS))
    def test_a_call_arrives(self, name):
        method = methods.METHODS[name]
        arguments = {key: key + '!' for key in method.signature.parameters}
        function = self.functions[name]
        function.return_value = {'answer': name}
        self.assertEqual({'answer': name},
                         self.call(name, *arguments.values()))
        subject = (self.service if method.subject == 'service'
                   else getattr(self.service, method.subject))
        function.assert_called_once_with(
            subject, **arguments, **method.on_peer)
        # Where an owner waits, copies slow down.
        self.assertEqual(
            name in ('prepare', 'begin_remote'),
            self.service.reconciler.copying.waker.give_way.called)

    def test_what_a_peer_may_not_decide(self):
        self.call('delete', 'v')
        self.call('move_away', 'v', 'n3@l')
        self.assertEqual(
            [{'overwrites': False}, {'asked_by': state.Asked.DRAIN}],
            [{key: value for key, value in
              self.functions[name].call_args.kwargs.items()
              if key not in ('volume_id', 'peer')}
             for name in ('delete', 'move_away')])
        self.assertRaises(TypeError, self.call, 'delete', 'v', True)

    def test_a_cast_arrives(self):
        arrived = threading.Event()
        self.functions['reconcile'].side_effect = (
            lambda *_args, **_more: arrived.set())
        self.client.cast('n2@l', methods.METHODS['reconcile'],
                         {'volume_id': 'v'})
        self.assertTrue(arrived.wait(10))

    def test_a_peer_that_never_answers(self):
        """It is not waited for longer than it may take."""
        over = threading.Event()
        self.addCleanup(over.set)
        self.functions['prepare'].side_effect = (
            lambda *_args, **_more: over.wait(60))
        began = time.monotonic()
        error = self.assertRaises(
            exceptions.PeerUnreachable, self.call, 'prepare', 's', 'n',
            client=peer.Client(1))
        self.assertTrue(0.9 < time.monotonic() - began < 5)
        self.assertIn('within 1 s', str(error))

    @ddt.data(2, 0)
    def test_another_version_is_refused(self, version):
        """Before anything happens; newer or older."""
        with mock.patch.object(peer, 'VERSION', version):
            client = peer.Client(5)
            error = self.assertRaises(
                exceptions.OtherVersion, self.call, 'delete', 'v',
                client=client)
        self.assertIn('n2@l runs another version', str(error))
        self.assertIn('all nodes, then restart the volume services',
                      str(error))
        self.functions['delete'].assert_not_called()

    def test_a_busy_node_is_no_news_to_itself(self):
        self.functions['reconcile'].side_effect = exceptions.Busy(
            what='Volume v', host='n2@l', seconds=1)
        self.assertRaises(
            messaging.ExpectedException,
            endpoint.Endpoint(self.service).reconcile, {}, volume_id='v')
        self.assertRaises(exceptions.Busy, self.call, 'reconcile', 'v')

    @ddt.data(KeyError('x'), OSError(5, 'x'), ValueError('x\ny'),
              exception.VolumeNotFound(volume_id='x'))
    def test_other_errors_of_a_peer(self, error):
        """Who asks handles what the driver itself raises."""
        self.functions['holes'].side_effect = error
        raised = self.assertRaises(exceptions.LocalCloneError, self.call,
                                   'holes', 's', 'n')
        self.assertIs(exceptions.LocalCloneError, type(raised))
        self.assertIn('x', str(raised))
        self.assertNotIn('Traceback', str(raised))

    @ddt.data(exceptions.NotPossible(volume='x', reason=b'\xff'),
              exceptions.PoolFull(
                  pool='x', host='n2@l',
                  usage=lvm_reports.Usage(99, 1, 90)),
              UnicodeDecodeError('utf-8', b'\xff', 0, 1, 'x'),
              OSError(5, object()), SystemError(object()))
    def test_an_error_that_has_more_than_json(self, error):
        """It is sent all the same: no time limit is waited for."""
        kind = (type(error) if isinstance(error, exceptions.LocalCloneError)
                else exceptions.LocalCloneError)
        self.functions['holes'].side_effect = error
        raised = self.assertRaises(kind, self.call, 'holes', 's', 'n')
        self.assertIs(kind, type(raised))
        self.assertIn(str(error), str(raised))

    def test_own_errors_of_a_peer(self):
        self.functions['prepare'].side_effect = exceptions.NoFreeSpace(
            host='n2@l', size=1, reason='it is full')
        raised = self.assertRaises(exceptions.NoFreeSpace, self.call,
                                   'prepare', 's', 'n')
        self.assertIn('it is full', str(raised))

    def test_value_that_is_not_json_is_not_shown(self):
        error = self.assertRaises(
            TypeError, self.call, 'begin_remote', 'v',
            {'auth_password': b'secret'}, {})
        self.assertNotIn('secret', str(error))

    def test_arguments_are_checked_before_they_are_sent(self):
        for args in (('s',), ('s', 'n', [], 'more')):
            self.assertRaises(TypeError, self.call, 'prepare', *args)

    @ddt.data(object(), {1, 2}, b'bytes', {'holes': [(1, object())]},
              {1: 'key'})
    def test_argument_that_is_not_json(self, value):
        error = self.assertRaises(TypeError, self.call, 'prepare', 's', 'n',
                                  value)
        self.assertIn('Argument holes of prepare', str(error))
        self.functions['prepare'].assert_not_called()

    def test_answer_that_is_not_json(self):
        """The caller hears of it, and need not wait for its time limit."""
        self.functions['holes'].return_value = {1, 2}
        error = self.assertRaises(exceptions.LocalCloneError, self.call,
                                  'holes', 's', 'n')
        self.assertIn('answer of holes is not plain JSON', str(error))

    def test_plain_values_arrive_as_they_are(self):
        value = {'a': [1, 2.5, None, True, 'text', [], {}]}
        self.functions['holes'].return_value = value
        self.assertEqual(value, self.call('holes', 's', 'n'))
        self.call('prepare', 's', 'n', ((0, 1), (5, 2)))
        self.assertEqual(
            [[0, 1], [5, 2]],
            self.functions['prepare'].call_args.kwargs['holes'])

    def test_a_forwarded_busy_volume_is_that(self):
        """So Cinder's manager makes it available again."""
        self.assertTrue(issubclass(exceptions.CannotDelete,
                                   exception.VolumeIsBusy))

    @ddt.data(*(kind for kind in vars(exceptions).values()
                if isinstance(kind, type)
                and issubclass(kind, exceptions.LocalCloneError)))
    def test_the_owner_is_told_the_same_of_a_forwarded_error(self, kind):
        """As oslo.messaging serialises it, and Cinder lets it pass."""
        raised = kind('what has happened on n2@l')
        try:
            raise raised
        except exceptions.LocalCloneError:
            sent = drivers.serialize_remote_exception(sys.exc_info())
        received = drivers.deserialize_remote_exception(
            sent, rpc.get_allowed_exmods())
        self.assertIsInstance(received, messaging.RemoteError)
        error = peer._as_own(received, 'n2@l')
        self.assertIs(kind, type(error))
        self.assertEqual(str(raised), str(error))
        with mock.patch.object(messages, 'api') as api:
            for each in (error, raised):
                messages.tell_member(None, 'v', each, Action.ATTACH)
        first, second = api.API().create.call_args_list
        self.assertEqual(first, second)


class Things:
    """Stands for a class with a method for peers."""

    def act(self, volume_id):
        pass


class DeclaringTest(testtools.TestCase):
    """The decorators, without a bus."""

    def setUp(self):
        super().setUp()
        for each in (methods.METHODS, methods._NAME_OF):
            self.enterContext(mock.patch.dict(each))
        self.node = mock.Mock(spec=['host', 'peers', 'volumes'], host='a@l')

    def declare(self, **how):
        @methods.method('act', methods.HOME, **how)
        def act(node, volume_id, size=1, patient=True):
            return node, volume_id, size, patient
        return act

    def test_here(self):
        """It is a function as any other; nothing is sent."""
        act = self.declare()
        self.assertEqual((self.node, 'v', 2, True),
                         methods.call_at('a@l', act, self.node, 'v', 2))
        self.assertEqual([], self.node.peers.mock_calls)

    def test_elsewhere(self):
        act = self.declare()
        found = methods.call_at('b@l', act, self.node, 'v', size=2)
        self.node.peers.call.assert_called_once_with(
            'b@l', methods.METHODS['act'], {'volume_id': 'v', 'size': 2})
        self.assertIs(self.node.peers.call.return_value, found)

    def test_subject_that_has_the_node(self):
        act = self.declare()
        subject = mock.Mock(node=self.node)
        self.assertEqual((subject, 'v', 1, True),
                         methods.call_at('a@l', act, subject, 'v'))
        methods.call_at('b@l', act, subject, 'v')
        self.node.peers.call.assert_called_once()

    def test_local_arguments_stay_here(self):
        """The peer has its own, whatever the caller wants."""
        act = self.declare(on_peer={'patient': False})
        self.assertRaises(TypeError, methods.call_at, 'b@l', act, self.node,
                          'v',
                          2, True)
        service = mock.Mock()
        self.assertEqual(
            service.node,
            methods.METHODS['act'].function(service.node, 'v')[0])
        self.assertRaises(
            TypeError, methods.METHODS['act'].answer, service,
            {'volume_id': 'v', 'patient': True})

    def test_home_that_has_changed_is_asked_again_once(self):
        act = self.declare()
        volume = mock.Mock(id='v', home='b@l')
        stale = exceptions.StaleMove(volume='v')
        self.node.peers.call.side_effect = [stale, 'done']
        self.node.volumes.volume.return_value = mock.Mock(home='c@l')
        self.assertEqual('done',
                         methods.call_at_home(act, self.node, volume, 2))
        self.assertEqual(
            [('b@l', {'volume_id': 'v', 'size': 2}),
             ('c@l', {'volume_id': 'v', 'size': 2})],
            [(call.args[0], call.args[2])
             for call in self.node.peers.call.mock_calls])
        self.node.peers.call.side_effect = [stale, stale]
        self.assertRaises(exceptions.StaleMove, methods.call_at_home, act,
                          self.node, volume)

    def test_home_that_has_not_changed_is_not_asked_again(self):
        act = self.declare()
        volume = mock.Mock(id='v', home='b@l')
        self.node.peers.call.side_effect = exceptions.StaleMove(volume='v')
        for row in (volume, None):
            self.node.peers.call.reset_mock()
            self.node.volumes.volume.return_value = row
            self.assertRaises(exceptions.StaleMove, methods.call_at_home, act,
                              self.node, volume)
            self.node.peers.call.assert_called_once()

    def test_home_that_became_this_node(self):
        act = self.declare()
        self.node.peers.call.side_effect = exceptions.StaleMove(volume='v')
        self.node.volumes.volume.return_value = mock.Mock(home='a@l')
        self.assertEqual((self.node, 'v', 1, True), methods.call_at_home(
            act, self.node, mock.Mock(id='v', home='b@l')))

    def test_cast(self):
        act = self.declare(casts=True)
        methods.cast('b@l', act, self.node, 'v')
        self.node.peers.cast.assert_called_once_with(
            'b@l', methods.METHODS['act'], {'volume_id': 'v'})

    def test_what_must_be_waited_for_is_not_cast(self):
        self.assertRaises(TypeError, methods.cast, 'b@l', self.declare(),
                          self.node, 'v')
        self.node.peers.cast.assert_not_called()

    def test_module_that_is_imported_again(self):
        first, again = self.declare(), self.declare()
        self.assertIsNot(first, again)
        self.assertIs(again, methods.METHODS['act'].function)

    def test_method_of_a_class(self):
        """A peer has an object of it: by the name of the class."""
        methods.method('act')(Things.act)
        self.assertEqual('things', methods.METHODS['act'].subject)

    def test_two_of_one_name(self):
        self.declare()
        self.assertRaises(ValueError, methods.method('act'),
                          exceptions.class_named)

    def test_declared_below_and_done_above(self):
        @methods.declared('sweep')
        def sweep(node, volume_id):
            raise NotImplementedError

        @methods.implements(sweep)
        def really_look(looking, volume_id):
            return [looking, volume_id]
        method = methods.method_of(sweep)
        self.assertIs(method, methods.method_of(really_look))
        self.assertEqual('%s.%s' % (__name__, really_look.__qualname__),
                         method.origin)
        self.assertEqual(['it', 'v'], method.answer(
            mock.Mock(looking='it'), {'volume_id': 'v'}))
        self.assertRaises(TypeError, methods.implements(sweep),
                          lambda node: None)
        methods.call_at('b@l', sweep, self.node, 'v')
        self.node.peers.call.assert_called_once_with(
            'b@l', method, {'volume_id': 'v'})

    def test_not_done_yet(self):
        @methods.declared('sweep')
        def sweep(node):
            raise NotImplementedError
        self.assertRaises(NotImplementedError, methods.method_of(sweep).answer,
                          mock.Mock(), {})

    def test_what_is_asked_below_the_package_that_does_it(self):
        self.assertEqual(
            ['cinder_localclone.service.assembly.Service.describe',
             'cinder_localclone.volumes.reconcile.Reconciler.reconcile'],
            [methods.method_of(each).origin
             for each in (peers.describe, peers.reconcile)])
