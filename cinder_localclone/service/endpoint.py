# SPDX-License-Identifier: Apache-2.0
"""Answers the calls of other nodes; see :mod:`cinder_localclone.core.rpc`.

The modules that have methods are imported here, which declares them.
"""

import functools
import typing

from cinder import rpc
import oslo_messaging as messaging

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc as methods
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import destination
from cinder_localclone.moves import holes
from cinder_localclone.moves import remote_attachment
from cinder_localclone.service import assembly
from cinder_localclone.service import rpc as bus
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import connect
from cinder_localclone.volumes import delete
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import inspect
from cinder_localclone.volumes import manage
from cinder_localclone.volumes import manage_snapshots
from cinder_localclone.volumes import migrate
from cinder_localclone.volumes import operations
from cinder_localclone.volumes import reconcile
from cinder_localclone.volumes import revert
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted

#: The modules with functions that peers call.
MODULES = (
    assembly, clone, connect, delete, destination, extend, header_backups,
    headers, holes, homes, inspect, manage, manage_snapshots, migrate,
    operations, reconcile, reencrypt, remote_attachment, revert, rotate,
    snapshots, uncommitted)


class Endpoint:
    """Has the functions of this node answer what is on the bus.

    :param service: what they act on
    """

    target = messaging.Target(namespace=bus.NAMESPACE, version=bus.version())

    def __init__(self, service: assembly.Service):
        for method in methods.METHODS.values():
            answer = functools.partial(_answer, service, method)
            if method.expected:
                answer = messaging.expected_exceptions(
                    *method.expected)(answer)
            setattr(self, method.name, answer)


def _answer(service: assembly.Service, method: methods.Method,
            _context: object, **arguments: typing.Any) -> typing.Any:
    """Run a method for a peer.

    :raises LocalCloneError: whatever has gone wrong. It crosses the bus by
        its class and its text: of an error with anything else, which may be
        no JSON, oslo.messaging would send nothing, and the peer would wait
        for its time limit
    """
    try:
        return method.answer(service, arguments)
    except exceptions.LocalCloneError as exc:
        exc.kwargs = {}
        raise
    except Exception as exc:
        raise exceptions.LocalCloneError(reason='%s: %s' % (
            type(exc).__name__, exc)) from exc


def start_server(service: assembly.Service) -> typing.Any:
    """Answer the peers' calls."""
    server = rpc.get_server(
        messaging.Target(topic=bus.TOPIC, server=service.node.host),
        [Endpoint(service)])
    server.start()
    return server
