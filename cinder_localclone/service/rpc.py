# SPDX-License-Identifier: Apache-2.0
"""Calls between the nodes, on Cinder's message bus.

Idempotent methods in a namespace of the driver's own, each with a time
limit. A handler never calls back synchronously, so two nodes that call each
other cannot wait for each other. The database is the truth: a call that is
lost only delays what the next periodic check does anyway.

What each method means is in
:class:`.peers.OperatorPeers`, how it is sent in
:data:`METHODS`, what it does in :class:`.handlers.Handlers`.
"""

from collections.abc import Callable
import dataclasses
import functools
import inspect
import typing

from cinder import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import peers
from cinder_localclone.core import objects

LOG = logging.getLogger(__name__)

TOPIC = 'cinder-localclone'
NAMESPACE = 'localclone'
VERSION = '1.7'
#: How often sending is tried again while the bus is away. By default that
#: goes on until it is back, whatever the time limit of a call.
RESENDS = 2
#: Seconds within which a living service answers a question.
PROMPT = 8


@dataclasses.dataclass(frozen=True)
class Method:
    """How a method is sent. Names and versions are those on the bus.

    :param name: what it is called there
    :param since: the version that a peer must have at least: one that is
        older refuses a newer one, so no call asks for more than it needs
    :param limit: seconds to wait for the answer, out of those allowed for
        work; None: it is not waited for, and may be lost
    :param expected: errors that are no news to the service that answers
    """

    name: str
    since: str = '1.0'
    limit: Callable[[float], float] | None = lambda work: work
    expected: tuple[type[Exception], ...] = ()


def _prompt(_work: float) -> float:
    return PROMPT


def _twice(work: float) -> float:
    return 2 * work


#: By the name that callers here use.
METHODS = {
    'describe': Method('describe', limit=_prompt),
    'prepare': Method('prepare'),
    'prepare_sparse': Method('prepare_sparse', '1.6'),
    'holes': Method('holes', '1.6'),
    'converge': Method('converge', limit=_prompt,
                       expected=(exceptions.Busy,)),
    'converge_soon': Method('converge', limit=None),
    # The peer may have to wait for another.
    'initialize_connection': Method('initialize_connection', limit=_twice),
    'terminate_connection': Method('terminate_connection'),
    'begin_passing': Method('begin_passing', '1.6'),
    'end_passing': Method('end_passing', '1.6', expected=(
        exceptions.Busy, exceptions.SourceBusy)),
    'delete': Method('delete', '1.2', expected=(
        exceptions.CannotDelete, exceptions.HalfDeleted)),
    'unmanage': Method('unmanage', '1.4',
                       expected=(exceptions.CannotUnmanage,)),
    'unmanage_snapshot': Method('unmanage_snapshot', '1.4',
                                expected=(exceptions.SnapshotInUse,)),
    'manageable_snapshot': Method(
        'manageable_snapshot', '1.7', _prompt,
        (exceptions.CannotManage, exceptions.TooLate)),
    'manage_snapshot': Method(
        'manage_snapshot', '1.7', expected=(
            exceptions.CannotManage, exceptions.TooLate)),
    'create_snapshot': Method('create_snapshot', '1.4',
                              expected=(exceptions.BeingCopied,)),
    'delete_snapshot': Method('delete_snapshot', '1.4', _prompt,
                              (exceptions.Busy,)),
    'serve_snapshot': Method('serve_snapshot', '1.4'),
    'unserve_snapshot': Method('unserve_snapshot', '1.4'),
    # The volume may have to move afterwards.
    'create_from_snapshot': Method('create_from_snapshot', '1.4', _twice),
    'create_from_volume': Method('create_from_volume', '1.4', _twice,
                                 expected=(exceptions.BeingCopied,)),
    # The home asks those that use it over iSCSI, before its part and after.
    'extend': Method('extend', '1.3', lambda work: 3 * work),
    'revert': Method('revert', '1.5', _twice),
    'create_body': Method('create_body', '1.5'),
    'encryption_progress': Method('encryption_progress', '1.6', _prompt),
    'encryption_reencrypt': Method('encryption_reencrypt', '1.6'),
    'encryption_pause': Method('encryption_pause', '1.6'),
    'encryption_resume': Method('encryption_resume', '1.6'),
    'figures': Method('figures', '1.6', _prompt),
    'troubles': Method('troubles', '1.3', _prompt),
    'inspect': Method('inspect', '1.1', _prompt),
    'repair': Method('repair', '1.1'),
    'abort': Method('abort', '1.1'),
    'resume': Method('resume', '1.1'),
    'open_without_source': Method('open_without_source', '1.2'),
    # The home waits for the destination.
    'depart': Method('depart', '1.3', _twice, expected=(
        exceptions.Busy, exceptions.NotMovable, exceptions.StaleMove)),
    'encryption_status': Method('encryption_status', '1.6'),
    'encryption_rotate': Method('encryption_rotate', '1.6', _twice, expected=(
        encryption_exceptions.KeyNotChanged, encryption_exceptions.NotAtRest)),
    'encryption_header_backup': Method(
        'encryption_header_backup', '1.6', expected=(
            encryption_exceptions.KeyNotChanged,
            encryption_exceptions.NotAtRest)),
    'encryption_verify': Method('encryption_verify', '1.6'),
}


