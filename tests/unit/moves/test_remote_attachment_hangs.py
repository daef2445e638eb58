# SPDX-License-Identifier: Apache-2.0
"""What waits for a home that serves it no more ends."""

from tests.helpers import remote_case
from tests.helpers import remote_guest_case


class DetachedByForceTest(remote_case.Passed):

    def test_a_process_that_waits_for_what_is_served_no_more(self):
        """An instance can't be deleted, its process not killed, for a day.

        1. A volume is passed through to a guest on B. It is detached by
           force, or its home is forgotten or lost; or its instance is
           destroyed while the home does not answer.
        2. Its home serves it no more. I/O of the guest that is in flight
           waits for the session, so its process can't end, and keeps the
           handle open.
        3. :func:`.remote_attachment.end` (from each look at B) asks for the
        handle to
           be closed first, so it never logs out, which alone would end
           that.

        By design: as for a source that does not answer
        (:meth:`.iscsi_initiator.Sessions.end_if_down`,
        :func:`.delete._is_closed`) the session of what no attachment names
            goes first if it is down.
        """
        self.useFixture(remote_guest_case.Kernel(
            self.b, self.handle, self.volume.id))
        self.unserve(self.a, None)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        for _look in range(3):
            self.world.reconcile()
        self.assertEqual([{}, {}], [self.b.passed, self.b.devices])
