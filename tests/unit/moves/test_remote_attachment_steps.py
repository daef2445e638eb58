# SPDX-License-Identifier: Apache-2.0
"""The steps of the begin and end of a remote attachment, and their order."""

from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import attachments
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.moves import remote_attachment
from tests.helpers import specs
from tests.world import images

V, LV, DISK = 'v', 'volume-v', '/dev/sda'
ENCRYPTED = str(volume_types.Recorded(16 << 20, 'k'))
PROPERTIES = {'target_iqn': 'iqn.p'}
call = mock.call


def lv(name, *tags):
    return lvm_reports.LogicalVolume('g', name, 1 << 30, '', frozenset(tags))


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.node = specs.node()
        self.node.lvm.group = 'g'
        self.all = mock.Mock()
        self.all.attach_mock(self.node, 'node')
        for name in ('devices', 'cleanup', 'nodes'):
            self.all.attach_mock(self.useFixture(fixtures.MockPatchObject(
                remote_attachment, name)).mock, name)
        self.all.cleanup.pending_here.return_value = []
        self.all.nodes.unnamed_exports.return_value = {'iqn.old'}
        self.all.nodes.connection_to.return_value = None
        self.present = mock.create_autospec(survey.Survey, instance=True)
        self.present.handle.return_value = None
        self.present.is_handle_foreign.return_value = False
        self.present.complete_lvs.return_value = []
        self.present.upper_devices.return_value = []
        self.present.users.return_value = 0
        self.node.handles.survey.return_value = self.present
        self.node.sessions.attach_remote.return_value = DISK

    def changes(self):
        """What was called, without what only reads."""
        reads = ('node.volumes.volume', 'node.moves.move_of', 'nodes.',
                 'cleanup.pending_here', 'node.handles.survey')
        return [each for each in self.all.mock_calls
                if not each[0].startswith(reads)]

    def handle(self, opened):
        self.present.handle.return_value = dm_tables.Device(
            names.handle(V), '', '253:1', opened, False)


