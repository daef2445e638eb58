# SPDX-License-Identifier: Apache-2.0
"""What a restore at boot does, in which order; nothing is created."""

import dataclasses
from unittest import mock

import ddt
import testtools

from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.service import restore
from tests.helpers import attach_case
from tests.helpers import storage_parts
from tests.world import iscsi

GIB = 1 << 30
V1, V2, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3))
NEW, META = 'volume-' + SHADOW, names.metadata_lv(SHADOW)
READY = names.tags(
    volume=V1, geometry=state.Geometry(128, 32, 8), source='iqn.x:y')


def lv(name, *tags):
    return lvm_reports.LogicalVolume('g', name, GIB, '', frozenset(tags))


ARRIVING = (lv(NEW, *names.tags(volume=V1)), lv(META, *READY))


@ddt.ddt
class RestoreTest(testtools.TestCase):

    #: What the initiator's records say is passed through.
    remotes: dict[str, str] = {}

    def restore(self, *lvs, **errors):
        self.acted = mock.Mock()
        self.listed = {each.name: each for each in lvs}
        self.acted.handles.survey.return_value = survey.Survey(self.listed, {})
        self.acted.sessions.login_from_records.return_value = '/dev/sda'
        self.acted.sessions.recorded_remotes.return_value = self.remotes
        self.acted.sessions.remote_from_records.return_value = '/dev/sdb'
        self.acted.handles.header_sectors.side_effect = (
            encryption_exceptions.HeaderDamaged(path='p', reason='none'))
        for name, error in errors.items():
            room = (self.acted.sessions if name == 'login_from_records'
                    else storage_parts.of(self.acted, name))
            getattr(room, name).side_effect = error
        outcome = restore.restore(
            self.acted.lvm, self.acted.handles, self.acted.clones,
            self.acted.sessions)
        return {local.volume_id: problem for local, problem in outcome}

    def done(self):
        return self.acted.mock_calls[2:]  # after the looks

    def test_at_rest(self):
        self.assertEqual({V2: ''}, self.restore(
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([mock.call.handles.ensure_handle_on_lv(
            V2, 'volume-' + V2, GIB, self.listed, swaps=False)], self.done())

    def test_striped(self):
        """Its extents are more than whole GiB."""
        self.restore(dataclasses.replace(
            lv('volume-' + V2, *names.tags(volume=V2)),
            size=2 * GIB + (8 << 20)))
        self.assertEqual([mock.call.handles.ensure_handle_on_lv(
            V2, 'volume-' + V2, 2 * GIB, self.listed, swaps=False)],
            self.done())

    def test_arriving_beside_what_a_create_has_left(self):
        """It could not be created here, was elsewhere, and moves here."""
        self.assertEqual({V1: ''}, self.restore(
            lv('volume-' + V1, names.UNCOMMITTED, *names.tags(volume=V1)),
            *ARRIVING))
        self.assertIn('ensure_handle_on_clone', [
            call[0].partition('.')[2] for call in self.done()])

    def test_passed_through_beside_what_a_create_has_left(self):
        self.remotes = {V2: 'iqn.x:pass'}
        self.assertEqual({V2: ''}, self.restore(
            lv('volume-' + V2, names.UNCOMMITTED, *names.tags(volume=V2))))
        self.acted.handles.ensure_handle_on_lv.assert_not_called()

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
            mock.call.lvm.activate(NEW), mock.call.lvm.activate(META),
            mock.call.sessions.login_from_records(move),
            mock.call.clones.ensure_clone(move, '/dev/sda'),
            mock.call.handles.ensure_handle_on_clone(move, swaps=False)],
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
        self.acted.handles.ensure_handle_on_clone.assert_not_called()

    def test_errors_of_another_kind_do_not_stop_the_others(self):
        problems = self.restore(
            lv('volume-' + V2, *names.tags(volume=V2)), *ARRIVING,
            ensure_handle_on_lv=KeyError('x'))
        self.assertEqual({V2: "KeyError: 'x'", V1: ''}, problems)

    @ddt.data('shown=x', 'given=x', 'extra=x')
    def test_tag_that_is_no_number(self, tag):
        """It is the trouble of that volume alone."""
        problems = self.restore(
            lv('volume-' + V2, *names.tags(volume=V2), 'localclone.' + tag),
            *ARRIVING)
        self.assertEqual('', problems[V1])
        self.assertIn(tag, problems[V2])
        self.acted.handles.ensure_handle_on_lv.assert_not_called()

    @ddt.data('shown=x', 'given=x', 'extra=x')
    def test_tag_of_what_arrives_that_is_no_number(self, tag):
        body, metadata = ARRIVING
        found = self.restore(
            lv(body.name, *body.tags, 'localclone.' + tag), metadata)
        self.assertIn(tag, found[V1])
        self.assertEqual([], self.done())

    def test_metadata_with_a_tag_that_is_no_number(self):
        body, metadata = ARRIVING
        found = self.restore(body, lv(
            metadata.name, *metadata.tags, 'localclone.extra=x'))
        self.assertIn('not complete', found[V1])
        self.assertEqual([], self.done())

    @ddt.data('clone-' + SHADOW, 'x', '../' + V2)
    def test_volume_that_has_no_id(self, text):
        """Nothing else of the driver is made in the name of a volume."""
        problems = self.restore(
            lv('volume-' + V2, *names.tags(volume=text)), *ARRIVING)
        self.assertEqual('', problems[V1])
        self.assertIn('without its id', problems[text])
        self.acted.handles.ensure_handle_on_lv.assert_not_called()

    @ddt.data(*READY)
    def test_what_is_not_sure_is_not_touched(self, lacking):
        tags = set(READY) - {lacking}
        if lacking.startswith('localclone.volume'):
            self.restore(ARRIVING[0], lv(META, *tags))
        else:
            problems = self.restore(ARRIVING[0], lv(META, *tags))
            self.assertNotEqual('', problems[V1])
            self.assertEqual([], self.done())
        self.acted.handles.ensure_handle_on_lv.assert_not_called()

    def test_metadata_without_a_destination_lv(self):
        """LVM created it late, after the move had been given up."""
        self.assertEqual({V1: ''}, self.restore(
            lv('volume-' + V1, *names.tags(volume=V1)), lv(META, *READY)))
        self.assertEqual([mock.call.handles.ensure_handle_on_lv(
            V1, 'volume-' + V1, GIB, self.listed, swaps=False)], self.done())

    def test_metadata_beside_a_destination_lv_without_tags(self):
        problems = self.restore(
            lv('volume-' + V1, *names.tags(volume=V1)), lv(META, *READY),
            lv(NEW))
        self.assertIn('not prepared', problems[V1])
        self.assertEqual([], self.done())

    def test_geometry_that_is_none(self):
        problems = self.restore(ARRIVING[0], lv(
            META, *names.tags(
                volume=V1, geometry='128:32', source='iqn.x:y')))
        self.assertIn('not complete', problems[V1])
        self.assertEqual([], self.done())

    def test_passed_through(self):
        self.remotes = {V2: 'iqn.x:pass'}
        self.assertEqual({V2: ''}, self.restore())
        self.assertEqual([
            mock.call.sessions.remote_from_records(V2, 'iqn.x:pass'),
            mock.call.handles.ensure_handle_on_disk(
                V2, '/dev/sdb', swaps=False),
            mock.call.handles.header_sectors(V2)], self.done())

    def test_what_nova_encrypts_has_its_guard_before_nova_starts(self):
        self.restore(lv('volume-' + V2, *names.tags(volume=V2, guarded=4096)))
        self.assertEqual([
            mock.call.handles.ensure_handle_on_lv(V2, 'volume-' + V2, GIB,
                                                  self.listed, swaps=False),
            mock.call.handles.ensure_guard(V2, 4096),
            mock.call.handles.ensure_link(V2, names.guard(V2))], self.done())

    def test_arriving_with_its_guard(self):
        self.restore(lv(NEW, *names.tags(volume=V1, guarded=8)), ARRIVING[1])
        self.assertEqual([
            mock.call.handles.ensure_guard(V1, 8),
            mock.call.handles.ensure_link(V1, names.guard(V1))],
            self.done()[-2:])

    def test_what_is_passed_through_says_itself_whether_it_has_one(self):
        self.remotes = {V2: 'iqn.x:pass'}
        self.assertEqual({V2: ''}, self.restore(header_sectors=[8]))
        self.assertEqual([
            mock.call.handles.ensure_guard(V2, 8),
            mock.call.handles.ensure_link(V2, names.guard(V2))],
            self.done()[-2:])

    def test_without_its_header_it_has_no_path(self):
        """Nobody who would format it gets to it."""
        self.remotes = {V2: 'iqn.x:pass'}
        problems = self.restore(header_sectors=exceptions.CommandTimeout(
            command='cryptsetup', seconds=1))
        self.assertIn('cryptsetup', problems[V2])
        self.acted.handles.ensure_link.assert_not_called()

    def test_passed_through_not_what_is_left_of_it_here(self):
        self.remotes = {V2: 'iqn.x:pass'}
        self.restore(lv('volume-' + V2, names.AWAY, *names.tags(volume=V2)))
        self.acted.handles.ensure_handle_on_lv.assert_not_called()
        self.acted.handles.ensure_handle_on_disk.assert_called_once_with(
            V2, '/dev/sdb', swaps=False)

    def test_passed_through_until_it_has_followed(self):
        """Written to its clone before the commit, data would be lost."""
        self.remotes = {V1: 'iqn.x:pass'}
        self.assertEqual({V1: ''}, self.restore(
            ARRIVING[0], lv(META, names.DEFERRED, *READY)))
        self.assertEqual([
            mock.call.sessions.remote_from_records(V1, 'iqn.x:pass'),
            mock.call.handles.ensure_handle_on_disk(
                V1, '/dev/sdb', swaps=False),
            mock.call.handles.header_sectors(V1)], self.done())

    @ddt.data('volume-%s', 'volume-%s-x', 'vol_%s.disk', '%s', 'ab%sab')
    def test_passed_through_whatever_lvs_are_named(self, template):
        """Cinder's volume_name_template may have anything around the id."""
        self.remotes = {V1: 'iqn.x:pass'}
        new = template % SHADOW
        self.assertEqual({V1: ''}, self.restore(
            lv(new, *names.tags(volume=V1)),
            lv(META, names.DEFERRED, *READY)))
        self.acted.handles.ensure_handle_on_lv.assert_not_called()
        self.assertEqual({V1: ''}, self.restore(
            lv(new, *names.tags(volume=V1)), lv(META, *READY)))
        self.assertIn('ensure_handle_on_clone', [
            call[0].partition('.')[2] for call in self.done()])

    def test_what_has_followed_is_not_passed_through_any_more(self):
        self.remotes = {V1: 'iqn.x:pass'}
        self.assertEqual({V1: ''}, self.restore(*ARRIVING))
        self.acted.handles.ensure_handle_on_disk.assert_not_called()
        self.acted.handles.ensure_handle_on_clone.assert_called_once()

    def test_without_the_initiators_records_the_others_are_restored(self):
        self.restore(lv('volume-' + V2, *names.tags(volume=V2)))
        self.acted.sessions.recorded_remotes.side_effect = (
            exceptions.CommandTimeout(command='iscsiadm', seconds=1))
        outcome = restore.restore(
            self.acted.lvm, self.acted.handles, self.acted.clones,
            self.acted.sessions)
        self.assertEqual([(V2, '')], [
            (local.volume_id, problem) for local, problem in outcome])

    def test_two_that_claim_to_be_one(self):
        problems = self.restore(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V1)))
        self.assertIn('have the tag', problems[V1])
        self.assertEqual([], self.done())

    @ddt.data((), (names.UNCOMMITTED,))
    def test_two_of_which_one_is_uncommitted(self, both):
        """Which of them the volume's row names is not known here."""
        problems = self.restore(
            lv('volume-' + V1, names.UNCOMMITTED, *names.tags(volume=V1)),
            lv('volume-' + V2, *both, *names.tags(volume=V1)))
        self.assertIn('have the tag', problems[V1])
        self.assertEqual([], self.done())

    @ddt.data((), (names.shown(0),))
    def test_uncommitted(self, more):
        """A guest has none: it may be of a revert that was not committed."""
        problems = self.restore(
            lv('volume-' + V1, names.UNCOMMITTED, *more,
               *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V2)))
        self.assertNotIn(V1, problems)
        self.assertEqual([mock.call.handles.ensure_handle_on_lv(
            V2, 'volume-' + V2, GIB, self.listed, swaps=False)], self.done())


