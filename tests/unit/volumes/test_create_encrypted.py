# SPDX-License-Identifier: Apache-2.0
"""Volumes that the driver encrypts, in the simulated world."""

import contextlib
import copy
import dataclasses
import itertools
import re
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import policy
from cinder_localclone.volumes import migrate as migration
from tests.helpers.encrypted_case import A
from tests.helpers.encrypted_case import B
from tests.helpers.encrypted_case import Case
from tests.helpers.encrypted_case import HEADER
from tests.helpers import tree
from tests import world as worlds
from tests.world import crypt
from tests.world import effects


@ddt.ddt
class CreateTest(Case):

    def test_one_that_somebody_has_is_never_made_anew(self):
        volume = self.row()
        self.create(volume)
        self.a.write(volume.id, 1, 'data')
        for status in ('available', 'in-use', 'deleting'):
            volume.status = status
            self.assertRaises(exceptions.TooLate, self.create, volume)
        self.assertEqual('data', self.a.read(volume.id, 1))
        self.assertWhole(volume)

    def test_what_keeps_its_secret_does_not_hide_why(self):
        self.world.pool = 'pool'
        volume = self.row()
        with mock.patch.object(crypt.SimCrypt, 'test',
                               side_effect=OSError), mock.patch.object(
                crypt.SimCrypt, 'drop_backups', side_effect=KeyError):
            self.assertRaises(OSError, self.create, volume)
        self.assertEqual({}, self.a.lvs)

    def test_its_row_goes_while_it_is_created(self):
        """So do its secret, its LV and the backups of its header."""
        self.world.pool = 'pool'
        volume = self.row()

        def gone(own, volume_id, key):
            self.world.destroy(volume)
            raise OSError
        with mock.patch.object(crypt.SimCrypt, 'test', gone):
            self.assertRaises(OSError, self.create, volume)
        self.assertEqual([{}, {}, {}], [
            self.a.lvs, self.world.secrets.kept, self.world.backups])

    def test_header_that_is_not_as_it_was_asked_for(self):
        """No row pins that, and nothing is left of it."""
        self.world.pool = 'pool'
        volume, make = self.row(), crypt.SimCrypt.format

        def otherwise(own, volume_id, wanted, key):
            make(own, volume_id, wanted, key)
            self.world.headers[volume_id].key_bits //= 2
        with mock.patch.object(crypt.SimCrypt, 'format', otherwise):
            self.assertRaises(encryption_exceptions.ForeignHeader, self.create,
                              volume)
        self.assertIsNone(volume.encryption.pin)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])

    def test_secret_of_the_type_is_not_that_of_an_earlier_try(self):
        volume = self.row(key='type:ours')
        volume.provider_id = str(volume_types.Recorded(HEADER, 'old'))
        self.world.secrets.kept.update(old=('n', b'old'), ours=('n', b'ours'))
        self.create(volume)
        self.assertEqual('ours', volume.encryption.key)

    def test_create_and_delete(self):
        volume = self.row()
        self.create(volume)
        self.assertWhole(volume)
        self.assertIn(names.FRESH, self.a.disk.tags[volume.name])
        self.assertNotIn(names.crypt(volume.id), self.a.devices)
        self.assertEqual({(volume.encryption.key, 'volumes', volume.id)},
                         self.world.secrets.consumers)
        self.assertEqual(['1'], self.world.backups[volume.id])
        volume.status = 'available'
        self.a.disk.sealed = {volume.id: ('k', b'k'), 'other': ('k', b'k')}
        self.delete(volume)
        self.assertNothingLeft()
        self.assertEqual(['other'], list(self.a.disk.sealed))

    def test_zeroed(self):
        volume = self.row(zeroed='true')
        self.create(volume)
        self.assertWhole(volume)
        self.assertEqual({'encrypted zeros'}, set(self.a.lvs[volume.name]))
        self.assertNotIn(names.FRESH, self.a.disk.tags[volume.name])
        self.assertNotIn(names.crypt(volume.id), self.a.devices)

    def test_secret_of_the_type(self):
        self.world.secrets.kept['ours'] = 'for all', b'K'
        volumes = [self.row(key='type:ours') for _ in range(2)]
        for volume in volumes:
            self.create(volume)
            self.assertWhole(volume)
        for volume in volumes:
            self.delete(volume)
        self.assertEqual(['ours'], list(self.world.secrets.kept))

    def test_secret_of_the_type_that_is_a_volumes(self):
        """That goes with its volume, and no boot opens another by it."""
        self.world.pool = 'pool'
        theirs, volume = self.row(), self.row(key='type:theirs')
        self.world.secrets.kept['theirs'] = names.secret(theirs.id), b'K'
        self.assertRaises(
            encryption_exceptions.KeyRefused, self.create, volume)
        self.assertEqual(({}, {}, set()), (
            self.a.lvs, self.a.devices, self.world.secrets.consumers))

    def test_nothing_is_left_whatever_fails(self):
        self.world.pool = 'pool'
        volume = self.row()
        self.patch(crypt.SimCrypt, 'back_up', mock.Mock(side_effect=OSError))
        self.assertRaises(OSError, self.create, volume)
        self.assertEqual(({}, {}), (self.a.lvs, self.a.devices))

    def test_header_says_that_others_have_its_secret(self):
        self.world.secrets.kept['ours'] = 'for all', b'K'
        for specs, shared in (({'key': 'type:ours'}, True), ({}, False)):
            volume = self.row(**specs)
            self.create(volume)
            (token,) = self.world.headers[volume.id].tokens.values()
            self.assertIs(shared, token.shared)

    def test_secret_of_an_image_is_let_go(self):
        """It could not be cloned, so the volume gets one of its own."""
        volume, image = self.row(), self.row()
        self.create(image)
        volume.provider_id = image.provider_id
        key = image.encryption.key
        self.a.node.keys.consume(key, 'volumes', volume.id)
        self.create(volume)
        self.assertNotEqual(key, volume.encryption.key)
        self.assertEqual(
            {(key, 'volumes', image.id),
             (volume.encryption.key, 'volumes', volume.id)},
            self.world.secrets.consumers)

    def test_use_of_the_secret_of_an_image_can_not_be_ended(self):
        """The image was being re-encrypted. The row stays one that can be
        read: else the volume could not even be deleted.
        """
        volume, image = self.row(), self.row()
        self.create(image)
        recorded = image.encryption
        volume.provider_id = str(dataclasses.replace(
            recorded, becoming=dataclasses.replace(
                recorded.pin, digest='anew')))
        refused = encryption_exceptions.KeyRefused(key='k', reason='403')
        with mock.patch.object(crypt.SimKeys, 'release',
                               side_effect=refused):
            self.assertRaises(encryption_exceptions.KeyRefused, self.create,
                              volume)
        self.assertEqual('', volume.encryption.key)
        self.create(volume)
        self.assertWhole(volume)

    def test_secret_that_something_else_names(self):
        volume, other = self.row(), self.row()
        self.create(volume)
        other.provider_id = volume.provider_id  # as a newborn's is
        self.delete(volume)
        self.assertEqual([other.encryption.key],
                         list(self.world.secrets.kept))
        self.world.volumes.pop(volume.id)
        self.delete(other)
        self.assertEqual({}, self.world.secrets.kept)

    @ddt.data(crypt.AWAY, crypt.REFUSES)
    def test_key_manager(self, state):
        volume, self.world.secrets.state = self.row(), state
        self.assertRaises(
            encryption_exceptions.KeyUnavailable if state == crypt.AWAY
            else encryption_exceptions.KeyRefused, self.create, volume)
        self.assertEqual({}, self.a.lvs)
        self.world.secrets.state = ''
        self.create(volume)
        self.assertWhole(volume)

    def test_failure_leaves_no_volume(self):
        self.world.pool = 'pool'
        volume = self.row()
        self.a.headers_unreadable = True
        self.assertRaises(encryption_exceptions.HeaderDamaged, self.create,
                          volume)
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])
        self.a.headers_unreadable = False
        self.assertEqual([{}, {}], [self.world.secrets.kept,
                                    self.world.backups])
        stale = copy.copy(volume)
        stale.provider_id = None
        self.create(stale)  # Cinder tries again
        self.assertWhole(volume)
        self.assertEqual([volume.encryption.key],
                         list(self.world.secrets.kept))

    def test_header_that_its_key_does_not_open(self):
        self.world.pool = 'pool'
        made = crypt.SimCrypt.format

        def otherwise(own, volume_id, options, key):
            made(own, volume_id, options, b'cut off')
        with mock.patch.object(crypt.SimCrypt, 'format', otherwise):
            self.assertRaises(encryption_exceptions.WrongKey, self.create,
                              self.row())
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    def test_failure_that_leaves_something(self):
        """It does not hide why there is no volume."""
        self.a.headers_unreadable = True
        with mock.patch.object(self.a.node.handles, 'remove_handle',
                               side_effect=OSError):
            self.assertRaises(encryption_exceptions.HeaderDamaged, self.create,
                              self.row())

    def test_zeros_for_another_length(self):
        self.world.pool = 'pool'
        with mock.patch.object(crypt.SimCrypt, 'size', return_value=1):
            self.assertRaises(encryption_exceptions.OddSize, self.create,
                              self.row(zeroed='true'))
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])

    @ddt.data(
        ([exceptions.CommandFailed(command='c', code=5, stderr='busy')] * 9,
         policy.TRIES), ([OSError, None], 2),
        ([encryption_exceptions.HeaderDamaged(path='p', reason='none')], 1))
    @ddt.unpack
    def test_erasing(self, results, tried):
        """A few attempts; whatever becomes of them, the volume goes."""
        volume = self.row()
        self.create(volume)
        with mock.patch.object(crypt.SimCrypt, 'erase',
                               side_effect=results) as erase:
            self.delete(volume)
        self.assertEqual(tried, erase.call_count)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])

    def test_what_an_earlier_call_has_made_stays(self):
        """It is never formatted: Cinder may be about to give it away."""
        volume = self.row()
        self.create(volume)
        self.a.lvs[volume.name][1] = 'data'
        self.assertRaises(exceptions.AlreadyThere, self.create, volume)
        self.assertWhole(volume)
        self.assertIn('data', self.a.lvs[volume.name])

    def test_types_that_cannot_be(self):
        for specs in ({'cipher': 'rot13'}, {'integrity': 'hmac-sha256',
                                            'moves': 'cold'}):
            self.assertRaises(encryption_exceptions.InvalidEncryptionType,
                              self.create, self.row(**specs))
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])

    def test_row_that_is_deleted_meanwhile(self):
        volume = self.row()
        volume.status = 'deleting'
        self.assertRaises(exceptions.TooLate, self.create, volume)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])

    def test_delete_without_a_key_manager(self):
        """The volume goes; what is left has its name."""
        volume = self.row()
        self.create(volume)
        self.world.secrets.state = crypt.AWAY
        self.delete(volume)
        self.assertEqual([{}, {}], [self.a.lvs, self.a.devices])
        self.assertEqual([names.secret(volume.id)], [
            name for name, _key in self.world.secrets.kept.values()])


