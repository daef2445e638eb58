# SPDX-License-Identifier: Apache-2.0
"""The contract of the records: volumes and their moves."""

import dataclasses
import types

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from tests.helpers import records_bench

A, B, C = records_bench.A, records_bench.B, records_bench.C
GEOMETRY = records_bench.GEOMETRY
KEY, KEY2, NONE = records_bench.KEY, records_bench.KEY2, records_bench.NONE
PASSED, ONE = records_bench.PASSED, records_bench.ONE


@ddt.ddt
class Contract(records_bench.Contract):

    # -- volumes

    def test_volume__gone(self):
        self.assertIsNone(self.volumes.volume(NONE))
        self.rows.destroy(self.volume)
        self.assertIsNone(self.volumes.volume(self.volume))

    def test_volume__what_was_read_stays(self):
        self.rows.attach(self.volume, 'a', ONE, PASSED)
        before = self.row()
        self.put(status='error')
        self.attachments.end_remote_attachments(self.volume, A)
        self.rows.attach(self.volume, 'b', ONE, PASSED)
        self.assertEqual('in-use', before.status)
        attachment, = before.volume_attachment
        self.assertEqual(PASSED, attachment.connection_info)

    def test_volume__what_is_changed_is_not_recorded(self):
        self.assertRaises(dataclasses.FrozenInstanceError, setattr,
                          self.row(), 'status', 'error')
        self.assertEqual('in-use', self.told('status'))

    def test_volumes_of__a_home(self):
        for host in ('aa@l', 'a@l2', B):
            self.create(host)
        self.begin()
        self.assertEqual([self.volume], [
            each.id for each in self.volumes.volumes_of(A)])
        self.assertEqual(1, len(self.volumes.volumes_of(B)))
        self.assertEqual([], self.volumes.volumes_of(C))

    @ddt.data('_@l', 'A@l', 'a@_', 'a@%', A + '#p')
    def test_volumes_of__a_host_that_is_alike(self, host):
        self.assertEqual([], self.volumes.volumes_of(host))

    # -- moves

    def test_begin__what_is_recorded(self):
        before = self.columns()
        move = self.begin()
        self.assertEqual(
            (self.volume, False, Phase.MIGRATING, A, B, before['name'],
             'volume-' + move.move_id, 1, 1, 'CHAP u s', 'i', GEOMETRY,
             'portal,1 iqn:%s 0' % move.move_id, Asked.ATTACH, 0),
            (move.volume_id, move.committed, move.phase, move.source,
             move.destination, move.source_lv, move.destination_lv,
             move.size_gib, move.volume_gib, move.auth, move.initiator,
             move.geometry, move.location, move.asked_by, move.extra_bytes))
        self.assertEqual(before, self.columns())

    def test_begin__of_an_encrypted_volume(self):
        self.put(provider_id=str(KEY))
        self.assertEqual(16 << 20, self.begin().extra_bytes)

    @ddt.data(('in-use', 'attached', None, Asked.DEFERRED, 'in-use', None),
              ('available', 'detached', 'success', Asked.ATTACH,
               'available', None),
              ('available', 'detached', 'error', Asked.DRAIN,
               'maintenance', None),
              ('available', 'detached', 'migrating', Asked.MIGRATION,
               'maintenance', 'migrating'),
              ('retyping', 'detached', 'migrating', Asked.MIGRATION,
               'retyping', 'migrating'))
    @ddt.unpack
    def test_begin__what_it_holds(self, status, attached, migration, asked_by,
                                  after, migration_after):
        self.put(status=status, attach_status=attached,
                 migration_status=migration)
        self.assertEqual(asked_by, self.begin(asked_by=asked_by).asked_by)
        self.assertEqual((after, migration_after), self.told(
            'status', 'migration_status'))

    @ddt.data(('available', 'detached', None, Asked.DEFERRED),
              ('in-use', 'attached', 'migrating', Asked.DEFERRED),
              ('in-use', 'attached', 'migrating', Asked.ATTACH),
              ('in-use', 'attached', 'starting', Asked.ATTACH),
              ('in-use', 'attached', 'target:' + NONE, Asked.ATTACH),
              ('in-use', 'attached', None, Asked.DRAIN),
              ('reserved', 'detached', None, Asked.DRAIN),
              ('available', 'detached', 'migrating', Asked.DRAIN),
              ('available', 'detached', None, Asked.MIGRATION),
              ('in-use', 'attached', 'migrating', Asked.MIGRATION),
              ('deleting', 'detached', 'migrating', Asked.MIGRATION))
    @ddt.unpack
    def test_begin__what_others_have(self, status, attached, migration,
                                     asked_by):
        self.put(status=status, attach_status=attached,
                 migration_status=migration)
        self.refused(exceptions.StaleMove, self.moves.begin, self.row(),
                     B + '#p', Event.MOVE_BEGUN, GEOMETRY, str, 'a', 'i',
                     asked_by)

    def test_begin__stale(self):
        before = self.row()

        def refused():
            self.refused(exceptions.StaleMove, self.moves.begin, before,
                         C + '#p', Event.MOVE_BEGUN, GEOMETRY, str, 'a', 'i')
        self.put(host=B + '#p')
        refused()
        self.put(host=A + '#p')
        moving = self.begin()
        refused()
        self.moves.commit(moving)
        refused()
        self.rows.destroy(self.volume)
        refused()

    def test_begin__by_an_event_that_begins_nothing(self):
        for volume in (self.row(), types.SimpleNamespace(id=NONE)):
            self.refused(exceptions.InvalidTransition, self.moves.begin,
                         volume, B + '#p', Event.HYDRATED, GEOMETRY, str, 'a',
                         'i')

    def test_begin__beside_leftovers(self):
        failed = self.end(self.begin(), Event.FAILED)
        drained = self.end(self.moves.commit(self.begin()))
        current = self.begin(C)
        self.assertEqual((B, C), (current.source, current.destination))
        self.assertEqual(
            {(B, failed.destination_lv), (A, drained.source_lv)},
            {(each.cleanup_node, each.cleanup_lv)
             for each in self.moves.pending_cleanups(self.volume)})

    def test_get_move__until_it_is_finished(self):
        self.assertIsNone(self.moves.get_move(NONE))
        move = self.begin()
        self.assertEqual(move, self.moves.get_move(move.move_id))
        self.assertIsNone(self.moves.get_move(self.volume))
        move = self.end(move, Event.FAILED)
        self.assertEqual(move, self.moves.get_move(move.move_id))
        self.moves.finish(move, Event.DESTINATION_REMOVED)
        self.assertIsNone(self.moves.get_move(move.move_id))

    def test_get_move__of_a_volume_that_was_extended(self):
        move = self.begin()
        self.put(size=3)
        found = self.moves.get_move(move.move_id)
        self.assertEqual((1, 3), (found.size_gib, found.volume_gib))

    @ddt.data(False, True)
    def test_get_move__of_a_volume_that_was_deleted(self, committed):
        move = self.begin()
        if committed:
            move = self.moves.commit(move)
        self.rows.destroy(self.volume)
        found = self.moves.get_move(move.move_id)
        self.assertEqual(
            (A, B, move.source_lv if committed else '', 0),
            (found.source, found.destination, found.source_lv,
             found.volume_gib))
        self.assertEqual(move.destination_lv, found.destination_lv)

    def test_is_move__until_it_is_finished(self):
        self.assertFalse(self.moves.is_move(self.volume))
        move = self.end(self.begin(), Event.FAILED)
        self.assertTrue(self.moves.is_move(move.move_id))
        self.moves.finish(move, Event.DESTINATION_REMOVED)
        self.assertFalse(self.moves.is_move(move.move_id))

    def test_move_of__one_that_is_not_over(self):
        self.assertIsNone(self.moves.move_of(self.volume))
        move = self.begin()
        self.assertEqual(move, self.moves.move_of(self.volume))
        self.assertIsNone(self.moves.move_of(self.create()))
        move = self.moves.commit(move)
        self.assertEqual(move, self.moves.move_of(self.volume))
        self.end(move)
        self.assertIsNone(self.moves.move_of(self.volume))

    def test_pending_cleanups__what_is_over(self):
        self.assertEqual([], self.moves.pending_cleanups(self.volume))
        move = self.end(self.begin(), Event.FAILED)
        self.assertEqual([move], self.moves.pending_cleanups(self.volume))
        self.rows.destroy(self.volume)
        left, = self.moves.pending_cleanups(self.volume)
        self.assertEqual((B, move.destination_lv),
                         (left.cleanup_node, left.cleanup_lv))

    def test_pending_cleanups__a_volume_that_moved_on(self):
        drained = self.end(self.moves.commit(self.begin()))
        self.moves.commit(self.begin(C))
        left, = self.moves.pending_cleanups(self.volume)
        self.assertEqual(dataclasses.replace(drained, destination=C), left)

    def test_moves_of__both_ends(self):
        self.assertEqual([], self.moves.moves_of(A))
        move = self.begin()
        for host, found in ((A, [move]), (B, [move]), (C, [])):
            self.assertEqual(found, self.moves.moves_of(host))

    def test_moves_of__where_the_volume_is_now(self):
        drained = self.end(self.moves.commit(self.begin()))
        last = self.moves.commit(self.begin(C))
        for host, ids in ((A, {drained}), (B, {last}), (C, {drained, last})):
            self.assertEqual(
                {each.move_id for each in ids},
                {each.move_id for each in self.moves.moves_of(host)})

    def test_moves_of__a_home_that_was_written_late(self):
        """Cinder has written the former home over that of the commit."""
        move = self.begin()
        self.moves.commit(move)
        self.put(host=A + '#p')
        for found in (self.moves.move_of(self.volume),
                      self.moves.get_move(move.move_id),
                      *self.moves.moves_of(A), *self.moves.moves_of(B),
                      *self.moves.readable_moves()):
            self.assertEqual((True, A, B), (
                found.committed, found.source, found.destination))
        self.assertEqual(1, len(self.moves.moves_of(B)))

    def test_get_move__a_home_that_was_written_late(self):
        move = self.begin()
        self.put(host=B + '#p', service_uuid=self.rows.services[B])
        found = self.moves.get_move(move.move_id)
        self.assertEqual((False, A, B), (
            found.committed, found.source, found.destination))

    @ddt.data({'migration_status': 'migrating'}, {'service_uuid': None})
    def test_move_of__a_home_that_was_written_late(self, values):
        self.moves.commit(self.begin())
        self.put(**{'host': A + '#p', **values})
        self.assertEqual(B, self.moves.move_of(self.volume).destination)

    def test_volume__a_home_that_was_written_late(self):
        """The move that has made the LV tells where it is."""
        move = self.moves.commit(self.begin())
        self.assertFalse(self.row().is_misplaced)
        self.put(host=A + '#p', service_uuid=self.rows.services[A])
        for change in (lambda: None, lambda: self.end(move)):
            change()
            self.assertEqual((B, True, A + '#p'), (
                self.row().home, self.row().is_misplaced, self.row().host))

    @ddt.data({}, {'migration_status': 'migrating'})
    def test_finish__a_home_that_was_written_late(self, values):
        """Its record is the last to know, unless Cinder is at work."""
        drained = self.end(self.moves.commit(self.begin()))
        self.put(host=A + '#p', service_uuid=self.rows.services[A], **values)
        self.moves.finish(drained, Event.SOURCE_REMOVED)
        home = A if values else B
        self.assertEqual(
            (home + '#p', self.rows.services[home], False),
            (*self.told('host', 'service_uuid'), self.row().is_misplaced))

    def test_finish__a_volume_that_moved_on(self):
        drained = self.end(self.moves.commit(self.begin()))
        self.moves.commit(self.begin(C))
        self.moves.finish(drained, Event.SOURCE_REMOVED)
        self.assertEqual(C + '#p', self.told('host'))

    @ddt.data(False, True)
    def test_move_of__a_home_with_a_new_name(self, committed):
        """By ``cinder-manage volume update_host``."""
        move = self.begin(event=Event.LIVE_MOVE_BEGUN)
        if committed:
            move = self.moves.commit(move)
        self.put(host=C + '#p')
        move = dataclasses.replace(move, **{
            'destination' if committed else 'source': C})
        self.assertEqual(move, self.moves.move_of(self.volume))
        self.assertEqual([move], self.moves.moves_of(C))
        self.assertEqual((C, False), (
            self.row().home, self.row().is_misplaced))
        move = (self.moves.roll_back if committed else self.moves.commit)(move)
        self.assertEqual(
            (A, C, A) if committed else (C, B, B),
            (move.source, move.destination, self.row().home))
        self.assertEqual(C, move.cleanup_node)

    def test_volume__a_home_before_the_commit(self):
        self.begin()
        self.put(host=C + '#p')
        self.assertEqual((C, False), (
            self.row().home, self.row().is_misplaced))

    def test_volume__with_the_data_of_another(self):
        """Cinder's own migration gives it another LV."""
        self.moves.commit(self.begin())
        self.put(host=C + '#p', name_id=NONE)
        self.assertEqual((C, False), (
            self.row().home, self.row().is_misplaced))

    def test_begin__a_home_that_was_written_late(self):
        self.end(self.moves.commit(self.begin()))
        self.put(host=A + '#p')
        self.refused(exceptions.StaleMove, self.begin, C)

    def test_move_of__a_service_that_was_written_late(self):
        """Cinder writes that of the asked node when a creation ends."""
        move = self.begin()
        self.put(service_uuid=self.rows.services[B])
        self.assertEqual((A, B), (
            self.moves.move_of(self.volume).source,
            self.moves.move_of(self.volume).destination))
        self.moves.commit(move)
        self.put(service_uuid=self.rows.services[A])
        self.assertEqual((A, B), (
            self.moves.move_of(self.volume).source,
            self.moves.move_of(self.volume).destination))

    def test_readable_moves__all(self):
        self.assertEqual([], self.moves.readable_moves())
        move = self.begin()
        other = self.begin(volume=self.row(self.create(C, status='in-use')))
        self.assertEqual({move, other}, set(self.moves.readable_moves()))

    def test_readable_moves__of_a_volume_that_was_deleted(self):
        move = self.moves.commit(self.begin())
        self.rows.destroy(self.volume)
        found, = self.moves.readable_moves()
        self.assertEqual((A, B, 0), (
            found.source, found.destination, found.volume_gib))
        for host in (A, B):
            self.assertEqual([move.move_id], [
                each.move_id for each in self.moves.moves_of(host)])

    # -- changing a move

    def test_advance__to_the_next_phase(self):
        move = self.live()
        for event, phase in ((Event.SOURCE_DETACHED, Phase.MIGRATING),
                             (Event.HYDRATED, Phase.COMPLETING),
                             (Event.DRAINED, Phase.RELEASING)):
            move = self.moves.advance(move, event)
            self.assertEqual((phase, True, A, B), (
                move.phase, move.committed, move.source, move.destination))
            self.assertEqual(move, self.moves.get_move(move.move_id))

    def test_advance__failed_gives_the_volume_back(self):
        move = self.hold()
        self.assertEqual('maintenance', self.told('status'))
        self.moves.advance(move, Event.FAILED)
        self.assertEqual(('available', A + '#p'),
                         self.told('status', 'host'))

    def test_advance__what_an_administrator_has_reset_stays(self):
        move = self.hold()
        self.put(status='error')
        self.moves.advance(move, Event.FAILED)
        self.assertEqual('error', self.told('status'))

    def test_advance__of_what_was_given_back(self):
        """Another holds it by now."""
        move = self.moves.commit(self.hold())
        self.put(status='maintenance')
        self.end(move)
        self.assertEqual('maintenance', self.told('status'))

    def test_advance__stale(self):
        first = self.begin()
        committed = self.moves.commit(first)
        for move, event in ((first, Event.FAILED),
                            (dataclasses.replace(
                                committed, token=dataclasses.replace(
                                    committed.token, nonce='x')),
                             Event.HYDRATED)):
            self.refused(exceptions.StaleMove, self.moves.advance, move, event)
        self.moves.advance(committed, Event.HYDRATED)
        self.refused(exceptions.StaleMove, self.moves.advance, committed,
                     Event.HYDRATED)

    def test_advance__what_is_finished(self):
        move = self.end(self.begin(), Event.FAILED)
        other = self.begin()
        self.moves.finish(move, Event.DESTINATION_REMOVED)
        self.moves.advance(other, Event.FAILED)
        self.moves.finish(self.moves.get_move(other.move_id),
                          Event.DESTINATION_REMOVED)
        self.refused(exceptions.StaleMove, self.moves.advance, other,
                     Event.FAILED)

    def test_advance__by_an_event_that_leads_nowhere(self):
        move = self.begin()
        self.moves.commit(move)  # what is stale has no way, either
        self.refused(exceptions.InvalidTransition, self.moves.advance, move,
                     Event.HYDRATED)

    def test_advance__of_a_volume_that_was_deleted(self):
        move = self.moves.commit(self.begin())
        self.rows.destroy(self.volume)
        self.assertIs(Phase.COMPLETING, self.moves.advance(
            move, Event.HYDRATED).phase)

    @ddt.data('advance', 'commit', 'roll_back')
    def test_relocate__is_not_undone_by_what_was_read_before(self, how):
        move = self.live() if how == 'roll_back' else self.begin()
        self.moves.relocate(move, 'new,1 iqn:x 0')
        found = getattr(self.moves, how)(
            move, *[Event.FAILED] * (how == 'advance'))
        self.assertEqual('new,1 iqn:x 0', found.location)

    def test_relocate__only_that(self):
        move = self.moves.commit(self.begin())
        self.assertIsNone(self.moves.relocate(move, 'new,1 iqn:x 0'))
        found = self.moves.get_move(move.move_id)
        self.assertEqual(
            dataclasses.replace(move, location='new,1 iqn:x 0'), found)

    def test_relocate__stale(self):
        first = self.begin()
        move = self.moves.commit(first)
        self.refused(exceptions.StaleMove, self.moves.relocate, first, 'x')
        self.moves.relocate(move, 'new,1 iqn:x 0')
        for each in (move, dataclasses.replace(move, move_id=NONE)):
            self.refused(exceptions.StaleMove, self.moves.relocate, each,
                         'other')
        moved = self.moves.get_move(move.move_id)
        self.moves.advance(moved, Event.HYDRATED)
        self.refused(exceptions.StaleMove, self.moves.relocate, moved, 'other')

    def test_commit__swaps_and_nothing_else(self):
        before, move = self.row(), self.begin()
        after = self.moves.commit(move)
        self.assertEqual(dataclasses.replace(move, committed=True), after)
        self.assertEqual(after, self.moves.get_move(move.move_id))
        row = self.row()
        self.assertEqual(
            (B + '#p', move.move_id, move.destination_lv, 'there',
             self.rows.services[B]),
            (row.host, row.name_id, row.name, row.availability_zone,
             self.told('service_uuid')))
        for column in ('id', 'status', 'size', 'attach_status',
                       'migration_status', 'provider_id'):
            self.assertEqual(getattr(before, column), getattr(row, column))

    def test_commit__to_a_node_whose_service_is_forgotten(self):
        self.decommission.forget_service(B)
        self.moves.commit(self.begin())
        self.assertEqual(
            (B + '#p', 'here', None),
            self.told('host', 'availability_zone', 'service_uuid'))

    def test_commit__encryption_as_it_was_when_it_began(self):
        """It is one of what is swapped: only the lock keeps it from that."""
        self.put(provider_id=str(KEY))
        move = self.begin()
        self.put(provider_id=str(KEY2))
        self.moves.commit(move)
        self.assertEqual(str(KEY), self.told('provider_id'))

    def test_commit__gives_the_volume_back(self):
        move = self.hold()
        self.moves.commit(move)
        self.assertEqual(('available', B + '#p'),
                         self.told('status', 'host'))

    def test_commit__of_a_migration(self):
        self.put(status='available', migration_status='migrating')
        self.moves.commit(self.begin(asked_by=Asked.MIGRATION))
        self.assertEqual(('available', 'migrating'),
                         self.told('status', 'migration_status'))

    def test_commit__stale(self):
        first = self.begin()
        committed = self.moves.commit(first)
        for move in (first, committed):
            self.refused(exceptions.StaleMove, self.moves.commit, move)
        self.end(committed)
        failed = self.begin(C)
        self.end(failed, Event.FAILED)
        self.refused(exceptions.StaleMove, self.moves.commit, failed)

    @ddt.data('available', 'deleting', 'error')
    def test_commit__lost_hold(self, status):
        move = self.hold()
        self.put(status=status)
        self.refused(exceptions.StaleMove, self.moves.commit, move)

    def test_commit__moved_meanwhile(self):
        move = self.begin()
        self.put(host=C + '#p')
        self.refused(exceptions.StaleMove, self.moves.commit, move)
        self.put(host=A + '#p', name_id=NONE)
        self.refused(exceptions.StaleMove, self.moves.commit, move)
        self.rows.destroy(self.volume)
        self.refused(exceptions.StaleMove, self.moves.commit, move)

    def test_commit__back_and_forth(self):
        names = [self.told('name')]
        for host in (B, A, B):
            move = self.end(self.moves.commit(self.begin(host)))
            self.assertEqual((names[-1], host), (
                move.source_lv, move.destination))
            self.moves.finish(move, Event.SOURCE_REMOVED)
            names.append(self.told('name'))
        self.assertEqual(4, len(set(names)))

    def test_roll_back__restores(self):
        before, move = self.columns(), self.live()
        after = self.moves.roll_back(move)
        self.assertEqual((Phase.ROLLING_BACK, False, A, B, before['name']), (
            after.phase, after.committed, after.source, after.destination,
            after.source_lv))
        self.assertEqual(after, self.moves.get_move(move.move_id))
        self.assertEqual(before, self.columns())
        self.assertEqual(move.destination_lv, after.cleanup_lv)

    def test_roll_back__no_way_back(self):
        first = self.begin(event=Event.LIVE_MOVE_BEGUN)
        self.refused(exceptions.InvalidTransition, self.moves.roll_back, first)
        move = self.moves.commit(first)
        self.moves.advance(move, Event.SOURCE_DETACHED)
        self.refused(exceptions.StaleMove, self.moves.roll_back, move)
        self.refused(exceptions.InvalidTransition, self.moves.roll_back,
                     self.moves.get_move(move.move_id))

    def test_roll_back__stale(self):
        move = self.live()
        self.moves.roll_back(move)
        self.refused(exceptions.StaleMove, self.moves.roll_back, move)

    def test_roll_back__another_lv_or_gone(self):
        """That LV would be given away."""
        move = self.live()
        self.put(name_id=NONE)
        self.refused(exceptions.StaleMove, self.moves.roll_back, move)
        self.rows.destroy(self.volume)
        self.refused(exceptions.StaleMove, self.moves.roll_back, move)

    def test_roll_back__a_home_that_has_changed(self):
        move = self.live()
        self.put(host=C + '#p')
        self.refused(exceptions.StaleMove, self.moves.roll_back, move)

    def test_roll_back__a_home_that_was_written_late(self):
        """The record names the destination: the cleanup is there."""
        move = self.live()
        self.put(host=A + '#p')
        left = self.moves.roll_back(move)
        self.assertEqual((A + '#p', self.rows.services[A]),
                         self.told('host', 'service_uuid'))
        self.assertEqual((A, B, B), (
            left.source, left.destination, left.cleanup_node))

    def test_finish__what_was_copied(self):
        move = self.end(self.moves.commit(self.begin()))
        row = self.row()
        self.moves.finish(move, Event.SOURCE_REMOVED)
        self.assertEqual([], self.moves.readable_moves())
        after = self.row()
        self.assertEqual('success', after.migration_status)
        self.assertEqual((row.host, row.name), (after.host, after.name))

    def test_finish__what_has_failed(self):
        for move, event in (
                (self.end(self.begin(), Event.FAILED),
                 Event.DESTINATION_REMOVED),
                (self.moves.roll_back(self.live()),
                 Event.DESTINATION_REMOVED)):
            self.moves.finish(move, event)
            self.assertIsNone(self.told('migration_status'))
            self.assertFalse(self.moves.is_move(move.move_id))

    @ddt.data('migrating', 'starting', 'completing', 'target:' + NONE)
    def test_finish__what_cinder_migrates_is_left_alone(self, status):
        move = self.end(self.moves.commit(self.begin()))
        self.put(migration_status=status)
        self.moves.finish(move, Event.SOURCE_REMOVED)
        self.assertEqual(status, self.told('migration_status'))

    @ddt.data('error', 'none', '')
    def test_finish__beside_a_migration_of_before(self, status):
        move = self.end(self.moves.commit(self.begin()))
        self.put(migration_status=status)
        self.moves.finish(move, Event.SOURCE_REMOVED)
        self.assertEqual('success', self.told('migration_status'))

    def test_finish__stale(self):
        move = self.live()
        self.refused(exceptions.InvalidTransition, self.moves.finish, move,
                     Event.SOURCE_REMOVED)
        over = self.end(move, Event.SOURCE_DETACHED, Event.HYDRATED,
                        Event.DRAINED)
        self.refused(exceptions.InvalidTransition, self.moves.finish, over,
                     Event.DESTINATION_REMOVED)
        other = dataclasses.replace(
            over, token=dataclasses.replace(over.token, nonce='x'))
        self.refused(exceptions.StaleMove, self.moves.finish, other,
                     Event.SOURCE_REMOVED)
        self.moves.finish(over, Event.SOURCE_REMOVED)
        self.refused(exceptions.StaleMove, self.moves.finish, over,
                     Event.SOURCE_REMOVED)

    def test_finish__of_a_volume_that_was_deleted(self):
        move = self.end(self.moves.commit(self.begin()))
        self.rows.destroy(self.volume)
        self.moves.finish(move, Event.SOURCE_REMOVED)
        self.assertEqual([], self.moves.readable_moves())
