# SPDX-License-Identifier: Apache-2.0
"""What each change of the records writes: whole rows of Cinder's own table.

Another volume with a move of its own is always there, and so is what Cinder
itself may have left: nothing of it is taken for the move, nor changed.
"""

import contextlib
import datetime
import itertools
from unittest import mock

from cinder import context
from cinder.tests.unit import fake_constants as fake
from cinder.tests.unit import utils
import ddt
from oslo_db import exception as db_exception
from oslo_utils import fixture as time_fixture
import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy import orm

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.db import base
from cinder_localclone.db import moves
from tests.helpers import records_case

models = base.models
A, B, GEOMETRY = records_case.A, records_case.B, records_case.GEOMETRY
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
SWAPPED = ('host', 'availability_zone', 'service_uuid', 'provider_id')
LOWEST, HIGHEST = ('%s-0000-4000-8000-00000000000%%d' % (digit * 8)
                   for digit in '0f')
HERE = (A + '#p', 'zone a', fake.UUID1, 'id a')
THERE = (B + '#p', 'zone b', fake.UUID2, 'id b')


def store(volume_id, **columns):
    with base.main_context_manager.writer.using(
            context.get_admin_context()) as session:
        session.query(models.Volume).filter_by(id=volume_id).update(columns)


def rows():
    """All rows of volumes, deleted ones among them; not when of changes."""
    with base.main_context_manager.reader.using(
            context.get_admin_context()) as session:
        found = session.execute(sqlalchemy.select(models.Volume.__table__))
        return {row['id']: {column: value for column, value in row.items()
                            if column != 'updated_at'}
                for row in found.mappings()}


def changes(before):
    """What is otherwise than before, by row and column."""
    after = rows()
    return {key: {column: value for column, value in after[key].items()
                  if value != before.get(key, {}).get(column)}
            for key in after if after[key] != before.get(key)}


class Base(records_case.Base):

    def setUp(self):
        super().setUp()
        self.add_services()
        self.neighbour = utils.create_volume(
            self.context, host=A + '#p', size=7, volume_type_id=None)
        self.moves.begin(
            self.neighbour, 'c@l#p', Event.MOVE_BEGUN, GEOMETRY,
            lambda record: 'neighbour', 'CHAP n n', 'n')
        self.volume = utils.create_volume(
            self.context, size=3, status='in-use', bootable=True,
            volume_type_id=fake.VOLUME_TYPE_ID, cluster_name='cluster',
            migration_status='success', provider_location='location',
            provider_auth='auth', **dict(zip(SWAPPED, HERE)))
        store(self.volume.id, user_id='owner', project_id='project')
        self.add_strangers()

    def add_services(self):
        """Those of B and A, behind others that could be taken for them."""
        for host, binary, zone, uuid in (
                (B, 'cinder-volume', 'gone', fake.UUID4),
                (B, 'cinder-backup', 'backup', fake.UUID3),
                (A, 'cinder-volume', 'zone a', fake.UUID1),
                (B, 'cinder-volume', 'zone b', fake.UUID2)):
            service = utils.create_service(self.context, {
                'host': host, 'binary': binary, 'topic': 't',
                'availability_zone': zone, 'uuid': uuid})
            if zone == 'gone':
                service.destroy()

    def add_strangers(self):
        """Rows that are like the shadow of a move of the volume."""
        token = str(state.Token(state.Phase.MIGRATING, 'n', GEOMETRY))
        target = 'target:' + self.volume.id
        self.strangers = []
        for data, migration_status, deleted in (
                (None, target, False), ('other driver', target, False),
                (token, None, False), (token, target, True)):
            stranger = utils.create_volume(
                self.context, host=A + '#p', volume_type_id=None)
            store(stranger.id, replication_driver_data=data, deleted=deleted,
                  migration_status=migration_status)
            self.strangers.append(stranger.id)

    def begin_distinct(self):
        """A move whose two rows differ in whatever commit swaps."""
        move = self.begin(Event.LIVE_MOVE_BEGUN)
        store(move.move_id, cluster_name='cluster',
              **dict(zip(SWAPPED, THERE)))
        return move

    def check_refused(self, error, call, *args):
        """A call raises, and no row has changed."""
        before = rows()
        self.assertRaises(error, call, *args)
        self.assertEqual({}, changes(before))


