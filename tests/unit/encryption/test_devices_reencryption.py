# SPDX-License-Identifier: Apache-2.0
"""Re-encryption is paused and goes on, in the simulated world."""

from unittest import mock

import ddt

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import reencrypt
from tests.helpers.reencrypt_case import Case
from tests.world import crypt
from tests.world import reencryption as sim

Status = reencrypt.Status


@ddt.ddt
class PauseTest(Case):

    def test_pause_and_resume(self):
        self.use()
        self.start()
        found = reencrypt.pause(self.node, self.volume.id)
        self.assertEqual(Status.PAUSED, found.status)
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)
        self.a.stop(power=True)
        self.world.reconcile()
        self.assertEqual(Status.PAUSED, self.state().status)
        found = reencrypt.resume(self.node, self.volume.id)
        self.assertEqual(Status.RUNNING, found.status)
        self.assertNotIn(names.PAUSED, self.tags())
        self.end()
        self.sweep()
        self.assertWhole()

    def test_backup_that_can_not_be_made_in_the_end(self):
        """What there is restores noise: the next look makes it."""
        self.node.crypt.back_up(self.volume.id)
        self.start()
        self.end()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=OSError):
            self.sweep()
        self.assertIn(names.REENCRYPTED, self.tags())
        self.sweep()
        self.assertWhole()

    def test_backups_are_away_in_the_end(self):
        """They come back, of before, when their disk is mounted again."""
        self.node.crypt.back_up(self.volume.id)
        self.start()
        self.end()
        self.world.backups.clear()
        self.world.copies.clear()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=OSError):
            self.sweep()
        self.assertIn(names.REENCRYPTED, self.tags())
        self.sweep()
        self.assertWhole()

    def test_started_anew(self):
        self.start()
        reencrypt.pause(self.node, self.volume.id)
        self.assertEqual(Status.RUNNING, self.start().status)
        self.assertNotIn(names.PAUSED, self.tags())

    def zone(self):
        return names.facts(self.tags()).get(names.ZONE)

    def test_size_of_its_parts(self):
        """The LV has it, for each start of the process on this node."""
        self.start(zone=4)
        self.assertEqual('4', self.zone())
        self.start()
        self.assertEqual('4', self.zone())
        self.start(zone=64)
        self.assertEqual('64', self.zone())
        self.end()
        self.sweep()
        self.assertWhole()
        self.start()
        self.assertIsNone(self.zone())

    @ddt.data(-1, 65)
    def test_size_that_cryptsetup_does_not_take(self, zone):
        for _begun in range(2):
            self.assertRaises(encryption_exceptions.CannotReencrypt,
                              self.start, zone=zone)
            self.assertIsNone(self.zone())
            self.start()

    def test_resumed_after_it_was_killed(self):
        """What it has left is put together first, unless a guest has it."""
        self.start()
        sim.kill(self.a, self.volume.id)
        self.assertEqual(Status.RUNNING, reencrypt.resume(
            self.node, self.volume.id).status)
        self.assertFalse(self.header.under_way.interrupted)
        self.use()
        sim.kill(self.a, self.volume.id)
        self.assertRaises(encryption_exceptions.Interrupted,
                          reencrypt.resume, self.node, self.volume.id)
        self.assertTrue(self.header.under_way.interrupted)
        self.assertEqual(set(), self.a.reencrypting)
        self.assertEqual([], self.world.wrongs)

    def test_nothing_to_pause(self):
        for act in (reencrypt.pause, reencrypt.resume):
            self.assertEqual(Status.NONE, act(
                self.node, self.volume.id).status)
        self.assertNotIn(names.PAUSED, self.tags())

    def test_one_that_does_not(self):
        self.start()
        self.node.runner._inner.stubborn = True
        self.assertRaises(encryption_exceptions.StillReencrypting,
                          reencrypt.pause, self.node, self.volume.id)
        self.assertIn(names.PAUSED, self.tags())
        self.node.runner._inner.stubborn = False
        sim.end(self.a, self.volume.id)
        self.sweep()
        self.assertWhole()
