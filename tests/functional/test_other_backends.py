# SPDX-License-Identifier: Apache-2.0
"""Cinder's own ways: to another backend, and out of its management."""

from lab.core import instance as instances
from lab.core import look
from lab.core import process
from tests.functional import base

STOCK = 'node2@stock#stock'


class OtherBackendsTest(base.LabTest):

    def setUp(self):
        super().setUp()
        # Cinder's own LVM driver, on one node and for this test only.
        self.lab.write_service_config(self.n2, 'stock')
        self.addCleanup(self.n2.service, 'stop', 'stock')
        self.n2.service('start', 'stock')
        self.lab.wait_for_services('stock', nodes=['node2'])
        kind = self.lab.cinder().post('/types', json={'volume_type': {
            'name': 'anywhere'}}).raise_for_status().json()['volume_type']
        self.addCleanup(self.lab.cinder().delete, '/types/' + kind['id'])

    def migrate(self, volume, host, **how):
        """Ask for Cinder's own migration; the volume when that has ended."""
        self.act(volume, 'os-migrate_volume', host=host,
                 **how).raise_for_status()

        def ended():
            row = self.row(volume)
            return row['migration_status'] in ('success', 'error') and row
        row = process.wait_for('the migration', ended, 240, every=1)
        instances.wait_status(self.demo, volume, 'available')
        return row

    def test_migration(self):
        volume = self.volume(volume_type='anywhere')
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        for force in (False, True):
            row = self.migrate(volume, 'node2@localclone#localclone',
                               force_host_copy=force)
            self.assertEqual('error', row['migration_status'])
            self.assert_untouched(volume, expected)
            self.assertEqual([[volume]], self.rows())
        self.act(volume, 'os-unmanage').raise_for_status()
        instances.wait_status(self.demo, volume, 'error_unmanaging')
        self.act(volume, 'os-reset_status',
                 status='available').raise_for_status()
        self.assert_untouched(volume, expected)
        row = self.migrate(volume, STOCK)
        self.assertEqual(('success', STOCK), (
            row['migration_status'], row['os-vol-host-attr:host']))
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        self.assertEqual([], look.leftovers(self.n1, volume))
        self.assertEqual([], look.volume_lvs(self.n1))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual('iscsi', attached.data['driver_volume_type'])
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        self.demo.delete('/volumes/' + volume).raise_for_status()
        look.wait_deleted(self.lab)

    def test_migration_of_a_volume_that_moves(self):
        volume, attached, expected = self.moving_volume(
            volume_type='anywhere')
        attached.detach()
        for force in (False, True):
            row = self.migrate(volume, STOCK, force_host_copy=force)
            self.assertEqual('error', row['migration_status'])
            self.assertIn('try again when that has ended', self.told(volume))
            # The move goes on; what Cinder had begun goes.
            process.wait_for('Cinder\'s new volume to go',
                             lambda: len(self.rows()) == 2, 60)
            self.assertEqual(1, len(look.shadows(self.lab)))
        self.brake()
        look.wait_moved(self.lab, volume)
        self.assertEqual([[volume]], self.rows())
        self.assertEqual([], look.volume_lvs(self.n1))
        row = self.migrate(volume, STOCK)
        self.assertEqual('success', row['migration_status'])
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        self.assertEqual([], look.leftovers(self.n2, volume))
        self.assertEqual([], look.volume_lvs(self.n2))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        self.demo.delete('/volumes/' + volume).raise_for_status()
        look.wait_deleted(self.lab)

    def rows(self):
        return look.sql(self.lab, 'SELECT id FROM volumes WHERE deleted = 0')
