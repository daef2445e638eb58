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
from lab.core.process import in_parallel
from lab.faults import reach
from lab.scenarios import checks
from lab.scenarios import disk as disks
from lab.scenarios import encrypted_disk
from lab.scenarios.repeated.moves import move_once
from lab.scenarios.repeated import OPERATIONS

#: Seconds that a node is without power.
DARK = 3

#: Steps under a node's lock on its room: one at a time stays there, and only
#: when all others are past it.
ALONE = frozenset((
    'source create_thin volume', 'source before add_tag volume',
    'source add_tag volume', 'destination create_thick metadata',
    'destination zero_head metadata', 'destination create_thin volume',
    'destination add_tag volume',  # of an encrypted one
    'destination before retag volume', 'destination retag volume',
    'destination extend volume'))

#: Steps of a move while its request waits for the answer.
BEFORE_ANSWER = ALONE | frozenset((
    'source before flush handle', 'source flush handle',
    'source holes volume', 'source flush handle (2)',
    'source before begin', 'source begin', 'source create source',
    'source export export',
    'destination record_target export',
    'destination set_recovery_timeout disk', 'destination attach',
    'destination create clone', 'destination discard clone',
    'destination disable_discards clone', 'destination create handle',
    'destination read_head handle', 'source close crypt',
    'destination open_device handle', 'source commit',
    'source remove handle'))

#: What each look does again, whether there is need or not.
EVERY_LOOK = frozenset((
    'destination set_recovery_timeout disk', 'destination attach',
    'destination attach_remote', 'destination disable_discards clone'))

#: Volumes that are asked for at once, of each destination: the nodes are
#: small, and a request has its limits.
TOGETHER = 2
#: Volumes that stay on each node when a batch is over, for those that want
#: one that has moved before. More would make each look of the node longer.
SPARE = 4

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
GOING = {'move': None, 'completion': None, 'live-move': (
    'destination read_head handle', 'source commit', 'source flush handle',
    'source advance: source detached', 'destination enable_hydration')}


def struck_ends(fault):
    """Which ends a fault hits."""
    return FAULTS[fault][1] if fault in FAULTS else (GONE[fault],)


def sort_of(cell):
    """'alone', 'asking' or 'others': when it is brought to its step."""
    if cell.step in ALONE:
        return 'alone'
    asks = OPERATIONS[cell.operation].asks_source and (
        cell.step.startswith('source '))
    return 'asking' if asks or cell.step in BEFORE_ANSWER else 'others'


def goes_forth(cell, number):
    """Whether a cell's volume goes from the first node to the second.

    :param number: of this one among those of its sort
    """
    ends = struck_ends(cell.fault)
    if len(ends) > 1:  # by turns
        return number % 2 == 0 or OPERATIONS[cell.operation].one_way
    return ends == ('source',)


