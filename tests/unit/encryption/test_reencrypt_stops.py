# SPDX-License-Identifier: Apache-2.0
"""Re-encryption, stopped at any moment, in the simulated world."""

import itertools

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import reencrypt
from cinder_localclone.moves import source
from tests.helpers import encrypted_attach_case
from tests.helpers.reencrypt_case import Case
from tests.world import effects
from tests.world import reencryption as sim

A, B = encrypted_attach_case.A, encrypted_attach_case.B
SERPENT = 'serpent-xts-plain64'


class Run(Case):
    """One course of events."""

    def runTest(self):
        pass

    def from_start_to_end(self):
        self.start(cipher=SERPENT)
        sim.go_on(self.a, self.volume.id)
        reencrypt.pause(self.node, self.volume.id)
        reencrypt.resume(self.node, self.volume.id)
        self.end()
        self.sweep()
        self.sweep()

    def used(self):
        self.use()
        self.from_start_to_end()

    def moved(self):
        self.start(cipher=SERPENT)
        with self.a.lock(self.volume.id):
            source.move_volume(self.node, self.volume, B)
        self.world.settle()

    def recover(self):
        for each in (self.a, self.b):
            each.dead = False
        self.world.settle()
        at = self.world.home(self.volume)
        if self.header.under_way is None:
            self.assertNotIn(names.REENCRYPTED, self.tags(at))
        else:
            if names.PAUSED in self.tags(at):
                reencrypt.resume(at.node, self.volume.id)
            self.assertIn(self.volume.id, at.reencrypting)
            self.end(at)
            self.sweep(at)
            self.assertWhole(at)
        self.assertEqual([], self.world.wrongs)


@ddt.ddt
class StopsTest(testtools.TestCase):
    """The node stops, by a kill or a power cut, at each moment."""

    @ddt.data(*itertools.product(
        ('from_start_to_end', 'used', 'moved'), ('cut', 'kill')))
    @ddt.unpack
    def test_stops(self, way, fault):
        for stop in itertools.count(1):
            run = Run()
            run.setUp()
            world = run.world
            world.faults, world.stop_at = (fault,), (world.moment + stop,)
            try:
                getattr(run, way)()
                stopped = False
            except effects.Stopped:
                stopped = True
            except exceptions.PeerUnreachable:
                stopped = True  # the other one did
            stopped = stopped or run.world.stopped()
            world.stop_at = ()
            run.recover()
            run.doCleanups()
            if not stopped:
                self.assertGreater(stop, 10)
                return
