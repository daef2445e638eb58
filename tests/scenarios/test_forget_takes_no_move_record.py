# SPDX-License-Identifier: Apache-2.0
"""node forget and the rows of move records, on Cinder's own schema."""

from unittest import mock

from cinder.tests.unit import utils

from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd.node import forget
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.db import base
from tests.helpers import callers
from tests.helpers import records_case

A, B, LOST, C = records_case.A, records_case.B, 'lost@l', 'c@l'


class ForgetRecordsTest(records_case.Base):
    """A's clone was made by the manager of another node, now lost.

    Cinder's manager wrote its own service into the row. The commit of the
    move gave this service to the record, before the first sweep of A.
    """

    def setUp(self):
        super().setUp()
        self.uuids = {
            host: '%s-0000-4000-8000-000000000000' % (str(each) * 8)
            for each, host in enumerate((A, B, LOST, C))}
        for host, uuid in self.uuids.items():
            utils.create_service(self.context, {
                'host': host, 'binary': 'cinder-volume', 'topic': 't',
                'uuid': uuid})
        with base.writer() as session:
            session.query(base.models.Volume).filter_by(
                id=self.volume.id).update({'service_uuid': self.uuids[LOST]})
        self.move = self.moves.commit(self.begin())

    def has_lv(self, volume, node):
        """As node.has_lv: by name, and by the volume in the LV's tag."""
        return (node, volume.name) in (
            (A, self.move.source_lv), (B, self.move.destination_lv)) and (
                volume.id == self.volume.id)

    def plan(self):
        return forget.plan(self.db, LOST, C + '#p', lambda _move: None,
                           self.has_lv)

    def test_no_record_is_listed(self):
        for migrating in (False, True):
            self.assertEqual([], self.volumes.volumes_with_wrong_host(
                LOST, migrating), migrating)

    def test_source_that_does_not_answer(self):
        """The operator reads nothing of a volume that does not exist."""
        def has_lv(_volume, node):
            raise exceptions.PeerUnreachable(
                host=node, method='has_lv', seconds=8)
        self.assertEqual([], [step.what for step in forget.plan(
            self.db, LOST, C + '#p', lambda _move: None, has_lv)])

    def test_record_is_never_given_up(self):
        record = self.volumes.volume(self.move.move_id)
        self.assertRaises(exceptions.StaleMove, self.db.decommission.give_up,
                          record, C + '#p')

    def test_record_is_no_lost_volume(self):
        """The lost node had no part in the move."""
        self.assertEqual([], [
            (step.what, step.lost) for step in self.plan()])

    def test_source_stays(self):
        callers.take(self.plan())
        self.assertEqual(
            (A, B), (self.moves.move_of(self.volume.id).source,
                     self.moves.move_of(self.volume.id).destination))

    def test_live_migration_that_goes_back(self):
        """The only data is at the source."""
        callers.take(self.plan())
        self.moves.roll_back(self.moves.move_of(self.volume.id))
        self.assertEqual(A, self.volumes.volume(self.volume.id).home)

    def test_doctor_does_not_tell_to_remove_the_source(self):
        """It has all regions that are not copied yet."""
        callers.take(self.plan())
        backend = mock.Mock(host=A, db=self.db)
        backend.lvm.return_value.lvs.return_value = {
            self.move.source_lv: mock.Mock(
                tags=names.volume_tags(self.volume.id, 0))}
        self.assertEqual([], [*doctor._unknown_lvs(backend)])

    def test_source_after_its_sweep(self):
        """It passes: the sweep of A corrects the service of the record."""
        self.volumes.correct_services(A, [self.move.source_lv])
        callers.take(self.plan())
        self.assertEqual(A, self.moves.move_of(self.volume.id).source)
