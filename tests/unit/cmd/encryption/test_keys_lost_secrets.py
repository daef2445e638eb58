# SPDX-License-Identifier: Apache-2.0
"""A volume whose secret was lost gets another one, by a recovery key."""

import io
import itertools
import sys
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.encryption import keys as recovery
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import errors
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.encryption import operator
from cinder_localclone.service import operator as backend
from tests.helpers.documentation import sample
from tests.helpers import headers_case
from tests import world as worlds
from tests.world import crypt
from tests.world import effects


@ddt.ddt
class RotateTest(headers_case.Case):

    def begin(self, stored=False, world=None):
        if world:
            self.of(world)
            self.volume.status = 'available'
        self.stored, self.recovery = stored, self.add(stored)
        self.before = dict(self.header.tokens)

    def lose(self, keys=None):
        for key in [self.old] if keys is None else keys:
            self.world.secrets.kept.pop(key, None)

    def rotate(self, typed=None):
        operator.rotate_by_recovery_key(
            self.a.node, self.volume.id,
            self.recovery.key if typed is None else typed)

    def opens_by_recovery(self):
        key = (self.world.secrets.kept[self.recovery.secret][1]
               if self.stored else self.recovery.key.encode())
        return key == self.header.slots.get(self.recovery.slot)

    def assert_another(self):
        """It has a secret that opens it, and the recovery key is left."""
        self.assertTrue(self.opens_by_recovery())
        self.assert_opens()
        self.assertNotEqual(self.old, self.key())
        own, = [token for token in self.header.tokens.values()
                if token.role is luks_header.Role.VOLUME]
        self.assertEqual(self.key(), own.key)
        self.assertEqual({*own.keyslots, self.recovery.slot},
                         set(self.header.slots))
        self.assertEqual(self.key(), names.facts(
            self.a.disk.tags[self.volume.name])['key'])
        self.assertEqual([], self.world.wrongs)

    @ddt.data(True, False)
    def test_lost(self, stored):
        self.begin(stored)
        self.lose()
        self.assertRaises(encryption_exceptions.KeyRefused,
                          super().rotate)
        self.rotate('' if stored else None)
        self.assert_another()
        super().rotate()  # as ever
        self.assert_another()

    @ddt.data(True, False)
    def test_not_lost(self, stored):
        self.begin(stored)
        self.rotate('' if stored else None)
        self.assert_another()

    def test_stored_beside_one_that_is_shown(self):
        """That one has no secret that could be asked for."""
        self.begin()
        stored = self.add(store=True)
        self.lose()
        self.rotate('')
        self.assert_opens()
        self.assertNotEqual(self.old, self.key())
        self.assertIn(stored.secret, self.world.secrets.kept)
        self.assertTrue(self.opens_by_recovery())

    def test_as_somebody_types_it(self):
        self.begin()
        self.lose()
        self.rotate(self.recovery.key.lower().replace('-', ' ') + '\n')
        self.assert_another()

    def test_what_is_none_of_its_keys(self):
        """Nothing is stored, and nothing written."""
        self.begin()
        self.lose()
        self.header.slots['5'] = b'ABCD-EFGH'  # somebody else's
        for typed, said in (('ABCD-EFGH', 'not a recovery key of the volume'),
                            ('', 'no recovery key'),
                            ('-', 'not a recovery key')):
            error = self.assertRaises(encryption_exceptions.KeyNotChanged,
                                      self.rotate, typed)
            self.assertIn(said, str(error))
            self.assertNotIn('ABCD', str(error))
        self.assertEqual(self.before, self.header.tokens)
        self.assertEqual({}, self.world.secrets.kept)

    def test_own_key_is_no_recovery_key(self):
        self.begin()
        self.header.slots[self.recovery.slot] = b'another'
        self.assertRaises(encryption_exceptions.KeyNotChanged, self.rotate)

    def test_shared_secret(self):
        self.begin()
        self.header.tokens['0'] = luks_header.dataclasses.replace(
            self.header.tokens['0'], shared=True)
        self.assertIn('share the key', str(self.assertRaises(
            encryption_exceptions.KeyNotChanged, self.rotate)))

    def test_node_keeps_no_key_that_is_lost(self):
        self.begin()
        self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.a.disk.sealed = {self.volume.id: (self.old, b'old')}
        self.lose()
        self.rotate()
        key = self.key()
        self.assertEqual({self.volume.id: (
            key, self.world.secrets.kept[key][1])}, self.a.disk.sealed)

    def test_without_a_key_manager(self):
        self.begin()
        self.world.secrets.state = crypt.AWAY
        self.assertRaises(encryption_exceptions.KeyUnavailable, self.rotate)
        self.assertEqual(self.before, self.header.tokens)

    def _attempt(self):
        self.boot()
        try:
            self.rotate()
        except effects.Stopped:
            self.assertTrue(self.opens_by_recovery())
            return False
        return True

    def test_at_every_step(self):
        """The recovery key opens it at every moment; then its own, too."""
        for fault in ('kill', 'cut'):
            for stop in itertools.count(1):
                self.begin(world=worlds.World())
                self.lose()
                world = self.world
                world.moment, world.acting, world.done = 0, None, []
                world.stop_at, world.faults = (stop,), (fault,)
                if self._attempt():
                    break
                self.assertTrue(self._attempt())
                self.assert_another()
            self.assertGreater(stop, 15)

    def _stopped(self, stop):
        """A change of the key that was stopped; the new secrets."""
        self.begin(world=worlds.World())
        world = self.world
        world.moment, world.acting, world.done = 0, None, []
        world.stop_at, world.faults = (stop,), ('kill',)
        try:
            super().rotate()
        except effects.Stopped:
            self.boot()
            return [key for key in self.world.secrets.kept
                    if key != self.old]
        return None

    def _lost_in_the_middle(self, which):
        """Secrets are lost while the key is being changed, at each step."""
        for stop in itertools.count(1):
            new = self._stopped(stop)
            if new is None:
                break
            self.lose(which(new))
            for _each in range(4):
                try:
                    self.rotate()
                except encryption_exceptions.KeyRefused:
                    self.assertTrue(self.opens_by_recovery())
                else:
                    break
            self.assert_another()
        self.assertGreater(stop, 15)

    def test_old_one_lost_in_the_middle(self):
        self._lost_in_the_middle(lambda new: [self.old])

    def test_both_lost_in_the_middle(self):
        self._lost_in_the_middle(lambda new: [self.old, *new])

    def test_new_one_lost_in_the_middle(self):
        """It goes back to the old one, if that is there; without any help."""
        self.rotate, rotate = super().rotate, self.rotate
        went_back = 0
        for stop in itertools.count(1):
            new = self._stopped(stop)
            if new is None:
                break
            recorded = self.key()
            self.lose(new)
            if recorded != self.old and not any(
                    token.key == self.old and token.keyslots
                    for token in self.header.tokens.values()):
                rotate()  # there was no way back
                self.assert_another()
                continue
            for _each in range(3):
                try:
                    self.rotate()
                except encryption_exceptions.KeyRefused:
                    self.assertEqual(self.old, self.key())
                    self.assert_opens()
                    went_back += recorded != self.old
                else:
                    break
            self.assert_another()
        self.assertGreater(stop, 15)
        self.assertGreater(went_back, 0)

    def test_both_lost_of_one_that_was_open(self):
        """No node keeps the key of a secret that is lost."""
        begin = self.begin

        def opened(**more):
            begin(**more)
            self.a.disk.tags[self.volume.name] |= {names.OPENED}
        self.begin = opened
        self._lost_in_the_middle(lambda new: [self.old, *new])


