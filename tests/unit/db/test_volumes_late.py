# SPDX-License-Identifier: Apache-2.0
"""Late homes of nodes with new names, on Cinder's own schema."""

from cinder.tests.unit import utils
import ddt

from cinder_localclone.cmd.node import forget
from cinder_localclone.db import base
from tests.helpers import records_case

A, B, NEW = records_case.A, records_case.B, 'new@l'


@ddt.ddt
class LateTest(records_case.Base):

    def setUp(self):
        super().setUp()
        self.uuids = {
            host: '%s-0000-4000-8000-000000000000' % (host[0] * 8)
            for host in (A, B, NEW)}
        for host, uuid in self.uuids.items():
            utils.create_service(self.context, {
                'host': host, 'binary': 'cinder-volume', 'topic': 't',
                'uuid': uuid})
        self.move = self.moves.commit(self.begin())

    def put(self, **values):
        with base.writer() as session:
            session.query(base.models.Volume).filter_by(
                id=self.volume.id).update(values)

    def test_node_with_a_new_name_corrects_it(self):
        """The services of the rows are corrected by its first sweep."""
        self.put(host=NEW + '#p')
        self.decommission.forget_service(B)
        self.volumes.correct_services(NEW, [self.move.destination_lv])
        self.assertEqual(NEW, self.volumes.service_of(self.volume.id))
        self.put(host=A + '#p')
        self.assertEqual([self.volume.id],
                         self.volumes.volumes_with_wrong_host(NEW))
        self.assertTrue(self.volumes.correct_home(
            self.volumes.volume(self.volume.id), NEW))
        self.assertEqual(NEW, self.moves.move_of(self.volume.id).destination)

    def test_migration_by_the_service_in_the_row(self):
        """Cinder has sent the migration there; this service starts again."""
        self.drain(self.move)
        self.put(host=A + '#p', status='available',
                 attach_status='detached', migration_status='migrating')
        self.assertEqual({self.volume.id: 'error'},
                         self.db.interrupted.end_interrupted(A))

    def migrating(self, home, service):
        """Cinder copies the volume to another backend."""
        self.drain(self.move)
        self.put(host=home + '#p', service_uuid=self.uuids[service],
                 status='available', attach_status='detached',
                 migration_status='migrating', _name_id=None)
        utils.create_volume(self.context, host='x@other#p',
                            migration_status='target:' + self.volume.id)

    @ddt.data((NEW, B), (A, B))
    @ddt.unpack
    def test_migration_of_a_row_with_a_wrong_service(self, home, service):
        """After a new name; or if another node's manager made the volume.

        The node has the LV, so it corrects the service before it ends the
        migration.
        """
        self.migrating(home, service)
        name = self.volumes.volume(self.volume.id).name
        self.assertEqual({}, self.db.interrupted.end_interrupted(home))
        self.volumes.correct_services(home, [name])
        self.assertEqual({self.volume.id: 'error'},
                         self.db.interrupted.end_interrupted(home))

    def test_managed_volume_of_a_lost_node(self):
        """Cinder writes no service into its row; the first sweep does.

        Without it, each living node would be asked for each volume.
        """
        self.drain(self.move)
        self.put(host=A + '#p', service_uuid=None, _name_id=None)
        self.volumes.correct_services(
            A, [self.volumes.volume(self.volume.id).name])
        asked = []
        *_others, step = forget.plan(
            self.db, A, B + '#p', lambda _move: None,
            lambda _volume, node: asked.append(node))
        self.assertEqual(([], 'the whole volume'), (asked, step.lost))
