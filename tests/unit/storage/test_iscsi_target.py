# SPDX-License-Identifier: Apache-2.0
"""What is served to whom, and again after a reboot."""

import dataclasses
import json
import os
import socket
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import state
from cinder_localclone.storage import iscsi_target
from cinder_localclone.volumes import reconcile
from tests.helpers import driver_case
from tests.world import images

VOLUME = '6f0a3ef4-5b4f-4fd0-9a3e-2f1f0d8f7a11'
INITIATOR = 'iqn.2026-11.org.example:node1'
HOST = 'n2@l'


SHADOW = '51e30e7e-5c89-49f1-ab06-345647e00115'
HANDLE = names.handle(VOLUME)
DEVICE = names.source(SHADOW)
SOURCE = 'iqn.x:localclone-' + SHADOW
REMOTE = iscsi.remote_iqn('iqn.x:', VOLUME, INITIATOR)
MOVE = state.Move(
    VOLUME, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                                state.Geometry(128, 32, 8)), False, 'a@l',
    'b@l', 'volume-' + VOLUME, 'volume-' + SHADOW, 1,
    auth='CHAP user secret', initiator=INITIATOR,
    location='192.0.2.12:3260,1 %s 0' % SOURCE)

#: Of a node with two addresses of one network.
ROUTES = '''Local:
  +-- 0.0.0.0/0 2 0 2
     +-- 192.0.2.0/24 2 0 2
        +-- 192.0.2.0/27 2 0 1
           |-- 192.0.2.0
              /24 host LOCAL
           |-- 192.0.2.11
              /32 host LOCAL
           |-- 192.0.2.31
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
'''


