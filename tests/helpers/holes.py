# SPDX-License-Identifier: Apache-2.0
"""A move of a volume with holes that has begun."""

from tests.helpers import move_case
from tests import world as worlds

A, B = move_case.A, move_case.B
#: In front, one that the guest writes to later, and one that stays.
HOLES = (0, 2, 3)


def begin(base, holes=HOLES, **how):
    world = worlds.World(**how)
    world.pool = 'pool'
    volume = world.create_volume(A, holes)
    return world, volume, list(world.nodes[A].lvs[volume.name])
