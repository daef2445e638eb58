# SPDX-License-Identifier: Apache-2.0
"""Cinder's migration and retype: to a node of this backend, and into it.

On Cinder's own schema, in its SQLite fixture, with the real records.
"""

import contextlib
import dataclasses
import itertools
from unittest import mock

from cinder import exception
from cinder import objects
from cinder.tests.unit import fake_constants as fake
from cinder.tests.unit import utils
import ddt

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import node as nodes
from cinder_localclone.core.state import Asked
from cinder_localclone.core.state import Event
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action
from cinder_localclone.db import base
from cinder_localclone.db import interrupted
from cinder_localclone.service import messages
from cinder_localclone.volumes import delete
from tests.helpers import callers
from tests.helpers import cinder_case
from tests.helpers import storage_parts

A, B, STOCK = cinder_case.A, cinder_case.B, cinder_case.STOCK
COLD, LIVE = Event.MOVE_BEGUN, Event.LIVE_MOVE_BEGUN
TO_B = {'host': B + '#p', 'capabilities': {
    'location_info': 'LocalCloneDriver:%s:g' % B}}
GIB = 1 << 30
ROOM = {'volumes': 9 * GIB, 'metadata': GIB, 'shared': False}


class Base(cinder_case.Base):

    def told(self, driver, call, error, key):
        """A call that fails, and what the owner is told."""
        with mock.patch.object(messages, 'api') as api:
            raised = self.assertRaises(error, call, driver)
        found = api.API().create.call_args
        self.assertEqual(user_messages.MESSAGES[key].detail(Action.MOVE),
                         found.kwargs['detail'])
        self.assertEqual(Action.MOVE.value.cinder, found.args[1])
        self.assertEqual(self.row.id, found.kwargs['resource_uuid'])
        return str(raised)

    def attach(self, host='a'):
        objects.VolumeAttachment(
            self.context, volume_id=self.row.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='attached',
            connector={'host': host}).create()
        self.cinder_begins('in-use', 'migrating')


