# SPDX-License-Identifier: Apache-2.0
"""What an attach, and a look, cost: the processes that they start, in order.

Each takes up to half a second on a busy node, and somebody waits for an
attach. ``python -m tests.scenarios.test_attach_starts_few_processes`` prints
all that is asked for.
"""

import functools
import sys
from unittest import mock

import testtools

from cinder_localclone.core import names
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import copying
from cinder_localclone.volumes import uncommitted
from tests.world import images
from tests.world import machines

A, B = 'a@l', 'b@l'
KINDS = ('process', 'privileged', 'database')


class Case(testtools.TestCase):

    def world(self, thin=True):
        return self.useFixture(machines.Machines(thin))

    def moving(self, world, count=1):
        """Volumes that are being copied from A to B."""
        for _each in range(count):
            world.attach(world.create_volume(), 'b')
        world.sweep(B)

    def processes(self, asked, host):
        return [what for where, kind, what in asked
                if (where, kind) == (host, 'process')]


class AttachTest(Case):

    def attach(self, where, thin=True):
        world = self.world(thin)
        volume = world.create_volume()
        return world.count(lambda: world.attach(volume, where))

    def test_at_home(self):
        self.assertEqual(['lvs'], self.processes(self.attach('a'), A))

    def test_source(self):
        asked = self.attach('b')
        self.assertEqual([
            'sync',
            'dmsetup message', 'thin_dump', 'dmsetup message',  # holes
            'dmsetup create',  # offer
            'sync',  # still as it was
            'lvchange --addtag', 'vgs', 'sync',  # no boot gives it out
            'dmsetup remove',  # left
        ], self.processes(asked, A))

    def test_destination(self):
        asked = self.attach('b')
        self.assertEqual([
            'lvs',  # description
            'lvcreate', 'dd',  # metadata
            'lvcreate', 'vgs', 'sync',
            'iscsiadm', 'iscsiadm new', 'iscsiadm update',
            'iscsiadm --login', 'tee',
            'dmsetup create',  # clone
            'dmsetup create', 'dd',  # handle
        ], self.processes(asked, B))

    def test_copies_give_way_on_both_nodes(self):
        world = self.world()
        volume = world.create_volume()
        with mock.patch.object(
                copying.Waker, 'give_way', autospec=True,
                side_effect=copying.Waker.give_way) as gave:
            world.attach(volume, 'b')
        wakers = {host: service.reconciler.copying.waker
                  for host, service in world.services.items()}
        self.assertEqual([wakers[A], wakers[B]],
                         [call.args[0] for call in gave.mock_calls])

    def test_thick(self):
        asked = self.attach('b', thin=False)
        self.assertEqual(['sync', 'dmsetup create', 'lvchange --addtag',
                          'vgs', 'sync', 'dmsetup remove'],
                         self.processes(asked, A))
        self.assertEqual([
            'lvs', 'vgs', 'vgs',  # without any LV no group is listed
            'vgs', 'lvcreate', 'dd',
            'lvcreate', 'vgs', 'sync',
            'lvs', 'lvchange --deltag', 'vgs', 'sync',  # all may be shown
            'iscsiadm', 'iscsiadm new', 'iscsiadm update',
            'iscsiadm --login', 'tee',
            'dmsetup create', 'dmsetup create', 'dd',
        ], self.processes(asked, B))


