# SPDX-License-Identifier: Apache-2.0
"""What was detached before its handle was swapped can be attached again."""

from tests.helpers import remote_guest_case

B, C = remote_guest_case.B, remote_guest_case.C


class DetachedBeforeSwapTest(remote_guest_case.Case):

    def is_away(self, move):
        """As the kernel: a session whose target is gone is down as well."""
        gone = {volume_id for volume_id, host in self.there.passed.items()
                if self.world.nodes[host].dead or volume_id not in {
                    each for each, _who in self.world.nodes[host].remote}}
        return move.volume_id in gone or self.world.nodes[move.source].dead

    def test_it_can_be_attached_again(self):
        """Nobody can attach it, until someone logs out by hand.

        1. A volume follows its guest to C; the move is committed. C's
           service is away for a moment, so the handle is on B's disk still.
        2. The guest is shut down, the volume detached. That is asked of C,
           its home by now; nothing tells B to end what it serves.
        3. B's look finds an export that no attachment names, and withdraws
           it at once. The session of C, which is logged in, is down from
           then on.
        4. C's service is back. It would swap the handle, which nobody has
           open, but waits for that session
           (:func:`.destination._put_on_clone`, SourceUnreachable).
           Nothing ever ends it: :func:`.remote_attachment.look` waits for the
           swap.

        Each attach fails, on whichever node; nothing is copied. The same if
        B is rebooted between 2 and 4: it does not export it again.

        By design: a handle that nobody has open has nothing in flight.
        Then C ends the session that is down, and swaps the handle; what was
        written is flushed by the source's own disk.
        """
        self.there.node.sessions._inner.is_away = self.is_away
        self.commit()
        self.there.opened.clear()
        self.guest.node = None
        self.there.unserve(
            self.volume, {'host': 'c', 'initiator': 'iqn.c'})
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.home.reconciler.converge_node()  # before C's
        self.assertEqual(set(), self.home.remote)
        for _look in range(3):
            self.world.reconcile()
        self.volume.volume_attachment = [self.guest.attachment()]
        self.volume.status = 'reserved'
        properties = self.there.serve(
            self.volume, {'host': 'c', 'initiator': 'iqn.c'})
        self.assertEqual('local', properties['driver_volume_type'])
        self.there.opened.add(self.guest.handle)
        self.there.write(self.guest.id, 1, 'again')
        self.world.settle()
        self.assertEqual('again', self.there.read(self.guest.id, 1))
        self.assertEqual([{}, {}], [self.there.passed, self.world.shadows])
