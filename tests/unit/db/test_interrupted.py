# SPDX-License-Identifier: Apache-2.0
"""Statuses that nobody ends, on Cinder's own schema."""

import datetime
import time
from unittest import mock

from cinder.db import api as db_api
from cinder import objects
from cinder.tests.unit import utils
import ddt
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import rows as volume_rows
from cinder_localclone.core.state import Event
from cinder_localclone.db import base
from cinder_localclone.db import clock
from cinder_localclone.volumes import interrupted as unended
from tests.helpers import snapshot_records_case
from tests.helpers import specs

A, B = 'a@l', 'b@l'
GIB = 1 << 30


class Base(snapshot_records_case.Case):

    def put(self, **values):
        self.volume.refresh()
        self.volume.update(values)
        self.volume.save()

    @staticmethod
    def age(model, row_id, seconds=3600, column='id', **more):
        """A row is as it is for some time."""
        then = timeutils.utcnow() - datetime.timedelta(seconds=seconds)
        with base.main_context_manager.writer.using(
                base.admin()) as session:
            session.query(model).filter_by(**{column: row_id}).update(
                {'updated_at': then, **more}, synchronize_session=False)


@ddt.ddt
class DeadTest(Base):
    """What a service was at work on when it died, when it starts again."""

    def end(self, host=A, lv=GIB, started=-60, name=None, lock=None):
        """The look of a node whose service has started some time ago.

        :param started: how long after the rows were written
        """
        lvs = {name or self.volume.name: mock.Mock(shown=lv)} if lv else {}
        node = specs.node(host=host, interrupted=self.interrupted)
        node.try_lock.side_effect = lock
        node.lvm.lvs.return_value = lvs
        unended.end_dead(node, timeutils.utcnow()
                         - datetime.timedelta(seconds=started))

    def status(self):
        return self.reload().status

    @ddt.data(('detached', GIB, 'available'), ('attached', GIB, 'in-use'),
              # Longer than its row: Cinder's word for what has failed.
              ('detached', 2 * GIB, 'error_extending'),
              ('attached', 2 * GIB, 'error_extending'),
              # Nobody can know.
              ('detached', GIB // 2, 'extending'),
              ('detached', None, 'extending'))
    @ddt.unpack
    def test_extending(self, attach_status, lv, status):
        self.put(status='extending', attach_status=attach_status)
        self.end(lv=lv)
        self.assertEqual(status, self.status())

    def test_tag_that_is_no_number(self):
        """Nobody knows of that volume; no other is held up."""
        unreadable = lvm_reports.LogicalVolume(
            'g', 'v', GIB, '', frozenset({'localclone.given=x'}))
        for name, status in (('volume-other', 'available'),
                             (self.volume.name, 'extending')):
            self.put(status='extending', attach_status='detached')
            node = specs.node(host=A, interrupted=self.interrupted)
            node.lvm.lvs.return_value = {
                self.volume.name: mock.Mock(shown=GIB), name: unreadable}
            unended.end_dead(node, timeutils.utcnow()
                             + datetime.timedelta(seconds=60))
            self.assertEqual(status, self.status())

    @ddt.data((GIB, 'available'), (2 * GIB, 'available'),
              (None, 'reverting'))
    @ddt.unpack
    def test_reverting(self, lv, status):
        """Committed or not, its row names the LV that it has."""
        self.put(status='reverting', attach_status='detached')
        snapshots = [utils.create_snapshot(
            self.context, self.volume.id, status=each)
            for each in ('restoring', 'creating')]
        self.end(lv=lv)
        self.assertEqual(status, self.status())
        self.assertEqual(
            ['available' if status == 'available' else 'restoring',
             'creating'],
            [objects.Snapshot.get_by_id(self.context, each.id).status
             for each in snapshots])

    def test_reverted_by_another_node_whose_service_died(self):
        """A revert has another home from its commit on, whose service need
        not have been started anew since.
        """
        self.put(status='reverting', attach_status='detached',
                 host=B + '#p')
        self.age(base.models.Volume, self.volume.id)
        snapshot = utils.create_snapshot(
            self.context, self.volume.id, status='restoring')
        node = specs.node(host=B, interrupted=self.interrupted)
        node.lvm.lvs.return_value = {
            self.volume.name: mock.Mock(shown=GIB)}
        unended.sweep(node, time.monotonic() - 2 * 3600)
        self.assertEqual('available', self.status())
        self.assertEqual('available', objects.Snapshot.get_by_id(
            self.context, snapshot.id).status)

    def test_extended_by_another_node(self):
        """That node asks the home until all is done, or it dies.

        The home need not have been started anew since.
        """
        self.put(status='extending', attach_status='detached')
        self.age(base.models.Volume, self.volume.id)
        node = specs.node(host=A, interrupted=self.interrupted)
        node.lvm.lvs.return_value = {
            self.volume.name: mock.Mock(shown=GIB)}
        for started in (2 * 3600, 900):  # before it was begun, or since
            for ago, status in ((unended.DELIVERED - 60, 'extending'),
                                (unended.DELIVERED + 1, 'available')):
                self.put(status='extending')
                self.age(base.models.Volume, self.volume.id)
                node.asked[self.volume.id] = time.monotonic() - ago
                unended.sweep(node, time.monotonic() - started)
                self.assertEqual(status, self.status())
            self.assertEqual({}, node.asked)

    @ddt.data((None, 'available'), ('success', 'available'),
              ('error', 'available'), ('migrating', 'retyping'),
              ('starting', 'retyping'), ('completing', 'retyping'))
    @ddt.unpack
    def test_retyping(self, migration_status, status):
        self.put(status='retyping', attach_status='detached',
                 migration_status=migration_status)
        self.end()
        self.assertEqual(status, self.status())

    @ddt.data('available', 'in-use', 'deleting', 'error', 'maintenance')
    def test_what_is_no_work_of_its(self, status):
        self.put(status=status)
        self.end()
        self.assertEqual(status, self.status())

    @ddt.data(B + '#p', 'aa@l#p', 'a@l2#p', 'a@lx#p')
    def test_at_another_home(self, host):
        self.put(status='extending', host=host)
        self.end()
        self.assertEqual('extending', self.status())

    def test_its_lv_after_a_move(self):
        old = self.volume.name
        moving = self.moves.commit(self.begin())
        self.put(status='extending', attach_status='attached')
        self.end(B, name=old)
        self.assertEqual('extending', self.status())
        self.end(B, name=moving.destination_lv)
        self.assertEqual('in-use', self.status())

    def test_what_was_asked_for_since_it_has_started(self):
        self.put(status='extending')
        self.end(started=3600)
        self.assertEqual('extending', self.status())

    def test_only_what_is_asked_for_goes_on(self):
        """It may have been asked for just before its lock was had."""
        node = specs.node()
        rows = node.interrupted
        node.lvm.lvs.return_value = {}
        rows.volumes_unchanged_since.return_value = ['asked', 'dead']
        rows.end_dead.return_value = None

        def lock(volume_id):
            if volume_id == 'asked':
                node.asked[volume_id] = time.monotonic()
            return mock.DEFAULT
        node.try_lock.side_effect = lock
        unended.end_dead(node, timeutils.utcnow())
        rows.end_dead.assert_called_once_with('dead', node.host, {})

    def test_what_goes_on(self):
        self.put(status='extending')
        self.end(lock=exceptions.Busy(
            what='v', host=A, seconds=1))
        self.assertEqual('extending', self.status())

    def test_one_whose_encryption_is_not_known_here(self):
        """It stays; all others are ended."""
        self.put(status='extending', provider_id='lc2:luks3:key')
        self.end()
        self.assertEqual('extending', self.status())

    def test_what_is_gone_or_has_left_meanwhile(self):
        self.put(status='extending', host=B + '#p')
        for volume_id in (self.volume.id, 'gone'):
            self.assertIsNone(self.interrupted.end_dead(
                volume_id, A, {self.volume.name: GIB}))

    @ddt.data((599, 0), (601, 2))
    @ddt.unpack
    def test_not_before_all_was_delivered(self, seconds, times):
        node = specs.node()
        rows = node.interrupted
        rows.volumes_unchanged_since.return_value = rows.lost_deletes.return_value = []
        rows.now.return_value = timeutils.utcnow()
        unended.sweep(node, time.monotonic() - seconds)
        self.assertEqual(times, rows.volumes_unchanged_since.call_count)
        rows.lost_deletes.assert_called_once_with(node.host, unended.LOST)

    @ddt.data(-2, 2)
    def test_by_the_clock_of_the_database(self, hours):
        """This node's own is wrong, for good."""
        self.put(status='retyping', attach_status='detached')
        node = specs.node(host=A, interrupted=self.interrupted)
        node.lvm.lvs.return_value = {
            self.volume.name: mock.Mock(shown=GIB)}
        self.age(base.models.Volume, self.volume.id, 900)
        wrong = timeutils.utcnow() + datetime.timedelta(hours=hours)
        # It was begun 15 minutes ago, by this service or before it.
        for minutes, status in ((16, 'retyping'), (14, 'available')):
            with mock.patch.object(timeutils, 'utcnow', lambda *_a: wrong):
                unended.sweep(node,
                              time.monotonic() - minutes * 60)
            self.assertEqual(status, self.status())

    @ddt.data(('mysql', 'utc_timestamp()'), ('mariadb', 'utc_timestamp()'),
              ('postgresql', "timezone('UTC', now())"),
              ('sqlite', 'CURRENT_TIMESTAMP'))
    @ddt.unpack
    def test_how_a_database_is_asked(self, dialect, asked):
        session = mock.Mock()
        session.get_bind.return_value.dialect.name = dialect
        clock.now(session)
        query, = session.query.call_args.args
        self.assertEqual(asked, str(query.compile(
            compile_kwargs={'literal_binds': True})))

    def test_it_is_utc(self):
        apart = self.interrupted.now() - timeutils.utcnow()
        self.assertLess(abs(apart.total_seconds()), 1800)

    def test_nothing_is_written_for_nothing(self):
        with mock.patch.object(
                base, 'main_context_manager', mock.Mock(
                    spec=['reader'],
                    reader=base.main_context_manager.reader)):
            self.end()


@ddt.ddt
class UnendedTest(Base):

    def found(self):
        return [(each.what, each.id, each.status)
                for each in self.inventory.unended('l', 600)]

    @ddt.data(
        ({'status': 'extending'}, 'extending'),
        ({'status': 'reverting'}, 'reverting'),
        ({'status': 'retyping'}, 'retyping'),
        ({'migration_status': 'starting'}, 'starting'),
        ({'migration_status': 'completing'}, 'completing'),
        ({'status': 'retyping', 'migration_status': 'migrating'}, None),
        ({'status': 'in-use'}, None), ({'migration_status': 'success'}, None),
        ({'status': 'extending', 'host': 'a@other#p'}, None))
    @ddt.unpack
    def test_volumes(self, values, status):
        self.put(**values)
        self.assertEqual([], self.found())  # not yet
        self.age(base.models.Volume, self.volume.id)
        what = ('migration' if 'migration_status' in values else 'volume')
        self.assertEqual([(what, self.volume.id, status)] if status else [],
                         self.found())

    @ddt.data((volume_rows.location(A), True),
              (volume_rows.location('a@x'), False), (None, False))
    @ddt.unpack
    def test_snapshots(self, location, seen):
        snapshot = utils.create_snapshot(
            self.context, self.volume.id, status='restoring',
            provider_location=location)
        self.assertEqual([], self.found())
        self.age(base.models.Snapshot, snapshot.id)
        self.assertEqual(
            [('snapshot', snapshot.id, 'restoring')] if seen else [],
            self.found())

    def test_moves(self):
        moving = self.moves.commit(self.begin())
        self.assertEqual([], self.found())
        seen = []
        for event in (None, Event.SOURCE_DETACHED, Event.HYDRATED,
                      Event.DRAINED):
            if event:
                moving = self.moves.advance(moving, event)
            self.age(base.models.Volume, moving.move_id)
            seen += self.found()
        self.assertEqual([('move', self.volume.id, 'starting'),
                          ('move', self.volume.id, 'completing')], seen)

    def test_what_its_owner_has(self):
        self.put(status='extending', attach_status='attached')
        self.age(base.models.Volume, self.volume.id)
        found, = self.inventory.unended('l', 600)
        self.assertEqual((True, A), (found.attached, found.host))
        self.assertLess(3500, found.seconds)


@ddt.ddt
class LostDeleteTest(Base):
    """A delete that was sent to a node that is not the home."""

    def setUp(self):
        super().setUp()
        self.put(status='deleting')
        # As rpcapi does; Cinder's base of tests keeps it from that.
        db_api.worker_create(
            self.context, status='deleting', resource_type='Volume',
            resource_id=self.volume.id)
        self.rpc = self.enterContext(mock.patch.object(
            unended.rpcapi, 'VolumeAPI')).return_value

    def worker(self, service=None, seconds=3600, status='deleting'):
        self.age(base.models.Worker, self.volume.id, seconds,
                 'resource_id', service_id=service and objects.Service.
                 get_by_args(self.context, service, 'cinder-volume').id,
                 status=status)

    def asked(self, host=A):
        unended.ask_again(specs.node(
            host=host, interrupted=self.interrupted))
        return [call.args[1].id
                for call in self.rpc.delete_volume.mock_calls]

    @ddt.data(None, B)
    def test_asked_again(self, service):
        self.worker(service)
        self.assertEqual([self.volume.id], self.asked())
        # As Cinder itself does when a service starts.
        self.assertEqual({'cascade': True},
                         self.rpc.delete_volume.call_args.kwargs)

    @ddt.data((A, 3600), (None, 60), (B, 60))
    @ddt.unpack
    def test_somebody_may_be_at_it(self, service, seconds):
        self.worker(service, seconds)
        self.assertEqual([], self.asked())
        self.worker(B)
        self.assertEqual([self.volume.id], self.asked())

    def test_only_by_the_home(self):
        self.worker(B)
        self.assertEqual([], self.asked(B))
        self.assertEqual([], self.asked('c@l'))
        self.assertEqual([self.volume.id], self.asked(A))

    @ddt.data('available', 'error_deleting')
    def test_it_has_ended(self, status):
        self.worker(B)
        self.put(status=status)
        self.assertEqual([], self.asked())
        self.put(status='deleting')
        self.assertEqual([self.volume.id], self.asked())

    def test_worker_of_other_work(self):
        self.worker(B, status='creating')
        self.assertEqual([], self.asked())
        self.worker(B)
        self.assertEqual([self.volume.id], self.asked())

    def test_one_that_fails_stops_no_other(self):
        self.worker(B)
        self.rpc.delete_volume.side_effect = ValueError()
        self.assertEqual([self.volume.id], self.asked())