class StopsTest(Case):
    """The node stops, by a kill or a power cut, at each moment."""

    def test_create(self):
        for specs in ({}, {'zeroed': 'true'}, {'key': 'type:ours'}):
            self._at_each(specs)

    def _at_each(self, specs):
        world = worlds.World()
        self._of(world)
        self.create(self.row(**specs))
        for stop, fault in itertools.product(
                range(1, world.moment + 1), ('cut', 'kill')):
            self._of(worlds.World(stop_at=(stop,), faults=(fault,)))
            volume = self.row(**specs)
            with contextlib.suppress(effects.Stopped):
                self.create(volume)
            self.a.dead = False
            # Cinder's manager says so when it starts.
            volume.status = 'error'
            with contextlib.suppress(effects.Stopped):
                self.a.reconciler.reconcile_node()
            self.delete(volume)
            self.world.secrets.kept.pop('ours', None)
            self.assertNothingLeft()
            self.assertEqual([], self.world.wrongs)

    def test_create_again(self):
        """It is asked for again, there or after a boot.

        What is there may be whole, and is left alone.
        """
        made = {'cut': 0, 'kill': 0}
        for fault in made:
            for stop in itertools.count(1):
                self._of(worlds.World(stop_at=(stop,), faults=(fault,)))
                volume = self.row(zeroed='true')
                with contextlib.suppress(effects.Stopped):
                    self.create(volume)
                stopped, self.a.dead = self.a.dead, False
                before = copy.deepcopy(self.a.lvs)
                if before:
                    self.assertRaises(exceptions.AlreadyThere, self.create,
                                      volume)
                    self.assertEqual(before, self.a.lvs)
                else:
                    made[fault] += 1
                    self.create(volume)
                    self.assertWhole(volume)
                    self.assertEqual({'encrypted zeros'},
                                     set(self.a.lvs[volume.name]))
                self.assertEqual([], self.world.wrongs)
                if not stopped:
                    break
            self.assertGreater(stop, 9)
        self.assertNotIn(0, made.values())

    def test_delete(self):
        for stop, fault in itertools.product(range(1, 60), ('cut', 'kill')):
            world = worlds.World()
            self._of(world)
            volume = self.row()
            self.create(volume)
            volume.status = 'available'
            world.stop_at, world.faults = (world.moment + stop,), (fault,)
            try:
                self.delete(volume)
                stopped = False
            except effects.Stopped:
                stopped = True
            world.stop_at, self.a.dead = (), False
            self.delete(volume)  # Cinder begins it again
            self.assertNothingLeft()
            if not stopped:
                return
        self.fail('it never ends')

    def _of(self, world):
        self.world = world
        self.a, self.b = world.nodes[A], world.nodes[B]
        world.secrets.kept['ours'] = 'for all', b'K'
        self.addCleanup(world.secrets.kept.clear)

    def assertNothingLeft(self):
        self.world.secrets.kept.pop('ours', None)
        super().assertNothingLeft()