@ddt.ddt
class RowsTest(Base):

    def setUp(self):
        super().setUp()
        self.useFixture(time_fixture.TimeFixture(NOW))

    def test_begin(self):
        before = rows()
        move = self.begin(Event.LIVE_MOVE_BEGUN)
        record = dict.fromkeys(before[self.volume.id])
        record.update({
            'id': move.move_id, 'created_at': NOW, 'deleted': False,
            'user_id': 'owner', 'project_id': 'cinder-localclone',
            'size': 3,
            'host': B + '#p', 'availability_zone': 'zone b',
            'service_uuid': fake.UUID2, 'status': 'maintenance',
            'attach_status': 'detached', 'use_quota': False,
            'migration_status': 'target:' + self.volume.id,
            'volume_type_id': fake.VOLUME_TYPE_ID, 'bootable': True,
            'multiattach': False, 'shared_targets': False,
            'display_name': 'move of ' + self.volume.id,
            'display_description': 'i', 'provider_auth': 'CHAP u s',
            'replication_extended_status': 'attach',
            'provider_location': 'portal,1 iqn:%s 0' % move.move_id,
            'provider_id': 'id a', 'provider_geometry': A,
            'replication_driver_data': 'lc1:starting:%s:128:32:8' %
            move.token.nonce})
        self.assertEqual({move.move_id: {
            column: value for column, value in record.items()
            if value is not None}, self.volume.id: {
                'migration_status': None}}, changes(before))
        self.assertEqual(set(record), set(before[self.volume.id]))
        expected = state.Move(
            self.volume.id, move.move_id, move.token, False, A, B,
            'volume-' + self.volume.id, 'volume-' + move.move_id, 3,
            'portal,1 iqn:%s 0' % move.move_id, 'CHAP u s', 'i', 3)
        self.assertEqual([expected] * 3, [
            move, self.moves.move_of(self.volume.id),
            self.moves.get_move(move.move_id)])

    def test_an_encrypted_volume(self):
        """Its shadow says how much longer both bodies are."""
        text = 'lc2:luks2:16777216:live:::key'
        store(self.volume.id, provider_id=text)
        move = self.begin(Event.LIVE_MOVE_BEGUN)
        for change in (self.moves.get_move, self.moves.commit,
                       self.moves.roll_back):
            move = change(move.move_id if change == self.moves.get_move
                          else move)
            self.assertEqual((3 << 30) + (16 << 20), move.size_bytes)
            self.assertEqual(text, rows()[self.volume.id]['provider_id'])
        self.volume.destroy()
        self.assertEqual(16 << 20, self.moves.get_move(
            move.move_id).extra_bytes)

    def test_encryption_that_is_not_known_here(self):
        text = 'lc2:luks3:key'
        store(self.volume.id, provider_id=text)
        self.check_refused(exceptions.InvalidToken, self.begin)
        store(self.volume.id, provider_id=None)
        move = self.begin()
        store(move.move_id, provider_id=text)
        self.assertRaises(exceptions.InvalidToken, self.moves.get_move,
                          move.move_id)
        self.assertNotIn(move.move_id, [
            each.move_id for each in self.moves.readable_moves()])

    def test_record_of_before_there_was_encryption(self):
        move = self.begin()
        store(move.move_id, provider_id=None)
        self.assertEqual(3 << 30, self.moves.get_move(
            move.move_id).volume_bytes)

    def test_begin_towards_a_node_without_a_service(self):
        move = self.begin(host='c@l')
        record = rows()[move.move_id]
        self.assertEqual(('zone a', None), (
            record['availability_zone'], record['service_uuid']))

    def test_begin_of_a_volume_that_is_gone(self):
        volume = self.reload()
        self.volume.destroy()
        self.check_refused(
            exceptions.StaleMove, self.moves.begin, volume, B + '#p',
            Event.MOVE_BEGUN, GEOMETRY, lambda record: 'x', 'CHAP u s', 'i')

    def test_there_and_back(self):
        move = self.begin_distinct()
        before = rows()
        committed = self.moves.commit(move)
        self.assertEqual({
            self.volume.id: {'_name_id': move.move_id,
                             'cluster_name': None,
                             **dict(zip(SWAPPED, THERE))},
            move.move_id: {'_name_id': self.volume.id,
                           'cluster_name': None, 'provider_geometry': B,
                           **dict(zip(SWAPPED, HERE))}}, changes(before))
        for key in (self.volume.id, move.move_id):
            store(key, cluster_name='cluster')
        back = self.moves.roll_back(committed)
        self.assertEqual({
            self.volume.id: {'cluster_name': None},
            move.move_id: {
                'cluster_name': None,
                'replication_driver_data': str(back.token)}},
            changes(before))
        self.assertIs(state.Phase.ROLLING_BACK, back.phase)

    def test_advance(self):
        move = self.begin_distinct()
        before = rows()
        after = self.moves.advance(move, Event.FAILED)
        self.assertEqual({move.move_id: {
            'replication_driver_data': str(after.token)}}, changes(before))

    FINISHED = {
        'status': 'deleted', 'migration_status': 'deleting',
        'provider_auth': None, 'deleted': True, 'deleted_at': NOW}

    def test_finish(self):
        move = self.drain(self.moves.commit(self.begin_distinct()))
        before = rows()
        self.moves.finish(move, Event.SOURCE_REMOVED)
        self.assertEqual({
            move.move_id: self.FINISHED,
            self.volume.id: {'migration_status': 'success'}},
            changes(before))
        self.check_refused(exceptions.StaleMove, self.moves.finish, move,
                           Event.SOURCE_REMOVED)

    def test_finish_of_one_that_was_rolled_back(self):
        failed = self.moves.advance(self.begin_distinct(), Event.FAILED)
        before = rows()
        self.check_refused(exceptions.InvalidTransition, self.moves.finish,
                           failed, Event.SOURCE_REMOVED)
        self.moves.finish(failed, Event.DESTINATION_REMOVED)
        self.assertEqual({failed.move_id: self.FINISHED}, changes(before))

    def went_elsewhere(self, _move):
        store(self.volume.id, host='c@l#p', service_uuid=None,
              _name_id=fake.UUID3)

    def was_deleted(self, _move):
        self.volume.destroy()

    def has_ended(self, move):
        store(move.move_id, deleted=True)

    @ddt.data(went_elsewhere, was_deleted, has_ended)
    def test_rows_that_are_not_as_the_move_says(self, happens):
        move = self.begin_distinct()
        service = base.cinder_volume(self.volume.id).service_uuid
        for change in (self.moves.commit, self.moves.roll_back):
            happens(self, move)
            self.check_refused(exceptions.StaleMove, change, move)
            if change == self.moves.commit:
                store(self.volume.id, host=A + '#p', deleted=False,
                      service_uuid=service, _name_id=None)
                store(move.move_id, deleted=False)
                move = self.moves.commit(move)

    def test_commit_of_one_whose_volume_was_given_up_to_its_source(self):
        move = self.moves.commit(self.begin_distinct())
        self.decommission.give_up(self.reload(), A + '#p')
        self.check_refused(exceptions.StaleMove, self.moves.commit, move)

    @ddt.data(*itertools.product(('commit', 'roll_back'), (False, True)))
    @ddt.unpack
    def test_either_row_fails(self, change, second):
        """The database rolls back what it did with the other."""
        move = self.begin_distinct()
        if change == 'roll_back':
            move = self.moves.commit(move)
        with base.main_context_manager.writer.using(
                self.context) as session:
            session.execute(sqlalchemy.text(
                'CREATE TRIGGER fails BEFORE UPDATE ON volumes '
                'WHEN OLD.id = "%s" BEGIN SELECT RAISE(ABORT, "it"); END' %
                sorted((move.volume_id, move.move_id))[second]))
        self.check_refused(db_exception.DBError,
                           getattr(self.moves, change), move)

    def test_give_up(self):
        before, volume = rows(), self.reload()
        self.decommission.give_up(volume, B + '#p')
        self.assertEqual({self.volume.id: {
            'host': B + '#p', 'cluster_name': None, 'status': 'error',
            'service_uuid': fake.UUID2, 'availability_zone': 'zone b'}},
            changes(before))
        self.check_refused(exceptions.StaleMove, self.decommission.give_up,
                           volume, 'c@l#p')

    def test_give_up_what_has_moved_there_and_back(self):
        volume = self.reload()
        store(self.volume.id, _name_id=fake.UUID5)
        self.check_refused(exceptions.StaleMove, self.decommission.give_up,
                           volume, B + '#p')

    def test_give_up_what_is_gone(self):
        volume = self.reload()
        self.volume.destroy()
        self.check_refused(exceptions.StaleMove, self.decommission.give_up,
                           volume, B + '#p')

    @ddt.data(None, fake.UUID1, 'f' * 36)
    def test_give_up_beside_leftovers_and_a_committed_move(self, service):
        """In whatever order the database finds them."""
        failed = self.moves.advance(self.begin(), Event.FAILED)
        store(failed.move_id, service_uuid=service)
        move = self.moves.commit(self.begin())
        self.decommission.give_up(self.reload(), 'c@l#p')
        self.assertEqual('c@l#p', self.reload().host)
        self.assertEqual(('c@l', 'c@l'), (
            self.moves.get_move(failed.move_id).source,
            self.moves.get_move(move.move_id).destination))