@ddt.ddt
class CommandTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(sys, 'stderr', io.StringIO()))
        self.file = self.useFixture(fixtures.TempDir()).join('key')
        with open(self.file, 'w') as opened:
            opened.write('\n ABCD-EFGH\n')

    def run_command(self, *words):
        with mock.patch.object(operator, 'rotate_by_recovery_key') as rotate:
            printed, code = sample.run(['encryption', 'key', 'rotate', *words])
        return printed, code, rotate

    def test_file(self):
        printed, code, rotate = self.run_command(
            sample.ENCRYPTED, '--recovery-key-file', self.file)
        self.assertEqual(0, code)
        self.assertIn('has a new key', printed)
        rotate.assert_called_once_with(None, sample.ENCRYPTED, 'ABCD-EFGH')

    def test_standard_input(self):
        with mock.patch.object(sys, 'stdin', io.StringIO('ABCD\n')):
            _printed, code, rotate = self.run_command(
                sample.ENCRYPTED, '--recovery-key-file', '-')
        rotate.assert_called_once_with(None, sample.ENCRYPTED, 'ABCD')

    def test_stored(self):
        _printed, code, rotate = self.run_command(
            sample.ENCRYPTED, '--stored-recovery-key')
        rotate.assert_called_once_with(None, sample.ENCRYPTED, '')

    def test_as_ever(self):
        _printed, code, rotate = self.run_command(sample.ENCRYPTED)
        self.assertEqual(0, code)
        rotate.assert_not_called()

    @ddt.data(['--all'], ['--type', 't'], [sample.REENCRYPTED])
    def test_of_one_volume_at_home(self, words):
        _printed, code, rotate = self.run_command(
            *words, '--stored-recovery-key')
        self.assertEqual(1, code)
        rotate.assert_not_called()

    def test_file_that_has_none(self):
        open(self.file, 'w').close()
        for file in (self.file, self.file + '.none'):
            self.assertEqual(1, self.run_command(
                sample.ENCRYPTED, '--recovery-key-file', file)[1])
        with open(self.file, 'wb') as opened:
            opened.write(b'\xff\xfe')
        self.assertEqual(1, self.run_command(
            sample.ENCRYPTED, '--recovery-key-file', self.file)[1])

    def test_only_by_root(self):
        command = recovery.Rotate(mock.MagicMock(), None)
        with mock.patch.object(backend.os, 'geteuid', lambda: 1000):
            self.assertRaises(
                errors.CommandError, command.take_action,
                command.get_parser('x').parse_args(
                    ['v', '--stored-recovery-key']))