@ddt.ddt
class FreshTest(Case):

    def check(self, volume, status='restoring-backup'):
        volume.status = status
        policy.check_not_fresh(self.a.node, volume, 'h')

    def test_restore_would_leave_noise(self):
        volume = self.row()
        self.create(volume)
        self.assertRaises(encryption_exceptions.WouldReadNoise, self.check,
                          volume)
        self.check(volume, 'reserved')
        self.a.disk.tags[volume.name] -= {names.FRESH}
        self.check(volume)

    def test_others(self):
        plain = self.world.create_volume(A)
        self.check(plain)
        zeroed = self.row(zeroed='true')
        self.create(zeroed)
        self.check(zeroed)


@ddt.ddt
class RetypeTest(Case):

    def check(self, volume, **specs):
        policy.check_retype(self.a.node, volume, {
            'localclone:' + name: value for name, value in specs.items()})

    @ddt.data({}, {'discards': 'true'}, {'zeroed': 'true'},
              {'cipher': 'aes-xts-plain64'})
    def test_what_changes_nothing(self, specs):
        volume = self.row()
        self.create(volume)
        self.check(volume, encryption='luks2', **specs)

    @ddt.data({'cipher': 'serpent-xts-plain64'}, {'key_size': '256'},
              {'key': 'type:other'}, {'sector_size': '4096'})
    def test_what_is_in_a_header(self, specs):
        volume = self.row()
        self.create(volume)
        self.assertRaises(encryption_exceptions.EncryptionChange, self.check,
                          volume, encryption='luks2', **specs)

    def test_to_and_from_plain(self):
        volume, plain = self.row(), self.world.create_volume(A)
        self.create(volume)
        self.check(plain)
        for each, specs in ((volume, {}), (plain, {'encryption': 'luks2'})):
            self.assertRaises(encryption_exceptions.EncryptionChange,
                              self.check, each, **specs)
        self.assertRaises(encryption_exceptions.InvalidEncryptionType,
                          self.check, plain, encryption='luks9')

    def test_its_own_type_was_changed_since(self):
        volume = self.row()
        self.create(volume)
        for specs in ({}, {'localclone:encryption': 'rot13'}):
            volume.extra_specs = specs
            self.assertRaises(encryption_exceptions.EncryptionChange,
                              self.check, volume, encryption='luks2')


