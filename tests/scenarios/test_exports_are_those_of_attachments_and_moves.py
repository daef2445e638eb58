# SPDX-License-Identifier: Apache-2.0
"""Exports are exactly what attachments and moves name.

The rule itself; nodes of the simulated world; and two nodes' real exports on
kernels of lists.
"""

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from unittest import mock

import ddt
import fixtures
from oslo_utils import uuidutils
import tenacity
import testtools

from cinder_localclone.core import attachments as volume_attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import lio
from cinder_localclone.volumes import reconcile
from tests.helpers.export_rows import A
from tests.helpers.export_rows import B
from tests.helpers.export_rows import E
from tests.helpers.export_rows import moving
from tests.helpers.export_rows import S
from tests.helpers.export_rows import V
from tests.helpers import specs
from tests import world as worlds
from tests.world import fake_lio
from tests.world import images

W = '00000003-0000-4000-8000-000000000000'


def attachment(host, portal=None, iqn='iqn.d', **more):
    """Of a host; one that has the volume over iSCSI if a portal is given."""
    found = dict(
        id=uuidutils.generate_uuid(), instance_uuid='vm', mountpoint=None,
        connector={'host': host, 'initiator': 'iqn.' + host}
        if host else None, connection_info={
            'driver_volume_type': 'iscsi', 'target_iqn': iqn,
            'target_portal': portal, 'auth_method': 'CHAP',
            'auth_username': 'u', 'auth_password': 'p'} if portal else {
                'driver_volume_type': 'local'})
    return images.attachment(**dict(found, **more))


def volume(*attachments, **more):
    return images.volume(V, B, **dict(dict(
        status='in-use', volume_attachment=list(attachments)), **more))


def node(host, *portals):
    return volume_attachments.Node(host, lambda portal: portal in portals)


@ddt.ddt
class RuleTest(testtools.TestCase):

    #: phase, committed: which of source, destination and a third node serve
    @ddt.data(
        (None, False, [B]), (Phase.STARTING, False, [B]),
        (Phase.MIGRATING, False, [B]), (Phase.ROLLING_BACK, False, [B]),
        (Phase.STARTING, True, [B, E]), (Phase.MIGRATING, True, [E]),
        (Phase.COMPLETING, True, [E]), (Phase.RELEASING, True, [E]))
    @ddt.unpack
    def test_who_exports(self, phase, committed, hosts):
        found = volume(host=(E if committed else B) + '#p')
        move = phase and moving(phase, committed)
        self.assertEqual(hosts,
                         [host for host in (A, B, E)
                          if volume_attachments.may_export(found, move,
                                                           host)])

    def test_only_under_the_nodes_own_portal(self):
        found = volume(attachment('d', 'B:3260'), attachment('d2', 'E:3260'),
                       attachment('b'), attachment(None))
        for portal, hosts in (('B:3260', ['iqn.d']), ('E:3260', ['iqn.d2'])):
            self.assertEqual(hosts, [each.initiator for each
                                     in volume_attachments.to_export(
                                         found, None, node(B, portal))])
        self.assertEqual(
            [], volume_attachments.to_export(found, None, node(E, 'E:3260')))

    def test_of_what_is_passed_through_the_name_says_from_where(self):
        """One of address and host is as the attachment says."""
        iqn = iscsi.attachment_iqn('iqn.x:', V, 'iqn.d', B)
        found = volume(attachment('d', 'B:3260', iqn))
        for here, portals, wanted in (
                (B, (), 1), ('renamed@l', ('B:3260',), 1),
                ('renamed@l', ('new:3260',), 0)):
            found.host = here + '#p'
            at = node(here, *portals)
            self.assertEqual(
                wanted, len(volume_attachments.to_export(found, None, at)))
            self.assertEqual(
                1 - wanted,
                len(volume_attachments.with_stale_export(found, None, at)))
        # Its end has yet to be recorded there.
        self.assertEqual([], volume_attachments.with_stale_export(
            found, moving(Phase.MIGRATING, True), at))
        self.assertEqual([], volume_attachments.with_stale_export(found, None,
                                                                  node(E)))

    def test_an_address_that_was_changed_ends_no_connection(self):
        found = volume(attachment('d', 'old:3260', 'iqn:d'))
        names = {'iqn:d', 'iqn:x'}
        self.assertEqual({'iqn:x'},
                         volume_attachments.exports_without_attachment(
                             found, None, node(B, 'new:3260'), names))
        self.assertEqual(names, volume_attachments.exports_without_attachment(
            found, moving(Phase.STARTING, True), node(E, 'new:3260'), names))
        # It is not the home's.
        self.assertEqual(names, volume_attachments.exports_without_attachment(
            found, None, node(E, 'new:3260'), names))

    def test_nor_that_of_the_source_of_a_deferred_move(self):
        """Until the swap the guest has its volume from there."""
        is_deferred = dataclasses.replace(
            moving(Phase.MIGRATING, True), asked_by=state.Asked.DEFERRED)
        self.assertTrue(is_deferred.is_deferred)
        found = volume(attachment('e', 'old:3260', 'iqn:e'), host=E)
        ask = is_deferred, node(B, 'new:3260'), {'iqn:e', 'iqn:x'}
        self.assertEqual({'iqn:x'},
                         volume_attachments.exports_without_attachment(found,
                                                                       *ask))
        self.assertEqual({'iqn:e', 'iqn:x'},
                         volume_attachments.exports_without_attachment(
                             volume(host=E), *ask))
        self.assertEqual({'iqn:e', 'iqn:x'},
                         volume_attachments.exports_without_attachment(
                             found, is_deferred, node(E, 'new:3260'), ask[2]))

    @ddt.data(
        ('available', True), ('reserved', True), ('attaching', True),
        ('in-use', True), ('detaching', True), ('extending', True),
        # An attach may come late, whose caller has given up.
        ('error_extending', True), ('awaiting-transfer', True),
        ('backing-up', False),
        ('uploading', False), ('downloading', False), ('maintenance', False),
        ('restoring-backup', False), ('retyping', False), ('error', False))
    @ddt.unpack
    def test_cinder_itself_has_no_attachment(self, status, expected):
        found = volume(attachment('d'), status=status)
        self.assertIs(expected, volume_attachments.names_all_users(found))
        found.migration_status = 'migrating'
        self.assertFalse(volume_attachments.names_all_users(found))

    def test_nor_has_who_attaches_in_two_calls(self):
        for host, mountpoint, expected in (
                (None, '/dev/vdb', False), (None, None, True),
                ('d', '/dev/vdb', True)):
            self.assertIs(expected, volume_attachments.names_all_users(volume(
                attachment(host, mountpoint=mountpoint))))

    def test_idle(self):
        for status, attachments, expected in (
                ('available', [], True), ('reserved', [], False),
                ('available', [attachment('d')], False)):
            self.assertIs(expected, volume_attachments.is_idle(
                volume(*attachments, status=status)))

    def test_a_secret_is_not_shown(self):
        found, = volume_attachments.connections(volume(attachment(
            'd', 'B:3260', connection_info={
                'driver_volume_type': 'iscsi', 'target_iqn': 'i',
                'target_portal': 'B:3260', 'auth_password': 'secret'})))
        self.assertNotIn('secret', repr(found))


