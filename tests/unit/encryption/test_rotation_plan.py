# SPDX-License-Identifier: Apache-2.0
"""Replacing a volume's key, stopped at every step."""

import dataclasses
import itertools

import ddt
import testtools

from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.volume_types import KeyFormat
from cinder_localclone.encryption import rotation_plan

OLD, NEW, HEX = 'secret-1', 'secret-2', KeyFormat.HEX
Do = rotation_plan.Do


class Volume:
    """A header, whose slots have keys, a row and the secrets there are."""

    def __init__(self):
        self.slots = {'0': OLD}
        self.tokens = {'0': luks_header.Token(OLD, HEX, keyslots=('0',),
                                              number='0')}
        self.recorded = OLD
        self.secrets = {OLD, NEW}
        self.done = []

    @property
    def header(self):
        return luks_header.Header(
            cipher='aes-xts-plain64', key_bits=512, sector_size=512,
            integrity='', data_offset=1 << 24, grows=True,
            keyslots=tuple(sorted(self.slots)),
            tokens=tuple(self.tokens.values()),
            all_keyslots=tuple(sorted(self.slots)),
            all_tokens=tuple(sorted(self.tokens)))

    def announce(self, key=NEW):
        token = rotation_plan.announce(self.header, self.recorded, key, HEX)
        self.tokens[token.number] = token

    def effects(self, step):
        """Each change that a step makes, one after the other."""
        token = step.token
        if step.do is Do.ADD_SLOT:
            assert token.slot not in self.slots
            yield self.slots.__setitem__, (token.slot, token.key)
        elif step.do is Do.ASSIGN:
            yield self.tokens.__setitem__, (token.number, dataclasses.replace(
                token, keyslots=(token.slot,), slot=''))
        elif step.do is Do.RECORD:
            assert token.key in {self.slots[each] for each in token.keyslots}
            yield setattr, (self, 'recorded', token.key)
        elif step.do is Do.DROP_SLOTS:
            for slot in rotation_plan.slots_of(self.header, token):
                yield self._drop_slot, (slot,)
        elif step.do is Do.DROP_TOKEN:
            yield self._delete_secret, (token.key,)
            yield self.tokens.pop, (token.number,)

    def _drop_slot(self, slot):
        del self.slots[slot]
        for number, token in self.tokens.items():  # so does cryptsetup
            self.tokens[number] = dataclasses.replace(token, keyslots=tuple(
                each for each in token.keyslots if each != slot))

    def _delete_secret(self, key):
        assert key != self.recorded
        self.secrets.discard(key)

    def check(self):
        """What the row names is there, and opens the volume."""
        assert self.recorded in self.secrets
        assert self.recorded in self.slots.values()
        self.header.tokens_with_role(luks_header.Role.VOLUME)

    def run(self, give_up=False, stop=None):
        """Go on to the end, or to ``stop`` changes.

        :returns: how many changes there were
        """
        count = 0
        while step := rotation_plan.next_step(self.header, self.recorded,
                                              give_up):
            assert self.slots[step.by.keyslots[0]] == self.recorded
            self.done.append(step.do)
            for change, arguments in self.effects(step):
                if count == stop:
                    return count
                change(*arguments)
                self.check()
                count += 1
        return count


