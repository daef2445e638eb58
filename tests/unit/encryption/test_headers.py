# SPDX-License-Identifier: Apache-2.0
"""Recovery keys; what an operator sees of headers, keeps and restores."""

import dataclasses
import itertools
from unittest import mock

import ddt

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import statuses
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import boot_notes
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import rotate
from tests.helpers import attach_case
from tests.helpers.headers_case import Case
from tests.helpers import rotate_case
from tests import world as worlds
from tests.world import crypt
from tests.world import effects
from tests.world import stack

A, B = rotate_case.A, rotate_case.B


@ddt.ddt
class RecoveryTest(Case):

    def test_shown_once(self):
        added = self.add()
        self.assertEqual((64, 12), (len(added.key), added.key.count('-')))
        self.assertNotIn(added.key, repr(added))
        self.assertTrue(self.opens(added.key))
        self.assertEqual([added.slot], self.status()['recovery_keys'])
        self.assertEqual({self.old}, set(self.world.secrets.kept))
        self.assertNotEqual(added.key, self.add().key)

    def test_announced_slot_of_the_volumes_own_key(self):
        """A change of the key has made it, and was cut off then."""
        self.header.slots['5'] = b'new'
        self.header.tokens['5'] = dataclasses.replace(
            self.header.tokens['0'], key='new', keyslots=(), slot='5',
            number='5', replaces=self.old)
        error = self.assertRaises(encryption_exceptions.KeyNotChanged,
                                  self.remove, '5')
        self.assertIn('the key of its secret', str(error))
        self.assertIn('5', self.header.slots)

    def test_shown_though_there_is_no_backup(self):
        """The disk for backups is full. A key that opens the volume, and
        that nobody was shown, would pass for a recovery key.
        """
        full = exceptions.CommandFailed(command='c', code=1, stderr='full')
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=full):
            added = self.add()
        self.assertTrue(self.opens(added.key))
        self.assertEqual([added.slot], self.status()['recovery_keys'])

    def half(self, key):
        """A token of a recovery key that was not added to its end."""
        self.header.tokens['7'] = dataclasses.replace(
            self.header.tokens['0'], role=luks_header.Role.RECOVERY, key=key,
            keyslots=(), number='7')

    @ddt.data(True, False)
    def test_half_with_the_secret_of_another_volume(self, in_use):
        """Anybody can write a token: that secret stays. Not every key
        manager keeps who uses one.
        """
        theirs = self.secret_of_another(in_use)
        self.half(theirs)
        self.add()
        self.assertNotIn('7', self.header.tokens)
        self.assertIn(theirs, self.world.secrets.kept)

    def test_half_with_the_secret_of_its_row(self):
        self.half(self.old)
        self.world.secrets.consumers.clear()
        self.add()
        self.assertIn(self.old, self.world.secrets.kept)
        self.assert_opens()

    def test_half_with_a_secret_of_its_own(self):
        key = self.a.node.keys.create(self.volume.id)
        self.half(key)
        self.add()
        self.assertNotIn(key, self.world.secrets.kept)

    def test_stored_one_of_another_volume(self):
        """Whoever has written its token has no volume opened by it."""
        other = self.row()
        self.create(other)
        theirs = other.encryption.key
        self.header.tokens['7'] = dataclasses.replace(
            self.header.tokens['0'], role=luks_header.Role.RECOVERY,
            key=theirs, number='7')
        self.assertRaises(encryption_exceptions.KeyRefused,
                          operator.rotate_by_recovery_key, self.a.node,
                          self.volume.id)

    NO_BACKUP = encryption_exceptions.NoBackup(
        volume='v', directory='/d', reason='full')

    def remove_beside_a_backup(self):
        """A recovery key, of which a backup stays; that one is right for the
        service, whose look is returned.
        """
        added, sweep = self.add(), header_backups.Sweep(self.a.node)
        sweep.sweep()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=self.NO_BACKUP):
            error = self.assertRaises(encryption_exceptions.StaleBackup,
                                      self.remove)
            sweep.sweep()
        self.assertIn('is empty now, but backups of the header may still',
                      str(error))
        self.assertIn(str(self.NO_BACKUP), str(error))
        self.assertFalse(self.opens(added.key))
        self.assertTrue(self.opens_backup(added))
        return added, sweep

    def opens_backup(self, added):
        node = self.a.node
        try:
            node.crypt.test_backup(
                self.volume.id, node.crypt.backup_names(self.volume.id)[-1],
                added.key.encode())
        except encryption_exceptions.WrongKey:
            return False
        return True

    def test_removed_but_not_from_the_backup(self):
        """By a command, which is another process than the service."""
        added, sweep = self.remove_beside_a_backup()
        sweep.sweep()
        self.assertFalse(self.opens_backup(added))
        self.assertNotIn(names.OUTDATED, self.a.disk.tags[self.volume.name])
        with mock.patch.object(crypt.SimCrypt, 'renew_backup') as renewed:
            sweep.sweep()
        renewed.assert_not_called()

    def test_removed_and_another_one_has_its_slot(self):
        """The backup looks as if it were of the same keys."""
        added, sweep = self.remove_beside_a_backup()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=self.NO_BACKUP):
            other = self.add()
        self.assertEqual(added.slot, other.slot)
        self.assertNotIn('backup of the header', self.wrong())
        sweep.sweep()
        self.assertFalse(self.opens_backup(added))
        self.assertTrue(self.opens_backup(other))

    @ddt.data(NO_BACKUP, OSError('gone'))
    def test_what_is_said_of_backups_that_are_left(self, error):
        added = self.add()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=error):
            stale = self.assertRaises(encryption_exceptions.StaleBackup,
                                      self.remove)
        self.assertIn('Key slot %s of volume %s is empty now' % (
            added.slot, self.volume.id), str(stale))
        self.assertIn(str(error), str(stale))

    def test_slot_that_is_not_empty_is_not_said_to_be(self):
        added = self.add()
        failed = exceptions.CommandFailed(command='c', code=1, stderr='no')
        with mock.patch.object(crypt.SimCrypt, 'kill_slot',
                               side_effect=failed):
            self.assertRaises(exceptions.CommandFailed, self.remove)
        self.assertTrue(self.opens(added.key))

    def test_what_is_not_removed_outdates_nothing(self):
        added = self.add()
        with mock.patch.object(stack.SimLvm, 'mark') as marked:
            self.assertRaises(encryption_exceptions.KeyNotChanged,
                              self.remove, '0')
            self.world.secrets.state = crypt.AWAY
            self.assertRaises(encryption_exceptions.KeyUnavailable,
                              self.remove, added.slot)
        marked.assert_not_called()

    def test_removed_and_backed_up_by_hand(self):
        added, _look = self.remove_beside_a_backup()
        headers.back_up(self.a.node, self.volume.id)
        self.assertFalse(self.opens_backup(added))
        self.assertNotIn(names.OUTDATED, self.a.disk.tags[self.volume.name])

    def test_backups_are_away_when_it_is_removed(self):
        """The disk that they are on is mounted again with the old one."""
        added, sweep = self.add(), header_backups.Sweep(self.a.node)
        sweep.sweep()
        kept = dict(self.world.backups), dict(self.world.copies)
        self.world.backups.clear()
        self.world.copies.clear()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=self.NO_BACKUP), \
                mock.patch.object(crypt.SimCrypt, 'back_up'):
            self.assertRaises(encryption_exceptions.StaleBackup, self.remove)
        self.world.backups.update(kept[0])
        self.world.copies.update(kept[1])
        sweep.sweep()
        self.assertFalse(self.opens_backup(added))

    def test_backups_are_beneath_a_mount_when_it_is_removed(self):
        """They are made in the empty directory until the disk is back."""
        added, sweep = self.add(), header_backups.Sweep(self.a.node)
        sweep.sweep()
        kept = dict(self.world.backups), dict(self.world.copies)
        self.world.backups.clear()
        self.world.copies.clear()
        self.world.backup_disk = 1, 2
        self.remove()
        sweep.sweep()
        self.world.backup_disk = 8, 2
        self.world.backups.update(kept[0])
        self.world.copies.clear()
        self.world.copies.update(kept[1])
        sweep.sweep()
        self.assertFalse(self.opens_backup(added))

    def test_power_is_cut_when_it_is_removed(self):
        """Marked before, so that nobody has to know of it afterwards."""
        def cut(_crypt, *_args):
            self.assertIn(names.OUTDATED,
                          self.a.disk.tags[self.volume.name])
            raise KeyboardInterrupt
        self.add()
        with mock.patch.object(crypt.SimCrypt, 'kill_slot', cut):
            self.assertRaises(KeyboardInterrupt, self.remove)

    def test_marked_where_no_backups_are_kept_just_now(self):
        """Those of before are restored once their directory is set again."""
        added = self.add()
        headers.back_up(self.a.node, self.volume.id)
        with mock.patch.object(crypt.SimCrypt, 'keeps_backups',
                               autospec=True, return_value=False):
            self.remove()
        self.assertTrue(self.opens_backup(added))
        self.assertTrue(self.is_marked())
        self.world.headers[self.volume.id] = None
        operator.restore_header(self.a.node, self.volume.id)
        self.assertFalse(self.opens(added.key))
        self.assertFalse(self.is_marked())

    def test_not_shown_if_it_does_not_open_the_volume(self):
        found = crypt.SimCrypt.add_key

        def otherwise(own, volume_id, key, new_key, slot, options):
            found(own, volume_id, key, b'cut off', slot, options)
        with mock.patch.object(crypt.SimCrypt, 'add_key', otherwise):
            self.assertRaises(encryption_exceptions.WrongKey, self.add)
        self.assertEqual([], self.status()['recovery_keys'])

    def test_stored(self):
        added = self.add(store=True)
        self.assertEqual('', added.key)
        self.assertEqual({self.old, added.secret},
                         set(self.world.secrets.kept))
        self.assertIn((added.secret, 'volumes', self.volume.id),
                      self.world.secrets.consumers)
        self.rotate()
        self.assertEqual(2, len(self.world.secrets.kept))
        self.assertIn(added.secret, self.world.secrets.kept)
        self.remove()
        self.assertEqual({self.key()}, set(self.world.secrets.kept))
        self.assert_changed()

    def test_stored_one_is_proven_over_a_new_login(self):
        """The slot may have been made of one wrong answer. Nor is that a
        proof which opens another slot than its own.
        """
        for wrong in (b'cut off', self.world.secrets.kept[self.old][1]):
            with mock.patch.object(crypt.SimKeys, 'get_again', autospec=True,
                                   return_value=wrong) as again:
                self.assertRaises(encryption_exceptions.WrongKey, self.add,
                                  store=True)
            again.assert_called_once_with(
                mock.ANY, mock.ANY, volume_types.KeyFormat.HEX,
                self.volume.id)
            self.assertEqual([], self.status()['recovery_keys'])

    @ddt.data('add', 'remove')
    def test_what_was_not_added_to_its_end_goes(self, act):
        """Its secret, too: nothing else names that one."""
        full = exceptions.CommandFailed(command='c', code=1, stderr='full')
        with mock.patch.object(crypt.SimCrypt, 'add_key', side_effect=full):
            self.assertRaises(exceptions.CommandFailed, self.add, store=True)
        self.assertEqual((2, 2), (len(self.header.tokens),
                                  len(self.world.secrets.kept)))
        if act == 'add':
            self.add()
            self.assertEqual(2, len(self.header.tokens))
        else:
            self.assertRaises(encryption_exceptions.KeyNotChanged, self.remove)
            self.assertEqual(['0'], list(self.header.tokens))
        self.assertEqual([self.old], list(self.world.secrets.kept))

    def test_goes_with_its_volume(self):
        self.add(store=True)
        self.delete(self.volume)
        self.assertNothingLeft()

    def test_removed(self):
        first, second = self.add(), self.add()
        error = self.assertRaises(encryption_exceptions.KeyNotChanged,
                                  self.remove)
        self.assertIn('several', str(error))
        self.assertEqual(operator.Removed(first.slot),
                         self.remove(first.slot))
        self.assertFalse(self.opens(first.key))
        self.assertTrue(self.opens(second.key))
        self.assertEqual(second.slot, self.remove().slot)
        self.assertFalse(self.is_marked())
        self.assertIn('no recovery key', str(self.assertRaises(
            encryption_exceptions.KeyNotChanged, self.remove)))
        self.assert_settled()

    def test_those_that_are_not_to_be_removed(self):
        for slot, words in (
                ('0', 'the key of its secret'), ('7', 'no key slot 7')):
            error = self.assertRaises(encryption_exceptions.KeyNotChanged,
                                      self.remove, slot)
            self.assertIn(words, str(error))
        self.header.slots['5'] = b'by hand'
        self.assertEqual(['5'], self.status()['unknown_keys'])
        self.assertEqual('5', self.remove('5').slot)
        self.assert_settled()

    def test_backups_are_of_the_same_keys(self):
        for act in (self.add, self.remove):
            act()
            name, = self.a.node.crypt.backup_names(self.volume.id)
            found = self.a.node.crypt.backed_up(self.volume.id, name)
            self.assertEqual(tuple(self.header.slots), found.all_keyslots)

    def test_backup_names_no_secret_of_one_that_was_removed(self):
        self.add(store=True)
        self.remove()
        self.assertEqual({}, self.wrong())

    def test_refused(self):
        self.a.remote.add((self.volume.id, 'initiator'))
        for act in (self.add, self.remove):
            self.assertRaises(encryption_exceptions.NotAtRest, act)
        self.a.remote.clear()
        self.world.secrets.state = crypt.AWAY
        self.assertRaises(encryption_exceptions.KeyUnavailable, self.add)
        self.assertEqual(1, len(self.header.tokens))

    @ddt.data(*itertools.product((True, False), ('kill', 'cut')))
    @ddt.unpack
    def test_stopped_at_every_step(self, store, fault):
        for stop in itertools.count(1):
            self.of(worlds.World())
            self.volume.status = 'available'
            self.world.moment, self.world.acting = 0, None
            self.world.stop_at, self.world.faults = (stop,), (fault,)
            try:
                self.add(store)
                self.remove()
                return
            except effects.Stopped:
                self.boot()
            self.assert_opens()
            added = self.add(store)
            self.assertIn(added.slot, self.status()['recovery_keys'])
            for slot in list(self.header.slots):
                if slot != '0':
                    self.remove(slot)
            self.rotate()
            self.assert_changed()

    def test_key_manager_is_away_by_the_end(self):
        """The backup is opened by the key that was proven before."""
        with self.away('add_key'):
            self.add()
        self.assertEqual(['2'], self.world.backups[self.volume.id])
        self.world.secrets.state = ''

    def test_key_manager_is_away_by_the_end_of_remove(self):
        self.add()
        with self.away('kill_slot'):
            self.remove()
        self.assertEqual(['3'], self.world.backups[self.volume.id])
        self.assertFalse(self.is_marked())

    def test_backup_that_the_new_key_alone_opens(self):
        """Those of before stay: whoever writes the disk made noise of it."""
        inner = crypt.SimCrypt.write_token

        def write(own, volume_id, number, token, replace=False):
            inner(own, volume_id, number, token, replace=replace)
            if replace:
                self.header.slots['0'] = b'noise'
        with mock.patch.object(crypt.SimCrypt, 'write_token', write):
            self.add()
        self.assertEqual(['1'], self.world.backups[self.volume.id])

    def test_changed_after_it_was_checked(self):
        """What the copy has to say is what was checked."""
        check = rotate.pinning.check

        def then_change(*args):
            check(*args)
            self.header.digest = 'other'
        with self.a.lock(self.volume.id), mock.patch.object(
                rotate.pinning, 'check', then_change):
            self.assertRaises(
                encryption_exceptions.ForeignHeader, rotate.copy_header,
                self.a.node, self.volume, b'old')
        self.assertEqual(['1'], self.world.backups[self.volume.id])

    def test_header_of_other_data(self):
        """Whatever key is known: the backups are all that is left."""
        self.header.digest = 'other'
        with self.a.lock(self.volume.id):
            self.assertRaises(
                encryption_exceptions.ForeignHeader, rotate.copy_header,
                self.a.node, self.volume, b'old')
        self.assertEqual(['1'], self.world.backups[self.volume.id])


