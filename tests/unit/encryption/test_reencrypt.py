# SPDX-License-Identifier: Apache-2.0
"""Re-encryption, in the simulated world."""

import contextlib
import dataclasses
import itertools
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core import pinning
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import headers
from cinder_localclone.encryption import reencrypt
from cinder_localclone.encryption import upkeep
from tests.helpers import attach_case
from tests.helpers import encrypted_attach_case
from tests.helpers.reencrypt_case import Case
from tests.world import crypt
from tests.world import records
from tests.world import reencryption as sim
from tests.world import stack

A, B = encrypted_attach_case.A, encrypted_attach_case.B
SERPENT = 'serpent-xts-plain64'
Status = reencrypt.Status


class JudgeTest(testtools.TestCase):

    def test_table(self):
        """Under way, interrupted, running, paused by an operator."""
        none, running, paused, waiting, interrupted = (
            'none', 'running', 'paused', 'waiting', 'interrupted')
        self.assertEqual([
            none, none, running, running,
            interrupted, interrupted, running, running,
            waiting, paused, running, running,
            interrupted, interrupted, running, running,
        ], [reencrypt.judge(*each).value
            for each in itertools.product((False, True), repeat=4)])


class ContainerTest(Case):

    def test_nothing_is_written_where_it_would_be_killed(self):
        header, row = repr(self.header), self.volume.provider_id
        with mock.patch.object(sim.SimRunner, 'obstacle', autospec=True,
                               return_value='a container'):
            error = self.assertRaises(encryption_exceptions.CannotReencrypt,
                                      self.start)
        self.assertIn('a container', str(error))
        self.assertEqual((header, row), (
            repr(self.header), self.volume.provider_id))
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.start()


@ddt.ddt
class PinTest(Case):
    """What the row says of the header, from the announcement to the end."""

    def setUp(self):
        super().setUp()
        self.before = self.volume.encryption
        self.said = []
        self.patch(events, 'say', lambda event, **_facts: self.said.append(
            event))

    def recorded(self):
        return self.world.volumes[self.volume.id].encryption

    def test_from_one_pin_to_the_other(self):
        self.start(cipher=SERPENT, key_bits=256)
        found = self.recorded()
        self.assertEqual(self.before, dataclasses.replace(
            found, becoming=None))
        self.assertEqual(dataclasses.replace(
            self.before.pin, cipher=SERPENT, key_bits=256,
            digest=self.header.under_way.digest), found.becoming)
        self.end()
        self.sweep()
        self.assertEqual(dataclasses.replace(
            self.before, pin=found.becoming), self.recorded())
        self.assertIn(events.REENCRYPTION_ENDED, self.said)

    def test_announced_before_it_begins(self):
        begin, seen = crypt.SimCrypt.begin_reencryption, []

        def noting(own, *args):
            seen.append(self.recorded())
            begin(own, *args)
        with mock.patch.object(crypt.SimCrypt, 'begin_reencryption', noting):
            self.start(cipher=SERPENT)
        found, = seen
        self.assertEqual((self.before.pin, SERPENT, ''), (
            found.pin, found.becoming.cipher, found.becoming.digest))

    def test_not_begun(self):
        """Whoever has asked had an error; it must not pass for done."""
        failed = exceptions.CommandFailed(command='c', code=1, stderr='no')
        with mock.patch.object(crypt.SimCrypt, 'begin_reencryption',
                               side_effect=failed):
            self.assertRaises(exceptions.CommandFailed, self.start)
        self.assertIn(names.REENCRYPTED, self.tags())
        self.sweep()
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.assertEqual(self.before, self.recorded())
        self.assertEqual([events.REENCRYPTION_NOT_BEGUN], [
            each for each in self.said if each in (
                events.REENCRYPTION_NOT_BEGUN, events.REENCRYPTION_ENDED)])
        self.start()
        self.end()
        self.sweep()
        self.assertIn(events.REENCRYPTION_ENDED, self.said)

    def test_begun_after_the_look_has_read_its_header(self):
        """cryptsetup has outlived its time limit until just then. A row that
        does not say so any more would refuse the header for ever.
        """
        late = []
        with mock.patch.object(
                crypt.SimCrypt, 'begin_reencryption',
                side_effect=lambda *args: late.append(args)):
            with mock.patch.object(reencrypt, '_go_on',
                                   side_effect=OSError):
                self.assertRaises(OSError, self.start)
        end = reencrypt._end

        def noting(node, volume):
            _volume_id, slot, wanted, _key = late.pop()
            sim.begin(self.header, slot, wanted)
            end(node, volume)
        with mock.patch.object(reencrypt, '_end', noting):
            self.sweep()
        self.assertIsNotNone(self.recorded().becoming)
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_begun_and_not_pinned_yet(self):
        """The service dies in between: the next look pins the new key."""
        with mock.patch.object(reencrypt, '_pin_new_key',
                               side_effect=OSError):
            self.assertRaises(OSError, self.start)
        self.assertEqual('', self.recorded().becoming.digest)
        self.assertTrue(self.header.under_way)
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.assertEqual(self.header.under_way.digest,
                         self.recorded().becoming.digest)

    def test_new_key_that_the_secret_does_not_open(self):
        """Its slot is somebody else's."""
        with mock.patch.object(reencrypt, '_pin_new_key',
                               side_effect=OSError):
            self.assertRaises(OSError, self.start)
        self.header.slots = {'1': b'of somebody else'}
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)
        self.assertEqual('', self.recorded().becoming.digest)

    def test_header_that_says_so_by_itself(self):
        self.header.under_way = luks_header.Reencryption(
            0, 'checksum', False, SERPENT, 512, digest='of somebody else')
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)
        self.assertEqual(self.before, self.recorded())
        self.assertRaises(encryption_exceptions.ForeignHeader, self.start)

    def test_another_header_under_a_guest(self):
        """It is open already; its row would pin what is on the disk."""
        self.use()
        self.header.digest = 'of somebody else'
        self.assertRaises(encryption_exceptions.ForeignHeader, self.start)
        self.assertEqual(self.before, self.recorded())
        self.assertNotIn(names.REENCRYPTED, self.tags())

    def test_another_key_than_was_pinned_under_a_guest(self):
        """Nothing is encrypted with a key that somebody else has."""
        self.use()
        self.start()
        self.a.reencrypting.clear()
        self.header.under_way = dataclasses.replace(
            self.header.under_way, digest='of somebody else')
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)
        self.assertRaises(encryption_exceptions.ForeignHeader,
                          reencrypt.resume, self.node, self.volume.id)
        self.assertEqual(set(), self.a.reencrypting)

    def test_another_end_than_was_announced(self):
        self.start()
        self.end()
        self.header.digest = 'of somebody else'
        self.sweep()
        self.assertIn(names.REENCRYPTED, self.tags())
        self.assertNotIn(events.REENCRYPTION_ENDED, self.said)
        self.assertEqual(self.before.pin, self.recorded().pin)

    def test_end_without_a_tag(self):
        """As of what was reverted to a snapshot of just then."""
        self.start()
        self.end()
        self.a.disk.tags[self.volume.name] -= {names.REENCRYPTED}
        self.sweep()
        self.assertIsNone(self.recorded().becoming)
        self.assertEqual(self.header.digest, self.recorded().pin.digest)

    def test_end_whose_record_fails(self):
        """The next look makes it, and it is told once."""
        self.start()
        self.end()
        with mock.patch.object(records.SimSecrets, 'record',
                               side_effect=OSError):
            self.sweep()
        self.assertNotIn(events.REENCRYPTION_ENDED, self.said)
        self.sweep()
        self.assertEqual(1, self.said.count(events.REENCRYPTION_ENDED))
        self.assertIsNone(self.recorded().becoming)

    @ddt.data(({'slot': '5'}, {}, encryption_exceptions.CannotReencrypt), (
        {'keyslots': ('9',)}, {}, encryption_exceptions.CannotReencrypt), (
            {'keyslots': ('0', '1')}, {'keyslots': ('0', '1')},
            encryption_exceptions.CannotReencrypt))
    @ddt.unpack
    def test_slot_that_can_not_be_told(self, token, more, error):
        """Another key is announced, say."""
        header = self.node.crypt.header(self.volume.id)
        reencrypt.own_slot(self.volume.id, header, False)
        own, = header.tokens
        header = dataclasses.replace(
            header, tokens=(dataclasses.replace(own, **token),), **more)
        self.assertRaises(
            error, reencrypt.own_slot, self.volume.id, header, True)

    def test_slot_beside_one_that_is_announced(self):
        header = self.node.crypt.header(self.volume.id)
        own, = header.tokens
        header = dataclasses.replace(header, tokens=(own, dataclasses.replace(
            own, key='new', keyslots=(), slot='5', replaces=own.key)))
        self.assertRaises(encryption_exceptions.CannotReencrypt,
                          reencrypt.own_slot, self.volume.id, header, True)

    def test_header_that_is_authenticated(self):
        """Whatever its row says."""
        header = self.node.crypt.header(self.volume.id)
        reencrypt.new_cipher(self.volume.id, header, reencrypt.Wish())
        error = self.assertRaises(
            encryption_exceptions.CannotReencrypt, reencrypt.new_cipher,
            self.volume.id, dataclasses.replace(
                header, integrity='hmac(sha256)'), reencrypt.Wish())
        self.assertIn('hmac(sha256)', str(error))

    def test_changed_once_the_end_was_read(self):
        """What was checked is what a backup has to say."""
        headers.back_up(self.node, self.volume.id)
        self.start()
        self.end()
        header = crypt.SimCrypt.header

        def then_change(own, volume_id, repair=False):
            found = header(own, volume_id, repair=repair)
            if repair:
                self.header.digest = 'another'
            return found
        before = self.node.crypt.backup_names(self.volume.id)
        with mock.patch.object(crypt.SimCrypt, 'header', then_change):
            self.sweep()
        self.assertEqual(
            before, self.node.crypt.backup_names(self.volume.id))
        self.assertIn(names.REENCRYPTED, self.tags())


