# SPDX-License-Identifier: Apache-2.0
"""What a boot restores, by what is on the disks."""

from unittest import mock

import testtools

from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core import names
from cinder_localclone.service import restore
from cinder_localclone.storage import iscsi_initiator
from tests.helpers.node_rows import GEOMETRY
from tests.helpers.node_rows import GIB
from tests.helpers.node_rows import lv
from tests.helpers.node_rows import metadata
from tests.helpers.node_rows import SHADOW
from tests.helpers.node_rows import V1
from tests.helpers.node_rows import V2


def survey(*lvs):
    return surveys.Survey({each.name: each for each in lvs}, {})


WHOLE = names.tags(
    volume=V1, geometry=GEOMETRY, source='iqn.2026-11.org.example:x')


class RestoreTest(testtools.TestCase):

    def test_at_rest(self):
        found = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)), lv('pool'),
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([
            boot_plan.Local(V1, 'volume-' + V1, GIB),
            boot_plan.Local(V2, 'volume-' + V2, GIB)], found)

    def arriving(self, *tags):
        return boot_plan.plan(survey(
            lv('volume-' + SHADOW, *names.tags(volume=V1)),
            metadata(*tags)))

    def test_arriving(self):
        found, = self.arriving(*WHOLE)
        self.assertEqual('', found.reason)
        self.assertEqual(
            (V1, SHADOW, GEOMETRY, 1, 'iqn.2026-11.org.example:x'),
            (found.move.volume_id, found.move.move_id,
             found.move.geometry, found.move.size_gib,
             found.move.source_iqn))

    def test_arriving_is_never_given_out_by_itself(self):
        for lacking in WHOLE:
            for found in self.arriving(*set(WHOLE) - {lacking}):
                self.assertTrue(found.reason or found.move, lacking)
        found, = self.arriving()
        self.assertTrue(found.reason)

    def test_arriving_by_another_template(self):
        """Cinder's option volume_name_template."""
        name = SHADOW + '.lv'
        found, = boot_plan.plan(survey(
            lv(name, *names.tags(volume=V1)), metadata(*WHOLE)))
        self.assertEqual(name, found.move.destination_lv)

    def test_metadata_counts_only_beside_its_own_lv(self):
        """LVM may have created it after its move was given up."""
        found, = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)), metadata(*WHOLE)))
        self.assertEqual('', found.reason)
        self.assertIsNone(found.move)

    def test_what_needs_no_source_goes_first(self):
        found = boot_plan.plan(survey(
            lv('a-' + SHADOW, *names.tags(volume=V1)), metadata(*WHOLE),
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([V2, V1], [each.volume_id for each in found])

    def test_a_volume_with_a_handle_is_left_alone(self):
        found = mock.MagicMock()
        found.survey.return_value = surveys.Survey(
            survey(lv('volume-' + V1, *names.tags(volume=V1))).lvs,
            {names.handle(V1): mock.sentinel.device})
        (_local, problem), = restore.restore(
            found, found, found, mock.MagicMock())
        self.assertEqual('', problem)
        found.ensure_handle_on_lv.assert_not_called()

    def test_two_that_claim_to_be_one(self):
        found = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V1))))
        self.assertEqual(
            ['two LVs of this node have the tag of this volume'] * 2,
            [each.reason for each in found])

    def test_one_that_fails_does_not_stop_the_others(self):
        found = mock.MagicMock()
        found.survey.return_value = survey(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V2)))
        found.ensure_handle_on_lv.side_effect = [
            exceptions.CommandFailed(command='c', code=1, stderr='s'), True]
        outcome = restore.restore(
            found, found, found, mock.MagicMock())
        self.assertEqual([False, True], [
            not problem for _local, problem in outcome])

    def test_a_source_that_is_not_known_leaves_the_volume(self):
        found = mock.MagicMock()
        found.survey.return_value = survey(
            lv('volume-' + SHADOW, *names.tags(volume=V1)), metadata(*WHOLE))
        sessions = mock.create_autospec(
            iscsi_initiator.Sessions, instance=True)
        sessions.login_from_records.side_effect = exceptions.NotPossible(
            volume=V1, reason='not known.')
        (_local, problem), = restore.restore(found, found, found, sessions)
        self.assertIn('not known', problem)
        found.ensure_handle_on_lv.assert_not_called()
        found.ensure_clone.assert_not_called()