@ddt.ddt
class StatusTest(Case):

    def test_status(self):
        self.assertEqual({
            'cipher': 'aes-xts-plain64', 'key_bits': 512, 'sector_size': 512,
            'key_slots': ['0'], 'recovery_keys': [], 'unknown_keys': [],
            'changing': False, 'shares_key': False, 'open': False},
            self.status())
        self.assertRaises(exceptions.StaleMove, headers.status,
                          self.b.node, self.volume.id)

    def test_of_what_the_driver_does_not_encrypt(self):
        """What a guest has written there is not looked at."""
        plain = self.world.create_volume(A)
        for sweep in (headers.status, headers.verify):
            self.assertRaises(encryption_exceptions.KeyNotChanged, sweep,
                              self.a.node, plain.id)

    def test_what_is_verified(self):
        """In the order in which one thing says why the next is wrong."""
        also = ['tags of the LV', 'backup of the header']
        for before in (['copies of the header', 'pin of the header', 'key',
                        'key slots'],
                       ['header', 'copies of the header']):
            self.assertEqual(before + also, [
                each['what'] for each in headers.verify(
                    self.a.node, self.volume.id)])
            self.world.headers[self.volume.id] = None

    def test_change_that_is_not_complete(self):
        self.world.stop_at = (self.world.moment + 9,)
        self.world.faults = ('kill',)
        self.assertRaises(effects.Stopped, self.rotate)
        self.a.dead = False
        self.assertTrue(self.status()['changing'])
        self.assertIn('is incomplete', self.wrong()['key slots'])

    def test_verify(self):
        self.assertEqual({}, self.wrong())
        self.rotate()
        self.assertEqual({}, self.wrong())
        self.add()
        self.assertEqual({}, self.wrong())

    def test_key_that_does_not_open_it(self):
        kept = self.world.secrets.kept
        kept[self.old] = kept[self.old][0], b'other'
        self.assertIn('does not open', self.wrong()['key'])
        del kept[self.old]
        self.assertIn('no', self.wrong()['key'])
        self.volume.provider_id = crypt.recorded('other')
        self.assertIn('no key slot of the recorded secret',
                      self.wrong()['key'])

    def test_header_that_is_lost(self):
        self.world.headers[self.volume.id] = None
        found = self.wrong()
        self.assertIn('header', found)
        self.assertIn('copies of the header', found)

    def test_tags(self):
        self.a.disk.tags[self.volume.name] -= set(names.tags(key=self.old))
        self.assertEqual({}, self.wrong())
        self.a.disk.tags[self.volume.name] |= set(names.tags(key='other'))
        self.assertIn('localclone.key', self.wrong()['tags of the LV'])

    @ddt.data('luks', 'extra')
    def test_tag_that_is_not_true(self, fact):
        tags = self.a.disk.tags
        tags[self.volume.name] = frozenset(names.tags(**{fact: '7'})) | {
            tag for tag in tags[self.volume.name]
            if not tag.startswith('localclone.%s=' % fact)}
        self.assertIn('localclone.%s says 7' % fact,
                      self.wrong()['tags of the LV'])

    def test_what_can_not_be_looked_at(self):
        """It says so, and the rest is looked at."""
        with mock.patch.object(crypt.SimCrypt, 'backup_names',
                               side_effect=OSError('no such disk')):
            self.assertEqual({'backup of the header': 'no such disk'},
                             self.wrong())

    def test_backups(self):
        self.header.slots['4'] = b'by hand'
        self.assertIn('other key slots', self.wrong()['backup of the header'])
        self.header.digest = 'other'
        crypt.pin_again(self.world, self.volume)
        self.assertIn('other data', self.wrong()['backup of the header'])
        self.world.backups.clear()
        self.assertIn('none', self.wrong()['backup of the header'])

    def test_back_up(self):
        name = headers.back_up(self.a.node, self.volume.id)
        self.assertEqual(self.volume.id + '-2', name)
        self.world.headers[self.volume.id] = None
        self.assertRaises(encryption_exceptions.HeaderDamaged,
                          headers.back_up, self.a.node, self.volume.id)
        self.assertEqual(['2'], self.world.backups[self.volume.id])

    def test_back_up_of_what_can_not_be_understood(self):
        """cryptsetup would copy it, and that took the place of the others."""
        self.world.headers[self.volume.id] = None
        with mock.patch.object(crypt.SimCrypt, 'renew_backup') as renewed:
            self.assertRaises(encryption_exceptions.HeaderDamaged,
                              headers.back_up, self.a.node,
                              self.volume.id)
        renewed.assert_not_called()

    def test_back_up_of_what_is_not_its_header(self):
        """The backup of before may be all that is left of its own."""
        own = self.world.headers[self.volume.id].digest
        before = repr(self.world.copies)
        self.world.headers[self.volume.id].digest = 'of somebody else'
        self.assertRaises(encryption_exceptions.ForeignHeader,
                          headers.back_up, self.a.node, self.volume.id)
        self.assertEqual(['1'], self.world.backups[self.volume.id])
        self.assertEqual(before, repr(self.world.copies))
        self.world.headers[self.volume.id].digest = own
        self.assertEqual(self.volume.id + '-2', headers.back_up(
            self.a.node, self.volume.id))

    def test_back_up_of_a_header_that_is_changed_meanwhile(self):
        """It is compared as it is in the copy, not as it was before that."""
        before, inner = repr(self.world.copies), crypt.SimCrypt.renew_backup

        def renew(own, volume_id, *args):
            self.world.headers[volume_id].digest = 'of somebody else'
            inner(own, volume_id, *args)
        with mock.patch.object(crypt.SimCrypt, 'renew_backup', renew):
            self.assertRaises(encryption_exceptions.ForeignHeader,
                              headers.back_up, self.a.node,
                              self.volume.id)
        self.assertEqual(['1'], self.world.backups[self.volume.id])
        self.assertEqual(before, repr(self.world.copies))

    def test_back_up_of_what_no_key_opens(self):
        """Its pin says nothing of what is in its key slots."""
        before = repr(self.world.copies)
        slots = self.world.headers[self.volume.id].slots
        kept = dict(slots)
        slots.update({'0': b'noise', '5': b'noise'})
        self.assertRaises(encryption_exceptions.WrongKey, headers.back_up,
                          self.a.node, self.volume.id)
        header_backups.Sweep(self.a.node).sweep()
        self.assertEqual(['1'], self.world.backups[self.volume.id])
        self.assertEqual(before, repr(self.world.copies))
        slots.update(kept)
        header_backups.Sweep(self.a.node).sweep()
        self.assertEqual(['2'], self.world.backups[self.volume.id])

    def test_back_up_without_a_handle(self):
        del self.a.devices[names.handle(self.volume.id)]
        self.assertEqual(self.volume.id + '-2', headers.back_up(
            self.a.node, self.volume.id))

    def test_back_up_of_what_others_may_change(self):
        self.a.remote.add((self.volume.id, 'initiator'))
        self.assertRaises(encryption_exceptions.NotAtRest, headers.back_up,
                          self.a.node, self.volume.id)
        self.a.remote.clear()
        self.assertEqual(['1'], self.world.backups[self.volume.id])

    def test_back_up_to_no_place_replaces_nothing(self):
        """Those of when there was one still have a key that has gone."""
        self.a.disk.tags[self.volume.name] |= {names.OUTDATED}
        with mock.patch.object(crypt.SimCrypt, 'renew_backup'), \
                mock.patch.object(crypt.SimCrypt, 'backup_names',
                                  return_value=[]), \
                mock.patch.object(crypt.SimCrypt, 'keeps_backups',
                                  return_value=False):
            self.assertRaises(encryption_exceptions.KeyNotChanged,
                              headers.back_up, self.a.node,
                              self.volume.id)
        self.assertTrue(self.is_marked())

    def test_back_up_to_no_place(self):
        with mock.patch.object(crypt.SimCrypt, 'renew_backup'), \
                mock.patch.object(crypt.SimCrypt, 'backup_names',
                                  return_value=[]):
            self.assertRaises(encryption_exceptions.KeyNotChanged,
                              headers.back_up, self.a.node,
                              self.volume.id)


