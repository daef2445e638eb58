# SPDX-License-Identifier: Apache-2.0
"""A guest that was detached by force gets no volume back with another."""

from cinder_localclone.core import exceptions
from tests.helpers import attach_case
from tests.helpers import remote_case


class ReopenedTest(remote_case.Passed):

    def test_what_a_guest_has_open_that_lost_the_volume(self):
        """Two guests would write to one volume.

        1. A volume stays at A (here: in a group; as well: it is copied to
           A), and is passed through to a guest on B.
        2. An administrator detaches it by force; that guest goes on to run,
           and has the handle on B open. Its writes fail by now.
        3. Another instance on B attaches the volume. B logs in to A again,
           under the same iSCSI name, and puts the handle, which is open, on
           that disk.

        Then the first guest writes into the volume of the second: so far
        :func:`.remote_attachment.begin` lets through any handle that is open
            on a disk
        of a home. A move to B refuses the same (SourceBusy).

        By design: open is only right where an attachment says that this node
        passes the volume through, as it does for every look and for an
        extension.
        """
        self.unserve(self.a, None)
        self.volume.volume_attachment = []
        self.volume.status = 'available'
        self.world.reconcile()
        self.assertIn(self.handle, self.b.opened)
        self.assertRaises(IOError, self.b.write, self.volume.id, 1, 'lost')
        self.volume.volume_attachment = [
            attach_case.attachment(None, 'another vm')]
        self.volume.status = 'reserved'
        self.assertRaises(exceptions.SourceBusy, self.serve, self.connector)
        self.assertEqual(set(), self.a.remote)
        self.assertRaises(IOError, self.b.write, self.volume.id, 1, 'mixed')
