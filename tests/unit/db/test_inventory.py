# SPDX-License-Identifier: Apache-2.0
"""What is watched in the database, on Cinder's own schema."""

from cinder import objects
from cinder.tests.unit import utils
import sqlalchemy
from sqlalchemy import event as events

from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.db import base
from tests.helpers import records_case

A, B = records_case.A, records_case.B


class MetricRecordsTest(records_case.Base):

    def volume_at(self, host=A + '#p', **more):
        return utils.create_volume(self.context, host=host, size=2,
                                   volume_type_id=None, **more)

    def moving(self, volume):
        return self.moves.commit(self.moves.begin(
            self.volumes.volume(volume.id), B + '#p',
            state.Event.MOVE_BEGUN, records_case.GEOMETRY,
            lambda record: 'portal,1 iqn:%s 0' % record, 'CHAP u s', 'i'))

    def test_moves(self):
        move = self.begin()
        (found,), unreadable = self.inventory.all_moves('l')
        self.assertEqual((move, 0), (found.move, unreadable))
        self.assertTrue(found.began > 1_700_000_000)
        self.assertEqual(([], 0), self.inventory.all_moves('other'))

    def test_moves_are_those_that_are_read_one_by_one(self):
        for _number in range(3):
            self.moving(self.volume_at())
        failed = self.moves.advance(self.begin(), state.Event.FAILED)
        gone = self.moves.pending_cleanups(self.volume.id)
        self.assertEqual([failed], gone)
        self.reload().destroy()
        key = lambda move: move.move_id  # noqa: E731
        self.assertEqual(
            sorted(self.moves.readable_moves(), key=key),
            sorted((each.move for each in
                    self.inventory.all_moves('l')[0]), key=key))

    def test_a_record_that_cannot_be_read_hides_no_other(self):
        broken = self.moving(self.volume_at())
        move = self.begin()
        record = objects.Volume.get_by_id(self.context, broken.move_id)
        record.update({'replication_driver_data': 'lc1:broken'})
        record.save()
        (found,), unreadable = self.inventory.all_moves('l')
        self.assertEqual((move, 1), (found.move, unreadable))

    def test_volumes(self):
        other = self.volume_at(B + '#p', display_name='one')
        self.volume_at('a@other#p')
        self.volume_at('a@other#p', display_name='x@l#y')
        self.begin()  # its shadow is none
        found = {row.id: row for row in self.inventory.all_volumes('l')}
        self.assertEqual({self.volume.id, other.id}, set(found))
        row = found[other.id]
        self.assertEqual(
            ('one', B + '#p', 2, other.name, other.name_id, ()),
            (row.display_name, row.host, row.size, row.name, row.name_id,
             row.hosts))
        self.assertEqual([], self.inventory.all_volumes('%'))
        self.assertEqual([row], self.inventory.all_volumes('l', B))
        self.assertEqual([], self.inventory.all_volumes('l', B[:-1] + '_'))

    def test_where_volumes_are_attached(self):
        for connector in ({'host': 'a'}, None):
            attachment = objects.VolumeAttachment(
                self.context, volume_id=self.volume.id,
                attach_status='attached')
            attachment.create()
            if connector:
                attachment.connector = connector
                attachment.save()
        row, = self.inventory.all_volumes('l')
        self.assertEqual(('', 'a'), tuple(sorted(row.hosts)))

    def test_snapshots(self):
        ready = utils.create_snapshot(self.context, self.volume.id,
                                      status='available')
        for snapshot, host in ((ready, A), (utils.create_snapshot(
                self.context, self.volume.id, status='creating'), A)):
            snapshot.provider_location = rows.location(host)
            snapshot.save()
        found, = self.inventory.available_snapshots(A)
        self.assertEqual((ready.id, self.volume.id, A, 'available'), (
            found.id, found.volume_id, found.node, found.status))
        self.assertEqual([], self.inventory.available_snapshots(B))

    def test_names(self):
        named = [self.volume_at(display_name='data').id for _each in 'ab']
        self.volume_at('a@other#p', display_name='data')
        self.assertEqual(sorted(named), self.inventory.ids_named('data', 'l'))
        self.assertEqual([], self.inventory.ids_named('none', 'l'))
        self.begin()
        self.assertEqual([], self.inventory.ids_named(
            'move of ' + self.volume.id, 'l'))

    def test_a_name_is_meant_letter_by_letter(self):
        """MySQL finds "Data" if it is asked for "data"."""
        def as_mysql(_conn, _cursor, statement, parameters, *_more):
            return statement.replace(
                'display_name = ?',
                'display_name = ? COLLATE NOCASE'), parameters
        engine = base.main_context_manager.writer.get_engine()
        events.listen(engine, 'before_cursor_execute', as_mysql, retval=True)
        self.addCleanup(events.remove, engine, 'before_cursor_execute',
                        as_mysql)
        wanted = self.volume_at(display_name='data').id
        self.volume_at(display_name='Data')
        self.assertEqual([wanted], self.inventory.ids_named('data', 'l'))
        self.assertEqual([], self.inventory.ids_named('DATA', 'l'))

    def test_as_many_queries_for_many_as_for_one(self):
        counted = []
        events.listen(sqlalchemy.engine.Engine, 'before_cursor_execute',
                      lambda *_args: counted.append(1))

        class Backend:
            name, host, db = 'l', B, self.db
            nodes = self.services.alive_by_host
            conf = type('Conf', (), dict.fromkeys((
                'localclone_max_copies_in',
                'localclone_max_copies_out'), 0))

        def queries():
            del counted[:]
            said = sources.database(Backend)
            return len(counted), len(said.volumes), len(said.positions)
        self.moving(self.volume_at())
        self.volume_at()  # every node reads the rows of its own volumes
        one = queries()
        self.assertEqual(1, one[1])
        for _number in range(4):
            volume = self.volume_at()
            self.moving(volume)
            utils.create_snapshot(self.context, volume.id)
        many = queries()
        self.assertEqual((one[0], one[1] + 4, 5), many)
        self.assertLess(one[0], 25)
