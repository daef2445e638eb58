# SPDX-License-Identifier: Apache-2.0
"""A request that comes late takes a volume from no newer attachment.

Nova asks twice for a detach when nova-compute is restarted in between, and
Cinder deletes the attachment after the first answer. Nova gives an attachment
up whose request takes too long. Whoever attaches the volume then may have it
before the late request is served: it waited for a lock, or for a service that
stood still.
"""

import copy
import types
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import state
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.helpers import remote_case
from tests.world import images

#: What a request means that is as old as an attachment that is gone.
EARLIER = {'an earlier one': {'host': 'b', 'initiator': 'iqn.b'}}
X, Y = ({'host': name, 'initiator': 'iqn.' + name} for name in 'xy')
HERE = {'an earlier one': {'host': 'a', 'initiator': 'iqn.a'}}


@ddt.ddt
class RemoteNotesTest(remote_case.Passed):
    """B passes the volume through; it is at home at A."""

    def test_to_begin(self):
        """Its login would end the session, and fail."""
        self.b.opened.clear()
        self.assertRaises(
            exceptions.Refused, self.a.node.peers.begin_remote, self.b.host,
            self.volume.id,
            dict(self.attached.connection_info, auth_username='earlier'),
            EARLIER)
        self.b.opened.add(self.handle)
        self.check_kept()

    def late(self, connector, *earlier):
        """What was asked for when the volume had other attachments."""
        self.a.connections.disconnect(
            self.volume.id, connector,
            {each.id: each.connector for each in earlier} or EARLIER)

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
        self.assertIn(self.volume.id, self.b.remotes)

    @ddt.data(True, False)
    def test_host_was_not_recorded_when_it_was_asked(self, by_force):
        """Nova reserves the next attachment before it deletes the last."""
        self.attached.connector = None
        self.a.connections.disconnect(
            self.volume.id, None if by_force else self.connector,
            {self.attached.id: None, **EARLIER})
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)
        self.assertIn(self.volume.id, self.b.remotes)

    def test_by_force_in_time_but_for_another(self):
        """The host that was meant is there, and this one has it since."""
        meant = attach_case.attachment('x')
        self.volume.volume_attachment.append(meant)
        self.late(None, meant)
        self.check_kept()

    @ddt.data(None, {'host': 'y', 'initiator': 'iqn.y'})
    def test_by_force_and_connected_since(self, before):
        """It was reserved then, or another host had it."""
        meant = attach_case.attachment('x')
        self.volume.volume_attachment.append(meant)
        asked = volume_attachments.as_sent(self.volume)
        self.a.connections.disconnect(self.volume.id, None, {
            **asked, self.attached.id: before})
        self.check_kept()

    @ddt.data('all', 'unnamed')
    def test_by_force_in_time(self, newer):
        self.b.opened.clear()
        asked = volume_attachments.as_sent(self.volume)
        if newer == 'unnamed':
            self.volume.volume_attachment.append(
                attach_case.attachment(None))
        self.a.connections.disconnect(self.volume.id, None, asked)
        self.assertEqual(set(), self.a.remote)

    def test_another_host_is_attached_meanwhile(self):
        """It is in time for this host."""
        self.b.opened.clear()
        self.volume.volume_attachment.append(
            attach_case.attachment('x'))
        self.late(self.connector, self.attached)
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.remotes, self.b.devices])

    @ddt.data(True, False)
    def test_what_it_leaves_the_next_look_ends(self, by_force):
        self.b.opened.clear()
        new = attach_case.attachment(None)
        self.volume.volume_attachment.append(new)
        self.late(None if by_force else self.connector, self.attached)
        self.volume.volume_attachment.remove(self.attached)
        self.volume.volume_attachment.remove(new)
        self.volume.status = 'available'
        self.world.settle()
        self.assertEqual([set(), {}, {}], [
            self.a.remote, self.b.remotes, self.b.devices])

    def delete_twice(self):
        """The host has two attachments; the one that is not used goes.

        The second request waits until it is gone.
        """
        unused = copy.copy(self.attached)
        unused.id = 'unused'
        self.volume.volume_attachment = [unused, self.attached]
        asked = volume_attachments.as_sent(self.volume)
        for _request in range(2):
            self.a.connections.disconnect(
                self.volume.id, self.connector, asked)
            self.volume.volume_attachment = [self.attached]

    def test_one_of_two_attachments_is_deleted_twice(self):
        self.delete_twice()
        self.check_kept()

    def test_one_of_two_is_deleted_twice_of_a_guest_that_is_shut_off(self):
        self.b.opened.clear()
        self.delete_twice()
        self.assertIn(self.volume.id, self.b.remotes)
        self.assertIn(self.handle, self.b.devices)

    def test_host_has_another_iscsi_name_since(self):
        self.b.opened.clear()
        self.late(dict(self.connector, initiator='iqn.old'))
        self.assertIn(self.volume.id, self.b.remotes)
        self.assertIn(self.handle, self.b.devices)

    def test_host_has_another_name_since(self):
        self.b.opened.clear()
        self.late(dict(self.connector, host='old'))
        self.assertIn(self.volume.id, self.b.remotes)
        self.assertEqual({(self.volume.id, 'iqn.b')}, self.a.remote)

    def test_nobody_has_it_any_more(self):
        """What is left of what was detached ends as ever."""
        self.b.opened.clear()
        self.volume.volume_attachment = []
        self.late(self.connector, self.attached)
        self.assertEqual(set(), self.a.remote)

    def test_to_begin_before_the_newer_one_is_recorded(self):
        """Nothing is closed here for a late request."""
        properties = dict(
            self.attached.connection_info, auth_username='earlier')
        self.attached.connection_info = None
        before = dict(self.b.devices)
        self.assertRaises(
            exceptions.Refused, self.a.node.peers.begin_remote, self.b.host,
            self.volume.id, properties, EARLIER)
        self.assertEqual(before, self.b.devices)