@ddt.ddt
class BeginTest(Case):

    def begin(self, host='b@l', **row):
        self.volume = Volume.of(images.volume(V, host, size=2, **row))
        self.node.volumes.volume.return_value = self.volume
        remote_attachment.begin(self.node, V, PROPERTIES)
        return self.changes()

    def expected(self, *more, size=2 << 30, in_use=False):
        return [
            call.node.exports.withdraw_unnamed(V, {'iqn.old'}, at_once=True),
            call.node.sessions.attach_remote(V, size, PROPERTIES, in_use),
            call.node.handles.ensure_handle_on_disk(V, DISK), *more,
            call.node.sessions.end_other_remotes(V, 'iqn.p')]

    def test_never_at_its_home(self):
        self.assertRaises(exceptions.StaleMove, self.begin, 'a@l')
        self.assertEqual([], self.changes())

    def test_gone(self):
        self.node.volumes.volume.return_value = None
        self.assertRaises(exceptions.StaleMove, remote_attachment.begin,
                          self.node, V, PROPERTIES, {})
        self.assertEqual([], self.changes())

    def test_call_that_is_too_late(self):
        """It must change nothing of the attachment since then."""
        self.all.cleanup.pending_here.return_value = ['one']
        late = exceptions.Refused(volume=V, host='a@l', reason='late')
        self.useFixture(fixtures.MockPatchObject(
            remote_attachment.volume_attachments, 'check_in_time',
            side_effect=late))
        self.begin()
        del self.all.mock_calls[:]
        self.assertRaises(exceptions.Refused, remote_attachment.begin,
                          self.node, V, PROPERTIES, {'one': None})
        self.assertEqual([], self.changes())

    def test_opened_by_an_earlier_export_alone(self):
        self.node.handles.ensure_handle_on_disk.return_value = False
        self.handle(1)
        self.node.exports.withdraw_unnamed.side_effect = (
            lambda *_arguments, **_keywords: self.handle(0))
        self.node.handles.survey.side_effect = lambda: survey.Survey(
            {}, {names.handle(V): self.present.handle(V)})
        self.assertEqual(self.expected(), self.begin())

    def test_opened_by_another_process(self):
        """Its LV is not marked as away: it is in use."""
        self.handle(1)
        self.present.complete_lvs.return_value = [lv('used')]
        self.all.devices.ensure_closed.side_effect = exceptions.SourceBusy(
            volume=V, host='a@l', count=1, device='d')
        self.assertRaises(exceptions.SourceBusy, self.begin)
        self.node.lvm.mark.assert_not_called()

    @ddt.data(True, False)
    def test_new_handle_is_read(self, changed):
        """Otherwise a guest would be the first to find no disk."""
        self.node.handles.ensure_handle_on_disk.return_value = changed
        more = [call.node.handles.read_head(V)] if changed else []
        self.assertEqual(self.expected(*more), self.begin())

    def test_left_by_earlier_moves(self):
        self.node.handles.ensure_handle_on_disk.return_value = False
        self.all.cleanup.pending_here.return_value = ['one', 'two']
        self.present.complete_lvs.return_value = [
            lv('new'), lv('old', names.AWAY)]
        withdrawn, *rest = self.expected()
        self.assertEqual([
            call.cleanup.take_down(self.node, 'one'),
            call.cleanup.take_down(self.node, 'two'), withdrawn,
            call.node.lvm.mark('new', names.AWAY), *rest], self.begin())
        self.present.complete_lvs.assert_called_once_with(V, 'g')

    @ddt.data((0, False, False, False), (0, True, False, False),
              (1, False, False, True), (1, True, False, True),
              (1, False, True, True), (1, True, True, False))
    @ddt.unpack
    def test_opened_on_another_backing_device(self, opened, foreign, named,
                                              closed):
        self.node.handles.ensure_handle_on_disk.return_value = False
        self.handle(opened)
        self.present.is_handle_foreign.return_value = foreign
        self.all.nodes.connection_to.return_value = named or None
        found = self.begin()
        self.assertIs(closed, call.devices.ensure_closed(
            self.node, V) in found)
        if closed:  # before there is another disk
            self.assertEqual('devices.ensure_closed', found[1][0])

    @ddt.data(
        ({'encryption_key_id': 'k'}, [], 'open_for_guest'),
        ({'provider_id': ENCRYPTED}, ['crypt'], 'open'),
        ({}, ['crypt'], 'close_if_idle'), ({}, [], None))
    @ddt.unpack
    def test_upper_devices(self, row, upper, called):
        """As its row says, whatever a boot has opened."""
        self.node.handles.ensure_handle_on_disk.return_value = False
        self.present.upper_devices.return_value = upper
        self.present.users.return_value = 3
        found = self.begin(**row)
        more = [each for each in (
            call.devices.open_for_guest(self.node, V),
            call.devices.open(self.node, self.volume),
            call.devices.close_if_idle(self.node, V))
            if each[0] == 'devices.%s' % called]
        self.assertEqual(self.expected(
            *more, in_use=True, size=(2 << 30) + self.volume.extra_bytes),
            found)


@ddt.ddt
class EndTest(Case):

    FORGOTTEN = [call.node.crypt.forget_remote(V),
                 call.node.crypt.forget_sealed(V)]

    @ddt.data(
        (True, True, [call.node.handles.remove_handle(V), *FORGOTTEN]),
        (False, True, []), (False, False, FORGOTTEN))
    @ddt.unpack
    def test_what_goes(self, foreign, handle, changes):
        """A handle on this node's own LV or clone keeps its notes."""
        self.present.is_handle_foreign.return_value = foreign
        if handle:
            self.handle(0)
        remote_attachment.end(self.node, V)
        closed = [call.devices.ensure_closed(self.node, V)] if foreign else []
        self.assertEqual([*closed, *changes,
                          call.node.sessions.end_remote(V)], self.changes())

    def test_opened(self):
        self.present.is_handle_foreign.return_value = True
        self.all.devices.ensure_closed.side_effect = exceptions.SourceBusy(
            volume=V, host='a@l', count=1, device='d')
        self.assertRaises(exceptions.SourceBusy, remote_attachment.end,
                          self.node, V)
        self.assertEqual([call.devices.ensure_closed(self.node, V)],
                         self.changes())


