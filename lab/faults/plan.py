# SPDX-License-Identifier: Apache-2.0
"""Which cells there are, and which of them run together."""

from lab.faults import cells
from lab.faults import whole_operation
from lab.scenarios import repeated as operations

#: What ends as a move does, with the very same steps: these are run once.
AS_A_MOVE = (operations.OPERATIONS['migrate'].name,
             operations.OPERATIONS['drain'].name,
             operations.OPERATIONS['move encrypted'].name)
#: So many at once have an answer within the limits of their requests.
ASKING = 5


def sections(steps):
    """The steps of each operation, with completion as one of its own."""
    by_name = {}
    for name in operations.OPERATIONS:
        taken = steps.get(name)
        if taken and name == operations.moves.Move.name:
            cut = _hydrating(taken)
            by_name[name] = taken[:cut]
            by_name[operations.moves.Completion.name] = taken[cut:]
        elif taken and name in AS_A_MOVE:
            by_name[name] = taken[:_hydrating(taken)]
        elif taken:
            by_name[name] = taken
    return by_name


def _hydrating(taken):
    """How many of a move's steps there are until its copy goes on."""
    return taken.index('destination enable_hydration') + 1


def all_cells(steps):
    """All cells: every step with every fault, then whole operations."""
    at_steps = [
        cell for name, taken in sections(steps).items()
        for cell in _at_steps(
            name, taken, steps.get(operations.OPERATIONS[name].like, ()))]
    return at_steps + [cells.Cell(operation, whole_operation.WHOLE, name)
                       for name, operation in whole_operation.names()]


def _at_steps(operation, steps, known=()):
    """The cells of an operation's steps, fault by fault.

    :param known: steps of another operation that meets all faults there:
        this one meets one each, by turns
    """
    faults = operations.OPERATIONS[operation].faults
    turns = {step: faults[number % len(faults)] for number, step in enumerate(
        step for step in steps if step in known)}
    yield from (cells.Cell(operation, step, fault)
                for fault in faults for step in steps
                if turns.get(step, fault) == fault)
    if operation in cells.GOING:
        differs = cells.GOING[operation]
        yield from (cells.Cell(operation, step, fault) for fault in cells.GONE
                    for step in steps if differs is None or step in differs)


def batches(wanted, width):
    """Cells that can run together: those whose faults hit the same nodes in
    the same way, as many as can be at their steps at once.

    Whole operations, of which each takes a lab for itself but little of the
    processors, come in between.
    """
    alone, together = [], {}
    for cell in wanted:
        if cell.step == whole_operation.WHOLE:
            alone.append([cell])
        else:
            together.setdefault(_alike(cell), []).append(cell)
    planned = [batch for group in together.values() for batch in _spread(
        group, min(width, _kind(group[0]).most or width))]
    return _mixed(planned, alone)


def _alike(cell):
    """Cells of equal value can share a fault."""
    what, ends = cells.FAULTS.get(cell.fault, ('gone', ('',)))
    kind = _kind(cell)
    return what, len(ends), kind.alike, kind.one_way and cell.fault


def _kind(cell):
    return operations.OPERATIONS[cell.operation]


def _spread(group, width):
    """Each batch has of both ways what its nodes can have at once.

    What locks its source's room locks that of the other way's destination.
    """
    forth, back = _lanes(group)
    count = max(-(-len(group) // width),
                _alone(forth, 'source ') + _alone(back),
                _alone(forth) + _alone(back, 'source '),
                *[-(-_waited_for(lane) // ASKING) for lane in (forth, back)])
    # Every nth: neighbours differ, so do their moments.
    return [forth[index::count] + back[count - 1 - index::count]
            for index in range(count)]


def _alone(lane, end=''):
    """How many cells stay where a node's room is locked (at this end)."""
    return sum(cells.sort_of(cell) == 'alone' and cell.step.startswith(end)
               for cell in lane)


def _waited_for(lane):
    """How many cells keep a request waiting."""
    return sum(cells.sort_of(cell) != 'others' for cell in lane)


def _lanes(group):
    """The cells of each way that volumes move, sort by sort.

    Those that stay at their sources come first: the two ways are dealt from
    opposite ends, so these meet none that lock the same node.
    """
    forth, back = [], []
    for sort in ('alone', 'asking', 'others'):
        mine = sorted((cell for cell in group if cells.sort_of(cell) == sort),
                      key=lambda cell: not cell.step.startswith('source '))
        for number, cell in enumerate(mine):
            onward = cells.goes_forth(cell, number)
            (forth if onward else back).append(cell)
    return forth, back


def _mixed(longer, shorter):
    """Two lists as one, each spread over it; what is shorter comes last."""
    places = [((index + 1) / (len(each) + 1), number, item)
              for number, each in enumerate((longer, shorter))
              for index, item in enumerate(each)]
    return [item for _place, _number, item in sorted(
        places, key=lambda place: place[:2])]