class ReadsTest(Base):

    def test_what_only_looks_like_a_move(self):
        neighbours, = self.moves.readable_moves()
        self.assertEqual(self.neighbour.id, neighbours.volume_id)
        self.assertIsNone(self.moves.move_of(self.volume.id))
        self.assertEqual([], self.moves.pending_cleanups(self.volume.id))
        for move_id in (*self.strangers, self.volume.id, fake.UUID5):
            self.assertFalse(self.moves.is_move(move_id))
            self.assertIsNone(self.moves.get_move(move_id))
        move = self.begin()
        self.assertTrue(self.moves.is_move(move.move_id))
        self.assertEqual({move.move_id, neighbours.move_id}, {
            each.move_id for each in self.moves.readable_moves()})

    def test_a_volume_that_is_gone_before_the_commit(self):
        move = self.begin()
        self.volume.destroy()
        self.assertIsNone(self.volumes.volume(self.volume.id))
        found = self.moves.get_move(move.move_id)
        self.assertEqual((A, '', B, move.destination_lv), (
            found.source, found.source_lv, found.destination,
            found.destination_lv))

    def test_move_that_goes_back_while_its_volume_is_read(self):
        """The home belongs to the row that was read, not to the later one."""
        move = self.moves.commit(self.begin())
        left = [move]

        def reads():
            if left:
                self.moves.roll_back(left.pop())
            return reader()
        reader = base.reader
        with mock.patch.object(base, 'reader', reads):
            found = self.volumes.volume(self.volume.id)
        self.assertEqual([], left)
        self.assertEqual((move.destination_lv, B, False), (
            found.name, found.home, found.is_misplaced))

    def test_lv_of_a_row_that_only_looks_like_a_move(self):
        for stranger in (*self.strangers, self.neighbour.id):
            store(stranger, _name_id=self.volume.id, provider_geometry=B)
            store(self.volume.id, _name_id=stranger)
            found = self.volumes.volume(self.volume.id)
            self.assertEqual((A, False), (found.home, found.is_misplaced))

    def test_home_of_a_volume_that_has_never_moved(self):
        """No other row is read for it."""
        with mock.patch.object(base, 'reader') as reader:
            self.assertEqual(A, self.volumes.volume(self.volume.id).home)
        reader.assert_not_called()

    def test_services(self):
        utils.create_service(self.context, {
            'host': 'controller', 'binary': 'cinder-scheduler', 'topic': 't'})
        self.assertEqual({A: True, B: True}, self.services.alive_by_host())


