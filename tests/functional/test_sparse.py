# SPDX-License-Identifier: Apache-2.0
"""Thin volumes stay thin: what was never written is neither sent nor kept."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base

GROUP = 'cinder-volumes'
DUMP = '/usr/sbin/thin_dump'
POOL = 'cinder--volumes-cinder--volumes--pool-tpool'


class SparseTest(base.LabTest):

    def lv(self, node):
        """The only LV of a volume on a node."""
        lv, = observe.volume_lvs(node)
        return lv

    def written(self, node):
        """Percent of the only volume on a node that takes space in its pool.
        """
        return float(node.run('lvs --noheadings -o data_percent %s/%s' % (
            GROUP, self.lv(node))).stdout)

    def sum_of(self, node):
        """The checksum of all of the only volume on a node, at rest."""
        return instances.checksum(
            node, '/dev/%s/%s' % (GROUP, self.lv(node)), 1024)

    def write(self, attached, first, mib):
        """Random data from some MiB on."""
        attached.node.run(
            'dd if=/dev/urandom of=%s bs=1M seek=%d count=%d oflag=direct '
            'conv=notrunc,fsync status=none' % (attached.path, first, mib),
            timeout=120)

    def move(self, volume, old, new):
        """Attach elsewhere, wait for the end; it is the same, and as thin.

        :returns: attached, on its new node
        """
        before, percent = self.sum_of(old), self.written(old)
        attached = self.instance.attach(volume, new)
        observe.wait_moved(self.lab, volume)
        self.assertEqual([], observe.volume_lvs(old))
        self.assertEqual(before, self.sum_of(new))
        # A region that is written in part is copied as a whole.
        self.assertLess(abs(self.written(new) - percent), 1)
        self.assert_released(old)
        return attached

    def assert_released(self, node):
        """The pool of a node keeps no snapshot of its metadata."""
        self.assertEqual('-', node.run(
            'dmsetup status --noflush ' + POOL).stdout.split()[6])

    def test_a_tenth_was_written(self):
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        for first in (0, 300, 511, 1000):
            self.write(attached, first, 24)
        # In the middle of a region, and its neighbours' ends.
        self.write(attached, 700, 1)
        attached.node.run(
            'dd if=/dev/urandom of=%s bs=4k seek=%d count=3 oflag=direct '
            'conv=notrunc,fsync status=none' % (attached.path, 800 * 256 + 7))
        attached.detach()
        attached = self.move(volume, self.n1, self.n2)
        self.assertLess(self.written(self.n2), 12)

        # What is written in a hole is there, also beyond the next move.
        writer = attached.start_writing(first_mib=600, length_mib=50)
        self.write(attached, 400, 1)
        attached.stop_writing(writer)
        attached.detach()
        attached = self.move(volume, self.n2, self.n1)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))

        # What is trimmed becomes a hole again.
        self.n1.run('blkdiscard --force --offset %d --length %d %s' % (
            300 << 20, 24 << 20, attached.path))
        attached.detach()
        attached = self.move(volume, self.n1, self.n2)
        attached.detach()

    def test_a_guest_writes_while_it_is_copied_at_length(self):
        volume, attached, expected = self.moving_volume()
        hydrated, regions, _size = observe.clone_progress(self.n2)
        self.assertGreater(hydrated, regions // 5)
        self.assertLess(hydrated, regions)
        writer = attached.start_writing(first_mib=base.OCCUPIED - 20,
                                        length_mib=200)
        self.assert_moved(volume, attached, expected)
        attached.stop_writing(writer)
        self.assertIn(' 0 bad', attached.verify(writer.stdout))
        self.assertLess(self.written(self.n2), 50)

    def test_nothing_was_written_at_length(self):
        volume = self.volume(4)
        attached = self.move(volume, self.n1, self.n2)
        self.assertLess(self.written(self.n2), 0.1)
        self.assertEqual(0, int(attached.node.run(
            "head -c %dM %s | tr -d '\\0' | wc -c" % (64, attached.path)
        ).stdout))
        attached.detach()

    def test_cloned_of_another_at_length(self):
        """What it shares with the other is its own, as far as it goes."""
        first = self.volume()
        attached = self.instance.attach(first, self.n1)
        self.write(attached, 100, 32)
        attached.detach()
        volume = self.demo.post('/volumes', json={'volume': {
            'size': 2, 'source_volid': first}}).raise_for_status().json()[
                'volume']['id']
        instances.wait_status(self.demo, volume, 'available')
        self.demo.delete('/volumes/' + first).raise_for_status()
        process.wait_for('the first volume to go', lambda: len(
            observe.volume_lvs(self.n1)) == 1, 60)
        attached = self.instance.attach(volume, self.n1)
        self.write(attached, 1500, 8)
        attached.detach()
        attached = self.move(volume, self.n1, self.n2)
        self.assertLess(self.written(self.n2), 3)
        attached.detach()

    def test_without_its_tools_at_length(self):
        """All is copied then, and the log says so."""
        volume = self.volume()
        attached = self.instance.attach(volume, self.n1)
        expected = self.fill(attached)
        attached.detach()
        # One program by many names, of which LVM needs others.
        self.addCleanup(self.n1.run, 'umount $(readlink -f %s)' % DUMP,
                        check=False)
        self.n1.run(
            "printf '#!/bin/sh\\ncase $0 in *dump) exit 1;; esac\\n' "
            '>/tmp/no_dump; chmod +x /tmp/no_dump; '
            'mount --bind /tmp/no_dump $(readlink -f %s)' % DUMP)
        seen = len(self.n1.service_log())
        attached = self.instance.attach(volume, self.n2)
        self.assert_moved(volume, attached, expected)
        self.assertIn('Holes of volume ' + volume,
                      self.n1.service_log()[seen:])
        self.assertGreater(self.written(self.n2), 99)
        self.assert_released(self.n1)
        attached.detach()

    def test_what_a_killed_service_has_left_is_released_at_length(self):
        volume = self.volume()
        self.n1.run('dmsetup message %s 0 reserve_metadata_snap' % POOL)
        self.restart(self.n1)
        self.assert_released(self.n1)
        self.n1.run('dmsetup message %s 0 reserve_metadata_snap' % POOL)
        self.move(volume, self.n1, self.n2).detach()

    def test_under_a_guest_at_length(self):
        """A live migration, and back during the copy: it follows then.

        The guest writes in holes all the while.
        """
        volume = self.volume()
        there = self.instance.attach(volume, self.n1)
        instances.occupy(self.n1, there.path, 64)
        expected = self.checksum(there, 64)
        writer = there.start_writing(first_mib=300, length_mib=20)
        on = self.instance.attach(volume, self.n2, live=True)
        there.stop_writing(writer)
        writers = [writer, on.start_writing(first_mib=400, length_mib=20)]
        self.brake('20mbit')
        self.addCleanup(self.brake)
        there.detach('in-use')
        self.assert_left_out()
        back = self.instance.attach(volume, self.n1, live=True)
        on.stop_writing(writers[1])
        writers.append(back.start_writing(first_mib=500, length_mib=20))
        on.detach('in-use')
        self.brake()
        process.wait_for(
            'the volume to follow',
            lambda: instances.home(self.lab, volume) == 'node1', 180)
        observe.wait_moved(self.lab, volume)
        back.stop_writing(writers[2])
        for each in writers:
            self.assertIn(' 0 bad', back.verify(each.stdout))
        self.assertEqual(expected, self.checksum(back, 64))
        self.assertLess(self.written(self.n1), 15)
        self.assert_released(self.n1)
        self.assert_released(self.n2)
        back.detach()

    def assert_left_out(self):
        """Most of a copy to node2 was local when it had hardly begun."""
        def most():
            found = observe.clone_progress(self.n2)
            return found and found[0] > 0.8 * found[1]
        process.wait_for('what was never written to be left out', most, 60)
        self.assertIn('no_discard_passdown', self.n2.run(
            'dmsetup table | grep clone').stdout)
        # Neither the clone nor what is on it takes any others.
        self.assertEqual({'0'}, set(self.n2.run(
            'for d in /dev/mapper/localclone-*; do cat /sys/block/$('
            'basename $(readlink -f $d))/queue/discard_max_bytes; done'
        ).stdout.split()))
