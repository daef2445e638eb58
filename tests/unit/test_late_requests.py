# SPDX-License-Identifier: Apache-2.0
"""A request that comes late takes a volume from no newer attachment.

Nova asks twice for a detach when nova-compute is restarted in between, and
Cinder deletes the attachment after the first answer. Nova gives an attachment
up whose request takes too long. Whoever attaches the volume then may have it
before the late request is served: it waited for a lock, or for a service that
stood still.
"""

import ddt

from cinder_localclone import exceptions
from tests.unit import test_connections
from tests.unit import test_encrypted_guests
from tests.unit import test_passing


@ddt.ddt
class PassedTest(test_passing.Passed):
    """B passes the volume through; it is at home at A."""

    def test_to_begin(self):
        """Its login would end the session, and fail."""
        self.b.opened.clear()
        self.assertRaises(
            exceptions.Refused, self.a.node.peers.begin_passing, None,
            self.b.host, self.volume.id,
            dict(self.attached.connection_info, auth_username='earlier'),
            ['an earlier one'])
        self.b.opened.add(self.handle)
        self.check_kept()

    def late(self, connector, *earlier):
        """What was asked for when the volume had other attachments."""
        self.a.connections.unserve(
            None, self.volume.id, connector,
            [each.id for each in earlier] or ['an earlier one'])

    def check_kept(self):
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    @ddt.data(True, False)
    def test_guest_keeps_its_disk(self, by_force):
        self.late(None if by_force else self.connector)
        self.check_kept()

    def test_guest_that_has_not_begun(self):
        self.b.opened.clear()
        self.late(self.connector)
        self.b.opened.add(self.handle)
        self.check_kept()

    @ddt.data(True, False)
    def test_host_is_not_recorded_yet(self, by_force):
        """It is told where the export is; then Cinder writes it down."""
        self.attached.connector = None
        self.late(None if by_force else self.connector)
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.assertIn(self.volume.id, self.b.passed)

    def test_another_host_is_attached_meanwhile(self):
        """It is in time for this host."""
        self.b.opened.clear()
        self.volume.volume_attachment.append(
            test_connections.attachment('x'))
        self.late(self.connector, self.attached)
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.passed, self.b.devices])

    @ddt.data(True, False)
    def test_what_it_leaves_the_next_look_ends(self, by_force):
        self.b.opened.clear()
        new = test_connections.attachment(None)
        self.volume.volume_attachment.append(new)
        self.late(None if by_force else self.connector, self.attached)
        self.volume.volume_attachment.remove(self.attached)
        self.volume.volume_attachment.remove(new)
        self.volume.status = 'available'
        self.world.settle()
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.passed, self.b.devices])


class AtHomeTest(test_encrypted_guests.Case):

    def test_guest_finds_it_open(self):
        """It is about to run where the volume was decrypted for it."""
        self.attach('attaching', 'a')
        self.serve(test_connections.ON_A)
        self.a.connections.unserve(
            None, self.volume.id, test_connections.ON_A, ['an earlier one'])
        self.assertIn(self.crypt, self.a.devices)


class ServedTest(test_connections.Base):

    def test_to_connect_it_elsewhere(self):
        """It would move, from where the next guest is about to open it."""
        self.serve(test_connections.ON_A)
        error = self.assertRaises(
            exceptions.Refused, self.a.connections.serve, None,
            self.volume.id, test_connections.ON_B, ['an earlier one'])
        self.assertIn('cannot be connected to b: the request came late',
                      str(error))
        self.assertIsNone(self.move())
        self.assertIn(self.handle, self.a.devices)


class LiveTest(test_connections.Base):

    def test_live_migration_is_not_rolled_back(self):
        """It goes to the host that an earlier guest was detached from."""
        self.attach('in-use', 'a', None)
        self.serve(test_connections.ON_B)
        self.attach('in-use', 'a', 'b')
        move = self.move()
        self.b.connections.unserve(
            None, self.volume.id, test_connections.ON_B, ['an earlier one'])
        self.assertEqual(move, self.move())
        self.assertIn(self.handle, self.b.devices)