class MeantTest(attach_case.Base):

    def test_hosts_without_iscsi(self):
        self.attach('in-use', 'a', 'b')
        here, there = self.volume.volume_attachment
        asked = volume_attachments.as_sent(self.volume)
        self.assertEqual(
            {here.id: {'host': 'a', 'initiator': None},
             there.id: {'host': 'b', 'initiator': None}}, asked)
        self.volume.volume_attachment = [there]
        for connector, late in ((attach_case.ON_A, False),
                                (attach_case.ON_B, False), (None, True)):
            self.assertIs(late, volume_attachments.is_late_to_detach(
                self.volume, connector, asked), connector)


class AtHomeTest(encrypted_attach_case.Case):

    def test_host_was_not_recorded_when_it_was_asked(self):
        self.attach('reserved', None)
        reserved, = self.volume.volume_attachment
        self.connect(attach_case.ON_A)
        self.a.connections.disconnect(
            self.volume.id, attach_case.ON_A,
            {reserved.id: None, **HERE})
        self.assertIn(self.crypt, self.a.devices)

    def test_host_has_another_iscsi_name_since(self):
        self.attach('attaching', 'a')
        self.connect(attach_case.ON_A)
        self.a.connections.disconnect(self.volume.id, dict(
            attach_case.ON_A, initiator='iqn.installed'), HERE)
        self.assertIn(self.crypt, self.a.devices)

    def test_in_time_beside_another_that_is_to_be_made(self):
        """It is closed, though nobody knows what for that one will be."""
        self.attach('attaching', 'a')
        self.connect(attach_case.ON_A)
        old, = self.volume.volume_attachment
        self.volume.status = 'in-use'
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        self.a.connections.disconnect(
            self.volume.id, attach_case.ON_A,
            {old.id: {'host': 'a', 'initiator': None}})
        self.assertNotIn(self.crypt, self.a.devices)

    def test_guest_finds_it_open(self):
        """It is about to run where the volume was decrypted for it."""
        self.attach('attaching', 'a')
        self.connect(attach_case.ON_A)
        self.a.connections.disconnect(
            self.volume.id, attach_case.ON_A, HERE)
        self.assertIn(self.crypt, self.a.devices)


