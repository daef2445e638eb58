# SPDX-License-Identifier: Apache-2.0
"""Bodies that are longer than their volumes, wherever they go.

That of an encrypted volume begins with a header: whoever forgets it shows the
end of the volume to nobody, or shows its user more than there is.
"""

import dataclasses
import pathlib
import re

import ddt
import fixtures
import testtools

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import rows
from cinder_localclone.core import state
from cinder_localclone.core import volume_types
from cinder_localclone.moves import checks
from cinder_localclone.moves import destination
from cinder_localclone.moves import remote_attachment
from cinder_localclone.moves import source
from tests.helpers import deferred_case
from tests.helpers import local_clone_case
from tests.helpers import revert_case
from tests.helpers import storage_case
from tests import world as worlds
from tests.world import crypt
from tests.world import disks

A, B, C = 'a@l', 'b@l', 'c@l'
GIB, EXTRA = worlds.GIB, 16 << 20
BODY = GIB + EXTRA
LUKS2 = crypt.recorded('key')
LATER = str(volume_types.Recorded(EXTRA, 'another-key'))
COLD = str(volume_types.Recorded(EXTRA, 'key', moves_live=False))
SPECS = {'localclone:encryption': 'luks2'}
AEAD = {**SPECS, 'localclone:cipher': 'aegis128-random',
        'localclone:moves': 'cold'}
#: Who shifts by 30, and why. All others ask state.backing_bytes.
SHIFTS = {
    'core/state.py': 'backing_bytes itself',
    'core/volume.py': 'the GiB of an LV whose row has not been changed yet',
    'core/formats/lvm_reports.py': 'the same of what has no row that could be '
    'asked',
    'core/boot_plan.py': 'the same of a move',
    'core/node.py': 'a text for people',
    'moves/checks.py': 'a text for people',
    'volumes/manageable.py': 'what others have made has no header',
    'driver/stats.py': 'what the scheduler is told of a group',
    'cmd/metrics/figures.py': 'what people asked for, in a metric',
    'cmd/node/listing.py': 'whole GiB for people',
    'cmd/volume/listing.py': 'what people asked for, in JSON',
    'core/formats/dm_ioctl.py': 'the number of an ioctl',
}


class SourceTest(testtools.TestCase):

    def test_one_place_makes_bytes_of_gib(self):
        package = pathlib.Path(rows.__file__).parents[1]
        found = {str(path.relative_to(package))
                 for path in package.rglob('*.py')
                 if re.search(r'(<<|>>) *30\b|\b1024 *\*\* *3|units\.Gi|'
                              r'1073741824', path.read_text())}
        self.assertEqual(set(SHIFTS), found)


@ddt.ddt
class RowsTest(testtools.TestCase):

    @ddt.data((None, 0), ('', 0), ('id of another driver', 0),
              (LUKS2, EXTRA), (COLD, EXTRA))
    @ddt.unpack
    def test_what_a_row_says(self, text, extra):
        row = rows.Snapshot('s', 'v', 3, 'available', A, provider_id=text)
        self.assertEqual(extra, row.extra_bytes)
        self.assertEqual((3 << 30) + extra, row.size_bytes)
        volume = worlds.World().row(A, 2, provider_id=text)
        self.assertEqual(2 * GIB + extra, volume.backing_bytes())
        self.assertEqual(5 * GIB + extra, volume.backing_bytes(5))

    def test_one_that_is_not_understood(self):
        """It stays where it is, and keeps nobody else from anything."""
        world = worlds.World()
        volume = world.create_volume(A)
        other = world.create_volume(A)
        a = world.nodes[A]
        volume.provider_id = 'lc2:luks3:?'
        self.assertRaises(exceptions.NotPossible, volume.backing_bytes)
        volume.status = 'available'
        self.assertIn('is unknown', volume.why_it_stays(state.Asked.DRAIN))
        a.stop(power=True)
        world.reconcile()
        self.assertEqual({names.handle(other.id)}, set(a.devices))
        self.assertRaises(exceptions.NotPossible, a.move, volume, B)
        self.assertEqual({}, world.move_records)

    @ddt.data((BODY, 'available'), (2 * GIB + EXTRA, 'error_extending'),
              (2 * GIB, 'available'), (GIB, None))
    @ddt.unpack
    def test_an_extension_whose_service_died(self, lv_bytes, status):
        volume = worlds.World().row(A, provider_id=LUKS2, status='extending')
        self.assertEqual(status, volume.after_death(lv_bytes))


