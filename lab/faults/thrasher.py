# SPDX-License-Identifier: Apache-2.0
"""Random operations and faults, by a seed; the promises after each round.

The seed decides what is asked for and what breaks, and when within a round.
Two runs of a seed do the same in the same order; where a fault falls within
an operation still depends on the machine, so a failure is looked for with
the same seed more than once.
"""

import random
import time

from lab.core import process
from lab.core.process import in_parallel
from lab.faults import injectors
from lab.scenarios import checks
from lab.scenarios import disk as disks
from lab.scenarios.repeated.moves import move_once
from lab.scenarios.repeated import OPERATIONS
from lab.scenarios.repeated import third_party

#: Operations and how often each is chosen.
CHOICES = {'move': 5, 'live-move': 3, 'live-move rolled back': 2,
           'move back': 2, 'delete during hydration': 1,
           'exported elsewhere': 2, 'live-move of an exported volume': 2,
           'encrypted type': 1, 'snapshot': 2,
           'delete a snapshot elsewhere': 1,
           'volume from a snapshot elsewhere': 2, 'clone': 2,
           'revert across nodes': 2, 'extend during hydration': 2,
           'completion of what was extended': 1, 'migrate': 2, 'drain': 1,
           'deferred move': 2}
KINDS = dict(OPERATIONS, **third_party.OPERATIONS)
#: Those that leave the volume at the destination once they have begun.
STAYING = ('move', 'live-move', 'move back')
MOST = 4  # volumes in one round
#: Bytes that a full pool still has: the next few MiB that are copied meet it.
SPARE = 8 << 20


class Round:
    """Some operations at once, some faults among them, all promises."""

    def __init__(self, environment, chance):
        self.environment = environment
        self.chance = chance
        self.nodes = list(environment.nodes.values())
        self.source, self.destination = chance.sample(self.nodes, 2)
        self.lost_power = []
        self.disks = []
        self.operations = []
        self.names = chance.choices(list(CHOICES), CHOICES.values(),
                                    k=chance.randint(1, MOST))
        if 'drain' in self.names:  # which takes all there is
            self.names = ['drain'] * len(self.names)
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
        self.environment.dirty(self.destination)
        kinds = [KINDS[name] for name in self.names]
        self._create(kinds)
        lvs = checks.lvs_of(self.environment.lab, [
            disk for kind, disk in zip(kinds, self.disks)
            if kind.keeps_source])
        self.operations = operations = [
            kind(self.environment, disk, self.source, self.destination)
            for kind, disk in zip(kinds, self.disks)]
        for operation in operations:
            operation.prepare()
        for operation in operations:
            operation.start()
        self._strike(operations, lvs)
        self.environment.heal()
        in_parallel([lambda o=operation: o.settle(self.lost_power)
                     for operation in operations])
        left = checks.settled(self.environment,
                              self.disks + self.environment.bystanders)
        if left:
            raise process.LabError('; '.join(left))
        checks.bystanders(self.environment)

    def _create(self, kinds):
        """A volume for each operation where it begins, in their order."""
        there = [kind.moved or kind.begins == 'destination'
                 for kind in kinds]
        made = {}
        for node, is_there in ((self.destination, True),
                               (self.source, False)):
            made[is_there] = [
                disks.Disk(self.environment.lab, volume) for volume in
                self.environment.create(node, there.count(is_there))]
            self.disks += made[is_there]
            in_parallel([lambda d=disk: d.fill(node)
                         for disk in made[is_there]])
        self.disks = [made[is_there].pop() for is_there in there]
        in_parallel([lambda d=disk: move_once(
            self.environment, d, self.destination, self.source)
            for kind, disk in zip(kinds, self.disks) if kind.moved])

    def _strike(self, operations, lvs):
        began = time.monotonic()
        for when, what, node in sorted(self.faults,
                                       key=lambda each: each[:2]):
            time.sleep(max(0, when - (time.monotonic() - began)))
            if not node.is_on:
                continue
            if self.source.is_on:
                for problem in checks.removed_too_early(
                        self.environment.lab, self.source, lvs).values():
                    raise process.LabError(problem)
            FAULTS[what](self, node)
            if not node.is_on:
                self.lost_power.append(node)
                for operation in operations:
                    operation.disk.lost_power(node)

    def clean(self):
        """Repair everything, delete the volumes."""
        self.environment.heal()
        in_parallel([operation.tidy for operation in self.operations])
        in_parallel([disk.remove for disk in self.disks])


