# SPDX-License-Identifier: Apache-2.0
"""Rows whose host or service is wrong.

Cinder writes a former home when a retype ends, and the service of the asked
node when a creation ends.
"""

import datetime
from unittest import mock

from cinder.tests.unit import utils
from oslo_utils import timeutils

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core.state import Phase
from cinder_localclone.db import base
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import migrate
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import ended_move_case
from tests.helpers import records_case
from tests.helpers import remote_case
from tests import world as worlds

A, B, C = 'a@l', 'b@l', 'c@l'
FAILED = exceptions.CommandFailed(command='lvremove', code=5, stderr='busy')


class RecordsTest(records_case.Base):
    """Cinder's manager writes its own service into a new volume.

    ``create_volume`` in cinder/volume/manager.py does so after the volume is
    "available", also if the driver has made it at another node
    (``set_home``). ``correct_services`` corrects it, a sweep later.
    """

    def setUp(self):
        super().setUp()
        for host in (A, B, C):
            utils.create_service(self.context, {
                'host': host, 'binary': 'cinder-volume', 'topic': 't',
                'uuid': self.uuid(host)})
        self.volume = utils.create_volume(
            self.context, host=B + '#p', size=1, status='reserved',
            volume_type_id=None, service_uuid=self.uuid(A))

    @staticmethod
    def uuid(host):
        return '%s-0000-4000-8000-000000000000' % (host[0] * 8)

    def put(self, **values):
        with base.writer() as session:
            session.query(base.models.Volume).filter_by(
                id=self.volume.id).update(values)

    def test_new_volume_moves_to_a_third_node(self):
        move = self.begin(Event.MOVE_BEGUN, C)
        self.assertEqual((B, C), (move.source, move.destination))
        self.moves.commit(move)

    def test_new_volume_moves_to_the_node_that_was_asked(self):
        move = self.begin(Event.MOVE_BEGUN, A)
        self.assertEqual((B, A), (move.source, move.destination))
        self.moves.commit(move)

    def test_service_that_is_written_after_the_commit(self):
        self.put(service_uuid=self.uuid(B))
        move = self.moves.commit(self.begin(Event.MOVE_BEGUN, C))
        self.put(service_uuid=self.uuid(A))
        found = self.moves.get_move(move.move_id)
        self.assertEqual((B, C), (found.source, found.destination))
        self.assertEqual([], self.moves.moves_of(A))


class ForgetTest(ended_move_case.Base):

    def test_service_of_a_lost_node_during_a_live_migration(self):
        """Made at A by the manager of B; the guest runs on C already."""
        world, volume, expected = self.begin()
        handle = names.handle(volume.id)
        world.nodes[A].opened.add(handle)
        self.attach(world, volume, C, live=True)
        world.nodes[A].opened.discard(handle)
        self.write(world, volume, expected, 2, 'new')
        self.assertIs(Phase.STARTING, self.move(world, volume).phase)
        volume.service_uuid = world.service_of(B)
        self.lose(world.nodes[B])
        callers.take(callers.plan_to_forget(world, B, C))
        self.assertEqual(C, names.service_host(volume.host))
        self.verify(world, volume, expected)

    def test_former_home_with_a_pending_cleanup(self):
        """The end of the cleanup ends the record that tells the home."""
        world, volume, expected = self.begin()
        self.complete(world, volume)
        self.write(world, volume, expected, 2, 'new')
        volume.status = 'available'
        volume.host, volume.service_uuid = A + '#p', world.service_of(A)
        for _time in range(2):
            callers.take(callers.plan_to_forget(world, A, C))
            self.assertEqual((B + '#p', 'available'),
                             (volume.host, volume.status))


class WorldTest(attach_case.Base):

    def setUp(self):
        super().setUp()
        self.a.write(self.volume.id, 1, 'old')

    def test_new_volume_is_attached_where_it_was_asked_for(self):
        """Made at A by the manager of B: the instance is on B."""
        self.volume.service_uuid = self.world.service_of(B)
        self.is_local(self.connect(attach_case.ON_B))
        self.assertEqual('old', self.b.read(self.volume.id, 1))

    def test_service_that_is_written_after_the_commit(self):
        self.connect(attach_case.ON_B)
        self.b.write(self.volume.id, 2, 'new')
        self.attach('in-use', 'b')
        self.volume.service_uuid = self.world.service_of(A)
        before = dict(self.a.devices), set(self.a.lvs)
        self.a.reconciler.reconcile(self.volume.id)
        self.assertEqual(before, (dict(self.a.devices), set(self.a.lvs)))
        self.world.settle()
        self.assertIsNone(self.move())
        self.assertEqual('new', self.b.read(self.volume.id, 2))


