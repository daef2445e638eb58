# SPDX-License-Identifier: Apache-2.0
"""Which cells there are, and which of them run together."""

from lab.faults import cells
from lab.faults import operations
from lab.faults import whole_operation

#: So many at once have an answer within the limits of their requests.
ASKING = 5


def sections(steps):
    """The steps of each operation, with completion as one of its own."""
    by_name = {}
    for name in operations.OPERATIONS:
        taken = steps.get(name)
        if taken and name == operations.Move.name:
            cut = next(index for index, step in enumerate(taken)
                       if step == 'destination enable_hydration') + 1
            by_name[name] = taken[:cut]
            by_name[operations.Completion.name] = taken[cut:]
        elif taken:
            by_name[name] = taken
    return by_name


def all_cells(steps):
    """All cells: every step with every fault, then whole operations."""
    at_steps = [cell for name, taken in sections(steps).items()
                for cell in cells.at_steps(name, taken)]
    return at_steps + [cells.Cell(operation, whole_operation.WHOLE, name)
                       for name, operation in whole_operation.names()]


def batches(wanted, width):
    """Cells that can run together: those of one fault, as many as can be
    at their steps at once. What takes longest comes first.
    """
    planned, alone, together = [], [], {}
    for cell in wanted:
        if cell.step == whole_operation.WHOLE:
            alone.append([cell])
        else:
            slow = operations.OPERATIONS[cell.operation].slow
            together.setdefault((cell.fault, slow), []).append(cell)
    for group in together.values():
        planned += _spread(group, width)
    return planned + alone


def _spread(group, width):
    alone = [cell for cell in group if cell.step in cells.ALONE]
    asking = [cell for cell in group
              if cell.step in cells.BEFORE_ANSWER - cells.ALONE]
    others = [cell for cell in group if cell.step not in cells.BEFORE_ANSWER]
    count = max(-(-(len(asking) + len(alone)) // ASKING), len(alone),
                -(-len(group) // width))
    # Every nth: neighbours differ, so do their moments.
    ordered = alone + asking + others
    return [ordered[index::count] for index in range(count)]
