# SPDX-License-Identifier: Apache-2.0
"""The key of a volume is replaced, in the simulated world."""

import contextlib
import copy
import dataclasses
import itertools
from unittest import mock

import ddt

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import at_rest
from cinder_localclone.encryption import header_backups
from cinder_localclone.encryption import rotate
from tests.helpers.rotate_case import A
from tests.helpers.rotate_case import B
from tests.helpers.rotate_case import Case
from tests import world as worlds
from tests.world import crypt
from tests.world import effects
from tests.world import records


@ddt.ddt
class RotateTest(Case):

    def setUp(self):
        super().setUp()
        self.of(self.world)

    def test_rotate(self):
        self.rotate()
        self.assert_changed()
        self.assertEqual(['3'], self.world.backups[self.volume.id])
        self.assertFalse(self.is_marked())

    def test_damaged_copy_is_mended_before_anything_is_written(self):
        """Else what a change has written may have no second copy."""
        with mock.patch.object(
                crypt.SimCrypt, 'header', autospec=True,
                side_effect=crypt.SimCrypt.header) as header:
            at_rest.to_change(self.a.node, self.volume)
        header.assert_called_once_with(
            mock.ANY, self.volume.id, repair=True)

    def test_again_and_again(self):
        for _each in range(3):
            before = self.key()
            self.rotate()
            self.assert_changed(before)

    def test_without_a_handle(self):
        """It is there before anything is read or written through it."""
        del self.a.devices[names.handle(self.volume.id)]
        self.rotate()
        self.assert_changed()

    def test_what_is_open_stays_open(self):
        name = names.crypt(self.volume.id)
        with self.a.node.lock(self.volume.id):
            self.a.node.crypt.open(
                self.volume.id, self.world.secrets.kept[self.old][1])
        self.a.opened.add(name)
        self.rotate()
        self.assert_changed()
        self.assertIn(name, self.a.devices)

    def test_what_the_node_keeps_of_it(self):
        """Of the key that opens it now; of one that is not open: none."""
        for opened in (False, True):
            self.a.disk.sealed = {self.volume.id: (self.key(), b'old')}
            if opened:
                self.a.disk.tags[self.volume.name] |= {names.OPENED}
            self.rotate()
            key = self.key()
            self.assertEqual({self.volume.id: (
                key, self.world.secrets.kept[key][1])} if opened else {},
                self.a.disk.sealed)

    def test_secret_that_is_lost(self):
        """The key manager has it no more; this node has the key, sealed.
        Nothing is written, and what the node has stays.
        """
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.a.disk.sealed = {self.volume.id: (self.old, b'K')}
        header = copy.deepcopy(self.header)
        del self.world.secrets.kept[self.old]
        with mock.patch.object(crypt.SimCrypt, 'write_token') as written:
            self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
        written.assert_not_called()
        self.assertEqual([{}, header, {self.volume.id: (self.old, b'K')}], [
            self.world.secrets.kept, self.header, self.a.disk.sealed])

    FULL = exceptions.CommandFailed(command='c', code=1, stderr='full')

    def test_backup_with_the_old_key_that_can_not_be_replaced(self):
        """Whoever restores it needs the old secret."""
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=self.FULL):
            self.assertRaises(exceptions.CommandFailed, self.rotate)
        self.assertIn(self.old, self.world.secrets.kept)
        self.assertEqual(['1'], self.world.backups[self.volume.id])
        self.rotate()
        self.assert_changed()

    @ddt.data(FULL, OSError('gone'))
    def test_backup_of_before_is_marked_as_long_as_there_is_one(self, error):
        """Nobody has to ask for that change again for it to go."""
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=error):
            self.assertRaises(type(error), self.rotate)
        self.assertTrue(self.is_marked())
        self.rotate()
        self.assertFalse(self.is_marked())

    @ddt.data(FULL, OSError('gone'))
    def test_backups_are_away_when_it_is_changed(self, error):
        """That stops nobody. They come back with the old key in them."""
        self.world.backups.clear()
        self.world.copies.clear()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=error):
            self.rotate()
        self.assert_changed()
        self.assertTrue(self.is_marked())

    def test_last_backup_that_can_not_be_replaced(self):
        """It names a secret that is gone, until the service replaces it."""
        renew = crypt.SimCrypt.renew_backup
        for error in (self.FULL, OSError('gone')):
            with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                                   autospec=True) as renewed:
                # The one before the old secret goes is made.
                renewed.side_effect = lambda *args, error=error: (
                    self.fail_(error) if self.old not in
                    self.world.secrets.kept else renew(*args))
                self.rotate()
            self.assert_changed()
            self.assertTrue(self.is_marked())
            self.old = self.key()

    @staticmethod
    def fail_(error):
        raise error

    def test_last_backup_has_no_trace_of_it(self):
        """Whoever restores it would have to end what has ended."""
        self.rotate()
        crypt_ = self.a.node.crypt
        name = crypt_.backup_names(self.volume.id)[-1]
        self.assertEqual(
            self.header.tokens,
            self.world.copies[self.volume.id, name].tokens)

    def test_power_is_cut_when_the_old_key_has_gone(self):
        """The service replaces the backup: nobody else has to know of it."""
        sweep = header_backups.Sweep(self.a.node)
        sweep.sweep()  # it is right
        kill = crypt.SimCrypt.kill_slot

        def cut(*args):
            kill(*args)
            raise KeyboardInterrupt
        old = self.world.secrets.kept[self.old][1]
        with mock.patch.object(crypt.SimCrypt, 'kill_slot', cut):
            self.assertRaises(KeyboardInterrupt, self.rotate)
        sweep.sweep()
        name = self.a.node.crypt.backup_names(self.volume.id)[-1]
        self.assertRaises(
            encryption_exceptions.WrongKey, self.a.node.crypt.test_backup,
            self.volume.id, name, old)

    def test_backups_are_marked_before_the_old_key_goes(self):
        kill, seen = crypt.SimCrypt.kill_slot, []

        def noting(*args):
            seen.append(self.is_marked())
            kill(*args)
        with mock.patch.object(crypt.SimCrypt, 'kill_slot', noting):
            self.rotate()
        self.assertEqual([True], seen)

    def test_new_secret_that_opens_another_slot_than_the_new_one(self):
        """The key manager has the old secret in its place by now."""
        with mock.patch.object(
                crypt.SimKeys, 'get_again', autospec=True, side_effect=lambda
                own, key, *args: self.world.secrets.kept[self.old][1]):
            self.assertRaises(encryption_exceptions.WrongKey, self.rotate)
        self.assertEqual(self.old, self.key())
        self.rotate()
        self.assert_changed()

    def test_new_secret_that_is_lost_once_it_is_recorded(self):
        """The old key stays: nothing else opens the volume then."""
        record = records.SimSecrets.record

        def losing(own, volume_id, recorded, before=None):
            record(own, volume_id, recorded, before)
            del self.world.secrets.kept[recorded.key]
        with mock.patch.object(records.SimSecrets, 'record', losing):
            self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
        self.assertIn(self.world.secrets.kept[self.old][1],
                      self.header.slots.values())
        self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
        self.assertEqual(self.old, self.key())
        self.assert_opens()
        self.rotate()
        self.assert_opens()

    def test_new_secret_that_is_not_lost_after_all(self):
        """What an earlier call has begun is what was asked for."""
        record, get, refused = records.SimSecrets.record, crypt.SimKeys.get, []

        def cut_short(*args):
            record(*args)
            raise encryption_exceptions.KeyUnavailable(reason='no route')

        def refuse_once(own, key, *args):
            if not refused:
                refused.append(key)
                raise encryption_exceptions.KeyRefused(key=key, reason='gone')
            return get(own, key, *args)
        with mock.patch.object(records.SimSecrets, 'record', cut_short):
            self.assertRaises(
                encryption_exceptions.KeyUnavailable, self.rotate)
        new = self.key()
        with mock.patch.object(crypt.SimKeys, 'get', refuse_once):
            self.rotate()
        self.assertEqual([new, new], [*refused, self.key()])
        self.assert_changed()

    @ddt.data(True, False)
    def test_secret_of_another_volume_that_its_header_names(self, in_use):
        """Whoever has written that has no volume opened by it, and no secret
        deleted. Not every key manager keeps who uses one.
        """
        theirs = self.secret_of_another(in_use)
        self.header.slots['5'] = self.world.secrets.kept[theirs][1]
        self.header.tokens['5'] = dataclasses.replace(
            self.header.tokens['0'], key=theirs, keyslots=('5',), number='5',
            replaces=self.old)
        self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
        self.assertEqual(self.old, self.key())
        self.assertEqual(['0'], list(self.header.slots))
        self.assertIn(theirs, self.world.secrets.kept)

    def test_backups_are_marked_before_a_secret_goes_without_a_slot(self):
        """They may name it."""
        remove, seen = crypt.SimKeys.remove, []

        def noting(*args):
            seen.append(self.is_marked())
            remove(*args)
        with mock.patch.object(crypt.SimKeys, 'remove', noting), (
                mock.patch.object(
                    crypt.SimCrypt, 'add_key', autospec=True,
                    side_effect=encryption_exceptions.KeyRefused(
                        key='k', reason='no'))):
            self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
        self.assertEqual([True], seen)
        self.assertFalse(self.is_marked())

    def test_without_any_backup(self):
        self.world.backups.clear()
        self.world.copies.clear()
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=self.FULL):
            self.rotate()
        self.assert_changed()

    def test_recovery_keys_and_others_stay(self):
        self.header.slots.update({'1': b'recovery', '2': b'by hand'})
        self.header.tokens['1'] = luks_header.Token(
            '', volume_types.KeyFormat.PASSPHRASE,
            role=luks_header.Role.RECOVERY, keyslots=('1',), number='1')
        self.rotate()
        self.assertNotEqual(self.old, self.key())
        self.assertEqual((b'recovery', b'by hand'), (
            self.header.slots.pop('1'), self.header.slots.pop('2')))
        del self.header.tokens['1']
        self.assert_changed()

    def test_secret_of_a_snapshot(self):
        """Its header is of before: who reverts to it needs the old one."""
        snapshot = self.world.snapshot_row(self.volume)
        self.world.set_snapshot(
            snapshot, node=A, status='available',
            provider_id=self.volume.provider_id)
        self.rotate()
        self.assertEqual({self.old, self.key()},
                         set(self.world.secrets.kept))
        self.assertIn((self.old, 'volumes', self.volume.id),
                      self.world.secrets.consumers)
        self.world.set_snapshot(snapshot, deleted=True)
        before = self.key()
        self.rotate()  # the next one removes it
        self.assert_changed(before)

    def test_secret_of_a_snapshot_and_then_the_volume_goes(self):
        snapshot = self.world.snapshot_row(self.volume)
        self.world.set_snapshot(
            snapshot, node=A, status='available',
            provider_id=self.volume.provider_id)
        self.rotate()
        self.world.set_snapshot(snapshot, deleted=True)
        self.delete(self.volume)
        self.assertNothingLeft()

    def test_secret_of_another_volume(self):
        """Of which it was made, before each had its own."""
        other = self.row()
        other.provider_id = self.volume.provider_id
        self.rotate()
        self.assertEqual({self.old, self.key()},
                         set(self.world.secrets.kept))
        self.assertNotIn((self.old, 'volumes', self.volume.id),
                         self.world.secrets.consumers)

    def test_shared_key(self):
        self.of(worlds.World())
        self.world.secrets.kept['ours'] = 'for all', b'K'
        volume = self.volume = self.row(key='type:ours')
        self.create(volume)
        volume.status = 'available'
        error = self.assertRaises(encryption_exceptions.KeyNotChanged,
                                  self.rotate)
        self.assertIn('share the key', str(error))

    def test_secrets_that_nobody_knows_go(self):
        lost = self.a.node.keys.create(self.volume.id)
        self.rotate()
        self.assertNotIn(lost, self.world.secrets.kept)
        self.assert_changed()

    def test_a_secret_that_others_use_stays(self):
        self.world.secrets.consumers.add((self.old, 'other', 'x'))
        self.rotate()
        self.assertIn(self.old, self.world.secrets.kept)
        self.assertEqual(1, len(self.header.slots))
        self.assertEqual(1, len(self.header.tokens))

    # -- refused

    def refused(self, error=encryption_exceptions.NotAtRest):
        before = repr((self.world.headers, self.volume.provider_id,
                       sorted(self.world.secrets.kept)))
        self.world.done.clear()
        exc = self.assertRaises(error, self.rotate)
        self.assertEqual(before, repr((
            self.world.headers, self.volume.provider_id,
            sorted(self.world.secrets.kept))))
        return str(exc)

    def test_while_it_moves(self):
        self.volume.status = 'available'
        self.a.move(self.volume, B)
        self.refused(exceptions.StaleMove)
        error = self.assertRaises(
            encryption_exceptions.NotAtRest, rotate.rotate, self.b.node,
            self.volume.id)
        self.assertIn(self.volume.id, str(error))
        self.world.settle()
        rotate.rotate(self.b.node, self.volume.id)
        self.assertNotEqual(self.old, self.key())

    def test_any_sign_of_a_move_is_enough(self):
        """Its record, its metadata LV, or a connection of another node."""
        for where, name, found in (
                (self.a.node.moves, 'move_of', 'a move'),
                (nodes, 'remote_from', ['a node'])):
            with mock.patch.object(where, name, return_value=found):
                self.refused()
        self.volume.status = 'available'
        self.a.move(self.volume, B)
        with mock.patch.object(self.b.node.moves, 'move_of',
                               return_value=None):
            self.assertRaises(encryption_exceptions.NotAtRest, rotate.rotate,
                              self.b.node, self.volume.id)

    def test_while_it_is_passed_through(self):
        self.a.remote.add((self.volume.id, 'initiator'))
        self.refused()

    def test_while_cinder_migrates_it(self):
        self.volume.migration_status = 'migrating'
        self.refused()

    @ddt.data('creating', 'reverting', 'deleting', 'error_unmanaging',
              'error_managing_deleting')
    def test_status(self, status):
        self.volume.status = status
        self.assertIn(
            status, self.refused(encryption_exceptions.KeyNotChanged))

    def test_plain(self):
        plain = self.world.create_volume(A)
        self.assertRaises(encryption_exceptions.KeyNotChanged, rotate.rotate,
                          self.a.node, plain.id)

    def test_header_of_somebody_else(self):
        """Not a byte of it is written, and no secret is used on it."""
        self.header.digest = 'of somebody else'
        self.refused(encryption_exceptions.ForeignHeader)

    def test_while_it_is_re_encrypted(self):
        found = crypt.SimCrypt.header

        def under_way(own, volume_id, repair=False):
            return dataclasses.replace(
                found(own, volume_id, repair),
                reencryption=luks_header.Reencryption(
                    0, 'checksum', False, 'aes-xts-plain64', 512))
        self.patch(crypt.SimCrypt, 'header', under_way)
        self.assertIn('re-encrypted',
                      self.refused(encryption_exceptions.KeyNotChanged))

    @ddt.data(({'requirements': ('another',)},
               encryption_exceptions.ForeignHeader),
              ({'reencryption': luks_header.Reencryption(
                  0, 'checksum', False, 'aes-xts-plain64', 512)},
               encryption_exceptions.KeyNotChanged))
    @ddt.unpack
    def test_header_that_is_not_to_be_written(self, says, error):
        """Whatever for."""
        found = self.a.node.crypt.header(self.volume.id)
        with mock.patch.object(crypt.SimCrypt, 'header', return_value=(
                dataclasses.replace(found, **says))):
            self.assertRaises(error, at_rest.to_change, self.a.node,
                              self.volume)
            self.refused(error)

    @ddt.data((crypt.AWAY, encryption_exceptions.KeyUnavailable),
              (crypt.REFUSES, encryption_exceptions.KeyRefused))
    @ddt.unpack
    def test_key_manager(self, state, error):
        self.world.secrets.state = state
        self.refused(error)
        self.world.secrets.state = ''
        self.rotate()
        self.assert_changed()