@ddt.ddt
class WithinTest(Base):
    """To another node of this backend: a move without an attach."""

    def setUp(self):
        super().setUp()
        self.cinder_begins('available', 'migrating')
        self.home = self.driver(A)
        self.peers = self.home.service.node.peers
        self.peers.describe.return_value = {
            'host': B + '#p', 'initiator': 'i', 'problems': [],
            'free_space': ROOM, 'block': 512, 'sparse': False}
        node = self.home.service.node
        node.lvm.logical_block.return_value = 512
        node.handles.devices.return_value = {}
        node.handles.shown_bytes.return_value = 0
        node.exports.has_open_unexported.return_value = False
        node.exports.source_location.side_effect = (
            lambda record: 'portal,1 iqn:%s 0' % record)

    def migrate(self, driver=None):
        return (driver or self.home).migrate_volume(
            self.context, self.volume(), TO_B)

    def test_moved(self):
        def prepared(host, move_id, _nonce, _holes):
            self.assertEqual('maintenance', self.volume().status)
            self.assertEqual((B, self.moves.move_of(
                self.row.id).move_id), (host, move_id))
        self.peers.prepare.side_effect = prepared
        self.assertEqual((True, {'host': B + '#p'}), self.migrate())
        volume = self.volume()
        self.assertEqual(
            (B + '#p', 'available', 'migrating'),
            (volume.host, volume.status, volume.migration_status))
        self.assertTrue(self.moves.move_of(self.row.id).committed)
        self.peers.reconcile_soon.assert_called_once_with(
            B, self.row.id)

    def test_cinders_manager_writes_what_is_there(self):
        """All that it saves, it saves as the commit has left it."""
        utils.create_service(self.context, {
            'host': B, 'binary': 'cinder-volume', 'topic': 't',
            'availability_zone': 'zone'})
        before = self.volume()  # as the manager has read it
        _moved, update = self.migrate()
        committed = self.volume()
        before.update(dict(
            {'host': TO_B['host'], 'cluster_name': None,
             'migration_status': 'success', 'availability_zone': 'zone',
             'previous_status': before.status,
             'service_uuid': committed.service_uuid}, **update))
        before.save()
        after = self.volume()
        for column in ('host', '_name_id', 'availability_zone', 'status',
                       'service_uuid', 'cluster_name'):
            self.assertEqual(getattr(committed, column),
                             getattr(after, column), column)
        self.assertEqual('success', after.migration_status)

    @ddt.data(
        ({'problems': ['no dm-clone']}, exceptions.NotReady, 'NOT_READY'),
        ({'free_space': dict(ROOM, volumes=0)},
         exceptions.NoFreeSpace, 'NO_FREE_SPACE'))
    @ddt.unpack
    def test_a_destination_that_can_not(self, lacks, error, key):
        self.peers.describe.return_value.update(lacks)
        self.told(self.home, self.migrate, error, key)
        self.assert_here()

    def test_a_failure_is_never_an_invitation_to_copy(self):
        self.peers.prepare.side_effect = KeyError('x')
        self.told(self.home, self.migrate, KeyError, 'NOT_MOVED')
        self.assert_here()

    def assert_here(self):
        volume = self.volume()
        self.assertEqual((A + '#p', 'available', 'migrating'), (
            volume.host, volume.status, volume.migration_status))
        self.assertIsNone(self.moves.move_of(self.row.id))

    def test_while_it_moves(self):
        self.cinder_begins('available', None)
        self.move((COLD, None))
        self.cinder_begins('available', 'migrating')
        there = self.driver(B)
        text = self.told(there, lambda driver: driver.migrate_volume(
            self.context, self.volume(), {
                'host': A + '#p', 'capabilities': {
                    'location_info': 'LocalCloneDriver:%s:g' % A}}),
            exceptions.MoveUnderWay, 'MOVE_BUSY')
        self.assertIn('try again', text)

    def test_another_backend_at_a_stale_home(self):
        """Cinder would copy it, and delete what is not its LV any more."""
        volume = self.volume()
        volume.host = B + '#p'
        volume.save()
        self.told(self.home, lambda driver: driver.migrate_volume(
            self.context, self.volume(), cinder_case.ELSEWHERE),
            exceptions.StaleMove, 'CHANGED')

    def test_at_a_stale_home(self):
        volume = self.volume()
        volume.host = B + '#p'
        volume.save()
        self.told(self.home, self.migrate, exceptions.StaleMove, 'CHANGED')

    def test_what_is_attached_follows_its_instance(self):
        self.attach()
        text = self.told(self.home, self.migrate,
                         exceptions.IsDeferred, 'FOLLOWS_INSTANCE')
        self.assertIn('moves only with its instance', text)

    def test_where_it_is(self):
        text = self.told(self.home, lambda driver: driver.migrate_volume(
            self.context, self.volume(), {
                'host': A + '#p', 'capabilities': TO_B['capabilities']}),
            exceptions.NotMovable, 'NOT_MOVABLE')
        self.assertIn('is its home already', text)

    @ddt.data({}, {'location_info': None},
              {'location_info': 'LVMVolumeDriver:n2:g:thin:0'},
              {'location_info': 'LocalCloneDriver:b@other:g'})
    def test_to_another_backend_cinder_copies(self, capabilities):
        self.assertEqual((False, None), self.home.migrate_volume(
            None, self.volume(), {'host': 'b@other#p',
                                  'capabilities': capabilities}))

    def test_drained(self):
        self.cinder_begins('available', 'success')
        callers.Answers(self.home.service).move_away(self.row.id, B)
        self.assertEqual(B + '#p', self.volume().host)
        self.assertIsNone(self.volume().migration_status)

    def test_what_cinder_migrates_is_not_drained(self):
        error = self.assertRaises(
            exceptions.NotMovable, callers.Answers(
                self.home.service).move_away, self.row.id, B)
        self.assertIn('Cinder is migrating it', str(error))

    @ddt.data((dict(group_id=fake.GROUP_ID), 'group'),
              (dict(status='error'), '"error"'),
              (dict(status='creating'), '"creating"'))
    @ddt.unpack
    def test_what_is_not_drained(self, values, words):
        self.cinder_begins('available', None)
        volume = self.volume()
        volume.update(values)
        volume.save()
        error = self.assertRaises(
            exceptions.NotMovable, callers.Answers(
                self.home.service).move_away, self.row.id, B)
        self.assertIn(words, str(error))

    def test_interrupted_before(self):
        """What a service left that died is given up first."""
        self.cinder_begins('available', None)
        left = self.moves.begin(
            self.volume(), B + '#p', COLD, cinder_case.GEOMETRY,
            lambda record: 'p,1 i:%s 0' % record, 'CHAP u s', 'i',
            Asked.DRAIN)
        callers.Answers(self.home.service).move_away(self.row.id, B)
        self.assertTrue(self.moves.get_move(left.move_id).is_over)
        self.assertEqual(B + '#p', self.volume().host)


