# SPDX-License-Identifier: Apache-2.0
"""Keys are changed, and headers restored, by the real cryptsetup in files."""

import dataclasses
import pathlib
import shutil
from unittest import mock
import uuid

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import operator
from cinder_localclone.encryption import rotate
from tests.helpers.real_headers_case import A
from tests.helpers.real_headers_case import RealCase


class RealTest(RealCase):

    def wrong_once(self):
        """Have the first answer about a new secret be that of another one."""
        get, create = self.node.keys.get, self.node.keys.create
        new = []

        def noting(*args):
            new.append(create(*args))
            return new[0]

        def once(key, *args):
            secret = get(key, *args)
            if [key] == new:
                new.append('told')
                return secret[::-1]
            return secret
        keys = mock.create_autospec(crypt_interfaces.Keys, instance=True)
        for name in ('get_again', 'remove', 'find', 'consume', 'release'):
            getattr(keys, name).side_effect = getattr(self.node.keys, name)
        keys.create.side_effect, keys.get.side_effect = noting, once
        return dataclasses.replace(self.node, keys=keys)

    def test_rotate(self):
        before, old = self.key(), self.secret(self.key())
        for number in (3, 5):
            rotate.rotate(self.node, self.volume.id)
            self.assertEqual((False, True), (
                self.opens(old), self.opens(self.secret(self.key()))))
            self.assertNotEqual(before, self.key())
            self.assertEqual([self.key()], list(self.world.secrets.kept))
            self.assertEqual(['%s-%d' % (self.volume.id, number)],
                             self.node.crypt.backup_names(self.volume.id))
            header = self.node.crypt.header(self.volume.id)
            self.assertEqual((1, 1), (len(header.all_keyslots),
                                      len(header.all_tokens)))
            self.assert_sound()
            before, old = self.key(), self.secret(self.key())

    def test_the_new_secret_is_lost_in_between(self):
        create = self.node.keys.create

        def lost(volume_id, *args):
            key = create(volume_id, *args)
            del self.world.secrets.kept[key]
            return key
        before = self.key()
        node = dataclasses.replace(self.node, keys=_Keys(
            self.node.keys, lost))
        self.assertRaises(encryption_exceptions.KeyRefused, rotate.rotate,
                          node, self.volume.id)
        self.assertEqual(before, self.key())
        self.assert_sound()

    def test_recovery_keys(self):
        shown = operator.add_recovery_key(self.node, self.volume.id)
        stored = operator.add_recovery_key(
            self.node, self.volume.id, store=True)
        self.assertTrue(self.opens(shown.key.encode()))
        self.assertTrue(self.opens(self.secret(stored.secret)))
        rotate.rotate(self.node, self.volume.id)
        self.assert_sound()
        found = headers.status(self.node, self.volume.id)
        self.assertEqual({shown.slot, stored.slot},
                         set(found['recovery_keys']))
        for slot in (shown.slot, stored.slot):
            operator.remove_recovery_key(self.node, self.volume.id, slot)
        self.assertFalse(self.opens(shown.key.encode()))
        self.assert_sound()

    def test_rotate_with_a_wrong_answer(self):
        before = self.key()
        self.assertRaises(encryption_exceptions.WrongKey, rotate.rotate,
                          self.wrong_once(), self.volume.id)
        self.assertEqual(before, self.key())
        self.assertTrue(self.opens(self.secret(before)))
        self.assert_sound()

    def test_wrong_answer_before_the_old_slot_goes(self):
        """The new secret is recorded, and then the key manager loses it."""
        asked, old = [], self.key()

        def once(key, *args):
            asked.append(key)
            if len(asked) > 1:
                raise encryption_exceptions.KeyRefused(key=key, reason='lost')
            return self.node.keys.get(key, *args)
        keys = mock.create_autospec(crypt_interfaces.Keys, instance=True)
        for name in ('create', 'get', 'consume'):
            getattr(keys, name).side_effect = getattr(self.node.keys, name)
        keys.get_again.side_effect = once
        self.assertRaises(
            encryption_exceptions.KeyRefused, rotate.rotate,
            dataclasses.replace(self.node, keys=keys), self.volume.id)
        self.assertTrue(self.opens(self.secret(old)))
        self.assertEqual(2, len(asked))

    def test_stored_recovery_key_with_a_wrong_answer(self):
        self.assertRaises(encryption_exceptions.WrongKey,
                          operator.add_recovery_key,
                          self.wrong_once(), self.volume.id, store=True)
        self.assertEqual([], headers.status(
            self.node, self.volume.id)['recovery_keys'])

    def test_uncommitted_with_a_wrong_answer(self):
        uncommitted = self.world.create_volume(
            A, provider_id=self.volume.provider_id)
        shutil.copy(names.handle_path(self.volume.id),
                    names.handle_path(uncommitted.id))
        with self.node.lock(uncommitted.id):
            self.assertRaises(encryption_exceptions.WrongKey,
                              rotate.give_own_key, self.wrong_once(),
                              uncommitted)
        self.assertEqual(self.key(), self.key(uncommitted))
        self.assertTrue(self.opens(self.secret(self.key()), uncommitted))

    def test_restore(self):
        rotate.rotate(self.node, self.volume.id)
        path = pathlib.Path(names.handle_path(self.volume.id))
        whole = path.read_bytes()
        for damage in (bytes(16 << 20), whole[:4096] + bytes(100 << 10)):
            path.write_bytes(damage + whole[len(damage):])
            with self.through_the_cache():
                operator.restore_header(self.node, self.volume.id)
            self.assertTrue(self.opens(self.secret(self.key())))
            self.assert_sound()
        # Of a header with other keys of the data it is none.
        other = self.create()
        shutil.copy(names.handle_path(other.id), path)
        self.node.crypt.set_uuid(self.volume.id, self.volume.id)
        self.volume.provider_id = str(dataclasses.replace(
            self.volume.encryption, pin=other.encryption.pin))
        error = self.assertRaises(
            encryption_exceptions.KeyNotChanged, operator.restore_header,
            self.node, self.volume.id)
        self.assertIn('other data', str(error))

    def test_uncommitted(self):
        shown = operator.add_recovery_key(self.node, self.volume.id)
        uncommitted = self.world.create_volume(
            A, provider_id=self.volume.provider_id)
        shutil.copy(names.handle_path(self.volume.id),
                    names.handle_path(uncommitted.id))
        with self.node.lock(uncommitted.id):
            rotate.give_own_key(self.node, uncommitted)
        old, own = self.key(), self.key(uncommitted)
        self.assertNotEqual(old, own)
        for key, of_image, of_uncommitted in (
                (self.secret(old), True, False),
                (shown.key.encode(), True, False),
                (self.secret(own), False, True)):
            self.assertEqual(of_image, self.opens(key))
            self.assertEqual(of_uncommitted, self.opens(key, uncommitted))
        self.assertEqual(uncommitted.id, self.node.crypt.uuid(uncommitted.id))
        self.assertEqual(uncommitted.id, str(uuid.UUID(uncommitted.id)))
        self.assert_sound(uncommitted)
        self.assert_sound()


class _Keys:
    """The key manager, which loses what is stored."""

    def __init__(self, keys, create):
        self._keys, self.create = keys, create

    def __getattr__(self, name):
        return getattr(self._keys, name)