@ddt.ddt
class LocksTest(Base):
    """SQLite locks no rows: what MySQL would be asked for is looked at."""

    @contextlib.contextmanager
    def locks(self):
        """The rows that are read for update, in order."""
        found = []

        def look(execution):
            query = execution.statement.compile(dialect=mysql.dialect())
            if str(query).endswith('FOR UPDATE'):
                found.append(query.params['id_1'])
        sqlalchemy.event.listen(orm.Session, 'do_orm_execute', look)
        try:
            yield found
        finally:
            sqlalchemy.event.remove(orm.Session, 'do_orm_execute', look)

    def test_begin_and_giving_up_lock_the_volume(self):
        with self.locks() as found:
            self.moves.advance(self.begin(), Event.FAILED)
            del found[1:]
            self.decommission.give_up(self.reload(), B + '#p')
        self.assertEqual([self.volume.id] * 2, found)

    @ddt.data((LOWEST % 1, LOWEST % 2), (HIGHEST % 1, HIGHEST % 2))
    def test_changes_of_a_move_lock_both_rows_in_order(self, move_ids):
        """In one order, whoever comes: so none waits for the other."""
        first, second = (sorted((self.volume.id, move_id))
                         for move_id in move_ids)
        with mock.patch.object(moves, 'uuid') as uuid:
            uuid.uuid4.side_effect = move_ids
            with self.locks() as found:
                self.moves.finish(self.drain(self.moves.commit(
                    self.begin())), Event.SOURCE_REMOVED)
            self.assertEqual([self.volume.id] + first * 5, found)
            with self.locks() as found:
                self.moves.finish(self.moves.roll_back(
                    self.moves.commit(self.begin())),
                    Event.DESTINATION_REMOVED)
            self.assertEqual([self.volume.id] + second * 3, found)

    def test_what_only_reads_locks_nothing(self):
        move = self.begin()
        with self.locks() as found:
            self.moves.move_of(self.volume.id)
            self.moves.get_move(move.move_id)
            self.moves.readable_moves()
        self.assertEqual([], found)