@ddt.ddt
class ExportedTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.lio = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio')).mock
        self.configfs = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio_configfs')).mock
        self.serve()
        self.unused()
        self.exports = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260)

    def unused(self, *stores):
        self.configfs.unused_backstores.return_value = json.dumps(stores)

    def serve(self, *targets):
        self.configfs.exports.return_value = json.dumps([
            {'iqn': iqn, 'devices': devices} for iqn, devices in targets])
        self.configfs.targets.return_value = json.dumps(
            [iqn for iqn, _devices in targets])

    def assertExported(self, iqn, device, readonly, user, password):
        self.lio.export.assert_called_once_with(
            iqn, device, '/dev/mapper/' + device, VOLUME, readonly,
            '192.0.2.12', 3260, INITIATOR, user, password)

    @ddt.data(True, False)
    def test_source_read_only_to_its_destination(self, did):
        self.lio.export.return_value = did
        self.assertIs(did, self.exports.export_source(MOVE))
        self.assertExported(SOURCE, DEVICE, True, 'user', 'secret')

    @ddt.data(True, False)
    def test_source_is_only_looked_at(self, there):
        """By what it would be offered with."""
        self.lio.is_exported.return_value = there
        self.assertIs(there, self.exports.is_source_exported_as_recorded(MOVE))
        self.lio.export.assert_not_called()
        self.exports.export_source(MOVE)
        self.assertEqual(self.lio.export.call_args,
                         self.lio.is_exported.call_args)
        for lacking in ({'initiator': None}, {'auth': None}):
            self.assertFalse(self.exports.is_source_exported_as_recorded(
                dataclasses.replace(MOVE, **lacking)))

    @ddt.data({'initiator': None}, {'initiator': ''}, {'auth': None})
    def test_to_nobody_if_the_record_does_not_say(self, lacking):
        error = self.assertRaises(
            exceptions.ExportFailed, self.exports.export_source,
            dataclasses.replace(MOVE, **lacking))
        self.assertIn(VOLUME, str(error))
        self.lio.export.assert_not_called()

    def test_source_location(self):
        self.assertEqual('192.0.2.12:3260,1 %s 0' % SOURCE,
                         self.exports.source_location(SHADOW))

    @ddt.data('fd00:db8::11', '[fd00:db8::11]', 'FD00:DB8::11',
              '[FD00:0db8::0011]', 'fd00:0db8:0000:0000:0000:0000:0000:0011')
    def test_ipv6_in_every_form(self, address):
        """Of target_ip_address: one for the kernel, one for initiators."""
        exports = iscsi_target.Exports('iqn.x:', address, 3260)
        self.assertEqual('[fd00:db8::11]:3260', exports.portal)
        self.assertEqual('[fd00:db8::11]:3260,1 %s 0' % SOURCE,
                         exports.source_location(SHADOW))
        told = exports.export_volume(VOLUME, INITIATOR, 'CHAP u p')
        self.assertEqual('[fd00:db8::11]:3260', told['target_portal'])
        self.assertEqual('fd00:db8::11', self.lio.export.call_args.args[5])

    def test_a_prefix_with_capitals(self):
        """rtslib makes names without: nobody would find these."""
        exports = iscsi_target.Exports('iqn.X:', '192.0.2.12', 3260)
        self.assertEqual('192.0.2.12:3260,1 %s 0' % SOURCE,
                         exports.source_location(SHADOW))
        exports.exported()
        self.configfs.targets.assert_called_once_with()

    @ddt.data(True, False)
    def test_source_is_withdrawn(self, did):
        self.serve((SOURCE, []))
        self.lio.unexport.return_value = did
        self.assertIs(did, self.exports.withdraw_source(SHADOW))
        self.lio.unexport.assert_called_once_with(SOURCE, DEVICE)

    def test_no_source_is_withdrawn_but_that_of_the_move(self):
        other = 'iqn.x:localclone-' + VOLUME
        self.serve((other, []))
        self.assertFalse(self.exports.withdraw_source(SHADOW))
        self.serve((other, []), (SOURCE, []))
        self.exports.withdraw_source(SHADOW)
        self.lio.unexport.assert_called_once_with(SOURCE, DEVICE)

    def test_the_target_is_not_asked_for_what_is_withdrawn_already(self):
        self.serve()
        self.assertFalse(self.exports.withdraw_unnamed(VOLUME, {REMOTE}))
        self.lio.unexport.assert_not_called()

    def test_volume_for_writing_to_a_host_without_the_backend(self):
        found = self.exports.export_volume(VOLUME, INITIATOR,
                                           'CHAP user secret')
        self.assertExported(REMOTE, HANDLE, False, 'user', 'secret')
        self.assertEqual({
            'target_portal': '192.0.2.12:3260', 'target_iqn': REMOTE,
            'target_lun': 0, 'target_discovered': False,
            'auth_method': 'CHAP', 'auth_username': 'user',
            'auth_password': 'secret', 'volume_id': VOLUME}, found)

    @ddt.data(True, False)
    def test_only_to_be_read(self, readonly):
        self.exports.export_volume(VOLUME, INITIATOR, 'CHAP user secret',
                                   readonly=readonly)
        self.assertExported(REMOTE, HANDLE, readonly, 'user', 'secret')

    def test_what_is_passed_through_has_a_name_of_its_own(self):
        """Each logs out of its own, and nobody of the other's."""
        exports = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260, HOST)
        found = [exports.export_volume(
            VOLUME, INITIATOR, 'CHAP user secret', **how)['target_iqn']
            for how in ({'remote': True}, {'remote': False}, {})]
        self.assertEqual([iscsi.attachment_iqn(
            'iqn.x:', VOLUME, INITIATOR, HOST), REMOTE, REMOTE], found)
        self.assertEqual(found, [
            call.args[0] for call in self.lio.export.mock_calls])

    @ddt.data(
        ([], False, False),
        ([(SOURCE, ['/dev/mapper/' + DEVICE])], False, True),
        ([(REMOTE, ['/dev/mapper/' + HANDLE])], True, False),
        ([(SOURCE, ['/dev/mapper/' + DEVICE]),
          (REMOTE, ['/dev/mapper/' + HANDLE])], True, True),
        ([(REMOTE, [names.export_device_path(VOLUME)])], True, False),
        ([('iqn.y:foreign', ['/dev/mapper/' + HANDLE])], True, False),
        ([(REMOTE, ['/dev/mapper/localclone-another'])], False, False),
        ([(SOURCE, [])], False, False))
    @ddt.unpack
    def test_what_is_exported(self, targets, handle, source):
        self.serve(*targets)
        self.assertIs(handle, self.exports.is_exported(VOLUME))
        self.assertIs(source, self.exports.is_source_exported(SHADOW))
        self.assertEqual([mock.call()] * 2,
                         self.configfs.exports.mock_calls)

    def test_volume_with_a_upper(self):
        """All that is served of a volume shares one backstore."""
        path = names.export_device_path(VOLUME)
        self.lio.export.return_value = True
        found = self.exports.export_volume(
            VOLUME, INITIATOR, 'CHAP user secret', remote=True, device=path)
        self.assertTrue(self.exports.export_again(
            VOLUME, INITIATOR, found, path))
        call = mock.call(
            found['target_iqn'], HANDLE, path, VOLUME, False, '192.0.2.12',
            3260, INITIATOR, 'user', 'secret')
        self.assertEqual([call, call], self.lio.export.mock_calls)

    def test_exported_and_to_whom(self):
        self.serve((SOURCE, []), (REMOTE, []), ('iqn.x:foreign', []))
        self.assertEqual({SOURCE, REMOTE, 'iqn.x:foreign'},
                         self.exports.exported())
        self.assertEqual({VOLUME: {REMOTE}}, self.exports.remote())

    def test_backstore_that_nothing_exports_opens_the_device(self):
        self.unused(HANDLE, 'localclone-another')
        self.assertTrue(self.exports.has_open_unexported(VOLUME))
        self.assertFalse(self.exports.has_open_unexported(SHADOW))

    def test_volume_is_withdrawn_from_one(self):
        self.serve((REMOTE, []), (SOURCE, []))
        self.lio.unexport.return_value = True
        self.assertTrue(self.exports.withdraw_volume(VOLUME, INITIATOR))
        self.lio.unexport.assert_called_once_with(REMOTE, HANDLE)

    def test_volume_is_withdrawn_from_all_but_destinations(self):
        other = iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.of:another')
        strange = iscsi.remote_iqn('iqn.x:', SHADOW, INITIATOR)
        self.serve((SOURCE, []), (REMOTE, []), (strange, []), (other, []))
        self.lio.unexport.side_effect = [False, True]
        self.assertTrue(self.exports.withdraw_volume(VOLUME, None))
        self.lio.unexport.assert_has_calls([
            mock.call(REMOTE, HANDLE), mock.call(other, HANDLE)],
            any_order=True)
        self.assertEqual(2, self.lio.unexport.call_count)

    def test_one_that_hangs_does_not_keep_the_others(self):
        """It is asked first each time, and may hang for days."""
        other = iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.of:another')
        first, second = sorted((REMOTE, other))
        self.serve((first, []), (second, []))
        for withdraw in (
                lambda: self.exports.withdraw_volume(VOLUME, None),
                lambda: self.exports.withdraw_unnamed(
                    VOLUME, {first, second})):
            self.lio.unexport.reset_mock()
            self.lio.unexport.side_effect = [
                exceptions.TargetHangs(target=first, since='long ago'), True]
            self.assertRaises(exceptions.TargetHangs, withdraw)
            self.assertEqual([mock.call(first, HANDLE),
                              mock.call(second, HANDLE)],
                             self.lio.unexport.mock_calls)

    def test_nothing_to_withdraw(self):
        """The kernel's target may hang: it is not called."""
        self.serve(('iqn.x:foreign', ['/dev/mapper/' + HANDLE]))
        self.unused('localclone-another')
        self.assertFalse(self.exports.withdraw_volume(VOLUME, None))
        self.assertFalse(self.exports.withdraw_volume(VOLUME, INITIATOR))
        self.assertFalse(self.exports.withdraw_source(SHADOW))
        self.assertEqual([], self.exports.withdraw_strays(
            lambda move_id: False))
        self.assertEqual([], self.lio.mock_calls)

    def test_backstore_goes_with_its_volume(self):
        self.unused(HANDLE, DEVICE)
        self.lio.unexport.return_value = True
        for which in (None, INITIATOR):
            self.assertTrue(self.exports.withdraw_volume(VOLUME, which))
        self.assertTrue(self.exports.withdraw_source(SHADOW))
        self.assertEqual([mock.call('', HANDLE), mock.call('', HANDLE),
                          mock.call('', DEVICE)],
                         self.lio.unexport.mock_calls)

    def test_backstores_that_stay_unused_are_removed(self):
        for store in (HANDLE, DEVICE):
            self.lio.unexport.reset_mock()
            for seen, removed in (([store], 0), ([], 0), ([store], 0),
                                  ([store, 'localclone-new'], 1)):
                self.unused(*seen)
                self.exports.withdraw_strays(lambda move_id: True)
                self.assertEqual(removed, self.lio.unexport.call_count)
            self.lio.unexport.assert_called_once_with('', store)

    def test_a_stray_that_hangs_stops_nothing(self):
        """Not the other strays, and not the start of a service."""
        other = 'iqn.x:localclone-' + VOLUME
        self.serve((SOURCE, []), (other, []))
        self.lio.unexport.side_effect = [
            exceptions.TargetTimeout(seconds=20), True]
        with mock.patch.object(iscsi_target, 'LOG') as log:
            self.assertEqual([VOLUME], self.exports.withdraw_strays(
                lambda move_id: False))
        self.assertIn(SOURCE, str(log.error.call_args.args))
        self.assertEqual(2, self.lio.unexport.call_count)

    @ddt.data('exports', 'unused_backstores')
    def test_a_look_that_fails_stops_nothing(self, look):
        """Not the start of a service, nor the delete of what is local."""
        self.serve((SOURCE, []))
        self.lio.unexport.return_value = True
        for error in (OSError(5, 'I/O error'), exceptions.LocalCloneError()):
            getattr(self.configfs, look).side_effect = error
            with mock.patch.object(iscsi_target, 'LOG') as log:
                self.assertEqual(
                    [] if look == 'exports' else [SHADOW],
                    self.exports.withdraw_strays(lambda move_id: False))
            self.assertIs(error, log.error.call_args.args[-1])

    def test_problem(self):
        self.configfs.hanging.return_value = []
        self.assertEqual('', self.exports.problem())
        self.configfs.hanging.return_value = [SOURCE, REMOTE]
        self.assertEqual(
            'its iSCSI target hangs: a change of %s, %s waits for an '
            'unresponsive device' % (SOURCE, REMOTE), self.exports.problem())
        self.configfs.hanging.assert_called_with(iscsi_target.PROBE_TIMEOUT)
        self.configfs.hanging.return_value = ['iqn.x:of-others']
        self.assertEqual('', self.exports.problem())

    def test_the_last_that_is_exported(self):
        other = iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.of:another')
        strange = iscsi.remote_iqn('iqn.x:', SHADOW, INITIATOR)
        for exported, last in (
                ([], ()), ([SOURCE, strange], ()),
                ([SOURCE, REMOTE], (INITIATOR, None)),
                ([REMOTE, other], (None,)), ([other], (None,))):
            self.serve(*[(iqn, []) for iqn in exported])
            self.assertEqual(last, tuple(
                each for each in (INITIATOR, None)
                if self.exports.is_last(VOLUME, each)))

    def test_what_is_just_being_exported_is_not_unnamed(self):
        """Cinder learns of it only when it is served."""
        self.serve((REMOTE, []))
        self.lio.export.side_effect = lambda *_all: (
            self.exports.withdraw_unnamed(VOLUME, {REMOTE}))
        self.exports.export_volume(VOLUME, INITIATOR, 'CHAP user secret')
        self.lio.unexport.assert_not_called()

    def test_what_could_not_be_withdrawn_is_by_the_next_look(self):
        """Though it was offered a moment ago."""
        self.exports.export_volume(VOLUME, INITIATOR, 'CHAP user secret')
        self.serve((REMOTE, []))
        self.assertFalse(self.exports.withdraw_unnamed(VOLUME, {REMOTE}))
        self.lio.unexport.side_effect = [
            exceptions.TargetTimeout(seconds=20), True]
        self.assertRaises(exceptions.TargetTimeout,
                          self.exports.withdraw_volume, VOLUME, INITIATOR)
        self.assertTrue(self.exports.withdraw_unnamed(VOLUME, {REMOTE}))

    def test_ended_before_its_exports_are_listed(self):
        """A sweep meanwhile must not export the volume again."""
        properties = self.exports.export_volume(VOLUME, INITIATOR,
                                                'CHAP user secret')

        def sweep():
            self.assertFalse(self.exports.export_again(
                VOLUME, INITIATOR, properties))
            return '[]'
        self.configfs.targets.side_effect = sweep
        self.exports.withdraw_volume(VOLUME, INITIATOR)
        self.configfs.targets.assert_called_once_with()

    def test_left_of_an_export_without_a_target(self):
        """Its backstore keeps the handle open."""
        self.unused(HANDLE)
        self.assertTrue(self.exports.withdraw_unnamed(VOLUME, {REMOTE}))
        self.lio.unexport.assert_called_once_with(REMOTE, HANDLE)

    def test_one_of_several_exports_fails(self):
        others = [iscsi.remote_iqn('iqn.x:', VOLUME, 'iqn.%s' % each)
                  for each in 'abc']
        self.serve(*((each, []) for each in others))
        self.lio.unexport.side_effect = [True, False, False]
        self.assertTrue(self.exports.withdraw_volume(VOLUME, None))
        first, last = (exceptions.TargetTimeout(seconds=each)
                       for each in (1, 2))
        self.lio.unexport.side_effect = [first, True, last]
        self.assertIs(first, self.assertRaises(
            exceptions.TargetTimeout, self.exports.withdraw_volume, VOLUME,
            None))
        self.assertEqual(6, self.lio.unexport.call_count)

    def test_sources_of_moves_that_are_over(self):
        over = 'iqn.x:localclone-' + VOLUME
        self.serve((SOURCE, ['/dev/mapper/' + DEVICE]),
                   (over, [names.source_path(VOLUME)]), (REMOTE, []))
        self.assertEqual([VOLUME], self.exports.withdraw_strays(
            lambda move_id: move_id == SHADOW))
        self.lio.unexport.assert_called_once_with(
            over, names.source(VOLUME))

    def test_stray_without_its_disk(self):
        for devices in ([], ['/dev/g/stranger']):
            self.lio.unexport.reset_mock()
            self.serve((SOURCE, devices))
            self.assertEqual([SHADOW], self.exports.withdraw_strays(
                lambda move_id: False))
            self.lio.unexport.assert_called_once_with(SOURCE, '')