@ddt.ddt
class RotationTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.volume = Volume()

    def assert_key(self, key):
        volume = self.volume
        self.assertEqual(key, volume.recorded)
        self.assertEqual([key], list(volume.slots.values()))
        self.assertEqual([key], [each.key for each in
                                 volume.tokens.values()])
        self.assertEqual({key}, volume.secrets)
        self.assertEqual((), volume.header.keyslots_without_token)

    def test_nothing_to_be_done(self):
        self.assertIsNone(rotation_plan.next_step(self.volume.header, OLD))

    def test_the_order(self):
        self.volume.announce()
        self.volume.run()
        self.assertEqual([Do.ADD_SLOT, Do.ASSIGN, Do.RECORD, Do.DROP_SLOTS,
                          Do.DROP_TOKEN], self.volume.done)
        self.assert_key(NEW)

    def test_stopped_anywhere_twice(self):
        self.volume.announce()
        length = self.volume.run()
        for stops in itertools.product(range(length + 1), repeat=2):
            self.volume = Volume()
            self.volume.announce()
            for stop in stops:
                self.volume.run(stop=stop)
            self.volume.run()
            self.assert_key(NEW)

    def test_given_up_anywhere(self):
        """Back to the old key until the new one is recorded."""
        for stop in range(7):
            self.volume = Volume()
            self.volume.announce()
            self.volume.run(stop=stop)
            recorded = self.volume.recorded
            self.volume.run(give_up=True)
            self.assert_key(recorded)
            self.assertEqual(OLD if stop < 3 else NEW, recorded)

    def test_given_up_and_stopped(self):
        for stops in itertools.product(range(4), range(4)):
            self.volume = Volume()
            self.volume.announce()
            self.volume.run(stop=min(stops[0], 2))
            self.volume.run(give_up=True, stop=stops[1])
            self.volume.run(give_up=True)
            self.assert_key(OLD)

    def test_again_and_again(self):
        for number in range(2, 40):
            key = 'secret-%d' % number
            self.volume.secrets.add(key)
            self.volume.announce(key)
            self.volume.run()
            self.assert_key(key)

    def test_a_new_slot_that_somebody_has_dropped(self):
        """The proof fails, and there is a way back."""
        self.volume.announce()
        self.volume.run(stop=2)
        self.volume._drop_slot('1')
        self.assertIs(Do.RECORD, rotation_plan.next_step(
            self.volume.header, OLD).do)
        self.volume.run(give_up=True)
        self.assert_key(OLD)

    def test_a_recovery_key_stays(self):
        recovery = luks_header.Token('', HEX, role=luks_header.Role.RECOVERY,
                                     keyslots=('1',), number='1')
        self.volume.slots['1'] = 'paper'
        self.volume.tokens['1'] = recovery
        self.volume.announce()
        self.assertEqual('2', self.volume.tokens['2'].slot)
        self.volume.run()
        self.assertEqual({'1': 'paper', '2': NEW}, self.volume.slots)
        self.assertEqual(recovery, self.volume.tokens['1'])

    def test_slots_and_tokens_of_others_are_not_taken(self):
        header = dataclasses.replace(
            self.volume.header, all_keyslots=('0', '1', '2'),
            all_tokens=('0', '2'))
        token = rotation_plan.announce(header, OLD, NEW, HEX)
        self.assertEqual(('3', '1'), (token.slot, token.number))

    def refused(self, said, header, recorded=OLD):
        error = self.assertRaises(
            rotation_plan.CannotRotate, rotation_plan.announce, header,
            recorded, NEW, HEX)
        self.assertIn(said, str(error))

    def test_one_at_a_time(self):
        self.volume.announce()
        self.refused('is incomplete', self.volume.header)

    def test_not_while_it_is_re_encrypted(self):
        self.refused('re-encrypted', dataclasses.replace(
            self.volume.header, reencryption=luks_header.Reencryption(
                0, 'checksum', False, 'aes-xts-plain64', 512)))

    def test_not_what_others_have_as_well(self):
        self.volume.tokens['0'] = dataclasses.replace(
            self.volume.tokens['0'], shared=True)
        self.refused('share the key', self.volume.header)

    @ddt.data({'keyslots': ('0', '1')}, {'slot': '0'})
    def test_the_slot_that_stays_is_never_dropped(self, claim):
        self.volume.announce()
        self.volume.run(stop=2)
        self.volume.tokens['1'] = dataclasses.replace(
            self.volume.tokens['1'], **claim)
        error = self.assertRaises(
            rotation_plan.CannotRotate, rotation_plan.next_step,
            self.volume.header, OLD, give_up=True)
        self.assertIn('claim the same slot', str(error))

    def test_not_while_the_row_names_another(self):
        self.refused('no key slot of its recorded secret',
                     self.volume.header, NEW)

    def test_not_while_the_row_names_what_opens_nothing(self):
        self.volume.announce()
        self.refused('no key slot of its recorded secret',
                     self.volume.header, NEW)

    @ddt.data('all_keyslots', 'all_tokens')
    def test_not_in_a_header_that_is_full(self, what):
        self.refused('full', dataclasses.replace(
            self.volume.header, **{what: tuple(map(str, range(32)))}))
