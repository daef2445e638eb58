# SPDX-License-Identifier: Apache-2.0
"""What nobody was given goes, and nothing else does.

An LV is tagged as newborn until Cinder has taken its volume; a volume may be
in use for a minute, or longer, before the tag is taken off.
"""

import dataclasses
from unittest import mock

import ddt
from oslo_concurrency import processutils

from cinder_localclone.core import boot_plan
from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.encryption import policy
from cinder_localclone.encryption import upkeep
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import destination
from cinder_localclone.volumes import create
from cinder_localclone.volumes import manageable
from cinder_localclone.volumes import uncommitted
from tests.helpers import attach_case
from tests.helpers import callers
from tests.helpers import encrypted_attach_case
from tests.helpers.uncommitted_case import A
from tests.helpers.uncommitted_case import B
from tests.helpers.uncommitted_case import C
from tests.helpers.uncommitted_case import Case
from tests.helpers.uncommitted_case import R
from tests.world import crypt
from tests.world import disks
from tests.world import peers
from tests.world import stack

SLOW = exceptions.CommandFailed(command='lvchange', code=-1, stderr='slow')


@ddt.ddt
class AtHomeTest(Case):
    """Before a look has taken the tag off."""

    @ddt.data('creating', 'available', 'in-use', 'error', 'deleting')
    def test_its_own_stays(self, status):
        self.taken()
        self.volume.status = status
        self.sweep()
        self.assert_data()

    @ddt.data(('available', True), ('in-use', True), ('error', False),
              ('reverting', False), ('creating', False))
    @ddt.unpack
    def test_what_it_had_before(self, status, gone):
        """It was reverted, say, or that has failed."""
        self.taken()
        before = self.volume.name
        self.volume.name = 'volume-' + '1' * 36
        self.a.lvs[self.volume.name] = ['it is there']
        self.volume.status = status
        self.sweep()
        self.assertEqual(gone, before not in self.a.lvs)

    def test_deleted_though_it_is_at_home(self):
        self.taken()
        self.world.destroy(self.volume)
        self.world.reconcile()
        self.assertEqual({}, self.a.lvs)


@ddt.ddt
class HeldByMoveTest(Case):
    """A move may need it, whatever the row says."""

    def setUp(self):
        super().setUp()
        self.taken()
        self.lv = self.volume.name
        self.volume.host = B + '#p'
        self.b.lvs[self.lv] = ['it is there']

    def test_as_long_as_it_moves(self):
        """The move may know this node by another name."""
        with mock.patch.object(
                self.a.node.moves._inner, 'move_of',
                return_value=mock.Mock()):
            self.sweep()
            self.assertIn(self.lv, self.a.lvs)
        self.sweep()
        self.assertNotIn(self.lv, self.a.lvs)

    def test_handle_that_is_on_something_else(self):
        """The volume is passed through to its home."""
        handle = names.handle(self.volume.id)
        self.a.remotes[self.volume.id] = B
        self.a.devices[handle] = disks.sized(
            {'below': 'disk of ' + self.volume.id}, disks.GIB)
        self.sweep()
        self.assertNotIn(self.lv, self.a.lvs)
        self.assertIn(handle, self.a.devices)

    @ddt.data((A, None, True), (B, None, True), (A, 'x', False))
    @ddt.unpack
    def test_of_one_that_has_failed(self, host, lv, held):
        with mock.patch.object(
                self.a.node.moves._inner, 'pending_cleanups',
                return_value=[mock.Mock(cleanup_node=host,
                                        cleanup_lv=lv or self.lv)]):
            self.sweep()
        self.assertEqual(held, self.lv in self.a.lvs)