class Base(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World(hosts=(A, B, C))
        self.a, self.b = self.world.nodes[A], self.world.nodes[B]
        self.volume = self.world.create_volume(A, provider_id=LUKS2)
        crypt.encrypt(self.world, self.volume, 'key')
        self.handle = names.handle(self.volume.id)
        self.data = list(self.a.lvs[self.volume.name])
        self.assertEqual(worlds.REGIONS + 1, len(self.data))

    def size(self, node, name):
        return disks.size(node.devices[name])

    def write(self, region, value):
        self.world.home(self.volume).write(self.volume.id, region, value)
        self.data[region] = value

    def forget_handle(self):
        """As a reboot does; who needs it makes it again."""
        with self.a.lock(self.volume.id):
            self.a.sim_handles.remove_handle(self.volume.id)

    def check_backing(self, node, size=BODY, volume=None, data=None):
        """All of a volume, to the byte, and nothing else of it anywhere."""
        volume = volume or self.volume
        self.assertIs(node, self.world.home(volume))
        self.assertEqual(size, node.disk.size(volume.name))
        self.assertEqual(
            {'below': volume.name, 'regions': disks.regions(size),
             'bytes': size}, node.devices[names.handle(volume.id)])
        self.assertEqual(data or self.data, node.lvs[volume.name])
        self.assertEqual(
            str(EXTRA), names.facts(node.disk.tags[volume.name])['extra'])
        self.assertEqual({}, self.world.move_records)

    def check_moving(self, size=BODY):
        """Both ends of a move that is committed."""
        move, = self.world.move_records.values()
        self.assertEqual(EXTRA, move.extra_bytes)
        self.assertEqual(
            [BODY, BODY, size, size],
            [self.size(self.a, names.source(move.move_id)),
             self.size(self.b, names.clone(move.move_id)),
             self.size(self.b, self.handle),
             self.b.disk.size(move.destination_lv)])
        metadata = self.b.disk.tags[names.metadata_lv(move.move_id)]
        self.assertEqual(str(EXTRA), names.facts(metadata)['extra'])
        return move


@ddt.ddt
class MoveTest(Base):

    @ddt.data(None, 'pool')
    def test_move(self, pool):
        self.world.pool = pool
        self.a.move(self.volume, B)
        self.check_moving()
        self.write(4, 'the last, short one')
        self.world.settle()
        self.check_backing(self.b)
        self.assertEqual(LUKS2, self.volume.provider_id)

    def test_holes_are_those_of_the_backing(self):
        self.world.pool = 'pool'
        self.a.lvs[self.volume.name][4] = self.data[4] = worlds.ZERO
        self.a.move(self.volume, B)
        move = self.check_moving()
        self.assertEqual({4}, self.b.lvs[names.metadata_lv(
            move.move_id)]['local'])
        self.world.settle()
        self.check_backing(self.b)

    def begin_live(self):
        self.volume.status = 'in-use'
        self.forget_handle()
        self.a.move(self.volume, B, live=True)
        return self.check_moving()

    def test_live_move(self):
        self.begin_live()
        self.assertEqual(BODY, self.size(self.a, self.handle))
        self.write(4, 'written')
        self.forget_handle()
        with self.a.lock(self.volume.id):
            move = self.a.node.moves.move_of(self.volume.id)
            source.begin_hydration(self.a.node, move)
        self.world.settle()
        self.check_backing(self.b)

    def test_live_move_that_is_rolled_back(self):
        move = self.begin_live()
        with self.b.lock(self.volume.id):
            destination.roll_back_live(self.b.node, move)
        self.world.settle()
        self.check_backing(self.a)
        self.assertEqual([{}, {}], [self.b.lvs, self.b.devices])

    def test_move_that_fails(self):
        with fixtures.MockPatchObject(
                self.a.node.peers, 'prepare', side_effect=exceptions.Busy(
                    what='x', host=B, seconds=1)):
            self.assertRaises(exceptions.Busy, self.a.move, self.volume, B)
        self.world.settle()
        self.check_backing(self.a)

    def test_reboot_at_rest(self):
        self.a.stop(power=True)
        self.world.recover()
        self.check_backing(self.a)

    @ddt.data(A, B)
    def test_reboot_while_it_is_copied(self, host):
        self.a.move(self.volume, B)
        self.world.nodes[host].stop(power=True)
        self.world.recover()
        self.check_moving()
        self.world.settle()
        self.check_backing(self.b)

    def test_room_is_that_of_the_backing(self):
        self.b.free = BODY - 1
        error = self.assertRaises(
            exceptions.NoFreeSpace, self.a.move, self.volume, B)
        self.assertIn('1 GiB', str(error))
        self.assertNotIn('begin', self.world.effects(A))

    def test_room_is_that_of_the_backing_at_the_destination(self):
        """It was enough a moment ago."""
        self.b.free = BODY - 1
        with fixtures.MockPatchObject(checks, 'check_free_space',
                                      self.second(checks.check_free_space)):
            self.assertRaises(
                exceptions.NoFreeSpace, self.a.move, self.volume, B)
        self.assertIn('begin', self.world.effects(A))

    @staticmethod
    def second(call):
        """A call that does nothing the first time."""
        calls = iter((lambda *_all: None,))
        return lambda *args: next(calls, call)(*args)

    def test_handle_that_is_too_short(self):
        self.a.devices[self.handle] = {'below': self.volume.name}
        self.world.reconcile()
        self.check_backing(self.a)


class ExtendTest(Base):

    def extend(self, gib=2):
        home = self.world.home(self.volume)
        worlds.extend(home, self.volume, gib)
        self.volume.size = gib
        self.data += [worlds.ZERO] * worlds.REGIONS

    def test_at_rest(self):
        self.extend()
        self.check_backing(self.a, 2 * GIB + EXTRA)
        self.world.settle()
        self.a.stop(power=True)
        self.world.recover()
        self.check_backing(self.a, 2 * GIB + EXTRA)

    def test_then_it_moves(self):
        self.extend()
        self.a.move(self.volume, B)
        self.world.settle()
        self.check_backing(self.b, 2 * GIB + EXTRA)

    def test_while_it_is_copied(self):
        self.a.move(self.volume, B)
        self.extend()
        self.check_moving(2 * GIB + EXTRA)
        self.write(7, 'beyond the clone')
        self.b.stop(power=True)
        self.world.recover()
        self.check_moving(2 * GIB + EXTRA)
        self.world.settle()
        self.check_backing(self.b, 2 * GIB + EXTRA)


class DeferredMoveTest(testtools.TestCase):

    def test_passed_through_and_followed(self):
        self.useFixture(fixtures.MockPatchObject(remote_attachment,
                                                 'DEFERRED_RETRY', -1))
        guest = deferred_case.Guest(provider_id=LUKS2)
        c = guest.nodes[C]
        guest.detach(B)
        guest.attach(C)
        self.assertIn(guest.id, c.remotes)
        self.assertEqual({guest.id: BODY}, c.scanned)
        self.assertEqual(BODY, disks.size(c.devices[guest.handle]))
        guest.write()
        guest.live_on()
        guest.check_at(C, self)

    def test_extended_where_it_is_passed_through(self):
        guest = deferred_case.Guest(provider_id=LUKS2)
        c = guest.nodes[C]
        guest.detach(B)
        guest.attach(C)
        worlds.extend(guest.nodes[B], guest.volume, 2)
        self.assertEqual(2 * GIB + EXTRA, c.scanned[guest.id])
        self.assertEqual(2 * GIB + EXTRA,
                         disks.size(c.devices[guest.handle]))


@ddt.ddt
class ImagesTest(Base, local_clone_case.Base):

    def setUp(self):
        super().setUp()
        self.world.pool = 'pool'

    def taken(self):
        self.forget_handle()
        snapshot_id = self.take(self.world, self.volume)
        self.assertEqual(LUKS2, self.world.snapshots[snapshot_id].provider_id)
        self.assertEqual(BODY, self.size(self.a, self.handle))
        self.assertEqual(BODY, self.a.disk.size(
            names.snapshot_lv(snapshot_id)))
        return snapshot_id

    def test_snapshot_that_is_read(self):
        snapshot_id = self.taken()
        with self.a.lock(snapshot_id):
            self.a.sim_handles.ensure_handle_on_snapshot(
                snapshot_id, self.world.snapshots[snapshot_id].size_bytes)
        self.assertEqual(BODY, self.size(self.a, names.handle(snapshot_id)))

    def born(self, asked, size, of, specs=SPECS):
        volume = self.world.row(asked, size, source_volid=self.volume.id,
                                extra_specs=specs)
        self.world.headers[volume.id] = self.world.headers.get(
            self.volume.id)
        self.bear(self.world, volume, of)
        volume.status = 'available'
        self.world.settle()
        return volume

    @ddt.data((A, 1), (A, 2), (B, 1), (B, 2))
    @ddt.unpack
    def test_clones(self, asked, size):
        for of in (self.volume.id, self.taken()):
            volume = self.born(asked, size, of)
            self.check_recorded(LUKS2, volume)
            self.check_backing(
                self.a, size * GIB + EXTRA, volume,
                self.data + [worlds.ZERO] * worlds.REGIONS * (size - 1))

    def check_recorded(self, expected, volume):
        """As its image, but for its key."""
        found = volume.encryption
        self.assertNotEqual('key', found.key)
        self.assertEqual(expected, str(dataclasses.replace(
            found, key='key')))

    @ddt.data(1, 2)
    def test_cloned_in_another_zone(self, size):
        self.world.zones.update({A: 'here', B: 'there'})
        volume = self.born(B, size, self.volume.id)
        self.check_backing(
            self.b, size * GIB + EXTRA, volume,
            self.data + [worlds.ZERO] * worlds.REGIONS * (size - 1))

    def test_cloned_of_one_whose_extension_has_failed(self):
        """Of the longer LV the newborn has what the row says."""
        with self.a.node.allocation_lock(), self.a.lock(self.volume.id):
            self.a.node.lvm.extend_lv(
                self.volume.name, self.volume.backing_bytes(2))
        volume = self.born(A, 1, self.volume.id)
        self.assertEqual(BODY, self.size(self.a, names.handle(volume.id)))

    @ddt.data(({}, LUKS2), (SPECS, None), (SPECS, COLD), (AEAD, LUKS2),
              ({'localclone:encryption': 'luks9'}, LUKS2),
              (dict(SPECS, **{'localclone:pace': 'at once'}), LUKS2),
              (SPECS, 'id of another driver'))
    @ddt.unpack
    def test_type_that_says_otherwise(self, specs, provider_id):
        """A plain type gets no ciphertext, an encrypted one no plain data."""
        self.volume = self.world.create_volume(A, provider_id=provider_id)
        for of in (self.volume.id, self.take(self.world, self.volume)):
            volume = self.world.row(B, extra_specs=specs)
            self.assertRaises(exceptions.ForeignImage, self.bear, self.world,
                              volume, of)
            self.assertEqual((B + '#p', None),
                             (volume.host, volume.provider_id))
            self.assertNotIn(volume.name, self.a.lvs)

    def test_cloned_of_an_authenticated_one(self):
        self.volume = self.world.create_volume(A, provider_id=COLD)
        crypt.encrypt(self.world, self.volume, 'key')
        crypt.authenticate(self.world, self.volume)
        self.data = list(self.a.lvs[self.volume.name])
        self.check_recorded(self.volume.provider_id,
                            self.born(A, 1, self.volume.id, AEAD))

    def revert(self, snapshot_id, asked=A):
        revert_case.Base.revert(
            self.world, self.volume, snapshot_id, asked)

    @ddt.data(A, B)
    def test_revert(self, home):
        """Its header is that of the snapshot, and so is its key."""
        snapshot_id = self.taken()
        expected = list(self.data)
        self.write(4, 'new')
        if home == B:
            self.a.move(self.volume, B)
            self.world.settle()
        self.volume.provider_id = LATER
        self.revert(snapshot_id, home)
        self.assertEqual(LUKS2, self.volume.provider_id)
        self.world.settle()
        self.check_backing(self.a, data=expected)

    def test_revert_of_one_that_was_extended(self):
        snapshot_id = self.taken()
        worlds.extend(self.a, self.volume, 2)
        self.volume.size = 2
        self.revert(snapshot_id)
        self.check_backing(self.a, 2 * GIB + EXTRA,
                           data=self.data + [worlds.ZERO] * worlds.REGIONS)

    @ddt.data(None, COLD)
    def test_revert_to_what_is_encrypted_otherwise(self, provider_id):
        """As a snapshot may be that was made by hand, and managed."""
        snapshot_id = self.taken()
        self.world.set_snapshot(snapshot_id, provider_id=provider_id)
        self.assertRaises(exceptions.ForeignImage, self.revert, snapshot_id)
        self.check_backing(self.a)


class StackTest(storage_case.Case):
    """The kernel's tables, above LVs of whole extents of 32 MiB."""

    MOVE = dataclasses.replace(storage_case.MOVE, extra_bytes=EXTRA)
    SECTORS = BODY // 512

    def setUp(self):
        super().setUp()
        self.lvs(*[storage_case.lv(name, '253:9', size=GIB + (32 << 20))
                   for name in (self.MOVE.source_lv,
                                self.MOVE.destination_lv)])
        self.devices()
        self.ran.block.number.return_value = '8:16'
        self.ran.block.size.return_value = GIB

    def table(self, name):
        return {call.args[0]: call.args[2] for call in
                self.ran.dmsetup.create.call_args_list}[name]

    def test_source_device(self):
        self.handles.ensure_source(self.MOVE)
        self.assertTrue(self.table(names.source(
            self.MOVE.move_id)).startswith('0 %d linear' % self.SECTORS))

    def test_clone(self):
        self.clones.ensure_clone(self.MOVE, '/dev/sdb')
        self.assertTrue(self.table(names.clone(
            self.MOVE.move_id)).startswith('0 %d clone' % self.SECTORS))

    def test_handle_on_clone(self):
        self.handles.ensure_handle_on_clone(
            dataclasses.replace(self.MOVE, volume_gib=2))
        first, second = self.table(names.handle(
            self.MOVE.volume_id)).splitlines()
        self.assertTrue(first.startswith('0 %d linear' % self.SECTORS))
        # The GiB that it was extended by.
        self.assertTrue(second.startswith(
            '%d %d linear' % (self.SECTORS, GIB // 512)))

    def test_handle_on_lv(self):
        self.handles.ensure_handle_on_lv(
            self.MOVE.volume_id, self.MOVE.source_lv, BODY)
        self.assertEqual('0 %d linear' % self.SECTORS, self.table(
            names.handle(self.MOVE.volume_id)).rpartition(' /')[0])


SHADOW, V1 = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
META = names.metadata_lv(SHADOW)


@ddt.ddt
class RestoreTest(testtools.TestCase):
    """At boot only tags tell."""

    def plan(self, size, *metadata, extra=EXTRA, shown=()):
        lvs = [lvm_reports.LogicalVolume(
            'g', 'volume-' + SHADOW, size, '', frozenset(
                [*names.volume_tags(V1, extra), *shown]))]
        if metadata:
            lvs.append(lvm_reports.LogicalVolume('g', META, GIB, '', frozenset(
                metadata)))
        local, = boot_plan.plan(survey.Survey(
            {each.name: each for each in lvs}, {}))
        return local

    @ddt.data(BODY, GIB + (32 << 20), 2 * GIB)
    def test_at_rest(self, size):
        """Extents may be longer than the header, and an extension that failed
        may have come to whole GiB: that is less than a volume of as many has.
        """
        self.assertEqual(BODY, self.plan(size).size)

    def test_more_than_may_be_shown(self):
        self.assertEqual(BODY, self.plan(
            2 * BODY, shown=[names.shown(BODY)]).size)
        self.assertNotEqual('', self.plan(BODY, shown=[
            names.shown(0)]).reason)
        # Nor does a tag make an LV longer than it is.
        self.assertEqual(BODY, self.plan(BODY, shown=[
            names.shown(2 * BODY), names.given(2 * BODY)]).size)

    def test_plain(self):
        """Extents of a striped one may be more than whole GiB."""
        self.assertEqual(GIB, self.plan(GIB + 512, extra=0).size)
        self.assertEqual(512, self.plan(512, extra=0).size)

    @ddt.data((BODY, BODY), (2 * GIB + EXTRA, 2 * GIB + EXTRA),
              (GIB + (32 << 20), BODY))
    @ddt.unpack
    def test_arriving(self, lv_bytes, volume_bytes):
        move = self.plan(lv_bytes, *names.tags(
            volume=V1, geometry=worlds.GEOMETRY, source='iqn', copied=1,
            extra=EXTRA)).move
        self.assertEqual((BODY, volume_bytes),
                         (move.size_bytes, move.volume_bytes))

    def test_what_a_pool_has_to_take_yet(self):
        lv = lvm_reports.LogicalVolume(
            'g', 'volume-' + SHADOW, 3 * BODY, '', frozenset(), thin=True)
        metadata = lvm_reports.LogicalVolume(
            'g', META, GIB, '', frozenset(names.tags(copied=1, extra=EXTRA)))
        self.assertEqual(BODY, lvm_reports.bytes_to_write(
            {each.name: each for each in (lv, metadata)}))
