# SPDX-License-Identifier: Apache-2.0
"""Guests of volumes that the driver encrypts, wherever they go."""

import dataclasses
import itertools
import types
from unittest import mock

from cinder import exception
import ddt
import oslo_messaging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source
from cinder_localclone.service import rpc
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import snapshots
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import deferred_case
from tests.helpers.encrypted_attach_case import A
from tests.helpers.encrypted_attach_case import B
from tests.helpers.encrypted_attach_case import boot_of_old_home
from tests.helpers.encrypted_attach_case import Case
from tests.helpers.encrypted_attach_case import RECORDED
from tests.helpers import move_case
from tests.world import crypt
from tests.world import disks
from tests.world import iscsi
from tests.world import stack


@ddt.ddt
class GuestsTest(deferred_case.Case):
    """As those of plain volumes, through what decrypts theirs."""

    def run_decrypted(self, way, stops, faults, signal=True):
        guest = deferred_case.Guest(stops, faults, signal,
                                    provider_id=RECORDED)
        host = getattr(self, way)(guest)
        guest.check_at(host, self)
        header = guest.world.headers[guest.id]
        self.assertEqual((['0'], ['0']),
                         (list(header.slots), list(header.tokens)))
        return guest.world

    def test_a_boot_where_it_is_passed_through_and_has_left(self):
        """The key stays, though no boot could log in to the new home.

        1. While a copy is made elsewhere its guest comes back, and is served.
        2. The copy is complete. The old home has its remains, and no handle.
        """
        guest = deferred_case.Guest(provider_id=RECORDED)
        old, new = guest.nodes[A], guest.nodes[B]
        guest.detach(B)
        old.disk.sealed = {}
        guest.attach(A)
        self.assertIn(guest.id, old.disk.sealed)
        boot_of_old_home(self, guest, old, new)

    @ddt.data(*itertools.product(deferred_case.WAYS, (True, False)))
    @ddt.unpack
    def test_decrypted(self, way, signal):
        self.run_decrypted(way, (), ('cut',), signal)

    @ddt.data(*itertools.product(deferred_case.WAYS, move_case.ONE))
    @ddt.unpack
    def test_decrypted_with_a_stop_at_every_moment(self, way, faults):
        self.stop_everywhere(
            lambda stops: self.run_decrypted(way, stops, faults),
            turn=move_case.ONE.index(faults))


