# SPDX-License-Identifier: Apache-2.0
"""What is made of an encrypted volume, or of a snapshot, has its own key."""

import contextlib
import dataclasses
import itertools
import logging
from unittest import mock
import uuid

import ddt
import fixtures

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import policy
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import rotate
from cinder_localclone.encryption import upkeep
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted as uncommitted_lvs
from tests.helpers import attach_case
from tests.helpers.own_key_case import A
from tests.helpers.own_key_case import Case
from tests.helpers.own_key_case import ReencryptedCase
from tests.helpers.own_key_case import SNAPSHOT
from tests.helpers.own_key_case import VOLUME
from tests.helpers import revert_case
from tests import world as worlds
from tests.world import crypt
from tests.world import effects
from tests.world import images
from tests.world import records
from tests.world import reencryption as sim


@ddt.ddt
class OwnKeyTest(Case):

    @ddt.data(VOLUME, SNAPSHOT)
    def test_own_key(self, of):
        uncommitted = self.born(of)
        self.assert_own(uncommitted)
        self.assertNotEqual(self.old, uncommitted.encryption.key)
        self.assertWhole(self.volume)
        uncommitted.status = 'available'
        self.delete(uncommitted)
        self.assertEqual([self.old], list(self.world.secrets.kept))
        self.assertEqual({(self.old, 'volumes', self.volume.id)},
                         self.world.secrets.consumers)

    def test_its_image_goes_meanwhile(self):
        uncommitted = self.born()
        self.delete(self.volume)
        self.assertEqual([uncommitted.encryption.key],
                         list(self.world.secrets.kept))

    def check_deleted_before_its_secret_is_recorded(self, busy=False, **specs):
        uncommitted, before = self.row(**specs), set(self.world.secrets.kept)
        consume = crypt.SimKeys.consume

        def late(own, key, *args):
            consume(own, key, *args)
            self.world.destroy(uncommitted)
        with mock.patch.object(crypt.SimKeys, 'consume', late):
            self.assertRaises(exceptions.TooLate, self.bear, uncommitted)
        if busy:
            self.assertIn(uncommitted.name, self.a.lvs)
            uncommitted_lvs.sweep(self.a.node)
        self.assertNotIn(uncommitted.name, self.a.lvs)
        self.assertEqual(before, set(self.world.secrets.kept))
        self.assertEqual({(self.old, 'volumes', self.volume.id)},
                         self.world.secrets.consumers)

    def test_deleted_before_its_secret_is_recorded(self):
        """The node that was asked for it did not answer in time."""
        self.check_deleted_before_its_secret_is_recorded()

    def test_deleted_before_its_secret_is_recorded_while_its_lv_is_busy(self):
        """The sweep removes both later."""
        remove, busy = uncommitted_lvs.remove, [exceptions.CommandFailed(
            command='lvremove', code=5, stderr='busy')]

        def removed(*args):
            if busy:
                raise busy.pop()
            remove(*args)
        with mock.patch.object(uncommitted_lvs, 'remove', removed):
            self.check_deleted_before_its_secret_is_recorded(busy=True)

    def test_first_error_is_told_though_the_database_is_away(self):
        uncommitted = self.row()

        def fails(_node, _volume):
            self.useFixture(fixtures.MockPatchObject(
                records.SimVolumes, 'volume', side_effect=KeyError('away')))
            raise OSError('the first')
        with mock.patch.object(rotate, 'give_own_key', fails):
            self.assertRaises(OSError, self.bear, uncommitted)

    def test_deleted_before_the_secret_of_its_type_is_recorded(self):
        """It does not stay a consumer: others could never delete the secret.
        """
        self.world.secrets.kept['ours'] = 'for all', b'K'
        self.check_deleted_before_its_secret_is_recorded(key='type:ours')

    def test_deletion_releases_no_secret_without_a_reference(self):
        """The error would say that a consumer entry is left."""
        with mock.patch.object(crypt.SimKeys, 'release', autospec=True,
                               side_effect=crypt.SimKeys.release) as release:
            self.delete(self.volume)
        self.assertEqual({self.old}, {
            call.args[1] for call in release.call_args_list})

    def test_deletion_removes_no_secret_without_a_reference(self):
        """Its creation had failed; the error would say that one is left."""
        self.volume.provider_id = str(dataclasses.replace(
            self.volume.encryption, key=''))
        with mock.patch.object(crypt.SimKeys, 'remove', autospec=True,
                               side_effect=crypt.SimKeys.remove) as remove:
            self.delete(self.volume)
        self.assertEqual([self.old], [
            call.args[1] for call in remove.call_args_list])

    def test_own_secret_that_is_refused(self):
        """Nobody but an administrator will remove it."""
        self.world.secrets.consumers.add((self.old, 'images', 'another'))
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.delete(self.volume)
        self.assertIn('its secret could not be removed', log.output)

    @ddt.data(0, 1)
    def test_snapshot_of_either_id_of_a_deleted_volume(self, which):
        """After Cinder's own migration a volume has two IDs."""
        recorded, kept = self.volume.encryption, self.world.secrets.kept
        kept['older'] = names.secret(str(uuid.uuid4())), b'K'
        ids = sorted((self.volume.id, str(uuid.uuid4())))
        snapshot_id = self.snapshot()
        self.world.secrets.consumers |= {
            ('older', 'volumes', each) for each in ids}
        self.world.set_snapshot(
            snapshot_id, status='deleted', deleted=True, volume_id=ids[which],
            provider_id=str(dataclasses.replace(recorded, key='older')))
        self.world.destroy(self.volume)
        with self.a.lock(ids[0]), self.a.lock(ids[1]):
            policy.forget(self.a.node, ids, recorded.key)
        self.assertEqual({}, kept)

    def test_secret_of_a_deleted_snapshot_that_is_refused(self):
        """The secret of the volume goes nevertheless.

        Another volume is a consumer of the secret of the snapshot, and removes
        it at its end.
        """
        recorded, kept = self.volume.encryption, self.world.secrets.kept
        for key in ('a refused', 'z refused'):  # before and after its own
            kept[key] = names.secret(str(uuid.uuid4())), b'K'
            self.world.secrets.consumers.add((key, 'volumes', 'another'))
            self.world.set_snapshot(
                self.snapshot(), status='deleted', deleted=True,
                provider_id=str(dataclasses.replace(recorded, key=key)))
        log = self.useFixture(fixtures.FakeLogger(level=logging.ERROR))
        self.delete(self.volume)
        self.assertEqual({'a refused', 'z refused'}, set(kept))
        self.assertNotIn('could not be removed', log.output)

    def test_keys_of_the_image_do_not_open_it(self):
        added = operator.add_recovery_key(self.a.node, self.volume.id)
        self.header.slots['7'] = b'by hand'
        uncommitted = self.born()
        self.assert_own(uncommitted)
        self.assertEqual(3, len(self.header.slots))
        self.assertIn(added.key.encode(), self.header.slots.values())

    @ddt.data(VOLUME, SNAPSHOT)
    def test_image_whose_key_is_being_changed(self, of):
        """That change goes on, as if there were no newborn."""
        for stop in range(1, 40):
            self.of(worlds.World())
            self.world.stop_at = (self.world.moment + stop,)
            self.world.faults = ('kill',)
            try:
                self.rotate()
                self.assertGreater(stop, 12)
                return
            except effects.Stopped:
                self.a.dead = False
            uncommitted = self.born(of)
            self.assert_own(uncommitted)
            self.assert_opens()
            uncommitted.status = 'available'
            self.delete(uncommitted)
            self.assert_opens()
            for snapshot_id in self.world.snapshots:
                self.world.set_snapshot(snapshot_id, deleted=True)
            self.rotate()
            self.assert_changed()
        self.fail('it never ends')

    @ddt.data(VOLUME, SNAPSHOT)
    def test_image_with_a_header_of_other_data(self, of):
        """It would be pinned, and given out as that of the newborn."""
        uncommitted = self.row()
        self.header.digest = 'of somebody else'
        self.assertRaises(
            encryption_exceptions.ForeignHeader, self.bear, uncommitted,
            self.snapshot() if of == SNAPSHOT else None)
        self.assertNotIn(uncommitted.name, self.a.lvs)

    @ddt.data(VOLUME, SNAPSHOT)
    def test_image_whose_re_encryption_has_ended_unrecorded(self, of):
        """The newborn has the new pin alone."""
        reencrypt.start(self.a.node, self.volume.id,
                        reencrypt.Wish())
        self.a.reconciler.reconcile_node()
        sim.end(self.a, self.volume.id)
        uncommitted = self.born(of)
        self.assert_own(uncommitted)
        recorded = uncommitted.encryption
        self.assertEqual(
            (self.a.node.crypt.header(uncommitted.id).pin, None),
            (recorded.pin, recorded.becoming))

    def test_shared_key(self):
        self.of(worlds.World())
        self.world.secrets.kept['ours'] = 'for all', b'K'
        self.world.secrets.kept['others'] = 'for all', b'O'
        volume = self.volume = self.row(key='type:ours')
        self.create(volume)
        volume.status = 'available'
        self.header.slots['7'] = b'by hand'
        self.assert_own(self.born(key='type:ours'), 'ours')
        self.assert_own(self.born(key='type:others'), 'others')
        self.assert_own(self.born())
        self.assertIn('ours', self.world.secrets.kept)

    def image_with_a_shared_key(self):
        """The next ones are made of it; somebody added a key by hand."""
        self.of(worlds.World())
        self.world.secrets.kept['ours'] = 'for all', b'K'
        volume = self.volume = self.row(key='type:ours')
        self.create(volume)
        volume.status = 'available'
        self.header.slots['7'] = b'by hand'

    def test_backup_of_one_with_the_shared_key_of_its_image(self):
        """Nothing else makes one."""
        self.image_with_a_shared_key()
        uncommitted = self.born(key='type:ours')
        name, = self.a.node.crypt.backup_names(uncommitted.id)
        self.assertEqual({'0': b'K'}, self.world.copies[
            uncommitted.id, name].slots)

    @ddt.data(({'key': 'type:ours', 'key_format': 'passphrase'},
               cryptsetup_cli.PASSPHRASE),
              ({'key': 'type:ours'}, cryptsetup_cli.RANDOM_KEY),
              ({'key_format': 'passphrase'}, cryptsetup_cli.RANDOM_KEY))
    @ddt.unpack
    def test_guesses_of_a_passphrase_take_long(self, specs, derivation):
        self.world.secrets.kept['ours'] = 'for all', b'K'
        with mock.patch.object(crypt.SimCrypt, 'add_key', autospec=True,
                               side_effect=crypt.SimCrypt.add_key) as added:
            self.born(**specs)
        added.assert_called_once()
        self.assertEqual(derivation, added.call_args.args[-1])

    def test_from_its_own_to_a_shared_key(self):
        self.world.secrets.kept['ours'] = 'for all', b'K'
        self.assert_own(self.born(key='type:ours'), 'ours')
        self.assertIn(self.old, self.world.secrets.kept)

    def reencrypt(self):
        """The image, and whatever is made of it."""
        found = crypt.SimCrypt.header

        def under_way(own, volume_id, repair=False):
            return dataclasses.replace(
                found(own, volume_id, repair),
                reencryption=luks_header.Reencryption(
                    0, 'checksum', False, 'aes-xts-plain64', 512))
        self.patch(crypt.SimCrypt, 'header', under_way)
        recorded = self.volume.encryption
        self.volume.provider_id = str(dataclasses.replace(
            recorded, becoming=dataclasses.replace(
                recorded.pin, digest='')))

    @ddt.data(VOLUME, SNAPSHOT)
    def test_larger_than_an_image_that_is_re_encrypted(self, of):
        """Its header says how long its data is: whoever attaches what is
        made of it would have no more than that.
        """
        self.reencrypt()
        uncommitted = self.row()
        uncommitted.size = 2
        error = self.assertRaises(
            encryption_exceptions.Reencrypting, self.bear, uncommitted,
            self.snapshot() if of == SNAPSHOT else None)
        self.assertIn('larger', str(error))
        self.assertNotIn(uncommitted.name, self.a.lvs)

    @ddt.data({}, {'key': 'type:ours'})
    def test_without_a_place_for_backups(self, specs):
        """As with what is created otherwise, that stops nobody: there is no
        backup of it that keys of its image would open.
        """
        self.of(worlds.World())
        self.world.secrets.kept['ours'] = 'for all', b'K'
        volume = self.volume = self.row(**specs)
        self.create(volume)
        volume.status = 'available'
        full = exceptions.CommandFailed(command='c', code=1, stderr='full')
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=full):
            self.assert_own(self.born(**specs), 'ours' if specs else None)
            if not specs:  # what there is of it the old key would open
                self.assertRaises(exceptions.CommandFailed, self.rotate)

    def test_image_that_is_re_encrypted(self):
        """Its keys can't be changed yet: it shares that of its image."""
        self.reencrypt()
        uncommitted = self.born()
        self.assertEqual(self.old, uncommitted.encryption.key)
        self.assertIn((self.old, 'volumes', uncommitted.id),
                      self.world.secrets.consumers)

    def test_boot_of_one_whose_image_is_re_encrypted(self):
        """The tags name the secret of its image, and so does the key manager.

        Nobody else may have it opened by those.
        """
        self.reencrypt()
        uncommitted = self.born()
        thief = self.born()
        self.world.secrets.consumers.discard(
            (self.old, 'volumes', thief.id))
        for each in uncommitted, thief:
            self.a.disk.tags[each.name] -= {names.UNCOMMITTED}
            self.a.disk.tags[each.name] |= {names.OPENED, *names.tags(
                luks=self.a.node.crypt.uuid(each.id), key=self.old)}
        found = {each.volume_id: each for each in upkeep.unlock(
            self.a.node.lvm, self.a.node.handles, {},
            self.a.node.crypt._inner,
            self.a.node.keys, 9)}
        self.assertEqual('', found[uncommitted.id].problem)
        self.assertEqual({uncommitted.id: 'opened', thief.id: 'locked'}, {
            volume_id: each.state for volume_id, each in found.items()})
        self.assertIn('its name', found[thief.id].problem)

    def test_secret_of_the_type_that_is_a_volumes(self):
        uncommitted = self.row(key='type:' + self.old)
        self.assertRaises(encryption_exceptions.KeyRefused, self.bear,
                          uncommitted)
        self.assertNotIn(uncommitted.name, self.a.lvs)

    def test_snapshots_that_the_old_key_opens(self):
        """Whoever rotates because a key has leaked is told of them."""
        of_plain = self.world.snapshot_row(self.volume)
        self.world.set_snapshot(of_plain, status='available')
        snapshot_id = self.snapshot()
        self.assertEqual(
            ['secret %s still opens snapshot %s' % (self.old, snapshot_id)],
            rotate.rotate(self.a.node, self.volume.id))
        added = operator.add_recovery_key(self.a.node, self.volume.id)
        self.assertEqual(
            operator.Removed(added.slot, (
                'it may still open snapshot %s' % snapshot_id,)),
            operator.remove_recovery_key(self.a.node, self.volume.id))
        for each in snapshot_id, of_plain:
            self.world.set_snapshot(each, deleted=True)
        self.a.former_directories = ['/before']
        remark, = rotate.rotate(self.a.node, self.volume.id)
        self.assertIn('/before', remark)
        self.a.former_directories = []
        self.assertEqual([], rotate.rotate(
            self.a.node, self.volume.id))

    def test_revert_after_a_change(self):
        """The header is of before, and so is the secret that it names."""
        snapshot_id = self.snapshot()
        self.rotate()
        new = self.key()
        self.volume.status = 'reverting'
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        revert_case.Base.revert(self.world, self.volume, snapshot_id, A)
        self.assertIn('secret %s, which was replaced' % self.old, log.output)
        self.assertIn(snapshot_id, log.output)
        self.assertEqual(self.old, self.key())
        self.assert_opens()
        self.volume.status = 'available'
        self.world.set_snapshot(snapshot_id, deleted=True)
        self.rotate()
        self.assertNotIn(new, self.world.secrets.kept)
        self.assert_changed()

    def test_re_encryption_after_a_revert(self):
        """The process has no row: the LV says which secret opens it."""
        snapshot_id = self.snapshot()
        self.rotate()
        self.volume.status = 'reverting'
        revert_case.Base.revert(self.world, self.volume, snapshot_id, A)
        self.volume.status = 'available'
        self.world.set_snapshot(snapshot_id, deleted=True)
        node = self.a.node
        reencrypt.start(node, self.volume.id, reencrypt.Wish())
        facts = upkeep.facts_on_lv(node.handles.survey(), self.volume.id)
        self.assertEqual((self.volume.id, self.old),
                         (facts['luks'], facts['key']))

    def test_backup_while_the_key_manager_is_away(self):
        """By the key that was proven before."""
        self.image_with_a_shared_key()
        share = rotate._share

        def then_away(*args):
            share(*args)
            self.world.secrets.state = crypt.AWAY
        with mock.patch.object(rotate, '_share', then_away):
            uncommitted = self.born(key='type:ours')
        self.assertEqual(1,
                         len(self.a.node.crypt.backup_names(uncommitted.id)))


