# SPDX-License-Identifier: Apache-2.0
"""Moves by an attach, live moves, and deleting what moves."""

from lab.core import observe
from lab.core import process
from lab.scenarios.repeated.operation import Deletion
from lab.scenarios.repeated.operation import Repeated
from lab.scenarios import requests


class Move(Repeated):
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
    like = Move.name
    moved = True


class LiveMove(Repeated):
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
            requests.until('the detach of %s' % disk.volume,
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
        requests.until('the roll-back of %s' % disk.volume, ask)
        process.wait_for(
            '%s to be at its source again' % disk.volume,
            lambda: not disk.is_moving(),
            requests.ANSWERED, every=1)
        if disk.home() != self.source.name:
            raise process.LabError('the home is %s, not %s' % (
                disk.home(), self.source.name))
        if disk.runs_on is None:
            self._run_again(self.source)
        disk.check_running()


class LiveMoveRolledBack(LiveMove):
    """A live migration that is given up when all is ready for it."""

    name = 'live-move rolled back'
    like = LiveMove.name

    def run(self):
        self.disk.attach(self.destination, live=True)
        self.disk.detach(self.destination, 'in-use')

    def settle(self, lost_power):
        self.join()
        self._roll_back()
        self._prove(self.source)


class DeleteWhileMoving(Deletion):
    """Deleted while it is being copied."""

    name = 'delete during hydration'
    alike = 'slow link'
    #: So slow that the copy cannot end before the fault.
    rate = '8mbit'
    #: More that share it wait for each other until requests time out.
    most = 4
    # As of a move, of which something may have to be rolled back.
    forget_failure = Repeated.forget_failure

    def prepare(self):
        self.environment.brake(self.source, self.rate)
        # Others share that link: Nova's user would ask again, too.
        self._ask_in_turn('the attach', lambda: self.disk.try_attach(
            self.destination))
        self.disk.start(self.destination)
        self.disk.stop()
        self.disk.detach(self.destination)
        clone = observe.clone_progress(self.destination)
        if clone is None:
            raise process.LabError('the copy has ended before the delete')

    def settle(self, lost_power):
        self.join()
        self._wait_deleted()
        self.environment.brake(self.source)
        process.wait_for(
            'the move of the deleted volume to end',
            lambda: not self.disk.is_moving(),
            requests.ANSWERED, every=1)


def move_once(environment, disk, node, destination):
    """Move a volume that no guest uses, and wait for the end of it."""
    move = Move(environment, disk, node, destination)
    move.run()
    move.settle(())
    disk.detach(destination)