class RetypeTest(Base):

    def retype(self, host):
        return self.driver(host).retype(
            self.context, self.volume(), mock.Mock(extra_specs={}), {},
            {'host': 'stale'})

    def test_nothing_on_disk_changes(self):
        self.assertEqual((True, {'host': A + '#p'}), self.retype(A))

    def test_a_home_that_was_written_late(self):
        """By an earlier retype, while a move was committed."""
        self.move((COLD, None))
        self.cinder_begins('retyping', None)
        volume = self.volume()
        volume.host = A + '#p'
        volume.save()
        self.assertRaises(exceptions.StaleMove, self.retype, A)
        with mock.patch.object(nodes, 'has_lv', return_value=True):
            self.assertEqual((True, {'host': B + '#p'}), self.retype(B))
        self.assertEqual(B + '#p', self.volume().host)

    def test_a_live_move_came_first(self):
        self.cinder_begins('in-use', None)
        self.move((LIVE, None))
        self.cinder_begins('retyping', None)
        self.assertRaises(exceptions.StaleMove, self.retype, A)
        self.assertEqual((True, {'host': B + '#p'}), self.retype(B))


@ddt.ddt
class IntoTest(Base):
    """Cinder's own copy, into a row that it has made here."""

    def setUp(self):
        super().setUp()
        self.put(host=STOCK + '#x', migration_status='migrating')
        self.copy = utils.create_volume(
            self.context, host=B + '#p', size=1, status='creating',
            volume_type_id=None, migration_status='target:' + self.row.id)
        self.there = self.driver(B)
        node = self.there.service.node
        self.lvm, self.handles = node.lvm, node.handles
        self.lvm.group = 'g'

    def put(self, **values):
        volume = self.volume()
        volume.update(values)
        volume.save()

    def create(self, driver=None):
        (driver or self.there).create_volume(
            base.cinder_volume(self.copy.id))

    def assert_nothing_created(self):
        self.assertEqual([], [
            call for call in storage_parts.calls(self.there.storage)
            if call[0] in ('create_lv', 'ensure_handle_on_lv')])

    def test_it_has_the_volumes_handle(self):
        self.create()
        self.assertEqual([
            mock.call.create_lv(self.copy.name, GIB, self.row.id,
                                covered=True, uncommitted=True),
            mock.call.ensure_handle_on_lv(
                self.row.id, self.copy.name, GIB),
            mock.call.accept(self.copy.name)], [
                call for call in storage_parts.calls(self.there.storage)
                if call[0] != 'survey'])
        self.assertEqual(names.handle_path(self.row.id),
                         self.there.local_path(self.copy))

    @ddt.data('lc2:luks2:16777216:live:::key', 'lc9:?', 'of another driver')
    def test_what_it_has_from_the_volumes_row(self, text):
        """Cinder copies the column; what it then writes is not encrypted."""
        self.copy.provider_id = text
        self.copy.save()
        self.create()
        self.lvm.create_lv.assert_called_once_with(
            self.copy.name, GIB, self.row.id, covered=True, uncommitted=True)
        self.assertIsNone(base.cinder_volume(self.copy.id).provider_id)

    def test_attached_elsewhere_nova_copies(self):
        self.attach('n3')
        self.create()

    def test_attached_on_a_node_of_this_backend(self):
        self.put(host=A + '#p')
        self.attach()
        text = self.told(self.there, self.create, exceptions.IsDeferred,
                         'FOLLOWS_INSTANCE')
        self.assertIn('Migrate the instance', text)
        self.assert_nothing_created()

    def test_from_a_node_of_this_backend_if_asked_to(self):
        self.put(host=A + '#p')
        self.create()

    @ddt.data((dict(migration_status=None), 'not migrating it'),
              (dict(migration_status='error'), 'not migrating it'),
              (dict(host=B + '#p'), 'is its home already'))
    @ddt.unpack
    def test_a_handle_that_may_be_the_volumes_own(self, values, words):
        self.put(**values)
        self.assertIn(words, self.told(
            self.there, self.create, exceptions.NotMovable, 'NOT_MOVABLE'))
        self.assert_nothing_created()

    def test_while_it_moves(self):
        self.put(host=A + '#p', migration_status=None)
        self.move((COLD, None))
        self.put(migration_status='migrating')
        self.copy.host = A + '#p'
        self.copy.save()
        self.told(self.driver(A), self.create, exceptions.MoveUnderWay,
                  'MOVE_BUSY')

    def test_what_a_move_has_left_goes_first(self):
        self.put(host=A + '#p', migration_status=None)
        left = self.move((COLD, Event.FAILED))
        self.put(migration_status='migrating')
        self.lvm.lvs.return_value = {left.destination_lv: mock.Mock()}
        self.create()
        self.assertFalse(self.moves.is_move(left.move_id))
        self.assertEqual(
            ['remove_lv', 'create_lv'],
            [call[0] for call in storage_parts.calls(self.there.storage)
             if call[0] in ('remove_lv', 'create_lv')
             and call[1][0] in (left.destination_lv, self.copy.name)])

    def show(self, above, opened=0):
        """The volume's handle is here, above an LV."""
        handle = names.handle(self.row.id)
        self.handles.survey.return_value = survey.Survey(
            {self.copy.name: lvm_reports.LogicalVolume(
                'g', self.copy.name, GIB, '9:1',
                frozenset(names.uncommitted(self.there.service.node.host)))},
            {handle: dm_tables.Device(handle, 'u', '9:3', opened, False,
                                      '0 1 linear %s 0' % above)})

    def test_the_handle_is_anothers(self):
        self.show('9:9')
        text = self.told(self.there, self.create, exceptions.NotMovable,
                         'NOT_MOVABLE')
        self.assertIn('another backend', text)
        self.assert_nothing_created()

    def test_asked_for_again(self):
        self.show('9:1')
        self.create()
        self.assertEqual(1, self.handles.ensure_handle_on_lv.call_count)

    @ddt.data(*itertools.product((True, False),
                                 ('ensure_handle_on_lv', 'accept')))
    @ddt.unpack
    def test_what_fails_late_leaves_nothing(self, created, step):
        """Cinder forgets the row; its LV would claim to be the volume."""
        self.show('9:1')
        self.lvm.create_lv.return_value = created
        room = storage_parts.of(self.there.service.node, step)
        getattr(room, step).side_effect = (
            exceptions.CommandTimeout(command='dmsetup', seconds=1))
        self.told(self.there, self.create, exceptions.CommandTimeout,
                  'TIMEOUT')
        # What another request has made stays that one's.
        expected = [mock.call(self.copy.name)] if created else []
        self.assertEqual(expected, self.lvm.remove_lv.mock_calls)

    def test_accept_that_is_late_but_done_leaves_nothing(self):
        """lvchange was killed after it had taken the tags off."""
        self.show('9:1')
        self.lvm.create_lv.return_value = True

        def late(name):
            seen = self.handles.survey.return_value
            self.handles.survey.return_value = survey.Survey({
                name: dataclasses.replace(
                    seen.lvs[name], tags=frozenset())}, seen.devices)
            raise exceptions.CommandTimeout(command='lvchange', seconds=1)

        def again(name):
            seen = self.handles.survey.return_value
            self.handles.survey.return_value = survey.Survey({
                name: dataclasses.replace(seen.lvs[name], tags=frozenset(
                    names.uncommitted(self.there.service.node.host)))},
                seen.devices)
        self.lvm.accept.side_effect = late
        self.lvm.mark_uncommitted.side_effect = again
        self.assertRaises(
            exceptions.CommandTimeout, self.create, self.there)
        self.lvm.remove_lv.assert_called_once_with(self.copy.name)

    def test_what_lvm_has_created_in_spite_of_an_error(self):
        self.show('9:1')
        self.lvm.create_lv.side_effect = (
            exceptions.CommandTimeout(command='lvcreate', seconds=1))
        self.told(self.there, self.create, exceptions.CommandTimeout,
                  'TIMEOUT')
        self.assertEqual([mock.call(self.copy.name)],
                         self.lvm.remove_lv.mock_calls)

    def test_what_fails_late_and_can_not_be_removed(self):
        self.show('9:1')
        self.handles.ensure_handle_on_lv.side_effect = (
            exceptions.CommandTimeout(command='dmsetup', seconds=1))
        self.handles.remove_handle.side_effect = ValueError()
        self.told(self.there, self.create, exceptions.CommandTimeout,
                  'TIMEOUT')

    def test_an_encrypted_type(self):
        key = base.cinder_volume(self.copy.id)
        key.encryption_key_id = fake.ENCRYPTION_KEY_ID
        key.save()
        self.told(self.there, self.create, exceptions.EncryptionUnsupported,
                  'ENCRYPTED')
        self.assert_nothing_created()

    def reconcile(self):
        self.there.storage.reset_mock()
        self.there.service.reconciler.reconcile(self.copy.id)

    def test_the_handle_comes_back(self):
        self.handles.survey.return_value = survey.Survey({}, {})
        self.reconcile()
        self.handles.ensure_handle_on_lv.assert_called_once_with(
            self.row.id, self.copy.name, GIB)

    @ddt.data((0, 1), (1, 0))
    @ddt.unpack
    def test_given_up_it_gives_the_handle_back(self, opened, removed):
        self.put(migration_status='error')
        self.show('9:1', opened)
        self.reconcile()
        self.assert_nothing_created()
        self.assertEqual(removed, self.handles.remove_handle.call_count)

    def test_what_has_the_handle_by_now_keeps_it(self):
        self.put(migration_status='error')
        self.show('9:9')
        self.reconcile()
        self.assert_nothing_created()
        self.assertEqual(0, self.handles.remove_handle.call_count)
        self.put(migration_status='migrating')
        self.assertRaises(exceptions.NotMovable, self.reconcile)
        self.assert_nothing_created()

    def test_a_look_at_the_node(self):
        self.show('9:1')
        self.there.service.node.exports.remote.return_value = {}
        self.copy.update({'status': 'available'})
        self.copy.save()
        self.there.service.reconciler.reconcile_node()
        self.assertEqual(0, self.handles.remove_handle.call_count)
        self.handles.ensure_handle_on_lv.assert_called_once_with(
            self.row.id, self.copy.name, GIB)

    def test_it_is_exported_by_the_volumes_name(self):
        self.copy.update({'status': 'available'})
        self.copy.save()
        copy = base.cinder_volume(self.copy.id)
        self.handles.survey.return_value = survey.Survey({}, {})
        exports = self.there.service.node.exports
        exports.export_volume.return_value = {'target_iqn': 'i'}
        exports.remote.return_value = {}
        self.assertEqual('iscsi', self.there.initialize_connection(
            copy, {'host': 'n3', 'initiator': 'iqn.n3'}
        )['driver_volume_type'])
        self.assertEqual((self.row.id, 'iqn.n3'),
                         exports.export_volume.call_args.args[:2])
        self.show('9:1')
        self.there.terminate_connection(
            copy, {'host': 'n3', 'initiator': 'iqn.n3'})
        exports.withdraw_volume.assert_called_once_with(
            self.row.id, 'iqn.n3')
        self.assertEqual(
            names.handle_path(self.row.id), self.there.initialize_connection(
                copy, {'host': 'b'})['data']['device_path'])

    @ddt.data({'host': 'n3', 'initiator': 'iqn.n3'}, None)
    def test_given_up_it_ends_no_connection_of_the_volume(self, connector):
        """Whoever copied is late: the volume has the handle by now."""
        self.put(host=B + '#p', migration_status='error')
        copy = base.cinder_volume(self.copy.id)
        exports = self.there.service.node.exports
        self.show('9:9')
        self.there.terminate_connection(copy, connector)
        exports.withdraw_volume.assert_not_called()
        self.show('9:1')
        self.there.terminate_connection(copy, connector)
        exports.withdraw_volume.assert_called_once_with(
            self.row.id, connector and 'iqn.n3')

    def test_given_up_nobody_gets_the_volumes_own_handle(self):
        self.put(host=B + '#p', migration_status='error')
        self.show('9:9')
        with mock.patch.object(messages, 'api'):
            self.assertRaises(
                exceptions.NotMovable, self.there.initialize_connection,
                base.cinder_volume(self.copy.id), {'host': 'b'})

    def finish(self):
        """As Cinder's manager does."""
        volume, copy = self.volume(), base.cinder_volume(self.copy.id)
        update = self.there.update_migrated_volume(
            self.context, volume, copy, 'available')
        copy.update({key: volume[key] for key in update})
        copy.save()
        volume.update(update)
        volume.save()
        return volume.finish_volume_migration(copy)

    def test_done(self):
        self.create()
        self.copy.update({'status': 'available'})
        self.copy.save()
        deleted = self.finish()
        volume = self.volume()
        self.assertEqual((B + '#p', self.copy.name),
                         (volume.host, volume.name))
        self.assertEqual((STOCK + '#x', 'volume-' + self.row.id),
                         (deleted.host, deleted.name))
        self.assertEqual(self.row.id,
                         self.volumes.volume(self.row.id).handle_id)
        # It moves as any other does.
        moved = self.move((COLD, None))
        self.assertEqual(self.copy.name, moved.source_lv)

    def half_finished(self):
        """Cinder's manager dies between the two rows."""
        self.show('9:1')
        self.put(host=B + '#p', _name_id=self.copy.id, migration_status=None)
        self.lvm.lvs.return_value = {
            self.copy.name: mock.Mock(tags=frozenset())}
        self.handles.devices.return_value = {}
        there = self.there.service.node
        there.exports.has_open_unexported.return_value = False

    def test_what_is_the_volumes_own_by_now_keeps_its_handle(self):
        self.half_finished()
        self.reconcile()
        self.assertEqual(0, self.handles.remove_handle.call_count)

    def test_what_is_the_volumes_own_by_now_is_not_deleted(self):
        self.half_finished()
        self.assertRaises(
            exception.VolumeIsBusy, self.there.delete_volume,
            base.cinder_volume(self.copy.id))
        self.assertEqual(0, self.lvm.remove_lv.call_count)
        self.assertEqual(0, self.handles.remove_handle.call_count)
        exports = self.there.service.node.exports
        self.assertEqual(0, exports.withdraw_volume.call_count)

    @ddt.data((1, 0), (0, 1))
    @ddt.unpack
    def test_what_still_writes_does_not_write_to_a_later_move(
            self, opened, built):
        """Cinder's copy was given up; then the volume moves to here."""
        self.put(host=A + '#p', migration_status='error')
        move = self.move((COLD,))
        self.show('9:1', opened)
        self.handles.devices.return_value = (
            self.handles.survey.return_value.devices)
        there = self.there.service.node
        there.exports.has_open_unexported.return_value = False
        if opened:
            self.assertRaises(exceptions.SourceBusy, self.prepare, move)
        else:
            self.prepare(move)
        self.assertEqual(
            built, self.handles.ensure_handle_on_clone.call_count)
        self.assertEqual(built, self.lvm.create_lv.call_count)

    def prepare(self, move):
        self.lvm.lvs.return_value = {move.destination_lv: mock.Mock()}
        callers.Answers(self.there.service).prepare(
            move.move_id, move.token.nonce)

    def test_deleting_it_needs_the_volumes_lock(self):
        held = []
        self.show('9:1')
        node = self.there.service.node
        self.lvm.lvs.return_value = {
            self.copy.name: mock.Mock(tags=frozenset())}
        self.handles.devices.return_value = {}
        node.exports.has_open_unexported.return_value = False

        @contextlib.contextmanager
        def lock(name):
            held.append(name)
            yield
        self.copy.update({'status': 'deleting'})
        self.copy.save()
        callers.delete(dataclasses.replace(node, lock=lock),
                       base.cinder_volume(self.copy.id))
        self.assertEqual([self.copy.id, self.row.id], held)
        self.assertEqual(
            [mock.call.remove_handle(self.row.id),
             mock.call.remove_lv(self.copy.name)],
            [call for call in storage_parts.calls(self.there.storage)
             if call in (
                mock.call.remove_handle(self.row.id),
                mock.call.remove_lv(self.copy.name))])

    def test_whose_lock_the_row_says_or_the_handle(self):
        """Each may be all that says so."""
        for status, shown in (('target:' + self.row.id, False),
                              ('deleting', True)):
            self.copy.update({'migration_status': status})
            self.copy.save()
            if shown:
                self.show('9:1')
            else:
                self.handles.survey.return_value = survey.Survey({}, {})
            self.assertEqual({self.row.id}, delete._others(
                self.there.service.node, self.volumes.volume(self.copy.id)))

    def test_late_request_ends_nothing_of_a_copy(self):
        """The host has the copy by a newer attachment."""
        objects.VolumeAttachment(
            self.context, volume_id=self.copy.id,
            instance_uuid=fake.INSTANCE_ID, attach_status='attached',
            connector={'host': 'n3', 'initiator': 'iqn.n3'}).create()
        self.show('9:1')
        found, = base.cinder_volume(self.copy.id).volume_attachment
        exports = self.there.service.node.exports
        for earlier, ended in (('an earlier one', 0), (found.id, 1)):
            self.there.service.connections.disconnect(
                self.copy.id, found.connector,
                {earlier: found.connector})
            self.assertEqual(ended, exports.withdraw_volume.call_count)