def faults_of(operation):
    """The faults that an operation meets at its steps."""
    return [*OPERATIONS[operation].faults,
            *(GONE if operation in GOING else ())]


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
    :param reached: whether the operation came to the step; if not, nothing
        is proven
    :param lost: bytes that the nodes' disks had acknowledged and lost in a
        power cut, of all cells that share it; None: the power was not cut
    """

    cell: Cell
    ok: bool
    reason: str = ''
    log: list = dataclasses.field(default_factory=list)
    seconds: float = 0
    run: int = 0
    reached: bool = True
    lost: int | None = None

    @property
    def word(self):
        """'ok', 'FAIL' or 'not reached'."""
        return 'ok' if self.ok else 'FAIL' if self.reached else 'not reached'


class Batch:
    """Cells of faults that hit the same node, or both.

    Volumes move both ways: so each node is a source and a destination, and
    what only one volume at a time can do on a node, two can do in a batch.

    :param pool: volumes that may be used again: {node name: [Disk]}
    """

    def __init__(self, environment, cells, pool):
        self.environment = environment
        self.cells = cells
        self.kinds = [OPERATIONS[cell.operation] for cell in cells]
        self.pool = pool
        self.ways = self._ways()
        self.operations = []
        self.lvs = {}
        self.reasons = {}
        self.unreached = set()
        self.lost = None

    def _ways(self):
        """Source and destination of each cell."""
        first, second = self.environment.nodes.values()
        ways, turns = [], collections.Counter()
        for cell in self.cells:
            sort = sort_of(cell)
            ways.append((first, second) if goes_forth(cell, turns[sort])
                        else (second, first))
            turns[sort] += 1
        return ways

    @property
    def struck(self):
        """The nodes that the fault hits: the first one, or both."""
        first, second = self.environment.nodes.values()
        both = len(struck_ends(self.cells[0].fault)) > 1
        return [first, second] if both else [first]

    # -- volumes

    def _disks(self):
        """A volume for each cell; fresh, or one that has moved before."""
        chosen = []
        for kind, (source, _destination) in zip(self.kinds, self.ways):
            ready = self.pool[source.name]
            chosen.append(ready.pop() if kind.moved and ready else None)
        lacking = [index for index, disk in enumerate(chosen) if disk is None]
        to_move = [index for index in lacking if self.kinds[index].moved]
        for node in self.environment.nodes.values():
            indices = [index for index in lacking if node is self._begin(
                index, index in to_move)]
            for index, disk in zip(indices, self._fresh(
                    node, [self.kinds[index] for index in indices])):
                chosen[index] = disk
        in_parallel([lambda i=index: move_once(
            self.environment, chosen[i], *reversed(self.ways[i]))
            for index in to_move], most=TOGETHER)
        return chosen

    def _begin(self, index, to_move):
        """The node that a fresh volume is made on."""
        source, destination = self.ways[index]
        return destination if (
            to_move or self.kinds[index].begins == 'destination') else source

    def _fresh(self, node, kinds):
        made = encrypted_disk.create(self.environment, node, [
            kind.encrypted for kind in kinds])
        in_parallel([lambda d=disk, k=kind: d.fill(node, full=k.full)
                     for disk, kind in zip(made, kinds)])
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
                    marks, *self.operations[index].ids)
            reached = bool(reason) or index not in self.unreached
            verdicts.append(Verdict(
                cell, reached and not reason, reason, log,
                (time.monotonic() - began) / len(self.cells),
                reached=reached, lost=self.lost))
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
        if any(kind.one_way for kind in self.kinds):
            self._empty_pool()  # all on a node would go the same way
        self.operations = [
            kind(self.environment, disk, *way) for kind, disk, way in zip(
                self.kinds, self._disks(), self.ways)]
        self.lvs = checks.lvs_of(self.environment.lab, [
            operation.disk for operation in self.operations
            if operation.keeps_source])
        for operation in self.operations:
            self.environment.forget_steps(operation.disk)
        self._each(lambda _index, operation: operation.prepare())

    def _empty_pool(self):
        for kept in self.pool.values():
            in_parallel([disk.remove for disk in kept])
            kept.clear()

    def _stop_all(self):
        """Bring each to its step: whose request waits there, comes last."""
        for cell, operation in zip(self.cells, self.operations):
            end, _space, label = cell.step.partition(' ')
            self.environment.arm(operation.disk, getattr(operation, end),
                                 label)
        gates = {name: threading.Semaphore(TOGETHER)
                 for name in self.environment.nodes}
        for sort in ('others', 'asking', 'alone'):
            self._each(lambda index, operation: self._bring(
                index, operation, gates[operation.destination.name])
                if sort_of(self.cells[index]) == sort else None)

    def _bring(self, index, operation, gate):
        way = reach.Way(self.environment, operation)
        with gate:
            way.ask()
        if not way.wait():
            self.unreached.add(index)

    def _check_sources(self):
        removed = {}
        for node in self.environment.nodes.values():
            removed.update(checks.removed_too_early(
                self.environment.lab, node, {
                    operation.disk.volume: self.lvs[operation.disk.volume]
                    for operation in self.operations
                    if operation.source is node
                    and operation.disk.volume in self.lvs}))
        for index, operation in enumerate(self.operations):
            if operation.disk.volume in removed:
                self._blame([index], removed[operation.disk.volume])

    def _strike(self):
        self._check_sources()
        what, nodes = FAULTS[self.cells[0].fault][0], self.struck
        self.lost_power = nodes if what == 'cut' else []
        died = time.time()
        if what == 'kill':
            self.environment.kill(nodes)
        else:
            self.lost = self.environment.power_cut(nodes)
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
        self.environment.end_waits(nodes, died)

    def _settle(self):
        self._each(lambda _index, operation: operation.settle(
            self.lost_power))

    def _check(self):
        disks_there = ([each.disk for each in self.operations]
                       + self.environment.bystanders)
        for problem in checks.settled(self.environment, disks_there):
            whose = checks.blamed(self.environment.lab, problem)
            mine = [index for index, operation in enumerate(self.operations)
                    if whose.intersection(operation.ids)]
            self._blame(mine or range(len(self.cells)), problem)
        checks.bystanders(self.environment)
        for leak in checks.leaks(self.environment, {
                key for each in self.operations for key in each.keys}):
            self._blame(range(len(self.cells)), leak)

    # -- afterwards

    def clean(self):
        """Keep the volumes that can be used again, delete the others.

        :raises LabError: if the lab is not as it was
        """
        self.environment.heal()

        def clean_one(index, operation):
            operation.tidy()
            disk = operation.disk
            disk.stop()
            if index in self.reasons or not disk.exists():
                disk.remove()
                return
            for node in list(self.environment.nodes.values()):
                if node.name in disk.attached:
                    disk.detach(node)
            kept = self.pool[disk.home()]
            if len(disk._areas) < disks.AREAS and len(kept) < SPARE and (
                    issubclass(self.kinds[index], OPERATIONS['move'])
                    and not self.kinds[index].encrypted):
                kept.append(disk)
            else:
                disk.remove()
        in_parallel([lambda i=index, o=operation: clean_one(i, o)
                     for index, operation in enumerate(self.operations)])
        for operation in self.operations:
            self.environment.forget_steps(operation.disk)
        checks.clean(self.environment)
