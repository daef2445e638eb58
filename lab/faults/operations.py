# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a volume, and what they ask again after a fault.

An operation is prepared, run (the requests, each of which may fail) and
settled: whatever was refused or lost is asked again, as Nova or its user
would, until the goal is reached. Then every byte is proven.
"""

import threading

from lab.core import look
from lab.core import process
from lab.faults import disk as disks

#: Seconds for a move to end; a batch of them shares two small nodes.
MOVING = 420


class Operation:
    """One operation on one volume.

    :param source: the node that has the volume
    :param destination: the other one
    """

    name = ''
    #: Whether it wants a volume that has moved before.
    moved = False
    #: Whether it slows the link, and so shares a fault with its like only.
    slow = False

    def __init__(self, environment, disk, source, destination):
        self.environment = environment
        self.disk = disk
        self.source = source
        self.destination = destination
        self.error = None
        self._thread = None

    def prepare(self):
        """Bring about the state in which it begins."""

    def start(self):
        """Send the requests, in the background."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def answered(self):
        """Whether the requests are answered, or were never sent."""
        return self._thread is None or not self._thread.is_alive()

    def forget_failure(self):
        """After a request that has failed: it can be sent once more."""
        self.join()
        self.disk.forget_failed()
        process.wait_for(
            'the failed move of %s to go' % self.disk.volume,
            lambda: not any(
                volume == self.disk.volume and token.startswith(
                    'lc1:rolling-back:')
                for volume, token in look.shadows(self.environment.lab)), 150)
        self.error = None

    def _run(self):
        try:
            self.run()
        except Exception as exc:
            self.error = exc

    def join(self, seconds=150):
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

    # -- what most of them need

    def _ask_in_turn(self, what, call):
        """Repeat a request until it is answered; few at a time."""
        def ask():
            with self.environment.asking:
                return call()
        return disks.until('%s of %s' % (what, self.disk.volume), ask)

    def _wait_moved(self):
        look.wait_moved(self.environment.lab, self.disk.volume, MOVING)
        if self.disk.home() != self.destination.name:
            raise process.LabError('the home is %s, not %s' % (
                self.disk.home(), self.destination.name))

    def _wait_path(self, node, seconds=120):
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


class Move(Operation):
    """Attached on the other node, with the source at rest."""

    name = 'move'

    def run(self):
        self.disk.attach(self.destination)
        self.disk.start(self.destination)

    def settle(self, lost_power):
        self.join()
        disk, node = self.disk, self.destination
        if node.name not in disk.attached:
            disk.forget_failed()
            self._ask_in_turn('the attach', lambda: disk.attach(node))
        if disk.runs_on is None:
            self._run_again(node)
        self._wait_moved()
        self._prove(node)


class Completion(Move):
    """A move from when all is local: the steps after hydration."""

    name = 'completion'


class MoveBack(Move):
    """The same for a volume that has moved before."""

    name = 'move back'
    moved = True


class LiveMove(Operation):
    """Attached on both nodes; the guest goes over; the source lets go."""

    name = 'live-move'

    def prepare(self):
        self.disk.attach(self.source)
        self.disk.start(self.source)

    def run(self):
        self.disk.attach(self.destination, live=True)
        self._switch()
        self.disk.detach(self.source, 'in-use')

    def _switch(self):
        """What QEMU does: pause here, go on there."""
        self.disk.stop()
        self.disk.start(self.destination)

    def settle(self, lost_power):
        self.join()
        disk = self.disk
        on_source = disk.runs_on is not self.destination and (
            self.source.name in disk.attached)
        switched = len(disk._areas) > 1
        if on_source and not switched:
            disk.check_running()
            # The migration has failed for Nova: it takes the destination's
            # attachment back, and the guest goes on where it was.
            if (disk.runs_on is None or self.destination in lost_power
                    or self.destination.name not in disk.attached):
                self._roll_back()
                self._ask_in_turn('the live attach', lambda: disk.try_attach(
                    self.destination, live=True))
            self._switch()
        elif disk.runs_on is None:
            self._run_again(self.destination)
        if self.source.name in disk.attached:
            disks.until('the detach of %s' % disk.volume,
                        lambda: disk.detach(self.source, 'in-use'))
        self._wait_moved()
        self._prove(self.destination)

    def _roll_back(self):
        """Back at the source, wherever the driver stood."""
        disk, there = self.disk, self.destination.name

        def ask():
            if there in disk.attached:
                disk.detach(self.destination, 'in-use')
            disk.forget_failed()
        disks.until('the roll-back of %s' % disk.volume, ask)
        process.wait_for(
            '%s to be at its source again' % disk.volume,
            lambda: not any(volume == disk.volume for volume, _token
                            in look.shadows(self.environment.lab)),
            120, every=1)
        if disk.home() != self.source.name:
            raise process.LabError('the home is %s, not %s' % (
                disk.home(), self.source.name))
        if disk.runs_on is None:
            self._run_again(self.source)
        disk.check_running()


class LiveMoveRolledBack(LiveMove):
    """A live migration that is given up when all is ready for it."""

    name = 'live-move rolled back'

    def run(self):
        self.disk.attach(self.destination, live=True)
        self.disk.detach(self.destination, 'in-use')

    def settle(self, lost_power):
        self.join()
        self._roll_back()
        self._prove(self.source)


class DeleteWhileMoving(Operation):
    """Deleted while it is being copied."""

    name = 'delete during hydration'
    slow = True
    #: So slow that the copy cannot end before the fault.
    rate = '8mbit'

    def prepare(self):
        self.environment.brake(self.source, self.rate)
        # Others share that link: Nova's user would ask again, too.
        self._ask_in_turn('the attach', lambda: self.disk.try_attach(
            self.destination))
        self.disk.start(self.destination)
        self.disk.stop()
        self.disk.detach(self.destination)
        clone = look.clone_progress(self.destination)
        if clone is None:
            raise process.LabError('the copy has ended before the delete')

    def run(self):
        self._ask()

    def _ask(self):
        answer = self.disk.cinder.delete('/volumes/' + self.disk.volume)
        if answer.status_code != 404:  # it may just have gone
            answer.raise_for_status()

    def settle(self, lost_power):
        self.join()

        def gone():
            answer = self.disk.cinder.request(
                'GET', '/volumes/' + self.disk.volume)
            if answer.status_code == 404:
                return True
            if answer.raise_for_status().json()['volume'][
                    'status'] != 'deleting':
                self._ask()
            return False
        process.wait_for('volume %s to go' % self.disk.volume, gone, 150,
                         every=2)
        self.environment.brake(self.source)
        process.wait_for(
            'the move of the deleted volume to end',
            lambda: not any(volume == self.disk.volume for volume, _token
                            in look.shadows(self.environment.lab)),
            120, every=1)


OPERATIONS = {each.name: each for each in (
    Move, Completion, LiveMove, LiveMoveRolledBack, DeleteWhileMoving,
    MoveBack)}


def move_once(environment, disk, node, destination):
    """Move a volume that no guest uses, and wait for the end of it."""
    move = Move(environment, disk, node, destination)
    move.run()
    move.settle(())
    disk.detach(destination)
