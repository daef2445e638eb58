# SPDX-License-Identifier: Apache-2.0
"""Opening what was open before a boot."""

import dataclasses
import threading
import time
import types
from unittest import mock

from cinder.tests.unit import fake_constants as fake
import fixtures
import testtools

from cinder_localclone.cmd.node import boot
from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core import names
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import source
from cinder_localclone.service import operator as backends
from tests import world as worlds
from tests.world import crypt

A, B = 'a@l', 'b@l'


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.a = self.world.nodes[A]
        self.crypt, self.keys = crypt.SimCrypt(self.a), crypt.SimKeys(self.a)
        self.useFixture(fixtures.MockPatchObject(upkeep, 'PAUSE', 0.05))
        self.addCleanup(self.end_those_left_behind, threading.enumerate())

    def end_those_left_behind(self, before):
        """Else they would be at work in the next test."""
        for each in threading.enumerate():
            if each not in before:
                each.join(10)

    def volume(self, opened=True):
        volume = self.world.create_volume(A, provider_id=crypt.recorded('k'))
        crypt.encrypt(self.world, volume)
        if opened:
            self.a.disk.tags[volume.name] |= {names.OPENED, *names.tags(
                luks=volume.id, key='secret-' + volume.id)}
        return volume

    def noted(self, *volumes):
        """What is noted of volumes that are passed through here."""
        return {each.id: (each.id, 'secret-' + each.id) for each in volumes}

    def unlock(self, seconds=20, remotes=types.MappingProxyType({}),
               only=None):
        return {each.volume_id: each for each in upkeep.unlock(
            self.a.sim_lvm, self.a.sim_handles, remotes, self.crypt,
            self.keys, seconds, only)}

    def states(self, **how):
        return {key: each.state for key, each in self.unlock(**how).items()}


