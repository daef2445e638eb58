# SPDX-License-Identifier: Apache-2.0
"""What all operations have in common."""

from lab.core import process
from lab.operations import subject as subjects

#: Seconds: for what is to be done now; in which what waits is not done, so
#: that several looks of the nodes have passed; for what has waited.
PATIENCE, WAITING, AFTERWARDS = 120, 8, 240


class Operation:
    """One request, by the user of a volume.

    :param place: a :class:`.situations.Situation`
    :param expected: a :class:`.table.Expected`
    """

    name = ''
    #: Whether it is asked of a volume that a guest has.
    in_use = False
    #: Whether the volume has a snapshot.
    snapshot = False
    #: Whether the volume is another one afterwards, or it takes long.
    alone = False
    #: Whether all of it is read.
    reads = False
    patience = PATIENCE

    def __init__(self, place, expected):
        self.place = place
        self.expected = expected
        self.subject = place.subject
        self.environment = place.environment
        self.lab = place.lab

    @property
    def seconds(self):
        """How long the request may take while the situation lasts."""
        return WAITING if self.expected.word == 'waits' else self.patience

    def prepare(self):
        """What it needs besides."""

    def ask(self):
        """Ask for it, prove what was done.

        :returns: 'works' or 'served'
        :raises Refused: if it is not done
        :raises TakesTooLong: if it is neither done nor refused by now
        :raises LabError: if what was done is wrong
        """
        raise NotImplementedError()

    def finish(self):
        """What has waited is done now; prove it.

        :raises Refused, TakesTooLong, LabError: if it is not
        """
        raise process.LabError('nothing of it waits')

    def clean(self):
        """Take away what it has made; nothing is in the way of others."""

    # -- for the requests

    def post(self, path, body, client=None):
        """The answer to a request, as JSON.

        :raises Refused: if it is refused
        """
        return subjects.ask((client or self.subject.cinder).post(
            path, json=body)).json()

    def wait_gone(self, path, seconds=None):
        """Wait until something is not there any more."""
        cinder = self.lab.cinder()
        subjects.wait('%s to go' % path, lambda: cinder.request(
            'GET', path).status_code == 404, seconds or self.seconds)

    def node(self, host):
        """The node of a service host."""
        return self.lab.nodes[host.partition('@')[0]]


def must(held, otherwise):
    """:raises LabError: saying otherwise, unless it held"""
    if not held:
        raise process.LabError(otherwise)
