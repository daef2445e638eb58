# SPDX-License-Identifier: Apache-2.0
"""Call other nodes over Cinder's message bus.

:mod:`cinder_localclone.core.rpc` declares the methods, and :mod:`.endpoint`
answers them. Methods are idempotent, in a namespace of the driver, each with a
time limit. A method never calls back synchronously, so two nodes can't wait
for each other. A delete and an unmanage may ask any node for ``has_lv`` and
``is_whole``, which take no lock and call no node. The database is the truth: a
lost call only delays work until the next sweep.
"""

from collections.abc import Mapping
import typing

from cinder import context as cinder_context
from cinder.i18n import _
from cinder import rpc
from oslo_context import context as oslo_context
from oslo_log import log as logging
import oslo_messaging as messaging

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc as methods

LOG = logging.getLogger(__name__)

TOPIC = 'cinder-localclone'
NAMESPACE = 'localclone'
#: Increased with any change of the messages. It is the major number of the
#: version on the bus, so a node with another version refuses a call before it
#: acts.
VERSION = 1
#: The number of retries while the bus is away. By default the bus retries
#: until it is back, beyond the time limit of a call.
RESENDS = 2
#: The error for a silent node, by its part in a method. The owner's message
#: depends on the error's class alone, because only the class survives another
#: call.
_SILENT = {methods.HOME: exceptions.HomeUnreachable,
           methods.SNAPSHOT: exceptions.SnapshotUnreachable,
           methods.REMOTE: exceptions.UserUnreachable}


def version() -> str:
    """Return the version on the message bus."""
    return '%d.0' % VERSION


class Client(methods.Calls):
    """The peers of this node.

    :param timeout: seconds to wait for the work of a peer
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._client: typing.Any = None

    def _target(self, host: str, **options: typing.Any) -> typing.Any:
        if self._client is None:
            self._client = rpc.get_client(messaging.Target(
                topic=TOPIC, namespace=NAMESPACE, version=version()))
        return self._client.prepare(server=host, retry=RESENDS, **options)

    def _context(self) -> typing.Any:
        """Return the context of this thread's request, or an admin context.

        The logs of both nodes then have the same request ID. No method depends
        on the user.
        """
        found = oslo_context.get_current()
        return (found if isinstance(found, cinder_context.RequestContext)
                else cinder_context.get_admin_context())

    def call(self, host: str, method: methods.Method,
             arguments: Mapping[str, typing.Any]) -> typing.Any:
        """Run a method on a node; see :meth:`.Calls.call`."""
        seconds = method.seconds(self.timeout)
        try:
            return self._target(host, timeout=seconds).call(
                self._context(), method.name, **arguments)
        except (messaging.MessagingTimeout, messaging.ClientSendError,
                messaging.MessageDeliveryFailure):
            raise _SILENT.get(method.where, exceptions.PeerUnreachable)(
                host=host, method=method.name, seconds=seconds)
        except messaging.RemoteError as exc:
            raise _as_own(exc, host)
        except Exception as exc:  # an error of the bus itself
            raise exceptions.LocalCloneError(reason='%s: %s' % (
                type(exc).__name__, exc)) from exc

    def cast(self, host: str, method: methods.Method,
             arguments: Mapping[str, typing.Any]) -> None:
        """Send a method; see :meth:`.Calls.cast`."""
        try:
            self._target(host).cast(
                self._context(), method.name, **arguments)
        except Exception as exc:  # the caller continues after any error
            LOG.warning('Could not send "%(method)s" %(arguments)s to '
                        '%(host)s. The next sweep of the host does the work: '
                        '%(error)s',
                        {'method': method.name, 'arguments': arguments,
                         'host': host, 'error': exc})


def _as_own(remote: messaging.RemoteError, host: str) -> Exception:
    """Return a peer's error as an instance of its own class.

    Only its class and its text crossed the bus, so the owner's message must
    depend on the class alone. The text gets the name of the peer, because it
    may say "this node", or name a failed command.
    """
    name = remote.exc_type or ''
    if name == messaging.UnsupportedVersion.__name__:
        return exceptions.OtherVersion(host=host)
    text = str(remote.value or name)
    return exceptions.class_named(name)(
        text if host in text else _('On %(host)s: %(text)s') % {
            'host': host, 'text': text})
