# SPDX-License-Identifier: Apache-2.0
"""Moves on the simulated world, stopped at any moment."""

import logging

import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from tests.helpers import sampling
from tests import world as worlds

A, B = 'a@l', 'b@l'
ONE = (('kill',), ('cut',), ('cut both',))
ALIKE = (('kill', 'kill'), ('cut', 'cut'))
TWO = (*ALIKE, ('kill', 'cut'), ('cut', 'kill'))


class Base(testtools.TestCase):

    @staticmethod
    def begin(**how):
        """A world, a volume in it, and what the volume holds."""
        world = worlds.World(**how)
        volume = world.create_volume(A)
        return world, volume, list(world.nodes[A].lvs[volume.name])

    def check(self, world, volume, expected):
        """The promises, once everything has settled."""
        home = world.home(volume)
        for region, value in enumerate(expected):
            self.assertEqual(value, home.read(volume.id, region))
        self.assertEqual({}, world.move_records)
        for node in world.nodes.values():
            self.assertEqual({}, node.exports, node.host)
            self.assertEqual({}, node.sessions, node.host)
            mine = node is home
            self.assertEqual([volume.name] if mine else [], list(node.lvs))
            self.assertEqual(
                {names.handle(volume.id): {'below': volume.name}}
                if mine else {}, node.devices)

    def stop_everywhere(self, scenario, times=1, engine=False, turn=None,
                        nth=1):
        """Run a scenario with a stop at each moment, or two moments.

        Two are taken within what the first leaves to do: a stop makes the
        way longer, so the second may come anywhere in the longer one. Of all
        pairs :data:`tests.helpers.sampling.PAIRS` are run, chosen by the seed.

        :param scenario: takes the moments to stop at, returns its world
        :param engine: run the flows in TaskFlow's engine, which takes long
        :param turn: number of this variant among those of the same way;
            these share its moments: each runs every third. None: all moments
        :param nth: which of all pairs are run when all are asked for: every
            nth
        """
        run = self.runner(scenario, engine)
        if times == 1:
            for moment in sampling.turn(run(()), turn):
                run((moment,))
        elif sampling.everything():
            for first in range(1, run(()) + 1):
                for second in range(first + 1, run((first,)) + 1):
                    if (5 * first + second) % nth == 0:
                        run((first, second))
        else:
            sampling.pairs(self.id(), run)

    def runner(self, scenario, engine=False):
        """Return a function that runs a scenario and returns its length.

        It takes the moments to stop at, and tells them if the scenario fails.
        """
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        if not engine:
            self.enterContext(worlds.plain_flows())

        def run(stops):
            try:
                return scenario(stops).moment
            except BaseException as exc:
                raise AssertionError('stopped at %s (%s=%s)' % (
                    stops, sampling.SEED, sampling.seed())) from exc
        return run

    def run_move(self, world, volume, expected, target=B):
        """Attach on the other node, write there, let it come to its end.

        A move that was stopped is asked for again, as Nova does.
        """
        for _attempt in range(3):
            home = world.home(volume)
            if home.host == target:
                break
            try:
                home.move(volume, target)
            except (exceptions.LocalCloneError, worlds.Stopped):
                # What was written must be there whatever happened.
                world.settle()
        self.assertEqual(target, world.home(volume).host)
        home = world.home(volume)
        world.recover()  # what a restart does before the guest goes on
        home.write(volume.id, 2, 'new')
        expected[2] = 'new'
        for region, value in enumerate(expected):
            self.assertEqual(value, home.read(volume.id, region))
        world.settle()
        world.settle()