class UnlockTest(Case):

    def test_what_was_open(self):
        volumes = [self.volume() for _ in range(9)]
        self.volume(opened=False)
        self.world.create_volume(A)
        hook = self.useFixture(fixtures.MockPatchObject(
            threading, 'excepthook')).mock
        self.assertEqual({each.id: 'opened' for each in volumes},
                         self.states())
        hook.assert_not_called()
        for each in volumes:
            self.assertIn(names.crypt(each.id), self.a.devices)
        self.assertEqual(9, sum(map(names.is_crypt, self.a.devices)))
        self.assertEqual({each.id: 'open' for each in volumes},
                         self.states())

    def test_the_header_is_not_written(self):
        volume = self.volume()
        with mock.patch.object(self.crypt, 'open') as opened:
            self.unlock()
        opened.assert_called_once_with(volume.id, mock.ANY, True, False,
                                       False)

    def test_only_one(self):
        volume = self.volume()
        self.volume()
        self.assertEqual({volume.id: 'opened'}, self.states(only=volume.id))

    def test_passed_through(self):
        """Only what is noted as the driver's is this driver's to open."""
        ours, other = self.volume(opened=False), self.volume(opened=False)
        self.assertEqual({ours.id: 'opened'},
                         self.states(remotes=self.noted(ours)))
        self.assertNotIn(names.crypt(other.id), self.a.devices)

    def test_passed_through_and_interrupted(self):
        """To open it would write to a header that its home has open."""
        volume = self.volume(opened=False)
        header = self.world.headers[volume.id]
        header.under_way = luks_header.Reencryption(
            0, 'checksum', True, header.cipher, header.key_bits,
            digest=header.digest + ' and anew')
        found = self.unlock(remotes=self.noted(volume))[volume.id]
        self.assertEqual('locked', found.state)
        self.assertIn('would write to it', found.problem)
        self.assertNotIn(names.crypt(volume.id), self.a.devices)

    def test_passed_through_to_where_it_has_left_an_lv(self):
        """Its key was changed since: what is noted there is of before."""
        volume = self.volume()
        self.a.disk.tags[volume.name] -= set(names.tags(
            key='secret-' + volume.id))
        self.a.disk.tags[volume.name] |= {
            names.AWAY, *names.tags(key='before')}
        self.assertEqual({volume.id: 'opened'},
                         self.states(remotes=self.noted(volume)))

    def _refused(self, volume, **how):
        """Nobody asks the key manager for anything."""
        with mock.patch.object(self.keys, '_ask') as asked:
            outcome = self.unlock(only=volume.id, **how)[volume.id]
        asked.assert_not_called()
        self.assertEqual('locked', outcome.state)
        self.assertNotIn(names.crypt(volume.id), self.a.devices)
        return outcome.problem

    def _header_of_another(self, volume, luks):
        """A header that a guest could have written, with another's token."""
        other = self.volume(opened=False)
        header = self.world.headers[volume.id]
        header.uuid = luks
        header.tokens = dict(self.world.headers[other.id].tokens)
        header.slots = dict(self.world.headers[other.id].slots)
        return other

    def test_header_that_names_the_secret_of_another_volume(self):
        remotes, here = self.volume(opened=False), self.volume()
        for volume, how in ((remotes, {'remotes': self.noted(remotes)}),
                            (here, {})):
            other = self._header_of_another(volume, volume.id)
            problem = self._refused(volume, **how)
            self.assertIn('secret-' + volume.id, problem)
            self.assertIn('secret-' + other.id, problem)

    def test_header_that_claims_to_replace_the_secret_of_another(self):
        volume = self.volume()
        self._header_of_another(volume, volume.id)
        token = self.world.headers[volume.id].tokens['0']
        self.world.headers[volume.id].tokens['0'] = dataclasses.replace(
            token, replaces=token.key)
        self._refused(volume)

    def test_header_with_another_uuid(self):
        volume = self.volume()
        self.world.headers[volume.id].uuid = 'another'
        self.assertIn('another', self._refused(volume))

    def test_volume_of_which_nothing_is_noted(self):
        for tags in ({'luks': 'x'}, {'key': 'x'}, {}):
            volume = self.volume(opened=False)
            self.a.disk.tags[volume.name] |= {
                names.OPENED, *names.tags(**tags)}
            self.assertIn('has no record', self._refused(volume))

    def test_one_that_fails_stops_no_other(self):
        damaged, strange, bare, fine = [self.volume() for _ in range(4)]
        self.world.headers[damaged.id] = None
        self.world.headers[strange.id].slots = {'0': b'other'}
        del self.a.devices[names.handle(bare.id)]
        found = self.unlock()
        self.assertEqual('opened', found[fine.id].state)
        for each in (damaged, strange, bare):
            self.assertEqual('locked', found[each.id].state)
            self.assertTrue(found[each.id].problem)
        self.assertIn('the volume service', found[bare.id].problem)

    def test_what_a_boot_does_not_give_out(self):
        volume = self.volume()
        self.a.disk.tags[volume.name] |= {names.UNCOMMITTED}
        found = self.unlock()[volume.id]
        self.assertEqual('locked', found.state)
        self.assertIn('uncommitted', found.problem)

    def test_what_raises_anything(self):
        volume = self.volume()
        with mock.patch.object(self.crypt, 'header', side_effect=OSError):
            found = self.unlock()[volume.id]
        self.assertEqual('locked', found.state)
        self.assertIn('OSError', found.problem)

    def test_key_manager_that_comes_late(self):
        volume, asked = self.volume(), []
        ask = self.keys._ask

        def late(key=None):
            asked.append(key)
            if len(asked) < 3:
                raise encryption_exceptions.KeyUnavailable(reason='late')
            return ask(key)
        with mock.patch.object(self.keys, '_ask', late), mock.patch.object(
                upkeep.time, 'sleep') as slept:
            self.assertEqual({volume.id: 'opened'}, self.states())
        self.assertEqual(2, len(slept.mock_calls))
        for call in slept.mock_calls:
            self.assertAlmostEqual(upkeep.PAUSE, call.args[0], 1)

    def test_pause_that_outlasts_the_time_that_there_is(self):
        """The volume service is at work on the volume by then."""
        volume, now = self.volume(), [0.0]
        self.world.secrets.state = crypt.AWAY

        def sleep(seconds):
            now[0] += seconds + 9  # the node is busy
        with mock.patch.object(upkeep.time, 'monotonic', lambda: now[0]), \
                mock.patch.object(upkeep.time, 'sleep', sleep), \
                mock.patch.object(upkeep, '_unlock', autospec=True,
                                  side_effect=upkeep._unlock) as tried:
            found = self.unlock(seconds=5)[volume.id]
        self.assertEqual('locked', found.state)
        tried.assert_called_once()

    def test_what_the_service_has_opened_before_the_next_try(self):
        """It is looked at anew: the service does not wait."""
        volume, asked = self.volume(), []
        ask = self.keys._ask

        def late(key=None):
            if not asked:
                asked.append(key)
                raise encryption_exceptions.KeyUnavailable(reason='late')
            return ask(key)

        def sleep(_seconds):
            with self.a.lock(volume.id):
                self.crypt.open(volume.id, b'key secret-%s' % (
                    volume.id.encode()), True)
        with mock.patch.object(self.keys, '_ask', late), mock.patch.object(
                upkeep.time, 'sleep', sleep):
            self.assertEqual({volume.id: 'open'}, self.states())
        self.assertEqual([], self.world.wrongs)

    def test_headers_that_stay_locked_hold_up_no_other(self):
        """Each waits for its lock; those that did not come after all."""
        volumes = [self.volume() for _ in range(upkeep.AT_ONCE + 1)]
        *_others, last = [each.volume_id for each in boot_plan.to_unlock(
            self.a.sim_handles.survey())]
        act = self.crypt.open

        def locked(volume_id, *how):
            if volume_id != last:
                time.sleep(0.3)
                raise encryption_exceptions.HeaderInUse(
                    path='p', reason='locked')
            act(volume_id, *how)
        with mock.patch.object(self.crypt, 'open', locked):
            found = self.unlock(seconds=2)
        self.assertEqual({each.id: 'opened' if each.id == last else 'locked'
                          for each in volumes},
                         {key: each.state for key, each in found.items()})

    def test_key_manager_that_is_not_waited_for(self):
        """There is no time for that; the reason is told."""
        volume = self.volume()
        self.world.secrets.state = crypt.AWAY
        with mock.patch.object(upkeep, 'PAUSE', 99), mock.patch.object(
                upkeep.time, 'sleep') as slept:
            found = self.unlock()[volume.id]
        self.assertIn('away', found.problem)
        slept.assert_not_called()

    def test_what_is_gone_while_the_key_manager_is_asked(self):
        gone = mock.Mock(**{'lvs.return_value': {}})
        here, remotes = (boot_plan.Local('v', lv, 0) for lv in ('lv', ''))
        self.assertRaises(exceptions.NotPossible, upkeep._check_noted,
                          gone, here)
        upkeep._check_noted(gone, remotes)

    def test_what_is_used_elsewhere_while_the_key_manager_is_asked(self):
        """What this node has left of it is not to be given out."""
        volume = self.volume()
        local, = boot_plan.to_unlock(self.a.sim_handles.survey())
        upkeep._check_noted(self.a.sim_lvm, local)
        self.a.disk.tags[volume.name] |= {names.AWAY}
        self.assertRaises(exceptions.NotPossible, upkeep._check_noted,
                          self.a.sim_lvm, local)

    def test_what_leaves_while_the_key_manager_is_asked(self):
        """The service does not wait; opening would write to what it copies.
        """
        volume = self.volume()
        crypt.authenticate(self.world, volume)
        get = self.keys.get

        def late(*what):
            with mock.patch.object(source, 'drop_handle'):  # not yet
                self.a.move(volume, B)
            return get(*what)
        with mock.patch.object(self.keys, 'get', late):
            found = self.unlock()[volume.id]
        self.assertEqual('locked', found.state)
        self.assertIn('was removed', found.problem)
        self.assertNotIn(names.crypt(volume.id), self.a.devices)
        self.assertEqual([], self.world.wrongs)

    def test_key_manager_that_does_not_come(self):
        volumes = [self.volume() for _ in range(6)]
        self.world.secrets.state = crypt.AWAY
        found = self.unlock(seconds=0.2)
        self.assertEqual({each.id for each in volumes}, set(found))
        for each in found.values():
            self.assertEqual('locked', each.state)

    def test_key_manager_that_hangs(self):
        """A boot goes on."""
        volumes, before = [self.volume() for _ in range(6)], (
            threading.enumerate())
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        with mock.patch.object(self.keys, 'get', side_effect=(
                lambda *_all: hangs.wait(30))):
            found = self.unlock(seconds=0.2)
        self.assertEqual({each.id: 'the time limit was reached'
                          for each in volumes},
                         {key: each.problem for key, each in found.items()})
        # Nor does the process wait for one in the end.
        self.assertEqual([], [
            each for each in threading.enumerate()
            if each not in before and not each.daemon])

    def test_what_comes_back_after_its_time_begins_with_no_other(self):
        """The volume service is at work on them by then."""
        volumes, begun = [self.volume() for _ in range(9)], []
        hangs, get = threading.Event(), self.keys.get
        self.addCleanup(hangs.set)

        def late(*what):
            begun.append(what)
            hangs.wait(30)
            return get(*what)
        before = threading.enumerate()
        with mock.patch.object(self.keys, 'get', late):
            self.unlock(seconds=0.2)
            left = [each for each in threading.enumerate()
                    if each not in before]
            hangs.set()
            for each in left:
                each.join(10)
        self.assertEqual(upkeep.AT_ONCE, len(begun), volumes)

    def test_other_secret_of_a_rotation(self):
        volume = self.volume()
        header = self.world.headers[volume.id]
        token = header.tokens['0']
        header.tokens['1'] = type(token)(
            'new', token.key_format, keyslots=('0',), number='1',
            replaces=token.key)
        self.world.secrets.kept['new'] = (
            names.secret(volume.id), header.slots['0'])
        del self.world.secrets.kept[token.key]
        self.assertEqual({volume.id: 'opened'}, self.states())


