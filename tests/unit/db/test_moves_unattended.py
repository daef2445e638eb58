# SPDX-License-Identifier: Apache-2.0
"""A move that nobody attaches for holds its volume, on Cinder's own schema."""

import warnings

from cinder import context
from cinder import exception
from cinder.tests.unit import utils
from cinder.volume import api
import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core.volume import Row
from cinder_localclone.db import base
from tests.helpers import database
from tests.helpers import records_case

GEOMETRY = state.Geometry(128, 32, 8)
A, B = 'a@l', 'b@l'


class Base(database.TestCase):

    def setUp(self):
        super().setUp()
        # Cinder's own deprecations, which its fixture shows.
        warnings.simplefilter('ignore', DeprecationWarning)
        self.context = context.get_admin_context()
        records_case.use(self)
        self.row = utils.create_volume(
            self.context, host=A + '#p', size=1, status='available',
            volume_type_id=None)

    def volume(self):
        return base.cinder_volume(self.row.id)

    def states(self):
        volume = self.volume()
        return volume.status, volume.migration_status

    def set(self, **values):
        volume = self.volume()
        volume.update(values)
        volume.save()

    def begin(self, asked_by, event=Event.MOVE_BEGUN):
        return self.moves.begin(
            self.volume(), B + '#p', event, GEOMETRY,
            lambda record: 'portal,1 iqn:%s 0' % record, 'CHAP u s', 'i',
            asked_by)


@ddt.ddt
class HeldTest(Base):

    def test_an_attach_holds_nothing(self):
        self.begin(Asked.ATTACH)
        self.assertEqual(('available', None), self.states())

    def test_drained(self):
        self.set(migration_status='success')
        moving = self.begin(Asked.DRAIN)
        self.assertEqual(('maintenance', None), self.states())
        self.moves.commit(moving)
        self.assertEqual(('available', None), self.states())

    def test_failed(self):
        self.moves.advance(self.begin(Asked.DRAIN), Event.FAILED)
        self.assertEqual(('available', None), self.states())

    @ddt.data('available', 'maintenance', 'retyping')
    def test_migrated(self, status):
        """Cinder's manager ends what it has begun."""
        self.set(status=status, migration_status='migrating')
        moving = self.begin(Asked.MIGRATION)
        self.assertEqual(
            ('maintenance' if status == 'available' else status,
             'migrating'), self.states())
        moving = self.moves.commit(moving)
        self.assertEqual((status, 'migrating'), self.states())
        for event in (Event.HYDRATED, Event.DRAINED):
            moving = self.moves.advance(moving, event)
        self.moves.finish(moving, Event.SOURCE_REMOVED)
        self.assertEqual((status, 'migrating'), self.states())

    @ddt.data('available', 'maintenance', 'retyping')
    def test_migration_that_fails(self, status):
        self.set(status=status, migration_status='migrating')
        self.moves.advance(self.begin(Asked.MIGRATION), Event.FAILED)
        self.assertEqual((status, 'migrating'), self.states())

    @ddt.data(
        (Asked.DRAIN, dict(status='reserved')),
        (Asked.DRAIN, dict(status='deleting')),
        (Asked.DRAIN, dict(status='extending')),
        (Asked.DRAIN, dict(status='maintenance')),
        (Asked.DRAIN, dict(migration_status='starting')),
        (Asked.DRAIN, dict(migration_status='migrating')),
        (Asked.DRAIN, dict(attach_status='attached')),
        (Asked.MIGRATION, dict()),
        (Asked.MIGRATION, dict(migration_status='starting')),
        (Asked.MIGRATION, dict(migration_status='migrating',
                               status='reserved')),
        (Asked.MIGRATION, dict(migration_status='migrating',
                               status='retyping', attach_status='attached')),
        (Asked.ATTACH, dict(migration_status='migrating')))
    @ddt.unpack
    def test_what_others_have_is_not_begun(self, asked_by, values):
        self.set(**values)
        before = self.states()
        self.assertRaises(exceptions.StaleMove, self.begin, asked_by)
        self.assertEqual(before, self.states())
        self.assertEqual([], self.moves.readable_moves())

    @ddt.data('deleting', 'available', 'error')
    def test_what_was_taken_by_force_is_lost(self, status):
        moving = self.begin(Asked.DRAIN)
        self.set(status=status)
        self.assertRaises(exceptions.StaleMove, self.moves.commit, moving)
        self.assertEqual(A + '#p', self.volume().host)
        self.moves.advance(moving, Event.FAILED)
        self.assertEqual((status, None), self.states())

    def test_an_attach_may_reset_what_it_likes(self):
        moving = self.begin(Asked.ATTACH)
        self.set(status='reserved')
        self.moves.commit(moving)
        self.assertEqual(('reserved', None), self.states())

    def test_cinder_accepts_nothing_while_it_is_held(self):
        moving = self.begin(Asked.DRAIN)
        cinder = api.API()
        for request in (
                lambda: cinder.delete(self.context, self.volume()),
                lambda: cinder.extend(self.context, self.volume(), 2),
                lambda: cinder.create_snapshot(
                    self.context, self.volume(), 'n', 'd'),
                lambda: cinder.attachment_create(
                    self.context, self.volume(), self.row.id)):
            self.assertRaises(exception.Invalid, request)
        self.moves.commit(moving)
        cinder.extend(self.context, self.volume(), 2)
        self.assertEqual('extending', self.volume().status)


class CopiesTest(Base):

    def test_whose_handle(self):
        volume = self.volumes.volume(self.row.id)
        self.assertIsNone(volume.visible_id)
        self.assertEqual(self.row.id, volume.handle_id)
        copy = Row.of(utils.create_volume(
            self.context, migration_status='target:' + self.row.id))
        self.assertEqual(self.row.id, copy.visible_id)
        self.assertEqual(self.row.id, copy.handle_id)
        self.set(migration_status='migrating')
        self.assertEqual(self.row.id,
                         self.volumes.volume(self.row.id).handle_id)


class NodeTest(Base):
    """What the operator's command asks of a node."""

    def test_service(self):
        self.assertIsNone(self.inventory.service(A))
        utils.create_service(self.context, {
            'host': A, 'binary': 'cinder-volume', 'topic': 't',
            'availability_zone': 'zone', 'disabled': True})
        found = self.inventory.service(A)
        self.assertEqual((True, 'zone'), (found.disabled, found.zone))

    def test_snapshots_on_a_node(self):
        made = [utils.create_snapshot(
            self.context, self.row.id, provider_location=where)
            for where in ('lc1:' + A, 'lc1:' + B, None, 'lc1:' + A)]
        made[3].destroy()
        self.assertEqual({made[0].id: self.row.id},
                         self.decommission.snapshots_on(A))
        for each in made[:3]:
            self.decommission.give_up_snapshot(each.id, A)
        self.assertEqual(['error', 'creating', 'creating'], [
            self.snapshots.snapshot(each.id).status for each in made[:3]])
        self.set_status(made[0], 'deleting')
        self.decommission.give_up_snapshot(made[0].id, A)
        self.assertEqual('deleting',
                         self.snapshots.snapshot(made[0].id).status)

    @staticmethod
    def set_status(snapshot, status):
        snapshot.status = status
        snapshot.save()
