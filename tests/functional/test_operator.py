# SPDX-License-Identifier: Apache-2.0
"""The operator's command on real nodes."""

import json

from lab.core import config
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import live

NO_VOLUME = '00000000-0000-4000-8000-000000000000'


class OperatorTest(live.Base):

    def command(self, node, *words, code=0):
        """Run ``cinder-localclone`` on a node; its JSON, or its text."""
        done = node.operator(*words)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        if '--json' in words:
            return json.loads(done.stdout)
        return done.stdout + done.stderr

    def test_while_a_volume_moves_at_length(self):
        volume, attached, expected = self.moving_volume()
        self.brake('15mbit')

        def begun():
            row, = self.command(self.n1, 'move', 'list', '--json')
            return row['Percent'] and row
        row = process.wait_for('the first part to be copied', begun, 60,
                               every=1)
        self.assertEqual(
            (volume, 'node1@localclone', 'node2@localclone', 'migrating'),
            (row['Volume'], row['From'], row['To'], row['Phase']))
        self.assertTrue(0 < row['Percent'] < 100, row)
        self.assertIn('can only go forward', self.command(
            self.n1, 'move', 'abort', volume, code=1))
        shown = self.command(self.n1, 'volume', 'show', volume, '--json')
        self.assertIn(('node2@localclone', 'source disk'), [
            (each['Where'], each['What']) for each in shown])
        self.assertEqual([], self.command(
            self.n2, 'volume', 'repair', volume, '--dry-run', '--json'))
        for each in self.command(self.n2, 'doctor', '--json'):
            self.assertNotEqual('FAIL', each['Verdict'], each)
        self.assert_moved(volume, attached, expected)
        self.assertEqual([], self.command(self.n1, 'move', 'list', '--json'))

    def test_repair_says_what_it_did_at_length(self):
        volume = self.volume()
        done = 'handle of %s now on LV' % volume
        for _attempt in range(3):
            self.n1.run('dmsetup remove localclone-' + volume)
            shown = self.n2.operator('volume', 'show', volume)
            repaired = self.command(self.n2, 'volume', 'repair', volume)
            if done in repaired:
                break  # else the node's own look, once a minute, was first
        self.assertIn(done, repaired)
        self.assertEqual(1, shown.returncode)
        self.assertIn('DIFFERENCE', shown.stdout)
        self.command(self.n2, 'volume', 'show', volume)
        self.n1.service('kill')
        self.assertIn('did not answer', self.command(
            self.n2, 'volume', 'show', volume, code=1))
        found = self.command(self.n2, 'doctor', code=1)
        self.assertIn('node1@localclone', found)
        self.assertIn('There is no volume', self.command(
            self.n2, 'volume', 'show', NO_VOLUME, code=1))

    def test_restored_before_any_service_runs_at_length(self):
        other = self.volume(node='node2')
        # Until somebody has been given it, or the node's own look has seen
        # that Cinder has taken it, it is uncommitted: no boot gives it a
        # handle.
        self.instance.attach(other, self.n2).detach()
        volume, attached, expected = self.moving_volume()
        self.n2.power_cut()
        self.brake()
        self.n2.power_on()
        self.assertTrue(self.n2.run('test -b ' + attached.path,
                                    check=False).returncode)
        # Neither the database nor the message bus is asked.
        conf = self.n2.directory / 'localclone.conf'
        text = conf.read_text()
        conf.write_text(text.replace(config.CONTROL, '192.0.2.250'))
        try:
            found = self.command(self.n2, 'node', 'restore', '--json')
        finally:
            conf.write_text(text)
        self.assertEqual({volume: 'on its clone', other: 'local'}, {
            each['Volume']: each['State'] for each in found})
        self.assertEqual(expected, self.checksum(attached))
        self.assertEqual(0, self.n2.run(
            'test -b /dev/mapper/localclone-' + other).returncode)
        self.restart(self.n2, 'start')
        self.brake()
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached))

    def test_drain(self):
        volume, other = self.volume(), self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        held = self.instance.attach(other, self.n1)
        drain = 'node', 'drain', 'node1@localclone', '--json'
        self.assertIn('is not disabled', self.command(
            self.n2, *drain[:3], code=1))
        observe.take_volumes(self.lab, 'node2')
        self.addCleanup(observe.take_volumes, self.lab)
        self.assertEqual(
            {(volume, 'moves', 'to node2@localclone.'),
             (other, 'attached')}, {
                tuple(row.values())[:2 if row['What'] == 'attached' else 3]
                for row in self.command(
                    self.n2, *drain, '--dry-run', code=1)})
        row, = self.command(self.n2, *drain, code=1)
        self.assertEqual(other, row['Volume'])
        self.assertIn('on node1', row['Why'])
        self.assertEqual('node2', instances.home(self.lab, volume))
        held.detach()
        self.assertEqual([], self.command(self.n2, *drain))
        self.assertEqual([], observe.volume_lvs(self.n1))
        self.assertEqual([], observe.leftovers(self.n1, volume))
        self.assertEqual([], observe.move_records(self.lab))
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def test_a_live_migration_settled_by_hand_at_length(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        self.assertIn('is still open on node1', self.command(
            self.n2, 'move', 'complete', volume, code=1))
        source.stop_writing(writer)
        self.assertIn('continues', self.command(
            self.n2, 'move', 'complete', volume))
        self.assert_moved(volume, destination, expected)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
        self.assertIn('is not moving', self.command(
            self.n2, 'move', 'abort', volume, code=1))

    def test_a_live_migration_taken_back_by_hand_at_length(self):
        volume, source, destination, writer, _expected = (
            self.migrating_volume())
        holder = destination.start_writing(seconds=600)
        self.assertIn('is still open on node2', self.command(
            self.n1, 'move', 'abort', volume, code=1))
        destination.stop_writing(holder)
        self.assertIn('was already written on node2', self.command(
            self.n1, 'move', 'abort', volume, code=1))
        process.wait_for('the phase to stand', lambda: observe.move_records(
            self.lab)[0][1].startswith('lc1:starting'), 60)
        source.stop_writing(writer)
        self.command(self.n1, 'move', 'complete', volume)
        observe.wait_moved(self.lab, volume)
