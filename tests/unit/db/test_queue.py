# SPDX-License-Identifier: Apache-2.0
"""The queue of copies on Cinder's own schema."""

import datetime

from cinder import objects
from cinder.tests.unit import utils
from cinder.volume import volume_types
import ddt
from oslo_utils import timeutils
import sqlalchemy

from cinder_localclone.core import exceptions
from cinder_localclone.core.state import Event
from cinder_localclone.db import base
from tests.helpers import records_case

A, B = records_case.A, records_case.B
INSTANCE = '%08d-0000-4000-8000-00000000000b' % 1


@ddt.ddt
class CopiesTest(records_case.Base):

    def setUp(self):
        super().setUp()
        self.move = self.copying()

    def copying(self, volume=None, **how):
        """A move whose volume is being copied."""
        volume = volume or self.volume
        return self.moves.commit(self.moves.begin(
            self.volumes.volume(volume.id), how.pop('host', B) + '#p',
            Event.MOVE_BEGUN, records_case.GEOMETRY,
            lambda record: 'portal,1 iqn:%s 0' % record, 'CHAP u s', 'i'))

    def another(self, host=A + '#p', **more):
        return utils.create_volume(self.context, host=host, size=1,
                                   volume_type_id=None, **more)

    def entry(self):
        found, = self.queue.copies(A)
        return found

    def test_ends_and_ids(self):
        found = self.entry()
        self.assertEqual(
            (self.move.move_id, self.volume.id, A, B, False, False, 0), (
                found.move_id, found.volume_id, found.source,
                found.destination, found.attached, found.awaited,
                found.stalled))
        self.assertEqual([found], self.queue.copies('x@l'))
        self.assertEqual([], self.queue.copies('a@other'))

    def test_when_it_began(self):
        # Whatever the time zone of a node, and wherever the volume was made.
        self.assertAlmostEqual(
            timeutils.utcnow().replace(
                tzinfo=datetime.timezone.utc).timestamp(),
            self.entry().began, delta=60)

    def test_only_what_may_have_something_to_copy(self):
        others = [self.another() for _each in range(2)]
        self.moves.begin(  # not committed
            self.volumes.volume(others[0].id), B + '#p', Event.MOVE_BEGUN,
            records_case.GEOMETRY, lambda record: 'p,1 i 0', 'CHAP u s', 'i')
        self.moves.commit(self.moves.begin(  # a live move
            self.volumes.volume(others[1].id), B + '#p',
            Event.LIVE_MOVE_BEGUN, records_case.GEOMETRY,
            lambda record: 'p,1 i 0', 'CHAP u s', 'i'))
        self.assertEqual(self.volume.id, self.entry().volume_id)
        move = self.moves.advance(self.move, Event.HYDRATED)
        self.assertEqual([], self.queue.copies(A))
        self.moves.advance(move, Event.DRAINED)
        self.assertEqual([], self.queue.copies(A))

    def test_a_volume_that_is_gone(self):
        self.reload().destroy()
        self.assertEqual([], self.queue.copies(A))

    def test_attached(self):
        for instance, attached in ((None, False), (INSTANCE, True)):
            attachment = objects.VolumeAttachment(
                self.context, volume_id=self.volume.id,
                instance_uuid=instance, attach_status='attached')
            attachment.create()
            self.assertEqual(attached, self.entry().attached)
        attachment.destroy()
        self.assertFalse(self.entry().attached)

    def test_attached_at_two_nodes(self):
        attachments = []
        for host, migrating in (('a', False), ('a', False), ('b', True)):
            attachments.append(objects.VolumeAttachment(
                self.context, volume_id=self.volume.id, attached_host=host,
                instance_uuid=INSTANCE, attach_status='attached'))
            attachments[-1].create()
            self.assertEqual(migrating, self.entry().migrating)
        attachments[-1].destroy()
        self.assertFalse(self.entry().migrating)

    def test_what_its_type_says_of_its_pace(self):
        self.assertEqual('', self.entry().pace)
        for specs, said in (({'localclone:pace': 'spare'}, 'spare'),
                            ({'localclone:encryption': 'luks2'}, '')):
            self.volume.volume_type_id = volume_types.create(
                self.context, 'type "%s"' % said, specs)['id']
            self.volume.save()
            self.assertEqual(said, self.entry().pace)

    def test_a_snapshot_waits(self):
        snapshot = utils.create_snapshot(
            self.context, self.volume.id, status='creating')
        self.assertTrue(self.entry().awaited)
        snapshot.status = 'available'
        snapshot.save()
        self.assertFalse(self.entry().awaited)
        snapshot.status = 'creating'
        snapshot.save()
        snapshot.destroy()
        self.assertFalse(self.entry().awaited)

    def test_a_clone_waits(self):
        clone = self.another(source_volid=self.volume.id, status='creating')
        self.assertTrue(self.entry().awaited)
        clone.status = 'available'
        clone.save()
        self.assertFalse(self.entry().awaited)

    def test_what_waits_for_others(self):
        other = self.another()
        utils.create_snapshot(self.context, other.id, status='creating')
        self.another(source_volid=other.id, status='creating')
        objects.VolumeAttachment(
            self.context, volume_id=other.id, instance_uuid=INSTANCE,
            attach_status='attached').create()
        found = self.entry()
        self.assertEqual((False, False), (found.attached, found.awaited))

    def test_stalled(self):
        self.queue.note_stalled(self.move, True)
        self.assertAlmostEqual(timeutils.utcnow_ts(), self.entry().stalled,
                               delta=60)
        self.queue.note_stalled(self.move, False)
        self.assertEqual(0, self.entry().stalled)

    def test_who_asked_for_it_stays_on_record(self):
        self.queue.note_stalled(self.move, True)
        self.assertIs(self.move.asked_by, self.moves.get_move(
            self.move.move_id).asked_by)
        with base.main_context_manager.writer.using(
                self.context) as session:
            session.query(base.models.Volume).filter_by(
                id=self.move.move_id).update(
                    {'replication_extended_status': 'deferred'})
        for stalled in (True, False):
            self.queue.note_stalled(self.move, stalled)
            self.assertTrue(self.moves.get_move(
                self.move.move_id).is_deferred)

    def test_stalled_is_no_news_of_another_move(self):
        self.moves.advance(self.move, Event.HYDRATED)
        self.assertRaises(exceptions.StaleMove, self.queue.note_stalled,
                          self.move, True)

    def test_what_somebody_else_has_written_there(self):
        row = base.cinder_volume(self.move.move_id)
        row.replication_extended_status = 'whatever'
        row.save()
        self.assertEqual(0, self.entry().stalled)

    def test_as_many_questions_however_many_there_are(self):
        asked = []

        def count(*_args):
            asked.append(1)
        engine = base.main_context_manager.writer.get_engine()
        sqlalchemy.event.listen(engine, 'before_cursor_execute', count)
        self.addCleanup(sqlalchemy.event.remove, engine,
                        'before_cursor_execute', count)
        looks = self.queue.copies, self.moves.moves_of
        before = []
        for look in looks:
            del asked[:]
            look(A)
            before.append(len(asked))
        for _each in range(5):
            self.copying(self.another())
        for look, one in zip(looks, before):
            del asked[:]
            self.assertEqual(6, len(look(A)))
            self.assertEqual(one, len(asked))
