# SPDX-License-Identifier: Apache-2.0
"""Which situations are run together, and which cells share a volume. Pure."""

import dataclasses

#: What is true of the whole lab in a situation; these share it.
ROUNDS = (('at rest', 'after a move', 'snapshot away', 'starting'),
          ('hydrating', 'remote'), ('unreachable', 'snapshot down'),
          ('stale home',))
#: Situations in which each volume is in use.
IN_USE = ('starting', 'remote')
#: Situations in which each volume has a snapshot.
WITH_SNAPSHOT = ('snapshot away', 'snapshot down')
#: Cells that follow each other on one volume, at most.
LONGEST = 6


@dataclasses.dataclass
class Chain:
    """Cells that are run one after the other, on one volume.

    :param in_use: whether a guest has it
    :param snapshot: whether it has a snapshot
    """

    situation: str
    in_use: bool
    snapshot: bool
    cells: list


def rounds(cells):
    """Cells by what is true of the whole lab."""
    for names in ROUNDS:
        chosen = [cell for cell in cells if cell.situation in names]
        if chosen:
            yield chosen


def chains(cells, expected, kinds):
    """Cells by the volumes that they are run on.

    What is refused leaves its volume as it was, and comes first; so does
    what is not said to need a volume of its own. What waits would be in
    the way of others.

    :param expected: {cell: :class:`.table.Expected`}
    :param kinds: {operation: kind}, with ``in_use``, ``snapshot``, ``alone``
    """
    shared, own = {}, []
    for cell in sorted(cells, key=lambda each: not expected[each].is_refused):
        kind = kinds[cell.operation]
        chain = Chain(cell.situation, _in_use(cell, kind),
                      kind.snapshot or cell.situation in WITH_SNAPSHOT,
                      [cell])
        if expected[cell].word == 'waits' or (
                kind.alone and not expected[cell].is_refused):
            own.append(chain)
            continue
        key = chain.situation, chain.in_use, chain.snapshot
        last = shared.setdefault(key, [chain])[-1]
        if last is not chain:
            if len(last.cells) < LONGEST:
                last.cells.append(cell)
            else:
                shared[key].append(chain)
    # The longest first: they end at the same time then.
    return sorted([*own, *(chain for each in shared.values()
                           for chain in each)],
                  key=lambda chain: -len(chain.cells))


def _in_use(cell, kind):
    return kind.in_use or cell.situation in IN_USE