@ddt.ddt
class KeptTest(Case):
    """One condition alone decides."""

    @ddt.data('creating', 'downloading', 'reverting', 'error', 'deleting')
    def test_connected_before_cinder_has_taken_it(self, status):
        self.create()
        self.volume.status = status
        with self.a.node.lock(self.volume.id):
            uncommitted.accept(self.a.node, self.volume,
                               self.a.sim_handles.survey())
        self.assertIn(names.UNCOMMITTED, self.a.disk.tags[self.volume.name])

    def test_connected_when_cinder_has_taken_it(self):
        self.taken()
        with self.a.node.lock(self.volume.id):
            uncommitted.accept(self.a.node, self.volume,
                               self.a.sim_handles.survey())
        self.assertNotIn(names.UNCOMMITTED, self.a.disk.tags[self.volume.name])

    def test_exported_as_a_source(self):
        """Somebody copies from it, though its row is gone."""
        self.create()
        self.world.destroy(self.volume)
        with mock.patch.object(survey.Survey, 'sources_above',
                               return_value=['source']):
            self.sweep()
        self.assertIn(self.volume.name, self.a.lvs)
        self.sweep()
        self.assertEqual({}, self.a.lvs)


@ddt.ddt
class NoHomeTest(Case):

    @ddt.data('available', 'in-use', 'reserved', 'attaching')
    def test_it_was_taken(self, status):
        """As when Cinder can't save the last that it does, and tries again."""
        self.taken()
        self.volume.status, self.volume.host = status, None
        create.give_up(self.a.node, self.volume)
        self.sweep()
        self.assert_data()

    @ddt.data('creating', 'downloading', 'error', 'deleting')
    def test_it_was_not(self, status):
        self.create()
        self.volume.status, self.volume.host = status, None
        self.sweep()
        self.assertEqual({}, self.a.lvs)


