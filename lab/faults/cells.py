# SPDX-License-Identifier: Apache-2.0
"""One batch of cells: each stops its own volume's operation at its own step;
one fault hits all of them; then each must reach its goal.

A cell takes a minute or two, nearly all of it for starting again what the
fault ended: so cells that differ in operation and step alone share that. Each
keeps a volume, requests and a verdict of its own.
"""

import collections
import dataclasses
import threading
import time
import traceback

from lab.core import process
from lab.faults import checks
from lab.faults import disk as disks
from lab.faults.environment import in_parallel
from lab.faults.operations import move_once
from lab.faults.operations import OPERATIONS

#: Seconds within which an operation must come to a step.
REACH = 240
#: Seconds that a node is without power.
DARK = 3

#: Steps under the destination's lock on its room: one at a time stays there,
#: and only when all others are past it.
ALONE = frozenset('destination ' + step for step in (
    'create_thick metadata', 'zero_head metadata', 'add_tag metadata',
    'create_thin volume'))

#: Steps of a move while its request waits for the answer.
BEFORE_ANSWER = ALONE | frozenset((
    'source before flush handle', 'source flush handle',
    'source holes volume', 'source flush handle (2)',
    'source before begin', 'source begin', 'source create source',
    'source export export',
    'destination set_recovery_timeout disk', 'destination attach',
    'destination create clone', 'destination discard clone',
    'destination disable_discards clone', 'destination create handle',
    'destination read_head handle', 'source commit',
    'source remove handle'))

#: What each look does again, whether there is need or not.
EVERY_LOOK = frozenset((
    'destination set_recovery_timeout disk', 'destination attach',
    'destination disable_discards clone'))

#: What a request that has met its time limit is answered with. These nodes
#: are slow and share two processors with all else: it may be sent again.
TOO_SLOW = ('did not answer', 'is down')

#: Volumes on their way to their steps at once: the nodes are small, and a
#: request has its limits.
TOGETHER = 2

#: Column: (what happens, to which ends).
FAULTS = {
    'kill source': ('kill', ('source',)),
    'kill destination': ('kill', ('destination',)),
    'cut source': ('cut', ('source',)),
    'cut destination': ('cut', ('destination',)),
    'cut both': ('cut', ('source', 'destination')),
}

#: Column: which end never comes back.
GONE = {'source gone': 'source', 'destination gone': 'destination'}
#: Of these operations only; of a live move, where it differs from a move.
_GOING = {'move': None, 'completion': None, 'live-move': (
    'destination read_head handle', 'source commit', 'source flush handle',
    'source advance: source detached', 'destination enable_hydration')}


def at_steps(operation, steps):
    """The cells of an operation's steps, fault by fault."""
    yield from (Cell(operation, step, fault)
                for fault in FAULTS for step in steps)
    if operation in _GOING:
        differs = _GOING[operation]
        yield from (Cell(operation, step, fault) for fault in GONE
                    for step in steps if differs is None or step in differs)


def faults_of(operation):
    """The faults that an operation meets at its steps."""
    return [*FAULTS, *(GONE if operation in _GOING else ())]


@dataclasses.dataclass(frozen=True)
class Cell:
    """:param step: 'source LABEL' or 'destination LABEL'"""

    operation: str
    step: str
    fault: str

    def __str__(self):
        return '%s / %s / %s' % (self.operation, self.step, self.fault)


@dataclasses.dataclass
class Verdict:
    """Whether a cell holds; if not, why, and what was logged.

    :param run: the number of the run that found it
    """

    cell: Cell
    ok: bool
    reason: str = ''
    log: list = dataclasses.field(default_factory=list)
    seconds: float = 0
    run: int = 0