@ddt.ddt
class CopiedByCinderTest(Case):
    """Cinder's own migration reads what is decrypted, and writes that."""

    ELSEWHERE = {'host': 'x@lvm#pool', 'capabilities': {
        'location_info': 'LVMVolumeDriver:x:group:thin:0'}}

    def setUp(self):
        super().setUp()
        self.volume, self.plain = self.row(), self.world.create_volume(A)
        self.create(self.volume)
        for each in (self.volume, self.plain):
            each.status, each.migration_status = 'available', 'migrating'

    def test_out_of_the_backend(self):
        def migrate(volume):
            return migration.migrate(self.a.node, volume.id,
                                     self.ELSEWHERE)
        self.assertRaises(encryption_exceptions.EncryptionChange, migrate,
                          self.volume)
        self.assertEqual((False, None), migrate(self.plain))

    @ddt.data('a@l', 'a@another')
    def test_into_a_plain_volume(self, host):
        """The type of the copy does not encrypt; the original is here, or
        has its home in another section of this driver.
        """
        copy = self.world.create_volume(A)
        for each in (self.volume, self.plain):
            each.host = host + '#pool'
        self.assertRaises(encryption_exceptions.EncryptionChange,
                          policy.check_copy, self.a.node, self.volume,
                          copy)
        policy.check_copy(self.a.node, self.plain, copy)

    def test_into_an_encrypted_volume(self):
        """Else Cinder copies plain text to where all is taken for encrypted.
        """
        self.assertRaises(encryption_exceptions.EncryptionChange,
                          policy.check_copy, self.a.node, self.plain,
                          self.row())

    def test_without_being_asked(self):
        """A retype, or a forced migration, connects the volume at once."""
        self.assertRaises(encryption_exceptions.EncryptionChange,
                          policy.check_connected, self.a.node,
                          self.volume)
        policy.check_connected(self.a.node, self.plain)
        # Cinder's own attachment, by which it copies, is no guest's.
        self.volume.volume_attachment = [mock.Mock(instance_uuid=None)]
        self.assertRaises(encryption_exceptions.EncryptionChange,
                          policy.check_connected, self.a.node,
                          self.volume)
        self.volume.volume_attachment = [mock.Mock(instance_uuid='i')]
        policy.check_connected(self.a.node, self.volume)
        self.volume.volume_attachment = []
        self.volume.migration_status = None
        policy.check_connected(self.a.node, self.volume)


class SourceTest(testtools.TestCase):
    """What the code has, and has not, wherever it may be."""

    TEXTS = {str(path.relative_to(tree.ROOT)): path.read_text()
             for _name, path in tree.modules(tree.PACKAGE)}

    def found(self, pattern):
        return sorted(name.removeprefix(tree.PACKAGE + '/')
                      for name, text in self.TEXTS.items()
                      for _each in re.findall(pattern, text))

    def test_headers_are_made_in_one_place_for_each_way(self):
        self.assertEqual(['volumes/create.py'],
                         self.found(r'\.crypt\.format\('))
        self.assertEqual(['volumes/create.py'],
                         self.found(r'\.crypt\.format_luks1\('))
        self.assertEqual(['storage/cryptsetup.py'] * 2,
                         self.found(r'cryptsetup_keys\.format_luks\d\('))
        self.assertEqual(['storage/privsep/cryptsetup_keys.py'] * 2,
                         self.found(r"'luksFormat'"))

    def test_nobody_asks_for_the_keys_of_a_table(self):
        self.assertEqual([], self.found('showkeys'))
