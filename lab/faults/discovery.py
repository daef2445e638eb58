# SPDX-License-Identifier: Apache-2.0
"""Which steps an operation has: those of every undisturbed run."""

import collections

from lab.core import process
from lab.faults import cells

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
    end, _space, label = next(
        step for step in steps if step not in cells.EVERY_LOOK).partition(' ')
    return ['%s before %s' % (end, label)] + steps


def discover(environment, kind, pool):
    """The steps of an undisturbed operation, in their order.

    :returns: ['source LABEL' or 'destination LABEL', ...]
    """
    return common([_run(environment, kind, pool) for _time in range(RUNS)])


def _run(environment, kind, pool):
    """What one undisturbed operation does, step by step."""
    batch = cells.Batch(
        environment, [cells.Cell(kind, '', 'kill source')], pool)
    batch._prepare()
    _must_hold(batch)
    operation, = batch.operations
    prepared = len(environment.taken(operation.disk))
    operation.start()
    operation.settle(())
    batch._check()
    _must_hold(batch)
    taken = [_step(operation, *each)
             for each in environment.taken(operation.disk)[
                 prepared:operation.steps]]
    batch.clean()
    return taken


def _must_hold(batch):
    for reasons in batch.reasons.values():
        raise process.LabError('failed without a fault: %s' % reasons[0])


def _step(operation, node, label):
    end = 'source' if node == operation.source.name else 'destination'
    return '%s %s' % (end, label)
