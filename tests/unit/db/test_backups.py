# SPDX-License-Identifier: Apache-2.0
"""A backup that could not begin, on Cinder's own schema."""

from cinder import objects
from cinder.tests.unit import utils
import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.db import backups
from tests.helpers import records_case

FULL = exceptions.PoolFull(pool='g/p', host='h', usage='96 %')


@ddt.ddt
class EndTest(records_case.Base):

    def backup(self, **more):
        return utils.create_backup(
            self.context, self.volume.id, status='creating', **more)

    def end(self, backup):
        backups.end(backup, FULL)
        row = objects.Backup.get_by_id(self.context, backup.id)
        self.assertEqual(('error', str(FULL)), (row.status, row.fail_reason))

    def status(self):
        row = objects.Volume.get_by_id(self.context, self.volume.id)
        return row.status, row.previous_status

    @ddt.data('in-use', 'available')
    def test_its_volume_is_free_again(self, before):
        self.volume.update({'status': 'backing-up',
                            'previous_status': before})
        self.volume.save()
        self.end(self.backup())
        self.assertEqual((before, 'error_backing-up'), self.status())

    def test_a_volume_that_was_reset_stays_so(self):
        self.volume.update({'status': 'deleting',
                            'previous_status': 'in-use'})
        self.volume.save()
        self.end(self.backup())
        self.assertEqual(('deleting', 'in-use'), self.status())

    def test_its_snapshot_is_free_again(self):
        for status, after in (('backing-up', 'available'),
                              ('deleting', 'deleting')):
            snapshot = utils.create_snapshot(
                self.context, self.volume.id, status=status)
            before = self.status()
            self.end(self.backup(snapshot_id=snapshot.id))
            self.assertEqual(after, objects.Snapshot.get_by_id(
                self.context, snapshot.id).status)
            self.assertEqual(before, self.status())

    def test_what_is_gone_stops_nothing(self):
        backup = self.backup()
        self.volume.destroy()
        self.end(backup)
