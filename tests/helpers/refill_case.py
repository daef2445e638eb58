# SPDX-License-Identifier: Apache-2.0
"""A move whose source is compared with its pool, and refilled."""

import logging
from unittest import mock

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from tests.helpers import holes
from tests.helpers import move_case
from tests.helpers import move_steps_case
from tests import world as worlds
from tests.world import disks

A, B = move_case.A, move_case.B
#: A hole at the source, as well.
HOLE = 3


class Begun(move_steps_case.Base):
    """A volume is being copied to B."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            name='cinder_localclone', level=logging.WARNING))
        self.world, self.volume, self.expected = holes.begin(
            self, (HOLE,))
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)

    def lose(self, *regions):
        """The pool has forgotten them, and the clone does not know."""
        for region in regions:
            self.b.lvs[self.volume.name][region] = disks.EMPTY

    def tag(self, tag):
        """As an earlier service has done, or an operator."""
        tags = self.b.disk.tags
        tags[self.volume.name] = tags.get(
            self.volume.name, frozenset()) | {tag}

    def phase(self):
        return next((move.phase for move in self.world.move_records.values()),
                    None)

    def reconcile(self):
        self.b.reconciler.reconcile(self.volume.id)

    def restart(self):
        self.b.stop(power=False)
        self.b.dead = False
        self.b.reconciler.reconcile_node(moves=False)

    def settled(self):
        self.world.settle()
        self.check(self.world, self.volume, self.expected)

    def failing(self, room, name, error):
        return mock.patch.object(getattr(self.b.node, room), name,
                                 side_effect=error)

    def not_seen_again(self, error, sweeps=1):
        """What is copied again can't be seen just then."""
        inner, seen = worlds.SimClones.unmapped_blocks, []

        def some(stack, *args):
            seen.append(True)
            if len(seen) > sweeps:
                raise error
            return inner(stack, *args)
        return mock.patch.object(worlds.SimClones, 'unmapped_blocks', some)

    def hide(self, region):
        """A guest writes to a part of it."""
        self.b.lvs[self.volume.name][region] = 'hidden'

    def lacking(self):
        self.assertRaises(exceptions.Lacking, self.reconcile)
        self.assertIs(Phase.MIGRATING, self.phase())
        self.assertIn(names.LACKING, self.b.disk.tags[self.volume.name])


def unread(reason):
    return exceptions.SourceUnread(disk='d', first=0, reason=reason)


def cut_short():
    """A refill that comes to one region only."""
    inner = worlds.SimClones.refill

    def refill(stack, move, disk, missing, factor):
        yield from inner(stack, move, disk, [[missing[0][0], 1]], factor)
        raise exceptions.TakesLong(seconds=30)
    return mock.patch.object(worlds.SimClones, 'refill', refill)