@ddt.ddt
class ElsewhereTest(Case):

    hosts = (A, B, C, R, 'a@m')

    def test_home_is_here_under_another_name(self):
        """volume_name_template was changed before the tag was taken off."""
        self.taken()
        lv = self.volume.name
        self.volume.name = 'vol-' + self.volume.id
        self.sweep()
        self.assertIn(lv, self.a.lvs)

    def test_host_was_renamed(self):
        """The service has another "host" than when it created it."""
        self.taken()
        self.volume.host = R + '#p'
        self.sweep()
        self.assert_data()

    def test_renamed_while_its_volume_is_copied_to_another(self):
        """The move knows the node by the name that it had."""
        self.taken()
        lv = self.volume.name
        self.a.move(self.a.node.volumes.volume(self.volume.id), B)
        self.volume.status = 'in-use'
        self.a.stop(power=True)
        self.a.gone = True
        self.world.nodes[R].disk = self.a.disk
        uncommitted.sweep(self.world.nodes[R].node)
        self.assertIn(lv, self.a.lvs)

    def test_services_by_both_names_answer(self):
        """What the home has is this very LV."""
        self.taken()
        renamed = self.world.nodes[R]
        renamed.disk, renamed.devices = self.a.disk, self.a.devices
        uncommitted.sweep(renamed.node)
        self.assert_data()

    def test_home_has_no_lv_of_that_name(self):
        self.taken()
        self.volume.host = B + '#p'
        with mock.patch.object(peers.SimPeers, 'uuid_of', return_value=''):
            self.sweep()
        self.assert_data()

    def test_two_backends_in_one_group(self):
        """The LV is that of a@m, which shares the volume group."""
        for status in ('creating', 'available'):
            volume = self.world.row(A, status='creating')
            self.create(volume=volume)
            volume.host, volume.status = 'a@m#p', status
            self.world.nodes['a@m'].lvs[volume.name] = ['the very same']
            self.sweep()
            self.assertIn(volume.name, self.a.lvs)

    @ddt.data('deleted', 'without a home')
    def test_another_backend_sweeps_nothing_in_the_group(self, how):
        """The lock of a volume is that of a service, not of a group.

        And it may overwrite less than the LV's own service would.
        """
        self.create()
        other = self.world.nodes['a@m']
        other.disk, other.devices = self.a.disk, self.a.devices
        if how == 'deleted':
            self.world.destroy(self.volume)
        else:
            self.volume.host = None
        uncommitted.sweep(other.node)
        with other.node.lock(self.volume.id):
            uncommitted.remove(other.node, self.volume.id, self.volume.name)
        self.assertEqual([self.volume.name], list(self.a.lvs))
        self.sweep()
        self.assertEqual({}, self.a.lvs)

    def test_forgotten_node_comes_back(self):
        """What it has is the only copy; an administrator resets the status."""
        self.taken()
        self.forget(A)
        self.assertEqual('error', self.volume.status)
        self.world.settle()
        self.a.gone = self.a.dead = False
        self.volume.status = 'available'
        self.world.reconcile()
        self.assert_data()

    def test_its_home_does_not_answer(self):
        self.taken()
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it is there']
        self.b.dead = True
        self.sweep()
        self.assert_data()
        self.b.dead = False
        self.sweep()
        self.assertNotIn(self.volume.name, self.a.lvs)

    def test_who_does_not_answer_is_asked_once(self):
        for _each in range(2):
            volume = self.world.row(A, status='creating')
            self.create(volume=volume)
            volume.status, volume.host = 'available', B + '#p'
        with mock.patch.object(
                peers.SimPeers, 'uuid_of',
                side_effect=exceptions.PeerUnreachable(
                    host=B, method='uuid_of', seconds=1)) as asked:
            self.sweep()
        self.assertEqual(1, asked.call_count)
        self.assertEqual(2, len(self.a.lvs))

    def test_home_that_never_answers_keeps_nothing_that_is_deleted(self):
        """Whether a deleted volume is anywhere nobody has to be asked."""
        self.taken()
        self.volume.host = B + '#p'
        deleted = self.world.row(A, status='creating')
        self.create(volume=deleted)
        self.world.destroy(deleted)
        deleted.host = B + '#p'
        self.b.dead = True
        self.sweep()
        self.assertIn(self.volume.name, self.a.lvs)
        self.assertNotIn(deleted.name, self.a.lvs)

    def test_home_is_asked_without_the_lock(self):
        self.taken()
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it is there']
        uuid_of, held = peers.SimPeers.uuid_of, []

        def asked(*what):
            held.extend(self.a.held)
            return uuid_of(*what)
        with mock.patch.object(peers.SimPeers, 'uuid_of', autospec=True,
                               side_effect=asked):
            self.sweep()
        self.assertEqual([], held)
        self.assertNotIn(self.volume.name, self.a.lvs)

    def test_it_comes_back_while_its_home_is_asked(self):
        self.taken()
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it is there']
        uuid_of = peers.SimPeers.uuid_of

        def asked(*what):
            answer = uuid_of(*what)
            self.volume.host = A + '#p'
            return answer
        with mock.patch.object(peers.SimPeers, 'uuid_of', autospec=True,
                               side_effect=asked):
            self.sweep()
        self.assertEqual([], self.world.wrongs)
        self.assert_data()

    def test_its_home_has_another_lv_than_its_row_names(self):
        self.taken()
        self.volume.host = B + '#p'
        self.b.lvs['volume-' + '1' * 36] = ['what it was made of, say']
        self.sweep()
        self.assert_data()

    def test_somebody_has_it_open(self):
        self.taken()
        handle = names.handle(self.volume.id)
        self.volume.host = B + '#p'
        self.b.lvs[self.volume.name] = ['it is there']
        self.a.opened.add(handle)
        self.sweep()
        self.assertEqual([], self.world.wrongs)
        self.assertIn(handle, self.a.devices)
        self.assert_data()

    def test_what_is_not_uncommitted_is_never_removed(self):
        self.taken()
        self.a.disk.tags[self.volume.name] -= {names.UNCOMMITTED}
        with self.a.node.lock(self.volume.id):
            uncommitted.remove(self.a.node, self.volume.id, self.volume.name)
        self.assertEqual([], self.world.wrongs)
        self.assert_data()


