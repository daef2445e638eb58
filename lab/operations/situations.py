# SPDX-License-Identifier: Apache-2.0
"""How a volume comes into a situation, and out of it.

node1 is where all volumes begin, node2 where they move to, node3 another one.
A round brings several volumes into their situations side by side; if a node
has to be down, or Cinder misled, that begins when all are there. When all was
asked for, it ends, and everything comes to its own end.
"""

from lab.core import observe
from lab.core import process
from lab.operations import stale
from lab.scenarios import disk as disks
from lab.scenarios import requests
from lab.scenarios import snapshot as snapshots

#: MiBs that are copied while a volume hydrates, and on which link: that takes
#: some minutes. Fewer, if all of the volume is to be read meanwhile.
OCCUPIED, READ = 128, 24
SLOW = '10mbit'
#: MiB that are written over after the snapshot was taken, and where else as
#: many are written then.
OVER, LATER = 1, 16


class Situation:
    """One volume in it. Nodes as they are called by its operations.

    :param disk: the volume
    :param chain: a :class:`.plan.Chain`: what is done with it
    """

    #: Whether it has something that takes long to be copied.
    slow = False
    moves = True
    #: Whether something of the whole lab begins when all are in it.
    all_at_once = False
    #: Whether a snapshot is taken before it moves.
    snapshot_first = True

    def __init__(self, environment, chain, disk):
        self.environment = environment
        self.lab = environment.lab
        self.chain = chain
        self.disk = disk
        #: That of the volume, a :class:`lab.scenarios.snapshot.Snapshot`.
        self.snapshot = None
        first, second, third = environment.nodes.values()
        self.first = first
        self.home = second if self.moves else first
        self.came_from = first if self.moves else None
        self.another = third if self.moves else second
        #: Where the guest is that has it, in situations of those in use.
        self.guest_at = self.home

    # -- into it

    def prepare(self, is_read):
        """Bring it about, but for what is true of the whole lab.

        :param is_read: whether all of it will be read
        """
        if self.slow:
            self.disk.occupied = READ if is_read else OCCUPIED
        self.disk.fill(self.first)
        if self.snapshot_first:
            self.take_snapshot(self.first)
        self.move()
        if not self.snapshot_first:
            self.take_snapshot(self.home)
        if self.chain.in_use:
            self.begin_use()

    def take_snapshot(self, node):
        """The snapshot of those that have one."""
        if self.chain.snapshot:
            self.snapshot = snapshots.Snapshot(self.disk)
            self.snapshot.node = node
            self.snapshot.do(90)
            # What the snapshot must not have.
            self.disk.fill(node, 0, OVER)
            self.disk.fill(node, LATER, OVER)

    def move(self):
        """To its home."""
        if self.moves:
            self.attach(self.home)
            self.disk.detach(self.home)
            observe.wait_moved(self.lab, self.disk.volume, 120)

    def begin_use(self):
        """A guest has it at its home, and writes."""
        self.attach(self.home)
        self.disk.start(self.home)

    def attach(self, node, live=False):
        """Attach; what a slow machine lets fail is asked for again."""
        requests.until('the attach of ' + self.disk.volume,
                       lambda: self.disk.try_attach(node, live))

    def check(self):
        """:raises LabError: if it is not in this situation (any more)"""
        if self.disk.is_moving() or (
                self.disk.home() != self.home.name):
            raise process.LabError('it is not at rest at ' + self.home.name)

    # -- what is true of the whole lab

    @classmethod
    def slow_down(cls, environment):
        """Before volumes are brought into it."""

    @classmethod
    def begin(cls, environment):
        """When all are in it."""

    @classmethod
    def end(cls, environment):
        """When all was asked for."""

    def let_go(self):
        """Before that: nobody need wait for what nobody has asked for."""

    def leave(self):
        """Out of it: what this volume needs for that."""


class AtRest(Situation):
    moves = False


class AfterMove(Situation):
    snapshot_first = False


class SnapshotAway(Situation):
    pass


class StaleHome(Situation):

    all_at_once = True

    @classmethod
    def begin(cls, environment):
        first, second, _third = environment.nodes.values()
        stale.send(environment.lab, second, first)

    @classmethod
    def end(cls, environment):
        stale.forget(environment.lab)


class Starting(Situation):
    """The guest writes on the node that it is to leave."""

    def __init__(self, *args):
        super().__init__(*args)
        self.guest_at = self.first

    def move(self):
        disk = self.disk
        self.attach(self.first)
        disk.start(self.first)
        self.attach(self.home, live=True)

    def begin_use(self):
        """It is in use."""

    def check(self):
        if not any(volume == self.disk.volume
                   and token.startswith('lc1:starting:') for volume, token
                   in observe.move_records(self.lab)):
            raise process.LabError('no live migration of it is beginning')

    def go_over(self):
        """What QEMU and Nova do then."""
        disk = self.disk
        disk.check_running()
        disk.start(self.home)
        disk.detach(self.first, 'in-use')

    def leave(self):
        """It is given up, which takes less time."""
        if len(self.disk.attached) > 1:
            self.disk.check_running()
            self.disk.detach(self.home, 'in-use')


class Hydrating(Situation):
    slow = True

    @classmethod
    def slow_down(cls, environment):
        first, second, _third = environment.nodes.values()
        environment.brake(first, SLOW, second)

    @classmethod
    def end(cls, environment):
        environment.brake(environment.nodes['node1'])

    def move(self):
        self.attach(self.home)
        self.disk.fill(self.home, disks.FRESH, 1)
        self.disk.detach(self.home)

    def check(self):
        if not any(volume == self.disk.volume
                   and token.startswith('lc1:migrating:') for volume, token
                   in observe.move_records(self.lab)):
            raise process.LabError('it is not being copied (any more)')
        if self.disk.home() != self.home.name:
            raise process.LabError('its home is not ' + self.home.name)


class RemotelyAttached(Hydrating):

    def __init__(self, *args):
        super().__init__(*args)
        self.guest_at = self.another

    def begin_use(self):
        self.attach(self.another)
        self.disk.start(self.another)

    def let_go(self):
        """It would follow: that is seen of those that were migrated."""
        if self.another.name in self.disk.attached:
            self.disk.check_running()
            self.disk.stop()
            self.disk.detach(self.another)


class Unreachable(Hydrating):
    """What was not copied when its source went down can't be read."""

    all_at_once = True

    @classmethod
    def begin(cls, environment):
        node = environment.nodes['node1']
        node.power_cut()
        environment.expire(node)

    @classmethod
    def end(cls, environment):
        node = environment.nodes['node1']
        environment.power_on(node)
        node.wait_service()
        environment.lab.wait_for_services()

    def check(self):
        super().check()
        self.disk.local_only = True

    def leave(self):
        self.disk.local_only = False


class SnapshotDown(Situation):
    """The node goes down, and comes back, with that of the others."""

    all_at_once = True
    begin = Unreachable.begin
    end = Unreachable.end


SITUATIONS = {
    'at rest': AtRest, 'after a move': AfterMove, 'starting': Starting,
    'hydrating': Hydrating, 'remote': RemotelyAttached,
    'unreachable': Unreachable, 'snapshot away': SnapshotAway,
    'snapshot down': SnapshotDown, 'stale home': StaleHome}


def together(environment, places, what):
    """Begin or end what is true of the whole lab, once.

    :param what: 'begin' or 'end'
    """
    done = set()
    for place in places:
        act = getattr(type(place), what)
        if act.__func__ not in done:
            done.add(act.__func__)
            act(environment)
