# SPDX-License-Identifier: Apache-2.0
"""Cinder's own ways: migration, retype, and out of its management."""

import pathlib
import shlex

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.install import page_steps as page
from tests.functional import base

PAGE = pathlib.Path(page.PATH).parents[1] / 'operate/from-lvm.rst'
STOCK = 'node2@stock#stock'
NODE1, NODE2 = ('node%d@localclone#localclone' % n for n in (1, 2))


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

    def migrate(self, volume, host, status='available', **how):
        """Ask for Cinder's own migration; the volume when that has ended.

        :param status: of the volume then
        """
        self.act(volume, 'os-migrate_volume', host=host,
                 **how).raise_for_status()

        def ended():
            row = self.row(volume)
            return row['migration_status'] in ('success', 'error') and row
        row = process.wait_for('the migration', ended, 240, every=1)
        instances.wait_status(self.demo, volume, status)
        return row

    def assert_at(self, volume, home, expected=None):
        """It is all at one node, for a guest there; the other has nothing.

        :returns: the attachment
        """
        node, other = ((self.n1, self.n2) if home == NODE1
                       else (self.n2, self.n1))
        observe.wait_moved(self.lab, volume)
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        process.wait_for('its old place to be free',
                         lambda: not observe.volume_lvs(other), 60)
        self.assertEqual([], observe.leftovers(other, volume))
        self.assertEqual([], observe.leftovers(node, None))
        self.assertEqual(1, len(observe.volume_lvs(node)))
        attached = self.instance.attach(volume, node)
        self.assertEqual('/dev/mapper/localclone-' + volume, attached.path)
        if expected:
            self.assertEqual(expected, self.checksum(attached))
        self.assertEqual([], observe.move_records(self.lab))
        return attached

    def test_out_and_in_again(self):
        volume = self.volume(volume_type='anywhere', node='node1')
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        row = self.migrate(volume, STOCK)
        self.assertEqual(('success', STOCK), (
            row['migration_status'], row['os-vol-host-attr:host']))
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        self.assertEqual([], observe.leftovers(self.n1, volume))
        self.assertEqual([], observe.volume_lvs(self.n1))
        row = self.migrate(volume, NODE1)
        self.assertEqual(('success', NODE1), (
            row['migration_status'], row['os-vol-host-attr:host']))
        self.assert_at(volume, NODE1, expected).detach()

    def follow(self, title, volume):
        """Do what the page says for a volume, up to the end of its copy.

        :param title: of a section of the page
        """
        for step in page.literal_steps(PAGE.read_text(), title):
            words = [{'VOLUME': volume, 'lvm': 'stock'}.get(word, word)
                     for word in shlex.split(step.line)]
            if words[0] == 'cinder-localclone':
                done = self.n1.operator(*words[1:])
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertNotIn(volume, done.stdout)
                continue
            self.lab.openstack(*words[1:])
            if 'set' in words:
                process.wait_for('the copy to end', lambda: self.row(volume)[
                    'status'] != 'retyping', 240, every=1)
                row = self.row(volume)
                self.assertEqual(
                    ('available', 'success', words[words.index('--type') + 1]),
                    (row['status'], row['migration_status'],
                     row['volume_type']))

    def test_as_the_page_says_at_length(self):
        volume = self.volume(volume_type='stock', node='node2')
        attached = self.instance.attach(volume, self.n2)
        expected = self.fill(attached)
        attached.detach()
        self.follow('From Cinder\'s LVM driver', volume)
        home = self.row(volume)['os-vol-host-attr:host']
        self.assertIn(home, (NODE1, NODE2))
        self.assert_at(volume, home, expected).detach()
        self.follow('Back to Cinder\'s LVM driver', volume)
        self.assertIn('@stock#', self.row(volume)['os-vol-host-attr:host'])
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        for node in (self.n1, self.n2):
            self.assertEqual([], observe.leftovers(node, volume))
            self.assertEqual([], observe.volume_lvs(node))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        # Cinder's driver deletes it; its service ends with this test.
        instances.delete_volumes(self.demo, volume)

    def test_migration_at_length(self):
        volume = self.volume(volume_type='anywhere')
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        # Within the backend: by the driver, without anybody attaching.
        row = self.migrate(volume, NODE2)
        self.assertEqual(('success', NODE2), (
            row['migration_status'], row['os-vol-host-attr:host']))
        attached = self.assert_at(volume, NODE2, expected)
        # What is attached follows its instance.
        row = self.migrate(volume, NODE1, status='in-use')
        self.assertEqual('error', row['migration_status'])
        self.assertIn('moves with its instance', self.told(volume))
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        # By Cinder's own copy, if that is asked for.
        row = self.migrate(volume, NODE1, force_host_copy=True)
        self.assertEqual('success', row['migration_status'])
        self.assert_at(volume, NODE1, expected).detach()
        # It moves as any other does, and has the type that is asked for.
        self.act(volume, 'os-retype', new_type='localclone',
                 migration_policy='never').raise_for_status()
        process.wait_for('the type', lambda: self.row(volume)[
            'volume_type'] == 'localclone', 90)
        instances.wait_status(self.demo, volume, 'available')
        attached = self.instance.attach(volume, self.n2)
        self.assert_moved(volume, attached, expected)
        attached.detach()
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)

    def test_migration_of_a_volume_that_moves_at_length(self):
        volume, attached, expected = self.moving_volume(
            volume_type='anywhere')
        attached.detach()
        for force in (False, True):
            row = self.migrate(volume, STOCK, force_host_copy=force)
            self.assertEqual('error', row['migration_status'])
            self.assertIn('when the move has ended', self.told(volume))
            # The move goes on; what Cinder had begun goes.
            process.wait_for('Cinder\'s new volume to go',
                             lambda: len(self.rows()) == 2, 60)
            self.assertEqual(1, len(observe.move_records(self.lab)))
        self.brake()
        observe.wait_moved(self.lab, volume)
        self.assertEqual([[volume]], self.rows())
        self.assertEqual([], observe.volume_lvs(self.n1))
        row = self.migrate(volume, STOCK)
        self.assertEqual('success', row['migration_status'])
        process.wait_for('what was copied to go',
                         lambda: self.rows() == [[volume]], 60)
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()
        self.demo.delete('/volumes/' + volume).raise_for_status()
        observe.wait_deleted(self.lab)

    def rows(self):
        return observe.sql(self.lab,
                           'SELECT id FROM volumes WHERE deleted = 0')