class Kernel:
    """One node: its real exports, on a kernel of lists."""

    def __init__(self, address):
        self.lio = fake_lio.Lio()
        self.exports = iscsi_target.Exports('iqn.x:', address, 3260)
        self.moves = []

    @contextlib.contextmanager
    def running(self):
        with mock.patch.dict(sys.modules, rtslib_fb=self.lio.rtslib), \
                mock.patch.object(iscsi_target, 'lio_configfs') as configfs:
            configfs.exports.side_effect = lambda: json.dumps([
                {'iqn': target.wwn, 'devices': [
                    lun.storage_object.udev_path for tpg in target.tpgs
                    for lun in tpg.luns]} for target in self.lio.targets])
            configfs.targets.side_effect = lambda: json.dumps(
                [target.wwn for target in self.lio.targets])
            configfs.unfinished.return_value = '[]'
            configfs.unused_backstores.return_value = '[]'
            yield

    def names(self):
        return sorted(target.wwn for target in self.lio.targets)

    def clients(self):
        """To whom each target is served, and whether read-only."""
        return {target.wwn: [
            (acl.node_wwn, lun.write_protect) for tpg in target.tpgs
            for acl in tpg.node_acls for lun in acl.mapped_luns]
            for target in self.lio.targets}


class LiveMoveOfServedTest(testtools.TestCase):
    """Home B serves the volume to D over iSCSI; it is migrated D to E."""

    def setUp(self):
        super().setUp()
        for room, name, value in (
                (privsep.default, 'client_mode', False),
                (lio, '_changes', lio.Changes()),
                (lio.sysfs, 'mapped_name', os.path.basename),
                (lio, '_pass_discards', lambda *_args: None),
                (lio.tenacity, 'wait_fixed',
                 lambda _seconds: tenacity.wait_none())):
            self.useFixture(fixtures.MockPatchObject(room, name, value))
        self.iqn = iscsi.remote_iqn('iqn.x:', V, 'iqn.d')
        self.b, self.e = Kernel('192.0.2.2'), Kernel('192.0.2.5')
        self.row = volume(
            attachment('d', '192.0.2.2:3260', self.iqn), attachment('e'),
            host=E + '#p', name='volume-' + S, name_id=S)
        self.move = moving(Phase.STARTING, True)

    def reconcile(self, kernel, host):
        """What a node does for the volume; returns its node."""
        node = specs.node(host=host, exports=kernel.exports)
        node.volumes.volume.return_value = self.row
        node.moves.move_of.return_value = self.move
        node.moves.pending_cleanups.return_value = []
        present = node.handles.survey.return_value
        present.metadata.return_value = None
        present.is_handle_foreign.return_value = False
        node.handles.devices.return_value = {names.handle(V): dm_tables.Device(
            names.handle(V), 'u', '253:1', 1, False, '')}
        node.clones.clone_status.return_value = dm_tables.CloneStatus(
            128, 1, 9, 0, 4, 0, False, 'rw')
        node.is_at.side_effect = (
            lambda connector, at: at.startswith(connector['host'] + '@'))
        with kernel.running(), mock.patch.object(
                reconcile.destination, 'build'), mock.patch.object(
                reconcile.source, 'begin_hydration'):
            reconcile.Reconciler(node).reconcile_locked(V)
        return node

    def test_the_destination_exports_nobody(self):
        self.reconcile(self.e, E)
        self.assertEqual([], self.e.names())

    def test_the_source_exports_again_after_its_reboot(self):
        self.reconcile(self.b, B)
        self.assertEqual({
            self.iqn: [('iqn.d', False)],
            iscsi.move_iqn('iqn.x:', S): [('iqn.e', True)]},
            self.b.clients())

    def test_what_a_destination_exports_wrongly_ends(self):
        self.wrongly(self.e)
        self.reconcile(self.e, E)
        self.assertEqual([], self.e.names())

    def wrongly(self, kernel):
        with kernel.running():
            kernel.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        kernel.exports = iscsi_target.Exports(  # long ago
            'iqn.x:', kernel.exports.address, 3260)

    def test_once_the_guest_has_left_the_source_exports_it_alone(self):
        self.reconcile(self.b, B)
        self.move = moving(Phase.MIGRATING, True)
        self.reconcile(self.b, B)
        self.assertEqual([iscsi.move_iqn('iqn.x:', S)], self.b.names())

    def test_it_stays_where_an_attachment_says_so(self):
        self.row.host, self.move = B + '#p', None
        self.row.name_id, self.row.name = V, 'volume-' + V
        self.reconcile(self.b, B)
        self.reconcile(self.b, B)
        self.assertEqual([self.iqn], self.b.names())


class AtHomeTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.row = self.world.create_volume(A)
        self.row.status = 'in-use'
        self.key = self.row.id, 'iqn.d'

    def attach(self, *attachments):
        self.row.volume_attachment = list(attachments)

    def export(self, node, initiator='iqn.d', now=False):
        properties = node.node.exports.export_volume(
            self.row.id, initiator, '')
        if not now:
            node.exported.clear()
        return properties

    def test_what_no_attachment_names_ends_in_use_too(self):
        self.attach(attachment('a'))
        self.export(self.a)
        self.a.reconciler.reconcile_node()
        self.assertEqual(set(), self.a.remote)

    def test_but_not_what_was_just_exported(self):
        self.attach(attachment('a'), attachment(None))
        self.export(self.a, now=True)
        self.a.reconciler.reconcile_node()
        self.assertEqual({self.key}, self.a.remote)
        self.a.exported.clear()
        self.a.reconciler.reconcile_node()
        self.assertEqual(set(), self.a.remote)

    def test_what_an_attachment_names_stays(self):
        properties = self.export(self.a)
        self.attach(attachment('d', properties['target_portal']))
        self.export(self.a, 'iqn.other')
        self.a.reconciler.reconcile_node()
        self.assertEqual({self.key}, self.a.remote)

    def test_what_cinder_reads_stays(self):
        self.export(self.a)
        for self.row.status in ('backing-up', 'maintenance'):
            self.a.reconciler.reconcile_node()
        self.row.status, self.row.migration_status = 'in-use', 'migrating'
        self.a.reconciler.reconcile_node()
        self.assertEqual({self.key}, self.a.remote)

    def test_while_it_moves(self):
        self.row.status = 'reserved'
        self.a.move(self.row, B)
        self.attach(attachment('b'))
        # One that was left behind holds the handle, too.
        with self.a.lock(self.row.id):
            self.a.sim_handles.ensure_handle_on_lv(
                self.row.id, 'volume-' + self.row.id, worlds.GIB)
        for node in (self.a, self.b):
            self.export(node)
            node.reconciler.reconcile_moves()
            self.assertEqual(set(), node.remote)
        self.assertNotIn(names.handle(self.row.id), self.a.devices)

    def live(self):
        self.a.opened.add(names.handle(self.row.id))
        self.attach(attachment('a'), attachment(None))
        self.a.connections._find = (
            lambda connector: connector['host'] + '@l')
        return self.a.connect(self.row, {'host': 'b'})

    def test_a_live_move_ends_what_no_attachment_names(self):
        self.export(self.a)
        self.live()
        self.assertEqual(set(), self.a.remote)
        self.assertEqual(1, len(self.world.move_records))

    def test_a_live_move_is_refused_beside_what_was_just_exported(self):
        self.export(self.a, now=True)
        error = self.assertRaises(exceptions.Refused, self.live)
        self.assertIn('a host without an attachment', str(error))
        self.assertEqual({}, self.world.move_records)
        self.assertEqual({self.key}, self.a.remote)


class WithdrawnTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.lio = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio')).mock
        self.iqn = iscsi.remote_iqn('iqn.x:', V, 'iqn.d')
        configfs = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio_configfs')).mock
        configfs.targets.return_value = json.dumps([self.iqn])
        configfs.unfinished.return_value = '[]'
        configfs.unused_backstores.return_value = '[]'
        self.lio.unexport.return_value = True
        self.exports = iscsi_target.Exports('iqn.x:', '2001:db8::1', 3260)

    def test_the_portal_is_what_hosts_are_told(self):
        told = self.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        self.assertEqual('[2001:db8::1]:3260', self.exports.portal)
        self.assertEqual(told['target_portal'], self.exports.portal)

    def test_unless_it_was_just_exported(self):
        self.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        self.assertFalse(self.exports.withdraw_unnamed(V, {self.iqn}))
        self.lio.unexport.assert_not_called()
        later = iscsi_target.time.monotonic() + iscsi_target.OFFERING + 1
        with mock.patch.object(iscsi_target.time, 'monotonic', lambda: later):
            self.assertTrue(self.exports.withdraw_unnamed(V, {self.iqn}))
        self.lio.unexport.assert_called_once_with(self.iqn, names.handle(V))

    def meanwhile(self, act, sweep):
        """Another native thread acts right when a time is compared."""
        clock, over = time.monotonic, threading.Event()
        other = threading.Thread(target=lambda: (act(), over.set()))

        class Time(float):

            def __gt__(self, limit):
                if not other.ident:
                    other.start()
                    over.wait(0.2)  # it may have to wait for its turn
                return float(self) > limit

        with mock.patch.object(iscsi_target.time, 'monotonic',
                               lambda: Time(clock())):
            self.exports.export_volume(W, 'iqn.d', 'CHAP u p')
            self.exports.note_exported(W)
            self.exports.withdraw_volume(W, 'iqn.d')
            sweep()
        other.join()

    def test_exported_while_something_else_is_looked_at(self):
        self.meanwhile(
            lambda: self.exports.export_volume(V, 'iqn.d', 'CHAP u p'),
            lambda: (self.exports.export_volume(W, 'iqn.e', 'CHAP u p'),
                     self.exports.withdraw_unnamed(W, {'iqn.of:w'})))
        self.assertFalse(self.exports.withdraw_unnamed(V, {self.iqn}))

    def test_lent_while_something_else_is_looked_at(self):
        self.meanwhile(lambda: self.exports.note_exported(V),
                       lambda: (self.exports.note_exported(W),
                                self.exports.was_exported(W)))
        self.assertTrue(self.exports.was_exported(V))

    def test_ended_while_something_else_ends(self):
        told = self.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        self.meanwhile(lambda: self.exports.withdraw_volume(V, 'iqn.d'),
                       lambda: self.exports.withdraw_volume(W, 'iqn.e'))
        self.lio.export.reset_mock()
        self.assertFalse(self.exports.export_again(V, 'iqn.d', told))
        self.lio.export.assert_not_called()

    def test_exported_anew_while_something_else_ends(self):
        told = self.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        self.exports.withdraw_volume(V, 'iqn.d')
        self.meanwhile(
            lambda: self.exports.export_volume(V, 'iqn.d', 'CHAP u p'),
            lambda: self.exports.withdraw_volume(W, 'iqn.e'))
        self.assertTrue(self.exports.export_again(V, 'iqn.d', told))

    def test_at_once(self):
        self.exports.export_volume(V, 'iqn.d', 'CHAP u p')
        self.assertTrue(self.exports.withdraw_unnamed(
            V, {self.iqn}, at_once=True))
