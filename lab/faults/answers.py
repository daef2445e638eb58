# SPDX-License-Identifier: Apache-2.0
"""Requests to a service that has died since: they have no answer.

The message bus does not tell who waits, for up to a minute. Here a wait ends
as it would then, just as soon as the service is there again: a file
``<node>.died`` in the directory of the steps says when it died. Runs in
cinder-api and in the volume services of a lab that was brought up with the
setting ``stepping``; see :meth:`.environment.Environment.end_waits`.
"""

import importlib
import pathlib
import threading
import time

#: Where :mod:`.api` finds the directory.
VARIABLE = 'LOCALCLONE_STEPS'
#: Seconds between two looks at the file.
EVERY = 0.5


def node_of(server):
    """The node that a request goes to, by its name on the message bus."""
    return (server or '').partition('@')[0]


def died_since(directory, server, asked):
    """Whether the service that was asked at a time has died after it."""
    try:
        died = float((directory / (node_of(server) + '.died')).read_text())
    except (OSError, ValueError):
        return False
    return asked < died


def in_short(get, timed_out, is_lost):
    """Wait for an answer as ``get(timeout)`` does, look by look.

    :param timed_out: what ``get`` raises when the time is up
    :param is_lost: whether there will be no answer
    """
    def wait(timeout):
        deadline = time.monotonic() + (
            float('inf') if timeout is None else timeout)
        while True:
            left = deadline - time.monotonic()
            try:
                return get(max(0, min(left, EVERY)))
            except timed_out:
                if left <= EVERY or is_lost():
                    raise
    return wait


def install(directory):
    """Have the requests of this process end that way."""
    directory = pathlib.Path(directory)
    driver = importlib.import_module('oslo_messaging._drivers.amqpdriver')
    messaging = importlib.import_module('oslo_messaging')
    send, get = driver.AMQPDriverBase._send, driver.ReplyWaiters.get
    asking = threading.local()

    def _send(self, target, *args, **kwargs):
        asking.server, asking.since = target.server, time.time()
        return send(self, target, *args, **kwargs)

    def _get(self, msg_id, timeout):
        server, since = asking.server, asking.since
        return in_short(
            lambda seconds: get(self, msg_id, seconds),
            messaging.MessagingTimeout,
            lambda: died_since(directory, server, since))(timeout)
    driver.AMQPDriverBase._send = _send
    driver.ReplyWaiters.get = _get
