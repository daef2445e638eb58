# SPDX-License-Identifier: Apache-2.0
"""Faults across the whole of an operation, each with its own outcome.

Each is a function of a :class:`lab.faults.course.Course`: one volume, already
prepared. What it leaves broken is mended by ``Ground.heal``; what it raises
is the verdict.
"""

import time

from lab.core import process
from lab.faults import cells
from lab.faults import checks
from lab.faults import data_loss  # noqa: F401
from lab.faults import disk as disks
from lab.faults import disk_faults  # noqa: F401  (registers its faults)
from lab.faults.environment import in_parallel
from lab.faults import network_faults  # noqa: F401
from lab.faults import scenario as courses
from lab.faults import service_faults  # noqa: F401

WHOLE = 'whole'


def names():
    """(name, operation) of all that there are."""
    return list(courses.FAULTS)


class Cross:
    """One cell: a volume, a fault across the whole, the promises."""

    def __init__(self, ground, batch, _pool):
        self.ground = ground
        self.cell = batch[0]
        self.disks = []

    def run(self):
        began = time.monotonic()
        marks = self.ground.log_marks()
        source, destination = self.ground.nodes.values()
        reason = ''
        try:
            self.ground.dirty(destination)
            disk = self.fresh(source)
            course = courses.Course(
                self.ground, self.cell.operation, source, destination, disk)
            course.fresh = self.fresh
            courses.FAULTS[(self.cell.fault, self.cell.operation)](course)
            self.ground.heal()
            course.operation.settle(course.lost_power)
            reason = '; '.join(checks.settled(
                self.ground, self.disks + self.ground.bystanders))
            checks.bystanders(self.ground)
        except Exception as exc:
            reason = ('' if isinstance(exc, process.LabError) else
                      type(exc).__name__ + ': ') + str(exc)[:1500]
        log = self.ground.log_since(
            marks, *[each.volume for each in self.disks]) if reason else []
        return [cells.Verdict(self.cell, not reason, reason, log,
                              time.monotonic() - began)]

    def fresh(self, node):
        disk = disks.Disk(self.ground.lab, self.ground.create(node, 1)[0])
        self.disks.append(disk)
        disk.fill(node)
        return disk

    def clean(self):
        self.ground.heal()
        in_parallel([disk.remove for disk in self.disks])
        for disk in self.disks:
            self.ground.forget_steps(disk)
        checks.clean(self.ground)
