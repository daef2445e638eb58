# SPDX-License-Identifier: Apache-2.0
"""Snapshots and newborn volumes on Cinder's own schema."""

import dataclasses
import types
from unittest import mock

from cinder import objects
from cinder.tests.unit import utils
from cinder.volume import volume_types
import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core.state import Event
from cinder_localclone.core import volume_types as encryption_types
from cinder_localclone.db import base
from tests.helpers.snapshot_records_case import A
from tests.helpers.snapshot_records_case import B
from tests.helpers.snapshot_records_case import C
from tests.helpers.snapshot_records_case import Case
from tests.helpers.snapshot_records_case import ENCRYPTION

NONE = '%08d-0000-4000-8000-000000000000' % 9


@ddt.ddt
class SnapshotTest(Case):

    def setUp(self):
        super().setUp()
        self.snapshot = utils.create_snapshot(
            self.context, self.volume.id, status='creating', volume_size=3)

    def found(self):
        return self.snapshots.snapshot(self.snapshot.id)

    def test_before_anything_is_made(self):
        self.assertEqual(rows.Snapshot(
            self.snapshot.id, self.volume.id, 3, 'creating', '', False),
            self.found())
        self.assertEqual('_snapshot-' + self.snapshot.id, self.found().lv)
        self.assertEqual(3 << 30, self.found().size_bytes)
        self.assertFalse(self.found().is_to_wipe)
        self.assertIsNone(self.snapshots.snapshot(NONE))

    def test_its_node(self):
        self.snapshots.locate(self.snapshot.id, A)
        self.snapshots.locate(self.snapshot.id, B)  # asked again
        self.assertEqual(B, self.found().node)
        # What Cinder then saves of its own object does not undo it.
        self.snapshot.status = 'available'
        self.snapshot.save()
        self.assertEqual((B, 'available'), (self.found().node,
                                            self.found().status))
        self.assertEqual('lc1:' + B, objects.Snapshot.get_by_id(
            self.context, self.snapshot.id).provider_location)

    def test_its_node_has_another_name(self):
        self.snapshots.locate(self.snapshot.id, A)
        self.snapshot.status = 'available'
        self.snapshot.save()
        for before, node in ((B, A), (A, 'new@l'), (A, 'new@l')):
            self.snapshots.relocate_snapshot(self.snapshot.id, before, 'new@l')
            self.assertEqual(node, self.found().node)

    def test_of_an_encrypted_volume(self):
        self.snapshots.locate(self.snapshot.id, A, ENCRYPTION)
        self.assertEqual(str(ENCRYPTION), self.found().provider_id)
        self.assertEqual((3 << 30) + (16 << 20), self.found().size_bytes)
        # Asked again, for a volume that is not.
        self.snapshots.locate(self.snapshot.id, A)
        self.assertEqual(3 << 30, self.found().size_bytes)

    @ddt.data('available', 'error', 'deleting')
    def test_late_request(self, status):
        self.snapshot.status = status
        self.snapshot.save()
        self.assertRaises(exceptions.TooLate, self.snapshots.locate,
                          self.snapshot.id, A)
        self.assertEqual('', self.found().node)

    def test_it_is_deleted(self):
        self.snapshots.locate(self.snapshot.id, A)
        self.snapshot.status = 'deleting'
        self.snapshot.save()
        self.assertTrue(self.found().is_to_wipe)
        self.assertFalse(self.found().deleted)
        self.snapshot.destroy()
        self.assertRaises(exceptions.TooLate, self.snapshots.locate,
                          self.snapshot.id, B)
        found = self.found()
        self.assertEqual((A, True, True), (found.node, found.deleted,
                                           found.is_to_wipe))
        self.assertEqual([], self.snapshots.snapshots_of(self.volume.id))

    def test_many(self):
        other = utils.create_snapshot(self.context, self.volume.id,
                                      provider_location='elsewhere:7')
        self.assertEqual({self.snapshot.id: self.found()},
                         self.snapshots.snapshots([self.snapshot.id, NONE]))
        self.assertEqual({}, self.snapshots.snapshots([]))
        self.assertEqual(
            {self.snapshot.id, other.id},
            {each.id for each in self.snapshots.snapshots_of(self.volume.id)})
        self.assertEqual('', self.snapshots.snapshot(other.id).node)

    @ddt.data(('snapshot_id', 'creating', True),
              ('temp_snapshot_id', 'creating', True),
              ('snapshot_id', 'available', False),
              ('temp_snapshot_id', 'error', False))
    @ddt.unpack
    def test_a_backup_reads_it(self, column, status, reads):
        self.assertFalse(self.snapshots.is_being_read(self.snapshot.id))
        backup = utils.create_backup(
            self.context, self.volume.id, status=status,
            **{column: self.snapshot.id})
        self.assertIs(reads, self.snapshots.is_being_read(self.snapshot.id))
        backup.destroy()
        self.assertFalse(self.snapshots.is_being_read(self.snapshot.id))


