# SPDX-License-Identifier: Apache-2.0
"""An operation that is asked for until it is done."""

import functools
import threading
import time

from lab.core import observe
from lab.core import process
from lab.scenarios import operation
from lab.scenarios import requests

#: Seconds for a move to end; a batch of them shares two small nodes.
MOVING = 420
#: Seconds until a node that was struck has rolled back what failed.
ANSWERED = ROLLED_BACK = requests.ANSWERED
#: Seconds without a step after which what has reached its goal has ended.
ENDING = 3
#: Both ends are struck; what one node does alone is struck there, and beside
#: the other one.
BOTH_ENDS = ('kill source', 'kill destination', 'cut source',
             'cut destination', 'cut both')
ONE_END = ('kill source', 'cut source', 'cut both')


class Repeated(operation.Operation):
    """It is prepared, run and settled.

    Each request may fail; whatever was refused or lost is asked again, as
    Nova or its user would, until the goal is reached. Then every byte is
    proven.

    :param source: the node that has what it begins with: the volume, or the
        snapshot
    :param destination: the other one
    """

    #: The faults that it meets at each of its steps.
    faults = BOTH_ENDS
    #: An operation with nearly the same steps, which meets all faults there.
    #: At those that both have this one meets one fault each, by turns.
    like = ''
    #: Whether it wants a volume that has moved before.
    moved = False
    #: Where the volume is before it is prepared.
    begins = 'source'
    #: Whether most of the volume is written, so that a copy takes a while.
    full = True
    #: Whether the LV that the volume begins with must stay until no move of
    #: it needs that any more.
    keeps_source = True
    #: What slows a link, or empties a node, shares a fault with its like only.
    alike = ''
    #: So many of these share a fault at most; None: as many as any.
    most = None
    #: Whether all volumes must go the same way at one time.
    one_way = False
    #: Whether its volume is, by the driver.
    encrypted = False
    #: Whether a node waits for the answer of the source at its steps.
    asks_source = False

    def __init__(self, environment, disk, source, destination):
        super().__init__(environment, disk)
        self.source = source
        self.destination = destination
        self.error = None
        #: How many steps it took to the goal.
        self.steps = None
        self._thread = None

    def start(self):
        """Send the requests, in the background."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def answered(self):
        """Whether the requests are answered, or were never sent."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def ids(self):
        """Of all that a complaint about it may name."""
        return [self.disk.volume]

    @property
    def keys(self):
        """What opens its volumes, if they are encrypted."""
        return {self.disk.key} - {b''}

    def is_over(self):
        """Whether no step follows, once its volume does not move."""
        return True

    def forget_failure(self):
        """After a request that has failed: it can be sent once more."""
        self.join()
        self.disk.forget_failed()
        process.wait_for(
            'the failed move of %s to go' % self.disk.volume,
            lambda: not any(
                volume == self.disk.volume and token.startswith(
                    'lc1:rolling-back:')
                for volume,
                token in observe.move_records(self.environment.lab)),
            ROLLED_BACK)
        self.error = None

    def _run(self):
        try:
            self.run()
        except Exception as exc:
            self.error = exc

    def join(self, seconds=ANSWERED):
        """Wait until the requests are answered, if they were sent."""
        if self._thread is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise process.LabError(
                'a request for %s was not answered within %d s'
                % (self.disk.volume, seconds))

    def run(self):
        """Send the requests, one after the other.

        :raises LabError: if one is refused
        """
        raise NotImplementedError()

    def settle(self, lost_power):
        """Repeat what failed until the goal is reached; prove the data.

        :param lost_power: the nodes that went down
        """
        raise NotImplementedError()

    def tidy(self):
        """Delete what it has made besides its volume, whatever happened."""

    # -- what most of them need

    def _at_goal(self):
        """The goal is reached: what follows is proof, and no step of it.

        What can be seen already may yet have to be flushed.
        """
        marks = None
        for _time in range(ENDING):
            before, marks = marks, self.environment.step_marks(self.disk)
            if before == marks:
                break
            time.sleep(ENDING)
        self.steps = len(self.environment.taken(self.disk))

    def _ask_in_turn(self, what, call, seconds=ANSWERED):
        """Repeat a request until it is answered; few at a time."""
        def ask():
            with self.environment.asking:
                return call()
        return requests.until('%s of %s' % (what, self.disk.volume), ask,
                              seconds)

    def _attach(self, node):
        self._ask_in_turn('the attach', lambda: self.disk.try_attach(node))

    def _begin_writing(self, node):
        """A guest runs, and has written a little."""
        self.disk.start(node)
        before = self.disk.written()
        process.wait_for(
            'writes to %s' % self.disk.volume,
            lambda: self.disk.written() > before, ANSWERED)

    def _wait_moved(self):
        observe.wait_moved(self.environment.lab, self.disk.volume, MOVING)
        if self.disk.home() != self.destination.name:
            raise process.LabError('the home is %s, not %s' % (
                self.disk.home(), self.destination.name))

    def _wait_path(self, node, seconds=ANSWERED):
        process.wait_for('the handle of %s on %s' % (
            self.disk.volume, node.name),
            lambda: self.disk.has_path(node), seconds, every=1)

    def _prove(self, node):
        """The data, while the guest runs and when it has ended."""
        self.disk.check_running()
        self.disk.stop()
        self.disk.verify(node)

    def _run_again(self, node):
        """A guest whose node was down starts again where it was."""
        self._wait_path(node)
        self.disk.verify(node)
        self.disk.start(node)


class Requested(Repeated):
    """One request, which is sent again as it is."""

    def run(self):
        self.request.do()

    def forget_failure(self):
        self.join()
        self.error = None

    def _ensure(self, seconds=ANSWERED):
        """Send it until it is done; few at a time."""
        self._ask_in_turn(self.request.what, self.request.ensure, seconds)


class Deletion(Requested):
    """The volume itself is deleted."""

    @functools.cached_property
    def request(self):
        return requests.Deletion(self.disk)

    def run(self):
        self.request.send()

    def _wait_deleted(self):
        """Ask until it goes."""
        requests.until('volume %s to go' % self.disk.volume,
                       self.request.ensure)


class Making(Requested):
    """It makes a volume, which it deletes in the end.

    Its request is a :class:`lab.scenarios.snapshot.Uncommitted`.
    """

    @property
    def uncommitted(self):
        """The volume that was made, if it was asked for."""
        return self.request.made

    @property
    def ids(self):
        return super().ids + (
            [self.uncommitted.volume] if self.uncommitted else [])

    @property
    def keys(self):
        return super().keys | (
            {self.uncommitted.key} - {b''} if self.uncommitted else set())

    def forget_failure(self):
        super().forget_failure()
        self.tidy()

    def tidy(self):
        self.request.remove()