class ThickTest(Case):
    """What has to be overwritten, which takes hours."""

    def setUp(self):
        super().setUp()
        self.clear = self.a.node.clear
        self.clearing(self.clear)

    def leave(self):
        volume = self.world.row(A, status='creating')
        self.create(volume=volume)
        self.world.destroy(volume)
        return volume

    def clearing(self, clear):
        object.__setattr__(self.a.node, 'clear', clear)
        self.world.pool = None

    def fail_to_clear(self):
        """A bad sector, say."""
        self.clearing(mock.Mock(
            side_effect=processutils.ProcessExecutionError('dd')))

    def meanwhile(self, act):
        """Act while the first one is being cleared."""
        acted = []

        def clear(name, size):
            if not acted:
                acted.append(name)
                act()
            self.clear(name, size)
        self.clearing(clear)
        return acted

    def test_one_that_can_not_be_cleared_does_not_stop_the_others(self):
        self.fail_to_clear()
        self.leave(), self.leave()
        self.create()
        self.volume.status = 'available'
        self.a.reconciler.reconcile_node()
        self.sweep()
        self.assertNotIn(names.UNCOMMITTED, self.a.disk.tags[self.volume.name])
        to_wipe = set(self.a.lvs) - {self.volume.name}
        self.assertEqual([frozenset()] * 2, [
            self.a.disk.tags[each] for each in to_wipe])
        self.assertEqual(2, self.a.node.clear.call_count)
        self.clearing(self.clear)
        self.sweep()
        self.assertEqual([self.volume.name], list(self.a.lvs))

    def test_neither_a_look_nor_a_sweep_clears_anything(self):
        """A service's start must not wait for it, nor the next sweep."""
        clear = mock.Mock()
        self.clearing(clear)
        self.leave()
        self.a.reconciler.reconcile_node()
        uncommitted.sweep(self.a.node)
        clear.assert_not_called()

    def test_volume_comes_here_while_what_was_left_is_cleared(self):
        self.create()
        self.volume.host = B + '#p'
        self.volume.service_uuid = self.world.service_of(B)
        self.create(B)
        self.volume.status = 'available'
        self.b.write(self.volume.id, 0, 'data')
        moved = self.meanwhile(lambda: self.b.move(
            self.b.node.volumes.volume(self.volume.id), A))
        self.sweep()
        self.assertEqual(1, len(moved))
        self.world.settle()
        self.assertEqual('data', self.a.read(self.volume.id, 0))
        self.assertEqual([self.volume.name], list(self.a.lvs))

    def test_created_again_while_another_is_cleared(self):
        """What was left of it is not what has its name by then."""
        self.leave()
        self.create()
        self.volume.host = None

        def again():
            self.volume.host = A + '#p'
            self.create()
            self.volume.status = 'available'
            self.a.reconciler.reconcile_node()
            self.a.write(self.volume.id, 0, 'data')
        acted = self.meanwhile(again)
        self.sweep()
        self.assertEqual(1, len(acted))
        self.assertEqual([], self.world.wrongs)
        self.assert_data()

    def test_nothing_is_listed_if_there_was_none(self):
        """What has come since goes after the next look."""
        self.clearing(mock.Mock(side_effect=self.clear))
        before = self.a.node.handles.survey()
        self.leave()
        left = self.a.node.handles.survey()
        with mock.patch.object(stack.SimLvm, 'lvs') as listed:
            uncommitted.sweep(self.a.node, before)
            cleanup.wipe_marked(self.a.node, left)
        listed.assert_not_called()
        uncommitted.sweep(self.a.node, left)
        marked = self.a.node.handles.survey()
        self.assertEqual([], marked.uncommitted_lvs('g'))
        cleanup.wipe_marked(self.a.node, marked)
        self.a.node.clear.assert_called_once()

    def test_wiped_by_another_backend(self):
        """Its own service clears what is in its group."""
        self.clearing(mock.Mock())
        self.leave()
        uncommitted.sweep(self.a.node)
        there = {name: dataclasses.replace(lv, group='other')
                 for name, lv in self.a.sim_lvm.lvs().items()}
        with mock.patch.object(stack.SimLvm, 'lvs', return_value=there):
            cleanup.wipe_marked(self.a.node)
        self.a.node.clear.assert_not_called()

    def test_wiped_by_another_backend_in_the_group(self):
        """It may overwrite less than its own service would."""
        self.clearing(mock.Mock())
        self.leave()
        uncommitted.sweep(self.a.node)
        cleanup.wipe_marked(dataclasses.replace(self.a.node, host='a@m'))
        self.a.node.clear.assert_not_called()

    def test_open_one_is_not_overwritten(self):
        self.clearing(mock.Mock())
        self.leave()
        uncommitted.sweep(self.a.node)
        there = {name: dataclasses.replace(lv, opened=True)
                 for name, lv in self.a.sim_lvm.lvs().items()}
        with mock.patch.object(stack.SimLvm, 'lvs', return_value=there):
            cleanup.wipe_marked(self.a.node)
        self.a.node.clear.assert_not_called()

    def test_one_that_has_its_name_just_now(self):
        """Its tags come off by the next command."""
        volume, seen = self.leave(), []

        def tick(node, what):
            if what == 'after lvrename':
                cleanup.wipe_marked(self.a.node)
                seen.extend(self.a.lvs)
        with mock.patch.object(self.world, 'tick', tick):
            uncommitted.sweep(self.a.node)
        self.assertEqual(1, len(seen))
        self.assertNotIn(volume.name, seen)
        # A node that died there goes on as if it had taken them off.
        to_wipe, = self.a.lvs
        self.a.disk.tags[to_wipe] = frozenset(names.tags(volume=volume.id))
        cleanup.wipe_marked(self.a.node)
        self.assertEqual({}, self.a.lvs)

    def test_tags_that_a_node_that_died_has_left(self):
        """Overwriting takes hours, and a boot reads what they say."""
        volume = self.leave()
        uncommitted.sweep(self.a.node)
        to_wipe, = self.a.lvs
        self.a.disk.tags[to_wipe] = frozenset([
            names.OPENED, *names.tags(volume=volume.id, key='old')])
        self.fail_to_clear()
        cleanup.wipe_marked(self.a.node)
        self.assertEqual({}, upkeep.known(self.a.sim_handles.survey(), {}))

    def test_given_up_without_waiting(self):
        """An instance here may want what is whole elsewhere by then."""
        self.create()
        asked = self.a.node.volumes.volume(self.volume.id)
        asked = dataclasses.replace(asked, host=None)
        self.volume.host = B + '#p'
        self.clearing(mock.Mock())
        create.give_up(self.a.node, asked)
        self.a.node.clear.assert_not_called()
        self.assertNotIn(self.volume.name, self.a.lvs)

    def test_what_nobody_has_written_to_goes_at_once(self):
        """It was being zeroed when the service ended."""
        self.fail_to_clear()
        self.create()
        self.a.disk.tags[self.volume.name] |= {names.shown(0)}
        with self.a.node.lock(self.volume.id):
            uncommitted.remove_failed(self.a.node, self.volume)
        self.assertEqual({}, self.a.lvs)

    def test_a_failed_create_does_not_wait(self):
        self.fail_to_clear()
        with mock.patch.object(stack.SimHandles, 'ensure_handle_on_lv',
                               side_effect=SLOW):
            self.assertRaises(exceptions.CommandFailed, self.create)
        self.assertNotIn(self.volume.name, self.a.lvs)
        self.a.node.clear.assert_not_called()

    def test_what_has_moved_away_is_cleared_later(self):
        self.taken()
        self.a.move(self.a.node.volumes.volume(self.volume.id), B)
        self.fail_to_clear()
        self.world.settle()
        self.assertNotIn(self.volume.name, self.a.lvs)
        self.assertEqual(1, len(self.a.lvs))
        self.assertEqual({}, self.world.move_records)
        self.clearing(self.clear)
        self.world.settle()
        self.assertEqual({}, self.a.lvs)

    def test_what_has_no_tags_is_cleared_at_once(self):
        """It can't be told from another's by any other name."""
        self.create()
        self.volume.status = 'deleting'
        self.a.disk.tags[self.volume.name] = frozenset()
        with self.a.node.lock(self.volume.id):
            self.a.node.handles.remove_handle(self.volume.id)
            cleanup.discard_lv(self.a.node, self.volume.name)
        self.assertEqual({}, self.a.lvs)

    def test_nobody_knows_what_is_wiped(self):
        """Neither a boot, nor a look, nor whoever would manage it."""
        self.fail_to_clear()
        self.leave()
        self.sweep()
        to_wipe, = self.a.lvs
        # As when the node died before it could take the tags off.
        self.a.disk.tags[to_wipe] = frozenset(
            [names.UNCOMMITTED, *names.tags(volume=self.volume.id)])
        present = self.a.sim_handles.survey()
        self.assertEqual([], boot_plan.plan(present))
        self.assertEqual([], present.uncommitted_lvs('g'))
        self.assertEqual([], present.complete_lvs(self.volume.id, 'g'))
        self.a.disk.tags[to_wipe] = frozenset()
        lv = self.a.sim_lvm.lvs()[to_wipe]
        self.assertEqual(manageable.TO_WIPE, manageable.why_no_volume(
            lv, None, {}))

    def test_leftover_of_what_moves_here(self):
        """It waits for the end of that move."""
        self.create()
        left = self.volume.name
        self.a.devices.clear()
        self.volume.host = B + '#p'
        self.volume.service_uuid = self.world.service_of(B)
        self.create(B)
        self.volume.status = 'available'
        self.b.write(self.volume.id, 0, 'data')
        self.b.move(self.b.node.volumes.volume(self.volume.id), A)
        self.sweep()
        self.assertIn(left, self.a.lvs)
        self.world.settle()
        self.assertNotIn(left, self.a.lvs)
        self.assertEqual('data', self.a.read(self.volume.id, 0))