class SweepTest(Case):

    def test_each_trace_of_a_remote_attachment(self):
        """Each alone is enough: the others may be lost."""
        self.node.attachments.remote_to.return_value = [
            images.volume('1', 'b@l')]
        self.node.sessions.remotes.return_value = {'2': DISK}
        self.node.sessions.recorded_remotes.return_value = {'3': 'iqn.p'}
        self.node.crypt.remotes.return_value = {'4': ('u', 'k')}
        self.present.foreign_handles.return_value = {'5'}
        self.present.lvs = {}
        self.all.nodes.attempt.side_effect = [True, False, True, True, True]
        self.assertIs(False, remote_attachment.sweep(self.node, self.present))
        self.assertEqual(['1', '2', '3', '4', '5'], [
            each.args[1] for each in self.all.nodes.attempt.mock_calls])
        self.all.nodes.attempt.side_effect = [True] * 5
        self.assertIs(True, remote_attachment.sweep(self.node, self.present))

    def test_failed_export_of_the_source_stops_nothing(self):
        """Its home may not need the LV here any more."""
        log = self.useFixture(fixtures.FakeLogger())
        self.node.volumes.volume.return_value = Volume.of(
            images.volume(V, 'b@l'))
        self.node.moves.move_of.return_value = mock.NonCallableMock(
            spec=state.Move, source='a@l', keeps_handle=False)
        self.all.nodes.connection_to.return_value = attachments.Connection(
            'i', 'iqn.p', 'p', PROPERTIES, True)
        self.useFixture(fixtures.MockPatchObject(
            remote_attachment.source, 'export_again',
            side_effect=exceptions.ExportFailed(reason='no configfs')))
        begun = self.useFixture(fixtures.MockPatchObject(
            remote_attachment, 'begin')).mock
        remote_attachment._reconcile(self.node, V)
        begun.assert_called_once_with(self.node, V, PROPERTIES)
        self.assertIn('exports of volume v could not', log.output)


