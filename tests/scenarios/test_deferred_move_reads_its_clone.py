# SPDX-License-Identifier: Apache-2.0
"""A follow proves that its clone can be read, as any other move."""

from tests.helpers import remote_guest_case
from tests import world as worlds


class ProofTest(remote_guest_case.Case):

    def test_a_clone_that_cannot_be_read_gets_no_guest(self):
        """A guest whose disk works gets one that gives errors.

        1. A volume is passed through to a guest on C, which reads and
           writes it.
        2. The export of the move's source, another target, gives errors
           (as may the disk, or the pool, of C).
        3. Any other move reads the head of the new handle before it is
           committed (:class:`.destination.Handle`), and fails. Of a
           volume that follows the handle is not on the clone then, so
           nothing is read: it is committed, and swapped under the guest.

        By design: :func:`.destination.prepare` reads the head of the
        clone itself, of which that makes nothing local; and the swap looks
        whether the clone is in mode "rw" first, as for any other
        (:meth:`.clone.Stack.ensure_clone` lets it be, because the handle,
        which is not on it yet, is open).
        """
        self.home.unreadable = True
        self.volume.group_id = None
        self.world.reconcile()
        self.world.reconcile()
        self.assertEqual(
            'written %d' % self.guest.count, self.there.read(
                self.guest.id, self.guest.count % worlds.REGIONS))
        self.assertEqual({}, self.world.shadows)
