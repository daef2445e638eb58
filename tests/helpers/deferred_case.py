# SPDX-License-Identifier: Apache-2.0
"""Deferred moves: a guest whose volume is attached remotely, then moves."""

import contextlib
from unittest import mock

import fixtures
from oslo_utils import uuidutils

from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from cinder_localclone.volumes import connect
from tests.helpers import move_case
from tests.helpers import storage_parts
from tests import world as worlds
from tests.world import crypt
from tests.world import disks
from tests.world import images

A, B, C = 'a@l', 'b@l', 'c@l'
WAYS = ('third', 'live', 'returned', 'back', 'aborted', 'onward', 'detached')


class Guest:
    """An instance that writes, and what Nova and Cinder do around it.

    Its volume is on its way from A to B.

    :param signal: whether Cinder's detach calls reach the driver
    :param holes: of a thin volume; regions
    :param more: what the volume's row says besides
    """

    def __init__(self, stop_at=(), faults=('cut',), signal=True, holes=(),
                 **more):
        self.world = worlds.World(faults=faults, hosts=(A, B, C))
        self.world.pool = 'pool' if holes else None
        self.nodes = self.world.nodes
        self.signal = signal
        self.volume = self.world.create_volume(A, holes, **more)
        self.id = self.volume.id
        self.handle = names.handle(self.id)
        self.encrypted = bool(self.volume.encryption_key_id)
        self.decrypted = bool(self.volume.provider_id)
        if self.decrypted:
            crypt.encrypt(self.world, self.volume)
            for each in self.nodes.values():
                each.disk.sealed = {}  # it keeps keys
        #: What QEMU opens.
        self.top = names.guard(self.id) if self.encrypted else (
            names.crypt(self.id) if self.decrypted else self.handle)
        self.expected = list(self.nodes[A].lvs[self.volume.name])
        self.volume.volume_attachment = []
        self.node = None
        self.count = 0
        self.attach(B)
        self.write()
        self.world.moment, self.world.stop_at = 0, stop_at

    def attachment(self, host=None):
        return images.attachment(
            id=uuidutils.generate_uuid(), instance_uuid='vm',
            connection_info={}, mountpoint=None,
            attach_status='attached' if host else 'reserved', connector=None)

    def attach(self, host, runs=True):
        """Attach to a node; a live migration if it is attached already.

        :param runs: whether the guest comes to run there
        """
        for _attempt in range(4):
            new = self.attachment()
            before = list(self.volume.volume_attachment)
            self.volume.status = 'in-use' if before else 'reserved'
            self.volume.volume_attachment = before + [new]
            try:
                self._connect(host, new)
            except (exceptions.LocalCloneError, worlds.Stopped, IOError):
                self.volume.volume_attachment = before
                self.volume.status = 'in-use' if before else 'available'
                self.revive()
                self.world.settle()
                continue
            self.volume.status = 'in-use'
            if runs:
                self._run_on(host)
            return
        raise AssertionError('never attached')

    def _connect(self, host, new):
        connector = {'host': host[0], 'initiator': 'iqn.' + host[0]}
        properties = self.world.home(self.volume).connect(
            self.volume, connector)
        assert properties['driver_volume_type'] == 'local'
        assert properties['data']['device_path'] == (
            '/dev/localclone/' + self.id if self.encrypted
            else '/dev/mapper/' + self.top)
        assert properties['data'].get('encrypted', True) != self.decrypted
        # Before anybody looks at it.
        assert self.top in self.nodes[host].devices
        self.nodes[host].check_alive()
        if self.encrypted:
            # Whatever it was that could not be read just then.
            worlds.Nova(self.nodes[host], self.id).connect(unreadable=True)
        new.connector, new.attach_status = connector, 'attached'
        new.connection_info = dict(properties['data'],
                                   driver_volume_type='local')

    def _run_on(self, host):
        """The guest goes on there."""
        if self.node:
            self.node.opened.discard(self.top)
        self.node = self.nodes[host]
        self.revive()

    def detach(self, host):
        leaving, = [each for each in self.volume.volume_attachment
                    if each.connector['host'] == host[0]]
        if self.node is self.nodes[host]:
            self.node.opened.discard(self.top)
            self.node = None
        self.revive()
        if self.signal:
            try:
                self.world.home(self.volume).disconnect(
                    self.volume, leaving.connector)
            except (exceptions.LocalCloneError, worlds.Stopped):
                pass
        self.volume.volume_attachment.remove(leaving)
        if not self.volume.volume_attachment:
            self.volume.status = 'available'

    def revive(self):
        if self.world.stopped():
            self.world.recover()
        if self.node and self.top not in self.node.devices:
            # What it is passed through to came back after this node's look.
            self.world.reconcile()
        if self.node:
            self.node.opened.add(self.top)

    def write(self):
        """The next region; what a node that stopped had open is back."""
        self.revive()
        self.count += 1
        region = self.count % worlds.REGIONS
        if self.encrypted and region == 0:
            return  # QEMU does not write the header
        value = 'written %d' % self.count
        self.node.write(self.id, region, value)
        self.expected[region] = value
        self.read()

    def read(self):
        for region, value in enumerate(self.expected):
            found = self.node.read(self.id, region)
            self.world.insist(found == value, 'region %d is %s, not %s',
                              region, found, value)

    def live_on(self, rounds=8):
        """The nodes look, the kernels copy, and the guest writes."""
        for _round in range(rounds):
            before = repr(self.world.snapshot())
            self.world.reconcile()
            if self.node:
                self.write()
            for node in self.nodes.values():
                node.hydrate()
            if _round > 2 and repr(self.world.snapshot()) == before:
                return

    def check_at(self, host, test):
        """All that is left of the volume is on one node."""
        for _round in range(2):
            self.revive()
            for node in self.nodes.values():
                node.exported.clear()  # ten minutes later
            self.world.settle()
        self.revive()
        here = self.nodes[host]
        test.assertIs(here, self.world.home(self.volume))
        test.assertEqual(self.expected, here.lvs[self.volume.name])
        size = self.volume.backing_bytes()
        devices = {self.handle: disks.sized(
            {'below': self.volume.name}, size)}
        links = {}
        if self.encrypted and self.volume.volume_attachment:
            devices[self.top] = disks.sized({'below': self.handle}, size)
            links[self.id] = self.top
        if self.decrypted and self.volume.volume_attachment:
            devices[self.top] = disks.sized(
                {'below': self.handle}, self.volume.size << 30)
        test.assertEqual(devices, here.devices)
        test.assertEqual(
            bool(self.decrypted and self.volume.volume_attachment),
            names.OPENED in here.disk.tags[self.volume.name])
        test.assertEqual(links, here.links)
        test.assertEqual({}, self.world.move_records)
        for node in self.nodes.values():
            test.assertEqual([{}, {}, {}, set(), {}], [
                node.exports, node.sessions, node.remotes, node.remote,
                node.disk.remotes])
            test.assertLessEqual(
                {*(node.disk.sealed or ())}, {self.id} if (
                    node is here and self.volume.volume_attachment)
                else set())
            if node is not here:
                test.assertEqual([{}, {}, {}], [
                    node.lvs, node.devices, node.links])
        for each in self.volume.volume_attachment:
            test.assertNotIn('auth_password', each.connection_info)


