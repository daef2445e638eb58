# SPDX-License-Identifier: Apache-2.0
"""Which steps an operation has: those of every undisturbed run."""

import collections

from lab.core import process
from lab.faults import cells
from lab.faults.environment import in_parallel

#: So many undisturbed runs are compared.
RUNS = 2


def numbered(taken):
    """Steps in their order; one that is done again is 'STEP (2)'."""
    steps, times = [], collections.Counter()
    for step in taken:
        times[step] += 1
        if times[step] == 1:
            steps.append(step)
        elif step not in cells.EVERY_LOOK:
            steps.append('%s (%d)' % (step, times[step]))
    return steps


def common(runs):
    """The steps that each run has, in the order of the first one."""
    first, *others = [numbered(taken) for taken in runs]
    steps = [step for step in first if all(step in other for other in others)]
    end, _space, label = steps[0].partition(' ')
    return ['%s before %s' % (end, label)] + steps


def discover(environment, kind, pool):
    """The steps of an undisturbed operation, in their order.

    :returns: ['source LABEL' or 'destination LABEL', ...]
    """
    batch = cells.Batch(
        environment, [cells.Cell(kind, '', 'kill source')] * RUNS, pool)
    batch._prepare()
    _must_hold(batch)
    prepared = [len(environment.taken(operation.disk))
                for operation in batch.operations]
    # What is asked for at once takes turns; each has its own time.
    in_parallel([lambda o=operation: (o.start(), o.settle(()))
                 for operation in batch.operations])
    batch._check()
    _must_hold(batch)
    runs = [[_step(operation, *each) for each in environment.taken(
        operation.disk)[before:]]
        for operation, before in zip(batch.operations, prepared)]
    batch.clean()
    return common(runs)


def _must_hold(batch):
    for reasons in batch.reasons.values():
        raise process.LabError('failed without a fault: %s' % reasons[0])


def _step(operation, node, label):
    end = 'source' if node == operation.source.name else 'destination'
    return '%s %s' % (end, label)
