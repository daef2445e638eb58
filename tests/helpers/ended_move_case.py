# SPDX-License-Identifier: Apache-2.0
"""Moves that have ended but for their clean-up."""


from oslo_utils import uuidutils

from cinder_localclone.core import exceptions
from tests.helpers import move_case
from tests import world as worlds
from tests.world import images

A, B, C = move_case.A, move_case.B, 'c@l'


def attachment(host):
    return images.attachment(
        id=uuidutils.generate_uuid(), instance_uuid='vm',
        connector={'host': host} if host else None, connection_info=None)


class Base(move_case.Base):

    def begin(self, **how):
        return super().begin(hosts=(A, B, C), **how)

    @staticmethod
    def lose(node):
        """A node loses power and does not come back, as far as one knows."""
        node.gone = True
        node.stop(power=True)

    @staticmethod
    def bring_back(world):
        for node in world.nodes.values():
            node.gone = False
        world.settle()
        world.settle()

    def fail_to_prepare(self, world, volume, target=B):
        """The destination is gone once it has built its part of a move."""
        lost = world.nodes[target]
        handles = lost.node.handles._inner
        read_head = handles.read_head

        def dies(volume_id):
            handles.read_head = read_head
            self.lose(lost)
            raise worlds.Stopped(lost)
        handles.read_head = dies
        self.assertRaises(exceptions.PeerUnreachable,
                          world.home(volume).move, volume, target)

    def complete(self, world, volume, source=A, target=B):
        """A move to its end, but for its source, which is gone."""
        world.nodes[source].move(volume, target)
        node = world.nodes[target]
        node.reconciler.reconcile(volume.id)
        node.hydrate()
        node.reconciler.reconcile(volume.id)
        self.lose(world.nodes[source])

    @staticmethod
    def move(world, volume):
        return world.nodes[A].node.moves._inner.move_of(volume.id)

    @staticmethod
    def pending(world, volume):
        return world.nodes[A].node.moves._inner.pending_cleanups(volume.id)

    def attach(self, world, volume, host, live=False):
        """Nova attaches, asked for again if a node stops, and writes."""
        for _attempt in range(3):
            home = world.home(volume)
            if home.host == host:
                break
            volume.status = 'in-use' if live else 'reserved'
            volume.volume_attachment = [attachment(None)]
            if live:
                volume.volume_attachment.append(attachment(home.host))
            try:
                home.connect(
                    volume, {'host': host[0], 'initiator': 'i'})
            except (exceptions.LocalCloneError, worlds.Stopped):
                world.recover()
        self.assertEqual(host, world.home(volume).host)
        volume.volume_attachment = [attachment(host)]
        world.recover()

    def write(self, world, volume, expected, region, value):
        home = world.home(volume)
        home.write(volume.id, region, value)
        expected[region] = value
        self.verify(world, volume, expected)

    def verify(self, world, volume, expected):
        home = world.home(volume)
        self.assertEqual(expected, [
            home.read(volume.id, region) for region in range(len(expected))])
