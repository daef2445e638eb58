# SPDX-License-Identifier: Apache-2.0
"""Live migration with a stop at every moment, on either node."""

import itertools

import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import destination
from cinder_localclone.moves import source
from cinder_localclone.volumes import operations
from tests.helpers import move_case
from tests import world as worlds
from tests.world import images

A, B = move_case.A, move_case.B


def attachment(host):
    return images.attachment(
        connector={'host': host} if host else None, connection_info=None,
        mountpoint=None, instance_uuid='vm')


class Migration:
    """A guest that writes, and what Nova does around it.

    :param signal: whether Cinder's detach calls reach the driver; if not,
        only the attachments change
    :param holes: of a thin volume; regions
    """

    def __init__(self, stop_at, faults, signal, holes=()):
        self.world = worlds.World(faults=faults)
        self.world.pool = 'pool' if holes else None
        self.signal = signal
        self.volume = self.world.create_volume(A, holes)
        self.id = self.volume.id
        self.handle = names.handle(self.id)
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.expected = list(self.a.lvs[self.volume.name])
        self.volume.volume_attachment = [attachment(A)]
        self.guest = self.a
        self.a.opened.add(self.handle)
        self.world.moment, self.world.stop_at = 0, stop_at

    def write(self, region, value):
        """The guest writes; one whose node lost power is started again."""
        self.revive()
        self.guest.write(self.id, region, value)
        self.expected[region] = value

    def revive(self):
        if any(node.dead for node in self.world.nodes.values()):
            self.world.recover()
        self.guest.opened.add(self.handle)

    def begin(self):
        """Nova's create of the attachment at the destination."""
        for _attempt in range(3):
            self.volume.volume_attachment = [attachment(A), attachment(None)]
            try:
                if self.volume.host.startswith(A):
                    self.a.move(self.volume, B, live=True)
                self.volume.volume_attachment = [
                    attachment(A), attachment(B)]
                return
            except (exceptions.LocalCloneError, worlds.Stopped):
                # Nova gives up: the attachment goes, no call is made.
                self.volume.volume_attachment = [attachment(A)]
                self.revive()
                self.world.settle()
        raise AssertionError('the live move never began')

    def switch(self):
        """The guest goes on at the destination."""
        self.revive()
        self.a.opened.discard(self.handle)
        self.guest = self.b
        self.b.opened.add(self.handle)

    def call(self, node, act):
        """A detach call that may be cut short; its answer is not needed."""
        moving = next(iter(self.world.move_records.values()), None)
        if not self.signal or moving is None or (
                moving.phase is not Phase.STARTING):
            return
        try:
            node.check_alive()
            with node.lock(self.id):
                act(node.node, moving)
        except (exceptions.LocalCloneError, worlds.Stopped):
            pass

    def detach_source(self):
        self.call(self.a, source.begin_hydration)
        self.volume.volume_attachment = [attachment(B)]

    def detach_destination(self):
        self.call(self.b, destination.roll_back_live)
        self.volume.volume_attachment = [attachment(A)]

    def end(self):
        self.guest.opened.discard(self.handle)
        for _round in range(3):
            self.world.settle()
            self.revive()
        self.guest.opened.discard(self.handle)