@ddt.ddt
class SecretTest(Case):

    def setUp(self):
        super().setUp()
        self.volume.extra_specs = {'localclone:encryption': 'luks2'}

    def encrypted(self, host=A):
        node = self.world.nodes[host].node
        create.create_encrypted(node, self.volume.id,
                                policy.wanted(node, self.volume))

    def test_an_image_that_could_not_be_written(self):
        """No other node is found; its owner deletes it, and Cinder alone
        does that.
        """
        self.encrypted()
        self.assertIn(self.volume.id, self.world.backups)
        self.volume.status, self.volume.host = 'downloading', None
        create.give_up(self.a.node, self.volume)
        self.assertEqual([{}, {}], [self.a.lvs, self.world.secrets.kept])
        self.assertNotIn(self.volume.id, self.world.backups)

    def test_that_of_another_volume_stays(self):
        """The row names that of an image until it has its own."""
        self.encrypted()
        key, = self.world.secrets.kept
        other = self.world.row(A, status='available')
        other.provider_id = self.volume.provider_id
        asked = self.a.node.volumes.volume(self.volume.id)
        with self.a.node.lock(self.volume.id), \
                mock.patch.object(policy.LOG, 'error') as told:
            policy.give_back(self.a.node, asked)
        told.assert_not_called()
        self.assertEqual([key], list(self.world.secrets.kept))
        self.assertNotIn(self.volume.id, [
            consumer[2] for consumer in self.world.secrets.consumers])

    def test_use_of_a_shared_key_ends_when_the_row_has_gone(self):
        self.volume.extra_specs['localclone:key'] = 'type:ours'
        self.world.secrets.kept['ours'] = ('ours', bytes(64))
        self.encrypted()
        asked = self.a.node.volumes.volume(self.volume.id)
        self.world.volumes[self.volume.id].provider_id = None
        asked = dataclasses.replace(
            asked, provider_id=asked.provider_id.replace('ours', ''))
        self.world.destroy(self.volume)
        with mock.patch.object(type(self.a.node.volumes._inner), 'volume',
                               return_value=None), \
                self.a.node.lock(self.volume.id):
            policy.give_back(self.a.node, asked)
        self.assertEqual(set(), self.world.secrets.consumers)

    def test_type_that_says_nonsense_by_now(self):
        for spec, key in (('type:ours', 'ours'), ('nonsense', ''),
                          ('volume', '')):
            self.volume.extra_specs['localclone:key'] = spec
            self.assertEqual(key, policy.key_of_type(
                self.a.node, self.a.node.volumes.volume(self.volume.id)))

    def test_of_what_somebody_creates_by_now(self):
        """Who has read the row needs the secret."""
        self.encrypted()
        self.volume.host, asked = None, self.a.node.volumes.volume(
            self.volume.id)
        self.volume.host = B + '#p'
        create.give_up(self.a.node, asked)
        self.assertEqual(1, len(self.world.secrets.kept))
        self.world.headers.clear()  # the one that A's LV has
        self.encrypted(B)
        self.assertEqual(1, len(self.world.secrets.kept))

    def test_given_back_while_it_is_created_elsewhere(self):
        self.encrypted()
        self.volume.host = None
        asked = self.a.node.volumes.volume(self.volume.id)
        remove = crypt.SimKeys.remove

        def late(keys, key):
            if not self.volume.host:
                self.volume.host = B + '#p'
                self.world.headers.clear()  # the one that A's LV has
                self.encrypted(B)
            return remove(keys, key)
        with mock.patch.object(crypt.SimKeys, 'remove', late):
            create.give_up(self.a.node, asked)
        self.assertEqual(B + '#p', self.volume.host)
        self.assertEqual([], self.world.wrongs)
        self.assertEqual(1, len(self.world.secrets.kept))

    @ddt.data('release', 'remove')
    def test_key_manager_that_fails_keeps_nothing_else(self, method):
        self.encrypted()
        self.volume.status, self.volume.host = 'downloading', None
        with mock.patch.object(crypt.SimKeys, method, side_effect=(
                encryption_exceptions.KeyUnavailable(
                    key='k', reason='x'))), mock.patch.object(
                        crypt.SimCrypt, 'forget_sealed') as sealed:
            create.give_up(self.a.node, self.volume)
        sealed.assert_called_once_with(self.volume.id)
        self.assertNotIn(self.volume.id, self.world.backups)

    def test_shared_key_stays_in_use(self):
        """Whoever creates it by now has noted its use of the same one."""
        self.volume.extra_specs['localclone:key'] = 'type:ours'
        self.world.secrets.kept['ours'] = ('ours', bytes(64))
        self.encrypted()
        self.volume.host = None
        asked = self.a.node.volumes.volume(self.volume.id)
        create.give_up(self.a.node, asked)
        self.assertIn('ours', self.world.secrets.kept)
        self.assertEqual([('ours', 'volumes', self.volume.id)],
                         list(self.world.secrets.consumers))

    def test_use_of_a_shared_key_ends_when_the_volume_is_deleted(self):
        """It could not be created; nobody has created it elsewhere."""
        self.volume.extra_specs['localclone:key'] = 'type:ours'
        self.world.secrets.kept['ours'] = ('ours', bytes(64))
        with mock.patch.object(crypt.SimCrypt, 'test', side_effect=SLOW):
            self.assertRaises(exceptions.CommandFailed, self.encrypted)
        self.volume.status = 'deleting'
        callers.delete(self.a.node, self.a.node.volumes.volume(self.volume.id))
        self.assertEqual(set(), self.world.secrets.consumers)

    def test_what_may_not_be_noted_as_used_is_given_back(self):
        refused = encryption_exceptions.KeyRefused(key='k', reason='policy')
        with mock.patch.object(crypt.SimKeys, 'consume', side_effect=refused):
            self.assertRaises(encryption_exceptions.KeyRefused, self.encrypted)
        self.assertEqual({}, self.world.secrets.kept)