@ddt.ddt
class ExportedTest(attach_case.Base):

    def test_to_connect_it_elsewhere(self):
        """It would move, from where the next guest is about to open it."""
        self.connect(attach_case.ON_A)
        error = self.assertRaises(
            exceptions.Refused, self.a.connections.connect, self.volume.id,
            attach_case.ON_B, EARLIER)
        self.assertIn('cannot be connected to b: the request came too late',
                      str(error))
        self.assertIsNone(self.move())
        self.assertIn(self.handle, self.a.devices)

    def test_another_host_was_asked_for_since(self):
        """Nova has given it up, and asked once more for the same attachment.

        Cinder would write this host into the row of what the other one has.
        """
        asked = volume_attachments.as_sent(self.volume)
        self.connect(attach_case.ON_A)
        self.attach_at('a')
        self.assertRaises(
            exceptions.Refused, self.a.connections.connect, self.volume.id,
            attach_case.ELSEWHERE, asked)
        self.assertEqual(set(), self.a.remote)

    @ddt.data('x', 'elsewhere')
    def test_in_time_though_another_is_connected_since(self, host):
        """The instance's other attachment, or the same one by a repeat."""
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        asked = volume_attachments.as_sent(self.volume)
        self.attach_at(host)
        self.a.connections.connect(
            self.volume.id, attach_case.ELSEWHERE, asked)
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)

    def test_in_time_as_its_own_attachment_was_connected_since(self):
        asked = volume_attachments.as_sent(self.volume)
        self.attach_at('x')
        self.a.connections.connect(
            self.volume.id, attach_case.ELSEWHERE, asked)
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)

    def test_what_no_attachment_is_for(self):
        """A client that attaches in two calls asks; its row comes last."""
        self.attach_at('a')
        asked = volume_attachments.as_sent(self.volume)
        self.assertFalse(volume_attachments.is_late_to_connect(
            self.volume, attach_case.ELSEWHERE, asked))

    @ddt.data(True, False)
    def test_another_has_come_for_one_that_is_gone(self, is_late):
        """It may be for the one that is left, or for the one that is not."""
        asked = volume_attachments.as_sent(self.volume)
        if is_late:
            asked.update(EARLIER)
        self.volume.volume_attachment.append(
            attach_case.attachment('a'))
        self.assertIs(is_late, volume_attachments.is_late_to_connect(
            self.volume, attach_case.ELSEWHERE, asked))

    def test_of_cinder_itself_after_the_guest_has_gone(self):
        """It reads an image from what an instance had here."""
        self.assertFalse(volume_attachments.is_late_to_connect(
            types.SimpleNamespace(volume_attachment=[]),
            attach_case.ON_B, EARLIER))

    def attach_at(self, host):
        attached, *_more = self.volume.volume_attachment
        attached.connector = {'host': host, 'initiator': 'iqn.' + host}

    def test_in_time_though_another_is_gone(self):
        """It ended meanwhile, as the request for it did."""
        asked = volume_attachments.as_sent(self.volume)
        self.a.connections.connect(
            self.volume.id, attach_case.ON_B,
            {**asked, 'of an earlier try': None})
        self.assertIs(self.b, self.world.home(self.volume))

    def test_in_time_beside_another_that_is_to_be_made(self):
        """A tenant may reserve the volume for its instance once more."""
        asked = volume_attachments.as_sent(self.volume)
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        self.a.connections.connect(
            self.volume.id, attach_case.ON_B, asked)
        self.assertIs(self.b, self.world.home(self.volume))


