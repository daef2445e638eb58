# SPDX-License-Identifier: Apache-2.0
"""Snapshots on the simulated world, stopped at any moment."""

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.volumes import snapshots
from tests.helpers import move_case
from tests import world as worlds

A, B, C = 'a@l', 'b@l', 'c@l'


class Base(move_case.Base):
    """Two nodes with thin volumes, of which A has one."""

    @staticmethod
    def begin(**how):
        world, volume, expected = move_case.Base.begin(**how)
        world.pool = 'pool'
        return world, volume, expected

    @staticmethod
    def take(world, volume, host=A):
        """Cinder has a node take a snapshot; its id and what it has.

        :raises Exception: what the driver does; the row is in error then
        """
        snapshot = world.snapshot_row(volume)
        node = world.nodes[host]
        try:
            snapshots.create(node.reconciler, snapshot, volume.id, 0)
        except (exceptions.LocalCloneError, worlds.Stopped):
            world.set_snapshot(snapshot, status='error')
            raise
        world.set_snapshot(snapshot, status='available')
        return snapshot

    @staticmethod
    def drop(world, snapshot, host):
        """Cinder has a node delete a snapshot, again if it has died."""
        world.set_snapshot(snapshot, status='deleting')
        for _attempt in range(4):
            try:
                snapshots.delete(world.nodes[host].node, snapshot)
            except worlds.Stopped:
                world.recover()
            else:
                break
        world.set_snapshot(snapshot, deleted=True)

    @staticmethod
    def content(world, snapshot):
        node = world.nodes[world.snapshots[snapshot].node]
        return list(node.lvs[names.snapshot_lv(snapshot)])

    def check_all(self, world):
        """Every LV has its row, every row its LV; nothing else is left."""
        self.assertEqual({}, world.move_records)
        wanted = {(volume.host.partition('#')[0], volume.name)
                  for volume in world.volumes.values()}
        wanted |= {(each.node, each.lv) for each in world.snapshots.values()
                   if not each.deleted}
        self.assertEqual(wanted, {(node.host, lv) for node in
                                  world.nodes.values() for lv in node.lvs})
        for node in world.nodes.values():
            self.assertEqual([{}, {}, set()], [
                node.exports, node.sessions, node.remote])
            self.assertEqual({
                names.handle(volume.id): volume.name
                for volume in world.volumes.values()
                if world.home(volume) is node}, {
                name: device['below']
                for name, device in node.devices.items()})
            self.assertFalse([lv for lv, tags in node.disk.tags.items()
                              if names.UNCOMMITTED in tags])
