# SPDX-License-Identifier: Apache-2.0
"""The notes on a node by which a boot opens volumes."""

from unittest import mock

import ddt
import testtools

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import boot_notes
from tests.helpers import specs
from tests.world import images

V, LV = 'v', 'volume-v'
ENCRYPTED = str(volume_types.Recorded(16 << 20, 'k'))
call = mock.call


def lv(*tags, name=LV, **facts):
    return lvm_reports.LogicalVolume(
        'g', name, 1 << 30, '253:1', frozenset((*tags, *names.tags(**facts))))


class Case(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.node = specs.node()
        self.node.crypt.uuid.return_value = 'header'
        self.node.crypt.remotes.return_value = {}

    def changes(self):
        """What was called, without what only reads."""
        reads = 'crypt.uuid', 'crypt.remotes', 'handles.survey', 'lvm.lvs'
        return [each for each in self.node.mock_calls
                if not each[0].startswith(reads)]


@ddt.ddt
class SecretTest(Case):

    @ddt.data(
        ('', [call.crypt.note(LV, [], key='k', luks='header')]),
        ('given', [call.crypt.note(LV, [], key='k', luks='given')]))
    @ddt.unpack
    def test_header_of_a_new_note(self, luks, changes):
        boot_notes.note_key(self.node, lv(), V, 'k', luks)
        self.assertEqual(changes, self.changes())
        self.assertEqual(not luks, self.node.crypt.uuid.called)

    def test_header_noted_before(self):
        """The noted UUID decides which header a boot believes."""
        boot_notes.note_key(self.node, lv(luks='own'), V, 'k', 'given')
        self.assertEqual([call.crypt.note(LV, [], key='k', luks='own')],
                         self.changes())

    def test_all_other_tags_are_replaced(self):
        """A boot must not choose between two secrets, or two headers."""
        before = lv('other', *names.tags(key='1'), *names.tags(key='2'),
                    *names.tags(luks='3'))
        boot_notes.set_secret_tags(self.node, before, 'k', 'u')
        boot_notes.set_secret_tags(self.node, before, 'k')
        keys = [*names.tags(key='1'), *names.tags(key='2')]
        self.assertEqual([
            call.crypt.note(LV, [*keys, *names.tags(luks='3')], key='k',
                            luks='u'),
            call.crypt.note(LV, keys, key='k')], self.changes())

    def test_second_secret_is_removed(self):
        """As an interrupted change of the tags leaves it."""
        boot_notes.set_secret_tags(
            self.node, lv(*names.tags(key='old'), key='k', luks='u'), 'k', 'u')
        self.assertEqual([call.crypt.note(
            LV, names.tags(key='old'), key='k', luks='u')], self.changes())

    @ddt.data((), ('other',))
    def test_same_tags(self, others):
        same = lv(*others, key='k', luks='u')
        boot_notes.set_secret_tags(self.node, same, 'k', 'u')
        boot_notes.set_secret_tags(self.node, same, 'k')
        self.assertEqual([], self.changes())


@ddt.ddt
class OpenedTest(Case):

    def test_remotely_attached(self):
        boot_notes.note_opened(self.node, None, V, 'k', 'ignored')
        self.assertEqual([call.crypt.note_remote(V, 'header', 'k')],
                         self.changes())

    def test_first_time(self):
        """The mark follows the secret, so a boot finds both or none."""
        boot_notes.note_opened(self.node, lv(), V, 'k', 'u')
        self.assertEqual([
            call.crypt.note(LV, [], key='k', luks='u'),
            call.lvm.mark(LV, names.OPENED),
            call.crypt.forget_remote(V)], self.changes())

    def test_with_another_secret(self):
        boot_notes.note_opened(
            self.node, lv(names.OPENED, key='k', luks='u'), V, 'new')
        self.assertEqual([call.crypt.note(
            LV, names.tags(key='k'), key='new', luks='u')], self.changes())

    def test_moved_here(self):
        boot_notes.note_moved(self.node, V, LV)
        self.assertEqual([], self.changes())
        self.node.crypt.remotes.return_value = {V: ('u', 'k'), 'w': ('', '')}
        boot_notes.note_moved(self.node, V, LV)
        self.assertEqual([call.crypt.note(LV, key='k', luks='u'),
                          call.lvm.mark(LV, names.OPENED)], self.changes())

    def corrected(self, wanted, crypt=False, found=(), handle=True,
                  foreign=False, provider_id=ENCRYPTED):
        present = mock.create_autospec(survey.Survey, instance=True)
        present.lvs = {each.name: each for each in found}
        present.handle.side_effect = {V: handle}.get
        present.crypt.side_effect = {V: crypt}.get
        present.is_handle_foreign.side_effect = {V: foreign}.get
        self.node.handles.survey.return_value = present
        row = images.volume(V, 'a@l', provider_id=provider_id)
        return boot_notes.correct_note(
            self.node, Volume.of(row), wanted, 'noted')

    @ddt.data({}, {'found': [lv(name='another')]},
              {'found': [lv()], 'handle': False},
              {'found': [lv()], 'foreign': True})
    def test_not_corrected_before_the_handle_is_here(self, state):
        """The volume would be closed after a boot."""
        self.assertIs(False, self.corrected(True, **state))
        self.assertEqual([], self.changes())

    @ddt.data((True, False), (None, False), (False, True), (True, True))
    @ddt.unpack
    def test_corrected_while_in_use(self, wanted, crypt):
        self.assertIs(True, self.corrected(wanted, crypt, [lv()]))
        self.assertEqual([
            call.crypt.note(LV, [], key='k', luks='noted'),
            call.lvm.mark(LV, names.OPENED),
            call.crypt.forget_remote(V)], self.changes())

    @ddt.data((False, False, [lv()], ENCRYPTED),
              (True, True, [lv()], None),
              (True, True, [lv(names.OPENED)], ENCRYPTED))
    @ddt.unpack
    def test_corrected_without_a_note_on_the_lv(self, wanted, crypt, found,
                                                provider_id):
        self.assertIs(True, self.corrected(
            wanted, crypt, found, provider_id=provider_id))
        self.assertEqual([call.crypt.forget_remote(V)], self.changes())


@ddt.ddt
class ForgottenTest(Case):

    @ddt.data((lv(names.FRESH), [call.lvm.unmark(LV, names.FRESH)]),
              (lv(), []), (lv(names.FRESH, name='another'), []))
    @ddt.unpack
    def test_fresh(self, found, changes):
        present = survey.Survey({found.name: found}, {})
        boot_notes.unmark_fresh(self.node, present, LV)
        self.assertEqual(changes, self.changes())

    @ddt.data((ENCRYPTED, [call.lvm.unmark(LV, names.FRESH)]),
              (None, []))
    @ddt.unpack
    def test_used_remotely(self, provider_id, changes):
        self.node.handles.survey.return_value = survey.Survey(
            {LV: lv(names.FRESH)}, {})
        row = images.volume(V, 'a@l', provider_id=provider_id)
        boot_notes.note_used(self.node, Volume.of(row))
        self.assertEqual(changes, self.changes())

    def test_closed_for_good(self):
        """The mark is last: by it a sweep repeats the removal."""
        found = [lv(names.OPENED, volume=V),
                 lv(names.OPENED, volume='w', name='another'),
                 lv(volume=V, name='former')]
        boot_notes.forget(self.node, survey.Survey(
            {each.name: each for each in found}, {}), V)
        self.assertEqual([
            call.crypt.forget_remote(V), call.crypt.forget_sealed(V),
            call.lvm.unmark(LV, names.OPENED)], self.changes())

    @ddt.data((lv(names.OPENED), [call.lvm.unmark(LV, names.OPENED)]),
              (lv(), []), (lv(names.OPENED, name='another'), []))
    @ddt.unpack
    def test_moved_away(self, found, changes):
        self.node.lvm.lvs.return_value = {found.name: found}
        boot_notes.forget_left(self.node, V, LV)
        self.assertEqual([call.crypt.forget_sealed(V), *changes],
                         self.changes())

    def test_key_of_a_remote_attachment_stays(self):
        self.node.crypt.remotes.return_value = {V: ('u', 'k')}
        boot_notes.forget_unless_remote(self.node, V)
        self.assertEqual([], self.changes())
