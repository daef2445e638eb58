# SPDX-License-Identifier: Apache-2.0
"""Volumes that are extended: at rest, while they are copied, in use."""

from lab.core import instance as instances
from lab.core import observe
from tests.functional import base

GIB = 1 << 30


class ExtendTest(base.LabTest):

    def size(self, attached):
        return int(attached.node.run(
            'blockdev --getsize64 ' + attached.path).stdout)

    def tail(self, attached, mib=4):
        """The checksum of what a volume of 2 GiB ends with."""
        return instances.checksum(attached.node, attached.path, mib,
                                  first_mib=2048 - mib)

    def zeros(self, mib=4):
        return instances.checksum_of_zeros(mib)

    def write_seam(self, attached):
        """Write to both sides of where the volume ended; the checksum."""
        attached.node.run(
            'dd if=/dev/urandom of=%s bs=1M seek=1022 count=4 oflag=direct '
            'conv=fsync status=none' % attached.path)
        return self.seam(attached)

    def seam(self, attached):
        return instances.checksum(attached.node, attached.path, 4,
                                  first_mib=1022)

    def segments(self, node, volume):
        return [line.split()[2] for line in node.run(
            'dmsetup table localclone-' + volume).stdout.splitlines()]

    def test_at_rest_at_length(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        self.extend(volume)
        attached = self.instance.attach(volume, self.n1)
        self.assertEqual(2 * GIB, self.size(attached))
        self.assertEqual(expected, self.checksum(attached))
        self.assertEqual(self.zeros(), self.tail(attached))
        attached.detach()
        # What was extended moves as a whole.
        attached = self.instance.attach(volume, self.n2)
        seam = self.write_seam(attached)
        self.assert_moved(volume, attached, expected)
        self.assertEqual(seam, self.seam(attached))
        self.assertEqual(2 * GIB, self.size(attached))
        # In use: whoever has it open goes on, and finds it longer.
        writer = attached.start_writing()
        self.extend(volume, 3, 'in-use')
        self.assertEqual(3 * GIB, self.size(attached))
        self.assertTrue(writer.running)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertEqual(seam, self.seam(attached))

    def test_while_it_is_copied(self):
        volume, attached, expected = self.moving_volume()
        attached.detach()
        self.extend(volume)
        self.assertEqual(['linear', 'linear'], self.segments(self.n2, volume))
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(2 * GIB, self.size(attached))
        self.assertEqual(self.zeros(), self.tail(attached))
        seam = self.write_seam(attached)
        # The clone keeps its length through a restart from local facts.
        attached.detach()
        self.n2.power_cut()
        self.n2.power_on()
        self.restart(self.n2, 'start')
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(1, len(observe.move_records(self.lab)),
                         'copied already')
        self.assertEqual(seam, self.seam(attached))
        self.assert_moved(volume, attached, expected)
        self.assertEqual(['linear'], self.segments(self.n2, volume))
        self.assertEqual(seam, self.seam(attached))
        self.assertEqual(2 * GIB, self.size(attached))