@ddt.ddt
class StartTest(Case):

    def test_under_a_guest(self):
        self.use()
        found = self.start(cipher=SERPENT)
        self.assertEqual(
            (Status.RUNNING, 0, 1 << 30, SERPENT, 512),
            (found.status, found.done, found.total, found.cipher,
             found.key_bits))
        self.assertEqual('checksum', self.header.under_way.resilience)
        self.assertIn(names.REENCRYPTED, self.tags())
        sim.go_on(self.a, self.volume.id)
        self.sweep()
        found = self.state()
        self.assertEqual((sim.HALF, 512.0), (found.done, found.seconds_left))
        self.assertEqual('running', reencrypt.as_dict(found)['status'])
        self.end()
        self.assertEqual(Status.NONE, self.state().status)
        self.sweep()
        self.assertWhole()
        self.assertEqual(SERPENT, self.state().cipher)
        self.assertIn(self.crypt, self.a.devices)

    def test_of_what_nobody_uses(self):
        """It is opened for that, and closed afterwards."""
        self.start()
        self.assertNotIn(names.OPENED, self.tags())
        before = len(self.world.done)
        self.sweep()
        self.assertNotIn('stop', self.world.effects(A, before))
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.assertIn(self.crypt, self.a.devices)
        self.end()
        self.sweep()
        self.sweep()
        self.assertWhole()
        self.assertNotIn(self.crypt, self.a.devices)

    def test_again(self):
        """A lost answer; another wish."""
        self.start(cipher=SERPENT)
        self.start(cipher=SERPENT)
        self.start()
        for wish in ({'cipher': 'aes-xts-plain64'}, {'key_bits': 256}):
            self.assertRaises(encryption_exceptions.CannotReencrypt,
                              self.start, **wish)

    def test_again_while_it_ends(self):
        """Its process ends after the request has read the header."""
        self.start()
        with mock.patch.object(reencrypt, 'check_same',
                               side_effect=lambda *_same: self.end()):
            self.start()
        self.assertEqual(set(), self.a.reencrypting)
        self.sweep()
        self.sweep()
        self.assertWhole()

    def test_again_after_its_very_end_was_cut_short(self):
        """It is recovered, and is complete: no process can go on with it."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.start()
        self.assertEqual(set(), self.a.reencrypting)
        self.sweep()
        self.sweep()
        self.assertWhole()

    def test_while_other_work_goes_on(self):
        for status in ('downloading', 'extending', 'backing-up'):
            self.volume.status = status
            self.assertRaises(encryption_exceptions.NotAtRest, self.start)
        self.attach('reserved', None)
        self.connect(attach_case.ON_B)
        self.assertRaises(exceptions.StaleMove, self.start)
        self.attach('in-use', 'b')
        self.assertRaises(encryption_exceptions.NotAtRest, reencrypt.start,
                          self.b.node, self.volume.id, reencrypt.Wish())
        self.assertIsNone(self.header.under_way)

    def test_while_another_node_has_it(self):
        self.attach('in-use', 'b')
        self.assertRaises(encryption_exceptions.NotAtRest, self.start)

    def test_while_it_is_passed_through(self):
        self.a.remote.add((self.volume.id, 'initiator of b'))
        self.assertRaises(encryption_exceptions.NotAtRest, self.start)

    def test_plain(self):
        plain = self.world.create_volume(A)
        self.assertRaises(
            encryption_exceptions.CannotReencrypt, reencrypt.start,
            self.node, plain.id, reencrypt.Wish())

    def test_header_that_names_another_secret(self):
        """It is not believed by itself."""
        self.header.tokens['0'] = dataclasses.replace(
            self.header.tokens['0'], key='of another volume')
        self.world.secrets.kept['of another volume'] = (
            'localclone volume x', next(iter(self.header.slots.values())))
        error = self.assertRaises(encryption_exceptions.CannotReencrypt,
                                  self.start)
        self.assertIn('its recorded secret', str(error))
        self.assertIsNone(self.header.under_way)

    @ddt.data({'cipher': 'rot13'}, {'cipher': 'aes-gcm-random'},
              {'key_bits': 128}, {'resilience': 'none'},
              {'cipher': 'xchacha12,aes-adiantum-plain64', 'key_bits': 512})
    def test_what_cannot_be(self, wish):
        self.assertRaises(encryption_exceptions.CannotReencrypt, self.start,
                          **wish)
        self.assertEqual((None, {'0'}), (
            self.header.under_way, set(self.header.slots)))
        self.assertNotIn(names.REENCRYPTED, self.tags())

    def test_most_bits_of_another_cipher(self):
        found = self.start(cipher='xchacha12,aes-adiantum-plain64',
                           resilience='journal')
        self.assertEqual(256, found.key_bits)
        self.assertEqual('journal', self.header.under_way.resilience)

    def test_other_keys(self):
        self.header.slots['1'] = b'recovery'
        self.header.tokens['1'] = dataclasses.replace(
            self.header.tokens['0'], role=luks_header.Role.RECOVERY, key='',
            keyslots=('1',), number='1')
        self.assertRaises(encryption_exceptions.OtherKeys, self.start)
        self.assertIsNone(self.header.under_way)
        self.start(drops_keys=True)
        self.assertIsNotNone(self.header.under_way)

    def test_key_that_is_being_changed(self):
        self.header.slots['1'] = b'second'
        self.header.tokens['1'] = dataclasses.replace(
            self.header.tokens['0'], key='other', keyslots=('1',),
            number='1')
        self.assertRaises(encryption_exceptions.CannotReencrypt, self.start,
                          drops_keys=True)

    def test_cryptsetup_that_is_too_old(self):
        """It would begin, and never go on; nor does it where it moves to."""
        self.a.old_cryptsetup = True
        self.assertRaises(encryption_exceptions.CannotReencrypt, self.start)
        self.assertEqual((None, None), (
            self.header.under_way, self.volume.encryption.becoming))
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.a.old_cryptsetup = False
        self.start()
        reencrypt.pause(self.node, self.volume.id)
        self.a.old_cryptsetup = True
        self.assertRaises(encryption_exceptions.CannotReencrypt, self.start)
        self.assertEqual(set(), self.a.reencrypting)

    def test_no_key(self):
        self.world.secrets.state = crypt.AWAY
        self.assertRaises(encryption_exceptions.KeyUnavailable, self.start)
        self.assertNotIn(names.REENCRYPTED, self.tags())

    def test_key_that_does_not_open_it(self):
        """Nothing is written then, though it is open."""
        self.use()
        kept, key = self.world.secrets.kept, self.volume.encryption.key
        kept[key] = kept[key][0], b'other'
        self.assertRaises(encryption_exceptions.WrongKey, self.start)
        self.assertNotIn(names.REENCRYPTED, self.tags())

    @ddt.data((True, 'PASSPHRASE', cryptsetup_cli.PASSPHRASE),
              (True, 'HEX', cryptsetup_cli.RANDOM_KEY),
              (False, 'PASSPHRASE', cryptsetup_cli.RANDOM_KEY))
    @ddt.unpack
    def test_guesses_of_a_passphrase_take_long(self, shared, key_format,
                                               derivation):
        self.header.tokens['0'] = dataclasses.replace(
            self.header.tokens['0'], shared=shared,
            key_format=volume_types.KeyFormat[key_format])
        self.patch(sim, 'begin', mock.Mock(wraps=sim.begin))
        self.start()
        (_header, _slot, given), _more = sim.begin.call_args
        self.assertEqual(derivation, given.derivation)

    def test_begun_though_cryptsetup_says_it_is_not(self):
        """It came to its time limit. A look had seen that there is none."""
        self.sweep()
        begin = crypt.SimCrypt.begin_reencryption

        def late(*args):
            begin(*args)
            raise exceptions.CommandFailed(command='c', code=1, stderr='late')
        with mock.patch.object(crypt.SimCrypt, 'begin_reencryption', late):
            self.assertRaises(exceptions.CommandFailed, self.start)
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_room_is_nobody_elses_meanwhile(self):
        """From when it is counted until what counts it is written."""
        held, mark = [], stack.SimLvm.mark

        def noting(*args):
            held.append(nodes.FREE_SPACE in self.a.held)
            return mark(*args)

        def check(*_args):
            held.append(nodes.FREE_SPACE in self.a.held)
        self.patch(stack.SimLvm, 'mark', noting)
        self.patch(reencrypt, '_check_space', check)
        self.start()
        self.assertEqual([True, True], held[:2])

    def test_room(self):
        """What is written becomes the volume's own, all of it."""
        self.world.pool = 'pool'
        body = self.volume.backing_bytes()
        self.a.free = body - 1
        error = self.assertRaises(encryption_exceptions.NoSpaceToReencrypt,
                                  self.start)
        self.assertIn('1040 MiB; 1039 MiB are free', str(error))
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.a.free = body
        self.start()
        self.assertEqual(0, self.node.lvm.free_space().volumes)

    def test_room_of_what_is_full_already(self):
        lv = dataclasses.replace(
            self.node.lvm.lvs()[self.volume.name], thin=True,
            allocated=self.volume.backing_bytes())
        snapshot = dataclasses.replace(lv, name='s', origin=lv.name)
        self.a.free = 0
        born = dataclasses.replace(lv, origin='image')
        for lvs, enough in (({lv.name: lv}, True), ({lv.name: born}, False),
                            ({lv.name: lv, 's': snapshot}, False)):
            with mock.patch.object(type(self.a.sim_lvm._inner), 'lvs',
                                   return_value=lvs):
                with contextlib.ExitStack() as refused:
                    if not enough:
                        refused.enter_context(testtools.ExpectedException(
                            encryption_exceptions.NoSpaceToReencrypt))
                    reencrypt._check_space(self.node, self.volume)