class SealedTest(Case):
    """The key manager is away, and this node keeps keys."""

    def setUp(self):
        super().setUp()
        self.opened = self.volume()
        self.a.disk.sealed = {self.opened.id: (
            'secret-' + self.opened.id, b'key secret-%s' % (
                self.opened.id.encode()))}
        self.world.secrets.state = crypt.AWAY
        # It is not waited for.
        self.useFixture(fixtures.MockPatchObject(upkeep, 'PAUSE', 99))

    def test_opened(self):
        other = self.volume()
        found = self.states()
        self.assertEqual({self.opened.id: 'opened', other.id: 'locked'},
                         found)

    def test_secret_that_is_refused(self):
        """Who has taken it away from this service has not meant that."""
        self.world.secrets.state = crypt.REFUSES
        self.assertEqual({self.opened.id: 'locked'}, self.states())

    def test_key_of_another_secret(self):
        self.a.disk.sealed[self.opened.id] = 'before', b'x'
        self.assertEqual({self.opened.id: 'locked'}, self.states())

    def test_key_that_opens_nothing(self):
        self.world.headers[self.opened.id].slots = {'0': b'other'}
        found = self.unlock()[self.opened.id]
        self.assertIn('key manager', found.problem)

    def test_what_leaves_meanwhile(self):
        """Neither is it opened by the key that is kept."""
        def late(*_what):
            self.a.disk.tags[self.opened.name] -= {names.OPENED}
            raise encryption_exceptions.KeyUnavailable(reason='away')
        with mock.patch.object(self.keys, 'get', late):
            found = self.unlock()[self.opened.id]
        self.assertIn('was removed', found.problem)
        self.assertNotIn(names.crypt(self.opened.id), self.a.devices)

    def test_kept_key_that_fails_while_the_key_manager_is_away(self):
        """With that one's key it may succeed: it is tried again."""
        for failed, transient in (
                (exceptions.CommandTimeout(command='c', seconds=9), True),
                (exceptions.CommandFailed(command='c', code=4, stderr='x'),
                 True),
                (OSError('no memory'), True),
                (exceptions.NotPossible(volume='v', reason='gone'), False)):
            with mock.patch.object(crypt.SimCrypt, 'open_sealed',
                                   autospec=True, side_effect=failed):
                found = self.unlock()[self.opened.id]
            self.assertIs(transient, found.transient, failed)
            self.assertIn(str(failed), found.problem)

    def test_header_of_another_volume(self):
        self.world.headers[self.opened.id].uuid = 'another'
        found = self.unlock()[self.opened.id]
        self.assertIn('another', found.problem)
        self.assertNotIn(names.crypt(self.opened.id), self.a.devices)

    def test_what_leaves_while_the_key_manager_is_asked(self):
        """Nor is that opened with a key that is kept."""
        def late(*_what):
            self.a.disk.tags[self.opened.name] -= {names.OPENED}
            raise encryption_exceptions.KeyUnavailable(reason='away')
        with mock.patch.object(self.keys, 'get', late):
            found = self.unlock()[self.opened.id]
        self.assertEqual('locked', found.state)
        self.assertIn('was removed', found.problem)
        self.assertNotIn(names.crypt(self.opened.id), self.a.devices)

    def test_kept_whenever_it_was_opened(self):
        self.world.secrets.state = ''
        kept, = self.a.disk.sealed.items()
        self.a.disk.sealed.clear()
        self.unlock()
        self.assertEqual([kept], list(self.a.disk.sealed.items()))


