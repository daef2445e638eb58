# SPDX-License-Identifier: Apache-2.0
"""Live migration as Cinder sees it: two attachments of one instance."""

import time

from lab import instance as instances
from lab import look
from lab import process
from tests.functional import base


class Base(base.LabTest):

    def migrating_volume(self):
        """A volume in use on node1, and attached on node2 as well."""
        volume = self.volume()
        source = self.instance.attach(volume, self.n1)
        expected = self.fill(source)
        writer = source.start_writing()
        destination = self.instance.attach(volume, self.n2, live=True)
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertTrue(writer.running)
        return volume, source, destination, writer, expected


class LiveMoveTest(Base):

    def put(self, attached, text):
        attached.node.run(
            'printf %%-4096s %s | dd of=%s bs=4096 seek=256 conv=notrunc '
            'oflag=direct iflag=fullblock status=none' % (
                text, attached.path))

    def get(self, attached, flag='direct'):
        return attached.node.run(
            'dd if=%s bs=4096 skip=256 count=1 iflag=%s status=none'
            % (attached.path, flag)).stdout.strip()

    def hydrated(self):
        return look.clone_progress(self.n2)[0]

    def test_forward(self):
        volume, source, destination, writer, _expected = (
            self.migrating_volume())
        # Whatever the destination has read already, it sees the newest.
        for text in ('first', 'second', 'third'):
            self.put(source, text)
            self.assertEqual(text, self.get(destination))
            self.assertEqual(text, self.get(destination, 'fullblock'))
        time.sleep(12)  # longer than a periodic look
        self.assertEqual(0, self.hydrated())
        self.demo.delete('/volumes/' + volume)  # in use: refused
        source.stop_writing(writer)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
        expected = self.checksum(destination)
        resumed = destination.start_writing(first_mib=200)
        source.detach('in-use')
        self.assert_moved(volume, destination, expected)
        self.assertTrue(resumed.running)
        destination.stop_writing(resumed)
        for each in (writer, resumed):
            self.assertIn(' 0 bad', destination.verify(each.stdout))

    def test_rolled_back(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        destination.detach('in-use')
        self.assert_at_source(volume)
        self.assertTrue(writer.running)
        source.stop_writing(writer)
        self.assertIn(' 0 bad', source.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(source))

    def assert_at_source(self, volume):
        process.wait_for('the shadow to go',
                         lambda: not look.shadows(self.lab), 60)
        self.assertEqual('node1', instances.home(self.lab, volume))
        process.wait_for('the export to go', lambda: not look.leftovers(
            self.n1, None), 30)
        self.assertEqual([], look.leftovers(self.n2, volume))
        self.assertEqual([], look.volume_lvs(self.n2))

    def test_a_dropped_attachment_is_rolled_back(self):
        """The detach of the destination never reached the driver."""
        volume, source, destination, writer, _expected = (
            self.migrating_volume())
        look.sql(self.lab, "UPDATE volume_attachment SET deleted = 1 "
                 "WHERE id = '%s'" % destination.id)
        self.assert_at_source(volume)
        source.stop_writing(writer)
        self.assertIn(' 0 bad', source.verify(writer.stdout))

    def test_no_hydration_while_the_source_is_open(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        source.detach('in-use')  # though the guest still writes there
        time.sleep(12)
        self.assertEqual(0, self.hydrated())
        self.assertIn('hydration_waits', self.n1.service_log().replace(
            'Hydration of volume %s waits' % volume, 'hydration_waits'))
        source.stop_writing(writer)
        self.assert_moved(volume, destination, expected)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))

    def test_both_lose_power_before_the_guest_has_left(self):
        volume, source, destination, writer, expected = (
            self.migrating_volume())
        self.n1.power_cut()
        self.n2.power_cut()
        for node in (self.n2, self.n1):  # the destination has no source yet
            node.power_on()
            self.restart(node, 'start')
        for node in (self.n1, self.n2):
            process.wait_for('the handle', lambda n=node: not n.run(
                'test -b ' + source.path, check=False).returncode, 90)
        self.assertIn(' 0 bad', source.verify(writer.stdout))
        self.assertEqual(0, self.hydrated())
        source.detach('in-use')
        self.assert_moved(volume, destination, expected)
        self.assertIn(' 0 bad', destination.verify(writer.stdout))
