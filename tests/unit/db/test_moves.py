# SPDX-License-Identifier: Apache-2.0
"""The records on Cinder's own schema, in its SQLite fixture."""

import dataclasses

from cinder import context
from cinder.db import api as db_api
from cinder import exception
from cinder import objects
from cinder.tests.unit import fake_constants as fake
from cinder.tests.unit import utils
from cinder.volume import api
import ddt

from cinder_localclone.cmd.node import forget
from cinder_localclone.core import exceptions
from cinder_localclone.core import move_record
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.core.volume import Row
from cinder_localclone.db import base
from tests.helpers.records_case import A
from tests.helpers.records_case import B
from tests.helpers.records_case import Base
from tests.helpers.records_case import GEOMETRY


@ddt.ddt
class RecordsTest(Base):

    def test_begin_is_seen_from_both_ends(self):
        moving = self.begin()
        self.assertEqual((A, B, False, Phase.STARTING), (
            moving.source, moving.destination, moving.committed,
            moving.phase))
        for host in (A, B):
            self.assertEqual([moving], self.moves.moves_of(host))
        self.assertEqual([], self.moves.moves_of('c@l'))
        self.assertEqual(moving, self.moves.move_of(self.volume.id))
        self.assertEqual(moving, self.moves.get_move(moving.move_id))
        self.assertEqual('iqn:' + moving.move_id, moving.source_iqn)
        self.assertTrue(move_record.is_move_record(
            self.volumes.volume(moving.move_id)))
        self.assertEqual([self.volume.id], [
            each.id for each in self.volumes.volumes_of(A)])
        self.assertEqual([], self.volumes.volumes_of(B))

    def test_one_move_at_a_time(self):
        self.begin()
        self.assertRaises(exceptions.StaleMove, self.begin)

    @ddt.data('available', 'deleting')
    def test_what_an_administrator_has_taken_does_not_move(self, status):
        """He has reset the status of a volume that a move holds."""
        self.volume.update({'status': 'available',
                            'attach_status': 'detached'})
        self.volume.save()
        moving = self.moves.begin(
            self.reload(), B + '#p', Event.MOVE_BEGUN, GEOMETRY,
            lambda record: 'p,1 i:%s 0' % record, 'CHAP u s', 'i',
            state.Asked.DRAIN)
        self.volume.update({'status': status})
        self.volume.save()
        self.assertRaises(
            exceptions.StaleMove, self.moves.commit, moving)
        after = self.reload()
        self.assertEqual((A + '#p', status), (after.host, after.status))
        self.assertFalse(self.moves.move_of(self.volume.id).committed)

    def test_the_source_is_exported_elsewhere(self):
        moving = self.moves.commit(self.begin())
        self.moves.relocate(moving, 'new,1 iqn:x 0')
        found = self.moves.get_move(moving.move_id)
        self.assertEqual(
            dataclasses.replace(moving, location='new,1 iqn:x 0'), found)
        # By what was read before, or by another phase: another was first.
        for stale in (moving, dataclasses.replace(found, committed=False)):
            self.assertRaises(exceptions.StaleMove, self.moves.relocate,
                              stale, 'other,1 iqn:x 0')
        self.assertEqual(found, self.moves.get_move(moving.move_id))

    def test_begin_beside_leftovers(self):
        failed = self.moves.advance(self.begin(), Event.FAILED)
        self.assertIsNone(self.moves.move_of(self.volume.id))
        self.assertEqual([failed], self.moves.pending_cleanups(self.volume.id))
        drained = self.drain(self.moves.commit(self.begin()))
        current = self.begin(host='c@l')
        self.assertEqual(current, self.moves.move_of(self.volume.id))
        self.assertRaises(exceptions.StaleMove, self.begin)
        left = {move.move_id: move for move in
                self.moves.pending_cleanups(self.volume.id)}
        self.assertEqual({failed.move_id, drained.move_id}, set(left))
        self.assertEqual([(B, failed.destination_lv), (A, drained.source_lv)],
                         [(left[each.move_id].cleanup_node,
                           left[each.move_id].cleanup_lv)
                          for each in (failed, drained)])

    def test_leftovers_are_as_they_were_once_the_volume_has_moved_on(self):
        failed = self.moves.advance(self.begin(), Event.FAILED)
        drained = self.drain(self.moves.commit(self.begin()))
        last = self.moves.commit(self.begin(host='c@l'))
        self.assertEqual('c@l', last.destination)
        for before in (failed, drained):
            after = self.moves.get_move(before.move_id)
            for same in ('token', 'committed', 'cleanup_node', 'cleanup_lv',
                         'location', 'auth', 'initiator'):
                self.assertEqual(getattr(before, same), getattr(after, same))
        # Each node learns of what it has to clean up, the home of all.
        self.assertEqual({drained.move_id}, {
            move.move_id for move in self.moves.moves_of(A)})
        self.assertEqual({failed.move_id, last.move_id}, {
            move.move_id for move in self.moves.moves_of(B)})
        self.assertEqual(3, len(self.moves.moves_of('c@l')))

    def test_leftovers_end_while_a_later_move_goes_on(self):
        failed = self.moves.advance(self.begin(), Event.FAILED)
        drained = self.drain(self.moves.commit(self.begin()))
        current = self.moves.commit(self.begin(host='c@l'))
        volume = self.reload()
        for move_id, event in (
                (failed.move_id, Event.DESTINATION_REMOVED),
                (drained.move_id, Event.SOURCE_REMOVED)):
            self.moves.finish(self.moves.get_move(move_id), event)
        self.assertEqual([], self.moves.pending_cleanups(self.volume.id))
        self.assertEqual(current, self.moves.move_of(self.volume.id))
        for column in ('host', 'name'):
            self.assertEqual(getattr(volume, column),
                             getattr(self.reload(), column))

    def test_leftovers_of_a_volume_that_was_deleted(self):
        drained = self.drain(self.moves.commit(self.begin()))
        self.volume.destroy()
        self.assertIsNone(self.moves.move_of(self.volume.id))
        left, = self.moves.pending_cleanups(self.volume.id)
        self.assertEqual((A, drained.source_lv),
                         (left.cleanup_node, left.cleanup_lv))
        self.moves.finish(left, Event.SOURCE_REMOVED)
        self.assertEqual([], self.moves.readable_moves())

    @ddt.data(
        (None, 'success'), ('', 'success'), ('none', 'success'),
        ('success', 'success'), ('error', 'success'),
        ('starting', 'starting'), ('migrating', 'migrating'),
        ('completing', 'completing'), ('deleting', 'deleting'),
        ('target:' + fake.UUID2, 'target:' + fake.UUID2))
    @ddt.unpack
    def test_finish_leaves_what_cinder_migrates_alone(self, before, after):
        drained = self.drain(self.moves.commit(self.begin()))
        volume = self.reload()
        volume.migration_status = before
        volume.save()
        self.moves.finish(drained, Event.SOURCE_REMOVED)
        self.assertEqual(after, self.reload().migration_status)

    def test_a_volume_that_is_lost_gets_another_home(self):
        utils.create_service(self.context, {
            'host': 'c@l', 'binary': 'cinder-volume', 'topic': 't',
            'availability_zone': 'zone'})
        volume = self.reload()
        self.decommission.give_up(volume, 'c@l#p')
        after = self.reload()
        self.assertEqual(('c@l#p', 'error', 'zone', volume.name), (
            after.host, after.status, after.availability_zone, after.name))
        self.assertEqual([after.id], [
            each.id for each in self.volumes.volumes_of('c@l')])
        self.assertRaises(exceptions.StaleMove, self.decommission.give_up,
                          volume, 'd@l#p')
        self.assertEqual('c@l#p', self.reload().host)

    def test_a_volume_that_has_moved_is_not_given_up(self):
        before = self.reload()
        self.moves.commit(self.begin())
        self.assertRaises(exceptions.StaleMove, self.decommission.give_up,
                          before, 'c@l#p')
        self.assertEqual(B + '#p', self.reload().host)

    def test_a_service_is_forgotten(self):
        utils.create_service(self.context, {
            'host': B, 'binary': 'cinder-volume', 'topic': 't'})
        self.assertIn(B, self.services.alive_by_host())
        self.assertTrue(self.decommission.forget_service(B))
        self.assertNotIn(B, self.services.alive_by_host())
        self.assertFalse(self.decommission.forget_service(B))

    def test_begin_at_a_stale_home(self):
        stale = self.reload()
        self.volume.host = B + '#p'
        self.volume.save()
        self.assertRaises(
            exceptions.StaleMove, self.moves.begin, stale, B + '#p',
            Event.MOVE_BEGUN, GEOMETRY, lambda record: 'x', 'CHAP u s', 'i')

    def test_no_tenant_sees_a_record(self):
        self.volume.update({'project_id': 'project'})
        self.volume.save()
        owner = context.RequestContext(
            'user', 'project', is_admin=False, roles=['member', 'reader'],
            overwrite=False)

        def seen():
            volumes = api.API()
            with base.main_context_manager.reader.using(self.context):
                # Cinder 27 and 28 have it behind an interface.
                used = getattr(db_api, 'IMPL', db_api)._sync_gigabytes(
                    self.context, 'project')
            return ([each.id for each in volumes.get_all(owner)],
                    volumes.get_volume_summary(owner, {})[:2], used)
        before = seen()
        self.assertEqual(([self.volume.id], (1, 1)), before[:2])
        record = self.begin().move_id
        self.moves.commit(self.moves.get_move(record))
        self.assertEqual(before, seen())
        self.assertRaises(exception.VolumeNotFound, api.API().get, owner,
                          record)

    def test_commit_swaps_and_nothing_else(self):
        before = self.reload()
        moving = self.moves.commit(self.begin())
        after = self.reload()
        self.assertTrue(moving.committed)
        self.assertEqual((A, B), (moving.source, moving.destination))
        self.assertEqual(B + '#p', after.host)
        self.assertEqual(moving.move_id, after.name_id)
        self.assertEqual(before.name, moving.source_lv)
        self.assertEqual(after.name, moving.destination_lv)
        for kept in ('id', 'status', 'size', 'user_id', 'project_id',
                     'volume_type_id', 'migration_status'):
            self.assertEqual(getattr(before, kept), getattr(after, kept))

    def test_commit_twice_has_one_winner(self):
        moving = self.begin()
        self.moves.commit(moving)
        self.assertRaises(exceptions.StaleMove, self.moves.commit,
                          moving)

    def test_volume_with_another_lv_by_now(self):
        """That LV would be given away."""
        moving = self.begin()
        for act, found in ((self.moves.commit, moving),
                           (self.moves.roll_back, None)):
            found = found or self.moves.commit(moving)
            volume = self.reload()
            before, volume._name_id = volume._name_id, fake.UUID3
            volume.save()
            self.assertRaises(exceptions.StaleMove, act, found)
            self.assertEqual(fake.UUID3, self.reload().name_id)
            volume._name_id = before
            volume.save()

    def test_commit_after_a_failure_is_refused(self):
        moving = self.begin()
        self.moves.advance(moving, Event.FAILED)
        self.assertRaises(exceptions.StaleMove, self.moves.commit,
                          moving)
        self.assertEqual(A + '#p', self.reload().host)

    def test_advance_compares(self):
        moving = self.begin()
        self.moves.advance(moving, Event.FAILED)
        self.assertRaises(exceptions.StaleMove, self.moves.advance,
                          moving, Event.FAILED)

    def test_a_commit_whose_answer_was_lost_is_seen(self):
        before = self.begin()
        after = self.moves.commit(before)
        self.assertEqual(before.token, after.token)
        self.assertRaises(exceptions.StaleMove, self.moves.advance,
                          before, Event.FAILED)
        self.assertEqual(after, self.moves.get_move(before.move_id))

    def test_finish_compares_the_identities(self):
        back = self.moves.roll_back(self.moves.commit(self.begin()))
        record = base.cinder_volume(back.move_id)
        record.name_id = back.volume_id
        record.save()
        self.assertRaises(exceptions.StaleMove, self.moves.finish,
                          back, Event.DESTINATION_REMOVED)
        self.assertTrue(self.moves.is_move(back.move_id))

    def test_what_cinder_migrates_is_left_alone(self):
        self.volume.migration_status = 'migrating'
        self.volume.save()
        self.assertRaises(exceptions.StaleMove, self.begin)
        self.assertEqual('migrating', self.reload().migration_status)

    def test_a_record_that_cannot_be_read_stops_no_other(self):
        moving = self.begin()
        broken = base.cinder_volume(moving.move_id)
        broken.replication_driver_data = 'lc1:hovering:n:1:2:3'
        broken.save()
        self.volume = utils.create_volume(
            self.context, host=A + '#p', size=1, status='in-use',
            volume_type_id=None)
        other = self.begin()
        self.assertEqual([other], self.moves.moves_of(A))
        self.assertTrue(self.moves.is_move(moving.move_id))
        for look in (self.moves.move_of, self.moves.pending_cleanups):
            self.assertRaises(exceptions.InvalidToken, look,
                              moving.volume_id)
        self.assertRaises(
            exceptions.InvalidToken, self.moves.begin,
            self.volumes.volume(moving.volume_id), B + '#p',
            Event.MOVE_BEGUN, GEOMETRY, lambda record: 'x', 'CHAP u s', 'i')

    def test_a_record_that_cannot_be_read_may_be_of_a_move(self):
        moving = self.begin()
        broken = base.cinder_volume(moving.move_id)
        broken.replication_driver_data = 'lc1:hovering:n:1:2:3'
        broken.save()
        for status, change in (
                ('creating', lambda volume: self.volumes.set_home(
                    volume.id, A + '#p', B + '#p')),
                ('reverting', lambda volume: self.volumes.replace_backing(
                    volume, moving.move_id, B)),
                ('in-use', lambda volume: self.decommission.give_up(
                    volume, B + '#p'))):
            self.put(status=status)
            before = self.reload()
            self.assertRaises(exceptions.InvalidToken, change, before)
            after = self.reload()
            self.assertEqual((before.host, before.status),
                             (after.host, after.status))

    def test_roll_back_restores_the_identities(self):
        before = self.reload()
        back = self.moves.roll_back(self.moves.commit(self.begin()))
        after = self.reload()
        self.assertEqual((Phase.ROLLING_BACK, False, A, B), (
            back.phase, back.committed, back.source, back.destination))
        for column in ('host', 'name', 'name_id'):
            self.assertEqual(getattr(before, column),
                             getattr(after, column))
        self.moves.finish(back, Event.DESTINATION_REMOVED)
        self.assertIsNone(self.moves.move_of(self.volume.id))
        self.assertIsNone(self.reload().migration_status)

    def test_no_way_back_once_hydrating(self):
        moving = self.moves.advance(
            self.moves.commit(self.begin()), Event.SOURCE_DETACHED)
        self.assertRaises(exceptions.InvalidTransition,
                          self.moves.roll_back, moving)

    def test_there_and_back_again(self):
        for host in (B, A, B):
            moving = self.moves.begin(
                self.reload(), host + '#p', Event.MOVE_BEGUN, GEOMETRY,
                lambda record: 'portal,1 iqn 0', 'CHAP u s', 'i')
            moving = self.moves.commit(moving)
            for event in (Event.HYDRATED, Event.DRAINED):
                moving = self.moves.advance(moving, event)
            self.moves.finish(moving, Event.SOURCE_REMOVED)
            volume = self.reload()
            self.assertEqual(host + '#p', volume.host)
            self.assertEqual('volume-' + moving.move_id, volume.name)
            self.assertEqual('success', volume.migration_status)

    def test_the_secret_goes_with_the_move(self):
        moving = self.begin()
        failed = self.moves.advance(moving, Event.FAILED)
        self.moves.finish(failed, Event.DESTINATION_REMOVED)
        row = objects.Volume.get_by_id(
            self.context.elevated(read_deleted='yes'), moving.move_id)
        self.assertIsNone(row.provider_auth)

    def test_move_of_a_volume_that_was_deleted(self):
        moving = self.moves.commit(self.begin())
        self.volume.destroy()
        found = self.moves.get_move(moving.move_id)
        self.assertEqual((A, B), (found.source, found.destination))

    def attachment(self, host, status='reserved'):
        found = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id,
            instance_uuid=fake.INSTANCE_ID,
            attach_status='attached' if host else status)
        found.create()
        if host:
            found.connector = {'host': host}
            found.save()
        return found.id

    def drop(self, attachment):
        self.attachments.drop_attachment(self.volume.id, attachment)
        return {each.id for each in self.reload().volume_attachment}

    def test_a_refused_attachment_is_dropped(self):
        """And no other; the volume keeps the status that it has meanwhile."""
        kept = {self.attachment('n1'), self.attachment(None)}
        self.put(status='extending')
        self.assertEqual(kept, self.drop(self.attachment(None)))
        self.assertEqual('extending', self.reload().status)

    def test_the_last_attachment_is_dropped(self):
        """Its instance was deleted meanwhile."""
        refused = self.attachment(None)
        self.put(status='reserved')
        self.assertEqual(set(), self.drop(refused))
        self.assertEqual('available', self.reload().status)

    def test_one_of_two_that_are_reserved_is_dropped(self):
        kept, refused = self.attachment(None), self.attachment(None)
        self.put(status='reserved')
        self.assertEqual({kept}, self.drop(refused))
        self.assertEqual('reserved', self.reload().status)

    def test_an_attachment_that_has_gone_on_is_left_alone(self):
        for each in (self.attachment('n3'),
                     self.attachment(None, 'attaching')):
            self.assertIn(each, self.drop(each))

    def put(self, **values):
        self.volume.update(values)
        self.volume.save()

    @ddt.data(('target:v', 'lc1:x', True, False),
              (None, 'lc1:x', False, False),
              ('migrating', 'lc1:x', False, True),
              ('target:v', None, False, True),
              ('target:v', 'other', False, True),
              (None, None, False, False))
    @ddt.unpack
    def test_whose_a_volume_is(self, status, data, ours, cinders):
        volume = self.reload()
        volume.migration_status = status
        volume.replication_driver_data = data
        self.assertEqual((ours, cinders), (
            move_record.is_move_record(volume),
            Row.of(volume).is_migrated_by_cinder))

    def test_a_host_with_its_pool_is_no_node_to_forget(self):
        # nodes().get('a@l#p') is None, so it is not refused as "up".
        self.assertEqual([], forget.plan(
            self.db, A + '#p', 'c@l#p', lambda move: None,
            self.fail))

    def test_a_host_that_is_alike_is_not_forgotten(self):
        self.volume.host = 'node-1@l#p'
        self.volume.save()
        self.assertEqual([], forget.plan(
            self.db, 'node_1@l', 'c@l#p', lambda move: None,
            self.fail))

    def test_not_given_up_while_a_move_from_it_is_begun(self):
        moving = self.begin()
        volume = self.reload()
        self.assertRaises(exceptions.StaleMove,
                          self.decommission.give_up, volume, 'c@l#p')
        # The operator repeats the command: it must see the move as A's.
        self.assertEqual([A], [each.source for each in
                               self.moves.moves_of(A)])
        self.moves.advance(moving, Event.FAILED)
        self.decommission.give_up(volume, 'c@l#p')
