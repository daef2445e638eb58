# SPDX-License-Identifier: Apache-2.0
"""The contract of the records: all that is not a move."""

import dataclasses
import datetime

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import rows
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types
from tests.helpers import records_bench

A, B, C = records_bench.A, records_bench.B, records_bench.C
GIB, ZONES = records_bench.GIB, records_bench.ZONES
KEY, KEY2, LUKS = records_bench.KEY, records_bench.KEY2, records_bench.LUKS
NEW, NONE, PASSED = (records_bench.NEW, records_bench.NONE,
                     records_bench.PASSED)
ONE, OTHER = records_bench.ONE, records_bench.OTHER


@ddt.ddt
class Contract(records_bench.Contract):

    # -- the queue

    def entry(self):
        found, = self.queue.copies(A)
        return found

    def test_copies__only_those(self):
        self.assertEqual([], self.queue.copies(A))
        move = self.begin()
        self.begin(volume=self.row(self.create(C, status='in-use')),
                   event=Event.LIVE_MOVE_BEGUN)
        self.assertEqual([], self.queue.copies(A))
        move = self.moves.commit(move)
        found = self.entry()
        self.assertEqual(
            (move.move_id, self.volume, A, B, False, False, 0, '', False),
            (found.move_id, found.volume_id, found.source,
             found.destination, found.attached, found.awaited, found.stalled,
             found.pace, found.migrating))
        self.assertEqual(found, self.queue.copies('x@l')[0])
        self.assertEqual([], self.queue.copies('a@other'))
        self.moves.advance(move, Event.HYDRATED)
        self.assertEqual([], self.queue.copies(A))

    def test_copies__to_the_home_of_the_move(self):
        """Cinder has written the former over it."""
        self.moves.commit(self.begin())
        for named, home in ((A, B), (C, C)):
            self.put(host=named + '#p')
            self.assertEqual((A, home), (self.entry().source,
                                         self.entry().destination))

    def test_copies__in_their_order(self):
        self.moves.commit(self.begin())
        other = self.create(status='in-use')
        self.moves.commit(self.begin(volume=self.row(other)))
        self.assertEqual([self.volume, other], [
            each.volume_id for each in sorted(
                self.queue.copies(B), key=lambda each: each.began)])

    def test_copies__of_a_volume_that_was_deleted(self):
        self.moves.commit(self.begin())
        self.rows.destroy(self.volume)
        self.assertEqual([], self.queue.copies(A))

    def test_copies__attached(self):
        self.moves.commit(self.begin())
        for host, instance, attached, migrating in (
                ('a', None, False, False), ('b', ONE, True, False),
                ('b', OTHER, True, False), ('a', ONE, True, True)):
            self.rows.attach(self.volume, host, instance, PASSED)
            found = self.entry()
            self.assertEqual((attached, migrating),
                             (found.attached, found.migrating))

    @ddt.data(('creating', True), ('available', False), ('deleting', False))
    @ddt.unpack
    def test_copies__awaited_by_a_snapshot(self, status, awaited):
        self.moves.commit(self.begin())
        self.snapshot(status=status)
        self.assertEqual(awaited, self.entry().awaited)

    @ddt.data(('creating', True), ('available', False))
    @ddt.unpack
    def test_copies__awaited_by_a_volume(self, status, awaited):
        self.moves.commit(self.begin())
        self.create(B, status=status, source_volid=self.volume)
        self.assertEqual(awaited, self.entry().awaited)

    def test_copies__their_pace(self):
        volume = self.create(specs={'localclone:pace': 'spare'})
        self.moves.commit(self.begin(volume=self.row(volume)))
        self.assertEqual('spare', self.entry().pace)

    def test_note_stalled__and_that_it_is_not(self):
        move = self.moves.commit(self.begin())
        for stalled in (True, True, False, False):
            self.assertIsNone(self.queue.note_stalled(move, stalled))
            self.assertEqual(stalled, self.entry().stalled > 0)
            self.assertEqual(move, self.moves.get_move(move.move_id))

    def test_note_stalled__stale(self):
        move = self.moves.commit(self.begin())
        self.moves.advance(move, Event.HYDRATED)
        self.refused(exceptions.StaleMove, self.queue.note_stalled, move, True)

    # -- what services were at work on when they died

    @ddt.data(*sorted(statuses.LOST_WITH_SERVICE))
    def test_volumes_unchanged_since__work_that_somebody_began(self, status):
        before = self.rows.now()
        self.put(status=status)
        after = self.rows.now() + datetime.timedelta(microseconds=1)
        self.assertEqual([],
                         self.interrupted.volumes_unchanged_since(A, before))
        self.assertEqual([self.volume],
                         self.interrupted.volumes_unchanged_since(A, after))
        for host in (B, 'a', 'aa@l'):
            self.assertEqual(
                [], self.interrupted.volumes_unchanged_since(host, after))
        self.assertEqual([], self.interrupted.volumes_unchanged_since(
            A, after, ('deleting',)))
        self.put(status='in-use')
        self.assertEqual([], self.interrupted.volumes_unchanged_since(
            A, self.rows.now() + datetime.timedelta(microseconds=1)))

    @ddt.data(('extending', 'detached', GIB, 'available'),
              ('extending', 'attached', GIB, 'in-use'),
              ('extending', 'detached', 2 * GIB, 'error_extending'),
              ('reverting', 'detached', GIB, 'available'),
              ('retyping', 'detached', GIB, 'available'))
    @ddt.unpack
    def test_end_dead__by_its_lv(self, status, attached, size, after):
        self.put(status=status, attach_status=attached)
        snapshots = [self.snapshot(status=each)
                     for each in ('restoring', 'creating')]
        self.assertEqual(after, self.interrupted.end_dead(
            self.volume, A, {self.told('name'): size}))
        self.assertEqual(after, self.told('status'))
        self.assertEqual(
            ['available' if status == 'reverting' else 'restoring',
             'creating'],
            [self.snapshots.snapshot(each).status for each in snapshots])

    @ddt.data(('extending', None, GIB // 2), ('extending', None, None),
              ('reverting', None, None), ('retyping', 'migrating', GIB),
              ('in-use', None, GIB), ('deleting', None, GIB))
    @ddt.unpack
    def test_end_dead__nobody_can_know(self, status, migration, size):
        self.put(status=status, migration_status=migration)
        self.snapshot(status='restoring')
        sizes = {self.told('name'): size} if size else {}
        self.assertIsNone(
            self.nothing(self.interrupted.end_dead, self.volume, A, sizes))

    def test_end_dead__gone_or_elsewhere(self):
        self.put(status='extending')
        sizes = {self.told('name'): GIB}
        for volume, host in ((self.volume, B), (NONE, A)):
            self.assertIsNone(
                self.nothing(self.interrupted.end_dead, volume, host, sizes))

    def test_end_dead__not_understood(self):
        self.put(status='extending', provider_id='lc2:luks3:key')
        self.refused(exceptions.NotPossible, self.interrupted.end_dead,
                     self.volume, A, {self.told('name'): GIB})

    def migrating(self, status='available', attached='detached'):
        self.put(status=status, attach_status=attached,
                 migration_status='migrating')

    def check_ended(self, host, result, status, migration):
        self.assertEqual(
            {self.volume: result} if result else {},
            self.interrupted.end_interrupted(host))
        self.assertEqual((status, migration),
                         self.told('status', 'migration_status'))

    @ddt.data('available', 'maintenance', 'retyping')
    def test_end_interrupted__before_it_moves(self, status):
        self.migrating(status)
        self.check_ended(B, None, status, 'migrating')
        self.check_ended(A, 'error', 'available', 'error')
        self.check_ended(A, None, 'available', 'error')

    def test_end_interrupted__begun(self):
        self.migrating()
        move = self.begin(asked_by=Asked.MIGRATION)
        self.check_ended(B, None, 'maintenance', 'migrating')
        # Until the move has failed, it holds the volume.
        self.check_ended(A, 'error', 'maintenance', 'error')
        self.moves.advance(move, Event.FAILED)
        self.assertEqual('available', self.told('status'))

    def test_end_interrupted__begun_while_the_service_is_wrong(self):
        """The record of its move is no copy of another service."""
        self.migrating()
        self.put(service_uuid=self.rows.services[B])
        self.begin(asked_by=Asked.MIGRATION)
        self.check_ended(A, 'error', 'maintenance', 'error')

    def test_end_interrupted__committed(self):
        self.migrating()
        self.moves.commit(self.begin(asked_by=Asked.MIGRATION))
        self.check_ended(B, None, 'available', 'migrating')
        self.check_ended(A, 'success', 'available', 'success')

    def test_end_interrupted__attached(self):
        """Nova copies it, and reports to whichever service runs then."""
        self.migrating('in-use', 'attached')
        self.check_ended(A, None, 'in-use', 'migrating')

    def test_end_interrupted__while_its_last_move_is_copied(self):
        """An attach has moved it: its home's service migrates it."""
        self.moves.commit(self.begin())
        self.migrating()
        self.check_ended(A, None, 'available', 'migrating')
        self.check_ended(B, 'error', 'available', 'error')

    @ddt.data(A, B)
    def test_end_interrupted__a_home_that_was_written_late(self, asked):
        """Either may be at work on it. No home is corrected before its end.
        """
        self.end(self.moves.commit(self.begin()))
        self.migrating()
        self.put(host=A + '#p')
        self.check_ended(C, None, 'available', 'migrating')
        self.check_ended(asked, 'error', 'available', 'error')

    @ddt.data(A, B)
    def test_end_interrupted__the_other_copies_it_to_another_backend(
            self, started):
        """One of them may still copy: the copy would replace later writes.
        """
        self.end(self.moves.commit(self.begin()))
        self.migrating()
        self.create('x@other', status='available',
                    migration_status='target:' + self.volume)
        self.put(host=A + '#p')
        self.check_ended(started, None, 'available', 'migrating')

    def test_end_interrupted__the_service_in_the_row_copies_it(self):
        """The move to it has ended, and a former home was written late."""
        self.migrating()
        self.create('x@other', status='available',
                    migration_status='target:' + self.volume)
        self.put(service_uuid=self.rows.services[B])
        self.check_ended(A, None, 'available', 'migrating')

    def copied_elsewhere(self, service):
        self.migrating()
        copy = self.create('x@other', status='available',
                           migration_status='target:' + self.volume)
        self.put(service_uuid=self.rows.services.get(service))
        return copy

    @ddt.data(A, None)
    def test_end_interrupted__what_only_its_home_can_have_copied(
            self, service):
        """The usual case: no other node may be at work on it."""
        self.copied_elsewhere(service)
        self.check_ended(A, 'error', 'available', 'error')

    def test_end_interrupted__of_a_service_that_was_removed(self):
        """As it is after a new name of the node."""
        self.copied_elsewhere(B)
        self.decommission.forget_service(B)
        self.check_ended(A, 'error', 'available', 'error')

    @ddt.data(A, None)
    def test_end_interrupted__its_move_tells_that_the_other_copies_it(
            self, service):
        """The service in the row is that of the former home, too."""
        self.end(self.moves.commit(self.begin()))
        self.copied_elsewhere(service)
        self.put(host=A + '#p')
        self.check_ended(A, None, 'available', 'migrating')

    def test_end_interrupted__of_a_copy_whose_row_is_gone(self):
        """Cinder has removed its row after an error."""
        self.rows.destroy(self.copied_elsewhere(B))
        self.check_ended(A, 'error', 'available', 'error')

    def test_end_interrupted__what_its_last_move_has_left(self):
        self.end(self.moves.commit(self.begin()))
        self.migrating()
        self.begin(C, asked_by=Asked.MIGRATION)
        # It is the new home's service that migrates it by now.
        self.check_ended(A, None, 'maintenance', 'migrating')
        self.check_ended(B, 'error', 'maintenance', 'error')

    def migrated(self):
        """Cinder's migration to B; the source has yet to clean up."""
        self.migrating()
        return self.moves.commit(self.begin(asked_by=Asked.MIGRATION))

    def test_end_interrupted__its_move_was_copied_meanwhile(self):
        """The service that was asked starts again: its move is no error."""
        self.end(self.migrated())
        self.check_ended(A, 'success', 'available', 'success')

    def test_end_interrupted__its_move_is_copied_beside_another_copy(self):
        """The other migration was refused, and its row may be left."""
        self.migrated()
        self.create('x@other', status='available',
                    migration_status='target:' + self.volume)
        self.check_ended(A, 'success', 'available', 'success')

    def test_end_interrupted__what_its_last_migration_has_left(self):
        """The new home's service migrates it on to another node."""
        self.end(self.migrated())
        self.begin(C, asked_by=Asked.MIGRATION)
        self.check_ended(A, None, 'maintenance', 'migrating')

    def test_end_interrupted__what_is_copied_after_its_last_migration(self):
        """The new home's service copies it to another backend."""
        self.end(self.migrated())
        self.create('x@other', status='available',
                    migration_status='target:' + self.volume)
        self.check_ended(A, None, 'available', 'migrating')

    def test_end_interrupted__what_another_backend_copies(self):
        self.end(self.moves.commit(self.begin()))
        self.migrating()
        self.create('x@other', status='available',
                    migration_status='target:' + self.volume)
        self.check_ended(A, None, 'available', 'migrating')

    # -- attachments

    def attached(self):
        return [each.id for each in self.row().volume_attachment]

    def test_drop_attachment__of_two(self):
        kept = [self.rows.attach(self.volume, 'a', ONE, PASSED),
                self.rows.attach(self.volume, None, ONE, None)]
        refused = self.rows.attach(self.volume, None, ONE, None)
        self.attachments.drop_attachment(self.volume, refused)
        self.assertEqual(set(kept), set(self.attached()))

    def test_drop_attachment__the_last(self):
        self.put(status='reserved')
        refused = self.rows.attach(self.volume, None, ONE, None)
        self.attachments.drop_attachment(self.volume, refused)
        self.assertEqual([], self.attached())
        self.assertEqual('available', self.told('status'))

    def test_drop_attachment__one_after_the_other(self):
        """One of the past does not keep the volume reserved."""
        self.put(status='reserved')
        refused = [self.rows.attach(self.volume, None, ONE, None)
                   for _each in range(2)]
        for each, status in zip(refused, ('reserved', 'available')):
            self.attachments.drop_attachment(self.volume, each)
            self.assertEqual(status, self.told('status'))

    def test_drop_attachment__beside_one_of_another_volume(self):
        self.put(status='reserved')
        self.rows.attach(self.create(), None, ONE, None)
        self.attachments.drop_attachment(self.volume, self.rows.attach(
            self.volume, None, ONE, None))
        self.assertEqual('available', self.told('status'))

    def test_drop_attachment__gone_on_or_gone(self):
        connected = self.rows.attach(self.volume, 'a', ONE, PASSED)
        self.nothing(self.attachments.drop_attachment, self.volume, connected)
        self.nothing(self.attachments.drop_attachment, self.volume, NONE)
        self.nothing(self.attachments.drop_attachment, NONE, connected)

    def test_drop_attachment__of_another_volume(self):
        other = self.create(status='reserved')
        self.nothing(self.attachments.drop_attachment, self.volume,
                     self.rows.attach(other, None, ONE, None))

    @ddt.data(('a', 'reserved'), (None, 'attaching'), (None, 'attached'))
    @ddt.unpack
    def test_drop_attachment__that_goes_on(self, host, status):
        """Cinder writes the connector first, and then the status."""
        self.put(status='reserved')
        found = self.rows.attach(self.volume, host, ONE, PASSED)
        self.rows.change_attachment(found, attach_status=status)
        self.nothing(self.attachments.drop_attachment, self.volume, found)

    @ddt.data('in-use', 'error', 'maintenance', 'deleting')
    def test_drop_attachment__of_what_others_are_at_work_on(self, status):
        """Nobody else is given the volume."""
        self.put(status=status, attach_status='reserved')
        refused = self.rows.attach(self.volume, None, ONE, None)
        self.attachments.drop_attachment(self.volume, refused)
        self.assertEqual([], self.attached())
        self.assertEqual((status, 'reserved'),
                         self.told('status', 'attach_status'))

    @ddt.data((50, None, True), (70, None, False), (9000, 50, True),
              (9000, 70, False), (-9000, None, True), (50, 9000, True))
    @ddt.unpack
    def test_any_newer__when_it_was_made_or_changed(self, made, changed, new):
        found, other = (self.rows.attach(self.volume, None, ONE, None)
                        for _each in range(2))
        now = self.rows.attachments_now()
        self.rows.change_attachment(found, **{
            name: ago and now - datetime.timedelta(seconds=ago)
            for name, ago in (('created_at', made), ('updated_at', changed))})
        self.assertEqual(new, self.attachments.any_newer([found], 60))
        self.assertFalse(self.attachments.any_newer([NONE], 60))
        self.assertTrue(self.attachments.any_newer([found, other], 60))

    def test_any_newer__removed_meanwhile(self):
        found = self.rows.attach(self.volume, None, ONE, None)
        self.attachments.drop_attachment(self.volume, found)
        self.assertFalse(self.attachments.any_newer([found], 60))

    @ddt.data('error_attaching', 'error_detaching')
    def test_drop_attachment__beside_one_that_has_failed(self, failure):
        """Cinder does not count that either."""
        self.put(status='reserved', attach_status='reserved')
        failed, refused = (self.rows.attach(self.volume, None, ONE, None)
                           for _each in range(2))
        self.rows.change_attachment(failed, attach_status=failure)
        self.attachments.drop_attachment(self.volume, refused)
        self.assertEqual([failed], self.attached())
        self.assertEqual(('available', 'detached'),
                         self.told('status', 'attach_status'))

    def remotes(self, host):
        return [each.id for each in self.attachments.remote_to(host)]

    def test_remote_to__by_attachments(self):
        others = sorted([self.create(), self.create()])
        for volume in others:
            self.rows.attach(volume, 'b', ONE, dict(
                PASSED, target_iqn='iqn:remote-x'))
        self.rows.attach(self.volume, 'c', ONE, dict(
            PASSED, target_iqn='iqn:remote-x', driver_volume_type='iscsi'))
        self.rows.attach(self.volume, 'a', ONE, {
            'driver_volume_type': 'local', 'device_path': '/dev/remote-x'})
        self.rows.attach(self.volume, None, ONE, None)
        for host, found in ((A, []), (B, others), (C, [])):
            self.assertEqual(found, self.remotes(host))
        self.rows.destroy(others[0])
        self.assertEqual(others[1:], self.remotes(B))

    def test_end_remote_attachments__of_one_node(self):
        told = dict(PASSED, target_iqn='iqn:remote-x')
        self.rows.attach(self.volume, 'b', ONE, told)
        self.rows.attach(self.volume, 'c', ONE, told)
        self.nothing(self.attachments.end_remote_attachments, self.volume, A)
        self.nothing(self.attachments.end_remote_attachments, NONE, B)
        self.attachments.end_remote_attachments(self.volume, B)
        self.nothing(self.attachments.end_remote_attachments, self.volume, B)
        self.assertEqual(([], [self.volume]),
                         (self.remotes(B), self.remotes(C)))
        self.assertEqual(
            {'b': {'driver_volume_type': 'local',
                   'device_path': '/dev/mapper/x'}, 'c': told},
            {each.connector['host']: each.connection_info
             for each in self.row().volume_attachment})

    def test_readdress__by_the_iscsi_name(self):
        for host, name in (('b', 'iqn.p'), ('c', 'iqn.q')):
            self.rows.attach(self.volume, host, ONE, dict(
                PASSED, target_iqn=name))
        self.rows.attach(self.volume, 'a', ONE, {'driver_volume_type': 'x'})
        self.rows.attach(self.volume, None, ONE, None)
        self.nothing(self.attachments.readdress, self.volume, 'iqn.r',
                     'new:3260')
        self.nothing(self.attachments.readdress, NONE, 'iqn.p', 'new:3260')
        self.attachments.readdress(self.volume, 'iqn.p', 'new:3260')
        found = {each.connector['host']: each.connection_info
                 for each in self.row().volume_attachment if each.connector}
        self.assertEqual(
            {'b': dict(PASSED, target_portal='new:3260'),
             'c': dict(PASSED, target_iqn='iqn.q'),
             'a': {'driver_volume_type': 'x'}}, found)

    # -- secrets

    def test_record__compares(self):
        self.assertIsNone(self.secrets.record(self.volume, KEY))
        self.assertEqual(str(KEY), self.told('provider_id'))
        for before in (None, KEY2):
            self.refused(exceptions.TooLate, self.secrets.record, self.volume,
                         KEY2, before)
        self.secrets.record(self.volume, KEY2, KEY)
        self.assertEqual(str(KEY2), self.told('provider_id'))

    def test_record__what_is_gone_or_not_understood(self):
        self.put(provider_id='lc2:luks3:key')
        self.refused(exceptions.TooLate, self.secrets.record, self.volume, KEY)
        self.rows.destroy(self.volume)
        for volume in (self.volume, NONE):
            self.refused(exceptions.TooLate, self.secrets.record, volume, KEY)

    def test_secrets_in_use__volumes_and_snapshots(self):
        self.assertEqual(set(), self.secrets.secrets_in_use())
        self.put(provider_id=str(KEY))
        snapshot = self.snapshot(provider_id=str(KEY2))
        self.assertEqual({'key', 'key2'}, self.secrets.secrets_in_use())
        self.assertEqual({'key2'}, self.secrets.secrets_in_use(
            iter([self.volume])))
        self.rows.destroy_snapshot(snapshot)
        self.assertEqual({'key'}, self.secrets.secrets_in_use())
        self.rows.destroy(self.volume)
        self.assertEqual(set(), self.secrets.secrets_in_use())

    def test_secrets_of_deleted_snapshots__of_a_volume(self):
        self.put(provider_id=str(KEY))
        other = self.create()
        kept, gone, foreign, others = [
            self.snapshot(**values) for values in (
                {'provider_id': str(KEY)}, {'provider_id': str(KEY2)},
                {'provider_id': 'iqn.of.another:driver'},
                {'provider_id': str(KEY), 'volume': other})]
        self.assertEqual(set(), self.secrets.secrets_of_deleted_snapshots(
            self.volume))
        for each in (gone, foreign, others):
            self.rows.destroy_snapshot(each)
        self.assertEqual({'key2'}, self.nothing(
            self.secrets.secrets_of_deleted_snapshots, self.volume))
        self.assertEqual({'key'}, self.secrets.secrets_of_deleted_snapshots(
            other))

    def test_secrets_in_use__ends_of_moves_and_copies_name_none(self):
        self.put(provider_id=str(KEY))
        self.begin()
        self.create(migration_status='target:' + self.volume,
                    provider_id=str(KEY2))
        self.assertEqual({'key'}, self.secrets.secrets_in_use())
        self.assertEqual(set(), self.secrets.secrets_in_use([self.volume]))

    def test_secrets_in_use__what_others_have_written(self):
        self.put(provider_id='iqn.of.another:driver')
        self.assertEqual(set(), self.secrets.secrets_in_use())
        self.put(provider_id='lc9:of:another:version:key')
        self.assertEqual(1, len(self.secrets.secrets_in_use()))

    def test_secrets_in_use__of_a_backend(self):
        self.put(provider_id=str(KEY))
        self.create('a@other', provider_id=str(KEY2))
        self.snapshot(node='b@other', provider_id=str(KEY2))
        for host, found in (('x@l', {'key'}), ('x@other', {'key2'})):
            self.assertEqual(found, self.secrets.secrets_in_use(host=host))

    # -- services, and what is lost with a node

    def test_alive_by_host__all(self):
        self.assertEqual(dict.fromkeys(ZONES, True),
                         self.services.alive_by_host())

    def test_forget_service__once(self):
        self.assertIs(True, self.decommission.forget_service(B))
        self.assertEqual({A, C}, set(self.services.alive_by_host()))
        for host in (B, 'x@l'):
            self.assertIs(False,
                          self.nothing(self.decommission.forget_service, host))

    def test_give_up__to_another_home(self):
        volume = self.row()
        self.assertIsNone(self.decommission.give_up(volume, B + '#p'))
        self.assertEqual(
            (B + '#p', 'error', 'there', self.rows.services[B], volume.name),
            self.told('host', 'status', 'availability_zone', 'service_uuid',
                      'name'))
        self.refused(exceptions.StaleMove, self.decommission.give_up, volume,
                     C + '#p')

    def test_give_up__what_has_moved_or_is_gone(self):
        before = self.row()
        move = self.begin()
        self.refused(exceptions.StaleMove, self.decommission.give_up, before,
                     C + '#p')
        self.moves.commit(move)
        self.refused(exceptions.StaleMove, self.decommission.give_up, before,
                     C + '#p')
        self.put(host=A + '#p')  # but with another LV
        self.refused(exceptions.StaleMove, self.decommission.give_up, before,
                     C + '#p')
        self.rows.destroy(self.volume)
        self.refused(exceptions.StaleMove, self.decommission.give_up, before,
                     C + '#p')

    def test_give_up__copy_of_cinder(self):
        """Or its lost node could never be forgotten."""
        copy = self.volumes.volume(
            self.create(migration_status='target:' + self.volume))
        self.decommission.give_up(copy, B + '#p')
        found = self.volumes.volume(copy.id)
        self.assertEqual((B + '#p', 'error'), (found.host, found.status))

    @ddt.data(False, True)
    def test_give_up__while_the_rest_of_a_move_is_there(self, ended):
        failed = self.end(self.begin(C), Event.FAILED)
        move = self.moves.commit(self.begin())
        if ended:
            self.end(move)
        self.put(host=A + '#p')
        self.decommission.give_up(self.row(), C + '#p')
        self.assertEqual((C + '#p', 'error'), self.told('host', 'status'))
        found = self.row()
        self.assertEqual((C, False), (found.home, found.is_misplaced))
        self.assertEqual((A, C), (
            self.moves.get_move(move.move_id).source,
            self.moves.get_move(move.move_id).destination))
        self.assertEqual(dataclasses.replace(failed, source_lv=found.name),
                         self.moves.get_move(failed.move_id))

    def test_give_up_snapshot__that_is_there(self):
        snapshot = self.snapshot()
        self.nothing(self.decommission.give_up_snapshot, snapshot, B)
        self.nothing(self.decommission.give_up_snapshot, NONE, A)
        self.decommission.give_up_snapshot(snapshot, A)
        self.assertEqual('error', self.snapshots.snapshot(snapshot).status)

    def test_give_up_snapshot__that_goes_anyway(self):
        deleting, gone = self.snapshot(status='deleting'), self.snapshot()
        self.rows.destroy_snapshot(gone)
        for each in (deleting, gone):
            self.nothing(self.decommission.give_up_snapshot, each, A)

    def test_snapshots_on__a_node(self):
        found = self.snapshot(), self.snapshot(status='error')
        self.snapshot(node=B), self.snapshot(node='')
        self.rows.destroy_snapshot(self.snapshot())
        self.assertEqual(dict.fromkeys(found, self.volume),
                         self.decommission.snapshots_on(A))

    # -- snapshots

    def test_snapshot__as_it_is(self):
        found = self.snapshot(node='', status='creating')
        self.assertEqual(rows.Snapshot(
            found, self.volume, 1, 'creating', '', False, None),
            self.snapshots.snapshot(found))
        self.assertIsNone(self.snapshots.snapshot(NONE))
        self.rows.destroy_snapshot(found)
        self.assertTrue(self.snapshots.snapshot(found).deleted)

    def test_snapshots__those_that_there_are(self):
        found = self.snapshot()
        self.snapshot()
        self.assertEqual({found: self.snapshots.snapshot(found)},
                         self.snapshots.snapshots(iter([found, NONE])))
        self.assertEqual({}, self.snapshots.snapshots([]))

    def test_snapshots_of__a_volume(self):
        found = self.snapshot()
        self.snapshot(self.create())
        self.rows.destroy_snapshot(self.snapshot())
        self.assertEqual([self.snapshots.snapshot(found)],
                         self.snapshots.snapshots_of(self.volume))

    def test_locate__before_it_is_made(self):
        found = self.snapshot(node='', status='creating')
        for host, key in ((A, KEY), (B, None)):  # asked again
            self.assertIsNone(self.snapshots.locate(found, host, key))
            told = self.snapshots.snapshot(found)
            self.assertEqual((host, key and str(key)),
                             (told.node, told.provider_id))

    @ddt.data('available', 'error', 'deleting')
    def test_locate__too_late(self, status):
        self.refused(exceptions.TooLate, self.snapshots.locate,
                     self.snapshot(status=status), B)

    def test_locate__gone(self):
        found = self.snapshot(status='creating')
        self.rows.destroy_snapshot(found)
        for each in (found, NONE):
            self.refused(exceptions.TooLate, self.snapshots.locate, each, B)

    def test_relocate_snapshot__if_it_is_there(self):
        found, gone = self.snapshot(), self.snapshot()
        self.rows.destroy_snapshot(gone)
        for each, before in ((found, B), (gone, A), (NONE, A)):
            self.nothing(self.snapshots.relocate_snapshot, each, before, C)
        self.snapshots.relocate_snapshot(found, A, C)
        self.assertEqual(C, self.snapshots.snapshot(found).node)

    def test_is_being_read__by_a_backup(self):
        found, other = self.snapshot(), self.snapshot()
        self.assertIs(False, self.snapshots.is_being_read(found))
        self.rows.back_up(found)
        self.assertIs(True, self.snapshots.is_being_read(found))
        self.assertIs(False, self.snapshots.is_being_read(other))

    # -- newborn volumes

    def test_set_home__at_another_home(self):
        self.put(status='creating')
        self.assertIsNone(self.volumes.set_home(
            self.volume, A + '#p', B + '#p'))
        self.assertEqual(
            (B + '#p', 'there', self.rows.services[B], 'creating'),
            self.told('host', 'availability_zone', 'service_uuid', 'status'))
        self.volumes.set_home(self.volume, B + '#p', 'x@l#p')
        self.assertEqual(('x@l#p', 'there', self.rows.services[B]), self.told(
            'host', 'availability_zone', 'service_uuid'))

    def test_set_home__too_late(self):
        self.refused(exceptions.TooLate, self.volumes.set_home, self.volume,
                     A + '#p', B + '#p')
        self.put(status='creating')
        self.refused(exceptions.TooLate, self.volumes.set_home, self.volume,
                     B + '#p', C + '#p')
        self.refused(exceptions.TooLate, self.volumes.set_home, NONE, A + '#p',
                     B + '#p')

    def test_set_home__what_moves(self):
        self.begin()
        self.put(status='creating')
        self.refused(exceptions.TooLate, self.volumes.set_home, self.volume,
                     A + '#p', C + '#p')

    def test_wanted_encryption__by_its_type(self):
        self.assertIsNone(self.volumes.wanted_encryption(self.row()))
        for specs, found in (
                ({'localclone:pace': 'spare'}, None),
                (LUKS, volume_types.Encryption())):
            volume = self.row(self.create(specs=specs))
            for new in (False, True):
                self.assertEqual(found, self.volumes.wanted_encryption(
                    volume, new))

    def test_wanted_encryption__that_can_not_be(self):
        volume = self.create(specs={'localclone:encryption': 'rot13'})
        self.assertRaises(volume_types.InvalidType,
                          self.volumes.wanted_encryption, self.row(volume))

    @ddt.data('creating', 'downloading')
    def test_set_encryption__of_a_new_one(self, status):
        self.put(status=status)
        for key in (KEY, KEY2, None):
            found = self.volumes.set_encryption(self.row(), key)
            self.assertEqual(key and str(key), found.provider_id)
            self.assertEqual(key and str(key), self.told('provider_id'))

    def test_set_encryption__too_late(self):
        self.refused(exceptions.TooLate, self.volumes.set_encryption,
                     self.row(), KEY)
        self.put(status='creating')
        before = self.row()
        self.put(host=B + '#p')
        self.refused(exceptions.TooLate, self.volumes.set_encryption, before,
                     KEY)
        self.put(host=A + '#p', provider_id=str(KEY2))
        self.refused(exceptions.TooLate, self.volumes.set_encryption, before,
                     KEY)
        self.rows.destroy(self.volume)
        self.refused(exceptions.TooLate, self.volumes.set_encryption, before,
                     KEY)

    def test_lv_name__of_an_id(self):
        self.assertEqual('volume-' + NEW, self.volumes.lv_name(NEW))

    # -- reverting

    def test_replace_backing__here(self):
        self.put(status='reverting')
        before = self.row()
        found = self.volumes.replace_backing(before, NEW, A, KEY)
        self.assertEqual(
            (A + '#p', NEW, 'volume-' + NEW, 'reverting', str(KEY), 'here'),
            (found.host, found.name_id, found.name, found.status,
             found.provider_id, found.availability_zone))
        self.assertEqual('volume-' + NEW, self.told('name'))

    def test_replace_backing__elsewhere(self):
        self.put(status='reverting', provider_id=str(KEY))
        found = self.volumes.replace_backing(self.row(), NEW, B)
        self.assertEqual(
            (B + '#p', NEW, None, 'there', self.rows.services[B]),
            (found.host, found.name_id, found.provider_id,
             found.availability_zone, self.told('service_uuid')))

    def test_replace_backing__stale(self):
        def refused(volume):
            self.refused(exceptions.StaleMove, self.volumes.replace_backing,
                         volume, NEW, B)
        refused(self.row())
        self.put(status='reverting')
        before = self.row()
        self.put(host=C + '#p')
        refused(before)
        self.put(host=A + '#p')
        refused(before)  # given up, and asked for again, maybe
        before = self.row()
        self.volumes.replace_backing(before, NEW, A)
        refused(before)
        self.rows.destroy(self.volume)
        refused(before)

    def test_replace_backing__what_moves(self):
        self.begin()
        self.put(status='reverting')
        self.refused(exceptions.StaleMove, self.volumes.replace_backing,
                     self.row(), NEW, B)

    def test_keep__what_was_not_reverted(self):
        self.put(status='reverting')
        name_id = self.told('name_id')
        self.nothing(self.volumes.keep, self.volume, NEW)
        self.nothing(self.volumes.keep, NONE, NEW)
        self.volumes.keep(self.volume, name_id)
        self.assertEqual('available', self.told('status'))
        self.put(status='error')
        self.nothing(self.volumes.keep, self.volume, name_id)

    def test_last_known__what_became_of_it(self):
        self.assertIsNone(self.volumes.last_known(NONE))
        self.put(status='creating')
        name = self.told('name')
        found = self.volumes.last_known(self.volume)
        self.assertEqual(
            (self.volume, 'creating', A, name, False, None),
            (found.id, found.status, found.home, found.lv, found.deleted,
             found.provider_id))
        self.put(host=None)
        self.assertEqual('', self.volumes.last_known(self.volume).home)
        self.put(host=A + '#p', provider_id='lc1 a secret')
        self.rows.destroy(self.volume)
        found = self.volumes.last_known(self.volume)
        self.assertEqual(
            (A, name, True, 'lc1 a secret'),
            (found.home, found.lv, found.deleted, found.provider_id))

    # -- zones

    def test_zone_of__a_service(self):
        for host, zone in (*ZONES.items(), (B + '#p', 'there'),
                           ('x@l', None)):
            self.assertEqual(zone, self.services.zone_of(host))

    def late(self, **values):
        """Cinder has written a home over that of a move."""
        self.put(host=B + '#p', service_uuid=self.rows.services[A], **values)
        return self.row()

    def test_volumes_with_wrong_host__a_home_that_was_written_late(self):
        self.assertEqual([],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))
        self.late()
        self.assertEqual([self.volume],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))
        for host in (B, C, 'x@l'):
            self.assertEqual(
                [], self.nothing(self.volumes.volumes_with_wrong_host, host))

    @ddt.data({'status': 'creating'}, {'status': 'downloading'},
              {'migration_status': 'migrating'})
    def test_volumes_with_wrong_host__not_while_cinder_works(self, values):
        self.late(**values)
        self.assertEqual([],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))

    def test_volumes_with_wrong_host__with_those_in_migration(self):
        self.late(migration_status='migrating')
        self.assertEqual([self.volume], self.nothing(
            self.volumes.volumes_with_wrong_host, A, True))

    @ddt.data(False, True)
    def test_volumes_with_wrong_host__not_a_copy_of_cinder(self, migrating):
        self.late(migration_status='target:' + NONE)
        self.assertEqual([], self.nothing(
            self.volumes.volumes_with_wrong_host, A, migrating))

    @ddt.data('creating', 'downloading')
    def test_volumes_with_wrong_host__not_while_one_is_created(self, status):
        """Nor with those in migration: the creation decides on the home."""
        self.late(status=status)
        self.assertEqual([], self.nothing(
            self.volumes.volumes_with_wrong_host, A, True))

    def test_volumes_with_wrong_host__not_of_another_backend(self):
        self.put(host='b@other#p', service_uuid=self.rows.services[A])
        self.assertEqual([],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))

    def test_volumes_with_wrong_host__by_a_name_in_other_letters(self):
        self.put(host='A@l#p', service_uuid=self.rows.services[A])
        self.assertEqual([self.volume],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))
        self.assertTrue(self.volumes.correct_home(self.row(), A))
        self.assertEqual([],
                         self.nothing(self.volumes.volumes_with_wrong_host, A))

    def test_volumes_with_wrong_host__neither_end_of_a_move(self):
        self.moves.commit(self.begin())
        for host in (A, B):
            self.assertEqual(
                [], self.nothing(self.volumes.volumes_with_wrong_host, host))

    def late_by_move(self, late, service):
        """Cinder has written another home, or service, over that of a move."""
        move = self.moves.commit(self.begin())
        self.put(host=late + '#p', service_uuid=self.rows.services[service])
        return move

    @ddt.data((A, A), (A, C), (A, B), (C, B))
    @ddt.unpack
    def test_volumes_with_wrong_host__by_its_move(self, late, service):
        """Or by the service, if it names neither node of the move."""
        move = self.late_by_move(late, service)
        for change in (lambda: None, lambda: self.end(move)):
            change()
            for host, found in ((A, []), (B, [self.volume]), (C, [])):
                self.assertEqual(found, self.nothing(
                    self.volumes.volumes_with_wrong_host, host))

    @ddt.data(False, True)
    def test_volumes_with_wrong_host__not_of_a_deleted_row(self, moved):
        self.late_by_move(A, A) if moved else self.late()
        self.rows.destroy(self.volume)
        for host in (A, B):
            self.assertEqual([], self.nothing(
                self.volumes.volumes_with_wrong_host, host))

    def test_volumes_with_wrong_host__by_its_move_to_a_forgotten_node(self):
        self.late_by_move(A, A)
        self.decommission.forget_service(B)
        self.assertEqual([self.volume],
                         self.nothing(self.volumes.volumes_with_wrong_host, B))

    @ddt.data({'status': 'creating'}, {'migration_status': 'migrating'},
              {'host': 'b@other#p'})
    def test_volumes_with_wrong_host__not_by_its_move(self, values):
        self.late_by_move(A, A)
        self.put(**values)
        self.assertEqual([],
                         self.nothing(self.volumes.volumes_with_wrong_host, B))

    def test_volumes_with_wrong_host__with_a_new_name(self):
        self.late_by_move(C, C)
        for host in (A, B, C):
            self.assertEqual([], self.nothing(
                self.volumes.volumes_with_wrong_host, host))

    @ddt.data((A, A), (A, C))
    @ddt.unpack
    def test_correct_home__by_its_move(self, late, service):
        self.late_by_move(late, service)
        volume = self.row()
        for host in {A, C} - {late}:
            self.assertFalse(
                self.nothing(self.volumes.correct_home, volume, host))
        self.assertTrue(self.volumes.correct_home(volume, B))
        self.assertEqual(
            (B + '#p', self.rows.services[B], volume.name, 'there'),
            self.told('host', 'service_uuid', 'name', 'availability_zone'))
        self.assertFalse(self.row().is_misplaced)
        self.assertFalse(
            self.nothing(self.volumes.correct_home, self.row(), B))

    def test_correct_home__without_any_service(self):
        """A row and a host that lack one are no pair."""
        self.put(service_uuid=None)
        self.decommission.forget_service(B)
        for host in (B, C):
            self.assertFalse(self.nothing(
                self.volumes.correct_home, self.row(), host))

    def test_correct_home__after_another_was_written(self):
        self.late_by_move(A, A)
        volume = self.row()
        self.put(host=C + '#p')
        self.assertFalse(self.nothing(self.volumes.correct_home, volume, B))

    def test_correct_home__with_its_pool(self):
        volume = self.late()
        self.assertTrue(self.volumes.correct_home(volume, A))
        self.assertEqual(
            (A + '#p', self.rows.services[A], volume.name),
            self.told('host', 'service_uuid', 'name'))
        self.assertFalse(
            self.nothing(self.volumes.correct_home, self.row(), A))

    def test_correct_home__only_by_its_service(self):
        self.assertFalse(
            self.nothing(self.volumes.correct_home, self.late(), C))

    @ddt.data({'status': 'creating'}, {'status': 'downloading'},
              {'migration_status': 'migrating'})
    def test_correct_home__not_while_cinder_works(self, values):
        """Cinder itself writes the home at the end."""
        volume = self.late(**values)
        self.assertFalse(self.nothing(self.volumes.correct_home, volume, A))

    def test_correct_home__not_by_its_move_while_cinder_works(self):
        self.late_by_move(A, A)
        self.put(migration_status='migrating')
        self.assertFalse(
            self.nothing(self.volumes.correct_home, self.row(), B))

    def test_correct_home__another_lv_or_gone(self):
        volume = self.late()
        self.put(name_id=NEW)
        self.assertFalse(self.nothing(self.volumes.correct_home, volume, A))
        self.rows.destroy(self.volume)
        self.assertFalse(self.nothing(self.volumes.correct_home, volume, A))

    def test_service_of__a_volume(self):
        self.late()
        self.assertEqual(A, self.nothing(self.volumes.service_of, self.volume))
        self.decommission.forget_service(A)
        self.assertIsNone(self.nothing(self.volumes.service_of, self.volume))
        self.assertIsNone(self.nothing(self.volumes.service_of, NONE))

    def test_correct_services__of_a_managed_volume(self):
        """Cinder has written none."""
        self.put(service_uuid=None)
        self.volumes.correct_services(A, {self.told('name')})
        self.assertEqual(self.rows.services[A], self.told('service_uuid'))

    def test_correct_services__of_a_home(self):
        self.put(service_uuid=self.rows.services[B])
        other = self.create(B)
        creating = self.create(status='creating',
                               service_uuid=self.rows.services[B])
        lvs = {self.told('name', volume=each)
               for each in (self.volume, creating, other)}
        self.nothing(self.volumes.correct_services, 'x@l', lvs)
        # Another node may have it.
        self.nothing(self.volumes.correct_services, A, ())
        self.volumes.correct_services(A, lvs)
        self.assertEqual(self.rows.services[A], self.told('service_uuid'))
        self.assertEqual(self.rows.services[B], self.told(
            'service_uuid', volume=creating))
        self.assertEqual(self.rows.services[A], self.told(
            'service_uuid', volume=other))
