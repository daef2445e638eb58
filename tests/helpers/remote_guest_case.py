# SPDX-License-Identifier: Apache-2.0
"""A guest whose volume stays at its home: it is attached remotely."""

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import connect
from tests.helpers import deferred_case
from tests.helpers import move_case

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C


class Case(move_case.Base):
    """A guest on C, whose volume is at rest at B and passed through."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(remote_attachment,
                                                 'DEFERRED_RETRY', -1))
        self.useFixture(fixtures.MockPatchObject(connect, 'CLOSING', -1))
        self.guest = deferred_case.Guest()
        self.guest.detach(B)
        self.guest.attach(C)
        self.world, self.volume = self.guest.world, self.guest.volume
        self.home, self.there = (self.guest.nodes[each] for each in (B, C))
        self.volume.group_id = 'g'  # it stays, for now
        self.guest.live_on()
        self.assertIs(self.home, self.world.home(self.volume))
        self.assertEqual({}, self.world.move_records)
        self.assertEqual({self.guest.id: B}, self.there.remotes)

    def commit(self):
        """It follows, but its handle is not on the clone yet."""
        self.volume.group_id = None
        self.home.reconciler.reconcile(self.guest.id)
        move = self.home.node.moves.move_of(self.guest.id)
        self.assertTrue(move.committed and move.is_deferred)
        self.assertIn(self.guest.id, self.there.remote_handles())
        return move

    def swap(self):
        move = self.commit()
        self.there.reconciler.reconcile(self.guest.id)
        self.assertNotIn(self.guest.id, self.there.remote_handles())
        return move

    def handle(self, node):
        return node.devices.get(self.guest.handle)


class Kernel(fixtures.Fixture):
    """I/O in flight to a home that is away, or serves it no more, waits.

    For localclone_source_timeout, a day by default, or until the session is
    logged out. Whoever waits can't be killed, and a device with such I/O
    can't be suspended.

    :param node: where that is passed through
    """

    def __init__(self, node, handle, volume_id):
        super().__init__()
        self.node, self.handle, self.volume_id = node, handle, volume_id

    def waits(self):
        home = self.node.world.nodes.get(
            self.node.remotes.get(self.volume_id))
        return self.handle in self.node.opened and home and (
            home.dead or self.volume_id not in {
                each for each, _who in home.remote})

    def _setUp(self):
        sessions, handles = (self.node.node.sessions._inner,
                             self.node.sim_handles._inner)
        end_remote, follow = sessions.end_remote, handles.switch_to_clone

        def ended(volume_id):
            if not self.waits():
                return end_remote(volume_id)
            # What waited has failed: whoever was to be killed is.
            self.node.opened.discard(self.handle)
            return self.node.remotes.pop(volume_id) is not None

        def suspended(*args):
            if self.waits():
                raise exceptions.CommandTimeout(command='dmsetup suspend',
                                                seconds=30)
            return follow(*args)
        sessions.end_remote, handles.switch_to_clone = ended, suspended