class NoCryptsetupTest(Case):
    """A node that has none, with volumes that are not encrypted at all."""

    def setUp(self):
        super().setUp()
        patcher = mock.patch.object(
            crypt.SimCrypt, 'close',
            side_effect=FileNotFoundError(2, 'cryptsetup'))
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_nothing_is_left_of_what_fails(self):
        with mock.patch.object(stack.SimHandles, 'ensure_handle_on_lv',
                               side_effect=SLOW):
            self.assertRaises(exceptions.CommandFailed, self.create)
        self.assertEqual({}, self.a.lvs)

    def test_created(self):
        self.create()
        self.assertEqual([self.volume.name], list(self.a.lvs))


class FromBackupTest(encrypted_attach_case.Case):

    def test_created_from_a_backup(self):
        """Cinder restores to a new volume in "creating", without zeros."""
        self.a.disk.tags[self.volume.name] |= {names.FRESH, names.UNCOMMITTED}
        self.attach('creating')
        self.assertRaises(encryption_exceptions.WouldReadNoise, self.connect,
                          attach_case.ON_A)


class MovedTest(Case):
    """Before the tag was taken off."""

    def test_there_and_back(self):
        self.taken()
        self.a.move(self.a.node.volumes.volume(self.volume.id), B)
        self.world.settle()
        self.b.move(self.b.node.volumes.volume(self.volume.id), A)
        self.world.settle()
        self.assertEqual('data', self.a.read(self.volume.id, 0))
        self.assertEqual([''], [each.reason for each in boot_plan.plan(
            self.a.sim_handles.survey())])

    def test_live_move_rolled_back(self):
        self.taken()
        self.volume.status = 'in-use'
        self.a.move(self.a.node.volumes.volume(self.volume.id), B, live=True)
        self.sweep()
        with self.b.node.lock(self.volume.id):
            destination.roll_back_live(
                self.b.node, self.b.node.moves.move_of(self.volume.id))
        self.world.settle()
        self.assert_data()
        self.assertNotIn(names.UNCOMMITTED, self.a.disk.tags[self.volume.name])

    def test_source_waits_for_its_end(self):
        self.taken()
        self.a.move(self.a.node.volumes.volume(self.volume.id), B)
        for _look in range(4):
            self.b.reconciler.reconcile_node()
            self.b.hydrate()
            self.sweep()
        self.world.settle()
        self.assertEqual('data', self.b.read(self.volume.id, 0))
        self.assertEqual({}, self.a.lvs)

    def test_destination_is_forgotten(self):
        """The source is all there is, whatever the status is set to."""
        self.taken()
        self.a.move(self.a.node.volumes.volume(self.volume.id), B)
        self.forget(B)
        for status in ('error', 'available', 'in-use', 'deleting'):
            self.volume.status = status
            self.sweep()
            self.assertIn('volume-' + self.volume.id, self.a.lvs)

    def test_live_destination_is_forgotten(self):
        self.taken()
        self.volume.status = 'in-use'
        self.a.move(self.a.node.volumes.volume(self.volume.id), B, live=True)
        self.forget(B)
        self.sweep()
        self.a.reconciler.reconcile_node()
        self.assert_data()
        self.assertNotIn(names.UNCOMMITTED, self.a.disk.tags[self.volume.name])