class SweepTest(Case):
    """At most a constant number, however many volumes there are."""

    def test_moves(self):
        world = self.world()
        for _each in range(2):
            self.moving(world)
            for host in (A, B):
                asked = world.sweep(host)
                self.assertEqual([], self.processes(asked, host))
            self.assertIn((B, 'database', 'move_of'), asked)

    def test_moves_from_here(self):
        """What they have is asked for once; each export is looked at."""
        world = self.world()
        for count in (2, 5):
            self.moving(world, count - len(world.world.move_records))
            asked = world.sweep(A)
            self.assertEqual([
                (A, 'database', 'moves_of'),
                (A, 'privileged', 'dmsetup.survey'),
                (A, 'privileged', 'lio_configfs.targets')] + [
                    (A, 'privileged', 'lio.is_exported')] * count, asked)
            # Each source device, and each handle that has gone.
            self.assertEqual(2 * count, world.ioctls)

    def test_a_move_from_here_that_lacks_something(self):
        """It alone is seen to."""
        world = self.world()
        self.moving(world, 3)
        machine = world.machines[A]
        machine.targets.pop(next(iter(machine.targets)))
        asked = world.sweep(A)
        self.assertEqual(1, asked.count((A, 'privileged', 'lio.export')))
        self.assertEqual(3, len(machine.targets))
        self.assertNotIn((A, 'privileged', 'lio.export'), world.sweep(A))

    def test_moves_to_here(self):
        """None costs more for what else there is on the node."""
        world = self.world()
        self.moving(world)
        counts = []
        for _step in range(2):
            asked = world.sweep(B)
            counts.append((machines.sums(asked), world.ioctls))
            self.assertEqual(
                2, asked.count((B, 'privileged', 'dmsetup.survey')))
            # How far it is; and, as no guest has it open, whether it works.
            self.assertEqual(
                2, asked.count((B, 'privileged', 'dmsetup.status')))
            for _each in range(10):
                world.create_volume(B)
        self.assertEqual(counts[0], counts[1])
        # Again once its source has answered, for which it may have waited.
        self.assertEqual(2, asked.count((B, 'database', 'volume')))

    def test_what_moves_is_known(self):
        world = self.world()
        self.moving(world, 2)
        asked = world.sweep(A, False)
        self.assertNotIn((A, 'database', 'is_move'), asked)
        self.assertEqual(['lvs', 'vgs', 'iscsiadm'],
                         self.processes(asked, A))

    def test_volumes_at_rest(self):
        world = self.world()
        counts = []
        for _step in range(2):
            for _each in range(10):
                world.create_volume()
            counts.append(machines.sums(world.sweep(A, False)))
        self.assertEqual(counts[0], counts[1])
        self.assertEqual((3, 5), (counts[0][A, 'process'],
                                  counts[0][A, 'database']))
        self.assertEqual(['lvs', 'iscsiadm'],  # the group has not changed
                         self.processes(world.sweep(A, False), A))

    def test_what_is_swept(self):
        """Beside the look, at the same interval: LVs are not listed again."""
        world = self.world()
        reconciler = world.services[A].reconciler
        world.create_volume()
        self.assertIsNone(reconciler.seen)

        def sweep():
            with world.at(A):
                uncommitted.sweep(reconciler.node, reconciler.seen)
                cleanup.wipe_marked(reconciler.node, reconciler.seen)
        self.assertEqual(['lvs', 'lvs'], self.processes(world.count(sweep), A))
        world.sweep(A, False)
        self.assertEqual([], self.processes(world.count(sweep), A))
        with mock.patch.object(  # the database is away, LVM is not
                reconciler.node.moves._inner, 'moves_of',
                side_effect=ValueError):
            self.assertRaises(ValueError, world.sweep, A, False)
        self.assertEqual(['lvs', 'lvs'], self.processes(world.count(sweep), A))

    def test_devices_are_listed_once(self):
        world = self.world()
        world.create_volume()
        asked = world.sweep(A, False)
        self.assertEqual(
            1, asked.count((A, 'privileged', 'dmsetup.survey')))

    def test_volumes_without_handles(self):
        """All LVs are listed once for each, with its volume's lock."""
        world = self.world()
        for _each in range(2):
            volume = world.create_volume()
            del world.machines[A].devices[names.handle(volume.id)]
        self.assertEqual(
            ['lvs', *['lvs', 'dmsetup create'] * 2, 'vgs', 'iscsiadm'],
            self.processes(world.sweep(A, False), A))

    def test_a_look_asks_anew(self):
        world = self.world()
        service = world.services[A]
        with world.at(A):
            service.condition()
        volume = world.create_volume()
        with world.at(A):
            self.assertIn(volume.name, service.condition().lvs)

    def test_encrypted_volumes_at_rest(self):
        """Which node an attachment is on is asked once for all."""
        world = self.world()
        counts = []
        for _step in range(2):
            for _each in range(10):
                volume = world.create_volume()
                volume.encryption_key_id, volume.status = 'key', 'in-use'
                volume.volume_attachment = [images.attachment(
                    id=volume.id, connector={'host': 'b'},
                    connection_info={}, instance_uuid='i',
                    attach_status='attached')]
            counts.append(machines.sums(world.sweep(A, False)))
        self.assertEqual(counts[0], counts[1])


def show(title, asked):
    """Print what was asked for: sums, and with ``-v`` all of it."""
    sums = machines.sums(asked)
    print('%s: %s' % (title, '; '.join('%s: %s' % (
        host, ', '.join('%d %s' % (sums[host, kind], kind)
                        for kind in KINDS))
        for host in sorted({host for host, _kind in sums}))))
    if '-v' in sys.argv:
        for line in asked:
            print('  %s  %-10s  %s' % line)


def show_all():
    """Print a table of it."""
    for thin in (True, False):
        with machines.Machines(thin) as world:
            kind = 'thin' if thin else 'thick'
            for where, what in (('a', 'at home'), ('b', 'on another node')):
                volume = world.create_volume()
                show('attach %s, %s' % (what, kind), world.count(
                    functools.partial(world.attach, volume, where)))
            world.sweep(B)
            show('look at moves, one to here, ' + kind, world.sweep(B))
            show('look at moves, one from here, ' + kind, world.sweep(A))
            show('look at all, one to here, ' + kind, world.sweep(B, False))
    with machines.Machines() as world:
        for _each in range(10):
            world.create_volume()
        show('look at all, ten at rest', world.sweep(A, False))


if __name__ == '__main__':
    show_all()