class Case(move_case.Base):
    """The ways that a guest goes."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(remote_attachment,
                                                 'DEFERRED_RETRY', -1))
        self.useFixture(fixtures.MockPatchObject(connect, 'CLOSING', -1))

    def cut_while_deferred(self, guest, at, last):
        """The volume follows from B to A, and the power of A fails.

        :param at: the name of a method of A's storage, in which it fails
        :param last: what is done instead of that call, before
        """
        here, before = guest.nodes[A], guest.nodes[B]

        def fail(this, *args):
            last(this, *args)
            here.stop(power=True)
            raise worlds.Stopped(here)
        guest.detach(B)
        guest.attach(A)
        with mock.patch.object(storage_parts.simulated(at), at, fail):
            for _look in range(12):
                with contextlib.suppress(worlds.Stopped):
                    before.reconciler.reconcile_node()
                    here.reconciler.reconcile_node()
                    before.hydrate()
                if here.dead:
                    break
        self.assertTrue(here.dead)
        self.assertIs(here, guest.world.home(guest.volume))
        guest.node, here.dead = None, False

    def cut_at(self, node, room, name):
        """A node's power fails when its looks come to a call; it is back.

        :param room: of the simulated world
        """
        def fail(*_which):
            node.stop(power=True)
            raise worlds.Stopped(node)
        with mock.patch.object(room, name, fail):
            for _look in range(12):
                with contextlib.suppress(worlds.Stopped):
                    node.reconciler.reconcile_node()
                    node.hydrate()
                if node.dead:
                    break
        self.assertTrue(node.dead)
        node.dead = False

    def third(self, guest, host=C):
        """Detached and attached elsewhere, while it is being copied."""
        guest.detach(B)
        guest.attach(host)
        guest.write()
        guest.live_on()
        return host

    def live(self, guest, host=C):
        """Live-migrated, while it is being copied."""
        guest.attach(host)
        guest.write()
        guest.detach(B)
        guest.live_on()
        return host

    def returned(self, guest):
        """Live-migrated back to where it is being copied from."""
        return self.live(guest, A)

    def back(self, guest):
        """Attached where it is being copied from."""
        return self.third(guest, A)

    def aborted(self, guest):
        """A live migration that does not come to its end."""
        guest.attach(C, runs=False)
        guest.write()
        guest.detach(C)
        guest.live_on()
        return B

    def onward(self, guest):
        """Live-migrated on, from where it is passed through, and home."""
        guest.attach(C)
        guest.detach(B)
        guest.write()
        guest.attach(B)
        guest.write()
        guest.detach(C)
        guest.live_on()
        return B

    def detached(self, guest):
        """Detached again, as it is about to follow."""
        guest.detach(B)
        guest.attach(C)
        guest.live_on(2)
        guest.detach(C)
        guest.live_on(4)
        guest.revive()
        guest.world.settle()
        return guest.volume.host.partition('#')[0]


def unreachable(act=lambda: None):
    """Have the source of a move be away whenever its copy is rebuilt."""
    def rebuild(*_which):
        act()
        raise exceptions.SourceUnreachable(portal='p', reason='r')
    return mock.patch.object(destination, 'rebuild', rebuild)


class Deferred(Case):
    """A volume follows its instance."""

    def follow(self, **more):
        """From B to C: committed, and its handle is still on B's disk."""
        guest = Guest(**more)
        guest.detach(B)
        guest.attach(C)
        guest.write()
        home = guest.nodes[B]
        for _look in range(12):
            home.reconciler.reconcile_node()
            home.hydrate()
            move = home.node.moves.move_of(guest.id)
            if move and move.source == B and move.committed:
                return guest, home, move
        raise AssertionError('it does not follow')

    @staticmethod
    def cut(home):
        home.stop(power=True)
        home.dead = False

    @staticmethod
    def failing(name):
        return mock.patch.object(
            storage_parts.simulated(name), name,
            side_effect=exceptions.CommandFailed(
                command='dmsetup', code=1, stderr='busy'))
