# SPDX-License-Identifier: Apache-2.0
"""What waits while a volume is re-encrypted, in the simulated world."""

import contextlib
from unittest import mock

from cinder import exception
import ddt

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import upkeep
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import snapshots
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.helpers.reencrypt_case import Case
from tests import world as worlds
from tests.world import crypt
from tests.world import reencryption as sim

A, B = encrypted_attach_case.A, encrypted_attach_case.B
Status = reencrypt.Status


@ddt.ddt
class FencesTest(Case):
    """Whatever else is done to a volume pauses it before."""

    def setUp(self):
        super().setUp()
        self.use()
        self.start()

    def go_on_at(self, node):
        """It goes on once the volume is at rest there."""
        self.assertNotIn(self.volume.id, node.reencrypting)
        self.world.settle()
        self.assertIn(self.volume.id, node.reencrypting)
        self.assertEqual(set(), (self.a if node is self.b else self.b)
                         .reencrypting)
        self.end(node)
        self.sweep(node)
        self.assertWhole(node)

    def go_live(self):
        """A live migration to B begins."""
        self.attach('in-use', 'a', None)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'a', 'b')

    def leave(self):
        self.a.opened.discard(self.crypt)
        self.disconnect(self.a, attach_case.ON_A)

    def test_cold_move(self):
        self.leave()
        self.attach('reserved', None)
        self.assertEqual(set(), self.a.reencrypting)
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)  # not settled
        self.attach('available')
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.attach('reserved', None)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'b')
        self.assertEqual('b@l#p', self.volume.host)
        self.go_on_at(self.b)

    def test_live_move(self):
        self.go_live()
        self.assertEqual('b@l#p', self.volume.host)
        self.assertEqual(set(), self.a.reencrypting)
        self.sweep()
        self.sweep(self.b)
        self.assertEqual([set(), set()], [
            self.a.reencrypting, self.b.reencrypting])
        self.a.opened.discard(self.crypt)
        self.b.opened.add(self.crypt)
        self.disconnect(self.a, attach_case.ON_A)
        self.attach('in-use', 'b')
        self.go_on_at(self.b)

    def test_live_move_that_is_rolled_back(self):
        self.go_live()
        self.disconnect(self.b, attach_case.ON_B)
        self.attach('in-use', 'a')
        self.assertEqual('a@l#p', self.volume.host)
        self.go_on_at(self.a)

    def test_live_move_while_it_does_not_pause(self):
        self.node.runner._inner.stubborn = True
        self.assertRaises(encryption_exceptions.StillReencrypting,
                          self.go_live)
        self.assertEqual(('a@l#p', {}), (self.volume.host, self.b.lvs))
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_move_of_what_a_guest_uses_and_was_killed(self):
        sim.kill(self.a, self.volume.id)
        self.assertEqual(Status.INTERRUPTED, self.state().status)
        self.assertRaises(encryption_exceptions.Interrupted, self.go_live)
        self.attach('in-use', 'a')
        self.assertEqual(('a@l#p', {}), (self.volume.host, self.b.lvs))
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)
        self.leave()  # its instance has ended
        self.attach('available')
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_cold_move_of_what_was_killed(self):
        """It is recovered at the home, and only there."""
        self.a.opened.discard(self.crypt)
        sim.kill(self.a, self.volume.id)
        self.attach('available')
        self.attach('reserved', None)
        self.connect(attach_case.ON_B)
        self.assertFalse(self.header.under_way.interrupted)
        self.attach('in-use', 'b')
        self.go_on_at(self.b)

    def test_live_move_of_what_was_killed_in_its_very_end(self):
        """Its guest does not notice; all is right at its new home."""
        sim.cut_short(self.a, self.volume.id)
        self.go_live()
        self.assertIsNone(self.header.under_way)
        self.assertEqual('b@l#p', self.volume.host)
        self.a.opened.discard(self.crypt)
        self.b.opened.add(self.crypt)
        self.disconnect(self.a, attach_case.ON_A)
        self.attach('in-use', 'b')
        self.world.settle()
        self.assertEqual(1, len(self.header.slots))
        self.assertEqual([], self.world.wrongs)

    def test_closed(self):
        """By whatever needs to know that nothing uses it."""
        self.a.opened.discard(self.crypt)
        with self.node.lock(self.volume.id):
            devices.ensure_closed(self.node, self.volume.id)
            self.assertEqual(set(), self.a.reencrypting)
            self.assertNotIn(self.crypt, self.a.devices)

    def test_drained(self):
        self.leave()
        self.attach('available')
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.a.move(self.volume, B)
        self.go_on_at(self.b)

    def test_snapshot(self):
        self.world.pool = 'pool'
        snapshot_id = self.world.snapshot_row(self.volume)
        order = []

        def noting(name, act):
            def noted(*args, **words):
                order.append(name)
                return act(*args, **words)
            return noted
        runner, lvm = sim.SimRunner, type(self.node.lvm._inner)
        with mock.patch.object(runner, 'stop', noting('stop', runner.stop)), \
                mock.patch.object(runner, 'start', noting(
                    'start', runner.start)), mock.patch.object(
                        lvm, 'create_snapshot', noting(
                            'take', lvm.create_snapshot)):
            snapshots.create(self.a.reconciler, snapshot_id, self.volume.id,
                             0)
        self.assertEqual(['stop', 'take', 'start'], order)
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_for_a_moment(self):
        """It goes on, whatever comes of it; not if it was not running, nor
        if an operator has paused it.
        """
        def paused():
            with contextlib.suppress(OSError), self.node.lock(
                    self.volume.id), devices.reencryption_paused(
                        self.node, self.volume.id):
                devices.end_interrupted_reencryption(self.node, self.volume)
                self.assertEqual(set(), self.a.reencrypting)
                raise OSError
            return bool(self.a.reencrypting)
        self.assertTrue(paused())
        with mock.patch.object(sim.SimRunner, 'start', autospec=True,
                               side_effect=OSError):
            self.assertFalse(paused())
        self.assertFalse(paused())
        self.sweep()
        self.assertTrue(self.a.reencrypting)
        self.a.disk.tags[self.volume.name] |= {names.PAUSED}
        self.assertFalse(paused())

    def test_killed_within_a_moment(self):
        """It has to be recovered before it goes on."""
        with self.node.lock(self.volume.id), devices.reencryption_paused(
                self.node, self.volume.id):
            sim.kill(self.a, self.volume.id)
        self.assertEqual(set(), self.a.reencrypting)

    def test_passed_through(self):
        with self.node.lock(self.volume.id):
            self.assertTrue(self.a.reencrypting)
            devices.end_interrupted_reencryption(self.node, self.volume)
            self.a.remote.add((self.volume.id, 'initiator of b'))
        with mock.patch.object(self.a.reconciler.exporting,
                               'try_to_reconcile'):
            self.sweep()
        self.assertEqual(set(), self.a.reencrypting)

    def test_extended(self):
        self.volume.status = 'extending'
        for _paused in range(2):
            self.assertRaises(
                encryption_exceptions.Reencrypting, extend.extend,
                self.a.reconciler, self.volume.id, 2)
            reencrypt.pause(self.node, self.volume.id)
        self.volume.status = 'in-use'
        reencrypt.resume(self.node, self.volume.id)
        self.end()
        self.sweep()
        worlds.extend(self.a, self.volume, 2)

    def test_deleted(self):
        self.leave()
        self.attach('available')
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.node.runner._inner.stubborn = True
        # The process has the handle open.
        self.a.opened.add(self.handle)
        self.assertRaises(exception.VolumeIsBusy, self.delete, self.a)
        self.node.runner._inner.stubborn = False
        self.a.opened.discard(self.handle)
        self.delete(self.a)
        self.assertEqual([{}, {}, set()], [
            self.a.lvs, self.a.devices, self.a.reencrypting])

    def test_detached(self):
        """Nothing that is detached stays open for its own sake."""
        self.leave()
        self.assertNotIn(self.crypt, self.a.devices)
        self.attach('available')
        self.go_on_at(self.a)

    def test_lock_of_what_it_was_made_of(self):
        """cryptsetup has one for both, and the other may be at work."""
        self.leave()
        with mock.patch.object(
                crypt.SimCrypt, 'open', autospec=True,
                side_effect=crypt.SimCrypt.open) as opened:
            self.attach('reserved', None)
            self.connect(attach_case.ON_A)
        self.assertTrue(opened.call_args.args[3])

    def test_reader_that_may_not_write(self):
        """At a destination, nor of a snapshot, is anything recovered."""
        self.a.opened.discard(self.crypt)
        sim.kill(self.a, self.volume.id)
        del self.a.devices[self.crypt]
        self.node.crypt._inner.close(self.volume.id)
        for how in ({'keep_header': True}, {'readonly': True},
                    {'readonly': True, 'recovers': True}):
            with self.node.lock(self.volume.id):
                error = self.assertRaises(
                    encryption_exceptions.NotRecovered,
                    upkeep.activate.open_volume, self.node.crypt,
                    self.node.keys, self.volume.id, self.expected(), **how)
            self.assertIn('Do not restore a backup', str(error))
        self.assertTrue(self.header.under_way.interrupted)