class LockedTest(Case):

    def locked(self, **remotes):
        return {each.volume_id: each.problem for each in upkeep.locked(
            self.a.sim_handles, remotes.get('remotes', {}), self.crypt,
            self.keys)}

    def test_reasons(self):
        opened, fine, damaged, bare, away = [
            self.volume() for _ in range(5)]
        self.unlock(only=opened.id)
        self.world.headers[damaged.id] = None
        del self.a.devices[names.handle(bare.id)]
        del self.world.secrets.kept['secret-' + away.id]
        found = self.locked()
        self.assertEqual({fine.id, damaged.id, bare.id, away.id}, set(found))
        self.assertEqual('', found[fine.id])
        self.assertIn('the volume service', found[bare.id])
        self.assertIn('header', found[damaged.id])
        self.assertIn('secret-' + away.id, found[away.id])
        # Nothing was opened.
        self.assertEqual([names.crypt(opened.id)], [
            name for name in self.a.devices if names.is_crypt(name)])

    def test_what_can_not_be_looked_at(self):
        volume = self.volume()
        with mock.patch.object(self.crypt, 'header',
                               side_effect=OSError('no such device')):
            self.assertEqual({volume.id: 'no such device'}, self.locked())

    def test_passed_through(self):
        volume = self.volume(opened=False)
        self.assertEqual({}, self.locked())
        self.assertEqual({volume.id: ''},
                         self.locked(remotes=self.noted(volume)))

    def test_most_are_not_looked_into(self):
        volumes = [self.volume() for _ in range(4)]
        with mock.patch.object(upkeep, 'EXAMINED', 2), \
                mock.patch.object(self.crypt, 'header',
                                  wraps=self.crypt.header) as looked:
            self.assertEqual({each.id for each in volumes},
                             set(self.locked()))
        self.assertEqual(2, looked.call_count)