@ddt.ddt
class UncommittedTest(Case):

    def setUp(self):
        super().setUp()
        self.volume.status = 'creating'
        self.volume.service_uuid = self.service_rows[A].uuid
        self.volume.availability_zone = 'here'
        self.volume.save()

    def set_home(self, old=A, new=B):
        self.volumes.set_home(self.volume.id, old + '#p', new + '#p')

    def where(self):
        row = self.reload()
        return row.host, row.availability_zone, row.service_uuid

    def test_there_and_back(self):
        before = self.where()
        self.set_home()
        self.assertEqual((B + '#p', 'there', self.service_rows[B].uuid),
                         self.where())
        # What Cinder saves of its own object afterwards leaves it there.
        self.volume.status = 'available'
        self.volume.save()
        self.assertEqual(B + '#p', self.where()[0])
        self.volume.status = 'creating'
        self.volume.save()
        self.set_home(B, A)
        self.assertEqual(before, self.where())

    def test_encrypted_as_its_image(self):
        after = self.volume
        for encryption in (ENCRYPTION, None):
            after = self.volumes.set_encryption(after, encryption)
            self.assertEqual(encryption, after.encryption)
        # What Cinder saves of its own object afterwards leaves it there.
        after = self.volumes.set_encryption(after, ENCRYPTION)
        self.volume.status = 'available'
        self.volume.save()
        self.assertEqual(str(ENCRYPTION), self.reload().provider_id)
        gone = types.SimpleNamespace(id=NONE, provider_id=None)
        for each in (after, gone):
            self.assertRaises(exceptions.TooLate,
                              self.volumes.set_encryption, each, None)

    def test_deleted_after_its_encryption_is_recorded(self):
        with mock.patch.object(base, 'volume', autospec=True,
                               return_value=None):
            self.assertRaises(exceptions.TooLate, self.volumes.set_encryption,
                              self.volume, ENCRYPTION)

    def test_encrypted_by_another_node_meanwhile(self):
        other = encryption_types.Recorded(16 << 20, 'of the other')
        self.volumes.set_encryption(self.volume, other)
        self.assertRaises(exceptions.TooLate, self.volumes.set_encryption,
                          self.volume, ENCRYPTION)
        self.assertEqual(str(other), self.reload().provider_id)

    def test_encrypted_as_its_type_says(self):
        self.assertIsNone(self.volumes.wanted_encryption(self.volume))
        for specs, wanted in (
                ({'capabilities': 'x'}, None),
                ({'localclone:encryption': 'luks2'},
                 encryption_types.Encryption())):
            self.volume.volume_type_id = volume_types.create(
                self.context, 'type %s' % wanted, specs)['id']
            self.assertEqual(
                wanted, self.volumes.wanted_encryption(self.volume))

    def test_a_pace_matters_to_new_volumes_alone(self):
        self.volume.volume_type_id = volume_types.create(
            self.context, 'type', {'localclone:pace': 'slow'})['id']
        self.assertIsNone(self.volumes.wanted_encryption(self.volume))
        self.assertRaises(
            encryption_types.InvalidPace, self.volumes.wanted_encryption,
            self.volume, new=True)

    @ddt.data({'status': 'error'}, {'status': 'available'},
              {'host': C + '#p'}, {'host': A + '#q'})
    def test_not_what_it_was_asked_for(self, changes):
        self.volume.update(changes)
        self.volume.save()
        before = self.where()
        self.assertRaises(exceptions.TooLate, self.set_home)
        self.assertEqual(before, self.where())

    def test_not_what_is_moving(self):
        moving = self.begin()
        self.assertRaises(exceptions.TooLate, self.set_home)
        self.moves.advance(moving, Event.FAILED)
        self.set_home()

    def test_not_what_is_gone(self):
        self.volume.destroy()
        self.assertRaises(exceptions.TooLate, self.set_home)

    def test_a_node_without_a_service(self):
        before = self.where()
        self.set_home(new=C)
        self.assertEqual((C + '#p', *before[1:]), self.where())

    def test_type_that_was_deleted(self):
        """Cinder allows this once the volumes of the type are deleted."""
        type_id = volume_types.create(self.context, 'gone')['id']
        volume_types.create(self.context, 'another')  # the last one stays
        self.volume.volume_type_id = type_id
        self.volume.save()
        self.volume.destroy()
        volume_types.destroy(self.context, type_id)
        self.assertRaises(
            encryption_types.InvalidType, self.volumes.wanted_encryption,
            self.volumes.last_known(self.volume.id))

    def test_what_has_become_of_it(self):
        def found():
            return self.volumes.last_known(self.volume.id)
        self.assertEqual(rows.Uncommitted(
            self.volume.id, 'creating', A, 'volume-' + self.volume.id,
            volume_type_id=self.volume.volume_type_id), found())
        moving = self.moves.commit(self.begin())
        self.assertEqual((B, 'volume-' + moving.move_id),
                         (found().home, found().lv))
        self.volume.destroy()
        self.assertTrue(found().deleted)
        self.assertIsNone(self.volumes.last_known(NONE))

    def test_zones(self):
        self.assertEqual(['here', 'there', 'there', None], [
            self.services.zone_of(host) for host in (A, B, B + '#p', C)])

    def test_only_volume_services_are_homes(self):
        utils.create_service(self.context, {
            'host': C, 'binary': 'cinder-backup', 'topic': 'cinder-backup',
            'availability_zone': 'there'})
        self.assertIsNone(self.services.zone_of(C))

    def test_services_are_corrected(self):
        # As Cinder's manager leaves them: of the service that was asked.
        uuid = self.service_rows[A].uuid
        other = self.service_rows[B].uuid
        expected = {}
        for host, status, corrected in (
                (B + '#p', 'available', other), (B + '#p', 'creating', uuid),
                (A + '#p', 'available', uuid), (C + '#p', 'in-use', uuid),
                ('bb@l#p', 'available', uuid), (B + 'x#p', 'error', uuid),
                # The database may not tell this from the name.
                (B.upper() + '#p', 'available', uuid)):
            row = utils.create_volume(
                self.context, host=host, status=status, service_uuid=uuid,
                volume_type_id=None)
            expected[row.id] = corrected
        lvs = {self.volumes.volume(each).name for each in expected}
        self.volumes.correct_services(B, lvs)
        self.volumes.correct_services(C, lvs)
        self.assertEqual(expected, {
            key: base.cinder_volume(key).service_uuid for key in expected})
        # All nodes look for this every few minutes.
        reading = types.SimpleNamespace(
            reader=base.main_context_manager.reader)
        with mock.patch.object(base, 'main_context_manager', reading):
            self.volumes.correct_services(B, lvs)

    def test_deleted_volumes_are_not_corrected(self):
        deleted = utils.create_volume(
            self.context, host=B + '#p', status='deleting',
            service_uuid=self.service_rows[A].uuid, volume_type_id=None)
        self.assertEqual([deleted.id], self.volumes.volumes_with_wrong_host(A))
        deleted.destroy()
        self.assertEqual([], self.volumes.volumes_with_wrong_host(A))
        reading = types.SimpleNamespace(
            reader=base.main_context_manager.reader)
        with mock.patch.object(base, 'main_context_manager', reading):
            self.volumes.correct_services(B, {deleted.name})

    def change(self, volume_id, **values):
        """Another service changes the row of a volume."""
        with base.main_context_manager.writer.using(base.admin()) as session:
            base.volume_row(session, volume_id).update(values)

    def test_service_of_a_volume_that_moves_meanwhile(self):
        """It belongs to the service of its new home."""
        uuid = self.service_rows[A].uuid
        volume = utils.create_volume(
            self.context, host=B + '#p', status='available',
            service_uuid=uuid, volume_type_id=None)
        lv, writer = self.volumes.volume(volume.id).name, base.writer

        def moved():
            self.change(volume.id, host=A + '#p')
            return writer()
        with mock.patch.object(base, 'writer', moved):
            self.volumes.correct_services(B, {lv})
        self.assertEqual(uuid, base.cinder_volume(volume.id).service_uuid)

    def test_home_of_a_volume_with_another_lv_meanwhile(self):
        volume = self.volumes.volume(utils.create_volume(
            self.context, host=B + '#p', status='available',
            service_uuid=self.service_rows[A].uuid, volume_type_id=None).id)
        self.change(volume.id, _name_id=NONE)
        self.assertFalse(self.volumes.correct_home(volume, A))
        volume = self.volumes.volume(volume.id)
        self.assertFalse(self.volumes.correct_home(volume, C))  # no service
        self.assertTrue(self.volumes.correct_home(volume, A))


