# SPDX-License-Identifier: Apache-2.0
"""Volumes whose sectors are authenticated: two devices, and one opener."""

import contextlib
import itertools
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_integrity
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import devices
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.volumes import clone
from cinder_localclone.volumes import decision
from cinder_localclone.volumes import extend
from cinder_localclone.volumes import snapshots
from tests.helpers import attach_case
from tests.helpers import commands
from tests.helpers import deferred_case
from tests.helpers import encrypted_attach_case
from tests.helpers import encrypted_case
from tests.helpers import local_clone_case
from tests.helpers import own_key_case
from tests import world as worlds
from tests.world import crypt
from tests.world import effects
from tests.world import records

A, B, C = deferred_case.A, deferred_case.B, deferred_case.C
V1 = '00000001-0000-4000-8000-000000000000'
TYPE = {'cipher': 'aes-gcm-random', 'moves': 'cold'}
GIB = 1 << 30


def kinds():
    """All that can be asked for."""
    for name, cipher in volume_types.CIPHERS.items():
        for how, sector in itertools.product(
                cipher.integrity, volume_types.SECTOR_SIZES):
            if how != 'none':
                yield volume_types.Encryption(
                    cipher=name, integrity=how, sector_size=sector)


class LayoutTest(testtools.TestCase):

    def test_just_the_size_is_left(self):
        """By what the kernel does, which is another way round."""
        for kind, gib in itertools.product(
                kinds(), (1, 2, 3, 7, 8, 9, 31, 64, 1000, 16384)):
            found = luks_integrity.layout(kind, gib * GIB)
            self.assertEqual(0, found.extra_bytes % (1 << 20))
            self.assertEqual(0, found.offset_bytes % 4096)
            self.assertTrue(0 <= found.offset_bytes - (16 << 20) < 3 << 20)
            self.assertEqual(gib * GIB // 512, luks_integrity.provided_sectors(
                kind, (gib * GIB + found.extra_bytes) // 512,
                found.offset_bytes // 512), (kind, gib))

    def test_what_is_known(self):
        """So that nothing changes it for volumes that there are."""
        for kind, gib, expected in (
                (('aes-gcm-random', 'aead', 512), 1, (81, 17199104)),
                (('aes-gcm-random', 'aead', 4096), 1, (32, 17559552)),
                (('aegis128-random', 'aead', 512), 1, (89, 17108992)),
                (('aes-xts-plain64', 'hmac-sha256', 512), 100,
                 (6480, 16793600)),
                (('chacha20-random', 'poly1305', 512), 1, (81, 17199104))):
            cipher, how, sector = kind
            found = luks_integrity.layout(volume_types.Encryption(
                cipher=cipher, integrity=how, sector_size=sector), gib * GIB)
            self.assertEqual(expected, (
                found.extra_bytes >> 20, found.offset_bytes))

    def test_real_ones(self):
        """What kernels have made of devices of so many sectors.

        Superblocks as somebody has published them. (The tags of an area are
        whole blocks of 128 KiB here, which is how old kernels pad others.)
        """
        kind = volume_types.Encryption(
            integrity='hmac-sha256', sector_size=4096)
        for sectors, found in ((33792, 496), (3072000, 2991912),
                               (4096000, 3999792)):
            self.assertEqual(found, luks_integrity.provided_sectors(
                kind, sectors, (16 << 20) // 512))

    def test_without_tags(self):
        self.assertEqual(
            luks_integrity.Layout(16 << 20, 16 << 20),
            luks_integrity.layout(volume_types.Encryption(), GIB))

    def test_options(self):
        found = cryptsetup_cli.new_header(volume_types.Encryption(
            cipher='aes-gcm-random', key_bits=256, integrity='aead'), V1,
            17199104).words()
        self.assertEqual(str(17199104 // 512),
                         found[found.index('--offset') + 1])
        self.assertIn('--integrity-no-wipe', found)
        # Both copies of the metadata, and this: 16 MiB, as of any other.
        self.assertEqual(str((16 << 20) - (32 << 10)),
                         found[found.index('--luks2-keyslots-size') + 1])


class DevicesTest(commands.Case):
    """As the kernel shows them."""

    HANDLE = 'LOCALCLONE-' + names.handle(V1)
    UUID = 32 * 'a'

    def survey(self, kind='INTEGRITY', crypt=True, opened=0):
        above, below = names.crypt(V1), names.integrity(V1)
        found = [
            dm_ioctl.Status(names.handle(V1), self.HANDLE, '253:5', 1, False,
                            '0 2260992 linear 253:1 0'),
            dm_ioctl.Status(
                below, 'CRYPT-%s-%s-%s' % (kind, self.UUID, below), '253:6',
                int(crypt), False, '0 2097152 integrity 253:5 33592 28 J 6 '
                'journal_sectors:16368 interleave_sectors:32768 '
                'buffer_sectors:128 journal_watermark:50 commit_time:10000 '
                'fix_padding')]
        if crypt:
            found.append(dm_ioctl.Status(
                above, 'CRYPT-LUKS2-%s-%s' % (self.UUID, above), '253:7',
                opened, False, '0 2097152 crypt capi:gcm(aes)-random '
                ':32:logon:x 0 253:6 0 1 integrity:28:aead'))
        return survey.Survey({}, dm_tables.own_devices(
            found, names.device_uuid('')))

    def test_users(self):
        for kind in ('INTEGRITY', 'SUBDEV'):
            self.assertEqual(0, self.survey(kind).users(V1))
            self.assertEqual(2, self.survey(kind, opened=2).users(V1))
            self.assertEqual(0, self.survey(kind, crypt=False).users(V1))

    def test_it_is_never_too_short(self):
        """Its handle is much longer: tags are in between."""
        self.assertFalse(devices.is_short(self.survey(), V1))

    def test_what_is_left_of_it_is_a_upper(self):
        found = self.survey()
        self.assertEqual([found.crypt(V1)], found.upper_devices(V1))
        found = self.survey(crypt=False)
        self.assertEqual([found.integrity(V1)], found.upper_devices(V1))

    def test_of_others(self):
        name = names.integrity(V1)
        for uuid in ('CRYPT-INTEGRITY-' + name, 'LVM-x', 'CRYPT-LUKS2-%s-%s'
                     % (self.UUID, name)):
            self.assertIsNone(names.volume_of_integrity(name, uuid))
        self.assertFalse(names.is_integrity(names.crypt(V1)))

    def test_removed(self):
        self.assertTrue(cryptsetup.remove_integrity(
            names.integrity(V1), 30))
        self.assertRaises(exceptions.Foreign,
                          cryptsetup.remove_integrity,
                          names.crypt(V1), 30)
        self.assertRan('dmsetup remove --retry ' + names.integrity(V1))


class Case(encrypted_case.Case):

    def of(self, world=None):
        if world:
            self.world = world
            self.a, self.b = world.nodes[A], world.nodes[B]
        for node in self.world.nodes.values():
            object.__setattr__(node.node, 'authenticates', True)
        self.addCleanup(self.world.secrets.kept.clear)
        return self.row(**TYPE)


class CreateTest(Case):

    def test_only_if_the_node_is_told(self):
        volume = self.row(**TYPE)
        error = self.assertRaises(
            encryption_exceptions.InvalidEncryptionType, self.create, volume)
        self.assertIn('localclone_enable_integrity', str(error))
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_create_and_delete(self):
        volume = self.of()
        self.create(volume)
        recorded = volume.encryption
        self.assertEqual((81 << 20, True), (
            recorded.header_bytes, recorded.authenticated))
        self.assertEqual(GIB + (81 << 20), self.a.disk.size(volume.name))
        self.assertEqual('aead', self.world.headers[volume.id].integrity)
        self.assertEqual({'encrypted zeros'}, set(self.a.lvs[volume.name]))
        self.assertNotIn(names.FRESH, self.a.disk.tags[volume.name])
        self.assertEqual([names.handle(volume.id)], list(self.a.devices))
        self.delete(volume)
        self.assertNothingLeft()

    def test_size_that_is_another(self):
        """By another kernel, or another cryptsetup: nobody gets it."""
        self.world.pool = 'pool'
        volume = self.of()
        for found in (GIB - 4096, GIB + 4096):
            with mock.patch.object(crypt.SimCrypt, 'size',
                                   lambda own, volume_id: found):
                error = self.assertRaises(encryption_exceptions.OddSize,
                                          self.create, volume)
            self.assertIn(str(found), str(error))
            self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])
            self.world.headers.clear()

    def test_room_for_all_of_it(self):
        volume, self.a.free = self.of(), GIB + (80 << 20)
        self.assertRaises(exceptions.NoFreeSpace, self.create, volume)
        self.assertEqual({}, self.a.lvs)

    def test_stopped_at_every_moment(self):
        world = worlds.World()
        self.create(self.of(world))
        for stop, fault in itertools.product(
                range(1, world.moment + 1), ('cut', 'kill')):
            volume = self.of(worlds.World(stop_at=(stop,), faults=(fault,)))
            with contextlib.suppress(effects.Stopped):
                self.create(volume)
            self.a.dead = False
            volume.status = 'error'
            with contextlib.suppress(effects.Stopped):
                self.a.reconciler.reconcile_node()
            self.delete(volume)
            self.assertNothingLeft()
            self.assertEqual([], self.world.wrongs)


class Guest(deferred_case.Guest):
    """One whose volume is authenticated."""

    def attach(self, host, runs=True):
        crypt.authenticate(self.world, self.volume)
        super().attach(host, runs)


@ddt.ddt
class MoveTest(deferred_case.Case):
    """No two nodes have it open, and nobody where it is copied from."""

    def onward(self, guest):
        """Detached and attached again and again."""
        for host in (C, A, B):
            guest.detach(guest.volume.volume_attachment[0].connector[
                'host'] + '@l')
            guest.attach(host)
            guest.write()
        guest.live_on()
        return B

    def run_with(self, way, stops, faults, signal=True):
        guest = Guest(stops, faults, signal, provider_id=(
            encrypted_attach_case.RECORDED))
        host = getattr(self, way)(guest)
        guest.detach(host)
        guest.check_at(host, self)
        self.assertEqual([], guest.world.wrongs)
        return guest.world

    @ddt.data(*itertools.product(('third', 'back', 'onward'), (True, False)))
    @ddt.unpack
    def test_detached_and_attached(self, way, signal):
        self.run_with(way, (), ('cut',), signal)

    @ddt.data(('third', ('cut',)), ('third', ('kill',)), ('back', ('cut',)))
    @ddt.unpack
    def test_with_a_stop_at_every_moment(self, way, faults):
        self.stop_everywhere(lambda stops: self.run_with(
            way, stops, faults))

    @ddt.data('live', 'returned')
    def test_never_live(self, way):
        guest = Guest(provider_id=encrypted_attach_case.RECORDED)
        error = self.assertRaises(AssertionError, getattr(self, way), guest)
        self.assertIn('never attached', str(error))
        self.assertEqual([], guest.world.wrongs)


class RefusedTest(encrypted_attach_case.Case):

    def setUp(self):
        super().setUp()
        crypt.authenticate(self.world, self.volume)

    def connect_used(self):
        self.connect(attach_case.ON_A)
        self.attach('in-use', 'a')
        self.a.opened.add(self.crypt)

    def test_live_move(self):
        self.connect_used()
        self.attach('in-use', 'a', None)
        before = repr(self.world.snapshot())
        self.assertRaises(encryption_exceptions.MovesCold, self.connect,
                          attach_case.ON_B)
        self.assertEqual(before, repr(self.world.snapshot()))

    def test_pass_through(self):
        self.volume.group_id = 'g'
        error = self.assertRaises(
            encryption_exceptions.MovesCold, self.connect,
            dict(attach_case.ON_B, initiator='iqn.x'))
        self.assertIn('group', str(error))
        self.assertNotIn(self.crypt, self.b.devices)

    def test_opened_where_it_is_not_at_home(self):
        """Whoever asks for it."""
        self.assertRaises(encryption_exceptions.MovesCold, devices.open,
                          self.b.node, self.volume, self.volume.name)

    def test_extend(self):
        self.volume.status = 'extending'
        self.assertRaises(encryption_exceptions.KeepsSize, extend.extend,
                          self.a.reconciler, self.volume.id, 2)
        self.assertEqual(GIB + (16 << 20),
                         self.a.disk.size(self.volume.name))

    def test_what_is_left_of_it(self):
        """By a power cut, a kill: it is opened, or closed, nevertheless."""
        half = names.integrity(self.volume.id)
        self.a.devices[half] = {'below': self.handle}
        self.connect(attach_case.ON_A)
        self.assertIn(self.crypt, self.a.devices)
        del self.a.devices[self.crypt]
        self.attach('available')
        self.world.settle()
        self.assertNotIn(half, self.a.devices)

    def test_left_where_it_is_moved_from(self):
        self.a.devices[names.integrity(self.volume.id)] = {
            'below': self.handle}
        self.connect(attach_case.ON_B)
        self.assertNotIn(names.integrity(self.volume.id), self.a.devices)
        self.assertIn(names.integrity(self.volume.id), self.b.devices)

    def test_a_boot_does_not_open_what_is_copied(self):
        """Its tag goes before anything is recorded of the move."""
        lv, begin, seen = self.volume.name, records.SimMoves.begin, []
        self.a.disk.tags[lv] |= {names.OPENED}

        def begun(own, *args, **more):
            seen.append(names.OPENED in self.a.disk.tags[lv])
            return begin(own, *args, **more)
        with mock.patch.object(records.SimMoves, 'begin', begun):
            self.connect(attach_case.ON_B)
        self.assertEqual([False], seen)

    def test_no_discards(self):
        self.volume.extra_specs = {'localclone:encryption': 'luks2',
                                   'localclone:discards': 'true'}
        self.assertFalse(self.connect(
            attach_case.ON_A)['data']['discard'])


class ImagesTest(local_clone_case.Base):

    def image(self):
        world, source, expected = self.begin()
        source.provider_id = str(volume_types.Recorded(
            16 << 20, 'secret', moves_live=False))
        return world, source

    def check(self, wanted_gib):
        world, source = self.image()
        volume = world.row(A, wanted_gib, extra_specs=dict(
            {'localclone:encryption': 'luks2'}, **{
                'localclone:' + name: value
                for name, value in TYPE.items()}))
        clone._check_image(
            world.nodes[A].node, volume, 'x', source.encryption,
            source.size)

    def test_of_the_same_size(self):
        self.check(1)

    def test_larger(self):
        self.assertIn('a volume of 2 GiB', str(self.assertRaises(
            exceptions.ForeignImage, self.check, 2)))

    def test_snapshot_is_not_read(self):
        world, source = self.image()
        snapshot = world.snapshot_row(source)
        world.set_snapshot(snapshot, node=A, status='available',
                           provider_id=source.provider_id)
        found = mock.Mock(provider_id=source.provider_id, volume_id='v')
        self.assertRaises(
            exceptions.Refused, snapshots.devices.check_readable,
            world.nodes[A].node, found, {'host': 'a'}, True)


class BornTest(own_key_case.Case):
    """What is made of one is one, and has a key of its own."""

    def of(self, world, **specs):
        for node in world.nodes.values():
            object.__setattr__(node.node, 'authenticates', True)
        super().of(world, **TYPE)

    def test_own_key(self):
        for of in (own_key_case.VOLUME, own_key_case.SNAPSHOT):
            uncommitted = self.born(of, **TYPE)
            self.assert_own(uncommitted)
            recorded = uncommitted.encryption
            self.assertEqual((81 << 20, True), (
                recorded.header_bytes, recorded.authenticated))
            self.assertEqual('aead',
                             self.world.headers[uncommitted.id].integrity)
            self.assertEqual(GIB + (81 << 20),
                             self.a.disk.size(uncommitted.name))

    def test_rotate(self):
        self.volume.status = 'in-use'
        self.rotate()
        self.assert_changed()

    def test_of_another_kind(self):
        for specs in ({}, {'cipher': 'aes-xts-plain64'}):
            self.assertRaises(exceptions.ForeignImage, self.born, **specs)


class DecisionTest(testtools.TestCase):

    def decide(self, **what):
        return decision.decide(decision.Request(
            status='in-use', home=A, connector_host='b', initiator='iqn',
            cold_error=encryption_exceptions.MovesCold, **what))

    def test_who_gets_it(self):
        vm = [decision.Attachment('vm', None)]
        both = [*vm, decision.Attachment('vm', 'a')]
        for node, attachments, more, expected in (
                (A, vm, {}, decision.Verdict.LOCAL),
                (B, vm, {}, decision.Verdict.MOVE),
                (B, both, {}, decision.Verdict.REFUSE),
                (B, vm, {'pinned': 'x'}, decision.Verdict.REFUSE),
                (None, vm, {}, decision.Verdict.REMOTE)):
            found = self.decide(node=node, attachments=attachments, **more)
            self.assertIs(expected, found.verdict)
            if expected is decision.Verdict.REFUSE:
                self.assertIs(encryption_exceptions.MovesCold, found.error)