@ddt.ddt
class LateKeyTest(ReencryptedCase):
    """A clone in mid re-encryption gets its own key when that has ended."""

    AWAY = encryption_exceptions.KeyUnavailable(reason='away')

    def sweep(self):
        self.a.reconciler.reconcile_node()

    def shown(self, uncommitted):
        """Return what "status" and "verify" say of the shared secret."""
        node = self.a.node
        with node.lock(uncommitted.id):
            node.handles.ensure_handle_on_lv(
                uncommitted.id, uncommitted.name,
                uncommitted.backing_bytes())
        problems = ''.join(
            each['problem'] for each in headers.verify(node, uncommitted.id)
            if each['what'] == 'key')
        shares = headers.status(node, uncommitted.id)['shares_key']
        self.assertEqual(shares, 'gets its own' in problems)
        return shares

    @ddt.data(VOLUME, SNAPSHOT)
    def test_own_key(self, of):
        uncommitted = self.ended(of)
        self.assertEqual(self.old, uncommitted.encryption.key)
        self.assertTrue(self.shown(uncommitted))
        self.assertFalse(self.shown(self.volume))
        self.sweep()
        self.assert_own(uncommitted)
        self.assertFalse(self.shown(uncommitted))
        key = uncommitted.encryption.key
        self.sweep()
        self.assertEqual(key, uncommitted.encryption.key)
        self.assertEqual({self.old, key}, set(self.world.secrets.kept))

    @ddt.data((True, True), (True, False), (False, True))
    @ddt.unpack
    def test_in_use(self, attached, opened):
        """Its guest keeps it, open or not; its UUID stays."""
        uncommitted = self.begun()
        uncommitted.status = 'in-use'
        uncommitted.volume_attachment = [images.attachment(
            id='1', connector=attach_case.ON_A, connection_info={
                'driver_volume_type': 'local'}, attached_host='a',
            instance_uuid=None, attach_status='attached')]
        name = names.crypt(uncommitted.id)
        self.sweep()
        if opened:
            self.a.opened.add(name)
        if not attached:  # who has it open is late
            uncommitted.status, uncommitted.volume_attachment = 'available', []
        sim.end(self.a, uncommitted.id)
        self.sweep()
        self.assertNotEqual(self.old, uncommitted.encryption.key)
        self.assertIn(name, self.a.devices)
        self.assertEqual(self.volume.id,
                         self.world.headers[uncommitted.id].uuid)
        self.assertFalse(self.shown(uncommitted))

    def test_open_though_nothing_uses_it(self):
        """What decrypts it has the UUID of its image: it is made again."""
        uncommitted, node = self.ended(), self.a.node
        with mock.patch.object(rotate, 'give_own_key_late',
                               side_effect=self.AWAY):
            self.sweep()
        with node.lock(uncommitted.id):
            node.handles.ensure_handle_on_lv(
                uncommitted.id, uncommitted.name,
                uncommitted.backing_bytes())
            node.crypt.open(uncommitted.id,
                            self.world.secrets.kept[self.old][1])
            rotate.give_own_key_late(node, uncommitted.id)
        self.assertNotIn(names.crypt(uncommitted.id), self.a.devices)
        self.assert_own(uncommitted)

    def test_key_manager_is_away(self):
        """The re-encryption ends; the next check gives the key."""
        uncommitted = self.ended()
        self.world.secrets.state = crypt.AWAY
        self.sweep()
        self.assertIsNone(uncommitted.encryption.becoming)
        self.assertEqual(self.old, uncommitted.encryption.key)
        self.world.secrets.state = ''
        self.assertTrue(self.shown(uncommitted))
        self.sweep()
        self.assert_own(uncommitted)

    def test_new_secret_that_is_refused(self):
        """The change goes back; the clone still shares the secret."""
        uncommitted = self.ended()
        get = crypt.SimKeys.get_again

        def refusing(own, key, *args):
            if key != self.old:
                raise encryption_exceptions.KeyRefused(key=key, reason='no')
            return get(own, key, *args)
        with mock.patch.object(crypt.SimKeys, 'get_again', refusing):
            self.sweep()
        self.assertEqual(self.old, uncommitted.encryption.key)
        self.assertTrue(self.shown(uncommitted))
        self.sweep()
        self.assert_own(uncommitted)

    def test_operator_is_first(self):
        uncommitted = self.ended()
        with mock.patch.object(rotate, 'give_own_key_late',
                               side_effect=self.AWAY):
            self.sweep()
        rotate.rotate(self.a.node, uncommitted.id)
        key = uncommitted.encryption.key
        self.assertFalse(self.shown(uncommitted))
        self.sweep()
        self.assertEqual(key, uncommitted.encryption.key)

    def test_clone_of_the_clone(self):
        """Made after the end, before the clone has its own key."""
        uncommitted = self.ended()
        with mock.patch.object(rotate, 'give_own_key_late',
                               side_effect=self.AWAY):
            self.sweep()
        self.assertTrue(uncommitted.encryption.shares_key)
        self.volume = uncommitted
        self.assert_own(self.born())

    def test_image_is_deleted_meanwhile(self):
        uncommitted = self.ended()
        self.delete(self.volume)
        self.world.destroy(self.volume)
        self.assertIn(self.old, self.world.secrets.kept)
        self.sweep()
        self.assert_own(uncommitted)
        self.assertEqual([uncommitted.encryption.key],
                         list(self.world.secrets.kept))

    @ddt.data(True, False)
    def test_secret_of_another(self, exists):
        """Of a volume that exists, or of another cloud's, perhaps deleted."""
        uncommitted = self.ended()
        owner = self.row().id if exists else str(uuid.uuid4())
        kept = self.world.secrets.kept
        kept[self.old] = names.secret(owner), kept[self.old][1]
        self.delete(self.volume)
        self.world.destroy(self.volume)
        self.sweep()
        self.assert_own(uncommitted)
        self.assertIn(self.old, kept)

    def test_name_of_the_old_secret_that_is_not_told(self):
        """The clone has its own key; the old secret stays."""
        uncommitted = self.ended()
        with mock.patch.object(
                crypt.SimKeys, 'owner_of',
                side_effect=encryption_exceptions.KeyRefused(
                    key=self.old, reason='no')) as owner_of:
            self.delete(self.volume)
            self.world.destroy(self.volume)
            self.sweep()
        owner_of.assert_called()
        self.assert_own(uncommitted)
        self.assertIn(self.old, self.world.secrets.kept)

    def test_image_whose_key_was_changed_is_deleted(self):
        """The clone still opens: its row names the former secret."""
        uncommitted = self.ended()
        with mock.patch.object(rotate, 'give_own_key_late',
                               side_effect=self.AWAY):
            self.sweep()
        self.rotate()
        self.assertNotEqual(self.old, self.key())
        self.delete(self.volume)
        self.world.destroy(self.volume)
        self.assertEqual([self.old], list(self.world.secrets.kept))
        self.sweep()
        self.assert_own(uncommitted)

    def test_snapshot_from_before(self):
        """It has kept the secret of the image, which nobody else keeps."""
        uncommitted = self.ended()
        image, self.volume = self.volume, uncommitted
        snapshot_id = self.snapshot()
        self.sweep()
        self.assert_own(uncommitted)
        self.delete(image)
        self.world.destroy(image)
        self.assertIn(self.old, self.world.secrets.kept)
        snapshots.delete(self.a.node, snapshot_id)
        self.world.set_snapshot(snapshot_id, status='deleted', deleted=True)
        self.delete(uncommitted)
        self.assertEqual({}, self.world.secrets.kept)
        self.assertEqual(set(), self.world.secrets.consumers)

    def test_shared_key_of_its_type(self):
        self.world.secrets.kept['ours'] = 'for all', b'K'
        uncommitted = self.ended(key='type:ours')
        self.assertTrue(self.shown(uncommitted))
        self.sweep()
        self.assert_own(uncommitted, 'ours')
        self.assertFalse(self.shown(uncommitted))

    def test_image_has_the_shared_key_of_its_type(self):
        self.of(worlds.World())
        self.world.secrets.kept['ours'] = 'for all', b'K'
        volume = self.volume = self.row(key='type:ours')
        self.create(volume)
        volume.status = 'available'
        uncommitted = self.begun(key='type:ours')
        self.assertFalse(uncommitted.encryption.shares_key)

    def test_type_takes_the_secret_by_now(self):
        uncommitted, kept = self.ended(), self.world.secrets.kept
        kept[self.old] = 'for all', kept[self.old][1]
        uncommitted.extra_specs['localclone:key'] = 'type:' + self.old
        self.sweep()
        self.assertEqual(self.old, uncommitted.encryption.key)
        self.assertFalse(self.shown(uncommitted))

    @ddt.data('kill', 'cut')
    def test_at_every_step(self, fault):
        for stop in itertools.count(1):
            self.of(worlds.World())
            uncommitted = self.ended()
            node = self.a.node
            self.look_without_key()
            self.world.moment, self.world.acting = 0, None
            self.world.stop_at, self.world.faults = (stop,), (fault,)
            try:
                with node.lock(uncommitted.id):
                    rotate.give_own_key_late(node, uncommitted.id)
            except effects.Stopped:
                self.a.dead = False
                self.world.stop_at = ()
                recorded = uncommitted.encryption.key
                self.assertIn(self.world.secrets.kept[recorded][1],
                              self.world.headers[
                                  uncommitted.id].slots.values())
                for _look in range(2):
                    self.sweep()
                self.assert_own(uncommitted)
                self.assertEqual(2, len(self.world.secrets.kept))
                continue
            self.assert_own(uncommitted)
            self.assertGreater(stop, 12)
            return

    def look_without_key(self):
        with mock.patch.object(rotate, 'give_own_key_late',
                               side_effect=self.AWAY):
            self.sweep()


