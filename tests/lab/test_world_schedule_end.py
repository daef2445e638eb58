# SPDX-License-Identifier: Apache-2.0
"""What a schedule must come to: each wrong end is seen."""

import contextlib
import types

import ddt
import testtools

from cinder_localclone.core import names
from tests.helpers import complaints
from tests.world import drawing
from tests.world import instances
from tests.world import scheduler
from tests.world import schedules
from tests.world import seeded

A = instances.HOSTS[0]


@ddt.ddt
class EndTest(testtools.TestCase):
    """One volume at rest on the first of two nodes, or nothing at all."""

    def setUp(self):
        super().setUp()
        self.enterContext(schedules.fast())
        self.addCleanup(complaints.take)
        self.volumes = 1

    @contextlib.contextmanager
    def ended(self):
        schedule = drawing.Schedule(
            1, scheduler.Choices.draw(scheduler.random.Random(1)), 2,
            self.volumes, 'pool', [])
        with schedules._patched(schedule, scheduler.Choices(
                1, schedule.how)) as cloud:
            self.cloud, self.world = cloud, cloud.world
            self.node = self.world.nodes[A]
            self.volume = next(iter(self.world.volumes.values()), None)
            try:
                cloud.start()
                cloud.scheduler.run()
                schedules.end(cloud)
                yield
            finally:
                cloud.scheduler.close()

    def wrong(self, what, check=schedules.check):
        error = self.assertRaises(AssertionError, check, self.cloud)
        self.assertIn(what, str(error))

    def test_nothing_is_wrong(self):
        for self.volumes in (0, 1):
            with self.ended():
                schedules.check(self.cloud)
                schedules._check_guests(self.cloud)

    def test_complaint_that_somebody_has_caught(self):
        """Also if what it was about is no more."""
        self.volumes = 0
        with self.ended():
            with contextlib.suppress(AssertionError):
                self.world.insist(False, 'bytes of %s', 'another')
            self.wrong('bytes of another')

    def test_what_is_left_of_requests(self):
        with self.ended():
            self.world.move_records['m'] = 'a move'
            self.wrong('moves are left')
            self.world.move_records.clear()
            self.cloud.scheduler.locks['l'] = 'somebody'
            self.wrong('locks are held')

    def test_volume_that_is_not_at_rest(self):
        with self.ended():
            self.volume.status = 'reserved'
            self.wrong('is reserved')

    def test_volume_without_what_it_has(self):
        with self.ended():
            handle = names.handle(self.volume.id)
            device = self.node.devices.pop(handle)
            self.wrong('has no handle')
            self.node.devices[handle] = device
            del self.node.lvs[self.volume.name]
            self.wrong('has no LV')

    @ddt.data('other', seeded.TORN + ' other')
    def test_volume_with_other_bytes(self, value):
        for check in schedules.check, schedules._check_guests:
            with self.ended():
                self.node.lvs[self.volume.name][-1] = value
                self.cloud.guests[self.volume.id] = A
                self.wrong(value, check)

    def test_guest_without_its_handle(self):
        with self.ended():
            self.cloud.guests[self.volume.id] = instances.HOSTS[1]
            self.wrong('has no handle', schedules._check_guests)

    def test_attachment_without_its_handle(self):
        with self.ended():
            self.volume.volume_attachment = [types.SimpleNamespace(
                attach_status='attached', left=False,
                connector=self.cloud.connector(instances.HOSTS[1]))]
            self.wrong('and not there', schedules._check_guests)

    def test_guest_that_waits(self):
        with self.ended():
            self.cloud.waiting[self.volume.id] += 1
            self.wrong('wait for ever', schedules._check_guests)

    def test_what_is_left_on_a_node(self):
        with self.ended():
            for node in self.world.nodes.values():
                for what in ('lvs', 'devices'):
                    found = getattr(node, what)
                    found['x'] = {}
                    self.wrong('x is left on ' + node.host)
                    del found['x']
            other = self.world.nodes[instances.HOSTS[1]]
            other.lvs[self.volume.name] = ['its']
            self.wrong('is left on ' + other.host)

    @ddt.data('exports', 'sessions', 'remotes', 'remote', 'suspended')
    def test_what_a_node_still_has(self, what):
        with self.ended():
            found = getattr(self.node, what)
            found.update({'x': {}} if isinstance(found, dict)
                         else {('x', 'y')})
            self.wrong('%s are left on %s' % (what, A))

    def test_what_never_settles(self):
        with self.ended():
            count = iter(range(10 ** 6))
            self.world.snapshot = lambda: next(count)
            self.wrong('never settled', schedules._settle)

    def test_broken_at_its_end(self):
        """Whoever runs it is told."""
        schedule = drawing.Schedule(
            1, scheduler.Choices.draw(scheduler.random.Random(1)), 2, 1,
            'pool', [])
        create = seeded.World.create_volume

        def longer(world, host, **more):
            world.nodes[host].lvs['x'] = ['somebody\'s']
            return create(world, host, **more)
        with testtools.ExpectedException(schedules.Broken, 'LV x is left'):
            with contextlib.ExitStack() as stack:
                stack.enter_context(schedules.mock.patch.object(
                    seeded.World, 'create_volume', longer))
                schedules.run(schedule, scheduler.Choices(1, schedule.how))