class RepeatTest(attach_case.Base):
    """Nova asks once more for an attachment whose first request hangs."""

    CONNECTOR = {'host': 'b', 'initiator': 'iqn.b'}

    def setUp(self):
        super().setUp()
        self.volume.group_id = 'g'  # it stays where it is
        self.calls = []

    def hang(self, *args):
        """B stands still: its answer does not come in time."""
        self.calls.append(args)
        raise exceptions.PeerUnreachable(
            host='b', method='begin_remote', seconds=40)

    def ask(self):
        """What the node is told to log in with."""
        return self.connect(self.CONNECTOR)['data']['auth_password']

    def give_up(self):
        with mock.patch.object(
                self.a.node.peers, 'begin_remote', self.hang):
            self.assertRaises(exceptions.PeerUnreachable, self.ask)
        return self.calls[-1][2]['auth_password']

    def test_first_one_is_exported_after_its_repeat(self):
        self.give_up()
        properties = self.connect(self.CONNECTOR)
        attached, = self.volume.volume_attachment
        attached.connector = self.CONNECTOR
        attached.connection_info = dict(
            properties['data'], driver_volume_type='local')
        self.a.node.peers.begin_remote(*self.calls[0])
        self.b.write(self.volume.id, 1, 'new')
        self.assertEqual('new', self.a.read(self.volume.id, 1))

    def test_secret_is_used_once(self):
        """By whom it was offered to, and not after a detach."""
        with mock.patch.object(
                iscsi, 'new_credentials',
                side_effect=('CHAP u %d' % each for each in range(9))):
            first = self.give_up()
            self.assertEqual(first, self.give_up())
            self.assertEqual(first, self.ask())
            self.assertNotEqual(first, self.ask())
            for connector in (self.CONNECTOR, None):
                again = self.give_up()
                self.a.disconnect(self.volume, connector)
                self.assertNotEqual(again, self.ask())

    def test_another_host_keeps_the_volume(self):
        """What was offered in vain ends, and nothing else."""
        properties = self.connect(attach_case.ELSEWHERE)
        attached, = self.volume.volume_attachment
        attached.connector = attach_case.ELSEWHERE
        attached.connection_info = dict(
            properties['data'], driver_volume_type='iscsi')
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        self.give_up()
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)


@ddt.ddt
class LiveTest(attach_case.Base):

    def test_live_migration_is_not_rolled_back(self):
        """It goes to the host that an earlier guest was detached from."""
        self.attach('in-use', 'a', None)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'a', 'b')
        move = self.move()
        self.b.connections.disconnect(
            self.volume.id, attach_case.ON_B, EARLIER)
        self.assertEqual(move, self.move())
        self.assertIn(self.handle, self.b.devices)

    def test_an_earlier_one_of_that_host_is_deleted_twice(self):
        """Both were there when Cinder asked."""
        self.attach('in-use', 'a', None)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'a', 'b')
        _source, there = self.volume.volume_attachment
        self.b.connections.disconnect(
            self.volume.id, attach_case.ON_B,
            {there.id: there.connector, **EARLIER})
        self.assertIsNotNone(self.move())

    def test_host_was_not_recorded_when_it_was_asked(self):
        self.attach('in-use', 'a', None)
        _source, there = self.volume.volume_attachment
        self.connect(attach_case.ON_B)
        self.b.connections.disconnect(
            self.volume.id, attach_case.ON_B,
            {there.id: None, **EARLIER})
        self.assertIs(state.Phase.STARTING, self.move().phase)

    @ddt.data(attach_case.ON_A, attach_case.ON_B)
    def test_in_time_beside_another_that_is_to_be_made(self, left):
        """It goes forward, or back, though its attachment may stay."""
        self.attach('in-use', 'a', None)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'a', 'b')
        node = self.world.nodes[left['host'] + '@l']
        asked = volume_attachments.as_sent(self.volume)
        self.volume.volume_attachment.append(
            attach_case.attachment(None))
        node.connections.disconnect(self.volume.id, left, asked)
        self.assertIsNot(state.Phase.STARTING, self.move() and
                         self.move().phase)


