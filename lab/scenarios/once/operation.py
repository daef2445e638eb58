# SPDX-License-Identifier: Apache-2.0
"""An operation that is asked for once, in a situation that lasts."""

from lab.scenarios import operation
from lab.scenarios import requests

#: Seconds: for what is to be done now; in which what waits is not done, so
#: that several looks of the nodes have passed; for what has waited.
PATIENCE, WAITING, AFTERWARDS = 120, 8, 240


class Once(operation.Operation):
    """One request, by the user of a volume; what comes of it is the verdict.

    :param place: a :class:`lab.operations.situations.Situation`
    :param expected: a :class:`lab.operations.table.Expected`
    """

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
        super().__init__(place.environment, place.disk)
        self.place = place
        self.expected = expected

    @property
    def seconds(self):
        """How long the request may take while the situation lasts."""
        return WAITING if self.expected.word == 'waits' else self.patience

    def ask(self):
        """Ask for it, prove what was done.

        :returns: 'works' or 'remote'
        :raises Refused: if it is not done
        :raises TakesTooLong: if it is neither done nor refused by now
        :raises LabError: if what was done is wrong
        """
        self.request.do(self.seconds)
        self.prove()
        return 'works'

    def prove(self):
        """Prove what was done.

        :raises LabError: if it is wrong
        """
        raise NotImplementedError()

    def finish(self):
        """What has waited is done now; prove it.

        :raises Refused, TakesTooLong, LabError: if it is not
        """
        self.request.wait(AFTERWARDS)
        self.prove()

    def clean(self):
        """Take away what it has made; nothing is in the way of others."""

    # -- for the requests

    def post(self, path, body, client=None):
        """The answer to a request, as JSON.

        :raises Refused: if it is refused
        """
        return requests.ask((client or self.disk.cinder).post(
            path, json=body)).json()

    def wait_available(self, cinder, volume):
        """Wait until a volume can be used.

        :raises Refused: if it is in error
        """
        requests.wait('volume %s' % volume, lambda: requests.is_available(
            cinder, 'volume', volume), self.seconds)

    def wait_gone(self, path, seconds=None):
        """Wait until something is not there any more."""
        cinder = self.lab.cinder()
        requests.wait('%s to go' % path, lambda: cinder.request(
            'GET', path).status_code == 404, seconds or self.seconds)

    def node(self, host):
        """The node of a service host."""
        return self.lab.nodes[host.partition('@')[0]]