class AttachedTest(remote_case.Passed):

    def test_connection_of_another_host_that_was_never_recorded(self):
        """Its connector names a host; no use of B will be recorded by it."""
        self.disconnect(self.a, self.connector)
        self.b.opened.clear()
        self.attach('reserved', 'x')
        other, = self.volume.volume_attachment
        vars(other).update(connection_info={}, attach_status='attaching',
                           created_at=timeutils.utcnow(), updated_at=None)
        self.b.node.sessions._inner.begun.clear()
        self.assertFalse(remote_attachment.is_being_attached(
            self.b.node, self.b.node.volumes.volume(self.volume.id)))

    def test_key_of_another_backend_with_such_an_attachment(self):
        """Kept for ever: no time limits it."""
        self.attach('reserved', 'x')
        other, = self.volume.volume_attachment
        old = timeutils.utcnow() - datetime.timedelta(days=9)
        vars(other).update(connection_info={}, attach_status='attaching',
                           created_at=old, updated_at=old)
        self.volume.host = 'b@other#p'
        self.assertFalse(upkeep._may_have_to_be_opened(
            self.b.node, self.b.node.volumes.volume(self.volume.id)))


class BegunTest(attach_case.Base):
    """The home begins a move while its row names a former home.

    The record of an earlier move tells it: that home could not remove its LV
    yet.
    """

    def setUp(self):
        super().setUp()
        self.a.write(self.volume.id, 1, 'old')
        self.connect(attach_case.ON_B)
        self.attach('available')
        with mock.patch('cinder_localclone.moves.cleanup.take_down',
                        side_effect=FAILED):
            self.world.settle()
        self.b.write(self.volume.id, 2, 'new')
        self.assertIsNone(self.move())
        self.left = self.volume.name
        self.volume.host = A + '#p'

    def drain(self):
        migrate.move_away(self.b.node, self.volume.id, A, Asked.DRAIN)

    def test_source_of_an_attach(self):
        self.attach('reserved', None)
        self.connect(attach_case.ON_A, self.b)
        self.assertEqual((B, A), (self.move().source, self.move().destination))

    def test_power_cut_of_the_source(self):
        self.drain()
        self.b.stop(power=True)
        self.world.settle()
        self.assertIsNone(self.move())
        self.assertEqual('new', self.a.read(self.volume.id, 2))

    def test_lv_of_the_source(self):
        self.drain()
        self.world.settle()
        self.assertEqual('new', self.a.read(self.volume.id, 2))
        self.assertNotIn(self.left, self.b.lvs)

    def test_row_that_can_not_be_corrected(self):
        self.volume.migration_status = 'migrating'
        self.assertRaises(exceptions.StaleMove, self.b.node.moves.begin,
                          self.b.node.volumes.volume(self.volume.id), C + '#p',
                          Event.MOVE_BEGUN, worlds.GEOMETRY,
                          lambda record: record, 'CHAP u s', 'i',
                          Asked.MIGRATION)
        self.volume.migration_status = None
        self.assertRaises(exceptions.StaleMove, self.b.node.moves.begin,
                          self.b.node.volumes.volume(self.volume.id), C + '#p',
                          Event.MOVE_BEGUN, worlds.GEOMETRY,
                          lambda record: record, 'CHAP u s', 'i')


class CopiedDiskTest(attach_case.Base):

    def test_it_has_the_lv_at_the_host_that_was_written_late(self):
        """No new name of that node: it is the other end of the move."""
        self.a.write(self.volume.id, 1, 'old')
        self.connect(attach_case.ON_B)
        self.b.write(self.volume.id, 2, 'new')
        self.volume.host = A + '#p'
        self.a.disk.lvs[self.volume.name] = list(
            self.b.lvs[self.volume.name])
        self.a.disk.tags[self.volume.name] = self.b.disk.tags[
            self.volume.name]
        self.b.dead = True
        self.a.reconciler.reconcile_node()
        self.assertEqual(B, self.move().destination)
