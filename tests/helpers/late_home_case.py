# SPDX-License-Identifier: Apache-2.0
"""Nodes that get other names or are lost, and homes that were written late.

``cinder-manage volume update_host`` writes the new name of a node into the
rows, and not into the records of moves.
"""

from tests.helpers import callers
from tests.helpers import ended_move_case
from tests import world as worlds

A, B, C, D, NEW = 'a@l', 'b@l', 'c@l', 'd@l', 'new@l'
#: What a simulated node keeps if it gets another name.
KERNEL = ('disk', 'devices', 'exports', 'sessions', 'opened', 'backing',
          'remote', 'remotes')


class Base(ended_move_case.Base):

    def setUp(self):
        super().setUp()
        self.make_world()

    def make_world(self, others=()):
        self.world = worlds.World(hosts=(A, B, C, D, NEW, *others))
        self.volume = self.world.create_volume(A)
        self.a, self.b, self.new = (
            self.world.nodes[each] for each in (A, B, NEW))
        self.new.gone = self.new.dead = True

    def move(self):
        return self.a.node.moves.move_of(self.volume.id)

    def copy(self):
        self.a.move(self.volume, B)
        self.b.reconciler.reconcile(self.volume.id)
        self.b.write(self.volume.id, 1, 'new')
        self.volume.status = 'available'

    def copy_all(self):
        """The source has yet to clean up."""
        self.copy()
        self.b.hydrate()
        self.a.gone = True
        self.b.reconciler.reconcile(self.volume.id)

    def finish(self):
        self.copy()
        self.b.hydrate()
        self.world.settle()
        self.assertEqual({}, self.world.move_records)

    def write_late(self):
        """A former home; the service of the home was removed."""
        self.volume.host = A + '#p'
        self.volume.service_uuid = 'that of the removed service'

    def rename(self):
        """B gets another name after a home was written late."""
        self.write_late()
        self.update_host()
        self.start()

    def update_host(self, old=B, new=NEW, forgotten=True):
        """The service is stopped, the rows are changed."""
        node = self.world.nodes[old]
        node.stop(power=False)
        node.gone = node.dead = True
        for each in (self.volume, *self.world.record_rows.values()):
            each.host = each.host.replace(old, new)
        if forgotten:
            self.world.forgotten.add(old)
        self.kept = {each: getattr(node, each) for each in KERNEL}

    def start(self, name=NEW):
        """The same kernel and disk, by the new name."""
        node = self.world.nodes[name]
        for each in KERNEL:
            setattr(node, each, self.kept[each])
        node.gone = node.dead = False
        self.world.forgotten.discard(name)

    def start_another(self):
        """Another machine has the old name."""
        for each in KERNEL:
            setattr(self.b, each, getattr(self.world.nodes[D], each))
        self.b.gone = self.b.dead = False
        self.world.forgotten.discard(B)

    def home(self):
        return self.a.node.volumes.volume(self.volume.id).home

    def plan(self, host, has_lv=callers.has_lv):
        return callers.plan_to_forget(self.world, host, C, has_lv)

    def forget(self, host, new_home=C):
        callers.take(callers.plan_to_forget(self.world, host, new_home))

    def take(self, steps):
        """Take the steps as the command does; return the errors."""
        failed = []
        for step in steps:
            try:
                callers.take([step])
            except Exception as exc:
                failed.append(exc)
        return failed