# What is not undone here is undone by Environment.heal, when all have struck.


def _network(_round, node):
    node.network_cut()
    time.sleep(12)
    node.network_heal()


def _between(now, node):
    peer, = [each for each in now.nodes if each is not node]
    injectors.cut_off(node, peer)
    time.sleep(12)
    injectors.cut_off(node, peer, on=False)


def _lossy(_round, node):
    node.netem('delay', '10ms', 'loss', '2%')


def _restart(_round, node):
    node.service('kill')
    node.service('start')


def _without_target(_round, node):
    """The service starts while the kernel's target is not available."""
    injectors.hide_target(node)
    _restart(_round, node)
    node.wait_service()
    time.sleep(8)
    injectors.show_target(node)


def _away(now, name):
    with now.environment.away(name):
        time.sleep(5)


def _clock(words):
    return lambda _round, node: node.run('date -s "%s"' % words)


def _fails_once(word):
    return lambda _round, node: injectors.fail_once(node, word)


def _slow_disk(_round, node):
    injectors.slow_disk(node, 50)
    time.sleep(15)
    injectors.fast_disk(node)


def _disk_fails(now, _node):
    """Where the volumes go to. Guests whose disk fails, fail."""
    if not now.destination.is_on:
        return
    for operation in now.operations:
        operation.join()
    for disk in now.disks:
        disk.stop()
    node = now.destination
    staying = {operation.disk.volume for operation in now.operations
               if operation.name in STAYING}
    # What is on its way is not removed meanwhile, whatever comes of it.
    here = [disk for disk in now.disks if disk.exists()
            and disk.volume in staying and disk.home() == node.name]
    under = [injectors.DeviceBelow(node, lv) for lv in checks.lvs_of(
        now.environment.lab, here).values()]
    for each in under:
        each.fail('flakey %s 0 0 3600')
    time.sleep(10)
    for each in under:
        each.repair()
    node.service('restart')
    node.wait_service()


def _group_full(_round, node):
    injectors.fill_group(node)
    time.sleep(12)
    injectors.unfill(node)


def _pool_full(_round, node):
    """Guests wait for room meanwhile."""
    injectors.fill_pool(node, SPARE)
    time.sleep(10)
    injectors.unfill(node)


FAULTS = {
    'SIGKILL of the service': _restart,
    'service start without the target': _without_target,
    'power cut': lambda now, node: now.environment.power_cut([node]),
    'network cut': _network, 'lossy link': _lossy,
    'cut off from the other node': _between,
    'session reset': lambda now, node: now.environment.reset_sessions(
        node, check=False),
    'database stall': lambda now, _node: now.environment.stall(
        'mariadb', 10),
    'message bus stall': lambda now, _node: now.environment.stall(
        'rabbitmq', 10),
    'database restart': lambda now, _node: _away(now, 'mariadb'),
    'message bus restart': lambda now, _node: _away(now, 'rabbitmq'),
    'clock an hour ahead': _clock('1 hour'),
    'clock an hour behind': _clock('1 hour ago'),
    'slow disk': _slow_disk,
    'destination disk fails': _disk_fails,
    'thin pool full': _pool_full,
    'volume group full': _group_full,
    'dmsetup create fails': _fails_once('create'),
    'dmsetup load fails': _fails_once('load'),
    'dmsetup resume fails': _fails_once('resume'),
    'dmsetup remove fails': _fails_once('remove'),
}


def run(environment, seed, minutes, say):
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
        # though an earlier one went another way.
        this = Round(environment, random.Random('%d/%d' % (seed, number)))
        say('round %d: %s' % (number, this))
        marks = environment.log_marks()
        try:
            this.run()
            this.clean()
        except Exception as exc:
            say('FAIL in round %d of seed %d: %s' % (number, seed, exc))
            for line in environment.log_since(marks):
                say('  | ' + line)
            say('again: make faults SEED=%d MINUTES=%g' % (seed, minutes))
            return 1
        say('round %d holds' % number)
    say('%d rounds hold, seed %d' % (number, seed))
    return 0
