# SPDX-License-Identifier: Apache-2.0
"""What a restore at boot does, in which order; nothing is created."""

from unittest import mock

import ddt
import testtools

from cinder_localclone import exceptions
from cinder_localclone.lvm import reports
from cinder_localclone import names
from cinder_localclone import restore
from cinder_localclone import state
from cinder_localclone import survey

GIB = 1 << 30
V1, V2, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3))
NEW, META = 'volume-' + SHADOW, names.metadata_lv(SHADOW)
READY = (names.METADATA_READY, *names.tags(
    volume=V1, geometry=state.Geometry(128, 32, 8), source='iqn.x:y'))


def lv(name, *tags):
    return reports.LogicalVolume('g', name, GIB, '', frozenset(tags))


ARRIVING = (lv(NEW, *names.tags(volume=V1)), lv(META, *READY))


@ddt.ddt
class RestoreTest(testtools.TestCase):

    def restore(self, *lvs, **errors):
        self.acted = mock.Mock()
        self.acted.stack.survey.return_value = survey.Survey(
            {each.name: each for each in lvs}, {})
        self.acted.sessions.login_from_records.return_value = '/dev/sda'
        for name, error in errors.items():
            room = (self.acted.sessions if name == 'login_from_records'
                    else self.acted.stack)
            getattr(room, name).side_effect = error
        outcome = restore.restore(self.acted.stack, self.acted.sessions)
        return {local.volume_id: problem for local, problem in outcome}

    def done(self):
        return self.acted.mock_calls[1:]  # after the survey

    def test_at_rest(self):
        self.assertEqual({V2: ''}, self.restore(
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([mock.call.stack.ensure_handle_on_lv(
            V2, 'volume-' + V2, GIB)], self.done())

    def test_what_was_not_zeroed_to_its_end(self):
        problems = self.restore(
            lv('volume-' + V2, names.shown(0), *names.tags(volume=V2)))
        self.assertIn('not created', problems[V2])
        self.assertEqual([], self.done())

    def test_arriving(self):
        self.assertEqual({V1: ''}, self.restore(*ARRIVING))
        move = self.acted.sessions.login_from_records.call_args.args[0]
        self.assertEqual((True, NEW, 'iqn.x:y'), (
            move.committed, move.destination_lv, move.source_iqn))
        self.assertEqual([
            mock.call.stack.activate(NEW), mock.call.stack.activate(META),
            mock.call.sessions.login_from_records(move),
            mock.call.stack.ensure_clone(move, '/dev/sda'),
            mock.call.stack.ensure_handle_on_clone(move)],
            self.done())

    def test_without_its_source_nothing_is_built(self):
        problems = self.restore(
            *ARRIVING, login_from_records=exceptions.SourceUnreachable(
                portal='p', reason='r'))
        self.assertIn('p', problems[V1])
        self.assertEqual(3, len(self.done()))

    def test_without_its_clone_there_is_no_handle(self):
        problems = self.restore(
            *ARRIVING, ensure_clone=exceptions.MetadataLost(
                device='d', volume=V1))
        self.assertIn('blank', problems[V1])
        self.acted.stack.ensure_handle_on_clone.assert_not_called()

    def test_errors_of_another_kind_do_not_stop_the_others(self):
        problems = self.restore(
            lv('volume-' + V2, *names.tags(volume=V2)), *ARRIVING,
            ensure_handle_on_lv=KeyError('x'))
        self.assertEqual({V2: "KeyError: 'x'", V1: ''}, problems)

    @ddt.data(*READY)
    def test_what_is_not_sure_is_not_touched(self, lacking):
        tags = set(READY) - {lacking}
        if lacking.startswith('localclone.volume'):
            self.restore(ARRIVING[0], lv(META, *tags))
        else:
            problems = self.restore(ARRIVING[0], lv(META, *tags))
            self.assertNotEqual('', problems[V1])
            self.assertEqual([], self.done())
        self.acted.stack.ensure_handle_on_lv.assert_not_called()

    def test_geometry_that_is_none(self):
        problems = self.restore(ARRIVING[0], lv(
            META, names.METADATA_READY, *names.tags(
                volume=V1, geometry='128:32', source='iqn.x:y')))
        self.assertIn('not complete', problems[V1])
        self.assertEqual([], self.done())

    def test_two_that_claim_to_be_one(self):
        problems = self.restore(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V1)))
        self.assertIn('claim', problems[V1])
        self.assertEqual([], self.done())

    @ddt.data((), (names.NEWBORN,))
    def test_two_of_which_one_is_newborn(self, both):
        """Which of them the volume's row names is not known here."""
        problems = self.restore(
            lv('volume-' + V1, names.NEWBORN, *names.tags(volume=V1)),
            lv('volume-' + V2, *both, *names.tags(volume=V1)))
        self.assertIn('claim', problems[V1])
        self.assertEqual([], self.done())

    def test_newborn(self):
        """A guest has none: it may be of a revert that was not committed."""
        problems = self.restore(
            lv('volume-' + V1, names.NEWBORN, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V2)))
        self.assertIn('newborn', problems[V1])
        self.assertEqual([mock.call.stack.ensure_handle_on_lv(
            V2, 'volume-' + V2, GIB)], self.done())