class RestoreByHandTest(attach_case.Base):

    def test_guest_comes_back_meanwhile(self):
        """What has left is not put beneath a guest that is passed through.

        1. The volume has moved to B, its copy is under way: A has its LV, and
           no handle.
        2. "restore" lists what A has.
        3. The guest is attached to A again: it is passed through to B.
        4. "restore" comes to this volume.
        """
        self.connect(attach_case.ON_B)
        self.assertIs(self.b, self.world.home(self.volume))
        self.a.reconciler.reconcile_node()
        self.assertNotIn(self.handle, self.a.devices)
        self.attach('reserved', None)
        plan = boot_plan.plan

        def then_attached(present):
            planned = plan(present)
            self.connect(dict(attach_case.ON_A, initiator='iqn.x'), self.b)
            self.assertEqual({'below': 'disk of ' + self.volume.id},
                             self.a.devices[self.handle])
            # The command takes no lock; the simulated LVM asks for one.
            lock = self.a.lock(self.volume.id)
            lock.__enter__()
            self.addCleanup(lock.__exit__, None, None, None)
            return planned
        with mock.patch.object(boot_plan, 'plan', then_attached):
            (local, problem), = restore.restore(
                self.a.sim_lvm, self.a.sim_handles, self.a.sim_clones,
                iscsi.SimSessions(self.a))
        self.assertEqual(self.volume.id, local.volume_id)
        self.assertTrue(problem)
        self.assertEqual({'below': 'disk of ' + self.volume.id},
                         self.a.devices[self.handle])
