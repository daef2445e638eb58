# SPDX-License-Identifier: Apache-2.0
"""Exports and the target when something else hangs, or goes on."""

import threading
from unittest import mock

import fixtures
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.moves import cleanup
from cinder_localclone.storage import clones
from cinder_localclone.storage import handles
from cinder_localclone.storage import iscsi_target
from cinder_localclone.storage import logical_volumes
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import lio
from cinder_localclone.storage.privsep import lio_configfs
from tests.helpers import commands
from tests.helpers import export_rows
from tests.helpers import lio_case
from tests.helpers import reconcile_case
from tests.helpers import specs
from tests.world import images

V, S = export_rows.V, export_rows.S
ABSENT = names.absent_source(S)


class AbsentTest(testtools.TestCase):
    """The daemon refuses a device of the driver's own."""

    def setUp(self):
        super().setUp()
        self.commands = self.useFixture(commands.Commands())

    def test_created(self):
        dmsetup.create(ABSENT, names.device_uuid(ABSENT), '0 8 error',
                       30)

    def test_clone_is_removed(self):
        self.commands.answer('dmsetup remove', code=1, err='No such device')
        lvm = logical_volumes.Lvm('g', 'p', 'g', 30, 'h')
        clones.Clones(lvm, handles.Handles(lvm)).remove_clone(S)


class StopServingTest(testtools.TestCase):
    """A blip of the source's session is no reason for EIO."""

    def setUp(self):
        super().setUp()
        self.node = specs.node(host=export_rows.E)
        self.node.moves.move_of.return_value = export_rows.moving(
            state.Phase.MIGRATING, True)
        self.exports = iscsi_target.Exports('iqn.x:', '192.0.2.1', 3260)
        self.node.exports = self.exports
        self.exported, self.opened = [], 1
        self.node.handles.devices.side_effect = lambda _only: {
            names.handle(V): dm_tables.Device(
                names.handle(V), '', '253:1', self.opened, False)}
        self.useFixture(fixtures.MockPatchObject(
            self.exports, 'exported', lambda: {
                iscsi.remote_iqn('iqn.x:', V, each)
                for each in self.exported}))
        self.useFixture(fixtures.MockPatchObject(
            iscsi_target, '_unused', lambda: set()))
        self.lio = self.useFixture(
            fixtures.MockPatchObject(iscsi_target, 'lio')).mock

    def test_reader_at_home_ends_while_a_remote_guest_goes_on(self):
        """Nothing is withdrawn, but D's guest loses the source."""
        self.exported, self.opened = ['iqn.D'], 1
        cleanup.end_exports(self.node, V, 'iqn.E')
        self.lio.unexport.assert_not_called()
        self.node.sessions.end_if_down.assert_not_called()

    def test_old_host_of_a_live_migration_between_remote_hosts(self):
        self.exported, self.opened = ['iqn.D1', 'iqn.D2'], 1
        cleanup.end_exports(self.node, V, 'iqn.D1')
        self.node.sessions.end_if_down.assert_not_called()

    def test_guest_that_migrated_from_a_remote_host_to_here(self):
        self.exported, self.opened = ['iqn.D'], 2
        cleanup.end_exports(self.node, V, 'iqn.D')
        self.node.sessions.end_if_down.assert_not_called()

    def test_trouble_with_the_initiator_leaves_no_export(self):
        self.exported = ['iqn.D']
        self.node.sessions.end_if_down.side_effect = (
            exceptions.CommandFailed(command='iscsiadm', code=20, stderr=''))
        try:
            cleanup.end_exports(self.node, V, 'iqn.D')
        except exceptions.CommandFailed:
            pass
        self.lio.unexport.assert_called_once_with(
            iscsi.remote_iqn('iqn.x:', V, 'iqn.D'), names.handle(V))


class OldKernelTest(lio_case.Case):

    def test_second_target_of_a_store_made_on_a_clone(self):
        self.discards(0)
        lio_case.export()
        self.discards(1 << 24)  # the copy is complete
        self.lio.refuses['emulate_tpu'] = 99
        self.assertTrue(lio_case.export(iqn=lio_case.OTHER_IQN))


class HangingTest(lio_case.Case):

    def test_within_the_time_limit(self):
        """'Seconds for one change, with those that wait before it.'"""
        now = self.useFixture(fixtures.MockPatchObject(
            lio.time, 'monotonic', return_value=100.0)).mock
        changes, limits = lio.Changes(), []

        def is_remote(seconds, value):
            now.return_value += seconds
            return value
        changes._turn = mock.create_autospec(threading.Lock(), instance=True)
        changes._turn.acquire.side_effect = lambda timeout: is_remote(15, True)

        def has_ended(_work, timeout):
            limits.append(timeout)
            return is_remote(timeout, False)
        for name, fake in (('has_ended', has_ended),
                           ('in_thread', lambda change: mock.sentinel.work)):
            self.useFixture(fixtures.MockPatchObject(
                lio.process, name, autospec=True, side_effect=fake))
        self.assertRaises(exceptions.TargetTimeout, changes.make, 'b',
                          self.fail)
        self.assertEqual([lio.TIMEOUT - 15], limits)
        changes._turn.release.assert_called_once_with()

    def test_description_comes_in_time(self):
        """Troubles keep no move from a node; nor does looking for them."""
        iqns = [iscsi.move_iqn(
            'iqn.x:', '%08d-0000-4000-8000-000000000000' % n)
            for n in range(lio.MOST_HANGING)]
        for iqn in iqns:
            (self.root / 'target' / 'iscsi' / iqn / 'tpgt_1').mkdir(
                parents=True)
        # All together first, then side by side: twice the time limit.
        together = threading.Barrier(lio.MOST_HANGING)

        def run(*argv, timeout, ok):
            if len(argv) == 3:
                together.wait(60)
            limits.append(timeout)
            raise exceptions.CommandTimeout(command='cat', seconds=timeout)
        limits = []
        self.useFixture(fixtures.MockPatchObject(
            lio_configfs.process, 'run', run))
        self.assertIn(iqns[0], iscsi_target.Exports(
            'iqn.x:', '192.0.2.1', 3260).problem())
        self.assertEqual(
            [iscsi_target.PROBE_TIMEOUT] * (1 + lio.MOST_HANGING), limits)


class HydrationTest(reconcile_case.Base):

    def test_the_target_holds_up_no_copy(self):
        """Three other volumes' targets hang; this one only has an export."""
        B = reconcile_case.B
        self.a.move(self.volume, B)
        self.volume.status = 'in-use'
        self.volume.volume_attachment = [images.attachment(
            connector={'host': 'x', 'initiator': 'iqn.x'},
            mountpoint=None, instance_uuid='vm',
            connection_info={
                'driver_volume_type': 'iscsi', 'target_iqn': 'iqn.x',
                'target_portal': 'portal of ' + B})]
        with mock.patch.object(
                self.b.node.exports, 'export_again',
                side_effect=exceptions.TargetHangs(target='x', since='y')), (
                    mock.patch.object(self.b.reconciler.copying, 'drive',
                                      return_value=False)) as copied:
            try:
                self.b.reconciler.reconcile(self.volume_id)
            except exceptions.TargetHangs:
                pass
        copied.assert_called()
