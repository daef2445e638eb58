# SPDX-License-Identifier: Apache-2.0
"""Random operations and faults, by a seed; the promises after each round.

The seed decides what is asked for and what breaks, and when within a round.
Two runs of a seed do the same in the same order; where a fault falls within
an operation still depends on the machine, so a failure is looked for with
the same seed more than once.
"""

import random
import time

from lab.faults import checks
from lab.faults import disk as disks
from lab.faults.ground import in_parallel
from lab.faults.operations import OPERATIONS
from lab import process

#: Operations and how often each is chosen.
CHOICES = {'move': 5, 'live-move': 3, 'live-move rolled back': 2,
           'delete during hydration': 1}
MOST = 4  # volumes in one round


class Round:
    """Some operations at once, some faults among them, all promises."""

    def __init__(self, ground, chance):
        self.ground = ground
        self.chance = chance
        self.nodes = list(ground.nodes.values())
        self.source, self.destination = chance.sample(self.nodes, 2)
        self.lost_power = []
        self.names = chance.choices(list(CHOICES), CHOICES.values(),
                                    k=chance.randint(1, MOST))
        self.faults = [
            (round(chance.uniform(0, 25), 1), chance.choice(list(FAULTS)),
             chance.choice(self.nodes))
            for _index in range(chance.randint(1, 3))]

    def __str__(self):
        return '%s to %s: %s; %s' % (
            self.source.name, self.destination.name, ', '.join(self.names),
            ', '.join('%s on %s after %.1f s' % (what, node.name, when)
                      for when, what, node in sorted(
                          self.faults, key=lambda each: each[:2])))

    def run(self):
        """:raises LabError: if a promise does not hold"""
        self.ground.dirty(self.destination)
        made = [disks.Disk(self.ground.lab, volume) for volume in
                self.ground.create(self.source, len(self.names))]
        self.disks = made
        in_parallel([lambda d=disk: d.fill(self.source) for disk in made])
        operations = [
            OPERATIONS[name](self.ground, disk, self.source,
                             self.destination)
            for name, disk in zip(self.names, made)]
        for operation in operations:
            operation.prepare()
        for operation in operations:
            operation.start()
        self._strike(operations)
        self.ground.heal()
        in_parallel([lambda o=operation: o.settle(self.lost_power)
                     for operation in operations])
        left = checks.settled(self.ground, made + self.ground.bystanders)
        if left:
            raise process.LabError('; '.join(left))
        checks.bystanders(self.ground)

    def _strike(self, operations):
        began = time.monotonic()
        for when, what, node in sorted(self.faults,
                                       key=lambda each: each[:2]):
            time.sleep(max(0, when - (time.monotonic() - began)))
            if not node.is_on:
                continue
            FAULTS[what](self.ground, node)
            if not node.is_on:
                self.lost_power.append(node)
                for operation in operations:
                    operation.disk.lost_power(node)

    def clean(self):
        self.ground.heal()
        in_parallel([disk.remove for disk in getattr(self, 'disks', ())])


def _network(ground, node):
    node.network_cut()
    time.sleep(12)
    node.network_heal()


def _lossy(ground, node):
    node.netem('delay', '10ms', 'loss', '2%')


def _restart(_ground, node):
    node.service('kill')
    node.service('start')


FAULTS = {
    'SIGKILL of the service': _restart,
    'power cut': lambda ground, node: node.power_cut(),
    'network cut': _network, 'lossy link': _lossy,
    'session reset': lambda ground, node: ground.reset_sessions(
        node, check=False),
    'database stall': lambda ground, _node: ground.stall('mariadb', 10),
    'message bus stall': lambda ground, _node: ground.stall('rabbitmq', 10),
}


def run(ground, seed, minutes, say):
    """Rounds until the time is up or a promise does not hold.

    :returns: 0 if all held
    """
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    say('seed %d, %g minutes' % (seed, minutes))
    deadline = time.monotonic() + minutes * 60
    number = 0
    while time.monotonic() < deadline:
        number += 1
        # Each round has a generator of its own, so that one can be repeated
        # though an earlier one took another course.
        found = Round(ground, random.Random('%d/%d' % (seed, number)))
        say('round %d: %s' % (number, found))
        marks = ground.log_marks()
        try:
            found.run()
            found.clean()
        except Exception as exc:
            say('FAIL in round %d of seed %d: %s' % (number, seed, exc))
            for line in ground.log_since(marks):
                say('  | ' + line)
            say('again: make faults SEED=%d MINUTES=%g' % (seed, minutes))
            return 1
        say('round %d holds' % number)
    say('%d rounds hold, seed %d' % (number, seed))
    return 0
