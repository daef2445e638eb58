# SPDX-License-Identifier: Apache-2.0
"""One volume under one fault that lasts, and what can be done with it."""

import time

from lab.core import observe
from lab.core import process
from lab.faults import reach
from lab.scenarios import checks
from lab.scenarios.repeated import OPERATIONS

SLOW = '4mbit'

#: {(name, operation): function of a Scenario}
FAULTS = {}


def fault(name, operation='move'):
    """Register a function as a fault of an operation, by its name."""
    def add(function):
        FAULTS[(name, operation)] = function
        return function
    return add


class Scenario:
    """One operation under one such fault.

    :param disk: what it is done to
    :param fresh: makes another disk on a node
    """

    def __init__(self, environment, kind, source, destination, disk,
                 fresh=None):
        self.environment = environment
        self.source = source
        self.destination = destination
        self.disk = disk
        self.operation = OPERATIONS[kind](
            environment, disk, source, destination)
        self.fresh = fresh
        self.lost_power = []

    def another(self, disk):
        """A move of another volume between the same nodes."""
        return Scenario(self.environment, 'move', self.source,
                        self.destination, disk)

    def start(self):
        """The request is sent, not waited for."""
        self.operation.prepare()
        self.operation.start()

    def start_slow(self):
        """It is being copied, slowly, and a guest writes."""
        self.environment.brake(self.source, SLOW)
        self.start()
        self.operation.join()
        if self.operation.error:
            raise self.operation.error
        if observe.clone_progress(self.destination) is None:
            raise process.LabError('the copy has ended already')

    def start_live(self):
        """Both nodes have it attached; the guest is still at the source."""
        self.operation.prepare()
        self.disk.attach(self.destination, live=True)
        if not any(volume == self.disk.volume
                   and token.startswith('lc1:starting:')
                   for volume,
                   token in observe.move_records(self.environment.lab)):
            raise process.LabError('the move is not starting: %s'
                                   % observe.move_records(
                                       self.environment.lab))

    def stop_at(self, end, label):
        """The request is sent and stays at a step; see lab.faults.stepping."""
        self.environment.arm(self.disk, getattr(self, end), label)
        if self.operation._thread is None:
            self.start()
        process.wait_for('the step', lambda: self.environment.reached(
            self.disk), reach.REACH, every=0.2)

    def go_on(self):
        """Nothing holds or slows the operation any more."""
        self.environment.release()
        self.environment.brake(self.source)

    def refused(self, *words):
        """The request must have failed, and what was said tells why."""
        self.operation.join()
        if self.operation.error is None:
            raise process.LabError('the request was not refused')
        text = str(self.operation.error)
        if words and not any(word in text for word in words):
            raise process.LabError('refused, but not clearly: ' + text[:300])

    def record(self):
        """The shadow's id, its token and its location."""
        return observe.sql(
            self.environment.lab, "SELECT id, replication_driver_data, "
            "provider_location FROM volumes WHERE deleted = 0 AND "
            "migration_status = 'target:%s'" % self.disk.volume)[0]

    def logged(self, node, text, mark, seconds=90):
        """Wait until a service has logged a text.

        :param mark: see :meth:`.Environment.log_marks`
        """
        process.wait_for(
            '"%s" in the log of %s' % (text, node.name),
            lambda: text in node.service_log()[mark[node.name]:], seconds)

    def restart(self, node):
        """Restart a node's service."""
        node.service('restart')
        node.wait_service()

    def cut(self, node):
        """Cut the power of a node."""
        self.environment.power_cut([node])
        self.disk.lost_power(node)
        self.lost_power.append(node)

    def boot(self, node):
        """Boot a node again; its service runs then."""
        self.environment.power_on(node)
        node.wait_service()

    def readable_again(self):
        """Without its source's disk a clone reads with errors, for now."""
        process.wait_for(
            'all of it to be readable again', lambda: (
                not self.destination.run(
                    'dd if=%s of=/dev/null bs=1M iflag=direct status=none' % (
                        self.disk.path), check=False).returncode), 120)

    def keeps_source(self):
        """The copy cannot be complete: nothing of the source may go."""
        if not observe.volume_lvs(self.source) or not observe.move_records(
                self.environment.lab):
            raise process.LabError('the source is gone, but the copy cannot '
                                   'be complete')

    def keeps_home(self, seconds=25):
        """The volume's LV is at its home, for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            checks.home_has_lv(self.environment, self.disk)
            time.sleep(1)

    def no_handle(self, node, seconds=25):
        """Nothing is given out, for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.disk.has_path(node):
                raise process.LabError('a handle was given out')
            time.sleep(2)