@ddt.ddt
class SweepTest(Case):
    """Time goes by between a look's list of volumes and each of them."""

    def setUp(self):
        super().setUp()
        self.start()
        with self.node.lock(self.volume.id):
            self.node.runner.stop(self.volume.id)
        self.listed = self.node.volumes.volumes_of(A)
        self.present = self.node.handles.survey()

    def sweep(self, error=False):
        """:param error: whether there is one"""
        with mock.patch.object(events, 'say') as said:
            reencrypt.Sweep(self.node).sweep(self.listed, self.present)
        self.assertEqual(error, events.REENCRYPTION_STOPPED in [
            call.args[0] for call in said.call_args_list])

    def test_nothing_has_changed(self):
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)

    @ddt.data({'host': 'b@l#p'}, {'status': 'extending'},
              {'migration_status': 'target:another'})
    def test_its_row_is_another_by_now(self, row):
        vars(self.volume).update(row)
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)

    def test_its_row_is_gone_by_now(self):
        del self.world.volumes[self.volume.id]
        self.sweep()
        self.assertEqual(set(), self.a.reencrypting)

    def test_its_lv_is_gone_by_now(self):
        lvs = self.node.lvm.lvs()
        del lvs[self.volume.name]
        with mock.patch.object(type(self.a.sim_lvm._inner), 'lvs',
                               return_value=lvs):
            self.sweep()
        self.assertEqual(set(), self.a.reencrypting)

    def test_it_moves_by_now(self):
        """Its record is enough, and so is its metadata LV."""
        for where, name, found in (
                (self.node.moves, 'move_of', 'a move'),
                (self.node.handles, 'survey', mock.Mock(**{
                    'metadata.return_value': ['a shadow']}))):
            with mock.patch.object(where, name, return_value=found):
                self.sweep()
            self.assertEqual(set(), self.a.reencrypting)

    def test_it_has_all_been_done_but_is_not_at_its_end(self):
        """The header says so while cryptsetup is still at work."""
        self.end()
        self.a.reencrypting.add(self.volume.id)
        self.sweep()
        self.assertIn(names.REENCRYPTED, self.tags())
        self.assertEqual({}, self.world.backups)
        self.a.reencrypting.clear()
        self.sweep()
        self.assertWhole()

    def test_header_that_names_no_secret_in_the_end(self):
        """No backup of it takes the place of others."""
        self.end()
        self.header.tokens.clear()
        self.sweep(error=True)
        self.assertIn(names.REENCRYPTED, self.tags())
        self.assertEqual({}, self.world.backups)


