# SPDX-License-Identifier: Apache-2.0
"""Calls between the nodes, on Cinder's message bus.

Idempotent methods in a namespace of the driver's own, each with a time
limit. A handler never calls back synchronously, so two nodes that call each
other cannot wait for each other. The database is the truth: a call that is
lost only delays what the next periodic look does anyway.
"""

import inspect

from cinder import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_localclone import exceptions

LOG = logging.getLogger(__name__)

TOPIC = 'cinder-localclone'
NAMESPACE = 'localclone'
#: 1.0: describe, prepare, converge, initialize_connection,
#: terminate_connection
#: 1.1: inspect, repair, abort, resume
VERSION = '1.1'
#: The methods that a peer of version 1.0 lacks.
SINCE_1_1 = frozenset(('inspect', 'repair', 'abort', 'resume'))
#: How often sending is tried again while the bus is away. By default that
#: goes on until it is back, whatever the time limit of a call.
RESENDS = 2
#: Seconds within which a living service answers a question.
PROMPT = 8


class Client:
    """The methods of a peer.

    :param timeout: seconds to wait for work that a peer does
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._client = None

    def describe(self, context, host: str) -> dict:
        """What a node is and can take; see Handlers.describe."""
        return self._call(context, host, 'describe', PROMPT)

    def prepare(self, context, host: str, shadow_id: str,
                nonce: str) -> None:
        """Build the destination's stack of an uncommitted move."""
        self._call(context, host, 'prepare', self.timeout,
                   shadow_id=shadow_id, nonce=nonce)

    def converge(self, context, host: str, volume_id: str) -> None:
        """Have a node take its next steps for a volume; wait a moment.

        It goes on by itself if it needs longer.
        """
        self._call(context, host, 'converge', PROMPT, volume_id=volume_id)

    def converge_soon(self, context, host: str, volume_id: str) -> None:
        """The same without waiting; may be lost."""
        try:
            self._target(host, 'converge').cast(
                context, 'converge', volume_id=volume_id)
        except messaging.MessagingException as exc:
            LOG.warning('%(host)s was not told of volume %(volume)s, and '
                        'will look by itself: %(error)s',
                        {'host': host, 'volume': volume_id, 'error': exc})

    def initialize_connection(self, context, host: str, volume_id: str,
                              connector: dict) -> dict:
        """Hand a call on to the node that is the volume's home.

        It may have to wait for a peer itself.
        """
        return self._call(context, host, 'initialize_connection',
                          2 * self.timeout, volume_id=volume_id,
                          connector=connector)

    def terminate_connection(self, context, host: str, volume_id: str,
                             connector: dict | None) -> None:
        self._call(context, host, 'terminate_connection', self.timeout,
                   volume_id=volume_id, connector=connector)

    # -- for the operator

    def inspect(self, context, host: str, volume_id: str) -> dict:
        """What a node has of a volume; see inspection.inspect."""
        return self._call(context, host, 'inspect', PROMPT,
                          volume_id=volume_id)

    def repair(self, context, host: str, volume_id: str) -> list[str]:
        """Converge, and say what was done."""
        return self._call(context, host, 'repair', self.timeout,
                          volume_id=volume_id)

    def abort(self, context, host: str, volume_id: str) -> None:
        self._call(context, host, 'abort', self.timeout, volume_id=volume_id)

    def resume(self, context, host: str, volume_id: str) -> None:
        self._call(context, host, 'resume', self.timeout,
                   volume_id=volume_id)

    def _target(self, host, method, **options):
        if self._client is None:
            self._client = rpc.get_client(messaging.Target(
                topic=TOPIC, namespace=NAMESPACE, version=VERSION))
        return self._client.prepare(
            server=host, version=VERSION if method in SINCE_1_1 else '1.0',
            retry=RESENDS, **options)

    def _call(self, context, host, method, timeout, **arguments):
        try:
            return self._target(host, method, timeout=timeout).call(
                context, method, **arguments)
        except (messaging.MessagingTimeout,
                messaging.MessageDeliveryFailure):
            raise exceptions.PeerUnreachable(
                host=host, method=method, seconds=timeout)
        except messaging.RemoteError as exc:
            raise _as_own(exc)