@ddt.ddt
class RestoreTest(Case):

    def restore(self, backup=''):
        return operator.restore_header(self.a.node, self.volume.id, backup)

    def lose(self):
        self.world.headers[self.volume.id] = None

    def backup_of_before(self):
        """The key is changed; a backup with the old one is still there."""
        kept = dict(self.world.copies)
        secret = self.world.secrets.kept[self.old]
        self.rotate()
        self.world.copies.update(kept)
        self.world.backups[self.volume.id].insert(0, '1')
        self.world.secrets.kept[self.old] = secret
        return self.volume.id + '-1'

    def test_lost(self):
        self.lose()
        self.assertEqual(operator.Restored(self.volume.id + '-1'),
                         self.restore())
        self.assert_settled()
        self.assertEqual([(self.volume.id, None)], self.world.saved)

    def test_with_another_key_of_the_same_data(self):
        """As the backup of before would be, had it not been removed."""
        name = self.backup_of_before()
        secret = self.world.secrets.kept.pop(self.old)
        self.assertRaises(encryption_exceptions.KeyRefused, self.restore, name)
        self.assert_changed()  # nothing was written
        self.world.secrets.kept[self.old] = secret
        remark, = self.restore(name).remarks
        self.assertIn('replaced secret ' + self.old, remark)
        self.assertEqual(self.old, self.key())
        self.assert_opens()
        self.assertEqual(self.old, names.facts(
            self.a.disk.tags[self.volume.name])['key'])
        self.rotate()
        self.assert_changed()

    def remove_with_its_backup_kept(self, slot=''):
        """A key is removed; a backup has it for now."""
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=RecoveryTest.NO_BACKUP):
            self.assertRaises(encryption_exceptions.StaleBackup, self.remove,
                              *[slot] * bool(slot))

    @ddt.data(*itertools.product(('kill', 'cut'), (True, False)))
    @ddt.unpack
    def test_stopped_anywhere(self, fault, older):
        """What is there at any moment opens by no key that was removed, and
        has no UUID but its own; keys that were not removed stay.
        """
        for stop in itertools.count(1):
            self.of(worlds.World())
            self.volume.status = 'available'
            added = self.add()
            if older:
                self.remove_with_its_backup_kept()
            for copied in self.world.copies.values():
                copied.uuid = self.volume.id[:-4] + 'beef'
            self.lose()
            self.world.moment, self.world.acting = 0, None
            self.world.stop_at, self.world.faults = (stop,), (fault,)
            try:
                self.restore()
                return
            except effects.Stopped:
                self.boot()
            if self.world.headers[self.volume.id]:
                self.assertEqual(not older, self.opens(added.key))
                self.assertEqual(self.volume.id, self.header.uuid)
            # A key that is added now, or goes, is as it is afterwards.
            self.restore()
            self.assertEqual(not older, self.opens(added.key))
            self.assertFalse(self.is_marked())
            self.assert_opens()

    def refused(self, words, backup='', error=None):
        before = repr(self.world.headers)
        exc = self.assertRaises(error or encryption_exceptions.KeyNotChanged,
                                self.restore, backup)
        self.assertIn(words, str(exc))
        self.assertEqual(before, repr(self.world.headers))
        self.assertEqual([], self.world.saved)

    def test_of_other_data(self):
        self.header.digest = 'encrypted anew'
        crypt.pin_again(self.world, self.volume)
        self.refused('other data')
        self.lose()
        self.refused('other data')

    def test_outdated(self):
        """The recovery key was removed; its backup could not be replaced.
        It opens the volume no more, whatever is restored.
        """
        added, other = self.add(), self.add()
        headers.back_up(self.a.node, self.volume.id)
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=RecoveryTest.NO_BACKUP):
            self.assertRaises(encryption_exceptions.StaleBackup, self.remove,
                              added.slot)
        self.assertTrue(self.is_marked())
        self.lose()
        remark, = self.restore().remarks
        self.assertIn('add recovery keys again', remark)
        self.assertEqual([False, False], [
            self.opens(each.key) for each in (added, other)])
        self.assert_opens()
        self.assertFalse(self.is_marked())
        self.lose()
        self.restore()
        self.assertFalse(self.opens(added.key))

    def test_not_outdated(self):
        added = self.add()
        self.lose()
        self.restore()
        self.assertTrue(self.opens(added.key))

    def test_over_a_header_of_other_data(self):
        """Somebody has written it: the row says which is right."""
        self.header.digest = 'of somebody else'
        self.restore()
        self.assert_opens()

    def test_after_a_change_of_its_key(self):
        self.rotate()
        self.lose()
        self.restore()
        self.assert_changed()
        self.assertEqual({}, self.wrong())

    def test_of_before_a_re_encryption(self):
        """Its key opens what the backup is of; what is encrypted anew would
        be noise all the same, and nobody would be told.
        """
        self.becomes('anew')
        for lose in (lambda: None, self.lose):
            lose()
            self.refused('re-encrypted')

    def becomes(self, digest):
        """The row announces a re-encryption."""
        recorded = self.volume.encryption
        self.volume.provider_id = str(dataclasses.replace(
            recorded, becoming=dataclasses.replace(
                recorded.pin, key_bits=256, digest=digest)))

    def test_lost_when_a_re_encryption_began(self):
        """The power went while that wrote the header. No data is encrypted
        with a key before the row has pinned the key.
        """
        self.becomes('')
        self.lose()
        self.restore()
        self.assert_opens()

    def test_of_a_re_encryption_whose_end_is_not_recorded(self):
        self.becomes('anew')
        for copy in (self.header, *self.world.copies.values()):
            copy.digest, copy.key_bits = 'anew', 256
        self.lose()
        self.restore()
        self.assert_opens()

    def cut_short(self, step='test'):
        """The service dies before a step, after the header was written."""
        self.lose()
        with mock.patch.object(crypt.SimCrypt, step,
                               side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, self.restore)

    def test_attached_while_it_is_written(self):
        """By Cinder's API; the driver has not come to it yet."""
        for copy in self.world.copies.values():
            copy.uuid = self.volume.id[:-4] + 'beef'
        self.lose()
        restore = crypt.SimCrypt.restore

        def attached(*args):
            restore(*args)
            self.volume.volume_attachment = [attach_case.attachment('a')]
        with mock.patch.object(crypt.SimCrypt, 'restore', attached):
            self.restore()
        self.assertEqual(self.volume.id,
                         self.a.node.crypt.uuid(self.volume.id))

    def test_cut_short_and_a_key_is_added_afterwards(self):
        """The look that comes then leaves it."""
        self.add()
        self.remove_with_its_backup_kept()
        self.cut_short()
        added = self.add()
        header_backups.Sweep(self.a.node).sweep()
        self.assertTrue(self.opens(added.key))
        self.assertFalse(self.is_marked())

    def test_cut_short_and_moved(self):
        removed = self.add()
        self.remove_with_its_backup_kept()
        self.cut_short()
        self.a.move(self.volume, B)
        self.a = self.world.nodes[B]
        self.assertFalse(self.opens(removed.key))
        self.assert_opens()

    def test_cut_short_and_a_key_goes_afterwards(self):
        """The backup had no key too many: the others stay."""
        one, two = self.add(), self.add()
        self.cut_short()
        self.rotate()
        self.remove(one.slot)
        header_backups.Sweep(self.a.node).sweep()
        self.assertFalse(self.opens(one.key))
        self.assertTrue(self.opens(two.key))

    @ddt.data(True, False)
    def test_cut_short_and_a_tag_names_the_uuid_of_before(self, at_once):
        """That of a clone that was in use all the time is its image's."""
        beef = self.volume.id[:-4] + 'beef'
        self.a.disk.tags[self.volume.name] -= set(names.tags(
            luks=self.volume.id))
        self.a.disk.tags[self.volume.name] |= set(names.tags(luks=beef))
        for copy in self.world.copies.values():
            copy.uuid = beef
        restore = crypt.SimCrypt.restore

        def dies(*args):
            restore(*args)
            if at_once:
                raise KeyboardInterrupt
        self.patch(crypt.SimCrypt, 'restore', dies)
        self.cut_short()
        with self.a.node.lock(self.volume.id):
            devices.ensure_open(
                self.a.node, self.volume, self.volume.name)
        self.assertIn(names.crypt(self.volume.id), self.a.devices)

    def test_token_that_names_a_slot_which_its_key_does_not_open(self):
        """Whoever can write the disk can write any token."""
        self.header.slots['7'] = b'of nobody'
        self.header.tokens['0'] = dataclasses.replace(
            self.header.tokens['0'],
            keyslots=(*self.header.tokens['0'].keyslots, '7'))
        headers.back_up(self.a.node, self.volume.id)  # or a look
        self.a.disk.tags[self.volume.name] |= {names.OUTDATED}
        self.lose()
        self.restore()
        self.assert_opens()
        self.assertEqual({'0'}, set(self.header.slots))

    def older(self):
        """A backup of before a removal and a rotation; no tag tells.

        :returns: the key that was removed, and the backup's name
        """
        added = self.add()
        what = self.world.backups[self.volume.id][-1]
        copies = dict(self.world.copies)
        secret = self.world.secrets.kept[self.old]
        self.remove(added.slot)
        self.rotate()
        self.assertFalse(self.is_marked())
        self.world.copies.update(copies)
        self.world.backups[self.volume.id].insert(0, what)
        self.world.secrets.kept[self.old] = secret
        return added.key, '%s-%s' % (self.volume.id, what)

    def test_repeated_after_its_row_names_the_older_secret(self):
        removed, name = self.older()
        with mock.patch.object(boot_notes, 'set_secret_tags', side_effect=(
                exceptions.CommandFailed(command='c', code=5, stderr='LVM'))):
            self.assertRaises(exceptions.CommandFailed, self.restore, name)
        self.assertFalse(self.opens(removed))
        self.restore(name)
        self.assertFalse(self.opens(removed))

    def test_nothing_is_written_of_an_older_backup(self):
        """So nothing is outdated: no backup goes, nor a key of the last one.
        """
        rightful = self.add()
        _removed, name = self.older()
        error = encryption_exceptions.HeaderInUse(path='p', reason='locked')
        with mock.patch.object(crypt.SimCrypt, 'restore', side_effect=error):
            self.assertRaises(type(error), self.restore, name)
        header_backups.Sweep(self.a.node).sweep()
        self.assertIn(name, self.a.node.crypt.backup_names(self.volume.id))
        self.lose()
        self.restore()
        self.assert_opens()
        self.assertTrue(self.opens(rightful.key))

    def test_restored_twice_though_the_backup_could_not_be_replaced(self):
        removed, name = self.older()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=RecoveryTest.NO_BACKUP):
            self.restore(name)
        self.lose()
        self.restore(name)
        self.assertFalse(self.opens(removed))

    def test_backup_of_before_the_last_change_of_the_key(self):
        """Its directory is configured again. That its secret is another one
        says that it is older, whatever tags say.
        """
        added = self.add()
        what = self.world.backups[self.volume.id][-1]
        kept = dict(self.world.copies)
        secret = self.world.secrets.kept[self.old]
        self.remove(added.slot)
        self.rotate()
        self.assertFalse(self.is_marked())
        self.world.copies.update(kept)
        self.world.backups[self.volume.id].insert(0, what)
        self.world.secrets.kept[self.old] = secret
        self.restore('%s-%s' % (self.volume.id, what))
        self.assertFalse(self.opens(added.key))

    def test_its_backup_can_not_be_replaced(self):
        """All that has changed is said all the same, and all of it once."""
        name = self.backup_of_before()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=RecoveryTest.NO_BACKUP):
            remarks = self.restore(name).remarks
        self.assertIn('replaced secret ' + self.old, remarks[0])
        self.assertIn('tries again', remarks[-1])
        self.assertEqual(self.old, self.key())
        self.assert_opens()

    def test_backup_with_a_uuid_that_is_none(self):
        """Whoever can write the disk can write anything there."""
        for copy in self.world.copies.values():
            copy.uuid = 'none'
        self.lose()
        self.restore()
        self.assert_opens()

    @ddt.data(True, False)
    def test_backup_that_names_the_secret_of_another_volume(self, in_use):
        """Whoever can write a backup can have it name any secret."""
        theirs = self.secret_of_another(in_use)
        for copy in self.world.copies.values():
            copy.slots = {'0': self.world.secrets.kept[theirs][1]}
            copy.tokens['0'] = dataclasses.replace(
                copy.tokens['0'], key=theirs)
        self.lose()
        self.refused(theirs, error=encryption_exceptions.KeyRefused)
        self.assertEqual(self.old, self.key())

    @ddt.data('its backup', 'its header', 'its tag')
    def test_of_another_uuid(self, whose):
        """Whoever can write the disk can change it. What counts is the pin."""
        another = self.volume.id[:-4] + 'beef'
        if whose == 'its backup':
            for copy in self.world.copies.values():
                copy.uuid = another
        elif whose == 'its header':
            self.world.headers[self.volume.id].uuid = another
        else:
            self.a.disk.tags[self.volume.name] -= set(names.tags(
                luks=self.volume.id))
            self.a.disk.tags[self.volume.name] |= set(names.tags(
                luks=another))
        self.restore((self.volume.id + '-1'))
        self.assertEqual(self.volume.id,
                         self.a.node.crypt.uuid(self.volume.id))
        self.assertEqual(self.volume.id, names.facts(
            self.a.disk.tags[self.volume.name])['luks'])
        self.assert_opens()

    def test_used(self):
        self.volume.status = 'in-use'
        self.refused('attached')
        self.volume.status = 'available'
        with self.a.node.lock(self.volume.id):
            self.a.node.crypt.open(
                self.volume.id, self.world.secrets.kept[self.old][1])
        self.a.opened.add(names.crypt(self.volume.id))
        self.refused('open', error=exceptions.SourceBusy)

    def test_attached_whatever_its_status(self):
        self.volume.volume_attachment = [attach_case.attachment('a')]
        for status in sorted(statuses.DETACHED):
            self.volume.status = status
            self.refused('attached')

    def under_way(self):
        return luks_header.Reencryption(
            0, 'checksum', False, 'aes-xts-plain64', 512)

    def test_of_what_was_being_re_encrypted(self):
        for copy in self.world.copies.values():
            copy.under_way = self.under_way()
        for lose in (lambda: None, self.lose):
            lose()
            self.refused('was being re-encrypted')

    @ddt.data({'cipher': 'serpent-xts-plain64'}, {'key_bits': 256},
              {'sector_size': 4096}, {'data_offset': 17 << 20},
              {'integrity': 'hmac-sha256'})
    def test_of_another_header(self, how):
        """Its keys open it, and all else of it is as it was."""
        for copy in self.world.copies.values():
            for name, value in how.items():
                setattr(copy, name, value)
        self.lose()
        self.refused('other data than the recorded header')

    def test_without_a_tag(self):
        self.lose()
        self.a.disk.tags[self.volume.name] -= set(names.tags(
            luks=self.volume.id))
        self.restore()
        self.assert_opens()

    def test_tags_that_are_true_are_left_alone(self):
        self.lose()
        with mock.patch.object(crypt.SimCrypt, 'note') as note:
            self.restore()
        note.assert_not_called()

    def test_key_that_does_not_open_the_backup(self):
        kept = self.world.secrets.kept
        kept[self.old] = kept[self.old][0], b'other'
        self.lose()
        self.refused('', error=encryption_exceptions.WrongKey)

    def test_backup_that_can_not_be_read_just_now(self):
        """Its key may still open it: no older one takes its place."""
        name = self.backup_of_before()
        for copy in self.world.copies.values():
            copy.tokens['7'] = dataclasses.replace(
                copy.tokens[min(copy.tokens)], key=self.key(), number='7')
        key, test = self.world.secrets.kept[self.key()][1], (
            crypt.SimCrypt.test_backup)

        def unreadable(own, volume_id, backup, given, slot=None):
            if given == key:
                raise exceptions.CommandFailed(
                    command='c', code=4, stderr='EIO')
            test(own, volume_id, backup, given, slot)
        self.patch(crypt.SimCrypt, 'test_backup', unreadable)
        self.refused('EIO', name, exceptions.CommandFailed)

    def test_what_is_refused_closes_nothing(self):
        with self.a.node.lock(self.volume.id):
            self.a.node.crypt.open(
                self.volume.id, self.world.secrets.kept[self.old][1])
        self.world.secrets.state = crypt.AWAY
        self.refused('away', error=encryption_exceptions.KeyUnavailable)
        self.assertIn(names.crypt(self.volume.id), self.a.devices)

    def test_what_was_written_is_proven(self):
        """Before anybody is told that it opens the volume."""
        name = self.backup_of_before()
        found, key = crypt.SimCrypt.restore, self.key()

        def torn(own, *args):
            found(own, *args)
            self.header.slots['0'] = b'noise'
        self.patch(crypt.SimCrypt, 'restore', torn)
        self.assertRaises(encryption_exceptions.WrongKey, self.restore, name)
        self.assertEqual(key, self.key())

    def test_secret_that_the_key_manager_does_not_keep_for_it(self):
        """It is in use before row and tag name it; both are as they were."""
        name = self.backup_of_before()
        key = self.key()
        with mock.patch.object(crypt.SimKeys, 'consume', side_effect=(
                encryption_exceptions.KeyUnavailable(reason='away'))):
            self.assertRaises(encryption_exceptions.KeyUnavailable,
                              self.restore, name)
        self.assertEqual(key, self.key())
        self.assertEqual(key, names.facts(
            self.a.disk.tags[self.volume.name])['key'])
        self.restore(name)
        self.assertEqual(self.old, self.key())
        self.assertIn((self.old, 'volumes', self.volume.id),
                      self.world.secrets.consumers)

    def test_with_any_of_its_secrets(self):
        """First the one that the row names, then others of the backup."""
        copy, = self.world.copies.values()
        secrets = self.world.secrets
        secrets.kept['first'] = names.secret(self.volume.id), b'first'
        copy.slots['1'] = b'first'
        copy.tokens['1'] = dataclasses.replace(
            copy.tokens['0'], key=self.old, number='1', keyslots=('0',))
        copy.tokens['0'] = dataclasses.replace(
            copy.tokens['0'], key='first', keyslots=('1',))
        self.lose()
        self.restore()
        self.assertEqual(self.old, self.key())
        self.lose()
        del secrets.kept[self.old]
        self.restore()
        self.assertEqual('first', self.key())

    def test_the_last_one(self):
        """Unless another one is named; the others stay where they are."""
        self.backup_of_before()
        key, kept = self.key(), list(self.world.backups[self.volume.id])
        self.lose()
        self.restore()
        self.assertEqual(key, self.key())
        self.assert_opens()
        self.assertEqual(kept, self.world.backups[self.volume.id])

    def test_with_a_secret_that_others_share(self):
        """Its name is not the volume's; the row names it."""
        kept = self.world.secrets.kept
        kept[self.old] = 'for all', kept[self.old][1]
        self.lose()
        self.restore()
        self.assert_opens()

    def test_outdated_and_its_token_names_a_key_that_was_removed(self):
        """Whoever can write a backup can have a token name any slot."""
        added = self.add()
        self.remove_with_its_backup_kept()
        for copy in self.world.copies.values():
            copy.tokens['0'] = dataclasses.replace(
                copy.tokens['0'], keyslots=('0', added.slot))
        self.lose()
        self.restore()
        self.assertFalse(self.opens(added.key))
        self.assert_opens()

    def test_outdated_and_a_slot_that_is_said_to_open_nothing(self):
        """Whoever can write a backup can say so of a key that was removed,
        and write to the header afterwards that it opens the volume.
        """
        added = self.add()
        self.remove_with_its_backup_kept()
        backed_up = crypt.SimCrypt.backed_up

        def unbound(own, *args):
            return dataclasses.replace(
                backed_up(own, *args), keyslots=('0',))
        self.patch(crypt.SimCrypt, 'backed_up', unbound)
        self.lose()
        self.restore()
        self.assertFalse(self.opens(added.key))
        self.assert_opens()

    def test_stored_recovery_key_does_not_become_its_own(self):
        self.add(store=True)
        del self.world.secrets.kept[self.old]
        self.lose()
        self.refused(self.old, error=encryption_exceptions.KeyRefused)
        self.assertEqual(self.old, self.key())

    def test_key_manager_does_not_answer_for_the_first_of_its_secrets(self):
        """It may still open it: no older one takes its place."""
        name, get = self.backup_of_before(), crypt.SimKeys.get
        for copy in self.world.copies.values():
            copy.tokens['7'] = dataclasses.replace(
                copy.tokens[min(copy.tokens)], key=self.key(), number='7')

        def away(own, key, *args):
            if key == self.key():
                raise encryption_exceptions.KeyUnavailable(reason='away')
            return get(own, key, *args)
        self.patch(crypt.SimKeys, 'get', away)
        self.refused('away', name, encryption_exceptions.KeyUnavailable)

    @ddt.data('available', 'error', 'maintenance')
    def test_whatever_keeps_it_from_being_used(self, status):
        self.lose()
        self.volume.status = status
        self.restore()
        self.assert_settled()

    def test_with_another_secret_if_one_is_another_by_now(self):
        copy, = self.world.copies.values()
        kept = self.world.secrets.kept
        kept['second'] = names.secret(self.volume.id), b'second'
        copy.slots['1'] = b'second'
        copy.tokens['1'] = dataclasses.replace(
            copy.tokens['0'], key='second', number='1', keyslots=('1',))
        kept[self.old] = kept[self.old][0], b'another'
        self.lose()
        self.restore()
        self.assertEqual('second', self.key())

    def test_no_such_backup(self):
        self.refused('does not exist', self.volume.id + '-7')
        self.world.backups.clear()
        self.refused('does not exist')

    def test_disk_that_can_not_be_read(self):
        """What is there is kept before anything is written."""
        self.lose()

        def unreadable(own, volume_id):
            raise exceptions.CommandFailed(command='c', code=4, stderr='EIO')
        self.patch(crypt.SimCrypt, 'save', unreadable)
        self.refused('EIO', error=exceptions.CommandFailed)
        self.assertIsNone(self.world.headers.get(self.volume.id))

    def test_no_key(self):
        self.lose()
        self.world.secrets.state = crypt.AWAY
        self.refused('did not answer',
                     error=encryption_exceptions.KeyUnavailable)
        self.world.secrets.state = ''
        self.assertIsNotNone(self.volume.encryption)

    def test_restored_key_manager_away(self):
        self.add()
        self.a.disk.tags[self.volume.name] |= {names.OUTDATED}
        self.lose()
        with self.away('restore'):
            self.restore()
        self.assertFalse(self.is_marked())