@ddt.ddt
class LiveMoveTest(move_case.Base):

    def verify(self, migration):
        for region, value in enumerate(migration.expected):
            self.assertEqual(value, migration.guest.read(
                migration.id, region))

    def thin(self, stop_at, faults, signal):
        """Of holes, one is written at the source, one at the destination."""
        return self.forward(stop_at, faults, signal, (0, 1, 2))

    def forward(self, stop_at, faults, signal, holes=()):
        m = Migration(stop_at, faults, signal, holes)
        m.begin()
        m.write(1, 'late')       # the source's last word
        self.assertEqual('late', m.b.read(m.id, 1))
        m.world.reconcile()
        self.assertFalse(any(
            device.get('hydrating') for device in m.b.devices.values()))
        m.switch()
        m.write(2, 'new')
        self.verify(m)
        m.detach_source()
        m.revive()
        self.verify(m)
        m.end()
        self.assertEqual(B, m.world.home(m.volume).host)
        self.check(m.world, m.volume, m.expected)
        return m

    def back(self, stop_at, faults, signal):
        m = Migration(stop_at, faults, signal)
        m.begin()
        m.write(1, 'late')
        m.detach_destination()
        m.write(3, 'later')
        m.world.settle()
        m.world.settle()
        m.revive()
        self.verify(m)
        m.end()
        self.assertEqual(A, m.world.home(m.volume).host)
        self.check(m.world, m.volume, m.expected)
        return m

    @ddt.data(*itertools.product(
        ('forward', 'back', 'thin'), move_case.ONE, (True, False)))
    @ddt.unpack
    def test_stop_at_every_moment(self, way, faults, signal):
        self.stop_everywhere(lambda stops: getattr(self, way)(
            stops, faults, signal).world,
            engine=faults == ('cut',) and signal,
            turn=move_case.ONE.index(faults) + signal)

    @ddt.data(
        *itertools.product(('forward', 'back'), move_case.TWO, (True,)),
        *itertools.product(('forward', 'back'), move_case.ALIKE, (False,)))
    @ddt.unpack
    def test_stop_at_every_two_moments(self, way, faults, signal):
        self.stop_everywhere(lambda stops: getattr(self, way)(
            stops, faults, signal).world, times=2)

    def started(self):
        m = Migration((), ('cut',), True)
        m.begin()
        return m, next(iter(m.world.move_records.values()))

    def test_no_hydration_while_the_source_is_open(self):
        m, moving = self.started()
        self.assertRaises(exceptions.SourceBusy, source.begin_hydration,
                          m.a.node, moving)
        m.volume.volume_attachment = []  # os-reset_status
        m.world.settle()
        self.assertIs(Phase.STARTING, m.a.node.moves.move_of(
            m.id).phase)
        m.a.opened.clear()
        m.world.settle()
        self.check(m.world, m.volume, m.expected)

    def test_a_source_attachment_that_survives_is_unsafe(self):
        m, _moving = self.started()
        m.switch()
        m.world.settle()
        self.assertIs(Phase.STARTING, m.a.node.moves.move_of(
            m.id).phase)
        operations.go_forward(m.a.reconciler, m.id)
        m.end()
        self.check(m.world, m.volume, m.expected)

    def test_no_way_back_once_written(self):
        m, moving = self.started()
        m.switch()
        m.write(2, 'new')
        self.assertRaises(exceptions.SourceBusy, operations.abort,
                          m.b.reconciler, m.id)
        m.b.opened.clear()
        self.assertRaises(exceptions.DestinationWritten,
                          operations.abort, m.b.reconciler, m.id)
        m.volume.volume_attachment = [attachment(A)]
        m.world.settle()
        self.assertEqual('new', m.b.read(m.id, 2))
        self.assertEqual(B, m.world.home(m.volume).host)

    @ddt.data('ro', 'Fail')
    def test_no_way_back_from_a_clone_that_failed(self, mode):
        m, _moving = self.started()
        m.switch()
        m.write(2, 'new')
        m.b.opened.clear()
        m.b.clones = mode
        m.volume.volume_attachment = [attachment(A)]
        self.assertRaises(exceptions.CloneFailed, operations.abort,
                          m.b.reconciler, m.id)
        m.world.reconcile()
        self.assertEqual(B, m.world.home(m.volume).host)
        self.assertEqual('new', m.b.read(m.id, 2))

    def test_no_way_back_from_a_clone_that_fails_meanwhile(self):
        """One that has failed says that nothing is local."""
        m, move = self.started()
        m.switch()
        m.write(2, 'new')
        asked = m.b.node.clones._inner.clone_status

        def fails_then(move_id):
            m.b.node.clones._inner.clone_status = lambda _move_id: (
                dm_tables.parse_clone_status('0 8 clone Fail'))
            return asked(move_id)
        m.b.node.clones._inner.clone_status = fails_then
        with m.b.lock(m.id):
            self.assertEqual(1, destination.written_regions(m.b.node, move))

    def test_an_attachment_that_waits_is_not_settled(self):
        m, _moving = self.started()
        m.volume.volume_attachment = [attachment(A), attachment(None)]
        m.world.settle()
        self.assertEqual(B, m.world.home(m.volume).host)
        operations.abort(m.b.reconciler, m.id)
        m.end()
        self.assertEqual(A, m.world.home(m.volume).host)
        self.check(m.world, m.volume, m.expected)

    def test_abort_and_resume_where_they_cannot_be(self):
        m, _moving = self.started()
        for call, node in ((operations.abort, m.a),
                           (operations.go_forward, m.b)):
            self.assertRaises(exceptions.NotPossible, call, node.reconciler,
                              m.id)
        m.switch()
        m.detach_source()
        self.assertRaises(exceptions.NotPossible, operations.abort,
                          m.b.reconciler, m.id)
        m.world.settle()
        m.world.settle()
        for call, node in ((operations.abort, m.a),
                           (operations.go_forward, m.b)):
            self.assertRaises(exceptions.NotPossible, call, node.reconciler,
                              m.id)