def _as_own(remote: messaging.RemoteError) -> Exception:
    """An error of ours that a peer raised, as itself again."""
    kind = getattr(exceptions, remote.exc_type or '', None)
    if inspect.isclass(kind) and issubclass(
            kind, exceptions.LocalCloneError):
        return kind(remote.value)
    return exceptions.LocalCloneError(remote.value)


class _Endpoint:
    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, handlers):
        self._handlers = handlers

    def describe(self, context):
        return self._handlers.describe()

    def prepare(self, context, shadow_id, nonce):
        self._handlers.prepare(shadow_id, nonce)

    @messaging.expected_exceptions(exceptions.Busy)
    def converge(self, context, volume_id):
        self._handlers.converge(volume_id)

    def initialize_connection(self, context, volume_id, connector):
        return self._handlers.serve(context, volume_id, connector)

    def inspect(self, context, volume_id):
        return self._handlers.inspect(volume_id)

    def repair(self, context, volume_id):
        return self._handlers.repair(volume_id)

    def abort(self, context, volume_id):
        self._handlers.abort(volume_id)

    def resume(self, context, volume_id):
        self._handlers.resume(volume_id)

    def terminate_connection(self, context, volume_id, connector):
        self._handlers.unserve(context, volume_id, connector)


def start_server(host: str, handlers):
    """Answer the peers' calls.

    :param host: this service's host, without pool
    :param handlers: see ``driver.Handlers``
    """
    server = rpc.get_server(
        messaging.Target(topic=TOPIC, server=host), [_Endpoint(handlers)])
    server.start()
    return server


class Directory:
    """Which node a connector belongs to.

    Nodes are the volume services whose backend section has the same name as
    this one's. A connector is matched by host name, then by IP address,
    which each node is asked for once.

    :param host: this service's host
    """

    def __init__(self, host: str, records, client: Client):
        self.host = host
        self._records = records
        self._client = client
        self._addresses: dict[str, frozenset[str]] = {}

    def find(self, context, connector: dict) -> str | None:
        """The service host of the connecting node; None if it is none.

        :raises PeerUnreachable: if the node that matches by name is down
        """
        nodes = self._nodes()
        found = _by_name(connector, nodes)
        if found is None:
            return self._find_by_address(
                context, connector.get('ip'),
                [host for host, alive in nodes.items() if alive])
        if not nodes[found] and found != self.host:
            raise exceptions.PeerUnreachable(
                host=found, method='heartbeat', seconds='service_down_time')
        return found

    def is_at(self, connector: dict, host: str) -> bool:
        """Whether a connector belongs to the node of a service host.

        Alive or not; an address counts if that node was asked for its own.
        """
        found = _by_name(connector, self._nodes())
        if found is None:
            return connector.get('ip') in self._addresses.get(host, ())
        return found == host

    def _nodes(self):
        backend = self.host.partition('@')[2]
        return {host: alive for host, alive in
                self._records.services().items()
                if host.partition('@')[2] == backend}

    def know(self, host: str, addresses) -> None:
        """Remember a node's addresses."""
        self._addresses[host] = frozenset(addresses)

    def _find_by_address(self, context, address, hosts):
        for host in hosts:
            if address and host not in self._addresses:
                try:
                    self.know(host, self._client.describe(
                        context, host)['addresses'])
                except exceptions.PeerUnreachable:
                    continue
        return next((host for host in hosts
                     if address in self._addresses.get(host, ())), None)


def _by_name(connector, hosts):
    """The service host of the node that a connector names, if it is one."""
    name = connector.get('host') or ''
    for same in (lambda n: n == name,
                 # "n1.rack1" is not "n1.rack2", but both may be "n1".
                 lambda n: ('.' in n) != ('.' in name)
                 and n.split('.')[0] == name.split('.')[0]):
        matches = [host for host in hosts
                   if name and same(host.partition('@')[0])]
        if len(matches) == 1:
            return matches[0]
    return None