class CopiesTest(Case):
    """A copy of a volume in mid re-encryption has both pins, then one."""

    def setUp(self):
        super().setUp()
        node = self.a.node
        reencrypt.start(node, self.volume.id, reencrypt.Wish(
            cipher='serpent-xts-plain64'))
        sim.go_on(self.a, self.volume.id)
        self.before = self.volume.encryption
        self.snapshot_id = self.world.snapshot_row(self.volume)
        snapshots.create(self.a.reconciler, self.snapshot_id,
                         self.volume.id, 0)
        self.world.set_snapshot(self.snapshot_id, status='available')
        self.assertEqual(self.before, node.snapshots.snapshot(
            self.snapshot_id).encryption)

    def pins(self, volume):
        found = self.world.volumes[volume.id].encryption
        return found.pin, found.becoming

    def ends(self, volume):
        self.assertEqual((self.before.pin, self.before.becoming),
                         self.pins(volume))
        self.a.reconciler.reconcile_node()
        self.assertIn(volume.id, self.a.reencrypting)
        sim.end(self.a, volume.id)
        self.a.reconciler.reconcile_node()
        self.assertEqual((self.before.becoming, None), self.pins(volume))
        self.assertEqual([], self.world.wrongs)

    def test_its_own(self):
        self.ends(self.volume)

    def test_clone(self):
        uncommitted = self.row()
        self.bear(uncommitted)
        uncommitted.status = 'available'
        self.ends(uncommitted)

    def test_clone_of_a_snapshot_once_its_volume_is_done(self):
        self.ends(self.volume)
        uncommitted = self.row()
        self.bear(uncommitted, self.snapshot_id)
        uncommitted.status = 'available'
        self.ends(uncommitted)

    def test_revert_once_it_is_done(self):
        self.ends(self.volume)
        self.volume.status = 'reverting'
        revert_case.Base.revert(
            self.world, self.volume, self.snapshot_id, A)
        self.volume.status = 'available'
        self.ends(self.volume)