@ddt.ddt
class DestinationTest(Case):
    """Where a volume with a remote attachment can move under its guest."""

    def setUp(self):
        super().setUp()
        self.has_export = self.all.nodes.exporter.return_value.has_export_of
        self.has_export.return_value = True
        self.node.other_nodes.return_value = {
            'dead@l': False, 'b@l': True, 'c@l': True}
        self.node.is_at.side_effect = lambda connector, host: (
            host == connector['host'] + '@l')

    def destination(self, number=1, kind='local', connector=(),
                    instance='vm', attached='attached', **row):
        self.volume = Volume.of(images.volume(V, 'a@l', **dict(
            {'status': 'in-use', 'attach_status': 'attached',
             'volume_attachment': [images.attachment(
                 id=str(each), instance_uuid=instance, attach_status=attached,
                 connector=dict({'host': 'b', 'initiator': 'i'}, **dict(
                     connector)),
                 connection_info={
                     'driver_volume_type': kind, 'target_iqn': 'iqn.p',
                     'target_portal': 'p'})
                 for each in range(number)]}, **row)))
        return remote_attachment.destination_of(self.node, self.volume)

    def test_the_node_of_its_instance(self):
        self.assertEqual('b@l', self.destination())
        self.assertEqual('c@l', self.destination(connector={'host': 'c'}))

    @ddt.data(
        {'status': 'detaching'}, {'status': 'extending'}, {'number': 0},
        {'number': 2}, {'kind': 'iscsi'}, {'instance': None},
        {'attached': 'detaching'}, {'group_id': 'g'},
        {'migration_status': 'migrating'}, {'connector': {'initiator': ''}},
        {'connector': {'host': 'dead'}}, {'connector': {'host': 'other'}})
    def test_nowhere(self, changes):
        self.assertIsNone(self.destination(**changes))

    def test_not_what_another_node_exports(self):
        self.has_export.return_value = False
        self.assertIsNone(self.destination())

    def test_due(self):
        moves = remote_attachment.DeferredMoves(self.node)
        self.destination()
        self.assertIs(True, moves.are_due(self.volume))
        for later, due in ((60, False), (-60, True)):
            moves._again[V] = remote_attachment.timeutils.now() + later
            self.assertIs(due, moves.are_due(self.volume))
        self.destination(status='detaching')
        self.assertIs(False, moves.are_due(self.volume))

    def test_tried_again_in_a_minute(self):
        moves = remote_attachment.DeferredMoves(self.node)
        run = self.useFixture(fixtures.MockPatchObject(
            remote_attachment.source, 'run')).mock
        now = self.useFixture(fixtures.MockPatchObject(
            remote_attachment.timeutils, 'now', return_value=100)).mock
        error = exceptions.NotPossible(volume=V, reason='x')
        self.destination()
        for when, result, calls in (
                (100, error, 1), (159, None, 1), (160, error, 2),
                (219, None, 2), (220, None, 3), (220, None, 4)):
            now.return_value, run.side_effect = when, result
            moves.begin(self.volume)
            self.assertEqual(calls, run.call_count)
        self.assertEqual((self.node, self.volume, 'b@l'),
                         run.call_args.args[:3])
        self.assertEqual({}, moves._again)
        # All checks come before the record. The last is repeated, because a
        # process may open the volume until the commit.
        self.assertEqual(
            ['CheckFreeSpace', 'EnsureHandle', 'CheckBlock',
             'CheckRemoteOnly', 'Record', 'Export', 'Prepare',
             'CheckRemoteOnly', 'Commit'],
            [type(each).__name__ for each in run.call_args.args[3]])
        self.destination(status='detaching')
        moves.begin(self.volume)
        self.assertEqual(4, run.call_count)

    @ddt.data((1, {'iqn.p'}, True),
              (2, {'iqn.p'}, False), (0, set(), True), (1, set(), False),
              (1, {'iqn.p', 'iqn.other'}, False))
    @ddt.unpack
    def test_used_by_the_destination_alone(self, opened, exports, alone):
        """Its export has the handle open once."""
        self.destination()
        self.node.volumes.volume.return_value = self.volume
        self.node.handles.devices.return_value = {
            names.handle(V): dm_tables.Device(
                names.handle(V), '', '253:1', opened, False)}
        self.node.exports.remote.return_value = {V: exports}
        check = remote_attachment.CheckRemoteOnly(self.node)

        def execute():
            check.execute(self.volume, 'b@l')
        if alone:
            execute()
        else:
            self.assertRaises(exceptions.SourceBusy, execute)
        self.all.devices.close_if_idle.assert_called_once_with(self.node, V)

    def test_upper_devices_that_nobody_uses_are_closed_first(self):
        self.destination()
        self.node.volumes.volume.return_value = self.volume
        self.node.exports.remote.return_value = {V: {'iqn.p'}}

        def opened(*_arguments, count=1):
            self.node.handles.devices.return_value = {
                names.handle(V): dm_tables.Device(
                    names.handle(V), '', '253:1', count, False)}
        opened(count=2)
        self.all.devices.close_if_idle.side_effect = opened
        remote_attachment.CheckRemoteOnly(self.node).execute(
            self.volume, 'b@l')

    @ddt.data(None, 'detaching')
    def test_not_to_a_former_destination(self, status):
        self.destination(status=status or 'in-use')
        self.node.volumes.volume.return_value = status and self.volume
        check = remote_attachment.CheckRemoteOnly(self.node)
        self.assertRaises(exceptions.StaleMove, check.execute, self.volume,
                          'b@l')
        self.all.devices.close_if_idle.assert_not_called()