@ddt.ddt
class StopsTest(Case):
    """Stopped by a kill or a power cut, or by the key manager."""

    def begin_again(self, stops, faults):
        """A volume whose key is changed by a node that stops at moments."""
        self.of(worlds.World())
        world = self.world
        world.moment, world.acting, world.done = 0, None, []
        world.stop_at, world.faults = stops, faults

    def attempt(self):
        """As far as it gets; whether to its end."""
        self.a.dead = False
        try:
            if names.handle(self.volume.id) not in self.a.devices:
                self.a.reconciler.reconcile_node()
            self.rotate()
        except effects.Stopped:
            self.assert_opens()
            return False
        self.assert_opens()
        return True

    def test_at_every_step(self):
        for faults in (('kill',), ('cut',)):
            for stop in itertools.count(1):
                self.begin_again((stop,), faults)
                if self.attempt():
                    break
                self.assertTrue(self.attempt())
                self.assert_changed()
            self.assertGreater(stop, 15)

    def test_at_every_two_steps(self):
        for first in itertools.count(1):
            for second in itertools.count(first + 1):
                self.begin_again((first, second), ('kill', 'kill'))
                if self.attempt():
                    return
                once = self.attempt()
                if not once:
                    self.assertTrue(self.attempt())
                self.assert_changed()
                if once:
                    break

    def test_without_a_key_manager_at_every_step(self):
        """It goes away at each moment, and comes back."""
        for state, moment in itertools.product(
                (crypt.AWAY, crypt.REFUSES), range(1, 40)):
            self.of(worlds.World())
            world, tick = self.world, self.world.tick
            left = [moment]

            def transient(node, what):
                left[0] -= 1
                if not left[0]:
                    world.secrets.state = state
                tick(node, what)
            world.tick = transient
            with contextlib.suppress(encryption_exceptions.KeyUnavailable,
                                     encryption_exceptions.KeyRefused):
                self.rotate()
            left[0], world.secrets.state = 0, ''
            self.assert_opens()
            self.rotate()
            self.assert_settled()

    @ddt.data(*range(1, 12))
    def test_the_new_secret_is_lost(self, stop):
        """Before it is recorded the old key stays; then there is only it."""
        self.begin_again((stop,), ('kill',))
        if self.attempt() or self.key() != self.old:
            return
        self.a.dead = False
        new = set(self.world.secrets.kept) - {self.old}
        for key in new:
            del self.world.secrets.kept[key]
        announced = any(token.key in new
                        for token in self.header.tokens.values())
        if announced:
            self.assertRaises(encryption_exceptions.KeyRefused, self.rotate)
            self.assertEqual(self.old, self.key())
            self.world.secrets.consumers = {
                each for each in self.world.secrets.consumers
                if each[0] not in new}
            self.assert_settled()
        self.rotate()
        self.assert_changed()

    @ddt.data(*range(1, 12))
    def test_the_new_secret_is_another_by_now(self, stop):
        """The row never names what does not open the volume."""
        self.begin_again((stop,), ('kill',))
        if self.attempt() or self.key() != self.old:
            return
        kept = self.world.secrets.kept
        for key in set(kept) - {self.old}:
            kept[key] = kept[key][0], b'another'
        self.a.dead = False
        with contextlib.suppress(encryption_exceptions.WrongKey):
            self.rotate()
        self.assert_opens()
        self.rotate()
        self.assert_opens()

    @ddt.data((crypt.AWAY, encryption_exceptions.KeyUnavailable),
              (crypt.REFUSES, encryption_exceptions.KeyRefused))
    @ddt.unpack
    def test_what_the_node_keeps_until_there_is_another(self, state, error):
        """It stops, and then there is no key manager."""
        for stop in itertools.count(1):
            self.begin_again((), ())
            self.a.disk.tags[self.volume.name] |= {names.OPENED}
            self.a.disk.sealed = {self.volume.id: (self.old, b'K')}
            self.world.stop_at, self.world.faults = (stop,), ('kill',)
            if self.attempt():
                return
            before = dict(self.a.disk.sealed)
            self.a.dead, self.world.secrets.state = False, state
            self.assertRaises(error, self.rotate)
            if before:
                self.assertNotEqual({}, self.a.disk.sealed, stop)

    def test_key_manager_that_lists_nothing(self):
        """The header's token is then all that tells of the old secret."""
        self.patch(crypt.SimKeys, 'find', lambda *_args: [])
        for stop in itertools.count(1):
            self.begin_again((stop,), ('kill',))
            if self.attempt():
                return
            self.assertTrue(self.attempt())
            self.assertNotIn(self.old, self.world.secrets.kept)

    def test_a_slot_that_somebody_else_has_taken(self):
        """Between the announcement and the slot; it is left alone."""
        for stop in range(1, 12):
            self.begin_again((stop,), ('kill',))
            self.attempt()
            announced = [token.slot for token in self.header.tokens.values()
                         if token.slot]
            if announced and announced[0] not in self.header.slots:
                break
        self.header.slots[announced[0]] = b'by hand'
        self.assertTrue(self.attempt())
        self.assertEqual(b'by hand', self.header.slots.pop(announced[0]))
        self.assert_changed()