class ValuesTest(testtools.TestCase):

    def test_location(self):
        self.assertEqual('a@l', rows.node_of(rows.location('a@l')))
        for other in (None, '', 'lc2:a@l', 'a@l', 'lc1'):
            self.assertEqual('', rows.node_of(other))

    def test_backend(self):
        for host in ('a@l', 'b@l#pool'):
            self.assertEqual('l', names.backend_of(host))
        for host in ('', None, 'a'):
            self.assertEqual('', names.backend_of(host))


@ddt.ddt
class RevertTest(Case):

    def setUp(self):
        super().setUp()
        self.reverting()

    def reverting(self):
        self.volume.refresh()
        self.assertTrue(bool(self.volume.conditional_update(
            {'status': 'reverting'}, {'status': self.volume.status})))
        self.read = self.volumes.volume(self.volume.id)

    def test_another_backing_elsewhere(self):
        after = self.volumes.replace_backing(self.read, NONE, B)
        self.assertEqual(
            (NONE, B, 'there', self.service_rows[B].uuid, 'reverting'),
            (after.name_id, after.host.partition('#')[0],
             after.availability_zone, self.reload().service_uuid,
             after.status))
        self.volumes.keep(self.volume.id, self.volume.id)
        self.assertEqual('reverting', self.volumes.volume(
            self.volume.id).status)
        self.assertRaises(exceptions.StaleMove, self.volumes.replace_backing,
                          self.read, NONE, B)

    @ddt.data({'name_id': NONE}, {'host': B + '#p'})
    def test_another_row_within_the_same_second(self, changes):
        """MySQL keeps the time of a change in whole seconds."""
        self.assertRaises(
            exceptions.StaleMove, self.volumes.replace_backing,
            dataclasses.replace(self.read, **changes), NONE, B)
        self.assertEqual(self.read, self.volumes.volume(self.volume.id))

    def test_row_without_a_time_of_a_change(self):
        volume = utils.create_volume(self.context, host=A + '#p',
                                     status='reverting', volume_type_id=None)
        read = self.volumes.volume(volume.id)
        self.assertIsNone(read.updated_at)
        after = self.volumes.replace_backing(read, NONE, A)
        self.assertEqual(NONE, after.name_id)
        self.assertRaises(
            exceptions.StaleMove, self.volumes.replace_backing,
            dataclasses.replace(after, updated_at=None), read.id, A)

    def test_elsewhere_without_a_cluster(self):
        """That of its old service would be asked for it."""
        self.volume.refresh()
        self.volume.cluster_name = 'a cluster'
        self.volume.save()
        self.read = self.volumes.volume(self.volume.id)
        self.volumes.replace_backing(self.read, NONE, B)
        self.assertIsNone(self.reload().cluster_name)

    def provider_id(self):
        return self.volumes.volume(self.volume.id).provider_id

    def test_encrypted_as_the_snapshot(self):
        self.volumes.replace_backing(self.read, NONE, B, ENCRYPTION)
        self.assertEqual(str(ENCRYPTION), self.provider_id())

    def test_what_another_driver_has_written_stays(self):
        self.volume.refresh()
        self.volume.provider_id = 'of another driver'
        self.volume.save()
        self.read = self.volumes.volume(self.volume.id)
        self.volumes.replace_backing(self.read, NONE, B)
        self.assertEqual('of another driver', self.provider_id())

    def test_given_up(self):
        self.volumes.keep(self.volume.id, self.volume.id)
        self.assertRaises(exceptions.StaleMove, self.volumes.replace_backing,
                          self.read, NONE, B)

    def test_while_it_moves(self):
        """The commit of the move would give it the other LV again."""
        moving = self.begin(Event.MOVE_BEGUN)
        self.read = self.volumes.volume(self.volume.id)
        self.assertRaises(exceptions.StaleMove, self.volumes.replace_backing,
                          self.read, NONE, B)
        self.assertEqual(self.volume.id,
                         self.volumes.volume(self.volume.id).name_id)
        self.moves.advance(moving, Event.FAILED)
        self.read = self.volumes.volume(self.volume.id)
        self.assertEqual(NONE, self.volumes.replace_backing(
            self.read, NONE, B).name_id)

    def test_deleted_after_its_backing_is_replaced(self):
        with mock.patch.object(base, 'volume', autospec=True,
                               return_value=None):
            self.assertRaises(
                exceptions.StaleMove, self.volumes.replace_backing,
                self.read, NONE, B)

    def test_given_up_and_asked_again(self):
        """What the first request has made may be removed by then."""
        first = self.read
        self.volumes.keep(self.volume.id, self.volume.id)
        self.reverting()
        self.assertRaises(exceptions.StaleMove, self.volumes.replace_backing,
                          first, NONE, B)
        self.volumes.replace_backing(self.read, NONE, B)
