# SPDX-License-Identifier: Apache-2.0
"""Faults across the whole of an operation, each with its own outcome.

Each is a function of a :class:`lab.faults.scenario.Scenario`: one volume,
already prepared. ``Environment.heal`` repairs what it leaves broken; what it
raises is the verdict.
"""

import contextlib
import time

from lab.core import process
from lab.core.process import in_parallel
from lab.faults import boot_faults  # noqa: F401
from lab.faults import cells
from lab.faults import data_loss  # noqa: F401
from lab.faults import disk_faults  # noqa: F401  (registers its faults)
from lab.faults import encryption_faults  # noqa: F401
from lab.faults import initiator_faults  # noqa: F401
from lab.faults import key_faults  # noqa: F401
from lab.faults import lone_home  # noqa: F401
from lab.faults import migration_faults  # noqa: F401
from lab.faults import network_faults  # noqa: F401
from lab.faults import pool_faults  # noqa: F401
from lab.faults import scenario as scenarios
from lab.faults import service_faults  # noqa: F401
from lab.faults import target_faults  # noqa: F401
from lab.keys import leaks
from lab.scenarios import checks
from lab.scenarios import encrypted_disk
from lab.scenarios.repeated import OPERATIONS

WHOLE = 'whole'


def names():
    """(name, operation) of all that there are."""
    return list(scenarios.FAULTS)


class WholeOperation:
    """One cell: a volume, a fault across the whole, the promises."""

    def __init__(self, environment, batch, _pool):
        self.environment = environment
        self.cell = batch[0]
        self.disks = []

    def run(self):
        """:returns: its Verdict, in a list"""
        began = time.monotonic()
        marks = self.environment.log_marks()
        source, destination = self.environment.nodes.values()
        reason = ''
        try:
            with self._listening() as listener:
                disk = self.fresh(source)
                scenario = scenarios.Scenario(
                    self.environment, self.cell.operation, source,
                    destination, disk, self.fresh)
                scenarios.FAULTS[(self.cell.fault, self.cell.operation)](
                    scenario)
                self.environment.heal()
                scenario.operation.settle(scenario.lost_power)
                reason = '; '.join(checks.settled(
                    self.environment,
                    self.disks + self.environment.bystanders)
                    + self._leaks(listener))
            checks.bystanders(self.environment)
        except Exception as exc:
            reason = ('' if isinstance(exc, process.LabError) else
                      type(exc).__name__ + ': ') + str(exc)[:1500]
        log = self.environment.log_since(
            marks, *[each.volume for each in self.disks]) if reason else []
        return [cells.Verdict(self.cell, not reason, reason, log,
                              time.monotonic() - began)]

    @property
    def _encrypted(self):
        return OPERATIONS[self.cell.operation].encrypted

    def _listening(self):
        """Where keys must not go is listened to."""
        return leaks.Listener(self.environment.lab) if (
            self._encrypted) else contextlib.nullcontext()

    def _leaks(self, listener):
        keys = {disk.key for disk in self.disks}
        return ['a key is in ' + place for place in listener.leaks(keys)
                ] if listener else []

    def fresh(self, node):
        """A new volume with known data on a node."""
        disk, = encrypted_disk.create(self.environment, node, [
            self._encrypted])
        self.disks.append(disk)
        disk.fill(node)
        return disk

    def clean(self):
        """Repair everything, delete the volumes.

        :raises LabError: if the lab is not as it was
        """
        self.environment.heal()
        in_parallel([disk.remove for disk in self.disks])
        for disk in self.disks:
            self.environment.forget_steps(disk)
        checks.clean(self.environment)
