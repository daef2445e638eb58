# SPDX-License-Identifier: Apache-2.0
"""A volume that moves, or has moved, to be reconciled."""


import fixtures

from cinder_localclone.core import names
from tests.helpers import reconcile_case
from tests import world as worlds
from tests.world import images

A, B = reconcile_case.A, reconcile_case.B


class Base(reconcile_case.Base):

    def setUp(self):
        super().setUp()
        self.told = []
        self.useFixture(fixtures.MockPatchObject(
            worlds.SimPeers, 'reconcile_soon',
            lambda peers, host, volume_id: self.told.append(
                (peers.node.host, host, volume_id))))

    def reconcile(self, node):
        """By itself, so that no error is only logged."""
        node.reconciler.reconcile(self.volume_id)

    def clone(self):
        return self.b.devices[names.clone(self.move().move_id)]

    def live(self):
        """A live move; the guest still is at the source."""
        self.attach(A)
        self.a.opened.add(self.handle)
        self.a.move(self.volume, B, live=True)
        self.attach(A, B)

    def attach(self, *hosts):
        self.volume.volume_attachment = [images.attachment(
            connector={'host': host}, connection_info=None, mountpoint=None,
            instance_uuid='vm')
            for host in hosts]
