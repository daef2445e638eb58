# SPDX-License-Identifier: Apache-2.0
"""Answer the calls of other nodes; see :mod:`cinder_localclone.core.rpc`.

A method is declared when its module is imported, so all modules of packages
with methods are imported here.
"""

import functools
import importlib
import pkgutil
import typing

from cinder import rpc
import oslo_messaging as messaging

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc as methods
from cinder_localclone.service import assembly
from cinder_localclone.service import rpc as bus
#: The packages with modules that declare methods, besides this package.
PACKAGES = 'encryption', 'moves', 'volumes'


def _declare() -> None:
    """Import all modules of the packages, which declare methods."""
    for package in PACKAGES:
        found = importlib.import_module('cinder_localclone.' + package)
        for each in pkgutil.iter_modules(found.__path__, found.__name__ + '.'):
            importlib.import_module(each.name)


_declare()


class Endpoint:
    """Answers messages by the functions of this node.

    :param service: passed to each function
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

    :raises LocalCloneError: for any error. It crosses the bus as its class and
        its text. oslo.messaging can't send an error with contents other than
        JSON, and the peer would wait until its time limit
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
    """Start to answer the peers' calls."""
    server = rpc.get_server(
        messaging.Target(topic=bus.TOPIC, server=service.node.host),
        [Endpoint(service)])
    server.start()
    return server
