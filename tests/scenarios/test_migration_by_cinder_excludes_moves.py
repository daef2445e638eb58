# SPDX-License-Identifier: Apache-2.0
"""Cinder's own migration and this driver's moves exclude each other.

On Cinder's own schema, in its SQLite fixture, with the real records.
"""

import contextlib
import dataclasses
from unittest import mock

from cinder import exception
from cinder import objects
from cinder.tests.unit import fake_constants as fake
from cinder.tests.unit import utils
import ddt
import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import outcomes
from cinder_localclone.core.state import Event
from cinder_localclone.core import volume_types
from cinder_localclone.service import messages
from cinder_localclone.volumes import delete
from tests.helpers import callers
from tests.helpers.cinder_case import A
from tests.helpers.cinder_case import B
from tests.helpers.cinder_case import Base
from tests.helpers.cinder_case import ELSEWHERE
from tests.helpers.cinder_case import STOCK
from tests.helpers import storage_parts

#: What each phase of a move needs to come about; None is the commit.
LIVE, COLD = Event.LIVE_MOVE_BEGUN, Event.MOVE_BEGUN
BEFORE_COMMIT = ((LIVE,), (COLD,))
COMMITTED = ((LIVE, None), (LIVE, None, Event.SOURCE_DETACHED), (COLD, None),
             (COLD, None, Event.HYDRATED))
#: The volume is whole where it is; one node has to remove something.
REMAINS = ((COLD, Event.FAILED),
           (COLD, None, Event.HYDRATED, Event.DRAINED))
#: How Cinder's migration and retype leave the row while they copy.
BY_CINDER = (('available', 'migrating'), ('maintenance', 'migrating'),
             ('retyping', 'migrating'), ('available', 'starting'),
             ('available', 'completing'))


@ddt.ddt
class ExclusionTest(Base):

    @ddt.data(*((events, how) for events in COMMITTED for how in BY_CINDER))
    @ddt.unpack
    def test_move_first(self, events, how):
        self.move(events)
        self.cinder_begins(*how)
        with mock.patch.object(messages, 'api') as api:
            error = self.assertRaises(exceptions.MoveUnderWay, self.copy)
        self.assertIn('try again', str(error))
        self.assertEqual(outcomes.USER_MESSAGES['MOVE_BUSY'].detail,
                         api.API().create.call_args.kwargs['detail'])

    @ddt.data(*BEFORE_COMMIT, *COMMITTED)
    def test_move_first_and_cinder_asks_the_driver(self, events):
        self.move(events)
        with mock.patch.object(messages, 'api') as api:
            self.assertRaises(
                exceptions.MoveUnderWay, self.home().migrate_volume,
                self.context, self.volume(), ELSEWHERE)
        self.assertEqual(outcomes.USER_MESSAGES['MOVE_BUSY'].detail,
                         api.API().create.call_args.kwargs['detail'])

    @ddt.data(*REMAINS)
    def test_what_leftovers_of_a_move_is_in_nobodys_way(self, events):
        self.move(events)
        self.cinder_begins('maintenance', 'migrating')
        self.copy()
        self.assertEqual((False, None), self.home().migrate_volume(
            self.context, self.volume(), ELSEWHERE))

    @ddt.data(*BY_CINDER)
    def test_encrypted_volume_is_not_connected_to_be_copied(self, how):
        volume = self.volume()
        volume.provider_id = str(volume_types.Recorded(16 << 20, 'k'))
        volume.save()
        self.cinder_begins(*how)
        with mock.patch.object(messages, 'api'):
            self.assertRaises(
                encryption_exceptions.EncryptionChange, self.copy)

    @ddt.data(*BY_CINDER)
    def test_cinder_first(self, how):
        self.cinder_begins(*how)
        self.copy()
        for event in (LIVE, COLD):
            self.assertRaises(exceptions.StaleMove, self.move, (event,))

    @ddt.data('starting', 'migrating', 'completing')
    def test_cinder_first_and_an_instance_connects(self, migration_status):
        self.cinder_begins('reserved', migration_status)
        self.reserve()
        connection = self.copy()
        self.assertEqual('iscsi', connection['driver_volume_type'])
        self.assertIsNone(self.moves.move_of(self.row.id))

    def reserve(self):
        objects.VolumeAttachment(
            self.context, volume_id=self.row.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='reserved'
        ).create()

    @ddt.data('success', 'error')
    def test_cinder_has_ended(self, migration_status):
        self.cinder_begins('available', migration_status)
        self.assertIsNotNone(self.move((COLD, None)))