class SpaceTest(ReencryptedCase):
    """A clone in mid re-encryption becomes full: all of it is written."""

    def look_with(self, room):
        checked = []

        def check(node, volume):
            self.assertIn(nodes.FREE_SPACE, node.lvm._node.held)
            checked.append(volume.id)
            if not room:
                raise encryption_exceptions.NoSpaceToReencrypt(
                    volume=volume.id, host=node.host, needed=1, free=0)
        with mock.patch.object(reencrypt, '_check_space', check):
            self.a.reconciler.reconcile_node()
        return checked

    def test_goes_on_only_where_there_is_room(self):
        uncommitted = self.begun()
        said = []
        with mock.patch.object(events, 'say', lambda event, **facts: (
                said.append((event, facts.get('volume'))))):
            self.assertEqual([uncommitted.id], self.look_with(False))
        self.assertIn((events.REENCRYPTION_STOPPED, uncommitted.id), said)
        self.assertNotIn(uncommitted.id, self.a.reencrypting)
        self.assertNotIn(names.REENCRYPTED, self.a.disk.tags[uncommitted.name])
        self.assertEqual([uncommitted.id], self.look_with(True))
        # Its room is taken.
        self.assertIn(names.REENCRYPTED, self.a.disk.tags[uncommitted.name])
        self.assertIn(uncommitted.id, self.a.reencrypting)
        self.assertEqual([], self.look_with(False))  # it has its room

    def test_key_is_pinned_though_there_is_no_room(self):
        """What its image's row has announced only is not left open."""
        with mock.patch.object(reencrypt, '_pin_new_key',
                               autospec=True, side_effect=OSError):
            self.assertRaises(OSError, reencrypt.start, self.a.node,
                              self.volume.id, reencrypt.Wish())
        uncommitted = self.row()
        self.bear(uncommitted)
        uncommitted.status = 'available'
        self.assertEqual('', uncommitted.encryption.becoming.digest)
        with mock.patch.object(events, 'say', autospec=True):
            self.assertIn(uncommitted.id, self.look_with(False))
        self.assertNotIn(uncommitted.id, self.a.reencrypting)
        self.assertEqual(self.world.headers[uncommitted.id].under_way.digest,
                         uncommitted.encryption.becoming.digest)