class Batch:
    """Cells of one fault.

    :param pool: volumes that may be used again: {node name: [Disk]}
    """

    def __init__(self, environment, cells, pool):
        self.environment = environment
        self.cells = cells
        self.kinds = [OPERATIONS[cell.operation] for cell in cells]
        self.fault = cells[0].fault
        self.pool = pool
        self.source, self.destination = self._direction()
        self.operations = []
        self.lvs = {}
        self.reasons = {}

    def _direction(self):
        first, second = self.environment.nodes.values()
        if any(kind.moved for kind in self.kinds) and len(
                self.pool[second.name]) > len(self.pool[first.name]):
            return second, first
        return first, second

    # -- volumes

    def _disks(self):
        """A volume for each cell; fresh, or one that has moved before."""
        ready = self.pool[self.source.name]
        chosen = [ready.pop() if kind.moved and ready else None
                  for kind in self.kinds]
        lacking = [index for index, disk in enumerate(chosen) if disk is None]
        to_move = [index for index in lacking if self.kinds[index].moved]
        for node, indices in (
                (self.destination, to_move),
                (self.source, [i for i in lacking if i not in to_move])):
            for index, disk in zip(indices, self._fresh(node, len(indices))):
                chosen[index] = disk
        in_parallel([lambda d=chosen[index]: move_once(
            self.environment, d, self.destination, self.source)
            for index in to_move])
        return chosen

    def _fresh(self, node, count):
        made = [disks.Disk(self.environment.lab, volume) for volume in
                (self.environment.create(node, count) if count else ())]
        in_parallel([lambda d=disk: d.fill(node) for disk in made])
        return made

    # -- a batch, part by part

    def run(self):
        """:returns: a Verdict for each cell"""
        began = time.monotonic()
        marks = self.environment.log_marks()
        try:
            for part in (self._prepare, self._stop_all, self._strike,
                         self._settle, self._check):
                since = time.monotonic()
                part()
                self.environment.say('    %s %.0f s' % (
                    part.__name__.strip('_'), time.monotonic() - since))
        except Exception as exc:
            self._blame(range(len(self.cells)), exc)
        verdicts = []
        for index, cell in enumerate(self.cells):
            reason = '; '.join(self.reasons.get(index, ()))
            log = []
            if reason and index < len(self.operations):
                log = self.environment.log_since(
                    marks, self.operations[index].disk.volume)
            verdicts.append(Verdict(
                cell, not reason, reason, log,
                (time.monotonic() - began) / len(self.cells)))
        return verdicts

    def _blame(self, indices, what):
        text = str(what) if isinstance(what, (str, process.LabError)) else (
            ''.join(traceback.format_exception(what))[-1500:])
        for index in indices:
            self.reasons.setdefault(index, []).append(text[:1500])

    def _each(self, call):
        """Call for each operation without a complaint; blame it if not."""
        def guarded(index, operation):
            try:
                call(index, operation)
            except Exception as exc:
                self._blame([index], exc)
        in_parallel([
            lambda i=index, o=operation: guarded(i, o)
            for index, operation in enumerate(self.operations)
            if index not in self.reasons])

    def _prepare(self):
        self.environment.dirty(self.destination)
        self.operations = [
            kind(self.environment, disk, self.source, self.destination)
            for kind, disk in zip(self.kinds, self._disks())]
        self.lvs = checks.lvs_of(self.environment.lab, [
            operation.disk for operation in self.operations])
        for operation in self.operations:
            self.environment.forget_steps(operation.disk)
        self._each(lambda _index, operation: operation.prepare())

    def _stop_all(self):
        """Bring each to its step: whose request waits there, comes last."""
        for cell, operation in zip(self.cells, self.operations):
            end, _space, label = cell.step.partition(' ')
            self.environment.arm(operation.disk, getattr(self, end), label)
        gate = threading.Semaphore(TOGETHER)
        for turn in (lambda step: step not in BEFORE_ANSWER,
                     lambda step: step in BEFORE_ANSWER - ALONE,
                     lambda step: step in ALONE):
            self._each(lambda index, operation: self._start_and_wait(
                operation, gate) if turn(self.cells[index].step) else None)

    def _start_and_wait(self, operation, gate):
        def there():
            if self.environment.reached(operation.disk):
                return True
            if operation.error:
                raise operation.error
            return False
        with gate:
            operation.start()
            try:
                process.wait_for('the step', there, REACH, every=0.3)
            except process.LabError as exc:
                if not any(text in str(exc) for text in TOO_SLOW):
                    raise
                self.environment.say('    asked again: %s' % str(exc)[:200])
                operation.ask_again()
                process.wait_for('the step', there, REACH, every=0.3)

    def _check_sources(self):
        removed = checks.removed_too_early(self.environment.lab, self.source,
                                           self.lvs)
        for index, operation in enumerate(self.operations):
            if operation.disk.volume in removed:
                self._blame([index], removed[operation.disk.volume])

    def _strike(self):
        self._check_sources()
        what, ends = FAULTS[self.fault]
        nodes = [getattr(self, end) for end in ends]
        self.lost_power = nodes if what == 'cut' else []
        if what == 'kill':
            in_parallel([lambda n=n: n.service('kill') for n in nodes])
        else:
            in_parallel([n.power_cut for n in nodes])
        for operation in self.operations:
            for node in self.lost_power:
                operation.disk.lost_power(node)
        self.environment.release()
        if what == 'cut':
            time.sleep(DARK)
            in_parallel([lambda n=n: self.environment.power_on(n)
                         for n in nodes])
        else:
            for node in nodes:
                node.service('start')
        in_parallel([n.wait_service for n in nodes])
        checks.services(self.environment)

    def _settle(self):
        self._each(lambda _index, operation: operation.settle(
            self.lost_power))

    def _check(self):
        disks_there = ([each.disk for each in self.operations]
                       + self.environment.bystanders)
        for problem in checks.settled(self.environment, disks_there):
            mine = [index for index, operation in enumerate(self.operations)
                    if operation.disk.volume in problem]
            self._blame(mine or range(len(self.cells)), problem)
        checks.bystanders(self.environment)

    # -- afterwards

    def clean(self):
        """Keep the volumes that can be used again, delete the others.

        :raises LabError: if the lab is not as it was
        """
        self.environment.heal()

        def clean_one(index, disk):
            disk.stop()
            if index in self.reasons or not disk.exists():
                disk.remove()
                return
            for node in list(self.environment.nodes.values()):
                if node.name in disk.attached:
                    disk.detach(node)
            if len(disk._areas) < disks.AREAS and issubclass(
                    self.kinds[index], OPERATIONS['move']):
                self.pool[disk.home()].append(disk)
            else:
                disk.remove()
        in_parallel([lambda i=index, o=operation: clean_one(i, o.disk)
                     for index, operation in enumerate(self.operations)])
        for operation in self.operations:
            self.environment.forget_steps(operation.disk)
        checks.clean(self.environment)


def discover(environment, kind, pool):
    """The steps of an undisturbed operation, in their order.

    :returns: ['source LABEL' or 'destination LABEL', ...]; one that is
        done again: 'source LABEL (2)'
    """
    batch = Batch(environment, [Cell(kind, '', 'kill source')], pool)
    batch._prepare()
    operation = batch.operations[0]
    if batch.reasons:
        raise process.LabError(batch.reasons[0][0])
    prepared = len(environment.taken(operation.disk))
    operation.start()
    operation.settle(())
    batch._check()
    if batch.reasons:
        raise process.LabError('failed without a fault: %s'
                               % batch.reasons[0][0])
    ends = {batch.source.name: 'source', batch.destination.name:
            'destination'}
    steps, times = [], collections.Counter()
    for node, label in environment.taken(operation.disk)[prepared:]:
        step = '%s %s' % (ends[node], label)
        times[step] += 1
        if times[step] == 1:
            steps.append(step)
        elif step not in EVERY_LOOK:
            steps.append('%s (%d)' % (step, times[step]))
    batch.clean()
    end, _space, label = steps[0].partition(' ')
    return ['%s before %s' % (end, label)] + steps