@ddt.ddt
class ConnectionsTest(Case):

    def test_attach_and_detach_at_home(self):
        self.a.disk.tags[self.volume.name] |= {names.FRESH}
        found = self.connect(attach_case.ON_A)
        self.assertEqual({
            'driver_volume_type': 'local', 'data': {
                'device_path': '/dev/mapper/' + self.crypt,
                'encrypted': False, 'discard': False}}, found)
        self.assertEqual(1 << 30, disks.size(self.a.devices[self.crypt]))
        self.assertIn(names.OPENED, self.tags())
        self.assertNotIn(names.FRESH, self.tags())
        self.connect(attach_case.ON_A)  # again
        self.disconnect(self.a, attach_case.ON_A)
        self.assertNotIn(self.crypt, self.a.devices)
        self.assertNotIn(names.OPENED, self.tags())

    def test_detached_from_one_of_two_nodes_with_one_iscsi_name(self):
        """It is closed there, unless that node has it by both."""
        for second, closed in (('a', False), ('b', True)):
            connectors = [dict(host=host, initiator='iqn.same')
                          for host in ('a', second)]
            self.attach('in-use', 'a', second)
            for each, connector in zip(self.volume.volume_attachment,
                                       connectors):
                each.connector = connector
            self.connect(connectors[0])
            self.disconnect(self.a, connectors[0])
            self.assertIs(closed, self.crypt not in self.a.devices)
            self.disconnect(self.a, None)  # all are
            self.assertNotIn(self.crypt, self.a.devices)

    def test_detached_from_another_node(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.disconnect(self.a, attach_case.ON_B)
        self.check_not_detached(self.a)

    def check_not_detached(self, node):
        """As its attachment says: the detach has failed."""
        self.assertIn(self.crypt, node.devices)
        self.assertEqual({}, node.node.detached)

    def test_detach_that_fails_while_an_export_ends(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        with mock.patch.object(
                iscsi.SimExports, 'withdraw_volume', autospec=True,
                side_effect=exceptions.TargetTimeout(seconds=20)):
            self.assertRaises(exceptions.TargetTimeout, self.disconnect,
                              self.a,
                              None)
        self.check_not_detached(self.a)

    def test_detach_that_a_live_move_refuses(self):
        """The guest runs there already."""
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a', None)
        self.a.opened.add(self.crypt)
        self.connect(attach_case.ON_B)
        self.attach('in-use', 'a', 'b')
        self.b.opened.add(self.crypt)
        self.assertRaises(exceptions.SourceBusy, self.disconnect, self.b,
                          attach_case.ON_B)
        self.check_not_detached(self.b)

    def test_no_boot_opens_what_has_left(self):
        """Whatever was noted of it, and never taken back."""
        lv = self.volume.name
        self.a.disk.tags[lv] |= {names.OPENED}
        self.a.move(self.volume, attach_case.B)
        self.assertNotEqual(lv, self.volume.name)
        self.assertNotIn(names.OPENED, self.a.disk.tags[lv])

    @ddt.data((stack.SimLvm, 'unmark'), (crypt.SimCrypt, 'forget_sealed'))
    @ddt.unpack
    def test_a_later_look_forgets_what_has_left(self, storage, fails):
        """What could not be forgotten at once."""
        lv = self.volume.name
        self.a.disk.tags[lv] |= {names.OPENED}
        self.a.disk.sealed = {self.volume.id: 'x'}
        with mock.patch.object(
                storage, fails, side_effect=exceptions.CommandTimeout(
                    command='x', seconds=1)):
            self.a.move(self.volume, attach_case.B)
        self.assertIn(names.OPENED, self.a.disk.tags[lv])
        self.a.reconciler.reconcile(self.volume.id)
        self.assertNotIn(names.OPENED, self.a.disk.tags[lv])
        self.assertEqual({}, self.a.disk.sealed)

    def test_what_has_left_is_forgotten_without_a_handle(self):
        """A boot has made none, so no look comes by."""
        self.a.disk.sealed = {self.volume.id: 'x'}
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        with mock.patch.object(source, 'drop_handle'):
            self.a.move(self.volume, attach_case.B)
        self.a.devices.pop(self.handle)
        self.world.settle()
        self.assertEqual({}, self.world.move_records)
        self.assertEqual({}, self.a.disk.sealed)

    def test_what_has_left_while_udev_has_lost_its_path(self):
        with mock.patch.object(stack.SimLvm, 'number_of', return_value=''):
            self.a.move(self.volume, attach_case.B)
        self.assertNotIn(self.handle, self.a.devices)

    def test_a_key_that_can_t_be_removed_at_a_detach(self):
        """By its mark a later look finds it."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        with mock.patch.object(
                crypt.SimCrypt, 'forget_sealed',
                side_effect=exceptions.CommandTimeout(
                    command='x', seconds=1)):
            self.disconnect(self.a, attach_case.ON_A)
        self.assertNotEqual({}, self.a.disk.sealed)
        self.attach('available')
        self.a.reconciler.reconcile_node()
        self.assertEqual({}, self.a.disk.sealed)

    def test_what_is_noted_for_a_boot(self):
        self.connect(attach_case.ON_A)
        self.assertLessEqual({*names.tags(
            key=self.key, luks=self.volume.id)}, set(self.tags()))
        # Its key is changed; the row says so, and the tag not yet.
        del self.a.devices[self.crypt]
        self.volume.provider_id = crypt.recorded('new')
        header = self.world.headers[self.volume.id]
        header.tokens['1'] = dataclasses.replace(
            header.tokens['0'], key='new', number='1', replaces=self.key)
        self.connect(attach_case.ON_A)
        self.assertEqual('new', names.facts(self.tags())['key'])
        self.assertNotIn(names.tags(key=self.key)[0], self.tags())

    def test_key_that_the_node_keeps(self):
        """Until nobody uses the volume here."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        self.assertEqual(self.key, self.a.disk.sealed[self.volume.id][0])
        self.disconnect(self.a, attach_case.ON_A)
        self.assertEqual({}, self.a.disk.sealed)

    def test_key_that_is_kept_where_it_is_passed_through(self):
        self.volume.group_id, self.b.disk.sealed = 'g', {}
        connector = dict(attach_case.ON_B, initiator='iqn.x')
        self.connect(connector)
        self.assertIn(self.volume.id, self.b.disk.sealed)
        self.disconnect(self.a, connector)
        with self.b.node.lock(self.volume.id):
            remote_attachment.end(self.b.node, self.volume.id)
        self.assertEqual({}, self.b.disk.sealed)

    def test_detached_while_the_node_was_down(self):
        """It has no handle when it is up again: nobody serves the volume.
        What it keeps of the key goes nevertheless.
        """
        self.volume.group_id, self.b.disk.sealed = 'g', {}
        self.connect(dict(attach_case.ON_B, initiator='iqn.x'))
        self.b.devices.clear()
        with self.b.node.lock(self.volume.id):
            remote_attachment.end(self.b.node, self.volume.id)
        self.assertEqual([{}, {}], [self.b.disk.sealed, self.b.disk.remotes])

    def test_header_of_another_volume(self):
        """No secret is asked for; and it is not noted as the right one."""
        header = self.world.headers[self.volume.id]
        for change in ({'key': 'other'}, {'key': 'other', 'replaces': 'x'}):
            header.tokens['0'] = dataclasses.replace(
                header.tokens['0'], **change)
            with mock.patch.object(crypt.SimKeys, 'get') as asked:
                self.assertRaises(
                    encryption_exceptions.ForeignHeader, self.connect,
                    attach_case.ON_A)
            asked.assert_not_called()
            self.assertNotIn('luks', names.facts(self.tags()))
            self.assertNotIn(names.OPENED, self.tags())

    def test_header_with_another_uuid(self):
        self.connect(attach_case.ON_A)
        del self.a.devices[self.crypt]
        self.world.headers[self.volume.id].uuid = 'another'
        error = self.assertRaises(encryption_exceptions.ForeignHeader,
                                  self.connect, attach_case.ON_A)
        self.assertIn('another', str(error))

    def test_row_that_names_no_secret(self):
        self.volume.provider_id = crypt.recorded('')
        self.assertRaises(encryption_exceptions.ForeignHeader, self.connect,
                          attach_case.ON_A)

    def test_what_is_noted_where_it_is_passed_through(self):
        self.volume.group_id = 'g'
        connector = dict(attach_case.ON_B, initiator='iqn.x')
        self.connect(connector)
        self.assertIn(self.crypt, self.b.devices)
        self.assertEqual({self.volume.id: (self.volume.id, self.key)},
                         self.b.disk.remotes)
        self.disconnect(self.a, connector)
        with self.b.node.lock(self.volume.id):
            remote_attachment.end(self.b.node, self.volume.id)
        self.assertNotIn(self.crypt, self.b.devices)
        self.assertEqual({}, self.b.disk.remotes)

    def test_discards(self):
        self.volume.extra_specs = {'localclone:encryption': 'luks2',
                                   'localclone:discards': 'true'}
        with mock.patch.object(
                crypt.SimCrypt, 'open', autospec=True,
                side_effect=crypt.SimCrypt.open) as opened:
            self.assertTrue(self.connect(
                attach_case.ON_A)['data']['discard'])
        self.assertEqual((self.volume.id, False, True),
                         (opened.call_args.args[1], *(
                             opened.call_args.args[3:5])))
        self.volume.extra_specs = {'localclone:encryption': 'rot13'}
        self.assertFalse(self.connect(attach_case.ON_A)['data']['discard'])

    def test_late_close(self):
        self.connect(attach_case.ON_A)
        self.a.opened.add(self.crypt)
        self.attach('in-use', 'a')
        self.disconnect(self.a, attach_case.ON_A)
        self.assertIn(self.crypt, self.a.devices)
        self.a.opened.discard(self.crypt)
        self.attach('available')
        self.world.settle()
        self.assertNotIn(self.crypt, self.a.devices)
        self.assertNotIn(names.OPENED, self.tags())

    def test_the_look_opens_what_an_attachment_names(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.stop(power=True)
        self.world.secrets.state = crypt.AWAY
        self.world.reconcile()
        self.assertNotIn(self.crypt, self.a.devices)
        self.assertIn(self.handle, self.a.devices)
        self.world.secrets.state = ''
        self.world.settle()
        self.assertIn(self.crypt, self.a.devices)

    @ddt.data((crypt.AWAY, encryption_exceptions.KeyUnavailable),
              (crypt.REFUSES, encryption_exceptions.KeyRefused))
    @ddt.unpack
    def test_no_key_at_home(self, state, error):
        self.world.secrets.state = state
        self.assertRaises(error, self.connect, attach_case.ON_A)
        self.assertNotIn(self.crypt, self.a.devices)

    @ddt.data((crypt.AWAY, encryption_exceptions.KeyUnavailable),
              (crypt.REFUSES, encryption_exceptions.KeyRefused))
    @ddt.unpack
    def test_no_key_elsewhere_and_nothing_moves(self, state, error):
        self.world.pool = 'pool'
        self.world.secrets.state = state
        before = list(self.a.lvs[self.volume.name])
        self.assertRaises(error, self.connect, attach_case.ON_B)
        self.assertEqual('a@l#p', self.volume.host)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])
        self.assertEqual(before, self.a.lvs[self.volume.name])
        self.world.secrets.state = ''
        self.connect(attach_case.ON_B)
        self.assertIn(self.crypt, self.b.devices)
        self.assertNotIn(self.crypt, self.a.devices)
        self.assertEqual('b@l#p', self.volume.host)

    def test_wrong_key_and_nothing_moves(self):
        self.world.pool = 'pool'
        self.world.headers[self.volume.id].slots = {'0': b'another'}
        self.assertRaises(encryption_exceptions.WrongKey, self.connect,
                          attach_case.ON_B)
        self.assertEqual(('a@l#p', {}), (self.volume.host, self.b.lvs))

    def test_header_that_cannot_be_read_and_nothing_moves(self):
        self.a.headers_unreadable = True
        self.assertRaises(encryption_exceptions.HeaderDamaged, self.connect,
                          attach_case.ON_B)
        self.assertEqual(('a@l#p', {}), (self.volume.host, self.b.lvs))

    @ddt.data('reserved', 'in-use', 'available', 'downloading')
    def test_hosts_without_the_backend(self, status):
        self.attach(status)
        self.assertRaises((encryption_exceptions.NotThere, exceptions.Refused),
                          self.connect, attach_case.ELSEWHERE)
        self.assertEqual(set(), self.a.remote)

    def test_restore_to_what_nobody_has_written(self):
        self.a.disk.tags[self.volume.name] |= {names.FRESH}
        self.attach('restoring-backup')
        self.assertRaises(encryption_exceptions.WouldReadNoise, self.connect,
                          attach_case.ON_A)
        self.assertIn(names.FRESH, self.tags())

    def test_extended_while_it_is_open(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.opened.add(self.crypt)
        self.volume.status = 'extending'
        self.a.reconciler.online_extend = True
        extend.extend(self.a.reconciler, self.volume.id, 2)
        self.assertEqual(2 << 30, disks.size(self.a.devices[self.crypt]))

    def test_extended_without_a_key_manager(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.opened.add(self.crypt)
        self.volume.status = 'extending'
        self.world.secrets.state = crypt.AWAY
        self.assertRaises(encryption_exceptions.KeyUnavailable, extend.extend,
                          self.a.reconciler, self.volume.id, 2)
        self.world.secrets.state = ''
        extend.extend(self.a.reconciler, self.volume.id, 2)  # again
        self.assertEqual(2 << 30, disks.size(self.a.devices[self.crypt]))

    def test_extended_with_the_key_that_the_node_keeps(self):
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.opened.add(self.crypt)
        self.volume.status = 'extending'
        self.world.secrets.state = crypt.AWAY
        extend.extend(self.a.reconciler, self.volume.id, 2)
        self.assertEqual(2 << 30, disks.size(self.a.devices[self.crypt]))

    def test_extended_with_a_kept_key_that_is_not_its_own(self):
        """Nor if the key manager does answer, and refuses."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.volume.status = 'extending'
        kept = dict(self.a.disk.sealed)
        for answer, sealed, error in (
                (crypt.REFUSES, kept, encryption_exceptions.KeyRefused),
                (crypt.AWAY, {self.volume.id: ('other', b'x')},
                 encryption_exceptions.KeyUnavailable),
                (crypt.AWAY, {self.volume.id: (self.key, b'x')},
                 encryption_exceptions.KeyUnavailable)):
            self.world.secrets.state = answer
            self.a.disk.sealed = sealed
            self.assertRaises(error, extend.extend, self.a.reconciler,
                              self.volume.id, 2)
        self.assertEqual(1 << 30, disks.size(self.a.devices[self.crypt]))

    def test_what_a_peer_says_of_keys_is_kept(self):
        error = rpc._as_own(oslo_messaging.RemoteError(
            'KeyUnavailable', 'as it was'), 'n2@l')
        self.assertIsInstance(error, encryption_exceptions.KeyUnavailable)
        self.assertEqual('On n2@l: as it was', str(error))


class DeletedTest(Case):

    def delete(self, node):
        self.volume.status = 'deleting'
        self.world.going.add(self.volume.id)
        callers.delete(node.node, self.volume)

    def test_while_it_is_being_copied(self):
        """No key opens what the source has of it, either."""
        header = self.moved()
        self.delete(self.b)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])
        self.assertEqual([{}, {}], [header.slots, self.world.secrets.kept])
        del self.world.volumes[self.volume.id]
        self.world.settle()
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def moved(self):
        """It is being copied to the other node, attached nowhere."""
        self.world.pool = 'pool'
        self.connect(attach_case.ON_B)
        self.disconnect(self.b, attach_case.ON_B)
        self.attach('available')
        return self.world.headers[self.volume.id]

    def hanging(self, what):
        return mock.patch.object(
            self.b.node.sessions, what, side_effect=(
                exceptions.CommandTimeout(command='c', seconds=30)))

    def test_session_that_does_not_end_after_its_keys_have_gone(self):
        """Nobody opens it any more: it is not called available."""
        header = self.moved()
        with self.hanging('detach'):
            self.assertRaises(exceptions.HalfDeleted, self.delete,
                              self.b)
        self.assertEqual({}, header.slots)

        def lock(name):
            raise exceptions.Busy(what=name, host='b@l', seconds=20)
        locked = types.SimpleNamespace(
            node=dataclasses.replace(self.b.node, lock=lock))
        self.assertRaises(exceptions.HalfDeleted, self.delete, locked)
        self.delete(self.b)  # an administrator has it deleted again
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])

    def test_session_that_does_not_end_before_they_go(self):
        header = self.moved()
        with self.hanging('end_if_down'):
            self.assertRaises(exceptions.CannotDelete, self.delete,
                              self.b)
        self.assertTrue(header.slots)

    def test_source_that_is_down_is_not_waited_for(self):
        self.moved()
        self.a.stop(power=True)
        steps = mock.Mock()
        steps.erase.side_effect = exceptions.CommandTimeout(
            command='c', seconds=1)
        with mock.patch.object(self.b.node.sessions, 'end_if_down',
                               steps.end_if_down), mock.patch.object(
                crypt.SimCrypt, 'erase', steps.erase):
            self.delete(self.b)
        self.assertEqual(['end_if_down', 'erase'],
                         [call[0] for call in steps.mock_calls])

    def test_by_the_row_that_cinders_migration_has_left(self):
        """Its LV has the handle, and the header, of what has gone."""
        self.world.pool = 'pool'
        self.attach('available')
        header = self.world.headers[self.volume.id]
        left = types.SimpleNamespace(**vars(self.volume))
        left.id = '00000009-0000-4000-8000-000000000000'
        left.status = 'deleting'
        self.world.volumes[left.id] = left
        self.world.going.update((left.id, self.volume.id))
        self.volume.host, self.volume.name_id = 'x@lvm#p', left.id
        self.volume.name = 'volume-' + left.id
        callers.delete(self.a.node, left)
        self.assertEqual([{}, {}], [self.a.lvs, header.slots])

    def test_what_is_open(self):
        self.connect(attach_case.ON_A)
        self.a.opened.add(self.crypt)
        self.assertRaises(exception.VolumeIsBusy, self.delete, self.a)
        self.assertTrue(self.world.headers[self.volume.id].slots)
        self.a.opened.discard(self.crypt)
        self.delete(self.a)
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_header_that_cannot_be_erased(self):
        hangs = exceptions.CommandTimeout(command='c', seconds=1)
        with mock.patch.object(crypt.SimCrypt, 'erase',
                               side_effect=hangs) as erase:
            self.delete(self.a)
        self.assertEqual(3, erase.call_count)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])


class SnapshotCase(Case):
    """A snapshot of that volume."""

    def setUp(self):
        super().setUp()
        self.world.pool = 'pool'
        self.attach('available')
        node = self.a.node
        self.snapshot_id = self.world.snapshot_row(self.volume)
        with node.lock(self.volume.id), node.lock(self.snapshot_id):
            node.snapshots.locate(self.snapshot_id, A,
                                  self.volume.encryption)
            node.lvm.create_snapshot(self.snapshot_id, self.volume.name,
                                     self.volume.id)
        self.world.set_snapshot(self.snapshot_id, status='available')
        self.world.headers[self.snapshot_id] = self.world.headers[
            self.volume.id]
        self.crypt = names.crypt(self.snapshot_id)


class SnapshotTest(SnapshotCase):
    """A backup reads it, through what decrypts it."""

    def connect(self, connector):
        return snapshots.connect(self.a.node, self.snapshot_id, connector)

    def test_on_its_node(self):
        for _repeated in range(2):
            found = self.connect(attach_case.ON_A)
            self.assertEqual({
                'driver_volume_type': 'local', 'data': {
                    'device_path': '/dev/mapper/' + self.crypt,
                    'encrypted': False}}, found)
        self.assertEqual(1 << 30, disks.size(self.a.devices[self.crypt]))
        snapshots.disconnect(self.a.node, self.snapshot_id,
                             attach_case.ON_A)
        self.assertNotIn(self.crypt, self.a.devices)
        self.assertNotIn(names.handle(self.snapshot_id), self.a.devices)

    def test_its_key_is_not_kept(self):
        """No boot opens it again."""
        self.a.disk.sealed = {}
        self.connect(attach_case.ON_A)
        self.assertEqual({}, self.a.disk.sealed)

    def test_nothing_is_written_through_it(self):
        with mock.patch.object(
                crypt.SimCrypt, 'open', autospec=True,
                side_effect=crypt.SimCrypt.open) as opened:
            self.connect(attach_case.ON_A)
        self.assertEqual((True, False, True), opened.call_args.args[3:])

    def test_on_no_other_host(self):
        self.assertRaises(encryption_exceptions.NotThere, self.connect,
                          attach_case.ELSEWHERE)
        self.assertEqual(set(), self.a.remote)
