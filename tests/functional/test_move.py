# SPDX-License-Identifier: Apache-2.0
"""The move on real kernels, undisturbed and disturbed."""

import time

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base


class MoveTest(base.LabTest):

    def test_there_and_back_with_a_guest_writing(self):
        volume, attached, expected = self.moving_volume()
        self.assertEqual('node2', attached.node.name)
        self.assertIsNotNone(observe.clone_progress(self.n2))
        # Not all is local yet, and all of it is right.
        self.assertEqual(expected, self.checksum(attached))
        queue = '/sys/block/$(basename $(readlink -f %s))/queue/' % (
            attached.path)
        self.assertEqual('0', self.n2.run(
            'cat %sdiscard_max_bytes' % queue).stdout.strip())
        self.assert_udev_leaves_alone()
        writer = attached.start_writing()
        self.assert_moved(volume, attached, expected)
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertNotEqual('0', self.n2.run(
            'cat %sdiscard_max_bytes' % queue).stdout.strip())
        attached.detach()
        attached = self.instance.attach(volume, self.n1)
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached))
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertEqual([], observe.volume_lvs(self.n2))

    def assert_udev_leaves_alone(self):
        """Nothing probes the handle, the clone, and what both are made of."""
        probed = self.n2.run(
            'for each in /dev/mapper/localclone-* /dev/cinder-volumes/volume-*'
            ' $(ls -d /sys/class/iscsi_session/*/device/target*/*/block/*);'
            ' do udevadm info -q property -n $each 2>/dev/null || udevadm '
            'info -q property -p $each; done').stdout
        self.assertEqual(4, probed.count('DM_UDEV_DISABLE_OTHER_RULES_FLAG=1'),
                         probed)
        self.assertIn('LOCALCLONE_SOURCE=1', probed)
        self.assertNotIn('ID_FS', probed)

    def test_services_killed_while_moving_at_length(self):
        volume, attached, expected = self.moving_volume()
        writer = attached.start_writing()
        for node in (self.n2, self.n1):
            self.assertIsNotNone(observe.clone_progress(self.n2))
            self.restart(node, 'kill')
            self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assert_moved(volume, attached, expected)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))

    def test_destination_loses_power_while_moving_at_length(self):
        volume, attached, expected = self.moving_volume()
        writer = attached.start_writing()
        time.sleep(5)
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.n2.power_cut()
        self.brake()
        self.n2.power_on()
        self.restart(self.n2, 'start')
        process.wait_for('the handle', lambda: not self.n2.run(
            'test -b ' + attached.path, check=False).returncode, 60)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assert_moved(volume, attached, expected)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))

    def test_source_loses_power_while_moving_at_length(self):
        volume, attached, expected = self.moving_volume()
        writer = attached.start_writing()
        time.sleep(3)
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.n1.power_cut()
        time.sleep(5)
        self.n1.power_on()
        self.restart(self.n1, 'start')
        self.assertTrue(writer.running)
        self.assert_moved(volume, attached, expected)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))

    def test_deleted_while_moving(self):
        volume, attached, _expected = self.moving_volume()
        record, = observe.move_records(self.lab)
        self.force_detach(attached)
        instances.wait_status(self.demo, volume, 'available')
        self.assertEqual([record], observe.move_records(self.lab))
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.demo.delete('/volumes/' + volume).raise_for_status()
        process.wait_for('both nodes to be clean', lambda: not (
            observe.move_records(self.lab) or observe.volume_lvs(self.n1)
            or observe.volume_lvs(self.n2)), 90)
        for node in (self.n1, self.n2):
            self.assertEqual([], observe.leftovers(node, volume))

    def test_host_without_the_backend_gets_it_remotely(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        connector = dict(self.instance.connector(self.n2),
                         host='elsewhere', ip='192.0.2.99')
        attached = self.instance.attach(volume, self.n2, connector)
        self.assertEqual('iscsi', attached.data['driver_volume_type'])
        self.assertEqual(expected, self.checksum(attached))
        self.assertEqual([], observe.move_records(self.lab))
        attached.detach()
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertNotIn(volume, self.n1.run(
            'ls /sys/kernel/config/target/iscsi').stdout)