@ddt.ddt
class StopsTest(Case):

    @ddt.data(*itertools.product((VOLUME, SNAPSHOT), ('kill', 'cut')))
    @ddt.unpack
    def test_at_every_step(self, of, fault):
        for stop in itertools.count(1):
            self.of(worlds.World())
            uncommitted = self.row()
            snapshot_id = self.snapshot() if of == SNAPSHOT else None
            self.world.moment, self.world.acting = 0, None
            self.world.stop_at, self.world.faults = (stop,), (fault,)
            try:
                self.bear(uncommitted, snapshot_id)
                self.assertGreater(stop, 20)
                return
            except (effects.Stopped, exceptions.PeerUnreachable):
                self.a.dead = False
            uncommitted.status = 'error'  # Cinder's manager says so
            self.a.reconciler.reconcile_node()
            self.delete(uncommitted)
            del self.world.volumes[uncommitted.id]
            self.assertNotIn(uncommitted.name, self.a.lvs)
            self.assertEqual([self.old], list(self.world.secrets.kept))
            self.assert_opens()
            self.assertEqual([], self.world.wrongs)

    def test_without_a_key_manager_at_every_step(self):
        for moment in range(1, 60):
            self.of(worlds.World())
            uncommitted = self.row()
            world, tick, left = self.world, self.world.tick, [moment]

            def transient(node, what):
                left[0] -= 1
                if not left[0]:
                    world.secrets.state = crypt.AWAY
                tick(node, what)
            world.tick = transient
            done = False
            with contextlib.suppress(exceptions.LocalCloneError):
                self.bear(uncommitted)
                done = True
            left[0], world.secrets.state = 0, ''
            if done:
                self.assert_own(uncommitted)
            else:
                self.assertNotIn(uncommitted.name, self.a.lvs)
                self.create(uncommitted)  # as Cinder does with an image
                token, = self.world.headers[uncommitted.id].tokens.values()
                self.assertEqual(luks_header.Role.VOLUME, token.role)
            uncommitted.status = 'available'
            self.delete(uncommitted)
            self.assertEqual([self.old], list(self.world.secrets.kept))
            self.assert_opens()