@ddt.ddt
class InterruptedTest(Base):
    """The volume service died while Cinder's manager migrated."""

    def end(self, host=A):
        found = interrupted.Interrupted().end_interrupted(host)
        volume = self.volume()
        return found.get(self.row.id), volume.status, volume.migration_status

    def begins(self, status, previous='available'):
        self.cinder_begins(status, 'migrating')
        volume = self.volume()
        volume.previous_status = previous
        volume.save()

    def begin(self):
        return self.moves.begin(
            self.volume(), B + '#p', COLD, cinder_case.GEOMETRY,
            lambda record: 'p,1 i:%s 0' % record, 'CHAP u s', 'i',
            Asked.MIGRATION)

    @ddt.data('available', 'maintenance', 'retyping')
    def test_before_anything_was_done(self, status):
        """Also while Cinder copied to another backend."""
        self.begins(status)
        self.assertEqual(('error', 'available', 'error'), self.end())

    @ddt.data('available', 'maintenance', 'retyping')
    def test_before_the_commit(self, status):
        self.begins(status)
        moving = self.begin()
        ended, status, migration_status = self.end()
        self.assertEqual(('error', 'error'), (ended, migration_status))
        self.moves.advance(moving, Event.FAILED)
        self.assertEqual('available', self.volume().status)

    def test_held_until_the_move_is_given_up(self):
        self.begins('available')
        self.begin()
        self.assertEqual('maintenance', self.end()[1])

    @ddt.data('available', 'maintenance', 'retyping')
    def test_after_the_commit(self, status):
        self.begins(status)
        self.moves.commit(self.begin())
        self.assertEqual(('success', 'available', 'success'), self.end())

    @ddt.data('available', 'maintenance', 'retyping')
    def test_attached_after_an_earlier_move_from_here(self, status):
        """A retype of what is in use; free, another server would get it."""
        self.begins(status, 'in-use')
        self.moves.commit(self.begin())
        volume = self.volume()
        volume.attach_status = 'attached'
        volume.save()
        status = self.volume().status
        self.assertEqual((None, status, 'migrating'), self.end())

    @ddt.data('maintenance', 'retyping')
    def test_attached_though_it_was_free_when_cinder_began(self, status):
        """What it was does not count. Another server would get it."""
        self.begins(status, 'available')
        self.moves.commit(self.begin())
        volume = self.volume()
        volume.attach_status = 'attached'
        volume.save()
        self.assertEqual((None, status, 'migrating'), self.end())

    def test_attached_after_the_commit(self):
        """It has moved, whoever has it by now: else nobody ends that."""
        self.begins('available')
        self.moves.commit(self.begin())
        self.attach()
        volume = self.volume()
        volume.attach_status = 'attached'
        volume.save()
        self.assertEqual(('success', 'in-use', 'success'), self.end())

    def test_move_that_is_not_understood(self):
        """It may be committed: its volume is left alone."""
        self.begins('retyping')
        record = objects.Volume.get_by_id(
            self.context, self.begin().move_id)
        record.replication_driver_data = 'lc1:hovering:n:1:2:3'
        record.save()
        self.assertEqual((None, 'retyping', 'migrating'), self.end())

    def test_copy_of_another_that_was_left(self):
        """What is being copied is the migration: no other gets far."""
        self.begins('available')
        self.moves.commit(self.begin())
        utils.create_volume(
            self.context, size=1, volume_type_id=None, status='available',
            host=STOCK + '#x', migration_status='target:' + self.row.id)
        self.assertEqual(('success', 'available', 'success'), self.end())

    def test_nova_copies_what_an_attach_has_moved_away(self):
        """That is being copied yet; then it would be extended meanwhile."""
        self.begins('available')
        self.moves.commit(self.begin())
        self.attach('b')
        volume = self.volume()
        volume.status, volume.attach_status = 'in-use', 'attached'
        volume.migration_status = 'migrating'
        volume.previous_status = 'in-use'  # as Cinder's API writes it
        volume.save()
        self.assertEqual((None, 'in-use', 'migrating'), self.end())

    def test_migrated_by_its_home_after_an_attach_elsewhere(self):
        """What that has left here is no end of the migration."""
        self.move((COLD, None, Event.HYDRATED, Event.DRAINED))
        self.cinder_begins('available', 'migrating')
        self.assertEqual((None, 'available', 'migrating'), self.end())

    def test_its_home_dies_while_an_attach_is_copied_to_it(self):
        """That copy is no migration, and goes on; nobody else ends this."""
        self.move((COLD, None))
        self.cinder_begins('available', 'migrating')
        self.assertEqual(('error', 'available', 'error'), self.end(B))

    def test_copied_by_its_home_after_an_attach_elsewhere(self):
        """Somebody forces Cinder to copy it. Its new home's service does."""
        self.move((COLD, None))
        self.cinder_begins('available', 'migrating')
        utils.create_volume(
            self.context, size=1, volume_type_id=None, status='available',
            host=STOCK + '#x', migration_status='target:' + self.row.id)
        self.assertEqual((None, 'available', 'migrating'), self.end())

    def test_by_the_new_home_it_is_not_known(self):
        self.begins('available')
        self.moves.commit(self.begin())
        self.assertEqual((None, 'available', 'migrating'), self.end('c@l'))

    @ddt.data('starting', 'completing', 'success', None)
    def test_what_is_not_the_managers_or_too_late(self, migration_status):
        self.cinder_begins('available', migration_status)
        self.assertEqual((None, 'available', migration_status), self.end())

    def test_what_nova_copies(self):
        self.attach()
        volume = self.volume()
        volume.attach_status = 'attached'
        volume.save()
        self.assertEqual((None, 'in-use', 'migrating'), self.end())

    def test_of_another_node(self):
        self.begins('available')
        self.assertEqual((None, 'available', 'migrating'), self.end(B))

    def is_migrated_from_b(self, *ends):
        """It came from A, which still has to clean up; B migrates it."""
        self.begins('available')
        move = self.moves.commit(self.begin())
        for event in (Event.HYDRATED, Event.DRAINED):
            move = self.moves.advance(move, event)
        self.begins('maintenance')
        for values in ends:
            utils.create_volume(
                self.context, size=1, volume_type_id=None,
                migration_status='target:' + self.row.id, **values)

    def test_what_the_new_home_migrates_is_not_the_old_ones(self):
        self.is_migrated_from_b(dict(host=STOCK + '#x', status='available'))
        self.assertEqual((None, 'maintenance', 'migrating'), self.end())
        self.assertEqual(('error', 'available', 'error'), self.end(B))

    def test_what_is_moved_on_is_not_the_old_ones(self):
        self.is_migrated_from_b()
        self.moves.begin(
            self.volume(), 'c@l#p', COLD, cinder_case.GEOMETRY,
            lambda record: 'p,1 i:%s 0' % record, 'CHAP u s', 'i',
            Asked.MIGRATION)
        self.assertEqual((None, 'maintenance', 'migrating'), self.end())

    def test_copied_before_the_old_home_is_back(self):
        self.begins('maintenance')
        move = self.moves.commit(self.begin())
        for event in (Event.HYDRATED, Event.DRAINED):
            move = self.moves.advance(move, event)
        self.assertEqual(('success', 'available', 'success'), self.end())

    def test_the_new_home_starts_before_the_old_one_has_recorded_it(self):
        self.begins('maintenance')
        self.moves.commit(self.begin())
        self.assertEqual((None, 'maintenance', 'migrating'), self.end(B))

    @ddt.data('available', 'retyping')
    def test_detached_meanwhile(self, status):
        self.begins(status, previous='in-use')
        self.assertEqual(('error', 'available', 'error'), self.end())