@ddt.ddt
class ServedAgainTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.lio = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio')).mock
        self.configfs = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio_configfs')).mock
        self.configfs.targets.return_value = '[]'
        self.configfs.exports.return_value = '[]'
        self.configfs.unfinished.return_value = '[]'
        self.configfs.unused_backstores.return_value = '[]'
        self.lio.export.return_value = True
        self.exports = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260)

    def connect(self):
        return self.exports.export_volume(
            VOLUME, INITIATOR, iscsi.new_credentials())

    def rebooted(self):
        self.lio.export.reset_mock()
        self.exports = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260)

    def test_as_before(self):
        properties = self.connect()
        before = self.lio.export.call_args
        self.rebooted()
        self.assertTrue(self.exports.export_again(
            VOLUME, INITIATOR, properties))
        self.assertEqual(before, self.lio.export.call_args)

    @ddt.data(
        ('iqn.x:', 'renamed@l'), ('iqn.y:', HOST), ('iqn.y:', 'renamed@l'))
    @ddt.unpack
    def test_as_before_though_this_node_has_another_name(self, prefix, host):
        """After ``update_host``, or with another ``target_prefix``."""
        before = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260, HOST)
        properties = before.export_volume(
            VOLUME, INITIATOR, 'CHAP user secret', remote=True)
        exported = self.lio.export.call_args
        self.lio.export.reset_mock()
        after = iscsi_target.Exports(prefix, '192.0.2.12', 3260, host)
        self.assertTrue(after.export_again(VOLUME, INITIATOR, properties))
        self.assertEqual([exported], self.lio.export.call_args_list)
        # What the kernel has of it is this node's to see, and to end.
        iqn = properties['target_iqn']
        self.configfs.targets.return_value = json.dumps([iqn])
        self.assertEqual({VOLUME: {iqn}}, after.remote())
        self.assertTrue(after.is_last(VOLUME, INITIATOR))
        self.assertFalse(after.is_last(VOLUME, 'iqn.of:another'))
        self.assertTrue(after.withdraw_volume(VOLUME, INITIATOR))
        self.lio.unexport.assert_called_once_with(iqn, HANDLE)
        self.assertFalse(after.export_again(VOLUME, INITIATOR, properties))

    def test_the_source_of_a_move_keeps_its_name(self):
        after = iscsi_target.Exports('iqn.y:', '192.0.2.12', 3260)
        after.export_source(MOVE)
        self.assertEqual(SOURCE, self.lio.export.call_args.args[0])
        self.configfs.targets.return_value = json.dumps([SOURCE])
        self.configfs.exports.return_value = json.dumps(
            [{'iqn': SOURCE, 'devices': ['/dev/mapper/' + DEVICE]}])
        self.assertTrue(after.is_source_exported(SHADOW))
        self.assertEqual([SHADOW], after.withdraw_strays(
            lambda move_id: False))
        self.lio.unexport.reset_mock()
        self.assertTrue(after.withdraw_source(SHADOW))
        self.lio.unexport.assert_called_once_with(SOURCE, DEVICE)

    @ddt.data(
        # told, own addresses, where it is exported
        ('192.0.2.9:3260', (), '192.0.2.9:3260'),
        ('192.0.2.9:3260', ('192.0.2.12',), '192.0.2.12:3260'),
        ('192.0.2.9:3261', ('192.0.2.12', '192.0.2.9'), '192.0.2.9:3261'),
        ('[fd00::9]:3260', ('192.0.2.12', 'fd00::9'), '[fd00::9]:3260'),
        ('192.0.2.12:3260', (), '192.0.2.12:3260'))
    @ddt.unpack
    def test_where_it_was_told_as_long_as_it_can(self, told, own, portal):
        """A node has another ``target_ip_address``."""
        exports = iscsi_target.Exports('iqn.x:', '192.0.2.12', 3260, HOST,
                                       own.__contains__)
        self.assertEqual(portal, exports.portal_for(told))
        self.assertIs(portal == told and bool(own) or told == exports.portal,
                      exports.has_portal(told))
        move = dataclasses.replace(MOVE, location='%s,1 %s 0' % (told, SOURCE))
        self.assertEqual('%s,1 %s 0' % (portal, SOURCE),
                         exports.location_for(move))
        self.lio.is_exported.return_value = True
        self.assertIs(portal == told,
                      exports.is_source_exported_as_recorded(move))
        exports.export_source(move)
        address, _colon, port = told.rpartition(':')
        self.assertEqual((address.strip('[]'), int(port)),
                         self.lio.export.call_args.args[5:7])
        exports.export_again(VOLUME, INITIATOR, dict(
            self.connect(), target_portal=told))
        self.assertEqual((address.strip('[]'), int(port)),
                         self.lio.export.call_args.args[5:7])

    def test_what_addresses_the_kernel_has(self):
        self.assertTrue(iscsi_target.has_address('127.0.0.1'))
        for address in ('192.0.2.254', '255.255.255.255', 'a name', ''):
            self.assertFalse(iscsi_target.has_address(address), address)

    @ddt.data(('2001:db8::1', '2001:db8::1', True),
              ('2001:db8::1', '2001:db8::2', False),
              ('2001:db8::1', OSError('no route'), False))
    @ddt.unpack
    def test_address_of_ipv6(self, asked, chosen, found):
        with mock.patch('socket.socket', autospec=True) as made:
            probe = made.return_value.__enter__.return_value

            def connect(where):
                self.assertEqual((asked, 9), where)
                if isinstance(chosen, OSError):
                    raise chosen
                probe.getsockname.return_value = chosen, 40000, 0, 0
            probe.connect.side_effect = connect
            self.assertIs(found, iscsi_target.has_address(asked))
        # No packet is sent.
        made.assert_called_once_with(socket.AF_INET6, socket.SOCK_DGRAM)

    def test_a_second_address_of_a_network(self):
        """The kernel would send to it from the first."""
        routes = os.path.join(self.useFixture(fixtures.TempDir()).path, 'r')
        with open(routes, 'w') as file:
            file.write(ROUTES)
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.storage.iscsi_target.ROUTES', routes))
        for address in ('192.0.2.11', '192.0.2.31'):
            self.assertTrue(iscsi_target.has_address(address), address)
        for address in ('192.0.2.0', '192.0.2.1', '192.0.2.3', '192.0.2.255'):
            self.assertFalse(iscsi_target.has_address(address), address)

    def test_not_to_another_initiator(self):
        properties = self.connect()
        self.rebooted()
        error = self.assertRaises(
            exceptions.NotPossible, self.exports.export_again,
            VOLUME, 'iqn.of:another', properties)
        self.assertIn('attach it again', str(error))
        self.lio.export.assert_not_called()

    def test_not_what_was_ended(self):
        for ended in (INITIATOR, None, INITIATOR):
            properties = self.connect()
            self.assertTrue(self.exports.export_again(
                VOLUME, INITIATOR, properties))
            self.exports.withdraw_volume(VOLUME, ended)
            self.assertFalse(self.exports.export_again(
                VOLUME, INITIATOR, properties))

    def test_not_what_was_ended_and_could_not_be_withdrawn(self):
        """Cinder's attachment is there until the detach succeeds."""
        properties = self.connect()
        self.configfs.targets.return_value = json.dumps(
            [properties['target_iqn']])
        for ended in (INITIATOR, None):
            self.connect()
            self.lio.unexport.side_effect = exceptions.TargetTimeout(
                seconds=20)
            self.assertRaises(exceptions.TargetTimeout,
                              self.exports.withdraw_volume, VOLUME, ended)
            self.assertFalse(self.exports.export_again(
                VOLUME, INITIATOR, properties))

    def test_not_what_was_ended_and_could_not_be_exported_anew(self):
        properties = self.connect()
        self.exports.withdraw_volume(VOLUME, INITIATOR)
        self.lio.export.side_effect = exceptions.TargetTimeout(seconds=20)
        self.assertRaises(exceptions.TargetTimeout, self.connect)
        self.lio.export.side_effect = None
        self.assertFalse(self.exports.export_again(
            VOLUME, INITIATOR, properties))

    def test_what_was_ended_is_forgotten_in_time(self):
        properties = self.connect()
        self.exports.withdraw_volume(VOLUME, INITIATOR)
        later = iscsi_target.time.monotonic() + iscsi_target.ENDING + 1
        with mock.patch.object(iscsi_target.time, 'monotonic', lambda: later):
            self.assertTrue(self.exports.export_again(
                VOLUME, INITIATOR, properties))
            self.exports.withdraw_volume('another', INITIATOR)
            self.assertEqual([('another', INITIATOR)],
                             list(self.exports._ended._noted))

    def reconciler(self):
        self.node = Node(**{
            each.name: mock.MagicMock() for each in dataclasses.fields(
                Node)} | {'host': HOST, 'exports': self.exports})
        self.node.moves.moves_of.return_value = []
        self.node.moves.move_of.return_value = None
        survey = self.node.handles.survey.return_value
        survey.is_handle_on_lv.return_value = True
        survey.metadata.return_value = None
        survey.devices = {}
        return reconcile.Reconciler(self.node)

    def volume(self, connection_info, connector):
        found = driver_case.recorded(
            id=VOLUME, name='volume-' + VOLUME, name_id=VOLUME,
            host=HOST + '#p', status='in-use', volume_attachment=[
                images.attachment(connection_info=connection_info,
                                  connector=connector)])
        self.node.volumes.volumes_of.return_value = [found]
        self.node.volumes.volume.return_value = found

    def test_by_the_look_at_a_node(self):
        properties = dict(self.connect(), driver_volume_type='iscsi')
        self.rebooted()
        reconciler = self.reconciler()
        self.volume(properties, {'host': 'n1', 'initiator': INITIATOR})
        reconciler.reconcile_node()
        self.assertEqual(
            iscsi.remote_iqn('iqn.x:', VOLUME, INITIATOR),
            self.lio.export.call_args.args[0])
        self.configfs.targets.return_value = json.dumps(
            [properties['target_iqn']])
        self.lio.export.reset_mock()
        reconciler.reconcile_node()
        self.lio.export.assert_not_called()

    def test_what_was_not_made_to_its_end(self):
        """A guest that waits for its disk for ever.

        1. A node has come back, and serves again what hosts without the
           backend have. Its service is ended in the midst of that.
        2. To the next one the target seems to be there: no look made it.
        """
        properties = dict(self.connect(), driver_volume_type='iscsi')
        self.rebooted()
        reconciler = self.reconciler()
        self.volume(properties, {'host': 'n1', 'initiator': INITIATOR})
        self.configfs.targets.return_value = json.dumps(
            [properties['target_iqn'], 'iqn.x:another'])
        for unfinished, made in (('iqn.x:another', 0),
                                 (properties['target_iqn'], 1)):
            for moves in (False, True):
                self.configfs.unfinished.return_value = json.dumps(
                    [unfinished])
                self.lio.export.reset_mock()
                self.lio.export.side_effect = self.finish
                reconciler.reconcile_node(moves)
                self.assertEqual(made, self.lio.export.call_count)

    def finish(self, *_export, **_more):
        self.configfs.unfinished.return_value = '[]'
        return True

    def test_local_connections_need_none(self):
        reconciler = self.reconciler()
        for info in (None, {'driver_volume_type': 'local'}):
            self.volume(info, {'host': 'n2', 'initiator': INITIATOR})
            reconciler.reconcile_node()
        self.lio.export.assert_not_called()