@ddt.ddt
class BootTest(Case):

    def cut_in_the_very_end(self, seals=False):
        """:param seals: whether the node keeps the key"""
        self.use()
        self.start()
        if seals:
            self.seal()
        self.a.stop(power=True)
        sim.cut_short(self.a, self.volume.id)

    def boot(self):
        """It opens the volume."""
        self.a.dead = False
        with self.node.lock(self.volume.id):
            self.node.handles.ensure_handle_on_lv(
                self.volume.id, self.volume.name,
                self.volume.backing_bytes())
            outcome, = upkeep.unlock(
                self.node.lvm, self.node.handles, {},
                self.node.crypt._inner, self.node.keys, 9)
        self.assertEqual(upkeep.OPENED, outcome.state)

    def test_power_cut_in_the_middle(self):
        """The boot opens it, and so recovers it; the service goes on."""
        self.use()
        self.start()
        self.a.stop(power=True)
        self.assertTrue(self.header.under_way.interrupted)
        self.boot()
        self.assertFalse(self.header.under_way.interrupted)
        self.sweep()
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_power_cut_in_the_very_end(self):
        """cryptsetup has no way to open that any more."""
        self.cut_in_the_very_end()
        self.boot()
        self.sweep()
        self.assertWhole()

    def test_power_cut_in_the_very_end_and_the_end_fails_once(self):
        """The key manager is away, too: all is tried again in a moment."""
        end = crypt.SimCrypt.end_reencryption_sealed
        self.useFixture(fixtures.MockPatchObject(upkeep, 'PAUSE', 0.1))
        for failed in (exceptions.CommandTimeout(command='dd', seconds=30),
                       encryption_exceptions.HeaderDamaged(
                           path='p', reason='no'), OSError('no memory')):
            self.world.secrets.state, todo = '', [failed]
            self.cut_in_the_very_end(seals=True)
            self.world.secrets.state = crypt.AWAY

            def once(*which, todo=todo):
                if todo:
                    raise todo.pop()
                end(*which)
            with mock.patch.object(crypt.SimCrypt, 'end_reencryption_sealed',
                                   once):
                self.boot()
            self.assertIsNone(self.header.under_way)

    def test_nobody_is_told_to_restore_what_is_cut_short(self):
        """Whatever could not be read of it just then."""
        damaged = encryption_exceptions.HeaderDamaged(path='p', reason='none')
        header, end = crypt.SimCrypt.header, crypt.SimCrypt.end_reencryption
        ended = []

        def ends(*which):
            end(*which)
            ended.append(True)

        def reads(*which, **how):
            if ended:
                raise damaged
            return header(*which, **how)
        fails = {'side_effect': damaged}
        for patches in ({'end_reencryption': mock.Mock(**fails),
                         'test': mock.Mock(**fails)},
                        {'uuid': mock.Mock(**fails)},
                        {'end_reencryption': ends, 'header': reads}):
            self.use()
            self.start()
            sim.cut_short(self.a, self.volume.id)
            self.a.devices.pop(self.crypt)
            with mock.patch.multiple(crypt.SimCrypt, **patches):
                self.assertRaises(encryption_exceptions.NotRecovered,
                                  self.open, luks=self.volume.id)

    def test_nobody_is_told_to_restore_what_does_not_open(self):
        """Its backups are of before its end, also if that is made by now."""
        damaged = encryption_exceptions.HeaderDamaged(path='p', reason='gone')
        for strike, state, name in (
                (sim.cut_short, '', 'open'),
                (sim.almost_end, '', 'open'),
                (sim.go_on, '', 'open'),
                (sim.go_on, crypt.AWAY, 'open_sealed')):
            self.start()
            self.seal()
            strike(self.a, self.volume.id)
            self.a.devices.pop(self.crypt)
            self.a.reencrypting.clear()
            self.world.secrets.state = state
            with mock.patch.object(crypt.SimCrypt, name, autospec=True,
                                   side_effect=damaged):
                error = self.assertRaises(encryption_exceptions.NotRecovered,
                                          self.open)
            self.assertIn('gone', str(error))
            self.world.secrets.state = ''

    def test_what_is_not_its_own_is_not_recovered(self):
        """Nothing of it is closed, written or opened."""
        for strike in sim.kill, sim.cut_short:
            self.start()
            strike(self.a, self.volume.id)
            before = dict(self.a.devices)
            with mock.patch.object(
                    pinning, 'recorded_in_row', autospec=True,
                    return_value=dataclasses.replace(
                        self.expected(), pin=None, becoming=None)):
                with self.node.lock(self.volume.id):
                    self.assertRaises(
                        encryption_exceptions.ForeignHeader,
                        devices.recover, self.node, self.volume)
            self.assertEqual(before, dict(self.a.devices))
            self.assertTrue(self.header.under_way)
            self.sweep()
            self.sweep()

    def test_power_cut_in_the_very_end_and_a_key_that_is_kept(self):
        """It ends it as well, where the key manager may need this volume."""
        self.cut_in_the_very_end(seals=True)
        self.world.secrets.state = crypt.AWAY
        self.boot()
        self.assertIsNone(self.header.under_way)
        self.world.secrets.state = ''
        self.sweep()
        self.assertWhole()

    def seal(self):
        """The node keeps the key; its reference."""
        key = self.volume.encryption.key
        self.a.disk.sealed = {self.volume.id: (
            key, self.world.secrets.kept[key][1])}
        return key

    def open(self, **how):
        with self.node.lock(self.volume.id):
            activate.open_volume(
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected(), **how)

    def test_power_cut_in_the_very_end_and_a_kept_key_that_is_of_no_use(self):
        """Its TPM hangs, say: the key manager is asked again, nothing else."""
        self.cut_in_the_very_end(seals=True)
        self.world.secrets.state = crypt.AWAY

        def hangs(*_which):
            self.world.secrets.state = ''  # it is back
            raise encryption_exceptions.NotSealed(path='p', reason='it hangs')
        self.useFixture(fixtures.MockPatchObject(upkeep, 'PAUSE', 0.1))
        with mock.patch.object(
                crypt.SimCrypt, 'end_reencryption_sealed', hangs), \
                mock.patch.object(crypt.SimCrypt, 'open_sealed') as again:
            self.boot()
        again.assert_not_called()

    def test_power_cut_in_the_very_end_and_a_header_that_is_locked(self):
        """It is tried again while there is time."""
        self.cut_in_the_very_end()
        locked = [encryption_exceptions.HeaderInUse(path='p', reason='locked')]
        end = crypt.SimCrypt.end_reencryption

        def first_locked(*which):
            if locked:
                raise locked.pop()
            end(*which)
        self.useFixture(fixtures.MockPatchObject(upkeep, 'PAUSE', 0.1))
        with mock.patch.object(
                crypt.SimCrypt, 'end_reencryption', first_locked):
            self.boot()
        self.assertIsNone(self.header.under_way)

    def test_cut_short_and_the_end_by_a_key_that_is_kept_fails(self):
        """That is said, and not that the key manager is away."""
        self.start()
        self.seal()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        self.world.secrets.state = crypt.AWAY
        for failed in (OSError('no memory'), encryption_exceptions.HeaderInUse(
                path='p', reason='locked')):
            with mock.patch.object(
                    crypt.SimCrypt, 'end_reencryption_sealed',
                    side_effect=failed):
                self.assertIs(failed, self.assertRaises(
                    type(failed), self.open))

    def test_cut_short_and_a_header_that_is_not_read_just_then(self):
        """Nobody is told to restore a backup of it."""
        self.start()
        self.seal()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        damaged = encryption_exceptions.HeaderDamaged(path='p', reason='none')
        for state, name in (('', 'end_reencryption'),
                            (crypt.AWAY, 'end_reencryption_sealed')):
            self.world.secrets.state = state
            with mock.patch.object(crypt.SimCrypt, name, side_effect=damaged):
                self.assertRaises(
                    encryption_exceptions.NotRecovered, self.open)

    def test_cut_short_and_a_key_that_is_wrong(self):
        """That does not mend itself, and nobody says so."""
        self.use()
        self.start()
        sim.cut_short(self.a, self.volume.id)
        key = self.volume.encryption.key
        name, _right = self.world.secrets.kept[key]
        self.world.secrets.kept[key] = name, b'another'
        self.sweep()
        self.assertTrue(self.header.under_way)
        self.a.devices.pop(self.crypt)
        self.assertRaises(encryption_exceptions.WrongKey, self.open)
        found = {each['what']: each['problem'] for each in headers.verify(
            self.node, self.volume.id)}
        self.assertIn('does not open', found['key'])
        outcome, = upkeep.locked(self.node.handles, {}, self.node.crypt,
                                 self.node.keys)
        self.assertIn('does not open', outcome.problem)

    def test_cut_short_and_no_secret_that_would_open_it(self):
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        self.header.tokens = {
            number: dataclasses.replace(token, keyslots=())
            for number, token in self.header.tokens.items()}
        self.assertRaises(encryption_exceptions.NotEnded, self.open)

    def test_no_secret_that_would_open_what_is_not_re_encrypted(self):
        """A backup of its header is what mends that."""
        self.header.tokens = {
            number: dataclasses.replace(token, keyslots=())
            for number, token in self.header.tokens.items()}
        error = self.assertRaises(
            encryption_exceptions.HeaderDamaged, self.open)
        self.assertIs(encryption_exceptions.HeaderDamaged, type(error))
        self.assertIn('name no secret', str(error))

    def test_cut_short_and_a_header_that_is_read_no_more(self):
        """Why the end failed is said: who reads it again learns less."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        locked = encryption_exceptions.HeaderInUse(path='p', reason='locked')
        header, seen = crypt.SimCrypt.header, []

        def once(of, *which):
            if seen:
                raise encryption_exceptions.HeaderDamaged(
                    path='p', reason='none')
            seen.append(which)
            return header(of, *which)
        with mock.patch.object(crypt.SimCrypt, 'header', once), \
                mock.patch.object(crypt.SimCrypt, 'end_reencryption',
                                  side_effect=locked):
            self.assertIs(locked, self.assertRaises(
                encryption_exceptions.HeaderInUse, self.open))

    def test_cut_short_and_paused_by_an_operator(self):
        """Nothing is left to be paused."""
        self.use()
        self.start()
        reencrypt.pause(self.node, self.volume.id)
        sim.cut_short(self.a, self.volume.id)
        self.sweep()
        self.sweep()
        self.assertWhole()

    def test_one_copy_of_its_header_was_not_written(self):
        """What comes after its end has both say the same."""
        self.start()
        self.end()
        header, mended = crypt.SimCrypt.header, []

        def noting(of, volume_id, repair=False):
            mended.append(repair)
            return header(of, volume_id, repair)
        with mock.patch.object(crypt.SimCrypt, 'header', noting):
            self.sweep()
        self.assertIn(True, mended)
        self.assertWhole()

    def test_no_backup_of_a_header_of_before_its_end(self):
        """It could not be restored, and those that could be would go."""
        for strike in lambda *_which: None, sim.cut_short:
            self.start()
            strike(self.a, self.volume.id)
            before = dict(self.world.copies)
            self.assertRaises(encryption_exceptions.Reencrypting,
                              headers.back_up, self.node, self.volume.id)
            self.assertEqual(before, self.world.copies)

    def test_cut_short_and_a_key_that_is_kept_and_no_longer_to_be_open(self):
        self.start()
        self.seal()
        self.world.secrets.state = crypt.AWAY
        for strike in sim.cut_short, sim.almost_end:
            strike(self.a, self.volume.id)
            self.a.devices.pop(self.crypt, None)
            gone = exceptions.NotPossible(volume='v', reason='gone')
            self.assertIs(gone, self.assertRaises(
                exceptions.NotPossible, self.open,
                check=mock.Mock(side_effect=gone)))
            self.assertTrue(self.header.under_way)
            self.assertNotIn(self.crypt, self.a.devices)

    def test_power_cut_in_the_very_end_and_no_key_manager(self):
        """Nor does the node keep its key."""
        self.start()
        self.a.stop(power=True)
        sim.cut_short(self.a, self.volume.id)
        self.world.secrets.state = crypt.AWAY
        self.world.reconcile()
        self.assertTrue(self.header.under_way)
        self.world.secrets.state = ''
        self.world.reconcile()
        self.sweep()
        self.assertWhole()

    def test_cut_short_and_not_to_be_written(self):
        """That is its home's, and nobody else's."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        for how in ({'readonly': True}, {'keep_header': True},
                    {'readonly': True, 'recovers': True}):
            error = self.assertRaises(
                encryption_exceptions.NotRecovered, activate.open_volume,
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected(), **how)
            self.assertIn('Do not restore a backup', str(error))
            self.assertTrue(self.header.under_way)

    def test_cut_short_and_another_header_than_noted(self):
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        self.assertRaises(
            encryption_exceptions.ForeignHeader, activate.open_volume,
            self.node.crypt, self.node.keys, self.volume.id,
            self.expected(), luks='another')
        self.assertTrue(self.header.under_way)

    def test_cut_short_and_no_longer_to_be_open(self):
        """Its key took its time."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        gone = exceptions.NotPossible(volume='v', reason='gone')
        error = self.assertRaises(
            exceptions.NotPossible, activate.open_volume, self.node.crypt,
            self.node.keys, self.volume.id, self.expected(),
            check=mock.Mock(side_effect=gone))
        self.assertIs(gone, error)
        self.assertTrue(self.header.under_way)

    def test_cut_short_and_the_end_fails(self):
        """What keeps it from being over is said; nothing is noted of it."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        failed, proven = OSError('no memory'), mock.Mock()
        with self.node.lock(self.volume.id), mock.patch.object(
                crypt.SimCrypt, 'end_reencryption', side_effect=failed):
            self.assertIs(failed, self.assertRaises(
                OSError, activate.open_volume, self.node.crypt,
                self.node.keys, self.volume.id,
                self.expected(), proven=proven))
        proven.assert_not_called()
        self.assertTrue(self.header.under_way)

    @ddt.data(OSError('no memory'), encryption_exceptions.HeaderInUse(
        path='p', reason='locked'), exceptions.CommandTimeout(
            command='dd', seconds=30))
    def test_almost_cut_short_and_the_end_fails(self, failed):
        """Both slots are there: it is opened, and ended when it can be."""
        self.start()
        sim.almost_end(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        proven = mock.Mock()
        with self.node.lock(self.volume.id), mock.patch.object(
                crypt.SimCrypt, 'end_reencryption', side_effect=failed):
            activate.open_volume(
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected(), proven=proven)
        proven.assert_called_once_with()
        self.assertIn(self.crypt, self.a.devices)
        self.sweep()
        self.sweep()
        self.assertWhole()

    def end_it(self):
        with self.node.lock(self.volume.id):
            activate.end_reencryption(
                self.node.crypt, self.node.keys, self.volume.id,
                self.node.crypt.header(self.volume.id),
                self.expected())

    def test_end_without_a_key(self):
        """It is not over, and nobody is told that it is."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        key = self.volume.encryption.key
        self.world.secrets.state = crypt.AWAY
        self.a.disk.sealed = {}
        self.assertRaises(encryption_exceptions.KeyUnavailable, self.end_it)
        self.assertTrue(self.header.under_way)
        self.a.disk.sealed[self.volume.id] = (
            key, self.world.secrets.kept[key][1])
        self.world.secrets.state = crypt.REFUSES  # it means that
        self.assertRaises(encryption_exceptions.KeyRefused, self.end_it)
        self.assertTrue(self.header.under_way)
        self.world.secrets.state = crypt.AWAY
        self.end_it()
        self.assertIsNone(self.header.under_way)

    def test_cut_short_and_the_key_manager_is_asked_once(self):
        """Each time takes its time limit."""
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        with mock.patch.object(
                self.node.keys, 'get',
                side_effect=encryption_exceptions.KeyUnavailable(
                    reason='away')) as get, self.node.lock(self.volume.id):
            self.assertRaises(
                encryption_exceptions.KeyUnavailable, activate.open_volume,
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected())
        get.assert_called_once()

    def test_what_is_noted_of_what_is_opened(self):
        """When its key is proven, and not before it is to be open."""
        key, done = self.volume.encryption.key, mock.Mock()
        self.a.disk.sealed = {}
        gone = exceptions.NotPossible(volume='v', reason='gone')

        def open_it():
            done.reset_mock()
            self.a.devices.pop(self.crypt, None)
            with self.node.lock(self.volume.id):
                activate.open_volume(
                    self.node.crypt, self.node.keys, self.volume.id,
                    self.expected(),
                    check=done.check, proven=done.proven)
        done.check.side_effect = gone
        self.assertRaises(exceptions.NotPossible, open_it)
        done.proven.assert_not_called()
        done.check.side_effect, real = None, crypt.SimCrypt.open
        done.open.side_effect = lambda *args: real(
            self.node.crypt._inner, *args)
        with mock.patch.object(crypt.SimCrypt, 'open', done.open):
            open_it()
        self.assertEqual(['check', 'proven', 'open'], [
            each[0] for each in done.mock_calls])
        self.world.secrets.state = crypt.AWAY
        self.a.disk.sealed.clear()
        self.assertRaises(encryption_exceptions.KeyUnavailable, open_it)
        done.proven.assert_not_called()
        self.a.disk.sealed[self.volume.id] = (
            key, self.world.secrets.kept[key][1])
        open_it()
        done.proven.assert_called_once_with()

    def test_wrong_key_of_what_is_not_cut_short(self):
        """It is no re-encryption that anybody recovers."""
        key, = self.world.secrets.kept
        self.world.secrets.kept[key] = (
            self.world.secrets.kept[key][0], b'another')
        with self.node.lock(self.volume.id):
            self.assertRaises(
                encryption_exceptions.WrongKey, activate.open_volume,
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected())

    def test_as_an_operator_sees_one_that_goes_on(self):
        self.use()
        self.start()
        found = {each['what']: each['problem'] for each in headers.verify(
            self.node, self.volume.id)}
        self.assertEqual('', found['key'])

    def test_end_that_can_not_be_written_is_told(self):
        """Unlike a volume that is busy, which is looked at again."""
        self.use()
        self.start()
        sim.cut_short(self.a, self.volume.id)
        with mock.patch.object(
                crypt.SimCrypt, 'end_reencryption',
                side_effect=encryption_exceptions.HeaderInUse(
                    path='p', reason='locked')), mock.patch.object(
                        events, 'say') as say:
            self.sweep()
        self.assertIn(events.REENCRYPTION_STOPPED,
                      [each.args[0] for each in say.mock_calls])

    def test_cut_short_as_an_operator_sees_it(self):
        """Not as a key that is wrong; and no backup is to be restored."""
        self.use()
        self.start()
        sim.cut_short(self.a, self.volume.id)
        found = {each['what']: each['problem'] for each in headers.verify(
            self.node, self.volume.id)}
        self.assertIn('only the last step of its re-encryption', found['key'])
        self.a.devices.pop(self.crypt)
        outcome, = upkeep.locked(self.node.handles, {}, self.node.crypt,
                                 self.node.keys)
        self.assertIn('Do not restore a backup', outcome.problem)

    def test_almost_cut_short(self):
        """Both slots are there: who may not write opens it as it is."""
        self.start()
        sim.almost_end(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        with self.node.lock(self.volume.id):
            activate.open_volume(
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected(), keep_header=True)
        self.assertIn(self.crypt, self.a.devices)
        self.assertTrue(self.header.under_way)
        self.assertEqual(self.state().total, self.state().done)
        self.sweep()
        self.sweep()
        self.assertWhole()

    def test_almost_cut_short_and_no_key_manager(self):
        self.a.disk.sealed = {}
        self.start()
        self.a.disk.sealed[self.volume.id] = (
            self.volume.encryption.key,
            self.world.secrets.kept[self.volume.encryption.key][1])
        sim.almost_end(self.a, self.volume.id)
        self.a.devices.pop(self.crypt)
        self.world.secrets.state = crypt.AWAY
        with self.node.lock(self.volume.id):
            activate.open_volume(
                self.node.crypt, self.node.keys, self.volume.id,
                self.expected())
        self.assertIn(self.crypt, self.a.devices)

    def test_killed_in_the_very_end_with_devices_left_under_a_guest(self):
        """It is said until its guest has gone, and nothing is extended."""
        self.use()
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices[self.crypt]['left'] = True
        for _look in range(3):
            self.sweep()
            self.assertIs(Status.INTERRUPTED, self.state().status)
            self.assertIn(names.REENCRYPTED, self.tags())
            self.assertRaises(
                encryption_exceptions.Reencrypting,
                devices.check_not_reencrypted, self.node, self.volume,
                'extended')
        self.a.opened.discard(self.crypt)
        with self.node.lock(self.volume.id):
            devices.end_interrupted_reencryption(self.node, self.volume)
        self.assertNotIn('left', self.a.devices[self.crypt])
        self.sweep()
        self.assertWhole()

    def test_killed_in_the_very_end_under_a_guest(self):
        """It stays open: nothing but its header has to be mended."""
        self.use()
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.assertIs(Status.INTERRUPTED, self.state().status)
        with mock.patch.object(crypt.SimCrypt, 'close') as closed:
            self.sweep()
            self.sweep()
        closed.assert_not_called()
        self.assertWhole()
        self.assertIn(self.crypt, self.a.devices)

    def test_killed_in_the_very_end_and_its_devices_are_left(self):
        self.start()
        sim.cut_short(self.a, self.volume.id)
        self.a.devices[self.crypt]['left'] = True
        self.sweep()
        self.sweep()
        self.assertWhole()
        self.assertNotIn('left', self.a.devices.get(self.crypt, {}))

    def test_killed_in_the_very_end_by_whoever_has_another_key(self):
        self.start()
        sim.cut_short(self.a, self.volume.id)
        key, = self.world.secrets.kept
        kept = self.world.secrets.kept[key]
        self.world.secrets.kept[key] = kept[0], b'another'
        self.sweep()
        self.assertTrue(self.header.under_way)
        self.world.secrets.kept[key] = kept
        self.sweep()
        self.sweep()
        self.assertWhole()

    def test_nothing_that_is_passed_through_is_recovered(self):
        self.use()
        self.start()
        sim.kill(self.a, self.volume.id)
        del self.a.devices[self.crypt]
        self.a.disk.tags[self.volume.name] -= {names.OPENED}
        upkeep.unlock(
            self.node.lvm, self.node.handles, {self.volume.id: (
                self.volume.id, self.volume.encryption.key)},
            self.node.crypt._inner, self.node.keys, 9)
        self.assertTrue(self.header.under_way.interrupted)
        self.assertNotIn(self.crypt, self.a.devices)

    def test_service_that_begins_anew(self):
        self.use()
        self.start()
        self.a.stop(power=False)
        self.world.reconcile()
        self.assertIn(self.volume.id, self.a.reencrypting)
        self.a.stop(power=False)
        self.end()
        self.world.reconcile()
        self.assertWhole()

    def test_no_key_manager(self):
        self.start()
        self.a.stop(power=True)
        self.world.secrets.state = crypt.AWAY
        self.world.reconcile()
        self.assertEqual(set(), self.a.reencrypting)
        self.world.secrets.state = ''
        self.world.reconcile()
        self.assertIn(self.volume.id, self.a.reencrypting)

    def test_headers_are_not_read_each_time(self):
        self.sweep()
        with mock.patch.object(crypt.SimCrypt, 'header') as header:
            self.sweep()
        header.assert_not_called()


@ddt.ddt
class EndTest(Case):
    """A header with noise in its key slots replaces no good backup."""

    def setUp(self):
        super().setUp()
        with self.node.lock(self.volume.id):
            self.node.crypt.back_up(self.volume.id)

    def check(self):
        before = repr(self.world.copies)
        self.header.slots['0'] = b'noise'
        self.sweep()
        self.assertEqual(before, repr(self.world.copies))
        self.assertEqual(['1'], self.world.backups[self.volume.id])

    def test_by_a_tag_alone(self):
        """Who can write the disk can write LVM's tags."""
        self.a.disk.tags[self.volume.name] |= {names.REENCRYPTED}
        self.check()

    def test_that_has_not_begun(self):
        failed = exceptions.CommandFailed(command='c', code=1, stderr='no')
        with mock.patch.object(crypt.SimCrypt, 'begin_reencryption',
                               side_effect=failed):
            self.assertRaises(exceptions.CommandFailed, self.start)
        with mock.patch.object(crypt.SimCrypt, 'renew_backup',
                               side_effect=failed):
            self.sweep()
        self.check()

    def test_end_cut_short_after_its_backup(self):
        self.start()
        self.end()
        with mock.patch.object(records.SimSecrets, 'record',
                               side_effect=OSError):
            self.sweep()
        last = self.world.backups[self.volume.id][-1]
        for slot in self.header.slots:
            self.header.slots[slot] = b'noise'
        self.sweep()
        self.assertEqual([last], self.world.backups[self.volume.id])

    def test_key_manager_is_away_in_the_end(self):
        """What backups there are restores noise: nothing is to be proven."""
        self.start()
        self.end()
        self.world.secrets.state = crypt.AWAY
        self.sweep()
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.assertEqual(['2'], self.world.backups[self.volume.id])

    @ddt.data(
        encryption_exceptions.HeaderDamaged(path='p', reason='r'),
        exceptions.CommandTimeout(command='c', seconds=1))
    def test_backup_that_can_not_be_read(self, error):
        """The end does not wait for it for ever."""
        self.start()
        self.end()
        with mock.patch.object(crypt.SimCrypt, 'backed_up',
                               side_effect=error):
            self.sweep()
        self.assertNotIn(names.REENCRYPTED, self.tags())
        self.assertEqual(['2'], self.world.backups[self.volume.id])

    def test_good_one_has_other_key_slots(self):
        self.a.disk.tags[self.volume.name] |= {names.REENCRYPTED}
        self.header.slots['5'] = b'another'
        self.check()

    @ddt.data(True, False)
    def test_good_one_is_beside_one_of_before(self, is_first):
        self.start()
        self.end()
        with self.node.lock(self.volume.id):
            self.node.crypt.back_up(self.volume.id, '2')
        copies = self.world.copies
        one, two = ((self.volume.id, name) for name in
                    self.node.crypt.backup_names(self.volume.id))
        if is_first:
            copies[one], copies[two] = copies[two], copies[one]
        before = repr(copies)
        for slot in self.header.slots:
            self.header.slots[slot] = b'noise'
        self.sweep()
        self.assertEqual(before, repr(copies))
        self.assertEqual(['1', '2'], self.world.backups[self.volume.id])

    def test_foreign_header_at_first(self):
        """Whoever writes the disk writes the right one back meanwhile."""
        self.start()
        self.end()
        inner = crypt.SimCrypt.header

        def header(this, volume_id, repair=False):
            found = inner(this, volume_id, repair)
            return dataclasses.replace(
                found, digest=found.digest[::-1]) if repair else found
        with mock.patch.object(crypt.SimCrypt, 'header', header):
            self.sweep()
        self.assertIn(names.REENCRYPTED, self.tags())
        self.sweep()
        self.assertWhole()