class PlanTest(Case):

    def test_what_is_here_is_not_passed_through(self):
        volume = self.volume()
        present = self.a.sim_handles.survey()
        self.assertEqual([volume.name], [
            local.lv for local in boot_plan.to_unlock(
                present, self.noted(volume))])
        self.assertEqual(
            [(volume.id, ''), ('other', '')],
            [(local.volume_id, local.remote and local.lv)
             for local in boot_plan.to_unlock(present, {'other': ('l', 'k')})])
        self.assertIsInstance(boot_plan.to_unlock(present)[0], boot_plan.Local)

    def test_what_is_noted_on_the_lv_below(self):
        """On that of the same volume, and of no other."""
        volume, other = self.volume(), self.volume()
        for each in (volume, other):
            facts = upkeep.facts_on_lv(
                self.a.sim_handles.survey(), each.id)
            self.assertEqual(self.noted(each)[each.id],
                             (facts['luks'], facts['key']))
        self.a.disk.tags[volume.name] = self.a.disk.tags[other.name]
        self.assertEqual({}, upkeep.facts_on_lv(
            self.a.sim_handles.survey(), volume.id))


class CommandTest(Case):

    def run_command(self, outcome, *words):
        self.useFixture(fixtures.MockPatchObject(backends, 'act_as_root'))
        app = mock.Mock(exit_code=None)
        app.backend().sessions().recorded_remotes.return_value = {'p': 'iqn'}
        app.backend().crypt().remotes.return_value = {
            'p': ('l', 'k'), 'left': ('m', 'k')}
        command = boot.Unlock(app, None)
        with mock.patch.object(upkeep, 'unlock',
                               return_value=outcome) as called:
            columns, rows = command.take_action(
                command.get_parser('x').parse_args(words))
        self.assertEqual(('Volume', 'LV', 'State', 'Problem'), columns)
        return rows, app.exit_code, called.call_args.args

    def test_some_and_none(self):
        opened = boot_plan.Outcome('v', 'l', 'opened')
        locked = boot_plan.Outcome('w', 'm', 'locked', 'no key')
        for outcome, code in (([opened, locked], 0), ([locked], 1), ([], 0),
                              ([opened], 0), ([locked, locked], 1)):
            self.assertEqual(code, self.run_command(outcome)[1])
        self.assertEqual([('w', 'm', 'locked', 'no key')],
                         self.run_command([locked])[0])

    def test_what_is_asked_for(self):
        args = self.run_command([])[2]
        self.assertEqual(({'p': ('l', 'k')}, 120, None),
                         (args[2], *args[5:]))
        opened = boot_plan.Outcome(fake.VOLUME_ID, 'l', 'opened')
        args = self.run_command([opened], '--seconds', '7', fake.VOLUME_ID)[2]
        self.assertEqual((7, fake.VOLUME_ID), args[5:])

    def test_it_needs_root(self):
        with mock.patch.object(backends.os, 'geteuid', return_value=1):
            self.assertRaises(errors.CommandError, backends.act_as_root, None)

    def test_sessions_are_those_of_the_backend(self):
        """What is passed through is recorded by the backend's name: without
        that neither "restore" nor "unlock" finds any of it.
        """
        backend = mock.Mock(host='n1@l', settings=mock.Mock())
        found = backends.Backend.sessions(backend)
        self.assertEqual('n1@l', found.host)
