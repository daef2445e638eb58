# SPDX-License-Identifier: Apache-2.0
"""Volumes are attached remotely while they can't move, and move then."""

from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from tests.functional import base


class Base(base.LabTest):
    """A volume is copied from node1 to node2, and wanted elsewhere."""

    def remotes(self, node):
        """Whether a node has the handle on a disk that is imported."""
        return 'linear 8:' in node.run(
            'dmsetup table | grep "^localclone-[0-9a-f]*-" || true').stdout

    def is_remote(self, volume, back, expected):
        self.assertEqual('local', back.data['driver_volume_type'])
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertTrue(self.remotes(back.node))
        self.assertIsNotNone(observe.clone_progress(self.n2))
        self.assertEqual(expected, self.checksum(back))

    def is_deferred(self, volume, back, expected, *writers):
        """It does, under whoever writes, and nothing is lost or left."""
        self.brake()
        process.wait_for(
            'the volume to follow',
            lambda: instances.home(self.lab, volume) == back.node.name, 180)
        observe.wait_moved(self.lab, volume)
        for writer in writers:
            if writer.running:
                back.stop_writing(writer)
            self.assertIn(' 0 bad', back.verify(writer.stdout))
        self.assertEqual(expected, self.checksum(back))
        self.assertFalse(self.remotes(back.node))
        for node in self.lab.nodes.values():
            here = node is back.node
            self.assertEqual([], observe.leftovers(
                node, None if here else volume))
            self.assertEqual(int(here), len(observe.volume_lvs(node)))
        secrets = observe.sql(
            self.lab, "SELECT COUNT(*) FROM volume_attachment WHERE "
            "deleted = 0 AND connection_info LIKE '%auth_password%'")
        self.assertEqual([('0',)], [tuple(map(str, row)) for row in secrets])


class DeferredMoveTest(Base):
    """Wanted where it came from."""

    def test_attached_where_it_came_from_at_length(self):
        volume, there, expected = self.moving_volume()
        there.detach()
        back = self.instance.attach(volume, self.n1)
        self.is_remote(volume, back, expected)
        writer = back.start_writing()
        self.is_deferred(volume, back, expected, writer)
        back.detach()

    def test_live_migrated_back_at_length(self):
        volume, there, expected = self.moving_volume()
        before = there.start_writing(first_mib=40, length_mib=80)
        back = self.instance.attach(volume, self.n1, live=True)
        self.assertTrue(before.running)
        there.stop_writing(before)
        self.is_remote(volume, back, expected)
        self.assertIn(' 0 bad', back.verify(before.stdout))
        writer = back.start_writing()
        there.detach('in-use')
        self.is_deferred(volume, back, expected, before, writer)
        back.detach()

    def test_both_nodes_lose_power_at_length(self):
        volume, there, expected = self.moving_volume()
        there.detach()
        back = self.instance.attach(volume, self.n1)
        writer = back.start_writing()
        process.wait_for('writes', lambda: len(writer.stdout) > 400, 60)
        for node in (self.n1, self.n2):
            node.power_cut()
        for node in (self.n2, self.n1):
            node.power_on()
            self.restart(node, 'start')
        process.wait_for('the handle', lambda: self.n1.run(
            'test -b ' + back.path, check=False).returncode == 0, 90)
        self.brake()
        self.assertIn(' 0 bad', back.verify(writer.stdout))
        self.is_deferred(volume, back, expected, writer)
        back.detach()

    def test_given_up_by_a_detach_at_length(self):
        volume, there, expected = self.moving_volume()
        there.detach()
        back = self.instance.attach(volume, self.n1)
        back.detach()
        self.assertFalse(self.remotes(self.n1))
        again = self.instance.attach(volume, self.n2)
        self.assert_moved(volume, again, expected)
        again.detach()


class ThirdNodeTest(Base):
    """Wanted on a third node."""

    lab_name = 'three'
    nodes = 3

    def test_live_migrated_on(self):
        volume, there, expected = self.moving_volume()
        before = there.start_writing(first_mib=40, length_mib=80)
        on = self.instance.attach(volume, self.lab.nodes['node3'], live=True)
        there.stop_writing(before)
        self.is_remote(volume, on, expected)
        writer = on.start_writing()
        there.detach('in-use')
        self.is_deferred(volume, on, expected, before, writer)
        on.detach()
