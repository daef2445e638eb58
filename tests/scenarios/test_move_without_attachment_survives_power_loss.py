# SPDX-License-Identifier: Apache-2.0
"""A move that nobody attaches for: stopped anywhere, and beside requests."""

import contextlib
import itertools

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Asked
from cinder_localclone.volumes import migrate
from tests.helpers import move_case
from tests.helpers import sampling
from tests import world as worlds
from tests.world import unattended

A, B = move_case.A, move_case.B
ONE, TWO = move_case.ONE, move_case.TWO


class Base(move_case.Base):

    @staticmethod
    def begin(stop_at=(), request_at=0, **how):
        world = unattended.World(**how)
        volume = world.create_volume(A)
        world.moment, world.acting = 0, None
        world.stop_at, world.request_at = stop_at, request_at
        return world, volume, list(world.nodes[A].lvs[volume.name])

    @staticmethod
    def move_away(world, volume):
        migrate.move_away(world.nodes[A].node, volume.id, B,
                          Asked.DRAIN)

    def check_at(self, world, volume, expected, host):
        self.assertEqual(host, world.home(volume).host)
        self.check(world, volume, expected)


@ddt.ddt
class StoppedTest(Base):

    def drain(self, stop_at, faults):
        """Asked for again until it has departed, as the command does."""
        world, volume, expected = self.begin(stop_at=stop_at, faults=faults)
        for _attempt in range(4):
            if world.home(volume).host == B:
                break
            with contextlib.suppress(exceptions.LocalCloneError,
                                     worlds.Stopped):
                self.move_away(world, volume)
            world.settle()
            # Whatever happened, its owner has it back.
            self.assertEqual('available', volume.status)
        world.settle()
        self.check_at(world, volume, expected, B)
        self.assertEqual('success', volume.migration_status)
        return world

    def migrate(self, stop_at, faults):
        """Asked for once; again if Cinder says that it has failed."""
        world, volume, expected = self.begin(stop_at=stop_at, faults=faults)
        for _attempt in range(4):
            with contextlib.suppress(worlds.Stopped):
                world.migrate(volume, B)
            world.settle()
            self.assertEqual('available', volume.status)
            # Cinder had begun, or was not to begin.
            self.assertIn(volume.migration_status,
                          (None, 'success', 'error'))
            self.assertEqual(volume.migration_status == 'success',
                             world.home(volume).host == B)
            if world.home(volume).host == B:
                break
        world.settle()
        self.check_at(world, volume, expected, B)
        return world

    def test_undisturbed(self):
        for scenario in (self.drain, self.migrate):
            self.assertGreater(scenario((), ('cut',)).moment, 30)

    @ddt.data(*itertools.product(ONE, ('drain', 'migrate')))
    @ddt.unpack
    def test_stop_at_every_moment(self, faults, how):
        self.stop_everywhere(
            lambda stops: getattr(self, how)(stops, faults),
            turn=ONE.index(faults))

    @ddt.data(*itertools.product(TWO, ('drain', 'migrate')))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, faults, how):
        self.stop_everywhere(
            lambda stops: getattr(self, how)(stops, faults), 2)


@ddt.ddt
class RaceTest(Base):
    """One winner: the move, or what Cinder's API was asked for meanwhile."""

    def race(self, request, how, request_at, stop_at=(), faults=('cut',)):
        world, volume, expected = self.begin(
            stop_at=stop_at, faults=faults, request=request,
            request_at=request_at)
        with contextlib.suppress(exceptions.LocalCloneError, worlds.Stopped):
            if how == 'drain':
                self.move_away(world, volume)
            else:
                world.migrate(volume, B)
        if world.request_at > world.moment:
            world.request_at = 0  # too late: it is another story
        world.recover()
        if world.sent_to:
            for _attempt in range(4):  # as Nova does, or a service's start
                try:
                    world.connect()
                except (exceptions.LocalCloneError, worlds.Stopped):
                    world.recover()
                else:
                    break
        world.settle()
        world.settle()
        if not world.volumes:
            self.assertEqual({}, world.move_records)
            for node in world.nodes.values():
                self.assertEqual([{}] * 4, [
                    node.lvs, node.devices, node.exports, node.sessions])
            return world
        self.assertEqual(
            'in-use' if world.sent_to and request == 'attach'
            else 'available', volume.status)
        self.assertIn(volume.migration_status, (None, 'success', 'error'))
        self.check(world, volume, expected)
        return world

    #: Cinder's own API refuses the others while it migrates.
    CASES = (*itertools.product(unattended.REQUESTS, ('drain',)),
             ('attach', 'migrate'), ('extend', 'migrate'))

    def moments(self, how):
        world, volume, _expected = self.begin()
        if how == 'drain':
            self.move_away(world, volume)
        else:
            world.migrate(volume, B)
        return range(1, world.moment + 1)

    @ddt.data(*CASES)
    @ddt.unpack
    def test_at_every_moment(self, request, how):
        won = []
        for moment in self.moments(how):
            world = self.race(request, how, moment)
            won.append(world.sent_to)
        # First at the old home, then refused, in the end at the new one.
        self.assertEqual([A, None, B], [
            where for where, _same in itertools.groupby(won)])

    @ddt.data(*itertools.product(CASES, ONE))
    @ddt.unpack
    def test_at_every_two_moments_one_is_a_stop(self, case, faults):
        request, how = case
        moments = self.moments(how)
        if sampling.everything():
            for moment in moments:
                self.stop_everywhere(lambda stops: self.race(
                    request, how, moment, stops, faults))
            return
        run = self.runner(lambda pair: self.race(
            request, how, pair[0], pair[1:], faults))
        chosen = sampling.choice(self.id())
        for _pair in range(sampling.PAIRS):
            run((chosen.choice(moments), chosen.choice(moments)))