class Client:
    """Sends what :data:`METHODS` names: ``method(context, host, ...)``.

    :param timeout: seconds to wait for work that a peer does
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._client: typing.Any = None

    def __getattr__(self, name: str) -> Callable[..., typing.Any]:
        if name not in METHODS:
            raise AttributeError(name)
        return functools.partial(self._send, name)

    def _send(self, name: str, *args: typing.Any, **more: typing.Any
              ) -> typing.Any:
        method = METHODS[name]
        arguments = inspect.signature(
            getattr(peers.OperatorPeers, name)).bind(
                self, *args, **more).arguments
        del arguments['self']
        context, host = arguments.pop('context'), arguments.pop('host')
        if method.limit is None:
            return self._cast(method, context, host, arguments)
        return self._call(method, context, host, arguments,
                          method.limit(self.timeout))

    def _target(self, method: Method, host: str,
                **options: typing.Any) -> typing.Any:
        if self._client is None:
            self._client = rpc.get_client(messaging.Target(
                topic=TOPIC, namespace=NAMESPACE, version=VERSION))
        return self._client.prepare(
            server=host, version=method.since, retry=RESENDS, **options)

    def _call(self, method: Method, context: objects.Context, host: str,
              arguments: dict[str, typing.Any], seconds: float
              ) -> typing.Any:
        try:
            return self._target(method, host, timeout=seconds).call(
                context, method.name, **arguments)
        except (messaging.MessagingTimeout,
                messaging.MessageDeliveryFailure):
            raise exceptions.PeerUnreachable(
                host=host, method=method.name, seconds=seconds)
        except messaging.RemoteError as exc:
            raise _as_own(exc)

    def _cast(self, method: Method, context: objects.Context, host: str,
              arguments: dict[str, typing.Any]) -> None:
        try:
            self._target(method, host).cast(
                context, method.name, **arguments)
        except messaging.MessagingException as exc:
            LOG.warning('Could not send "%(method)s" %(arguments)s to '
                        '%(host)s. The next periodic check of that host does '
                        'the work: %(error)s',
                        {'method': method.name, 'arguments': arguments,
                         'host': host, 'error': exc})


def client(timeout: float) -> peers.OperatorPeers:
    """The peers of this node, on the message bus.

    :param timeout: seconds to wait for work that a peer does
    """
    return typing.cast(peers.OperatorPeers, Client(timeout))


def _as_own(remote: messaging.RemoteError) -> Exception:
    """An error of ours that a peer raised, as itself again.

    Only its class and its text have come over the bus. So what the owner of
    the volume reads must depend on the class alone.
    """
    name = remote.exc_type or ''
    if name == 'UnsupportedVersion':
        return peers.PeerTooOld(remote.value)
    return exceptions.class_named(name)(remote.value)


class Endpoint:
    """Has handlers answer what is on the bus.

    :param handlers: a method for each one on the bus:
        ``method(context, ...)``
    """

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, handlers: object):
        for method in METHODS.values():
            answer = getattr(handlers, method.name)
            if method.expected:
                answer = messaging.expected_exceptions(
                    *method.expected)(answer)
            if method.limit is not None:  # one that is cast is called too
                setattr(self, method.name, answer)


def start_server(host: str, handlers: object) -> typing.Any:
    """Answer the peers' calls.

    :param host: this service's host, without pool
    :param handlers: see :class:`cinder_localclone.service.handlers.Handlers`
    """
    server = rpc.get_server(
        messaging.Target(topic=TOPIC, server=host), [Endpoint(handlers)])
    server.start()
    return server
