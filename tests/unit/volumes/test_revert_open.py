# SPDX-License-Identifier: Apache-2.0
"""Whoever has a handle open where a volume reverts to does not get it."""

import types

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from tests.helpers import revert_case

A, B = revert_case.A, revert_case.B


class RevertedOntoOpenTest(revert_case.Base):

    def test_a_guest_that_was_detached_by_force(self):
        """It would write into what the volume was reverted to.

        1. A snapshot was taken on A; the volume's home is B. It was passed
           through to a guest on A (it was copied to B, or in a group).
        2. An administrator detaches it by force. That guest goes on to run,
           and has the handle on A open; its writes fail.
        3. The volume, which is available, is reverted to the snapshot. That
           is checked at B to be closed, not at A, where it will be: A's next
           look swaps the open handle onto the volume's new LV.

        Then a guest that has the volume no more writes into it, beside
        whoever attaches it next. The same with a handle that has stayed on A
        because something had opened it as the volume left
        (:func:`.source.drop_handle`).

        By design: the node that makes the body that a volume reverts to
        checks that nothing has the handle open there, as the destination of
        a move does (:func:`.destination._check_handle`).
        """
        world, volume, snapshot, _old, written = self.prepared(B)
        a, b = world.nodes[A], world.nodes[B]
        handle = names.handle(volume.id)
        connector = {'host': 'a', 'initiator': 'iqn.a'}
        attached = types.SimpleNamespace(
            id='one', instance_uuid='vm', connection_info=None,
            mountpoint=None, attach_status='reserved', connector=None)
        volume.group_id, volume.status = 'g', 'reserved'
        volume.volume_attachment = [attached]
        b.serve(volume, connector)
        a.opened.add(handle)
        b.unserve(volume, None)
        volume.volume_attachment, volume.status = [], 'available'
        world.reconcile()
        self.assertIn(handle, a.devices)
        self.assertRaises(
            exceptions.SourceBusy, self.revert, world, volume, snapshot, B)
        world.reconcile()
        self.assertNotEqual(volume.name, a.devices[handle]['below'])
        self.assertEqual(written, self.all_of(world, volume))