class OldApiTest(attach_case.Base):
    """A client that attaches in two calls: its row is there first, or last."""

    def setUp(self):
        super().setUp()
        self.attach('in-use', None)
        self.connect(attach_case.ELSEWHERE)
        self.volume.volume_attachment[0].mountpoint = '/dev/vdb'

    def ask(self, attachments):
        self.a.connections.disconnect(
            self.volume.id, attach_case.ELSEWHERE, attachments)

    def test_in_time(self):
        self.ask({self.volume.volume_attachment[0].id: None})
        self.assertEqual(set(), self.a.remote)

    def test_late_as_its_host_is_recorded(self):
        attached, = self.volume.volume_attachment
        attached.connector = attach_case.ELSEWHERE
        self.ask({attached.id: None})
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)

    def test_late(self):
        self.ask({'an earlier one': None})
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)


@ddt.ddt
class TableTest(testtools.TestCase):
    """Attachments of X and of Y, and some that name no host, by id."""

    def late(self, rule, before, now):
        volume = types.SimpleNamespace(volume_attachment=[
            images.attachment(id=each, connector=host)
            for each, host in now.items()])
        return rule(volume, X, before)

    @ddt.data(
        # Another host has it, too.
        ({'1': None}, {'1': None, '2': Y}, False),
        # What might have been meant is another host's by now.
        ({'1': X, '2': None}, {'1': X, '2': Y}, False),
        # One of two was given to another host, or by another host.
        ({'1': X, '2': X}, {'1': Y, '2': X}, True),
        ({'1': X, '2': Y}, {'1': X, '2': X}, True),
        # It may be for any host now.
        ({'1': Y}, {'1': None}, True))
    @ddt.unpack
    def test_to_detach(self, before, now, is_late):
        self.assertIs(is_late, self.late(
            volume_attachments.is_late_to_detach, before, now))

    def test_to_connect_what_has_been_given_to_another_host(self):
        """The one that is X's by now was not meant."""
        self.assertIs(True, self.late(
            volume_attachments.is_late_to_connect,
            {'1': None, '2': Y}, {'1': Y, '2': X}))


class WaitedTest(attach_case.Base):
    """The volume is attached anew while a request waits for its lock."""

    def meanwhile(self, node, *hosts):
        """What is there when a node's lock is had."""
        inner = node.lock

        def lock(name):
            if name == self.volume.id:
                self.attach(self.volume.status, *hosts)
            return inner(name)
        return mock.patch.object(node, 'lock', lock)

    def test_to_connect(self):
        asked = volume_attachments.as_sent(self.volume)
        with self.meanwhile(self.a, 'a'):
            self.assertRaises(
                exceptions.Refused, self.a.connections.connect, self.volume.id,
                attach_case.ELSEWHERE, asked)
        self.assertEqual(set(), self.a.remote)

    def test_to_detach(self):
        """Its row is read when the lock is held."""
        self.attach('in-use', 'x')
        self.connect(attach_case.ELSEWHERE)
        asked = volume_attachments.as_sent(self.volume)
        volumes = self.a.node.volumes
        inner = volumes.volume

        def read(volume_id):
            found = inner(volume_id)
            return types.SimpleNamespace(**vars(found))
        with self.meanwhile(self.a, 'x'), mock.patch.object(
                volumes, 'volume', read):
            self.a.connections.disconnect(
                self.volume.id, attach_case.ELSEWHERE, asked)
        self.assertEqual({(self.volume.id, 'iqn.x')}, self.a.remote)

    def test_to_pass_it_through(self):
        """B waits; the home has told which attachments it knew."""
        self.volume.group_id = 'g'
        with self.meanwhile(self.b, 'b'):
            self.assertRaises(
                exceptions.Refused, self.connect,
                dict(attach_case.ON_B, initiator='iqn.b'))
        self.assertNotIn(self.handle, self.b.devices)
        self.assertEqual(set(), self.a.remote)