class SweptLaterTest(Case):
    """Doomed LVs, by what a check has seen of them."""

    def setUp(self):
        super().setUp()
        self.world.pool = None
        self.cleared = mock.Mock(side_effect=self.a.node.clear)
        object.__setattr__(self.a.node, 'clear', self.cleared)

    def leave(self):
        volume = self.world.row('a@l', status='creating')
        self.create(volume=volume)
        self.world.destroy(volume)
        before = set(self.a.lvs)
        uncommitted.sweep(self.a.node)
        to_wipe, = set(self.a.lvs) - (before - {volume.name})
        return volume, to_wipe

    def opened(self):
        return mock.patch.object(stack.SimLvm, 'lvs', return_value={
            name: dataclasses.replace(lv, opened=True)
            for name, lv in self.a.sim_lvm.lvs().items()})

    def test_opened_since_the_check(self):
        self.leave()
        seen = self.a.node.handles.survey()
        with self.opened():
            cleanup.wipe_marked(self.a.node, seen)
        self.cleared.assert_not_called()

    def test_open_one_has_no_tags_either(self):
        """A boot would believe them, as long as it is open."""
        volume, to_wipe = self.leave()
        self.a.disk.tags[to_wipe] = frozenset([
            names.OPENED, *names.tags(volume=volume.id, key='old')])
        with self.opened():
            cleanup.wipe_marked(self.a.node)
        self.assertEqual(frozenset(), self.a.disk.tags[to_wipe])
        self.cleared.assert_not_called()

    def test_one_that_is_busy_does_not_stop_the_others(self):
        first, to_wipe = self.leave()
        self.create()
        self.world.destroy(self.volume)
        uncommitted.sweep(self.a.node)
        self.assertEqual(2, len(self.a.lvs))
        self.assertEqual(to_wipe, next(iter(self.a.sim_lvm.lvs())))
        self.a.disk.tags[to_wipe] = frozenset(names.tags(volume=first.id))
        with self.a.lock(first.id):
            cleanup.wipe_marked(self.a.node)
        self.assertEqual([to_wipe], list(self.a.lvs))

    def test_a_check_sees_what_is_to_be_swept(self):
        volume = self.world.row('a@l', status='creating')
        self.create(volume=volume)
        self.world.destroy(volume)
        here = self.a.reconciler
        with mock.patch.object(uncommitted, 'remove_unwanted'):
            here.reconcile_node()
        uncommitted.sweep(self.a.node, here.seen)
        self.assertNotIn(volume.name, self.a.lvs)
        self.assertEqual(1, len(self.a.lvs))
        here.reconcile_node()
        cleanup.wipe_marked(self.a.node, here.seen)
        self.assertEqual({}, self.a.lvs)