class SwappedByNovaTest(Base):
    """An attached volume that Cinder migrates is copied by Nova.

    No call asks the driver first: so the copy under way has to be ended
    together with the row that Cinder deletes.
    """

    def setUp(self):
        super().setUp()
        self.moving = self.move((COLD, None))
        volume = self.volume()
        new = utils.create_volume(
            self.context, host=STOCK + '#x', size=1, status='available',
            volume_type_id=None, migration_status='target:' + volume.id)
        self.cinder_begins('in-use', 'migrating')
        volume = self.volume()
        # As Cinder's update_migrated_volume leaves the names.
        new._name_id, volume._name_id = volume._name_id, new.id
        for each in (new, volume):
            each.save()
        self.deleted = volume.finish_volume_migration(new)

    @staticmethod
    def lv(name, group='g'):
        return lvm_reports.LogicalVolume(group, name, 1, '9:1', frozenset(),
                                         thin=True)

    def survey(self, home):
        """The destination's handle, clone and LV."""
        def device(name, number, table):
            return dm_tables.Device(name, 'u', number, 0, False, table)
        handle = names.handle(self.row.id)
        clone = names.clone(self.moving.move_id)
        lvs = {self.deleted.name: self.lv(
            self.deleted.name, home.service.lvm.group)}
        home.service.node.handles.survey.return_value = survey.Survey(
            lvs,
            {handle: device(handle, '9:3', '0 1 linear 9:2 0'),
             clone: device(clone, '9:2', '0 1 clone 9:0 9:1 9:4')})
        home.service.lvm.lvs.return_value = lvs
        home.service.node.handles.devices.return_value = {}
        home.service.node.exports.has_open_unexported.return_value = False

    def test_the_copy_ends_with_the_row_that_is_deleted(self):
        self.assertEqual(self.moving.destination_lv, self.deleted.name)
        home = self.driver(B)
        self.survey(home)
        home.delete_volume(self.deleted)
        self.assertEqual([
            mock.call.remove_handle(self.row.id),
            mock.call.remove_clone(self.moving.move_id),
            mock.call.remove_lv(self.deleted.name),
            mock.call.remove_lv(names.metadata_lv(self.moving.move_id))], [
                call for call in storage_parts.calls(home.storage)
                if call[0].startswith('remove')
                and call[0] != 'remove_export_device'])
        home.service.node.sessions.detach.assert_called_once_with(mock.ANY)
        home.service.node.peers.reconcile_soon.assert_called_once_with(
            A, self.row.id)
        source = self.driver(A)
        source.service.lvm.lvs.return_value = {
            self.moving.source_lv: self.lv(self.moving.source_lv)}
        source.service.reconciler.reconcile(self.row.id)
        source.service.lvm.remove_lv.assert_called_once_with(
            self.moving.source_lv)
        self.assertFalse(self.moves.is_move(self.moving.move_id))
        self.assertEqual(STOCK + '#x', self.volume().host)

    def test_both_volumes_are_locked(self):
        home = self.driver(B)
        self.survey(home)
        held = []
        node = dataclasses.replace(
            home.service.node, lock=lambda name: held.append(name)
            or contextlib.nullcontext())
        callers.delete(node, self.deleted)
        self.assertEqual([self.deleted.id, self.row.id], held)

    def test_the_other_one_is_locked_for_too_long(self):
        home = self.driver(B)
        self.survey(home)

        def lock(name):
            if name == self.row.id:
                raise exceptions.Busy(what=name, host=B, seconds=20)
            return contextlib.nullcontext()
        node = dataclasses.replace(home.service.node, lock=lock)
        self.assertRaises(exception.VolumeIsBusy, callers.delete, node,
                          self.deleted)
        self.assertEqual([], [
            call for call in storage_parts.calls(home.storage)
            if call[0].startswith('remove')])

    def test_while_it_is_open_it_is_busy(self):
        self.useFixture(fixtures.MockPatchObject(delete, 'CLOSING', 0))
        home = self.driver(B)
        self.survey(home)
        home.service.node.handles.devices.return_value = {
            names.handle(self.row.id): dm_tables.Device(
                'n', 'u', '9:3', 1, False, '')}
        self.assertRaises(exception.VolumeIsBusy, callers.delete,
                          home.service.node, self.deleted)
        self.assertTrue(self.moves.is_move(self.moving.move_id))
