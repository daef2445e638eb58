# SPDX-License-Identifier: Apache-2.0
"""A volume that the driver encrypts, and its attachments."""

from cinder_localclone.core import names
from cinder_localclone.core import state
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import deferred_case
from tests.world import crypt

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C
RECORDED = crypt.recorded('k')


def boot_of_old_home(test, guest, old, new):
    """It opens what is passed through there, by the key that it has kept.

    Its power fails while the copy ends; neither the new home nor the key
    manager can be reached when it boots.
    """
    old.dead = True
    for _look in range(3):
        new.reconciler.reconcile_node()
        new.hydrate()
    left, = guest.world.move_records.values()
    test.assertIs(state.Phase.RELEASING, left.phase)
    old.stop(power=True)
    guest.node = None
    guest.world.secrets.state = crypt.AWAY
    old.dead = False
    old.reconciler.reconcile_node()
    test.assertIn(names.crypt(guest.id), old.devices)


class Case(attach_case.Base):
    """A volume that the driver encrypts, at rest at A."""

    def setUp(self):
        super().setUp()
        del self.world.volumes[self.volume.id], self.a.devices[self.handle]
        self.a.disk.remove(self.volume.name)
        self.volume = self.world.create_volume(
            A, provider_id=crypt.recorded('k'))
        self.key = crypt.encrypt(self.world, self.volume)
        self.handle = names.handle(self.volume.id)
        self.attach('reserved', None)
        self.crypt = names.crypt(self.volume.id)

    def tags(self, node=None):
        return (node or self.a).disk.tags[self.volume.name]

    def attach_remotely(self, status='in-use'):
        """A guest on B has it, which stays at home at A."""
        self.volume.group_id = 'g'
        connector = dict(attach_case.ON_B, initiator='iqn.x')
        found = self.connect(connector)
        self.attach(status, 'b')
        self.volume.volume_attachment[0].connector = connector
        self.volume.volume_attachment[0].connection_info = dict(
            found['data'], driver_volume_type='local')

    def delete(self, node):
        self.volume.status = 'deleting'
        self.world.going.add(self.volume.id)
        callers.delete(node.node, self.volume)
